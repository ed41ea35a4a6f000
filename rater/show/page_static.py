"""Pictures of the page as files: timeline, machine and comparison, as SVG, PNG or PDF.

The same specifications that a page draws, filled here and drawn by vl-convert; the machine,
which a page builds of buttons, is an SVG of its own.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rater.errors import InputError

_ASSETS = Path(__file__).parent / "page_assets"
_WIDTH = 900
_TITLE = 18
_FONT = "DejaVu Sans, sans-serif"
_PNG_SCALE = 2.0
_LETTER = 6.4  # points that one takes beside a chart
_CELL, _GAP = 16, 4  # of the machine
_LEAST_SPAN = 0.05  # of the colours, as in the page
_MOST_TIMELINE = 430  # points high
_KIND_COLOURS = ("var(--bar)", "var(--slow)", "var(--explained)")
_VERDICTS = {"better": "var(--good)", "worse": "var(--slow-text)"}


def rendered_svg(svg: str, form: str) -> bytes:
    """Return an SVG as a file of this form: svg, png or pdf."""
    vega = _vega()
    if form == "svg":
        return svg.encode()
    drawn: bytes = vega.svg_to_png(svg, scale=_PNG_SCALE) if form == "png" else vega.svg_to_pdf(svg)
    return drawn


def timeline_svg(run: Mapping[str, Any], bracket: int) -> str:
    """Return who ran when in one bracket of `run_data`'s value."""
    told = run["timeline"]["brackets"][bracket]
    bars, places = told["bars"], {name: place for place, name in enumerate(run["names"])}
    by_cpu = run["axis"] == "CPU"
    kinds, bad = dict(bars["kind"]), dict(bars["bad"])
    rows = []
    for i, elapsed_s in enumerate(bars["s"]):
        name = bars["cpu"][i] if by_cpu and bars["cpu"][i] is not None else bars["copy"][i]
        if name in places:
            shade = "var(--bar2)" if told["benchmark"] is None and bars["name"][i] % 2 else None
            colour = shade if shade and i not in kinds else _KIND_COLOURS[kinds.get(i, 0)]
            rows.append(
                {
                    "place": places[name],
                    "from": bars["from"][i],
                    "to": bars["from"][i] + elapsed_s,
                    "colour": "var(--failed)" if i in bad else colour,
                    "bad": i in bad,
                }
            )
    most = max((row["to"] for row in rows), default=1.0)
    running = _running(rows, most)
    thick = 4 if len(places) > 40 else 9 if len(places) > 8 else 14
    window = told["window"]
    what = told["benchmark"] or "all benchmarks"
    which = "" if told["iteration"] is None else f", iteration {told['iteration']}"
    return _filled(
        "timeline",
        f"who ran when: run {run['run']}, {what}{which}",
        {
            "groups": [
                {"name": name, "first": first, "size": size, "place": place}
                for place, (name, first, size) in enumerate(run["groups"])
            ],
            "bars": rows,
            "failed": [row for row in rows if row["bad"]],
            "running": running,
            "window": [{"from": window[0], "to": window[1]}] if len(window) == 2 else [],
            "edges": [{"at": at} for at in window],
        },
        {
            "places": max(1, len(places)),
            "most": most,
            "copies": max((one["n"] for one in running), default=1),
            "height": max(28, min(_MOST_TIMELINE, thick * len(places))),
        },
    )


def _running(rows: Sequence[Mapping[str, Any]], most: float) -> list[dict[str, float]]:
    """Return how many copies were running, from each change on."""
    changes = sorted((row[end], by) for row in rows for end, by in (("from", 1), ("to", -1)))
    found: dict[float, int] = {}
    running = 0
    for at, by in changes:
        running += by
        found[at] = running
    return [{"at": at, "n": n} for at, n in found.items()] + [{"at": most, "n": 0}]


def comparison_svg(data: Mapping[str, Any]) -> str:
    """Return the chart of `comparison_data`."""
    sides = data["sides"]
    titles = [
        {
            "row": row,
            "side": at,
            "lead": at == 0,
            "text": name if len(sides) == 1 else f"{name}: {side}" if at == 0 else side,
        }
        for row, name in enumerate(data["names"])
        for at, side in enumerate(sides)
    ]
    lines = [
        line | {"colour": _VERDICTS.get(line["kind"], "var(--faint)")} for line in data["lines"]
    ]
    longest = max(len(str(title["text"])) for title in titles)
    return _filled(
        "comparison",
        f"speedup over {data['baseline']}, with its interval "
        "(+ better, \u2212 worse, = same, ? cannot tell)",
        {"titles": titles, "lines": lines},
        {
            "names": min(0.4 * _WIDTH, 14 + _LETTER * longest),
            "low": data["low"],
            "high": data["high"],
            "rows": len(data["names"]),
            "sides": len(sides),
        },
    )


