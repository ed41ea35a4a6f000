"""Points compared with a baseline: benchmark by benchmark, and the suite; pure.

A point's rate over the baseline's is the *speedup*: 1.08 is 8 % more copies an hour.
Times stand to each other the other way round, T = copies / rate, hence

- improvement = (T_baseline - T) / T x 100 % = (speedup - 1) x 100 %,
- reduction (of the time) = (T_baseline - T) / T_baseline x 100 % = (1 - 1 / speedup) x 100 %,

two numbers that studies of page sizes give and that are easily taken for each other: a
speedup of 2 is an improvement of 100 % and a reduction of 50 %.

The suite's speedup is the geometric mean over benchmarks, taken in each run before
runs are compared, so that its interval knows how benchmarks of a run vary together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rater.analysis.apart import apart
from rater.analysis.comparison import Comparison, Side
from rater.analysis.contrast import Stratum
from rater.analysis.looks import confidence_of_each
from rater.analysis.measures import Key, RunMeasures, measure, same_keys
from rater.analysis.points import Point
from rater.analysis.rows import Telling, mixed, p_of, with_holm
from rater.errors import InputError
from rater.words import some

MARGIN = 0.01
_KINDS = (("all", None), ("int", "int"), ("fp", "fp"))


def compare(
    points: Sequence[Point],
    *,
    margin: float = MARGIN,
    by: str | None = None,
    baseline: str | None = None,
    looks: int = 1,
    volatile: Callable[[str], bool] = lambda _: False,
) -> Comparison:
    """Compare points with the first of them, or with `baseline`.

    `margin`: what `same` means, 0.01 for 1 %; `by`: the axis that is compared, the values of
    the others held; `baseline`: a label, or `axis=value`; `looks`: see `decided`;
    `volatile`: settings that are mere readings. Raises `InputError` where there is nothing to
    compare, or no such axis or baseline.
    """
    sides = _sides(points, by, baseline)
    measured = _measured(sides)
    confidence = confidence_of_each(looks)
    telling = Telling(margin, confidence)
    runs = [[measured[one.run.head.run] for one in side.runs] for side in sides]
    pairs = [_strata(sides[0], side, by, measured) for side in sides[1:]]
    keys = list(dict.fromkeys(key for run in measured.values() for key in run.benchmarks))
    rows = with_holm([telling.benchmark(key, runs, pairs) for key in keys], confidence)
    common, partly = _of_suite(keys, runs)
    suites = [telling.suite(kind, category, common, runs, pairs) for kind, category in _KINDS]
    return Comparison(
        sides=sides,
        by=by,
        apart=apart([point for side in sides for point in side.points], volatile),
        copies=tuple(sorted({run.copies for run in measured.values()})),
        mixed_copies=any(mixed(stratum) for strata in pairs for stratum in strata),
        benchmarks=tuple(rows),
        suites=tuple(with_holm([row for row in suites if row], confidence)),
        left_out=(
            *_left_out(measured.values()),
            *_without_partner(sides, by),
            *_not_everywhere(keys, sides, runs),
            *partly,
        ),
        margin=margin,
        confidence=confidence,
        looks=looks,
        compared=sum(p_of(cell) is not None for row in rows for cell in row.cells),
    )


def decided(points: Sequence[Point], margin: float, looks: int = 1) -> bool:
    """Tell whether every point is better, worse or the same as the first: more runs say no more.

    Of the suite, or of the one benchmark there is. `looks`: how often this is asked of the
    growing points at most (after every block from the third to the last: blocks - 2). The
    intervals are then so much wider (`rater.analysis.looks`) that equal points are called
    better or worse in at most 5 % of all such series; the comparison that is shown at the
    end must have the same `looks`.
    """
    comparison = compare(points, margin=margin, looks=looks)
    rows = comparison.suites[:1] or comparison.benchmarks
    cells = [cell for row in rows for cell in row.cells]
    return bool(cells) and all(cell.speedup and cell.speedup.decided for cell in cells)


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
        sides.insert(0, sides.pop(place))
    return tuple(sides)


def _place_of(baseline: str, sides: Sequence[Side]) -> int:
    for place, side in enumerate(sides):
        if baseline == side.label:
            return place
    axis, _, value = baseline.partition("=")
    found = [
        place
        for place, side in enumerate(sides)
        if all((axis, value) in point.values for point in side.points)
    ]
    if len(found) == 1:
        return found[0]
    labels = "; ".join(side.label for side in sides)
    if found:
        raise InputError(f"--baseline {baseline}: {len(found)} points have it; one of: {labels}")
    raise InputError(f"--baseline {baseline}: no such point; there are: {labels}")


def _measured(sides: Sequence[Side]) -> dict[int, RunMeasures]:
    """Return by number what each run says."""
    runs = [measure(one.run, one.block) for side in sides for one in side.runs]
    return {run.run: run for run in same_keys(runs)}


def _strata(
    base: Side, side: Side, by: str | None, measured: dict[int, RunMeasures]
) -> list[Stratum]:
    """Return the runs of both sides, by values of the axes that are held."""
    pairs = [(base.points[0], side.points[0])]
    if by is not None:
        held = {_held(point, by): point for point in base.points}
        pairs = [(held[key], point) for point in side.points if (key := _held(point, by)) in held]
    return [
        ([measured[n] for n in here.numbers], [measured[n] for n in there.numbers])
        for here, there in pairs
    ]


def _held(point: Point, by: str) -> tuple[tuple[str, str], ...]:
    return tuple((axis, value) for axis, value in point.values if axis != by)


def _of_suite(
    keys: Sequence[Key], runs: Sequence[Sequence[RunMeasures]]
) -> tuple[list[Key], list[str]]:
    """Return the benchmarks that a suite's mean is over, and what is to be told of that.

    Those that every side has, in its complete runs; where a side has no run with all of
    them, those that every run has.
    """
    common = [key for key in keys if all(any(key in run.benchmarks for run in s) for s in runs)]
    whole = [[run for run in side if all(key in run.benchmarks for key in common)] for side in runs]
    if not all(whole):
        common = [key for key in common if all(key in run.benchmarks for s in runs for run in s)]
        whole = [list(side) for side in runs]
    torn = sorted({r.run for s in runs for r in s} - {r.run for s in whole for r in s})
    told = []
    if 1 < len(common) < len(keys):
        told.append(f"suite: over the {len(common)} benchmarks of {len(keys)} that all points have")
    if torn and len(common) > 1:
        told.append(f"suite: without {_runs(torn)}, which lack a benchmark")
    return common, told


def _left_out(measured: Iterable[RunMeasures]) -> list[str]:
    found: dict[str, list[int]] = {}
    for run in measured:
        for text in dict.fromkeys(run.left_out):  # base and peak can fail alike
            found.setdefault(text, []).append(run.run)
    return [f"{_runs(numbers)}: {text}" for text, numbers in found.items()]


def _without_partner(sides: Sequence[Side], by: str | None) -> list[str]:
    """Name the points that the baseline, or the other side, lacks at the same other values."""
    if by is None:
        return []
    held = [{_held(point, by): point.label for point in side.points} for side in sides]
    told = []
    for side, own in zip(sides[1:], held[1:], strict=True):
        alone = [label for key, label in own.items() if key not in held[0]]
        alone += [label for key, label in held[0].items() if key not in own]
        if alone:
            told.append(
                f"{side.label}: compared without {some(alone)}, which the other side has not"
            )
    return told


def _not_everywhere(
    keys: Sequence[Key], sides: Sequence[Side], runs: Sequence[Sequence[RunMeasures]]
) -> list[str]:
    found: dict[str, list[str]] = {}
    for key in keys:
        without = [
            side.label
            for side, of_side in zip(sides, runs, strict=True)
            if not any(key in run.benchmarks for run in of_side)
        ]
        if without:
            found.setdefault(some(without), []).append(key[0])
    return [f"no valid result in {where}: {some(names, 30)}" for where, names in found.items()]


def _runs(numbers: Sequence[int]) -> str:
    return f"run{'s' * (len(numbers) > 1)} {some([str(number) for number in numbers], 8)}"
