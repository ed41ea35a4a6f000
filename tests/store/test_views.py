"""What a person can ask the database without our code gives what our code says."""

from __future__ import annotations

import io
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.score import summarise
from rater.plan.counter_tables import TABLE_TEXT, counter_tables
from rater.record.events import (
    CopyCounted,
    Event,
    EventCount,
    GateFacts,
    Observed,
    OutputChecked,
    PhaseCounted,
    RunEnded,
)
from rater.record.run import BenchmarkUsed, CopyStatus, MetricUsed, RunStatus, Validity
from rater.record.stored import StoredRun
from rater.store.export import full_document, observations_document, write_csv
from rater.store.store import Store, open_store
from rater.store.sweeps import remove_sweeps
from rater.system.errors import InputError
from rater.system.paths import data_folder
from rater.workflow.results.columns import columns_of_copies
from tests.support.example_events import ended, over, phase, run_of, with_head
from tests.support.observations import observed, read
from tests.support.placement_samples import BARE, FULL, MB, OBSERVED, store_run
from tests.support.stored_runs import GONE, PUS, append, query_file, query_rows

QUERIES = sorted((data_folder("db") / "queries").glob("*.sql"))


def add_run(store: Store, times_s: list[float], *, uuid: str = "u", stagger_ms: float = 0.0) -> int:
    """One benchmark with a reference of 10 s, once, copies alternating between two lgroups."""
    run = replace(
        with_head(
            run_of(len(times_s), 2),
            uuid=uuid,
            mode="staggered" if stagger_ms else "homogeneous",
            stagger_ms=stagger_ms,
        ),
        settings=(("governor", f"of {uuid}"),),
        pus=PUS,
        benchmarks=(
            BenchmarkUsed(
                name="gups",
                category="int",
                command="gups",
                reference_s=10.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
            ),
        ),
    )
    number = store.create_run(run, GONE)
    append(store, number, phase())
    for copy, seconds in enumerate(times_s):
        start_s = copy * stagger_ms / 1e3
        append(store, number, ended(copy, start_s + seconds, start_s=start_s))
    last_s = max(copy * stagger_ms / 1e3 + seconds for copy, seconds in enumerate(times_s))
    append(store, number, over(0.0, last_s))
    for copy in range(len(times_s)):
        append(
            store,
            number,
            OutputChecked(
                phase=0,
                benchmark="gups",
                iteration=1,
                copy=copy,
                step=0,
                validity=Validity.VALID,
                detail=None,
            ),
        )
    append(store, number, RunEnded(RunStatus.COMPLETE, None))
    return number


def ask(store: Store, query: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def result(store: Store, number: int, view: str = "bracket_result") -> dict[str, object]:
    (row,) = ask(store, f"SELECT * FROM {view} WHERE run_id = {number}")
    return row


def run_with(store: Store, run: StoredRun, *events: Event) -> int:
    """A run of which no more is known than these events."""
    number = store.create_run(replace(run, pus=PUS), GONE)
    append(store, number, *events)
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
        lambda copy: [
            ended(copy, 2.0),
            OutputChecked(
                phase=0,
                benchmark="gups",
                iteration=1,
                copy=copy,
                step=0,
                validity=Validity.INVALID,
                detail="",
            ),
        ],
        lambda _: [],
        lambda copy: [ended(copy, 2.0)],  # nobody looked at its output
    ],
)
def test_there_is_no_ratio_where_a_copy_failed_or_is_missing(store: Store, spoil: object) -> None:
    assert callable(spoil)
    checked = OutputChecked(
        phase=0,
        benchmark="gups",
        iteration=1,
        copy=0,
        step=0,
        validity=Validity.NOT_CHECKED,
        detail=None,
    )
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
    one = replace(ended(0, 2.5, start_s=0.5, user_ns=10**9), max_rss_bytes=3 << 20)
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
    return OutputChecked(
        phase=0,
        benchmark=name,
        iteration=1,
        copy=copy,
        step=step,
        validity=Validity.VALID,
        detail=None,
        metrics=metrics,
    )


