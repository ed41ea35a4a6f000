"""Runs whose copies were counted, made up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from rater.plan.counter_tables import TABLE_TEXT, load_table
from rater.record.events import EventCount, PhaseCounted
from rater.record.stored import StoredRun
from tests.support.example_runs import copy_row, stored

SKX = "intel-skx"
SKX_TABLE = ((f"{TABLE_TEXT}{SKX}", load_table(SKX).text),)
# Of a run of 1000 instructions and 2000 cycles, by group.
GROUPS: Mapping[str, Mapping[str, int]] = {
    "pipeline": {"not_delivered": 400, "issued": 1300, "retired_slots": 1200, "recovery": 25},
    "memory": {"mem_any": 1200, "l1_miss": 900, "l2_miss": 700, "l3_miss": 500},
    "translation": {"walk_load": 150, "walk_store": 50, "mem_any": 1200, "l1_miss": 900},
    "numa": {"llc_miss": 20, "dram_local": 6, "dram_remote": 2, "branch_miss": 4},
}
# Base 1200/4, front end 400/4, (1300 - 1200)/4 + 25, walks 200 of 1200 - 900, L1 the rest, ...
STACK = {
    "base": 0.3,
    "front_end": 0.1,
    "bad_speculation": 0.05,
    "translation": 0.2,
    "l1": 0.1,
    "l2": 0.2,
    "l3": 0.2,
    "dram": 0.5,
    "other": 0.35,
}


def group_counts(group: str, times: float = 1.0, **changes: Any) -> tuple[EventCount, ...]:
    """A group of one copy's run; `times` as many of all events."""
    cycles = changes.pop("cycles", 2000)
    running = changes.pop("running", 1.0)
    end = changes.pop("end", "")
    values = {"cycles": cycles, "instructions": 1000} | dict(GROUPS[group]) | changes
    return tuple(
        EventCount(
            group_name=f"{SKX}:{group}{end}",
            event=name,
            value=round(value * times * running),
            enabled_ns=1000,
            running_ns=round(1000 * running),
        )
        for name, value in values.items()
    )


def counted_run(
    groups: tuple[str, ...] = tuple(GROUPS), copies: int = 2, **changes: Any
) -> StoredRun:
    """Copies of benchmark a, a group an iteration; copy 1 does twice as much."""
    rows = [
        copy_row(
            copy,
            1.0,
            iteration=number,
            phase=number - 1,
            counts=group_counts(group, 1 + copy, **changes),
        )
        for number, group in enumerate(groups, 1)
        for copy in range(copies)
    ]
    return replace(
        stored(rows),
        settings=SKX_TABLE,
        counted=(
            PhaseCounted(
                phase=0,
                user_only=False,
                copies=copies,
                open_ns=100_000,
                read_ns=10_000,
                close_ns=10_000,
            ),
        ),
    )
