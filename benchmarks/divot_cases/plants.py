"""What is planted: fields of log time by benchmark, iteration and copy, each with its truth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from benchmarks.divot_cases.machines import Chance, Shape

type Values = NDArray[np.float64]
type Mask = NDArray[np.bool_]

SMALLEST, LARGEST = 0.01, 0.60
GROUP_FLOOR, COPY_FLOOR = 0.015, 0.03  # the smallest effects that `rater divots` counts


@dataclass(frozen=True)
class Plant:
    """One planted cause. `delta` is 0 where it does nothing."""

    kind: str
    family: str  # place, iteration, drift, startup, modes, swaps
    about: str  # the place in words
    scope: str  # benchmarks and iterations in words
    delta: Values
    memory: tuple[int, ...] | None = None  # home of each copy's memory where it is not its lgroup's
    half: bool = field(default=False)  # as many copies have it as have not: two levels

    @property
    def mask(self) -> Mask:
        touched: Mask = self.delta != 0
        return touched

    @property
    def size(self) -> float:
        """Return the median log effect where there is one; a ramp's and a drift's whole rise."""
        values = self.delta[self.mask]
        return float(values.max() if self.family in ("drift", "startup") else np.median(values))

    @property
    def floor(self) -> float:
        """Return the smallest effect that counts for it."""
        single = self.kind in ("one copy", "several copies", "fast copy")
        return COPY_FLOOR if single else GROUP_FLOOR

    def where(self) -> tuple[list[int], list[int], list[int]]:
        """Return the numbers of benchmarks, iterations and copies it touches."""
        return tuple(
            np.flatnonzero(self.mask.any(axis=a)).tolist() for a in ((1, 2), (0, 2), (0, 1))
        )  # type: ignore[return-value]


@dataclass(frozen=True)
class Stage:
    """A run to plant in."""

    rng: Chance
    shape: Shape
    benchmarks: int
    iterations: int
    rotated: bool

    @property
    def dims(self) -> tuple[int, int, int]:
        return self.benchmarks, self.iterations, self.shape.size

    def some_size(self, least: float = SMALLEST) -> float:
        return math.log1p(least * (LARGEST / least) ** self.rng.random())

    def pick[T](self, of: list[T]) -> T:
        return of[int(self.rng.integers(len(of)))]


def _scope(stage: Stage, *, single: bool = False) -> tuple[str, Values]:
    """Return which benchmarks and iterations, as factors (B, I, 1)."""
    rng, (many, iterations) = stage.rng, (stage.benchmarks, stage.iterations)
    factor = np.zeros((many, iterations, 1))
    kinds = ["all"] * 4 + (["some"] * 2 if many >= 4 else []) + (["one"] * 2 if many > 1 else [])
    if iterations > 1 and not stage.rotated:
        kinds += ["all, one iteration", "one, one iteration"]
    kind = stage.pick(["one"] if single else kinds)
    number = {
        "all": many,
        "some": int(rng.integers(2, many // 2 + 1)) if many >= 4 else 1,
        "one": 1,
    }
    chosen = rng.choice(many, number[kind.partition(",")[0]], replace=False)
    at = slice(None) if "iteration" not in kind else int(rng.integers(iterations))
    varied = rng.uniform(0.6, 1.4, len(chosen)) if rng.random() < 0.5 else np.ones(len(chosen))
    factor[chosen, at, 0] = varied if isinstance(at, int) else varied[:, None]
    return kind, factor


def _groups(kind: str, shape: Shape) -> list[tuple[str, Mask]]:
    """Return the places of a kind with their copies: at least one copy, at most half of them."""
    at = shape.copies
    groups: list[tuple[str, Mask]] = []
    if kind == "lgroup":
        groups = [(f"lgroup {number}", at.node == number) for number in np.unique(at.node)]
    elif kind == "package":
        groups = [(f"package {number}", at.package == number) for number in np.unique(at.package)]
    elif kind == "llc":
        groups = [
            (f"LLC {number}", at.llc == number)
            for number in np.unique(at.llc)
            if np.sum(at.llc == number) >= 2
            and not np.array_equal(at.llc == number, at.node == at.node[at.llc == number][0])
        ]
    elif kind == "cpu":
        groups = [(f"CPU {number}", at.cpu == number) for number in np.unique(at.cpu)]
    elif kind == "core":
        groups = [
            (f"core {number}", at.core == number)
            for number in np.unique(at.core)
            if len(set(at.cpu[at.core == number])) > 1
        ]
    elif kind == "second threads":
        groups = [
            (f"threads {number} of all cores", at.thread == number)
            for number in range(1, int(at.thread.max()) + 1)
        ]
        groups = [
            group for group in groups if np.sum(group[1]) > max(1, len(np.unique(at.core)) // 2)
        ]
    elif kind == "half of each lgroup":
        upper = np.zeros(shape.size, bool)
        for node in np.unique(at.node):
            here = np.flatnonzero(at.node == node)
            ranked = here[np.lexsort((at.thread[here], at.core[here]))]
            upper[ranked[(len(ranked) + 1) // 2 :]] = True
        fits = len(np.unique(at.node)) > 1 and all(
            np.sum(at.node == number) >= 4 for number in np.unique(at.node)
        )
        groups = [("upper half of each lgroup", upper)] if fits else []
    if not shape.known:  # all there is are copies' numbers: a group must be a run of them
        groups = [
            group for group in groups if np.ptp(np.flatnonzero(group[1])) == np.sum(group[1]) - 1
        ]
    return [group for group in groups if 0 < np.sum(group[1]) <= shape.size / 2]


def _place(stage: Stage, kind: str) -> Plant | None:
    groups = _groups(kind, stage.shape)
    if not groups or (kind in ("cpu", "core") and stage.shape.size < 3):
        return None
    about, members = stage.pick(groups)
    if kind == "cpu" and not stage.shape.known:
        about = f"copies {np.flatnonzero(members).tolist()}"
    scope, factor = _scope(stage)
    delta = factor * stage.some_size() * members[None, None]
    return Plant(kind, "place", about, scope, delta, half=2 * members.sum() == stage.shape.size)


def _remote(stage: Stage) -> Plant | None:
    at, shape = stage.shape.copies, stage.shape
    nodes = np.unique(at.node)
    if len(nodes) < 2 or not shape.known:
        return None
    node = stage.pick(nodes.tolist())
    copies = np.flatnonzero(at.node == node)
    if len(copies) < 2 or len(copies) > shape.size / 2:
        return None
    if len(copies) >= 6 and stage.rng.random() < 0.5:
        begin = int(stage.rng.integers(len(copies) // 2))
        copies = copies[begin : begin + len(copies) // 2]
    members = np.zeros(shape.size, bool)
    members[copies] = True
    other = stage.pick([number for number in nodes.tolist() if number != node])
    home = at.node.copy()
    home[members] = other
    scope, factor = "all", np.ones((stage.benchmarks, stage.iterations, 1))
    if stage.benchmarks >= 4:
        scope = "some"
        factor *= (stage.rng.random(stage.benchmarks) < 0.6)[:, None, None]
        factor[0] = 1
    delta = factor * stage.some_size() * members[None, None]
    about = f"memory on lgroup {other}, CPUs on {node}"
    half = 2 * members.sum() == shape.size
    return Plant("remote memory", "place", about, scope, delta, tuple(home.tolist()), half=half)


def _copies(stage: Stage, kind: str) -> Plant | None:
    """Return copies slow (or one fast) in one benchmark, in one iteration or (one copy) all."""
    size = stage.shape.size
    if size < 4:
        return None
    number = (
        1 if kind != "several copies" else int(stage.rng.integers(2, max(3, int(0.12 * size) + 1)))
    )
    if number > size / 4:
        return None
    members = stage.rng.choice(size, number, replace=False)
    delta = np.zeros(stage.dims)
    b = int(stage.rng.integers(stage.benchmarks))
    every = kind == "fast copy" or (kind == "one copy" and stage.rng.random() < 0.5)
    i = slice(None) if every or stage.rotated else int(stage.rng.integers(stage.iterations))
    size_s = stage.some_size() * stage.rng.uniform(0.8, 1.2, number)
    if isinstance(i, int):
        delta[b, i, members] = size_s
    else:
        delta[b, :, members] = size_s[:, None]
    if kind == "fast copy":
        delta = -delta
    scope = "one" if every or stage.iterations == 1 else "one, one iteration"
    return Plant(kind, "place", f"copies {sorted(members.tolist())}", scope, delta)


def _iteration(stage: Stage) -> Plant | None:
    if stage.iterations < 2:
        return None
    delta = np.zeros(stage.dims)
    i = int(stage.rng.integers(stage.iterations))
    scope = stage.pick(["all", "one"])
    b = slice(None) if scope == "all" else int(stage.rng.integers(stage.benchmarks))
    delta[b, i] = stage.some_size()
    half = stage.iterations == 2
    return Plant("slow iteration", "iteration", f"iteration {i + 1}", scope, delta, half=half)


def _drift(stage: Stage) -> Plant | None:
    if stage.iterations < 3:
        return None
    rise = np.arange(stage.iterations) / (stage.iterations - 1)
    delta = np.zeros(stage.dims) + (stage.some_size() * rise)[None, :, None]
    return Plant("drift", "drift", "iterations", "all", delta)


def _ramp(stage: Stage) -> Plant | None:
    size = stage.shape.size
    if size < 8 or stage.iterations < 2:  # of one iteration it could as well be the CPUs' order
        return None
    delta = np.zeros(stage.dims)
    rank = np.arange(size) / (size - 1)
    scope = stage.pick(["all", "one"])
    b = slice(None) if scope == "all" else int(stage.rng.integers(stage.benchmarks))
    delta[b, 0] = stage.some_size() * rank
    return Plant("start-up ramp", "startup", "in order of start", f"{scope}, iteration 1", delta)


def _bimodal(stage: Stage) -> Plant | None:
    b_count, i_count, size = stage.dims
    if size < 12:
        return None
    delta = np.zeros(stage.dims)
    share, gap = stage.rng.uniform(0.25, 0.55), stage.some_size(0.02)
    again = stage.rng.random() < 0.6
    members = stage.rng.permutation(size) < share * size
    b = int(stage.rng.integers(b_count))
    for iteration in range(i_count):
        delta[b, iteration] = gap * (stage.rng.permutation(members) if again else members)
    return Plant("bimodal", "modes", "two modes", "one", delta)


def _swapping(stage: Stage) -> Plant | None:
    """Return a benchmark in which each iteration has other slow lgroups, or lucky copies."""
    at, rng = stage.shape.copies, stage.rng
    nodes = np.unique(at.node)
    if stage.iterations < 2 or stage.rotated or stage.shape.size < 8:
        return None
    delta = np.zeros(stage.dims)
    b, gap = int(rng.integers(stage.benchmarks)), stage.some_size(0.02)
    if len(nodes) >= 3 and stage.shape.known and rng.random() < 0.7:
        order = rng.permutation(nodes)
        few = max(1, len(nodes) // (3 if stage.iterations > 2 else 2) - (stage.iterations == 2))
        for iteration in range(stage.iterations):
            delta[b, iteration] = gap * np.isin(at.node, np.roll(order, -iteration * few)[:few])
        return Plant("does not repeat", "swaps", "lgroups swap", "one", delta)
    few = max(2, stage.shape.size // 5)
    for iteration in range(stage.iterations):
        delta[b, iteration, rng.choice(stage.shape.size, few, replace=False)] = -gap
    return Plant("does not repeat", "swaps", "lucky copies", "one", delta)


def few_of_few(stage: Stage, number: int, sizes: tuple[float, ...]) -> Plant:
    """Return `number` CPUs or cores of a small machine slow in everything."""
    at = stage.shape.copies
    cores = np.unique(at.core)
    slow = stage.rng.choice(cores, number, replace=False)
    members = np.isin(at.core, slow)
    delta = np.ones(stage.dims) * math.log1p(stage.pick(list(sizes))) * members
    kind = f"{number} of {len(cores)} cores"
    about = f"CPUs {sorted(at.cpu[members].tolist())}"
    return Plant(kind, "place", about, "all", delta, half=2 * number == len(cores))


KINDS: dict[str, Callable[[Stage], Plant | None]] = {
    **{
        kind: lambda stage, kind=kind: _place(stage, kind)  # type: ignore[misc]
        for kind in (
            "lgroup",
            "cpu",
            "core",
            "second threads",
            "half of each lgroup",
            "package",
            "llc",
        )
    },
    "remote memory": _remote,
    **{
        kind: lambda stage, kind=kind: _copies(stage, kind)  # type: ignore[misc]
        for kind in ("one copy", "several copies", "fast copy")
    },
    "slow iteration": _iteration,
    "drift": _drift,
    "start-up ramp": _ramp,
    "bimodal": _bimodal,
    "does not repeat": _swapping,
}
FEW = {  # on a machine of so many cores: how many are slow, by how much
    "2 of 8 cores": (8, 2, (0.3, 1.0)),
    "3 of 8 cores": (8, 3, (0.1,)),
    "1 of 4 cores": (4, 1, (0.05, 0.1, 0.3)),
    "4 of 8 cores": (8, 4, (0.1, 0.29, 0.6)),
}


def beside(planted: list[Plant], new: Plant) -> bool:
    """Tell whether a plant can stand beside others without making the truth ambiguous."""
    if any(it.half or new.half or not _apart(it, new) for it in planted):
        return False
    placed = [it.mask for it in (*planted, new) if it.family == "place"]
    few = not placed or np.any(placed, axis=0).mean(axis=2).max() <= 0.4
    return not planted or bool(few)


def _apart(plant: Plant, other: Plant) -> bool:
    families = {plant.family, other.family}
    if families <= {"iteration", "drift", "startup"}:
        return False  # they are told by the same few numbers
    if plant.memory is not None and other.memory is not None:
        return False
    crossed = families in ({"place", "iteration"}, {"place", "drift"})
    both = int(np.sum(plant.mask & other.mask))
    if both > 0.34 * min(plant.mask.sum(), other.mask.sum()) and not crossed:
        return False
    some, others = set(plant.where()[0]), set(other.where()[0])
    if "place" not in families and some & others:
        return False
    return some != others or crossed  # two modes and a slow lgroup of that benchmark alone
