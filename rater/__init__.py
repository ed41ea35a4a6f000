"""rater: a SPECrate-style multi-copy throughput runner for Linux.

`rater.load("last")` and `rater.runs()` read the database (`rater.api`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rater.api import load, runs

__all__ = ["__version__", "load", "runs"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import what reads the database when it is asked for: `rater --help` needs none of it."""
    if name in ("load", "runs"):
        return getattr(import_module("rater.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
