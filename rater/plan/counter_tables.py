"""Counter tables (`tables/`): their processors, events, groups and formulas; pure."""

from __future__ import annotations

import ast
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.plan.tlb import Tlb, parse_tlb
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text.documents import TableReader, did_you_mean, read_text, toml_document
from rater.text.kinds import FILLED_STRING, FLAG, STRING, ValueKind, choice, whole

_LONGEST = 400  # characters
_MOST_NODES = 120
_LARGEST = 1e12  # number in a formula, and what comes of one
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max}
_EXPECTED = "expected names of events, numbers, + - * / ( ), min(...) and max(...)"


type _Value = Callable[[Mapping[str, float]], float]


class Formula(Struct, frozen=True):
    """A checked formula; `text` as it was written."""

    text: str
    names: frozenset[str]  # of events
    _worth: _Value

    def value(self, values: Mapping[str, float]) -> float:
        """Return the value of the formula; `values` must have all `names`.

        Raises `ArithmeticError` for a division by zero, and for what no rate can be.
        """
        value = self._worth(values)
        if not abs(value) <= _LARGEST:  # NaN neither
            raise OverflowError(value)
        return value


def parse_formula(text: str, event_names: Collection[str]) -> Formula:
    """Return the formula that a text says.

    Raises `ValueError` for anything but sums over `known` names, with what is wrong.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
    try:
        with warnings.catch_warnings(action="error"):  # of "1if": Python would print them
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"no formula; {_EXPECTED}") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise ValueError("too long a formula")
    names: set[str] = set()
    worth = _compiled(tree, event_names, names)
    return Formula(text, frozenset(names), worth)


def _compiled(node: ast.expr, event_names: Collection[str], names: set[str]) -> _Value:
    """Return what gives the value of a part of a formula; `names` takes up those of its events."""
    match node:
        case ast.Constant(value=int() | float() as number) if (
            not isinstance(number, bool) and number <= _LARGEST
        ):
            return lambda _: float(number)
        case ast.Name(id=name):
            if name not in event_names:
                raise ValueError(f"unknown event {name!r}; {did_you_mean(name, event_names)}")
            names.add(name)
            return operator.itemgetter(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            apply, left_value, right_value = (
                _OPERATORS[type(op)],
                _compiled(left, event_names, names),
                _compiled(right, event_names, names),
            )
            return lambda values: apply(left_value(values), right_value(values))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            operand_value = _compiled(operand, event_names, names)
            return lambda values: -operand_value(values)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if (
            name in _FUNCTIONS
        ):
            choose, parts = (
                _FUNCTIONS[name],
                [_compiled(argument, event_names, names) for argument in args],
            )
            return lambda values: choose(part(values) for part in parts)
    raise ValueError(f"{ast.unparse(node)!r}: {_EXPECTED}")


# -- Which processor this is, as `/proc/cpuinfo` says, and whether a table is for it ---------------


class Processor(Struct, frozen=True, kw_only=True):
    """The first CPU as the kernel describes it; None for what its architecture does not have."""

    name: str  # for people; "" where the kernel has none
    vendor: str | None = None  # x86: GenuineIntel, AuthenticAMD
    family: int | None = None
    model: int | None = None
    stepping: int | None = None
    implementer: int | None = None  # Arm: 0x41
    part: int | None = None
    revision: int | None = None  # Arm: 0x02 for r0p2
    pvr: int | None = None  # POWER: the upper half of the processor version register


class ProcessorMatch(Struct, frozen=True, kw_only=True):
    """Processors that a table is for: all that is given must fit; nothing given: none."""

    vendor: str | None = None
    family: int | None = None
    models: tuple[range, ...] = ()
    steppings: tuple[range, ...] = ()
    implementer: int | None = None
    parts: tuple[range, ...] = ()
    revisions: tuple[range, ...] = ()
    pvr: int | None = None

    def fits(self, processor: Processor) -> bool:
        """Tell whether a table with this match is for a processor."""
        single = [
            (wanted, getattr(processor, name))
            for name in ("vendor", "family", "implementer", "pvr")
            if (wanted := getattr(self, name)) is not None
        ]
        several = [
            (self.models, processor.model),
            (self.steppings, processor.stepping),
            (self.parts, processor.part),
            (self.revisions, processor.revision),
        ]
        return (
            bool(single)
            and all(wanted == actual for wanted, actual in single)
            and all(not spans or any(actual in span for span in spans) for spans, actual in several)
        )


def parse_cpuinfo(text: str) -> Processor:
    """Return the processor of `/proc/cpuinfo`: of its first CPU, POWER's from its last lines."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            values.setdefault(name.strip(), value.strip())
    pvr = re.search(r"\(pvr ([0-9a-f]{4}) [0-9a-f]{4}\)", values.get("revision", ""))

    def number(name: str, parse: Callable[[str], int] = lambda text: int(text, 0)) -> int | None:
        try:
            return parse(values[name])
        except (KeyError, ValueError):
            return None

    return Processor(
        name=values.get("model name") or (values.get("cpu") or "" if pvr else ""),
        vendor=values.get("vendor_id"),
        family=number("cpu family"),
        model=number("model"),
        stepping=number("stepping"),
        implementer=number("CPU implementer"),
        part=number("CPU part"),
        revision=_arm_revision(number("CPU variant"), number("CPU revision")),
        pvr=int(pvr[1], 16) if pvr else None,
    )


