"""Page cache that belongs to no lgroup more than to the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rater.errors import RunError
from rater.plan.placement.memory_policy import MemoryPolicy, ordinary_nodes
from rater.plan.placement.place import Placement
from rater.plan.topology.model import Topology
from rater.run.host.thread_binding import ThreadBinding


def spread_over(topology: Topology) -> tuple[int, ...]:
    """Return the nodes to spread page cache over: ordinary memory beside CPUs; () if only one."""
    nodes = ordinary_nodes(topology)
    return nodes if len(nodes) > 1 else ()


@contextmanager
def page_cache_spread(nodes: Sequence[int]) -> Iterator[None]:
    """Interleave over `nodes` (OS numbers) what this thread, and what it starts, reads and writes.

    The kernel takes a page of the page cache by the memory policy of who first reads or
    writes it (`alloc_pages` in mm/mempolicy.c), and it stays there. Where the kernel refuses
    the policy (a container), or for no nodes, everything is as it was.
    """
    with ThreadBinding() as binding:
        with suppress(RunError):
            if nodes:
                binding.apply(
                    Placement(
                        copy=0,
                        cpus=None,
                        cpu=None,
                        core=None,
                        llc=None,
                        node=None,
                        package=None,
                        policy=MemoryPolicy.INTERLEAVE,
                        memory_nodes=tuple(nodes),
                    )
                )
        yield
