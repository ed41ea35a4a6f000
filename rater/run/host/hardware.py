"""Facts of this machine that no setting changes: firmware, memory modules, promises, TLBs.

They are stored with a run beside its settings, by name, as text. What could not be read is a fact
too: `unread.WHAT` is the reason. `/proc`, `/sys` and `/dev` lie below `root`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rater.run.host.procfs import list_folder, read_number, read_text
from rater.run.host.smbios import (
    MOST_BYTES,
    FirmwareTable,
    MemorySlot,
    channel_obstacle,
    channels_of,
    describe_modules,
    peak_mb_s,
    peak_obstacle,
    read_firmware_table,
)
from rater.system.patterns import compile_later
from rater.text import cpuset
from rater.text.values import count, group_by_key

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
    vendor = table.bios.vendor if table and table.bios else None
    if vendor := vendor or read_text(root / "sys/class/dmi/id/bios_vendor"):
        yield "firmware.vendor", vendor
    elif not read_text(root / "sys/class/dmi/id/bios_version"):
        yield f"{UNREAD}firmware", "the kernel shows none in /sys/class/dmi/id"
    if table is not None:
        obstacle = _describe_faults(table)
    yield from _memory_facts(slots)
    yield from _channel_facts(slots)
    remark = ""
    if not slots:
        remark = yield from _edac_facts(root)
    if obstacle is not None:
        yield f"{UNREAD}memory modules", f"{obstacle}{remark}"


def _describe_faults(table: FirmwareTable) -> str | None:
    faults = [*table.faults]
    if not table.slots:
        faults.append("it names no memory slot")
    elif obstacle := channel_obstacle(table.slots):
        faults.append(obstacle)
    return f"the firmware's table: {'; '.join(faults)}" if faults else None


def _memory_facts(slots: Sequence[MemorySlot]) -> Iterator[tuple[str, str]]:
    found = describe_modules(slots)
    if not found:
        return
    yield "dimms.found", found
    named: set[str] = set()
    for slot in slots[:_MOST_SLOTS]:
        name = slot.name
        # A slot may be called as another one that is numbered, `A (2)`: a run has a name once.
        for number in range(2, len(slots) + 2):
            if name not in named:
                break
            name = f"{slot.name} ({number})"
        named.add(name)
        yield f"dimm.{name}", slot.description
    parts = Counter(slot.part for slot in slots if slot.part and slot.megabytes)
    if parts:
        yield "dimms.parts", ", ".join(f"{count} x {part}" for part, count in sorted(parts.items()))
    if len(slots) > _MOST_SLOTS:
        yield f"{UNREAD}slots", f"only the first {_MOST_SLOTS} of {len(slots)} are named"


def _channel_facts(slots: Sequence[MemorySlot]) -> Iterator[tuple[str, str]]:
    """Yield how many channels have modules, and their peak, as far as slots tell it."""
    channels = channels_of(slots) or {}
    sizes = [[slot.megabytes for slot in of_channel] for of_channel in channels.values()]
    if channels and all(any(of_channel) or None not in of_channel for of_channel in sizes):
        yield "dimms.channels", f"{sum(map(any, sizes))} of {len(channels)} populated"
    peak, obstacle = peak_mb_s(slots), peak_obstacle(slots)
    if peak is not None:
        yield "dimms.peak_mb_s", str(peak)
    elif channels and obstacle:
        yield f"{UNREAD}peak of channels", obstacle


def _edac_facts(root: Path) -> Generator[tuple[str, str], None, str]:
    """Yield the modules that the kernel's error counters know; returns a remark on it.

    Empty slots are not among them, and so nothing is told of channels. AMD's driver knows ranks
    and no modules: those of one channel are told together.
    """
    controllers = root / "sys/devices/system/edac/mc"
    modules = [_edac_slot(folder) for folder in list_folder(controllers, "mc*/dimm*")]
    if modules:
        yield from _memory_facts(modules)
        return "; sizes are those of EDAC, which does not tell empty slots"
    ranks = [_edac_slot(folder) for folder in list_folder(controllers, "mc*/rank*")]
    by_channel = group_by_key((slot.channel or slot.name, slot) for slot in ranks)
    for channel, of_channel in by_channel.items():
        megabytes = sum(slot.megabytes or 0 for slot in of_channel)
        kinds = dict.fromkeys(slot.kind for slot in of_channel if slot.kind)
        if all(slot.megabytes is not None for slot in of_channel):
            size = f"{megabytes / 1024:g} GB {' and '.join(kinds) or 'memory'}"
            yield f"dimm.channel {channel}", f"{size}, {count(len(of_channel), 'rank')}"
    return "; sizes are those of channels by EDAC, which does not tell modules" if ranks else ""


_OF_RANK = compile_later(r"csrow \d+ ?")


def _edac_slot(folder: Path) -> MemorySlot:
    location = _OF_RANK.sub("", read_text(folder / "dimm_location") or "")
    size = read_number(folder / "size")
    return MemorySlot(
        bank=f"{folder.parent.name} {location}" if location else folder.parent.name,
        locator=read_text(folder / "dimm_label") or folder.name,
        megabytes=None if size is None else float(size),
        kind=read_text(folder / "dimm_mem_type"),
    )


def _nodes_per_package(root: Path) -> str | None:
    """Return how many NUMA nodes with CPUs a package has: `4`, or `2 or 4`.

    A node that spans packages (`numa=off`, interleaved nodes) says that it does.
    """
    nodes_by_package: dict[int, set[str]] = {}
    spanned = 1  # packages of a node
    for node in list_folder(root / _NODES, "node[0-9]*"):
        with suppress(ValueError):
            cpus = cpuset.parse_list(read_text(node / "cpulist") or "")
            # All CPUs of hundreds would take milliseconds; neighbours are of one package.
            packages = {_package_of(root, cpu) for cpu in (*cpus[:1], *cpus[-1:])} - {None}
            spanned = max(spanned, len(packages))
            for package in packages:
                nodes_by_package.setdefault(package or 0, set()).add(node.name)
    if spanned > 1:
        return f"1 for {len(nodes_by_package)} packages or more"
    counts = sorted({len(nodes) for nodes in nodes_by_package.values()})
    return " or ".join(map(str, counts)) or None


def _package_of(root: Path, cpu: int) -> int | None:
    number = read_number(root / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
    return None if number is None or number < 0 else number


# Names of the kernel's Documentation/admin-guide/mm/numaperf.rst with the units it gives there.
_PROMISED = {
    "read_bandwidth": "mb_s",
    "write_bandwidth": "mb_s",
    "read_latency": "ns",
    "write_latency": "ns",
}


def _promises(root: Path) -> Iterator[tuple[str, str]]:
    """Yield what the firmware's HMAT promises of each node's memory to the nearest CPUs.

    Those are of `access1`; of older kernels in `access0`, which an accelerator may be nearest to.
    """
    is_told = False
    for node in list_folder(root / _NODES, "node[0-9]*"):
        for access in ("access1", "access0"):
            folder = node / access / "initiators"
            values = {name: read_number(folder / name) for name in _PROMISED}
            if any(values.values()):
                break
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
