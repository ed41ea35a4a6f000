"""One panel of the picture of the copies' times, drawn with matplotlib."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from rater.show.charts.labels import failed_text, label_text, outside_text, percent_text, time_text
from rater.show.charts.picture import Dot, Label, Panel, Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#333333"
FAINT = "#767676"
_GRID = "#e4e4e4"
_MEDIAN = "#c9c9c9"
_SLOW = "#c4261d"
_EXPLAINED = "#2f6db3"
_DARK, _LIGHT = 0.22, 0.72  # grey of the last and the first of several iterations
POINT = 1 / 72  # inches
_NARROW = 0.55  # mean width of a letter, of its size
_MOST_NAMED = 12  # copies of a label that have their numbers beside their dots
_MOST_OVERALL = 2  # names of what all copies have, above a panel
_MOST_PARTS = 6, 2  # names above the dots, and below: in a panel of its own, and beside others
_STEPS = 24  # half lines that a name may lie away from what it names
_MOST_COPY_TICKS = 32  # copies that each have their number on the axis


@dataclass(frozen=True, slots=True)
class Sheet:
    """Measures of a page; inches, letters in points."""

    columns: int
    panel_width: float
    panel_height: float
    left: float  # before each panel, for its seconds
    right: float  # behind each panel, for its per cent
    above: float  # over each panel, for its title
    below: float  # under the last row of panels
    top: float  # of the page
    letters: float
    dot: float  # diameter, points

    def size(self, panels: int) -> tuple[float, float]:
        """Return width and height of the page."""
        rows = -(-panels // self.columns)
        width = self.columns * (self.left + self.panel_width + self.right)
        return width, self.top + rows * (self.above + self.panel_height) + self.below

    def place(self, panel: int, panels: int) -> tuple[float, float, float, float]:
        """Return left, bottom, width and height of one panel as shares of the page."""
        width, height = self.size(panels)
        row, column = divmod(panel, self.columns)
        left = column * (self.left + self.panel_width + self.right) + self.left
        bottom = height - self.top - (row + 1) * (self.above + self.panel_height)
        return left / width, bottom / height, self.panel_width / width, self.panel_height / height


class PanelDrawing:
    """One panel on its axes; x is the place of a copy, y a share of the median."""

    def __init__(self, axes: Axes, panel: Panel, picture: Picture, sheet: Sheet) -> None:
        self.axes = axes
        self.panel = panel
        self.picture = picture
        self.sheet = sheet
        self._places = max(1, len(picture.names))
        self._texts: list[tuple[float, float, float, float]] = []  # boxes, inches
        self._low, self._high = panel.low, panel.high
        self._spots: list[tuple[float, float]] = []  # of the dots, inches
        parts = panel.parts()
        self._named = {dot: label.explained for label, dots in reversed(parts) for dot in dots}
        on_axis = [
            (label, [dot for dot in dots if panel.low <= dot.value <= panel.high])
            for label, dots in parts
        ]
        self._parts = [(label, dots) for label, dots in on_axis if dots]
        self._most = _MOST_PARTS[0 if len(picture.panels) == 1 else 1]

    def draw(self, *, with_axis: bool) -> None:
        """Draw everything; `with_axis`: with the numbers of the copies below."""
        axes, panel = self.axes, self.panel
        self._make_room()
        self._spots = [self._inches(dot.place, dot.value) for dot in panel.inside()]
        axes.set_xlim(-0.5, self._places - 0.5)
        axes.set_ylim(self._low, self._high)
        axes.set_gid(f"panel-{_identity(panel.title)}")
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.patch.set_visible(False)
        axes.tick_params(length=0, labelsize=self.sheet.letters, labelcolor=FAINT, pad=2)
        self._title()
        self._grid()
        self._values()
        self._dots()
        self._outside()
        self._failed()
        self._labels()
        self._copies(with_axis)

    # -- measures ------------------------------------------------------------------------

    def _inches(self, place: float, value: float) -> tuple[float, float]:
        x = (place + 0.5) / self._places * self.sheet.panel_width
        y = (value - self._low) / (self._high - self._low) * self.sheet.panel_height
        return x, y

    def _value(self, inches: float) -> float:
        return self._low + inches / self.sheet.panel_height * (self._high - self._low)

    @property
    def _line(self) -> float:
        return self.sheet.letters * POINT * 1.3

    def _make_room(self) -> None:
        """Leave space above the dots (below, for fast ones) for what is written there."""
        fast = [label.fast for label, _ in self._parts]
        lines_above = min(self._most, fast.count(False)) + bool(self.panel.outside(above=True))
        lines_below = min(self._most, fast.count(True)) + bool(self.panel.outside(above=False))
        lines_below += bool(self.panel.failed)
        room = self.sheet.panel_height
        # Half a line more: names lie a little apart from the dots and from each other.
        above = min(0.4 * room, (lines_above + 0.5 * (lines_above > 0)) * self._line)
        below = min(0.4 * room, (lines_below + 0.5 * (lines_below > 0)) * self._line)
        scale = (self.panel.high - self.panel.low) / (room - above - below)
        self._low -= below * scale
        self._high += above * scale

    # -- parts ---------------------------------------------------------------------------

    def _title(self) -> None:
        small = len(self.picture.panels) > 1
        letters = self.sheet.letters + (1 if small else 3)
        line = 5 if small else 8
        self.axes.annotate(
            self.panel.title,
            (0, 1),
            (0, line),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=letters,
            weight="bold",
            color=INK,
        )
        overall = self.panel.overall()[:_MOST_OVERALL]
        words = [(label_text(label, self.panel), _colour(label)) for label in overall]
        failed = failed_text(self.panel)
        if failed:
            words.append((f"× {failed}", _SLOW))
        if not self.panel.dots:
            words.append(("no copy ran well", FAINT))
        for i, (text, colour) in enumerate(reversed(words)):
            self.axes.annotate(
                text,
                (1, 1),
                (0, line + i * self.sheet.letters * 1.3),
                xycoords="axes fraction",
                textcoords="offset points",
                fontsize=self.sheet.letters,
                color=colour,
                ha="right",
            )

    def _grid(self) -> None:
        for group in self.picture.groups[1:]:
            self.axes.axvline(group.first - 0.5, color=_GRID, linewidth=0.6, zorder=0)
        if self.panel.dots:
            self.axes.axhline(1.0, color=_MEDIAN, linewidth=0.6, zorder=0.5)

    def _values(self) -> None:
        """Write seconds at the left and per cent at the right, of the ends and the median."""
        median_s = self.panel.median_s
        extent = self.panel.extent()
        if median_s is None or extent is None:
            self.axes.set_yticks([])
            return
        least = self._line * 0.95 / self.sheet.panel_height * (self._high - self._low)
        ticks = [1.0]
        for value in reversed(extent):
            if all(abs(value - tick) >= least for tick in ticks):
                ticks.append(value)
        self.axes.set_yticks(ticks, [time_text(value * median_s) for value in ticks])
        for value in ticks:
            text = "median" if value == 1.0 else percent_text(value)
            self.axes.annotate(
                text,
                (1, value),
                (4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                fontsize=self.sheet.letters,
                color=FAINT,
                va="center_baseline",
            )

    def _dots(self) -> None:
        """Draw the dots of one iteration and colour as one path: thousands of them stay small."""
        from matplotlib.patches import PathPatch  # noqa: PLC0415 - as in `drawn`
        from matplotlib.path import Path as Outline  # noqa: PLC0415 - as in `drawn`

        layers: dict[tuple[int, int, str], list[Dot]] = {}
        for dot in self.panel.inside():
            explained = self._named.get(dot)
            rank = 0 if explained is None else 1 if explained else 2
            shade = grey_of(self.picture, dot.iteration)
            if rank:
                shade = _mixed((_EXPLAINED, _SLOW)[rank - 1], self.picture, dot.iteration)
            layers.setdefault((rank, dot.iteration, shade), []).append(dot)
        for (rank, iteration, shade), dots in sorted(layers.items()):
            ranges = [
                [
                    (dot.place, max(dot.fastest, self._low)),
                    (dot.place, min(dot.slowest, self._high)),
                ]
                for dot in dots
                if dot.slowest > dot.fastest
            ]
            # A hundredth of a point long: with round ends a dot, without length Agg draws nothing.
            length = 0.01 * POINT / self.sheet.panel_width * self._places
            spots = [[(dot.place, dot.value), (dot.place + length, dot.value)] for dot in dots]
            for name, lines, width in (("range", ranges, 0.5), ("dots", spots, self.sheet.dot)):
                if not lines:
                    continue
                outline = Outline(
                    [point for line in lines for point in line],
                    [Outline.MOVETO, Outline.LINETO] * len(lines),
                )
                patch = PathPatch(
                    outline,
                    fill=False,
                    edgecolor=shade,
                    linewidth=width,
                    capstyle="round",
                    zorder=2 + rank,
                    alpha=0.5 if name == "range" else 0.85,
                    clip_on=False,
                    snap=False,
                )
                kind = ("", "-explained", "-slow")[rank]
                patch.set_gid(f"{name}{kind}-{_identity(self.panel.title)}-{iteration}")
                self.axes.add_patch(patch)

    def _outside(self) -> None:
        """Mark what lies beyond the axis with triangles at its ends, and say how far."""
        for above in (True, False):
            dots = self.panel.outside(above=above)
            if not dots:
                continue
            edge = self.panel.high if above else self.panel.low
            self.axes.plot(
                [dot.place for dot in dots],
                [edge] * len(dots),
                linestyle="none",
                marker="^" if above else "v",
                markersize=self.sheet.letters * 0.55,
                markeredgewidth=0,
                color=_SLOW,
                zorder=5,
                clip_on=False,
            )
            place = dots[0].place
            self._write(outside_text(dots), place, edge, _SLOW, above=above)

    def _failed(self) -> None:
        places = sorted({place for place, _, _ in self.panel.failed})
        if places:
            self.axes.plot(
                places,
                [self._value(self._line * 0.4)] * len(places),
                linestyle="none",
                marker="x",
                markersize=self.sheet.letters * 0.5,
                markeredgewidth=0.9,
                color=_SLOW,
                zorder=5,
                clip_on=False,
            )

    def _labels(self) -> None:
        for fast in (False, True):
            parts = [part for part in self._parts if part[0].fast is fast]
            more = len(parts) - self._most
            for i, (label, dots) in enumerate(parts[: self._most]):
                colour = _colour(label)
                text = label_text(label, self.panel)
                if more > 0 and i == self._most - 1:
                    text += f", and {more} more"
                self._name_dots(dots, colour)
                places = sorted({dot.place for dot in dots})
                edge = (min if fast else max)(dot.value for dot in dots)
                self._write(text, sum(places) / len(places), edge, colour, above=not fast)

    def _name_dots(self, dots: Sequence[Dot], colour: str) -> None:
        """Put the numbers of a few scattered copies beside their dots."""
        places = {dot.place for dot in dots}
        together = max(places) - min(places) + 1 == len(places)
        if together or len(places) > _MOST_NAMED or len(self.picture.panels) > 4:
            return
        if self.panel.by_cpu:  # a copy is in another place each time
            return
        last = {dot.copy: dot for dot in sorted(dots, key=lambda dot: dot.value)}
        for dot in last.values():
            self.axes.annotate(
                str(dot.copy),
                (dot.place, dot.value),
                (self.sheet.dot * 0.5 + 2, 0),
                textcoords="offset points",
                fontsize=self.sheet.letters - 1,
                color=colour,
                va="center",
                zorder=6,
            )

    def _write(self, text: str, place: float, value: float, colour: str, *, above: bool) -> None:
        """Write beside a place, farther from the dots where something is written already."""
        x, y = self._inches(place, value)
        width = len(text) * self.sheet.letters * POINT * _NARROW
        left = min(max(0.0, x - width / 2), max(0.0, self.sheet.panel_width - width))
        gap = self.sheet.dot * POINT
        bottom = y + gap if above else y - gap - self._line
        step = self._line / 2 if above else -self._line / 2
        left, bottom = min(
            ((left, bottom + i * step) for i in range(_STEPS)),
            key=lambda corner: self._in_the_way((*corner, width, self._line)) + abs(corner[1] - y),
        )
        self._texts.append((left, bottom, width, self._line))
        self.axes.text(
            (left + width / 2) / self.sheet.panel_width * self._places - 0.5,
            self._value(bottom + self._line * 0.2),
            text,
            fontsize=self.sheet.letters,
            color=colour,
            ha="center",
            va="bottom",
            zorder=6,
            bbox={"facecolor": "white", "alpha": 0.75, "pad": 0.5, "linewidth": 0},
        )

    def _in_the_way(self, box: tuple[float, float, float, float]) -> float:
        """Return how bad a place for a text is: other texts count most, then the page's end."""
        left, bottom, width, height = box
        outside = bottom < -0.2 * height or bottom + height > self.sheet.panel_height + 0.2 * height
        dots = sum(left < x < left + width and bottom < y < bottom + height for x, y in self._spots)
        return 100 * any(_overlap(box, other) for other in self._texts) + 20 * outside + dots

    def _copies(self, with_axis: bool) -> None:
        self.axes.set_xticks([])
        if not with_axis:
            return
        for row, (name, ticks) in enumerate(_axis_rows(self.picture, self.sheet)):
            down = -(4 + row * self.sheet.letters * 1.35)
            for place, text in ((None, name), *ticks):
                self.axes.annotate(
                    text,
                    (-0.5 if place is None else place, 0),
                    (-6 if place is None else 0, down),
                    xycoords=("data", "axes fraction"),
                    textcoords="offset points",
                    fontsize=self.sheet.letters,
                    color=FAINT,
                    ha="right" if place is None else "center",
                    va="top",
                )


