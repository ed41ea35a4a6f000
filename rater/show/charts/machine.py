"""The machine as packages, lgroups, LLCs, cores and CPUs: drawn here, for a page and a file.

The CPUs of an lgroup are an SVG. A page frames each in HTML, so that they flow on any screen, and
its script colours them anew; a file has frames of SVG around them. The colours and numbers are the
medians of `slowdowns`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from statistics import median
from typing import Any

from msgspec import Struct

from rater.record.stored import StoredRun
from rater.show.charts.picture import unknown_last
from rater.show.charts.vega import FONT, WIDTH, Html, coloured, element, joined, page_colours
from rater.text.values import group_by_key

type MachineRow = Sequence[int | None]  # CPU, package, lgroup, LLC, core

_LETTER = 6.7  # pixels that one of a name takes at most, on average
_CELL, _GAP, _PAD = 16.0, 4.0, 6.0
_NAME = 17.0  # pixels that the line of a name takes
_LEAST_SPAN = 0.05  # of the colours
_MANY, _MOST_OF_SPAN = 50, 0.98  # of many CPUs so many are within the colours
_MOST_THREADS = 16  # of a core side by side
_LARGE = 0.015  # of an lgroup: its number is shown as slow
_RAMP = 90.0


class _SvgBox(Struct, frozen=True):
    """A drawing with its size; its own corner is at 0, 0."""

    width: float
    height: float
    svg: Html


# -- what is drawn ------------------------------------------------------------------------


def machine_rows(run: StoredRun) -> list[list[int | None]]:
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
        known = places.get(row.cpu, (None,) * 4)
        places[row.cpu] = tuple(
            own if own is not None else other for own, other in zip(known, of_copy, strict=True)
        )
    return [
        [cpu, *place]
        for cpu, place in sorted(
            places.items(), key=lambda item: (*map(unknown_last, item[1]), item[0])
        )
    ]


def slowdowns(panels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return times over the median copy's by CPU and lgroup, medians over all these panels.

    And the CPUs on which a copy failed. `panels` as `run_data` has them.
    """
    cpus: dict[int, list[float]] = {}
    nodes: dict[int, list[float]] = {}
    failed: set[int] = set()
    for panel in panels:
        dots = panel["dots"]
        failed |= {cpu for _, _, _, cpu, *_ in panel["failed"] if cpu is not None}
        if not panel["median"]:
            continue
        for cpu, node, elapsed_s in zip(dots["cpu"], dots["node"], dots["s"], strict=True):
            for of, key in ((nodes, node), (cpus, cpu)):
                if key is not None:
                    of.setdefault(key, []).append(elapsed_s / panel["median"])
    return {
        "cpus": {cpu: round(median(of), 6) for cpu, of in sorted(cpus.items())},
        "nodes": {node: round(median(of), 6) for node, of in sorted(nodes.items())},
        "failed": sorted(failed),
    }


def colour_span(shares: Iterable[float]) -> float:
    """Return how far from the median copy the colours reach, for shares of CPUs."""
    sizes = sorted(abs(share - 1) for share in shares)
    # Among many CPUs a few that are far out may not take the colours from all the others.
    last = int((_MOST_OF_SPAN if len(sizes) > _MANY else 1) * (len(sizes) - 1))
    return max(_LEAST_SPAN, sizes[last] if sizes else 0.0)


def machine_html(rows: Sequence[MachineRow], failed: Sequence[int]) -> Html:
    """Return the machine of a page; its script colours it. `failed`: CPUs to be struck out."""
    if not rows:
        return element("p", "It is not known where the copies ran.", class_="dim")

    def cpu(row: MachineRow) -> Html:
        strike = _strike() if row[0] in failed else ""
        return element(
            "g",
            _rect(_CELL, _CELL, fill="var(--even)", line="line"),
            strike,
            class_="cpu",
            role="button",
            tabindex=-1,
            data_cpu=row[0],
            data_core=row[4],
            data_lgroup=row[2],
        )

    def framed(at: int, value: int | None, inner: Sequence[Html]) -> Html:
        name: str = ""
        if at == 1:
            several = len(_split(rows, 1)) > 1 and value is not None
            name = element("div", f"package {value}", class_="name") if several else ""
        elif value is None:
            name = element("div", "CPUs", class_="name")
        else:
            words = (f"lgroup {value} ", element("span", class_="share"))
            name = element("button", *words, type="button", class_="name", data_node=value)
        return element("div", name, *inner, class_="package" if at == 1 else "lgroup")

    def drawn(part: Sequence[MachineRow]) -> Html:
        block = _part(part, cpu)
        return element(
            "svg",
            block.svg,
            viewBox=f"-1 -1 {block.width + 2:g} {block.height + 2:g}",
            style=f"--wide: {block.width + 2:g}px",
        )

    wholes = (
        framed(
            at,
            whole,
            [
                element(
                    "div",
                    *(framed(3 - at, value, [drawn(part)]) for value, part in parts),
                    class_="parts",
                )
            ],
        )
        for at, whole, parts in _nested(rows)
    )
    return element("div", *wholes, class_="boxes dense" if len(rows) > 256 else "boxes")


