"""Text of others reaches no terminal with control characters; our colours and cursor do."""

import csv
import json
import os
import pty
import re
import shutil
import sqlite3
import subprocess
import unicodedata
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

from rater.cli import main
from tests.support.calls import RATER, Rater
from tests.support.places import own_places_in

HOSTILE = "=1\x1b]0;own\x07\x1b[31m\x1b[2J\x9b2Jx\x7f\u202e\u2066\rend"
# What is ours on a terminal: colours, erasing and moving, the cursor hidden and shown.
OURS = re.compile(r"\x1b\[(?:[\d;]*[mKAGH]|\?25[lh])|\r")
SHOWING = """
list | show 1 | show 1 --copies | divots 1 | compare 1 2 | export 1 --format csv | plot 1
export 1 --format observations | rerun 1 --dry-run | sweep --list
show 1 --json | list --json | export 1 --format json | run --resume 1 | list --db none\x1b[31m.db
report 1 -o page.html | plot 1 -o plot.svg | report 1 2 -o pages.html | scale 1 2
"""
ENDLESS = f"energy_package-{'9' * 5000}_uj"
KEPT = ("id", "uuid", "name", "pid", "fingerprint", "source", "status", "mode", "run_order")
MORE = ("kind", "boot_id", "benchmark", "layout", "memory")
# Lists, times and JSON are read as what they are.
LISTS = re.compile("(_nodes|cpus|_at|mems|_bytes|request|allowed|finding|visible|unknown)$")


def control_characters(text: str) -> set[str]:
    return {
        repr(it) for it in text if unicodedata.category(it) in ("Cc", "Cf", "Cs") and it != "\n"
    }


@pytest.fixture
def hostile(edited: Path, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that database, to be damaged more."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(edited, database))


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database of two runs, every free text of which somebody has edited."""
    folder = tmp_path_factory.mktemp("edited")
    words = ["run", "--copies", "2", "--env", "A=1", "--tag", "b=1", "--quiet", "--", "true"]
    with pytest.MonkeyPatch.context() as patch:
        database = own_places_in(folder, patch)
        assert [main(words), main(words)] == [0, 0]
    with closing(sqlite3.connect(database, autocommit=True)) as connection:
        tables = "SELECT name, sql FROM sqlite_schema WHERE type = 'table'"
        edited = 0
        for table, text in connection.execute(tables).fetchall():
            for _, column, kind, *_ in connection.execute(f"PRAGMA table_info({table})").fetchall():
                bound = f"CHECK ({column}" in text or re.search(rf"{column} +TEXT[^,]*CHECK", text)
                if (
                    kind == "TEXT"
                    and column not in KEPT + MORE
                    and not bound
                    and not LISTS.search(column)
                ):
                    edited += connection.execute(
                        f"UPDATE {table} SET {column} = ? || coalesce({column}, '')", (HOSTILE,)
                    ).rowcount
        assert edited > 50
    return database


def test_every_command_that_shows_something_shows_it_clean(rater: Rater, hostile: Path) -> None:
    for words in re.split(r"[|\n]", SHOWING.strip()):
        status, out, said = rater(*words.split())
        assert control_characters(out + said) == set(), words
        assert status in (0, 1, 2), words
    status, out, said = rater("export", 1, "--format", "json")
    assert (status, said) == (0, "")
    document = json.loads(out)
    assert document["host"]["hostname"].startswith(HOSTILE)  # values as they are, escaped
    rows = list(csv.reader(StringIO(rater("export", 1, "--format", "csv")[1])))
    assert [cell for row in rows for cell in row if cell.startswith(("=", "+", "@"))] == []
    for file in ("page.html", "pages.html", "plot.svg"):
        shown = re.sub(r"<script.*?</script>", "", Path(file).read_text(), flags=re.DOTALL)
        assert control_characters(shown) <= {"'\\t'"}, file


@pytest.mark.parametrize("damage", ['{"a": "b"}', '{"command": 7, "a": {}}', "[" * 100_000])
def test_what_is_no_json_of_ours_is_damage_that_is_named(
    rater: Rater, hostile: Path, damage: str
) -> None:
    assert rater("divots", 1)[0] == 0
    with closing(sqlite3.connect(hostile, autocommit=True)) as connection:
        divot = "INSERT INTO divot VALUES (1, 0, 'drift', 0, '', '[]', NULL, '', '', '', '', 1, 1,"
        connection.execute(f"{divot} 1.5, 0.5, '', ?)", (damage,))
        for table, column in (
            ("divot_search", "visible"),
            ("observed", "unknown"),
            ("run", "request"),
            ("placement", "memory_nodes"),
        ):
            connection.execute(f"UPDATE {table} SET {column} = ?", (damage,))
            for words in ("list", "show 1", "divots 1", "compare 1 2", "rerun 1 --dry-run"):
                assert rater(*words.split())[0] in (0, 1, 2), (words, column)
    assert "a row is damaged: " in rater("show", 1)[2]
    assert rater("rm", 1, 2)[0] == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE divot_search SET others_cost = 9e999", "others_cost is the number inf"),
        ("UPDATE run SET timeout_s = -9e999", "timeout_s is the number -inf"),
        ("UPDATE observed SET share = 9e999", "share is the number inf"),
        (f"UPDATE phase_reading SET name = '{ENDLESS}' WHERE name = 'allocstall'", ""),
    ],
)
def test_numbers_without_bounds_are_damage_and_not_shown(
    rater: Rater, hostile: Path, change: str, said: str
) -> None:
    assert rater("divots", 1)[0] == 0
    with closing(sqlite3.connect(hostile, autocommit=True)) as connection:
        assert connection.execute(change).rowcount
    for words in ("show 1 --json", "report 1 -o page.html", "compare 1 2 --json"):
        status, _, problem = rater(*words.split())
        assert (status, said in problem) == (2 if said else 0, True), words
    assert rater("rm", 1, 2)[0] == 0


def test_on_a_terminal_only_our_own_control_sequences_are_written(hostile: Path) -> None:
    coloured = 0
    for words in ("list", "show 1 --copies", "compare 1 2", "plot 1", "run --copies 1 -- true"):
        ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        with subprocess.Popen(
            [*RATER, *words.split()], stdout=theirs, stderr=theirs, env=environment
        ) as running:
            os.close(theirs)
            seen = b""
            while True:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # the last one who wrote is gone
                    break
                seen += part
        os.close(ours)
        text = seen.decode()
        assert running.returncode in (0, 1), text
        coloured += "\x1b[1m" in text
        assert control_characters(OURS.sub("", text)) == set(), words
    assert coloured


def test_errors_about_names_are_clean(rater: Rater) -> None:
    for words in (
        ("show", "a\x1b[31mb"),
        ("run", "no\x1b]0;x\x07ne"),
        ("--db", "x\x9b.db", "list"),
    ):
        status, out, said = rater(*words)
        assert status in (0, 2)
        assert control_characters(out + said) == set()
