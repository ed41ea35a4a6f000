"""Divots of several runs: what comes back in the same place, and what moves about; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.divots.data.finding import PLACED, Finding, Kind

_OFTEN = 2 / 3


@dataclass(frozen=True, slots=True)
class Between:
    """One sort of divot over several runs."""

    kind: Kind  # RECURRING or WANDERING
    of: Kind  # what it is each time
    benchmarks: tuple[str, ...]  # empty: all
    places: tuple[tuple[int, str], ...]  # run and place
    runs: int  # that were compared
    slowdown: float  # typical
    nodes: tuple[int, ...]
    cpus: tuple[int, ...]

    @property
    def summary(self) -> str:
        """What it means, in words."""
        what = ", ".join(self.benchmarks) or "all benchmarks"
        size = f"{(self.slowdown - 1) * 100:+.1f} %"
        seen = len({run for run, _ in self.places})
        if self.kind is Kind.RECURRING:
            return (
                f"{self.places[0][1]}: {what} {size} in {seen} of {self.runs} runs: always there, "
                "so hardware or set-up"
            )
        places = ", ".join(f"{place} (run {run})" for run, place in self.places[:4])
        more = f" and {len(self.places) - 4} more" if len(self.places) > 4 else ""
        names = [place for _, place in self.places]
        moves = "each time elsewhere" if len(set(names)) == len(names) else "in changing places"
        return (
            f"{what} {size} in {seen} of {self.runs} runs, {moves}: {places}{more}; "
            "it moves about, so pages, TLB or what else ran"
        )


def between_runs(runs: Sequence[tuple[int, Sequence[Finding]]]) -> tuple[Between, ...]:
    """Return what recurs and what wanders over runs (number and findings of each).

    A place recurs when two thirds of the runs (at least two) have a divot of the same
    kind there; the same kind in the same benchmark in other places of several runs
    wanders.
    """
    if len(runs) < 2:
        return ()
    by_place: dict[tuple[Kind, str, bool], list[tuple[int, Finding]]] = {}
    for number, findings in runs:
        for one in findings:
            # What all copies differ by is of no place that could come back.
            if one.kind in PLACED and not one.explained and "spread" not in dict(one.details):
                by_place.setdefault((one.kind, one.place, one.fast), []).append((number, one))
    recurring = []
    loose: dict[tuple[Kind, tuple[str, ...], bool], list[tuple[int, Finding]]] = {}
    for (kind, _, fast), members in by_place.items():
        count = len({number for number, _ in members})
        if count >= 2 and count >= _OFTEN * len(runs):
            recurring.append(_made(Kind.RECURRING, kind, members, len(runs)))
        else:
            for number, one in members:
                loose.setdefault((kind, one.benchmarks, fast), []).append((number, one))
    wandering = [
        _made(Kind.WANDERING, kind, members, len(runs))
        for (kind, _, _), members in loose.items()
        if len({number for number, _ in members}) >= 2
        and len({one.place for _, one in members}) >= 2
    ]
    return tuple(sorted(recurring, key=_rank)) + tuple(sorted(wandering, key=_rank))


def _rank(one: Between) -> tuple[float, str]:
    return (-abs(one.slowdown - 1), one.places[0][1])


def _made(kind: Kind, of: Kind, members: Sequence[tuple[int, Finding]], runs: int) -> Between:
    # None are all: those of a finding in all benchmarks are not fewer than another's.
    some = [set(one.benchmarks) for _, one in members if one.benchmarks]
    common = set.intersection(*some) or set.union(*some) if some else set()
    sizes = sorted(one.slowdown for _, one in members)
    return Between(
        kind=kind,
        of=of,
        benchmarks=tuple(sorted(common)),
        places=tuple((number, one.place) for number, one in members),
        runs=runs,
        slowdown=sizes[len(sizes) // 2],
        nodes=tuple(sorted({n for _, one in members for n in one.nodes})),
        cpus=tuple(sorted({u for _, one in members for u in one.cpus})),
    )
