"""`rater report`: a run, or several beside each other, as one page that a person can send."""

from __future__ import annotations

from rater.commands.common import POINTS, Subparsers, add_common, add_file, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater report`."""
    parser = subparsers.add_parser(
        "report",
        help="a run as one HTML page to send: divots, pictures, tables, settings",
        description="Write one HTML page that tells what ran, what is slow and where, with a "
        "picture of every copy's time, the machine coloured by slowdown, who ran when, and all "
        "tables. It needs no network and no other file.",
    )
    parser.add_argument(
        "which",
        metavar="POINT",
        nargs="*",
        default=[],
        help=f"{POINTS}; of several the first is what the others are compared with (default: last)",
    )
    add_file(
        parser,
        "the page; - is standard output (default: rater-report-RUN.html in the current directory)",
    )
    parser.add_argument(
        "--force", action="store_true", help="write over FILE though rater did not make it"
    )
    add_common(parser)
    parser.set_defaults(run=later("results.report", "report"))
