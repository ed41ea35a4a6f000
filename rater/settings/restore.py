"""Settings put back, after a process that died too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from rater.settings import journal as journals
from rater.settings.journal import DamagedJournalError, Entry, Journal, is_locked
from rater.settings.known import read_value, write_value
from rater.system.errors import InputError
from rater.system.paths import exists
from rater.system.process import block_stop_signals, boot_id, is_alive
from rater.text.values import truncate_list

# -- What a process left that changed settings and died: seen, put back, or dropped ----------------


class LeftoverSettings(Struct, frozen=True):
    """What a process left that is dead by now."""

    path: Path
    journal: Journal | None  # None: damaged
    damage: str | None  # why it cannot be read
    rebooted: bool  # the machine was booted since then: nothing of it is in force

    @property
    def summary(self) -> str:
        """Who left which settings changed, in one sentence."""
        if self.journal is None:
            return f"a damaged journal of settings, {self.damage}"
        text = truncate_list(
            [f"{name} was {old_value}" for name, old_value in _by_knob(self.journal.entries)]
        )
        if self.rebooted:
            return f"{self.journal.owner.description} changed settings before a reboot: {text}"
        return f"{self.journal.owner.description} died and left settings changed: {text}"

    @property
    def remedy(self) -> str:
        """What can be done about it."""
        if self.journal is None:
            return (
                "nothing can be put back from it: set by hand what it names, then "
                "`rater settings restore --forget` moves it aside"
            )
        return (
            "`rater settings restore` closes it"
            if self.rebooted
            else "`rater settings restore` puts them back"
        )


def find_leftovers(root: Path, journal_path: Path) -> LeftoverSettings | None:
    """Return what a dead process left; None when that is nothing, or while its owner lives."""
    if not exists(journal_path) or is_locked(journal_path):
        return None
    leftovers = read_leftovers(root, journal_path)
    if leftovers is None or (
        leftovers.journal is not None and is_alive(leftovers.journal.owner.process, root)
    ):
        return None
    return leftovers


def restore_leftovers(
    root: Path, journal_path: Path, say: Callable[[str], None], *, force: bool = False
) -> bool:
    """Put back the settings that a dead process left changed; tell whether none remains.

    `force` writes the old values over those that somebody else set since then. Raises `InputError`
    while the owner lives. Nothing is guessed from a damaged journal.
    """
    _refuse_reader(root, journal_path)
    with journals.lock_journal(journal_path, root):
        leftovers = read_leftovers(root, journal_path)
        if leftovers is None:
            return True
        if leftovers.journal is None:
            say(f"{leftovers.summary}; {leftovers.remedy}")
            return False
        owner = leftovers.journal.owner
        if leftovers.rebooted:
            journals.remove(journal_path)
            say(
                f"{leftovers.summary}; the machine was booted since then, so they are not in "
                "force: nothing is written"
            )
            return True
        with block_stop_signals():
            values_before = {
                entry.file: value_now(root, entry.file) for entry in leftovers.journal.entries
            }
            kept = write_values_back(root, leftovers.journal.entries, force=force)
            close_journal(journal_path, Journal(owner, tuple(kept)))
        changed = [
            entry
            for entry in leftovers.journal.entries
            if entry not in kept and values_before[entry.file] != entry.old
        ]
        restored = [
            f"{setting.name} {setting.old_value} (was {_join_values(setting, values_before)})"
            for setting in group_by_setting(changed)
        ]
        text = truncate_list(restored, _MOST_RESTORED_SHOWN)
        if changed:
            say(f"put back what {owner.description} had left: {text}")
        elif not kept:
            say(f"{owner.description} died with its settings put back: nothing to do")
        for reason in describe_kept(root, kept):
            say(reason)
        if kept:
            say(restore_hint(journal_path))
        return not kept


def forget_leftovers(root: Path, journal_path: Path) -> Path | None:
    """Move a dead process's journal aside; return where to, None when there is none.

    Raises `InputError` while its owner lives, or when it cannot be moved.
    """
    _refuse_reader(root, journal_path)
    with journals.lock_journal(journal_path, root):
        try:
            return journals.set_aside(journal_path) if exists(journal_path) else None
        except OSError as error:
            raise InputError(f"{journal_path}: cannot be moved: {error.strerror}") from error


def may_recover(journal_path: Path) -> bool:
    """Tell whether this user may put back what a journal names."""
    return os.access(journal_path.parent, os.W_OK) and os.access(journal_path, os.R_OK)


def _refuse_reader(root: Path, journal_path: Path) -> None:
    if not exists(journal_path) or may_recover(journal_path):
        return
    leftovers = read_leftovers(root, journal_path)
    journal = None if leftovers is None else leftovers.journal
    if is_locked(journal_path) or (journal is not None and is_alive(journal.owner.process, root)):
        owner_text = journal.owner.description if journal else "another user's rater"
        raise InputError(
            f"{owner_text} is alive and changes settings of this machine now (journal "
            f"{journal_path}): it puts them back itself at its end"
        )
    raise InputError(f"{journal_path} is another user's: `sudo rater settings restore`")


def read_leftovers(root: Path, path: Path) -> LeftoverSettings | None:
    """Return what a journal holds, whether its owner lives or not; None when there is none."""
    try:
        journal = journals.load(path)
    except DamagedJournalError as error:
        return LeftoverSettings(path, None, str(error), rebooted=False)
    if journal is None:
        return None
    return LeftoverSettings(path, journal, None, rebooted=journal.owner.boot_id != boot_id(root))


def _by_knob(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    return [
        (setting.name, setting.old_value)
        for setting in group_by_setting(entries)
        if any(entry.ours for entry in setting.entries)
    ]


def _join_values(setting: ChangedSetting, values: Mapping[str, str]) -> str:
    """Return the values of a setting's files, the first two of different ones."""
    return truncate_list(sorted({values[entry.file] for entry in setting.entries}), 2)


