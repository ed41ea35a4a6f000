"""`rater rerun RUN`: make a new run of what a stored one was asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from rater.commands.attempt import Attempt, Entered, Now
from rater.commands.common import add_common, existing_store

if TYPE_CHECKING:
    from rater.plan.schedule import Plan
    from rater.record import StoredRun
    from rater.store.store import Store


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


class Rerun(Attempt):
    """A new run that remembers which one it repeats."""

    def __init__(self, run: StoredRun) -> None:
        super().__init__()
        self._stored = run

    def enter(self, store: Store, plan: Plan, now: Now, say: Callable[[str], None]) -> Entered:
        """Store that the run begins, and what differs from the one it repeats."""
        from rater.commands.again import conditions_of, what_changed
        from rater.record import Noted
        from rater.show.changes import changes_text

        head = self._stored.head
        found = what_changed(self._stored, conditions_of(now))
        say(
            f"differs from run {head.run}:{changes_text(found)}"
            if found
            else f"nothing differs from run {head.run}"
        )
        entered = super().enter(store, plan, now, say)
        store.append(
            entered.number,
            Noted(f"rerun of run {head.run} ({head.uuid})"),
            *(Noted(f"differs from run {head.run}: {it}") for it in found),
        )
        return entered


def rerun(args: argparse.Namespace) -> int:
    """Make the run; return its exit status."""
    from rater.commands.again import go_to, request_of, told_where, with_its_suites
    from rater.commands.request import tags_from
    from rater.commands.resolve import needs_of, resolve
    from rater.commands.run import dry_run
    from rater.commands.session import Session
    from rater.run import machine
    from rater.run.build import cache_root

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
