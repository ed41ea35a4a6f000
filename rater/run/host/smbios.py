"""The firmware's table of the machine (SMBIOS) as values: BIOS and memory modules; pure.

Offsets and codes are those of the System Management BIOS Reference Specification (DSP0134 3.7).
The table is what firmware wrote, and firmware is wrong at times: a structure that is cut, or that
names a string which is not there, costs its own values only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rater.system.patterns import compile_later

MOST_BYTES = 1 << 20  # of a table: those of the largest servers have some 20 kB
_MOST_STRUCTURES = 8192
_BIOS, _MEMORY_DEVICE, _END = 0, 17, 127  # types of structures
_BIOS_BYTES = 0x12  # up to its characteristics: what version 2.0 has
_DEVICE_BYTES = 0x15  # up to its speed: what version 2.1 has
_UNKNOWN_SPEED, _SPEED_ELSEWHERE = 0, 0xFFFF
_UNKNOWN_SIZE, _SIZE_ELSEWHERE = 0xFFFF, 0x7FFF
_MEMORY_TYPES = {
    **{0x12: "DDR", 0x13: "DDR2", 0x18: "DDR3", 0x1A: "DDR4", 0x1B: "LPDDR", 0x1C: "LPDDR2"},
    **{0x1D: "LPDDR3", 0x1E: "LPDDR4", 0x20: "HBM", 0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5"},
    **{0x24: "HBM3"},
}
# How firmware names a channel in the bank locator: `P0 CHANNEL H`, `P0_Node0_Channel3_Dimm0`,
# `NODE 1 CHANNEL 2 DIMM 0`, `P0-H`. A name of another form, as `BANK 3`, tells no channel.
_CHANNEL = compile_later(r"(?P<before>.*?)(?:CHANNEL|CHAN|CH)[ _-]*(?P<channel>[A-Z]|\d{1,2})\b")
_SHORT_CHANNEL = compile_later(r"(?P<before>(?:P|CPU|PROC)[ _]?\d+)[ _-](?P<channel>[A-Z])")
_NO_NAMES = ("", "not specified", "unknown", "none", "default string", "to be filled by o.e.m.")


class Bios(Struct, frozen=True, kw_only=True):
    """What firmware calls itself; None stands for what it leaves out."""

    vendor: str | None
    version: str | None
    date: str | None


class MemorySlot(Struct, frozen=True, kw_only=True):
    """A slot for a memory module; None: not known."""

    bank: str | None  # bank locator: what firmware says of channel and socket
    locator: str | None  # device locator: what is printed on the board
    megabytes: float | None  # 0: no module
    kind: str | None = None  # DDR5
    rated_mts: int | None = None  # transfers in a microsecond that the module is made for
    configured_mts: int | None = None  # ... that it runs at
    ranks: int | None = None
    part: str | None = None  # maker and part number

    @property
    def name(self) -> str:
        """Its bank, and its locator where that says more."""
        names = [name for name in (self.bank, self.locator) if name]
        return "/".join(dict.fromkeys(names)) or "slot without a name"

    @property
    def channel(self) -> str | None:
        """The channel, such as `P0-H`, where the bank locator names one; never counted."""
        bank = (self.bank or "").upper().replace("_", " ")
        match = _SHORT_CHANNEL.fullmatch(bank) or _CHANNEL.match(bank)
        if match is None:
            return None
        before = match["before"].strip(" _-").replace(" ", "-")
        return f"{before}-{match['channel']}" if before else match["channel"]

    @property
    def description(self) -> str:
        """The module in words: `64 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks`."""
        if self.megabytes is None:
            return "size not known"
        if not self.megabytes:
            return "empty"
        parts = [f"{self.megabytes / 1024:g} GB {self.kind or 'memory'}"]
        if self.rated_mts is not None:
            parts.append(f"rated {self.rated_mts} MT/s")
        if self.configured_mts is not None:
            parts.append(f"runs at {self.configured_mts} MT/s")
        if self.ranks is not None:
            parts.append(f"{self.ranks} rank{'s' if self.ranks > 1 else ''}")
        return ", ".join(parts)

    @property
    def speed_mts(self) -> int | None:
        """Transfers in a microsecond that it runs at, else those it is made for."""
        return self.configured_mts if self.configured_mts is not None else self.rated_mts


class FirmwareTable(Struct, frozen=True, kw_only=True):
    """What a table says; `faults` has a sentence for each kind of thing that is wrong in it."""

    bios: Bios | None
    slots: tuple[MemorySlot, ...]
    faults: tuple[str, ...]


class _Structure(Struct, frozen=True):
    """A structure: its bytes up to its length, and the strings behind them."""

    data: bytes
    strings: tuple[bytes, ...]

    def number(self, offset: int, width: int) -> int | None:
        """Return a field, or None if the structure is too short for it."""
        if len(self.data) < offset + width:
            return None
        return int.from_bytes(self.data[offset : offset + width], "little")

    def string(self, offset: int, faults: Counter[str]) -> str | None:
        """Return the string that a field numbers from 1; None for none."""
        number = self.number(offset, 1)
        if not number:
            return None
        if number > len(self.strings):
            faults["name a string that is not there"] += 1
            return None
        decoded = self.strings[number - 1].decode("utf-8", "replace")
        text = " ".join("".join(it if it.isprintable() else " " for it in decoded).split())
        return None if text.lower() in _NO_NAMES else text


def read_firmware_table(table: bytes) -> FirmwareTable:
    """Return what a table says, as far as it can be read; never raises."""
    faults: Counter[str] = Counter()
    bios, slots = None, []
    for structure in _structures(table[:MOST_BYTES], faults):
        if structure.data[0] == _BIOS and bios is None:
            if len(structure.data) < _BIOS_BYTES:
                faults["are shorter than their type is"] += 1
                continue
            vendor, version, date = (structure.string(it, faults) for it in (0x04, 0x05, 0x08))
            bios = Bios(vendor=vendor, version=version, date=date)
        elif structure.data[0] == _MEMORY_DEVICE:
            if len(structure.data) < _DEVICE_BYTES:
                faults["are shorter than their type is"] += 1
                continue
            slots.append(_memory_slot(structure, faults))
    sentences = [f"{count} of its structures {fault}" for fault, count in faults.items()]
    if len(table) > MOST_BYTES:
        sentences.append(f"only its first {MOST_BYTES >> 20} MB of {len(table)} bytes were read")
    return FirmwareTable(bios=bios, slots=tuple(slots), faults=tuple(sentences))


def _structures(table: bytes, faults: Counter[str]) -> Iterator[_Structure]:
    """Yield structures: a byte of type, a byte of length, data, then strings.

    The strings behind each structure end with two zero bytes (6.1.3), also where there are none.
    """
    begin = 0
    for _ in range(_MOST_STRUCTURES):
        if begin + 4 > len(table) or table[begin] == _END:
            return
        length = table[begin + 1]
        end = table.find(b"\0\0", begin + length)
        if length < 4 or begin + length > len(table) or end < 0:
            faults["are cut, and all behind is lost"] += 1
            return
        strings = table[begin + length : end].split(b"\0") if end > begin + length else []
        yield _Structure(table[begin : begin + length], tuple(strings))
        begin = end + 2


def _memory_slot(structure: _Structure, faults: Counter[str]) -> MemorySlot:
    attributes = structure.number(0x1B, 1)
    part = " ".join(filter(None, (structure.string(it, faults) for it in (0x17, 0x1A))))
    return MemorySlot(
        bank=structure.string(0x11, faults),
        locator=structure.string(0x10, faults),
        megabytes=_megabytes(structure),
        kind=_MEMORY_TYPES.get(structure.number(0x12, 1) or 0),
        rated_mts=_speed_mts(structure, 0x15, 0x54),
        configured_mts=_speed_mts(structure, 0x20, 0x58),
        ranks=(attributes & 0xF or None) if attributes is not None else None,
        part=part or None,
    )


def _megabytes(structure: _Structure) -> float | None:
    size = structure.number(0x0C, 2)
    if size is None or size == _UNKNOWN_SIZE:
        return None
    if size == _SIZE_ELSEWHERE:  # too large for 15 bits: it stands in the extended field
        extended = structure.number(0x1C, 4)
        return None if extended is None else float(extended & 0x7FFFFFFF)
    # Bit 15 says that the unit is a kilobyte, and not a megabyte.
    return (size & 0x7FFF) / 1024 if size & 0x8000 else float(size)


def _speed_mts(structure: _Structure, offset: int, extended_offset: int) -> int | None:
    speed = structure.number(offset, 2)
    if speed == _SPEED_ELSEWHERE:  # above 65,534 MT/s
        speed = structure.number(extended_offset, 4)
    return None if speed in (None, _UNKNOWN_SPEED) else speed


# -- What all slots say together -------------------------------------------------------------------


def describe_modules(slots: Sequence[MemorySlot]) -> str:
    """Return `8 x 32 GB DDR4 at 3200 MT/s, 8 empty`; nothing where no module is known."""
    modules: Counter[str] = Counter()
    empty = 0
    for slot in slots:
        if slot.megabytes:
            speed = "" if slot.speed_mts is None else f" at {slot.speed_mts} MT/s"
            modules[f"{slot.megabytes / 1024:g} GB {slot.kind or 'memory'}{speed}"] += 1
        else:
            empty += slot.megabytes == 0
    parts = [f"{count} x {module}" for module, count in sorted(modules.items())]
    return ", ".join(parts + ([f"{empty} empty"] if empty and parts else []))


def channels_of(slots: Sequence[MemorySlot]) -> dict[str, list[MemorySlot]] | None:
    """Return the slots of each channel by name, or None if a slot names none."""
    channels: dict[str, list[MemorySlot]] = {}
    for slot in slots:
        if slot.channel is None:
            return None
        channels.setdefault(slot.channel, []).append(slot)
    return channels or None


_CHANNEL_BYTES = 8  # a transfer of a DDR channel; DDR5's two halves of 4 bytes together


def peak_mb_s(slots: Sequence[MemorySlot]) -> int | None:
    """Return what all populated channels transfer at most, MB/s, or None if that is not known.

    A channel runs at the speed of its slowest module. Wider memory (HBM) is not known so.
    """
    channels = channels_of(slots)
    if channels is None:
        return None
    total = 0
    for of_channel in channels.values():
        modules = [slot for slot in of_channel if slot.megabytes != 0]
        speeds = [slot.speed_mts for slot in modules if slot.speed_mts is not None]
        if len(speeds) < len(modules) or any("HBM" in (slot.kind or "") for slot in modules):
            return None
        total += min(speeds, default=0) * _CHANNEL_BYTES
    return total or None
