"""Throughput against copies as values for JSON: curves, laws, SMT and rotated order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rater.analysis.compare.scaling import Curve, ExcludedRuns, ScalePoint, Scaling, Series
from rater.analysis.compare.scaling_samples import Change, OrderComparison, SmtYield
from rater.analysis.results.copies import CpusUsed
from rater.analysis.stats.curves import Coefficient, NoLaw, Usl
from rater.show.compare.differences import TROUBLES
from rater.show.compare.scaling import limits
from rater.show.plans.plan import DIFFERENCE
from rater.text.values import JsonFields, objects, to_json

TABLE = {
    Curve: JsonFields(
        "name conditions{} copies runs compared_at_copies=fair",
        {"limits": limits},
        "placements=places suites benchmarks",
        {
            "differences": lambda curve: [
                DIFFERENCE.read(difference) | {"runs": runs}
                for difference, runs in curve.differences
            ]
        },
        "lacking disturbed=troubles",
    ),
    **TROUBLES,
    CpusUsed: JsonFields(
        "copies each_has=share",
        {"cores": lambda curve: None if curve.cores is None else len(curve.cores)},
        "copies_per_core=per_core threads_per_core=threads copies_per_lgroup=lgroups"
        " cpus=used_cpus machine_cpus=cpus machine_cores",
    ),
    Series: JsonFields(
        {
            "*": lambda series: (
                {"suite": series.name, "over": series.over}
                if series.is_suite
                else {"benchmark": series.name}
            )
        },
        "category unit points",
        {
            "noise": lambda series: {
                "sd": series.noise.sd,
                "degrees_of_freedom": series.noise.degrees,
                "assumed": series.noise.degrees is None,
                "within_rounds": series.noise.in_rounds,
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
