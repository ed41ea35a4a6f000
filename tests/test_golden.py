"""Whole screens of made runs: `tests/golden/*.txt`, which `make golden` writes anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.golden import Screen, Stage, every_screen


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.mark.parametrize("screen", every_screen(), ids=lambda screen: screen.name)
def test_a_screen_is_as_it_was_reviewed(screen: Screen, stage: Stage) -> None:
    assert stage.shown(screen) == screen.text
