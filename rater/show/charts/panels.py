"""The picture of the copies' times: panels with names next to what they mean."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec import Struct

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import Finding, Kind
from rater.record.run import CopyStatus
from rater.show.charts.picture import Dot, Label, Panel, Picture
from rater.show.charts.vega import PlacedChart, PlacedText, sheet_svg
from rater.show.format import sanitize
from rater.text.cpuset import format_list
from rater.text.values import copies_text, group_by_key, objects

# -- The picture of the copies' times as an SVG: a panel for each benchmark, with names next to dots
#
# Nothing but the data has ink: a line only where one lgroup ends and the next begins, numbers at
# the ends of the data instead of a scale of round ones. Slow parts have a colour and their names
# next to them; everything else is grey, later iterations darker.

_LETTER = 0.56  # mean width of one, of its size
_LINE = 1.3  # height of one, of the size of its letters
_MOST_NAMED = 12  # copies of a label that have their numbers next to their dots
_MOST_OVERALL = 2  # names of what all copies have, above a panel
_MOST_PARTS = 6, 2  # names above the dots, and below: in a panel of its own, and in one of several
_STEPS = 24  # half lines that a name may lie away from what it names
_MOST_COPY_TICKS = 32  # copies that each have their number on the axis

type _Box = tuple[float, float, float, float]  # left, top, width, height


class _SheetSize(Struct, frozen=True):
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


def _sheet(picture: Picture) -> _SheetSize:
    panels, places = len(picture.panels), max(1, len(picture.names))
    if panels == 1:
        return _SheetSize(1, 826, 420, 12, min(6.6, max(3.2, 640 / places)))
    columns = 2 if panels <= 4 else 3 if panels <= 36 else 4
    width = {2: 404, 3: 250, 4: 215}[columns]
    dot = min(4.3, max(2.2, 1.4 * width / places))
    return _SheetSize(columns, width, 192 if columns == 2 else 104, 10, dot)


def _key(picture: Picture, sheet: _SheetSize) -> Iterator[PlacedText]:
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

    def __init__(self, panel: Panel, picture: Picture, sheet: _SheetSize) -> None:
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


# -- What is written into a picture of the copies' times: names of slow parts, times, sizes --------

_LEAST_EXPLAINED = 0.01  # of a time; less than the layout does is hardly to be seen
_MOST_LETTERS = 20  # of a list of copies
# Findings whose place is no name: it is all copies.
_NAMES = {
    Kind.STARTUP: "start-up",
    Kind.DRIFT: "drift",
    Kind.STEP: "step",
    Kind.WARM_UP: "warm-up",
    Kind.GRADIENT: "gradient",
    Kind.BIMODAL: "two speeds",
    Kind.NO_PLACE: "a copy each time",
    Kind.WANDERING: "lgroups take turns",
}


def labels_from(findings: Iterable[Finding]) -> tuple[Label, ...]:
    """Return labels for what the search for divots found, benchmark by benchmark.

    Copies that were judged singly are one label where they are the same in each iteration.
    What the layout explains has one where it is large enough to be seen.
    """
    labels: list[Label] = []
    for one in findings:
        if one.explained and abs(one.slowdown - 1) < _LEAST_EXPLAINED:
            continue
        if one.singles:
            labels += _single_labels(one)
            continue
        what = one.place if one.has_place else _NAMES.get(one.kind, one.place)
        effects = group_by_key((cell.benchmark, cell.slowdown) for cell in one.cells)
        for benchmark in tuple(effects) or one.benchmarks or (None,):
            # These are told from end to end, whatever a single cell has of it.
            ends = one.kind in (Kind.DRIFT, Kind.GRADIENT)
            own = [] if ends else effects.get(benchmark or "", [])
            slowdown = statistics.median(own or [one.slowdown])
            # What a layout does differs from benchmark to benchmark: one size would be wrong.
            size = formatting.format_slowdown(slowdown)
            labels.append(
                Label(
                    copies=one.copies,
                    text=f"{what}: {'by the layout' if one.explained else size}",
                    iterations=one.iterations,
                    benchmark=benchmark,
                    tune=one.tune,
                    cpus=one.cpus,
                    explained=one.explained,
                    fast=slowdown < 1,
                )
            )
    return tuple(labels)


def _single_labels(one: Finding) -> Iterator[Label]:
    cells = group_by_key(((one.benchmark, one.tune, one.iteration), one) for one in one.singles)
    groups = group_by_key(
        ((benchmark, tune, tuple(sorted({single.copy for single in members}))), iteration)
        for (benchmark, tune, iteration), members in cells.items()
    )
    for (benchmark, tune, copies), iterations in groups.items():
        members = [single for it in iterations for single in cells[benchmark, tune, it]]
        sizes = [single.slowdown for single in members]
        what = f"copy {copies[0]}" if len(copies) == 1 else f"{len(copies)} copies"
        node = members[0].node
        what += f" (lgroup {node})" if len(copies) == 1 and node is not None else ""
        cpus = {single.cpu for single in members if single.cpu is not None}
        yield Label(
            copies,
            f"{what}: {formatting.sizes(sizes)}",
            tuple(sorted(iterations)),
            benchmark,
            tune,
            tuple(sorted(cpus)),
            one.explained,
            fast=sizes[0] < 1,
        )


def time_text(seconds: float) -> str:
    """Return a time with the digits that its size deserves: `2408 s`, `12.3 s`, `4.56 ms`."""
    if seconds >= 1000:
        return f"{seconds:.0f} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if seconds >= size or unit == "ns":
            value = seconds / size
            break
    # Four digits: copies of a quiet machine differ by a thousandth.
    return f"{value:.{max(0, 4 - len(str(int(value))))}f} {unit}"


def percent_text(value: float) -> str:
    """Return a share of the median as its distance: `+52 %`, `-0.4 %`."""
    size = (value - 1) * 100
    return f"{size:+.0f} %" if abs(size) >= 10 else f"{size:+.1f} %"


def ticks(panel: Panel, gap_s: float = 0.0) -> list[tuple[float, str, str]]:
    """Return the ends of the dots and their median: seconds, their text, and per cent.

    The axis begins and ends with what was measured; no round numbers that were not. `gap_s`:
    between them at least.
    """
    extent, median_s = panel.extent_s(), panel.median_s
    if median_s is None or extent is None:
        return []
    shown = [median_s] if extent[0] <= median_s <= extent[1] else []
    for value in reversed(extent):
        if all(abs(value - other) >= gap_s for other in shown):
            shown.append(value)
    return [
        (at, time_text(at), "median" if at == median_s else percent_text(at / median_s))
        for at in shown
    ]


def label_text(label: Label, panel: Panel) -> str:
    """Return a label's words, with its iterations where the panel shows others as well."""
    shown = {dot.iteration for dot in panel.dots}
    here = sorted(shown.intersection(label.iterations))
    if not here or len(here) == len(shown) or "iteration" in label.text:
        return label.text
    return f"{label.text} ({'iteration' if len(here) == 1 else 'iterations'} {format_list(here)})"


