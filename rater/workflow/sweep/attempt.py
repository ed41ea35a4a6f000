"""One run of a sweep: stored together with what it is a run of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rater.analysis.conditions.conditions import (
    Conditions,
    condition_differences,
    stored_conditions,
)
from rater.errors import InputError
from rater.plan.sweep.grid import Slot
from rater.record.run import storable
from rater.show.compare.changes import changes_text
from rater.workflow.run.attempt import Attempt, Entered, Start

if TYPE_CHECKING:
    from rater.plan.schedule.phases import Plan
    from rater.store.store import Store
    from rater.workflow.sweep.ready import PointReady

# What must be the same in all runs of a sweep, whatever its axes are.
_OF_ALL = ("kernel.release", "kernel.version", "kernel.cmdline", "libc")


class ChangedError(InputError):
    """What a resumed sweep would compare is not the same any more."""


class SlotAttempt(Attempt):
    """A run for one slot of a sweep: stored together with that, with its tags."""

    def __init__(
        self, sweep: int, slot: Slot, point: PointReady, comparable: tuple[int, bool] | None
    ) -> None:
        """`comparable`: a run that it will be compared with, and whether that is of its point."""
        super().__init__()
        self._sweep = sweep
        self._slot = slot
        self._point = point
        self._comparable = comparable

    def enter(self, store: Store, plan: Plan, start: Start, say: Callable[[str], None]) -> Entered:
        """Store that it begins, and of what it is a run; raises `ChangedError`."""
        from rater.store.sweeps import begin_run

        if self._comparable is not None:
            self._refuse_changed(store, start.conditions, *self._comparable)
        # Not among what was asked for: `rater rerun` makes no part of the sweep.
        own = (("sweep", str(self._sweep)), ("block", str(self._slot.block)))
        axes = tuple((storable(axis), storable(value)) for axis, value in self._point.values)
        self.number = begin_run(
            store,
            self._sweep,
            self._slot,
            replace(start.run, tags=(*start.run.tags, *own, *axes)),
            start.conditions.host,
            settings=start.conditions.settings,
            pus=start.conditions.pus,
            phases=len(plan.phases),
        )
        return Entered(self.number, plan.phases)

    def _refuse_changed(
        self, store: Store, present: Conditions, run: int, is_of_point: bool
    ) -> None:
        """Refuse a run that could not be compared with those that the sweep has already."""
        before = stored_conditions(store.load(run, secrets=True))
        if not is_of_point:
            before, present = _of_all(before), _of_all(present)
        found = [it for it in condition_differences(before, present) if it.significant]
        if found:
            raise ChangedError(
                f"sweep {self._sweep} cannot go on, its runs could not be compared; since "
                f"run {run}, this changed:{changes_text(found)}\nwith --force it goes on"
            )


def _of_all(it: Conditions) -> Conditions:
    kept = tuple((name, value) for name, value in it.settings if name in _OF_ALL)
    return replace(it, settings=kept, pus=(), placements=(), benchmarks=None)
