"""Series of a phase: CPUs, nodes and copies read again and again, from files of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rater.plan.options import Cadence
from rater.plan.schedule import make_plan
from rater.record.events import CpuReadings, PhaseSeries
from rater.record.series import UnpackedSeries, unpack
from rater.run.host.foreign_load import cpu_ticks
from rater.run.host.procfs import ticks_of_children
from rater.run.observe import counters, series
from rater.run.observe.counters import MachineReader, PhaseCounters
from rater.run.observe.series import (
    CopyLook,
    EndedUse,
    MachineSample,
    NodeSource,
    PackageSource,
    PhaseSampler,
    look_at_copy,
    machine_sources,
)
from tests.support.rig import Rig, Seen, on_one_cpu
from tests.support.servers import INTEL, Server

S = 10**9
HZ = os.sysconf("SC_CLK_TCK")


def stat_of(*user_s: int) -> bytes:
    """The text of /proc/stat where CPU n has worked for so long."""
    rows = "".join(
        f"cpu{cpu} {seconds * HZ} 0 0 0 0 0 0 0 0 0\n" for cpu, seconds in enumerate(user_s)
    )
    return f"cpu 0 0 0 0 0 0 0 0 0 0\n{rows}intr 1\n".encode()


def sample(second: int, *user_s: int, **machine: int) -> MachineSample:
    return MachineSample(
        at_ns=second * S, stat=stat_of(*user_s), counters=machine, khz={}, throttles={}
    )


def by_family(events: tuple[PhaseSeries, ...]) -> dict[str, UnpackedSeries]:
    return {event.family: unpack(event) for event in events}


def test_a_phase_is_sampled_at_its_edges_and_between_them() -> None:
    sampler = PhaseSampler((), [0, 1])
    sampler.add(sample(10, 5, 5, pswpin=7), [])
    sampler.add(sample(12, 7, 6, pswpin=9), [])
    sampler.add_copies(12 * S, {0: CopyLook(70, 1_500_000_000, (4096, 0, 9000, 1))})
    sampler.copy_ended(0, 70, EndedUse(2_000_000_000, 12_288, 0))
    sampler.copy_ended(1, 71, EndedUse(900_000_000, 512, 1024))
    sampler.add(sample(13, 8, 7, pswpin=9), [])
    sampler.add_copies(13 * S, {})
    series = by_family(sampler.close(phase=3, origin_ns=11 * S))
    assert set(series) == {"cpu", "machine", "copy"}
    assert series["cpu"].times_ns == (-1 * S, 1 * S, 2 * S)
    assert series["cpu"].values_of("user", 0) == (500, 700, 800)
    assert series["machine"].values_of("pswpin") == (7, 9, 9)
    assert series["copy"].values_of("cpu_ms", 0) == (0, 1500, 2000)
    # What was read of disks between the last look and the end is told by the end.
    assert series["copy"].values_of("read_bytes", 0) == (0, 4096, 12_288)
    assert series["copy"].values_of("written_bytes", 1) == (0, 0, 1024)
    # Bytes of calls are those of the last look.
    assert series["copy"].values_of("read_calls_bytes", 0) == (0, 9000, 9000)
    assert series["copy"].values_of("cpu_ms", 1) == (0, 0, 900)


def test_a_copys_next_run_counts_on_from_the_one_before() -> None:
    sampler = PhaseSampler((), [0])
    sampler.add(sample(0, 0), [])
    sampler.copy_ended(0, 70, EndedUse(3 * S, 0, 0))
    sampler.add(sample(1, 0), [])
    sampler.add_copies(1 * S, {0: CopyLook(71, S // 2, (10, 0, 0, 0))})
    sampler.copy_ended(0, 71, EndedUse(S, 0, 0))
    sampler.add(sample(2, 0), [])
    sampler.add_copies(2 * S, {0: CopyLook(72, S // 4, (5, 0, 0, 0))})
    series = by_family(sampler.close(0, 0))["copy"]
    assert series.values_of("cpu_ms", 0) == (0, 3500, 4250)
    assert series.values_of("read_bytes", 0) == (0, 10, 15)


def test_a_copy_that_runs_and_was_not_looked_at_is_not_known() -> None:
    sampler = PhaseSampler((), [0, 1])
    sampler.add(sample(0, 0), [])
    sampler.add(sample(1, 1), [])
    sampler.add_copies(S, {0: CopyLook(70, S, None)}, {0, 1})
    sampler.copy_ended(1, 71, EndedUse(2 * S, 0, 0))
    sampler.add(sample(2, 2), [])
    sampler.add_copies(2 * S, {0: CopyLook(70, 2 * S, (5, 0, 0, 0))}, {0})
    series = by_family(sampler.close(0, 0))["copy"]
    assert series.values_of("cpu_ms", 0) == (0, 1000, 2000)
    assert series.values_of("cpu_ms", 1) == (0, None, 2000)
    assert series.values_of("read_bytes", 0) == (0, None, 5)


def test_a_phase_without_a_sample_between_its_edges_has_no_series() -> None:
    sampler = PhaseSampler((), [0])
    sampler.add(sample(0, 0), [])
    sampler.add(sample(1, 1), [])
    assert sampler.close(0, 0) == ()


def test_a_cpu_that_goes_offline_is_not_known_from_then_on() -> None:
    sampler = PhaseSampler((), [0])
    for second, seconds in enumerate([(1, 1), (2, 2), (3,)]):
        sampler.add(sample(second, *seconds), [])
    series = by_family(sampler.close(0, 0))["cpu"]
    assert series.values_of("user", 1) == (100, 200, None)


@pytest.mark.parametrize(
    ("text", "ticks"),
    [
        (
            "cpu  7 0\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu9 11 12 13 14 15 16 17 18 0 0\nintr 5 0\n",
            {0, 9},
        ),
        ("cpu  7 0 3 4 5 6 7 8\ncpu9 11 12 13 14 15 16 17 18\nbtime 5\n", {9}),
        # Lines of unlike length, as another system may write: those that are too short say nothing.
        ("cpu  7 0 3 4 5 6 7 8 9 9\ncpu0 1 2 3\ncpu9 11 12 13 14 15 16 17 18\nintr 5\n", {9}),
        ("cpu  7 0 3 4 5 6 7 8 9 9\nintr 5\n", set()),
        ("", set()),
    ],
)
def test_ticks_of_cpus_are_read_whatever_cpus_there_are(text: str, ticks: set[int]) -> None:
    expected = {0: (1, 2, 3, 4, 5, 6, 7, 8), 9: (11, 12, 13, 14, 15, 16, 17, 18)}
    assert cpu_ticks(text.encode()) == {cpu: expected[cpu] for cpu in ticks}


def test_children_of_a_process_with_any_name_have_their_ticks() -> None:
    fields = " ".join(str(number) for number in range(4, 53))  # the numbers of the fields
    assert ticks_of_children(f"70 (a) b (c) S {fields}\n".encode()) == 16 + 17
    assert ticks_of_children(b"70 (cut) S 4 5 6") == 0


def test_a_sample_costs_no_more_calls_for_copies_that_did_not_run() -> None:
    def calls(changed: int) -> int:
        sampler = PhaseSampler((), range(64))
        sampler.add(sample(0, 0), [])
        looks = {copy: CopyLook(70 + copy, S, (0, 0, 0, 0), S) for copy in range(64)}
        sampler.add_copies(S, looks, looks.keys())
        more = {copy: look._replace(cpu_ns=2 * S) for copy, look in looks.items() if copy < changed}
        counted = []
        sys.setprofile(lambda frame, event, _: counted.append(event))
        sampler.add_copies(2 * S, looks | more, looks.keys())
        sys.setprofile(None)
        return len(counted)

    assert calls(64) > calls(32) > calls(0)
    assert calls(0) < 300


def test_nodes_have_free_memory_page_cache_and_where_pages_came_from(tmp_path: Path) -> None:
    for node, free_kb in ((0, 5000), (2, 100)):
        folder = tmp_path / f"devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "meminfo").write_text(
            f"Node {node} MemTotal: 9000 kB\nNode {node} MemFree: {free_kb} kB\n"
            f"Node {node} FilePages: 70 kB\n"
        )
        (folder / "numastat").write_text("numa_hit 11\nnuma_miss 2\nlocal_node 9\nother_node 4\n")
    (tmp_path / "devices/system/node/has_memory").write_text("0,2\n")
    source = NodeSource(tmp_path)
    assert source.places == (0, 2)
    columns = dict(zip(source.columns, source.read(), strict=True))
    assert columns["free_kb"] == (5000, 100)
    assert columns["cache_kb"] == (70, 70)
    assert (columns["numa_hit"], columns["numa_foreign"]) == ((11, 11), (None, None))


def test_packages_have_the_temperature_of_the_whole(tmp_path: Path) -> None:
    chip = tmp_path / "class/hwmon/hwmon3"
    chip.mkdir(parents=True)
    for number, label, degrees in ((1, "Package id 0", 61000), (2, "Core 0", 70000)):
        (chip / f"temp{number}_label").write_text(f"{label}\n")
        (chip / f"temp{number}_input").write_text(f"{degrees}\n")
    source = PackageSource(tmp_path)
    assert (source.places, source.read()) == ((0,), [[61000]])


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine under load files of our own take longer than those of the kernel."""
    monkeypatch.setattr(counters, "_TORN_NS", 10**12)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A tree of 512 CPUs and 8 nodes with memory."""
    (tmp_path / "proc/pressure").mkdir(parents=True)
    (tmp_path / "proc/stat").write_bytes(stat_of(*range(512)))
    (tmp_path / "proc/vmstat").write_text("pswpin 1\npgpgin 5\n")
    for node in range(8):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "meminfo").write_text(f"Node {node} MemFree: 5 kB\n")
        (folder / "numastat").write_text("numa_hit 1\n")
    (tmp_path / "sys/devices/system/node/has_memory").write_text("0-7\n")
    return tmp_path


def take_sample(readings: PhaseCounters) -> int:
    """Take a sample as `watch` does; return what it cost."""
    result = readings._take(counters._Turn(frequencies=(), copies={}))
    if result.looks is not None:
        readings._add_copies(result.at_ns, result.looks, {})
    return result.cost_ns


def test_a_sample_of_different_moments_is_none(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_TORN_NS", -1)
    reader = MachineReader(machine / "proc", machine / "sys", sources=machine_sources(machine))
    readings = PhaseCounters(reader, 0, lambda copy: copy, [0])
    readings.begin()
    take_sample(readings)
    readings.end()
    assert readings.series(origin_ns=0) == ()


def test_the_counters_of_a_phase_give_its_series_of_512_cpus(machine: Path) -> None:
    reader = MachineReader(machine / "proc", machine / "sys", sources=machine_sources(machine))
    readings = PhaseCounters(reader, 4, lambda copy: copy, range(512))
    readings.begin()
    cost_ns = take_sample(readings)
    readings.end()
    series = by_family(readings.series(origin_ns=0))
    assert set(series) == {"cpu", "machine", "node", "copy"}
    assert series["cpu"].values_of("user", 511) == (51100,) * 3
    assert series["node"].values_of("free_kb", 7) == (5, 5, 5)
    assert series["machine"].values_of("pgpgin") == (5, 5, 5)
    # Of a turn without any copy: 0.1 % of a CPU, where 0.3 % are allowed for 256.
    assert cost_ns < 50_000_000


def test_memory_traffic_goes_the_whole_way_from_made_counters(machine: Path) -> None:
    server = Server(machine)
    server.cpus("0-255", "256-511", packages=("0-255", "256-511"))
    for channel in range(8):
        server.pmu(
            f"uncore_imc_{channel}",
            channel,
            "0,256",
            **INTEL,
            events__cas_count_read="event=0x05,umask=0xcf",
            events__cas_count_write="event=0x05,umask=0xf0",
        )
    sources = machine_sources(machine, server.open_event)
    readings = PhaseCounters(
        MachineReader(machine / "proc", machine / "sys", sources=sources), 0, lambda copy: copy, [0]
    )
    server.stand({0xCF05: 0, 0xF005: 0})
    readings.begin()
    server.stand({0xCF05: 10**9, 0xF005: 5})
    take_sample(readings)
    server.stand({0xCF05: 3 * 10**9, 0xF005: 6})
    readings.end()
    traffic = by_family(readings.series(origin_ns=0))["traffic"]
    # Eight channels of 10^9 lines of 64 bytes: 512 GB.
    assert traffic.values_of("read_bytes", 0) == (0, 512 * 10**9, 1536 * 10**9)
    assert traffic.values_of("written_bytes", 1) == (0, 2560, 3072)
    server.close()


def test_a_copy_that_reads_and_writes_is_seen_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(bytes(1 << 20))
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.run(['cat', {str(file)!r}], stdout=subprocess.DEVNULL)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        look = look_at_copy(process.pid, None, since_ns=0, with_bytes=True)
        assert look is not None
        unsettled = look._replace(settled_ns=None)
        quick = look_at_copy(process.pid, unsettled, since_ns=0, with_bytes=False)
        idle = look_at_copy(process.pid, unsettled, since_ns=10**12, with_bytes=False)
        process.communicate()
    assert look.cpu_ns > 0
    assert look.bytes_moved is not None
    assert look.bytes_moved[2] >= 1 << 20  # by calls of `cat`, from the cache or not
    # Without a look at its children: no more than that it had the CPU itself, else nothing.
    assert quick is None or quick.bytes_moved is None
    assert idle is None
    assert look_at_copy(process.pid, None, since_ns=0, with_bytes=True) is None


def test_a_copy_that_has_not_run_since_its_bytes_were_read_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        look = look_at_copy(process.pid, None, since_ns=0, with_bytes=True)
        while (again := look_at_copy(process.pid, look, since_ns=0, with_bytes=True)) is not look:
            look = again  # it is still on its way to its sleep
        assert look is not None and look.bytes_moved is not None
        monkeypatch.setattr(series, "read_piece", None)
        for with_bytes in (True, False):
            kept = look_at_copy(process.pid, look, since_ns=10**12, with_bytes=with_bytes)
            assert kept is look
        process.kill()


def test_a_copy_with_a_child_is_read_again_though_it_has_not_run_itself() -> None:
    with subprocess.Popen(["sh", "-c", "cat; true"], stdin=subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        while not children.read_text():
            pass
        look = look_at_copy(process.pid, None, since_ns=0, with_bytes=True)
        process.communicate()
    assert look is not None and look.settled_ns is None


WRITE = "dd if=/dev/zero of=written bs=1M count=4 2>/dev/null"


def test_a_run_has_series_of_its_phases_and_none_where_that_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "_FIRST_SAMPLE_S", 0.05)
    monkeypatch.setattr(counters, "_EVERY_S", 0.05)
    monkeypatch.setattr(counters, "_SHARE_WITH_SERIES", 1.0)

    def nap(seconds: float, series: Path | None) -> Seen:
        folder = tmp_path / f"{seconds}-{series is None}"
        folder.mkdir()
        rig = Rig(folder, proof=Cadence(), placements=on_one_cpu(1), series=series)
        return rig.run({"nap": f"sleep {seconds}; {WRITE}"}, 1, make_plan(["nap"], 1))

    assert not nap(0.2, None).events_of(PhaseSeries)
    # On a machine under load a short nap may be over before its first sample.
    naps = (nap(seconds, Path("/")) for seconds in (0.3, 1, 5, 20))
    seen = next(seen for seen in naps if seen.events_of(PhaseSeries))
    assert {event.family for event in seen.events_of(PhaseSeries)} >= {"cpu", "machine", "copy"}
    assert seen.events_of(CpuReadings)
    [bracket] = seen.brackets
    for event in seen.events_of(PhaseSeries):
        times_ns = unpack(event).times_ns
        assert times_ns[0] <= bracket.start_ns <= bracket.finish_ns <= times_ns[-1] + 10**6
    # What it wrote as its last act, which no look at it saw: 4 MB, or none in memory, and folders.
    shell = os.posix_spawn("/bin/sh", ["sh", "-c", f"cd {tmp_path}; {WRITE}"], os.environ)
    expected = os.wait4(shell, 0)[2].ru_oublock * 512
    written = by_family(tuple(seen.events_of(PhaseSeries)))["copy"].values_of("written_bytes", 0)
    assert abs((written[-1] or 0) - expected) <= 1 << 16
