"""Runs that are read together: the same as alone, their common values held once in memory."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rater.store.store import Store, open_store
from rater.system.errors import InputError
from tests.support import golden_runs


@pytest.mark.parametrize("name", ["disturbed", "failed", "fit", "machines", "tagged", "copies"])
def test_runs_that_are_read_together_are_those_that_are_read_alone(
    name: str, database: Path, tmp_path: Path
) -> None:
    getattr(golden_runs, name)(tmp_path)
    with open_store(database) as store:
        numbers = [head.run for head in store.runs()]
        assert [*store.load_all(numbers)] == [store.load(number) for number in numbers]
        assert [run.head for run in store.load_all(numbers)] == [*store.runs(numbers)]


def test_runs_come_in_the_order_they_are_asked_for(database: Path, tmp_path: Path) -> None:
    golden_runs.tagged(tmp_path)
    with open_store(database) as store:
        assert [run.head.run for run in store.load_all([3, 1, 2])] == [3, 1, 2]
        assert [head.run for head in store.runs([2, 7, 1])] == [2, 1]
        with pytest.raises(InputError, match="there is no run 7 any more"):
            list(store.load_all([1, 7]))


def test_the_machine_of_many_runs_is_held_once(database: Path, tmp_path: Path) -> None:
    golden_runs.tagged(tmp_path)
    with open_store(database) as store:
        first, second = store.load_all([1, 2])
    assert first.host is second.host
    assert first.pus is second.pus
    assert first.settings is second.settings


def test_secrets_of_many_runs_are_left_out_and_named_in_each(store: Store, tmp_path: Path) -> None:
    golden_runs.tagged(tmp_path)
    with closing(sqlite3.connect(store.path)) as database, database:
        for run, token in ((1, "first"), (2, "first"), (3, "second")):
            row = (run, "API_TOKEN", token)
            database.execute("INSERT INTO environment (run_id, name, value) VALUES (?, ?, ?)", row)
    runs = [*store.load_all([1, 2, 3])]
    assert [dict(run.environment)["API_TOKEN"] for run in runs] == [
        "[redacted]",
        "[redacted]",
        "[redacted 2]",
    ]
    assert [run.redacted for run in runs] == [("API_TOKEN",)] * 3