def _arm_revision(variant: int | None, revision: int | None) -> int | None:
    """Return 0x02 for variant 0, revision 2, which Arm writes r0p2; None: one is not known."""
    return None if variant is None or revision is None else variant << 4 | revision


# -- Counter tables: events, groups and formulas of one processor family, a TOML file each ---------
#
# `[pmu]` says what processors it is for, `[events]` what is counted, `[groups]` what is counted at
# the same time, `[metrics]` and `[stack]` what follows, in events per instruction of the same run.

CYCLES, INSTRUCTIONS = "cycles", "instructions"  # a group with both has rates and a CPI
OTHER = "other"  # the part of a CPI that no event accounts for
TABLE_TEXT = "rater.counters."  # and a table's name: the setting that keeps its text with a run
MISS_CYCLES = "rater.tlb_miss_cycles"  # the setting that keeps what a TLB miss cost where it ran
SOFTWARE, GENERIC = "software", "generic"  # tables for every machine
_TABLES = Path(__file__).with_name("tables")
_CONFIG = whole(0, 2**64 - 1)
_EVENT = compile_later(r"[a-z][a-z0-9_]{0,40}")
_EVENT_EXPECTED = "expected a name of small letters, digits and '_'"
_MOST_COUNTERS = 64
_MOST_TEXT = 100_000  # characters; the largest table of rater's own has 3,000
_MOST_MODELS = 1 << 16
_RANGE = compile_later(r"(0x[0-9a-f]{1,4}|\d{1,5})(?:-(0x[0-9a-f]{1,4}|\d{1,5}))?")


class EventSource(StrEnum):
    """Who counts an event: `perf_event_attr.type` (linux/perf_event.h)."""

    RAW = "raw"  # codes of the processor, of its device's own type where it has one
    HARDWARE = "hardware"  # the kernel's names for what most processors have
    SOFTWARE = "software"  # the kernel itself


class EventCode(Struct, frozen=True, kw_only=True):
    """One event as perf_event_open(2) takes it."""

    name: str  # in formulas
    config: int
    config1: int
    vendor: str  # its name in the vendor's documents
    in_kernel: bool  # it happens in the kernel only: not counted where that may not be seen


class EventGroup(Struct, frozen=True):
    """Events that are counted at the same time."""

    name: str
    events: tuple[EventCode, ...]

    @property
    def has_rates(self) -> bool:
        """Tell whether it counts cycles and instructions, of which rates and a CPI are made."""
        return {CYCLES, INSTRUCTIONS} <= {event.name for event in self.events}


class EstimatedPart(Struct, frozen=True):
    """A part of the CPI that no event counts: misses x the cycles that one costs here."""

    name: str
    misses: Formula  # per instruction
    inside: str  # the part of the stack that it lies in, and is taken off