def outside_text(dots: Sequence[Dot], most: int = 3) -> str:
    """Say how far out the dots are that lie beyond an end of the axis."""
    if len(dots) > most:
        times = [dot.elapsed_s for dot in dots]
        return f"{len(dots)} copies: {time_text(min(times))} to {time_text(max(times))}"
    return ", ".join(f"copy {dot.copy}: {time_text(dot.elapsed_s)}" for dot in dots)


def failed_text(panel: Panel) -> str | None:
    """Say which copies failed, and which rater stopped, which is no fault of theirs; None: none."""
    parts = []
    by_cause = group_by_key(
        (one.status is CopyStatus.INTERRUPTED, one.copy) for _, one in panel.failed
    )
    for interrupted, how in ((False, "failed"), (True, "interrupted")):
        copies = sorted(set(by_cause.get(interrupted, ())))
        long = len(format_list(copies)) > _MOST_LETTERS
        which = copies_text(len(copies)) if long else formatting.format_copies(copies)
        parts += [f"{which} {how}"] if copies else []
    return "; ".join(parts) or None


# -- One panel of the copies' times as JSON values, the same for a page and a file -----------------
#
# Many values of one kind are lists side by side (`copy`, `cpu`, `s`, ...): 12,441 copy runs
# are less than a megabyte so. Times are seconds, rounded to seven digits.

