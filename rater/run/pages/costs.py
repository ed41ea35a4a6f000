"""What TLB misses and page faults cost on this machine: measured once, kept in the cache."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

from rater.errors import RunError
from rater.run.pages.tools import cost_program
from rater.run.programs.child_process import run_tool
from rater.run.programs.compile import cache_errors, cpu_identity, key_of, sha256_of
from rater.trusted_files import private_folder, replace_file

_FOLDER = "costs"
_LARGEST_SHARE = 8  # of free memory, for the largest footprint: it is there twice
_LARGEST_MIB, _LEAST_MIB = 512, 16
_THP = Path("/sys/kernel/mm/transparent_hugepage")


def machine_costs(cache: Path, *, anew: bool = False) -> dict[str, Any]:
    """Return what the program of `cost.c` printed on this machine, measured when there is none.

    Of the same processor, kernel and setting of huge pages what is in the cache holds; `anew`
    measures all the same. Raises `RunError` where it cannot be measured.
    """
    program = cost_program(cache)
    folder = cache / _FOLDER
    with cache_errors(cache):
        private_folder(folder)
        path = folder / f"{key_of(sha256_of(program), *_fingerprint())[:32]}.json"
        if not anew:
            kept = _kept(path)
            if kept is not None:
                return kept
        ended = run_tool([str(program), str(_footprint_mib())], Path("/"))
        if ended.status != 0:
            raise RunError(
                f"measuring what TLB misses cost failed (status {ended.status}): {ended.output}"
            )
        replace_file(path, ended.output.encode(), mode=0o600)
    found: dict[str, Any] = json.loads(ended.output)
    return found


def _kept(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _fingerprint() -> tuple[str, ...]:
    """Return what costs depend on: another of these, and they are measured again."""
    cpuinfo = Path("/proc/cpuinfo").read_text(errors="replace")
    settings = [_text(_THP / name) for name in ("enabled", "defrag")]
    return (cpu_identity(cpuinfo), platform.release(), *settings, str(_footprint_mib(still=True)))


def _footprint_mib(*, still: bool = False) -> int:
    """Return MiB of the largest footprint: by free memory, or all memory, which does not change."""
    name = "SC_PHYS_PAGES" if still else "SC_AVPHYS_PAGES"
    mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf(name) >> 20
    return max(_LEAST_MIB, min(_LARGEST_MIB, mib // _LARGEST_SHARE))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
