"""A small observations document and what changes of it."""

from __future__ import annotations

import copy
import json
from typing import Any

from rater.record.stored import StoredRun
from rater.store.observations import read_observations

DOCUMENT: dict[str, Any] = {
    "rater": 1,
    "run": {
        "uuid": "made-by-hand",
        "host": "box",
        "mode": "homogeneous",
        "copies": 2,
        "started_at": "2026-11-20T12:00:00Z",
    },
    "topology": {
        "nodes": {"0": [0, 1], "1": [2, 3]},
        "cores": {"0": [0, 1], "1": [2, 3]},
        "packages": {"0": [0, 1, 2, 3]},
        "llcs": {"4": [0, 1], "5": [2, 3]},
    },
    "observations": [
        {
            "benchmark": "429.mcf",
            "iteration": iteration,
            "copy": number,
            "cpu": 2 * number,
            "core": number,
            "llc": 4 + number,
            "node": number,
            "package": 0,
            "start_s": 1000.0 * iteration + 0.5 * number,
            "elapsed_s": 801.2 + number,
        }
        for iteration in (0, 1)
        for number in (0, 1)
    ],
}


def read(document: object) -> StoredRun:
    return read_observations(json.dumps(document).encode(), "times.json")


def changed(path: str, value: object) -> dict[str, Any]:
    """The document with one value changed: `observations.3.cpu`."""
    document = copy.deepcopy(DOCUMENT)
    *way, last = path.split(".")
    place: Any = document
    for key in way:
        place = place[int(key) if isinstance(place, list) else key]
    place[last] = value
    return document


def observed(*rows: dict[str, Any], **run: Any) -> dict[str, Any]:
    """Return a document of these observations; by default benchmark b, iteration 1, 1 s."""
    always = {"benchmark": "b", "iteration": 1, "copy": 0, "elapsed_s": 1.0}
    return {
        "rater": 1,
        "run": {"uuid": "u", "mode": "homogeneous", "copies": 2} | run,
        "observations": [always | row for row in rows],
    }
