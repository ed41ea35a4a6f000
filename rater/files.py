"""Files where others may write, and where rater's own data files lie."""

from __future__ import annotations

import errno
import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path

# A lock in /run/lock, a journal in /var/lib, a cache or database wherever a variable says: rater
# may be root, and what is called so may be anybody's symbolic link, hard link or pipe. A way
# (`resolve_trusted_folder`) is safe when nobody else can change any part of it; a file
# (`open_file`) is judged by its descriptor, so that nothing can be put in its place between the
# look and the use.

_ATTEMPTS = 100  # at a file that others make and remove all the time
_MOST_LINKS = 40  # as the kernel
_NEVER_FOLLOW = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_EVERY_USER = "4294967295"  # how many a user namespace maps that is none


class UntrustedError(OSError):
    """A file or folder is not what it should be; `strerror` says what it is."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EPERM, what, str(path))


def is_trusted(user: int) -> bool:
    """Tell whether files of a user are as good as ours: we ourselves, root, and who called sudo.

    Who may call rater by sudo is root already: rater runs any command. In a user namespace
    (rootless containers, `unshare -r`) root's own files may belong to nobody.
    """
    if user in (0, os.geteuid()):
        return True
    if os.geteuid() == 0 and str(user) == os.environ.get("SUDO_UID"):
        return True
    try:
        mapped = Path("/proc/self/uid_map").read_text().split()[-1:]
        unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False
    return user == unknown and mapped != [_EVERY_USER]


def user_name(user: int) -> str:
    """Return what a user is called, else the number."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def other_writer(path: Path) -> str | None:
    """Say who else may have written a file, in words; None: nobody but trusted users."""
    found = path.stat()
    if not is_trusted(found.st_uid):
        return f"it is a file of user {user_name(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return "everybody may write into it"
    try:
        resolve_trusted_folder(path.resolve().parent)
    except UntrustedError as error:
        return f"{error.filename}: {error.strerror}"
    return None


def resolve_trusted_folder(path: Path, *, make: bool = False) -> Path:
    """Return a folder's real path, which nobody but trusted users can lead elsewhere.

    `make`: with the folders that are missing. For root every folder and symbolic link on the way
    has to be a trusted user's; for others, who lose no more than their own, the last folder. One
    that everybody may write has to have the sticky bit. Raises `UntrustedError`, `OSError`.
    """
    here, ahead, links = Path("/"), [*reversed(path.absolute().parts[1:])], 0
    strict = os.geteuid() == 0
    while ahead:
        name = ahead.pop()
        if name == "..":
            here = here.parent
            continue
        entry = here / name
        try:
            found = entry.lstat()
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                entry.mkdir(0o755)
            found = entry.lstat()
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if strict and not is_trusted(found.st_uid):
                raise UntrustedError(entry, f"a symbolic link of user {user_name(found.st_uid)}")
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = entry.readlink()
            here = Path("/") if target.is_absolute() else here
            ahead += reversed(target.parts[target.is_absolute() :])
            continue
        if strict or not ahead:
            _check_folder(entry, found)
        here = entry
    return here


def resolve_target(path: Path) -> Path:
    """Return the file that a path means: links are followed where trusted users made them.

    It need not be there. Raises `UntrustedError` for the link of another user, `OSError`.
    """
    for _ in range(_MOST_LINKS):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(found.st_mode):
            return path
        if not is_trusted(found.st_uid):
            raise UntrustedError(path, f"a symbolic link of user {user_name(found.st_uid)}")
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def private_folder(path: Path) -> Path:
    """Make a folder where it is missing, in which only trusted users can write; return it settled.

    The sticky bit is not enough here: what is looked for in it others could have made before.
    """
    real = resolve_trusted_folder(path, make=True)
    if real.stat().st_mode & stat.S_IWOTH:
        raise UntrustedError(real, "everybody may write into it")
    return real


def open_file(path: Path, flags: int, *, mode: int = 0o600, anyones: bool = False) -> int:
    """Open a regular file of a trusted user, and only that; return its descriptor.

    `flags` as of open(2): with O_CREAT a missing file is made with `mode`, and the folders that
    it lies in. `anyones`: another user's file may be there and is opened; the caller must not
    write into it. Raises `UntrustedError`, `OSError`.
    """
    file = resolve_trusted_folder(path.parent, make=bool(flags & os.O_CREAT)) / path.name
    number = _open(file, flags & ~os.O_TRUNC | _NEVER_FOLLOW, mode)
    try:
        _check_file(file, os.fstat(number), anyones=anyones)
        if flags & os.O_TRUNC:
            os.ftruncate(number, 0)
    except BaseException:
        os.close(number)
        raise
    return number


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Put `data` in the place of a file, all or nothing, on disk when this returns.

    Raises `OSError`, and leaves nothing behind then.
    """
    file = resolve_trusted_folder(path.parent, make=True) / path.name
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)  # of one that was killed
    number = open_file(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode)
    try:
        try:
            write_all(number, data)
            os.fsync(number)
        finally:
            os.close(number)
        new.replace(file)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    flush_folder(file.parent)


def write_all(number: int, data: bytes) -> None:
    """Write all of it, however little the kernel takes at once. Raises `OSError`."""
    while data:
        data = data[os.write(number, data) :]


def flush_folder(folder: Path) -> None:
    """Let the names in a folder be on disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _open(file: Path, flags: int, mode: int) -> int:
    """Open what is there, never through a link, or make it where that is asked for."""
    try:
        for _ in range(_ATTEMPTS):
            if not flags & os.O_EXCL:
                try:
                    return os.open(file, flags & ~os.O_CREAT)
                except FileNotFoundError:
                    if not flags & os.O_CREAT:
                        raise
            try:
                return os.open(file, flags | os.O_EXCL, mode)
            except FileExistsError:
                if flags & os.O_EXCL:
                    raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UntrustedError(file, "a symbolic link, expected a file") from error
        raise
    raise UntrustedError(file, "somebody makes and removes it all the time")


def _check_file(file: Path, found: os.stat_result, *, anyones: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
        raise UntrustedError(file, f"no file but {what}")
    if found.st_nlink > 1:  # its other name may be that of a file which is nobody else's to write
        raise UntrustedError(file, f"a file of {found.st_nlink} hard links, expected one")
    if not anyones and not is_trusted(found.st_uid):
        raise UntrustedError(file, f"a file of user {user_name(found.st_uid)}")


def _check_folder(folder: Path, found: os.stat_result) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    if not is_trusted(found.st_uid):
        raise UntrustedError(folder, f"the folder belongs to user {user_name(found.st_uid)}")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UntrustedError(folder, "everybody may remove files of others from this folder")


# -- Find what lies in `suites/`, `layouts/` and `db/`, installed or in a checkout -----------------

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
