"""`rater sweep`: runs under all combinations of some values, in blocks, resumable."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from rater.commands.common import add_common
from rater.plan.sweep.grid import BlockOrder
from rater.workflow.common import existing_store, show
from rater.workflow.run_arguments import add_run_arguments

_DESCRIPTION = """\
Run a suite or a command under every combination of the axes' values (a point), each point once in
every block (round), in a new random order each block, so that whatever drifts over time hits all
points alike. rater checks and builds all points before the first run, and puts the machine's
settings back at the end, however the sweep ends.

An axis is an option of `rater run` (copies=1,2,4), what runs (command='./old -x,./new -x'), an
environment variable of every copy (env:MALLOC_ARENA_MAX=,1; empty: not set) or a setting of the
machine (thp=never,always; `rater settings` lists them; needs root). `\\,` is a comma inside a
value. The first point, made of the first value of every axis, is the baseline.

  rater sweep mini --axis copies=1,2,4 --axis thp=never,always --rounds 6
  rater sweep --axis copies=1,2 -- ./bench    a command instead of a suite
  rater sweep FILE.toml           the same from a file (rater sweep --example)
  rater sweep --resume 3          run what is missing of sweep 3
  rater sweep --show 3            its results; `rater compare sweep:3` compares
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater sweep`."""
    parser = subparsers.add_parser(
        "sweep",
        help="runs, settings combined",
        description=_DESCRIPTION,
    )
    add_run_arguments(parser)
    sweep = parser.add_argument_group("the sweep")
    sweep.add_argument(
        "--axis",
        action="append",
        default=[],
        metavar="NAME=V1,V2,...",
        help="what varies, and its values; several times: every combination",
    )
    sweep.add_argument(
        "--rounds",
        type=int,
        metavar="N",
        help="blocks; default 6, the fewest that show whether blocks are independent",
    )
    sweep.add_argument(
        "--block-order",
        choices=tuple(BlockOrder),
        help="of the points in a block: shuffled (default), given, or abba: every second block "
        "backwards (--order takes these words too)",
    )
    sweep.add_argument("--seed", type=int, metavar="N", help="of the shuffled orders; stored")
    sweep.add_argument(
        "--until",
        metavar="[energy:]P%",
        help="check after every block from the third on, and stop once every comparison with the "
        "baseline is better, worse or the same within P%%; intervals are wider for the repeated "
        "checks, so that equal points are not called different more often; energy:P%% compares "
        "joules per copy",
    )
    sweep.add_argument("--skip-refused", action="store_true", help="skip points that cannot run")
    sweep.add_argument(
        "--stop-on-failure", action="store_true", help="stop when a copy fails; default: go on"
    )
    sweep.add_argument("--dry-run", action="store_true", help="show all points; run nothing")
    sweep.add_argument("--quiet", action="store_true", help="no progress, no table")
    sweep.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="all points, benchmarks and what the comparison stands on, as --show has them; "
        "without it a terminal gets what fits a screen",
    )
    stored = parser.add_argument_group("stored sweeps")
    stored.add_argument(
        "--resume",
        metavar="SWEEP",
        help="a number, last: run what is missing; with --rounds N more blocks; refused where "
        "machine, suite or programs changed (--force: go on all the same)",
    )
    stored.add_argument("--list", dest="listing", action="store_true", help="list them")
    stored.add_argument("--show", metavar="SWEEP", help="points and results of a sweep")
    stored.add_argument("--example", action="store_true", help="print a file to begin with")
    add_common(parser)
    parser.set_defaults(run=sweep_command)


def sweep_command(args: argparse.Namespace) -> int:
    """Do what is asked for; return the exit status."""
    if args.example:
        from rater.plan.sweep.file import EXAMPLE

        sys.stdout.write(EXAMPLE)
        return 0
    if args.listing:
        return _list(args)
    if args.show is not None:
        from rater.store.sweeps import find_sweep
        from rater.workflow.sweep.view import show_sweep

        with existing_store(args) as store:
            show_sweep(args, store, find_sweep(store, args.show))
        return 0
    if args.resume is not None:
        from rater.workflow.sweep.resume import resume

        return resume(args)
    from rater.workflow.sweep.conduct import new

    return new(args)


def _list(args: argparse.Namespace) -> int:
    from rater.show.compare.sweep import print_sweeps, sweeps_document
    from rater.store.sweeps import sweeps
    from rater.workflow.sweep.view import view_of

    with existing_store(args) as store:
        views = [view_of(sweep) for sweep in sweeps(store)]
    show(args, lambda: sweeps_document(views), partial(print_sweeps, views))
    return 0
