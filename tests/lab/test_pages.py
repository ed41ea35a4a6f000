"""Traces in the database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rater.errors import InputError
from rater.lab.store import find_trace, keep_check, keep_trace, load_trace, trace_heads
from rater.store.store import Store
from tests.support.traces import COSTS, a_trace


def test_a_trace_comes_back_as_it_was(store: Store) -> None:
    for rate in (1.0, 0.01):
        number = keep_trace(store, a_trace(rate), COSTS, host="here", traced_at="2026-01-01")
        found = load_trace(store, number)
        assert (found.trace, found.costs) == (a_trace(rate), COSTS)
        assert (found.host, found.checks) == ("here", {})


def test_a_trace_of_an_older_rater_has_no_misses_of_stores(store: Store) -> None:
    base, *others = a_trace().mappings
    told = replace(base, store_l1_misses=(3, 2, 0, 0, 1, 0), store_walks=(2, 1, 0, 0, 1, 0))
    trace = replace(a_trace(), mappings=(told, *others))
    number = keep_trace(store, trace, COSTS, host="here", traced_at="2026-01-01")
    assert load_trace(store, number).trace == trace
    with store.writing("an older trace") as connection:
        connection.execute("UPDATE page_mapping SET store_l1_misses = NULL, store_walks = NULL")
    assert load_trace(store, number).trace == a_trace()


def test_times_of_a_check_replace_those_of_an_earlier_one(store: Store) -> None:
    number = keep_trace(store, a_trace(), COSTS, host="here", traced_at="2026-01-01")
    keep_check(store, number, {"heap:2M": [1.0]})
    keep_check(store, number, {"heap:4k": [2.0, 3.0], "heap:2M": [1.5, 1.25]})
    assert load_trace(store, number).checks == {"heap:2M": [1.5, 1.25], "heap:4k": [2.0, 3.0]}


def test_a_trace_is_found_by_number_by_last_and_by_the_start_of_its_uuid(store: Store) -> None:
    with pytest.raises(InputError, match="rater pages --list"):
        find_trace(store, "last")
    for _ in range(2):
        keep_trace(store, a_trace(), COSTS, host="here", traced_at="2026-01-01")
    first, second = trace_heads(store)
    words = ("1", "trace:1", "last~1", first.uuid[:8])
    assert [find_trace(store, word) for word in words] == [1, 1, 1, 1]
    assert find_trace(store, "last") == second.number == 2
    for word in ("3", "last~2", "zzzz"):
        with pytest.raises(InputError, match="no such trace"):
            find_trace(store, word)
