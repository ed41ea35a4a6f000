"""A run made ready: builds, inputs, needs of memory and disk, warnings and refusals."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.doctor.inherited import inherited_states
from rater.plan.command_words import COPY_PLACEHOLDERS, placeholders_in
from rater.plan.placement.preflight import Preflight
from rater.plan.request import Request
from rater.plan.schedule import Order
from rater.plan.suite import Suite
from rater.plan.topology import NodeMemory
from rater.run.host.admission import (
    ResourceNeeds,
    available,
    default_lock_path,
    estimate_needs,
    machine_lock,
)
from rater.run.host.facts import cpu_quotas, isolated_cpus, thp_mode
from rater.run.host.foreign_load import ForeignLoadSampler, foreign_load_warning
from rater.run.host.inherited import process_settings
from rater.run.host.memory import preflight_now, read_node_memory
from rater.run.programs.child_process import Limits
from rater.run.programs.compile import (
    BuiltProgram,
    build,
    cache_errors,
    cache_root,
    find_command,
    find_compiler,
    is_built,
    missing_programs,
)
from rater.run.programs.inputs import (
    ReadyInput,
    SetupFiles,
    links_work,
    page_cache_spread,
    ready_inputs,
    spread_over,
    uncached_bytes,
)
from rater.run.programs.script import (
    CommandLine,
    benchmark_environment,
    command_lines,
    folders_of,
    made_files,
    set_up_suite,
    setup_argv,
    to_argv,
)
from rater.run.workplace.run_dirs import Program
from rater.store.connection import OWN_DISK, default_path
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.system.files import describe_shared_disk
from rater.system.paths import exists, sysroot
from rater.text.cpuset import format_list
from rater.text.secrets import Redactor
from rater.text.values import copies_text, count, truncate_list
from rater.workflow.doctor import refuse_unsettable, tuned_settings_of
from rater.workflow.run.refusals import checks_for_dry_run
from rater.workflow.run.resolve import RunPlan, most_bytes
from rater.workflow.run.workload import KITS, Workload, load_of


class PreparedRun(Struct, frozen=True, kw_only=True):
    """A resolved run with everything it needs of this machine's disks."""

    resolved: RunPlan
    work: Path  # where its run directories go; exists
    built: tuple[BuiltProgram, ...]  # by workload
    lines: tuple[tuple[CommandLine, ...], ...]  # by workload: what a copy runs, in order
    inputs: tuple[tuple[ReadyInput, ...], ...]  # by workload
    programs: dict[str, Program]  # by benchmark

    @property
    def files(self) -> set[Path]:
        """The programs that copies are."""
        return {Path(line.words[0]) for lines in self.lines for line in lines}


def make_ready(
    resolved: RunPlan,
    work: Path,
    at_end: Callable[..., object],
    report: Callable[[str], None],
) -> PreparedRun:
    """Set up, build and make what is missing; `report` hears what takes seconds.

    `at_end(function, argument)` has the function called when the run is over. Raises `InputError`
    for what can not be set up, built, found or does not fit.
    """
    request, workloads, cache = resolved.request, resolved.workloads, cache_root()
    problems = _kit_problems(resolved)
    if problems:
        raise InputError("\n".join(problems))
    if not request.force:
        _refuse_early(resolved, cache)
    # What is read and written here stays in the page cache, else on the lgroup where we
    # happen to run: its copies would be the slow ones. A set-up may work anywhere, so it is
    # spread with the programs and inputs; what it leaves in its folder is dropped besides.
    with page_cache_spread(spread_over(resolved.topology)):
        setup_files = _set_up(resolved, cache)
        built = _built_programs(resolved, cache, report)
        inputs = tuple(
            ready_inputs(
                workload.benchmark,
                workload.size,
                cache,
                setup_files[workload.suite.path] if workload.suite else None,
            )
            for workload in workloads
        )
    lines = tuple(
        KITS().kit_lines(workload.kit)
        if workload.kit
        else command_lines(workload.benchmark, workload.size, program)
        for workload, program in zip(workloads, built, strict=True)
    )
    with cache_errors(cache):
        work.mkdir(parents=True)
    at_end(remove_if_empty, work)
    linked = all(links_work(workload_inputs, work) for workload_inputs in inputs)
    needs = needs_of(resolved, work, inputs, linked=linked)
    if needs.problems and not request.force:
        raise InputError("\n".join(needs.problems))
    programs = {
        workload.benchmark.name: _program(
            resolved, workload, workload_lines, workload_inputs, cache
        )
        for workload, workload_lines, workload_inputs in zip(workloads, lines, inputs, strict=True)
    }
    return PreparedRun(
        resolved=resolved, work=work, built=built, lines=lines, inputs=inputs, programs=programs
    )


