"""The head of a run, and the words for how copies and runs end; pure."""

from __future__ import annotations

from enum import StrEnum
from signal import Signals

from msgspec import Struct

# -- How copies and runs end -----------------------------------------------------------------------

# Signals that a program brings upon itself, or that a limit brings which was set for it.
_FROM_ITSELF = {
    Signals.SIGSEGV,
    Signals.SIGBUS,
    Signals.SIGFPE,
    Signals.SIGILL,
    Signals.SIGABRT,
    Signals.SIGSYS,
    Signals.SIGTRAP,
    Signals.SIGPIPE,
    Signals.SIGXCPU,
    Signals.SIGXFSZ,
}


def is_from_outside(signal: int) -> bool:
    """Tell whether a signal that ended a program comes from others, rather than from itself."""
    return signal not in _FROM_ITSELF


LEFT_BEHIND = "left processes behind"  # begins the note of a copy whose processes outlived it


class CopyStatus(StrEnum):
    """How a copy ended."""

    OK = "ok"
    FAILED = "failed"  # exit code not 0, killed by a signal, or more output than allowed
    TIMEOUT = "timeout"
    WRONG_OUTPUT = "wrong-output"
    INTERRUPTED = "interrupted"


class Validity(StrEnum):
    """Whether a copy's output was right."""

    UNCHECKED = "unchecked"  # nobody looked yet: the copy has just ended, or rater died first
    NOT_CHECKED = "no-expectation"  # there is nothing to compare with (a plain command)
    VALID = "valid"
    INVALID = "invalid"


class RunStatus(StrEnum):
    """State of a whole run; `RUNNING` in the database of a dead rater means it was killed."""

    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    KILLED = "killed"  # never stored: a `RUNNING` run whose rater is gone is read as this

    @property
    def reported(self) -> str:
        """The word of the JSON documents: a killed rater has interrupted its run."""
        return (RunStatus.INTERRUPTED if self is RunStatus.KILLED else self).value


# -- The head of a run: what was planned, where, on which host -------------------------------------


def escape_undecodable(text: str) -> str:
    """Return text of the system (arguments, paths) as Unicode: stray bytes as `\\xff`."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


INSTRUCTIONS = "instructions"  # the metric of `--count instructions`; its unit names the source


class MetricUsed(Struct, frozen=True):
    """A number that a benchmark reports of itself, as the suite declares it."""

    name: str
    unit: str
    better: str | None  # "higher", "lower" or None: neither
    combine: str  # over copies: "sum" or "mean"


class BenchmarkUsed(Struct, frozen=True, kw_only=True):
    """One benchmark as this run used it."""

    name: str
    category: str | None = None  # "int", "fp" or None
    command: str = ""  # the command line as a shell would take it, without the wrap prefix
    reference_s: float | None = None
    binary_sha256: str | None = None  # of the executable, None when it could not be read
    compiler: str | None = None  # version line of the compiler, None for a plain command
    flags: str | None = None
    inputs_sha256: str | None = None  # of the names and contents of its input files, if any
    threads: int = 1  # CPUs that one copy uses
    metrics: tuple[MetricUsed, ...] = ()  # in the order of the suite


class MemoryPolicy(StrEnum):
    """Where a copy's memory may come from."""

    NONE = "none"  # whatever rater inherited
    LOCAL = "local"  # MPOL_LOCAL: the node of the running CPU
    BIND = "bind"  # MPOL_BIND, strict: out of memory rather than from another node
    PREFERRED = "preferred"  # MPOL_PREFERRED_MANY: other nodes when these are full
    INTERLEAVE = "interleave"  # MPOL_INTERLEAVE: page by page over the nodes
    WEIGHTED = "weighted"  # MPOL_WEIGHTED_INTERLEAVE: by the weights in /sys/kernel/mm/mempolicy


class Placement(Struct, frozen=True, kw_only=True):
    """Where one copy runs and where its memory comes from (the database's `placement` row)."""

    copy: int
    cpus: tuple[int, ...] | None  # affinity mask by OS number, ascending; None: not bound
    cpu: int | None  # the PU it was given (the mask may be wider); None when not bound
    core: int | None  # hwloc logical index of the core
    llc: int | None  # hwloc logical index of the last-level cache
    node: int | None  # OS number of the home NUMA node (lgroup)
    package: int | None  # hwloc logical index of the package
    memory_policy: MemoryPolicy
    memory_nodes: tuple[int, ...]  # OS numbers; empty for "local" and "none"

    @property
    def planned_nodes(self) -> tuple[int, ...]:
        """The nodes that memory is to come from, as far as the placement alone tells."""
        is_elsewhere = self.memory_nodes or self.memory_policy is not MemoryPolicy.LOCAL
        return self.memory_nodes if is_elsewhere or self.node is None else (self.node,)

    @classmethod
    def unbound(
        cls,
        copy: int,
        memory_policy: MemoryPolicy = MemoryPolicy.NONE,
        memory_nodes: tuple[int, ...] = (),
    ) -> Placement:
        """Return the placement of a copy that may run on any CPU."""
        return cls(
            copy=copy,
            cpus=None,
            cpu=None,
            core=None,
            llc=None,
            node=None,
            package=None,
            memory_policy=memory_policy,
            memory_nodes=memory_nodes,
        )


class Host(Struct, frozen=True, kw_only=True):
    """The machine a run was made on; facts that are not known are None."""

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

    @classmethod
    def imported(
        cls,
        name: str,
        *,
        hostname: str | None,
        cpu_model: str | None = None,
        product: str | None = None,
    ) -> Host:
        """Return the machine of an imported run: machines of one `name` count as the same."""
        return cls(
            fingerprint=f"import:{name}",
            hostname=hostname,
            machine_id_hash=None,
            cpu_model=cpu_model,
            microcode=None,
            vendor=None,
            memory_bytes=None,
            pus=None,
            cores=None,
            nodes=None,
            packages=None,
            product=product,
        )


class MachinePU(Struct, frozen=True, kw_only=True):
    """One hardware thread of the run's machine (flat: the database's `pu` row)."""

    cpu: int  # OS number
    core: int | None  # hwloc logical index
    llc: int | None  # hwloc logical index of the last-level cache
    node: int | None  # OS number of the home NUMA node (lgroup)
    package: int | None  # hwloc logical index


MOST_COPIES = 99_999  # of a run


# -- Words that name a fleet -----------------------------------------------------------------------

PREFIX = "fleet:"


def is_fleet_word(text: str) -> bool:
    """Tell whether a word means a fleet or a host of one."""
    return text.startswith(PREFIX)
