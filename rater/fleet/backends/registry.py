"""The backends by name, and what differs between them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rater.fleet.backends.local import LocalBackend
from rater.fleet.backends.pbs import PbsBackend
from rater.fleet.backends.scheduler import Backend
from rater.fleet.backends.slurm import SlurmBackend
from rater.fleet.backends.ssh import SshBackend
from rater.fleet.plan import FILES
from rater.system.errors import InputError

# What makes a backend is called with the fleet's folder.
BACKENDS: Final[dict[str, Callable[[Path], Backend]]] = {
    "slurm": lambda _: SlurmBackend(),
    "pbs": lambda _: PbsBackend(),
    "ssh": SshBackend,
    "local": LocalBackend,
}
# Between two looks of who waits; and how long what was published may need to be seen here (NFS).
POLL_S: Final = {"slurm": 10.0, "pbs": 10.0, "ssh": 10.0, "local": 0.1}
SETTLE_S: Final = {"slurm": 60.0, "pbs": 60.0, "ssh": 60.0, "local": 1.0}


def backend(name: str, folder: Path) -> Backend:
    """Return a backend. Raises `InputError` where it can not be used here."""
    if name == FILES:
        raise InputError(
            "this fleet was made of databases (--from): rater does not know how to reach its hosts"
        )
    if name not in BACKENDS:  # of a fleet that a newer rater made
        raise InputError(f"backend {name}: this rater knows {', '.join(BACKENDS)}")
    return BACKENDS[name](folder)
