"""What copies left behind: outputs compared, reports read, files cleared; never on the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import trio

from rater.plan.schedule import Step
from rater.record import CopyEnded, CopyStatus, Event, OutputChecked, Validity, storable
from rater.run.job import Judged, Workplace
from rater.run.launch import CopySpec

_GATHER_S = 0.5


@dataclass(frozen=True, slots=True)
class Ended:
    """A copy that ended, with what is needed to judge its output; no event: a filler."""

    event: CopyEnded | None
    step: Step
    spec: CopySpec


class Judge:
    """Judges ended copies, emits what it found, counts what failed."""

    def __init__(
        self, workplace: Workplace, emit: Callable[[Event], None], failed_before: int = 0
    ) -> None:
        self._workplace = workplace
        self._emit = emit
        self.failed_copies = failed_before

    async def judge(self, ended: list[Ended]) -> None:
        """Judge what ended, in a worker thread; emit the verdicts in the order of `ended`."""
        verdicts = await trio.to_thread.run_sync(self._judge_all, ended)
        for one, judged in zip(ended, verdicts, strict=True):
            if one.event is not None:
                self._tell(one.event, one.spec, judged)

    async def judge_as_they_end(
        self, take: Callable[[], list[Ended]], over: trio.Event, done: trio.Event
    ) -> None:
        """Judge what `take` hands out, a few times a second, until `over`; then set `done`.

        For phases whose runs have no end: what is not cleared in time fills the disk.
        """
        while not over.is_set():
            with trio.move_on_after(_GATHER_S):
                await over.wait()
            await self.judge(take())
        done.set()

    def _tell(self, event: CopyEnded, spec: CopySpec, judged: Judged) -> None:
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

    def _judge_all(self, ended: list[Ended]) -> list[Judged]:
        return [self._judge(one) for one in ended]

    def _judge(self, one: Ended) -> Judged:
        event = one.event
        if event is None or event.status is CopyStatus.INTERRUPTED:
            self._workplace.clear(one.spec)
            return Judged(Validity.UNCHECKED if event is None else event.validity)
        judged = Judged(event.validity)
        if event.status is CopyStatus.OK:
            if event.validity is Validity.UNCHECKED:
                judged = self._workplace.judge(one.step, one.spec)
            if judged.validity is not Validity.INVALID:
                self._workplace.clear(one.spec)
        return judged
