"""Was a window steady: its first half against its second; pure.

Every run counts its share inside times the typical time of its benchmark, so a
copy that keeps its pace has the same speed (about 1) in both halves whatever it
ran in them, in rotated order too. The difference is that of the copies' mean
speed, as a share of the first half's.

How sure that is, an interval of Student's t says, the wider of two:

- over copies (8 and more): their own differences. This asks whether the copies
  agree. Copies of one machine share its clock, memory, disk and neighbours, so
  they are no independent witnesses: when the whole machine was slow for a
  moment in one half, 128 copies agree on it to a hair and the interval is far
  too narrow for what it would mean of the machine at another time.
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
_LONGEST = 1e4  # windows: what is asked for beyond is no advice


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


class Steadiness(Struct, frozen=True, kw_only=True):
    """The two halves of a window compared."""

    verdict: DriftVerdict
    difference: float | None  # -0.023: the second half was 2.3 % slower; None: too few runs
    margin: float | None  # half of the 95 % interval around it; None: nothing to tell it from
    fewest: int  # whole runs in a half, of the copy that has the fewest there
    fewest_copy: int | None  # which that is
    # The window that is long enough, in seconds; None: this one is, or length would not help.
    needed_s: float | None

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


def compare_halves(
    runs: Sequence[TimedRun], copies: Sequence[int], window_ns: tuple[int, int]
) -> Steadiness:
    """Compare the halves of a window by all good runs that reach into it.

    `needed_s` is the greatest of ten median runs of the slowest copy and the
    smallest length L' with t x error x sqrt(L / L') <= 1 %, t for the slices
    that L' has room for; where no error is known, what four slices a half take.
    """
    begin, end = window_ns
    length_s = (end - begin) / 1e9
    whole = _fewer_whole(runs, copies, window_ns)
    fewest, fewest_copy = min(((of, copy) for copy, of in whole.items()), default=(0, None))
    times = group_by_key((run.copy, run.finish_ns - run.start_ns) for run in runs)
    run_s = max((statistics.median(of) for of in times.values()), default=0.0) / 1e9
    by_runs_s = _RUNS_PER_WINDOW * run_s
    # Four slices a half, and a run more at either end of the halves that is not whole.
    by_slices_s = (2 * _FEWEST_SLICES * _RUNS_PER_SLICE + 2) * run_s
    unknown = Steadiness(
        verdict=DriftVerdict.UNKNOWN,
        difference=None,
        margin=None,
        fewest=fewest,
        fewest_copy=fewest_copy,
        needed_s=None,
    )
    if fewest < 2:
        needed_s = by_runs_s if len(copies) >= _MANY_COPIES else by_slices_s
        return replace(unknown, needed_s=_longer(length_s, needed_s))
    # Of many copies a slow one must not make the slices of all longer.
    usual = statistics.median_low(whole.values()) if len(whole) >= _MANY_COPIES else fewest
    slices = min(_MOST_SLICES, usual // _RUNS_PER_SLICE)
    speeds = _speeds(runs, copies, window_ns, slices)
    first = statistics.fmean(statistics.fmean(of[:slices]) for of in speeds)
    second = statistics.fmean(statistics.fmean(of[slices:]) for of in speeds)
    if not first:  # runs that took no time at all
        return unknown
    difference = second / first - 1
    noises = _noises(speeds, slices, first, usual / slices)
    if not noises:
        return replace(unknown, difference=difference, needed_s=_longer(length_s, by_slices_s))
    margin = max(noise.margin(_SHOWN) for noise in noises)
    accusing = max(noise.margin(_ACCUSING) for noise in noises)
    verdict = DriftVerdict.UNKNOWN
    if abs(difference) > ALIKE and abs(difference) > accusing:
        verdict = DriftVerdict.DRIFTING
    elif abs(difference) <= ALIKE and abs(difference) + margin <= SURE:
        verdict = DriftVerdict.STEADY
    wanted_s = by_runs_s
    if verdict is DriftVerdict.UNKNOWN:
        longer = 1.0  # times, until the margin is down to 1 %
        while longer < _LONGEST and max(n.margin(_SHOWN, longer) for n in noises) > ALIKE:
            longer *= 1.05
        wanted_s = max(wanted_s, length_s * longer)
    return Steadiness(
        verdict=verdict,
        difference=difference,
        margin=margin,
        fewest=fewest,
        fewest_copy=fewest_copy,
        needed_s=_longer(length_s, wanted_s),
    )


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
