"""Readings of CPUs around a phase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rater.record.events import CopyEnded, CpuReading, CpuReadings, MachineReadings
from rater.record.run import MachinePU, MemoryPolicy, Placement
from rater.record.stored import StoredRun
from tests.support.example_runs import S, copy_row, stored


def computed(copy: int, cpu_s: float, **changes: Any) -> CopyEnded:
    """A copy that ran for 10 s, and computed for so long."""
    cpu_ns = round(cpu_s * S)
    return copy_row(copy, 10.0, cpu_ns=cpu_ns, user_ns=cpu_ns, **changes)


def read_run(
    copies: Sequence[CopyEnded],
    *rows: CpuReading,
    masks: Sequence[tuple[int, ...] | None] | None = None,
    **counters: int,
) -> StoredRun:
    """One or more phases of 10 s, all read alike; each copy bound to its CPU, or as `masks` say."""
    run = stored(copies)
    cpus = {copy.copy: copy.cpu for copy in copies}
    masks = masks or [None if cpu is None else (cpu,) for cpu in cpus.values()]
    phases = sorted({copy.phase for copy in copies})
    values = tuple(sorted({"elapsed_ns": 10 * S, **counters}.items()))
    return replace(
        run,
        placements=tuple(
            Placement(
                copy=copy,
                cpus=mask,
                cpu=cpus[copy],
                core=cpus[copy],
                llc=0,
                node=0,
                package=0,
                memory_policy=MemoryPolicy.NONE,
                memory_nodes=(),
            )
            for copy, mask in zip(cpus, masks, strict=True)
        ),
        pus=tuple(
            MachinePU(cpu=cpu, core=cpu // 2, llc=0, node=cpu // 4, package=0) for cpu in range(8)
        ),
        cpu_readings=tuple(CpuReadings(phase, rows) for phase in phases),
        machine_readings=tuple(MachineReadings(phase, values) for phase in phases),
    )
