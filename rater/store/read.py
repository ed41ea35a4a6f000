"""Rows out: the named queries, and which runs a word means."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rater.record.events import (
    CopyEnded,
    CpuReading,
    CpuReadings,
    EventCount,
    ForeignProcess,
    GateFacts,
    MachineReadings,
    Observed,
    PageRegion,
    PhaseCounted,
    PhaseEnded,
    PhaseSeries,
    PublishedResult,
    Sampled,
    WorkloadTime,
)
from rater.record.run import (
    MOST_COPIES,
    BenchmarkUsed,
    Host,
    MachinePU,
    MetricUsed,
    Placement,
    RunStatus,
    escape_undecodable,
    is_fleet_word,
)
from rater.record.stored import ImportedFile, RunHead, StoredRun
from rater.store.queries import AMONG_RUNS, named_query, query_of_phase_readings, query_of_runs
from rater.store.rows import Database, rows_of_columns
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.system.process import ProcessId, boot_id, is_alive
from rater.text.values import group_by_key, truncate_list

_KILLED = "rater was killed{}; what had finished is here"
_COPY_RUNS_AT_ONCE = 65_536  # of runs that are read together, about
_RUN = ("run_id",)
_COPY_RUN = (*_RUN, "phase", "copy", "step")
_TEXT, _WHOLE = frozenset((str,)), frozenset((int,))

type _Rows[T] = Mapping[tuple[Any, ...], Sequence[T]]  # by columns, `run_id` the first

_gate = cache(GateFacts)  # the same few, copy after copy


def run_heads(database: Database, numbers: Sequence[int] | None = None) -> tuple[RunHead, ...]:
    """Return the heads of all runs by number, or those of `numbers` that are there, as given."""
    names: defaultdict[int, list[str]] = defaultdict(list)
    tags: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
    runs = None if numbers is None else json.dumps(numbers)
    where = "" if runs is None else f"WHERE run_id {AMONG_RUNS}"
    query = f"SELECT run_id, name FROM benchmark {where} ORDER BY run_id, position"
    for run, name in database.read_values(query, int, str, runs=runs):
        names[run].append(name)
    query = f"SELECT run_id, name, value FROM tag {where} ORDER BY run_id, name"
    for run, name, value in database.read_values(query, int, str, str, runs=runs):
        tags[run].append((name, value))

    def finish(values: dict[str, Any]) -> None:
        owner = _owner(values.pop("pid"), values.pop("pid_start"), values.pop("boot_id"))
        if values["status"] is RunStatus.RUNNING and not (owner and is_alive(owner)):
            same_boot = owner is not None and owner.boot_id == boot_id()
            reason = _KILLED.format("" if same_boot else " or the machine went down")
            values |= {"status": RunStatus.KILLED, "reason": reason}
        run = values["run"]
        values |= {"benchmarks": tuple(names[run]), "tags": tuple(tags[run])}

    heads = database.read(RunHead, named_query("runs"), finish=finish, runs=runs)
    if numbers is None:
        return tuple(heads)
    by_number = {head.run: head for head in heads}
    return tuple(by_number[number] for number in numbers if number in by_number)


def refuse_running(database: Database, table: str, number: int) -> None:
    """Raise `InputError` while a process makes a run or sweep; nothing more of it is read."""
    query = f"SELECT pid, pid_start, boot_id FROM {table} WHERE id = ? AND status = ?"
    row = database.execute(query, (number, RunStatus.RUNNING)).fetchone()
    owner = _owner(*row) if row else None
    if owner and is_alive(owner):
        raise InputError(
            f"{table} {number} is still running (rater's process {owner.pid}); end it first"
        )


def _owner(pid: object, pid_start: object, boot_id: object) -> ProcessId | None:
    if isinstance(pid, int) and isinstance(pid_start, int) and isinstance(boot_id, str):
        return ProcessId(pid, pid_start, boot_id)
    return None


def load_runs(
    database: Database, numbers: Sequence[int], recurring: Recurring | None = None
) -> Iterator[StoredRun]:
    """Yield runs with all their rows; raises `InputError` when there is none of a number.

    Many runs that are read with the same `recurring` take little memory beside one another.
    """
    recurring = Recurring() if recurring is None else recurring
    heads = {head.run: head for head in run_heads(database, numbers)}
    for number in numbers:
        if number not in heads:
            raise InputError(f"there is no run {number} any more; `rater list` shows what there is")
        copies = heads[number].copies
        if copies > MOST_COPIES:  # a number that pages and pictures would make room for
            raise InputError(
                f"run {number} says that it had {copies} copies, and no run has more than "
                f"{MOST_COPIES}: its row in the database is damaged"
            )
    for some in _blocks_of_runs([heads[number] for number in numbers]):
        rows = _RowsOfRuns(database, [head.run for head in some], recurring)
        for head in some:
            yield rows.run(head)


def _blocks_of_runs(heads: Sequence[RunHead]) -> Iterator[list[RunHead]]:
    """Yield runs as many at a time as have few enough copies: rows of all are held together."""
    block: list[RunHead] = []
    rows = 0
    for head in heads:
        of_run = head.copies * max(head.iterations, 1) * max(len(head.benchmarks), 1)
        if block and rows + of_run > _COPY_RUNS_AT_ONCE:
            yield block
            block, rows = [], 0
        block.append(head)
        rows += of_run
    if block:
        yield block


class Recurring:
    """Values of runs that were read, each once: most runs have the machine of the one before."""

    def __init__(self) -> None:
        self._values: dict[object, Any] = {}

    def shared[T](self, value: T) -> T:
        """Return the value that was given first of those that are equal to this one."""
        known: T = self._values.setdefault(value, value)
        return known

    def all_shared[T](self, values: Sequence[T]) -> tuple[T, ...]:
        """Return several values, and all of them together, as they were given first."""
        return self.shared(tuple(map(self._values.setdefault, values, values)))


# Tables with many rows a run, of which most runs have none: whether one has is asked once.
_RARE_TABLES = (
    *("environment", "metric", "spec_result", "sample", "copy_metric", "workload", "copy_count"),
    "page_region",
)


class _Note(Struct, frozen=True):
    kind: str
    text: str


class _RowsOfRuns:
    """The rows of several runs: each table is read once for all of them."""

    def __init__(self, database: Database, numbers: Sequence[int], recurring: Recurring) -> None:
        self._database = database
        self._runs = json.dumps(numbers)
        self._recurring = recurring
        self._empty = frozenset(self._empty_tables())
        self._hosts = self._hosts_by_run()
        self._pairs = {table: self._pairs_by_run(table) for table in ("setting", "environment")}
        self._benchmarks = self._benchmarks_by_run()
        self._brackets = self._brackets_by_run()
        self._copies = self._copies_by_run()
        self._samples = self._rare(Sampled, "samples", _RUN, table="sample")
        self._cpu_readings = self._cpu_readings_by_run()
        self._machine_readings = self._machine_readings_by_run()
        self._placements = self._table(Placement, "placement", order="copy")
        self._pus = self._table(MachinePU, "pu", order="cpu")
        self._notes = self._table(_Note, "note", order="id")
        self._files = self._table(ImportedFile, "spec_file")
        self._counted = self._table(PhaseCounted, "counted", order="phase")
        self._observed = self._table(Observed, "observed")
        self._foreign_processes = self._table(
            ForeignProcess, "foreign_process", order="phase, cpu_ns DESC, cpu, pid"
        )
        self._series = self._table(PhaseSeries, "series", order="phase, family")

    def run(self, head: RunHead) -> StoredRun:
        """Return one of the runs with all its rows."""
        shared, key = self._recurring.shared, (head.run,)
        texts = group_by_key((note.kind, note.text) for note in self._notes.get(key, ()))
        return StoredRun(
            head=head,
            host=shared(self._hosts[key][0]),
            settings=self._pairs["setting"].get(head.run, ()),
            environment=self._pairs["environment"].get(head.run, ()),
            benchmarks=shared(tuple(self._benchmarks.get(key, ()))),
            placements=shared(tuple(self._placements.get(key, ()))),
            pus=shared(tuple(self._pus.get(key, ()))),
            brackets=tuple(self._brackets.get(key, ())),
            copies=tuple(self._copies.get(key, ())),
            warnings=shared(tuple(texts.get("warning", ()))),
            notes=shared(tuple(texts.get("note", ()))),
            samples=tuple(self._samples.get(key, ())),
            imported=next(iter(self._files.get(key, ())), None),
            counted=tuple(self._counted.get(key, ())),
            observed=next(iter(self._observed.get(key, ())), None),
            cpu_readings=tuple(self._cpu_readings.get(head.run, ())),
            machine_readings=tuple(self._machine_readings.get(head.run, ())),
            foreign_processes=tuple(self._foreign_processes.get(key, ())),
            series=tuple(self._series.get(key, ())),
        )

    def _empty_tables(self) -> Iterator[str]:
        """Yield the rare tables that have no row of any of the runs."""
        query = " UNION ALL ".join(
            f"SELECT '{table}' WHERE NOT EXISTS (SELECT 1 FROM json_each(:runs) AS one "
            f"CROSS JOIN {table} ON {table}.run_id = one.value)"
            for table in _RARE_TABLES
        )
        for (table,) in self._database.execute(query, {"runs": self._runs}):
            yield table

    def _table[T](self, kind: type[T], name: str, *, order: str = "1") -> _Rows[T]:
        """Return the rows of a table by run."""
        query = (
            f"SELECT run_id, {self._columns_of(kind, name)} FROM {name} "
            f"WHERE run_id {AMONG_RUNS} ORDER BY {order}"
        )
        return self._read_by(kind, query, _RUN)

    def _rare[T](self, kind: type[T], query: str, keys: tuple[str, ...], *, table: str) -> _Rows[T]:
        """Return the rows of a named query on a rare table by the columns called `keys`."""
        if table in self._empty:
            return {}
        return self._read_by(kind, query_of_runs(query), keys)

    def _read_by[T](self, kind: type[T], query: str, keys: tuple[str, ...]) -> _Rows[T]:
        return self._database.read_by(kind, query, keys, runs=self._runs)

    def _columns_of(self, kind: Any, table: str) -> str:
        """Return the columns of a table that are fields of a Struct, as SQL names them."""
        names = self._database.columns_of(table)
        return ", ".join(f"{table}.{name}" for name in names if name in kind.__struct_fields__)

    def _hosts_by_run(self) -> _Rows[Host]:
        """Return the machine that each run was made on."""
        return self._read_by(
            Host,
            f"SELECT run.id AS run_id, {self._columns_of(Host, 'host')} FROM run "
            f"JOIN host ON host.id = run.host_id WHERE run.id {AMONG_RUNS}",
            _RUN,
        )

    def _pairs_by_run(self, table: str) -> Mapping[int, tuple[tuple[str, str], ...]]:
        """Return the names and values of a table that has nothing else.

        They come as one text a run: rows would take three times as long, and most runs have the
        same ones.
        """
        if table in self._empty:
            return {}
        with self._each_value_named(
            f"SELECT name, value FROM {table} WHERE run_id {AMONG_RUNS}", str
        ):
            texts = self._database.read_values(
                f"SELECT run_id, json_group_object(name, value) FROM {table} "
                f"WHERE run_id {AMONG_RUNS} GROUP BY run_id",
                int,
                str,
                runs=self._runs,
            )
        pairs_of_text: dict[str, tuple[tuple[str, str], ...]] = {}
        for text in {text for _, text in texts}:
            pairs = sorted(json.loads(text).items())
            for names in zip(*pairs, strict=True):
                self._database.check_types(table, names, _TEXT)
            pairs_of_text[text] = self._recurring.all_shared(pairs)
        return {run: pairs_of_text[text] for run, text in texts}

    @contextmanager
    def _each_value_named(self, values_query: str, kind: type) -> Iterator[None]:
        """Have `values_query` say which value is damaged, where JSON cannot hold one of them."""
        try:
            yield
        except sqlite3.OperationalError:
            self._database.read_values(values_query, str, kind, runs=self._runs)
            raise

    def _benchmarks_by_run(self) -> _Rows[BenchmarkUsed]:
        """Return the benchmarks in ring order, with the metrics that the suite declares."""
        used = self._read_by(
            BenchmarkUsed,
            "SELECT run_id, name, category, coalesce(command, '') AS command, reference_s, "
            "binary_sha256, compiler, flags, inputs_sha256, threads FROM benchmark "
            f"WHERE run_id {AMONG_RUNS} ORDER BY position",
            _RUN,
        )
        if "metric" in self._empty:
            return used
        metrics = self._read_by(
            MetricUsed,
            "SELECT run_id, benchmark, name, unit, better, combine FROM metric "
            f"WHERE run_id {AMONG_RUNS} ORDER BY position",
            ("run_id", "benchmark"),
        )
        return {
            run: [replace(one, metrics=tuple(metrics.get((*run, one.name), ()))) for one in some]
            for run, some in used.items()
        }

    def _brackets_by_run(self) -> _Rows[PhaseEnded]:
        """Return the brackets by phase, imported ones with what their file says of them."""
        brackets = self._read_by(PhaseEnded, query_of_runs("brackets"), _RUN)
        if "spec_result" in self._empty:
            return brackets
        published = self._read_by(
            PublishedResult,
            "SELECT run_id, phase, copies, reported_s, reference_s, ratio, selected, valid, errors "
            f"FROM spec_result WHERE run_id {AMONG_RUNS}",
            ("run_id", "phase"),
        )
        return {
            run: [
                replace(bracket, reported=published.get((*run, bracket.phase), (None,))[0])
                for bracket in some
            ]
            for run, some in brackets.items()
        }

    def _cpu_readings_by_run(self) -> Mapping[int, Sequence[CpuReadings]]:
        """Return what the CPUs did, by phase."""
        by_phase = self._read_by(CpuReading, query_of_runs("cpu_readings"), ("run_id", "phase"))
        return group_by_key(
            (run, CpuReadings(phase, tuple(rows))) for (run, phase), rows in by_phase.items()
        )

    def _machine_readings_by_run(self) -> Mapping[int, Sequence[MachineReadings]]:
        """Return the counters of the machine, by phase: the names of most phases are the same."""
        values_query = f"SELECT name, value FROM phase_reading WHERE run_id {AMONG_RUNS}"
        with self._each_value_named(values_query, int):
            rows = self._database.read_values(
                query_of_phase_readings(), int, int, str, str, runs=self._runs
            )
        names_of = {text: json.loads(text) for text in {names for _, _, names, _ in rows}}
        readings: dict[int, list[MachineReadings]] = {}
        all_shared = self._recurring.all_shared
        for run, phase, names, text in rows:
            values = json.loads(text)
            self._database.check_types("value", values, _WHOLE)
            pairs = all_shared([*zip(names_of[names], values, strict=True)])
            readings.setdefault(run, []).append(MachineReadings(phase, pairs))
        return readings

    def _copies_by_run(self) -> _Rows[CopyEnded]:
        """Return the copy runs with their metrics, commands, counts and pages."""
        metrics = self._metrics()
        workloads = self._rare(WorkloadTime, "workloads", _COPY_RUN, table="workload")
        counts = self._rare(EventCount, "copy_counts", _COPY_RUN, table="copy_count")
        pages = self._rare(PageRegion, "page_regions", _COPY_RUN, table="page_region")

        copies: defaultdict[tuple[Any, ...], list[CopyEnded]] = defaultdict(list)
        query = query_of_runs("copies")
        for columns in self._database.read_columns(CopyEnded, query, runs=self._runs):
            runs = columns.pop("run_id")
            gates = zip(columns.pop("gate_cpus"), columns.pop("gate_mems"), strict=True)
            columns["gate"] = [None if gate == (None, None) else _gate(*gate) for gate in gates]
            keys = [*zip(runs, *(columns[name] for name in _COPY_RUN[1:]), strict=True)]
            for name, rows in (
                ("metrics", metrics),
                ("workloads", workloads),
                ("counts", counts),
                ("pages", pages),
            ):
                if rows:
                    columns[name] = [tuple(rows.get(key, ())) for key in keys]
            for run, copy in zip(runs, rows_of_columns(CopyEnded, columns), strict=False):
                copies[run,].append(copy)
        return copies

    def _metrics(self) -> Mapping[tuple[int, ...], Sequence[tuple[str, float]]]:
        if "copy_metric" in self._empty:
            return {}
        kinds = (int, int, int, int, str, float)
        rows = self._database.read_values(query_of_runs("metrics"), *kinds, runs=self._runs)
        return group_by_key((tuple(key), (name, value)) for *key, name, value in rows)


# -- Which runs RUN means: `7`, the start of a uuid, `last`, `last~1`, `tag:K=V` -------------------

type _Known = tuple[int, str]  # number and uuid of a run

_LAST = compile_later(r"last(?:~([0-9]{1,9}))?", re.ASCII)
_DIGITS = compile_later(r"[0-9]+", re.ASCII)
# From here on digits may be the start of a uuid as well. Shorter ones never are: after `rater rm 7`
# another `rater rm 7` would remove whichever run has a uuid that happens to begin with 7.
_DIGITS_OF_A_UUID = 8
_LEAST_OF_A_UUID = 4  # of a sweep or a fleet, of which there are few
_MOST_DIGITS = 18  # SQLite's numbers end at 2^63 - 1
TAG = "tag:"
_MOST_NAMED = 5
_LARGEST_SIGN = "\U0010ffff"


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs a list is of; what is not given narrows nothing."""

    tags: tuple[tuple[str, str | None], ...] = ()  # key and value; no value: any
    host: str | None = None  # a name, or a pattern with * and ?
    suite: str | None = None  # the same
    since: str | None = None  # UTC, ISO 8601 with "Z": begun then or later
    without_tag: str | None = None  # runs that have it, with any value, are left out


