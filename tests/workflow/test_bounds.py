"""Numbers that no run has are refused wherever they come in, before anything is made of them."""

import json
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from rater.store.observations import MOST_BENCHMARKS
from tests.support.calls import Rater
from tests.support.observations import DOCUMENT, changed

MANY = 2147483647


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """2 GiB more of addresses than tests before took: an array of so many copies would not fit."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = psutil.Process().memory_info().vms + (2 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


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
