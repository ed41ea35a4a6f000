"""The machine's settings, counters, layouts, and what the doctor found: documents and tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rater.analysis.doctor.findings import DoctorFinding, DoctorVerdict
from rater.plan.counter_tables import Processor
from rater.plan.placement.layout import EXPLICIT, Layout, MachineParts
from rater.plan.topology import PoolCapacity
from rater.settings.known import KernelSetting
from rater.settings.tuner import MissingSettings
from rater.show.screen.console import COMMAND
from rater.show.screen.document import TEXT, Field, Line, Part, Row, ViewTable, facts
from rater.text import cpuset
from rater.text.values import JsonFields, group_by_key, struct_fields, to_json

if TYPE_CHECKING:
    from rater.show.documents.machine import DoctorDocument, SettingJson, SettingsDocument
    from rater.show.documents.plan import LayoutJson

# -- What the machine can be set to ----------------------------------------------------------------

_UNBOUNDED = 1 << 30
_WIDEST = 20  # characters of a value that has its own column


def settings_document(
    settings: Iterable[KernelSetting],
    root: Path,
    absent: Sequence[MissingSettings],
    journals: Sequence[Path],
) -> SettingsDocument:
    """Return settings for JSON; null for what is unbounded, unknown or no hindrance."""
    rows: list[SettingJson] = []
    for setting in settings:
        now, obstacle, numeric = setting.read(), setting.obstacle(), setting.choices is None
        rows.append(
            {
                "name": setting.name,
                "recorded_as": setting.also or None,
                "group": setting.group,
                "what": setting.what,
                "value": now.description,
                "choices": None if setting.choices is None else [*setting.choices],
                "least": setting.least if numeric else None,
                "most": setting.most if numeric and setting.most < _UNBOUNDED else None,
                "settable": obstacle is None,
                "obstacle": obstacle,
                "files": {str(root / file): value for file, value in now.files},
            }
        )
    return {
        "settings": rows,
        "lacking": [{"names": [*setting.names], "why": setting.why} for setting in absent],
        "journals": [str(path) for path in journals],
    }


def settings_parts(document: SettingsDocument, *, detailed: bool) -> Iterator[Part]:
    """Yield the settings by group; `detailed`: with their files and their names in stored runs.

    Else neighbours that differ in a page size only share a row.
    """
    rows = document["settings"] if detailed else list(_merged(document["settings"]))
    obstacles = {setting_row["obstacle"] for setting_row in rows}
    common = next(iter(obstacles)) if len(obstacles) == 1 else None

    def value(row: Row) -> str:
        return row["value"] if len(row["value"]) <= _WIDEST else "mixed"

    def about(row: Row) -> list[str]:
        numbers = f"{row['least']}..{'' if row['most'] is None else row['most']}"
        texts = [f"{row['what']}: {', '.join(row['choices']) if row['choices'] else numbers}"]
        if len(row["value"]) > _WIDEST:  # differs from CPU to CPU
            texts.append(f"now {row['value']}")
        if row["obstacle"] != common:
            texts.append(f"cannot be set: {row['obstacle']}")
        if detailed:
            first, *others = row["files"]
            texts += [f"recorded as {row['recorded_as']}"] if row["recorded_as"] else []
            texts.append(f"{first} and {len(others)} more" if others else first)
        return texts

    columns = (
        Field(heading="setting", value="name", form=TEXT),
        Field(heading="now", value=value, form=TEXT),
        Field(heading="meaning: values", value=about, wrap=True),
    )
    yield ViewTable(title="", rows=rows, fields=columns, group="group")
    missing = [
        (", ".join(setting_row["names"]), setting_row["why"]) for setting_row in document["lacking"]
    ]
    yield facts(missing, "Unavailable here")
    if common and rows:
        yield f"None of them can be set now: {common}"
    yield "`rater sweep --axis NAME=VALUE,...` sets them and restores the old values afterwards."


def _merged(rows: Iterable[Row]) -> Iterator[Row]:
    """Join rows of page sizes that have one value and one use."""

    def family(row: Row) -> tuple[str, ...]:
        first, _, rest = row["name"].partition(".")
        size, _, use = rest.partition(".")
        if first == "thp" and size.endswith("kB"):
            return ("thp", use, row["value"], row["obstacle"] or "")
        return (row["name"],)

    for first, *others in group_by_key((family(it), it) for it in rows).values():
        if not others:
            yield first
            continue
        least, most = (it["name"].split(".")[1] for it in (first, others[-1]))
        name = first["name"].replace(least, f"{least.removesuffix('kB')}-{most}")
        yield {**first, "name": name, "what": first["what"].replace(least, "these sizes")}


# -- What a machine can count ----------------------------------------------------------------------


def counters_document(
    processor: Processor,
    groups: Sequence[Row],
    energy: Sequence[Row] | None,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Return groups of events, each tried, and sources of energy, the one that runs use first.

    `energy` None: not asked for.
    """
    document: dict[str, Any] = to_json(
        {"processor": processor, "groups": groups, "energy": energy, "notes": notes}
    )
    return document


