"""Screens of runs, with what was counted and whose work the CPUs did."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.divots.model.finding import Analysis
from rater.analysis.results.counters import run_counts
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.score import summarise
from rater.record.events import (
    CpuReading,
    CpuReadings,
    ForeignProcess,
    MachineReadings,
    RunEnded,
)
from rater.record.run import MachinePU, MemoryPolicy, Placement, RunStatus
from rater.record.stored import StoredRun
from rater.show.results.cpu_use import counter_parts, counters_document
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import SECONDS, print_parts
from rater.store.export import full_document
from rater.store.store import Store
from rater.store.sweeps import remove_sweeps
from tests.support.calls import Rater
from tests.support.counted_runs import SKX_TABLE, counted_run
from tests.support.example_events import S as CPU_USE_S
from tests.support.example_events import ended, over, phase, run_of, with_head
from tests.support.example_runs import copy_row, stored
from tests.support.golden_shapes import suite_run
from tests.support.printed import parts_of, text_of
from tests.support.stored_runs import GONE, append, query_file, query_rows


def shown(run: StoredRun, width: int = 80, encoding: str = "utf-8", **options: Any) -> str:
    """What is printed of a run to a file of this width."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_parts(parts_of(summarise(run), **options), Printer(TextScreen(stream, width=width)))
    return text_in(stream)


def text_in(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(stream.encoding)


def test_a_console_without_utf_8_gets_plain_ascii() -> None:
    names = ["caf\u00e9-" + "x" * 40]
    text = shown(suite_run(names, 1), 60, "latin-1")
    assert text.isascii()
    assert "caf?-xxx" in text and "~" in text


def test_no_color_and_files_have_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in shown(suite_run(["a"], 1))
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    screen = TextScreen(stream, width=80, is_terminal=True)
    failed = parts_of(summarise(suite_run(["a"], 1, status=RunStatus.FAILED)))
    print_parts(failed, Printer(screen))
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text_in(stream))


def test_after_a_run_the_next_commands_are_named_and_in_show_they_are_not() -> None:
    run = suite_run(["a", "b"], 3)
    assert "specrate" not in shown(run).lower()  # ours are never called so
    assert shown(run).endswith("\nnext: `rater report 7`\n")
    first = shown(run, after_run=False)
    assert "rater report" not in first
    begins = [line[:11] for line in first.splitlines()[:5]]
    assert begins == ["run 7: mini", "2026-11-20 ", "suite ratio", "", "benchmark  "]


@pytest.mark.parametrize(
    ("typed", "next_command"),
    [
        ("rater run -- ./mb 3", "rater run --iterations 5 -- ./mb 3"),
        ("rater run mini --iterations 1", "rater run mini --iterations 5"),
        ("rater run --iterations=1 -- ./mb --iterations 1",
         "rater run --iterations 5 -- ./mb --iterations 1"),
        ("rater run --env KEY='[redacted]' -- ./mb", "rater report 7"),
        ("rater rerun 3", "rater report 7"),
    ],
)  # fmt: skip
def test_after_a_run_of_one_iteration_the_next_is_one_of_several(
    typed: str, next_command: str
) -> None:
    run = suite_run(["a"], 1)
    run = replace(run, head=replace(run.head, command_line=typed, iterations=1))
    few = Analysis(findings=(), visible={})
    assert shown(run, divots=few).endswith(f"\nnext: `{next_command}`\n")


@pytest.mark.parametrize(("stagger_ms", "is_said"), [(2000.0, True), (500.0, False)])
def test_staggered_copies_that_never_meet_are_single_copies_and_that_is_said(
    stagger_ms: float, is_said: bool
) -> None:
    later = round(stagger_ms * 1e6)
    rows = [copy_row(0, 1.0), copy_row(1, 1.5, start_ns=later)]
    text = shown(stored(rows, mode="staggered", stagger_ms=stagger_ms, copies=2))
    said = "Copies never overlapped, so this measures single copies: the slowest took 1.5 s"
    assert (said in " ".join(text.split())) == is_said


def test_times_below_ten_milliseconds_keep_three_digits_beside_any_others() -> None:
    assert SECONDS.cells([0.000912, 0.000964]) == ["0.000912", "0.000964"]
    assert SECONDS.cells([0.000912, 150.0, None]) == ["0.000912", "150.000", "-"]


def counters_text(run: StoredRun) -> str:
    return text_of(counter_parts(run_counts(run)))


def test_json_has_rates_stack_and_groups() -> None:
    document: Any = counters_document(run_counts(counted_run()))
    [one] = document["benchmarks"]
    assert (one["cpi"], one["ipc"], one["ghz"]) == (2.0, 0.5, 3.0)
    assert one["stack"]["parts"][0] == {"name": "base", "cycles": 0.3}
    assert one["metrics"]["remote_dram_share"] == 0.25
    assert one["groups"][0]["name"] == "intel-skx:pipeline"


GUESSED = '\n[estimates]\nguess = { misses = "llc_miss", inside = "dram" }\n'


