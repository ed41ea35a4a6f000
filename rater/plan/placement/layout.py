"""Placement layouts, options that change them, and orders written out (`list:`, `expr:`); pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct, field
from msgspec.structs import replace

from rater.errors import InputError
from rater.files import folder
from rater.text import cpuset
from rater.text.documents import NAME, TableReader, did_you_mean, read_text, toml_document
from rater.text.kinds import CPUS, STRING, ValueKind, choice, whole
from rater.text.values import printable

# -- Orders that a user writes out: `list:0,8,1,9` by OS number, `expr:` in likwid's notation ------
#
# The grammar of `expr:` (blanks are allowed between words; `i`, `n` are numbers):
#
#     EXPR    = PART ["@" PART]...         one list after the other
#     PART    = DOMAIN                     all its CPUs, siblings side by side
#             | DOMAIN ":" NUMBERS         positions in it, first threads of all cores first
#             | "L:" DOMAIN ":" NUMBERS    the same
#             | "E:" DOMAIN [":" n [":" CHUNK ":" STRIDE [":" OFFSET]]]
#             | LETTER ":" ("scatter" | "balanced" | "cbalanced") [":" n]
#     DOMAIN  = "N" | ("S" | "D" | "C" | "M") i
#     NUMBERS = item ["," item]...         item: i, i-i or i-i:STEP
#
# N is the machine, S a package, D a die (a package where there are none), C a
# last-level cache, each counted in logical order, and M the lgroup with that OS
# number; only usable CPUs count. `E:` takes n CPUs, siblings side by side, in
# chunks whose starts are STRIDE apart, and begins again at the end of the domain,
# as `likwid-pin` does. `scatter` deals CPUs of all domains of a letter in turn,
# first threads of all cores first; `balanced` lists each domain's share in one
# piece, siblings side by side, and `cbalanced` on as many cores as there are.
# A run has a copy for each CPU that is listed, twice for one that is listed twice,
# unless `--copies` says another number.

MOST_CPUS = 99_999  # in one list: as many as there can be copies

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+", re.ASCII)
_LETTERS = "NSDCM"
_DISTRIBUTIONS = ("scatter", "balanced", "cbalanced")
_BLANKS = " \t"


class Positions(Struct, frozen=True):
    """CPUs at positions of a domain, counted over first threads, then second threads, ..."""

    domain: str
    positions: tuple[int, ...]


class Chunks(Struct, frozen=True):
    """CPUs of a domain in chunks, siblings side by side."""

    domain: str
    count: int | None  # None: all of the domain
    chunk: int = 1
    stride: int = 1
    offset: int = 0


class Distribution(Struct, frozen=True):
    """CPUs of all domains of a letter, assigned to them evenly."""

    letter: str
    how: str
    count: int | None  # None: all of them


type Part = Positions | Chunks | Distribution


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of what stands behind `list:`, in the order written.

    Raises `InputError` with the position of what is wrong. A CPU that stands there
    twice is wrong: that is how hand-written lists put two copies on one CPU.
    """
    reader = _Reader(text, "list:")
    cpus = reader.numbers(cpuset.MAX_NUMBER)
    reader.end()
    twice = sorted(cpu for cpu, times in Counter(cpus).items() if times > 1)
    if twice:
        raise InputError(
            f"list:{short(text)} names {'CPU' if len(twice) == 1 else 'CPUs'} "
            f"{cpuset.format_list(twice)} more than once: name each once (more copies than CPUs go "
            "round the list; to load a CPU twice on purpose, chain expressions: expr:N:0-3@N:0)"
        )
    return cpus


def parse_expression(text: str) -> tuple[Part, ...]:
    """Return the parts of what stands behind `expr:`.

    Raises `InputError` with the position of what is wrong.
    """
    reader = _Reader(text, "expr:")
    parts = [_part(reader)]
    while reader.skip("@"):
        parts.append(_part(reader))
    reader.end("'@' or the end")
    return tuple(parts)


def _part(reader: _Reader) -> Part:
    place = reader.place
    word = reader.word("a domain (N, S0, D0, C0, M0) or E: or L:")
    if word == "E":
        reader.need(":")
        return _chunks(reader, _domain(reader))
    if word == "L":
        reader.need(":")
        domain = _domain(reader)
        reader.need(":")
        return Positions(domain, reader.numbers(cpuset.MAX_NUMBER))
    if word not in _LETTERS:
        reader.fail("a domain (N, S0, D0, C0, M0) or E: or L:", place)
    if word == "N" or reader.at_digit():
        domain = word if word == "N" else f"{word}{reader.number(0, cpuset.MAX_NUMBER)}"
        if not reader.skip(":"):
            return Chunks(domain, None)
        if word != "N" or reader.at_digit():
            return Positions(domain, reader.numbers(cpuset.MAX_NUMBER))
    else:
        reader.need(
            ":", f"the number of a domain, as in {word}0, or ':' and {_any_of(_DISTRIBUTIONS)}"
        )
    place = reader.place
    how = reader.word(_any_of(_DISTRIBUTIONS))
    if how not in _DISTRIBUTIONS:
        reader.fail(_any_of(_DISTRIBUTIONS), place)
    return Distribution(word, how, reader.number(1, MOST_CPUS) if reader.skip(":") else None)


