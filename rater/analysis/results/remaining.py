"""Which phases of a plan a stored run has behind it, and what is left of it to run; pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.schedule import Phase, Plan
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.run import CopyStatus, RunStatus, Validity, is_from_outside
from rater.record.stored import StoredRun, is_good
from rater.text.values import group_by_key

# Between the stored part and what follows, when the wall clock shows less (it may be set back).
_GAP_NS = 1_000_000_000


class PhaseState(StrEnum):
    """What there is of a phase."""

    DONE = "done"  # measured to its end and judged, well or not
    TORN = "torn"  # begun, and not to be trusted: runs again as a whole
    MISSING = "missing"  # never begun


class PlannedPhase(Struct, frozen=True):
    """A phase of the plan, and the bracket that a stored run has of it."""

    phase: Phase  # as it will run: with a number of its own where it does
    state: PhaseState
    stored: int | None  # number of the stored bracket that is done or torn


class RemainingPlan(Struct, frozen=True):
    """What a stored run has, and what it lacks."""

    phases: tuple[PlannedPhase, ...]  # in the order of the plan
    runs_done: int  # copy runs of the phases that are done
    failed: int  # and those of them that failed
    elapsed_ns: int  # when what is stored ends, in the run's time; 0: nothing ever ran

    @property
    def ahead(self) -> tuple[Phase, ...]:
        """The phases that are to be run."""
        return tuple(phase.phase for phase in self.phases if phase.state is not PhaseState.DONE)

    @property
    def torn(self) -> tuple[int, ...]:
        """Numbers of the stored brackets that are to be marked."""
        return tuple(
            phase.stored
            for phase in self.phases
            if phase.state is PhaseState.TORN and phase.stored is not None
        )

    def resumed_at_ns(self, since_start_ns: int) -> int:
        """Return the run's time at which it goes on, `since_start_ns` by the wall clock.

        Never before the end of what is stored: the clock may have been set back. A run
        of which nothing is stored begins at 0.
        """
        return max(self.elapsed_ns + _GAP_NS, since_start_ns) if self.elapsed_ns else 0


def remaining_plan(plan: Plan, run: StoredRun) -> RemainingPlan:
    """Compare a plan with what is stored of it, phase by phase (benchmark and iteration).

    Phases that never began keep their number; torn ones get a fresh one, behind all
    that are planned or stored.
    """
    brackets = group_by_key(
        ((bracket.benchmark, bracket.iteration), bracket)
        for bracket in run.brackets
        if not bracket.torn
    )
    copies = group_by_key((copy.phase, copy) for copy in run.copies)
    used_numbers = {bracket.phase for bracket in run.brackets}
    fresh = max(len(plan.phases), max(used_numbers, default=-1) + 1)
    cut = _cut_with_the_run(run)
    phases = []
    runs_done = failed = 0
    for phase in plan.phases:
        stored = brackets.get((phase.benchmark, phase.iteration), [])
        done = [
            bracket
            for bracket in stored
            if bracket.phase != cut and _is_done(phase, bracket, copies.get(bracket.phase, ()))
        ]
        if done:
            rows = copies.get(done[0].phase, [])
            runs_done += len(rows)
            failed += sum(not is_good(copy) for copy in rows)
            phases.append(PlannedPhase(phase, PhaseState.DONE, done[0].phase))
            continue
        number = phase.number
        if number in used_numbers:
            number, fresh = fresh, fresh + 1
        phases.append(
            PlannedPhase(
                replace(phase, number=number),
                PhaseState.TORN if stored else PhaseState.MISSING,
                stored[0].phase if stored else None,
            )
        )
    ends = [copy.finish_ns or 0 for copy in run.copies] + [
        bracket.finish_ns or 0 for bracket in run.brackets
    ]
    return RemainingPlan(tuple(phases), runs_done, failed, max(ends, default=0))


def _is_done(phase: Phase, bracket: PhaseEnded, copies: Sequence[CopyEnded]) -> bool:
    """Tell whether a phase came to its end, with all its copies, and all were judged."""
    if not bracket.complete or bracket.start_ns is None or bracket.finish_ns is None:
        return False
    if any(  # stopped, or ended well and nobody looked at what it wrote
        copy.status is CopyStatus.INTERRUPTED
        or (copy.status is CopyStatus.OK and copy.validity is Validity.UNCHECKED)
        for copy in copies
    ):
        return False
    ran = {(copy.copy, copy.step) for copy in copies}
    if phase.window is not None:  # as many runs as there was time for, at least one a copy
        return all((queue.copy, 0) in ran for queue in phase.queues)
    return ran == {(queue.copy, step) for queue in phase.queues for step in range(len(queue.steps))}


def _cut_with_the_run(run: StoredRun) -> int | None:
    """Return the last phase of a killed run where copies of it died of a signal from outside.

    What kills rater without a word (SIGKILL to all of a job's processes) may reach copies first.
    """
    if run.head.status is not RunStatus.KILLED or not run.brackets:
        return None
    last = max(bracket.phase for bracket in run.brackets)
    died = any(
        copy.phase == last
        and copy.status is CopyStatus.FAILED
        and copy.signal is not None
        and is_from_outside(copy.signal)
        for copy in run.copies
    )
    return last if died else None
