"""One benchmark, ready to be started by every copy."""

from __future__ import annotations

from dataclasses import dataclass

from rater.plan.suite.model import Expected, Metric
from rater.run.check.request import CheckRules
from rater.run.check.specdiff import KitComparison
from rater.run.programs.child_process import NO_LIMITS, Limits
from rater.run.programs.inputs import ReadyInput


@dataclass(frozen=True, slots=True)
class Own:
    """What one copy has for itself of a kit's benchmark: a run directory that is there already."""

    argv: tuple[str, ...]
    directory: str
    comparison: KitComparison | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """One benchmark, ready to be started."""

    name: str
    argv: tuple[str, ...]  # the wrap prefix included; () where copies have their own
    inputs: tuple[ReadyInput, ...]
    expected: tuple[Expected, ...]
    directory: str | None  # where all copies work; None: each in a run directory of its own
    metrics: tuple[Metric, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # of suite, benchmark and size
    threads: int = 1
    setup: tuple[str, ...] = ()  # command line, before each run of a copy
    setup_limits: Limits = NO_LIMITS  # of each run of it
    folders: tuple[str, ...] = ()  # of the run directory, into which its commands write
    own: tuple[Own, ...] = ()  # by copy, of a kit's benchmark

    @property
    def rules(self) -> CheckRules:
        """Return what its outputs are held to."""
        return CheckRules(self.expected, self.metrics)

    @property
    def compares(self) -> bool:
        """Tell whether a kit's own tool compares outputs."""
        return bool(self.own) and self.own[0].comparison is not None

    @property
    def shares_inputs(self) -> bool:
        """Tell whether copies read the same files, which none of them may change."""
        return any(not made.private for made in self.inputs)
