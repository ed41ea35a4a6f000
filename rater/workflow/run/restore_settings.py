"""Settings of the machine that a dead sweep left: put back before a run, else only told."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rater.settings.paths import journal_paths, sysroot


def put_back() -> tuple[str, ...]:
    """Put back what a dead process left, and say so; return what a run should be warned of.

    Call it with the machine's lock, before anything is read of the machine: settings must
    not change under copies that are timed. Nothing happens while their owner lives, this
    process or another.
    """
    from rater.settings.recover import left_behind, may_recover, recover

    root = sysroot()
    warnings: list[str] = []
    for path in journal_paths():
        left = left_behind(root, path)
        if left is None:
            continue
        if not may_recover(path):
            warnings.append(f"{left.text}; they are in force still: `sudo rater restore`")
            continue
        said: list[str] = []
        if recover(root, path, said.append):
            _tell(said, _say)
        else:
            warnings += said
    return tuple(warnings)


def tell() -> None:
    """Say what a dead process left, on standard error; change nothing."""
    from rater.settings.recover import left_behind

    for path in journal_paths():
        left = left_behind(sysroot(), path)
        if left is not None:
            _say(f"{left.text}; {left.way}")


def _tell(said: list[str], say: Callable[[str], None]) -> None:
    for text in said:
        say(text)


def _say(text: str) -> None:
    print(f"rater: {text}", file=sys.stderr)
