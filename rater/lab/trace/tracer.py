"""A program under the tracer of pages: tools compiled, run, read, and what misses cost here."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.lab.layout.layout import VARIABLE, PageDirective
from rater.lab.layout.pools import reserves
from rater.lab.trace.tlb import (
    CATEGORIES,
    CHOSEN,
    REGION_BYTES,
    MappingSizes,
    PageMapping,
    PageReuse,
    PageTrace,
    PerCategory,
    RegionMisses,
    WalkGap,
    WalkOrder,
)
from rater.run.host.procfs import read_text
from rater.run.launcher.copies import CopySpec
from rater.run.programs.child_process import (
    ChildEnded,
    LimitExceeded,
    Limits,
    both_ends,
    die_with_parent,
    kill_group,
    run_alone,
    run_child,
    run_tool,
)
from rater.run.programs.compile import (
    cache_errors,
    cache_key,
    compile_program,
    cpu_identity,
    sha256_of,
)
from rater.system.errors import InputError, RunError
from rater.system.files import make_private_folder, replace_file, scratch_folder
from rater.system.paths import sysroot
from rater.text.values import ending_text

TOOL = "rater"  # valgrind's name of it: --tool=rater
_SOURCES = Path(__file__).parent / "native"
_INSTALL = (
    "install valgrind with its headers (Debian, Ubuntu: apt install valgrind; Fedora: dnf install "
    "valgrind-devel; Arch: pacman -S valgrind; SUSE: zypper install valgrind-devel)"
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_VERSION = re.compile(r"valgrind-(\d+)\.(\d+)")
_OLDEST = (3, 15)
# As valgrind's own Makefile.all.am has them: a static program at an address of its own.
_TOOL_FLAGS = (
    *("-O2", "-std=gnu99", "-fno-strict-aliasing", "-fno-builtin", "-fno-stack-protector"),
    *("-fomit-frame-pointer", "-fno-pie", "-static", "-no-pie", "-nodefaultlibs"),
    *("-nostartfiles", "-u", "_start", "-Wl,--build-id=none"),
)
_LIBRARY_FOLDERS = ("lib/*/valgrind", "lib/valgrind", "lib64/valgrind", "libexec/valgrind")
_LOAD_ADDRESS = {"amd64": "0x58000000", "arm64": "0x58000000"}


class Valgrind(Struct, frozen=True, kw_only=True):
    """An installed valgrind that tools can be built for."""

    program: Path
    version: str  # 3.19.0
    headers: Path
    libraries: Path  # libcoregrind-amd64-linux.a and others
    parts: Path  # what it loads when it runs: vgpreload_core and others
    architecture: str  # amd64


class TraceTools(Struct, frozen=True):
    """The programs of a traced run, compiled."""

    valgrind: Valgrind
    tool: Path
    analyser: Path

    @property
    def engine(self) -> str:
        """Name and version of the tracer, for people."""
        return f"valgrind {self.valgrind.version}"

    @contextmanager
    def library_folder(self) -> Iterator[Path]:
        """Make the folder that VALGRIND_LIB names: the tool among valgrind's own parts."""
        with scratch_folder() as folder:
            for part in self.valgrind.parts.iterdir():
                (folder / part.name).symlink_to(part)
            (folder / f"{TOOL}-{self.valgrind.architecture}-linux").symlink_to(self.tool)
            yield folder


