"""The samples of a phase's copies: a bounded number of each, neighbours merged beyond that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from rater.plan.placement.place import Placement
from rater.record.events import Sampled
from rater.run.copies.launch import Child
from rater.run.observe.gate_check import nodes_of

MOST_SAMPLES = 16  # kept of one copy's run, however long it is
_PER_TURN = 8  # told at once while copies run: ends wait meanwhile, a few microseconds for each


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
        self._looks = 1

    def take(self, sample: Sampled) -> None:
        samples = self.samples
        if samples and samples[-1].looks < self._looks:
            samples[-1] = merged(samples[-1], sample, self.nodes)
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            pairs = zip(samples[::2], samples[1::2], strict=False)
            self.samples = [merged(*pair, self.nodes) for pair in pairs] + samples[
                len(samples) & ~1 :
            ]
            self._looks *= 2


def merged(first: Sampled, then: Sampled, nodes: Sequence[int]) -> Sampled:
    """Return two samples of one copy as one: averages by the looks behind each, extremes kept.

    `nodes` are those that its memory is to come from: what lay elsewhere in one look
    must not vanish in an average.
    """
    weights = (first.looks, then.looks)
    highest = (first.peak_bytes, then.peak_bytes, first.rss_bytes, then.rss_bytes)
    return replace(
        then,
        processes=max(first.processes, then.processes),
        unread=max(first.unread, then.unread),
        cpus=tuple(sorted({*first.cpus, *then.cpus})),
        allowed=_united(first.allowed, then.allowed),
        migrations=_largest((first.migrations, then.migrations)),
        pages_migrated=_largest((first.pages_migrated, then.pages_migrated)),
        node_bytes=_mean_table(first.node_bytes, then.node_bytes, weights),
        astray_bytes=max(
            (first.astray_bytes or first.node_bytes, then.astray_bytes or then.node_bytes),
            key=lambda table: _astray(table, nodes),
        ),
        policy=then.policy or first.policy,
        page_bytes=_mean_table(first.page_bytes, then.page_bytes, weights),
        rss_bytes=_mean(first.rss_bytes, then.rss_bytes, weights),
        peak_bytes=_largest(highest),
        swap_bytes=_largest((first.swap_bytes, then.swap_bytes)),
        read_ns=max(first.read_ns, then.read_ns),
        looks=sum(weights),
    )


def _astray(node_bytes: tuple[tuple[int, int], ...] | None, nodes: Sequence[int]) -> float:
    """Rank a look by what lay on other nodes than these: much, and a large part of all."""
    total = sum(size for _, size in node_bytes or ())
    off = sum(size for node, size in node_bytes or () if node not in nodes)
    return off * off / total if total else 0.0


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _united(first: tuple[int, ...] | None, then: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if first is None or then is None or first == then:
        return first if then is None else then
    return tuple(sorted({*first, *then}))


def _mean(first: int | None, then: int | None, weights: tuple[int, int]) -> int | None:
    if first is None or then is None:
        return first if then is None else then
    return round((first * weights[0] + then * weights[1]) / sum(weights))


def _mean_table(
    first: tuple[tuple[int, int], ...] | None,
    then: tuple[tuple[int, int], ...] | None,
    weights: tuple[int, int],
) -> tuple[tuple[int, int], ...] | None:
    if first is None or then is None:
        return first if then is None else then
    before, after = dict(first), dict(then)
    keys = sorted(before.keys() | after.keys())
    return tuple((key, _mean(before.get(key, 0), after.get(key, 0), weights) or 0) for key in keys)
