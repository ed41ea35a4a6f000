"""The machine's settings, counters, layouts, and what the doctor found; as text and for JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from rater.analysis.doctor.examine import by_verdict
from rater.analysis.doctor.findings import DoctorFinding, DoctorVerdict
from rater.plan.counter_tables import Processor
from rater.plan.placement.layout import EXPLICIT, Layout, MachineParts
from rater.plan.topology import PoolCapacity
from rater.show.console import TextLayout, with_margin
from rater.show.format import sanitize, wrap_text
from rater.text import cpuset
from rater.text.values import JsonFields, objects, to_json

_UNBOUNDED = 1 << 30
_INDENT = "  "
_WIDEST = 20  # characters of a value that has its own column
_MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    also: str  # the name that runs record it by; "" for none
    group: str
    what: str
    now: str
    choices: tuple[str, ...] | None  # None: numbers from `least` to `most`
    least: int
    most: int
    obstacle: str | None  # why it cannot be set now
    files: tuple[tuple[str, str], ...]  # path, value

    @property
    def takes(self) -> str:
        """The values it takes, for people."""
        if self.choices is not None:
            return ", ".join(self.choices)
        if self.most >= _UNBOUNDED:
            return f"{self.least}.."
        return f"{self.least}..{self.most}"


def settings_text(
    rows: Sequence[SettingRow],
    absent: Sequence[tuple[tuple[str, ...], str]],
    page: TextLayout,
    *,
    detailed: bool,
) -> str:
    """Return settings by group; `absent` are names and why the machine lacks them.

    Neighbours that differ in a page size only share a row, unless `detailed`, which adds the
    files and the names by which runs record them.
    """
    obstacles = {row.obstacle for row in rows}
    common = next(iter(obstacles)) if len(obstacles) == 1 else None
    shown = list(rows) if detailed else list(_merged(rows))
    lines: list[str] = []
    for group, members in groupby(shown, key=lambda row: row.group):
        lines += [*([""] if lines else []), group, *_group(list(members), common, page, detailed)]
    lines += _remarks(absent, common, page, any_rows=bool(rows))
    return page.joined(lines)


def _group(
    rows: Sequence[SettingRow], common: str | None, page: TextLayout, detailed: bool
) -> Iterator[str]:
    name_width = max(len(row.name) for row in rows)
    now_width = max((len(row.now) for row in rows if len(row.now) <= _WIDEST), default=len(_MIXED))
    margin = len(_INDENT) + name_width + 2 + now_width + 2
    room = page.room(margin)
    for row in rows:
        text = f"{row.what}: {row.takes}"
        if row.obstacle and row.obstacle != common:
            text += f" (not now: {row.obstacle})"
        texts, now = wrap_text(text, room, indent=""), row.now
        if len(now) > _WIDEST:  # differs from CPU to CPU
            texts, now = [*texts, *wrap_text(f"now {now}", room, indent="")], _MIXED
        if detailed:
            texts += _settings_details(row)
        yield from with_margin(f"{_INDENT}{row.name:<{name_width}}  {now}", margin, texts)


def _settings_details(row: SettingRow) -> list[str]:
    """Return the files of a setting, of many the first and how many there are."""
    first = row.files[0][0]
    more = f" and {len(row.files) - 1} more" if len(row.files) > 1 else ""
    return [*([f"recorded as {row.also}"] if row.also else []), f"{first}{more}"]


def _remarks(
    absent: Sequence[tuple[tuple[str, ...], str]],
    common: str | None,
    page: TextLayout,
    *,
    any_rows: bool,
) -> Iterator[str]:
    yield ""
    if absent:
        text = "; ".join(f"{', '.join(names)} ({why})" for names, why in absent)
        yield from wrap_text(f"unavailable here: {text}", page.width)
    if common and any_rows:
        yield from wrap_text(f"none of them can be set now: {common}", page.width)
    yield from wrap_text(
        "set by `rater sweep --axis NAME=VALUE,...`, which puts back what was there", page.width
    )


def _merged(rows: Sequence[SettingRow]) -> Iterator[SettingRow]:
    """Join rows of page sizes that have one value and one use."""

    def family(row: SettingRow) -> tuple[str, ...]:
        parts = row.name.split(".")
        if len(parts) > 1 and parts[1].endswith("kB") and parts[0] == "thp":
            return ("thp", *parts[2:], row.now, row.obstacle or "")
        return (row.name,)

    rest = list(rows)
    while rest:
        first = rest[0]
        same = [row for row in rest if family(row) == family(first)]
        rest = [row for row in rest if row not in same]
        if len(same) == 1:
            yield first
            continue
        least, most = (row.name.split(".")[1] for row in (same[0], same[-1]))
        number = least.removesuffix("kB")
        yield replace(
            first,
            name=first.name.replace(least, f"{number}-{most}"),
            what=first.what.replace(least, "these sizes"),
        )


_SETTING = JsonFields(
    "name recorded_as=also? group what value=now choices",
    {
        "least": lambda row: row.least if row.choices is None else None,
        "most": lambda row: row.most if row.choices is None and row.most < _UNBOUNDED else None,
        "settable": lambda row: row.obstacle is None,
    },
    "obstacle files{}",
)


def settings_document(
    rows: Sequence[SettingRow],
    absent: Sequence[tuple[tuple[str, ...], str]],
    journals: Sequence[str],
) -> dict[str, object]:
    """Return settings for JSON; null for what is unbounded, unknown or no hindrance."""
    return {
        "settings": to_json(rows, {SettingRow: _SETTING}),
        "lacking": objects("names why", absent),
        "journals": [*journals],
    }


# -- What a machine can count, as text and as values for JSON --------------------------------------


@dataclass(frozen=True, slots=True)
class CounterRow:
    """One group of events, tried."""

    table: str
    group: str
    state: str  # "works", "user mode only", "in part", "not counted"
    events: tuple[str, ...]
    missing: tuple[str, ...]  # of these
    why: str  # it does not work, or not in all; "": it does
    remedy: str
    in_stack: bool  # `--counters cpi` counts it


@dataclass(frozen=True, slots=True)
class EnergyRow:
    """One source of energy readings."""

    source: str  # powercap, perf, hwmon
    domains: tuple[str, ...]  # that can be read
    refused: str | None  # why others cannot, and the way out


def counters_text(
    processor: Processor,
    rows: Sequence[CounterRow],
    energy: Sequence[EnergyRow] | None,
    notes: Sequence[str],
    page: TextLayout,
) -> str:
    """Return the groups by table, and once for all that share it why they do not count.

    `energy`: sources, the one that runs use first; None: not asked for.
    """
    lines = [f"processor: {processor.name or 'not named by the kernel'}"]
    for note in notes:
        lines += page.prose(note)
    width = max((len(row.group) for row in rows), default=0)
    margin = 2 + width + 2
    for table, members in groupby(rows, key=lambda row: row.table):
        lines += ["", f"{table}:"]
        for row in members:
            stack = "; part of `cpi`" if row.in_stack else ""
            sentences = [f"{row.state}{stack}", _events(row)]
            lines += page.hang_indent(f"  {row.group}", margin, sentences)
    lines += ["", *_reasons(rows, page)]
    lines += [*_energy(energy, page), ""] if energy is not None else []
    lines += page.prose(
        "counted by `rater run --counters GROUP,...`, one group an iteration, and shown by "
        "`rater show --counters`"
    )
    return page.joined(lines)


def _events(row: CounterRow) -> str:
    return ", ".join(
        f"{event} (not counted)" if event in row.missing else event for event in row.events
    )


def _reasons(rows: Sequence[CounterRow], page: TextLayout) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.why:
            reasons.setdefault((row.why, row.remedy), []).append(row.group)
    for (why, remedy), groups in reasons.items():
        yield from page.prose(f"{', '.join(groups)}: {why}")
        if remedy:
            yield from page.prose(f"    way out: {remedy}")


def _energy(sources: Sequence[EnergyRow], page: TextLayout) -> Iterator[str]:
    if not sources:
        yield from page.prose(
            "energy: not counted here (no powercap, power PMU or hwmon: usual in virtual machines)"
        )
    for it in sources:
        domains = f": {', '.join(it.domains)}" if it.domains else ""
        yield from page.prose(f"energy by {it.source}{domains}")
        if it.refused:
            yield from page.prose(f"    {it.refused}")


def counters_document(
    processor: Processor,
    rows: Sequence[CounterRow],
    energy: Sequence[EnergyRow] | None,
    notes: Sequence[str],
) -> dict[str, object]:
    """Return the same as JSON values."""
    document: dict[str, object] = to_json(
        {
            "processor": processor,
            "groups": list(rows),
            "energy": None if energy is None else list(energy),
            "notes": list(notes),
        }
    )
    return document


# -- Layouts as text and as values for JSON --------------------------------------------------------

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


def layouts_text(layouts: Sequence[ListedLayout], page: TextLayout) -> str:
    """Return what there is and what may be written instead, sentences wrapped below each other."""
    reported = [(one.name, _sentences(one)) for one in layouts]
    written = [(sanitize(text), [message]) for text, message in _WRITTEN]
    margin = max(len(name) for name, _ in (*reported, *written)) + 2
    lines = [
        *(line for name, texts in reported for line in page.hang_indent(name, margin, texts)),
        "",
        *(line for text, message in written for line in page.hang_indent(text, margin, message)),
        "",
        "more: rater layouts show LAYOUT",
        "on a machine: rater plan --layout LAYOUT --copies N",
    ]
    return page.joined(lines)


_LAYOUT = JsonFields(
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


def file_text(text: str, path: Path, page: TextLayout) -> str:
    """Return the file of a layout as it is, control characters aside, below its own path.

    It is TOML again: a person can go on from it.
    """
    lines = [f"# {path}", *text.expandtabs(4).rstrip().splitlines()]
    return "\n".join(sanitize(line, ascii_only=page.ascii_only) for line in lines)


def written_text(layout: Layout) -> str:
    """Return a `list:` or `expr:` as the file of a layout that says the same."""
    order = json.dumps(f"{layout.order}:{layout.text}")
    return f'description = "{layout.description}"\norder = {order}\nbind = "{layout.bind}"'


def _sentences(one: ListedLayout) -> list[str]:
    if one.layout is None:
        return [f"broken: see rater layouts show {one.name}"]
    return [one.layout.description, *([f"= {one.layout.equals}"] if one.layout.equals else [])]


def _parts_json(parts: MachineParts) -> dict[str, object] | None:
    if not parts:
        return None
    numbers = {"cpus": parts.cpus, "nodes": parts.nodes, "cores": parts.cores}
    return {name: cpuset.format_list(found) for name, found in numbers.items() if found}


# -- What the doctor found, as text for a terminal and as values for JSON --------------------------

_MOST_LINES = 12  # of a summary that is to fit on a screen of 24 lines
_WAY_TO_DETAILS = "`rater doctor -v` explains each and gives the command that improves it."


@dataclass(frozen=True, slots=True)
class DoctorView:
    """All that is shown."""

    findings: tuple[DoctorFinding, ...]
    rooms: tuple[PoolCapacity, ...]  # empty of a stored run
    tuned: Mapping[str, str]  # what `rater run --tuned` would set
    of: str  # "this machine", or "the machine of run 7"


def doctor_text(view: DoctorView, page: TextLayout, *, detailed: bool) -> str:
    """Return a summary that fits a page, or with `detailed` all that there is to say."""
    lines = page.prose(_headline(view))
    found = by_verdict(view.findings)
    if detailed:
        for members in found.values():
            for one in members:
                lines += ["", *_doctor_details(one, page)]
    else:
        to_mend = (*found[DoctorVerdict.BAD], *found[DoctorVerdict.CONSIDER])
        shown = list(_that_fit(to_mend, page))
        for one in shown:
            lines += _row(one, page)
        if len(shown) < len(to_mend):
            more = ", ".join(
                f"{one.check} (BAD)" if one.verdict is DoctorVerdict.BAD else one.check
                for one in to_mend[len(shown) :]
            )
            lines += page.prose(f"and to consider: {more}")
        for verdict in (DoctorVerdict.GOOD, DoctorVerdict.UNKNOWN):
            names = ", ".join(one.check for one in found[verdict])
            lines += page.prose(f"{verdict.value}: {names}") if names else []
    if view.rooms:
        lines += [""] if detailed else []
        lines += _rooms(view.rooms, page, detailed=detailed)
    if view.tuned:
        words = ", ".join(f"{name}={value}" for name, value in view.tuned.items())
        lines += page.prose(f"`rater run --tuned` sets for a run: {words}.")
    if not detailed:
        lines += page.prose(_WAY_TO_DETAILS)
    return page.joined(lines)


def _headline(view: DoctorView) -> str:
    found = by_verdict(view.findings)
    told = [f"{len(members)} {verdict.value}" for verdict, members in found.items() if members]
    return f"{view.of}: {', '.join(told)}".replace("consider", "to consider (?)", 1)


def _that_fit(members: Sequence[DoctorFinding], page: TextLayout) -> Iterator[DoctorFinding]:
    """Yield as many as have room, the first at any rate."""
    taken = 0
    for one in members:
        taken += len(_row(one, page))
        if taken > max(_MOST_LINES, len(_row(members[0], page))):
            return
        yield one


def _row(one: DoctorFinding, page: TextLayout) -> list[str]:
    """Return verdict, check and what was seen, broken between words."""
    mark = "BAD" if one.verdict is DoctorVerdict.BAD else "?"
    begin = f"{mark:<4}{one.check:<15} "
    return page.hang_indent(begin, len(begin), [one.seen])


def _doctor_details(one: DoctorFinding, page: TextLayout) -> list[str]:
    lines = page.hang_indent(f"{one.check}", 16, [f"{one.verdict.value.upper()}: {one.seen}"])
    lines += page.hang_indent(f"{_INDENT}why", 16, [one.why])
    if one.command and one.verdict is not DoctorVerdict.GOOD:
        # Whole, however long: it is to be copied.
        lines.append(f"{_INDENT}{'mend':<14}{one.command}")
    return lines


def _rooms(rooms: Sequence[PoolCapacity], page: TextLayout, *, detailed: bool) -> Iterator[str]:
    """Yield what pools could have now, and with `detailed` the command."""
    if not detailed:
        by_size: dict[int, list[PoolCapacity]] = {}
        for room in rooms:
            by_size.setdefault(room.size_bytes, []).append(room)
        words = [_range_words(size, own) for size, own in sorted(by_size.items())]
        yield from page.prose(f"huge pages to be had now on each lgroup: {'; '.join(words)}")
        return
    yield "huge pages to be had now, beside those in the pools"
    for room in rooms:
        yield from page.hang_indent(
            f"{_INDENT}lgroup {room.node}",
            16,
            [
                f"{_room_words(room)} ({room.total} in the pool, {room.free} of them free)"
                + ("" if room.ready is None else f"; {room.most} at most, after compaction")
            ],
        )
        more = room.most if room.ready is None else room.ready
        yield f"{_INDENT}{'':14}echo {room.total + more} > {room.path}"
        if room.ready is None:
            yield from page.hang_indent(
                "",
                16,
                [
                    "no count tells how many lie in one piece: read back what it became, or boot "
                    f"with hugepagesz={room.size_bytes >> 30}G hugepages=N"
                ],
            )


def _range_words(size_bytes: int, rooms: Sequence[PoolCapacity]) -> str:
    """Return `2 MB: 5860 (lgroup 0) to 14000 (lgroup 1)`."""

    def pages(room: PoolCapacity) -> int:
        return room.most if room.ready is None else room.ready

    fewest, most = min(rooms, key=pages), max(rooms, key=pages)
    up_to = "at most " if fewest.ready is None else ""
    begin = f"{_size(size_bytes)} {up_to}{pages(fewest)}"
    if pages(fewest) == pages(most):
        return begin
    return f"{begin} (lgroup {fewest.node}) to {pages(most)} (lgroup {most.node})"


def _room_words(room: PoolCapacity) -> str:
    size = _size(room.size_bytes)
    if room.ready is None:
        return f"at most {room.most} of {size}"
    return f"{room.ready} of {size}"


def _size(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB")):
        if size_bytes >= unit:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes >> 10} kB"


TABLE = {
    DoctorFinding: JsonFields("check verdict seen why command settings{}"),
    PoolCapacity: JsonFields(
        "lgroup=node size_bytes total_pages=total free_pages=free more_now=ready more_at_most=most"
        " file=path setting"
    ),
}


def doctor_document(view: DoctorView) -> dict[str, object]:
    """Return all of it for JSON; `more_now` null: the kernel does not tell."""
    found = by_verdict(view.findings)
    return {
        "of": view.of,
        "counts": {verdict.value: len(members) for verdict, members in found.items()},
        "findings": to_json(view.findings, TABLE),
        "huge_pages": to_json(view.rooms, TABLE),
        "tuned": dict(view.tuned),
    }
