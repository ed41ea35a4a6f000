"""Effects of the model joined to causes: which kind each is, where and in which cells; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from msgspec import Struct, field

from rater.analysis.divots.model.effects import DivotEffect
from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.search import Found
from rater.analysis.divots.model.table import UNKNOWN, Table
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
_COPIES: Final = ("copy", "copies", "modes", "moving")


_LATE: Final = 0.015  # of the time: the default threshold of groups
_IDLE: Final = 0.05  # share of the time that a CPU did nothing
_CALM: Final = 0.02  # of it that the other benchmarks have at most
# A program's first start reads it and its libraries, 20 MB at 1 GB/s: that is no fault of a run.
_FIRST_READ_S: Final = 0.02
_SHARED: Final = 0.15  # of it in later iterations: copies wait for a CPU that they share


class Hit(Struct, eq=False):
    """A cause with array indices instead of names."""

    kind: Kind
    covered: Bools  # (B, I, S) the copy runs that it is about
    effect: Floats  # (B, I, S) ln slowdown, 0 elsewhere
    level: str = ""  # what its copies share: node, package, llc, cpu, core, thread, ...
    groups: tuple[int, ...] = ()  # which of that level
    everywhere: bool = False  # all benchmarks by one difference
    facts: dict[str, float | str] = field(default_factory=dict)
    skew: Floats | None = None  # (B, I): late start, as share of the median time

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

    def sizes(self) -> Floats:
        """Return the ln slowdown of each of its benchmarks, the median of its copies' runs."""
        found = [float(np.median(self.effect[b][self.covered[b]])) for b in self.benchmarks]
        return np.array(found)

    @property
    def size(self) -> float:
        """Typical ln slowdown: the median of its benchmarks."""
        if self.skew is not None:
            return float(np.log1p(np.median(self.skew[self.skew > 0])))
        return float(np.median(self.sizes()))


def causes_of(found: Found) -> list[Hit]:
    """Return one hit for each cause, in no order."""
    groups = _joined(found)
    groups, spared = _spared(groups)
    hits = []
    for group in _without_place(found, groups):
        hit = _hit(found, group)
        for whole, mask in spared:
            if whole is group:
                hit.covered &= ~mask
                hit.facts["kept"] = 1.0
                hit.effect = np.where(hit.covered, hit.effect, 0.0)
        hits.append(hit)
    return hits


type _Groups = list[list[DivotEffect]]


def _spared(groups: _Groups) -> tuple[_Groups, list[tuple[list[DivotEffect], Bools]]]:
    """Return causes without exceptions to others: what kept its speed in a slow part or iteration.

    And to which cause each is one, with the copy runs that are none of it.
    """
    kept: _Groups = []
    spared: list[tuple[list[DivotEffect], Bools]] = []
    for group in groups:
        whole = next((it for it in groups if it is not group and _takes_back(group, it)), None)
        if whole is None:
            kept.append(group)
        else:
            spared.append((whole, _cells(group)[:, :, None] & _slots(group)))
    return kept, spared


def _takes_back(group: list[DivotEffect], whole: list[DivotEffect]) -> bool:
    """Tell whether a cause undoes another for some of its copies or iterations."""
    one, other = group[0], whole[0]
    if one.slots.ndim > 1 or other.slots.ndim > 1 or "gradient" in (one.kind, other.kind):
        return False
    if one.kind == "iterations" or (_slots(group) & ~_slots(whole)).any():
        return False
    more = _cells(group).sum() * _slots(group).sum(), _cells(whole).sum() * _slots(whole).sum()
    if (_cells(group) & ~_cells(whole)).any() or 2 * more[0] > more[1]:
        return False
    return abs(one.typical + other.typical) < _UNDONE * abs(other.typical)


# -- which effects are one cause -------------------------------------------------------------------


def _cells(group: Sequence[DivotEffect]) -> Bools:
    found: Bools = np.any([np.outer(one.benchmarks, one.when != 0) for one in group], axis=0)
    return found


def _slots(group: Sequence[DivotEffect]) -> Bools:
    flat = [one.slots.reshape(-1, one.slots.shape[-1]).any(axis=0) for one in group]
    found: Bools = np.any(flat, axis=0)
    return found


