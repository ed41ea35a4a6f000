"""`rater history`: when a host, or a benchmark on all hosts, became slower."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater history`."""
    parser = subparsers.add_parser(
        "history",
        help="when a host became slow",
        description="Report the steps in the times of a host, fleet by fleet against the other "
        "hosts of its kind, or of a benchmark on all hosts: their dates, their sizes, and which "
        "settings, kernel, microcode or machine changed then.",
    )
    parser.add_argument("name", metavar="HOST|BENCHMARK", help="as fleets name it")
    add_common(parser)
    parser.set_defaults(run=later("fleet.history", "history"))
