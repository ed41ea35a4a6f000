"""Charts of several runs, comparison and scaling, as JSON values that a page draws; pure.

Places are in the units of the drawing: logarithms where numbers of copies reach far.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rater.analysis.compare.model import Comparison, Effect, EffectRow
from rater.analysis.scaling.curve import Curve, ScalePoint, Series
from rater.analysis.stats.ratio_interval import Decision
from rater.analysis.stats.usl import Usl
from rater.show.console.format import number, plain
from rater.text.words import copies_text

_KINDS = {Decision.BETTER: "better", Decision.WORSE: "worse", Decision.SAME: "same"}
_SIGNS = {Decision.BETTER: "+", Decision.WORSE: "\u2212", Decision.SAME: "=", Decision.UNKNOWN: "?"}
_SUITES = {"all": "suite", "int": "suite, int", "fp": "suite, fp"}
_MOST_LINES = 120  # of the comparison; of more than these only suites are drawn
_LOG_RANGE = 16  # from this range of copies on both axes are logarithmic
_STEPS = 60  # of a drawn law
_MOST_SHADES = 3
_FAR = 1.5  # times the largest ratio, or less than the smallest: no interval is drawn beyond
_PAD = 0.05  # of the range of the ratios, at both ends


def comparison_data(comparison: Comparison) -> dict[str, Any] | None:
    """Return speedups with their intervals, benchmarks that got slowest first; None: there is none.

    Of several sides each has a line in every benchmark.
    """
    suites = comparison.suites[:1]
    rows = [row for row in comparison.benchmarks if _ratio(row) is not None]
    rows.sort(key=lambda row: _ratio(row) or 1.0)
    if len(rows) * (len(comparison.sides) - 1) > _MOST_LINES and suites:
        rows = []
    shown = [row for row in (*suites, *rows) if _ratio(row) is not None]
    lines = [
        _line(row, cell, at, place, comparison)
        for at, row in enumerate(shown)
        for place, cell in enumerate(row.cells)
        if cell.speedup is not None
    ]
    if not lines:
        return None
    ratios = [1.0, *(line["ratio"] for line in lines)]
    low, high = min(ratios) / _FAR, max(ratios) * _FAR  # wide intervals go out of the picture
    ends = [
        *ratios,
        *(min(high, max(low, line[end])) for line in lines for end in ("low", "high")),
    ]
    pad = _PAD * max(0.02, max(ends) - min(ends))
    return {
        "baseline": plain(comparison.sides[0].label),
        "sides": [plain(side.label) for side in comparison.sides[1:]],
        "names": [plain(_name(row)) for row in shown],
        "low": min(ends) - pad,
        "high": max(ends) + pad,
        "lines": lines,
    }


def _name(row: EffectRow) -> str:
    if row.over:
        return _SUITES.get(row.name, row.name)
    return f"{row.name} {row.tune}" if row.tune else row.name


def _ratio(row: EffectRow) -> float | None:
    return next((cell.speedup.ratio for cell in row.cells if cell.speedup), None)


def _line(
    row: EffectRow, cell: Effect, at: int, place: int, comparison: Comparison
) -> dict[str, Any]:
    told = cell.speedup
    assert told is not None
    side = plain(comparison.sides[place + 1].label)
    interval = (
        "no interval"
        if told.low is None or told.high is None
        else f"{comparison.confidence * 100:.3g} % interval {told.low:.3f} to {told.high:.3f}"
    )
    values = f"{number(cell.baseline)} to {number(cell.value)} {row.unit}"
    return {
        "row": at,
        "side": place,
        "ratio": round(told.ratio, 6),
        "low": round(told.low if told.low is not None else told.ratio, 6),
        "high": round(told.high if told.high is not None else told.ratio, 6),
        "kind": _KINDS.get(told.verdict, "unknown"),
        "text": f"{told.ratio:.3f} {_SIGNS[told.verdict] * (2 if cell.holds else 1)}",
        "card": [f"{plain(_name(row))}, {side}", told.words, interval, values],
    }


def scaling_data(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return a panel of speedups for each curve, then one of throughput for each benchmark."""
    names = list(dict.fromkeys(one.name for curve in curves for one in curve.series))
    return [
        *(_speedups(curve) for curve in curves),
        *(_throughput(name, curves) for name in names),
    ]


def _copies(many: int) -> str:
    return copies_text(many)


def _axes(copies: Sequence[int]) -> Callable[[float], float]:
    far = max(copies) >= _LOG_RANGE * min(copies)
    return (lambda value: math.log2(max(value, 1e-9))) if far else float


