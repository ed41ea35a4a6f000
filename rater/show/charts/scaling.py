"""Throughput against copies as charts, for a page and a file; pure but for drawing them.

Dots are medians of runs, with a line from the lowest to the highest; the dashed line is linear
from the first point, the curve the Universal Scalability Law where it fits. Places are in the
units of the drawing: logarithms where numbers of copies reach far.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from rater.analysis.compare.scaling import Curve, ScalePoint, Series
from rater.analysis.results.copies import Share
from rater.analysis.stats.curves import Usl
from rater.show.charts.vega import SUITES, PlacedChart, PlacedText, sheet_svg
from rater.show.format import format_number, sanitize
from rater.text.values import copies_text

_LOG_RANGE = 16  # from this range of copies on both axes are logarithmic
_STEPS = 60  # of a drawn law
_MOST_SHADES = 3


def curves_svg(curves: Sequence[Curve]) -> str:
    """Return the throughput of all curves as an SVG, a panel for each benchmark."""
    charts = throughput_charts(curves)
    columns = 1 if len(charts) == 1 else 2 if len(charts) <= 4 else 3 if len(charts) <= 12 else 4
    width, height = (560.0, 320.0) if columns == 1 else (200.0, 150.0)
    named = any(curve.name for curve in curves)
    wide = {"room": 150.0} if named else {}
    figures = [
        PlacedChart(
            "scaling",
            chart | {"signals": chart["signals"] | wide},
            width,
            height,
            [
                PlacedText(0, -10, chart["title"], weight="bold"),
                PlacedText(width / 2, height + 28, "copies", "faint", "center"),
            ],
            above=30,
            right=wide.get("room", 0.0),
        )
        for chart in charts
    ]
    conditions = dict(curves[0].conditions)
    notes = [
        "dots: medians of runs; dashed: linear; curve: Universal Scalability Law, where it fits",
        *(["shade: copies share cores, darker: CPUs"] if charts[0]["data"]["shared"] else []),
    ]
    return sheet_svg(
        f"throughput against copies, {conditions.get('suite', '')} on {conditions.get('host', '')}",
        figures,
        columns=columns,
        notes=[PlacedText(50, 33 + 13 * i, note, "faint") for i, note in enumerate(notes)],
    )


def scaling_charts(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return a panel of speedups for each curve, then one of throughput for each benchmark."""
    return [*(_speedups(curve) for curve in curves), *throughput_charts(curves)]


