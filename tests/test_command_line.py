"""Words that `rater` does not know, defaults from `rater.toml`, numbers no run has, completion."""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import io
import json
import os
import resource
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from rater.commands.cli import MENU, build_parser, main
from rater.commands.command_line import RENAMED, Parser, parsers_below, shown_actions, subparsers_of
from rater.commands.machine import SHELLS
from rater.plan.request import OPTIONS
from rater.store.observations import MOST_BENCHMARKS
from rater.system.process import print_error
from tests.support.calls import Rater
from tests.support.observations import DOCUMENT, changed
from tests.support.strangers import give, needs_root, stranger_does, stranger_keeps
from tests.support.wings import ABSENT, is_command


def test_rater_alone_shows_its_help(rater: Rater) -> None:
    status, out, _ = rater()
    assert (status, out[:12]) == (0, "usage: rater")


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, begins in (("help", "usage: rater ["), ("help divots", "usage: rater divots [")):
        with pytest.raises(SystemExit) as left:
            main(words.split())
        assert left.value.code == 0
        assert capsys.readouterr().out.startswith(begins)


@pytest.fixture
def files_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program, a text and a file of 10 MB where the command line is typed."""
    monkeypatch.chdir(tmp_path)
    Path("prog").write_text("#!/bin/sh\n")
    Path("prog").chmod(0o755)
    Path("notes.txt").write_text("what to do\n")
    with Path("big.txt").open("wb") as file:
        file.truncate(10_000_001)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("sleep 1", "sleep is not a command of rater; to measure that program: "
         "`rater run -- sleep 1`"),
        ("--json sleep 1", "to measure that program: `rater run -- sleep 1`"),
        ("lst", "unknown command 'lst'; did you mean `rater list`?"),
        ("xyzzy", "unknown command 'xyzzy'; `rater help` lists the commands"),
        ("run sleep 1", "unknown suite 'sleep'; to measure that program: `rater run -- sleep ...`"),
        ("run ./prog", "./prog is a program, not a suite; to measure that program: "
         "`rater run -- ./prog ...`"),
        ("run prog", "to measure that program: `rater run -- ./prog ...`"),
        ("prog -x", "prog is not a command of rater; to measure that program: "
         "`rater run -- ./prog -x`"),
        ("run ./big.txt", "./big.txt is no suite, which is a TOML file; to measure a program with "
         "that file: `rater run -- PROGRAM ./big.txt`"),
        ("run notes.txt", "`rater run -- PROGRAM notes.txt`"),
        ("run --coppies 3", "rater run has no option --coppies; did you mean --copies?"),
        ("compare", "required: POINT\n  as in: `rater compare 7 8`; more: `rater compare --help`"),
        ("import", "required: FILE\n  as in: `rater import times.json more.json`; more: `rater"),
        ("show 1 2", "rater show takes no further argument '2'"),
        ("run --timeout 1x", "argument --timeout: expected seconds or a number with a unit"),
        ("run --iterations x", "argument --iterations: expected a whole number, got 'x'"),
        ("export 1 --format jsn", "argument --format: 'jsn' is no choice; did you mean json?"),
        ("-- sleep 1", "to measure a program: `rater run -- sleep 1`"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_the_way_out(
    rater: Rater,
    capsys: pytest.CaptureFixture[str],
    files_here: None,
    words: str,
    answer: str,
) -> None:
    try:
        status, _, err = rater(*words.split())
    except SystemExit as left:  # of argparse
        status, err = int(str(left.code)), capsys.readouterr().err
    assert status == 2
    assert answer in err
    assert len(err.splitlines()) <= 2


def test_the_help_of_rater_shows_every_command_once_by_group_and_fits_24_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = build_parser()
    lines = parser.format_help().splitlines()
    assert len(lines) <= 23  # and the prompt
    assert max(map(len, lines)) <= 80
    assert lines[3].split()[:2] == ["measure:", "run"]
    about = {name: it.about for group in MENU.values() for name, it in group.items()}
    assert set(about) == set(subparsers_of(parser))
    text = "\n".join(lines)
    top = [name for name in about if " " not in name]
    assert len(top) <= 27
    assert [name for name in top if f"{name:<11}{about[name]}" not in text] == []
    assert [words for words in about.values() if not 0 < len(words) <= 23] == []


def test_a_command_of_two_words_stands_in_the_help_of_the_first() -> None:
    parsers = subparsers_of(build_parser())
    for name in ("show plot", "doctor counters", "settings restore", "plan layouts"):
        assert f"\n  rater {name} " in parsers[name.split()[0]].format_help()


@pytest.mark.parametrize(
    ("old", "new"), [(old, new) for old, new in RENAMED.items() if is_command(new)]
)
def test_an_old_name_answers_with_the_new_one(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([*old.split(), "--help"])
    out, err = capsys.readouterr()
    assert (left.value.code, err) == (0, f"rater: `rater {old}` is `rater {new}` now\n")
    assert out.startswith(f"usage: rater {new} ")


def test_a_database_may_be_called_as_a_command_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text("[list]\nlimit = 3\n[show]\ncpus = true\n")
    monkeypatch.setenv("RATER_CONFIG", str(tmp_path / "config.toml"))
    assert main(["--db", "show", "list"]) == 2
    assert f"there is no database {tmp_path}/show;" in capsys.readouterr().err


def test_files_and_options_may_be_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["import", "a.json", "--json", "b.json"]) == 2
    errors = json.loads(capsys.readouterr().out)["errors"]
    assert [error.partition(";")[0].split()[-1] for error in errors] == ["a.json", "b.json"], errors


@pytest.mark.parametrize("words", [["--help"], ["list"], ["doctor", "counters", "--help"]])
def test_no_parser_of_another_command_is_built(words: list[str]) -> None:
    script = (
        "import sys\nfrom rater.commands.cli import main\n"
        f"try: main({words})\nexcept SystemExit: pass\n"
        "print(*(it for it in sys.modules if it.startswith('rater.')), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    others = {
        "rater.commands.runs",
        "rater.lab.commands",
        "rater.fleet.commands",
    }
    assert others.isdisjoint(done.stderr.split())


def test_on_a_narrow_terminal_each_command_has_a_line_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = build_parser().format_help()
    assert "\n          plan       what would run where\n" in text


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _every(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for sub in subparsers_of(parser).values():
        yield from _every(sub)


def test_no_line_of_any_help_is_wider_than_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parsers = list(_every(build_parser()))
    helps = [parser.format_help() for parser in parsers]
    helps += [parser.format_whole_help() for parser in parsers if isinstance(parser, Parser)]
    assert len(helps) > 30
    assert [line for text in helps for line in text.splitlines() if len(line) > 80] == []


def test_the_help_of_a_command_of_many_options_begins_with_one_line_of_usage() -> None:
    parsers = subparsers_of(build_parser())
    for name in ("run", "sweep"):
        first, second = parsers[name].format_help().splitlines()[:2]
        assert first == f"usage: rater {name} [OPTION ...] [SUITE[/BENCHMARK] ...]"
        assert second == ""


def test_the_help_of_run_fits_a_person_and_help_all_has_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    parser = subparsers_of(build_parser())["run"]
    short = parser.format_help()
    assert len(short.splitlines()) < 80
    assert "  --copies N" in short and "--check-limit" not in short
    assert f"{len(parser.seldom)} more options: `rater run --help-all`\n" in short
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help-all"])
    assert ended.value.code == 0
    whole = capsys.readouterr().out
    options = [
        action.option_strings[0] for action in shown_actions(parser) if action.option_strings
    ]
    assert [option for option in options if f"  {option}" not in whole] == []
    assert short == parser.format_help()  # as it was before


@pytest.mark.parametrize("name", ["bundle", "checkup", "list", "history"])
def test_help_all_of_a_command_without_seldom_options_is_its_help(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = subparsers_of(build_parser())[name]
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--help-all"])
    assert (ended.value.code, capsys.readouterr().out) == (0, parser.format_whole_help())
    assert "--help-all" not in parser.format_help() or parser.seldom


def test_a_message_on_a_terminal_is_broken_between_words_and_a_path_stays_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "31")
    monkeypatch.setattr(sys, "stderr", err := _Terminal())
    print_error("warning: the copies share it with\n/a/path/that/is/longer/than/a/line/of/it")
    assert err.getvalue().splitlines() == [
        "rater: warning: the copies",
        "    share it with",
        "/a/path/that/is/longer/than/a/line/of/it",
    ]


def test_a_message_in_a_file_stays_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "31")
    monkeypatch.setattr(sys, "stderr", err := io.StringIO())
    print_error("warning: the copies share the machine with them")
    assert err.getvalue() == "rater: warning: the copies share the machine with them\n"


PLAN = ("plan", "--topology", "pack:1 core:4 pu:1", "--", "true")


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and one for the user's own file; RATER_CONFIG is not set."""
    monkeypatch.delenv("RATER_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "own" / "rater").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def write_config(folder: Path, text: str) -> None:
    (folder / "own" / "rater" / "config.toml").write_text(text)


def test_options_of_run_hold_for_plan_and_what_is_typed_goes_before_them(
    configuration: Path, rater: Rater
) -> None:
    write_config(configuration, '[run]\ncopies = 3\ntag = {lab = "a"}\n')
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
    write_config(configuration, "[run]\ncopies = 3\n")
    Path("rater.toml").write_text("[run]\ncopies = 4\n[plan]\ncopies = 2\n")
    assert "2 copies" in rater(*PLAN)[1]
    _, out, err = rater("run", "--dry-run", "--", "true")
    assert "4 copies" in out
    assert "rater: defaults of rater.toml: --copies=4\n" in err


def test_what_only_run_has_is_no_mistake_for_plan(configuration: Path, rater: Rater) -> None:
    write_config(configuration, "[run]\nverbose = true\ncopies = 3\n")
    status, out, _ = rater(*PLAN)
    assert (status, "3 copies" in out) == (0, True)


def test_a_size_for_suites_does_not_refuse_a_command(configuration: Path, rater: Rater) -> None:
    write_config(configuration, '[run]\nsize = "ref"\n')
    assert rater(*PLAN)[0] == 0


def test_a_name_for_commands_does_not_refuse_a_suite(configuration: Path, rater: Rater) -> None:
    write_config(configuration, '[run]\nname = "mine"\n')
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


RUNS = '[run]\nprepare = "touch prepared"\nquiet = true\ncopies = 1\n'


@pytest.mark.parametrize(
    ("text", "words", "doubted"),
    [
        (RUNS, ("run", "--", "true"), "--prepare=touch prepared --quiet"),
        ('[run]\nenv = "LD_PRELOAD=evil.so"\n', PLAN, "--env=LD_PRELOAD=evil.so"),
        ("[rerun]\ndb = 'evil.db'\nforce = true\n", ("rerun",), "--db=evil.db --force"),
        ("[list]\ndb = 'evil.db'\n", ("list",), "--db=evil.db"),
    ],
)
def test_what_came_with_a_folder_runs_names_hides_and_forces_nothing_before_it_is_trusted(
    configuration: Path, rater: Rater, text: str, words: tuple[str, ...], doubted: str
) -> None:
    Path("rater.toml").write_text(text)
    status, out, err = rater(*words)
    assert (status, out) == (2, "")
    assert f"rater.toml: not trusted to give {doubted}: `rater trust` takes" in err
    assert not Path("prepared").exists()


def test_a_folder_s_file_is_trusted_as_it_is_and_named_even_where_it_says_quiet(
    configuration: Path, rater: Rater
) -> None:
    file = Path("rater.toml").absolute()
    file.write_text(RUNS)
    status, out, err = rater("trust")
    assert (status, out) == (0, f"{file}\n")
    assert "run: --prepare=touch prepared --quiet --copies=1" in err
    (mark,) = (configuration / "state" / "rater" / "trusted").iterdir()
    assert mark.stat().st_mode & 0o777 == 0o600
    status, out, err = rater("run", "--quiet", "--", "true")
    assert (status, Path("prepared").exists()) == (0, True)
    assert err == "rater: defaults of rater.toml: --prepare=touch prepared --copies=1\n"
    file.write_text(RUNS + "iterations = 2\n")
    assert rater("run", "--", "true")[0] == 2  # another text
    file.write_text(RUNS)
    Path("copied").mkdir()
    shutil.copy(file, "copied")
    os.chdir("copied")
    assert rater("run", "--", "true")[0] == 2  # another folder
    assert json.loads(rater("trust", "--list", "--json")[1])["trusted"] == [str(file)]
    assert rater("trust", "--remove", "..")[0] == 0
    assert rater("trust", "--remove", "..")[0] == 2
    os.chdir("..")
    assert rater("run", "--", "true")[0] == 2


@needs_root
def test_a_file_of_another_user_is_read_once_and_only_where_root_trusts_its_text(
    configuration: Path, rater: Rater, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shared)
    Path("rater.toml").write_text(RUNS)
    give(Path("rater.toml"))
    status, _, err = rater(*PLAN)
    assert status == 2
    assert "rater.toml: it is a file of user 1234, and it could have any command run" in err
    assert rater("trust")[0] == 0
    assert "1 copy" in rater(*PLAN)[1]
    stranger_does("sed s/prepared/evil/ rater.toml > new; cat new > rater.toml", shared)
    assert rater(*PLAN)[0] == 2


@needs_root
def test_a_file_that_another_user_swaps_all_the_time_gives_root_nothing(
    configuration: Path, rater: Rater, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Judged by its name and opened again, it was theirs at the first try."""
    ours = configuration / "root.toml"
    ours.write_text("[run]\ncopies = 1\n")
    (shared / "evil.toml").write_text(RUNS)
    give(shared / "evil.toml")
    shared.chmod(0o755)
    give(shared)
    monkeypatch.chdir(shared)
    swaps = f"ln -sfn {ours} a; mv -T a rater.toml; ln -f evil.toml a; mv -T a rater.toml"
    with stranger_keeps(swaps, shared):
        for _ in range(20):
            err = rater("run", "--quiet", "--copies", "1", "--", "true")[2]
            assert "--prepare" not in err
    assert not Path("prepared").exists()


def test_rater_config_names_the_only_file(
    configuration: Path, rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(configuration, "[run]\ncopies = 3\n")
    other = configuration / "other.toml"
    other.write_text("[run]\ncopies = 2\n")
    monkeypatch.setenv("RATER_CONFIG", os.fspath(other))
    assert "2 copies" in rater(*PLAN)[1]
    monkeypatch.setenv("RATER_CONFIG", "/nowhere/at/all")
    assert rater(*PLAN)[2] == "rater: RATER_CONFIG=/nowhere/at/all: no such file\n"


MANY = 2147483647


@pytest.fixture
def memory() -> Iterator[None]:
    """2 GiB more of addresses than tests before took: an array of so many copies would not fit."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + (2 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            f"run --copies {MANY} -- true",
            "--copies '2147483647': expected a number from 1 to 99999",
        ),
        (f"plan --copies {MANY} -- true", "expected a number from 1 to 99999"),
        (f"sweep --axis copies=1,{MANY} -- true", "copies=2147483647: --copies '2147483647': exp"),
        ("sweep sweep.toml", "--copies '2147483647': expected a number from 1 to 99999"),
        (
            "run --layout ./layout.toml -- true",
            "counts.rest: expected a whole number from 0 to 99999",
        ),
        ("import copies.json", "run.copies: expected a whole number from 1 to 99999, got the"),
        ("import copy.json", "observations[0].copy: expected a whole number from 0 to 1"),
        ("import benchmarks.json", "10001 benchmarks, expected at most 10000 in a run"),
        (f"run --iterations {MANY} -- true", "copy runs, expected at most 5000000"),
        (f"sweep --rounds {MANY} --axis copies=1,2 -- true", "expected 1 to 10000"),
    ],
)
def test_what_people_and_documents_ask_for(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rater: Rater
) -> None:
    monkeypatch.chdir(tmp_path)
    first = DOCUMENT["observations"][0]
    rows = [first | {"benchmark": f"b{number}"} for number in range(MOST_BENCHMARKS + 1)]
    for name, value in {
        "copies.json": changed("run.copies", MANY),
        "copy.json": DOCUMENT | {"observations": [first | {"copy": MANY - 1}]},
        "benchmarks.json": DOCUMENT | {"observations": rows},
    }.items():
        Path(name).write_text(json.dumps(value))
    Path("sweep.toml").write_text(
        f'[sweep]\nsuites = ["mini"]\nrounds = 1\n[axes]\ncopies = [1, {MANY}]\n'
    )
    Path("layout.toml").write_text(f"order = 'balanced'\n[counts]\nrest = {MANY}\n")
    status, out, told = rater(*words.split())
    assert (status, out, said in " ".join(told.split())) == (2, "", True), told