def _built_programs(
    resolved: RunPlan, cache: Path, report: Callable[[str], None]
) -> tuple[BuiltProgram, ...]:
    """Return the program of each workload; those that the cache lacks are built."""
    tune = resolved.request.tune
    missing = [
        workload
        for workload in resolved.workloads
        if not (workload.kit or is_built(workload.benchmark, tune, cache))
    ]
    if missing:
        pronoun = "it" if len(missing) == 1 else "them"
        report(f"building {count(len(missing), 'program')}, once; {cache} keeps {pronoun}")
    return tuple(
        KITS().kit_built(workload.kit)
        if workload.kit
        else build(workload.benchmark, tune, cache, workload.size)
        for workload in resolved.workloads
    )


def needs_of(
    resolved: RunPlan,
    work: Path,
    inputs: Sequence[tuple[ReadyInput, ...]],
    *,
    linked: bool = True,
) -> ResourceNeeds:
    """Estimate memory and disk; `inputs` by workload, empty as long as they are not made.

    `linked`: inputs that copies share are hard-linked into run directories, not copied.
    """
    plan = resolved.plan
    loads = {}
    for position, workload in enumerate(resolved.workloads):
        made_inputs = inputs[position] if inputs else None
        loads[workload.benchmark.name] = load_of(workload, plan.copies, made_inputs, linked=linked)
    if plan.order is Order.ROTATED:
        # The mixes that the order goes through as long as copies keep step; the first one
        # stands for the run directories of all.
        benchmark_count = len(plan.benchmarks)
        phases = []
        for shift in range(benchmark_count if plan.increment else 1):
            copies_by_benchmark = Counter(
                (copy + shift * plan.increment) % benchmark_count for copy in range(plan.copies)
            )
            runs = plan.copies * plan.iterations if shift == 0 else 0
            phases.append(
                [
                    replace(loads[name], copies=copies_by_benchmark[position], runs=runs)
                    for position, name in enumerate(plan.benchmarks)
                ]
            )
    else:
        phases = [[loads[phase.benchmark or ""]] for phase in plan.phases]
    return estimate_needs(phases, available(work), keep=resolved.request.keep)


def _refuse_early(resolved: RunPlan, cache: Path) -> None:
    needs = needs_of(resolved, cache / "work", ())
    problems = list(needs.problems)
    caching_bytes = uncached_bytes((workload.size for workload in resolved.workloads), cache)
    available = needs.available
    # Else it is among the problems already.
    if needs.disk_bytes <= available.disk_bytes < needs.disk_bytes + caching_bytes:
        problems.append(
            f"disk: {needs.disk_bytes / 1e6:.1f} MB needed by run directories and "
            f"{caching_bytes / 1e6:.1f} MB by inputs in the cache, "
            f"{available.disk_bytes / 1e6:.1f} MB free in {available.disk}; set RATER_CACHE to a "
            "larger disk, use fewer copies, or --force"
        )
    if problems:
        raise InputError("\n".join(problems))


def _set_up(resolved: RunPlan, cache: Path) -> dict[Path, SetupFiles | None]:
    request = resolved.request
    suites: dict[Path, Suite] = {
        workload.suite.path: workload.suite for workload in resolved.workloads if workload.suite
    }
    setup_files = {}
    for path, suite in suites.items():
        sizes = [
            workload.size
            for workload in resolved.workloads
            if workload.suite and workload.suite.path == path
        ]
        environment = {
            **os.environ,
            **dict(suite.environment),
            **dict(request.environment),
            "RATER_COPIES": str(resolved.plan.copies),
        }
        # Not held to --timeout, which is of copies: it may fetch or build for an hour.
        limits = Limits(output_bytes=request.output_limit_bytes)
        setup_files[path] = set_up_suite(suite, cache, environment, made_files(sizes), limits)
    return setup_files


