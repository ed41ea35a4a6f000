"""Databases that nodes published: what is taken in, and what a fleet's user asks of them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from rater.commands.cli import main
from rater.fleet.archive import (
    IndexedRun,
    admit_database,
    archived_file,
    indexed_runs,
    opened_run,
)
from rater.fleet.foreign import SourceRefusedError
from rater.fleet.shared_folder import SharedFolder
from rater.fleet.store import new_fleet
from rater.record.run import RunStatus
from rater.store.connection import StoreError
from rater.store.store import Store, open_store
from rater.system.errors import RunError
from tests.support.browser import Browser
from tests.support.calls import Rater
from tests.support.fleets import ASKED, SETTINGS, MadeHost, collected, publish
from tests.support.pages import needs_browser, opened
from tests.support.report_runs import unpacked

TIMES = np.array([[[2.0, 4.0], [3.0, 5.0]]])  # one benchmark, two iterations, two copies


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without runs, and one that a node published."""
    folder = tmp_path_factory.mktemp("made")
    open_store(folder / "all.db").close()
    publish(folder / "n1.db", MadeHost(node="n1"), TIMES, ["lu"])
    return folder


@pytest.fixture
def into(databases: Path, tmp_path: Path) -> Iterator[Store]:
    with open_store(Path(shutil.copy(databases / "all.db", tmp_path))) as store:
        yield store


@pytest.fixture
def published(databases: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(databases / "n1.db", tmp_path))


def archived(store: Store) -> list[Path]:
    with store.reading() as connection:
        folder = archived_file(connection, "x").parent
    return sorted(path for path in folder.rglob("*") if path.is_file())


def query(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.reading() as connection:
        return connection.execute(sql).fetchall()


def test_a_published_database_is_kept_whole_and_its_times_are_indexed(
    into: Store, published: Path
) -> None:
    before = published.read_bytes()
    assert admit_database(into, published, 3, "n1", 1)
    stored = query(into, "SELECT status, copy_runs, failed, sha256 FROM fleet_run")
    assert stored == [("complete", 4, 0, hashlib.sha256(before).hexdigest())]
    assert published.read_bytes() == before
    assert query(into, "SELECT * FROM result") == [
        (3, "lu", "n1", 1, 1, "[4.0, 5.0]", "[3.0, 4.0]")
    ]
    [row] = query(
        into,
        "SELECT host, hostname, cpu_model, microcode, kernel, cpus, settings "
        "FROM fleet_run JOIN fleet_setting ON id = setting",
    )
    assert row == (
        *("n1", "n1", "AMD EPYC 7763", "0xa0011d5", "6.1.0-42-amd64", 2),
        '{"cpu.governor": "performance", "kernel.release": "6.1.0-42-amd64", '
        '"thp.enabled": "madvise"}',
    )
    with into.reading() as connection:
        (run,) = indexed_runs(connection, 3)
        with opened_run(connection, run) as store:
            assert [head.status for head in store.runs()] == [RunStatus.COMPLETE]
    assert [it.read_bytes() for it in archived(into)] == [before]  # the store was a copy


def test_admitting_again_changes_nothing(into: Store, published: Path) -> None:
    assert admit_database(into, published, 3, "n1", 1)
    rows = [f"SELECT * FROM {it}" for it in ("fleet_run", "result", "fleet_setting")]
    files, content = archived(into), [query(into, row) for row in rows]
    assert not admit_database(into, published, 3, "n1", 1)
    assert archived(into) == files
    assert [query(into, row) for row in rows] == content


def test_what_an_attempt_publishes_later_replaces_what_it_had(
    into: Store, published: Path, tmp_path: Path
) -> None:
    part = publish(
        tmp_path / "part.db",
        *(MadeHost(node="n1"), TIMES[:, :1], ["lu"]),
        status=RunStatus.INTERRUPTED,
    )
    assert admit_database(into, part, 3, "n1", 1)
    assert query(into, "SELECT status FROM fleet_run") == [("interrupted",)]
    assert admit_database(into, published, 3, "n1", 1)
    assert [it.read_bytes() for it in archived(into)] == [published.read_bytes()]
    assert query(into, "SELECT bracket_s FROM result") == [("[4.0, 5.0]",)]


def test_attempts_and_fleets_stand_beside_each_other_in_one_file(
    into: Store, published: Path
) -> None:
    for fleet, attempt in ((3, 1), (3, 2), (4, 1)):
        assert admit_database(into, published, fleet, "n1", attempt)
    assert [it.read_bytes() for it in archived(into)] == [published.read_bytes()]


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 8192)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 4711")


