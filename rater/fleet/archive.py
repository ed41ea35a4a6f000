"""Databases that nodes published: admitted, kept whole in the archive."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any

from rater.errors import InputError, RaterError, RunError
from rater.files import folder, private_folder, replace_file
from rater.fleet.merge_source import SourceCopy, checked, copy_source, scratch_folder
from rater.record.run import RunStatus
from rater.settings.known import is_volatile
from rater.store.rows import insert_row
from rater.store.store import Store, open_store


def archived_file(connection: sqlite3.Connection, sha256: str) -> Path:
    """Return where an archived database is: in the folder NAME.archive beside the open one."""
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    return path.with_name(f"{path.name}.archive") / f"{sha256}.db"


def copy_archived(connection: sqlite3.Connection, sha256: str, into: Path) -> Path:
    """Copy an archived database into a folder, where it may be brought up to date.

    Raises `RunError` where it is gone or damaged.
    """
    file = archived_file(connection, sha256)
    packed = file.parent / sha256[:2] / f"{sha256}.db.xz"  # as archives of before had it
    if packed.exists() and not file.exists():
        command = f"xz -dc {quote(str(packed))} > {quote(str(file))}"
        raise RunError(f"{packed}: packed by an older rater; unpack it: {command}")
    way_out = "what its node published can be copied there again"
    try:
        copy, found = copy_source(file, into)
    except InputError as error:
        raise RunError(f"the archived database cannot be read: {error}; {way_out}") from error
    if found != sha256:
        raise RunError(f"{file}: the archived database is damaged (its SHA-256 differs); {way_out}")
    return copy


def _forget(connection: sqlite3.Connection, sha256: str) -> None:
    """Remove an archived database that no row refers to any more."""
    used = connection.execute("SELECT 1 FROM fleet_run WHERE sha256 = ? LIMIT 1", (sha256,))
    if used.fetchone() is None:
        archived_file(connection, sha256).unlink(missing_ok=True)


# -- Admit a published database: whole into the archive, what is compared into the index -----------

_MOST_ROWS = 100_000  # of the index, from one database: a suite has tens of benchmarks
_HEADS = """
SELECT
  run.id AS run, run.uuid, host.hostname, host.machine_id_hash, run.status, run.reason,
  run.started_at, run.suite, run.size, run.tune, run.mode, run.copies, host.cpu_model,
  host.microcode, host.memory_bytes,
  (SELECT value FROM setting WHERE run_id = run.id AND name = 'kernel.release') AS kernel,
  (SELECT count(*) FROM pu WHERE run_id = run.id) AS cpus,
  (SELECT count(*) FROM copy WHERE run_id = run.id) AS copy_runs,
  (SELECT count(*) FROM copy
   WHERE run_id = run.id AND (status <> 'ok' OR validity = 'invalid')) AS failed,
  (SELECT others_cost FROM divot_search WHERE run_id = run.id) AS others_cost
