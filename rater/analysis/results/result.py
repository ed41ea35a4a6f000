"""What came of a benchmark in an iteration, whatever the mode, and why nothing did; pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from rater.analysis.results.account import TimeAccount
from rater.analysis.results.steadiness import Steadiness
from rater.analysis.stats.estimate import Spread
from rater.record.events import CopyEnded, PublishedResult
from rater.record.run import CopyStatus, Validity
from rater.record.stored import RunHead, is_good
from rater.text.values import signal_name

HOUR_S = 3600.0


class Missing(StrEnum):
    """Why there is no result, or not all of it: what every view says; braces hold the case."""

    NOT_RUN = "did not run"
    FAILED = "{some}copy {copy}: {how}"
    UNFINISHED = "not complete: {done} of {of} {what} finished"
    UNCHECKED = "the output of {many} of {of} {what} was not checked"
    ITERATIONS = "{done} of {of} counted iterations ran"
    FILE = "{fault}"
    SOME_TIMES = "times of {done} of {of} copies only"
    NOT_QUEUED = "{done} of {of} copies have it in their queue (--increment {increment})"
    NO_WINDOW = "no complete window: stopped or suspended before all runs in it had ended"
    NOT_IN_WINDOW = "copies without a run in the window: {names}"
    SHORT_WINDOW = (
        "{many} of {of} benchmarks did not run in the window ({names}): it must be longer than a "
        "round of all, raise --window"
    )
    NO_VALUE = "{many} of {of} copies have none"
    INFINITE = "too large to add up"
    NO_REFERENCE = "no reference time: {names}"
    INCOMPLETE = "{names} did not complete"
    NOT_COUNTED = "no counted iteration"
    NO_RESULT = "no result"

    def describe(self, **case: object) -> str:
        """Return the sentence with the values of one case in its braces."""
        return self.value.format(**case)


class CopyTime(Struct, frozen=True):
    """The time of one copy, and where it ran (None: not bound or not known)."""

    copy: int
    cpu: int | None
    node: int | None  # OS number of its NUMA node
    elapsed_s: float


class PhaseEnergy(Struct, frozen=True, kw_only=True):
    """The energy of one phase; `joules` None: `reason` tells why it is not given."""

    phase: int
    benchmark: str | None  # None: several (rotated order)
    iteration: int | None
    counted: bool
    elapsed_s: float  # between the two readings
    bracket_s: float | None  # None: not known, or a window, whose length is no result
    domains: tuple[tuple[str, float], ...]  # joules of each, by name, whoever drew them
    packages: tuple[tuple[int | None, float], ...]  # joules of those with copies; None: of all
    copy_runs: int  # that ended in the phase
    reason: str | None
    idle_w: float | None = None  # that these packages draw while they idle; None: not known

    @property
    def joules(self) -> float | None:
        """Of the packages that copies were on, with their memory."""
        return None if self.reason else sum(joules for _, joules in self.packages)

    @property
    def watts(self) -> float | None:
        """Mean power between the readings."""
        return None if self.joules is None else self.joules / self.elapsed_s

    @property
    def above_idle_j(self) -> float | None:
        """The energy above the idle power of these packages; None: that is not known.

        It is not known either where they drew less: something else ran while idle power was
        measured.
        """
        if self.joules is None or self.idle_w is None:
            return None
        above_j = self.joules - self.idle_w * self.elapsed_s
        return above_j if above_j >= 0 else None

    @property
    def energy_delay_js(self) -> float | None:
        """Energy-delay product: joules x bracket in seconds; less is better."""
        if self.joules is None or self.bracket_s is None:
            return None
        return self.joules * self.bracket_s


class CopyRate(Struct, frozen=True, kw_only=True):
    """What one copy completed inside the window, and where it ran."""

    copy: int
    cpu: int | None
    node: int | None
    completions: float  # runs across an edge by their share inside
    whole: int  # runs that lay inside
    rate: float  # in the window's unit


class NodeRate(Struct, frozen=True, kw_only=True):
    """The copies of one lgroup together."""

    node: int | None
    copies: int
    rate: float  # sum over them, in the window's unit
    per_copy: float
    slowdown: float | None  # mean rate of all copies / theirs; above 1: slower


class SteadyWindow(Struct, frozen=True, kw_only=True):
    """One window: of one benchmark, or in rotated order of all."""

    phase: int
    iteration: int
    counted: bool
    warmup_s: float
    window_s: float
    ratio: float | None  # reference seconds of work per second; None: a reference is missing
    per_hour: float  # completed runs, whatever they are of
    # Of the copies' rates: "copies/hour" of the one benchmark; for several "reference s/s", or
    # "typical s/s" (median seconds of each run) where a reference time is missing.
    unit: str
    copies: tuple[CopyRate, ...]  # by number
    rates: Spread | None  # of the copies
    slowest: CopyRate | None
    lgroups: tuple[NodeRate, ...]  # by node; the copies whose node is not known last
    halves: Steadiness | None  # None: no good run reached into the window
    longest_warmup_run_s: float | None  # of the good runs that began before the window
    needed_warmup_s: float | None  # None: the warm-up is as long as the longest run in it
    occupied: float | None  # share of the copies' time in the window in which runs went
    gap_s: float | None  # median time between two runs of a copy; None: no copy had two there
    good: int  # copies without a run that went wrong, in the window or across its edges
    failed: int  # with one that failed, there or as their last one before
    reason: str | None  # why the rates are no result


class MeasuredValue(Struct, frozen=True, kw_only=True):
    """What one benchmark reports in one run of the metric that comparisons are by."""

    value: float  # over all copies, as the metric is declared: their sum or mean
    merit: float | None  # rises as it gets better
    throughput: float | None  # the merit of a copy x the copies: what a curve is of
    step: float = 0.0  # that the value is a multiple of; 0: not known


class Result(Struct, frozen=True, kw_only=True):
    """One benchmark, run by all copies: in an iteration, in a window, over the rounds of a ring.

    In a window the median is a run's, the slowest copy is the one with the lowest rate (with its
    median run), and good and failed copies are those of the window. In rotated order a copy
    stands with its median over the counted rounds, and the rate is that of their mean speed.
    """

    benchmark: str
    tune: str | None
    category: str | None
    reference_s: float | None
    phase: int | None = None
    iteration: int | None  # None: over all counted rounds (rotated order)
    counted: bool = True  # False: discarded, shown only
    selected: bool = False  # what stands for the benchmark
    copies: int  # that should have run
    good: int  # that ran well
    failed: int = 0  # that crashed, timed out or answered wrongly
    per_s: float | None  # copies that complete in a second: the result
    reason: str | None  # what is missing
    median_copy_s: float | None = None  # over the good copies
    slowest: CopyTime | None = None  # of the good copies
    # Start of the first copy to finish of the last; None: never closed, or no bracket.
    bracket_s: float | None = None
    bracket_from_slowest: bool = False  # start times are not known: the slowest copy stands for it
    # Start of the last copy to finish of the first; can be negative.
    overlap_s: float | None = None
    score_lost: float | None = None  # share of the score that the slow copies cost
    reported: PublishedResult | None = None  # what an imported result file says itself
    energy: PhaseEnergy | None = None  # None: there are no readings of it
    account: TimeAccount | None = None  # where the time went, mean of the good copies' runs
    steady: SteadyWindow | None = None
    completions: float = 0.0  # in the window: runs across an edge by their share inside
    whole: int = 0  # runs that lay inside
    times_s: Spread | None = None  # over the copies of a ring; None: no copy ran it well
    # Over them, of copies x reference / time (copies per hour where a reference is missing).
    rates: Spread | None = None
    # By CPU time instead of time; None: that cannot stand for it, and why.
    cpu_per_s: float | None = None
    not_by_cpu: str | None = None
    others_took: float | None = None  # share of the time that its copies waited for others
    measured: MeasuredValue | None = None  # where a metric is the measure

    @property
    def per_hour(self) -> float | None:
        """Copies that complete in an hour; the result where there is no reference time."""
        return None if self.per_s is None else self.per_s * HOUR_S

    @property
    def ratio(self) -> float | None:
        """The result against the reference machine: copies x reference / time."""
        if self.per_s is None or not self.reference_s:
            return None
        return self.per_s * self.reference_s

    @property
    def per_cpu_hour(self) -> float | None:
        """Copies that complete in an hour of CPU time of each."""
        return None if self.cpu_per_s is None else self.cpu_per_s * HOUR_S

    @property
    def cpu_ratio(self) -> float | None:
        """The result against the reference machine by CPU time: copies x reference / CPU time."""
        if self.cpu_per_s is None or not self.reference_s:
            return None
        return self.cpu_per_s * self.reference_s

    @property
    def slowest_over_median(self) -> float | None:
        """1.12: it took 12 % more time; None: of one copy, or there is no such thing."""
        if self.slowest is None or not self.median_copy_s or self.good < 2:
            return None
        return self.slowest.elapsed_s / self.median_copy_s

    @property
    def joules_per_copy(self) -> float | None:
        """Energy of one copy: of the bracket by its copies; in a window mean power by the rate."""
        if self.energy is None or self.energy.joules is None or not self.per_hour:
            return None
        if self.steady is not None:  # its readings span the warm-up, and fillers ran as well
            return self.energy.joules / self.energy.elapsed_s * HOUR_S / self.per_hour
        return self.energy.joules / self.copies


class BenchmarkScore(Struct, frozen=True, kw_only=True):
    """One benchmark over its iterations."""

    benchmark: str
    tune: str | None
    category: str | None
    reference_s: float | None
    iterations: tuple[Result, ...]
    reason: str | None  # what is missing; may stand beside a result

    @property
    def chosen(self) -> Result | None:
        """The iteration that stands for the benchmark."""
        return next((iteration for iteration in self.iterations if iteration.selected), None)

    @property
    def per_hour(self) -> float | None:
        """Copies per hour of the chosen iteration."""
        return self.chosen.per_hour if self.chosen else None

    @property
    def ratio(self) -> float | None:
        """Ratio of the chosen iteration."""
        return self.chosen.ratio if self.chosen else None


# -- Why there is no result ------------------------------------------------------------------------


def why_missing(
    rows: Sequence[CopyEnded],
    planned: int,
    *,
    unit: str = "copies",
    checked: bool = True,
    rounds: bool = False,
) -> str | None:
    """Return what keeps rows of copies from being a result, failures before all else.

    There should be `planned` rows, which `unit` names in the sentence. `checked`: an output that
    was never compared (rater died first) counts as missing. `rounds`: the sentence says in which
    round a copy failed.
    """
    bad = failures(rows)
    if bad:
        return why_failed(bad, planned, unit, rounds=rounds)
    good = sum(map(is_good, rows))
    if good < max(planned, 1):
        return Missing.UNFINISHED.describe(done=good, of=planned, what=unit)
    unchecked = sum(row.validity is Validity.UNCHECKED for row in rows)
    if checked and unchecked:
        return Missing.UNCHECKED.describe(many=unchecked, of=planned, what=unit)
    return None


def failures(rows: Sequence[CopyEnded]) -> list[CopyEnded]:
    """Return the copies that crashed, timed out or answered wrongly."""
    return [row for row in rows if not is_good(row) and row.status is not CopyStatus.INTERRUPTED]


def why_failed(
    failed: Sequence[CopyEnded], planned: int, unit: str = "copies", *, rounds: bool = False
) -> str:
    """Return how the first of the failed copies ended, and how many failed."""
    some = f"{len(failed)} of {planned} {unit} failed; " if len(failed) > 1 else ""
    which = f"{failed[0].copy}, round {failed[0].iteration}" if rounds else failed[0].copy
    return Missing.FAILED.describe(some=some, copy=which, how=failure_text(failed[0]))


def why_incomplete(head: RunHead, iterations: Sequence[Result | SteadyWindow]) -> str | None:
    """Return what is missing of a benchmark's iterations, failures first: a person must act."""
    counted = [iteration for iteration in iterations if iteration.counted]
    with_reason = [iteration for iteration in counted if iteration.reason]
    if with_reason:
        worst = min(with_reason, key=lambda iteration: not iteration.failed)
        number = f"iteration {worst.iteration}: " if len(iterations) > 1 else ""
        return f"{number}{worst.reason}"
    planned = head.iterations - head.discard
    if head.source == "run" and len(counted) < planned:
        if not counted:
            return Missing.NOT_RUN
        return Missing.ITERATIONS.describe(done=len(counted), of=planned)
    return None


