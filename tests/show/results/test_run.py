"""Screens of runs, with what was counted and whose work the CPUs did."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from rater.analysis.results.counters import run_counts
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.score import summarise
from rater.record.events import CpuReading, CpuReadings, MachineReadings, RunEnded
from rater.record.run import CopyStatus, MachinePU, PlacedCopy, RunStatus
from rater.record.stored import StoredCopy, StoredRun
from rater.show.console import Printer, seconds_columns
from rater.show.results.cpu_use import counters_document, notable_text, print_counters, print_cpus
from rater.show.results.run import print_summary
from rater.store.export import full_document
from rater.store.store import Store
from rater.store.sweeps import remove_sweeps
from tests.support.calls import Rater
from tests.support.counted_runs import counted_run
from tests.support.cpu_readings import computed, read_run
from tests.support.example_events import S as CPU_USE_S
from tests.support.example_events import ended, over, phase, run_of
from tests.support.example_runs import S, copy_row, reading, stored
from tests.support.printed import printed_by
from tests.support.stored_runs import GONE, HOST, query_file, rows

LONG = "sparse-solver-large-input"  # 25 characters


def shown(run: StoredRun, width: int = 80, encoding: str = "utf-8", **options: Any) -> str:
    """What `print_summary` writes to a file of this width."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_summary(summarise(run), Console(file=stream, width=width), **options)
    return text_of(stream)


def turned(rows: Sequence[StoredCopy], **head: Any) -> str:
    """What is printed of a run in rotated order."""
    return shown(stored(rows, mode="rotated", order="rotated", **head))


