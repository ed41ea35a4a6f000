"""What a history tells: steps with their dates, what changed then; trials of slow hosts; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean, median

from msgspec import Struct

from rater.analysis.divots.confirm import ConfirmResult, judge_pairs
from rater.analysis.stats.steps import ALPHA, find_steps
from rater.fleet.hosts import FleetComparison, HostResult, SlowHost, is_other_memory
from rater.settings.known import is_volatile
from rater.text.values import group_by_key

# -- What a history tells: steps, with their dates and what changed then ---------------------------

WHOLE = 0.015  # smallest steps that are told, ln: in all benchmarks,
ONE = 0.03  # in one
_OTHERS = 3  # hosts whose median is usual: in fewer (two that were confirmed) nobody can tell
_SAME = 0.6  # of a step: one in a benchmark at the same time that is no more is the same step
_UNINTERESTING = ("env.PATH",)


class FactChange(Struct, frozen=True):
    """What was one thing before a step and another after it."""

    name: str
    before: str | None
    after: str | None
    others_too: bool  # most other hosts had the new value as well


class DatedStep(Struct, frozen=True, kw_only=True):
    """A step of a host's or a benchmark's times."""

    benchmark: str | None  # None: all of them
    fleet: int  # the first one after it
    started_at: str | None  # of that one, and of the last one before
    last_before: str | None
    ratio: float  # time after over time before
    level: float  # time after over what is usual (of a benchmark: over its first level)
    fleets_since: int  # with it
    by_chance: float
    changes: tuple[FactChange, ...]
    host: str | None = None


class FleetTrend(Struct, frozen=True):
    """Times over what is usual, fleet by fleet."""

    name: str  # a benchmark, or "" for all
    fleets: tuple[int, ...]
    dates: tuple[str | None, ...]
    ratios: tuple[float, ...]


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """A host, or what is usual, in one fleet."""

    fleet: int
    started_at: str | None  # by the host's clock: a label, no order
    logs: dict[str, float]  # by benchmark ln of its time over the others' median; usual: of seconds
    hosts: int  # how many others
    facts: dict[str, str]  # its kind and its settings
    usual_facts: dict[str, str]  # what most others were
    program: str = ""  # what was run: histories of several are told apart


type _Course = list[tuple[HistoryPoint, float]]  # values are ln


class History(Struct, frozen=True, kw_only=True):
    """All that is told of a name."""

    name: str
    points: int
    steps: tuple[DatedStep, ...]  # in the order of time
    series: tuple[FleetTrend, ...]  # the first one of all benchmarks
    alone: int  # fleets in which fewer than three others were like it
    program: str = ""  # a command line, or suite and size


def points_of_host(
    host: str, fleets: Mapping[int, Iterable[HostResult]]
) -> dict[str, list[HistoryPoint]]:
    """Return a host in each fleet that has it, with what is usual there, by what was run."""
    points: dict[str, list[HistoryPoint]] = {}
    for fleet, results in fleets.items():
        timed = [result for result in results if result.copy_s]
        for own_result in (other for other in timed if other.host == host):
            others = [
                other
                for other in timed
                if other is not own_result and _are_alike(other, own_result)
            ]
            of_others = [other.seconds for other in others]
            logs = {
                name: math.log(own_s / median(them))
                for name, own_s in own_result.seconds.items()
                if (them := [other[name] for other in of_others if name in other])
            }
            points.setdefault(own_result.program, []).append(
                _point(fleet, own_result, logs, len(others), _usual_facts(others))
            )
    return points


def points_of_benchmark(
    benchmark: str, fleets: Mapping[int, Iterable[HostResult]]
) -> dict[str, tuple[list[HistoryPoint], dict[str, list[HistoryPoint]]]]:
    """Return a benchmark's usual time in each fleet, and each host's, by what was run.

    Of each fleet the hosts of the most common kind.
    """
    points: dict[str, tuple[list[HistoryPoint], dict[str, list[HistoryPoint]]]] = {}
    for fleet, results in fleets.items():
        timed = [result for result in results if benchmark in result.copy_s]
        if not timed:
            continue
        alike = _most_common_kind(timed)
        seconds, facts = (
            [host_result.seconds[benchmark] for host_result in alike],
            _usual_facts(alike),
        )
        usual_s, program = median(seconds), alike[0].program
        usual, of_hosts = points.setdefault(program, ([], {}))
        usual.append(
            HistoryPoint(
                fleet=fleet,
                started_at=_median_date(alike),
                logs={benchmark: math.log(usual_s)},
                hosts=len(alike),
                facts=facts,
                usual_facts={},
                program=program,
            )
        )
        for host_result, own_s in zip(alike, seconds, strict=True):
            logs = {benchmark: math.log(own_s / usual_s)}
            point = _point(fleet, host_result, logs, len(alike) - 1, facts)
            of_hosts.setdefault(host_result.host, []).append(point)
    return points


def _most_common_kind(results: Sequence[HostResult]) -> list[HostResult]:
    """Return the hosts that are like the one with the median memory of the most common kind."""
    kinds = group_by_key((_kind(host_result), host_result) for host_result in results)
    members = max(kinds.values(), key=len)
    members.sort(key=lambda host_result: host_result.run.memory_bytes or 0)
    typical = members[len(members) // 2]
    return [host_result for host_result in results if _are_alike(host_result, typical)]


def _median_date(results: Sequence[HostResult]) -> str | None:
    dates = sorted(
        host_result.run.started_at for host_result in results if host_result.run.started_at
    )
    return dates[len(dates) // 2] if dates else None


def _point(
    fleet: int, result: HostResult, logs: dict[str, float], others: int, usual_facts: dict[str, str]
) -> HistoryPoint:
    started_at, program = result.run.started_at, result.program
    return HistoryPoint(
        fleet=fleet,
        started_at=started_at,
        logs=logs,
        hosts=others,
        facts=result.facts,
        usual_facts=usual_facts,
        program=program,
    )


def _are_alike(result: HostResult, other: HostResult) -> bool:
    """Tell whether two hosts are of one kind, whatever their kernel and microcode."""
    return _kind(result) == _kind(other) and not is_other_memory(result.run, other.run)


def _kind(result: HostResult) -> tuple[object, ...]:
    return (
        result.program,
        result.run.cpu_model,
        result.run.cpus,
        result.run.copies,
        result.run.workload_text,
    )


def _usual_facts(hosts: Sequence[HostResult]) -> dict[str, str]:
    """Return what most hosts are and how they are set."""
    counted = Counter(fact for host in hosts for fact in host.facts.items())
    return {name: value for (name, value), many in counted.items() if 2 * many > len(hosts)}


def host_history(host: str, points: Sequence[HistoryPoint]) -> History:
    """Hold a host against the others of its kind, fleet by fleet; points in their order."""
    held = [point for point in points if point.logs and point.hosts >= _OTHERS]
    whole = [(dated, median(dated.logs.values())) for dated in held]
    each = {
        name: [(dated, dated.logs[name]) for dated in held if name in dated.logs]
        for name in sorted({name for dated in held for name in dated.logs})
    }
    significant = _significant_steps(None, whole, WHOLE, ALPHA, host)
    for name, values in each.items():
        of_whole = [dated for dated in significant if dated.benchmark is None]
        steps = _significant_steps(name, values, ONE, ALPHA / len(each), host)
        significant += [
            step for step in steps if not any(_is_same(step, dated) for dated in of_whole)
        ]
    significant.sort(key=lambda dated: (dated.fleet, dated.benchmark or ""))
    series = tuple(_series(name, values) for name, values in {"": whole, **each}.items())
    alone = len(points) - len(held)
    return History(
        name=host,
        points=len(held),
        steps=tuple(significant),
        series=series,
        alone=alone,
        program=points[-1].program,
    )


def benchmark_history(
    benchmark: str,
    points: Sequence[HistoryPoint],
    hosts: Mapping[str, Sequence[HistoryPoint]],
) -> History:
    """Hold what is usual against what was, and each host against what is usual."""
    apart = [(point, point.logs[benchmark] - points[0].logs[benchmark]) for point in points]
    steps = _significant_steps(benchmark, apart, WHOLE, ALPHA, None)
    for host, own in hosts.items():
        values = [(it, it.logs[benchmark]) for it in own if it.hosts >= _OTHERS]
        steps += _significant_steps(benchmark, values, ONE, ALPHA / len(hosts), host)
    steps.sort(key=lambda it: (it.host is not None, it.fleet, it.host or ""))
    series = (_series(benchmark, apart),)
    return History(
        name=benchmark,
        points=len(points),
        steps=tuple(steps),
        series=series,
        alone=0,
        program=points[-1].program,
    )


def _significant_steps(
    benchmark: str | None, values: _Course, least: float, alpha: float, host: str | None
) -> list[DatedStep]:
    points = [point for point, _ in values]
    steps = find_steps([value for _, value in values], least, alpha)
    edges = [*(it.first for it in steps), len(points)]
    return [
        DatedStep(
            benchmark=benchmark,
            fleet=points[step.first].fleet,
            started_at=points[step.first].started_at,
            last_before=points[step.first - 1].started_at,
            ratio=math.exp(step.size),
            level=math.exp(step.after),
            fleets_since=end - step.first,
            by_chance=step.by_chance,
            changes=changes(points[step.earliest - 1], points[step.latest]),
            host=host,
        )
        for step, end in zip(steps, edges[1:], strict=True)
    ]


def changes(before: HistoryPoint, after: HistoryPoint) -> tuple[FactChange, ...]:
    """Return what was otherwise before; first what the other hosts have not changed as well."""
    fact_changes = [
        FactChange(name, old, new, after.usual_facts.get(name) == new and bool(after.usual_facts))
        for name in sorted(before.facts.keys() | after.facts.keys())
        if (old := before.facts.get(name)) != (new := after.facts.get(name))
        and not is_volatile(name)
        and name not in _UNINTERESTING
        # The kernel's release is told as the kernel.
        and name not in ("kernel.release", "kernel.version")
    ]
    return tuple(sorted(fact_changes, key=lambda it: it.others_too))


def _is_same(step: DatedStep, whole: DatedStep) -> bool:
    """Tell whether a benchmark's step is that of the whole host, of about the same size."""
    size, of = math.log(step.ratio), math.log(whole.ratio)
    return abs(step.fleet - whole.fleet) <= 1 and size * of > 0 and abs(size - of) < _SAME * abs(of)


