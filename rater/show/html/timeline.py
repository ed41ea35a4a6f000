"""Who ran when, and on which machine: bars and CPUs of a page, as JSON values; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rater.analysis.results.copy_outcome import is_good, what_happened
from rater.analysis.results.model import IterationScore, Summary
from rater.record.stored import StoredBracket, StoredCopy, StoredRun
from rater.show.console.format import plain

type RunKey = tuple[str, str | None, int, int]  # benchmark, tune, iteration, copy

_MOST_BARS = 20_000  # of one bracket; more are one a copy


def seconds(value: float) -> float:
    """Return a time with the digits that a picture can show."""
    return float(f"{value:.7g}")


def timeline(summary: Summary, run: StoredRun, kinds: Mapping[RunKey, int]) -> dict[str, Any]:
    """Return who ran when: a bar for each copy run, bracket by bracket.

    Times count from the first start of the bracket. Where starts are not known the bars
    begin together. `kinds`: of copy runs that belong to a divot, which colour they have.
    """
    phases: dict[int, list[StoredCopy]] = {}
    for row in run.copies:
        phases.setdefault(row.phase, []).append(row)
    scores = {
        (it.benchmark, it.tune, it.iteration): it
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
    }
    names = {name: place for place, name in enumerate(run.head.benchmarks)}
    brackets: list[dict[str, Any]] = []
    for bracket in run.brackets:
        rows = phases.get(bracket.phase, [])
        for row in rows:
            names.setdefault(row.benchmark, len(names))
        if not rows:
            continue
        starts = [row.start_ns for row in rows if row.start_ns is not None]
        known = len(starts) == len(rows)
        begin = min(starts) if known else 0
        folded = len(rows) > _MOST_BARS
        bars = _folded(rows, known=known) if folded else rows
        score = (
            scores.get((bracket.benchmark, bracket.tune, bracket.iteration or 0))
            if bracket.benchmark
            else None
        )
        brackets.append(
            {
                "benchmark": None if bracket.benchmark is None else plain(bracket.benchmark),
                "tune": bracket.tune,
                "iteration": bracket.iteration,
                "counted": bracket.counted,
                "known": known,
                "folded": folded,
                "window": [
                    seconds((at - begin) / 1e9)
                    for at in (bracket.window_start_ns, bracket.window_finish_ns)
                    if at is not None
                ],
                **_bracket_score(score, bracket.bracket_s),
                "bars": {
                    "copy": [row.copy for row in bars],
                    "cpu": [row.cpu for row in bars],
                    "core": [row.core for row in bars],
                    "node": [row.node for row in bars],
                    "name": [names[row.benchmark] for row in bars],
                    **_of_several(bracket, bars, folded=folded),
                    "from": [
                        seconds(((row.start_ns or 0) - begin) / 1e9) if known else 0.0
                        for row in bars
                    ],
                    "s": [seconds(row.elapsed_s) for row in bars],
                    "bad": [
                        [place, what_happened(row)]
                        for place, row in enumerate(bars)
                        if not is_good(row)
                    ],
                    "kind": [
                        [place, kind]
                        for place, row in enumerate(bars)
                        if not folded
                        and (kind := kinds.get((row.benchmark, row.tune, row.iteration, row.copy)))
                    ],
                },
            }
        )
    return {
        "names": [plain(name) for name in names],
        "order": run.head.order,
        "brackets": brackets,
    }


def _bracket_score(score: IterationScore | None, measured_s: float | None) -> dict[str, Any]:
    whole = score.bracket_s if score else measured_s
    median = score.median_copy_s if score else None
    return {
        "whole": None if whole is None else seconds(whole),
        "median": None if median is None else seconds(median),
        "lost": score.score_lost if score else None,
    }


def _of_several(
    bracket: StoredBracket, rows: Sequence[StoredCopy], *, folded: bool
) -> dict[str, Any]:
    """Return the iteration and the tune of each row where the bracket is of several of them."""
    if folded:  # a bar is of all runs of its copy
        return {}
    found: dict[str, Any] = {}
    if bracket.iteration is None:
        found["it"] = [row.iteration for row in rows]
    if bracket.tune is None and any(row.tune is not None for row in rows):
        found["tune"] = [row.tune for row in rows]
    return found


def _folded(rows: Sequence[StoredCopy], *, known: bool) -> list[StoredCopy]:
    """Return one row a copy, from its first start to its last finish: thousands have no room.

    Where starts are not `known`, as long as its runs together.
    """
    first: dict[int, StoredCopy] = {}
    ends_ns: dict[int, int] = {}
    busy_ns: dict[int, int] = {}
    for row in rows:
        first.setdefault(row.copy, row)
        ends_ns[row.copy] = (row.start_ns or 0) + row.elapsed_ns
        busy_ns[row.copy] = busy_ns.get(row.copy, 0) + row.elapsed_ns
    return [
        replace(
            row,
            elapsed_ns=ends_ns[copy] - (row.start_ns or 0) if known else busy_ns[copy],
        )
        for copy, row in first.items()
    ]


def machine(run: StoredRun) -> list[list[int | None]]:
    """Return the machine as packages > lgroups > LLCs > cores > CPUs, as far as they are known.

    Of an imported run without a machine: what its copies say of their CPUs.
    """
    places: dict[int, tuple[int | None, ...]] = {
        pu.cpu: (pu.package, pu.node, pu.llc, pu.core) for pu in run.pus
    }
    for row in run.copies:
        if row.cpu is None:
            continue
        of_copy = (row.package, row.node, row.llc, row.core)
        there = places.get(row.cpu, (None,) * 4)
        places[row.cpu] = tuple(
            own if own is not None else told for own, told in zip(there, of_copy, strict=True)
        )
    return [
        [cpu, *place]
        for cpu, place in sorted(places.items(), key=lambda item: (*map(_key, item[1]), item[0]))
    ]


def _key(number: int | None) -> tuple[bool, int]:
    return number is None, number or 0