FROM run JOIN host ON host.id = run.host_id
ORDER BY run.id
"""
_BRACKETS = """
SELECT benchmark, iteration, bracket_s, median_copy_s FROM bracket_result
WHERE run_id = ? AND counted AND copies_per_hour IS NOT NULL ORDER BY iteration, phase
"""
# Where copies do not run side by side there are no brackets: the median of what ended well.
_MEDIANS = """
WITH placed AS (
  SELECT
    benchmark, iteration, elapsed_s,
    row_number() OVER (PARTITION BY benchmark, iteration ORDER BY elapsed_s, copy, step) AS place,
    count(*) OVER (PARTITION BY benchmark, iteration) AS them
  FROM copy_time
  WHERE run_id = ? AND counted AND status = 'ok' AND validity <> 'invalid'
)
SELECT benchmark, iteration, NULL, avg(elapsed_s) FROM placed
WHERE place IN ((them + 1) / 2, (them + 2) / 2) GROUP BY benchmark, iteration ORDER BY iteration
"""


class AdmitOutcome(StrEnum):
    """What became of a published database."""

    ADDED = "added"
    REPLACED = "replaced"  # what the same attempt had published before: less of it
    KNOWN = "known"  # it, or more of the same attempt, is there
    SET_ASIDE = "set aside"  # not a database to be trusted: nothing was stored


@dataclass(frozen=True, slots=True)
class Admission:
    """A published database, judged; of one that is known, what is there already."""

    outcome: AdmitOutcome
    reason: str | None = None  # why it was set aside, in words
    sha256: str | None = None
    status: RunStatus | None = None  # the least of its runs: complete where all of them are
    copy_runs: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class _Extract:
    """What the index takes from one database."""

    sha256: str
    size: int
    heads: tuple[dict[str, Any], ...]
    settings: tuple[str, ...]  # of each run, as JSON
    results: tuple[tuple[str, int, str | None, str], ...]  # benchmark, run, brackets, medians

    @property
    def status(self) -> RunStatus:
        found = [RunStatus(str(head["status"])) for head in self.heads]
        return next((it for it in found if it is not RunStatus.COMPLETE), RunStatus.COMPLETE)

    def total(self, column: str) -> int:
        return sum(int(head[column] or 0) for head in self.heads)

    @property
    def worth(self) -> tuple[bool, int]:
        """More of it is better; what is complete stays so."""
        return self.status is RunStatus.COMPLETE, self.total("copy_runs") - self.total("failed")


def admit_database(
    connection: sqlite3.Connection,
    published: Path,
    fleet: int,
    node: str,
    attempt: int,
    *,
    expected_sha256: str | None = None,
) -> Admission:
    """Take a published database into the archive and the index; the file itself is left as it was.

    As often as one likes: what is known changes nothing. Of several databases of the same attempt
    the one with more copy runs that ended well stays, and one that is complete always. Attempts
    stand beside each other; `index.latest` picks one. A file that is damaged, another program's, of
    a newer rater, no regular file, or (`expected_sha256`) not what its node published is set aside:
    the reason comes back and nothing is stored. All of it or nothing; inside a transaction of the
    caller's, or else its own. Raises `OSError` where the archive cannot be written, and
    `sqlite3.Error` of the database that it is added to.
    """
    with scratch_folder() as scratch:
        try:
            copy, sha256 = copy_source(published, scratch)
            _refuse_other(copy, sha256, expected_sha256)
        except InputError as error:
            return Admission(AdmitOutcome.SET_ASIDE, str(error))
        known = _known(connection, fleet, node, attempt)
        if known is not None and known.sha256 == sha256:
            return known
        content = copy.read_bytes()  # before it is brought up to date: as it is
        try:
            found = _extract(checked(published, copy, sha256), len(content))
        except (RaterError, sqlite3.Error, ValueError, TypeError) as error:
            return Admission(AdmitOutcome.SET_ASIDE, str(error).replace(str(copy), str(published)))
        return _store(connection, content, found, (fleet, node, attempt))


def _refuse_other(copy: Path, sha256: str, expected: str | None) -> None:
    if copy.with_name(f"{copy.name}-wal").exists():
        raise InputError("not published whole: it has a write-ahead log beside it")
    if expected not in (None, sha256):
        raise InputError("its SHA-256 is not what its node said when it published it")


def _store(
    connection: sqlite3.Connection,
    content: bytes,
    found: _Extract,
    key: tuple[int, str, int],
) -> Admission:
    with _transaction(connection):
        known = _known(connection, *key)  # again: another rater may have been faster
        if known is not None:
            worth = known.status is RunStatus.COMPLETE, known.copy_runs - known.failed
            if known.sha256 == found.sha256 or worth >= found.worth:
                return known
        file = archived_file(connection, found.sha256)
        private_folder(file.parent)
        replace_file(file, content, mode=0o600)  # before the rows that refer to it
        where = "fleet = ? AND host = ? AND attempt = ?"
        for table in ("result", "fleet_run"):
            connection.execute(f"DELETE FROM {table} WHERE {where}", key)
        fleet, node, attempt = key
        of_node: dict[str, Any] = {"fleet": fleet, "host": node, "attempt": attempt}
        for head, settings in zip(found.heads, found.settings, strict=True):
            number = _setting(connection, settings)
            more = {**of_node, "setting": number, "sha256": found.sha256, "bytes": found.size}
            insert_row(connection, "fleet_run", None, **head, **more)
        for benchmark, run, bracket_s, copy_s in found.results:
            more = {**of_node, "benchmark": benchmark, "run": run}
            insert_row(connection, "result", None, **more, bracket_s=bracket_s, copy_s=copy_s)
    # In a transaction of the caller's it may yet be wanted again.
    if known is not None and known.sha256 is not None and not connection.in_transaction:
        _forget(connection, known.sha256)
    return Admission(
        AdmitOutcome.ADDED if known is None else AdmitOutcome.REPLACED,
        sha256=found.sha256,
        status=found.status,
        copy_runs=found.total("copy_runs"),
        failed=found.total("failed"),
    )


def _known(connection: sqlite3.Connection, fleet: int, node: str, attempt: int) -> Admission | None:
    rows = connection.execute(
        "SELECT sha256, status, copy_runs, failed FROM fleet_run "
        "WHERE fleet = ? AND host = ? AND attempt = ? ORDER BY run",
        (fleet, node, attempt),
    ).fetchall()
    if not rows:
        return None
    statuses = [RunStatus(status) for _, status, *_ in rows]
    return Admission(
        AdmitOutcome.KNOWN,
        sha256=rows[0][0],
        status=next((it for it in statuses if it is not RunStatus.COMPLETE), RunStatus.COMPLETE),
        copy_runs=sum(row[2] for row in rows),
        failed=sum(row[3] for row in rows),
    )


def _extract(source: SourceCopy, size: int) -> _Extract:
    with open_store(source.path) as store:
        return _extracted(store, source.sha256, size)


def _extracted(store: Store, sha256: str, size: int) -> _Extract:
    with store.writing("reading it") as connection:
        for view in ("bracket_result", "copy_time"):
            text = (folder("db") / "views" / f"{view}.sql").read_text(encoding="utf-8")
            connection.execute(text.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))
        rows = connection.execute(_HEADS)
        columns = [column[0] for column in rows.description]
        heads = [dict(zip(columns, row, strict=True)) for row in rows.fetchmany(_MOST_ROWS)]
        if not heads:
            raise InputError("there is no run in it")
        results: list[tuple[str, int, str | None, str]] = []
        settings = []
        for head in heads:
            number = int(head["run"])
            if head["status"] == RunStatus.RUNNING:  # published: its process is gone
                head["status"] = RunStatus.INTERRUPTED
                head["reason"] = "rater did not live to end it"
            pairs = connection.execute(
                "SELECT name, value FROM setting WHERE run_id = ? ORDER BY name", (number,)
            )
            kept = {k: v for k, v in pairs.fetchmany(_MOST_ROWS) if not is_volatile(k)}
            settings.append(json.dumps(kept))
            results += _results(connection, number)
            if len(results) > _MOST_ROWS:
                raise InputError(f"it has more than {_MOST_ROWS} benchmarks")
    return _Extract(sha256, size, tuple(heads), tuple(settings), tuple(results))


def _results(
    connection: sqlite3.Connection, run: int
) -> Iterator[tuple[str, int, str | None, str]]:
    """Return benchmark, run, and its iterations' brackets and median copies in seconds as JSON."""
    for query in (_BRACKETS, _MEDIANS):
        times: dict[str, list[tuple[float | None, float]]] = {}
        for benchmark, iteration, bracket_s, median_s in connection.execute(query, (run,)):
            if not all(isfinite(it) and it > 0 for it in (bracket_s or median_s, median_s)):
                raise InputError(f"{benchmark}, iteration {iteration}: a time that is none")
            times.setdefault(str(benchmark), []).append((bracket_s, median_s))
        for benchmark, pairs in times.items():
            brackets = [_digits(it) for it, _ in pairs if it is not None]
            medians = json.dumps([_digits(it) for _, it in pairs])
            yield benchmark, run, json.dumps(brackets) if brackets else None, medians
        if times:
            return


def _digits(seconds: float) -> float:
    """Return a time with the digits that an index needs."""
    return float(f"{seconds:.7g}")


def _setting(connection: sqlite3.Connection, settings: str) -> int:
    digest = hashlib.sha256(settings.encode()).hexdigest()
    known = connection.execute(
        "SELECT id FROM fleet_setting WHERE sha256 = ?", (digest,)
    ).fetchone()
    if known is not None:
        return int(known[0])
    return insert_row(connection, "fleet_setting", None, sha256=digest, settings=settings)


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One transaction, or the caller's own."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        _roll_back(connection)


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")
