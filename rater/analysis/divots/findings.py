"""What the detector found as findings with names, costs and words; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rater.analysis.divots import words
from rater.analysis.divots.detect import Detected
from rater.analysis.divots.drafts import Draft, rates_lost, score_lost, total_effect
from rater.analysis.divots.layout import Predicted
from rater.analysis.divots.robust import Floats, Ints, middle, normal_tail
from rater.analysis.divots.table import UNKNOWN, Table
from rater.analysis.finding import CellEffect, Evidence, Finding, Kind, Single

_MODES = {
    "late-start": "the last copy started late",
    "ramp": "the later a copy started, the longer it took",
    "convoy": "the copies came through the start one after another",
    "input-wait": "copies had to wait, and computed less of the time",
}


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
    lost = rates_lost(table, draft, total)
    cells = _cell_effects(table, draft, lost)
    benchmarks = sorted({part.b for part in draft.parts})
    iterations = sorted({part.i for part in draft.parts})
    slots = np.flatnonzero(draft.slots)
    copies = sorted({int(c) for p in draft.parts for c in table.copy[p.b, p.i, p.slots]})
    cpus = sorted({int(u) for u in table.cpu[slots] if u != UNKNOWN})
    place = _place(table, draft, slots, cpus, copies)
    tunes = {table.benchmarks[b][1] for b in benchmarks}
    every = len(benchmarks) == table.shape[0]
    whole_run = every and (draft.benchmark_wide or draft.everywhere or len(benchmarks) > 1)
    kept_all = len(iterations) == table.shape[1] and draft.kind is not Kind.SLOW_ITERATION
    score = score_lost(table, lost)
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
        cpus=tuple(cpus) if draft.kind not in _WHOLE else (),
        nodes=place.nodes,
        package=place.package,
        core=place.core,
        slowdown=math.exp(draft.size),
        score_lost=score if barrier else None,
        time_lost=None if barrier else score,
        explained=False,
        expectation=None,
        summary=_summary(found, draft, benchmarks, iterations, copies),
        evidence=tuple(_evidence(table, draft, lost, score)),
        cells=cells,
        details=tuple(
            (name, value)
            for name, value in sorted(draft.facts.items())
            if isinstance(value, str) or math.isfinite(value)
        ),
        singles=_singles(table, draft) if draft.kind is Kind.OUTLIER_COPY else (),
    )


_TIME = "copies' time"
_MOST_NAMES = 5
_MOST_CPUS = 4
_WHOLE = (Kind.SLOW_ITERATION, Kind.DRIFT, Kind.STARTUP, Kind.WANDERING)


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
    if draft.kind in _WHOLE:
        return _Place("whole run" if draft.benchmark_wide else "all copies")
    if draft.kind is Kind.BIMODAL:
        return _Place("some copies")
    nodes = tuple(sorted({int(n) for n in table.node[slots] if n != UNKNOWN}))
    package = _only(table.package[slots])
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
        return f"LLC {draft.group}" + (f" (lgroup {node})" if inside else "")
    if draft.level == "node+memory":
        memory = _only(table.memory[slots])
        return f"{words.copies(copies)} (memory on node {memory}, CPUs on node {node})"
    if draft.level == "memory":
        return f"{words.copies(copies)} (memory on node {draft.group})"
    if draft.level == "sharing":
        on = words.cpus(cpus) if cpus else words.copies(copies)
        return f"{on} (not explained by how many copies share a core)"
    part = words.cpus(cpus) if cpus and len(cpus) == len(slots) else words.copies(copies)
    return part + (f" of lgroup {node}" if inside else "")


def _summary(
    found: Detected, draft: Draft, benchmarks: list[int], iterations: list[int], copies: list[int]
) -> str:
    """Return what happened to whom: benchmarks, size, how many of how many."""
    names = [found.table.name(b) for b in benchmarks]
    which = words.named(names, found.table.shape[0])
    size = words.per_cent(math.exp(draft.size))
    if draft.kind in (*_WHOLE, Kind.BIMODAL):
        return _of_whole(found.table, draft, which, size, iterations)
    if "repeat" in draft.facts or "showing" in draft.facts:
        return _every_time(found.table, draft, which, names, len(copies))
    if draft.kind is Kind.OUTLIER_COPY:
        part = draft.parts[0]
        whole = int(np.sum(~np.isnan(found.table.log_s[part.b, part.i])))
        how = words.sizes([math.exp(float(e)) for e in part.effect])
        where = _in_iterations(found.table, iterations)
        return f"{which}{where}: {len(part.slots)} of {whole} copies {how}"
    return f"{which} {size} ({_how_many(found, draft)})"


def _of_whole(table: Table, draft: Draft, which: str, size: str, iterations: list[int]) -> str:
    """Return the words for what concerns all copies, or two sorts of them."""
    facts = draft.facts
    if draft.kind is Kind.SLOW_ITERATION:
        stayed, slow = int(facts.get("kept", 0)), int(draft.slots.sum())
        but = f", {stayed} of {stayed + slow} copies kept their speed" if stayed else ""
        return f"iteration {table.iterations[iterations[0]]}: {which} {size} over the others{but}"
    if draft.kind is Kind.WANDERING:
        return f"{which}: the lgroups take turns, {_turns(table, str(facts['turns']))}"
    if draft.kind is Kind.DRIFT:
        return f"{which} {size} from the first to the last of {table.shape[1]} iterations"
    if draft.kind is Kind.STARTUP:
        where = _in_iterations(table, iterations)
        return f"{which}{where}: start-up ({_MODES[str(facts['mode'])]}), {size} of the median time"
    same = ", the same copies every time" if facts.get("same") else ""
    return (
        f"{which}: two groups of copies, {float(facts['share']) * 100:.0f} % of them {size}{same}; "
        "not by lgroup or CPU"
    )


def _every_time(table: Table, draft: Draft, which: str, names: Sequence[str], copies: int) -> str:
    """Return the words for copies that are off in several benchmarks, or in every iteration."""
    facts, of = draft.facts, table.shape[0]
    how, again = words.per_cent(math.exp(draft.size)), ""
    if "repeat" in facts:
        how = words.sizes([math.exp(float(facts[end])) for end in ("low", "high")])
        again = f", every iteration alike (to {float(facts['repeat']) * 100:.1f} %)"
    if "showing" not in facts:
        return f"{which}: {copies} of {table.copies} copies {how}{again}"
    some = f" ({', '.join(names)})" if len(names) < of and len(names) <= _MOST_NAMES else ""
    return f"{how} in {int(facts['showing'])} of {int(facts['of'])} benchmarks{some}{again}"


def _turns(table: Table, told: str) -> str:
    """Return `iteration 1: lgroup 2 +1.9 %; ...` of a wandering's facts."""
    by_iteration: dict[int, list[str]] = {}
    for item in told.split():
        k, name, effect = item.split(":")
        size = words.per_cent(math.exp(float(effect)))
        by_iteration.setdefault(int(k), []).append(f"lgroup {name} {size}")
    return "; ".join(
        f"iteration {table.iterations[k]}: {', '.join(parts)}" for k, parts in by_iteration.items()
    )


