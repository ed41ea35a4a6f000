"""What a sweep came to, on a screen of 24 lines: points, changes, and what speaks against them."""

from __future__ import annotations

from rater.analysis.compare.model import Comparison
from rater.show.compare.sweep import SweepView, print_head, print_sweep
from rater.show.compare.table import print_comparison
from rater.show.console.printer import Printer


def print_brief(view: SweepView, comparison: Comparison | None, printer: Printer) -> None:
    """Print a sweep that has ended, and where the rest is said.

    The table of one benchmark's comparison has every point's value, so that their own has
    nothing to add where all runs were made.
    """
    if comparison is None or comparison.is_empty:
        print_sweep(view, comparison, printer)
        return
    if len(comparison.benchmarks) == 1 and _whole(view):
        print_head(view, printer)
    else:
        print_sweep(view, comparison, printer)
    printer.line()
    print_comparison(comparison, printer, brief=True)
    if view.number is not None:
        printer.prose(f"Points, noise and all benchmarks: rater sweep --show {view.number}")


def _whole(view: SweepView) -> bool:
    """Tell whether every point has all its results."""
    return all(len(point.results) == view.rounds for point in view.points)
