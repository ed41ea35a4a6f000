"""Screens of steady runs, of metrics, and of a steady run beside one with a barrier."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.compare.barrier import compare_with_barrier
from rater.analysis.results.score import summarise
from rater.record.run import CopyStatus, MetricUsed, RunStatus
from rater.record.stored import StoredCopy, StoredRun
from tests.support.example_runs import copy_row, in_turn, stored, windowed
from tests.support.printed import in_words, printed

LONG = "sparse-solver-large-input"  # 25 characters


def shown(
    run: StoredRun, width: int = 80, *, beside: StoredRun | None = None, after_run: bool = False
) -> str:
    run = replace(run, warnings=tuple(w for w in run.warnings if w != "w"), notes=())
    pair = None
    if beside is not None:
        pair = compare_with_barrier(summarise(run), summarise(beside))
    return printed(summarise(run), width, after_run=after_run, beside=pair)


def steady(
    names: Sequence[str] = ("lu",), copies: int = 2, nodes: int = 1, **options: Any
) -> StoredRun:
    """Runs of 2 s, those of the last lgroup and of the last copy 10 % slower; window 4 to 44 s."""
    rows: list[StoredCopy] = []
    for phase, name in enumerate(names):
        for copy in range(copies):
            node = copy * nodes // copies
            seconds = (
                2.0
                * (1.1 if node and node == nodes - 1 else 1)
                * (1.1 if copy == copies - 1 else 1)
            )
            rows += in_turn(
                copy, [seconds] * 23, begin_s=60.0 * phase, phase=phase, benchmark=name, node=node
            )
    return windowed(rows, 4.0, 44.0, **options)


def barrier(names: Sequence[str] = ("lu",), copies: int = 2, **options: Any) -> StoredRun:
    rows = [
        copy_row(copy, 2.2 if copy == copies - 1 else 2.0, phase=phase, benchmark=name, node=0)
        for phase, name in enumerate(names)
        for copy in range(copies)
    ]
    return stored(rows, copies=copies, run=5, **options)


def test_a_steady_run_of_two_copies_is_shown_like_this() -> None:
    screen = shown(steady(), beside=barrier(), after_run=True)
    head, table, sides, _ = (part.splitlines() for part in screen.split("\n\n"))
    assert head[0] == "run 7: mini/lu (test, base), steady, 2 copies, warm-up 4 s, window 40 s"
    assert table[:3] == [
        "benchmark  ratio  runs in  whole  median  copies  slowest  which copy,     2nd",
        "                   window   runs   run s    CV %   copy %  CPU, lgroup  half %",
        "lu          9.55     38.2     38    2.00     4.8     -4.8      1, 1, 0    +0.0",
    ]
    assert table[5:] == [
        "the window: steady: the halves do not differ (95 % interval +0.0 to +0.0)",
        "copies ran 100.0 % of the window; 0.0 s (median) between two runs of a copy",
    ]
    assert sides[:4] == [
        "run 7, steady, beside run 5, homogeneous:",
        "benchmark  steady  homogeneous  steady   score  steady  homogeneous",
        "            ratio        ratio    is %  lost %   run s       copy s",
        "lu           9.55         9.09    +5.0     4.5    2.00         2.10",
    ]
    assert in_words("\n".join(sides[4:])) == (
        "Steady completed 5.0 % more per hour than homogeneous. Waiting for the slowest copy cost "
        "homogeneous 4.5 % of its score; without that wait, at the same pace, it would have "
        "completed 4.8 % more. A run took 4.8 % less time in steady mode (medians)."
    )


@pytest.mark.slow
@pytest.mark.parametrize(("copies", "iterations"), [(128, 1), (8, 3)])
def test_fourteen_windows_of_many_copies_fit(copies: int, iterations: int) -> None:
    names = [f"bench-{n}" for n in range(13)] + [LONG]
    run = steady(names, copies, 4, reference_s=300.0)
    rows = [
        replace(row, phase=row.phase + 14 * i, iteration=i + 1)
        for i in range(iterations)
        for row in run.copies
    ]
    summary = summarise(windowed(rows, 4.0, 44.0, iterations=iterations, reference_s=300.0))
    other = compare_with_barrier(summary, summarise(barrier(names, copies)))
    for width in (60, 80, 120):
        text = printed(summary, width, beside=other)
        assert max(len(line) for line in text.splitlines()) <= width
        table = text.split("\n\n")[1].splitlines()
        assert len([line for line in table if line.startswith("bench-")]) == 13
        assert f"all {14 * iterations} windows were steady: halves within 0.0 %" in text
        slow = f"below the mean of all in {14 * iterations} of {14 * iterations} windows"
        assert re.search(rf"copies of node 3: their rates are \S+ % {slow}", in_words(text))


def test_one_window_of_several_lgroups_has_a_table_of_them() -> None:
    text = shown(steady(copies=8, nodes=2))
    assert re.search(r"^lgroup +copies +/hour +/hour +slowdown$", text, re.MULTILINE)
    assert re.search(r"^ +0 +4 +7200 +1800 +0\.944$", text, re.MULTILINE)
    assert re.search(r"^ +1 +4 +6397 +1599 +1\.063$", text, re.MULTILINE)


def drifting() -> StoredRun:
    rows: list[StoredCopy] = []
    for phase, (name, second) in enumerate([("calm", 1.0), ("tired", 1.2), ("long", 1.0)]):
        for copy in range(2):
            seconds = [1.0] * 22 + [second] * 20 if name != "long" else [15.0] * 3
            rows += in_turn(copy, seconds, begin_s=99.0 * phase, phase=phase, benchmark=name)
    return windowed(rows, 2.0, 42.0)


def test_every_window_that_was_not_steady_is_named_with_what_would_mend_it() -> None:
    text = in_words(shown(drifting()))
    assert "1 of 3 windows were steady: halves within 0.0 %" in text
    assert re.search(r"tired: drifting: the second half was 16\.\d % slower \(95 % interval", text)
    assert "cannot tell whether long ran steadily: some copy has fewer than 2 whole runs" in text
    warned = (
        "The warm-up of 2 s was shorter than the longest run (long): the copies still ran in step "
        "and rates are too high, by 1 to 8 % as a rule; run it with --warmup 15"
    )
    assert warned in text
    assert text.index(warned) < text.index("windows were steady")
    assert "--window 270 should be long enough to tell (long needs it most)" in text


def test_one_window_that_cannot_tell_says_why() -> None:
    text = in_words(shown(windowed(in_turn(0, [2.0] * 4), 2.0, 6.0)))
    assert (
        "the window: cannot tell whether it was steady: fewer than 2 whole runs of copy 0" in text
    )
    text = in_words(shown(windowed(in_turn(0, [2.0] * 7), 2.0, 10.0)))
    assert "and 2 runs in a half are too few to tell" in text


def test_a_failed_run_is_named_and_has_neither_result_nor_verdict() -> None:
    run = steady()
    rows = list(run.copies)
    for step in (7, 8, 30):
        rows[step] = replace(rows[step], status=CopyStatus.FAILED, exit_code=3)
    text = shown(replace(run, copies=tuple(rows)))
    assert re.search(r"^lu +- ", text, re.MULTILINE)
    assert "no result where a copy failed: lu (see below)" in text
    assert "lu, iteration 1, copies 0-1, 3 runs: exit status 3" in text
    assert "the window:" not in text and "--window" not in text


def test_an_interrupted_window_is_shown_with_what_there_is() -> None:
    run = steady(status=RunStatus.INTERRUPTED, reason="by SIGINT")
    cut = [replace(b, window_start_ns=None, window_finish_ns=None) for b in run.brackets]
    text = shown(replace(run, brackets=tuple(cut)))
    assert "interrupted: by SIGINT" in text
    text = in_words(text)
    assert "lu: no complete window: stopped or suspended before all runs in it had ended" in text


def gapped(names: Sequence[str] = ("lu",), gap_s: float = 1.0) -> StoredRun:
    """Runs of 1 s, those of the last benchmark after gaps."""
    rows = []
    for phase, name in enumerate(names):
        every_s = 1.0 + (gap_s if name == names[-1] else 0.001)
        rows += [
            copy_row(c, 1.0, step=s, start_ns=round((100 * phase + s * every_s) * 1e9),
                     phase=phase, benchmark=name, node=0)
            for c in range(2) for s in range(45)
        ]  # fmt: skip
    return windowed(rows, 4.0, 44.0)


def test_a_window_in_which_copies_ran_too_little_says_why_and_what_to_do() -> None:
    text = in_words(shown(gapped()))
    assert (
        "copies ran 50.0 % of the window; 1.0 s (median) between two runs of a copy: the rate is "
        "lower by rater's own start of the next run and by set-ups: take longer runs (a larger "
        "--size)"
    ) in text
    command = replace(gapped(), head=replace(gapped().head, suite=None, size=None))
    text = in_words(shown(command))
    assert "take longer runs" in text and "--size" not in text


def test_of_several_windows_the_one_in_which_copies_ran_least_is_named_once() -> None:
    text = in_words(shown(gapped(("calm", "gappy"))))
    assert text.count("copies ran") == 1
    assert (
        "copies ran at least 50.0 % of each window (least: gappy; 1.0 s (median) between two runs "
        "of a copy): the rate is lower"
    ) in text
    text = in_words(shown(gapped(("calm", "calmer"), gap_s=0.01)))
    assert "copies ran at least 99.0 % of each window (least: calmer; 10 ms (median)" in text
    assert "the rate is lower" not in text


def test_beside_a_barrier_what_steady_mode_itself_lost_is_not_laid_on_the_program() -> None:
    text = in_words(shown(gapped(), beside=barrier()))
    alone = in_words(shown(gapped()))
    assert "no complete homogeneous run of the same copies is stored to compare with" in alone
    assert "`rater show 7` shows both" in alone
    lost = (
        "nothing ran: rater's own start of the next run and set-ups, not the program, lowered "
        "steady's rate."
    )
    assert f"In 50.0 % of the copies' time in its window {lost}" in text
    names = ("calm", "gappy")
    text = in_words(shown(gapped(names), beside=barrier(names)))
    assert f"In up to 50.0 % of the copies' time in its window (gappy) {lost}" in text
    assert lost not in in_words(shown(steady(), beside=barrier()))


def mixed(copies: int = 2, **options: Any) -> StoredRun:
    rows: list[StoredCopy] = []
    for copy in range(copies):
        names = "ab" if copy % 2 == 0 else "ba"
        seconds = [1.0 if names[step % 2] == "a" else 3.0 for step in range(24)]
        rows += in_turn(copy, seconds, names=names, node=copy * 2 // copies)
    return windowed(rows, 4.0, 44.0, order="rotated", benchmarks=("a", "b"), **options)


@pytest.mark.parametrize("copies", [2, 128])
def test_a_mix_is_shown_with_its_own_ratio(copies: int) -> None:
    text = shown(mixed(copies))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.startswith("run 7: mini (test, base), 2 benchmarks, steady in rotated order")
    ratio = 10 * copies // 2
    assert f"mix ratio {ratio}.0: reference seconds of work per second" in in_words(text) or (
        f"mix ratio {ratio}: reference seconds of work per second" in in_words(text)
    )
    assert "the window: steady" in text
    assert "no complete rotated run of the same copies" in in_words(text)


def test_a_mix_beside_a_rotated_run_is_compared_by_work() -> None:
    rows = [*in_turn(0, [1.0, 3.0], names="ab"), *in_turn(1, [3.0, 2.0], names="ba")]
    other = stored(rows, run=5, mode="rotated", order="rotated", benchmarks=("a", "b"))
    text = in_words(shown(mixed(), beside=other))
    assert "run 7, steady, beside run 5, rotated:" in text
    assert (
        "Steady completed 25.0 % more of the mix's work per second than rotated (10.00 against "
        "8.00 reference seconds per second). In rotated mode copies that were done early waited "
        "for 10.0 % of the copies' time."
    ) in text


def test_a_mix_that_lost_time_between_its_runs_says_so_beside_a_rotated_run() -> None:
    rows = [
        copy_row(c, 1.0, step=s, start_ns=round(s * 2e9), benchmark="ab"[(c + s) % 2], node=0)
        for c in range(2)
        for s in range(24)
    ]
    other = stored(
        [*in_turn(0, [1.0, 1.0], names="ab"), *in_turn(1, [1.0, 1.0], names="ba")],
        run=5, mode="rotated", order="rotated", benchmarks=("a", "b"),
    )  # fmt: skip
    run = windowed(rows, 4.0, 44.0, order="rotated", benchmarks=("a", "b"))
    text = in_words(shown(run, beside=other))
    assert "copies ran 50.0 % of the window; 1.0 s (median) between two runs of a copy" in text
    assert "In 50.0 % of the copies' time in its window nothing ran: rater's own start" in text


def test_a_drift_can_be_of_the_gaps_where_copies_ran_too_little() -> None:
    rows = [
        copy_row(c, 0.1, step=s, start_ns=round((s * 0.2 + max(0, s - 120) * 0.1) * 1e9))
        for c in range(2)
        for s in range(200)
    ]
    text = in_words(shown(windowed(rows, 4.0, 44.0)))
    assert "the window: drifting: the second half was 3" in text
    assert "by set-ups, and its halves can differ by that too: take longer runs" in text


def test_equal_rates_are_no_more_and_no_less_and_what_is_not_alike_has_a_warning() -> None:
    rows = [row for c in range(2) for row in in_turn(c, [2.0] * 24, node=0)]
    other = stored([copy_row(c, 2.0, node=0) for c in range(2)], run=5)
    text = in_words(shown(windowed(rows, 4.0, 44.0), beside=other))
    assert "Steady completed no more and no less per hour than homogeneous." in text
    assert "A run took the same time in steady mode" in text
    rested = (json.dumps({"environment": [], "cooldown_s": rest}) for rest in (0.0, 5.0))
    here, there = steady(request=next(rested)), barrier(request=next(rested))
    text = in_words(shown(here, beside=there))
    assert "they differ in more than the mode: run 5 has --cooldown 5, not none" in text


# -- suites with benchmarks left out --------------------------------------------------------------


def test_a_suite_ratio_names_what_was_left_out_or_the_few_that_were_asked_for() -> None:
    run = replace(barrier(("a", "b")), warnings=("left out: ffmpeg: not installed",))
    assert ", over 2 benchmarks (left out: ffmpeg); 1.00 = one copy" in in_words(shown(run))
    run = barrier(("a", "b"), request='{"suites": ["mini/a", "mini/b"]}')
    assert ", over 2 benchmarks of the suite: a, b;" in in_words(shown(run))
    whole = barrier(("a", "b"), request='{"suites": ["./my/mini.toml"]}')
    assert ", over" not in shown(whole)


# -- metrics --------------------------------------------------------------------------------------


def reporting(copies: int, nodes: int, iterations: int = 1) -> StoredRun:
    rows = [
        replace(
            copy_row(
                c, 10.0, phase=i, iteration=i + 1, benchmark="stream", node=c * nodes // copies
            ),
            metrics=(("triad", 12.5 - c / copies), ("load latency", 95.31 + c / copies)),
        )
        for i in range(iterations)
        for c in range(copies)
    ]
    run = stored(rows, copies=copies, iterations=iterations, suite="memory")
    metrics = (
        MetricUsed("triad", "GB/s", "higher", "sum"),
        MetricUsed("load latency", "ns", "lower", "mean"),
    )
    return replace(run, benchmarks=(replace(run.benchmarks[0], metrics=metrics),))


def test_metrics_are_a_table_under_the_results() -> None:
    text = shown(reporting(2, 1))
    assert re.search(r"^stream +triad +24\.5 GB/s sum .*12\.0 +12\.2 +12\.5 +1, 1, 0$", text, re.M)
    assert re.search(r"^ +load latency +95\.6 ns +mean .*95\.3 +95\.6 +95\.8 +1, 1, 0$", text, re.M)
    text = shown(reporting(4, 2))  # lgroups have a column each
    assert re.search(r"^copies of node +0 +1$", text, re.MULTILINE)
    assert re.search(r"^stream triad, GB/s +24\.\d+ +23\.\d+$", text, re.MULTILINE)
    run = reporting(2, 1)
    rows = (run.copies[0], replace(run.copies[1], metrics=()))
    text = shown(replace(run, copies=rows))
    assert "stream, triad: no value: 1 of 2 copies have none" in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize(("copies", "nodes"), [(1, 1), (2, 2), (128, 8), (128, 64)])
def test_metrics_of_many_copies_and_lgroups_fit(width: int, copies: int, nodes: int) -> None:
    text = shown(reporting(copies, nodes, 3), width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "triad" in text and "GB/s" in text
