"""What a database says is run and removed only where nobody else can have written it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.torture import cells
from rater.commands.cli import main
from rater.run.programs.compile import cache_root
from rater.store import connection
from rater.store.store import open_store
from rater.system import files
from rater.system.errors import InputError
from rater.system.files import OpenedFile, inspect_file
from rater.workflow.results.points import write_output
from tests.support.calls import Rater
from tests.support.places import own_places_in
from tests.support.strangers import give, needs_root, stranger_does, stranger_keeps
from tests.support.wings import needs_wing

pytestmark = pytest.mark.usefixtures("own_cache")

PREPARE = "touch prepared; sync"


def change(database: Path, sql: str, *values: Any) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(sql, values)


@pytest.fixture
def call_folder(stopped: Path, database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that run's database; returns the folder it was called in, with no trace of it."""
    folder = stopped.parent / "called here"
    (folder / "prepared").unlink(missing_ok=True)
    monkeypatch.chdir(folder)
    shutil.copy(stopped, database)
    return folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a run that was stopped at its second iteration."""
    home = tmp_path_factory.mktemp("stopped")
    (home / "called here").mkdir()
    words = ["run", "--copies", "1", "--iterations", "2", "--quiet", "--run-dirs"]
    words += ["--prepare", PREPARE, "--wrap", "env -u NOTHING", "--env", "PAYLOAD=yes"]
    with pytest.MonkeyPatch.context() as patch:
        database = own_places_in(home, patch)
        patch.chdir(home / "called here")
        assert main([*words, "--", "sh", "-c", "touch ran"]) == 0
    for table in ("copy", "bracket"):
        change(database, f"DELETE FROM {table} WHERE iteration = 2")
    change(database, "UPDATE run SET status = 'interrupted'")
    return database


AGAIN = [["rerun", "last"], ["run", "--resume", "last"]]


def open_to_all(database: Path) -> None:
    database.chmod(0o666)


def of_another_machine(database: Path) -> None:
    change(database, "UPDATE host SET machine_id_hash = 'another', hostname = 'far'")


@pytest.fixture(autouse=True)
def here_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers may have no machine-id: then nothing can be told."""
    monkeypatch.setattr("rater.workflow.run.repeat.machine_id", lambda: "here")


def of_here(database: Path) -> None:
    change(database, "UPDATE host SET machine_id_hash = 'here'")


@pytest.mark.parametrize("words", AGAIN)
@pytest.mark.parametrize(
    "others",
    [
        pytest.param((give, "it is a file of user 1234"), marks=needs_root),
        (open_to_all, "everybody may write into it"),
        (of_another_machine, "it was made on another machine (far)"),
    ],
)
def test_what_others_may_have_written_is_shown_and_not_run(
    words: list[str], others: Any, call_folder: Path, database: Path, rater: Rater
) -> None:
    of_here(database)
    make, said = others
    make(database)
    status, _, errors = rater(*words, "--quiet")
    assert status == 2
    assert "rater cannot tell that run 1 is yours" in errors
    assert said in errors
    assert not (call_folder / "prepared").exists()
    status, text, _ = rater(*words, "--dry-run")
    assert status == 0
    assert "REFUSED" in text
    for line in (
        "runs     sh -c 'touch ran'",
        "wrap     env -u NOTHING",
        f"prepare  {PREPARE}",
        "env      PAYLOAD=yes",
        f"in       {call_folder}",
    ):
        assert line in text
    status, text, _ = rater(*words, "--dry-run", "--json")
    document = json.loads(text)
    assert said in str(document["refused"])
    assert document["executes"] == {
        "directory": str(call_folder),
        "setups": [],
        "commands": {"sh": "sh -c 'touch ran'"},
        "wrap": "env -u NOTHING",
        "prepare": PREPARE,
        "conclude": None,
        "environment": {"PAYLOAD": "yes"},
        "settings": {},
        "directories": str(cache_root() / "work"),
        "pages": [],
        "tuned": False,
    }
    assert not (call_folder / "prepared").exists()
    assert rater(*words, "--quiet", "--force")[0] == 0
    assert (call_folder / "prepared").exists()


@pytest.mark.parametrize("words", AGAIN)
def test_what_is_known_to_be_ours_needs_no_force(
    words: list[str], call_folder: Path, database: Path, rater: Rater
) -> None:
    of_here(database)
    status, _, errors = rater(*words, "--quiet", *(["--force"] if "--resume" in words else []))
    assert (status, errors) == (0, "")


