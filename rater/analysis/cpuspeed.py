"""How steady the CPUs of a run were, from the CPU time that the same work took on them; pure.

A cost is the CPU time that the copies of one CPU needed for one benchmark in one iteration, and
others took there, in seconds. Processes that compete with a copy, and signals that stop it,
lengthen its elapsed time and not its CPU time: what makes the CPU itself slower (another guest of
the host, a busy neighbour on the core, the clock) lengthens both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, median

from rater.analysis.finding import Finding, Kind

# Within this it varies by itself, beyond it something made the CPU slower or faster.
STEADY = 0.04
_LEAST_EXPLAINED = 0.02
_SHARE_EXPLAINED = 0.5  # of a finding, on a scale of ratios: less is no explanation

# Benchmark, iteration, CPU: seconds, or (speeds) over what is usual of that CPU, as a share.
type Costs = Mapping[tuple[str, int, int], float]


def speeds_of(costs: Costs) -> dict[tuple[str, int, int], float]:
    """Return by how much more a benchmark cost than it usually does on its CPU, as shares."""
    found: dict[tuple[str, int], list[float]] = {}
    for (name, _, cpu), cost_s in costs.items():
        found.setdefault((name, cpu), []).append(cost_s)
    usual = {where: median(values) for where, values in found.items()}
    return {
        (name, iteration, cpu): cost_s / usual[name, cpu] - 1
        for (name, iteration, cpu), cost_s in costs.items()
        if usual[name, cpu] > 0
    }


def unsteady(costs: Costs) -> float:
    """Return the largest change of a CPU's speed, with its sign; 0.0 where none is known."""
    return max(speeds_of(costs).values(), key=abs, default=0.0)


def explained(one: Finding, costs: Costs, cpu_of: Mapping[int, int]) -> float | None:
    """Return what a finding would be of the CPUs' own speed alone, as a ratio of times.

    None where that is another direction, or less than half of what was found: then it is
    no explanation. `cpu_of`: the CPU of each copy.
    """
    cells: dict[str, dict[tuple[int, int], float]] = {}
    for (name, iteration, cpu), cost_s in costs.items():
        for copy, its_cpu in cpu_of.items():
            if its_cpu == cpu:
                cells.setdefault(name, {})[iteration, copy] = cost_s
    ratios = []
    for name in one.benchmarks or cells:
        inside, outside = _apart(one, name, cells.get(name, {}), cpu_of)
        if inside and outside and min(inside) > 0 < min(outside):
            ratios.append(math.log(fmean(inside) / fmean(outside)))
    if not ratios:
        return None
    expected, found = fmean(ratios), math.log(one.slowdown)
    least = max(_SHARE_EXPLAINED * abs(found), math.log1p(_LEAST_EXPLAINED))
    return math.exp(expected) if expected * found > 0 and abs(expected) >= least else None


def _apart(
    one: Finding, name: str, cells: Mapping[tuple[int, int], float], cpu_of: Mapping[int, int]
) -> tuple[list[float], list[float]]:
    """Return the costs of the cells that a finding is about, and of those it compares them with."""
    if one.kind is Kind.DRIFT:
        ends = {iteration for iteration, _ in cells}
        return _of(cells, [max(ends, default=0)]), _of(cells, [min(ends, default=0)])
    if one.singles:
        within = {(it.iteration, it.copy) for it in one.singles if it.benchmark == name}
        when, where = {it for it, _ in within}, {cpu_of[copy] for _, copy in within}
        beside = {cell: cost_s for cell, cost_s in cells.items() if cell[0] in when}
        # A CPU slows all of its copies: one of them alone is not slow for that.
        sharing = {cell: it for cell, it in beside.items() if cpu_of[cell[1]] in where}
        cells = sharing if len(sharing) > len(within) else beside
    else:
        within = {
            (iteration, copy)
            for iteration, copy in cells
            if (not one.copies or copy in one.copies)
            and (not one.iterations or iteration in one.iterations)
        }
    inside = [cost_s for cell, cost_s in cells.items() if cell in within]
    return inside, [cost_s for cell, cost_s in cells.items() if cell not in within]


def _of(cells: Mapping[tuple[int, int], float], iterations: Iterable[int]) -> list[float]:
    wanted = set(iterations)
    return [cost_s for (iteration, _), cost_s in cells.items() if iteration in wanted]
