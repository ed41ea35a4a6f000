"""Counters: what a machine counts and refuses, of copies by the kernel, and of phases."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from rater.plan.counter_choice import TableGroup
from rater.plan.counter_tables import load_table
from rater.plan.options import Cadence
from rater.plan.schedule import Order, Plan, Window, make_plan
from rater.record.events import (
    CopyCounted,
    CpuReading,
    CpuReadings,
    MachineReadings,
    PhaseCounted,
    PhaseEnded,
)
from rater.run.host.procfs import KeptFile
from rater.run.observe import counters
from rater.run.observe.counters import MachineReader, PhaseCounters
from rater.run.observe.perf import (
    CounterPlan,
    GroupProbe,
    PerfEvent,
    PerfKernel,
    ReadyGroup,
    perf_events,
    probe_group,
    this_processor,
)
from tests.support.perf import INHERIT, USER_ONLY, MadeKernel
from tests.support.rig import CPU, Rig, Seen, on_one_cpu

SKX = load_table("intel-skx")
PIPELINE = TableGroup(SKX, SKX.groups[0])
SOFTWARE = TableGroup(load_table("software"), load_table("software").groups[0])
RECOVERY = 0x010D
NAMES = tuple(event.name for event in PIPELINE.group.events)


def perf_settings(root: Path, *, paranoid: int | None = 2, watchdog: int = 0) -> Path:
    for name, value in (("perf_event_paranoid", paranoid), ("nmi_watchdog", watchdog)):
        if value is not None:
            file = root / "proc/sys/kernel" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{value}\n")
    return root


def tried(kernel: MadeKernel, root: Path, of: TableGroup = PIPELINE) -> GroupProbe:
    found = probe_group(of, kernel, root)
    assert not kernel.opened, "nothing is left open"
    return found


def test_a_group_that_works_counts_user_and_kernel(tmp_path: Path) -> None:
    kernel = MadeKernel()
    found = tried(kernel, perf_settings(tmp_path))
    assert found.ready
    assert (found.ready.user_only, found.missing, found.why) == (False, (), "")
    assert tuple(event.name for event in found.ready.events) == NAMES
    assert found.reading
    assert found.reading.values == (1000,) * 6


def test_a_user_who_may_not_see_the_kernel_counts_user_mode(tmp_path: Path) -> None:
    kernel = MadeKernel(refuse=lambda event, flags: 0 if flags & USER_ONLY else errno.EACCES)
    trial = tried(kernel, perf_settings(tmp_path, paranoid=2))
    assert trial.ready
    assert trial.ready.user_only
    assert trial.ready.name == "intel-skx:pipeline:u"
    assert trial.why == (
        "user mode only: kernel.perf_event_paranoid is 2: not the kernel's part, for users but root"
    )
    assert trial.remedy == "sudo sysctl kernel.perf_event_paranoid=1"


def test_what_happens_in_the_kernel_is_not_counted_as_0_in_user_mode(tmp_path: Path) -> None:
    kernel = MadeKernel(refuse=lambda event, flags: 0 if flags & USER_ONLY else errno.EACCES)
    found = tried(kernel, perf_settings(tmp_path), SOFTWARE)
    assert found.missing == ("context_switches", "migrations")
    assert found.ready
    assert [event.name for event in found.ready.events] == [
        "task_clock_ns",
        "minor_faults",
        "major_faults",
    ]


def test_user_mode_alone_is_counted_by_choice_too(tmp_path: Path) -> None:
    kernel = MadeKernel()
    trial = tried(kernel, perf_settings(tmp_path), replace(SOFTWARE, user_only=True))
    assert trial.ready
    assert (trial.ready.name, trial.ready.user_only, trial.why) == ("software:software:u", True, "")
    assert len(trial.ready.events) == 3
    assert all(flags & USER_ONLY for _, flags, _ in kernel.calls)
    refused = MadeKernel(refuse=lambda event, flags: errno.EACCES)
    trial = tried(refused, perf_settings(tmp_path, paranoid=3), replace(SOFTWARE, user_only=True))
    assert (trial.ready, trial.why[-27:]) == (None, "nothing, for users but root")


@pytest.mark.parametrize(
    ("paranoid", "number", "why", "remedy"),
    [
        (
            *(3, errno.EACCES, "kernel.perf_event_paranoid is 3: nothing, for users but root"),
            "sudo sysctl kernel.perf_event_paranoid=1",
        ),
        (
            *(2, errno.EPERM, "kernel settings allow it, and it is refused (EPERM): by a seccomp"),
            "docker, podman: run --cap-add PERFMON",
        ),
        (
            *(None, errno.EACCES, "it is refused (EACCES): by a seccomp filter"),
            "docker, podman: run",
        ),
        (None, errno.ENOSYS, "this kernel has no perf events, ENOSYS", "CONFIG_PERF_EVENTS"),
        (3, errno.ENOSYS, "it is refused (ENOSYS): by a seccomp filter", "SystemCallFilter="),
        (2, errno.EMFILE, "too many open files, EMFILE", "raise `ulimit -n`"),
        (2, errno.ENFILE, "too many open files on the whole machine, ENFILE", "sysctl fs.file-max"),
        (2, errno.EBUSY, "another has the counters for itself, EBUSY", "end it (`perf`"),
        (2, errno.E2BIG, "the kernel is too old for it, E2BIG", "a newer kernel"),
        (2, errno.ESRCH, "the process was gone, ESRCH", ""),
        (2, errno.ENOENT, "no counters of the processor for it (the processor or its", "KVM: a vi"),
        (2, errno.EOPNOTSUPP, "no counters of the processor for it (the driver", "firmware"),
    ],
)
def test_every_refusal_is_told_with_its_way_out(
    tmp_path: Path, paranoid: int | None, number: int, why: str, remedy: str
) -> None:
    kernel = MadeKernel(refuse=lambda event, flags: number)
    found = tried(kernel, perf_settings(tmp_path, paranoid=paranoid))
    assert found.ready is None
    assert why in found.why
    assert remedy in found.remedy


def test_root_is_refused_by_a_filter_whatever_the_sysctl_says(tmp_path: Path) -> None:
    root = perf_settings(tmp_path, paranoid=3)
    (root / "proc/self").mkdir()
    (root / "proc/self/status").write_text("CapEff:\t000001ffffffffff\n")
    found = tried(MadeKernel(refuse=lambda event, flags: errno.EPERM), root)
    assert "by a seccomp filter" in found.why


def test_a_machine_without_some_event_counts_the_others(tmp_path: Path) -> None:
    kernel = MadeKernel(refuse=lambda it, flags: errno.ENOENT if it.config == RECOVERY else 0)
    found = tried(kernel, perf_settings(tmp_path))
    assert found.missing == ("recovery",)
    assert found.ready
    assert [event.name for event in found.ready.events] == list(NAMES[:-1])
    assert found.why == (
        "not on this machine: recovery (the processor or its driver has no such event, ENOENT)"
    )


def test_a_group_that_is_too_large_is_told_as_that(tmp_path: Path) -> None:
    found = tried(MadeKernel(room=5), perf_settings(tmp_path))
    assert found.ready is None
    assert "each of its 6 events counts alone, together they do not" in found.why
    assert "smaller groups" in found.remedy


@pytest.mark.parametrize(
    ("watchdog", "why", "remedy"),
    [
        (1, "others have the counters (the NMI watchdog", "sysctl kernel.nmi_watchdog=0"),
        (0, "others have the counters", "end other users of the counters"),
    ],
)
def test_a_group_that_never_runs_is_not_counted(
    tmp_path: Path, watchdog: int, why: str, remedy: str
) -> None:
    found = tried(MadeKernel(running=0.0), perf_settings(tmp_path, watchdog=watchdog))
    assert found.ready is None
    assert why in found.why
    assert found.remedy.startswith(remedy)


def test_codes_go_to_the_device_that_the_kernel_has_for_them(tmp_path: Path) -> None:
    arm = load_table("arm-neoverse-n1")
    group = arm.groups[0]
    assert perf_events(arm, group, tmp_path)[0] == PerfEvent(4, 0x11)
    device = tmp_path / "sys/bus/event_source/devices/armv8_pmuv3_0"
    device.mkdir(parents=True)
    (device / "type").write_text("9\n")
    assert perf_events(arm, group, tmp_path)[0] == PerfEvent(9, 0x11)
    assert this_processor(tmp_path).name == ""


# Pages touched, processes and children of them, more of each with the copy's number.
SCRIPT = """
n=$((RATER_COPY + 1))
while [ $n -gt 0 ]; do
  sh -c 'head -c 200000 /dev/zero | tail -c 1 >/dev/null & wait'
  n=$((n - 1))
