"""JSON Schemas of the documents: `make schemas` writes `docs/reference/json/` from their types.

The types are TypedDicts: in `rater/show/documents/`, and in `rater/record/documents.py` for those
that the store makes. Their docstrings, and the texts in `Annotated`, become descriptions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAliasType,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from rater.record import documents as stored
from rater.show.documents import (
    checkup,
    compare,
    copies,
    divots,
    history,
    machine,
    plan,
    run,
    scale,
    suite,
    sweep,
)
from tests.support.places import CHECKOUT

FOLDER = CHECKOUT / "docs" / "reference" / "json"
DIALECT = "https://json-schema.org/draft/2020-12/schema"
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
    "history": ("history", "gups"),
    "compare-memory": ("compare", "1", "2", "--memory"),
    "plan": ("plan", "--topology", "pack:2 numa:2 core:4 pu:2", "--copies", "4", "--", "true"),
    "dry-run": ("run", "--dry-run", "--copies", "1", "--", "true"),
    "topo": ("topo", "pack:2 numa:2 core:4 pu:2"),
    "topo-facts": ("topo", "--facts"),
    "suites": ("suites",),
    "suite": ("suites", "show", "mini"),
    "layouts": ("layouts",),
    "settings": ("settings",),
    "doctor": ("doctor",),
}
# Commands about a sweep, which a database of single runs has not; sweep 1 is of runs with 1, 2, ...
# copies.
SWEEP_COMMANDS = {
    "scale": ("scale", "sweep:1"),
    "sweep": ("sweep", "--show", "1"),
    "sweep-dry-run": ("sweep", "--axis", "copies=1,2", "--dry-run", "--", "true"),
    "sweep-resume": ("sweep", "--resume", "1", "--dry-run"),
    "sweeps": ("sweep", "--list"),
    "versus": ("versus", "true", "sh -c true"),
}
# Commands that measure this machine for minutes.
MACHINE_COMMANDS = {"checkup": ("checkup",)}
# The keys that options of `show` add to its document.
ADDED: Mapping[str, tuple[str, ...]] = {
    "show-copies": ("copy_times", "copy_runs"),
    "show-cpus": ("readings",),
    "show-proof": (),
}
TYPES: Mapping[str, Any] = {
    "list": list[stored.ListedRunJson],
    "show": run.RunDocument,
    "export": stored.ExportDocument,
    "observations": stored.ObservationsDocument,
    "divots": divots.DivotsDocument,
    "divots-of-several": divots.SeveralDivotsDocument,
    "plot": copies.PlotDocument,
    "compare": compare.ComparisonDocument,
    "history": history.HistoryDocument,
    "compare-memory": compare.MemoryDocument,
    "scale": scale.ScaleDocument,
    "sweep": sweep.SweepResultDocument,
    "sweep-dry-run": sweep.SweepDryRunDocument,
    "sweep-resume": sweep.SweepResumeDocument,
    "sweeps": list[sweep.SweepHeadJson],
    "versus": compare.VersusDocument,
    "checkup": checkup.CheckupDocument,
    "plan": plan.PlanDocument,
    "dry-run": plan.DryRunDocument,
    "topo": machine.TopoDocument,
    "topo-facts": machine.HardwareDocument,
    "suites": list[plan.ListedSuiteJson],
    "suite": suite.SuiteDocument,
    "layouts": list[plan.LayoutJson],
    "settings": machine.SettingsDocument,
    "doctor": machine.DoctorDocument,
}
# Runs of other sorts, whose documents have to fit as well.
OTHERS = (
    ("--mode", "rotated", "--iterations", "2", "own.toml", "--size", "test"),
    ("--mode", "steady", "--window", "0.5", "own.toml/one", "--size", "test"),
    ("--mode", "staggered", "--stagger", "10", "--", "true"),
    ("--iterations", "2", "--", "sh", "-c", "exit 3"),
    ("own.toml/two", "--size", "test"),
)
# Programs that are compiled, have references, metrics and output to be judged, and take 10 ms.
OTHERS_SUITE = r"""
[suite]
format = 1
name = "own"

[benchmarks.one]
category = "int"
sources = ["short.c"]
[benchmarks.one.sizes.test]
reference_s = 0.01
memory_mb = 2
expected = { text = "done\n", ignore = "^bandwidth " }

