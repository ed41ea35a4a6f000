"""What the golden screens are of, as runs are read back: every shape that a screen has to take.

As in golden_runs.py a function makes what the file of its name in `tests/golden` shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rater.record.events import (
    CopyEnded,
    Event,
    ForeignProcess,
    GateFacts,
    OutputChecked,
    PagesHad,
)
from rater.record.run import CopyStatus, MemoryPolicy, MetricUsed, Placement, RunStatus
from rater.record.stored import StoredRun
from rater.store.store import Store, open_store
from tests.support.counted_runs import counted_run
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, copy_row, in_turn, reading, stored, windowed
from tests.support.placement_samples import FOUR_PUS, MB, PLACED, sample, seen_run
from tests.support.series import busy_run

LONG = "sparse-solver-large-input"  # 25 characters
BUSY = f"busy before the start: {', '.join(['python pytest (pid 1, 88 % of a CPU)'] * 6)}"


def keep(store: Store, run: StoredRun) -> None:
    """Put a run into a database with all that was seen of it."""
    number = len(store.runs()) + 1
    head = replace(
        run.head,
        uuid=f"{number:08x}-0000-4000-8000-000000000000",
        started_at=f"2026-11-{20 + number // 24:02}T{number % 24:02}:00:00Z",
    )
    notes = () if run.notes == ("n",) else run.notes
    store.add(replace(run, head=head, notes=notes, warnings=(), environment=()))
    events: list[Event] = [*run.samples, *run.cpu_readings]
    events += [run.observed] if run.observed else []
    for copy in run.copies:
        events += [PagesHad(copy.phase, copy.copy, copy.step, copy.pages)] if copy.pages else []
        if copy.metrics:
            events.append(
                OutputChecked(
                    phase=copy.phase,
                    benchmark=copy.benchmark,
                    iteration=copy.iteration,
                    copy=copy.copy,
                    step=copy.step,
                    validity=copy.validity,
                    detail=None,
                    metrics=copy.metrics,
                )
            )
    store.append(number, *events)
    with store.writing("warnings") as connection:
        for text in () if run.warnings == ("w",) else run.warnings:
            connection.insert("note", run_id=number, kind="warning", text=text)


def _keep(folder: Path, *runs: StoredRun) -> None:
    with open_store(folder / "rater.db") as store:
        for run in runs:
            keep(store, run)


def suite_run(names: Sequence[str], iterations: int, copies: int = 2, **head: Any) -> StoredRun:
    """Every copy of every benchmark takes 100 s and a little more."""
    rows = [
        copy_row(
            copy,
            100.0 + copy + phase,
            phase=phase * len(names) + number,
            benchmark=name,
            iteration=phase + 1,
        )
        for phase in range(iterations)
        for number, name in enumerate(names)
        for copy in range(copies)
    ]
    categories = {name: "int" if number % 2 else "fp" for number, name in enumerate(names)}
    return stored(
        rows,
        reference_s=1000.0,
        categories=categories,
        copies=copies,
        iterations=iterations,
        **head,
    )


def names(folder: Path) -> None:
    """Names that are long, wide, or markup, in many benchmarks; what was busy, many notes."""
    crashed = copy_row(
        1, 0.5, benchmark="[bold]x[/]", status=CopyStatus.WRONG_OUTPUT,
        validity_detail="[red]line[/red] :smile: \x1b[2J",
    )  # fmt: skip
    noted = replace(
        stored([copy_row(0, 1.0)], copies=1), notes=tuple(f"n{number}" for number in range(30))
    )
    _keep(
        folder,
        replace(
            suite_run([f"bench-{number}" for number in range(13)] + [LONG], 3), warnings=(BUSY,)
        ),
        replace(suite_run(["gups", "lu"], 3), warnings=(BUSY,)),
        suite_run(["\u6027\u80fd" * 15, "b"], 1),
        stored([copy_row(0, 1.0, benchmark="[bold]x[/]"), crashed]),
        noted,
        suite_run(["lu", "sort", "rays"], 1),
        suite_run([LONG], 3, copies=16),
        stored([copy_row(copy, 0.000912 + copy * 4e-6, benchmark=LONG) for copy in range(2)]),
        replace(suite_run(["a", "b"], 1), warnings=("left out: ffmpeg: not installed",)),
        suite_run(["a", "b"], 1, request='{"suites": ["mini/a", "mini/b"]}'),
        suite_run(["a", "b"], 1, request='{"suites": ["./my/mini.toml"]}'),
    )


def ends(folder: Path) -> None:
    """How runs and copies end, with place and deed; an iteration that does not count."""
    crashed = copy_row(
        1, 0.5, status=CopyStatus.FAILED, exit_code=None, signal=11, run_dir="/tmp/r"
    )
    alike = [copy_row(copy, 0.1, status=CopyStatus.FAILED, exit_code=127) for copy in range(128)]
    discarded = [
        copy_row(copy, 100.0 + phase, phase=phase, iteration=phase + 1, counted=phase > 0)
        for phase in range(3)
        for copy in range(2)
    ]
    pair = [copy_row(0, 4.0), copy_row(1, 5.0)]
    _keep(
        folder,
        stored([copy_row(0, 4.0), crashed], status=RunStatus.FAILED, reason="1 copy failed"),
        stored(alike, copies=128, status=RunStatus.FAILED, reason="128 copies failed"),
        stored(discarded, iterations=3, discard=1),
        stored(pair, benchmarks=("a", "b"), status=RunStatus.INTERRUPTED, reason="by SIGINT"),
        replace(stored([], benchmarks=("a",)), brackets=()),
    )


def orders(folder: Path) -> None:
    """A plain command, copies that are not bound, staggered ones, and rotated order."""
    staggered = [copy_row(0, 1.0), copy_row(1, 1.0, start_ns=3 * S)]
    turned = [
        copy_row(0, 2.0, benchmark="a"),
        copy_row(0, 8.0, benchmark="b", step=1, start_ns=2 * S),
        copy_row(1, 5.0, benchmark="b"),
        copy_row(1, 4.0, benchmark="a", step=1, start_ns=5 * S),
    ]
    free = [copy_row(copy, 6.0 + 4 * copy, cpu=None, node=None) for copy in range(2)]
    uneven = [copy_row(copy, 2.0, benchmark="aba"[copy]) for copy in range(3)]
    failing = [copy_row(0, 2.0), copy_row(1, 0.1, status=CopyStatus.FAILED, exit_code=3)]
    rotated: dict[str, Any] = {"mode": "rotated", "order": "rotated"}
    _keep(
        folder,
        stored(
            [copy_row(copy, 36.0, tune=None) for copy in range(2)],
            reference_s=None,
            suite=None,
            size=None,
            tune=None,
        ),
        stored([copy_row(copy, 4.0, cpu=None, node=None) for copy in range(2)]),
        stored(staggered, mode="staggered", stagger_ms=3000.0),
        stored(turned, **rotated),
        stored(free, **rotated),
        stored(uneven, copies=3, increment=0, **rotated),
        stored(failing, **rotated),
    )


# -- Steady mode ---------------------------------------------------------------------


def steady_run(
    benchmarks: Sequence[str] = ("lu",), copies: int = 2, nodes: int = 1, **options: Any
) -> StoredRun:
    """Runs of 2 s, those of the last node and of the last copy 10 % slower; window 4 to 44 s."""
    rows: list[CopyEnded] = []
    for phase, name in enumerate(benchmarks):
        for copy in range(copies):
            node = copy * nodes // copies
            seconds = 2.0 * (1.1 if node and node == nodes - 1 else 1)
            seconds *= 1.1 if copy == copies - 1 else 1
            rows += in_turn(
                copy, [seconds] * 23, begin_s=60.0 * phase, phase=phase, benchmark=name, node=node
            )
    return windowed(rows, 4.0, 44.0, **options)


def barrier(benchmarks: Sequence[str] = ("lu",), copies: int = 2, **options: Any) -> StoredRun:
    """The same with a barrier: 2 s, the last copy 2.2 s."""
    rows = [
        copy_row(copy, 2.2 if copy == copies - 1 else 2.0, phase=phase, benchmark=name, node=0)
        for phase, name in enumerate(benchmarks)
        for copy in range(copies)
    ]
    return stored(rows, copies=copies, **options)


def gapped(benchmarks: Sequence[str] = ("lu",), gap_s: float = 1.0) -> StoredRun:
    """Runs of 1 s, those of the last benchmark after gaps."""
    rows = []
    for phase, name in enumerate(benchmarks):
        every_s = 1.0 + (gap_s if name == benchmarks[-1] else 0.001)
        rows += [
            copy_row(copy, 1.0, step=s, start_ns=round((100 * phase + s * every_s) * S),
                     phase=phase, benchmark=name, node=0)
            for copy in range(2) for s in range(45)
        ]  # fmt: skip
    return windowed(rows, 4.0, 44.0)


def drifting() -> StoredRun:
    """One calm window, one whose second half is slower, one too short to tell."""
    rows: list[CopyEnded] = []
    for phase, (name, second) in enumerate([("calm", 1.0), ("tired", 1.2), ("long", 1.0)]):
        for copy in range(2):
            seconds = [1.0] * 22 + [second] * 20 if name != "long" else [15.0] * 3
            rows += in_turn(copy, seconds, begin_s=99.0 * phase, phase=phase, benchmark=name)
    return windowed(rows, 2.0, 42.0)


def steady(folder: Path) -> None:
    """Windows that are steady, that drift, that are too short, in which copies hardly ran."""
    failing = steady_run()
    rows = list(failing.copies)
    for step in (7, 8, 30):
        rows[step] = replace(rows[step], status=CopyStatus.FAILED, exit_code=3)
    cut = steady_run(status=RunStatus.INTERRUPTED, reason="by SIGINT")
    open_windows = [
        replace(bracket, window_start_ns=None, window_finish_ns=None) for bracket in cut.brackets
    ]
    longer_gaps = [
        copy_row(copy, 0.1, step=step, start_ns=round((step * 0.2 + max(0, step - 120) * 0.1) * S))
        for copy in range(2)
        for step in range(200)
    ]
    command = gapped()
    _keep(
        folder,
        steady_run(copies=8, nodes=2),
        drifting(),
        windowed(in_turn(0, [2.0] * 4), 2.0, 6.0),
        windowed(in_turn(0, [2.0] * 7), 2.0, 10.0),
        replace(failing, copies=tuple(rows)),
        replace(cut, brackets=tuple(open_windows)),
        gapped(),
        replace(command, head=replace(command.head, suite=None, size=None, tune=None)),
        gapped(("calm", "gappy")),
        gapped(("calm", "calmer"), gap_s=0.01),
        windowed(longer_gaps, 4.0, 44.0),
    )


def steady_beside(folder: Path) -> None:
    """Steady runs with a run of the same copies that waited for each other, stored as well."""
    rested = [json.dumps({"environment": [], "cooldown_s": rest}) for rest in (0.0, 5.0)]
    alike = [
        row for copy in range(2) for row in in_turn(copy, [2.0] * 24, node=0, benchmark="even")
    ]
    _keep(
        folder,
        barrier(),
        steady_run(),
        gapped(),
        barrier(("calm", "gappy")),
        gapped(("calm", "gappy")),
        stored([copy_row(copy, 2.0, node=0, benchmark="even") for copy in range(2)]),
        windowed(alike, 4.0, 44.0),
        barrier(("rested",), request=rested[1]),
        steady_run(("rested",), request=rested[0]),
    )


def steady_many(folder: Path) -> None:
    """Fourteen windows, three times, of 8 copies on four nodes, the last of which is slow."""
    names = (*(f"bench-{number}" for number in range(13)), LONG)
    once = steady_run(names, 8, 4)
    rows = [
        replace(row, phase=row.phase + 14 * iteration, iteration=iteration + 1)
        for iteration in range(3)
        for row in once.copies
    ]
    _keep(folder, barrier(names, 8), windowed(rows, 4.0, 44.0, iterations=3))


def mixed(copies: int = 2) -> StoredRun:
    """Steady in rotated order: runs of 1 s (a) and 3 s (b)."""
    rows: list[CopyEnded] = []
    for copy in range(copies):
        ring = "ab" if copy % 2 == 0 else "ba"
        seconds = [1.0 if ring[step % 2] == "a" else 3.0 for step in range(24)]
        rows += in_turn(copy, seconds, names=ring, node=copy * 2 // copies)
    return windowed(rows, 4.0, 44.0, order="rotated", benchmarks=("a", "b"))


def steady_mix(folder: Path) -> None:
    """Steady in rotated order, alone and beside a rotated run."""
    gaps = [
        copy_row(
            copy,
            1.0,
            step=step,
            start_ns=round(step * 2 * S),
            benchmark="ab"[(copy + step) % 2],
            node=0,
        )
        for copy in range(2)
        for step in range(24)
    ]
    rotated: dict[str, Any] = {"mode": "rotated", "order": "rotated", "benchmarks": ("a", "b")}
    _keep(
        folder,
        mixed(128),
        stored(
            [*in_turn(0, [1.0, 3.0], names="ab"), *in_turn(1, [3.0, 2.0], names="ba")], **rotated
        ),
        mixed(),
        windowed(gaps, 4.0, 44.0, order="rotated", benchmarks=("a", "b")),
    )


# -- What was seen of copies while they ran -------------------------------------------------------


def placement(folder: Path) -> None:
    """Copies and memory as planned and astray, of copies that are bound and not, of windows."""
    bare = seen_run()
    free = tuple(
        Placement(
            copy=copy,
            cpus=None,
            cpu=None,
            core=None,
            llc=None,
            node=None,
            package=None,
            memory_policy=MemoryPolicy.NONE,
            memory_nodes=(),
        )
        for copy in range(4)
    )
    discarded = seen_run(discard=1)
    gate = GateFacts((0,), (0, 1))
    four = [
        copy_row(0, 3.0, phase=number, benchmark=name, gate=gate)
        for number, name in enumerate("abcd")
    ]
    samples = (sample({0: MB}, phase=phase, copy=0, cpus=(0,), allowed=(0,)) for phase in range(4))
    window = [
        row
        for number in range(2)
        for row in in_turn(
            number, [1.0] * 10, node=0, last_cpu=number, gate=GateFacts((number or 3,), (0,))
        )
    ]
    turned = [
        row
        for number in range(2)
        for row in in_turn(
            number, [1.0, 2.0], names="ab", node=0, gate=GateFacts((number or 3,), (0,))
        )
    ]
    of_two: dict[str, Any] = {"placements": PLACED[:2], "pus": FOUR_PUS}
    _keep(
        folder,
        seen_run(),
        seen_run(remote=None),
        replace(
            bare, samples=(), observed=None,
            copies=tuple(replace(copy, gate=None) for copy in bare.copies),
        ),
        replace(seen_run(), placements=free),
        replace(
            discarded,
            copies=tuple(replace(copy, counted=copy.iteration > 1) for copy in discarded.copies),
            brackets=tuple(
                replace(bracket, counted=(bracket.iteration or 0) > 1)
                for bracket in discarded.brackets
            ),
        ),
        replace(
            stored(four, copies=1), placements=PLACED[:1], pus=FOUR_PUS, samples=tuple(samples)
        ),
        replace(windowed(window, 2.0, 8.0), **of_two),
        replace(stored(turned, mode="rotated", order="rotated", copies=2), **of_two),
    )  # fmt: skip


def cpus(folder: Path) -> None:
    """What CPUs did: other processes, a hypervisor, heat; memory that tasks waited for."""
    busy = [
        reading(
            0,
            9,
            0.1,
            irq_ns=S // 10,
            idle_ns=S // 2,
            mean_khz=3_000_000,
            throttles=0,
            interrupts=12_000,
        ),
        reading(1, idle_ns=10 * S, mean_khz=1_200_000, throttles=0, interrupts=40),
        reading(2, 9, 1, steal_ns=S // 5, mean_khz=2_400_000, throttles=3, interrupts=2_000),
        reading(3, 4, idle_ns=6 * S, throttles=0, interrupts=400),
    ]
    pair = [computed(0, 9.0, cpu=0), computed(1, 9.0, cpu=2)]
    machine: dict[str, Any] = {
        "pgmajfault": 1,
        "pgmigrate_success": 7,
        "pressure_io_some_ns": S // 10,
        "pressure_memory_some_ns": 0,
        "rater_cpu_ns": S // 100,
    }
    starved = read_run(
        [computed(copy, 5.0) for copy in range(3)],
        *(reading(copy, 6.0 + copy) for copy in range(3)),
        pswpout=1, pressure_memory_some_ns=S,
    )  # fmt: skip
    unread = replace(read_run([computed(0, 1.0)]), cpu_readings=(), machine_readings=())
    burn = ForeignProcess(
        phase=0, cpu=2, pid=4321, name="burn", cpu_ns=4 * S // 5, observed_ns=8 * S
    )
    named = replace(read_run(pair, *busy, **machine), foreign_processes=(burn,))
    _keep(folder, named, starved, unread)


def over_time(folder: Path) -> None:
    """Series: copy 0 reads at its start, others have half of a CPU for three seconds; none."""
    _keep(folder, busy_run(), stored([copy_row(0, 1.0)], copies=1))


def counters(folder: Path) -> None:
    """Counters of all groups in full; of one group for half of the time, in user mode; none."""
    _keep(
        folder,
        counted_run(),
        counted_run(("pipeline",), running=0.5, end=":u"),
        stored([copy_row(0, 1.0)], copies=1),
    )


# -- Metrics ---------------------------------------------------------------------


def reporting(copies: int, nodes: int, iterations: int = 1) -> StoredRun:
    """Copies that report a rate, to be added up, and a latency, to be averaged."""
    rows = [
        replace(
            copy_row(
                copy,
                10.0,
                phase=phase,
                iteration=phase + 1,
                benchmark="stream",
                node=copy * nodes // copies,
            ),
            metrics=(("triad", 12.5 - copy / copies), ("load latency", 95.31 + copy / copies)),
        )
        for phase in range(iterations)
        for copy in range(copies)
    ]
    run = stored(rows, copies=copies, iterations=iterations, suite="memory")
    metrics = (
        MetricUsed("triad", "GB/s", "higher", "sum"),
        MetricUsed("load latency", "ns", "lower", "mean"),
    )
    return replace(run, benchmarks=(replace(run.benchmarks[0], metrics=metrics),))


def with_values(of: Sequence[tuple[str, str, str]], values: Sequence[Sequence[float]]) -> StoredRun:
    """Metrics (name, unit, how they are combined) of which copy c reported values[c]."""
    rows = [
        replace(
            copy_row(c, 1.0, node=c),
            metrics=tuple((name, value) for (name, _, _), value in zip(of, them, strict=True)),
        )
        for c, them in enumerate(values)
    ]
    run = stored(rows, copies=len(values))
    metrics = tuple(MetricUsed(name, unit, "lower", combine) for name, unit, combine in of)
    return replace(run, benchmarks=(replace(run.benchmarks[0], metrics=metrics),))


def metrics(folder: Path) -> None:
    """Metrics of few and many copies and nodes, tiny and huge ones, with values that lack."""
    lacking = reporting(2, 1)
    lacking = replace(lacking, copies=(lacking.copies[0], replace(lacking.copies[1], metrics=())))
    sizes = [(name, "s", "mean") for name in ("tiny", "huge", "digits", "usual")]
    _keep(
        folder,
        reporting(2, 1),
        reporting(4, 2),
        lacking,
        reporting(128, 64, 3),
        with_values(sizes, [[3.2e-9, 1.8e19, 1e200, 1.5], [3.4e-9, 1.9e19, 2e200, 2.5]]),
        with_values([("speed", "u" * 300, "mean")], [[1.5], [2.5]]),
        with_values([("tiny", "s", "mean")], [[(copy + 1) * 1e-9] for copy in range(20)]),
        with_values([("much", "s", "sum")], [[1e308], [1.2e308]]),
    )
