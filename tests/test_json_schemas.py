"""Every JSON document fits the type that its schema in `docs/reference/json/` is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support import json_schemas
from tests.support.calls import Rater
from tests.support.json_schemas import ADDED, TYPES, closed, path_of, schema_of, text_of
from tests.support.made_runs import make
from tests.support.made_sweeps import make_sweep
from tests.support.observations import observed


@pytest.fixture
def database_of_all_sorts(database: Path) -> None:
    """Runs of a benchmark, tagged and in blocks; the first was watched, and one copy lay astray."""
    make(database, [(3.0, 4.0)], {"bios": "old"}, {"thp.enabled": "always"}, ("gups", "triad"))
    make(database, [(3.1, 4.1), (3.0, 3.9)], {"bios": "new"}, {}, ("gups", "triad"))


def a_slow_node() -> dict[str, Any]:
    """16 copies on two NUMA nodes, the second 20 % slower, three iterations of two benchmarks."""
    rows = [
        {"benchmark": name, "iteration": iteration, "copy": copy, "cpu": copy, "node": copy // 8}
        | {"elapsed_s": (1.2 if copy >= 8 else 1.0) + 0.001 * (copy * 7 % 5 + iteration)}
        for name in ("a", "b")
        for iteration in (1, 2, 3)
        for copy in range(16)
    ]
    return observed(*rows, uuid="slow", copies=16)


def misfits(name: str, document: Any) -> list[str]:
    """What of a document does not fit: a key that is missing, or one that its type has not."""
    validator = Draft202012Validator(closed(schema_of(name)))
    # Of several types that a value may have, the errors below say what is wrong with each.
    return [
        f"{name} {error.json_path}: {text.message[:300]}"
        for error in validator.iter_errors(document)
        for text in (error, *(error.context or ()))
    ]


def check(pairs: Iterator[tuple[str, Any]]) -> None:
    for name, document in pairs:
        assert misfits(name, document) == []
        for member in document if isinstance(document, list) else [document]:
            assert member["rater"] == 1, name


@pytest.mark.usefixtures("database_of_all_sorts")
def test_every_document_fits_its_type_and_has_its_version(rater: Rater, tmp_path: Path) -> None:
    (tmp_path / "slow.json").write_text(json.dumps(a_slow_node()))
    assert rater("import", tmp_path / "slow.json")[0] == 0
    for number in ("1", "4"):  # 4: with divots
        check(json_schemas.documents(rater, number))


def test_a_history_with_a_step_fits_its_type(rater: Rater, tmp_path: Path) -> None:
    for day in range(1, 9):
        row = {"elapsed_s": 10.0 + 0.01 * (day % 3) + (day > 4)}
        head = {"uuid": f"u{day}", "started_at": f"2026-11-{day:02}T12:00:00Z"}
        (tmp_path / f"{day}.json").write_text(json.dumps(observed(row, **head, copies=1)))
    assert rater("import", *sorted(tmp_path.glob("?.json")))[0] == 0
    _, out, _ = rater("history", "b", "--json")
    document = json.loads(out)
    assert [step["started_at"][:10] for step in document["histories"][0]["steps"]] == ["2026-11-05"]
    check(iter([("history", document)]))


def test_documents_about_sweeps_fit_their_types(rater: Rater, database: Path) -> None:
    times = {"1": (1.0, 1.01), "2": (1.1, 1.09), "4": (1.5, 1.52), "8": (3.2, 3.1)}
    make_sweep(database, "copies", times)
    check(json_schemas.sweep_documents(rater))


@pytest.mark.usefixtures("database_of_all_sorts")
def test_documents_of_runs_of_every_mode_fit_their_types(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own.toml").write_text(json_schemas.OTHERS_SUITE)
    (tmp_path / "short.c").write_text(json_schemas.OTHERS_SOURCE)
    monkeypatch.chdir(tmp_path)
    for words in json_schemas.OTHERS:
        assert rater("run", "--quiet", "--copies", "2", *words)[0] in (0, 1)
    for number in range(4, 4 + len(json_schemas.OTHERS)):
        check(json_schemas.documents(rater, str(number)))


@pytest.mark.parametrize("name", [*TYPES, *ADDED])
def test_the_schema_is_the_one_of_its_type(name: str) -> None:
    assert path_of(name).read_text() == text_of(name), "make schemas"


@pytest.mark.parametrize("name", TYPES)
def test_every_key_has_a_description(name: str) -> None:
    bare = [
        f"{kind}.{key}"
        for kind, definition in schema_of(name)["$defs"].items()
        for key, member in definition["properties"].items()
        if not member.get("description")
    ]
    assert bare == []


def test_each_document_has_a_type() -> None:
    typed = TYPES.keys() | ADDED.keys()
    commands = json_schemas.COMMANDS | json_schemas.SWEEP_COMMANDS | json_schemas.MACHINE_COMMANDS
    assert typed == commands.keys()
    files = {path.name.removesuffix(".schema.json") for path in json_schemas.FOLDER.iterdir()}
    assert files == typed


def test_a_document_that_lost_a_key_or_has_one_more_does_not_fit(
    rater: Rater, database: Path
) -> None:
    make(database, [(3.0, 4.0)])
    document = json.loads(rater("show", "1", "--json")[1])
    assert misfits("show", document) == []
    assert misfits("show", document | {"new": 1})
    del document["benchmarks"][0]["ratio"]
    assert misfits("show", document)
