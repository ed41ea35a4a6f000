"""What copies left behind: outputs compared, reports read, files cleared; never on the clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import batched

import trio

from rater.plan.schedule.phases import Phase, Step
from rater.record.events import CopyEnded, Event, OutputChecked
from rater.record.run import storable
from rater.record.status import CopyStatus, Validity
from rater.run.check.checker import Checker
from rater.run.check.request import Judged
from rater.run.check.workplace import Workplace
from rater.run.copies.launch import CopySpec

_GATHER_S = 0.5
_TOGETHER = 32  # copies checked together: it spares waiting for a full machine between any two


@dataclass(frozen=True, slots=True)
class EndedCopy:
    """A copy that ended, with what is needed to judge its output; no event: a filler."""

    event: CopyEnded | None
    step: Step
    spec: CopySpec


class Judge:
    """Judges ended copies, emits what it found, counts what failed."""

    def __init__(
        self,
        workplace: Workplace,
        emit: Callable[[Event], None],
        checker: Checker,
        failed_before: int = 0,
    ) -> None:
        self._workplace = workplace
        self._emit = emit
        self._checker = checker
        self.failed_copies = failed_before

    async def prepare(self, phase: Phase) -> None:
        """Have the process that checks waiting, when there will be something to check."""
        names = {step.benchmark for queue in phase.queues for step in queue.steps}
        if any(self._workplace.uses_checker(name) for name in names):
            await trio.to_thread.run_sync(self._checker.start)

    async def judge(self, ended: list[EndedCopy]) -> None:
        """Judge what ended, in a worker thread; emit the verdicts in the order of `ended`."""
        verdicts = await trio.to_thread.run_sync(self._judge_all, ended)
        for one, judged in zip(ended, verdicts, strict=True):
            if one.event is not None:
                self._report(one.event, one.spec, judged)

    async def judge_as_they_end(
        self, take: Callable[[], list[EndedCopy]], over: trio.Event, done: trio.Event
    ) -> None:
        """Judge what `take` returns, a few times a second, until `over`; then set `done`.

        For phases whose runs have no end: what is not cleared in time fills the disk.
        """
        while not over.is_set():
            with trio.move_on_after(_GATHER_S):
                await over.wait()
            await self.judge(take())
        done.set()

    def _report(self, event: CopyEnded, spec: CopySpec, judged: Judged) -> None:
        invalid = judged.validity is Validity.INVALID
        if judged.validity is not event.validity or judged.metrics:
            self._emit(
                OutputChecked(
                    event.phase,
                    event.benchmark,
                    event.iteration,
                    event.copy,
                    event.step,
                    judged.validity,
                    judged.detail,
                    storable(spec.files) if invalid else event.run_dir,
                    judged.metrics,
                )
            )
        if invalid or event.status is not CopyStatus.OK:
            self.failed_copies += 1

    def _judge_all(self, ended: list[EndedCopy]) -> list[Judged]:
        return [verdict for some in batched(ended, _TOGETHER) for verdict in self._judge(some)]

    def _judge(self, some: Sequence[EndedCopy]) -> list[Judged]:
        to_check = [(one.step, one.spec) for one in some if _is_open(one)]
        checked = iter(self._workplace.judge(to_check, self._checker))
        verdicts = []
        for one in some:
            judged = next(checked) if _is_open(one) else Judged(_known(one))
            # What explains a failure stays.
            status = one.event.status if one.event else CopyStatus.INTERRUPTED
            well = status is CopyStatus.OK and judged.validity is not Validity.INVALID
            if well or status is CopyStatus.INTERRUPTED:
                self._workplace.clear(one.spec)
            verdicts.append(judged)
        return verdicts


def _is_open(one: EndedCopy) -> bool:
    """Tell whether a copy's output is to be checked."""
    event = one.event
    return (
        event is not None and event.status is CopyStatus.OK and event.validity is Validity.UNCHECKED
    )


def _known(one: EndedCopy) -> Validity:
    return Validity.UNCHECKED if one.event is None else one.event.validity
