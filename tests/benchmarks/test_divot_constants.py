"""What tells the constants' worth: it changes one at a time, in the detector as it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.divot_cases.__main__ import verdicts
from benchmarks.divot_cases.cases import make
from benchmarks.divot_cases.constants import Change, Told, Value, changes, constants, difference
from benchmarks.divot_cases.direct import findings_in, table_of_case
from rater.show.results.to_json import divot_rows
from tests.support.places import CHECKOUT

SEED = 15


def test_the_detector_says_of_made_runs_what_the_command_says_of_them_imported() -> None:
    numbers = range(1, 9)
    for (_, document, _), number in zip(verdicts(SEED, numbers), numbers, strict=True):
        direct = divot_rows(findings_in(table_of_case(make(SEED, number))))
        for row in (said := [*document["divots"]]):
            row.pop("next", None)
        assert [{k: it[k] for k in row} for it, row in zip(direct, said, strict=True)] == said


def test_each_constant_is_tried_lower_and_higher() -> None:
    values = constants()
    tried = [(it.name, it.how) for it in changes(values, extremes=False)]
    assert tried == [(name, how) for name in values for how in ("x0.7", "x1.4")]


def test_counts_change_by_one_at_least_and_shares_stay_shares() -> None:
    values: dict[str, Value] = {"COUNT": 2, "SHARE": 0.9, "SIZE": 5.0, "SEVERAL": (0.5, 0.8)}
    assert [*changes(values, extremes=False)] == [
        Change("COUNT", "x0.7", 1),
        Change("COUNT", "x1.4", 3),
        Change("SHARE", "x0.7", 0.63),
        Change("SHARE", "x1.4", 0.95),
        Change("SIZE", "x0.7", 3.5),
        Change("SIZE", "x1.4", 7.0),
        Change("SEVERAL", "x0.7", (0.35, 0.5599999999999999)),
        Change("SEVERAL", "x1.4", (0.7, 0.9)),
    ]
    assert [it.value for it in changes({"SHARE": 0.9}, extremes=True)] == [0.9e-6, 1.0]


def test_a_difference_counts_truths_false_findings_and_runs_that_accuse_an_innocent() -> None:
    base = [Told("0 1 ", 0, False, "a"), Told("", 2, True, "b"), Told("", 0, False, "c")]
    other = [Told("1 2 ", 1, True, "x"), Told("", 0, True, "y"), Told("", 0, False, "c")]
    found = difference(base, other)
    assert (found.found, found.false, found.innocents) == ((1, 1), (1, 2), (1, 0))
    assert (found.verdicts, found.words) == (6, 2)
    assert str(found) == "found +1 -1, false +1 -2, innocents +1 -0, 2 told otherwise"
    assert str(difference(base, base)) == "nothing"


def test_a_constant_that_matters_shows_it_and_what_is_known_is_not_tried_again(
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    # Single copies: what little is needed to be sure, and how little of a tail is possible, which
    # the model reads when it is imported.
    asked = ("ALPHA_SINGLE", "MOST_TAIL", "--extremes", "--runs", "4", "--cache", str(cache))

    def said() -> str:
        return subprocess.run(
            [sys.executable, "-m", "benchmarks.divot_cases.constants", *asked],
            cwd=CHECKOUT,
            env={**os.environ, "RATER_TEST_DATA": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    first = said()
    known = cache.read_bytes()
    assert len(known.splitlines()) == 1 + 4
    (single,) = [
        line for line in first.splitlines() if line.startswith("ALPHA_SINGLE         x1e+06")
    ]
    assert "false +" in single
    assert said() == first and cache.read_bytes() == known
