"""The sparse polynomial: terms that are there are found, and it predicts what no line does."""

from __future__ import annotations

import numpy as np
import pytest

from rater.lab.fits import fit_polynomial, fit_sparse
from rater.lab.models import choose_model

RNG = np.random.default_rng(7)
WALKS = RNG.uniform(1e8, 1e9, 30)
HITS = RNG.uniform(1e6, 5e7, 30)


def test_few_of_the_nine_terms_are_kept_and_layouts_left_out_are_predicted() -> None:
    y = 1e9 + 2 * WALKS + 1e-8 * WALKS * HITS
    fit = fit_sparse([("walks", WALKS), ("hits", HITS)], y)
    assert fit is not None
    assert {"walks", "walks hits"} <= dict(fit.terms).keys()
    assert fit.quality.maximum_error is not None
    assert fit.quality.maximum_error < 0.02
    values = {"walks": WALKS, "hits": HITS, "walks hits": WALKS * HITS}
    by_hand = fit.intercept + sum(
        value
        * np.prod(
            [values[p.partition("^")[0]] ** int(p.partition("^")[2] or 1) for p in name.split()],
            axis=0,
        )
        for name, value in fit.terms
    )
    assert by_hand == pytest.approx(fit.predictions)


def test_one_feature_without_penalty_to_speak_of_is_the_line_of_least_squares() -> None:
    y = 5.0 + 3.0 * WALKS / 1e9
    fit = fit_sparse([("walks", WALKS)], y)
    assert fit is not None
    assert fit.predictions == pytest.approx(y, rel=0.01)


def test_it_is_chosen_where_it_predicts_better_than_the_polynomial_of_x() -> None:
    y = 1e9 + 2 * WALKS + 30 * HITS
    fits = [fit for d in range(3) if (fit := fit_polynomial(WALKS, y, d)) is not None]
    sparse = fit_sparse([("walks", WALKS), ("hits", HITS)], y)
    assert choose_model((WALKS, y), fits, sparse, 0.001).chosen == "sparse"
    # Of walks alone a line is all there is to say.
    y = 1e9 + 2 * WALKS
    fits = [fit for d in range(3) if (fit := fit_polynomial(WALKS, y, d)) is not None]
    sparse = fit_sparse([("walks", WALKS)], y)
    assert choose_model((WALKS, y), fits, sparse, 0.001).chosen == "linear"


def test_below_thirty_layouts_there_is_none() -> None:
    assert fit_sparse([("walks", WALKS[:29])], WALKS[:29]) is None
    assert fit_sparse([("walks", np.ones(30))], WALKS) is None
