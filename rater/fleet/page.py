"""The page of a fleet: slow hosts in words, all hosts as a map, who is missing, histories.

One HTML file of the look of a run's page; it asks the network for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from rater.analysis.divots.model.finding import Analysis
from rater.analysis.divots.model.formatting import format_slowdown
from rater.fleet.history import FleetTrend, History
from rater.fleet.model import FleetComparison, KindComparison, SlowHost
from rater.fleet.show import (
    BESIDE,
    MissingHost,
    changes_lines,
    kind_text,
    odd_text,
    slow_lines,
    state_text,
    step_text,
    verdict_text,
    visible_text,
)
from rater.process import typed_command
from rater.show.charts.vega import Html, element, joined
from rater.show.console import Column
from rater.show.format import sanitize
from rater.show.html.shell import own_script, page_html, table_html, template
from rater.text.values import count, group_by_key, join_and, percent, truncate_list

_MOST_NAMED = 6
_ALIKE = 0.4  # of a host's slowdown in all benchmarks: a cell of so much is outlined
_LEAST_SPAN, _MOST_SPAN = 0.03, 0.2  # of the colours
_WIDE, _HIGH = 256.0, 34.0  # of a course


class FleetPage(Struct, frozen=True):
    """All that a page says of a fleet."""

    fleet: int
    compared: FleetComparison
    inside: Mapping[str, Analysis]  # the divots of slow hosts
    about: Mapping[str, str]  # by host: attempt, status, start
    missing: Sequence[MissingHost]
    planned: int  # hosts
    histories: Sequence[History]  # of slow hosts, where there were fleets before
    started_at: str | None


def fleet_page(page: FleetPage) -> str:
    """Return the page as HTML."""
    title = _title(page)
    main = template(
        "fleet.html",
        body=joined(
            element("header", element("h1", title), *_head(page)),
            *_slow(page),
        ),
        fleet=page.fleet,
        after=joined(*_missing(page), *_histories(page), *_kinds(page)),
    )
    return page_html(
        title,
        main,
        _data(page),
        skip={"map": "to the hosts"},
        styles=["page.css", "fleet.css"],
        scripts=[own_script("fleet")],
    )


def _title(page: FleetPage) -> str:
    kinds = page.compared.kinds
    what = f", {kinds[0].kind.what}" if kinds else ""
    return f"Fleet {page.fleet}: {count(page.planned, 'host')}{what}"


def _head(page: FleetPage) -> Iterator[Html]:
    kinds = page.compared.kinds
    if kinds:
        yield element("p", kind_text(kinds[0].kind))
    parts = [f"{count(page.compared.hosts, 'host')} compared"]
    lost = [it for it in page.missing if not it.has_times]
    for state, them in group_by_key((it.state, it.host) for it in lost).items():
        parts.append(f"{len(them)} {state_text(state)} ({truncate_list(them, _MOST_NAMED)})")
    apart = sum(len(kind.hosts) for kind in kinds[1:])
    if apart:
        parts.append(f"{apart} of another kind, which {'stands' if apart == 1 else 'stand'} apart")
    started = f"; from {page.started_at[:10]}" if page.started_at else ""
    yield element("p", f"{', '.join(parts)}. Each host against the others of its kind{started}.")


def _slow(page: FleetPage) -> Iterator[Html]:
    slow = page.compared.slow
    yield element("h2", verdict_text(page.compared, page.missing))
    if slow:
        yield element(
            "ol", *(element("li", *_slow_item(page, one)) for one in slow), class_="slow-hosts"
        )
    for kind in page.compared.kinds[:1]:
        yield element("p", visible_text(kind), class_="warn" if kind.cannot_tell else "how")
    if slow:
        command = element("code", typed_command(f"rater divots --confirm fleet:{page.fleet}"))
        yield element("p", "next: ", command, " (slow hosts beside quiet ones)", class_="how")


def _slow_item(page: FleetPage, one: SlowHost) -> Iterator[Html]:
    first, *more = slow_lines(one, page.inside.get(one.host))
    if any(one in (kind.beside or ()) for kind in page.compared.kinds):
        more.insert(0, BESIDE)
    link = element("a", one.host, href=f"#{one.host}", data_host=one.host)
    yield element("p", element("b", link), first.removeprefix(one.host))
    for line in more:
        yield element("p", line, class_="more")


def _missing(page: FleetPage) -> Iterator[Html]:
    if not page.missing:
        return
    rows = sorted(page.missing, key=lambda it: (it.has_times, it.state, it.host))
    columns = [
        Column("host", [it.host for it in rows]),
        Column("state", [state_text(it.state) for it in rows]),
        Column("reason", [it.reason or "not known" for it in rows]),
        Column("attempts", [str(it.attempts) for it in rows], right=True),
        Column("in the map", ["a part of it" if it.has_times else "" for it in rows]),
    ]
    yield element(
        "section",
        element("h2", f"Not complete: {count(len(rows), 'host')}"),
        element(
            "p",
            element("code", typed_command(f"rater fleet retry {page.fleet}")),
            " runs what is missing.",
            class_="how",
        ),
        table_html(columns),
        class_="tables",
        id="missing",
    )


def _histories(page: FleetPage) -> Iterator[Html]:
    shown = [it for it in page.histories if it.points > 1]
    if not shown:
        return
    rows = []
    for history in shown:
        whole = history.series[0]
        name = element("a", history.name, href=f"#{history.name}", data_host=history.name)
        told = [element("p", step_text(step)) for step in history.steps]
        for step in history.steps[:1]:
            told += [element("p", line, class_="how") for line in changes_lines(step.changes)]
        short = "too few fleets to tell steps" if history.too_short else "no steps"
        rows += [
            element("b", name),
            _course(whole),
            element("div", *(told or [element("p", short, class_="dim")])),
        ]
    yield element(
        "section",
        element("h2", "Over time"),
        element(
            "p",
            "All benchmarks of a host against the others of its kind (whatever their kernel and "
            "microcode), fleet by fleet; on the line it is level with them, higher is slower.",
            class_="how",
        ),
        element("div", *rows, class_="course"),
        id="history",
    )


def _course(series_: FleetTrend) -> Html:
    logs = [math.log(it) for it in series_.ratios]
    low, high = min([*logs, 0.0]), max([*logs, 0.02])
    across = _WIDE / max(len(logs) - 1, 1)

    def down(value: float) -> float:
        return round(_HIGH * (high - value) / (high - low), 1)

    points = [(round(place * across, 1), down(value)) for place, value in enumerate(logs)]
    ends = f"{format_slowdown(series_.ratios[0])} to {format_slowdown(series_.ratios[-1])}"
    level = {"x1": "0", "x2": f"{_WIDE:g}", "y1": f"{down(0.0):g}", "y2": f"{down(0.0):g}"}
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    return element(
        "svg",
        element("title", ends),
        element("line", **level, stroke="var(--median)"),
        element("polyline", points=line, fill="none", stroke="var(--dot2)"),
        *(element("circle", cx=x, cy=y, r="2", fill="var(--dot0)") for x, y in points),
        viewBox=f"-3 -3 {_WIDE + 6:g} {_HIGH + 6:g}",
        preserveAspectRatio="none",
        role="img",
    )


def _kinds(page: FleetPage) -> Iterator[Html]:
    others = page.compared.kinds[1:]
    if not others:
        return
    items = [
        element(
            "li",
            element("b", f"{join_and(kind.apart) or 'alike'}"),
            f": {truncate_list(kind.hosts, _MOST_NAMED)}. {visible_text(kind)}",
        )
        for kind in others
    ]
    yield element("section", element("h2", "Hosts of other kinds"), element("ul", *items))


def _data(page: FleetPage) -> dict[str, object]:
    """Return what the map is drawn from: values are (slowdown - 1) in thousandths."""
    kinds = page.compared.kinds
    names = sorted({name for kind in kinds for name in kind.benchmarks})
    slow = {one.host: one for one in page.compared.slow}
    hosts = [
        _host(page, place, kind, names, host, slow.get(host))
        for place, kind in enumerate(kinds)
        for host in kind.hosts
    ]
    return {
        "fleet": page.fleet,
        "benchmarks": [sanitize(name) for name in names],
        "kinds": [", ".join(kind.apart) or kind_text(kind.kind) for kind in kinds],
        "hosts": hosts,
        "span": round(1000 * _span(page.compared)),
    }


def _host(  # noqa: PLR0917 - a row of the map
    page: FleetPage,
    place: int,
    kind: KindComparison,
    names: Sequence[str],
    host: str,
    slow: SlowHost | None,
) -> dict[str, object]:
    own = dict(zip(kind.benchmarks, kind.slowdowns[host], strict=True))
    values = [None if own.get(n) is None else round(1000 * ((own[n] or 0) - 1)) for n in names]
    lines = slow_lines(slow, page.inside.get(host)) if slow else []
    if lines:
        lines[0] = lines[0].removeprefix(f"{host}: ")
    elif kind.cannot_tell:
        lines = [visible_text(kind)]
    odd = kind.odd_settings.get(host, ())
    if odd and not slow:
        lines = [*lines, odd_text(odd)]
    about = page.about.get(host, "")
    return {
        "name": sanitize(host),
        "kind": place,
        "slow": slow is not None,
        "values": values,
        "found": _found(slow, names, own) if slow else [],
        "text": [sanitize(line) for line in lines],
        "about": sanitize(about),
    }


def _found(slow: SlowHost, names: Sequence[str], own: Mapping[str, float | None]) -> list[int]:
    """Return the columns in which a host is slow."""
    single = {it.name for it in slow.benchmarks}
    least = 1 + _ALIKE * (slow.slowdown - 1)
    return [
        column
        for column, name in enumerate(names)
        if name in single or (slow.slowdown > 1 and (own.get(name) or 0) > least)
    ]


def _span(compared: FleetComparison) -> float:
    """Return how far the colours reach: the slowest host in two stands out in full."""
    worst = sorted(one.worst - 1 for one in compared.slow)
    return min(max(worst[len(worst) // 2] if worst else 0.0, _LEAST_SPAN), _MOST_SPAN)


def summary_line(page: FleetPage) -> str:
    """Return what a page is on, for the terminal."""
    slow = page.compared.slow
    named = [f"{one.host} ({percent(one.worst - 1)} %)" for one in slow]
    verdict = verdict_text(page.compared, page.missing)
    told = f"slow: {truncate_list(named, 3)}" if slow else f"{verdict[0].lower()}{verdict[1:]}"
    return f"fleet {page.fleet}, {count(page.compared.hosts, 'host')}, {told}"
