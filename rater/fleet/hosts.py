"""A fleet's hosts held against each other: kinds apart, the slow ones named and by how much."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.disturbed import is_too_disturbed, mostly_disturbed
from rater.analysis.stats.robust import Floats, median
from rater.fleet.archive import IndexedRun, latest
from rater.fleet.slowness import (
    FEWEST_HOSTS,
    HostsJudged,
    Slowness,
    compare_against,
    compare_hosts,
)
from rater.settings.known import COMMAND_LINE, WHERE_READ, is_volatile
from rater.text.secrets import Redactor
from rater.text.values import count, group_by_key, percent

_MOST_VISIBLE = 0.5  # of a time: a fleet that shows no less says nothing
_FACTS = ("kernel", "microcode", "machine_id_hash", "cpu_model", "memory_bytes", "cpus", "copies")


class HostResult(Struct, frozen=True, kw_only=True):
    """One host's run: its times by benchmark, and how its machine was set."""

    run: IndexedRun
    settings: dict[str, str]
    bracket_s: dict[str, tuple[float, ...]]  # by benchmark, of each counted iteration
    copy_s: dict[str, tuple[float, ...]]  # the median copy's, in the same iterations
    program: str = ""  # the command line, or suite and size

    @property
    def host(self) -> str:
        """The node, as the scheduler calls it."""
        return self.run.host

    @property
    def taken(self) -> bool:
        """Others disturbed its run."""
        return is_too_disturbed(self.run.others_cost)

    @property
    def facts(self) -> dict[str, str]:
        """Settings, and what the machine is."""
        facts_by_name = {name: getattr(self.run, name) for name in _FACTS}
        return self.settings | {
            name: str(fact) for name, fact in facts_by_name.items() if fact is not None
        }

    @property
    def seconds(self) -> dict[str, float]:
        """The time of the median iteration by benchmark."""
        return {
            name: statistics.median(self.bracket_s.get(name) or times)
            for name, times in self.copy_s.items()
        }


class OddSetting(Struct, frozen=True):
    """A setting that a host has otherwise than most of its kind."""

    name: str
    value: str | None
    usual: str | None


class SlowBenchmark(Struct, frozen=True):
    """A benchmark in which a host is slower than in the others."""

    name: str
    slowdown: float  # time over the others' median
    typical_copy: float  # the same of its median copy


class SlowHost(Struct, frozen=True, kw_only=True):
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
    mean_slowdown: float = 1.0  # geometric mean over all benchmarks: what hosts are ranked by

    @property
    def worst(self) -> float:
        """Its largest slowdown."""
        return max([self.slowdown, *(benchmark.slowdown for benchmark in self.benchmarks)])


class PossibleSlowdown(Struct, frozen=True, kw_only=True):
    """How slow a host may be beyond what was measured, as time over the others' median."""

    host: str
    benchmark: str | None  # None: in all of them
    slowdown: float  # measured
    most: float  # what noise leaves possible, but in one of a thousand


class KindComparison(Struct, frozen=True, kw_only=True):
    """Hosts of one kind held against each other."""

    kind: IndexedRun  # machine and command of the first host
    apart: tuple[str, ...]  # in what it differs from the most common kind, in words
    hosts: tuple[str, ...]  # the slowest first
    slowdowns: dict[str, dict[str, float | None]]  # by host and benchmark; None: no time
    slow: tuple[SlowHost, ...]
    visible_whole: float | None  # slowdown in all benchmarks that it would show; None: cannot tell
    visible_one: float | None  # in one of them
    quiet: tuple[str, ...]  # those nearest to what is usual, to confirm others against
    odd_settings: dict[str, tuple[OddSetting, ...]]  # by host, of those that have any
    disturbed: tuple[str, ...] = ()  # hosts
    possible: tuple[PossibleSlowdown, ...] = ()  # of each host in all benchmarks, and in one
    visible_worst: tuple[str, float] | None = None  # a benchmark, and the least seen in it
    iterations: int = 1  # that were counted
    # Hosts of another fleet that these are held against; None: they are held against each other.
    reference_hosts: int | None = None
    shift: float | None = None  # time of the median host over that of the reference's
    # Few of another kernel or microcode: those slow against the most common kind; None: others.
    beside: tuple[SlowHost, ...] | None = None

    @property
    def why_not(self) -> str | None:
        """Why nothing can be said of these hosts, in words; None: something can."""
        if self.reference_hosts is not None and self.reference_hosts < FEWEST_HOSTS:
            known = count(self.reference_hosts, "host") if self.reference_hosts else "no host"
            return (
                f"{known} of this kind and program, undisturbed, in the fleet to compare with; "
                "fewer than 4 do not show what is usual"
            )
        if self.reference_hosts is None and len(self.hosts) < FEWEST_HOSTS:
            hosts_named = "one host alone" if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
            return f"{hosts_named} of this kind, and fewer than 4 do not show what is usual"
        disturbed = mostly_disturbed([host in self.disturbed for host in self.hosts], "host")
        if disturbed or self.slow or (self.visible_whole or 0.0) <= _MOST_VISIBLE:
            return disturbed
        return f"only a host slower by {percent(self.visible_whole, 0)} % or more would show"


