"""One account of a copy's time: it ran, waited for a CPU, was throttled, stopped, or slept; pure.

A copy ran, or was runnable without a CPU, or neither. The kernel counts the first two of each
thread. A thread whose cgroup has used up its quota counts as runnable: in a period in which that
happened the cgroup had all it may have, so no other work cost it anything.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from rater.record.events import CopyEnded
from rater.record.run import Placement
from rater.record.stored import StoredRun, kept_for_last
from rater.text.cpuset import copy_numbers_text
from rater.text.values import count, group_by_key, truncate_list

_MOST_UNSEEN = 0.5  # of a copy's CPU time may be of threads whose delay is not known
_LITTLE_NS = 50_000_000  # of CPU time, which says little either way
# The longest wait before a copy's start that is no sign of threads. With 100 copies on each of 2
# CPUs of a machine with load 40, the longest of 6,000 copies was 23 ms.
_GATE_WAIT_NS = 100_000_000


class TimeAccount(Struct, frozen=True, kw_only=True):
    """Where the time of a copy's run went, in seconds of a mean thread; None: not known."""

    elapsed_s: float
    ran_s: float | None = None  # had a CPU
    waited_s: float | None = None  # runnable, but the CPU was others', or another copy's
    throttled_s: float | None = None  # kept from running by a CPU quota of rater's cgroup
    stopped_s: float | None = None  # by a signal or a debugger, as samples of memory saw it
    slept_s: float | None = None  # the rest: waited for a disk, a lock, a timer
    known: float | None = None  # share of the CPU time whose waiting was seen: 1 is exact


def delay_since_start_ns(copy: CopyEnded, threads: int) -> int | None:
    """Return how long threads of a copy waited for a CPU since its start; None: not known.

    The kernel's sum is read at the gate. A copy that waits for its CPU between that and its release
    has this wait in the sum as well. It shows where `threads` were runnable for longer than the
    copy took, by a little: more than that is of further threads.
    """
    if copy.run_delay_ns is None:
        return None
    runnable_ns = copy.run_delay_ns + (copy.run_delay_cpu_ns or 0)
    excess_ns = max(0, runnable_ns - threads * copy.elapsed_ns)
    if excess_ns > _GATE_WAIT_NS:
        return copy.run_delay_ns
    return max(0, copy.run_delay_ns - excess_ns)


def account_for_copy(
    copy: CopyEnded, threads: int, readings: Mapping[str, int], copies: int
) -> TimeAccount:
    """Return where the time of one copy's run went.

    `readings` are the machine's of its phase, in which so many `copies` ran.
    """
    elapsed_s, cpu_ns = copy.elapsed_s, copy.cpu_ns
    delay_ns = delay_since_start_ns(copy, threads)
    if cpu_ns is None:
        return TimeAccount(elapsed_s=elapsed_s)
    seen_ns = copy.run_delay_cpu_ns or 0
    share_seen = min(1.0, seen_ns / cpu_ns) if cpu_ns else 1.0
    if delay_ns is not None and cpu_ns > _LITTLE_NS:
        delay_ns = round(delay_ns / share_seen) if share_seen >= 1 - _MOST_UNSEEN else None
    if delay_ns is None:
        ran_s = min(cpu_ns / 1e9 / threads, elapsed_s)
        return TimeAccount(elapsed_s=elapsed_s, ran_s=ran_s)
    busy_s = (cpu_ns + delay_ns) / 1e9
    thread_count = max(
        threads, busy_s / elapsed_s
    )  # threads that are not told of are seen by their time
    delay_s, throttled_s = (
        delay_ns / 1e9 / thread_count,
        _throttled_s(delay_ns / 1e9, readings, copies),
    )
    throttled_s = None if throttled_s is None else throttled_s / thread_count
    rest_s = max(0.0, elapsed_s - busy_s / thread_count)
    stopped_s = None if copy.stopped_ns is None else min(copy.stopped_ns / 1e9, rest_s)
    return TimeAccount(
        elapsed_s=elapsed_s,
        ran_s=cpu_ns / 1e9 / thread_count,
        waited_s=delay_s - (throttled_s or 0.0),
        throttled_s=throttled_s,
        stopped_s=stopped_s,
        slept_s=rest_s - (stopped_s or 0.0),
        known=share_seen,
    )


def _throttled_s(delay_s: float, readings: Mapping[str, int], copies: int) -> float | None:
    """Return how much of a copy's delay its quota made; None: quotas were not looked for."""
    if (kept_ns := readings.get("cfs_throttled_ns")) is None:
        return None
    periods, used_up = readings.get("cfs_periods", 0), readings.get("cfs_throttled_periods", 0)
    share = min(1.0, used_up / periods) if periods else 0.0
    return min(delay_s, max(share * delay_s, kept_ns / 1e9 / max(copies, 1)))


def mean_account(accounts: Sequence[TimeAccount]) -> TimeAccount | None:
    """Return the mean of several; a time that one account lacks is not known of the mean."""
    if not accounts:
        return None
    values: Any = zip(*map(astuple, accounts), strict=True)
    columns = dict(zip(TimeAccount.__struct_fields__, values, strict=True))
    means: dict[str, Any] = {
        name: None if None in column else sum(column) / len(column)
        for name, column in columns.items()
    }
    return TimeAccount(**means)


@kept_for_last
def machine_counters(run: StoredRun) -> dict[int, dict[str, int]]:
    """Return how far each counter of the machine went, by phase and name."""
    return {reading.phase: dict(reading.values) for reading in run.machine_readings}


