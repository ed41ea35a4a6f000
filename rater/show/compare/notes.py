"""What stands around a comparison: changes, differences, disturbances, bases of intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from math import log

from rater.analysis.compare.differences import DisturbedRun, DoctorDifference, PointDifference
from rater.analysis.compare.model import Comparison, CpiChange, Effect, EffectRow, Side
from rater.analysis.results.cpu_use import DisturbanceKind, MachineDisturbance
from rater.analysis.results.rates import MEAN
from rater.analysis.stats.estimate import Basis
from rater.analysis.stats.independence import LEAST_TESTED
from rater.analysis.stats.intervals import Decision, RatioInterval
from rater.record.stored import PER_HOUR
from rater.show.console import Columns, Printer
from rater.show.format import crop
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, count, percent, runs_text, to_json, truncate_list


def rate_heading(unit: str) -> str:
    """Return `geomean|ratio` or `geomean|/hour`: what `rates.mean_rate` gives a point."""
    return f"{MEAN}|{'/hour' if unit == PER_HOUR else unit}"


# -- Which benchmarks of a comparison are worth a line where not all have room ---------------------

_CHANGES = frozenset({Decision.BETTER, Decision.WORSE, Decision.RARELY})


def top_changes(rows: Sequence[EffectRow], most: int) -> list[EffectRow]:
    """Return the suite's rows and, of many benchmarks, those that changed most, in their order."""
    told = sorted((row for row in rows if not row.over), key=_telling_change, reverse=True)
    kept = told[: max(1, most - sum(bool(row.over) for row in rows))]
    return [row for row in rows if row.over or row in kept]


def _telling_change(row: EffectRow) -> tuple[bool, float]:
    """Return what sorts rows by their largest change, those with a verdict of one first."""
    told = [cell.speedup for cell in row.cells if cell.speedup]
    changed = any(one.verdict in _CHANGES for one in told)
    return changed, max((abs(log(one.ratio)) for one in told if one.ratio > 0), default=0.0)


# -- What differs between compared runs and is no axis, as lines -----------------------------------

_LONGEST_VALUE = 80
_MOST_DIFFERENCES = 20
_DIFFERENCES_MOST_BRIEF = 3


def print_differences(comparison: Comparison, printer: Printer, *, brief: bool = False) -> None:
    """Print what weighs, a line each, then notes, then what is not known of imported runs.

    `brief`: what weighs alone, most of it in a line.
    """
    weighs = _texts([one for one in comparison.differences if one.significant], comparison)
    known = [one for one in comparison.differences if not one.unknown]
    lesser = _texts([one for one in known if not one.significant], comparison)
    unknown = [one.what for one in comparison.differences if one.unknown]
    if any(one.is_machine for one in comparison.differences if one.significant):
        printer.prose("These runs were made on DIFFERENT MACHINES.", "bold red")
    if weighs:
        axes = dict.fromkeys(a for s in comparison.sides for p in s.points for a, _ in p.values)
        beside = f" beside {truncate_list(list(axes))}" if axes else ""
        printer.prose(f"The runs differ{beside} in:", "bold yellow")
        printer.some(
            weighs,
            "yellow",
            most=_DIFFERENCES_MOST_BRIEF if brief else _MOST_DIFFERENCES,
            indent="  ",
        )
    if brief:
        return
    if lesser:
        printer.prose(f"Worth a note: {'; '.join(lesser)}")
    if unknown:
        printer.prose(f"Not known of every run (imported): {truncate_list(unknown, 8)}")
    if comparison.doctor:
        printer.prose("The doctor would have said:", "bold yellow")
        told = [_doctor_text(one, comparison) for one in comparison.doctor]
        printer.some(told, "yellow", most=_MOST_DIFFERENCES, indent="  ")
    if comparison.differences or comparison.doctor:
        printer.line()


def _texts(several: Sequence[PointDifference], comparison: Comparison) -> list[str]:
    """Return a line each; what is of several benchmarks and differs alike has one."""
    groups: dict[tuple[object, ...], list[PointDifference]] = {}
    for one in several:
        kind, of, _ = one.what.partition(" of ")
        groups.setdefault((kind if of else one.what, one.values, one.inside), []).append(one)
    return [_differences_text(members, comparison) for members in groups.values()]


