"""`rater fleet status|wait|cancel|collect|retry|list`: what becomes of a fleet that was begun."""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

from rater.errors import InputError
from rater.plan.fleet.attempt import AttemptState
from rater.plan.fleet.due import outcome
from rater.plan.fleet.nodes import expand
from rater.run.fleet.backends import POLL_S
from rater.run.fleet.shared_folder import SharedFolder
from rater.show.fleet.table import FleetListed, listed_document, print_fleets, what_text
from rater.store.connection import default_path, is_there
from rater.store.fleet.fleets import (
    StoredFleet,
    find_fleet,
    fleets,
    load_fleet,
    mark_fleet_cancelled,
)
from rater.store.store import open_store
from rater.streams import say
from rater.text.words import count, some
from rater.workflow.common import existing_store, show
from rater.workflow.fleet.collect import collected
from rater.workflow.fleet.step import Steps
from rater.workflow.fleet.view import show_fleet, status_of, told, waited
from rater.workflow.run.head import now_utc

_CANCEL_WAIT_S, _CANCEL_POLL_S = 60.0, 2.0


def status(args: argparse.Namespace) -> int:
    """Look once, store what is seen and show it; nothing is submitted or ended."""
    with existing_store(args) as store:
        steps = Steps(store, find_fleet(store, args.fleet))
        try:
            fleet = steps.look()
        except InputError as error:  # without Slurm's commands: what is stored is shown
            say(str(error))
            fleet = load_fleet(store, steps.number)
        show_fleet(args, fleet, steps.silent, every=args.all)
    return 0


def wait(args: argparse.Namespace) -> int:
    """Submit what is due, try lost nodes again, until nothing is left to be done; collect."""
    with existing_store(args) as store:
        number = find_fleet(store, args.fleet)
        nodes = len(load_fleet(store, number).nodes)
        return waited(args, Steps(store, number, told(nodes, quiet=args.quiet)))


def cancel(args: argparse.Namespace) -> int:
    """End a fleet: nothing more is submitted, jobs are told to publish what they have and end."""
    with existing_store(args) as store:
        number = find_fleet(store, args.fleet)
        fleet = load_fleet(store, number)
        if fleet.is_settled:
            say(f"fleet {number} has no jobs left: {status_of(fleet)}")
            return 0
        mark_fleet_cancelled(store, number, now_utc())
        SharedFolder(Path(fleet.asked.folder)).mark_cancelled()
        steps = Steps(store, number, told(len(fleet.nodes), quiet=args.quiet))
        until_s = time.monotonic() + _CANCEL_WAIT_S
        while True:
            fleet = steps.act(steps.look(), submit=False)
            if not fleet.live or time.monotonic() > until_s or not args.wait:
                break
            time.sleep(min(_CANCEL_POLL_S, POLL_S[fleet.asked.backend]))
        if fleet.live and args.wait:
            say(f"{count(len(fleet.live), 'job')} still ending; `rater fleet status` looks again")
        if args.json or not args.quiet:
            show_fleet(args, fleet, steps.silent)
        return 1 if steps.silent else 0


def collect(args: argparse.Namespace) -> int:
    """Admit what was published so far; the exit status says whether anything was set aside."""
    with existing_store(args) as store:
        steps = Steps(store, find_fleet(store, args.fleet))
        try:
            steps.look()
        except InputError as error:
            say(str(error))
        aside = collected(steps, quiet=args.quiet)
        if args.json or not args.quiet:
            show_fleet(args, load_fleet(store, steps.number), steps.silent)
    return 1 if aside else 0


def retry(args: argparse.Namespace) -> int:
    """Try nodes again that came to less than all: those that may, or those that are named."""
    with existing_store(args) as store:
        number = find_fleet(store, args.fleet)
        nodes = len(load_fleet(store, number).nodes)
        steps = Steps(store, number, told(nodes, quiet=args.quiet))
        fleet = steps.look()
        if fleet.cancelled_at is not None:
            raise InputError(f"fleet {number} was cancelled; `rater fleet run` makes a new one")
        wanted = _retried(fleet, args.nodes)
        if not wanted:
            say(f"fleet {number}: nothing to try again ({status_of(fleet)})")
            return 0
        fleet = steps.act(fleet, again=wanted)
        if args.wait:
            return waited(args, steps)
        if args.json or not args.quiet:
            show_fleet(args, fleet, steps.silent)
    return 0


def _retried(fleet: StoredFleet, named: str | None) -> tuple[str, ...]:
    """Return the nodes that are to be tried again. Raises `InputError`."""
    if named is None:
        return tuple(
            node
            for node, tried in fleet.attempts.items()
            if tried and all(it.state.ended for it in tried) and outcome(tried).state.is_retried
        )
    nodes = expand(named)
    unknown = [node for node in nodes if node not in fleet.nodes]
    if unknown:
        raise InputError(f"--nodes: {some(unknown)}: not of fleet {fleet.number}")
    attempts = fleet.attempts
    busy = [node for node in nodes if any(not it.state.ended for it in attempts[node])]
    if busy:
        raise InputError(f"--nodes: {some(busy)}: has a job already; `rater fleet cancel` ends it")
    return tuple(
        node
        for node in nodes
        if not attempts[node] or outcome(attempts[node]).state is not AttemptState.COMPLETE
    )


def list_fleets(args: argparse.Namespace) -> int:
    """Print the fleets that are stored; no scheduler is asked."""
    path = default_path(args.db)
    lines: list[FleetListed] = []
    if is_there(path):
        with open_store(path) as store:
            for it in fleets(store):
                fleet = load_fleet(store, it.fleet)
                what = what_text(it.words, it.command)
                lines.append(
                    FleetListed(
                        it.fleet,
                        it.started_at,
                        it.backend,
                        what,
                        it.nodes,
                        it.complete,
                        status_of(fleet),
                    )
                )
    else:
        say(f"there is no database {path} yet")
    show(args, partial(listed_document, lines), partial(print_fleets, lines))
    return 0