def _program(
    resolved: RunPlan,
    workload: Workload,
    lines: tuple[CommandLine, ...],
    inputs: tuple[ReadyInput, ...],
    cache: Path,
) -> Program:
    request = resolved.request
    wrap = request.wrap
    if wrap:
        wrap = (str(find_command(wrap[0], "--wrap")), *wrap[1:])
    count = resolved.count
    if count is not None:
        wrap = (*wrap, *count.wrap)
    if workload.kit:
        if request.accept_exit:
            raise InputError("--accept-exit: benchmarks of SPEC CPU end with 0; leave it out")
        return KITS().kit_program(request, workload.kit, resolved.placements, wrap)
    elsewhere = bool(request.command) and not request.run_dirs
    benchmark, size = workload.benchmark, workload.size
    accepted = tuple({*benchmark.accept_exit, *request.accept_exit})
    return Program(
        name=benchmark.name,
        argv=to_argv(lines, wrap, reports=True, accepted=accepted),
        inputs=inputs,
        expected=size.expected,
        directory=str(Path.cwd()) if elsewhere else None,
        metrics=(*benchmark.metrics, *([count.metric] if count and count.pattern else [])),
        environment=benchmark_environment(workload.suite, benchmark, size, cache),
        threads=benchmark.threads,
        setup=setup_argv(benchmark),
        setup_limits=Limits(request.timeout_s, request.output_limit_bytes),
        folders=folders_of(lines),
        accepted=accepted,
        has_placeholders=bool(
            request.command and placeholders_in(benchmark.command, COPY_PLACEHOLDERS)
        ),
    )


def remove_if_empty(work: Path) -> None:
    """Remove a folder of run directories, unless something was kept in it."""
    with suppress(OSError):  # what failed copies left is kept
        work.rmdir()


# -- What a run is warned of and refused for: before it begins, and of its surroundings as it does -


class HostLoad:
    """Who else works here, what the lgroups' memory holds: make it before anything is set up."""

    def __init__(self, resolved: RunPlan, watch: ForeignLoadSampler | None = None) -> None:
        """`watch`: begun as the run before ended; nobody waits for it to have seen enough."""
        self._resolved = resolved
        self._is_first = watch is None
        self._watch = watch or ForeignLoadSampler()
        self._before = read_node_memory() if resolved.request.preflight != "off" else None

    def warnings(self) -> tuple[str, ...]:
        """Return what a person should know of the machine before copies run on it.

        Raises `InputError` where `--preflight strict` refuses the run.
        """
        busy_warning = None
        if self._is_first or not self._watch.would_wait:
            busy_warning = foreign_load_warning(self._watch.busy())
        preflight = _preflight(self._resolved, self._before)
        warnings, refused = _split_preflight(self._resolved, preflight)
        if refused and preflight:
            raise InputError(preflight.refusal() or "")
        return (
            *([busy_warning] if busy_warning else []),
            *limits_of_host(self._resolved),
            *warnings,
        )


def limits_of_host(resolved: RunPlan, root: Path | None = None) -> tuple[str, ...]:
    """Return why this host will not let all copies run at once. Raises `InputError`: see below.

    Of CPUs that are isolated the scheduler moves nobody to another one. Copies that may use several
    stay where they began, on one as a rule: that is refused where they are others' CPUs as well.
    """
    root = root or sysroot()
    threads = max((workload.benchmark.threads for workload in resolved.workloads), default=1)
    all_cpus = tuple(pu.os for pu in resolved.topology.pus)
    masks = [
        all_cpus if placement.cpus is None else placement.cpus for placement in resolved.placements
    ]
    warnings = []
    quota = min(cpu_quotas(root), default=(math.inf,))[0]
    busy_cpus = min(len(masks) * threads, len(set().union(*masks)))
    if quota < busy_cpus:
        warnings.append(
            f"a cgroup's CPU quota is {quota:g} CPUs, and the copies keep {busy_cpus} busy: they "
            "are stopped each time it is used up; raise its cpu.max, or run fewer copies"
        )
    warnings += _inherited_warnings(resolved, root)
    isolated = isolated_cpus(root)
    stuck_masks = [mask for mask in masks if len(mask) > 1 and not isolated.isdisjoint(mask)]
    if not stuck_masks:
        return (*warnings,)
    cpus = format_list(isolated.intersection(*map(set, stuck_masks)) or isolated)
    text = (
        f"CPUs {cpus} are isolated: the kernel balances no load there, and "
        f"{copies_text(len(stuck_masks))} that may use several of them will stay on one"
    )
    shared = max(Counter(chain(*masks)).values()) > 1
    if threads == 1 and shared and not resolved.request.force:
        raise InputError(f"{text}; give each a CPU of its own (--bind pu), or --force to try")
    return (*warnings, text)


def _inherited_warnings(resolved: RunPlan, root: Path) -> list[str]:
    """Say what copies inherit that other processes do not have; nothing that was asked for."""
    values = dict(process_settings()) | {"thp.enabled": thp_mode(root) or "never"}
    switched_on = resolved.tuning.transparent  # in each copy, whatever rater has
    is_off = values.get("process.thp", "on") != "on"
    if switched_on is not None:
        values.pop("process.thp", None)
    warnings = []
    if switched_on and is_off:
        warnings.append(
            "transparent huge pages are switched off for rater and all it starts (prctl "
            f"PR_SET_THP_DISABLE): --hugepages {resolved.request.hugepages} switches them on for "
            "copies, and for nothing else"
        )
    return warnings + [
        f"copies inherit from the process that started rater: {state.text}; {state.way_out}"
        for state in inherited_states(values)
        if not state.is_asked
    ]


