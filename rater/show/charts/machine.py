"""The machine as packages, NUMA nodes, LLCs, cores and CPUs: one SVG, for a page and a file.

A page's script colours it anew. The colours and numbers are the medians of `slowdowns`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from msgspec import Struct

from rater.record.stored import StoredRun
from rater.show.charts.measured import TIME, DrawnMeasure
from rater.show.charts.pairs import RunPair, changed_places
from rater.show.charts.picture import unknown_last
from rater.show.charts.vega import FONT, WIDTH, Html, coloured, element, joined, page_colours
from rater.show.screen.format import sanitize
from rater.system.errors import InputError
from rater.text.values import group_by_key

type MachineRow = Sequence[int | None]  # CPU, package, NUMA node, LLC, core

_PACKAGE, _NODE, _LLC, _CORE = 1, 2, 3, 4  # places in it
# CPUs at most, and how wide they are on a page: a phone shows less than these shrunk.
_PAGE_WIDTHS = ((128, 480.0), (512, 640.0), (math.inf, WIDTH))
_SHARE = 6  # letters of a size, which a page may show later

_LETTER = 6.7  # pixels that one of a name takes at most, on average
_CELL, _GAP, _PAD = 16.0, 4.0, 6.0
_NAME = 17.0  # pixels that the line of a name takes
_LEAST_SPAN = 0.05  # of the colours
_MANY, _MOST_OF_SPAN = 50, 0.98  # of many CPUs so many are within the colours
_MOST_THREADS = 16  # of a core side by side
_LARGE = 0.015  # of a NUMA node: its number is shown as slow
_RAMP = 90.0
_END = f"{_CELL - 1:g}"
_STRIKE = element(
    "path", class_="strike", d=f"M1 1L{_END} {_END}", stroke="var(--ink)", stroke_width=2
)
_TITLES = re.compile("<title>[^<]*</title>")


class _Colours(Struct, frozen=True):
    """What the colours of CPUs mean."""

    measure: DrawnMeasure
    span: float  # share of the median copy that the ends of the scale stand for

    def is_worse(self, share: float) -> bool:
        """Return whether a share of the median copy is on the side that is told in orange."""
        return share > 1 if self.measure.highest_is_worst else share < 1

    def ends(self) -> tuple[str, str]:
        """Return what the blue and the orange end of the scale are called."""
        least = f"{self.span * 100 + 1e-9:.0f} %"
        if self.measure.is_time:
            return f"faster, \u2212{least}", f"+{least}, slower"
        low, high = f"\u2212{least}", f"+{least}"
        cool, hot = (low, high) if self.measure.highest_is_worst else (high, low)
        first, second = ("better, ", ", worse") if self.measure.better else ("", "")
        return f"{first}{cool}", f"{hot}{second}"


class _SvgBox(Struct, frozen=True):
    """A drawing with its size; its own corner is at 0, 0."""

    width: float
    height: float
    svg: Html


# -- what is drawn ------------------------------------------------------------------------


def machine_rows(run: StoredRun) -> list[list[int | None]]:
    """Return the machine as packages > NUMA nodes > LLCs > cores > CPUs, as far as they are known.

    Of an imported run without a machine: what its copies say of their CPUs.
    """
    places: dict[int, tuple[int | None, ...]] = {
        pu.cpu: (pu.package, pu.node, pu.llc, pu.core) for pu in run.pus
    }
    for row in run.copies:
        if row.cpu is None:
            continue
        of_copy = (row.package, row.node, row.llc, row.core)
        known_place = places.get(row.cpu, (None,) * 4)
        places[row.cpu] = tuple(
            known_number if known_number is not None else copy_number
            for known_number, copy_number in zip(known_place, of_copy, strict=True)
        )
    return [
        [cpu, *place]
        for cpu, place in sorted(
            places.items(), key=lambda item: (*map(unknown_last, item[1]), item[0])
        )
    ]


def slowdowns(panels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return times over the median copy's by CPU and NUMA node, medians over all these panels.

    And the CPUs on which a copy failed. `panels` as `run_data` has them.
    """
    cpus: dict[int, list[float]] = {}
    nodes: dict[int, list[float]] = {}
    failed: set[int] = set()
    for panel in panels:
        dots = panel["dots"]
        failed |= {cpu for _, _, _, cpu, *_ in panel["failed"] if cpu is not None}
        if not panel["median"] or panel["median"] < 0:
            continue
        for cpu, node, elapsed_s in zip(dots["cpu"], dots["node"], dots["s"], strict=True):
            for shares_of_part, key in ((nodes, node), (cpus, cpu)):
                if key is not None:
                    shares_of_part.setdefault(key, []).append(elapsed_s / panel["median"])
    return {
        "cpus": {
            cpu: round(median(shares_of_part), 6) for cpu, shares_of_part in sorted(cpus.items())
        },
        "nodes": {
            node: round(median(shares_of_part), 6) for node, shares_of_part in sorted(nodes.items())
        },
        "failed": sorted(failed),
    }


