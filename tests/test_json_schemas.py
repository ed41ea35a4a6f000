"""Every JSON document fits its schema in `docs/reference/json/`.

`RATER_WRITE_SCHEMAS=1 pytest tests/test_json_schemas.py` writes the schemas anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.support import json_schemas
from tests.support.calls import Rater
from tests.support.made_runs import make
from tests.support.observations import observed


@pytest.fixture
def database_of_all_sorts(database: Path) -> None:
    """Runs of a benchmark, tagged and in blocks; the first was watched, and one copy lay astray."""
    make(database, [(3.0, 4.0)], {"bios": "old"}, {"thp.enabled": "always"}, ("gups", "triad"))
    make(database, [(3.1, 4.1), (3.0, 3.9)], {"bios": "new"}, {}, ("gups", "triad"))


def a_slow_lgroup() -> dict[str, Any]:
    """16 copies on two lgroups, the second 20 % slower, three iterations of two benchmarks."""
    rows = [
        {"benchmark": name, "iteration": iteration, "copy": copy, "cpu": copy, "node": copy // 8}
        | {"elapsed_s": (1.2 if copy >= 8 else 1.0) + 0.001 * (copy * 7 % 5 + iteration)}
        for name in ("a", "b")
        for iteration in (1, 2, 3)
        for copy in range(16)
    ]
    return observed(*rows, uuid="slow", copies=16)


def more_samples(rater: Rater, folder: Path) -> Iterator[tuple[str, Any]]:
    """Documents about runs of other sorts, for writing the schemas: some twenty seconds."""
    (folder / "slow.json").write_text(json.dumps(a_slow_lgroup()))
    assert rater("import", folder / "slow.json")[0] == 0
    for words in json_schemas.OTHERS:
        assert rater("run", "--quiet", "--copies", "2", *words)[0] in (0, 1)
    for number in range(3, 5 + len(json_schemas.OTHERS)):
        if number > 3:
            yield from json_schemas.documents(rater, str(number))


@pytest.mark.usefixtures("database_of_all_sorts")
def test_every_document_fits_its_schema_and_has_its_version(rater: Rater, tmp_path: Path) -> None:
    found: dict[str, list[Any]] = {}
    for name, document in json_schemas.documents(rater):
        found.setdefault(name, []).append(document)
    if os.environ.get("RATER_WRITE_SCHEMAS"):
        for name, document in more_samples(rater, tmp_path):
            found[name].append(document)
        json_schemas.write(found)
    for name, told in found.items():
        validator = Draft202012Validator(json_schemas.read(name))
        for document in told:
            assert [f"{name}: {error.message}" for error in validator.iter_errors(document)] == []
            for member in document if isinstance(document, list) else [document]:
                assert member["rater"] == 1, name


def test_a_document_that_lost_a_key_does_not_fit(rater: Rater, database: Path) -> None:
    make(database, [(3.0, 4.0)])
    for name, document in json_schemas.documents(rater):
        if name == "show":
            del document["benchmarks"]
            assert list(Draft202012Validator(json_schemas.read("show")).iter_errors(document))
            return
