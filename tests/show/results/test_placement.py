"""Screens of runs whose copies were looked at, or report odd metrics."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from rater.analysis.results.score import summarise
from rater.cli import main
from rater.errors import InputError
from rater.files import folder
from rater.plan.request import request_from_json
from rater.record.events import GateFacts
from rater.record.run import MetricUsed, PlacedCopy
from rater.record.stored import StoredRun
from rater.show.console import Printer
from rater.show.results.placement import print_metrics
from rater.show.results.run import print_proof
from rater.show.results.to_json import summary_document
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.example_runs import copy_row, in_turn, stored, windowed
from tests.support.looked_at import until_looked_at
from tests.support.placement_samples import FOUR_PUS, MB, PLACED, sample, seen_run, store_run
from tests.support.printed import printed


def shown(run: StoredRun, width: int = 100, **options: Any) -> str:
    return printed(summarise(run), width, after_run=False, **options)


def proofs(run: StoredRun) -> str:
    out = io.StringIO()
    print_proof(summarise(run), Printer(Console(file=out, width=100)))
    return out.getvalue()


def test_a_run_with_a_copy_whose_memory_lay_elsewhere_is_marked() -> None:
    lines = shown(seen_run()).splitlines()
    assert [line.split()[-1] for line in lines[4:8]] == ["as", "planned", "1", "25.0"]
    not_met = [
        "placement of 8 copy runs: met 7, not met 1; the results above include these misplaced "
        "copies",
        "not met: copy 1 of a, iteration 1 (CPU 1, lgroup 0): 75 % of its 400 MB lay on lgroup 1, "
        "planned 0;",
        "    the kernel names its policy local",
    ]
    assert lines[10:] == not_met
    every = shown(seen_run(), verbose=True).splitlines()
    assert every[every.index(not_met[0]) :] == [
        *not_met,
        "benchmark    seen  resident  most     4 KB  local  least  moves",
        "           copies        MB    MB  pages %      %      %  /copy",
        "a             8/8       401   402      100   90.6   25.0    0.0",
        "pages %, local %: share of anonymous memory. local: on the planned or home node. least: "
        "worst copy.",
        "    moves: CPU migrations.",
        "8 samples of running copies: 0.40 % of one CPU, 3.0 ms at most",
    ]


def test_a_run_as_planned_has_no_mark_and_one_line_more_with_all_details() -> None:
    lines = shown(seen_run(remote=None)).splitlines()
    assert not any("not as" in line or "planned" in line for line in lines)
    assert "placement as planned: 8 copy runs" in shown(seen_run(remote=None), verbose=True)


def test_a_run_that_was_not_looked_at_says_nothing_of_it() -> None:
    run = seen_run()
    copies = tuple(replace(copy, gate=None) for copy in run.copies)
    bare = replace(run, samples=(), observed=None, copies=copies)
    assert "placement" not in shown(bare, verbose=True)
    assert "looks at" not in proofs(bare)


def test_copies_that_were_not_bound_have_memory_but_no_verdict() -> None:
    run = seen_run()
    free = tuple(PlacedCopy(n, None, None, None, None, None, None, "none", ()) for n in range(4))
    text = shown(replace(run, placements=free), verbose=True)
    assert "placement" not in text
    assert "resident" in text


def test_a_discarded_iteration_is_not_in_the_results() -> None:
    run = seen_run(discard=1)
    discarded = replace(
        run,
        copies=tuple(replace(it, counted=it.iteration > 1) for it in run.copies),
        brackets=tuple(replace(it, counted=(it.iteration or 0) > 1) for it in run.brackets),
    )
    text = shown(discarded)
    assert "met 7, not met 1\n" in text


def test_the_memory_of_many_benchmarks_is_shown_when_asked_for() -> None:
    gate = GateFacts((0,), (0, 1))
    rows = [copy_row(0, 3.0, phase=p, benchmark=name, gate=gate) for p, name in enumerate("abcd")]
    samples = (sample({0: MB}, phase=p, copy=0, cpus=(0,), allowed=(0,)) for p in range(4))
    run = replace(
        stored(rows, copies=1), placements=PLACED[:1], pus=FOUR_PUS, samples=tuple(samples)
    )
    assert "resident" not in shown(run, verbose=True)
    assert "`rater show 7 --proof`" in shown(run, verbose=True)
    assert "resident" in proofs(run)


def test_a_window_with_a_copy_that_was_not_placed_as_planned_is_marked() -> None:
    rows = [
        row
        for n in range(2)
        for row in in_turn(n, [1.0] * 10, node=0, last_cpu=n, gate=GateFacts((n or 3,), (0,)))
    ]
    run = replace(windowed(rows, 2.0, 8.0), placements=PLACED[:2], pus=FOUR_PUS)
    text = shown(run)
    assert "planned\n" in text
    assert "placement of 20 copy runs: met 10, not met 10" in text
    assert text.count("not met: copy 0 of a") == 10


def test_the_document_names_the_copies_of_every_iteration() -> None:
    document: Any = json.loads(json.dumps(summary_document(summarise(seen_run()))))
    assert [it["placement_not_met"] for it in document["benchmarks"]] == [[1], []]


# -- as it is typed -------------------------------------------------------------------------------


def test_show_has_the_verdicts_for_people_and_programs(rater: Rater, tmp_path: Path) -> None:
    with open_store(tmp_path / "rater.db") as store:
        store_run(store)
    _, out, _ = rater("show", "--proof")
    assert "not met: copy 0 of gups, iteration 1 (CPU 0, lgroup 0): may use" not in out
    assert "not met: copy 0 of gups, iteration 1 (CPU 0, lgroup 0): bound to CPUs 0-2,4" in out
    _, out, _ = rater("--json", "show")
    placement = json.loads(out)["placement"]
    assert (placement["met"], placement["not_met"], placement["not_known"]) == (0, 2, 0)
    assert placement["copies_listed"] == "all"
    assert [it["verdict"] for it in placement["copies"]] == ["not met", "not met"]
    assert placement["not_known_because"] == []
    assert placement["observed"]["cadence"] == "auto"
    _, out, _ = rater("export", 1, "--format", "json")
    assert len(json.loads(out)["samples"]) == 3


@pytest.mark.slow
def test_run_looks_at_its_copies_as_often_as_asked_and_remembers(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nap = ("--", "sh", "-c", until_looked_at(tmp_path, monkeypatch, 2))
    status, out, _ = rater("--json", "run", "--copies", 2, "--proof", "once", *nap)
    assert status == 0
    placement = json.loads(out)["placement"]
    assert placement["met"] == 2
    assert placement["observed"]["samples"] == 2
    assert [it["seen"]["samples"] for it in placement["copies"]] == [1, 1]
    status, out, _ = rater("--json", "rerun", "last")
    assert json.loads(out)["placement"]["observed"]["cadence"] == "once"
    status, out, _ = rater("--json", "run", "--copies", 2, "--proof", "off", "--", "true")
    assert json.loads(out)["placement"]["copies"] == []
    assert json.loads(out)["placement"]["observed"] is None


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_what_was_not_met_is_in_queries_and_exports_and_survives_an_import(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    astray = "import os; os.sched_setaffinity(0, {max(os.sched_getaffinity(0) ^ EVERY)})"
    every = ", ".join(map(str, os.sched_getaffinity(0)))
    code = astray.replace("EVERY", f"{{{every}}}")
    python = ("--", sys.executable, "-S", "-c", code)
    assert rater("run", "--copies", 1, "--quiet", *python)[0] == 0
    query = (folder("db") / "queries" / "placement.sql").read_text()
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as db:
        [row] = db.execute(query, {"run": None}).fetchall()
    assert row[2:5] == (0, 0, "not met")
    assert row[5].startswith("ran on CPU ")
    _, csv, _ = rater("export", 1, "--format", "csv")
    assert ",not met," in csv
    _, document, _ = rater("export", 1, "--format", "observations")
    assert json.loads(document)["observations"][0]["placement"] == "not met"
    other = json.loads(document)
    other["run"]["uuid"] = "another"
    (tmp_path / "it.json").write_text(json.dumps(other))
    assert rater("import", tmp_path / "it.json")[0] == 0
    _, out, _ = rater("show", "last")
    assert "not met 1; the results above include these misplaced" in out


def test_a_placement_of_another_tool_s_making_is_left_alone(rater: Rater, tmp_path: Path) -> None:
    run = {"uuid": "x", "host": "h", "mode": "homogeneous", "copies": 1, "started_at": None}
    seen = {"benchmark": "a", "iteration": 1, "copy": 0, "elapsed_s": 1.0, "placement": {"cpu": 1}}
    document = {"rater": 1, "run": run, "observations": [seen]}
    (tmp_path / "it.json").write_text(json.dumps(document))
    assert rater("import", tmp_path / "it.json")[0] == 0
    assert "placement" not in rater("show", "last")[1]
    _, out, _ = rater("show", "last", "--proof")
    assert "Placement was not sampled (--proof off, or an imported run)." in out


def test_a_proof_that_is_none_is_refused_with_what_there_is() -> None:
    assert request_from_json("{}", "run 1").proof == "auto"
    assert main(["run", "--proof", "0.01", "--", "true"]) == 2
    with pytest.raises(InputError, match="damaged: proof"):
        request_from_json('{"proof": 1}', "run 1")


def test_a_rotated_table_counts_the_copies_that_were_not_placed_as_planned() -> None:
    rows = [
        row
        for n in range(2)
        for row in in_turn(n, [1.0, 2.0], names="ab", node=0, gate=GateFacts((n or 3,), (0,)))
    ]
    run = stored(rows, mode="rotated", order="rotated", copies=2)
    lines = shown(replace(run, placements=PLACED[:2], pus=FOUR_PUS)).splitlines()
    assert any(line.startswith("a ") and line.split()[-1] == "1" for line in lines)
    assert any("planned" in line for line in lines[:6])


def shown_metrics(
    metrics: Sequence[MetricUsed], values: Sequence[Sequence[float]], *, width: int = 100
) -> list[str]:
    """What is printed of metrics of which copy c reported values[c], each on an own lgroup."""
    rows = [
        replace(
            copy_row(c, 1.0, node=c),
            metrics=tuple(zip((metric.name for metric in metrics), of, strict=True)),
        )
        for c, of in enumerate(values)
    ]
    run = stored(rows, copies=len(values))
    run = replace(run, benchmarks=(replace(run.benchmarks[0], metrics=tuple(metrics)),))
    out = io.StringIO()
    print_metrics(summarise(run).metrics, Printer(Console(file=out, width=width)))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def metric(name: str, combine: str = "mean", unit: str = "s") -> MetricUsed:
    return MetricUsed(name, unit, "lower", combine)


def test_small_and_huge_values_keep_their_digits_and_their_columns() -> None:
    metrics = [metric("tiny"), metric("huge"), metric("digits"), metric("usual")]
    lines = shown_metrics(metrics, [[3.2e-9, 1.8e19, 1e200, 1.5], [3.4e-9, 1.9e19, 2e200, 2.5]])
    assert [line[:28] for line in lines[2:6]] == [
        "a          tiny     3.300e-0",
        "           huge     1.850e+1",
        "           digits  1.500e+20",
        "           usual         2.0",
    ]
    assert [line.split()[-6:] for line in lines[2:6]] == [
        ["3.200e-09", "3.300e-09", "3.400e-09", "1,", "1,", "1"],
        ["1.800e+19", "1.850e+19", "1.900e+19", "1,", "1,", "1"],
        ["1.000e+200", "1.500e+200", "2.000e+200", "1,", "1,", "1"],
        ["1.50", "2.00", "2.50", "1,", "1,", "1"],
    ]
    assert lines[-4:] == [
        "a tiny, s        3.200e-09   3.400e-09",
        "a huge, s        1.800e+19   1.900e+19",
        "a digits, s     1.000e+200  2.000e+200",
        "a usual, s            1.50        2.50",
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_a_long_unit_takes_no_room_of_the_values(width: int) -> None:
    lines = shown_metrics([metric("speed", unit="u" * 300)], [[1.5], [2.5]], width=width)
    assert lines[2].split()[2] == "2.00"
    assert lines[2].split()[3].startswith("u" * 8)
    assert "u" * 17 not in "".join(lines)


def test_of_many_lgroups_the_extremes_are_told_and_of_what_cannot_be_added_up_the_reason() -> None:
    lines = shown_metrics([metric("tiny")], [[(c + 1) * 1e-9] for c in range(20)])
    assert " ".join(line.strip() for line in lines).endswith(
        "a, tiny: mean over the copies of a NUMA node: 1.000e-09 (node 0) to 2.000e-08 (node 19) s"
    )
    lines = shown_metrics([metric("much", "sum")], [[1e308], [1.2e308]])
    assert lines[2].split()[:4] == ["a", "much", "s", "sum"]
    assert lines[3] == "a, much: no value: too large to add up"
