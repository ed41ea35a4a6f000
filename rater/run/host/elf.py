"""What an executable or library is, from the first bytes of its ELF file (elf(5))."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"\x7fELF"
_ET_DYN = 3
_PT_DYNAMIC, _PT_INTERP = 2, 3
_DT_FLAGS_1 = 0x6FFFFFFB
_DF_1_PIE = 0x08000000  # a program that can be loaded anywhere is of the kind of libraries
_MOST_BYTES = 1 << 16  # headers lie at the beginning


@dataclass(frozen=True, slots=True)
class Elf:
    """The part of its headers that tells who loads it."""

    bits: int  # 32 or 64
    machine: int  # e_machine
    interpreter: str | None  # the dynamic loader; None: statically linked, or a library
    is_library: bool  # a shared object that is no program


def read_elf(path: Path) -> Elf | None:
    """Return what an ELF file says; None for what is none (a script), or cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
            return _parsed(data, file)
    except OSError:
        return None
    except (struct.error, OverflowError, ValueError):  # headers that lead nowhere
        return None


def _parsed(data: bytes, file: BinaryIO) -> Elf | None:
    if data[:4] != _MAGIC or len(data) < 64:
        return None
    is_64 = data[4] == 2
    order = "<" if data[5] == 1 else ">"
    kind_of_file, machine = struct.unpack_from(f"{order}HH", data, 16)
    flags = 0
    (start,) = struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", data, 32 if is_64 else 28)
    size, count = struct.unpack_from(f"{order}HH", data, 54 if is_64 else 42)
    interpreter = None
    for at in range(start, start + size * count, size):
        (kind,) = struct.unpack_from(f"{order}I", data, at)
        if kind == _PT_INTERP:
            offset, length = _extent(data, order, at, is_64=is_64)
            raw = data[offset : offset + length].partition(b"\0")[0]
            interpreter = raw.decode("utf-8", "replace")
        elif kind == _PT_DYNAMIC:
            offset, length = _extent(data, order, at, is_64=is_64)
            file.seek(offset)
            flags = _flags(file.read(min(length, _MOST_BYTES)), order, is_64=is_64)
    is_library = kind_of_file == _ET_DYN and interpreter is None and not flags & _DF_1_PIE
    return Elf(64 if is_64 else 32, machine, interpreter, is_library)


def _extent(data: bytes, order: str, at: int, *, is_64: bool) -> tuple[int, int]:
    """Return where in the file the segment of a program header is, and its bytes."""
    if is_64:
        offset, length = struct.unpack_from(f"{order}Q16xQ", data, at + 8)
    else:
        offset, length = struct.unpack_from(f"{order}I8xI", data, at + 4)
    return offset, length


def _flags(dynamic: bytes, order: str, *, is_64: bool) -> int:
    """Return DT_FLAGS_1 of a dynamic section, 0 where it has none."""
    pair = struct.Struct(f"{order}{'qQ' if is_64 else 'iI'}")
    whole = dynamic[: len(dynamic) // pair.size * pair.size]
    return next((int(value) for tag, value in pair.iter_unpack(whole) if tag == _DT_FLAGS_1), 0)
