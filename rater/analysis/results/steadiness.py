"""Compare the first half of a window with its second: was it steady; pure.

Every run counts its share inside times the typical time of its benchmark, so a
copy that keeps its pace has the same speed (about 1) in both halves whatever it
ran in them, in rotated order too. The difference is that of the copies' mean
speed, as a share of the first half's.

How sure that is, an interval of Student's t says, the wider of two:

- over copies (8 and more): their own differences. This asks whether the copies
  agree. Copies of one machine share its clock, memory, disk and neighbours, so
  they are no independent witnesses: when the whole machine was slow for a
  moment in one half, 128 copies agree on it to a hair and the interval is far
  too narrow for a statement about the machine at another time.
- over slices of time (up to 8 in each half, of at least two runs of a usual
  copy, with few copies of the slowest): the mean speed of all copies in each.
  This asks whether the difference is more than how the machine as a whole
  fluctuates, and it is all there is for few copies. With 8 copies and more it
  takes part from 4 slices a half on.

What is left of the first weakness is why a practical threshold stands beside
the interval: a difference of at most 1 % is no drift, however sure it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.stats.estimate import t_quantile
from rater.text.values import group_by_key

ALIKE = 0.01  # halves that differ by no more are steady,
SURE = 0.02  # when the interval lies within this
_SHOWN = 0.95  # confidence of the interval
# Of a drift it takes more to be sure: at 95 % one steady window in twenty would be accused.
_ACCUSING = 0.99
_RUNS_PER_SLICE = 2
_MOST_SLICES = 8
_FEWEST_SLICES = 4  # beside the copies
_MANY_COPIES = 8
_RUNS_PER_WINDOW = 10
_LEAST_FALL = 0.10  # chosen: of a copy's speed against the usual change; less hides in the rate
_LONGEST = 1e4  # times the window: nobody can follow the advice of a longer one


class DriftVerdict(StrEnum):
    """What the two halves say of a window."""

    STEADY = "steady"
    DRIFTING = "drifting"
    UNKNOWN = "cannot tell"


class TimedRun(NamedTuple):
    """One good run; times in nanoseconds on the clock of the window."""

    copy: int
    start_ns: int
    finish_ns: int
    typical_s: float  # of its benchmark in this window


class CopyFall(Struct, frozen=True):
    """A copy that is much slower in the second half, where the usual one is not."""

    copy: int
    change: float  # of its speed, as a share of that in the first half: -0.28
    usual_change: float  # of the median copy


class Steadiness(Struct, frozen=True, kw_only=True):
    """The two halves of a window compared."""

    verdict: DriftVerdict
    difference: float | None  # -0.023: the second half was 2.3 % slower; None: too few runs
    margin: float | None  # half of the 95 % interval around it; None: nothing to tell it from
    fewest: int  # whole runs in a half, of the copy that has the fewest there
    fewest_copy: int | None  # which that is
    # The window that is long enough, in seconds; None: this one is, or length would not help.
    needed_s: float | None
    falls: tuple[CopyFall, ...] = ()  # of single copies, the largest first

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference."""
        if self.difference is None or self.margin is None:
            return None
        return self.difference - self.margin, self.difference + self.margin


class _Noise(Struct, frozen=True):
    """How much the difference can be off: a standard error and what it stands on."""

    error: float
    degrees: int
    slices: int  # in a half, 0: it is over copies

    def margin(self, confidence: float, longer: float = 1.0) -> float:
        """Return half of the interval, for a window so many times as long.

        The error falls with the square root of the length (at worst: runs that
        follow a drift or a rhythm can do better, never independent ones); slices
        become more, and with them the degrees of freedom.
        """
        degrees = self.degrees
        if self.slices:
            degrees = 2 * min(_MOST_SLICES, int(self.slices * longer)) - 2
        return t_quantile(confidence, degrees) * self.error / math.sqrt(longer)


class _LeastLengths(NamedTuple):
    """How long a window has to be at least, in seconds."""

    by_runs_s: float  # for ten median runs of the slowest copy
    by_slices_s: float  # for four slices in each half


class _HalfSpeeds(NamedTuple):
    """Mean speed of all copies in each half, typical seconds of work per second."""

    first: float
    second: float


