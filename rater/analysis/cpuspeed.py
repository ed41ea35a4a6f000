"""How steady the CPUs of a run were by themselves, from the cost of the same work; pure.

A cost is the CPU time of one fixed piece of work, in seconds (see `rater.run.speedometer`). It is
an instrument of its own: what it says does not come from the times of the copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean, median

from rater.analysis.finding import Finding, Kind

# The work takes as long within this, else something slowed the CPU. By +-5 % it varies by itself;
# copies feel about half of what it says.
STEADY = 0.1
_LEAST_EXPLAINED = 0.05

# Benchmark, iteration, CPU: seconds, or (speeds) over what is usual of that CPU, as a share.
type Costs = Mapping[tuple[str, int, int], float]


def speeds_of(costs: Costs) -> dict[tuple[str, int, int], float]:
    """Return by how much more the work cost than is usual of its CPU in the run, as shares."""
    by_cpu: dict[int, list[float]] = {}
    for (_, _, cpu), cost_s in costs.items():
        by_cpu.setdefault(cpu, []).append(cost_s)
    usual = {cpu: median(values) for cpu, values in by_cpu.items()}
    return {where: cost_s / usual[where[2]] - 1 for where, cost_s in costs.items()}


def unsteady(costs: Costs) -> float:
    """Return the largest change of a CPU's speed, with its sign; 0.0 where none is known."""
    return max(speeds_of(costs).values(), key=abs, default=0.0)


def explained(one: Finding, costs: Costs, cpu_of: Mapping[int, int]) -> float | None:
    """Return what a finding would be of the CPUs' own speed alone, as a ratio of times.

    None where that is another direction, or smaller than what was found: then it is no
    explanation. `cpu_of`: the CPU of each copy.
    """
    cells: dict[str, dict[tuple[int, int], float]] = {}
    for (name, iteration, cpu), cost_s in costs.items():
        for copy, its_cpu in cpu_of.items():
            if its_cpu == cpu:
                cells.setdefault(name, {})[iteration, copy] = cost_s
    ratios = []
    for name in one.benchmarks or cells:
        inside, outside = _apart(one, name, cells.get(name, {}))
        if inside and outside:
            ratios.append(math.log(fmean(inside) / fmean(outside)))
    if not ratios:
        return None
    expected, found = fmean(ratios), math.log(one.slowdown)
    least = max(abs(found), math.log1p(_LEAST_EXPLAINED))
    return math.exp(expected) if expected * found > 0 and abs(expected) >= least else None


def _apart(
    one: Finding, name: str, cells: Mapping[tuple[int, int], float]
) -> tuple[list[float], list[float]]:
    """Return the costs of the cells that a finding is about, and of those it compares them with."""
    if one.kind is Kind.DRIFT:
        ends = {iteration for iteration, _ in cells}
        return _of(cells, [max(ends, default=0)]), _of(cells, [min(ends, default=0)])
    if one.singles:
        within = {(it.iteration, it.copy) for it in one.singles if it.benchmark == name}
        # One copy is compared with those beside it, of which some share its CPU.
        when = {iteration for iteration, _ in within}
        cells = {cell: cost_s for cell, cost_s in cells.items() if cell[0] in when}
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
