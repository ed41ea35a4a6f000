"""Links from a divot's words to its pictures, with what of them a reader then sees chosen."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rater.analysis.divots.data.finding import PLACED, Finding, Kind
from rater.show.charts.markup import Html, element
from rater.show.console.format import plain
from rater.show.html.data import PageRun
from rater.text.cpuset import format_list

_MOST_LINKED = 6


def links_of(one: Finding, page_run: PageRun) -> Html:
    """Return links to the panels of the benchmarks that it slows most; they choose its copies."""
    sizes: dict[tuple[str, str | None], float] = {}
    for cell in one.cells:
        key = (cell.benchmark, cell.tune)
        sizes[key] = max(sizes.get(key, 0.0), abs(cell.slowdown - 1))
    places = {(p.benchmark, p.tune): n for n, p in enumerate(page_run.picture.panels)}
    wanted = sorted((key for key in sizes if key in places), key=lambda key: -sizes[key])
    if not wanted:
        wanted = [key for key in places if not one.benchmarks or key[0] in one.benchmarks][:1]
    by_cpu = page_run.picture.axis == "CPU" and bool(one.cpus)
    pick: dict[str, object] = {
        "field": "cpu" if by_cpu else "copy",
        "values": list(one.cpus if by_cpu else one.copies),
        "text": f"divot: {_name(one)}",
        "run": page_run.run.head.run,
    }
    if one.kind not in PLACED:
        pick |= _part(one, page_run)
    elif one.benchmarks or one.iterations:
        # Its copies are chosen everywhere: the same slow part shows in other benchmarks, or not.
        pick["own"] = _part(one, page_run)
    links = [
        element(
            "a",
            page_run.picture.panels[places[key]].title,
            href=f"#{panel_id(page_run.run.head.run, places[key])}",
            data_pick=json.dumps(pick),
        )
        for key in wanted[:_MOST_LINKED]
    ]
    if not links:
        return Html("")
    more = f" and {len(wanted) - len(links)} more" if len(wanted) > len(links) else ""
    spaced = [part for link in links for part in (" ", link)]
    return element(
        "span", "picture:" if len(links) == 1 else "pictures:", *spaced, more, class_="links"
    )


def _name(one: Finding) -> str:
    """Return what a divot is called where it stands alone: what is of all copies has no place."""
    if one.kind in PLACED:
        return one.place
    what = ", ".join(one.benchmarks[:2]) if 0 < len(one.benchmarks) <= 2 else "benchmarks"
    kind = "lgroups that take turns" if one.kind is Kind.WANDERING else one.kind.replace("-", " ")
    name = f"{kind} in {what}"
    return f"{name}, {_iterations(one.iterations)}" if one.iterations else name


def _iterations(numbers: Sequence[int]) -> str:
    return f"iteration{'' if len(numbers) == 1 else 's'} {format_list(numbers)}"


def _part(one: Finding, page_run: PageRun) -> dict[str, object]:
    """Return of what a divot that is of no part of the machine is: benchmarks and iterations.

    `turns`: by iteration the lgroups that were slow in it, where they take turns.
    """
    part: dict[str, object] = {}
    if one.benchmarks:
        part["benchmarks"] = [plain(name) for name in one.benchmarks]
    if one.tune is not None:
        part["tune"] = one.tune
    turns: dict[int, list[int]] = {}
    for word in str(dict(one.details).get("turns", "")).split():
        place, node, _ = word.split(":")
        if int(place) < len(page_run.picture.iterations):
            turns.setdefault(page_run.picture.iterations[int(place)], []).append(int(node))
    if turns:
        return part | {"turns": turns}
    its = one.iterations or sorted({cell.iteration for cell in one.cells})
    return part | ({"its": list(its)} if its else {})


def panel_id(run: int, place: int) -> str:
    """Return the name of a panel as a place of the page."""
    return f"panel-{run}-{place}"
