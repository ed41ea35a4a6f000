"""Set settings of the machine and put them back: exactly, in every way a process can end.

The order of every step is what makes it safe. Before a file is written for the first
time, what it holds is in the journal and on disk (`rater.settings.journal`); before a
value is written, so is that value. So a process that is killed between any two system
calls leaves either nothing changed or a journal that tells what was there and what is
ours. Putting back is the same whoever does it, the sweep that set it or the next
rater: files whose value is the old one already are not touched, so it can be broken
off and begun again. After a reboot the kernel has its own defaults again: then the
journal is closed and nothing is written.

A value that is neither what was there nor ours was set by somebody else in the
meantime, on purpose: an administrator who changes a setting while a sweep runs, or
after it died, does not expect it to be undone hours later by somebody's next
benchmark. It is left, both values are told, the journal keeps the entry, and
`rater restore --force` writes the old value, `--forget` drops the entry. (The other
choice, always to write the old value, would be simpler and would sometimes undo a
repair that nobody connects with rater.) Files that the kernel changes by itself along
with ours have no such rule: nobody can tell its changes from a person's.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from rater.errors import InputError, RaterError, RunError
from rater.settings import journal as journals
from rater.settings.catalog import find, knobs
from rater.settings.journal import Entry, Journal, Owner
from rater.settings.recover import left_at
from rater.settings.restore import close, put_back, reasons, undisturbed, way_out
from rater.settings.setting import Knob, read_value, same_value, write_value


class TakenError(RunError):
    """Somebody else set what this process had set: nothing may write over that."""


class Tuner:
    """Sets knobs for one process and puts everything back at the end; a context manager.

    Nothing is touched before the first `refuse_unless_settable` or `set`, which take the
    journal's lock. Raises `InputError` while another process has it, or has left settings.
    """

    def __init__(self, root: Path, journal_path: Path, what: str) -> None:
        """`what` tells people who changes settings: `rater sweep mini`."""
        self._root = root
        self._path = journal_path
        self._what = what
        self._stack = ExitStack()
        self._owner: Owner | None = None
        self._entries: dict[str, Entry] = {}
        self._last: dict[str, str] = {}  # by file: what it held after we had set it

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.restore()
        except RunError as trouble:
            if isinstance(error, RaterError):
                raise RunError(f"{error}\n{trouble}") from error
            raise
        finally:
            self._stack.close()
            self._owner = None

    def refuse_unless_settable(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Try everything that can be tried before the first run, and change nothing.

        `wanted`: knob -> all values it will be set to. Each value is one the knob takes, and the
        present value of every file is written into it once and read back (but where that alone
        brings CPUs or takes them). Raises `InputError` that names all that is missing.
        """
        found = [(find(name, self._root), values) for name, values in wanted.items()]
        refuse_together({name: find(name, self._root) for name in wanted})
        problems = []
        for knob, values in found:
            for value in values:
                try:
                    knob.accept(value)
                except InputError as error:
                    problems.append(str(error))
            obstacle = knob.obstacle()
            if obstacle:
                problems.append(f"{knob.name} cannot be set: {_told(obstacle)}")
        if problems:
            raise InputError("\n".join(problems))
        self._own()
        present = self._note({knob: None for knob, _ in found})
        try:
            for knob, _ in found:
                for file in () if knob.changes_cpus else knob.files:
                    self._try(knob, file, present[file])
        finally:
            self.restore()

    def set(self, values: Mapping[str, str]) -> None:
        """Set knobs and read them back; those that are not named stay as they are.

        The present values are journalled before the first of them is written. Raises
        `RunError` when the kernel refused or took something else; then call `restore`. Raises
        `TakenError` when somebody else changed what we had set, `InputError` for unknown names
        and values.
        """
        order = {knob.name: place for place, knob in enumerate(knobs(self._root))}
        refuse_together({name: find(name, self._root) for name in values})
        asked = {find(name, self._root): value for name, value in values.items()}
        wanted = {
            knob: knob.accept(asked[knob]) for knob in sorted(asked, key=lambda it: order[it.name])
        }
        self._own()
        present = self._note(wanted)
        for knob, content in wanted.items():
            for file in knob.files:
                if not knob.same(content, present[file]):
                    try:
                        write_value(self._root, file, content)
                    except OSError as error:
                        raise RunError(
                            f"{knob.name}={values_of(knob, values)}: writing {error.filename}: "
                            f"{error.strerror}"
                        ) from error
        # Not one by one: some have their value only when another one is set as well.
        for knob, content in wanted.items():
            for file in knob.files:
                self._last[file] = self._read(knob, file)
                if not knob.same(content, self._last[file]):
                    self._is_ours_too(file)
                    raise RunError(_not_taken(knob, file, content, self._last[file]))

    def refuse_taken(self) -> None:
        """Raise `TakenError` when somebody changed what was set: runs since then had that."""
        for entry in self._entries.values():
            if entry.file in self._last:
                try:
                    value = read_value(self._root, entry.file)
                except OSError as error:
                    raise TakenError(
                        f"{entry.knob}: reading {error.filename}: {error.strerror}"
                    ) from error
                self._refuse_changed(entry, value)

    def restore(self) -> None:
        """Put back everything that was set, the last first, and close the journal.

        Raises `RunError` that names what could not be put back. The journal keeps that with
        what was there first, and so does this: the next `set` or `restore` knows it still.
        """
        if self._owner is None or not self._entries:
            return
        with undisturbed():
            kept = put_back(self._root, tuple(self._entries.values()), force=False)
            left = {file: entry for file, entry in self._entries.items() if entry in kept}
            close(self._path, Journal(self._owner, tuple(left.values())))
            self._entries = left
            self._last.clear()
        if kept:
            told = "\n".join(reasons(self._root, kept))
            raise RunError(f"not all settings could be put back:\n{told}\n{way_out(self._path)}")

    def _own(self) -> None:
        """Take the journal's lock, once."""
        if self._owner is not None:
            return
        self._stack.enter_context(journals.locked(self._path, self._root))
        left = left_at(self._root, self._path)
        if left is not None:
            self._stack.close()
            way = (
                "put that back first: `rater restore` (--force writes what was there over others' "
                "changes, --forget leaves all as it is)"
            )
            raise InputError(f"{left.text}; {way if left.journal else left.way}")
        self._owner = journals.this_owner(self._root, self._what)

    def _note(self, wanted: Mapping[Knob, str | None]) -> dict[str, str]:
        """Journal what all files of these knobs hold, and what they are to hold; return the former.

        None: nothing new.
        """
        present: dict[str, str] = {}
        entries = dict(self._entries)
        for knob, content in wanted.items():
            for file in (*knob.files, *knob.stored, *knob.beside):
                if file not in present:
                    present[file] = self._read(knob, file)
                # The kernel spreads a total over its parts as it sees fit.
                is_beside = file not in knob.files
                before = entries.get(file)
                entry = before or Entry(
                    knob.name, file, present[file], (), knob.approximate, is_beside
                )
                if before and not is_beside:
                    self._refuse_changed(entry, present[file])
                entry = replace(entry, beside=entry.beside or is_beside)
                if content is not None and not is_beside:
                    ours = tuple(dict.fromkeys((*entry.ours, content)))
                    entry = replace(entry, ours=ours)
                entries[file] = entry
        if entries != self._entries:
            assert self._owner is not None
            # First, so that whatever interrupts what follows, `restore` closes the journal.
            self._entries = entries
            try:
                journals.save(self._path, Journal(self._owner, tuple(entries.values())))
            except OSError as error:
                raise RunError(
                    f"{self._path}: {error.strerror}: what settings were could not be kept, so "
                    "none was changed; make room, or name another file with RATER_JOURNAL"
                ) from error
        return present

    def _refuse_changed(self, entry: Entry, value: str) -> None:
        last = self._last.get(entry.file)
        if last is None or entry.approximate:  # what one write made of it, another may change
            is_ours = entry.is_ours(value)
        else:
            is_ours = entry.beside or same_value(last, value)
        if not is_ours:
            was = last or " or ".join(dict.fromkeys((entry.old, *entry.ours)))
            raise TakenError(
                f"{entry.knob}: somebody else set {self._root / entry.file} to {value} while it "
                f"was to be {was}: what ran since then did not run with that"
            )

    def _is_ours_too(self, file: str) -> None:
        """Take what the kernel made of our write for ours, so that it is put back."""
        entry = self._entries[file]
        self._entries[file] = replace(entry, ours=(*entry.ours, self._last[file]))

    def _read(self, knob: Knob, file: str) -> str:
        try:
            value = read_value(self._root, file)
        except OSError as error:
            raise RunError(f"{knob.name}: reading {error.filename}: {error.strerror}") from error
        if not journals.is_value(value):
            raise RunError(
                f"{knob.name}: {self._root / file} holds {value[:40]!r}, which could not be put "
                "back: leave this setting out"
            )
        return value

    def _try(self, knob: Knob, file: str, value: str) -> None:
        try:
            write_value(self._root, file, value)
            got = read_value(self._root, file)
        except OSError as error:
            why = _told(_PRIVILEGES.get(error.errno or 0, f"{error.strerror}"))
            raise InputError(
                f"{knob.name} cannot be set: writing {error.filename}: {error.strerror}"
                + (f": {why}" if why != error.strerror else "")
            ) from error
        if not knob.same(value, got):
            raise InputError(
                f"{knob.name} cannot be set: {self._root / file} was {value}, and is {got} after "
                f"{value} was written"
            )


