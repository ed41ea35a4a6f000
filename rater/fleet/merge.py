"""Whole databases of other machines into one: every row of every run, once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.errors import InputError
from rater.files import scratch_folder
from rater.fleet.merge_source import (
    DERIVED,
    GONE,
    NUMBERS_AS_TEXT,
    MergeTable,
    Role,
    SourceCopy,
    SourceRefusedError,
    checked,
    copy_source,
    newest_tables,
)
from rater.plan.request import MERGED_FROM
from rater.process import ProcessId, is_alive, print_error
from rater.record.run import RunStatus
from rater.store.connection import default_path
from rater.store.open_database import OpenDatabase
from rater.store.rows import Database
from rater.store.store import Store, open_store
from rater.text.values import count, runs_text, to_dict, truncate_list
from rater.workflow.arguments import Output, print_json

# A run is the same where its uuid is. One that is not there yet gets the next number here; one that
# has gone on since (resumed, more copies, judged, searched) is replaced under the number it has;
# one that was removed here stays removed. A file is one transaction, so that a rater killed at any
# moment leaves it in whole or not at all, and two that merge into the same database take turns.

_FROM = "source"  # what the copy is called beside ours
_WAIT_MS = 120_000  # for another one that merges into the same database
_OURS = "main"
_NEW, _REPLACED, _SAME = "new", "replaced", "same"
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


class MergedFile(Struct, frozen=True):
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
        told = (
            (self.added, f"{runs_text(self.added)} added"),
            (self.replaced, f"{runs_text(self.replaced)} replaced, which went on since"),
            (self.sweeps, f"{count(self.sweeps, 'sweep')} added"),
            (self.traces, f"{count(self.traces, 'traced program')} added"),
            (self.known, f"{count(self.known, 'run')} known"),
            (self.schema is None, "merged before, nothing new in it"),
        )
        done = [text for holds, text in told if holds]
        return f"{self.path}: {', '.join(done) or 'no runs in it'}"

    def remarks(self) -> list[str]:
        """Return what a person should know of a file beside that."""
        was, it = ("was", "it") if self.removed == 1 else ("were", "them")
        removed = count(self.removed, "run or sweep", "runs and sweeps")
        told = (
            (
                self.removed,
                f"{removed} that {was} removed here left out; --restore brings {it} back",
            ),
            (self.running, f"{runs_text(self.running)} still running here, left as it is"),
            (self.left_out, f"tables that stay behind: {truncate_list(self.left_out)}"),
        )
        return [f"{self.path}: {text}" for holds, text in told if holds]

    def document(self) -> dict[str, Any]:
        """Return what `--json` has of a file."""
        return to_dict(self) | {"path": str(self.path), "merged_before": self.schema is None}


def merge_database(store: OpenDatabase, path: Path, *, restore: bool = False) -> MergedFile:
    """Merge the database at `path` into `store`'s, all or nothing; merging it again adds nothing.

    The file is only read. `restore`: runs that were removed here come back. Raises
    `SourceRefusedError` (an `InputError` that names the file) for what cannot be merged, with
    nothing changed, `StoreError` where `store` fails.
    """
    _check_not_itself(store, path)
    with scratch_folder() as folder:
        copy, sha256, writer = copy_source(path, folder)
        if _was_merged(store, sha256) and not restore:
            return MergedFile(path, None)
        source = checked(path, copy, sha256)
        with store.attached(source.path, _FROM):
            try:
                with store.writing(f"merging {path}") as connection:
                    return _merge(connection, source, path, writer, restore=restore)
            except sqlite3.IntegrityError as error:
                raise SourceRefusedError(
                    f"{path}: its rows are not as rater makes them ({error})"
                ) from error


def _check_not_itself(store: OpenDatabase, path: Path) -> None:
    with suppress(OSError):  # cannot be looked at: copying says why
        if path.samefile(store.path):
            raise SourceRefusedError(f"{path}: the database to merge into itself")


def _was_merged(store: OpenDatabase, sha256: str) -> bool:
    with store.reading() as connection:
        connection.execute(f"PRAGMA busy_timeout = {_WAIT_MS}")
        found = connection.execute("SELECT 1 FROM merged_file WHERE sha256 = ?", (sha256,))
        return found.fetchone() is not None


def _merge(
    connection: Database,
    source: SourceCopy,
    path: Path,
    writer: str | None,
    *,
    restore: bool,
) -> MergedFile:
    tables = newest_tables()
    roots = [it for it in tables if it.role is Role.ROOT]
    running: list[int] = []
    for table in tables:
        if table.role is not Role.OWNED:
            _make_map(connection, table)
    removed = {
        root.name: _choose(connection, root, tables, running, restore=restore) for root in roots
    }
    for table in tables:
        if table.role is Role.SHARED:
            _merge_shared(connection, table, tables)
    for root in roots:
        _merge_root(connection, root)
    owned = [it for it in tables if it.role is Role.OWNED]
    for table in reversed(owned):
        _remove_stale(connection, table)
    for table in owned:
        connection.execute(_insert_owned(table, tables))
    if writer is not None:  # ours by then, and still asked for by somebody else
        for what, key, of in (("run", "id", "run"), ("sweep_point", "sweep_id", "sweep")):
            new = f"SELECT new FROM temp.{_map(of)} WHERE state <> '{_SAME}'"
            connection.execute(
                f"UPDATE {what} SET request = json_set(request, '$.{MERGED_FROM}', ?) "
                f"WHERE json_valid(request) AND {key} IN ({new})",
                (f"{path}, {writer}",),
            )
    connection.execute(
        "INSERT OR REPLACE INTO merged_file (sha256, name) VALUES (?, ?)",
        (source.sha256, str(path).encode(errors="replace").decode()),
    )

    def numbers(root: str, *states: str) -> tuple[int, ...]:
        query = f"SELECT new, state FROM temp.{_map(root)} ORDER BY new"
        return tuple(number for number, state in connection.execute(query) if state in states)

    result = MergedFile(
        path=path,
        schema=source.schema,
        added=numbers("run", _NEW),
        replaced=numbers("run", _REPLACED),
        known=len(numbers("run", _SAME)) - len(running),
        removed=removed["run"],
        running=tuple(running),
        sweeps=len(numbers("sweep", _NEW, _REPLACED)),
        traces=len(numbers("page_trace", _NEW, _REPLACED)),
        left_out=source.left_out,
    )
    for table in tables:
        if table.role is not Role.OWNED:
            connection.execute(f"DROP TABLE temp.{_map(table.name)}")
    return result


# -- numbers of theirs, and which they are here ----------------------------------------------------


def _map(table: str) -> str:
    return f"merge_{table}"


def _make_map(connection: Database, table: MergeTable) -> None:
    connection.execute(f"DROP TABLE IF EXISTS temp.{_map(table.name)}")
    connection.execute(
        f"CREATE TEMP TABLE {_map(table.name)} "
        "(old INTEGER PRIMARY KEY, new INTEGER, state TEXT NOT NULL)"
    )


def _choose(
    connection: Database,
    root: MergeTable,
    tables: tuple[MergeTable, ...],
    running: list[int],
    *,
    restore: bool,
) -> int:
    """Fill the map of a root with what is to be done; return how many were removed here."""
    name, number = root.name, root.number
    theirs = f"SELECT uuid FROM {_FROM}.{name}"
    if restore:
        connection.execute(f"DELETE FROM removed WHERE uuid IN ({theirs})")
    (removed,) = connection.execute(
        f"SELECT count(*) FROM removed WHERE uuid IN ({theirs})"
    ).fetchone()
    connection.execute(
        f"INSERT INTO temp.{_map(name)} "
        f"SELECT theirs.{number}, ours.{number}, iif(ours.{number} IS NULL, '{_NEW}', '{_SAME}') "
        f"FROM {_FROM}.{name} AS theirs LEFT JOIN {_OURS}.{name} AS ours USING (uuid) "
        f"WHERE uuid NOT IN (SELECT uuid FROM removed) ORDER BY theirs.{number}"
    )
    both = connection.execute(
        f"SELECT old, new FROM temp.{_map(name)} WHERE state = '{_SAME}'"
    ).fetchall()
    for old, new in both:
        theirs_at = _progress(connection, root, tables, _FROM, old)
        if theirs_at <= _progress(connection, root, tables, _OURS, new):
            continue
        if _runs_here(connection, root, new):
            running += [new] if name == "run" else []
            continue
        connection.execute(
            f"UPDATE temp.{_map(name)} SET state = '{_REPLACED}' WHERE old = ?", (old,)
        )
    return int(removed)


def _progress(
    connection: Database,
    root: MergeTable,
    tables: tuple[MergeTable, ...],
    schema: str,
    number: int,
) -> tuple[int | str, ...]:
    """Return how far a root has got: what is known of its kind, then how many rows hang on it."""
    known = _PROGRESS.get(root.name)
    got: tuple[int | str, ...] = ()
    if known:
        got = connection.execute(known.format(at=schema), {"id": number}).fetchone()
    rows = sum(
        connection.execute(
            f"SELECT count(*) FROM {schema}.{it.name} WHERE {it.owner_column} = ?", (number,)
        ).fetchone()[0]
        for it in tables
        if it.owner == root.name and it.name not in DERIVED
    )
    return (*got, rows)


def _runs_here(connection: Database, root: MergeTable, number: int) -> bool:
    """Tell whether a process of this machine is making it now."""
    if "boot_id" not in root.columns:
        return False
    status, *owner = connection.execute(
        f"SELECT status, pid, pid_start, boot_id FROM {_OURS}.{root.name} WHERE id = ?", (number,)
    ).fetchone()
    return status == RunStatus.RUNNING and None not in owner and is_alive(ProcessId(*owner))


# -- rows ------------------------------------------------------------------------------------------


def _merge_shared(connection: Database, table: MergeTable, tables: tuple[MergeTable, ...]) -> None:
    """Add the rows that are wanted and not there, and map all that are."""
    name, columns = table.name, ", ".join(table.columns)
    same = " AND ".join(f"ours.{it} IS theirs.{it}" for it in table.columns)
    wanted = " UNION ".join(
        f"SELECT of.{column} FROM {_FROM}.{it.name} AS of "
        f"JOIN temp.{_map(it.owner)} AS owner ON owner.old = of.{it.owner_column} "
        f"WHERE owner.state <> '{_SAME}'"
        for it in tables
        if it.owner
        for column, space in it.numbers.items()
        if space == name
    )
    connection.execute(
        f"INSERT INTO {_OURS}.{name} ({columns}) SELECT DISTINCT {columns} "
        f"FROM {_FROM}.{name} AS theirs WHERE theirs.{table.number} IN ({wanted}) AND NOT EXISTS "
        f"(SELECT 1 FROM {_OURS}.{name} AS ours WHERE {same})"
    )
    connection.execute(
        f"INSERT INTO temp.{_map(name)} "
        f"SELECT theirs.{table.number}, min(ours.{table.number}), '{_SAME}' "
        f"FROM {_FROM}.{name} AS theirs JOIN {_OURS}.{name} AS ours ON {same} "
        f"GROUP BY theirs.{table.number}"
    )


def _merge_root(connection: Database, root: MergeTable) -> None:
    """Add the new ones in the order of their numbers there, write over those that went on."""
    name, number = root.name, root.number
    values, joins = _values(root)
    columns = ", ".join(root.columns)
    connection.execute(
        f"INSERT INTO {_OURS}.{name} ({columns}) SELECT {', '.join(values)} "
        f"FROM temp.{_map(name)} AS owner JOIN {_FROM}.{name} AS it ON it.{number} = owner.old "
        f"{joins} WHERE owner.state = '{_NEW}' ORDER BY owner.old"
    )
    connection.execute(
        f"UPDATE temp.{_map(name)} SET new = (SELECT ours.{number} FROM {_OURS}.{name} AS ours "
        f"JOIN {_FROM}.{name} AS theirs USING (uuid) WHERE theirs.{number} = old) "
        f"WHERE state = '{_NEW}'"
    )
    connection.execute(
        f"UPDATE {_OURS}.{name} SET ({columns}) = (SELECT {', '.join(values)} "
        f"FROM temp.{_map(name)} AS owner JOIN {_FROM}.{name} AS it ON it.{number} = owner.old "
        f"{joins} WHERE owner.new = {name}.{number}) WHERE {number} IN "
        f"(SELECT new FROM temp.{_map(name)} WHERE state = '{_REPLACED}')"
    )


def _remove_stale(connection: Database, table: MergeTable) -> None:
    """Remove what those that went on do not have any more; rows without a key all go."""
    replaced = (
        f"SELECT new FROM temp.{_map(table.owner or '')} AS owner WHERE state = '{_REPLACED}'"
    )
    gone = f"DELETE FROM {_OURS}.{table.name} WHERE {table.owner_column} IN ({replaced})"
    if not table.number:
        others = [it for it in table.key if it != table.owner_column]
        same = "".join(f" AND it.{column} = {table.name}.{column}" for column in others)
        gone += (
            f" AND NOT EXISTS (SELECT 1 FROM temp.{_map(table.owner or '')} AS owner "
            f"JOIN {_FROM}.{table.name} AS it ON it.{table.owner_column} = owner.old "
            f"WHERE owner.new = {table.name}.{table.owner_column}{same})"
        )
    connection.execute(gone)


def _insert_owned(table: MergeTable, tables: tuple[MergeTable, ...]) -> str:
    """Return what adds the rows of the new, and of those that went on: written over."""
    values, joins = _values(table)
    order = table.number or ", ".join(f"it.{name}" for name in table.key)
    insert = (
        f"INSERT INTO {_OURS}.{table.name} ({', '.join(table.columns)}) "
        f"SELECT {', '.join(values)} FROM temp.{_map(table.owner or '')} AS owner "
        f"CROSS JOIN {_FROM}.{table.name} AS it ON it.{table.owner_column} = owner.old {joins} "
        f"WHERE owner.state <> '{_SAME}'{_with_parents(table, tables)} "
        f"ORDER BY owner.old, {order}"
    )
    if table.number:
        return insert
    rest = [it for it in table.columns if it not in table.key]
    change = ", ".join(f"{it} = excluded.{it}" for it in rest)
    then = f"UPDATE SET {change}" if rest else "NOTHING"
    return f"{insert} ON CONFLICT ({', '.join(table.key)}) DO {then}"


def _with_parents(table: MergeTable, tables: tuple[MergeTable, ...]) -> str:
    """Return the condition that rows of another root's, which this one refers to, are there.

    Ours may have gone another way there (a sweep resumed in two copies of a database).
    """
    owner_of = {it.name: it for it in tables}
    conditions = []
    for reference in table.references:
        other = owner_of[reference.table]
        if other.role is Role.OWNED and other.owner != table.owner:
            same = " AND ".join(
                f"parent.{there} IS {_value(table, here)[0]}"
                for here, there in zip(reference.columns, reference.target, strict=True)
            )
            conditions.append(
                f" AND EXISTS (SELECT 1 FROM {_OURS}.{other.name} AS parent WHERE {same})"
            )
    return "".join(conditions)


def _values(table: MergeTable) -> tuple[list[str], str]:
    """Return what stands for each column, with numbers as they are here, and the joins for it.

    A row that refers to something that is not here is left out, or refers to nothing where it may.
    """
    values, joins = [], []
    for column in table.columns:
        value, join = _value(table, column)
        values.append(value)
        joins += [join] if join else []
    return values, " ".join(joins)


def _value(table: MergeTable, column: str) -> tuple[str, str | None]:
    as_text = NUMBERS_AS_TEXT.get((table.name, column))
    if as_text:
        field, word, root = as_text
        one = f"CAST(it.{column} AS INTEGER)"
        here = f"SELECT new FROM temp.{_map(root)} WHERE old = {one}"
        theirs = f"SELECT uuid FROM {_FROM}.{root} WHERE {root}.id = {one}"
        known = f"coalesce(({here}), ({theirs}), '{GONE}')"
        is_number = f"it.{field} = '{word}' AND it.{column} NOT GLOB '*[^0-9]*'"
        return f"iif({is_number}, {known}, it.{column})", None
    space = table.numbers.get(column)
    if space is None:
        return f"it.{column}", None
    if space == table.owner and column == table.owner_column:
        return "owner.new", None
    kind = "LEFT JOIN" if column in table.nullable else "JOIN"
    join = f"{kind} temp.{_map(space)} AS of_{column} ON of_{column}.old = it.{column}"
    return f"of_{column}.new", join


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
    if output.json:
        print_json({"files": [it.document() for it in merged], "errors": errors})
    elif len(files) > 1:
        print(_total(merged, errors, path))
    return InputError.exit_status if errors else 0


def merge_all(
    store: Store, sources: Sequence[Path], output: Output, *, restore: bool
) -> tuple[list[MergedFile], list[str]]:
    """Merge each, and say what became of it; return that, and why others cannot be merged."""
    merged: list[MergedFile] = []
    errors: list[str] = []
    for path in sources:
        try:
            result = merge_database(store, path, restore=restore)
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
