"""The head of a run: what was planned, where, on which host."""

from __future__ import annotations

from rater.record.frozen import record


def storable(text: str) -> str:
    """Return text of the system (arguments, paths) as Unicode: stray bytes as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@record
class MetricUsed:
    """A number that a benchmark reports of itself, as the suite declares it."""

    name: str
    unit: str
    better: str | None  # "higher", "lower" or None: neither
    combine: str  # over copies: "sum" or "mean"


@record
class BenchmarkUsed:
    """One benchmark as this run used it."""

    name: str
    category: str | None  # "int", "fp" or None
    command: str  # the command line as a shell would take it, without the wrap prefix
    reference_s: float | None
    binary_sha256: str | None  # of the executable, None when it could not be read
    compiler: str | None  # version line of the compiler, None for a plain command
    flags: str | None
    inputs_sha256: str | None = None  # of the names and contents of its input files, if any
    threads: int = 1  # CPUs that one copy uses
    metrics: tuple[MetricUsed, ...] = ()  # in the order of the suite


@record
class PlacedCopy:
    """Where one copy was planned to run (flat: the database's `placement` row)."""

    copy: int
    cpus: tuple[int, ...] | None  # affinity mask by OS number, ascending; None: not bound
    cpu: int | None  # the PU the copy was given; None when not bound
    core: int | None  # hwloc logical index of the core
    llc: int | None  # hwloc logical index of the last-level cache
    node: int | None  # OS number of the home NUMA node (lgroup)
    package: int | None  # hwloc logical index of the package
    memory_policy: str  # "local", "bind", "preferred", "interleave", "weighted" or "none"
    memory_nodes: tuple[int, ...]  # OS numbers; empty for "local" and "none"


@record
class Run:
    """Head of a run, emitted once, before the first phase."""

    uuid: str
    started_at: str  # UTC, ISO 8601 with "Z"
    mode: str  # homogeneous, rotated, staggered, steady
    order: str  # homogeneous or rotated: who runs what
    copies: int
    iterations: int
    discard: int  # first iterations that are measured but not counted
    stagger_ms: float  # 0: all copies are released together
    increment: int  # of the ring, rotated order only; 1 otherwise
    suite: str | None  # None for a plain command
    size: str | None
    tune: str | None
    layout: str
    memory: str
    timeout_s: float | None
    wrap: str | None
    command_line: str  # how rater was called, as a shell would take it
    rater_version: str
    tags: tuple[tuple[str, str], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # what --env added
    benchmarks: tuple[BenchmarkUsed, ...] = ()
    placements: tuple[PlacedCopy, ...] = ()
    warnings: tuple[str, ...] = ()
    warmup_s: float | None = None  # steady mode: from the first release to the window
    window_s: float | None = None  # steady mode: in which completions count
    directory: str | None = None  # where rater was called
    request: str | None = None  # what the user asked for, as JSON: enough to ask for it again
    suite_path: str | None = None
    suite_sha256: str | None = None  # of the suite file's text


@record
class Host:
    """The machine a run was made on; what is not known of an imported one is None."""

    fingerprint: str  # stable over reboots: model, topology, microcode; never measured MHz
    hostname: str | None
    machine_id_hash: str | None  # tells machines of one model apart without naming them
    cpu_model: str | None
    microcode: str | None
    vendor: str | None
    memory_bytes: int | None
    pus: int | None
    cores: int | None
    nodes: int | None
    packages: int | None
    architecture: str | None = None  # as `uname -m`
    product: str | None = None  # vendor and product as the firmware names them


@record
class MachinePU:
    """One hardware thread of the run's machine (flat: the database's `pu` row)."""

    cpu: int  # OS number
    core: int | None  # hwloc logical index
    llc: int | None  # hwloc logical index of the last-level cache
    node: int | None  # OS number of the home NUMA node (lgroup)
    package: int | None  # hwloc logical index
