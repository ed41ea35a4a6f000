"""Effects of the model joined to causes: which kind each is, where and in which cells; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field

from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.search import Found
from rater.analysis.divots.model.table import UNKNOWN, DivotEffect, Table
from rater.analysis.stats.robust import Bools, Floats, median, overall_median

_ALIKE: Final = 1.6  # times at most: two sizes of one cause
_UNDONE: Final = 0.25  # of a size at most is left where something kept its speed
_MOST: Final = 0.7  # of the benchmarks
_SAME_CELLS: Final = 0.6  # of the cells of two effects together
_FEW: Final = 0.2  # of the copies: fewer are single ones, more are a sort
_FEW_OF_CORE: Final = 2  # copies of a core: its copies, as others are
_SIDES: Final = 0.85  # of an lgroup's copies: it is as a whole
_EACH: Final = 5  # copies at least have such cells: one that has more of them is at fault
_RANDOM: Final = 4  # cells with a slow copy, another one each time: no place is at fault
_LATE: Final = 0.015  # of the time: the default threshold of groups
_IDLE: Final = 0.05  # share of the time that a CPU did nothing
_CALM: Final = 0.02  # of it that the other benchmarks have at most
_SHARED: Final = 0.15  # of it in later iterations: copies wait for a CPU that they share
# A program's first start reads it and its libraries, 20 MB at 1 GB/s: that is no fault of a run.
FIRST_READ_S: Final = 0.02


class Cause(Struct, eq=False, kw_only=True):
    """What is slow with array indices instead of names."""

    kind: Kind
    covered: Bools  # (B, I, S) the copy runs that it is about
    effect: Floats  # (B, I, S) ln slowdown, 0 elsewhere
    level: str = ""  # what its copies share: node, package, llc, cpu, core, thread, ...
    groups: tuple[int, ...] = ()  # which of that level
    everywhere: bool = False  # all benchmarks by one difference
    facts: dict[str, float | str] = field(default_factory=dict)
    # What it costs, as shares: of the score (without a barrier, of all copies' time), of the same
    # beyond what costs more, of the benchmark that loses most, and of each cell.
    lost: float = 0.0
    share_lost: float | None = None
    rate_lost: float = 0.0
    cells_lost: dict[tuple[int, int], float] = field(default_factory=dict)

    @property
    def benchmarks(self) -> list[int]:
        """Indices of the benchmarks that it covers, ascending."""
        return [int(b) for b in np.flatnonzero(self.covered.any(axis=(1, 2)))]

    @property
    def iterations(self) -> list[int]:
        """Indices of the iterations that it covers, ascending."""
        return [int(i) for i in np.flatnonzero(self.covered.any(axis=(0, 2)))]

    @property
    def slots(self) -> Bools:
        """Slots (S,) that it covers anywhere."""
        found: Bools = self.covered.any(axis=(0, 1))
        return found

    @property
    def cells(self) -> list[tuple[int, int]]:
        """Benchmark and iteration of all that it covers."""
        return [(int(b), int(i)) for b, i in np.argwhere(self.covered.any(axis=2))]

    @property
    def size(self) -> float:
        """Typical ln slowdown: the median of its benchmarks, of each the median copy run."""
        each = [np.median(self.effect[b][self.covered[b]]) for b in self.benchmarks]
        return float(np.median(each))


type _Group = list[DivotEffect]  # of one cause


def causes_of(found: Found) -> list[Cause]:
    """Return one for each cause, in no order.

    What kept its speed in a slow part or iteration is no cause but an exception to that.
    """
    groups = _joined(found.effects)
    whole = [
        next((it for it in groups if it is not one and _takes_back(one, it)), None)
        for one in groups
    ]
    pairs = list(zip(groups, whole, strict=True))
    causes = []
    for group in _without_place(found.table, [one for one, of in pairs if of is None]):
        cause = _cause(found, group)
        for exception in (one for one, of in pairs if of is group):
            cause.covered &= ~(_cells(exception)[:, :, None] & _slots(exception))
            cause.facts["kept"] = 1.0
            cause.effect = np.where(cause.covered, cause.effect, 0.0)
        causes.append(cause)
    return causes


def _takes_back(group: _Group, whole: _Group) -> bool:
    """Tell whether a cause undoes another for some of its copies or iterations."""
    one, other = group[0], whole[0]
    if one.slots.ndim > 1 or other.slots.ndim > 1 or "gradient" in (one.kind, other.kind):
        return False
    inner, outer, mine, its = _cells(group), _cells(whole), _slots(group), _slots(whole)
    if one.kind == "iterations" or (mine & ~its).any() or (inner & ~outer).any():
        return False
    few = 2 * inner.sum() * mine.sum() <= outer.sum() * its.sum()
    return bool(few and abs(one.typical + other.typical) < _UNDONE * abs(other.typical))


# -- which effects are one cause -------------------------------------------------------------------


def _cells(group: _Group) -> Bools:
    found: Bools = np.any([one.cells for one in group], axis=0)
    return found


def _slots(group: _Group) -> Bools:
    flat = [one.slots.reshape(-1, one.slots.shape[-1]).any(axis=0) for one in group]
    found: Bools = np.any(flat, axis=0)
    return found


def _usual(group: _Group) -> float:
    """Return the middle size of its benchmarks, of each the mean of different copies."""
    total = np.sum([one.size for one in group], axis=0)
    return float(np.median(total[total != 0])) / len({one.slots.tobytes() for one in group})


def _sort(one: DivotEffect) -> str:
    few = one.kind in ("core", "cpu") and one.slots.sum() <= _FEW_OF_CORE
    return "copy" if few or one.kind == "copies" else one.kind


def _joined(effects: Sequence[DivotEffect]) -> list[_Group]:
    """Return effects by cause: of the same copies, then of others in the same cells by as much."""
    groups: list[_Group] = []
    for one in effects:
        same = next((it for it in groups if _same_part(it[0], one, effects)), None)
        if same is None:
            groups.append([one])
        else:
            same.append(one)
    joined: list[_Group] = []
    for group in groups:
        whole = next((it for it in joined if _same_cause(group, it)), None)
        if whole is None:
            joined.append(group)
        else:
            whole += group
    return joined


def _same_part(first: DivotEffect, one: DivotEffect, effects: Sequence[DivotEffect]) -> bool:
    """Tell whether effects are of the same copies, or iterations, and go one way."""
    if _sort(first) != _sort(one):
        return False
    if one.kind == "iterations":
        if first.at != one.at:
            return False
        # A cold start, or a slow iteration of all, costs each benchmark something else.
        wide = (
            np.any([effect.benchmarks for effect in effects if effect.at == one.at], axis=0).mean()
            >= _MOST
        )
        alike = 1 / _ALIKE < first.typical / one.typical < _ALIKE
        return bool(one.when[0] > 0 or wide or alike)
    if not np.array_equal(first.slots, one.slots):
        return False
    if first.typical * one.typical > 0:
        return True
    inside = one.scope == "cell" != first.scope and not (one.benchmarks & ~first.benchmarks).any()
    left = abs(first.typical + one.typical)  # the second only makes the first less
    return inside and left >= _UNDONE * abs(first.typical) > _UNDONE * abs(one.typical)


def _same_cause(group: _Group, other: _Group) -> bool:
    """Tell whether causes are one: other parts of a sort in the same cells, by as much."""
    one, two = group[0], other[0]
    if _sort(one) != _sort(two) or one.kind in ("iterations", "gradient", "moving"):
        return False
    if one.slots.ndim > 1 or two.slots.ndim > 1:
        return False
    a, b, p, q = _cells(group), _cells(other), _usual(group), _usual(other)
    alike = (a & b).sum() >= _SAME_CELLS * (a | b).sum() and p * q > 0
    apart = one.scope == "cell" or not (_slots(group) & _slots(other)).any()
    return bool(alike and max(p / q, q / p) <= _ALIKE and apart)


def _without_place(table: Table, groups: list[_Group]) -> list[_Group]:
    """Return causes with what is in no place as one: lgroups in turn, one random copy in cells."""
    slow = [
        group
        for group in groups
        if group[0].typical > 0 and all(one.scope == "cell" for one in group)
    ]
    for b in range(table.shape[0]):
        turns = [
            it
            for it in slow
            if _node(table, it)
            and all(np.flatnonzero(one.benchmarks).tolist() == [b] for one in it)
        ]
        when = {int(one.when.argmax()) for turn in turns for one in turn}
        if len({_node(table, turn) for turn in turns}) > 1 < len(when):
            groups = _united(groups, turns)
    lone = [it for it in slow if it[0].kind in ("copy", "copies")]
    count = sum(int(_cells(it).sum()) for it in lone)
    lone = [it for it in lone if _cells(it).sum() <= max(2, count // _EACH)]
    several = len(lone) >= _RANDOM - 1 and np.any([_cells(it) for it in lone], axis=0).sum()
    return _united(groups, lone) if several >= _RANDOM else groups


def _united(groups: list[_Group], some: list[_Group]) -> list[_Group]:
    rest = [group for group in groups if not any(group is one for one in some)]
    return [*rest, [one for it in some for one in it]]


# -- what a cause is -------------------------------------------------------------------------------


def _cause(found: Found, group: _Group) -> Cause:
    table, first = found.table, max(group, key=lambda one: one.gain)
    cause = drawn(table, group)
    single = first.kind in ("copy", "copies")
    scattered = single and len(group) > 1 and _apart(group)
    if first.kind == "iterations":
        cause.kind = _kind_over_time(first)
        cause.facts = {"rise": first.typical} if cause.kind is Kind.DRIFT else {}
    elif first.kind == "gradient":
        known = not np.isnan(table.start_s).all() and np.ptp(np.nan_to_num(table.start_s)) > 0
        ramp = known and first.typical > 0 and table.barrier
        cause.kind = Kind.STARTUP if ramp else Kind.GRADIENT
        cause.facts = {"rise": first.typical, **({"mode": "ramp"} if ramp else {})}
    elif first.kind == "unsettled":
        _come_through_start(table, cause)
    elif first.kind == "moving":
        cause.facts, cause.level = {"moves": 1.0}, "copy"
    elif scattered or first.slots.ndim > 1 or (_node(table, group[:1]) and _in_turn(group)):
        _describe_changing(table, cause, scattered=scattered)
    else:
        _describe_part(found, cause, group)
    return cause


def drawn(table: Table, group: _Group) -> Cause:
    """Return the copy runs that effects cover, with what they do to each."""
    there = ~np.isnan(table.log_s)
    effect, covered = np.zeros(table.shape), np.zeros(table.shape, dtype=bool)
    for one in group:
        rows, slots, when = np.flatnonzero(one.benchmarks), one.slots, one.when
        its = (when != 0) | (one.scope == "trend")
        side = 0.5 if one.typical > 0 else -0.5  # over what the fastest end could do
        slots = slots + side if one.kind == "gradient" else slots
        when = when + side if one.scope == "trend" else when
        own = slots[rows] if slots.ndim == 3 else slots
        effect[rows] += one.size[rows][:, None, None] * when[None, :, None] * own
        covered[rows] |= its[None, :, None] & (
            (own != 0) | (one.kind in ("gradient", "iterations"))
        )
    covered &= there
    always = any(one.scope == "all" and (one.when != 0).all() for one in group)
    return Cause(
        kind=Kind.OUTLIER_COPY,
        covered=covered,
        effect=np.where(covered, effect, 0.0),
        everywhere=always,
    )


def _describe_changing(table: Table, cause: Cause, *, scattered: bool) -> None:
    """Say what is slow in other copies each time: lgroups in turn, one by chance, or a sort."""
    there = ~np.isnan(table.log_s) & cause.covered.any(axis=2)[..., None]
    if not scattered and (turns := _turns(table, cause)):
        cause.kind, cause.level, cause.facts = Kind.WANDERING, "turns", {"turns": turns}
    elif scattered or np.median(cause.covered.sum(axis=2)[there.any(axis=2)]) <= 1:
        cause.kind, cause.level = Kind.NO_PLACE, "random"
    else:
        cause.kind, cause.level = Kind.BIMODAL, "modes"
        cause.facts = {"share": float(cause.covered.sum()) / max(1, int(there.sum()))}


def _node(table: Table, group: _Group) -> str:
    """Return the lgroup whose copies a cause is of, all of them and no others; else empty."""
    slots = _slots(group)
    nodes = np.unique(table.node[slots])
    whole = len(nodes) == 1 and nodes[0] != UNKNOWN and slots.sum() > 1
    return str(nodes[0]) if whole and not (table.node[~slots] == nodes[0]).any() else ""


def _in_turn(group: _Group) -> bool:
    """Tell whether other copies are slow in other iterations, all in one benchmark."""
    slots, when = {one.slots.tobytes() for one in group}, {one.when.tobytes() for one in group}
    return all(one.scope == "cell" for one in group) and len(slots) > 1 < len(when)


def _turns(table: Table, cause: Cause) -> str:
    """Return which lgroups are slow when, where others are each time; empty where none are.

    As `iteration:lgroup:size`, the iterations by index.
    """
    there = ~np.isnan(table.log_s)
    told, whose = [], set()
    for b, i in cause.cells:
        for name in np.unique(table.node[table.node != UNKNOWN]).tolist():
            own = table.node == name
            here = there[b, i] & own
            share = float(cause.covered[b, i, here].mean()) if here.any() else 0.0
            if 1 - _SIDES < share < _SIDES or (share > 0.5 and here.sum() < 3):
                return ""
            if share > 0.5:
                y = table.log_s[b, i]
                size = float(np.median(y[here]) - np.median(y[there[b, i] & ~own]))
                told.append(f"{i}:{name}:{size:.5f}")
                whose.add(name)
    return " ".join(told) if len(whose) > 1 and len(cause.iterations) > 1 else ""


def _apart(group: _Group) -> bool:
    """Tell whether other copies are slow in each cell."""
    cells = {one.key[1:] for one in group}
    others = len({one.slots.tobytes() for one in group}) > 2
    return others and len(cells) >= _RANDOM and all(one.scope == "cell" for one in group)


def _kind_over_time(one: DivotEffect) -> Kind:
    if one.scope in ("trend", "cell"):
        return Kind.DRIFT if one.scope == "trend" else Kind.SLOW_ITERATION
    early = np.flatnonzero(one.when)
    return Kind.WARM_UP if early[0] == 0 and len(early) <= len(one.when) / 2 else Kind.STEP


def _come_through_start(table: Table, cause: Cause) -> None:
    """Make a cause that of cells whose copies came through the start one after another."""
    cell = cause.covered.any(axis=2)
    values = table.log_s[cell]
    low, high = np.nanquantile(values, 0.1, axis=1), np.nanquantile(values, 0.9, axis=1)
    cause.kind, cause.facts = Kind.STARTUP, {"mode": "convoy", "rise": float(np.median(high - low))}
    cause.covered = cell[:, :, None] & ~np.isnan(table.log_s)
    own = np.maximum(0.0, table.log_s - np.nanquantile(table.log_s, 0.1, axis=2, keepdims=True))
    cause.effect = np.where(cause.covered, own, 0.0)


def _describe_part(found: Found, cause: Cause, group: _Group) -> None:
    """Say what the copies of a cause share: a part that they are all of, else themselves."""
    table, slots, first = found.table, cause.slots, group[0]
    slow, many, s = cause.size > 0, int(slots.sum()), table.shape[2]
    cause.level = first.kind
    cause.groups = tuple(sorted({one.name for one in group if one.name >= 0}))
    if len({one.kind for one in group}) > 1 or first.kind in ("copy", "copies", "modes"):
        cause.level, cause.groups = found.parts.get(slots.tobytes(), ("set", ()))
        nodes = np.unique(table.node[slots])
        if (
            cause.level == "set"
            and many > len(nodes)
            and not np.isin(table.node[~slots], nodes).any()
        ):
            cause.level, cause.groups = "node", tuple(int(n) for n in nodes)
    level, few = cause.level, many <= max(2, _FEW * s)
    if level in ("node", "package") and many > 1:
        cause.kind = Kind.SLOW_LGROUP if slow else Kind.SLOW_GROUP
    elif level in ("core", "cpu") or (few and level in ("set", "node", "package", "llc")):
        often = len(cause.cells) >= 3 and len(cause.benchmarks) >= min(2, table.shape[0])
        known = bool((table.cpu[slots] != UNKNOWN).all())
        cpus = known and slow and (often or level in ("core", "cpu"))
        cause.kind = Kind.SLOW_CPU if cpus else Kind.OUTLIER_COPY
    elif level == "set" and len(cause.benchmarks) == 1:
        cause.kind, cause.facts["share"] = Kind.BIMODAL, many / s
        if len(cause.iterations) > 1:
            cause.facts["same"] = 1.0
    else:
        cause.kind = Kind.OUTLIER_COPY if level == "set" and s <= 4 else Kind.SLOW_GROUP


# -- start-up trouble that start times and CPU times show ------------------------------------------


def startups(table: Table) -> list[Cause]:
    """Return what went wrong in the beginning, beyond what the times themselves show."""
    found = []
    if table.barrier and not table.staggered:
        known = ~np.isnan(table.start_s)
        last = np.max(np.where(known, table.start_s, -np.inf), axis=2)
        late_s = last - np.min(np.where(known, table.start_s, np.inf), axis=2)
        size = late_s / np.exp(median(table.log_s))
        size = np.where(size >= _LATE, size, 0.0)
        typical = float(np.log1p(np.median(size[size > 0]))) if size.any() else 0.0
        found.append(_startup(table, size, {"mode": "late-start", "rise": typical}))
    if table.barrier and table.copies > 1:
        size = _waited(table)
        waited_s = float(np.nanmax(size / (1 + size) * np.exp(median(table.log_s)), initial=0.0))
        found.append(_startup(table, size, {"mode": "input-wait", "waited_s": waited_s}))
    return [one for one in found if one.covered.any()]


def _startup(table: Table, size: Floats, facts: dict[str, float | str]) -> Cause:
    """Return the cause of cells (B, I) that took so much longer, as a share."""
    covered = (size > 0)[:, :, None] & ~np.isnan(table.log_s)
    return Cause(
        kind=Kind.STARTUP,
        covered=covered,
        effect=np.where(covered, np.log1p(size)[:, :, None], 0.0),
        facts=facts,
    )


def _waited(table: Table) -> Floats:
    """Return (B, I) how long copies waited in the first iteration while their CPU did nothing.

    As a share of the time that they computed.
    """
    b, i, _ = table.shape
    idle = median(np.where(np.isnan(table.log_s), np.nan, table.idle))
    size, first = np.zeros((b, i)), idle[:, 0]
    if i > 1:
        usual = np.maximum(0.0, median(idle[:, 1:]))
        more = np.nan_to_num(first - usual)
        there = (more >= _IDLE) & (usual < _SHARED)
        size[:, 0] = np.where(there, more / np.maximum(1 - first, _IDLE), 0.0)
    elif b >= 3 and np.mean(first >= _IDLE) <= 1 / 3 and overall_median(first) < _CALM:
        size[:, 0] = np.where(first >= _IDLE, first, 0.0)
    return size
