"""Findings change together with `VERSION` of the search, and never alone."""

from __future__ import annotations

import json

from rater.analysis.divots.model.finding import VERSION, Kind
from tests.support.findings_digest import STORED, found_now

OF_SEVERAL_RUNS = {Kind.RECURRING, Kind.ONCE}
RENEW = "renew tests/analysis/divots/found.json by `make findings`"


def test_what_is_found_changes_with_its_version() -> None:
    stored, now = json.loads(STORED.read_text()), found_now()
    changed = [name for name, lines in now["runs"].items() if lines != stored["runs"].get(name)]
    if changed:
        raised = stored["version"] < VERSION
        raise AssertionError(
            f"what is found changed in: {', '.join(changed)}: "
            f"{'' if raised else 'raise VERSION in divots/model/finding.py, then '}{RENEW}"
        )
    assert stored == now, RENEW


def test_the_made_runs_have_findings_of_all_kinds() -> None:
    lines = [line for lines in json.loads(STORED.read_text())["runs"].values() for line in lines]
    kinds = {line.partition(",")[0] for line in lines}
    assert {kind for kind in Kind if kind not in kinds} == OF_SEVERAL_RUNS
