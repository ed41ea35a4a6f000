"""kill -9 in the midst of a sweep: settings are back, nothing is missing, nothing ran twice.

The long form, 12 sweeps, is `make torture`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

from benchmarks.torture.sweeping import one_sweep


def test_a_killed_sweep_is_resumed_exactly_and_settings_are_put_back(
    tmp_path: Path,
) -> None:
    axes = ("env:WORD=,a", "thp=never,always")
    told = one_sweep(tmp_path, dict(os.environ), random.Random(5), axes, longest_s=1.5)
    assert told.wrong == []
    assert told.kills >= 1
