"""Divots for people: the most costly first, what the layout explains apart."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rater.analysis.divots.analyse import Analysis
from rater.analysis.divots.between import Between
from rater.analysis.divots.document import evidence_line
from rater.analysis.finding import Finding
from rater.record import RunHead
from rater.show.format import count, what_ran
from rater.show.printer import Printer

_MOST_LINES = 10
_MOST_EXPLAINED = 4
_NOTE = 0.002  # of the score; cheaper ones are shown dim


def print_divots(head: RunHead, analysis: Analysis, console: Console) -> None:
    """Print what was found in a run, or that nothing was and what would have been."""
    printer = Printer(console)
    name, more = what_ran(head.suite, head.benchmarks)
    ran = ", ".join(part for part in (name, more) if part)
    if len(ran) > 40:
        ran = count(len(head.benchmarks), "benchmark")
    printer.line(
        f"Run {head.run}: {ran}, {count(head.copies, 'copy', 'copies')}, "
        f"{count(head.iterations, 'iteration')}",
        "bold",
    )
    divots = [one for one in analysis.findings if not one.explained]
    explained = [one for one in analysis.findings if one.explained]
    if divots:
        _print_found(divots, printer)
    else:
        printer.line("No divots: no copy and no part of the machine stands out.", "green")
    if explained:
        printer.line()
        printer.line("Explained by the layout, no divots:")
        for one in explained[:_MOST_EXPLAINED]:
            printer.prose(f"  {evidence_line(one)}")
        if len(explained) > _MOST_EXPLAINED:
            printer.line(f"  and {len(explained) - _MOST_EXPLAINED} more (--json has them all)")
    if analysis.visible:
        printer.line()
        printer.prose(visible_line(analysis.visible), "" if not divots else "dim")
    elif not divots:
        printer.prose("Nothing could have been seen: too few copies ended well.")


def _print_found(divots: Sequence[Finding], printer: Printer) -> None:
    printer.line(f"{count(len(divots), 'divot')}, the most costly first:")
    for one in divots[:_MOST_LINES]:
        style = "" if one.score_lost >= _NOTE or one.fast else "dim"
        printer.prose(f"  {evidence_line(one)}", style)
    if len(divots) > _MOST_LINES:
        printer.line(f"  and {len(divots) - _MOST_LINES} more (--json has them all)")


def visible_line(visible: dict[str, float]) -> str:
    """Return the smallest effects that the run could show as a sentence."""
    parts = []
    if "group" in visible:
        parts.append(f"an lgroup slower by {_share(visible['group'])} or more in all benchmarks")
    if "group-benchmark" in visible:
        parts.append(
            f"{'an lgroup ' if not parts else ''}by {_share(visible['group-benchmark'])} in one"
            if parts
            else f"an lgroup slower by {_share(visible['group-benchmark'])} or more"
        )
    if "copy" in visible:
        parts.append(f"a single copy slower by {_share(visible['copy'])}")
    return f"This run can see {', '.join(parts)}."


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"


def print_between(between: Sequence[Between], runs: int, console: Console) -> None:
    """Print what comes back in several runs, and what moves about."""
    printer = Printer(console)
    printer.line()
    printer.line(f"Over {runs} runs:", "bold")
    if not between:
        printer.line("  nothing comes back: no place has divots in two of them")
    for one in between[:_MOST_LINES]:
        printer.prose(f"  {one.kind}: {one.summary}")
    if len(between) > _MOST_LINES:
        printer.line(f"  and {len(between) - _MOST_LINES} more (--json has them all)")
