"""What a machine draws while it idles: asked for, kept with a run, and read again; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress

from msgspec import Struct

from rater.text.values import duration_s

IDLE_POWER = "rater.idle_power"  # the setting that says how it is known, in words
IDLE_WATTS = "rater.idle_watts."  # and the domain of energy, or GIVEN
GIVEN = "given"  # by hand: watts of the packages with copies, together
_LEAST_S, _MOST_W = 1.0, 1e6


class IdlePower(Struct, frozen=True):
    """`--idle-power`: one of both."""

    watts: float | None = None  # given
    seconds: float | None = None  # to be measured for so long

    @classmethod
    def parse(cls, text: str) -> IdlePower:
        """Return what `95W` or `10s` asks for; raises `ValueError`."""
        number, unit = text[:-1].strip(), text[-1:]
        if unit in "Ww" and unit:
            with suppress(ValueError):
                watts = float(number)
                if 0 < watts <= _MOST_W:
                    return cls(watts=watts)
        else:
            with suppress(ValueError):
                seconds = duration_s(text)
                if _LEAST_S <= seconds < math.inf:
                    return cls(seconds=seconds)
        raise ValueError(
            "expected watts of the packages that copies run on, as 95W, or how long to measure "
            f"before them, as 10s ({_LEAST_S:g} s at least)"
        )


def idle_settings(how: str, watts_by_domain: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """Return what is kept with a run: how idle power is known, and watts by domain of energy."""
    watts = ((f"{IDLE_WATTS}{name}", f"{watts:.6g}") for name, watts in watts_by_domain.items())
    return ((IDLE_POWER, how), *watts)


def idle_watts(settings: Iterable[tuple[str, str]]) -> dict[str, float]:
    """Return the watts that a run kept, by domain of energy; {}: none."""
    watts_by_domain = {}
    for name, text in settings:
        if name.startswith(IDLE_WATTS):
            with suppress(ValueError):
                watts = float(text)
                if 0 < watts <= _MOST_W:
                    watts_by_domain[name.removeprefix(IDLE_WATTS)] = watts
    return watts_by_domain
