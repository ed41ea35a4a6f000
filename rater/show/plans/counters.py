"""What a machine can count, as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rater.plan.counters.processor import Processor
from rater.show.console.page import Page
from rater.text.to_json import to_json


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
    page: Page,
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
            lines += page.beside(f"  {row.group}", margin, sentences)
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


def _reasons(rows: Sequence[CounterRow], page: Page) -> Iterator[str]:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.why:
            reasons.setdefault((row.why, row.remedy), []).append(row.group)
    for (why, remedy), groups in reasons.items():
        yield from page.prose(f"{', '.join(groups)}: {why}")
        if remedy:
            yield from page.prose(f"    way out: {remedy}")


def _energy(sources: Sequence[EnergyRow], page: Page) -> Iterator[str]:
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
