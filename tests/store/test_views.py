"""What a person can ask the database without our code gives what our code says."""

import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rater.analysis.results.score import summarise
from rater.files import folder
from rater.record.events import Event, OutputChecked, RunEnded
from rater.record.run import BenchmarkUsed, CopyStatus, MetricUsed, Run, RunStatus, Validity
from rater.store.store import Store
from tests.support.example_events import ended, over, phase, run_of
from tests.support.observations import observed, read
from tests.support.stored_runs import GONE, HOST, PUS, query_file

QUERIES = sorted((folder("db") / "queries").glob("*.sql"))


def add_run(store: Store, times_s: list[float], *, uuid: str = "u", stagger_ms: float = 0.0) -> int:
    """One benchmark with a reference of 10 s, once, copies alternating between two lgroups."""
    run = replace(
        run_of(len(times_s), 2),
        uuid=uuid,
        mode="staggered" if stagger_ms else "homogeneous",
        stagger_ms=stagger_ms,
        benchmarks=(BenchmarkUsed("gups", "int", "gups", 10.0, None, None, None),),
    )
    number = store.create_run(run, HOST, [("governor", f"of {uuid}")], PUS, GONE)
    store.append(number, phase())
    for copy, seconds in enumerate(times_s):
        start_s = copy * stagger_ms / 1e3
        store.append(number, ended(copy, start_s + seconds, start_s=start_s))
    last_s = max(copy * stagger_ms / 1e3 + seconds for copy, seconds in enumerate(times_s))
    store.append(number, over(0.0, last_s))
    for copy in range(len(times_s)):
        store.append(number, OutputChecked(0, "gups", 1, copy, 0, Validity.VALID, None))
    store.append(number, RunEnded(RunStatus.COMPLETE, None))
    return number


def ask(store: Store, query: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def result(store: Store, number: int, view: str = "bracket_result") -> dict[str, object]:
    (row,) = ask(store, f"SELECT * FROM {view} WHERE run_id = {number}")
    return row


def run_with(store: Store, run: Run, *events: Event) -> int:
    """A run of which no more is known than these events."""
    number = store.create_run(run, HOST, (), PUS, GONE)
    store.append(number, *events)
    return number


def test_bracket_result_has_ratio_median_slowest_copy_and_score_lost(store: Store) -> None:
    number = add_run(store, [2.0, 4.0, 3.0, 8.0])
    row = result(store, number)
    assert (row["benchmark"], row["iteration"], row["copies"]) == ("gups", 1, 4)
    assert (row["bracket_s"], row["ratio"]) == (8.0, 4 * 10 / 8)
    assert (row["median_copy_s"], row["copies_per_hour"]) == (3.5, 4 * 3600 / 8)
    assert (row["slowest_copy"], row["slowest_cpu"], row["slowest_node"]) == (3, 3, 1)
    assert row["score_lost"] == pytest.approx(1 - 3.5 / 8)


@pytest.mark.parametrize(
    ("times_s", "stagger_ms"),
    [([2.0, 4.0, 3.0, 8.0], 0.0), ([2.0, 2.5, 1.5], 250.0), ([7.0], 0.0), ([1.0, 1.0], 0.0)],
)
def test_bracket_result_says_what_the_analysis_says(
    store: Store, times_s: list[float], stagger_ms: float
) -> None:
    number = add_run(store, times_s, stagger_ms=stagger_ms)
    row = result(store, number)
    (benchmark,) = summarise(store.load(number)).benchmarks
    (iteration,) = benchmark.iterations
    assert iteration.slowest is not None
    assert row["bracket_s"] == iteration.bracket_s
    assert row["ratio"] == pytest.approx(iteration.ratio)
    assert row["copies_per_hour"] == pytest.approx(iteration.per_hour)
    assert row["median_copy_s"] == pytest.approx(iteration.median_copy_s)
    assert row["score_lost"] == pytest.approx(iteration.score_lost)
    assert row["slowest_copy"] == iteration.slowest.copy


@pytest.mark.parametrize(
    ("finishes_s", "bracket_s"), [([2.0, 4.0], 3.5), ([2.0], None)], ids=["all", "one missing"]
)
def test_a_bracket_that_was_never_closed_is_that_of_its_copies_when_all_are_there(
    store: Store, finishes_s: list[float], bracket_s: float | None
) -> None:
    copies = (ended(copy, end_s, start_s=0.5 + copy) for copy, end_s in enumerate(finishes_s))
    number = run_with(store, run_of(2), phase(), *copies)
    row = result(store, number)
    (benchmark,) = summarise(store.load(number)).benchmarks
    assert row["bracket_s"] == benchmark.iterations[0].bracket_s == bracket_s
    assert (row["ratio"], row["score_lost"]) == (None, None)  # nobody checked the outputs


def test_a_bracket_of_zero_seconds_has_no_ratio(store: Store) -> None:
    document = observed({"elapsed_s": 0, "start_s": 5.0}, copies=1)
    number, _ = store.add(read(document))
    row = result(store, number)
    assert (row["bracket_s"], row["ratio"], row["copies_per_hour"]) == (0.0, None, None)
    assert row["score_lost"] is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda copy: [replace(ended(copy, 2.0), status=CopyStatus.FAILED)],
        lambda copy: [ended(copy, 2.0), OutputChecked(0, "gups", 1, copy, 0, Validity.INVALID, "")],
        lambda _: [],
        lambda copy: [ended(copy, 2.0)],  # nobody looked at its output
    ],
)
def test_there_is_no_ratio_where_a_copy_failed_or_is_missing(store: Store, spoil: object) -> None:
    assert callable(spoil)
    checked = OutputChecked(0, "gups", 1, 0, 0, Validity.NOT_CHECKED, None)
    events = (phase(), ended(0, 1.0), checked, *spoil(1), over(0.0, 2.0))
    row = result(store, run_with(store, run_of(2), *events))
    assert row["bracket_s"] == 2.0
    assert (row["ratio"], row["score_lost"], row["copies_per_hour"]) == (None, None, None)


