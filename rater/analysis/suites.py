"""Suite ratios, and over which of a suite's benchmarks they are; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rater.analysis.stats import geometric_mean
from rater.record import RunHead

if TYPE_CHECKING:
    from rater.analysis.score import BenchmarkScore

_LEFT_OUT = re.compile(r"left out: ([^:]+): (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SuiteScore:
    """Geometric mean of ratios."""

    kind: str  # "all", "int" or "fp"
    tune: str | None
    ratio: float | None
    over: tuple[str, ...]  # the benchmarks it is, or would be, over
    reason: str | None  # why there is none, in words


def left_out(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the benchmarks that a run's warnings say were left out, each with the reason."""
    found = [match for text in warnings if (match := _LEFT_OUT.fullmatch(text))]
    return tuple((match[1], match[2]) for match in found)


def is_selection(head: RunHead) -> bool:
    """Tell whether the user asked for single benchmarks, `SUITE/BENCHMARK`."""
    try:
        request = json.loads(head.request or "{}")
    except ValueError:
        return False
    asked = request.get("suites") if isinstance(request, dict) else None
    return isinstance(asked, list) and any(
        isinstance(one, str) and one.endswith(f"/{name}")
        for one in asked
        for name in head.benchmarks
    )


def suite_scores(benchmarks: Sequence[BenchmarkScore]) -> tuple[SuiteScore, ...]:
    """Return the scores over all benchmarks, over int and over fp, for each tune."""
    tunes = dict.fromkeys(benchmark.tune for benchmark in benchmarks)
    scores = []
    for tune in tunes:
        of_tune = [benchmark for benchmark in benchmarks if benchmark.tune == tune]
        scores.append(_suite("all", tune, of_tune))
        scores += [
            _suite(kind, tune, [b for b in of_tune if b.category == kind]) for kind in ("int", "fp")
        ]
    return tuple(scores)


def _suite(kind: str, tune: str | None, members: Sequence[BenchmarkScore]) -> SuiteScore:
    over = tuple(member.benchmark for member in members)
    reason = None
    missing = [member for member in members if member.reason or member.ratio is None]
    # What failed may be all the file knows of a benchmark, its reference time not among it.
    without = [member for member in members if not (member.reference_s or member.reason)]
    if not members:
        reason = "no benchmarks" if kind == "all" else f"no {kind} benchmark in this run"
    elif without:
        reason = f"no reference time: {_names(without)}"
    elif missing:
        reason = f"not complete: {_names(missing)}"
    ratio = None if reason else geometric_mean([member.ratio or 0.0 for member in members])
    return SuiteScore(kind, tune, ratio, over, reason)


def _names(benchmarks: Iterable[BenchmarkScore]) -> str:
    return ", ".join(benchmark.benchmark for benchmark in benchmarks)
