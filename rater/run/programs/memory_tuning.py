"""Allocator and page sizes of copies, and of nothing else: not of rater, the gate or a set-up.

An allocator is preloaded; glibc asks for huge pages when GLIBC_TUNABLES says so; the
kernel gives a process none of its own accord after prctl(PR_SET_THP_DISABLE). The
variables are set in the gate behind its last step but the copy's `exec`: a shell that
waits there does not use the allocator, nor does it hold huge pages.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError, RunError
from rater.run.host.elf import read_elf

OFF, MADVISE, THP, HUGETLB = "off", "madvise", "thp", "hugetlb"
PAGE_MODES = (OFF, MADVISE, THP, HUGETLB)
_TUNABLE = "glibc.malloc.hugetlb"
_GLIBC = re.compile(r"glibc (\d+)\.(\d+)")
_SINCE = (2, 35)  # glibc.malloc.hugetlb: NEWS of glibc 2.35
# <linux/prctl.h>
_SET_THP_DISABLE, _GET_THP_DISABLE = 41, 42
_IS_SCRIPT = b"#!"
_MOST_SCRIPTS = 4  # the kernel follows so many `#!` lines


@dataclass(frozen=True, slots=True)
class CopyTuning:
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


def untouched_by(tuning: CopyTuning, program: Path) -> str | None:
    """Return why a program does not see the tuning, None when it should; of a script its shell.

    None too for what may be executed but not read: nobody can tell.
    """
    elf = read_elf(executed(program))
    if elf is None:
        return None
    if tuning.preload is not None:
        if elf.interpreter is None:
            return "is statically linked"
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


@contextmanager
def transparent_pages(wanted: bool | None) -> Iterator[None]:
    """Let what is spawned meanwhile have transparent huge pages, or none; None: as it is.

    The flag belongs to the memory of this process, which a child shares until its exec;
    the kernel copies it into what the child has from then on (prctl(2)).
    """
    if wanted is None:
        yield
        return
    before = _prctl(_GET_THP_DISABLE)
    _prctl(_SET_THP_DISABLE, int(not wanted))
    try:
        yield
    finally:
        _prctl(_SET_THP_DISABLE, before & 1, before & ~1)  # the rest are flags (Linux 6.18)


def _prctl(which: int, value: int = 0, flags: int = 0) -> int:
    import ctypes  # noqa: PLC0415 - heavy, only where pages are asked for

    libc = ctypes.CDLL(None, use_errno=True)
    words = (ctypes.c_ulong(word) for word in (value, flags, 0, 0))
    done: int = libc.prctl(ctypes.c_int(which), *words)
    if done < 0:
        number = ctypes.get_errno()
        raise RunError(
            f"the kernel does not let rater choose transparent huge pages for copies "
            f"(prctl: {os.strerror(number)}); leave out --hugepages"
        )
    return done
