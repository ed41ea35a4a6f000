"""What a comparison stands on, below its table: marks, doubts, tallies, intervals and chance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.analysis.compare.model import Comparison, Effect
from rater.analysis.stats.estimate import Basis
from rater.analysis.stats.independence import LEAST_TESTED
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.show.screen.document import Part
from rater.text.values import count, percent

_MANY_BENCHMARKS = 4
_BLUR_TOLD = 0.001  # steps of times, as a share of them
_SAME_SPEEDUP = 0.0005


def basis_parts(comparison: Comparison, *, is_matrix: bool, detailed: bool) -> Iterator[Part]:
    """Yield marks, bases, chance; not `detailed`: without what holds for every sweep."""
    cells = [cell for row in comparison.benchmarks for cell in row.cells]
    speedups = [cell.speedup for cell in cells if cell.speedup]
    several = comparison.compared > 1
    doubts = dict.fromkeys(
        doubt for speedup in speedups if speedup.decided for doubt in speedup.doubts
    )
    if is_matrix:
        held = f"; ++ and -- hold up with all {comparison.compared} comparisons considered (Holm)"
        yield (
            f"+ better, - worse, = same within {comparison.margin * 100:g} %, ~ the same but for "
            f"rare slow runs, ? inconclusive{held if several else ''}"
        )
        yield f"( ): with a doubt: {', '.join(doubts)}" if doubts else None
        if any(speedup.by_cpu for speedup in speedups):
            yield "c: by CPU time, which excludes the time that others took"
    for doubt in doubts:
        if doubt.endswith("rounds"):
            yield (
                f"{doubt}: too few to test independence. A lasting change of the machine would "
                f"look the same. Run {LEAST_TESTED} or more."
            )
        elif "independent" in doubt:
            yield f"{doubt}: runs close in time are alike beyond chance; the interval is wider"
    if len(comparison.benchmarks) >= _MANY_BENCHMARKS and any(
        speedup.decided for speedup in speedups
    ):
        yield from _tallies(comparison)
    if detailed or any(speedup.basis is not Basis.BLOCKS for speedup in speedups):
        yield from _stands_on(speedups)
    if not detailed:
        return
    yield from _details(comparison, speedups, is_matrix=is_matrix)


def _details(
    comparison: Comparison, speedups: Sequence[RatioInterval], *, is_matrix: bool
) -> Iterator[str]:
    """Yield what holds for every sweep as well: steps of times, looks, chance."""
    cells = [cell for row in comparison.benchmarks for cell in row.cells]
    blur = max((speedup.blur for speedup in speedups), default=0.0)
    if blur > _BLUR_TOLD:
        yield (
            f"Recorded times are rounded by up to {percent(blur)} % of a run. Intervals include "
            "this; more runs do not help."
        )
    if any(_of_pairs(cell) for cell in cells):
        yield "Values are of all runs of a point; speedups are of those in pairs."
    if comparison.looks > 1:
        yield (
            f"Up to {count(comparison.looks, 'interim look')} were taken (--until, added rounds). "
            f"Each interval has {confidence_percent(comparison)} % confidence, so all "
            "together have 95 %."
        )
    if comparison.compared > 1:
        shared = "; they share the baseline's noise" if len(comparison.sides) > 2 else ""
        yield (
            f"Expect {comparison.by_chance:.2g} false positives in {comparison.compared} "
            f"comparisons{shared}."
        )
        if not is_matrix and any(cell.holds for _, _, cell in comparison.verdicts()):
            yield "A verdict with * holds up with all of them considered (Holm)."
    unknown = [
        speedup.more
        for speedup in speedups
        if speedup.verdict is Decision.UNKNOWN and speedup.more != 0
    ]
    if unknown and is_matrix:
        known_rounds = [more for more in unknown if more is not None]
        rounds = (
            "more than 1000 rounds" if None in unknown else count(max(known_rounds), "more round")
        )
        yield f"? inconclusive: {rounds} needed to decide all of them, at this noise."


def _tallies(comparison: Comparison) -> Iterator[str]:
    """Count the verdicts of each side: ups and downs that a suite's mean has cancelled."""
    for place, side in enumerate(comparison.sides[1:]):
        cells = [row.cells[place] for row in comparison.benchmarks]
        lines = []
        for verdict in Decision:
            decided_cells = [
                cell for cell in cells if cell.speedup and cell.speedup.verdict is verdict
            ]
            held = sum(cell.holds for cell in decided_cells)
            if decided_cells:
                lines.append(
                    f"{len(decided_cells)} {verdict}" + (f" ({held} hold up)" if held else "")
                )
        lacking = sum(cell.speedup is None for cell in cells)
        lines += [f"{lacking} not compared"] if lacking else []
        yield f"{side.label}: of {len(cells)} benchmarks: {', '.join(lines)}"


def _of_pairs(cell: Effect) -> bool:
    """Tell whether the speedup is visibly another than that of the values: of fewer runs."""
    interval = cell.speedup
    if (
        interval is None
        or interval.by_cpu
        or not cell.improvement
        or not cell.value
        or not cell.baseline
    ):
        return False
    return abs(cell.value / cell.baseline / interval.ratio - 1) > _SAME_SPEEDUP


def _stands_on(intervals: Sequence[RatioInterval]) -> Iterator[str]:
    """Say what the intervals are from, the strongest first."""
    for basis in Basis:
        alike = [interval for interval in intervals if interval.basis is basis]
        if not alike:
            continue
        some_of = "" if len(alike) == len(intervals) else f" ({len(alike)} of {len(intervals)})"
        least, most = (
            min(interval.count for interval in alike),
            max(interval.count for interval in alike),
        )
        many = str(least) if least == most else f"{least} to {most}"
        if basis is Basis.BLOCKS:
            yield f"intervals{some_of}: paired within {many} blocks, Student's t{_freedom(alike)}"
        elif basis is Basis.RUNS:
            yield (
                f"intervals{some_of}: Welch's over runs ({many} of the side that has fewer)"
                f"{_freedom(alike)}; the runs are not in blocks, so a drift would count as effect"
            )
        else:
            yield (
                f"no interval{some_of}: one run per point cannot show the noise. Alternate several "
                "runs: `rater sweep --rounds 6 --axis ...`"
            )


def _freedom(intervals: Sequence[RatioInterval]) -> str:
    degrees = [interval.degrees for interval in intervals if interval.degrees is not None]
    if not degrees:
        return ""
    least = f"{min(degrees):.3g}"
    return f", {least} degree{'s' * (least != '1')} of freedom"


def confidence_percent(comparison: Comparison) -> str:
    """Return the confidence of the intervals in per cent."""
    return f"{comparison.confidence * 100:.4g}"
