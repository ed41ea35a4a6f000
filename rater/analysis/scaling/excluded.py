"""What runs of a curve do not have in common, and what has no result; pure."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.conditions.conditions import (
    ConditionDifference,
    Facts,
    compared,
    condition_differences,
    stored_conditions,
)
from rater.analysis.scaling.samples import Sample
from rater.groups import grouped
from rater.record.status import RunStatus
from rater.record.stored import RunHead
from rater.text.cpuset import format_list
from rater.text.words import copies_text

_PLACE = "place of copy "  # a difference that other numbers of copies bring with them


# What differs from the first run, and the runs in which it is so.
type RunDifferences = tuple[tuple[ConditionDifference, tuple[int, ...]], ...]


def run_differences(by_copies: dict[int, list[Sample]]) -> RunDifferences:
    """Return in what runs differ from the first of them beside their copies, significant first.

    In where these were, from the first with as many copies.
    """
    members = [one for of_it in by_copies.values() for one in of_it]
    found = [
        (one, sample.run.head.run)
        for first, *others in by_copies.values()
        for sample in others
        for one in compared(_places(first), _places(sample))
    ]
    found += [
        (one, sample.run.head.run)
        for sample in members[1:]
        for one in condition_differences(
            stored_conditions(members[0].run), stored_conditions(sample.run)
        )
        if not one.what.startswith(_PLACE)
    ]
    runs = ((one, tuple(of_it)) for one, of_it in grouped(found).items())
    return tuple(sorted(runs, key=lambda it: not it[0].significant))


def _places(sample: Sample) -> Facts:
    """Return where as many copies were, as alike as the places are."""
    places, whose = sample.places, f"of {copies_text(sample.places.copies)}"
    cpus = None if places.on is None else format_list(places.on)
    return {f"CPUs {whose}": cpus, f"memory {whose}": places.memory}


def lacking(members: Sequence[Sample]) -> list[str]:
    """Say what of the runs has no result, run by run."""
    lines = []
    for one in members:
        head = one.run.head
        if head.status is not RunStatus.COMPLETE:
            lines.append(
                f"{_named(head)} is {head.status.value}: "
                f"{len(one.rates.rates)} of its {len(head.benchmarks)} benchmarks have a result"
            )
        lines += [f"{_named(head)}: {reason}" for reason in one.rates.lacking]
    return lines


def _named(head: RunHead) -> str:
    return f"run {head.run} ({copies_text(head.copies)})"


def left_out(
    names: Sequence[str], everywhere: Sequence[str], by_copies: dict[int, list[Sample]]
) -> list[str]:
    """Name the benchmarks that are in no geometric mean, with the numbers of copies they lack."""
    lines = []
    for name in names:
        if name not in everywhere:
            without = [
                str(copies)
                for copies, of_it in by_copies.items()
                if not any(name in one.rates.rates for one in of_it)
            ]
            lines.append(
                f"{name} is not in the geometric means: no result with {', '.join(without)} "
                f"{'copy' if without == ['1'] else 'copies'}"
            )
    return lines
