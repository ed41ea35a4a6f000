"""Bytes read from and written to memory: by the counters of memory controllers, and by resctrl.

Counters of controllers are of PMUs beside the cores; they count for everybody, on one CPU of each
package (or die) that the PMU's `cpumask` names. The events of the families below are known, and
nothing is guessed of others. resctrl (Intel RDT, AMD QoS) counts by last-level cache, and
tells local memory from remote one.

Sources, all of the kernel: arch/x86/events/intel/uncore_snbep.c (and patches of February 2026 for
Granite Rapids), arch/x86/events/amd/uncore.c, drivers/perf, Documentation/admin-guide/perf and
Documentation/filesystems/resctrl.rst. None of these families was seen on silicon here.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from rater.record.series import Column
from rater.run.host.procfs import list_folder, read_number, read_text
from rater.run.observe.perf import PerfEvent, perf_event_open, perf_refusal
from rater.system.patterns import compile_later
from rater.text.cpuset import parse_list

type OpenEvent = Callable[[int, int, int], int]  # type, config, CPU: a descriptor, or OSError

_DEVICES = "sys/bus/event_source/devices"
_LINE_BYTES = 64
_TERM = compile_later(r"\b(\w+)=(0x[0-9a-fA-F]+|\d+)")
_BITS = compile_later(r"config:(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)")
_MODEL = compile_later(r"^model\s*: (\d+)$", re.MULTILINE)
_GENUINE_INTEL = "GenuineIntel"
_DDRC = compile_later(r"hisi_sccl\d+_ddrc\d+")
# Of Intel: Sapphire and Emerald Rapids, whose older kernels have the PMU without its events, and
# Granite Rapids (two) and Sierra Forest, whose channels have two schedulers.
_EVENTS_KNOWN = {143, 207}
_TWO_SCHEDULERS = {173, 174, 175}
READ, WRITTEN = "read_bytes", "written_bytes"
HALF = "_half_bytes"  # in the place of `_bytes`: of one of two schedulers of each channel
_MBM = {"mbm_local_bytes": "local_bytes", "mbm_total_bytes": "total_bytes"}


class TrafficEvent(Struct, frozen=True):
    """An event of a PMU that counts bytes of one column."""

    column: str
    terms: str  # as the kernel writes events: event=0x05,umask=0xcf
    unit_bytes: float


class _Counter(Struct, frozen=True):
    """One open counter: of a column, at a place, in units of so many bytes."""

    column: str
    node: int
    unit_bytes: float
    descriptor: int


class TrafficSource:
    """Bytes that memory controllers moved since their counters were opened, by NUMA node.

    A PMU counts for all of its package. Where that has several nodes, the first one has it all; on
    Kunpeng a PMU counts for the node of its CPUs.
    """

    family = "traffic"

    def __init__(self, root: Path, open_event: OpenEvent | None = None) -> None:
        self._lock = threading.Lock()
        self._counters: list[_Counter] = []
        self.refused: str | None = None  # why counters cannot be opened, and the way out
        if open_event is None and root == Path("/"):
            open_event = _open_event
        if open_event is not None:
            self._open(root, open_event)
        descriptors = [counter.descriptor for counter in self._counters]
        self._close_once = weakref.finalize(self, _close, descriptors)
        self.places: Sequence[int] = sorted({counter.node for counter in self._counters})
        self.columns: Sequence[str] = sorted({counter.column for counter in self._counters})

    def _open(self, root: Path, open_event: OpenEvent) -> None:
        """Open all counters, or none: half of a machine's channels say nothing of its traffic."""
        try:
            for counter in _open_counters(root, open_event):
                self._counters.append(counter)
        except (OSError, ValueError) as error:
            _close(counter.descriptor for counter in self._counters)
            self._counters = []
            why = str(error)
            if isinstance(error, PermissionError):
                why = "; ".join(perf_refusal(error, 0, root))
            elif isinstance(error, OSError):
                why = f"the kernel opens no counter of it ({error.strerror})"
            self.refused = f"memory traffic is not known: {why}"

    def close(self) -> None:
        """Close the counters: none is read any more."""
        with self._lock:  # a thread that was given up may read still
            self._counters = []
            self._close_once()

    def read(self) -> Sequence[Column]:
        """Return bytes by column and node."""
        totals: dict[tuple[str, int], float | None] = {}
        with self._lock:
            values = [(counter, _read_counter(counter.descriptor)) for counter in self._counters]
        for counter, value in values:
            key = (counter.column, counter.node)
            total = totals.get(key, 0.0)
            totals[key] = (
                None if value is None or total is None else total + value * counter.unit_bytes
            )
        return [
            [
                None if (total := totals.get((column, node))) is None else round(total)
                for node in self.places
            ]
            for column in self.columns
        ]


