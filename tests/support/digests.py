"""What a database holds, in one number that does not depend on the numbers of its rows."""

from __future__ import annotations

import hashlib
import sqlite3

from rater.fleet.foreign import DERIVED, GONE, NUMBERS_AS_TEXT, MergeTable, newest_tables


def content_digest(connection: sqlite3.Connection) -> str:
    """Return the SHA-256 of all roots with all that hangs on them, whatever their order here.

    Two databases with the same runs and sweeps, and rows of them, have the same one. What is true
    of one database alone (what was removed from it, merged into it) is not counted.
    """
    digest = hashlib.sha256()
    for name, uuid, one in sorted(_root_digests(connection)):
        digest.update(f"{name} {uuid} {one}\n".encode())
    return digest.hexdigest()


def _root_digests(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """Return kind, uuid and SHA-256 of every root."""
    tables = newest_tables()
    identity = {
        table.name: _identities(connection, table) for table in tables if not table.is_owned
    }
    digests = []
    for root in tables:
        if root.is_root:
            of_it = [
                table for table in tables if table.owner == root.name and table.name not in DERIVED
            ]
            for number, uuid in identity[root.name].items():
                digest = hashlib.sha256()
                for table in of_it:
                    _add(connection, table, number, identity, digest)
                digests.append((root.name, uuid, digest.hexdigest()))
    return digests


def _identities(connection: sqlite3.Connection, table: MergeTable) -> dict[int, str]:
    """Return what is meant by each number: a uuid, or the whole row."""
    columns = ["uuid"] if table.is_root else table.columns
    rows = connection.execute(f"SELECT {table.number}, {', '.join(columns)} FROM {table.name}")
    root = table.is_root
    return {number: values[0] if root else repr(tuple(values)) for number, *values in rows}


def _add(
    connection: sqlite3.Connection,
    table: MergeTable,
    number: int,
    identity: dict[str, dict[int, str]],
    digest: hashlib._Hash,
) -> None:
    order = table.number or ", ".join(table.key)
    cursor = connection.execute(
        f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE {table.owner_column} = ? "
        f"ORDER BY {order}",
        (number,),
    )
    meant = [
        (table.columns.index(column), identity[space]) for column, space in table.numbers.items()
    ]
    digest.update(f"{table.name} {table.columns}\n".encode())
    as_text = [
        (table.columns.index(column), table.columns.index(field), word, identity[root])
        for (name, column), (field, word, root) in NUMBERS_AS_TEXT.items()
        if name == table.name
    ]
    while rows := cursor.fetchmany(1000):
        for row in rows:
            if not meant and not as_text:
                digest.update(repr(row).encode())
                continue
            values = list(row)
            for place, names in meant:
                values[place] = names.get(values[place])
            for place, field, word, names in as_text:
                if values[field] == word and values[place].isdecimal():
                    values[place] = names.get(int(values[place]), GONE)
            digest.update(repr(tuple(values)).encode())
