"""What copies report of themselves, and the energy of phases; pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.result import Missing, PhaseEnergy, stored_request, why_failed
from rater.analysis.results.steady import is_steady, share_inside
from rater.plan.idle_power import GIVEN, idle_watts
from rater.record.events import CopyEnded, PhaseEnded
from rater.record.run import BenchmarkUsed, MetricUsed
from rater.record.stored import StoredRun, is_good
from rater.system.patterns import compile_later
from rater.text.values import count, group_by_key, truncate_list

# -- Energy of phases: joules of the packages that a run's copies were on, and estimates for copies
#
# What is counted belongs to packages, for all that draws power there. It is the run's where
# the run has all of a package to itself, idle CPUs included: BenchExec gives none else
# either (D. Beyer and others, *Reliable benchmarking*, 2019). On servers memory (`dram`) is
# counted apart from its package; `core` and `uncore` are parts of the package's own number.

# RAPL counters move every millisecond: the two ends of a shorter phase are over 2 % of it.
LEAST_S = 0.1
_ENERGY = "energy_"
_DOMAIN = compile_later(rf"{_ENERGY}(.+)_uj")
_WHOLE = compile_later(r"package-([0-9]{1,9})(?:-die-\d+)?(-dram)?")  # together all of a package
_PSYS = "psys"


def phase_energies(run: StoredRun) -> tuple[PhaseEnergy, ...]:
    """Return the energy of every phase that has readings of it, by phase."""
    joules_by_phase = _without_dead_counters(
        {reading.phase: _joules(reading.values) for reading in run.machine_readings}
    )
    if not any(joules_by_phase.values()):
        return ()
    run = run.without_torn()
    copies = group_by_key((copy.phase, copy) for copy in run.copies)
    brackets = {bracket.phase: bracket for bracket in run.brackets}
    names = {name for joules in joules_by_phase.values() for name in joules}
    energies = []
    for reading in run.machine_readings:
        joules = joules_by_phase[reading.phase]
        elapsed_ns = dict(reading.values).get("elapsed_ns")
        if joules and elapsed_ns:
            lost_domains = sorted(names - joules.keys())
            phase_copies = copies.get(reading.phase, [])
            energy = _phase_energy(
                run,
                brackets[reading.phase],
                phase_copies,
                elapsed_s=elapsed_ns / 1e9,
                domains=joules,
                lost_domains=lost_domains,
            )
            energies.append(energy)
    return tuple(energies)


def _joules(values: Iterable[tuple[str, int]]) -> dict[str, float]:
    matches = (
        (_DOMAIN.fullmatch(name), microjoules)
        for name, microjoules in values
        if name.startswith(_ENERGY)
    )
    return {match[1]: microjoules / 1e6 for match, microjoules in matches if match}


def _without_dead_counters(
    joules_by_phase: Mapping[int, Mapping[str, float]],
) -> dict[int, dict[str, float]]:
    """Leave out counters of packages and machines that stood still in all phases.

    All of a package always draws power. Virtual machines offer counters that never move.
    """
    live = {
        name
        for joules in joules_by_phase.values()
        for name, grown_j in joules.items()
        if grown_j or not (name == _PSYS or _WHOLE.fullmatch(name))
    }
    return {
        phase: {name: grown_j for name, grown_j in joules.items() if name in live}
        for phase, joules in joules_by_phase.items()
    }


def copy_estimates(run: StoredRun) -> dict[tuple[int, int, int], float]:
    """Return joules by phase, copy and step: its package's, by its share of the copies' CPU time.

    This is an estimate: programs differ in the watts of a CPU second, and idle power is shared out
    as well. Copies of a package have no estimate when the CPU time of one of them is not known.
    """
    run = run.without_torn()
    copies = group_by_key((copy.phase, copy) for copy in run.copies)
    estimates: dict[tuple[int, int, int], float] = {}
    for energy in phase_energies(run):
        if energy.joules is None:
            continue
        for package, joules in energy.packages:
            package_copies = [
                copy for copy in copies.get(energy.phase, ()) if package in (None, copy.package)
            ]
            times_ns = [copy.cpu_ns for copy in package_copies if copy.cpu_ns is not None]
            total_ns = sum(times_ns)
            if total_ns and len(times_ns) == len(package_copies):
                for copy in package_copies:
                    share = (copy.cpu_ns or 0) / total_ns
                    estimates[copy.phase, copy.copy, copy.step] = joules * share
    return estimates


def _phase_energy(
    run: StoredRun,
    bracket: PhaseEnded,
    copies: Sequence[CopyEnded],
    *,
    elapsed_s: float,
    domains: Mapping[str, float],
    lost_domains: Sequence[str],
) -> PhaseEnergy:
    joules_by_package: defaultdict[int | None, float] = defaultdict(float)
    for name, joules in domains.items():
        if match := _WHOLE.fullmatch(name):
            joules_by_package[int(match[1])] += joules
    if not joules_by_package and _PSYS in domains:
        joules_by_package[None] = domains[_PSYS]
    # A copy that is not bound may have been on any package.
    copy_packages = {copy.package for copy in copies}
    anywhere = not copy_packages or None in copy_packages or None in joules_by_package
    packages = [package for package in joules_by_package if anywhere or package in copy_packages]
    lost_counters = [name for name in lost_domains if _WHOLE.fullmatch(name)]
    lost_counters += (
        [] if anywhere else [f"package {it}" for it in copy_packages if it not in joules_by_package]
    )
    reason: str | None
    if elapsed_s < LEAST_S:
        reason = f"counters move every millisecond: a phase below {LEAST_S:g} s is too short"
    elif not joules_by_package:
        reason = "no counter is of a package as a whole"
    elif lost_counters:
        reason = f"the counter of {truncate_list(lost_counters)} could not be read to the end"
    else:
        reason = _describe_sharing(run, packages)
    return PhaseEnergy(
        phase=bracket.phase,
        benchmark=bracket.benchmark,
        iteration=bracket.iteration,
        counted=bracket.counted,
        elapsed_s=elapsed_s,
        bracket_s=None if is_steady(run.head) else bracket.bracket_s,
        domains=tuple(sorted(domains.items())),
        packages=tuple((package, joules_by_package[package]) for package in packages),
        copy_runs=len(copies),
        reason=reason,
        idle_w=_idle_w(idle_watts(run.settings), packages),
    )


def _idle_w(watts_by_domain: Mapping[str, float], packages: Sequence[int | None]) -> float | None:
    """Return what packages draw while they idle; None: of one of them it is not known."""
    if GIVEN in watts_by_domain:
        return watts_by_domain[GIVEN]
    watts_by_package: defaultdict[int | None, float] = defaultdict(float)
    for name, watts in watts_by_domain.items():
        if match := _WHOLE.fullmatch(name):
            watts_by_package[int(match[1])] += watts
        elif name == _PSYS:
            watts_by_package[None] = watts
    if not packages or not all(package in watts_by_package for package in packages):
        return None
    return sum(watts_by_package[package] for package in packages)


def _describe_sharing(run: StoredRun, packages: Sequence[int | None]) -> str | None:
    """Return why others may have drawn part of the energy; None: the run had its packages alone."""
    if (stored_request(run.head) or {}).get("share") is True:
        return "what ran beside it (--share) draws there too"
    machine = run.host.pus
    if machine is None or not run.host.packages:
        return None
    usable = Counter(pu.package for pu in run.pus)
    cpus_of_package = machine // run.host.packages
    for package in packages:
        usable_cpus, all_cpus = (
            (len(run.pus), machine) if package is None else (usable[package], cpus_of_package)
        )
        if usable_cpus < all_cpus:
            where = "the machine" if package is None else f"package {package}"
            return (
                f"the run may use {usable_cpus} of {count(all_cpus, 'CPU')} of {where}: others "
                "draw there too"
            )
    return None


# -- Numbers that benchmarks report of themselves (GB/s, ns, GUPS), over copies and lgroups --------
#
# A copy's value is what its run of the iteration reported; in rotated order the
# mean over its counted runs, in steady mode the mean over its runs in the window,
# one that crosses an edge weighted by its share inside. Over copies it is the sum
# or the mean, as the suite says; over iterations the median one counts, of two
# the worse (the lower where neither direction is better).


class MetricCopy(Struct, frozen=True):
    """What one copy reported, and where it ran."""

    copy: int
    cpu: int | None
    node: int | None
    value: float


class MetricLgroup(Struct, frozen=True, kw_only=True):
    """The copies of one lgroup."""

    node: int | None
    copies: int
    value: float | None  # sum or mean over them; None: the sum is no number any more
    minimum: float
    maximum: float


class MetricResult(Struct, frozen=True, kw_only=True):
    """One metric of one benchmark."""

    benchmark: str
    name: str
    unit: str
    better: str | None  # "higher", "lower" or None
    combine: str  # over copies: "sum" or "mean"
    iteration: int | None  # that counts; None: over all runs (rotated order)
    iterations: int  # of which it is the median one
    value: float | None  # over all copies; None: some copy has none
    copies: int  # that reported it
    median: float | None
    minimum: MetricCopy | None
    maximum: MetricCopy | None
    lgroups: tuple[MetricLgroup, ...]  # by node; the copies whose node is not known last
    reason: str | None  # why there is no value, in words

    @property
    def worst(self) -> MetricCopy | None:
        """The copy that is furthest on the worse side; None: neither higher nor lower is worse."""
        return {"higher": self.minimum, "lower": self.maximum}.get(self.better or "")


def metric_results(run: StoredRun) -> tuple[MetricResult, ...]:
    """Return every declared metric of a run, whatever of it there is; torn attempts left out."""
    if not any(used.metrics for used in run.benchmarks):
        return ()
    brackets = {bracket.phase: bracket for bracket in run.brackets if not bracket.torn}
    steady = is_steady(run.head)
    # By benchmark, then iteration (None: all rounds together): the rows that count, with weights.
    groups: dict[str, dict[int | None, list[tuple[CopyEnded, float]]]] = {}
    for row in run.copies:
        bracket = brackets.get(row.phase)
        if bracket is None or not row.counted:
            continue
        weight = _weight(row, bracket) if steady else 1.0
        if weight > 0:
            iteration = bracket.iteration
            groups.setdefault(row.benchmark, {}).setdefault(iteration, []).append((row, weight))
    return tuple(
        _over_iterations(run, used, metric, groups.get(used.name, {}))
        for used in run.benchmarks
        for metric in used.metrics
    )


def _weight(row: CopyEnded, bracket: PhaseEnded) -> float:
    if is_good(row):
        return share_inside(row, bracket)
    begin, end = bracket.window_start_ns, bracket.window_finish_ns
    if None in (begin, end, row.start_ns, row.finish_ns):
        return 0.0
    # A run that went wrong is no value, but it must not be overlooked either.
    return float((row.finish_ns or 0) > (begin or 0) and (row.start_ns or 0) < (end or 0))


def _over_iterations(
    run: StoredRun,
    used: BenchmarkUsed,
    metric: MetricUsed,
    groups: Mapping[int | None, Sequence[tuple[CopyEnded, float]]],
) -> MetricResult:
    results = [
        _result(run, used.name, metric, iteration, groups[iteration])
        for iteration in sorted(groups, key=lambda number: number or 0)
    ]
    complete = [result for result in results if result.value is not None]
    if not results:
        return _result(run, used.name, metric, None, ())
    if len(complete) < len(results):
        # As with the ratio: an iteration that went wrong leaves no result to pick.
        return next(result for result in results if result.value is None)
    ordered = sorted(complete, key=lambda result: result.value or 0.0)
    if metric.better == "lower":
        ordered.reverse()
    chosen = ordered[(len(ordered) - 1) // 2]
    return replace(chosen, iterations=len(complete))


def _result(
    run: StoredRun,
    benchmark: str,
    metric: MetricUsed,
    iteration: int | None,
    rows: Sequence[tuple[CopyEnded, float]],
) -> MetricResult:
    copies = _copies(metric.name, rows)
    values = [copy.value for copy in copies]
    reason = _why_no_value(run, metric.name, [row for row, _ in rows])
    value = _combined(metric, values)
    if reason is None and value is None:
        reason = Missing.INFINITE
    by_node = group_by_key((copy.node, copy.value) for copy in copies)
    return MetricResult(
        benchmark=benchmark,
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        combine=metric.combine,
        iteration=iteration,
        iterations=1 if rows else 0,
        value=None if reason else value,
        copies=len(copies),
        median=_median(values),
        minimum=min(copies, key=lambda copy: (copy.value, copy.copy), default=None),
        maximum=max(copies, key=lambda copy: (copy.value, -copy.copy), default=None),
        lgroups=tuple(
            MetricLgroup(
                node=node,
                copies=len(node_values),
                value=_combined(metric, node_values),
                minimum=min(node_values),
                maximum=max(node_values),
            )
            for node, node_values in sorted(
                by_node.items(), key=lambda item: (item[0] is None, item[0] or 0)
            )
        ),
        reason=reason,
    )


def _combined(metric: MetricUsed, values: Sequence[float]) -> float | None:
    if not values:
        return None
    combined = sum(values) if metric.combine == "sum" else _mean(values)
    return combined if math.isfinite(combined) else None


def _mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """Return the weighted mean, also of values whose sum is beyond what a float can hold."""
    shares = [1.0] * len(values) if weights is None else weights
    whole = sum(shares)
    added = sum(value * share for value, share in zip(values, shares, strict=True))
    if math.isfinite(added):
        return added / whole
    largest = max(map(abs, values))
    return largest * max(-1.0, min(1.0, _mean([value / largest for value in values], shares)))


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else _mean(ordered[middle - 1 : middle + 1])


def _copies(name: str, rows: Sequence[tuple[CopyEnded, float]]) -> list[MetricCopy]:
    """Return the value of each copy: the weighted mean over its good runs that have one."""
    reports = group_by_key(
        (row.copy, (row, value, weight))
        for row, weight in rows
        if is_good(row)
        for reported, value in row.metrics
        if reported == name
    )
    return [
        MetricCopy(
            copy=number,
            cpu=copy_reports[0][0].cpu,
            node=copy_reports[0][0].node,
            value=_mean(
                values=[value for _, value, _ in copy_reports],
                weights=[weight for _, _, weight in copy_reports],
            ),
        )
        for number, copy_reports in sorted(reports.items())
    ]


def _why_no_value(run: StoredRun, name: str, rows: Sequence[CopyEnded]) -> str | None:
    if not rows:
        return Missing.NOT_RUN
    first_bad = next((row for row in rows if not is_good(row)), None)
    if first_bad is not None:
        return why_failed([first_bad], 1)
    without = {row.copy for row in rows if name not in dict(row.metrics)}
    ran = {row.copy for row in rows}
    everyone = run.head.order == "rotated" or run.head.source == "import"
    planned = len(ran) if everyone else run.head.copies
    lacking = len(without) + planned - len(ran)
    return Missing.NO_VALUE.describe(many=lacking, of=planned) if lacking else None
