"""Settings of the machine that a dead sweep left: put back before a run, else only reported."""

from __future__ import annotations

from rater.settings.paths import journal_paths, sysroot
from rater.settings.recover import left_behind, may_recover, recover
from rater.streams import say


def put_back() -> tuple[str, ...]:
    """Put back what a dead process left, and say so; return what a run should be warned of.

    Call it with the machine's lock, before anything is read of the machine: settings must
    not change under copies that are timed. Nothing happens while their owner lives, this
    process or another.
    """
    root = sysroot()
    warnings: list[str] = []
    for path in journal_paths():
        left = left_behind(root, path)
        if left is None:
            continue
        if not may_recover(path):
            warnings.append(f"{left.text}; they are in force still: `sudo rater restore`")
            continue
        messages: list[str] = []
        if recover(root, path, messages.append):
            for text in messages:
                say(text)
        else:
            warnings += messages
    return tuple(warnings)


def report() -> None:
    """Say what a dead process left, on standard error; change nothing."""
    for path in journal_paths():
        left = left_behind(sysroot(), path)
        if left is not None:
            say(f"{left.text}; {left.way}")
