"""How much times vary for no reason: between like copies, and from time to time; pure.

Every spread is that of the shortest half, which nothing disturbs that less than half of the
values have; benchmarks borrow from each other where values are few.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from rater.analysis.divots.model import limits
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import MAD_TO_SD, Bools, Floats, Ints, mean, median

# Tails begin at 90 %; a generalised Pareto is laid through what lies there, at 98 % and beyond.
_BEFORE = math.log(10)
_SHAPES = np.linspace(limits.LEAST_TAIL, limits.MOST_TAIL, 8)


@dataclass(frozen=True, slots=True, eq=False)
class TimeNoise:
    """Spreads of ln time as standard deviations, by benchmark."""

    between_copy_sd: Floats  # (B,) of copies' levels over the iterations, parts out
    within_copy_sd: (
        Floats  # (B,) of one copy from iteration to iteration; one iteration: `between_copy_sd`
    )
    dof: float  # degrees of freedom of one of them
    steps: Floats  # (B,) of a coarse clock over the median time; 0: fine

    @property
    def known(self) -> bool:
        """Whether anything told it: two or three copies do not, once, in one or two benchmarks."""
        return bool((self.between_copy_sd < limits.NOTHING_KNOWN).all())


def clock_steps(table: Table) -> Floats:
    """Return the step of a coarse clock over the median time, by benchmark; 0 for a fine one.

    A clock is called coarse where less than half of the times are distinct.
    """
    steps = np.zeros(table.shape[0])
    for b in range(table.shape[0]):
        seconds = np.exp(table.log_s[b][~np.isnan(table.log_s[b])])
        # exp(ln t) is not t to the last digit: nanoseconds are what was recorded.
        distinct = np.unique(np.round(seconds, 9))
        if len(distinct) > 1 and 2 * len(distinct) < len(seconds):
            gaps = np.diff(distinct)
            # No clock is coarser than a second: two times ten seconds apart are two times.
            step = float(gaps[gaps > 1e-8].min(initial=limits.COARSEST_S))
            steps[b] = step / float(np.median(seconds))
    return steps


def slot_medians(values: Floats) -> Floats:
    """Return (B, S) each slot's level over the iterations of (B, I, S): their median."""
    return median(np.swapaxes(values, 1, 2))


def shorth_spread(values: Floats, share: float = 0.5, groups: Ints | None = None) -> Floats:
    """Return the spread of each row (B, N): the shortest that holds this share, as a sd.

    Held against what normal noise has, of as many values, whose `groups` had their medians
    taken out.
    """
    ordered = np.sort(values, axis=1)
    known = ~np.isnan(values)
    spread = np.full(len(values), np.nan)
    for b, n in enumerate(known.sum(axis=1).tolist()):
        held = _held(n, share)
        if held >= 2:
            x = ordered[b, :n]
            own = (0,) * n if groups is None else tuple(groups[known[b]].tolist())
            spread[b] = np.min(x[held - 1 :] - x[: n - held + 1]) / _usual_width(own, held)
    return spread


def _held(count: int, share: float) -> int:
    """Return how many of so many values make a share of them: of a half of four three."""
    return 3 if (count, share) == (4, 0.5) else math.ceil(share * count)


