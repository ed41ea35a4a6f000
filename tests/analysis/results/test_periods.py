"""Places in time: where in a phase something was, worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from rater.analysis.results.periods import (
    PeriodKind,
    find_period,
    notable_periods,
    period_text,
    phase_periods,
)
from rater.analysis.results.series import Values, phase_times
from rater.record.series import Column
from rater.record.stored import StoredRun
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S
from tests.support.series import MB, busy_run, packed

EDGES = tuple(float(second) for second in range(11))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0, 0, 0, 0.5, 0.5, 0.5, 0, 0, 0, 0), (3, 6, 0.5)),
        # From 2.8 to 6.4: the first has a fifth of an interval, the last two fifths.
        ((0, 0, 0.1, 0.5, 0.5, 0.5, 0.2, 0, 0, 0), (2.8, 6.4, 0.5)),
        # From 3.4 to 6: six tenths of an interval are more than half of it.
        ((0, 0, 0, 0.3, 0.5, 0.5, 0, 0, 0, 0), (3.4, 6, 0.5)),
        ((0.8, 0.8, 0, 0, 0, 0, 0, 0, None, None), (0, 2, 0.8)),
        ((0, 0, 0, 0, 0, 0, 0, 0, 0.2, 0.2), (8, 10, 0.2)),
        # Throughout, and now and then: the whole phase, with the mean.
        ((0.5,) * 10, (0, 10, 0.5)),
        ((0.5, 0, 0.5, 0, 0.5, 0, 0.5, 0, 0.5, 0), (0, 10, 0.25)),
        # Too little, in one piece and in several.
        ((0, 0, 0, 0.09, 0.09, 0, 0, 0, 0, 0), None),
        ((0.2, 0, 0, 0, 0.2, 0, 0, 0, 0.2, 0), None),
        ((None,) * 10, None),
        ((), None),
    ],
)
def test_a_period_is_where_most_of_something_was(
    values: Values, expected: tuple[float, float, float] | None
) -> None:
    period = find_period(EDGES, values)
    assert period == (None if expected is None else pytest.approx(expected))


def test_an_interval_of_some_milliseconds_at_the_end_hides_no_period() -> None:
    # One tick in 10 ms is the whole CPU, and no disturbance.
    assert find_period((0, 1, 2, 2.01), (0.4, 0.4, 1.0)) == pytest.approx((0, 2, 0.4), abs=0.02)
    assert find_period((0, 1, 2, 2.01), (0, 0, 1.0)) is None


def test_a_busy_loop_a_quota_and_a_start_up_have_their_places_in_time() -> None:
    [phase] = phase_times(busy_run())
    assert [(it.kind, it.begin_s, it.end_s) for it in phase_periods(phase)] == [
        (PeriodKind.OTHERS, 3.0, 6.0),
        (PeriodKind.QUOTA, 7.0, 8.0),
        (PeriodKind.STARTUP, 0.0, 1.0),
    ]


def test_periods_are_told_in_words_the_costliest_first_and_once_for_all_iterations() -> None:
    periods = notable_periods(phase_times(busy_run(iterations=2)))
    assert [period_text(period) for period in periods] == [
        "CPU 1: others had 50 % from second 3 to 6 (a, iteration 2)",
        "start-up of copy 0: 0.3 of 1 s computed, 60 MB/s read (a, iterations 1-2)",
        "the CPU quota kept copies off 0.5 CPUs from second 7 to 8 (a, iteration 2); "
        "raise the cgroup's cpu.max, or run fewer copies",
    ]
    assert [len(period.each) for period in periods] == [1, 2, 1]


# -- What each kind looks like, in two copies that ran for 10 s on CPUs 0 and 1 --------------------

type Growth = Sequence[float]  # a second, of ten


def during(first: int, last: int, size: float, *, otherwise: float = 0.0) -> Growth:
    """Ten seconds with a size from one second to another."""
    return [size if first <= second < last else otherwise for second in range(10)]


NOTHING, ALWAYS = during(0, 0, 0), during(0, 10, 100)
HALF_A_GB_LIMIT = {"cgroup.memory_limit_bytes": "512000000"}


def rows_of(columns: Iterable[Sequence[Growth]]) -> dict[float, list[Column]]:
    """Rows of counters that grow so in each second, a growth for each place."""
    counted = [[[0, *accumulate(growth)] for growth in places] for places in columns]
    return {
        second: [[round(sums[second]) for sums in places] for places in counted]
        for second in range(11)
    }


def made_run(
    cpu: Mapping[str, Sequence[Growth]] = MappingProxyType({}),
    copy: Mapping[str, Sequence[Growth]] = MappingProxyType({}),
    machine: Mapping[str, Growth] = MappingProxyType({}),
    mhz: Growth = (),
    settings: Mapping[str, str] = MappingProxyType({}),
) -> StoredRun:
    """Two copies that had their CPUs all the time, but for what is said."""
    of_cpus = {"user": (ALWAYS,) * 2, "system": (NOTHING,) * 2, "steal": (NOTHING,) * 2, **cpu}
    of_copies = {"cpu_ms": (during(0, 10, 1000),) * 2, "read_bytes": (NOTHING,) * 2, **copy}
    cpu_rows = rows_of({"irq": (NOTHING,) * 2, **of_cpus}.values())
    names = [*{"irq": (), **of_cpus}]
    if mhz:
        names.append("mhz")
        for second, row in cpu_rows.items():
            row.append([round(mhz[int(second) - 1]) if second else None] * 2)
    series = (
        packed("cpu", (0, 1), names, cpu_rows),
        packed("copy", (0, 1), [*of_copies], rows_of(of_copies.values())),
        packed("machine", (0,), [*machine], rows_of([growth] for growth in machine.values())),
    )
    run = read_run([computed(0, 10), computed(1, 10)])
    return replace(run, series=series, settings=tuple(settings.items()))


def texts_of(run: StoredRun) -> list[str]:
    return [period_text(it, is_named=False) for it in notable_periods(phase_times(run))]


SLOW = (during(0, 10, 300),) * 2  # milliseconds of CPU a second that copies had
IDLE = (during(0, 10, 30),) * 2  # hundredths of a second that their CPUs worked


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            made_run(
                cpu={"user": IDLE},
                copy={"cpu_ms": SLOW},
                machine={"cfs_throttled_ns": during(0, 10, 1.4 * S)},
                settings={"cgroup.cpu_quota": "0.6"},
            ),
            "the CPU quota (0.6 CPUs) kept copies off 1.4 CPUs from second 0 to 10",
        ),
        (
            made_run(cpu={"steal": (NOTHING, during(4, 8, 20))}),
            "CPU 1: the hypervisor's other guests had 20 % from second 4 to 8",
        ),
        (
            made_run(cpu={"irq": (during(0, 10, 30), NOTHING)}),
            "CPU 0: interrupts took 30 % from second 0 to 10",
        ),
        (
            made_run(machine={"pressure_memory_some_ns": during(2, 5, 0.3 * S)}),
            "tasks waited for memory 30 % from second 2 to 5",
        ),
        (
            made_run(
                machine={
                    "pressure_memory_some_ns": during(2, 5, 0.3 * S),
                    "memory_limit_hits": during(2, 5, 1200),
                },
                settings=HALF_A_GB_LIMIT,
            ),
            "tasks waited for memory 30 % from second 2 to 5: "
            "the memory limit (512 MB) was reached 1200 times a second",
        ),
        (
            made_run(cpu={"throttles": (during(3, 6, 12), during(3, 6, 12))}),
            "CPUs 0-1: too hot 12 times a second from second 3 to 6",
        ),
        (
            made_run(
                cpu={"throttles": (during(3, 6, 12), during(3, 6, 12))},
                mhz=during(3, 6, 2100, otherwise=3000),
            ),
            "CPUs 0-1: too hot 12 times a second from second 3 to 6, at 2100 MHz in place of 3000",
        ),
        (
            made_run(mhz=during(3, 6, 1200, otherwise=3000)),
            "CPUs 0-1: a slower clock from second 3 to 6, at 1200 MHz in place of 3000",
        ),
        (
            made_run(
                cpu={"user": (during(0, 10, 17),) * 2},
                machine={"pressure_cpu_some_ns": during(3, 6, 0.4 * S)},
            ),
            "tasks waited for a CPU 40 % from second 3 to 6, and who had it is not known",
        ),
        (
            made_run(
                cpu={"user": (during(0, 1, 87, otherwise=100),) * 2},
                copy={
                    "cpu_ms": (during(0, 1, 870, otherwise=1000),) * 2,
                    "read_bytes": (during(0, 1, 64 * MB),) * 2,
                },
                machine={"pressure_io_some_ns": during(0, 1, 0.11 * S)},
            ),
            "start-up of copies 0-1: 0.9 of 1 s computed, 128 MB/s read, 0.1 s waited for a disk",
        ),
        (
            # Others used what the copies left, which is no disturbance.
            made_run(
                copy={
                    "cpu_ms": (during(0, 1, 910, otherwise=1000),) * 2,
                    "read_bytes": (during(0, 1, 64 * MB),) * 2,
                },
                machine={"pressure_io_some_ns": during(0, 1, 0.05 * S)},
            ),
            "start-up of copies 0-1: 0.9 of 1 s computed, 128 MB/s read, 0.1 s waited for a disk",
        ),
        (
            made_run(
                cpu={"user": (during(6, 8, 25, otherwise=100), ALWAYS)},
                copy={
                    "cpu_ms": (during(6, 8, 250, otherwise=1000), during(0, 10, 1000)),
                    "written_bytes": (during(6, 8, 20 * MB), NOTHING),
                },
                machine={"pressure_io_some_ns": during(6, 8, 0.7 * S)},
            ),
            "copy 0 waited for a disk from second 6 to 8: 0.5 of 2 s computed, 20 MB/s written, "
            "1.4 s waited for a disk",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_whatever_keeps_copies_from_their_cpus_is_told_with_its_size(
    run: StoredRun, text: str
) -> None:
    assert texts_of(run) == [text]


@pytest.mark.parametrize(
    "run",
    [
        made_run(mhz=during(0, 10, 3000)),
        # A little of all, as on a quiet machine.
        made_run(
            cpu={"user": (during(0, 10, 98),) * 2, "irq": (during(0, 10, 1),) * 2},
            copy={"cpu_ms": (during(0, 10, 960),) * 2, "read_bytes": (during(0, 1, 9e5),) * 2},
            machine={"pressure_io_some_ns": during(0, 1, 0.02 * S), "cfs_throttled_ns": NOTHING},
            mhz=[2900, 3100, 3000, 3200, 2900, 3000, 3100, 2900, 3000, 3100],
        ),
        # Others read from the disk, or copies read what costs them nothing.
        made_run(machine={"pressure_io_some_ns": during(2, 5, 0.9 * S)}),
        made_run(copy={"read_bytes": (during(0, 3, 64 * MB),) * 2}),
        # Their CPUs were busy: they waited for those, not for the disk.
        made_run(
            copy={"cpu_ms": (during(0, 10, 930),) * 2, "read_bytes": (during(0, 3, 2 * MB),) * 2},
        ),
    ],
)
def test_a_quiet_run_has_no_periods(run: StoredRun) -> None:
    assert texts_of(run) == []


def test_what_comes_when_the_copies_of_a_cpu_have_ended_cost_them_nothing() -> None:
    copies = {"cpu_ms": (during(0, 4, 1000), during(0, 10, 1000))}
    run = made_run(copy=copies)
    assert texts_of(run) == ["CPU 0: others had 100 % from second 4 to 10"]
    for end_ns in (4 * S, 4 * S + S // 2):  # and others had the rest of its last interval
        ended = replace(run.copies[0], elapsed_ns=end_ns, finish_ns=end_ns)
        assert texts_of(replace(run, copies=(ended, run.copies[1]))) == []


@pytest.mark.parametrize(("waited_s", "is_told"), [(4.0, True), (0.1, False), (None, True)])
def test_others_on_a_cpu_that_its_copy_did_not_want_are_no_matter(
    waited_s: float | None, *, is_told: bool
) -> None:
    copies = {"cpu_ms": (during(0, 4, 1000, otherwise=200), during(0, 10, 1000))}
    run = made_run(copy=copies)
    waits = {"run_delay_ns": round(waited_s * S), "run_delay_cpu_ns": 5 * S} if waited_s else {}
    waiting = (computed(0, 5.2, **waits), run.copies[1])
    text = "CPU 0: others had 80 % from second 4 to 10"
    assert texts_of(replace(run, copies=waiting)) == ([text] if is_told else [])


def test_half_a_second_in_one_of_many_iterations_is_no_matter() -> None:
    [phase] = phase_times(made_run(cpu={"steal": (during(4, 5, 40), NOTHING)}))
    quiet = phase_times(made_run())[0]

    def with_quiet_ones(how_many: int) -> list[str]:
        others = [
            replace(quiet, phase=number, iteration=number + 1) for number in range(1, how_many)
        ]
        return [period_text(it) for it in notable_periods([phase, *others])]

    text = "CPU 0: the hypervisor's other guests had 40 % from second 4 to 5 (a, iteration 1)"
    assert with_quiet_ones(7) == [text]
    assert with_quiet_ones(9) == []
