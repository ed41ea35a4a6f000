"""One attempt at a run: a new one here; `rerun`, `resume` and a sweep have their own."""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rater.analysis.conditions.conditions import Conditions
from rater.plan.schedule.phases import Phase, Plan
from rater.record.run import Run
from rater.store.store import Store


@dataclass(frozen=True, slots=True)
class Start:
    """A run that begins, and what it is made under."""

    run: Run
    conditions: Conditions

    def with_settings(self, settings: tuple[tuple[str, str], ...]) -> Start:
        """Return it with more that is kept of what it is made under, or with newer values."""
        kept = dict(self.conditions.settings) | dict(settings)
        return Start(self.run, replace(self.conditions, settings=tuple(kept.items())))


@dataclass(frozen=True, slots=True)
class Entered:
    """A run that the database has, and what is to be run of it."""

    number: int
    phases: tuple[Phase, ...]
    elapsed_before_ns: int = 0  # the run's time at its next release
    runs_before: int = 0  # copy runs that are done,
    failed_before: int = 0  # and those of them that failed


class Attempt:
    """A new run."""

    def __init__(self) -> None:
        self.uuid = str(uuids.uuid4())
        self.number: int | None = None  # of the run; None: the database has not got it

    @property
    def mark(self) -> str:
        """What tells the processes of this attempt from all others."""
        return self.uuid

    @property
    def folder(self) -> Path:
        """Where its run directories go, below the folder of all runs; not there yet."""
        return Path(self.uuid)

    def enter(self, store: Store, plan: Plan, start: Start, say: Callable[[str], None]) -> Entered:
        """Store that the run begins; `say` tells the user of something.

        Raises `InputError`, with nothing stored, when it must not begin like this.
        """
        now = start.conditions
        self.number = store.begin(start.run, now.host, now.settings, now.pus)
        return Entered(self.number, plan.phases)
