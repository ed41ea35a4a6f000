"""Waiting copies checked against the plan before they are let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rater.plan.placement.gate_check import gate_mismatches
from rater.plan.placement.memory_policy import MemoryPolicy
from rater.plan.placement.place import Placement
from rater.record.events import GateFacts, Noted
from rater.run.copies.launch import Child
from rater.run.host.proc_dir import gate_facts

_NAMED = 3  # copies of one note


class GateCheck:
    """Reads what copies at their gates may use, and says once of each copy what is not planned."""

    def __init__(self, placements: tuple[Placement, ...], report: Callable[[Noted], None]) -> None:
        self._placements = placements
        self._report = report
        self._reported: set[int] = set()
        self._facts: dict[int, GateFacts] = {}

    def check(self, children: Iterable[Child]) -> None:
        """Look at copies that wait at their gates; none of them is reaped yet."""
        found: list[str] = []
        for child in children:
            child.gate_facts = self._facts[child.copy] = facts = gate_facts(child.pid)
            if child.copy in self._reported:
                continue
            plan = self._placements[child.copy]
            for complaint in gate_mismatches(facts, plan.cpus, nodes_of(plan)):
                self._reported.add(child.copy)
                found.append(f"copy {child.copy} {complaint}")
        if found:
            more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            self._report(Noted(f"not placed as planned: {'; '.join(found[:_NAMED])}{more}"))

    def take_over(self, child: Child) -> None:
        """Take what the copy might use at its gate for its next run, which has none.

        It was bound the same way, and by now the program may have bound itself.
        """
        child.gate_facts = self._facts.get(child.copy)


def nodes_of(plan: Placement) -> tuple[int, ...]:
    """Return the nodes that memory is to come from, as far as the placement alone tells."""
    if plan.memory_nodes or plan.policy is not MemoryPolicy.LOCAL or plan.node is None:
        return plan.memory_nodes
    return (plan.node,)
