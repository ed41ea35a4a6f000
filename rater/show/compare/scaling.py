"""Throughput against copies: what limits, tables, the law, SMT, rotated order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from rater.analysis.compare.conditions import ConditionDifference
from rater.analysis.compare.scaling import Curve, ScalePoint, Scaling, Series
from rater.analysis.compare.scaling_samples import Change, OrderComparison, SmtYield
from rater.analysis.results.copies import CpusUsed, Share
from rater.analysis.stats.curves import LEAST_POINTS, Coefficient, NoLaw, Usl
from rater.analysis.stats.intervals import ASSUMED_SD
from rater.show.compare.differences import trouble_parts
from rater.show.compare.effects import rate_heading
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    PERCENT,
    TEXT,
    Field,
    Form,
    Line,
    Part,
    ViewTable,
    decimals,
)
from rater.show.screen.format import format_number, format_together, needed_decimals
from rater.text.cpuset import format_list
from rater.text.values import (
    copies_text,
    count,
    group_by_key,
    join_and,
    percent,
    signed_percent,
    truncate_list,
)

_MOST_RUNS = 8
_MOST_FALLS = 3
_MOST_HINTED = 3  # runs in a command


def scaling_parts(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[OrderComparison],
    missing: Sequence[str] = (),
) -> Iterator[Part]:
    """Yield everything; `missing`: points of a sweep that have no run, in words."""
    several = len(scaling.curves) > 1
    if several:
        curve_count = len(scaling.curves)
        yield Line(f"{curve_count} curves: these runs differ in more than their copies", "bold")
        yield _overview(scaling.curves)
    paired = {
        run
        for runs in (
            *(smt_yield.one_a_core + smt_yield.all_threads for smt_yield in smt),
            *(pair.homogeneous + pair.rotated for pair in rotated),
        )
        for run in runs
    }
    alone = [str(one) for one in scaling.alone if not paired.issuperset(one.runs)]
    yield from (Line(text, "yellow") for text in (*alone, *missing))
    for curve in scaling.curves:
        yield from _curve_parts(curve, named=several)
    for one in smt:
        yield _smt(one)
    for pair in rotated:
        yield from _order_parts(pair)


def _overview(curves: Sequence[Curve]) -> ViewTable:
    """Return what all curves come to, a line each, at the copies that speedups are told at."""
    rows = [
        (curve, series) for curve in curves for series in (curve.suites or curve.benchmarks)[:1]
    ]

    def value_of(row: tuple[Curve, Series], name: str) -> float | None:
        return getattr(row[1].point_of(row[0].fair), name, None)

    columns = (
        Field(heading="curve", value=lambda row: row[0].name, form=TEXT, flexible=True),
        Field(heading="of", value=lambda row: _title(row[1]), form=TEXT),
        Field(heading="with|copies", value=lambda row: row[0].fair),
        Field(
            heading=rate_heading(rows[0][1].unit),
            value=lambda row: value_of(row, "rate"),
            form=Form(format_together),
        ),
        Field(heading="speedup", value=lambda row: value_of(row, "speedup"), form=_FACTORS),
        Field(heading="of|linear", value=lambda row: value_of(row, "efficiency"), form=_SHARES),
        Field(heading="knee", value=lambda row: _knee(row[1])),
        Field(heading="no gain|beyond", value=lambda row: _plateau(row[1])),
    )
    return ViewTable(title="", rows=rows, fields=columns)


def _title(series: Series) -> str:
    return f"{series.name} ({len(series.over)})" if series.is_suite else series.name


def _curve_parts(curve: Curve, *, named: bool) -> Iterator[Part]:
    conditions = dict(curve.conditions)
    tune = ", ".join(conditions[name] for name in ("size", "tune") if name in conditions)
    suite = f"{conditions.get('suite', '-')} ({tune})"
    yield Line("")
    yield Line(
        f"{curve.name + ': ' if named else ''}{suite.replace(' ()', '')} on "
        f"{conditions.get('host', 'a host not named')}, {conditions.get('mode', '-')}: "
        f"{', '.join(map(str, curve.copies[:-1]))} and {curve.copies[-1]} copies, "
        f"{_runs(curve.runs)}",
        "bold",
    )
    differences = [
        _difference_text(*difference)
        for difference in curve.differences
        if difference[0].significant
    ]
    yield from (Line(text, "yellow") for text in (*differences, *curve.lacking))
    main = (curve.suites or curve.benchmarks)[0]
    if main.by_cpu is not None:
        took = f"others took up to {percent(main.by_cpu, 0)} % of the copies' time"
        yield Line(f"By CPU time, as elapsed times are disturbed: {took}.", "bold yellow")
    yield from (
        Line(f"{copies_text(copies)}: cannot tell: {why}", "bold yellow")
        for copies, why in unjudged_points(main)
    )
    yield from trouble_parts(curve.troubles)
    yield from (Line(text, "yellow") for text in fall_texts(curve))
    yield machine_text(curve)
    yield from limits(curve)
    for series in curve.suites[:1] or curve.benchmarks[:1]:
        yield _points(curve, series)
    if len(curve.series) > 1:
        yield from _series_parts(curve)
    yield from _law_parts(curve)
    yield _noise(curve)
    notes = [
        _difference_text(*difference)
        for difference in curve.differences
        if not difference[0].significant
    ]
    if notes:
        yield Line(
            f"Not the same in all of these runs, but of no weight: {truncate_list(notes)}.", "dim"
        )


def unjudged_points(series: Series) -> list[tuple[int, str]]:
    """Return the numbers of copies that nothing can be concluded from, ascending, and why."""
    shown = [(point.copies, point.unjudged) for point in series.points if point.unjudged]
    return sorted([*shown, *series.unjudged])


def _runs(numbers: Sequence[int]) -> str:
    ranges = format_list(numbers).split(",")
    return f"run{'s' if len(numbers) > 1 else ''} {truncate_list(ranges, _MOST_RUNS)}"


def _difference_text(difference: ConditionDifference, runs: Sequence[int]) -> str:
    return f"{_runs(runs)}: {difference}"


def _points(curve: Curve, series: Series) -> ViewTable:
    """Return the points of all together, or of a single benchmark."""
    places = needed_decimals([point.rate for point in series.points])
    rates = Form(lambda values: [format_number(value, places) for value in values])
    spread = (
        Field(heading="runs", value=lambda scale_point: len(scale_point.runs), optional=3),
        Field(
            heading="lowest|to highest",
            value=lambda scale_point: _range(scale_point.rates, places),
            optional=2,
        ),
    )
    columns = (
        Field(heading=(_title(series), "copies"), value=lambda scale_point: scale_point.copies),
        Field(
            heading="placed|", value=lambda scale_point: share_text(curve.place(scale_point.copies))
        ),
        Field(
            heading=rate_heading(series.unit),
            value=lambda scale_point: scale_point.rate,
            form=rates,
        ),
        *(spread if any(len(point.runs) > 1 for point in series.points) else ()),
        Field(heading="speedup", value=_if_judged(series, "speedup"), form=_FACTORS),
        Field(heading="of|linear", value=_if_judged(series, "efficiency"), form=_SHARES),
        Field(
            heading="of linear|per node",
            value=_if_judged(series, "per_lgroup"),
            form=_SHARES,
        ),
        Field(
            heading="J|/copy", value=lambda scale_point: scale_point.joules_per_copy, form=NUMBER
        ),
        Field(
            heading="gain per|extra copy",
            value=_if_judged(series, "gain"),
            form=_SHARES,
            optional=1,
        ),
    )

    def style(scale_point: ScalePoint) -> str:
        return "" if curve.place(scale_point.copies).share is not Share.CPUS else "dim"

    return ViewTable(title="", rows=series.points, fields=columns, style=style)


def _if_judged(series: Series, name: str) -> Callable[[ScalePoint], float | None]:
    """Return a getter of a comparison of a point with others; its value is None without one."""
    is_base_judged = series.points[0].unjudged is None

    def value(scale_point: ScalePoint) -> float | None:
        is_judged = is_base_judged and scale_point.unjudged is None
        return getattr(scale_point, name) if is_judged else None

    return value


def _factor(value: float) -> str:
    """Return a speedup or a share of linear with three digits: `0.975`, `12.4`."""
    return f"{value + 0.0:.{3 if abs(value) < 0.9995 else 2 if abs(value) < 9.995 else 1}f}"


_FACTORS = Form(lambda values: ["-" if it is None else _factor(it) for it in values])
_SHARES = decimals(3)  # .975 and .976 are two results


def _range(rates: Sequence[float], places: int) -> str:
    if len(rates) < 2:
        return "-"
    return f"{format_number(min(rates), places)}-{format_number(max(rates), places)}"


def _series_parts(curve: Curve) -> Iterator[Part]:
    """Yield efficiency by copies for each suite and benchmark, with knee and plateau."""
    rows, base, fair = curve.series, curve.copies[0], curve.fair
    # Of many numbers of copies those in the middle give way first, the last and the last fair
    # one never.
    middle = [copies for copies in curve.copies[1:-1] if copies != fair]
    order = {copies: place for place, copies in enumerate(_by_halves(middle), 1)}

    def efficiency(series: Series, copies: int) -> float | None:
        point = series.point_of(copies)
        return None if point is None else _if_judged(series, "efficiency")(point)

    unit = rate_heading(rows[0].unit).replace("|/", "/").replace("|", " ")
    bends = (
        Field(heading="knee", value=_knee),
        Field(heading="no gain|beyond", value=_plateau),
        Field(heading="falls|at", value=lambda series: series.shape.falls_at),
    )
    columns = (
        Field(heading="of linear|copies", value=_title, form=TEXT, flexible=True),
        Field(
            heading=(unit, str(base)),
            value=lambda series: format_number(getattr(series.point_of(base), "rate", None)),
            optional=len(curve.copies) + 1,
        ),
        *(
            Field(
                heading=("", str(copies)),
                value=partial(efficiency, copies=copies),
                form=_SHARES,
                optional=order.get(copies, 0),
            )
            for copies in curve.copies[1:]
        ),
        *(bends if len(curve.copies) >= LEAST_POINTS else ()),
    )
    yield ViewTable(
        title="", rows=rows, fields=columns, style=lambda series: "bold" if series.is_suite else ""
    )
    lone = [series for series in rows if series.points[0].copies != base]
    lines = [f"{series.name} ({series.points[0].copies})" for series in lone]
    baseline = "one copy" if base == 1 else f"{base} copies, the fewest"
    also = f"; for some of another number: {truncate_list(lines)}" if lines else ""
    mark = (
        " ?: within noise."
        if any({series.shape.maybe, series.shape.maybe_plateau} - {None} for series in rows)
        else ""
    )
    yield Line(f"1.00: per-copy speed equals that of {baseline}{also}.{mark}", "dim")


def _by_halves(numbers: Sequence[int]) -> list[int]:
    """Return numbers so that what is left after any cut lies evenly: the middle one first."""
    if not numbers:
        return []
    middle = len(numbers) // 2
    left, right = _by_halves(numbers[:middle]), _by_halves(numbers[middle + 1 :])
    mixed = [number for pair in zip(left, right, strict=False) for number in pair]
    longer = left if len(left) > len(right) else right
    return [numbers[middle], *mixed, *longer[min(len(left), len(right)) :]]


def _knee(series: Series) -> int | str | None:
    maybe = series.shape.maybe
    return series.shape.knee if maybe is None else f"{maybe}?"


def _plateau(series: Series) -> int | str | None:
    maybe = series.shape.maybe_plateau
    return series.shape.plateau if maybe is None else f"{maybe}?"


def _law_parts(curve: Curve) -> Iterator[Part]:
    fitted = [(series, series.law) for series in curve.series if isinstance(series.law, Usl)]
    if fitted:
        laws = [law for _, law in fitted]
        held = any(None in (law.sigma.symmetric, law.kappa.symmetric) for law in laws)
        longest = max(laws, key=lambda law: len(law.copies)).copies
        yield (
            f"Universal Scalability Law over {', '.join(map(str, longest))} copies, fitted to "
            f"{laws[0].scale}. sigma: contention (serial share); kappa: coherency (cost of each "
            "pair of copies)" + ("; <: at or near its bound 0, upper limit (95 %)" if held else "")
        )
        columns = (
            Field(heading="", value=lambda it: it[0].name, form=TEXT, flexible=True),
            Field(heading="lambda", value=lambda it: format_number(it[1].rate.value), optional=2),
            Field(heading="sigma", value=lambda it: _value(it[1].sigma, 4)),
            Field(heading="+-", value=lambda it: _error(it[1].sigma)),
            Field(heading="kappa", value=lambda it: _value(it[1].kappa, 6)),
            Field(heading="+-", value=lambda it: _error(it[1].kappa)),
            Field(heading="misfit|RMS %", value=lambda it: it[1].rms, form=PERCENT),
            Field(
                heading="most|%",
                value=lambda it: max(it[1].residuals, key=abs),
                form=CHANGE,
                optional=1,
            ),
            Field(heading="peak", value=lambda it: _peak(it[1]), form=TEXT, flexible=True),
        )
        yield ViewTable(title="", rows=fitted, fields=columns)
    refused = group_by_key(
        (series.law.reason, series.name) for series in curve.series if isinstance(series.law, NoLaw)
    )
    for reason, names in refused.items():
        of_benchmarks = f" for {truncate_list(names, 6)}" if fitted or len(refused) > 1 else ""
        yield Line(f"Universal Scalability Law not fitted{of_benchmarks}: {reason}.", "dim")


def _value(coefficient: Coefficient, places: int) -> str:
    return "0" if coefficient.error is None else f"{coefficient.value:.{places}f}"


def _error(coefficient: Coefficient) -> str:
    """Return the standard error; near the bound 0 the upper limit (95 %) instead."""
    if coefficient.symmetric is not None:
        return f"{coefficient.symmetric:.1g}"
    return "held" if math.isinf(coefficient.high) else f"<{coefficient.high:.1g}"


def _peak(law: Usl) -> str:
    if law.bad:
        return "no: misfit"
    if law.peak is not None:
        between = "{:.0f}-{:.0f}".format(*law.peak_interval or ())
        return f"{law.peak:.0f} ({between}{', extrapolated' * law.extrapolated})"
    if law.none_before is not None:
        return f"none before {math.floor(law.none_before)}"
    return f"none up to {law.copies[-1]}"


def _noise(curve: Curve) -> Line | None:
    if not any(series.judged for series in curve.series):
        return None
    assumed = [series for series in curve.series if series.noise.degrees is None]
    if assumed:
        most = max(series.noise.sd for series in assumed)
        seen = f" (up to {percent(most, 0)} % where that was seen)" if most > ASSUMED_SD else ""
        return Line(
            f"Assumed run-to-run noise: {percent(ASSUMED_SD, 0)} %{seen} (too few repeats to "
            "measure it). More rounds confirm knees and falls.",
            "dim",
        )
    deviations = [benchmark.noise.sd for benchmark in curve.benchmarks]
    text = percent(deviations[0])
    if len(deviations) > 1:
        text = f"{percent(min(deviations))} to {percent(max(deviations))}"
    whole = all(benchmark.noise.in_rounds for benchmark in curve.benchmarks)
    rounds = " (after removing differences between rounds)" if whole else ""
    return Line(f"Run-to-run noise: {text} %{rounds}.", "dim")


def _smt(smt_yield: SmtYield) -> ViewTable:
    where = "all" if smt_yield.of_machine else "the same"
    title = (
        f"SMT: {smt_yield.threads} copies a core against one on {where} "
        f"{count(smt_yield.cores, 'core')} "
        f"({_runs(smt_yield.one_a_core)} and {_runs(smt_yield.all_threads)})"
    )
    full = f"{smt_yield.threads} a core|copies/h"
    return _changes(title, smt_yield.changes, "one a core|copies/h", full, "yield")


def _order_parts(pair: OrderComparison) -> Iterator[Part]:
    title = (
        f"Rotated against homogeneous with {pair.copies} copies ({_runs(pair.rotated)} against "
        f"{_runs(pair.homogeneous)})"
    )
    yield _changes(title, pair.times, "homogen.|copy s", "rotated|copy s", "time")
    if pair.work is not None:
        yield (
            f"A whole pass: {format_number(pair.work.after)} against "
            f"{format_number(pair.work.before)} reference "
            f"seconds per second, {signed_percent(pair.work.share)} %{_beyond(pair.work)}, with "
            "all waiting in it on both sides."
        )
    if pair.scores is not None:
        yield (
            f"Scores {format_number(pair.scores.after)} against {format_number(pair.scores.before)}"
            f"{_beyond(pair.scores)}: not of one kind, the rotated one is of the copies' own "
            "times, without waiting."
        )
    yield Line(
        "Median copy time next to other benchmarks (rotated order) instead of its own.", "dim"
    )


def _changes(
    title: str, changes: Sequence[Change], before: str, after: str, quantity: str
) -> ViewTable:
    columns = (
        Field(
            heading="",
            value=lambda change: change.benchmark or f"all ({len(changes) - 1})",
            form=TEXT,
            flexible=True,
        ),
        Field(heading=before, value=lambda change: format_number(change.before)),
        Field(heading=after, value=lambda change: format_number(change.after)),
        Field(heading=f"{quantity}|%", value=lambda change: change.share, form=CHANGE),
        Field(
            heading="",
            value=lambda change: "" if change.beyond_noise else "within noise",
            form=TEXT,
        ),
    )
    return ViewTable(
        title=title,
        rows=changes,
        fields=columns,
        style=lambda change: "" if change.benchmark else "bold",
    )


def _beyond(change: Change) -> str:
    return "" if change.beyond_noise else " (within the noise of runs)"


# -- What a curve says in words ----------------------------------------------------------------


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
        share: [place.copies for place in curve.places if place.share is share]
        for share in (Share.THREADS, Share.CPUS)
    }
    for share, shared_part in ((Share.THREADS, "cores"), (Share.CPUS, "CPUs")):
        if shared[share]:
            text += f"; {join_and([*map(str, shared[share])])} copies share {shared_part}"
    return f"{text}."


def limits(curve: Curve) -> Iterator[str]:
    """Say what all benchmarks come to together, and where that bends; each has a row of its own."""
    suites = [suite for suite in curve.suites if suite.name == "all"]
    for series in suites or (curve.benchmarks if len(curve.benchmarks) == 1 else ()):
        first, fair_point, shape = series.points[0], series.point_of(curve.fair), series.shape
        many = len(series.over)
        benchmarks = (
            series.name
            if not many
            else "Both benchmarks"
            if many == 2
            else f"All {many} benchmarks"
        )
        is_judged = fair_point is not None and not (fair_point.unjudged or first.unjudged)
        if fair_point is not None and fair_point is not first and is_judged:
            node = (
                ""
                if fair_point.per_lgroup is None
                else f" ({_factor(fair_point.per_lgroup)} of linear per NUMA node)"
            )
            verb = "do" if fair_point.copies > 1 else "does"
            yield (
                f"{benchmarks}: {copies_text(fair_point.copies)} {verb} "
                f"{_factor(fair_point.speedup)} times the work of {copies_text(first.copies)}, "
                f"{_factor(fair_point.efficiency)} of linear{node}."
            )
            benchmarks = "Together"
        low = min(
            (point for point in series.judged if shape.falls_at and point.copies >= shape.falls_at),
            key=lambda it: it.rate,
            default=None,
        )
        peak = max(series.judged or series.points, key=lambda it: it.rate)
        saturates = None if series.saturation is None else round(series.saturation.copies)
        bends = {
            "saturates at {}": saturates,
            "knee at {}: from there a copy more adds less than half of what the first gave": (
                shape.knee if shape.knee != shape.plateau else None
            ),
            "no gain beyond {}": shape.plateau,
            "no gain was seen beyond {}, but noise could hide one": shape.maybe_plateau,
            "perhaps a knee at {}; noise hides it, more rounds would tell": shape.maybe,
            "falls beyond {}": peak.copies if low else None,
        }
        words = [text.format(copies_text(it)) for text, it in bends.items() if it is not None]
        if low is not None:
            words[-1] += f", {signed_percent(low.rate / peak.rate - 1, 0)} % at {low.copies}"
        if words:
            yield f"{benchmarks}: {'; '.join(words)}."
    yield from _dip_texts(curve)


def fall_texts(curve: Curve) -> Iterator[str]:
    """Say in which runs later iterations are much slower than the first ones, the worst first."""
    falls = sorted(curve.falls, key=lambda fall: -fall.share)
    for fall in falls[:_MOST_FALLS]:
        is_base = fall.copies == curve.copies[0]
        where = f"run {fall.run} ({copies_text(fall.copies)})"
        yield (
            f"Within {where} the rate of {fall.benchmark} falls "
            f"by {percent(fall.share, 0)} % from iteration {fall.iteration} on"
            f"{', and speedups are against this point' if is_base else ''}: "
            f"`rater divots {fall.run}`"
        )
    if len(falls) > _MOST_FALLS:
        yield f"and {count(len(falls) - _MOST_FALLS, 'more fall')} within runs (--json has all)"


def _dip_texts(curve: Curve) -> Iterator[str]:
    """Say which points are slower than fewer and more copies, each once, by its worst series."""
    by_copies = group_by_key(
        (dip.copies, (series, dip)) for series in curve.series for dip in series.dips
    )
    for copies, found in sorted(by_copies.items()):
        series, dip = max(found, key=lambda it: (it[1].in_all, it[0].is_suite))
        names = [one.name for one, _ in found if not one.is_suite] or [series.name]
        points = [series.point_of(number) for number in (copies, dip.fewer, dip.more)]
        rates = [point.rate for point in points if point is not None]
        shown = format_together(rates)
        verb_phrase = f"do {shown[0]} {series.unit}"
        if not dip.in_all:
            shown = [_factor(point.efficiency) for point in points if point is not None]
            verb_phrase = f"reach {shown[0]} of linear"
        runs = points[0].runs[:_MOST_HINTED] if points[0] is not None else ()
        yield (
            f"A sick point: {copies_text(copies)} of {truncate_list(names)} {verb_phrase}, less "
            f"than {dip.fewer} ({shown[1]}) and {dip.more} ({shown[2]}); "
            f"`rater divots {' '.join(map(str, runs))}` may show what was slow."
        )