class FleetComparison(Struct, frozen=True):
    """All hosts of a fleet, kind by kind, the most common kind first."""

    kinds: tuple[KindComparison, ...]
    without_times: tuple[str, ...]  # hosts whose runs have no benchmark that ended well
    against: int | None = None  # the fleet whose hosts these are held against; None: each other

    @property
    def slow(self) -> tuple[SlowHost, ...]:
        """Every slow host, the slowest first."""
        slow_hosts = [
            slow_host for kind in self.kinds for slow_host in (*kind.slow, *(kind.beside or ()))
        ]
        return tuple(sorted(slow_hosts, key=lambda it: (-it.mean_slowdown, it.host)))


# -- Kinds compared, with what is odd about the slow ones ------------------------------------------

_SAME_MEMORY = 0.02  # machines of one kind tell the kernel's share differently
_REACH = 3.0  # standard deviations: one in a thousand is farther out
_ALIKE = 0.4  # of its slowdown: a benchmark that shows so much shows it
_MOST_OF = 0.5  # hosts of a kind that a usual value needs
# What differs on every machine or run and explains nothing.
_OWN = (COMMAND_LINE, "kernel.version", "env.PATH")
# Of the command line the words that name a disk, a file or an address.
_OWN_WORDS = ("BOOT_IMAGE", "initrd", "root", "resume", "ip", "hostname", "systemd.machine_id")

# Of a host's attempt and run: by benchmark the times of its brackets and of its median copies, in
# seconds. Side by side no copies: no brackets.
type Times = dict[str, tuple[tuple[float, ...], tuple[float, ...]]]


def results_of(
    runs: Iterable[IndexedRun],
    times: Mapping[tuple[str, int, int], Times],
    settings: Mapping[int, dict[str, str]],
    command: str | None = None,
) -> list[HostResult]:
    """Return the last complete attempt of each host, or its last one; of several runs the last.

    `command`: what the hosts ran instead of a suite.
    """
    results = []
    for host_runs in latest(runs).values():
        run = host_runs[-1]
        of: Times = {}
        for indexed_run in host_runs:
            of |= times.get((indexed_run.host, indexed_run.attempt, indexed_run.run), {})
        results.append(
            HostResult(
                run=run,
                settings=settings.get(run.setting, {}),
                bracket_s={name: bracket_s for name, (bracket_s, _) in of.items() if bracket_s},
                copy_s={name: copy_s for name, (_, copy_s) in of.items()},
                program=command or ", ".join(filter(None, (run.suite, run.size))),
            )
        )
    return results


def compare_fleet(results: Iterable[HostResult]) -> FleetComparison:
    """Hold the hosts of each kind against each other."""
    results = list(results)
    groups = _kinds(results)
    return FleetComparison(
        tuple(
            replace(_compared(members, groups[0][0].run), beside=_beside(members, groups[0]))
            for members in groups
        ),
        tuple(sorted(result.host for result in results if not result.copy_s)),
    )


