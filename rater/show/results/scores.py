"""What a suite comes to, in a line."""

from __future__ import annotations

from rater.analysis.results.model import SuiteScore, Summary
from rater.show.console.format import decimals, number
from rater.show.console.printer import Printer
from rater.text.words import count


def print_scores(summary: Summary, printer: Printer, *, brief: bool = False) -> None:
    """Print what the suite comes to; nothing of runs that have no such score.

    `brief`: without a blank line before it.
    """
    if summary.rotated is not None or summary.mix is not None:
        return
    if summary.head.suite is not None or any(b.reference_s for b in summary.benchmarks):
        if not brief:
            printer.line()
        for tune in dict.fromkeys(score.tune for score in summary.suites):
            several = len({score.tune for score in summary.suites}) > 1
            scores = {score.kind: score for score in summary.suites if score.tune == tune}
            _print_suite(summary, scores, f"{tune} " if several and tune else "", printer)


def _print_suite(
    summary: Summary, scores: dict[str, SuiteScore], label: str, printer: Printer
) -> None:
    whole = scores["all"]
    places = decimals([score.ratio for score in scores.values()])
    kinds = [scores[kind] for kind in ("int", "fp")]
    if whole.ratio is not None:
        parts = [f"{one.kind} {number(one.ratio, places)}" for one in kinds if one.over]
        printer.prose(
            f"{label}suite ratio {number(whole.ratio, places)}"
            f"{f' ({", ".join(parts)})' if parts else ''}, "
            f"the geometric mean over {_over(summary, whole)}",
            "bold",
        )
        return
    printer.prose(f"no {label}suite ratio: {whole.reason}", "bold")
    for one in kinds:
        if one.ratio is not None:
            printer.prose(
                f"{label}{one.kind} ratio {number(one.ratio, places)}, "
                f"the geometric mean over {count(len(one.over), 'benchmark')}"
            )


def _over(summary: Summary, whole: SuiteScore) -> str:
    """Return `13 benchmarks (left out: ffmpeg)`, or which, where only some were asked for."""
    text = count(len(whole.over), "benchmark")
    if summary.selected:
        text += f" of the suite: {', '.join(whole.over)}"
    if summary.left_out:
        text += f" (left out: {', '.join(name for name, _ in summary.left_out)})"
    return text
