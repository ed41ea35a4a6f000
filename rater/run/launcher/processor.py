"""What the processor says of itself by CPUID: its TLBs; the launcher's program asks it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress

from rater.plan.tlb import CpuidLeaves, tlb_facts
from rater.run.host.hardware import UNREAD
from rater.run.launcher.launcher import launcher_program
from rater.system.errors import InputError

_CPUID_S = 2.0  # that the program may take; it takes a millisecond


def processor_facts() -> Iterator[tuple[str, str]]:
    """Yield `tlb.*` by level and page size; `unread.TLBs` is why there are none."""
    leaves, obstacle = cpuid_leaves()
    facts = dict(tlb_facts(leaves))
    yield from facts.items()
    if not facts:
        yield f"{UNREAD}TLBs", obstacle or "the processor does not describe them (CPUID)"


def cpuid_leaves() -> tuple[CpuidLeaves, str | None]:
    """Return leaves of CPUID by name (`18.0`) of whichever CPU it is, or why there are none."""
    try:
        output = subprocess.run(
            [launcher_program(), "cpuid"], capture_output=True, check=True, timeout=_CPUID_S
        )
    except (OSError, subprocess.SubprocessError, InputError):
        return {}, "rater's launcher does not tell them: run `make`, or install rater again"
    leaves: dict[str, tuple[int, ...]] = {}
    for line in output.stdout.decode("ascii", "replace").splitlines():
        with suppress(ValueError):
            name, *words = line.split()
            leaves[name] = tuple(int(word, 16) for word in words)
    return leaves, None