def colour_span(shares: Iterable[float]) -> float:
    """Return how far from the median copy the colours reach, for shares of CPUs."""
    sizes = sorted(abs(share - 1) for share in shares)
    # Among many CPUs a few that are far out may not take the colours from all the others.
    last = int((_MOST_OF_SPAN if len(sizes) > _MANY else 1) * (len(sizes) - 1))
    return max(_LEAST_SPAN, sizes[last] if sizes else 0.0)


def machine_html(rows: Sequence[MachineRow], seen: Mapping[str, Any]) -> Html:
    """Return the machine for a page, whose script colours it anew; `seen` as of `slowdowns`."""
    if not rows:
        return element("p", "It is not known where the copies ran.", class_="dim")
    width = next(width for cpus, width in _PAGE_WIDTHS if len(rows) <= cpus)
    box = _machine(rows, seen, _Colours(TIME, colour_span(seen["cpus"].values())), width)
    return element(
        "svg",
        Html(_TITLES.sub("", box.svg)),  # its script's cards say more
        viewBox=f"-1 -1 {box.width + 2:g} {box.height + 2:g}",
        style=f"--wide: {box.width + 2:g}px",
    )


def machine_svg(
    run: int,
    rows: Sequence[MachineRow],
    panels: Sequence[Mapping[str, Any]],
    measure: DrawnMeasure = TIME,
) -> str:
    """Return the machine of a run as a file, below what its colours mean.

    `panels` as `panel_values` has them. Raises `InputError` where no value is a share of a median.
    """
    seen = slowdowns(panels)
    if not seen["cpus"] and not measure.is_time:
        raise InputError(f"run {run}: no CPU is known whose copies have {measure.name} above 0")
    what = "times" if measure.is_time else sanitize(measure.name)
    title = f"run {run}: each CPU by the median of its copies' {what} over the median copy"
    return _machine_file(rows, seen, f"{title}{sanitize(measure.direction)}", measure)


def pair_machine_svg(
    rows: Sequence[MachineRow], pair: RunPair, measure: DrawnMeasure = TIME
) -> str:
    """Return the machine as a file, by how the copies of the most changed benchmark changed."""
    before, after = pair.runs
    benchmark = pair.benchmarks[0]
    over = f"the {measure.name} of run {after} over that of {before}{measure.direction}"
    title = sanitize(f"{benchmark.name}: each CPU by how its copies changed, {over}")
    return _machine_file(rows, changed_places([benchmark]), title, measure)


def _machine_file(
    rows: Sequence[MachineRow], seen: Mapping[str, Any], title: str, measure: DrawnMeasure
) -> str:
    colours = _Colours(measure, colour_span(seen["cpus"].values()))
    legend = _legend(title, rows, seen, colours)
    body = _machine(rows, seen, colours, WIDTH)
    width, height = max(legend.width, body.width) + 16, legend.height + body.height + 22
    drawing = element(
        "svg",
        _rect(width, height, fill="var(--page)"),
        _moved(legend, 8, 6),
        _moved(body, 8, legend.height + 14),
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        font_family=FONT,
    )
    return coloured(drawing)


# -- the one drawing ----------------------------------------------------------------------


