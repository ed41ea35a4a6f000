"""Which sets of copies tell a run's differences best: exchange steps after each entry; pure.

Candidates enter the model one by one, and a set that tells two faults at once may come first: "17
CPUs" in place of "node 1, and CPU 4 of node 0". Each effect is therefore held against other sets:
parts of the machine with or without some odd copies, the parts that it consists of, some of its
copies. The cheapest model stays. It is orthogonal matching pursuit (Pati, Rezaiifar and
Krishnaprasad 1993) with backward steps; its cost, in nats, is a description length (Rissanen 1978,
Automatica 14): the misfit of all copies, and for each effect what names its set and its sizes.

Shapes: B benchmarks, I iterations, S slots, K effects.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.model.comparison import ALPHA, FAST_PRICE
from rater.analysis.divots.model.effects import NO_PART, DivotEffect, EffectKind
from rater.analysis.divots.model.families import Family
from rater.analysis.divots.model.noise import CellNoise
from rater.analysis.divots.model.nulls import huber_mean, ln_choose
from rater.analysis.divots.model.patterns import FEW_COPIES
from rater.analysis.divots.model.places import COPIES, COPIES_IN_CELL
from rater.analysis.divots.model.sizes import Fit, cell_medians, refit
from rater.analysis.stats.robust import MAD_TO_SD, Bools, Floats, Ints, mean, median_without_gaps

# Misfits beyond this grow no faster than their distance. Chosen, as clipping.
_HUBER_SD: Final = 3.0
_WEIGHT_PASSES: Final = 3  # of the weighted fit. Chosen: four change no size by more than 0.01 %
_LASTING_SHARE: Final = 0.4  # of its size, that a copy has in each iteration. Chosen
_LEAST_WEIGHT: Final = 1e-9  # against division by zero
_LEAST_GAIN: Final = 0.5  # nats by which another model has to be cheaper, against going to and fro
_MOST_STEPS: Final = 12  # after one entry, against endless exchange
# A set may differ from a part by one in so many of its copies, and still be told as that part.
_ODD_SHARE: Final = 4
_MOST_PARTS: Final = 4  # parts that one set may be told as
_FEW_SLOTS: Final = 4  # a set of so many may be told as single copies
_TRIED: Final = 6  # moves, the cheapest first, that are tried in full, and in fewer benchmarks
_SHOWS: Final = 0.4  # of the largest size: a benchmark with less does not show an effect
_LEAST_EVERYWHERE: Final = 0.1  # of the largest size, in each of all benchmarks
_NAMELESS: Final = (EffectKind.COPY, EffectKind.COPIES, EffectKind.MODES)  # sets that are no part
_ALL_RUNS_TO: Final = 512  # slots, for speed: their number grows with the square
_LONGEST_RUN: Final = 64  # neighbours, of more slots
_MOST_EFFECTS: Final = 12  # with more effects in the same iterations, their sets stay, for speed


class _SlotSet(Struct, frozen=True, eq=False):
    """A set of slots that an effect may be of."""

    mask: Bools  # (S,)
    kind: EffectKind
    part: int  # number of the part in the machine, or of the slot of a single copy
    price: float  # nats: ln of the number of sets of its sort

    @property
    def name(self) -> tuple[EffectKind, int, bytes]:
        """The part, whether a few copies are left out or not; of a free set its slots."""
        return self.kind, self.part, self.mask.tobytes() if self.part == NO_PART else b""


class _Term(Struct, frozen=True, eq=False):
    """One effect of a model: a set of slots in some benchmarks."""

    slots: _SlotSet
    benchmarks: Bools  # (B,)


type _Model = tuple[_Term, ...]


class SlotSets:
    """All sets that have a name: parts of families and single copies; and what a free set costs."""

    def __init__(self, families: Sequence[Family], cpu: Ints) -> None:
        """Take the families, the first name of a set first, and the CPU of each slot (S,)."""
        self.slots = len(cpu)
        self.order: Ints = np.argsort(cpu, kind="stable")  # neighbours stand side by side
        self.parts: list[_SlotSet] = []
        self.by_mask: dict[bytes, _SlotSet] = {}
        self.families: dict[EffectKind, list[_SlotSet]] = {}
        of_families = math.log(max(1, len(families)))
        self.free_price = of_families
        self.single_price = of_families + math.log(self.slots)
        for family in families:
            if family.kind is EffectKind.COPY:
                continue
            price = of_families + math.log(len(family.names))
            for mask, number in zip(family.masks, family.names, strict=True):
                named = _SlotSet(mask, family.kind, number, price)
                if not 1 < mask.sum() < self.slots:
                    continue
                self.families.setdefault(family.kind, []).append(named)
                if mask.tobytes() not in self.by_mask:
                    self.by_mask[mask.tobytes()] = named
                    self.parts.append(named)

    def single(self, slot: int) -> _SlotSet:
        """Return the set of one slot."""
        mask = np.arange(self.slots) == slot
        return _SlotSet(mask, EffectKind.COPY, slot, self.single_price)

    def of_mask(self, mask: Bools) -> _SlotSet:
        """Return the set of some slots: a part, one without a few copies, one copy, or a free set.

        Of k among n slots there are C(n, k) free sets for each k, and n^2 / 2 runs of neighbours.
        """
        count = int(mask.sum())
        if count == 1:
            return self.single(int(mask.argmax()))
        named = self.by_mask.get(mask.tobytes())
        if named is not None:
            return named
        nearly = self._part_without_few(mask)
        if nearly is not None:
            return nearly
        free = ln_choose(self.slots, count) + math.log(self.slots)
        places = np.flatnonzero(mask[self.order])
        if places[-1] - places[0] + 1 == count:
            free = min(free, 2 * math.log(self.slots) - math.log(2))
        few = count <= FEW_COPIES * self.slots
        kind = EffectKind.COPIES if few else EffectKind.MODES
        return _SlotSet(mask, kind, NO_PART, self.free_price + free)

    def _part_without_few(self, mask: Bools) -> _SlotSet | None:
        """Return the part of which a set lacks a few copies: those kept their speed."""
        for part in self.parts:
            size, lacking = int(part.mask.sum()), int((part.mask & ~mask).sum())
            most = _most_odd(size)
            if lacking <= most and 2 * lacking < size and not (mask & ~part.mask).any():
                price = part.price + ln_choose(size, lacking) + math.log(most)
                return _SlotSet(mask, part.kind, part.part, price)
        return None


def _most_odd(size: int) -> int:
    """Return by how many copies a set may differ from a part of some size and be told as that."""
    return max(1, size // _ODD_SHARE)


def exchange(fit: Fit, sets: SlotSets, noise: CellNoise) -> Fit:
    """Return the fit with the sets of its effects exchanged while the model becomes cheaper.

    Effects are exchanged with others of the same iterations. Slopes, and what has other slots in
    other cells, stay as they are.
    """
    by_time: dict[bytes, list[DivotEffect]] = {}
    for effect in fit.effects:
        if _is_of_set(effect):
            by_time.setdefault(effect.iteration_weights.tobytes(), []).append(effect)
    exchanged = [
        (group, better)
        for group in by_time.values()
        if _is_exchanged(group) and (better := _exchange_group(fit, group, sets, noise))
    ]
    if not exchanged:
        return fit
    remaining = fit.remaining.copy()
    effects = list(fit.effects)
    for group, better in exchanged:
        for effect in group:
            effect.add_to(remaining)
        effects = [effect for effect in effects if all(effect is not old for old in group)]
        for effect in better:
            effect.add_to(remaining, -1.0)
        effects += better
    return refit(effects, remaining)


def _is_of_set(effect: DivotEffect) -> bool:
    others = (EffectKind.GRADIENT, EffectKind.UNSETTLED, EffectKind.MOVING, EffectKind.ITERATIONS)
    return effect.has_fixed_slots and effect.kind not in others


def _is_exchanged(group: Sequence[DivotEffect]) -> bool:
    """Tell whether a group of one time may have better sets: single copies of a cell have none."""
    in_cell = group[0].iteration_weights.sum() == 1 < len(group[0].iteration_weights)
    only_single = all(effect.kind is EffectKind.COPY for effect in group)
    return len(group) <= _MOST_EFFECTS and not (in_cell and only_single)


def _exchange_group(
    fit: Fit, group: Sequence[DivotEffect], sets: SlotSets, noise: CellNoise
) -> list[DivotEffect]:
    """Return the effects that tell a group of the same iterations better; empty: none do."""
    start: _Model = tuple(
        _Term(sets.of_mask(effect.slot_weights > 0), effect.benchmarks) for effect in group
    )
    levels = _GroupLevels(fit, group, start, noise)
    model, cost = start, levels.cost(start)
    for _ in range(_MOST_STEPS):
        moves = [move for move in _list_moves(model, sets, levels) if _is_sound(move)]
        moves = levels.most_promising(moves, model)
        polished = [levels.in_shown_benchmarks(move) for move in moves]
        moves += [move for move in polished if _is_sound(move)]
        costs = [levels.cost(move) for move in moves]
        if not costs or min(costs) > cost - _LEAST_GAIN:
            break
        cost = min(costs)
        model = moves[costs.index(cost)]
    if model is start:
        return []
    return levels.effects_of(model, group)


class _GroupLevels:
    """The levels of slots over the iterations of a group, without effects of other iterations."""

    def __init__(
        self, fit: Fit, group: Sequence[DivotEffect], start: _Model, noise: CellNoise
    ) -> None:
        """Take the levels (R, S) of the R benchmarks in which the group has an effect.

        `start` is the present model of the group.
        """
        self.noise = noise
        self.weights = group[0].iteration_weights
        self.rows: Ints = np.flatnonzero(np.any([effect.benchmarks for effect in group], axis=0))
        iterations = np.flatnonzero(self.weights)
        values = fit.remaining.copy()
        for effect in group:
            effect.add_to(values)
        values = values[np.ix_(self.rows, iterations)]
        values = values - cell_medians(values)
        self.values: Floats = values  # (R, I, S)
        variance = noise.repeat.variance[self.rows]
        by_slot = np.swapaxes(values, 1, 2)
        self.level: Floats = np.nan_to_num(huber_mean(by_slot, np.sqrt(variance)[:, None]))
        self.has_run: Floats = (~np.isnan(values).all(axis=1)).astype(float)
        lasting = len(iterations) > 1
        # Copies differ by nature, in part alike in all benchmarks: half of the variance each.
        nature = 0.5 * (COPIES if lasting else COPIES_IN_CELL).typical ** 2
        chance = variance / len(iterations) + noise.clock_step[self.rows] ** 2 / 12
        self.sd: Floats = np.sqrt(chance + nature)
        # In some benchmarks copies differ by far more, and in the same way each time.
        spread = MAD_TO_SD * median_without_gaps(
            np.abs(self._residuals(start, self.sizes(start))), axis=1
        )
        self.sd = np.maximum(self.sd, spread)
        self.common_sd = math.sqrt(nature + 1 / float(np.sum(1 / self.sd**2)))

    def cost(self, model: _Model) -> float:
        """Return the cost of a model, nats: misfit, and the description of each effect.

        ln(1 / ALPHA) for an effect, ln of the number of its sets, ln C(B, m) for the choice of its
        m benchmarks, Akaike's 1 nat for each of its sizes, and `FAST_PRICE` where it is fast.
        """
        return self._cost_with(model, self.sizes(model))

    def _cost_with(self, model: _Model, sizes: Floats) -> float:
        """Return the cost of a model with these sizes (K, R)."""
        total = self._misfit(model, sizes)
        for size, term in zip(sizes, model, strict=True):
            count, of_run = int(term.benchmarks.sum()), len(term.benchmarks)
            total += term.slots.price + ln_choose(of_run, count) + count - math.log(ALPHA)
            total += (
                FAST_PRICE if median_without_gaps(size[term.benchmarks[self.rows]]) < 0 else 0.0
            )
        return total

    def _misfit(self, model: _Model, sizes: Floats) -> float:
        """Return the loss of what a model leaves, nats: Huber's rho of the standardised residuals.

        What a copy has in all benchmarks alike counts once, and not once a benchmark.
        """
        rest = self._residuals(model, sizes)
        common = np.zeros(rest.shape[1])
        loss = 0.0
        if len(rest) > 1:
            weight = self.has_run / self.sd[:, None] ** 2
            middle = median_without_gaps(rest, axis=0)
            reach = _HUBER_SD * self.sd[:, None]
            clipped = np.clip(rest - middle, -reach, reach)
            total = np.maximum(weight.sum(axis=0), _LEAST_WEIGHT)
            common = middle + (weight * clipped).sum(axis=0) / total
            loss = float(_huber_loss(common / self.common_sd).sum())
        own = _huber_loss((rest - common) / self.sd[:, None])
        return loss + float((own * self.has_run).sum())

    def _residuals(self, model: _Model, sizes: Floats) -> Floats:
        rest = self.level.copy()
        for size, term in zip(sizes, model, strict=True):
            rest -= size[:, None] * term.slots.mask
        count = np.maximum(self.has_run.sum(axis=1), 1)
        middle = (rest * self.has_run).sum(axis=1) / count
        reach = _HUBER_SD * self.sd[:, None]
        for _ in range(2):  # towards the robust middle of each row
            within = np.minimum(np.maximum(rest - middle[:, None], -reach), reach)
            middle = middle + (within * self.has_run).sum(axis=1) / count
        residuals: Floats = rest - middle[:, None]
        return residuals

    def sizes(self, model: _Model) -> Floats:
        """Return the size of each effect in each row (K, R), ln: weighted least squares, Huber's.

        Beside a level of each row; where an effect is not, its size is 0.
        """
        weight, sizes = self.has_run, np.zeros((len(model), len(self.rows)))
        for _ in range(_WEIGHT_PASSES if model else 0):
            sizes = self._solve(model, weight)
            weight = self._weights(model, sizes)
        return sizes

    def _weights(self, model: _Model, sizes: Floats) -> Floats:
        """Return the weight of each level (R, S): less beyond 3 sd of what a model leaves."""
        distance = np.abs(self._residuals(model, sizes)) / self.sd[:, None]
        weights: Floats = self.has_run * np.minimum(1.0, _HUBER_SD / np.maximum(distance, 1.0))
        return weights

    def _solve(self, model: _Model, weight: Floats) -> Floats:
        """Return the sizes (K, R) by least squares with the weight (R, S) of each level."""
        masks = np.array([term.slots.mask for term in model], dtype=float)
        active = np.array([term.benchmarks[self.rows] for term in model]).T  # (R, K)
        mass = np.maximum(weight.sum(axis=1), _LEAST_WEIGHT)
        centre = weight @ masks.T / mass[:, None]
        middle = np.sum(weight * self.level, axis=1) / mass
        squares = np.matmul(weight[:, None] * masks, masks.T)
        squares -= mass[:, None, None] * centre[:, :, None] * centre[:, None]
        products = (weight * self.level) @ masks.T - (mass * middle)[:, None] * centre
        squares = np.where(active[:, :, None] & active[:, None], squares, 0.0)
        squares += np.eye(len(model)) * np.where(active, _LEAST_WEIGHT, 1.0)[:, None]
        solved = np.linalg.solve(squares, np.where(active, products, 0.0)[..., None])
        sizes: Floats = solved[..., 0].T
        return sizes

    def most_promising(self, moves: Sequence[_Model], model: _Model) -> list[_Model]:
        """Return the moves that are cheapest with the weights that levels have in a model."""
        weight = self._weights(model, self.sizes(model))
        costs = [
            self._cost_with(move, self._solve(move, weight)) if move else self.cost(move)
            for move in moves
        ]
        return [moves[place] for place in np.argsort(costs, kind="stable")[:_TRIED].tolist()]

    def sizes_by_benchmark(self, model: _Model) -> Floats:
        """Return the sizes of each effect (K, B), 0 in benchmarks that no effect is in."""
        sizes = np.zeros((len(model), len(self.noise.clock_step)))
        sizes[:, self.rows] = self.sizes(model)
        return sizes

    def is_everywhere(self, term: _Term) -> bool:
        """Tell whether a set has some of its largest size, one way, in all benchmarks."""
        everywhere = replace(term, benchmarks=np.ones_like(term.benchmarks))
        sizes = self.sizes((everywhere,))[0]
        sizes = sizes * np.sign(sizes[np.abs(sizes).argmax()])
        return len(sizes) == len(term.benchmarks) and bool(
            sizes.min() >= _LEAST_EVERYWHERE * sizes.max()
        )

    def in_shown_benchmarks(self, model: _Model) -> _Model:
        """Return a model with each effect in those benchmarks only that show its largest size."""
        shown = []
        for term, size in zip(model, self.sizes_by_benchmark(model), strict=True):
            one_way = size * np.sign(size[np.abs(size).argmax()])
            shows = term.benchmarks & (one_way >= _SHOWS * one_way.max())
            shown.append(replace(term, benchmarks=shows))
        return tuple(shown)

    def _others(self, model: _Model, term: _Term) -> tuple[_Model, Floats]:
        """Return the other terms of a model, with the sizes that they have beside this one."""
        sizes = self.sizes(model)[[other is not term for other in model]]
        return tuple(other for other in model if other is not term), sizes

    def offsets(self, model: _Model, term: _Term) -> Floats:
        """Return the mean level of each slot (S,) in a term's benchmarks, without other terms."""
        rest = self._residuals(*self._others(model, term))
        rows = term.benchmarks[self.rows]
        weight = 1 / self.sd[rows] ** 2
        of_slots: Floats = weight @ rest[rows] / weight.sum()
        return of_slots

    def _lasts(self, model: _Model, term: _Term, size: Floats) -> bool:
        """Tell whether a single copy has at least a part of its size (B,) in each iteration."""
        rest = self.values.copy()
        others, sizes = self._others(model, term)
        for of_rows, other in zip(sizes, others, strict=True):
            rest -= of_rows[:, None, None] * other.slots.mask
        rest = rest - cell_medians(rest)
        rows = term.benchmarks[self.rows]
        of_copy = rest[rows][:, :, term.slots.part] * np.sign(size[self.rows][rows])[:, None]
        by_iteration = np.nan_to_num(mean(of_copy, axis=0))
        typical = float(np.abs(size[term.benchmarks]).mean())
        return bool(by_iteration.min() >= _LASTING_SHARE * typical)

    def effects_of(self, model: _Model, group: Sequence[DivotEffect]) -> list[DivotEffect]:
        """Return the effects of a model, which takes the place of a group.

        Without new single copies that differ in some iterations only: the next search finds each
        of them, in the iterations and benchmarks that have it.
        """
        evidence = max(effect.net_evidence for effect in group)
        known = {effect.part for effect in group if effect.kind is EffectKind.COPY}
        effects = []
        for term, size in zip(model, self.sizes_by_benchmark(model), strict=True):
            is_new = term.slots.kind is EffectKind.COPY and term.slots.part not in known
            if is_new and not self._lasts(model, term, size):
                continue
            effects.append(
                self.noise.make_effect(
                    kind=term.slots.kind,
                    slot_weights=term.slots.mask.astype(float),
                    benchmarks=term.benchmarks,
                    iteration_weights=self.weights,
                    size=size,
                    net_evidence=evidence,
                    part=term.slots.part,
                )
            )
        return effects


