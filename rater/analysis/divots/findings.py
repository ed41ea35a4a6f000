"""What the detector found as findings with names, costs and words; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots.candidates.state import LOCAL
from rater.analysis.divots.data import words
from rater.analysis.divots.data.candidate import Cost, Draft, cost_of, total_effect
from rater.analysis.divots.data.finding import CellEffect, Evidence, Finding, Kind, Single
from rater.analysis.divots.data.table import SEVERAL, UNKNOWN, Table
from rater.analysis.divots.detectors.layout import Predicted
from rater.analysis.divots.pipeline import Detected
from rater.analysis.divots.summary import OF_ALL, summary_of
from rater.analysis.stats.robust import Floats, Ints, normal_tail
from rater.text.cpuset import format_list

# A benchmark that the layout slows by so much more than the usual one is named.
_FAR, _MUCH_MORE = 1.5, 0.01


def findings_of(found: Detected) -> list[Finding]:
    """Return the findings, the most costly first, then the largest; explained ones at the end."""
    table = found.table
    total = total_effect(table, found.drafts)
    made = [_finding(found, draft, total) for draft in found.drafts]
    made.sort(key=_rank)
    return made + [_explained(table, one) for one in _joined(found.predicted)]


def _rank(one: Finding) -> tuple[float, float, str, str]:
    return (-round(one.cost, 6), -abs(math.log(one.slowdown)), one.kind, one.place)


def _finding(found: Detected, draft: Draft, total: Floats) -> Finding:
    table = found.table
    lost = cost_of(table, draft, total)
    cells = _cell_effects(table, draft, lost.cells)
    benchmarks = sorted({part.b for part in draft.parts})
    iterations = sorted({part.i for part in draft.parts})
    slots = np.flatnonzero(draft.slots)
    copies = sorted({int(c) for p in draft.parts for c in table.copy[p.b, p.i, p.slots]})
    # Where all of a CPU's copies failed nothing was seen of it.
    ran = ~np.isnan(table.log_s[tuple(np.array(sorted(set(draft.cells))).T)]).all(axis=0)
    cpus = sorted({int(u) for u in table.cpu[slots[ran[slots]]] if u != UNKNOWN})
    place = _place(table, draft, slots, cpus, copies)
    tunes = {table.benchmarks[b][1] for b in benchmarks}
    every = len(benchmarks) == table.shape[0]
    whole_run = every and (draft.benchmark_wide or draft.everywhere or len(benchmarks) > 1)
    kept_all = len(iterations) == table.shape[1] and draft.kind is not Kind.SLOW_ITERATION
    barrier = table.barrier
    return Finding(
        kind=draft.kind,
        place=place.name,
        benchmarks=() if whole_run else tuple(table.benchmarks[b][0] for b in benchmarks),
        tune=tunes.pop() if len(tunes) == 1 else None,
        iterations=()
        if kept_all and (len(iterations) > 1 or table.shape[1] > 1)
        else tuple(table.iterations[i] for i in iterations),
        copies=tuple(copies),
        cpus=tuple(cpus) if draft.kind not in OF_ALL and "moves" not in draft.facts else (),
        nodes=place.nodes,
        package=place.package,
        core=place.core,
        slowdown=math.exp(draft.size),
        score_lost=lost.whole if barrier else None,
        time_lost=None if barrier else lost.whole,
        explained=False,
        expectation=None,
        summary=summary_of(found, draft, benchmarks, iterations, copies),
        evidence=tuple(_evidence(table, draft, lost)),
        cells=cells,
        details=tuple(
            (name, value)
            for name, value in sorted(draft.facts.items())
            if isinstance(value, str) or math.isfinite(value)
        ),
        singles=_singles(table, draft) if draft.kind is Kind.OUTLIER_COPY else (),
    )


_TIME = "copies' time"
_NOTHING = 0.0005
_LIKELY = 0.05
_MOST_CPUS = 4


def _cell_effects(table: Table, draft: Draft, lost: Sequence[float]) -> tuple[CellEffect, ...]:
    made = []
    for part, share in zip(draft.parts, lost, strict=True):
        name, tune = table.benchmarks[part.b]
        size = float(np.median(part.effect)) if len(part.effect) else 0.0
        if draft.skew is not None:
            size = math.log1p(float(draft.skew[part.b, part.i]))
        made.append(CellEffect(name, tune, table.iterations[part.i], math.exp(size), share))
    return tuple(made)


def _singles(table: Table, draft: Draft) -> tuple[Single, ...]:
    return tuple(
        Single(
            *table.benchmarks[part.b],
            table.iterations[part.i],
            int(table.copy[part.b, part.i, s]),
            None if table.cpu[s] == UNKNOWN else int(table.cpu[s]),
            None if table.node[s] == UNKNOWN else int(table.node[s]),
            math.exp(float(e)),
        )
        for part in draft.parts
        for s, e in zip(part.slots, part.effect, strict=True)
    )


def _place(table: Table, draft: Draft, slots: Ints, cpus: list[int], copies: list[int]) -> _Place:
    """Return the smallest part of the machine that explains a finding, with its name."""
    if draft.kind in OF_ALL:
        return _Place("whole run" if draft.benchmark_wide else "all copies")
    if draft.kind is Kind.BIMODAL or draft.facts.keys() & {"spread", "moves"}:
        moves = "moves" in draft.facts
        return _Place(f"{words.copies(copies)}, wherever it ran" if moves else "some copies")
    nodes = tuple(sorted({int(n) for n in table.node[slots] if n != UNKNOWN}))
    package = _only(table.package[slots])
    if draft.members and draft.level == "node":
        return _Place(f"lgroups {format_list(draft.members)}", draft.members, package)
    if draft.level == "package":
        return _Place(f"package {draft.group}", nodes, draft.group)
    if draft.level:
        return _Place(_group_name(table, draft, slots, cpus, copies), nodes, package)
    few = bool(cpus) and len(cpus) <= _MOST_CPUS
    name = words.cpus(cpus) if few else words.copies(copies)
    if few and np.isin(table.cpu, cpus).sum() > len(slots):  # others there are as they should be
        name = f"{words.copies(copies)} ({name})"
    return _Place(name, nodes, package, _only(table.core[slots]))


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    nodes: tuple[int, ...] = ()
    package: int | None = None
    core: int | None = None


def _only(numbers: Ints) -> int | None:
    """Return the one number that all are, None for several or an unknown one."""
    first = int(numbers[0]) if len(numbers) else UNKNOWN
    return first if first != UNKNOWN and bool((numbers == first).all()) else None


def _group_name(table: Table, draft: Draft, slots: Ints, cpus: list[int], copies: list[int]) -> str:
    """Name a group by what its members share and the others do not."""
    node = _only(table.node[slots])
    if draft.level == "node":
        return f"lgroup {draft.group}"
    inside = node is not None and len(np.unique(table.node)) > 1
    if draft.level == "llc":
        which = f"LLCs {format_list(draft.members)}" if draft.members else f"LLC {draft.group}"
        return which + (f" (lgroup {node})" if inside else "")
    memory = _only(table.memory[slots])
    if draft.level == "node+memory" or (draft.level == "remote" and None not in (node, memory)):
        return f"{words.copies(copies)} (memory on node {memory}, CPUs on node {node})"
    if draft.level in ("remote", "memory"):
        own = "their own" if draft.group == LOCAL else "another"
        where = f"{own} node" if draft.level == "remote" else f"node {draft.group}"
        return f"{words.copies(copies)} (memory on {where})"
    if draft.level == "sharing":
        on = words.cpus(cpus) if cpus else words.copies(copies)
        return f"{on} (not explained by how many copies share a core)"
    part = words.cpus(cpus) if cpus and len(cpus) == len(slots) else words.copies(copies)
    return part + (f" of lgroup {node}" if inside else "")


def _evidence(table: Table, draft: Draft, lost: Cost) -> list[Evidence]:
    """Return what the times say; stored proof and samples add their own values."""
    made = []
    worst = max(lost.rates, default=0.0)
    if lost.whole < _NOTHING < max(lost.cells, default=0.0):
        text = "costs nothing of the score (another iteration stands), "
        text += f"{words.cost(max(lost.cells))} of that iteration's rate"
        made.append(Evidence("cost", text, 100.0))
    elif lost.whole > 0:
        text = f"costs {words.cost(lost.whole)} of the {'score' if table.barrier else _TIME}"
        if worst > 1.5 * lost.whole:
            of = "a rate" if table.barrier else "those of a benchmark"
            text += f", up to {words.cost(worst)} of {of}"
        made.append(Evidence("cost", text, 100.0))
    where = _memory_of(table, draft)
    if where is not None:
        made.append(Evidence("memory", f"its memory is on node {where}", 50.0))
    if "rank_z" in draft.facts:
        tests = table.shape[0] * max(1, len(np.unique(table.node)))
        p = min(1.0, tests * normal_tail(float(draft.facts["rank_z"])))
        if p < _LIKELY:  # ranks of two or three copies never say more
            at = words.chance(p) if p < 1e-6 else f"={words.chance(p)}"
            made.append(Evidence("chance", f"p{at} (Mann-Whitney)", 10.0))
    if "chance" in draft.facts:
        p = float(draft.facts["chance"])
        made.append(Evidence("chance", f"by chance in such a run: {words.chance(p)}", 10.0))
    return made


def _memory_of(table: Table, draft: Draft) -> int | None:
    """Return the node on which an lgroup's memory is, where that is not its own."""
    node, memory = _only(table.node[draft.slots]), _only(table.memory[draft.slots])
    if draft.level != "node" or node is None or memory is None or memory in (node, SEVERAL):
        return None
    others = ~draft.slots
    elsewhere = np.mean(table.memory[others] != table.node[others]) if others.any() else 1.0
    return memory if elsewhere < 1 else None


