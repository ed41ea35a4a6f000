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
_MOST_LETTERS = 64  # of a string, what version 2.6 allowed; names of slots have some 30
_BIOS, _MEMORY_ARRAY, _MEMORY_DEVICE, _END = 0, 16, 17, 127  # types of structures
_BIOS_BYTES = 0x12  # up to its characteristics: what version 2.0 has
_ARRAY_BYTES = 0x07  # up to its error correction
_DEVICE_BYTES = 0x15  # up to its speed: what version 2.1 has
_NO_MAIN_MEMORY = (4, 5, 6, 7)  # uses of an array: video, flash, non-volatile, cache
_ON_CXL_CARD = 0xA4  # location of an array
_UNKNOWN_SPEED, _SPEED_ELSEWHERE = 0, 0xFFFF
_UNKNOWN_SIZE, _SIZE_ELSEWHERE = 0xFFFF, 0x7FFF
_PERSISTENT = "persistent memory"
_CHANNEL_BYTES = 8  # a transfer of a DDR channel
_UNKNOWN_WIDTH = (0, 0xFFFF)
_NO_MODULES = (0x05, 0x08, 0x09, 0x0A, 0x0B, 0x0C)  # VRAM, ROM, flash, EEPROM and the like
_MEMORY_TYPES = {
    **{0x12: "DDR", 0x13: "DDR2", 0x14: "DDR2", 0x18: "DDR3", 0x1A: "DDR4", 0x1B: "LPDDR"},
    **{0x1C: "LPDDR2", 0x1D: "LPDDR3", 0x1E: "LPDDR4", 0x1F: _PERSISTENT, 0x20: "HBM"},
    **{0x21: "HBM2", 0x22: "DDR5", 0x23: "LPDDR5", 0x24: "HBM3"},
}
# How firmware names a channel in the bank locator: `P0 CHANNEL H`, `P0_Node0_Channel3_Dimm0`,
# `NODE 1 CHANNEL 2 DIMM 0`, `P0-H`; desktops have it in the device locator, `ChannelA-DIMM0`.
# A name of another form, as `BANK 3` or `BRANCH 0`, tells no channel.
_CHANNEL = compile_later(
    r"(?P<before>.*?)(?<![A-Z])(?:CHANNEL|CHAN|CH)[ -]*(?P<channel>[A-Z]|\d{1,2})\b"
)
_SHORT_CHANNEL = compile_later(r"(?P<before>(?:P|CPU|PROC)[ _]?\d+)[ _-](?P<channel>[A-Z])")
_SOCKET = compile_later(r"\b(P|CPU|PROC|SOCKET)[ -]?(\d{1,2})(?!\d)")
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
    width_bits: int | None = None  # of a transfer, without error correction
    array: int | None = None  # handle of the array of slots that it is in
    is_on_cxl: bool = False  # behind a CXL link, and not on a channel of a socket

    @property
    def name(self) -> str:
        """Its bank, and its locator where that says more."""
        names = [name for name in (self.bank, self.locator) if name]
        return "/".join(dict.fromkeys(names)) or "slot without a name"

    @property
    def channel(self) -> str | None:
        """The channel, such as `P0-H`, where a name of the slot has one; rater counts none.

        Where it is named without a socket, that of the device locator stands before it.
        """
        bank, locator = (
            (name or "").upper().replace("_", " ") for name in (self.bank, self.locator)
        )
        match = _SHORT_CHANNEL.fullmatch(bank) or _CHANNEL.match(bank) or _CHANNEL.match(locator)
        if match is None:
            return None
        before = match["before"].strip(" -").replace(" ", "-")
        if not before and (socket := _SOCKET.search(locator)):
            before = "".join(socket.groups())
        return f"{before}-{match['channel']}" if before else match["channel"]

    @property
    def module(self) -> str:
        """Size and kind of its module: `64 GB DDR5`, `128 GB DDR5 on CXL`."""
        gigabytes = (self.megabytes or 0) / 1024
        return f"{gigabytes:g} GB {self.kind or 'memory'}{' on CXL' if self.is_on_cxl else ''}"

    @property
    def description(self) -> str:
        """The module in words: `64 GB DDR5, rated 5600 MT/s, runs at 4800 MT/s, 2 ranks`."""
        if self.megabytes is None:
            return "size not known"
        if not self.megabytes:
            return "empty"
        parts = [self.module]
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

    @property
    def transfer_bytes(self) -> int | None:
        """Bytes that a channel of DDR moves in a transfer; None for another kind of memory.

        DDR5's two halves of 4 bytes count together. Channels of LPDDR and HBM are of other widths.
        """
        if self.kind is not None and not self.kind.startswith("DDR"):
            return None
        is_as_wide = self.kind is not None or self.width_bits in (None, _CHANNEL_BYTES * 8)
        return _CHANNEL_BYTES if is_as_wide else None


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
        if len(text) > _MOST_LETTERS:
            text = f"{text[: _MOST_LETTERS - 1]}…"
        return None if text.lower() in _NO_NAMES else text


