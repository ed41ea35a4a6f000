"""How often running copies are sampled: the value of `--proof`; pure."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from dataclasses import dataclass

from rater.errors import InputError
from rater.text.units import duration_s

LEAST_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often to sample a copy."""

    once: bool = False
    every_s: float | None = None  # None: as often as costs little

    def __str__(self) -> str:
        """Return it as `--proof` takes it."""
        return "once" if self.once else "auto" if self.every_s is None else f"{self.every_s:g}"


def parse_cadence(text: str) -> Cadence | None:
    """Return what `--proof` asks for: `auto`, `once`, seconds, or `off` (None)."""
    if text in ("off", "auto", "once"):
        return None if text == "off" else Cadence(once=text == "once")
    try:
        every_s = duration_s(text)
    except ArgumentTypeError:
        every_s = math.nan
    if not (LEAST_EVERY_S <= every_s < math.inf):
        raise InputError(
            f"--proof {text!r}: expected auto, once, off, or seconds between two looks at a copy "
            f"({LEAST_EVERY_S:g} or more)"
        )
    return Cadence(every_s=every_s)