# -- Write old values, and say which could not be put back and why ---------------------------------

_PASSES = 3  # of writing: a file may change another one that was put back before it
_MOST_RESTORED_SHOWN = 8


def write_values_back(root: Path, entries: Sequence[Entry], *, force: bool) -> dict[Entry, str]:
    """Write the old values into files that have another one; return the rest, and why.

    The last that was set comes first; what the kernel changes by itself comes last.
    """
    kept: dict[Entry, str] = {}
    foreign_knobs: set[str] = set()  # knobs that are somebody else's by now
    for entry in entries:
        try:
            value = read_value(root, entry.file)
        except OSError as error:
            kept[entry] = f"{error.strerror} (a CPU or node that is offline?)"
            continue
        if not force and not entry.is_ours(value):
            ours = " and ".join(entry.ours) or "nothing"
            kept[entry] = f"somebody set it to {value} (rater set {ours}): left as it is"
            foreign_knobs.add(entry.knob)
    order = sorted(reversed(entries), key=lambda entry: entry.beside)
    kept |= {
        entry: "it goes with that"
        for entry in order
        if entry not in kept and entry.beside and not entry.ours and entry.knob in foreign_knobs
    }
    entries_to_write = [entry for entry in order if entry not in kept]
    failed: dict[Entry, str] = {}
    for _ in range(_PASSES):
        differing = [
            entry for entry in entries_to_write if value_now(root, entry.file) != entry.old
        ]
        failed = {}
        for entry in differing:
            try:
                write_value(root, entry.file, entry.old)
            except OSError as error:
                failed[entry] = f"writing: {error.strerror}"
        if not differing:
            break
    for entry in entries_to_write:
        value = value_now(root, entry.file)
        if value != entry.old:
            kept[entry] = failed.get(entry, f"it stays {value}")
    return kept


def close_journal(path: Path, journal: Journal) -> None:
    """Remove the journal, or leave in it what still has to be put back."""
    # One that cannot be written or removed names too much: putting that back again does no harm.
    with suppress(OSError):
        if journal.entries:
            journals.save(path, journal)
        else:
            journals.remove(path)


def value_now(root: Path, file: str) -> str:
    """Return a file's value, or that it is not there."""
    try:
        return read_value(root, file)
    except OSError:
        return "not there"


def describe_kept(root: Path, kept: Mapping[Entry, str]) -> Iterator[str]:
    """Say which settings are not put back, files of one knob and one reason together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry, reason in kept.items():
        groups.setdefault((_label(entry), entry.old, reason), []).append(str(root / entry.file))
    for (name, old_value, reason), files in groups.items():
        yield f"{name} was {old_value} and is not put back: {reason} ({truncate_list(files, 2)})"


def restore_hint(path: Path) -> str:
    """Say what can be done about settings that a journal keeps."""
    return (
        f"{path} keeps that: `rater settings restore` tries again, --force writes what was there, "
        "--forget leaves it as it is"
    )


class ChangedSetting(NamedTuple):
    """Files of one setting that had the same value."""

    name: str  # as people call it
    old_value: str
    entries: list[Entry]


def group_by_setting(entries: Sequence[Entry]) -> Iterator[ChangedSetting]:
    """Yield the settings, files with different old values apart."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((_label(entry), entry.old), []).append(entry)
    for (name, old_value), members in groups.items():
        yield ChangedSetting(name=name, old_value=old_value, entries=members)


def _label(entry: Entry) -> str:
    if entry.ours:
        return entry.knob
    unit = re.search(r"/(policy|node)\d+/", entry.file)
    return f"{unit[0].strip('/')} {Path(entry.file).name}" if unit else Path(entry.file).name
