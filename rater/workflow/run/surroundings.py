"""What surrounds a run when it begins: who else works here, what the lgroups' memory holds."""

from __future__ import annotations

from collections.abc import Mapping

from rater.errors import InputError
from rater.plan.placement.memory_needs import Preflight
from rater.plan.topology.lgroup_memory import LgroupMemory
from rater.run.host.busy import BusyWatch, busy_warning
from rater.run.host.memory import lgroups_now, preflight_now
from rater.workflow.run.resolve import Resolved, most_bytes


class Surroundings:
    """Looks around when made, and again when asked: make it before anything is set up."""

    def __init__(self, resolved: Resolved) -> None:
        self._resolved = resolved
        self._watch = BusyWatch()
        self._before = lgroups_now() if resolved.request.preflight != "off" else None

    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know of the machine before copies run on it.

        Raises `InputError` where `--preflight strict` refuses the run.
        """
        busy = busy_warning(self._watch.busy())
        found = preflight_of(self._resolved, self._before)
        if found is None:
            return (busy,) if busy else ()
        is_strict = self._resolved.request.preflight == "strict"
        refusal = found.refusal()
        if refusal and is_strict:
            raise InputError(refusal)
        # Who asked for a refusal has to know that there was nothing to refuse for.
        unchecked = found.unchecked if is_strict else ()
        return (*([busy] if busy else []), *found.warnings, *unchecked)


def preflight_of(
    resolved: Resolved, before: Mapping[int, LgroupMemory] | None = None
) -> Preflight | None:
    """Compare what copies need with what their lgroups have now; None with `--preflight off`.

    `before` is what they had before the set-up.
    """
    if resolved.request.preflight == "off":
        return None
    per_copy = most_bytes(resolved)
    by_copy = {placement.copy: per_copy for placement in resolved.placements}
    unstated = [
        workload.benchmark.name
        for workload in resolved.workloads
        if workload.size.memory_bytes is None and workload.size.total_memory_bytes is None
    ]
    return preflight_now(resolved.placements, by_copy, before, unstated=unstated)
