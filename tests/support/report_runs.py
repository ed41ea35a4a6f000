"""Runs for the tests of `rater report`, as observations documents and as pages."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

HOSTILE = "</script><script>alert(1)</script>\"'`${x}<!-- <img src=x onerror=alert(2)>&amp; é中"


def document(
    *,
    name: str = "b",
    host: str = "h",
    uuid: str = "u-1",
    benchmarks: int = 3,
    iterations: int = 2,
    slow: float = 1.3,
    **run: Any,
) -> dict[str, Any]:
    """16 copies on four lgroups of two packages; lgroup 1 takes `slow` times as long."""
    observations = []
    at = 0.0
    for benchmark in range(benchmarks):
        for iteration in range(1, iterations + 1):
            times = [
                (10 + benchmark)
                * (slow if copy // 4 == 1 else 1)
                * (1 + 0.001 * ((copy * 7 + iteration) % 5))
                for copy in range(16)
            ]
            observations += [
                {
                    "benchmark": f"{name}{benchmark}",
                    "iteration": iteration,
                    "copy": copy,
                    "cpu": copy,
                    "core": copy // 2,
                    "node": copy // 4,
                    "package": copy // 8,
                    "start_s": at,
                    "elapsed_s": seconds,
                }
                for copy, seconds in enumerate(times)
            ]
            at += max(times) + 1
    head = {"uuid": uuid, "host": host, "mode": "homogeneous", "copies": 16}
    nodes = {str(number): list(range(4 * number, 4 * number + 4)) for number in range(4)}
    return {
        "rater": 1,
        "run": head | {"started_at": "2026-11-20T12:00:00Z"} | run,
        "topology": {"nodes": nodes, "packages": {"0": [*range(8)], "1": [*range(8, 16)]}},
        "observations": observations,
    }


def written(folder: Path, document: dict[str, Any]) -> Path:
    """A document as a file."""
    path = folder / f"{re.sub(r'[^a-z0-9-]', '', document['run']['uuid'])}.json"
    path.write_text(json.dumps(document))
    return path


def unpacked(text: str) -> Any:
    """Return the data of a page, as its scripts read them."""
    return json.loads(zlib.decompress(b64decode(text)))


class Page(HTMLParser):
    """What a browser would make of a page's text, as far as tests ask."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._inside: str | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else None
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside is None:
            self.words.append(data)

    @property
    def visible_text(self) -> str:
        """Everything that can be read without scripts, on one line."""
        return " ".join(" ".join(self.words).split())

    @property
    def data(self) -> Any:
        """What the pictures are drawn from."""
        return unpacked(self.scripts[0])

    def find(self, tag: str, **wanted: str) -> list[dict[str, str | None]]:
        """The attributes of elements of a kind."""
        return [
            attributes
            for name, attributes in self.elements
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]