def _differences_text(members: Sequence[PointDifference], comparison: Comparison) -> str:
    one = members[0]
    kind, of, _ = one.what.partition(" of ")
    what = f"{kind} of {truncate_list([it.what.removeprefix(kind + of) for it in members])}"
    parts = [
        f"{crop(value, _LONGEST_VALUE, ascii_only=True) if value else 'none'} "
        f"({_who(numbers, comparison)})"
        for value, numbers in one.values
    ]
    inside = f"; differs within {truncate_list(one.inside)}" if one.inside else ""
    return f"{what if of else one.what}: {truncate_list(parts, 6)}{inside}"


def _doctor_text(one: DoctorDifference, comparison: Comparison) -> str:
    parts = [
        f"{verdict.value}, {crop(seen, _LONGEST_VALUE, ascii_only=True)} "
        f"({_who(numbers, comparison)})"
        for verdict, seen, numbers in one.values
    ]
    return f"{one.check}: {'; '.join(parts)}: {one.why}"


def _who(numbers: Sequence[int], comparison: Comparison) -> str:
    """Name runs by the sides or points they are all of, where they are that exactly."""
    left = set(numbers)
    names = []
    for side in comparison.sides:
        own = {one.run.head.run for one in side.runs}
        if own <= left and side.points[0].values:
            names.append(side.label)
            left -= own
    if left:
        names.append(runs_text(sorted(left)))
    return truncate_list(names, 3)


# -- What disturbed compared runs: a line for each kind of disturbance, the worst runs first -------

_MOST_RUNS = 5  # of one kind of disturbance
_MOST_SHARES = 3
_DISTURBANCES_MOST_BRIEF = 2  # kinds
_LONGEST_WARNING = 60
_WORDS = {
    DisturbanceKind.FOREIGN: "other work took",
    DisturbanceKind.STEAL: "the hypervisor took",
    DisturbanceKind.THROTTLED: "throttled, too hot",
    DisturbanceKind.SWAP: "pages swapped",
    DisturbanceKind.MEMORY: "tasks waited for memory",
}


TROUBLES = {
    DisturbedRun: JsonFields(
        "run too_disturbed others_cost matters=notable placement_not_met=not_met warnings"
        " share=shared"
    ),
    MachineDisturbance: JsonFields("matter share times cpu cpus benchmark"),
}


def print_troubles(
    troubles: Sequence[DisturbedRun], printer: Printer, *, brief: bool = False
) -> None:
    """Print them, nothing where there are none; `brief`: the weightiest, as one sentence."""
    lines = list(_lines(troubles))
    if not lines:
        return
    if brief:
        printer.prose(f"Disturbed runs: {'; '.join(lines[:_DISTURBANCES_MOST_BRIEF])}", "yellow")
        printer.line()
        return
    printer.prose("Disturbed runs (`rater show RUN` has the rest):", "bold yellow")
    printer.some(lines, "yellow", most=len(lines), indent="  ")
    printer.line()


def _lines(troubles: Sequence[DisturbedRun]) -> Iterator[str]:
    unjudged = sorted(one.run for one in troubles if one.too_disturbed)
    if unjudged:
        yield f"too disturbed to judge: {runs_text(unjudged, _MOST_RUNS)}"
    for matter, words in _WORDS.items():
        own = [(one.run, it) for one in troubles for it in one.notable if it.matter is matter]
        own.sort(key=lambda pair: -(pair[1].share or pair[1].times or 0))
        if own:
            yield (
                f"{words}: "
                f"{truncate_list([_disturbances_text(run, it) for run, it in own], _MOST_SHARES)}"
            )
    moved = [one for one in troubles if one.not_met]
    if moved:
        copies = [f"run {one.run} (copies {format_list(one.not_met)})" for one in moved]
        yield f"copies not where they were planned: {truncate_list(copies, _MOST_RUNS)}"
    shared = [one.run for one in troubles if one.shared]
    if shared:
        yield f"made with --share, beside other runs: {runs_text(shared, _MOST_RUNS)}"
    warned: dict[str, dict[int, None]] = {}
    for one in troubles:
        for text in one.warnings:
            warned.setdefault(text.partition(": ")[0], {})[one.run] = None
    for text, runs in warned.items():
        who = runs_text(sorted(runs), _MOST_RUNS)
        yield f"{crop(text, _LONGEST_WARNING, ascii_only=True)}: {who}"


