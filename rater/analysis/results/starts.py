"""How far apart copies started that were to start one after another, and how late; pure."""

from __future__ import annotations

import statistics
from itertools import pairwise

from msgspec import Struct

from rater.record.stored import StoredRun
from rater.text.values import group_by_key


class StaggeredStarts(Struct, frozen=True, kw_only=True):
    """The starts of staggered copies, over all phases."""

    apart_s: float  # median between a copy's start and that of the copy before it
    most_late_s: float  # after its turn, counted from the start of the first copy


def staggered_starts(run: StoredRun) -> StaggeredStarts | None:
    """Return how copies were released one after another; None: they were not, or nobody knows.

    A phase counts where the start of every copy is stored.
    """
    step_ns = run.head.stagger_ms * 1e6
    if not step_ns or run.head.order == "rotated" or run.head.window_s is not None:
        return None
    gaps_ns: list[int] = []
    late_ns = 0.0
    for copies in group_by_key((copy.phase, copy) for copy in run.copies).values():
        starts_ns = [copy.start_ns for copy in sorted(copies, key=lambda copy: copy.copy)]
        known_ns = [start_ns for start_ns in starts_ns if start_ns is not None]
        if len(known_ns) < len(starts_ns):
            continue
        gaps_ns += [later - earlier for earlier, later in pairwise(known_ns)]
        turns = (known_ns[0] + turn * step_ns for turn in range(len(known_ns)))
        late_ns = max(late_ns, *(at - turn for at, turn in zip(known_ns, turns, strict=True)))
    if not gaps_ns:
        return None
    return StaggeredStarts(apart_s=statistics.median(gaps_ns) / 1e9, most_late_s=late_ns / 1e9)
