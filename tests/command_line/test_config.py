"""Defaults of options from `rater.toml`: whose they are, what goes before what, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.calls import Rater

PLAN = ("plan", "--topology", "pack:1 core:4 pu:1", "--", "true")


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and one for the user's own file; RATER_CONFIG is not set."""
    monkeypatch.delenv("RATER_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    (tmp_path / "own" / "rater").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def own(folder: Path, text: str) -> None:
    (folder / "own" / "rater" / "config.toml").write_text(text)


def test_options_of_run_hold_for_plan_and_what_is_typed_goes_before_them(
    configuration: Path, rater: Rater
) -> None:
    own(configuration, '[run]\ncopies = 3\ntag = {lab = "a"}\n')
    status, out, err = rater(*PLAN)
    assert (status, "3 copies" in out) == (0, True)
    _, out, _ = rater("plan", "--copies", "2", *PLAN[1:])
    assert "2 copies" in out
    status, out, err = rater("run", "--dry-run", "--", "true")
    assert (status, "3 copies" in out) == (0, True)
    assert f"defaults of {configuration}/own/rater/config.toml: --copies=3 --tag=lab=a" in err


def test_the_folders_file_goes_before_the_users_and_a_commands_own_table_before_anothers(
    configuration: Path, rater: Rater
) -> None:
    own(configuration, "[run]\ncopies = 3\n")
    Path("rater.toml").write_text("[run]\ncopies = 4\n[plan]\ncopies = 2\n")
    assert "2 copies" in rater(*PLAN)[1]
    _, out, err = rater("run", "--dry-run", "--", "true")
    assert "4 copies" in out
    assert "rater: defaults of rater.toml: --copies=4\n" in err


def test_what_only_run_has_is_no_mistake_for_plan(configuration: Path, rater: Rater) -> None:
    own(configuration, "[run]\nverbose = true\ncopies = 3\n")
    status, out, _ = rater(*PLAN)
    assert (status, "3 copies" in out) == (0, True)


def test_a_size_for_suites_does_not_refuse_a_command(configuration: Path, rater: Rater) -> None:
    own(configuration, '[run]\nsize = "ref"\n')
    assert rater(*PLAN)[0] == 0


def test_a_name_for_commands_does_not_refuse_a_suite(configuration: Path, rater: Rater) -> None:
    own(configuration, '[run]\nname = "mine"\n')
    assert rater("run", "mini/lu", "--size", "test", "--dry-run")[0] == 0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[run]\ncopys = 3\n", "2: run.copys: no option of `rater run`; did you mean copies?"),
        ("[run]\nspeccmds-out = true\n", "--copies --json` has the times of every workload"),
        ("[rnu]\ncopies = 3\n", "1: rnu: unknown command; did you mean run?"),
        ("[run]\ntimeout = '1x'\n", "2: run.timeout: expected seconds or a number with a unit"),
        ("[run]\nkeep = 'yes'\n", "2: run.keep: expected true or false, got 'yes'"),
        ("[run]\npreflight = 'of'\n", "expected one of warn, strict, off, got 'of'"),
        ("[run\n", "1:"),
    ],
)
def test_a_mistake_is_named_with_its_line(
    configuration: Path, rater: Rater, text: str, answer: str
) -> None:
    Path("rater.toml").write_text(text)
    status, _, err = rater(*PLAN)
    assert status == 2
    assert f"rater.toml:{answer}" in err or answer in err


def test_a_file_that_others_may_write_is_refused(configuration: Path, rater: Rater) -> None:
    """`prepare = "..."` in it would be theirs to run."""
    Path("rater.toml").write_text("[run]\ncopies = 3\n")
    Path("rater.toml").chmod(0o666)
    status, _, err = rater(*PLAN)
    assert status == 2
    assert "rater.toml: everybody may write into it, and it could have any command run" in err


def test_rater_config_names_the_only_file(
    configuration: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(configuration, "[run]\ncopies = 3\n")
    other = configuration / "other.toml"
    other.write_text("[run]\ncopies = 2\n")
    monkeypatch.setenv("RATER_CONFIG", os.fspath(other))
    assert "2 copies" in rater(*PLAN)[1]
    monkeypatch.setenv("RATER_CONFIG", "/nowhere/at/all")
    assert rater(*PLAN)[2] == "rater: RATER_CONFIG=/nowhere/at/all: no such file\n"