def compare_fleet_against(
    results: Iterable[HostResult], fleet: int, reference: Iterable[HostResult]
) -> FleetComparison:
    """Hold the hosts of each kind against those of another fleet, whatever the kernels are.

    Of the other fleet the hosts count that others did not disturb: those of the same machine and
    program, and of these the most common kernel and microcode.
    """
    results = list(results)
    known_kinds = _kinds([result for result in reference if not result.taken])
    kinds = []
    for members in _kinds(results):
        own = members[0]
        alike = [
            known_members
            for known_members in known_kinds
            if own.program == known_members[0].program
            and not any(_apart(_of_system(known_members[0].run, own.run), own.run))
        ]
        held_against = max(alike, key=len, default=[])
        kinds.append(_compared(members, (held_against or members)[0].run, held_against))
    without_times = tuple(sorted(result.host for result in results if not result.copy_s))
    return FleetComparison(tuple(kinds), without_times, fleet)


def _kinds(results: Iterable[HostResult]) -> list[list[HostResult]]:
    """Return hosts with times by their kind, the most common kind first."""
    kinds = group_by_key((_kind(result.run), result) for result in results if result.copy_s)
    groups = [group for members in kinds.values() for group in _of_one_memory(members)]
    return sorted(groups, key=lambda members: (-len(members), members[0].host))


def _of_system(run: IndexedRun, other: IndexedRun) -> IndexedRun:
    """Return a run as if it had been made with the kernel and microcode of another."""
    return replace(run, microcode=other.microcode, kernel=other.kernel)


def _beside(results: list[HostResult], usual: list[HostResult]) -> tuple[SlowHost, ...] | None:
    """Return the hosts of a small kind that are slow among those of the most common one.

    Where these run the same machine with another kernel or microcode: a host that got slower with
    a new kernel is the reason to look.
    """
    first = usual[0].run
    same_system = _of_system(results[0].run, first)
    if (
        results is usual
        or any(_apart(same_system, first))
        or not len(results) < FEWEST_HOSTS <= len(usual)
    ):
        return None
    if mostly_disturbed([result.taken for result in usual]):
        return None
    hosts = {result.host for result in results}
    return tuple(
        result for result in _compared([*usual, *results], first).slow if result.host in hosts
    )


def _kind(run: IndexedRun) -> tuple[object, ...]:
    """Return what hosts have to have in common to be compared, but for a little memory."""
    return run.cpu_model, run.microcode, run.kernel, run.cpus, run.copies, run.workload_text


def _of_one_memory(results: Iterable[HostResult]) -> Iterator[list[HostResult]]:
    group: list[HostResult] = []
    for result in sorted(results, key=lambda result: result.run.memory_bytes or 0):
        if group and is_other_memory(group[-1].run, result.run):
            yield group
            group = []
        group.append(result)
    yield group


class _Times(Struct, frozen=True, kw_only=True):
    """The times of hosts of one kind, in ln, and how far hosts are apart in them."""

    names: tuple[str, ...]  # of the benchmarks
    comparison: HostsJudged | None  # None: too few hosts show what is usual
    distances: Floats  # (hosts, benchmarks)
    copies: Floats  # the same of the median copies
    iterations: int


def _times_of(results: Sequence[HostResult], reference: Sequence[HostResult] | None) -> _Times:
    """Hold hosts against each other, or against those of a reference in what both ran."""
    every = [*results, *(reference or ())]
    names = sorted({name for result in results for name in result.copy_s})
    if reference:
        names = [name for name in names if any(name in result.copy_s for result in reference)]
    # One measure for all hosts in a benchmark: brackets where all that ran it have them.
    bracketed = {
        name
        for name in names
        if all(name in result.bracket_s for result in every if name in result.copy_s)
    }
    whole = _logs(_times_by_host(results, names, bracketed))
    copies = _logs(_times_by_host(results, names, set()))
    comparison = None
    if reference is not None and len(reference) >= FEWEST_HOSTS and names:
        usual_copies = _logs(_times_by_host(reference, names, set()))
        comparison = compare_against(whole, _logs(_times_by_host(reference, names, bracketed)))
        copies = median(copies) - median(median(usual_copies).T)[None, :]
    else:
        copies = _distances(copies)
        if reference is None and len(results) >= FEWEST_HOSTS:
            comparison = compare_hosts(whole)
    distances = _distances(whole) if comparison is None else comparison.distances
    if comparison is None and len(results) == 1:
        distances = np.full(whole.shape[:2], np.nan)
    return _Times(
        names=tuple(names),
        comparison=comparison,
        distances=distances,
        copies=copies,
        iterations=whole.shape[2],
    )


