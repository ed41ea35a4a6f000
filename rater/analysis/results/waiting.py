"""For whom copies waited for a CPU: for the run's own copies, or for others; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from rater.analysis.results.account import (
    TimeAccount,
    cpus_of_copies,
    exclusive_masks,
    time_accounts,
)
from rater.analysis.results.cpu_use import CpuUse
from rater.record.events import CopyEnded
from rater.record.stored import StoredRun
from rater.text.values import group_by_key

type CopyKey = tuple[int, int, int]  # phase, copy, step


class WaitSplit(Struct, frozen=True, kw_only=True):
    """How long a copy was runnable without a CPU, in seconds of a mean thread, and for whom.

    None: not known. The two parts add up to the account's `waited_s`.
    """

    for_own_s: float | None = None  # the CPU was another copy's of the same run
    for_others_s: float | None = None  # the CPU was another process's


def split_waits(run: StoredRun, uses: Sequence[CpuUse]) -> dict[CopyKey, WaitSplit]:
    """Return for whom each copy run waited, by phase, copy and step.

    `uses`: what CPUs did in each phase (`run_counters(run).cpus`). A copy whose CPUs no other copy
    of its phase may use waited for others. Where copies share CPUs, a fair scheduler gives each
    that wants a CPU as much: of the waiting W, others have the part F / (F + O). F is the CPU
    time of others on these CPUs, O that of the other copies on them, both while the copy ran.
    """
    accounts, masks = time_accounts(run), cpus_of_copies(run)
    uses_by_phase = group_by_key((use.phase, use) for use in uses)
    copies_by_phase = group_by_key((copy.phase, copy) for copy in run.copies if copy.elapsed_ns > 0)
    splits: dict[CopyKey, WaitSplit] = {}
    for phase, copies in copies_by_phase.items():
        neighbours = _Neighbours(copies, masks, uses_by_phase.get(phase, ()))
        for copy in copies:
            key = (phase, copy.copy, copy.step)
            cpu_use = neighbours.use_of(masks[key])
            own_ns = neighbours.cpu_ns_beside(copy, masks[key], cpu_use)
            splits[key] = _split(accounts[key], copy, cpu_use, own_ns)
    return splits


class _Neighbours:
    """The copies of one phase, by the CPUs that they may use."""

    def __init__(
        self,
        copies: Sequence[CopyEnded],
        masks: Mapping[tuple[int, ...], tuple[int, ...] | None],
        uses: Sequence[CpuUse],
    ) -> None:
        self._use_by_cpu = {use.cpu: use for use in uses}
        self._first_use = uses[0] if uses else None
        self._rows_by_copy = group_by_key((copy.copy, copy) for copy in copies)
        self._mask_by_copy = {copy.copy: masks[copy.phase, copy.copy, copy.step] for copy in copies}
        self._exclusive = exclusive_masks((*self._mask_by_copy.values(),))

    def use_of(self, mask: tuple[int, ...] | None) -> CpuUse | None:
        """Return what the CPUs of a mask did; the same copies may use all of them."""
        if mask is None:
            return self._first_use
        return next((self._use_by_cpu[cpu] for cpu in mask if cpu in self._use_by_cpu), None)

    def cpu_ns_beside(
        self, copy: CopyEnded, mask: tuple[int, ...] | None, cpu_use: CpuUse | None
    ) -> float | None:
        """Return the CPU time that other copies used on a copy's CPUs while the copy ran.

        CPU time spreads evenly over the time of each of these copies. None: not known.
        """
        if mask == self._mask_by_copy[copy.copy] and mask in self._exclusive:
            return 0.0
        if cpu_use is None:
            return None
        neighbours = [
            row
            for number in cpu_use.copies
            for row in self._rows_by_copy.get(number, ())
            if number != copy.copy
        ]
        if any(row.cpu_ns is None for row in neighbours):
            return None
        return sum(
            (row.cpu_ns or 0) * min(1.0, copy.elapsed_ns / row.elapsed_ns) for row in neighbours
        )


def _split(
    account: TimeAccount, copy: CopyEnded, cpu_use: CpuUse | None, own_ns: float | None
) -> WaitSplit:
    """Return the split of one copy run; `own_ns`: CPU time of copies that share its CPUs."""
    waited_s = account.waited_s
    if waited_s is None or own_ns is None:
        return WaitSplit()
    if own_ns == 0:
        return WaitSplit(for_own_s=0.0, for_others_s=waited_s)
    if cpu_use is None or cpu_use.foreign is None:
        return WaitSplit()
    others_ns = cpu_use.foreign * cpu_use.together * copy.elapsed_ns
    for_others_s = waited_s * others_ns / (others_ns + own_ns)
    return WaitSplit(for_own_s=waited_s - for_others_s, for_others_s=for_others_s)
