"""The doctor's checks of memory: pages, pools, what moves, merges or swaps them; pure."""

from __future__ import annotations

import re

from rater.analysis.doctor.findings import (
    MachineFacts,
    Opinion,
    bad,
    check,
    consider,
    good,
    off_or_absent,
    unknown,
)

_THP = "/sys/kernel/mm/transparent_hugepage"
_BROKEN, _LITTLE = 0.5, 0.1  # of the free memory lies in blocks of a huge page
_STUCK = 0.3  # of all blocks cannot be compacted
_MTHP = re.compile(r"(\d{1,7})kB\.enabled", re.ASCII)
_POOL = re.compile(r"(node\d+)\.(\d+)kB\.(total|free)")
_MUCH_SWAPPED_BYTES = 64 << 20


@check("THP", "thp.enabled")
def thp(facts: MachineFacts) -> Opinion:
    """huge pages cost fewer page walks: all copies should have them, or none."""
    value = facts.text("thp.enabled")
    if value is None:
        return unknown("this kernel has none")
    if value == "always":
        return consider(
            "always: copies get huge pages while contiguous memory lasts, so not all alike",
            f"echo madvise > {_THP}/enabled, then `rater run --hugepages madvise ...`",
        )
    if value == "never":
        return consider("never: no copy can have huge pages", f"echo madvise > {_THP}/enabled")
    return good(f"{value}: only programs that ask get huge pages")


@check("THP defrag", "thp.defrag")
def thp_defrag(facts: MachineFacts) -> Opinion:
    """a page fault that compacts memory takes milliseconds."""
    value = facts.text("thp.defrag")
    if value is None:
        return unknown("this kernel has no transparent huge pages")
    if value == "always":
        return bad(
            "always: a page fault may wait for compaction",
            f"echo madvise > {_THP}/defrag",
            **{"thp.defrag": "madvise"},
        )
    return good(value)


@check("pools", "hugepages.")
def pools(facts: MachineFacts) -> Opinion:
    """only programs that ask for huge pages can use reserved memory."""
    found = [
        (node, int(size) << 10, what, int(value))
        for name, value in facts.below("hugepages.").items()
        if (at := _POOL.fullmatch(name)) and value.isdecimal()
        for node, size, what in [at.groups()]
    ]
    if not found:
        return unknown("this kernel has no pools of huge pages")
    total = sum(size * pages for _, size, what, pages in found if what == "total")
    free = sum(size * pages for _, size, what, pages in found if what == "free")
    if free:
        return consider(
            f"{_gb(free)} of {_gb(total)} reserved but unused: other programs cannot use it",
            "echo 0 | tee /sys/devices/system/node/node*/hugepages/hugepages-*/nr_hugepages",
        )
    return good(f"{_gb(total)}, all in use" if total else "none reserved")


@check("mTHP", "thp.")
def medium_pages(facts: MachineFacts) -> Opinion:
    """pages between small and huge depend on free memory, so copies may differ."""
    sizes = {
        int(match[1]): value
        for name, value in facts.below("thp.").items()
        if (match := _MTHP.fullmatch(name))
    }
    if len(sizes) < 2:
        return unknown("this kernel has huge pages of one size")
    always = {"always"} | ({"inherit"} if facts.text("thp.enabled") == "always" else set())
    on = [size for size in sorted(sizes)[:-1] if sizes[size] in always]
    if not on:
        return good("only programs that ask get them, if any")
    shown = ", ".join(map(str, on))
    return consider(
        f"{shown} kB: always, while memory has pieces of that size",
        f"echo never | tee {_THP}/hugepages-{{{','.join(map(str, on))}}}kB/enabled",
    )


@check("khugepaged", "thp.enabled thp.khugepaged_")
def khugepaged(facts: MachineFacts) -> Opinion:
    """it stops a running copy to make one huge page of many small ones."""
    pages, sleep_ms = (
        facts.number(f"thp.khugepaged_{it}") for it in ("pages_to_scan", "scan_sleep_millisecs")
    )
    if pages is None or sleep_ms is None:
        return unknown("this kernel has none, or an older rater did not look")
    if facts.text("thp.enabled") == "never":
        return good("nothing to do: THP is off")
    shown = f"scans {pages:g} pages every {sleep_ms / 1e3:g} s"
    if facts.text("thp.khugepaged_defrag") == "0":
        return good(f"{shown}, and does not compact memory")
    return consider(f"{shown}, and compacts memory", f"echo 0 > {_THP}/khugepaged/defrag")


