"""Secrets of a run stay in its database, its owner's alone, and it runs again with them."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from rater.store.store import open_store
from tests.support.calls import Rater, rows
from tests.support.stored_runs import begin

SECRET = "hunter2"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_no_command_shows_a_secret_and_a_run_is_made_again_with_it(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_TOKEN", SECRET)
    asked = ("--copies", 1, "--env", f"API_KEY={SECRET}", "--env", "A=1", "--quiet")
    words = ("--", "sh", "-c", f"test ${{#API_KEY}} = {len(SECRET)}", f"http://me:{SECRET}@h/")
    prepare = ("--prepare", f"true --password={SECRET}")
    monkeypatch.setattr("sys.argv", ["rater", "run", *map(str, (*asked, *prepare, *words))])
    assert rater("run", *asked, *prepare, *words)[0] == 0
    assert SECRET in str(rows("SELECT command_line, request FROM run"))
    monkeypatch.delenv("MALLOC_TOKEN")
    assert rater("rerun", 1, "--quiet")[0] == 0
    (tmp_path / "out").mkdir()
    for shown in (
        *("list", "list --json", "show 1", "show 1 --json", "export 1 --format json"),
        *("export 1", "export 1 --format csv", "compare 1 2", "compare 1 2 --json"),
        *(
            "divots 1 --json",
            "plot 1 -o out/a.svg",
        ),
        *("report 1 -o out/page.html", "report 1 2 -o out/pages.html"),
    ):
        monkeypatch.chdir(tmp_path)
        status, out, said = rater(*shown.split())
        assert status == 0, (shown, said)
        assert SECRET not in out + said, shown
    for file in (tmp_path / "out").iterdir():
        assert SECRET not in file.read_text(), file
    page = (tmp_path / "out" / "page.html").read_text()
    assert "API_KEY=[redacted] A=1" in page.replace(
        "A=1 API_KEY=[redacted]", "API_KEY=[redacted] A=1"
    )
    assert "secrets by name or form" in page
    document = rater("export", 1, "--format", "json")[1]
    assert '"environment": {"A": "1", "API_KEY": "[redacted]"}' in document
    assert "environment variable MALLOC_TOKEN" in rater("compare", 1, 2)[1]


def test_a_sweep_shows_no_secret_of_its_axes_and_its_points_differ_all_the_same(
    rater: Rater,
) -> None:
    words = ("--axis", f"env:API_KEY={SECRET},{SECRET}2", "--rounds", 1, "--copies", 1)
    told: list[Any] = [
        *rater("sweep", *words, "--", "sh", "-c", f"test ${{API_KEY#{SECRET}}} != 3")
    ]
    for shown in ("sweep --show 1 --json", "sweep --list", "list", "show 1 --json", "export 2"):
        told += rater(*shown.split())
    told += rater("compare", "sweep:1", "--json")
    assert SECRET not in "\n".join(str(it).replace(f"{{API_KEY#{SECRET}}}", "") for it in told)
    assert "block 1/1, point 2/2: env:API_KEY=[redacted" in told[2]
    assert "env:API_KEY=[redacted 2]" in told[2]
    assert rows("SELECT DISTINCT value FROM tag WHERE name = 'env:API_KEY' ORDER BY value") == [
        (SECRET,),
        (f"{SECRET}2",),
    ]
    assert rater("sweep", "--resume", 1, "--rounds", 2, "--quiet")[0] == told[0]


def test_a_new_database_and_what_stands_beside_it_are_its_owners_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        begin(store)
        assert {it.name: mode(it) for it in tmp_path.iterdir()} == {
            "a.db": 0o600,
            "a.db-wal": 0o600,
            "a.db-shm": 0o600,
        }


@pytest.mark.parametrize(("asked", "made"), [("660", 0o640), ("0644", 0o644), ("", 0o600)])
def test_who_else_may_read_a_database_is_asked_for_and_the_umask_holds(
    asked: str, made: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_DB_MODE", asked)
    before = os.umask(0o027 if made == 0o640 else 0o022)
    try:
        open_store(tmp_path / "a.db").close()
    finally:
        os.umask(before)
    assert mode(tmp_path / "a.db") == made


def test_a_mode_that_is_none_is_refused(rater: Rater, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATER_DB_MODE", "rw")
    status, _, said = rater("run", "--copies", 1, "--", "true")
    assert (status, "RATER_DB_MODE='rw': expected a mode such as 600" in said) == (2, True)


def test_a_database_that_others_may_read_is_named_before_it_gets_a_secret(
    rater: Rater, database: Path
) -> None:
    open_store(database).close()
    database.chmod(0o644)
    said = rater("run", "--copies", 1, "--env", "TOKEN=x", "--", "true")[2]
    assert f"others may read {database} (mode 644)" in said
    assert "the values of TOKEN" in said
    assert "others may read" not in rater("run", "--copies", 1, "--env", "A=x", "--", "true")[2]
    assert mode(database) == 0o644
