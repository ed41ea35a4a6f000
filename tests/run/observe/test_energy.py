"""Energy read from trees of plain files: powercap, perf's power PMU, hwmon."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from rater.run.observe.energy import (
    EnergyDomain,
    EnergyReader,
    energy_sources,
    grown_uj,
    longest_wait_s,
)
from tests.support.energy_tree import RANGE_UJ, package_of, powercap, stand, zone
from tests.support.strangers import STRANGER, needs_root


def drawn(reader: EnergyReader, root: Path, **more_uj: int) -> dict[str, int]:
    """Let counters grow (`z1_0` is intel-rapl:1:0); read again."""
    for name, microjoules in more_uj.items():
        called = f"intel-rapl:{name.removeprefix('z').replace('_', ':')}"
        before_uj = int(zone(root, called).read_text())
        stand(root, called, (before_uj + microjoules) % RANGE_UJ)
    return reader.read()


@pytest.mark.parametrize(
    ("before", "now", "wraps_at", "grown"),
    [(5, 5, 100, 0), (5, 9, 100, 4), (90, 3, 100, 13), (90, 3, None, None)],
)
def test_a_counter_grew_by_so_much(
    before: int, now: int, wraps_at: int | None, grown: int | None
) -> None:
    assert grown_uj(before, now, wraps_at) == grown


def test_counters_are_read_twice_before_one_could_wrap_around_at_2_kw() -> None:
    small, large = (EnergyDomain("a", "", lambda: 0, range_uj) for range_uj in (65 * 10**9, 10**12))
    assert longest_wait_s([large, small]) == pytest.approx(16.25)


def test_packages_and_memory_of_powercap_are_told_apart_by_their_path(tmp_path: Path) -> None:
    """Two zones are called dram; the kernel's package 1 is hwloc's 0; mmio is a twin."""
    reader = EnergyReader(powercap(tmp_path))
    assert set(reader.read().values()) == {0}
    assert drawn(reader, tmp_path, z0=7, z0_0=2, z0_1=4, z1=100, z1_0=30, z2=150) == {
        "package-1": 7,
        "package-1-dram": 2,
        "package-1-core": 4,
        "package-0": 100,
        "package-0-dram": 30,
        "psys": 150,
    }


def test_a_counter_that_wraps_around_again_and_again_adds_up(tmp_path: Path) -> None:
    reader = EnergyReader(powercap(tmp_path))
    reader.read()
    for _ in range(5):
        total = drawn(reader, tmp_path, z1=200_000_000_000)["package-0"]
    assert total == 1_000_000_000_000


def test_counters_are_read_while_copies_run_so_that_no_round_is_missed(tmp_path: Path) -> None:
    """A range of 4 J at 2 kW: to be read every millisecond."""
    powercap(tmp_path)
    counter = zone(tmp_path, "intel-rapl:1")
    (counter.parent / "max_energy_range_uj").write_text("4000000")
    reader = EnergyReader(tmp_path)
    reader.read()

    async def rounds() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader.keep_up)
            with trio.fail_after(10):
                for microjoules in (3_900_000, 2_000_000, 900_000):
                    stand(tmp_path, "intel-rapl:1", microjoules)
                    while reader._last["package-0"] != microjoules:
                        await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    trio.run(rounds)
    assert reader.read()["package-0"] == 2_900_000 + 2_100_000 + 2_900_000


def test_a_zone_that_vanishes_is_left_out_and_said_once(tmp_path: Path) -> None:
    reader = EnergyReader(powercap(tmp_path))
    reader.read()
    zone(tmp_path, "intel-rapl:1:0").unlink()
    assert "package-0-dram" not in reader.read()
    zone(tmp_path, "intel-rapl:1:0").write_text("1")  # back, from the beginning
    assert reader.read().keys() == {
        *("package-0", "package-1", "package-1-dram", "package-1-core", "psys")
    }
    (note,) = reader.take_notes()
    assert note.startswith("energy of package-0-dram is not known from here on: ")
    assert reader.take_notes() == []


@contextmanager
def as_stranger() -> Iterator[None]:
    os.seteuid(STRANGER)
    try:
        yield
    finally:
        os.seteuid(0)


@needs_root
def test_counters_of_root_alone_are_told_once_with_the_command_that_opens_them(
    shared: Path,
) -> None:
    for file in powercap(shared).glob("sys/class/powercap/*/energy_uj"):
        file.chmod(0o400)
    with as_stranger():
        reader = EnergyReader(shared)
        assert reader.source is None
        assert reader.read() == {}
    files = f"{shared}/sys/class/powercap/intel-rapl:*/energy_uj"
    assert reader.take_notes() == [
        f"energy is not known: {files} can be read by root alone; `sudo chmod a+r {files}` lets "
        "everybody read it until the next boot"
    ]
    assert reader.take_notes() == []
    zone(shared, "intel-rapl:0").chmod(0o444)
    with as_stranger():
        assert EnergyReader(shared).read() == {"package-1": 0}


def test_a_machine_without_counters_says_nothing(tmp_path: Path) -> None:
    assert list(energy_sources(tmp_path)) == []
    reader = EnergyReader(tmp_path)
    assert (reader.source, reader.read(), reader.take_notes()) == (None, {}, [])


# -- perf ----------------------------------------------------------------------------------------


def pmu(root: Path, *events: tuple[str, str]) -> Path:
    """A power PMU of two packages, CPUs 0 and 2."""
    folder = root / "sys/bus/event_source/devices/power"
    (folder / "events").mkdir(parents=True)
    (folder / "type").write_text("23\n")
    (folder / "cpumask").write_text("0,2\n")
    for name, config in events:
        (folder / "events" / name).write_text(f"event={config}\n")
        (folder / "events" / f"{name}.scale").write_text("2.5e-1\n")
        (folder / "events" / f"{name}.unit").write_text("Joules\n")
    for cpu in range(4):
        package_of(root, cpu, cpu // 2)
    return root


def test_events_of_the_power_pmu_are_opened_on_a_cpu_of_each_package(tmp_path: Path) -> None:
    pmu(tmp_path, ("energy-pkg", "0x02"), ("energy-ram", "0x03"), ("energy-psys", "0x05"))
    opened = []

    def open_event(kind: int, config: int, cpu: int) -> int:
        opened.append((kind, config, cpu))
        counter = tmp_path / f"counter-{config}-{cpu}"
        counter.write_bytes(b"".join(n.to_bytes(8, "little") for n in (8, 8, 8 + 4 * cpu + config)))
        return os.open(counter, os.O_RDONLY)

    reader = EnergyReader(tmp_path, open_event)
    reader.read()
    assert opened == [(23, 2, 0), (23, 3, 0), (23, 5, 0), (23, 2, 2), (23, 3, 2)]
    assert reader.read() == {  # a quarter of a joule each
        "package-0": 500_000,
        "package-0-dram": 750_000,
        "psys": 1_250_000,
        "package-1": 2_500_000,
        "package-1-dram": 2_750_000,
    }


def test_a_power_pmu_without_events_or_that_may_not_be_opened_gives_way(tmp_path: Path) -> None:
    def forbidden(kind: int, config: int, cpu: int) -> int:
        raise PermissionError(kind, config, cpu)

    assert list(energy_sources(pmu(tmp_path / "empty"), forbidden)) == []
    root = pmu(tmp_path / "one", ("energy-pkg", "0x02"))
    (source,) = energy_sources(root, forbidden)
    assert (source.name, source.domains) == ("perf", ())
    assert "`sudo sysctl kernel.perf_event_paranoid=0`" in str(source.refused)
    powercap(root)
    assert EnergyReader(root, forbidden).take_notes() == []  # powercap tells it all


# -- hwmon ---------------------------------------------------------------------------------------


def test_sockets_of_hwmon_are_packages_and_its_cores_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/hwmon/hwmon3"
    folder.mkdir(parents=True)
    (folder / "name").write_text("amd_energy\n")
    for number, label in ((1, "Ecore000"), (2, "Esocket0"), (3, "Esocket1"), (4, None)):
        (folder / f"energy{number}_input").write_text(f"{number}00\n")
        if label:
            (folder / f"energy{number}_label").write_text(f"{label}\n")
    (source,) = energy_sources(tmp_path)
    assert source.name == "hwmon"
    assert {it.name: it.read() for it in source.domains} == {
        "package-0": 200,
        "package-1": 300,
        "amd_energy-energy4": 400,
    }
