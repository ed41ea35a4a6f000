"""Databases that nodes published, kept whole: compressed, each under the SHA-256 of its bytes.

xz at its fastest levels takes 13 % of a database's size, in 10 to 25 ms; gzip 15 %, bzip2 14 %,
xz at its default 12 % in 50 to 130 ms (a run of 14 benchmarks, three to six iterations).
"""

from __future__ import annotations

import hashlib
import lzma
import os
import secrets
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rater.errors import RunError
from rater.store.store import Store, open_store
from rater.trusted_files import flush_folder, open_file, private_folder

_PRESET = 1
_CHUNK = 1 << 20
_DAY_S = 86400


def archive_folder(connection: sqlite3.Connection) -> Path:
    """Return where the archive of an open database is: the folder NAME.archive beside it."""
    path = Path(connection.execute("PRAGMA database_list").fetchone()[2])
    return path.with_name(f"{path.name}.archive")


def pack(database: Path, folder: Path) -> Path:
    """Compress a database into the archive's `folder`, under a name that is in nobody's way.

    `keep` gives it its name. Raises `OSError` where the archive cannot be written.
    """
    folder = private_folder(folder)
    _sweep(folder)
    part = folder / f".{secrets.token_hex(8)}.part"
    number = open_file(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(number, "wb") as raw, database.open("rb") as plain:
            with lzma.open(raw, "wb", preset=_PRESET) as packed:
                shutil.copyfileobj(plain, packed, _CHUNK)
            raw.flush()
            os.fsync(raw.fileno())
    except BaseException:
        drop(part)
        raise
    return part


def keep(part: Path, folder: Path, sha256: str) -> None:
    """Give what `pack` made its name; the same database twice is one file."""
    file = _file(folder, sha256)
    private_folder(file.parent)
    part.replace(file)
    flush_folder(file.parent)


def drop(part: Path) -> None:
    """Remove what `pack` made and nobody wants."""
    with suppress(FileNotFoundError):
        part.unlink()


def forget(connection: sqlite3.Connection, sha256: str) -> None:
    """Remove an archived database that no row refers to any more."""
    used = connection.execute("SELECT 1 FROM fleet_run WHERE sha256 = ? LIMIT 1", (sha256,))
    if used.fetchone() is None:
        drop(_file(archive_folder(connection), sha256))


@contextmanager
def opened(connection: sqlite3.Connection, sha256: str, size: int) -> Iterator[Store]:
    """Open an archived database: a copy, brought up to date, gone afterwards.

    Raises `RunError` where it is gone or damaged.
    """
    with tempfile.TemporaryDirectory(prefix="rater-archive-") as scratch:
        path = unpack(connection, sha256, size, Path(scratch))
        with open_store(path) as store:
            yield store


def unpack(connection: sqlite3.Connection, sha256: str, size: int, into: Path) -> Path:
    """Write an archived database of `size` bytes into a folder; return the file.

    Raises `RunError` where it is gone or damaged.
    """
    path = into / f"{sha256}.db"
    _unpack(_file(archive_folder(connection), sha256), path, sha256, size)
    return path


def _sweep(folder: Path) -> None:
    """Remove parts of raters that were killed: nobody takes a day for one."""
    for part in folder.glob(".*.part"):
        with suppress(FileNotFoundError):
            if time.time() - part.stat().st_mtime > _DAY_S:
                part.unlink()


def _unpack(file: Path, path: Path, sha256: str, size: int) -> None:
    digest, left = hashlib.sha256(), size
    way_out = "collect its fleet again where the published file is still there"
    try:
        with (
            os.fdopen(open_file(file, os.O_RDONLY), "rb") as raw,
            lzma.open(raw) as packed,
            path.open("xb") as copy,
        ):
            while left >= 0 and (chunk := packed.read(_CHUNK)):
                left -= len(chunk)
                digest.update(chunk)
                copy.write(chunk)
    except (OSError, EOFError, lzma.LZMAError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise RunError(
            f"{file}: the archived database cannot be read ({what}); {way_out}"
        ) from error
    if left or digest.hexdigest() != sha256:
        raise RunError(f"{file}: the archived database is damaged (its SHA-256 differs); {way_out}")


def _file(folder: Path, sha256: str) -> Path:
    return folder / sha256[:2] / f"{sha256}.db.xz"
