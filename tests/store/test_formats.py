"""Files of other runners as runs: small files as each tool writes them, and their times."""

from __future__ import annotations

import bz2
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rater.record.run import CopyStatus, MetricUsed
from rater.store.export import observations_document
from rater.store.formats.read import ReadRun, read_runs
from rater.store.store import Store
from rater.system.errors import InputError
from tests.support.calls import Rater
from tests.support.observations import observed, read


def runs_of(
    data: str | bytes | dict[str, Any], columns: Mapping[str, str] | None = None
) -> list[ReadRun]:
    """The runs of a file with this content; a table has columns."""
    text = json.dumps(data) if isinstance(data, dict) else data
    content = text if isinstance(text, bytes) else text.encode()
    return read_runs(content, "file", columns=columns, tags={}, most_bytes=10**6)


def times_of(run: ReadRun) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for copy in run.stored.copies:
        times.setdefault(copy.benchmark, []).append(copy.elapsed_s)
    return times


# -- what observations say of their benchmarks ----------------------------------------------------


def test_observations_have_categories_references_metrics_counts_and_joules(store: Store) -> None:
    document = observed(
        {"category": "int", "reference_s": 9.5, "metrics": {"bandwidth": 3.5}},
        {"copy": 1, "category": "int", "metrics": {"bandwidth": 4.5}},
        {"benchmark": "c", "counts": {"instructions": 85876158}, "joules": 12.5},
        metrics=[
            {"name": "bandwidth", "unit": "GB/s", "better": "higher", "combine": "sum"},
        ],
    )
    run = read(document)
    assert run.notes == ()
    first, second = run.benchmarks
    assert (first.category, first.reference_s) == ("int", 9.5)
    assert first.metrics == (MetricUsed("bandwidth", "GB/s", "higher", "sum"),)
    assert second.metrics == (
        MetricUsed("instructions", "count", "lower", "mean"),
        MetricUsed("energy", "J", "lower", "sum"),
    )
    number, _ = store.add(run)
    again = read(observations_document(store.load(number)))
    assert again.benchmarks == run.benchmarks
    assert [dict(copy.metrics) for copy in again.copies] == [
        {"bandwidth": 3.5},
        {"bandwidth": 4.5},
        {"instructions": 85876158.0, "energy": 12.5},
    ]


def test_an_unknown_key_is_named_with_what_may_have_been_meant() -> None:
    document = observed({"max_rss_bytes": 5}, operator="me") | {"comment": "x", "author": "y"}
    assert read(document).notes[1:] == (
        "the document has unknown keys, left out: comment, author",
        "run has an unknown key, left out: operator",
        "an observation has an unknown key, left out: max_rss_bytes (did you mean mean_rss_bytes "
        "or peak_rss_bytes?)",
    )


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"category": "chess"}], 'observations[0].category: expected "int" or "fp"'),
        ([{"metrics": {"a": "much"}}], "observations[0].metrics: a: expected a number"),
        (
            [{"reference_s": 1}, {"copy": 1, "reference_s": 2}],
            "observations[1].reference_s: expected the same of all of b (1.0 before)",
        ),
        (
            [{"metrics": {"energy": 1}, "joules": 2}],
            "observations[0].joules: expected energy once",
        ),
    ],
)
def test_a_wrong_fact_of_a_benchmark_is_named(rows: list[dict[str, Any]], problem: str) -> None:
    with pytest.raises(InputError) as error:
        read(observed(*rows))
    assert problem in str(error.value)


# -- files of other runners -----------------------------------------------------------------------

HYPERFINE = {
    "results": [
        {"command": "gzip -1", "mean": 0.5, "user": 0.4, "system": 0.0, "times": [0.5, 0.25]}
        | {"exit_codes": [0, 1], "parameters": {"n": "1"}},
        {"command": "gzip -1", "times": [2.0], "exit_codes": [0], "parameters": {"n": "2"}},
        {"command": "true", "times": [1.0], "exit_codes": [0], "memory_usage_byte": [4096]},
    ]
}


