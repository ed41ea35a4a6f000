"""The page of a benchmark's history: its steps, what changed then, and its course as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.analysis.compare.history import RunHistory
from rater.show.charts.history import history_chart
from rater.show.charts.vega import Chart, Html, element, joined
from rater.show.compare.history import (
    about_parts,
    change_text,
    changes_lines,
    course_parts,
    outside_parts,
    point_name,
    sessions_note,
    step_name,
)
from rater.show.html.shell import asset, html_parts, own_script, page_html
from rater.show.screen.document import Row
from rater.show.screen.format import format_number, format_together, sanitize
from rater.text.values import count, signed_percent, truncate_list

if TYPE_CHECKING:
    from rater.show.documents.history import HistoryDocument

_MOST_ROWS = 40  # of a table that is there at once
_MOST_CHANGES = 6  # on a card
_HEIGHT, _ROOM = 240, 52  # of a picture, and right of it, in pixels
_SCRIPTS = ("state", "cards", "charts", "tables", "paper", "history")


def history_html(document: HistoryDocument, histories: Sequence[RunHistory], library: str) -> str:
    """Return the page; `library` is Vega as a script (`charts.vega`)."""
    host = document["host"] or "a host that is not known"
    title = f"History of {document['benchmark']} on {host}"
    rows = document["histories"]
    sections = [_section(place, row) for place, row in enumerate(rows)]
    main = joined(
        element("header", element("h1", title), html_parts(outside_parts(document))), *sections
    )
    charts = [_chart(history, row) for history, row in zip(histories, rows, strict=True)]
    data = {
        "runs": [],
        "histories": charts,
        "specs": {"scaling": json.loads(asset("scaling.vega.json")) | {"height": _HEIGHT}},
    }
    return page_html(
        title,
        main,
        data,
        skip={f"history-{place}": "to the picture" for place in range(min(1, len(rows)))},
        styles=["page.css"],
        scripts=[library, own_script(*_SCRIPTS)],
    )


def _section(place: int, row: Row) -> Html:
    """Return the words, picture and tables of one history."""
    points = html_parts(course_parts(row))
    if len(row["points"]) > _MOST_ROWS:
        words = f"all {count(len(row['points']), 'point')}"
        points = element("details", element("summary", words), points)
    tune = f", {row['tune']}" if row["tune"] else ""
    key = "A dot is a point, a line a level; a ring begins one." if row["steps"] else ""
    return element(
        "section",
        element("h2", f"{row['what']}{tune}"),
        html_parts(about_parts(row)),
        _steps(row),
        html_parts([sessions_note(row)]),
        element("p", key, class_="how"),
        element("div", id=f"history-{place}", class_="history"),
        element("noscript", element("p", "The picture needs JavaScript; the tables have it all.")),
        points,
        class_="tables",
    )


def _steps(row: Row) -> Html:
    """Return the steps in words, which a phone has room for as well."""
    unit = f" {row['unit']}" if row["unit"] else ""
    items = []
    for step in row["steps"]:
        sure = "*" * step["between_sessions"]
        size = f"{signed_percent(step['speedup'] - 1)} %, {step['verdict']}{sure}"
        levels = " -> ".join(format_together([step["before"], step["after"]]))
        since = count(step["points_since"], "point")
        items.append(
            element(
                "li",
                element("b", f"{step_name(step)}: {size}"),
                f" ({levels}{unit}, {since} since)",
                *(element("div", line) for line in changes_lines(step["changes"])),
            )
        )
    return element("div", element("ol", *items), class_="divots") if items else Html("")


def _chart(history: RunHistory, row: Row) -> Chart | None:
    """Return what a picture is drawn from, a card at each dot; None: one point is no course."""
    if len(history.points) < 2:
        return None
    chart = history_chart(history, most_ticks=len(history.points))
    cards = [_card(row, point) for point in row["points"]]
    dots = [dot | {"card": card} for dot, card in zip(chart["data"]["dots"], cards, strict=True)]
    return {
        "title": sanitize(row["unit"] or row["measure"]),
        "signals": chart["signals"] | {"title": "", "room": _ROOM},
        "data": chart["data"] | {"dots": dots},
    }


def _card(row: Row, point: Row) -> list[str]:
    """Return the lines that tell of a point under the pointer."""
    runs = truncate_list([str(number) for number in point["runs"]], 6)
    unit = f" {row['unit']}" if row["unit"] else ""
    over_first = signed_percent(point["over_first"] - 1)
    lines = [
        point_name(row, point),
        f"run{'s' * (len(point['runs']) > 1)} {runs}",
        f"{format_number(point['value'])}{unit}",
        f"{over_first} % over the first point" if point is not row["points"][0] else "",
    ]
    for step in row["steps"]:
        if step["first_run"] != point["runs"][0]:
            continue
        size = signed_percent(step["speedup"] - 1)
        changes = [
            change_text(change["what"], change["before"], change["after"])
            for change in step["changes"]
            if not change["elsewhere"]
        ]
        lines.append(f"step: {size} %, {step['verdict']}")
        lines += changes[:_MOST_CHANGES]
    return [sanitize(line) for line in lines if line]
