"""The samples of a phase's copies: a bounded number of each, neighbours merged beyond that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rater.plan.placement.place import Placement
from rater.record.events import Sampled
from rater.run.copies.launch import Child
from rater.run.observe.gate_check import nodes_of

MOST_SAMPLES = 16  # kept of one copy's run, however long it is
_PER_TURN = (
    8  # handed on at once while copies run: ends wait meanwhile, a few microseconds for each
)


type Key = tuple[int, int]  # copy, step


class Samples:
    """Keeps what is seen of each copy to a bounded number of samples, and hands them on.

    A copy that runs for hours is sampled thousands of times: with more than
    `MOST_SAMPLES` neighbours become one, the average of both.
    """

    def __init__(self, emit: Callable[[Sampled], None], placements: tuple[Placement, ...]) -> None:
        self._emit = emit
        self._placements = placements
        self._open: dict[Key, _Kept] = {}  # of copies that run
        self._over: list[Sampled] = []  # of those that do not any more

    def take(self, sample: Sampled) -> None:
        """Take one sample, and hand on some of what copies left that have ended."""
        key = (sample.copy, sample.step)
        if key not in self._open:
            self._open[key] = _Kept(nodes_of(self._placements[sample.copy]))
        self._open[key].take(sample)
        for one in self._over[:_PER_TURN]:
            self._emit(one)
        del self._over[:_PER_TURN]

    def ended(self, child: Child) -> None:
        """Take note that a copy has ended; a sample may still come that was made before."""
        kept = self._open.pop((child.copy, child.position), None)
        if kept is not None:
            self._over += kept.samples

    def close(self) -> None:
        """Hand on all that is left: the phase is over, nothing is timed."""
        for kept in self._open.values():
            self._over += kept.samples
        self._open.clear()
        for one in self._over:
            self._emit(one)
        self._over.clear()


class _Kept:
    """The samples of one copy, in order, all but the last merged of equally many."""

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.samples: list[Sampled] = []
        self._weight = 1

    def take(self, sample: Sampled) -> None:
        samples = self.samples
        if samples and samples[-1].looks < self._weight:
            samples[-1] = merged(samples[-1], sample, self.nodes)
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            pairs = zip(samples[::2], samples[1::2], strict=False)
            rest = samples[len(samples) & ~1 :]
            self.samples = [merged(*pair, self.nodes) for pair in pairs] + rest
            self._weight *= 2


def merged(first: Sampled, then: Sampled, nodes: Sequence[int]) -> Sampled:
    """Return two samples of one copy as one: averages by the samples behind each, extremes kept.

    `nodes` are those that its memory is to come from: what lay elsewhere in one sample
    must not vanish in an average.
    """
    weight, more = first.looks, then.looks

    def mean(one: int, other: int) -> int:
        return round((one * weight + other * more) / (weight + more))

    def mean_table(one: _Table, other: _Table) -> _Table:
        before, after = dict(one), dict(other)
        keys = sorted(before.keys() | after.keys())
        return tuple((key, mean(before.get(key, 0), after.get(key, 0))) for key in keys)

    def united(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({*one, *other}))

    resident = _joined(first.rss_bytes, then.rss_bytes, max)
    return replace(
        then,
        processes=max(first.processes, then.processes),
        unread=max(first.unread, then.unread),
        cpus=united(first.cpus, then.cpus),
        allowed=_joined(first.allowed, then.allowed, united),
        migrations=_joined(first.migrations, then.migrations, max),
        pages_migrated=_joined(first.pages_migrated, then.pages_migrated, max),
        node_bytes=_joined(first.node_bytes, then.node_bytes, mean_table),
        astray_bytes=max(
            (first.astray_bytes or first.node_bytes, then.astray_bytes or then.node_bytes),
            key=lambda table: _astray(table, nodes),
        ),
        policy=then.policy or first.policy,
        page_bytes=_joined(first.page_bytes, then.page_bytes, mean_table),
        rss_bytes=_joined(first.rss_bytes, then.rss_bytes, mean),
        peak_bytes=_joined(_joined(first.peak_bytes, then.peak_bytes, max), resident, max),
        swap_bytes=_joined(first.swap_bytes, then.swap_bytes, max),
        read_ns=max(first.read_ns, then.read_ns),
        looks=weight + more,
    )


type _Table = tuple[tuple[int, int], ...]


def _joined[Value](
    first: Value | None, then: Value | None, join: Callable[[Value, Value], Value]
) -> Value | None:
    """Return two values as one; where one is not known, the other."""
    if first is None or then is None:
        return first if then is None else then
    return join(first, then)


def _astray(node_bytes: _Table | None, nodes: Sequence[int]) -> float:
    """Rank a sample by what lay on other nodes than these: much, and a large part of all."""
    total = sum(size for _, size in node_bytes or ())
    off = sum(size for node, size in node_bytes or () if node not in nodes)
    return off * off / total if total else 0.0
