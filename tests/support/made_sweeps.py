"""Sweeps over one axis put into a database without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rater.plan.sweep.grid import AxisKind, Slot
from rater.record.events import OutputChecked, RunEnded
from rater.record.run import BenchmarkUsed
from rater.record.status import RunStatus, Validity
from rater.store.store import open_store
from rater.store.sweeps import SweepPoint, begin_run, end_sweep, new_sweep
from tests.support.example_events import SWEEP_ASKED, ended, over, phase, run_of
from tests.support.stored_runs import HOST, PUS


def make_sweep(
    database: Path, axis: str, times: Mapping[str, Sequence[float]], *, name: str = "gups"
) -> int:
    """Runs of one copy: by the axis's values, seconds in round 1, 2, ...; returns its number."""
    points = [
        SweepPoint(place, f"{axis}={value}", ((axis, value),), "{}", None)
        for place, value in enumerate(times)
    ]
    rounds = max(map(len, times.values()))
    slots = [
        Slot(block, place + 1, place)
        for block in range(1, rounds + 1)
        for place in range(len(points))
    ]
    kind = AxisKind.ENVIRONMENT if axis.startswith("env:") else AxisKind.OPTION
    every = list(times.values())
    used = (BenchmarkUsed(name, "int", name, 10.0, None, None, None),)
    with open_store(database) as store:
        asked = replace(SWEEP_ASKED, uuid=f"sweep-{axis}-{len(store.runs())}", rounds=rounds)
        number = new_sweep(store, asked, [(axis, kind)], points, slots)
        for slot in slots:
            if slot.block > len(every[slot.point]):
                continue
            time_s = every[slot.point][slot.block - 1]
            made = replace(
                run_of(1),
                uuid=f"{number}-{slot.block}-{slot.point}",
                started_at=f"2026-11-20T{slot.block:02}:{slot.point:02}:00Z",
                benchmarks=used,
            )
            run = begin_run(store, number, slot, made, HOST, settings=(), pus=PUS, phases=1)
            store.append(run, phase(name=name), ended(0, time_s, name=name))
            store.append(run, over(0.0, time_s, name=name))
            store.append(run, OutputChecked(0, name, 1, 0, 0, Validity.VALID, None))
            store.append(run, RunEnded(RunStatus.COMPLETE, None))
        end_sweep(store, number, RunStatus.COMPLETE, None, "2026-11-20T23:00:00Z")
    return number
