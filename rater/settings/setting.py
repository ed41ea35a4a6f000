"""One setting of the machine: the files it is, the values it takes, how it is read and written."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.text.cpuset import format_list

_CHOSEN = re.compile(r"\[([^\]]+)\]")
_UNIT = re.compile(r"/(?:policy|node)(\d+)/")
_MOST_BYTES = 4096  # of a file of /sys: a page
_SWITCH = {"1": "on", "0": "off"}


@dataclass(frozen=True, slots=True)
class Present:
    """What a knob's files say now; `files` are pairs of file and value, in the knob's order."""

    files: tuple[tuple[str, str], ...]
    words: tuple[tuple[str, str], ...] = ()  # as `Knob.words`

    @property
    def text(self) -> str:
        """The one value of all files, or `performance (0-3), powersave (4-7)` by CPU or node."""
        meaning = {content: word for word, content in self.words}
        groups: dict[str, list[int]] = {}
        for file, value in self.files:
            unit = _UNIT.search(f"/{file}")
            groups.setdefault(meaning.get(value, value), []).append(int(unit[1]) if unit else 0)
        if len(groups) == 1:
            return next(iter(groups))
        return ", ".join(f"{value} ({format_list(groups[value])})" for value in sorted(groups))


@dataclass(frozen=True, slots=True)
class Knob:
    """A setting. Files are relative to `root`, so that a tree of plain files will do for tests."""

    name: str
    group: str  # words above its rows in a table
    what: str  # in few words
    root: Path
    files: tuple[str, ...]  # each is written when the knob is set
    also: str = ""  # another name: as runs record it
    choices: tuple[str, ...] | None = None  # None: numbers
    least: int = 0
    most: int = 1 << 62
    words: tuple[tuple[str, str], ...] = ()  # what a user says, what the file has for it
    kept: tuple[str, ...] = ()  # read and put back instead of `files`: a total and its parts
    beside: tuple[str, ...] = ()  # the kernel changes them by itself with it: put back as well
    approximate: bool = False  # the kernel takes the nearest it can, and may stop half way
    changes_cpus: bool = False  # CPUs come and go with it
    blocked: str = ""  # why it must not be set as things are

    @property
    def stored(self) -> tuple[str, ...]:
        """The files whose values make up what was there: all of them are put back."""
        return self.kept or self.files

    def read(self) -> Present:
        """Return the present values. Raises `InputError` for what cannot be read."""
        try:
            found = tuple((file, read_value(self.root, file)) for file in self.files)
        except OSError as error:
            raise InputError(f"{self.name}: reading {error.filename}: {error.strerror}") from error
        return Present(found, self.words)

    def accept(self, value: str) -> str:
        """Return what is written into the files for a value that a user typed.

        Raises `InputError` that names the values there are.
        """
        meant = value.strip()
        if self.words:
            meant = _SWITCH.get(meant, meant)
        if self.choices is not None:
            if meant not in self.choices:
                told = ", ".join(self.choices)
                raise InputError(f"{self.name}={value}: expected one of {told}")
            return dict(self.words).get(meant, meant)
        if not re.fullmatch(r"-?\d{1,18}", meant) or not self.least <= int(meant) <= self.most:
            bounds = f"{self.least} to {self.most}" if self.most < 1 << 62 else f"{self.least} up"
            raise InputError(f"{self.name}={value}: expected a whole number, {bounds}")
        return str(int(meant))

    def obstacle(self) -> str | None:
        """Return why this process cannot set it, None when it should be able to; only looks."""
        if self.blocked:
            return self.blocked
        for file in self.files:
            path = self.root / file
            try:
                state = path.stat()
                mount = os.statvfs(path)
            except OSError as error:
                return f"{path}: {error.strerror}"
            if mount.f_flag & os.ST_RDONLY:
                return "read-only here (a container?)"
            if not state.st_mode & 0o222:
                return "the kernel only tells it"
            if not os.access(path, os.W_OK):
                return "needs root"
        return None

    def same(self, wanted: str, got: str) -> bool:
        """Tell whether a file holds what was written: numbers by value, words as they are."""
        return same_value(wanted, got)


def same_value(wanted: str, got: str) -> bool:
    """Tell whether two values of a file mean the same: numbers by value, words as they are."""
    return got == wanted or (is_number(wanted) and is_number(got) and int(wanted) == int(got))


def is_number(text: str) -> bool:
    """Tell whether a file's value is a whole number."""
    return re.fullmatch(r"-?\d+", text) is not None


def read_value(root: Path, file: str) -> str:
    """Return a file's value: of a choice like `always [madvise] never` the chosen word.

    Only the first line counts. Raises `OSError`, with the file's name.
    """
    path = root / file
    try:
        with path.open("rb") as opened:
            content = opened.read(_MOST_BYTES)
    except OSError as error:  # raised by a read, it has no name
        raise OSError(error.errno, error.strerror, str(path)) from error
    lines = content.decode("utf-8", "replace").splitlines()
    line = lines[0].strip() if lines else ""
    chosen = _CHOSEN.search(line)
    return chosen[1] if chosen else line


def write_value(root: Path, file: str, value: str) -> None:
    """Write a value as `echo` does, in one system call. Raises `OSError`, with the file's name."""
    path = root / file
    try:
        number = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(number, f"{value}\n".encode())
        finally:
            os.close(number)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def choices_of(root: Path, file: str) -> tuple[str, ...]:
    """Return the words of a file that shows its choices; nothing where it shows none."""
    try:
        line = (root / file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return tuple(line.replace("[", "").replace("]", "").split()) if _CHOSEN.search(line) else ()


def there(root: Path, *files: str) -> Iterator[str]:
    """Return those of the files that exist."""
    yield from (file for file in files if (root / file).exists())
