"""Durations and sizes with units, as people type them: `90`, `500ms`, `1m30s`, `2G`; pure."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(rf"(\d+(?:\.\d+)?|\.\d+)({'|'.join(sorted(_UNITS_S, key=len, reverse=True))})")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)(?:i?[bB])?")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def duration_s(text: str) -> float:
    """Return seconds of `90`, `90s`, `500ms`, `1.5h`, `1m30s`; raises `ArgumentTypeError`."""
    return _duration(text, "seconds", 1.0)


def duration_ms(text: str) -> float:
    """Return milliseconds of `6000`, `6s`, `500us`; raises `ArgumentTypeError`."""
    return _duration(text, "milliseconds", 1e-3)


def size_bytes(text: str) -> int:
    """Return bytes of `4096`, `500M`, `2G`, `2GiB` (powers of 1024); raises `ValueError`."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise ValueError(f"expected a size in bytes, as in 500M or 2G, got {text!r}")
    scale: int = 1024 ** _POWERS[match[2].lower()]
    return int(float(match[1]) * scale)


def _duration(text: str, plain: str, unit_s: float) -> float:
    try:
        return float(text)  # of the plain unit; the option itself judges nan, inf and less than 0
    except ValueError:
        pass
    word = text.strip()
    parts = list(_PART.finditer(word))
    if not parts or "".join(part[0] for part in parts) != word:
        raise ArgumentTypeError(
            f"expected {plain} or a number with a unit (500ms, 90s, 2m, 1h30m), got {text!r}"
        )
    return sum(float(part[1]) * (_UNITS_S[part[2]] / unit_s) for part in parts)
