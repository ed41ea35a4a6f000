"""One attempt at a run, and its head: stored before the first phase."""

from __future__ import annotations

import os
import shlex
import sys
import uuid as uuids
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from rater import __version__
from rater.analysis.compare.conditions import Conditions
from rater.plan.placement.layout import own_layout_text
from rater.plan.request import Request, request_to_json
from rater.plan.schedule import Phase, Plan
from rater.plan.suite_find import find_suite, split_selection
from rater.record.run import (
    BenchmarkUsed,
    MachinePU,
    MetricUsed,
    RunStatus,
    escape_undecodable,
)
from rater.record.stored import RunHead, StoredRun
from rater.run.host.facts import environment_snapshot, host_facts, settings_snapshot
from rater.run.host.hardware import hardware_facts
from rater.run.host.inherited import process_settings
from rater.run.host.thread_binding import realtime_priority
from rater.run.launcher.processor import processor_facts
from rater.run.programs.compile import BuiltProgram, sha256_of
from rater.run.programs.inputs import ReadyInput
from rater.run.programs.script import (
    CommandLine,
    digest_of_programs,
    digest_of_workload,
    shown,
)
from rater.settings.known import LAYOUT_TEXT
from rater.store.store import Store
from rater.text.cpuset import format_list
from rater.workflow.counters import counter_settings
from rater.workflow.run.prepare import PreparedRun
from rater.workflow.run.resolve import RunPlan, size_and_tune
from rater.workflow.run.workload import KITS, Workload, tuning_settings

# -- One attempt at a run: a new one here; `rerun`, `resume` and a sweep have their own ------------


class ActiveRun(Struct, frozen=True, kw_only=True):
    """A run that the database has, and what is to be run of it."""

    number: int
    phases: tuple[Phase, ...]
    elapsed_before_ns: int = 0  # the run's time at its next release
    runs_before: int = 0  # copy runs that are done,
    failed_before: int = 0  # and those of them that failed


class RunLauncher:
    """A new run."""

    def __init__(self) -> None:
        self.uuid = str(uuids.uuid4())
        self.number: int | None = None  # of the run; None: the database has not got it

    @property
    def mark(self) -> str:
        """What tells the processes of this attempt from all others."""
        return self.uuid

    @property
    def folder(self) -> Path:
        """Where its run directories go, below the folder of all runs; not there yet."""
        return Path(self.uuid)

    def enter(
        self, store: Store, plan: Plan, start: StoredRun, say: Callable[[str], None]
    ) -> ActiveRun:
        """Store that the run begins; `say` tells the user of something.

        Raises `InputError`, with nothing stored, when it must not begin like this.
        """
        self.number = store.create_run(start)
        return ActiveRun(number=self.number, phases=plan.phases)


# -- The head of a run and its conditions, stored before the first phase ---------------------------


def conditions_now(resolved: RunPlan) -> Conditions:
    """Return the conditions of a run that are known before anything is built."""
    path, sha256 = suite_files(resolved.request)
    topology = resolved.topology
    return Conditions(
        host=host_facts(topology),
        settings=_settings_now(resolved),
        pus=tuple(
            MachinePU(cpu=pu.os, core=pu.core, llc=pu.llc, node=pu.node, package=pu.package)
            for pu in topology.pus
        ),
        placements=tuple(resolved.placements),
        benchmarks=None,
        suite_path=path,
        suite_sha256=sha256,
        rater_version=__version__,
    )


