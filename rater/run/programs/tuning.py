"""Allocator and page sizes of copies, and which programs they reach."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from rater.system.errors import InputError

# -- Other memory allocators: libraries that the dynamic loader puts before the C library's malloc -

SYSTEM = "system"  # the C library's own
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_CACHED = re.compile(r"^[ \t]+(\S+) \([^)\n]*\) => (/.+)$", re.MULTILINE)
_FOLDERS = tuple(
    Path(folder)
    for folder in (
        *("/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/usr/lib", "/lib64", "/lib"),
        f"/usr/lib/{getattr(sys.implementation, '_multiarch', '')}",
    )
)


class _Library(Struct, frozen=True):
    sonames: tuple[str, ...]  # the best first
    package: str


_LIBRARIES = {
    "jemalloc": _Library(
        ("libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"),
        "libjemalloc2 (Debian, Ubuntu), jemalloc (Fedora, Arch, SUSE: libjemalloc2)",
    ),
    "mimalloc": _Library(
        ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"),
        "libmimalloc2.0 or libmimalloc3 (Debian, Ubuntu), mimalloc (Fedora, Arch)",
    ),
    "tcmalloc": _Library(
        (
            *("libtcmalloc.so.4", "libtcmalloc_minimal.so.4"),
            *("libtcmalloc.so", "libtcmalloc_minimal.so"),
        ),
        "libtcmalloc-minimal4 (Debian, Ubuntu), gperftools-libs (Fedora), gperftools (Arch)",
    ),
}
ALLOCATORS = (SYSTEM, *_LIBRARIES)


def find_allocator(
    name: str, folders: Sequence[Path] = _FOLDERS, cached: str | None = None
) -> Path | None:
    """Return the library of an allocator, by name or as a path; None for the system's own.

    `cached` is what `ldconfig -p` prints (None: ask it); behind it, `folders` are looked at.
    Raises `InputError` that says what was looked for and which package has it.
    """
    if name == SYSTEM:
        return None
    if "/" in name:
        path = Path(name).absolute()
        if not _fits(path):
            raise InputError(f"--alloc {name}: {_unfit(path)}")
        return path
    library = _LIBRARIES.get(name)
    if library is None:
        raise InputError(
            f"--alloc {name}: expected {', '.join(ALLOCATORS)}, or the path of a library"
        )
    known = _CACHED.findall(_ldconfig() if cached is None else cached)
    for soname in library.sonames:
        places = [Path(path) for known_as, path in known if known_as == soname]
        for path in (*places, *(folder / soname for folder in folders)):
            if _fits(path):
                return path
    raise InputError(
        f"--alloc {name}: none of {', '.join(library.sonames)} is in the loader's cache "
        f"(ldconfig -p) or the usual folders; install {library.package}, or give its path"
    )


def _ldconfig() -> str:
    for program in _LDCONFIG:
        try:
            return subprocess.run(
                [program, "-p"], capture_output=True, text=True, check=False, errors="replace"
            ).stdout
        except OSError:
            continue
    return ""


def _fits(path: Path) -> bool:
    found, own = read_elf(path), read_elf(Path("/proc/self/exe"))
    return (
        found is not None
        and own is not None
        and found.is_library
        and (found.bits, found.machine) == (own.bits, own.machine)
    )


def _unfit(path: Path) -> str:
    if not path.is_file():
        return f"there is no file {path}"
    found = read_elf(path)
    if found is not None and not found.is_library:
        return f"{path} is a program, no shared library"
    return f"{path} is no library for this machine's programs"


# -- Allocator and page sizes of copies, and of nothing else: not of rater or a set-up ---
#
# An allocator is preloaded; glibc asks for huge pages when GLIBC_TUNABLES says so; the
# kernel gives a process none of its own accord after prctl(PR_SET_THP_DISABLE), which the
# launcher calls in each copy before it executes its program.

OFF, MADVISE, THP, HUGETLB = "off", "madvise", "thp", "hugetlb"
PAGE_MODES = (OFF, MADVISE, THP, HUGETLB)
_TUNABLE = "glibc.malloc.hugetlb"
_GLIBC = re.compile(r"glibc (\d+)\.(\d+)")
_SINCE = (2, 35)  # glibc.malloc.hugetlb: NEWS of glibc 2.35
_IS_SCRIPT = b"#!"
_MOST_SCRIPTS = 4  # the kernel follows so many `#!` lines


class CopyTuning(Struct, frozen=True):
    """What copies find that others do not."""

    preload: str | None = None  # path of a library
    tunable: str | None = None  # of GLIBC_TUNABLES
    transparent: bool | None = None  # huge pages of the kernel's own accord; None: as inherited

    def added(self, environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the variables to set on top of an environment; what it has there stays."""
        found: dict[bytes, bytes] = {}
        for name, value in (
            (b"LD_PRELOAD", self.preload),
            (b"GLIBC_TUNABLES", self.tunable),
        ):
            if value is not None:
                before = environment.get(name, b"")
                found[name] = b":".join(([before] if before else []) + [os.fsencode(value)])
        return found


UNTUNED = CopyTuning()


