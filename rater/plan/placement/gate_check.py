"""The kernel's limits of a waiting copy, held against its plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.text.cpuset import format_list

if TYPE_CHECKING:  # `--proof` is checked by commands that need no records
    from rater.record.events import GateFacts


def gate_mismatches(
    facts: GateFacts, cpus: Sequence[int] | None, memory_nodes: Sequence[int]
) -> tuple[str, ...]:
    """Say in words where the kernel's limits for a copy differ from its plan.

    `cpus` is the planned mask (None: not bound), `memory_nodes` the nodes its
    memory is to come from (empty: none in particular).
    """
    mismatches = []
    if cpus is not None and facts.cpus is not None and set(cpus) != set(facts.cpus):
        planned, seen = format_list(cpus), format_list(facts.cpus) or "none"
        if set(facts.cpus) < set(cpus):
            mismatches.append(
                f"may use CPUs {seen} only of the planned {planned}: a cpuset (container, batch "
                "system) or an offline CPU narrows them"
            )
        else:
            mismatches.append(f"bound to CPUs {seen}, planned {planned}")
    if facts.mems is not None:
        missing = set(memory_nodes) - set(facts.mems)
        if missing:
            mismatches.append(
                f"may not take memory of lgroup {format_list(missing)} as planned: its cpuset "
                f"allows {format_list(facts.mems) or 'none'}"
            )
    return tuple(mismatches)
