"""`rater scale`: throughput against the number of copies."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rater.analysis.scaling.curve import Alone, scale
from rater.analysis.scaling.pairs import orders, smt_yields
from rater.analysis.stats.usl import LawScale
from rater.errors import InputError
from rater.show.charts.scaling import curves_svg
from rater.show.console.printer import Printer
from rater.show.scaling.table import print_scaling
from rater.show.scaling.to_json import scaling_document
from rater.text.cpuset import format_list
from rater.text.words import count
from rater.workflow.common import show, store_to_read
from rater.workflow.results.output_file import drawing_file, write_drawing
from rater.workflow.results.points import points_from, points_without_runs

LAW_SCALES = {"log": LawScale.LOG, "rate": LawScale.RATE}  # by the words of --law
_MOST_REASONS = 6


def scale_points(args: argparse.Namespace) -> int:
    """Print the curves."""
    file = drawing_file(args.file)
    with store_to_read(args) as store:
        words = list(dict.fromkeys(args.which))
        points = points_from(store, words)
        missing = points_without_runs(store, words)
    scaling = scale(points, LAW_SCALES[args.law])
    smt, rotated = smt_yields(scaling.samples), orders(scaling.samples)
    if not scaling.curves and not smt and not rotated:
        raise InputError(
            "\n  ".join(["no curve:", *_reasons(scaling.alone)])
            + "\nexpected runs of the same with different numbers of copies, as\n"
            "`rater run ... --copies N` or `rater sweep --axis copies=1,2,4` make them"
        )
    if file is not None and scaling.curves:
        write_drawing(curves_svg(scaling.curves), file)

    def text(printer: Printer) -> None:
        print_scaling(scaling, smt, rotated, printer, missing=missing)
        if file is not None and scaling.curves:
            printer.line()
            panels = {one.name for curve in scaling.curves for one in curve.series}
            printer.line(f"{args.file}: {count(len(panels), 'panel')}")

    show(args, lambda: scaling_document(scaling, smt, rotated, missing), text)
    return 0


def _reasons(alone: Sequence[Alone]) -> list[str]:
    """Say why runs are on no curve, a line for each reason."""
    by_reason: dict[str, list[Alone]] = {}
    for one in alone:
        by_reason.setdefault(one.reason, []).append(one)
    lines = [
        str(of_it[0])
        if len(of_it) == 1
        else f"runs {format_list({run for one in of_it for run in one.runs})}: {reason}"
        for reason, of_it in by_reason.items()
    ]
    more = len(lines) - _MOST_REASONS
    return [*lines[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]
