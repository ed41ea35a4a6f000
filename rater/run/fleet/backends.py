"""The backends by name; what makes one is called with the fleet's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rater.errors import InputError
from rater.run.fleet.backend import Backend
from rater.run.fleet.local import Local
from rater.run.fleet.slurm import Slurm

BACKENDS: dict[str, Callable[[Path], Backend]] = {"slurm": lambda _: Slurm(), "local": Local}
POLL_S = {"slurm": 10.0, "local": 0.1}  # between two looks of who waits


def backend(name: str, folder: Path) -> Backend:
    """Return a backend. Raises `InputError` where it can not be used here."""
    if name not in BACKENDS:  # of a fleet that a newer rater made
        raise InputError(f"backend {name}: this rater knows {', '.join(BACKENDS)}")
    return BACKENDS[name](folder)