@needs_root
def test_a_sweep_of_another_user_is_shown_and_does_not_go_on(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "--rounds",
        "1",
        "--copies",
        "1",
        "--prepare",
        PREPARE,
        "--axis",
        "env:X=1,2",
        "--",
        "true",
    ]
    assert rater("sweep", "--quiet", *words)[0] == 0
    (tmp_path / "prepared").unlink()
    change(database, "DELETE FROM run WHERE id = 2")
    give(database)
    status, _, errors = rater("sweep", "--resume", "last", "--quiet")
    assert status == 2
    assert "rater cannot tell that sweep 1 is yours" in errors
    status, text, _ = rater("sweep", "--resume", "last", "--dry-run")
    assert f"prepare  {PREPARE}" in text
    assert "REFUSED  `--resume` would refuse this: rater cannot tell that sweep 1 is yours" in text
    assert not (tmp_path / "prepared").exists()


@pytest.mark.parametrize("uuid", ["../../precious", "/{precious}", "..", "", "A" * 36])
def test_a_crafted_uuid_removes_nothing(
    uuid: str, call_folder: Path, database: Path, tmp_path: Path, rater: Rater
) -> None:
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep" / "file").touch()
    (precious / "file").touch()
    change(database, "UPDATE run SET uuid = ?", uuid.replace("{precious}", str(precious)[1:]))
    status, _, errors = rater("run", "--resume", "1", "--force", "--quiet")
    assert status == 2
    assert "run 1 cannot go on: no rater made this row of the database" in errors
    assert rater("rm", "1")[0] == 0
    assert sorted(path.name for path in precious.rglob("*")) == ["deep", "file", "file"]
    assert database.exists()


@needs_root
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_run_of_another_user_s_database_names_no_folder_of_ours(
    is_ours: bool, call_folder: Path, database: Path, tmp_path: Path, rater: Rater
) -> None:
    uuid = "01234567-89ab-cdef-0123-456789abcdef"
    kept = tmp_path / "cache" / "work" / uuid
    kept.mkdir(parents=True)
    change(database, "UPDATE run SET uuid = ?", uuid)
    if not is_ours:
        give(database)
    assert rater("rm", "1")[0] == 0
    assert kept.exists() is not is_ours


@needs_root
@pytest.mark.parametrize(
    "others",
    [
        ("mkdir cache", "the folder belongs to user 1234"),
        ("mkdir -p cache/build", "the folder belongs to user 1234"),
        ("ln -s /root cache", "a symbolic link of user 1234"),
    ],
)
@pytest.mark.parametrize("words", [["mini", "--size", "test"], ["--run-dirs", "--", "true"]])
def test_nothing_is_built_or_run_in_a_cache_of_another_user(
    others: tuple[str, str],
    words: list[str],
    shared: Path,
    monkeypatch: pytest.MonkeyPatch,
    rater: Rater,
) -> None:
    script, said = others
    stranger_does(script, shared)
    monkeypatch.setenv("RATER_CACHE", str(shared / "cache"))
    status, _, errors = rater("run", "--copies", "1", "--quiet", *words)
    assert status == 2
    assert said in errors
    assert "set RATER_CACHE to another folder" in errors