def start_of(identity: str, ready: PreparedRun) -> StoredRun:
    """Return the first row of a run that begins now: its head and its conditions."""
    resolved = ready.resolved
    request, plan = resolved.request, resolved.plan
    benchmarks = tuple(
        _used(resolved, workload, program, lines, inputs)
        for workload, program, lines, inputs in zip(
            resolved.workloads, ready.built, ready.lines, ready.inputs, strict=True
        )
    )
    conditions = conditions_now(resolved)
    size, tune = size_and_tune(resolved)
    head = RunHead(
        run=0,  # the database gives it one
        uuid=identity,
        source="run",
        status=RunStatus.RUNNING,
        reason=None,
        started_at=utc_timestamp(),
        elapsed_s=None,
        hostname=conditions.host.hostname,
        mode=plan.mode,
        order=str(plan.order),
        copies=plan.copies,
        iterations=plan.iterations,
        discard=plan.discard,
        stagger_ms=plan.stagger_ns / 1e6,
        increment=plan.increment,
        suite=resolved.suite,
        size=size,
        tune=tune,
        layout=escape_undecodable(resolved.layout),
        memory=str(resolved.memory),
        timeout_s=request.timeout_s,
        wrap=escape_undecodable(shlex.join(request.wrap)) or None,
        command_line=escape_undecodable(shlex.join(["rater", *sys.argv[1:]])),
        rater_version=__version__,
        warmup_s=plan.window.warmup_ns / 1e9 if plan.window else None,
        window_s=plan.window.length_ns / 1e9 if plan.window else None,
        directory=directory_here(),
        request=request_to_json(request),
        suite_path=conditions.suite_path,
        suite_sha256=conditions.suite_sha256,
        benchmarks=tuple(used.name for used in benchmarks),
        tags=_storable_pairs(request.tags),
    )
    return StoredRun(
        head=head,
        host=conditions.host,
        settings=conditions.settings,
        environment=_storable_pairs(request.environment),
        benchmarks=benchmarks,
        placements=conditions.placements,
        pus=conditions.pus,
        warnings=resolved.warnings,
    )


def _used(
    resolved: RunPlan,
    workload: Workload,
    program: BuiltProgram,
    lines: tuple[CommandLine, ...],
    inputs: tuple[ReadyInput, ...],
) -> BenchmarkUsed:
    request, count = resolved.request, resolved.count
    benchmark, kit, suite = workload.benchmark, workload.kit, workload.suite
    others = (request.wrap, benchmark.setup, suite.setup if suite else ())
    return BenchmarkUsed(
        name=benchmark.name,
        category=benchmark.category,
        command=escape_undecodable(KITS().kit_command(kit) if kit else shown(lines)),
        reference_s=workload.size.reference_s,
        binary_sha256=program.sha256 if kit else digest_of_programs(program, lines),
        compiler=program.compiler,
        flags=program.flags,
        inputs_sha256=KITS().kit_digest(kit, request.wrap)
        if kit
        else digest_of_workload(workload.size, lines, inputs, others),
        threads=benchmark.threads,
        metrics=tuple(
            MetricUsed(metric.name, metric.unit, metric.better, metric.combine)
            for metric in (*benchmark.metrics, *([count.metric] if count else []))
        ),
    )


def directory_here() -> str:
    """Return where we are as text that leads back there, whatever bytes its name has."""
    directory = Path.cwd()
    return (
        str(directory)
        if escape_undecodable(str(directory)) == str(directory)
        else directory.as_uri()
    )


def suite_files(request: Request) -> tuple[str | None, str | None]:
    """Return paths and hashes of the suites that were asked for, a line each; None for none."""
    if request.of_kit:
        return KITS().kit_files(request)
    names = dict.fromkeys(split_selection(selection)[0] for selection in request.suites)
    files = [find_suite(name) for name in names]
    paths = [escape_undecodable(str(file)) for file in files]
    return "\n".join(paths) or None, "\n".join(map(sha256_of, files)) or None


def _settings_now(resolved: RunPlan) -> tuple[tuple[str, str], ...]:
    reserved = format_list(resolved.reserved)
    layout = own_layout_text(resolved.request.layout)
    return (
        *settings_snapshot(),
        *hardware_facts(),
        *processor_facts(),
        *environment_snapshot(os.environ),
        *((("rater.reserved_cpus", reserved),) if reserved else ()),
        *(() if layout is None else ((LAYOUT_TEXT, layout),)),
        *tuning_settings(resolved.request, resolved.tuning),
        *process_settings(),
        *counter_settings(resolved.counters),
        ("rater.supervisor_priority", _priority()),
    )


def _storable_pairs(pairs: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((escape_undecodable(name), escape_undecodable(value)) for name, value in pairs)


def utc_timestamp() -> str:
    """Return the time of day as runs are stored with it."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _priority() -> str:
    with realtime_priority() as granted:
        return "real-time" if granted else "normal"
