"""What a model is of: x and y with their units, and the axis of a sweep as numbers; pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum

from msgspec import Struct

from rater.analysis.results.copies import Point
from rater.analysis.results.counters import ESTIMATED_WALKS, BenchmarkCounts
from rater.analysis.results.rates import Key
from rater.analysis.results.result import Result
from rater.lab.layout.layout import PageShare, parse_pages
from rater.lab.layout.proof import large_share
from rater.record.events import CopyEnded
from rater.record.stored import StoredRun, is_good, wants_user_time
from rater.system.errors import InputError
from rater.text.values import size_bytes

WALKS, MISSES, HITS = "walks", "misses", "hits"
_WALK_METRIC = "walk_cycles"
# Of each table the first that it has: misses of the last TLB that a page walk answers.
_MISS_EVENTS = (("stlb_miss",), ("walks_load", "walks_store"), ("dtlb_miss",), ("dtlb_walk",))
_HIT_EVENTS = (("stlb_hit",), ("stlb_hit_load", "stlb_hit_store"))


class PredictorKind(StrEnum):
    """The quantity that a model predicts from, x."""

    WALKS = WALKS
    MISSES = MISSES
    HUGE = "huge"
    AXIS = "axis"


class Quantity(Struct, frozen=True):
    """x or y of a model."""

    kind: str  # a word of --x or --y
    name: str  # "page-walk cycles of a copy"
    unit: str  # "" for a plain number
    source: str  # where the values are from, in words

    @property
    def title(self) -> str:
        """Its name with its unit."""
        return f"{self.name}, {self.unit}" if self.unit else self.name


# What a model predicts, of one copy, by the words of --y.
EFFORTS = {
    effort.kind: effort
    for effort in (
        Quantity("time", "time of a copy", "s", "median copy of a run"),
        Quantity("cpu", "CPU time of a copy", "s", "user and system, median copy of a run"),
        Quantity(
            "user", "user time of a copy", "s", "without the kernel's part, median copy of a run"
        ),
        Quantity("energy", "energy of a copy", "J", "the packages' energy by the copies' CPU time"),
        Quantity("cycles", "cycles of a copy", "", "counted, mean of the copies"),
    )
}
_METRIC = "metric:"  # and the name of what the program reports of itself
OF_TIME, OF_USER_TIME, OF_ENERGY = EFFORTS["time"], EFFORTS["user"], EFFORTS["energy"]
HOST_TAKES_MEMORY = (
    "y is user time: the host of this virtual machine takes free memory back (`rater doctor`), and "
    "what its return costs is in all other times; --y time takes them all the same"
)


def usual_effort(points: Sequence[Point]) -> Quantity:
    """Return y where nobody named one: time, user time where the host takes memory back."""
    runs = [point_run.run for point in points for point_run in point.runs]
    return OF_USER_TIME if wants_user_time(runs) else OF_TIME


def effort_named(word: str) -> Quantity:
    """Return what --y asks for; raises `InputError`."""
    name = word.removeprefix(_METRIC)
    if name and name != word:
        return Quantity(word, f"{name} as a copy reports it", "", "median copy of a run")
    if word not in EFFORTS:
        raise InputError(f"--y {word}: expected {', '.join(EFFORTS)} or {_METRIC}NAME")
    return EFFORTS[word]


def effort_of(
    quantity: Quantity,
    run: StoredRun,
    key: Key,
    rate: Result,
    counts: BenchmarkCounts | None,
) -> float | None:
    """Return y of a benchmark in a run; None: not known."""
    kind = quantity.kind
    if kind == "time":
        return rate.median_copy_s
    if kind == "energy":
        return rate.joules_per_copy
    if kind == "cycles":
        rates = counts.rates if counts else None
        return rates.cpi * rates.instructions if rates else None
    copies = _copies(run, key)
    if kind in ("cpu", "user"):
        every_ns = [copy.cpu_ns if kind == "cpu" else copy.user_ns for copy in copies]
        values = [ns / 1e9 for ns in every_ns if ns]
    else:
        name = kind.removeprefix(_METRIC)
        values = [value for copy in copies if (value := dict(copy.metrics).get(name, 0.0)) > 0]
    return statistics.median(values) if values else None


def _copies(run: StoredRun, key: Key) -> list[CopyEnded]:
    return [
        copy
        for copy in run.copies
        if copy.benchmark == key[0]
        and key[1] in (None, copy.tune)
        and copy.counted
        and is_good(copy)
    ]


def huge_share(run: StoredRun, key: Key) -> float | None:
    """Return the per cent of all its memory that a benchmark's median copy had in large pages.

    As it was proved; None: that was not seen.
    """
    shares = [share for copy in _copies(run, key) if (share := large_share(copy)) is not None]
    return statistics.median(shares) if shares else None


def counted_features(counts: BenchmarkCounts) -> dict[str, float]:
    """Return what the counters say of address translation in a copy's run: walks, misses, hits.

    Walks are cycles in which a page walk was active; those of them that the table has. Where no
    event counts them they may be estimated, by a name of their own.
    """
    rates = counts.rates
    if rates is None:
        return {}
    metrics = dict(counts.metrics)
    features = {}
    if _WALK_METRIC in metrics:
        features[WALKS] = metrics[_WALK_METRIC] * rates.instructions
    if ESTIMATED_WALKS in metrics:
        features[ESTIMATED_WALKS] = metrics[ESTIMATED_WALKS] * rates.instructions
    for name, choices in ((MISSES, _MISS_EVENTS), (HITS, _HIT_EVENTS)):
        value = _first(rates.by_event, choices)
        if value is not None:
            features[name] = value * rates.instructions
    return features


def _first(by_event: Mapping[str, float], choices: tuple[tuple[str, ...], ...]) -> float | None:
    for events in choices:
        if by_event.keys() >= set(events):
            return sum(by_event[event] for event in events)
    return None


# -- The axis of a sweep that a model is along, and its values as numbers --------------------------

PAGES = "pages"


class NumericAxis(Struct, frozen=True):
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
    """Return the axis of a model: `name`, else `pages`, else the only one of numbers.

    None when there is none and it is not `needed`; else raises `InputError`.
    """
    axes = axes_of(points)
    if name is not None and name not in axes:
        raise InputError(f"--axis {name}: not an axis of this sweep; {_known(axes)}")
    chosen = name or (PAGES if PAGES in axes else None)
    if chosen is not None:
        numeric_axis = _numeric(chosen, axes[chosen])
        if numeric_axis is None and needed:
            raise InputError(
                f"axis {chosen}: a model needs numbers, and {_odd(axes[chosen], chosen)!r} "
                "is none; name another axis with --axis, or count what it changes "
                "(--counters, then --x walks)"
            )
        return numeric_axis
    numeric = [
        numeric_axis
        for axis, values in axes.items()
        if len(values) > 1 and (numeric_axis := _numeric(axis, values)) is not None
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

    None when that depends on how large each category of the data is.
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
        planned = Quantity(PredictorKind.HUGE, "large pages", "%", "the share that --pages planned")
        return NumericAxis(axis, shares, planned)
    for read, unit in ((_number, ""), (_percent, "%"), (_size, "bytes")):
        value_by_text = _all(values, read)
        if value_by_text is not None:
            source = f"the values of the axis {axis}"
            return NumericAxis(
                axis, value_by_text, Quantity(PredictorKind.AXIS, axis, unit, source)
            )
    return None


def _all(values: Sequence[str], read: Callable[[str], float | None]) -> dict[str, float] | None:
    value_or_none = {text: read(text) for text in values}
    value_by_text = {text: value for text, value in value_or_none.items() if value is not None}
    return value_by_text if len(value_by_text) == len(value_or_none) else None


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