class CounterTable(Struct, frozen=True, kw_only=True):
    """What can be counted on the processors of a family, and what follows from it."""

    name: str
    path: Path
    text: str  # of the file, kept with runs so that their counts stay readable
    source: EventSource
    device: str  # below /sys/bus/event_source/devices, `*` for any ending; "": none of its own
    match: ProcessorMatch
    tlb: Tlb | None  # of data, usual for the family; None: not known
    seen_on: str | None  # the processor on which its counts were looked at; None: on none
    counters: int  # events without a counter of their own that a group may have
    groups: tuple[EventGroup, ...]
    metrics: tuple[tuple[str, Formula], ...]
    stack: tuple[tuple[str, Formula], ...]  # parts of the CPI, bottom to top; the rest is "other"
    estimates: tuple[EstimatedPart, ...] = ()

    def stack_groups(self) -> tuple[EventGroup, ...]:
        """Return the groups that the stack needs, in the table's order; (): it has none."""
        missing_events = {name for _, formula in self.stack for name in formula.names}
        if not missing_events:
            return ()
        missing_events.update(name for part in self.estimates for name in part.misses.names)
        groups = []
        for group in self.groups:
            names = {event.name for event in group.events}
            if missing_events & names:
                groups.append(group)
                missing_events -= names
        return tuple(groups)


