"""What a scaling curve says, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rater.analysis.results.cpus_used import CpusUsed, Share
from rater.analysis.scaling.curve import Curve, ScalePoint, Series
from rater.analysis.stats.knee import SHARE
from rater.analysis.stats.usl import Coefficient, Refused, Usl
from rater.text.words import copies_text, count, percent, series, signed_percent, some

_NAMED = 3  # benchmarks that stand furthest from linear
_LINEAR = 0.95  # of linear; what reaches it does not limit
_MOST = 6  # names in a list


def share_text(places: CpusUsed) -> str:
    """Return what a copy had: `1 a core`, `1-2 a core`, `share 2 CPUs`."""
    if places.share is Share.UNKNOWN:
        return "-"
    if places.share is Share.CPUS:
        used = places.used_cpus if places.used_cpus is not None else places.cpus
        return "share CPUs" if used is None else f"share {count(used, 'CPU')}"
    if places.even is not None:
        return f"{places.even} a core"
    least, most = places.per_core or (1, 2)
    return f"{least}-{most} a core"


def machine_text(curve: Curve) -> str | None:
    """Say how many cores and CPUs there are, and from where on copies share them."""
    of_machine = curve.places[-1]
    if of_machine.cpus is None:
        return None
    cores = of_machine.machine_cores
    text = "" if cores is None else f"{count(cores, 'core')}, "
    text += f"{count(of_machine.cpus, 'CPU')}"
    if cores is not None and cores < of_machine.cpus:
        text += " (hardware threads)"
    shared = {
        share: [one.copies for one in curve.places if one.share is share]
        for share in (Share.THREADS, Share.CPUS)
    }
    for share, what in ((Share.THREADS, "cores"), (Share.CPUS, "CPUs")):
        if shared[share]:
            text += f"; {_numbers(shared[share])} copies share {what}"
    return f"{text}."


def limits(curve: Curve) -> Iterator[str]:
    """Say what limits: all together, then what stops or bends early, then what is least linear."""
    fair = curve.fair
    suites = [one for one in curve.suites if one.name == "all"]
    benchmarks = curve.benchmarks
    heads = suites or (benchmarks if len(benchmarks) == 1 else ())
    for one in heads:
        yield from _all_together(curve, one, fair)
    if len(benchmarks) > 1:
        yield from _early(benchmarks, fair)
        yield from _least_linear(benchmarks, fair)
        yield from _fallers(benchmarks)


def _all_together(curve: Curve, series: Series, fair: int) -> Iterator[str]:
    first = series.points[0]
    at = series.at(fair)
    both = "Both benchmarks" if len(series.over) == 2 else f"All {len(series.over)} benchmarks"
    who = both if series.is_suite else series.name
    if at is not None and at is not first:
        yield (
            f"{who}: {at.speedup:.2f} times {copies_text(first.copies)} with {copies_text(fair)}, "
            f"{at.efficiency:.2f} of linear{_by_lgroup(at)}."
        )
    text = shape_text(curve, series)
    if text:
        yield f"{who if at is None or at is first else 'Together'}: {text}."


def shape_text(curve: Curve, series: Series) -> str:
    """Say where a curve bends, flattens and falls, `` where it does none of that."""
    shape = series.shape
    parts = []
    if shape.plateau is not None:
        parts.append(f"no gain beyond {copies_text(shape.plateau)}{_cause(curve, shape.plateau)}")
    if shape.knee is not None and shape.knee != shape.plateau:
        parts.insert(
            0,
            f"knee at {copies_text(shape.knee)}{_cause(curve, shape.knee)}: from there a copy more "
            f"adds less than {_share(SHARE)} of what the first gave",
        )
    if shape.maybe is not None:
        parts.append(
            f"perhaps a knee at {copies_text(shape.maybe)}{_cause(curve, shape.maybe)}; noise "
            f"hides it (of {percent(series.noise.sd, 0)} % a run), more rounds would tell"
        )
    fall = _fall(series)
    if fall is not None:
        peak, low = fall
        parts.append(
            f"falls beyond {copies_text(peak.copies)}, {_percent(low.rate / peak.rate - 1)} at "
            f"{low.copies}"
        )
    return "; ".join(parts)


def _fall(series: Series) -> tuple[ScalePoint, ScalePoint] | None:
    """Return the peak and the lowest point beyond it, where the curve falls."""
    if series.shape.falls_at is None:
        return None
    later = [one for one in series.points if one.copies >= series.shape.falls_at]
    peak = max(series.points, key=lambda one: one.rate)
    return peak, min(later, key=lambda one: one.rate)


def _cause(curve: Curve, copies: int) -> str:
    """Say what the machine has to do with a place on the curve."""
    here = curve.place(copies)
    later = [one for one in curve.places if one.copies > copies]
    if not later or here.share is later[0].share:
        return ""
    if later[0].share is Share.CPUS:
        return ", where each CPU has one" if here.copies == here.cpus else ", then CPUs are shared"
    return ", then cores are shared" if later[0].share is Share.THREADS else ""


def _early(benchmarks: Sequence[Series], fair: int) -> Iterator[str]:
    """Name what stops or bends while there are cores left."""
    stops = [
        one for one in benchmarks if one.shape.plateau is not None and one.shape.plateau < fair
    ]
    if stops:
        names = [f"{one.name} at {copies_text(one.shape.plateau or 0)}" for one in stops]
        yield f"Stop gaining early: {some(names, _MOST)}."
    bends = [
        one
        for one in benchmarks
        if one not in stops and one.shape.knee is not None and one.shape.knee < fair
    ]
    if bends:
        names = [f"{one.name} at {copies_text(one.shape.knee or 0)}" for one in bends]
        yield f"Bend early (knee): {some(names, _MOST)}."


def _least_linear(benchmarks: Sequence[Series], fair: int) -> Iterator[str]:
    found = [(at.efficiency, one.name) for one in benchmarks if (at := one.at(fair)) is not None]
    low = sorted((share, name) for share, name in found if share < _LINEAR)
    if (
        len({one.points[0].copies for one in benchmarks}) > 1
        or fair == benchmarks[0].points[0].copies
    ):
        return
    if low:
        named = [f"{name} {share:.2f}" for share, name in low[:_NAMED]]
        others = len(low) - len(named)
        more = f", {others} more below {_LINEAR:.2f}" if others else ""
        rest = len(found) - len(low)
        fine = f"; {rest} at {_LINEAR:.2f} or above" if rest else ""
        yield f"Furthest from linear with {copies_text(fair)}: {', '.join(named)}{more}{fine}."
    elif found:
        least, name = min(found)
        yield f"All are linear with {copies_text(fair)}: the least is {name}, {least:.2f}."


def _fallers(benchmarks: Sequence[Series]) -> Iterator[str]:
    """Name what falls beyond its peak."""
    falls = [(one.name, fall) for one in benchmarks if (fall := _fall(one)) is not None]
    if falls:
        named = [
            f"{name} beyond {copies_text(peak.copies)} ({_percent(low.rate / peak.rate - 1)} at "
            f"{low.copies})"
            for name, (peak, low) in falls
        ]
        yield f"Fall again: {some(named, _MOST)}."


def law_text(law: Usl | Refused, unit: str) -> str:
    """Return the law in words: what it means, or why it is not fitted."""
    if isinstance(law, Refused):
        return f"not fitted: {law.reason}"
    text = (
        f"sigma {_coefficient(law.sigma)} (contention), "
        f"kappa {_coefficient(law.kappa)} (coherency), "
        f"lambda {law.rate.value:.4g} {unit} a copy"
    )
    largest = signed_percent(_largest(law))
    text += f"; fitted to {law.scale}, residuals {percent(law.rms)} % (the largest {largest} %)"
    return f"{text}; {peak_text(law)}"


def peak_text(law: Usl) -> str:
    """Say where the law has its peak, and how far that can be believed."""
    if law.bad:
        return "it does not describe this curve"
    last = law.copies[-1]
    if law.peak is not None and not law.extrapolated:
        return f"peak at {law.peak:.0f} copies"
    no_peak = f"no peak in the measured range, {law.copies[0]} to {last} copies"
    if law.peak is not None:
        return f"{no_peak}; the law's is at {law.peak:.0f}, extrapolated"
    if law.limit is not None:
        return (
            f"{no_peak}: with kappa 0 it stays below {law.limit / law.rate.value:.3g} times lambda"
        )
    if law.none_before is not None:
        return f"{no_peak}, and none before {math.floor(law.none_before)} (95 %)"
    return no_peak


def _largest(law: Usl) -> float:
    return max(law.residuals, key=abs)


def _coefficient(one: Coefficient) -> str:
    """Return a value with what is known of its error; beside the bound 0 that is no +-."""
    if one.symmetric is not None:
        return f"{one.value:.3g} ± {one.symmetric:.1g}"
    if one.error is not None:
        high = "no bound" if math.isinf(one.high) else f"{one.high:.2g}"
        return f"{one.value:.3g} (0 to {high})"
    return "0" if math.isinf(one.high) else f"0 (below {one.high:.2g})"


def _by_lgroup(at: ScalePoint) -> str:
    return "" if at.per_lgroup is None else f" ({at.per_lgroup:.2f} of linear per lgroup)"


def _numbers(numbers: Sequence[int]) -> str:
    return series([str(one) for one in numbers])


def _share(share: float) -> str:
    return "half" if share == 0.5 else f"{percent(share, 0)} %"


def _percent(change: float) -> str:
    return f"{signed_percent(change, 0)} %"
