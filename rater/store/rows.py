"""Structs in and out of tables, and the tables: made, brought up to date, compared."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from datetime import datetime
from enum import Enum
from functools import cache
from inspect import get_annotations
from itertools import batched, chain, repeat
from math import isfinite
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from msgspec import NODEFAULT

from rater.system.errors import InputError
from rater.system.paths import data_folder
from rater.text.cpuset import format_list, parse_list
from rater.text.kinds import describe_value, from_json
from rater.text.values import truncate_list

type Value = str | int | float | bytes | None

# The same few lists, copy after copy.
_encode_list = cache(format_list)
_decode_list = cache(parse_list)


def _encode_pairs(pairs: tuple[tuple[int, int], ...]) -> str:
    return "{" + ", ".join([f'"{key}": {value}' for key, value in pairs]) + "}"


def _decode_pairs(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(key), value) for key, value in from_json(dict[str, int], text).items())


# How values that are no SQL values stand in a column, and how they come back.
_CODECS: dict[Any, tuple[Callable[[Any], Value], Callable[[Any], Any]]] = {
    tuple[int, ...]: (_encode_list, _decode_list),
    tuple[tuple[int, int], ...]: (_encode_pairs, _decode_pairs),
    tuple[str, ...]: (json.dumps, lambda text: from_json(tuple[str, ...], text)),
    dict[str, float]: (json.dumps, lambda text: from_json(dict[str, float], text)),
}
_NUMBERS = tuple[int, ...]  # where a field of these has no None, an empty one is NULL if it may

_ROWS_AT_ONCE = 32
_ROWS_READ_AT_ONCE = 1000


class Database:
    """A connection of SQLite with rows of it as Structs, in and out."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany
        self._columns: dict[str, dict[str, bool]] = {}  # of a table, and whether it may be NULL
        self._writers: dict[Any, tuple[str, tuple[str, ...], Callable[[Any], Sequence[Value]]]] = {}

    def insert(
        self, table: str, row: object = None, *, replace: bool = False, **columns: Value
    ) -> int:
        """Insert a row; return its number.

        The columns are the attributes of `row` that the table has, and `columns`, which go before
        an attribute of the same name.
        """
        verb, names, values_of = self._writer(table, type(row), tuple(columns), replace)
        statement = _statement(verb, names, 1)
        return self.execute(statement, (*columns.values(), *values_of(row))).lastrowid or 0

    def insert_all(
        self, table: str, rows: Iterable[object], *, replace: bool = False, **more: Value
    ) -> None:
        """Insert rows of one class, all with the same `more`.

        Several rows a statement: for each statement SQLite makes the lists of CHECK anew, which
        takes half of the time of a row of `copy`. Columns that are NULL in all of them are left
        out, most of those of an imported run: NULL is the default of each that may be it.
        """
        same, may_be_null = tuple(more.values()), self.columns_of(table)
        for some in _batches_of_few_sizes(rows):
            verb, names, values_of = self._writer(table, type(some[0]), tuple(more), replace)
            values = [(*same, *values_of(row)) for row in some]
            columns = {
                name: column
                for name, column in zip(names, zip(*values, strict=True), strict=True)
                if column.count(None) < len(values) or not may_be_null[name]
            }
            given = [*chain.from_iterable(zip(*columns.values(), strict=True))]
            self.execute(_statement(verb, tuple(columns), len(values)), given)

    def read[T](
        self,
        kind: type[T],
        query: str,
        *,
        finish: Callable[[dict[str, Any]], None] | None = None,
        **parameters: Value,
    ) -> list[T]:
        """Return the rows of a query as `kind`; `finish` makes fields of what are none.

        Raises `InputError` for a value that is not of its field's type.
        """
        return self.read_by(kind, query, (), finish=finish, **parameters)[()]

    def read_by[T](
        self,
        kind: type[T],
        query: str,
        keys: tuple[str, ...],
        *,
        finish: Callable[[dict[str, Any]], None] | None = None,
        **parameters: Value,
    ) -> defaultdict[tuple[Any, ...], list[T]]:
        """Return the same by the columns called `keys`, which are no fields."""
        rows_by_key: defaultdict[tuple[Any, ...], list[T]] = defaultdict(list)
        for columns in self.read_columns(kind, query, **parameters):
            if finish:
                for row in zip(*columns.values(), strict=True):
                    values = dict(zip(columns, row, strict=True))
                    finish(values)
                    rows_by_key[tuple([values.pop(name) for name in keys])].append(kind(**values))
                continue
            row_keys = (
                zip(*[columns.pop(name) for name in keys], strict=True) if keys else repeat(())
            )
            for key, row_of_kind in zip(row_keys, rows_of_columns(kind, columns), strict=False):
                rows_by_key[key].append(row_of_kind)
        return rows_by_key

    def read_columns(
        self, kind: type[Any], query: str, **parameters: Value
    ) -> Iterator[dict[str, Sequence[Any]]]:
        """Yield the columns of some rows at a time, by name, with values as the fields of `kind`.

        A value that comes again is decoded once.
        """
        cursor = self.execute(query, parameters)
        names = tuple([column[0] for column in cursor.description])
        struct: Any = kind
        decoders = _decoders(struct, names)
        while rows := cursor.fetchmany(_ROWS_READ_AT_ONCE):
            columns: dict[str, Sequence[Any]] = dict(
                zip(names, zip(*rows, strict=True), strict=True)
            )
            for name, types, decode, nothing in decoders:
                self.check_types(name, columns[name], types)
                if decode is None:
                    continue
                decoded = {None: nothing}
                for value in {*columns[name]} - decoded.keys():
                    try:
                        decoded[value] = decode(value)
                    except (ValueError, TypeError, AttributeError) as error:
                        raise self._damaged(name, value, f" ({error})") from error
                columns[name] = [decoded[value] for value in columns[name]]
            yield columns

    def read_table[T](
        self,
        kind: type[T],
        table: str,
        *,
        order: str = "1",
        finish: Callable[[dict[str, Any]], None] | None = None,
        **where: Value,
    ) -> tuple[T, ...]:
        """Return the rows of a table that have these values, columns that are fields of `kind`."""
        struct: Any = kind
        fields = struct.__struct_fields__
        names = ", ".join(name for name in self.columns_of(table) if name in fields)
        conditions = " AND ".join(f"{name} = :{name}" for name in where)
        query = f"SELECT {names} FROM {table} WHERE {conditions} ORDER BY {order}"
        return tuple(self.read(kind, query, finish=finish, **where))

    def read_values(self, query: str, *kinds: Any, **parameters: Value) -> list[Any]:
        """Return the rows of a query as they are, their columns of these kinds (`str | None`).

        Raises `InputError` for a value of another kind.
        """
        cursor = self.execute(query, parameters)
        rows = cursor.fetchall()
        enums: dict[int, Any] = {}
        for number, (kind, column) in enumerate(
            zip(kinds, zip(*rows, strict=True), strict=bool(rows))
        ):
            self.check_types(cursor.description[number][0], column, _storage_types(kind))
            if isinstance(kind, type) and issubclass(kind, Enum):
                enums[number] = kind
        if not enums:
            return rows
        columns = [*zip(*rows, strict=True)]
        for number, kind in enums.items():
            try:
                columns[number] = tuple(map(kind, columns[number]))
            except ValueError as error:
                name = cursor.description[number][0]
                raise self._damaged(name, None, f" ({error})") from error
        return [*zip(*columns, strict=True)]

    def check_types(self, name: str, column: Iterable[Value], types: Set[type]) -> None:
        """Raise `InputError` where a column that was read has a value of another type."""
        if not types >= {*map(type, column)}:
            raise self._damaged(name, next(value for value in column if type(value) not in types))

    def _damaged(self, name: str, value: Value | bytes, why: str = "") -> InputError:
        path = self.execute("PRAGMA database_list").fetchone()[2]
        return InputError(
            f"{path}: a row is damaged: {name} is {describe_value(value)}{why}; remove its run "
            "with `rater rm RUN`, or name another database with --db"
        )

    def columns_of(self, table: str) -> dict[str, bool]:
        """Return the columns of a table, each with whether it may be NULL."""
        if table not in self._columns:
            query = 'SELECT name, NOT "notnull" FROM pragma_table_info(?)'
            self._columns[table] = dict(self.execute(query, (table,)).fetchall())
        return self._columns[table]

    def _writer(
        self, table: str, kind: type[Any], names: tuple[str, ...], replace: bool
    ) -> tuple[str, tuple[str, ...], Callable[[Any], Sequence[Value]]]:
        key = (table, kind, names, replace)
        if key not in self._writers:
            columns = self.columns_of(table)
            row_names = [name for name in columns if name not in names and hasattr(kind, name)]
            verb = f"INSERT{' OR REPLACE' if replace else ''} INTO {table}"
            encoders = [
                (place, encode)
                for place, name in enumerate(row_names)
                if (encode := _encoder(kind, name, nullable=columns[name]))
            ]
            self._writers[key] = (verb, (*names, *row_names), _make_reader(row_names, encoders))
        return self._writers[key]