[benchmarks.two]
category = "fp"
sources = ["short.c"]
[benchmarks.two.metrics.bandwidth]
pattern = "^bandwidth ([0-9.]+) GB/s$"
unit = "GB/s"
better = "higher"
combine = "sum"
[benchmarks.two.sizes.test]
reference_s = 0.01
memory_mb = 2
expected = { text = "done\n", ignore = "^bandwidth " }
"""
OTHERS_SOURCE = r"""
#include <stdio.h>
#include <unistd.h>
int main(void) { usleep(10000); return puts("bandwidth 1.5 GB/s\ndone") < 0; }
"""

type Ask = Callable[..., tuple[int, str, str]]
type Schema = dict[str, Any]


def documents(ask: Ask, run_number: str = "1") -> Iterator[tuple[str, Any]]:
    """Yield every command's document by the name of its schema; of another run than 1: some."""
    for name, typed in COMMANDS.items():
        words = tuple(run_number if word == "1" else word for word in typed)
        if run_number != "1" and run_number not in words:
            continue
        asked = words if name in ("export", "observations") else (words[0], "--json", *words[1:])
        status, out, err = ask(*asked)
        assert status in (0, 1), (name, err)
        yield name, json.loads(out)


def sweep_documents(ask: Ask) -> Iterator[tuple[str, Any]]:
    """Yield the document of every command about a sweep by the name of its schema."""
    for name, (command, *words) in SWEEP_COMMANDS.items():
        if name in ("sweep-resume", "versus"):
            continue  # they make runs: tests/workflow/test_sweep.py, test_versus.py
        status, out, err = ask(command, "--json", *words)
        assert status in (0, 1), (name, err)
        yield name, json.loads(out)


def title_of(name: str) -> str:
    """Return the command line whose document a schema is of."""
    return f"rater {' '.join((COMMANDS | SWEEP_COMMANDS | MACHINE_COMMANDS)[name])}"


# -- A schema of a type ----------------------------------------------------------------------------

_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def schema_of(name: str) -> Schema:
    """Return the schema of a document."""
    if name in ADDED:
        show = schema_of("show")
        return show | {"required": [*show.get("required", ()), *ADDED[name]]}
    definitions: dict[str, Schema] = {}
    document = _schema(TYPES[name], definitions)
    top = definitions[_top_name(document)]
    # `print_json` puts the version first in each document, of a list in each member.
    version = {"type": "integer", "description": "Version of the document."}
    top["properties"] = {"rater": version, **top["properties"]}
    top["required"] = ["rater", *top["required"]]
    return {"title": title_of(name), "$schema": DIALECT, **document, "$defs": definitions}


def _top_name(document: Schema) -> str:
    reference: str = document.get("items", document)["$ref"]
    return reference.rpartition("/")[2]


def _schema(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type; those of TypedDicts are put into `definitions`."""
    if isinstance(kind, TypeAliasType):
        kind = kind.__value__
    if get_origin(kind) is not None:
        return _parametrised(kind, definitions)
    if is_typeddict(kind):
        return _reference(kind, definitions)
    if kind in (Any, object):
        return {}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    return {"enum": [member.value for member in kind]}


def _parametrised(kind: Any, definitions: dict[str, Schema]) -> Schema:
    """Return the schema of a type with others in brackets."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": [*arguments]}
    if origin in (Union, UnionType):
        return _union([_schema(argument, definitions) for argument in arguments])
    inner = _schema(arguments[-1 if origin is dict else 0], definitions)
    shapes: Mapping[Any, Schema] = {
        NotRequired: inner,
        Annotated: inner | {"description": " ".join(getattr(kind, "__metadata__", ()))},
        list: {"type": "array", "items": inner},
        dict: {"type": "object", "additionalProperties": inner},
    }
    return shapes[origin]


def _union(schemas: list[Schema]) -> Schema:
    """Return the schema of what fits any; simple types share one `type`."""
    if all(schema.keys() == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def _reference(kind: Any, definitions: dict[str, Schema]) -> Schema:
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # before its members, which may be of the same type
        hints = get_type_hints(kind, include_extras=True)
        definitions[name] = {
            "type": "object",
            "description": " ".join((kind.__doc__ or "").split()),
            "properties": {key: _schema(hint, definitions) for key, hint in hints.items()},
            "required": [key for key, hint in hints.items() if get_origin(hint) is not NotRequired],
        }
    return {"$ref": f"#/$defs/{name}"}


def closed(schema: Schema) -> Schema:
    """Return a schema that no object fits which has a key beyond those of its type."""
    definitions = {
        name: definition | {"additionalProperties": False}
        for name, definition in schema["$defs"].items()
    }
    return schema | {"$defs": definitions}


# -- The files -------------------------------------------------------------------------------------


def path_of(name: str) -> Path:
    """Return where a schema lies."""
    return FOLDER / f"{name}.schema.json"


def text_of(name: str) -> str:
    """Return the file of a schema as it should be."""
    if name in ADDED:
        schema: Schema = {
            "title": title_of(name),
            "$schema": DIALECT,
            "$ref": path_of("show").name,
            "required": [*ADDED[name]],
        }
    else:
        schema = schema_of(name)
    return json.dumps(schema, indent=1) + "\n"


def main() -> int:
    """Write the schemas that are not as they should be."""
    for name in (*TYPES, *ADDED):
        path, text = path_of(name), text_of(name)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(CHECKOUT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
