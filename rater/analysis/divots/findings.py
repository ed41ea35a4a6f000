"""What the model found as findings with names, costs and words; times in, divots out; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.causes import Hit, causes_of, startup_hits, told_once
from rater.analysis.divots.model.effects import PartScope
from rater.analysis.divots.model.families import LOCAL, NODE_SHIFT
from rater.analysis.divots.model.finding import (
    PLACED,
    Analysis,
    CellEffect,
    CopyEffect,
    Evidence,
    Finding,
    Kind,
    Thresholds,
)
from rater.analysis.divots.model.layout import LayoutEffect, could_make, node_counts
from rater.analysis.divots.model.search import Found, search
from rater.analysis.divots.model.table import (
    SEVERAL,
    UNKNOWN,
    Machine,
    Row,
    Table,
    build_table,
)
from rater.analysis.divots.model.times import visible_iteration
from rater.analysis.divots.summary import OF_ALL, summary_of
from rater.analysis.stats.robust import Bools, Floats, Ints, mean, median
from rater.text.cpuset import format_list

# -- What findings cost: the score worked out again without them -----------------------------------
#
# The score is the geometric mean over the benchmarks, of each the iteration that stands by
# SPEC's rule: of three the median, of two the slower. Where copies do not wait for each
# other (rotated order, steady mode) there is no bracket: all copies' time stands for it.


class Cost(Struct, frozen=True):
    """What one finding costs, as shares from 0 to 1."""

    whole: float  # of the run's score; without a barrier, of all copies' time
    share: float  # of the same, after what costs more has been taken away already
    rate: float  # of the result of the benchmark that loses most
    cells: dict[tuple[int, int], float]  # of the rate of each cell that it covers


def costs_of(table: Table, hits: list[Hit]) -> list[Cost]:
    """Return the cost of each hit.

    Each alone: 1 - score / (score with its effect taken away). The shares are those of
    taking them away one after the other, the most costly first: they add up to what all
    cost together.
    """
    log_s, start = table.log_s, np.nan_to_num(table.start_s)
    actual = _times(table, log_s, start)
    alone = [_times(table, *_without(log_s, start, hit)) for hit in hits]
    wholes = [_lost(table, actual, without) for without in alone]
    shares = [0.0] * len(hits)
    taken, late, lost = log_s, start, 0.0
    for place in sorted(range(len(hits)), key=lambda at: (-wholes[at], at)):
        taken, late = _without(taken, late, hits[place])
        now = max(lost, _lost(table, actual, _times(table, taken, late)))
        shares[place], lost = now - lost, now
    found = []
    for hit, without, whole, share in zip(hits, alone, wholes, shares, strict=True):
        rates = 1 - _results(without) / _results(actual)
        cells = {cell: max(0.0, 1 - float(without[cell] / actual[cell])) for cell in hit.cells}
        rate = float(np.nanmax(rates[hit.benchmarks], initial=0.0)) if hit.benchmarks else 0.0
        found.append(Cost(whole, share, max(0.0, rate), cells))
    return found


def noise_cost(table: Table, rest: Floats, promised: dict[str, float]) -> float | None:
    """Return what noise alone costs, 0 to 1: what nothing explains of the times, ln (B, I, S).

    Of each benchmark the iteration that stands. None where copies do not wait for each other, and
    where a place would have been named all the same.
    """
    if not table.barrier or any(name in promised for name in _PLACES):
        return None
    known = rest[~np.isnan(rest).all(axis=(1, 2))]
    if not len(known):
        return None
    slowest = np.max(np.where(np.isnan(known), -np.inf, known), axis=2)
    over = np.where(np.isfinite(slowest), slowest - median(known), np.nan)
    return max(0.0, 1 - math.exp(-float(np.mean(_results(over)))))


def _without(log_s: Floats, start: Floats, hit: Hit) -> tuple[Floats, Floats]:
    """Return ln times and starts with a hit's effect taken away; what is faster stays so."""
    # What gets faster was not slowed down before.
    falls = hit.kind is Kind.DRIFT and float(hit.facts["rise"]) < 0
    fair = log_s if falls else log_s - np.maximum(hit.effect, 0.0)
    if hit.skew is None or hit.effect.any():
        return fair, start
    late = hit.covered.any(axis=2)[:, :, None]
    known = np.where(np.isnan(log_s), np.inf, start)
    return fair, np.where(late, np.min(known, axis=2, keepdims=True), start)