done
"""


def software() -> ReadyGroup:
    table = load_table("software")
    ready = probe_group(TableGroup(table, table.groups[0])).ready
    if ready is None:
        pytest.skip("this kernel lets nobody count (kernel.perf_event_paranoid)")
    return ready


def counted(ready: ReadyGroup, kernel: PerfKernel | None = None) -> CounterPlan:
    return CounterPlan(lambda iteration: (ready,), len(ready.events), kernel or PerfKernel())


def values(seen: Seen) -> dict[tuple[int, int, int], dict[str, int | None]]:
    return {
        (event.phase, event.copy, event.step): {count.event: count.value for count in event.counts}
        for event in seen.events_of(CopyCounted)
    }


@pytest.mark.slow
def test_page_faults_are_those_of_getrusage_but_for_the_gates_own(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    seen = Rig(tmp_path, counters=counted(software())).run({"pages": SCRIPT}, 6)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    readings = values(seen)
    own_faults = {}
    for copy in range(6):
        faults, usage = readings[0, copy, 0]["minor_faults"], seen.by_copy(copy)
        assert faults is not None
        own_faults[copy] = usage.minor_faults - faults
        clock_ns = readings[0, copy, 0]["task_clock_ns"]
        assert clock_ns is not None
        assert clock_ns == pytest.approx(usage.cpu_ns, rel=0.3, abs=5e6)
    assert (readings[0, 5, 0]["minor_faults"] or 0) > 3 * (readings[0, 0, 0]["minor_faults"] or 0)
    # The gate's, and what exec itself takes: the kernel counts those for getrusage only. Each loop
    # has three execs.
    assert all(-3 <= own_faults[copy] - own_faults[0] <= 9 * copy for copy in range(6))
    assert own_faults[0] < 200
    [cost] = seen.events_of(PhaseCounted)
    assert cost.copies == 6
    assert min(cost.open_ns, cost.read_ns, cost.close_ns) > 0
    order = [type(event).__name__ for event in seen.events]
    assert order.index("CopyCounted") > max(
        number for number, name in enumerate(order) if name == "CopyEnded"
    ), "read when nothing is timed any more"


@pytest.mark.slow
def test_every_run_of_a_queue_and_of_a_window_is_counted(tmp_path: Path) -> None:
    scripts = {"a": "exit 0", "b": ":"}
    rotated = make_plan(list(scripts), 2, mode="rotated", order=Order.ROTATED, iterations=2)
    window = Window(0, 300_000_000)
    steady = make_plan(["a"], 2, mode="steady", order=Order.HOMOGENEOUS, window=window)
    for name, plan in (("rotated", rotated), ("steady", steady)):
        folder = tmp_path / name
        folder.mkdir()
        seen = Rig(folder, counters=counted(software())).run(scripts, 2, plan)
        runs = {(event.phase, event.copy, event.step) for event in seen.ended}
        assert values(seen).keys() == runs
        assert len(runs) >= 4
        [cost] = seen.events_of(PhaseCounted)
        assert cost.copies >= len(runs)


def test_groups_are_opened_on_the_gate_and_never_left_open(tmp_path: Path) -> None:
    kernel = MadeKernel(running=0.5)
    ready = replace(software(), name="made:one")
    seen = Rig(tmp_path, counters=counted(ready, kernel)).run({"a": "exit 3", "b": ":"}, 2)
    assert not kernel.opened
    pids = {event.pid for event in seen.ended}
    assert {pid for _, _, pid in kernel.calls} == pids
    assert all(flags & INHERIT for _, flags, _ in kernel.calls)
    leaders = [flags & 1 and flags >> 12 & 1 for config, flags, _ in kernel.calls if config == 1]
    assert leaders == [1] * 4, "not before the exec"
    [first, *_] = seen.events_of(CopyCounted)
    assert {count.group_name for count in first.counts} == {"made:one"}
    assert not first.counts[0].in_full
    assert first.counts[0].estimate == 2000


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EMFILE, "too many open files, EMFILE: raise `ulimit -n`"),
        (errno.ESRCH, "the process was gone, ESRCH"),
    ],
)
def test_a_run_goes_on_where_copies_cannot_be_counted(
    tmp_path: Path, number: int, reason: str
) -> None:
    taken = []

    def second(event: object, flags: int) -> int:
        taken.append(event)
        return number if len(taken) % 2 == 0 else 0

    kernel = MadeKernel(refuse=second)
    seen = Rig(tmp_path, counters=counted(software(), kernel)).run({"a": ":"}, 2)
    assert seen.outcome.reason is None
    assert len(seen.ended) == 2
    assert not seen.events_of(CopyCounted)
    assert seen.notes.count(f"counters: not every copy was counted: {reason}") == 1
    assert not kernel.opened


MS = 1_000_000
TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")

# user nice system idle iowait irq softirq steal guest guest_nice; CPU 1 is offline.
STAT = """cpu  999 0 0 0 0 0 0 0 0 0
cpu0 100 10 20 500 7 1 2 3 50 0
cpu2 200 0 30 400 0 0 0 0 0 0
intr 12345 0 0
ctxt 1
"""
LATER = """cpu  9999 0 0 0 0 0 0 0 0 0
cpu0 150 11 25 500 6 2 5 7 90 0
cpu2 200 0 30 500 0 0 0 0 0 0
cpu3 900 0 0 0 0 0 0 0 0 0
intr 12345 0 0
"""
VMSTAT = "pgmigrate_success 5\nallocstall_dma 1\nallocstall_normal 10\npswpin 3\nnr_dirty 7\n"
VMSTAT_LATER = "pgmigrate_success 9\nallocstall_dma 2\nallocstall_normal 30\npswpin 3\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 total={}\n"
INTERRUPTS = """           CPU0       CPU2
  0:         {}          0   IO-APIC    2-edge      timer
