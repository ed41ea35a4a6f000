"""A run and its events in a few words, for tests of what is shown while copies run."""

from collections.abc import Sequence

from rater.plan.sweep import BlockOrder
from rater.record.events import CopyEnded, CopyStarted, PhaseEnded, PhaseStarted
from rater.record.run import BenchmarkUsed, CopyStatus, MemoryPolicy, Placement, Run
from rater.store.sweeps import SweepSpec

S = 1_000_000_000  # nanoseconds
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
) -> Run:
    """Copies in equal shares on the lgroups, one after another, copy n on CPU n.

    With a window (when it opens and closes) in steady mode.
    """
    return Run(
        uuid="u",
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
        benchmarks=tuple(BenchmarkUsed(n, None, n, None, None, None, None) for n in names),
        placements=tuple(
            Placement(c, (c,), c, c, 0, c * lgroups // copies, 0, MemoryPolicy.LOCAL, ())
            if bound
            else Placement(c, None, None, None, None, None, None, MemoryPolicy.NONE, ())
            for c in range(copies)
        ),
        warmup_s=window_s[0] if window_s else None,
        window_s=window_s[1] - window_s[0] if window_s else None,
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
    return PhaseStarted(number, name, iteration, counted, total, expected_s, window_ns)


def started(copy: int, at_s: float = 0.0, *, name: str = "gups", step: int = 0) -> CopyStarted:
    return CopyStarted(0, name, 1, copy, step, round(at_s * S), None)


def ended(
    copy: int,
    finish_s: float,
    *,
    start_s: float = 0.0,
    name: str = "gups",
    step: int = 0,
    status: CopyStatus = CopyStatus.OK,
    signal: int | None = None,
) -> CopyEnded:
    return CopyEnded(
        phase=0,
        benchmark=name,
        iteration=1,
        copy=copy,
        step=step,
        pid=100 + copy,
        start_ns=round(start_s * S),
        planned_start_ns=None,
        finish_ns=round(finish_s * S),
        status=status,
        exit_code=None if signal else 0,
        signal=signal,
        user_ns=0,
        system_ns=0,
        gate_cpu_ns=0,
        max_rss_bytes=None,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
        note=None,
        run_dir=None,
    )


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
        counted=True,
        start_ns=start_ns,
        finish_ns=finish_ns,
        last_start_ns=start_ns,
        first_finish_ns=finish_ns,
        complete=complete,
        window_start_ns=begin_ns,
        window_finish_ns=end_ns,
    )