def machine_svg(run: Mapping[str, Any]) -> str:
    """Return the machine of `run_data`'s value, coloured by the slowdown of its copies."""
    rows, seen = run["machine"], slowdowns(run["panels"])
    span = colour_span(seen["cpus"].values())

    def cpu(row: MachineRow) -> Html:
        return _coloured_cpu(int(row[0] or 0), seen, span)

    def framed(at: int, value: int | None, blocks: Sequence[_SvgBox]) -> _SvgBox:
        if at == 1:
            inner = _flow(blocks, 8.0, WIDTH - 40)
            if value is None or len(_split(rows, 1)) < 2:
                return inner
            return _framed(f"package {value}", inner, "faint", line="grid")
        share = seen["nodes"].get(value)
        name = "CPUs" if value is None else f"lgroup {value}"
        slow = share is not None and share >= 1 + _LARGE
        name += "" if share is None else f" {_percent(share)}"
        inner = _flow(blocks, _PAD, _broad(blocks))
        return _framed(name, inner, "slow-text" if slow else "ink", fill="var(--soft)")

    wholes = [
        framed(at, whole, [framed(3 - at, value, [_part(part, cpu)]) for value, part in parts])
        for at, whole, parts in _nested(rows)
    ]
    head = _legend(run["run"], rows, seen, span)
    body = _flow(wholes, 10.0, WIDTH)
    width, height = max(head.width, body.width) + 16, head.height + body.height + 22
    drawing = element(
        "svg",
        _rect(width, height, fill="var(--page)"),
        _moved(head, 8, 6),
        _moved(body, 8, head.height + 14),
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {width:g} {height:g}",
        font_family=FONT,
    )
    return coloured(drawing)


# -- parts that both have -----------------------------------------------------------------


def _nested(
    rows: Sequence[MachineRow],
) -> Iterator[tuple[int, int | None, list[tuple[int | None, list[MachineRow]]]]]:
    """Yield packages with their lgroups: 1, a package, its lgroups with their rows.

    Where one lgroup spans packages (memory as near to all), lgroups with their packages: 2, ...
    """
    spans = any(len(_split(of, 1)) > 1 for of in _split(rows, 2).values())
    at = 2 if spans else 1
    for whole, of_whole in _split(rows, at).items():
        yield at, whole, list(_split(of_whole, 3 - at).items())


def _split(rows: Sequence[MachineRow], at: int) -> dict[Any, list[MachineRow]]:
    """Return the rows by one of their values; of unknown cores each CPU is one."""
    return group_by_key(
        (f"CPU {row[0]}" if at == 4 and row[4] is None else row[at], row) for row in rows
    )


def _part(rows: Sequence[MachineRow], cpu: Callable[[MachineRow], Html]) -> _SvgBox:
    """Return the CPUs of an lgroup in a package, LLC by LLC, as `cpu` draws each."""
    caches = [_cache(cache, of, cpu) for cache, of in _split(rows, 3).items()]
    return _flow(caches, _PAD, _broad(caches))


def _cache(
    cache: int | None, rows: Sequence[MachineRow], cpu: Callable[[MachineRow], Html]
) -> _SvgBox:
    """Return the CPUs below one LLC, in a frame where it is known; those of a core touch."""
    cores = [_core([cpu(row) for row in of]) for of in _split(rows, 4).values()]
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


def _strike() -> Html:
    return element(
        "path",
        class_="strike",
        d=f"M1 1L{_CELL - 1:g} {_CELL - 1:g}",
        stroke="var(--ink)",
        stroke_width=2,
    )


# -- the file -----------------------------------------------------------------------------


def _coloured_cpu(cpu: int, seen: Mapping[str, Any], span: float) -> Html:
    share, failed = seen["cpus"].get(cpu), cpu in seen["failed"]
    words = [] if share is None else [_percent(share)]
    words += ["a copy failed"] if failed else [] if words else ["not used"]
    fill = "var(--even)" if failed else "none"
    if share is not None:
        colours = page_colours()
        end = colours["cool" if share < 1 else "hot"]
        fill = _mixed(colours["even"], end, min(1.0, abs(share - 1) / span))
    return element(
        "g",
        element("title", f"CPU {cpu}: {', '.join(words)}"),
        _rect(_CELL, _CELL, fill=fill, line="line"),
        _strike() if failed else "",
    )


