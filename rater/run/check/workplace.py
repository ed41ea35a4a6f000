"""Where copies run and how their output is judged, as the supervisor sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rater.plan.schedule.phases import Phase, Step
from rater.run.check.checker import Checker
from rater.run.check.request import Judged
from rater.run.copies.launch import CopySpec


class Workplace(Protocol):
    """Where copies run and how their output is judged; called in worker threads."""

    def specs(self, phase: Phase, stop: Callable[[], bool]) -> dict[tuple[int, int], CopySpec]:
        """Make the run directories; return what to start by (copy, position in its queue).

        Of a phase with a window, whose queues have no end, only for each copy's first run.
        `stop` is asked while set-up commands run: they end when it says so.
        """
        ...

    def spec(self, copy: int, position: int, step: Step, stop: Callable[[], bool]) -> CopySpec:
        """Make what a later run of a copy needs, of a phase with a window."""
        ...

    @property
    def keeps(self) -> bool:
        """Tell whether the files of copies that ended well are kept too."""
        ...

    def expects(self, benchmark: str) -> bool:
        """Tell whether there is an output to compare with."""
        ...

    def uses_checker(self, benchmark: str) -> bool:
        """Tell whether `judge` will want the process that checks: it takes a while to start."""
        ...

    def judge(self, copies: Sequence[tuple[Step, CopySpec]], checker: Checker) -> list[Judged]:
        """Compare outputs with what is expected, and read what they report.

        `Validity.UNCHECKED` is who was not checked before the run was stopped.
        """
        ...

    def clear(self, spec: CopySpec) -> None:
        """Remove the files of a copy that ended well (unless they are to be kept)."""
        ...

    def take_notices(self) -> list[str]:
        """Return what a person should know of the above, each thing once."""
        ...
