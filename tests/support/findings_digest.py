"""Findings in made runs of all kinds, in a few words each, which a test compares.

Findings are stored with `VERSION` of the search; those of another one are searched anew. So
findings may change only together with `VERSION`. `python -m tests.support.findings_digest` (`make
findings`) writes the findings of this code to `tests/analysis/divots/found.json`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from rater.analysis.divots.evidence import add_evidence
from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import (
    VERSION,
    Analysis,
    CellEffect,
    Finding,
    Kind,
    Thresholds,
)
from rater.analysis.divots.model.table import Row
from rater.text.values import to_dict
from tests.support.divot_runs import Machine, Times, analysed, names, quiet, rows_of
from tests.support.example_findings import finding_of
from tests.support.example_runs import S, copy_row, stored
from tests.support.places import CHECKOUT

STORED = CHECKOUT / "tests/analysis/divots/found.json"

# Three digits hold on any version of numpy, whose sums differ in the last of sixteen.
_DIGITS = 3
_NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")
_FOUR_NODES, _ONE_NODE = Machine(4, 8), Machine(1, 32)


def _slowed(where: Any, by: float | Times, *, iterations: int = 3) -> Times:
    """Return times (4, iterations, 32) of a quiet run with those at an index slowed."""
    times = quiet(4, iterations, 32)
    times[where] *= by
    return times


def _turning() -> Times:
    """Return a run in which copies anywhere, other ones each time, are slow."""
    times = quiet(12, 3, 32)
    times[np.random.default_rng(3).random(times.shape) < 0.01] *= 1.2
    return times


def _wandering() -> Times:
    times = quiet(4, 3, 32, noise=0.002)
    for iteration, node in enumerate((2, 0, 3)):
        times[1, iteration, 8 * node : 8 * node + 8] *= 1.06
    return times


def _two_faults() -> Times:
    times = _slowed(np.s_[:, :, 8:16], 1.05)
    times[:, :, 20] *= 1.2
    return times


def _unsteady() -> Times:
    times = quiet(4, 5, 32)
    times[:, :, 9] *= np.exp(0.03 * np.random.default_rng(4).standard_normal((4, 5)))
    return times


def _waiting_for_input() -> Analysis:
    """Return findings of a run in which the copies of one cell compute 80 % of their time."""
    times = _slowed(np.s_[1, 0], 1.3)
    rows: list[Row] = []
    for row in rows_of(times, _FOUR_NODES):
        share = 0.8 if row[:2] == (1, 1) else 1.0
        rows.append((*row[:12], float(row[11] or 0) * share, row[13]))
    return analyse([rows], names(4), Thresholds())


def _without_barrier() -> Analysis:
    rows = rows_of(_slowed(np.s_[:, :, 8:16], 1.1), _FOUR_NODES)
    return analyse([rows], names(4), Thresholds(), barrier=False)


def _measured() -> Analysis:
    """Return a finding with what was recorded of its copies beside their times."""
    slow = (4, 5, 6, 7)
    finding = replace(
        finding_of(Kind.SLOW_LGROUP, "node 1", slow, iterations=(1,), nodes=(1,)),
        cells=(CellEffect(benchmark="a", tune="base", iteration=1, slowdown=1.2, rate_lost=0.06),),
    )
    rows = [
        copy_row(
            number,
            12.0 if number in slow else 10.0,
            node=number // 4,
            cpu_ns=10 * S,
            major_faults=4000 if number in slow else 3,
        )
        for number in range(8)
    ]
    return Analysis(findings=add_evidence([finding], stored(rows, copies=8)), visible={})


def _modes() -> Times:
    times = quiet(5, 2, 64)
    times[2, :, np.random.default_rng(5).random(64) < 0.4] *= 1.12
    return times


def _analyse_times(times: Callable[[], Times], machine: Machine = _FOUR_NODES) -> Analysis:
    return analysed(times(), machine)


def _planted(
    where: Any, by: float | Times, machine: Machine = _FOUR_NODES, iterations: int = 3
) -> Callable[[], Analysis]:
    return partial(_analyse_times, partial(_slowed, where, by, iterations=iterations), machine)


_BY_COPY = 1 + 0.1 * np.arange(32) / 31
_BY_ITERATION = np.array([1.0, 1.01, 1.02, 1.03])[None, :, None]

# Small runs: all of them together take about a second.
MADE_RUNS: Mapping[str, Callable[[], Analysis]] = {
    "nothing is slow": _planted(np.s_[0, 0, 0], 1.0),
    "a copy is slow once": _planted(np.s_[2, 1, 5], 1.4),
    "a copy did half of the work": _planted(np.s_[3, 0, 9], 0.42),
    "a node is slow": _planted(np.s_[:, :, 8:16], 1.1),
    "a node has its memory elsewhere": _planted(
        np.s_[:, :, 8:16], 1.1, Machine(4, 8, memory=dict.fromkeys(range(8, 16), 2))
    ),
    "every second copy is slow": _planted(np.s_[:2, :, 1::2], 1.05, _ONE_NODE),
    "a CPU is slow": _planted(np.s_[:, :, 13], 1.06),
    "an iteration is slow": _planted(np.s_[1, 1], 1.09),
    "iterations get slower": _planted(np.s_[:], _BY_ITERATION, iterations=4),
    "copies are of two speeds": partial(_analyse_times, _modes, Machine(4, 16)),
    "copies wait for input": _waiting_for_input,
    "from an iteration on": _planted(np.s_[:, 4:], 1.1, iterations=8),
    "the first iterations": _planted(np.s_[:, :2], 1.1, iterations=8),
    "later copies are slower": _planted(np.s_[:], _BY_COPY, _ONE_NODE),
    "earlier copies are slower": _planted(np.s_[:], _BY_COPY[::-1], _ONE_NODE),
    "other copies each time": partial(_analyse_times, _turning),
    "nodes take turns": partial(_analyse_times, _wandering),
    "two copies on a CPU": _planted(
        np.s_[:, :, [4, 20]], 1.9, Machine(4, 8, cpu=lambda copy, _: 4 if copy == 20 else copy)
    ),
    "a node and a CPU are slow": partial(_analyse_times, _two_faults),
    "a CPU is unsteady": partial(_analyse_times, _unsteady),
    "a node from an iteration on": _planted(np.s_[:, 4:, 8:16], 1.05, iterations=8),
    "no barrier": _without_barrier,
    "recorded beside times": _measured,
}


def found_now() -> dict[str, Any]:
    """Return `VERSION`, and the findings of each made run: kind, place and a digest of all."""
    runs = {name: _describe(make_analysis()) for name, make_analysis in MADE_RUNS.items()}
    return {"version": VERSION, "runs": runs}


def _describe(analysis: Analysis) -> list[str]:
    values = {"visible": analysis.visible, "noise_cost": analysis.noise_cost}
    lines = [
        f"{finding.kind}, {finding.place}: {_digest(finding)}" for finding in analysis.findings
    ]
    return [*lines, f"beside: {_digest(values)}"]


def _digest(value: Finding | Mapping[str, Any]) -> str:
    text = json.dumps(_rounded(to_dict(value) if isinstance(value, Finding) else value))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _rounded(value: Any) -> Any:
    """Return a document with numbers of a few digits, those in its texts too."""
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if isinstance(value, str):
        return _NUMBER.sub(lambda match: f"{float(match[0]):.{_DIGITS}g}", value)
    return f"{value:.{_DIGITS}g}" if isinstance(value, float) else value


if __name__ == "__main__":
    STORED.write_text(json.dumps(found_now(), indent=1) + "\n")