def test_where_no_copy_is_good_there_is_no_slowest_one(store: Store) -> None:
    failed = replace(ended(0, 1.0), status=CopyStatus.FAILED)
    row = result(store, run_with(store, run_of(1), phase(), failed, over(0.0, 1.0)))
    assert (row["good_copies"], row["slowest_copy"], row["median_copy_s"]) == (0, None, None)


def test_without_start_times_the_slowest_copy_stands_for_the_bracket(store: Store) -> None:
    document = observed({"elapsed_s": 2}, {"copy": 4, "elapsed_s": 4}, copies=9)
    number, _ = store.add(read(document))
    row = result(store, number)
    assert (row["copies"], row["bracket_s"], row["score_lost"]) == (2, 4.0, 0.25)


def test_a_rotated_run_has_no_bracket_results(store: Store) -> None:
    events = (phase(name=None, iteration=None), ended(0, 1.0))
    number = run_with(store, run_of(1, order="rotated"), *events)
    assert ask(store, "SELECT * FROM bracket_result") == []
    assert len(ask(store, f"SELECT * FROM copy_time WHERE run_id = {number}")) == 1


def test_copy_time_is_in_seconds(store: Store) -> None:
    one = replace(ended(0, 2.5, start_s=0.5), user_ns=10**9, max_rss_bytes=3 << 20)
    run_with(store, run_of(1), phase(), one)
    (row,) = ask(store, "SELECT * FROM copy_time")
    assert (row["start_s"], row["elapsed_s"], row["cpu_s"], row["max_rss_mib"]) == (0.5, 2, 1, 3)
    assert (row["tune"], row["cpu"], row["node"], row["counted"]) == ("base", 0, 0, 1)


def test_lgroup_time_compares_each_lgroup_with_all_copies(store: Store) -> None:
    add_run(store, [1.0, 1.0, 2.0, 4.0])
    found = ask(store, "SELECT node, copies, mean_s, slowest_s, slowdown FROM lgroup_time")
    assert [tuple(row.values()) for row in found] == [(0, 2, 1.0, 1.0, 0.5), (1, 2, 3.0, 4.0, 1.5)]


def test_run_summary_is_a_line_a_run(store: Store) -> None:
    add_run(store, [1.0, 2.0])
    (row,) = ask(store, "SELECT * FROM run_summary")
    assert (row["run_id"], row["hostname"], row["status"]) == (1, "node7", "complete")
    assert (row["copies"], row["copy_runs"], row["failed"], row["elapsed_s"]) == (2, 2, 0, 2.0)
    (row,) = ask(store, "SELECT sql FROM sqlite_schema WHERE name = 'run_summary'")
    assert "'running' also means killed" in str(row["sql"])


def test_a_view_asked_for_one_run_reads_no_other(store: Store) -> None:
    for view in ("bracket_result", "copy_time", "lgroup_time", "steady_rate", "metric_result"):
        plan = ask(store, f"EXPLAIN QUERY PLAN SELECT * FROM {view} WHERE run_id = 3")
        steps = [str(row["detail"]) for row in plan]
        assert any(step.startswith("SEARCH copy") and "(run_id=?" in step for step in steps), view
        assert not any(step.startswith("SCAN copy") for step in steps), view