def of_another(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 4711")


def without_runs(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("DELETE FROM run")
        connection.commit()


def with_orphans(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM run")
        connection.commit()


def with_a_view_for_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute("ALTER TABLE tag RENAME TO tags")
        connection.execute("ALTER TABLE setting RENAME TO settings")
        connection.execute("CREATE VIEW setting AS SELECT * FROM settings")
        connection.commit()


def with_a_name_that_is_no_text(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '') WHERE name = 'host'"
        )
        connection.commit()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE host SET hostname = x'00ff'")
        connection.commit()


def a_text(path: Path) -> None:
    path.write_text("no database\n" * 100)


def a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (cut, "damaged"),
        (overwritten, "damaged"),
        (newer, "newer rater"),
        (of_another, "another program"),
        (without_runs, "no run"),
        (with_orphans, "belongs to no"),
        (with_a_view_for_a_table, "without setting"),
        (with_a_name_that_is_no_text, "its rows are not as rater makes them"),
        (a_text, "SQLite database"),
        (a_pipe, "not a regular file"),
        (gone, "No such file"),
    ],
)
def test_what_is_no_database_to_be_trusted_is_set_aside_with_the_reason(
    into: Store, published: Path, harm: Callable[[Path], None], reason: str
) -> None:
    harm(published)
    with pytest.raises(SourceRefusedError, match=reason):
        admit_database(into, published, 3, "n1", 1)
    assert archived(into) == []
    assert query(into, "SELECT count(*) FROM fleet_run") == [(0,)]


def test_a_byte_that_no_check_of_sqlite_sees_is_seen_by_the_nodes_sha256(
    into: Store, published: Path
) -> None:
    with pytest.raises(SourceRefusedError, match="SHA-256"):
        admit_database(into, published, 3, "n1", 1, sha256="0" * 64)
    assert archived(into) == []


def test_a_failed_transaction_leaves_no_row_and_no_half_file(into: Store, published: Path) -> None:
    with into.writing("stopping it") as connection:
        connection.execute(
            "CREATE TEMP TRIGGER stop BEFORE INSERT ON result BEGIN SELECT raise(FAIL, 'x'); END"
        )
        connection.connection.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, True)
    with pytest.raises(StoreError, match="rows contradict each other"):
        admit_database(into, published, 3, "n1", 1)
    assert query(into, "SELECT count(*) FROM fleet_run") == [(0,)]
    assert [it for it in archived(into) if it.suffix != ".db"] == []
    with into.writing("letting it") as connection:
        connection.execute("DROP TRIGGER stop")
    assert admit_database(into, published, 3, "n1", 1)


@contextmanager
def opening(store: Store, run: IndexedRun) -> Iterator[Store]:
    with store.reading() as connection, opened_run(connection, run) as opened:
        yield opened


def test_an_archived_database_that_is_damaged_or_gone_says_the_way_out(
    into: Store, published: Path
) -> None:
    admit_database(into, published, 3, "n1", 1)
    with into.reading() as connection:
        (run,) = indexed_runs(connection, 3)
    (file,) = archived(into)
    for harm, reason in (
        (
            lambda: file.write_bytes(file.read_bytes()[:-40]),
            r"its SHA-256 differs\); what its node",
        ),
        (file.unlink, "cannot be read: .* can be copied there again"),
    ):
        harm()
        with pytest.raises(RunError, match=reason), opening(into, run):
            pass