@cache
def _statement(verb: str, names: tuple[str, ...], rows: int) -> str:
    marks = f"({', '.join('?' * len(names))})"
    return f"{verb} ({', '.join(names)}) VALUES {', '.join([marks] * rows)}"


def _batches_of_few_sizes[Row](rows: Iterable[Row]) -> Iterator[tuple[Row, ...]]:
    """Return rows as many at a time as few statements are for: what is left by powers of two."""
    for batch in batched(rows, _ROWS_AT_ONCE):
        size, rest = _ROWS_AT_ONCE, batch
        while rest:
            if size <= len(rest):
                yield rest[:size]
                rest = rest[size:]
            size //= 2


def rows_of_columns[T](kind: type[T], columns: Mapping[str, Iterable[Any]]) -> Iterator[T]:
    """Return Structs from columns that have the names of its fields; missing ones get the default.

    Structs that are not keyword-only are made by position: a million rows of copies take half the
    time.
    """
    struct: Any = kind
    names = struct.__struct_fields__
    if not set(names) >= columns.keys():
        raise TypeError(f"{kind.__name__} has no {', '.join(columns.keys() - set(names))}")
    if struct.__match_args__ != names:
        rows = zip(*columns.values(), strict=True)
        return (struct(**dict(zip(columns, row, strict=True))) for row in rows)
    defaults = defaults_of(struct)
    return map(
        kind, *(columns[name] if name in columns else repeat(defaults[name]) for name in names)
    )


