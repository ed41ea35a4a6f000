"""What stands in cells of comparisons: names of rows, factors, intervals, verdicts."""

from __future__ import annotations

from rater.analysis.compare.model import Effect, EffectRow
from rater.analysis.results.rates import MEAN
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.record.stored import CPU_RATIO, PER_CPU_HOUR, PER_HOUR
from rater.text.values import signed_percent

_LEAST_FACTOR, _MOST_FACTOR = 0.001, 1000  # beyond, a number says no more
_FEW_DECIMALS = 10
_SUITE_NAMES = {"all": "suite", "int": "suite, int", "fp": "suite, fp"}


def effect_name(row: EffectRow) -> str:
    """Return `lu`, `lu peak` or `suite (14)`."""
    if row.over:
        return f"{_SUITE_NAMES[row.name]} ({len(row.over)})"
    return f"{row.name} {row.tune}" if row.tune else row.name


_SHORT_UNITS = {PER_HOUR: "/hour", PER_CPU_HOUR: "/CPU hour", CPU_RATIO: "ratio, CPU"}


def rate_heading(unit: str) -> str:
    """Return `geomean|ratio` or `geomean|/hour`: what `rates.mean_rate` gives a point."""
    return f"{MEAN}|{_SHORT_UNITS.get(unit, unit)}"


def factor_text(interval: RatioInterval | None) -> str | None:
    """Return how many times faster, or None if the comparison cannot tell."""
    return (
        _figures(interval.ratio)
        if interval and interval.verdict is not Decision.CANNOT_TELL
        else None
    )


def interval_text(interval: RatioInterval | None) -> str | None:
    """Return the ends of the interval of a factor."""
    if interval is None or interval.low is None or interval.high is None:
        return None
    return f"{_figures(interval.low)}-{_figures(interval.high)}"


def _figures(ratio: float) -> str:
    """Return a factor with three decimals, or three digits; beyond 1000 only that it is so."""
    if not _LEAST_FACTOR <= ratio <= _MOST_FACTOR:
        return f"<{_LEAST_FACTOR}" if ratio < 1 else f">{_MOST_FACTOR}"
    places = 3 if ratio < _FEW_DECIMALS else 1 if ratio < 10 * _FEW_DECIMALS else 0
    return f"{ratio:.{places}f}"


def verdict_of(cell: Effect, *, compared: bool, short: bool) -> str | None:
    """Return the verdict; `short`: without what the sentences below tell, a doubt as brackets."""
    if cell.speedup is None:
        return cell.reason
    if not short:
        words = cell.speedup.verdict_text
    else:
        words = f"{cell.speedup.short}{' by CPU time' if cell.speedup.by_cpu else ''}"
        words = f"({words})" if cell.speedup.decided and cell.speedup.doubts else words
    return words + (" *" if cell.holds and compared else "")


def in_brackets(interval: RatioInterval | None) -> str | None:
    """Return a change, in brackets where it may be chance."""
    if interval is None:
        return None
    share = interval.ratio - 1
    change = f">+{_MOST_FACTOR * 100}" if share > _MOST_FACTOR else signed_percent(share)
    return change if interval.verdict in (Decision.BETTER, Decision.WORSE) else f"({change})"