def _series(name: str, values: _Course) -> FleetTrend:
    return FleetTrend(
        name,
        tuple(point.fleet for point, _ in values),
        tuple(point.started_at for point, _ in values),
        tuple(math.exp(value) for _, value in values),
    )


# -- Whether slow hosts are slow again: which runs beside which, and what the pairs say ------------
#
# Suspect and quiet host run at the same time, so that what changes for the whole site changes for
# both; each round has another quiet host, so that none of them is the yardstick alone. Pairs are
# judged as those of a divot inside a machine (`divots.confirm.tell`).

type Round = dict[str, str]  # by suspect, the quiet host of its kind beside it


class Suspect(Struct, frozen=True):
    """A slow host, and what is to be seen again."""

    host: str
    benchmarks: tuple[str, ...]  # in which it was slow; empty: all alike
    slowdown: float  # as it was found


def suspect_of(slow: SlowHost) -> Suspect:
    """Return what is to be seen again of a slow host."""
    if slow.slowdown > 1:
        return Suspect(slow.host, (), slow.slowdown)
    logs = [math.log(benchmark.slowdown) for benchmark in slow.benchmarks]
    return Suspect(
        slow.host, tuple(benchmark.name for benchmark in slow.benchmarks), math.exp(fmean(logs))
    )