def _machine(
    rows: Sequence[MachineRow], seen: Mapping[str, Any], colours: _Colours, most: float
) -> _SvgBox:
    """Return packages with their NUMA nodes and CPUs, about `most` pixels wide.

    Where one NUMA node spans packages (memory as near to all), nodes with their packages.
    """
    spans = any(len(_split(part_rows, _PACKAGE)) > 1 for part_rows in _split(rows, _NODE).values())
    outer, inner = (_NODE, _PACKAGE) if spans else (_PACKAGE, _NODE)
    named = {_PACKAGE: len(_split(rows, _PACKAGE)) > 1, _NODE: True}

    def framed(level: int, number: int | None, blocks: Sequence[_SvgBox]) -> _SvgBox:
        if level == _NODE:
            inside = _flow(blocks, _PAD, _broad(blocks, most - 60))
            return _node(number, inside, seen["nodes"].get(number), colours)
        inside = _flow(blocks, 8.0, most - 40)
        if number is None or not named[_PACKAGE]:
            return inside
        return _framed(_word(f"package {number}"), inside, line="grid")

    def caches(part: Sequence[MachineRow]) -> _SvgBox:
        blocks = [
            _cache(cache, part_rows, seen, colours)
            for cache, part_rows in _split(part, _LLC).items()
        ]
        return _flow(blocks, _PAD, _broad(blocks, most - 60))

    wholes = [
        framed(
            outer,
            whole,
            [
                framed(inner, number, [caches(part_rows)])
                for number, part_rows in _split(part, inner).items()
            ],
        )
        for whole, part in _split(rows, outer).items()
    ]
    return _flow(wholes, 10.0, most)


def _split(rows: Sequence[MachineRow], level: int) -> dict[Any, list[MachineRow]]:
    """Return the rows by one of their values; of unknown cores each CPU is one."""
    return group_by_key(
        (f"CPU {row[0]}" if level == _CORE and row[level] is None else row[level], row)
        for row in rows
    )


def _node(number: int | None, inside: _SvgBox, share: float | None, colours: _Colours) -> _SvgBox:
    """Return the CPUs of a NUMA node below its name, which chooses its copies on a page."""
    if number is None:
        return _framed(_word("CPUs", "ink"), inside, fill="var(--soft)")
    slow = share is not None and colours.is_worse(share) and abs(share - 1) >= _LARGE
    size = "" if share is None else _percent(share)
    fill = f"var(--{'slow-text' if slow else 'faint'})"
    sized = element("tspan", size, class_="share slow" if slow else "share", fill=fill)
    name = f"NUMA node {number} "
    text = element("text", name, sized, x=0, y=12, font_size=11, fill="var(--ink)")
    word = element("g", text, class_="name", role="button", tabindex=0, data_node=number)
    width = _LETTER * (len(name) + max(_SHARE, len(size)))
    return _framed(_SvgBox(width, _CELL, word), inside, fill="var(--soft)")


def _cache(
    cache: int | None, rows: Sequence[MachineRow], seen: Mapping[str, Any], colours: _Colours
) -> _SvgBox:
    """Return the CPUs below one LLC, in a frame where it is known; those of a core touch."""
    cores = [
        _core([_cpu(row, seen, colours) for row in core_rows])
        for core_rows in _split(rows, _CORE).values()
    ]
    columns = max(4, math.ceil(math.sqrt(3 * len(rows))))
    inner = _flow(cores, _GAP, columns * (_CELL + _GAP))
    if cache is None:
        return inner
    width, height = inner.width + 2 * _GAP, inner.height + 2 * _GAP
    frame = _rect(width, height, fill="var(--page)", line="grid")
    group = element("g", element("title", "LLC"), frame, _moved(inner, _GAP, _GAP))
    return _SvgBox(width, height, group)


def _core(cpus: Sequence[Html]) -> _SvgBox:
    """Return the CPUs of a core; of several the frame is darker."""
    inner = _flow([_SvgBox(_CELL, _CELL, cpu) for cpu in cpus], 0.0, _MOST_THREADS * _CELL)
    if len(cpus) < 2:
        return inner
    frame = _rect(inner.width, inner.height, line="dot2")
    return _SvgBox(inner.width, inner.height, joined(inner.svg, frame))


def _cpu(row: MachineRow, seen: Mapping[str, Any], colours: _Colours) -> Html:
    cpu, _, node, _, core = row
    share, failed = seen["cpus"].get(cpu), cpu in seen["failed"]
    words = [] if share is None else [_percent(share)]
    words += ["a copy failed"] if failed else [] if words else ["not used"]
    fill = "var(--even)" if failed else "none"
    if share is not None:
        named = page_colours()
        end = named["hot" if share == 1 or colours.is_worse(share) else "cool"]
        fill = _mixed(named["even"], end, min(1.0, abs(share - 1) / colours.span))
    return element(
        "g",
        element("title", f"CPU {cpu}: {', '.join(words)}"),
        _rect(_CELL, _CELL, fill=fill, line="line"),
        _STRIKE if failed else "",
        class_="cpu",
        role="button",
        tabindex=-1,
        data_cpu=cpu,
        data_core=core,
        data_in=node,
    )