def find_matching(
    database: Database, run_filter: RunFilter, limit: int | None = None
) -> tuple[tuple[int, ...], int]:
    """Return the numbers of the latest `limit` runs (None: all), and how many match in all."""
    conditions, values = [], []
    for name, value in run_filter.tags:
        conditions.append(
            "run.id IN (SELECT run_id FROM tag WHERE name = ?"
            + (")" if value is None else " AND value = ?)")
        )
        values += [name] if value is None else [name, value]
    if run_filter.host is not None:
        conditions.append(
            f"run.host_id IN (SELECT id FROM host WHERE hostname {_like(run_filter.host)})"
        )
        values.append(run_filter.host)
    if run_filter.suite is not None:
        conditions.append(f"run.suite {_like(run_filter.suite)}")
        values.append(run_filter.suite)
    if run_filter.since is not None:
        conditions.append("coalesce(run.started_at, run.stored_at) >= ?")
        values.append(run_filter.since)
    if run_filter.without_tag is not None:
        conditions.append("run.id NOT IN (SELECT run_id FROM tag WHERE name = ?)")
        values.append(run_filter.without_tag)
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    (count,) = database.execute(f"SELECT count(*) FROM run {where}", values).fetchone()
    rows = database.execute(
        f"SELECT run.id FROM run {where} ORDER BY run.id DESC LIMIT ?",
        (*values, -1 if limit is None else limit),
    )
    return tuple(reversed([number for (number,) in rows])), count


