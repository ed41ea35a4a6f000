"""Scaling as values for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rater.analysis.results.cpus_used import CpusUsed
from rater.analysis.scaling.curve import Alone, Curve, ScalePoint, Scaling, Series
from rater.analysis.scaling.pairs import Change, Orders, SmtYield
from rater.analysis.stats.usl import Coefficient, Refused, Usl
from rater.show.compare.changes import DIFFERENCE
from rater.show.scaling.sentences import limits
from rater.text.to_json import Members, objects, to_json

TABLE = {
    Curve: Members(
        "name conditions{} copies runs compared_at_copies=fair",
        {"limits": limits},
        "placements=places suites benchmarks",
        {
            "differences": lambda one: [
                DIFFERENCE.of(difference) | {"runs": runs} for difference, runs in one.differences
            ]
        },
        "lacking",
    ),
    CpusUsed: Members(
        "copies each_has=share",
        {"cores": lambda one: None if one.cores is None else len(one.cores)},
        "copies_per_core=per_core threads_per_core=threads copies_per_lgroup=lgroups"
        " cpus=used_cpus machine_cpus=cpus machine_cores",
    ),
    Series: Members(
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
    ScalePoint: Members(
        "copies rate",
        {"runs": lambda one: objects("run rate", zip(one.runs, one.rates, strict=True))},
        "speedup efficiency gain_per_copy=gain of_linear_per_lgroup=per_lgroup joules_per_copy",
    ),
    Refused: Members("refused=reason"),
    Usl: Members(
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
        "peak_copies=peak peak_is_extrapolated=extrapolated no_peak_before_copies=none_before"
        " limit_rate=limit",
    ),
    Coefficient: Members(
        "value standard_error=symmetric",  # null: at or near its bound 0, the interval tells
        {
            "held_at_0": lambda one: one.error is None,
            # null: no bound
            "interval_95": lambda one: [one.low, None if math.isinf(one.high) else one.high],
        },
    ),
    Alone: Members("runs name copies reason"),
    SmtYield: Members(
        "conditions{} cores copies_per_core=threads whole_machine=of_machine"
        " runs_one_a_core=one_a_core runs_all_threads=all_threads copies_per_hour=changes"
    ),
    Orders: Members(
        "conditions{} copies runs_homogeneous=homogeneous runs_rotated=rotated copy_s=times"
        " work_per_s=work scores"
    ),
    Change: Members(
        "benchmark before after change=share beyond_noise",  # benchmark null: the geometric mean
        {"noise_assumed": lambda change: change.noise.degrees is None},
    ),
}


def scaling_document(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[Orders],
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