def find_valgrind(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Valgrind:
    """Return the valgrind in PATH with headers and libraries for tools.

    Raises `InputError` that says what is missing and how to get it. `root` is for tests.
    """
    architecture = _ARCHITECTURES.get(platform.machine())
    if architecture is None:
        raise InputError(
            f"rater lab trace traces programs on {', '.join(_ARCHITECTURES)}, "
            f"this machine is {platform.machine()}"
        )
    executable = shutil.which("valgrind", path=environment.get("PATH"))
    if executable is None:
        raise InputError(f"rater lab trace traces programs with valgrind, not in PATH: {_INSTALL}")
    program = Path(executable).resolve()
    version = run_tool([executable, "--version"], Path("/")).output
    match = _VERSION.search(version)
    if match is None or (int(match[1]), int(match[2])) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise InputError(
            f"{executable} says {version[:60]!r}: rater lab trace wants valgrind {oldest} on"
        )
    prefixes = dict.fromkeys((program.parent.parent, root / "usr", root / "usr/local"))

    def locate(description: str, name: str, folders: Sequence[str]) -> Path:
        folder = _folder_with(name, prefixes, folders)
        if folder is None:
            raise InputError(f"{executable} is there, but {description} not: {_INSTALL}")
        return folder

    core, tool = f"libcoregrind-{architecture}-linux.a", f"none-{architecture}-linux"
    headers = locate("the headers for tools", "pub_tool_tooliface.h", ("include/valgrind",))
    libraries = locate(core, core, _LIBRARY_FOLDERS)
    parts = locate(f"its own tool {tool}", tool, _LIBRARY_FOLDERS)
    return Valgrind(
        program=Path(executable),
        version=version.strip().removeprefix("valgrind-"),
        headers=headers,
        libraries=libraries,
        parts=parts,
        architecture=architecture,
    )


def build_tools(valgrind: Valgrind, cache: Path) -> TraceTools:
    """Compile the programs of a traced run, once a valgrind, compiler and version of rater.

    Raises `InputError` with the compiler's message.
    """
    architecture = valgrind.architecture
    libraries = [
        str(valgrind.libraries / f"{name}-{architecture}-linux.a")
        for name in ("libcoregrind", "libvex", "libgcc-sup")
    ]
    present = [library for library in libraries if Path(library).exists()]
    flags = (
        *_TOOL_FLAGS,
        f"-Wl,-Ttext-segment={_LOAD_ADDRESS[architecture]}",
        *(
            f"-D{definition}=1"
            for definition in (f"VGA_{architecture}", "VGO_linux", f"VGP_{architecture}_linux")
        ),
        f"-DVGPV_{architecture}_linux_vanilla=1",
        f"-I{valgrind.headers}",
        # Its libraries are linked in: others are another program.
        f'-DLIBRARIES="{sha256_of(Path(present[0]))[:16]}"',
    )
    tool = compile_program(
        "rater-tracer", [_SOURCES / "tracer.c"], flags, [*present[:2], "-lgcc", *present[2:]], cache
    )
    return TraceTools(
        valgrind,
        tool.executable,
        native_program("analyse", cache, ("-pthread",)),
    )


def native_program(name: str, cache: Path, flags: Sequence[str] = ()) -> Path:
    """Compile one of the C programs of this folder that need no valgrind."""
    source = _SOURCES / f"{name}.c"
    return compile_program(f"rater-{name}", [source], ("-O2", *flags), (), cache).executable


def _folder_with(name: str, prefixes: Mapping[Path, None], folders: Sequence[str]) -> Path | None:
    folders_found = (
        folder
        for prefix in prefixes
        for pattern in folders
        for folder in sorted(prefix.glob(pattern))
        if (folder / name).exists()
    )
    return next(folders_found, None)


# -- What TLB misses and page faults cost on this machine: measured once, kept in the cache --------

_FOLDER = "costs"
_LARGEST_SHARE = 8  # of free memory, for the largest footprint: it is there twice
_LARGEST_MIB, _LEAST_MIB = 512, 16
_LEAST_BESIDE_MIB = 64  # 16,384 pages: more than any TLB has
_THP = Path("/sys/kernel/mm/transparent_hugepage")


def machine_costs(cache: Path, *, anew: bool = False) -> dict[str, Any]:
    """Return what the program of `cost.c` printed on this machine, measured when there is none.

    Of the same processor, kernel and setting of huge pages what is in the cache holds; `anew`
    measures all the same. Raises `RunError` where it cannot be measured.
    """
    kept = None if anew else kept_costs(cache)
    if kept is not None:
        return kept
    path = _costs_file(cache)
    with cache_errors(cache):
        make_private_folder(path.parent)
        costs = measured_costs(native_program("cost", cache), _footprint_mib())
        replace_file(path, json.dumps(costs).encode(), mode=0o600)
    return costs


def kept_costs(cache: Path) -> dict[str, Any] | None:
    """Return what was measured on this machine before; None: nothing was."""
    with suppress(OSError, ValueError):
        kept = json.loads(_costs_file(cache).read_bytes())
        if isinstance(kept, dict) and kept:
            return kept
    return None


def _costs_file(cache: Path) -> Path:
    """Return where costs are kept, by this machine and by the program that measures them."""
    key = cache_key(sha256_of(_SOURCES / "cost.c"), *_fingerprint())
    return cache / _FOLDER / f"{key[:32]}.json"


def costs_beside(cache: Path, touched_bytes: int) -> dict[str, Any]:
    """Return what misses cost right now, for a program that touches so much; kept nowhere."""
    footprints_mib = min(_footprint_mib(), max(_LEAST_BESIDE_MIB, 2 * touched_bytes >> 20))
    return measured_costs(native_program("cost", cache), footprints_mib)


def measured_costs(program: Path, largest_mib: int) -> dict[str, Any]:
    """Run the program of `cost.c` with footprints up to the largest; raises `RunError`."""
    with tempfile.TemporaryFile() as output:
        argv = (str(program), str(largest_mib))
        ended = run_child(argv, Path("/"), os.environ, (output, output))
        if ended.status != 0:
            raise RunError(
                f"measuring what TLB misses cost failed (status {ended.status}): "
                f"{both_ends(output.fileno())}"
            )
        output.seek(0)
        costs: dict[str, Any] = json.load(output)
    return costs


def _fingerprint() -> tuple[str, ...]:
    cpuinfo = Path("/proc/cpuinfo").read_text(errors="replace")
    settings = [read_text(_THP / name) or "" for name in ("enabled", "defrag")]
    return (cpu_identity(cpuinfo), platform.release(), *settings, str(_footprint_mib(still=True)))


def _footprint_mib(*, still: bool = False) -> int:
    name = "SC_PHYS_PAGES" if still else "SC_AVPHYS_PAGES"
    mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf(name) >> 20
    return max(_LEAST_MIB, min(_LARGEST_MIB, mib // _LARGEST_SHARE))


# -- The analyser's document as a `PageTrace` ------------------------------------------------------

_LEAST_GROUPS = 8  # of a sample's 16, with references in them: fewer tell no error


def read_trace(
    document: Mapping[str, Any],
    *,
    huge_bytes: int,
    has_ranges: bool,
    **known: Any,
) -> PageTrace:
    """Return a trace; `known` is what is not the analyser's: its times, its TLB, what ran.

    `told`: the library of --pages was in it, which has one range for each category.
    Counts of a sample are those of all pages by estimate: divided by the sample's share.
    """
    rate = float(document["rate"])
    return PageTrace(
        **known,
        rate=rate,
        page_changes=int(document["page_changes"]),
        programs=int(document["programs"]),
        processes=int(document["forks"]),
        references=tuple(document["references"]),
        stores=tuple(document["stores"]),
        reuse=tuple(_reuse(item, rate) for item in document["sizes"]),
        mappings=tuple(_mapping(item, rate) for item in document["mappings"]),
        regions=_regions(document, huge_bytes, rate, has_ranges=has_ranges),
    )


def _scaled(counts: Sequence[int], rate: float) -> PerCategory:
    return tuple(counts) if rate == 1 else tuple(round(count / rate) for count in counts)


def _reuse(size: Mapping[str, Any], rate: float) -> PageReuse:
    histogram = []
    for name, near in zip(CATEGORIES, size["near"], strict=True):
        rows = {int(distance): count for distance, count in size["histogram"][name]}
        if rate < 1:
            rows = {distance: round(count / rate) for distance, count in rows.items()}
        rows[0] = rows.get(0, 0) + near  # to the page before: counted, not sampled
        histogram.append(
            tuple(
                sorted(
                    distance_and_count
                    for distance_and_count in rows.items()
                    if distance_and_count[1]
                )
            )
        )
    return PageReuse(
        page_bytes=1 << size["shift"],
        faults=tuple(size["faults"]),
        pages=tuple(size["pages"]),  # counted as they come, whatever the sample
        histogram=tuple(histogram),
        error=None if rate == 1 else _error(size["far"], size["sampled"]),
        error_from=size["far_from"],
    )


def _error(far: Sequence[int], sampled: Sequence[int]) -> float | None:
    """Return the standard error of a sample's far references, as a share of them.

    The sample's pages fall into groups by hash; each group is a smaller sample, and how much the
    groups differ tells how much samples do: sqrt(n var) / sum.
    """
    groups = [count for count, all_of in zip(far, sampled, strict=True) if all_of]
    total = sum(groups)
    if len(groups) < _LEAST_GROUPS or not total:
        return None
    mean = total / len(far)
    variance = sum((far_count - mean) ** 2 for far_count in far) / (len(far) - 1)
    return math.sqrt(len(far) * variance) / total


def _sizes(mapping: Mapping[str, Any]) -> MappingSizes:
    heap, mmap, static = (1 << shift for shift in mapping["shifts"][: len(CHOSEN)])
    return heap, mmap, static


def _mapping(mapping: Mapping[str, Any], rate: float) -> PageMapping:
    heap_bytes, mmap_bytes, static_bytes = _sizes(mapping)
    return PageMapping(
        heap_bytes=heap_bytes,
        mmap_bytes=mmap_bytes,
        static_bytes=static_bytes,
        l1_misses=_scaled(mapping["l1"], rate),
        walks=_scaled(mapping["l2"], rate),
        store_l1_misses=_scaled(mapping["store_l1"], rate),
        store_walks=_scaled(mapping["store_l2"], rate),
        gaps=tuple(
            WalkGap(order=WalkOrder(order), octave=octave, loads=loads, stores=stores)
            for order, octave, loads, stores in mapping["gaps"]
        ),
    )


type _RegionCounts = dict[tuple[int, int], tuple[int, int]]  # by category and region: L1, walks


def _regions(
    document: Mapping[str, Any], huge_bytes: int, rate: float, *, has_ranges: bool
) -> tuple[RegionMisses, ...]:
    """Return the misses of each 2 MiB, with all in base pages and with all in huge pages.

    Empty when the analyser had no mapping of all data to one of these sizes.
    """
    by_sizes = {_sizes(mapping): mapping["regions"] for mapping in document["mappings"]}
    base_rows, huge_rows = (by_sizes.get((size,) * 3) for size in (4096, huge_bytes))
    if base_rows is None or huge_rows is None:
        return ()
    base, huge = _region_counts(base_rows), _region_counts(huge_rows)
    numbers = _region_numbers([*base, *huge], document["begins"], has_ranges=has_ranges)
    misses = []
    for (category, region), number in numbers.items():
        l1_base, walks_base = _scaled(base.get((category, region), (0, 0)), rate)
        l1_huge, walks_huge = _scaled(huge.get((category, region), (0, 0)), rate)
        misses.append(
            RegionMisses(
                category=CHOSEN[category],
                region=number,
                l1_base=l1_base,
                walks_base=walks_base,
                l1_huge=l1_huge,
                walks_huge=walks_huge,
            )
        )
    return tuple(misses)


def _region_counts(rows: Sequence[Sequence[int]]) -> _RegionCounts:
    return {(category, region): (l1_misses, walks) for category, region, l1_misses, walks in rows}


def _region_numbers(
    regions: Sequence[tuple[int, int]], begins: Sequence[int], *, has_ranges: bool
) -> dict[tuple[int, int], int]:
    """Return the number of each region within its category, by category and place of the region.

    The library of --pages has one range for the heap and one for mappings, whose begin is known:
    numbers count from there, and a region in front of it has none. Without the library mappings
    lie apart: their regions are counted one behind the other.
    """
    numbers = {}
    for category in range(len(CHOSEN)):
        of_category = sorted({region for each, region in regions if each == category})
        is_range = has_ranges and category < len(begins) and begins[category]
        for position, region in enumerate(of_category):
            number = region - begins[category] // REGION_BYTES if is_range else position
            if number >= 0:
                numbers[category, region] = number
    return numbers


# -- A program under the tracer, and the analyser that reads what it refers to meanwhile -----------

_PIPE_BYTES = 1 << 20


class TraceAnalysis(Struct, frozen=True):
    """The command line of the analyser as values."""

    arrays: tuple[str, ...]  # of the TLB, as it takes them
    mappings: tuple[str, ...]
    rate: float = 1.0
    threads: int = 1

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command line behind the analyser's name."""
        words = [word for array in self.arrays for word in ("-t", array)]
        words += [word for mapping in self.mappings for word in ("-m", mapping)]
        return (*words, "-s", repr(self.rate), "-j", str(self.threads))


class TraceRun(Struct, frozen=True):
    """The result of one traced run."""

    document: dict[str, Any]  # of the analyser
    elapsed_s: float
    status: int  # exit code, or less than 0 the signal that ended it


def tracer_words(tools: TraceTools, descriptor: int, *, has_ranges: bool) -> tuple[str, ...]:
    """Return what stands in front of each traced command; `has_ranges`: it tells its ranges."""
    return (
        str(tools.valgrind.program),
        "-q",
        f"--tool={TOOL}",
        # Else valgrind takes loads away before the tool sees them: those whose register the same
        # block writes over.
        "--vex-iropt-level=0",
        "--trace-children=yes",
        f"--page-fd={descriptor}",
        f"--page-inode={os.fstat(descriptor).st_ino}",
        f"--told-ranges={'yes' if has_ranges else 'no'}",
    )


def run_traced(
    tools: TraceTools,
    running: Callable[[tuple[str, ...], Callable[[CopySpec], TraceRun]], TraceRun],
    analysis: TraceAnalysis,
    limits: Limits,
    library: Path | None,
) -> TraceRun:
    """Trace one run to its end, with the library of page sizes where it can be preloaded.

    `running` is given what stands in front of each command, and what to do in the run directory
    that it makes. Raises `InputError` where it cannot be started,
    `RunError` where it takes more than `limits`, or nothing could be made of its references.
    """
    reading, writing = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    ends = {reading, writing}

    def traced(spec: CopySpec) -> TraceRun:
        with tools.library_folder() as libraries:
            environment = {**spec.environment, b"VALGRIND_LIB": os.fsencode(libraries)}
            environment.pop(b"VALGRIND_OPTS", None)
            if library is not None:
                environment |= _preloaded(library, spec.environment)
            with subprocess.Popen(
                [str(tools.analyser), *analysis.arguments],
                stdin=reading,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
                preexec_fn=die_with_parent(),  # noqa: PLW1509 (only where there are no other threads)
            ) as analyser:
                try:
                    _close(ends, reading)
                    ended = run_to_end(spec, environment, limits, (writing,))
                    _close(ends, writing)  # the last writer: the analyser has read all
                    output, problem = analyser.communicate()
                finally:
                    kill_group(analyser.pid)
        if analyser.returncode != 0:
            text = problem.decode(errors="replace").strip() or ending_text(analyser.returncode)
            raise RunError(f"the analyser of page references failed: {text}")
        return TraceRun(document=json.loads(output), elapsed_s=ended.elapsed_s, status=ended.status)

    try:
        return running(tracer_words(tools, writing, has_ranges=library is not None), traced)
    finally:
        for end in tuple(ends):
            _close(ends, end)


def _close(ends: set[int], end: int) -> None:
    ends.discard(end)
    os.close(end)


def _preloaded(library: Path, environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the variables that let a program lay out its data as `rater run --pages` does.

    All in base pages, and it tells the tracer what is where.
    """
    heap, mmap = reserves(None, {}, sysroot())
    order = PageDirective(
        windows=(), heap_bytes=heap, mmap_bytes=mmap, split=True, pooled=False, strict=False
    )
    before = environment.get(b"LD_PRELOAD", b"")
    return {
        b"LD_PRELOAD": b":".join([os.fsencode(library), *([before] if before else [])]),
        VARIABLE.encode(): order.library_text(None).encode(),
    }


def run_to_end(
    spec: CopySpec,
    environment: Mapping[bytes, bytes],
    limits: Limits,
    descriptors: Sequence[int] = (),
) -> ChildEnded:
    """Run a program to its end; its status is as `ending_text` takes it.

    `descriptors` are those it inherits. Raises `InputError` where it cannot be started, `RunError`
    where it takes more than `limits` or the tracer cannot run it.
    """
    try:
        ended = run_alone(
            spec.argv,
            Path(spec.directory),
            environment,
            limits,
            outputs=(spec.stdout, spec.stderr),
            descriptors=descriptors,
        )
    except OSError as error:
        raise InputError(f"{spec.argv[0]} cannot be started: {error.strerror}") from None
    if ended.excess is LimitExceeded.TIME:
        raise RunError(
            f"{spec.argv[0]} was not done after {limits.time_s:g} s: a smaller input, or more "
            "time with --timeout"
        )
    if ended.excess is LimitExceeded.OUTPUT:
        raise RunError(f"{spec.argv[0]} wrote more than 1 GB of output")
    with Path(spec.stderr).open("rb") as stderr:
        text = both_ends(stderr.fileno())
    if ended.status and "valgrind: " in text:
        position = text.index("valgrind: ")
        raise RunError(
            f"the tracer could not run {spec.argv[-1]}: {text[position : position + 300]}"
        )
    return ended
