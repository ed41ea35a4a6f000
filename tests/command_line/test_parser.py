"""What `rater` answers to words it does not know."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from rater.cli import build_parser, main
from rater.command_line import GROUPS, MOST_WORDS, command_words, subparsers_of
from rater.process import print_error
from rater.show.console import paged
from rater.text.secrets import cleaned_streams
from tests.support.calls import Rater


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
         "rater run -- sleep 1"),
        ("--json sleep 1", "to measure that program: rater run -- sleep 1"),
        ("lst", "unknown command 'lst'; did you mean `rater list`?"),
        ("xyzzy", "unknown command 'xyzzy'; `rater` alone lists the commands"),
        ("run sleep 1", "unknown suite 'sleep'; to measure that program: rater run -- sleep ..."),
        ("run ./prog", "./prog is a program, not a suite; to measure that program: "
         "rater run -- ./prog ..."),
        ("run prog", "to measure that program: rater run -- ./prog ..."),
        ("prog -x", "prog is not a command of rater; to measure that program: "
         "rater run -- ./prog -x"),
        ("run ./big.txt", "./big.txt is no suite, which is a TOML file; to measure a program with "
         "that file: rater run -- PROGRAM ./big.txt"),
        ("run notes.txt", "rater run -- PROGRAM notes.txt"),
        ("run --coppies 3", "rater run has no option --coppies; did you mean --copies?"),
        ("compare", "are required: POINT\n  as in: rater compare 7 8; more: rater compare --help"),
        ("import", "are required: FILE\n  as in: rater import times.json more.json; more: rater"),
        ("show 1 2", "rater show takes no further argument '2'"),
        ("run --timeout 1x", "argument --timeout: expected seconds or a number with a unit"),
        ("run --iterations x", "argument --iterations: expected a whole number, got 'x'"),
        ("export 1 --format jsn", "argument --format: 'jsn' is no choice; did you mean json?"),
        ("-- sleep 1", "to measure a program: rater run -- sleep 1"),
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
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == sorted(subparsers_of(parser))
    about = command_words(parser)
    text = "\n".join(lines)
    assert [name for name in named if f"{name:<11}{about[name]}" not in text] == []
    assert [words for words in about.values() if not 0 < len(words) <= MOST_WORDS] == []


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
    helps = [parser.format_help() for parser in _every(build_parser())]
    assert len(helps) > 30
    assert [line for text in helps for line in text.splitlines() if len(line) > 80] == []


def test_the_help_of_a_command_of_many_options_begins_with_one_line_of_usage() -> None:
    parsers = subparsers_of(build_parser())
    for name in ("run", "sweep"):
        first, second = parsers[name].format_help().splitlines()[:2]
        assert first == f"usage: rater {name} [OPTION ...] [SUITE[/BENCHMARK] ...]"
        assert second == ""


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


def test_a_picture_that_fits_the_screen_keeps_its_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "sh")  # is there, and never started
    monkeypatch.setattr(sys, "stdout", out := _Terminal())
    with cleaned_streams():
        console = Console(file=_Terminal(), force_terminal=True, color_system="standard", height=24)
        with paged(console):
            console.print("[red]slow[/red]")
    assert out.getvalue() == "\x1b[31mslow\x1b[0m\n"
