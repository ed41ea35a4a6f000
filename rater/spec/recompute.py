"""Results worked out again from a file's own times, and where the file says otherwise.

The rules (SPEC's public run rules 1.2.1 and 4.10): ratio = copies x reference / time of the
bracket (a speed run: reference / time), of three iterations the median, of two the slower,
of a suite the geometric mean. CPU2000 counted rates in units of 3100 s an hour and speeds in
per cent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rater.spec import keys
from rater.spec.result import Figure, SpecFile, SpecIteration


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A value of the file that its own numbers contradict."""

    line: int
    where: str  # "400.perlbench base, iteration 0"
    what: str  # "ratio"
    file: str  # what it says
    own: str  # what its numbers say

    def __str__(self) -> str:
        return f"line {self.line}: {self.where}: {self.what} {self.file}, worked out {self.own}"


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """One benchmark and tune over its iterations."""

    benchmark: str
    tune: str
    ratios: tuple[tuple[int, float | None], ...]  # by iteration
    selected: int | None  # iteration
    ratio: float | None  # of that


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What the times of a file come to."""

    benchmarks: tuple[BenchmarkResult, ...]
    means: tuple[tuple[str, float | None], ...]  # by tune, over all its benchmarks
    compared: int  # values of the file that were checked
    disagreements: tuple[Disagreement, ...]


def own_ratio(one: SpecIteration, suite: str | None) -> float | None:
    """Return the ratio of an iteration, valid or not; None without reference or time."""
    if not one.reference_s or not one.reported_s:
        return None
    if not one.rate:
        return keys.SPEED_FACTOR.get(suite or "", 1.0) * one.reference_s / one.reported_s
    copies = one.planned
    if not copies:
        return None
    return keys.RATE_FACTOR.get(suite or "", 1.0) * copies * one.reference_s / one.reported_s


def recompute(file: SpecFile) -> Recomputed:
    """Work out ratios, selection and means, and compare the file's own with them."""
    checks = _Checks()
    groups: dict[tuple[str, str], list[SpecIteration]] = {}
    for one in file.iterations:
        groups.setdefault((one.tune, one.benchmark), []).append(one)
    results = []
    for tune, benchmark in sorted(groups):
        members = sorted(groups[tune, benchmark], key=lambda one: one.iteration)
        results.append(_benchmark(benchmark, tune, members, file, checks))
        _check_rollups(benchmark, tune, members, file, checks)
    means = []
    for tune in dict.fromkeys(result.tune for result in results):
        of_tune = [r for r in results if r.tune == tune and not _unscored(r.benchmark)]
        mean = _mean([result.ratio for result in of_tune])
        means.append((tune, mean))
        said = file.means.get(tune)
        if said is not None and not (mean is None and said.value == 0):
            over = f"{tune} over {len(of_tune)} benchmarks"
            checks.number(said, over, "geometric mean", mean, 1e-6 + _loose(file))
    return Recomputed(tuple(results), tuple(means), checks.compared, tuple(checks.found))


class _Checks:
    def __init__(self) -> None:
        self.compared = 0
        self.found: list[Disagreement] = []

    def number(
        self, said: Figure, where: str, what: str, own: float | None, relative: float
    ) -> None:
        """Compare a number; `relative` is how exact our own is."""
        self.compared += 1
        shown = f"{said.value:.{min(said.places, 12)}f}"
        if own is None:
            self.found.append(Disagreement(said.line, where, what, shown, "none"))
        elif not math.isclose(
            said.value, own, rel_tol=relative + 1e-9, abs_tol=1.02 * said.half_unit
        ):
            places = max(min(said.places, 12), 1)
            self.found.append(Disagreement(said.line, where, what, shown, f"{own:.{places}f}"))