LOC:        100         {}   Local timer interrupts
ERR:          7
"""


class Machine:
    """Counters in files of our own."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        (self.proc / "pressure").mkdir(parents=True)
        for cpu in (0, 2):
            self.cpu(cpu).mkdir(parents=True)
        self.stand(STAT, VMSTAT, (100, 0), (20, 500))

    def cpu(self, number: int) -> Path:
        return self.sys / f"devices/system/cpu/cpu{number}"

    def stand(
        self, stat: str, vmstat: str, pressure: tuple[int, int], took: tuple[int, int]
    ) -> None:
        (self.proc / "stat").write_text(stat)
        (self.proc / "vmstat").write_text(vmstat)
        (self.proc / "pressure" / "memory").write_text(PRESSURE.format(*pressure))
        (self.proc / "interrupts").write_text(INTERRUPTS.format(*took))

    def throttled(self, cpu: int, core: int, package: int) -> None:
        folder = self.cpu(cpu) / "thermal_throttle"
        folder.mkdir(exist_ok=True)
        (folder / "core_throttle_count").write_text(f"{core}\n")
        (folder / "package_throttle_count").write_text(f"{package}\n")

    def frequency(self, cpu: int, name: str, khz: int) -> None:
        folder = self.cpu(cpu) / "cpufreq"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"{khz}\n")

    def process(self, pid: int, parent: int, own_faults: int, children: int) -> None:
        folder = self.proc / str(pid)
        folder.mkdir()
        zeros = " 0" * 9
        (folder / "stat").write_text(
            f"{pid} (a b) R {parent}{zeros} {own_faults} 0 {children} 0 20 0 1 0 5{zeros}{zeros}\n"
        )

    def reader(self) -> MachineReader:
        return MachineReader(self.proc, self.sys)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_file_that_is_kept_open_says_what_it_says_now_and_nothing_once_it_is_closed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "count"
    file = KeptFile(path)
    assert file.read() == b""  # it is not there
    path.write_text("1\n")
    assert file.read() == b"1\n"
    path.write_text("12\n")
    assert file.read() == b"12\n"
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    file.close()
    file.close()
    assert len([*Path("/proc/self/fd").iterdir()]) == descriptors - 1


