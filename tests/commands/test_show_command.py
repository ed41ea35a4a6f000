"""`rater show` of a steady run, alone and beside another."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rater.record.events import OutputChecked, RunEnded
from rater.record.run import BenchmarkUsed, RunStatus, Validity
from rater.store.store import open_store
from tests.support.calls import Rater
from tests.support.example_events import ended, over, phase, run_of
from tests.support.stored_runs import GONE, HOST, PUS


def add(database: Path, uuid: str, window_s: tuple[float, float] | None = None) -> None:
    """Two copies of gups, 2 s each time: once, or for 60 s."""
    run = replace(
        run_of(2, window_s=window_s),
        uuid=uuid,
        benchmarks=(BenchmarkUsed("gups", "int", "gups", 10.0, None, None, None),),
    )
    with open_store(database) as store:
        number = store.create_run(run, HOST, (), PUS, GONE)
        store.append(number, phase(window_s=window_s))
        steps = 30 if window_s else 1
        for copy in range(2):
            for step in range(steps):
                end = ended(copy, 2.0 * step + 2, start_s=2.0 * step, step=step)
                good = OutputChecked(0, "gups", 1, copy, step, Validity.VALID, None)
                store.append(number, end, good)
        store.append(number, over(0.0, 2.0 * steps, window_s=window_s))
        store.append(number, RunEnded(RunStatus.COMPLETE, None))


def document(text: str) -> Any:
    return json.loads(text)


def test_a_steady_run_is_shown_beside_the_latest_homogeneous_one(
    database: Path, rater: Rater
) -> None:
    add(database, "a")
    add(database, "b")
    add(database, "c", (3.0, 43.0))
    status, out, _ = rater("show", "last")
    assert status == 0
    assert "run 3, steady, beside run 2, homogeneous:" in out
    found = document(rater("show", "last", "--json")[1])
    assert (found["comparison"]["steady"], found["comparison"]["other"]) == (3, 2)
    assert found["comparison"]["difference"] == pytest.approx(0.0)
    assert found["benchmarks"][0]["steady"]["halves"]["verdict"] == "steady"
    assert "comparison" not in document(rater("show", "2", "--json")[1])


def test_a_steady_run_beside_one_of_other_programs_says_why_and_has_no_empty_table(
    database: Path, rater: Rater
) -> None:
    add(database, "a")
    add(database, "b", (3.0, 43.0))
    with open_store(database) as store, store.writing("test") as connection:
        connection.execute("UPDATE benchmark SET command = 'other' WHERE run_id = 1")
    told = rater("show", "2")[1].splitlines()
    place = told.index("run 2, steady, beside run 1, homogeneous:")
    assert told[place + 1 : place + 3] == ["gups: not compared: the commands differ", ""]


def test_another_run_to_compare_with_is_compares_business(
    rater: Rater, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        rater("show", "2", "--with", "1")
    assert ended.value.code == 2
    assert "`rater compare RUN RUN2` compares any two runs" in capsys.readouterr().err


def test_a_steady_run_alone_says_that_nothing_stands_beside_it(
    database: Path, rater: Rater
) -> None:
    add(database, "a", (3.0, 43.0))
    out = " ".join(rater("show")[1].split())
    assert "no complete homogeneous run of the same copies is stored to compare with" in out
