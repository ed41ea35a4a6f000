"""Placement layouts: built-in by name, one's own by path, `list:` and `expr:` as written; pure."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from rater.plan.placement.expression import MOST_CPUS, parse_cpus, parse_expression
from rater.system.errors import InputError
from rater.system.paths import data_folder
from rater.text import cpuset
from rater.text.documents import NAME, TableReader, did_you_mean, read_text, toml_document
from rater.text.kinds import CPUS, STRING, ValueKind, choice, whole

MOST_CORES = cpuset.MAX_NUMBER + 1


class CpuOrder(StrEnum):
    """In which order CPUs are given to copies (`rater.plan.placement.slots` has the orders)."""

    NONE = "none"  # copies are not bound
    OS = "os"  # ascending OS numbers
    COMPACT = "compact"  # hwloc's logical order: siblings side by side
    CORES = "cores"  # every core once, lgroup after lgroup, then second threads
    FILL = "fill"  # an lgroup's cores, its second threads, then the next lgroup
    SCATTER = "scatter"  # round robin over packages, lgroups, LLCs; first threads first
    BALANCED = "balanced"  # the set of `scatter` for n copies, numbered by logical index
    DISTRIB = "distrib"  # the machine cut into n parts as hwloc-distrib does, one a copy
    LIST = "list"  # CPUs written out by OS number
    EXPR = "expr"  # CPUs in likwid's notation


EXPLICIT = (CpuOrder.LIST, CpuOrder.EXPR)  # `list:` and `expr:` and a text behind it
NAMED_ORDERS = tuple(order for order in CpuOrder if order not in EXPLICIT)


class BindLevel(StrEnum):
    """How wide a copy's CPU mask is: all usable PUs of the object its own PU lies in."""

    PU = "pu"
    CORE = "core"
    LLC = "llc"
    NODE = "node"
    PACKAGE = "package"
    NONE = "none"  # no mask; goes with order "none" and with no other


class MachineParts(Struct, frozen=True):
    """Some of a machine; empty: none named."""

    cpus: tuple[int, ...] = ()  # OS numbers, ascending
    nodes: tuple[int, ...] = ()  # OS numbers of lgroups, ascending
    cores: tuple[int, ...] = ()  # hwloc logical indexes, ascending

    def named(self) -> dict[str, tuple[int, ...]]:
        """Return what is named, by what people call it."""
        parts = {"CPUs": self.cpus, "NUMA nodes": self.nodes, "cores": self.cores}
        return {name: numbers for name, numbers in parts.items() if numbers}


class Counts(Struct, frozen=True):
    """How many copies each lgroup gets."""

    by_node: tuple[tuple[int, int], ...]  # (OS number of the lgroup, copies), ascending
    rest: int = 0  # copies on each lgroup with usable CPUs that is not named


class Layout(Struct, frozen=True, kw_only=True):
    """How copies are spread over a machine, whatever the machine and the number of copies.

    `reserve`, `only`, `exclude`, `kind` and `smt` narrow what `order` deals out
    (`rater.plan.placement.place` has the rules), `bind` widens each copy's mask afterwards.
    """

    name: str
    description: str
    order: CpuOrder
    bind: BindLevel
    text: str = ""  # what stands behind `list:` or `expr:`
    equals: str = ""  # what others call the same
    smt: int | None = None  # threads of a core that are used, None: all
    kind: str = ""  # "fast", "slow" or the number of a kind, 0 the slowest; "": all
    reserve: int = 0  # cores kept for the system and the supervisor
    only: MachineParts = field(default=MachineParts())  # that copies use; empty: all
    exclude: MachineParts = field(default=MachineParts())
    counts: Counts | None = None


def layout_names() -> tuple[str, ...]:
    """Return the names of the layouts that come with rater, sorted."""
    return tuple(sorted(path.stem for path in data_folder("layouts").glob("*.toml")))


def layout_path(name_or_path: str) -> Path:
    """Return the file of a layout; a built-in name wins over a file called like it.

    Raises `InputError` for an unknown name.
    """
    names = layout_names()
    path = Path(name_or_path)
    if name_or_path in names:
        return data_folder("layouts") / f"{name_or_path}.toml"
    if "/" not in name_or_path and path.suffix != ".toml" and not path.is_file():
        raise InputError(
            f"unknown layout {name_or_path!r}; {did_you_mean(name_or_path, names, list_all=True)} "
            "(CPUs of your choice: list:0,8,1,9; a layout of your own is given by its path: "
            "./NAME.toml)"
        )
    return path


