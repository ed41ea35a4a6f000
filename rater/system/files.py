"""The door to files in places where other users may write.

rater may be root, and works with files in such places: a lock in /run/lock, a journal in
/var/lib, a cache or database wherever a variable says. There another user may have put a symbolic
link, a hard link or a pipe under the name. Every folder is therefore opened from the one before
it, every file from its folder, and judged by its descriptor: between the look at a file and its
use nothing can be put in its place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from rater.system.errors import InputError
from rater.system.paths import user_folder
from rater.system.patterns import compile_later

_ATTEMPTS = 100  # to open a file that others make and remove all the time
_MOST_LINKS = 40  # symbolic links on one path; the kernel follows as many (MAXSYMLINKS)
# O_PATH opens nothing: no pipe waits for its writer, and no tape rewinds.
_LOOK_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SCRATCH_PREFIX = "rater-scratch-"
_LONGEST_UNLOCKED_S = 60.0  # no rater takes so long from making its folder to locking it
# Length of the map of user ids outside of any user namespace: all 32-bit numbers but -1.
_ALL_USER_IDS = "4294967295"


class UntrustedError(OSError):
    """A file or folder that must not be used; `strerror` says whose it is, or of which kind."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(errno.EPERM, problem, str(path))


def is_trusted(user: int) -> bool:
    """Tell whether files of a user may be used as ours: our own, root's, and our sudo caller's.

    A user who may call rater by sudo has root's rights already: rater runs any command. In a user
    namespace (rootless containers, `unshare -r`) root's own files may belong to nobody.
    """
    if user in (0, os.geteuid()):
        return True
    if is_caller(user):
        return True
    try:
        mapped = Path("/proc/self/uid_map").read_text().split()[-1:]
        unknown = int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return False
    return user == unknown and mapped != [_ALL_USER_IDS]


def is_caller(user: int) -> bool:
    """Tell whether we are root because this user called sudo."""
    return os.geteuid() == 0 and str(user) == os.environ.get("SUDO_UID")