def defaults_of(kind: Any) -> dict[str, Any]:
    """Return the values of fields of a Struct that it need not be given."""
    names, values = kind.__struct_fields__, kind.__struct_defaults__
    pairs = zip(names[len(names) - len(values) :], values, strict=True)
    return {name: value for name, value in pairs if value is not NODEFAULT}


def _make_reader(
    names: Sequence[str], encoders: Sequence[tuple[int, Callable[[Any], Value]]]
) -> Callable[[Any], Sequence[Value]]:
    if not names:
        return lambda _: ()
    several = attrgetter(*names, names[0])  # of one name alone it would give no tuple

    def take(row: Any) -> Sequence[Value]:
        values = [*several(row)]
        values.pop()
        for place, encode in encoders:
            if values[place] is not None:
                values[place] = encode(values[place])
        return values

    return take


def _encoder(kind: Any, name: str, *, nullable: bool) -> Callable[[Any], Value] | None:
    hint, optional = _field_type(kind, name)
    if hint == _NUMBERS and nullable and not optional:
        return lambda numbers: _encode_list(numbers) or None
    return _CODECS[hint][0] if hint in _CODECS else None


def _decoder(kind: Any, name: str) -> tuple[frozenset[type], Callable[[Any], Any] | None, Any]:
    """Return the types that a column may have, what makes a field's value, and that for NULL."""
    hint, optional = _field_type(kind, name)
    types = _storage_types(hint | None if optional and isinstance(hint, type) else hint)
    field_types = _ANY if optional else _ANY - {NoneType}
    if hint in _CODECS:
        empty = hint == _NUMBERS and not optional
        return _ANY if empty else field_types, _CODECS[hint][1], () if empty else None
    if isinstance(hint, type) and issubclass(hint, Enum | bool):
        return field_types, hint, None
    check = _check_finite if hint is float else _check_moment if name.endswith("_at") else None
    return types, check, None