def compare_halves(
    runs: Sequence[TimedRun], copies: Sequence[int], window_ns: tuple[int, int]
) -> Steadiness:
    """Compare the halves of a window by all good runs that reach into it.

    `needed_s` is the greatest of ten median runs of the slowest copy and the
    smallest length L' with t x error x sqrt(L / L') <= 1 %, t for the slices
    that L' has room for; where no error is known, what four slices a half take.
    """
    length_s = (window_ns[1] - window_ns[0]) / 1e9
    fewer_whole = _fewer_whole(runs, copies, window_ns)
    fewest, fewest_copy = min(
        ((whole_runs, copy) for copy, whole_runs in fewer_whole.items()), default=(0, None)
    )
    least = _least_lengths(runs)
    unknown = Steadiness(
        verdict=DriftVerdict.UNKNOWN,
        difference=None,
        margin=None,
        fewest=fewest,
        fewest_copy=fewest_copy,
        needed_s=None,
    )
    has_many_copies = len(copies) >= _MANY_COPIES
    if fewest < 2:
        needed_s = least.by_runs_s if has_many_copies else least.by_slices_s
        return replace(unknown, needed_s=_longer(length_s, needed_s))
    # Of many copies a slow one must not make the slices of all longer.
    usual = statistics.median_low(fewer_whole.values()) if has_many_copies else fewest
    slices = min(_MOST_SLICES, usual // _RUNS_PER_SLICE)
    speeds = _speeds(runs, copies, window_ns, slices)
    halves = _half_speeds(speeds, slices)
    if not halves.first:  # runs that took no time at all
        return unknown
    difference = halves.second / halves.first - 1
    unknown = replace(unknown, falls=_falls(speeds, copies, slices))
    noises = _noises(speeds, slices, halves.first, usual / slices)
    if not noises:
        needed_s = least.by_slices_s
        return replace(unknown, difference=difference, needed_s=_longer(length_s, needed_s))
    verdict = _verdict(difference, noises)
    needed_s = least.by_runs_s
    if verdict is DriftVerdict.UNKNOWN:
        needed_s = max(needed_s, length_s * _times_longer(noises))
    return replace(
        unknown,
        verdict=verdict,
        difference=difference,
        margin=_widest_margin(noises, _SHOWN),
        needed_s=_longer(length_s, needed_s),
    )


def _least_lengths(runs: Sequence[TimedRun]) -> _LeastLengths:
    times_ns = group_by_key((run.copy, run.finish_ns - run.start_ns) for run in runs)
    slowest_s = max((statistics.median(times) for times in times_ns.values()), default=0.0) / 1e9
    # A run more at either end of the halves is not whole.
    runs_in_slices = 2 * _FEWEST_SLICES * _RUNS_PER_SLICE + 2
    return _LeastLengths(
        by_runs_s=_RUNS_PER_WINDOW * slowest_s,
        by_slices_s=runs_in_slices * slowest_s,
    )


def _half_speeds(speeds: Sequence[Sequence[float]], slices: int) -> _HalfSpeeds:
    return _HalfSpeeds(
        first=statistics.fmean(statistics.fmean(of_copy[:slices]) for of_copy in speeds),
        second=statistics.fmean(statistics.fmean(of_copy[slices:]) for of_copy in speeds),
    )


def _falls(
    speeds: Sequence[Sequence[float]], copies: Sequence[int], slices: int
) -> tuple[CopyFall, ...]:
    """Return the copies that lose much more speed between the halves than the median copy.

    The noise of a copy is that between neighbouring slices (J. von Neumann, Annals of Mathematical
    Statistics 12, 1941), which one step does not make larger: its own, or the median copy's where
    that is more. All copies are considered (Bonferroni).
    """
    if len(copies) < 2 or slices < 2:
        return ()
    means = [
        (statistics.fmean(of_copy[:slices]), statistics.fmean(of_copy[slices:]))
        for of_copy in speeds
    ]
    changes = [second / first - 1 if first else 0.0 for first, second in means]
    variances = [
        statistics.fmean((later - earlier) ** 2 for earlier, later in pairwise(of_copy)) / 2
        for of_copy in speeds
    ]
    usual_change, usual_variance = statistics.median(changes), statistics.median(variances)
    confidence = 1 - 2 * (1 - _ACCUSING) / len(copies)
    level = t_quantile(confidence, 2 * slices - 2) * math.sqrt(2 / slices)
    falls = [
        CopyFall(copy, change, usual_change)
        for copy, change, variance, (first, _) in zip(
            copies, changes, variances, means, strict=True
        )
        if first
        and usual_change - change
        > max(_LEAST_FALL, level * math.sqrt(max(variance, usual_variance)) / first)
    ]
    return tuple(sorted(falls, key=lambda fall: fall.change))


def _widest_margin(noises: Sequence[_Noise], confidence: float, longer: float = 1.0) -> float:
    return max(noise.margin(confidence, longer) for noise in noises)


def _verdict(difference: float, noises: Sequence[_Noise]) -> DriftVerdict:
    if abs(difference) > max(ALIKE, _widest_margin(noises, _ACCUSING)):
        return DriftVerdict.DRIFTING
    if abs(difference) <= ALIKE and abs(difference) + _widest_margin(noises, _SHOWN) <= SURE:
        return DriftVerdict.STEADY
    return DriftVerdict.UNKNOWN


def _times_longer(noises: Sequence[_Noise]) -> float:
    """Return how many times as long the window must be for a margin of 1 %, in steps of 5 %."""
    longer = 1.0
    while longer < _LONGEST and _widest_margin(noises, _SHOWN, longer) > ALIKE:
        longer *= 1.05
    return longer


def _fewer_whole(
    runs: Sequence[TimedRun], copies: Sequence[int], window_ns: tuple[int, int]
) -> dict[int, int]:
    """Return by copy its number of whole runs in the half where it has fewer."""
    begin, end = window_ns
    middle = (begin + end) / 2
    whole_runs = {copy: [0, 0] for copy in copies}
    for copy, start, finish, _ in runs:
        if begin <= start and finish <= middle:
            whole_runs[copy][0] += 1
        elif middle <= start and finish <= end:
            whole_runs[copy][1] += 1
    return {copy: min(halves) for copy, halves in whole_runs.items()}


def _speeds(
    runs: Sequence[TimedRun], copies: Sequence[int], window_ns: tuple[int, int], slices: int
) -> list[list[float]]:
    """Return by copy its speed in each slice: typical seconds of work per second."""
    begin, end = window_ns
    length = (end - begin) / (2 * slices)
    work = {copy: [0.0] * (2 * slices) for copy in copies}
    for copy, start, finish, typical_s in runs:
        if start >= finish:
            continue
        density = typical_s / (finish - start)
        first, last = float(max(start, begin)), min(finish, end)
        position = int((first - begin) / length)
        while position < 2 * slices and first < last:
            slice_end = min(last, begin + (position + 1) * length)
            work[copy][position] += density * max(0.0, slice_end - first)
            first = slice_end
            position += 1
    slice_s = length / 1e9
    return [
        [seconds / slice_s for seconds in seconds_of_slices] for seconds_of_slices in work.values()
    ]


def _noises(
    speeds: Sequence[Sequence[float]], slices: int, base: float, runs_per_slice: float
) -> list[_Noise]:
    """Return the errors of the difference, relative to `base`, that can be told.

    A run across the edge of two slices gives both its pace. Of independent runs
    whose edges lie anywhere, r in a slice, neighbours are then correlated by
    1 / (6 r - 2): of the variance of a run, a slice has r - 1/3 parts (r - 1
    whole runs, and two pieces with the mean square 1/3), and shares 1/6 (the
    mean of u (1 - u)). That much wider is the error than the slices' spread says.
    """
    noises = []
    has_many_copies = len(speeds) >= _MANY_COPIES
    if has_many_copies:
        changes = [
            statistics.fmean(copy_speeds[slices:]) - statistics.fmean(copy_speeds[:slices])
            for copy_speeds in speeds
        ]
        error = statistics.stdev(changes) / math.sqrt(len(changes)) / base
        noises.append(_Noise(error, len(changes) - 1, 0))
    if slices >= (_FEWEST_SLICES if has_many_copies else 2):
        means = [statistics.fmean(column) for column in zip(*speeds, strict=True)]
        spread = statistics.variance(means[:slices]) + statistics.variance(means[slices:])
        correlation = 1 / (6 * runs_per_slice - 2)
        variance_factor = (1 + 2 * correlation * (slices - 1) / slices) / (
            1 - 2 * correlation / slices
        )
        error = math.sqrt(spread / slices * variance_factor) / base
        noises.append(_Noise(error, 2 * slices - 2, slices))
    return noises


def _longer(length_s: float, wanted_s: float) -> float | None:
    """Return the wanted length as a person would type it, None when the window has it."""
    return rounded_up(wanted_s) if wanted_s > length_s * 1.001 else None


def rounded_up(seconds: float) -> float:
    """Return `seconds` rounded up to two digits: 0.134 is 0.14, 61 is 61, 1234 is 1300."""
    if seconds <= 0:
        return 0.0
    places = 1 - math.floor(math.log10(seconds))
    scaled = seconds * 10.0**places
    # 61 s may come as 61.000000001: that is not worth another second.
    return round(math.ceil(scaled * (1 - 1e-9)) / 10.0**places, max(places, 0))
