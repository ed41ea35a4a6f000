"""rater: a SPECrate-style multi-copy throughput runner for Linux.

`rater.load("last")` and `rater.runs()` read the database, `rater.compare(7, 8)` compares;
`rater.run("mini", copies=4)` and `rater.sweep(...)` make runs (`rater.api`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rater.api import compare, load, runs, sweep

__all__ = ["__version__", "compare", "load", "runs", "sweep"]

__version__ = "0.1.0"


def __dir__() -> list[str]:
    """Return what scripts call, not what this module imports for itself."""
    return sorted({*__all__, "run"})


def __getattr__(name: str) -> Any:
    """Import what scripts call when it is asked for: `rater --help` needs none of it."""
    if name in (*__all__, "run"):
        return getattr(import_module("rater.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
