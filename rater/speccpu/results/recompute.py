"""Results worked out again from a file's own times, as queues and as rows; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from rater.record.events import CopyEnded, PhaseEnded, PublishedResult, WorkloadTime
from rater.record.run import MOST_COPIES, CopyStatus, Validity
from rater.speccpu.config import keys
from rater.speccpu.results.places import BindingResolver
from rater.speccpu.results.result import Failure, ReportedNumber, SpecFile, SpecIteration
from rater.text.values import count


def bracket_row(
    phase: int,
    tune: str,
    iteration: SpecIteration | None = None,
    start_ns: int | None = None,
    finish_ns: int | None = None,
) -> PhaseEnded:
    """Return the row of an iteration, or of the queues of all copies."""
    reported = None
    if iteration is not None:
        reported = PublishedResult(
            copies=iteration.copies,
            reported_s=iteration.reported_s,
            reference_s=iteration.reference_s,
            ratio=iteration.ratio.value if iteration.ratio else None,
            selected=iteration.selected,
            valid=iteration.valid,
            errors="\n".join(iteration.errors) or None,
        )
    return PhaseEnded(
        phase=phase,
        benchmark=iteration.benchmark if iteration else None,
        iteration=iteration.iteration if iteration else None,
        tune=tune,
        counted=True,
        start_ns=start_ns,
        finish_ns=finish_ns,
        last_start_ns=None,
        first_finish_ns=None,
        complete=iteration is None
        or not iteration.copies
        or len(iteration.times_s) >= iteration.copies
        or (iteration.good and not iteration.times_s),
        reported=reported,
    )


def copy_row(
    phase: int,
    measured: SpecIteration,
    copy: int,
    places: BindingResolver,
    seconds: float,
    *,
    iteration: int | None = None,
    step: int = 0,
) -> CopyEnded:
    """Return the row of a copy run of an iteration (None: its own) that took `seconds`."""
    place = places.place_of(measured, copy)
    failure = measured.failures.get(copy)
    wrong = failure is not None and failure.detail is not None
    valid = failure is None and measured.valid == "S"
    return CopyEnded(
        phase=phase,
        benchmark=measured.benchmark,
        tune=measured.tune,
        iteration=measured.iteration if iteration is None else iteration,
        copy=copy,
        step=step,
        counted=True,
        cpu=place.cpu,
        core=place.core,
        llc=place.llc,
        node=place.node,
        package=place.package,
        mem_nodes=place.mem_nodes,
        planned_start_ns=None,
        start_ns=None,
        finish_ns=None,
        elapsed_ns=round(seconds * 1e9),
        status=_status(failure),
        exit_code=failure.exit_code if failure else 0 if valid else None,
        signal=failure.signal if failure else None,
        validity=(Validity.INVALID if wrong else Validity.VALID if valid else Validity.UNCHECKED),
        validity_detail=failure.detail if failure else None,
        cpu_ns=None,
        run_dir=measured.folders.get(copy),
        workloads=tuple(
            WorkloadTime(
                workload=number,
                start_ns=None,
                finish_ns=None,
                elapsed_ns=round(took_s * 1e9),
                exit_code=0 if valid else None,
                signal=None,
            )
            for number, took_s in enumerate(measured.workloads_s.get(copy, ()), 1)
        ),
    )


def _status(failure: Failure | None) -> CopyStatus:
    if failure is None:
        return CopyStatus.OK
    return CopyStatus.FAILED if failure.detail is None else CopyStatus.WRONG_OUTPUT


# -- Results worked out again from a file's own times, and where the file says otherwise -----------
#
# The rules (SPEC's public run rules 1.2.1 and 4.10): ratio = copies x reference / time of the
# bracket (a speed run: reference / time), of three iterations the median, of two the slower,
# of a suite the geometric mean. CPU2000 counted rates in units of 3100 s an hour and speeds in
# per cent.

_SLACK, _SLACK_S = 1e-3, 0.01  # of a bracket that is shorter than its slowest copy


class Disagreement(Struct, frozen=True, kw_only=True):
    """A value of the file that its own numbers contradict."""

    line: int
    where: str  # "400.perlbench base, iteration 0"
    what: str  # "ratio"
    file: str  # the value in the file
    own: str  # the value by the numbers of the file

    def __str__(self) -> str:
        return f"line {self.line}: {self.where}: {self.what} {self.file}, worked out {self.own}"


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    """One benchmark and tune over its iterations."""

    benchmark: str
    tune: str
    ratios: tuple[tuple[int, float | None], ...]  # by iteration
    selected: int | None  # iteration
    ratio: float | None  # of that


class RecomputedResults(Struct, frozen=True):
    """What the times of a file come to."""

    benchmarks: tuple[BenchmarkResult, ...]
    means: tuple[tuple[str, float | None], ...]  # by tune, over all its benchmarks
    compared: int  # values of the file that were checked
    disagreements: tuple[Disagreement, ...]


def own_ratio(iteration: SpecIteration, suite: str | None) -> float | None:
    """Return the ratio of an iteration, valid or not; None without reference or time."""
    if not iteration.reference_s or not iteration.reported_s:
        return None
    if not iteration.rate:
        return (
            keys.SPEED_FACTOR.get(suite or "", 1.0) * iteration.reference_s / iteration.reported_s
        )
    copies = iteration.planned
    if not copies:
        return None
    return (
        keys.RATE_FACTOR.get(suite or "", 1.0)
        * copies
        * iteration.reference_s
        / iteration.reported_s
    )


def recompute(file: SpecFile) -> RecomputedResults:
    """Work out ratios, selection and means, and compare the file's own with them."""
    return _Check(file).results()


