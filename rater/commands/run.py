"""`rater run`: resolve what was asked for, then show it (`--dry-run`) or do it."""

from __future__ import annotations

import argparse
from pathlib import Path

from rater.commands.common import add_common
from rater.errors import InputError
from rater.workflow.run.dry_run import dry_run
from rater.workflow.run_arguments import add_run_arguments, request_from


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater run`."""
    parser = subparsers.add_parser(
        "run",
        help="run N copies side by side and record every copy's time",
        description="Run N copies of each benchmark at once, placed by the machine's topology. "
        "`rater run [SUITE[/BENCHMARK] ...]` or `rater run -- COMMAND ...`.",
    )
    add_run_arguments(parser)
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="run what is missing of a stored run, as it was asked for; refused where machine, "
        "settings, programs or suite changed since (--force: go on all the same)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show plan, order, time, memory, disk; run nothing",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")
    add_common(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run a suite or a command; return the exit status."""
    from rater.run.host import discover as machine
    from rater.run.programs.compile import cache_root
    from rater.workflow.run.needs import needs_of
    from rater.workflow.run.resolve import resolve
    from rater.workflow.run.session import Session

    if args.resume is not None:
        from rater.workflow.run.resume import resume

        return resume(args)
    request = request_from(args)
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            f"the current directory cannot be entered ({error.strerror}); cd to one that is there"
        ) from error
    resolved = resolve(request, machine.discover())
    cache = cache_root()
    if args.dry_run:
        return dry_run(args, resolved, needs_of(resolved, cache, ()))
    return Session(args, resolved, cache).run()
