"""A steady run and one with a barrier, as one table and what it means."""

from __future__ import annotations

from rater.analysis.compare.barrier import BarrierComparison
from rater.analysis.results.occupancy import ENOUGH
from rater.show.console.format import decimals, number
from rater.show.console.printer import Printer
from rater.show.console.rows import with_tunes
from rater.show.console.table import Column, seconds_columns
from rater.text.words import count, percent, signed_percent

_EQUAL = 0.0005  # less than what is shown


def print_beside(beside: BarrierComparison, printer: Printer) -> None:
    """Print both runs side by side."""
    printer.line()
    runs = f"run {beside.steady}, steady, beside run {beside.other}, {beside.other_mode}:"
    printer.prose(runs, "bold")
    if beside.differences:
        differ = ", ".join(beside.differences)
        printer.prose(
            f"they differ in more than the mode: run {beside.other} has {differ}", "yellow"
        )
    if beside.order == "rotated":
        _print_mixes(beside, printer)
    elif any(side.difference is not None for side in beside.sides):
        _print_brackets(beside, printer)
    printer.some(
        (f"{side.benchmark}: not compared: {side.reason}" for side in beside.sides if side.reason),
        "yellow",
    )


def _print_brackets(beside: BarrierComparison, printer: Printer) -> None:
    sides = beside.sides
    by_ratio = all(s.steady_ratio is not None for s in sides if s.difference is not None)
    here = [side.steady_ratio if by_ratio else side.steady_per_hour for side in sides]
    there = [side.other_ratio if by_ratio else side.other_per_hour for side in sides]
    lost = [side.score_lost for side in sides]
    steady_s, other_s = seconds_columns(
        [side.steady_run_s for side in sides], [side.other_run_s for side in sides]
    )
    changes = [side.difference for side in sides]
    rows = with_tunes(sides)
    if by_ratio and len(sides) > 1 and beside.steady_ratio is not None:
        rows.append("all")
        here.append(beside.steady_ratio)
        there.append(beside.other_ratio)
        changes.append(beside.difference)
        lost.append(beside.score_lost)
        steady_s.append("")
        other_s.append("")
    unit = "ratio" if by_ratio else "/hour"
    places = decimals([*here, *there])
    printer.table(
        [
            Column("benchmark", rows, right=False, flexible=True),
            Column(("steady", unit), [number(value, places) for value in here]),
            Column((beside.other_mode, unit), [number(value, places) for value in there]),
            Column("steady|is %", [signed_percent(change) for change in changes]),
            Column("score|lost %", [percent(share) for share in lost]),
            Column("steady|run s", steady_s, optional=1),
            Column((beside.other_mode, "copy s"), other_s, optional=1),
        ]
    )
    compared = sum(side.difference is not None for side in sides)
    if beside.difference is None or not compared:
        return
    over = f" (geometric mean over {count(compared, 'benchmark')})" if compared > 1 else ""
    texts = [
        f"Steady completed {_more(beside.difference)} per hour than {beside.other_mode}{over}.",
        *_not_run(beside),
    ]
    if beside.score_lost is not None:
        worth = 1 / (1 - beside.score_lost) - 1
        texts.append(
            f"Waiting for the slowest copy cost {beside.other_mode} "
            f"{percent(beside.score_lost)} % of its score; without that wait, at the same pace, it "
            f"would have completed {percent(worth)} % more."
        )
    if beside.longer is not None:
        texts.append(f"A run took {_longer(beside.longer)} in steady mode (medians).")
    printer.prose(" ".join(texts))


def _print_mixes(beside: BarrierComparison, printer: Printer) -> None:
    sides = beside.sides
    steady_s, other_s = seconds_columns(
        [side.steady_run_s for side in sides], [side.other_run_s for side in sides]
    )
    printer.table(
        [
            Column("benchmark", with_tunes(sides), right=False, flexible=True),
            Column("steady|run s", steady_s),
            Column("rotated|run s", other_s),
            Column("steady|takes %", [signed_percent(side.longer) for side in sides]),
        ]
    )
    if beside.difference is None:
        return
    text = f"Steady completed {_more(beside.difference)} of the mix's work per second than rotated"
    if beside.steady_ratio is not None and beside.other_ratio is not None:
        places = decimals([beside.steady_ratio, beside.other_ratio])
        text += (
            f" ({number(beside.steady_ratio, places)} against "
            f"{number(beside.other_ratio, places)} reference seconds per second)"
        )
    text = " ".join([f"{text}.", *_not_run(beside)])
    if beside.idle_share is not None:
        text += (
            f" In rotated mode copies that were done early waited for "
            f"{percent(beside.idle_share)} % of the copies' time."
        )
    if beside.longer is not None:
        text += f" A run took {_longer(beside.longer)} in steady mode (medians)."
    printer.prose(text)


def _not_run(beside: BarrierComparison) -> list[str]:
    """Return a sentence on what steady mode itself lost in its window, if that is worth one."""
    if beside.steady_occupied is None or beside.steady_occupied >= ENOUGH:
        return []
    lost = f"{percent(1 - beside.steady_occupied)} % of the copies' time in its window"
    least = [
        side.benchmark
        for side in beside.sides
        if side.difference is not None and side.steady_occupied == beside.steady_occupied
    ]
    if sum(side.difference is not None for side in beside.sides) > 1:
        lost = f"up to {lost} ({least[0]})"
    return [
        f"In {lost} nothing ran: rater's own start of the next run and set-ups, not the program, "
        "lowered steady's rate."
    ]


def _more(change: float) -> str:
    if abs(change) < _EQUAL:
        return "no more and no less"
    return _by(change)


def _longer(change: float) -> str:
    return "the same time" if abs(change) < _EQUAL else f"{_by(change)} time"


def _by(change: float) -> str:
    return f"{percent(abs(change))} % {'more' if change > 0 else 'less'}"