def _axis_rows(
    picture: Picture, sheet: Sheet
) -> Iterator[tuple[str, list[tuple[float | None, str]]]]:
    """Yield the rows of numbers below: lgroups in the middle of theirs, and copies."""
    places = len(picture.names)
    if picture.groups:
        names = [(g.first + (g.size - 1) / 2, g.name) for g in picture.groups]
        yield "lgroup", _spaced(names, places, sheet)
    marks: Sequence[int] = range(places)
    if places > _MOST_COPY_TICKS or len(picture.panels) > 1:
        if not picture.ascending:
            return
        marks = picture.marks()
    yield picture.axis, _spaced([(at, str(picture.names[at])) for at in marks], places, sheet)


def _spaced(
    marks: Sequence[tuple[float, str]], places: int, sheet: Sheet
) -> list[tuple[float | None, str]]:
    """Return as many of the marks as fit beside each other, evenly chosen."""
    letter = sheet.letters * POINT * 0.64
    inch = sheet.panel_width / max(1, places)
    step = 1
    while True:
        chosen = marks[::step]
        pairs = pairwise(chosen)
        if all(
            (b[0] - a[0]) * inch >= (len(a[1]) + len(b[1])) / 2 * letter + letter for a, b in pairs
        ):
            return list(chosen)
        step += 1


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def _colour(label: Label) -> str:
    return _EXPLAINED if label.explained else _SLOW


def _darkness(picture: Picture, iteration: int) -> float:
    """Return 0 for the first of several iterations to 1 for the last."""
    if len(picture.iterations) == 1:
        return 0.8
    return picture.iterations.index(iteration) / (len(picture.iterations) - 1)


def grey_of(picture: Picture, iteration: int) -> str:
    """Return the grey of an iteration as `#rrggbb`, darker for later ones."""
    grey = _LIGHT + (_DARK - _LIGHT) * _darkness(picture, iteration)
    return "#" + 3 * f"{round(grey * 255):02x}"


def _mixed(colour: str, picture: Picture, iteration: int) -> str:
    """Return a colour, mixed with white for the earlier iterations."""
    share = 0.45 + 0.55 * _darkness(picture, iteration)
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - (255 - part) * share):02x}" for part in parts)


def _identity(title: str) -> str:
    """Return a title as XML takes it for a name."""
    return re.sub(r"[^\w.-]", "-", title)
