"""What is to be done for a fleet: which nodes are tried next, which jobs end; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.plan.fleet.attempt import AttemptState, Ending, NodeAttempt


@dataclass(frozen=True, slots=True)
class FleetRules:
    """What a fleet was asked for, as far as it decides what is done next."""

    attempts: int  # of a node, at most
    parallel: int | None  # jobs that have not ended, at most; None: any number
    is_cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done now."""

    submit: tuple[tuple[str, int], ...] = ()  # node and number of the attempt, in this order
    end: tuple[tuple[NodeAttempt, Ending], ...] = ()  # jobs to end, and why


def due(
    rules: FleetRules,
    nodes: Sequence[str],
    attempts: Mapping[str, Sequence[NodeAttempt]],
    idle: Collection[str] = (),
    again: Collection[str] = (),
) -> Due:
    """Return what is to be done; `attempts` are those of each node in their order.

    Nodes that were not tried yet come before others, and of both those that are idle: a node
    that is busy must not keep one waiting that is free. Nodes of `again` are tried once more even
    if they were as often as the rules allow.
    """
    live = [it for node in nodes for it in attempts.get(node, ()) if not it.state.ended]
    end = []
    for it in live:
        done = outcome(attempts[it.node]).state is AttemptState.COMPLETE
        why = Ending.CANCELLED if rules.is_cancelled else Ending.NOT_NEEDED if done else None
        if why is not None and it.ending is None:
            end.append((it, why))
    if rules.is_cancelled:
        return Due(end=tuple(end))
    wanted = [
        (node, len(attempts.get(node, ())) + 1)
        for node in nodes
        if is_wanted(attempts.get(node, ()), rules.attempts)
        or (node in again and all(it.state.ended for it in attempts.get(node, ())))
    ]
    wanted.sort(key=lambda it: (it[1], it[0] not in idle))  # stable: else in the order of nodes
    room = len(wanted) if rules.parallel is None else max(0, rules.parallel - len(live))
    return Due(tuple(wanted[:room]), tuple(end))


def is_wanted(attempts: Sequence[NodeAttempt], most: int) -> bool:
    """Tell whether a node is to be tried, or once more."""
    if not attempts:
        return True
    if not all(it.state.ended for it in attempts):
        return False
    return len(attempts) < most and outcome(attempts).state.is_retried


def outcome(attempts: Sequence[NodeAttempt]) -> NodeAttempt:
    """Return the attempt that stands for a node: one that has everything, else the last."""
    complete = [it for it in attempts if it.state is AttemptState.COMPLETE]
    return (complete or attempts)[-1]


def is_settled(rules: FleetRules, attempts: Iterable[Sequence[NodeAttempt]]) -> bool:
    """Tell whether a fleet has come to its end: no job is left, none will be submitted."""
    return all(
        all(it.state.ended for it in tried)
        and (rules.is_cancelled or not is_wanted(tried, rules.attempts))
        for tried in attempts
    )