def user_name(user: int) -> str:
    """Return the name of a user, or the number when there is no name."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


class Trusted[T](NamedTuple):
    """A value that only trusted users can have written: typed by one, or let by `Sourced.trusted`.

    Functions that start processes take this type and not the bare value: mypy then finds a guard
    that was forgotten.
    """

    value: T


class Sourced[T](NamedTuple):
    """A value that was read from a file, and whether other users may have written it."""

    value: T
    doubt: str | None  # why they may have; None: only trusted users can have written it

    def with_value[U](self, value: U) -> Sourced[U]:
        """Return another value, made from this one, under the same doubt."""
        return Sourced(value, self.doubt)

    def trusted(self) -> Trusted[T]:
        """Return the value to be acted on. Raises `InputError` when there is doubt."""
        if self.doubt is not None:
            raise InputError(self.doubt)
        return Trusted(self.value)


class OpenedFile(NamedTuple):
    """A regular file that is open for nothing but looking at it (`O_PATH`), and its folder."""

    path: Path  # without links
    folder: int  # descriptor
    number: int  # descriptor of the file
    state: os.stat_result
    writer: str | None  # who may have written the file, in words; None: only trusted users

    def reopen(self) -> int:
        """Return a descriptor to read the file by. Raises `OSError`."""
        return _reopen(self.number, self.path, os.O_RDONLY | _OPEN_FLAGS)

    def read(self, most_bytes: int) -> bytes:
        """Return up to `most_bytes` of the file. Raises `OSError`."""
        return _read_opened(self.number, self.path, most_bytes)


@contextmanager
def inspect_file(path: Path) -> Iterator[OpenedFile]:
    """Look at the regular file that a path leads to, and find who may have written or exchanged it.

    Raises `UntrustedError` for a folder, a pipe or a device, none of which is opened, and as root
    for a symbolic link of another user; else `OSError`.
    """
    path, doubt = path.absolute(), None
    with ExitStack() as stack:
        for _ in range(_MOST_LINKS):
            folder_descriptor, real_folder, trouble = _walk_to_folder(path.parent)
            stack.callback(os.close, folder_descriptor)
            path, doubt = real_folder / path.name, doubt or trouble
            descriptor = _open_entry(path, folder_descriptor)
            stack.callback(os.close, descriptor)
            state = os.fstat(descriptor)
            if not stat.S_ISLNK(state.st_mode):
                break
            trouble = _find_link_trouble(path, state)
            if trouble is not None and os.geteuid() == 0:
                raise trouble
            doubt = doubt or trouble
            path = real_folder / os.readlink("", dir_fd=descriptor)
        else:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        _refuse_other_kinds(path, state)
        writer = None if doubt is None else f"{doubt.filename}: {doubt.strerror}"
        if not is_trusted(state.st_uid):
            writer = f"it is a file of user {user_name(state.st_uid)}"
        elif state.st_mode & stat.S_IWOTH:
            writer = "everybody may write into it"
        yield OpenedFile(
            path=path, folder=folder_descriptor, number=descriptor, state=state, writer=writer
        )


def read_file(path: Path, most_bytes: int, *, follow: bool = True) -> bytes:
    """Return up to `most_bytes` of a regular file of any user.

    Raises `UntrustedError` for another kind of file, which is not opened; else `OSError`.
    """
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
    try:
        _refuse_other_kinds(path, os.fstat(descriptor))
        return _read_opened(descriptor, path, most_bytes)
    finally:
        os.close(descriptor)


def _read_opened(descriptor: int, path: Path, most_bytes: int) -> bytes:
    with os.fdopen(_reopen(descriptor, path, os.O_RDONLY | _OPEN_FLAGS), "rb") as file:
        data: bytes | None = file.read(most_bytes)
    if data is None:  # /proc/kmsg calls itself a regular file, and has nothing to read yet
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), str(path))
    return data


def resolve_trusted_folder(path: Path, *, make: bool = False) -> Path:
    """Return a folder's real path, which nobody but trusted users can lead elsewhere.

    `make` makes folders that are missing. For root every folder and symbolic link on the way has
    to be a trusted user's. For other users, who can lose only files of their own, the last folder
    has to be. A folder that everybody may write needs the sticky bit. Raises `UntrustedError`,
    `OSError`.
    """
    with _trusted_folder(path, make=make) as (_, real_path):
        return real_path


@contextmanager
def _trusted_folder(path: Path, *, make: bool) -> Iterator[tuple[int, Path]]:
    """Give the descriptor and the real path of a folder that only trusted users control."""
    folder = _walk_to_folder(path, make=make)
    try:
        if folder.trouble is not None:
            raise folder.trouble
        yield folder.descriptor, folder.path
    finally:
        os.close(folder.descriptor)


class _ReachedFolder(NamedTuple):
    """A folder that was opened name by name."""

    descriptor: int  # the caller closes it
    path: Path  # without links
    trouble: UntrustedError | None  # the first folder on the way that another user controls


def _walk_to_folder(path: Path, *, make: bool = False) -> _ReachedFolder:
    """Open a folder name by name, each from the folder before it.

    Raises `UntrustedError` for a symbolic link of another user (as root), else `OSError`.
    """
    is_root = os.geteuid() == 0
    reached, descriptor, trouble = Path("/"), os.open("/", _LOOK_FLAGS), None
    parts_ahead = [*reversed(path.absolute().parts[1:])]  # the next one is the last
    links_followed = 0
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        while parts_ahead:
            name = parts_ahead.pop()
            entry = reached.parent if name == ".." else reached / name
            entry_descriptor = _open_entry(entry, descriptor, name, make=make)
            stack.callback(os.close, entry_descriptor)
            state = os.fstat(entry_descriptor)
            if stat.S_ISLNK(state.st_mode):
                links_followed += 1
                if links_followed > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                if is_root and (link_trouble := _find_link_trouble(entry, state)):
                    raise trouble or link_trouble
                target = Path(os.readlink("", dir_fd=entry_descriptor))
                parts_ahead += reversed(target.parts[target.is_absolute() :])
                if not target.is_absolute():
                    continue  # the target's first name is one of the folder that has the link
                entry, entry_descriptor = Path("/"), os.open("/", _LOOK_FLAGS)
                stack.callback(os.close, entry_descriptor)
            elif not stat.S_ISDIR(state.st_mode):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(entry))
            elif is_root:
                trouble = trouble or _find_folder_trouble(entry, state)
            reached, descriptor = entry, entry_descriptor
        if not is_root:
            trouble = _find_folder_trouble(reached, os.fstat(descriptor))
        return _ReachedFolder(os.dup(descriptor), reached, trouble)


def _open_entry(path: Path, folder: int, name: str | None = None, *, make: bool = False) -> int:
    """Open an entry of a folder (by default the last name of `path`) without following a link.

    `make` makes the entry a folder when it is missing. Errors name `path`.
    """
    name = path.name if name is None else name
    with _name_path_in_errors(path):
        try:
            return os.open(name, _LOOK_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
                new_folder = os.open(
                    name, _OPEN_FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder
                )
                _give_to_caller(new_folder, folder)
                os.close(new_folder)
            return os.open(name, _LOOK_FLAGS, dir_fd=folder)


def _give_to_caller(descriptor: int, folder: int) -> None:
    """Give what root made to the user who called sudo, in a folder of that user.

    sudo may keep HOME: then root makes files among those of its caller.
    """
    if is_caller((owner := os.fstat(folder)).st_uid):
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


@contextmanager
def _name_path_in_errors(path: Path) -> Iterator[None]:
    """Let errors name the whole path of what is opened from its folder."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def resolve_target(path: Path) -> Path:
    """Return the path that symbolic links lead to, those of trusted users.

    The last one need not exist. Raises `UntrustedError` for the link of another user, `OSError`.
    """
    for _ in range(_MOST_LINKS):
        try:
            state = path.lstat()
        except FileNotFoundError:
            return path
        if not stat.S_ISLNK(state.st_mode):
            return path
        trouble = _find_link_trouble(path, state)
        if trouble is not None:
            raise trouble
        path = path.parent / path.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def make_private_folder(path: Path) -> Path:
    """Make a folder in which only trusted users can write, if it is missing; return its real path.

    The sticky bit is not enough here: others could have made the files that we will look for. Our
    own folder gets mode 0700 whatever the umask, unless its group may write: its owner decided so.
    """
    with _trusted_folder(path, make=True) as (descriptor, real_path):
        state = os.fstat(descriptor)
        if state.st_mode & stat.S_IWOTH:
            raise UntrustedError(real_path, "everybody may write into it")
        if state.st_uid == os.geteuid() and not state.st_mode & stat.S_IWGRP:
            os.chmod(f"/proc/self/fd/{descriptor}", 0o700)  # noqa: PTH101 - by the descriptor
        return real_path


