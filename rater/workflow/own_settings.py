"""Settings of the machine that a run or a command itself needs: set, told, put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from rater.errors import InputError
from rater.settings.catalog import find
from rater.settings.paths import sysroot
from rater.settings.tuner import Tuner
from rater.text.words import some

_SHOWN = 8


def refuse_unsettable(wanted: Mapping[str, str]) -> None:
    """Raise `InputError` that names the settings that this process cannot set; only looks."""
    obstacles = {name: find(name, sysroot()).obstacle() for name in wanted}
    refused = [f"{name} cannot be set: {why}" for name, why in obstacles.items() if why]
    if refused:
        raise InputError("\n".join(refused))


class RunSettings:
    """Sets what one run wants of the machine; a context manager, behind which it is put back.

    All goes through a `Tuner`, which other settings may be set with, and which puts everything back
    at its own end, also after a kill -9.
    """

    def __init__(self, tuner: Tuner, report: Callable[[str], None]) -> None:
        self._tuner = tuner
        self._report = report
        self._before: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Put back what this run set for itself: the next is not to differ by that."""
        if self._before:
            self._tuner.set(self._before)

    def set(self, wanted: Mapping[str, str]) -> None:
        """Set what this run wants, by name. Raises `InputError` where it cannot be set.

        Raises `RunError` where the kernel takes something else, which then is what it is.
        """
        if not wanted:
            return
        refuse_unsettable(wanted)
        now = {name: find(name, sysroot()).read() for name in wanted}
        for name, present in now.items():
            if len({value for _, value in present.files}) == 1:  # else it is no one value
                self._before.setdefault(name, present.text)
        self._tuner.set(wanted)
        told = [f"{name}={value} (was {now[name].text})" for name, value in wanted.items()]
        self._report(f"set for now, and put back at the end: {some(told, _SHOWN)}")