def guessed_run(**settings: str) -> StoredRun:
    """Count a run by a table that estimates a part: of 20 misses in 1000 instructions."""
    [(name, text)] = SKX_TABLE
    found = tuple((f"rater.{key}", value) for key, value in settings.items())
    return replace(counted_run(), settings=((name, text + GUESSED), *found))


def test_an_estimated_part_is_marked_and_its_cost_said() -> None:
    run = guessed_run(tlb_miss_cycles="10")
    document: Any = counters_document(run_counts(run))
    [one] = document["benchmarks"]
    assert {"name": "guess", "cycles": 0.2} in one["stack"]["parts"]  # .02 x 10
    assert {"name": "dram", "cycles": pytest.approx(0.3)} in one["stack"]["parts"]  # .5 less that
    assert (one["stack"]["estimated"], one["miss_cycles"]) == (["guess"], 10.0)
    text = " ".join(counters_text(run).split())
    assert "guess (estimated) 0.200 10.0" in text
    assert (
        "guess is an estimate: misses x the 10 cycles that one costs on this machine by `rater lab "
        "trace --measure`"
    ) in text


@pytest.mark.parametrize("settings", [{}, {"tlb_miss_cycles": "0"}, {"tlb_miss_cycles": "dear"}])
def test_a_part_that_cannot_be_estimated_is_none_and_not_0(settings: dict[str, str]) -> None:
    run = guessed_run(**settings)
    document: Any = counters_document(run_counts(run))
    [one] = document["benchmarks"]
    assert "guess" not in [part["name"] for part in one["stack"]["parts"]]
    assert (one["stack"]["not_estimated"], one["miss_cycles"]) == (["guess"], None)
    assert "guess is no part of its own: this processor counts misses alone" in " ".join(
        counters_text(run).split()
    )


