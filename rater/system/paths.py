"""Where files of rater and of its user lie: its own data, the machine's settings, home."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rater.system.errors import InputError

# -- Find what lies in `suites/`, `layouts/` and `db/`, installed or in a checkout -----------------

_PACKAGE = Path(__file__).resolve().parents[1]


def data_folder(name: str) -> Path:
    """Return the folder of data files called `name`: inside the package, else beside it.

    The wheel maps `suites` to `rater/suites` and so on; an editable install or a
    checkout has them beside the package (importlib.resources does not find mapped
    packages in editable installs). Raises `InputError` where it is in neither place.
    """
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise InputError(f"rater's own folder {name!r} is missing beside {_PACKAGE}; install it again")


# -- Where the machine's settings and the journal of changed ones are; cheap, for every command ----

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
    return _MACHINE if os.geteuid() == 0 else journal_paths()[-1]


def journal_paths() -> tuple[Path, ...]:
    """Return where journals that concern this user may be: the machine's, then their own."""
    if os.environ.get("RATER_JOURNAL") or os.geteuid() == 0:
        return (default_journal_path(),)
    own_folder = user_folder("STATE")
    return (_MACHINE,) if own_folder is None else (_MACHINE, own_folder / "settings.json")


def exists(path: Path) -> bool:
    """Tell whether a file is there; what cannot be looked at is not."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def is_file(path: str | Path) -> bool:
    """Tell whether there is a regular file; False also for a path that nothing can have."""
    try:
        return Path(path).is_file()
    except OSError:  # no permission on the way to it, or too long a name
        return False


def user_folder(kind: str, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return rater's folder below $XDG_KIND_HOME, else below its default; None: there is no home.

    A relative one is to be ignored (XDG base directory specification). A home that is not there is
    none: Debian's users for services have /nonexistent, which is never to be made.
    """
    base = Path(environment.get(f"XDG_{kind}_HOME") or "")
    if not base.is_absolute():
        try:
            home = Path.home()
        except RuntimeError:  # no HOME, and no line of passwd
            return None
        if not exists(home):
            return None
        base = home / _XDG[kind]
    return base / "rater"


_XDG = {"STATE": ".local/state", "DATA": ".local/share", "CACHE": ".cache", "CONFIG": ".config"}