# -- explained ------------------------------------------------------------------------------------


def _joined(predicted: Sequence[Predicted]) -> list[Predicted]:
    """Return predictions with those of one sort and load as one."""
    kept: dict[tuple[str, float], Predicted] = {}
    for one in predicted:
        key = (one.what, one.load)
        known = kept.get(key)
        if known is None:
            kept[key] = one
        else:
            kept[key] = Predicted(
                one.what, known.slots | one.slots, known.effect, one.load, one.usual
            )
    return list(kept.values())


def _explained(table: Table, one: Predicted) -> Finding:
    slots = np.flatnonzero(one.slots)
    cpus = sorted({int(u) for u in table.cpu[slots] if u != UNKNOWN})
    copies = sorted({int(c) for c in np.unique(table.copy[:, :, slots]) if c >= 0})
    effects = one.effect[one.effect != 0]
    size = float(np.median(effects)) if len(effects) else 0.0
    far = int(np.argmax(np.abs(one.effect)))
    most = ""
    if len(effects) > 1 and abs(one.effect[far]) >= max(_FAR * abs(size), abs(size) + _MUCH_MORE):
        most = f"; {table.name(far)} {words.per_cent(math.exp(float(one.effect[far])))}"
    nodes = tuple(sorted({int(n) for n in table.node[slots] if n != UNKNOWN}))
    load, usual, who = f"{one.load:g}", f"{one.usual:g}", "most"
    if not float(one.usual).is_integer():  # the middle of two loads
        usual, who = "fewer" if one.load > one.usual else "more", "others"
    noun = "copy" if one.load == 1 else "copies"
    expectation = {
        "sharing-cpu": f"{load} {noun} on one CPU where most have {usual}",
        "sharing-core": f"{load} {noun} on one core where most cores have {usual}",
        "core-kind": "another kind of core",
        "lighter": "fewer copies beside them than elsewhere",
        "load": f"{load} {noun} on an lgroup where {who} have {usual}",
    }[one.what]
    return Finding(
        kind=Kind.LAYOUT,
        place=words.cpus(cpus) if cpus else words.copies(copies),
        benchmarks=(),
        tune=None,
        iterations=(),
        copies=tuple(copies),
        cpus=tuple(cpus),
        nodes=nodes if one.what == "load" else (),
        package=None,
        core=None,
        slowdown=math.exp(size),
        score_lost=0.0 if table.barrier else None,
        explained=True,
        expectation=expectation,
        summary=f"{words.per_cent(math.exp(size))} (median of the benchmarks{most})",
        evidence=(),
    )
