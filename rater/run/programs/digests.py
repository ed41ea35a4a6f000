"""Digests of files, which are not read again as long as nothing was written into them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import sleep, time_ns

from rater.run.programs.compile import key_of, sha256_of

# File systems take times from a clock that lags by one tick of the kernel, at most 10 ms.
_TICK_NS = 20_000_000
# Times in whole seconds (ext3, some NFS servers) or in steps of two (FAT).
_COARSE_NS = 3_000_000_000


def digest_once(path: Path, records: Path) -> str:
    """Return the SHA-256 of a file's content, as noted in the folder `records` if it is unchanged.

    Unchanged is what has the inode, size, mtime and ctime that it had when it was read: any
    write moves the ctime, which no program can set back. `path` must be the same string each
    time. Raises `OSError`.
    """
    record = records / key_of(str(path))[:32]
    state = state_of(path)
    try:
        noted = record.read_text().split()
    except FileNotFoundError:
        noted = []
    if noted[:-1] == state:
        return noted[-1]
    is_settled = _settled(path)
    digest = sha256_of(path)
    if is_settled and state_of(path) == state:
        records.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="tmp-", dir=records) as scratch:
            fresh = Path(scratch) / "record"
            fresh.write_text(" ".join([*state, digest]))
            fresh.replace(record)
    return digest


def state_of(path: Path) -> list[str]:
    """Return inode, size, mtime and ctime of a file. Raises `OSError`."""
    found = path.stat()
    return [str(n) for n in (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)]


def state_if_there(path: Path) -> list[str]:
    """Return the same, empty where there is no file."""
    try:
        return state_of(path)
    except OSError:
        return []


def _settled(path: Path) -> bool:
    """Tell whether a write from now on would get another ctime than the file has.

    A file of this very moment is waited for; of coarse clocks the next run will know.
    """
    changed_ns = path.stat().st_ctime_ns
    age_ns = time_ns() - changed_ns
    if changed_ns % 1_000_000_000 == 0:
        return age_ns > _COARSE_NS
    if 0 <= age_ns < _TICK_NS:
        sleep((_TICK_NS - age_ns) / 1e9)
        return True
    return age_ns >= _TICK_NS
