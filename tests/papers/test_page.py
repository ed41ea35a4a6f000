"""The page that lists what the papers have: 44 elements, each with a test that is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.support.calls import Rater
from tests.support.papers import INTEGER, suite_of
from tests.support.places import CHECKOUT

PAGE = CHECKOUT / "docs/explanation/papers.md"


def rows_of_page() -> list[list[str]]:
    """Return the cells of each element: its name, command, what comes out, picture and test."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| element")
    ]


def test_each_of_the_44_elements_has_a_command_and_a_test_that_is_there() -> None:
    rows = rows_of_page()
    assert len(rows) == 44
    assert [row for row in rows if len(row) != 5 or not row[1].startswith("`rater ")] == []
    there = set[str]()
    for path in (CHECKOUT / "tests/papers").rglob("test_*.py"):
        there |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    assert [row[4] for row in rows if row[4].strip("`") not in there] == []
    pictures = {name for row in rows for name in re.findall(r"\((.*)\)", row[3])}
    assert len(pictures) == 5
    assert [name for name in pictures if not (PAGE.parent / name).is_file()] == []


def test_commands_that_plan_something_are_understood_as_they_are_printed(
    rater: Rater, tmp_path: Path
) -> None:
    suite = str(suite_of(tmp_path, INTEGER[:3]))
    planned = [
        shlex.split(row[1].strip("`"))[1:]
        for row in rows_of_page()
        if row[1].split()[1] in ("run", "sweep", "plan") and "--counters" not in row[1]
    ]
    assert len(planned) == 11
    for words in planned:
        dry = [] if words[0] == "plan" or "--dry-run" in words else ["--dry-run"]
        said = rater(*(suite if word == "SUITE" else word for word in words), *dry)
        assert (said[0], said[2]) == (0, ""), words
