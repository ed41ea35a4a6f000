"""Layouts as text and as values for JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.placement.layout import EXPLICIT, Layout, Parts
from rater.show.console.format import plain
from rater.show.console.page import Page
from rater.text import cpuset
from rater.text.to_json import Members, to_json

_WRITTEN = (
    ("list:0,8,1,9", "these CPUs in this order; ranges 0-7, steps 0-62:2"),
    (
        "expr:E:M0:8:1:2",
        "likwid's notation: E:N:8, S0:0-3@S1:0-3, M:scatter:8; N machine, S package, D die, "
        "C cache, M lgroup",
    ),
    (
        "./mine.toml",
        "a layout of your own: order, bind, smt, kind, reserve, nodes, cpus, [exclude], [counts]; "
        "begin with: rater layouts show fill > mine.toml",
    ),
)


@dataclass(frozen=True, slots=True)
class ListedLayout:
    """A line of the list of layouts: one that reads, or why it does not."""

    name: str
    path: Path
    layout: Layout | None
    trouble: str | None


def layouts_text(layouts: Sequence[ListedLayout], page: Page) -> str:
    """Return what there is and what may be written instead, sentences wrapped below each other."""
    reported = [(one.name, _sentences(one)) for one in layouts]
    written = [(plain(text), [message]) for text, message in _WRITTEN]
    margin = max(len(name) for name, _ in (*reported, *written)) + 2
    lines = [
        *(line for name, texts in reported for line in page.beside(name, margin, texts)),
        "",
        *(line for text, message in written for line in page.beside(text, margin, message)),
        "",
        "more: rater layouts show LAYOUT",
        "on a machine: rater plan --layout LAYOUT --copies N",
    ]
    return page.joined(lines)


_LAYOUT = Members(
    "description equals?",
    {"order": lambda it: f"{it.order}:{it.text}" if it.order in EXPLICIT else it.order},
    "bind smt kind? reserve",
    {
        "only": lambda layout: _parts_json(layout.only),
        "exclude": lambda layout: _parts_json(layout.exclude),
        "counts": lambda layout: (
            layout.counts and {"lgroups": dict(layout.counts.by_node), "rest": layout.counts.rest}
        ),
    },
)


def layouts_json(layouts: Sequence[ListedLayout]) -> list[dict[str, object]]:
    """Return the list of layouts for JSON."""
    return [
        layout_json(one.layout, one.path)
        if one.layout
        else {"name": one.name, "path": str(one.path), "error": one.trouble}
        for one in layouts
    ]


def layout_json(layout: Layout, path: Path | None) -> dict[str, object]:
    """Return one layout for JSON; null for what it does not say."""
    head = {"name": layout.name, "path": path}
    document: dict[str, object] = to_json(head | _LAYOUT.of(layout) | {"error": None})
    return document


def file_text(text: str, path: Path, page: Page) -> str:
    """Return the file of a layout as it is, control characters aside, below its own path.

    It is TOML again: a person can go on from it.
    """
    lines = [f"# {path}", *text.expandtabs(4).rstrip().splitlines()]
    return "\n".join(plain(line, ascii_only=page.ascii_only) for line in lines)


def written_text(layout: Layout) -> str:
    """Return a `list:` or `expr:` as the file of a layout that says the same."""
    order = json.dumps(f"{layout.order}:{layout.text}")
    return f'description = "{layout.description}"\norder = {order}\nbind = "{layout.bind}"'


def _sentences(one: ListedLayout) -> list[str]:
    if one.layout is None:
        return [f"broken: see rater layouts show {one.name}"]
    return [one.layout.description, *([f"= {one.layout.equals}"] if one.layout.equals else [])]


def _parts_json(parts: Parts) -> dict[str, object] | None:
    if not parts:
        return None
    numbers = {"cpus": parts.cpus, "nodes": parts.nodes, "cores": parts.cores}
    return {name: cpuset.format_list(found) for name, found in numbers.items() if found}
