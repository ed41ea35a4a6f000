"""`rater plot`: the times of a run's copies as a picture, in the terminal or in a file."""

from __future__ import annotations

from rater.commands.common import Subparsers, add_common, add_file, add_run_word, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater plot`."""
    parser = subparsers.add_parser(
        "plot",
        help="copies' times, drawn",
        description="Draw the time of every copy, lgroup beside lgroup: one benchmark, or a small "
        "panel for each benchmark of the run. Slow parts have their names beside them.",
    )
    add_run_word(parser, "*")
    parser.add_argument("--benchmark", metavar="B", help="only this one (or the part of a name)")
    parser.add_argument(
        "--iteration", metavar="I", type=int, help="only this one (default: all that count)"
    )
    add_file(parser, "draw into FILE, by its name .svg, .png or .pdf (default: in the terminal)")
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--machine",
        action="store_true",
        help="the machine instead, each CPU coloured by the slowdown of its copies (with -o)",
    )
    other.add_argument(
        "--timeline",
        action="store_true",
        help="who ran when instead: of the bracket of --benchmark and --iteration, else of the "
        "one that lost most (with -o)",
    )
    other.add_argument(
        "--cpi",
        action="store_true",
        help="the cycles of an instruction and their parts instead (runs with --counters), a bar "
        "for each benchmark; of several RUNs, or points as of `compare`, in %% of the first one's",
    )
    add_common(parser)
    parser.set_defaults(run=later("results.plot", "plot"))
