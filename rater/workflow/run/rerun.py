"""The same run anew: what it was asked for, and what has changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rater.workflow.run.attempt import Attempt, Entered, Now

if TYPE_CHECKING:
    from rater.plan.schedule.phases import Plan
    from rater.record.stored import StoredRun
    from rater.store.store import Store


class Rerun(Attempt):
    """A new run that remembers which one it repeats."""

    def __init__(self, run: StoredRun) -> None:
        super().__init__()
        self._stored = run

    def enter(self, store: Store, plan: Plan, now: Now, say: Callable[[str], None]) -> Entered:
        """Store that the run begins, and what differs from the one it repeats."""
        from rater.record.events import Noted
        from rater.show.compare.changes import changes_text
        from rater.workflow.run.repeat import conditions_of, what_changed

        head = self._stored.head
        found = what_changed(self._stored, conditions_of(now))
        say(
            f"differs from run {head.run}:{changes_text(found)}"
            if found
            else f"nothing differs from run {head.run}"
        )
        entered = super().enter(store, plan, now, say)
        store.append(
            entered.number,
            Noted(f"rerun of run {head.run} ({head.uuid})"),
            *(Noted(f"differs from run {head.run}: {it}") for it in found),
        )
        return entered
