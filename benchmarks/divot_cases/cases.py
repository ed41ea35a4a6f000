"""One made run: its times, its document, and what is true of it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from benchmarks.divot_cases.machines import Shape, draw, layout_effect, sharing, small
from benchmarks.divot_cases.noise import KINDS as NOISES
from benchmarks.divot_cases.noise import MOST_SPIKES, SPIKE, Noise, t_tail
from benchmarks.divot_cases.plants import FEW, KINDS, Plant, Stage, beside, few_of_few
from rater.record.stored import StoredRun
from rater.store.observations import read_observations

type Values = NDArray[np.float64]
type Chance = np.random.Generator

MOST_COPIES, MOST_OBSERVATIONS = 512, 9000
_ALONE = 0.001  # single copies like it that clean noise makes in such a run, at most
_BELIEVED = 0.01  # chance of it at any place, for one who learns the noise from the run
_REFERENCE_S = 1000.0
_OFTEN = ("lgroup", "cpu")


@dataclass(frozen=True)
class Nature:
    """What differs by nature and by noise, and how much of it (deviations of log time)."""

    noise: Noise
    deviation: Values  # by benchmark
    lgroup: float  # lgroups, in all benchmarks alike, and in each
    cpu: float
    swing: float  # iterations, of the whole machine
    swing_of_one: float  # of one benchmark
    lgroup_jitter: float  # of an lgroup in one cell
    clock_s: float


@dataclass(frozen=True)
class Case:
    """A run with its truth. Fields are by benchmark, iteration, copy."""

    name: str
    shape: Shape
    rotated: bool
    nature: Nature
    level_s: Values  # by benchmark
    layout: Values  # log of time: what sharing does
    natural: Values  # log of time: lgroups, CPUs, iterations, spikes
    elapsed_s: Values
    start_s: Values
    plants: tuple[Plant, ...]

    @property
    def dims(self) -> tuple[int, int, int]:
        b, i, c = self.elapsed_s.shape
        return b, i, c

    @property
    def planted(self) -> Values:
        return sum((plant.delta for plant in self.plants), np.zeros(self.dims))

    def score_lost(self, plant: Plant) -> float:
        """Return 1 - score / score without that plant; rotated: the share of all copies' time."""
        without = self.elapsed_s * np.exp(-plant.delta)
        if self.rotated:
            return 1 - float(without.sum() / self.elapsed_s.sum())
        return 1 - self.score(self.elapsed_s) / self.score(without)

    def score(self, elapsed_s: Values) -> float:
        """Return SPECrate's rule: median over iterations of copies x reference / bracket, their
        geometric mean over benchmarks.
        """
        offset_s = self.start_s - self.start_s.min(axis=2, keepdims=True)
        ratios = elapsed_s.shape[2] * _REFERENCE_S / (offset_s + elapsed_s).max(axis=2)
        return math.exp(float(np.mean([math.log(median(of.tolist())) for of in ratios])))

    def oracle(self, plant: Plant) -> tuple[float, float]:
        """Return effect and standard error for one who knows the plant's cells and the noise."""
        nature, mask = self.nature, plant.mask
        _, i_count, c_count = self.dims
        clock = (nature.clock_s / self.level_s) ** 2 / 12
        variances = nature.deviation**2 + clock
        effects, weights = [], []
        for b in plant.where()[0]:
            cells = mask[b].any(axis=1)
            n_i = int(cells.sum())
            members = mask[b].any(axis=0)
            n_in = int(members.sum())
            worth = nature.noise.worth(n_i)
            effect = abs(float(plant.delta[b][mask[b]].mean()))
            if plant.family == "place":
                like = self.like(members)
                v = variances[b] * (1 / n_in + 1 / max(1, int(like.sum()))) / worth
                v += nature.cpu**2 / n_in
                if n_in > 1:
                    v += nature.lgroup**2 / 4 + nature.lgroup_jitter**2 / n_i
            elif plant.family in ("iteration", "drift"):
                others = max(1, i_count - n_i)
                v = (variances[b] / c_count + nature.swing_of_one**2) * (1 / n_i + 1 / others)
            elif plant.family == "startup":
                v = 12 * variances[b] / c_count
            else:  # modes: 4 deviations apart make z = 6, where there are enough copies
                v = variances[b] * (4 / 6) ** 2 * max(1, 16 / c_count)
                if plant.about == "lgroups swap":
                    v = (
                        variances[b] * (2 / max(1, n_in // 2))
                        + nature.lgroup_jitter**2
                        + nature.lgroup**2
                    )
            effects.append(effect)
            weights.append(1 / v)
        total = sum(weights)
        error = 1 / total
        if plant.family in ("iteration", "drift"):
            error += 2 * nature.swing**2
        if plant.family == "place":
            n_in = int(mask.any(axis=(0, 1)).sum())
            error += nature.cpu**2 / n_in + (nature.lgroup**2 if n_in > 1 else 0)
        return sum(
            effect * weight for effect, weight in zip(effects, weights, strict=True)
        ) / total, math.sqrt(error)

    def like(self, members: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the copies outside that share as much as those inside, on no emptier an lgroup.

        Where there are none, sharing explains the members as well as a fault does. None are
        returned, too, where less than 70 % of the members have such.
        """
        on_cpu, threads, on_node = sharing(self.shape.copies)
        same = (on_cpu[:, None] == on_cpu) & (threads[:, None] == threads)
        same &= on_node[:, None] <= on_node
        outside = same & ~members
        if outside[members].any(axis=1).mean() < 0.7:
            return np.zeros(len(members), bool)
        alike: NDArray[np.bool_] = outside[members].any(axis=0)
        return alike

    def demanded(self, plant: Plant) -> bool:
        """Tell whether a good detector has to find it: see the package's own text."""
        effect, error = self.oracle(plant)
        b = plant.where()[0]
        step = float(np.max(self.nature.clock_s / self.level_s[b]))
        if abs(effect) < 6 * error or abs(effect) - 2 * error < plant.floor + step:
            return False
        if plant.family in ("drift", "startup") and plant.size < plant.floor * 2:
            return False
        if plant.kind in ("one copy", "several copies", "fast copy"):
            n = int(plant.mask[b[0]].any(axis=1).sum())
            x = abs(effect) / float(self.nature.deviation[b[0]])
            if self.nature.noise.tail(x, n) * self.elapsed_s.size > _ALONE:
                return False
        learnt = len(b) * (self.dims[2] - 2) * self.dims[1] + 2  # degrees of freedom of the noise
        believed = t_tail(abs(effect) / error, learnt) * self.dims[2] <= _BELIEVED
        return (believed or plant.family != "place") and not self.confounded(plant)

    def confounded(self, plant: Plant) -> bool:
        """Tell whether what the document says fits another cause as well."""
        if plant.family != "place":
            return False
        members = plant.mask.any(axis=(0, 1))
        like, n_in = int(self.like(members).sum()), int(members.sum())
        unseen = not self.shape.known and bool(np.ptp(self.layout, axis=2).max() > 0.002)
        return unseen or like < n_in or (like == n_in and not plant.half)

    def document(self) -> dict[str, Any]:
        """Return it as an observations document."""
        at = self.shape.copies
        b_count, i_count, c_count = self.dims
        homes = next((plant.memory for plant in self.plants if plant.memory is not None), None)
        places: list[dict[str, Any]] = [{} for _ in range(c_count)]
        if self.shape.known:
            places = [
                {"cpu": int(at.cpu[copy]), "core": int(at.core[copy]), "node": int(at.node[copy]),
                 "package": int(at.package[copy])} | ({"mem_nodes": [homes[copy]]} if homes else {})
                for copy in range(c_count)
            ]  # fmt: skip
        rows = []
        elapsed, start = self.elapsed_s.round(9).tolist(), self.start_s.round(9).tolist()
        for iteration in range(i_count):
            for benchmark in range(b_count):
                cell = {"benchmark": f"b{benchmark:02}", "iteration": iteration + 1}
                for copy in range(c_count):
                    row = {
                        "copy": copy,
                        "start_s": start[benchmark][iteration][copy],
                        "elapsed_s": elapsed[benchmark][iteration][copy],
                    }
                    rows.append({**cell, **places[copy], **row})
        machine = self.shape.machine
        groups = {"nodes": machine.node, "cores": machine.core, "packages": machine.package}
        topology = {
            key: {str(number): machine.cpu[of == number].tolist() for number in np.unique(of)}
            for key, of in groups.items()
            if self.shape.known
        }
        return {
            "rater": 1,
            "run": {
                "uuid": self.name,
                "host": "made",
                "mode": "rotated" if self.rotated else "homogeneous",
                "copies": c_count,
                "started_at": "2026-11-20T12:00:00Z",
            },
            "topology": topology,
            "observations": rows,
        }

    def stored(self) -> StoredRun:
        """Return the run as it would be imported, with the LLCs, which documents do not have."""
        run = read_observations(json.dumps(self.document()).encode(), self.name)
        if not self.shape.known:
            return run
        at, machine = self.shape.copies, self.shape.machine
        copies = tuple(replace(row, llc=int(at.llc[row.copy])) for row in run.copies)
        llc_of = dict(zip(machine.cpu.tolist(), machine.llc.tolist(), strict=True))
        return replace(
            run, copies=copies, pus=tuple(replace(pu, llc=llc_of[pu.cpu]) for pu in run.pus)
        )


def _nature(rng: Chance, benchmarks: int, level_s: Values, *, quiet: bool) -> Nature:
    noise = Noise(str(rng.choice(list(NOISES), p=list(NOISES.values()))))
    most = 0.006 if noise.kind == "ar1" else 0.01 if quiet else 0.03
    centre = 0.001 * (most / 0.001) ** rng.random()
    deviation = np.clip(centre * np.exp(rng.normal(0, 0.6, benchmarks)), 0.001, 0.05)
    steps = [0.0] * 8 + [0.01] * 2 + ([1.0] * 2 if level_s.min() >= 100 else [])
    return Nature(
        noise=noise,
        deviation=np.minimum(deviation, 0.008) if noise.kind == "ar1" else deviation,
        lgroup=float(rng.choice([0, 0.001, 0.002, 0.004])),
        cpu=float(rng.choice([0, 0.0005, 0.001])),
        swing=float(rng.choice([0, 0.0005, 0.001, 0.003, 0.01], p=[0.25, 0.25, 0.25, 0.15, 0.1])),
        swing_of_one=float(rng.choice([0.0002, 0.001])),
        lgroup_jitter=float(rng.choice([0, 0.0005, 0.001, 0.003], p=[0.4, 0.3, 0.2, 0.1])),
        clock_s=float(rng.choice(steps)),
    )


def _differences(rng: Chance, shape: Shape, nature: Nature, dims: tuple[int, int, int]) -> Values:
    """Return what lgroups, CPUs and iterations differ by in truth (deviations cut at two)."""
    b_count, i_count, _ = dims
    at = shape.copies

    def clipped_normal(*size: int) -> Values:
        return np.clip(rng.normal(0, 1, size), -2, 2)

    node = np.unique(at.node, return_inverse=True)[1]
    cpu = np.unique(at.cpu, return_inverse=True)[1]
    nodes = int(node.max()) + 1
    field = np.zeros(dims)
    field += (nature.lgroup * clipped_normal(nodes))[node][None, None]
    field += (nature.lgroup / 2 * clipped_normal(b_count, 1, nodes))[:, :, node]
    field += (nature.cpu * clipped_normal(int(cpu.max()) + 1))[cpu][None, None]
    swing = rng.normal(0, 1, i_count)
    for iteration in range(1, i_count):  # a warming machine: iterations near each other are alike
        swing[iteration] = 0.5 * swing[iteration - 1] + math.sqrt(0.75) * swing[iteration]
    field += (nature.swing * swing)[None, :, None]
    field += nature.swing_of_one * rng.normal(0, 1, (b_count, i_count, 1))
    return field


def make(seed: int, number: int) -> Case:
    """Return run `number` of a seed: even ones are healthy."""
    rng = np.random.default_rng([seed, number])
    planted = number % 2 == 1
    few = str(rng.choice(list(FEW))) if planted and rng.random() < 0.16 else None
    if few:
        shape = small(rng, FEW[few][0], smt=2 if rng.random() < 0.2 else 1)
        stage = stage_of(rng, shape)
        plants: tuple[Plant, ...] = (few_of_few(stage, *FEW[few][1:]),)
    elif planted:
        stage, plants = _planted(rng)
    else:
        stage, plants = stage_of(rng, draw(rng, MOST_COPIES)), ()
    world = world_of(stage, quiet=few is not None)
    return run_in(world, stage, plants, f"made-{seed}-{number}")


@dataclass(frozen=True)
class World:
    """What stays from one run of a stage to the next."""

    nature: Nature
    level_s: Values
    layout: Values
    differences: Values


def world_of(stage: Stage, *, quiet: bool = False) -> World:
    """Return levels, noise, and what lgroups, CPUs and iterations differ by."""
    rng, benchmarks = stage.rng, stage.benchmarks
    level_s = rng.uniform(100, 900, benchmarks)
    if rng.random() < 0.5:
        level_s = 10.0 ** rng.uniform(0.7, 3.2, benchmarks)
    nature = _nature(rng, benchmarks, level_s, quiet=quiet)
    layout = layout_effect(rng, stage.shape, benchmarks)[:, None] + np.zeros(stage.dims)
    return World(nature, level_s, layout, _differences(rng, stage.shape, nature, stage.dims))


def run_in(world: World, stage: Stage, plants: tuple[Plant, ...], name: str) -> Case:
    """Return a run with noise of its own."""
    rng, shape, dims, nature = stage.rng, stage.shape, stage.dims, world.nature
    natural = world.differences.copy()
    noise = nature.deviation[:, None, None] * nature.noise.draw(rng, dims)
    node = np.unique(shape.copies.node, return_inverse=True)[1]
    noise += nature.lgroup_jitter * rng.normal(0, 1, (*dims[:2], int(node.max()) + 1))[:, :, node]
    if nature.noise.kind == "spikes":
        spiked = rng.random(dims) < rng.uniform(0.2, 1) * MOST_SPIKES
        natural += spiked * rng.exponential(SPIKE, dims) * nature.deviation[:, None, None]
    log_s = np.log(world.level_s)[:, None, None] + world.layout + natural + noise
    elapsed_s = np.exp(log_s + sum((plant.delta for plant in plants), np.zeros(dims)))
    if nature.clock_s:
        elapsed_s = np.maximum(
            np.round(elapsed_s / nature.clock_s) * nature.clock_s, nature.clock_s
        )
    start_s = _starts(rng, elapsed_s, rotated=stage.rotated)
    return Case(
        name,
        shape,
        stage.rotated,
        nature,
        world.level_s,
        world.layout,
        natural,
        elapsed_s,
        start_s,
        plants,
    )


def stage_of(rng: Chance, shape: Shape) -> Stage:
    room = max(1, MOST_OBSERVATIONS // shape.size)
    benchmarks = min(29, room, round(29 ** rng.random()))
    iterations = min(int(rng.choice([1, 1, 2, 3, 3, 3, 4, 5, 8])), max(1, room // benchmarks))
    rotated = benchmarks > 1 and rng.random() < 0.1
    return Stage(rng, shape, benchmarks, iterations, rotated)


def _planted(rng: Chance) -> tuple[Stage, tuple[Plant, ...]]:
    """Return a run of a shape that can have a plant of a kind chosen first, and one to three."""
    kind = str(rng.choice([*KINDS, *_OFTEN]))
    wanted = int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15]))
    first = None
    while first is None:
        stage = stage_of(rng, draw(rng, MOST_COPIES))
        first = _new(stage, kind, [])
    planted = [first]
    for _ in range(200):
        if len(planted) == wanted:
            break
        if new := _new(stage, stage.pick(list(KINDS)), planted):
            planted.append(new)
    return stage, tuple(planted)


def _new(stage: Stage, kind: str, planted: list[Plant]) -> Plant | None:
    new = KINDS[kind](stage)
    if new is None or (stage.rotated and new.family != "place") or not beside(planted, new):
        return None
    return new


def _starts(rng: Chance, elapsed_s: Values, *, rotated: bool) -> Values:
    """Return when copies were released: in turn, the last within 0.1 % of the shortest time."""
    b_count, i_count, c_count = elapsed_s.shape
    gap_s = min(float(rng.choice([2e-5, 1e-3])), 0.001 * float(elapsed_s.min()) / c_count)
    each = np.arange(c_count) * gap_s
    start_s = np.zeros(elapsed_s.shape)
    now = 0.0
    if not rotated:
        for iteration in range(i_count):
            for benchmark in range(b_count):
                start_s[benchmark, iteration] = now + each
                now = (
                    float((start_s[benchmark, iteration] + elapsed_s[benchmark, iteration]).max())
                    + 0.05
                )
        return start_s
    for copy in range(c_count):
        now = each[copy]
        for iteration in range(i_count):
            for step in range(b_count):
                b = (copy + step) % b_count
                start_s[b, iteration, copy] = now
                now += elapsed_s[b, iteration, copy]
    return start_s
