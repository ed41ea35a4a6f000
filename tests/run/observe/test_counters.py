"""What the machine's counters say of a phase: the kernel's texts, and real runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from rater.plan.options import Cadence
from rater.plan.schedule import Plan, Window, make_plan
from rater.record.events import CpuReading, CpuReadings, MachineReadings, PhaseEnded
from rater.run.observe.counters import MachineReader, PhaseCounters
from tests.support.rig import CPU, Rig, Seen, on_one_cpu

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

    def process(self, pid: int, parent: int, own: int, children: int) -> None:
        folder = self.proc / str(pid)
        folder.mkdir()
        zeros = " 0" * 9
        (folder / "stat").write_text(
            f"{pid} (a b) R {parent}{zeros} {own} 0 {children} 0 20 0 1 0 5 0\n"
        )

    def reader(self) -> MachineReader:
        return MachineReader(self.proc, self.sys)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def of(reader: MachineReader, phase: int = 4) -> PhaseCounters:
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
    readings = of(machine.reader())
    readings.begin()
    machine.throttled(0, 5, 9)
    machine.stand(LATER, VMSTAT_LATER, (350, 10), (120, 1500))
    readings.end()
    cpus, counters = events_of(readings)
    # iowait of CPU 0 went back; CPU 3 came online meanwhile; guest time is in user already.
    zero = CpuReading(0, 51 * TICK_NS, 5 * TICK_NS, 0, 4 * TICK_NS, 4 * TICK_NS, 0, None, 7, 100)
    two = CpuReading(2, 0, 0, 0, 0, 0, 100 * TICK_NS, None, None, 1000)
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


def test_a_machine_that_shows_nothing_is_no_error(tmp_path: Path) -> None:
    readings = of(MachineReader(tmp_path / "proc", tmp_path / "sys"))
    readings.begin()
    readings.end()
    cpus, counters = events_of(readings)
    assert cpus.rows == ()
    assert [name for name, _ in counters.values] == ["elapsed_ns", "rater_cpu_ns"]


def test_a_phase_that_did_not_come_to_its_end_reports_nothing(machine: Machine) -> None:
    readings = of(machine.reader())
    assert readings.events() == ()
    readings.begin()
    assert readings.events() == ()


def test_interrupts_of_a_machine_of_many_cpus_are_not_read(machine: Machine) -> None:
    line = " 1 0 0 0 0 0 0 0 0 0\n"
    many = "".join(f"cpu{cpu}{line}" for cpu in range(129))
    machine.stand(f"cpu {line}{many}", "", (0, 0), (1, 1))
    readings = of(machine.reader())
    readings.begin()
    readings.end()
    assert {row.interrupts for row in events_of(readings)[0].rows} == {None}


# -- runs that only keep the load up ---------------------------------------------------------------


def test_cpu_time_of_fillers_goes_with_the_cpu_of_their_copy(machine: Machine) -> None:
    readings = of(machine.reader())
    readings.begin()
    readings.filler_ended(2, 30)
    readings.filler_ended(2, 12)
    readings.filler_ended(9, 5)  # not bound: with the first CPU
    readings.end()
    readings.filler_ended(2, 1000)
    assert filler_ns(readings) == [5, 42]


def test_fillers_that_still_run_count_with_all_processes_below_them(machine: Machine) -> None:
    machine.process(50, 1, own=2, children=3)  # copy 2
    machine.process(51, 50, own=10, children=0)
    machine.process(52, 51, own=100, children=0)
    machine.process(60, 1, own=7, children=0)  # of copy 0, its parent is gone
    machine.process(70, 1, own=5000, children=0)  # somebody else's
    readings = of(machine.reader())
    readings.begin()
    readings.end_with_fillers({50: 2, 60: 0})
    readings.end()
    assert filler_ns(readings) == [7 * TICK_NS, 115 * TICK_NS]


def test_parents_that_go_in_a_ring_end_nowhere(machine: Machine) -> None:
    machine.process(50, 51, own=2, children=0)
    machine.process(51, 50, own=2, children=0)
    readings = of(machine.reader())
    readings.begin()
    readings.end_with_fillers({60: 0})
    assert filler_ns(readings) == [0, 0]


# -- frequency -------------------------------------------------------------------------------------


def mean_khz(reader: MachineReader, for_s: float = 10.0) -> list[int | None]:
    """Watch for so long, or until a frequency was read and paid for; return the means."""
    readings = of(reader)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(readings.watch)
            with trio.move_on_after(for_s):
                while not (
                    reader.spent_ns and any(it.mean_khz for it in events_of(readings)[0].rows)
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
    machine.stand(f"cpu {line}" + "".join(f"cpu{n}{line}" for n in range(130)), "", (0, 0), (1, 1))
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
        e for e in seen.events if isinstance(e, CpuReadings | MachineReadings | PhaseEnded)
    ]
    kinds = [CpuReadings, MachineReadings, PhaseEnded]
    assert [type(event) for event in for_phases] == kinds * 2
    assert [event.phase for event in for_phases] == [0, 0, 0, 1, 1, 1]
    for cpus, bracket in zip(seen.of(CpuReadings), seen.brackets, strict=True):
        own_ns = sum(
            it.user_ns + it.system_ns - it.gate_cpu_ns
            for it in seen.ended
            if it.phase == bracket.phase
        )
        [worked_ns] = [row.user_ns + row.system_ns for row in cpus.rows if row.cpu == CPU]
        assert worked_ns >= own_ns - 4 * TICK_NS
        [machine] = [dict(it.values) for it in seen.of(MachineReadings) if it.phase == cpus.phase]
        assert machine["elapsed_ns"] >= bracket.finish_ns - bracket.start_ns


def test_without_a_proof_the_machine_is_not_read(tmp_path: Path) -> None:
    seen = run(tmp_path, "exit 0", make_plan(["burn"], 1), proof=None)
    assert seen.of(CpuReadings) == []


def test_runs_after_the_window_are_no_foreign_load(tmp_path: Path) -> None:
    # Copy 0's run reaches far beyond the window; copy 1 computes on, in a child of its shell.
    script = f'if [ "$RATER_COPY" = 0 ]; then sleep 0.9; else ({BURN.format(30_000)}); :; fi'
    window = Window(warmup_ns=50 * MS, length_ns=100 * MS)
    plan = make_plan(["burn"], 2, mode="steady", window=window)
    seen = run(tmp_path, script, plan, proof=Cadence())
    [cpus] = seen.of(CpuReadings)
    filler_ns = sum(row.filler_ns for row in cpus.rows)
    own_ns = sum(it.user_ns + it.system_ns for it in seen.ended)
    [worked_ns] = [row.user_ns + row.system_ns for row in cpus.rows if row.cpu == CPU]
    assert filler_ns > 0
    assert own_ns + filler_ns <= worked_ns + 10 * TICK_NS
