"""Reading the small files of /proc and /sys: what is not there is None, never an error."""

from __future__ import annotations

import re
from pathlib import Path

_MEMINFO = re.compile(r"^(?:Node +\d+ +)?([\w()]+): +(\d+)( kB)?$", re.MULTILINE)


def read_text(path: Path) -> str | None:
    """Return what a file says without white space around it, None when that is nothing."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def read_number(path: Path) -> int | None:
    """Return the whole number a file holds, None when it holds none."""
    try:
        return int(read_text(path) or "")
    except ValueError:
        return None


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """Return what lies in a folder, sorted by name; nothing when there is no folder."""
    return sorted(folder.glob(pattern))


def meminfo(path: Path) -> dict[str, int]:
    """Return the entries of /proc/meminfo or a node's meminfo: bytes, or numbers of pages."""
    return {
        key: int(value) * (1024 if unit else 1)
        for key, value, unit in _MEMINFO.findall(read_text(path) or "")
    }
