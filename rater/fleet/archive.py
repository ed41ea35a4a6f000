"""Databases that nodes published: admitted, kept whole in the archive."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any

from rater.errors import InputError, RaterError, RunError
from rater.files import folder, private_folder
from rater.fleet.merge_source import checked, copy_source, scratch_folder
from rater.fleet.shared_folder import copy_whole
from rater.record.run import RunStatus
from rater.settings.known import is_volatile
from rater.store.open_database import OpenDatabase
from rater.store.rows import insert_row
from rater.store.store import open_store


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
    """A published database, judged."""

    outcome: AdmitOutcome
    reason: str | None = None  # why it was set aside, in words
    sha256: str | None = None  # of what is there now


@dataclass(frozen=True, slots=True)
class _Extract:
    """What the index takes from one database: rows, without whose they are."""

    runs: list[dict[str, Any]]  # of `fleet_run`, with settings as JSON
    results: list[dict[str, Any]]  # of `result`

    @property
    def worth(self) -> tuple[bool, int]:
        """More of it is better; what is complete stays so."""
        complete = all(run["status"] == RunStatus.COMPLETE for run in self.runs)
        return complete, sum(run["copy_runs"] - run["failed"] for run in self.runs)


def admit_database(
    store: OpenDatabase,
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
    stand beside each other; `record.latest` picks one. A file that is damaged, another program's,
    of a newer rater, no regular file, or (`expected_sha256`) not what its node published is set
    aside: the reason comes back and nothing is stored. All of it or nothing. Raises `OSError` where
    the archive cannot be written, and `StoreError` of the database that it is added to.
    """
    key: dict[str, Any] = {"fleet": fleet, "host": node, "attempt": attempt}
    with scratch_folder() as scratch:
        try:
            copy, sha256 = copy_source(published, scratch)
            if copy.with_name(f"{copy.name}-wal").exists():
                raise InputError("not published whole: it has a write-ahead log beside it")
            if expected_sha256 not in (None, sha256):
                raise InputError("its SHA-256 is not what its node said when it published it")
            with store.reading() as connection:
                if _known(connection, key)[0] == sha256:
                    return Admission(AdmitOutcome.KNOWN, sha256=sha256)
            whole = shutil.copyfile(copy, scratch / "whole.db")  # as it was published
            found = _extract(checked(published, copy, sha256).path)
        except (RaterError, sqlite3.Error, ValueError, TypeError) as error:
            reason = str(error).replace(str(scratch / "source.db"), str(published))
            return Admission(AdmitOutcome.SET_ASIDE, reason)
        try:
            with store.writing("collecting") as connection:
                before, worth = _known(connection, key)  # another rater may have been faster
                if before == sha256 or (before and worth >= found.worth):
                    return Admission(AdmitOutcome.KNOWN, sha256=before)
                file = archived_file(connection, sha256)
                private_folder(file.parent)
                with whole.open("rb") as opened:
                    copy_whole(opened, file)  # before the rows that refer to it
                for table in ("result", "fleet_run"):
                    connection.execute(f"DELETE FROM {table} WHERE {_OF}", key)
                of_file = {**key, "sha256": sha256, "bytes": whole.stat().st_size}
                for run in found.runs:
                    of_file["setting"] = _setting(connection, run["setting"])
                    insert_row(connection, "fleet_run", None, **run | of_file)
                for result in found.results:
                    insert_row(connection, "result", None, **result, **key)
        except sqlite3.IntegrityError as error:
            reason = f"{published}: its rows are not as rater makes them ({error})"
            return Admission(AdmitOutcome.SET_ASIDE, reason)
        with store.reading() as connection:
            used = connection.execute("SELECT 1 FROM fleet_run WHERE sha256 = ?", (before,))
            if before and used.fetchone() is None:
                archived_file(connection, before).unlink(missing_ok=True)
    return Admission(AdmitOutcome.REPLACED if before else AdmitOutcome.ADDED, sha256=sha256)


_OF = "fleet = :fleet AND host = :host AND attempt = :attempt"


def _known(
    connection: sqlite3.Connection, key: dict[str, Any]
) -> tuple[str | None, tuple[bool, int]]:
    """Return the checksum of what an attempt has in the archive, and what that is worth."""
    sha256, complete, well = connection.execute(
        f"SELECT max(sha256), min(status = '{RunStatus.COMPLETE}'), sum(copy_runs - failed) "
        f"FROM fleet_run WHERE {_OF}",
        key,
    ).fetchone()
    return sha256, (bool(complete), well or 0)


def _extract(database: Path) -> _Extract:
    with open_store(database) as store, store.writing("reading it") as connection:
        for view in ("bracket_result", "copy_time"):
            text = (folder("db") / "views" / f"{view}.sql").read_text(encoding="utf-8")
            connection.execute(text.replace("CREATE VIEW", "CREATE TEMP VIEW", 1))
        rows = connection.execute(_HEADS)
        columns = [column[0] for column in rows.description]
        found = _Extract([dict(zip(columns, row, strict=True)) for row in rows], [])
        if not found.runs:
            raise InputError("there is no run in it")
        for run in found.runs:
            if RunStatus(run["status"]) is RunStatus.RUNNING:  # published: its process is gone
                run["status"] = RunStatus.INTERRUPTED
                run["reason"] = "rater did not live to end it"
            pairs = connection.execute(
                "SELECT name, value FROM setting WHERE run_id = ? ORDER BY name", (run["run"],)
            )
            run["setting"] = json.dumps({k: v for k, v in pairs if not is_volatile(k)})
            found.results.extend(_results(connection, run["run"]))
            if len(found.results) > _MOST_ROWS:
                raise InputError(f"it has more than {_MOST_ROWS} benchmarks")
    return found


def _results(connection: sqlite3.Connection, run: int) -> Iterator[dict[str, Any]]:
    """Return rows of `result`: brackets and median copies of iterations in seconds, as JSON."""
    for query in (_BRACKETS, _MEDIANS):
        times: dict[str, list[tuple[float | None, float]]] = {}
        for benchmark, iteration, bracket_s, median_s in connection.execute(query, (run,)):
            if not all(isfinite(it) and it > 0 for it in (bracket_s or median_s, median_s)):
                raise InputError(f"{benchmark}, iteration {iteration}: a time that is none")
            times.setdefault(str(benchmark), []).append((bracket_s, median_s))
        for benchmark, pairs in times.items():
            brackets = [_digits(it) for it, _ in pairs if it is not None]
            yield {
                "benchmark": benchmark,
                "run": run,
                "bracket_s": json.dumps(brackets) if brackets else None,
                "copy_s": json.dumps([_digits(it) for _, it in pairs]),
            }
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
