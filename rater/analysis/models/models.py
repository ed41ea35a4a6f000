"""The models of a sweep: fits, their errors, two-point lines and which is warranted; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rater.analysis.models.choice import MARGIN, Warranted, choose
from rater.analysis.models.observed import ModelData
from rater.analysis.models.polynomial import PolynomialFit, fit_polynomial
from rater.analysis.models.sparse import LEAST_LAYOUTS, SparseFit, fit_sparse
from rater.analysis.models.two_points import TwoPointModel, two_point_models
from rater.analysis.stats.robust import Floats
from rater.text.words import count

LEAST_VALUES = 3  # of x: through two goes every line


@dataclass(frozen=True, slots=True)
class SweepModel:
    """One benchmark's models."""

    observed: ModelData
    fits: tuple[PolynomialFit, ...]  # constant, linear, quadratic, ...; () where there are too few
    sparse: SparseFit | None
    no_sparse: str | None  # why there is none, in words
    pairs: tuple[TwoPointModel, ...]
    choice: Warranted | None  # None: too few layouts

    @property
    def x(self) -> Floats:
        """x of the layouts, ascending."""
        return np.array([one.x for one in self.observed.layouts])

    @property
    def y(self) -> Floats:
        """y of the layouts."""
        return np.array([one.y for one in self.observed.layouts])

    @property
    def chosen(self) -> PolynomialFit | None:
        """The polynomial that is warranted; None: none, or a sparse one."""
        name = self.choice.chosen if self.choice else None
        return next((fit for fit in self.fits if fit.name == name), None)


def models_of(
    every: Sequence[ModelData], *, degree: int = 2, margin: float = MARGIN
) -> tuple[SweepModel, ...]:
    """Return the models of each benchmark; `degree`: of the highest polynomial (2 or 3)."""
    return tuple(_model(observed, degree, margin) for observed in every)


def _model(observed: ModelData, degree: int, margin: float) -> SweepModel:
    x = np.array([one.x for one in observed.layouts])
    y = np.array([one.y for one in observed.layouts])
    if len(np.unique(x)) < LEAST_VALUES:
        return SweepModel(observed, (), None, None, (), None)
    fits = [fit for d in range(degree + 1) if (fit := fit_polynomial(x, y, d)) is not None]
    sparse, no_sparse = _sparse(observed, y)
    choice = choose((x, y), fits, sparse, observed.layout_noise, margin)
    return SweepModel(observed, tuple(fits), sparse, no_sparse, two_point_models(x, y), choice)


def _sparse(observed: ModelData, y: Floats) -> tuple[SparseFit | None, str | None]:
    names = [name for name, _ in observed.layouts[0].features]
    if not names or any([n for n, _ in one.features] != names for one in observed.layouts):
        return None, "no counters of address translation"
    if len(y) < LEAST_LAYOUTS:
        return None, f"{count(len(y), 'layout')}: it needs {LEAST_LAYOUTS}"
    features = [
        (name, np.array([dict(one.features)[name] for one in observed.layouts])) for name in names
    ]
    found = fit_sparse(features, y)
    return found, None if found is not None else "the counters do not vary"
