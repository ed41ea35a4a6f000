"""Places, sizes and counts in the user's words; pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rater.text.cpuset import format_list

_MOST_NAMED = 3
_MOST_LETTERS = 60  # of a list of CPUs


def format_slowdown(slowdown: float) -> str:
    """Return `+18.2 %` or `-4.0 %` of a time over its fair time."""
    size = round((slowdown - 1) * 100, 1) + 0.0  # no -0.0
    if abs(size) < 99.95:
        return f"{size:+.1f} %"
    return f"{size:+.0f} %"


def format_seconds(seconds: float) -> str:
    """Return `726 s`, `1.52 s` or `38 ms`: three digits, of milliseconds none behind the point."""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"
    return f"{seconds:.{max(0, 3 - len(str(int(seconds))))}f} s"


def sizes(slowdowns: Sequence[float]) -> str:
    """Return `+33 to +39 %` or `+1.1 to +1.4 %`, or one size where they agree."""
    low, high = min(slowdowns), max(slowdowns)
    digits = 0 if max(abs(low - 1), abs(high - 1)) >= 0.0995 else 1
    lowest, highest = (f"{round((end - 1) * 100, digits) + 0.0:+.{digits}f}" for end in (low, high))
    if len(slowdowns) == 1 or lowest == highest:
        return format_slowdown(slowdowns[0] if len(slowdowns) == 1 else (low + high) / 2)
    return f"{lowest} to {highest} %"


def format_cost(share: float) -> str:
    """Return `6.1 %` of a share, with fewer digits where it is large or tiny."""
    value = share * 100
    if value >= 10:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.05 else "less than 0.1 %"


def named(names: Sequence[str], of: int | None = None, noun: str = "benchmark") -> str:
    """Return `429.mcf`, `a, b and c`, or `12 of 29 benchmarks` where they are many."""
    if of is not None and len(names) == of and of > 1:
        return f"all {noun}s" if of > 2 else f"both {noun}s"
    if len(names) > _MOST_NAMED:
        return f"{len(names)} of {of} {noun}s" if of else f"{len(names)} {noun}s"
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def format_cpus(numbers: Sequence[int]) -> str:
    """Return `CPU 13`, `CPUs 8-15,24`, `odd CPUs 1-95`, or the first of many."""
    ordered = sorted(set(numbers))
    text = format_list(ordered)
    every_second = {upper - lower for lower, upper in pairwise(ordered)} == {2}
    if len(ordered) > _MOST_NAMED and every_second:
        return f"{'odd' if ordered[0] % 2 else 'even'} CPUs {ordered[0]}-{ordered[-1]}"
    if len(text) > _MOST_LETTERS:
        text = f"{text[:_MOST_LETTERS].rpartition(',')[0]},... ({len(ordered)} CPUs)"
    return f"{'CPU' if len(ordered) == 1 else 'CPUs'} {text}"