def counters_of(reader: MachineReader, phase: int = 4) -> PhaseCounters:
    """Readings of a phase whose copy n is on CPU n, copy 9 not bound."""
    return PhaseCounters(reader, phase, lambda copy: None if copy == 9 else copy)


def filler_ns(readings: PhaseCounters) -> list[int]:
    return [row.filler_ns for row in events_of(readings)[0].rows]


def events_of(readings: PhaseCounters) -> tuple[CpuReadings, MachineReadings]:
    events = readings.events()
    assert events
    return events


def test_the_difference_of_two_readings_is_reported_by_cpu_and_of_the_machine(
    machine: Machine,
) -> None:
    machine.throttled(0, 3, 4)
    readings = counters_of(machine.reader())
    readings.begin()
    machine.throttled(0, 5, 9)
    machine.stand(LATER, VMSTAT_LATER, (350, 10), (120, 1500))
    readings.end()
    cpus, counters = events_of(readings)
    # iowait of CPU 0 went back; CPU 3 came online meanwhile; guest time is in user already.
    zero = CpuReading(
        cpu=0,
        user_ns=51 * TICK_NS,
        system_ns=5 * TICK_NS,
        iowait_ns=0,
        irq_ns=4 * TICK_NS,
        steal_ns=4 * TICK_NS,
        idle_ns=0,
        mean_khz=None,
        throttles=7,
        interrupts=100,
    )
    two = CpuReading(
        cpu=2,
        user_ns=0,
        system_ns=0,
        iowait_ns=0,
        irq_ns=0,
        steal_ns=0,
        idle_ns=100 * TICK_NS,
        mean_khz=None,
        throttles=None,
        interrupts=1000,
    )
    assert cpus == CpuReadings(4, (zero, two))
    values = dict(counters.values)
    assert values.pop("elapsed_ns") > 0
    assert values.pop("rater_cpu_ns") >= 0
    assert (counters.phase, values) == (
        4,
        {
            "allocstall": 21,
            "pgmigrate_success": 4,
            "pswpin": 0,
            "pressure_memory_some_ns": 250_000,
            "pressure_memory_full_ns": 10_000,
        },
    )


