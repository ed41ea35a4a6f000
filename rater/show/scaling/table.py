"""Throughput against copies on a terminal: what limits, tables, the law, SMT, rotated order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rater.analysis.conditions.conditions import ConditionDifference
from rater.analysis.results.cpus_used import Share
from rater.analysis.scaling.curve import Curve, Scaling, Series
from rater.analysis.scaling.pairs import Change, Orders, SmtYield
from rater.analysis.stats.knee import LEAST_POINTS
from rater.analysis.stats.noise import ASSUMED_SD
from rater.analysis.stats.usl import Coefficient, Refused, Usl
from rater.show.console.format import decimals, figures, number
from rater.show.console.printer import Printer
from rater.show.console.table import Column
from rater.show.scaling.sentences import law_text, limits, machine_text, share_text
from rater.text.cpuset import format_list
from rater.text.words import count, some

_MOST_RUNS = 8


def print_scaling(
    scaling: Scaling,
    smt: Sequence[SmtYield],
    rotated: Sequence[Orders],
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
    told = [*(str(one) for one in scaling.alone if not paired.issuperset(one.runs)), *missing]
    printer.some(told, "yellow")
    for place, curve in enumerate(scaling.curves):
        if place or len(scaling.curves) > 1 or told:
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
    rates = figures([at.rate if at else None for at in points])
    printer.table(
        [
            Column(("curve", ""), [curve.name for curve, _ in rows], right=False, flexible=True),
            Column(("of", ""), [_title(one) for _, one in rows], right=False),
            Column(("with", "copies"), [str(curve.fair) for curve, _ in rows]),
            Column((_unit(rows[0][1]), ""), rates),
            Column(("speedup", ""), [_share(at.speedup if at else None) for at in points]),
            Column(("of", "linear"), [_share(at.efficiency if at else None) for at in points]),
            Column(("knee", ""), [_knee(one) for _, one in rows]),
            Column(("no gain", "beyond"), [_place(one.shape.plateau) for _, one in rows]),
        ]
    )


def _title(series: Series) -> str:
    return f"{series.name} ({len(series.over)})" if series.is_suite else series.name


def _print_curve(curve: Curve, printer: Printer, *, named: bool) -> None:
    told = dict(curve.conditions)
    what = f"{told.get('suite', '-')} ({', '.join(told[n] for n in ('size', 'tune') if n in told)})"
    printer.prose(
        f"{curve.name + ': ' if named else ''}{what.replace(' ()', '')} on "
        f"{told.get('host', 'a host not named')}, {told.get('mode', '-')}: "
        f"{', '.join(map(str, curve.copies[:-1]))} and {curve.copies[-1]} copies, "
        f"{_runs(curve.runs)}",
        "bold",
    )
    printer.some((_difference_text(*it) for it in curve.differences if it[0].significant), "yellow")
    printer.some(curve.lacking, "yellow")
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
        printer.prose(f"Not the same in all of these runs, but of no weight: {some(notes)}.", "dim")


def _runs(numbers: Sequence[int]) -> str:
    told = format_list(numbers).split(",")
    return f"run{'s' if len(numbers) > 1 else ''} {some(told, _MOST_RUNS)}"


def _difference_text(difference: ConditionDifference, runs: Sequence[int]) -> str:
    return f"{_runs(runs)}: {difference}"


def _print_points(curve: Curve, series: Series, printer: Printer) -> None:
    """Print the points of all together, or of a single benchmark."""
    points = series.points
    places = decimals([one.rate for one in points])
    ranges = [
        f"{number(min(one.rates), places)}-{number(max(one.rates), places)}"
        if len(one.rates) > 1
        else "-"
        for one in points
    ]
    by_lgroup = any(one.per_lgroup is not None for one in points)
    several = any(len(one.runs) > 1 for one in points)
    title = _title(series)
    columns = [
        Column((title, "copies"), [str(one.copies) for one in points]),
        Column(("each", "has"), [share_text(curve.place(one.copies)) for one in points]),
        Column((_unit(series), ""), [number(one.rate, places) for one in points]),
        Column(("runs", ""), [str(len(one.runs)) for one in points], optional=3),
        Column(("lowest-", "highest"), ranges, optional=2),
        Column(("speedup", ""), [f"{one.speedup:.2f}" for one in points]),
        Column(("of", "linear"), [f"{one.efficiency:.2f}" for one in points]),
        Column(("of linear", "per lgroup"), [_share(one.per_lgroup) for one in points]),
        Column(("a copy", "more adds"), [_share(one.gain) for one in points], optional=1),
    ]
    columns = [
        column
        for column in columns
        if (by_lgroup or column.heading[1] != "per lgroup")
        and (several or column.heading[0] not in ("runs", "lowest-"))
    ]
    styles = ["" if curve.place(one.copies).share is not Share.CPUS else "dim" for one in points]
    printer.table(columns, styles)


def _unit(series: Series) -> str:
    return "ratio" if series.unit == "ratio" else "/hour"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:.2f}"


def _print_series(curve: Curve, printer: Printer) -> None:
    """Print efficiency by copies for each suite and benchmark, with knee and plateau."""
    rows = curve.series
    fair = curve.fair
    base = curve.copies[0]
    columns = [
        Column(
            ("of linear", "copies"),
            [_title(one) for one in rows],
            right=False,
            flexible=True,
        ),
        Column(
            (_unit(rows[0]), str(base)),
            [number(at.rate if (at := one.at(base)) else None) for one in rows],
            optional=len(curve.copies) + 1,
        ),
    ]
    # Of many numbers of copies those in the middle give way first, the last and the last fair
    # one never.
    middle = [copies for copies in curve.copies[1:-1] if copies != fair]
    order = {copies: place for place, copies in enumerate(_by_halves(middle), 1)}
    columns += [
        Column(
            ("", str(copies)),
            [_share(at.efficiency if (at := one.at(copies)) else None) for one in rows],
            optional=order.get(copies, 0),
        )
        for copies in curve.copies[1:]
    ]
    if len(curve.copies) >= LEAST_POINTS:
        columns += [
            Column(("knee", ""), [_knee(one) for one in rows]),
            Column(("no gain", "beyond"), [_place(one.shape.plateau) for one in rows]),
            Column(("falls", "at"), [_place(one.shape.falls_at) for one in rows]),
        ]
        if not any(one.shape.falls_at is not None for one in rows):
            columns.pop()
    printer.table(columns, ["bold" if one.is_suite else "" for one in rows])
    lone = [one for one in rows if one.points[0].copies != base]
    told = [f"{one.name} ({one.points[0].copies})" for one in lone]
    what = "one copy" if base == 1 else f"{base} copies, the fewest"
    also = f"; of some against other numbers: {some(told)}" if told else ""
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


def _knee(series: Series) -> str:
    maybe = series.shape.maybe
    return _place(series.shape.knee) if maybe is None else f"{maybe}?"


def _place(copies: int | None) -> str:
    return "-" if copies is None else str(copies)


def _print_laws(curve: Curve, printer: Printer) -> None:
    fitted = [(one, one.law) for one in curve.series if isinstance(one.law, Usl)]
    refused: dict[str, list[str]] = {}
    for one in curve.series:
        if isinstance(one.law, Refused):
            refused.setdefault(one.law.reason, []).append(one.name)
    printer.line()
    if len(fitted) == 1 and len(curve.series) == 1:
        one, law = fitted[0]
        printer.prose(f"Universal Scalability Law: {law_text(law, one.unit)}.")
        return
    if fitted:
        laws = [law for _, law in fitted]
        held = any(None in (law.sigma.error, law.kappa.error) for law in laws)
        longest = max(laws, key=lambda law: len(law.copies)).copies
        printer.prose(
            "Universal Scalability Law over "
            f"{', '.join(map(str, longest))} copies: sigma is "
            "what copies wait for, kappa what each costs each other"
            + ("; 0: held there, below the bound beside it by 95 %" if held else "")
        )
        printer.table(
            [
                Column(("", ""), [one.name for one, _ in fitted], right=False, flexible=True),
                Column(("lambda", ""), [number(law.rate.value) for law in laws], optional=2),
                Column(("sigma", ""), [_value(law.sigma, 4) for law in laws]),
                Column(("+-", ""), [_error(law.sigma) for law in laws]),
                Column(("kappa", ""), [_value(law.kappa, 6) for law in laws]),
                Column(("+-", ""), [_error(law.kappa) for law in laws]),
                Column(("misfit", "RMS %"), [f"{law.rms * 100:.1f}" for law in laws]),
                Column(
                    ("most", "%"),
                    [f"{max(law.residuals, key=abs) * 100:+.1f}" for law in laws],
                    optional=1,
                ),
                Column(("peak", ""), [_peak(law) for law in laws], right=False, flexible=True),
            ]
        )
    for reason, names in refused.items():
        whose = f" for {some(names, 6)}" if fitted or len(refused) > 1 else ""
        printer.prose(f"Universal Scalability Law not fitted{whose}: {reason}.", "dim")


def _value(one: Coefficient, places: int) -> str:
    return "0" if one.error is None else f"{one.value:.{places}f}"


def _error(one: Coefficient) -> str:
    """Return the standard error, of one held at 0 what it is below (95 %)."""
    if one.error is not None:
        return f"{one.error:.1g}"
    return "held" if math.isinf(one.high) else f"<{one.high:.1g}"


def _peak(law: Usl) -> str:
    if law.bad:
        return "no: misfit"
    if law.peak is not None:
        return f"{law.peak:.0f}{' (extrapolated)' if law.extrapolated else ''}"
    if law.none_before is not None:
        return f"none before {math.floor(law.none_before)}"
    return "not told"


def _print_noise(curve: Curve, printer: Printer) -> None:
    assumed = [one for one in curve.series if one.noise.degrees is None]
    if assumed:
        most = max(one.noise.sd for one in assumed)
        seen = f" (up to {most * 100:.0f} % where that was seen)" if most > ASSUMED_SD else ""
        printer.prose(
            f"Noise of a run is taken to be {ASSUMED_SD * 100:.0f} %{seen}: too few runs with the "
            "same copies to know it. More rounds make knees and falls surer.",
            "dim",
        )
        return
    known = [one.noise.sd * 100 for one in curve.benchmarks]
    told = f"{min(known):.1f} to {max(known):.1f}" if len(known) > 1 else f"{known[0]:.1f}"
    rounds = ", without what whole rounds have in common" if _in_rounds(curve) else ""
    printer.prose(f"Noise of a run, from runs with the same copies: {told} %{rounds}.", "dim")


def _in_rounds(curve: Curve) -> bool:
    return all(one.noise.in_rounds for one in curve.benchmarks)


def _print_smt(one: SmtYield, printer: Printer) -> None:
    where = "all" if one.of_machine else "the same"
    printer.prose(
        f"SMT: {one.threads} copies a core against one on {where} {count(one.cores, 'core')} "
        f"({_runs(one.one_a_core)} and {_runs(one.all_threads)})",
        "bold",
    )
    _print_changes(
        one.changes,
        ("one a core", "copies/h"),
        (f"{one.threads} a core", "copies/h"),
        "yield",
        printer,
    )


def _print_orders(pair: Orders, printer: Printer) -> None:
    printer.prose(
        f"Rotated against homogeneous with {pair.copies} copies ({_runs(pair.rotated)} against "
        f"{_runs(pair.homogeneous)})",
        "bold",
    )
    if pair.work is not None:
        printer.prose(
            f"A whole pass: {number(pair.work.after)} against {number(pair.work.before)} reference "
            f"seconds per second, {_signed(pair.work)} %{_beyond(pair.work)}, with all waiting in "
            "it on both sides."
        )
    if pair.scores is not None:
        printer.prose(
            f"Scores {number(pair.scores.after)} against {number(pair.scores.before)}"
            f"{_beyond(pair.scores)}: not of one kind, the rotated one is of the copies' own "
            "times, without waiting."
        )
    _print_changes(pair.times, ("homogen.", "copy s"), ("rotated", "copy s"), "time", printer)
    printer.prose("What a copy takes (median) beside other benchmarks than its own.", "dim")


def _print_changes(
    changes: Sequence[Change],
    before: tuple[str, str],
    after: tuple[str, str],
    what: str,
    printer: Printer,
) -> None:
    printer.table(
        [
            Column(
                ("", ""),
                [one.benchmark or f"all ({len(changes) - 1})" for one in changes],
                right=False,
                flexible=True,
            ),
            Column(before, [number(one.before) for one in changes]),
            Column(after, [number(one.after) for one in changes]),
            Column((what, "%"), [_signed(one) for one in changes]),
            Column(
                ("", ""),
                ["" if one.beyond_noise else "within noise" for one in changes],
                right=False,
            ),
        ],
        ["bold" if one.benchmark is None else "" for one in changes],
    )


def _beyond(one: Change) -> str:
    return "" if one.beyond_noise else " (within the noise of runs)"


def _signed(one: Change) -> str:
    return f"{round(one.share * 100, 1) + 0.0:+.1f}"
