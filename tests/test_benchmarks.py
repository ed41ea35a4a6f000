"""The judge of `rater divots` judged: its truths are in the numbers, its scorer not to be fooled.

Few runs; the verdict on the detector is `python -m benchmarks.divot_cases`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.__main__ import MEASURES, _status, landed, lines, modes_text, read_figures
from benchmarks.__main__ import TABLE as FIGURES
from benchmarks.divot_cases.__main__ import verdicts
from benchmarks.divot_cases.cases import Case, make
from benchmarks.divot_cases.direct import findings_in, table_of_case
from benchmarks.divot_cases.pairs import documents, pair, said_of
from benchmarks.divot_cases.plants import Plant
from benchmarks.divot_cases.report import wilson
from benchmarks.divot_cases.scoring import judge
from benchmarks.documented import lacks_what_is_named
from rater.show.results.to_json import divot_rows

SEED = 15
RUNS = range(12)


@cache
def case_of(number: int) -> Case:
    return make(SEED, number)


def planted(family: str) -> list[tuple[Case, Plant]]:
    cases = [case_of(number) for number in range(1, 120, 2)]
    return [(case, plant) for case in cases for plant in case.plants if plant.family == family]


def answer(case: Case, plant: Plant, **changed: Any) -> dict[str, Any]:
    """Return the element of a divots document that would be right."""
    b, i, c = plant.where()
    kinds = {"place": "slow-group", "iteration": "slow-iteration", "modes": "bimodal"}
    kinds |= {"drift": "drift", "startup": "startup", "swaps": "not-repeating"}
    every = plant.family in ("modes", "swaps", "startup", "drift", "iteration")
    return {
        "kind": kinds[plant.family],
        "explained": False,
        "benchmarks": [f"b{it:02}" for it in b],
        "iterations": [it + 1 for it in i]
        if plant.family in ("iteration", "startup")
        else []
        if len(i) == case.dims[1]
        else [it + 1 for it in i],
        "copies": [] if every else c,
        "slowdown": math.exp(plant.size),
        "score_lost": case.score_lost(plant),
        "time_lost": case.score_lost(plant),
    } | changed


def test_a_plant_is_in_the_documents_times_and_nowhere_else() -> None:
    seen = 0
    for case, plant in planted("place"):
        if len(case.plants) > 1 or case.elapsed_s.size > 1000 or not case.demanded(plant):
            continue
        rows = case.document()["observations"]
        b, i, c = plant.where()
        like = set(np.flatnonzero(case.like(plant.mask.any(axis=(0, 1)))).tolist())
        ratios = []
        for benchmark in b:
            for iteration in i:
                of = {
                    row["copy"]: row["elapsed_s"]
                    for row in rows
                    if row["benchmark"] == f"b{benchmark:02}" and row["iteration"] == iteration + 1
                }
                inside = np.log([of[it] for it in c]).mean() - case.layout[benchmark, 0, c].mean()
                outside = [math.log(of[it]) - case.layout[benchmark, 0, it] for it in like]
                ratios.append(
                    inside - np.mean(outside) - plant.delta[benchmark, iteration, c].mean()
                )
        _, error = case.oracle(plant)
        assert abs(np.mean(ratios)) < 4 * error + 0.002, (case.name, plant.kind)
        seen += 1
    assert seen > 10


def test_the_right_answers_find_all_and_accuse_nobody() -> None:
    for number in range(1, 60, 2):
        case = case_of(number)
        verdict = judge(case, [answer(case, plant) for plant in case.plants])
        assert not verdict.alarms, case.name
        for one in verdict.plants:
            assert one.found, (case.name, one.plant.kind)
            assert one.fragments == 1
            assert one.cost_error is None or abs(one.cost_error) < 1e-9


def test_no_answer_finds_nothing_and_is_no_alarm() -> None:
    verdict = judge(case_of(1), [])
    assert not any(plant.found for plant in verdict.plants)
    assert not verdict.alarms


def one_slow_cpu_of_many() -> tuple[Case, Plant]:
    return next(
        (case, plant)
        for case, plant in planted("place")
        if len(case.plants) == 1 and plant.scope == "all" and not plant.half
        and case.demanded(plant) and plant.size > 0.05 and case.shape.size > 6
        and not np.ptp(case.layout, axis=2).any()
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({"size": 5}, "wrong size"),
        ({"size": -1}, "invented"),
        ({"elsewhere": True}, "invented"),
        ({"everyone": True}, "wrong place"),
    ],
)
def test_what_is_said_of_others_or_of_another_size_is_false(
    change: dict[str, Any], outcome: str
) -> None:
    case, plant = one_slow_cpu_of_many()
    right = answer(case, plant)
    copies = set(right["copies"])
    others = [it for it in range(case.shape.size) if it not in copies]
    if "size" in change:
        right["slowdown"] = math.exp(plant.size * change["size"])
    elif "elsewhere" in change:
        right["copies"] = others[: len(others) // 2]
    else:
        right["copies"] = sorted([*copies, *others[: max(1, len(copies) - 1)]])
        if len(right["copies"]) * 0.7 <= len(copies):
            pytest.skip("one innocent among many is no other place")
    verdict = judge(case, [right])
    assert [name for name, _ in verdict.others] == [outcome]
    assert not verdict.plants[0].found


def test_the_healthy_half_accused_is_wrong_unless_it_is_said_that_it_cannot_be_told() -> None:
    case, plant = next(it for it in planted("place") if it[1].kind == "4 of 8 cores")
    healthy = [it for it in range(case.shape.size) if it not in plant.where()[2]]
    wrong = answer(case, plant, copies=healthy, slowdown=math.exp(-plant.size))
    assert [name for name, _ in judge(case, [wrong]).others] == ["wrong half"]
    (said,) = judge(case, [wrong | {"ambiguous": True}]).plants
    assert (said.found, said.half) == (True, "said")
    (right,) = judge(case, [answer(case, plant)]).plants
    assert (right.found, right.half) == (True, "right half")


def test_an_lgroup_of_one_iteration_is_not_to_blame_for_a_benchmark_that_does_not_repeat() -> None:
    case, plant = next(it for it in planted("swaps") if it[1].about == "lgroups swap")
    first = np.flatnonzero(plant.mask[plant.where()[0][0], 0]).tolist()
    row = answer(case, plant, kind="slow-lgroup", copies=first, iterations=[1])
    assert not any(one.found for one in judge(case, [row]).plants if one.plant is plant)


def test_the_score_is_the_median_of_iterations_and_one_slow_one_of_three_costs_nothing() -> None:
    case, plant = next(
        it for it in planted("iteration") if it[0].dims[1] >= 3 and len(it[0].plants) == 1
    )
    assert abs(case.score_lost(plant)) < 0.02
    elapsed_s = np.array([[[100.0, 125.0], [100.0, 100.0], [100.0, 110.0]]])
    by_hand = replace(case, start_s=np.zeros((1, 3, 2)))
    assert by_hand.score(elapsed_s) == pytest.approx(2 * 1000 / 110)


def test_an_interval_of_a_share_is_wilsons() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998


def test_rater_finds_most_of_a_few_made_runs() -> None:
    every = [verdict for verdict, _, _ in verdicts(SEED, RUNS)]
    demanded = [plant for it in every for plant in it.plants if plant.demanded]
    healthy = [it for it in every if not it.case.plants]
    assert sum(one.found for one in demanded) >= 0.4 * len(demanded)
    assert sum(bool(it.alarms) for it in healthy) <= 2


def test_pairs_of_runs_are_told_by_what_each_has(tmp_path: Path) -> None:
    pairs = [pair(3, number) for number in range(4, 8)]
    both = zip(documents(pairs, tmp_path), pairs, strict=True)
    said = [said_of(it, cases) for it, (_, *cases) in both]
    assert [of_plant for of_plant, _ in said] == [{"recurring"}, {"once"}, {"wandering"}, set()]


def test_two_cores_and_a_half_of_an_lgroup_are_that_lgroup(tmp_path: Path) -> None:
    told = pair(3, 106)  # each enters the model on its own: one core shows in a benchmark more
    (document,) = documents([told], tmp_path)
    places = [divot["place"] for divot in document["runs"][0]["divots"]]
    assert places == ["node 2"]


def test_the_detector_says_of_made_runs_what_the_command_says_of_them_imported() -> None:
    numbers = range(1, 9)
    for (_, document, _), number in zip(verdicts(SEED, numbers), numbers, strict=True):
        direct: list[Any] = [*divot_rows(findings_in(table_of_case(make(SEED, number))))]
        for row in (said := [*document["divots"]]):
            row.pop("next", None)
        assert [
            {number: it[number] for number in row} for it, row in zip(direct, said, strict=True)
        ] == said


TABLE = """# a comment that stays
machine = "old"

