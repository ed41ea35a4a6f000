"""What a comparison stands on, below its table: bases of the intervals, chance, steps of times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rater.analysis.compare.model import Comparison, Effect
from rater.analysis.stats.estimate import Basis
from rater.analysis.stats.independence import LEAST_TESTED
from rater.analysis.stats.ratio_interval import Decision, RatioInterval
from rater.show.console.printer import Printer
from rater.text.words import count, percent

_MANY_BENCHMARKS = 4
_BLUR_TOLD = 0.001  # steps of times, as a share of them
_SAME_SPEEDUP = 0.0005


def print_foot(
    comparison: Comparison, printer: Printer, *, in_lines: bool, brief: bool = False
) -> None:
    """Print marks, bases, chance; `in_lines`: verdicts stand in the table in words.

    `brief`: without what holds for every sweep.
    """
    cells = [cell for row in comparison.benchmarks for cell in row.cells]
    speedups = [cell.speedup for cell in cells if cell.speedup]
    sure = level(comparison)
    if not in_lines:
        printer.prose(
            f"+ better, - worse, = same within {comparison.margin * 100:g} %, ~ the same but for "
            "rare slow runs, ? inconclusive"
            + (
                f"; ++ and -- hold up with all {comparison.compared} comparisons considered (Holm)"
                if comparison.compared > 1
                else ""
            )
        )
    doubts = dict.fromkeys(doubt for one in speedups if one.decided for doubt in one.doubts)
    if doubts and not in_lines:
        printer.prose(f"( ): with a doubt: {', '.join(doubts)}")
    printer.some(_doubts(doubts))
    decided = any(one.decided for one in speedups)
    if len(comparison.benchmarks) >= _MANY_BENCHMARKS and decided:
        printer.some(_tallies(comparison))
    paired = all(one.basis is Basis.BLOCKS for one in speedups)
    if not (brief and paired):
        printer.some(_stands_on(speedups))
    if brief:
        return
    if any(one.blur > _BLUR_TOLD for one in speedups):
        worst = max(one.blur for one in speedups)
        printer.prose(
            f"Times are recorded in steps of up to {size(worst)} of a run: that is in the "
            "intervals, and no number of runs takes it out."
        )
    if any(_by_medians(cell) for cell in cells):
        printer.prose(
            "Values are the scores of runs (of two iterations the slower one counts); speedups are "
            "of medians of iterations, or of their means where there is one run each."
        )
    if comparison.looks > 1:
        printer.prose(
            f"Results were looked at up to {count(comparison.looks, 'time')} before there were "
            "enough runs (--until, rounds that were added): "
            f"intervals of {sure} % keep all looks together right in 95 %."
        )
    if comparison.compared > 1:
        text = (
            f"Expect {comparison.by_chance:.2g} false positives in {comparison.compared} "
            "comparisons"
        )
        text += (
            "; all comparisons share the baseline's noise." if len(comparison.sides) > 2 else "."
        )
        if in_lines and any(cell.holds for _, _, cell in comparison.verdicts()):
            text += " * holds up with all of them considered (Holm)."
        printer.prose(text)
    unknown = [one for one in speedups if one.verdict is Decision.UNKNOWN and one.more != 0]
    if unknown and not in_lines:
        most = [one.more for one in unknown]
        known = [more for more in most if more is not None]
        rounds = "more than 1000 rounds" if None in most else _rounds(max(known))
        printer.prose(f"? inconclusive: {rounds} needed to decide all of them, at this noise.")


def _doubts(told: Iterable[str]) -> Iterator[str]:
    """Say what the words beside a verdict mean."""
    for doubt in told:
        if doubt.endswith("rounds"):
            yield (
                f"{doubt}: too few to see whether they are independent; a state that stays with a "
                f"point for that long would look the same, {LEAST_TESTED} and more would show it"
            )
        elif "independent" in doubt:
            yield f"{doubt}: neighbours in time are alike beyond chance; the interval minds it"


def _tallies(comparison: Comparison) -> Iterator[str]:
    """Count the verdicts of each side: ups and downs that a suite's mean has cancelled."""
    for place, side in enumerate(comparison.sides[1:]):
        cells = [row.cells[place] for row in comparison.benchmarks]
        lines = []
        for verdict in Decision:
            own = [cell for cell in cells if cell.speedup and cell.speedup.verdict is verdict]
            held = sum(cell.holds for cell in own)
            if own:
                lines.append(f"{len(own)} {verdict}" + (f" ({held} hold up)" if held else ""))
        lacking = sum(cell.speedup is None for cell in cells)
        lines += [f"{lacking} not compared"] if lacking else []
        yield f"{side.label}: of {len(cells)} benchmarks: {', '.join(lines)}"


def _by_medians(cell: Effect) -> bool:
    """Tell whether the speedup is visibly another than that of the values."""
    if cell.speedup is None or not cell.value or not cell.baseline:
        return False
    return abs(cell.value / cell.baseline / cell.speedup.ratio - 1) > _SAME_SPEEDUP


def _rounds(many: int) -> str:
    return f"{many} more round{'s' * (many != 1)}"


def _stands_on(told: Sequence[RatioInterval]) -> Iterator[str]:
    """Say what the intervals are from, the strongest first."""
    for basis in Basis:
        own = [one for one in told if one.basis is basis]
        if not own:
            continue
        some_of = "" if len(own) == len(told) else f" ({len(own)} of {len(told)})"
        least, most = min(one.count for one in own), max(one.count for one in own)
        many = str(least) if least == most else f"{least} to {most}"
        freedom = _freedom(own)
        if basis is Basis.BLOCKS:
            yield f"intervals{some_of}: paired within {many} blocks, Student's t{freedom}"
        elif basis is Basis.RUNS:
            how = f"Welch's over runs ({many} of the side that has fewer)"
            if most == 1:
                how = "one run of one side, with the noise of the other side's: no verdict"
            yield (
                f"intervals{some_of}: {how}{freedom}; they are not in blocks: a drift that is no "
                "straight line counts as effect"
            )
        elif basis is Basis.ITERATIONS:
            how = f"over the iterations of one run each ({many} of the side that has fewer)"
            if most == 1:
                how = "one iteration against several, of one run each"
            yield (
                f"intervals in brackets{some_of}: {how}{freedom}; how runs differ from each other "
                "is NOT in them, so they decide nothing: make several runs of each, in turn "
                "(`rater sweep --rounds 6`)"
            )
        else:
            yield (
                f"no interval{some_of}: one value each says nothing of the noise; make several "
                "runs of each, in turn (`rater sweep --rounds 6`)"
            )


def _freedom(told: Sequence[RatioInterval]) -> str:
    degrees = [one.degrees for one in told if one.degrees is not None]
    if not degrees:
        return ""
    least = f"{min(degrees):.3g}"
    return f", {least} degree{'s' * (least != '1')} of freedom"


def level(comparison: Comparison) -> str:
    """Return the confidence of the intervals in per cent."""
    return f"{comparison.confidence * 100:.4g}"


def size(share: float) -> str:
    """Return a share in per cent, without its sign."""
    return f"{percent(abs(share))} %"
