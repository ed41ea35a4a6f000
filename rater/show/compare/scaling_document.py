"""Throughput against copies as values for JSON: curves, laws, SMT and rotated order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rater.analysis.compare.falls import FallWithinRun
from rater.analysis.compare.scaling import Curve, ScalePoint, Scaling, Series
from rater.analysis.compare.scaling_samples import Change, OrderComparison, SmtYield
from rater.analysis.results.copies import CpusUsed
from rater.analysis.stats.curves import Coefficient, NoLaw, Usl
from rater.analysis.stats.dips import Dip
from rater.analysis.stats.saturation import Saturation
from rater.show.compare.differences import TROUBLES
from rater.show.compare.scaling import limits, unjudged_points
from rater.show.plans.plan import changes_document
from rater.text.values import to_json

if TYPE_CHECKING:
    from rater.show.documents.scale import (
        ChangeJson,
        CoefficientJson,
        CpusUsedJson,
        CurveJson,
        DipJson,
        FallWithinRunJson,
        NoLawJson,
        OrderComparisonJson,
        SaturationJson,
        ScaleDocument,
        ScalePointJson,
        SeriesJson,
        SmtYieldJson,
        UslJson,
    )


def scaling_document(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[OrderComparison],
    missing: Sequence[str] = (),
) -> ScaleDocument:
    """Return everything; rates are in each series' `unit`, shares are of one."""
    return {
        "curves": [_curve(curve) for curve in scaling.curves],
        "on_no_curve": [
            {
                "runs": list(excluded.runs),
                "name": excluded.name,
                "copies": list(excluded.copies),
                "reason": excluded.reason,
            }
            for excluded in scaling.alone
        ],
        "points_without_runs": list(missing),
        "smt": [_smt_yield(smt_yield) for smt_yield in smt],
        "rotated_against_homogeneous": [_order_comparison(orders) for orders in rotated],
    }


def _curve(curve: Curve) -> CurveJson:
    return {
        "name": curve.name,
        "conditions": dict(curve.conditions),
        "copies": list(curve.copies),
        "runs": list(curve.runs),
        "compared_at_copies": curve.fair,
        "limits": list(limits(curve)),
        "placements": [_placement(place) for place in curve.places],
        "suites": [
            {"suite": series.name, "over": list(series.over), **_series(series)}
            for series in curve.suites
        ],
        "benchmarks": [
            {"benchmark": series.name, **_series(series)} for series in curve.benchmarks
        ],
        "differences": [
            {**change, "runs": list(runs)}
            for difference, runs in curve.differences
            for change in changes_document([difference])
        ],
        "lacking": list(curve.lacking),
        "disturbed": to_json(curve.troubles, TROUBLES),
        "falls_within_runs": [_fall(fall) for fall in curve.falls],
    }


def _fall(fall: FallWithinRun) -> FallWithinRunJson:
    return {
        "run": fall.run,
        "copies": fall.copies,
        "benchmark": fall.benchmark,
        "iteration": fall.iteration,
        "last_iteration": fall.last_iteration,
        "rate_lost_share": fall.share,
    }


def _dip(dip: Dip) -> DipJson:
    return {
        "copies": dip.copies,
        "fewer_copies": dip.fewer,
        "more_copies": dip.more,
        "of_all_copies": dip.in_all,
    }


def _placement(place: CpusUsed) -> CpusUsedJson:
    return {
        "copies": place.copies,
        "each_has": place.share,
        "cores": None if place.cores is None else len(place.cores),
        "copies_per_core": None if place.per_core is None else list(place.per_core),
        "threads_per_core": place.threads,
        "copies_per_lgroup": None if place.lgroups is None else list(place.lgroups),
        "cpus": place.used_cpus,
        "machine_cpus": place.cpus,
        "machine_cores": place.machine_cores,
    }


def _series(series: Series) -> SeriesJson:
    noise, shape = series.noise, series.shape
    return {
        "category": series.category,
        "unit": series.unit,
        "points": [_point(point) for point in series.points],
        "noise": {
            "sd": noise.sd,
            "degrees_of_freedom": noise.degrees,
            "assumed": noise.degrees is None,
            "within_rounds": noise.in_rounds,
        },
        "knee_copies": shape.knee,
        "knee_within_noise_copies": shape.maybe,
        "plateau_from_copies": shape.plateau,
        "plateau_within_noise_copies": shape.maybe_plateau,
        "highest_at_copies": shape.peak,
        "falls_at_copies": shape.falls_at,
        "no_knee_because": shape.reason,
        "dips": [_dip(dip) for dip in series.dips],
        "usl": _law(series.law),
        "saturation": None if series.saturation is None else _saturation(series.saturation),
        "by_cpu_time": series.by_cpu is not None,
        "cannot_tell": [
            {"copies": copies, "reason": why} for copies, why in unjudged_points(series)
        ],
    }


def _saturation(saturation: Saturation) -> SaturationJson:
    return {
        "copies": saturation.copies,
        "rate_per_copy": saturation.rate,
        "limit_rate": saturation.limit,
        "rms_share": saturation.rms,
    }


def _point(point: ScalePoint) -> ScalePointJson:
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
        "joules_per_copy": point.joules_per_copy,
    }


def _law(law: Usl | NoLaw) -> UslJson | NoLawJson:
    if isinstance(law, NoLaw):
        return {"refused": law.reason}
    return {
        "fitted_to": law.scale,
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
        "peak_interval_95": None if law.peak_interval is None else list(law.peak_interval),
        "peak_is_extrapolated": law.extrapolated,
        "no_peak_before_copies": law.none_before,
        "limit_rate": law.limit,
    }


def _coefficient(coefficient: Coefficient) -> CoefficientJson:
    high = coefficient.high
    return {
        "value": coefficient.value,
        "standard_error": coefficient.symmetric,
        "held_at_0": coefficient.error is None,
        "interval_95": [coefficient.low, None if math.isinf(high) else high],
    }


def _smt_yield(smt_yield: SmtYield) -> SmtYieldJson:
    return {
        "conditions": dict(smt_yield.conditions),
        "cores": smt_yield.cores,
        "copies_per_core": smt_yield.threads,
        "whole_machine": smt_yield.of_machine,
        "runs_one_a_core": list(smt_yield.one_a_core),
        "runs_all_threads": list(smt_yield.all_threads),
        "copies_per_hour": [_change(change) for change in smt_yield.changes],
    }


def _order_comparison(orders: OrderComparison) -> OrderComparisonJson:
    return {
        "conditions": dict(orders.conditions),
        "copies": orders.copies,
        "runs_homogeneous": list(orders.homogeneous),
        "runs_rotated": list(orders.rotated),
        "copy_s": [_change(change) for change in orders.times],
        "work_per_s": None if orders.work is None else _change(orders.work),
        "scores": None if orders.scores is None else _change(orders.scores),
    }


def _change(change: Change) -> ChangeJson:
    return {
        "benchmark": change.benchmark,
        "before": change.before,
        "after": change.after,
        "change": change.share,
        "beyond_noise": change.beyond_noise,
        "noise_assumed": change.noise.degrees is None,
    }
