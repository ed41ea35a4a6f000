"""An observations document made of another program's file: what its readers share; pure."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from rater.store.observations import VERSION

# A time in whole nanoseconds shall keep five digits: below that, a thousand operations are stored
# in place of one, and the benchmark's name says so.
_SHORTEST_S: Final = 1e-5
_THOUSAND: Final = 1000
MOST_OBSERVATIONS: Final = 1_000_000  # of a file


class ForeignRun(NamedTuple):
    """A run of another program's file."""

    document: dict[str, Any]  # an observations document
    notes: tuple[str, ...]  # what of the file is left out, or has changed its form


def document_of(
    data: bytes,
    observations: Sequence[dict[str, Any]],
    head: Mapping[str, Any],
    part: str = "",
) -> dict[str, Any]:
    """Return the observations document of a file's content, or of a `part` of it.

    The same content has the same uuid. Keys of `head` that are None are not known.
    """
    copies = max((row.get("copy", 0) for row in observations), default=0) + 1
    known = {key: value for key, value in head.items() if value is not None}
    run = {"uuid": identity(data, part), "mode": "homogeneous", "copies": copies} | known
    return {"rater": VERSION, "run": run, "observations": list(observations)}


def identity(data: bytes, part: str = "") -> str:
    """Return the uuid of a file's run, whatever the file is called."""
    digest = hashlib.sha256(data + b"\0" + part.encode("utf-8", "replace")).hexdigest()
    return str(uuid.UUID(digest[:32], version=5))


def operations_for(shortest_s: float) -> int:
    """Return of how many operations the time is stored: 1, or as many thousands as it needs."""
    operations = 1
    while 0 < shortest_s * operations < _SHORTEST_S and operations < _THOUSAND**4:
        operations *= _THOUSAND
    return operations


def name_of_many(name: str, operations: int) -> str:
    """Return the name of a benchmark whose time is of so many operations."""
    return name if operations == 1 else f"{name} x{operations}"


def moment(text: str | None) -> str | None:
    """Return a time of ISO 8601; None for any other text."""
    with suppress(ValueError):
        return datetime.fromisoformat(text or "").isoformat()
    return None


def printable_name(text: str) -> str:
    """Return a benchmark's name as a line that a table can have."""
    return "".join(letter if letter.isprintable() else " " for letter in text).strip() or "?"
