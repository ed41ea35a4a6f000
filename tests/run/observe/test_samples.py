"""Samples of copies on the way, and energy read from trees of plain files."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trio
from msgspec.structs import replace

from rater.plan.idle_power import IdlePower
from rater.plan.options import Cadence
from rater.plan.request import Request
from rater.plan.schedule import Order, Window, make_plan
from rater.record.events import (
    CopyStarted,
    Event,
    GateFacts,
    Noted,
    Observed,
    PhaseEnded,
    RunEnded,
    Sampled,
)
from rater.record.run import MemoryPolicy, Placement, RunStatus
from rater.record.samples import MOST_SAMPLES, Samples, merge_samples
from rater.run.launcher import launcher as face
from rater.run.launcher.copies import Child, CopySpec
from rater.run.observe import observer, probe
from rater.run.observe.energy import (
    EnergyDomain,
    EnergyReader,
    energy_sources,
    grown_uj,
    idle_watts_by_domain,
    longest_wait_s,
)
from rater.run.observe.probe import GateCheck
from rater.run.supervise.supervisor import Supervisor
from rater.workflow.counters import idle_power_of
from tests.support.energy_tree import RANGE_UJ, package_of, powercap, stand, zone
from tests.support.looked_at import until_looked_at
from tests.support.placement_samples import sample
from tests.support.rig import CPU, Rig, Seen, in_window, on_one_cpu
from tests.support.strangers import STRANGER, needs_root

MS = 1_000_000
AUTO = Cadence()


def test_a_running_copy_is_sampled_and_its_gate_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_looked_at(tmp_path, monkeypatch, 2)
    code = f"held = b'x' * (64 << 20); open('{tmp_path}/go.' + __import__('sys').argv[1]).read()"
    rig = Rig(tmp_path, proof=Cadence(once=True), placements=on_one_cpu(2))
    seen = rig.run({"big": f'exec "{sys.executable}" -S -c "{code}" "$RATER_COPY"'}, 2)
    assert seen.outcome.status is RunStatus.COMPLETE
    one, two = sorted(seen.events_of(Sampled), key=lambda it: it.copy)
    assert (one.copy, one.step, one.phase, one.looks) == (0, 0, 0, 1)
    for it in (one, two):
        assert it.age_ns >= 200 * MS
        assert it.allowed == it.cpus == (CPU,)
        assert it.private_bytes is None or it.private_bytes > 0  # it may still be growing
        assert (it.rss_bytes or 0) > 0
    assert [end.gate and end.gate.cpus for end in seen.ended] == [(CPU,), (CPU,)]
    assert all(end.gate and end.gate.mems for end in seen.ended)
    kinds = [type(event) for event in seen.events]
    assert kinds[-2:] == [Observed, RunEnded]
    assert max(number for number, kind in enumerate(kinds) if kind is Sampled) < kinds.index(
        PhaseEnded
    )
    observed = seen.events[-2]
    assert isinstance(observed, Observed)
    assert (observed.samples, observed.cadence) == (2, "once")


def test_a_process_that_lost_its_parent_is_looked_at_with_its_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_looked_at(tmp_path, monkeypatch, 1)
    rig = Rig(tmp_path, proof=Cadence(once=True), placements=on_one_cpu(1))
    seen = rig.run({"left": f"(sleep 60 >/dev/null &); read x < {tmp_path}/go.0"}, 1)
    (one,) = seen.events_of(Sampled)
    assert one.processes == 2


def test_without_a_proof_nothing_is_sampled(tmp_path: Path) -> None:
    seen = Rig(tmp_path).run({"nap": "sleep 0.25"}, 2)
    assert seen.events_of(Sampled) == []
    assert [end.gate for end in seen.ended] == [None, None]
    assert seen.events_of(Observed) == []


def test_short_runs_through_a_window_have_gates_but_no_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "FIRST_S", 30.0)  # short, whatever else runs here

    def run(folder: Path, window: Window) -> Seen:
        plan = make_plan(["quick"], 2, mode="steady", window=window)
        rig = Rig(folder, proof=AUTO, placements=on_one_cpu(2))
        return rig.run({"quick": "exit 0"}, 2, plan)

    seen = in_window(tmp_path, Window(50 * MS, 150 * MS), run, lambda it: len(it.ended) > 4)
    assert seen.events_of(Sampled) == []
    assert {end.gate and end.gate.cpus for end in seen.ended} == {(CPU,)}
    assert seen.notes == ""


def test_every_step_of_a_queue_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = until_looked_at(tmp_path, monkeypatch, 2)
    plan = make_plan(["a", "b"], 2, mode="rotated", order=Order.ROTATED)
    rig = Rig(tmp_path, proof=Cadence(once=True), placements=on_one_cpu(2))
    seen = rig.run(dict.fromkeys("ab", wait), 2, plan)
    sampled = {(event.copy, event.step) for event in seen.events_of(Sampled)}
    assert sampled == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_mask_that_is_not_the_planned_one_is_reported_before_time_begins_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "gate_facts", lambda pid: GateFacts((7, 8), None))
    rig = Rig(tmp_path, proof=AUTO, placements=on_one_cpu(5))
    seen = rig.run({"quick": "exit 0"}, 5, make_plan(["quick"], 5, iterations=2))
    assert [event.text for event in seen.events_of(Noted)] == [
        f"not placed as planned: copy 0 bound to CPUs 7-8, planned {CPU}; copy 1 bound to CPUs "
        f"7-8, planned {CPU}; copy 2 bound to CPUs 7-8, planned {CPU}; and 2 more"
    ]
    kinds = [type(event) for event in seen.events]
    assert kinds.index(Noted) < kinds.index(CopyStarted)
    assert seen.ended[0].gate == GateFacts((7, 8), None)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_copy_too_short_to_be_sampled_still_shows_where_it_ended(tmp_path: Path) -> None:
    other = max(os.sched_getaffinity(0) - {CPU})
    moves = f"exec {sys.executable} -c 'import os; os.sched_setaffinity(0, {{{other}}})'"
    seen = Rig(tmp_path, proof=AUTO, placements=on_one_cpu(1)).run({"moves": moves}, 1)
    assert seen.by_copy(0).last_cpu == other
    (tmp_path / "b").mkdir()
    stays = Rig(tmp_path / "b", proof=AUTO, placements=on_one_cpu(1)).run({"stays": "exit 0"}, 1)
    assert stays.by_copy(0).last_cpu == CPU


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_later_run_is_not_judged_by_a_mask_that_it_set_itself(
    tmp_path: Path,
) -> None:
    both_cpus = tuple(sorted(os.sched_getaffinity(0)))
    placed = tuple(replace(placement, cpus=both_cpus) for placement in on_one_cpu(1))
    pin = f"exec {sys.executable} -S -c 'import os; os.sched_setaffinity(0, {{{CPU}}})'"

    def run(folder: Path, window: Window) -> Seen:
        plan = make_plan(["pin"], 1, mode="steady", window=window)
        return Rig(folder, proof=AUTO, placements=placed).run({"pin": pin}, 1, plan)

    seen = in_window(tmp_path, Window(0, 300 * MS), run, lambda it: len(it.ended) > 2)
    assert {end.gate and end.gate.cpus for end in seen.ended} == {both_cpus}
    assert "not placed as planned" not in seen.notes


def child(copy: int, step: int = 0) -> Child:
    spec = CopySpec(argv=("true",), shared_variables={}, directory="/", output="/out.")
    made_step = make_plan(["a"], 1).phases[0].queues[0].steps[0]
    return Child(
        launcher=None,  # type: ignore[arg-type]
        token=1 + copy,
        copy=copy,
        position=step,
        step=made_step,
        spec=spec,
        pid=1,
    )


def test_memory_on_an_lgroup_that_may_not_give_any_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emitted: list[Noted] = []
    home = Placement(
        copy=0,
        cpus=None,
        cpu=None,
        core=None,
        llc=None,
        node=None,
        package=None,
        memory_policy=MemoryPolicy.BIND,
        memory_nodes=(3,),
    )
    monkeypatch.setattr(probe, "gate_facts", lambda pid: GateFacts((0,), (0, 1)))
    check = GateCheck((home,), emitted.append)
    check.check([child(0)])
    check.check([child(0, 1)])
    assert [note.text for note in emitted] == [
        "not placed as planned: copy 0 may not take memory of node 3 as planned: its cpuset "
        "allows 0-1"
    ]


# -- how much is kept -----------------------------------------------------------------------------


PLACED = tuple(
    Placement(
        copy=copy,
        cpus=(0,),
        cpu=0,
        core=0,
        llc=0,
        node=0,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )
    for copy in range(40)
)


def test_of_a_long_run_neighbours_are_kept_as_their_average() -> None:
    kept: list[Event] = []
    samples = Samples(kept.append, PLACED)
    for number in range(1000):
        samples.take(
            sample({0: number * 1000}, copy=0, age_ns=number, cpus=(number % 2,), peak_bytes=None)
        )
    samples.ended(0, 0)
    samples.close()
    rows = [sampled for sampled in kept if isinstance(sampled, Sampled)]
    assert MOST_SAMPLES // 2 <= len(rows) <= MOST_SAMPLES
    assert sum(sampled.looks for sampled in rows) == 1000
    assert [sampled.age_ns for sampled in rows] == sorted(sampled.age_ns for sampled in rows)
    assert rows[-1].age_ns == 999
    mean = sum(dict(sampled.node_bytes or ())[0] * sampled.looks for sampled in rows) / 1000
    assert mean == pytest.approx(499_500, abs=10)
    assert all(sampled.cpus == (0, 1) for sampled in rows)
    assert rows[-1].peak_bytes == sample({0: 999_000}).rss_bytes


def test_what_copies_left_is_reported_a_little_at_a_time_until_the_end() -> None:
    emitted: list[Event] = []
    samples = Samples(emitted.append, PLACED)
    for copy in range(40):
        samples.take(sample({0: 1}, copy=copy))
    assert emitted == []
    for copy in range(39):
        samples.ended(copy, 0)
    samples.take(sample({0: 1}, copy=39, age_ns=1))
    assert 0 < len(emitted) < 39
    samples.close()
    assert len(emitted) == 41


def test_a_sample_that_comes_after_the_end_is_not_lost() -> None:
    emitted: list[Event] = []
    samples = Samples(emitted.append, PLACED)
    samples.ended(0, 0)
    samples.take(sample({0: 1}, copy=0))
    samples.close()
    assert len(emitted) == 1


def test_two_samples_as_one_have_averages_by_samples_and_extremes() -> None:
    first = sample({0: 300, 1: 100}, looks=3, migrations=5, swap_bytes=None, policy="local")
    then = sample({1: 900}, allowed=(2, 3), migrations=2, swap_bytes=7, policy=None, age_ns=9)
    one = merge_samples(first, then, (0,))
    assert (one.looks, one.age_ns, one.policy) == (4, 9, "local")
    assert one.node_bytes == ((0, 225), (1, 300))
    assert (one.migrations, one.swap_bytes, one.allowed) == (5, 7, (2, 3))
    assert one.rss_bytes == round((1_000_400 * 3 + 1_000_900) / 4)
    assert one.peak_bytes == 2_000_900
    unread = replace(then, node_bytes=None, page_bytes=None, rss_bytes=None)
    assert merge_samples(first, unread, (0,)).node_bytes == first.node_bytes
    assert merge_samples(unread, first, (0,)).page_bytes == first.page_bytes


def test_of_samples_put_together_the_one_with_most_astray_is_kept() -> None:
    home, away = sample({0: 900}), sample({0: 10, 1: 890})
    one = merge_samples(merge_samples(home, away, (0,)), home, (0,))
    assert one.node_bytes == ((0, 603), (1, 297))
    assert one.astray_bytes == ((0, 10), (1, 890))
    assert merge_samples(home, home, (0,)).astray_bytes == ((0, 900),)
    assert merge_samples(sample(None), sample(None), (0,)).astray_bytes is None


def test_a_stop_while_copies_are_sampled_ends_the_run(tmp_path: Path) -> None:
    def stop(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyStarted) and event.copy == 1:
            supervisor.stop(15, None)

    rig = Rig(tmp_path, proof=AUTO, on_event=stop, placements=on_one_cpu(2))
    seen = rig.run({"nap": "exec sleep 60"}, 2)
    assert seen.outcome.status is RunStatus.INTERRUPTED
    assert isinstance(seen.events[-2], Observed)


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
    small, large = (
        EnergyDomain(name="a", place="", read=lambda: 0, range_uj=range_uj)
        for range_uj in (65 * 10**9, 10**12)
    )
    assert longest_wait_s([large, small]) == pytest.approx(16.25)


def test_zones_of_package_10_and_more_have_hexadecimal_numbers(tmp_path: Path) -> None:
    for number, name in (("a", "package-10"), ("a:0", "dram"), ("1f", "package-31")):
        file = zone(tmp_path, f"intel-rapl:{number}")
        file.parent.mkdir(parents=True)
        (file.parent / "name").write_text(f"{name}\n")
        file.write_text("5\n")
    assert set(EnergyReader(tmp_path).read()) == {"package-10", "package-10-dram", "package-31"}


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


def test_idle_power_is_what_counters_grow_by_in_the_time_before_a_run(tmp_path: Path) -> None:
    """Ten seconds: a package grows by 200 J, its memory by 15, the other by 100; psys stands."""
    reader = EnergyReader(powercap(tmp_path))
    now_s = [5.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        drawn(reader, tmp_path, z1=200_000_000, z1_0=15_000_000, z0=100_000_000)

    assert idle_watts_by_domain(reader, 10.0, lambda: now_s[0], sleep) == {
        "package-0": 20.0,
        "package-0-dram": 1.5,
        "package-1": 10.0,
    }


@pytest.mark.parametrize(
    ("text", "power"),
    [
        ("95W", IdlePower(watts=95.0)),
        ("95.5 w", IdlePower(watts=95.5)),
        ("10s", IdlePower(seconds=10.0)),
        ("1m", IdlePower(seconds=60.0)),
        *((wrong, None) for wrong in ("", "W", "0W", "-5W", "nanW", "1e9W", "0.5s", "long")),
    ],
)
def test_idle_power_is_watts_or_how_long_to_measure(text: str, power: IdlePower | None) -> None:
    if power is None:
        with pytest.raises(ValueError, match="expected watts"):
            IdlePower.parse(text)
    else:
        assert IdlePower.parse(text) == power


def test_a_machine_without_counters_has_no_idle_power_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_SYSROOT", str(tmp_path))
    settings, [warning] = idle_power_of(Request(suites=(), idle_power="10s"), pytest.fail)
    assert settings == ()
    assert warning.startswith("--idle-power: this machine counts no energy that this user may read")


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
        counter.write_bytes(
            b"".join(number.to_bytes(8, "little") for number in (8, 8, 8, 8, 8 + 4 * cpu + config))
        )
        return os.open(counter, os.O_RDONLY)

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
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
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_an_event_of_energy_that_never_moves_is_none(tmp_path: Path) -> None:
    """As in virtual machines: 0 J would be a number that nobody measured."""
    pmu(tmp_path, ("energy-pkg", "0x02"), ("energy-gpu", "0x04"))

    def open_zeros(*_: int) -> int:
        return os.open("/dev/zero", os.O_RDONLY)

    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    (source,) = energy_sources(tmp_path, open_zeros)
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert [domain.name for domain in source.domains] == ["package-0-uncore", "package-1-uncore"]


def test_a_power_pmu_without_events_or_that_may_not_be_opened_gives_way(tmp_path: Path) -> None:
    def forbidden(kind: int, config: int, cpu: int) -> int:
        raise PermissionError(errno.EACCES, kind, config, cpu)

    assert list(energy_sources(pmu(tmp_path / "empty"), forbidden)) == []
    root = pmu(tmp_path / "one", ("energy-pkg", "0x02"))
    (source,) = energy_sources(root, forbidden)
    assert (source.name, source.domains) == ("perf", ())
    assert "seccomp filter" in str(source.refused)  # no setting of the kernel forbids it
    (root / "proc/sys/kernel").mkdir(parents=True)
    (root / "proc/sys/kernel/perf_event_paranoid").write_text("1\n")
    (source,) = energy_sources(root, forbidden)
    assert "sudo sysctl kernel.perf_event_paranoid=0" in str(source.refused)
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
    assert {domain.name: domain.read() for domain in source.domains} == {
        "package-0": 200,
        "package-1": 300,
        "amd_energy-energy4": 400,
    }


def power_meter(root: Path, number: int, label: str, microwatts: int) -> Path:
    folder = root / f"sys/class/hwmon/hwmon{number}/device"
    folder.mkdir(parents=True)
    (folder / "power1_oem_info").write_text(f"{label}\n")
    (folder / "power1_average").write_text(f"{microwatts}\n")
    return folder / "power1_average"


def test_power_of_an_arm_server_is_sampled_and_added_up_and_said_to_be_an_estimate(
    tmp_path: Path,
) -> None:
    whole = power_meter(tmp_path, 2, "Grace Power Socket 0", 100_000_000)
    power_meter(tmp_path, 3, "CPU Power Socket 0", 80_000_000)
    power_meter(tmp_path, 5, "CPU Power Socket 1", 30_000_000)
    power_meter(tmp_path, 6, "of the whole node", 500_000_000)
    now_s = 10.0
    reader = EnergyReader(tmp_path, clock_s=lambda: now_s)
    assert reader.source is not None
    assert [domain.name for domain in reader.source.domains] == [
        "package-0-cpu",
        "package-0",
        "package-1",
    ]
    assert reader.source.every_s == 0.5
    reader.read()
    now_s = 12.0
    whole.write_text("200000000\n")
    # From 100 W to 200 W in two seconds: 300 J. The others draw the same as before.
    joules = {"package-0": 300, "package-0-cpu": 160, "package-1": 60}
    assert reader.read() == {name: value * 1_000_000 for name, value in joules.items()}
    [note] = reader.take_notes()
    assert note.startswith("energy is an estimate: this machine tells its power alone")


def test_chips_that_tell_the_power_of_their_cpu_are_packages(tmp_path: Path) -> None:
    for chip in (1, 4):
        folder = tmp_path / f"sys/class/hwmon/hwmon{chip}"
        folder.mkdir(parents=True)
        for number, label in ((1, "CPU power"), (2, "IO power"), (3, "fan")):
            (folder / f"power{number}_input").write_text("5\n")
            (folder / f"power{number}_label").write_text(f"{label}\n")
    (source,) = energy_sources(tmp_path)
    assert (source.name, [domain.name for domain in source.domains]) == (
        "hwmon power",
        ["package-0", "package-0-io", "package-1", "package-1-io"],
    )


# -- what the launcher sees of a copy that runs ---------------------------------------------------

HELD = """
import sys, threading, time
held = bytearray(b"x") * (24 << 20)
def burn():
    while time.thread_time() < 0.02:
        pass
    print("burnt", flush=True)
    goes.wait()
