"""How steady the CPUs of a run were, from the CPU time that the same work took on them; pure.

A cost is the CPU time that the copies of one CPU needed for one benchmark in one iteration, and
others took there, in seconds. Processes that compete with a copy, and signals that stop it,
lengthen its elapsed time and not its CPU time: what makes the CPU itself slower (another guest of
the host, a busy neighbour on the core, the clock) lengthens both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from statistics import fmean, median, median_high, median_low

from rater.analysis.divots.data.finding import Finding, Kind
from rater.groups import grouped

# Within this it varies by itself, beyond it something made the CPU slower or faster.
STEADY = 0.04
_LEAST_EXPLAINED = 0.02
_SHARE_EXPLAINED = 0.5  # of a finding, on a scale of ratios: less is no explanation

# Benchmark, iteration, CPU: seconds, or (speeds) over what is usual of that CPU, as a share.
type Costs = Mapping[tuple[str, int, int], float]


def speeds_of(costs: Costs) -> dict[tuple[str, int, int], float]:
    """Return by how much more a benchmark cost than it usually does on its CPU, as shares."""
    found = grouped(((name, cpu), cost_s) for (name, _, cpu), cost_s in costs.items())
    usual = {where: median(values) for where, values in found.items()}
    return {
        (name, iteration, cpu): cost_s / usual[name, cpu] - 1
        for (name, iteration, cpu), cost_s in costs.items()
        if usual[name, cpu] > 0
    }


def unsteady(costs: Costs) -> tuple[float, int | None]:
    """Return the largest change of a CPU's speed, with its sign, and the CPU; None: not known."""
    found = ((change, cpu) for (_, _, cpu), change in speeds_of(costs).items())
    return max(found, key=lambda it: abs(it[0]), default=(0.0, None))


def explained(one: Finding, costs: Costs, cpu_of: Mapping[int, int]) -> float | None:
    """Return what a finding would be of the CPUs' own speed alone, as a ratio of times.

    The median over its benchmarks (of copies: over benchmarks and iterations), each against
    the nearest of what it is compared with: one dear cell explains nothing else. None
    where that is another direction, or less than half of what was found, or where the
    finding is about some copies of a CPU only: a CPU slows all of its copies. `cpu_of`: the
    CPU of each copy.
    """
    cpus = {cpu_of[copy] for copy in one.copies if copy in cpu_of} or set(cpu_of.values())
    if one.copies and {copy for copy, cpu in cpu_of.items() if cpu in cpus} != set(one.copies):
        return None
    singly = tuple(it.benchmark for it in one.singles)
    names = one.benchmarks or singly or tuple({name for name, _, _ in costs})
    ratios = []
    for name in names:
        cells = {(k, cpu): cost_s for (it, k, cpu), cost_s in costs.items() if it == name}
        if cells and min(cells.values()) > 0:
            ratios += list(_ratios(one, cpus, cells))
    if not ratios:
        return None
    # Of two in the middle the one that explains less.
    expected = min(median_low(ratios), median_high(ratios), key=abs)
    found = math.log(one.slowdown)
    least = max(_SHARE_EXPLAINED * abs(found), math.log1p(_LEAST_EXPLAINED))
    return math.exp(expected) if expected * found > 0 and abs(expected) >= least else None


def _ratios(
    one: Finding, cpus: Set[int], cells: Mapping[tuple[int, int], float]
) -> Iterator[float]:
    """Yield logarithms of what a finding's cells of one benchmark cost over the others."""
    times = sorted({k for k, _ in cells})
    own = set(one.iterations) or {it.iteration for it in one.singles} or set(times)
    by_time = {k: fmean(cells[k, cpu] for cpu in cpus if (k, cpu) in cells) for k in times}
    if one.kind is Kind.DRIFT:
        yield math.log(by_time[times[-1]] / by_time[times[0]])
    elif one.kind is Kind.SLOW_ITERATION:
        inside = [cost_s for k, cost_s in by_time.items() if k in own]
        outside = [cost_s for k, cost_s in by_time.items() if k not in own]
        if inside and outside:
            yield _over_nearest(fmean(inside), outside)
    else:
        for k in sorted(own & set(times)):
            outside = [cost_s for (it, cpu), cost_s in cells.items() if it == k and cpu not in cpus]
            if outside:
                yield _over_nearest(by_time[k], outside)


def _over_nearest(cost_s: float, others: Sequence[float]) -> float:
    return min((math.log(cost_s / other) for other in others), key=abs)