def _profile(group: Sequence[DivotEffect]) -> Floats:
    """Return the size of each benchmark (B,), ln."""
    total = sum((np.where(one.benchmarks, one.size, 0.0) for one in group), np.zeros(1))
    return total / max(1, len({one.slots.tobytes() for one in group}))


def _alike(left: Sequence[DivotEffect], right: Sequence[DivotEffect]) -> bool:
    """Tell whether two causes have about the same sizes in about the same cells."""
    a, b = _cells(left), _cells(right)
    if bool((a & b).sum() < _SAME_CELLS * (a | b).sum()):
        return False
    p, q = (float(np.median(it[it != 0])) for it in (_profile(left), _profile(right)))
    return p * q > 0 and max(p / q, q / p) <= _ALIKE


def _sort(one: DivotEffect) -> str:
    few = one.kind in ("core", "cpu") and one.slots.sum() <= _FEW_OF_CORE
    return "copy" if few or one.kind in ("copy", "copies") else one.kind


def _joined(found: Found) -> list[list[DivotEffect]]:
    wide: dict[tuple[str, bytes, bool], Bools] = {}  # benchmarks of what is in the same iterations
    for one in found.effects:
        if one.kind == "iterations":
            wide[_at(one)] = wide.get(_at(one), np.zeros_like(one.benchmarks)) | one.benchmarks
    groups: list[list[DivotEffect]] = []
    for one in found.effects:
        for group in groups:
            first = group[0]
            same = _sort(first) == _sort(one) and _one_sign(first, one)
            if first.kind == "iterations" == one.kind:
                same = same and _at(first) == _at(one)
                # A cold start, or a slow iteration of all, costs each benchmark something else.
                every = bool(one.when[0] > 0 or wide[_at(one)].mean() >= _MOST)
                alike = 1 / _ALIKE < first.typical / one.typical < _ALIKE
                same = same and (every or alike)
            else:
                same = same and first.slots.shape == one.slots.shape
                same = same and bool((first.slots == one.slots).all())
            if same:
                group.append(one)
                break
        else:
            groups.append([one])
    joined: list[list[DivotEffect]] = []
    for group in groups:
        whole = next((it for it in joined if _same_cause(group, it)), None)
        if whole is None:
            joined.append(group)
        else:
            whole += group
    return joined


def _at(one: DivotEffect) -> tuple[str, bytes, bool]:
    return one.scope, (one.when != 0).tobytes(), one.typical > 0


def _one_sign(first: DivotEffect, one: DivotEffect) -> bool:
    """Tell whether effects of one part go one way, or the second only makes the first less."""
    if first.typical * one.typical > 0:
        return True
    inside = one.scope == "cell" != first.scope and not (one.benchmarks & ~first.benchmarks).any()
    return (
        inside
        and abs(first.typical + one.typical) >= _UNDONE * abs(first.typical)
        and (abs(one.typical) < abs(first.typical))
    )


def _same_cause(group: list[DivotEffect], other: list[DivotEffect]) -> bool:
    """Tell whether causes are one: other parts of a sort in the same cells, by as much."""
    one, two = group[0], other[0]
    if _sort(one) != _sort(two) or one.kind in ("iterations", "gradient", "moving"):
        return False
    if one.slots.ndim > 1 or two.slots.ndim > 1 or not _alike(group, other):
        return False
    return one.scope == "cell" or not (_slots(group) & _slots(other)).any()