@pytest.mark.parametrize(
    ("files", "throttled"),
    [
        ({"cpu.max": ("max 100000",) * 2}, {"cfs_throttled_ns": 0}),
        (
            {
                "cpu.max": ("50000 100000",) * 2,
                "cpu.stat": (
                    "usage_usec 7\nnr_periods 10\nnr_throttled 4\nthrottled_usec 500\n",
                    "usage_usec 9\nnr_periods 30\nnr_throttled 22\nthrottled_usec 900\n",
                ),
            },
            {"cfs_periods": 20, "cfs_throttled_periods": 18, "cfs_throttled_ns": 400_000},
        ),
    ],
)
def test_what_a_quota_of_the_cgroup_kept_from_copies_is_read_around_a_phase(
    machine: Machine, files: dict[str, tuple[str, str]], throttled: dict[str, int]
) -> None:
    folder = machine.proc.parent / "cg"
    folder.mkdir()
    (machine.proc / "self").mkdir()
    (machine.proc / "self/cgroup").write_text("0::/\n")
    mounts = "35 1 0:30 / /cg rw - cgroup2 cgroup2 rw\n"
    (machine.proc / "self/mountinfo").write_text(mounts)
    for name, (text, _) in files.items():
        (folder / name).write_text(text)
    readings = counters_of(machine.reader())
    readings.begin()
    for name, (_, text) in files.items():
        (folder / name).write_text(text)
    readings.end()
    values = dict(events_of(readings)[1].values)
    assert {name: value for name, value in values.items() if name.startswith("cfs_")} == throttled


