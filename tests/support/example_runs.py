"""Stored runs in a few words, for tests of what is computed and shown from them."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from rater.record.events import CopyEnded, CpuReading, MachineReadings, PhaseEnded
from rater.record.run import BenchmarkUsed, CopyStatus, Host, RunStatus, Validity
from rater.record.stored import RunHead, StoredRun

S = 1_000_000_000  # nanoseconds
HEAD = RunHead(
    run=7,
    uuid="u-7",
    source="run",
    status=RunStatus.COMPLETE,
    reason=None,
    started_at="2026-11-20T12:00:00Z",
    elapsed_s=10.0,
    hostname="h",
    mode="homogeneous",
    order="homogeneous",
    copies=2,
    iterations=1,
    discard=0,
    stagger_ms=0.0,
    increment=1,
    suite="mini",
    size="test",
    tune="base",
    layout="balanced",
    memory="local",
    timeout_s=None,
    wrap=None,
    command_line="rater run",
    rater_version="0.1.0",
    benchmarks=("a",),
    tags=(),
)


def reading(cpu: int, user_s: float = 0.0, system_s: float = 0.0, **changes: Any) -> CpuReading:
    """A CPU that did this much and nothing else."""
    row = CpuReading(
        cpu=cpu,
        user_ns=round(user_s * S),
        system_ns=round(system_s * S),
        iowait_ns=0,
        irq_ns=0,
        steal_ns=0,
        idle_ns=0,
        mean_khz=None,
        throttles=None,
        interrupts=None,
    )
    return replace(row, **changes)


def copy_row(number: int, seconds: float, **changes: Any) -> CopyEnded:
    """One good copy of benchmark a in phase 0 on CPU and node of its own number."""
    start_ns = changes.pop("start_ns", 0)
    row = CopyEnded(
        phase=0,
        benchmark="a",
        tune="base",
        iteration=1,
        copy=number,
        step=0,
        counted=True,
        cpu=number,
        core=number,
        llc=0,
        node=number,
        package=0,
        mem_nodes=(),
        planned_start_ns=start_ns,
        start_ns=start_ns,
        finish_ns=start_ns + round(seconds * S),
        elapsed_ns=round(seconds * S),
        status=CopyStatus.OK,
        exit_code=0,
        signal=None,
        validity=Validity.VALID,
        validity_detail=None,
        cpu_ns=1,
        user_ns=1,
        system_ns=0,
        gate_cpu_ns=0,
        max_rss_bytes=None,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
        pid=100 + number,
        note=None,
        run_dir=None,
    )
    return replace(row, **changes)


def stored(
    rows: Sequence[CopyEnded],
    *,
    reference_s: float | None = 10.0,
    categories: dict[str, str] | None = None,
    closed: bool = True,
    **head: Any,
) -> StoredRun:
    """A run whose brackets and benchmarks follow from its copies."""
    names = head.setdefault("benchmarks", tuple(dict.fromkeys(row.benchmark for row in rows)))
    phases: dict[int, list[CopyEnded]] = {}
    for copy in rows:
        phases.setdefault(copy.phase, []).append(copy)
    rotated = head.get("order") == "rotated"
    return StoredRun(
        head=replace(HEAD, **head),
        host=Host(
            fingerprint="f",
            hostname="h",
            machine_id_hash=None,
            cpu_model=None,
            microcode=None,
            vendor=None,
            memory_bytes=None,
            pus=2,
            cores=2,
            nodes=2,
            packages=1,
        ),
        settings=(),
        environment=(),
        benchmarks=tuple(
            BenchmarkUsed(
                name=name,
                category=(categories or {}).get(name),
                command=name,
                reference_s=reference_s,
                binary_sha256=None,
                compiler=None,
                flags=None,
            )
            for name in names
        ),
        placements=(),
        pus=(),
        brackets=tuple(
            PhaseEnded(
                phase=phase,
                benchmark=None if rotated else members[0].benchmark,
                iteration=None if rotated else members[0].iteration,
                tune=members[0].tune,
                counted=members[0].counted,
                start_ns=min(member.start_ns or 0 for member in members) if closed else None,
                finish_ns=max(member.finish_ns or 0 for member in members) if closed else None,
                last_start_ns=max(member.start_ns or 0 for member in members) if closed else None,
                first_finish_ns=min(member.finish_ns or 0 for member in members)
                if closed
                else None,
                complete=closed,
            )
            for phase, members in phases.items()
        ),
        copies=tuple(rows),
        warnings=("w",),
        notes=("n",),
    )


def with_energy(run: StoredRun, *joules: float) -> StoredRun:
    """The run with the energy of its one package in each phase of 10 s; all of it its own."""
    return replace(
        run,
        host=replace(run.host, pus=None),
        machine_readings=tuple(
            MachineReadings(
                phase, (("elapsed_ns", 10 * S), ("energy_package-0_uj", round(joule * 1e6)))
            )
            for phase, joule in enumerate(joules)
        ),
    )


def in_turn(
    number: int, seconds: Sequence[float], *, begin_s: float = 0.0, names: str = "a", **changes: Any
) -> list[CopyEnded]:
    """A copy's successive runs without a gap; `names`: a letter for each benchmark, repeated."""
    rows = []
    at_s = begin_s
    for step, time_s in enumerate(seconds):
        start_ns = round(at_s * S)
        name = changes.get("benchmark", names[step % len(names)])
        options = {**changes, "benchmark": name, "step": step, "start_ns": start_ns}
        rows.append(copy_row(number, time_s, **options))
        at_s += time_s
    return rows


def windowed(
    rows: Sequence[CopyEnded], begin_s: float, finish_s: float, **options: Any
) -> StoredRun:
    """A steady run; the window of each phase, from the phase's first release."""
    given = {
        "mode": "steady",
        "warmup_s": begin_s,
        "window_s": finish_s - begin_s,
        "copies": len({row.copy for row in rows}),
        **options,
    }
    run = stored(rows, **given)
    iterations = {row.phase: row.iteration for row in rows}
    brackets = tuple(
        replace(
            bracket,
            iteration=iterations[bracket.phase],
            window_start_ns=(bracket.start_ns or 0) + round(begin_s * S),
            window_finish_ns=(bracket.start_ns or 0) + round(finish_s * S),
        )
        for bracket in run.brackets
    )
    return replace(run, brackets=brackets)
