"""Throughput against copies on a terminal: what limits, tables, the law, SMT, rotated order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rater.analysis.compare.conditions import ConditionDifference
from rater.analysis.compare.differences import taken_runs
from rater.analysis.compare.scaling import Curve, Scaling, Series
from rater.analysis.compare.scaling_samples import Change, OrderComparison, SmtYield
from rater.analysis.results.copies import Share
from rater.analysis.results.disturbed import mostly_disturbed
from rater.analysis.stats.curves import LEAST_POINTS, Coefficient, NoLaw, Usl
from rater.analysis.stats.intervals import ASSUMED_SD
from rater.show.compare.comparison import rate_heading
from rater.show.compare.differences import trouble_parts
from rater.show.compare.scaling_words import law_text, limits, machine_text, share_text
from rater.show.console import Column, Columns, Printer
from rater.show.document import print_parts
from rater.show.format import format_number, format_together, needed_decimals
from rater.text.cpuset import format_list
from rater.text.values import copies_text, count, percent, signed_percent, truncate_list

_MOST_RUNS = 8


def print_scaling(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[OrderComparison],
    printer: Printer,
    *,
    missing: Sequence[str] = (),
) -> None:
    """Print everything; `missing`: points of a sweep that have no run, in words."""
    if len(scaling.curves) > 1:
        printer.prose(
            f"{len(scaling.curves)} curves: these runs differ in more than their copies", "bold"
        )
        _print_overview(scaling.curves, printer)
    paired = {
        run
        for runs in (
            *(one.one_a_core + one.all_threads for one in smt),
            *(pair.homogeneous + pair.rotated for pair in rotated),
        )
        for run in runs
    }
    lines = [*(str(one) for one in scaling.alone if not paired.issuperset(one.runs)), *missing]
    printer.some(lines, "yellow")
    for place, curve in enumerate(scaling.curves):
        if place or len(scaling.curves) > 1 or lines:
            printer.line()
        _print_curve(curve, printer, named=len(scaling.curves) > 1)
    for one in smt:
        printer.line()
        _print_smt(one, printer)
    for pair in rotated:
        printer.line()
        _print_orders(pair, printer)


def _print_overview(curves: Sequence[Curve], printer: Printer) -> None:
    """Print what all curves come to, a line each, at the copies that speedups are told at."""
    rows = [(curve, one) for curve in curves for one in (curve.suites or curve.benchmarks)[:1]]
    points = [one.at(curve.fair) for curve, one in rows]
    of, of_point = Columns(rows), Columns(points)
    rates = [at.rate if at else None for at in points]
    printer.table(
        [
            of.left("curve", lambda row: row[0].name, flexible=True),
            of.left("of", lambda row: _title(row[1])),
            of.right("with|copies", lambda row: row[0].fair),
            Column(rate_heading(rows[0][1].unit), format_together(rates)),
            of_point.right("speedup", lambda at: _factor(at.speedup)),
            of_point.right("of|linear", lambda at: _factor(at.efficiency)),
            of.right("knee", lambda row: _knee(row[1])),
            of.right("no gain|beyond", lambda row: row[1].shape.plateau),
        ]
    )


def _title(series: Series) -> str:
    return f"{series.name} ({len(series.over)})" if series.is_suite else series.name


def _print_curve(curve: Curve, printer: Printer, *, named: bool) -> None:
    conditions = dict(curve.conditions)
    known = ", ".join(conditions[name] for name in ("size", "tune") if name in conditions)
    what = f"{conditions.get('suite', '-')} ({known})"
    printer.prose(
        f"{curve.name + ': ' if named else ''}{what.replace(' ()', '')} on "
        f"{conditions.get('host', 'a host not named')}, {conditions.get('mode', '-')}: "
        f"{', '.join(map(str, curve.copies[:-1]))} and {curve.copies[-1]} copies, "
        f"{_runs(curve.runs)}",
        "bold",
    )
    printer.some((_difference_text(*it) for it in curve.differences if it[0].significant), "yellow")
    printer.some(curve.lacking, "yellow")
    taken = taken_runs(curve.troubles)
    for point in (curve.suites or curve.benchmarks)[0].points:
        if why := mostly_disturbed([run in taken for run in point.runs]):
            printer.prose(f"{copies_text(point.copies)}: cannot tell: {why}", "bold yellow")
    print_parts(trouble_parts(curve.troubles), printer)
    machine = machine_text(curve)
    if machine:
        printer.prose(machine)
    for text in limits(curve):
        printer.prose(text)
    for one in curve.suites[:1] or curve.benchmarks[:1]:
        printer.line()
        _print_points(curve, one, printer)
    if len(curve.series) > 1:
        printer.line()
        _print_series(curve, printer)
    _print_laws(curve, printer)
    _print_noise(curve, printer)
    notes = [_difference_text(*it) for it in curve.differences if not it[0].significant]
    if notes:
        printer.prose(
            f"Not the same in all of these runs, but of no weight: {truncate_list(notes)}.", "dim"
        )


def _runs(numbers: Sequence[int]) -> str:
    ranges = format_list(numbers).split(",")
    return f"run{'s' if len(numbers) > 1 else ''} {truncate_list(ranges, _MOST_RUNS)}"


def _difference_text(difference: ConditionDifference, runs: Sequence[int]) -> str:
    return f"{_runs(runs)}: {difference}"


def _print_points(curve: Curve, series: Series, printer: Printer) -> None:
    """Print the points of all together, or of a single benchmark."""
    points = series.points
    places = needed_decimals([one.rate for one in points])
    of = Columns(points)
    several = any(len(one.runs) > 1 for one in points)
    columns = [
        of.right((_title(series), "copies"), lambda one: one.copies),
        of.right("each|has", lambda one: share_text(curve.place(one.copies))),
        of.numbers(rate_heading(series.unit), lambda one: one.rate, places),
    ]
    if several:
        columns += [
            of.right("runs", lambda one: len(one.runs), optional=3),
            of.right("lowest-|highest", lambda one: _range(one.rates, places), optional=2),
        ]
    columns += [
        of.numbers("speedup", lambda one: one.speedup, 2),
        of.numbers("of|linear", lambda one: one.efficiency, 2),
    ]
    if any(one.per_lgroup is not None for one in points):
        columns.append(of.right("of linear|per lgroup", lambda one: _factor(one.per_lgroup)))
    if any(one.joules_per_copy is not None for one in points):
        columns.append(of.numbers("J|/copy", lambda one: one.joules_per_copy))
    columns.append(of.right("a copy|more adds", lambda one: _factor(one.gain), optional=1))
    styles = ["" if curve.place(one.copies).share is not Share.CPUS else "dim" for one in points]
    printer.table(columns, styles)


def _factor(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:.2f}"


def _range(rates: Sequence[float], places: int) -> str:
    if len(rates) < 2:
        return "-"
    return f"{format_number(min(rates), places)}-{format_number(max(rates), places)}"


def _print_series(curve: Curve, printer: Printer) -> None:
    """Print efficiency by copies for each suite and benchmark, with knee and plateau."""
    rows = curve.series
    fair = curve.fair
    base = curve.copies[0]
    of = Columns(rows)
    columns = [
        of.left("of linear|copies", _title, flexible=True),
        of.right(
            (rate_heading(rows[0].unit).replace("|/", "/").replace("|", " "), str(base)),
            lambda one: format_number(at.rate if (at := one.at(base)) else None),
            optional=len(curve.copies) + 1,
        ),
    ]
    # Of many numbers of copies those in the middle give way first, the last and the last fair
    # one never.
    middle = [copies for copies in curve.copies[1:-1] if copies != fair]
    order = {copies: place for place, copies in enumerate(_by_halves(middle), 1)}
    for copies in curve.copies[1:]:
        of_point = Columns([one.at(copies) for one in rows])
        columns.append(
            of_point.right(
                ("", str(copies)), lambda at: _factor(at.efficiency), optional=order.get(copies, 0)
            )
        )
    if len(curve.copies) >= LEAST_POINTS:
        columns += [
            of.right("knee", _knee),
            of.right("no gain|beyond", lambda one: one.shape.plateau),
        ]
        if any(one.shape.falls_at is not None for one in rows):
            columns.append(of.right("falls|at", lambda one: one.shape.falls_at))
    printer.table(columns, ["bold" if one.is_suite else "" for one in rows])
    lone = [one for one in rows if one.points[0].copies != base]
    lines = [f"{one.name} ({one.points[0].copies})" for one in lone]
    what = "one copy" if base == 1 else f"{base} copies, the fewest"
    also = f"; of some against other numbers: {truncate_list(lines)}" if lines else ""
    hidden = any(one.shape.maybe is not None for one in rows)
    mark = " ?: within noise." if hidden else ""
    printer.prose(f"1.00: each copy as fast as those of {what}{also}.{mark}", "dim")


def _by_halves(numbers: Sequence[int]) -> list[int]:
    """Return numbers so that what is left after any cut lies evenly: the middle one first."""
    if not numbers:
        return []
    middle = len(numbers) // 2
    left, right = _by_halves(numbers[:middle]), _by_halves(numbers[middle + 1 :])
    mixed = [one for pair in zip(left, right, strict=False) for one in pair]
    longer = left if len(left) > len(right) else right
    return [numbers[middle], *mixed, *longer[min(len(left), len(right)) :]]


def _knee(series: Series) -> int | str | None:
    maybe = series.shape.maybe
    return series.shape.knee if maybe is None else f"{maybe}?"


def _print_laws(curve: Curve, printer: Printer) -> None:
    fitted = [(one, one.law) for one in curve.series if isinstance(one.law, Usl)]
    refused: dict[str, list[str]] = {}
    for one in curve.series:
        if isinstance(one.law, NoLaw):
            refused.setdefault(one.law.reason, []).append(one.name)
    printer.line()
    if len(fitted) == 1 and len(curve.series) == 1:
        one, law = fitted[0]
        printer.prose(f"Universal Scalability Law: {law_text(law, one.unit)}.")
        return
    if fitted:
        laws = [law for _, law in fitted]
        held = any(None in (law.sigma.symmetric, law.kappa.symmetric) for law in laws)
        longest = max(laws, key=lambda law: len(law.copies)).copies
        printer.prose(
            "Universal Scalability Law over "
            f"{', '.join(map(str, longest))} copies, fitted to {laws[0].scale}: sigma is "
            "what copies wait for, kappa what each costs each other"
            + ("; <: of one at or near its bound 0, what it is below by 95 %" if held else "")
        )
        of = Columns(laws)
        printer.table(
            [
                Column("", [one.name for one, _ in fitted], right=False, flexible=True),
                of.right("lambda", lambda law: format_number(law.rate.value), optional=2),
                of.right("sigma", lambda law: _value(law.sigma, 4)),
                of.right("+-", lambda law: _error(law.sigma)),
                of.right("kappa", lambda law: _value(law.kappa, 6)),
                of.right("+-", lambda law: _error(law.kappa)),
                of.percent("misfit|RMS %", lambda law: law.rms),
                of.change("most|%", lambda law: max(law.residuals, key=abs), optional=1),
                of.left("peak", _peak, flexible=True),
            ]
        )
    for reason, names in refused.items():
        whose = f" for {truncate_list(names, 6)}" if fitted or len(refused) > 1 else ""
        printer.prose(f"Universal Scalability Law not fitted{whose}: {reason}.", "dim")


def _value(one: Coefficient, places: int) -> str:
    return "0" if one.error is None else f"{one.value:.{places}f}"


def _error(one: Coefficient) -> str:
    """Return the standard error, of one at or near its bound 0 what it is below (95 %)."""
    if one.symmetric is not None:
        return f"{one.symmetric:.1g}"
    return "held" if math.isinf(one.high) else f"<{one.high:.1g}"


def _peak(law: Usl) -> str:
    if law.bad:
        return "no: misfit"
    if law.peak is not None:
        between = "{:.0f}-{:.0f}".format(*law.peak_interval or ())
        return f"{law.peak:.0f} ({between}{', extrapolated' * law.extrapolated})"
    if law.none_before is not None:
        return f"none before {math.floor(law.none_before)}"
    return f"none up to {law.copies[-1]}"


def _print_noise(curve: Curve, printer: Printer) -> None:
    assumed = [one for one in curve.series if one.noise.degrees is None]
    if assumed:
        most = max(one.noise.sd for one in assumed)
        seen = f" (up to {percent(most, 0)} % where that was seen)" if most > ASSUMED_SD else ""
        printer.prose(
            f"Noise of a run is taken to be {percent(ASSUMED_SD, 0)} %{seen}: too few runs "
            "with the same copies to know it. More rounds make knees and falls surer.",
            "dim",
        )
        return
    known = [one.noise.sd for one in curve.benchmarks]
    text = percent(known[0])
    if len(known) > 1:
        text = f"{percent(min(known))} to {percent(max(known))}"
    whole = all(one.noise.in_rounds for one in curve.benchmarks)
    rounds = ", without what whole rounds have in common" if whole else ""
    printer.prose(f"Noise of a run, from runs with the same copies: {text} %{rounds}.", "dim")


def _print_smt(one: SmtYield, printer: Printer) -> None:
    where = "all" if one.of_machine else "the same"
    printer.prose(
        f"SMT: {one.threads} copies a core against one on {where} {count(one.cores, 'core')} "
        f"({_runs(one.one_a_core)} and {_runs(one.all_threads)})",
        "bold",
    )
    full = f"{one.threads} a core|copies/h"
    _print_changes(one.changes, "one a core|copies/h", full, "yield", printer)


def _print_orders(pair: OrderComparison, printer: Printer) -> None:
    printer.prose(
        f"Rotated against homogeneous with {pair.copies} copies ({_runs(pair.rotated)} against "
        f"{_runs(pair.homogeneous)})",
        "bold",
    )
    if pair.work is not None:
        printer.prose(
            f"A whole pass: {format_number(pair.work.after)} against "
            f"{format_number(pair.work.before)} reference "
            f"seconds per second, {signed_percent(pair.work.share)} %{_beyond(pair.work)}, with "
            "all waiting in it on both sides."
        )
    if pair.scores is not None:
        printer.prose(
            f"Scores {format_number(pair.scores.after)} against {format_number(pair.scores.before)}"
            f"{_beyond(pair.scores)}: not of one kind, the rotated one is of the copies' own "
            "times, without waiting."
        )
    _print_changes(pair.times, "homogen.|copy s", "rotated|copy s", "time", printer)
    printer.prose("What a copy takes (median) beside other benchmarks than its own.", "dim")


def _print_changes(
    changes: Sequence[Change], before: str, after: str, what: str, printer: Printer
) -> None:
    of = Columns(changes)
    printer.table(
        [
            of.left("", lambda one: one.benchmark or f"all ({len(changes) - 1})", flexible=True),
            of.right(before, lambda one: format_number(one.before)),
            of.right(after, lambda one: format_number(one.after)),
            of.change(f"{what}|%", lambda one: one.share),
            of.left("", lambda one: "" if one.beyond_noise else "within noise"),
        ],
        ["bold" if one.benchmark is None else "" for one in changes],
    )


def _beyond(one: Change) -> str:
    return "" if one.beyond_noise else " (within the noise of runs)"
