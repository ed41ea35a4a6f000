"""This machine's TLB, and what a miss of it costs, for counters that tell misses and no time."""

from __future__ import annotations

from rater.lab.trace.costs import page_costs
from rater.lab.trace.tracer import kept_costs
from rater.plan.counter_tables import table_for
from rater.plan.tlb import Tlb, tlb_of_cpuid
from rater.run.launcher.processor import cpuid_leaves
from rater.run.observe.perf import this_processor
from rater.run.programs.compile import cache_root
from rater.system.errors import InputError
from rater.system.paths import sysroot


def machine_tlb() -> tuple[Tlb, tuple[str, ...]]:
    """Return the TLB of data as CPUID tells it, and what there is to say of it.

    Else the usual one of the processor's family, which is assumed. Raises `InputError` where
    neither is known.
    """
    leaves, _ = cpuid_leaves()
    if (own_tlb := tlb_of_cpuid(leaves)) is not None:
        return own_tlb, ()
    table = table_for(this_processor(sysroot()))
    if table is None or table.tlb is None:
        raise InputError(
            "this processor does not tell its TLB: give it with --tlb, as 64x4,1536x12 "
            "(entries x ways of each level)"
        )
    note = (
        f"the TLB is assumed: this processor does not tell its own, and those of its family "
        f"({table.name}) have {table.tlb} as a rule; --tlb names another"
    )
    return table.tlb, (note,)


def miss_cycles() -> float | None:
    """Return the cycles that a TLB miss was measured to cost here; None: nobody measured it."""
    kept = kept_costs(cache_root())
    if kept is None:
        return None
    try:
        tlb, _ = machine_tlb()
        return page_costs(kept, tlb).miss_cycles()
    except (InputError, KeyError, TypeError, ZeroDivisionError):
        return None  # a file of the cache that holds something else
