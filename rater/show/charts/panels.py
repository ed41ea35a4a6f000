"""The picture of the copies' times as an SVG: a panel for each benchmark, with names next to dots.

Nothing but the data has ink: a line only where one lgroup ends and the next begins, numbers at
the ends of the data instead of a scale of round ones. Slow parts have a colour and their names
next to them; everything else is grey, later iterations darker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rater.show.charts.labels import failed_text, label_text, outside_text
from rater.show.charts.panel import dot_kinds, group_rows, group_values, panel_values
from rater.show.charts.picture import Dot, Label, Panel, Picture
from rater.show.charts.vega import PlacedChart, PlacedText, sheet_svg
from rater.text.to_json import objects

_LETTER = 0.56  # mean width of one, of its size
_LINE = 1.3  # height of one, of the size of its letters
_MOST_NAMED = 12  # copies of a label that have their numbers next to their dots
_MOST_OVERALL = 2  # names of what all copies have, above a panel
_MOST_PARTS = 6, 2  # names above the dots, and below: in a panel of its own, and in one of several
_STEPS = 24  # half lines that a name may lie away from what it names
_MOST_COPY_TICKS = 32  # copies that each have their number on the axis

type _Box = tuple[float, float, float, float]  # left, top, width, height


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Measures of a page in pixels."""

    columns: int
    width: float  # of a panel
    height: float
    letters: float
    dot: float  # diameter


def picture_svg(picture: Picture) -> str:
    """Return the picture as an SVG. Raises `InputError` where vl-convert is missing."""
    sheet = _sheet(picture)
    last = len(picture.panels) - sheet.columns
    figures = [
        _Drawing(panel, picture, sheet).figure(with_axis=i >= last)
        for i, panel in enumerate(picture.panels)
    ]
    return sheet_svg(picture.title, figures, columns=sheet.columns, notes=[*_key(picture, sheet)])


def _sheet(picture: Picture) -> _Sheet:
    panels, places = len(picture.panels), max(1, len(picture.names))
    if panels == 1:
        return _Sheet(1, 826, 420, 12, min(6.6, max(3.2, 640 / places)))
    columns = 2 if panels <= 4 else 3 if panels <= 36 else 4
    width = {2: 404, 3: 250, 4: 215}[columns]
    dot = min(4.3, max(2.2, 1.4 * width / places))
    return _Sheet(columns, width, 192 if columns == 2 else 104, 10, dot)


def _key(picture: Picture, sheet: _Sheet) -> Iterator[PlacedText]:
    """Write at the right of the title how iterations are told apart, each in its own grey."""
    words = [(str(it), f"dot{picture.shade(it)}") for it in reversed(picture.iterations)]
    words = [*words, ("iteration", "faint")] if len(words) > 1 else []
    if picture.repeated:
        words.insert(0, ("dot: median run of a copy, line: all its runs   ", "faint"))
    right = -60.0
    for text, colour in words:
        weight = "bold" if text.isdigit() else "normal"
        yield PlacedText(right, 18, text, colour, "right", sheet.letters, weight)
        right -= (len(text) + 1) * sheet.letters * 0.62


