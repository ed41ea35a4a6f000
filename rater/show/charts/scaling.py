"""Curves of throughput against copies as a file, a small panel for each benchmark.

Dots are medians of runs, with a line from the lowest to the highest; the thin straight line is
linear from the first point, the thin curve the Universal Scalability Law where it fits. The knee
is red, the only colour. Numbers stand at the ends of the data: rates left, speedups right.
Several curves (`thp=always`, `thp=never`) share the panels, darker one by one, each with its name
at its end in the first panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rater.analysis.results.cpus_used import Share
from rater.analysis.scaling.curve import Curve, Series
from rater.analysis.stats.usl import Usl
from rater.show.charts.file import rendered, write_drawing
from rater.show.charts.panel import FAINT, INK, Sheet
from rater.show.console.format import decimals, number, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_KNEE = "#c4261d"
_LINEAR = "#bdbdbd"
_SHADES = {Share.THREADS: "#f5f5f5", Share.CPUS: "#e9e9e9"}  # behind copies that share
_DARK, _LIGHT = 0.2, 0.62  # greys of the first and the last of several curves
_LOG_RANGE = 16  # from this range of copies on the axes are logarithmic
_STEPS = 60  # of the drawn law
_MOST_TICKS = 6


def draw_curves(curves: Sequence[Curve], path: Path) -> None:
    """Draw all curves into a file; its suffix, `.svg`, `.png` or `.pdf`, tells the format.

    Raises `InputError` where matplotlib is missing or the file cannot be written.
    """
    write_drawing(curves_drawn(curves, path.suffix.lower().removeprefix(".")), path)


def curves_drawn(curves: Sequence[Curve], form: str) -> bytes:
    """Return the same as a file's content; `form` is svg, png or pdf."""
    names = list(dict.fromkeys(one.name for curve in curves for one in curve.series))
    sheet = _sheet(len(names))
    return rendered(
        sheet.size(len(names)), lambda figure: _draw_page(figure, curves, names, sheet), form
    )


def _sheet(panels: int) -> Sheet:
    if panels == 1:
        return Sheet(1, 6.0, 4.2, 0.8, 0.7, 0.5, 0.6, 0.42, 9.0, 5.0)
    columns = 2 if panels <= 4 else 3 if panels <= 12 else 4
    return Sheet(columns, 1.9, 1.5, 0.62, 0.55, 0.42, 0.55, 0.62, 7.0, 3.4)


def _draw_page(figure: Figure, curves: Sequence[Curve], names: Sequence[str], sheet: Sheet) -> None:
    width, height = sheet.size(len(names))
    told = dict(curves[0].conditions)
    unit = curves[0].series[0].unit
    title = f"throughput ({unit}) against copies, {told.get('suite', '')} on {told.get('host', '')}"
    key = "dots: medians of runs; straight: linear; curve: Universal Scalability Law, where it fits"
    if any(place.share in _SHADES for curve in curves for place in curve.places):
        key += "; shade: copies share cores, darker: CPUs"
    for y, text, colour, size in (
        (0.12, title, INK, sheet.letters + 2),
        (0.34, key, FAINT, sheet.letters),
    ):
        figure.text(
            sheet.left / width,
            1 - y / height,
            plain(text),
            fontsize=size,
            color=colour,
            va="top",
        )
    last = len(names) - sheet.columns
    for i, name in enumerate(names):
        axes = figure.add_axes(sheet.place(i, len(names)))
        _Panel(axes, name, curves, sheet).draw(with_names=i == 0, with_copies=i >= last)