def machine_svg(run: Mapping[str, Any]) -> str:
    """Return packages, lgroups, cores and CPUs, coloured by the median slowdown of their copies."""
    shares = _slowdowns(run)
    span = max([_LEAST_SPAN, *(abs(share - 1) for share in shares.values())])
    colours = _colours()
    parts: list[str] = []
    top, width = 22.0, 0.0
    packages = _split(run["machine"], 1)
    for package, in_package in packages.items():
        left = 8.0
        if len(packages) > 1:
            parts.append(_text(left, top + 10, f"package {package}", colours["faint"]))
            top += 18
        row_height = 0.0
        for node, cpus in _split(in_package, 2).items():
            columns = max(4, int((3 * len(cpus)) ** 0.5 + 0.999))
            wide = columns * (_CELL + _GAP) + 12.0
            if left > 8 and left + wide > _WIDTH:
                left, top, row_height = 8.0, top + row_height + 8, 0.0
            lines = -(-len(cpus) // columns)
            high = lines * (_CELL + _GAP) + 22.0
            parts.append(_box(left, top, wide, high, colours["soft"]))
            parts.append(_text(left + 6, top + 13, _group_name(node, cpus, shares), colours["ink"]))
            for at, (cpu, *_) in enumerate(cpus):
                x = left + 6 + at % columns * (_CELL + _GAP)
                y = top + 20 + at // columns * (_CELL + _GAP)
                parts.append(_cpu((x, y), cpu, shares.get(cpu), span, colours))
            left += wide + 8
            width, row_height = max(width, left), max(row_height, high)
        top += row_height + 10
    key = f"CPUs by the median of their copies' times over the median copy, ±{span * 100:.0f} %"
    parts.insert(0, _text(8, 14, f"run {run['run']}: {key}", colours["faint"]))
    width = max(width, _LETTER * len(key) + 90)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{top:g}" '
        f'viewBox="0 0 {width:g} {top:g}" font-family="{_FONT}">{"".join(parts)}</svg>'
    )


def _slowdowns(run: Mapping[str, Any]) -> dict[int, float]:
    """Return by CPU the median of its copies' times over their benchmark's median."""
    found: dict[int, list[float]] = {}
    for panel in run["panels"]:
        for cpu, elapsed_s in zip(panel["dots"]["cpu"], panel["dots"]["s"], strict=True):
            if cpu is not None and panel["median"]:
                found.setdefault(cpu, []).append(elapsed_s / panel["median"])
    return {cpu: sorted(of)[len(of) // 2] for cpu, of in found.items()}


def _split(rows: Sequence[Sequence[int | None]], at: int) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for row in rows:
        found.setdefault(row[at], []).append(row)
    return found


def _group_name(
    node: int | None, cpus: Sequence[Sequence[Any]], shares: Mapping[int, float]
) -> str:
    of = sorted(shares[row[0]] for row in cpus if row[0] in shares)
    name = "CPUs" if node is None else f"lgroup {node}"
    return f"{name} {(of[len(of) // 2] - 1) * 100:+.1f} %" if of else name


def _cpu(
    at: tuple[float, float],
    cpu: int,
    share: float | None,
    span: float,
    colours: Mapping[str, str],
) -> str:
    if share is None:
        fill, told = "none", "not used"
    else:
        heat = min(1.0, abs(share - 1) / span)
        fill = _mixed(colours["even"], colours["cool" if share < 1 else "hot"], heat)
        told = f"{(share - 1) * 100:+.1f} %"
    return (
        f'<rect x="{at[0]:g}" y="{at[1]:g}" width="{_CELL}" height="{_CELL}" fill="{fill}" '
        f'stroke="{colours["line"]}"><title>CPU {cpu}: {told}</title></rect>'
    )


def _mixed(first: str, second: str, share: float) -> str:
    """Return a colour between two of `#rrggbb`."""
    pairs = zip(_rgb(first), _rgb(second), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def _rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{fill}"/>'


def _text(x: float, y: float, text: str, fill: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="11" fill="{fill}">{html.escape(text)}</text>'


def _colours() -> dict[str, str]:
    """Return the light colours of the page's style sheet by name, as `#rrggbb`."""
    block = (_ASSETS / "page.css").read_text(encoding="utf-8").partition("@media")[0]
    found = re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", block)
    return {
        name: "#" + ("".join(2 * digit for digit in value) if len(value) == 3 else value)
        for name, value in found
    }


def _filled(
    kind: str, title: str, data: Mapping[str, Sequence[Any]], signals: Mapping[str, float]
) -> str:
    """Return the drawing of a specification with these values, in the page's light colours."""
    colours = _colours()
    text = (_ASSETS / f"{kind}.vega.json").read_text(encoding="utf-8")
    spec = json.loads(text)
    for one in spec["data"]:
        one["values"] = list(data.get(one["name"], ()))
    for signal in spec["signals"]:
        if signal["name"] in signals:
            signal["value"] = signals[signal["name"]]
            signal.pop("update", None)
    spec |= {"width": _WIDTH, "background": colours["page"]}
    spec["padding"]["top"] += _TITLE
    place = {"x": 6 - spec["padding"]["left"], "y": _TITLE - 4 - spec["padding"]["top"]}
    told = place | {"text": title, "fontSize": 12, "fill": colours["ink"]}
    values = {name: {"value": value} for name, value in told.items()}
    spec["marks"].append({"type": "text", "encode": {"update": values}})
    filled = re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], json.dumps(spec))
    svg: str = _vega().vega_to_svg(json.loads(filled), allowed_base_urls=[])
    return svg


def _vega() -> Any:
    try:
        import vl_convert  # noqa: PLC0415 - 80 MB, only where a picture is drawn
    except ImportError as error:
        raise InputError(
            f"this picture needs vl-convert-python, which is not installed ({error}); "
            "`pip install 'rater[report]'` installs it"
        ) from error
    return vl_convert