def recompute_rotated(file: SpecFile) -> RecomputedResults:
    """Compare the roll-ups of rolling round-robin rate with its own times; it has no ratios."""
    check = _Check(file)
    groups: dict[tuple[str, str], _TimesByCopy] = {}
    for one in file.iterations:
        seconds = one.reported_s or next(iter(one.times_s.values()), None)
        if seconds:
            by_copy = groups.setdefault((one.benchmark, one.tune), {})
            by_copy.setdefault(rotated_place(one)[1], []).append(seconds)
    for at, by_copy in sorted(groups.items()):
        check.rollups(at, by_copy, None)
    return RecomputedResults((), (), check.compared, tuple(check.found))


type _TimesByCopy = dict[int, list[float]]  # seconds, over iterations


class _Check:
    """Compares what a file says with what its times come to."""

    def __init__(self, file: SpecFile) -> None:
        self.file = file
        # CPU2000 counts with rounded numbers of its own.
        self.loose = 2e-3 if file.suite in keys.RATE_FACTOR else 0.0
        self.compared = 0
        self.found: list[Disagreement] = []

    def results(self) -> RecomputedResults:
        """Return what all benchmarks come to, and compare it."""
        file = self.file
        groups: dict[tuple[str, str], list[SpecIteration]] = {}
        for iteration in file.iterations:
            groups.setdefault((iteration.tune, iteration.benchmark), []).append(iteration)
        results = []
        for tune, benchmark in sorted(groups):
            members = sorted(groups[tune, benchmark], key=lambda iteration: iteration.iteration)
            results.append(self.benchmark(benchmark, tune, members))
            by_copy: _TimesByCopy = {}
            for iteration in members:
                for copy, seconds in iteration.times_s.items():
                    by_copy.setdefault(copy, []).append(seconds)
            reference_s = next(
                (member.reference_s for member in members if member.reference_s), None
            )
            self.rollups((benchmark, tune), by_copy, reference_s)
        means = self.means(results)
        return RecomputedResults(tuple(results), tuple(means), self.compared, tuple(self.found))

    def means(self, results: Sequence[BenchmarkResult]) -> list[tuple[str, float | None]]:
        """Return the geometric mean of the ratios of each tune, and compare it."""
        file = self.file
        means: list[tuple[str, float | None]] = []
        for tune in dict.fromkeys(result.tune for result in results):
            ratios = {
                result.benchmark: result.ratio
                for result in results
                if result.tune == tune and result.ratio
                if keys.number_of(result.benchmark) not in keys.NOT_SCORED
            }
            mean = statistics.geometric_mean(ratios.values()) if ratios else None
            means.append((tune, mean))
            written = file.means.get(tune)
            # Of a set that is not whole SPEC's tools may write 0.
            short = not ratios or not keys.is_whole(ratios)
            if written is not None and not (short and written.value == 0):
                over = f"{tune} over {count(len(ratios), 'benchmark')}"
                self.number(written, over, "geometric mean", mean, 1e-6 + self.loose)
        return means

    def disagrees(self, line: int, where: str, noun: str, written: str, computed: str) -> None:
        """Note a value of the file that its own numbers contradict."""
        self.found.append(
            Disagreement(line=line, where=where, what=noun, file=written, own=computed)
        )

    def number(
        self,
        written: ReportedNumber,
        where: str,
        noun: str,
        computed: float | None,
        relative: float,
    ) -> None:
        """Compare a number; `relative` is how exact our own is."""
        self.compared += 1
        places = min(written.places, 12)
        shown = f"{written.value:.{places}f}"
        if computed is None:
            self.disagrees(written.line, where, noun, shown, "none")
        elif not math.isclose(
            written.value, computed, rel_tol=relative + 1e-9, abs_tol=1.02 * written.half_unit
        ):
            self.disagrees(written.line, where, noun, shown, f"{computed:.{max(places, 1)}f}")

    def statistic(
        self,
        key: str,
        written: ReportedNumber,
        where: str,
        times: Sequence[float],
        reference_s: float | None,
        *,
        loose: float,
    ) -> None:
        """Compare `time_avg`, `ratio_cv`, ... of copies that took these times.

        The spread divides by n, as CPU2026 does. Of quartiles there are several definitions: the
        one that comes closest to the file's.
        """
        kind, _, name = key.partition("_")
        values = times
        if kind == "ratio":
            if not reference_s or min(times) <= 0:
                return
            values = [len(times) * reference_s / seconds for seconds in times]
        if name in ("q1", "q3", "iqr"):
            own = min(_quartiles(name, values), key=lambda own: abs(own - written.value))
        else:
            own = _STATISTICS[name](values)
        self.number(written, where, key, own, loose)

    def benchmark(
        self, benchmark: str, tune: str, members: Sequence[SpecIteration]
    ) -> BenchmarkResult:
        """Work out and compare the iterations of a benchmark, and which of them is selected."""
        ratios = {member.iteration: own_ratio(member, self.file.suite) for member in members}
        for member in members:
            self.iteration(member, ratios[member.iteration])
        good = [
            (good_ratio, member.iteration)
            for member in members
            if member.good and (good_ratio := ratios[member.iteration])
        ]
        spoilt = any(member.valid not in ("S", None) or member.failures for member in members)
        selected, ratio = None, None
        if not spoilt and not any(ratios.values()):
            # Without a reference time the brackets tell it: the longer stands for the lower ratio.
            speeds = {
                member.iteration: -member.reported_s for member in members if member.reported_s
            }
            selected = _middle([(speed, number) for number, speed in speeds.items()])
            if any(member.selected for member in members):
                self.selected(members, selected, speeds)
        else:
            selected = None if spoilt else _middle(good)
            ratio = None if selected is None else ratios[selected]
            self.selected(members, selected, ratios)
        return BenchmarkResult(
            benchmark=benchmark,
            tune=tune,
            ratios=tuple(ratios.items()),
            selected=selected,
            ratio=ratio,
        )

    def iteration(self, iteration: SpecIteration, ratio: float | None) -> None:
        """Compare the ratio, the bracket and the statistics of an iteration."""
        exact = _exactness(iteration) + self.loose
        # The ratio of what failed is `--` in raw files and means nothing in a log.
        if iteration.ratio is not None and iteration.good:
            self.number(iteration.ratio, iteration.name, "ratio", ratio, exact)
        if not iteration.times_s:
            return
        times = list(iteration.times_s.values())
        last, slowest = max(iteration.times_s.items(), key=lambda it: it[1])
        bracket_s = iteration.reported_s or 0.0
        slack_s = bracket_s * _SLACK + _SLACK_S + 10.0**-iteration.reported_places
        if bracket_s and slowest > bracket_s + slack_s:
            self.compared += 1
            own = f"{slowest:.6f} of copy {last}"
            self.disagrees(
                iteration.line, iteration.name, "time of the bracket", f"{bracket_s:.6f}", own
            )
        if iteration.copies in (None, len(times)):
            # Rounded times to six decimals; of short runs that is much.
            loose = max(exact, 1e-6 / max(min(times), 1e-6))
            for key, written in iteration.stats.items():
                self.statistic(
                    key, written, iteration.name, times, iteration.reference_s, loose=loose
                )

    def selected(
        self,
        members: Sequence[SpecIteration],
        chosen: int | None,
        ratios: Mapping[int, float | None],
    ) -> None:
        """Compare which iteration the file has selected."""
        marked = [member for member in members if member.selected is not None]
        selected = [one for one in marked if one.selected]
        if not marked:
            return
        self.compared += 1
        names = ", ".join(str(one.iteration) for one in selected) or "none"
        if chosen is not None and len(selected) == 1:
            there, here = ratios.get(selected[0].iteration), ratios.get(chosen)
            # Of iterations with the same ratio any may be selected.
            if there is not None and math.isclose(there, here or 0.0, rel_tol=1e-9):
                return
        if names != (shown := "none" if chosen is None else str(chosen)):
            line = (selected or marked)[0].line
            where = f"{members[0].benchmark} {members[0].tune}"
            self.disagrees(line, where, "selected iteration", names, shown)

    def rollups(
        self, at: tuple[str, str], by_copy: _TimesByCopy, reference_s: float | None
    ) -> None:
        """CPU2026: over iterations the median of every copy, over copies the mean, the spread."""
        medians = [statistics.median(times) for times in by_copy.values()]
        if not medians or min(medians) <= 0:
            return
        for (*of_it, key), written in self.file.rollups.items():
            if tuple(of_it) == at:
                # The times have six decimals; of a spread that is more than of a mean.
                loose = 1e-6 if key.endswith(("_avg", "_mean")) else 1e-4
                self.statistic(key, written, " ".join(at), medians, reference_s, loose=loose)


