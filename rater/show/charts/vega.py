"""Charts as files, and elements of HTML and SVG from text that may hold anything."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.show.screen.format import sanitize
from rater.system.errors import InputError
from rater.system.process import pip_install

# -- Elements of HTML and SVG from text that may hold anything -------------------------------------

_VOID = ("br", "meta", "link", "input")


class Html(str):
    """Text that is HTML (or SVG) already; everything else is escaped where it enters."""

    __slots__ = ()


def element(name: str, *children: str, **attributes: str | float | bool | None) -> Html:
    """Return an element; text among the children is escaped and freed of control characters.

    `class_` is `class`, `aria_sort` is `aria-sort`; an attribute of None or False is left out.
    """
    written = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        called = key.rstrip("_").replace("_", "-")
        text = (
            ""
            if value is True
            else sanitize(f"{value:g}" if isinstance(value, float) else str(value))
        )
        written.append(f' {called}="{html.escape(text)}"')
    start = f"<{name}{''.join(written)}>"
    return Html(start if name in _VOID else f"{start}{joined(*children)}</{name}>")


def joined(*parts: str) -> Html:
    """Return the parts one after the other, those that are not HTML escaped."""
    return Html(
        "".join(part if isinstance(part, Html) else html.escape(sanitize(part)) for part in parts)
    )


# -- Pictures as files: the specifications that a page draws, filled and drawn by vl-convert -------
#
# A chart is values of a specification's signals and data sets (`html/assets`), by name; a page's
# script fills them in too. No dates, no random ids: SVG and PNG are the same for the same run (in a
# PDF the order of its objects is not).

type Chart = Mapping[str, Any]  # "signals" and "data"; more of it is the page's

ASSETS = Path(__file__).parents[1] / "html" / "assets"
WIDTH = 900.0
SUITES = {"all": "suite", "int": "suite, int", "fp": "suite, fp"}  # in pictures
FONT = "DejaVu Sans, Verdana, sans-serif"
_TITLE = 12.0  # letters
_LETTER = 0.6  # mean width of one, of the size of letters
_TOP = 26.0  # of a page, for its title
_GAP = 14.0  # between charts
_COLOURED = re.compile(r'((?:fill|stroke)=")var\(--([\w-]+)\)"')
_PLACES = re.compile(r'(?<= d=")[^"]*|(?<= transform=")[^"]*')
_LONG = re.compile(r"(\.\d\d)\d+")
_DOTS = re.compile(
    r'<path transform="translate\([^)]*\)" d="M([\d.]+),0A[^"]*" fill="([^"]*)" opacity="([^"]*)"/>'
    r'(?:<path transform="translate\([^)]*\)" d="M\1,0A[^"]*" fill="\2" opacity="\3"/>)*'
)
_TEXTS = {  # words at places that are known: titles, names of parts
    "type": "text",
    "from": {"data": "texts"},
    "encode": {
        "update": {
            "fill": {"field": "colour"},
            "fontSize": {"field": "size"},
            "fontWeight": {"field": "weight"},
            **{name: {"field": name} for name in ("x", "y", "text", "align")},
        }
    },
}


def placed_text(
    x: float,
    y: float,
    text: str,
    colour: str = "ink",
    *,
    align: str = "left",
    size: float = 10.0,
    weight: str = "normal",
) -> dict[str, Any]:
    """Return words of a sheet; a place `x` below 0 counts from its right end, `y` is their base.

    `colour` is one of the page's style sheet.
    """
    place = {"x": x, "y": y, "align": align, "size": size, "weight": weight}
    return place | {"text": sanitize(text), "colour": f"var(--{colour})"}


class PlacedChart(Struct, frozen=True, kw_only=True):
    """A chart with its size in pixels."""

    kind: str  # of the specification
    chart: Chart
    width: float
    height: float
    below: float = 0.0  # more room than the specification leaves
    above: float = 0.0
    right: float = 0.0


def vega(purpose: str = "a picture in a file") -> Any:
    """Return vl-convert: 85 MB, loaded only where something is drawn.

    Raises `InputError` where the extra `[report]` is not installed.
    """
    try:
        import vl_convert  # noqa: PLC0415 - heavy
    except ImportError as error:
        raise InputError(
            f"{purpose} needs vl-convert-python, which is not installed ({error}); "
            f"`{pip_install('[report]')}` installs it"
        ) from error
    return vl_convert


@cache
def library() -> str:
    """Return Vega as a script that makes `window.vegaEmbed` and asks for nothing; about 900 kB."""
    script: str = vega("a report").javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return f"(function () {{{script}}})();"  # its hundreds of short names stay its own


def rendered(svg: str, form: str) -> bytes:
    """Return an SVG as the content of a file: svg, png or pdf."""
    if form == "svg":
        return svg.encode()
    drawn: bytes = vega().svg_to_png(svg, scale=2.0) if form == "png" else vega().svg_to_pdf(svg)
    return drawn


def sheet_svg(
    title: str,
    figures: Sequence[PlacedChart],
    *,
    columns: int = 1,
    notes: Sequence[dict[str, Any]] = (),
) -> str:
    """Return figures of one size in rows below a title; `notes` stand right of it, or below."""
    first = figures[0]
    sides = _spec(first.kind)["padding"]
    top = _TOP + max([0.0, *(note["y"] - _TITLE for note in notes)])
    across = sides["left"] + first.width + max(sides["right"], first.right)
    down = first.above + sides["top"] + first.height
    rows = -(-len(figures) // columns)
    title_width = sides["left"] + _LETTER * _TITLE * len(title)
    width = max(across * min(columns, len(figures)), title_width) + _GAP
    heading = placed_text(sides["left"], 18, title, size=_TITLE)
    words = [it | {"x": it["x"] + (width if it["x"] < 0 else 0.0)} for it in (heading, *notes)]
    groups = [
        _group(
            figure,
            sides["left"] + number % columns * across,
            top + number // columns * (down + _GAP) + first.above + sides["top"],
        )
        for number, figure in enumerate(figures)
    ]
    height = top + rows * (down + _GAP) + max(sides["bottom"], first.below)
    return _page_svg(width, height, words, groups)


def stacked_svg(title: str, figures: Sequence[PlacedChart]) -> str:
    """Return figures of one width and any height in a column below a title."""
    sides = _spec(figures[0].kind)["padding"]
    width = sides["left"] + figures[0].width + sides["right"] + _GAP
    top, groups = _TOP, []
    for figure in figures:
        around = _spec(figure.kind)["padding"]
        groups.append(_group(figure, around["left"], top + around["top"]))
        top += around["top"] + figure.height + around["bottom"]
    return _page_svg(width, top, [placed_text(sides["left"], 18, title, size=_TITLE)], groups)


def _page_svg(
    width: float,
    height: float,
    words: Sequence[dict[str, Any]],
    groups: Sequence[dict[str, Any]],
) -> str:
    page = {
        "width": width,
        "height": height,
        "padding": 0,
        "autosize": "none",
        "background": "var(--page)",
        "config": {"text": {"font": FONT}, "axis": {"labelFont": FONT}},
        "data": [{"name": "texts", "values": words}],
        "marks": [_TEXTS, *groups],
    }
    svg: str = vega().vega_to_svg(page, allowed_base_urls=[])
    # To a hundredth of a pixel, and the dots of one colour as one path: an eighth, the same look.
    short = _PLACES.sub(lambda match: _LONG.sub(r"\1", match[0]), svg)
    return coloured(_DOTS.sub(_one_path, short))


def _one_path(circles: re.Match[str]) -> str:
    """Return circles of one size and colour as one line of points with round ends."""
    points = "".join(f"M{place}h.01" for place in re.findall(r"translate\(([^)]*)", circles[0]))
    faint = "" if circles[3] == "1" else f' opacity="{circles[3]}"'
    return (
        f'<path d="{points}" stroke="{circles[2]}" stroke-width="{2 * float(circles[1]):g}" '
        f'stroke-linecap="round"{faint}/>'
    )


def coloured(svg: str) -> str:
    """Return an SVG with the page's light colours in the place of their names."""
    colours = page_colours()
    return _COLOURED.sub(lambda match: f'{match[1]}{colours.get(match[2], "#000000")}"', svg)