def add_steady_run(store: Store, *, order: str = "homogeneous", bad_step: int | None = None) -> int:
    """Two copies of runs of 2 s and 3 s (in rotated order a and b in turn); window 3 to 9 s."""
    names = ("a", "b") if order == "rotated" else ("a",)
    metric = (MetricUsed("speed", "GB/s", "higher", "sum"),)
    run = replace(
        with_head(run_of(2, 2, window_s=(3.0, 9.0)), order=order),
        benchmarks=tuple(
            BenchmarkUsed(
                name=name,
                category="int",
                command=name,
                reference_s=12.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
                metrics=metric,
            )
            for name in names
        ),
    )
    number = store.create_run(replace(run, pus=PUS), GONE)
    rotated = order == "rotated"
    append(store, number, phase(name=None if rotated else "a", window_s=(3.0, 9.0)))
    for copy, seconds in enumerate((2.0, 3.0)):
        for step in range(round(12 / seconds)):
            name = names[(copy + step) % len(names)]
            start_s = step * seconds
            bad = copy == 0 and step == bad_step
            end = ended(copy, start_s + seconds, start_s=start_s, name=name, step=step)
            if bad:
                end = replace(end, status=CopyStatus.FAILED, exit_code=None, signal=11)
            append(store, number, end)
            if not bad:
                append(store, number, reported(name, copy, step, 10.0 * copy + step))
    append(store, number, over(0.0, 12.0, name=None if rotated else "a", window_s=(3.0, 9.0)))
    append(store, number, RunEnded(RunStatus.COMPLETE, None))
    return number


def test_steady_rate_says_what_the_analysis_says(store: Store) -> None:
    number = add_steady_run(store)
    row = result(store, number, "steady_rate")
    (benchmark,) = summarise(store.load(number)).benchmarks
    (rate,) = benchmark.iterations
    window = rate.steady
    assert window is not None
    assert (row["benchmark"], row["tune"], row["iteration"], row["counted"]) == ("a", "base", 1, 1)
    assert row["window_s"] == window.window_s == 6.0
    assert row["completions"] == rate.completions == 5.0
    assert row["whole"] == rate.whole == 4
    assert row["per_hour"] == pytest.approx(rate.per_hour)
    assert row["ratio"] == pytest.approx(benchmark.ratio)
    assert ask(store, "SELECT * FROM bracket_result") == []


def test_steady_rate_has_every_benchmark_of_a_mix(store: Store) -> None:
    number = add_steady_run(store, order="rotated")
    scores = summarise(store.load(number)).scores
    rates = {score.benchmark: score.chosen for score in scores if score.chosen}
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
        with_head(run_of(len(values), 2), uuid=combine),
        benchmarks=(
            BenchmarkUsed(
                name="gups",
                category="int",
                command="gups",
                reference_s=10.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
                metrics=metric,
            ),
        ),
    )
    number = store.create_run(replace(run, pus=PUS), GONE)
    append(store, number, phase())
    for copy in range(len(values)):
        append(store, number, ended(copy, 1.0))
    append(store, number, over(0.0, 1.0))
    for copy, value in enumerate(values):
        append(store, number, reported("gups", copy, 0, value))
    append(store, number, RunEnded(RunStatus.COMPLETE, None))
    return number