_TICK_GAP = 0.14  # of a panel's height: nearer numbers would touch
SLOW, EXPLAINED = 1, 2  # kinds of dots; all others are 0
PLACE = ("copy", "cpu", "core", "node")


def seconds(value: float) -> float:
    """Return a time with the digits that a picture can show."""
    return float(f"{value:.7g}")


def value_lists(rows: Sequence[object], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return what rows have under these names, a list for each."""
    return {name: [getattr(row, name) for row in rows] for name in names}


def group_values(picture: Picture) -> list[list[str | int]]:
    """Return the lgroups of a picture: name, first place, places."""
    return [[group.name, group.first, group.size] for group in picture.groups]


def group_rows(groups: Sequence[Sequence[str | int]]) -> list[dict[str, object]]:
    """Return the same as what a specification draws."""
    return objects("name first size place", ((*group, at) for at, group in enumerate(groups)))


def panel_values(
    panel: Panel,
    kinds: Mapping[Dot, int],
    *,
    repeated: bool,
    ends_s: tuple[float, float] | None = None,
    tick_gap: float = _TICK_GAP,
) -> dict[str, Any]:
    """Return a panel's axis, numbers, names and dots.

    `kinds` are those of `dot_kinds`. `repeated`: copies ran several times. `ends_s`: of the axis,
    where they are not the panel's own; ticks are at least `tick_gap` of it from each other.
    """
    low_s, high_s = ends_s or (panel.low_s, panel.high_s)
    named = [(label, ()) for label in panel.overall()] + list(panel.parts())
    beyond = [panel.outside(above=above) for above in (True, False)]
    dots = value_lists(panel.dots, ("place", *PLACE)) | {
        "it": [dot.iteration for dot in panel.dots],
        "s": [seconds(dot.elapsed_s) for dot in panel.dots],
        "kind": [kinds.get(dot, 0) for dot in panel.dots],
    }
    if repeated:
        dots["fastest"] = [seconds(dot.fastest_s) for dot in panel.dots]
        dots["slowest"] = [seconds(dot.slowest_s) for dot in panel.dots]
    return {
        "title": panel.title,
        "median": seconds(panel.median_s) if panel.median_s else None,
        "low": seconds(low_s),
        "high": seconds(high_s),
        "ticks": [
            [seconds(value), text, share]
            for value, text, share in ticks(panel, tick_gap * (high_s - low_s))
        ],
        "labels": [_label(label, of, panel) for label, of in named],
        "outside": [outside_text(far) for far in beyond if far],
        "failed": [
            [
                *(place, one.copy, one.iteration, one.cpu, one.node),
                *(seconds(one.elapsed_s), sanitize(one.what)),
            ]
            for place, one in panel.failed
        ],
        "failedText": failed_text(panel),
        "dots": dots,
    }


def dot_kinds(panel: Panel) -> dict[Dot, int]:
    """Return the dots that have names: parts of the picture, and iterations that stand out."""
    shown = {dot.iteration for dot in panel.dots}
    whole = [
        (label, panel.covered(label))
        for label in panel.overall()
        if label.iterations and not shown.issubset(label.iterations)
    ]
    return {
        dot: EXPLAINED if label.explained else SLOW
        for label, dots in reversed([*panel.parts(), *whole])
        for dot in dots
    }


def _label(label: Label, dots: Sequence[Dot], panel: Panel) -> dict[str, Any]:
    return {
        "text": sanitize(label_text(label, panel)),
        "explained": label.explained,
        "copies": sorted({dot.copy for dot in dots}),
        "its": [] if dots else sorted(label.iterations),  # of all copies: iterations alone
    }
