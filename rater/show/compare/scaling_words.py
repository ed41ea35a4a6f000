"""What a scaling curve says, in sentences and as values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rater.analysis.compare.scaling import Curve, ExcludedRuns, ScalePoint, Scaling, Series
from rater.analysis.compare.scaling_samples import Change, OrderComparison, SmtYield
from rater.analysis.results.copies import CpusUsed, Share
from rater.analysis.stats.curves import SHARE, Coefficient, NoLaw, Usl
from rater.show.compare.differences import TROUBLES
from rater.show.plans.plan import DIFFERENCE
from rater.text.values import (
    JsonFields,
    copies_text,
    count,
    join_and,
    objects,
    percent,
    signed_percent,
    to_json,
)


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
    """Say what all benchmarks come to together, and where that bends; each has a row of its own."""
    suites = [one for one in curve.suites if one.name == "all"]
    for one in suites or (curve.benchmarks if len(curve.benchmarks) == 1 else ()):
        yield from _all_together(curve, one, curve.fair)


def _all_together(curve: Curve, series: Series, fair: int) -> Iterator[str]:
    first = series.points[0]
    at = series.at(fair)
    both = "Both benchmarks" if len(series.over) == 2 else f"All {len(series.over)} benchmarks"
    who = both if series.is_suite else series.name
    if at is not None and at is not first:
        yield (
            f"{who}: {copies_text(fair)} {'do' if fair > 1 else 'does'} {at.speedup:.2f} times the "
            f"work of {copies_text(first.copies)}, {at.efficiency:.2f} of linear{_by_lgroup(at)}."
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


def _by_lgroup(at: ScalePoint) -> str:
    return "" if at.per_lgroup is None else f" ({at.per_lgroup:.2f} of linear per NUMA node)"


def _numbers(numbers: Sequence[int]) -> str:
    return join_and([str(one) for one in numbers])


def _share(share: float) -> str:
    return "half" if share == 0.5 else f"{percent(share, 0)} %"


def _percent(change: float) -> str:
    return f"{signed_percent(change, 0)} %"


# -- Scaling as values for JSON --------------------------------------------------------------------

TABLE = {
    Curve: JsonFields(
        "name conditions{} copies runs compared_at_copies=fair",
        {"limits": limits},
        "placements=places suites benchmarks",
        {
            "differences": lambda one: [
                DIFFERENCE.of(difference) | {"runs": runs} for difference, runs in one.differences
            ]
        },
        "lacking disturbed=troubles",
    ),
    **TROUBLES,
    CpusUsed: JsonFields(
        "copies each_has=share",
        {"cores": lambda one: None if one.cores is None else len(one.cores)},
        "copies_per_core=per_core threads_per_core=threads copies_per_lgroup=lgroups"
        " cpus=used_cpus machine_cpus=cpus machine_cores",
    ),
    Series: JsonFields(
        {
            "*": lambda one: (
                {"suite": one.name, "over": one.over} if one.is_suite else {"benchmark": one.name}
            )
        },
        "category unit points",
        {
            "noise": lambda one: {
                "sd": one.noise.sd,
                "degrees_of_freedom": one.noise.degrees,
                "assumed": one.noise.degrees is None,
                "within_rounds": one.noise.in_rounds,
            }
        },
        "knee_copies=shape.knee knee_within_noise_copies=shape.maybe"
        " plateau_from_copies=shape.plateau highest_at_copies=shape.peak"
        " falls_at_copies=shape.falls_at no_knee_because=shape.reason usl=law",
    ),
    ScalePoint: JsonFields(
        "copies rate",
        {"runs": lambda one: objects("run rate", zip(one.runs, one.rates, strict=True))},
        "speedup efficiency gain_per_copy=gain of_linear_per_lgroup=per_lgroup joules_per_copy",
    ),
    NoLaw: JsonFields("refused=reason"),
    Usl: JsonFields(
        "fitted_to=scale lambda=rate sigma kappa degrees_of_freedom=degrees",
        {
            "residuals": lambda law: objects(
                "copies share", zip(law.copies, law.residuals, strict=True)
            )
        },
        "rms_share=rms",
        {
            "largest_share": lambda law: max(law.residuals, key=abs),
            "describes_the_curve": lambda law: not law.bad,
        },
        "peak_copies=peak peak_interval_95=peak_interval peak_is_extrapolated=extrapolated"
        " no_peak_before_copies=none_before"
        " limit_rate=limit",
    ),
    Coefficient: JsonFields(
        "value standard_error=symmetric",  # null: at or near its bound 0, the interval tells
        {
            "held_at_0": lambda one: one.error is None,
            # null: no bound
            "interval_95": lambda one: [one.low, None if math.isinf(one.high) else one.high],
        },
    ),
    ExcludedRuns: JsonFields("runs name copies reason"),
    SmtYield: JsonFields(
        "conditions{} cores copies_per_core=threads whole_machine=of_machine"
        " runs_one_a_core=one_a_core runs_all_threads=all_threads copies_per_hour=changes"
    ),
    OrderComparison: JsonFields(
        "conditions{} copies runs_homogeneous=homogeneous runs_rotated=rotated copy_s=times"
        " work_per_s=work scores"
    ),
    Change: JsonFields(
        "benchmark before after change=share beyond_noise",  # benchmark null: the geometric mean
        {"noise_assumed": lambda change: change.noise.degrees is None},
    ),
}


def scaling_document(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[OrderComparison],
    missing: Sequence[str] = (),
) -> dict[str, object]:
    """Return everything; rates are in each series' `unit`, shares are of one."""
    document: dict[str, object] = to_json(
        {
            "curves": scaling.curves,
            "on_no_curve": scaling.alone,
            "points_without_runs": missing,
            "smt": smt,
            "rotated_against_homogeneous": rotated,
        },
        TABLE,
    )
    return document
