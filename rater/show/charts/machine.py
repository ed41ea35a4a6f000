"""The machine of a page as an SVG of its own: packages, lgroups, LLCs, cores and CPUs.

A page builds it of buttons (`machine.js`); this drawing groups the same parts in the same
order, colours them by the same statistic, and writes numbers alike. They must agree.
"""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from statistics import median
from typing import Any

type _Row = Sequence[int | None]  # CPU, package, lgroup, LLC, core

ASSETS = Path(__file__).parents[1] / "html" / "assets"
_FONT = "DejaVu Sans, sans-serif"
WIDTH = 900
_LETTER = 6.7  # points that one of a name takes at most, on average
_CELL, _APART, _PAD = 16.0, 4.0, 6.0
_NAME = 17.0  # points that the line of a name takes
_LEAST_SPAN = 0.05  # of the colours, as in the page
_MANY, _MOST_OF_SPAN = 50, 0.98  # of many CPUs so many are within the colours, as in the page
_MOST_THREADS = 16  # of a core beside each other
_LARGE = 0.015  # of an lgroup: its number is shown as slow, as in the page
_RAMP = 90.0  # points


@dataclass(frozen=True, slots=True)
class _Block:
    """A drawing with its size; its own corner is at 0, 0."""

    width: float
    height: float
    svg: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """What copies say of CPUs and lgroups: their times over the median copy's."""

    cpus: Mapping[int, float]
    nodes: Mapping[int, float]
    failed: frozenset[int]  # CPUs on which a copy failed
    span: float  # of the colours


def machine_svg(run: Mapping[str, Any]) -> str:
    """Return the machine of `run_data`'s value, coloured by the slowdown of its copies."""
    seen, colours, rows = _seen(run), page_colours(), run["machine"]
    packages = _split(rows, 1)
    # Packages hold lgroups; where one lgroup spans packages (memory alike from all), it holds them.
    spans = any(len(_split(of, 1)) > 1 for of in _split(rows, 2).values())

    def lgroup(node: int | None, blocks: Sequence[_Block]) -> _Block:
        share = None if node is None else seen.nodes.get(node)
        name = "CPUs" if node is None else f"lgroup {node}"
        slow = share is not None and share >= 1 + _LARGE
        told = "" if share is None else f" {_percent(share)}"
        return _framed(
            name + told,
            _flow(blocks, _PAD, _broad(blocks)),
            colours["slow-text" if slow else "ink"],
            fill=colours["soft"],
        )

    def package(number: int | None, blocks: Sequence[_Block]) -> _Block:
        inner = _flow(blocks, 8.0, WIDTH - 40)
        if len(packages) < 2 or number is None:
            return inner
        return _framed(f"package {number}", inner, colours["faint"], line=colours["grid"])

    outer, inner = (lgroup, package) if spans else (package, lgroup)
    wholes = [
        outer(
            whole,
            [
                inner(part, [_cache(cache, of, seen, colours) for cache, of in caches])
                for part, of_part in _split(of_whole, 1 if spans else 2).items()
                for caches in [_split(of_part, 3).items()]
            ],
        )
        for whole, of_whole in _split(rows, 2 if spans else 1).items()
    ]
    head = _key(run["run"], rows, seen, colours)
    body = _flow(wholes, 10.0, WIDTH)
    width, height = max(head.width, body.width) + 16, head.height + body.height + 22
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" font-family="{_FONT}">'
        f"{_rect(0, 0, width, height, fill=colours['page'])}"
        f"{_moved(head, 8, 6)}{_moved(body, 8, head.height + 14)}</svg>"
    )


def page_colours() -> dict[str, str]:
    """Return the light colours of the page's style sheet by name, as `#rrggbb`."""
    block = (ASSETS / "page.css").read_text(encoding="utf-8").partition("@media")[0]
    found = re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", block)
    return {
        name: "#" + ("".join(2 * digit for digit in value) if len(value) == 3 else value)
        for name, value in found
    }


