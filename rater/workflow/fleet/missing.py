"""Hosts of a fleet's plan that have no complete run, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rater.errors import InputError
from rater.plan.fleet.attempt import AttemptState
from rater.plan.fleet.due import outcome
from rater.record.fleet import IndexedRun
from rater.show.fleet.slow_hosts import MissingHost
from rater.store.fleet.fleets import load_fleet
from rater.store.store import Store


def missing_hosts(
    store: Store, fleet: int, chosen: Mapping[str, IndexedRun], in_map: Collection[str]
) -> tuple[list[MissingHost], int]:
    """Return the nodes that are not complete, and how many were planned."""
    try:
        plan = load_fleet(store, fleet)
    except InputError:  # its index came without its plan
        return [
            MissingHost(host, "without times", run.reason, run.attempt, has_times=False)
            for host, run in chosen.items()
            if host not in in_map
        ], len(chosen)
    missing = []
    for node, tried in plan.attempts.items():
        last = outcome(tried) if tried else None
        if last is not None and last.state is AttemptState.COMPLETE and node in in_map:
            continue
        if last is None:
            state, reason = "not submitted", None
        elif last.state is AttemptState.COMPLETE:
            has = "no benchmark in it ended well" if node in chosen else "not collected yet"
            state, reason = "without times", has
        else:
            state, reason = last.state.value, last.reason
        missing.append(MissingHost(node, state, reason, len(tried), has_times=node in in_map))
    return missing, len(plan.nodes)