def open_file(path: Path, flags: int, *, mode: int = 0o600, of_any_user: bool = False) -> int:
    """Open a regular file of a trusted user, and nothing else; return its descriptor.

    `flags` are those of open(2): with O_CREAT a missing file is made with `mode`, and its missing
    folders too. `of_any_user` also opens a file of another user; the caller must not write into
    it. Raises `UntrustedError`, `OSError`.
    """
    with _trusted_folder(path.parent, make=bool(flags & os.O_CREAT)) as (folder, real_folder):
        return _open_in_folder(
            folder, real_folder / path.name, flags, mode, of_any_user=of_any_user
        )


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Put `data` in the place of a file, all or nothing; it is on disk when this returns.

    Raises `OSError`; then no new file is left behind.
    """
    with _trusted_folder(path.parent, make=True) as (folder, real_folder):
        new_path = real_folder / f"{path.name}.new"
        with (
            suppress(FileNotFoundError),
            _name_path_in_errors(new_path),
        ):  # left by a rater that was killed
            os.unlink(new_path.name, dir_fd=folder)
        descriptor = _open_in_folder(folder, new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            try:
                write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            with _name_path_in_errors(path):
                os.replace(new_path.name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(new_path.name, dir_fd=folder)
            raise
        flush(real_folder)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a private folder that is removed afterwards; folders that killed raters left go too.

    A rater holds a lock on its folder, which the kernel frees at its death. Raises `InputError`.
    """
    import tempfile  # noqa: PLC0415 - few commands need it
    from shutil import rmtree  # noqa: PLC0415

    temporary_folder = Path(tempfile.gettempdir())
    for leftover in temporary_folder.glob(f"{_SCRATCH_PREFIX}*"):
        with suppress(OSError), _locked(leftover):
            state = leftover.lstat()
            # A young folder may be one that another rater has just made and not locked yet.
            if state.st_uid == os.geteuid() and time.time() - state.st_mtime > _LONGEST_UNLOCKED_S:
                rmtree(leftover)
    try:
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=temporary_folder))
    except OSError as error:
        raise InputError(
            f"{temporary_folder}: no place for copies ({error.strerror}); see TMPDIR"
        ) from error
    try:
        with _locked(folder):
            yield folder
    finally:
        rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder; raises `OSError` while another process has it locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`, however little the kernel takes at once. Raises `OSError`."""
    while data:
        data = data[os.write(descriptor, data) :]


def flush(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_in_folder(
    folder: int, file: Path, flags: int, mode: int = 0o600, *, of_any_user: bool = False
) -> int:
    """Open a file of a folder, never through a link, or make it (O_CREAT); try again in a race."""
    for _ in range(_ATTEMPTS):
        if not flags & os.O_EXCL:
            try:
                looked_at = _open_entry(file, folder)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
            else:
                try:
                    _check_file(file, os.fstat(looked_at), of_any_user=of_any_user)
                    return _reopen(
                        looked_at, file, flags & ~(os.O_CREAT | os.O_NOFOLLOW) | _OPEN_FLAGS
                    )
                finally:
                    os.close(looked_at)
        try:
            with _name_path_in_errors(file):
                descriptor = os.open(
                    file.name, flags | os.O_EXCL | _OPEN_FLAGS, mode, dir_fd=folder
                )
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
        else:
            _give_to_caller(descriptor, folder)
            return descriptor
    raise UntrustedError(file, "somebody makes and removes it all the time")


def _reopen(descriptor: int, file: Path, flags: int) -> int:
    """Open the file that a descriptor looked at, whatever file has its name by now."""
    with _name_path_in_errors(file):
        return os.open(f"/proc/self/fd/{descriptor}", flags)


def _check_file(file: Path, state: os.stat_result, *, of_any_user: bool) -> None:
    if stat.S_ISLNK(state.st_mode):
        raise UntrustedError(file, "a symbolic link, expected a file")
    _refuse_other_kinds(file, state)
    if state.st_nlink > 1:  # its other name may be that of a file that must not be written
        raise UntrustedError(file, f"a file of {state.st_nlink} hard links, expected one")
    if not of_any_user and not is_trusted(state.st_uid):
        raise UntrustedError(file, f"a file of user {user_name(state.st_uid)}")


def _refuse_other_kinds(file: Path, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        kind = "a directory" if stat.S_ISDIR(state.st_mode) else "a pipe or a device"
        raise UntrustedError(file, f"not a regular file but {kind}")


def _find_link_trouble(link: Path, state: os.stat_result) -> UntrustedError | None:
    if is_trusted(state.st_uid):
        return None
    return UntrustedError(link, f"a symbolic link of user {user_name(state.st_uid)}")


def _find_folder_trouble(folder: Path, state: os.stat_result) -> UntrustedError | None:
    if not is_trusted(state.st_uid):
        return UntrustedError(folder, f"the folder belongs to user {user_name(state.st_uid)}")
    if state.st_mode & stat.S_IWOTH and not state.st_mode & stat.S_ISVTX:
        return UntrustedError(folder, "everybody may remove files of others from this folder")
    return None


# -- File systems that several machines share ------------------------------------------------------

# Kinds of file systems that other machines may write at the same time. SQLite's write-ahead log
# needs shared memory of all its users, which machines do not have with each other.
_SHARED_KINDS = frozenset(
    """
    nfs nfs4 lustre gpfs beegfs cephfs ceph cifs smb3 smbfs afs 9p virtiofs glusterfs pvfs2 orangefs
    panfs gfs gfs2 ocfs2 wekafs daos coda ncpfs vboxsf prl_fs acfs quobyte moosefs sshfs s3fs
    juicefs gcsfuse rclone
    """.split()  # noqa: SIM905 - a list to read
)
_OCTAL_ESCAPE = compile_later(r"\\([0-7]{3})")


def describe_shared_disk(
    path: Path, remedy: str, mountinfo: Path = Path("/proc/self/mountinfo")
) -> str | None:
    """Say that a path is on a file system of several machines, and what to do; else None.

    The deepest mount point above the path counts; of two mounts on one place, the later one.
    """
    real_path, most_parts, kind = path.resolve(), -1, ""
    for line in mountinfo.read_text(errors="surrogateescape").splitlines():
        fields = line.split(" ")
        if "-" not in fields[6:]:
            continue
        mount_point = Path(_OCTAL_ESCAPE.sub(lambda escape: chr(int(escape[1], 8)), fields[4]))
        if real_path.is_relative_to(mount_point) and len(mount_point.parts) >= most_parts:
            most_parts, kind = len(mount_point.parts), fields[fields.index("-", 6) + 1]
    plain_kind = kind.removeprefix("fuse.").removeprefix("fuseblk.")
    if plain_kind not in _SHARED_KINDS:
        return None
    return (
        f"{path} is on a file system of several machines ({kind}), where a database can be "
        f"damaged: name {remedy}"
    )


# -- Files that the user trusts with their present content, whoever wrote them: `rater trust` -----
#
# For each there is a mark: a file that is called after the digest of path and content and has the
# path in it. A trusted file that is changed or moved has no mark any more.


def is_content_trusted(path: Path, content: bytes) -> bool:
    """Tell whether the user said that a file with this content may have anything done."""
    try:
        os.close(open_file(_mark_path(path, content), os.O_RDONLY))
    except OSError:
        return False
    return True


def trust_content(path: Path, content: bytes) -> None:
    """Keep that the user trusts a file with this content. Raises `OSError`."""
    real_path = path.parent.resolve() / path.name
    replace_file(_mark_path(path, content), os.fsencode(real_path), mode=0o600)


def trusted_files() -> Iterator[tuple[Path, Path]]:
    """Yield the marks that `trust_content` made, each with the path of the trusted file."""
    for mark in sorted(_trust_folder().glob("*")):
        with suppress(OSError):
            yield mark, Path(os.fsdecode(read_file(mark, 4096)))


def _trust_folder() -> Path:
    return (user_folder("STATE") or Path("/nonexistent")) / "trusted"


def _mark_path(path: Path, content: bytes) -> Path:
    import hashlib  # noqa: PLC0415 - takes a millisecond, which few commands need

    real_path = os.fsencode(path.parent.resolve() / path.name)
    digest = hashlib.sha256(real_path + b"\0" + content).hexdigest()
    return _trust_folder() / digest