def _in_iterations(table: Table, iterations: Sequence[int]) -> str:
    if table.shape[1] < 2 or len(iterations) == table.shape[1]:
        return ""
    numbers = [table.iterations[i] for i in iterations]
    return f" {'iteration' if len(numbers) == 1 else 'iterations'} " + ",".join(map(str, numbers))


def _how_many(found: Detected, draft: Draft) -> str:
    """Return `8 of 8 copies, 3 of 3 iterations`."""
    table = found.table
    size = int(draft.slots.sum())
    showing = []
    for part in draft.parts:
        left = found.residuals[part.b, part.i]
        usual = middle(np.delete(left, part.slots)) if len(part.slots) < len(left) else 0.0
        over = np.sign(draft.size) * (left[part.slots] + part.effect - np.nan_to_num(usual))
        half = over > np.abs(part.effect) / 2
        showing.append(int(np.sum(half)))
    copies = int(np.median(showing)) if showing else 0
    text = f"{copies} of {size} copies"
    if table.shape[1] > 1:
        count = len({part.i for part in draft.parts})
        text += f", {count} of {table.shape[1]} iterations"
    return text


def _evidence(table: Table, draft: Draft, lost: Sequence[float], score: float) -> list[Evidence]:
    """Return what the times say; stored proof and samples add their own values."""
    made = []
    if score > 0:
        worst, several = max(lost), len(lost) > 1
        text = f"costs {words.cost(score)} of the {'score' if table.barrier else _TIME}"
        if several or worst > 1.5 * score:
            of = "a rate" if table.barrier else "those of a benchmark"
            text += f", up to {words.cost(worst)} of {of}"
        made.append(Evidence("cost", text, 100.0))
    if "rank_z" in draft.facts:
        tests = table.shape[0] * max(1, len(np.unique(table.node)))
        p = min(1.0, tests * normal_tail(float(draft.facts["rank_z"])))
        made.append(Evidence("chance", f"p={words.chance(p)} (Mann-Whitney)", 10.0))
    if "chance" in draft.facts:
        p = float(draft.facts["chance"])
        made.append(Evidence("chance", f"by chance in such a run: {words.chance(p)}", 10.0))
    return made


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
    nodes = tuple(sorted({int(n) for n in table.node[slots] if n != UNKNOWN}))
    load, usual = f"{one.load:g}", f"{one.usual:g}"
    expectation = {
        "sharing-cpu": f"{load} copies on one CPU where most have {usual}",
        "sharing-core": f"{load} copies on one core where most cores have {usual}",
        "core-kind": "another kind of core",
        "lighter": "fewer copies beside them than elsewhere",
        "load": f"{load} copies on an lgroup where most have {usual}",
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
        summary=f"{words.per_cent(math.exp(size))} (median of the benchmarks)",
        evidence=(),
    )