@lru_cache(maxsize=256)
def _usual_width(groups: tuple[int, ...], held: int) -> float:
    """Return the mean of the shortest range that holds so many of normal values.

    By simulation: of groups of three that have their medians taken out a third is zero.
    """
    n = len(groups)
    draws = np.random.default_rng(n).standard_normal((max(60, min(2000, 60_000 // n)), n))
    x = np.sort(group_centred(draws, np.array(groups)), axis=1)
    return float(np.mean(np.min(x[:, held - 1 :] - x[:, : n - held + 1], axis=1)))


def group_centred(values: Floats, groups: Ints) -> Floats:
    """Return values with the median of each group of slots taken out of each cell.

    Those of no group (`UNKNOWN`) have no others like them: their own middle, of a lone copy all
    that it has, stays in.
    """
    centred = values.copy()
    for group in np.unique(groups[groups != UNKNOWN]):
        here = groups == group
        centred[..., here] -= median(values[..., here])[..., None]
    return centred


def estimate_noise(
    residuals: Floats, groups: Ints, steps: Floats, told: Bools | None = None
) -> TimeNoise:
    """Return the spreads of residuals (B, I, S); `groups`: inside of which copies are alike.

    `told` (B, S) are copies whose level the model has: that nothing is left of it is no calm.
    """
    b, i, s = residuals.shape
    levels = slot_medians(residuals)
    if told is not None:
        levels = np.where(told, np.nan, levels)
    floor = np.maximum(limits.NOISE_FLOOR, limits.COARSE * steps)
    repeat, freedom = None, 0.0
    if i > 1:
        # Like copies move together with a part of the machine: that is no noise of theirs.
        of = groups if s > limits.MANY else np.zeros(s, dtype=np.int64)
        inner = group_centred(residuals, of)
        moves = (inner - mean(inner, axis=1)[:, None]) * math.sqrt(i / (i - 1))
        spread = _spread_of_moves(moves)
        if s >= limits.MANY:  # of each iteration: a half of the copies may be slow in some
            spread = median(shorth_spread(moves.reshape(b * i, s), groups=of).reshape(b, i))
        repeat, freedom = _shrunk(spread, _freedom_of_half(s * (i - 1)), floor)
    if repeat is None and limits.SEVERAL < s < limits.MANY and b >= limits.SEVERAL:
        # Of so few that ran once: by what each differs from itself in other benchmarks.
        again = levels - median(levels.T)[None]
        once, freedom = _shrunk(_spread_of_moves(again), _freedom_of_half(s), floor)
        between = np.hypot(once * math.sqrt(b / (b - 1)), limits.TAU)
    elif repeat is not None and s < limits.MANY:
        # Of so few copies the half may be slow: what one repeats to is all that is known.
        between = np.hypot(repeat / math.sqrt(i), limits.TAU)
    elif s > 3:
        like = shorth_spread(group_centred(levels, groups), groups=groups)
        any_copies = shorth_spread(levels)
        # Where half of a group is slow its median is nobody's, and most copies of all are closer.
        like = np.where(like > limits.NOBODYS * any_copies, any_copies, like)
        between, freedom = _shrunk(like, _freedom_of_half(s), floor)
        if repeat is not None:
            between = np.maximum(between, repeat / math.sqrt(i))
    else:
        apart = levels - median(levels.T)[None]
        known = np.abs(apart[~np.isnan(apart)])
        own, freedom = limits.NOTHING_KNOWN, limits.FREEDOM * s * b / 2
        if b >= 3 and len(known):
            own = MAD_TO_SD * float(np.median(known)) * math.sqrt(2)
        between = np.maximum(np.full(b, own), floor)
    return TimeNoise(between, between if repeat is None else repeat, max(1.5, freedom), steps)


def noise_of_cells(residuals: Floats, groups: Ints, noise: TimeNoise) -> tuple[Floats, float]:
    """Return the spread (B,) of like copies in one cell, and its degrees of freedom.

    Of what is left when parts are out of (B, I, S): `MOST_SINGLE` of a cell may stand out singly,
    all others tell the noise, which is known better than by their half.
    """
    b, i, s = residuals.shape
    if s < limits.MANY:  # of whose cells the middle takes too much of their noise with it
        return np.maximum(noise.within_copy_sd, noise.between_copy_sd), noise.dof
    share = 1 - max(2, int(limits.SIDE * s)) / s  # of two neither may hide the other
    each = groups + (groups.max() + 1) * np.arange(i)[:, None]
    cells = np.where(groups == UNKNOWN, UNKNOWN, each).ravel()
    spread = shorth_spread(group_centred(residuals, groups).reshape(b, i * s), share, cells)
    floor = np.maximum(limits.NOISE_FLOOR, limits.COARSE * noise.steps)
    return _shrunk(spread, limits.FREEDOM * i * s, floor)


def _spread_of_moves(moves: Floats) -> Floats:
    """Return the spread (B,) of deviations from a slot's own mean, symmetrical around 0."""
    return 1.4826 * median(np.abs(moves.reshape(len(moves), -1)))


def _shrunk(spread: Floats, freedom: float, floor: Floats) -> tuple[Floats, float]:
    """Draw spreads (B,) of so many degrees of freedom to the usual one, by how alike they are.

    Also returns the degrees of freedom that one of them is then known with.
    """
    own = np.log(np.maximum(np.nan_to_num(spread), floor))
    chance = 1 / (2 * freedom)
    if len(own) < 3:
        return np.maximum(np.exp(own), floor), _freedom_of(chance)
    usual = float(np.median(own))
    apart = (1.4826 * float(np.median(np.abs(own - usual)))) ** 2 - chance
    apart = max(limits.NOISE_APART**2, apart)
    weight = apart / (apart + chance)
    drawn: Floats = np.maximum(np.exp(weight * own + (1 - weight) * usual), floor)
    return drawn, _freedom_of(weight * chance)


def _freedom_of_half(count: int) -> float:
    """Return the degrees of freedom of the shortest half of so many values."""
    return limits.FREEDOM * count * max(0.1, 1 - 1.2 / math.sqrt(max(count, 2)))


def _freedom_of(variance: float) -> float:
    """Return the degrees of freedom with which ln of a standard deviation varies so much.

    Its variance is trigamma(freedom / 2) / 4, and trigamma(x) about 1 / x + 1 / (2 x^2).
    """
    return (1 + math.sqrt(1 + 8 * variance)) / (4 * variance)


def log_evidence(z: Floats, freedom: Floats | float) -> Floats:
    """Return how many nats better a part with z standard errors of effect describes the times.

    How seldom Student's t is that far out: z squared over two where it is normal, and
    growing with the logarithm only where the tail is heavy.
    """
    return freedom / 2 * np.log1p(z * z / freedom)


@dataclass(frozen=True, slots=True, eq=False)
class Tail:
    """One side of the distribution of standardised residuals beyond its 90 %.

    Generalised Pareto distributions of all shapes that are possible, each as likely as the
    residuals make it: what little data leaves open makes the tail heavier.
    """

    scales: Floats  # (K,) of each of the shapes
    weights: Floats  # (K,) how likely each is, together 1
    moves: float  # standard deviation of ln scale from run to run

    @property
    def shape(self) -> float:
        """The shape to expect: 0 falls exponentially, 1/3 as Student's t of three degrees."""
        return float(self.weights @ _SHAPES)

    def doubt(self, nats: float) -> float:
        """Return by how much ln of the z that wins so many nats differs from run to run.

        As a standard deviation: what is left open, as far as it was learnt from the run.
        """
        far = np.log(
            limits.TAIL_START + self.scales * np.expm1(_SHAPES * (nats - _BEFORE)) / _SHAPES
        )
        learnt = 1 - _variance(_SHAPES, self.weights) / float(np.var(_SHAPES))
        shape = max(0.0, learnt) * _variance(far, self.weights)
        beyond = 1 - limits.TAIL_START / math.exp(float(self.weights @ far))
        return math.hypot(math.sqrt(shape), self.moves * beyond)

    def log_evidence(self, z: Floats, freedom: float, times: int = 1) -> Floats:
        """Return how seldom a residual is that far out, in nats; 0 before the tail begins.

        `freedom`: of the standard deviation that z is told in, which is a guess itself;
        `times`: so many must be that far out together.
        """
        shapes = _SHAPES / times + 0.15 / freedom
        beyond = np.maximum(z - limits.TAIL_START, 0)[..., None] / self.scales
        survive = np.exp(-np.log1p(shapes * beyond) / shapes) @ self.weights
        nats: Floats = np.where(z > limits.TAIL_START, _BEFORE - np.log(survive), 0.0)
        return nats


def fit_tail(values: Floats, freedom: float) -> Tail:
    """Return the upper tail of standardised residuals (..., S): the usual one and their own.

    `freedom`: of the standard deviations that they are told in. Those are guesses, which makes a
    tail look heavier by a share of its shape; what is left is the noise's own.

    The lower tail tells of the shape as well: what makes noise heavy, as Student's t is, has
    two sides, and a faulty copy is on one.
    """
    scales, likely, moves = _side_of(values, freedom)
    likely = likely + _side_of(-values, freedom, judged=False)[1]
    weights = np.exp(likely - likely.max())
    return Tail(np.maximum(scales, limits.TAIL_SCALE), weights / weights.sum(), moves)


def _side_of(
    values: Floats, freedom: float, *, judged: bool = True
) -> tuple[Floats, Floats, float]:
    """Return by shape the upper tail's scale and ln likelihood (K,); `moves`.

    The farthest are only counted (censored): they are judged by it.
    """
    known = _joined_to_rest(values[~np.isnan(values)])
    excess = np.sort(known[known > limits.TAIL_START] - limits.TAIL_START)
    farthest = min((len(excess) + 1) // 2, max(limits.TAIL_USUAL, len(known) // 1000)) * judged
    last = len(excess) - farthest
    edge = excess[last - 1] if last else 0.0
    # Many are as well told by some, each for its neighbours.
    at = np.linspace(0, last - 1, min(last, limits.TAIL_POINTS)).round().astype(np.intp)
    near, each = excess[at], last / max(1, len(at))
    counted = each * len(at) + limits.TAIL_USUAL
    censored = float(farthest)
    shapes = _SHAPES + 0.15 / freedom
    usual = limits.TAIL_SCALE * (1 + limits.TAIL_WIDER * shapes)
    scales = usual.copy()
    for _ in range(limits.TAIL_STEPS):  # the likelihood's own equation for the scale, by iteration
        inner = (1 + shapes) * each * np.sum(near / (1 + np.outer(shapes / scales, near)), axis=1)
        outer = censored * edge / (1 + shapes / scales * edge)
        scales = (inner + outer + limits.TAIL_USUAL * usual) / counted
    falls = np.log1p(np.outer(shapes / scales, near)).sum(axis=1) * each * (1 + 1 / shapes)
    beyond = censored * np.log1p(shapes / scales * edge) / shapes
    likely = -counted * np.log(scales) - limits.TAIL_USUAL * usual / scales - falls - beyond
    return scales, likely, math.sqrt(each * len(at)) / counted


def _variance(values: Floats, weights: Floats) -> float:
    return float(weights @ (values - weights @ values) ** 2)


def _joined_to_rest(values: Floats) -> Floats:
    """Leave out values far beyond a gap: so wide, the heaviest tail has it once in 10 000 runs.

    The ratio of the j-th largest to the next exceeds r with probability r^(-3 j) where the
    tail is that of Student's t with three degrees of freedom (Renyi's representation).
    """
    ordered = np.sort(values)[::-1]
    most = len(ordered) // 8
    if most < 1 or ordered[most] <= 0:
        return values
    place = np.arange(1, most + 1)
    apart = np.maximum(math.log(1e4) / (3 * place), math.log(limits.ALIKE))
    beyond = np.log(ordered[:most] / ordered[1 : most + 1]) >= apart
    last = int(np.max(np.flatnonzero(beyond) + 1, initial=0))
    return ordered[last:]
