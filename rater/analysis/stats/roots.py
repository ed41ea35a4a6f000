"""Where a function of one value changes its sign; pure."""

from __future__ import annotations

import math
from collections.abc import Callable

_EXACT = 1e-7  # of the value where it changes, and of the way on which it was sought

type _Place = tuple[float, float]  # a value, and the function there


def sign_change(function: Callable[[float], float], inside: float, outside: float) -> float:
    """Return where `function` becomes positive on the way from `inside` to `outside`.

    Where it is positive at `inside` already that is returned, and `outside` where it never is.

    By T. R. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a
    nonlinear function without using derivatives", Advances in Engineering Software 28, 1997: the
    parabola through three places where it is trusted (phi and xi are his), else the middle.
    """
    far, near = (outside, function(outside)), (inside, function(inside))
    if far[1] <= 0 or near[1] >= 0:
        return outside if far[1] <= 0 else inside
    way, share = abs(outside - inside), 0.5
    while True:
        size = max(abs(near[0]), abs(far[0]))
        least = max(_EXACT * min(way, size), 2 * math.ulp(size)) / abs(far[0] - near[0])
        if least > 0.5:
            break
        share = min(max(least, share), 1 - least)
        place = near[0] + share * (far[0] - near[0])
        found = (place, function(place))
        third, far = (near, far) if (found[1] > 0) == (near[1] > 0) else (far, near)
        near = found
        share = _parabola(near, far, third)
    return min(near, far, key=lambda place: abs(place[1]))[0]


def _parabola(near: _Place, far: _Place, third: _Place) -> float:
    """Return how far the zero is from `near` to `far`, as a share, by inverse interpolation."""
    (near_value, at_near), (far_value, at_far), (third_value, at_third) = near, far, third
    if at_third in {at_near, at_far}:
        return 0.5
    xi = (near_value - far_value) / (third_value - far_value)
    phi = (at_near - at_far) / (at_third - at_far)
    if not (phi**2 < xi and (1 - phi) ** 2 < 1 - xi):
        return 0.5
    from_third = (third_value - near_value) / (far_value - near_value)
    return at_near / (at_far - at_near) * at_third / (at_far - at_third) + from_third * at_near / (
        at_third - at_near
    ) * at_far / (at_third - at_far)
