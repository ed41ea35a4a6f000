"""Models of run time: fits with exact answers, which is warranted, and what a trace predicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from msgspec.structs import replace

from rater.analysis.results.copies import Point, PointRun
from rater.analysis.stats.robust import Floats
from rater.lab.models.fits import aicc, fit_polynomial, shown_pairs, two_point_models
from rater.lab.models.model import (
    BenchmarkTrace,
    ModelChoice,
    TermState,
    choose_model,
    misses_of,
    models_of,
    ranking_check,
)
from rater.lab.models.observed import ModelData, ModelRequest, observe
from rater.lab.models.points_file import points_of_csv
from rater.lab.models.quantities import PredictorKind, effort_named
from rater.lab.models.show import model_charts
from rater.lab.trace.costs import (
    Loads,
    costs_beside_runs,
    mean_costs,
    mean_walk_ns,
    misses_ns,
    page_costs,
)
from rater.lab.trace.pages import checked
from rater.lab.trace.ranking import (
    benefits,
    best_within,
    by_saving,
    check_benefits,
    far_references,
    mappings_to_check,
    predicted_misses,
    rank_mappings,
    working_set,
)
from rater.lab.trace.show_check import check_parts
from rater.lab.trace.show_costs import costs_parts
from rater.lab.trace.store import StoredTrace
from rater.lab.trace.tlb import CheckTimes, WalkGap, WalkOrder, mapping_layout, mapping_name
from rater.plan.tlb import parse_tlb
from rater.record.events import PageRegion
from rater.record.stored import StoredRun
from rater.show.screen.document import Line
from tests.support.counted_runs import SKX_TABLE, counted_run
from tests.support.traces import COSTS, HUGE, SMALL, TLB, a_trace

X = np.linspace(0, 100, 9)
# Nine numbers without slope or bend to speak of, of standard deviation about 1 %.
NOISE = np.array([0.3, -1.2, 0.9, 0.4, -0.8, 1.3, -1.1, 0.6, -0.4]) / 100


def chosen(y: Floats, noise: float = 0.001, degree: int = 2) -> ModelChoice:
    fits = [fit for d in range(degree + 1) if (fit := fit_polynomial(X, y, d)) is not None]
    return choose_model((X, y), fits, noise)


def test_a_line_is_a_line_exact_and_in_noise() -> None:
    line = 3 - 0.01 * X
    assert chosen(line).chosen == "linear"
    assert chosen(line * (1 + NOISE)).chosen == "linear"
    assert chosen(line, degree=3).chosen == "linear"


def test_a_parabola_is_a_parabola_exact_and_in_noise_though_no_line_fits_at_all() -> None:
    parabola = 1 + 4 * (X / 100 - 0.5) ** 2
    assert chosen(parabola).chosen == "quadratic"
    assert chosen(parabola * (1 + NOISE)).chosen == "quadratic"
    assert [term.state for term in chosen(parabola).terms] == [TermState.UNKNOWN, TermState.THERE]


def test_of_noise_nothing_is_chosen() -> None:
    choice = chosen(1 + NOISE)
    assert choice.chosen is None
    assert [term.state for term in choice.terms] == [TermState.UNKNOWN, TermState.UNKNOWN]


def test_what_is_smaller_than_runs_differ_is_not_chosen_however_significant() -> None:
    line = 3 - 0.0003 * X  # 1 % over all layouts: half of it from the mean
    assert chosen(line, noise=0.004).chosen == "linear"
    choice = chosen(line, noise=0.006)
    assert choice.chosen is None
    assert choice.terms[0].state is TermState.NOISE


def test_the_effect_is_the_change_from_end_to_end_and_the_bend_that_from_the_chord() -> None:
    y = 1 - 0.4 * (X / 100) + 0.2 * (X / 100) ** 2  # the middle lies 0.05 under its chord
    line, bend = chosen(y).terms
    assert line.effect == pytest.approx(-0.2 / y.mean())
    assert bend.effect == pytest.approx(0.05 / y.mean())  # the ends are above: it bends upwards


def test_so_many_more_layouts_make_the_interval_as_narrow_as_is_needed() -> None:
    (line, _) = chosen(1 + NOISE).terms
    assert line.low is not None
    assert line.high is not None
    half = (line.high - line.low) / 2
    goal = max(abs(line.effect), 0.01 - abs(line.effect))
    assert half > goal
    assert line.more_layouts is not None
    n = 9 + line.more_layouts
    # t(7) is 2.365 and goes to about 2.0: the interval narrows with the root of n and with t.
    assert half * np.sqrt(9 / n) * 2.0 / 2.365 <= goal * 1.03
    assert half * np.sqrt(9 / (n - 2)) > goal


def test_small_terms_that_are_known_to_be_small_need_no_more_layouts() -> None:
    _, bend = chosen((3 - 0.01 * X) * (1 + NOISE / 20)).terms
    assert (bend.state, bend.more_layouts) == (TermState.SMALL, None)


# Walks of a copy that does 1000 instructions, and its time with so many walks.
WALKS = {"0%": 400, "50%": 200, "100%": 0}


def point(text: str, run: StoredRun, axis: str = "pages") -> Point:
    return Point(f"{axis}={text}", ((axis, text),), (PointRun(run, None),))


def points(*groups: str) -> list[Point]:
    model_points = []
    for number, (text, walks) in enumerate(WALKS.items(), 1):
        events = {"walk_load": walks, "walk_store": 0} if "translation" in groups else {}
        made = counted_run(groups, copies=1, cycles=2000 + walks, **events)
        run = replace(made, head=replace(made.head, run=number, copies=1))
        model_points.append(point(text, run))
    return model_points


def observed(
    every: list[Point], request: ModelRequest | None = None, misses: float | None = None
) -> ModelData:
    predicted = None if misses is None else lambda _, text: misses * (1 + len(text))
    (found,) = observe(every, request or ModelRequest(), predicted)
    return found


def test_counted_walks_are_cycles_of_a_copy_and_come_first() -> None:
    data = observed(points("translation"), ModelRequest(effort_named("cycles")))
    assert (data.x.kind, data.x.source) == ("walks", "counted by the hardware")
    assert [layout.x for layout in data.layouts] == [0, 200, 400]
    assert [layout.y for layout in data.layouts] == pytest.approx([2000, 2200, 2400])


def test_estimated_walks_are_x_where_walks_are_asked_for_and_said_to_be_estimates() -> None:
    estimate = '\n[estimates]\ntranslation = { misses = "llc_miss", inside = "dram" }\n'
    [(name, text)] = SKX_TABLE
    settings = ((name, text + estimate), ("rater.tlb_miss_cycles", "10"))
    every = [
        replace(
            one, runs=tuple(PointRun(replace(it.run, settings=settings), None) for it in one.runs)
        )
        for one in points("numa")
    ]
    data = observed(every, ModelRequest(explaining=PredictorKind.WALKS))
    assert data.x.source == "estimated: misses x what one costs on this machine"
    assert [layout.x for layout in data.layouts] == pytest.approx([200.0] * 3)  # 20 misses each


def test_without_counted_walks_x_is_predicted_else_the_share_of_the_axis() -> None:
    data = observed(points("pipeline"))
    assert (data.x.kind, [layout.x for layout in data.layouts]) == ("huge", [0, 50, 100])
    assert data.x.source == "the share that --pages planned"
    data = observed(points("pipeline"), misses=10.0)
    assert (data.x.kind, data.x.source) == ("misses", "predicted from a stored trace")
    assert [layout.x for layout in data.layouts] == [30, 40, 50]


def region(huge_bytes: int | None) -> PageRegion:
    """A heap of 100 bytes."""
    sizes = {"extent_bytes": 100, "resident_bytes": 100, "planned_bytes": 100}
    return PageRegion(
        category="heap",
        split=False,
        share_of_bytes=None,
        **sizes,
        touched_bytes=100,
        huge_bytes=huge_bytes,
        stray_bytes=0,
        page_bytes=(),
        largest_page_bytes=1 << 21,
        seen="exit",
        processes=1,
        forks=0,
        note=None,
    )


def with_pages(every: list[Point], *huge_bytes: int | None) -> list[Point]:
    found = []
    for one, size in zip(every, huge_bytes, strict=True):
        run = one.runs[0].run
        copies = tuple(replace(copy, pages=(region(size),)) for copy in run.copies)
        found.append(replace(one, runs=(PointRun(replace(run, copies=copies), None),)))
    return found


def test_the_share_that_copies_had_is_better_than_what_was_planned() -> None:
    data = observed(with_pages(points("pipeline"), 0, 40, 90))
    assert data.x.source == "the share that copies had, as proved"
    assert [layout.x for layout in data.layouts] == [0, 40, 90]
    data = observed(with_pages(points("pipeline"), 0, None, 90))
    assert (data.x.source, len(data.layouts)) == ("the share that --pages planned", 3)


def test_layouts_that_are_no_shares_have_the_share_that_copies_had() -> None:
    every = points("pipeline")
    every[1] = point("heap:huge", every[1].runs[0].run)
    assert [layout.x for layout in observed(with_pages(every, 0, 40, 90)).layouts] == [0, 40, 90]


def test_a_number_that_the_program_reports_can_be_y() -> None:
    every = []
    for one, updates in zip(points("pipeline"), (0.5, 0.75, 1.0), strict=True):
        run = one.runs[0].run
        copies = tuple(replace(copy, metrics=(("updates", updates),)) for copy in run.copies)
        every.append(replace(one, runs=(PointRun(replace(run, copies=copies), None),)))
    data = observed(every, ModelRequest(effort_named("metric:updates")))
    assert data.y.name == "updates as a copy reports it"
    assert [layout.y for layout in data.layouts] == pytest.approx([0.5, 0.75, 1.0])


def test_user_time_leaves_out_what_the_kernel_did_for_a_copy() -> None:
    every = []
    for one, user_s in zip(points("pipeline"), (5, 4, 3), strict=True):
        run = one.runs[0].run
        copies = tuple(
            replace(copy, cpu_ns=9 * 10**9, user_ns=user_s * 10**9) for copy in run.copies
        )
        every.append(replace(one, runs=(PointRun(replace(run, copies=copies), None),)))
    cpu = observed(every, ModelRequest(effort_named("cpu")))
    assert [layout.y for layout in cpu.layouts] == pytest.approx([9, 9, 9])
    data = observed(every, ModelRequest(effort_named("user")))
    assert data.y.name == "user time of a copy"
    assert [layout.y for layout in data.layouts] == pytest.approx([5, 4, 3])


def test_what_is_asked_for_by_name_is_x_though_better_is_there() -> None:
    data = observed(points("translation"), ModelRequest(explaining=PredictorKind.HUGE))
    assert data.x.kind == "huge"


def test_layouts_without_x_are_left_out_and_named_where_it_is_asked_for() -> None:
    every = points("translation")
    every[1] = replace(every[1], runs=points("pipeline")[1].runs)
    data = observed(every, ModelRequest(explaining=PredictorKind.WALKS))
    assert [layout.label for layout in data.layouts] == ["pages=100%", "pages=0%"]
    assert data.lacking == ("pages=50%: no page-walk cycles of a copy",)
    assert observed(every).x.kind == "huge"


# Anscombe's first data set: y = 3.00 + 0.500 x, R2 = 0.667, in every textbook.
ANSCOMBE_X = np.array([10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0])
ANSCOMBE_Y = np.array([8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68])


def test_a_line_and_a_parabola_are_found_as_they_are() -> None:
    line = fit_polynomial(X, 3 - 0.01 * X, 1)
    parabola = fit_polynomial(X, 3 - 0.02 * X + 1e-4 * X**2, 2)
    assert line is not None
    assert parabola is not None
    assert line.coefficients == pytest.approx((3, -0.01))
    assert parabola.coefficients == pytest.approx((3, -0.02, 1e-4))
    assert parabola.quality.r2 == pytest.approx(1.0)


def test_a_data_set_of_the_textbooks() -> None:
    fit = fit_polynomial(ANSCOMBE_X, ANSCOMBE_Y, 1)
    assert fit is not None
    assert fit.coefficients == pytest.approx((3.0001, 0.50009), abs=1e-4)
    assert fit.quality.r2 == pytest.approx(0.66654, abs=1e-5)
    assert fit.quality.adjusted_r2 == pytest.approx(0.62949, abs=1e-5)
    assert fit.sigma == pytest.approx(1.2366, abs=1e-4)  # residual standard error
    band = fit.band(np.array([9.0]))  # at the mean of x: t(9) s / sqrt(n)
    assert band == pytest.approx([2.262157 * 1.2366 / math.sqrt(11)], rel=1e-4)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_errors_of_leaving_one_out_are_those_of_fits_without_it(degree: int) -> None:
    fit = fit_polynomial(ANSCOMBE_X, ANSCOMBE_Y, degree)
    assert fit is not None
    assert fit.quality.left_out == pytest.approx(_one_by_one(degree))


def _one_by_one(degree: int) -> list[float]:
    found = []
    for place in range(len(ANSCOMBE_X)):
        kept = np.arange(len(ANSCOMBE_X)) != place
        by_others = np.polynomial.Polynomial.fit(ANSCOMBE_X[kept], ANSCOMBE_Y[kept], degree)
        found.append(by_others(ANSCOMBE_X[place]) / ANSCOMBE_Y[place] - 1)
    return found


def test_large_counts_keep_their_digits() -> None:
    cycles = X * 1e9
    fit = fit_polynomial(cycles, 2e9 + 0.5 * cycles + 1e-12 * cycles**2, 3)
    assert fit is not None
    assert fit.coefficients[1] == pytest.approx(0.5, rel=1e-6)
    assert fit.coefficients[2] == pytest.approx(1e-12, rel=1e-6)


def test_aicc_as_hurvich_and_tsai_have_it_and_none_of_too_few() -> None:
    assert aicc(8.0, 8, 3) == pytest.approx(0 + 6 + 24 / 4)
    assert aicc(8.0, 4, 3) is None


def test_what_x_has_too_few_values_for_is_not_fitted() -> None:
    twice: Floats = np.array([0.0, 0.0, 1.0, 1.0])
    assert fit_polynomial(twice, np.array([1.0, 2.0, 3.0, 4.0]), 2) is None
    line = fit_polynomial(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 1)
    assert line is not None
    assert (line.quality.adjusted_r2, line.quality.aicc, line.quality.left_out) == (
        None,
        None,
        None,
    )
    assert line.band(twice) is None


TRACED = BenchmarkTrace(4, a_trace(), page_costs(COSTS, parse_tlb(TLB)))


def test_misses_are_those_of_the_benchmarks_trace() -> None:
    predicted = misses_of({"made": TRACED})
    assert predicted is not None
    # 400 walks of the heap, 3000 of mappings, 7 of the stack; all in huge pages 2 and 7 are left.
    assert predicted("made", "0%") == 400 + 3000 + 7
    assert predicted("made", "100%") == pytest.approx(2 + 7)
    assert predicted("other", "0%") is None
    assert misses_of({}) is None


def test_runs_that_go_as_predicted_have_no_error_and_others_theirs() -> None:
    names = ("0%", "heap:huge", "mmap:huge", "100%")
    as_it_is = ranking_check("made", TRACED, [(name, (1.0, 1.0, 1.0)) for name in names])
    assert (as_it_is.trace, as_it_is.best.large_pages) == (4, 5)
    assert as_it_is.check is not None
    assert not as_it_is.check.told  # nothing differs: nothing is told
    shares = [mapping.predicted for mapping in as_it_is.check.mappings]
    assert shares[0] == 0
    assert shares[3] == 1
    assert shares[1] + shares[2] == pytest.approx(1)  # the heap's part and that of mappings
    times = [(name, (2 - share,) * 3) for name, share in zip(names, shares, strict=True)]
    check = ranking_check("made", TRACED, times).check
    assert check is not None
    assert check.told
    assert check.max_error == pytest.approx(0)
    times[2] = (names[2], (2.0,) * 3)  # mappings bring nothing at all
    check = ranking_check("made", TRACED, times).check
    assert check is not None
    assert check.max_error == pytest.approx(shares[2])


# A parabola 1 + x^2 at 0, 1, 2: the chord of the ends is 1 + 2 x, 3 at x = 1 where y is 2.
THREE_X, Y = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 5.0])


def test_errors_of_all_pairs_the_ends_first() -> None:
    ends, low, high = two_point_models(THREE_X, Y)
    assert (ends.first, ends.second, ends.errors) == (0, 2, (None, 0.5, None))
    # 1 + x is 3 at 2 where y is 5; -1 + 3 x is -1 at 0 where y is 1.
    assert low.errors[:2] == high.errors[1:] == (None, None)
    assert [low.errors[2], high.errors[0]] == pytest.approx([-0.4, -2.0])
    assert (low.outside, high.outside) == ((False, False, True), (True, False, False))
    assert ends.mean_error == ends.maximum_error == 0.5


def test_many_layouts_have_lines_between_their_ends_middle_and_quarters() -> None:
    """Through all pairs of 1,000 they took a minute and two gigabytes."""
    x = np.arange(1000.0)
    lines = two_point_models(x, 5 + x)
    ends = {(line.first, line.second) for line in lines}
    assert len(lines) == 10
    assert {(0, 999), (0, 500), (500, 999), (250, 749)} <= ends
    assert len(two_point_models(x[:50], 5 + x[:50])) == 50 * 49 / 2


def test_each_curve_has_its_name_where_their_ends_meet() -> None:
    (data,) = points_of_csv("x,y\n1,0.4\n2,0.6\n4,1.8\n", "points.csv", x="x", y="y")
    (chart,) = model_charts(models_of([data], degree=2))
    names = chart["data"]["names"]
    assert [name["text"] for name in names] == ["quadratic", "linear"]
    assert names[0]["y"] == pytest.approx(1.8)
    assert names[0]["y"] - names[1]["y"] > 0.05


def test_pairs_of_one_x_make_no_line() -> None:
    x = np.array([0.0, 0.0, 1.0])
    pairs = two_point_models(x, np.array([1.0, 1.5, 2.0]))
    assert [(pair.first, pair.second) for pair in pairs] == [(0, 2), (1, 2)]
    assert two_point_models(x[1:], Y[1:]) == ()


def test_a_table_of_nine_layouts_has_the_ends_the_middle_and_the_quarters() -> None:
    x = np.arange(9.0)
    shown = shown_pairs(two_point_models(x, x + 1), x)
    assert [(one.first, one.second) for one in shown][:3] == [(0, 8), (0, 6), (2, 8)]
    assert len(shown) == 10
    assert {place for one in shown for place in (one.first, one.second)} == {0, 2, 4, 6, 8}


LOADS: list[dict[str, float]] = COSTS["loads"]  # type: ignore[assignment]
COST = page_costs(COSTS, parse_tlb(TLB))
DEPENDENT = Loads.DEPENDENT


def test_an_l1_miss_costs_what_small_pages_cost_more_where_the_last_level_holds_them() -> None:
    assert COST.l1_miss_ns(DEPENDENT) == 4.0  # at 256 pages: above 2 x 64, below 3/4 of 512
    assert COST.l1_miss_ns(Loads.INDEPENDENT) == 1.0
    assert COST.l1_miss_ns(Loads.BETWEEN) == 2.0


def test_a_walk_costs_by_footprint_what_is_beyond_an_l1_miss() -> None:
    # 24 ns at 1024 pages, 44 at 4096, and at 2048 as far from both.
    costs = [COST.walk_ns(pages, DEPENDENT) for pages in (1, 1024, 2048, 1 << 30)]
    assert costs == [20.0, 20.0, 30.0, 40.0]


def test_a_walk_never_gets_cheaper_with_its_footprint() -> None:
    falling = {1024: 51.0, 4096: 25.0}  # measured beside load, with 1 ns in huge pages
    loads = [
        it | {"dependent_small_ns": falling.get(int(it["pages"]), 5.0), "dependent_huge_ns": 1.0}
        for it in LOADS
    ]
    costs = page_costs(COSTS | {"loads": loads}, parse_tlb(TLB))
    # 50 and 24 ns: their mean, less the 4 ns of an L1 miss.
    assert [costs.walk_ns(pages, DEPENDENT) for pages in (1024, 4096)] == [33.0, 33.0]


def test_noise_below_nothing_takes_off_what_noise_above_it_added() -> None:
    noisy = {1024: -31.0, 4096: 51.0}  # less the 1 ns of huge pages: -32 and 50 ns, then -12
    loads = [
        it | {"dependent_small_ns": noisy.get(int(it["pages"]), 1.0), "dependent_huge_ns": 1.0}
        for it in LOADS
    ]
    last = loads[-1] | {"pages": 16384, "huge_bytes": 16384 * SMALL, "dependent_small_ns": -11.0}
    costs = page_costs(COSTS | {"loads": [*loads, last]}, parse_tlb(TLB))
    # 50 and -12 ns are both 19, the mean.
    walks = [costs.walk_ns(pages, DEPENDENT) for pages in (1024, 4096, 16384)]
    assert walks == [0.0, 19.0, 19.0]


def test_a_fault_costs_a_part_by_itself_and_a_part_a_byte() -> None:
    assert COST.fault_ns(SMALL) == 1000.0
    assert COST.fault_ns(HUGE) == 52_100.0
    assert COST.fault_ns(64 << 10) == pytest.approx(1000 + 51_100 * 15 / 511)


def test_without_huge_pages_a_larger_fault_costs_as_much_a_byte() -> None:
    costs = page_costs(COSTS | {"faults": {"small_ns": 1000.0}}, parse_tlb(TLB))
    assert costs.fault_ns(HUGE) == 512_000.0


def test_footprints_that_had_no_huge_pages_are_left_out() -> None:
    loads = [it | {"huge_bytes": 0} for it in COSTS["loads"]]  # type: ignore[attr-defined]
    assert page_costs(COSTS | {"loads": loads}, parse_tlb(TLB)).points == ()


@pytest.mark.parametrize(
    ("small_ns", "huge_ns", "splits"),
    [
        ({16: 1.7, 256: 4.1}, {16: 1.7, 256: 4.0}, True),  # one huge page, and misses all the same
        ({16: 1.7, 256: 4.1}, {16: 1.7, 256: 1.8}, False),
        ({16: 1.7, 256: 2.1}, {16: 1.7, 256: 1.7}, None),  # a miss of the first level is not seen
        ({256: 4.1}, {256: 4.0}, None),  # nothing that the first level holds
    ],
)
def test_huge_pages_are_split_where_more_base_pages_than_the_tlb_has_miss_in_them_too(
    small_ns: dict[int, float], huge_ns: dict[int, float], splits: bool | None
) -> None:
    loads = [
        LOADS[0]
        | {
            "pages": pages,
            "huge_bytes": HUGE,
            "dependent_small_ns": small_ns[pages],
            "dependent_huge_ns": huge_ns[pages],
        }
        for pages in small_ns
    ]
    costs = page_costs(COSTS | {"loads": loads}, parse_tlb(TLB))
    assert costs.splits_huge is splits
    said = " ".join(str(part) for part in costs_parts(costs))
    assert ("Huge pages are split here" in said) is (splits is True)


def test_a_mapping_saves_misses_and_faults_at_their_cost() -> None:
    none, heap, mmap, heap_and_mmap = rank_mappings(a_trace(), COST)
    assert (none.large_pages, none.saved_ns(DEPENDENT)) == (0, 0.0)
    # 990 L1 misses of 4 ns, 400 walks of 20 ns and a part of the 20 ns more at 4096 pages: it
    # has 2004 (log4 of 2004 / 1024 is .484333); 600 faults of 1 us less 2 of 52.1 us
    walk_ns = 20.0 + 20.0 * 0.484333
    assert heap.misses_saved_ns[DEPENDENT] == pytest.approx(990 * 4.0 + 400 * walk_ns)
    assert heap.faults_saved_ns == pytest.approx(600_000 - 104_200)
    assert (heap.large_pages, heap.large_bytes) == (2, 2 * HUGE)
    assert heap_and_mmap.saved_ns(DEPENDENT) == pytest.approx(
        heap.saved_ns(DEPENDENT) + mmap.saved_ns(DEPENDENT)
    )


def test_a_walk_costs_by_how_long_ago_its_page_was_walked_and_by_its_order() -> None:
    near = {f"near_{kind}_huge_ns": 2.0 for kind in ("dependent", "independent", "store")}
    loads = [
        it
        | near
        | {"near_dependent_small_ns": 11.0, "near_independent_small_ns": 5.0}
        | {"near_store_small_ns": 3.0, "store_small_ns": 6.0, "store_huge_ns": 2.0}
        for it in LOADS
    ]
    costs = page_costs(COSTS | {"loads": loads}, parse_tlb(TLB))
    base, *others = (trace := a_trace()).mappings
    gaps = (
        WalkGap(order=WalkOrder.FAR, octave=20, loads=100, stores=10),
        WalkGap(order=WalkOrder.BESIDE, octave=20, loads=10, stores=0),
        WalkGap(order=WalkOrder.NEAR, octave=20, loads=1, stores=1),
        WalkGap(order=WalkOrder.ALONE, octave=20, loads=1000, stores=0),
        WalkGap(order=WalkOrder.NEAR_ALONE, octave=20, loads=2, stores=0),
    )
    walked = replace(trace, mappings=(replace(base, gaps=gaps), *others))

    def walks_ns(loads: Loads) -> float:
        return misses_ns(walked, walked.mappings[0], costs, loads) - 6007 * costs.l1_miss_ns(loads)

    # Beyond an L1 miss of 4, 1, 2 ns (a store: 4): dependent loads cost 40 ns, near ones 5.
    assert walks_ns(DEPENDENT) == pytest.approx(1110 * 40.0 + 3 * 5.0)
    # Those that neighbours follow are made by arithmetic: 10 ns (44 / 4 - 1), near ones 2.
    assert walks_ns(Loads.INDEPENDENT) == pytest.approx(1110 * 10.0 + 3 * 2.0)
    # Of those that are alone all, of the others the geometric mean, sqrt(44 x 11) - 2.
    between_ns = 100 * 20.0 + 10 * 10.0 + 1 * 2.0 + 1000 * 40.0 + 2 * 5.0
    assert walks_ns(Loads.BETWEEN) == pytest.approx(between_ns)
    # A store costs nothing here: no more than an L1 miss of one, 4 ns, but it is a walk too.
    mean = mean_walk_ns(walked, costs, Loads.BETWEEN)
    assert mean == pytest.approx(between_ns / 1124)


def test_a_stream_costs_by_page_whatever_waits_for_it() -> None:
    huge = {"stream_load_huge_ns": 300.0, "stream_store_huge_ns": 400.0}
    small_ns = {256: 302.0, 1024: 340.0, 4096: 404.0}  # 64 lines a page: 2^14, 2^16, 2^18 lines
    loads = [
        it
        | huge
        | {"stream_load_small_ns": small_ns[int(it["pages"])], "stream_store_small_ns": 440.0}
        for it in LOADS
        if it["pages"] in small_ns
    ]
    costs = page_costs(COSTS | {"loads": loads}, parse_tlb(TLB))
    # Beyond an L1 miss of 4, 1 ns (a store: 0); between two footprints by the logarithm of lines.
    assert costs.stream_ns(1 << 14, DEPENDENT) == 0.0
    assert [costs.stream_ns(1 << lines, DEPENDENT) for lines in (16, 17, 30)] == [36, 68, 100]
    assert costs.stream_ns(1 << 16, Loads.INDEPENDENT) == 39
    base, *others = (trace := a_trace()).mappings
    gap = WalkGap(order=WalkOrder.NEAR_ALONE, octave=30, loads=10, stores=5)
    streamed = replace(trace, mappings=(replace(base, gaps=(gap,)), *others))
    assert mean_walk_ns(streamed, costs, DEPENDENT) == pytest.approx((10 * 100 + 5 * 40) / 15)


def test_what_is_given_back_costs_with_its_first_touch() -> None:
    faults = {"small_ns": 1000.0, "huge_ns": 52_100.0}
    freed = faults | {"small_free_ns": 150.0, "huge_free_ns": 5000.0}
    costs = page_costs(COSTS | {"faults": freed}, parse_tlb(TLB))
    assert (costs.fault_ns(SMALL), costs.fault_ns(HUGE)) == (1150.0, 57_100.0)


def test_costs_of_two_measurements_are_their_mean_where_both_have_them() -> None:
    later = COSTS | {"cycle_ns": 0.7, "loads": [LOADS[0] | {"huge_bytes": 0}, *LOADS[1:]]}
    mean = mean_costs([COSTS, later])
    assert mean["cycle_ns"] == pytest.approx(0.6)
    assert mean["loads"][1:] == LOADS[1:]
    assert mean["loads"][0]["huge_bytes"] == 0  # one that had no huge pages tells nothing
    assert mean_costs([COSTS, COSTS | {"faults": None}])["faults"] is None


def test_a_check_of_user_time_predicts_no_page_faults() -> None:
    ranked = rank_mappings(a_trace(), COST)
    base, heap = (mapping_layout(mapping.mapping.sizes) for mapping in ranked[:2])
    cpu_s = {base: (1.0, 1.0), heap: (0.9, 0.9)}
    stored = StoredTrace(
        number=1, trace=a_trace(), costs=COSTS, checks=CheckTimes(cpu_s=cpu_s, user_s={})
    )
    by_cpu = checked(stored, ranked, DEPENDENT)
    user_s = {base: (0.8, 0.8), heap: (0.75, 0.75)}
    by_user = checked(
        replace(stored, checks=CheckTimes(cpu_s=cpu_s, user_s=user_s)), ranked, DEPENDENT
    )
    assert by_cpu is not None and by_user is not None
    assert by_cpu.best.predicted_s == pytest.approx(ranked[1].saved_ns(DEPENDENT) * 1e-9)
    assert by_user.best.predicted_s == pytest.approx(ranked[1].misses_saved_ns[DEPENDENT] * 1e-9)
    assert by_user.best.saved_s == pytest.approx(0.05)


def test_a_prediction_lies_between_loads_that_wait_for_none_and_for_all_and_between_costs() -> None:
    # After the runs a dependent load costs twice as much as before, an independent one half.
    later = COSTS | {
        "loads": [
            it
            | {"dependent_small_ns": 2 * it["dependent_small_ns"] - 10.0}
            | {"independent_small_ns": 1.0 + it["independent_small_ns"] / 2}
            for it in LOADS
        ]
    }
    trace = a_trace()
    base, heap, *_ = (mapping_layout(mapping.sizes) for mapping in trace.mappings)
    stored = StoredTrace(
        number=1,
        trace=trace,
        costs=costs_beside_runs(COSTS, later),
        checks=CheckTimes(cpu_s={base: (1.0,), heap: (0.9,)}, user_s={}),
    )
    ranked = rank_mappings(trace, page_costs(stored.costs, parse_tlb(TLB)))
    check = checked(stored, ranked, Loads.BETWEEN)
    assert check is not None
    # 990 L1 misses and 400 walks of 29.68667 ns (dependent, before), 495,800 ns less of faults.
    misses_ns = 990 * 4.0 + 400 * (20.0 + 20.0 * 0.484333)
    assert check.best.most_s == pytest.approx((2 * misses_ns + 495_800) * 1e-9)
    assert check.best.least_s == pytest.approx((misses_ns / 8 + 495_800) * 1e-9)
    # The prediction is the geometric mean of the mean costs. Before the runs that was half of what
    # a dependent load costs; the mean is sqrt(1.5 x .75) of it, which makes 8.4 us of misses.
    [line, *_] = [part for part in check_parts(check) if isinstance(part, Line)]
    assert line.text == (
        "heap:2M;mmap:4k;static:4k: predicted to save 0.504 ms (0.498 to 0.527, as loads wait for "
        "each other), measured 100.0 ms: ratio 0.01"
    )


def test_a_walk_of_a_page_walked_long_ago_costs_what_it_does_with_more_lines_a_page() -> None:
    # 44 ns at 4096 pages of a line each; with four lines of each 64 ns: 2^14 lines.
    with_lines = {"pages": 4096, "lines": 4, "huge_bytes": 4096 * SMALL}
    more = with_lines | {"dependent_small_ns": 74.0, "dependent_huge_ns": 10.0}
    costs = page_costs(COSTS | {"loads": [*LOADS, more]}, parse_tlb(TLB))
    walks = [costs.walk_ns(1 << lines, DEPENDENT) for lines in (12, 13, 14, 30)]
    assert walks == [40.0, 50.0, 60.0, 60.0]


def test_misses_of_stores_cost_what_stores_cost_whatever_loads_do() -> None:
    loads = [
        it | {"store_small_ns": 2.0 + it["pages"] / 1024, "store_huge_ns": 2.0} for it in LOADS
    ]
    costs = page_costs(COSTS | {"loads": loads}, parse_tlb(TLB))
    assert costs.l1_miss_ns(None) == 0.25
    assert costs.walk_ns(4096, None) == 4.0 - 0.25
    base, *_ = (trace := a_trace()).mappings
    of_stores = replace(base, store_l1_misses=(1000,) + (0,) * 5, store_walks=(400,) + (0,) * 5)
    mappings = (of_stores, *trace.mappings[1:])
    _, heap, *_ = rank_mappings(replace(trace, mappings=mappings), costs)
    # 10 L1 misses of loads are left in huge pages; those in small ones were all of stores.
    walk_ns = 0.75 + 3.0 * 0.484333  # at 2004 pages: 1 ns at 1024, 4 ns at 4096
    saved_ns = 1000 * 0.25 + 400 * walk_ns - 10 * 4.0
    assert heap.misses_saved_ns[DEPENDENT] == pytest.approx(saved_ns)


def test_the_best_mapping_is_that_which_saves_most_within_the_pages_there_are() -> None:
    ranked = rank_mappings(a_trace(), COST)
    names = [mapping_name(it.mapping.sizes) for it in by_saving(ranked, DEPENDENT)]
    assert names == ["heap 2M + mmap 2M", "mmap 2M", "heap 2M", "all 4k"]
    for pages, name in ((9, names[0]), (4, "mmap 2M"), (2, "heap 2M"), (1, "all 4k")):
        assert mapping_name(best_within(ranked, pages, DEPENDENT).mapping.sizes) == name
    assert max(benefits(ranked, DEPENDENT)) == 1.0


def test_working_sets_and_far_references_count_first_touches() -> None:
    base = a_trace().of_size(SMALL)
    # 60,000 at 0, 9,400 at 64, 8,600 at 576, 2,004 first touches: 80,004
    assert far_references(base, 64) == 9_400 + 8_600 + 2_004
    assert far_references(base, 65) == 8_600 + 2_004
    assert far_references(base, 576, 1) == 8_600 + 1_400
    assert working_set(base, 0.75) == 65
    assert working_set(base, 0.5) == 1
    assert working_set(base, 0.99) == 2_004  # is not to be had: all pages


def test_misses_of_a_layout_are_those_of_its_regions() -> None:
    trace = a_trace()

    def misses(layout: str) -> tuple[float, float]:
        found = predicted_misses(trace, layout)
        return found.l1_misses, found.walks

    assert misses("0%") == (6007, 3407)
    assert misses("100%") == (67, 9)
    assert misses("heap:2M") == (5017, 3007)
    assert misses("heap:2M@0-2M") == (5117, 3057)  # the first region alone
    assert misses("heap:50%;mmap:4k") == (5117, 3057)  # one of two huge pages
    assert misses("mmap:1M@0-1M")[0] == 6007 - 490  # half of a region


def test_errors_are_in_per_cent_of_the_largest_benefit() -> None:
    times = [[2.0, 2.0, 2.0], [1.5, 1.5, 1.5], [1.0, 1.0, 1.0]]
    check = check_benefits(["none", "heap", "both"], [0.0, 60.0, 100.0], times)
    assert [mapping.measured for mapping in check.mappings] == [0.0, 0.5, 1.0]
    assert [mapping.error for mapping in check.mappings] == pytest.approx([0.0, 0.1, 0.0])
    assert (check.told, check.most_saved_s) == (True, 1.0)
    assert check.mean_error == pytest.approx(0.05)
    assert check.max_error == pytest.approx(0.1)
    # Predicted 60 of 100 ns, of 0.5 s: shares can agree where times do not, so a ratio says both.
    assert check.mappings[1].ratio == pytest.approx(60e-9 / 0.5)


def test_two_mappings_have_no_error_and_one_round_no_noise() -> None:
    """Of two the error of the better one is 0 by construction."""
    check = check_benefits(["none", "heap"], [0.0, 49.4e6], [[1.0], [0.9329]])
    assert (check.mean_error, check.max_error) == (None, None)
    assert (check.most_saved_noise_s, check.best.noise_s, check.told) == (None, None, False)
    assert check.best.ratio == pytest.approx(49.4 / 67.1)


def test_the_slope_of_a_program_has_what_costs_of_the_machine_lack() -> None:
    """Half of the pages saved 100 ms of 50 predicted: twice as much is to be expected of all."""
    times = [[1.0, 1.0], [0.9, 0.9], [0.81, 0.81]]
    check = check_benefits(["none", "heap:50%", "heap"], [0.0, 50e6, 100e6], times)
    base, half, whole = check.mappings
    assert (base.own_slope, base.by_own_slope_s) == (None, None)
    assert (half.own_slope, whole.own_slope) == pytest.approx((1.9, 2.0))
    assert (whole.by_own_slope_s, whole.own_ratio) == pytest.approx((0.2, 0.2 / 0.19))
    assert [*check_parts(check)][1] == (
        "By the program's own slope: 200 ms: ratio 1.05. Each millisecond predicted of its other "
        "mappings saved 2.00."
    )
    # Of two mappings, of two with one prediction, and from a small part of it nothing is known.
    for saved_ns in ([0.0, 100e6], [0.0, 100e6, 100e6], [0.0, 1e6, 100e6]):
        names = ["none", "heap", "mmap"][: len(saved_ns)]
        told = check_benefits(names, saved_ns, times[: len(saved_ns)])
        assert told.mappings[-1].own_slope is None


def test_drift_that_hits_all_mappings_of_a_round_is_no_noise() -> None:
    times = [[2.0, 3.0, 4.0], [1.5, 2.5, 3.5]]
    check = check_benefits(["none", "heap"], [0.0, 100.0], times)
    assert check.most_saved_s == 0.5
    assert (check.most_saved_noise_s, check.told) == (0.0, True)


def test_mappings_to_run_are_those_that_differ_in_data_the_program_has() -> None:
    trace = a_trace()  # no static data: a page size for it changes nothing
    more = [replace(mapping, static_bytes=HUGE) for mapping in trace.mappings]
    ranked = rank_mappings(replace(trace, mappings=(*trace.mappings, *more)), COST)
    saved = [it.saved_ns(DEPENDENT) for it in ranked]
    assert mappings_to_check(trace, ranked, saved, every=True) == [0, 1, 2, 3]
    assert mappings_to_check(trace, ranked, saved, every=False) == [0, 3]


def test_a_benefit_within_the_noise_judges_no_prediction() -> None:
    times = [[1.0, 1.3, 0.9, 1.1], [1.2, 0.8, 1.05, 1.0]]
    check = check_benefits(["none", "heap"], [0.0, 100.0], times)
    assert not check.told
