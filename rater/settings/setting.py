"""One setting of the machine: the files it is, the values it takes, how it is read and written."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.settings.known import NO_LIMIT, KnownSetting
from rater.text.cpuset import format_list

_CHOSEN = re.compile(r"\[([^\]]+)\]")
_UNIT = re.compile(r"/(?:policy|node)(\d+)/")
_MOST_BYTES = 4096  # of a file of /sys: a page
_SWITCH = {"1": "on", "0": "off"}


@dataclass(frozen=True, slots=True)
class Present:
    """What a setting's files say now; `files` are pairs of file and value, in its order."""

    files: tuple[tuple[str, str], ...]
    words: tuple[tuple[str, str], ...] = ()  # as `KernelSetting.words`

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


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSetting(KnownSetting):
    """A setting that this machine has. Below another root a tree of plain files will do."""

    root: Path
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
                known = ", ".join(self.choices)
                raise InputError(f"{self.name}={value}: expected one of {known}")
            return dict(self.words).get(meant, meant)
        if not re.fullmatch(r"-?\d{1,18}", meant) or not self.least <= int(meant) <= self.most:
            bounds = f"{self.least} to {self.most}" if self.most < NO_LIMIT else f"{self.least} up"
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
        number = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
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
