"""Costs, ranking, predictions and checks on a trace that is counted by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rater.lab.ranking import (
    Loads,
    benefits,
    best_within,
    by_saving,
    check_benefits,
    far_references,
    mappings_to_check,
    page_costs,
    page_memory,
    predicted_misses,
    rank_mappings,
    working_set,
)
from rater.lab.tlb import mapping_name, parse_tlb
from tests.support.traces import COSTS, HUGE, SMALL, TLB, a_trace

LOADS: list[dict[str, float]] = COSTS["loads"]  # type: ignore[assignment]
COST = page_costs(COSTS, parse_tlb(TLB))
DEPENDENT = Loads.DEPENDENT


def test_an_l1_miss_costs_what_small_pages_cost_more_where_the_last_level_holds_them() -> None:
    assert COST.l1_miss_ns(DEPENDENT) == 4.0  # at 256 pages: above 2 x 64, below 3/4 of 512
    assert COST.l1_miss_ns(Loads.INDEPENDENT) == 1.0
    assert COST.l1_miss_ns(Loads.BETWEEN) == 2.0


def test_a_walk_costs_by_footprint_what_is_beyond_an_l1_miss() -> None:
    # Smoothed over neighbours: at 1024 and 4096 pages the median of 24 and 44.
    assert COST.walk_ns(1024, DEPENDENT) == COST.walk_ns(1 << 30, DEPENDENT) == 34.0 - 4.0


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


def test_a_mapping_saves_misses_and_faults_at_their_cost() -> None:
    none, heap, mmap, both = rank_mappings(a_trace(), COST)
    assert (none.large_pages, none.saved_ns(DEPENDENT)) == (0, 0.0)
    # 990 L1 misses of 4 ns, 400 walks of 30 ns; 600 faults of 1 us less 2 of 52.1 us
    assert heap.misses_saved_ns[DEPENDENT] == 990 * 4.0 + 400 * 30.0
    assert heap.faults_saved_ns == pytest.approx(600_000 - 104_200)
    assert (heap.large_pages, heap.large_bytes) == (2, 2 * HUGE)
    assert both.saved_ns(DEPENDENT) == pytest.approx(
        heap.saved_ns(DEPENDENT) + mmap.saved_ns(DEPENDENT)
    )
    without = rank_mappings(a_trace(), COST, faults=False)
    assert without[1].saved_ns(DEPENDENT) == heap.misses_saved_ns[DEPENDENT]


def test_misses_of_stores_cost_what_stores_cost_whatever_loads_do() -> None:
    loads = [
        it | {"store_small_ns": 2.0 + it["pages"] / 1024, "store_huge_ns": 2.0} for it in LOADS
    ]
    costs = page_costs(COSTS | {"loads": loads}, parse_tlb(TLB))
    assert costs.l1_miss_ns(None) == 0.25
    assert costs.walk_ns(4096, None) == 2.5 - 0.25  # at 1024 and 4096 pages the median of 1 and 4
    base, *_ = (trace := a_trace()).mappings
    of_stores = replace(base, store_l1_misses=(1000,) + (0,) * 5, store_walks=(400,) + (0,) * 5)
    mappings = (of_stores, *trace.mappings[1:])
    _, heap, *_ = rank_mappings(replace(trace, mappings=mappings), costs)
    # 10 L1 misses of loads are left in huge pages; those in small ones were all of stores.
    assert heap.misses_saved_ns[DEPENDENT] == 1000 * 0.25 + 400 * 2.25 - 10 * 4.0


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
    memory = page_memory(a_trace())
    assert [it.memory_bytes for it in memory][::2] == [2_004 * SMALL, 6 * HUGE]


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
    assert [it.measured for it in check.mappings] == [0.0, 0.5, 1.0]
    assert [it.error for it in check.mappings] == pytest.approx([0.0, 0.1, 0.0])
    assert (check.told, check.most_saved_s) == (True, 1.0)
    assert math.isclose(check.mean_error, 0.05)
    assert math.isclose(check.max_error, 0.1)


def test_drift_that_hits_all_mappings_of_a_round_is_no_noise() -> None:
    times = [[2.0, 3.0, 4.0], [1.5, 2.5, 3.5]]
    check = check_benefits(["none", "heap"], [0.0, 100.0], times)
    assert check.most_saved_s == 0.5
    assert (check.most_saved_noise_s, check.told) == (0.0, True)


def test_mappings_to_run_are_those_that_differ_in_data_the_program_has() -> None:
    trace = a_trace()  # no static data: a page size for it changes nothing
    more = [replace(it, static_bytes=HUGE) for it in trace.mappings]
    ranked = rank_mappings(replace(trace, mappings=(*trace.mappings, *more)), COST)
    saved = [it.saved_ns(DEPENDENT) for it in ranked]
    assert mappings_to_check(trace, ranked, saved, every=True) == [0, 1, 2, 3]
    assert mappings_to_check(trace, ranked, saved, every=False) == [0, 3]


def test_a_benefit_within_the_noise_judges_no_prediction() -> None:
    times = [[1.0, 1.3, 0.9, 1.1], [1.2, 0.8, 1.05, 1.0]]
    check = check_benefits(["none", "heap"], [0.0, 100.0], times)
    assert not check.told