@cache
def _decoders(
    kind: Any, names: tuple[str, ...]
) -> tuple[tuple[str, frozenset[type], Callable[[Any], Any] | None, Any], ...]:
    """Return what `_decoder` says of each column; the same few lists of them, run after run."""
    return tuple((name, *_decoder(kind, name)) for name in names)


_ANY: frozenset[type] = frozenset((str, int, float, bytes, NoneType))


@cache
def _storage_types(hint: Any) -> frozenset[type]:
    """Return the types of SQLite that values of a type are stored as; what is no field's, any."""
    args: set[Any] = {*(get_args(hint) or (hint,))}
    if not args <= {str, int, float, NoneType} or args == {NoneType}:
        return _ANY
    return frozenset((*args, int) if float in args else args)


def _check_finite(value: float) -> float:
    """Return what a REAL holds. Raises `ValueError` for infinity (SQLite makes NULL of NaN)."""
    if not isfinite(value):
        raise ValueError("expected a finite number")
    return value


def _check_moment(text: str) -> str:
    """Return a time in ISO 8601. Raises `ValueError`."""
    datetime.fromisoformat(text)
    return text


@cache
def _field_type(kind: Any, name: str) -> tuple[Any, bool]:
    member = getattr(kind, name, None)
    hint = (
        get_type_hints(member.fget)["return"]
        if isinstance(member, property)
        else _field_hints(kind).get(name, NoneType)
    )
    args = get_args(hint)
    if NoneType not in args:
        return hint, False
    types = [argument for argument in args if argument is not NoneType]
    return (types[0] if len(types) == 1 else hint), True


@cache
def _field_hints(kind: Any) -> dict[str, Any]:
    """Return the types of fields by name, as `get_type_hints` does in three times the time."""
    return {
        name: _hint(annotation, base.__module__)
        for base in reversed(kind.__mro__)
        for name, annotation in get_annotations(base).items()
    }


@cache
def _hint(annotation: str, module: str) -> Any:
    """Return the type of an annotation, which most fields of a module share with others."""
    return eval(annotation, vars(sys.modules[module]))


# -- Tables and views: made, brought up to date, compared with the newest schema -------------------

BASE = 9  # version of a database that `schema.sql` made
# In db/, of the newest schema: to make that by its steps takes 30 ms of each fresh database.
COLUMNS_FILE = "columns.txt"
NEWEST_FILE = "newest.sql"

_LAST_BEFORE_BASE = "5b1e235"  # had the steps from 1 to 9
_COLUMNS = (
    "SELECT of.name, it.name FROM sqlite_schema AS of, pragma_table_info(of.name) AS it "
    "WHERE of.type = 'table'"
)