EVIL = "</script><script>document.title='taken'</script>"
STORY = "document.getElementById('story')"


@pytest.fixture(scope="module")
def five_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five hosts, of which n2 is 8 % slow with an evil setting, and n5 has another microcode."""
    database = tmp_path_factory.mktemp("made") / "rater.db"
    odd = SETTINGS | {"cpu.governor": "powersave", "thp.enabled": EVIL}
    slow = MadeHost(node="n2", slow={"": 1.08}, settings=odd)
    collected(database, {"n2": slow, "n5": MadeHost(node="n5", microcode="0x77")})
    return database


@pytest.fixture(scope="module")
def page(five_hosts: Path) -> Path:
    """The page of this fleet."""
    file = five_hosts.with_name("fleet.html")
    assert main(["--db", str(five_hosts), "report", "fleet:1", "-o", str(file)]) == 0
    return file


@pytest.fixture
def fleet(five_hosts: Path, database: Path) -> None:
    shutil.copy(five_hosts, database)
    shutil.copytree(f"{five_hosts}.archive", f"{database}.archive")


@pytest.mark.usefixtures("fleet")
def test_the_slow_host_is_named_with_what_is_odd_and_what_is_slow_inside(rater: Rater) -> None:
    status, out, err = rater("divots", "fleet:1")
    assert (status, err) == (0, "")
    text = " ".join(out.split())
    assert "Fleet 1: 1 slow host. 5 hosts compared." in text
    assert "slow host mean slower than the others of its kind % n2 +" in text
    assert "in all benchmarks (median) inside: all copies are equally slow" in text
    assert "differs: cpu.governor is powersave (most others: performance)" in text
    assert "1 host (n5) (apart: microcode 0x77)" in text
    assert "Smallest detectable slowdown (4 hosts): " in text


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("limit", "status", "said"),
    [
        ("slow-host", 1, "--fail-on slow-host: n2 "),
        ("slow-host:5%", 1, "--fail-on slow-host: n2 "),
        ("any:5%", 1, "--fail-on slow-host: n2 "),
        ("slow-host:50%", 0, ""),
        ("slow-lgroup:2%", 2, "no kind of divot; expected any, slow-host"),
        ("slow-hots", 2, "no kind of divot; expected any, slow-host"),
    ],
)
def test_a_slow_host_fails_a_gate(rater: Rater, limit: str, status: int, said: str) -> None:
    found, _, err = rater("divots", "fleet:1", "--fail-on", limit)
    assert (found, said in err) == (status, True)


@pytest.mark.usefixtures("fleet")
def test_a_gate_is_not_passed_by_hosts_that_cannot_be_judged(rater: Rater, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE fleet_run SET others_cost = 0.4")
    status, out, err = rater("divots", "fleet:1", "--fail-on", "slow-host:5%")
    assert out.startswith("Fleet 1: Cannot tell: 4 of 4 hosts disturbed. 5 hosts compared.")
    assert (status, "cannot be judged" in err, "4 of 4 hosts disturbed" in err) == (3, True, True)
    page = database.with_name("page.html")
    assert rater("report", "fleet:1", "-o", str(page))[0] == 0
    assert "<h2>Cannot tell: 4 of 4 hosts disturbed</h2>" in page.read_text()
    assert "No slow hosts" not in page.read_text()


@pytest.mark.usefixtures("fleet")
def test_the_page_tells_what_the_terminal_tells_of_disturbed_hosts_and_settings(
    rater: Rater, database: Path
) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE fleet_run SET others_cost = 0.4 WHERE host <> 'n5'")
    page = database.with_name("page.html")
    terminal = rater("divots", "fleet:1")[1]
    assert rater("report", "fleet:1", "-o", str(page))[0] == 0
    text = page.read_text()
    for said in ("Disturbed by other processes: n1, n2, n3", "cpu.governor is powersave"):
        assert (said in terminal, said in text) == (True, True)
    assert text.count("Cannot tell: 4 of 4 hosts disturbed") == 1


@pytest.mark.usefixtures("fleet")
def test_colours_reach_to_the_largest_cell_where_nothing_can_be_told(
    rater: Rater, database: Path
) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE fleet_run SET others_cost = 0.4")
    page = database.with_name("page.html")
    rater("report", "fleet:1", "-o", str(page))
    told = re.search(r'<script type="text/plain" id="data">(.*?)</script>', page.read_text())
    assert told is not None
    data = unpacked(told[1])
    values = [abs(it) for host in data["hosts"] for it in host["values"] if it is not None]
    assert abs(data["span"] - max(values)) <= 1
    assert max(values) > 60


@pytest.mark.usefixtures("fleet")
def test_slow_hosts_alone_are_printed_for_other_programs(rater: Rater) -> None:
    assert rater("divots", "fleet:1", "--format", "nodelist") == (0, "n2\n", "")
    assert rater("divots", "last", "--format", "nodelist")[0] == 2


@pytest.mark.usefixtures("fleet")
def test_slow_nodes_of_slurm_have_the_command_that_drains_them(rater: Rater, store: Store) -> None:
    assert new_fleet(store, ASKED, ("n1", "n2", "n3", "n4", "n5")) == 1
    out = rater("divots", "fleet:1")[1]
    assert re.search(
        r"next: `scontrol update nodename=n2 state=drain reason='rater fleet 1: \+[78]\.\d %'`", out
    )


@pytest.mark.usefixtures("fleet")
def test_as_json_it_has_every_host_and_the_reason(rater: Rater) -> None:
    status, out, _ = rater("divots", "fleet:last", "--json")
    found = json.loads(out)
    kind, alone = found["kinds"]
    assert (alone["hosts"], alone["cannot_tell"]) == (["n5"], True)
    assert (status, found["fleet"], kind["cannot_tell"]) == (0, 1, False)
    assert [it["host"] for it in kind["slow"]] == ["n2"]
    assert kind["slow"][0]["slowdown"] == pytest.approx(1.08, abs=0.01)
    assert kind["hosts"][0] == kind["slowdowns"][0]["host"] == "n2"


@pytest.mark.usefixtures("fleet")
def test_a_hosts_run_is_shown_and_compared_like_any_other(rater: Rater) -> None:
    status, out, err = rater("show", "fleet:1/n2")
    assert status == 0
    assert "on n2" in out
    assert "run 1 below is fleet:1/n2" in err
    for words in (("show", "fleet:1/n2", "-v"), ("divots", "fleet:1/n2", "--json")):
        told = rater(*words)[1]  # what would run again is of that node, and not offered here
        assert "rerun" not in told and "--confirm" not in told
        assert re.search(r"rater [a-z ]+ 1\b", told) is None
    status, out, _ = rater("compare", "fleet:1/n1", "fleet:1/n2")
    assert status == 0
    assert "fleet:1/n1 (baseline): run 1" in out


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "fleet:1"), "5 hosts, and one run is wanted: name one, such as fleet:1/n1"),
        (("show", "fleet:1/n9"), "fleet 1 has no node n9; it has n1, n2, n3, n4 and 1 more"),
        (("show", "fleet:1/n2/7"), "no run of this attempt is collected"),
        (("divots", "fleet:7"), "fleet:7: there is no such fleet; the only fleet is 1"),
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


def test_what_is_published_and_not_collected_is_told_with_the_way_and_confirming_is_no_last_fleet(
    rater: Rater, store: Store, tmp_path: Path
) -> None:
    asked = replace(ASKED, folder=str(tmp_path / "f"), backend="local")
    assert new_fleet(store, asked, ("n1", "n2")) == 1
    assert "fleet:1: no node has published a run" in rater("divots", "fleet:1")[2]
    folder = SharedFolder(tmp_path / "f")
    folder.inbox.mkdir(parents=True)
    (folder.inbox / "n1.1.0123456789ab.db").write_bytes(b"")
    for words in (("divots", "fleet:1"), ("report", "fleet:last"), ("fleet", "history", "n1")):
        status, _, err = rater(*words)
        said = (
            "fleet:1: runs of 1 node are published and not collected yet; `rater fleet collect 1`"
        )
        assert (status, said in err) == (2, True), words
    assert new_fleet(store, replace(asked, uuid="c", confirms=1), ("n1", "n2")) == 2
    assert "fleet:1: runs of 1 node" in rater("divots", "fleet:last")[2]
    listed = json.loads(rater("fleet", "list", "--json")[1])
    assert [(it["fleet"], it["confirms"]) for it in listed] == [(1, None), (2, 1)]
    assert "mini (confirms fleet 1)" in rater("fleet", "list")[1]
    assert json.loads(rater("fleet", "status", "--json")[1])["fleet"] == 1
    assert json.loads(rater("fleet", "status", "2", "--json")[1])["confirms"] == 1


@pytest.mark.usefixtures("fleet")
def test_a_history_of_one_fleet_shows_where_the_host_is_and_no_steps(rater: Rater) -> None:
    status, out, _ = rater("fleet", "history", "n2")
    assert status == 0
    assert "n2 in mini, test: history of a host against the others of its kind, 1 fleet" in out
    assert "Too short for steps: 1 fleet; at least 6 are needed." in out
    status, _, err = rater("fleet", "history", "n77")
    assert status == 2
    assert "neither a host nor a benchmark of a fleet; benchmarks: lu, vm; hosts: n1, n2" in err


@pytest.mark.usefixtures("fleet")
def test_the_page_names_the_slow_host_and_has_every_host(page: Path) -> None:
    text = page.read_text()
    told = re.search(r'<script type="text/plain" id="data">(.*?)</script>', text)
    assert told is not None
    data = unpacked(told[1])
    assert [host["name"] for host in data["hosts"] if host["slow"]] == ["n2"]
    assert [host["name"] for host in data["hosts"] if host["kind"] == 1] == ["n5"]
    assert all(60 < value < 100 for value in data["hosts"][0]["values"])
    assert "Cannot tell: one host alone of this kind" in text
    assert EVIL not in text


@pytest.mark.usefixtures("fleet")
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


@pytest.mark.usefixtures("fleet")
def test_confirming_shows_its_pairs_and_wants_to_know_how_hosts_are_reached(
    rater: Rater, store: Store
) -> None:
    assert "there is no fleet 1" in rater("divots", "--confirm", "fleet:1")[2]
    hosts = ("n1", "n2", "n3", "n4", "n5")
    assert new_fleet(store, replace(ASKED, backend="local"), hosts) == 1
    status, out, err = rater("divots", "--confirm", "fleet:1", "--dry-run", "--json")
    assert (status, err) == (0, "")
    rounds = json.loads(out)["rounds"]
    assert [[it["suspect"] for it in turn] for turn in rounds] == [["n2"]] * 3
    assert sorted(turn[0]["quiet"] for turn in rounds) == ["n1", "n3", "n4"]
    status, out, _ = rater("divots", "--confirm", "fleet:1", "--dry-run")
    assert "1 slow host, each beside 3 quiet hosts in turn" in out
    # What the plan knows of hosts is said: nobody has submitted a job here.
    out = " ".join(rater("divots", "fleet:1")[1].split())
    assert "n1, n2, n3, n4 and 1 more not submitted unknown" in out
    assert rater("divots", "--confirm", "fleet:1", "--finding", "2", "--dry-run")[0] == 2
