"""The journal of changed settings: what was there, on disk before anything else is.

One JSON file, replaced whole: written beside itself, flushed, renamed, the folder
flushed. A reader therefore finds the old or the new one, never half of one,
whenever the writer was killed or the power failed. While it exists, a process
changes settings, or one that did so is dead and left them.

A lock file beside it (never removed, so that two can not hold different files of
one name) tells the two cases apart: the kernel frees the lock with its holder.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from rater.errors import InputError
from rater.process_id import ProcessId, is_alive, this_process
from rater.settings.known import is_known_file
from rater.settings.setting import is_number
from rater.text.kinds import UnexpectedError, described, of_type
from rater.text.words import printable

_VERSION = 1
_MOST_BYTES = 1 << 22
_SHOWN = 300  # characters of a journal that cannot be read
_VALUE = re.compile(r"[\w+.:-]{1,100}")  # those of /sys are of twenty characters at most
_LOCK_WAIT_S = 2.0  # a dead holder's children may have the lock for a moment


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that changes settings."""

    pid: int
    start_ticks: int | None  # since boot
    boot_id: str
    since: str  # UTC
    what: str  # "rater sweep mini", for people

    @property
    def process(self) -> ProcessId:
        """Which process it is, for good."""
        return ProcessId(self.pid, self.start_ticks, self.boot_id)

    @property
    def text(self) -> str:
        """Who it is, for people."""
        return f"{self.what} (process {self.pid}, since {self.since})"


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: what was there, and what we wrote or were about to."""

    knob: str
    file: str  # relative to the root
    old: str
    ours: tuple[str, ...]
    approximate: bool  # the kernel may have taken a number on the way to ours
    beside: bool  # we never wrote it: the kernel changes it with another file

    def is_ours(self, value: str) -> bool:
        """Tell whether a value can be there because of us, and not because of somebody else."""
        if self.beside or value == self.old or value in self.ours:
            return True
        numbers = [text for text in (self.old, *self.ours) if is_number(text)]
        if not is_number(value) or not numbers:
            return False
        values = [int(text) for text in numbers]
        if int(value) in values:
            return True
        return self.approximate and min(values) <= int(value) <= max(values)


@dataclass(frozen=True, slots=True)
class Journal:
    """All that has to be put back; entries in the order in which they were first set."""

    owner: Owner
    entries: tuple[Entry, ...]


class DamagedError(Exception):
    """A journal that cannot be trusted; the text says what is in it."""


def is_value(text: str) -> bool:
    """Tell whether a text is what a file of a setting holds: a word or a number."""
    return _VALUE.fullmatch(text) is not None


def this_owner(root: Path, what: str) -> Owner:
    """Return this process as an owner; `what` tells people what it does."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    process = this_process(root)
    return Owner(process.pid, process.pid_start, process.boot_id, now, what)


def save(path: Path, journal: Journal) -> None:
    """Write the journal so that it is on disk when this returns. Raises `OSError`."""
    document = {"rater": _VERSION, **asdict(journal)}
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        data = json.dumps(document, indent=1).encode()
        while data:
            data = data[os.write(number, data) :]
        os.fsync(number)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    finally:
        os.close(number)
    new.replace(path)
    _flush_folder(path.parent)


def remove(path: Path) -> None:
    """Remove the journal for good. Raises `OSError`."""
    path.unlink(missing_ok=True)
    _flush_folder(path.parent)


def set_aside(path: Path) -> Path:
    """Rename a journal that nobody is to act on; return where it is. Raises `OSError`.

    Those that were moved aside before stay there.
    """
    endings = (".old" if number == 1 else f".old{number}" for number in count(1))
    places = (path.with_name(f"{path.name}{ending}") for ending in endings)
    aside = next(place for place in places if not os.path.lexists(place))
    path.replace(aside)
    _flush_folder(path.parent)
    return aside


def load(path: Path) -> Journal | None:
    """Read the journal; None when there is none. Raises `DamagedError`, never guesses.

    Root does not trust a journal that another user wrote.
    """
    try:
        # Not blocking: to open a pipe that nobody writes to would wait for ever.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            state = os.fstat(number)
            if not stat.S_ISREG(state.st_mode):
                what = "a directory" if stat.S_ISDIR(state.st_mode) else "a pipe or a device"
                raise DamagedError(f"{path}: it is no file but {what}")
            with open(number, "rb", closefd=False) as file:
                data = file.read(_MOST_BYTES)
        finally:
            os.close(number)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read ({error.strerror})") from error
    text = data.decode("utf-8", "replace")
    if os.geteuid() == 0 and state.st_uid != 0:
        raise DamagedError(f"{path}: user {state.st_uid} wrote it, not root: {_excerpt(text)}")
    try:
        return _parsed(text)
    except ValueError as error:
        raise DamagedError(f"{path}: {error}; it begins with: {_excerpt(text)}") from error


def _parsed(text: str) -> Journal:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # too many brackets, too long a number
        raise ValueError("it is no JSON") from error
    if type(document) is not dict or document.pop("rater", None) != _VERSION:
        raise ValueError("not a journal that this rater knows")
    try:
        journal: Journal = of_type(Journal).read(document)
    except UnexpectedError as error:
        got = described(error.value, "an object")
        raise ValueError(f"{error.at[1:]}: expected {error.expected}, got {got}") from error
    for entry in journal.entries:
        if not is_value(entry.knob):
            raise ValueError(f"no setting is called {entry.knob!r}")
        if not is_known_file(entry.file):
            raise ValueError(f"rater never sets {entry.file!r}")
        for value in (entry.old, *entry.ours):
            if not is_value(value):
                raise ValueError(f"{value!r} is no value of {entry.file}")
    return journal


def _excerpt(text: str) -> str:
    clean = printable(text[:_SHOWN], instead=" ")
    return " ".join(clean.split()) + ("..." if len(text) > _SHOWN else "") if clean else "nothing"


def _flush_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def locked(path: Path, root: Path) -> Iterator[None]:
    """Be the only one who acts on a journal. Raises `InputError` that names the other one."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise InputError(
            f"{error.filename}: {error.strerror}: what settings were could not be kept there, so "
            "none is changed; name another file with RATER_JOURNAL"
        ) from error
    try:
        _take(number, path, root)
        yield
    finally:
        os.close(number)


def _take(number: int, path: Path, root: Path) -> None:
    end_s = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            try:
                journal = load(path)
            except DamagedError:
                journal = None
            who = journal.owner.text if journal else "another rater"
            alive = journal is not None and is_alive(journal.owner.process, root)
            if not alive and time.monotonic() < end_s:
                time.sleep(0.02)
                continue
            raise InputError(
                f"{who} changes settings of this machine now (journal {path}): wait for it, or "
                "end it with Ctrl-C, which puts them back"
            ) from error
        return


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the lock of a journal; only looks."""
    try:
        lock = path.with_name(f"{path.name}.lock")
        number = os.open(lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(number)
    return False
