"""The axis of a sweep that a model is along, and its values as numbers; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rater.analysis.models.quantity import Explaining, Quantity
from rater.analysis.results.points import Point
from rater.errors import InputError
from rater.plan.pages.layout import PageShare, parse_pages
from rater.text.units import size_bytes

PAGES = "pages"


@dataclass(frozen=True, slots=True)
class NumericAxis:
    """An axis of which every value is a number."""

    name: str
    values: dict[str, float]  # by the text of the sweep
    quantity: Quantity


def axes_of(points: Sequence[Point]) -> dict[str, list[str]]:
    """Return the axes that all points have, each with its values in their order."""
    names = [name for name, _ in points[0].values] if points else []
    return {
        name: list(dict.fromkeys(dict(point.values)[name] for point in points))
        for name in names
        if all(name in dict(point.values) for point in points)
    }


def model_axis(points: Sequence[Point], name: str | None, *, needed: bool) -> NumericAxis | None:
    """Return the axis that a model is along: `name`, else `pages`, else the only one of numbers.

    None where there is none and it is not `needed`; else raises `InputError`.
    """
    axes = axes_of(points)
    if name is not None and name not in axes:
        raise InputError(f"--axis {name}: not an axis of this sweep; {_known(axes)}")
    chosen = name or (PAGES if PAGES in axes else None)
    if chosen is not None:
        found = _numeric(chosen, axes[chosen])
        if found is None and needed:
            raise InputError(
                f"axis {chosen}: a model needs numbers, and {_odd(axes[chosen], chosen)!r} "
                "is none; name another axis with --axis, or count what it changes "
                "(--counters, then --x walks)"
            )
        return found
    numeric = [
        found
        for axis, values in axes.items()
        if len(values) > 1 and (found := _numeric(axis, values)) is not None
    ]
    if len(numeric) == 1:
        return numeric[0]
    if not needed:
        return None
    if not numeric:
        raise InputError(f"a model needs an axis whose values are numbers; {_known(axes)}")
    names = ", ".join(one.name for one in numeric)
    raise InputError(f"several axes have numbers ({names}): say which with --axis NAME")


def _known(axes: dict[str, list[str]]) -> str:
    shown = (f"{name}={','.join(values[:6])}" for name, values in axes.items())
    return f"its axes: {'; '.join(shown) or 'none'}"


def _odd(values: Sequence[str], axis: str) -> str:
    return next(text for text in values if _numeric(axis, [text]) is None)


def share_of(text: str) -> float | None:
    """Return the per cent of large pages that a text of --pages plans.

    None where that depends on how large each category of the data is.
    """
    layout = parse_pages(text)
    forms = set(layout.forms)
    form = forms.pop()
    return form.percent if not forms and isinstance(form, PageShare) else None


def _numeric(axis: str, values: Sequence[str]) -> NumericAxis | None:
    if axis == PAGES:
        shares = _all(values, share_of)
        if shares is None:
            return None
        planned = Quantity(Explaining.HUGE, "large pages", "%", "the share that --pages planned")
        return NumericAxis(axis, shares, planned)
    for read, unit in ((_number, ""), (_percent, "%"), (_size, "bytes")):
        found = _all(values, read)
        if found is not None:
            source = f"the values of the axis {axis}"
            return NumericAxis(axis, found, Quantity(Explaining.AXIS, axis, unit, source))
    return None


def _all(values: Sequence[str], read: Callable[[str], float | None]) -> dict[str, float] | None:
    found = {text: read(text) for text in values}
    known = {text: value for text, value in found.items() if value is not None}
    return known if len(known) == len(found) else None


def _number(text: str) -> float | None:
    with suppress(ValueError):
        value = float(text)
        return value if abs(value) < float("inf") else None
    return None


def _percent(text: str) -> float | None:
    return _number(text.removesuffix("%")) if text.endswith("%") else None


def _size(text: str) -> float | None:
    with suppress(ValueError):
        return float(size_bytes(text))
    return None