def _domain(reader: _Reader) -> str:
    place = reader.place
    letter = reader.word("a domain (N, S0, D0, C0, M0)")
    if letter not in _LETTERS:
        reader.fail("a domain (N, S0, D0, C0, M0)", place)
    return letter if letter == "N" else f"{letter}{reader.number(0, cpuset.MAX_NUMBER)}"


def _chunks(reader: _Reader, domain: str) -> Chunks:
    if not reader.skip(":"):
        return Chunks(domain, None)
    count = reader.number(1, MOST_CPUS)
    if not reader.skip(":"):
        return Chunks(domain, count)
    chunk = reader.number(1, MOST_CPUS)
    reader.need(":", "':' and the stride, as in E:N:8:2:4")
    stride = reader.number(1, MOST_CPUS)
    offset = reader.number(0, MOST_CPUS) if reader.skip(":") else 0
    return Chunks(domain, count, chunk, stride, offset)


class _Reader:
    """Words and numbers of a text, from left to right; its errors name the position."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.place = 0
        self._blanks()

    def fail(self, expected: str, place: int | None = None) -> NoReturn:
        place = self.place if place is None else place
        found = repr(self.text[place]) if place < len(self.text) else "the end"
        raise InputError(
            f"{self.what}{short(self.text)}: expected {expected} at character {place + 1} "
            f"behind {self.what}, found {found}"
        )

    def at_digit(self) -> bool:
        return _DIGITS.match(self.text, self.place) is not None

    def skip(self, sign: str) -> bool:
        if not self.text.startswith(sign, self.place):
            return False
        self.place += len(sign)
        self._blanks()
        return True

    def need(self, sign: str, expected: str | None = None) -> None:
        if not self.skip(sign):
            self.fail(expected or repr(sign))

    def end(self, expected: str = "',' or '-' or the end") -> None:
        if self.place < len(self.text):
            self.fail(expected)

    def word(self, expected: str) -> str:
        found = _WORD.match(self.text, self.place)
        if found is None:
            self.fail(expected)
        self.place = found.end()
        self._blanks()
        return found[0]

    def number(self, least: int, most: int) -> int:
        found = _DIGITS.match(self.text, self.place)
        digits = found[0].lstrip("0") or "0" if found else ""
        if found is None or len(digits) > len(str(most)) or not least <= int(digits) <= most:
            self.fail(f"a number from {least} to {most}")
        self.place = found.end()
        self._blanks()
        return int(digits)

    def numbers(self, most: int) -> tuple[int, ...]:
        """Return the numbers of `0,8-11,16-30:2` in the order written."""
        found: list[int] = []
        while True:
            place = self.place
            first = last = self.number(0, most)
            step = 1
            if self.skip("-"):
                last = self.number(0, most)
                if last < first:
                    self.fail(f"a range that runs upwards, not {first}-{last},", place)
                if self.skip(":"):
                    step = self.number(1, most)
            found += range(first, last + 1, step)
            if len(found) > MOST_CPUS:
                self.fail(f"no more than {MOST_CPUS} numbers", place)
            if not self.skip(","):
                return tuple(found)

    def _blanks(self) -> None:
        while self.place < len(self.text) and self.text[self.place] in _BLANKS:
            self.place += 1


def _any_of(words: Sequence[str]) -> str:
    return " or ".join(words)


def short(text: str) -> str:
    """Return a user's text for a message: printable, and cut where it is long."""
    clean = printable(text)
    return clean if len(clean) <= 60 else f"{clean[:50]}..."


# -- Placement layouts: built-in by name, one of your own by path, `list:` and `expr:` as written --

MOST_CORES = cpuset.MAX_NUMBER + 1


class CpuOrder(StrEnum):
    """In which order CPUs are given to copies (`rater.plan.placement.order` has the orders)."""

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

    def __bool__(self) -> bool:
        return bool(self.cpus or self.nodes or self.cores)


class Counts(Struct, frozen=True):
    """How many copies each lgroup gets."""

    by_node: tuple[tuple[int, int], ...]  # (OS number of the lgroup, copies), ascending
    rest: int = 0  # copies on each lgroup with usable CPUs that is not named


