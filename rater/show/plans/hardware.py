"""Facts of a machine that no setting changes, as tables and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rater.record.run import Host
from rater.show.screen.document import Part, facts
from rater.show.screen.format import crop

if TYPE_CHECKING:
    from rater.show.documents.machine import HardwareDocument, HardwareFactJson

_UNREAD = "unread."
# Groups in the order of the screen, with the names that runs record.
_GROUPS = {
    "firmware": ("firmware.",),
    "memory": ("dimms.",),
    "memory slots": ("dimm.",),
    "firmware's promises (HMAT)": ("hmat.",),
    "caches of a CPU": ("cache.",),
    "TLBs": ("tlb.",),
    "kernel": ("kernel.page_bytes", "kernel.cmdline", "kernel.release"),
    "processor": ("cpu.nodes_per_package",),
}
_WORDS = {
    "dimms.found": "modules",
    "dimms.channels": "channels",
    "dimms.parts": "parts",
    "dimms.peak_mb_s": "peak",
    "kernel.page_bytes": "base page",
    "kernel.cmdline": "command line",
    "cpu.nodes_per_package": "NUMA nodes per package",
}
_UNITS = {"_mb_s": "MB/s", "_ns": "ns", "_bytes": "bytes"}  # that names end with
_MOST_SLOTS = 64  # shown; --json has all
_LONGEST_LABEL, _LONGEST_VALUE = 44, 2048  # of those shown: a command line has 2,048 letters


def hardware_document(of: str, host: Host, settings: Mapping[str, str]) -> HardwareDocument:
    """Return the facts of a machine, from the settings of a run or of this moment."""
    of_host = {
        "product": host.product,
        "processor": host.cpu_model,
        "microcode": host.microcode,
    }
    rows: list[HardwareFactJson] = [
        {"group": "processor", "name": name, "value": value}
        for name, value in of_host.items()
        if value is not None
    ]
    for group, beginnings in _GROUPS.items():
        rows += [
            {"group": group, "name": name, "value": value}
            for name, value in settings.items()
            if name.startswith(beginnings)
        ]
    return {
        "of": of,
        "facts": rows,
        "unread": [
            {"what": name.removeprefix(_UNREAD), "why": value}
            for name, value in settings.items()
            if name.startswith(_UNREAD)
        ],
    }


def hardware_parts(document: HardwareDocument) -> Iterator[Part]:
    """Yield the facts for people, group by group, and what could not be read."""
    yield document["of"]
    for group in ("processor", *(name for name in _GROUPS if name != "processor")):
        rows = [fact for fact in document["facts"] if fact["group"] == group]
        yield facts(map(_cropped, map(_labelled, rows)), group, most=_MOST_SLOTS)
    unread = [(entry["what"], entry["why"]) for entry in document["unread"]]
    yield facts(map(_cropped, unread), "not known", most=_MOST_SLOTS)
    if not document["facts"]:
        yield "nothing is recorded: an older rater made this run, or it was imported"


def _cropped(row: tuple[str, str]) -> tuple[str, str]:
    """Return a row that fits a screen, whatever another machine's firmware or a file says."""
    label, value = row
    return crop(label, _LONGEST_LABEL, ascii_only=True), crop(value, _LONGEST_VALUE)


def _labelled(fact: HardwareFactJson) -> tuple[str, str]:
    """Return a fact for people: `node0 read latency`, `90 ns`."""
    label, value = _label(fact["name"], fact["group"]), fact["value"]
    for ending, unit in _UNITS.items():
        if fact["name"].endswith(ending):
            return label.removesuffix(ending.replace("_", " ")), f"{value} {unit}"
    return label, value


def _label(name: str, group: str) -> str:
    """Return a fact's name for people: the slot's own name, `node0 read_latency_ns`."""
    if name in _WORDS:
        return _WORDS[name]
    beginning = next((it for it in _GROUPS[group] if it.endswith(".") and name.startswith(it)), "")
    label = name.removeprefix(beginning)
    return label if group == "memory slots" else label.replace(".", " ").replace("_", " ")
