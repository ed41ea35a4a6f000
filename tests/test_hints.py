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

from rater.cli import main
from rater.process import DISTRIBUTION, as_typed, pip_install, remember_database, remember_runs
from tests.support.calls import Done, rater
from tests.support.observations import observed
from tests.support.places import CHECKOUT

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


def test_a_run_of_a_fleet_keeps_its_word() -> None:
    remember_runs({1: "fleet:4/n3"})
    assert as_typed("`rater show 1 --counters`") == "`rater show fleet:4/n3 --counters`"
    assert as_typed("`rater show 11`") == "`rater show 11`"


def test_a_program_that_is_not_on_the_path_is_named_with_its_folder_and_can_be_typed(
    tmp_path: Path,
) -> None:
    """As a process of its own: the first hint is typed into a shell as it stands."""
    (tmp_path / "env").symlink_to(PROGRAM.parent)
    database = {"PATH": "/usr/bin:/bin", **{k: v for k, v in os.environ.items() if "RATER" in k}}

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
    there = ["--db", "own/w.db"]
    Path("own").mkdir()
    rows = [
        {"iteration": k, "copy": c, "cpu": c, "node": c // 8, "elapsed_s": 9 + 0.01 * k + c // 8}
        for k in (1, 2, 3)
        for c in range(16)
    ]
    Path("times.json").write_text(json.dumps(observed(*rows, copies=16)))
    said = [
        rater("run", "--copies", 2, "--iterations", 3, *there, "--", "sh", "-c", ":"),
        rater("import", "times.json", *there),
        rater("run", "--copies", 2, *there, "--", "sh", "-c", "exit 3"),
        rater("sweep", "--axis", "copies=1,2", "--rounds", 2, *there, "--", "true"),
        rater("show", 1),
    ]
    screens = [it.split() for it in SCREENS.replace("\n", "|").split("|") if it.strip()]
    for words in screens:
        at = words.index("--") if "--" in words else len(words)
        said.append(rater(*words[:at], *there, *words[at:]))
    typed = dict.fromkeys(hint for done in said for hint in hints(done))
    assert len(typed) > 12
    wrong = {}
    for line in typed:
        for part in line.split("&&"):
            (_, *words) = shlex.split(part.partition("|")[0].partition(">")[0])
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


def test_help_ends_with_commands_of_this_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/x/rater"])
    with pytest.raises(SystemExit):
        main(["show", "--help"])
    assert "\n  /opt/x/rater show last\n" in capsys.readouterr().out