@pytest.mark.parametrize(("combine", "value"), [("sum", 12.0), ("mean", 3.0)])
def test_metric_result_says_what_the_analysis_says(
    store: Store, combine: str, value: float
) -> None:
    number = add_reporting_run(store, [1.0, 2.0, 4.0, 5.0], combine)
    (metric,) = summarise(store.load(number)).metrics
    whole, *by_node = ask(
        store,
        f"SELECT * FROM metric_result WHERE run_id = {number} ORDER BY node_all DESC, node",
    )
    assert (whole["name"], whole["unit"], whole["better"]) == ("speed", "GB/s", "higher")
    assert whole["value"] == metric.value == value
    assert metric.minimum is not None and metric.maximum is not None
    assert (whole["lowest"], whole["highest"]) == (metric.minimum.value, metric.maximum.value)
    assert (whole["node"], whole["copies"]) == (None, metric.copies)
    assert [(row["node"], row["copies"], row["value"]) for row in by_node] == [
        (group.node, group.copies, group.value) for group in metric.lgroups
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
    checked = OutputChecked(
        phase=0,
        benchmark="gups",
        iteration=1,
        copy=0,
        step=0,
        validity=Validity.NOT_CHECKED,
        detail=None,
    )
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
        readings = (("load.1min", free), ("memory.free_bytes", free), ("loaded", free))
        store.create_run(replace(with_head(run_of(1), uuid=uuid), settings=readings), GONE)
        found = query_file(store, "changed_settings")
        assert found == ([] if uuid == "a" else [("loaded", "1", "2")])


CYCLES = EventCount(
    group_name="intel-skx:numa", event="cycles", value=300, enabled_ns=10, running_ns=10
)
REMOTE = EventCount(
    group_name="intel-skx:numa", event="dram_remote", value=None, enabled_ns=10, running_ns=0
)
COST = PhaseCounted(phase=0, user_only=True, copies=1, open_ns=3, read_ns=2, close_ns=1)
TABLE = (f"{TABLE_TEXT}intel-skx", "[pmu]\n")


def counted_run(store: Store) -> int:
    number = store.create_run(replace(run_of(2), settings=(TABLE,), pus=PUS))
    append(store, number, phase(), ended(0, 2.0), ended(1, 2.0))
    append(store, number, CopyCounted(0, 1, 0, (CYCLES, REMOTE)), COST, over(0.0, 2.0))
    return number


def test_counts_come_back_with_their_copy_and_cost(store: Store) -> None:
    run = store.load(counted_run(store))
    assert [copy.counts for copy in run.copies] == [(), (CYCLES, REMOTE)]
    assert run.counted == (COST,)
    assert query_file(store, "copy_counts")[0] == (0, 1, 0, "intel-skx:numa", "cycles", 300, 10, 10)
    document = full_document(run)
    assert document["copies"][1]["counts"][0]["value"] == 300
    assert document["counted"][0]["open_ns"] == 3


def test_an_observations_document_takes_counts_and_tables_along(
    store: Store, tmp_path: Path
) -> None:
    document = observations_document(store.load(counted_run(store)))
    with open_store(tmp_path / "other.db") as other:
        number, _ = other.add(read(document))
        run = other.load(number)
    assert [copy.counts for copy in run.copies] == [(), (CYCLES, REMOTE)]
    assert counter_tables(run.settings) == {"intel-skx": "[pmu]\n"}
    assert observations_document(run)["observations"][1]["counts"] == [
        {
            "group_name": "intel-skx:numa",
            "event": event,
            "value": value,
            "enabled_ns": 10,
            "running_ns": running,
        }
        for event, value, running in (("cycles", 300, 10), ("dram_remote", None, 0))
    ]


def test_csv_has_a_column_for_each_event_scaled_where_it_was_counted_in_part(store: Store) -> None:
    number = store.create_run(replace(run_of(2), settings=(TABLE,), pus=PUS))
    append(store, number, phase(), ended(0, 2.0), ended(1, 2.0))
    half = EventCount(
        group_name="software:software", event="minor_faults", value=7, enabled_ns=10, running_ns=5
    )
    never = EventCount(
        group_name="software:software", event="migrations", value=None, enabled_ns=10, running_ns=5
    )
    append(store, number, CopyCounted(0, 1, 0, (CYCLES, half, never)), COST, over(0.0, 2.0))
    out = io.StringIO()
    write_csv(store.load(number), out)
    heading, *rows = (line.split(",")[-5:] for line in out.getvalue().splitlines())
    numa, software = "intel-skx:numa", "software:software"
    assert heading == [
        *(f"{numa} share_counted", f"{numa} cycles"),
        *(f"{software} share_counted", f"{software} migrations", f"{software} minor_faults"),
    ]
    assert rows == [["", "", "", "", ""], ["1.0", "300", "0.5", "", "14.0"]]


def test_an_event_called_like_a_time_is_no_time_in_csv(store: Store) -> None:
    number = store.create_run(replace(run_of(1), settings=(TABLE,), pus=PUS))
    waits = EventCount(
        group_name="mine:stalls", event="waits_s", value=300, enabled_ns=10, running_ns=10
    )
    append(store, number, phase(), ended(0, 2.0), CopyCounted(0, 0, 0, (waits,)), over(0.0, 2.0))
    run, out = store.load(number), io.StringIO()
    write_csv(run, out)
    assert out.getvalue().splitlines()[1].endswith(",1.0,300")
    assert columns_of_copies(run)["mine:stalls waits_s"].tolist() == [300]


@pytest.mark.parametrize(
    "wrong",
    [
        7,
        [{"event": "cycles"}],
        [{"group_name": "g", "event": "e", "value": 2**64, "enabled_ns": 0, "running_ns": 0}],
        [{"group_name": "", "event": "e", "value": 1, "enabled_ns": 0, "running_ns": 0}],
        [{"group_name": "g", "event": "e", "value": -1, "enabled_ns": 0, "running_ns": 0}],
    ],
)
def test_counts_of_a_document_are_read_strictly(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"observations\[0\]\W+counts"):
        read(observed({"counts": wrong}))


def test_what_was_seen_comes_back(store: Store) -> None:
    run = store.load(store_run(store))
    later = replace(FULL, age_ns=400_000_000, looks=1, node_bytes=((0, 120 * MB),))
    assert run.samples == (FULL, later, BARE)
    assert run.observed == OBSERVED
    assert [copy.gate for copy in run.copies] == [
        GateFacts((0, 1, 2, 4), (0, 1)),
        GateFacts(None, (1,)),
    ]


def test_samples_of_an_attempt_that_was_torn_do_not_count(store: Store) -> None:
    run = store.load(store_run(store))
    torn = replace(run, brackets=tuple(replace(bracket, torn=True) for bracket in run.brackets))
    assert torn.without_torn().samples == ()


def test_events_that_are_tried_again_are_stored_once(store: Store) -> None:
    number = store_run(store)
    append(store, number, FULL)
    assert len(store.load(number).samples) == 3


def test_a_resumed_run_was_observed_as_often_as_all_its_attempts(store: Store) -> None:
    number = store_run(store)
    append(
        store,
        number,
        Observed(
            cadence="auto",
            samples=1,
            interval_s=3.5,
            cpu_s=0.03,
            share=0.01,
            longest_read_s=0.001,
            unknown=(),
        ),
    )
    seen = store.load(number).observed
    assert seen is not None
    assert (seen.samples, seen.interval_s) == (4, 2.0)
    assert seen.cpu_s == pytest.approx(0.04)
    assert seen.share == pytest.approx(0.04 / 5)  # 2 s and 3 s of running
    assert (seen.longest_read_s, seen.unknown) == (0.002, ())
    append(
        store,
        number,
        Observed(
            cadence="auto",
            samples=0,
            interval_s=None,
            cpu_s=0.0,
            share=0.0,
            longest_read_s=0.0,
            unknown=(),
        ),
    )
    assert store.load(number).observed == replace(seen, unknown=())


def test_what_was_seen_goes_with_its_run(store: Store) -> None:
    remove_sweeps(store, (), [store_run(store)])
    for table in ("sample", "observed", "copy"):
        assert query_rows(store, f"SELECT count(*) FROM {table}") == [(0,)]


def test_the_view_says_how_much_lay_at_home(store: Store) -> None:
    number = store_run(store)
    shares = query_rows(
        store,
        "SELECT copy, node, gate_cpus, gate_mems, looks, round(home_share, 6), "
        "round(rss_mib * 1048576), round(most_rss_mib * 1048576) "
        f"FROM placement_proof WHERE run_id = {number}",
    )
    # 30 of 120 MB in three looks, all of 120 MB in one.
    share = (30 * 3 + 120) / (120 * 4)
    assert shares == [
        (0, 0, "0-2,4", "0-1", 4, round(share, 6), 121 * MB, 122 * MB),
        (1, 1, None, "1", 1, None, None, None),
    ]


def test_the_full_document_has_what_was_seen(store: Store) -> None:
    document = full_document(store.load(store_run(store)))
    assert document["samples"][0]["node_bytes"] == {"0": 30 * MB, "1": 90 * MB}
    assert document["samples"][0]["page_bytes"] == {"4096": 20 * MB, "2097152": 100 * MB}
    assert document["samples"][2]["node_bytes"] is None
    assert document["copies"][0]["gate_cpus"] == [0, 1, 2, 4]
    assert document["copies"][1]["gate_cpus"] is None
    assert "gate" not in document["copies"][0]
    assert document["observed"]["interval_s"] == 1.5
