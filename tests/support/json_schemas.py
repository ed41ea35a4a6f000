"""What each JSON document looks like, as JSON Schema: `make freeze` writes `docs/reference/json/`.

Made from documents about runs of every sort; what no sample has (a key that was always null) is
left open. A test holds today's documents to the files, so that none loses a key or a type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from genson import SchemaBuilder

from tests.support.places import CHECKOUT

FOLDER = CHECKOUT / "docs" / "reference" / "json"
DESCRIPTION = "https://json-schema.org/draft/2020-12/schema"
# Commands by the name of their schema; run 1 is replaced by others.
COMMANDS = {
    "list": ("list",),
    "show": ("show", "1"),
    "show-copies": ("show", "1", "--copies"),
    "show-cpus": ("show", "1", "--cpus"),
    "show-proof": ("show", "1", "--proof"),
    "export": ("export", "1", "--format", "json"),
    "observations": ("export", "1"),
    "divots": ("divots", "1"),
    "divots-of-several": ("divots", "1", "2", "3"),
    "plot": ("plot", "1"),
    "compare": ("compare", "1", "2", "3"),
    "compare-memory": ("compare", "1", "2", "--memory"),
    "plan": ("plan", "--topology", "pack:2 numa:2 core:4 pu:2", "--copies", "4", "--", "true"),
    "dry-run": ("run", "--dry-run", "--copies", "1", "--", "true"),
    "topo": ("topo", "pack:2 numa:2 core:4 pu:2"),
    "suites": ("suites",),
    "layouts": ("layouts",),
    "settings": ("settings",),
    "doctor": ("doctor",),
}
# Objects whose keys are names of the user or the machine, not of ours.
_NAMED = frozenset(
    [
        "tags",
        "settings",
        "environment",
        "commands",
        "metrics",
        "node_bytes",
        "page_bytes",
        "astray_bytes",
        "page_shares",
        "by_node",
        "counts",
        "labels",
        "page_text",
        "values",
    ]
)

_ALWAYS = frozenset(("rater", "run", "uuid", "status", "mode", "copies", "benchmark", "copy"))
# Runs of other sorts, of which the schemas are made as well.
OTHERS = (
    ("--mode", "rotated", "--iterations", "2", "mini/lu,sort", "--size", "test"),
    ("--mode", "steady", "--window", "2", "mini/lu", "--size", "test"),
    ("--mode", "staggered", "--stagger", "10", "--", "true"),
    ("--iterations", "2", "--", "sh", "-c", "exit 3"),
    ("memory", "--size", "test"),
)

type Ask = Callable[..., tuple[int, str, str]]


def documents(ask: Ask, run: str = "1") -> Iterator[tuple[str, Any]]:
    """Yield every command's document, by the name of its schema; `run`: the run that they show."""
    for name, typed in COMMANDS.items():
        words = tuple(run if word == "1" else word for word in typed)
        if run != "1" and run not in words:
            continue
        asked = words if name in ("export", "observations") else (words[0], "--json", *words[1:])
        status, out, err = ask(*asked)
        assert status in (0, 1), (name, err)
        yield name, json.loads(out)


def schema_of(samples: list[Any], title: str) -> dict[str, Any]:
    """Return what all samples fit."""
    builder = SchemaBuilder(DESCRIPTION)
    for sample in samples:
        builder.add_object(sample)
    return {"title": title, **_opened(builder.to_schema())}


def _opened(schema: Any, name: str = "") -> Any:
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("type") == "null":
        return {}  # nothing is known of what it is otherwise
    if name in _NAMED and "properties" in schema:
        return {"type": "object"}
    found = dict(schema)
    kinds = found.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if name not in _ALWAYS and kinds is not None and kinds not in (["object"], ["array"]):
        found["type"] = [*kinds, *(["null"] if "null" not in kinds else [])]  # what is not known
    if "properties" in found:
        found["properties"] = {
            key: _opened(value, key) for key, value in found["properties"].items()
        }
    for key in ("items", "anyOf"):
        if isinstance(found.get(key), list):
            found[key] = [_opened(one, name) for one in found[key]]
        elif key in found:
            found[key] = _opened(found[key], name)
    return found


def read(name: str) -> dict[str, Any]:
    """Return a schema as it was written."""
    schema: dict[str, Any] = json.loads(path_of(name).read_text())
    return schema


def path_of(name: str) -> Path:
    """Return where a schema lies."""
    return FOLDER / f"{name}.schema.json"


def write(found: Mapping[str, list[Any]]) -> None:
    """Write the schemas of documents, by name."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, samples in found.items():
        title = f"rater {' '.join(COMMANDS[name])}"
        text = json.dumps(schema_of(samples, title), indent=1)
        path_of(name).write_text(text + "\n")