def _disturbances_text(run: int, one: MachineDisturbance) -> str:
    if one.share is None:
        return f"run {run} ({one.times} times)"
    cpu = "" if one.cpu is None else f" of CPU {one.cpu}"
    return f"{percent(one.share)} %{cpu} (run {run})"


# -- What became of each part of the cycles per instruction, below a comparison --------------------


def print_cpi_changes(
    changes: Sequence[CpiChange], sides: Sequence[Side], printer: Printer
) -> None:
    """Print a table for each benchmark; nothing where nothing was counted on two sides."""
    for (benchmark, tune), rows in groupby(changes, key=lambda it: (it.benchmark, it.tune)):
        of = Columns(list(rows))
        name = f"{benchmark} {tune}" if tune else benchmark
        printer.line()
        columns = [
            of.left(f"CPI of {name}", lambda it: it.part.replace("_", " ")),
            of.numbers((sides[0].label, ""), lambda it: it.cycles[0], 3),
        ]
        for place, side in enumerate(sides[1:]):
            columns += [
                of.numbers((side.label, ""), partial(_cycles, place + 1), 3),
                of.change(("change,", "% of CPI"), partial(_counters_change, place)),
            ]
        printer.table(columns)


def _cycles(place: int, it: CpiChange) -> float | None:
    return it.cycles[place]


def _counters_change(place: int, it: CpiChange) -> float | None:
    return it.changes[place]


def cpi_document(changes: Sequence[CpiChange]) -> list[object]:
    """Return the same as JSON values."""
    rows: list[object] = to_json(
        list(changes), {CpiChange: JsonFields("benchmark tune part cycles changes")}
    )
    return rows


# -- What a comparison stands on, below its table: bases of the intervals, chance, steps of times --

_MANY_BENCHMARKS = 4
_BLUR_TOLD = 0.001  # steps of times, as a share of them
_SAME_SPEEDUP = 0.0005


def print_foot(
    comparison: Comparison, printer: Printer, *, in_lines: bool, brief: bool = False
) -> None:
    """Print marks, bases, chance; `in_lines`: verdicts stand in the table in words.

    `brief`: without what holds for every sweep.
    """
    cells = [cell for row in comparison.benchmarks for cell in row.cells]
    speedups = [cell.speedup for cell in cells if cell.speedup]
    sure = level(comparison)
    if not in_lines:
        printer.prose(
            f"+ better, - worse, = same within {comparison.margin * 100:g} %, ~ the same but for "
            "rare slow runs, ? inconclusive"
            + (
                f"; ++ and -- hold up with all {comparison.compared} comparisons considered (Holm)"
                if comparison.compared > 1
                else ""
            )
        )
    doubts = dict.fromkeys(doubt for one in speedups if one.decided for doubt in one.doubts)
    if doubts and not in_lines:
        printer.prose(f"( ): with a doubt: {', '.join(doubts)}")
    printer.some(_doubts(doubts))
    decided = any(one.decided for one in speedups)
    if len(comparison.benchmarks) >= _MANY_BENCHMARKS and decided:
        printer.some(_tallies(comparison))
    paired = all(one.basis is Basis.BLOCKS for one in speedups)
    if not (brief and paired):
        printer.some(_stands_on(speedups))
    if brief:
        return
    if any(one.blur > _BLUR_TOLD for one in speedups):
        worst = max(one.blur for one in speedups)
        printer.prose(
            f"Times are recorded in steps of up to {size(worst)} of a run: that is in the "
            "intervals, and no number of runs takes it out."
        )
    if any(_of_pairs(cell) for cell in cells):
        printer.prose("Values are of all runs of a point; speedups are of those in pairs.")
    if any(one.by_cpu for one in speedups):
        printer.prose("Values are by time; speedups by CPU time are of what copies worked.")
    if comparison.looks > 1:
        printer.prose(
            f"Results were looked at up to {count(comparison.looks, 'time')} before there were "
            "enough runs (--until, rounds that were added): "
            f"intervals of {sure} % keep all looks together right in 95 %."
        )
    if comparison.compared > 1:
        text = (
            f"Expect {comparison.by_chance:.2g} false positives in {comparison.compared} "
            "comparisons"
        )
        text += (
            "; all comparisons share the baseline's noise." if len(comparison.sides) > 2 else "."
        )
        if in_lines and any(cell.holds for _, _, cell in comparison.verdicts()):
            text += " * holds up with all of them considered (Holm)."
        printer.prose(text)
    unknown = [one for one in speedups if one.verdict is Decision.UNKNOWN and one.more != 0]
    if unknown and not in_lines:
        most = [one.more for one in unknown]
        known = [more for more in most if more is not None]
        rounds = "more than 1000 rounds" if None in most else count(max(known), "more round")
        printer.prose(f"? inconclusive: {rounds} needed to decide all of them, at this noise.")


