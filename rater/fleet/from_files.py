"""`rater fleet collect --from`: a fleet of databases that were made anywhere."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import sys
import time
import uuid as uuids
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater import __version__
from rater.fleet.archive import (
    IndexRow,
    archive_whole,
    insert_row,
    read_index,
    remove_unused,
)
from rater.fleet.driver import show_fleet
from rater.fleet.foreign import SourceRefusedError, copy_foreign, taken
from rater.fleet.plan import FILES, AttemptState, FleetRequest, NodeAttempt, StoredFleet
from rater.fleet.store import find_fleet, insert_ended, insert_fleet, load_fleet
from rater.record.run import RunStatus
from rater.store.connection import default_path
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.files import scratch_folder
from rater.system.process import print_error, this_process
from rater.text.secrets import command_text
from rater.text.values import count, group_by_key, truncate_list
from rater.workflow.arguments import Output
from rater.workflow.run.head import utc_timestamp

_NOT_IN_A_NAME = re.compile(r"[/\s\x00-\x1f\x7f]+")


class FleetSource(Struct, frozen=True):
    """A database, and what its host is called where that was typed."""

    path: Path
    host: str | None


class FoundRun(Struct, frozen=True):
    """A run of a database, before it has a place in a fleet."""

    row: IndexRow
    source: FleetSource

    @property
    def command(self) -> tuple[str, ...]:
        """The command that was run; empty: suites."""
        with suppress(ValueError, TypeError, AttributeError):
            return tuple(map(str, json.loads(self.row.request or "").get("command") or ()))
        return ()

    @property
    def program(self) -> str:
        """What was measured: a command line, or suite and size."""
        run = self.row.run
        suite = ", ".join(filter(None, (run.suite or "imported", run.size)))
        program = command_text(self.command) if self.command else suite
        return program if run.mode == "homogeneous" else f"{program}, {run.mode}"

    @property
    def hostname(self) -> str:
        """What its machine calls itself."""
        return (
            _NOT_IN_A_NAME.sub("-", self.row.run.hostname or self.row.fingerprint[:40]) or "unknown"
        )

    @property
    def machine(self) -> str:
        """What tells its machine from others of the same name."""
        return self.row.run.machine_id_hash or self.row.fingerprint


# -- The files ------------------------------------------------------------------------------------


def sources_of(words: Sequence[str]) -> list[FleetSource]:
    """Return the databases that words mean: a file, HOST=FILE, or a folder of `.db` files.

    Raises `InputError` for a folder without any.
    """
    sources: list[FleetSource] = []
    for word in words:
        host, equals, file = word.partition("=")
        path = Path(word)
        if equals and not path.exists():
            sources.append(FleetSource(Path(file), _NOT_IN_A_NAME.sub("-", host) or None))
        elif path.is_dir():
            files = sorted(path.glob("*.db"))
            if not files:
                raise InputError(f"--from {word}: there is no .db file in this folder")
            sources += [FleetSource(file_of_folder, None) for file_of_folder in files]
        else:
            sources.append(FleetSource(path, None))
    return list({source.path.absolute(): source for source in sources}.values())


def _named_by_file(sources: Sequence[FleetSource]) -> list[FleetSource]:
    """Return sources whose hosts are called as their files are; with the folder where it tells."""
    stems = Counter(source.path.stem for source in sources)
    named = []
    for source in sources:
        stem = source.path.stem
        name = stem if stems[stem] == 1 else f"{source.path.absolute().parent.name}-{stem}"
        named.append(replace(source, host=source.host or _NOT_IN_A_NAME.sub("-", name)))
    return named


def _read(store: Store, source: FleetSource) -> list[FoundRun]:
    """Put a database into the archive and return its runs. Raises `SourceRefusedError`."""
    with scratch_folder() as scratch:
        copy = copy_foreign(source.path, scratch)
        has_log, sha256 = copy.log.exists(), copy.sha256
        whole = shutil.copyfile(copy.path, scratch / "whole.db")
        database = taken(copy).path
        if has_log:  # one file has all of it only in the database behind the door
            whole = database
            with whole.open("rb") as bytes_:
                sha256 = hashlib.file_digest(bytes_, "sha256").hexdigest()
        key = {"fleet": 0, "host": "", "attempt": 1}
        rows = read_index(database, key, sha256, whole.stat().st_size)
        if not rows:
            raise SourceRefusedError(f"{source.path}: there is no run in it")
        with store.reading() as connection:
            archive_whole(connection, whole, sha256)
    return [FoundRun(row, source) for row in rows]


# -- Which runs make the fleet, and what their hosts are called -----------------------------------


def _chosen(runs: Sequence[FoundRun], program: str | None) -> list[FoundRun]:
    """Return the runs whose program has a text in it; without one, of what most hosts ran.

    A fleet is one measurement of many hosts. Raises `InputError` where none is of that name.
    """
    by_program = group_by_key((run.program, run) for run in runs)
    if program is None:
        hosts = {
            name: len({(it.hostname, it.machine, it.source.host) for it in of_program})
            for name, of_program in by_program.items()
        }
        chosen = [max(by_program, key=lambda name: (hosts[name], _last_start(by_program[name])))]
    else:
        chosen = [name for name in by_program if program in name]
    if not chosen:
        raise InputError(
            f"no run is of {program}; the databases have runs of {truncate_list([*by_program])}"
        )
    if others := [name for name in by_program if name not in chosen]:
        left = count(sum(len(by_program[name]) for name in others), "run")
        print_error(
            f"the fleet is of {truncate_list(chosen)}; left out: {left} of {truncate_list(others)} "
            "(--program TEXT takes those)"
        )
    return [run for run in runs if run.program in chosen]


def _last_start(runs: Sequence[FoundRun]) -> str:
    return max(run.row.run.started_at or "" for run in runs)


def _hosts(runs: Sequence[FoundRun]) -> dict[str, list[FoundRun]]:
    """Return runs by the name of their host; two machines of one name have their files' names."""
    machines: dict[str, set[str]] = {}
    for run in runs:
        machines.setdefault(run.hostname, set()).add(run.machine)
    by_host: dict[str, list[FoundRun]] = {}
    for run in runs:
        name = run.source.host or run.hostname
        if run.source.host is None and len(machines[run.hostname]) > 1:
            name = f"{run.hostname}@{_NOT_IN_A_NAME.sub('-', run.source.path.stem)}"
        by_host.setdefault(name, []).append(run)
    return by_host


