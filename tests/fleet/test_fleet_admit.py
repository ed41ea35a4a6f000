"""Databases that nodes published: what is taken into the archive and the index, and what is not."""

from __future__ import annotations

import lzma
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from rater.errors import RunError
from rater.fleet.archive import AdmitOutcome, admit_database, archived_file
from rater.fleet.index import indexed_runs, opened_run
from rater.record.run import RunStatus
from rater.store.connection import connect
from tests.support.fleets import MadeHost, publish

TIMES = np.array([[[2.0, 4.0], [3.0, 5.0]]])  # one benchmark, two iterations, two copies


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without runs, and one that a node published."""
    folder = tmp_path_factory.mktemp("made")
    connect(folder / "all.db").close()
    publish(folder / "n1.db", MadeHost(node="n1"), TIMES, ["lu"])
    return folder


@pytest.fixture
def into(made: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(Path(shutil.copy(made / "all.db", tmp_path)))) as connection:
        yield connection


@pytest.fixture
def published(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(made / "n1.db", tmp_path))


def archived(connection: sqlite3.Connection) -> list[Path]:
    return sorted(it for it in archived_file(connection, "x").parent.rglob("*") if it.is_file())


def test_a_published_database_is_kept_whole_and_its_times_are_indexed(
    into: sqlite3.Connection, published: Path
) -> None:
    before = published.read_bytes()
    found = admit_database(into, published, 3, "n1", 1)
    assert (found.outcome, found.status, found.copy_runs, found.failed) == (
        *(AdmitOutcome.ADDED, RunStatus.COMPLETE),
        *(4, 0),
    )
    assert published.read_bytes() == before
    assert into.execute("SELECT * FROM result").fetchall() == [
        (3, "lu", "n1", 1, 1, "[4.0, 5.0]", "[3.0, 4.0]")
    ]
    row = into.execute(
        "SELECT host, hostname, cpu_model, microcode, kernel, cpus, settings "
        "FROM fleet_run JOIN fleet_setting ON id = setting"
    ).fetchone()
    assert row == (
        *("n1", "n1", "AMD EPYC 7763", "0xa0011d5", "6.1.0-42-amd64", 2),
        '{"cpu.governor": "performance", "kernel.release": "6.1.0-42-amd64", '
        '"thp.enabled": "madvise"}',
    )
    assert found.sha256 is not None
    (run,) = indexed_runs(into, 3)
    with opened_run(into, run) as store:
        assert [head.status for head in store.runs()] == [RunStatus.COMPLETE]
    assert [it.read_bytes() for it in archived(into)] == [before]  # the store was a copy


def test_admitting_again_changes_nothing(into: sqlite3.Connection, published: Path) -> None:
    first = admit_database(into, published, 3, "n1", 1)
    files, content = archived(into), list(into.iterdump())
    again = admit_database(into, published, 3, "n1", 1)
    assert (again.outcome, again.sha256, again.copy_runs) == (AdmitOutcome.KNOWN, first.sha256, 4)
    assert archived(into) == files
    assert list(into.iterdump()) == content


def test_more_of_an_attempt_replaces_less_and_never_the_other_way(
    into: sqlite3.Connection, published: Path, tmp_path: Path
) -> None:
    part = publish(
        tmp_path / "part.db",
        *(MadeHost(node="n1"), TIMES[:, :1], ["lu"]),
        status=RunStatus.INTERRUPTED,
    )
    assert admit_database(into, part, 3, "n1", 1).status is RunStatus.INTERRUPTED
    whole = admit_database(into, published, 3, "n1", 1)
    assert whole.outcome is AdmitOutcome.REPLACED
    late = admit_database(into, part, 3, "n1", 1)
    assert (late.outcome, late.sha256) == (AdmitOutcome.KNOWN, whole.sha256)
    assert [it.name for it in archived(into)] == [f"{whole.sha256}.db"]
    assert into.execute("SELECT bracket_s FROM result").fetchall() == [("[4.0, 5.0]",)]


def test_attempts_and_fleets_stand_beside_each_other_in_one_file(
    into: sqlite3.Connection, published: Path
) -> None:
    for fleet, attempt in ((3, 1), (3, 2), (4, 1)):
        assert admit_database(into, published, fleet, "n1", attempt).outcome is AdmitOutcome.ADDED
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
        (cut, "cut or grown"),
        (overwritten, "damaged"),
        (newer, "newer rater"),
        (of_another, "another program"),
        (without_runs, "no run"),
        (with_orphans, "belongs to no"),
        (with_a_view_for_a_table, "without setting"),
        (a_text, "SQLite database"),
        (a_pipe, "not a regular file"),
        (gone, "No such file"),
    ],
)
def test_what_is_no_database_to_be_trusted_is_set_aside_with_the_reason(
    into: sqlite3.Connection, published: Path, harm: Callable[[Path], None], reason: str
) -> None:
    harm(published)
    found = admit_database(into, published, 3, "n1", 1)
    assert found.outcome is AdmitOutcome.SET_ASIDE
    assert reason in (found.reason or "")
    assert archived(into) == []
    assert into.execute("SELECT count(*) FROM fleet_run").fetchone() == (0,)


def test_a_byte_that_no_check_of_sqlite_sees_is_seen_by_the_nodes_sha256(
    into: sqlite3.Connection, published: Path
) -> None:
    found = admit_database(into, published, 3, "n1", 1, expected_sha256="0" * 64)
    assert (found.outcome, archived(into)) == (AdmitOutcome.SET_ASIDE, [])
    assert "SHA-256" in (found.reason or "")


def test_a_failed_transaction_leaves_no_row_and_no_half_file(
    into: sqlite3.Connection, published: Path
) -> None:
    into.execute(
        "CREATE TEMP TRIGGER stop BEFORE INSERT ON result BEGIN SELECT raise(FAIL, 'x'); END"
    )
    into.setconfig(sqlite3.SQLITE_DBCONFIG_ENABLE_TRIGGER, True)
    with pytest.raises(sqlite3.Error):
        admit_database(into, published, 3, "n1", 1)
    assert into.execute("SELECT count(*) FROM fleet_run").fetchone() == (0,)
    assert [it for it in archived(into) if it.suffix != ".db"] == []
    into.execute("DROP TRIGGER stop")
    assert admit_database(into, published, 3, "n1", 1).outcome is AdmitOutcome.ADDED


def test_a_database_that_is_damaged_gone_or_packed_by_an_older_rater_says_the_way_out(
    into: sqlite3.Connection, published: Path
) -> None:
    admit_database(into, published, 3, "n1", 1)
    (run,) = indexed_runs(into, 3)
    (file,) = archived(into)
    for harm, reason in (
        (
            lambda: file.write_bytes(file.read_bytes()[:-40]),
            r"its SHA-256 differs\); what its node",
        ),
        (file.unlink, "cannot be read: .* can be copied there again"),
    ):
        harm()
        with pytest.raises(RunError, match=reason), opened_run(into, run):
            pass
    packed = file.parent / run.sha256[:2] / f"{run.sha256}.db.xz"
    packed.parent.mkdir()
    packed.write_bytes(lzma.compress(published.read_bytes()))
    with pytest.raises(RunError, match="packed by an older rater") as told, opened_run(into, run):
        pass
    command = str(told.value).partition("unpack it: ")[2]
    file.write_bytes(lzma.decompress(packed.read_bytes()))
    assert command == f"xz -dc {packed} > {file}"
    with opened_run(into, run) as store:
        assert len(store.runs()) == 1
