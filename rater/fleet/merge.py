"""Whole databases of other machines into one: every row of every run, once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from rater.fleet.foreign import (
    DERIVED,
    GONE,
    NUMBERS_AS_TEXT,
    ForeignDatabase,
    MergeTable,
    SourceRefusedError,
    copy_foreign,
    newest_tables,
    taken,
)
from rater.plan.request import MERGED_FROM
from rater.record.run import RunStatus
from rater.store.connection import default_path
from rater.store.open_database import OpenDatabase
from rater.store.rows import Database
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from rater.system.files import scratch_folder
from rater.system.process import ProcessId, is_alive, print_error
from rater.text.values import count, runs_text, to_dict, truncate_list
from rater.workflow.arguments import Output, print_json

# A run is the same where its uuid is. One that is not there yet gets the next number here; one that
# has gone on since (resumed, more copies, judged, searched) is replaced under the number it has;
# one that was removed here stays removed. A file is one transaction, so that a rater killed at any
# moment leaves it in whole or not at all, and two that merge into the same database take turns.

_FROM = "source"  # what the database behind the door is called beside ours
_MAKER_OF_BUNDLE = "whoever made that bundle"
_WAIT_MS = 120_000  # for another one that merges into the same database
# How far a root has got, by numbers and texts that never go back: the greater one is the later one.
_PROGRESS = {
    "run": """
        SELECT resumed,
          (SELECT coalesce(sum(replaced), 0) FROM {at}.sweep_run WHERE run_id = :id),
          (SELECT count(*) FROM {at}.copy WHERE run_id = :id),
          (SELECT count(*) FROM {at}.copy WHERE run_id = :id AND validity <> 'unchecked'),
          (SELECT count(placement) FROM {at}.copy WHERE run_id = :id),
          (SELECT coalesce(sum(1 + torn + (finish_ns IS NOT NULL)), 0) FROM {at}.bracket
           WHERE run_id = :id),
          status <> 'running',
          (SELECT coalesce(max(version), 0) FROM {at}.divot_search WHERE run_id = :id),
          (SELECT coalesce(max(searched_at), '') FROM {at}.divot_search WHERE run_id = :id)
        FROM {at}.run WHERE id = :id
    """,
    "sweep": """
        SELECT resumed, extended, ended_at IS NOT NULL, coalesce(ended_at, '')
        FROM {at}.sweep WHERE id = :id
    """,
}


class MergedFile(Struct, frozen=True, kw_only=True):
    """What became of one database. Numbers are of runs in the database merged into."""

    path: Path
    schema: int | None  # version of the file's schema; None: the same file was merged before
    added: tuple[int, ...] = ()
    replaced: tuple[int, ...] = ()  # known, and went on since
    known: int = 0  # runs that were there already as they are
    removed: int = 0  # runs left out because they were removed here
    running: tuple[int, ...] = ()  # known runs left as they are because they run here now
    sweeps: int = 0  # sweeps added or replaced
    traces: int = 0  # traced programs added
    left_out: tuple[str, ...] = ()  # tables with rows that stay behind: of others, and of fleets

    def in_words(self) -> str:
        """Return a line about a file."""
        counts = (
            (self.added, f"{runs_text(self.added)} added"),
            (self.replaced, f"{runs_text(self.replaced)} replaced, which went on since"),
            (self.sweeps, f"{count(self.sweeps, 'sweep')} added"),
            (self.traces, f"{count(self.traces, 'traced program')} added"),
            (self.known, f"{count(self.known, 'run')} known"),
            (self.schema is None, "merged before, nothing new in it"),
        )
        done = [text for holds, text in counts if holds]
        return f"{self.path}: {', '.join(done) or 'no runs in it'}"

    def remarks(self) -> list[str]:
        """Return what a person should know of a file beside that."""
        was, pronoun = ("was", "it") if self.removed == 1 else ("were", "them")
        removed = count(self.removed, "run or sweep", "runs and sweeps")
        counts = (
            (
                self.removed,
                f"{removed} that {was} removed here left out; --restore brings {pronoun} back",
            ),
            (self.running, f"{runs_text(self.running)} still running here, left as it is"),
            (self.left_out, f"tables that stay behind: {truncate_list(self.left_out)}"),
        )
        return [f"{self.path}: {text}" for holds, text in counts if holds]

    def document(self) -> dict[str, Any]:
        """Return what `--json` has of a file."""
        return to_dict(self) | {"path": str(self.path), "merged_before": self.schema is None}


def merge_database(
    store: OpenDatabase, path: Path, *, restore: bool = False, bundle: Path | None = None
) -> MergedFile:
    """Merge the database at `path` into `store`'s, all or nothing. A second merge adds nothing.

    The file is only read. `restore`: runs that were removed here come back. `bundle`: the zip
    of the file; its maker may have written anything into it. Raises
    `SourceRefusedError` (an `InputError` that names the file) for what cannot be merged, with
    nothing changed, `StoreError` where `store` fails.
    """
    with suppress(OSError):  # cannot be looked at: copying says why
        if path.samefile(store.path):
            raise SourceRefusedError(f"{path}: the database to merge into itself")
    with scratch_folder() as folder:
        copy = copy_foreign(path, folder, None if bundle is None else bundle / path.name)
        if bundle is not None:
            copy = replace(copy, origin=bundle, writer=copy.writer or _MAKER_OF_BUNDLE)
        with store.reading() as connection:
            connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
            query = "SELECT 1 FROM merged_file WHERE sha256 = ?"
            before = connection.execute(query, (copy.sha256,)).fetchone()
        if before and not restore:
            return MergedFile(path=bundle or path, schema=None)
        return merge_taken(store, taken(copy), restore=restore)


def merge_taken(
    store: OpenDatabase, source: ForeignDatabase, *, restore: bool = False
) -> MergedFile:
    """Merge what came through the door."""
    with (
        store.attached(source.path, _FROM),
        store.writing(f"merging {source.copy.origin}") as connection,
    ):
        merge = _Merge(connection)
        merge.choose(restore=restore)
        merge.copy_rows()
        origin, writer = source.copy.origin, source.copy.writer
        if writer is not None:  # ours by then, and still asked for by somebody else
            for what, key, of in (("run", "id", "run"), ("sweep_point", "sweep_id", "sweep")):
                connection.executemany(
                    f"UPDATE {what} SET request = json_set(request, '$.{MERGED_FROM}', ?) "
                    f"WHERE json_valid(request) AND {key} = ?",
                    [(f"{origin}, {writer}", new) for _, new in merge.changed(of)],
                )
        connection.execute(
            "INSERT OR REPLACE INTO merged_file (sha256, name) VALUES (?, ?)",
            (source.copy.sha256, str(origin).encode(errors="replace").decode()),
        )
        number_here = merge.here["run"]
        return MergedFile(
            path=origin,
            schema=source.schema,
            added=tuple(sorted(number_here[old] for old in merge.new["run"])),
            replaced=tuple(sorted(number_here[old] for old in merge.replaced["run"])),
            known=len(number_here) - len(merge.changed("run")) - len(merge.running),
            removed=merge.removed["run"],
            running=tuple(merge.running),
            sweeps=len(merge.changed("sweep")),
            traces=len(merge.changed("page_trace")),
            left_out=source.left_out,
        )


class _Merge:
    """Numbers of theirs, which they are here, and the rows that go along."""

    def __init__(self, connection: Database) -> None:
        self._connection = connection
        self._tables = newest_tables()
        every = [table.name for table in self._tables if not table.is_owned]
        self.here: dict[str, dict[int, int]] = {it: {} for it in every}  # theirs: ours
        self.new: dict[str, list[int]] = {it: [] for it in every}  # numbers of theirs
        self.replaced: dict[str, list[int]] = {it: [] for it in every}
        self.running: list[int] = []
        self.removed = dict.fromkeys(every, 0)
        connection.connection.create_function(
            "here", 2, lambda of, number: self.here[of].get(number)
        )

    def changed(self, root: str) -> list[tuple[int, int]]:
        """Return the numbers, there and here, of those that are added or replaced."""
        number_here = self.here[root]
        return [(old, number_here[old]) for old in (*self.new[root], *self.replaced[root])]

    def choose(self, *, restore: bool) -> None:
        """Decide of each root whether it is new here, went on since, or is unchanged."""
        for root in (table for table in self._tables if table.is_root):
            name, number = root.name, root.number
            query = (
                f"SELECT theirs.{number}, ours.{number}, theirs.uuid, theirs.uuid IN "
                f"(SELECT uuid FROM removed) FROM {_FROM}.{name} AS theirs "
                f"LEFT JOIN main.{name} AS ours USING (uuid) ORDER BY 1"
            )
            for old, known_number, uuid, is_removed in self._connection.execute(query).fetchall():
                if restore:
                    self._connection.execute("DELETE FROM removed WHERE uuid = ?", (uuid,))
                elif is_removed:
                    self.removed[name] += 1
                    continue
                if known_number is None:
                    self.new[name].append(old)
                    continue
                self.here[name][old] = known_number
                if self._progress(root, _FROM, old) <= self._progress(root, "main", known_number):
                    continue
                if not self._runs_here(root, known_number):
                    self.replaced[name].append(old)
                elif name == "run":
                    self.running.append(known_number)

    def _progress(self, root: MergeTable, at: str, number: int) -> tuple[int | str, ...]:
        """Return how far a root has got: the measure of its kind, then its number of rows."""
        query = _PROGRESS.get(root.name, "SELECT 1").format(at=at)
        got: tuple[int | str, ...] = self._connection.execute(query, {"id": number}).fetchone()
        counts = " + ".join(
            f"(SELECT count(*) FROM {at}.{table.name} WHERE {table.owner_column} = :id)"
            for table in self._tables
            if table.owner == root.name and table.name not in DERIVED
        )
        return (*got, *self._connection.execute(f"SELECT {counts}", {"id": number}).fetchone())

    def _runs_here(self, root: MergeTable, number: int) -> bool:
        """Tell whether a process of this machine is making it now."""
        if "boot_id" not in root.columns:
            return False
        status, *owner = self._connection.execute(
            f"SELECT status, pid, pid_start, boot_id FROM {root.name} WHERE id = ?", (number,)
        ).fetchone()
        return status == RunStatus.RUNNING and None not in owner and is_alive(ProcessId(*owner))

    def copy_rows(self) -> None:
        """Add the new with their rows, and write over those that went on."""
        execute = self._connection.execute
        for table in self._tables:
            columns, values = ", ".join(table.columns), ", ".join(_values(table))
            add = f"INSERT INTO main.{table.name} ({columns}) SELECT {values} "
            if table.is_root:
                one = f"FROM {_FROM}.{table.name} AS it WHERE {table.number} = ?"
                owner_here = self.here[table.name]
                for old in self.new[table.name]:
                    owner_here[old] = execute(add + one, (old,)).lastrowid or 0
                change = f"UPDATE main.{table.name} SET ({columns}) = (SELECT {values} {one})"
                for old in self.replaced[table.name]:
                    execute(f"{change} WHERE {table.number} = ?", (old, owner_here[old]))
            elif not table.is_owned:  # one that nobody refers to goes at the end
                same = " AND ".join(f"ours.{column} IS theirs.{column}" for column in table.columns)
                query = (
                    f"SELECT theirs.{table.number}, min(ours.{table.number}) "
                    f"FROM {_FROM}.{table.name} AS theirs LEFT JOIN main.{table.name} AS ours "
                    f"ON {same} GROUP BY 1"
                )
                add += f"FROM {_FROM}.{table.name} AS it WHERE {table.number} = ?"
                for old, known in execute(query).fetchall():
                    number = known or execute(add, (old,)).lastrowid or 0
                    self.here[table.name][old] = number
        self._copy_owned_rows()
        execute("DELETE FROM host WHERE id NOT IN (SELECT host_id FROM run)")

    def _copy_owned_rows(self) -> None:
        """Delete rows of replaced roots that the other database lacks, then add or replace."""
        execute = self._connection.execute
        owned = [table for table in self._tables if table.is_owned]
        for table in reversed(owned):
            others = [it for it in table.key if it not in (table.owner_column, table.number)]
            same = "".join(f" AND it.{column} = {table.name}.{column}" for column in others)
            # Rows without a key of their owner's all go.
            keep = "0" if table.number else f"it.{table.owner_column} = :old{same}"
            stale = (
                f"DELETE FROM main.{table.name} WHERE {table.owner_column} = :new AND NOT EXISTS "
                f"(SELECT 1 FROM {_FROM}.{table.name} AS it WHERE {keep})"
            )
            owner_here = self.here[table.owner]
            for old in self.replaced[table.owner]:
                execute(stale, {"old": old, "new": owner_here[old]})
        for table in owned:
            add = self._insert_owned(table)
            for old, _ in self.changed(table.owner):
                execute(add, (old,))

    def _insert_owned(self, table: MergeTable) -> str:
        """Return what adds the rows of a root, and writes over those that are there."""
        # Left out: what refers to something that is not here, where it may not refer to nothing.
        conditions = [
            f"here('{space}', it.{column}) IS NOT NULL"
            for column, space in table.numbers.items()
            if column not in table.nullable and column != table.owner_column
        ]
        # Ours may have gone another way there (a sweep resumed in two copies of a database).
        owners = {other.name: other.owner for other in self._tables}
        values = dict(zip(table.columns, _values(table), strict=True))
        for reference in table.references:
            if owners[reference.table] not in (reference.table, table.owner):
                pairs = zip(reference.columns, reference.target, strict=True)
                same = " AND ".join(
                    f"parent.{target} IS {values[column]}" for column, target in pairs
                )
                conditions.append(
                    f"EXISTS (SELECT 1 FROM main.{reference.table} AS parent WHERE {same})"
                )
        insert = (
            f"INSERT INTO main.{table.name} ({', '.join(values)}) SELECT "
            f"{', '.join(values.values())} FROM {_FROM}.{table.name} AS it WHERE "
            f"{' AND '.join((f'it.{table.owner_column} = ?', *conditions))} "
            f"ORDER BY {table.number or ', '.join(table.key)}"
        )
        if table.number:
            return insert
        rest = [
            f"{column} = excluded.{column}" for column in table.columns if column not in table.key
        ]
        then = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
        return f"{insert} ON CONFLICT ({', '.join(table.key)}) DO {then}"


def _values(table: MergeTable) -> list[str]:
    """Return what stands for each column of `it`, with numbers as they are here."""
    values = [
        f"here('{table.numbers[column]}', it.{column})"
        if column in table.numbers
        else f"it.{column}"
        for column in table.columns
    ]
    for (name, column), (field, word, root) in NUMBERS_AS_TEXT.items():
        if name == table.name:
            one = f"CAST(it.{column} AS INTEGER)"
            theirs = f"SELECT uuid FROM {_FROM}.{root} WHERE {root}.id = {one}"
            is_number = f"it.{field} = '{word}' AND it.{column} NOT GLOB '*[^0-9]*'"
            values[table.columns.index(column)] = (
                f"iif({is_number}, coalesce(here('{root}', {one}), ({theirs}), '{GONE}'), "
                f"it.{column})"
            )
    return values


# -- Databases of other machines into one: `rater fleet merge TARGET DB...`, and `rater import DB`


def merge(output: Output, target: str, sources: tuple[str, ...], restore: bool) -> int:
    """Merge each database; one that cannot be merged does not keep the others out."""
    path = Path(target)
    if output.db is not None and default_path(output.db) != path.absolute():
        raise InputError(
            f"--db {output.db}: `rater fleet merge` merges into the database that it is given "
            f"first ({path}); leave out --db"
        )
    files = list(dict.fromkeys(map(Path, sources)))
    with open_store(path) as store:
        merged, errors = merge_all(store, files, output, restore=restore)
        with store.reading() as connection:
            (removed,) = connection.execute("SELECT count(*) FROM removed").fetchone()
    if removed and any(it.schema is None for it in merged):  # such a file is not opened again
        print_error(f"{path}: what was removed from it stays out; --restore brings it back")
    if output.json:
        print_json({"files": [it.document() for it in merged], "errors": errors})
    elif len(files) > 1:
        print(_total(merged, errors, path))
    return InputError.exit_status if errors else 0


def merge_all(
    store: Store,
    sources: Sequence[Path],
    output: Output,
    *,
    restore: bool,
    bundle: Path | None = None,
) -> tuple[list[MergedFile], list[str]]:
    """Merge each, and say what became of it; return that, and why others cannot be merged."""
    merged: list[MergedFile] = []
    errors: list[str] = []
    for path in sources:
        try:
            result = merge_database(store, path, restore=restore, bundle=bundle)
        except SourceRefusedError as error:
            errors.append(str(error))
            print_error(str(error))
            continue
        merged.append(result)
        if not output.json:
            # Of many files that have nothing new the last line is enough.
            new = result.added, result.replaced, result.sweeps, result.traces
            if any(new) or len(sources) == 1:
                print(result.in_words())
            for text in result.remarks():
                print_error(text)
    return merged, errors


def _total(merged: Sequence[MergedFile], errors: Sequence[str], target: Path) -> str:
    added = sum(len(it.added) for it in merged)
    replaced = sum(len(it.replaced) for it in merged)
    before = sum(it.schema is None for it in merged)
    parts = [f"{count(added, 'run')} added"]
    parts += [f"{replaced} replaced"] if replaced else []
    parts += [f"{count(before, 'file')} merged before"] if before else []
    parts += [f"{count(len(errors), 'file')} not merged, named above"] if errors else []
    return f"{target}: {', '.join(parts)}, of {count(len(merged) + len(errors), 'file')}"
