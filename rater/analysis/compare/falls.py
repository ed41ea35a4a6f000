"""Falls within a run: later iterations of a benchmark much slower than its first ones; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from rater.analysis.stats.estimate import t_quantile
from rater.analysis.stats.intervals import ASSUMED_SD, Noise
from rater.record.run import CopyStatus
from rater.record.stored import StoredRun
from rater.text.values import group_by_key

_ALPHA: Final = 0.01  # probability that noise alone makes a fall in one benchmark of a run
_LEAST_FALL: Final = 0.10  # chosen: a smaller one changes no curve that people would act on
_LEAST_DEGREES: Final = 3  # of freedom, from which iterations show their own noise


class FallWithinRun(Struct, frozen=True, kw_only=True):
    """A benchmark whose later iterations are slower than its first ones."""

    run: int
    copies: int
    benchmark: str
    iteration: int  # the first slow one
    last_iteration: int
    share: float  # of the rate that is lost, 0 to 1


def falls_within(run: StoredRun, noise: Mapping[str, Noise]) -> Iterator[FallWithinRun]:
    """Yield the benchmarks of a run whose slowest copy is slower from some iteration on.

    Rotated order and steady mode have no iterations that follow each other. The noise is that of
    the iterations within the two parts; of few iterations it is assumed, or that of runs (`noise`
    by benchmark) where this is more.
    """
    head = run.head
    if head.order == "rotated" or head.mode == "steady":
        return
    cells = group_by_key(
        ((copy.benchmark, copy.tune), copy)
        for copy in run.copies
        if copy.counted and copy.status is CopyStatus.OK and copy.elapsed_ns > 0
    )
    for (benchmark, _), copies in cells.items():
        by_iteration = group_by_key((copy.iteration, copy.elapsed_ns) for copy in copies)
        iterations = sorted(by_iteration)
        # The rate of an iteration is that of its slowest copy, whichever it is.
        times = [math.log(max(by_iteration[iteration])) for iteration in iterations]
        sd = max(ASSUMED_SD, noise[benchmark].sd if benchmark in noise else 0.0)
        if (place := first_slow(times, sd)) is None:
            continue
        loss = statistics.fmean(times[place:]) - statistics.fmean(times[:place])
        yield FallWithinRun(
            run=head.run,
            copies=head.copies,
            benchmark=benchmark,
            iteration=iterations[place],
            last_iteration=iterations[-1],
            share=-math.expm1(-loss),
        )


def first_slow(times: Sequence[float], sd_of_few: float = ASSUMED_SD) -> int | None:
    """Return from where on times (ln) are longer than before; None: nowhere, beyond noise.

    The cut is that of least squares. Its rise must exceed what noise makes of the best of all cuts
    (Bonferroni). `sd_of_few`: noise (ln) of times that are too few to show it.
    """
    count = len(times)
    if count < 2:
        return None

    def squares(cut: int) -> float:
        parts = (times[:cut], times[cut:])
        return sum(
            (value - mean) ** 2
            for part in parts
            for mean in [statistics.fmean(part)]
            for value in part
        )

    cut = min(range(1, count), key=squares)
    rise = statistics.fmean(times[cut:]) - statistics.fmean(times[:cut])
    degrees, alpha = count - 2, _ALPHA / (count - 1)
    if degrees >= _LEAST_DEGREES:
        sd, level = math.sqrt(squares(cut) / degrees), t_quantile(1 - 2 * alpha, degrees)
    else:
        sd, level = sd_of_few, statistics.NormalDist().inv_cdf(1 - alpha)
    error = sd * math.sqrt(1 / cut + 1 / (count - cut))
    return cut if rise > max(level * error, -math.log1p(-_LEAST_FALL)) else None
