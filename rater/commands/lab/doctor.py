"""`rater doctor`: is this machine fit to be measured, and what mends it."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        help="is it fit to measure?",
        description="Check everything on this machine that makes results vary: other work, "
        "frequencies, isolation, interrupts, huge pages, NUMA, swap, permissions, limits. Each "
        "check is good, to consider, bad, or unavailable here; -v has why it matters and the "
        "command that mends it. Nothing is changed, unless a command follows --fix --.",
        epilog="`rater run --tuned` sets what the doctor would for the time of a run, and puts it "
        "back; `rater doctor --fix -- COMMAND` does so around any command.",
    )
    parser.add_argument(
        "checks",
        nargs="*",
        metavar="CHECK",
        help="only these (governor, THP, ...), with all details",
    )
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="why each check matters, and what mends it"
    )
    parser.add_argument(
        "--run-of",
        metavar="RUN",
        help="check the machine as RUN recorded it (a number, last, ...)",
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="for the time of the command behind `--`, set what mends what is bad or to consider; "
        "it is put back at its end, or by the next rater after kill -9",
    )
    add_common(parser)
    parser.set_defaults(run=later("doctor.doctor", "doctor"))
