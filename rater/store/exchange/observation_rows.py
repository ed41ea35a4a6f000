"""The observations of a document as copy runs: places in phases and queues, no copy twice; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, replace
from itertools import repeat
from typing import Any

from rater.errors import InputError
from rater.record.events import EventCount
from rater.record.status import CopyStatus, Validity
from rater.record.stored import StoredCopy
from rater.text.cpuset import MAX_NUMBER
from rater.text.document import REQUIRED, Document, TableReader
from rater.text.kinds import (
    FLAG,
    LINE,
    UnexpectedError,
    ValueKind,
    choice,
    number,
    of_type,
    whole,
)

MOST_BENCHMARKS = 10_000  # a page on ten times as many takes more than a minute
LONGEST_S = 1e9  # about 30 years; keeps start + elapsed in 64-bit nanoseconds
_SECONDS = number(LONGEST_S, unit="seconds")

PLACE = whole(0, MAX_NUMBER)  # of a CPU, core, node or package


def _nanoseconds(value: Any) -> int | None:
    if type(value) is float and 0 <= value <= LONGEST_S:
        return round(value * 1e9)  # nearly all of them: no more calls
    seconds = _SECONDS.convert(value)
    return None if seconds is None else round(seconds * 1e9)


def _places(value: Any) -> tuple[int, ...] | None:
    known = type(value) is list and all(type(it) is int and 0 <= it <= MAX_NUMBER for it in value)
    return tuple(sorted(set(value))) if known else None


NANOSECONDS = ValueKind(_SECONDS.expected, _nanoseconds, 0)  # of a number of seconds
PLACES: ValueKind[tuple[int, ...]] = ValueKind(
    f"a list of whole numbers from 0 to {MAX_NUMBER}", _places, ()
)
# As `rater export` writes them; others may mean something else by this key.
_PLACEMENT = ValueKind(
    "", lambda value: value if value in ("met", "not met", "not known") else "", ""
)
OBJECT: ValueKind[dict[str, Any]] = ValueKind(
    "an object", lambda value: value if type(value) is dict else None, {}
)


def _counts(value: Any) -> tuple[EventCount, ...] | None:
    rows: tuple[EventCount, ...] | None = _COUNT_ROWS.convert(value)
    numbers = [n for it in rows or () for n in (it.value or 0, it.enabled_ns, it.running_ns)]
    names = [name for it in rows or () for name in (it.group_name, it.event)]
    known = all(0 <= n <= _LARGEST for n in numbers) and all(map(LINE.convert, names))
    return rows if known else None


_LARGEST = 2**63 - 1  # that the database holds
_COUNT_ROWS = of_type(tuple[EventCount, ...])
_COUNTS: ValueKind[tuple[EventCount, ...]] = ValueKind(
    "a list of counts as `rater export` writes them", _counts, ()
)

# Keys of an observation: the field, its kind, and what it is where the key is not there.
_KEYS: dict[str, tuple[str, ValueKind[Any], Any]] = {
    "benchmark": ("benchmark", LINE, REQUIRED),
    "tune": ("tune", LINE, None),
    "iteration": ("iteration", whole(), REQUIRED),
    "copy": ("copy", whole(), REQUIRED),
    "step": ("step", whole(), None),
    "counted": ("counted", FLAG, True),
    "cpu": ("cpu", PLACE, None),
    "core": ("core", PLACE, None),
    "node": ("node", PLACE, None),
    "package": ("package", PLACE, None),
    "mem_nodes": ("mem_nodes", PLACES, ()),
    "start_s": ("start_ns", NANOSECONDS, None),
    "elapsed_s": ("elapsed_ns", NANOSECONDS, REQUIRED),  # 0 too: of a log of whole seconds
    "cpu_s": ("cpu_ns", NANOSECONDS, None),
    "status": ("status", choice(CopyStatus), None),
    "placement": ("placement", _PLACEMENT, None),
    "counts": ("counts", _COUNTS, ()),
    "mean_rss_bytes": ("mean_rss_bytes", whole(), None),
    "peak_rss_bytes": ("peak_rss_bytes", whole(), None),
}


class Observations:
    """The observations of a document, which notes what is wrong with them."""

    def __init__(self, document: Document, root: TableReader, copies: int) -> None:
        self._document = document
        self._items = root.items("observations", OBJECT, "a list")
        self._copies = copies
        if "observations" not in root:
            root.unexpected("a list", "observations")

    def rows(self, *, rotated: bool, steady: bool) -> list[StoredCopy]:
        """Return the copies, each in its phase and queue. Raises `MistakesError`.

        All copies run one benchmark: a phase for each benchmark, iteration and tune.
        Rotated order is one phase (in steady mode one for each iteration), and there
        and in steady mode `step` is the position in the copy's queue; without it a copy
        has its runs in the order of their starts (else in the document's).
        """
        column = {
            field: self._column(key, kind, default) for key, (field, kind, default) in _KEYS.items()
        }
        benchmarks = len(set(column["benchmark"]))
        if benchmarks > MOST_BENCHMARKS:
            self._document.raise_mistakes()
            raise InputError(
                f"{self._document.path}: {benchmarks} benchmarks, expected at most "
                f"{MOST_BENCHMARKS} in a run: leave some out, or make several runs of them"
            )
        column["placement"] = [it or None for it in column["placement"]]
        column["placement_note"] = [
            self._reader(position).get("placement_note", LINE, None) if it else None
            for position, it in enumerate(column["placement"])
        ]
        queued = rotated or steady
        steps = column["step"]
        with_step = queued and bool(steps) and steps[0] is not None
        if queued:
            for position, step in enumerate(steps):
                if with_step is (step is None):
                    self._wrong(position, "step", "a step in every observation or in none")
        self._document.raise_mistakes()
        if not with_step:
            column["step"] = [0] * len(steps)
        cells: Iterable[object] = zip(
            column["tune"], column["benchmark"], column["iteration"], strict=True
        )
        if rotated:
            cells = column["iteration"] if steady else [None] * len(steps)
        phases: dict[object, int] = {}
        column["phase"] = [phases.setdefault(cell, len(phases)) for cell in cells]
        rows = _copies(column)
        if with_step:
            self._check_steps(rows)
        elif not steady:
            self._check_once(rows, by_start=rotated)
        self._document.raise_mistakes()
        return _in_queues(rows) if queued and not with_step else rows

    def _column(self, key: str, kind: ValueKind[Any], default: Any) -> list[Any]:
        """Return the value of a key in every observation: a key after the other is fast."""
        if key == "copy":
            kind = whole(0, self._copies - 1)
            kind = replace(kind, expected=f"{kind.expected} (run.copies is {self._copies})")
        convert, given = kind.convert, [item.get(key) for item in self._items]
        with suppress(UnexpectedError, ValueError):
            found = [default if value is None else convert(value) for value in given]
            if REQUIRED not in found and found.count(None) == (
                given.count(None) if default is None else 0
            ):
                return found
        return [self._reader(n).get(key, kind, default) for n in range(len(given))]

    def _reader(self, position: int) -> TableReader:
        return TableReader(self._document, (f"observations[{position}]",), self._items[position])

    def _wrong(self, position: int, key: str, expected: str) -> None:
        self._reader(position).unexpected(expected, key)

    def _check_steps(self, rows: Sequence[StoredCopy]) -> None:
        first_at: dict[tuple[int, int, int], int] = {}
        for position, it in enumerate(rows):
            first = first_at.setdefault((it.phase, it.copy, it.step), position)
            if first != position:
                expected = f"a step of its own for each run of copy {it.copy}"
                same = f"(observations[{first}] has the same one)"
                self._wrong(position, "step", f"{expected} {same}")

    def _check_once(self, rows: Sequence[StoredCopy], *, by_start: bool) -> None:
        """Check that no copy has two observations of a benchmark and iteration.

        In rotated order (`by_start`) it may run one several times in a round, where the
        increment shares a factor with the ring's length, but then at different times.
        """
        starts: dict[object, dict[int | None, int]] = {}
        for position, it in enumerate(rows):
            others = starts.setdefault((it.tune, it.benchmark, it.iteration, it.copy), {})
            unclear = it.start_ns is None or None in others or it.start_ns in others
            if others and (unclear or not by_start):
                first = others.get(it.start_ns, next(iter(others.values())))
                expected = (
                    f"one observation of each copy of {it.benchmark} in iteration {it.iteration} "
                    f"(observations[{first}] is of the same one)"
                )
                apart = ", or a step or start_s to tell them apart" if by_start else ""
                self._wrong(position, "copy", expected + apart)
            others[it.start_ns] = position


def _copies(column: dict[str, list[Any]]) -> list[StoredCopy]:
    """Return the rows of columns called as the fields; others are not known."""
    starts, statuses = column["start_ns"], column["status"]
    column |= {
        "finish_ns": [
            None if start_ns is None else start_ns + elapsed_ns
            for start_ns, elapsed_ns in zip(starts, column["elapsed_ns"], strict=True)
        ],
        # Whether the document said how the copy ended: `ok` there is all the checking we know of.
        "validity": [Validity.NOT_CHECKED if it else Validity.UNCHECKED for it in statuses],
        "status": [it or CopyStatus.OK for it in statuses],
    }
    every = (
        column[it.name]
        if it.name in column
        else repeat(None if it.default is MISSING else it.default)
        for it in fields(StoredCopy)
    )
    return list(map(StoredCopy, *every))


def _in_queues(rows: Sequence[StoredCopy]) -> list[StoredCopy]:
    """Return the rows of a phase and copy with their places in its queue."""
    queues: dict[tuple[int, int], list[StoredCopy]] = {}
    for row in rows:
        queues.setdefault((row.phase, row.copy), []).append(row)
    for queue in queues.values():
        if all(row.start_ns is not None for row in queue):
            queue.sort(key=lambda row: row.start_ns or 0)
    return [replace(row, step=n) for queue in queues.values() for n, row in enumerate(queue)]
