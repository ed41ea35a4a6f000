"""A fleet as its user asks of it: which hosts are slow, and one host's run as any other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.calls import Rater
from tests.support.fleets import SETTINGS, MadeHost, collected


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five hosts, of which n2 is 8 % slow."""
    database = tmp_path_factory.mktemp("made") / "rater.db"
    odd = SETTINGS | {"cpu.governor": "powersave"}
    collected(database, {"n2": MadeHost(node="n2", slow={"": 1.08}, settings=odd)})
    return database


@pytest.fixture(autouse=True)
def fleet(made: Path, database: Path) -> None:
    shutil.copy(made, database)
    shutil.copytree(f"{made}.archive", f"{database}.archive")


def test_the_slow_host_is_named_with_what_is_odd_and_what_is_slow_inside(rater: Rater) -> None:
    status, out, err = rater("divots", "fleet:1")
    assert (status, err) == (0, "")
    told = " ".join(out.split())
    assert "Fleet 1: 5 hosts compared" in told
    assert "1 slow host, the slowest first: 1. n2: +" in told
    assert "in all benchmarks (median) inside: no copy and no part stands out" in told
    assert "set otherwise: cpu.governor is powersave (most others: performance)" in told
    assert "5 hosts can show a host slower by 1." in told


def test_as_json_it_has_every_host_and_the_reason(rater: Rater) -> None:
    status, out, _ = rater("divots", "fleet:last", "--json")
    found = json.loads(out)
    (kind,) = found["kinds"]
    assert (status, found["fleet"], kind["cannot_tell"]) == (0, 1, False)
    assert [it["host"] for it in kind["slow"]] == ["n2"]
    assert kind["slow"][0]["slowdown"] == pytest.approx(1.08, abs=0.01)
    assert kind["hosts"][0] == kind["slowdowns"][0]["host"] == "n2"


def test_a_hosts_run_is_shown_and_compared_like_any_other(rater: Rater) -> None:
    status, out, err = rater("show", "fleet:1/n2")
    assert status == 0
    assert "on n2" in out
    assert "fleet:1/n2 is called run 1 here" in err
    status, out, _ = rater("compare", "fleet:1/n1", "fleet:1/n2")
    assert status == 0
    assert "A  fleet:1/n1 (baseline)" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "fleet:1"), "5 hosts, and one run is wanted: name one, such as fleet:1/n1"),
        (("show", "fleet:1/n9"), "this host has published no run"),
        (("show", "fleet:1/n2/7"), "no run in this attempt"),
        (("divots", "fleet:7"), "no host of it has published a run; there are fleets 1"),
        (("divots", "fleet:x"), "expected fleet:N or fleet:last"),
        (("compare", "fleet:1/n1", "7"), "are compared with each other"),
        (("rm", "fleet:1/n1"), "can be read"),
    ],
)
def test_words_that_mean_no_run_are_answered_with_what_does(
    rater: Rater, words: tuple[str, ...], said: str
) -> None:
    status, _, err = rater(*words)
    assert status == 2
    assert said in err


def test_a_history_of_one_fleet_shows_where_the_host_is_and_no_steps(rater: Rater) -> None:
    status, out, _ = rater("history", "n2")
    assert status == 0
    assert "n2: history of a host against the others of its kind, 1 fleet" in out
    assert "Cannot tell of steps: 1 fleet, expected 6 or more." in out
    status, _, err = rater("history", "n77")
    assert status == 2
    assert "neither a host nor a benchmark of a fleet; benchmarks: lu, vm; hosts: n1, n2" in err
