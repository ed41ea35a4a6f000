"""What is to run: benchmarks asked for, those left out, allocator and page sizes of copies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rater.plan.command_words import distinct_names, programs_of
from rater.plan.metric import Metric, parse_metrics
from rater.plan.options import LONGEST_NAME
from rater.plan.request import Request
from rater.plan.suite import MOST_THREADS, Benchmark, Command, Size, Suite
from rater.plan.suite_find import load_suite, select_from_suite, split_selection
from rater.record.run import escape_undecodable
from rater.run.host.admission import (
    MemoryDemand,
    available,
    huge_pages_left_bytes,
    misfit,
)
from rater.run.host.facts import libc_version
from rater.run.host.procfs import meminfo, read_number
from rater.run.programs.compile import missing_programs, sha256_of
from rater.run.programs.inputs import ReadyInput
from rater.run.programs.tuning import (
    HUGETLB,
    MADVISE,
    THP,
    UNTUNED,
    CopyTuning,
    find_allocator,
    tuning_for,
    unreached_reason,
)
from rater.settings.tuner import available_settings
from rater.system.errors import InputError
from rater.system.paths import sysroot
from rater.text.documents import did_you_mean, file_size
from rater.text.values import printable
from rater.wings import Hook

if TYPE_CHECKING:
    from rater.plan.placement.memory_policy import Memory
    from rater.plan.placement.place import PlacementPlan
    from rater.plan.topology import Topology
    from rater.record.run import Placement
    from rater.run.programs.compile import BuiltProgram
    from rater.run.programs.script import CommandLine
    from rater.run.workplace.run_dirs import Program

# -- What wings have for a run: benchmarks of an installed SPEC CPU, page sizes of copies ----------


class KitRun(Protocol):
    """Which run directories of a kit are meant."""

    @property
    def size(self) -> str | None:
        """As the kit names it."""

    @property
    def tune(self) -> str | None:
        """As the kit names it."""


class KitBenchmark(Protocol):
    """One benchmark of a kit, as its command file says it is to be run."""

    @property
    def run(self) -> KitRun:
        """Where it is run."""

    @property
    def comparison(self) -> Sequence[object]:
        """How its outputs are compared; empty: they are not."""


class Kits[K: KitBenchmark](Protocol):
    """What a wing has for benchmarks of kits. All that read files raise `InputError`."""

    def load_kit(
        self, request: Request
    ) -> tuple[Request, str, tuple[Workload, ...], tuple[str, ...]]:
        """Read what a request names; return it with what command files say besides, and remarks."""

    def kit_placement(
        self, request: Request, kits: Sequence[K], copies: int, topology: Topology, memory: Memory
    ) -> tuple[PlacementPlan | None, str | None]:
        """Return where command files put copies, and by what commands bind them themselves.

        None: rater places and binds them. Raises `InputError` for too few run directories.
        """

    def kit_problems(self, kits: Sequence[K], copies: int) -> list[str]:
        """Say what stands in the way of running these copies now."""

    def kit_built(self, kit: K) -> BuiltProgram:
        """Return its program as something that was built."""

    def kit_lines(self, kit: K) -> tuple[CommandLine, ...]:
        """Return its commands, for people."""

    def kit_command(self, kit: K) -> str:
        """Return its commands as one line, for people."""

    def kit_program(
        self, request: Request, kit: K, placements: Sequence[Placement], wrap: Sequence[str]
    ) -> Program:
        """Return it ready to be started."""

    def kit_digest(self, kit: K, wrap: Sequence[str]) -> str:
        """Return a SHA-256 over what is run and compared."""

    def kit_files(self, request: Request) -> tuple[str | None, str | None]:
        """Return paths and hashes of command files, a line each."""


class PageChecks(Protocol):
    """What a wing says of `--pages` before a run."""

    def pages_asked(self, request: Request) -> object:
        """Raise `InputError` for options that contradict each other."""

    def pages_words(self, request: Request) -> tuple[str, ...]:
        """Describe the page sizes; nothing where none are chosen."""

    def refuse_layout(self, request: Request, planned: Mapping[str, str] | None = None) -> None:
        """Raise `InputError` where this machine does not give such pages.

        `planned`: kernel settings that will be set before the run.
        """

    def tied_settings(self, request: Request) -> dict[str, str]:
        """Return the kernel settings that the page sizes stand for; raises `InputError`."""


KITS = Hook[Kits[KitBenchmark]]("kits")
PAGE_CHECKS = Hook[PageChecks]("page setup")

# -- What is to run: the benchmarks that were asked for, and those that have to be left out --------


class Workload(Struct, frozen=True, kw_only=True):
    """One benchmark in the size that was asked for."""

    benchmark: Benchmark
    size: Size
    suite: Suite | None  # None: a plain command
    named: bool = False  # by the user, not only as one of its suite
    kit: KitBenchmark | None = None  # of an installed SPEC CPU


def without_missing(workloads: Sequence[Workload]) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    """Leave out benchmarks whose programs are not installed, where their suite allows it.

    Returns the others, and in words what is left out and why.
    """

    def missing(workload: Workload) -> str | None:
        if workload.named:
            return None
        has_setup = workload.suite is not None and bool(workload.suite.setup)
        return "; ".join(missing_programs(workload.benchmark, workload.size, has_setup=has_setup))

    return _without(workloads, "missing", missing)


def without_unfit(
    workloads: Sequence[Workload], copies: int, work: Path
) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    """Leave out benchmarks that do not fit even alone, where their suite allows it."""
    available_now = available(work)
    return _without(
        workloads, "unfit", lambda workload: misfit(load_of(workload, copies), available_now)
    )


def _without(
    workloads: Sequence[Workload], trouble: str, problem_of: Callable[[Workload], str | None]
) -> tuple[tuple[Workload, ...], tuple[str, ...]]:
    kept, notes = [], []
    for workload in workloads:
        may_leave_out = workload.suite is not None and trouble in workload.suite.leave_out
        problem = problem_of(workload) if may_leave_out else None
        if problem:
            notes.append(f"left out: {workload.benchmark.name}: {problem}")
        else:
            kept.append(workload)
    return tuple(kept), tuple(notes)


def load_of(
    workload: Workload,
    copies: int,
    inputs: Sequence[ReadyInput] | None = None,
    *,
    linked: bool = True,
) -> MemoryDemand:
    """Return what `copies` copies of a benchmark need; `inputs` when they are there already.

    `linked`: inputs that copies share are hard-linked into run directories.
    """
    size = workload.size
    copy_bytes, total_bytes = size.memory_bytes, size.total_memory_bytes
    if inputs is None:
        input_bytes = sum(
            file_size(wanted.path)
            for wanted in size.inputs
            if wanted.private and wanted.path is not None
        )
    else:
        input_bytes = sum(ready.size_bytes for ready in inputs if ready.private or not linked)
    return MemoryDemand(
        benchmark=workload.benchmark.name,
        copies=copies,
        runs=copies,
        memory_bytes=copy_bytes if total_bytes is None else -(-total_bytes // copies),
        disk_bytes=size.disk_bytes,
        input_bytes=input_bytes,
        is_divided=total_bytes is not None,
    )


def command_workloads(request: Request) -> tuple[Workload, ...]:
    """Return the programs behind `--` as benchmarks, in their order. Raises `InputError`."""
    if not 1 <= request.threads <= MOST_THREADS:
        raise InputError(
            f"--threads {request.threads}: expected a whole number from 1 to {MOST_THREADS}"
        )
    programs = programs_of(request.command)
    if not all(programs):
        raise InputError(
            "a lone `:` divides the programs behind --, and one of them is empty; "
            "write '\\:' for an argument `:`"
        )
    options = [words[0] for words in programs[1:] if words[0].startswith("-")]
    if options:
        raise InputError(
            f"{options[0]} behind a lone `:` is no program: `:` divides the programs behind --; "
            "write '\\:' for an argument `:`"
        )
    if len(programs) > 1 and request.called is not None:
        raise InputError(
            f"--name {request.called} is for one command, and {len(programs)} are behind --"
        )
    names = [request.called] if request.called else names_of(programs)
    metrics = _metrics_by_program(request, names)
    size = Size(name="command", commands=(Command(),))
    return tuple(
        Workload(
            benchmark=Benchmark(
                name=name,
                command=program,
                sizes={"command": size},
                threads=request.threads,
                metrics=metrics[name],
            ),
            size=size,
            suite=None,
        )
        for name, program in zip(names, programs, strict=True)
    )


def _metrics_by_program(request: Request, names: Sequence[str]) -> dict[str, tuple[Metric, ...]]:
    """Return the metrics of each program; raises `InputError` for one of a program not there."""
    metrics = parse_metrics(request.metrics)
    for metric in metrics:
        if metric.program not in (None, *names):
            raise InputError(
                f"--metric {metric.name} of {metric.program}: no such program behind --; "
                f"expected one of {', '.join(names)}"
            )
    return {
        name: tuple(metric for metric in metrics if metric.program in (None, name))
        for name in names
    }


def names_of(programs: Sequence[Sequence[str]]) -> list[str]:
    """Return names of benchmarks for programs: the file's own where there is one."""
    if len(programs) == 1:
        return [name_of(programs[0][0])]
    escaped = [[escape_undecodable(word) for word in program] for program in programs]
    return [
        printable(name.replace("/", "_")).strip() for name in distinct_names(escaped, LONGEST_NAME)
    ]