def test_rows_of_cpus_are_left_aside_where_another_file_system_lies_over_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As lxcfs does in a container, where CPU 1 may be called 0."""
    monkeypatch.setattr(counters, "_is_kernels", lambda file: file.name != "stat")
    readings = counters_of(machine.reader())
    readings.begin()
    readings.end()
    assert events_of(readings)[0].rows == ()


def test_a_machine_that_shows_nothing_is_no_error(tmp_path: Path) -> None:
    readings = counters_of(MachineReader(tmp_path / "proc", tmp_path / "sys"))
    readings.begin()
    readings.end()
    cpus, counters = events_of(readings)
    assert cpus.rows == ()
    assert [name for name, _ in counters.values] == ["elapsed_ns", "rater_cpu_ns"]


def test_a_phase_that_did_not_come_to_its_end_reports_nothing(machine: Machine) -> None:
    readings = counters_of(machine.reader())
    assert readings.events() == ()
    readings.begin()
    assert readings.events() == ()


def test_interrupts_of_a_machine_of_many_cpus_are_not_read(machine: Machine) -> None:
    line = " 1 0 0 0 0 0 0 0 0 0\n"
    many = "".join(f"cpu{cpu}{line}" for cpu in range(129))
    machine.stand(f"cpu {line}{many}", "", (0, 0), (1, 1))
    readings = counters_of(machine.reader())
    readings.begin()
    readings.end()
    assert {row.interrupts for row in events_of(readings)[0].rows} == {None}


# -- runs that only keep the load up ---------------------------------------------------------------


def test_cpu_time_of_fillers_goes_with_the_cpu_of_their_copy(machine: Machine) -> None:
    readings = counters_of(machine.reader())
    readings.begin()
    readings.filler_ended(2, 30)
    readings.filler_ended(2, 12)
    readings.filler_ended(9, 5)  # not bound: with the first CPU
    readings.end()
    readings.filler_ended(2, 1000)
    assert filler_ns(readings) == [5, 42]


def test_fillers_that_still_run_count_with_all_processes_below_them(machine: Machine) -> None:
    machine.process(50, 1, own_faults=2, children=3)  # copy 2
    machine.process(51, 50, own_faults=10, children=0)
    machine.process(52, 51, own_faults=100, children=0)
    machine.process(60, 1, own_faults=7, children=0)  # of copy 0, its parent is gone
    machine.process(70, 1, own_faults=5000, children=0)  # somebody else's
    readings = counters_of(machine.reader())
    readings.begin()
    readings.end_with_fillers({50: 2, 60: 0})
    readings.end()
    assert filler_ns(readings) == [7 * TICK_NS, 115 * TICK_NS]


def test_parents_that_go_in_a_ring_end_nowhere(machine: Machine) -> None:
    machine.process(50, 51, own_faults=2, children=0)
    machine.process(51, 50, own_faults=2, children=0)
    readings = counters_of(machine.reader())
    readings.begin()
    readings.end_with_fillers({60: 0})
    assert filler_ns(readings) == [0, 0]


# -- frequency -------------------------------------------------------------------------------------


def mean_khz(reader: MachineReader, for_s: float = 10.0) -> list[int | None]:
    """Watch for so long, or until a frequency was read and paid for; return the means."""
    readings = counters_of(reader)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readings.watch)
            with trio.move_on_after(for_s):
                while not (
                    reader.spent_ns and any(row.mean_khz for row in events_of(readings)[0].rows)
                ):
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()

    readings.begin()
    readings.end()
    trio.run(run)
    return [row.mean_khz for row in events_of(readings)[0].rows]


@pytest.mark.parametrize(("average", "shown"), [(3_100_000, 3_100_000), (0, None)])
def test_the_frequency_is_read_while_copies_run_the_averaged_one_first(
    machine: Machine, average: int, shown: int | None
) -> None:
    machine.frequency(0, "scaling_cur_freq", 800_000)
    machine.frequency(0, "cpuinfo_avg_freq", average)
    machine.frequency(2, "scaling_cur_freq", 2_400_000)
    reader = machine.reader()
    assert mean_khz(reader) == [shown, 2_400_000]
    assert reader.spent_ns > 0


def test_frequencies_are_left_alone_when_they_have_cost_their_share(machine: Machine) -> None:
    machine.frequency(0, "scaling_cur_freq", 800_000)
    reader = machine.reader()
    reader.spent_ns = 10**9
    assert mean_khz(reader, 0.4) == [None, None]
    assert reader.spent_ns == 10**9


def test_each_turn_has_cpus_of_all_of_a_large_machine(machine: Machine) -> None:
    line = " 1 0 0 0 0 0 0 0 0 0\n"
    machine.stand(
        f"cpu {line}" + "".join(f"cpu{number}{line}" for number in range(130)), "", (0, 0), (1, 1)
    )
    for cpu in range(130):
        machine.cpu(cpu).mkdir(exist_ok=True, parents=True)
        machine.frequency(cpu, "scaling_cur_freq", 1)
    turns = [[cpu for cpu, _ in turn] for turn in machine.reader().frequency_turns]
    assert [turn[:3] for turn in turns] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert max(len(turn) for turn in turns) <= 64


# -- real runs -------------------------------------------------------------------------------------

BURN = "i=0; while [ $i -lt {} ]; do i=$((i+1)); done"


def run(tmp_path: Path, script: str, plan: Plan, *, proof: Cadence | None) -> Seen:
    rig = Rig(tmp_path, proof=proof, placements=on_one_cpu(plan.copies))
    return rig.run({"burn": script}, plan.copies, plan)


def test_every_phase_has_its_readings_before_its_end_is_reported(tmp_path: Path) -> None:
    plan = make_plan(["burn"], 2, iterations=2)
    seen = run(tmp_path, BURN.format(150_000), plan, proof=Cadence())
    for_phases = [
        event
        for event in seen.events
        if isinstance(event, CpuReadings | MachineReadings | PhaseEnded)
    ]
    kinds = [CpuReadings, MachineReadings, PhaseEnded]
    assert [type(event) for event in for_phases] == kinds * 2
    assert [event.phase for event in for_phases] == [0, 0, 0, 1, 1, 1]
    for cpus, bracket in zip(seen.events_of(CpuReadings), seen.brackets, strict=True):
        own_ns = sum(
            event.user_ns + event.system_ns - event.gate_cpu_ns
            for event in seen.ended
            if event.phase == bracket.phase
        )
        [worked_ns] = [row.user_ns + row.system_ns for row in cpus.rows if row.cpu == CPU]
        assert worked_ns >= own_ns - 4 * TICK_NS
        [machine] = [
            dict(readings.values)
            for readings in seen.events_of(MachineReadings)
            if readings.phase == cpus.phase
        ]
        assert machine["elapsed_ns"] >= bracket.finish_ns - bracket.start_ns


def test_without_a_proof_the_machine_is_not_read(tmp_path: Path) -> None:
    seen = run(tmp_path, "exit 0", make_plan(["burn"], 1), proof=None)
    assert seen.events_of(CpuReadings) == []


def test_runs_after_the_window_are_no_foreign_load(tmp_path: Path) -> None:
    # Copy 0's run reaches far beyond the window; copy 1 computes on, in a child of its shell.
    script = f'if [ "$RATER_COPY" = 0 ]; then sleep 0.9; else ({BURN.format(30_000)}); :; fi'
    window = Window(warmup_ns=50 * MS, length_ns=100 * MS)
    plan = make_plan(["burn"], 2, mode="steady", window=window)
    seen = run(tmp_path, script, plan, proof=Cadence())
    [cpus] = seen.events_of(CpuReadings)
    filler_ns = sum(row.filler_ns for row in cpus.rows)
    own_ns = sum(event.user_ns + event.system_ns for event in seen.ended)
    [worked_ns] = [row.user_ns + row.system_ns for row in cpus.rows if row.cpu == CPU]
    assert filler_ns > 0
    assert own_ns + filler_ns <= worked_ns + 10 * TICK_NS
