"""Whether a run was too disturbed to judge: what others cost, and what noise alone did; pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rater.record.stored import StoredCopy, StoredRun, is_good
from rater.text.values import group_by_key, percent

if TYPE_CHECKING:
    from rater.analysis.results.cpu_use import CpuUse, RunCounters

# What others cost is worked out as what a divot costs is: the score again, without the time
# that they took from each copy. A copy lost no more to them than it was without a CPU for, and
# no more than they, and the hypervisor's other guests, worked on its CPU in that phase. Nor did it
# lose what it did not want: a scheduler gives each that waits for a CPU the same, so a copy that
# sleeps or waits for a disk got as much as any of those it had to share with. Heat is the machine's
# own and no work of others; ends that rater stamped late fail their copies.

# Shares of the score. Simulated: where others cost a tenth, one
# of 8 or 32 copies must be slower by about half to be found, 6 % without them; a CPU of two by 5 %,
# without them 2 %. Half as much costs half of that; twice as much hides everything.
OTHERS_COST = 0.10
# Of 380 healthy runs of the second generator (up to 512 copies, deviations up to 5 %, tails as
# heavy as Student's t with 3 degrees) noise cost one 14 %, of published and real ones 3.3 %.
NOISE_COST = 0.20


def disturbance_reasons(others_cost: float | None, noise_cost: float | None) -> tuple[str, ...]:
    """Return why a run is too disturbed to judge, nothing where it is not; None: not known."""
    found = []
    if others_cost is not None and others_cost >= OTHERS_COST:
        lost = f"{percent(others_cost, 0)} %"
        found.append(f"other work on these CPUs lowered the score by {lost}")
    if noise_cost is not None and noise_cost >= NOISE_COST:
        lost = f"{percent(noise_cost, 0)} %"
        found.append(f"times vary so much that noise alone lowered the score by {lost}")
    return tuple(found)


class _Costs(Protocol):
    @property
    def others_cost(self) -> float | None: ...
    @property
    def noise_cost(self) -> float | None: ...


def disturbed_members(of: _Costs) -> dict[str, Any]:
    """Return why a run was too disturbed to judge (empty: it was not), and what that rests on."""
    costs = {"others_cost": of.others_cost, "noise_cost": of.noise_cost}
    why = disturbance_reasons(of.others_cost, of.noise_cost)
    return {"disturbed": [*why]} | {k: None if v is None else round(v, 5) for k, v in costs.items()}


def foreign_load_cost(run: StoredRun, counters: RunCounters) -> float | None:
    """Return the share of the score that others took, 0 to 1; None where it was not recorded.

    `counters` are those of the run. Where copies do not wait for each other (rotated order,
    steady mode), of all copies' time.
    """
    if not counters.cpus:
        return None
    run = run.without_torn()
    uses: dict[tuple[int, int | None], CpuUse] = {(it.phase, it.cpu): it for it in counters.cpus}
    # Copies that are not bound share all CPUs, and so the work of others: one stands for all.
    uses |= {(it.phase, None): it for it in counters.cpus}
    own_s = {it.phase: dict(it.values).get("rater_cpu_ns", 0) / 1e9 for it in counters.machine}
    threads = {used.name: used.threads for used in run.benchmarks}
    sharers = _sharers(run)
    ran_s: defaultdict[tuple[int, int], float] = defaultdict(float)  # all of a copy's in a phase
    for it in run.copies:
        ran_s[it.phase, it.copy] += it.elapsed_s
    counted = [it for it in run.copies if it.counted and is_good(it) and it.elapsed_ns > 0]
    taken = []
    for it in counted:
        share = it.elapsed_s / ran_s[it.phase, it.copy]
        used = uses.get((it.phase, it.cpu))
        used_s = _used_s(it, threads.get(it.benchmark, 1))
        lost_s = 0.0
        if used:
            foreign_s = share * _foreign_s(used, own_s.get(it.phase, 0.0))
            wanted_s = math.inf if it.cpu_s is None else sharers * used_s
            lost_s = min(foreign_s, wanted_s) + share * used.steal * used.elapsed_s
        taken.append(min(lost_s, it.elapsed_s - used_s))
    if run.head.order == "rotated" or run.head.mode == "steady":
        elapsed_s = sum(it.elapsed_s for it in counted)
        return sum(taken) / elapsed_s if elapsed_s else None
    cells = group_by_key(
        ((it.tune, it.benchmark, it.phase), (it, lost_s))
        for it, lost_s in zip(counted, taken, strict=True)
    )
    brackets: defaultdict[object, list[tuple[float, float]]] = defaultdict(list)
    for (tune, name, _), cell in cells.items():
        brackets[tune, name].append((_bracket_s(cell, 0), _bracket_s(cell, 1)))
    ratios = [
        math.log(_standing([fair for _, fair in it]) / _standing([whole for whole, _ in it]))
        for it in brackets.values()
    ]
    return max(0.0, 1 - math.exp(sum(ratios) / len(ratios))) if ratios else None


def _sharers(run: StoredRun) -> float:
    """Return with how many others a copy may have shared its CPU: the load before, one at least."""
    try:
        return max(1.0, float(dict(run.settings).get("load.1min") or 1))
    except ValueError:
        return 1.0


def _foreign_s(use: CpuUse, rater_s: float) -> float:
    """Return how long others worked on a CPU in a phase; rater's own threads may all have."""
    return max(0.0, (use.foreign or 0.0) * use.elapsed_s - rater_s)


def _used_s(copy: StoredCopy, threads: int) -> float:
    """Return how long a copy had a CPU: some of its time it must have had one."""
    used_s = 0.0 if copy.cpu_s is None else copy.cpu_s / threads
    return min(max(used_s, 1e-6 * copy.elapsed_s), copy.elapsed_s)


def _bracket_s(cell: Sequence[tuple[StoredCopy, float]], share: int) -> float:
    """Return first start to last end of copies, each with `share` of what it lost taken off."""
    begin_ns = min(it.start_ns or 0 for it, _ in cell)
    ends = ((it.start_ns or 0) - begin_ns + it.elapsed_ns - share * s * 1e9 for it, s in cell)
    return max(ends) / 1e9


def _standing(brackets_s: Sequence[float]) -> float:
    """Return the one that stands for a benchmark: of three the median, of two the slower."""
    return sorted(brackets_s)[len(brackets_s) // 2]
