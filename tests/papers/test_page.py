"""The page that lists what the papers have: 44 elements, each with a test that is there."""

from __future__ import annotations

import re

from tests.support.places import CHECKOUT

PAGE = CHECKOUT / "docs/explanation/papers.md"


def test_each_of_the_44_elements_has_a_command_and_a_test_that_is_there() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| element")
    ]
    assert len(rows) == 44
    assert [row for row in rows if len(row) != 4 or not row[1].startswith("`rater ")] == []
    there = set[str]()
    for path in (CHECKOUT / "tests").rglob("test_*.py"):
        there |= set(re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE))
    assert [row[3] for row in rows if row[3].strip("`") not in there] == []
