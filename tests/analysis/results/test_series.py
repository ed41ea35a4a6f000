"""Series as shares and rates over the time of a phase, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.series import PhaseTimes, phase_times
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S
from tests.support.series import packed

CPU = ("user", "system", "irq", "steal", "mhz")


def times_of(run: StoredRun) -> PhaseTimes:
    [phase] = phase_times(run)
    return phase


def run_with(
    families: Mapping[str, Sequence[Any]],
    masks: Sequence[tuple[int, ...] | None] | None = None,
) -> StoredRun:
    """Two copies that ran for 10 s, on CPUs 0 and 1, with series."""
    run = read_run([computed(0, 10), computed(1, 10)], masks=masks)
    series = tuple(packed(family, *rows) for family, rows in families.items())
    return replace(run, series=series)


CPUS = (
    (0, 1),
    ("user", "system", "irq", "steal"),
    {
        0: [[0, 0], [0, 0], [0, 0], [0, 0]],
        5: [[400, 500], [50, 0], [10, 0], [40, 0]],
        10: [[900, 1000], [50, 0], [10, 0], [40, 0]],
    },
)
COPIES = ((0, 1), ("cpu_ms",), {0: [[0, 0]], 5: [[3500, 4990]], 10: [[8500, 9980]]})


def test_what_copies_did_not_use_of_a_cpu_others_did() -> None:
    phase = times_of(run_with({"cpu": CPUS, "copy": COPIES}))
    first, second = phase.cpus
    assert (first.cpus, first.copies) == ((0,), (0,))
    assert first.own == pytest.approx((0.7, 1.0))
    assert first.others == pytest.approx((0.2, 0.0))
    assert first.irq == pytest.approx((0.02, 0))
    assert first.steal == pytest.approx((0.08, 0))
    assert second.others == pytest.approx((0.002, 0.002))
    assert phase.seconds == (0, 5, 10)


def test_a_tick_more_than_an_interval_is_long_is_no_more_than_the_whole_cpu() -> None:
    columns = ("user", "system", "irq", "steal")
    busy = ((0, 1), columns, {0: [[0, 0]] + [[0, 0]] * 3, 5: [[0, 505]] + [[0, 0]] * 3})
    copies = ((0, 1), ("cpu_ms",), {0: [[0, 0]], 5: [[0, 0]]})
    second = times_of(run_with({"cpu": busy, "copy": copies})).cpus[1]
    assert second.others == (1.0,)


def test_cpus_that_the_same_copies_may_use_are_one() -> None:
    phase = times_of(run_with({"cpu": CPUS, "copy": COPIES}, masks=[(0, 1), (0, 1)]))
    [both] = [cpus for cpus in phase.cpus if cpus.copies]
    assert both.cpus == (0, 1)
    assert both.own == pytest.approx(((3.5 + 4.99) / 10, (5 + 4.99) / 10))


def test_a_counter_that_was_not_read_at_an_edge_grew_evenly_between_two_readings() -> None:
    copies = (
        (0, 1),
        ("cpu_ms", "read_bytes"),
        {0: [[0, 0], [0, 0]], 5: [[0, 0], [None, 50]], 10: [[0, 0], [1000, None]]},
    )
    phase = times_of(run_with({"cpu": CPUS, "copy": copies}))
    assert phase.moved[0].read == pytest.approx((100, 100))
    # Behind the last reading nothing is known: that is not zero.
    assert phase.moved[1].read[0] == 10
    assert phase.moved[1].read[1] is None
    assert phase.read_rate() == pytest.approx((110, 100))


def test_pressure_quota_energy_and_disks_are_those_of_the_machine() -> None:
    machine = (
        (0,),
        ("cfs_throttled_ns", "energy_package-0_uj", "pgpgin", "pressure_io_some_ns"),
        {0: [[0], [0], [7], [0]], 5: [[S], [50], [107], [S]], 10: [[S], [10**9], [107], [6 * S]]},
    )
    phase = times_of(run_with({"cpu": CPUS, "machine": machine}))
    assert phase.pressure == {"io": pytest.approx((0.2, 1.0))}
    assert phase.throttled == pytest.approx((0.2, 0))
    assert phase.watts == {"package-0": pytest.approx((1e-5, 200.0), rel=1e-4)}
    assert phase.rates == {"disk read": pytest.approx((20 * 1024, 0))}


def test_memory_traffic_is_bytes_a_second_by_node_from_controllers_and_caches() -> None:
    gigabyte = 10**9
    traffic = (
        (0, 1),
        ("read_bytes",),
        {0: [[0, 0]], 5: [[170 * gigabyte, 5]], 10: [[270 * gigabyte, 5]]},
    )
    caches = ((0,), ("local_bytes",), {0: [[0]], 5: [[None]], 10: [[10]]})
    phase = times_of(run_with({"cpu": CPUS, "traffic": traffic, "resctrl": caches}))
    assert phase.traffic["read"][0] == pytest.approx((34 * gigabyte, 20 * gigabyte))
    assert phase.traffic["read"][1] == pytest.approx((1, 0))
    assert phase.traffic["local"][0] == pytest.approx((1, 1))


def test_a_damaged_series_is_named_with_its_run() -> None:
    run = run_with({"cpu": CPUS})
    damaged = replace(run, series=(replace(run.series[0], packed=b"12345"),))
    with pytest.raises(InputError, match=r"the series cpu of phase 0 is damaged"):
        phase_times(damaged)
    assert phase_times(replace(run, series=())) == ()