def text_of(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(stream.encoding)


def suite_run(names: list[str], iterations: int, copies: int = 2, **head: Any) -> StoredRun:
    """Every copy of every benchmark takes 100 s and a little more."""
    rows = [
        copy_row(c, 100.0 + c + i, phase=i * len(names) + p, benchmark=name, iteration=i + 1)
        for i in range(iterations)
        for p, name in enumerate(names)
        for c in range(copies)
    ]
    return stored(
        rows,
        reference_s=1000.0,
        categories={name: "int" if p % 2 else "fp" for p, name in enumerate(names)},
        copies=copies,
        iterations=iterations,
        **head,
    )


def table_of(text: str) -> list[str]:
    """The lines of the first table: between the first two blank lines."""
    return text.split("\n\n")[1].splitlines()


BUSY = f"busy before the start: {', '.join(['python pytest (pid 1, 88 % of a CPU)'] * 6)}"


def test_two_benchmarks_of_a_disturbed_run_fit_a_screen_of_24_lines_with_the_score_in_sight() -> (
    None
):
    run = replace(suite_run(["gups", "lu"], 3), warnings=(BUSY,), notes=())
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    print_summary(summarise(run), console, warned=run.warnings)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    lines = stream.getvalue().splitlines()
    table = lines[lines.index("") + 1 : lines.index("* the iteration that counts")]
    assert len(table) == 2 + 6
    assert len(lines) - len(table) <= 10
    assert [line for line in lines if "busy before" in line and len(line) <= 80]
    assert lines[-2].startswith("suite ratio ")
    assert lines[-1] == "next: `rater report 7`"
    in_a_file = shown(run, warned=run.warnings)
    assert " ".join(in_a_file.split()).count("python pytest (pid 1") == 6


@pytest.mark.parametrize("iterations", [1, 3])
def test_fourteen_benchmarks_fit_a_screen_on_a_terminal_with_a_line_for_each(
    iterations: int,
) -> None:
    names = [f"bench-{n}" for n in range(14)]
    run = replace(suite_run(names, iterations), warnings=(BUSY,), notes=())
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    print_summary(summarise(run), console, warned=run.warnings)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 23  # and one of what disturbed it
    assert [line.split()[0] for line in lines if line.startswith("bench-")] == names
    # Of three iterations the median one counts.
    assert {line.split()[1] for line in lines if line.startswith("bench-")} == {
        {1: "1", 3: "2"}[iterations]
    }
    assert ("all: `rater show 7 -v`" in stream.getvalue()) == (iterations == 3)
    assert not [line for line in lines if "busy before" in line]
    assert lines[-2].startswith("suite ratio ")
    assert shown(run, warned=run.warnings).count("bench-") == len(names)  # a pipe has no more
    every = table_of(shown(run, verbose=True))
    assert len([line for line in every if not line.startswith("*")]) == 2 + len(names) * iterations


def test_a_small_run_is_shown_like_this() -> None:
    run = replace(
        stored([copy_row(0, 4.0), copy_row(1, 5.0)], categories={"a": "int"}), warnings=(), notes=()
    )
    assert (
        shown(run)
        == """\
run 7: mini/a (test, base), homogeneous, 2 copies
2026-11-20 12:00 UTC, on h, layout balanced, memory local

benchmark  iter  bracket  ratio  median  slowest  which copy,  on CPU   score
                       s         copy s   copy s  CPU, lgroup       %  lost %
a             1     5.00   4.00    4.50     5.00      1, 1, 1     0.0    10.0

suite ratio 4.00 (int 4.00); 1.00 = one copy on the reference machine
next: `rater report 7`
"""
    )


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("iterations", [1, 3])
def test_fourteen_benchmarks_fit_without_a_wrapped_line(width: int, iterations: int) -> None:
    names = [f"bench-{n}" for n in range(13)] + [LONG]
    text = shown(suite_run(names, iterations), width, verbose=True)
    assert max(len(line) for line in text.splitlines()) <= width
    rows = table_of(text)[2:]
    assert len([row for row in rows if not row.startswith("*")]) == 14 * iterations


def test_numbers_are_right_aligned_under_their_units_and_long_names_are_whole() -> None:
    rows = table_of(shown(suite_run(["a", "bb"], 1)))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert [row.endswith(end) for row, end in zip(rows, ("score", "lost %"), strict=False)]
    assert LONG in shown(suite_run([LONG], 3, copies=16), 80)  # 25 characters


def test_the_selected_iteration_has_a_star_and_a_discarded_one_brackets() -> None:
    rows = [
        copy_row(c, 100.0 + i, phase=i, iteration=i + 1, counted=i > 0)
        for i in range(3)
        for c in range(2)
    ]
    text = shown(stored(rows, iterations=3, discard=1))
    marks = [re.findall(r"\(?\d[*)]?", row[3:20])[0] for row in table_of(text)[2:5]]
    assert marks == ["(1)", "2", "3*"]
    assert "* the iteration that counts; ( ) discarded" in text


def test_markup_in_names_and_reasons_is_shown_as_it_is() -> None:
    crashed = copy_row(
        1,
        0.5,
        benchmark="[bold]x[/]",
        status=CopyStatus.WRONG_OUTPUT,
        validity_detail="[red]line[/red] :smile: \x1b[2J",
    )
    text = shown(stored([copy_row(0, 1.0, benchmark="[bold]x[/]"), crashed]))
    assert "[bold]x[/]  " in text
    assert "wrong output: [red]line[/red] :smile: ?[2J" in " ".join(text.split())


def test_a_console_without_utf_8_gets_plain_ascii() -> None:
    names = ["caf\u00e9-" + "x" * 40]
    text = shown(suite_run(names, 1), 60, "latin-1")
    assert text.isascii()
    assert "caf?-xxx" in text and "~" in text


def test_no_color_and_files_have_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in shown(suite_run(["a"], 1))
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = Console(file=stream, width=80, force_terminal=True, color_system="standard")
    print_summary(summarise(suite_run(["a"], 1, status=RunStatus.FAILED)), console)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text_of(stream))


