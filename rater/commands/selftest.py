"""`rater selftest`: slow some copies on purpose, and see whether just these are found."""

from __future__ import annotations

import argparse

from rater.commands.common import add_common, add_topology
from rater.plan.request.request import BY_NAME
from rater.text.units import duration_s
from rater.workflow.run_arguments import add_option
from rater.workflow.selftest.selftest import IDLE_S, LEAST_ITERATIONS, SECONDS, TAG, selftest


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater selftest`."""
    parser = subparsers.add_parser(
        "selftest",
        help="are known divots found?",
        description="Run a few copies several times: undisturbed, then with one known slowdown "
        "each time (competing processes, a stopped copy, remote memory). Each must be "
        "detected, and nothing else. Exits 0 only then, 3 where the machine is too busy. "
        "Takes about a minute; the runs go to a temporary database.",
    )
    parser.add_argument(
        "--copies",
        type=int,
        metavar="N",
        help="default: one a CPU, as many as it takes to distinguish lgroups; 8 on one or two CPUs",
    )
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--quick", action="store_true", help="two kernels instead of three")
    how_long.add_argument(
        "--seconds",
        type=duration_s,
        metavar="S",
        default=SECONDS,
        help=f"about how long it may take (default {SECONDS:g}); more means more iterations, "
        f"at least {LEAST_ITERATIONS}",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="plant what this seed chose (default: by chance)"
    )
    parser.add_argument(
        "--until-idle",
        type=duration_s,
        nargs="?",
        const=IDLE_S,
        metavar="MAX_S",
        help="before each run wait until other processes leave the CPUs alone, and repeat it where "
        f"they did not, for MAX_S seconds each (default {IDLE_S:g})",
    )
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="run nothing: plant in made times of this machine's shape, with the noise of a quiet "
        "one, and report what the detector finds; works on a busy machine, too",
    )
    add_topology(
        parser, "with --simulate: another machine, an hwloc XML file or a description (4x16)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help=f"store the runs in the database, tagged {TAG}=KIND",
    )
    add_option(parser, BY_NAME["wait"])
    add_common(parser)
    parser.set_defaults(run=selftest)