def values_of(knob: Knob, values: Mapping[str, str]) -> str:
    """Return what a user asked of a knob, by whichever of its names."""
    return values.get(knob.name) or values[knob.also]


_PRIVILEGES = {
    errno.EACCES: "needs root",
    errno.EPERM: "needs root",
    errno.EROFS: "read-only here (a container?)",
}


def _told(obstacle: str) -> str:
    way = {
        "needs root": "; run rater with sudo",
        "read-only here (a container?)": "; run rater on the host, or with a writable /sys",
    }
    return obstacle + way.get(obstacle, "")


def refuse_together(wanted: Mapping[str, Knob]) -> None:
    """Refuse knobs, by the names they were asked for, that are the same files, or lose them."""
    owners: dict[str, str] = {}
    for name, knob in wanted.items():
        for file in knob.stored:
            other = owners.setdefault(file, name)
            if other != name:
                raise InputError(f"{other} and {name} set the same thing: leave one out")
    for one in wanted.values():
        of_cpus = [it.name for it in wanted.values() if it.group == one.group and it is not one]
        if one.changes_cpus and of_cpus:
            raise InputError(
                f"{one.name} takes away the CPUs that {of_cpus[0]} is to be set for: leave one out"
            )


def _not_taken(knob: Knob, file: str, wanted: str, got: str) -> str:
    said = f"{knob.name}: asked for {wanted}, the kernel made it {got} ({knob.root / file})"
    if knob.approximate and file.endswith("nr_hugepages"):
        return (
            f"{said}: it had no more memory in one piece, or the pages are in use; free memory "
            "(echo 1 > /proc/sys/vm/compact_memory), or reserve them at boot"
        )
    return said
