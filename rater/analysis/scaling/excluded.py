"""What runs of a curve do not have in common, and what has no result; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rater.analysis.conditions.changes import Difference, differences, stored_conditions
from rater.analysis.results.cpus_used import Places
from rater.analysis.scaling.samples import Sample
from rater.record.status import RunStatus
from rater.record.stored import RunHead
from rater.text.cpuset import format_list
from rater.text.words import count

_PLACE = "place of copy "  # a difference that other numbers of copies bring with them


@dataclass(frozen=True, slots=True)
class Unlike:
    """Something recorded that is not the same in all runs of a curve."""

    difference: Difference  # against the first run
    runs: tuple[int, ...]  # in which it is so


def unlike(
    by_copies: dict[int, list[Sample]], volatile: Callable[[str], bool]
) -> tuple[Unlike, ...]:
    """Return in what runs differ from the first of them beside their copies.

    In where these were, from the first with as many copies.
    """
    found: dict[Difference, list[int]] = {}
    members = [one for of_it in by_copies.values() for one in of_it]
    if not members:
        return ()
    for copies, (first, *others) in by_copies.items():
        for sample in others:
            for one in _moved(copies, first.places, sample.places):
                found.setdefault(one, []).append(sample.run.head.run)
    before = stored_conditions(members[0].run)
    for sample in members[1:]:
        for one in differences(before, stored_conditions(sample.run), volatile):
            if not one.what.startswith(_PLACE):
                found.setdefault(one, []).append(sample.run.head.run)
    told = [Unlike(one, tuple(runs)) for one, runs in found.items()]
    return tuple(sorted(told, key=lambda one: not one.difference.weighs))


def _moved(copies: int, before: Places, now: Places) -> Iterator[Difference]:
    """Compare where as many copies were, as alike as the places are."""
    whose = f"of {count(copies, 'copy', 'copies')}"
    if before.on != now.on:
        was, is_now = (None if one.on is None else format_list(one.on) for one in (before, now))
        yield Difference(f"CPUs {whose}", was, is_now)
    if before.memory != now.memory:
        yield Difference(f"memory {whose}", before.memory, now.memory)


def lacking(members: Sequence[Sample]) -> list[str]:
    """Say what of the runs has no result, run by run."""
    told = []
    for one in members:
        head = one.run.head
        if head.status is not RunStatus.COMPLETE:
            told.append(
                f"{_named(head)} is {head.status.value}: "
                f"{len(one.rates.rates)} of its {len(head.benchmarks)} benchmarks have a result"
            )
        told += [f"{_named(head)}: {reason}" for reason in one.rates.lacking]
    return told


def _named(head: RunHead) -> str:
    return f"run {head.run} ({count(head.copies, 'copy', 'copies')})"


def left_out(
    names: Sequence[str], everywhere: Sequence[str], by_copies: dict[int, list[Sample]]
) -> list[str]:
    """Name the benchmarks that are in no geometric mean, with the numbers of copies they lack."""
    told = []
    for name in names:
        if name not in everywhere:
            without = [
                str(copies)
                for copies, of_it in by_copies.items()
                if not any(name in one.rates.rates for one in of_it)
            ]
            told.append(
                f"{name} is not in the geometric means: no result with {', '.join(without)} "
                f"{'copy' if without == ['1'] else 'copies'}"
            )
    return told