def migrations(db: Path) -> dict[int, Path]:
    """Return the files that make a database, each by the version (`PRAGMA user_version`) it makes.

    The first one makes a fresh database, the others (`migrations/0010_WHAT.sql`, ...) change it.
    """
    later = sorted((db / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    steps = dict(enumerate((db / "schema.sql", *later), BASE))
    if [int(file.name[:4]) for file in later] != list(steps)[1:]:
        raise RuntimeError(f"not numbered from {BASE + 1}: {[file.name for file in later]}")
    return steps


def migrate(connection: sqlite3.Connection, path: Path, db: Path | None = None) -> bool:
    """Make a fresh database, or apply the steps an older one has not had: all of it or nothing.

    Returns whether there was anything to do.
    A fresh one is made at once, by `newest.sql`, which is what all steps come to.
    The views are then made anew, each as its file in `views/` has it; a view that is changed
    wants a step, if an empty one. Two processes may do this at once: the second waits for the
    first and finds nothing left to do. `db` is the folder of all these files.
    """
    db = db or data_folder("db")
    steps = migrations(db)
    newest = max(steps)
    version = read_pragma(connection, "user_version")
    _check_version(version, newest, path)
    if version == newest:
        return False
    views = sorted((db / "views").glob("*.sql"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = read_pragma(connection, "user_version")
        if version < newest:
            for view in views:
                connection.execute(f"DROP VIEW IF EXISTS {view.stem}")
            at_once = frozen_text(db, NEWEST_FILE) if version == 0 else None
            later = [file for step, file in steps.items() if step > version]
            if at_once:
                connection.executescript(at_once)
            for file in views if at_once else later + views:
                connection.executescript(file.read_text(encoding="utf-8"))
            connection.execute(f"PRAGMA user_version = {newest}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return True


def frozen_text(db: Path, name: str) -> str | None:
    """Return a file that `make freeze` writes, or None if a step was added since."""
    text = (db / name).read_text(encoding="utf-8")
    first_line, _, _ = text.partition("\n")
    return text if first_line.removeprefix("-- ") == schema_version(db) else None


def _check_version(version: int, newest: int, path: Path) -> None:
    if 0 < version < BASE:
        raise InputError(
            f"{path}: made by an early rater (schema {version}; this one reads {BASE} and later); "
            f"`rater list` of rater at commit {_LAST_BEFORE_BASE} brings it up to schema {BASE}, "
            "or use another database with --db"
        )
    if version > newest:
        raise InputError(
            f"{path}: made by a newer rater (schema {version}; this one knows {newest}); "
            "upgrade rater, or use another database with --db"
        )


def refuse_drifted(database: Database) -> None:
    """Raise `InputError` where a database lacks columns of the schema that it says it has.

    A step that was edited after it had been applied leaves such ones: raters between releases
    did that, until steps were frozen (`db/released.txt`). Said before a run begins: a row that
    cannot be stored is known only when its copy has run.
    """
    missing = missing_columns(database.connection)
    if missing:
        path = database.execute("PRAGMA database_list").fetchone()[2]
        version = read_pragma(database.connection, "user_version")
        raise InputError(
            f"{path}: made by a rater between two releases: schema {version} without "
            f"{truncate_list(missing)}; no run can be added. Name another database with --db; the "
            "`sqlite3` shell reads what is in this one"
        )


def missing_columns(connection: sqlite3.Connection) -> list[str]:
    """Return what columns of the newest schema a database lacks, as TABLE.COLUMN."""
    return [
        ".".join(column)
        for column in sorted(_schema_columns().difference(connection.execute(_COLUMNS)))
    ]


@cache
def _schema_columns() -> frozenset[tuple[str, str]]:
    """Return all columns of the newest schema, each with its table."""
    db = data_folder("db")
    text = frozen_text(db, COLUMNS_FILE) or columns_text(db)
    _, *lines = text.splitlines()
    tables = (line.partition(": ") for line in lines)
    return frozenset((table, column) for table, _, names in tables for column in names.split())


def schema_version(db: Path) -> str:
    """Return how the files of the newest schema name it, in their first line."""
    return f"schema {max(migrations(db))}"


def columns_text(db: Path) -> str:
    """Return the text of the file of columns, from a database that is made in memory."""
    with closing(sqlite3.connect(":memory:", autocommit=True)) as fresh:
        migrate(fresh, Path(":memory:"), db)
        columns: defaultdict[str, list[str]] = defaultdict(list)
        for table, column in fresh.execute(_COLUMNS):
            columns[table].append(column)
    lines = [f"{table}: {' '.join(names)}" for table, names in sorted(columns.items())]
    return "\n".join([schema_version(db), *lines, ""])


def read_pragma(connection: sqlite3.Connection, pragma: str) -> int:
    """Return the whole number that a pragma has."""
    value: int = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
    return value