def explicit_order(text: str) -> tuple[CpuOrder, str] | None:
    """Split `list:...` and `expr:...`; None for anything else.

    Raises `InputError` for what does not read behind the colon.
    """
    word, colon, rest = text.partition(":")
    if not colon or word not in EXPLICIT:
        return None
    parse_cpus(rest) if word == CpuOrder.LIST else parse_expression(rest)
    return CpuOrder(word), rest


def is_kind(text: str) -> bool:
    """Tell whether a text names CPU kinds: fast, slow, or a number."""
    return text in ("fast", "slow") or (text.isascii() and text.isdigit() and len(text) <= 4)


def load_layout(name_or_path: str) -> Layout:
    """Read a built-in layout by name, a file by path, or what `list:` and `expr:` say.

    Raises `InputError` for an unknown name, an unreadable file and wrong text behind
    `list:` or `expr:`, and `MistakesError` with every mistake in a file.
    """
    written = explicit_order(name_or_path)
    if written is not None:
        return Layout(
            name=name_or_path,
            description="CPUs as written",
            order=written[0],
            bind=BindLevel.PU,
            text=written[1],
        )
    path = layout_path(name_or_path)
    return parse_layout(layout_text(path), path, name_or_path)


def layout_text(path: Path) -> str:
    """Return the text of a layout's file; raises `InputError` when it cannot be read."""
    try:
        return read_text(path)
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a NUL in the path
        text = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"cannot read the layout file {path}: {text}; expected a TOML file"
        ) from None


def own_layout_text(name_or_path: str) -> str | None:
    """Return the text of a user's own layout file, None for what is no such file.

    Raises `InputError` as `load_layout` does.
    """
    own = explicit_order(name_or_path) is None and name_or_path not in layout_names()
    return layout_text(layout_path(name_or_path)) if own else None


def parse_layout(text: str, path: Path, name: str | None = None) -> Layout:
    """Return the layout that the text of a file says; raises `MistakesError` with all mistakes.

    `name` is what the user calls it; by itself it has the file's name without suffix.
    """
    document = toml_document(text, path)
    table = document.root()
    layout = _layout(table, path.stem if name is None else name)
    table.finish()
    document.raise_mistakes()
    return layout


def _layout(table: TableReader, name: str) -> Layout:
    order, text = table.get("order", _ORDER)
    unbound = order is CpuOrder.NONE
    bind = table.get("bind", choice(BindLevel), BindLevel.NONE if unbound else BindLevel.PU)
    if order is not None and unbound != (bind is BindLevel.NONE):
        table.mistake(
            f'"{bind}" does not go with order = "{order}"; copies are bound by both '
            'or by neither ("none")',
            "bind",
        )
    excluded = table.table("exclude")
    layout = Layout(
        name=name,
        description=table.get("description", STRING, ""),
        order=order or CpuOrder.NONE,
        bind=bind,
        text=text,
        equals=table.get("equals", STRING, ""),
        smt=table.get("smt", whole(1, MOST_CORES), None),
        kind=table.get("kind", _CPU_KIND, ""),
        reserve=table.get("reserve", whole(0, MOST_CORES), 0),
        only=MachineParts(_set(table, "cpus"), _set(table, "nodes")),
        exclude=MachineParts(*(_set(excluded, name) for name in ("cpus", "nodes", "cores"))),
        counts=_counts(table.table("counts")) if "counts" in table else None,
    )
    excluded.finish()
    if unbound:
        for key in ("smt", "kind", "reserve", "cpus", "nodes", "exclude", "counts"):
            if key in table:
                table.mistake('does not go with order = "none": nothing is bound', key)
    if order in EXPLICIT and layout.counts is not None:
        table.mistake(f'does not go with order = "{order}:...", which names each CPU', "counts")
    return layout


def _order(value: object) -> tuple[CpuOrder | None, str] | None:
    if value is None:
        return None
    try:
        written = explicit_order(value) if isinstance(value, str) else None
    except InputError as error:
        raise ValueError(str(error)) from None
    return written or (CpuOrder(_ANY_ORDER.read(value)), "")


