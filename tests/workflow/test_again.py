"""What a run is made of, and what of it must not change before it goes on: with real runs."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rater.cli import main
from rater.plan.suite import Command, Expected, Size
from rater.run.copies.guard import remove_unnamed
from rater.run.programs.script import CommandLine, digest_of_workload, process_settings


def tear(iteration: int) -> str:
    """Make the last run one that was interrupted in an iteration; return its uuid."""
    with closing(sqlite3.connect(os.environ["RATER_DB"], autocommit=True)) as db:
        db.execute("UPDATE run SET status = 'interrupted'")
        db.execute("UPDATE bracket SET complete = 0 WHERE iteration = ?", (iteration,))
        [(uuid,)] = db.execute("SELECT uuid FROM run").fetchall()
    return str(uuid)


def ran(script: Path) -> str:
    assert main(["run", "--copies", "1", "--iterations", "2", "--", "sh", script.name]) == 0
    return tear(2)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "work.sh"
    path.write_text("true\n")
    return path


def test_a_script_that_changed_is_a_difference_and_the_run_does_not_go_on(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(script)
    script.write_text("true; true\n")
    assert main(["run", "--resume", "last"]) == 2
    assert "input files of sh: was sha256" in capsys.readouterr().err
    assert main(["run", "--resume", "last", "--force", "--quiet"]) == 0


def test_what_a_killed_attempt_left_goes_when_the_run_goes_on(script: Path) -> None:
    uuid = ran(script)
    left = Path(os.environ["RATER_CACHE"], "work", uuid)
    (left / "resume-1" / "sh.i2.c0000").mkdir(parents=True)
    (left / "go.1").touch()
    assert main(["run", "--resume", "last", "--quiet"]) == 0
    assert not left.exists()


def test_files_of_copies_that_are_stored_stay(tmp_path: Path) -> None:
    folder = tmp_path / "uuid"
    for name in ("a.i1.c0000/data", "resume-1/b.i1.c0001.stdout", "resume-1/c/data", "go.3"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    own = folder / "resume-2"
    own.mkdir()
    (own / "mine").touch()
    named = {str(folder / "a.i1.c0000"), str(folder / "resume-1" / "b.i1.c0001.*")}
    remove_unnamed(folder, named, own)
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == ["a.i1.c0000/data", "resume-1/b.i1.c0001.stdout", "resume-2/mine"]


def test_what_a_link_names_is_not_among_what_attempts_left(tmp_path: Path) -> None:
    folder, mine = tmp_path / "uuid", tmp_path / "mine"
    for one in (folder, mine):
        one.mkdir()
    (mine / "precious").touch()
    (folder / "resume-9").symlink_to(mine)
    (folder / "p.i1.c0000").symlink_to(mine)
    remove_unnamed(folder, (), folder / "resume-10")
    assert [file.name for file in mine.iterdir()] == ["precious"]
    assert list(folder.iterdir()) == []
    folder.rmdir()
    folder.symlink_to(mine)
    remove_unnamed(folder, (), folder / "resume-10")
    assert (mine / "precious").exists()


def test_a_run_goes_on_in_a_directory_whose_name_is_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"odd \xff %41")
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("work.sh").write_text("true\n")
    ran(Path("work.sh"))
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--resume", "last", "--quiet"]) == 0


def test_a_suite_that_is_gone_is_told_with_the_run_it_was_of(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = script.with_name("mine.toml")
    suite.write_text(
        '[suite]\nformat = 1\n[benchmarks.a]\ncommand = ["true"]\n[benchmarks.a.sizes.train]\n'
    )
    assert main(["run", "--copies", "1", "--iterations", "2", "./mine.toml"]) == 0
    tear(2)
    suite.unlink()
    for words in (["run", "--resume", "last"], ["rerun", "last"]):
        assert main(words) == 2
        assert f"run 1, made in {script.parent}, cannot be made" in capsys.readouterr().err


def size(*expected: Expected) -> Size:
    return Size("test", (Command((), (), None, None, None),), (), None, None, None, 0, (), expected)


def test_scripts_set_ups_and_expectations_are_part_of_what_is_compared(tmp_path: Path) -> None:
    script, data = tmp_path / "run.py", tmp_path / "data.txt"
    script.write_text("one")
    data.write_text("one")
    line = CommandLine(("/usr/bin/python3", "-O", str(script), str(data)))
    first = digest_of_workload(size(), [line], ())
    assert first is not None
    data.write_text("two")  # it may be what the program writes
    assert digest_of_workload(size(), [line], ()) == first
    script.write_text("two")
    assert digest_of_workload(size(), [line], ()) != first
    assert digest_of_workload(size(), [CommandLine(("/bin/true",))], ()) is None
    assert digest_of_workload(size(Expected("stdout", "1", 0, 0)), [], ()) != digest_of_workload(
        size(Expected("stdout", "2", 0, 0)), [], ()
    )
    setup = tmp_path / "setup.sh"
    setup.write_text("one")
    before = digest_of_workload(size(), [], (), [(str(setup),)])
    setup.write_text("two")
    assert digest_of_workload(size(), [], (), [(str(setup),)]) != before


def test_the_priority_of_copies_is_kept_with_a_run() -> None:
    assert ("process.nice", str(os.getpriority(os.PRIO_PROCESS, 0))) in process_settings()
    assert {name for name, _ in process_settings()} >= {"limit.stack", "limit.address_space"}
