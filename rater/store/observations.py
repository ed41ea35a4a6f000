"""The observations document of any runner, read, and its rows as copy runs; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import repeat
from typing import Any

from msgspec.structs import replace

from rater.plan.counter_tables import TABLE_TEXT
from rater.record.events import CopyEnded, MachineReadings, PhaseEnded
from rater.record.run import (
    MOST_COPIES,
    BenchmarkUsed,
    CopyStatus,
    Host,
    MachinePU,
    RunStatus,
    Validity,
)
from rater.record.stored import RunHead, StoredRun
from rater.store.observed_benchmarks import (
    CATEGORY,
    COUNTS,
    JOULES,
    LONGEST_S,
    METRICS,
    REFERENCE,
    MetricTable,
    note_unknown_keys,
    read_metric_table,
    take_metrics,
    used_benchmarks,
)
from rater.store.observed_places import PLACE, PLACES, ObservedPlaces, read_pus
from rater.store.rows import defaults_of
from rater.system.errors import InputError
from rater.text.documents import REQUIRED, Document, TableReader, json_document
from rater.text.kinds import (
    FLAG,
    LINE,
    ValueKind,
    WrongKindError,
    choice,
    describe_value,
    number,
    of_type,
    whole,
)
from rater.text.values import truncate_list

MOST_BENCHMARKS = 10_000  # a page on ten times as many takes more than a minute
# Share of a time that whole nanoseconds may cut off: a time below about a microsecond loses more.
_MOST_ROUNDED = 0.001
_SECONDS = number(LONGEST_S, unit="seconds")


def _nanoseconds(value: Any) -> int | None:
    if type(value) is float and 0 <= value <= LONGEST_S:
        return round(value * 1e9)  # nearly all of them: no more calls
    seconds = _SECONDS.convert(value)
    return None if seconds is None else round(seconds * 1e9)


def _elapsed_ns(value: Any) -> int | None:
    elapsed_ns = _nanoseconds(value)
    if elapsed_ns is not None and abs(elapsed_ns - value * 1e9) > _MOST_ROUNDED * value * 1e9:
        raise ValueError(
            f"{value:.3g} s loses its digits in whole nanoseconds: give the time of more "
            "operations (of 1000 for one)"
        )
    return elapsed_ns


NANOSECONDS = ValueKind(_SECONDS.expected, _nanoseconds, 0)  # of a number of seconds
_ELAPSED = ValueKind(_SECONDS.expected, _elapsed_ns, 0)
# As `rater export` writes them; others may mean something else by this key.
_PLACEMENT = ValueKind(
    "", lambda value: value if value in ("met", "not met", "not known") else "", ""
)
OBJECT: ValueKind[dict[str, Any]] = ValueKind(
    "an object", lambda value: value if type(value) is dict else None, {}
)


# Keys of an observation: the field, its kind, and the value of the field when the key is missing.
_KEYS: dict[str, tuple[str, ValueKind[Any], Any]] = {
    "benchmark": ("benchmark", LINE, REQUIRED),
    "tune": ("tune", LINE, None),
    "iteration": ("iteration", whole(), REQUIRED),
    "copy": ("copy", whole(), REQUIRED),
    "step": ("step", whole(), None),
    "counted": ("counted", FLAG, True),
    "cpu": ("cpu", PLACE, None),
    "core": ("core", PLACE, None),
    "llc": ("llc", PLACE, None),
    "node": ("node", PLACE, None),
    "package": ("package", PLACE, None),
    "mem_nodes": ("mem_nodes", PLACES, ()),
    "start_s": ("start_ns", NANOSECONDS, None),
    "elapsed_s": ("elapsed_ns", _ELAPSED, REQUIRED),  # 0 too: of a log of whole seconds
    "cpu_s": ("cpu_ns", NANOSECONDS, None),
    "status": ("status", choice(CopyStatus), None),
    "placement": ("placement", _PLACEMENT, None),
    "counts": ("counts", COUNTS, ()),
    "metrics": ("metrics", METRICS, {}),
    "joules": ("joules", JOULES, None),
    "category": ("category", CATEGORY, None),
    "reference_s": ("reference_s", REFERENCE, None),
    "mean_rss_bytes": ("mean_rss_bytes", whole(), None),
    "peak_rss_bytes": ("peak_rss_bytes", whole(), None),
}


class Observations:
    """The observations of a document, which notes what is wrong with them."""

    def __init__(
        self,
        document: Document,
        root: TableReader,
        *,
        copies: int,
        pus: tuple[MachinePU, ...],
        metrics: MetricTable,
    ) -> None:
        self._document = document
        self._metrics = metrics
        self.used: tuple[BenchmarkUsed, ...] = ()  # once the copy runs were read
        self._items = root.items("observations", OBJECT, "a list")
        self._given = set().union(*self._items)  # keys of any of them
        self._copies = copies
        self.places = ObservedPlaces(pus)
        if "observations" not in root:
            root.unexpected("a list", "observations")

    def copy_runs(self, *, rotated: bool, steady: bool) -> list[CopyEnded]:
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
        column["placement"] = [placement or None for placement in column["placement"]]
        column["placement_note"] = [
            self._reader(position).get("placement_note", LINE, None) if placement else None
            for position, placement in enumerate(column["placement"])
        ]
        counted = take_metrics(column, self._unexpected)
        self.used = used_benchmarks(column, self._metrics, counted, self._unexpected)
        queued = rotated or steady
        steps = column["step"]
        with_step = queued and bool(steps) and steps[0] is not None
        if queued:
            for position, step in enumerate(steps):
                if (step is not None) != with_step:
                    self._unexpected(position, "step", "a step in every observation or in none")
        self._document.raise_mistakes()
        self.places.complete(column)
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
        elif not steady and len({(row.phase, row.copy) for row in rows}) < len(rows):
            self._check_once(rows, by_start=rotated)
        self._document.raise_mistakes()
        return _in_queues(rows) if queued and not with_step else rows

    def _column(self, key: str, kind: ValueKind[Any], default: Any) -> list[Any]:
        if key not in self._given and default is not REQUIRED:
            return [default] * len(self._items)
        if key == "copy":
            kind = whole(0, self._copies - 1)
            kind = kind._replace(expected=f"{kind.expected} (run.copies is {self._copies})")
        convert, given = kind.convert, [item.get(key) for item in self._items]
        with suppress(WrongKindError, ValueError):
            values = [default if value is None else convert(value) for value in given]
            # A value that became None is wrong, unless None is the default of a missing one.
            expected_nones = given.count(None) if default is None else 0
            if REQUIRED not in values and values.count(None) == expected_nones:
                return values
        return [self._reader(position).get(key, kind, default) for position in range(len(given))]

    def _reader(self, position: int) -> TableReader:
        return TableReader(self._document, (f"observations[{position}]",), self._items[position])

    def unknown_keys(self) -> list[str]:
        """Return what observations have that nobody reads."""
        return sorted(self._given - _KEYS.keys() - {"placement_note"})

    def _unexpected(self, position: int, key: str, expected: str) -> None:
        self._reader(position).unexpected(expected, key)

    def _check_steps(self, rows: Sequence[CopyEnded]) -> None:
        first_at: dict[tuple[int, int, int], int] = {}
        for position, row in enumerate(rows):
            first = first_at.setdefault((row.phase, row.copy, row.step), position)
            if first != position:
                expected = f"a step of its own for each run of copy {row.copy}"
                already = f"(observations[{first}] has the same one)"
                self._unexpected(position, "step", f"{expected} {already}")

    def _check_once(self, rows: Sequence[CopyEnded], *, by_start: bool) -> None:
        """Check that no copy has two observations of a benchmark and iteration.

        In rotated order (`by_start`) it may run one several times in a round, where the
        increment shares a factor with the ring's length, but then at different times.
        """
        starts: dict[object, dict[int | None, int]] = {}
        for position, row in enumerate(rows):
            others = starts.setdefault((row.tune, row.benchmark, row.iteration, row.copy), {})
            unclear = row.start_ns is None or None in others or row.start_ns in others
            if others and (unclear or not by_start):
                first = others.get(row.start_ns, next(iter(others.values())))
                expected = (
                    f"one observation of each copy of {row.benchmark} in iteration {row.iteration} "
                    f"(observations[{first}] is of the same one)"
                )
                apart = ", or a step or start_s to tell them apart" if by_start else ""
                self._unexpected(position, "copy", expected + apart)
            others[row.start_ns] = position


def _copies(column: dict[str, list[Any]]) -> list[CopyEnded]:
    starts, statuses = column["start_ns"], column["status"]
    column |= {
        "finish_ns": [
            None if start_ns is None else start_ns + elapsed_ns
            for start_ns, elapsed_ns in zip(starts, column["elapsed_ns"], strict=True)
        ],
        # Whether the document said how the copy ended: `ok` there is all the checking we know of.
        "validity": [Validity.NOT_CHECKED if status else Validity.UNCHECKED for status in statuses],
        "status": [status or CopyStatus.OK for status in statuses],
    }
    absent = dict.fromkeys(CopyEnded.__struct_fields__) | defaults_of(CopyEnded)
    columns = (column.get(name, repeat(value)) for name, value in absent.items())
    return list(map(CopyEnded, *columns))


def _in_queues(rows: Sequence[CopyEnded]) -> list[CopyEnded]:
    queues: dict[tuple[int, int], list[CopyEnded]] = {}
    for row in rows:
        queues.setdefault((row.phase, row.copy), []).append(row)
    for queue in queues.values():
        if all(row.start_ns is not None for row in queue):
            queue.sort(key=lambda row: row.start_ns or 0)
    return [replace(row, step=step) for queue in queues.values() for step, row in enumerate(queue)]


# -- The observations document, the neutral form of per-copy times from any runner, read -----------
#
# Beside the keys of the contract, `run.tags` (texts by name), `run.energy` (joules by domain of
# phases), `mean_rss_bytes` and `peak_rss_bytes` of an observation, `run.stagger_ms`,
# `run.increment`, `run.status` and `run.reason` (how it ended; else its observations say that),
# an observation's `counted` (false: a discarded iteration) and, in rotated order, `step`
# (position in the copy's queue, from 0) are read where they stand. Mode `steady` has `run.order`,
# `run.warmup_s`, `run.window_s` and `run.windows` (one for each phase whose window closed); its
# `step` counts a copy's runs from 0. What was counted is in an observation's `counts`, the tables
# it was counted by in `run.counter_tables`. Others are left out, and a note names them.
# `rater.store.export` writes it.

VERSION = 1
EXPECTED = (
    "an observations document as `rater export RUN --format observations` writes it "
    "(raw files and logs of SPEC CPU: `rater spec import FILE`)"
)
_ORDERS = {
    "homogeneous": "homogeneous",
    "staggered": "homogeneous",
    "steady": "homogeneous",
    "rotated": "rotated",
    "heterogeneous": "rotated",
}
ENERGY = re.compile(r"energy_(.+)_uj", re.ASCII)  # names of readings
_DOMAIN = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_JOULES = number(LONGEST_S, unit="joules")
_DURATION = number(LONGEST_S, unit="seconds")
_OF_SOME_MODES = ("order", "windows")  # keys of `run` that other modes do not read
_ENDED = choice((RunStatus.COMPLETE, RunStatus.FAILED, RunStatus.INTERRUPTED))
_FORMAT = ValueKind(
    f"{VERSION}, the version of the format that this rater knows",
    lambda value: value if type(value) is int and value == VERSION else None,
    VERSION,
)


def read_observations(data: bytes, file: str) -> StoredRun:
    """Return the run of an observations document; `file` is what errors call it.

    Its number (`head.run`) is 0 until it is stored. Raises `InputError` naming every key that
    is wrong, such as `observations[3].elapsed_s`, and what was expected.
    """
    return read_document(json_document(data, file, EXPECTED))


def read_document(document: Document) -> StoredRun:
    """Return the run of parsed JSON that a user calls an observations document."""
    _refuse_foreign(document.data, str(document.path))
    return run_of_document(document)


def run_of_document(document: Document) -> StoredRun:
    """Return the run of a parsed observations document. Raises the same as `read_observations`."""
    root = document.root()
    root.get("rater", _FORMAT)
    document.raise_mistakes()  # of another version the rest may be anything
    run = root.table("run", required=True)
    head = _head(run)
    steady = head.mode == "steady"
    windows = _windows(run) if steady else {}
    tables: dict[str, str] = run.get("counter_tables", of_type(dict[str, str]), {})
    document.raise_mistakes()  # rows of a wrong head would only repeat its mistakes
    topology = root.table("topology")
    pus = read_pus(topology)
    observations = Observations(
        document, root, copies=head.copies, pus=pus, metrics=read_metric_table(run)
    )
    rows = observations.copy_runs(rotated=head.order == "rotated", steady=steady)
    brackets = _brackets(rows, head.order == "rotated", steady=steady, windows=windows)
    energy = _energy(run, brackets)
    document.raise_mistakes()
    iterations = {row.iteration: row.counted for row in rows}
    status, reason = _run_status(run, rows)
    document.raise_mistakes()
    head = replace(
        head,
        status=status,
        reason=reason,
        iterations=len(iterations),
        discard=sum(not counted for counted in iterations.values()),
        stagger_ms=_stagger_ms(run, head, brackets),
        benchmarks=tuple(dict.fromkeys(row.benchmark for row in rows)),
    )
    return StoredRun(
        head=head,
        host=Host.imported(head.hostname or "", hostname=head.hostname),
        settings=tuple((f"{TABLE_TEXT}{name}", text) for name, text in tables.items()),
        benchmarks=observations.used,
        pus=pus,
        brackets=brackets,
        copies=tuple(sorted(rows, key=lambda row: (row.phase, row.copy, row.step))),
        machine_readings=energy,
        notes=(
            *_note_missing_copies(head.copies, rows),
            *observations.places.notes(),
            *_unknown_keys((root, run, topology), observations),
        ),
    )


def _unknown_keys(tables: Sequence[TableReader], observations: Observations) -> list[str]:
    """Return what names the keys of a document that are left out."""
    notes = []
    for table in tables:
        unknown = [name for name in table.unread_names() if name not in _OF_SOME_MODES]
        place = ".".join(table.key) or "the document"
        notes += note_unknown_keys(place, unknown, table.read_names())
    return notes + note_unknown_keys("an observation", observations.unknown_keys(), list(_KEYS))


def _refuse_foreign(data: Any, file: str) -> None:
    if isinstance(data, dict) and ("observations" in data or data.keys() == {"rater"}):
        return
    kind = f"JSON of another program ({describe_value(data, 'an object')})"
    if isinstance(data, dict):
        kind = "other JSON of rater" if "rater" in data else "JSON of another program"
        kind += f" (with {truncate_list(list(data), 4)})" if data else " (empty)"
    raise InputError(f"{file}: this is {kind}, not {EXPECTED}")


type _Windows = dict[tuple[str | None, int], tuple[int, int]]


def _windows(run: TableReader) -> _Windows:
    windows: _Windows = {}
    for window in run.tables("windows"):
        start_ns, finish_ns = (
            window.get("start_s", NANOSECONDS),
            window.get("finish_s", NANOSECONDS),
        )
        if finish_ns <= start_ns:
            window.unexpected("a time after start_s", "finish_s")
        key = (window.get("benchmark", LINE, None), window.get("iteration", whole()))
        windows[key] = (start_ns, finish_ns)
    return windows


def _energy(run: TableReader, brackets: Sequence[PhaseEnded]) -> tuple[MachineReadings, ...]:
    phases = {(bracket.benchmark, bracket.iteration): bracket.phase for bracket in brackets}
    readings = []
    for reading in run.tables("energy"):
        key = (reading.get("benchmark", LINE, None), reading.get("iteration", whole(), None))
        elapsed_ns = reading.get("elapsed_s", NANOSECONDS)
        joules = reading.table("joules", required=True)
        names = joules.names(_DOMAIN, "expected names of domains, as package-0")
        energies = [(f"energy_{name}_uj", round(joules.get(name, _JOULES) * 1e6)) for name in names]
        if key not in phases:
            reading.unexpected(
                "a benchmark and iteration that there are observations of", "benchmark"
            )
        else:
            readings.append(MachineReadings(phases[key], (("elapsed_ns", elapsed_ns), *energies)))
    return tuple(readings)


def _note_missing_copies(copies: int, rows: Sequence[CopyEnded]) -> tuple[str, ...]:
    observed = len({row.copy for row in rows})
    if observed == copies:
        return ()
    have_text = (
        "none has" if not observed else "only 1 has" if observed == 1 else f"only {observed} have"
    )
    return (f"{copies} {'copy' if copies == 1 else 'copies'}, {have_text} observations",)


def _head(run: TableReader) -> RunHead:
    mode = run.get("mode", choice(_ORDERS))
    steady = mode == "steady"
    return RunHead(
        run=0,
        uuid=run.get("uuid", LINE),
        source="import",
        status=RunStatus.COMPLETE,
        reason=None,
        started_at=run.get("started_at", _TIME, None),
        elapsed_s=None,
        hostname=run.get("host", LINE, None),
        mode=mode,
        order=run.get("order", choice(("homogeneous", "rotated")), "homogeneous")
        if steady
        else _ORDERS[mode],
        copies=run.get("copies", whole(1, MOST_COPIES)),
        iterations=0,
        discard=0,
        stagger_ms=0.0,
        increment=run.get("increment", whole(), 1),
        warmup_s=run.get("warmup_s", _DURATION, None),
        window_s=run.get("window_s", _DURATION, None),
        tags=tuple(run.get("tags", of_type(dict[str, str]), {}).items()),
    )


def _run_status(run: TableReader, rows: Sequence[CopyEnded]) -> tuple[RunStatus, str | None]:
    status, reason = run.get("status", _ENDED, None), run.get("reason", LINE, None)
    observed = status_of_rows(rows)
    is_contradicted = status is RunStatus.COMPLETE and observed[0] is not RunStatus.COMPLETE
    if status is None or is_contradicted:
        return observed
    return status, reason


def status_of_rows(rows: Sequence[CopyEnded]) -> tuple[RunStatus, str | None]:
    """Return status and reason of a run of which nothing but its observations is known."""
    if not rows:
        return RunStatus.INTERRUPTED, "the document has no observations"
    failed = sum(row.status not in (CopyStatus.OK, CopyStatus.INTERRUPTED) for row in rows)
    stopped = sum(row.status is CopyStatus.INTERRUPTED for row in rows)
    if failed:
        return RunStatus.FAILED, f"{failed} of {len(rows)} copy runs failed"
    if stopped:
        return RunStatus.INTERRUPTED, f"{stopped} of {len(rows)} copy runs were interrupted"
    return RunStatus.COMPLETE, None


def _utc(text: Any) -> str | None:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None
    return moment.isoformat().replace("+00:00", "Z")


_TIME = ValueKind("null or a time such as 2026-11-20T12:00:00Z", _utc, "")


def _stagger_ms(run: TableReader, head: RunHead, brackets: Sequence[PhaseEnded]) -> float:
    given = run.get("stagger_ms", number(LONGEST_S, unit="milliseconds"), None)
    run.document.raise_mistakes()
    if given is not None:
        return given
    if head.mode != "staggered" or head.copies < 2 or not brackets:
        return 0.0
    first = brackets[0]
    if first.start_ns is None or first.last_start_ns is None:
        return 0.0
    return (first.last_start_ns - first.start_ns) / (head.copies - 1) / 1e6


def _brackets(
    rows: Sequence[CopyEnded], rotated: bool, *, steady: bool, windows: _Windows
) -> tuple[PhaseEnded, ...]:
    members: dict[int, list[CopyEnded]] = {}
    for row in rows:
        members.setdefault(row.phase, []).append(row)
    brackets = []
    for phase, phase_rows in sorted(members.items()):
        bracket = _bracket(phase, phase_rows, rotated)
        if steady:
            # In rotated order an iteration is a phase, where a plain rotated run is one as a whole.
            iteration = phase_rows[0].iteration
            start_ns, finish_ns = windows.get((bracket.benchmark, iteration), (None, None))
            bracket = replace(
                bracket,
                iteration=iteration,
                window_start_ns=start_ns,
                window_finish_ns=finish_ns,
            )
        brackets.append(bracket)
    return tuple(brackets)


def _bracket(phase: int, rows: Sequence[CopyEnded], rotated: bool) -> PhaseEnded:
    first_row = rows[0]
    starts, finishes = _times(rows)
    return PhaseEnded(
        phase=phase,
        benchmark=None if rotated else first_row.benchmark,
        iteration=None if rotated else first_row.iteration,
        tune=first_row.tune if len({row.tune for row in rows}) == 1 else None,
        counted=any(row.counted for row in rows),
        start_ns=min(starts.values(), default=None),
        finish_ns=max(finishes.values(), default=None),
        last_start_ns=max(starts.values(), default=None),
        first_finish_ns=min(finishes.values(), default=None),
        complete=all(row.status is not CopyStatus.INTERRUPTED for row in rows),
    )


def _times(rows: Sequence[CopyEnded]) -> tuple[dict[int, int], dict[int, int]]:
    starts: dict[int, int] = {}
    finishes: dict[int, int] = {}
    for row in rows:
        if row.start_ns is None or row.finish_ns is None:
            return {}, {}
        starts[row.copy] = min(row.start_ns, starts.get(row.copy, row.start_ns))
        finishes[row.copy] = max(row.finish_ns, finishes.get(row.copy, row.finish_ns))
    return starts, finishes
