"""`rater counters` and `rater run --counters`, on whatever machine this is."""

from __future__ import annotations

import json
from resource import RLIM_INFINITY, RLIMIT_NOFILE

import pytest

from tests.support.calls import Rater, rows


def test_every_group_is_tried_and_what_does_not_count_is_told_once(rater: Rater) -> None:
    status, out, _ = rater("--json", "counters", "intel-skx:cpi", "software")
    assert status == 0
    document = json.loads(out)
    groups = {it["group"]: it for it in document["groups"]}
    assert list(groups) == ["pipeline", "memory", "translation", "software"]
    assert [it["in_stack"] for it in groups.values()] == [True, True, True, False]
    for it in groups.values():
        assert it["state"] in ("works", "user mode only", "in part", "not counted")
        assert bool(it["why"]) is (it["state"] != "works")
    assert document["energy"] is None
    assert isinstance(json.loads(rater("--json", "counters")[1])["energy"], list)
    status, text, _ = rater("counters", "intel-skx:cpi", "software")
    assert status == 0
    for why in {it["why"] for it in groups.values()} - {""}:
        assert " ".join(text.split()).count(why) == 1


def test_fewer_iterations_than_groups_are_refused(rater: Rater) -> None:
    status, _, error = rater("run", "--counters", "intel-skx:cpi,software", "--", "true")
    assert status == 2
    assert "4 groups (pipeline, memory, translation, software), one an iteration" in error
    assert "need --iterations 4 or more (there are 1)" in error
    status, _, error = rater("run", "--counters", "nothing", "--", "true")
    assert (status, "has no group 'nothing'" in error) == (2, True)


def test_a_run_goes_on_without_what_is_not_counted_here(rater: Rater) -> None:
    # No processor has that event.
    words = ("--iterations", "2", "--counters", "ibm-power9:memory,software", "--copies", "2")
    status, _, error = rater("run", *words, "--", "true")
    assert status == 0
    if rows("SELECT 1 FROM copy_count") == []:
        pytest.skip("this kernel lets nobody count")
    counted = rows("SELECT phase, group_name, count(DISTINCT copy) FROM copy_count GROUP BY 1, 2")
    groups = [(phase, name.removesuffix(":u"), copies) for phase, name, copies in counted]
    assert (1, "software:software", 2) in groups
    assert rows("SELECT phase, copies FROM counted ORDER BY phase")[-1] == (1, 2)
    [text] = rows("SELECT value FROM setting WHERE name = 'rater.counters.software'")
    assert "task_clock_ns" in text[0]
    assert "counters: rater show 1 --counters" in " ".join(rater("show")[1].split())
    assert " minor_faults" in rater("show", "--counters")[1]
    if len(groups) == 1:
        assert error.count("counters: ibm-power9:memory not counted") == 1


def test_a_plan_says_what_will_be_counted(rater: Rater) -> None:
    words = ("--iterations", "2", "--counters", "intel-skx:numa,software", "--copies", "2")
    out = rater("run", "--dry-run", *words, "--", "true")[1]
    assert "counted  intel-skx:numa, software:software: one an iteration, in turn" in out
    assert json.loads(rater("plan", "--json", *words, "--", "true")[1])["counters"] == [
        "intel-skx:numa",
        "software:software",
    ]
    there = rater("plan", *words, "--topology", "nodes=2x2", "--", "true")[1]
    assert "counted" not in there


def test_counters_are_files_that_are_counted_beforehand(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {RLIMIT_NOFILE: (1024, 1024)}
    monkeypatch.setattr("resource.getrlimit", lambda it: limits.get(it, (RLIM_INFINITY,) * 2))
    words = ("--copies", "300", "--share", "--", "true")
    status, _, error = rater("run", "--counters", "software", *words)
    assert (status, "300 copies with 5 counters each need " in error) == (2, True)
    assert "hard limit here is 1024" in error
    assert "or count smaller groups" in error
