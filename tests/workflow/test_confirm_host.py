"""`divots --confirm` runs on the machine that the run was made on, whatever is cloned."""

from dataclasses import replace
from typing import Any

import pytest

from rater.workflow.run import confirm
from tests.support.example_runs import copy_row, stored
from tests.support.machines import machine
from tests.support.stored_runs import HOST


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"hostname": "n1"}, "was made on node7, and this is n1: of the same model, but machine"),
        ({"machine_id_hash": "other"}, "was made on another machine"),
        ({"fingerprint": "other"}, "was made on another machine"),
    ],
)
def test_a_run_of_another_host_is_refused_though_its_machine_id_is_the_same(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], said: str | None
) -> None:
    run = stored([copy_row(0, 1.0)])
    run = replace(run, host=HOST, head=replace(run.head, hostname=HOST.hostname))
    monkeypatch.setattr(confirm, "host_facts", lambda _: replace(HOST, **changes))
    refused = confirm._refused(run, machine(1))
    assert (refused is None) if said is None else (said in (refused or ""))
