"""The file of `-o`, checked before anything is computed."""

from __future__ import annotations

from pathlib import Path

from rater.errors import InputError
from rater.show.charts.vega import vega

_FORMATS = ("svg", "png", "pdf")


def checked_path(path: Path) -> Path:
    """Return a path where a file can be; raises `InputError` that names `-o`."""
    try:
        is_directory, has_folder = path.is_dir(), path.parent.is_dir()
        path.exists()
    except OSError as error:  # a name too long for a file, a folder that lets nobody in
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from error
    if is_directory:
        raise InputError(f"-o {path}: is a directory; expected a file in it")
    if not has_folder:
        raise InputError(f"-o {path}: there is no directory {path.parent}")
    return path


def drawing_file(name: str | None) -> Path | None:
    """Return where to draw, None: nowhere; raises `InputError` where nothing could be drawn."""
    if name is None:
        return None
    if Path(name).suffix.lower().removeprefix(".") not in _FORMATS:
        raise InputError(f"-o {name}: expected a name that ends in .svg, .png or .pdf")
    path = checked_path(Path(name))
    vega()  # before the work: it may not be installed
    return path