@needs_root
def test_in_a_sticky_cache_what_another_user_made_before_is_refused(
    shared: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    monkeypatch.setenv("RATER_CACHE", str(shared))
    stranger_does("mkdir -m 777 work", shared)
    status, _, errors = rater("run", "--copies", "1", "--quiet", "--run-dirs", "--", "true")
    assert status == 2
    assert f"{shared}/work" in errors


@needs_root
def test_a_database_is_not_made_where_a_link_of_others_leads(
    shared: Path, tmp_path: Path, rater: Rater
) -> None:
    aim = tmp_path / "aim"
    (shared / "rater.db").symlink_to(aim)
    give(shared / "rater.db")
    shared.chmod(0o755)  # no sticky bit: the kernel lets root follow
    status, _, errors = rater("run", "--db", shared / "rater.db", "--quiet", "--", "true")
    assert status == 2
    assert "a symbolic link of user 1234" in errors
    assert not aim.exists()


@needs_root
@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_what_others_put_beside_a_database_is_not_taken_up(
    end: str, shared: Path, rater: Rater
) -> None:
    database = shared / "rater.db"
    assert rater("run", "--db", database, "--copies", "1", "--quiet", "--", "true")[0] == 0
    assert database.stat().st_mode & 0o077 == 0
    stranger_does(f"echo evil > rater.db{end}", shared)
    status, _, errors = rater("list", "--db", database)
    assert status == 2
    assert f"rater.db{end}: SQLite did not make this" in errors


@needs_root
def test_nothing_can_be_put_beside_a_database_between_the_look_and_the_opening(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = connection._check_beside

    def check_and_plant(file: OpenedFile) -> str | None:
        writer = check(file)
        if file.state.st_size:  # else SQLite has no use for logs yet
            stranger_does("for end in wal shm; do ! (: > rater.db-$end) 2> tried; done", shared)
            planted.append(file.path.name)
        return writer

    planted: list[str] = []
    monkeypatch.setattr(connection, "_check_beside", check_and_plant)
    with open_store(shared / "rater.db") as store:
        assert store.runs() == ()
        assert planted == ["rater.db"]
        assert {file.stat().st_uid for file in shared.glob("rater.db*")} == {0}
    assert (shared / "tried").read_text().count("ermission denied") == 1
    assert [file.name for file in shared.iterdir() if file.name != "tried"] == ["rater.db"]


@needs_root
def test_a_pipe_of_others_is_no_output_and_what_takes_its_place_is_not_written(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shared / "page.html"
    os.mkfifo(page)
    give(page)
    with pytest.raises(InputError, match="a pipe or a device of another user"):
        write_output(page, b"data")
    page.unlink()
    secret = shared / "secret"
    secret.write_text("secret")
    (shared / "link").symlink_to(secret)
    monkeypatch.setattr("pathlib.Path.is_file", lambda _: False)  # of a moment ago
    monkeypatch.setattr("rater.workflow.results.points.resolve_target", lambda path: path)
    for taken in (secret, shared / "link"):
        with pytest.raises(InputError, match=r"somebody puts something|levels of symbolic links"):
            write_output(taken, b"data")
    assert secret.read_text() == "secret"


@needs_root
def test_a_page_is_not_given_to_who_put_a_file_of_its_name_there(shared: Path) -> None:
    page = shared / "page.html"
    page.touch()
    page.chmod(0o666)
    give(page)
    write_output(page, b"page")
    found = page.stat()
    assert (found.st_uid, found.st_mode & 0o022, page.read_text()) == (0, 0, "page")


@needs_root
def test_an_output_is_not_written_where_a_link_of_others_leads(
    shared: Path, tmp_path: Path
) -> None:
    aim, link = tmp_path / "aim", shared / "page.html"
    link.symlink_to(aim)
    shared.chmod(0o755)
    write_output(link, b"page")
    assert aim.read_text() == "page"  # our own link
    give(link)
    with pytest.raises(InputError, match="a symbolic link of user 1234"):
        write_output(link, b"another")
    assert aim.read_text() == "page"


def test_a_new_output_has_the_usual_mode_and_one_that_is_there_keeps_its_own(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.html"
    umask = os.umask(0o027)
    try:
        write_output(page, b"page")
        assert page.stat().st_mode & 0o777 == 0o640
        page.chmod(0o600)
        write_output(page, b"another")
        assert page.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(umask)
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


# -- Exchanged between the look and the use --------------------------------------------------------


def test_what_was_judged_is_what_is_read_whatever_has_its_name_by_then(tmp_path: Path) -> None:
    path, evil = tmp_path / "it", tmp_path / "evil"
    path.write_text("ours")
    evil.write_text("theirs")
    with inspect_file(path) as file:
        evil.replace(path)
        assert (file.read(100), path.read_text()) == (b"ours", "theirs")


@needs_root
def test_of_a_folder_that_is_exchanged_the_judged_one_is_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    place.mkdir()
    other.mkdir()
    enter = files._walk_to_folder

    def exchange(path: Path, **how: bool) -> object:
        entered = enter(path, **how)
        place.rename(tmp_path / "judged")
        place.symlink_to(other)
        return entered

    monkeypatch.setattr(files, "_walk_to_folder", exchange)
    os.close(files.open_file(place / "lock", os.O_RDWR | os.O_CREAT))
    assert [path.name for path in (tmp_path / "judged").iterdir()] == ["lock"]
    assert [*other.iterdir()] == []


def test_a_database_that_is_exchanged_while_it_is_opened_is_refused(
    call_folder: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    """The other one is put there when this one is judged, and before SQLite opens it."""
    shutil.copy(database, tmp_path / "evil.db")
    connect = sqlite3.connect

    def exchange(*words: Any, **how: Any) -> Any:
        (tmp_path / "evil.db").replace(database)
        return connect(*words, **how)

    monkeypatch.setattr(sqlite3, "connect", exchange)
    status, _, errors = rater("rerun", "last", "--quiet")
    assert status == 2
    assert "somebody exchanged the database while it was opened" in errors
    assert not (call_folder / "prepared").exists()


@needs_root
@pytest.mark.parametrize("words", [*AGAIN, ["show", "last"], ["rm", "last"]])
def test_a_link_that_another_user_swaps_all_the_time_runs_nothing_of_theirs(
    words: list[str], call_folder: Path, database: Path, shared: Path, rater: Rater
) -> None:
    """Now to root's database, which may be run, now to one of the same run with their command."""
    of_here(database)
    shutil.copy(database, shared / "theirs.db")
    change(shared / "theirs.db", "UPDATE run SET request = replace(request, 'prepared', 'evil')")
    give(shared / "theirs.db")
    shared.chmod(0o755)  # no sticky bit: the kernel lets root follow
    give(shared)
    with stranger_keeps(f"ln -sfn {database} it.db; ln -sfn theirs.db it.db", shared):
        for _ in range(8):
            status, _, errors = rater("--db", shared / "it.db", *words)
            assert status == 2
            assert re.search("a symbolic link of user 1234|vanished|no database", errors), errors
    assert [*call_folder.iterdir()] == []


@needs_root
@needs_wing("fleet")
def test_what_was_merged_from_another_user_s_file_is_shown_and_not_run(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    monkeypatch.chdir(tmp_path)
    assert rater("run", "--copies", "1", "--quiet", "--prepare", PREPARE, "--", "true")[0] == 0
    (tmp_path / "prepared").unlink()
    of_here(database)
    theirs = tmp_path / "theirs.db"
    shutil.move(database, theirs)
    give(theirs)
    assert rater("import", theirs)[0] == 0
    status, _, errors = rater("rerun", "last", "--quiet")
    assert status == 2
    assert f"it was merged from {theirs}, it is a file of user 1234; --dry-run shows it" in errors
    assert rater("rerun", "last", "--dry-run")[0] == 0
    assert not (tmp_path / "prepared").exists()
    assert rater("rerun", "last", "--quiet", "--force")[0] == 0
    assert (tmp_path / "prepared").exists()


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (("run", "started_at", "text"), ["list"]),
        (("run", "copies", "blob"), ["list"]),
        (("tag", "value", "null"), ["list"]),
        (("copy", "elapsed_ns", "text"), ["show", "1"]),
        (("copy", "node", "text"), ["divots", "1"]),
        (("setting", "value", "blob"), ["export", "1", "--format", "json"]),
        (("phase_reading", "value", "blob"), ["show", "6"]),
        (("placement", "cpu", "text"), ["show", "1", "--json"]),
        (("host", "memory_bytes", "infinite"), ["rerun", "1", "--dry-run"]),
        (("sweep_value", "value", "blob"), ["sweep", "--show", "1"]),
        (("sweep", "until", "negative"), ["sweep", "--list"]),
    ],
)
def test_a_cell_of_another_kind_is_named_as_damage(
    cell: tuple[str, str, str], words: list[str], loose: Path, database: Path, rater: Rater
) -> None:
    table, column, value = cell
    shutil.copy(loose, database)
    change(database, f"UPDATE {table} SET {column} = ?", cells.VALUES[value])
    status, _, errors = rater(*words)
    assert (status, "damaged" in errors, column in errors) == (2, True, True), errors


@pytest.fixture(scope="module")
def loose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without STRICT, CHECK and NOT NULL."""
    home = tmp_path_factory.mktemp("loose")
    with pytest.MonkeyPatch.context() as patch:
        own_places_in(home, patch)
        patch.chdir(home)
        return cells.make_database(home / "loose.db", {})


@needs_root
def test_a_page_in_the_home_of_who_called_sudo_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chown(tmp_path, 65534, 65534)
    monkeypatch.setenv("SUDO_UID", "65534")
    write_output(tmp_path / "page.html", b"page")
    assert (tmp_path / "page.html").stat().st_uid == 65534