class _Drawing:
    """One panel with what is written into it; places are pixels from its upper left corner."""

    def __init__(self, panel: Panel, picture: Picture, sheet: _Sheet) -> None:
        self.panel, self.picture, self.sheet = panel, picture, sheet
        self.line = sheet.letters * _LINE
        self.texts: list[PlacedText] = []
        self._boxes: list[_Box] = []
        self._places = max(1, len(picture.names))
        self._most = _MOST_PARTS[0 if len(picture.panels) == 1 else 1]
        on_axis = ((label, [*filter(panel.is_inside, dots)]) for label, dots in panel.parts())
        self._parts = [(label, dots) for label, dots in on_axis if dots]
        self._low, self._high = self._ends()
        self._spots = [self._at(dot.place, dot.elapsed_s) for dot in panel.inside()]

    def figure(self, *, with_axis: bool) -> PlacedChart:
        """Return the panel; `with_axis`: with the numbers of the copies below."""
        panel, sheet = self.panel, self.sheet
        self._write_title()
        self._write_names()
        if with_axis:
            self._write_copies()
        scale = (self._high - self._low) / (panel.high_s - panel.low_s)
        gap = 0.95 * self.line / sheet.height * scale
        values = panel_values(panel, dot_kinds(panel), repeated=self.picture.repeated, tick_gap=gap)
        dots = values["dots"]
        shades = [self.picture.shade(iteration) for iteration in dots["it"]]
        return PlacedChart(
            "panel",
            {
                "signals": {
                    "places": self._places,
                    "low": values["low"],
                    "high": values["high"],
                    "bottom": self._low,
                    "top": self._high,
                    "median": values["median"] if panel.dots else None,
                    "dot": sheet.dot**2,
                    "letters": sheet.letters,
                    "numbered": with_axis,
                },
                "data": {
                    "groups": group_rows(group_values(self.picture)),
                    "ticks": objects("value seconds share", values["ticks"]),
                    "rows": objects(
                        " ".join((*dots, "shade")), zip(*dots.values(), shades, strict=True)
                    ),
                    "failed": [{"place": place} for place, _ in panel.failed],
                },
            },
            sheet.width,
            sheet.height,
            self.texts,
            above=self.line * 1.5,
            below=self.line * 2.4,
        )

    # -- measures ------------------------------------------------------------------------

    def _ends(self) -> tuple[float, float]:
        """Return the ends of the axis, with room for what is written above the dots and below."""
        panel, height = self.panel, self.sheet.height
        fast = [label.fast for label, _ in self._parts]
        above = min(self._most, fast.count(False)) + bool(panel.outside(above=True))
        below = min(self._most, fast.count(True)) + bool(panel.outside(above=False))
        below += bool(panel.failed)
        # Half a line more: between names and the dots, and between names.
        rooms = [
            min(0.4 * height, (lines + 0.5) * self.line) if lines else 0.0
            for lines in (below, above)
        ]
        scale = (panel.high_s - panel.low_s) / (height - sum(rooms))
        return panel.low_s - rooms[0] * scale, panel.high_s + rooms[1] * scale

    def _at(self, place: float, seconds: float) -> tuple[float, float]:
        x = (place + 0.5) / self._places * self.sheet.width
        return x, (self._high - seconds) / (self._high - self._low) * self.sheet.height

    # -- what is written -----------------------------------------------------------------

    def _text(self, x: float, y: float, text: str, colour: str, align: str = "left") -> None:
        self.texts.append(PlacedText(x, y, text, colour, align, self.sheet.letters))

    def _write_title(self) -> None:
        panel, letters = self.panel, self.sheet.letters
        small = len(self.picture.panels) > 1
        size = letters + (1 if small else 4)
        self.texts.append(PlacedText(0, -8, panel.title, size=size, weight="bold"))
        words = [
            (label_text(label, panel), _colour(label)) for label in panel.overall()[:_MOST_OVERALL]
        ]
        failed = failed_text(panel)
        words += [(f"× {failed}", "slow-text")] if failed else []
        words += [] if panel.dots else [("no copy ran well", "faint")]
        for i, (text, colour) in enumerate(reversed(words)):
            self._text(self.sheet.width, -8 - i * self.line, text, colour, "right")

    def _write_names(self) -> None:
        """Write the names of parts next to their dots, and how far away those beyond an end are."""
        panel = self.panel
        for above in (True, False):
            far = panel.outside(above=above)
            if far:
                edge = panel.high_s if above else panel.low_s
                self._write(outside_text(far), far[0].place, edge, "slow-text", above=above)
        for fast in (False, True):
            parts = [part for part in self._parts if part[0].fast is fast]
            more = len(parts) - self._most
            for i, (label, dots) in enumerate(parts[: self._most]):
                text = label_text(label, panel)
                if more > 0 and i == self._most - 1:
                    text += f", and {more} more"
                self._number(dots, _colour(label))
                places = {dot.place for dot in dots}
                edge = (min if fast else max)(dot.elapsed_s for dot in dots)
                middle = sum(places) / len(places)
                self._write(text, middle, edge, _colour(label), above=not fast)

    def _number(self, dots: Sequence[Dot], colour: str) -> None:
        """Put the numbers of a few scattered copies next to their dots."""
        places = {dot.place for dot in dots}
        together = max(places) - min(places) + 1 == len(places)
        if together or len(places) > _MOST_NAMED or len(self.picture.panels) > 4:
            return
        if self.panel.by_cpu:  # a copy is in another place each time
            return
        last = {dot.copy: dot for dot in sorted(dots, key=lambda dot: dot.elapsed_s)}
        for dot in last.values():
            x, y = self._at(dot.place, dot.elapsed_s)
            self.texts.append(
                PlacedText(
                    x + self.sheet.dot * 0.5 + 2,
                    y + 4,
                    str(dot.copy),
                    colour,
                    size=self.sheet.letters - 1,
                )
            )

    def _write(self, text: str, place: float, seconds: float, colour: str, *, above: bool) -> None:
        """Write next to a place, farther from the dots where something is written already."""
        x, y = self._at(place, seconds)
        width = len(text) * self.sheet.letters * _LETTER
        left = min(max(0.0, x - width / 2), max(0.0, self.sheet.width - width))
        gap = self.sheet.dot
        top = y - gap - self.line if above else y + gap
        step = -self.line / 2 if above else self.line / 2
        box = min(
            ((left, top + i * step, width, self.line) for i in range(_STEPS)),
            key=lambda box: self._in_the_way(box) + abs(box[1] - y) / 100,
        )
        self._boxes.append(box)
        self._text(left + width / 2, box[1] + self.line * 0.78, text, colour, "center")

    def _in_the_way(self, box: _Box) -> float:
        """Return how bad a place for a text is: other texts count most, then the panel's end."""
        left, top, width, height = box
        outside = top < -0.2 * height or top + height > self.sheet.height + 0.2 * height
        dots = sum(left < x < left + width and top < y < top + height for x, y in self._spots)
        return 100 * any(_overlap(box, other) for other in self._boxes) + 20 * outside + dots

    def _write_copies(self) -> None:
        """Write the numbers of the copies, below those of the lgroups, as many as have room."""
        picture = self.picture
        row = self.sheet.height + 3 + self.sheet.letters
        if picture.groups:
            self._text(-6, row, "lgroup", "faint", "right")
            row += self.line
        marks: Sequence[int] = range(len(picture.names))
        if len(marks) > _MOST_COPY_TICKS or len(picture.panels) > 1:
            if not picture.ascending:
                return
            marks = picture.marks()
        self._text(-6, row, picture.axis, "faint", "right")
        letter, step = self.sheet.letters * 0.64, 1
        chosen = [(self._at(at, 1)[0], str(picture.names[at])) for at in marks]
        while any(
            b[0] - a[0] < ((len(a[1]) + len(b[1])) / 2 + 1) * letter
            for a, b in pairwise(chosen[::step])
        ):
            step += 1
        for x, text in chosen[::step]:
            self._text(x, row, text, "faint", "center")


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def _colour(label: Label) -> str:
    return "explained" if label.explained else "slow-text"
