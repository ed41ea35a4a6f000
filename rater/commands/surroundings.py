"""What surrounds a run when it begins: who else works here, what fills the lgroups' memory."""

from __future__ import annotations

from rater.commands.resolve import Resolved
from rater.run.memory import memory_warnings, needs_by_node, node_memory
from rater.run.quiet import BusyWatch, busy_warning


class Surroundings:
    """Looks at the other processes when made, and again when asked: make it early."""

    def __init__(self) -> None:
        self._watch = BusyWatch()

    def warnings(self, resolved: Resolved) -> tuple[str, ...]:
        """Return what a person should know of the machine before copies run on it."""
        busy = busy_warning(self._watch.busy())
        per_copy = _most_bytes(resolved)
        by_copy = {placement.copy: per_copy for placement in resolved.placements}
        needs = needs_by_node(resolved.placements, by_copy)
        return (*([busy] if busy else []), *memory_warnings(needs, node_memory()))


def _most_bytes(resolved: Resolved) -> int:
    """Return what one copy holds at its peak in the benchmark that needs most; 0: not stated."""
    sizes = [workload.size for workload in resolved.workloads]
    return max(
        size.memory_bytes or (size.total_memory_bytes or 0) // resolved.plan.copies
        for size in sizes
    )