def _seen(run: Mapping[str, Any]) -> _Seen:
    """Return the median of each CPU's and each lgroup's copies: of all their runs at once."""
    cpus: dict[int, list[float]] = {}
    nodes: dict[int, list[float]] = {}
    failed: set[int] = set()
    for panel in run["panels"]:
        dots = panel["dots"]
        failed |= {cpu for _, _, _, cpu, *_ in panel["failed"] if cpu is not None}
        if not panel["median"]:
            continue
        for cpu, node, elapsed_s in zip(dots["cpu"], dots["node"], dots["s"], strict=True):
            share = elapsed_s / panel["median"]
            if node is not None:
                nodes.setdefault(node, []).append(share)
            if cpu is not None:
                cpus.setdefault(cpu, []).append(share)
    shares = {cpu: median(of) for cpu, of in cpus.items()}
    sizes = sorted(abs(share - 1) for share in shares.values())
    # Among many CPUs a few that are far out may not take the colours from all the others.
    last = int((_MOST_OF_SPAN if len(sizes) > _MANY else 1) * (len(sizes) - 1))
    largest = sizes[last] if sizes else 0.0
    return _Seen(
        shares,
        {node: median(of) for node, of in nodes.items()},
        frozenset(failed),
        max(_LEAST_SPAN, largest),
    )


def _split(rows: Sequence[_Row], at: int) -> dict[Any, list[_Row]]:
    """Return the rows by one of their values; of unknown cores each CPU is one."""
    found: dict[Any, list[_Row]] = {}
    for row in rows:
        key = f"CPU {row[0]}" if at == 4 and row[4] is None else row[at]
        found.setdefault(key, []).append(row)
    return found


def _cache(
    cache: int | None, rows: Sequence[_Row], seen: _Seen, colours: Mapping[str, str]
) -> _Block:
    """Return the CPUs below one LLC, in a frame where it is known; those of a core touch."""
    cores = [
        _core([_cpu(int(row[0] or 0), seen, colours) for row in of], colours)
        for of in _split(rows, 4).values()
    ]
    columns = max(4, math.ceil(math.sqrt(3 * len(rows))))
    inner = _flow(cores, _APART, columns * (_CELL + _APART))
    if cache is None:
        return inner
    width, height = inner.width + 2 * _APART, inner.height + 2 * _APART
    frame = _rect(0, 0, width, height, fill=colours["page"], line=colours["grid"])
    return _Block(width, height, f"<g><title>LLC</title>{frame}{_moved(inner, _APART, _APART)}</g>")


def _core(cpus: Sequence[str], colours: Mapping[str, str]) -> _Block:
    """Return the CPUs of a core; of several the frame is darker."""
    inner = _flow([_Block(_CELL, _CELL, cpu) for cpu in cpus], 0.0, _MOST_THREADS * _CELL)
    if len(cpus) < 2:
        return inner
    frame = _rect(0, 0, inner.width, inner.height, line=colours["dot2"])
    return _Block(inner.width, inner.height, inner.svg + frame)


def _cpu(cpu: int, seen: _Seen, colours: Mapping[str, str]) -> str:
    share, failed = seen.cpus.get(cpu), cpu in seen.failed
    told = [] if share is None else [_percent(share)]
    told += ["a copy failed"] if failed else [] if told else ["not used"]
    if share is not None:
        heat = min(1.0, abs(share - 1) / seen.span)
        fill = _mixed(colours["even"], colours["cool" if share < 1 else "hot"], heat)
    else:
        fill = colours["even"] if failed else "none"
    box = _rect(0, 0, _CELL, _CELL, fill=fill, line=colours["line"])
    strike = _strike(colours) if failed else ""
    return f"<g><title>CPU {cpu}: {', '.join(told)}</title>{box}{strike}</g>"


def _strike(colours: Mapping[str, str]) -> str:
    return (
        f'<line x1="1" y1="1" x2="{_CELL - 1:g}" y2="{_CELL - 1:g}" '
        f'stroke="{colours["ink"]}" stroke-width="2"/>'
    )


