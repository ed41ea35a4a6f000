"""A fleet on the screen: as it is, and what becomes of it while somebody waits."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

from rater.plan.fleet.attempt import AttemptState, NodeAttempt
from rater.plan.fleet.due import outcome
from rater.run.fleet.backends import POLL_S
from rater.show.fleet.table import FleetView, NodeView, fleet_document, print_fleet, what_text
from rater.store.fleet.fleets import StoredFleet, mark_begun
from rater.streams import say
from rater.workflow.common import show
from rater.workflow.fleet.collect import collected
from rater.workflow.fleet.step import Steps, no_news

_MOST_FOLLOWED = 16  # nodes whose every step is said


def view_of(fleet: StoredFleet, silent: str | None = None) -> FleetView:
    """Return a fleet as it is shown."""
    asked = fleet.asked
    nodes = tuple(
        NodeView(node, outcome(tried) if tried else None, tried)
        for node, tried in fleet.attempts.items()
    )
    return FleetView(
        fleet.number,
        asked.uuid,
        asked.started_at,
        asked.backend,
        asked.folder,
        what_text(asked.words, asked.command),
        status_of(fleet),
        silent,
        nodes,
    )


def status_of(fleet: StoredFleet) -> str:
    """Return in a word how a fleet stands."""
    if is_complete(fleet):
        return "complete"
    if not fleet.is_settled:
        return "cancelling" if fleet.cancelled_at else "running"
    return "cancelled" if fleet.cancelled_at else "incomplete"


def is_complete(fleet: StoredFleet) -> bool:
    """Tell whether every node has measured all that was planned."""
    return all(
        tried and outcome(tried).state is AttemptState.COMPLETE for tried in fleet.attempts.values()
    )


def show_fleet(
    args: argparse.Namespace, fleet: StoredFleet, silent: str | None, *, every: bool = False
) -> None:
    """Print a fleet."""
    view = view_of(fleet, silent)
    show(args, partial(fleet_document, view), partial(print_fleet, view, every=every))


def told(nodes: int, *, quiet: bool) -> Callable[[NodeAttempt], None]:
    """Return what says on standard error what becomes of nodes; of many only how they end."""

    def tell(it: NodeAttempt) -> None:
        if it.state in (AttemptState.INTENT, AttemptState.SUBMITTED):
            return
        if nodes > _MOST_FOLLOWED and not it.state.ended:
            return
        again = f" (attempt {it.attempt})" if it.attempt > 1 else ""
        say(f"{it.node}{again}: {it.state}" + (f": {it.reason}" if it.reason else ""))

    return no_news if quiet else tell


def waited(args: argparse.Namespace, steps: Steps) -> int:
    """Go on with a fleet until it has come to its end, collect and show it; return the status.

    Ctrl-C ends the waiting alone: jobs go on.
    """
    said = None
    while True:
        fleet = steps.act(steps.look())
        if steps.silent != said and steps.silent is not None and not args.quiet:
            say(f"the scheduler gave no answer, asking again: {steps.silent}")
        said = steps.silent
        if fleet.is_settled:
            break
        time.sleep(POLL_S[fleet.asked.backend] if args.poll is None else args.poll)
    if collected(steps, quiet=args.quiet) and not steps.look().is_settled:
        return waited(args, steps)  # what was damaged is measured again
    mark_begun(steps.store, steps.number)
    fleet = steps.look()
    if args.json or not args.quiet:
        show_fleet(args, fleet, steps.silent)
    return 0 if is_complete(fleet) else 1