PUS = tuple(MachinePU(cpu=cpu, core=cpu, llc=0, node=cpu // 2, package=0) for cpu in range(4))
# Two copies on CPUs 0 and 2; somebody computes on CPU 2, and on CPU 3 beside it.
CPUS = CpuReadings(
    0,
    (
        CpuReading(
            cpu=0,
            user_ns=9 * CPU_USE_S,
            system_ns=CPU_USE_S // 10,
            iowait_ns=0,
            irq_ns=CPU_USE_S // 10,
            steal_ns=0,
            idle_ns=CPU_USE_S // 2,
            mean_khz=3_000_000,
            throttles=0,
            interrupts=12_000,
        ),
        CpuReading(
            cpu=1,
            user_ns=0,
            system_ns=0,
            iowait_ns=0,
            irq_ns=0,
            steal_ns=0,
            idle_ns=10 * CPU_USE_S,
            mean_khz=1_200_000,
            throttles=0,
            interrupts=40,
        ),
        CpuReading(
            cpu=2,
            user_ns=9 * CPU_USE_S,
            system_ns=CPU_USE_S,
            iowait_ns=0,
            irq_ns=0,
            steal_ns=CPU_USE_S // 5,
            idle_ns=0,
            mean_khz=2_400_000,
            throttles=3,
            interrupts=2_000,
        ),
        CpuReading(
            cpu=3,
            user_ns=4 * CPU_USE_S,
            system_ns=0,
            iowait_ns=0,
            irq_ns=0,
            steal_ns=0,
            idle_ns=6 * CPU_USE_S,
            mean_khz=None,
            throttles=0,
            interrupts=400,
        ),
    ),
)
MACHINE = MachineReadings(
    0,
    (
        ("elapsed_ns", 10 * CPU_USE_S),
        ("pgmajfault", 1),
        ("pgmigrate_success", 7),
        ("pressure_io_some_ns", CPU_USE_S // 10),
        ("pressure_memory_some_ns", 0),
        ("rater_cpu_ns", CPU_USE_S // 100),
    ),
)


BURN = ForeignProcess(
    phase=0, cpu=2, pid=123, name="burn", cpu_ns=CPU_USE_S, observed_ns=9 * CPU_USE_S
)


def store_run(store: Store) -> int:
    """Two copies on two lgroups; each computes for 9 s of 10."""
    placed = tuple(
        Placement(
            copy=copy,
            cpus=(2 * copy,),
            cpu=2 * copy,
            core=2 * copy,
            llc=0,
            node=copy,
            package=0,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        )
        for copy in range(2)
    )
    run = replace(run_of(2, 2), placements=placed)
    number = store.create_run(replace(run, pus=PUS), GONE)
    append(store, number, phase())
    for copy in range(2):
        append(store, number, replace(ended(copy, 10.0, user_ns=9 * CPU_USE_S), last_cpu=2 * copy))
    append(store, number, CPUS)
    append(store, number, MACHINE, BURN, over(0.0, 10.0), RunEnded(RunStatus.COMPLETE, None))
    return number


def test_readings_come_back_as_they_were_and_once_when_tried_again(store: Store) -> None:
    number = store_run(store)
    append(store, number, CPUS, MACHINE, BURN)
    run = store.load(number)
    assert run.foreign_processes == (BURN,)
    assert run.cpu_readings == (CPUS,)
    assert run.machine_readings == (MACHINE,)


def test_readings_go_with_their_run(store: Store) -> None:
    remove_sweeps(store, (), [store_run(store)])
    for table in ("cpu_reading", "phase_reading", "foreign_process"):
        assert query_rows(store, f"SELECT count(*) FROM {table}") == [(0,)]


def test_readings_of_a_torn_attempt_are_kept_but_do_not_count(store: Store) -> None:
    run = store.load(store_run(store))
    torn = replace(run, brackets=tuple(replace(bracket, torn=True) for bracket in run.brackets))
    assert torn.without_torn().cpu_readings == ()
    assert torn.without_torn().machine_readings == ()
    assert torn.without_torn().foreign_processes == ()
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE bracket SET torn = 1")
    assert query_file(store, "foreign_load") == query_file(store, "steal") == []
    assert query_file(store, "foreign_processes") == []


def test_everything_that_is_exported_has_the_readings(store: Store) -> None:
    document = full_document(store.load(store_run(store)))
    assert document["cpu_readings"][2] == {
        "phase": 0,
        "cpu": 2,
        "user_ns": 9 * CPU_USE_S,
        "system_ns": CPU_USE_S,
        "iowait_ns": 0,
        "irq_ns": 0,
        "steal_ns": CPU_USE_S // 5,
        "idle_ns": 0,
        "mean_khz": 2_400_000,
        "throttles": 3,
        "interrupts": 2_000,
        "filler_ns": 0,
    }
    assert document["foreign_processes"] == [
        {
            "phase": 0,
            "cpu": 2,
            "pid": 123,
            "name": "burn",
            "cpu_ns": CPU_USE_S,
            "observed_ns": 9 * CPU_USE_S,
        }
    ]
    assert document["phase_readings"] == [{"phase": 0, **dict(MACHINE.values)}]


def test_the_queries_find_what_the_analysis_finds(store: Store) -> None:
    run = store.load(store_run(store))
    expected = [
        (use.phase, use.benchmark, use.iteration, use.cpu, use.node, len(use.copies), 10.0)
        for use in sorted(run_counters(run).cpus, key=lambda use: -(use.foreign or 0.0))
        if (use.foreign or 0.0) > 0.02
    ]
    found = query_file(store, "foreign_load")
    assert [row[:7] for row in found] == expected
    assert [row[7:] for row in found] == [(40.0, 40.0), (100.0, 10.0)]
    assert query_file(store, "steal") == [(0, "gups", 1, 2, 1, 0.2, 2.0)]
    assert query_file(store, "foreign_processes") == [(0, "gups", 1, 2, 123, "burn", 1.0, 11.1)]


def test_copies_that_may_run_anywhere_have_no_cpu_of_their_own_to_ask_for(store: Store) -> None:
    number = store.create_run(with_head(run_of(2, bound=False), uuid="v"), GONE)
    append(store, number, phase(), ended(0, 10.0), CPUS, MACHINE, over(0.0, 10.0))
    assert query_file(store, "foreign_load") == []


# -- shown -----------------------------------------------------------------------------------------


def test_show_has_the_line_and_with_cpus_the_tables(store: Store, rater: Rater) -> None:
    store_run(store)
    status, brief, _ = rater("show")
    assert status == 0
    assert "other processes     up to 10.0 % of CPU 2" in brief
    assert "foreign" not in brief
    assert "burn (PID 123) took 11 % of CPU 2" in " ".join(brief.split())
    assert "foreign" in (tables := rater("show", "--cpus")[1])
    assert "burn (PID 123)  11.1" in tables
    document = json.loads(rater("show", "--json")[1])
    matters = [one["matter"] for one in document["notable"]]
    assert matters == ["foreign load", "steal", "throttled"]
    assert "readings" not in document
    readings = json.loads(rater("show", "--cpus", "--json")[1])["readings"]
    assert [use["cpu"] for use in readings["cpus"]] == [0, 1, 2, 3]
    assert document["notable"][0]["process"] == readings["processes"][0]
    assert readings["processes"][0]["pid"] == 123
    assert readings["machine"][0]["pressure"] == {"cpu": None, "memory": 0.0, "io": 0.01}


def test_a_real_run_is_read_and_one_without_proof_is_not(store: Store, rater: Rater) -> None:
    for words in ((), ("--proof", "off")):
        options = ("--quiet", "--copies", "1", "--preflight", "off")
        assert rater("run", *options, *words, "--", "sleep", "0.05")[0] == 0
    read, unread = (store.load(head.run) for head in store.runs())
    [use] = [use for use in run_counters(read).cpus if use.copies == (0,)]
    assert use.elapsed_s >= 0.05
    assert (unread.cpu_readings, unread.machine_readings) == ((), ())
