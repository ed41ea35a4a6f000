"""The page of a fleet: slow hosts in words, all hosts as a map, who is missing, histories.

One HTML file of the look of a run's page; it asks the network for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rater.fleet.archive import IndexedRun
from rater.fleet.history import History
from rater.fleet.plan import FILES
from rater.fleet.show import (
    histories_parts,
    history_document,
    missing_parts,
    odd_parts,
    odd_text,
    retry_lines,
    state_text,
)
from rater.show.charts.vega import Html, element, joined
from rater.show.html.shell import html_parts, own_script, page_html, template
from rater.show.screen.document import Row
from rater.show.screen.format import sanitize
from rater.system.process import typed_command
from rater.text.values import count, group_by_key, join_and, percent, truncate_list

_MOST_NAMED = 6
_ALIKE = 0.4  # of a host's slowdown in all benchmarks: a cell of so much is outlined
_LEAST_SPAN, _MOST_SPAN = 0.03, 0.2  # of the colours


def fleet_page(
    document: Row, runs: Mapping[str, IndexedRun], planned: int, histories: Sequence[History]
) -> str:
    """Return the page as HTML.

    `document` is as `fleet_document` has it, `runs` are those of hosts, `planned` is how many hosts
    were, and `histories` are of slow hosts, where there were fleets before.
    """
    kinds = document["kinds"]
    kind_named = f", {kinds[0]['kind']['what']}" if kinds else ""
    title = f"Fleet {document['fleet']}: {count(planned, 'host')}{kind_named}"
    started = min((it.started_at for it in runs.values() if it.started_at), default=None)
    main = template(
        "fleet.html",
        body=joined(
            element("header", element("h1", title), *_head(document, started)), *_slow(document)
        ),
        fleet=document["fleet"],
        after=joined(
            *_missing(document),
            *_histories([history for history in histories if history.points > 1]),
            *_kinds(kinds[1:]),
        ),
    )
    return page_html(
        title,
        main,
        _data(document, runs),
        skip={"map": "to the hosts"},
        styles=["page.css", "fleet.css"],
        scripts=[own_script("fleet")],
    )


def _slow_hosts(document: Row) -> list[Row]:
    """Return every slow host, the slowest first."""
    slow_hosts = [
        slow_host
        for kind in document["kinds"]
        for slow_host in (*kind["slow"], *kind["slow_beside"])
    ]
    return sorted(slow_hosts, key=lambda it: (-it["mean_slowdown"], it["host"]))


def _head(document: Row, started_at: str | None) -> Iterator[Html]:
    kinds = document["kinds"]
    if kinds:
        yield element("p", kinds[0]["about"])
    parts = [f"{count(document['hosts'], 'host')} compared"]
    lost = [it for it in document["missing"] if not it["has_times"]]
    for state, them in group_by_key((it["state"], it["host"]) for it in lost).items():
        parts.append(f"{len(them)} {state_text(state)} ({truncate_list(them, _MOST_NAMED)})")
    apart = sum(len(kind["hosts"]) for kind in kinds[1:])
    parts += [f"{apart} of another kind, compared separately"] if apart else []
    started = f"; from {started_at[:10]}" if started_at else ""
    yield element("p", f"{', '.join(parts)}. Each host against the others of its kind{started}.")


def _slow(document: Row) -> Iterator[Html]:
    yield element("h2", document["verdict"])
    items = []
    for slow_host in _slow_hosts(document):
        first, *more = slow_host["text"]
        link = element(
            "a", slow_host["host"], href=f"#{slow_host['host']}", data_host=slow_host["host"]
        )
        sentence = element("p", element("b", link), first.removeprefix(slow_host["host"]))
        items.append(element("li", sentence, *(element("p", line, class_="more") for line in more)))
    if items:
        yield element("ol", *items, class_="slow-hosts")
    for kind in document["kinds"][:1]:
        if kind["summary"] != f"{document['verdict']}.":  # the heading says so
            yield element("p", kind["summary"], class_="warn" if kind["cannot_tell"] else "how")
        yield html_parts(odd_parts(kind))
    if items and document.get("backend") != FILES:
        command = f"rater divots --confirm fleet:{document['fleet']}"
        confirm = element("code", typed_command(command))
        yield element("p", "next: ", confirm, " (slow hosts beside quiet ones)", class_="how")


def _missing(document: Row) -> Iterator[Html]:
    missing = document["missing"]
    if missing:
        ways = []
        for line in retry_lines(document):
            _, command, effect = line.split("`")
            ways.append(
                element("p", element("code", typed_command(command)), f"{effect}.", class_="how")
            )
        yield element(
            "section",
            element("h2", f"Not complete: {count(len(missing), 'host')}"),
            *ways,
            html_parts(missing_parts(missing)),
            class_="tables",
            id="missing",
        )


def _histories(histories: Sequence[History]) -> Iterator[Html]:
    if histories:
        title = element("h2", "Over time")
        parts = html_parts(histories_parts(history_document(histories)))
        yield element("section", title, parts, class_="tables", id="history")


def _kinds(kinds: Sequence[Row]) -> Iterator[Html]:
    items = [
        element(
            "li",
            element("b", join_and(kind["apart"]) or "alike"),
            f": {truncate_list(kind['hosts'], _MOST_NAMED)}. {kind['summary']}",
            html_parts(odd_parts(kind)),
        )
        for kind in kinds
    ]
    if items:
        yield element("section", element("h2", "Hosts of other kinds"), element("ul", *items))


def _data(document: Row, runs: Mapping[str, IndexedRun]) -> dict[str, object]:
    """Return what the map is drawn from: values are (slowdown - 1) in thousandths."""
    kinds = document["kinds"]
    names = sorted(
        {name for kind in kinds for row in kind["slowdowns"] for name in row["slowdowns"]}
    )
    slow = {host["host"]: host for host in _slow_hosts(document)}
    return {
        "fleet": document["fleet"],
        "benchmarks": [sanitize(name) for name in names],
        "kinds": [", ".join(kind["apart"]) or kind["about"] for kind in kinds],
        "hosts": [
            _host(row, kind, names, slow.get(row["host"]))
            | {"kind": place, "about": sanitize(_about(runs[row["host"]]))}
            for place, kind in enumerate(kinds)
            for row in kind["slowdowns"]
        ],
        "span": round(1000 * _span(document)),
    }


def _span(document: Row) -> float:
    """Return the share of a time at which colours are full.

    Of slow hosts the one in the middle stands out in full. Without any, what can be seen does; and
    where nothing can be told the largest cell, so that noise of all sizes is not one colour.
    """
    worst = sorted(map(_worst, _slow_hosts(document)))
    if worst:
        return min(max(worst[len(worst) // 2] - 1, _LEAST_SPAN), _MOST_SPAN)
    kinds = document["kinds"][:1]
    visible = [kind["visible"]["one"] for kind in kinds if not kind["cannot_tell"]]
    cells: list[float] = [
        abs(slowdown - 1)
        for kind in document["kinds"]
        for row in kind["slowdowns"]
        for slowdown in row["slowdowns"].values()
        if slowdown is not None
    ]
    return float(max([_LEAST_SPAN, *(visible or cells)]))


def _about(run: IndexedRun) -> str:
    parts = (
        f"attempt {run.attempt}",
        f"run {run.status}",
        run.started_at and f"began {run.started_at[:16].replace('T', ' ')} UTC",
        run.hostname and run.hostname != run.host and f"calls itself {run.hostname}",
        run.failed and f"{run.failed} of {run.copy_runs} copy runs failed",
    )
    return ", ".join(str(part) for part in parts if part)


def _worst(slow: Row) -> float:
    return max(float(it["slowdown"]) for it in (slow, *slow["benchmarks"]))


def _host(row: Row, kind: Row, names: Sequence[str], slow: Row | None) -> dict[str, Any]:
    host, slowdowns = row["host"], [row["slowdowns"].get(name) for name in names]
    lines, slow_columns = [kind["summary"]] if kind["cannot_tell"] else [], []
    odd = kind["odd_settings"].get(host, ())
    if slow:
        lines = [slow["text"][0].removeprefix(f"{host}: "), *slow["text"][1:]]
        single = {it["name"] for it in slow["benchmarks"]}
        whole = slow["slowdown"]
        slow_columns = [  # columns in which it is slow
            column
            for column, (name, size) in enumerate(zip(names, slowdowns, strict=True))
            if name in single or (whole > 1 and (size or 0) > 1 + _ALIKE * (whole - 1))
        ]
    elif odd:
        lines.append(odd_text(odd))
    return {
        "name": sanitize(host),
        "slow": slow is not None,
        "values": [None if size is None else round(1000 * (size - 1)) for size in slowdowns],
        "found": slow_columns,
        "text": [sanitize(line) for line in lines],
    }


def summary_line(document: Row) -> str:
    """Return what a page is on, for the terminal."""
    slow = [f"{host['host']} ({percent(_worst(host) - 1)} %)" for host in _slow_hosts(document)]
    verdict = document["verdict"]
    summary = f"slow: {truncate_list(slow, 3)}" if slow else f"{verdict[0].lower()}{verdict[1:]}"
    return f"fleet {document['fleet']}, {count(document['hosts'], 'host')}, {summary}"
