"""Whether slow hosts are slow again: which runs beside which, and what the pairs say; pure.

Suspect and quiet host run at the same time, so that what changes for the whole site changes for
both; each round has another quiet host, so that none of them is the yardstick alone. Pairs are
judged as those of a divot inside a machine (`divots.confirm.tell`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from rater.analysis.divots.confirm import Told, tell
from rater.analysis.fleet.model import FleetCompared, HostResult, SlowHost


@dataclass(frozen=True, slots=True)
class Suspect:
    """A slow host, and what is to be seen again."""

    host: str
    benchmarks: tuple[str, ...]  # in which it was slow; empty: all alike
    slowdown: float  # as it was found


@dataclass(frozen=True, slots=True)
class HostPair:
    """A suspect beside a quiet host of its kind, in one round."""

    suspect: Suspect
    quiet: str


def suspect_of(slow: SlowHost) -> Suspect:
    """Return what is to be seen again of a slow host."""
    if slow.slowdown > 1:
        return Suspect(slow.host, (), slow.slowdown)
    logs = [math.log(it.slowdown) for it in slow.benchmarks]
    return Suspect(slow.host, tuple(it.name for it in slow.benchmarks), math.exp(fmean(logs)))


def pairs_of(
    found: FleetCompared, chosen: Sequence[str], rounds: int
) -> tuple[tuple[HostPair, ...], ...]:
    """Return the pairs of each round: the quietest hosts of a kind, each round others.

    Where suspects are more than quiet hosts, several have the same one beside them.
    """
    made = []
    for turn in range(rounds):
        pairs = []
        for kind in found.kinds:
            suspects = [suspect_of(one) for one in kind.slow if one.host in chosen]
            quiet = kind.quiet
            if not quiet:
                continue
            step = len(suspects) if len(suspects) < len(quiet) else 1
            pairs += [
                HostPair(suspect, quiet[(place + turn * step) % len(quiet)])
                for place, suspect in enumerate(suspects)
            ]
        made.append(tuple(pairs))
    return tuple(made)


def pair_slowdown(pair: HostPair, results: Mapping[str, HostResult]) -> float | None:
    """Return time over time of a pair, None where one of them has no times.

    Of a host that was slow in all benchmarks the median over them, else the geometric mean over
    those in which it was slow.
    """
    here, there = results.get(pair.suspect.host), results.get(pair.quiet)
    if here is None or there is None:
        return None
    names = pair.suspect.benchmarks or tuple(sorted(here.copy_s.keys() & there.copy_s.keys()))
    logs = []
    for name in names:
        side = "bracket_s" if name in here.bracket_s and name in there.bracket_s else "copy_s"
        times = getattr(here, side).get(name), getattr(there, side).get(name)
        if all(times):
            logs.append(math.log(median(times[0]) / median(times[1])))
    if not logs:
        return None
    return math.exp(fmean(logs) if pair.suspect.benchmarks else median(logs))


def verdict(
    suspect: Suspect,
    rounds: Sequence[tuple[Sequence[HostPair], Mapping[str, HostResult]]],
) -> Told | None:
    """Return what the rounds say of a suspect; None: fewer than two pairs came to anything."""
    found = [
        size
        for pairs, results in rounds
        for pair in pairs
        if pair.suspect == suspect and (size := pair_slowdown(pair, results)) is not None
    ]
    return tell(found, suspect.slowdown) if len(found) > 1 else None