def _like(text: str) -> str:
    """Return how a column is compared: an index finds what is no pattern."""
    return "GLOB ?" if set(text) & set("*?[") else "= ?"


def describe_runs(database: Database, numbers: Sequence[int]) -> str:
    """Return runs as text, with their uuids, the last one first."""
    query = "SELECT id, uuid FROM run WHERE id = ?"
    return _list_runs(
        [database.execute(query, (number,)).fetchone() for number in reversed(numbers)]
    )


def find_all(database: Database, path: Path, spec: str) -> tuple[int, ...]:
    """Return the numbers of the runs that `spec` means, ascending; several only for `tag:K=V`.

    Raises `InputError` when nothing, or otherwise more than one run, is meant.
    """
    if is_fleet_word(spec):
        raise InputError(
            f"{spec}: a run in the archive of a fleet can be read (show, divots, plot, report, "
            "compare, scale, export) and neither removed nor run again"
        )
    (newest,) = database.execute("SELECT max(id) FROM run").fetchone()
    if newest is None:
        raise InputError(f"{path}: no runs stored yet; `rater run` makes one")
    if spec.startswith(TAG):
        return _find_by_tag(database, path, spec)
    last_match = _LAST.fullmatch(spec)
    if last_match:
        row = database.execute(
            "SELECT id FROM run ORDER BY id DESC LIMIT 1 OFFSET ?", (int(last_match[1] or 0),)
        ).fetchone()
        if row is None:
            (stored,) = database.execute("SELECT count(*) FROM run").fetchone()
            raise InputError(f"{spec}: only {stored} runs are stored in {path}")
        return tuple(row)
    return (_find_by_number_or_uuid(database, newest, path, spec),)


