"""What steady mode says: completions in a window, whether it was steady, and beside a barrier."""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.compare.barrier import compare_with_barrier, find_barrier_run
from rater.analysis.results.result import Missing, Result, SteadyWindow, failure_text
from rater.analysis.results.score import Summary, summarise
from rater.analysis.results.steadiness import (
    DriftVerdict,
    Steadiness,
    TimedRun,
    compare_halves,
    rounded_up,
)
from rater.analysis.results.steady import Mix
from rater.record.events import CopyEnded
from rater.record.run import CopyStatus, RunStatus, Validity
from rater.record.stored import RunHead, StoredRun
from rater.show.results.run_document import summary_document
from tests.support.example_runs import HEAD, S, copy_row, in_turn, stored, windowed


def iteration(run: StoredRun) -> Result:
    ((only,),) = [benchmark.iterations for benchmark in summarise(run).benchmarks]
    return only


def window(run: StoredRun) -> SteadyWindow:
    found = iteration(run).steady
    assert found is not None
    return found


def mix(run: StoredRun) -> Mix:
    found = summarise(run).mix
    assert found is not None
    return found


def selected(run: StoredRun) -> SteadyWindow:
    found = mix(run).selected
    assert found is not None
    return found


def two_copies() -> list[CopyEnded]:
    """Copy 0 takes 2 s each time, copy 1 takes 3 s, for 12 s."""
    return in_turn(0, [2.0] * 6) + in_turn(1, [3.0] * 4)


# -- completions ----------------------------------------------------------------------------------


def test_runs_that_cross_an_edge_count_by_their_share_inside() -> None:
    steady = window(windowed(two_copies(), 3.0, 9.0))
    # Copy 0: [2,4] half, [4,6], [6,8], [8,10] half. Copy 1: [3,6], [6,9].
    rate = iteration(windowed(two_copies(), 3.0, 9.0))
    assert (rate.completions, rate.whole) == (5.0, 4)
    assert [(copy.copy, copy.completions, copy.whole) for copy in steady.copies] == [
        (0, 3.0, 2),
        (1, 2.0, 2),
    ]
    assert rate.median_copy_s == 2.0
    assert (steady.warmup_s, steady.window_s) == (3.0, 6.0)
    longer = iteration(windowed(in_turn(0, [10.0]), 4.0, 6.0, copies=1))
    assert (longer.completions, longer.whole) == (0.2, 0)


def test_the_ratio_is_completions_per_second_times_reference() -> None:
    found = iteration(windowed(two_copies(), 3.0, 9.0, reference_s=12.0))
    assert found.ratio == pytest.approx(5.0 / 6.0 * 12.0)
    assert found.per_hour == pytest.approx(5.0 / 6.0 * 3600)
    assert (found.bracket_s, found.score_lost, found.selected) == (None, None, True)
    # Without noise or gaps it is that of a bracket.
    steady = iteration(windowed(in_turn(0, [2.0] * 6) + in_turn(1, [2.0] * 6), 3.0, 9.0))
    (behind,) = summarise(stored([copy_row(0, 2.0), copy_row(1, 2.0)])).benchmarks
    assert steady.ratio == pytest.approx(behind.ratio)


def test_the_slowest_copy_is_the_one_with_the_lowest_rate_and_has_its_place() -> None:
    found = window(windowed(two_copies(), 3.0, 9.0))
    assert found.unit == "copies/hour"
    assert [copy.rate for copy in found.copies] == [1800.0, 1200.0]
    assert found.slowest is not None and found.rates is not None
    assert (found.slowest.copy, found.slowest.cpu, found.slowest.node) == (1, 1, 1)
    assert (found.rates.minimum, found.rates.median, found.rates.maximum) == (1200, 1500, 1800)
    it = iteration(windowed(two_copies(), 3.0, 9.0))
    assert it.slowest is not None
    assert (it.slowest.copy, it.slowest.elapsed_s) == (1, 3.0)


