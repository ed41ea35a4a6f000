"""What an executable or library is, from the first bytes of its ELF file (elf(5))."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"\x7fELF"
_PT_INTERP = 3
_MOST_BYTES = 1 << 16  # headers lie at the beginning


@dataclass(frozen=True, slots=True)
class Elf:
    """The part of its headers that tells who loads it."""

    bits: int  # 32 or 64
    machine: int  # e_machine
    interpreter: str | None  # the dynamic loader; None: statically linked, or a library


def read_elf(path: Path) -> Elf | None:
    """Return what an ELF file says; None for what is none (a script), or cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
    except OSError:
        return None
    try:
        return _parsed(data)
    except (struct.error, OverflowError, ValueError):  # headers that lead nowhere
        return None


def _parsed(data: bytes) -> Elf | None:
    if data[:4] != _MAGIC or len(data) < 64:
        return None
    is_64 = data[4] == 2
    order = "<" if data[5] == 1 else ">"
    (machine,) = struct.unpack_from(f"{order}H", data, 18)
    (start,) = struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", data, 32 if is_64 else 28)
    size, count = struct.unpack_from(f"{order}HH", data, 54 if is_64 else 42)
    interpreter = None
    for at in range(start, start + size * count, size):
        (kind,) = struct.unpack_from(f"{order}I", data, at)
        if kind == _PT_INTERP:
            if is_64:
                offset, length = struct.unpack_from(f"{order}Q16xQ", data, at + 8)
            else:
                offset, length = struct.unpack_from(f"{order}I8xI", data, at + 4)
            raw = data[offset : offset + length].partition(b"\0")[0]
            interpreter = raw.decode("utf-8", "replace")
    return Elf(64 if is_64 else 32, machine, interpreter)
