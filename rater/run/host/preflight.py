"""Before a run: has each lgroup what its copies need, and what did the set-up leave there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.plan.placement.place import Placement
from rater.plan.topology.lgroup_memory import LgroupMemory
from rater.run.host.lgroup_memory import lgroups_now
from rater.run.host.memory import NodeMemory, bound_to_memory, gb, memory_warnings, needs_by_node
from rater.run.host.sysfiles import read_text
from rater.text.words import some

_PROC, _SYS = Path("/proc"), Path("/sys")
_LEAST_LEFT_BYTES = 64_000_000  # page cache that a set-up may leave without a word


@dataclass(frozen=True, slots=True)
class Row:
    """One lgroup before a run; bytes, None for what is not known."""

    node: int  # OS number
    copies: int  # whose home it is
    need_bytes: int  # that copies want of its memory
    free_bytes: int | None
    page_cache_bytes: int | None
    set_up_cache_bytes: int | None  # page cache that came since the set-up began
    free_huge_order_bytes: int | None  # free in blocks of a transparent huge page
    huge_pages_bytes: int | None  # in free huge pages set aside (hugetlb): for who asks only
    verdict: str  # "enough", "page-cache" (enough when it is dropped), "short", "unknown"


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found: warnings with the numbers and the cure, and a row for each lgroup."""

    warnings: tuple[str, ...]
    rows: tuple[Row, ...]
    unchecked: tuple[str, ...] = ()  # what could not be compared, for who relies on it

    def refusal(self) -> str | None:
        """Return why `--preflight strict` refuses the run, None when it does not."""
        if not self.warnings:
            return None
        return "\n".join([*self.warnings, "--preflight strict refuses the run for that"])


def preflight(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    now: Mapping[int, LgroupMemory],
    *,
    before: Mapping[int, LgroupMemory] | None = None,
    huge_pages_always: bool = False,
    unstated: Sequence[str] = (),
) -> Preflight:
    """Compare what copies need with what their lgroups have (pure).

    `now` is the memory of each lgroup, `before` what it was when the set-up began.
    Copies that are not bound to an lgroup want nothing of any in particular: whether
    the machine can hold them all is asked elsewhere (`rater.run.host.requirements`). With
    `huge_pages_always` every program's memory is to come in transparent huge pages,
    so it matters what is free in large blocks. `unstated`: benchmarks that do not say
    what their copies need.
    """
    needs = needs_by_node(placements, bytes_by_copy)
    copies = Counter(placed.node for placed in placements if placed.node is not None)
    rows = tuple(
        _row(node, copies[node], needs.get(node, 0), now.get(node), (before or {}).get(node))
        for node in sorted(copies.keys() | needs.keys() | now.keys())
    )
    plain = {node: NodeMemory(m.free_bytes, m.page_cache_bytes) for node, m in now.items()}
    warnings = [
        *memory_warnings(needs, plain, strict=bound_to_memory(placements)),
        *_set_up_warnings(rows),
        *_pool_warnings(rows, now),
        *(_block_warnings(rows) if huge_pages_always else ()),
    ]
    return Preflight(tuple(warnings), rows, _unchecked(placements, bytes_by_copy, rows, unstated))


def preflight_now(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    before: Mapping[int, LgroupMemory] | None = None,
    proc: Path = _PROC,
    sys: Path = _SYS,
    *,
    unstated: Sequence[str] = (),
) -> Preflight:
    """Return the preflight of this machine now; `before` as `lgroups_now` gave it."""
    enabled = read_text(sys / "kernel/mm/transparent_hugepage/enabled") or ""
    return preflight(
        placements,
        bytes_by_copy,
        lgroups_now(proc, sys),
        before=before,
        huge_pages_always="[always]" in enabled,
        unstated=unstated,
    )


