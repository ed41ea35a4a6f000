"""The file of `-o`, checked before anything is computed."""

from __future__ import annotations

from pathlib import Path

from rater.errors import InputError
from rater.show.charts.vega import vega

_FORMATS = ("svg", "png", "pdf")


def checked_file(name: str) -> Path:
    """Return where to draw; raises `InputError` where nothing could be drawn."""
    path = Path(name)
    if path.suffix.lower().removeprefix(".") not in _FORMATS:
        raise InputError(f"-o {name}: expected a name that ends in .svg, .png or .pdf")
    if path.is_dir():
        raise InputError(f"-o {name}: is a directory; expected a file in it")
    if not path.parent.is_dir():
        raise InputError(f"-o {name}: there is no directory {path.parent}")
    vega()  # before the work: it may not be installed
    return path
