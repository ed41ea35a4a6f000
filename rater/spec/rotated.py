"""CPU2026's rolling round-robin rate: records of single copies as queues; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.record import StoredBracket, StoredCopy
from rater.spec.placed import Places
from rater.spec.result import MOST_COPIES, SpecIteration
from rater.spec.rows import copy_row


def rotated_place(one: SpecIteration) -> tuple[int, int]:
    """Return iteration and copy of a record: its number is iteration x copies + copy."""
    copies = one.copies or MOST_COPIES
    return divmod(one.iteration, copies)


def rotated_brackets(
    scored: Sequence[SpecIteration],
) -> list[tuple[StoredBracket, tuple[SpecIteration, ...]]]:
    """Return a bracket for each tune, over the queues of all copies."""
    found: list[tuple[StoredBracket, tuple[SpecIteration, ...]]] = []
    for phase, tune in enumerate(sorted({one.tune for one in scored})):
        members = tuple(one for one in scored if one.tune == tune)
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
        found.append((bracket, members))
    return found


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
        for step, (iteration, _, one) in enumerate(queue):
            seconds = one.reported_s
            if seconds is None:
                seconds = next(iter(one.times_s.values()), None)
            if seconds is not None:
                yield copy_row(
                    phase, one, copy, places, iteration=iteration, step=step, seconds=seconds
                )