def test_lgroups_have_sum_mean_per_copy_and_slowdown_against_all() -> None:
    rows = [row for copy, time_s in enumerate([2.0, 2.0, 4.0, 4.0]) for row in
            in_turn(copy, [time_s] * 6, node=copy // 2)]  # fmt: skip
    first, second = window(windowed(rows, 4.0, 12.0)).lgroups
    assert (first.node, first.copies, first.rate, first.per_copy) == (0, 2, 3600.0, 1800.0)
    assert second.rate == 1800.0
    assert (first.slowdown, second.slowdown) == (1350 / 1800, 1350 / 900)


def test_of_three_windows_the_median_one_stands_for_the_benchmark() -> None:
    rows = [
        row
        for phase, seconds in enumerate([2.0, 1.0, 4.0])
        for row in in_turn(0, [seconds] * 24, begin_s=100.0 * phase, phase=phase,
                           iteration=phase + 1)
    ]  # fmt: skip
    (benchmark,) = summarise(windowed(rows, 4.0, 12.0, iterations=3)).benchmarks
    assert [iteration.selected for iteration in benchmark.iterations] == [True, False, False]
    assert benchmark.ratio == pytest.approx(10.0 / 2.0)


def test_suite_ratios_are_means_over_steady_ratios() -> None:
    rows = [
        row
        for phase, (name, seconds) in enumerate([("a", 5.0), ("b", 1.25)])
        for row in in_turn(0, [seconds] * 40, benchmark=name, phase=phase, begin_s=300.0 * phase)
    ]
    summary = summarise(windowed(rows, 5.0, 30.0, categories={"a": "int", "b": "fp"}))
    found = {suite.kind: suite.ratio for suite in summary.suites}
    assert found["all"] == pytest.approx(4.0)
    assert found["int"] == pytest.approx(2.0)
    assert found["fp"] == pytest.approx(8.0)


def test_counting_by_share_is_unbiased_where_whole_runs_are_not() -> None:
    """32 copies in step, runs of 1 s +- 10 %, a window of 5.5 s opened anywhere after two runs."""
    rng = random.Random(1)
    shares, whole = [], []
    for _ in range(40):
        begin_s = rng.uniform(2.0, 3.0)
        rows = [
            row
            for copy in range(32)
            for row in in_turn(copy, [max(0.5, rng.gauss(1.0, 0.1)) for _ in range(12)])
        ]
        rate = iteration(windowed(rows, begin_s, begin_s + 5.5))
        shares.append(rate.completions / (32 * 5.5))
        whole.append(rate.whole / (32 * 5.5))
    assert sum(shares) / len(shares) == pytest.approx(1.0, abs=0.003)
    assert sum(whole) / len(whole) < 0.85
    # In step all copies finish together: counts of whole runs jump by a run, shares do not.
    assert max(shares) - min(shares) < 0.04
    assert max(whole) - min(whole) > 0.1


# -- no result ------------------------------------------------------------------------------------


def spoiled(step: int, **changes: Any) -> StoredRun:
    rows = two_copies()
    rows[step] = replace(rows[step], **changes)
    return windowed(rows, 3.0, 9.0)


def test_a_failed_run_in_the_window_or_across_its_edge_takes_the_ratio() -> None:
    for step in (1, 2, 4):  # [2,4] crosses, [4,6] is inside, [8,10] crosses
        found = iteration(spoiled(step, status=CopyStatus.FAILED, exit_code=3))
        assert (found.ratio, found.per_hour, found.failed) == (None, None, 1)
        assert found.reason == "copy 0: exit status 3"
    rows = [replace(row, validity=Validity.INVALID) for row in two_copies()]
    assert iteration(windowed(rows, 3.0, 9.0)).reason == "6 of 6 runs failed; copy 0: wrong output"


def test_a_failed_run_of_the_warm_up_is_no_matter_if_its_copy_went_on() -> None:
    summary = summarise(spoiled(0, validity=Validity.INVALID))
    assert summary.benchmarks[0].ratio is not None
    assert [failure_text(failed_copy) for failed_copy in summary.failed] == ["wrong output"]


def test_a_copy_that_failed_in_the_warm_up_and_came_no_further_takes_the_ratio() -> None:
    rows = [replace(two_copies()[0], status=CopyStatus.FAILED, exit_code=3), *two_copies()[6:]]
    found = iteration(windowed(rows, 3.0, 9.0))
    assert (found.ratio, found.reason, found.failed) == (None, "copy 0: exit status 3", 1)


def test_copies_without_a_run_in_the_window_or_with_unchecked_outputs_are_no_result() -> None:
    found = iteration(windowed(two_copies(), 3.0, 9.0, copies=4))
    assert found.reason == "copies without a run in the window: 2-3"
    found = iteration(spoiled(2, validity=Validity.UNCHECKED))
    assert (found.ratio, found.reason) == (None, "the output of 1 of 6 runs was not checked")


def test_an_interrupted_window_is_no_result() -> None:
    run = windowed(two_copies(), 3.0, 9.0, status=RunStatus.INTERRUPTED)
    (bracket,) = run.brackets
    for cut in (
        replace(bracket, window_start_ns=None, window_finish_ns=None, complete=False),
        replace(bracket, complete=False),
        replace(bracket, start_ns=None, window_start_ns=None, window_finish_ns=None),
    ):
        found = iteration(replace(run, brackets=(cut,)))
        assert (found.ratio, found.reason) == (None, Missing.NO_WINDOW.value)


def cut_off(rows: Sequence[CopyEnded]) -> StoredRun:
    """The window of 3 to 9 s never closed."""
    run = windowed(rows, 3.0, 9.0)
    (bracket,) = run.brackets
    cut = replace(bracket, window_start_ns=None, window_finish_ns=None, complete=False)
    return replace(run, brackets=(cut,))


def test_copies_interrupted_across_the_end_of_a_window_have_not_failed() -> None:
    rows = two_copies()
    rows[4] = replace(rows[4], status=CopyStatus.INTERRUPTED, signal=15)
    run = windowed([*rows[:5], *rows[6:]], 3.0, 9.0, status=RunStatus.INTERRUPTED)
    found = iteration(replace(run, brackets=(replace(run.brackets[0], complete=False),)))
    assert (found.ratio, found.reason, found.failed, found.good) == (
        None,
        Missing.NO_WINDOW.value,
        0,
        1,
    )


def test_a_window_that_was_never_reached_because_all_copies_failed_says_so() -> None:
    failed = {"status": CopyStatus.FAILED, "exit_code": 3}
    early = [copy_row(0, 1.0, **failed), copy_row(1, 2.0, **failed)]
    found = iteration(cut_off(early))
    assert found.reason == "2 of 2 copies failed; copy 0: exit status 3"
    assert (found.failed, found.good) == (2, 0)
    inside = [early[0], copy_row(1, 5.0, **failed)]
    assert iteration(cut_off(inside)).reason == "2 of 2 copies failed; copy 0: exit status 3"
    # Suspended, they can fail after the time at which the window was to close.
    late = [early[0], copy_row(1, 50.0, **failed)]
    assert iteration(cut_off(late)).reason == "2 of 2 copies failed; copy 0: exit status 3"


def test_copies_that_were_stopped_have_not_failed_and_those_that_failed_are_named() -> None:
    stopped = {"status": CopyStatus.INTERRUPTED, "signal": 15}
    both_stopped = [copy_row(0, 1.0, **stopped), copy_row(1, 1.0, **stopped)]
    assert iteration(cut_off(both_stopped)).reason == Missing.NO_WINDOW.value
    one = [copy_row(0, 1.0, status=CopyStatus.FAILED, exit_code=3), both_stopped[1]]
    found = iteration(cut_off(one))
    assert (found.reason, found.failed) == ("copy 0: exit status 3", 1)


# -- how much of it the copies ran ----------------------------------------------------------------


def with_gaps(copies: int = 2, run_s: float = 1.0, gap_s: float = 1.0) -> list[CopyEnded]:
    """Runs that begin every `run_s` + `gap_s` seconds."""
    return [
        copy_row(copy, run_s, step=step, start_ns=round(step * (run_s + gap_s) * S))
        for copy in range(copies)
        for step in range(20)
    ]


def test_gaps_between_runs_are_what_the_window_was_not_occupied() -> None:
    found = window(windowed(with_gaps(run_s=0.4, gap_s=0.6), 3.0, 13.0))
    assert found.occupied == pytest.approx(0.4)
    assert found.gap_s == 0.6
    full = window(windowed(two_copies(), 3.0, 9.0))
    assert (full.occupied, full.gap_s) == (1.0, 0.0)
    # A run that failed occupied it too; a single one has no gap.
    assert window(spoiled(2, status=CopyStatus.FAILED, exit_code=3)).occupied == 1.0
    assert window(windowed(in_turn(0, [10.0]), 4.0, 6.0, copies=1)).gap_s is None
    never_closed = window(cut_off(two_copies()))
    assert (never_closed.occupied, never_closed.gap_s) == (None, None)


def test_only_gaps_that_reach_into_the_window_count_and_runs_by_what_lies_inside() -> None:
    starts = [0.0, 6.0, 8.0, 13.0]  # runs of 1 s: gaps of 5, 1 and 4 s
    rows = [
        copy_row(0, 1.0, step=number, start_ns=round(start * S))
        for number, start in enumerate(starts)
    ]
    found = window(windowed(rows, 6.5, 8.5))
    assert (found.occupied, found.gap_s) == (0.5, 1.0)


def test_an_imported_steady_run_has_brackets_as_before() -> None:
    run = stored([copy_row(0, 4.0)], mode="steady", source="import", copies=1)
    assert iteration(run).bracket_s == 4.0


# -- was it steady --------------------------------------------------------------------------------


def halves(run: StoredRun) -> Steadiness:
    found = window(run).halves
    assert found is not None
    return found


def test_copies_that_keep_their_pace_are_steady_however_different_they_are() -> None:
    drift = halves(windowed(in_turn(0, [1.0] * 30) + in_turn(1, [2.0] * 15), 2.5, 22.5))
    assert (drift.verdict, drift.fewest) == (DriftVerdict.STEADY, 4)
    assert drift.difference == pytest.approx(0.0, abs=1e-9)
    assert drift.margin == pytest.approx(0.0, abs=1e-9)
    assert drift.needed_s is None
    # With fewer than ten runs the window is steady but short.
    drift = halves(
        windowed([row for copy in range(8) for row in in_turn(copy, [2.0] * 12)], 2.0, 18.0)
    )
    assert (drift.verdict, drift.needed_s) == (DriftVerdict.STEADY, 20.0)


def test_a_slower_second_half_is_drift_and_said_by_how_much() -> None:
    rows = [row for copy in range(2) for row in in_turn(copy, [1.0] * 12 + [1.0 / 0.9] * 12)]
    found = halves(windowed(rows, 2.0, 22.0))
    assert found.verdict is DriftVerdict.DRIFTING
    assert found.difference == pytest.approx(-0.1)
    assert found.needed_s is None  # a longer window would not mend it


def test_fewer_than_two_whole_runs_in_a_half_cannot_tell() -> None:
    drift = halves(windowed(two_copies(), 3.0, 9.0))
    assert (drift.verdict, drift.difference, drift.interval) == (DriftVerdict.UNKNOWN, None, None)
    assert (drift.fewest, drift.fewest_copy) == (1, 0)
    # Four slices of two runs in each half, and two runs at the edges: 18 runs of 3 s.
    assert drift.needed_s == 54.0
    # Few runs of few copies have a difference, but nothing to tell it from.
    drift = halves(windowed(in_turn(0, [2.0] * 7), 2.0, 10.0))
    assert (drift.verdict, drift.difference, drift.margin) == (DriftVerdict.UNKNOWN, 0.0, None)
    assert drift.needed_s == 36.0


def alternating(copies: int, runs: int, by: float) -> list[TimedRun]:
    """Copies whose second half is faster and slower in turn, all runs about a second."""
    timed = []
    for copy in range(copies):
        at_ns, second = 0, 1.0 + (by if copy % 2 else -by)
        for run in range(2 * runs + 1):  # one more: the window is to be full
            took_ns = round(S * (1.0 if run < runs else 1 / second))
            timed.append(TimedRun(copy, at_ns, at_ns + took_ns, 1.0))
            at_ns += took_ns
    return timed


def test_the_interval_over_many_copies_is_students() -> None:
    # Speeds of the second half are 1 +- 0.03 in four copies each: SD of 8 is 0.03 x sqrt(8/7).
    drift = compare_halves(alternating(8, 3, 0.03), range(8), (0, 6 * S))
    margin = 2.364624 * 0.03 * (8 / 7) ** 0.5 / 8**0.5
    assert drift.difference == pytest.approx(0.0, abs=2e-4)
    assert drift.margin == pytest.approx(margin, rel=0.01)
    # 0.0268 shrinks to 0.01 with the square root of the length: (2.68)^2 windows of 6 s, found in
    # steps of 5 %; ten runs are fewer.
    assert drift.needed_s is not None
    assert 6 * (margin / 0.01) ** 2 <= drift.needed_s <= 6 * (margin / 0.01) ** 2 * 1.11


def test_the_interval_over_slices_is_students_and_wider_by_what_ties_them() -> None:
    # Slices of two runs, four in a half: speeds 1.02, 0.98, 1.02, 0.98, the same again.
    timed, at_ns = [], 0
    for run in range(16):
        took_ns = round(S / (1.02 if run // 2 % 2 == 0 else 0.98))
        timed.append(TimedRun(0, at_ns, at_ns + took_ns, 1.0))
        at_ns += took_ns
    found = compare_halves(timed, [0], (0, at_ns))
    tied = 1 / (6 * 2 - 2)
    wider = (1 + 2 * tied * 3 / 4) / (1 - 2 * tied / 4)
    error = (2 * (0.02**2 * 4 / 3) / 4 * wider) ** 0.5
    assert found.margin == pytest.approx(2.446912 * error, rel=0.05)
    assert found.verdict is DriftVerdict.UNKNOWN


def test_a_copy_that_slows_down_alone_is_named_and_a_loud_one_is_not() -> None:
    """Of eight copies for 64 s, copy 3 takes 1.39 s a run from 40 s on; copy 5 varies by 30 %."""
    chance = random.Random(7)

    def runs_of(copy: int) -> list[TimedRun]:
        timed, at_s = [], 0.0
        while at_s < 64.0:
            time_s = 1.39 if copy == 3 and at_s >= 40.0 else 1.0
            time_s *= 1 + chance.gauss(0, 0.3 if copy == 5 else 0.003)
            finish_s = at_s + max(0.2, time_s)
            timed.append(TimedRun(copy, round(at_s * S), round(finish_s * S), 1.0))
            at_s = finish_s
        return timed

    timed = [run for copy in range(8) for run in runs_of(copy)]
    (fall,) = compare_halves(timed, range(8), (0, 64 * S)).falls
    assert fall.copy == 3
    assert fall.change == pytest.approx(-0.21, abs=0.02)  # 24 of 32 s at 1 / 1.39
    assert fall.usual_change == pytest.approx(0.0, abs=0.005)
    calm = [run for copy in (0, 1, 2, 4) for run in runs_of(copy)]
    assert compare_halves(calm, (0, 1, 2, 4), (0, 64 * S)).falls == ()


def test_lengths_are_rounded_up_to_two_digits() -> None:
    assert [rounded_up(time_s) for time_s in (0.134, 3.0, 3.01, 61.0000000001, 1234.0, 0.0)] == [
        0.14, 3.0, 3.1, 61.0, 1300.0, 0.0
    ]  # fmt: skip


def simulated(
    rng: random.Random,
    copies: int,
    cv: float,
    length_s: float,
    *,
    drift: float = 0.0,
    common: float = 0.0,
) -> Steadiness:
    """Runs of about a second from a common start, a window after 1.7 s.

    `drift`: how much slower all is from the middle on; `common`: SD of a slowness that all
    copies share, new every second.
    """
    begin_s, end_s = 1.7, 1.7 + length_s
    shared = [1 + rng.gauss(0.0, common) for _ in range(round(end_s) + 2)] if common else []
    timed = []
    for copy in range(copies):
        at_s = 0.0
        while at_s < end_s:
            took_s = max(0.05, rng.gauss(1.0, cv))
            if shared:
                took_s *= shared[int(at_s)]
            if at_s >= (begin_s + end_s) / 2:
                took_s /= 1 - drift
            timed.append(TimedRun(copy, round(at_s * S), round((at_s + took_s) * S), 1.0))
            at_s += took_s
    reach = [one for one in timed if one.finish_ns > begin_s * S]
    return compare_halves(reach, range(copies), (round(begin_s * S), round(end_s * S)))


@pytest.mark.parametrize(
    ("copies", "cv", "length_s", "common"),
    [
        (1, 0.02, 30.0, 0.0),
        (2, 0.005, 20.0, 0.0),
        (2, 0.05, 20.0, 0.0),
        (2, 0.02, 30.0, 0.05),  # both are slow together
        (8, 0.10, 10.0, 0.0),
        (16, 0.05, 12.0, 0.0),
        (16, 0.02, 20.0, 0.03),
    ],
)
def test_stationary_noise_is_hardly_ever_called_drift(
    copies: int, cv: float, length_s: float, common: float
) -> None:
    rng = random.Random(7)
    times = 200
    found = Counter(
        simulated(rng, copies, cv, length_s, common=common).verdict for _ in range(times)
    )
    assert found[DriftVerdict.DRIFTING] < 0.02 * times


@pytest.mark.parametrize(
    ("copies", "cv", "length_s"), [(1, 0.01, 40.0), (2, 0.005, 20.0), (16, 0.02, 12.0)]
)
def test_a_drift_of_three_per_cent_is_found(copies: int, cv: float, length_s: float) -> None:
    rng = random.Random(7)
    found = [simulated(rng, copies, cv, length_s, drift=0.03) for _ in range(50)]
    assert sum(one.verdict is DriftVerdict.DRIFTING for one in found) >= 49
    # A run across the middle keeps the pace with which it began: a little less is seen.
    mean = sum(one.difference or 0.0 for one in found) / 50
    assert mean == pytest.approx(-0.03, abs=0.002)


def test_calm_copies_are_called_steady() -> None:
    rng = random.Random(7)
    for copies, cv, length_s in [(2, 0.005, 20.0), (16, 0.01, 12.0)]:
        found = [simulated(rng, copies, cv, length_s).verdict for _ in range(50)]
        assert found.count(DriftVerdict.STEADY) >= 49


def test_the_hint_is_a_length_that_can_tell() -> None:
    rng = random.Random(3)
    found = [simulated(rng, 2, 0.02, 20.0) for _ in range(60)]
    hints = [one.needed_s for one in found if one.verdict is DriftVerdict.UNKNOWN]
    assert hints and all(hint is not None and hint > 20.0 for hint in hints)
    longest = max(hint or 0.0 for hint in hints)
    again = [simulated(rng, 2, 0.02, longest).verdict for _ in range(20)]
    assert again.count(DriftVerdict.STEADY) >= 18


def test_a_warm_up_shorter_than_a_run_is_told_with_what_it_takes() -> None:
    found = window(windowed(two_copies(), 2.5, 9.0))
    assert (found.longest_warmup_run_s, found.needed_warmup_s) == (3.0, 3.0)
    assert window(windowed(two_copies(), 3.0, 9.0)).needed_warmup_s is None


# -- rotated order --------------------------------------------------------------------------------


def mixed(**options: Any) -> StoredRun:
    """Ring a b; a takes 1 s and b takes 3 s; copy 1 begins with b; window from 4 to 20 s."""
    rows = in_turn(0, [1.0, 3.0] * 6, names="ab") + in_turn(1, [3.0, 1.0] * 6, names="ba")
    return windowed(rows, 4.0, 20.0, order="rotated", benchmarks=("a", "b"), **options)


def test_a_mix_has_completions_by_benchmark_and_the_work_of_all_as_its_ratio() -> None:
    summary = summarise(mixed())
    assert (summary.rotated, summary.benchmarks, summary.suites) == (None, (), ())
    mix = selected(mixed())
    rates = [score.chosen for score in summary.scores if score.chosen]
    assert [(rate.benchmark, rate.completions) for rate in rates] == [("a", 8.0), ("b", 8.0)]
    assert [rate.ratio for rate in rates] == [5.0, 5.0]  # 8 in 16 s, 10 s each
    assert mix.ratio == 10.0
    assert mix.unit == "reference s/s"
    assert [copy.rate for copy in mix.copies] == [5.0, 5.0]
    mix = selected(mixed(reference_s=None))
    assert (mix.ratio, mix.unit, mix.per_hour) == (None, "typical s/s", 3600.0)


def test_in_a_mix_a_copys_speed_does_not_depend_on_what_it_runs() -> None:
    """Copy 0 runs a in the first half and b in the second; copy 1 the other way round."""
    rows = in_turn(0, [1.0] * 12, benchmark="a")
    for row in in_turn(0, [3.0] * 4, begin_s=12.0, benchmark="b"):
        rows.append(replace(row, step=row.step + 12))
    rows += in_turn(1, [3.0] * 4, benchmark="b")
    for row in in_turn(1, [1.0] * 12, begin_s=12.0, benchmark="a"):
        rows.append(replace(row, step=row.step + 4))
    found = mix(windowed(rows, 0.0, 24.0, order="rotated", benchmarks=("a", "b"))).windows[0].halves
    assert found is not None and found.verdict is DriftVerdict.STEADY


def test_a_failed_run_takes_the_mix_and_one_that_never_ran_is_summarised() -> None:
    run = mixed()
    rows = list(run.copies)
    rows[3] = replace(rows[3], status=CopyStatus.TIMEOUT)
    found = mix(replace(run, copies=tuple(rows)))
    assert (found.selected, found.reason) == (None, "copy 0: stopped at its time limit")
    found = mix(replace(run, brackets=(), copies=()))
    assert (found.windows, found.selected, found.reason) == ((), None, "did not run")


def test_a_window_too_short_for_the_ring_is_no_mix() -> None:
    rows = in_turn(0, [4.0, 3.0, 3.0], names="abc") + in_turn(1, [6.0, 4.0], names="ba")
    run = windowed(rows, 4.5, 6.5, order="rotated", benchmarks=("a", "b", "c"))
    found = mix(run)
    assert found.selected is None
    assert found.reason == (
        "1 of 3 benchmarks did not run in the window (c): it must be longer than a round of all, "
        "raise --window"
    )
    # With --increment 0 no copy has c in its queue.
    assert mix(replace(run, head=replace(run.head, increment=0))).reason is None


# -- beside a barrier -----------------------------------------------------------------------------

STEADY = replace(HEAD, run=9, mode="steady", warmup_s=1.0, window_s=9.0)


def test_the_latest_complete_run_of_the_same_copies_stands_beside() -> None:
    heads = [replace(HEAD, run=1), replace(HEAD, run=3), STEADY, replace(HEAD, run=2)]
    assert find_barrier_run(STEADY, heads) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"hostname": "other"},
        {"suite": "system"},
        {"size": "ref"},
        {"tune": "peak"},
        {"copies": 4},
        {"layout": "none"},
        {"memory": "bind"},
        {"wrap": "perf stat"},
        {"mode": "staggered", "stagger_ms": 5.0},
        {"mode": "steady", "window_s": 9.0},
        {"status": RunStatus.INTERRUPTED},
        {"source": "import"},
        {"benchmarks": ("b",)},
    ],
)
def test_another_kind_of_run_does_not_stand_beside(changes: dict[str, Any]) -> None:
    assert find_barrier_run(STEADY, [replace(HEAD, run=3, **changes)]) is None


def test_a_run_of_more_benchmarks_can_stand_beside_but_not_in_rotated_order() -> None:
    more: RunHead = replace(HEAD, run=3, benchmarks=("b", "a"))
    assert find_barrier_run(STEADY, [more]) == 3
    steady = replace(STEADY, order="rotated")
    rotated = replace(more, mode="rotated", order="rotated")
    assert find_barrier_run(steady, [more, rotated]) is None
    assert find_barrier_run(steady, [replace(rotated, benchmarks=("a",))]) == 3


def both(
    steady: StoredRun | None = None, other: Sequence[CopyEnded] | None = None, **head: Any
) -> tuple[Summary, Summary]:
    """A steady run, of two copies unless it is given, and one with a barrier."""
    steady = steady or windowed(two_copies(), 3.0, 9.0)
    rows = other or [copy_row(0, 2.0), copy_row(1, 3.0)]
    return summarise(steady), summarise(stored(rows, run=5, **head))


def test_beside_homogeneous_are_the_difference_the_wait_and_the_pace() -> None:
    # Steady: copy 0 takes 2 s, copy 1 takes 3 s: 5 in 6 s. Homogeneous: 2 in 3 s.
    summary, other = both()
    comparison = compare_with_barrier(summary, other)
    (side,) = comparison.sides
    assert (comparison.steady, comparison.other, comparison.differences) == (7, 5, ())
    assert side.difference == comparison.difference == pytest.approx(5 / 6 / (2 / 3) - 1)
    assert side.score_lost == comparison.score_lost == pytest.approx(1 - 2.5 / 3)
    assert side.longer == pytest.approx(2.0 / 2.5 - 1)
    assert comparison.steady_ratio == pytest.approx(10 * 5 / 6)


def asked(**changes: Any) -> str:
    return json.dumps({"environment": [], "prepare": None, "run_dirs": False, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"environment": [["OMP_NUM_THREADS", "2"]]},
        {"prepare": "sync"},
        {"run_dirs": True},
        {"hugepages": "off"},
        {"alloc": "jemalloc"},
        {"bind": "core"},
        {"smt": 2},
        {"kind": "fast"},
        {"reserve": 1},
        {"tuned": True},
        {"pages": "50%"},
        {"copy_numbers": "1,0/2"},
    ],
)
def test_a_run_with_other_options_is_not_chosen(changes: dict[str, Any]) -> None:
    head = replace(STEADY, request=asked())
    other = replace(HEAD, run=3, request=asked(**changes))
    assert find_barrier_run(head, [other]) is None
    assert find_barrier_run(replace(head, request=asked(**changes)), [other]) == 3