_ANY_ORDER = choice([*map(str, NAMED_ORDERS), "list:CPUS", "expr:EXPRESSION"])
_ORDER: ValueKind[tuple[CpuOrder | None, str]] = ValueKind(
    '"balanced" or another order', _order, (None, "")
)
_CPU_KIND = ValueKind(
    '"fast", "slow" or the number of a kind',
    lambda value: value if isinstance(value, str) and (is_kind(value) or not value) else None,
    "",
)


def _set(table: TableReader, name: str) -> tuple[int, ...]:
    numbers = table.get(name, CPUS, None)
    if numbers == ():
        table.mistake('expected numbers, as in "0-3,8"; leave the key out to name none', name)
    return numbers or ()


def _counts(table: TableReader) -> Counts:
    by_node: dict[int, int] = {}
    rest = 0
    for name in table.names():
        copies = table.get(name, whole(0, MOST_CPUS), 0)
        if name == "rest":
            rest = copies
            continue
        try:
            nodes = cpuset.parse_list(name)
        except ValueError:
            if NAME.fullmatch(name):
                table.mistake("expected the number of a NUMA node, a range (0-3) or rest", name)
            continue
        twice = [node for node in nodes if node in by_node]
        if twice:
            table.mistake(f"nodes {cpuset.format_list(twice)} already have a count", name)
        by_node.update(dict.fromkeys(nodes, copies))
    if not rest and not any(by_node.values()) and not table.document.mistakes:
        table.mistake("no NUMA node gets a copy: expected counts, as in 0 = 4 and rest = 1")
    return Counts(tuple(sorted(by_node.items())), rest)


# -- What changes a layout from the command line, and what a layout's options are called -----------

_CHANGES: dict[str, tuple[Callable[[Any], bool], str]] = {  # what may be changed, and into what
    "bind": (lambda it: it in list(BindLevel), ", ".join(BindLevel)),
    "smt": (lambda it: it >= 1, "the number of threads of a core to use, 1 or more"),
    "kind": (is_kind, "fast, slow, or a number (0 is the slowest)"),
    "reserve": (lambda it: 0 <= it <= MOST_CORES, f"a number of cores, 0 to {MOST_CORES}"),
}


def override_layout(layout: Layout, **changes: Any) -> Layout:
    """Return the layout with what `--bind`, `--smt`, `--kind` and `--reserve` say (None: nothing).

    `bind="none"` makes it one that does not bind. Raises `InputError` for values
    that mean nothing, and for options that do not go together.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    for name, value in given.items():
        is_right, expected = _CHANGES[name]
        if not is_right(value):
            raise InputError(f"--{name} {value}: expected {expected}")
    if "bind" in given:
        bind = given["bind"] = BindLevel(given["bind"])
        if bind is BindLevel.NONE:
            given |= {"order": CpuOrder.NONE, "text": ""}
        elif layout.order is CpuOrder.NONE:
            raise InputError(
                f"--bind {bind}: layout {layout.name} does not bind copies: use another layout"
            )
    changed = replace(layout, **given)
    idle = options(changed)
    if changed.order is CpuOrder.NONE and idle:
        raise InputError(
            f"layout {layout.name} with {', '.join(idle)}: copies that are not bound run on any "
            "CPU: use a layout that binds, or leave that out"
        )
    return changed


def options(layout: Layout) -> list[str]:
    """Return what narrows the layout, in words: `smt 1`, `reserve 2`, `nodes 0-1`, ..."""
    lines = [
        f"{word}{name} {cpuset.format_list(numbers)}"
        for word, parts in (("", layout.only), ("without ", layout.exclude))
        for name, numbers in parts.named().items()
    ]
    lines += [f"reserve {layout.reserve}"] if layout.reserve else []
    lines += [f"kind {layout.kind}"] if layout.kind else []
    lines += [] if layout.smt is None else [f"smt {layout.smt}"]
    if layout.counts is not None:
        shares = [f"{copies} on node {node}" for node, copies in layout.counts.by_node]
        shares += [f"{layout.counts.rest} on each other"] if layout.counts.rest else []
        lines.append(f"copies {', '.join(shares)}")
    return lines


def called(name: str, **changes: Any) -> str:
    """Return what a run's layout is called: its name and what was changed, `cores, smt 1`."""
    return ", ".join(
        [name, *(f"{it} {value}" for it, value in changes.items() if value is not None)]
    )
