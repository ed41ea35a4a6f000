"""`rater model`: what describes the layouts of a sweep, and how well it predicts."""

from __future__ import annotations

import argparse

from rater.commands.common import Subparsers, add_common, add_file, later

_DESCRIPTION = """\
Fit a line, a parabola and, with counters and 30 layouts, a sparse polynomial
to the layouts of a sweep, benchmark by benchmark: R2, adjusted R2, AICc, the
error for layouts left out, how wrong lines through two layouts are about the
rest, which model is warranted and how many more layouts are needed to decide."""

_EPILOG = """\
x, where --x does not say: page-walk cycles where they were counted
(--counters), else TLB misses counted, else predicted from a stored trace
(rater pages), else the value of the axis: the share of large pages of --pages,
or of any axis whose values are numbers. What it was stands with it.

Warranted is a model with one more term only where an F test and AICc ask for
it and it differs from the simpler one by more than runs do from each other;
else nothing is chosen."""


def add_y(parser: argparse._ActionsContainer) -> None:
    """Declare `--y`."""
    parser.add_argument(
        "--y",
        default="time",
        metavar="time|cpu|user|energy|cycles|metric:NAME",
        help="of a copy: its time (default), its CPU time (where others work on the machine too), "
        "its user time (without what the kernel does for it: the first touch of memory), joules, "
        "cycles counted, or a number that it reports of itself (metric:updates)",
    )


def register(subparsers: Subparsers) -> None:
    """Declare `rater model`."""
    parser = subparsers.add_parser(
        "model",
        help="fit time to page walks",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    )
    parser.add_argument(
        "which", metavar="SWEEP", help="a number, last, last~1, the start of a uuid"
    )
    parser.add_argument(
        "--x",
        choices=("walks", "misses", "huge", "axis"),
        help="page-walk cycles, TLB misses, the share of large pages, or the axis as it is",
    )
    add_y(parser)
    parser.add_argument(
        "--axis", metavar="NAME", help="the axis to use as x, where there are several"
    )
    parser.add_argument(
        "--degree", type=int, choices=(2, 3), default=2, help="of the highest polynomial; default 2"
    )
    add_file(parser, "draw the models as well, into FILE, by its name .svg, .png or .pdf")
    add_common(parser)
    parser.set_defaults(run=later("models.model", "model_sweep"))
