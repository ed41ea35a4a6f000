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


def needs(data: Path) -> pytest.MarkDecorator:
    """Leave a test out where that data of others is not, and say how to have it."""
    return pytest.mark.skipif(
        not data.exists(), reason=f"no {data.name} in RATER_TEST_DATA (or ../shared)"
    )


needs_machines = needs(MACHINES)
needs_samples = needs(SAMPLES)
needs_cases = needs(DIVOT_CASES)