def find_numbered(
    path: Path, spec: str, stored: Sequence[_Known], *, kind: str, makes: str, lists: str
) -> int:
    """Return the number of the one sweep, fleet or trace of these (the last first) that is meant.

    By a number, `last`, `last~1` or the start of a uuid, with or without `kind:` before it.
    Raises `InputError` where it means none, or several; `makes`, `lists`: commands that do so.
    """
    if not stored:
        raise InputError(f"{path}: no {kind}s stored yet; `{makes}` makes one")
    number = _find_number(spec.removeprefix(f"{kind}:"), stored)
    if number is None:
        raise InputError(
            f"{spec!r}: no such {kind} in {path}; {kind.upper()} is a number up to {stored[0][0]}, "
            f"`last`, `last~1` or the start of a uuid, and `{lists}` shows them"
        )
    return number


def _find_number(word: str, stored: Sequence[_Known]) -> int | None:
    last_match = _LAST.fullmatch(word)
    if last_match:
        position = int(last_match[1] or 0)
        return stored[position][0] if position < len(stored) else None
    if _DIGITS.fullmatch(word) and len(word) <= _MOST_DIGITS:
        number = int(word)
        if any(number == one for one, _ in stored):
            return number
    if len(word) < _LEAST_OF_A_UUID:
        return None
    matches = [number for number, uuid in stored if uuid.startswith(word)]
    return matches[0] if len(matches) == 1 else None


