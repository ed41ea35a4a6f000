"""Points compared with a baseline, and a steady run with one of a barrier; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.differences import (
    DisturbedRun,
    disturbance_of,
    doctor_differences,
    is_trouble,
    point_differences,
)
from rater.analysis.compare.model import Comparison, EffectRow, MetricRows, Side, in_order
from rater.analysis.compare.rows import (
    Grid,
    RowMaker,
    Stratum,
    in_pairs,
    kinds,
    mixed,
    p_of,
    rounds_evidence,
    with_holm,
)
from rater.analysis.results.copies import Point, without_repeats
from rater.analysis.results.disturbed import is_too_disturbed
from rater.analysis.results.measure import (
    MetricMeasure,
    find_measure,
    measures_of,
    varying_counts,
    with_measure,
)
from rater.analysis.results.rates import (
    Key,
    RunRates,
    run_rates,
    same_keys,
    with_cpu_times,
    with_shared_steps,
)
from rater.analysis.results.score import PAGE_PROOFS
from rater.analysis.stats.intervals import confidence_per_look
from rater.record.stored import StoredRun
from rater.system.errors import InputError
from rater.text.values import group_by_key, runs_text, truncate_list

# A point's rate over the baseline's is the *speedup*: 1.08 is 8 % more copies an hour.
# Times stand to each other the other way round, T = copies / rate, hence
#
# - improvement = (T_baseline - T) / T x 100 % = (speedup - 1) x 100 %,
# - reduction (of the time) = (T_baseline - T) / T_baseline x 100 % = (1 - 1 / speedup) x 100 %,
#
# two numbers that studies of page sizes give and that are easily taken for each other: a
# speedup of 2 is an improvement of 100 % and a reduction of 50 %.
#
# The suite's speedup is the geometric mean over benchmarks, taken in each run before
# runs are compared, so that its interval knows how benchmarks of a run vary together.

MARGIN = 0.01
_KINDS = (("all", None), ("int", "int"), ("fp", "fp"))


def compare(
    points: Sequence[Point],
    *,
    margin: float = MARGIN,
    by: str | None = None,
    baseline: str | None = None,
    looks: int = 1,
    by_cpu: bool = False,
    by_metric: str | None = None,
) -> Comparison:
    """Compare points with the first of them, or with `baseline`.

    `margin`: what `same` means, 0.01 for 1 %; `by`: the axis that is compared, the values of
    the others held; `baseline`: a label, or `axis=value`; `looks`: see `is_decided`; `by_cpu`:
    by CPU time, else by that only where others disturbed most runs of a point. `by_metric`: the
    number that programs report which judges in place of their times; without it `metrics` of what
    is returned has the rows of all that there are.
    Raises `InputError` where there is nothing to compare, or no such axis, baseline or metric.
    """
    runs = _runs_of(points)
    measure = None if by_metric is None else find_measure(by_metric, runs)
    points, repeats = _distinct(points)
    sides = _sides(points, by, baseline)
    judged_runs = _judged_runs(sides, by_cpu=by_cpu and measure is None)

    def rows_by(measure: MetricMeasure | None) -> _Rows:
        return _make_rows(
            sides,
            judged_runs,
            by=by,
            margin=margin,
            looks=looks,
            by_cpu=by_cpu and measure is None,
            measure=measure,
        )

    comparison = _comparison(
        sides, judged_runs, rows_by(measure), repeats=repeats, by=by, margin=margin, looks=looks
    )
    if measure is not None:
        return comparison
    rows_by_measure = {other: rows_by(other) for other in measures_of(runs)}
    metrics = tuple(
        MetricRows(measure=other, rows=(*rows.benchmarks, *rows.suites[:1]))
        for other, rows in rows_by_measure.items()
        if any(cell.speedup for row in rows.benchmarks for cell in row.cells)
    )
    return replace(comparison, metrics=metrics)


class _JudgedRun(Struct, frozen=True):
    """What a run says by the time of its copies, and what disturbed it."""

    run: StoredRun
    rates: RunRates
    trouble: DisturbedRun
    cpu_rates: RunRates | None  # with CPU times, if it was known that these would be needed


class _Rows(Struct, frozen=True, kw_only=True):
    """The rows of a comparison by one measure, with all that they are made from."""

    measure: MetricMeasure | None  # None: the time of copies
    measured: dict[int, RunRates]
    keys: list[Key]
    where: _Where
    grid: Grid
    benchmarks: tuple[EffectRow, ...]
    suites: tuple[EffectRow, ...]
    left_out: tuple[str, ...]  # of benchmarks and of suites, in words
    partly: tuple[str, ...]
    confidence: float


def _make_rows(
    sides: Sequence[Side],
    judged_runs: Sequence[_JudgedRun],
    *,
    by: str | None,
    margin: float,
    looks: int,
    by_cpu: bool,
    measure: MetricMeasure | None,
) -> _Rows:
    """Return the rows by the time of copies, or by a metric as the measure."""
    measured = _measured(sides, judged_runs, by_cpu=by_cpu, measure=measure)
    where, grid = _grid(sides, by, measured)
    keys = _measured_keys(measured.values())
    row_maker = _row_maker(
        margin, looks, _evidence_by_side(grid, keys, measure), by_cpu=by_cpu, measure=measure
    )
    lines: list[str] = []
    rows = [row_maker.benchmark(key, _having([key], grid, where, key[0], lines)) for key in keys]
    suites, partly = _suites(row_maker, keys, grid, where)
    return _Rows(
        measure=measure,
        measured=measured,
        keys=keys,
        where=where,
        grid=grid,
        benchmarks=tuple(with_holm(rows, row_maker.confidence)),
        suites=tuple(with_holm(suites, row_maker.confidence)),
        left_out=tuple(dict.fromkeys(lines)),
        partly=tuple(partly),
        confidence=row_maker.confidence,
    )


def _comparison(
    sides: tuple[Side, ...],
    judged_runs: Sequence[_JudgedRun],
    rows: _Rows,
    *,
    repeats: Mapping[int, int],
    by: str | None,
    margin: float,
    looks: int,
) -> Comparison:
    """Return rows with all that stands beside them: what differs, is left out, was disturbed."""
    measure, measured, keys, grid = rows.measure, rows.measured, rows.keys, rows.grid
    strata = [(at[0], side) for at in grid for side in at[1:]]
    differences = point_differences(_points_of(sides))
    is_disturbable = measure is None or measure.is_disturbable
    troubles = [judged.trouble for judged in judged_runs] if is_disturbable else []
    return Comparison(
        sides=sides,
        by=by,
        differences=differences,
        copies=tuple(sorted({run.copies for run in measured.values()})),
        mixed_copies=any(mixed(stratum) for stratum in strata),
        kinds=_runs_by_kind(measured.values()),
        mixed_kinds=any(len(kinds(stratum)) > 1 for stratum in strata),
        benchmarks=rows.benchmarks,
        suites=rows.suites,
        left_out=(
            *_repeated_runs(repeats),
            *_excluded(measured.values(), sides, by, keys, grid),
            *rows.left_out,
            *_not_in_pairs(strata),
            *rows.partly,
            *varying_counts(measure, {side.label: _runs_of(side.points) for side in sides}),
        ),
        lost=tuple(_lost(keys, grid, rows.where)),
        margin=margin,
        confidence=rows.confidence,
        looks=looks,
        compared=sum(p_of(cell) is not None for row in rows.benchmarks for cell in row.cells),
        troubles=tuple(filter(is_trouble, troubles)),
        doctor=doctor_differences(_points_of(sides), differences),
        pages=_page_warnings(sides),
        measure=measure,
    )


def _runs_of(points: Sequence[Point]) -> list[StoredRun]:
    return [point_run.run for point in points for point_run in point.runs]


def _distinct(points: Sequence[Point]) -> tuple[Sequence[Point], Mapping[int, int]]:
    """Return points without runs that are others under another uuid, and which those are."""
    kept, repeats = without_repeats(points)
    if len(kept) < 2 <= len(points):
        raise InputError(f"nothing to compare: {'; '.join(_repeated_runs(repeats))}")
    return kept, repeats


def _repeated_runs(repeats: Mapping[int, int]) -> Iterator[str]:
    """Name the runs that are another one under another uuid."""
    for number, others in group_by_key((first, other) for other, first in repeats.items()).items():
        same = f"the same host, start and times as run {number}"
        yield f"{runs_text(others, 8)}: {same}: counted once"


def _row_maker(
    margin: float,
    looks: int,
    evidence: Sequence[float | None],
    *,
    by_cpu: bool,
    measure: MetricMeasure | None,
) -> RowMaker:
    return RowMaker(
        margin=margin,
        confidence=confidence_per_look(looks),
        next_confidence=confidence_per_look(looks + 1),
        evidence=evidence,
        by_cpu=by_cpu,
        measure=measure,
    )


def _evidence_by_side(
    grid: Grid, keys: Sequence[Key], measure: MetricMeasure | None
) -> list[float | None]:
    """Return the `rounds_evidence` of each side but the baseline."""
    return [
        rounds_evidence([(row[0], row[place]) for row in grid], keys, measure)
        for place in range(1, len(grid[0]))
    ]


def _excluded(
    measured: Iterable[RunRates],
    sides: Sequence[Side],
    by: str | None,
    keys: Sequence[Key],
    grid: Grid,
) -> list[str]:
    """Say which results, points and benchmarks are not compared, and why."""
    return [
        *_left_out(measured),
        *_without_partner(sides, by),
        *_not_everywhere(keys, sides, grid),
    ]


def _points_of(sides: Sequence[Side]) -> list[Point]:
    return [point for side in sides for point in side.points]


def _suites(
    row_maker: RowMaker, keys: Sequence[Key], grid: Grid, where: _Where
) -> tuple[list[EffectRow], list[str]]:
    """Return the rows of suites, and in words the benchmarks and runs that they lack."""
    common, partly = _of_suite(keys, grid)
    whole = _having(common, grid, where, "suite", partly if len(common) > 1 else [])
    rows = [row_maker.suite(kind, category, common, whole) for kind, category in _KINDS]
    return [row for row in rows if row], partly


def _measured_keys(measured: Collection[RunRates]) -> list[Key]:
    """Return the benchmarks that are a measurement of their own in some run."""
    return [
        key
        for key in dict.fromkeys(key for run in measured for key in run.rates)
        if not all(key in run.repeated for run in measured if key in run.rates)
    ]


def _runs_by_kind(measured: Iterable[RunRates]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    by_kind = group_by_key((run.kind, run.run) for run in measured)
    return tuple((kind, tuple(sorted(runs))) for kind, runs in by_kind.items())


def _page_warnings(sides: Sequence[Side]) -> tuple[str, ...]:
    runs = [(side.label, [point_run.run for point_run in side.runs]) for side in sides]
    return PAGE_PROOFS().layout_warnings(runs)


def is_decided(
    points: Sequence[Point], margin: float, looks: int = 1, *, energy: bool = False
) -> bool:
    """Tell whether every point is better, worse or the same as the first: more runs say no more.

    `energy`: in joules a copy, else in copies an hour.

    Of the suite, or of the one benchmark there is. `looks`: how often this is asked of the
    growing points at most (after every block from the third to the last: blocks - 2). The
    intervals are then so much wider (`confidence_per_look`) that equal points are called
    better or worse in at most 5 % of all such series; the comparison that is shown at the
    end must have the same `looks`.
    """
    sides = _sides(_distinct(points)[0], None, None)
    rows = _make_rows(
        sides,
        _judged_runs(sides, by_cpu=False),
        by=None,
        margin=margin,
        looks=looks,
        by_cpu=False,
        measure=None,
    )
    decisive = rows.suites[:1] or rows.benchmarks
    known = any(row.cells for row in decisive)
    return known and all(row.energy_decided if energy else row.decided for row in decisive)


def _sides(points: Sequence[Point], by: str | None, baseline: str | None) -> tuple[Side, ...]:
    if by is None:
        sides = [Side(point.label, (point,)) for point in points]
    else:
        values = dict.fromkeys(dict(point.values).get(by) for point in points)
        if None in values:
            axes = dict.fromkeys(axis for point in points for axis, _ in point.values)
            known = ", ".join(axes) or "none"
            raise InputError(f"--by {by}: not an axis of all points; their axes: {known}")
        sides = [
            Side(
                f"{by}={value or '(none)'}",
                tuple(point for point in points if dict(point.values).get(by) == value),
            )
            for value in values
        ]
    if len(sides) < 2:
        has = f" ({sides[0].label})" if sides else ""
        raise InputError(f"one point{has}: expected two or more, to compare them")
    if baseline is not None:
        place = _place_of(baseline, sides)
    else:
        place = PAGE_PROOFS().base_side([[one.run for one in side.runs] for side in sides]) or 0
    sides.insert(0, sides.pop(place))
    return tuple(sides)


def _place_of(baseline: str, sides: Sequence[Side]) -> int:
    for place, side in enumerate(sides):
        if baseline == side.label:
            return place
    axis, _, value = baseline.partition("=")
    matches = [
        place
        for place, side in enumerate(sides)
        if all((axis, value) in point.values for point in side.points)
    ]
    if len(matches) == 1:
        return matches[0]
    labels = "; ".join(side.label for side in sides)
    if matches:
        raise InputError(f"--baseline {baseline}: {len(matches)} points have it; one of: {labels}")
    raise InputError(f"--baseline {baseline}: no such point; there are: {labels}")


def _judged_runs(sides: Sequence[Side], *, by_cpu: bool) -> list[_JudgedRun]:
    """Return each run with its rates, and with what disturbed it.

    Its CPU times are read here, from the first run on that needs them: accounts and counters are
    kept for the last run alone, and to work them out again for thousands of runs takes seconds.
    """
    judged_runs = []
    for point_run in (point_run for side in sides for point_run in side.runs):
        run, trouble = point_run.run, disturbance_of(point_run.run)
        rates = run_rates(run, point_run.block)
        rates = replace(rates, taken=is_too_disturbed(trouble.others_cost))
        by_cpu = by_cpu or rates.taken
        cpu_rates = with_cpu_times(rates, run) if by_cpu else None
        judged_runs.append(_JudgedRun(run, rates, trouble, cpu_rates))
    return judged_runs


def _measured(
    sides: Sequence[Side],
    judged_runs: Sequence[_JudgedRun],
    *,
    by_cpu: bool,
    measure: MetricMeasure | None,
) -> dict[int, RunRates]:
    """Return by number what each run says, and when it was made.

    By a measure; else with the CPU times of all of them where others took too much of one, or
    where they are asked for (`by_cpu`).
    """
    measured = [judged.rates for judged in judged_runs]
    if measure is not None:
        measured = [with_measure(judged.rates, judged.run, measure) for judged in judged_runs]
    elif by_cpu or any(rates.taken for rates in measured):
        measured = [
            judged.cpu_rates or with_cpu_times(judged.rates, judged.run) for judged in judged_runs
        ]
    by_number = {rates.run: rates for rates in with_shared_steps(same_keys(measured))}
    return in_order(by_number, (point_run for side in sides for point_run in side.runs))


def _grid(
    sides: Sequence[Side], by: str | None, measured: dict[int, RunRates]
) -> tuple[_Where, list[list[list[RunRates]]]]:
    """Return the values of the axes that are held, in words, and at each the runs of every side."""
    if by is None:
        return _Where(tuple(sides), [""]), [
            [[measured[number] for number in side.points[0].numbers] for side in sides]
        ]
    by_held = [{_held(point, by): point for point in side.points} for side in sides]
    held = list(dict.fromkeys(key for points_of_side in by_held for key in points_of_side))
    words = [" ".join(f"{axis}={value}" for axis, value in key) for key in held]
    return (
        _Where(tuple(sides), words),
        [
            [
                [measured[number] for number in points_of_side[key].numbers]
                if key in points_of_side
                else []
                for points_of_side in by_held
            ]
            for key in held
        ],
    )


def _held(point: Point, by: str) -> tuple[tuple[str, str], ...]:
    return tuple((axis, value) for axis, value in point.values if axis != by)


class _Where(Struct, frozen=True):
    """What a grid is of: its columns, and the values of the axes that are held in each row."""

    sides: tuple[Side, ...]
    held: list[str]


def _having(
    keys: Sequence[Key], grid: Grid, where: _Where, name: str, lines: list[str]
) -> list[list[list[RunRates]]]:
    """Return the runs that have all of `keys`, where all sides have some; tell what is left out.

    A side that has them nowhere is no reason to leave out the others.
    """
    filtered = [
        [[run for run in side if all(key in run.rates for key in keys)] for side in at]
        for at in grid
    ]
    anywhere = [any(at[place] for at in filtered) for place in range(len(where.sides))]
    complete = []
    for words, at, before in zip(where.held, filtered, grid, strict=True):
        lacking = [
            side.label
            for side, has, runs, was in zip(where.sides, anywhere, at, before, strict=True)
            if has and was and not runs
        ]
        if all(runs or not has for runs, has in zip(at, anywhere, strict=True)):
            complete.append(at)
        elif lacking and any(at):
            lines.append(f"{name}: without {words}: no valid result in {truncate_list(lacking)}")
    return complete or [[[] for _ in where.sides]]


def _of_suite(keys: Sequence[Key], grid: Grid) -> tuple[list[Key], list[str]]:
    """Return the benchmarks that a suite's mean is over, and what is to be told of that.

    Those that every point has, in its complete runs; where a point has no run with all of
    them, those that every run has. Points and runs without any valid result do not count here.
    """
    points = [[run for run in side if run.rates] for at in grid for side in at]
    points = [runs for runs in points if runs]
    common = [
        key for key in keys if all(any(key in run.rates for run in members) for members in points)
    ]
    whole = [[run for run in runs if all(key in run.rates for key in common)] for runs in points]
    if not all(whole):
        common = [
            key for key in common if all(key in run.rates for members in points for run in members)
        ]
        whole = points
    torn = sorted(
        {run.run for runs in points for run in runs}
        - {run.run for members in whole for run in members}
    )
    lines = []
    if 1 < len(common) < len(keys):
        lines.append(
            f"suite: over the {len(common)} benchmarks of {len(keys)} that all points have"
        )
    if torn and len(common) > 1:
        lack = "lacks" if len(torn) == 1 else "lack"
        lines.append(f"suite: without {runs_text(torn, 8)}, which {lack} a benchmark")
    return common, lines


def _lost(keys: Sequence[Key], grid: Grid, where: _Where) -> Iterator[tuple[str, str]]:
    for held, (base, *others) in zip(where.held, grid, strict=True):
        for side, runs in zip(where.sides[1:], others, strict=True):
            for key in keys:
                has, had = (any(key in run.rates for run in of) for of in (runs, base))
                if had and runs and not has:
                    yield key[0], f"{side.label} {held}".strip()


def _not_in_pairs(strata: Iterable[Stratum]) -> list[str]:
    """Name the runs that have no partner in their block, where others are compared in pairs."""
    used: set[int] = set()
    without: dict[int, RunRates] = {}
    for stratum in strata:
        pairs = in_pairs(stratum)
        used |= {run.run for side in pairs for run in side}
        without |= {run.run: run for side in stratum for run in side if run.rates}
    alone = [run for number, run in sorted(without.items()) if number not in used]
    lines = []
    for reason, runs in (
        ("no block is known", [run.run for run in alone if run.block is None]),
        ("alone in its round", [run.run for run in alone if run.block is not None]),
    ):
        if runs:
            lines.append(f"{runs_text(runs, 8)}: not compared, the others are in pairs: {reason}")
    return lines


def _left_out(measured: Iterable[RunRates]) -> list[str]:
    # Base and peak can fail alike.
    by_text = group_by_key(
        (text, run.run) for run in measured for text in dict.fromkeys(run.left_out)
    )
    return [f"{runs_text(sorted(numbers), 8)}: {text}" for text, numbers in by_text.items()]


def _without_partner(sides: Sequence[Side], by: str | None) -> list[str]:
    """Name the points that are no part of it, as a side has none at the same other values."""
    if by is None:
        return []
    held = [{_held(point, by): point.label for point in side.points} for side in sides]
    by_missing = group_by_key(
        (
            truncate_list(
                [
                    side.label
                    for side, points_of_side in zip(sides, held, strict=True)
                    if key not in points_of_side
                ]
            ),
            label,
        )
        for key in dict.fromkeys(key for points_of_side in held for key in points_of_side)
        for label in (points_of_side[key] for points_of_side in held if key in points_of_side)
    )
    return [
        f"compared without {truncate_list(alone)}: {without} has no such point"
        for without, alone in by_missing.items()
        if without
    ]


def _not_everywhere(keys: Sequence[Key], sides: Sequence[Side], grid: Grid) -> list[str]:
    def without(key: Key) -> list[str]:
        return [
            side.label
            for place, side in enumerate(sides)
            if not any(key in run.rates for at in grid for run in at[place])
        ]

    by_sides = group_by_key(
        (truncate_list(labels), key[0]) for key in keys if (labels := without(key))
    )
    return [
        f"no valid result in {where}: {truncate_list(names, 30)}"
        for where, names in by_sides.items()
    ]
