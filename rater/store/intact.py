"""Is a database of somebody else whole? Asked of a copy, before a row of it is believed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rater.errors import InputError

_HEAD_BYTES = 100
_MAGIC = b"SQLite format 3\x00"


def refuse_damaged(path: Path) -> None:
    """Raise `InputError` for a file that is cut, overwritten, or refers to rows that are not there.

    What it looks at: the header, the length that the header tells (sqlite.org/fileformat.html,
    1.3), `PRAGMA quick_check` and `PRAGMA foreign_key_check`. A flipped byte inside a value passes:
    only a SHA-256 tells. No SQL that the file holds is run. The file must be nobody else's: not
    one that this process has open (fcntl locks).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head.startswith(_MAGIC) or len(head) < _HEAD_BYTES:
        raise InputError("no SQLite database")
    page = int.from_bytes(head[16:18], "big")
    told = int.from_bytes(head[28:32], "big") * (65536 if page == 1 else page)
    # The length is that of the last writer: valid where it stands beside its change counter.
    if head[24:28] == head[92:96] and told and told != size:
        raise InputError(f"cut or grown: it has {size} bytes, and its header tells {told}")
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, autocommit=True)) as connection:
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, False)
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_VIEW, False)
            connection.setconfig(sqlite3.SQLITE_DBCONFIG_TRUSTED_SCHEMA, False)
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise InputError(f"damaged: {str(found).splitlines()[0]}")
            orphan = connection.execute("PRAGMA foreign_key_check").fetchone()
            if orphan is not None:
                raise InputError(f"damaged: a row of {orphan[0]} belongs to no row of {orphan[2]}")
    except sqlite3.Error as error:
        raise InputError(f"damaged: {error}") from error
