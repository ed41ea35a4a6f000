"""Commands that a screen or a message suggests: each can be typed as it stands."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rater.commands.cli import main
from rater.system import process
from rater.system.process import (
    DISTRIBUTION,
    as_typed,
    pip_install,
    remember_database,
    remember_runs,
)
from rater.workflow.run import repeat, session
from tests.support.calls import Done, rater
from tests.support.observations import observed
from tests.support.places import CHECKOUT
from tests.support.wings import is_command

QUOTED = re.compile(r"`([^`\n]*\brater [^`\n]*)`")
PROGRAM = Path(sys.executable).with_name("rater")
# What stands for something of the reader's: RUN, SUITE/BENCHMARK, NAME=VALUE,..., ./mybench.
FOR_ANOTHER = re.compile(r"\b[A-Z]{3,}|\.\.\.|=N\b|\./")


@pytest.fixture(autouse=True)
def _forget() -> None:
    remember_database(None)


def hints(done: Done) -> list[str]:
    """Return the commands on both streams that name what there is."""
    found = QUOTED.findall(done.stdout + done.stderr)
    return [it for it in found if not FOR_ANOTHER.search(it.replace("RATER_", ""))]


@pytest.mark.parametrize(
    ("argv", "text", "typed"),
    [
        ("rater", "`rater show 7` shows it", "`rater show 7` shows it"),
        (".venv/bin/rater", "see `rater show 7`", "see `.venv/bin/rater --db w.db show 7`"),
        (".venv/bin/rater", "`rater plan` or `rater rm 7`",
         "`.venv/bin/rater plan` or `.venv/bin/rater --db w.db rm 7`"),
        (".venv/bin/rater", "more: `rater show --help`", "more: `.venv/bin/rater show --help`"),
        (".venv/bin/rater", "`rater rerun 7 && rater divots 7 last`",
         "`.venv/bin/rater --db w.db rerun 7 && .venv/bin/rater --db w.db divots 7 last`"),
        (".venv/bin/rater", "`cat x | rater spec import -`",
         "`cat x | .venv/bin/rater --db w.db spec import -`"),
        ("a b/rater", "`rater show 1`", "`'a b/rater' --db w.db show 1`"),
        ("/usr/lib/pytest", "`rater show 1`", "`rater --db w.db show 1`"),
        ("rater", "rater show 7 in prose, `RATER_DB`", "rater show 7 in prose, `RATER_DB`"),
    ],
)  # fmt: skip
def test_a_command_is_told_as_it_can_be_typed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, argv: str, text: str, typed: str
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "rater"
    own.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(own) if argv == "rater" else argv])
    remember_database(None if argv == "rater" else "w.db")
    if not (path := Path(argv)).exists() and not path.is_absolute():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o755)
    assert as_typed(text) == typed
    assert as_typed(typed) == typed, "said once, it is not said again"


@pytest.mark.parametrize(
    ("folders", "typed"),
    [("bin", "rater"), ("{start}/bin", "rater"), ("/nowhere", "bin/rater")],
)
def test_a_program_called_by_a_relative_path_is_known_wherever_rater_went(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folders: str, typed: str
) -> None:
    start, elsewhere = tmp_path / "start", tmp_path / "elsewhere"
    (start / "bin").mkdir(parents=True)
    (start / "bin/rater").touch(mode=0o755)
    elsewhere.mkdir()
    monkeypatch.setattr(process, "_START_DIRECTORY", start)
    monkeypatch.setattr(sys, "argv", ["bin/rater"])
    monkeypatch.setenv("PATH", folders.format(start=start))
    monkeypatch.chdir(elsewhere)
    assert as_typed("`rater show 1`") == f"`{typed} show 1`"


def test_a_run_of_a_fleet_keeps_its_word() -> None:
    remember_runs({1: "fleet:4/n3"})
    assert as_typed("`rater show 1 --counters`") == "`rater show fleet:4/n3 --counters`"
    assert as_typed("`rater show 11`") == "`rater show 11`"


def test_a_program_that_is_not_on_the_path_is_named_with_its_folder_and_can_be_typed(
    tmp_path: Path,
) -> None:
    """As a process of its own: the first hint is typed into a shell as it stands."""
    (tmp_path / "env").symlink_to(PROGRAM.parent)
    database = {
        "PATH": "/usr/bin:/bin",
        **{key: value for key, value in os.environ.items() if "RATER" in key},
    }

    def shell(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line,
            shell=True,
            cwd=tmp_path,
            env=database,
            capture_output=True,
            text=True,
            check=False,
        )

    assert shell("env/rater --db 'w w.db' run --iterations 2 -- true").returncode == 0
    told = shell("env/rater show 9 --db 'w w.db'").stderr
    (hint,) = QUOTED.findall(told)
    assert hint == "env/rater --db 'w w.db' list"
    assert shell(hint).returncode == 0


def test_messages_and_pages_name_the_distribution_that_setup_cfg_has() -> None:
    config = configparser.ConfigParser()
    config.read(CHECKOUT / "setup.cfg")
    assert config["metadata"]["name"] == DISTRIBUTION
    extras = config["options.extras_require"]
    assert pip_install("[report]").endswith(f"-m pip install '{DISTRIBUTION}[report]'")
    wrong = []
    for pattern in ("rater/**/*.py", "tests/**/*.py", "docs/**/*.md", "*.md", "Makefile"):
        for path in CHECKOUT.glob(pattern):
            text = path.read_text()
            for found in re.findall(r"\b(?<!-)rater(?:-bench)?\[[a-z]+\]", text):
                name, _, extra = found.removesuffix("]").partition("[")
                if name != DISTRIBUTION or extra not in extras:
                    wrong.append(f"{path}: {found}")
            told = text.replace("(`pip install rater` installs", "")
            wrong += re.findall(r"(?:pip|pipx|uv tool) install '?rater(?!-bench)\b", told)
    assert wrong == []


SCREENS = """
list | show 1 | show 1 --copies | show 1 --proof | show 1 --cpus | show 1 --counters | show 2
show 3 | divots 1 | divots 2 | divots 3 -v | show plot 2 | compare 1 3 | compare sweep:1
scale sweep:1 | sweep --show 1 | sweep --list | suites | suites show mini | plan layouts
settings | doctor counters | doctor | doctor -v | plan mini | topo | show 99 | show 99999999
divots tag:no=1 | sweep --show 9 | fleet list | sweep --resume 9 | compare 1 | scale 1
show plot 1 --cpi | lab trace --list | lab model last | fleet status | run nosuite
rerun 2 --dry-run | run --resume 1 | divots --confirm 2 | rm 99 | divots --confirm 1 | export 2
lab pages --show 1 | run --counters no -- true
"""


def test_each_command_that_a_screen_suggests_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    options = ["--db", "own/w.db"]
    Path("own").mkdir()
    rows = [
        {
            "iteration": iteration,
            "copy": copy,
            "cpu": copy,
            "node": copy // 8,
            "elapsed_s": 9 + 0.01 * iteration + copy // 8,
        }
        for iteration in (1, 2, 3)
        for copy in range(16)
    ]
    Path("times.json").write_text(json.dumps(observed(*rows, copies=16)))
    said = [
        rater("run", "--copies", 2, "--iterations", 3, *options, "--", "sh", "-c", ":"),
        rater("import", "times.json", *options),
        rater("run", "--copies", 2, *options, "--", "sh", "-c", "exit 3"),
        rater("sweep", "--axis", "copies=1,2", "--rounds", 2, *options, "--", "true"),
        rater("show", 1),
    ]
    written = [it for it in SCREENS.replace("\n", "|").split("|") if it.strip()]
    screens = [it.split() for it in written if is_command(it)]
    for words in screens:
        at = words.index("--") if "--" in words else len(words)
        said.append(rater(*words[:at], *options, *words[at:]))
    typed = dict.fromkeys(hint for done in said for hint in hints(done))
    assert len(typed) > 12
    wrong = {}
    for line in typed:
        for part in line.split("&&"):
            (_, *words) = shlex.split(part.partition("|")[0].partition(">")[0])
            if "checkup" in words:  # it takes minutes: tests/workflow/test_checkup.py
                continue
            doing = {"run", "rerun", "sweep", "--confirm"} & set(words)
            if doing and not {"--show", "--list"} & set(words):
                words.append("--dry-run")
            try:
                done = rater(*words)
            except SystemExit:  # of the parser, which has said why
                wrong[line] = "not taken"
            else:
                wrong |= {line: done.stderr} if done.returncode not in (0, 1) else {}
    assert wrong == {}


def test_in_help_rater_stands_for_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/a-folder-with-a-long-name/bin/rater"])
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    text = capsys.readouterr().out
    assert "`rater run -- COMMAND ...`" in " ".join(text.split())
    assert "/opt/" not in text


READING = """
list | show 1 | divots | compare 1 2 | scale 1 | export 1 | report 1 | show plot 1 | sweep --list
sweep --show 1 | fleet list | fleet history n1 | lab trace --list | lab model 1 | rm 1 | rerun 1
"""


@pytest.mark.parametrize(
    "words", [it for it in READING.replace("\n", "|").strip("|").split("|") if is_command(it)]
)
def test_a_database_that_is_not_there_is_a_mistake_where_it_is_named(
    tmp_path: Path, words: str
) -> None:
    done = rater(*words.split(), "--db", tmp_path / "typo.db")
    assert (done.returncode, "there is no database" in done.stderr) == (2, True)
    assert list(tmp_path.glob("typo*")) == []


def test_a_pipe_gets_tables_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "a-benchmark-with-a-rather-long-name"
    rater("run", "--name", name, "--tag", "why=" + "because-" * 9, "--", "true")
    (row,) = [line for line in rater("list").stdout.splitlines() if name in line]
    assert "why=" + "because-" * 9 in row and "…" not in row
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, rater("list").stdout.splitlines())) <= 80


def test_several_programs_behind_dashes_are_one_and_that_is_said() -> None:
    done = rater("run", "--copies", 1, "--", "echo", "a,b", "--", "true")
    assert done.returncode == 0
    assert "one program runs, with all behind echo as its arguments" in done.stderr
    assert "rater run -- echo a,b : true" in hints(done)
    told = {hint for hint in hints(done) if "--axis" in hint}
    assert told == {r"rater sweep --axis 'command=echo a\,b,true'"}
    assert "one program runs" not in rater("run", "--", "true", "--", "no/such/program").stderr


def test_several_programs_behind_dashes_do_not_rotate_and_are_refused() -> None:
    done = rater("run", "--mode", "rotated", "--", "true", "--", "sleep", 0)
    assert done.returncode == 2
    assert "2 programs are divided by --, which are arguments of the first one" in done.stderr
    assert "rater run --mode rotated -- true : sleep 0" in hints(done)
    done = rater("run", "--mode", "rotated", "--dry-run", "--", "true")
    assert "there is no benchmark but true, so nothing rotates" in done.stdout


def test_a_command_of_several_threads_gets_as_many_cpus_and_a_suite_says_it_itself() -> None:
    options = ("--dry-run", "--copies", 1, "--threads", 2)
    assert "2 CPUs for each copy" in rater("run", *options, "--", "true").stdout
    done = rater("run", "mini", "--threads", 2)
    assert (done.returncode, "in a suite each benchmark has its own" in done.stderr) == (2, True)
    assert "from 1 to" in rater("run", "--threads", 0, "--", "true").stderr


def test_a_dry_run_tells_when_each_copy_starts() -> None:
    done = rater("run", "--copies", 3, "--stagger", 300, "--dry-run", "--", "true")
    starts = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("   ")]
    assert starts[1:4] == ["0", "0.3", "0.6"]
    at_once = rater("run", "--copies", 3, "--dry-run", "--", "true").stdout
    assert "starts" not in at_once


def test_a_run_that_counted_nothing_of_what_was_asked_for_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "ready_counters", lambda *_: (None, ("counters: none here",)))
    done = rater("run", "--counters", "software", "--copies", 1, "--", "true")
    assert (done.returncode, json.loads(rater("list", "--json").stdout)[0]["status"]) == (
        1,
        "complete",
    )
    assert "run 1: --counters software: nothing was counted" in done.stderr
    assert rater("run", "--copies", 1, "--", "true").returncode == 0


@pytest.mark.usefixtures("own_cache")
def test_where_copies_worked_is_said_before_and_after() -> None:
    words = ("run", "--copies", 1, "--run-dirs", "--keep")
    plan = rater(*words, "--dry-run", "--", "true").stdout
    place = Path(os.environ["RATER_CACHE"]) / "work"
    assert f"each in a directory of its own below {place}" in " ".join(plan.split())
    assert "directory of its own" not in rater("run", "--dry-run", "--", "true").stdout
    rater(*words, "--", "sh", "-c", "echo here > mark")
    (mark,) = place.rglob("mark")
    told = rater("show", 1).stdout
    assert f" {mark.parent}\n" in told and "directories of 1 copy" in told


def test_a_dry_run_says_what_settings_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "tuned_settings_of", lambda _: {"numa.balancing": "0"})
    sets = rater("run", "--tuned", "--dry-run", "--", "true").stdout
    assert "sets    numa.balancing=0" in sets
    monkeypatch.setattr(repeat, "tuned_settings_of", lambda _: {})
    assert "sets    nothing:" in rater("run", "--tuned", "--dry-run", "--", "true").stdout


def test_a_list_keeps_date_and_time_beside_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    rater("run", "--copies", 1, "--tag", f"why={'because-' * 9}", "--", "true")
    rater("run", "--copies", 1, "--name", "a-long-name-of-a-program", "--", "true")
    text = rater("list").stdout
    assert "started (UTC)" in text and "why=because" in text
    assert all(len(line) <= 80 for line in text.splitlines())


@pytest.mark.parametrize(("first_s", "is_divot"), [(0.007, False), (0.05, True)])
def test_a_program_read_from_disk_once_is_no_divot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_s: float, is_divot: bool
) -> None:
    """Copies of 40 ms of CPU time wait in the first iteration, while their CPU does nothing."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"iteration": iteration, "copy": copy, "cpu": copy, "core": copy, "node": 0, "cpu_s": 0.04}
        | {"elapsed_s": 0.04 + 1e-5 * (copy * iteration % 7) + first_s * (iteration == 1)}
        for iteration in (1, 2, 3)
        for copy in range(8)
    ]
    Path("times.json").write_text(json.dumps(observed(*rows, copies=8)))
    rater("import", "times.json")
    kinds = [divot["kind"] for divot in json.loads(rater("divots", "--json").stdout)["divots"]]
    assert ("startup" in kinds) == is_divot and "slow-iteration" not in kinds
