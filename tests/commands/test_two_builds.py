"""Two builds of a program beside each other: an axis of commands, and runs of one name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.calls import Rater, rows

TINY = ("--copies", "1", "--proof", "off", "--share", "--quiet")


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("old", "new"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/ran\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def test_an_axis_of_commands_runs_each_and_compares_them_as_one_benchmark(
    rater: Rater, builds: Path
) -> None:
    axis = ("--axis", "command=./old -x 'a b',./new")
    assert rater("sweep", *TINY, *axis, "--rounds", "2") == (0, "", "")
    assert sorted((builds / "ran").read_text().splitlines()) == ["new "] * 2 + ["old -x a b"] * 2
    document = json.loads(rater("compare", "sweep:1", "--json")[1])
    assert [it["benchmark"] for it in document["benchmarks"]] == ["command"]
    assert [it["label"] for it in document["benchmarks"][0]["points"]] == ["command=./new"]
    assert document["differences"] == []  # which command it was is the axis
    shown = rater("sweep", "--show", "1")[1].splitlines()
    assert shown[0] == "sweep 1 of 2 commands: 2 points, 2 rounds"
    assert shown[1] == "  command (option): ./old -x 'a b', ./new"


def test_flags_of_one_program_keep_its_name_and_a_file_can_have_the_axis(
    rater: Rater, builds: Path
) -> None:
    (builds / "s.toml").write_text(
        '[sweep]\nrounds = 1\n[axes]\ncommand = ["./old -a", "./old -b"]\n'
        '[run]\ncopies = "1"\nproof = "off"\nshare = true\n'
    )
    assert rater("sweep", "s.toml", "--quiet")[0] == 0
    assert rows("SELECT DISTINCT name FROM benchmark") == [("old",)]
    assert sorted((builds / "ran").read_text().splitlines()) == ["old -a", "old -b"]


def test_runs_of_one_name_are_compared_and_a_rerun_keeps_it(rater: Rater, builds: Path) -> None:
    for build in ("old", "new"):
        assert rater("run", *TINY, "--name", "mine", "--", f"./{build}")[0] == 0
    assert rater("rerun", "2", "--quiet", "--share")[0] == 0
    assert rows("SELECT DISTINCT name FROM benchmark") == [("mine",)]
    status, out, _ = rater("compare", "1", "2")
    assert status == 0
    assert "  command of mine:" in out  # told above the table: it is no axis
    assert [line.split()[0] for line in out.splitlines() if line.startswith("mine")] == ["mine"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "mini", "--name", "x"], "--name x is for a command behind `--`: leave it out"),
        (["run", "--name", "a/b", "--", "./old"], "--name 'a/b': expected 1 to 60 printable"),
        (["run", "--name", " ", "--", "./old"], "--name ' ': expected 1 to 60 printable"),
        (
            ["sweep", "--axis", "command=./old,./new", "--", "./old"],
            "command is an axis of this sweep: leave what follows `--` out",
        ),
        (["sweep", "--axis", 'command=./old ",./new'], "axis command './old \"': No closing"),
        (["sweep", "--axis", "command=./old,"], "command=(none): nothing behind `--`"),
        (["sweep", "--axis", "command=./old,./gone"], "1 of 2 points cannot run here"),
        (["sweep", "mini", "--axis", "command=./old,./new"], "both a suite (mini) and a command"),
    ],
)
def test_what_is_no_command_or_name_is_refused_before_anything_runs(
    rater: Rater, builds: Path, words: list[str], said: str
) -> None:
    status, _, err = rater(*words)
    assert status == 2
    assert said in err
    assert not (builds / "ran").exists()
