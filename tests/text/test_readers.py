"""Readers of text that others wrote: a value, or words on what is wrong; whatever the text.

The long form, a million broken texts, is `make torture`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from benchmarks.torture.readers import feed, readers
from rater.errors import InputError
from rater.plan.placement.layout import parse_expression
from rater.store.observations import read_observations
from rater.text.cpuset import format_list, mask_of, parse_bitmap, parse_set
from tests.support.bitmaps import format_bitmap
from tests.support.observations import observed
from tests.support.suite_text import parse_suite

# Values that stand in our modules are tried as well: which, would hang on what else was imported.
providers._get_local_constants = lambda: providers._local_constants
FEW = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
CPUS = st.sets(st.integers(0, 4000), max_size=60)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
VALUES = st.recursive(
    LEAVES, lambda it: st.lists(it) | st.dictionaries(st.text(max_size=9), it), max_leaves=4
)
TOML = st.sampled_from(["[suite]", "format = 1", "[benchmarks.a]", "[[a]]", "a = {", "x = [1,"])
WORDS = st.sampled_from(["N", "S0", "M1", "E:", ":", "@", "0", "99999", "-", ",", "scatter", " "])


@FEW
@given(CPUS)
def test_a_list_and_a_bitmap_of_cpus_come_back_as_they_were_written(cpus: set[int]) -> None:
    assert parse_set(format_list(cpus)) == cpus
    assert parse_bitmap(format_bitmap(mask_of(cpus))) == mask_of(cpus)


@FEW
@given(st.lists(WORDS, max_size=12).map("".join))
def test_an_expression_is_read_or_refused_in_words(text: str) -> None:
    with suppress(InputError):
        assert parse_expression(text)


@FEW
@given(st.sampled_from(["uuid", "mode", "copies", "window_s", "windows", "started_at"]), VALUES)
def test_observations_with_any_value_in_their_head_are_read_or_refused(
    key: str, value: Any
) -> None:
    document = observed({}) | {"run": observed({})["run"] | {key: value}}
    with suppress(InputError):
        assert read_observations(json.dumps(document).encode(), "f").copies


@FEW
@given(st.sampled_from(["benchmark", "iteration", "copy", "cpu", "start_s", "elapsed_s"]), VALUES)
def test_observations_with_any_value_in_a_row_are_read_or_refused(key: str, value: Any) -> None:
    with suppress(InputError):
        assert read_observations(json.dumps(observed({key: value})).encode(), "f").copies


@FEW
@given(st.text(max_size=60) | st.lists(TOML, max_size=9).map("\n".join))
def test_a_suite_of_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InputError):
        parse_suite(text, Path("s.toml"))


@pytest.mark.parametrize("name", readers())
def test_a_reader_survives_broken_texts(name: str) -> None:
    assert feed(name, "short", 5) == (name, 5, [])
