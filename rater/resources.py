"""Find what lies in `suites/`, `layouts/` and `db/`, installed or in a checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """Return the folder of data files called `name`: inside the package, else beside it.

    The wheel maps `suites` to `rater/suites` and so on; an editable install or a
    checkout has them beside the package (importlib.resources does not find mapped
    packages in editable installs).
    """
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"rater's own folder {name!r} is missing beside {_PACKAGE}")