def test_hyperfine_has_a_benchmark_for_each_command_and_iterations() -> None:
    [run] = runs_of(HYPERFINE)
    assert run.program == "hyperfine"
    assert times_of(run) == {"gzip -1 (n=1)": [0.5, 0.25], "gzip -1 (n=2)": [2.0], "true": [1.0]}
    assert run.stored.copies[1].status is CopyStatus.FAILED
    assert run.stored.copies[-1].peak_rss_bytes == 4096
    assert run.stored.notes == ("CPU times are left out: hyperfine has means over runs alone",)


def test_pyperf_has_an_iteration_for_each_value_and_short_ones_as_thousands() -> None:
    values = [{"metadata": {"mem_max_rss": 8192}, "values": [4e-06, 5e-06]}, {"values": [6e-06]}]
    benchmark = {"runs": [{"warmups": [[1, 0.1]], "metadata": {}}, *values], "metadata": {}}
    size = {"runs": [{"values": [77]}], "metadata": {"name": "size", "unit": "byte"}}
    metadata = {"name": "timeit", "unit": "second", "hostname": "vm"}
    [run] = runs_of({"benchmarks": [benchmark, size], "metadata": metadata, "version": "1.0"})
    assert run.stored.head.hostname == "vm"
    assert times_of(run) == {"timeit x1000": [0.004, 0.005, 0.006]}
    assert [copy.peak_rss_bytes for copy in run.stored.copies] == [8192, 8192, None]
    assert run.stored.notes == (
        "left out, as their values are no times: size (byte)",
        "stored as the time of more operations: timeit",
    )


def google_benchmark(**more: Any) -> dict[str, Any]:
    repetition = {"name": "copy/8", "run_name": "copy/8", "run_type": "iteration", "threads": 1}
    return repetition | {"real_time": 25.5, "cpu_time": 20.0, "time_unit": "ms"} | more


def test_google_benchmark_has_repetitions_and_counters_and_leaves_aggregates_out() -> None:
    rows = [
        google_benchmark(repetition_index=0, bytes_per_second=2e9, foo=3.5),
        google_benchmark(repetition_index=1, real_time=26.5, bytes_per_second=1e9, foo=4.5),
        google_benchmark(name="copy/8_mean", run_type="aggregate", aggregate_name="mean"),
        {"name": "bad", "run_name": "bad", "run_type": "iteration", "error_occurred": True},
    ]
    context = {"date": "2026-11-29T11:43:39+00:00", "host_name": "vm"}
    [run] = runs_of({"context": context, "benchmarks": rows})
    assert run.stored.head.started_at == "2026-11-29T11:43:39Z"
    assert times_of(run) == {"copy/8": [0.0255, 0.0265]}
    assert [copy.cpu_s for copy in run.stored.copies] == [0.02, 0.02]
    assert run.stored.benchmarks[0].metrics == (
        MetricUsed("bytes_per_second", "B/s", "higher", "sum"),
        MetricUsed("foo", "", None, "mean"),
    )
    assert run.stored.notes == ("1 of 3 repetitions with an error left out",)


def test_google_benchmark_of_aggregates_alone_names_the_option() -> None:
    aggregate = google_benchmark(run_type="aggregate")
    with pytest.raises(InputError, match="--benchmark_report_aggregates_only"):
        runs_of({"context": {}, "benchmarks": [aggregate]})


BENCHEXEC = """<?xml version="1.0"?>
<!DOCTYPE result PUBLIC '+//IDN sosy-lab.org//DTD BenchExec result 3.12//EN' 'x.dtd'>
<result toolmodule="benchexec.tools.dummy" tool="Dummy" starttime="2026-11-29T11:43:40+00:00">
  <systeminfo hostname="vm"/>
  <run name="one">
    <column title="walltime" value="0.5s"/><column title="cputime" value="0.25s"/>
    <column title="memory" value="774144B"/><column title="cpuenergy" value="1.5J"/>
    <column title="cpuCores" value="3"/><column title="memoryNodes" value="0"/>
    <column title="returnvalue" value="0"/><column title="category" value="correct"/>
    <column title="starttime" value="2026-11-29T11:43:40.25+00:00"/>
  </run>
  <run name="two">
    <column title="walltime" value="10.0s"/><column title="terminationreason" value="walltime"/>
    <column title="starttime" value="2026-11-29T11:43:41.00+00:00"/>
  </run>
  <run name="three"><column title="status" value="unknown"/></run>
  <column title="walltime" value="99s"/>
</result>
"""