def counters_parts(document: Row) -> Iterator[Part]:
    """Yield the groups by table, and once for all that share it why they do not count."""

    def events(row: Row) -> str:
        texts = [
            f"{event} (not counted)" if event in row["missing"] else event
            for event in row["events"]
        ]
        return ", ".join(texts)

    yield f"processor: {document['processor']['name'] or 'not named by the kernel'}"
    yield from document["notes"]
    groups = document["groups"]
    columns = (
        Field(heading="group", value="group", form=TEXT),
        Field(heading="here", value="state", form=TEXT),
        Field(
            heading="part of",
            value=lambda it: "cpi" if it["in_stack"] else None,
            form=TEXT,
            optional=1,
        ),
        Field(heading="events", value=events, wrap=True),
    )
    yield ViewTable(title="", rows=groups, fields=columns, group="table")
    reasons = group_by_key(
        ((group["why"], group["remedy"]), group["group"]) for group in groups if group["why"]
    )
    for (why, remedy), names in reasons.items():
        yield f"{', '.join(names)}: {why}"
        yield f"    remedy: {remedy}" if remedy else None
    if document["energy"] == []:
        yield (
            "energy: not counted here (no powercap, power PMU or hwmon: usual in virtual machines)"
        )
    for source in document["energy"] or ():
        domains = f": {', '.join(source['domains'])}" if source["domains"] else ""
        yield f"energy by {source['source']}{domains}"
        yield f"    {source['refused']}" if source["refused"] else None
    yield (
        "`rater run --counters GROUP,...` counts one group an iteration; "
        "`rater show --counters` shows the counts."
    )


# -- Layouts ---------------------------------------------------------------------------------------

_WRITTEN = (
    ("list:0,8,1,9", "these CPUs in this order; ranges 0-7, steps 0-62:2"),
    (
        "expr:E:M0:8:1:2",
        "likwid's notation: E:N:8, S0:0-3@S1:0-3, M:scatter:8; N machine, S package, D die, "
        "C cache, M NUMA node",
    ),
    (
        "./mine.toml",
        "a layout of your own: order, bind, smt, kind, reserve, nodes, cpus, [exclude], [counts]; "
        "begin with: `rater plan layouts show fill > mine.toml`",
    ),
)

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


def layout_document(layout: Layout, path: Path | None) -> LayoutJson:
    """Return one layout for JSON; null for a key that the layout does not set."""
    head = {"name": layout.name, "path": path}
    document: LayoutJson = to_json(head | _LAYOUT.read(layout) | {"error": None})
    return document


def layouts_parts(layouts: Sequence[LayoutJson]) -> Iterator[Part]:
    """Yield the built-in layouts, and what may be written instead."""

    def about(row: Row) -> list[str]:
        if row["error"]:
            return [f"broken: `rater plan layouts show {row['name']}`"]
        return [row["description"], *([f"= {row['equals']}"] if row["equals"] else [])]

    rows = [(layout["name"], about(layout)) for layout in layouts]
    yield facts([*rows, *((text, [meaning]) for text, meaning in _WRITTEN)])
    yield "more: `rater plan layouts show LAYOUT`"
    yield "on a machine: `rater plan --layout LAYOUT --copies N`"


def written_text(layout: Layout) -> str:
    """Return a `list:` or `expr:` as the file of a layout that says the same."""
    order = json.dumps(f"{layout.order}:{layout.text}")
    return f'description = "{layout.description}"\norder = {order}\nbind = "{layout.bind}"'


def _parts_json(parts: MachineParts) -> dict[str, object] | None:
    named = struct_fields(parts).items()
    return {name: cpuset.format_list(numbers) for name, numbers in named if numbers} or None


# -- What the doctor found -------------------------------------------------------------------------

_TITLES = {  # of checks whose names alone say little
    "heat": "temperature",
    "limits": "process limits",
    "perf": "perf access",
    "pools": "huge page pools",
    "preference": "energy preference",
    "tuned": "tuned profile",
}
_MOST_FINDINGS = 4  # with their commands, so that all fits a screen of 24 lines


class DoctorView(Struct, frozen=True):
    """All that is shown."""

    findings: tuple[DoctorFinding, ...]
    rooms: tuple[PoolCapacity, ...]  # empty of a stored run
    tuned: Mapping[str, str]  # what `rater run --tuned` would set
    of: str  # "this machine", or "the machine of run 7"


TABLE = {
    DoctorFinding: JsonFields("check verdict seen why command settings{}"),
    PoolCapacity: JsonFields(
        "lgroup=node size_bytes total_pages=total free_pages=free more_now=ready more_at_most=most"
        " file=path setting"
    ),
}


