"""Runs that are read together: the same as alone, their common values held once in memory."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rater.store.read import load_runs
from rater.store.store import Store, open_store
from rater.system.errors import InputError
from tests.support import golden_runs, golden_shapes


@pytest.mark.parametrize(
    "name",
    [
        *("disturbed", "failed", "fit", "machines", "tagged", "copies", "spec_stored"),
        *("metrics", "counters", "cpus", "placement", "steady"),
    ],
)
def test_runs_that_are_read_together_are_those_that_are_read_alone(
    name: str, database: Path, tmp_path: Path
) -> None:
    make = getattr(golden_runs, name, None) or getattr(golden_shapes, name)
    make(tmp_path)
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


def test_three_runs_are_read_by_as_many_statements_as_one(database: Path, tmp_path: Path) -> None:
    golden_runs.tagged(tmp_path)

    def statements(numbers: list[int]) -> int:
        executed: list[str] = []
        with open_store(database) as store, store.reading() as rows:
            rows.connection.set_trace_callback(executed.append)
            assert len([*load_runs(rows, numbers)]) == len(numbers)
            rows.connection.set_trace_callback(None)
        return len(executed)

    assert statements([1, 2, 3]) == statements([1])


def test_a_counter_or_setting_of_another_kind_is_named_as_damage(
    database: Path, tmp_path: Path
) -> None:
    golden_runs.disturbed(tmp_path)
    with open_store(database) as store:
        (run,) = [*store.load_all([1])]
    assert run.machine_readings
    assert run.settings
    for table, column in (("phase_reading", "value"), ("setting", "value")):
        copy = tmp_path / f"{table}.db"
        shutil.copy(database, copy)
        with closing(sqlite3.connect(copy)) as rows, rows:
            rows.execute("PRAGMA writable_schema = ON")
            rows.execute(
                "UPDATE sqlite_schema SET sql = replace(replace(sql, 'INTEGER', 'ANY'), 'TEXT', "
                "'ANY') WHERE name = ?",
                (table,),
            )
        with closing(sqlite3.connect(copy)) as rows, rows:
            rows.execute(f"UPDATE {table} SET {column} = 1.5")
        with (
            open_store(copy) as store,
            pytest.raises(InputError, match=r"a row is damaged: .* 1\.5"),
        ):
            store.load(1)


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