@pytest.mark.parametrize("data", [BENCHEXEC.encode(), bz2.compress(BENCHEXEC.encode())])
def test_benchexec_has_times_memory_energy_and_places(data: bytes) -> None:
    [run] = runs_of(data)
    first, second = run.stored.copies
    assert (first.benchmark, first.elapsed_s, first.cpu_s) == ("one", 0.5, 0.25)
    assert (first.cpu, first.mem_nodes, first.peak_rss_bytes) == (3, (0,), 774144)
    assert (first.start_ns, second.start_ns) == (0, 750_000_000)
    assert dict(first.metrics) == {"energy": 1.5}
    assert second.status is CopyStatus.TIMEOUT
    assert run.stored.head.tags == (("tool", "Dummy"),)
    assert run.stored.notes == ("1 task without a wall time left out",)


def test_xml_with_entities_of_its_own_is_refused() -> None:
    bomb = BENCHEXEC.replace("'x.dtd'>", "'x.dtd' [<!ENTITY a 'aaaa'>]>")
    with pytest.raises(InputError, match="entities"):
        runs_of(bomb)


def test_xml_that_ends_early_is_named_by_its_line() -> None:
    with pytest.raises(InputError, match=r"file:5:19: not XML that can be read: the file is cut"):
        runs_of("\n".join(BENCHEXEC.splitlines()[:5]))
    with pytest.raises(InputError, match=r"file:2:78: .* the file is cut"):
        runs_of(BENCHEXEC[:100])
    with pytest.raises(
        InputError, match=r"file:6:[0-9]+: not XML that can be read: mismatched tag"
    ):
        runs_of(BENCHEXEC.replace('value="0.5s"/>', "></x>"))


def test_a_file_with_nothing_in_it_is_not_called_wrong_json() -> None:
    with pytest.raises(InputError, match="file: nothing is in it; expected an observations"):
        runs_of(" \n")


def test_other_xml_is_not_called_json() -> None:
    with pytest.raises(InputError, match="file: XML, but not results of BenchExec"):
        runs_of("<testsuite><testcase/></testsuite>")


# -- tables ---------------------------------------------------------------------------------------

TABLE = """name,class,pages,ms,GB/s
lu,INT,4K,1500,2.5
lu,INT,64K,1400,2.75
stream,FP,4K,2000,
stream,FP,64K,1000,9
lu,INT,4K,1600,2.25
"""
COLUMNS = {"benchmark": "name", "time_ms": "ms", "category": "class", "tag:pages": "pages"}


def test_a_table_is_divided_by_its_tags_and_its_lines_are_iterations() -> None:
    base, large = runs_of(TABLE, COLUMNS | {"metric:bandwidth": "GB/s"})
    assert base.stored.head.tags == (("pages", "4K"),)
    assert times_of(base) == {"lu": [1.5, 1.6], "stream": [2.0]}
    assert times_of(large) == {"lu": [1.4], "stream": [1.0]}
    assert [used.category for used in base.stored.benchmarks] == ["int", "fp"]
    assert [dict(copy.metrics) for copy in large.stored.copies] == [
        {"bandwidth": 2.75},
        {"bandwidth": 9.0},
    ]
    assert base.stored.head.uuid != large.stored.head.uuid


def test_columns_with_known_words_need_no_names_and_semicolons_have_decimal_commas() -> None:
    [run] = runs_of("benchmark;copy;cpu;time\na;0;2;1,5\na;1;4;2,5\n", {})
    assert [(copy.copy, copy.cpu, copy.elapsed_s) for copy in run.stored.copies] == [
        (0, 2, 1.5),
        (1, 4, 2.5),
    ]