def _times(table: Table, log_s: Floats, start: Floats) -> Floats:
    """Return (B, I) seconds of each cell: its bracket, without a barrier its copies' time."""
    elapsed = np.exp(log_s)
    if not table.barrier:
        return np.where(np.isnan(elapsed).all(axis=2), np.nan, np.nansum(elapsed, axis=2))
    known = ~np.isnan(elapsed)
    last = np.max(np.where(known, start + np.nan_to_num(elapsed), -np.inf), axis=2)
    first = np.min(np.where(known, start, np.inf), axis=2)
    return np.where(known.any(axis=2), np.maximum(last - first, 1e-9), np.nan)


def _results(seconds: Floats) -> Floats:
    """Return (B,) the time that stands: of three iterations the median, of two the slower."""
    ordered = np.sort(seconds, axis=1)
    count = np.sum(~np.isnan(seconds), axis=1)
    found: Floats = ordered[np.arange(len(ordered)), np.minimum(count // 2, len(ordered[0]) - 1)]
    return found


def _lost(table: Table, actual: Floats, without: Floats) -> float:
    """Return the share of the score, or of all copies' time, that is won without something."""
    if not table.barrier:
        return max(0.0, 1 - float(np.nansum(without) / np.nansum(actual)))
    ratio = np.log(_results(without) / _results(actual))
    return max(0.0, 1 - float(np.exp(mean(ratio))))


# -- What the model found as findings with names, costs and words ----------------------------------

_TIME = "copies' time"
_NOTHING = 0.0005
_PLACES = ("group", "group-benchmark", "cpu", "copy-benchmark", "copy")  # promises of them
_HASTY, _LEAST_OTHERS = 0.5, 2  # of any other's time, of so many others
_MOST_CPUS = 8
_SLACK = 0.01  # ln: what an emptier lgroup gains beyond its share of the load
_TOLD = 0.005  # ln: benchmarks in which the layout does so much are named
_ORDINALS = ("first", "second", "third", "fourth")


def build_findings(found: Found) -> list[Finding]:
    """Return the findings, the most costly first, explained ones last."""
    sized = [_with_sizes(hit, found.rest) for hit in causes_of(found)]
    hits = told_once([*sized, *startup_hits(found.table)])
    costs = costs_of(found.table, hits)
    made = [_finding(found, hit, cost) for hit, cost in zip(hits, costs, strict=True)]
    made.sort(key=lambda one: (one.explained, *_rank(one)))
    return [*made, *(_explained(found.table, one) for one in _joined(found.predicted))]


def _with_sizes(hit: Hit, left: Floats) -> Hit:
    """Return a hit, that of a part with its size in each cell; the model has one a benchmark.

    What the median of its copies lies above that of the others there, with all that is told of
    others taken away: a range over the iterations is of times that were.
    """
    if hit.kind not in PLACED or "moves" in hit.facts or len(hit.iterations) < 2:
        return hit
    inside = median(np.where(hit.covered, left, np.nan))
    more = np.nan_to_num(inside - median(np.where(hit.covered, np.nan, left)))[..., None]
    return replace(hit, effect=np.where(hit.covered, hit.effect + more, 0.0))


def _rank(one: Finding) -> tuple[float, float, str, str]:
    return (-round(one.cost, 6), -abs(math.log(one.slowdown)), one.kind, one.place)


def _finding(found: Found, hit: Hit, cost: Cost) -> Finding:
    table = found.table
    b, i, _ = table.shape
    benchmarks, iterations = hit.benchmarks, hit.iterations
    cpus, copies = _members(table, hit.slots, table.copy[hit.covered])
    place = _place(table, hit, cpus, copies)
    tunes = {table.benchmarks[one][1] for one in benchmarks}
    whole_run = len(benchmarks) == b and (hit.everywhere or b > 1)
    always = len(iterations) == i and hit.kind is not Kind.SLOW_ITERATION
    placed, size = hit.kind in PLACED, _size(hit)
    most, words = could_make(table, hit.slots, fast=hit.size < 0) if placed else (0.0, "")
    boost = size < 0 and most < 0 and size >= most - _SLACK
    evidence = _evidence(table, hit, cost)
    if words and most * size > 0:
        share = formatting.format_slowdown(math.exp(most))
        evidence.append(Evidence("layout", f"up to {share} could come from {words}", 60.0))
    return Finding(
        kind=hit.kind,
        place=place.name,
        benchmarks=() if whole_run else tuple(table.benchmarks[one][0] for one in benchmarks),
        tune=tunes.pop() if len(tunes) == 1 else None,
        iterations=() if always and i > 1 else tuple(table.iterations[one] for one in iterations),
        copies=copies,
        cpus=cpus if hit.kind not in OF_ALL and "moves" not in hit.facts else (),
        nodes=place.nodes,
        package=place.package,
        core=place.core,
        slowdown=math.exp(size),
        score_lost=cost.whole if table.barrier else None,
        time_lost=None if table.barrier else cost.whole,
        share_lost=cost.share,
        explained=boost,
        expectation=f"no more than {words} explain" if boost else None,
        summary=summary_of(table, hit),
        evidence=() if boost else tuple(evidence),
        cells=_cell_effects(table, hit, cost),
        details=tuple(
            (name, value)
            for name, value in sorted(hit.facts.items())
            if isinstance(value, str) or math.isfinite(value)
        ),
        singles=_singles(table, hit) if hit.kind in (Kind.OUTLIER_COPY, Kind.NO_PLACE) else (),
    )


def _size(hit: Hit) -> float:
    """Return the typical ln slowdown; of drift, from the first iteration to the last."""
    if "rise" in hit.facts:
        return float(hit.facts["rise"])
    return float(hit.facts.get("spread", hit.size))


def _cell_effects(table: Table, hit: Hit, cost: Cost) -> tuple[CellEffect, ...]:
    made = []
    for b, i in hit.cells:
        if hit.skew is not None:
            size = math.log1p(float(hit.skew[b, i]))
        else:
            size = float(np.median(hit.effect[b, i][hit.covered[b, i]]))
        cell = *table.benchmarks[b], table.iterations[i]
        made.append(CellEffect(*cell, math.exp(size), cost.cells[b, i]))
    return tuple(made)


def _singles(table: Table, hit: Hit) -> tuple[CopyEffect, ...]:
    return tuple(
        CopyEffect(
            *table.benchmarks[b],
            table.iterations[i],
            int(table.copy[b, i, s]),
            _only(table.cpu[s : s + 1]),
            _only(table.node[s : s + 1]),
            math.exp(float(hit.effect[b, i, s])),
        )
        for b, i, s in np.argwhere(hit.covered).tolist()
    )


# -- places ---------------------------------------------------------------------------------------


class _Place(NamedTuple):
    name: str
    nodes: tuple[int, ...] = ()
    package: int | None = None
    core: int | None = None


def _place(table: Table, hit: Hit, cpus: Sequence[int], copies: Sequence[int]) -> _Place:
    """Return the simplest part of the machine that a hit is of, with its name."""
    numbered = formatting.format_copies(copies)
    if hit.kind in (Kind.BIMODAL, Kind.NO_PLACE):
        return _Place("some copies" if hit.kind is Kind.BIMODAL else "no place")
    if hit.kind in OF_ALL:
        return _Place("whole run" if hit.everywhere else "all copies")
    if "moves" in hit.facts:
        return _Place(f"{numbered}, wherever it ran")
    nodes = tuple(sorted({int(n) for n in table.node[hit.slots] if n != UNKNOWN}))
    package, core = _only(table.package[hit.slots]), _only(table.core[hit.slots])
    if hit.level == "node":
        return _Place(_numbered("node", hit.groups), hit.groups, package)
    if hit.level == "package":
        return _Place(_numbered("package", hit.groups), nodes, hit.groups[0])
    return _Place(_group_name(table, hit, cpus, numbered), nodes, package, core)


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {format_list(numbers)}"


def _only(numbers: Ints) -> int | None:
    """Return the one number that all are, None for several or an unknown one."""
    first = int(numbers[0]) if len(numbers) else UNKNOWN
    return first if first != UNKNOWN and bool((numbers == first).all()) else None


def _group_name(table: Table, hit: Hit, cpus: Sequence[int], numbered: str) -> str:
    """Name copies by what they share and the others do not, else by their CPUs or numbers."""
    slots, level, group = hit.slots, hit.level, hit.groups[0] if hit.groups else UNKNOWN
    node, memory, several = _only(table.node[slots]), _only(table.memory[slots]), slots.sum() > 1
    if level == "node+memory":
        node, memory = divmod(group, NODE_SHIFT)
    elif level == "remote" and None not in (node, memory):
        level = "node+memory"
    elif level == "core" and len(cpus) == 1:  # its one CPU is what copies shared
        level = "cpu"
    lgroups = len(np.unique(table.node)) > 1
    inside = node is not None and lgroups
    on = formatting.format_cpus(cpus) if cpus else numbered
    half = "upper" if group % 2 else "lower"
    thread = _ORDINALS[group] if 0 <= group < len(_ORDINALS) else f"{group + 1}th"
    names = {
        "llc": _numbered("LLC", hit.groups) + (f" (node {node})" if inside else ""),
        "node+memory": f"{numbered} (memory on node {memory}, CPUs on node {node})",
        "remote": f"{numbered} (memory on {'their own' if group == LOCAL else 'another'} node)",
        "memory": f"{numbered} (memory on node {group})",
        "sharing": f"{on} (not explained by how many copies share a core)",
        "thread": f"{thread} threads of the cores ({on})",
        "half": f"{half} half of {'every' if lgroups else 'the'} NUMA node ({on})",
        "half of lgroup": f"{half} half of node {group // 2} ({on})",
        "cpu": f"{on} ({slots.sum()} copies)" if slots.sum() > len(cpus) else "",
        "core": f"{_numbered('core', hit.groups)} ({on})" if several else "",
    }
    if names.get(level):
        return names[level]
    if hit.kind is Kind.OUTLIER_COPY and len(cpus) > _MOST_CPUS:
        on = numbered
    elif cpus and np.isin(table.cpu, cpus).sum() > slots.sum():  # others there are as they should
        on = f"{numbered} ({on})"
    of_node = inside and level in ("set", "run") and several and cpus
    return f"{on} of node {node}" if of_node else on


def _evidence(table: Table, hit: Hit, cost: Cost) -> list[Evidence]:
    """Return what the times say; stored proof and samples add their own values."""
    made, text = [], ""
    most = max(cost.cells.values(), default=0.0)
    if cost.whole < _NOTHING < most and len(hit.iterations) < table.shape[1]:
        text = "costs nothing of the score (the median iteration counts), "
        text += f"{formatting.format_cost(most)} of that iteration's rate"
    elif cost.whole > 0:
        of, rate = ("score", "a rate") if table.barrier else (_TIME, "those of a benchmark")
        text = f"costs {formatting.format_cost(cost.whole)} of the {of}"
        if cost.rate > 1.5 * cost.whole:
            text += f", up to {formatting.format_cost(cost.rate)} of {rate}"
    elif hit.size > 0 and table.barrier and table.copies > 1:
        why = "it only got faster" if hit.kind is Kind.DRIFT else "slower copies are waited for"
        text = f"costs nothing: {why}"
    if text:
        made.append(Evidence("cost", text, 100.0))
    hasty = _hasty(table, hit)
    if hasty:
        text = f"{formatting.format_copies(hasty)} took less than half of any other's time"
        made.append(Evidence("output", f"{text}: check its output", 90.0))
    where = _memory_of(table, hit)
    if where is not None:
        made.append(Evidence("memory", f"its memory is on node {where}", 50.0))
    return made


def _hasty(table: Table, hit: Hit) -> list[int]:
    """Return the fast copies that took less than half of the time of all others in their cell.

    No machine makes one of its copies twice as fast as each of the others: it did not do its work.
    """
    found: set[int] = set()
    for cell in hit.cells if hit.size < 0 else ():
        times, covered = np.exp(table.log_s[cell]), hit.covered[cell]
        others = times[~covered & ~np.isnan(times)]
        if len(others) >= _LEAST_OTHERS:
            hasty = covered & (times < _HASTY * others.min())
            found |= {int(c) for c in table.copy[cell][hasty]}
    return sorted(found)


def _memory_of(table: Table, hit: Hit) -> int | None:
    """Return the node on which an lgroup's memory is, where that is not its own."""
    slots = hit.slots
    node, memory = _only(table.node[slots]), _only(table.memory[slots])
    if hit.level != "node" or node is None or memory is None or memory in (node, SEVERAL):
        return None
    elsewhere = np.mean(table.memory[~slots] != table.node[~slots]) if (~slots).any() else 1.0
    return memory if elsewhere < 1 else None


# -- explained ------------------------------------------------------------------------------------
def _joined(predicted: Sequence[LayoutEffect]) -> list[LayoutEffect]:
    kept: dict[tuple[str, float], LayoutEffect] = {}
    for one in predicted:
        known = kept.setdefault((one.what, one.load), one)
        kept[one.what, one.load] = replace(known, slots=known.slots | one.slots)
    return list(kept.values())


def _explained(table: Table, one: LayoutEffect) -> Finding:
    rows = np.abs(one.effect) >= _TOLD
    covered = rows[:, None, None] & one.slots & ~np.isnan(table.log_s)
    hit = Hit(Kind.LAYOUT, covered, np.where(covered, one.effect[:, None, None], 0.0))
    slots = np.flatnonzero(one.slots)
    cpus, copies = _members(table, slots, table.copy[:, :, slots])
    nodes = tuple(sorted({int(n) for n in table.node[slots] if n != UNKNOWN}))
    load, usual, who = f"{one.load:g}", f"{one.baseline:g}", "most"
    if one.what == "load" and one.baseline not in node_counts(table):  # the middle of two
        usual, who = "fewer" if one.load > one.baseline else "more", "others"
    noun = "copy" if one.load == 1 else "copies"
    expectation = {
        "sharing-cpu": f"{load} {noun} on one CPU where most have {usual}",
        "sharing-core": f"{load} {noun} on one core where most cores have {usual}",
        "core-kind": "another kind of core",
        "lighter": "fewer copies beside them than elsewhere",
        "load": f"{load} {noun} on a NUMA node where {who} have {usual}",
    }[one.what]
    return Finding(
        kind=Kind.LAYOUT,
        place=formatting.format_cpus(cpus) if cpus else formatting.format_copies(copies),
        benchmarks=() if rows.all() else tuple(table.benchmarks[b][0] for b in hit.benchmarks),
        tune=None,
        iterations=(),
        copies=copies,
        cpus=cpus,
        nodes=nodes if one.what == "load" else (),
        package=None,
        core=None,
        slowdown=math.exp(hit.size),
        score_lost=0.0 if table.barrier else None,
        explained=True,
        expectation=expectation,
        summary=summary_of(table, hit),
        evidence=(),
    )


def _members(
    table: Table, slots: Ints | Bools, copies: Ints
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the CPUs of slots and the copies that are known, ascending."""
    cpus = np.unique(table.cpu[slots])
    known = np.unique(copies)
    return tuple(cpus[cpus != UNKNOWN].tolist()), tuple(known[known >= 0].tolist())


# -- What the run could show: what a part must differ by to be told, with the chance in it ---------

_FOUND: Final = 0.8  # of those that are so large
_MOST_TOLD: Final = 0.5  # ln(1.65): larger is no promise, nothing was told from the noise
_SAMPLED: Final = 48  # parts and rows that stand for all
_HALVINGS: Final = 10
_GROUPS: Final = ("node", "package", "llc", "memory")


def visible(found: Found) -> dict[str, float]:
    """Return the slowdowns found four times in five, as shares (0.006 is 0.6 %), by what is slow.

    `group`: the smallest lgroup (or what else divides the copies) in all benchmarks;
    `group-benchmark`: one in any one benchmark; `cpu`: a CPU in all of the run; `copy-benchmark`: a
    copy in all iterations of one benchmark; `copy`: one in any one cell; `iteration`: a slow
    iteration of all benchmarks. Missing where nothing could be told from the noise.
    """
    scopes = {(one.family.kind, one.name): one for one in found.scopes}
    kind = next((it for it in _GROUPS if (it, "one") in scopes), "")
    b, i, _ = found.table.shape
    wanted = {
        "group": scopes.get((kind, "all" if b > 1 else "one")),
        "group-benchmark": scopes.get((kind, "one")),
        "cpu": scopes.get(("copy", "all" if b > 1 else "one")),
        "copy-benchmark": scopes.get(("copy", "one")) if b > 1 and i > 1 else None,
        "copy": scopes.get(("copy", "cell" if i > 1 else "one")),
    }
    sizes = {name: _of(one) for name, one in wanted.items() if one is not None}
    iteration = visible_iteration(found.over_time, found.effects)
    if iteration is not None:
        sizes["iteration"] = iteration
    return {name: math.expm1(size) for name, size in sizes.items() if size <= _MOST_TOLD}


def _of(scope: PartScope) -> float:
    """Return the size (ln) with which most of the smallest parts are found."""
    smallest = np.flatnonzero(scope.family.sizes == scope.family.sizes.min())
    rows, parts = np.meshgrid(np.arange(len(scope.d)), smallest, indexing="ij")
    step = max(1, rows.size // _SAMPLED)
    at = (rows.ravel()[::step], parts.ravel()[::step])
    price = scope.price + (math.log(2) if scope.name == "one" and len(scope.d) > 1 else 0.0)
    least = np.maximum(_thresholds(scope, at, price), scope.floor)
    error = scope.error[at]
    low, high = float(least.min()), float(least.max() + 6 * error.max())
    for _ in range(_HALVINGS):
        size = (low + high) / 2
        seen = np.mean([NormalDist().cdf(z) for z in ((size - least) / error).tolist()])
        low, high = (low, size) if seen >= _FOUND else (size, high)
    return high


def _thresholds(scope: PartScope, at: tuple[Ints, Ints], price: float) -> Floats:
    low, high = np.zeros(len(at[0])), np.full(len(at[0]), 2 * _MOST_TOLD)
    for _ in range(_HALVINGS):
        size = (low + high) / 2
        told = scope.evidence(size, at) > price
        low, high = np.where(told, low, size), np.where(told, size, high)
    return high


# -- A run's times in, its divots out --------------------------------------------------------------


def analyse(
    chunks: Iterable[Sequence[Row]],
    benchmarks: Sequence[tuple[str, str | None]],
    thresholds: Thresholds,
    *,
    core_pus: Sequence[tuple[int, int]] = (),
    barrier: bool = True,
    staggered: bool = False,
) -> Analysis:
    """Return the divots of a run given as rows (`Row`).

    `benchmarks` are those that the rows number, with their tunes; `barrier`: all
    copies run one benchmark at a time; `staggered`: started one after the other on
    purpose. A run without a copy that ended well has no findings and shows nothing.
    """
    machine, parts = Machine(tuple(core_pus)), tuple(chunks)
    table = build_table(parts, benchmarks, machine=machine, barrier=barrier, staggered=staggered)
    if table is None:
        return Analysis((), {}, sum(len(part) for part in parts))
    found = search(table, thresholds)
    promised = visible(found)
    alone = noise_cost(table, found.rest, promised) if found.scopes else None
    return Analysis(tuple(build_findings(found)), promised, table.failed, noise_cost=alone)
