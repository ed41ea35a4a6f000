"""CPU2026's rolling round-robin rate: records of single copies as queues; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.plan.placement.counts import MOST_COPIES
from rater.record.stored import StoredBracket, StoredCopy
from rater.speccpu.results.places import Places
from rater.speccpu.results.result import SpecIteration
from rater.speccpu.results.rows import bracket_row, copy_row


def rotated_place(one: SpecIteration) -> tuple[int, int]:
    """Return iteration and copy of a record: its number is iteration x copies + copy."""
    copies = one.copies or MOST_COPIES
    return divmod(one.iteration, copies)


def rotated_brackets(
    scored: Sequence[SpecIteration],
) -> list[tuple[StoredBracket, tuple[SpecIteration, ...]]]:
    """Return a bracket for each tune, over the queues of all copies."""
    groups: dict[str, list[SpecIteration]] = {}
    for one in scored:
        groups.setdefault(one.tune, []).append(one)
    return [
        (bracket_row(phase, tune), tuple(members))
        for phase, (tune, members) in enumerate(sorted(groups.items()))
    ]


def rotated_copies(
    phase: int, members: Sequence[SpecIteration], places: Places
) -> Iterator[StoredCopy]:
    """Yield every copy's queue: it starts at benchmark n modulo k, in the order of numbers."""
    ring = sorted({one.benchmark for one in members})
    queues: dict[int, list[tuple[int, int, SpecIteration]]] = {}
    for one in members:
        iteration, copy = rotated_place(one)
        position = (ring.index(one.benchmark) - copy) % len(ring)
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
