"""What an lgroup has at one moment, as the kernel of this machine tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HugePages:
    """The pool of huge pages of one size (hugetlb), which only programs that ask for it use."""

    size_bytes: int
    total: int  # pages
    free: int  # pages

    @property
    def free_bytes(self) -> int:
        """Bytes that no program uses, and that no other program can have."""
        return self.free * self.size_bytes


@dataclass(frozen=True, slots=True)
class PoolRoom:
    """What a pool of huge pages of one lgroup has, and could have now."""

    node: int  # OS number
    size_bytes: int
    total: int  # pages
    free: int  # pages
    ready: int | None  # more pages that lie in one piece; None: larger than pieces are counted
    most: int  # more pages that all free memory and droppable page cache would make

    @property
    def path(self) -> str:
        """The file that holds, and takes, how many pages it has."""
        return (
            f"/sys/devices/system/node/node{self.node}/hugepages/"
            f"hugepages-{self.size_bytes >> 10}kB/nr_hugepages"
        )

    @property
    def setting(self) -> str:
        """The name of the setting that it is."""
        return f"hugepages.{self.size_bytes >> 10}kB.node{self.node}"


@dataclass(frozen=True, slots=True)
class LgroupMemory:
    """The memory of one lgroup; None for what the kernel does not tell."""

    node: int  # OS number
    total_bytes: int
    free_bytes: int
    page_cache_bytes: int  # file pages; shared memory is not among them
    dirty_bytes: int  # of the page cache: not on disk yet, or on its way; not droppable
    free_huge_order_bytes: int | None  # free in blocks of a transparent huge page or larger
    huge_pages: tuple[HugePages, ...]  # by size, ascending

    @property
    def droppable_bytes(self) -> int:
        """Page cache that the kernel can drop at once (mapped pages it drops late)."""
        return max(0, self.page_cache_bytes - self.dirty_bytes)

    @property
    def pooled_bytes(self) -> int:
        """Bytes in free huge pages: neither free nor page cache."""
        return sum(pool.free_bytes for pool in self.huge_pages)
