"""A fleet's hosts as values: what they are, which are alike, which of them are slow."""

from __future__ import annotations

from dataclasses import dataclass

from rater.analysis.fleet.detect import FEWEST_HOSTS


@dataclass(frozen=True, slots=True)
class HostKind:
    """What hosts have to have in common to be compared."""

    cpu_model: str | None
    microcode: str | None
    memory_bytes: int | None  # of the first of them: others differ by less than 2 %
    kernel: str | None
    cpus: int  # that it could use
    copies: int
    what: str  # suite, size, label and mode


@dataclass(frozen=True, slots=True)
class HostResult:
    """One host's run: its times by benchmark, and how its machine was set."""

    host: str
    attempt: int
    run: int  # in its database
    kind: HostKind
    settings: dict[str, str]
    bracket_s: dict[str, tuple[float, ...]]  # by benchmark, of each counted iteration
    copy_s: dict[str, tuple[float, ...]]  # the median copy's, in the same iterations


@dataclass(frozen=True, slots=True)
class OddSetting:
    """A setting that a host has otherwise than most of its kind."""

    name: str
    value: str | None
    usual: str | None


@dataclass(frozen=True, slots=True)
class SlowBenchmark:
    """A benchmark in which a host is slow beyond what it is in all of them."""

    name: str
    slowdown: float  # time over the others' median
    typical_copy: float  # the same of its median copy


@dataclass(frozen=True, slots=True)
class SlowHost:
    """A host that is slower than the others of its kind; slowdowns are time over theirs."""

    host: str
    attempt: int
    slowdown: float  # in all benchmarks; 1 where it is level but for some
    typical_copy: float  # the same of the median copies: level, where a part of the host is slow
    alike: int  # benchmarks in which it is so, of `of`
    of: int
    benchmarks: tuple[SlowBenchmark, ...]  # slow beyond that, the slowest first
    by_chance: float  # hosts so slow that a fleet without slow ones would show
    odd_settings: tuple[OddSetting, ...]

    @property
    def worst(self) -> float:
        """Its largest slowdown."""
        return max([self.slowdown, *(it.slowdown for it in self.benchmarks)])


@dataclass(frozen=True, slots=True)
class KindCompared:
    """Hosts of one kind held against each other."""

    kind: HostKind
    apart: tuple[str, ...]  # in what it differs from the most common kind, in words
    hosts: tuple[str, ...]  # the slowest first
    benchmarks: tuple[str, ...]
    slowdowns: dict[str, tuple[float | None, ...]]  # by host, of each benchmark; None: no time
    slow: tuple[SlowHost, ...]
    visible_whole: float | None  # slowdown in all benchmarks that it would show; None: cannot tell
    visible_one: float | None  # in one of them
    quiet: tuple[str, ...]  # those nearest to what is usual, to confirm others against
    odd_settings: dict[str, tuple[OddSetting, ...]]  # by host, of those that have any

    @property
    def cannot_tell(self) -> bool:
        """Too few hosts to say what is usual."""
        return len(self.hosts) < FEWEST_HOSTS


@dataclass(frozen=True, slots=True)
class FleetCompared:
    """All hosts of a fleet, kind by kind, the most common kind first."""

    kinds: tuple[KindCompared, ...]
    without_times: tuple[str, ...]  # hosts whose runs have no benchmark that ended well

    @property
    def slow(self) -> tuple[SlowHost, ...]:
        """Every slow host, the slowest first."""
        found = [one for kind in self.kinds for one in kind.slow]
        return tuple(sorted(found, key=lambda it: (-it.worst, it.host)))

    @property
    def hosts(self) -> int:
        """How many were compared, or could not be."""
        return sum(len(kind.hosts) for kind in self.kinds)