@kept_for_last
def time_accounts(run: StoredRun) -> dict[tuple[int, int, int], TimeAccount]:
    """Return the account of each run of a copy, by phase, copy and step."""
    threads = {used.name: used.threads for used in run.benchmarks}
    readings = machine_counters(run)
    copy_numbers: defaultdict[int, set[int]] = defaultdict(set)
    for copy in run.copies:
        copy_numbers[copy.phase].add(copy.copy)
    return {
        (copy.phase, copy.copy, copy.step): account_for_copy(
            copy,
            threads.get(copy.benchmark, 1),
            readings.get(copy.phase, {}),
            len(copy_numbers[copy.phase]),
        )
        for copy in run.copies
        if copy.elapsed_ns > 0
    }


# -- More threads than CPUs ------------------------------------------------------------------------

_CROWDED = 1.1  # of the time of a copy's CPUs, which its threads together were runnable
_MOST_NAMED = 4  # benchmarks


def crowded_remarks(run: StoredRun) -> Iterator[str]:
    """Yield a sentence where the threads of copies outnumber the CPUs that these are bound to.

    A thread has a CPU or waits for it at most as long as its copy runs. Copies on n CPUs whose
    threads were runnable for longer than n times that had more threads; whatever else ran.
    """
    masks = cpus_of_copies(run)
    crowded: dict[str, dict[int, int]] = {}  # CPUs of each such copy, by benchmark
    for copy in run.copies:
        mask = masks[copy.phase, copy.copy, copy.step]
        if mask is None or copy.run_delay_cpu_ns is None:
            continue
        delay_ns = delay_since_start_ns(copy, len(mask))
        if delay_ns is None:
            continue
        runnable_ns = delay_ns + copy.run_delay_cpu_ns
        if runnable_ns > _CROWDED * len(mask) * copy.elapsed_ns > 0:
            crowded.setdefault(copy.benchmark, {})[copy.copy] = len(mask)
    if not crowded:
        return
    names, copies = truncate_list(list(crowded), _MOST_NAMED), set().union(*crowded.values())
    cpus = {cpus for cpus_by_copy in crowded.values() for cpus in cpus_by_copy.values()}
    room = count(max(cpus), "CPU")
    yield (
        f"{names}: {copy_numbers_text(copies)}: more threads than the {room} that a copy is bound "
        "to: `--threads N` gives each copy of a command N CPUs (in a suite `threads` does), "
        "`--bind core` its core"
    )


# -- Where copies were -----------------------------------------------------------------------------


@kept_for_last
def cpus_where_seen(run: StoredRun) -> dict[tuple[int, int, int], frozenset[int]]:
    """Return the CPUs on which each copy run was seen, by phase, copy and step; empty: on none."""
    looks_by_copy = group_by_key(
        ((sample.phase, sample.copy, sample.step), sample.cpus) for sample in run.samples
    )
    cpus_by_copy = {}
    for copy in run.copies:
        key = (copy.phase, copy.copy, copy.step)
        at_end = () if copy.last_cpu is None else (copy.last_cpu,)
        cpus_by_copy[key] = frozenset().union(at_end, *looks_by_copy.get(key, ()))
    return cpus_by_copy


@kept_for_last
def cpus_of_copies(run: StoredRun) -> dict[tuple[int, ...], tuple[int, ...] | None]:
    """Return on which CPUs each copy ran, by phase, copy and step; None: on any.

    These are the CPUs that its affinity mask allowed, unless it was seen on another: a program
    that binds itself was on those where it was seen.
    """
    placed = {placement.copy: placement for placement in run.placements}
    seen_by_copy = cpus_where_seen(run)
    allowed_by_copy = {
        (sample.phase, sample.copy, sample.step): sample.allowed for sample in run.samples
    }
    cpus_by_copy: dict[tuple[int, ...], tuple[int, ...] | None] = {}
    for copy in run.copies:
        key = (copy.phase, copy.copy, copy.step)
        allowed, seen = allowed_by_copy.get(key) or _mask(copy, placed), seen_by_copy[key]
        astray = allowed is not None and not seen <= {*allowed}
        cpus_by_copy[key] = tuple(sorted(seen)) if astray else allowed
    return cpus_by_copy


@lru_cache(16)  # the phases of a run, and most runs that are compared, have the same masks
def exclusive_masks(masks: tuple[tuple[int, ...] | None, ...]) -> frozenset[tuple[int, ...]]:
    """Return the masks of which no CPU is allowed to another copy; `masks`: one a copy."""
    if None in masks:
        return frozenset()  # a copy that is not bound may run on any CPU
    copies_of_mask = Counter(masks)
    copies_of_cpu: defaultdict[int, int] = defaultdict(int)
    for mask, how_many in copies_of_mask.items():
        for cpu in mask or ():
            copies_of_cpu[cpu] += how_many
    return frozenset(
        mask for mask in copies_of_mask if mask and all(copies_of_cpu[cpu] == 1 for cpu in mask)
    )


def _mask(copy: CopyEnded, placed: Mapping[int, Placement]) -> tuple[int, ...] | None:
    placement = placed.get(copy.copy)
    if placement is not None and placement.cpu == copy.cpu:
        return placement.cpus
    # The run was taken up on other CPUs since: its placements are those of the last attempt.
    return None if copy.cpu is None else (copy.cpu,)