def _huber_loss(deviations: Floats) -> Floats:
    """Return Huber's rho (1964): half of the square, beyond 3 sd a line."""
    distance = np.abs(deviations)
    beyond = _HUBER_SD * distance - _HUBER_SD**2 / 2
    return np.where(distance <= _HUBER_SD, distance**2 / 2, beyond)


# -- Moves -----------------------------------------------------------------------------------------


def _is_sound(model: _Model) -> bool:
    """Tell whether no part, and nothing that a set leaves of all copies, is in a model twice.

    Nor may all copies of a set but one have effects of their own: of two copies that differ, each
    is one fault.
    """
    masks = {term.slots.mask.tobytes() for term in model}
    rests = {(~term.slots.mask).tobytes() for term in model}
    names = {(term.slots.name, term.benchmarks.tobytes()) for term in model}
    if len(names) < len(model) or masks & rests:
        return False
    single = [term.slots.mask for term in model if term.slots.kind is EffectKind.COPY]
    alone = np.any(single, axis=0) if single else np.zeros(0, dtype=bool)
    sets = [term.slots.mask for term in model if term.slots.kind is not EffectKind.COPY]
    return not single or all((mask & ~alone).sum() > 1 for mask in sets)


def _list_moves(model: _Model, sets: SlotSets, levels: _GroupLevels) -> Iterator[_Model]:
    """Yield models that differ from one in a set."""
    for number, term in enumerate(model):
        others = model[:number] + model[number + 1 :]
        yield others
        other_side = sets.by_mask.get((~term.slots.mask).tobytes())
        if other_side is not None and term.slots.kind in (other_side.kind, *_NAMELESS):
            yield (*others, replace(term, slots=other_side))
        if not term.benchmarks.all() and levels.is_everywhere(term):
            yield (*others, replace(term, benchmarks=np.ones_like(term.benchmarks)))
        yield from _moves_to_parts(term, others, sets)
        yield from _moves_to_several(term, others, sets)
        yield from _moves_to_some(term, others, sets, levels.offsets(model, term))
    for first, second in combinations(model, 2):
        if np.array_equal(first.benchmarks, second.benchmarks):
            others = tuple(term for term in model if term is not first and term is not second)
            for mask in _joined_masks(first.slots, second.slots, sets):
                yield (*others, replace(first, slots=sets.of_mask(mask)))