@check("fragmentation", "memory.")
def fragmentation(facts: MachineFacts) -> Opinion:
    """copies that start late get small pages."""
    shares: dict[str, float] = {}
    for name in facts.below("memory.node"):
        node = name.partition(".")[0]
        pieces = facts.number(f"memory.node{node}.free_huge_order_bytes")
        free = facts.number(f"memory.node{node}.free_bytes")
        if pieces is not None and free:
            shares[node] = min(1.0, pieces / free)
    if not shares:
        return unknown("the kernel does not report it (/proc/buddyinfo)")
    fixed = {
        node: share
        for node in shares
        if (share := facts.number(f"memory.node{node}.unmovable_share")) is not None
    }
    node, worst = min(shares.items(), key=lambda it: it[1])
    text = f"{worst:.0%} of NUMA node {node}'s free memory is contiguous enough for huge pages"
    command = "sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > /proc/sys/vm/compact_memory"
    if worst < _LITTLE:
        return bad(text, command)
    if worst < _BROKEN:
        return consider(text, command)
    stuck, share = max(fixed.items(), key=lambda it: it[1], default=("", 0.0))
    if share >= _STUCK:
        return consider(
            f"{share:.0%} of NUMA node {stuck}'s blocks hold memory that the kernel cannot move",
            "reserve pools at boot: hugepagesz=1G hugepages=N",
        )
    return good(text)


@check("NUMA balancing", "kernel.numa_balancing")
def numa_balancing(facts: MachineFacts) -> Opinion:
    """the kernel unmaps and moves pages while copies run."""
    settled = off_or_absent(facts, "kernel.numa_balancing")
    if settled is not None:
        return settled
    if facts.nodes == 1:
        return good("on, but there is only one NUMA node")
    return bad(
        f"{facts.text('kernel.numa_balancing')}: pages move and fault while copies run",
        "sysctl -w kernel.numa_balancing=0",
        numa_balancing="0",
    )


@check("zone reclaim", "vm.zone_reclaim_mode")
def zone_reclaim(facts: MachineFacts) -> Opinion:
    """allocations wait although other memory is free."""
    return off_or_absent(facts, "vm.zone_reclaim_mode") or consider(
        f"{facts.text('vm.zone_reclaim_mode')}: allocations may wait for reclaim on a NUMA node",
        "sysctl -w vm.zone_reclaim_mode=0",
        zone_reclaim="0",
    )


@check("KSM", "ksm.run")
def ksm(facts: MachineFacts) -> Opinion:
    """it merges equal pages of copies, which a write copies again."""
    value = facts.text("ksm.run")
    if value is None:
        return unknown("this kernel was built without, or an older rater did not look")
    if value == "1":
        return bad(
            "on: it merges equal pages of copies, and a write parts them again",
            "echo 0 > /sys/kernel/mm/ksm/run",
            ksm="0",
        )
    return good("off")


@check("swap", "swap. memory.swap_free_bytes vm.swappiness")
def swap(facts: MachineFacts) -> Opinion:
    """a page on a disk is a million cycles away."""
    total, free = facts.number("swap.total_bytes"), facts.number("memory.swap_free_bytes")
    if total is None:
        return unknown("not known")
    if not total:
        return good("none")
    used = 0 if free is None else total - free
    if used > _MUCH_SWAPPED_BYTES:
        return bad(f"{_gb(used)} of {_gb(total)} in use", "swapoff -a", swappiness="0")
    if facts.text("vm.swappiness") == "0":
        return good(f"{_gb(total)}, swappiness 0")
    return consider(
        f"{_gb(total)}, swappiness {facts.text('vm.swappiness') or 'not known'}",
        "swapoff -a, or sysctl -w vm.swappiness=0",
        swappiness="0",
    )


@check("memory limit", "cgroup.memory_limit_bytes")
def memory_limit(facts: MachineFacts) -> Opinion:
    """copies beyond it are killed or swapped."""
    limit = facts.number("cgroup.memory_limit_bytes")
    if limit is None:
        return good("no cgroup limits it") if facts.now else unknown("not kept with this run")
    return consider(
        f"a cgroup allows {_gb(limit)}, page cache included; copies beyond that are killed",
        "run outside of it, or raise its memory.max",
    )


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g} GB" if count >= 1e8 or not count else f"{count / 1e6:.3g} MB"
