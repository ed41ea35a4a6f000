"""Hosts held against another fleet: one new host, and a fleet that is slow as a whole."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from rater.analysis.stats.robust import Floats
from rater.fleet.hosts import compare_fleet, results_of
from rater.fleet.show import odd_text
from rater.fleet.slowness import compare_against
from rater.store.store import open_store
from tests.support.calls import Rater, query_rows
from tests.support.fleets import MadeHost, collected, indexed_run


def made_logs(hosts: int, seed: int, benchmarks: int = 6) -> Floats:
    """ln times of .4 % noise; hosts are .3 % apart."""
    random = np.random.default_rng(seed)
    noise = 0.004 * random.standard_t(4, (hosts, benchmarks, 3)) / 2**0.5
    return np.asarray(4.6 + noise + 0.003 * random.standard_normal((hosts, benchmarks, 1)))


@pytest.mark.parametrize("hosts", [1, 4, 16])
def test_every_host_of_a_slow_fleet_is_named_and_none_of_an_equal_one(hosts: int) -> None:
    reference = made_logs(8, 1)
    assert compare_against(made_logs(hosts, 2), reference).slow == ()
    slow = compare_against(made_logs(hosts, 2) + 0.05, reference).slow
    assert sorted(it.host for it in slow) == [*range(hosts)]
    assert all(it.effect == pytest.approx(0.05, abs=0.01) for it in slow)


def test_slow_hosts_of_the_other_fleet_are_no_measure() -> None:
    reference = made_logs(12, 1)
    reference[:3] += 0.06
    (slow,) = compare_against(made_logs(1, 2) + 0.04, reference).slow
    assert slow.effect == pytest.approx(0.04, abs=0.01)


def test_another_number_of_iterations_is_held_against_the_typical_one() -> None:
    (slow,) = compare_against(made_logs(1, 2)[:, :, :2] + 0.05, made_logs(8, 1)).slow
    assert slow.effect == pytest.approx(0.05, abs=0.01)


def test_three_hosts_do_not_show_what_is_usual() -> None:
    with pytest.raises(ValueError, match="3 hosts, expected 4 or more"):
        compare_against(made_logs(1, 2), made_logs(3, 1))


@pytest.fixture
def fleets(database: Path) -> None:
    """Fleet 1 of five hosts, fleet 2 of one that is 6 % slow, fleet 3 of four slow by 6 %."""
    collected(database, {})
    collected(database, {"n1": MadeHost(node="n1", slow={"": 1.06})}, 1, fleet=2)
    slow = {f"n{host}": MadeHost(node=f"n{host}", slow={"": 1.06}) for host in range(1, 5)}
    collected(database, slow, 4, fleet=3)


@pytest.mark.usefixtures("fleets")
@pytest.mark.parametrize(
    ("fleet", "hosts", "alone"),
    [(2, 1, "Cannot tell: one host alone of this kind"), (3, 4, "No slow hosts")],
)
def test_a_fleet_is_judged_against_a_stored_one(
    rater: Rater, fleet: int, hosts: int, alone: str
) -> None:
    assert alone in " ".join(rater("divots", f"fleet:{fleet}")[1].split())
    words = ("divots", f"fleet:{fleet}", "--against", "fleet:1")
    status, out, err = rater(*words, "--fail-on", "slow-host:5%")
    text = " ".join(out.split())
    assert (status, "--fail-on slow-host: n" in err) == (1, True)
    assert f"Fleet {fleet}: {hosts} slow host" in text
    assert "slower than the hosts of fleet 1" in text
    assert re.search(r"Median host: \+(5.9|6.[012]) % against 5 hosts of fleet 1\.", text)


@pytest.mark.usefixtures("fleets")
def test_hosts_of_another_machine_or_program_and_disturbed_ones_are_no_reference(
    rater: Rater, database: Path
) -> None:
    words = ("divots", "fleet:2", "--against", "fleet:1", "--fail-on", "slow-host:5%")
    with open_store(database) as store, store.writing("a test") as connection:
        connection.execute("UPDATE fleet_run SET kernel = '6.2' WHERE fleet = 2")
    assert rater(*words)[0] == 1  # whatever the kernel is
    for change in ("cpu_model = 'CPU 10'", "size = 'ref'", "others_cost = 0.4"):
        with open_store(database) as store, store.writing("a test") as connection:
            connection.execute(f"UPDATE fleet_run SET {change} WHERE fleet = 1")
        status, out, err = rater(*words)
        why = "no host of this kind and program, undisturbed, in the fleet to compare with"
        assert (status, why in " ".join(out.split()), "cannot be judged" in err) == (3, True, True)
    assert query_rows("SELECT count(*) FROM fleet_run") == [(10,)]


def test_against_belongs_to_a_fleet(rater: Rater) -> None:
    status, _, err = rater("divots", "last", "--against", "fleet:1")
    assert (status, "--against belongs to fleet:N" in err) == (2, True)


def odd_of(
    settings: dict[int, dict[str, str]], host: str = "n1"
) -> list[tuple[str, str | None, str | None]]:
    """Return what a host has otherwise than most of n1 to n4, which have the settings of 1 to 4."""
    hosts = [f"n{number}" for number in (1, 2, 3, 4)]
    runs = [indexed_run(host, setting=number) for number, host in enumerate(hosts, 1)]
    each: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {"lu": ((9.0,), (9.0,))}
    times = {(host, 1, 1): each for host in hosts}
    (kind,) = compare_fleet(results_of(runs, times, settings)).kinds
    return [(it.name, it.value, it.usual) for it in kind.odd_settings.get(host, ())]


def test_an_empty_channel_and_a_word_of_the_command_line_are_told_of_one_host() -> None:
    slot = "dimm.P0 CHANNEL H/DIMM 0"
    line = "BOOT_IMAGE=/vmlinuz root=UUID={} ro mitigations=auto nosmt key={}"
    others = {
        number: {"kernel.cmdline": line.format(number, number), slot: "64 GB DDR5"}
        for number in (2, 3, 4)
    }
    own = {"kernel.cmdline": "root=UUID=1 ro quiet mitigations=off key=9", slot: "empty"}
    odd = odd_of({1: own} | others)
    names = ("name", "value", "usual")
    assert odd_text([dict(zip(names, row, strict=True)) for row in odd[:2]]) == (
        "differs: memory slot P0 CHANNEL H/DIMM 0 is empty (most others: 64 GB DDR5), "
        "kernel.cmdline mitigations is off (most others: auto)"
    )
    assert odd == [
        (slot, "empty", "64 GB DDR5"),
        ("kernel.cmdline mitigations", "off", "auto"),
        ("kernel.cmdline nosmt", None, "nosmt"),
        ("kernel.cmdline quiet", "quiet", None),
    ]


def test_what_only_root_reads_is_not_absent_where_a_user_ran() -> None:
    known = {"dimms.found": "8 x 64 GB DDR5", "kernel.cmdline": "nosmt"}
    assert odd_of({1: {}, 2: known, 3: known, 4: known}) == []
    no_majority = {1: {"dimms.found": "7 x"}, 2: {}, 3: known, 4: {}}
    assert odd_of(no_majority) == odd_of(no_majority, "n3") == []
    assert odd_of({1: {"dimms.found": "7 x"}, 2: {}, 3: known, 4: known}) == [
        ("dimms.found", "7 x", "8 x 64 GB DDR5")
    ]