def tuning_for(
    library: Path | None,
    pages: str | None,
    environment: Mapping[str, str],
    libc: str | None,
) -> CopyTuning:
    """Return what copies are to find; `library` is that of `--alloc`, `pages` of `--hugepages`.

    `environment` is theirs but for this; `libc` what the C library calls itself
    (`glibc 2.36`). Raises `InputError` for what contradicts itself or cannot work here.
    """
    if library is not None and any(sign in str(library) for sign in " :"):
        raise InputError(f"--alloc {library}: LD_PRELOAD takes no path with blanks or colons")
    preload = None if library is None else str(library)
    if pages not in (MADVISE, HUGETLB):
        transparent = None if pages is None else pages == THP
        return CopyTuning(preload, None, transparent)
    option = f"--hugepages {pages}"
    if library is not None:
        raise InputError(
            f"{option} asks glibc's malloc, which --alloc {library.name} replaces: use "
            "--hugepages thp, or that allocator's own variables (--env MALLOC_CONF=thp:always, "
            "--env MIMALLOC_ALLOW_LARGE_OS_PAGES=1)"
        )
    found = _GLIBC.match(libc or "")
    if found is None or (int(found[1]), int(found[2])) < _SINCE:
        raise InputError(
            f"{option} needs glibc 2.35 or later, here is {libc or 'another C library'}; "
            "--hugepages off and thp do without"
        )
    if _TUNABLE in environment.get("GLIBC_TUNABLES", ""):
        raise InputError(
            f"{option} sets {_TUNABLE}, and so does GLIBC_TUNABLES="
            f"{environment['GLIBC_TUNABLES']}: leave one out"
        )
    number = 1 if pages == MADVISE else 2
    return CopyTuning(None, f"{_TUNABLE}={number}", True if pages == MADVISE else None)


def unreached_reason(tuning: CopyTuning, program: Path) -> str | None:
    """Return why a program does not see the tuning, None when it should; of a script its shell.

    None too for what may be executed but not read: nobody can tell.
    """
    elf = read_elf(executed(program))
    if elf is None:
        return None
    if tuning.preload is not None:
        if elf.interpreter is None:
            return "is statically linked"
        if any(name.startswith(_ASAN) for name in elf.needed):
            return "is built with AddressSanitizer, whose library has to be the first"
        library = read_elf(Path(tuning.preload))
        if library is not None and (library.bits, library.machine) != (elf.bits, elf.machine):
            return "is for another kind of machine than the library"
    # glibc reads its tunables in static programs too.
    if tuning.tunable is not None and "musl" in (elf.interpreter or ""):
        return "uses musl, not glibc"
    return None


def executed(program: Path) -> Path:
    """Follow `#!` lines to the program that the kernel executes."""
    for _ in range(_MOST_SCRIPTS):
        try:
            with program.open("rb") as file:
                line = file.readline(256)
        except OSError:
            break
        words = line[2:].split()
        if not line.startswith(_IS_SCRIPT) or not words:
            break
        program = Path(os.fsdecode(words[0]))
    return program


# -- What an executable or library is, from the first bytes of its ELF file (elf(5)) ---------------

_MAGIC = b"\x7fELF"
_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_FLAGS_1 = 1, 5, 0x6FFFFFFB
_ASAN = ("libasan.so", "libclang_rt.asan")
_DF_1_PIE = 0x08000000  # a program that can be loaded anywhere is of the kind of libraries
_MOST_BYTES = 1 << 16  # headers lie at the beginning
_LONGEST_NAME = 256  # of a library


class Elf(Struct, frozen=True, kw_only=True):
    """The part of its headers that tells who loads it."""

    bits: int  # 32 or 64
    machine: int  # e_machine
    interpreter: str | None  # the dynamic loader; None: statically linked, or a library
    is_library: bool  # a shared object that is no program
    needed: tuple[str, ...] = ()  # libraries that it names


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
    (start,) = struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", data, 32 if is_64 else 28)
    size, count = struct.unpack_from(f"{order}HH", data, 54 if is_64 else 42)
    interpreter, loaded, dynamic = None, {}, []
    for at in range(start, start + size * count, size):
        (kind,) = struct.unpack_from(f"{order}I", data, at)
        offset, address, length = _extent(data, order, at, is_64=is_64)
        if kind == _PT_INTERP:
            raw = data[offset : offset + length].partition(b"\0")[0]
            interpreter = raw.decode("utf-8", "replace")
        elif kind == _PT_LOAD:
            loaded[address] = offset, length
        elif kind == _PT_DYNAMIC:
            file.seek(offset)
            pair = struct.Struct(f"{order}{'qQ' if is_64 else 'iI'}")
            table = file.read(min(length, _MOST_BYTES))
            dynamic = [*pair.iter_unpack(table[: len(table) // pair.size * pair.size])]
    entries = dict(reversed(dynamic))
    flags = entries.get(_DT_FLAGS_1, 0)
    needed = []
    if (strings := _offset_of(entries.get(_DT_STRTAB), loaded)) is not None:
        for name in (value for tag, value in dynamic if tag == _DT_NEEDED):
            file.seek(strings + name)
            needed.append(file.read(_LONGEST_NAME).partition(b"\0")[0].decode("utf-8", "replace"))
    is_library = kind_of_file == _ET_DYN and interpreter is None and not flags & _DF_1_PIE
    return Elf(
        bits=64 if is_64 else 32,
        machine=machine,
        interpreter=interpreter,
        is_library=is_library,
        needed=tuple(needed),
    )


def _extent(data: bytes, order: str, at: int, *, is_64: bool) -> tuple[int, int, int]:
    """Return where the segment of a program header is in the file and in memory, and its bytes."""
    form = f"{order}QQ8xQ" if is_64 else f"{order}II4xI"
    offset, address, length = struct.unpack_from(form, data, at + (8 if is_64 else 4))
    return offset, address, length


def _offset_of(address: int | None, loaded: Mapping[int, tuple[int, int]]) -> int | None:
    """Return where in the file what has an address in memory is."""
    places = (
        offset + address - begin
        for begin, (offset, length) in loaded.items()
        if address is not None and begin <= address < begin + length
    )
    return next(places, None)
