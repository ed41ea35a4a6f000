"""`rater rerun` and what must not change before a run goes on; secrets stay in the database."""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.commands.cli import main
from rater.commands.command_line import Parser
from rater.commands.common import add_run_arguments
from rater.plan.request import Request, request_from_json, request_to_json
from rater.plan.suite import Command, Expected, Size
from rater.run.host.inherited import process_settings
from rater.run.launcher.guard import remove_unnamed
from rater.run.programs.script import CommandLine, digest_of_workload
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.text.values import to_dict
from rater.workflow.arguments import RunArguments
from rater.workflow.run.repeat import pin_suites
from tests.support.calls import Rater, query_rows, rater
from tests.support.example_runs import HEAD
from tests.support.stored_runs import begin
from tests.support.wings import ABSENT

OF_LAB = ("--pages", "heap:50%@20%;static:2M:best", "--pages-backing", "hugetlb")
EVERY = [
    *("--name", "ü b"),
    *("--copy-numbers", "5,0-2/8"),
    *("--copies", "cores", "--mode", "steady", "--order", "rotated", "--window", "0.1"),
    *("--warmup", "0.3", "--stagger", "0.7", "--increment", "3", "--iterations", "4"),
    *("--discard", "1", "--layout", "./l.toml", "--mem", "bind", "--no-oversubscribe"),
    *("--bind", "core", "--smt", "2", "--kind", "fast", "--reserve", "3", "--preflight", "off"),
    *("--proof", "0.25", "--energy", "off", "--counters", "software"),
    *("--idle-power", "95W"),
    *("--threads", "3"),
    *("--timeout", "1e-2", "--grace", "0", "--tag", "k=v=w", "--tag", "k=", "--env", "E=\udcff ü"),
    *("--alloc", "./lib ü.so", "--hugepages", "thp"),
    *(() if "lab" in ABSENT else OF_LAB),
    *("--pages-heap", "1G"),
    *("--wrap", "nice -n 'a b'", "--prepare", 'sync; echo "\'"', "--cooldown", "0.1"),
    *("--conclude", "true"),
    *(
        "--until-idle",
        "--output-limit",
        "3k",
        "--run-dirs",
        "--show-output",
        "--keep",
        "--force",
        "--share",
    ),
    *("--accept-exit", "1,4"),
    *("--metric", "speed MB/s lower: ([0-9.]+)", "--series", "off"),
    *("--count", "instructions"),
    *("--until", "2.5%"),
    *("--check-limit", "7", "--wait", "5m", "--tuned"),
]
# What goes with no command, and with no suite of rater's own.
OF_KIT = [
    *("spec:/kit", "--speccmds", "./a b.cmd", "c.cmd", "--bind-from-file"),
    *("--size", "ref", "--tune", "peak"),
]


def asked(*words: str, command: list[str] | None = None) -> Request:
    parser = Parser()
    add_run_arguments(parser)
    there = argparse.Namespace(command=command, defaults=())
    return RunArguments.from_parsed(vars(parser.parse_args(words, there))).request()


# -- a request as JSON ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        asked(),
        asked(*EVERY, command=["./x", "", "a b", "\udcff"]),
        asked("a/b,c", "--size", "ref"),
        asked(*OF_KIT),
        asked("spec:/kit"),
    ],
    ids=["nothing", "everything", "suite", "everything of a kit", "kit"],
)
def test_a_request_comes_back_from_json_as_it_was(request_: Request) -> None:
    text = request_to_json(request_)
    text.encode("utf-8")  # a database takes it
    assert request_from_json(text, "run 7") == request_


def test_every_field_of_the_test_above_is_not_the_default() -> None:
    default, every = to_dict(asked(command=["x"])), to_dict(asked(*EVERY, command=["y"]))
    same = {name for name in default if default[name] == every[name]}
    of_kit = {"speccmds", "bind_from_file"}
    of_lab = {"pages", "pages_backing"} if "lab" in ABSENT else set()
    assert same == {"suites", "size", "tune"} | of_kit | of_lab  # not of commands
    kit = to_dict(asked(*OF_KIT))
    assert {name for name in same if default[name] == kit[name]} == of_lab