def doctor_document(view: DoctorView) -> DoctorDocument:
    """Return all of it for JSON; `more_now` null: the kernel does not tell."""
    counts = Counter(finding.verdict for finding in view.findings)
    return {
        "of": view.of,
        "counts": {verdict.value: counts[verdict] for verdict in DoctorVerdict},
        "findings": to_json(view.findings, TABLE),
        "huge_pages": to_json(view.rooms, TABLE),
        "tuned": dict(view.tuned),
    }


def doctor_parts(document: DoctorDocument, *, detailed: bool) -> Iterator[Part]:
    """Yield what is bad, then what is to consider; `detailed`: all, each with its reason."""
    counts = [f"{many} {verdict}" for verdict, many in document["counts"].items() if many]
    yield f"{document['of']}: {', '.join(counts)}".replace("consider", "to consider (?)", 1)
    by_word = group_by_key(
        (finding_row["verdict"], finding_row) for finding_row in document["findings"]
    )
    bad, consider, good, unknown = (
        by_word.get(finding_row.value, []) for finding_row in DoctorVerdict
    )
    marks = {DoctorVerdict.BAD.value: "BAD", DoctorVerdict.CONSIDER.value: "?"}

    def title(row: Row) -> str:
        name: str = row["check"]
        return _TITLES.get(name, name)

    def about(row: Row) -> list[str]:
        why = [f"why: {row['why']}"] if detailed else []
        mend = row["command"] and row["verdict"] in marks
        return [row["seen"], *why, *([f"{COMMAND}{row['command']}"] if mend else [])]

    columns = (
        Field(
            heading="",
            value=lambda finding_row: marks.get(finding_row["verdict"], finding_row["verdict"]),
            form=TEXT,
        ),
        Field(heading="", value=title, form=TEXT),
        Field(heading="", value=about, wrap=True),
    )
    listed = [*bad, *consider, *(good + unknown if detailed else [])]
    most = len(listed) if detailed else _MOST_FINDINGS
    yield ViewTable(title="", rows=listed[:most], fields=columns)
    for label, rest in (
        ("also BAD", bad[most:]),
        ("also to consider", consider[max(0, most - len(bad)) :]),
        *((("good", good), ("cannot tell", unknown)) if not detailed else ()),
    ):
        yield f"{label}: {', '.join(map(title, rest))}" if rest else None
    yield from _pool_parts(document["huge_pages"], detailed=detailed)
    if document["tuned"]:
        words = ", ".join(f"{name}={value}" for name, value in document["tuned"].items())
        yield f"`rater run --tuned` sets for a run: {words}."
    if not detailed:
        yield "`rater doctor -v` shows every check and why it matters."


def _pool_parts(pools: Sequence[Row], *, detailed: bool) -> Iterator[Part]:
    """Yield how many huge pages can be had now, and with `detailed` the command for each pool."""

    def more(row: Row) -> int:
        pages: int = row["more_at_most"] if row["more_now"] is None else row["more_now"]
        return pages

    def size(row: Row) -> str:
        unit = next(
            (
                unit_bits
                for unit_bits in ((30, "GB"), (20, "MB"))
                if row["size_bytes"] >> unit_bits[0]
            ),
            (10, "kB"),
        )
        return f"{row['size_bytes'] >> unit[0]} {unit[1]}"

    if detailed:
        columns = (
            Field(heading="node", value="lgroup"),
            Field(heading="page", value=size),
            Field(heading="in the|pool", value="total_pages"),
            Field(heading="of them|free", value="free_pages"),
            Field(heading="more|now", value=lambda pool_row: pool_row["more_now"]),
            Field(heading="at|most", value="more_at_most"),
        )
        yield ViewTable(title="Huge pages available now", rows=pools, fields=columns)
        for pool_row in pools:
            yield Line(
                f"echo {pool_row['total_pages'] + more(pool_row)} > {pool_row['file']}", whole=True
            )
        gigabytes = next(
            (pool["size_bytes"] >> 30 for pool in pools if pool["more_now"] is None), None
        )
        if gigabytes:
            yield (
                f"The kernel does not count free pieces of {gigabytes} GB: write the number and "
                f"read it back, or boot with hugepagesz={gigabytes}G hugepages=N."
            )
        return
    texts = []
    for _, own in groupby(sorted(pools, key=lambda pool_row: pool_row["size_bytes"]), key=size):
        low, *_, high = sorted(own, key=more) * 2
        text = f"{size(low)} {'at most ' if low['more_now'] is None else ''}{more(low)}"
        if more(low) != more(high):
            text += f" (node {low['lgroup']}) to {more(high)} (node {high['lgroup']})"
        texts.append(text)
    yield f"huge pages available now on each NUMA node: {'; '.join(texts)}" if texts else None
