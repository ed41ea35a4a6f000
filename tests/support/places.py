"""Where the checkout lies, and where data of others lies that some tests read in place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
# Real machines, result files, cases: nothing of them is in the project.
TEST_DATA = Path(os.environ.get("RATER_TEST_DATA", CHECKOUT.parent / "shared"))
MACHINES = TEST_DATA / "topologies"
SAMPLES = TEST_DATA / "spec-samples"
DIVOT_CASES = TEST_DATA / "divot-cases"


def own_places_in(folder: Path, patch: pytest.MonkeyPatch, cache: Path | None = None) -> Path:
    """Let rater have lock, database and journal in a folder; return the database.

    `cache`: another folder for what was compiled and what hwloc said of the machine.
    """
    patch.setenv("RATER_LOCK", str(folder / "rater.lock"))
    patch.setenv("RATER_DB", str(folder / "rater.db"))
    patch.setenv("RATER_CACHE", str(cache or folder / "cache"))
    patch.setenv("RATER_CONFIG", "")
    patch.setenv("RATER_JOURNAL", str(folder / "settings.json"))
    return folder / "rater.db"


def needs(data: Path) -> pytest.MarkDecorator:
    """Leave a test out where that data of others is not, and say how to have it."""
    return pytest.mark.skipif(
        not data.exists(), reason=f"no {data.name} in RATER_TEST_DATA (or ../shared)"
    )


needs_machines = needs(MACHINES)
needs_samples = needs(SAMPLES)
needs_cases = needs(DIVOT_CASES)
