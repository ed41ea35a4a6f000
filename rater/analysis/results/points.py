"""Runs that stand for one value of what is compared: a point of a sweep, or a word of the user.

What is compared (`rater compare`) and what is drawn against copies (`rater scale`) are
points; where their runs were made in rounds, runs of one round are neighbours in time.
"""

from __future__ import annotations

from dataclasses import dataclass

from rater.record.stored import StoredRun


@dataclass(frozen=True, slots=True)
class PointRun:
    """One run of a point."""

    run: StoredRun
    # Runs of one block (round) were made next to each other, one or more of every point:
    # what drifts in the machine hits them alike. None: not known.
    block: int | None


@dataclass(frozen=True, slots=True)
class Point:
    """All runs under one set of values."""

    label: str  # as a heading: "thp=always", "run 7"
    values: tuple[tuple[str, str], ...]  # axis and value, in the axes' order; (): plain runs
    runs: tuple[PointRun, ...]  # never empty; of several points, the first is the baseline

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its runs in the database."""
        return tuple(one.run.head.run for one in self.runs)