class Layout(Struct, frozen=True):
    """How copies are spread over a machine, whatever the machine and the number of copies.

    `reserve`, `only`, `exclude`, `kind` and `smt` apply_filters what `order` deals out
    (`rater.plan.placement.order` has the rules), `bind` widens each copy's mask afterwards.
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
    only: MachineParts = field(
        default=MachineParts()
    )  # CPUs and lgroups that copies use; empty: all
    exclude: MachineParts = field(default=MachineParts())
    counts: Counts | None = None


def layout_names() -> tuple[str, ...]:
    """Return the names of the layouts that come with rater, sorted."""
    return tuple(sorted(path.stem for path in folder("layouts").glob("*.toml")))


def layout_path(name_or_path: str) -> Path:
    """Return the file of a layout; a built-in name wins over a file called like it.

    Raises `InputError` for an unknown name.
    """
    names = layout_names()
    path = Path(name_or_path)
    if name_or_path in names:
        return folder("layouts") / f"{name_or_path}.toml"
    if "/" not in name_or_path and path.suffix != ".toml" and not path.is_file():
        raise InputError(
            f"unknown layout {name_or_path!r}; {did_you_mean(name_or_path, names, few=True)} "
            "(CPUs of your choice: list:0,8,1,9; a layout of your own is given by its path: "
            "./NAME.toml)"
        )
    return path


def explicit_order(text: str) -> tuple[CpuOrder, str] | None:
    """Split `list:...` and `expr:...`; None for anything else.

    Raises `InputError` with the position of what is wrong behind the colon.
    """
    word, colon, rest = text.partition(":")
    if not colon or word not in EXPLICIT:
        return None
    order = CpuOrder(word)
    if order is CpuOrder.LIST:
        parse_cpus(rest)
    else:
        parse_expression(rest)
    return order, rest


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
        return Layout(name_or_path, "CPUs as written", written[0], BindLevel.PU, text=written[1])
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
    """Return the text of a user's own layout file, None for layouts that come with rater.

    What `list:` and `expr:` say is no file. Raises `InputError` as `load_layout` does.
    """
    if explicit_order(name_or_path) is not None or name_or_path in layout_names():
        return None
    return layout_text(layout_path(name_or_path))


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
        name,
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


def override_layout(
    layout: Layout,
    *,
    bind: str | None = None,
    smt: int | None = None,
    kind: str | None = None,
    reserve: int | None = None,
) -> Layout:
    """Return the layout with what `--bind`, `--smt`, `--kind` and `--reserve` say (None: nothing).

    `bind="none"` makes it one that does not bind. Raises `InputError` for values
    that mean nothing, and for options that do not go together.
    """
    if bind is not None and bind not in list(BindLevel):
        raise InputError(f"--bind {bind}: expected {', '.join(BindLevel)}")
    if smt is not None and smt < 1:
        raise InputError(f"--smt {smt}: expected the number of threads of a core to use, 1 or more")
    if kind is not None and not is_kind(kind):
        raise InputError(f"--kind {kind}: expected fast, slow, or a number (0 is the slowest)")
    if reserve is not None and not 0 <= reserve <= MOST_CORES:
        raise InputError(f"--reserve {reserve}: expected a number of cores, 0 to {MOST_CORES}")
    given: dict[str, Any] = {"smt": smt, "kind": kind, "reserve": reserve}
    changed = replace(layout, **{name: it for name, it in given.items() if it is not None})
    if bind is not None and BindLevel(bind) is BindLevel.NONE:
        changed = replace(changed, order=CpuOrder.NONE, bind=BindLevel.NONE, text="")
    elif bind is not None:
        if layout.order is CpuOrder.NONE:
            raise InputError(
                f"--bind {bind}: layout {layout.name} does not bind copies: use another layout"
            )
        changed = replace(changed, bind=BindLevel(bind))
    idle = options(changed)
    if changed.order is CpuOrder.NONE and idle:
        raise InputError(
            f"layout {layout.name} with {', '.join(idle)}: copies that are not bound run on any "
            "CPU: use a layout that binds, or leave that out"
        )
    return changed


def options(layout: Layout) -> list[str]:
    """Return what narrows the layout, in words: `smt 1`, `reserve 2`, `nodes 0-1`, ..."""
    lines = [f"{name} {cpuset.format_list(numbers)}" for name, numbers in _numbers(layout.only)]
    lines += [
        f"without {name} {cpuset.format_list(numbers)}"
        for name, numbers in _numbers(layout.exclude)
    ]
    lines += [f"reserve {layout.reserve}"] if layout.reserve else []
    lines += [f"kind {layout.kind}"] if layout.kind else []
    lines += [] if layout.smt is None else [f"smt {layout.smt}"]
    if layout.counts is not None:
        shares = [f"{copies} on node {node}" for node, copies in layout.counts.by_node]
        shares += [f"{layout.counts.rest} on each other"] if layout.counts.rest else []
        lines.append(f"copies {', '.join(shares)}")
    return lines


def called(
    name: str,
    *,
    bind: str | None = None,
    smt: int | None = None,
    kind: str | None = None,
    reserve: int | None = None,
) -> str:
    """Return what a run's layout is called: its name and what was changed, `cores, smt 1`."""
    changes = (("bind", bind), ("smt", smt), ("kind", kind), ("reserve", reserve))
    return ", ".join([name, *(f"{what} {value}" for what, value in changes if value is not None)])


def _numbers(parts: MachineParts) -> list[tuple[str, tuple[int, ...]]]:
    named = [("CPUs", parts.cpus), ("NUMA nodes", parts.nodes), ("cores", parts.cores)]
    return [(name, numbers) for name, numbers in named if numbers]
