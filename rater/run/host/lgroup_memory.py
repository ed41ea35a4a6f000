"""The memory of this machine's lgroups now: installed, free, page cache, huge pages."""

from __future__ import annotations

import re
from pathlib import Path

from rater.plan.topology.lgroup_memory import HugePages, LgroupMemory
from rater.run.host.memory import free_in_huge_blocks, node_entries
from rater.run.host.sysfiles import listed, read_number

_PROC, _SYS = Path("/proc"), Path("/sys")
_POOL = re.compile(r"hugepages-([0-9]+)kB")


def lgroups_now(proc: Path = _PROC, sys: Path = _SYS) -> dict[int, LgroupMemory]:
    """Return the memory of each lgroup by OS number, ascending; empty where there are none.

    About a millisecond a node: the kernel adds up its counters for each file.
    """
    huge_blocks = free_in_huge_blocks(proc, sys)
    found = {}
    for node, entries in node_entries(proc, sys).items():
        if not {"MemTotal", "MemFree", "FilePages"} <= entries.keys():
            continue
        found[node] = LgroupMemory(
            node=node,
            total_bytes=entries["MemTotal"],
            free_bytes=entries["MemFree"],
            page_cache_bytes=max(0, entries["FilePages"] - entries.get("Shmem", 0)),
            dirty_bytes=entries.get("Dirty", 0) + entries.get("Writeback", 0),
            free_huge_order_bytes=huge_blocks.get(node),
            huge_pages=_pools(sys / f"devices/system/node/node{node}/hugepages"),
        )
    return dict(sorted(found.items()))


def _pools(folder: Path) -> tuple[HugePages, ...]:
    pools = []
    for path in listed(folder, "hugepages-*kB"):
        size = _POOL.fullmatch(path.name)
        total, free = read_number(path / "nr_hugepages"), read_number(path / "free_hugepages")
        if size is not None and total is not None and free is not None:
            pools.append(HugePages(int(size[1]) << 10, total, free))
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))
