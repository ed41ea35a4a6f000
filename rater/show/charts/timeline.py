"""Who ran when: the bars of each bracket as JSON values, for a page and a file; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rater.analysis.results.periods import Period, notable_periods
from rater.analysis.results.result import Result, failure_text
from rater.analysis.results.score import Summary
from rater.analysis.results.series import PhaseTimes
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.stored import StoredRun, is_good
from rater.show.charts.measured import time_text
from rater.show.charts.panels import PLACE, drawn_number, group_rows, value_lists
from rater.show.charts.tracks import band_values, phase_tracks, track_values, tracks_chart
from rater.show.charts.vega import WIDTH, PlacedChart, stacked_svg
from rater.show.screen.format import sanitize
from rater.text.values import group_by_key

type RunKey = tuple[str, str | None, int, int]  # benchmark, tune, iteration, copy

_MOST_HEIGHT = 430
_LETTER = 5.6  # pixels that one of the small text takes, at most
_LEAST_HALVED = 3  # copies
_MOST_BARS = 20_000  # of one bracket; more are one a copy


def timeline(
    summary: Summary,
    run: StoredRun,
    kinds: Mapping[RunKey, int],
    series: Sequence[PhaseTimes] = (),
) -> dict[str, Any]:
    """Return who ran when: a bar for each copy run, bracket by bracket.

    Times count from the first start of the bracket. Where starts are not known the bars
    begin together. `kinds`: of copy runs that belong to a divot, which colour they have.
    `series`: of the run's phases, which become tracks below the bars.
    """
    phases = group_by_key((row.phase, row) for row in run.copies)
    scores = {
        (iteration.benchmark, iteration.tune, iteration.iteration): iteration
        for benchmark in summary.benchmarks
        for iteration in benchmark.iterations
    }
    times_by_phase = {times.phase: times for times in series}
    periods = notable_periods(series)
    names = {name: place for place, name in enumerate(run.head.benchmarks)}
    for row in run.copies:
        names.setdefault(row.benchmark, len(names))
    return {
        "names": [sanitize(name) for name in names],
        "order": run.head.order,
        "brackets": [
            _bracket(
                bracket,
                phases[bracket.phase],
                scores.get((bracket.benchmark or "", bracket.tune, bracket.iteration or 0)),
                names,
                kinds,
            )
            | _over_time(times_by_phase.get(bracket.phase), phases[bracket.phase], periods)
            for bracket in run.brackets
            if bracket.phase in phases
        ],
    }


def _bracket(
    bracket: PhaseEnded,
    rows: Sequence[CopyEnded],
    score: Result | None,
    names: Mapping[str, int],
    kinds: Mapping[RunKey, int],
) -> dict[str, Any]:
    starts = [row.start_ns for row in rows if row.start_ns is not None]
    starts_are_known = len(starts) == len(rows)
    begin = min(starts) if starts_are_known else 0
    folded = len(rows) > _MOST_BARS
    bars = _folded(rows, starts_are_known=starts_are_known) if folded else rows
    of_bars = [
        0 if folded else kinds.get((row.benchmark, row.tune, row.iteration, row.copy), 0)
        for row in bars
    ]
    window = (bracket.window_start_ns, bracket.window_finish_ns)
    return {
        "benchmark": None if bracket.benchmark is None else sanitize(bracket.benchmark),
        "tune": bracket.tune,
        "iteration": bracket.iteration,
        "counted": bracket.counted,
        "known": starts_are_known,
        "folded": folded,
        "window": [
            drawn_number((time_ns - begin) / 1e9) for time_ns in window if time_ns is not None
        ],
        "half": _half(bracket, rows, begin) if starts_are_known and not folded else None,
        "whole": _seconds(score.bracket_s if score else bracket.bracket_s),
        "median": _seconds(score.median_copy_s if score else None),
        "lost": score.score_lost if score else None,
        "bars": {
            **value_lists(bars, PLACE),
            "name": [names[row.benchmark] for row in bars],
            **_of_several(bracket, bars, folded=folded),
            "from": [
                drawn_number(((row.start_ns or 0) - begin) / 1e9) if starts_are_known else 0.0
                for row in bars
            ],
            "s": [drawn_number(row.elapsed_s) for row in bars],
            "bad": [[at, failure_text(row)] for at, row in enumerate(bars) if not is_good(row)],
            "kind": [[at, kind] for at, kind in enumerate(of_bars) if kind],
        },
    }


def _over_time(
    times: PhaseTimes | None, rows: Sequence[CopyEnded], periods: Sequence[Period]
) -> dict[str, Any]:
    """Return tracks and bands of a bracket; without starts there is no axis of time to share."""
    if times is None or any(row.start_ns is None for row in rows):
        return {"tracks": [], "bands": []}
    return {
        "tracks": track_values(phase_tracks(times)),
        "bands": band_values(periods, times.phase),
    }


def _seconds(value: float | None) -> float | None:
    return None if value is None else drawn_number(value)


def _half(bracket: PhaseEnded, rows: Sequence[CopyEnded], begin: int) -> dict[str, Any] | None:
    """Return when the copy ended with which half of those that ended well had; in words too."""
    if bracket.benchmark is None or bracket.window_start_ns is not None:
        return None
    ends = sorted(
        ((row.start_ns or 0) + row.elapsed_ns - begin) / 1e9 for row in rows if is_good(row)
    )
    if len(ends) < _LEAST_HALVED:
        return None
    half_end_s = ends[(len(ends) - 1) // 2]
    half = (
        "half of those that ended well: " if len(ends) < len(rows) else "half had finished after "
    )
    text = half + time_text(half_end_s)
    return {"at": drawn_number(half_end_s), "text": text, "wide": _LETTER * len(text)}


def _of_several(bracket: PhaseEnded, rows: Sequence[CopyEnded], *, folded: bool) -> dict[str, Any]:
    """Return the iteration and the tune of each row where the bracket is of several of them."""
    if folded:  # a bar is of all runs of its copy
        return {}
    columns: dict[str, Any] = {}
    if bracket.iteration is None:
        columns["it"] = [row.iteration for row in rows]
    if bracket.tune is None and any(row.tune is not None for row in rows):
        columns["tune"] = [row.tune for row in rows]
    return columns


def _folded(rows: Sequence[CopyEnded], *, starts_are_known: bool) -> list[CopyEnded]:
    """Return one row a copy, from its first start to its last finish: thousands have no room.

    Where starts are not `known`, as long as its runs together.
    """
    merged_rows = []
    for copy_rows in group_by_key((row.copy, row) for row in rows).values():
        busy_ns = sum(row.elapsed_ns for row in copy_rows)
        end_ns = (copy_rows[-1].start_ns or 0) + copy_rows[-1].elapsed_ns
        elapsed_ns = end_ns - (copy_rows[0].start_ns or 0) if starts_are_known else busy_ns
        merged_rows.append(replace(copy_rows[0], elapsed_ns=elapsed_ns))
    return merged_rows


def timeline_svg(run: Mapping[str, Any], bracket_number: int) -> str:
    """Return who ran when in one bracket of `run_data`'s value as an SVG."""
    bracket, names = run["timeline"]["brackets"][bracket_number], run["names"]
    bars, places = bracket["bars"], {name: place for place, name in enumerate(names)}
    kinds, bad = dict(bars["kind"]), dict(bars["bad"])
    rows = []
    for number, elapsed_s in enumerate(bars["s"]):
        by_cpu = run["axis"] == "CPU" and bars["cpu"][number] is not None
        name = bars["cpu" if by_cpu else "copy"][number]
        if name in places:
            rows.append(
                {
                    "place": places[name],
                    "from": bars["from"][number],
                    "to": bars["from"][number] + elapsed_s,
                    "kind": kinds.get(number, 0),
                    "odd": bracket["benchmark"] is None and bars["name"][number] % 2,
                    "bad": number in bad,
                }
            )
    iteration = "" if bracket["iteration"] is None else f", iteration {bracket['iteration']}"
    thick = 4 if len(places) > 40 else 9 if len(places) > 8 else 14
    height = max(28, min(_MOST_HEIGHT, thick * len(places)))
    chart = {
        "signals": {"places": max(1, len(places))},
        "data": {
            "groups": group_rows(run["groups"]),
            "bars": rows,
            "marks": [bracket["half"]] if bracket["half"] else [],
            "edges": [{"at": edge} for edge in bracket["window"]],
        },
    }
    return stacked_svg(
        f"who ran when: run {run['run']}, {bracket['benchmark'] or 'all benchmarks'}{iteration}",
        [
            PlacedChart(kind="timeline", chart=chart, width=WIDTH, height=height),
            *([tracks_chart(bracket, _end_s(bars), WIDTH)] if bracket["tracks"] else []),
        ],
    )


def _end_s(bars: Mapping[str, Any]) -> float:
    """Return when the last of a bracket's bars ends."""
    ends = (begin + elapsed_s for begin, elapsed_s in zip(bars["from"], bars["s"], strict=True))
    return max(ends, default=1.0)
