"""Memory and disk that a resolved run needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rater.plan.schedule.phases import Order
from rater.workflow.run.resolve import Resolved
from rater.workflow.run.workload import (
    load_of,
)

if TYPE_CHECKING:
    from rater.run.host.requirements import Needs
    from rater.run.programs.inputs import ReadyInput


def needs_of(
    resolved: Resolved,
    work: Path,
    inputs: Sequence[tuple[ReadyInput, ...]],
    *,
    linked: bool = True,
) -> Needs:
    """Estimate memory and disk; `inputs` by workload, empty as long as they are not made.

    `linked`: inputs that copies share are hard-linked into run directories, not copied.
    """
    from rater.run.host.requirements import available, estimate

    plan = resolved.plan
    loads = {}
    for position, workload in enumerate(resolved.workloads):
        made = inputs[position] if inputs else None
        loads[workload.benchmark.name] = load_of(workload, plan.copies, made, linked=linked)
    if plan.order is Order.ROTATED:
        # The mixes that the order goes through as long as copies keep step; the first one
        # stands for the run directories of all.
        ring = len(plan.benchmarks)
        phases = []
        for shift in range(ring if plan.increment else 1):
            mix = Counter((copy + shift * plan.increment) % ring for copy in range(plan.copies))
            runs = plan.copies * plan.iterations if shift == 0 else 0
            phases.append(
                [
                    replace(loads[name], copies=mix[position], runs=runs)
                    for position, name in enumerate(plan.benchmarks)
                ]
            )
    else:
        phases = [[loads[phase.benchmark or ""]] for phase in plan.phases]
    return estimate(phases, available(work), keep=resolved.request.keep)
