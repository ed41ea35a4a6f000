"""The database as the rest of rater sees it: runs in, out and away, divots, runs that go on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import batched
from pathlib import Path
from types import NoneType
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from rater.plan.sweep import ENVIRONMENT
from rater.record.events import CopyEnded, Event, Noted, PhaseEnded, RunEnded
from rater.record.run import BenchmarkUsed, MachinePU, Placement, RunStatus
from rater.record.stored import PlacementJudgement, RunHead, StoredRun, TimeRow
from rater.settings.known import COMMAND_LINE
from rater.store.insert import (
    JUDGED,
    append_events,
    insert_run,
    place_copies,
)
from rater.store.open_database import OpenDatabase
from rater.store.queries import named_query
from rater.store.read import (
    Recurring,
    RunFilter,
    describe_runs,
    find_all,
    find_matching,
    load_runs,
    refuse_running,
    run_heads,
)
from rater.store.rows import Database, refuse_drifted
from rater.system.errors import InputError
from rater.system.files import Sourced
from rater.system.process import ProcessId, this_process
from rater.text.secrets import Redactor, Secrets

# -- The database as the rest of rater sees it -----------------------------------------------------

_RUNS_AT_ONCE = 256  # that are read in one view of the database


def open_store(path: Path) -> Store:
    """Open the database at `path`, made with its folders when there is none."""
    return Store(path)


class Store(OpenDatabase):
    """The runs of an open database. Every method raises `StoreError` when SQLite fails.

    One thread at a time; it need not be the one that opened it.
    """

    is_copy = False  # of what is stored elsewhere, which goes when it is closed

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._secrets = Secrets()

    # -- writing --------------------------------------------------------------------------------

    def create_run(self, run: StoredRun, owner: ProcessId | None = None) -> int:
        """Store a run that begins now; return its number.

        `owner` is the process that makes the run (this one when not given): when it is
        gone and the run has no end, the run is called killed.
        """
        with self.writing("beginning a run") as database:
            return insert_run(database, run, owner=owner or this_process())

    def claim_run(
        self,
        run_id: int,
        *,
        resumed: int,
        torn: Sequence[int],
        placements: Iterable[Placement],
        pus: Iterable[MachinePU],
        notes: Iterable[str],
        owner: ProcessId | None = None,
    ) -> None:
        """Make a stored run this process's own: it runs again; all or nothing.

        `torn` are phases that run again as a whole, `placements` and `pus` where copies
        will be; `resumed` is how often the run had been taken up when the caller looked
        at it. Raises `InputError` when another rater has it, or has had it since then.
        """
        owner = owner or this_process()
        with self.writing("taking up a run") as database:
            refuse_drifted(database)
            _refuse_taken(database, run_id, resumed)
            database.executemany(_TEAR, ((run_id, phase) for phase in torn))
            owner_columns = (owner.pid, owner.pid_start, owner.boot_id)
            database.execute(_TAKE, (RunStatus.RUNNING, *owner_columns, run_id))
            # Where copies that ended were stays in their rows.
            place_copies(database, run_id, placements, pus)
            database.executemany(_NOTE, ((run_id, text) for text in notes))

    def close_run(
        self, run_id: int, *, resumed: int, status: RunStatus, reason: str | None, note: str
    ) -> None:
        """Say how a run ended of which nothing is missing; raises `InputError` as `claim_run`."""
        with self.writing("ending a run") as database:
            _refuse_taken(database, run_id, resumed)
            database.execute(_CLOSE, (status, reason, run_id))
            database.execute(_NOTE, (run_id, note))

    def judge_placements(self, run_id: int, judgements: Iterable[PlacementJudgement]) -> None:
        """Store with each copy run whether its placement was as planned."""
        with self.writing("judging placements") as database:
            database.executemany(
                JUDGED, ({**asdict(judgement), "run_id": run_id} for judgement in judgements)
            )

    def append(self, run_id: int, *events: Event) -> None:
        """Store events in one transaction, all or none; after an error they may be tried again.

        What ends at the same time shares a transaction: it is in the database sooner
        than one after the other, at a fraction of the cost.
        """
        is_edge = any(isinstance(event, PhaseEnded | RunEnded) for event in events)
        if is_edge and self._leave_if_lost():
            events = (Noted(f"{self.lost}"), *events)
        with self.writing("storing a result") as database:
            append_events(database, run_id, events)
        if is_edge:
            self._checkpoint()

    def add(self, stored: StoredRun, copies: Iterable[CopyEnded] | None = None) -> tuple[int, bool]:
        """Store an imported run; return its number, and False when its uuid was there already.

        `copies` instead of the run's own: of a run too large to hold them all at once.
        """
        with self.writing("importing a run") as database:
            stored_id = database.execute(
                "SELECT id FROM run WHERE uuid = ?", (stored.head.uuid,)
            ).fetchone()
            if stored_id:
                return stored_id[0], False
            # Named by hand: it is wanted back.
            database.execute("DELETE FROM removed WHERE uuid = ?", (stored.head.uuid,))
            return insert_run(database, stored, copies), True

    def keep_divots(self, run_id: int, search: DivotSearch, divots: Sequence[StoredDivot]) -> None:
        """Store the findings of a run, in the place of those of an earlier search."""
        with self.writing("storing divots") as database:
            database.execute("DELETE FROM divot_search WHERE run_id = ?", (run_id,))
            database.insert("divot_search", search, run_id=run_id)
            for position, divot in enumerate(divots):
                texts: dict[str, Any] = {"evidence": divot.evidence, "finding": divot.finding}
                database.insert("divot", divot.effect, run_id=run_id, position=position, **texts)

    # -- reading --------------------------------------------------------------------------------

    def runs(self, numbers: Iterable[int] | None = None) -> tuple[RunHead, ...]:
        """Return the heads of runs (None: of all, as they were stored), without secrets."""
        with self.reading() as database:
            heads = run_heads(database, None if numbers is None else [*numbers])
        return tuple(redact_head(head, Redactor(self._secrets)) for head in heads)

    def matching(self, run_filter: RunFilter, limit: int | None) -> tuple[tuple[int, ...], int]:
        """Return the numbers of the latest `limit` runs that match, and how many match in all."""
        with self.reading() as database:
            return find_matching(database, run_filter, limit)

    def load(self, run_id: int) -> StoredRun:
        """Return a run with all its rows, to be shown: without secrets; `InputError`: none."""
        return redact_run(self.load_asked(run_id).value, Redactor(self._secrets))

    def load_asked(self, run_id: int) -> Sourced[StoredRun]:
        """Return the same with its secrets, to be run again where nobody else can have asked."""
        with self.reading() as database:
            return self.sourced(next(load_runs(database, [run_id])))

    def load_all(
        self, numbers: Iterable[int], recurring: Recurring | None = None
    ) -> Iterator[StoredRun]:
        """Yield runs as `load` does; thousands of them take a fraction of its time and memory.

        `recurring`: what the runs of several calls have in common is held once.
        """
        recurring = Recurring() if recurring is None else recurring
        for some in batched(numbers, _RUNS_AT_ONCE):
            with self.reading() as database:
                runs = list(load_runs(database, some, recurring))
            for run in runs:
                yield redact_run(run, Redactor(self._secrets))

    def find(self, spec: str) -> int:
        """Return the number of the one run that RUN means.

        RUN is a number, a uuid's start, `last`, `last~1` or `tag:K=V`; `last` is the
        run stored most recently, whenever it started. Raises `InputError` when
        nothing, or more than one run, is meant.
        """
        with self.reading() as database:
            numbers = find_all(database, self.path, spec)
            if len(numbers) > 1:
                raise InputError(
                    f"{spec}: {len(numbers)} runs have this tag, and one is wanted: "
                    f"{describe_runs(database, numbers)}; take the number of one of them"
                )
        return numbers[0]

    def find_all(self, spec: str) -> tuple[int, ...]:
        """Return the same where several runs are allowed: `tag:K=V` means all that have the tag."""
        with self.reading() as database:
            return find_all(database, self.path, spec)

    def times(self, run_id: int) -> RunTimes:
        """Return the copy times of a run as narrow rows: all that the search for divots reads.

        A million rows take a few seconds and 112 MB, not objects.
        """
        with self.reading() as database:
            numbers: dict[tuple[str, str | None], int] = {}
            chunks = tuple(_chunks(database, run_id, numbers))
            cores = database.read_values(_CORES, int, int, run=run_id)
            return RunTimes(tuple(numbers), chunks, tuple(cores))

    def has_series(self, run_id: int) -> bool:
        """Tell whether any readings over time are stored of a run."""
        with self.reading() as database:
            query = "SELECT EXISTS (SELECT 1 FROM series WHERE run_id = :run)"
            [(is_there,)] = database.read_values(query, int, run=run_id)
            return bool(is_there)

    def divots(self, run_id: int) -> tuple[DivotSearch, tuple[str, ...]] | None:
        """Return how a run was searched for divots, and its findings as JSON.

        None: no search was stored, or copy runs were added since (a resumed run).
        """
        with self.reading() as database:
            for search in database.read_table(DivotSearch, "divot_search", run_id=run_id):
                if search.copy_runs == count_copy_runs(database, run_id):
                    query = "SELECT finding FROM divot WHERE run_id = :run ORDER BY position"
                    findings = database.read_values(query, str, run=run_id)
                    return search, tuple(text for (text,) in findings)
        return None

    def machines_of(self, run_ids: Sequence[int]) -> dict[int, dict[str, str]]:
        """Return settings of runs and `host.*`, by run and name, without secrets.

        `host.product`, `host.cpu_model` and `host.microcode` are those of the machine.
        """
        redactor = Redactor(self._secrets)
        with self.reading() as database:
            return {
                run: dict(
                    (
                        *_redact_settings(
                            redactor,
                            tuple(database.read_values(_SETTINGS, str, str, run=run)),
                        ),
                        *database.read_values(_HOST_FACTS, str, str, run=run),
                    )
                )
                for run in run_ids
            }

    def page_extents(self, used: BenchmarkUsed, *, split: bool) -> dict[str, int]:
        """Return how large a program's data was in its last run with `--pages`, by category.

        `split`: with large blocks apart. Empty: there was none.
        """
        with self.reading() as database:
            rows = database.execute(
                named_query("page_extents"),
                {
                    "command": used.command,
                    "binary": used.binary_sha256,
                    "inputs": used.inputs_sha256,
                    "split": int(split),
                },
            )
            return {category: extent for category, extent, _looks in rows}


# -- A run as it may be shown: secrets of its environment and its commands left out ----------------

_SETTINGS = "SELECT name, value FROM setting WHERE run_id = :run ORDER BY name"
_HOST_FACTS = """
SELECT name, value FROM (
  SELECT run.id AS run_id, 'host.product' AS name, product AS value
  FROM run JOIN host ON host.id = run.host_id
  UNION ALL SELECT run.id, 'host.cpu_model', cpu_model FROM run JOIN host ON host.id = run.host_id
  UNION ALL SELECT run.id, 'host.microcode', microcode FROM run JOIN host ON host.id = run.host_id
) WHERE run_id = :run AND value IS NOT NULL
"""
_INHERITED = "env."  # settings of this name are variables that copies inherited


def redact_head(head: RunHead, redactor: Redactor) -> RunHead:
    """Return the head of a run without secrets in what was called."""
    return replace(
        head,
        command_line=head.command_line and redactor.redact(head.command_line),
        wrap=head.wrap and redactor.redact(head.wrap),
        reason=head.reason and redactor.redact(head.reason),
        request=head.request
        and redactor.redact_once("request", head.request, partial(redact_request, redactor)),
        tags=tuple(
            (
                name,
                redactor.redact_value(name, value)
                if name.startswith(ENVIRONMENT)
                else redactor.redact(value),
            )
            for name, value in head.tags
        ),
    )


def redact_run(run: StoredRun, redactor: Redactor) -> StoredRun:
    """Return a run without secrets, which says of what values were left out."""
    shown = replace(
        run,
        head=redact_head(run.head, redactor),
        environment=tuple(
            (name, redactor.redact_value(name, value)) for name, value in run.environment
        ),
        settings=redactor.redact_once(
            "settings", run.settings, partial(_redact_settings, redactor)
        ),
        benchmarks=tuple(
            replace(used, command=redactor.redact(used.command)) for used in run.benchmarks
        ),
    )
    return replace(shown, redacted=tuple(redactor.hidden))


def _redact_settings(
    redactor: Redactor, settings: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """Return settings without secrets: of inherited variables and of the kernel's command line."""
    return tuple(
        (name, redactor.redact_value(name.removeprefix(_INHERITED), value))
        if name.startswith(_INHERITED)
        else (name, redactor.redact(value) if name == COMMAND_LINE else value)
        for name, value in settings
    )


