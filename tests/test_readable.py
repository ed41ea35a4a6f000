"""Names and sentences: a stranger reads a line once. `tests/support/readable.py` has the rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.readable import KINDS, forget_sources, mean_length_of_names, places

# Why a place stays, by the place without its line. Each kind has few, as in code bases that
# strangers find easy to read (trio, coverage.py, pyperf: 0 to 8 of a kind).
_BULK = "a row that is read by the hundred thousand: by position in half the time"
ALLOWED: dict[str, dict[str, str]] = {
    "parameter": {"rater/api.py: load(which)": "the name that Python programs use"},
    "struct": {
        "rater/plan/sweep.py: SlotRun": _BULK,
        "rater/record/events.py: CopyEnded": _BULK,
        "rater/record/events.py: EventCount": _BULK,
        "rater/record/events.py: PageRegion": _BULK,
        "rater/record/events.py: WorkloadTime": _BULK,
    },
}
# Of names that are bound, by the same function: trio 6.8, pytest 6.6, psutil 5.6; rater had 5.2.
LEAST_MEAN_LENGTH = 6.0
OF_TESTS = ("parameter", "long", "nameless", "half")  # kinds that tests have none of, either


@pytest.fixture(scope="module", autouse=True)
def no_source_is_kept() -> Iterator[None]:
    yield
    forget_sources()


def unexpected(kind: str, folder: str, allowed: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the places that are not allowed, and the allowed ones that are gone."""
    found = {place.name: str(place) for place in places(kind, folder)}
    return (
        sorted(found[name] for name in found.keys() - allowed.keys()),
        sorted(allowed.keys() - found.keys()),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_has_to_be_read_twice(kind: str) -> None:
    new, gone = unexpected(kind, "rater", ALLOWED.get(kind, {}))
    assert new == [], KINDS[kind]
    assert gone == [], "no longer there: take these out"


@pytest.mark.parametrize("kind", OF_TESTS)
def test_no_line_of_a_test_has_to_be_read_twice(kind: str) -> None:
    assert unexpected(kind, "tests", {}) == ([], []), KINDS[kind]


def test_names_are_as_long_as_those_of_other_projects() -> None:
    assert mean_length_of_names("rater") >= LEAST_MEAN_LENGTH
