"""The observations of a document as copy runs: places in phases and queues, no copy twice; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy
from rater.text.json_object import JsonObject

_PLACEMENTS = ("met", "not met", "not known")  # as `rater export` writes them
_STATUSES = {str(status): status for status in CopyStatus}


class _Cell(NamedTuple):
    """What makes one bracket where all copies run one benchmark."""

    tune: str | None
    benchmark: str
    iteration: int


def read_homogeneous(items: Sequence[JsonObject], copies: int) -> list[StoredCopy]:
    """Return the copies in a phase for each benchmark, iteration and tune."""
    phases: dict[_Cell, int] = {}
    first_at: dict[tuple[_Cell, int], int] = {}
    rows: list[StoredCopy] = []
    for position, item in enumerate(items):
        cell = _cell(item)
        row = _row(item, cell, phases.setdefault(cell, len(phases)), copies)
        first = first_at.setdefault((cell, row.copy), position)
        if first != position:
            item.wrong("copy", _once(cell, first))
        rows.append(row)
    return rows


def read_steady(items: Sequence[JsonObject], copies: int, rotated: bool) -> list[StoredCopy]:
    """Return the copies of steady mode: each runs again and again, `step` counts its runs.

    A phase is a benchmark and iteration (and tune); in rotated order an iteration. A
    document without `step` has each copy's runs in the order of their starts (else in
    the document's).
    """
    with_step = bool(items) and items[0].has("step")
    phases: dict[object, int] = {}
    first_at: dict[tuple[int, int, int], int] = {}
    rows: list[StoredCopy] = []
    for position, item in enumerate(items):
        cell = _cell(item)
        key = cell.iteration if rotated else cell
        row = _row(item, cell, phases.setdefault(key, len(phases)), copies)
        if item.has("step") != with_step:
            item.wrong("step", "a step in every observation or in none")
        if with_step:
            row = replace(row, step=item.whole("step"))
            first = first_at.setdefault((row.phase, row.copy, row.step), position)
            if first != position:
                item.wrong(
                    "step",
                    f"a step of its own for each run of copy {row.copy} "
                    f"(observations[{first}] has the same one)",
                )
        rows.append(row)
    if with_step:
        return rows
    by_phase: dict[int, list[StoredCopy]] = {}
    for row in rows:
        by_phase.setdefault(row.phase, []).append(row)
    return [row for members in by_phase.values() for row in _in_queues(members)]


def read_rotated(items: Sequence[JsonObject], copies: int) -> list[StoredCopy]:
    """Return the copies in one phase, each with its queue.

    `step` is the position in the queue. A document without it has each copy's
    benchmarks in the order of their starts (else in the document's).
    """
    with_step = bool(items) and items[0].has("step")
    first_at: dict[tuple[int, int], int] = {}
    starts: dict[tuple[_Cell, int], dict[int | None, int]] = {}
    rows: list[StoredCopy] = []
    for position, item in enumerate(items):
        cell = _cell(item)
        row = _row(item, cell, 0, copies)
        if item.has("step") != with_step:
            item.wrong("step", "a step in every observation or in none")
        if with_step:
            row = replace(row, step=item.whole("step"))
            first = first_at.setdefault((row.copy, row.step), position)
            if first != position:
                item.wrong(
                    "step",
                    f"a step of its own for each observation of copy {row.copy} "
                    f"(observations[{first}] has the same one)",
                )
        else:
            # A copy may run a benchmark several times in a round (where the increment shares a
            # factor with the ring's length), but then at different times.
            others = starts.setdefault((cell, row.copy), {})
            unclear = row.start_ns is None or None in others or row.start_ns in others
            if others and unclear:
                first = others.get(row.start_ns, next(iter(others.values())))
                item.wrong("copy", f"{_once(cell, first)}, or a step or start_s to tell them apart")
            others[row.start_ns] = position
        rows.append(row)
    return rows if with_step else _in_queues(rows)


def _cell(item: JsonObject) -> _Cell:
    return _Cell(item.text_or_none("tune"), item.text("benchmark"), item.whole("iteration"))


def _once(cell: _Cell, first: int) -> str:
    return (
        f"one observation of each copy of {cell.benchmark} in iteration {cell.iteration} "
        f"(observations[{first}] is of the same one)"
    )


def _row(item: JsonObject, cell: _Cell, phase: int, copies: int) -> StoredCopy:
    copy = item.whole("copy")
    if copy >= copies:
        item.wrong("copy", f"a whole number from 0 to {copies - 1} (run.copies is {copies})")
    start_ns = item.nanoseconds_or_none("start_s")
    elapsed_ns = item.nanoseconds("elapsed_s")  # 0 as well: of a log that counts whole seconds
    said = item.has("status")
    placement = item.one_of("placement", _PLACEMENTS)
    return StoredCopy(
        phase=phase,
        benchmark=cell.benchmark,
        tune=cell.tune,
        iteration=cell.iteration,
        copy=copy,
        step=0,
        counted=item.flag("counted", default=True),
        cpu=item.place("cpu"),
        core=item.place("core"),
        llc=None,
        node=item.place("node"),
        package=item.place("package"),
        mem_nodes=tuple(sorted(set(item.places("mem_nodes")))),
        planned_start_ns=None,
        start_ns=start_ns,
        finish_ns=None if start_ns is None else start_ns + elapsed_ns,
        elapsed_ns=elapsed_ns,
        status=item.choice("status", _STATUSES) if said else CopyStatus.OK,
        exit_code=None,
        signal=None,
        # Whether the document said how the copy ended: `ok` there is all the checking we know of.
        validity=Validity.NOT_CHECKED if said else Validity.UNCHECKED,
        validity_detail=None,
        cpu_ns=item.nanoseconds_or_none("cpu_s"),
        placement=placement,
        placement_note=item.text_or_none("placement_note") if placement else None,
    )


def _in_queues(rows: Sequence[StoredCopy]) -> list[StoredCopy]:
    queues: dict[int, list[StoredCopy]] = {}
    for row in rows:
        queues.setdefault(row.copy, []).append(row)
    for queue in queues.values():
        if all(row.start_ns is not None for row in queue):
            queue.sort(key=lambda row: row.start_ns or 0)
    return [replace(row, step=n) for queue in queues.values() for n, row in enumerate(queue)]