def reported(name: str, copy: int, step: int, value: float) -> OutputChecked:
    metrics = (("speed", value),)
    return OutputChecked(0, name, 1, copy, step, Validity.VALID, None, metrics=metrics)


def add_steady_run(store: Store, *, order: str = "homogeneous", bad_step: int | None = None) -> int:
    """Two copies of runs of 2 s and 3 s (in rotated order a and b in turn); window 3 to 9 s."""
    names = ("a", "b") if order == "rotated" else ("a",)
    metric = (MetricUsed("speed", "GB/s", "higher", "sum"),)
    run = replace(
        run_of(2, 2, window_s=(3.0, 9.0)),
        order=order,
        benchmarks=tuple(
            BenchmarkUsed(n, "int", n, 12.0, None, None, None, metrics=metric) for n in names
        ),
    )
    number = store.create_run(run, HOST, (), PUS, GONE)
    rotated = order == "rotated"
    store.append(number, phase(name=None if rotated else "a", window_s=(3.0, 9.0)))
    for copy, seconds in enumerate((2.0, 3.0)):
        for step in range(round(12 / seconds)):
            name = names[(copy + step) % len(names)]
            start_s = step * seconds
            bad = copy == 0 and step == bad_step
            end = ended(copy, start_s + seconds, start_s=start_s, name=name, step=step)
            if bad:
                end = replace(end, status=CopyStatus.FAILED, exit_code=None, signal=11)
            store.append(number, end)
            if not bad:
                store.append(number, reported(name, copy, step, 10.0 * copy + step))
    store.append(number, over(0.0, 12.0, name=None if rotated else "a", window_s=(3.0, 9.0)))
    store.append(number, RunEnded(RunStatus.COMPLETE, None))
    return number


def test_steady_rate_says_what_the_analysis_says(store: Store) -> None:
    number = add_steady_run(store)
    row = result(store, number, "steady_rate")
    (benchmark,) = summarise(store.load(number)).benchmarks
    window = benchmark.iterations[0].steady
    assert window is not None
    (rate,) = window.benchmarks
    assert (row["benchmark"], row["tune"], row["iteration"], row["counted"]) == ("a", "base", 1, 1)
    assert row["window_s"] == window.window_s == 6.0
    assert row["completions"] == rate.completions == 5.0
    assert row["whole"] == rate.whole == 4
    assert row["per_hour"] == pytest.approx(rate.per_hour)
    assert row["ratio"] == pytest.approx(benchmark.ratio)
    assert ask(store, "SELECT * FROM bracket_result") == []


def test_steady_rate_has_every_benchmark_of_a_mix(store: Store) -> None:
    number = add_steady_run(store, order="rotated")
    mix = summarise(store.load(number)).mix
    assert mix is not None and mix.selected is not None
    rates = {rate.benchmark: rate for rate in mix.selected.benchmarks}
    rows = ask(store, f"SELECT * FROM steady_rate WHERE run_id = {number} ORDER BY benchmark")
    assert [row["benchmark"] for row in rows] == ["a", "b"]
    for row in rows:
        rate = rates[str(row["benchmark"])]
        assert (row["completions"], row["whole"]) == (rate.completions, rate.whole)
        assert row["ratio"] == pytest.approx(rate.ratio)


def test_a_torn_window_has_no_rate(store: Store) -> None:
    number = add_steady_run(store)
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE bracket SET torn = 1")
    assert ask(store, f"SELECT * FROM steady_rate WHERE run_id = {number}") == []
    assert ask(store, f"SELECT * FROM metric_result WHERE run_id = {number}") == []


def add_reporting_run(store: Store, values: list[float], combine: str) -> int:
    metric = (MetricUsed("speed", "GB/s", "higher", combine),)
    run = replace(
        run_of(len(values), 2),
        uuid=combine,
        benchmarks=(BenchmarkUsed("gups", "int", "gups", 10.0, None, None, None, metrics=metric),),
    )
    number = store.create_run(run, HOST, (), PUS, GONE)
    store.append(number, phase())
    for copy in range(len(values)):
        store.append(number, ended(copy, 1.0))
    store.append(number, over(0.0, 1.0))
    for copy, value in enumerate(values):
        store.append(number, reported("gups", copy, 0, value))
    store.append(number, RunEnded(RunStatus.COMPLETE, None))
    return number


