"""What a process left that changed settings and died: seen, put back, or dropped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.process_id import boot_id, is_alive
from rater.settings import journal as journals
from rater.settings.journal import DamagedError, Entry, Journal, is_locked
from rater.settings.paths import is_there
from rater.settings.restore import (
    close,
    grouped,
    put_back,
    reasons,
    undisturbed,
    value_now,
    way_out,
)
from rater.text.words import some


@dataclass(frozen=True, slots=True)
class Left:
    """What a process left that is dead by now."""

    path: Path
    journal: Journal | None  # None: nobody can tell
    damage: str | None  # why
    rebooted: bool  # since then: nothing of it is in force

    @property
    def text(self) -> str:
        """What it is, in one sentence."""
        if self.journal is None:
            return f"a damaged journal of settings, {self.damage}"
        text = some([f"{name} was {old}" for name, old in _by_knob(self.journal.entries)])
        if self.rebooted:
            return f"{self.journal.owner.text} changed settings before a reboot: {text}"
        return f"{self.journal.owner.text} died and left settings changed: {text}"

    @property
    def way(self) -> str:
        """What can be done about it."""
        if self.journal is None:
            return (
                "nothing can be put back from it: set by hand what it names, then "
                "`rater restore --forget` moves it aside"
            )
        return "`rater restore` closes it" if self.rebooted else "`rater restore` puts them back"


def left_behind(root: Path, journal_path: Path) -> Left | None:
    """Return what a dead process left; None when that is nothing, or while its owner lives."""
    if not is_there(journal_path) or is_locked(journal_path):
        return None
    left = left_at(root, journal_path)
    if left is None or (left.journal is not None and is_alive(left.journal.owner.process, root)):
        return None
    return left


def recover(
    root: Path, journal_path: Path, say: Callable[[str], None], *, force: bool = False
) -> bool:
    """Put back what a dead process left; tell whether nothing of it remains.

    `force` writes what was there over what somebody else set since then. Raises `InputError`
    while the owner lives. Nothing is guessed from a damaged journal.
    """
    _refuse_reader(root, journal_path)
    with journals.locked(journal_path, root):
        left = left_at(root, journal_path)
        if left is None:
            return True
        if left.journal is None:
            say(f"{left.text}; {left.way}")
            return False
        owner = left.journal.owner
        if left.rebooted:
            journals.remove(journal_path)
            say(
                f"{left.text}; the machine was booted since then, so they are not in force: "
                "nothing is written"
            )
            return True
        with undisturbed():
            before = {entry.file: value_now(root, entry.file) for entry in left.journal.entries}
            kept = put_back(root, left.journal.entries, force=force)
            close(journal_path, Journal(owner, tuple(kept)))
        changed = [
            entry
            for entry in left.journal.entries
            if entry not in kept and before[entry.file] != entry.old
        ]
        text = some(
            [
                f"{name} {old} (was {some(sorted({before[e.file] for e in of}), 2)})"
                for name, old, of in grouped(changed)
            ],
            8,
        )
        if changed:
            say(f"put back what {owner.text} had left: {text}")
        elif not kept:
            say(f"{owner.text} died with its settings put back: nothing to do")
        for reason in reasons(root, kept):
            say(reason)
        if kept:
            say(way_out(journal_path))
        return not kept


def forget(root: Path, journal_path: Path) -> Path | None:
    """Move a dead process's journal aside; return where to, None when there is none.

    Raises `InputError` while its owner lives, or when it cannot be moved.
    """
    _refuse_reader(root, journal_path)
    with journals.locked(journal_path, root):
        try:
            return journals.set_aside(journal_path) if is_there(journal_path) else None
        except OSError as error:
            raise InputError(f"{journal_path}: cannot be moved: {error.strerror}") from error


def may_recover(journal_path: Path) -> bool:
    """Tell whether this user may put back what a journal names."""
    return os.access(journal_path.parent, os.W_OK) and os.access(journal_path, os.R_OK)


def _refuse_reader(root: Path, journal_path: Path) -> None:
    if not is_there(journal_path) or may_recover(journal_path):
        return
    left = left_at(root, journal_path)
    journal = None if left is None else left.journal
    if is_locked(journal_path) or (journal is not None and is_alive(journal.owner.process, root)):
        who = journal.owner.text if journal else "another user's rater"
        raise InputError(
            f"{who} is alive and changes settings of this machine now (journal {journal_path}): "
            "it puts them back itself at its end"
        )
    raise InputError(f"{journal_path} is another user's: `sudo rater restore`")


def left_at(root: Path, path: Path) -> Left | None:
    """Return what a journal holds, whether its owner lives or not; None when there is none."""
    try:
        journal = journals.load(path)
    except DamagedError as error:
        return Left(path, None, str(error), rebooted=False)
    if journal is None:
        return None
    return Left(path, journal, None, rebooted=journal.owner.boot_id != boot_id(root))


def _by_knob(entries: Sequence[Entry]) -> list[tuple[str, str]]:
    """Return (knob, what was there), without what the kernel changes by itself."""
    return [(name, old) for name, old, of in grouped(entries) if any(e.ours for e in of)]