@cache
def page_colours() -> Mapping[str, str]:
    """Return the light colours of the page's style sheet by name, as `#rrggbb`."""
    block = (ASSETS / "page.css").read_text(encoding="utf-8").partition("@media")[0]
    definitions = re.findall(r"(?<!-)--([\w-]+): #([0-9a-f]{3,6});", block)
    return {
        name: "#" + ("".join(2 * digit for digit in value) if len(value) == 3 else value)
        for name, value in definitions
    }


def _spec(kind: str) -> dict[str, Any]:
    specification: dict[str, Any] = json.loads(
        (ASSETS / f"{kind}.vega.json").read_text(encoding="utf-8")
    )
    return specification


def _group(figure: PlacedChart, x: float, y: float) -> dict[str, Any]:
    """Return a filled specification as a part of a page, its corner at x, y in pixels."""
    spec = _spec(figure.kind)
    size = {"width": figure.width, "height": figure.height}
    values = size | dict(figure.chart["signals"])
    signals = [signal for signal in spec["signals"] if signal["name"] not in values]
    return {
        "type": "group",
        "encode": {
            "update": {name: {"value": amount} for name, amount in {"x": x, "y": y, **size}.items()}
        },
        "signals": [*({"name": name, "value": value} for name, value in values.items()), *signals],
        "data": [
            data_set
            if "source" in data_set
            else data_set | {"values": figure.chart["data"].get(data_set["name"], [])}
            for data_set in spec["data"]
        ],
        "scales": spec["scales"],
        "axes": spec.get("axes", []),
        "marks": spec["marks"],
    }
