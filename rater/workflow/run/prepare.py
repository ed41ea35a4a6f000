"""What a run needs before it can begin, and what it is warned of and refused for."""

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
from rater.run.host.facts import cpu_quotas
from rater.run.host.foreign_load import ForeignLoadSampler, foreign_load_warning
from rater.run.host.memory import preflight_now, read_node_memory
from rater.run.host.procfs import read_text
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
from rater.text.cpuset import format_list, parse_set
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
    later: Callable[..., object],
    report: Callable[[str], None],
) -> PreparedRun:
    """Set up, build and make what is missing; `report` hears what takes seconds.

    `later(function, argument)` is called when the run is over. Raises `InputError`
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
        left = _set_up(resolved, cache)
        missing = [
            w for w in workloads if not (w.kit or is_built(w.benchmark, request.tune, cache))
        ]
        if missing:
            them = "it" if len(missing) == 1 else "them"
            report(f"building {count(len(missing), 'program')}, once; {cache} keeps {them}")
        built = tuple(
            KITS().kit_built(w.kit) if w.kit else build(w.benchmark, request.tune, cache, w.size)
            for w in workloads
        )
        inputs = tuple(
            ready_inputs(w.benchmark, w.size, cache, left[w.suite.path] if w.suite else None)
            for w in workloads
        )
    lines = tuple(
        KITS().kit_lines(w.kit) if w.kit else command_lines(w.benchmark, w.size, b)
        for w, b in zip(workloads, built, strict=True)
    )
    with cache_errors(cache):
        work.mkdir(parents=True)
    later(remove_if_empty, work)
    linked = all(links_work(some, work) for some in inputs)
    needs = needs_of(resolved, work, inputs, linked=linked)
    if needs.problems and not request.force:
        raise InputError("\n".join(needs.problems))
    programs = {
        w.benchmark.name: _program(resolved, w, one, i, cache)
        for w, one, i in zip(workloads, lines, inputs, strict=True)
    }
    return PreparedRun(
        resolved=resolved, work=work, built=built, lines=lines, inputs=inputs, programs=programs
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
        made = inputs[position] if inputs else None
        loads[workload.benchmark.name] = load_of(workload, plan.copies, made, linked=linked)
    if plan.order is Order.ROTATED:
        # The mixes that the order goes through as long as copies keep step; the first one
        # stands for the run directories of all.
        ring = len(plan.benchmarks)
        phases = []
        for shift in range(ring if plan.increment else 1):
            mix = Counter((copy + shift * plan.increment) % ring for copy in range(plan.copies))
            runs = plan.copies * plan.iterations if shift == 0 else 0
            phases.append(
                [
                    replace(loads[name], copies=mix[position], runs=runs)
                    for position, name in enumerate(plan.benchmarks)
                ]
            )
    else:
        phases = [[loads[phase.benchmark or ""]] for phase in plan.phases]
    return estimate_needs(phases, available(work), keep=resolved.request.keep)


def _refuse_early(resolved: RunPlan, cache: Path) -> None:
    needs = needs_of(resolved, cache / "work", ())
    problems = list(needs.problems)
    caching = uncached_bytes((workload.size for workload in resolved.workloads), cache)
    there = needs.available
    # Else it is among the problems already.
    if needs.disk_bytes <= there.disk_bytes < needs.disk_bytes + caching:
        problems.append(
            f"disk: {needs.disk_bytes / 1e6:.1f} MB needed by run directories and "
            f"{caching / 1e6:.1f} MB by inputs in the cache, {there.disk_bytes / 1e6:.1f} MB free "
            f"in {there.disk}; set RATER_CACHE to a larger disk, use fewer copies, or --force"
        )
    if problems:
        raise InputError("\n".join(problems))


def _set_up(resolved: RunPlan, cache: Path) -> dict[Path, SetupFiles | None]:
    request = resolved.request
    suites: dict[Path, Suite] = {w.suite.path: w.suite for w in resolved.workloads if w.suite}
    left = {}
    for path, suite in suites.items():
        sizes = [w.size for w in resolved.workloads if w.suite and w.suite.path == path]
        environment = {
            **os.environ,
            **dict(suite.environment),
            **dict(request.environment),
            "RATER_COPIES": str(resolved.plan.copies),
        }
        # Not held to --timeout, which is of copies: it may fetch or build for an hour.
        limits = Limits(output_bytes=request.output_limit_bytes)
        left[path] = set_up_suite(suite, cache, environment, made_files(sizes), limits)
    return left


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
        metrics=benchmark.metrics,
        environment=benchmark_environment(workload.suite, benchmark, size, cache),
        threads=benchmark.threads,
        setup=setup_argv(benchmark),
        setup_limits=Limits(request.timeout_s, request.output_limit_bytes),
        folders=folders_of(lines),
        accepted=accepted,
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
        busy = None
        if self._is_first or not self._watch.would_wait:
            busy = foreign_load_warning(self._watch.busy())
        found = _preflight(self._resolved, self._before)
        warnings, refused = _sorted(self._resolved, found)
        if refused and found:
            raise InputError(found.refusal() or "")
        return (*([busy] if busy else []), *limits_of_host(self._resolved), *warnings)


def limits_of_host(resolved: RunPlan, root: Path | None = None) -> tuple[str, ...]:
    """Return why this host will not let all copies run at once. Raises `InputError`: see below.

    Of CPUs that are isolated the scheduler moves nobody to another one. Copies that may use several
    stay where they began, on one as a rule: that is refused where they are others' CPUs as well.
    """
    root = root or sysroot()
    threads = max((workload.benchmark.threads for workload in resolved.workloads), default=1)
    every = tuple(pu.os for pu in resolved.topology.pus)
    masks = [
        every if placement.cpus is None else placement.cpus for placement in resolved.placements
    ]
    found = []
    quota = min(cpu_quotas(root), default=(math.inf,))[0]
    wanted = min(len(masks) * threads, len(set().union(*masks)))
    if quota < wanted:
        found.append(
            f"a cgroup's CPU quota is {quota:g} CPUs, and the copies keep {wanted} busy: they are "
            "stopped each time it is used up; raise its cpu.max, or run fewer copies"
        )
    isolated = parse_set(read_text(root / "sys/devices/system/cpu/isolated") or "")
    stuck = [mask for mask in masks if len(mask) > 1 and not isolated.isdisjoint(mask)]
    if not stuck:
        return (*found,)
    cpus = format_list(isolated.intersection(*map(set, stuck)) or isolated)
    text = (
        f"CPUs {cpus} are isolated: the kernel balances no load there, and "
        f"{copies_text(len(stuck))} that may use several of them will stay on one"
    )
    shared = max(Counter(chain(*masks)).values()) > 1
    if threads == 1 and shared and not resolved.request.force:
        raise InputError(f"{text}; give each a CPU of its own (--bind pu), or --force to try")
    return (*found, text)


def _preflight(
    resolved: RunPlan, before: Mapping[int, NodeMemory] | None = None
) -> Preflight | None:
    """Compare what copies need with what their lgroups have now; None with `--preflight off`.

    `before` is what they had before the set-up.
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
    return preflight_now(resolved.placements, by_copy, before, unstated=unstated)