def test_failed_copies_are_listed_with_place_and_deed() -> None:
    crashed = copy_row(
        1, 0.5, status=CopyStatus.FAILED, exit_code=None, signal=11, run_dir="/tmp/r"
    )
    text = shown(
        stored([copy_row(0, 4.0), crashed], status=RunStatus.FAILED, reason="1 copy failed")
    )
    assert "failed: 1 copy failed" in text
    assert "no result where a copy failed: a (see below)" in text
    assert (
        "a, iteration 1, copy 1, CPU 1, lgroup 1, after 0.500 s: killed by SIGSEGV; files" in text
    )
    assert "no suite ratio: not complete: a" in text
    alike = [copy_row(c, 0.1, status=CopyStatus.FAILED, exit_code=127) for c in range(128)]
    assert "a, iteration 1, copies 0-127: exit status 127" in shown(stored(alike, copies=128))


def test_many_remarks_are_cut_with_their_number() -> None:
    run = replace(stored([copy_row(0, 1.0)], copies=1), notes=tuple(f"n{i}" for i in range(30)))
    text = shown(run)
    assert "note: n8" in text and "note: n9" not in text
    assert "and 21 more (--json has them all)" in text


def test_a_plain_command_has_copies_per_hour_and_no_word_of_a_suite() -> None:
    rows = [copy_row(c, 36.0) for c in range(2)]
    text = shown(stored(rows, reference_s=None, suite=None, size=None, tune=None))
    assert re.search(r"^a +1 +36\.0 +200 ", text, re.MULTILINE)
    assert "suite" not in text
    nowhere = [copy_row(c, 4.0, cpu=None, node=None) for c in range(2)]
    assert "0, -, -" in shown(stored(nowhere))


def test_a_staggered_run_shows_both_brackets_and_the_caveat() -> None:
    rows = [copy_row(0, 1.0), copy_row(1, 1.0, start_ns=3 * S)]
    text = shown(stored(rows, mode="staggered", stagger_ms=3000.0))
    assert re.search(r"^a +1 +4\.00 +none$", text, re.MULTILINE)
    assert "none: the copies never all ran at once" in text
    assert "3000 ms between starts" in text


def test_a_rotated_run_shows_its_own_table_and_where_its_score_comes_from() -> None:
    rows = [
        copy_row(0, 2.0, benchmark="a"),
        copy_row(0, 8.0, benchmark="b", step=1, start_ns=2 * S),
        copy_row(1, 5.0, benchmark="b"),
        copy_row(1, 4.0, benchmark="a", step=1, start_ns=5 * S),
    ]
    text = turned(rows)
    assert re.search(
        r"^a +7\.50 +3\.00 +33\.3 +2\.00 +2\.50 +3\.00 +3\.50 +4\.00 +1, 1, 1$", text, re.MULTILINE
    )
    assert "mean over copies 4.74, CV 5.6 % (ratio, geometric mean of each copy, proposed" in text
    assert "the lowest of them: copy 1, CPU 1, lgroup 1: 4.47" in text
    assert (
        "the first copy finished 1.0 s before the last (of 10 s); 5.0 % of core time was idle; "
        "1 run ended there"
    ) in " ".join(text.split())
    assert "over 2 copies, each by its median over 1 round" in text


def test_the_time_of_copies_that_are_not_bound_is_not_called_core_time() -> None:
    rows = [copy_row(c, 6.0 + 4 * c, cpu=None, node=None) for c in range(2)]
    text = " ".join(turned(rows).split())
    assert "20.0 % of the copies' time was idle; 1 run ended there" in text
    assert "core time" not in text


def test_a_rotated_table_says_for_how_many_copies_a_benchmark_counts_where_that_differs() -> None:
    rows = [copy_row(c, 2.0, benchmark="aba"[c]) for c in range(3)]
    run = stored(rows, copies=3, mode="rotated", order="rotated", increment=0)
    for width in (60, 80):
        text = shown(run, width)
        assert max(len(line) for line in text.splitlines()) <= width
        assert re.search(r"^a +2 +15\.0 +2\.00 ", text, re.MULTILINE)
        assert re.search(r"^b +1 +15\.0 +2\.00 ", text, re.MULTILINE)
    assert "copies: how many count for the benchmark, each by its median" in text
    assert "over 3 copies" not in text
    assert "a: only 2 of 3 copies have it in their queue (--increment 0)" in text


