"""Sweeps over one axis put into a database without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from rater.plan.sweep import AxisKind, SweepPoint, SweepSlot
from rater.record.events import OutputChecked, RunEnded
from rater.record.run import BenchmarkUsed, RunStatus, Validity
from rater.store.store import Store, open_store
from rater.store.sweeps import create_slot_run, end_sweep, new_sweep
from tests.support.example_events import SWEEP_ASKED, ended, over, phase, run_of, with_head
from tests.support.stored_runs import PUS, append

type Seconds = float | Mapping[str, float]  # of gups, or by benchmark


def make_sweep(database: Path, axis: str, times: Mapping[str, Sequence[Seconds]]) -> int:
    """Runs: by the axis's values, seconds in round 1, 2, ...; returns the sweep's number.

    Of one copy; along an axis `copies`, of so many.
    """
    points = [
        SweepPoint(
            point=place,
            label=f"{axis}={value}",
            values=((axis, value),),
            request="{}",
            left_out=None,
        )
        for place, value in enumerate(times)
    ]
    every = list(times.values())
    slots = [
        SweepSlot(block, place + 1, place)
        for block in range(1, max(map(len, every)) + 1)
        for place in range(len(points))
    ]
    kind = AxisKind.ENVIRONMENT if axis.startswith("env:") else AxisKind.OPTION
    with open_store(database) as store:
        asked = replace(SWEEP_ASKED, uuid=f"{axis}-{len(store.runs())}", rounds=slots[-1].block)
        number = new_sweep(store, asked, [(axis, kind)], points, slots)
        for slot in slots:
            if slot.block <= len(every[slot.point]):
                seconds = every[slot.point][slot.block - 1]
                by_name = {"gups": seconds} if isinstance(seconds, float) else dict(seconds)
                copies = int(list(times)[slot.point]) if axis == "copies" else 1
                _run(store, number, slot, by_name, copies)
        end_sweep(store, number, RunStatus.COMPLETE, None, "2026-11-20T23:00:00Z")
    return number


def _run(
    store: Store, sweep: int, slot: SweepSlot, seconds: Mapping[str, float], copies: int
) -> None:
    made_run = replace(
        with_head(
            run_of(copies),
            uuid=f"{sweep}-{slot.block}-{slot.point}",
            started_at=f"2026-11-20T{slot.block:02}:{slot.point:02}:00Z",
        ),
        pus=PUS,
        benchmarks=tuple(
            BenchmarkUsed(
                name=name,
                category="int",
                command=name,
                reference_s=10.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
            )
            for name in seconds
        ),
    )
    run = create_slot_run(store, sweep, slot, made_run, len(seconds))
    for place, (name, time_s) in enumerate(seconds.items()):
        append(store, run, phase(place, name=name))
        for copy in range(copies):
            append(store, run, replace(ended(copy, time_s, name=name), phase=place))
        append(store, run, over(0.0, time_s, number=place, name=name))
        for copy in range(copies):
            append(
                store,
                run,
                OutputChecked(
                    phase=place,
                    benchmark=name,
                    iteration=1,
                    copy=copy,
                    step=0,
                    validity=Validity.VALID,
                    detail=None,
                ),
            )
    append(store, run, RunEnded(RunStatus.COMPLETE, None))
