"""Databases that nodes published: a folder of files, their index, and runs read back from them."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from rater.fleet.foreign import (
    ForeignCopy,
    ForeignDatabase,
    SourceRefusedError,
    copy_foreign,
    taken,
)
from rater.fleet.merge import merge_taken
from rater.fleet.shared_folder import SharedFolder, copy_whole
from rater.record.run import RunStatus, is_fleet_word
from rater.settings.known import is_volatile
from rater.store.open_database import OpenDatabase
from rater.store.rows import Database
from rater.store.store import Store, open_store
from rater.system.errors import InputError, RunError
from rater.system.files import make_private_folder, scratch_folder
from rater.text.values import count, group_by_key, truncate_list

# -- Runs of many hosts, as the index has them, and the words that name them -----------------------

_WORD = re.compile(
    r"fleet:(?P<fleet>[0-9]{1,9}|last)(/(?P<host>[^/\s]+)(/(?P<attempt>[0-9]{1,9}))?)?"
)


class FleetReference(NamedTuple):
    """`fleet:3`, `fleet:last`, a host of it (`fleet:3/n017`), one attempt (`fleet:3/n017/2`)."""

    fleet: int | None  # None: the last one
    host: str | None
    attempt: int | None


def fleet_word(text: str) -> FleetReference:
    """Read a word; raises `InputError` with what is expected."""
    match = _WORD.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r}: expected fleet:N or fleet:last, a host of it as fleet:N/HOST, "
            "or one attempt as fleet:N/HOST/ATTEMPT"
        )
    number, attempt = match["fleet"], match["attempt"]
    return FleetReference(
        None if number == "last" else int(number), match["host"], int(attempt) if attempt else None
    )


class IndexedRun(Struct, frozen=True, kw_only=True):
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
    cpus: int  # that it could use; 0: not known, as of imported times
    setting: int  # number of its settings
    copy_runs: int
    failed: int
    sha256: str  # of the published database
    bytes: int
    others_cost: float | None = None  # of the score, what work of others cost; None: not known

    @property
    def workload_text(self) -> str:
        """Suite, size, label and mode."""
        parts = (self.suite or "a command", self.size, self.tune, self.mode)
        return ", ".join(filter(None, parts))

    @property
    def cpus_text(self) -> str | None:
        """What people read of the CPUs that it could use."""
        return count(self.cpus, "CPU") if self.cpus else None

    @property
    def memory_text(self) -> str | None:
        """What people read of its memory."""
        return None if self.memory_bytes is None else f"{self.memory_bytes / 2**30:.0f} GiB"


def latest(runs: Iterable[IndexedRun]) -> dict[str, tuple[IndexedRun, ...]]:
    """Return the attempt of each host that counts: the last complete one, else the last."""
    chosen: dict[str, tuple[IndexedRun, ...]] = {}
    for host, host_runs in group_by_key((run.host, run) for run in runs).items():
        attempts = group_by_key((run.attempt, run) for run in host_runs)
        best = max(
            attempts,
            key=lambda attempt: (
                all(run.status is RunStatus.COMPLETE for run in attempts[attempt]),
                attempt,
            ),
        )
        chosen[host] = tuple(attempts[best])
    return chosen


# -- The archive: whole databases by their SHA-256, in the folder NAME.archive beside ours ---------


def archived_file(connection: Database, sha256: str) -> Path:
    """Return where an archived database is."""
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    return path.with_name(f"{path.name}.archive") / f"{sha256}.db"


def _taken_from_archive(connection: Database, sha256: str, scratch: Path) -> ForeignDatabase:
    """Return what is archived, through the door. Raises `RunError` where it is gone or damaged."""
    file = archived_file(connection, sha256)
    way_out = "what its node published can be copied there again"
    try:
        copy = copy_foreign(file, scratch)
        if copy.sha256 == sha256:
            return taken(copy)
    except InputError as error:
        raise RunError(f"the archived database cannot be read: {error}; {way_out}") from error
    raise RunError(f"{file}: the archived database is damaged (its SHA-256 differs); {way_out}")


# -- Admit a published database: whole into the archive, what is compared into the index -----------

_RUNS = """
SELECT
  :fleet AS fleet, :host AS host, :attempt AS attempt, run.id AS run, run.uuid, host.hostname,
  host.machine_id_hash, run.status, run.reason,
  run.started_at, run.suite, run.size, run.tune, run.mode, run.copies, host.cpu_model,
  host.microcode, host.memory_bytes,
  (SELECT value FROM setting WHERE run_id = run.id AND name = 'kernel.release') AS kernel,
  (SELECT count(*) FROM pu WHERE run_id = run.id) AS cpus, 0 AS setting,
  (SELECT count(*) FROM copy WHERE run_id = run.id) AS copy_runs,
  (SELECT count(*) FROM copy
   WHERE run_id = run.id AND (status <> 'ok' OR validity = 'invalid')) AS failed,
  :sha256 AS sha256, :bytes AS bytes,
  (SELECT others_cost FROM divot_search WHERE run_id = run.id) AS others_cost