def _sorted(resolved: RunPlan, found: Preflight | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if found is None:
        return (), ()
    if resolved.request.preflight == "strict":
        # Who asked for a refusal has to know what was not looked at.
        return found.unchecked, found.warnings
    return found.warnings, ()


def checked(
    resolved: RunPlan, planned: Mapping[str, str] | None = None
) -> tuple[ResourceNeeds, tuple[str, ...], tuple[str, ...]]:
    """Return what a run needs, would warn of, and would be refused for; nothing is made.

    `planned`: settings of the machine that will be set before, by name.
    """
    needs = needs_of(resolved, cache_root() / "work", ())
    warnings, short = _sorted(resolved, _preflight(resolved))
    try:
        warnings, stuck = (*limits_of_host(resolved), *warnings), ""
    except InputError as error:
        stuck = str(error)
    refusals = (
        *([stuck] if stuck else []),
        *(() if resolved.request.force else needs.problems),
        *(f"--preflight strict: {text}" for text in short),
        *_setup_problems(resolved, planned),
    )
    return needs, warnings, refusals


def _setup_problems(resolved: RunPlan, planned: Mapping[str, str] | None) -> list[str]:
    """Return the refusals of a run, and what it would meet while it is set up (`make_ready`)."""
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
    found = []
    for check in checks:
        try:
            check()
        except InputError as error:
            found.append(str(error))
    return found


def database_warnings(database: Path, request: Request) -> tuple[str, ...]:
    """Warn of a database on a disk of several machines, and where others may read secrets in it."""
    found = [it for it in (describe_shared_disk(database, OWN_DISK),) if it]
    redactor = Redactor()
    redactor.redact_json([f"{name}={value}" for name, value in request.environment])
    mode = database.stat().st_mode & 0o777
    if redactor.hidden and mode & 0o077:
        found.append(
            f"others may read {database} (mode {mode:o}), which keeps the values of "
            f"{truncate_list(list(redactor.hidden))} for `rater rerun`; `chmod 600` closes it"
        )
    return tuple(found)