# -- How one copy ended, in words ------------------------------------------------------------------


def failure_text(copy: CopyEnded) -> str:
    """Say how a copy that is not good ended."""
    late = copy.late_ns is not None
    words = describe_end(copy.status, copy.exit_code, copy.signal, copy.validity_detail, late=late)
    return f"{words} ({copy.note})" if copy.note else words


def describe_end(
    status: CopyStatus,
    exit_code: int | None,
    signal_number: int | None,
    detail: str | None = None,
    *,
    late: bool = False,
) -> str:
    """Say how a copy ended; one that seemed well is taken for a wrong answer (`detail`).

    `late`: nobody saw in time when it did.
    """
    if status is CopyStatus.TIMEOUT:
        return "stopped at its time limit"
    if status is CopyStatus.INTERRUPTED:
        return "interrupted"
    if status is not CopyStatus.FAILED:
        return f"wrong output: {detail}" if detail else "wrong output"
    if signal_number is not None:
        return f"killed by {signal_name(signal_number)}"
    seemed_well = "its time is not known" if late else "failed"
    return f"exit status {exit_code}" if exit_code else seemed_well


# -- What a run was asked for ----------------------------------------------------------------------

_LEFT_OUT = re.compile(r"left out: ([^:]+): (.*)", re.DOTALL)


def stored_request(head: RunHead) -> Mapping[str, object] | None:
    """Return what a run was asked for; None: imported, or an older rater did not keep it."""
    return parse_request(head.request or "null")


@lru_cache(8)  # asked for several times of the same run, then of the next
def parse_request(text: str) -> Mapping[str, object] | None:
    """Return what a text asks for, as JSON; of other texts it returns None."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return request if isinstance(request, dict) else None


def benchmarks_left_out(warnings: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the benchmarks that a run's warnings say were left out, each with the reason."""
    matches = [match for text in warnings if (match := _LEFT_OUT.fullmatch(text))]
    return tuple((match[1], match[2]) for match in matches)


def is_selection(head: RunHead) -> bool:
    """Tell whether the user asked for single benchmarks, `SUITE/BENCHMARK`."""
    suites = (stored_request(head) or {}).get("suites")
    return isinstance(suites, list) and any(
        isinstance(word, str) and word.endswith(f"/{name}")
        for word in suites
        for name in head.benchmarks
    )