def _without_place(found: Found, groups: list[list[DivotEffect]]) -> list[list[DivotEffect]]:
    """Return causes with what is in no place as one: one random copy in many cells."""
    for b in range(found.table.shape[0]):  # lgroups that take turns in a benchmark
        own = [
            group
            for group in groups
            if _node(found.table, group)
            and group[0].typical > 0
            and all(
                one.scope == "cell" and one.benchmarks[b] and one.benchmarks.sum() == 1
                for one in group
            )
        ]
        when = {int(one.when.argmax()) for group in own for one in group}
        if len({_node(found.table, group) for group in own}) > 1 < len(when):
            groups = [group for group in groups if not any(group is it for it in own)]
            groups.append([one for group in own for one in group])
    lone = [
        group
        for group in groups
        if group[0].kind in ("copy", "copies")
        and all(one.scope == "cell" for one in group)
        and group[0].typical > 0
    ]
    count = sum(int(_cells(group).sum()) for group in lone)
    lone = [group for group in lone if _cells(group).sum() <= max(2, count // _EACH)]
    cells = {(int(b), int(i)) for group in lone for b, i in np.argwhere(_cells(group))}
    if len(cells) < _RANDOM or len(lone) < _RANDOM - 1:
        return groups
    rest = [group for group in groups if not any(group is it for it in lone)]
    return [*rest, [one for group in lone for one in group]]


# -- what a cause is -------------------------------------------------------------------------------


def _hit(found: Found, group: list[DivotEffect]) -> Hit:
    table, first = found.table, max(group, key=lambda one: one.gain)
    hit = _drawn(table, group)
    if first.kind == "iterations":
        return _of_time(hit, first)
    if first.kind in ("gradient", "unsettled"):
        return _of_order(table, hit, first) if first.kind == "gradient" else _of_convoy(table, hit)
    if first.kind == "moving":
        hit.facts, hit.level = {"moves": 1.0}, "copy"
        return hit
    scattered = first.kind in ("copy", "copies") and len(group) > 1 and _apart(group)
    if scattered or first.slots.ndim > 1 or (_node(table, group[:1]) and _apart_in_time(group)):
        return _of_changing(table, hit, scattered=scattered)
    return _of_part(found, hit, group)


def _drawn(table: Table, group: list[DivotEffect]) -> Hit:
    """Return the copy runs that effects cover, with what they do to each."""
    there = ~np.isnan(table.log_s)
    effect, covered = np.zeros(table.shape), np.zeros(table.shape, dtype=bool)
    for one in group:
        rows, slots, when = np.flatnonzero(one.benchmarks), one.slots, one.when
        whole = one.kind in ("gradient", "iterations")
        side = 0.5 if one.typical > 0 else -0.5  # over what the fastest end could do
        slots = slots + side if one.kind == "gradient" else slots
        when = when + side if one.scope == "trend" else when
        own = slots[rows] if slots.ndim == 3 else slots
        effect[rows] += one.size[rows][:, None, None] * when[None, :, None] * own
        its = (when != 0) | (one.scope == "trend")
        covered[rows] |= its[None, :, None] & ((own != 0) | whole)
    covered &= there
    always = any(one.scope == "all" and (one.when != 0).all() for one in group)
    return Hit(Kind.OUTLIER_COPY, covered, np.where(covered, effect, 0.0), everywhere=always)


def _of_changing(table: Table, hit: Hit, *, scattered: bool) -> Hit:
    """Say what is slow in other copies each time: lgroups in turn, one by chance, or a sort."""
    each = hit.covered.sum(axis=2)[hit.covered.any(axis=2)]
    if not scattered and (turns := _turns(table, hit)):
        hit.kind, hit.level, hit.facts = Kind.WANDERING, "turns", {"turns": turns}
    elif scattered or np.median(each) <= 1:
        hit.kind, hit.level = Kind.NO_PLACE, "random"
    else:
        hit.kind, hit.level = Kind.BIMODAL, "modes"
        there = ~np.isnan(table.log_s) & hit.covered.any(axis=2)[..., None]
        hit.facts = {"share": float(hit.covered.sum()) / max(1, int(there.sum()))}
    return hit


def _node(table: Table, group: Sequence[DivotEffect]) -> str:
    """Return the lgroup whose copies a cause is of, all of them and no others; else empty."""
    slots = _slots(group)
    nodes = np.unique(table.node[slots])
    whole = len(nodes) == 1 and nodes[0] != UNKNOWN and slots.sum() > 1
    return str(nodes[0]) if whole and not (table.node[~slots] == nodes[0]).any() else ""


def _apart_in_time(group: Sequence[DivotEffect]) -> bool:
    """Tell whether other lgroups are slow in other iterations, all in one benchmark."""
    slots = {one.slots.tobytes() for one in group}
    when = {one.when.tobytes() for one in group}
    return all(one.scope == "cell" for one in group) and len(slots) > 1 < len(when)


def _turns(table: Table, hit: Hit) -> str:
    """Return which lgroups are slow when, where others are each time; empty where none are.

    As `iteration:lgroup:size`, the iterations by index.
    """
    names = np.unique(table.node[table.node != UNKNOWN])
    there = ~np.isnan(table.log_s)
    told, whose = [], set()
    for b, i in hit.cells:
        for name in names.tolist():
            here = there[b, i] & (table.node == name)
            share = float(hit.covered[b, i, here].mean()) if here.any() else 0.0
            if 1 - _SIDES < share < _SIDES or (share > 0.5 and here.sum() < 3):
                return ""
            if share > 0.5:
                y, others = table.log_s[b, i], there[b, i] & (table.node != name)
                size = float(np.median(y[here]) - np.median(y[others]))
                told.append(f"{i}:{name}:{size:.5f}")
                whose.add(name)
    return " ".join(told) if len(whose) > 1 and len(hit.iterations) > 1 else ""


def _apart(group: Sequence[DivotEffect]) -> bool:
    """Tell whether other copies are slow in each cell."""
    cells = {(one.benchmarks.tobytes(), one.when.tobytes()) for one in group}
    others = len({one.slots.tobytes() for one in group}) > 2
    return others and len(cells) >= _RANDOM and all(one.scope == "cell" for one in group)


def _of_time(hit: Hit, first: DivotEffect) -> Hit:
    i = len(first.when)
    early = np.flatnonzero(first.when)
    if first.scope == "trend":
        hit.kind, hit.facts = Kind.DRIFT, {"rise": first.typical}
    elif first.scope == "cell":
        hit.kind = Kind.SLOW_ITERATION
    elif early[0] == 0 and len(early) <= i / 2:
        hit.kind = Kind.WARM_UP
    else:
        hit.kind = Kind.STEP
    return hit


def _of_order(table: Table, hit: Hit, first: DivotEffect) -> Hit:
    span = first.typical
    known = not np.isnan(table.start_s).all() and np.ptp(np.nan_to_num(table.start_s)) > 0
    hit.facts = {"rise": span}
    if known and span > 0 and table.barrier:
        hit.kind, hit.facts = Kind.STARTUP, {"rise": span, "mode": "ramp"}
    else:
        hit.kind = Kind.GRADIENT
    return hit


def _of_convoy(table: Table, hit: Hit) -> Hit:
    """Return a cell whose copies came through the start one after another."""
    cell = hit.covered.any(axis=2)
    values = table.log_s[cell]
    low, high = np.nanquantile(values, 0.1, axis=1), np.nanquantile(values, 0.9, axis=1)
    hit.kind = Kind.STARTUP
    hit.covered = cell[:, :, None] & ~np.isnan(table.log_s)
    size = float(np.median(high - low))
    hit.facts = {"mode": "convoy", "rise": size}
    own = np.maximum(0.0, table.log_s - np.nanquantile(table.log_s, 0.1, axis=2, keepdims=True))
    hit.effect = np.where(hit.covered, own, 0.0)
    return hit


def _of_part(found: Found, hit: Hit, group: list[DivotEffect]) -> Hit:
    """Say what the copies of a cause share: a part that they are all of, else themselves."""
    table, slots = found.table, hit.slots
    slow, many = hit.size > 0, int(slots.sum())
    first = group[0]
    hit.level, hit.groups = first.kind, tuple(sorted({one.name for one in group if one.name >= 0}))
    kinds = {one.kind for one in group}
    if len(kinds) > 1 or first.kind in ("copy", "copies", "modes"):
        hit.level, hit.groups = "set", ()
        parts = _parts(found.families)
        part = next((one for one in parts if (one[0].masks[one[1]] == slots).all()), None)
        nodes = np.unique(table.node[slots])
        if part is not None:
            hit.level, hit.groups = part[0].kind, (part[0].names[part[1]],)
        elif many > len(nodes) and not np.isin(table.node[~slots], nodes).any():
            hit.level, hit.groups = "node", tuple(int(n) for n in nodes)
    s = table.shape[2]
    few = many <= max(1, _FEW * s)
    known = bool((table.cpu[slots] != UNKNOWN).all())
    often = len(hit.cells) >= 3 and len(hit.benchmarks) >= min(2, table.shape[0])
    if hit.level in ("node", "package") and many > 1:
        hit.kind = Kind.SLOW_LGROUP if slow else Kind.SLOW_GROUP
    elif hit.level in ("set", "core", "cpu", "node", "package", "llc") and (
        few or many <= 2 or hit.level in ("core", "cpu")
    ):
        cpus = known and slow and (often or hit.level in ("core", "cpu"))
        hit.kind = Kind.SLOW_CPU if cpus else Kind.OUTLIER_COPY
    elif hit.level == "set" and len(hit.benchmarks) == 1 and many > 2:
        hit.kind = Kind.BIMODAL
        hit.facts["share"] = many / s
        if table.shape[1] > 1 and len(hit.iterations) > 1:
            hit.facts["same"] = 1.0
    elif hit.level == "set":
        hit.kind = Kind.OUTLIER_COPY if s <= 4 or few else Kind.SLOW_GROUP
    else:
        hit.kind = Kind.SLOW_GROUP
    return hit


def _parts(families: Iterable[Family]) -> Iterable[tuple[Family, int]]:
    return (
        (family, p)
        for family in families
        if family.kind != "copy"
        for p in range(len(family.names))
    )


# -- start-up trouble that start times and CPU times show ------------------------------------------


def startup_hits(table: Table) -> list[Hit]:
    """Return what went wrong in the beginning, beyond what the times themselves show."""
    found = []
    if table.barrier and not table.staggered and not np.isnan(table.start_s).all():
        found.append(_late_start(table))
    if table.barrier and table.copies > 1:
        found.append(_input_wait(table))
    return [one for one in found if one.covered.any()]


def _late_start(table: Table) -> Hit:
    known = ~np.isnan(table.start_s)
    last = np.max(np.where(known, table.start_s, -np.inf), axis=2)
    first = np.min(np.where(known, table.start_s, np.inf), axis=2)
    several = known.sum(axis=2) >= 2
    late = np.where(several, last, 0.0) - np.where(several, first, 0.0)
    size = np.nan_to_num(late / np.exp(median(table.log_s)))
    size = np.where(size >= _LATE, size, 0.0)
    covered = (size > 0)[:, :, None] & ~np.isnan(table.log_s)
    facts: dict[str, float | str] = {"mode": "late-start"}
    return Hit(Kind.STARTUP, covered, np.zeros(table.shape), facts=facts, skew=size)


def _input_wait(table: Table) -> Hit:
    """Find first iterations in which copies waited while their CPU did nothing."""
    b, i, _ = table.shape
    size = np.zeros((b, i))
    idle = median(np.where(np.isnan(table.log_s), np.nan, table.idle))
    if i > 1:
        usual = np.maximum(0.0, median(idle[:, 1:]))
        more = np.nan_to_num(idle[:, 0] - usual)
        there = (more >= _IDLE) & (usual < _SHARED)
        size[:, 0] = np.where(there, more / np.maximum(1 - idle[:, 0], _IDLE), 0.0)
    elif b >= 3:
        few = np.mean(idle[:, 0] >= _IDLE) <= 1 / 3
        if few and overall_median(idle[:, 0]) < _CALM:
            size[:, 0] = np.where(idle[:, 0] >= _IDLE, idle[:, 0], 0.0)
    covered = (size > 0)[:, :, None] & ~np.isnan(table.log_s)
    effect = np.where(covered, np.log1p(size)[:, :, None], 0.0)
    waited_s = size / (1 + size) * np.exp(median(table.log_s))
    facts: dict[str, float | str] = {
        "mode": "input-wait",
        "waited_s": float(np.nanmax(waited_s, initial=0.0)),
    }
    return Hit(Kind.STARTUP, covered, effect, facts=facts)


def told_once(hits: list[Hit]) -> list[Hit]:
    """Return hits without slow first iterations that a start-up explains in the same cells.

    And without start-ups that only read the program.
    """
    starts = [hit for hit in hits if hit.kind is Kind.STARTUP and hit.skew is None]
    return [
        hit
        for hit in hits
        if float(hit.facts.get("waited_s", _FIRST_READ_S)) >= _FIRST_READ_S
        if hit.kind not in (Kind.SLOW_ITERATION, Kind.WARM_UP)
        or not any(_inside(hit, one.covered.any(axis=2)) for one in starts)
    ]


def _inside(hit: Hit, cells: Bools) -> bool:
    own = hit.covered.any(axis=2)
    return bool((own & cells).sum() >= 0.7 * own.sum())
