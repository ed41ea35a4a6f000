"""Findings held against the truth of a run.

A finding is the set of cells (benchmark, iteration, copy) it speaks of, and a size. It *belongs*
to a plant when at least 70 % of its cells are the plant's, its sign is the plant's, its size is
between 0.4 and 2.5 times what the plant does there, and it is of the plant's family (a whole
iteration, or copies of it). A plant is found when what belongs to it covers 60 % of its cells.
What belongs to no plant is, in this order: `nature` (lgroups, iterations or single spikes really
do half of it), `layout` (sharing really does), `wrong size` (the plant's cells, another size),
`too wide` (its copies, but benchmarks or iterations that have no part in it, or "two modes" where
it is a place), `wrong half` (two levels as good as each other, and the healthy one was accused
without saying so), `in other words` (half of it is there, of a plant that could not be told well),
`wrong place` (there is half such a difference, of a plant, but most of those accused are
innocent), `invented`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.divot_cases.cases import Case
from benchmarks.divot_cases.plants import Plant

type Mask = NDArray[np.bool_]
type Values = NDArray[np.float64]

INSIDE, COVERED, _OF_TWO = 0.7, 0.6, 0.4
_LOWEST, _HIGHEST, _SLACK = 0.4, 2.5, 0.01  # of a size, as logarithms; and on top of that
_ALL_COPIES = 0.6  # of the copies, in cells that are an iteration's or two modes'
_RISING = ("drift",)
# Kinds that say which copies or iterations; others are about a benchmark, whatever they list.
_OF_CELLS = ("slow-lgroup", "slow-cpu", "slow-group", "outlier-copy", "slow-iteration", "drift")
_CANNOT_TELL = ("ambig", "cannot be told", "cannot tell which", "undecided")
_HONEST = ("wrong size", "too wide")  # false, but they accuse no innocent
WRONG = ("wrong half", "wrong place", "invented", *_HONEST)


@dataclass(frozen=True)
class Found:
    """A finding: where, how much, and whether it says that the halves could be the other way."""

    kind: str
    cells: Mask
    size: float  # log; below 0: faster
    score_lost: float
    ambiguous: bool
    text: str


@dataclass
class Outcome:
    """What became of one plant."""

    plant: Plant
    demanded: bool
    z: float
    found: bool = False
    whole: bool = False  # by one finding that is right about benchmarks, iterations and copies
    exact: bool = False  # by one finding with exactly its copies
    fragments: int = 0  # findings that belong to it
    half: str = ""  # of two levels: said, right half, wrong half, silent
    size_error: float | None = None  # of the best finding, as a share of the size
    cost: float = 0.0
    cost_error: float | None = None


@dataclass
class Verdict:
    """A run's outcomes, and the findings that belong to no plant, by kind of mistake."""

    case: Case
    plants: list[Outcome]
    belonging: int = 0
    others: list[tuple[str, Found]] = field(default_factory=list)

    @property
    def alarms(self) -> list[Found]:
        return [one for what, one in self.others if what in WRONG]

    @property
    def accuses_an_innocent(self) -> bool:
        return any(what in WRONG and what not in _HONEST for what, _ in self.others)


def findings(rows: Sequence[dict[str, Any]], case: Case) -> list[Found]:
    """Return what the elements of a divots document say, explained ones and notes left out."""
    together: dict[object, list[dict[str, Any]]] = {}
    for position, row in enumerate(rows):
        if row.get("explained") or row["kind"].startswith("explained") or row.get("note"):
            continue
        number = row.get("finding")
        key = ("row", position) if number is None else ("finding", number)
        together.setdefault(key, []).append(row)
    return [_found_from_rows(of, case) for of in together.values()]


def _found_from_rows(rows: Sequence[dict[str, Any]], case: Case) -> Found:
    cells = np.zeros(case.dims, bool)
    kind = rows[0]["kind"]
    for row in rows:
        b, i, c = _numbers(row, case)
        if kind in _RISING:
            i = [it for it in range(case.dims[1]) if it > 0]
        cells[np.ix_(b, i, c)] = True
    text = " ".join(str(row.get("evidence") or "") for row in rows[:1])
    cost = "time_lost" if case.rotated else "score_lost"
    return Found(
        kind=kind,
        cells=cells,
        size=math.log(max(1e-3, float(np.median([row["slowdown"] or 1 for row in rows])))),
        score_lost=max(float(row.get(cost) or 0) for row in rows),
        ambiguous=any(row.get("ambiguous") for row in rows)
        or any(word in f"{kind} {text}" for word in _CANNOT_TELL),
        text=text,
    )


def _numbers(row: dict[str, Any], case: Case) -> tuple[list[int], list[int], list[int]]:
    """Return benchmarks, iterations and copies of a row, from 0; all where it is silent."""
    b_count, i_count, c_count = case.dims
    names = _listed(row, "benchmark", "benchmarks")
    at = case.shape.copies
    copies = _listed(row, "copy", "copies")
    for keys, place in ((("cpu", "cpus"), at.cpu), (("node", "nodes"), at.node)):
        if not copies and case.shape.known:
            copies = np.flatnonzero(np.isin(place, _listed(row, *keys))).tolist()
    return (
        sorted({int(str(name)[1:]) for name in names}) or list(range(b_count)),
        sorted({int(it) - 1 for it in _listed(row, "iteration", "iterations")})
        or list(range(i_count)),
        sorted(set(copies)) or list(range(c_count)),
    )