goes = threading.Event()
thread = threading.Thread(target=burn)
thread.start()
for line in sys.stdin:
    goes.set()
    thread.join()
    held = None
    print("alone", flush=True)
"""


class Look(NamedTuple):
    looks: int
    looked_ns: int
    mean_bytes: int
    most_bytes: int
    stopped_ns: int
    other_cpu_ns: int
    look_cpu_ns: int
    next_ms: int


@pytest.fixture(scope="module")
def looked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that looks at a process as the launcher does."""
    program = tmp_path_factory.mktemp("looked") / "looked"
    native = Path(face.__file__).parent / "native"
    main = Path(__file__).parents[1] / "launcher/looked.c"
    flags = ("-std=gnu11", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")
    words = ["cc", *flags, "-fno-sanitize-recover=all", "-I", str(native)]
    sources = (native / "looks.c", native / "child.c", main)
    subprocess.run([*words, *sources, "-o", program], check=True)
    return program


@contextmanager
def piped(*words: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """A program, and what gives it a line and returns the line that it answers."""
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        ask, answer = process.stdin, process.stdout

        def asked() -> str:
            ask.write("\n")
            ask.flush()
            return answer.readline()

        try:
            yield process, asked
        finally:
            process.kill()


def test_looks_stand_for_the_time_between_and_keep_the_times_of_threads_that_are_gone(
    looked: Path,
) -> None:
    with piped("sh", "-c", '"$0" -S -c "$1"; true', sys.executable, HELD) as (shell, let_go):
        assert shell.stdout is not None
        assert shell.stdout.readline() == "burnt\n"
        with piped(str(looked), str(shell.pid), str(9_700 * MS)) as (_, look):
            first = Look(*map(int, look().split()))
            os.kill(shell.pid, signal.SIGSTOP)
            os.waitpid(shell.pid, os.WUNTRACED)
            assert let_go() == "alone\n"
            then = Look(*map(int, look().split()))
            os.kill(shell.pid, signal.SIGCONT)
    assert (first.looks, then.looks) == (1, 2)
    assert 24 << 20 < first.mean_bytes == first.most_bytes == then.most_bytes < 60 << 20
    assert then.mean_bytes < first.mean_bytes
    assert first.stopped_ns == 0
    assert then.stopped_ns == then.looked_ns - first.looked_ns
    assert first.other_cpu_ns >= 20 * MS  # of the child: its first thread and the second
    assert then.other_cpu_ns >= first.other_cpu_ns
    assert 0 < first.look_cpu_ns < then.look_cpu_ns
    # Threads but the copy's first may be gone a second later.
    assert first.next_ms == (first.looked_ns // (1000 * MS) + 1) * 1000


@pytest.mark.parametrize(("patience", "looks"), [(1, [0, 1]), (2, [1, 1])])
def test_of_a_copy_that_ends_amid_a_look_that_look_tells_nothing(
    looked: Path, patience: int, looks: list[int]
) -> None:
    with (
        piped("sh", "-c", "echo ready; read line") as (copy, _),
        piped(str(looked), str(copy.pid), str(7_000 * MS), str(patience)) as (_, look),
    ):
        assert copy.stdout is not None and copy.stdout.readline() == "ready\n"
        seen = [Look(*map(int, look().split())) for _ in range(2)]
    assert [it.looks for it in seen] == looks
    assert seen[1].next_ms == 10_125  # 1 2 3 4.5 6.75 10.125 s