def _speedups(curve: Curve) -> dict[str, Any]:
    """All benchmarks of a curve: against the smallest number of copies, with the linear line."""
    at = _axes(curve.copies)
    first, last = curve.copies[0], curve.copies[-1]
    by_end = sorted(curve.series, key=lambda one: one.points[-1].speedup)
    named = {id(one) for one in (by_end[0], by_end[-1], *curve.suites[:1])}
    return {
        "title": plain(
            f"speedup over {first} cop{'y' if first == 1 else 'ies'} {curve.name}".strip()
        ),
        "lines": [
            {
                "shade": 0 if one.is_suite else 2,
                "at": [[at(p.copies), at(p.speedup)] for p in one.points],
            }
            for one in curve.series
        ],
        "dots": [
            _dot(one, point, at, (point.speedup,), 0 if one.is_suite else 2)
            for one in curve.series
            for point in one.points
        ],
        "linear": [[at(first), at(1.0)], [at(last), at(last / first)]],
        "knees": [],
        "names": [
            [at(one.points[-1].copies), at(one.points[-1].speedup), plain(_series_name(one)), 0]
            for one in by_end
            if id(one) in named
        ],
        "ends": [[at(by_end[-1].points[-1].speedup), f"{by_end[-1].points[-1].speedup:.3g} x"]],
        "copies": [[at(copies), str(copies)] for copies in curve.copies],
        "bottom": at(1.0) if at(4.0) == 2.0 else 0.0,
        "shared": False,
    }


def _throughput(name: str, curves: Sequence[Curve]) -> dict[str, Any]:
    found = [
        (place, curve, one)
        for place, curve in enumerate(curves)
        for one in curve.series
        if one.name == name
    ]
    at = _axes(sorted({copies for _, curve, _ in found for copies in curve.copies}))
    _, _, main = found[0]
    first, last = main.points[0], main.points[-1]
    best = max(main.points, key=lambda point: point.rate)
    rates = [rate for *_, one in found for point in one.points for rate in point.rates]
    return {
        "title": plain(f"{_series_name(main)}, {main.unit}"),
        "lines": [
            {"shade": min(place, _MOST_SHADES), "at": _course(one, at)} for place, _, one in found
        ],
        "dots": [
            _dot(one, point, at, point.rates, min(place, _MOST_SHADES))
            for place, _, one in found
            for point in one.points
        ],
        "linear": [
            [at(first.copies), at(first.rate)],
            [at(last.copies), at(first.rate / first.copies * last.copies)],
        ],
        "knees": [
            [at(knee.copies), at(knee.rate), f"knee {knee.copies}"]
            for *_, one in found
            if one.shape.knee is not None and (knee := one.at(one.shape.knee)) is not None
        ],
        "names": [
            [at(one.points[-1].copies), at(one.points[-1].rate), plain(curve.name), place]
            for place, curve, one in found
            if curve.name
        ],
        "ends": [[at(value), number(value)] for value in dict.fromkeys((first.rate, best.rate))],
        "copies": [
            [at(copies), str(copies)]
            for copies in sorted({copies for _, curve, _ in found for copies in curve.copies})
        ],
        "bottom": at(min(rates)) if at(4.0) == 2.0 else 0.0,
        "top": at(max(rates)),
        "shared": True,
    }


def _series_name(one: Series) -> str:
    return _SUITES.get(one.name, one.name) if one.is_suite else one.name


def _course(one: Series, at: Callable[[float], float]) -> list[list[float]]:
    """Return the law where it fits, else the measured points one after the other."""
    law = one.law
    if not isinstance(law, Usl) or law.bad:
        return [[at(point.copies), at(point.rate)] for point in one.points]
    low, high = law.copies[0], law.copies[-1]
    copies = [low * (high / low) ** (i / _STEPS) for i in range(_STEPS + 1)]
    return [[at(many), at(law.at(many))] for many in copies]


def _dot(
    one: Series,
    point: ScalePoint,
    at: Callable[[float], float],
    ends: Sequence[float],
    shade: int,
) -> dict[str, Any]:
    runs = f"run{'' if len(point.runs) == 1 else 's'} {', '.join(map(str, point.runs))}"
    return {
        "x": at(point.copies),
        "y": at(statistics.median(ends)),
        "low": at(min(ends)),
        "high": at(max(ends)),
        "shade": shade,
        "card": [
            plain(f"{_series_name(one)}, {_copies(point.copies)}"),
            f"{number(point.rate)} {one.unit}",
            f"speedup {point.speedup:.3g}, efficiency {point.efficiency * 100:.3g} %",
            runs,
        ],
    }
