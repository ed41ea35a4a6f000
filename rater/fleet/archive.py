"""Databases that nodes published: admitted, kept whole, indexed, and read back as runs."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.errors import InputError, RaterError, RunError
from rater.files import folder, private_folder, scratch_folder
from rater.fleet.merge import merge_database
from rater.fleet.merge_source import checked, copy_source
from rater.fleet.shared_folder import SharedFolder, copy_whole
from rater.record.run import RunStatus, is_fleet_word
from rater.settings.known import is_volatile
from rater.store.open_database import OpenDatabase
from rater.store.rows import Database
from rater.store.store import Store, open_store
from rater.text.secrets import command_text
from rater.text.values import count, group_by_key, truncate_list

# -- Runs of many hosts, as the index has them, and the words that name them -----------------------

_WORD = re.compile(
    r"fleet:(?P<fleet>[0-9]{1,9}|last)(/(?P<host>[^/\s]+)(/(?P<attempt>[0-9]{1,9}))?)?"
)


class FleetReference(Struct, frozen=True):
    """`fleet:3`, `fleet:last`, a host of it (`fleet:3/n017`), one attempt (`fleet:3/n017/2`)."""

    fleet: int | None  # None: the last one
    host: str | None
    attempt: int | None


def fleet_word(text: str) -> FleetReference:
    """Read a word; raises `InputError` with what is expected."""
    found = _WORD.fullmatch(text)
    if found is None:
        raise InputError(
            f"{text!r}: expected fleet:N or fleet:last, a host of it as fleet:N/HOST, "
            "or one attempt as fleet:N/HOST/ATTEMPT"
        )
    number, attempt = found["fleet"], found["attempt"]
    return FleetReference(
        None if number == "last" else int(number),
        found["host"],
        None if attempt is None else int(attempt),
    )


class IndexedRun(Struct, frozen=True):
    """A run in a database that a node published: a row of `fleet_run`."""

    fleet: int
    host: str  # the node, as the scheduler calls it
    attempt: int
    run: int  # its number in the published database
    uuid: str
    hostname: str | None
    machine_id_hash: str | None
    status: RunStatus
    reason: str | None
    started_at: str | None  # by the host's clock
    suite: str | None
    size: str | None
    tune: str | None
    mode: str
    copies: int
    cpu_model: str | None
    microcode: str | None
    memory_bytes: int | None
    kernel: str | None
    cpus: int  # that it could use
    setting: int  # number of its settings
    copy_runs: int
    failed: int
    sha256: str  # of the published database
    bytes: int
    others_cost: float | None = None  # of the score, what work of others cost; None: not known


class HostTimes(Struct, frozen=True):
    """Times of a host in one benchmark, of each counted iteration, in seconds."""

    host: str
    attempt: int
    run: int
    benchmark: str
    bracket_s: tuple[
        float, ...
    ]  # first start to last end of all copies; none: side by side no copies
    copy_s: tuple[float, ...]  # of the median copy


def latest(runs: Iterable[IndexedRun]) -> dict[str, tuple[IndexedRun, ...]]:
    """Return the attempt of each host that counts: the last complete one, else the last."""
    chosen: dict[str, tuple[IndexedRun, ...]] = {}
    for host, own in group_by_key((run.host, run) for run in runs).items():
        attempts = group_by_key((run.attempt, run) for run in own)
        best = max(
            attempts,
            key=lambda it: (all(r.status is RunStatus.COMPLETE for r in attempts[it]), it),
        )
        chosen[host] = tuple(attempts[best])
    return chosen


# -- The archive: whole databases by their SHA-256 -------------------------------------------------


def archived_file(connection: Database, sha256: str) -> Path:
    """Return where an archived database is: in the folder NAME.archive beside the open one."""
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    return path.with_name(f"{path.name}.archive") / f"{sha256}.db"


def copy_archived(connection: Database, sha256: str, into: Path) -> Path:
    """Copy an archived database into a folder, where it may be brought up to date.

    Raises `RunError` where it is gone or damaged.
    """
    file = archived_file(connection, sha256)
    packed = file.parent / sha256[:2] / f"{sha256}.db.xz"  # as archives of before had it
    if packed.exists() and not file.exists():
        command = f"xz -dc {shlex.quote(str(packed))} > {shlex.quote(str(file))}"
        raise RunError(f"{packed}: packed by an older rater; unpack it: {command}")
    way_out = "what its node published can be copied there again"
    try:
        copy, found, _ = copy_source(file, into)
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


class Admission(Struct, frozen=True):
    """A published database, judged."""

    outcome: AdmitOutcome
    reason: str | None = None  # why it was set aside, in words
    sha256: str | None = None  # of what is there now


class _Extract(Struct, frozen=True):
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
            copy, sha256, _ = copy_source(published, scratch)
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
                    connection.insert("fleet_run", None, **run | of_file)
                for result in found.results:
                    connection.insert("result", None, **result, **key)
        except sqlite3.IntegrityError as error:
            reason = f"{published}: its rows are not as rater makes them ({error})"
            return Admission(AdmitOutcome.SET_ASIDE, reason)
        with store.reading() as connection:
            used = connection.execute("SELECT 1 FROM fleet_run WHERE sha256 = ?", (before,))
            if before and used.fetchone() is None:
                archived_file(connection, before).unlink(missing_ok=True)
    return Admission(AdmitOutcome.REPLACED if before else AdmitOutcome.ADDED, sha256=sha256)


_OF = "fleet = :fleet AND host = :host AND attempt = :attempt"


def _known(connection: Database, key: dict[str, Any]) -> tuple[str | None, tuple[bool, int]]:
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


def _results(connection: Database, run: int) -> Iterator[dict[str, Any]]:
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


def _setting(connection: Database, settings: str) -> int:
    digest = hashlib.sha256(settings.encode()).hexdigest()
    known = connection.execute(
        "SELECT id FROM fleet_setting WHERE sha256 = ?", (digest,)
    ).fetchone()
    if known is not None:
        return int(known[0])
    return connection.insert("fleet_setting", None, sha256=digest, settings=settings)


# -- The index read: runs and times of hosts -------------------------------------------------------

_COLUMNS = ", ".join(IndexedRun.__struct_fields__)


def fleet_number(connection: Database, word: FleetReference) -> int:
    """Return the number of the fleet that a word means; raises `InputError` where it has no runs.

    Fleets that confirm another one are no `fleet:last`.
    """
    known: dict[int, int | None] = dict(
        connection.execute(
            "SELECT id, confirms FROM fleet UNION "
            "SELECT fleet, NULL FROM fleet_run WHERE fleet NOT IN (SELECT id FROM fleet) ORDER BY 1"
        )
    )
    asked = [number for number in known if word.fleet in (None, number)]
    own = asked if word.fleet else [it for it in asked if known[it] is None]
    if not own:
        there = truncate_list([*map(str, known)], 8)
        there = f"there are fleets {there}" if len(known) > 1 else f"the only fleet is {there}"
        what = f"fleet:{word.fleet or 'last'}: there is no such fleet; {there}"
        none = "no fleets stored yet; `rater fleet run --nodes NODES` makes one"
        raise InputError(what if known else none)
    number = own[-1]
    if not connection.execute("SELECT 1 FROM fleet_run WHERE fleet = ?", (number,)).fetchone():
        raise _nothing_collected(connection, number, None)
    return number


def _nothing_collected(connection: Database, fleet: int, host: str | None) -> InputError:
    """Return what to say of a fleet, or a host of it, of which no run is collected."""
    what = f"fleet:{fleet}" + ("" if host is None else f"/{host}")
    nodes = [
        node
        for (node,) in connection.execute(
            "SELECT node FROM fleet_node WHERE fleet_id = :fleet "
            "UNION SELECT host FROM fleet_run WHERE fleet = :fleet ORDER BY 1",
            {"fleet": fleet},
        )
    ]
    if host is not None and host not in nodes:
        return InputError(
            f"{what}: fleet {fleet} has no node {host}; it has {truncate_list(nodes)}"
        )
    row = connection.execute("SELECT folder FROM fleet WHERE id = ?", (fleet,)).fetchone()
    published = SharedFolder(Path(row[0])).published_nodes() if row else set()
    if host is not None:
        published &= {host}
    if published:
        told = "its run is" if host else f"runs of {count(len(published), 'node')} are"
        way = f"`rater fleet collect {fleet}` takes {'it' if host else 'them'} in"
        return InputError(f"{what}: {told} published and not collected yet; {way}")
    return InputError(
        f"{what}: {'this host has published no run' if host else 'no node has published a run'}; "
        f"`rater fleet status {fleet}` says why"
    )


def indexed_runs(
    connection: Database, fleet: int, host: str | None = None
) -> tuple[IndexedRun, ...]:
    """Return the runs of a fleet, of all attempts, by host."""
    where = "WHERE fleet = :fleet" + (" AND host = :host" if host is not None else "")
    query = f"SELECT {_COLUMNS} FROM fleet_run {where} ORDER BY host, attempt, run"
    return tuple(connection.read(IndexedRun, query, fleet=fleet, host=host))


def times_of(connection: Database, fleet: int) -> tuple[HostTimes, ...]:
    """Return the times of all hosts of a fleet, of all attempts."""
    return tuple(
        HostTimes(host, attempt, run, benchmark, _times(bracket_s), _times(copy_s))
        for host, attempt, run, benchmark, bracket_s, copy_s in connection.execute(
            "SELECT host, attempt, run, benchmark, bracket_s, copy_s FROM result WHERE fleet = ? "
            "ORDER BY benchmark, host, attempt, run",
            (fleet,),
        )
    )


def settings_of(connection: Database, numbers: Iterable[int]) -> dict[int, dict[str, str]]:
    """Return settings of machines by their number."""
    wanted = set(numbers)
    return {
        number: json.loads(settings)
        for number, settings in connection.execute("SELECT id, settings FROM fleet_setting")
        if number in wanted
    }


def find_archived(connection: Database, text: str) -> IndexedRun:
    """Return the archived run that `fleet:N/HOST` means: of several the last in its database.

    Raises `InputError` for a fleet without a host, and for one that is not there.
    """
    word = fleet_word(text)
    fleet = fleet_number(connection, word)
    if word.host is None:
        (hosts,) = connection.execute(
            "SELECT count(DISTINCT host) FROM fleet_run WHERE fleet = ?", (fleet,)
        ).fetchone()
        (first,) = connection.execute(
            "SELECT min(host) FROM fleet_run WHERE fleet = ?", (fleet,)
        ).fetchone()
        raise InputError(
            f"{text}: {hosts} hosts, and one run is wanted: name one, such as "
            f"fleet:{fleet}/{first}; `rater divots fleet:{fleet}` and "
            f"`rater report fleet:{fleet}` take all of them"
        )
    runs = indexed_runs(connection, fleet, word.host)
    if word.attempt is not None:
        runs = tuple(run for run in runs if run.attempt == word.attempt)
    if not runs and word.attempt is None:
        raise _nothing_collected(connection, fleet, word.host)
    if not runs:
        raise InputError(
            f"{text}: no run of this attempt is collected; `rater fleet status {fleet}` says why"
        )
    return latest(runs)[word.host][-1]


@contextmanager
def opened_run(connection: Database, run: IndexedRun) -> Iterator[Store]:
    """Open a copy of the archived database that an indexed run is in, brought up to date."""
    with (
        scratch_folder() as scratch,
        open_store(copy_archived(connection, run.sha256, scratch)) as store,
    ):
        store.is_copy = True
        yield store


def _times(text: str | None) -> tuple[float, ...]:
    return () if text is None else tuple(json.loads(text))


# -- Archived runs of fleets as a store of their own: `fleet:3/n017` wherever runs are only read ---


class ArchivedStore(Store):
    """Copies of archived runs in a database that goes when it is closed; their words find them."""

    is_copy = True

    def __init__(self, store: Store, words: Sequence[str]) -> None:
        """Copy what `words` mean; `store` has the index, and is not needed afterwards.

        Raises `InputError` for words that mean nothing, `RunError` for a damaged archive.
        """
        with ExitStack() as undo:
            self._scratch = undo.enter_context(scratch_folder())
            super().__init__(self._scratch / "archived.db")
            undo.callback(super().close)
            self.numbers: dict[str, int] = {}
            for word in dict.fromkeys(words):
                with store.reading() as connection:
                    run = find_archived(connection, word)
                    file = copy_archived(connection, run.sha256, self._scratch)
                merge_database(self, file)
                file.unlink()
                self.numbers[word] = super().find(run.uuid)
            self._undo = undo.pop_all()

    def find(self, spec: str) -> int:
        """Return the number of a word that was copied."""
        if spec not in self.numbers:
            raise InputError(
                f"{spec}: runs of a fleet's archive are compared with each other, not with those "
                "of this database; `rater import FILE` brings a host's published database in"
            )
        return self.numbers[spec]

    def find_all(self, spec: str) -> tuple[int, ...]:
        """Return the same as the only one."""
        return (self.find(spec),)

    def close(self) -> None:
        """Close the database and remove it."""
        self._undo.close()


def fleet_words(words: Sequence[str | None]) -> list[str]:
    """Return those words, and parts of lists `A,B`, that name archived runs."""
    parts = [part.strip() for word in words if word for part in word.split(",")]
    return [part for part in parts if is_fleet_word(part)]


# -- What histories go by --------------------------------------------------------------------------


def fleets_with(connection: Database, host: str | None = None) -> list[int]:
    """Return the fleets that have runs (of a host).

    Without those that confirm another one: their hosts were chosen because they are slow.
    """
    rows = connection.execute(
        "SELECT DISTINCT fleet FROM fleet_run LEFT JOIN fleet ON id = fleet "
        "WHERE confirms IS NULL AND (:host IS NULL OR host = :host) ORDER BY 1",
        {"host": host},
    )
    return [number for (number,) in rows]


def command_of(connection: Database, fleet: int) -> str | None:
    """Return the command line that the nodes of a fleet ran, None for suites."""
    row = connection.execute("SELECT command FROM fleet WHERE id = ?", (fleet,)).fetchone()
    return command_text(json.loads(row[0])) if row and row[0] else None


def known_names(connection: Database) -> tuple[list[str], list[str]]:
    """Return the hosts and the benchmarks that the index knows."""
    hosts = connection.execute("SELECT DISTINCT host FROM fleet_run ORDER BY 1")
    names = connection.execute("SELECT DISTINCT benchmark FROM result ORDER BY 1")
    return [host for (host,) in hosts], [name for (name,) in names]


def unknown_name(name: str, hosts: Sequence[str], benchmarks: Sequence[str]) -> InputError:
    """Return what to say of a name that is neither a host nor a benchmark."""
    return InputError(
        f"{name}: neither a host nor a benchmark of a fleet; benchmarks: "
        f"{truncate_list(benchmarks, 20)}; "
        f"hosts: {truncate_list(hosts, 8)}"
    )


def copy_runs(store: Store, words: Sequence[str]) -> tuple[Store, dict[str, int]]:
    """Return a store of copies of what `words` mean, and their numbers there."""
    archived = ArchivedStore(store, words)
    return archived, archived.numbers
