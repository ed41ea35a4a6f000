"""The gate of a fleet: a host so slow is found, excluded, or hidden by noise; pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rater.analysis.divots.gate import ANY, GateLimit
from rater.analysis.divots.model.formatting import format_slowdown
from rater.analysis.results.gates import (
    EXCLUDED,
    GateAnswer,
    GateVerdict,
    hidden_text,
    more_text,
    repeats_needed,
)
from rater.fleet.backends.node_names import compress
from rater.fleet.hosts import FleetComparison, KindComparison, PossibleSlowdown, SlowHost
from rater.fleet.show import MissingHost
from rater.fleet.slowness import ONE, least_effect
from rater.text.values import percent, truncate_list

SLOW_HOST: Final = "slow-host"  # in all benchmarks, or in one of them
SLOW_THROUGHOUT: Final = "slow-throughout"  # in all benchmarks
GATE_KINDS: Final = (SLOW_HOST, SLOW_THROUGHOUT)
_ALL, _ONE = "a host in all benchmarks", "a host in one benchmark"
_MOST_NAMED = 4


def judge_fleet(
    comparison: FleetComparison,
    missing: Sequence[MissingHost],
    all_failed: Collection[str],
    limits: Sequence[GateLimit],
) -> Iterator[GateVerdict]:
    """Yield what can be said of a fleet, limit by limit.

    `all_failed`: hosts whose every copy failed. Such a host is broken, whatever else is known.
    """
    if all_failed:
        reason = f"every copy failed on {truncate_list(sorted(all_failed), _MOST_NAMED)}"
        yield GateVerdict(answer=GateAnswer.FOUND, reason=reason)
    for host in missing:
        if host.host not in all_failed:
            reason = f"{host.host}: {host.reason or host.state}"
            yield GateVerdict(answer=GateAnswer.OPEN, reason=reason)
    lacking = {host.host for host in missing} | set(all_failed)
    for name in comparison.without_times:
        if name not in lacking:
            reason = f"{name}: no benchmark ended well"
            yield GateVerdict(answer=GateAnswer.OPEN, reason=reason)
    for limit in limits:
        for kind in comparison.kinds:
            yield from _judge_kind(kind, limit)


def _judge_kind(kind: KindComparison, limit: GateLimit) -> Iterator[GateVerdict]:
    slow = [*kind.slow, *(kind.beside or ())]
    slow_enough = [host for host in slow if _size(host, limit) - 1 >= max(limit.least, 1e-9)]
    for host in slow_enough:
        asked = SLOW_HOST if limit.kind == ANY else limit.kind
        reason = f"{asked}: {host.host} {format_slowdown(_size(host, limit))}"
        yield GateVerdict(answer=GateAnswer.FOUND, reason=reason)
    if kind.why_not:
        if kind.beside is None:
            reason = f"{compress(kind.hosts)}: {kind.why_not}"
            yield GateVerdict(answer=GateAnswer.OPEN, reason=reason)
        return
    places = {_ALL: kind.visible_whole}
    if limit.kind != SLOW_THROUGHOUT:
        places[_ONE] = kind.visible_one
    named = {host.host for host in slow_enough}
    for place, visible in places.items():
        verdict = _judge_visible(kind, limit, place, visible)
        yield verdict
        if verdict.answer is GateAnswer.OPEN:
            continue  # of each host the same could be said
        for possible in kind.possible:
            if possible.host not in named and (possible.benchmark is None) == (place == _ALL):
                yield _judge_possible(possible, limit)


def _size(host: SlowHost, limit: GateLimit) -> float:
    """Return a slow host's time over that of the others, in what a limit asks about."""
    return host.slowdown if limit.kind == SLOW_THROUGHOUT else host.worst


def _judge_visible(
    kind: KindComparison, limit: GateLimit, place: str, visible: float | None
) -> GateVerdict:
    """Return whether these hosts would show a slow one."""
    if visible is not None and visible <= limit.asked:
        return EXCLUDED
    way_out = _way_out(kind, limit, place, visible)
    if place == _ONE and kind.visible_whole is not None and kind.visible_whole <= limit.asked:
        throughout = f"{SLOW_THROUGHOUT}:{percent(limit.asked)}%"
        way_out = "; ".join(filter(None, (way_out, f"{throughout} asks of all benchmarks")))
    hidden = hidden_text(place, limit=limit.asked, visible=visible, way_out=way_out)
    return GateVerdict(answer=GateAnswer.OPEN, reason=hidden)


def _way_out(kind: KindComparison, limit: GateLimit, place: str, visible: float | None) -> str:
    """Return what would show a host so slow, in words; empty where nothing is known to."""
    benchmarks = len(next(iter(kind.slowdowns.values()), {}))
    least = math.expm1(ONE if place == _ONE else least_effect(benchmarks))
    if limit.asked < least:
        return f"less than {percent(least)} % is never called slow"
    needed = None if visible is None else repeats_needed(kind.iterations, visible, limit.asked)
    return more_text(kind.iterations, needed, "iteration")


def _judge_possible(possible: PossibleSlowdown, limit: GateLimit) -> GateVerdict:
    """Return whether what was measured of a host excludes that it is so slow."""
    if possible.most - 1 < limit.asked:
        return EXCLUDED
    where = f"{possible.benchmark} " if possible.benchmark else ""
    seen = f"{where}{format_slowdown(possible.slowdown)}, {format_slowdown(possible.most)} possible"
    asked = f"{percent(limit.asked)} % was asked"
    return GateVerdict(answer=GateAnswer.OPEN, reason=f"{possible.host}: {seen}, {asked}")
