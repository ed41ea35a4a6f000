"""Pictures of the page as files: timeline, machine and comparison, as SVG, PNG or PDF.

The same specifications that a page draws, filled here and drawn by vl-convert; the machine,
which a page builds of buttons, is an SVG of its own (`page_machine`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rater.errors import InputError
from rater.show.charts.machine import ASSETS, WIDTH, machine_svg, page_colours

__all__ = ["comparison_svg", "machine_svg", "rendered_svg", "timeline_svg"]

_TITLE = 18
_PNG_SCALE = 2.0
_LETTER = 6.4  # points that one takes beside a chart
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
            "names": min(0.4 * WIDTH, 14 + _LETTER * longest),
            "low": data["low"],
            "high": data["high"],
            "rows": len(data["names"]),
            "sides": len(sides),
        },
    )


def _filled(
    kind: str, title: str, data: Mapping[str, Sequence[Any]], signals: Mapping[str, float]
) -> str:
    """Return the drawing of a specification with these values, in the page's light colours."""
    colours = page_colours()
    text = (ASSETS / f"{kind}.vega.json").read_text(encoding="utf-8")
    spec = json.loads(text)
    for one in spec["data"]:
        one["values"] = list(data.get(one["name"], ()))
    for signal in spec["signals"]:
        if signal["name"] in signals:
            signal["value"] = signals[signal["name"]]
            signal.pop("update", None)
    spec |= {"width": WIDTH, "background": colours["page"]}
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