def _doubts(told: Iterable[str]) -> Iterator[str]:
    """Say what the words beside a verdict mean."""
    for doubt in told:
        if doubt.endswith("rounds"):
            yield (
                f"{doubt}: too few to see whether they are independent; a state that stays with a "
                f"point for that long would look the same, {LEAST_TESTED} and more would show it"
            )
        elif "independent" in doubt:
            yield f"{doubt}: neighbours in time are alike beyond chance; the interval minds it"


def _tallies(comparison: Comparison) -> Iterator[str]:
    """Count the verdicts of each side: ups and downs that a suite's mean has cancelled."""
    for place, side in enumerate(comparison.sides[1:]):
        cells = [row.cells[place] for row in comparison.benchmarks]
        lines = []
        for verdict in Decision:
            own = [cell for cell in cells if cell.speedup and cell.speedup.verdict is verdict]
            held = sum(cell.holds for cell in own)
            if own:
                lines.append(f"{len(own)} {verdict}" + (f" ({held} hold up)" if held else ""))
        lacking = sum(cell.speedup is None for cell in cells)
        lines += [f"{lacking} not compared"] if lacking else []
        yield f"{side.label}: of {len(cells)} benchmarks: {', '.join(lines)}"


def _of_pairs(cell: Effect) -> bool:
    """Tell whether the speedup is visibly another than that of the values: of fewer runs."""
    told = cell.speedup
    if told is None or told.by_cpu or not cell.improvement or not cell.value or not cell.baseline:
        return False
    return abs(cell.value / cell.baseline / told.ratio - 1) > _SAME_SPEEDUP


def _stands_on(told: Sequence[RatioInterval]) -> Iterator[str]:
    """Say what the intervals are from, the strongest first."""
    for basis in Basis:
        own = [one for one in told if one.basis is basis]
        if not own:
            continue
        some_of = "" if len(own) == len(told) else f" ({len(own)} of {len(told)})"
        least, most = min(one.count for one in own), max(one.count for one in own)
        many = str(least) if least == most else f"{least} to {most}"
        freedom = _freedom(own)
        if basis is Basis.BLOCKS:
            yield f"intervals{some_of}: paired within {many} blocks, Student's t{freedom}"
        elif basis is Basis.RUNS:
            yield (
                f"intervals{some_of}: Welch's over runs ({many} of the side that has fewer)"
                f"{freedom}; they are not in blocks: a step between the points' runs counts as "
                "effect"
            )
        else:
            yield (
                f"no interval{some_of}: single runs or sessions say nothing of their noise; make "
                "several runs of each, in turn (`rater sweep --rounds 6 --axis ...`)"
            )


def _freedom(told: Sequence[RatioInterval]) -> str:
    degrees = [one.degrees for one in told if one.degrees is not None]
    if not degrees:
        return ""
    least = f"{min(degrees):.3g}"
    return f", {least} degree{'s' * (least != '1')} of freedom"


def level(comparison: Comparison) -> str:
    """Return the confidence of the intervals in per cent."""
    return f"{comparison.confidence * 100:.4g}"


def size(share: float) -> str:
    """Return a share in per cent, without its sign."""
    return f"{percent(abs(share))} %"