def test_what_an_older_rater_did_not_know_has_its_default_and_what_it_had_is_left() -> None:
    values = json.loads(request_to_json(asked("mini", "--copies", "3")))
    del values["cooldown_s"], values["layout"]
    values["speccmds_out"] = True  # an option that there was
    assert request_from_json(json.dumps(values), "run 7") == asked("mini", "--copies", "3")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"sharks": 1, "copies": "2"}', "run 7 was made by a newer rater: .* with sharks"),
        (
            '{"copies": 2}',
            "run 7: .* damaged: copies: expected a string or null, got a whole",
        ),
        ('{"tags": [["a"]]}', r"run 7: .* damaged: tags\[0\]: expected a list of length 2"),
        (
            '{"iterations": true}',
            "run 7: .* damaged: iterations: expected a whole number",
        ),
        ("[]", "run 7: .* no JSON object"),
        ("{", "run 7: .* not JSON"),
    ],
)
def test_a_request_that_cannot_be_read_is_an_error_that_names_the_run(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        request_from_json(text, "run 7")


# -- on the command line --------------------------------------------------------------------------

SUITE = """
[suite]
format = 1
[benchmarks.one]
command = ["./say.sh"]
[benchmarks.one.sizes.train]
reference_s = 1.0
memory_mb = 1
expected = "right\\n"
"""


def test_a_run_is_made_again_from_the_database_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "own.toml").write_text(SUITE)
    script = home / "say.sh"
    script.write_text("#!/bin/sh\necho $SAY\n")
    script.chmod(0o755)
    words = ["own.toml", "--copies", "pus", "--iterations", "2", "--env", "SAY=right"]
    first = rater("run", *words, "--tag", "a=1", "--tag", "b=1", "--quiet", cwd=home)
    assert (first.returncode, first.stderr) == (0, "")
    script.write_text(script.read_text() + "# a comment\n")
    second = rater("rerun", "1", "--tag", "b=2", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "rater: differs from run 1:\n  program of one: was sha256 " in second.stderr
    third = rater("rerun", "2", "--quiet", cwd=tmp_path)
    assert (third.returncode, third.stdout, third.stderr) == (0, "", "")
    heads = query_rows(
        "SELECT status, suite, copies, iterations, directory, suite_path, suite_sha256, layout "
        "FROM run"
    )
    assert len(heads) == 3
    assert len(set(heads)) == 1
    assert heads[0][:2] == ("complete", "own")
    tags = query_rows("SELECT run_id, name || value FROM tag ORDER BY 1, 2")
    assert tags == [(1, "a1"), (1, "b1"), (2, "a1"), (2, "b2"), (3, "a1"), (3, "b2")]
    [uuid] = query_rows("SELECT uuid FROM run WHERE id = 1")[0]
    notes = [text for (text,) in query_rows("SELECT text FROM note WHERE run_id = 2")]
    assert f"rerun of run 1 ({uuid})" in notes
    assert any(text.startswith("differs from run 1: program of one: was") for text in notes)
    requests = [json.loads(text) for (text,) in query_rows("SELECT request FROM run")]
    assert requests[0]["copies"] == "pus"
    assert requests[1]["copies"] == str(heads[0][2])


def test_a_layout_of_one_s_own_is_kept_with_the_run_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout_file = tmp_path / "own.toml"
    text = 'order = "compact"  # mine\n'
    layout_file.write_text(text)
    words = ["--copies", "1", "--layout", "own.toml", "--quiet", "--", "true"]
    assert rater("run", *words, cwd=tmp_path).returncode == 0
    assert query_rows("SELECT value FROM setting WHERE name = 'layout.text'") == [(text,)]
    layout_file.write_text(text + "# more\n")
    again = rater("rerun", "1", "--dry-run", cwd=tmp_path)
    assert "layout file  sha256 " in again.stdout


def test_a_dry_run_of_a_rerun_shows_plan_and_differences_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = rater("run", "--copies", "1", "--quiet", "--", "true")
    assert done.returncode == 0
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert main(["rerun", "last", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "homogeneous, 1 copy, 1 iteration" in said
    assert said.endswith(
        "differs from run 1\n"
        "what                                  was        is\n"
        "environment variable OMP_NUM_THREADS  not there  3\n"
    )
    assert main(["rerun", "last", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == [
        {
            "what": "environment variable OMP_NUM_THREADS",
            "before": None,
            "now": "3",
            "weighs": True,
        }
    ]
    assert query_rows("SELECT count(*) FROM run") == [(1,)]


def test_a_suite_that_was_found_by_name_is_found_again_by_its_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(SUITE)
    head = replace(HEAD, suite_path=f"/somewhere/mini.toml\n{file}")
    pinned = pin_suites(asked("mini/lu", "own/one"), head)
    assert pinned.suites == ("mini/lu", f"{file}/one")


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
    folder, user_folder = tmp_path / "uuid", tmp_path / "mine"
    for one in (folder, user_folder):
        one.mkdir()
    (user_folder / "precious").touch()
    (folder / "resume-9").symlink_to(user_folder)
    (folder / "p.i1.c0000").symlink_to(user_folder)
    remove_unnamed(folder, (), folder / "resume-10")
    assert [file.name for file in user_folder.iterdir()] == ["precious"]
    assert list(folder.iterdir()) == []
    folder.rmdir()
    folder.symlink_to(user_folder)
    remove_unnamed(folder, (), folder / "resume-10")
    assert (user_folder / "precious").exists()


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
    return Size(
        name="test",
        commands=(Command(),),
        environment=(),
        reference_s=None,
        memory_bytes=None,
        total_memory_bytes=None,
        disk_bytes=0,
        inputs=(),
        expected=expected,
    )


def test_scripts_set_ups_and_expectations_are_part_of_what_is_compared(tmp_path: Path) -> None:
    script, data = tmp_path / "run.py", tmp_path / "data.txt"
    script.write_text("one")
    data.write_text("one")
    line = CommandLine(words=("/usr/bin/python3", "-O", str(script), str(data)))
    first = digest_of_workload(size(), [line], ())
    assert first is not None
    data.write_text("two")  # it may be what the program writes
    assert digest_of_workload(size(), [line], ()) == first
    script.write_text("two")
    assert digest_of_workload(size(), [line], ()) != first
    assert digest_of_workload(size(), [CommandLine(words=("/bin/true",))], ()) is None
    assert digest_of_workload(
        size(Expected(file="stdout", text="1", absolute_tolerance=0, relative_tolerance=0)), [], ()
    ) != digest_of_workload(
        size(Expected(file="stdout", text="2", absolute_tolerance=0, relative_tolerance=0)), [], ()
    )
    setup = tmp_path / "setup.sh"
    setup.write_text("one")
    before = digest_of_workload(size(), [], (), [(str(setup),)])
    setup.write_text("two")
    assert digest_of_workload(size(), [], (), [(str(setup),)]) != before


def test_the_priority_of_copies_is_kept_with_a_run() -> None:
    assert ("process.nice", str(os.getpriority(os.PRIO_PROCESS, 0))) in process_settings()
    assert {name for name, _ in process_settings()} >= {"limit.stack", "limit.address_space"}


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
    assert SECRET in str(query_rows("SELECT command_line, request FROM run"))
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
    shown_texts: list[Any] = [
        *rater("sweep", *words, "--", "sh", "-c", f"test ${{API_KEY#{SECRET}}} != 3")
    ]
    for shown in ("sweep --show 1 --json", "sweep --list", "list", "show 1 --json", "export 2"):
        shown_texts += rater(*shown.split())
    shown_texts += rater("compare", "sweep:1", "--json")
    assert SECRET not in "\n".join(
        str(shown_text).replace(f"{{API_KEY#{SECRET}}}", "") for shown_text in shown_texts
    )
    assert "block 1/1, point 2/2: env:API_KEY=[redacted" in shown_texts[2]
    assert "env:API_KEY=[redacted 2]" in shown_texts[2]
    assert query_rows(
        "SELECT DISTINCT value FROM tag WHERE name = 'env:API_KEY' ORDER BY value"
    ) == [
        (SECRET,),
        (f"{SECRET}2",),
    ]
    assert rater("sweep", "--resume", 1, "--rounds", 2, "--quiet")[0] == shown_texts[0]


def test_a_new_database_and_what_stands_beside_it_are_its_owners_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "a.db") as store:
        begin(store)
        assert {path.name: mode(path) for path in tmp_path.iterdir()} == {
            "a.db": 0o600,
            "a.db-wal": 0o600,
            "a.db-shm": 0o600,
        }


@pytest.mark.parametrize(("variable", "file_mode"), [("660", 0o640), ("0644", 0o644), ("", 0o600)])
def test_who_else_may_read_a_database_is_asked_for_and_the_umask_holds(
    variable: str, file_mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_DB_MODE", variable)
    before = os.umask(0o027 if file_mode == 0o640 else 0o022)
    try:
        open_store(tmp_path / "a.db").close()
    finally:
        os.umask(before)
    assert mode(tmp_path / "a.db") == file_mode


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
