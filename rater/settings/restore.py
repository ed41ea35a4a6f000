"""Write what was there, and say what could not be put back and why."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from rater.settings import journal as journals
from rater.settings.journal import Entry, Journal
from rater.settings.setting import read_value, write_value
from rater.stop_signals import STOP_SIGNALS
from rater.text.words import some

_PASSES = 3  # a file may change another one that was put back before it


def put_back(root: Path, entries: Sequence[Entry], *, force: bool) -> dict[Entry, str]:
    """Write what was there wherever it is not; return what stays as it is, and why.

    The last that was set comes first; what the kernel changes by itself comes last.
    """
    kept: dict[Entry, str] = {}
    others: set[str] = set()  # knobs that are somebody else's by now
    for entry in entries:
        try:
            value = read_value(root, entry.file)
        except OSError as error:
            kept[entry] = f"{error.strerror} (a CPU or node that is offline?)"
            continue
        if not force and not entry.is_ours(value):
            ours = " and ".join(entry.ours) or "nothing"
            kept[entry] = f"somebody set it to {value} (rater set {ours}): left as it is"
            others.add(entry.knob)
    order = sorted(reversed(entries), key=lambda entry: entry.beside)
    kept |= {
        entry: "it goes with that"
        for entry in order
        if entry not in kept and entry.beside and not entry.ours and entry.knob in others
    }
    todo = [entry for entry in order if entry not in kept]
    failed: dict[Entry, str] = {}
    for _ in range(_PASSES):
        differing = [entry for entry in todo if value_now(root, entry.file) != entry.old]
        failed = {}
        for entry in differing:
            try:
                write_value(root, entry.file, entry.old)
            except OSError as error:
                failed[entry] = f"writing: {error.strerror}"
        if not differing:
            break
    for entry in todo:
        value = value_now(root, entry.file)
        if value != entry.old:
            kept[entry] = failed.get(entry, f"it stays {value}")
    return kept


def close(path: Path, journal: Journal) -> None:
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


def reasons(root: Path, kept: Mapping[Entry, str]) -> Iterator[str]:
    """Say what stays as it is, files of one knob and one reason together."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for entry, why in kept.items():
        groups.setdefault((_label(entry), entry.old, why), []).append(str(root / entry.file))
    for (name, old, why), files in groups.items():
        yield f"{name} was {old} and is not put back: {why} ({some(files, 2)})"


def way_out(path: Path) -> str:
    """Say what can be done about settings that a journal keeps."""
    return (
        f"{path} keeps that: `rater restore` tries again, --force writes what was there, "
        "--forget leaves it as it is"
    )


def grouped(entries: Sequence[Entry]) -> Iterator[tuple[str, str, list[Entry]]]:
    """Yield what people call a setting, what was there, and the files of which both is true."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((_label(entry), entry.old), []).append(entry)
    for (name, old), found in groups.items():
        yield name, old, found


def _label(entry: Entry) -> str:
    """Return what people call a file: its knob, or what it is where the kernel changed it."""
    if entry.ours:
        return entry.knob
    unit = re.search(r"/(policy|node)\d+/", entry.file)
    return f"{unit[0].strip('/')} {Path(entry.file).name}" if unit else Path(entry.file).name


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back Ctrl-C and its like until settings are back: they come after it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
