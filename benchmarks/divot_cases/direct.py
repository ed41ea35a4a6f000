"""Documents of observations to the detector without a database between: quick, for many runs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from benchmarks.divot_cases.cases import Case
from rater.analysis.divots.findings import build_findings
from rater.analysis.divots.model.finding import Finding, Thresholds
from rater.analysis.divots.model.search import search
from rater.analysis.divots.model.table import Machine, Row, Table, build_table
from tests.support.places import DIVOT_CASES


def table_of(document: Mapping[str, Any], llc: Mapping[int, int] | None = None) -> Table:
    """Return the table that the detector reads; `llc`: of each copy, which documents lack."""
    benchmarks: dict[tuple[str, str | None], int] = {}
    rows: list[Row] = []
    for observation in document["observations"]:
        number = benchmarks.setdefault(
            (observation["benchmark"], observation.get("tune")), len(benchmarks)
        )
        start, cpu_s = observation.get("start_s"), observation.get("cpu_s")
        (memory,) = observation.get("mem_nodes") or [observation.get("memory")]
        rows.append(
            (
                number,
                observation["iteration"],
                observation["copy"],
                0,
                observation.get("cpu"),
                observation.get("core"),
            )
            + (None if llc is None else llc[observation["copy"]],)
            + (observation.get("node"), observation.get("package"), memory)
            + (None if start is None else start * 1e9, observation["elapsed_s"] * 1e9)
            + (None if cpu_s is None else cpu_s * 1e9, observation.get("status", "ok") == "ok")
        )
    cores = (document.get("topology") or {}).get("cores") or {}
    pus = tuple((cpu, len(cpus)) for cpus in cores.values() for cpu in cpus)
    barrier = (document.get("run") or {}).get("mode") != "rotated"
    table = build_table([rows], list(benchmarks), machine=Machine(pus), barrier=barrier)
    assert table is not None
    return table


def table_of_case(case: Case) -> Table:
    """Return a made run as it would be imported, with its LLCs."""
    at = case.shape.copies
    known = dict(enumerate(at.llc.tolist())) if case.shape.known else None
    return table_of(case.document(), known)


def findings_in(table: Table) -> Sequence[Finding]:
    """Return the findings of a run, without the sizes that would have been visible."""
    return build_findings(search(table, Thresholds()))


def shared_cases() -> list[tuple[str, Table]]:
    """Return the shared cases with a known truth, by name; empty if they are missing."""
    paths = sorted((DIVOT_CASES / "cases").glob("*.json"))
    return [(path.stem, table_of(json.loads(path.read_text()))) for path in paths]


@cache
def scorer() -> Any:
    """Return the module that comes with those cases."""
    spec = importlib.util.spec_from_file_location("score", DIVOT_CASES / "score.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def for_scorer(name: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return elements of a divots document as the scorer reads them: it compares numbers."""
    return [{**row, "case": name, "copies": len(row["copies"])} for row in rows]