@pytest.mark.parametrize(("combine", "value"), [("sum", 12.0), ("mean", 3.0)])
def test_metric_result_says_what_the_analysis_says(
    store: Store, combine: str, value: float
) -> None:
    number = add_reporting_run(store, [1.0, 2.0, 4.0, 5.0], combine)
    (found,) = summarise(store.load(number)).metrics
    whole, *by_node = ask(
        store,
        f"SELECT * FROM metric_result WHERE run_id = {number} ORDER BY node_all DESC, node",
    )
    assert (whole["name"], whole["unit"], whole["better"]) == ("speed", "GB/s", "higher")
    assert whole["value"] == found.value == value
    assert found.minimum is not None and found.maximum is not None
    assert (whole["lowest"], whole["highest"]) == (found.minimum.value, found.maximum.value)
    assert (whole["node"], whole["copies"]) == (None, found.copies)
    assert [(row["node"], row["copies"], row["value"]) for row in by_node] == [
        (group.node, group.copies, group.value) for group in found.lgroups
    ]


@pytest.mark.parametrize(("bad_step", "ratio"), [(0, 10.0), (1, None), (2, None)])
def test_a_failed_run_that_reaches_into_the_window_takes_the_ratio_in_the_view_too(
    store: Store, bad_step: int, ratio: float | None
) -> None:
    number = add_steady_run(store, bad_step=bad_step)
    row = result(store, number, "steady_rate")
    (benchmark,) = summarise(store.load(number)).benchmarks
    assert benchmark.ratio == row["ratio"] == ratio
    assert (row["per_hour"] is None) is (ratio is None)


def test_a_window_that_never_closed_is_neither_a_rate_nor_a_bracket(store: Store) -> None:
    checked = OutputChecked(0, "gups", 1, 0, 0, Validity.NOT_CHECKED, None)
    begun = phase(window_s=(3.0, 9.0))
    run_with(store, run_of(1, window_s=(3.0, 9.0)), begun, ended(0, 2.0), checked, over(0.0, 2.0))
    assert ask(store, "SELECT * FROM steady_rate") == []
    assert ask(store, "SELECT * FROM bracket_result") == []


@pytest.mark.parametrize("order", ["homogeneous", "rotated"])
def test_metrics_of_a_window_are_means_of_each_copys_runs_in_it(store: Store, order: str) -> None:
    number = add_steady_run(store, order=order)
    rows = ask(
        store,
        f"SELECT * FROM metric_result WHERE run_id = {number} AND node_all ORDER BY benchmark",
    )
    metrics = summarise(store.load(number)).metrics
    assert [row["benchmark"] for row in rows] == [metric.benchmark for metric in metrics]
    for row, metric in zip(rows, metrics, strict=True):
        assert metric.minimum is not None and metric.maximum is not None
        assert row["value"] == pytest.approx(metric.value)
        assert row["copies"] == metric.copies == 2
        assert row["lowest"] == pytest.approx(metric.minimum.value)
        assert row["highest"] == pytest.approx(metric.maximum.value)


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_a_query_file_runs_as_it_stands_and_begins_with_its_question(
    store: Store, path: Path
) -> None:
    add_run(store, [1.0, 2.0], uuid="a")
    add_run(store, [1.0, 2.0], uuid="b")
    text = path.read_text()
    assert text.startswith("-- ")
    assert "?" in text.splitlines()[0]
    with closing(sqlite3.connect(store.path)) as connection:
        for run in (None, 1):  # the shell binds NULL to a parameter that nobody set
            values = dict.fromkeys(re.findall(r":([a-z_]+)", text)) | {"run": run, "sweep": run}
            connection.execute(text, values).fetchall()


def test_the_slowest_copies_are_named_with_their_place(store: Store) -> None:
    add_run(store, [1.0, 1.0, 1.0, 5.0])
    (first, *_) = query_file(store, "slowest_copies")
    assert first == ("gups", "base", 1, 3, 3, 3, 1, 0, 5.0, 2.5)


def test_failed_copies_of_torn_attempts_are_no_failures(store: Store) -> None:
    number = add_run(store, [1.0, 1.0])
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE copy SET status = 'failed', exit_code = 3 WHERE copy = 1")
    assert [row[3] for row in query_file(store, "failures")] == [1]
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE bracket SET torn = 1 WHERE run_id = ?", (number,))
    assert query_file(store, "failures") == []


def test_a_setting_that_changed_since_the_run_before_is_found_but_no_reading(store: Store) -> None:
    for uuid, free in (("a", "1"), ("b", "2")):
        readings = [("load.1min", free), ("memory.free_bytes", free), ("loaded", free)]
        store.create_run(replace(run_of(1), uuid=uuid), HOST, readings, PUS, GONE)
        found = query_file(store, "changed_settings")
        assert found == ([] if uuid == "a" else [("loaded", "1", "2")])