def _joined_masks(first: _SlotSet, second: _SlotSet, sets: SlotSets) -> Iterator[Bools]:
    """Yield the sets that one effect may have for two: their union, or what one leaves of another.

    A part is not joined with copies outside of it: that is no set, but two faults.
    """
    union = first.mask | second.mask
    both_free = first.kind in _NAMELESS and second.kind in _NAMELESS
    if not union.all() and (both_free or union.tobytes() in sets.by_mask):
        yield union
    if (~union).tobytes() in sets.by_mask:
        yield ~union  # of three parts two are as fast as the third is slow
    for whole, inner in ((first, second), (second, first)):
        if not (inner.mask & ~whole.mask).any() and inner.mask.sum() < whole.mask.sum():
            yield whole.mask & ~inner.mask


def _moves_to_parts(term: _Term, others: _Model, sets: SlotSets) -> Iterator[_Model]:
    """Yield models with a part for a set that is nearly that part, and the odd copies."""
    mask = term.slots.mask
    alone = np.any([other.slots.mask for other in others if other.slots.mask.sum() == 1], axis=0)
    for part in sets.parts:
        odd = part.mask ^ mask
        if not (part.mask & mask).any() or not odd.any():
            continue
        replaced = (*others, replace(term, slots=part))
        yield replaced
        if not (part.mask & ~mask).any():
            yield (*replaced, replace(term, slots=sets.of_mask(odd)))
        if odd.sum() <= _most_odd(int(part.mask.sum())):
            new = np.flatnonzero(odd & ~alone).tolist()
            singles = tuple(replace(term, slots=sets.single(slot)) for slot in new)
            if singles:
                yield replaced + singles
            if len(singles) > 1:
                yield (*replaced, replace(term, slots=sets.of_mask(odd & ~alone)))


