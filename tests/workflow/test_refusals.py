"""A check of a planned run refuses the run, its dry run and a sweep; `--pages` adds to tuning."""

import json
from typing import Any

import pytest

from rater.run.programs.tuning import UNTUNED, CopyTuning
from rater.system.errors import InputError
from rater.workflow.run import refusals
from rater.workflow.run.refusals import CHECKS, PlannedSettings, RunCheck
from rater.workflow.run.resolve import RunPlan
from tests.support.calls import Rater

REASON = "a check that stands in the list refuses it"
VALUES: dict[str, Any] = {"preload": "/lib/a.so", "tunable": "glibc.x=1", "transparent": False}


def refuse(resolved: RunPlan, _: PlannedSettings) -> None:
    assert resolved.plan.copies
    raise InputError(REASON)


@pytest.mark.parametrize("looks_at_settings", [False, True])
def test_a_check_of_the_list_refuses_run_dry_run_and_sweep(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, looks_at_settings: bool
) -> None:
    check = RunCheck(refuse=refuse, looks_at_settings=looks_at_settings)
    monkeypatch.setattr(refusals, "CHECKS", (*CHECKS, check))
    words = ("--copies", "1", "--", "true")
    status, out, _ = rater("--json", "run", "--dry-run", *words)
    assert status == 0
    assert json.loads(out)["refused"] == [REASON]
    status, _, err = rater("run", *words)
    assert (status, REASON in err) == (2, True)
    status, _, err = rater("sweep", "--axis", "copies=1,2", "--rounds", "1", "--", "true")
    assert (status, f"copies=1, copies=2: {REASON}" in err) == (2, True), err


@pytest.mark.parametrize("words", [("--wrap", "/no/such/wrapper"), ("--hugepages", "hugetlb")])
def test_a_dry_run_says_what_the_run_is_refused_for(rater: Rater, words: tuple[str, str]) -> None:
    command = ("--copies", "1", *words, "--", "true")
    _, out, _ = rater("--json", "run", "--dry-run", *command)
    refused = json.loads(out)["refused"]
    status, _, err = rater("run", *command)
    if not refused:
        pytest.skip("this machine has what was asked for")
    assert status == 2
    assert refused[0] in err


def test_every_field_of_tuning_has_a_value_to_try() -> None:
    assert set(VALUES) == set(CopyTuning.__struct_fields__)


@pytest.mark.parametrize("field", VALUES)
def test_pages_leave_every_other_field_of_tuning(field: str) -> None:
    tuning = CopyTuning(**{field: VALUES[field]})
    assert tuning.merged(UNTUNED) == UNTUNED.merged(tuning) == tuning
    pages = CopyTuning(preload="/lib/pages.so")
    if field == "preload":
        with pytest.raises(InputError, match=r"preload /lib/a\.so and /lib/pages\.so"):
            tuning.merged(pages)
    else:
        merged = tuning.merged(pages)
        assert (getattr(merged, field), merged.preload) == (VALUES[field], "/lib/pages.so")