def test_a_run_whose_options_are_not_known_is_not_chosen() -> None:
    head = replace(STEADY, request=asked())
    assert find_barrier_run(head, [replace(HEAD, run=3)]) is None
    assert find_barrier_run(head, [replace(HEAD, run=3, request="{")]) is None
    assert find_barrier_run(STEADY, [replace(HEAD, run=3)]) == 3


def test_inherited_variables_and_rests_that_differ_are_named_but_not_the_path() -> None:
    summary, other = both(
        windowed(two_copies(), 3.0, 9.0, request=asked(environment=[["B", "1"]])),
        request=asked(environment=[["B", "1"]], cooldown_s=5.0),
    )
    here = (("env.A", "1"), ("env.B", "1"), ("env.PATH", "/a"), ("governor", "x"))
    there = (("env.B", "2"), ("env.C", "3"), ("env.PATH", "/b"), ("governor", "y"))
    runs = replace(summary.run, settings=here), replace(other.run, settings=there)
    found = compare_with_barrier(replace(summary, run=runs[0]), replace(other, run=runs[1]))
    # B was given with --env in both: what was inherited did not matter.
    assert found.differences == (
        "--cooldown 5, not none",
        "environment variable A none, not 1",
        "environment variable C 3, not none",
    )
    assert find_barrier_run(summary.head, [replace(other.head, mode="homogeneous")]) == 5


