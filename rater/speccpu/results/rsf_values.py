"""Values of a raw file as what they stand for; what is none is a problem with its line."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from rater.speccpu.problem import Problems
from rater.speccpu.results.result import LONGEST_S, Figure

NUMBER = re.compile(r"[+-]?\d{1,18}(?:\.(\d{0,18}))?(?:[eE][+-]?\d{1,3})?$", re.ASCII)
_LATEST_S = 1e11  # since 1970
_SHOWN = 60


@dataclass(slots=True)
class RawValue:
    """The text behind a key."""

    line: int
    key: str
    text: str
    problems: Problems

    def problem(self, text: str) -> None:
        """Note what is wrong with it."""
        self.problems.add(self.line, text)

    def figure(self) -> Figure | None:
        """Return a number, None for `--` and nothing."""
        if not self.text.strip("-"):
            return None
        figure = figure_of(self.text, self.line)
        if figure is None:
            self.problem(f"{self.key}: no number: {shown(self.text)}")
        return figure

    def seconds(self) -> float | None:
        """Return a time that can be one."""
        figure = self.figure()
        if figure is not None and not 0 <= figure.value <= LONGEST_S:
            self.problem(f"{self.key}: no time: {shown(self.text)}")
            return None
        return figure.value if figure else None

    def moment(self) -> float | None:
        """Return seconds since 1970."""
        return moment_of(self.figure())

    def whole(self) -> int | None:
        """Return a whole number, None for `--` and nothing."""
        if not self.text.strip("-"):
            return None
        if is_whole(self.text, 9):
            return int(self.text)
        self.problem(f"{self.key}: no whole number: {shown(self.text)}")
        return None


def figure_of(text: str, line: int) -> Figure | None:
    """Return a number with its decimals, None where it is none."""
    found = NUMBER.match(text)
    if found is None or not math.isfinite(value := float(text)):
        return None
    return Figure(value, len(found[1] or ""), line)


def moment_of(figure: Figure | None) -> float | None:
    """Return seconds since 1970 that can be some."""
    return figure.value if figure and 0 < figure.value < _LATEST_S else None


def is_whole(text: str, digits: int) -> bool:
    """Tell whether this is a number of at most so many digits."""
    return text.isascii() and text.isdigit() and len(text) <= digits


def shown(text: str) -> str:
    """Return text of a file as messages have it."""
    text = text.strip()
    return ascii(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