@pytest.mark.parametrize(
    ("table", "columns", "problem"),
    [
        (TABLE, {"benchmark": "name", "time": "seconds"}, "no column 'seconds'"),
        (TABLE, {"benchmark": "name"}, "which column is the time?"),
        (TABLE, {"benchmrk": "name"}, "did you mean benchmark"),
        (
            TABLE,
            {"benchmark": "name", "time": "class"},
            "file:2: time: expected a number, got 'INT'",
        ),
        ("benchmark,time\na,\n", {}, "file:2: time: expected a value, the cell is empty"),
        ("benchmark,time\n", {}, "a heading without a line below it"),
        ("benchmark,time,time\na,1,2\n", {}, "heading 'time' stands there twice; rename one"),
        ("benchmark,time\na,1,234.5\n", {}, "file:2: expected 2 cells, as in the heading, got 3"),
        ("name,ms\na,1\n", None, "--csv --column benchmark=NAME,time=SECONDS"),
    ],
)
def test_a_wrong_table_is_named_with_the_way_out(
    table: str, columns: dict[str, str] | None, problem: str
) -> None:
    with pytest.raises(InputError) as error:
        runs_of(table, columns)
    assert problem in str(error.value)


def test_headings_with_names_behind_a_colon_are_words_and_what_is_left_out_is_said(
    rater: Rater, tmp_path: Path
) -> None:
    table = tmp_path / "named.csv"
    table.write_text("benchmark,time,metric:bw,count:ins,tag:k,colour\na,1,7,1000,v,red\n")
    assert "note: columns left out: colour" in rater("import", table, "--csv")[1]
    [head] = json.loads(rater("list", "--json")[1])
    assert head["tags"] == {"k": "v"}
    csv_text = rater("export", "last", "--format", "csv")[1].splitlines()
    values = dict(zip(csv_text[0].split(","), csv_text[1].split(","), strict=True))
    status, _, err = rater("export", "last", "--format", "trace")  # no start is in the table
    assert status == 2
    assert "when its copies started is not known" in err
    assert float(values["bw ()"]) == 7.0
    assert float(values["ins (count)"]) == 1000.0


def test_a_word_stands_for_one_column(rater: Rater, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,time\nx,y,1\n")
    status, _, err = rater("import", tmp_path / "t.csv", "--column", "benchmark=a,benchmark=b")
    assert status == 2
    assert "--column benchmark=: two columns are given for it" in err


def test_means_of_int_and_fp_are_compared_from_a_table(rater: Rater, tmp_path: Path) -> None:
    """By hand: int sqrt(1.05 x 1.08) = 1.0649, fp sqrt(1.25 x 1.10) = 1.1726."""
    lines = ["benchmark,category,time,tag"]
    for name, category, speedup in (("a", "int", 1.05), ("b", "int", 1.08), ("c", "fp", 1.25)):
        lines += [f"{name},{category},100,4K", f"{name},{category},{100 / speedup!r},64K"]
    lines += ["d,fp,110,4K", "d,fp,100,64K"]
    table = tmp_path / "means.csv"
    table.write_text("\n".join(lines))
    status, out, _ = rater("import", table, "--csv", "--column", "tag:pages=tag")
    assert (status, out.count("(CSV)")) == (0, 2)
    _, out, _ = rater("compare", "tag:pages=4K", "tag:pages=64K", "--json")
    suite = json.loads(out)["suite"]
    ratios = {name: row["points"][0]["speedup"]["ratio"] for name, row in suite.items()}
    assert ratios["int"] == pytest.approx(1.0649, abs=1e-4)
    assert ratios["fp"] == pytest.approx(1.1726, abs=1e-4)


def test_the_same_file_is_imported_once_and_takes_tags(rater: Rater, tmp_path: Path) -> None:
    (tmp_path / "h.json").write_text(json.dumps(HYPERFINE))
    assert rater("import", tmp_path / "h.json", "--tag", "build=old")[0] == 0
    assert "stored already" in rater("import", tmp_path / "h.json")[1]
    [head] = json.loads(rater("list", "--json")[1])
    assert head["tags"] == {"build": "old"}
