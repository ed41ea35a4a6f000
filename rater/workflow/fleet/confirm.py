"""`rater divots --confirm fleet:3`: slow hosts run again, each beside a quiet one."""

from __future__ import annotations

import argparse
import time

from rater.analysis.divots.confirm import LEAST_PAIRS, Answer
from rater.analysis.fleet.confirm import pairs_of, suspect_of, verdict
from rater.analysis.fleet.model import FleetCompared, SlowHost
from rater.errors import InputError
from rater.run.fleet.backends import POLL_S
from rater.show.fleet.confirm import (
    HostTrial,
    host_trial_document,
    print_host_verdicts,
    print_plan,
)
from rater.store.fleet.fleets import load_fleet
from rater.store.store import Store
from rater.streams import say
from rater.workflow.common import existing_store, show
from rater.workflow.fleet.begin import begin_again
from rater.workflow.fleet.collect import collected
from rater.workflow.fleet.compared import compared, one_fleet, results
from rater.workflow.fleet.step import Steps
from rater.workflow.fleet.view import told

_ROUNDS = 3
_MOST_SUSPECTS = 64


def confirm(args: argparse.Namespace) -> int:
    """Run the rounds and say which hosts are slow again; 0 where one is."""
    rounds = _ROUNDS if args.pairs is None else args.pairs
    if rounds < LEAST_PAIRS:
        raise InputError(f"--pairs {rounds}: expected {LEAST_PAIRS} or more")
    with existing_store(args) as store:
        fleet = one_fleet(store, [args.confirm], "divots --confirm")
        load_fleet(store, fleet)  # else nobody knows how its hosts are reached
        found = compared(store, fleet)
        chosen = _chosen(args, fleet, found)
        pairs = pairs_of(found, [one.host for one in chosen], rounds)
        trial = HostTrial(fleet, [suspect_of(one) for one in chosen], pairs)
        if args.dry_run:
            show(args, lambda: host_trial_document(trial), lambda it: print_plan(trial, it))
            return 0
        if not args.quiet and not args.json:
            show(args, lambda: None, lambda it: print_plan(trial, it))
        numbers = [
            _round(
                store, fleet, [name for it in them for name in (it.suspect.host, it.quiet)], args
            )
            for them in pairs
        ]
        measured = [{it.host: it for it in results(store, number)} for number in numbers]
    verdicts = [
        verdict(suspect, list(zip(pairs, measured, strict=True))) for suspect in trial.suspects
    ]
    trial = HostTrial(fleet, trial.suspects, pairs, numbers, verdicts)
    show(args, lambda: host_trial_document(trial), lambda it: print_host_verdicts(trial, it))
    again = (Answer.CONFIRMED, Answer.SMALLER)
    return 0 if any(it is not None and it.answer in again for it in verdicts) else 1


def _chosen(args: argparse.Namespace, fleet: int, found: FleetCompared) -> list[SlowHost]:
    slow = list(found.slow)
    if not slow:
        raise InputError(f"fleet:{fleet} has no slow hosts: there is nothing to confirm")
    if args.finding is not None:
        if not 1 <= args.finding <= len(slow):
            raise InputError(
                f"--finding {args.finding}: of the slow hosts of fleet:{fleet} expected 1 to "
                f"{len(slow)}"
            )
        return [slow[args.finding - 1]]
    if len(slow) > _MOST_SUSPECTS:
        say(f"the {_MOST_SUSPECTS} slowest of {len(slow)} slow hosts are confirmed")
    return slow[:_MOST_SUSPECTS]


def _round(store: Store, fleet: int, nodes: list[str], args: argparse.Namespace) -> int:
    """Make a fleet of these nodes with what the first one ran; return its number."""
    number = begin_again(store, fleet, tuple(dict.fromkeys(nodes)))
    steps = Steps(store, number, told(len(set(nodes)), quiet=args.quiet))
    while not steps.act(steps.look()).is_settled:
        time.sleep(POLL_S[load_fleet(store, number).asked.backend])
    collected(steps, quiet=True)
    return number
