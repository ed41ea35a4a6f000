"""`rater report`: a run, or several beside each other, as one page that a person can send."""

from __future__ import annotations

import argparse

from rater.commands.common import POINTS, Subparsers, add_common, add_file, later
from rater.record.fleet import is_fleet_word


def register(subparsers: Subparsers) -> None:
    """Declare `rater report`."""
    parser = subparsers.add_parser(
        "report",
        help="a run as an HTML page",
        description="Write one HTML page: what ran, what is slow and where, with a "
        "picture of every copy's time, the machine coloured by slowdown, who ran when, and all "
        "tables. It needs no network and no other file.",
    )
    parser.add_argument(
        "which",
        metavar="POINT",
        nargs="*",
        default=[],
        help=f"{POINTS}; of several the first is what the others are compared with (default: "
        "last); or fleet:N: all hosts of a fleet",
    )
    add_file(
        parser,
        "the page; - is standard output (default: rater-report-RUN.html in the current directory)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write over FILE though rater did not make it"
    )
    add_common(parser)
    parser.set_defaults(run=_report)


def _report(args: argparse.Namespace) -> int:
    if any(is_fleet_word(word) and "/" not in word for word in args.which):
        return later("fleet.report", "report")(args)
    return later("results.report", "report")(args)
