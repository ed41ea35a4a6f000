"""Histories: steps with their dates, and what changed then."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rater.fleet.history import FactChange, benchmark_history, find_steps, host_history
from rater.fleet.record import HistoryPoint
from rater.fleet.show import changes_lines, step_text


def noise(count: int, seed: int = 1) -> list[float]:
    return list(0.004 * np.random.default_rng(seed).standard_t(4, count))


def points(
    weeks: int,
    own: Callable[[int, str], float],
    facts: Callable[[int], dict[str, str]] = lambda _: {},
    usual_facts: Callable[[int], dict[str, str]] = lambda _: {},
) -> list[HistoryPoint]:
    made = []
    for week in range(1, weeks + 1):
        little = noise(2, week)
        usual = {"lu": 10.0, "vm": 20.0}
        seconds = {
            name: usual[name] * own(week, name) * (1 + little[place])
            for place, name in enumerate(usual)
        }
        date = f"2026-09-{week:02}T12:00:00Z"
        made.append(HistoryPoint(week, date, seconds, usual, 7, facts(week), usual_facts(week)))
    return made


def test_a_step_is_found_where_it_is_and_nothing_else() -> None:
    values = [0.03 * (place >= 12) + it for place, it in enumerate(noise(20))]
    (step,) = find_steps(values, 0.015)
    assert (step.first, step.by_chance < 0.001) == (12, True)
    assert step.size == pytest.approx(0.03, abs=0.005)


def test_two_steps_are_two_and_one_bad_week_is_none() -> None:
    values = [
        0.05 * (place >= 10) - 0.05 * (place >= 20) + it for place, it in enumerate(noise(30))
    ]
    assert [it.first for it in find_steps(values, 0.015)] == [10, 20]
    bad = noise(20)
    bad[9] += 0.2
    assert find_steps(bad, 0.015) == ()


def test_short_series_and_small_steps_tell_nothing() -> None:
    assert find_steps([0.0, 0.0, 0.0, 0.1, 0.1], 0.015) == ()
    assert find_steps([0.01 * (place >= 10) for place in range(20)], 0.015) == ()


def test_a_host_that_became_slower_is_told_with_what_changed_on_it_alone() -> None:
    found = host_history(
        "n2",
        points(
            12,
            lambda week, _: 1.05 if week >= 7 else 1.0,
            lambda week: {"kernel": "6.2" if week >= 7 else "6.1", "thp": str(week >= 7)},
            lambda week: {"kernel": "6.1", "thp": str(week >= 7)},
        ),
    )
    (step,) = found.steps
    assert (step.benchmark, step.fleet, step.fleets_since) == (None, 7, 6)
    assert step.ratio == pytest.approx(1.05, abs=0.006)
    assert step.changes == (
        FactChange("kernel", "6.1", "6.2", others_too=False),
        FactChange("thp", "False", "True", others_too=True),
    )
    assert step_text(step).startswith("2026-09-07 (fleet 7): all benchmarks +")
    assert changes_lines(step.changes) == [
        "changed then: kernel 6.1 -> 6.2",
        "changed then, and on most others as well: thp False -> True",
    ]


def test_a_step_in_one_benchmark_is_told_for_that_alone() -> None:
    found = host_history("n2", points(12, lambda w, name: 1.1 if w >= 7 and name == "lu" else 1.0))
    assert [it.benchmark for it in found.steps if it.benchmark] == ["lu"]
    (line,) = changes_lines(found.steps[-1].changes)
    assert line.startswith("nothing that is recorded changed then")


def test_without_others_or_with_few_fleets_there_are_no_steps() -> None:
    few = host_history("n2", points(5, lambda week, _: 1.05 if week >= 3 else 1.0))
    assert (few.too_short, few.steps) == (True, ())
    alone = [HistoryPoint(1, None, {"lu": 1.0}, {}, 0, {}, {})]
    assert host_history("n2", alone).alone == 1


def test_a_benchmark_tells_its_usual_time_and_the_hosts_that_left_it() -> None:
    usual = [
        HistoryPoint(it.fleet, it.started_at, {"lu": 10.0 * (1.1 if it.fleet >= 7 else 1.0)},
                     {}, 7, {"kernel": "6.2" if it.fleet >= 7 else "6.1"}, {})
        for it in points(12, lambda *_: 1.0)
    ]  # fmt: skip
    hosts = {
        "n1": points(12, lambda *_: 1.0),
        "n2": points(12, lambda week, _: 1.2 if week >= 4 else 1.0),
    }
    found = benchmark_history("lu", usual, hosts)
    assert [(it.host, it.fleet) for it in found.steps] == [(None, 7), ("n2", 4)]
    assert found.steps[0].changes == (FactChange("kernel", "6.1", "6.2", others_too=False),)