def _legend(
    title: str, rows: Sequence[MachineRow], seen: Mapping[str, Any], colours: _Colours
) -> _SvgBox:
    """Return what the drawing is of, and what its colours, marks and frames mean."""
    first_end, last_end = colours.ends()
    named = page_colours()
    stops = (
        element("stop", offset=offset, stop_color=named[name])
        for offset, name in ((0, "cool"), (0.5, "even"), (1, "hot"))
    )
    ramp = joined(
        element("linearGradient", *stops, id="ramp"), _rect(_RAMP, _CELL, fill="url(#ramp)")
    )
    even = _rect(_CELL, _CELL, fill="var(--even)", line="line")
    key = [_word(first_end), _SvgBox(_RAMP, _CELL, ramp), _word(last_end)]
    marks: list[tuple[Html, str]] = []
    if seen["failed"]:
        marks.append((joined(even, _STRIKE), "a copy failed"))
    if any(row[0] not in seen["cpus"] and row[0] not in seen["failed"] for row in rows):
        marks.append((_rect(_CELL, _CELL, line="line"), "not used"))
    for svg, words in marks:
        key += [_SvgBox(_CELL, _CELL, svg), _word(words)]
    cores = Counter(tuple(row[1:]) for row in rows if row[4] is not None)
    shared = any(cpus > 1 for cpus in cores.values())
    parts = ["CPUs that touch are a core"] if shared else []
    parts += (
        ["a frame is a last-level cache (LLC)"] if any(row[3] is not None for row in rows) else []
    )
    lines = [_word(title, "ink"), _flow(key, 6.0, WIDTH)]
    lines += [_word("; ".join(parts))] if parts else []
    return _flow(lines, 4.0, 0.0)


def _word(words: str, colour: str = "faint") -> _SvgBox:
    text = element("text", words, x=0, y=12, font_size=11, fill=f"var(--{colour})")
    return _SvgBox(_LETTER * len(words), _CELL, text)


def _framed(
    name: _SvgBox, inside: _SvgBox, *, fill: str = "none", line: str | None = None
) -> _SvgBox:
    """Return a box wide enough for its name above what it holds."""
    width = max(inside.width, name.width) + 2 * _PAD
    height = inside.height + _NAME + _PAD
    box = _rect(width, height, fill=fill, line=line)
    group = element("g", box, _moved(name, _PAD, 0), _moved(inside, _PAD, _NAME))
    return _SvgBox(width, height, group)


def _broad(blocks: Sequence[_SvgBox], most: float) -> float:
    """Return how wide blocks of one box stand so that it is about three times as wide as high."""
    area = sum((block.width + _PAD) * (block.height + _PAD) for block in blocks)
    return min(most, math.sqrt(3 * area))


def _flow(blocks: Sequence[_SvgBox], gap: float, most: float) -> _SvgBox:
    """Return blocks side by side in lines that are at most so wide, as words are set."""
    parts: list[Html] = []
    x_position = top = high = width = 0.0
    for block in blocks:
        if x_position and x_position + block.width > most:
            x_position, top, high = 0.0, top + high + gap, 0.0
        parts.append(_moved(block, x_position, top))
        width, high = max(width, x_position + block.width), max(high, block.height)
        x_position += block.width + gap
    return _SvgBox(width, top + high, joined(*parts))


def _moved(block: _SvgBox, x: float, y: float) -> Html:
    """Return a box with its corner at x, y in pixels from the corner of what holds it."""
    if not x and not y:
        return block.svg
    return element("g", block.svg, transform=f"translate({x:g} {y:g})")


def _rect(width: float, height: float, *, fill: str = "none", line: str | None = None) -> Html:
    stroke = None if line is None else f"var(--{line})"
    return element("rect", width=width, height=height, fill=fill, stroke=stroke)


def _percent(share: float) -> str:
    """Return a distance to the median copy as the page's script writes it."""
    size = (share - 1) * 100
    # JavaScript rounds halves away from zero.
    text = f"{abs(size) + 1e-9:.{1 if abs(size) < 10 else 0}f}"
    sign = "\u00b1" if float(text) == 0 else "+" if size > 0 else "\u2212"
    return f"{sign}{text} %"


def _mixed(first: str, second: str, share: float) -> str:
    """Return a colour between two of `#rrggbb`."""
    pairs = (
        (int(colour[digit : digit + 2], 16) for colour in (first, second)) for digit in (1, 3, 5)
    )
    return "#" + "".join(
        f"{round(first_value + (second_value - first_value) * share):02x}"
        for first_value, second_value in pairs
    )
