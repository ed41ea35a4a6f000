"""`rater suites --new`: a suite that is written for a user."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rater.commands import machine
from rater.commands.command_line import Parser
from rater.commands.common import declare
from rater.plan.suite import Suite
from rater.plan.suite_find import load_suite, suite_warnings
from rater.run.workplace.compare_output import check_file
from rater.system.errors import InputError
from tests.support.calls import Rater

type New = Callable[..., int]


@pytest.fixture
def new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> New:
    """Run `rater suites new` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("RATER_SUITES", raising=False)

    def run(*words: object) -> int:
        parser = Parser()
        parser.add_argument("--json", action="store_true", default=False)
        parser.add_argument("--db", default=None)
        to = parser.add_subparsers(dest="subcommand", required=True)
        declare(to, "suites", machine.COMMANDS["suites"])
        args = parser.parse_args(["suites", "new", *map(str, words)])
        status: int = args.run(args)
        return status

    return run


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_example_is_written_and_the_next_commands_named(
    new: New, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new("mine") == 0
    assert (
        capsys.readouterr().out
        == """\
written:
  mine.toml
  mine/prepare.sh
  mine/settings.txt
  mine/smooth.sh

next:
  rater suites check ./mine.toml --run   # is every answer right?
  rater run ./mine.toml --size test      # a copy on every CPU, all at once
  ${EDITOR:-vi} ./mine.toml              # put your own program in
"""
    )
    suite = load_suite("./mine.toml")
    assert suite.name == "mine"
    assert suite_warnings(suite, "train", lambda _path: 0) == []
    assert "NAME" not in "".join(tree(Path()).values())


def run_by_hand(suite: Suite, folder: Path) -> Path:
    """Do what a run does with the first size, step by step."""
    (smooth,) = suite.benchmarks
    size = smooth.sizes["test"]
    made_folder, run_dir = folder / "made", folder / "run"
    made_folder.mkdir()
    run_dir.mkdir()
    environment = os.environ | dict(suite.environment)
    subprocess.run(suite.setup, cwd=made_folder, env=environment, check=True)
    for wanted in size.inputs:
        source = wanted.path or made_folder / (wanted.made or "")
        (run_dir / wanted.name).write_bytes(source.read_bytes())
    (command,) = size.commands
    assert command.stdin is not None
    with (run_dir / command.stdin).open() as stdin, (run_dir / "stdout").open("w") as stdout:
        subprocess.run(
            (*smooth.command, *command.args),
            cwd=run_dir,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            check=True,
        )
    return run_dir


def test_the_example_answers_what_it_expects_and_reports_its_metric(
    new: New, tmp_path: Path
) -> None:
    new("mine")
    suite = load_suite("./mine.toml")
    run_dir = run_by_hand(suite, tmp_path)
    (smooth,) = suite.benchmarks
    (want,) = smooth.sizes["test"].expected
    assert want.ignore is not None
    said = (run_dir / "stdout").read_text()
    kept = [line for line in said.splitlines() if not re.search(want.ignore, line)]
    assert len(kept) == len(said.splitlines()) - 2
    (run_dir / "stdout").write_text("\n".join(kept))
    check_file(run_dir / "stdout", want)
    (metric,) = smooth.metrics
    (speed,) = re.findall(metric.pattern, said, re.MULTILINE)
    assert float(speed) > 0


def test_the_lines_that_are_commented_out_may_be_used_as_they_are(new: New, tmp_path: Path) -> None:
    new("mine")
    path = tmp_path / "mine.toml"
    path.write_text(re.sub(r"^#(?=\S|  \{)", "", path.read_text(), flags=re.MULTILINE))
    smooth, turn = load_suite(str(path)).benchmarks
    assert (smooth.setup, smooth.environment) == (("mkdir", "results"), (("OMP_NUM_THREADS", "1"),))
    assert smooth.sizes["test"].disk_bytes == 1_000_000
    assert len(turn.sizes["test"].commands) == 3


@pytest.mark.parametrize(
    ("words", "main", "typed"),
    [
        (("perf/mine",), "perf/mine.toml", "./perf/mine.toml"),
        (("mine.toml",), "mine.toml", "./mine.toml"),
        (("mine", "--dir", "a b"), "a b/mine.toml", "'./a b/mine.toml'"),
        (("mine", "--dir", "data/rater/suites"), "data/rater/suites/mine.toml", "mine"),
    ],
)
def test_a_name_may_be_a_path_and_a_folder_is_made(
    new: New,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    words: tuple[str, ...],
    main: str,
    typed: str,
) -> None:
    assert new(*words) == 0
    assert f"rater run {typed} --size test" in capsys.readouterr().out
    assert load_suite(str(tmp_path / main)).benchmarks[0].command[0].startswith(str(tmp_path))


@pytest.mark.parametrize("existing", ["mine.toml", "mine", "mine/notes.txt"])
def test_nothing_is_ever_overwritten(new: New, tmp_path: Path, existing: str) -> None:
    (tmp_path / existing).parent.mkdir(exist_ok=True)
    (tmp_path / existing).write_text("precious")
    with pytest.raises(InputError, match="there already, nothing was written: take another NAME"):
        new("mine")
    assert tree(tmp_path) == {existing: "precious"}


def test_a_link_to_nowhere_is_something_too(new: New, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").symlink_to("elsewhere")
    with pytest.raises(InputError, match="there already"):
        new("mine")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["a b", "", "..", "a/", ".toml", "n" * 101])
def test_a_name_that_is_none_is_refused(new: New, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="expected a name of at most 100 letters"):
        new(name)
    assert tree(tmp_path) == {}


def test_the_name_of_a_suite_of_rater_is_refused(new: New) -> None:
    with pytest.raises(InputError, match="the name mini is that of a suite that comes with rater"):
        new("mini")


def test_what_cannot_be_finished_is_taken_back(
    new: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int, __: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(InputError, match=r"mine\.toml: No space left on device; name a folder"):
        new("mine")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path, new: New) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="name a folder of yours with --dir"):
        new("file/mine")


def test_the_written_files_are_told_to_programs(
    new: New, capsys: pytest.CaptureFixture[str]
) -> None:
    new("mine", "--json")
    out = capsys.readouterr().out
    assert '"suite": "mine"' in out
    assert '"mine/smooth.sh"' in out


def test_the_command_line_knows_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rater", "suites", "new", "mine"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("written:\n  mine.toml\n")


def test_the_cache_is_trimmed_by_age_and_then_by_size_the_longest_unused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("RATER_CACHE", str(cache))
    days = {"old": 40, "older": 50, "new": 1, "newer": 0}
    for name in days:
        folder = cache / ("build" if "old" in name else "inputs") / name
        folder.mkdir(parents=True)
        (folder / "data").write_bytes(b"x" * 100_000)
    run = cache / "work" / "of-a-run"
    run.mkdir(parents=True)
    now = time.time()

    def used_s(path: Path) -> float:  # nobody can set a ctime back
        return now - 86400 * next(days[part] for part in path.parts if part in days)

    def left() -> set[str]:
        return {path.parent.name for path in cache.rglob("data")}

    monkeypatch.setattr("rater.workflow.machine._used_s", used_s)
    assert rater("suites", "clean", "--dry-run")[1].startswith(f"{cache}: would go: 2 of 4")
    assert left() == days.keys()
    assert rater("suites", "clean")[0] == 0
    assert left() == {"new", "newer"}
    status, out, _ = rater("suites", "clean", "--size", "150k", "--json")
    assert (status, json.loads(out)["removed"], left()) == (0, 1, {"newer"})
    assert run.exists()