def _listed(row: dict[str, Any], column: str, many: str) -> list[Any]:
    if row.get(many):
        return list(row[many])
    return [] if row.get(column) is None else [row[column]]


def judge(case: Case, rows: Sequence[dict[str, Any]]) -> Verdict:
    """Return what the rows of a run's divots document are worth."""
    reported = findings(rows, case)
    verdict = Verdict(case, [])
    for plant in case.plants:
        effect, error = case.oracle(plant)
        outcome = Outcome(plant, case.demanded(plant), abs(effect) / error)
        outcome.cost = case.score_lost(plant)
        verdict.plants.append(outcome)
    of: list[list[Found]] = [[] for _ in case.plants]
    for finding in reported:
        inside = [_inside(finding, plant, case) for plant in case.plants]
        fits = [
            max(_share_of_plant(finding, plant), 1e-6) if _belongs(finding, plant, share) else 0.0
            for share, plant in zip(inside, case.plants, strict=True)
        ]
        if any(fits):
            verdict.belonging += 1
            for share, belonging in zip(fits, of, strict=True):
                if share >= min(_OF_TWO, max(fits)):  # one finding may tell two plants, truly
                    belonging.append(finding)
        else:
            verdict.others.append((_what_else(finding, case), finding))
    for outcome, belonging in zip(verdict.plants, of, strict=True):
        _weigh(outcome, belonging, case, reported)
    return verdict


def _truth(plant: Plant) -> list[tuple[Mask, Values]]:
    """Return cells and effects of a plant; of two iterations also the other's, turned round."""
    options = [(plant.mask, plant.delta)]
    if plant.half and plant.family == "iteration":
        turned = plant.mask[:, ::-1]
        options.append((turned, -plant.delta[:, ::-1]))
    return options


def _share_of_plant(finding: Found, plant: Plant) -> float:
    """Return which share of a finding's cells the plant is in."""
    return max(float(mask[finding.cells].mean()) for mask, _ in _truth(plant))


def _inside(finding: Found, plant: Plant, case: Case) -> float:
    """Return which share of a finding's cells is right.

    Where the plant is in some, others may be another's of the same sign, or (single copies) spikes.
    """
    best = _share_of_plant(finding, plant)
    if not best or plant.family != "place":
        return best
    allowed = plant.mask.copy()
    for other in case.plants:
        if other.family == "place":
            allowed |= other.delta * finding.size > 0
    if finding.kind == "outlier-copy":
        spikes = case.natural - np.median(case.natural, axis=2, keepdims=True)
        allowed |= spikes * finding.size >= 0.5 * finding.size**2
    return float(allowed[finding.cells].mean())


def _belongs(finding: Found, plant: Plant, inside: float) -> bool:
    whole = bool(finding.cells.any(axis=(0, 1)).mean() >= _ALL_COPIES)
    if plant.half and plant.family == "place" and finding.ambiguous:
        return bool(finding.cells.any(axis=(1, 2))[plant.where()[0]].any())
    if plant.family in ("modes", "swaps") and finding.kind not in _OF_CELLS:
        return _of_its_benchmarks(finding, plant)
    if plant.family == "swaps" and finding.kind == "slow-lgroup":
        return False  # an lgroup that is another one next time is none to accuse
    if plant.family not in ("modes", "swaps") and whole is (plant.family == "place"):
        return False
    return inside >= INSIDE and any(_sized(finding, plant, *it) for it in _truth(plant))


def _of_its_benchmarks(finding: Found, plant: Plant) -> bool:
    return np.flatnonzero(finding.cells.any(axis=(1, 2))).tolist() == plant.where()[0]


def _sized(finding: Found, plant: Plant, mask: Mask, delta: Values) -> bool:
    """Tell whether a finding has sign and about the size of what the plant does in its cells."""
    cells = finding.cells & mask
    if not cells.any():
        return False
    true = plant.size if plant.family in ("drift", "startup") else float(np.median(delta[cells]))
    size, of = finding.size * math.copysign(1, true), abs(true)
    return size > 0 and _LOWEST * of - _SLACK <= size <= _HIGHEST * of + _SLACK


def contrast(field_: Values, cells: Mask) -> float:
    """Return by how much cells differ in a field from the other copies of the same phases.

    Of whole iterations: from the other iterations of the same benchmarks.
    """
    by_copy = cells.any(axis=(0, 1)).mean() < _ALL_COPIES
    axis = 2 if by_copy else 1
    phases = cells.any(axis=axis, keepdims=True) & ~cells
    if not phases.any():
        return 0.0
    reference = np.ma.median(np.ma.array(field_, mask=~phases), axis=axis, keepdims=True)
    differences = np.ma.array(field_ - reference, mask=~cells)
    return float(np.ma.median(differences)) if differences.count() else 0.0


