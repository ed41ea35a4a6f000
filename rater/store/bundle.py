"""What a bundle has of a database: some runs without secrets, written; and taken in, bounded."""

from __future__ import annotations

import sqlite3
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rater.store.store import redact_request
from rater.system.errors import InputError, RunError
from rater.system.files import scratch_folder
from rater.text.secrets import Redactor

DATABASE = "rater.db"  # its name in a bundle
_MAGIC = b"PK\x03\x04"
# Of a bundle of others: what is unpacked is copied once more, looked at, and merged.
_MOST_MEMBERS, _MOST_BYTES, _MOST_DATABASE_BYTES = 1000, 1 << 30, 4 << 30
_CHUNK_BYTES = 1 << 20
# Errors of zipfile: the file is damaged, encrypted, or packed in a way that it does not know.
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, NotImplementedError),
)
# Tables whose values have a name beside them that tells whether they are secrets.
_NAMED = {"setting": "env.", "environment": "", "tag": "env:"}


def extract_runs(source: Path, target: Path, runs: Sequence[int], redactor: Redactor) -> None:
    """Write a database that has these runs and nothing else, its texts as they may be shown.

    Every table that names a run comes along, whichever rater made it. Columns of keys stay as they
    are. Raises `RunError`.
    """
    connection = sqlite3.connect(target, isolation_level=None)
    try:
        connection.execute("ATTACH ? AS source", (f"file:{source}?mode=ro",))
        connection.execute("BEGIN")
        for pragma in ("application_id", "user_version"):
            (value,) = connection.execute(f"PRAGMA source.{pragma}").fetchone()
            connection.execute(f"PRAGMA main.{pragma} = {value:d}")
        objects = connection.execute(
            "SELECT type, name, sql FROM source.sqlite_master "
            "WHERE sql IS NOT NULL AND name NOT GLOB 'sqlite_*' ORDER BY type <> 'table', rowid"
        ).fetchall()
        chosen = ", ".join(map(str, map(int, runs)))
        for kind, name, sql in objects:
            connection.execute(sql)
            if kind == "table":
                _copy_rows(connection, name, chosen)
                _redact_rows(connection, name, redactor)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise RunError(f"{source}: the runs cannot be copied: {error}") from error
    finally:
        connection.close()


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, str, int]]:
    """Return name, type and place in the key (0: none) of each column."""
    rows = connection.execute(f'PRAGMA main.table_info("{table}")').fetchall()
    return [(name, kind, key) for _, name, kind, _, _, key in rows]


def _copy_rows(connection: sqlite3.Connection, table: str, chosen: str) -> None:
    names = {name for name, _, _ in _columns(connection, table)}
    condition = None
    if table == "run":
        condition = f"id IN ({chosen})"
    elif table == "host":
        condition = f"id IN (SELECT host_id FROM source.run WHERE id IN ({chosen}))"
    elif "run_id" in names and not table.startswith(("sweep", "fleet")):
        condition = f"run_id IN ({chosen})"
    if condition is not None:
        connection.execute(
            f'INSERT INTO main."{table}" SELECT * FROM source."{table}" WHERE {condition}'
        )


def _redact_rows(connection: sqlite3.Connection, table: str, redactor: Redactor) -> None:
    """Leave secrets out of every column of text that is no part of a key."""

    def redact_named(name: str, value: str) -> str:
        beginning = _NAMED[table]
        if beginning and not name.startswith(beginning):
            return redactor.redact(value)
        return redactor.redact_value(name.removeprefix(beginning), value)

    connection.create_function("redact_named", 2, redact_named)
    connection.create_function("redact", 1, redactor.redact)
    connection.create_function("redact_request", 1, lambda text: redact_request(redactor, text))
    for name, kind, key in _columns(connection, table):
        if kind != "TEXT" or key:
            continue
        call = f'redact("{name}")'
        if table in _NAMED and name == "value":
            call = 'redact_named("name", "value")'
        elif (table, name) == ("run", "request"):
            call = f'redact_request("{name}")'
        connection.execute(
            f'UPDATE main."{table}" SET "{name}" = {call} WHERE "{name}" IS NOT NULL'
        )


# -- Taking a bundle in: a file of others, of which one member is read, under a bounded size -------


def is_bundle(path: Path) -> bool:
    """Tell whether a regular file begins as a zip does."""
    try:
        if not path.is_file():  # the opening of a pipe would wait for a writer
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


@contextmanager
def bundled_database(path: Path) -> Iterator[Path]:
    """Unpack the database of a bundle into a private folder; nothing else of it is looked at.

    No name of the file decides where something is written. Raises `InputError` for what is no
    bundle, is damaged, or is too large.
    """
    expected = "expected a bundle as `rater bundle` writes it"
    with scratch_folder() as folder:
        unpacked = folder / DATABASE
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise InputError(f"{path}: more than {_MOST_BYTES >> 30} GB; {expected}")
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
                databases = [entry for entry in entries if entry.filename == DATABASE]
                if len(entries) > _MOST_MEMBERS or len(databases) != 1:
                    raise InputError(f"{path}: has not one {DATABASE}; {expected}")
                with archive.open(databases[0]) as packed, unpacked.open("xb") as file:
                    while chunk := packed.read(_CHUNK_BYTES):
                        file.write(chunk)
                        if file.tell() > _MOST_DATABASE_BYTES:
                            raise InputError(f"{path}: its {DATABASE} is too large; {expected}")
        except _DAMAGED as error:
            raise InputError(f"{path}: {error}; {expected}") from error
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}; {expected}") from error
        yield unpacked
