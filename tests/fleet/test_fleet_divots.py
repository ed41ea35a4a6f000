"""A fleet as its user asks of it: which hosts are slow, and one host's run as any other."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from rater.cli import main
from rater.fleet.store import FleetRequest, new_fleet
from rater.store.store import Store
from tests.support.browser import Browser
from tests.support.calls import Rater
from tests.support.fleets import SETTINGS, MadeHost, collected
from tests.support.pages import needs_browser, opened

EVIL = "</script><script>document.title='taken'</script>"
ASKED = FleetRequest(
    uuid="u-1",
    started_at="2026-11-20T12:00:00Z",
    backend="local",
    folder="/nowhere/rater-u-1",
    scratch="/nowhere",
    directory="/",
    words=("mini",),
    command=None,
    command_line="rater fleet run",
    rater_version="0.1.0",
    parallel=None,
    attempts=2,
    minutes=None,
    pending_limit_s=None,
    settle_s=0.0,
    arguments=(),
    allow_partial=False,
)
STORY = "document.getElementById('story')"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five hosts, of which n2 is 8 % slow with an evil setting, and n5 has another microcode."""
    database = tmp_path_factory.mktemp("made") / "rater.db"
    odd = SETTINGS | {"cpu.governor": "powersave", "thp.enabled": EVIL}
    slow = MadeHost(node="n2", slow={"": 1.08}, settings=odd)
    collected(database, {"n2": slow, "n5": MadeHost(node="n5", microcode="0x77")})
    return database


@pytest.fixture(scope="module")
def page(made: Path) -> Path:
    """The page of this fleet."""
    file = made.with_name("fleet.html")
    assert main(["--db", str(made), "report", "fleet:1", "-o", str(file)]) == 0
    return file


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
    assert "1 host (apart: microcode 0x77)" in told
    assert "4 hosts can show a host slower by " in told


def test_as_json_it_has_every_host_and_the_reason(rater: Rater) -> None:
    status, out, _ = rater("divots", "fleet:last", "--json")
    found = json.loads(out)
    kind, alone = found["kinds"]
    assert (alone["hosts"], alone["cannot_tell"]) == (["n5"], True)
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


def test_the_page_names_the_slow_host_and_has_every_host(page: Path) -> None:
    text = page.read_text()
    told = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert told is not None
    data = json.loads(told[1])
    assert [it["name"] for it in data["hosts"] if it["slow"]] == ["n2"]
    assert [it["name"] for it in data["hosts"] if it["kind"] == 1] == ["n5"]
    assert all(60 < value < 100 for value in data["hosts"][0]["values"])
    assert "Cannot tell: one host alone of this kind" in text
    assert EVIL not in text


@needs_browser
def test_a_click_on_a_row_tells_more_of_the_host(page: Path, browser: Browser) -> None:
    opened(browser, page)
    assert browser.js("document.title").startswith("Fleet 1: 5 hosts")
    assert browser.js("document.querySelectorAll('#rows tr[data-host]').length") == 5
    assert browser.js("document.querySelectorAll('#rows td.found').length") == 2
    browser.click("#rows tr[data-host=n2]")
    told = browser.js(f"{STORY}.textContent")
    assert "in all benchmarks (median)" in told
    assert "rater divots fleet:1/n2" in told
    assert browser.js("location.hash") == "#n2"
    browser.click("#only")
    assert browser.js("document.querySelectorAll('#rows tr[data-host]').length") == 1
    assert browser.said() == []


def test_confirming_shows_its_pairs_and_wants_to_know_how_hosts_are_reached(
    rater: Rater, store: Store
) -> None:
    assert "there is no fleet 1" in rater("divots", "--confirm", "fleet:1")[2]
    hosts = ("n1", "n2", "n3", "n4", "n5")
    assert new_fleet(store, ASKED, hosts) == 1
    status, out, err = rater("divots", "--confirm", "fleet:1", "--dry-run", "--json")
    assert (status, err) == (0, "")
    rounds = json.loads(out)["rounds"]
    assert [[it["suspect"] for it in turn] for turn in rounds] == [["n2"]] * 3
    assert sorted(turn[0]["quiet"] for turn in rounds) == ["n1", "n3", "n4"]
    status, out, _ = rater("divots", "--confirm", "fleet:1", "--dry-run")
    assert "1 slow host, each beside 3 quiet hosts in turn" in out
    # What the plan knows of hosts is said: nobody has submitted a job here.
    out = " ".join(rater("divots", "fleet:1")[1].split())
    assert "Not complete: 5 hosts not submitted (n1, n2, n3, n4 and 1 more): not known why" in out
    assert rater("divots", "--confirm", "fleet:1", "--finding", "2", "--dry-run")[0] == 2