def read_firmware_table(table: bytes) -> FirmwareTable:
    """Return what a table says, as far as it can be read; never raises."""
    faults: Counter[str] = Counter()
    by_type: dict[int, list[_Structure]] = {}
    least_bytes = {_BIOS: _BIOS_BYTES, _MEMORY_ARRAY: _ARRAY_BYTES, _MEMORY_DEVICE: _DEVICE_BYTES}
    for structure in _structures(table[:MOST_BYTES], faults):
        kind = structure.data[0]
        if kind in least_bytes and len(structure.data) < least_bytes[kind]:
            faults["are shorter than their type is"] += 1
        elif kind in least_bytes:
            by_type.setdefault(kind, []).append(structure)
    bios = None
    for structure in by_type.get(_BIOS, [])[:1]:
        vendor, version, date = (structure.string(it, faults) for it in (0x04, 0x05, 0x08))
        bios = Bios(vendor=vendor, version=version, date=date)
    arrays = {structure.number(0x02, 2): structure for structure in by_type.get(_MEMORY_ARRAY, ())}
    slots = [
        _memory_slot(structure, arrays.get(structure.number(0x04, 2)), faults)
        for structure in by_type.get(_MEMORY_DEVICE, ())
        if _is_main_memory(structure, arrays.get(structure.number(0x04, 2)))
    ]
    sentences = [f"{count} of its structures {fault}" for fault, count in faults.items()]
    if len(table) > MOST_BYTES:
        sentences.append(f"only its first {MOST_BYTES >> 20} MB were read")
    return FirmwareTable(bios=bios, slots=tuple(slots), faults=tuple(sentences))


def _is_main_memory(structure: _Structure, array: _Structure | None) -> bool:
    """Tell whether a device is memory of programs; flash with the firmware is a device, too."""
    use = None if array is None else array.number(0x05, 1)
    return use not in _NO_MAIN_MEMORY and structure.number(0x12, 1) not in _NO_MODULES


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
    if begin + 4 <= len(table) and table[begin] != _END:
        faults["are read, and those behind are not"] = _MOST_STRUCTURES


def _memory_slot(
    structure: _Structure, array: _Structure | None, faults: Counter[str]
) -> MemorySlot:
    attributes, width_bits = structure.number(0x1B, 1), structure.number(0x0A, 2)
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
        width_bits=None if width_bits in _UNKNOWN_WIDTH else width_bits,
        array=structure.number(0x04, 2),
        is_on_cxl=array is not None and array.number(0x04, 1) == _ON_CXL_CARD,
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
        extended = structure.number(extended_offset, 4)
        speed = None if extended is None else extended & 0x7FFFFFFF  # bit 31 is reserved
    return None if speed == _UNKNOWN_SPEED else speed


# -- What all slots say together -------------------------------------------------------------------


def describe_modules(slots: Sequence[MemorySlot]) -> str:
    """Return `8 x 32 GB DDR4 at 3200 MT/s, 8 empty`; nothing where no module is known.

    Where the speed that a module runs at is not known, it says what the module is rated for.
    """
    modules: Counter[str] = Counter()
    empty = unknown = 0
    for slot in slots:
        if slot.megabytes:
            speed = "" if slot.speed_mts is None else f" {slot.speed_mts} MT/s"
            word = "rated" if slot.configured_mts is None else "at"
            modules[f"{slot.module}{f' {word}{speed}' if speed else ''}"] += 1
        else:
            empty += slot.megabytes == 0
            unknown += slot.megabytes is None
    parts = [f"{count} x {module}" for module, count in sorted(modules.items())]
    if not parts:
        return ""
    parts += [f"{empty} empty"] if empty else []
    return ", ".join(parts + ([f"{unknown} of unknown size"] if unknown else []))


def channel_obstacle(slots: Sequence[MemorySlot]) -> str | None:
    """Return why the channels of slots are not known; None: each slot names its own."""
    names: Counter[tuple[str | None, str | None]] = Counter()
    arrays: dict[str, set[int | None]] = {}
    for slot in _on_sockets(slots):
        if slot.channel is None:
            return "its bank locators name no channels, which rater does not count from slots"
        names[slot.bank, slot.locator] += 1
        arrays.setdefault(slot.channel, set()).add(slot.array)
    if max(names.values(), default=0) > 1 or any(len(it) > 1 for it in arrays.values()):
        return "its locators name different slots alike, so that channels are not known"
    return None


def channels_of(slots: Sequence[MemorySlot]) -> dict[str, list[MemorySlot]] | None:
    """Return the slots of each channel of a socket by name, or None if they are not known."""
    if channel_obstacle(slots) is not None:
        return None
    channels: dict[str, list[MemorySlot]] = {}
    for slot in _on_sockets(slots):
        channels.setdefault(slot.channel or "", []).append(slot)
    return channels or None


def _on_sockets(slots: Sequence[MemorySlot]) -> list[MemorySlot]:
    return [slot for slot in slots if not slot.is_on_cxl]


def peak_obstacle(slots: Sequence[MemorySlot]) -> str | None:
    """Return why the peak of populated channels is not known, or None if it is."""
    for of_channel in (channels_of(slots) or {}).values():
        modules = [slot for slot in of_channel if slot.megabytes != 0]
        ordinary = [slot for slot in modules if slot.kind != _PERSISTENT]
        if any(slot.megabytes is None for slot in modules):
            return "whether some slots have a module is not known"
        if any(slot.speed_mts is None for slot in modules):
            return "some modules do not tell their speed"
        if modules and not ordinary:
            return "persistent memory alone in a channel transfers less than that channel"
        if any(slot.transfer_bytes is None for slot in ordinary):
            return "channels of LPDDR and HBM are not of 8 bytes, and how wide is not told"
    return channel_obstacle(slots)


def peak_mb_s(slots: Sequence[MemorySlot]) -> int | None:
    """Return what all populated channels transfer at most, MB/s, or None if that is not known.

    A channel runs at the speed of its slowest module, which persistent memory may be.
    """
    if peak_obstacle(slots) is not None:
        return None
    total = 0
    for of_channel in (channels_of(slots) or {}).values():
        speeds = [slot.speed_mts for slot in of_channel if slot.megabytes and slot.speed_mts]
        total += min(speeds, default=0) * _CHANNEL_BYTES
    return total or None
