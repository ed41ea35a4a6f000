"""Allocator and page sizes of copies, and which programs they reach."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from rater.system.errors import InputError
from rater.system.patterns import compile_later

# -- Other memory allocators: libraries that the dynamic loader puts before the C library's malloc -

SYSTEM = "system"  # the C library's own
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_CACHED = compile_later(r"^[ \t]+(\S+) \([^)\n]*\) => (/.+)$", re.MULTILINE)
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

    `cached` is the output of `ldconfig -p`, which is run without it; then `folders` are searched.
    Raises `InputError` that names the library and the package that has it.
    """
    if name == SYSTEM:
        return None
    if "/" in name:
        path = Path(name).absolute()
        if not _is_loadable(path):
            raise InputError(f"--alloc {name}: {_why_unfit(path)}")
        return path
    library = _LIBRARIES.get(name)
    if library is None:
        raise InputError(
            f"--alloc {name}: expected {', '.join(ALLOCATORS)}, or the path of a library"
        )
    known_libraries = _CACHED.findall(_read_ldconfig() if cached is None else cached)
    for soname in library.sonames:
        known_paths = [
            Path(path) for known_soname, path in known_libraries if known_soname == soname
        ]
        for path in (*known_paths, *(folder / soname for folder in folders)):
            if _is_loadable(path):
                return path
    raise InputError(
        f"--alloc {name}: none of {', '.join(library.sonames)} is in the loader's cache "
        f"(ldconfig -p) or the usual folders; install {library.package}, or give its path"
    )


def _read_ldconfig() -> str:
    for program in _LDCONFIG:
        try:
            return subprocess.run(
                [program, "-p"], capture_output=True, text=True, check=False, errors="replace"
            ).stdout
        except OSError:
            continue
    return ""


def _is_loadable(path: Path) -> bool:
    library, interpreter = read_elf(path), read_elf(Path("/proc/self/exe"))
    return (
        library is not None
        and interpreter is not None
        and library.is_library
        and (library.bits, library.machine) == (interpreter.bits, interpreter.machine)
    )


def _why_unfit(path: Path) -> str:
    if not path.is_file():
        return f"there is no file {path}"
    library = read_elf(path)
    if library is not None and not library.is_library:
        return f"{path} is a program, no shared library"
    return f"{path} is no library for this machine's programs"


# -- Allocator and page sizes of copies, and of nothing else: not of rater or a set-up ---
#
# An allocator is preloaded; glibc asks for huge pages when GLIBC_TUNABLES says so; the
# kernel gives a process no transparent ones after prctl(PR_SET_THP_DISABLE), which the
# launcher calls in each copy before it executes its program.

OFF, MADVISE, THP, HUGETLB = "off", "madvise", "thp", "hugetlb"
PAGE_MODES = (OFF, MADVISE, THP, HUGETLB)
_TUNABLE = "glibc.malloc.hugetlb"
_GLIBC = compile_later(r"glibc (\d+)\.(\d+)")
_SINCE = (2, 35)  # glibc.malloc.hugetlb: NEWS of glibc 2.35
_IS_SCRIPT = b"#!"
_MOST_SCRIPTS = 4  # the kernel follows so many `#!` lines


