"""kill -9 in the midst of a sweep: settings are back, nothing is missing, nothing ran twice.

The long form, 100 kills, is `python -m benchmarks sweeping`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from benchmarks.sweeping import one_sweep


@pytest.mark.parametrize("seed", [2, 5])
def test_a_killed_sweep_is_resumed_exactly_and_settings_are_put_back(
    tmp_path: Path, seed: int
) -> None:
    axes = ("env:WORD=,a", "thp=never,always")
    told = one_sweep(tmp_path, dict(os.environ), random.Random(seed), axes, longest_s=1.5)
    assert told.wrong == []
    assert told.kills >= 1
