"""Other memory allocators: libraries that the dynamic loader puts before the C library's malloc."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.run.host.elf import read_elf

SYSTEM = "system"  # the C library's own
_LDCONFIG = ("/sbin/ldconfig", "/usr/sbin/ldconfig")
_CACHED = re.compile(r"^\s+(\S+) \([^)]*\) => (/.+)$", re.MULTILINE)
_FOLDERS = tuple(
    Path(folder)
    for folder in (
        *("/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/usr/lib", "/lib64", "/lib"),
        f"/usr/lib/{getattr(sys.implementation, '_multiarch', '')}",
    )
)


@dataclass(frozen=True, slots=True)
class _Library:
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
        found = _first_fit((*places, *(folder / soname for folder in folders)))
        if found is not None:
            return found
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


def _first_fit(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if _fits(path)), None)


def _fits(path: Path) -> bool:
    """Tell whether a file is a library for programs like this one."""
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
