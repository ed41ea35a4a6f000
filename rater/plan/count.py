"""How instructions of copies are counted (`--count`), and the metric that it comes to; pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from rater.plan.metric import Metric
from rater.record.run import INSTRUCTIONS

COUNTS: Final = (INSTRUCTIONS,)
# What valgrind prints as a process ends: ==123== I   refs:      85,876,158
_REFS: Final = r"^==[0-9]+== I +refs: +([0-9,]+)$"


class CountSource(Struct, frozen=True, kw_only=True):
    """What counts the instructions of copies."""

    name: str  # with its version; counts of two sources are never compared
    wrap: tuple[str, ...] = ()  # in front of each command; empty: the PMU counts
    pattern: str | None = None  # of what the wrap prints on stderr, summed over processes

    @property
    def metric(self) -> Metric:
        """The metric that counts are kept as; without a pattern no output is read for it."""
        return Metric(
            name=INSTRUCTIONS,
            pattern=self.pattern or "",
            unit=self.name,
            better="lower",
            combine="mean",
            file="stderr",
            scale=1.0,
            is_sum=True,
        )


def valgrind_source(program: str, version: str) -> CountSource:
    """Return valgrind as what counts: all processes and threads, without a model of caches."""
    wrap = (
        program,
        "--tool=cachegrind",
        "--cache-sim=no",
        "--cachegrind-out-file=/dev/null",
        "--trace-children=yes",
        "--",
    )
    return CountSource(name=f"valgrind {version}", wrap=wrap, pattern=_REFS)


def pmu_source(processor: str) -> CountSource:
    """Return the counters of a processor as what counts."""
    return CountSource(name=f"PMU of {processor}" if processor else "PMU")