@pytest.mark.usefixtures("memory")
def test_what_the_row_of_a_run_says(rater: Rater, database: Path, tmp_path: Path) -> None:
    assert rater("run", "--copies", 2, "--quiet", "--", "true")[0] == 0

    def change(sql: str) -> None:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(sql)

    for column, table in (("copy", "copy"), ("iteration", "copy"), ("resumed", "run")):
        where = " WHERE copy = 1" if table == "copy" else ""
        change(f"UPDATE {table} SET {column} = {MANY}{where}")
    shown = ("show 1", f"report 1 -o {tmp_path}/a.html")
    for words in (*shown, "divots 1"):
        assert rater(*words.split())[0] == 0, words
    change(f"UPDATE run SET copies = {MANY}")
    for words in (*shown, "rerun 1", "compare 1 1", "export 1"):
        status, _, told = rater(*words.split())
        assert (status, "no run has more than 99999" in " ".join(told.split())) == (2, True), told


BASH = """
source {script}
_try() {{
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
    $(complete -p rater | sed 's/.*-F \\([^ ]*\\).*/\\1/') rater "${{@: -1}}" "${{@: -2:1}}"
    echo "${{COMPREPLY[@]}}"
}}
_try rater div
_try rater run --mo
_try rater run --mode sta
_try rater export --format c
"""
FISH = """
source {script}
for line in 'rater div' 'rater run --mo' 'rater run --mode sta' 'rater export --format c'
    complete -C $line | string replace -r '\\t.*' ''
end
"""
ANSWERS = ["divots", "--mode", "staggered", "csv"]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_values_are_completed(
    shell: str, rater: Rater, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    status, text, _ = rater("completion", shell)
    script = tmp_path / "_rater"
    script.write_text(text)
    assert status == 0
    if shell == "zsh":  # its completion wants a terminal: the script at least is one
        subprocess.run([shell, "-n", script], check=True)
        assert "homogeneous rotated staggered steady" in text
        return
    code = {"bash": BASH, "fish": FISH}[shell].format(script=script)
    flags = ["--no-config"] if shell == "fish" else ["--norc"]
    done = subprocess.run([shell, *flags, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ANSWERS, done.stderr


def names_read(function: Callable[..., object]) -> tuple[set[str], set[str]]:
    """Return the arguments that the code of a command reads: those it needs, and all of them.

    Functions of its module that take `arguments` are followed.
    """
    needed, read = set[str](), set[str]()
    for node in ast.walk(ast.parse(inspect.getsource(function))):
        match node:
            case ast.Attribute(value=ast.Name(id="arguments"), attr=name):
                needed.add(name)
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[ast.Name(id="arguments"), ast.Constant(value=str(name)), *_],
            ):
                read.add(name)
            case ast.Call(func=ast.Name(id="run_arguments_of")):
                needed.add("suites")
                read |= {option.dest for option in OPTIONS}  # a command may lack some
            case ast.Call(func=ast.Name(id=called), args=[ast.Name(id="arguments"), *_]) if (
                called not in dir(builtins)
            ):
                needed_there, read_there = names_read(function.__globals__[called])
                needed |= needed_there
                read |= read_there
    return needed, needed | read


def test_a_command_reads_every_argument_that_it_has_and_no_other() -> None:
    of_every_command = {"db", "json", "command", "whole"}
    ignored = {"rater plan": {"quiet", "dry_run"}, "rater trust": {"db"}}
    wrong, checked = [], 0
    for parser in parsers_below(build_parser()):
        run = parser.get_default("run")
        if run is None:
            continue
        given = {action.dest for action in shown_actions(parser)} - {"help"}
        needed, read = names_read(run)
        unread = given - read - ignored.get(parser.prog, set())
        wrong += [f"{parser.prog}: nobody reads {name}" for name in unread]
        missing = needed - given - of_every_command
        wrong += [f"{parser.prog}: no argument {name}" for name in missing]
        checked += 1
    assert wrong == []
    assert checked > (25 if ABSENT else 40)


def test_every_command_has_examples_and_each_of_them_parses() -> None:
    parser = build_parser()
    for sub in (parser, *subparsers_of(parser).values()):
        assert sub.examples, sub.prog
        for line in sub.examples:
            words = shlex.split(line, comments=True)
            words = words[: words.index("--")] if "--" in words else words
            words = words[: words.index(">")] if ">" in words else words
            parser.parse_args(words[1:])
            assert len(line) <= 78


_SENDER = """
import atexit, os, signal, sys
where, sys.argv[1:] = sys.argv[1], sys.argv[2:]
class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == where:
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Sender())
atexit.register(print, "went on")
from rater.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("module", "said"),
    [("rater.commands.runs", ""), ("rater.workflow.run.repeat", "went on\n")],
)
def test_a_signal_ends_rater_at_once_until_its_command_begins(module: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SENDER, module, "plan", "--", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, said, "")


@pytest.mark.parametrize(
    ("module", "handled"),
    [
        ("system.process import raise_stopped", "handle_stop_signals(raise_stopped)"),
        ("workflow.run.campaign import stoppable", "stoppable()"),
    ],
)
def test_a_signal_amid_an_import_is_raised_when_the_module_is_whole(
    tmp_path: Path, module: str, handled: str
) -> None:
    (tmp_path / "halfway.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nis_whole = True\n"
    )
    program = (
        "import sys, time\n"
        "from rater.system.process import StoppedBySignal, handle_stop_signals\n"
        f"from rater.{module}\n"
        "try:\n"
        f"    with {handled}:\n"
        "        import halfway\n"
        "        time.sleep(60)\n"
        "except StoppedBySignal as stopped:\n"
        "    print(stopped.exit_status, sys.modules['halfway'].is_whole)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[1]}"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "143 True\n", "")