def throughput_charts(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """Return a panel of throughput for each benchmark, all curves in it."""
    names = dict.fromkeys(one.name for curve in curves for one in curve.series)
    return [_throughput(name, curves) for name in names]


def _axes(copies: Sequence[int]) -> Callable[[float], float]:
    far = max(copies) >= _LOG_RANGE * min(copies)
    return (lambda value: math.log2(max(value, 1e-9))) if far else float


def _speedups(curve: Curve) -> dict[str, Any]:
    """All benchmarks of a curve: against the smallest number of copies, with the linear line."""
    at = _axes(curve.copies)
    first, last = curve.copies[0], curve.copies[-1]
    by_end = sorted(curve.series, key=lambda one: one.points[-1].speedup)
    named = [by_end[0], *curve.suites[:1], by_end[-1]]
    most = by_end[-1].points[-1].speedup
    shade = {id(one): _shade(0 if one.is_suite else 2) for one in curve.series}
    return _chart(
        sanitize(f"speedup over {copies_text(first)} {curve.name}".strip()),
        at=at,
        curve=curve,
        copies=curve.copies,
        courses=[
            (shade[id(one)], [(at(p.copies), at(p.speedup)) for p in one.points])
            for one in curve.series
        ],
        dots=[
            _dot(one, point, at, (point.speedup,), shade[id(one)])
            for one in curve.series
            for point in one.points
        ],
        linear=((first, 1.0), (last, last / first)),
        ends=((most, f"{most:.3g} x"),),
        names=[
            (one.points[-1].speedup, sanitize(_series_name(one)), "", _shade(0)) for one in named
        ],
        least=1.0,
    )


def _throughput(name: str, curves: Sequence[Curve]) -> dict[str, Any]:
    found = [
        (_shade(place), curve, one)
        for place, curve in enumerate(curves)
        for one in curve.series
        if one.name == name
    ]
    copies = sorted({copies for _, curve, _ in found for copies in curve.copies})
    at = _axes(copies)
    _, curve, main = found[0]
    first, last = main.points[0], main.points[-1]
    best = max(main.points, key=lambda point: point.rate)
    return _chart(
        sanitize(f"{_series_name(main)}, {main.unit}"),
        at=at,
        curve=curve,
        copies=copies,
        courses=[(shade, _course(one, at)) for shade, _, one in found],
        dots=[
            _dot(one, point, at, point.rates, shade)
            for shade, _, one in found
            for point in one.points
        ],
        linear=(
            (first.copies, first.rate),
            (last.copies, first.rate / first.copies * last.copies),
        ),
        ends=[(rate, format_number(rate)) for rate in dict.fromkeys((first.rate, best.rate))],
        names=[
            (end.rate, sanitize(curve.name) or speedup, speedup if curve.name else "", shade)
            for shade, curve, one in found
            for end in one.points[-1:]
            for speedup in [f"{end.speedup:.2f} x"]
        ],
        least=min(rate for *_, one in found for point in one.points for rate in point.rates),
        knees=[
            {"x": at(knee.copies), "y": at(knee.rate), "text": f"knee {knee.copies}"}
            for *_, one in found
            if one.shape.knee is not None and (knee := one.at(one.shape.knee)) is not None
        ],
    )


def _chart(
    title: str,
    *,
    at: Callable[[float], float],
    curve: Curve,
    copies: Sequence[int],
    courses: Sequence[tuple[str, Sequence[tuple[float, float]]]],
    dots: Sequence[dict[str, Any]],
    linear: Sequence[tuple[float, float]],
    ends: Sequence[tuple[float, str]],
    names: Sequence[tuple[float, str, str, str]],
    least: float,
    knees: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Return what scaling.vega.json draws; `curve` tells what its copies share.

    `ends`: values with their texts at the left; `names`: value, text, what more a file has room
    for, and colour, at the right. Of texts that would touch the last ones stay.
    """
    first, last = at(copies[0]), at(copies[-1])
    highest = max(dot["high"] for dot in dots)
    bottom = at(least) if at(4.0) == 2.0 else 0.0
    top = highest + 0.12 * (highest - bottom or 1)
    wanted = (copies[-1], copies[0], curve.fair, *copies)
    return {
        "title": title,
        "signals": {"bottom": bottom, "top": top, "first": first, "last": last},
        "data": {
            "points": [
                {"line": i, "x": x, "y": y, "colour": shade}
                for i, (shade, course) in enumerate(courses)
                for x, y in course
            ],
            "dots": list(dots),
            "linear": [{"x": at(x), "y": at(y)} for x, y in linear],
            "knees": list(knees),
            "names": _with_room(
                [
                    {"y": at(value), "text": text, "more": more, "colour": shade}
                    for value, text, more, shade in reversed(names)
                ],
                "y",
                0.08 * (top - bottom),
            ),
            "ends": _with_room(
                [{"y": at(value), "text": text} for value, text in reversed(ends)],
                "y",
                0.08 * (top - bottom),
            ),
            "copies": _with_room(
                [{"x": at(many), "text": str(many)} for many in wanted if many in copies],
                "x",
                0.09 * (last - first),
            ),
            "shared": _shared(curve, at, last),
        },
    }


def _with_room(texts: Sequence[dict[str, Any]], axis: str, room: float) -> list[dict[str, Any]]:
    """Return the texts that have room for themselves; the first ones come first."""
    kept: list[dict[str, Any]] = []
    for one in texts:
        if all(abs(one[axis] - other[axis]) >= room for other in kept):
            kept.append(one)
    return kept


def _shared(curve: Curve, at: Callable[[float], float], last: float) -> list[dict[str, Any]]:
    """Return from where on copies share cores, and CPUs: that is no scaling."""
    found: list[dict[str, Any]] = []
    shares = [place.share for place in curve.places]
    for share, colour in ((Share.CPUS, "var(--even)"), (Share.THREADS, "var(--soft)")):
        if share in shares and (place := shares.index(share)):
            before, first = (at(one.copies) for one in curve.places[place - 1 : place + 1])
            end = found[-1]["from"] if found else last
            found.append({"from": (before + first) / 2, "to": end, "colour": colour})
    return found


def _shade(place: int) -> str:
    return f"var(--dot{min(place, _MOST_SHADES)})"


def _series_name(one: Series) -> str:
    return SUITES.get(one.name, one.name) if one.is_suite else one.name


def _course(one: Series, at: Callable[[float], float]) -> list[tuple[float, float]]:
    """Return the law where it fits, else the measured points one after the other."""
    law = one.law
    if not isinstance(law, Usl) or law.bad:
        return [(at(point.copies), at(point.rate)) for point in one.points]
    low, high = law.copies[0], law.copies[-1]
    copies = [low * (high / low) ** (i / _STEPS) for i in range(_STEPS + 1)]
    return [(at(many), at(law.at(many))) for many in copies]


def _dot(
    one: Series,
    point: ScalePoint,
    at: Callable[[float], float],
    ends: Sequence[float],
    colour: str,
) -> dict[str, Any]:
    runs = f"run{'' if len(point.runs) == 1 else 's'} {', '.join(map(str, point.runs))}"
    return {
        "x": at(point.copies),
        "y": at(statistics.median(ends)),
        "low": at(min(ends)),
        "high": at(max(ends)),
        "colour": colour,
        "card": [
            sanitize(f"{_series_name(one)}, {copies_text(point.copies)}"),
            f"{format_number(point.rate)} {one.unit}",
            f"speedup {point.speedup:.3g}, efficiency {point.efficiency * 100:.3g} %",
            runs,
        ],
    }
