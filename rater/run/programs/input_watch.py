"""Whether inputs that all copies share are still what they were when they were made."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rater.run.programs.digests import state_if_there
from rater.run.programs.inputs import ReadyInput


class InputWatch:
    """Tells whether copies wrote into inputs that they share, by ctimes, which nobody can put back.

    Links move a ctime too: rater makes and removes its own within `linking`. Where a ctime has
    moved otherwise the content is read. A write in the microseconds of another copy's link is not
    seen here, and found by the next run that wants the file.
    """

    def __init__(self) -> None:
        self._known: dict[Path, list[str]] = {}
        self._next_s = 0.0

    @contextmanager
    def linking(self, inputs: Iterable[ReadyInput]) -> Iterator[None]:
        """Take what happens to the ctimes of inputs for rater's own doing."""
        own = [
            one.path
            for one in inputs
            if not one.private and self._known.get(one.path) in (None, state_if_there(one.path))
        ]
        yield
        for path in own:
            self._known[path] = state_if_there(path)

    def damaged(self, one: ReadyInput, *, seldom: bool = False) -> bool:
        """Tell whether a shared input is not what it was.

        `seldom`: copies run, and reading it may take a twentieth of the time at most.
        """
        if one.damaged():
            return True
        state = state_if_there(one.path)
        if one.private or self._known.get(one.path) == state:
            return False
        began_s = time.monotonic()
        if seldom and began_s < self._next_s:
            return False
        if one.changed():
            return True
        self._known[one.path] = state
        self._next_s = time.monotonic() + 20 * (time.monotonic() - began_s)
        return False