def test_a_benchmark_in_which_a_copy_failed_has_no_ratio_in_rotated_order_either() -> None:
    rows = [copy_row(0, 2.0), copy_row(1, 0.1, status=CopyStatus.FAILED, exit_code=3)]
    text = turned(rows)
    assert re.search(r"^a +1 +- +2\.00 ", text, re.MULTILINE)
    assert "a: copy 1, round 1: exit status 3" in text
    assert "no score over copies" in text


def test_interrupted_and_killed_runs_say_so() -> None:
    rows = [copy_row(0, 4.0), copy_row(1, 5.0)]
    run = stored(rows, benchmarks=("a", "b"), status=RunStatus.INTERRUPTED, reason="by SIGINT")
    text = shown(run)
    assert "interrupted: by SIGINT" in text
    assert "b: did not run" in text
    running = shown(replace(run, head=replace(run.head, status=RunStatus.RUNNING)))
    assert "not finished: it still runs\n" in running
    empty = replace(stored([], benchmarks=("a",)), brackets=())
    assert "a: did not run" in shown(empty)


def test_after_a_run_the_next_commands_are_named_and_in_show_they_are_not() -> None:
    run = suite_run(["a", "b"], 3)
    assert "specrate" not in shown(run).lower()  # ours are never called so
    assert shown(run).endswith("\nnext: `rater report 7`\n")
    first = shown(run, after_run=False)
    assert "rater report" not in first
    begins = [line[:11] for line in first.splitlines()[:5]]
    assert begins == ["run 7: mini", "2026-11-20 ", "suite ratio", "", "benchmark  "]


def test_times_below_ten_milliseconds_keep_three_digits_beside_any_others() -> None:
    assert seconds_columns([0.000912, 0.000964]) == [["0.000912", "0.000964"]]
    assert seconds_columns([0.000912, 150.0], [None, 140.0]) == [
        ["0.000912", "150.000"],
        ["-", "140.000"],
    ]
    rows = [copy_row(c, 0.000912 + c * 4e-6, benchmark=LONG) for c in range(2)]
    text = shown(stored(rows), 80)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "0.000916" in text and "0.000914" in text  # slowest, median