def _legend(run: int, rows: Sequence[MachineRow], seen: Mapping[str, Any], span: float) -> _SvgBox:
    """Return what the drawing is of, and what its colours, marks and frames mean."""
    title = f"run {run}: each CPU by the median of its copies' times over the median copy"
    end = f"{_rounded(span * 100, 0)} %"
    colours = page_colours()
    stops = (
        element("stop", offset=at, stop_color=colours[name])
        for at, name in ((0, "cool"), (0.5, "even"), (1, "hot"))
    )
    ramp = joined(
        element("linearGradient", *stops, id="ramp"), _rect(_RAMP, _CELL, fill="url(#ramp)")
    )
    even = _rect(_CELL, _CELL, fill="var(--even)", line="line")
    key = [_word(f"faster, \u2212{end}"), _SvgBox(_RAMP, _CELL, ramp), _word(f"+{end}, slower")]
    marks: list[tuple[Html, str]] = []
    if seen["failed"]:
        marks.append((joined(even, _strike()), "a copy failed"))
    if any(row[0] not in seen["cpus"] and row[0] not in seen["failed"] for row in rows):
        marks.append((_rect(_CELL, _CELL, line="line"), "not used"))
    for svg, words in marks:
        key += [_SvgBox(_CELL, _CELL, svg), _word(words)]
    cores = Counter(tuple(row[1:]) for row in rows if row[4] is not None)
    shared = any(cpus > 1 for cpus in cores.values())
    parts = ["CPUs that touch are a core"] if shared else []
    parts += ["a frame is a last-level cache (LLC)"] if any(r[3] is not None for r in rows) else []
    lines = [_word(title, "ink"), _flow(key, 6.0, WIDTH)]
    lines += [_word("; ".join(parts))] if parts else []
    return _flow(lines, 4.0, 0.0)


def _word(words: str, colour: str = "faint") -> _SvgBox:
    return _SvgBox(_LETTER * len(words), _CELL, _text(0, words, colour))


def _framed(
    name: str, inner: _SvgBox, ink: str, *, fill: str = "none", line: str | None = None
) -> _SvgBox:
    """Return a box wide enough for its name above what it holds."""
    width = max(inner.width, _LETTER * len(name)) + 2 * _PAD
    height = inner.height + _NAME + _PAD
    box = _rect(width, height, fill=fill, line=line)
    group = element("g", box, _text(_PAD, name, ink), _moved(inner, _PAD, _NAME))
    return _SvgBox(width, height, group)


def _broad(blocks: Sequence[_SvgBox]) -> float:
    """Return how wide blocks of one box stand so that it is about three times as wide as high."""
    area = sum((block.width + _PAD) * (block.height + _PAD) for block in blocks)
    return min(WIDTH - 60.0, math.sqrt(3 * area))


def _flow(blocks: Sequence[_SvgBox], gap: float, most: float) -> _SvgBox:
    """Return blocks side by side in lines that are at most so wide, as words are set."""
    parts: list[Html] = []
    left = top = high = width = 0.0
    for block in blocks:
        if left and left + block.width > most:
            left, top, high = 0.0, top + high + gap, 0.0
        parts.append(_moved(block, left, top))
        width, high = max(width, left + block.width), max(high, block.height)
        left += block.width + gap
    return _SvgBox(width, top + high, joined(*parts))


def _moved(block: _SvgBox, x: float, y: float) -> Html:
    if not x and not y:
        return block.svg
    return element("g", block.svg, transform=f"translate({x:g} {y:g})")


def _rect(width: float, height: float, *, fill: str = "none", line: str | None = None) -> Html:
    stroke = None if line is None else f"var(--{line})"
    return element("rect", width=width, height=height, fill=fill, stroke=stroke)


def _text(x: float, text: str, colour: str) -> Html:
    return element("text", text, x=x, y=12, font_size=11, fill=f"var(--{colour})")


def _percent(share: float) -> str:
    """Return a distance to the median copy as the page's script writes it."""
    size = (share - 1) * 100
    text = _rounded(abs(size), 1 if abs(size) < 10 else 0)
    sign = "\u00b1" if float(text) == 0 else "+" if size > 0 else "\u2212"
    return f"{sign}{text} %"


def _rounded(size: float, places: int) -> str:
    """Return a number as JavaScript's `toFixed`: halves away from zero."""
    return str(Decimal(size).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _mixed(first: str, second: str, share: float) -> str:
    """Return a colour between two of `#rrggbb`."""
    pairs = ((int(one[at : at + 2], 16) for one in (first, second)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)
