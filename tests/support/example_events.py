"""A run and its events in a few words, for tests of what is shown while copies run."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from rater.plan.sweep import BlockOrder, SweepSpec
from rater.record.events import CopyEnded, CopyStarted, Event, PhaseEnded, PhaseStarted
from rater.record.run import (
    BenchmarkUsed,
    CopyStatus,
    Host,
    MemoryPolicy,
    Placement,
    RunStatus,
    Validity,
)
from rater.record.stored import RunHead, StoredRun

S = 1_000_000_000  # nanoseconds
HOST = Host(
    fingerprint="f",
    hostname="node7",
    machine_id_hash="m",
    cpu_model="CPU 9000",
    microcode="0x1",
    vendor="Maker",
    memory_bytes=64,
    pus=4,
    cores=2,
    nodes=1,
    packages=1,
    architecture="x86_64",
    product="Box",
)
SWEEP_ASKED = SweepSpec(
    uuid="",
    started_at="2026-11-20T12:00:00Z",
    rounds=1,
    block_order=BlockOrder.SHUFFLED,
    seed=1,
    until=None,
    stop_on_failure=False,
    suite="mini",
    command_line="rater sweep",
    rater_version="0.1.0",
    directory="/",
)


def run_of(
    copies: int,
    lgroups: int = 1,
    *,
    names: Sequence[str] = ("gups",),
    order: str = "homogeneous",
    iterations: int = 1,
    bound: bool = True,
    window_s: tuple[float, float] | None = None,
) -> StoredRun:
    """Copies in equal shares on the lgroups, one after another, copy n on CPU n.

    With a window (when it opens and closes) in steady mode.
    """
    head = RunHead(
        run=0,
        uuid="u",
        source="run",
        status=RunStatus.RUNNING,
        reason=None,
        elapsed_s=None,
        hostname=HOST.hostname,
        started_at="2026-11-20T12:00:00Z",
        mode="steady" if window_s else order,
        order=order,
        copies=copies,
        iterations=iterations,
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
        benchmarks=tuple(names),
        warmup_s=window_s[0] if window_s else None,
        window_s=window_s[1] - window_s[0] if window_s else None,
    )
    return StoredRun(
        head=head,
        host=HOST,
        benchmarks=tuple(
            BenchmarkUsed(
                name=n,
                category=None,
                command=n,
                reference_s=None,
                binary_sha256=None,
                compiler=None,
                flags=None,
            )
            for n in names
        ),
        placements=tuple(
            Placement(
                copy=copy,
                cpus=(copy,),
                cpu=copy,
                core=copy,
                llc=0,
                node=copy * lgroups // copies,
                package=0,
                memory_policy=MemoryPolicy.LOCAL,
                memory_nodes=(),
            )
            if bound
            else Placement(
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
            for copy in range(copies)
        ),
    )


def phase(
    number: int = 0,
    *,
    name: str | None = "gups",
    iteration: int | None = 1,
    total: int = 1,
    expected_s: float | None = None,
    counted: bool = True,
    window_s: tuple[float, float] | None = None,
) -> PhaseStarted:
    window_ns = (round(window_s[0] * S), round(window_s[1] * S)) if window_s else None
    return PhaseStarted(
        phase=number,
        benchmark=name,
        iteration=iteration,
        counted=counted,
        total_phases=total,
        expected_s=expected_s,
        window_ns=window_ns,
    )


def started(copy: int, at_s: float = 0.0, *, name: str = "gups", step: int = 0) -> CopyStarted:
    return CopyStarted(
        phase=0,
        benchmark=name,
        iteration=1,
        copy=copy,
        step=step,
        start_ns=round(at_s * S),
        planned_start_ns=None,
    )


def ended(
    copy: int,
    finish_s: float,
    *,
    start_s: float = 0.0,
    name: str = "gups",
    step: int = 0,
    status: CopyStatus = CopyStatus.OK,
    signal: int | None = None,
    user_ns: int = 0,
    system_ns: int = 0,
    gate_cpu_ns: int = 0,
) -> CopyEnded:
    """Of a copy that is nowhere: `placed` says where it is."""
    start_ns, finish_ns = round(start_s * S), round(finish_s * S)
    return CopyEnded(
        phase=0,
        benchmark=name,
        tune=None,
        iteration=1,
        copy=copy,
        step=step,
        counted=True,
        cpu=None,
        core=None,
        llc=None,
        node=None,
        package=None,
        mem_nodes=(),
        planned_start_ns=None,
        start_ns=start_ns,
        finish_ns=finish_ns,
        elapsed_ns=finish_ns - start_ns,
        status=status,
        exit_code=None if signal else 0,
        signal=signal,
        validity=Validity.UNCHECKED,
        validity_detail=None,
        cpu_ns=max(0, user_ns + system_ns - gate_cpu_ns),
        user_ns=user_ns,
        system_ns=system_ns,
        gate_cpu_ns=gate_cpu_ns,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
        pid=100 + copy,
    )


def placed(event: Event, placements: Mapping[int, Placement], discard: int = 0) -> Event:
    """The event of a copy that ended with where it was, as the supervisor says it."""
    placement = placements.get(event.copy) if isinstance(event, CopyEnded) else None
    if not isinstance(event, CopyEnded) or placement is None:
        return event
    return replace(
        event,
        counted=event.iteration > discard,
        cpu=placement.cpu,
        core=placement.core,
        llc=placement.llc,
        node=placement.node,
        package=placement.package,
        mem_nodes=placement.memory_nodes,
    )


def with_head(run: StoredRun, **changes: Any) -> StoredRun:
    """The run with other values in its head."""
    return replace(run, head=replace(run.head, **changes))


def over(
    start_s: float,
    finish_s: float,
    *,
    number: int = 0,
    name: str | None = "gups",
    iteration: int | None = 1,
    complete: bool = True,
    window_s: tuple[float, float] | None = None,
) -> PhaseEnded:
    """The window, if any, on the clock of the events."""
    start_ns, finish_ns = round(start_s * S), round(finish_s * S)
    begin_ns, end_ns = (round(at_s * S) for at_s in window_s) if window_s else (None, None)
    return PhaseEnded(
        phase=number,
        benchmark=name,
        iteration=iteration,
        tune=None,
        counted=True,
        start_ns=start_ns,
        finish_ns=finish_ns,
        last_start_ns=start_ns,
        first_finish_ns=finish_ns,
        complete=complete,
        window_start_ns=begin_ns,
        window_finish_ns=end_ns,
    )
