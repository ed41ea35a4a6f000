"""What several subcommands take, declared once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rater.command_line import Parser
from rater.plan.request import BY_NAME
from rater.workflow.arguments import add_option

type Subparsers = argparse._SubParsersAction[Parser]

_RUN = "a number, the start of a uuid, last, last~1, or tag:K=V"
ONE_RUN = f"{_RUN} (where one run has that tag); fleet:N/HOST: a host's run of a fleet"
ALL_RUNS = f"{_RUN} (all runs with that tag)"
RESTORE = "runs that were removed (`rater rm`) come back; without it they stay removed"
POINTS = (
    "a point: a run (a number, the start of a uuid, last, last~1), several runs of one point "
    "(7,8,9 or 25-44), all runs with a tag (tag:thp=always), all points of a sweep (sweep:3, "
    "sweep:last), or a host's run of a fleet (fleet:3/n017)"
)


def lazy_command(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """Return a command of `rater.MODULE`, which is imported when it is called."""

    def run(args: argparse.Namespace) -> int:
        status: int = getattr(import_module(f"rater.{module}"), function)(args)
        return status

    return run


def add_common(parser: argparse.ArgumentParser, *, tables: bool = False) -> None:
    """Add `--db` and `--json`, which may also stand before the subcommand.

    They have no default here: one would overwrite what stood there. `tables`: with `--format`.
    """
    parser.add_argument(
        "--db", metavar="PATH", default=argparse.SUPPRESS, help="the database (else RATER_DB)"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="one JSON document on stdout",
    )
    if tables:
        parser.add_argument(
            "--format", choices=("md", "csv"), help="tables as Markdown, or as CSV without the text"
        )


def add_run_word(
    parser: argparse.ArgumentParser, nargs: str | None = None, text: str = _RUN
) -> None:
    """Add RUN; `nargs` "?" or "*": the last one where none is given."""
    default: Any = "last" if nargs == "?" else []
    text += " (default: last)" if nargs else ""
    parser.add_argument("which", metavar="RUN", nargs=nargs, default=default, help=text)


def add_verbose(parser: argparse._ActionsContainer) -> None:
    """Add `-v`: a run's result with its details."""
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="the result with the memory of every benchmark"
    )


def add_file(parser: argparse._ActionsContainer, text: str) -> None:
    """Add `-o FILE`."""
    parser.add_argument("-o", dest="file", metavar="FILE", help=text)


def add_sweep_options(parser: argparse._ActionsContainer, rounds: str) -> None:
    """Add what every command that sweeps takes; `rounds`: the help of `--rounds`."""
    parser.add_argument("--rounds", type=int, metavar="N", help=rounds)
    parser.add_argument("--skip-refused", action="store_true", help="skip points that cannot run")
    parser.add_argument(
        "--stop-on-failure", action="store_true", help="stop when a copy fails; default: go on"
    )


def add_doing(parser: argparse._ActionsContainer, dry_run: str, quiet: str) -> None:
    """Add `--dry-run` and `--quiet`."""
    parser.add_argument("--dry-run", action="store_true", help=dry_run)
    parser.add_argument("--quiet", action="store_true", help=quiet)


def add_force_and_share(parser: argparse._ActionsContainer) -> None:
    """Add `--force`, `--share` and `--wait` as `rater run` has them."""
    for name in ("force", "share", "wait"):
        add_option(parser, BY_NAME[name])


def add_topology(parser: argparse.ArgumentParser, text: str, **rest: Any) -> None:
    """Add `--topology MACHINE`."""
    parser.add_argument("--topology", metavar="MACHINE", help=text, **rest)
