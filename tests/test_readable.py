"""Names and sentences: a stranger reads a line once. `tests/support/readable.py` has the rules."""

from __future__ import annotations

import pytest

from tests.support.readable import KINDS, mean_length_of_names, places

# Why a place stays, by the place without its line; each kind has few, as in code bases that
# strangers find easy to read (trio, coverage.py, pyperf: 0 to 8 of a kind).
ALLOWED: dict[str, dict[str, str]] = {}
LEAST_MEAN_LENGTH = 7.0


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_has_to_be_read_twice(kind: str) -> None:
    allowed = ALLOWED.get(kind, {})
    found = {place.name: str(place) for place in places(kind, "rater")}
    assert sorted(found[name] for name in found.keys() - allowed.keys()) == [], KINDS[kind]
    assert sorted(allowed.keys() - found.keys()) == [], "no longer there: take these out"


def test_names_are_as_long_as_those_of_other_projects() -> None:
    assert mean_length_of_names("rater") >= LEAST_MEAN_LENGTH