def _placed(
    by_host: Mapping[str, Sequence[FoundRun]], stored: Mapping[tuple[str, str], int], fleet: int
) -> Iterator[IndexRow]:
    """Yield rows with their fleet, host and attempt: a host's runs are attempts, in their order.

    `stored`: attempts of runs that the fleet has, by host and uuid. A run in several files counts
    once, as the one that went farthest.
    """
    for host, runs in by_host.items():
        farthest: dict[str, FoundRun] = {}
        for run in sorted(runs, key=lambda it: it.row.run.copy_runs):
            farthest[run.row.run.uuid] = run
        last = max((attempt for (name, _), attempt in stored.items() if name == host), default=0)
        for run in sorted(farthest.values(), key=lambda it: it.row.run.started_at or ""):
            attempt = stored.get((host, run.row.run.uuid))
            if attempt is None:
                last += 1
                attempt = last
            placed_run = replace(run.row.run, fleet=fleet, host=host, attempt=attempt)
            yield replace(run.row, run=placed_run)


def _attempt_of(row: IndexRow, now_s: float) -> NodeAttempt:
    """Return the attempt that a run stands for."""
    run, state, reason = row.run, AttemptState.PARTIAL, row.run.reason
    if run.status is RunStatus.FAILED or (run.status is RunStatus.COMPLETE and run.failed):
        state = AttemptState.FAILED
        reason = f"{run.failed} of {run.copy_runs} copy runs failed" if run.failed else reason
    elif run.status is RunStatus.COMPLETE:
        state = AttemptState.COMPLETE
    return NodeAttempt(
        node=run.host,
        attempt=run.attempt,
        state=state,
        intended_s=now_s,
        ended_s=now_s,
        reason=reason or (None if state is AttemptState.COMPLETE else f"the run is {run.status}"),
        collected=run.sha256,
        **this_process()._asdict(),
    )