def _what_else(finding: Found, case: Case) -> str:
    """Return what a finding is that belongs to no plant."""
    true = contrast(case.natural, finding.cells)
    if true * finding.size > 0 and abs(true) >= 0.5 * abs(finding.size):
        return "nature"
    if _of_layout(finding, case):
        return "layout" if case.shape.known else "nature"  # without CPU numbers it is news
    for plant in case.plants:
        if plant.family == "place" and (what := _beside_plant(finding, plant)):
            return what
    for plant in case.plants:
        other = plant.mask.any(axis=2, keepdims=True) & ~plant.mask
        if plant.half and finding.size * plant.size < 0 and other[finding.cells].mean() >= INSIDE:
            return "wrong half"
    small = [plant.delta for plant in case.plants if not case.demanded(plant)]
    true = contrast(case.natural + sum(small, np.zeros(case.dims)), finding.cells)
    if small and true * finding.size > 0 and abs(true) >= 0.5 * abs(finding.size):
        return "in other words"
    true = contrast(case.natural + case.planted, finding.cells)
    return (
        "wrong place"
        if true * finding.size > 0 and abs(true) >= 0.5 * abs(finding.size)
        else "invented"
    )


def _beside_plant(finding: Found, plant: Plant) -> str:
    """Return what is wrong in a finding that speaks of a plant's copies; empty: it does not."""
    copies = finding.cells.any(axis=(0, 1))
    touched = (plant.mask & finding.cells).any(axis=(0, 1))
    if copies.mean() >= _ALL_COPIES:
        modes = "modal" in finding.kind and 0.15 <= touched.mean() <= 0.85
        return "too wide" if modes else ""
    if finding.size * plant.size < 0 or touched[copies].mean() < INSIDE:
        return ""
    return "wrong size" if plant.mask[finding.cells].mean() >= INSIDE else "too wide"


def _of_layout(finding: Found, case: Case) -> bool:
    """Tell whether some copy outside shares so much less (or more) that it makes the size."""
    members, benchmarks = finding.cells.any(axis=(0, 1)), finding.cells.any(axis=(1, 2))
    if members.mean() >= _ALL_COPIES and "modal" in finding.kind:
        return bool(np.ptp(case.layout[benchmarks, 0], axis=1).max() >= 0.5 * abs(finding.size))
    if members.all():
        return False
    level = np.median(case.layout[benchmarks, 0], axis=0)
    ratios = (np.median(level[members]) - level[~members]) / (finding.size or 1e-9)
    return bool(np.any((ratios >= 0.5) & (ratios <= 2)))


def _weigh(outcome: Outcome, belonging: list[Found], case: Case, reported: list[Found]) -> None:
    """Fill an outcome from the findings that belong to its plant."""
    plant = outcome.plant
    outcome.fragments = len(belonging)
    if plant.half and plant.family == "place":
        other = plant.mask.any(axis=2, keepdims=True) & ~plant.mask
        accused = any(
            not finding.ambiguous and finding.size < 0 and other[finding.cells].mean() >= INSIDE
            for finding in reported
        )
        said = any(finding.ambiguous for finding in belonging)
        outcome.half = (
            "said" if said else "wrong half" if accused else "right half" if belonging else "silent"
        )
    if not belonging or outcome.half == "wrong half":
        return
    if outcome.half:
        outcome.found = outcome.whole = True
    spoken = np.any([finding.cells for finding in belonging], axis=0)
    as_modes = plant.family in ("modes", "swaps") and any(
        finding.kind not in _OF_CELLS and _of_its_benchmarks(finding, plant)
        for finding in belonging
    )
    for mask, delta in _truth(plant):
        demanded = mask & _clear(plant, delta)
        if as_modes or spoken[demanded].mean() >= COVERED:
            outcome.found = True
        best = max(belonging, key=lambda finding: _jaccard(finding.cells, demanded))
        outcome.whole |= as_modes or _jaccard(best.cells, demanded) >= COVERED
        outcome.exact |= any(
            np.array_equal(finding.cells.any(axis=(0, 1)), mask.any(axis=(0, 1)))
            for finding in belonging
        )
    best = max(belonging, key=lambda finding: _jaccard(finding.cells, plant.mask))
    if plant.family in ("place", "iteration") and outcome.whole:
        true = (
            float(np.median(plant.delta[plant.mask & best.cells]))
            if (plant.mask & best.cells).any()
            else plant.size
        )
        outcome.size_error = abs(abs(best.size) / abs(true) - 1)
        outcome.cost_error = best.score_lost - outcome.cost


def _clear(plant: Plant, delta: Values) -> Mask:
    """Return the cells of benchmarks where the plant is half its size or more."""
    return (np.abs(delta) >= 0.5 * abs(plant.size)) | (plant.family in ("drift", "startup"))


def _jaccard(mask: Mask, other: Mask) -> float:
    return int((mask & other).sum()) / max(1, int((mask | other).sum()))
