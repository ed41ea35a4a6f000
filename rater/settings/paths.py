"""Where the machine's settings and the journal of changed ones are; cheap, for every command."""

from __future__ import annotations

import os
from pathlib import Path

_MACHINE = Path("/var/lib/rater/settings.json")


def sysroot() -> Path:
    """Return the folder below which `sys` and `proc/sys` are: `/`.

    `RATER_SYSROOT` names another one, for tests with a tree of plain files.
    """
    return Path(os.environ.get("RATER_SYSROOT") or "/")


def default_journal_path() -> Path:
    """Return where changed settings are journalled.

    `RATER_JOURNAL`; else for root /var/lib/rater/settings.json, which is the machine's; else
    $XDG_STATE_HOME/rater/settings.json (~/.local/state). Never below /run or /tmp: it has to
    survive a power loss, after which it tells that there is nothing to put back.
    """
    named = os.environ.get("RATER_JOURNAL")
    if named:
        return Path(named)
    return _MACHINE if os.geteuid() == 0 else _own()


def journal_paths() -> tuple[Path, ...]:
    """Return where journals that concern this user may be: root's of the machine, and their own."""
    if os.environ.get("RATER_JOURNAL") or os.geteuid() == 0:
        return (default_journal_path(),)
    return (_MACHINE, _own())


def is_there(path: Path) -> bool:
    """Tell whether a file is there; what cannot be looked at is not."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def _own() -> Path:
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local/state"
    return base / "rater/settings.json"
