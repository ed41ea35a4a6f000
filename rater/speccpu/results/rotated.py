"""CPU2026's rolling round-robin rate: records of single copies as queues; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.plan.placement.counts import MOST_COPIES
from rater.record.stored import StoredBracket, StoredCopy
from rater.speccpu.results.own_keys import own_bracket, own_of
from rater.speccpu.results.places import Places
from rater.speccpu.results.result import SpecIteration
from rater.speccpu.results.rows import copy_row


def rotated_place(one: SpecIteration) -> tuple[int, int]:
    """Return iteration and copy of a record: its number is iteration x copies + copy."""
    own = own_of(one)
    if own is not None and own.copy is not None:
        return own.iteration, own.copy
    copies = one.copies or MOST_COPIES
    return divmod(one.iteration, copies)


def rotated_brackets(
    scored: Sequence[SpecIteration],
) -> list[tuple[StoredBracket, tuple[SpecIteration, ...]]]:
    """Return a bracket for each tune, over the queues of all copies.

    rater's own export tells in which one a record was.
    """
    found: list[tuple[StoredBracket, tuple[SpecIteration, ...]]] = []
    owns = [own_of(one) for one in scored]
    groups: dict[tuple[int, str], list[SpecIteration]] = {}
    for one, own in zip(scored, owns, strict=True):
        key = (own.phase, "") if own is not None and all(owns) else (0, one.tune)
        groups.setdefault(key, []).append(one)
    for phase, (key, members) in enumerate(sorted(groups.items(), key=lambda item: item[0])):
        tune = key[1] or None
        bracket = StoredBracket(
            phase=phase,
            benchmark=None,
            iteration=None,
            tune=tune,
            counted=True,
            start_ns=None,
            finish_ns=None,
            last_start_ns=None,
            first_finish_ns=None,
            complete=True,
        )
        found.append((own_bracket(bracket, members[0]), tuple(members)))
    return found


def rotated_copies(
    phase: int, members: Sequence[SpecIteration], places: Places
) -> Iterator[StoredCopy]:
    """Yield every copy's queue: it starts at benchmark n modulo k, in the order of numbers.

    rater's own export tells the step of every record, whatever ring and increment were.
    """
    ring = sorted({one.benchmark for one in members})
    queues: dict[int, list[tuple[int, int, SpecIteration]]] = {}
    for one in members:
        iteration, copy = rotated_place(one)
        position = (ring.index(one.benchmark) - copy) % len(ring)
        own = own_of(one)
        if own is not None:
            iteration, position = 0, own.step
        queues.setdefault(copy, []).append((iteration, position, one))
    for copy in sorted(queues):
        queue = sorted(queues[copy], key=lambda item: item[:2])
        for step, (_, _, one) in enumerate(queue):
            iteration = rotated_place(one)[0]
            seconds = one.reported_s
            if seconds is None:
                seconds = next(iter(one.times_s.values()), None)
            if seconds is not None:
                yield copy_row(
                    phase, one, copy, places, iteration=iteration, step=step, seconds=seconds
                )
