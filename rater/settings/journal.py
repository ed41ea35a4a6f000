"""The journal of changed settings, on disk before anything else is, and where it lies."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from msgspec import Struct

from rater.settings.known import is_known_file, is_number, is_number_file
from rater.system.errors import InputError
from rater.system.files import flush, open_file, replace_file
from rater.system.process import ProcessId, is_alive, this_process
from rater.text.kinds import of_type
from rater.text.values import printable, to_dict

# One JSON file, replaced whole: written beside itself, flushed, renamed, the folder
# flushed. A reader therefore finds the old or the new one, never half of one,
# whenever the writer was killed or the power failed. While it exists, a process
# changes settings, or one that did so is dead and left them.
#
# A lock file beside it (never removed, so that two can not hold different files of
# one name) tells the two cases apart: the kernel frees the lock with its holder.

_VERSION = 1
_MOST_BYTES = 1 << 22
_SHOWN = 300  # characters of a journal that cannot be read
_VALUE = re.compile(r"[\w+.:-]{1,100}")  # those of /sys are of twenty characters at most
_LOCK_WAIT_S = 2.0  # a dead holder's children may have the lock for a moment


class JournalOwner(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The process that changes settings."""

    pid: int
    start_ticks: int | None  # since boot
    boot_id: str
    since: str  # UTC
    what: str  # "rater sweep mini", for people

    @property
    def process(self) -> ProcessId:
        """The process, as no other one is identified on this machine."""
        return ProcessId(self.pid, self.start_ticks, self.boot_id)

    @property
    def description(self) -> str:
        """The process as people know it."""
        return f"{self.what} (process {self.pid}, since {self.since})"


class Entry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One file: its old value, and the values that we wrote or were about to write."""

    knob: str
    file: str  # relative to the root
    old: str
    ours: tuple[str, ...]  # values that we wrote, or were about to write
    approximate: bool  # the kernel may have taken a number on the way to ours
    beside: bool  # we never wrote it: the kernel changes it with another file

    def is_ours(self, value: str) -> bool:
        """Tell whether a value can be there because of us, and not because of somebody else."""
        if self.beside or value == self.old or value in self.ours:
            return True
        numbers = [text for text in (self.old, *self.ours) if is_number(text)]
        if not is_number(value) or not numbers:
            return False
        known_numbers = [int(text) for text in numbers]
        if int(value) in known_numbers:
            return True
        return self.approximate and min(known_numbers) <= int(value) <= max(known_numbers)


class Journal(Struct, frozen=True, forbid_unknown_fields=True):
    """All that has to be put back; entries in the order in which they were first set."""

    owner: JournalOwner
    entries: tuple[Entry, ...]


class DamagedJournalError(Exception):
    """A journal that cannot be trusted; the text says what is in it."""


def is_value(file: str, text: str) -> bool:
    """Tell whether a file of a setting can hold a text: a number, and of some a word."""
    return _VALUE.fullmatch(text) is not None and (is_number(text) or not is_number_file(file))


def this_owner(root: Path, activity: str) -> JournalOwner:
    """Return this process as an owner; `activity` is for people: `rater sweep mini`."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    process = this_process(root)
    return JournalOwner(
        pid=process.pid,
        start_ticks=process.pid_start,
        boot_id=process.boot_id,
        since=now,
        what=activity,
    )


def save(path: Path, journal: Journal) -> None:
    """Write the journal so that it is on disk when this returns. Raises `OSError`."""
    document = {"rater": _VERSION, **to_dict(journal)}
    # Others may read what is set, which /sys tells them as well: a run of theirs warns of it.
    replace_file(path, json.dumps(document, indent=1).encode(), mode=0o644)


def remove(path: Path) -> None:
    """Remove the journal for good. Raises `OSError`."""
    path.unlink(missing_ok=True)
    flush(path.parent)


def set_aside(path: Path) -> Path:
    """Rename a journal that nobody is to act on; return where it is. Raises `OSError`.

    Those that were moved aside before stay there.
    """
    endings = (".old" if number == 1 else f".old{number}" for number in count(1))
    places = (path.with_name(f"{path.name}{ending}") for ending in endings)
    aside = next(place for place in places if not os.path.lexists(place))
    path.replace(aside)
    flush(path.parent)
    return aside


def load(path: Path) -> Journal | None:
    """Read the journal; None when there is none. Raises `DamagedJournalError`, never guesses.

    Nobody but a trusted user may have written it.
    """
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            data = file.read(_MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedJournalError(f"{path}: cannot be read ({error.strerror})") from error
    text = data.decode("utf-8", "replace")
    try:
        return _parse_journal(text)
    except ValueError as error:
        raise DamagedJournalError(f"{path}: {error}; it begins with: {_excerpt(text)}") from error


def _parse_journal(text: str) -> Journal:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:  # too many brackets, too long a number
        raise ValueError("it is no JSON") from error
    if type(document) is not dict or document.pop("rater", None) != _VERSION:
        raise ValueError("not a journal that this rater knows")
    journal: Journal = of_type(Journal).read(document)
    for entry in journal.entries:
        if not _VALUE.fullmatch(entry.knob):
            raise ValueError(f"no setting is called {entry.knob!r}")
        if not is_known_file(entry.file):
            raise ValueError(f"rater never sets {entry.file!r}")
        for value in (entry.old, *entry.ours):
            if not is_value(entry.file, value):
                raise ValueError(f"{value!r} is no value of {entry.file}")
    return journal


def _excerpt(text: str) -> str:
    clean = printable(text[:_SHOWN], instead=" ")
    return " ".join(clean.split()) + ("..." if len(text) > _SHOWN else "") if clean else "nothing"


@contextmanager
def lock_journal(path: Path, root: Path) -> Iterator[None]:
    """Be the only one who acts on a journal. Raises `InputError` that names the other one."""
    try:
        descriptor = _open_lock(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise InputError(
            f"{error.filename}: {error.strerror}: what settings were could not be kept there, so "
            "none is changed; name another file with RATER_JOURNAL"
        ) from error
    try:
        _take_lock(descriptor, path, root)
        yield
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int, path: Path, root: Path) -> None:
    deadline_s = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            try:
                journal = load(path)
            except DamagedJournalError:
                journal = None
            holder = journal.owner.description if journal else "another rater"
            alive = journal is not None and is_alive(journal.owner.process, root)
            if not alive and time.monotonic() < deadline_s:
                time.sleep(0.02)
                continue
            raise InputError(
                f"{holder} changes settings of this machine now (journal {path}): wait for it, or "
                "end it with Ctrl-C, which puts them back"
            ) from error
        return


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds the lock of a journal, and take nothing.

    A lock that this user may not open counts as free: the owner in the journal tells more.
    """
    try:
        descriptor = _open_lock(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open_lock(path: Path, flags: int) -> int:
    """Open the lock of a journal, which only its owner may: its holder keeps settings changed.

    It is not called `.lock`: earlier raters made that one so that others could hold it for ever.
    """
    return open_file(path.with_name(f"{path.name}.held"), flags, mode=0o600)
