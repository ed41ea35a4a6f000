"""The rate of each benchmark in a stored run, whatever its mode, and of several together; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.placement.proof import RunProof
from rater.analysis.results.model import BenchmarkScore, Summary
from rater.analysis.results.score import summarise
from rater.analysis.stats.descriptive import geometric_mean
from rater.record.stored import RunHead, StoredRun
from rater.text.words import count, some

HOUR_S = 3600.0
# Rates do not depend on where copies were seen; to judge that costs more than all the rest.
_NOT_PROVED = RunProof((), (), None)


@dataclass(frozen=True, slots=True)
class Rated:
    """What a run says of one benchmark: copies completed in a time."""

    benchmark: str
    category: str | None
    reference_s: float | None
    per_hour: float  # copies; rotated: of the copies' mean speed
    run_s: float | None  # median time of a copy
    bracket_s: float | None  # homogeneous order: of the iteration that stands for it

    @property
    def ratio(self) -> float | None:
        """The same against the reference machine: copies x reference / time."""
        return None if self.reference_s is None else self.per_hour * self.reference_s / HOUR_S


@dataclass(frozen=True, slots=True)
class RunRates:
    """The rates of one run under one tune."""

    run: int
    tune: str | None
    rates: dict[str, Rated]  # by benchmark, in the run's order; those with a result
    lacking: tuple[str, ...]  # what has no result and why, in words
    score: float | None  # rotated order: mean of the copies' geometric means
    work_rate: float | None  # rotated order: reference seconds per second, to the very end

    def over(self, benchmarks: Sequence[str], *, by_ratio: bool) -> float | None:
        """Return the geometric mean over some benchmarks, None where one has no rate.

        Rotated, over all of them: the score that `rater show` gives.
        """
        if self.score is not None and by_ratio and set(benchmarks) == set(self.rates):
            return self.score
        found = [self.rates.get(name) for name in benchmarks]
        values = [one and (one.ratio if by_ratio else one.per_hour) for one in found]
        return geometric_mean([value or 0.0 for value in values])


def rates_of(run: StoredRun) -> tuple[RunRates, ...]:
    """Return the rates of a run, for each tune in it (an imported result can have two)."""
    summary = summarise(run, _NOT_PROVED)
    if summary.head.order == "rotated":
        return (_of_ring(summary, run),)
    tunes = dict.fromkeys(one.tune for one in summary.benchmarks)
    return tuple(
        _of_brackets(summary.head, tune, [one for one in summary.benchmarks if one.tune == tune])
        for tune in tunes
    )


def _of_brackets(head: RunHead, tune: str | None, scores: Sequence[BenchmarkScore]) -> RunRates:
    rates: dict[str, Rated] = {}
    lacking = []
    others: dict[int, list[str]] = {}
    for one in scores:
        chosen = next((it for it in one.iterations if it.selected), None)
        if chosen is None or not one.per_hour:
            lacking.append(f"{one.benchmark}: {one.reason or 'no result'}")
            continue
        if chosen.copies != head.copies:  # an imported file has not all of them
            others.setdefault(chosen.copies, []).append(one.benchmark)
            continue
        rates[one.benchmark] = Rated(
            one.benchmark,
            one.category,
            one.reference_s,
            one.per_hour,
            chosen.median_copy_s,
            chosen.bracket_s,
        )
    lacking += [_of_others(copies, head.copies, names) for copies, names in others.items()]
    return RunRates(head.run, tune, rates, tuple(lacking), None, None)


def _of_others(found: int, copies: int, names: Sequence[str]) -> str:
    return f"{some(names)}: no result, times of {found} of {count(copies, 'copy', 'copies')} only"


def _of_ring(summary: Summary, run: StoredRun) -> RunRates:
    seen = {copy.copy for copy in run.copies}
    if summary.head.source == "import" and len(seen) < summary.head.copies:
        told = _of_others(len(seen), summary.head.copies, summary.head.benchmarks)
        return RunRates(summary.head.run, summary.head.tune, {}, (told,), None, None)
    rotated, mix = summary.rotated, summary.mix
    rates: dict[str, Rated] = {}
    lacking = []
    if rotated is not None:
        for one in rotated.benchmarks:
            if one.rates is None or one.times_s is None:
                lacking.append(f"{one.benchmark}: {one.reason or 'no result'}")
                continue
            by_ratio = rotated.unit == "ratio" and one.reference_s
            per_hour = one.rates.mean * (HOUR_S / (one.reference_s or 1) if by_ratio else 1.0)
            rates[one.benchmark] = Rated(
                one.benchmark, one.category, one.reference_s, per_hour, one.times_s.median, None
            )
    elif mix is not None:
        window = mix.selected
        for rate in window.benchmarks if window else ():
            if rate.per_hour:
                rates[rate.benchmark] = Rated(
                    rate.benchmark,
                    rate.category,
                    rate.reference_s,
                    rate.per_hour,
                    rate.median_run_s,
                    None,
                )
        lacking = [f"{name}: no result" for name in summary.head.benchmarks if name not in rates]
    return RunRates(
        summary.head.run,
        summary.head.tune,
        rates,
        tuple(lacking),
        rotated.score if rotated and rotated.unit == "ratio" else None,
        rotated.work_rate if rotated else None,
    )