def redact_request(redactor: Redactor, text: str) -> str:
    """Return a request without secrets; text that is no request of rater's may hold anything."""
    try:
        request = json.loads(text)
        pairs = request.pop("environment", [])
        request = redactor.redact_json(request)
        request["environment"] = [
            [name, redactor.redact_value(name, value)] for name, value in pairs
        ]
    except (ValueError, TypeError, AttributeError, RecursionError):
        return redactor.redact(text)
    return json.dumps(request)


# -- Runs and whole sweeps leave the database, with all that hangs on them -------------------------


def remove_runs(database: Database, run_ids: Iterable[int]) -> None:
    """Remove runs inside the caller's transaction; raises `InputError` while one still runs."""
    for run_id in run_ids:
        refuse_running(database, "run", run_id)  # of its rows none is read: damaged ones go as well
        note_removal(database, "run", run_id)
        database.execute("DELETE FROM run WHERE id = ?", (run_id,))
    database.execute("DELETE FROM host WHERE id NOT IN (SELECT host_id FROM run)")


def note_removal(database: Database, table: str, number: int) -> None:
    """Note that a run or sweep is to be removed: merging and importing leave it out from now on."""
    database.execute(
        f"INSERT OR IGNORE INTO removed (uuid, kind) SELECT uuid, '{table}' FROM {table} "
        "WHERE id = ?",
        (number,),
    )


