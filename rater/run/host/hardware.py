"""Facts of this machine that no setting changes: firmware, memory modules, promises, TLBs.

They are stored with a run beside its settings, by name, as text. What could not be read is a fact
too: `unread.WHAT` is the reason. `/proc`, `/sys` and `/dev` lie below `root`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rater.run.host.procfs import list_folder, read_number, read_text
from rater.run.host.smbios import (
    MOST_BYTES,
    FirmwareTable,
    MemorySlot,
    channels_of,
    describe_modules,
    peak_mb_s,
    read_firmware_table,
)
from rater.text import cpuset

_TABLE = "sys/firmware/dmi/tables/DMI"
_MOST_SLOTS = 512  # that are named one by one
_NODES = "sys/devices/system/node"
UNREAD = "unread."


def hardware_facts(root: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Yield names and values: some milliseconds, most of it for a large table of the firmware.

    `firmware.vendor`; `dimm.BANK/LOCATOR` of each slot, `dimms.found`, `.channels`, `.parts` and
    `.peak_mb_s`; `cpu.nodes_per_package` (SNC, NPS); `hmat.nodeN.*`, what firmware promises to the
    nearest CPUs, in ns and MB/s; `cache.L1d` and its like, of the first CPU; `unread.*`, why one
    of these is not known.
    """
    yield from _firmware_facts(root)
    nodes_per_package = _nodes_per_package(root)
    if nodes_per_package:
        yield "cpu.nodes_per_package", nodes_per_package
    yield from _caches(root)
    yield from _promises(root)


_FIRST_CACHES = "sys/devices/system/cpu/cpu0/cache"
_CACHE_LETTERS = {"Data": "d", "Instruction": "i", "Unified": ""}


def _caches(root: Path) -> Iterator[tuple[str, str]]:
    """Yield `cache.L1d` and its like, of the first CPU: `48K, 12 ways, 64-byte lines`."""
    for index in list_folder(root / _FIRST_CACHES, "index*"):
        names = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")
        level, kind, size, ways, line = ((read_text(index / name) or "").strip() for name in names)
        if level and size:
            parts = [size, f"{ways} ways" if ways else "", f"{line}-byte lines" if line else ""]
            name = f"cache.L{level}{_CACHE_LETTERS.get(kind, '')}"
            yield name, ", ".join(part for part in parts if part)


def _firmware_facts(root: Path) -> Iterator[tuple[str, str]]:
    obstacle, table = None, None
    try:
        with (root / _TABLE).open("rb") as file:
            table = read_firmware_table(file.read(MOST_BYTES + 1))
    except PermissionError:
        obstacle = f"/{_TABLE} is for root: sudo tells slots and rated speeds"
    except OSError as error:
        obstacle = f"/{_TABLE}: {error.strerror}"
    slots = table.slots if table else ()
    if table is not None:
        obstacle = _describe_faults(table)
        if table.bios is not None and table.bios.vendor:
            yield "firmware.vendor", table.bios.vendor
    elif vendor := read_text(root / "sys/class/dmi/id/bios_vendor"):
        yield "firmware.vendor", vendor
    edac_slots = () if slots else tuple(_edac_slots(root))
    yield from _memory_facts(slots or edac_slots)
    if obstacle is not None:
        source = "; sizes are those of EDAC" if edac_slots else ""
        yield f"{UNREAD}memory modules", f"{obstacle}{source}"


def _describe_faults(table: FirmwareTable) -> str | None:
    faults = [*table.faults]
    if not table.slots:
        faults.append("it names no memory slot")
    elif channels_of(table.slots) is None:
        faults.append("its bank locators name no channels, which rater does not count from slots")
    return f"the firmware's table: {'; '.join(faults)}" if faults else None


def _memory_facts(slots: Sequence[MemorySlot]) -> Iterator[tuple[str, str]]:
    found = describe_modules(slots)
    if not found:
        return
    yield "dimms.found", found
    seen: Counter[str] = Counter()
    for slot in slots[:_MOST_SLOTS]:
        seen[slot.name] += 1
        number = f" ({seen[slot.name]})" if seen[slot.name] > 1 else ""
        yield f"dimm.{slot.name}{number}", slot.description
    parts = Counter(slot.part for slot in slots if slot.part and slot.megabytes)
    if parts:
        yield "dimms.parts", ", ".join(f"{count} x {part}" for part, count in sorted(parts.items()))
    channels = channels_of(slots)
    if channels is not None:
        populated = sum(any(slot.megabytes for slot in it) for it in channels.values())
        yield "dimms.channels", f"{populated} of {len(channels)} populated"
    peak = peak_mb_s(slots)
    if peak is not None:
        yield "dimms.peak_mb_s", str(peak)


def _edac_slots(root: Path) -> Iterator[MemorySlot]:
    """Yield the modules that the kernel's error counters know; empty slots are not among them."""
    for folder in list_folder(root / "sys/devices/system/edac/mc", "mc*/dimm*"):
        location = read_text(folder / "dimm_location")
        size = read_number(folder / "size")
        yield MemorySlot(
            bank=f"{folder.parent.name} {location}" if location else folder.parent.name,
            locator=read_text(folder / "dimm_label") or folder.name,
            megabytes=None if size is None else float(size),
            kind=read_text(folder / "dimm_mem_type"),
        )


def _nodes_per_package(root: Path) -> str | None:
    """Return how many NUMA nodes with CPUs a package has: `4`, or `2 or 4`."""
    nodes_by_package: dict[int, set[str]] = {}
    for node in list_folder(root / _NODES, "node[0-9]*"):
        with suppress(ValueError):
            for cpu in cpuset.parse_list(read_text(node / "cpulist") or ""):
                place = f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"
                package = read_number(root / place)
                if package is not None and package >= 0:
                    nodes_by_package.setdefault(package, set()).add(node.name)
                    break
    counts = sorted({len(nodes) for nodes in nodes_by_package.values()})
    return " or ".join(map(str, counts)) or None


# Names of the kernel's Documentation/admin-guide/mm/numaperf.rst with the units it gives there.
_PROMISED = {
    "read_bandwidth": "mb_s",
    "write_bandwidth": "mb_s",
    "read_latency": "ns",
    "write_latency": "ns",
}


def _promises(root: Path) -> Iterator[tuple[str, str]]:
    """Yield what the firmware's HMAT promises of each node's memory to the nearest initiators."""
    is_told = False
    for node in list_folder(root / _NODES, "node[0-9]*"):
        folder = node / "access0/initiators"
        values = {name: read_number(folder / name) for name in _PROMISED}
        for name, unit in _PROMISED.items():
            if values[name]:  # 0: the firmware does not say
                is_told = True
                yield f"hmat.{node.name}.{name}_{unit}", str(values[name])
        initiators = [it.name.removeprefix("node") for it in list_folder(folder, "node[0-9]*")]
        if any(values.values()) and initiators:
            yield f"hmat.{node.name}.initiators", ",".join(sorted(initiators, key=_by_number))
    if not is_told:
        yield f"{UNREAD}promised bandwidth", "this firmware has no HMAT, or the kernel shows none"


def _by_number(word: str) -> tuple[int, str]:
    return (int(word) if word.isdecimal() else 0, word)