def _request(store: Store, runs: Sequence[FoundRun]) -> FleetRequest:
    """Return the request that a fleet of these runs is stored with."""
    first = runs[0]
    return FleetRequest(
        uuid=str(uuids.uuid4()),
        started_at=utc_timestamp(),
        backend=FILES,
        folder=f"{store.path.absolute()}.archive",
        scratch="",
        directory=str(Path.cwd()),
        words=(first.program,),
        command=first.command or None,
        command_line=shlex.join(["rater", *sys.argv[1:]]),
        rater_version=__version__,
        parallel=None,
        attempts=1,
        minutes=None,
        pending_limit_s=None,
        busy_limit_s=0.0,
        settle_s=0.0,
        arguments=(),
        allow_partial=True,
    )


# -- The command ----------------------------------------------------------------------------------


def collect_files(
    output: Output,
    words: tuple[str, ...],
    fleet: str | None,
    *,
    by_file: bool,
    program: str | None,
) -> int:
    """Make a fleet of databases, or add to one that was made so; the files are only read.

    One that cannot be taken is named and does not keep the others out; the exit status is then 2.
    """
    sources = sources_of(words)
    if by_file:
        sources = _named_by_file(sources)
    with open_store(default_path(output.db)) as store:
        stored = None if fleet is None else _made_of_files(store, fleet)
        runs: list[FoundRun] = []
        refused = 0
        for source in sources:
            try:
                runs += _read(store, source)
            except SourceRefusedError as error:
                print_error(str(error))
                refused += 1
        if not runs:
            raise InputError("--from: none of these databases can be taken; nothing was stored")
        number = _stored(store, runs, stored, program)
        made = load_fleet(store, number)
        show_fleet(output, made, None)
    if not output.quiet:
        _explain(made, len(sources) - refused)
    return InputError.exit_status if refused else 0


def _made_of_files(store: Store, fleet: str) -> StoredFleet:
    stored = load_fleet(store, find_fleet(store, fleet))
    if stored.asked.backend != FILES:
        raise InputError(
            f"fleet {stored.number} collects from its own nodes ({stored.asked.backend}); without "
            "its number --from makes a fleet of these files"
        )
    return stored


def _stored(
    store: Store, runs: Sequence[FoundRun], stored: StoredFleet | None, program: str | None
) -> int:
    """Store a fleet of runs, all of it or nothing; return its number."""
    digests = {run.row.run.sha256 for run in runs}
    try:
        if stored is not None and program is None:
            program = stored.asked.words[0]
        chosen = _chosen(runs, program)
        by_host = _hosts(chosen)
        with store.writing("collecting") as connection:
            if stored is None:
                number = insert_fleet(connection, _request(store, chosen), begun=1)
            else:
                number = stored.number
            query = "SELECT host, uuid, attempt, sha256 FROM fleet_run WHERE fleet = ?"
            known_rows = connection.execute(query, (number,)).fetchall()
            digests |= {sha256 for *_, sha256 in known_rows}
            attempts = {(host, uuid): attempt for host, uuid, attempt, _ in known_rows}
            rows = [*_placed(by_host, attempts, number)]
            for row in rows:
                place = (number, row.run.host, row.run.attempt)
                for table in ("result", "fleet_run"):
                    query = f"DELETE FROM {table} WHERE fleet = ? AND host = ? AND attempt = ?"
                    connection.execute(query, place)
                insert_row(connection, row)
            insert_ended(connection, number, [_attempt_of(row, time.time()) for row in rows])
    finally:
        for sha256 in digests:
            remove_unused(store, sha256)
    return number


def _explain(fleet: StoredFleet, files: int) -> None:
    """Say what the files became, and what to do with the fleet."""
    hosts, runs = len(fleet.attempts), len(fleet.every)
    said = f"{count(files, 'database')}: {count(hosts, 'host')}, {count(runs, 'run')}"
    if hosts < files:
        said += (
            "; of the runs of one host the last complete one counts "
            "(--by-file: each file is a host of its own)"
        )
    print_error(f"{said}; `rater divots fleet:{fleet.number}` names slow hosts")