def name_of(command: str) -> str:
    """Return a benchmark's name for a command: its basename, fit for a file name and a table."""
    name = escape_undecodable(Path(command).name or command)
    return printable(name)[:LONGEST_NAME]


def suite_workloads(request: Request) -> tuple[str, tuple[Workload, ...]]:
    """Return the suites' names and what is wanted of them. Raises `InputError`."""
    suites: dict[str, Suite] = {}
    wanted: dict[str, set[str]] = {}
    named: set[tuple[str, str]] = set()
    for selection in request.suites:
        key = split_selection(selection)[0]
        if key not in suites:
            suites[key] = load_suite(key)
            wanted[key] = set()
        wanted[key] |= {
            benchmark.name for benchmark in select_from_suite(suites[key], selection).benchmarks
        }
        named |= {(key, name) for name in split_selection(selection)[1]}
    workloads = [
        Workload(
            benchmark=benchmark,
            size=_size(suite, benchmark, request.size),
            suite=suite,
            named=(key, benchmark.name) in named,
        )
        for key, suite in suites.items()
        for benchmark in suite.benchmarks
        if benchmark.name in wanted[key]
    ]
    ambiguous = [
        name
        for name, occurrences in Counter(workload.benchmark.name for workload in workloads).items()
        if occurrences > 1
    ]
    if ambiguous:
        raise InputError(
            f"benchmark {ambiguous[0]} is in two of the suites {', '.join(suites)}: "
            "one run needs different names; run the suites one after the other"
        )
    if any(workload.benchmark.sources for workload in workloads):
        _check_tune(workloads, request.tune)
    names = dict.fromkeys(suite.name for suite in suites.values())
    return ", ".join(names), tuple(workloads)