def test_what_steady_mode_lost_between_its_runs_is_known_beside_a_barrier() -> None:
    summary, other = both(windowed(with_gaps(), 3.0, 13.0), [copy_row(0, 1.0), copy_row(1, 1.0)])
    found = compare_with_barrier(summary, other)
    assert found.steady_occupied == found.sides[0].steady_occupied == pytest.approx(0.5)
    assert document(summary, other)["comparison"]["steady_occupied"] == pytest.approx(0.5)
    entry = document(summary)["benchmarks"][0]["steady"]
    assert (entry["occupied"], entry["gap_s"]) == (pytest.approx(0.5), 1.0)


def test_another_program_of_the_same_name_is_not_compared() -> None:
    summary, other = both()
    sides = []
    for it, digest in ((summary, "a"), (other, "b")):
        used = (replace(it.run.benchmarks[0], binary_sha256=digest),)
        sides.append(replace(it, run=replace(it.run, benchmarks=used)))
    found = compare_with_barrier(*sides)
    assert found.sides[0].reason == "the programs differ"
    assert (found.difference, found.sides[0].difference) == (None, None)


def test_a_benchmark_that_only_one_run_has_is_not_compared() -> None:
    pair = both(other=[copy_row(0, 2.0, benchmark="b")])
    assert compare_with_barrier(*pair).sides[0].reason == "run 5 has no result of it"


