"""Models of layouts as values for JSON; shares are of one, times in seconds."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.models.choice import TermVerdict, Warranted
from rater.analysis.models.models import SweepModel
from rater.analysis.models.observed import LayoutValue
from rater.analysis.models.polynomial import PolynomialFit, Quality
from rater.analysis.models.quantity import Quantity
from rater.analysis.models.sparse import SparseFit
from rater.show.models.sentences import choice_texts
from rater.text.to_json import Members, objects, to_json

PAIR = Members("mean_error maximum_error errors extrapolated=outside")
TABLE = {
    SweepModel: Members(
        "benchmark=observed.benchmark tune=observed.tune held=observed.held? x_is=observed.x"
        " y_is=observed.y",
        {
            "noise": lambda one: {
                "sd_of_a_run": one.observed.noise.sd,
                "of_a_layout": one.observed.layout_noise,
                "degrees_of_freedom": one.observed.noise.degrees,
                "assumed": one.observed.noise.degrees is None,
                "within_rounds": one.observed.noise.in_rounds,
            }
        },
        "layouts=observed.layouts left_out=observed.lacking choice",
        {"words": lambda one: list(choice_texts(one))},
        "models=fits sparse no_sparse_because=no_sparse",
        {
            "two_point_models": lambda one: [
                {
                    "fitted_on": [
                        one.observed.layouts[at].label for at in (pair.first, pair.second)
                    ],
                    **PAIR.of(pair),
                }
                for pair in one.pairs
            ]
        },
    ),
    Quantity: Members("kind name unit? source"),
    LayoutValue: Members(
        "label x y",
        {"runs": lambda one: objects("run y", zip(one.runs, one.values, strict=True))},
        "counted=features{}",
    ),
    Warranted: Members("warranted=chosen terms"),
    TermVerdict: Members(
        "degree state effect",
        {"interval_95": lambda one: [one.low, one.high]},
        "p largest_difference noise more_layouts",
    ),
    PolynomialFit: Members(
        {"model": lambda one: one.name},
        "degree coefficients degrees_of_freedom",
        {"residual_sd": lambda one: one.sigma if one.degrees_of_freedom else None},
        "quality",
    ),
    SparseFit: Members(
        {"model": lambda one: one.name},
        "features intercept coefficients=terms{} lambda=penalty predictions quality",
    ),
    Quality: Members(
        "parameters rss r2 adjusted_r2 aicc left_out_mean=mean_error left_out_maximum=maximum_error"
        " left_out"
    ),
}


def models_document(sweep: int, models: Sequence[SweepModel], told: Sequence[str]) -> object:
    """Return everything."""
    return to_json(
        {"rater": 1, "sweep": sweep, "points_without_runs": told, "models": models}, TABLE
    )