def counter_tables(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the texts of the tables that a run counted by, by name, of the settings it has."""
    return {
        name.removeprefix(TABLE_TEXT): text
        for name, text in settings
        if name.startswith(TABLE_TEXT)
    }


def table_names() -> tuple[str, ...]:
    """Return the names of the tables that come with rater, sorted."""
    return tuple(sorted(path.stem for path in _TABLES.glob("*.toml")))


def table_for(processor: Processor) -> CounterTable | None:
    """Return the table that comes with rater for a processor; None if rater has none for it."""
    tables = map(load_table, table_names())
    return next((table for table in tables if table.match.fits(processor)), None)


@cache
def load_table(name_or_path: str) -> CounterTable:
    """Read a table by its name or path. Raises `InputError`, `MistakesError`."""
    names = table_names()
    if name_or_path in names:
        path = _TABLES / f"{name_or_path}.toml"
    else:
        path = Path(name_or_path)
        if "/" not in name_or_path and path.suffix != ".toml":
            raise InputError(
                f"unknown counter table {name_or_path!r}; {did_you_mean(name_or_path, names)} "
                "(one of your own is given by its path: ./NAME.toml)"
            )
    try:
        text = read_text(path)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"cannot read the counter table {path}: {why}; expected a TOML file such as "
            f"{_TABLES / 'intel-skx.toml'}"
        ) from None
    return parse_table(text, path)


def parse_table(text: str, path: Path) -> CounterTable:
    """Return the table that a text says; raises `MistakesError` with all mistakes."""
    if len(text) > _MOST_TEXT:
        raise InputError(f"{path}: more than {_MOST_TEXT // 1000} kB: too large a counter table")
    document = toml_document(text, path)
    root = document.root()
    pmu = root.table("pmu", required=True)
    counters = pmu.get("counters", whole(1, _MOST_COUNTERS))
    fixed = pmu.strings("fixed")
    events = _events(root.table("events", required=True))
    groups = _groups(root.table("groups", required=True), events, counters, frozenset(fixed))
    rated = {event.name for group in groups if group.has_rates for event in group.events}
    stack = _formulas(root.table("stack"), rated)
    table = CounterTable(
        name=pmu.get("name", FILLED_STRING),
        path=path,
        text=text,
        source=pmu.get("source", choice(EventSource), EventSource.RAW),
        device=pmu.get("device", _DEVICE, ""),
        match=_match(pmu.table("match")),
        tlb=pmu.get("tlb", _TLB, None),
        seen_on=pmu.get("seen_on", FILLED_STRING, None),
        counters=counters,
        groups=groups,
        metrics=_formulas(root.table("metrics"), rated),
        stack=stack,
        estimates=_estimates(root.table("estimates"), rated, [*(name for name, _ in stack), OTHER]),
    )
    for name in fixed:
        if name not in events:
            pmu.mistake(f"unknown event {name!r}; {did_you_mean(name, events)}", "fixed")
    pmu.finish()
    root.finish()
    document.raise_mistakes()
    return table


def _events(table: TableReader) -> dict[str, EventCode]:
    events = {}
    for name in table.names(_EVENT, _EVENT_EXPECTED):
        entry = table.table(name)
        events[name] = EventCode(
            name=name,
            config=entry.get("config", _CONFIG),
            config1=entry.get("config1", _CONFIG, 0),
            vendor=entry.get("vendor", STRING, ""),
            in_kernel=entry.get("in_kernel", FLAG, False),
        )
        entry.finish()
    return events


def _groups(
    table: TableReader, events: Mapping[str, EventCode], counters: int, fixed: frozenset[str]
) -> tuple[EventGroup, ...]:
    groups = []
    for name in table.names(_EVENT, _EVENT_EXPECTED):
        members = table.strings(name, at_least_one=True)
        for unknown in [member for member in members if member not in events]:
            table.mistake(f"unknown event {unknown!r}; {did_you_mean(unknown, events)}", name)
        if len(set(members)) < len(members):
            table.mistake("an event twice", name)
        needed = len(set(members) - fixed)
        if needed > counters:
            table.mistake(
                f"{needed} events that have no counter of their own, the processor has {counters} "
                "counters: make two groups of it",
                name,
            )
        groups.append(
            EventGroup(name, tuple(events[member] for member in members if member in events))
        )
    if not groups:
        table.mistake('expected a group at least, as in pipeline = ["cycles", ...]')
    return tuple(groups)


def _formula(table: TableReader, name: str, event_names: Collection[str]) -> Formula | None:
    """Return a formula; None, and a mistake, where there is none."""
    text = table.get(name, FILLED_STRING, None)
    try:
        return None if text is None else parse_formula(text, event_names)
    except ValueError as error:
        table.mistake(str(error), name)
        return None


def _formulas(table: TableReader, rated: Iterable[str]) -> tuple[tuple[str, Formula], ...]:
    """Return formulas by name; those of events that are in no group with cycles are mistakes."""
    event_names = sorted(rated)
    formulas = []
    for name in table.names(_EVENT, _EVENT_EXPECTED):
        formula = _formula(table, name, event_names)
        if formula is not None:
            formulas.append((name, formula))
    return tuple(formulas)


def _estimates(
    table: TableReader, rated: Iterable[str], parts: Collection[str]
) -> tuple[EstimatedPart, ...]:
    """Return the parts that are estimated; one in a part that the stack does not have is none."""
    estimates = []
    for name in table.names(_EVENT, _EVENT_EXPECTED):
        entry = table.table(name)
        inside = entry.get("inside", STRING, OTHER)
        if inside not in parts:
            entry.mistake(f"no part {inside!r}; {did_you_mean(inside, parts)}", "inside")
        misses = _formula(entry, "misses", sorted(rated))
        if misses is not None:
            estimates.append(EstimatedPart(name, misses, inside))
        entry.finish()
    return tuple(estimates)


def _parsed_tlb(text: object) -> Tlb | None:
    with suppress(InputError):
        return parse_tlb(text) if isinstance(text, str) else None
    return None


_TLB = ValueKind('a TLB, as "64x4,1536x12"', _parsed_tlb, None)


def _match(table: TableReader) -> ProcessorMatch:
    match = ProcessorMatch(
        vendor=table.get("vendor", STRING, None),
        family=table.get("family", whole(), None),
        models=_numbers(table, "models"),
        steppings=_numbers(table, "steppings"),
        implementer=table.get("implementer", whole(), None),
        parts=_numbers(table, "parts"),
        revisions=_numbers(table, "revisions"),
        pvr=table.get("pvr", whole(), None),
    )
    table.finish()
    return match


def _span(value: Any) -> range | None:
    if type(value) is int and 0 <= value < _MOST_MODELS:
        return range(value, value + 1)
    match = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    first = int(match[1], 0)
    return range(first, int(match[2] or match[1], 0) + 1)


def _numbers(table: TableReader, name: str) -> tuple[range, ...]:
    kind = ValueKind('a number or a range ("0x10-0x1f")', _span, range(0))
    return table.items(name, kind, "a list of numbers and ranges")


_DEVICE = ValueKind(
    "a name below /sys/bus/event_source/devices",
    lambda value: (
        value if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_]{1,40}\*?", value) else None
    ),
    "",
)
