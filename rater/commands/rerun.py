"""`rater rerun RUN`: make a new run of what a stored one was asked for."""

from __future__ import annotations

import argparse
from dataclasses import replace

from rater.commands.common import add_common
from rater.workflow.common import existing_store
from rater.workflow.run.rerun import Rerun


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater rerun`."""
    parser = subparsers.add_parser(
        "rerun",
        help="make a stored run once more, and say what differs",
        description="Make a new run of what a stored one was asked for: the same suite or "
        "command in the same directory, as many copies, every option; and say what differs.",
    )
    parser.add_argument(
        "which", metavar="RUN", help="a number, the start of a uuid, last, last~1, or tag:K=V"
    )
    parser.add_argument(
        "--tag", action="append", default=[], metavar="K=V", help="one more, or another value"
    )
    parser.add_argument("--force", action="store_true", help="run though memory or disk may not do")
    parser.add_argument("--share", action="store_true", help="run beside another rater")
    parser.add_argument("--dry-run", action="store_true", help="show what differs, and the plan")
    parser.add_argument("--quiet", action="store_true", help="no progress, no table")
    add_common(parser)
    parser.set_defaults(run=rerun)


def rerun(args: argparse.Namespace) -> int:
    """Make the run; return its exit status."""
    from rater.run.host import discover as machine
    from rater.run.programs.compile import cache_root
    from rater.workflow.run.dry_run import dry_run
    from rater.workflow.run.needs import needs_of
    from rater.workflow.run.repeat import go_to, request_of, told_where, with_its_suites
    from rater.workflow.run.resolve import resolve
    from rater.workflow.run.session import Session
    from rater.workflow.run_arguments import tags_from

    tags = tags_from(args)
    with existing_store(args) as store:
        run = store.load(store.find(args.which))
    request = request_of(run.head)
    go_to(args, run.head)
    with told_where(run.head):
        request = replace(
            with_its_suites(request, run.head),
            tags=(*request.tags, *tags),
            force=request.force or args.force,
            share=request.share or args.share,
        )
        resolved = resolve(request, machine.discover())
    cache = cache_root()
    if args.dry_run:
        return dry_run(args, resolved, needs_of(resolved, cache, ()), again=run)
    return Session(args, resolved, cache, Rerun(run)).run()
