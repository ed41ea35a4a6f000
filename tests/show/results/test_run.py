import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from rater.analysis.results.score import summarise
from rater.record.run import CopyStatus, RunStatus
from rater.record.stored import StoredCopy, StoredRun
from rater.show.console import seconds_columns
from rater.show.results.run import print_summary
from tests.support.example_runs import S, copy_row, stored

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
    print_summary(summarise(run), console, brief=True, warned=run.warnings)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    lines = stream.getvalue().splitlines()
    assert len(lines) + 6 <= 23  # placement, other work (2), blank, disturbed, next
    assert [line for line in lines if "busy before" in line and len(line) <= 80]
    assert lines[-2].startswith("suite ratio ")
    assert lines[-1].startswith("Stored as run 7. Try: ")
    in_a_file = shown(run, brief=True, warned=run.warnings)
    assert " ".join(in_a_file.split()).count("python pytest (pid 1") == 6


@pytest.mark.parametrize("iterations", [1, 3])
def test_fourteen_benchmarks_fit_a_screen_on_a_terminal_with_a_line_for_each(
    iterations: int,
) -> None:
    names = [f"bench-{n}" for n in range(14)]
    run = replace(suite_run(names, iterations), warnings=(BUSY,), notes=())
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    print_summary(summarise(run), console, brief=True, warned=run.warnings)
    stream = console.file
    assert isinstance(stream, io.StringIO)
    lines = stream.getvalue().splitlines()
    assert len(lines) + 2 <= 23  # disturbed, next
    assert [line.split()[0] for line in lines if line.startswith("bench-")] == names
    # Of three iterations the median one counts.
    assert {line.split()[1] for line in lines if line.startswith("bench-")} == {
        {1: "1", 3: "2"}[iterations]
    }
    assert ("all: rater show 7" in stream.getvalue()) == (iterations == 3)
    assert not [line for line in lines if "busy before" in line]
    assert lines[-2].startswith("suite ratio ")
    in_a_file = shown(run, brief=True, warned=run.warnings)
    assert in_a_file.count("bench-") == len(names)
    assert len(table_of(in_a_file)) >= 2 + len(names) * iterations


def test_a_small_run_is_shown_like_this() -> None:
    run = replace(
        stored([copy_row(0, 4.0), copy_row(1, 5.0)], categories={"a": "int"}), warnings=(), notes=()
    )
    assert (
        shown(run)
        == """\
run 7: mini/a (test, base), homogeneous, 2 copies
2026-11-20 12:00 UTC, on h, layout balanced, memory local

benchmark  iter  bracket  ratio  median  slowest  which copy,   score
                       s         copy s   copy s  CPU, lgroup  lost %
a             1     5.00   4.00    4.50     5.00      1, 1, 1    10.0

suite ratio 4.00 (int 4.00), the geometric mean over 1 benchmark

Stored as run 7. Try: rater report 7, rater plot 7, rater show 7
"""
    )


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("iterations", [1, 3])
def test_fourteen_benchmarks_fit_without_a_wrapped_line(width: int, iterations: int) -> None:
    names = [f"bench-{n}" for n in range(13)] + [LONG]
    text = shown(suite_run(names, iterations), width)
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
        "the first copy was done 1.0 s before the end (10 s in all); 5.0 % of core time over the "
        "whole run was idle in it, 1 run ended in it"
    ) in " ".join(text.split())
    assert "over 2 copies, each by its median over 1 round" in text


def test_the_time_of_copies_that_are_not_bound_is_not_called_core_time() -> None:
    rows = [copy_row(c, 6.0 + 4 * c, cpu=None, node=None) for c in range(2)]
    text = " ".join(turned(rows).split())
    assert "20.0 % of the copies' time over the whole run was idle in it" in text
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
    assert "Stored as run 7. Try: rater report 7" in shown(run)
    assert "rater report" not in shown(run, after_run=False)


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