class _Panel:
    """One benchmark, or all together; the curves that have it."""

    def __init__(self, axes: Axes, name: str, curves: Sequence[Curve], sheet: Sheet) -> None:
        self.axes = axes
        self.name = name
        self.sheet = sheet
        found = [
            (curve, one, place)
            for place, curve in enumerate(curves)
            for one in curve.series
            if one.name == name
        ]
        self.found: list[tuple[Curve, Series, int]] = found
        self.copies = sorted({copies for curve in curves for copies in curve.copies})
        self.several = len(curves)
        self.logarithmic = self.copies[-1] >= _LOG_RANGE * self.copies[0]

    def draw(self, *, with_names: bool, with_copies: bool) -> None:
        """Draw everything; names of curves, and the word copies, where asked for."""
        axes = self.axes
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=2, color=FAINT, labelcolor=FAINT, labelsize=self.sheet.letters - 1)
        if self.logarithmic:
            axes.set_xscale("log", base=2)
            axes.set_yscale("log", base=2)
        axes.set_title(plain(self.name), loc="left", fontsize=self.sheet.letters + 1, color=INK)
        for curve, series, place in self.found:
            self._draw_series(curve, series, self._grey(place), with_name=with_names)
        self._limits()
        self._shade()
        self._ticks()
        if with_copies:
            axes.set_xlabel("copies", fontsize=self.sheet.letters, color=FAINT, labelpad=1)

    def _grey(self, place: int) -> str:
        share = place / (self.several - 1) if self.several > 1 else 0.0
        return str(_DARK + (_LIGHT - _DARK) * share)

    def _draw_series(self, curve: Curve, series: Series, grey: str, *, with_name: bool) -> None:
        axes, points, law = self.axes, series.points, series.law
        name = plain(f"{self.name}-{curve.name}".rstrip("-"))
        first, last = points[0], points[-1]
        if series is self.found[0][1]:
            axes.plot(
                [first.copies, last.copies],
                [first.rate, first.rate / first.copies * last.copies],
                color=_LINEAR,
                linewidth=0.8,
                zorder=1,
                gid=f"linear-{name}",
            )
        if isinstance(law, Usl) and not law.bad:
            at = [
                law.copies[0] * (law.copies[-1] / law.copies[0]) ** (i / _STEPS)
                for i in range(_STEPS + 1)
            ]
            axes.plot(at, [law.at(n) for n in at], color=grey, linewidth=0.7, gid=f"law-{name}")
        else:
            axes.plot(
                [one.copies for one in points],
                [one.rate for one in points],
                color=grey,
                linewidth=0.4,
                gid=f"steps-{name}",
            )
        for one in points:
            if len(one.rates) > 1:
                axes.plot(
                    [one.copies] * 2, [min(one.rates), max(one.rates)], color=grey, linewidth=0.9
                )
        axes.plot(
            [one.copies for one in points],
            [one.rate for one in points],
            linestyle="none",
            marker="o",
            markersize=self.sheet.dot,
            markeredgewidth=0,
            color=grey,
            gid=f"dots-{name}",
        )
        knee = None if series.shape.knee is None else series.at(series.shape.knee)
        if knee is not None:
            axes.plot(
                [knee.copies],
                [knee.rate],
                linestyle="none",
                marker="o",
                markersize=self.sheet.dot + 1.6,
                markeredgewidth=0,
                color=_KNEE,
                zorder=4,
                gid=f"knee-{name}",
            )
            self._say(f"knee {knee.copies}", (knee.copies, knee.rate), (4.0, -6.0), _KNEE)
        if with_name and curve.name:
            self._say(curve.name, (last.copies, last.rate), (0.0, 5.0), grey)

    def _say(
        self, text: str, at: tuple[float, float], away: tuple[float, float], colour: str
    ) -> None:
        self.axes.annotate(
            plain(text),
            at,
            xytext=away,
            textcoords="offset points",
            ha="left" if away[0] > 0 else "right",
            va="bottom" if away[1] > 0 else "top",
            fontsize=self.sheet.letters - 0.5,
            color=colour,
            zorder=5,
        )

    def _limits(self) -> None:
        rates = [rate for _, one, _ in self.found for point in one.points for rate in point.rates]
        low, high = min(rates), max(rates)
        first, last = self.copies[0], self.copies[-1]
        if self.logarithmic:
            self.axes.set_xlim(first / 1.25, last * 1.25)
            self.axes.set_ylim(low / 1.6, high * 1.5)
            return
        reach = (last - first) * 0.08
        self.axes.set_xlim(first - reach, last + reach)
        self.axes.set_ylim(0, high * 1.22)

    def _shade(self) -> None:
        """Set apart where copies share cores, and where CPUs: that is no scaling."""
        places = self.found[0][0].places
        edges = [self.axes.get_xlim()[1]]
        for share in (Share.CPUS, Share.THREADS):
            of_it = [i for i, one in enumerate(places) if one.share is share]
            if not of_it or of_it[0] == 0:
                continue
            first, before = places[of_it[0]].copies, places[of_it[0] - 1].copies
            edge = math.sqrt(first * before) if self.logarithmic else (first + before) / 2
            self.axes.axvspan(edge, edges[-1], color=_SHADES[share], zorder=0, lw=0)
            edges.append(edge)

    def _close(self, low: float, high: float) -> bool:
        """Tell whether two numbers on the left would lie on each other."""
        bottom, top = self.axes.get_ylim()
        if self.logarithmic:
            low, high, bottom, top = (math.log(value) for value in (low, high, bottom, top))
        letters = self.sheet.letters / 72 / self.sheet.panel_height
        return high - low < 1.2 * letters * (top - bottom)

    def _ticks(self) -> None:
        from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator  # noqa: PLC0415 - with matplotlib

        points = self.found[0][1].points
        told = _spread_out(self.copies, self.found[0][0].fair, logarithmic=self.logarithmic)
        axes = self.axes
        axes.xaxis.set_major_locator(FixedLocator(told))
        axes.xaxis.set_major_formatter(FixedFormatter([str(copies) for copies in told]))
        axes.xaxis.set_minor_locator(NullLocator())
        low, high = points[0], max(points, key=lambda one: one.rate)
        shown = [high] if self._close(low.rate, high.rate) else [low, high]
        places = decimals([one.rate for one in shown])
        axes.yaxis.set_major_locator(FixedLocator([one.rate for one in shown]))
        axes.yaxis.set_major_formatter(FixedFormatter([number(one.rate, places) for one in shown]))
        axes.yaxis.set_minor_locator(NullLocator())
        last = points[-1]
        self.axes.annotate(
            f"{last.speedup:.2f} x",
            (1.02, last.rate),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=self.sheet.letters - 0.5,
            color=INK,
        )


def _spread_out(copies: Sequence[int], wanted: int, *, logarithmic: bool) -> list[int]:
    """Return the first, the last, `wanted` and as many others as have room for their numbers."""
    width = {one: math.log(one) if logarithmic else float(one) for one in copies}
    least = (width[copies[-1]] - width[copies[0]]) / _MOST_TICKS
    kept = [copies[0], copies[-1]]
    for one in (wanted, *copies):
        if all(abs(width[one] - width[other]) >= least for other in kept):
            kept.append(one)
    return sorted(kept)
