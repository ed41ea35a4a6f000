"""A picture of a run's copies on a terminal: a strip for each benchmark, a sign for each copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import median

from msgspec.structs import replace
from rich.cells import cell_len

from rater.show.charts.measured import distance_text
from rater.show.charts.panels import failed_text, label_text, not_known_text, outside_text
from rater.show.charts.picture import Panel, Picture, evenly
from rater.show.screen.console import Printer, Span, without_end
from rater.show.screen.format import crop_apart, sanitize, wrap_text
from rater.text.values import group_by_key

_LEAST_WIDTH = 50
_MOST_STACKED = 12  # iterations of one benchmark that have a strip each
_WIDEST = 4  # cells of a copy
_MOST_NAMES = 4  # of slow parts below a strip
_ENDS = 18  # cells at the right
# In UTF-8 and in plain ASCII.
_LEVELS = "▁▂▃▄▅▆▇█", "_.-:=+*#"  # from the fastest to the slowest
_ABOVE, _BELOW, _FAILED, _NOT_KNOWN = "▲^", "▼v", "×x", "??"
_SLOW, _EXPLAINED, _PLAIN = "bold red", "bold blue", ""

type _Cells = Sequence[range | None]  # the places that a cell shows; None: between NUMA nodes


def print_picture(picture: Picture, printer: Printer) -> None:
    """Print the strips below the numbers of their NUMA nodes and copies."""
    panels, ascii_only = _stacked(picture), printer.ascii_only
    width = max(_LEAST_WIDTH, printer.width)
    margins = _margins(panels, width, ascii_only=ascii_only)
    left = max(len("NUMA node"), *map(cell_len, margins)) + 1
    cells = _cells(picture, width - left - _ENDS)

    def show(begin: str, strip: Sequence[Span], *ends: str) -> None:
        spans = [(f"{_plain(begin, ascii_only):>{left - 1}} ", _PLAIN), *strip]
        taken = sum(cell_len(text) for text, _ in spans)
        spans.append((" " * (left + len(cells) - taken), _PLAIN))
        spans.append(("".join(f"{end:>9}" for end in ends), _PLAIN))
        printer.screen.write_line(without_end(spans))

    printer.prose(picture.title, "bold")
    if picture.repeated:
        printer.prose("Copies ran several times: the median run of each is shown.")
    printer.line()
    for axis_name, marks in _axes(picture, cells):
        show(axis_name, [(marks, _PLAIN)])
    show("median", [], *picture.measure.ends)
    for margin, panel in zip(margins, panels, strict=True):
        show(margin, _strip(panel, cells, ascii_only), *_ends(panel))
        for note in _wrapped_notes(panel, width - left, ascii_only=ascii_only):
            show("", [note])
    printer.line()
    printer.prose(_legend(picture, panels, cells, ascii_only=ascii_only), "dim")


def _margins(panels: Sequence[Panel], width: int, *, ascii_only: bool) -> list[str]:
    """Return what stands left of each strip: name and median, below each other."""
    titles = [sanitize(panel.title, ascii_only=ascii_only) for panel in panels]
    names = crop_apart(titles, max(16, width // 4), ascii_only=ascii_only)
    medians = [
        "-" if panel.median is None else panel.measure.value_text(panel.median) for panel in panels
    ]
    name_width = max([0, *map(cell_len, names)])
    median_width = max(map(cell_len, ("median", *medians)))
    return [
        f"{name}{' ' * (name_width - cell_len(name))}  {median:>{median_width}}"
        for name, median in zip(names, medians, strict=True)
    ]


def _ends(panel: Panel) -> list[str]:
    """Return how far the copies at both ends are from the median; none without dots.

    Where the median is not above 0 there is no such share: the values themselves.
    """
    values, median_value = [dot.value for dot in panel.dots], panel.median
    if median_value is None or not values:  # an iteration of which no value is known
        return []
    return [
        distance_text(end(values), median_value) or panel.measure.value_text(end(values))
        for end in (min, max)
    ]


def _legend(picture: Picture, panels: tuple[Panel, ...], cells: _Cells, *, ascii_only: bool) -> str:
    """Return what one sign of a strip stands for."""
    most = max(len(cell) for cell in cells if cell)
    measure = picture.measure
    sign = f"a {picture.axis}" if most == 1 else f"the {measure.worst} of up to {most} neighbours"
    several = len(picture.iterations) > 1 and panels is picture.panels
    typical = " (median of its iterations)" if several else ""
    low, high = _LEVELS[ascii_only][0], _LEVELS[ascii_only][-1]
    above, below, failed = (signs[ascii_only] for signs in (_ABOVE, _BELOW, _FAILED))
    lacking = any(panel.not_known for panel in panels)
    not_known = f", {_NOT_KNOWN[ascii_only]} not known" if lacking else ""
    least, largest = measure.ends
    return (
        f"One sign: {sign}{typical}, from {low} ({least} of the benchmark) to {high} ({largest}); "
        f"{above} {below} farther out, {failed} failed{not_known}."
    )


def _stacked(picture: Picture) -> tuple[Panel, ...]:
    """Return the panels; the only one as one for each iteration, of two runs each as two."""
    is_alone = len(picture.panels) == 1 and 1 < len(picture.iterations) <= _MOST_STACKED
    if not is_alone and not picture.series:
        return picture.panels
    return tuple(
        replace(
            panel,
            title=f"{panel.title}, {_series_name(picture, iteration)}",
            median=_median_of(panel, iteration) if picture.series else panel.median,
            dots=tuple(dot for dot in panel.dots if dot.iteration == iteration),
            failed=tuple(
                place_and_copy
                for place_and_copy in panel.failed
                if place_and_copy[1].iteration == iteration
            ),
            not_known=tuple(
                lacking for lacking in panel.not_known if lacking.iteration == iteration
            ),
            labels=tuple(
                replace(label, iterations=())
                for label in panel.labels
                if not label.iterations or iteration in label.iterations
            ),
        )
        for panel in picture.panels
        for iteration in picture.iterations
    )


def _series_name(picture: Picture, iteration: int) -> str:
    return picture.series[iteration - 1] if picture.series else f"iteration {iteration}"


def _median_of(panel: Panel, iteration: int) -> float | None:
    values = [dot.value for dot in panel.dots if dot.iteration == iteration]
    return median(values) if values else None


def _cells(picture: Picture, room: int) -> _Cells:
    """Return which places each cell of a strip shows; those of a NUMA node stand together."""
    places = max(1, len(picture.names))
    parts = [range(group.first, group.first + group.size) for group in picture.groups]
    if len(parts) > room // 3:  # no room to set them apart
        parts = []
    parts = parts or [range(places)]
    room = max(1, room - len(parts) + 1)
    cells_per_place, places_per_cell = (
        max(1, min(_WIDEST, room // places)),
        1,
    )  # cells of a place, places of a cell
    while sum(-(-len(part) // places_per_cell) for part in parts) * cells_per_place > max(
        room, len(parts)
    ):
        places_per_cell += 1
    cells: list[range | None] = []
    for part in parts:
        cells += [None] if cells else []
        cells += [
            part[first : first + places_per_cell]
            for first in range(0, len(part), places_per_cell)
            for _ in range(cells_per_place)
        ]
    return cells


def _strip(panel: Panel, cells: _Cells, ascii_only: bool) -> list[Span]:
    if not panel.dots:
        why_none = "no copy ran well" if panel.failed else "no copy ran"
        return [(not_known_text(panel) or why_none, _PLAIN)]
    values = group_by_key((dot.place, dot.value) for dot in panel.dots)
    failed = {place for place, _ in panel.failed}
    not_known = {lacking.place for lacking in panel.not_known}
    worst = max if panel.measure.highest_is_worst else min
    styles = {
        dot.place: _EXPLAINED if label.explained else _SLOW
        for label, dots in reversed(panel.parts())
        for dot in dots
    }
    signs = []
    for cell in cells:
        named = [styles[place] for place in cell or () if place in styles]
        style = _SLOW if _SLOW in named else named[0] if named else _PLAIN
        medians = [median(values[place]) for place in cell or () if place in values]
        # Of two runs a sign is the median over iterations: one that failed is told below it.
        is_failed = failed.intersection(cell or ()) and not (panel.series and medians)
        if is_failed:
            signs.append((_FAILED[ascii_only], _SLOW))
        elif not medians and not_known.intersection(cell or ()):
            signs.append((_NOT_KNOWN[ascii_only], _PLAIN))
        else:
            signs.append((_sign(worst(medians), panel, ascii_only) if medians else " ", style))
    return [
        ("".join(sign for sign, _ in neighbours), style)
        for style, neighbours in groupby(signs, key=itemgetter(1))
    ]


def _sign(value: float, panel: Panel, ascii_only: bool) -> str:
    if value > panel.high:
        return _ABOVE[ascii_only]
    if value < panel.low:
        return _BELOW[ascii_only]
    levels = _LEVELS[ascii_only]
    share = (value - panel.low) / (panel.high - panel.low)
    return levels[min(len(levels) - 1, int(share * len(levels)))]


def _notes(panel: Panel) -> Iterator[Span]:
    """Yield what is slow, what is beyond the ends of the axis, and what failed."""
    labels = [*panel.overall(), *(label for label, _ in panel.parts())]
    for label in labels[:_MOST_NAMES]:
        yield label_text(label, panel), _EXPLAINED if label.explained else _SLOW
    if len(labels) > _MOST_NAMES:
        yield f"and {len(labels) - _MOST_NAMES} more", _SLOW
    far = [
        outside_text(dots, panel.measure)
        for above in (True, False)
        if (dots := panel.outside(above=above))
    ]
    lacking = [not_known_text(panel)] if panel.dots else []
    if words := "; ".join((*far, *filter(None, [failed_text(panel), *lacking]))):
        yield words, _SLOW


def _wrapped_notes(panel: Panel, width: int, *, ascii_only: bool) -> Iterator[Span]:
    """Yield the notes of a panel in lines of at most `width` cells."""
    for words, style in _notes(panel):
        for text in wrap_text(_plain(words, ascii_only), width):
            yield text, style


def _axes(picture: Picture, cells: _Cells) -> Iterator[tuple[str, str]]:
    """Yield the numbers of the copies and of the NUMA nodes, above their cells."""
    middle: dict[int, int] = {}
    for cell_number, cell in enumerate(cells):
        for place in cell or ():
            middle.setdefault(place, cell_number)
    if picture.groups:
        names = [
            (middle[group.first + (group.size - 1) // 2], group.name) for group in picture.groups
        ]
        yield "NUMA node", _spaced(names, len(cells))
    places = range(len(picture.names)) if len(cells) > 3 * len(picture.names) else picture.marks()
    if picture.ascending or len(cells) > 3 * len(picture.names):
        # A few of many numbers in no order say nothing.
        marks = [(middle[place], str(picture.names[place])) for place in places]
        yield picture.axis, _spaced(marks, len(cells))


def _spaced(marks: Sequence[tuple[int, str]], width: int) -> str:
    """Return as many of the marks as fit, evenly chosen, each in the middle of its cell."""
    line = ""
    for middle, text in evenly(marks, 1):
        begin = max(0, min(round(middle - (len(text) - 1) / 2), width - len(text)))
        line += " " * (begin - len(line)) + text
    return line


def _plain(text: str, ascii_only: bool) -> str:
    return sanitize(text.replace("µ", "u") if ascii_only else text, ascii_only=ascii_only)