# -- Findings of a run, in and out, and the narrow rows that the search for them reads -------------

_CHUNK = 65536


NOT_SEARCHED = 0  # as version: no more is known than what others cost


class DivotSearch(Struct, frozen=True, kw_only=True):
    """How a run was searched, which says how good its findings are."""

    version: int
    threshold_group: float
    threshold_copy: float
    copy_runs: int  # rows that there were then
    visible: dict[str, float]  # smallest effects this run could show
    failed: int  # rows left out, which did not end well
    others_cost: float | None = None  # of the score, what work of others cost; None: not recorded
    noise_cost: float | None = None  # the same of noise alone; None: there is no such score
    cpu_others_took: float | None = None  # share of the copies' time; None: elapsed time judges
    cpu_noise_cost: float | None = None  # of the score by CPU time, what noise alone cost
    not_by_cpu: str | None = None  # why CPU time does not judge a disturbed run


class StoredDivot(Struct, frozen=True):
    """One finding, as a row and as text."""

    effect: object  # whose attributes are columns of `divot`
    evidence: str  # one line
    finding: str  # all of it, as JSON


class RunTimes(Struct, frozen=True):
    """Copy times of a run for the search, a few numbers a row."""

    benchmarks: tuple[tuple[str, str | None], ...]  # name and tune, in the order of the rows
    chunks: tuple[Any, ...]  # float64 (n, 14): the columns of `TimeRow`, NaN where not known
    core_pus: tuple[tuple[int, int], ...]  # CPU, hardware threads of its core


