"""Medians, quantiles and spreads of arrays with gaps (NaN), along the last axis; pure numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

type Floats = npt.NDArray[np.float64]
type Ints = npt.NDArray[np.int64]
type Bools = npt.NDArray[np.bool_]

MAD_TO_SD = 1.4826
MEDIAN_ERROR = 1.2533  # standard error of a median over that of a mean


def quantiles(values: Floats, *shares: float) -> list[Floats]:
    """Return quantiles along the last axis, interpolated between members; NaN where there are none.

    One sort for all of them (`numpy.nanquantile` takes thirty times as long).
    """
    ordered = np.sort(values, axis=-1)  # NaN last
    count = np.sum(~np.isnan(values), axis=-1)
    last = np.maximum(count - 1, 0)
    results = []
    for share in shares:
        place = share * last
        low = np.floor(place).astype(np.intp)
        high = np.minimum(low + 1, last)
        below = np.take_along_axis(ordered, low[..., None], axis=-1)[..., 0]
        above = np.take_along_axis(ordered, high[..., None], axis=-1)[..., 0]
        results.append(below + (above - below) * (place - low))
    return results


def median(values: Floats) -> Floats:
    """Return the median along the last axis; NaN where there is nothing."""
    if values.shape[-1] == 0:
        return np.full(values.shape[:-1], np.nan)
    return quantiles(values, 0.5)[0]


def median_without_gaps(
    values: Floats, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> Floats:
    """Return what `numpy.median` does, to the last bit, of a small array in a fifth of its time.

    A search takes some thousand medians of some ten values. Where there are gaps or no values at
    all numpy itself says what the median is.
    """
    if axis is None and values.ndim == 1:
        axis = 0
    if not isinstance(axis, int) or values.shape[axis] == 0 or np.isnan(values).any():
        return np.asarray(np.median(values, axis=axis, keepdims=keepdims))
    count, before = values.shape[axis], (slice(None),) * (axis % values.ndim)
    low, high = (count - 1) // 2, count // 2
    ordered = np.partition(values, high if low == high else (low, high), axis=axis)
    middle: Floats = ordered[*before, high]
    if low != high:
        middle = (ordered[*before, low] + middle) / 2
    return np.expand_dims(middle, axis) if keepdims else middle


def mean(values: Floats, axis: int = -1) -> Floats:
    """Return the mean along an axis of the values that are not NaN; NaN: all are."""
    has_value = ~np.isnan(values)
    total = np.sum(np.where(has_value, values, 0.0), axis=axis)
    count = np.sum(has_value, axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def overall_median(values: Floats) -> float:
    """Return the median of all values; NaN for none."""
    return float(median(values.ravel()))


def subtract_median(values: Floats) -> Floats:
    """Return values with their median along the last axis taken out."""
    return values - median(values)[..., None]


def theil_sen(x: Floats, y: Floats) -> float:
    """Return the median of (y_j - y_i) / (x_j - x_i) over pairs with x_j > x_i; 0 without a pair.

    `x` and `y` (n,). The slope of H. Theil (1950) and P. K. Sen (JASA 63, 1968).
    """
    x_steps = x[:, None] - x[None, :]
    y_steps = y[:, None] - y[None, :]
    usable = (x_steps > 0) & ~np.isnan(y_steps)
    if not usable.any():
        return 0.0
    return float(np.median(y_steps[usable] / x_steps[usable]))
