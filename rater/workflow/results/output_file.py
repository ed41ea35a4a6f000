"""The file of `-o`, checked before anything is computed."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from rater.errors import InputError
from rater.show.charts.vega import rendered, vega
from rater.trusted_files import UntrustedError, is_trusted, meant_file

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


def write_drawing(svg: str, path: Path) -> None:
    """Write an SVG as what the file's name says: .svg, .png or .pdf.

    Raises `InputError` where it cannot be written, or vl-convert is missing.
    """
    write_output(path, rendered(svg, path.suffix.lower().removeprefix(".")))


def write_output(path: Path, data: bytes) -> None:
    """Write a file beside its place, then put it there: nobody sees half of one.

    Who may read a file that is there already stays as it is, as if it were written over. Raises
    `InputError`.
    """
    part = None
    try:
        real = meant_file(path)  # through a link: the link stays
        if real.exists() and not real.is_file():  # a device: nothing can take its place
            _write_device(real, data)
            return
        number, part = _new_file(real.parent)
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            _give_mode(number, real)
            if part is None:
                part = real.with_name(f".rater-{secrets.token_hex(8)}")
                # With a folder's descriptor, needed or not, link(2) follows what is in /proc.
                os.link(f"/proc/self/fd/{number}", part, src_dir_fd=number)
        part.replace(real)
        part = None
    except OSError as error:
        raise InputError(f"-o {path}: cannot be written ({error.strerror})") from error
    finally:
        if part is not None:
            with suppress(OSError):
                part.unlink()


def _write_device(path: Path, data: bytes) -> None:
    """Write into what is no file: judged by its descriptor, made and emptied by nobody here."""
    if not is_trusted(path.lstat().st_uid):  # a pipe, opened for ever
        raise UntrustedError(path, "a pipe or a device of another user")
    number = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(number, "wb") as device:
        if stat.S_ISREG(os.fstat(number).st_mode):  # put there since we looked
            raise UntrustedError(path, "somebody puts something else there all the time")
        device.write(data)


def _new_file(folder: Path) -> tuple[int, Path | None]:
    """Make a private file without a name: who is killed while it is written leaves nothing.

    With one where the file system (NFS) must have it.
    """
    with suppress(OSError):
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600), None
    number, name = tempfile.mkstemp(dir=folder, prefix=".rater-")
    return number, Path(name)


def _give_mode(part: int, real: Path) -> None:
    """Give the private new file the owner and mode of that whose place it takes.

    Where there is none yet: the mode of any other new file. By descriptor, whatever others put
    in its place by now.
    """
    try:
        there = real.lstat()
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(part, 0o666 & ~umask)
        return
    with suppress(OSError):  # only root may; root must not lock the owner out of a private page
        os.fchown(part, there.st_uid, there.st_gid)
    os.fchmod(part, stat.S_IMODE(there.st_mode) & 0o777)
