"""Which other processes took CPUs of copies, and where they are named."""

from __future__ import annotations

from msgspec.structs import replace

from rater.analysis.compare.differences import disturbed_runs
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import disturbance_reasons
from rater.analysis.results.foreign_processes import foreign_by_cpu, process_text
from rater.record.events import CpuReading, ForeignProcess
from rater.record.stored import StoredRun
from rater.show.compare.differences import trouble_parts
from rater.show.results.cpu_use import cpu_parts, disturbance_facts
from rater.text.values import to_json
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S
from tests.support.printed import text_of


def process(pid: int, cpu: int, cpu_s: float, name: str = "burn", phase: int = 0) -> ForeignProcess:
    return ForeignProcess(
        phase=phase, cpu=cpu, pid=pid, name=name, cpu_ns=round(cpu_s * S), observed_ns=8 * S
    )


def busy(cpu: int) -> CpuReading:
    """A CPU that worked all of the ten seconds."""
    return CpuReading(
        cpu=cpu,
        user_ns=10 * S,
        system_ns=0,
        iowait_ns=0,
        irq_ns=0,
        steal_ns=0,
        idle_ns=0,
        mean_khz=None,
        throttles=None,
        interrupts=None,
    )


def disturbed(*processes: ForeignProcess, bound: bool = True) -> StoredRun:
    """Two copies on CPUs 0 and 1; others took 3 s of the first and 5 s of the second."""
    copies = [computed(0, 7.0, cpu=0), computed(1, 5.0, cpu=1)]
    masks = None if bound else [(0, 1), (0, 1)]
    run = read_run(copies, busy(0), busy(1), masks=masks)
    return replace(run, foreign_processes=processes)


def test_processes_come_by_phase_and_cpu_the_busiest_first() -> None:
    few, many, moved = process(7, 1, 1.0), process(8, 1, 3.0), process(8, 0, 0.8)
    run = disturbed(few, moved, many)
    assert foreign_by_cpu(run) == {(0, 1): (many, few), (0, 0): (moved,)}
    torn = replace(run, brackets=tuple(replace(bracket, torn=True) for bracket in run.brackets))
    assert foreign_by_cpu(torn) == {}
    assert foreign_by_cpu(disturbed()) == {}


def test_the_worst_cpu_names_its_process_and_not_that_of_another_cpu() -> None:
    run = disturbed(process(8, 0, 4.0, "other"), process(7, 1, 3.76))
    counters = run_counters(run)
    assert counters.disturber == process(7, 1, 3.76)
    assert process_text(process(7, 1, 3.76)) == "burn (PID 7) took 47 % of CPU 1"
    assert run_counters(disturbed(process(8, 0, 4.0))).disturber is None
    assert run_counters(disturbed()).disturber is None


def test_where_copies_share_cpus_the_process_may_be_on_any_of_them() -> None:
    run = disturbed(process(8, 0, 2.0), process(7, 1, 3.0), process(9, 5, 8.0), bound=False)
    assert run_counters(run).disturber == process(7, 1, 3.0)


def test_every_sentence_of_a_disturbed_run_names_it() -> None:
    run = disturbed(process(7, 1, 3.76))
    counters = run_counters(run)
    [fact] = disturbance_facts(to_json(counters.notable))
    assert str(fact[1]).endswith("; burn (PID 7) took 47 % of CPU 1")
    [reason] = disturbance_reasons(0.3, None, counters.disturber)
    assert reason.endswith(" by an estimated 30 % (burn (PID 7) took 47 % of CPU 1)")
    troubles = disturbed_runs([run])
    told = text_of(trouble_parts(troubles)).replace("\n" + " " * 28, " ")
    assert "burn (PID 7) took 47 % of CPU 1" in " ".join(told.split())
    [because] = troubles[0].too_disturbed
    assert because.endswith("(burn (PID 7) took 47 % of CPU 1)")


def test_the_tables_of_cpus_have_those_of_copies_first_and_no_table_without() -> None:
    run = disturbed(process(9, 5, 7.0, "elsewhere"), process(8, 0, 1.0), process(7, 1, 3.76))
    run = replace(
        disturbed(),
        foreign_processes=run.foreign_processes,
        cpu_readings=read_run([computed(0, 1.0)], busy(0), busy(1), busy(5)).cpu_readings,
    )
    told = text_of(cpu_parts(run_counters(run)))
    names = [line.split()[-4:] for line in told.splitlines() if "(PID" in line]
    assert names == [
        ["burn", "(PID", "7)", "47.0"],
        ["burn", "(PID", "8)", "12.5"],
        ["elsewhere", "(PID", "9)", "87.5"],
    ]
    assert "Other processes" not in text_of(cpu_parts(run_counters(disturbed())))


def test_names_of_somebody_elses_database_move_no_cursor() -> None:
    hostile = process(7, 1, 3.76, "\x1b[2J" + "x" * 40)
    assert process_text(hostile) == "?[2Jxxxxxxxx... (PID 7) took 47 % of CPU 1"