def pairs_of(
    comparison: FleetComparison, chosen: Collection[str], rounds: int
) -> tuple[Round, ...]:
    """Return the pairs of each round: the quietest hosts of a kind, each round others.

    Where suspects are more than quiet hosts, several have the same one beside them.
    """
    rounds_made: tuple[Round, ...] = tuple({} for _ in range(rounds))
    for kind in comparison.kinds:
        suspects = [it.host for it in (*kind.slow, *(kind.beside or ())) if it.host in chosen]
        quiet = comparison.kinds[0].quiet if kind.beside else kind.quiet
        step = len(suspects) if len(suspects) < len(quiet) else 1
        for turn, pairs in enumerate(rounds_made if quiet else ()):
            for place, suspect in enumerate(suspects):
                pairs[suspect] = quiet[(place + turn * step) % len(quiet)]
    return rounds_made


def pair_slowdown(suspect: Suspect, quiet: str, results: Mapping[str, HostResult]) -> float | None:
    """Return time over time of a pair, or None if a host has no times or was disturbed.

    Of a host that was slow in all benchmarks the median over them, else the geometric mean over
    those in which it was slow.
    """
    suspect_result, quiet_result = results.get(suspect.host), results.get(quiet)
    if suspect_result is None or quiet_result is None or suspect_result.taken or quiet_result.taken:
        return None
    logs = []
    for name in suspect.benchmarks or sorted(
        suspect_result.copy_s.keys() & quiet_result.copy_s.keys()
    ):
        side = (
            "bracket_s"
            if name in suspect_result.bracket_s and name in quiet_result.bracket_s
            else "copy_s"
        )
        times = getattr(suspect_result, side).get(name), getattr(quiet_result, side).get(name)
        if all(times):
            logs.append(math.log(median(times[0]) / median(times[1])))
    if not logs:
        return None
    return math.exp(fmean(logs) if suspect.benchmarks else median(logs))


def judge_suspect(
    suspect: Suspect, rounds: Iterable[tuple[Round, Mapping[str, HostResult]]]
) -> ConfirmResult | None:
    """Return what the rounds say of a suspect; None: fewer than two pairs tell anything."""
    sizes = [
        pair_slowdown(suspect, pairs[suspect.host], results)
        for pairs, results in rounds
        if suspect.host in pairs
    ]
    known_sizes = [size for size in sizes if size is not None]
    return judge_pairs(known_sizes, suspect.slowdown) if len(known_sizes) > 1 else None