def _find_by_number_or_uuid(database: Database, newest: int, path: Path, spec: str) -> int:
    only_digits = _DIGITS.fullmatch(spec) is not None
    if only_digits and len(spec) <= _MOST_DIGITS:
        number = int(spec)
        if database.execute("SELECT 1 FROM run WHERE id = ?", (number,)).fetchone():
            return number
    may_be_uuid = spec and not (only_digits and len(spec) < _DIGITS_OF_A_UUID)
    matches: list[_Known] = []
    if may_be_uuid:
        # A range of the index on uuids, the last one first.
        matches = database.execute(
            "SELECT id, uuid FROM run WHERE uuid >= ? AND uuid < ? ORDER BY id DESC",
            (escape_undecodable(spec), f"{escape_undecodable(spec)}{_LARGEST_SIGN}"),
        ).fetchall()
    exact = [number for number, uuid in matches if uuid == spec]
    if exact or len(matches) == 1:
        return exact[0] if exact else matches[0][0]
    if matches:
        raise InputError(
            f"{spec}: the uuids of {len(matches)} runs begin so: {_list_runs(matches)}"
        )
    raise InputError(
        f"{spec!r}: no such run in {path}; RUN is a number up to {newest}, the start of a "
        f"uuid (where that is all digits, {_DIGITS_OF_A_UUID} or more), `last`, `last~1` or "
        "`tag:K=V`, and `rater list` shows them"
    )


def _find_by_tag(database: Database, path: Path, spec: str) -> tuple[int, ...]:
    name, equals, value = escape_undecodable(spec).removeprefix(TAG).partition("=")
    if not equals or not name.strip():
        raise InputError(f"{spec!r}: expected tag:KEY=VALUE, as `rater run --tag` was given it")
    rows = database.execute(
        "SELECT run_id FROM tag WHERE name = ? AND value = ? ORDER BY run_id", (name.strip(), value)
    )
    numbers = tuple(number for (number,) in rows)
    if not numbers:
        raise InputError(
            f"{spec!r}: no run in {path} has this tag; `rater list --json` shows the tags"
        )
    return numbers


def _list_runs(runs: Sequence[_Known]) -> str:
    return truncate_list([f"{number} ({uuid})" for number, uuid in runs], _MOST_NAMED)