def _compared(
    members: Sequence[HostResult],
    first: IndexedRun,
    reference: Sequence[HostResult] | None = None,
) -> KindComparison:
    """Compare hosts of one kind; `first` is what its facts are told apart from."""
    results = sorted(members, key=lambda it: it.host)
    times = _times_of(results, reference)
    comparison, distances = times.comparison, times.distances
    usual = _usual_settings(reference or results)
    odd = {
        result.host: settings
        for result in results
        if (settings := tuple(_odd(result.settings, usual)))
    }
    slow = [
        _slow(
            slow_host,
            results[slow_host.host],
            times.names,
            (distances[slow_host.host], times.copies[slow_host.host]),
            odd,
        )
        for slow_host in (comparison.slow if comparison else ())
    ]
    named = {slow_host.host for slow_host in slow}
    others = [place for place, result in enumerate(results) if result.host not in named]
    quiet: list[int] = []
    if comparison:
        quiet = sorted(others, key=lambda place: float(np.nanmax(np.abs(distances[place]))))
        others.sort(key=lambda place: -np.nanmean(distances[place]))
    return KindComparison(
        kind=results[0].run,
        apart=tuple(_apart(results[0].run, first)),
        hosts=(*(slow_host.host for slow_host in slow), *(results[place].host for place in others)),
        slowdowns={
            result.host: {
                name: None if np.isnan(size) else float(np.exp(size))
                for name, size in zip(times.names, row, strict=True)
            }
            for result, row in zip(results, distances, strict=True)
        },
        slow=() if mostly_disturbed([result.taken for result in results], "host") else tuple(slow),
        visible_whole=float(np.expm1(comparison.visible_whole)) if comparison else None,
        visible_one=float(np.expm1(comparison.visible_one)) if comparison else None,
        visible_worst=_visible_worst(comparison, times.names),
        quiet=tuple(results[place].host for place in quiet),
        odd_settings=odd,
        disturbed=tuple(result.host for result in results if result.taken),
        possible=tuple(_possible(comparison, results, times.names)) if comparison else (),
        iterations=times.iterations,
        reference_hosts=None if reference is None else len(reference),
        shift=_shift(comparison) if reference else None,
    )


def _visible_worst(
    comparison: HostsJudged | None, names: Sequence[str]
) -> tuple[str, float] | None:
    """Return the benchmark in which least can be seen, and which slowdown can."""
    if comparison is None or not names:
        return None
    place = int(np.argmax(comparison.visible_each))
    return names[place], math.expm1(comparison.visible_each[place])


def _shift(comparison: HostsJudged | None) -> float | None:
    """Return the time of the median host over what is usual, over all benchmarks."""
    if comparison is None:
        return None
    return math.exp(float(median(median(comparison.distances))))


def _possible(
    comparison: HostsJudged, results: Sequence[HostResult], names: Sequence[str]
) -> Iterator[PossibleSlowdown]:
    """Yield how slow each host may be in all benchmarks, and in the one where it may be slowest."""
    for result, row in zip(results, comparison.distances, strict=True):
        effect = float(median(row))
        most = row + _REACH * comparison.error_each
        if np.isnan(effect):
            continue
        yield PossibleSlowdown(
            host=result.host,
            benchmark=None,
            slowdown=math.exp(effect),
            most=math.exp(effect + _REACH * comparison.error_whole),
        )
        place = int(np.nanargmax(most))
        yield PossibleSlowdown(
            host=result.host,
            benchmark=names[place],
            slowdown=math.exp(row[place]),
            most=math.exp(most[place]),
        )


def _times_by_host(
    results: Sequence[HostResult], names: Sequence[str], bracketed: Collection[str]
) -> list[list[tuple[float, ...]]]:
    """Return seconds (hosts, benchmarks, iterations): of brackets where these are `bracketed`."""
    return [
        [(result.bracket_s if name in bracketed else result.copy_s).get(name, ()) for name in names]
        for result in results
    ]


