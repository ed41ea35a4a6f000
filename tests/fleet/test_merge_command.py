"""`rater merge TARGET DB...` and `rater import DB` as they are typed."""

import json
from pathlib import Path

import pytest

from tests.support.calls import Rater, rows
from tests.support.made_runs import make_run
from tests.support.observations import DOCUMENT


@pytest.fixture
def nodes(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"n{number}.db" for number in (1, 2)]
    for path in paths:
        make_run(path, uuid=path.stem)
    return paths


def test_databases_are_merged_and_what_cannot_be_is_named(
    tmp_path: Path, database: Path, nodes: list[Path], rater: Rater
) -> None:
    bad = tmp_path / "bad.db"
    bad.write_text("nothing")
    status, out, err = rater("merge", database, *nodes, bad)
    assert status == 2
    assert out.splitlines() == [
        f"{nodes[0]}: run 1 added",
        f"{nodes[1]}: run 2 added",
        f"{database}: 2 runs added, 1 file not merged, named above, of 3 files",
    ]
    assert err == f"rater: {bad}: not a SQLite database\n"
    assert rows("SELECT uuid FROM run ORDER BY id") == [("n1",), ("n2",)]
    status, out, _ = rater("merge", database, *nodes)
    total = f"{database}: 0 runs added, 2 files merged before, of 2 files\n"
    assert (status, out) == (0, total)


def test_a_removed_run_stays_removed_until_it_is_asked_back(
    database: Path, nodes: list[Path], rater: Rater
) -> None:
    rater("merge", database, *nodes)
    rater("rm", "2", "--yes")
    make_run(nodes[1], uuid="more")
    status, out, err = rater("merge", database, nodes[1])
    assert (status, out) == (0, f"{nodes[1]}: run 3 added\n")
    assert "1 run or sweep that was removed here left out; --restore brings it back" in err
    status, out, _ = rater("merge", database, nodes[1], "--restore", "--json")
    assert [it["added"] for it in json.loads(out)["files"]] == [[4]]


def test_import_takes_documents_and_databases_together(
    tmp_path: Path, nodes: list[Path], rater: Rater
) -> None:
    document = tmp_path / "times.json"
    document.write_text(json.dumps(DOCUMENT))
    status, out, _ = rater("import", nodes[0], document, nodes[1])
    assert (status, out.splitlines()) == (
        0,
        [
            f"{nodes[0]}: run 1 added",
            "run 2: 4 observations of made-by-hand imported",
            f"{nodes[1]}: run 3 added",
        ],
    )
    out = rater("import", nodes[0], "--json")[1]
    assert [it["merged_before"] for it in json.loads(out)["files"]] == [True]


def test_another_database_named_beside_the_target_is_refused(
    tmp_path: Path, nodes: list[Path], rater: Rater
) -> None:
    status, _, err = rater("--db", tmp_path / "x.db", "merge", tmp_path / "y.db", nodes[0])
    assert (status, "leave out --db" in err, (tmp_path / "y.db").exists()) == (2, True, False)
