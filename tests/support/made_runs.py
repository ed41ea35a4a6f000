"""Runs put into a database without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from rater.record.events import OutputChecked, RunEnded
from rater.record.run import BenchmarkUsed, RunStatus, Validity
from rater.store.store import open_store
from rater.system.process import ProcessId
from tests.support.example_events import ended, over, phase, run_of, with_head
from tests.support.stored_runs import PUS, append


def make_run(
    database: Path,
    *,
    uuid: str = "0a1b",
    finished: bool = True,
    owner: ProcessId | None = None,
    tags: tuple[tuple[str, str], ...] = (),
) -> None:
    """Two copies of one benchmark with a reference of 10 s: 3 s and 4 s."""
    run = replace(
        with_head(run_of(2), uuid=uuid, tags=tags),
        pus=PUS,
        benchmarks=(
            BenchmarkUsed(
                name="gups",
                category="int",
                command="gups",
                reference_s=10.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
            ),
        ),
    )
    with open_store(database) as store:
        number = store.create_run(run, owner)
        append(store, number, phase())
        append(store, number, ended(0, 3.0))
        if finished:
            append(store, number, ended(1, 4.0))
            append(store, number, over(0.0, 4.0))
            for copy in (0, 1):
                append(
                    store,
                    number,
                    OutputChecked(
                        phase=0,
                        benchmark="gups",
                        iteration=1,
                        copy=copy,
                        step=0,
                        validity=Validity.VALID,
                        detail=None,
                    ),
                )
            append(store, number, RunEnded(RunStatus.COMPLETE, None))


def make(
    database: Path,
    seconds: Sequence[tuple[float, float]],
    tags: dict[str, str] | None = None,
    settings: dict[str, str] | None = None,
    names: Sequence[str] = ("gups",),
) -> None:
    """Runs of benchmarks with a reference of 10 s, two copies each; tagged, in blocks 1, 2, ..."""
    with open_store(database) as store:
        for block, times in enumerate(seconds, 1):
            every = tags | {"block": str(block)} if tags else {}
            head = with_head(
                run_of(2, names=names),
                uuid=f"{len(store.runs()):08x}",
                started_at=f"2026-11-20T12:{block if tags else 0:02}:00Z",
                tags=tuple(sorted(every.items())),
            )
            run = replace(
                head,
                settings=tuple((settings or {}).items()),
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
                    for name in names
                ),
            )
            number = store.create_run(run)
            for place, name in enumerate(names):
                append(store, number, phase(place, name=name))
                for copy, time_s in enumerate(times):
                    append(store, number, replace(ended(copy, time_s, name=name), phase=place))
                append(store, number, over(0.0, max(times), number=place, name=name))
                for copy in (0, 1):
                    checked = OutputChecked(
                        phase=place,
                        benchmark=name,
                        iteration=1,
                        copy=copy,
                        step=0,
                        validity=Validity.VALID,
                        detail=None,
                    )
                    append(store, number, checked)
            append(store, number, RunEnded(RunStatus.COMPLETE, None))