class CopyTuning(Struct, frozen=True):
    """Settings of memory that copies have and other processes do not."""

    preload: str | None = None  # path of a library
    tunable: str | None = None  # of GLIBC_TUNABLES
    transparent: bool | None = None  # whether transparent huge pages are on; None is as inherited

    def added(self, environment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Return the variables to set on top of an environment; present values stay in front."""
        variables: dict[bytes, bytes] = {}
        for name, value in (
            (b"LD_PRELOAD", self.preload),
            (b"GLIBC_TUNABLES", self.tunable),
        ):
            if value is not None:
                before = environment.get(name, b"")
                variables[name] = b":".join(([before] if before else []) + [os.fsencode(value)])
        return variables

    def merged(self, other: CopyTuning) -> CopyTuning:
        """Return what both set. Raises `InputError` where both set the same to other values."""
        values: dict[str, Any] = {}
        for field in self.__struct_fields__:
            mine, its = getattr(self, field), getattr(other, field)
            if mine is not None and its is not None and mine != its:
                raise InputError(f"copies cannot have {field} {mine} and {its}: leave one out")
            values[field] = its if mine is None else mine
        return CopyTuning(**values)


UNTUNED = CopyTuning()


def tuning_for(
    library: Path | None,
    pages: str | None,
    environment: Mapping[str, str],
    libc: str | None,
) -> CopyTuning:
    """Return the tuning of copies; `library` is that of `--alloc`, `pages` of `--hugepages`.

    `environment` is theirs without this tuning; `libc` name and version of the C library
    (`glibc 2.36`). Raises `InputError` for options that contradict each other or cannot work here.
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
    version = _GLIBC.match(libc or "")
    if version is None or (int(version[1]), int(version[2])) < _SINCE:
        raise InputError(
            f"{option} needs glibc 2.35 or later, here is {libc or 'another C library'}; "
            "--hugepages off and thp do without"
        )
    if _TUNABLE in environment.get("GLIBC_TUNABLES", ""):
        raise InputError(
            f"{option} sets {_TUNABLE}, and so does GLIBC_TUNABLES="
            f"{environment['GLIBC_TUNABLES']}: leave one out"
        )
    tunable_value = 1 if pages == MADVISE else 2
    return CopyTuning(None, f"{_TUNABLE}={tunable_value}", True if pages == MADVISE else None)


def unreached_reason(tuning: CopyTuning, program: Path) -> str | None:
    """Return why a program does not see the tuning, None when it should; of a script its shell.

    None too for a program that may be executed but not read: its kind is not known.
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


# -- Kind of an executable or library, from the first bytes of its ELF file (elf(5)) ---------------

_MAGIC = b"\x7fELF"
_ELF_HEADER_BYTES = 64  # of a 64-bit file; every file of 32 bits that runs is longer, too
_ET_DYN = 3
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_FLAGS_1 = 1, 5, 0x6FFFFFFB
_ASAN = ("libasan.so", "libclang_rt.asan")
_DF_1_PIE = 0x08000000  # a program that can be loaded anywhere is of the kind of libraries
_MOST_BYTES = 1 << 16  # headers lie at the beginning
_LONGEST_NAME = 256  # of a library


class Elf(Struct, frozen=True, kw_only=True):
    """The headers of a program or library that decide how it is loaded."""

    bits: int  # 32 or 64
    machine: int  # e_machine
    interpreter: str | None  # the dynamic loader; None: statically linked, or a library
    is_library: bool  # a shared object that is no program
    needed: tuple[str, ...] = ()  # libraries that it names


def read_elf(path: Path) -> Elf | None:
    """Return the headers of an ELF file; None for another file (a script), or an unreadable one."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES)
            return _parse_elf(data, file)
    except OSError:
        return None
    except (struct.error, OverflowError, ValueError):  # headers that lead nowhere
        return None


class _ElfFormat(Struct, frozen=True):
    """Order of bytes and width of the numbers of an ELF file."""

    order: str  # `<` or `>`, of the struct module
    is_64: bool


class _Segment(Struct, frozen=True):
    """A row of the table of program headers."""

    kind: int  # p_type
    offset: int  # in the file
    address: int  # in memory
    length: int  # bytes in the file


def _parse_elf(data: bytes, file: BinaryIO) -> Elf | None:
    """Return the headers of an ELF file, whose first bytes are `data`."""
    if data[:4] != _MAGIC or len(data) < _ELF_HEADER_BYTES:
        return None
    elf_format = _ElfFormat(order="<" if data[5] == 1 else ">", is_64=data[4] == 2)
    file_kind, machine = struct.unpack_from(f"{elf_format.order}HH", data, 16)  # e_type, e_machine
    segments = list(_segments(data, elf_format))
    interpreter = next((_text_of(data, each) for each in segments if each.kind == _PT_INTERP), None)
    dynamic = _dynamic_entries(segments, file, elf_format)
    flags = dict(reversed(dynamic)).get(_DT_FLAGS_1, 0)
    return Elf(
        bits=64 if elf_format.is_64 else 32,
        machine=machine,
        interpreter=interpreter,
        is_library=file_kind == _ET_DYN and interpreter is None and not flags & _DF_1_PIE,
        needed=_needed_libraries(dynamic, segments, file),
    )


def _segments(data: bytes, elf_format: _ElfFormat) -> Iterator[_Segment]:
    """Yield the program headers; offsets are those of Elf32_Ehdr, Elf64_Ehdr and their Phdr."""
    order, is_64 = elf_format.order, elf_format.is_64
    (start,) = struct.unpack_from(f"{order}{'Q' if is_64 else 'I'}", data, 32 if is_64 else 28)
    row_bytes, rows = struct.unpack_from(f"{order}HH", data, 54 if is_64 else 42)
    # Behind p_type: p_offset, p_vaddr, p_paddr, p_filesz, in 64 bits after p_flags.
    extent = struct.Struct(f"{order}QQ8xQ" if is_64 else f"{order}II4xI")
    for row_start in range(start, start + row_bytes * rows, row_bytes):
        (kind,) = struct.unpack_from(f"{order}I", data, row_start)
        offset, address, length = extent.unpack_from(data, row_start + (8 if is_64 else 4))
        yield _Segment(kind, offset, address, length)


def _text_of(data: bytes, segment: _Segment) -> str:
    text = data[segment.offset : segment.offset + segment.length].partition(b"\0")[0]
    return text.decode("utf-8", "replace")


def _dynamic_entries(
    segments: Iterable[_Segment], file: BinaryIO, elf_format: _ElfFormat
) -> list[tuple[int, int]]:
    """Return tag and value of each entry for the dynamic loader."""
    entry = struct.Struct(f"{elf_format.order}{'qQ' if elf_format.is_64 else 'iI'}")
    for segment in segments:
        if segment.kind == _PT_DYNAMIC:
            file.seek(segment.offset)
            table = file.read(min(segment.length, _MOST_BYTES))
            return [*entry.iter_unpack(table[: len(table) // entry.size * entry.size])]
    return []


def _needed_libraries(
    dynamic: Sequence[tuple[int, int]], segments: Iterable[_Segment], file: BinaryIO
) -> tuple[str, ...]:
    """Return the names of the libraries that the dynamic loader has to load for the file."""
    strings_address = dict(reversed(dynamic)).get(_DT_STRTAB)
    strings_offset = next(
        (
            segment.offset + strings_address - segment.address
            for segment in segments
            if segment.kind == _PT_LOAD
            and strings_address is not None
            and segment.address <= strings_address < segment.address + segment.length
        ),
        None,
    )
    if strings_offset is None:
        return ()
    names = []
    for name_offset in (value for tag, value in dynamic if tag == _DT_NEEDED):
        file.seek(strings_offset + name_offset)
        name = file.read(_LONGEST_NAME).partition(b"\0")[0]
        names.append(name.decode("utf-8", "replace"))
    return tuple(names)