def _key(run: int, rows: Sequence[_Row], seen: _Seen, colours: Mapping[str, str]) -> _Block:
    """Return what the drawing is of, and what its colours, marks and frames mean."""
    title = f"run {run}: each CPU by the median of its copies' times over the median copy"
    span = f"{_rounded(seen.span * 100, 0)} %"
    ramp = (
        f'<linearGradient id="ramp">{_stop(0, colours["cool"])}{_stop(0.5, colours["even"])}'
        f"{_stop(1, colours['hot'])}</linearGradient>"
        f'<rect width="{_RAMP:g}" height="{_CELL:g}" fill="url(#ramp)"/>'
    )
    empty = _rect(0, 0, _CELL, _CELL, fill="none", line=colours["line"])
    even = _rect(0, 0, _CELL, _CELL, fill=colours["even"], line=colours["line"])
    colour_key = [
        _word(f"faster, \u2212{span}", colours),
        _Block(_RAMP, _CELL, ramp),
        _word(f"+{span}, slower", colours),
    ]
    marks: list[tuple[str, str]] = []
    if seen.failed:
        marks.append((even + _strike(colours), "a copy failed"))
    if any(row[0] not in seen.cpus and row[0] not in seen.failed for row in rows):
        marks.append((empty, "not used"))
    for svg, words in marks:
        colour_key += [_Block(_CELL, _CELL, svg), _word(words, colours)]
    parts = ["CPUs that touch are a core"] if _shared_cores(rows) else []
    parts += ["a frame is a last-level cache (LLC)"] if any(r[3] is not None for r in rows) else []
    lines = [_word(title, colours, "ink"), _flow(colour_key, 6.0, WIDTH)]
    lines += [_word("; ".join(parts), colours)] if parts else []
    return _flow(lines, 4.0, 0.0)


def _shared_cores(rows: Sequence[_Row]) -> bool:
    """Tell whether a core has several CPUs."""
    cores = Counter(tuple(row[1:]) for row in rows if row[4] is not None)
    return any(cpus > 1 for cpus in cores.values())


def _stop(at: float, colour: str) -> str:
    return f'<stop offset="{at:g}" stop-color="{colour}"/>'


def _word(words: str, colours: Mapping[str, str], colour: str = "faint") -> _Block:
    return _Block(_LETTER * len(words), _CELL, _text(0, 12, words, colours[colour]))


def _framed(
    name: str, inner: _Block, ink: str, *, fill: str = "none", line: str | None = None
) -> _Block:
    """Return a box wide enough for its name above what it holds."""
    width = max(inner.width, _LETTER * len(name)) + 2 * _PAD
    height = inner.height + _NAME + _PAD
    box = _rect(0, 0, width, height, fill=fill, line=line)
    text = _text(_PAD, 12, name, ink)
    return _Block(width, height, f"<g>{box}{text}{_moved(inner, _PAD, _NAME)}</g>")


def _broad(blocks: Sequence[_Block]) -> float:
    """Return how wide blocks of one box stand so that it is about three times as wide as high."""
    area = sum((block.width + _PAD) * (block.height + _PAD) for block in blocks)
    return min(WIDTH - 60.0, math.sqrt(3 * area))


def _flow(blocks: Sequence[_Block], gap: float, most: float) -> _Block:
    """Return blocks side by side in lines that are at most so wide, as words are set."""
    parts: list[str] = []
    left = top = high = width = 0.0
    for block in blocks:
        if left and left + block.width > most:
            left, top, high = 0.0, top + high + gap, 0.0
        parts.append(_moved(block, left, top))
        width, high = max(width, left + block.width), max(high, block.height)
        left += block.width + gap
    return _Block(width, top + high, "".join(parts))


def _moved(block: _Block, x: float, y: float) -> str:
    return f'<g transform="translate({x:g} {y:g})">{block.svg}</g>' if x or y else block.svg


def _rect(
    x: float, y: float, width: float, height: float, *, fill: str = "none", line: str | None = None
) -> str:
    edge = f' stroke="{line}"' if line else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}"{edge}/>'


def _text(x: float, y: float, text: str, fill: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="11" fill="{fill}">{html.escape(text)}</text>'


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
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