def _middle(scored: Sequence[tuple[float, int]]) -> int | None:
    """Return the iteration of the median ratio; of two the lower counts."""
    return sorted(scored)[(len(scored) - 1) // 2][1] if scored else None


def _exactness(iteration: SpecIteration) -> float:
    """Return how exact a ratio can be worked out: SPEC rounds reference / time before it counts."""
    time_s, reference_s = iteration.reported_s or 0.0, iteration.reference_s or 0.0
    if not time_s or not reference_s:
        return 0.0
    rounded = 0.5 * 10.0 ** -(iteration.decimals if iteration.decimals is not None else 6)
    of_time = 0.5 * 10.0 ** -min(iteration.reported_places, 9) / time_s
    return rounded * time_s / reference_s + of_time


def _variation(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.pstdev(values, mean) / mean if mean else 0.0


_STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    **dict.fromkeys(("avg", "mean"), statistics.fmean),
    "min": min,
    "max": max,
    "median": statistics.median,
    "cv": _variation,
    **dict.fromkeys(("sd", "sigma", "stddev"), statistics.pstdev),
    **dict.fromkeys(("var", "variance"), statistics.pvariance),
}


def _quartiles(name: str, values: Sequence[float]) -> list[float]:
    if len(values) < 2:
        return [0.0 if name == "iqr" else values[0]]
    ordered = sorted(values)
    half = len(ordered) // 2
    quartiles = [(statistics.median(ordered[:half]), statistics.median(ordered[-half:]))]
    whole = half + len(ordered) % 2  # the middle one belongs to both halves
    quartiles.append((statistics.median(ordered[:whole]), statistics.median(ordered[-whole:])))
    for kind in ("inclusive", "exclusive"):
        low, _, high = statistics.quantiles(ordered, n=4, method=kind)
        quartiles.append((low, high))
    return [
        high - low if name == "iqr" else low if name == "q1" else high for low, high in quartiles
    ]


# -- CPU2026's rolling round-robin rate: records of single copies as queues ------------------------


def rotated_place(iteration: SpecIteration) -> tuple[int, int]:
    """Return iteration, from 1, and copy of a record.

    Its key is iteration x copies + copy, both from 0, and its number the key + 1.
    """
    copies = iteration.copies or MOST_COPIES
    earlier, copy = divmod(iteration.iteration - 1, copies)
    return earlier + 1, copy


def rotated_brackets(
    scored: Sequence[SpecIteration],
) -> list[tuple[PhaseEnded, tuple[SpecIteration, ...]]]:
    """Return a bracket for each tune, over the queues of all copies."""
    groups: dict[str, list[SpecIteration]] = {}
    for one in scored:
        groups.setdefault(one.tune, []).append(one)
    return [
        (bracket_row(phase, tune), tuple(members))
        for phase, (tune, members) in enumerate(sorted(groups.items()))
    ]


def rotated_copies(
    phase: int, members: Sequence[SpecIteration], places: BindingResolver
) -> Iterator[CopyEnded]:
    """Yield every copy's queue: it starts at benchmark n modulo k, in the order of numbers."""
    ring = sorted({member.benchmark for member in members})
    queues: dict[int, list[tuple[int, int, SpecIteration]]] = {}
    for measured in members:
        iteration, copy = rotated_place(measured)
        position = (ring.index(measured.benchmark) - copy) % len(ring)
        queues.setdefault(copy, []).append((iteration, position, measured))
    for copy in sorted(queues):
        queue = sorted(queues[copy], key=lambda item: item[:2])
        for step, (_, _, measured) in enumerate(queue):
            iteration = rotated_place(measured)[0]
            seconds = measured.reported_s
            if seconds is None:
                seconds = next(iter(measured.times_s.values()), None)
            if seconds is not None:
                yield copy_row(
                    phase, measured, copy, places, seconds, iteration=iteration, step=step
                )
