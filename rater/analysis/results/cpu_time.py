"""The one rule for when CPU time may judge in place of elapsed time, with its reason; pure.

A program that is bound by CPU and has each of its CPUs for itself needs the same CPU time, whoever
else runs there. So CPU time stands for what its time would be without others. It does not
where copies of the run share a CPU (each one's waiting is for its own brothers, and throughput is
lost with it), where a copy sleeps (what changed may be in its sleep), where two threads of a core
are busy (what one gets depends on what the other does), and where a copy has several threads (they
may wait for each other by working).

Everything that judges asks `CpuTimeRule`: comparisons, sweeps, curves, gates, the report and the
search for divots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

from msgspec import Struct

from rater.analysis.results.account import (
    TimeAccount,
    cpus_of_copies,
    cpus_where_seen,
    delay_since_start_ns,
    exclusive_masks,
    time_accounts,
)
from rater.analysis.results.cpu_use import CpuUse, RunCounters, has_all_cpu_time, run_counters
from rater.record.events import CopyEnded
from rater.record.run import MachinePU
from rater.record.stored import StoredRun, kept_for_last
from rater.text.values import copies_text, count, group_by_key, percent

type BenchmarkKey = tuple[str, str | None]  # benchmark and tune

_MOST_ASLEEP = 0.02  # of a copy's time
# Of short copies more: to begin, to end and to be seen takes so long where others have the CPUs.
_START_AND_END_S, _MOST_OF_SHORT = 0.010, 0.05
_MOST_THREADS = 1.05  # threads of a copy at work at a time, on average; above it, it has several
_IDLE = 0.05  # of its time, a thread beside a copy's is nearly so

NOT_TOGETHER = "its copies do not all start together"
WAITING_UNKNOWN = "it is not known how long copies waited for a CPU"


class CpuTimes(Struct, frozen=True, kw_only=True):
    """CPU times of one benchmark in one run, which may stand for its times."""

    longest_s: (
        float  # of the slowest copy in each phase; of three phases the median, of two the slower
    )
    others_took: float  # share of the copies' time that they waited for others, on average


class CpuTimeRule:
    """Says of each benchmark of a run whether CPU time may judge it, and else why not.

    Raises nothing: what is not known is a reason.
    """

    def __init__(self, run: StoredRun, counters: RunCounters | None = None) -> None:
        """Read what is needed of a run; `counters`: those of the run, where they are known."""
        run = run.without_torn()
        head = run.head
        self._tune_of_run = head.tune
        self._reason_of_run = (
            NOT_TOGETHER
            if head.order == "rotated" or head.mode == "steady" or head.stagger_ms > 0
            else None
        )
        self._accounts = time_accounts(run)
        uses = (run_counters(run) if counters is None else counters).cpus
        complete = {bracket.phase for bracket in run.brackets if bracket.complete}
        self._copies = group_by_key(
            ((copy.benchmark, copy.tune or head.tune), copy)
            for copy in run.copies
            if copy.counted and copy.phase in complete and copy.elapsed_ns > 0
        )
        self._threads = {used.name: used.threads for used in run.benchmarks}
        self._sharing = _sharing_by_phase(run, uses)

    def why_not(self, key: BenchmarkKey) -> str | None:
        """Return why CPU time may not stand for a benchmark's time, in words, or None."""
        if self._reason_of_run is not None:
            return self._reason_of_run
        copies = self._copies_of(key)
        accounts = [self._accounts[copy.phase, copy.copy, copy.step] for copy in copies]
        if not accounts or any(account.waited_s is None for account in accounts):
            return WAITING_UNKNOWN
        reasons = (self._sharing.get(copy.phase) for copy in copies)
        shared = next(filter(None, reasons), None)
        return shared or self._why_not_of_program(key[0], copies, accounts)

    def _copies_of(self, key: BenchmarkKey) -> Sequence[CopyEnded]:
        benchmark, tune = key
        return self._copies.get((benchmark, tune or self._tune_of_run), ())

    def _why_not_of_program(
        self, benchmark: str, copies: Sequence[CopyEnded], accounts: Sequence[TimeAccount]
    ) -> str | None:
        at_work = max(
            ((copy.cpu_ns or 0) + (delay_since_start_ns(copy, 1) or 0)) / copy.elapsed_ns
            for copy in copies
        )
        if self._threads.get(benchmark, 1) > 1 or at_work > _MOST_THREADS:
            return "its copies have several threads"
        if not all(map(has_all_cpu_time, copies)):
            return "processes that copies left behind may have used CPU time"
        asleep = [
            ((account.slept_s or 0) + (account.stopped_s or 0), account.elapsed_s)
            for account in accounts
        ]
        if any(slept_s > _most_asleep_s(elapsed_s) for slept_s, elapsed_s in asleep):
            most = max(slept_s / elapsed_s for slept_s, elapsed_s in asleep)
            return f"copies slept {percent(most, 0)} % of the time"
        return None

    def times(self, key: BenchmarkKey) -> CpuTimes | None:
        """Return the CPU times that stand for a benchmark's; None: see `why_not`."""
        if self.why_not(key) is not None:
            return None
        copies = self._copies_of(key)
        by_phase = group_by_key((copy.phase, copy.cpu_ns or 0) for copy in copies)
        longest_s = sorted(max(times_ns) / 1e9 for times_ns in by_phase.values())
        accounts = [self._accounts[copy.phase, copy.copy, copy.step] for copy in copies]
        waits = [(account.waited_s or 0.0) / account.elapsed_s for account in accounts]
        return CpuTimes(
            longest_s=longest_s[len(longest_s) // 2], others_took=sum(waits) / len(waits)
        )


def _most_asleep_s(elapsed_s: float) -> float:
    """Return how long a copy of so many seconds may have slept."""
    return max(_MOST_ASLEEP * elapsed_s, min(_START_AND_END_S, _MOST_OF_SHORT * elapsed_s))


# -- Whether each copy has its CPUs for itself -----------------------------------------------------


def _sharing_by_phase(run: StoredRun, uses: Sequence[CpuUse]) -> dict[int, str]:
    """Return the phases in which a copy did not have its CPUs for itself, each with the reason."""
    masks, seen = cpus_of_copies(run), cpus_where_seen(run)
    siblings = _siblings(run.pus)
    uses_by_phase = group_by_key((use.phase, use) for use in uses)
    sharing: dict[int, str] = {}
    for phase, copies in group_by_key((copy.phase, copy) for copy in run.copies).items():
        keys = {copy.copy: (copy.phase, copy.copy, copy.step) for copy in copies}.values()
        masks_of_phase = [masks[key] for key in keys]
        own_cpus = _cpus_of_their_own(masks_of_phase, [seen[key] for key in keys])
        reason = _why_shared(masks_of_phase, own_cpus, siblings.keys()) or _why_beside_a_thread(
            own_cpus, siblings, uses_by_phase.get(phase, ())
        )
        if reason is not None:
            sharing[phase] = reason
    return sharing


@kept_for_last
def _siblings(pus: tuple[MachinePU, ...]) -> dict[int, set[int]]:
    """Return the other threads of the core of each CPU of a machine."""
    cores = group_by_key((pu.core, pu.cpu) for pu in pus)
    return {cpu: set(core_cpus) - {cpu} for core_cpus in cores.values() for cpu in core_cpus}


def _why_shared(
    masks: Sequence[tuple[int, ...] | None], own_cpus: Sequence[frozenset[int]], online: Set[int]
) -> str | None:
    """Return why copies of a phase do not have their CPUs for themselves, or None.

    `masks`: the CPUs that each may use, None for any; `own_cpus`: see `_cpus_of_their_own`.
    """
    cpus = {*online}.union(*(mask for mask in masks if mask is not None))
    if cpus and len(masks) > len(cpus):
        return f"{copies_text(len(masks))} share {count(len(cpus), 'CPU')}"
    if len(own_cpus) > 1 and not all(own_cpus):
        return "it is not known on which CPUs its copies ran"
    if sum(map(len, own_cpus)) == len(frozenset().union(*own_cpus)):
        return None
    by_cpu = Counter(cpu for cpus_of_copy in own_cpus for cpu in cpus_of_copy)
    shared_cpu = min(cpu for cpu, how_many in by_cpu.items() if how_many > 1)
    return f"copies shared CPU {shared_cpu}"


def _cpus_of_their_own(
    masks: Sequence[tuple[int, ...] | None], seen: Sequence[frozenset[int]]
) -> list[frozenset[int]]:
    """Return the CPUs that each copy had: its mask where no other may use it, else where it ran."""
    exclusive = exclusive_masks(tuple(masks))
    return [
        frozenset(mask) if mask is not None and mask in exclusive else cpus_seen
        for mask, cpus_seen in zip(masks, seen, strict=True)
    ]


def _why_beside_a_thread(
    own_cpus: Iterable[frozenset[int]], siblings: Mapping[int, set[int]], uses: Sequence[CpuUse]
) -> str | None:
    """Return why a copy may have run beside another thread of its core, or None.

    A copy that has a whole core uses one of its threads at a time, and only others use the rest.
    """
    use_by_cpu = {use.cpu: use for use in uses}
    for cpus in own_cpus:
        beside = {sibling for cpu in cpus for sibling in siblings.get(cpu, ())}
        if any(_is_busy(use_by_cpu.get(sibling), of_copy=sibling in cpus) for sibling in beside):
            return "a CPU was shared with another thread of its core"
    return None


def _is_busy(cpu_use: CpuUse | None, *, of_copy: bool) -> bool:
    """Tell whether others may have worked on a CPU; `of_copy`: copies may work there."""
    if cpu_use is None:
        return True
    if of_copy:
        return cpu_use.foreign is None or cpu_use.foreign > _IDLE
    return cpu_use.busy > _IDLE
