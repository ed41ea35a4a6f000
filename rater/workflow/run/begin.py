"""`rater run` and `rater rerun`: planned, then shown (`--dry-run`) or made.

What only one of them needs is imported where it is needed: both are typed often.
"""

from __future__ import annotations

import argparse

from rater.run.host import discover as machine
from rater.run.programs.compile import cache_root
from rater.workflow.common import existing_store, refuse_no_directory
from rater.workflow.run.resolve import resolve
from rater.workflow.run_arguments import request_from, tags_from


def run(args: argparse.Namespace) -> int:
    """Make a new run, or show it (`--dry-run`); return the exit status."""
    request = request_from(args)
    refuse_no_directory()
    resolved, cache = resolve(request, machine.discover()), cache_root()
    if args.dry_run:
        from rater.workflow.run.dry_run import dry_run

        return dry_run(args, resolved, cache)
    from rater.workflow.run.session import Session

    return Session(args, resolved, cache).run()


def rerun(args: argparse.Namespace) -> int:
    """Make a stored run once more; return the exit status."""
    from rater.workflow.run.repeat import Rerun, resolve_again

    tags = tags_from(args)
    with existing_store(args) as store:
        stored = store.load(store.find(args.which), secrets=True)
    resolved, cache = resolve_again(args, stored, tags=tags), cache_root()
    if args.dry_run:
        from rater.workflow.run.dry_run import dry_run

        return dry_run(args, resolved, cache, again=stored)
    from rater.workflow.run.session import Session

    return Session(args, resolved, cache, Rerun(stored)).run()