def _slow(
    slowness: Slowness,
    result: HostResult,
    names: Sequence[str],
    rows: tuple[Floats, Floats],
    odd: Mapping[str, tuple[OddSetting, ...]],
) -> SlowHost:
    """Return a slow host; `rows` are its distances, of all copies and of median ones."""
    row, copies = rows
    known_values = row[~np.isnan(row)]
    return SlowHost(
        host=result.host,
        attempt=result.run.attempt,
        slowdown=float(np.exp(slowness.effect)),
        typical_copy=float(np.exp(median(copies))),
        alike=int(np.sum(known_values > _ALIKE * slowness.effect)) if slowness.effect else 0,
        of=known_values.size,
        benchmarks=tuple(
            SlowBenchmark(
                names[benchmark], float(np.exp(row[benchmark])), float(np.exp(copies[benchmark]))
            )
            for benchmark in slowness.benchmarks
        ),
        by_chance=slowness.by_chance,
        odd_settings=odd.get(result.host, ()),
        mean_slowdown=float(np.exp(np.mean(known_values))),
    )


def _logs(times: Sequence[Sequence[Sequence[float]]]) -> Floats:
    """Return ln of times (hosts, benchmarks, iterations), NaN where a host has fewer."""
    longest = max((len(cell) for row in times for cell in row), default=1)
    logs = np.full((len(times), len(times[0]), max(longest, 1)), np.nan)
    for host, row in enumerate(times):
        for benchmark, cell in enumerate(row):
            logs[host, benchmark, : len(cell)] = np.log(cell)
    return logs


def _distances(logs: Floats) -> Floats:
    """Return ln of a host's median time over all hosts' median of it, (hosts, benchmarks)."""
    each = median(logs)
    return np.asarray(each - median(each.T)[None, :])


def _usual_settings(results: Sequence[HostResult]) -> dict[str, str]:
    """Return the value of each setting that more than half of the hosts have; "" for none."""
    usual = {}
    comparable = [comparable_settings(result.settings) for result in results]
    for name in {name for settings in comparable for name in settings}:
        if is_volatile(name) or name in _OWN:
            continue
        known = [it for it in comparable if _tells(it, name)]
        ((value, many),) = Counter(it.get(name, "") for it in known).most_common(1)
        if many > _MOST_OF * len(known):
            usual[name] = value
    return usual


def _tells(settings: Mapping[str, str], name: str) -> bool:
    """Tell whether a host without a setting would have said so: some only root can read."""
    of_line = name.startswith(f"{COMMAND_LINE} ")
    is_always_read = COMMAND_LINE in settings if of_line else not name.startswith(WHERE_READ)
    return name in settings or is_always_read


def comparable_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with each word of the command line as one of them.

    The whole line has a disk's number in it, and differs between any two machines. A word that
    is there without a value has itself for one: `kernel.cmdline nosmt` is `nosmt`.
    """
    line = Redactor().redact(settings.get(COMMAND_LINE, ""))
    values = group_by_key(
        (f"{COMMAND_LINE} {key}", value or key)
        for key, _, value in (word.partition("=") for word in line.split())
        if key not in _OWN_WORDS
    )
    return {**settings, **{name: " ".join(texts) for name, texts in values.items()}}


def _odd(settings: Mapping[str, str], usual: Mapping[str, str]) -> Iterator[OddSetting]:
    """Yield what a host has otherwise; what only root can read may be unknown, and is no more."""
    own = comparable_settings(settings)
    for name, value in sorted(usual.items()):
        own_value = own.get(name, "")
        if own_value != value and _tells(own, name):
            yield OddSetting(name, own_value or None, value or None)


def _apart(kind: IndexedRun, first: IndexedRun) -> Iterator[str]:
    """Say in what a kind differs from the most common one."""
    for what, name in (("CPU", "cpu_model"), ("microcode", "microcode"), ("kernel", "kernel")):
        if getattr(kind, name) != getattr(first, name):
            yield f"{what} {getattr(kind, name) or 'not known'}"
    if is_other_memory(kind, first):
        yield f"memory {kind.memory_text or 'not known'}"
    if kind.cpus != first.cpus:
        yield f"{kind.cpus} usable CPUs" if kind.cpus else "usable CPUs not known"
    if kind.copies != first.copies:
        yield f"{kind.copies} copies"
    if kind.workload_text != first.workload_text:
        yield kind.workload_text


def is_other_memory(indexed_run: IndexedRun, other: IndexedRun) -> bool:
    """Tell whether memory differs by more than what kernels keep of it."""
    low, high = sorted((indexed_run.memory_bytes or 0, other.memory_bytes or 0))
    return high > low * (1 + _SAME_MEMORY)