def _read_counter(descriptor: int) -> int | None:
    with suppress(OSError):
        content = os.read(descriptor, 8)
        return int.from_bytes(content, "little") if len(content) == 8 else None
    return None


def _close(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _open_event(pmu_type: int, config: int, cpu: int) -> int:
    return perf_event_open(PerfEvent(pmu_type, config), cpu=cpu)


def _open_counters(root: Path, open_event: OpenEvent) -> Iterator[_Counter]:
    """Yield an open counter for each event, PMU and CPU of its mask. Raises `OSError`."""
    node_by_cpu = _nodes_of_cpus(root)
    package_nodes = _nodes_of_packages(root, node_by_cpu)
    for pmu in list_folder(root / _DEVICES):
        events = [*_events_of(root, pmu)]
        pmu_type = read_number(pmu / "type")
        cpus = read_text(pmu / "cpumask")
        if not events or pmu_type is None or cpus is None:
            continue
        nodes = node_by_cpu if _DDRC.fullmatch(pmu.name) else package_nodes
        for event in events:
            config = encode(event.terms, pmu / "format")
            for cpu in parse_list(cpus):
                yield _Counter(
                    column=event.column,
                    node=nodes.get(cpu, 0),
                    unit_bytes=event.unit_bytes,
                    descriptor=open_event(pmu_type, config, cpu),
                )


def encode(terms: str, formats: Path) -> int:
    """Return the config of an event by the bits that a PMU's `format` gives to each term.

    Raises `ValueError` for a term that it does not have, or has in another word than config.
    """
    config = 0
    for name, text in _TERM.findall(terms):
        layout = _BITS.fullmatch(read_text(formats / name) or "")
        if layout is None:
            raise ValueError(f"{formats}: no bits for {name}")
        value = int(text, 0)
        for bits in layout[1].split(","):
            first, _, last = bits.partition("-")
            width = int(last or first) - int(first) + 1
            config |= (value & ((1 << width) - 1)) << int(first)
            value >>= width
    return config


def _nodes_of_cpus(root: Path) -> dict[int, int]:
    return {
        cpu: int(folder.name.removeprefix("node"))
        for folder in list_folder(root / "sys/devices/system/node", "node[0-9]*")
        for cpu in parse_list(read_text(folder / "cpulist") or "")
    }


def _nodes_of_packages(root: Path, node_by_cpu: Mapping[int, int]) -> dict[int, int]:
    """Return for each CPU the first NUMA node of its package."""
    packages = {
        cpu: read_number(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
        for cpu in node_by_cpu
    }
    first_node: dict[int | None, int] = {}
    for cpu, package in packages.items():
        first_node[package] = min(node_by_cpu[cpu], first_node.get(package, node_by_cpu[cpu]))
    return {
        cpu: node_by_cpu[cpu] if package is None else first_node[package]
        for cpu, package in packages.items()
    }


# -- Which events of which PMU count bytes of memory -----------------------------------------------


def _events_of(root: Path, pmu: Path) -> Iterable[TrafficEvent]:
    if re.fullmatch(r"uncore_imc_\d+", pmu.name):
        return _intel_events(root, pmu)
    if re.fullmatch(r"amd_umc_\d+", pmu.name):
        return _amd_events(pmu)
    if re.fullmatch(r"nvidia_scf_pmu_\d+", pmu.name):
        return _named(pmu, {READ: ("cmem_rd_data", 32), WRITTEN: ("cmem_wr_total_bytes", 1)})
    if _DDRC.fullmatch(pmu.name):
        return _named(pmu, {READ: ("flux_rd", 32), WRITTEN: ("flux_wr", 32)})
    return ()


def _named(pmu: Path, events: Mapping[str, tuple[str, float]]) -> Iterator[TrafficEvent]:
    """Yield events by their names in the PMU's folder, if all of them are there."""
    terms = {column: read_text(pmu / "events" / name) for column, (name, _) in events.items()}
    for column, (_, unit_bytes) in events.items():
        text = terms[column]
        if text is not None and None not in terms.values():
            yield TrafficEvent(column, text, unit_bytes)


def _intel_events(root: Path, pmu: Path) -> Iterator[TrafficEvent]:
    model = _intel_model(root)
    names = {READ: "cas_count_read", WRITTEN: "cas_count_write"}
    by_scheduler = [
        {column: (f"{name}_sch{number}", _LINE_BYTES) for column, name in names.items()}
        for number in (0, 1)
    ]
    both = [event for events in by_scheduler for event in _named(pmu, events)]
    if len(both) == len(names) * len(by_scheduler):
        yield from both
        return
    whole = [*_named(pmu, {column: (name, _LINE_BYTES) for column, name in names.items()})]
    if not whole and model in _EVENTS_KNOWN:
        whole = [
            TrafficEvent(READ, "event=0x05,umask=0xcf", _LINE_BYTES),
            TrafficEvent(WRITTEN, "event=0x05,umask=0xf0", _LINE_BYTES),
        ]
    for event in whole:
        column = event.column
        if model in _TWO_SCHEDULERS:
            column = column.replace("_bytes", HALF)
        yield TrafficEvent(column, event.terms, event.unit_bytes)


def _intel_model(root: Path) -> int | None:
    """Return the model of an Intel processor of family 6; None of others."""
    head = (read_text(root / "proc/cpuinfo") or "").partition("\n\n")[0]
    match = _MODEL.search(head)
    return int(match[1]) if match and _GENUINE_INTEL in head else None


def _amd_events(pmu: Path) -> Iterator[TrafficEvent]:
    """Yield reads and writes of a channel of Zen 4 or newer, whose PMU names no events."""
    if read_text(pmu / "format/rdwrmask") is not None:
        yield TrafficEvent(READ, "event=0x0a,rdwrmask=1", _LINE_BYTES)
        yield TrafficEvent(WRITTEN, "event=0x0a,rdwrmask=2", _LINE_BYTES)


# -- resctrl ---------------------------------------------------------------------------------------


class ResctrlSource:
    """Bytes that last-level caches exchanged with memory, by the NUMA node of their CPUs.

    `local_bytes` of memory of the node, `total_bytes` of any: memory bandwidth monitoring (MBM).
    """

    family = "resctrl"
    refused: str | None = None

    def __init__(self, root: Path) -> None:
        node_by_cache = _nodes_of_caches(root)
        self._files: list[tuple[int, dict[str, Path]]] = []
        for folder in list_folder(root / "sys/fs/resctrl/mon_data", "mon_L3_*"):
            number = folder.name.removeprefix("mon_L3_")
            node = node_by_cache.get(int(number)) if number.isdigit() else None
            files = {
                column: folder / name
                for name, column in _MBM.items()
                if read_text(folder / name) is not None
            }
            if node is not None and files:
                self._files.append((node, files))
        self.places: Sequence[int] = sorted({node for node, _ in self._files})
        self.columns: Sequence[str] = sorted(
            {column for _, files in self._files for column in files}
        )

    def read(self) -> Sequence[Column]:
        """Return bytes by column and node; a cache that is `Unavailable` makes its node that."""
        columns = []
        for column in self.columns:
            by_node: dict[int, int | None] = {}
            for node, files in self._files:
                value = read_number(files[column]) if column in files else None
                total = by_node.get(node, 0)
                by_node[node] = None if value is None or total is None else total + value
            columns.append([by_node.get(node) for node in self.places])
        return columns


def _nodes_of_caches(root: Path) -> dict[int, int]:
    """Return the NUMA node of each last-level cache, by the kernel's number of the cache."""
    node_by_cache: dict[int, int] = {}
    for cpu, node in _nodes_of_cpus(root).items():
        cache = read_number(root / f"sys/devices/system/cpu/cpu{cpu}/cache/index3/id")
        if cache is not None:
            node_by_cache.setdefault(cache, node)
    return node_by_cache
