"""Whole screens of made runs: `tests/golden/*.txt`, which `make golden` writes anew."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from rich.cells import cell_len

from tests.support.golden import Screen, Stage, every_screen
from tests.support.pages import VEGA


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


@pytest.mark.parametrize("screen", every_screen(), ids=lambda screen: screen.name)
def test_a_screen_is_as_it_was_reviewed(screen: Screen, stage: Stage) -> None:
    shown = stage.shown(screen)
    if not VEGA and "needs vl-convert-python" in shown:
        pytest.skip("vl-convert-python ([report]) is missing")
    assert shown == screen.text
    if screen.columns is not None:
        lines = (line.removeprefix("! ") for line in shown.splitlines())
        too_long = [line for line in lines if cell_len(line) > screen.columns]
        # Commands (`-> `, `echo`), paths and names of half a line and more are never broken.
        whole = re.compile(rf"-> |^echo |\S{{{screen.columns // 2},}}")
        assert [line for line in too_long if not whole.search(line)] == []