def _moves_to_several(term: _Term, others: _Model, sets: SlotSets) -> Iterator[_Model]:
    """Yield models with the parts, or the single copies, that a set consists of."""
    mask = term.slots.mask
    for family in sets.families.values():
        inside = [part for part in family if not (part.mask & ~mask).any()]
        covered = sum(int(part.mask.sum()) for part in inside)
        if 2 <= len(inside) <= _MOST_PARTS and covered == mask.sum():
            yield others + tuple(replace(term, slots=part) for part in inside)
    if 2 <= mask.sum() <= _FEW_SLOTS:
        slots = np.flatnonzero(mask).tolist()
        yield others + tuple(replace(term, slots=sets.single(slot)) for slot in slots)


def _moves_to_some(
    term: _Term, others: _Model, sets: SlotSets, offsets: Floats
) -> Iterator[_Model]:
    """Yield models with the copies of a set, or with neighbours, that differ most by themselves.

    `offsets` (S,) are the levels of the copies without other effects.
    """
    mask = term.slots.mask
    if mask.sum() < 3:
        return
    sign = 1.0 if offsets[mask].mean() > offsets[~mask].mean() else -1.0
    found = [_best_neighbours(sign * offsets, sets.order), _best_cut(sign * offsets, mask)]
    for chosen in found:
        if 0 < chosen.sum() < len(mask) and (chosen != mask).any():
            yield (*others, replace(term, slots=sets.of_mask(chosen)))
            rest = mask & ~chosen
            if rest.sum() > 0 and (chosen & mask).any():
                yield (
                    *others,
                    replace(term, slots=sets.of_mask(chosen)),
                    replace(term, slots=sets.of_mask(rest)),
                )


