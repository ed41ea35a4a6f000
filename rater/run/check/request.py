"""What is asked of the process that checks, and what is found."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rater.plan.suite.model import Expected, Metric
from rater.record.status import Validity


@dataclass(frozen=True, slots=True)
class CheckRules:
    """What a benchmark's copies are held to."""

    expected: tuple[Expected, ...] = ()
    metrics: tuple[Metric, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.expected or self.metrics)


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """What one copy wrote, and the rules for it."""

    rules: CheckRules
    directory: str
    stdout: str
    stderr: str

    def path_of(self, name: str) -> Path:
        """Return where a file lies that the rules name."""
        own = {"stdout": self.stdout, "stderr": self.stderr}
        return Path(own.get(name) or f"{self.directory}/{name}")


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a copy's output once it was checked."""

    validity: Validity
    detail: str | None = None  # the first difference, in words
    metrics: tuple[tuple[str, float], ...] = ()  # what the copy reported: name, value
