"""Axes of a sweep that stand in the command of its runs as placeholders; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rater.analysis.results.copies import Point
from rater.plan.request import BY_NAME


def is_one_template(commands: Mapping[int, str | None], points: Sequence[Point]) -> bool:
    """Tell whether points of a sweep have one command, but for the values of axes in it.

    An axis may stand in it as a placeholder: `seq {n}`. Axes that are options never do.
    """
    if any(point_run.block is None for point in points for point_run in point.runs):
        return False
    words = {number: (command or "").split(" ") for number, command in commands.items()}
    if len({len(of_run) for of_run in words.values()}) != 1:
        return False
    for place in range(len(next(iter(words.values())))):
        different = {of_run[place] for of_run in words.values()}
        templates = {
            _with_axes(words[number][place], point) for point in points for number in point.numbers
        }
        if len(different) > 1 and len(templates) > 1:
            return False
    return True


def _with_axes(word: str, point: Point) -> str:
    """Return a word of a command with the names of axes in place of their values."""
    axes = {value: axis for axis, value in point.values if axis not in BY_NAME and value}
    if not axes:
        return word
    longest_first = sorted(axes, key=len, reverse=True)  # 10 before 1
    values = re.compile("|".join(map(re.escape, longest_first)))
    return values.sub(lambda found: f"{{{axes[found[0]]}}}", word)
