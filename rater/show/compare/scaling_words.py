"""What a scaling curve says, in sentences and as values for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rater.analysis.compare.scaling import Curve, ExcludedRuns, ScalePoint, Scaling, Series
from rater.analysis.compare.scaling_samples import Change, OrderComparison, SmtYield
from rater.analysis.results.copies import CpusUsed, Share
from rater.analysis.stats.curves import Coefficient, NoLaw, Usl
from rater.show.compare.differences import TROUBLES
from rater.show.plans.plan import DIFFERENCE
from rater.text.values import (
    JsonFields,
    copies_text,
    count,
    join_and,
    objects,
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
        first, at, shape = one.points[0], one.at(curve.fair), one.shape
        many = len(one.over)
        who = one.name if not many else "Both benchmarks" if many == 2 else f"All {many} benchmarks"
        if at is not None and at is not first:
            node = (
                "" if at.per_lgroup is None else f" ({at.per_lgroup:.2f} of linear per NUMA node)"
            )
            yield (
                f"{who}: {copies_text(at.copies)} {'do' if at.copies > 1 else 'does'} "
                f"{at.speedup:.2f} times the work of {copies_text(first.copies)}, "
                f"{at.efficiency:.2f} of linear{node}."
            )
            who = "Together"
        low = min(
            (it for it in one.points if shape.falls_at and it.copies >= shape.falls_at),
            key=lambda it: it.rate,
            default=None,
        )
        peak = max(one.points, key=lambda it: it.rate)
        bends = {
            "knee at {}: from there a copy more adds less than half of what the first gave": (
                shape.knee if shape.knee != shape.plateau else None
            ),
            "no gain beyond {}": shape.plateau,
            "perhaps a knee at {}; noise hides it, more rounds would tell": shape.maybe,
            "falls beyond {}": peak.copies if low else None,
        }
        words = [text.format(copies_text(it)) for text, it in bends.items() if it is not None]
        if low is not None:
            words[-1] += f", {signed_percent(low.rate / peak.rate - 1, 0)} % at {low.copies}"
        if words:
            yield f"{who}: {'; '.join(words)}."


def _numbers(numbers: Sequence[int]) -> str:
    return join_and([str(one) for one in numbers])


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
