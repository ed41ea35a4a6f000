"""Whether a run was disturbed, as JSON; imports little, for lists start often."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rater.analysis.results.disturbed import disturbance_reasons

if TYPE_CHECKING:
    from rater.analysis.divots.model.finding import Analysis
    from rater.record.stored import RunHead
    from rater.show.documents.common import DisturbedJson

_DIGITS = 5  # of shares


def disturbed_json(costs: Analysis | RunHead) -> DisturbedJson:
    """Return why a run was too disturbed to judge (empty: it was not), and what that rests on."""
    disturber = getattr(costs, "disturber", None)  # a head of a list has no rows to tell it
    return {
        "disturbed": [*disturbance_reasons(costs.others_cost, costs.noise_cost, disturber)],
        "others_cost": None if costs.others_cost is None else round(costs.others_cost, _DIGITS),
        "noise_cost": None if costs.noise_cost is None else round(costs.noise_cost, _DIGITS),
    }