def _check_tune(workloads: list[Workload], tune: str) -> None:
    for workload in workloads:
        benchmark = workload.benchmark
        if benchmark.sources and tune not in benchmark.flags:
            raise InputError(
                f"--tune {tune}: benchmark {benchmark.name} has no flags for it; "
                f"{did_you_mean(tune, benchmark.flags)}"
            )


def _size(suite: Suite, benchmark: Benchmark, name: str) -> Size:
    try:
        return benchmark.sizes[name]
    except KeyError:
        raise InputError(
            f"--size {name}: benchmark {benchmark.name} of suite {suite.name} has no such size; "
            f"{did_you_mean(name, benchmark.sizes)}"
        ) from None


# -- `--alloc` and `--hugepages`: meaning on this machine, needs, settings stored with a run -------

_MEMINFO = Path("proc/meminfo")
_DIGEST_SHOWN = 12
_PMD_SIZE = Path("sys/kernel/mm/transparent_hugepage/hpage_pmd_size")


def tuning_of(request: Request) -> CopyTuning:
    """Return allocator and page size of the copies.

    Raises `InputError` for an allocator that this machine lacks, and for options of page sizes that
    contradict each other.
    """
    if request.has_pages:
        PAGE_CHECKS().pages_asked(request)
    if request.alloc is None and request.hugepages is None:
        return UNTUNED
    library = None if request.alloc is None else find_allocator(request.alloc)
    environment = dict(os.environ) | dict(request.environment)
    return tuning_for(library, request.hugepages, environment, libc_version())


def refuse_pages(request: Request, planned: Mapping[str, str] | None = None) -> None:
    """Raise `InputError` where the machine's settings do not give the pages that were asked for.

    `planned`: kernel settings (by name) that will be set before the run, and their values.
    """
    problem = pages_problem(request.hugepages, planned or {})
    if problem:
        raise InputError(f"--hugepages {request.hugepages}: {problem}")
    if request.has_pages:
        PAGE_CHECKS().refuse_layout(request, planned)