_CORES = (
    "SELECT cpu, count(*) OVER (PARTITION BY core) FROM pu "
    "WHERE run_id = :run AND core IS NOT NULL ORDER BY cpu"
)


def _chunks(
    database: Database, run_id: int, numbers: dict[tuple[str, str | None], int]
) -> Iterator[Any]:
    import numpy as np  # noqa: PLC0415 - heavy; the search for divots, which reads this, loads it

    rows = database.execute(named_query("times"), {"run": run_id})
    name, tune, *others = (column[0] for column in rows.description)
    assert (name, tune, *others) == ("benchmark", "tune", *TimeRow._fields[1:])
    while chunk := rows.fetchmany(_CHUNK):
        names, tunes, *columns = zip(*chunk, strict=True)
        for other, column in zip(others, columns, strict=True):
            database.check_types(other, column, {int, float, NoneType})
        benchmark_numbers = [
            numbers.setdefault(benchmark, len(numbers))
            for benchmark in zip(names, tunes, strict=True)
        ]
        yield np.array([benchmark_numbers, *columns], dtype=np.float64).T


def count_copy_runs(database: Database, run_id: int) -> int:
    """Return how many copy runs are stored."""
    count: int = database.execute(
        "SELECT count(*) FROM copy WHERE run_id = ?", (run_id,)
    ).fetchone()[0]
    return count


