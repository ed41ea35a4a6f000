"""Screens of runs whose copies were looked at, or report odd metrics."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rater.analysis.results.score import summarise
from rater.commands.cli import main
from rater.plan.request import request_from_json
from rater.show.results.run_document import summary_document
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.system.paths import data_folder
from tests.support.calls import Rater
from tests.support.looked_at import until_looked_at
from tests.support.placement_samples import seen_run, store_run
from tests.support.printed import in_words


def test_the_document_names_the_copies_of_every_iteration() -> None:
    document: Any = json.loads(json.dumps(summary_document(summarise(seen_run()))))
    assert [benchmark["placement_not_met"] for benchmark in document["benchmarks"]] == [[1], []]


# -- on the command line --------------------------------------------------------------------------


def test_show_has_the_verdicts_for_people_and_programs(rater: Rater, tmp_path: Path) -> None:
    with open_store(tmp_path / "rater.db") as store:
        store_run(store)
    _, out, _ = rater("show", "--proof")
    assert "copy 0 of gups, iteration 1 (CPU 0, node 0): may use" not in out
    assert "copy 0 of gups, iteration 1 (CPU 0, node 0): bound to CPUs" in in_words(out)
    _, out, _ = rater("--json", "show")
    placement = json.loads(out)["placement"]
    assert (placement["met"], placement["not_met"], placement["not_known"]) == (0, 2, 0)
    assert placement["copies_listed"] == "all"
    assert [copy["verdict"] for copy in placement["copies"]] == ["not met", "not met"]
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
    assert [copy["seen"]["samples"] for copy in placement["copies"]] == [1, 1]
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
    query = (data_folder("db") / "queries" / "placement.sql").read_text()
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
    assert "the results include the misplaced copies" in in_words(out)


def test_a_placement_of_another_tool_s_making_is_left_alone(rater: Rater, tmp_path: Path) -> None:
    run = {"uuid": "x", "host": "h", "mode": "homogeneous", "copies": 1, "started_at": None}
    seen = {"benchmark": "a", "iteration": 1, "copy": 0, "elapsed_s": 1.0, "placement": {"cpu": 1}}
    document = {"rater": 1, "run": run, "observations": [seen]}
    (tmp_path / "it.json").write_text(json.dumps(document))
    assert rater("import", tmp_path / "it.json")[0] == 0
    assert "placement" not in rater("show", "last")[1]
    _, out, _ = rater("show", "last", "--proof")
    assert "placement  not sampled (--proof off, or an imported run)" in out


def test_a_proof_that_is_none_is_refused_with_what_there_is() -> None:
    assert request_from_json("{}", "run 1").proof == "auto"
    assert main(["run", "--proof", "0.01", "--", "true"]) == 2
    with pytest.raises(InputError, match="damaged: proof"):
        request_from_json('{"proof": 1}', "run 1")
