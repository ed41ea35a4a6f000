"""What several runs have in common: a fault in each, one that moves, one of a single run; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rater.analysis.divots.data import words
from rater.analysis.divots.data.finding import Kind

_MOST_NAMED = 4  # runs with a size each; of more a range is told


class There(StrEnum):
    """Whether a run has a fault that was found in another."""

    YES = "yes"
    SMALLER = "smaller"  # something is there, much smaller
    NO = "no"
    OPEN = "too noisy to tell"
    NOT_RUN = "not run"  # no copies there, or none of the benchmarks


@dataclass(frozen=True, slots=True)
class Look:
    """What one run has of a fault: its size there by that run's own times."""

    run: int
    there: There
    place: str
    benchmarks: tuple[str, ...]  # empty: all
    slowdown: float | None  # None: there is nothing to measure it by


@dataclass(frozen=True, slots=True)
class Between:
    """One sort of divot over several runs."""

    kind: Kind  # RECURRING, WANDERING or ONCE
    of: Kind  # what it is each time
    benchmarks: tuple[str, ...]  # empty: all
    looks: tuple[Look, ...]  # one a run
    slowdown: float  # where it is: the middle one
    copies: tuple[int, ...]
    nodes: tuple[int, ...]
    cpus: tuple[int, ...]

    @property
    def places(self) -> tuple[Look, ...]:
        """The runs that have it."""
        return tuple(one for one in self.looks if one.there is There.YES)

    @property
    def summary(self) -> str:
        """What it means, in words: place, benchmarks, size in each run, what follows."""
        what = ", ".join(self.benchmarks) or "all benchmarks"
        seen, place = self.places, self.places[0].place
        many = f"in {len(seen)} of {len(self.looks)} runs"
        others = "".join(f"; {_without(one)}" for one in self.looks if one.there is not There.YES)
        if self.kind is Kind.ONCE:
            return f"{place}: {what} {_size(seen[0])} in run {seen[0].run} only{others}"
        if self.kind is Kind.RECURRING:
            always = len(seen) == len(self.looks)
            follows = "; in every run; probably hardware or set-up" if always else others
            wider = _wider(self, seen)
            return f"{place}: {what} {_sizes(seen)} {many}{_by_run(seen)}{wider}{follows}"
        names = [one.place for one in seen]
        if len(set(names)) == 1:
            each = ", ".join(
                f"{', '.join(one.benchmarks) or 'all benchmarks'} {_size(one)} (run {one.run})"
                for one in seen[:_MOST_NAMED]
            )
            return f"{place}: in other benchmarks each time, {each}{_more(seen)}"
        moves = "each time elsewhere" if len(set(names)) == len(names) else "in changing places"
        each = ", ".join(f"{one.place} {_size(one)} (run {one.run})" for one in seen[:_MOST_NAMED])
        return (
            f"{what} {_sizes(seen)} {many}, {moves}: {each}{_more(seen)}; it moves about, so "
            "pages, TLB or what else ran"
        )


def _size(one: Look) -> str:
    return words.per_cent(one.slowdown or 1.0)


def _sizes(seen: Sequence[Look]) -> str:
    return words.sizes([one.slowdown or 1.0 for one in seen])


def _by_run(seen: Sequence[Look]) -> str:
    if len(seen) > _MOST_NAMED:
        return ""
    return f" ({', '.join(f'run {one.run} {_size(one)}' for one in seen)})"


def _more(seen: Sequence[Look]) -> str:
    return f" and {len(seen) - _MOST_NAMED} more" if len(seen) > _MOST_NAMED else ""


def _wider(one: Between, seen: Sequence[Look]) -> str:
    """Say which runs have it in other benchmarks as well."""
    wide = [str(it.run) for it in seen if it.benchmarks != one.benchmarks]
    return f", in run {', '.join(wide)} in more benchmarks" if wide else ""


def _without(one: Look) -> str:
    told = {
        There.NO: f"not in run {one.run}",
        There.SMALLER: f"smaller in run {one.run}",
        There.OPEN: f"run {one.run} is too noisy to tell",
    }
    if one.there not in told:
        return f"run {one.run} had none of it to measure"
    return told[one.there] + (f" ({_size(one)})" if one.slowdown is not None else "")
