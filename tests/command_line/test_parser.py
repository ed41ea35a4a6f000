"""What `rater` answers to words it does not know."""

from __future__ import annotations

import pytest

from tests.support.calls import Rater


def test_rater_alone_shows_its_help(rater: Rater) -> None:
    status, out, _ = rater()
    assert (status, out[:12]) == (0, "usage: rater")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("sleep 1", "sleep is not a command of rater; to measure that program: "
         "rater run -- sleep 1"),
        ("--json sleep 1", "to measure that program: rater run -- sleep 1"),
        ("lst", "unknown command 'lst'; did you mean `rater list`?"),
        ("xyzzy", "unknown command 'xyzzy'; `rater` alone lists the commands"),
        ("run sleep 1", "unknown suite 'sleep'; to measure that program: rater run -- sleep ..."),
        ("run --coppies 3", "rater run has no option --coppies; did you mean --copies?"),
        ("show 1 2", "rater show takes no further argument '2'"),
        ("run --timeout 1x", "argument --timeout: expected seconds or a number with a unit"),
        ("run --iterations x", "argument --iterations: expected a whole number, got 'x'"),
        ("export 1 --format jsn", "argument --format: 'jsn' is no choice; did you mean json?"),
        ("-- sleep 1", "to measure a program: rater run -- sleep 1"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_with_the_way_out(
    rater: Rater, capsys: pytest.CaptureFixture[str], words: str, answer: str
) -> None:
    try:
        status, _, err = rater(*words.split())
    except SystemExit as left:  # of argparse
        status, err = int(str(left.code)), capsys.readouterr().err
    assert status == 2
    assert answer in err
    assert len(err.splitlines()) <= 2