[skew]
what = "last first instruction"
goal = 0.5
landed = 0.4

[steady]
what = "completions"
goal = 0.98
more = true
landed = 1.0
"""


def test_a_figure_is_held_against_its_goal_and_against_what_landed() -> None:
    _, figures = read_figures(TABLE)
    skew, steady = figures["skew"], figures["steady"]
    assert skew.verdict(0.43) == ""
    assert skew.verdict(0.6) == "beyond the goal, dearer by 50%"
    assert skew.verdict(0.2) == "cheaper by 50%"
    assert steady.verdict(0.99) == ""
    assert steady.verdict(0.8) == "beyond the goal, dearer by 25%"
    (_, row) = lines(list(figures.values()), {"skew": 0.6})
    assert row.endswith("0.6 x   0.5     0.4  beyond the goal, dearer by 50%")


def test_a_figure_that_misses_its_goal_ends_with_1_and_what_landed_holds_on_its_machine() -> None:
    _, figures = read_figures(TABLE)
    assert _status(figures, {"skew": 0.43, "steady": 0.99}, (), is_same=True) == 0
    assert _status(figures, {"skew": 0.51}, (), is_same=False) == 1
    assert _status(figures, {"skew": 0.47}, (), is_same=True) == 1  # 17 % dearer
    assert _status(figures, {"skew": 0.47}, (), is_same=False) == 0
    assert _status(figures, {}, ("steady",), is_same=False) == 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.25, 0.98, 0.26, 0.97, 0.27], "two modes: 0.26 (3 times), 0.975 (2)"),
        ([0.25, 0.26, 0.27, 0.26, 0.98], ""),  # once is an accident
        ([1.0, 1.1, 1.2, 1.3, 1.4], ""),
        ([1.0], ""),
    ],
)
def test_what_has_two_modes_says_so(values: list[float], text: str) -> None:
    assert modes_text(values) == text


def test_what_landed_is_kept_beside_the_goal_and_the_rest_of_the_file_stays() -> None:
    after = landed(TABLE, {"skew": 0.3, "steady": 0.97}, "2 x CPU")
    assert read_figures(after)[0] == "2 x CPU"
    assert {name: it.landed for name, it in read_figures(after)[1].items()} == {
        "skew": 0.3,
        "steady": 0.97,
    }
    assert after.replace("0.97", "1.0").replace("0.3", "0.4").replace("2 x CPU", "old") == TABLE


def test_every_figure_of_the_table_is_measured_by_something() -> None:
    names = read_figures(FIGURES.read_text())[1]
    begun = tuple(begin for begins in MEASURES.values() for begin in begins)
    assert [name for name in names if not name.startswith(begun)] == []


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("rater: --counters numa: the table generic has no group 'numa'; there are: cpi", True),
        ("rater: --counters nmua: the table generic has no group 'nmua'; there are: cpi", False),
        ("rater: there is no database w.db", True),
        ("rater: unknown option --copys", False),
    ],
)
def test_a_page_may_name_counters_of_another_processor_and_no_others(
    message: str, lacks: bool
) -> None:
    assert lacks_what_is_named(message) == lacks
