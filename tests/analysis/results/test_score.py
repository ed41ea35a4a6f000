"""Scores and rates: the numbers of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.rates import overall
from rater.analysis.results.result import (
    BenchmarkScore,
    Result,
    benchmarks_left_out,
    failure_text,
    is_selection,
)
from rater.analysis.results.rotated import Ring
from rater.analysis.results.score import Overall, Summary, summarise
from rater.record.events import PhaseEnded
from rater.record.run import CopyStatus, RunStatus, Validity
from rater.record.stored import StoredRun
from rater.show.results.run_document import summary_document
from tests.support.example_runs import S, copy_row, stored


def only(run: StoredRun) -> BenchmarkScore:
    (benchmark,) = summarise(run).benchmarks
    return benchmark


def iteration_of(run: StoredRun) -> Result:
    (iteration,) = only(run).iterations
    return iteration


def rotated_of(run: StoredRun) -> Ring:
    rotated = summarise(run).rotated
    assert rotated is not None
    return rotated


def of_ring(run: StoredRun) -> list[Result]:
    return [iteration for score in summarise(run).scores for iteration in score.iterations]


def through_json(summary: Summary) -> Any:
    return json.loads(json.dumps(summary_document(summary), allow_nan=False))


def iterations_of(*brackets_s: float, discard: int = 0) -> StoredRun:
    """One benchmark, two copies, iteration i as long as the i-th number."""
    copies = [
        copy_row(copy, seconds, phase=i, iteration=i + 1, counted=i >= discard)
        for i, seconds in enumerate(brackets_s)
        for copy in range(2)
    ]
    return stored(copies, iterations=len(brackets_s), discard=discard)


def test_the_ratio_is_copies_times_reference_over_the_bracket() -> None:
    benchmark = only(stored([copy_row(0, 4.0), copy_row(1, 5.0)]))
    (iteration,) = benchmark.iterations
    assert benchmark.ratio == pytest.approx(2 * 10.0 / 5.0)
    assert iteration.bracket_s == 5.0
    assert iteration.median_copy_s == 4.5
    assert iteration.score_lost == pytest.approx(1 - 4.5 / 5.0)
    assert iteration.slowest is not None
    assert (iteration.slowest.copy, iteration.slowest.cpu, iteration.slowest.node) == (1, 1, 1)
    assert iteration.selected


def test_without_a_reference_time_the_result_is_copies_per_hour() -> None:
    summary = summarise(stored([copy_row(0, 4.0), copy_row(1, 5.0)], reference_s=None))
    (benchmark,) = summary.benchmarks
    assert benchmark.ratio is None
    assert benchmark.per_hour == pytest.approx(2 * 3600 / 5.0)
    assert benchmark.iterations[0].score_lost is not None
    assert summary.suites[0].ratio is None
    assert summary.suites[0].reason == "no reference time: a"


@pytest.mark.parametrize(("brackets_s", "selected"), [((5.0, 2.0, 4.0), 2), ((2.0, 5.0), 1)])
def test_of_three_iterations_the_median_counts_and_of_two_the_slower(
    brackets_s: tuple[float, ...], selected: int
) -> None:
    benchmark = only(iterations_of(*brackets_s))
    assert [iteration.selected for iteration in benchmark.iterations].index(True) == selected
    assert benchmark.ratio == pytest.approx(20 / brackets_s[selected])


def test_a_discarded_iteration_is_shown_but_does_not_count() -> None:
    benchmark = only(iterations_of(50.0, 4.0, 5.0, discard=1))
    assert benchmark.iterations[0].ratio == pytest.approx(20 / 50.0)
    assert not benchmark.iterations[0].counted
    assert benchmark.ratio == pytest.approx(20 / 5.0)


def test_a_crashed_copy_takes_the_ratio_and_leaves_the_other_times() -> None:
    crashed = copy_row(1, 0.1, status=CopyStatus.FAILED, exit_code=None, signal=11)
    summary = summarise(stored([copy_row(0, 4.0), crashed], status=RunStatus.FAILED))
    (benchmark,) = summary.benchmarks
    (iteration,) = benchmark.iterations
    assert benchmark.ratio is None
    assert iteration.score_lost is None
    assert iteration.reason == benchmark.reason == "copy 1: killed by SIGSEGV"
    assert iteration.median_copy_s == 4.0
    assert iteration.slowest is not None and iteration.slowest.copy == 0
    assert [(failed_copy.copy, failure_text(failed_copy)) for failed_copy in summary.failed] == [
        (1, "killed by SIGSEGV")
    ]
    assert summary.suites[0].reason == "a did not complete"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"status": CopyStatus.FAILED, "exit_code": 3}, "exit status 3"),
        ({"status": CopyStatus.FAILED, "signal": 40}, "killed by signal 40"),
        ({"status": CopyStatus.TIMEOUT, "signal": 15}, "stopped at its time limit"),
        (
            {"status": CopyStatus.WRONG_OUTPUT, "validity_detail": "line 2: 5, not 6"},
            "wrong output: line 2: 5, not 6",
        ),
        ({"validity": Validity.INVALID}, "wrong output"),
        (
            {"status": CopyStatus.FAILED, "note": "wrote more than 1 GiB"},
            "failed (wrote more than 1 GiB)",
        ),
    ],
)
def test_a_failed_copy_is_named_with_what_it_did(changes: dict[str, Any], text: str) -> None:
    row = copy_row(1, 1.0, **{"exit_code": None, **changes})
    summary = summarise(stored([copy_row(0, 1.0), row]))
    assert [failure_text(failed_copy) for failed_copy in summary.failed] == [text]
    assert summary.benchmarks[0].ratio is None


def test_one_failed_iteration_takes_the_ratio_of_its_benchmark() -> None:
    run = iterations_of(2.0, 5.0)
    copies = [*run.copies[:3], replace(run.copies[3], status=CopyStatus.TIMEOUT)]
    benchmark = only(stored(copies, iterations=2))
    assert benchmark.ratio is None
    assert benchmark.reason == "iteration 2: copy 1: stopped at its time limit"
    assert benchmark.iterations[0].ratio == pytest.approx(20 / 2.0)


def test_an_interrupted_run_keeps_the_ratios_it_has_and_gives_no_suite_ratio() -> None:
    stopped = copy_row(1, 1.0, phase=1, benchmark="b", status=CopyStatus.INTERRUPTED, signal=15)
    copies = [copy_row(0, 4.0), copy_row(1, 5.0), copy_row(0, 1.0, phase=1, benchmark="b"), stopped]
    run = stored(copies, status=RunStatus.INTERRUPTED, benchmarks=("a", "b", "c"))
    summary = summarise(run)
    first, second, third = summary.benchmarks
    assert first.ratio == pytest.approx(4.0)
    assert second.reason == "not complete: 1 of 2 copies finished"
    assert (third.reason, third.iterations) == ("did not run", ())
    assert summary.suites[0].reason == "b, c did not complete"
    assert summary.suites[0].over == ("a", "b", "c")


def test_a_run_with_fewer_iterations_than_asked_says_so_beside_its_ratio() -> None:
    run = stored([copy_row(0, 4.0), copy_row(1, 5.0)], iterations=3)
    benchmark = only(run)
    assert benchmark.ratio == pytest.approx(4.0)
    assert benchmark.reason == "1 of 3 counted iterations ran"


def test_a_killed_run_whose_last_bracket_never_closed_is_summarised() -> None:
    run = stored([copy_row(0, 4.0)], closed=False, status=RunStatus.RUNNING)
    iteration = iteration_of(run)
    assert iteration.bracket_s is None
    assert iteration.median_copy_s == 4.0
    assert iteration.reason == "not complete: 1 of 2 copies finished"


def test_a_killed_run_with_every_copy_there_has_a_bracket_but_unchecked_outputs() -> None:
    copies = [copy_row(copy, 4.0 + copy, validity=Validity.UNCHECKED) for copy in range(2)]
    iteration = iteration_of(stored(copies, closed=False))
    assert iteration.bracket_s == 5.0
    assert iteration.ratio is None
    assert iteration.reason == "the output of 2 of 2 copies was not checked"


def test_a_run_without_a_single_copy_is_summarised() -> None:
    run = replace(stored([], benchmarks=("a",)), brackets=())
    assert only(run).reason == "did not run"
    phase = PhaseEnded(
        phase=0,
        benchmark="a",
        iteration=1,
        tune="base",
        counted=True,
        start_ns=None,
        finish_ns=None,
        last_start_ns=None,
        first_finish_ns=None,
        complete=False,
    )
    iteration = iteration_of(replace(run, brackets=(phase,)))
    assert (iteration.good, iteration.slowest) == (0, None)
    assert iteration.reason == "not complete: 0 of 2 copies finished"


@pytest.mark.parametrize("copies", [1, 2])
def test_one_copy_alone_and_equal_times_lose_nothing_and_the_lowest_is_the_slowest(
    copies: int,
) -> None:
    run = stored([copy_row(copy, 4.0) for copy in range(copies)], copies=copies)
    iteration = iteration_of(run)
    assert iteration.score_lost == 0.0
    assert only(run).ratio == pytest.approx(copies * 10 / 4)
    assert iteration.slowest is not None and iteration.slowest.copy == 0


def test_an_unknown_placement_stays_unknown() -> None:
    copies = [copy_row(copy, 4.0, cpu=None, node=None) for copy in range(2)]
    iteration = iteration_of(stored(copies))
    assert iteration.slowest is not None
    assert (iteration.slowest.cpu, iteration.slowest.node) == (None, None)


def test_a_staggered_run_has_both_brackets_and_measures_the_loss_against_the_slowest_copy() -> None:
    copies = [copy_row(0, 4.0), copy_row(1, 5.0, start_ns=3 * S)]
    summary = summarise(stored(copies, mode="staggered", stagger_ms=3000.0))
    (iteration,) = summary.benchmarks[0].iterations
    assert summary.staggered
    assert iteration.bracket_s == 8.0
    assert iteration.overlap_s == 1.0
    assert iteration.score_lost == pytest.approx(1 - 4.5 / 5.0)
    assert iteration.ratio == pytest.approx(20 / 8.0)
    never = [copy_row(0, 1.0), copy_row(1, 1.0, start_ns=3 * S)]  # all at once
    assert iteration_of(stored(never, stagger_ms=3000.0)).overlap_s == -2.0


def test_an_imported_run_without_start_times_uses_its_slowest_copy_as_bracket() -> None:
    copies = [
        replace(
            copy_row(copy, 4.0 + copy, validity=Validity.UNCHECKED), start_ns=None, finish_ns=None
        )
        for copy in range(2)
    ]
    summary = summarise(stored(copies, closed=False, source="import"))
    (iteration,) = summary.benchmarks[0].iterations
    assert iteration.bracket_from_slowest
    assert iteration.bracket_s == 5.0
    assert iteration.ratio == pytest.approx(4.0)


def test_suite_ratios_are_geometric_means_over_what_they_name() -> None:
    copies = [
        copy_row(copy, seconds, phase=number, benchmark=name)
        for number, (name, seconds) in enumerate([("a", 10.0), ("b", 2.5), ("c", 5.0)])
        for copy in range(2)
    ]
    summary = summarise(stored(copies, categories={"a": "int", "b": "int", "c": "fp"}))
    found = {suite.kind: suite for suite in summary.suites}
    assert found["all"].ratio == pytest.approx((2.0 * 8.0 * 4.0) ** (1 / 3))
    assert found["int"].ratio == pytest.approx(4.0)
    assert found["fp"].ratio == pytest.approx(4.0)
    assert found["int"].over == ("a", "b")


def test_a_suite_without_floating_point_says_so() -> None:
    summary = summarise(stored([copy_row(copy, 4.0) for copy in range(2)], categories={"a": "int"}))
    found = {suite.kind: suite for suite in summary.suites}
    assert found["fp"].ratio is None
    assert found["fp"].reason == "no fp benchmark in this run"


def rotated_run(**head: Any) -> StoredRun:
    """Copies 0 and 1, ring a b, one round: copy 0 takes 2 s and 8 s, copy 1 takes 4 s and 5 s."""
    copies = [
        copy_row(0, 2.0, benchmark="a"),
        copy_row(0, 8.0, benchmark="b", step=1, start_ns=2 * S),
        copy_row(1, 5.0, benchmark="b"),
        copy_row(1, 4.0, benchmark="a", step=1, start_ns=6 * S),
    ]
    return stored(copies, mode="rotated", order="rotated", benchmarks=("a", "b"), **head)


def rotated_queues(queues: list[str], increment: int) -> StoredRun:
    """Ring a b, one round: copy n runs the letters of queue n, each for a second."""
    copies = [
        copy_row(n, 1.0, benchmark=name, step=step, start_ns=step * S)
        for n, queue in enumerate(queues)
        for step, name in enumerate(queue)
    ]
    return stored(
        copies,
        copies=len(queues),
        mode="rotated",
        order="rotated",
        benchmarks=("a", "b"),
        increment=increment,
    )


def test_rotated_results_are_per_copy_geometric_means_and_their_mean() -> None:
    run = rotated_run()
    assert (summarise(run).benchmarks, summarise(run).suites) == ((), ())
    rotated = rotated_of(run)
    # r = 2 x 10 / t: copy 0 has 10 and 2.5, copy 1 has 4 and 5.
    assert [copy.rate for copy in rotated.copies] == pytest.approx([5.0, 20**0.5])
    mean = (5.0 + 20**0.5) / 2
    assert rotated.score == pytest.approx(mean)
    assert rotated.cv == pytest.approx((5.0 - 20**0.5) / 2 / mean)
    assert rotated.proposed_in == "proposed in arXiv 2609.29681"


def test_rotated_benchmarks_have_mean_and_population_cv_over_copies() -> None:
    first = of_ring(rotated_run())[0]
    assert first.times_s is not None and first.rates is not None and first.slowest is not None
    assert first.times_s.mean == 3.0
    assert first.times_s.cv == pytest.approx(1 / 3)
    assert first.rates.mean == pytest.approx(7.5)
    assert first.slowest.copy == 1


def test_the_tail_is_the_share_of_core_time_idle_after_the_first_copy_is_done() -> None:
    rotated = rotated_of(rotated_run())
    assert rotated.tail is not None and rotated.gaps is not None
    assert rotated.tail.total_s == 10.0
    assert rotated.tail.length_s == 0.0
    assert rotated.gaps.count == 2
    assert rotated.gaps.longest_s == 1.0
    assert rotated.gaps.share == pytest.approx(1.0 / 20.0)


def test_a_copy_that_is_done_early_idles_in_the_tail() -> None:
    copies = [copy_row(0, 6.0), copy_row(1, 10.0)]
    rotated = rotated_of(stored(copies, mode="rotated", order="rotated"))
    assert rotated.tail is not None
    assert rotated.tail.length_s == 4.0
    assert rotated.tail.idle_share == pytest.approx(4 / 20)
    assert rotated.tail.core_idle_share == pytest.approx(4 / 20)
    assert rotated.tail.runs_in_tail == 1


def test_a_pu_with_two_copies_is_idle_only_after_the_second_of_them() -> None:
    copies = [copy_row(0, 6.0, cpu=0), copy_row(1, 8.0, cpu=0), copy_row(2, 10.0, cpu=1)]
    rotated = rotated_of(stored(copies, copies=3, mode="rotated", order="rotated"))
    assert rotated.tail is not None
    assert rotated.tail.idle_share == pytest.approx((4 + 2) / 30)
    assert rotated.tail.core_idle_share == pytest.approx(2 / 20)


def test_the_idle_core_time_of_copies_that_are_not_bound_is_not_known() -> None:
    copies = [copy_row(0, 6.0, cpu=None), copy_row(1, 10.0, cpu=None)]
    rotated = rotated_of(stored(copies, mode="rotated", order="rotated"))
    assert rotated.tail is not None
    assert rotated.tail.core_idle_share is None


def test_rotated_takes_each_copys_median_over_the_counted_rounds() -> None:
    times = [(1, 99.0, False), (2, 2.0, True), (3, 4.0, True), (4, 9.0, True)]
    copies = [
        copy_row(0, t, iteration=number, step=number, counted=counted)
        for number, t, counted in times
    ]
    run = stored(copies, copies=1, iterations=4, discard=1, mode="rotated", order="rotated")
    rotated = rotated_of(run)
    (only,) = of_ring(run)
    assert only.times_s is not None and only.times_s.mean == 4.0
    assert rotated.rounds == 3
    assert rotated.score == pytest.approx(10 / 4)


def test_rotated_without_reference_times_counts_copies_per_hour() -> None:
    run = rotated_run()
    run = replace(
        run, benchmarks=tuple(replace(benchmark, reference_s=None) for benchmark in run.benchmarks)
    )
    rotated = rotated_of(run)
    assert rotated.unit == "copies/hour"
    assert rotated.copies[0].rate == pytest.approx(2 * 3600 / 4.0)


def test_a_failed_step_takes_the_rotated_score_but_not_the_other_times() -> None:
    run = rotated_run()
    failed = replace(run.copies[1], status=CopyStatus.FAILED, exit_code=1)
    run = replace(run, copies=(run.copies[0], failed, *run.copies[2:]))
    rotated = rotated_of(run)
    assert rotated.score is None
    assert rotated.reason == "b: copy 0, round 1: exit status 1"
    assert [copy.copy for copy in rotated.copies] == [1]
    first, second = of_ring(run)
    assert second.times_s is not None and second.times_s.mean == 5.0
    assert (first.rates is not None, second.rates) == (True, None)


def test_a_copy_that_failed_in_one_of_two_rounds_has_no_score_of_its_own() -> None:
    rows = [
        copy_row(copy, 2.0, iteration=step, step=step - 1) for copy in (0, 1) for step in (1, 2)
    ]
    rows[1] = replace(rows[1], status=CopyStatus.TIMEOUT)
    run = stored(rows, iterations=2, mode="rotated", order="rotated")
    assert [copy.copy for copy in rotated_of(run).copies] == [1]
    (only,) = of_ring(run)
    assert only.times_s is not None and only.times_s.count == 2


def test_an_interrupted_rotated_run_has_no_tail_and_no_score() -> None:
    run = rotated_run(status=RunStatus.INTERRUPTED)
    stopped = replace(run.copies[3], status=CopyStatus.INTERRUPTED, signal=15)
    rotated = rotated_of(replace(run, copies=(*run.copies[:3], stopped)))
    assert (rotated.score, rotated.tail) == (None, None)
    assert rotated.reason == "a: not complete: 1 of 2 runs finished"


def test_queues_that_leave_benchmarks_out_give_no_score() -> None:
    copies = [copy_row(0, 2.0, benchmark="a"), copy_row(1, 4.0, benchmark="b")]
    run = stored(copies, mode="rotated", order="rotated", increment=0)
    rotated = rotated_of(run)
    assert rotated.score is None
    assert rotated.copies == ()
    assert rotated.reason == "a: 1 of 2 copies have it in their queue (--increment 0)"
    assert [benchmark.rates.mean for benchmark in of_ring(run) if benchmark.rates] == [10.0, 5.0]


@pytest.mark.parametrize(
    ("increment", "queues", "reasons"),
    [
        (
            0,
            ["a", "b", "a"],
            [
                "2 of 3 copies have it in their queue (--increment 0)",
                "1 of 3 copies have it in their queue (--increment 0)",
            ],
        ),
        (
            2,
            ["aa", "bb", "aa"],
            [
                "2 of 3 copies have it in their queue (--increment 2)",
                "1 of 3 copies have it in their queue (--increment 2)",
            ],
        ),
        (1, ["ab", "ba", "ab"], [None, None]),
    ],
)
def test_a_complete_rotated_run_is_complete_whatever_its_increment(
    increment: int, queues: list[str], reasons: list[str | None]
) -> None:
    run = rotated_queues(queues, increment)
    assert [benchmark.reason for benchmark in of_ring(run)] == reasons
    less = of_ring(replace(run, copies=run.copies[1:]))
    runs = sum(queue.count("a") for queue in queues)
    assert less[0].reason == f"not complete: {runs - 1} of {runs} runs finished"


def test_a_benchmark_that_is_in_no_queue_is_said_to_be() -> None:
    run = stored(
        [copy_row(0, 1.0)],
        copies=1, benchmarks=("a", "b"), mode="rotated", order="rotated", increment=0,
    )  # fmt: skip
    assert of_ring(run)[1].reason == "0 of 1 copies have it in their queue (--increment 0)"
    assert of_ring(run)[1].copies == 0


def test_a_rotated_run_without_a_single_copy_is_summarised() -> None:
    rotated = rotated_of(stored([], order="rotated", benchmarks=("a",)))
    assert (rotated.score, rotated.tail, rotated.gaps) == (None, None, None)
    assert of_ring(stored([], order="rotated", benchmarks=("a",)))[0].times_s is None


def test_the_json_document_keeps_its_contract() -> None:
    document = through_json(summarise(stored([copy_row(0, 4.0), copy_row(1, 5.0)])))
    assert (document["run"], document["uuid"], document["status"]) == (7, "u-7", "complete")
    assert (document["mode"], document["copies"]) == ("homogeneous", 2)
    (entry,) = document["benchmarks"]
    contract = {"benchmark", "iteration", "bracket_s", "ratio", "score_lost", "median_copy_s"}
    assert contract | {"slowest"} <= entry.keys()
    assert entry["slowest"] == {"copy": 1, "cpu": 1, "node": 1, "elapsed_s": 5.0}
    assert document["suite"]["ratio"] == pytest.approx(4.0)
    assert document["suite"].keys() >= {"ratio", "int", "fp"}


def test_what_was_left_out_of_a_suite_is_told_from_other_warnings() -> None:
    run = replace(
        stored([copy_row(0, 4.0), copy_row(1, 5.0)]),
        warnings=("left out: ffmpeg: not installed: ffmpeg", "2 PUs are shared"),
    )
    summary = summarise(run)
    assert benchmarks_left_out(summary.run.warnings) == (("ffmpeg", "not installed: ffmpeg"),)
    suite = through_json(summary)["suite"]
    assert suite["left_out"] == [{"benchmark": "ffmpeg", "reason": "not installed: ffmpeg"}]
    assert suite["over"] == ["a"]


@pytest.mark.parametrize(
    ("request_text", "selected"),
    [
        (None, False),
        ("not JSON", False),
        ("[1]", False),
        ('{"suites": ["mini"]}', False),
        ('{"suites": ["mini/a"]}', True),
        ('{"suites": ["./suites/mine.toml"]}', False),
    ],
)
def test_single_benchmarks_are_told_by_what_was_asked_for(
    request_text: str | None, selected: bool
) -> None:
    run = stored([copy_row(0, 4.0), copy_row(1, 5.0)], request=request_text)
    assert is_selection(run.head) is selected


def test_a_torn_attempt_does_not_count() -> None:
    run = stored(
        [copy_row(copy, 4.0 + phase, phase=phase) for phase in range(2) for copy in range(2)]
    )
    torn = replace(run.brackets[0], torn=True)
    benchmark = only(replace(run, brackets=(torn, run.brackets[1])))
    assert [iteration.bracket_s for iteration in benchmark.iterations] == [5.0]


def test_a_rotated_run_has_the_work_it_did_in_a_second_tail_included() -> None:
    rotated = rotated_of(rotated_run())
    assert (rotated.work_rate, rotated.runs_per_hour) == (4 * 10 / 10.0, 4 * 3600 / 10.0)
    assert rotated_of(rotated_queues(["a", "b"], 1)).work_rate is None


def test_the_json_document_of_a_rotated_run_has_the_same_keys() -> None:
    document = through_json(summarise(rotated_run()))
    entry = document["benchmarks"][0]
    assert entry["iteration"] is None and entry["score_lost"] is None
    assert entry["times_s"]["mean"] == 3.0
    assert entry["queued_copies"] == 2
    assert document["rotated"]["tail"]["core_idle_share"] == 0.0
    assert document["suite"]["ratio"] is None
    assert document["rotated"]["score"] > 0


def two_benchmarks(reference_s: float | None, **of_last: CopyStatus) -> StoredRun:
    """Two copies of a, 10 s each, then of b, 5 s each."""
    run = stored(
        [
            *(copy_row(copy, 10.0) for copy in range(2)),
            copy_row(0, 5.0, benchmark="b", phase=1),
            copy_row(1, 5.0, benchmark="b", phase=1, **of_last),
        ]
    )
    return replace(
        run, benchmarks=tuple(replace(used, reference_s=reference_s) for used in run.benchmarks)
    )


def rounded(overall: Overall | None) -> Overall | None:
    return overall and replace(overall, value=round(overall.value, 4))


def test_it_is_the_suites_ratio() -> None:
    # 2 copies x 20 s / 10 s = 4 and 2 x 20 / 5 = 8; their geometric mean
    assert rounded(overall(two_benchmarks(20.0))) == Overall(5.6569, "ratio")


def test_without_reference_times_it_is_copies_an_hour() -> None:
    # 2 copies in 10 s are 720 an hour, in 5 s 1440
    assert rounded(overall(two_benchmarks(None))) == Overall(1018.2338, "copies/hour")


@pytest.mark.parametrize("reference_s", [20.0, None])
def test_a_failed_copy_leaves_no_number(reference_s: float | None) -> None:
    assert overall(two_benchmarks(reference_s, status=CopyStatus.FAILED)) is None