def _preflight(
    resolved: RunPlan, before_setup: Mapping[int, NodeMemory] | None = None
) -> Preflight | None:
    """Compare the memory that copies need with that of their lgroups; None: `--preflight off`.

    `before_setup` is the memory of lgroups before the set-up, which may have filled some.
    """
    if resolved.request.preflight == "off":
        return None
    per_copy = most_bytes(resolved)
    by_copy = {placement.copy: per_copy for placement in resolved.placements}
    unstated = [
        workload.benchmark.name
        for workload in resolved.workloads
        if workload.size.memory_bytes is None and workload.size.total_memory_bytes is None
    ]
    return preflight_now(resolved.placements, by_copy, before_setup, unstated=unstated)


def _split_preflight(
    resolved: RunPlan, preflight: Preflight | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if preflight is None:
        return (), ()
    if resolved.request.preflight == "strict":
        # Who asked for a refusal has to know what was not looked at.
        return preflight.unchecked, preflight.warnings
    return preflight.warnings, ()


def checked(
    resolved: RunPlan, planned: Mapping[str, str] | None = None
) -> tuple[ResourceNeeds, tuple[str, ...], tuple[str, ...]]:
    """Return needs, warnings and refusals of a run, of which nothing is made.

    `planned`: settings of the machine that will be set before, by name.
    """
    needs = needs_of(resolved, cache_root() / "work", ())
    warnings, preflight_refusals = _split_preflight(resolved, _preflight(resolved))
    try:
        warnings, host_refusal = (*limits_of_host(resolved), *warnings), ""
    except InputError as error:
        host_refusal = str(error)
    refusals = (
        *([host_refusal] if host_refusal else []),
        *(() if resolved.request.force else needs.problems),
        *(f"--preflight strict: {text}" for text in preflight_refusals),
        *_setup_problems(resolved, planned),
    )
    return needs, warnings, refusals


def _setup_problems(resolved: RunPlan, planned: Mapping[str, str] | None) -> list[str]:
    """Return the refusals of a run, and failures that `make_ready` would meet."""
    checks = checks_for_dry_run(resolved, planned)
    if resolved.request.wrap:
        checks.append(partial(find_command, resolved.request.wrap[0], "--wrap"))
    if any(workload.benchmark.sources for workload in resolved.workloads):
        checks.append(find_compiler)
    missing = [
        f"benchmark {workload.benchmark.name}: {problem}"
        for workload in resolved.workloads
        for problem in missing_programs(
            workload.benchmark,
            workload.size,
            has_setup=workload.suite is not None and bool(workload.suite.setup),
        )
    ]
    return list(dict.fromkeys([*missing, *_kit_problems(resolved), *_failures(checks)]))


def _kit_problems(resolved: RunPlan) -> list[str]:
    kits = [workload.kit for workload in resolved.workloads if workload.kit]
    return KITS().kit_problems(kits, resolved.plan.copies) if kits else []


def obstacles(database: str | None, resolved: RunPlan) -> list[str]:
    """Return why lock, database or the machine's settings cannot be had."""

    def lock() -> None:
        path = default_lock_path()
        if path.exists():
            with machine_lock(path, "", share=resolved.request.share):
                pass

    def opened() -> None:
        path = default_path(database)
        if exists(path):
            open_store(path).close()

    def settings() -> None:
        refuse_unsettable(tuned_settings_of(resolved.request))

    return _failures([lock, opened, settings])


def _failures(checks: Sequence[Callable[[], object]]) -> list[str]:
    failures = []
    for check in checks:
        try:
            check()
        except InputError as error:
            failures.append(str(error))
    return failures


def database_warnings(database: Path, request: Request) -> tuple[str, ...]:
    """Warn of a database on a disk of several machines, and where others may read secrets in it."""
    warnings = [warning for warning in (describe_shared_disk(database, OWN_DISK),) if warning]
    redactor = Redactor()
    redactor.redact_json([f"{name}={value}" for name, value in request.environment])
    mode = database.stat().st_mode & 0o777
    if redactor.hidden and mode & 0o077:
        warnings.append(
            f"others may read {database} (mode {mode:o}), which keeps the values of "
            f"{truncate_list(list(redactor.hidden))} for `rater rerun`; `chmod 600` closes it"
        )
    return tuple(warnings)