def _row(
    node: int, copies: int, need: int, now: LgroupMemory | None, before: LgroupMemory | None
) -> Row:
    if now is None:
        return Row(node, copies, need, None, None, None, None, None, "unknown")
    if need <= now.free_bytes:
        verdict = "enough"
    else:
        reachable = now.free_bytes + now.page_cache_bytes
        verdict = "page-cache" if need <= reachable else "short"
    return Row(
        node=node,
        copies=copies,
        need_bytes=need,
        free_bytes=now.free_bytes,
        page_cache_bytes=now.page_cache_bytes,
        set_up_cache_bytes=(
            None if before is None else max(0, now.page_cache_bytes - before.page_cache_bytes)
        ),
        free_huge_order_bytes=now.free_huge_order_bytes,
        huge_pages_bytes=now.pooled_bytes,
        verdict=verdict,
    )


def _unchecked(
    placements: Sequence[Placement],
    bytes_by_copy: Mapping[int, int],
    rows: Sequence[Row],
    unstated: Sequence[str],
) -> tuple[str, ...]:
    """Say what was not compared, and how it could be: silence would pass for "enough"."""
    way = "`memory_mb` in a benchmark's size states it (`rater suites new` writes a suite)"
    if not any(bytes_by_copy.values()):
        return (f"memory need not stated: lgroups not checked; {way}",)
    told = []
    if unstated:
        told.append(
            f"memory need of {some(unstated)} not stated: lgroups checked for the other "
            f"benchmarks only; {way}"
        )
    if any(placed.node is None and not placed.memory_nodes for placed in placements):
        told.append(
            "copies are bound to no lgroup: lgroups not checked; a layout other than none binds "
            "them"
        )
    unread = [f"{row.node}" for row in rows if row.verdict == "unknown" and row.need_bytes]
    if unread:
        told.append(f"the kernel does not tell what is free on lgroup {some(unread)}: not checked")
    return tuple(told)


def _set_up_warnings(rows: Sequence[Row]) -> list[str]:
    told = [
        f"{gb(row.set_up_cache_bytes)} on lgroup {row.node}"
        for row in rows
        if row.verdict in ("page-cache", "short")
        and row.set_up_cache_bytes is not None
        and row.set_up_cache_bytes >= _LEAST_LEFT_BYTES
    ]
    if not told:
        return []
    return [
        f"page cache that came during the set-up (builds, inputs): {some(told)}; once inputs are "
        "made, a second run has less of it"
    ]


def _pool_warnings(rows: Sequence[Row], now: Mapping[int, LgroupMemory]) -> list[str]:
    warnings = []
    for row in rows:
        if row.verdict in ("page-cache", "short") and row.huge_pages_bytes:
            pools = [pool for pool in now[row.node].huge_pages if pool.free]
            cures = "; ".join(
                f"`echo {pool.total - pool.free} > /sys/devices/system/node/node{row.node}"
                f"/hugepages/hugepages-{pool.size_bytes >> 10}kB/nr_hugepages`"
                for pool in pools
            )
            warnings.append(
                f"{gb(row.huge_pages_bytes)} of lgroup {row.node} lie in huge pages that are set "
                "aside and free: only programs that ask for them get that memory; as root "
                f"{cures} gives it back"
            )
    return warnings


def _block_warnings(rows: Sequence[Row]) -> list[str]:
    """Lgroups that have the memory, but not in one piece, next to others that have."""
    broken = [
        f"lgroup {row.node} (its copies need {gb(row.need_bytes)}; {gb(row.free_huge_order_bytes)} "
        "free in such blocks)"
        for row in rows
        if row.verdict == "enough"
        and row.free_huge_order_bytes is not None
        and row.need_bytes > row.free_huge_order_bytes
    ]
    if not broken:
        return []
    return [
        f"too few free blocks of the size of a huge page in {some(broken)}: part of the copies' "
        "memory comes in small pages, or is compacted while copies are timed; "
        "`echo 1 > /proc/sys/vm/compact_memory` as root makes larger blocks"
    ]
