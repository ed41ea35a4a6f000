"""`rater run`: resolve what was asked for, then show it (`--dry-run`) or do it."""

from __future__ import annotations

import argparse

from rater.commands.common import Subparsers, add_common, add_doing, add_verbose, later
from rater.workflow.run_arguments import add_run_arguments


def register(subparsers: Subparsers) -> None:
    """Declare `rater run`."""
    parser = subparsers.add_parser(
        "run",
        help="N copies side by side",
        description="Run N copies of each benchmark at once, placed by the machine's topology. "
        "`rater run [SUITE[/BENCHMARK] ...]` or `rater run -- COMMAND ...`.",
    )
    add_run_arguments(parser)
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="run what is missing of a stored run, with its own options; refused where machine, "
        "settings, programs or suite changed since (--force: go on all the same)",
    )
    add_doing(parser, "show plan, order, time, memory, disk; run nothing", "no progress, no table")
    add_verbose(parser)
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    resume = later("run.resume", "resume")
    return (later("run.begin", "run") if args.resume is None else resume)(args)
