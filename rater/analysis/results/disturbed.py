"""Whether a run was too disturbed to judge: what others cost, and what noise alone did; pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeGuard

from rater.analysis.results.account import TimeAccount, cpus_of_copies, time_accounts
from rater.analysis.results.foreign_processes import process_text
from rater.record.events import CopyEnded, ForeignProcess
from rater.record.stored import StoredRun, is_good
from rater.text.values import count, group_by_key, percent

if TYPE_CHECKING:
    from rater.analysis.results.cpu_use import CpuUse, RunCounters

# Shares of the score. Simulated: where others cost a tenth, one
# of 8 or 32 copies must be slower by about half to be found, 6 % without them; a CPU of two by 5 %,
# without them 2 %. Half as much costs half of that; twice as much hides everything.
OTHERS_COST = 0.10
# Of 380 healthy runs of the second generator (up to 512 copies, deviations up to 5 %, tails as
# heavy as Student's t with 3 degrees) noise cost one 14 %, of published and real ones 3.3 %.
NOISE_COST = 0.20
NOT_JUDGED = 3  # exit status of a gate that nothing can be said on
FEWEST_ROUNDS = 4  # of a star: fewer do not hold up, however far apart


def disturbance_reasons(
    others_cost: float | None,
    noise_cost: float | None,
    disturber: ForeignProcess | None = None,
) -> tuple[str, ...]:
    """Return why a run is too disturbed to judge; no reasons for costs that are not known.

    `disturber`: the process that took most of a CPU of copies, where that is known.
    """
    reasons = []
    if is_too_disturbed(others_cost):
        lost_text = f"{percent(others_cost, 0)} %"
        who = "" if disturber is None else f" ({process_text(disturber)})"
        reasons.append(
            f"other processes on these CPUs lowered the score by an estimated {lost_text}{who}"
        )
    if noise_cost is not None and noise_cost >= NOISE_COST:
        lost_text = f"{percent(noise_cost, 0)} %"
        reasons.append(f"times vary so much that noise alone lowered the score by {lost_text}")
    return tuple(reasons)


def is_too_disturbed(others_cost: float | None) -> TypeGuard[float]:
    """Tell whether others took so much of a run that no comparison may rest on it.

    Noise of its own copies is no reason: it is in the interval.
    """
    return others_cost is not None and others_cost >= OTHERS_COST


def mostly_disturbed(disturbed: Collection[bool], unit: str = "run") -> str | None:
    """Return why a point cannot be judged, by whether others took each of its runs; else None."""
    how_many = sum(disturbed)
    return (
        f"{how_many} of {count(len(disturbed), unit)} disturbed"
        if 2 * how_many > len(disturbed)
        else None
    )


# -- What others cost ------------------------------------------------------------------------------
#
# It is worked out as what a divot costs is: the score again, without the time that they took from
# each copy. A copy lost no more to them than it waited for a CPU, and no more than they worked on
# the CPUs where it was, in that phase; beside that the hypervisor's other guests took what they
# took. Heat is the machine's own and no work of others; ends that rater stamped late fail their
# copies.


def foreign_load_cost(run: StoredRun, counters: RunCounters) -> float | None:
    """Return the share of the score that others took, 0 to 1; None: not known.

    `counters` are those of the run. Where copies do not wait for each other (rotated order,
    steady mode), of all copies' time.
    """
    run = run.without_torn()
    accounts = time_accounts(run)
    counted = [
        copy for copy in run.copies if copy.counted and is_good(copy) and copy.elapsed_ns > 0
    ]
    load = _LoadOfOthers(run, counters)
    losses = [
        (copy, load.taken_s(copy, accounts[copy.phase, copy.copy, copy.step])) for copy in counted
    ]
    cost = _share_of_score_lost(run, [(copy, lost_s or 0.0) for copy, lost_s in losses])
    unknown = any(lost_s is None for _, lost_s in losses)
    return None if cost is None or (unknown and not is_too_disturbed(cost)) else cost


def shares_of_others(
    run: StoredRun, counters: RunCounters
) -> dict[tuple[int, int, int], float | None]:
    """Return of each copy run which share of the time that it wanted a CPU others took.

    rater itself is no other. None: not known.
    """
    accounts, load = time_accounts(run), _LoadOfOthers(run, counters)
    shares: dict[tuple[int, int, int], float | None] = {}
    for copy in run.copies:
        key = copy.phase, copy.copy, copy.step
        taken_s, ran_s = load.taken_s(copy, accounts[key]), accounts[key].ran_s
        is_known = taken_s is not None and ran_s
        shares[key] = (taken_s or 0.0) / ((taken_s or 0.0) + (ran_s or 0.0)) if is_known else None
    return shares


class _LoadOfOthers:
    """What others may have taken of copies, by where these were."""

    def __init__(self, run: StoredRun, counters: RunCounters) -> None:
        self._uses: dict[tuple[int, int], CpuUse] = {
            (use.phase, use.cpu): use for use in counters.cpus
        }
        self._where = cpus_of_copies(run)
        self._rater_s = {
            use.phase: use.counters.get("rater_cpu_ns", 0) / 1e9 for use in counters.machine
        }
        self._threads = {used.name: used.threads for used in run.benchmarks}
        self._pus = tuple(pu.cpu for pu in run.pus)
        self._ran_s: defaultdict[tuple[int, int], float] = defaultdict(float)
        self._load: Counter[tuple[int, tuple[int, ...] | None]] = Counter()  # threads by CPUs
        for copy in run.copies:
            self._ran_s[copy.phase, copy.copy] += copy.elapsed_s
            if not copy.step:
                cpus = self._where[copy.phase, copy.copy, copy.step]
                self._load[copy.phase, cpus] += self._threads.get(copy.benchmark, 1)

    def taken_s(self, copy: CopyEnded, account: TimeAccount) -> float | None:
        """Return how long others kept a copy from its CPU; None: not known."""
        allowed = self._where[copy.phase, copy.copy, copy.step]
        cpus = self._pus if allowed is None else allowed
        cpu_use = next((use for cpu in cpus if (use := self._uses.get((copy.phase, cpu)))), None)
        share = copy.elapsed_s / self._ran_s[copy.phase, copy.copy]
        foreign_s, ran_s, waited_s = None, account.ran_s, account.waited_s
        if cpu_use is not None and cpu_use.foreign is not None:
            foreign_s = max(
                0.0, cpu_use.foreign * cpu_use.elapsed_s - self._rater_s.get(copy.phase, 0.0)
            )
        if ran_s is None or (foreign_s is None and self._load[copy.phase, allowed] > len(cpus)):
            return None  # or copies may have waited for each other
        if waited_s is not None:  # of all threads: for the last one the others wait
            waited_s *= (copy.cpu_s or 0.0) / ran_s if ran_s else 1.0
        elif foreign_s is not None:
            waited_s = ran_s  # a scheduler gives each that wants a CPU as much
        else:
            return None
        lost_s = waited_s if foreign_s is None else min(waited_s, share * foreign_s)
        stolen_s = share * cpu_use.steal * cpu_use.elapsed_s if cpu_use else 0.0
        return min(lost_s + stolen_s, copy.elapsed_s - ran_s)


def _share_of_score_lost(run: StoredRun, losses: Sequence[tuple[CopyEnded, float]]) -> float | None:
    """Return the share of the score that copies lost with so many seconds each."""
    if run.head.order == "rotated" or run.head.mode == "steady":
        elapsed_s = sum(copy.elapsed_s for copy, _ in losses)
        return sum(lost_s for _, lost_s in losses) / elapsed_s if elapsed_s else None
    cells = group_by_key(
        ((copy.tune, copy.benchmark, copy.phase), (copy, lost)) for copy, lost in losses
    )
    brackets: defaultdict[object, list[tuple[float, float]]] = defaultdict(list)
    for (tune, name, _), cell in cells.items():
        brackets[tune, name].append((_bracket_s(cell, 0), _bracket_s(cell, 1)))
    ratios = [
        math.log(
            _representative([fair for _, fair in bracket])
            / _representative([whole for whole, _ in bracket])
        )
        for bracket in brackets.values()
    ]
    return max(0.0, 1 - math.exp(sum(ratios) / len(ratios))) if ratios else None


def _bracket_s(cell: Sequence[tuple[CopyEnded, float]], share: int) -> float:
    """Return first start to last end of copies, each with `share` of what it lost taken off."""
    begin_ns = min(copy.start_ns or 0 for copy, _ in cell)
    ends = (
        (copy.start_ns or 0) - begin_ns + copy.elapsed_ns - share * lost_s * 1e9
        for copy, lost_s in cell
    )
    return max(ends) / 1e9


def _representative(brackets_s: Sequence[float]) -> float:
    """Return the bracket that stands for a benchmark: of three the median, of two the slower."""
    return sorted(brackets_s)[len(brackets_s) // 2]