def _best_cut(offsets: Floats, mask: Bools) -> Bools:
    """Return the slowest copies of a set (S,) that two levels part best from its other copies.

    Two levels, of k of n values and of the others, explain n * (sum of the k)^2 / (k * (n - k)).
    """
    members = np.flatnonzero(mask)
    order = members[np.argsort(-offsets[members])]
    n, k = len(order), np.arange(1, len(order))
    ordered = offsets[order] - offsets[order].mean()
    by_cut = ordered.cumsum()[:-1] ** 2 * n / (k * (n - k))
    chosen = np.zeros(len(mask), dtype=bool)
    chosen[order[: int(by_cut.argmax()) + 1]] = True
    return chosen


def _best_neighbours(offsets: Floats, order: Ints) -> Bools:
    """Return the run of neighbours (S,), of at most half of all, that is slow most clearly."""
    slots = len(order)
    total = np.concatenate(([0.0], np.cumsum(offsets[order] - median_without_gaps(offsets))))
    first, last = _ends_of_runs(slots)
    length = last - first
    kept = length <= slots // 2
    first, last, length = first[kept], last[kept], length[kept]
    gain = np.maximum(total[last] - total[first], 0.0) ** 2 / length
    best = int(gain.argmax())
    chosen = np.zeros(slots, dtype=bool)
    chosen[order[first[best] : last[best]]] = True
    return chosen


def _ends_of_runs(slots: int) -> tuple[Ints, Ints]:
    """Return the first place of each run of two neighbours or more, and that after the last.

    Of many slots only runs of up to `_LONGEST_RUN`, for speed.
    """
    if slots <= _ALL_RUNS_TO:
        return np.triu_indices(slots + 1, 2)
    first = np.repeat(np.arange(slots), _LONGEST_RUN - 1)
    last = first + np.tile(np.arange(2, _LONGEST_RUN + 1), slots)
    inside = last <= slots
    return first[inside], last[inside]
