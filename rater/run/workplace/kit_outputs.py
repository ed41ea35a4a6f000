"""Outputs in the run directories of kits: which ones a phase wrote, and what the kit finds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rater.plan.placement.place import Placement
from rater.record.status import Validity
from rater.run.check.request import Judged
from rater.run.check.specdiff import KitComparison, KitOutput, compare, states
from rater.run.copies.launch import CopySpec

OVERWRITTEN = Judged(
    Validity.NOT_CHECKED,
    "not validated: the copy's next run wrote into the same run directory before it was compared",
)


class KitOutputs:
    """What is compared once a phase is over; copies may use a directory several times."""

    def __init__(self) -> None:
        # By directory: who writes there last, and compared files as they were before the phase.
        self._last: dict[str, str] = {}
        self._before: dict[str, KitOutput] = {}
        self._begin_s = 0.0  # of the monotonic clock

    def begin_phase(self) -> None:
        """Forget the phase before."""
        self._last.clear()
        self._before.clear()
        self._begin_s = time.monotonic()

    def expect(self, comparison: KitComparison, placement: Placement, spec: CopySpec) -> None:
        """Take note of what is compared once the phase is over."""
        directory = spec.directory
        self._last[directory] = spec.output
        if directory not in self._before:
            before = states(directory, comparison.outputs)
            self._before[directory] = KitOutput(comparison, placement, directory, before)

    def judge(
        self, specs: Sequence[CopySpec], workers: int, stop: Callable[[], bool]
    ) -> list[Judged]:
        """Let the kit's own tool compare; where a later run of the copy wrote, nothing is left."""
        last = {
            spec.output: (self._before[spec.directory], f"{spec.output}compare")
            for spec in specs
            if self._last.get(spec.directory) == spec.output
        }
        found = compare(list(last.values()), workers, stop, time.monotonic() - self._begin_s)
        judged = dict(zip(last, found, strict=True))
        return [judged.get(spec.output, OVERWRITTEN) for spec in specs]
