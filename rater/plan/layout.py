"""Read placement layouts: one TOML file each, in `layouts/` or anywhere by path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rater.errors import InputError
from rater.plan.textfile import read_text
from rater.plan.tomltable import Document, Table, did_you_mean
from rater.resources import folder


class Order(StrEnum):
    """In which order CPUs are given to copies (`rater.plan.place` has the orders)."""

    NONE = "none"  # copies are not bound
    BALANCED = "balanced"  # the set of `scatter` for n copies, numbered by logical index
    SCATTER = "scatter"  # round robin over packages, lgroups, LLCs; first threads first


class Bind(StrEnum):
    """How wide a copy's CPU mask is: all usable PUs of the object its own PU lies in."""

    PU = "pu"
    CORE = "core"
    LLC = "llc"
    NODE = "node"
    PACKAGE = "package"
    NONE = "none"  # no mask; goes with order "none" and with no other


@dataclass(frozen=True, slots=True)
class Layout:
    """How copies are spread over a machine, whatever the machine and the number of copies."""

    name: str
    description: str
    order: Order
    bind: Bind


def layout_names() -> tuple[str, ...]:
    """Return the names of the layouts that come with rater, sorted."""
    return tuple(sorted(path.stem for path in folder("layouts").glob("*.toml")))


def load_layout(name_or_path: str) -> Layout:
    """Read a built-in layout by name, or a file by path; a name wins over a file called like it.

    Raises `InputError` for an unknown name or an unreadable file, and
    `MistakesError` with every mistake in it.
    """
    names = layout_names()
    path = Path(name_or_path)
    if name_or_path in names:
        path = folder("layouts") / f"{name_or_path}.toml"
    elif "/" not in name_or_path and path.suffix != ".toml" and not path.is_file():
        raise InputError(
            f"unknown layout {name_or_path!r}; {did_you_mean(name_or_path, names)} "
            "(a layout of your own is given by its path: ./NAME.toml)"
        )
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        said = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"cannot read the layout file {path}: {said}; expected a TOML file"
        ) from None
    return parse_layout(text, path)


def parse_layout(text: str, path: Path) -> Layout:
    """Return the layout that the text of a file says; raises `MistakesError` with all mistakes."""
    document = Document(text, path)
    table = document.root()
    layout = _layout(table, path.stem)
    table.finish()
    document.raise_mistakes()
    return layout


def _layout(table: Table, name: str) -> Layout:
    description = table.string("description")
    order = Order(table.choice("order", [order.value for order in Order]) or Order.NONE)
    if "order" not in table:
        table.mistake('missing; expected "balanced" or another order', "order")
    unbound = order is Order.NONE
    bind = Bind(
        table.choice("bind", [bind.value for bind in Bind]) or (Bind.NONE if unbound else Bind.PU)
    )
    if unbound != (bind is Bind.NONE) and not table.document.mistakes:
        table.mistake(
            f'"{bind.value}" does not go with order = "{order.value}"; copies are bound by both '
            'or by neither ("none")',
            "bind",
        )
    return Layout(name, description, order, bind)
