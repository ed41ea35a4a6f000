"""Scaling as values for JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rater.analysis.results.cpus_used import Places
from rater.analysis.scaling.curve import Curve, ScalePoint, Scaling, Series
from rater.analysis.scaling.pairs import Change, Orders, SmtYield
from rater.analysis.stats.usl import Coefficient, Refused, Usl
from rater.show.compare.changes import changes_document
from rater.show.scaling.sentences import limits


def scaling_document(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[Orders],
    missing: Sequence[str] = (),
) -> dict[str, object]:
    """Return everything; rates are in each series' `unit`, shares are of one."""
    return {
        "curves": [_curve(one) for one in scaling.curves],
        "on_no_curve": [
            {
                "runs": [*one.runs],
                "name": one.name,
                "copies": [*one.copies],
                "reason": one.reason,
            }
            for one in scaling.alone
        ],
        "points_without_runs": [*missing],
        "smt": [_smt(one) for one in smt],
        "rotated_against_homogeneous": [_orders(one) for one in rotated],
    }


def _curve(curve: Curve) -> dict[str, object]:
    return {
        "name": curve.name,
        "conditions": dict(curve.conditions),
        "copies": [*curve.copies],
        "runs": [*curve.runs],
        "compared_at_copies": curve.fair,
        "limits": [*limits(curve)],
        "placements": [_places(one) for one in curve.places],
        "suites": [_series(one) for one in curve.suites],
        "benchmarks": [_series(one) for one in curve.benchmarks],
        "differences": [
            {**changes_document([one.difference])[0], "runs": [*one.runs]} for one in curve.unlike
        ],
        "lacking": [*curve.lacking],
    }


def _places(places: Places) -> dict[str, object]:
    return {
        "copies": places.copies,
        "each_has": places.share.value,
        "cores": None if places.cores is None else len(places.cores),
        "copies_per_core": None if places.per_core is None else [*places.per_core],
        "threads_per_core": places.threads,
        "copies_per_lgroup": None if places.lgroups is None else [*places.lgroups],
        "cpus": places.used_cpus,
        "machine_cpus": places.cpus,
        "machine_cores": places.machine_cores,
    }


def _series(series: Series) -> dict[str, object]:
    told: dict[str, object] = {"suite" if series.is_suite else "benchmark": series.name}
    if series.is_suite:
        told["over"] = [*series.over]
    shape = series.shape
    return {
        **told,
        "category": series.category,
        "unit": series.unit,
        "points": [_point(one) for one in series.points],
        "noise": {
            "sd": series.noise.sd,
            "degrees_of_freedom": series.noise.degrees,
            "assumed": series.noise.degrees is None,
            "within_rounds": series.noise.in_rounds,
        },
        "knee_copies": shape.knee,
        "knee_within_noise_copies": shape.maybe,
        "plateau_from_copies": shape.plateau,
        "highest_at_copies": shape.peak,
        "falls_at_copies": shape.falls_at,
        "no_knee_because": shape.reason,
        "usl": _law(series.law),
    }


def _point(point: ScalePoint) -> dict[str, object]:
    return {
        "copies": point.copies,
        "rate": point.rate,
        "runs": [
            {"run": run, "rate": rate} for run, rate in zip(point.runs, point.rates, strict=True)
        ],
        "speedup": point.speedup,
        "efficiency": point.efficiency,
        "gain_per_copy": point.gain,
        "of_linear_per_lgroup": point.per_lgroup,
    }


def _law(law: Usl | Refused) -> dict[str, object]:
    if isinstance(law, Refused):
        return {"refused": law.reason}
    return {
        "lambda": _coefficient(law.rate),
        "sigma": _coefficient(law.sigma),
        "kappa": _coefficient(law.kappa),
        "degrees_of_freedom": law.degrees,
        "residuals": [
            {"copies": copies, "share": share}
            for copies, share in zip(law.copies, law.residuals, strict=True)
        ],
        "rms_share": law.rms,
        "largest_share": max(law.residuals, key=abs),
        "describes_the_curve": not law.bad,
        "peak_copies": law.peak,
        "peak_is_extrapolated": law.extrapolated,
        "no_peak_before_copies": law.none_before,
        "limit_rate": law.limit,
    }


def _coefficient(one: Coefficient) -> dict[str, object]:
    return {
        "value": one.value,
        "standard_error": one.error,
        "held_at_0": one.error is None,
        "interval_95": [one.low, None if math.isinf(one.high) else one.high],  # null: no bound
    }


def _smt(one: SmtYield) -> dict[str, object]:
    return {
        "conditions": dict(one.conditions),
        "cores": one.cores,
        "copies_per_core": one.threads,
        "whole_machine": one.of_machine,
        "runs_one_a_core": [*one.one_a_core],
        "runs_all_threads": [*one.all_threads],
        "copies_per_hour": [_change(change) for change in one.changes],
    }


def _orders(pair: Orders) -> dict[str, object]:
    return {
        "conditions": dict(pair.conditions),
        "copies": pair.copies,
        "runs_homogeneous": [*pair.homogeneous],
        "runs_rotated": [*pair.rotated],
        "copy_s": [_change(change) for change in pair.times],
        "work_per_s": _change(pair.work) if pair.work else None,
        "scores": _change(pair.scores) if pair.scores else None,
    }


def _change(change: Change) -> dict[str, object]:
    return {
        "benchmark": change.benchmark,  # null: the geometric mean
        "before": change.before,
        "after": change.after,
        "change": change.share,
        "beyond_noise": change.beyond_noise,
        "noise_assumed": change.noise.degrees is None,
    }