def _benchmark(
    benchmark: str,
    tune: str,
    members: Sequence[SpecIteration],
    file: SpecFile,
    checks: _Checks,
) -> BenchmarkResult:
    ratios = [(one.iteration, own_ratio(one, file.suite)) for one in members]
    for one, (_, ratio) in zip(members, ratios, strict=True):
        _check_iteration(one, ratio, checks, _loose(file))
    good = [
        (ratio, one.iteration)
        for one, (_, ratio) in zip(members, ratios, strict=True)
        if ratio is not None and one.good
    ]
    spoilt = any(one.valid not in ("S", None) or one.failures for one in members)
    chosen = None
    if good and not spoilt:
        chosen = sorted(good)[(len(good) - 1) // 2]
    _check_selected(members, chosen, dict(ratios), checks)
    return BenchmarkResult(
        benchmark, tune, tuple(ratios), chosen[1] if chosen else None, chosen[0] if chosen else None
    )


def _loose(file: SpecFile) -> float:
    """Return how far off a ratio may be: CPU2000 rounds its factor to 1.16."""
    return 2e-3 if file.suite in keys.RATE_FACTOR else 0.0


def _check_iteration(
    one: SpecIteration, ratio: float | None, checks: _Checks, loose: float
) -> None:
    exact = _exactness(one) + loose
    # The ratio of what failed is `--` in raw files and means nothing in a log.
    if one.ratio is not None and one.good:
        checks.number(one.ratio, one.name, "ratio", ratio, exact)
    if not one.times_s or not one.stats:
        return
    times = list(one.times_s.values())
    complete = one.copies in (None, len(times))
    for key, said in one.stats.items():
        kind, _, name = key.partition("_")
        values = times
        if kind == "ratio":
            if not one.reference_s or min(times) <= 0:
                continue
            values = [len(times) * one.reference_s / seconds for seconds in times]
        own = _statistic(name, values)
        if own is not None and complete:
            # Rounded times to six decimals; of short runs that is much.
            checks.number(said, one.name, key, own, max(exact, 1e-6 / max(min(times), 1e-6)))


def _exactness(one: SpecIteration) -> float:
    """Return how exact a ratio can be worked out: SPEC rounds reference / time before it counts."""
    time_s, reference_s = one.reported_s or 0.0, one.reference_s or 0.0
    if not time_s or not reference_s:
        return 0.0
    rounded = 0.5 * 10.0 ** -(one.decimals if one.decimals is not None else 6)
    of_time = 0.5 * 10.0 ** -min(one.reported_places, 9) / time_s
    return rounded * time_s / reference_s + of_time


def _statistic(name: str, values: Sequence[float]) -> float | None:
    """Return what a key such as `time_avg` stands for; the spread divides by n, as CPU2026 does."""
    if name in ("avg", "mean"):
        return statistics.fmean(values)
    if name == "min":
        return min(values)
    if name == "max":
        return max(values)
    if name == "median":
        return statistics.median(values)
    if name == "cv":
        mean = statistics.fmean(values)
        return statistics.pstdev(values, mean) / mean if mean else None
    return None


def _check_selected(
    members: Sequence[SpecIteration],
    chosen: tuple[float, int] | None,
    ratios: dict[int, float | None],
    checks: _Checks,
) -> None:
    told = [one for one in members if one.selected is not None]
    selected = [one for one in told if one.selected]
    if not told:
        return
    checks.compared += 1
    names = ", ".join(str(one.iteration) for one in selected) or "none"
    own = "none" if chosen is None else str(chosen[1])
    if chosen is not None and len(selected) == 1:
        ratio = ratios[selected[0].iteration]
        # Of iterations with the same ratio any may be selected.
        if ratio is not None and math.isclose(ratio, chosen[0], rel_tol=1e-9):
            return
    if names != own:
        where = f"{members[0].benchmark} {members[0].tune}"
        checks.found.append(
            Disagreement((selected or told)[0].line, where, "selected iteration", names, own)
        )


def _check_rollups(
    benchmark: str, tune: str, members: Sequence[SpecIteration], file: SpecFile, checks: _Checks
) -> None:
    """CPU2026: over iterations the median of every copy, over copies the mean."""
    for key in ("time_avg", "ratio_avg"):
        said = file.rollups.get((benchmark, tune, key))
        reference_s = next((one.reference_s for one in members if one.reference_s), None)
        if said is None or (key == "ratio_avg" and not reference_s):
            continue
        by_copy: dict[int, list[float]] = {}
        for one in members:
            for copy, seconds in one.times_s.items():
                by_copy.setdefault(copy, []).append(seconds)
        medians = [statistics.median(times) for times in by_copy.values()]
        if not medians or min(medians) <= 0:
            continue
        if key == "ratio_avg":
            medians = [len(by_copy) * (reference_s or 0.0) / seconds for seconds in medians]
        checks.number(said, f"{benchmark} {tune}", key, statistics.fmean(medians), 1e-6)


def _mean(ratios: Iterable[float | None]) -> float | None:
    values = list(ratios)
    known = [value for value in values if value]
    if not values or len(known) < len(values):
        return None
    return statistics.geometric_mean(known)


def _unscored(benchmark: str) -> bool:
    return keys.number_of(benchmark) in keys.NOT_SCORED
