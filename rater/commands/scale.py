"""`rater scale`: throughput against the number of copies."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.commands.common import add_common
from rater.errors import InputError
from rater.text.cpuset import format_list
from rater.text.words import count
from rater.workflow.common import existing_store, print_json
from rater.workflow.results.points import POINTS_HELP

if TYPE_CHECKING:
    from rater.analysis.scaling.curve import Alone

_MOST_REASONS = 6


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater scale`."""
    parser = subparsers.add_parser(
        "scale",
        help="throughput against copies: efficiency, knee, plateau, law of scalability, SMT",
        description="Say how throughput grows with the number of copies, benchmark by benchmark: "
        "speedup, efficiency against one copy and per lgroup, where it bends, flattens and falls "
        "(never from noise), the Universal Scalability Law, what second threads of cores yield, "
        "and rotated order against homogeneous. Runs that differ in more than their copies make "
        "curves of their own.",
    )
    parser.add_argument("which", metavar="RUN|SWEEP", nargs="+", help=POINTS_HELP)
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        help="draw the curves as well, into FILE, by its name .svg, .png or .pdf",
    )
    add_common(parser)
    parser.set_defaults(run=_scale)


def _scale(args: argparse.Namespace) -> int:
    from rater.analysis.scaling.curve import scale
    from rater.analysis.scaling.pairs import orders, smt_yields
    from rater.workflow.results.output_file import checked_file
    from rater.workflow.results.points import points_from, points_without_runs

    file = None if args.file is None else checked_file(args.file)
    with existing_store(args) as store:
        words = list(dict.fromkeys(args.which))
        points = points_from(store, words)
        missing = points_without_runs(store, words)
    scaling = scale(points)
    smt, rotated = smt_yields(scaling.samples), orders(scaling.samples)
    if not scaling.curves and not smt and not rotated:
        raise InputError(
            "\n  ".join(["no curve:", *_reasons(scaling.alone)])
            + "\nexpected runs of the same with different numbers of copies, as\n"
            "`rater run ... --copies N` or `rater sweep --axis copies=1,2,4` make them"
        )
    if file is not None and scaling.curves:
        from rater.show.charts.scaling import draw_curves

        draw_curves(scaling.curves, file)
    if args.json:
        from rater.show.scaling.to_json import scaling_document

        print_json(scaling_document(scaling, smt, rotated, missing))
        return 0
    from rich.console import Console

    from rater.show.console.printer import Printer
    from rater.show.scaling.table import print_scaling

    printer = Printer(Console())
    print_scaling(scaling, smt, rotated, printer, missing=missing)
    if file is not None and scaling.curves:
        printer.line()
        panels = {one.name for curve in scaling.curves for one in curve.series}
        printer.line(f"{args.file}: {count(len(panels), 'panel')}")
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
