"""Start-up, slow iterations and drift as hits: what moves over time; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.iterations import (
    ALL,
    Drift,
    SlowIteration,
    find_iterations,
    typical_change,
    unaffected_copies,
)
from rater.analysis.divots.model.noise import TimeNoise, group_centred
from rater.analysis.divots.model.parts import Part
from rater.analysis.divots.model.table import Hit, Table, total_effect
from rater.analysis.stats.robust import (
    Bools,
    Floats,
    Ints,
    correlation,
    median,
    overall_median,
    quantiles,
    ranks,
)

# -- Start-up divots: late starts, ramps over the launch order, convoys, waiting for input ---------


@dataclass(frozen=True, slots=True, eq=False)
class StartUp:
    """One sort of start-up trouble in the cells where it is."""

    mode: str  # late-start, ramp, convoy, input-wait
    cells: Bools  # (B, I)
    size: Floats  # (B, I) share of the median time that it takes, 0 elsewhere
    effect: Floats | None = None  # (B, I, S) ln slowdown of each copy, where they differ


def find_startup(
    table: Table, machine: list[Part], residuals: Floats, groups: Ints, steps: Floats
) -> list[StartUp]:
    """Return what is wrong in the beginning; takes ramps out of `residuals`, in place."""
    found = []
    if table.barrier and not np.isnan(table.start_s).all():
        if not table.staggered:
            found.append(_late_start(table))
        found.append(_ramps(table, residuals, groups))
    if table.barrier:
        convoy = _convoys(table, machine, residuals, groups, steps)
        found.append(convoy)
        found.append(_input_wait(table, convoy.cells))
    return [one for one in found if one.cells.any()]


def _late_start(table: Table) -> StartUp:
    size = np.zeros(table.shape[:2])
    with_start = ~np.isnan(table.start_s)
    typical = np.exp(median(table.log_s))
    last = np.max(np.where(with_start, table.start_s, -np.inf), axis=2)
    first = np.min(np.where(with_start, table.start_s, np.inf), axis=2)
    known = (np.sum(with_start, axis=2) >= 2) & ~np.isnan(typical)
    size[known] = (last[known] - first[known]) / typical[known]
    cells = size >= limits.OF_MANY
    return StartUp("late-start", cells, np.where(cells, size, 0.0))


def _ramps(table: Table, residuals: Floats, groups: Ints) -> StartUp:
    size = np.zeros(table.shape[:2])
    effect = np.zeros(table.shape)
    inner = group_centred(residuals, groups)
    starts = table.start_s
    for b, i in np.ndindex(*size.shape):
        size[b, i] = _ramp(starts[b, i], residuals[b, i], inner[b, i], groups, rule=_RAMP)
    for b in np.flatnonzero(size.any(axis=1)):
        # Where one iteration has it, the others may show less.
        for i in np.flatnonzero(size[b] == 0):
            rows = starts[b, i], residuals[b, i], inner[b, i]
            size[b, i] = _ramp(*rows, groups, rule=_RAMP_AGAIN)
    for b, i in np.argwhere(size > 0):
        usable = ~np.isnan(residuals[b, i]) & ~np.isnan(table.start_s[b, i])
        place = (ranks(table.start_s[b, i, usable]) - 1) / int(usable.sum())
        effect[b, i, usable] = np.log1p(size[b, i] * place)
        residuals[b, i] -= effect[b, i]
        residuals[b, i] -= overall_median(residuals[b, i])
    return StartUp("ramp", size > 0, size, effect)


@dataclass(frozen=True, slots=True)
class _RampRule:
    span: float
    rho: float
    z: float


_RAMP = _RampRule(limits.OF_ONE, limits.HALF, limits.SURE)
_RAMP_AGAIN = _RampRule(limits.OF_ONE / 2, limits.HALF / 1.5, limits.SURE / 1.5)


def _ramp(start: Floats, values: Floats, inner: Floats, groups: Ints, *, rule: _RampRule) -> float:
    """Return the span of a ramp over the launch order, as share of the time; 0: none.

    Of one cell: start times, residuals with and without those of their groups, groups.
    """
    usable = ~np.isnan(values) & ~np.isnan(start)
    n = int(usable.sum())
    start = start[usable]
    if n < limits.MANY or start.min() == start.max():
        return 0.0
    place = ranks(start)
    x = np.exp(values[usable])
    rho = correlation(ranks(x), place)
    if rho < rule.rho or math.atanh(min(rho, 0.999999)) * math.sqrt((n - 3) / 1.06) < rule.z:
        return 0.0
    early, late = place <= n / 3, place > n - n / 3
    span = 1.5 * (overall_median(x[late]) - overall_median(x[early]))
    if span < rule.span or _is_step(x, place):
        return 0.0
    return span if _is_ramp(x, place, groups[usable], np.exp(inner[usable]), span) else 0.0


def _is_step(x: Floats, place: Floats) -> bool:
    """Tell times of two levels, what starts last slow as a whole, from a line.

    By least squares over the launch order.
    """
    ordered = x[np.argsort(place, kind="stable")]
    n = len(ordered)
    late = np.arange(n) - (n - 1) / 2
    around = ordered - ordered.mean()
    by_line = float(late @ around) ** 2 / float(late @ late)
    before = np.arange(1, n)
    by_step = np.cumsum(around)[:-1] ** 2 * n / (before * (n - before))
    return bool(by_step.max() > by_line)


def _is_ramp(
    x: Floats,
    place: Floats,
    groups: Ints,
    inner: Floats,
    span: float,
) -> bool:
    """Tell a ramp from a slow lgroup that happens to start last."""
    names = np.unique(groups)
    if len(names) >= limits.MANY_PARTS:
        of_nodes = np.array([np.median(x[groups == g]) for g in names])
        launch = np.array([np.median(place[groups == g]) for g in names])
        if correlation(ranks(of_nodes), ranks(launch)) >= limits.SAME:
            return True
    own = place.copy()
    for g in names:
        own[groups == g] -= place[groups == g].mean()
    if correlation(ranks(inner), ranks(own)) < limits.HALF:
        return False
    # The slope inside of groups alone, as all of the span would be at that slope.
    slopes = []
    for g in names:
        here = groups == g
        if here.sum() >= 3:
            slopes.append(float(own[here] @ inner[here]) / float(own[here] @ own[here]))
    return bool(slopes) and float(np.median(slopes)) * len(x) >= 0.5 * span


def _convoys(
    table: Table, machine: list[Part], residuals: Floats, groups: Ints, steps: Floats
) -> StartUp:
    b, i, s = table.shape
    size = np.zeros((b, i))
    if i < 2 or s < 4:
        return StartUp("convoy", size > 0, size)
    inner = group_centred(residuals, groups)
    q10, q25, q75, q90 = quantiles(inner, 0.1, 0.25, 0.75, 0.9)
    width = q90 - q10
    # A few copies that kept their speed are no convoy: the bulk must be spread as well.
    bulk = (q75 - q25)[:, 0] >= limits.SHOWS * width[:, 0]
    typical = median(table.log_s)
    others, others_up = median(width[:, 1:]), median(typical[:, 1:])
    wider = width[:, 0] - others
    up = typical[:, 0] - others_up
    times = limits.CONVOY_TIMES * (limits.CONVOY_SURER if s < limits.MANY else 1.0)
    flagged = (
        (width[:, 0] >= times * others)
        & (wider >= limits.OF_ONE + steps)
        & (up >= limits.SHOWS * wider)
        & bulk
        # Of copies that share a CPU the scheduler decides who comes through first.
        & ~(_usual_idle(table) >= 1 - limits.SAME)
    )
    for k in np.flatnonzero(flagged):
        apart = _apart_from_parts(residuals[k, 0], groups, machine)
        flagged[k] = apart >= max(times * others[k], limits.OF_ONE + steps[k])
    size[:, 0] = np.where(flagged, np.expm1(np.nan_to_num(up + width[:, 0] / 2)), 0.0)
    return StartUp("convoy", size > 0, size)


def _apart_from_parts(values: Floats, groups: Ints, machine: list[Part]) -> float:
    """Return how wide copies (S,) lie where the part that explains most is taken out."""
    widths = [np.inf]
    for part in machine:
        low, high = quantiles(group_centred(values, 2 * (groups + 1) + part.slots), 0.1, 0.9)
        widths.append(float(high - low))
    return min(widths)


def _usual_idle(table: Table) -> Floats:
    """Return by benchmark the share of the time (B,) that copies do not run after iteration 1."""
    idle = median(np.where(np.isnan(table.log_s), np.nan, table.idle))
    return np.maximum(0.0, median(idle[:, 1:]))


def _input_wait(table: Table, known: Bools) -> StartUp:
    """Find first iterations in which copies waited while their CPU did nothing."""
    b, i, _ = table.shape
    size = np.zeros((b, i))
    idle = median(np.where(np.isnan(table.log_s), np.nan, table.idle))
    if i > 1:
        usual = _usual_idle(table)
        more = idle[:, 0] - usual
        # Copies that share a CPU wait for it in every iteration: for what else can not be told.
        flagged = (more >= limits.IDLE) & (usual < 1 - limits.SAME) & ~known[:, 0]
        longer = more / np.maximum(1 - idle[:, 0], limits.IDLE)
        size[:, 0] = np.where(flagged, np.nan_to_num(longer), 0.0)
    elif b >= 3:
        calm = overall_median(idle[:, 0]) < limits.OF_ONE
        flagged = (idle[:, 0] >= limits.IDLE) & calm & (np.mean(idle[:, 0] >= limits.IDLE) <= 1 / 3)
        size[:, 0] = np.where(flagged, np.nan_to_num(idle[:, 0]), 0.0)
    return StartUp("input-wait", size > 0, size)


# -- Start-up, slow iterations and drift as hits ---------------------------------------------------


def startup_hits(
    table: Table, machine: list[Part], values: Floats, groups: Ints, steps: Floats
) -> tuple[list[Hit], Bools]:
    """Return start-up trouble and which cells (B, I) can be judged beyond it.

    Takes ramps out of `values`, in place. A cell with a ramp is not judged by parts: they start
    one after the other, and what a line leaves of a ramp would look like one.
    """
    judged = ~np.isnan(table.log_s).all(axis=2)
    hits = []
    there = ~np.isnan(table.log_s)
    for start in find_startup(table, machine, values, groups, steps):
        covered = there & start.cells[:, :, None]
        late = start.mode == "late-start"
        if start.effect is not None:
            effect = np.where(covered, start.effect, 0.0)
        else:
            # What all copies lost; which of them lost how much is the start-up's own pattern.
            lost = 0.0 if late else np.log1p(start.size)[:, :, None]
            effect = np.where(covered, lost, 0.0)
        hits.append(
            Hit(
                Kind.STARTUP,
                covered,
                effect,
                facts={"mode": start.mode},
                skew=start.size if late or start.effect is not None else None,
            )
        )
        if start.mode in ("convoy", "ramp"):
            judged &= ~start.cells
    return hits, judged


def iteration_hits(
    table: Table, hits: list[Hit], rest: Floats, noise: TimeNoise
) -> tuple[list[Hit], Floats]:
    """Return the hits with slow iterations and drift, and what is left of `rest` (B, I, S).

    Copies that kept their speed in a slow iteration are not judged there; a part that did
    is said there only.
    """
    fair = table.log_s - total_effect(table.shape, hits)
    for hit in hits:
        if hit.kind in (Kind.BIMODAL, Kind.WANDERING):
            # Which copies are in which mode changes the middle of all: the others have a level.
            moved = hit.covered & (hit.level != "turns")
            fair[moved] = np.nan
    started = np.zeros(rest.shape[:2], dtype=bool)
    for hit in hits:
        if hit.kind is Kind.STARTUP and hit.facts["mode"] in ("convoy", "input-wait", "ramp"):
            started |= hit.covered.any(axis=2)
    copies = np.sum(~np.isnan(table.log_s), axis=2).astype(np.float64)
    empty = np.isnan(table.log_s).all(axis=2)
    slow, drifts = find_iterations(_cell_levels(fair), noise, copies, empty | started)
    rest = rest.copy()
    made = []
    for one in slow:
        found = _iteration_hit(table, fair, one, rest, noise)
        if found is not None:
            made.append(found)
    return _with_spared(hits, made) + [_drift_hit(table, one) for one in drifts], rest


def _with_spared(hits: list[Hit], slow: list[Hit]) -> list[Hit]:
    """Return both; a part that kept its speed in a slow iteration is said there only."""
    gone: set[int] = set()
    for one in slow:
        cells = set(one.cells)
        for hit in hits:
            own = set(hit.cells)
            if (
                one.size <= 0
                or not hit.level
                or not own <= cells
                or len(own) < limits.MOST * len(cells)
                or abs(hit.size + one.size) > limits.SHOWS * one.size
            ):
                continue
            gone.add(id(hit))
            one.covered &= ~hit.covered
            one.effect = np.where(one.covered, one.effect, 0.0)
            one.facts["kept"] = float(one.facts["kept"]) + float(hit.slots.sum())
            if hit.level == "node":
                names = " ".join(str(name) for name in hit.groups)
                one.facts["spared"] = f"{one.facts.get('spared', '')} {names}".strip()
    return [hit for hit in hits if id(hit) not in gone] + slow


def _cell_levels(fair: Floats) -> Floats:
    """Return (B, I) cell medians, each copy against its own mean over the iterations.

    Where some copies failed, the median of the others is that of other copies: only
    those that are there every time count, unless they are less than half.
    """
    level = np.mean(fair, axis=1)  # (B, S) NaN where an iteration is missing
    own = median(fair - level[:, None, :]) + median(level)[:, None]
    present = np.sum(~np.isnan(fair).all(axis=1), axis=1)
    enough = 2 * np.sum(~np.isnan(level), axis=1) >= present
    return np.where(enough[:, None], own, median(fair))


def _iteration_hit(
    table: Table, fair: Floats, one: SlowIteration, rest: Floats, noise: TimeNoise
) -> Hit | None:
    """Return a slow iteration; None where most copies of its benchmark kept their speed."""
    covered = np.zeros(table.shape, dtype=bool)
    away, k = 0, one.iteration
    sizes = np.full(table.shape[0], np.nan)
    sizes[one.benchmark] = one.size
    if one.benchmark == ALL:
        sizes = np.array(one.sizes)
    for b in np.flatnonzero(~np.isnan(sizes)).tolist():
        there = ~np.isnan(table.log_s[b, k])
        if one.benchmark != ALL:
            own = typical_change(fair, b, k)
            stayed = unaffected_copies(own, one.size, float(noise.within_copy_sd[b])) & there
            known = there & ~np.isnan(own)  # not of copies that failed in the other iterations
            if stayed.sum() > limits.HALF * known.sum():
                return None
            rest[b, k, stayed] = np.nan
            away += int(stayed.sum())
            if known.any():
                sizes[b] += float(np.median(own[known & ~stayed]) - np.median(own[known]))
            there &= ~stayed
        covered[b, k] = there
    return Hit(
        Kind.SLOW_ITERATION,
        covered,
        np.where(covered, sizes[:, None, None], 0.0),
        everywhere=one.benchmark == ALL,
        facts={"agreeing": one.agreeing, "of": one.of, "kept": away},
    )


def _drift_hit(table: Table, drift: Drift) -> Hit:
    b, i, _ = table.shape
    covered = ~np.isnan(table.log_s)
    if drift.benchmark is not None:
        covered &= (np.arange(b) == drift.benchmark)[:, None, None]
    steps = drift.size / (i - 1) * (np.arange(i) if drift.size > 0 else np.arange(i) - i + 1)
    return Hit(
        Kind.DRIFT,
        covered,
        np.where(covered, steps[None, :, None], 0.0),
        everywhere=drift.benchmark is None,
        facts={"fit": drift.fit, "rise": drift.size},
    )
