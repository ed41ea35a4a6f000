"""`rater.load` and `rater.runs`: what notebooks get of the database."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rater
from rater.store.store import Store
from rater.system.errors import InputError, RaterError
from tests.support.calls import RATER, Rater
from tests.support.made_runs import make_run
from tests.support.places import CHECKOUT


def test_a_run_has_its_copies_and_brackets_as_columns(database: Path) -> None:
    make_run(database, uuid="a", tags=(("bios", "old"),))
    run = rater.load("last")
    assert (run.head["run"], run.head["tags"]) == (1, {"bios": "old"})
    assert run.copies["copy"].dtype == np.int64
    assert run.copies["elapsed_s"].dtype == np.float64
    assert len(run.copies["elapsed_s"]) == run.head["copies"] * len(run.brackets["bracket_s"])
    longest = run.copies["elapsed_s"][run.copies["benchmark"] == run.brackets["benchmark"][0]].max()
    assert run.brackets["bracket_s"][0] >= longest
    assert rater.load(1).head == rater.load("tag:bios=old").head


def test_all_runs_are_rows_by_number(database: Path) -> None:
    for uuid in "ab":
        make_run(database, uuid=uuid)
    assert rater.runs()["run"].tolist() == [1, 2]
    assert "uuid" in repr(rater.runs())


def test_the_module_lists_what_scripts_call_and_objects_fit_a_line(database: Path) -> None:
    make_run(database, uuid="a")
    assert dir(rater) == ["__version__", "compare", "load", "run", "runs", "sweep"]
    run = rater.load("last")
    assert re.fullmatch(r"<run 1: [^<>]{5,60}, complete>", repr(run))
    assert max(len(repr(it)) for it in (run.copies, run.brackets, rater.runs())) < 100


def test_what_is_not_there_is_an_input_error(database: Path, store: Store) -> None:
    with pytest.raises(InputError, match="no runs stored yet"):
        rater.load(9)
    with pytest.raises(InputError, match="there is no database"):
        rater.load("last", db=str(database.parent / "other.db"))
    with pytest.raises(AttributeError, match="lode"):
        rater.lode  # noqa: B018 - not there


def test_runs_and_sweeps_are_made_and_compared_as_their_commands_do(database: Path) -> None:
    made = rater.run(command=["sh", "-c", "test $A = 1"], copies=2, env={"A": 1}, tag=["b=c"])
    assert (made.head["status"], made.head["copies"], made.head["tags"]) == (
        *("complete", 2),
        {"b": "c"},
    )
    assert made.copies["copy"].tolist() == [0, 1]
    assert rater.run(command=["false"], copies=1).head["status"] == "failed"
    axes = {"env:X": ["", "a,b"]}
    swept = rater.sweep(axes=axes, command=["true"], rounds=2, seed=1, copies=1)
    assert [point["values"]["env:X"] for point in swept["points"]] == ["", "a,b"]
    assert [run["run"] for run in swept["runs"]] == [3, 4, 5, 6]
    found = rater.compare("sweep:1", within="2%")
    assert found["margin"] == 0.02
    loaded = rater.load("sweep:1")
    assert repr(loaded) == "<sweep 1: 2 points, 4 runs, complete>"
    assert loaded.head == swept
    labels = [point["label"] for point in swept["points"]]
    assert loaded.copies["point"].tolist() == [labels[0]] * 2 + [labels[1]] * 2
    assert database.exists()


def test_the_example_of_the_documents_runs_as_it_stands(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (CHECKOUT / "docs/how-to/results.md").read_text()
    [example] = [it for it in re.findall(r"```python\n(.*?)```", page, re.S) if "rater.run(" in it]
    exec(example, {})
    assert capsys.readouterr().out == "['copies=1', 'copies=2']\n"
    assert database.exists()


def test_options_that_no_run_has_are_named(database: Path) -> None:
    with pytest.raises(InputError, match="copys: no option of a run; did you mean copies"):
        rater.run("mini", copys=4)
    with pytest.raises(InputError, match="increment 'x': expected a whole number"):
        rater.run("mini", increment="x")
    assert not database.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": ["true"], "share": "yes"}, "share 'yes': expected True or False"),
        ({"command": "sleep 1"}, "expected a list"),
        ({"command": ["echo", "a\0b"]}, "NUL"),
    ],
)
def test_values_of_another_kind_are_input_errors(
    database: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        rater.run(**options)
    assert not database.exists()


def test_a_number_within_which_points_are_the_same_is_a_share(database: Path) -> None:
    for uuid in "ab":
        make_run(database, uuid=uuid)
    assert rater.compare(1, 2, within=0.03)["margin"] == 0.03
    with pytest.raises(InputError, match=r"within 3: expected a share below 1, 0\.01 for 1 %"):
        rater.compare(1, 2, within=3)


def test_axes_and_rounds_of_another_kind_are_input_errors(database: Path) -> None:
    with pytest.raises(InputError, match="axis copies: expected a list of values, got '1,2'"):
        rater.sweep(axes={"copies": "1,2"}, command=["true"])
    with pytest.raises(InputError, match="rounds 'x': expected a whole number"):
        rater.sweep(axes={"copies": [1]}, command=["true"], rounds="x")  # type: ignore[arg-type]
    assert not database.exists()


def test_numbers_are_points_and_paths_are_words(database: Path) -> None:
    for uuid in "ab":
        make_run(database, uuid=uuid)
    found = rater.compare(1, 2, baseline=2)
    assert found["points"][0]["label"] == "run 2"
    made = rater.run(command=[Path("/bin/echo"), 1], copies=1)
    assert made.head["status"] == "complete"


def test_several_runs_are_loaded_at_once_with_the_label_of_each(database: Path) -> None:
    for uuid in "ab":
        make_run(database, uuid=uuid)
    loaded = rater.load(1, "last")
    assert [run.head["run"] for run in loaded.runs] == [1, 2]
    assert set(loaded.copies["point"]) == {"run 1", "run 2"}
    assert repr(loaded) == "<2 runs>"


def test_a_run_in_a_thread_is_an_error_and_stores_nothing(database: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        for made in (
            pool.submit(rater.run, command=["true"]),
            pool.submit(rater.sweep, axes={"copies": [1]}, command=["true"]),
        ):
            with pytest.raises(RaterError, match="main thread"):
                made.result()
    assert not database.exists()


def test_parquet_has_the_columns_of_csv(database: Path, rater: Rater) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="no pyarrow here")
    make_run(database, uuid="a")
    file = database.parent / "run.parquet"
    with file.open("wb") as out:
        subprocess.run([*RATER, "export", "1", "--format", "parquet"], stdout=out, check=True)
    table = parquet.read_table(file)
    heading = rater("export", "1", "--format", "csv")[1].splitlines()[0]
    assert table.column_names == heading.split(",")
    assert str(table.schema.field("elapsed_s").type) == "double"