FROM run JOIN host ON host.id = run.host_id
ORDER BY run.id
"""
# Where copies do not run side by side there are no brackets: the median of what ended well.
_TIMES = (
    """
SELECT benchmark, bracket_s, median_copy_s FROM bracket_result
WHERE run_id = ? AND counted AND copies_per_hour IS NOT NULL AND bracket_s > 0
AND median_copy_s > 0 ORDER BY iteration, phase
""",
    """
WITH placed AS (
  SELECT
    benchmark, iteration, elapsed_s,
    row_number() OVER (PARTITION BY benchmark, iteration ORDER BY elapsed_s, copy, step) AS place,
    count(*) OVER (PARTITION BY benchmark, iteration) AS them
  FROM copy_time
  WHERE run_id = ? AND counted AND status = 'ok' AND validity <> 'invalid' AND elapsed_s > 0
)
SELECT benchmark, NULL, avg(elapsed_s) FROM placed
WHERE place IN ((them + 1) / 2, (them + 2) / 2) GROUP BY benchmark, iteration ORDER BY iteration
""",
)


def admit_database(
    store: OpenDatabase,
    published: Path,
    fleet: int,
    host: str,
    attempt: int,
    *,
    sha256: str | None = None,
) -> bool:
    """Take a published database into the archive and the index; return whether it is new there.

    The file itself is left as it was; what the same attempt had published before goes. All of it or
    nothing. `sha256`: what its node says of it. Raises `SourceRefusedError` for what is set aside:
    a file that is damaged, another program's, of a newer rater, or no regular file; `OSError` where
    the archive cannot be written, and `StoreError` of the database that it is added to.
    """
    key: dict[str, Any] = {"fleet": fleet, "host": host, "attempt": attempt}
    condition = " AND ".join(f"{name} = :{name}" for name in key)
    known_digest = f"SELECT max(sha256) FROM fleet_run WHERE {condition}"
    with scratch_folder() as scratch:
        copy = copy_foreign(published, scratch)
        _check_whole(published, copy, sha256)
        with store.reading() as connection:
            if connection.execute(known_digest, key).fetchone()[0] == copy.sha256:
                return False
        whole = shutil.copyfile(copy.path, scratch / "whole.db")  # as it was published
        rows = read_index(taken(copy).path, key, copy.sha256, whole.stat().st_size)
        if not rows:
            raise SourceRefusedError(f"{published}: there is no run in it")
        with store.writing("collecting") as connection:
            before = connection.execute(known_digest, key).fetchone()[0]
            archive_whole(connection, whole, copy.sha256)  # before the rows that refer to it
            for table in ("result", "fleet_run"):
                connection.execute(f"DELETE FROM {table} WHERE {condition}", key)
            for row in rows:
                insert_row(connection, row)
        remove_unused(store, before)
    return True


class IndexRow(Struct, frozen=True, kw_only=True):
    """What the index has of a run in a published database."""

    run: IndexedRun
    fingerprint: str  # of the kind of machine
    request: str | None  # what the user asked for, as JSON
    settings: str  # as JSON
    times: list[tuple[str, str | None, str]]  # benchmark, brackets and median copies


def read_index(database: Path, key: Mapping[str, Any], sha256: str, size: int) -> list[IndexRow]:
    """Return what the index gets of a database that came through the door.

    `key` has the fleet, host and attempt of its runs; `sha256` and `size` (bytes) are of the file
    in the archive.
    """
    with closing(sqlite3.connect(database)) as opened:
        source = Database(opened)
        query = "SELECT run.id, fingerprint, request FROM run JOIN host ON host.id = host_id"
        asked = {run: texts for run, *texts in source.execute(query)}
        return [
            IndexRow(
                run=run,
                fingerprint=asked[run.run][0],
                request=asked[run.run][1],
                settings=_settings(source, run.run),
                times=_times(source, run.run),
            )
            for run in source.read(IndexedRun, _RUNS, **key, sha256=sha256, bytes=size)
        ]


def archive_whole(connection: Database, whole: Path, sha256: str) -> None:
    """Put a database into the archive, under its SHA-256. Raises `OSError`."""
    file = archived_file(connection, sha256)
    make_private_folder(file.parent)
    with whole.open("rb") as bytes_:
        copy_whole(bytes_, file)


def remove_unused(store: OpenDatabase, sha256: str | None) -> None:
    """Remove a database from the archive to which no run of the index refers."""
    with store.reading() as connection:
        used = connection.execute("SELECT 1 FROM fleet_run WHERE sha256 = ?", (sha256,))
        if sha256 and used.fetchone() is None:
            archived_file(connection, sha256).unlink(missing_ok=True)


def _check_whole(published: Path, copy: ForeignCopy, sha256: str | None) -> None:
    """Raise `SourceRefusedError` for a file that is not as its node published it."""
    if copy.log.exists():
        problem = "not published whole: it has a write-ahead log beside it"
        raise SourceRefusedError(f"{published}: {problem}")
    if sha256 not in (None, copy.sha256):
        problem = "its SHA-256 is not what its node said when it published it"
        raise SourceRefusedError(f"{published}: {problem}")


def insert_row(connection: Database, row: IndexRow) -> None:
    """Add a run and its times to the index."""
    run = row.run
    changes: dict[str, Any] = {"setting": _setting(connection, row.settings)}
    if run.status is RunStatus.RUNNING:  # published: its process is gone
        changes["status"] = RunStatus.INTERRUPTED
        changes["reason"] = "rater did not live to end it"
    connection.insert("fleet_run", run, **changes)
    connection.executemany(
        "INSERT INTO result (fleet, host, attempt, run, benchmark, bracket_s, copy_s) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(run.fleet, run.host, run.attempt, run.run, *time) for time in row.times],
    )


def _times(source: Database, run: int) -> list[tuple[str, str | None, str]]:
    """Return rows of `result`: brackets and median copies of iterations in seconds, as JSON."""
    for query in _TIMES:
        brackets, copies = defaultdict(list), defaultdict(list)
        for benchmark, bracket_s, copy_s in source.execute(query, (run,)):
            copies[benchmark].append(float(f"{copy_s:.7g}"))  # the digits that an index needs
            if bracket_s is not None:
                brackets[benchmark].append(float(f"{bracket_s:.7g}"))
        if copies:
            return [
                (name, json.dumps(brackets[name]) if brackets[name] else None, json.dumps(them))
                for name, them in copies.items()
            ]
    return []


def _settings(source: Database, run: int) -> str:
    query = "SELECT name, value FROM setting WHERE run_id = ? ORDER BY name"
    return json.dumps(
        {name: value for name, value in source.execute(query, (run,)) if not is_volatile(name)}
    )


def _setting(connection: Database, settings: str) -> int:
    digest = hashlib.sha256(settings.encode()).hexdigest()
    query = "SELECT id FROM fleet_setting WHERE sha256 = ?"
    known_row = connection.execute(query, (digest,)).fetchone()
    if known_row is not None:
        return int(known_row[0])
    return connection.insert("fleet_setting", None, sha256=digest, settings=settings)


# -- The index read: which fleet, which host -------------------------------------------------------


def fleet_number(connection: Database, word: FleetReference) -> int:
    """Return the number of the fleet that a word means; raises `InputError` where it has no runs.

    Fleets that confirm another one are no `fleet:last`.
    """
    confirmed_fleets: dict[int, int | None] = dict(
        connection.execute(
            "SELECT id, confirms FROM fleet UNION "
            "SELECT fleet, NULL FROM fleet_run WHERE fleet NOT IN (SELECT id FROM fleet) ORDER BY 1"
        )
    )
    candidates = [
        number
        for number in confirmed_fleets
        if number == word.fleet or (word.fleet is None and confirmed_fleets[number] is None)
    ]
    if not candidates:
        known_fleets = truncate_list([*map(str, confirmed_fleets)], 8)
        known_fleets = (
            f"there are fleets {known_fleets}"
            if len(confirmed_fleets) > 1
            else f"the only fleet is {known_fleets}"
        )
        message = f"fleet:{word.fleet or 'last'}: there is no such fleet; {known_fleets}"
        none = "no fleets stored yet; `rater fleet run --nodes NODES` makes one"
        raise InputError(message if confirmed_fleets else none)
    if not connection.execute(
        "SELECT 1 FROM fleet_run WHERE fleet = ?", (candidates[-1],)
    ).fetchone():
        raise _nothing_collected(connection, candidates[-1], None)
    return candidates[-1]


def _nothing_collected(connection: Database, fleet: int, host: str | None) -> InputError:
    """Return what to say of a fleet, or a host of it, of which no run is collected."""
    fleet_named = f"fleet:{fleet}" + ("" if host is None else f"/{host}")
    query = (
        "SELECT node FROM fleet_node WHERE fleet_id = :fleet "
        "UNION SELECT host FROM fleet_run WHERE fleet = :fleet ORDER BY 1"
    )
    nodes = [node for (node,) in connection.execute(query, {"fleet": fleet})]
    if host is not None and host not in nodes:
        has = f"fleet {fleet} has no node {host}; it has {truncate_list(nodes)}"
        return InputError(f"{fleet_named}: {has}")
    row = connection.execute("SELECT folder FROM fleet WHERE id = ?", (fleet,)).fetchone()
    published = SharedFolder(Path(row[0])).published_nodes() if row else set()
    if published if host is None else host in published:
        published_text = "its run is" if host else f"runs of {count(len(published), 'node')} are"
        way = f"`rater fleet collect {fleet}` takes {'it' if host else 'them'} in"
        return InputError(f"{fleet_named}: {published_text} published and not collected yet; {way}")
    none = "this host has published no run" if host else "no node has published a run"
    return InputError(f"{fleet_named}: {none}; `rater fleet status {fleet}` says why")


def indexed_runs(connection: Database, fleet: int) -> tuple[IndexedRun, ...]:
    """Return the runs of a fleet, of all attempts, by host."""
    columns = ", ".join(IndexedRun.__struct_fields__)
    query = f"SELECT {columns} FROM fleet_run WHERE fleet = :fleet ORDER BY host, attempt, run"
    return tuple(connection.read(IndexedRun, query, fleet=fleet))


def find_archived(connection: Database, text: str) -> IndexedRun:
    """Return the archived run that `fleet:N/HOST` means: of several the last in its database.

    Raises `InputError` for a fleet without a host, and for one that is not there.
    """
    word = fleet_word(text)
    fleet = fleet_number(connection, word)
    every = indexed_runs(connection, fleet)
    if word.host is None:
        hosts = [run.host for run in every]
        raise InputError(
            f"{text}: {len({*hosts})} hosts, and one run is wanted: name one, such as "
            f"fleet:{fleet}/{hosts[0]}; `rater divots fleet:{fleet}` and "
            f"`rater report fleet:{fleet}` take all of them"
        )
    runs = [it for it in every if it.host == word.host and word.attempt in (None, it.attempt)]
    if not runs and word.attempt is None:
        raise _nothing_collected(connection, fleet, word.host)
    if not runs:
        raise InputError(
            f"{text}: no run of this attempt is collected; `rater fleet status {fleet}` says why"
        )
    return latest(runs)[word.host][-1]


@contextmanager
def opened_run(connection: Database, run: IndexedRun) -> Iterator[Store]:
    """Open what is archived of an indexed run."""
    with (
        scratch_folder() as scratch,
        open_store(_taken_from_archive(connection, run.sha256, scratch).path) as store,
    ):
        store.is_copy = True
        yield store


# -- Archived runs of fleets as a store of their own: `fleet:3/n017` wherever runs are only read ---


class ArchivedStore(Store):
    """Copies of archived runs in a database that goes when it is closed; their words find them."""

    is_copy = True

    def __init__(self, store: Store, words: Sequence[str]) -> None:
        """Copy what `words` mean; `store` has the index, and is not needed afterwards.

        Raises `InputError` for words that mean nothing, `RunError` for a damaged archive.
        """
        with ExitStack() as undo:
            scratch = undo.enter_context(scratch_folder())
            super().__init__(scratch / "archived.db")
            undo.callback(super().close)
            self.numbers: dict[str, int] = {}
            for word in dict.fromkeys(words):
                with store.reading() as connection:
                    run = find_archived(connection, word)
                    merge_taken(self, _taken_from_archive(connection, run.sha256, scratch))
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


def copy_runs(store: Store, words: Sequence[str]) -> tuple[Store, dict[str, int]]:
    """Return a store of copies of what `words` mean, and their numbers there."""
    archived = ArchivedStore(store, words)
    return archived, archived.numbers