def pages_problem(mode: str | None, planned: Mapping[str, str]) -> str | None:
    """Return what the machine lacks for a mode of --hugepages, and the way out; None: nothing."""
    if mode not in (MADVISE, THP, HUGETLB):
        return None
    root = sysroot()
    settings = {
        setting.name: setting.read().description for setting in available_settings(root)
    } | dict(planned)
    if mode == HUGETLB:
        page_bytes = meminfo(root / _MEMINFO).get("Hugepagesize")
        return _pool_problem(settings, page_bytes and page_bytes // 1024)
    accepted = ("always",) if mode == THP else ("always", "madvise")
    present = settings.get("thp")
    if present is None:
        return "this kernel has no transparent huge pages"
    if present not in accepted:
        way_without_root = (
            ", or --hugepages madvise, which needs no root" if present == "madvise" else ""
        )
        return (
            f"the machine's setting thp is {present}, and this takes {' or '.join(accepted)}; as "
            f"root: `rater sweep --axis thp={accepted[-1]}`, or echo {accepted[-1]} > "
            f"/sys/kernel/mm/transparent_hugepage/enabled{way_without_root}"
        )
    size = f"thp.{(read_number(root / _PMD_SIZE) or 2 << 20) // 1024}kB"
    if settings.get(size, "inherit") not in ("inherit", *accepted):
        return f"the machine's setting {size} is {settings[size]}; as root: --axis {size}=inherit"
    return None


def _pool_problem(settings: Mapping[str, str], kilobytes: int | None) -> str | None:
    if kilobytes is None:
        return "this kernel has no huge pages"
    pool = f"hugepages.{kilobytes}kB"
    of_nodes = [int(value) for name, value in settings.items() if name.startswith(f"{pool}.node")]
    if int(settings.get(pool, "0")) or any(of_nodes):
        return None
    megabytes = kilobytes / 1024
    return (
        f"the pool of {megabytes:g} MB pages is empty: glibc would silently use small pages; as "
        f"root: `rater sweep --axis {pool}=N`, or echo N > /proc/sys/vm/nr_hugepages (N x "
        f"{megabytes:g} MB for all copies)"
    )


def tuning_settings(request: Request, tuning: CopyTuning) -> tuple[tuple[str, str], ...]:
    """Return what is kept with the run, beside the machine's settings."""
    settings = []
    if tuning.preload is not None:
        path = Path(tuning.preload).resolve()
        digest = sha256_of(path)[:_DIGEST_SHOWN]
        settings.append(("copies.alloc", f"{request.alloc}: {path} (sha256 {digest})"))
    if request.hugepages is not None:
        settings.append(("copies.hugepages", request.hugepages))
    return tuple(settings)


def unreached_warnings(
    request: Request, tuning: CopyTuning, programs: Collection[Path], needed_bytes: int
) -> tuple[str, ...]:
    """Return which programs and which memory the options do not reach, in words.

    `needed_bytes`: what all copies hold together at their peak; 0: not stated.

    Raises `InputError` where they reach no program: the run would be stored under an allocator that
    it did not have.
    """
    if tuning.preload is None and tuning.tunable is None:
        return ()
    warnings = untouched_programs(tuning, programs)
    inherited_preload = (dict(os.environ) | dict(request.environment)).get("LD_PRELOAD")
    if tuning.preload is not None and inherited_preload:
        warnings = (
            *warnings,
            f"LD_PRELOAD is {inherited_preload}, which comes before --alloc {request.alloc}: an "
            "allocator there takes its place",
        )
    return warnings + _small_pool(request, needed_bytes)


def untouched_programs(tuning: CopyTuning, programs: Collection[Path]) -> tuple[str, ...]:
    """Return which programs the options do not reach. Raises `InputError` where that is all."""
    if tuning.preload is None and tuning.tunable is None:
        return ()
    reasons = {program: unreached_reason(tuning, program) for program in sorted(programs)}
    unreached = tuple(f"{program} {reason}" for program, reason in reasons.items() if reason)
    option = "--hugepages" if tuning.preload is None else "--alloc"
    if unreached and len(unreached) == len(programs):
        raise InputError(f"{option} would change nothing: {'; '.join(unreached)}")
    return tuple(f"{option} changes nothing for {text}" for text in unreached)


def _small_pool(request: Request, needed_bytes: int) -> tuple[str, ...]:
    if request.hugepages != HUGETLB:
        return ()
    memory = meminfo(sysroot() / _MEMINFO)
    page_bytes = memory.get("Hugepagesize", 0)
    free_bytes = {
        "free pages of the pool are": memory.get("HugePages_Free", 0) * page_bytes,
        "the hugetlb limit of the cgroup leaves": huge_pages_left_bytes(sysroot(), page_bytes),
    }
    return tuple(
        f"--hugepages hugetlb: copies need {needed_bytes / 1e9:.2g} GB, {who_has} "
        f"{free / 1e9:.2g} GB: what does not fit gets small pages"
        for who_has, free in free_bytes.items()
        if free is not None and free < needed_bytes
    )
