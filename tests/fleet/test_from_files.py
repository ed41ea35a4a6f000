"""A fleet made of databases: what counts of each, its hosts' names, and what is never asked."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rater.fleet.merge import merge_database
from rater.record.run import RunStatus
from rater.store.store import open_store
from tests.support.calls import Rater, query_rows
from tests.support.fleets import MadeHost, publish, times_of

NAMES = ("lu", "vm")


def databases_of(folder: Path, hosts: Sequence[MadeHost], day: int = 20) -> list[Path]:
    """A database of each host, with one run of that day."""
    random = np.random.default_rng(day)
    files = []
    for host in hosts:
        file = folder / f"{host.node}-{day}.db"
        times = times_of(host, NAMES, 2, 2, random, noise=0.001, spread=0.001)
        publish(file, host, times, NAMES, started_at=f"2026-11-{day}T12:00:00Z")
        files.append(file)
    return files


def hosts_of(number: int, slow: str = "") -> list[MadeHost]:
    names = [f"n{host}" for host in range(1, number + 1)]
    return [MadeHost(node=name, slow={"": 1.08} if name == slow else {}) for name in names]


def attempts() -> list[tuple[str, int, str]]:
    """Host, attempt and state of what is stored."""
    return query_rows("SELECT node, attempt, state FROM fleet_attempt ORDER BY node, attempt")


def test_databases_made_anywhere_are_a_fleet_with_slow_hosts_gate_report_and_history(
    rater: Rater, tmp_path: Path
) -> None:
    files = databases_of(tmp_path, hosts_of(12, slow="n7"))
    status, out, err = rater("fleet", "collect", "--from", *files)
    assert (status, out.splitlines()[0]) == (0, "Fleet 1: mini, test, 12 nodes: 12 complete")
    assert err.startswith("rater: 12 databases: 12 hosts, 12 runs; ")
    status, out, err = rater("divots", "fleet:1", "--fail-on", "slow-host:5%")
    assert (status, err.startswith("rater: --fail-on slow-host: n7 +")) == (1, True)
    assert ("1 slow host. 12 hosts compared" in out, "--confirm" in out) == (True, False)
    page = tmp_path / "page.html"
    assert rater("report", "fleet:1", "-o", page)[0] == 0
    assert "--confirm" not in page.read_text()
    assert "n7 in mini, test: history" in rater("fleet", "history", "n7")[1]
    assert "on n7" in rater("show", "fleet:1/n7")[1]
    assert "mini, test     12/12" in rater("fleet", "list")[1]
    assert "1 fleet with runs of their own: `rater fleet list`" in rater("list")[1]


def test_a_folder_stands_for_its_databases_and_an_empty_one_is_refused(
    rater: Rater, tmp_path: Path
) -> None:
    folder = tmp_path / "databases"
    folder.mkdir()
    assert "there is no .db file in this folder" in rater("fleet", "collect", "--from", folder)[2]
    databases_of(folder, hosts_of(2))
    assert rater("fleet", "collect", "--from", folder)[0] == 0
    assert [node for node, *_ in attempts()] == ["n1", "n2"]


def test_runs_of_one_host_are_attempts_and_by_file_each_is_a_host(
    rater: Rater, tmp_path: Path
) -> None:
    files = [*databases_of(tmp_path, hosts_of(1), 21), *databases_of(tmp_path, hosts_of(1), 20)]
    _, out, err = rater("fleet", "collect", "--from", *files)
    assert out.split()[-3:] == ["n1", "complete", "2"]  # nothing to be told of the first one
    assert "2 databases: 1 host, 2 runs; of the runs of one host the last" in err
    assert attempts() == [("n1", 1, "complete"), ("n1", 2, "complete")]
    query = "SELECT attempt, started_at FROM fleet_run ORDER BY attempt"
    assert query_rows(query) == [(1, "2026-11-20T12:00:00Z"), (2, "2026-11-21T12:00:00Z")]
    rater("fleet", "collect", "--by-file", "--from", *files)
    assert [node for node, *_ in attempts()] == ["n1", "n1", "n1-20", "n1-21"]
    rater("fleet", "collect", "--from", f"rack7={files[0]}", f"rack8={files[1]}")
    assert [node for node, *_ in attempts()][-2:] == ["rack7", "rack8"]


def test_two_machines_of_one_name_are_two_hosts(rater: Rater, tmp_path: Path) -> None:
    files = [*databases_of(tmp_path, hosts_of(1), 20), *databases_of(tmp_path, hosts_of(1), 21)]
    with closing(sqlite3.connect(files[1])) as connection, connection:
        connection.execute("UPDATE host SET machine_id_hash = 'another'")
    rater("fleet", "collect", "--from", *files)
    assert [node for node, *_ in attempts()] == ["n1@n1-20", "n1@n1-21"]


def test_what_cannot_be_taken_is_named_and_the_others_are_taken(
    rater: Rater, tmp_path: Path
) -> None:
    files = databases_of(tmp_path, hosts_of(2))
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"SQLite format 3\0" + bytes(100))
    status, _, err = rater("fleet", "collect", "--from", garbage, tmp_path / "none.db", *files)
    assert (status, "garbage.db" in err, "none.db: cannot be read" in err) == (2, True, True)
    assert len(attempts()) == 2
    status, _, err = rater("fleet", "collect", "--from", garbage)
    assert (status, "none of these databases can be taken" in err) == (2, True)


def test_a_fleet_grows_by_files_that_come_later_and_the_same_file_adds_nothing(
    rater: Rater, tmp_path: Path, database: Path
) -> None:
    files = databases_of(tmp_path, hosts_of(3))
    rater("fleet", "collect", "--from", *files[:2])
    for _ in range(2):
        assert rater("fleet", "collect", "1", "--from", *files[1:])[0] == 0
    assert [node for node, *_ in attempts()] == ["n1", "n2", "n3"]
    assert len([*Path(f"{database}.archive").iterdir()]) == 3


def test_hosts_of_a_merged_database_are_told_apart(rater: Rater, tmp_path: Path) -> None:
    merged = tmp_path / "all.db"
    with open_store(merged) as store:
        for file in databases_of(tmp_path, hosts_of(4)):
            merge_database(store, file)
    assert rater("fleet", "collect", "--from", merged)[0] == 0
    assert [node for node, *_ in attempts()] == ["n1", "n2", "n3", "n4"]
    assert "on n3" in rater("show", "fleet:1/n3")[1]


def test_a_database_with_a_log_beside_it_is_taken_with_what_is_in_the_log(
    rater: Rater, tmp_path: Path
) -> None:
    (file,) = databases_of(tmp_path, hosts_of(1))
    killed = tmp_path / "killed.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        with connection:
            connection.execute("UPDATE host SET hostname = 'late'")
        for end in ("", "-wal"):
            shutil.copy(f"{file}{end}", f"{killed}{end}")
    assert rater("fleet", "collect", "--from", killed)[0] == 0
    assert [node for node, *_ in attempts()] == ["late"]
    assert "on late" in rater("show", "fleet:1/late")[1]


def test_runs_that_ended_early_or_failed_are_no_complete_nodes(
    rater: Rater, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    (host,) = hosts_of(1)
    times = times_of(host, NAMES, 2, 2, random)
    file = publish(tmp_path / "n1.db", host, times, NAMES, status=RunStatus.INTERRUPTED)
    rater("fleet", "collect", "--from", file)
    assert attempts() == [("n1", 1, "partial")]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE run SET status = 'complete'")
        connection.execute("UPDATE copy SET status = 'failed'")
    rater("fleet", "collect", "1", "--from", file)
    assert attempts() == [("n1", 1, "failed")]
    status, _, err = rater("divots", "fleet:1", "--fail-on", "slow-host:5%")
    assert (status, "--fail-on every copy failed on n1" in err) == (1, True)


def test_runs_of_another_program_are_left_out_and_told(rater: Rater, tmp_path: Path) -> None:
    files = databases_of(tmp_path, hosts_of(3))
    with closing(sqlite3.connect(files[0])) as connection, connection:
        connection.execute("""UPDATE run SET suite = NULL, request = '{"command": ["true"]}'""")
    err = rater("fleet", "collect", "--from", *files)[2]
    assert "the fleet is of mini, test; left out: 1 run of true (--program TEXT" in err
    assert [node for node, *_ in attempts()] == ["n2", "n3"]
    rater("fleet", "collect", "--program", "true", "--from", *files)
    assert "true" in rater("fleet", "list")[1]
    status, _, err = rater("fleet", "collect", "--program", "lu", "--from", *files)
    assert (status, "no run is of lu; the databases have runs of true, mini" in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("fleet", "retry", "1", "--nodes", "n2"), 2, "made of databases (--from)"),
        (("divots", "--confirm", "fleet:1"), 2, "made of databases: rater does not know how"),
        (("fleet", "status", "1"), 0, ""),
        (("fleet", "cancel", "1"), 0, "has no jobs left"),
    ],
)
def test_nothing_is_submitted_for_a_fleet_of_files(
    rater: Rater, tmp_path: Path, words: tuple[str, ...], status: int, said: str
) -> None:
    files = databases_of(tmp_path, hosts_of(5, slow="n3"))
    with closing(sqlite3.connect(files[1])) as connection, connection:
        connection.execute("UPDATE run SET status = 'interrupted'")
    rater("fleet", "collect", "--from", *files)
    found, _, err = rater(*words)
    assert (found, said in err) == (status, True)