@pytest.mark.parametrize("width", [60, 80])
def test_a_table_with_wide_names_is_aligned_and_not_wrapped(width: int) -> None:
    text = shown(suite_run(["\u6027\u80fd" * 15, "b"], 1), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    assert len({cell_len(row) for row in table_of(text)}) == 1


def test_a_run_of_some_benchmarks_of_a_suite_is_told_from_the_whole() -> None:
    text = shown(suite_run(["lu", "sort", "rays"], 1))
    assert text.startswith("run 7: mini (test, base), 3 benchmarks, homogeneous, 2 copies\n")


def text(run: StoredRun) -> str:
    return printed_by(lambda printer: print_counters(run_counts(run), printer))


def test_rates_stack_and_cost_are_shown() -> None:
    shown = text(counted_run())
    assert "front end         0.100    5.0" in shown
    assert "remote dram" in shown
    assert "counting took 60 us of rater's CPU time a copy run, outside of its time" in shown


def test_what_limits_the_numbers_is_said() -> None:
    run = counted_run(("pipeline",), running=0.5, end=":u")
    shown = " ".join(text(run).split())
    assert "not counted, and in `other`: translation, l1, l2, l3, dram" in shown
    assert "a base: intel-skx:pipeline:u was counted for 50.0 % of the time and scaled" in shown
    assert "user mode only" in shown
    assert "nothing was counted in this run; `rater doctor counters` shows" in text(stored([]))


def test_json_has_rates_stack_and_groups() -> None:
    document: Any = counters_document(run_counts(counted_run()))
    [one] = document["benchmarks"]
    assert (one["cpi"], one["ipc"], one["ghz"]) == (2.0, 0.5, 3.0)
    assert one["stack"]["parts"][0] == {"name": "base", "cycles": 0.3}
    assert one["metrics"]["remote_dram_share"] == 0.25
    assert one["groups"][0]["name"] == "intel-skx:pipeline"


PUS = tuple(MachinePU(cpu, cpu, 0, cpu // 2, 0) for cpu in range(4))
# Two copies on CPUs 0 and 2; somebody computes on CPU 2, and on CPU 3 beside it.
CPUS = CpuReadings(
    0,
    (
        CpuReading(
            0,
            9 * CPU_USE_S,
            CPU_USE_S // 10,
            0,
            CPU_USE_S // 10,
            0,
            CPU_USE_S // 2,
            3_000_000,
            0,
            12_000,
        ),
        CpuReading(1, 0, 0, 0, 0, 0, 10 * CPU_USE_S, 1_200_000, 0, 40),
        CpuReading(2, 9 * CPU_USE_S, CPU_USE_S, 0, 0, CPU_USE_S // 5, 0, 2_400_000, 3, 2_000),
        CpuReading(3, 4 * CPU_USE_S, 0, 0, 0, 0, 6 * CPU_USE_S, None, 0, 400),
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


def store_run(store: Store) -> int:
    """Two copies on two lgroups; each computes for 9 s of 10."""
    placed = tuple(PlacedCopy(n, (2 * n,), 2 * n, 2 * n, 0, n, 0, "none", ()) for n in range(2))
    run = replace(run_of(2, 2), placements=placed)
    number = store.create_run(run, HOST, [], PUS, GONE)
    store.append(number, phase())
    for copy in range(2):
        store.append(number, replace(ended(copy, 10.0), user_ns=9 * CPU_USE_S, last_cpu=2 * copy))
    store.append(number, CPUS)
    store.append(number, MACHINE, over(0.0, 10.0), RunEnded(RunStatus.COMPLETE, None))
    return number


def test_readings_come_back_as_they_were_and_once_when_tried_again(store: Store) -> None:
    number = store_run(store)
    store.append(number, CPUS, MACHINE)
    run = store.load(number)
    assert run.cpu_readings == (CPUS,)
    assert run.machine_readings == (MACHINE,)


def test_readings_go_with_their_run(store: Store) -> None:
    remove_sweeps(store, (), [store_run(store)])
    for table in ("cpu_reading", "phase_reading"):
        assert rows(store, f"SELECT count(*) FROM {table}") == [(0,)]


def test_readings_of_a_torn_attempt_are_kept_but_do_not_count(store: Store) -> None:
    run = store.load(store_run(store))
    torn = replace(run, brackets=tuple(replace(it, torn=True) for it in run.brackets))
    assert torn.without_torn().cpu_readings == ()
    assert torn.without_torn().machine_readings == ()
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE bracket SET torn = 1")
    assert query_file(store, "foreign_load") == query_file(store, "steal") == []


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


def test_copies_that_may_run_anywhere_have_no_cpu_of_their_own_to_ask_for(store: Store) -> None:
    number = store.create_run(replace(run_of(2, bound=False), uuid="v"), HOST, [], PUS, GONE)
    store.append(number, phase(), ended(0, 10.0), CPUS, MACHINE, over(0.0, 10.0))
    assert query_file(store, "foreign_load") == []


# -- shown -----------------------------------------------------------------------------------------


def test_a_line_names_the_cpu_and_how_much(store: Store) -> None:
    run = store.load(store_run(store))
    assert notable_text(run_counters(run).notable, 7) == (
        "while copies ran: other work took 10.0 % of CPU 2 (gups, iteration 1); the hypervisor "
        "took 2.0 % of CPU 2 (gups, iteration 1); CPU 2 was throttled 3 times, too hot (gups, "
        "iteration 1) (`rater show 7 --cpus`)"
    )


def test_a_line_tells_how_many_cpus_more_and_what_the_machine_lacked() -> None:
    copies = [computed(n, 5.0) for n in range(3)]
    rows = [reading(n, 6.0 + n) for n in range(3)]
    run = read_run(copies, *rows, pswpout=1, pressure_memory_some_ns=CPU_USE_S)
    assert notable_text(run_counters(run).notable, 7) == (
        "while copies ran: other work took 30.0 % of CPU 2 (a, iteration 1), and up to as "
        "much of 2 other CPUs; 1 page swapped (a, iteration 1); tasks waited for memory 10.0 % of "
        "the time (a, iteration 1) (`rater show 7 --cpus`)"
    )
    assert notable_text((), 7) is None


def test_cpus_stand_by_lgroup_with_and_without_copies_and_the_worst_one_by_one(
    store: Store,
) -> None:
    stream = io.StringIO()
    run = store.load(store_run(store))
    print_cpus(run_counters(run), Printer(Console(file=stream, width=80)))
    assert stream.getvalue() == EXPECTED


EXPECTED = """\

lgroup  copies  CPUs   busy  foreign  most  steal  most  irq   MHz
                          %        %     %      %     %    %   min  mean   max
     0  yes     0      92.0      1.0   1.0    0.0   0.0  1.0  3000  3000  3000
     1  yes     2     100.0     10.0  10.0    2.0   2.0  0.0  2400  2400  2400
     0  none    1       0.0      0.0   0.0    0.0   0.0  0.0  1200  1200  1200
     1  none    3      40.0     40.0  40.0    0.0   0.0  0.0     -     -     -
of all CPUs and phases together; foreign: work of others than copies, rater's
    own included; most: of one CPU in one phase

most foreign load, steal and interrupts, CPUs of copies first:
CPU lgroup copy benchmark iter  busy foreign steal irq interrupts  MHz too hot
                                   %       %     %   %         /s        times
  2      1    1 gups         1 100.0    10.0   2.0 0.0        200 2400       3
  0      0    0 gups         1  92.0     1.0   0.0 1.0       1200 3000       0
  3      1    - gups         1  40.0    40.0   0.0 0.0         40    -       0

the whole machine: some task waited for memory 0.0 %, io 1.0 % of the time; 1
    major fault, 7 pages moved
"""


def test_a_run_without_readings_says_why() -> None:
    stream = io.StringIO()
    run = replace(read_run([computed(0, 1.0)]), cpu_readings=(), machine_readings=())
    print_cpus(run_counters(run), Printer(Console(file=stream, width=100)))
    assert stream.getvalue().strip() == (
        "what the CPUs did was not read (--proof off, an older rater, or a run of another tool)"
    )


def test_show_has_the_line_and_with_cpus_the_tables(store: Store, rater: Rater) -> None:
    store_run(store)
    status, brief, _ = rater("show")
    assert status == 0
    assert "other work took 10.0 % of CPU 2" in brief
    assert "foreign" not in brief
    assert "foreign" in rater("show", "--cpus")[1]
    document = json.loads(rater("show", "--json")[1])
    matters = [one["matter"] for one in document["notable"]]
    assert matters == ["foreign load", "steal", "throttled"]
    assert "readings" not in document
    readings = json.loads(rater("show", "--cpus", "--json")[1])["readings"]
    assert [use["cpu"] for use in readings["cpus"]] == [0, 1, 2, 3]
    assert readings["machine"][0]["pressure"] == {"cpu": None, "memory": 0.0, "io": 0.01}


def test_a_real_run_is_read_and_one_without_proof_is_not(store: Store, rater: Rater) -> None:
    for words in ((), ("--proof", "off")):
        options = ("--quiet", "--copies", "1", "--preflight", "off")
        assert rater("run", *options, *words, "--", "sleep", "0.05")[0] == 0
    read, unread = (store.load(head.run) for head in store.runs())
    [use] = [use for use in run_counters(read).cpus if use.copies == (0,)]
    assert use.elapsed_s >= 0.05
    assert (unread.cpu_readings, unread.machine_readings) == ((), ())
