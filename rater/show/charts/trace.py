"""A run as a trace of events for viewers such as Perfetto and Chrome's `about:tracing`; pure.

A NUMA node is a process and a CPU a thread of it. A copy's run is a slice on its CPU, with the
commands it ran inside. The brackets are slices of a process for the whole machine. Series are
counters. Format: "Trace Event Format" of the Chromium project; times are microseconds from the
run's first release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from rater.analysis.results.periods import notable_periods, period_text
from rater.analysis.results.result import failure_text
from rater.analysis.results.series import CpuGroupTimes, PhaseTimes, Values
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.stored import StoredRun, is_good
from rater.show.screen.format import sanitize
from rater.text.cpuset import format_list
from rater.text.values import group_by_key

type TraceEvent = dict[str, Any]

_MACHINE = 0  # number of the process of the whole machine; that of NUMA node N is N + 1
_NOT_BOUND = 1_000_000  # of copies without a CPU; a copy is a thread of it
_LANE = 1_000_000  # threads of one CPU on which several copies ran at a time are so far apart
_BRACKETS, _WINDOWS = 0, 1  # threads of the machine; those behind them have places in time
_MACHINE_THREADS = {_BRACKETS: "brackets", _WINDOWS: "windows"}
_MEGABYTE = 1e6


def trace_document(run: StoredRun, phases: Sequence[PhaseTimes]) -> dict[str, Any]:
    """Return a run and its series as a trace; torn attempts are left out."""
    run = run.without_torn()
    slices = [*_bracket_slices(run), *_period_slices(phases), *_copy_slices(run)]
    nodes = {pu.cpu: pu.node for pu in run.pus} | {
        copy.cpu: copy.node for copy in run.copies if copy.cpu is not None
    }
    counters = [event for phase in phases for event in _counters(phase, nodes)]
    threads = {(event["pid"], event["tid"]) for event in slices}
    events = sorted([*slices, *counters], key=itemgetter("ts"))
    processes = {event["pid"] for event in events}
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "run": run.head.run,
            "uuid": run.head.uuid,
            "host": sanitize(run.head.hostname or ""),
            "started_at": run.head.started_at,
        },
        "traceEvents": [*_names(processes, threads, run), *events],
    }


def _names(
    processes: Iterable[int], threads: Iterable[tuple[int, int]], run: StoredRun
) -> Iterator[TraceEvent]:
    """Yield what processes and threads are called, and their order."""
    for process in sorted(processes):
        name = f"NUMA node {process - 1}"
        if process == _MACHINE:
            name = f"run {run.head.run}: the machine"
        elif process == _NOT_BOUND:
            name = "copies that are not bound"
        yield _metadata("process_name", process, 0, {"name": name})
        yield _metadata("process_sort_index", process, 0, {"sort_index": process})
    for process, thread in sorted(threads):
        lane, number = divmod(thread, _LANE)
        name = f"CPU {number}" if process != _NOT_BOUND else f"copy {number}"
        if process == _MACHINE:
            name = _MACHINE_THREADS.get(thread, "over time")
        elif lane:
            name += f", copies beside the first: {lane}"
        yield _metadata("thread_name", process, thread, {"name": name})
        order = number * 1000 + min(lane, 999)
        yield _metadata("thread_sort_index", process, thread, {"sort_index": order})


def _metadata(kind: str, process: int, thread: int, values: dict[str, object]) -> TraceEvent:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": values}


def _slice(
    name: str, process: int, thread: int, *, start_ns: int, finish_ns: int, **arguments: object
) -> TraceEvent:
    """Return a slice, with begin and end on whole nanoseconds so that nested ones stay nested."""
    return {
        "ph": "X",
        "name": name,
        "pid": process,
        "tid": thread,
        "ts": start_ns / 1000,
        "dur": (finish_ns - start_ns) / 1000,
        "args": {key: value for key, value in arguments.items() if value is not None},
    }


def _bracket_slices(run: StoredRun) -> Iterator[TraceEvent]:
    for bracket in run.brackets:
        if bracket.start_ns is None or bracket.finish_ns is None:
            continue
        name = _bracket_name(bracket)
        yield _slice(
            name,
            _MACHINE,
            _BRACKETS,
            start_ns=bracket.start_ns,
            finish_ns=bracket.finish_ns,
            phase=bracket.phase,
            iteration=bracket.iteration,
            counted=bracket.counted,
            complete=bracket.complete,
        )
        if bracket.window_start_ns is not None and bracket.window_finish_ns is not None:
            yield _slice(
                f"window of {name}",
                _MACHINE,
                _WINDOWS,
                start_ns=bracket.window_start_ns,
                finish_ns=bracket.window_finish_ns,
            )


def _period_slices(phases: Sequence[PhaseTimes]) -> Iterator[TraceEvent]:
    """Yield a slice for each place in time, those that overlap in threads of their own."""
    phase_by_number = {phase.phase: phase for phase in phases}
    periods = [one for period in notable_periods(phases) for one in period.each]
    ends_ns: list[int] = []  # of the last slice in each lane
    for period in sorted(periods, key=lambda it: (phase_by_number[it.phase].start_ns, it.begin_s)):
        phase = phase_by_number[period.phase]
        start_ns = phase.start_ns + round(period.begin_s * 1e9)
        finish_ns = phase.start_ns + round(period.end_s * 1e9)
        lanes = (lane for lane, end_ns in enumerate(ends_ns) if end_ns <= start_ns)
        lane = next(lanes, len(ends_ns))
        ends_ns[lane : lane + 1] = [finish_ns]
        yield _slice(
            period_text(period, is_named=False),
            _MACHINE,
            _WINDOWS + 1 + lane,
            start_ns=start_ns,
            finish_ns=finish_ns,
            kind=period.kind.value,
            cpus=[*period.cpus] or None,
            copies=[*period.copies] or None,
            phase=period.phase,
        )


def _bracket_name(bracket: PhaseEnded) -> str:
    name = "all benchmarks" if bracket.benchmark is None else sanitize(bracket.benchmark)
    return name if bracket.iteration is None else f"{name}, iteration {bracket.iteration}"


def _copy_slices(run: StoredRun) -> Iterator[TraceEvent]:
    """Yield a slice for each run of a copy, and inside one for each of its commands."""
    timed = [copy for copy in run.copies if copy.start_ns is not None]
    by_thread = group_by_key((_thread_of(copy), copy) for copy in timed)
    for (process, number), copies in by_thread.items():
        ends_ns: list[int] = []  # of the last slice in each lane
        for copy in sorted(copies, key=lambda it: (it.start_ns or 0, it.copy, it.step)):
            start_ns = copy.start_ns or 0
            finish_ns = start_ns + copy.elapsed_ns
            lanes = (lane for lane, end_ns in enumerate(ends_ns) if end_ns <= start_ns)
            lane = next(lanes, len(ends_ns))
            ends_ns[lane : lane + 1] = [finish_ns]
            yield from _slices_of_copy(copy, process, number + lane * _LANE)


def _thread_of(copy: CopyEnded) -> tuple[int, int]:
    if copy.cpu is None:
        return _NOT_BOUND, copy.copy
    return (0 if copy.node is None else copy.node) + 1, copy.cpu


def _slices_of_copy(copy: CopyEnded, process: int, thread: int) -> Iterator[TraceEvent]:
    start_ns = copy.start_ns or 0
    finish_ns = start_ns + copy.elapsed_ns
    yield _slice(
        f"{sanitize(copy.benchmark)}, copy {copy.copy}",
        process,
        thread,
        start_ns=start_ns,
        finish_ns=finish_ns,
        copy=copy.copy,
        iteration=copy.iteration,
        step=copy.step,
        phase=copy.phase,
        cpu_s=copy.cpu_s,
        run_delay_s=None if copy.run_delay_ns is None else copy.run_delay_ns / 1e9,
        failure=None if is_good(copy) else failure_text(copy),
    )
    for command in copy.workloads:
        if command.start_ns is None or command.finish_ns is None:
            continue
        begin_ns = min(max(command.start_ns, start_ns), finish_ns)
        end_ns = max(begin_ns, min(command.finish_ns, finish_ns))
        name = f"command {command.workload}"
        yield _slice(name, process, thread, start_ns=begin_ns, finish_ns=end_ns)


# -- Series as counters ----------------------------------------------------------------------------


def _counters(phase: PhaseTimes, nodes: Mapping[int, int | None]) -> Iterator[TraceEvent]:
    for cpus in phase.cpus:
        process = (nodes.get(cpus.cpus[0]) or 0) + 1
        yield from _cpu_counters(phase, cpus, process)
    for node, values in phase.free_bytes.items():
        yield from _counter(phase, node + 1, "free memory, MB", {"MB": (values, 1 / _MEGABYTE)})
    pressure = {name: (values, 100.0) for name, values in phase.pressure.items()}
    yield from _counter(phase, _MACHINE, "tasks waited for, %", pressure)
    rates = {name: (values, 1 / _MEGABYTE) for name, values in phase.rates.items()}
    yield from _counter(phase, _MACHINE, "disks, MB/s", rates)
    moved = {"read": (phase.read_rate(), 1 / _MEGABYTE)}
    moved["written"] = (phase.written_rate(), 1 / _MEGABYTE)
    yield from _counter(phase, _MACHINE, "copies, MB/s", moved)
    watts = {name: (values, 1.0) for name, values in phase.watts.items()}
    yield from _counter(phase, _MACHINE, "watts", watts)
    throttled = {"CPUs": (phase.throttled, 1.0)}
    yield from _counter(phase, _MACHINE, "kept off by the CPU quota, CPUs", throttled)
    for number, values in phase.temperatures_c.items():
        yield from _counter(phase, _MACHINE, f"package {number}, degrees C", {"C": (values, 1.0)})
    for place in sorted({place for by_place in phase.traffic.values() for place in by_place}):
        kinds = {
            kind: (by_place[place], 1 / _MEGABYTE)
            for kind, by_place in phase.traffic.items()
            if place in by_place
        }
        yield from _counter(phase, place + 1, "memory traffic, MB/s", kinds)


def _cpu_counters(phase: PhaseTimes, cpus: CpuGroupTimes, process: int) -> Iterator[TraceEvent]:
    name = f"CPU {format_list(cpus.cpus)}"
    shares = {"copies": cpus.own, "others": cpus.others, "irq": cpus.irq, "steal": cpus.steal}
    used = {kind: (values, 100.0) for kind, values in shares.items()}
    yield from _counter(phase, process, f"{name}, %", used)
    yield from _counter(phase, process, f"{name}, MHz", {"MHz": (cpus.mhz, 1.0)})
    yield from _counter(phase, process, f"{name}, throttled", {"times/s": (cpus.throttles, 1.0)})


def _counter(
    phase: PhaseTimes, process: int, name: str, values: Mapping[str, tuple[Values, float]]
) -> Iterator[TraceEvent]:
    """Yield a counter's steps: it has an interval's value from its begin, and ends with 0.

    What is not known in an interval is left out of its step; a counter that is never known, or
    throughout 0, is none.
    """
    if not any(value for series, _ in values.values() for value in series):
        return
    edges_us = [max(0.0, at_ns / 1000) for at_ns in phase.edges_ns]
    for number, at_us in enumerate(edges_us[:-1]):
        step = {
            kind: round(value * scale, 3)
            for kind, (series, scale) in values.items()
            if number < len(series) and (value := series[number]) is not None
        }
        if step:
            yield _step(process, name, at_us, step)
    yield _step(process, name, edges_us[-1], dict.fromkeys(values, 0.0))


def _step(process: int, name: str, at_us: float, values: dict[str, float]) -> TraceEvent:
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": at_us, "args": values}