def test_a_mix_stands_beside_a_rotated_run_by_the_work_they_do() -> None:
    # Rotated, one round: a 1 s then b 3 s; b 3 s then a 2 s: 40 reference seconds in 5 s.
    rows = [*in_turn(0, [1.0, 3.0], names="ab"), *in_turn(1, [3.0, 2.0], names="ba")]
    other = stored(rows, run=5, mode="rotated", order="rotated", benchmarks=("a", "b"))
    found = compare_with_barrier(summarise(mixed()), summarise(other))
    assert (found.steady_ratio, found.other_ratio) == (10.0, 8.0)
    assert found.difference == pytest.approx(0.25)
    assert found.idle_share == pytest.approx(1 / 10)
    assert [side.longer for side in found.sides] == [pytest.approx(1 / 1.5 - 1), 0.0]


# -- the document ---------------------------------------------------------------------------------


def document(summary: Summary, other: Summary | None = None) -> Any:
    beside = compare_with_barrier(summary, other) if other else None
    return json.loads(json.dumps(summary_document(summary, beside), allow_nan=False))


def test_the_document_keeps_its_contract_and_has_the_window_or_those_of_a_mix() -> None:
    summary, other = both()
    answer = document(summary, other)
    (entry,) = answer["benchmarks"]
    assert (entry["bracket_s"], entry["score_lost"]) == (None, None)
    assert entry["ratio"] == pytest.approx(10 * 5 / 6)
    assert entry["slowest"] == {"copy": 1, "cpu": 1, "node": 1, "elapsed_s": 3.0}
    steady = entry["steady"]
    assert (steady["completions"], steady["whole_runs"]) == (5.0, 4)
    assert (steady["warmup_s"], steady["window_s"]) == (3.0, 6.0)
    assert steady["halves"]["verdict"] == "cannot tell"
    assert [copy["rate"] for copy in steady["copies"]] == [1800.0, 1200.0]
    assert answer["suite"]["ratio"] == pytest.approx(entry["ratio"])
    assert answer["comparison"]["other"] == 5
    assert answer["comparison"]["sides"][0]["difference"] == pytest.approx(0.25)
    answer = document(summarise(mixed()))
    assert [entry["benchmark"] for entry in answer["benchmarks"]] == ["a", "b"]
    assert (answer["benchmarks"][0]["bracket_s"], answer["suite"]["ratio"]) == (None, None)
    assert (answer["mix"]["ratio"], answer["mix"]["windows"][0]["selected"]) == (10.0, True)