class RunScore(Struct, frozen=True):
    """The one number of a run, as `run_score` keeps it."""

    value: float | None  # None: not every benchmark has a valid result
    unit: str | None
    copy_runs: int  # rows that there were then
    version: int  # of the formula


def save_score(database: Database, run_id: int, score: RunScore) -> None:
    """Store the number of a run, in the place of an earlier one."""
    database.insert("run_score", score, replace=True, run_id=run_id)


class ListedNumbers(Struct, frozen=True, kw_only=True):
    """Numbers of a run that lists show beside its head."""

    score: RunScore | None  # None: not worked out yet, or from other rows than it has
    divots: int | None  # None: the run was not searched


_LISTED = """
SELECT
  run.id, run_score.run_id IS NOT NULL, run_score.value, run_score.unit, run_score.copy_runs,
  CASE WHEN divot_search.run_id IS NOT NULL THEN (
    SELECT count(*) FROM divot WHERE divot.run_id = run.id AND NOT divot.explained
  ) END
FROM json_each(:runs) AS one
JOIN run ON run.id = one.value
LEFT JOIN run_score
  ON run_score.run_id = run.id AND run_score.version = :version
  AND run_score.copy_runs = (SELECT count(*) FROM copy WHERE copy.run_id = run.id)
LEFT JOIN divot_search
  ON divot_search.run_id = run.id AND divot_search.version <> :not_searched
"""


def load_listed(
    database: Database, numbers: Sequence[int], version: int
) -> dict[int, ListedNumbers]:
    """Return by number what is stored of runs for lists, scores of one version of the formula."""
    kinds = (int, int, float | None, str | None, int | None, int | None)
    rows = database.read_values(
        _LISTED, *kinds, runs=json.dumps(numbers), version=version, not_searched=NOT_SEARCHED
    )
    return {
        number: ListedNumbers(
            score=RunScore(value=value, unit=unit, copy_runs=copy_runs, version=version)
            if has_score
            else None,
            divots=divots,
        )
        for number, has_score, value, unit, copy_runs, divots in rows
    }


# -- A stored run that goes on: taken up by another process, or closed with the rows that it has ---

_STATE = "SELECT source, resumed FROM run WHERE id = ?"
_TEAR = "UPDATE bracket SET torn = 1 WHERE run_id = ? AND phase = ?"
_TAKE = (
    "UPDATE run SET status = ?, reason = NULL, resumed = resumed + 1, "
    "pid = ?, pid_start = ?, boot_id = ? WHERE id = ?"
)
_CLOSE = "UPDATE run SET status = ?, reason = ? WHERE id = ?"
_NOTE = "INSERT INTO note (run_id, kind, text) VALUES (?, 'note', ?)"


def _refuse_taken(database: Database, run_id: int, resumed: int) -> None:
    row = database.execute(_STATE, (run_id,)).fetchone()
    if row is None:
        raise InputError(f"there is no run {run_id} any more; `rater list` shows what there is")
    refuse_running(database, "run", run_id)
    if row != ("run", resumed):
        raise InputError(f"run {run_id} was taken up by another rater meanwhile; try again")
