"""The samples of a phase's copies: a bounded number of each, neighbours merged; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from rater.record.events import Sampled
from rater.record.run import Placement

MOST_SAMPLES = 16  # kept of one copy's run, however long it is
# Samples handed on at once while copies run: the end of a copy waits a few microseconds for each.
_PER_TURN = 8

type Key = tuple[int, int]  # copy, step


class Samples:
    """Keeps what is seen of each copy to a bounded number of samples, and hands them on.

    A copy that runs for hours is sampled thousands of times: with more than
    `MOST_SAMPLES` neighbours become one, the average of both.
    """

    def __init__(self, emit: Callable[[Sampled], None], placements: tuple[Placement, ...]) -> None:
        self._emit = emit
        self._placements = placements
        self._open: dict[Key, _CopySamples] = {}  # of copies that run
        self._over: list[Sampled] = []  # of those that do not any more

    def take(self, sample: Sampled) -> None:
        """Take one sample, and hand on some of what copies left that have ended."""
        key = (sample.copy, sample.step)
        if key not in self._open:
            self._open[key] = _CopySamples(self._placements[sample.copy].planned_nodes)
        self._open[key].take(sample)
        for ended_sample in self._over[:_PER_TURN]:
            self._emit(ended_sample)
        del self._over[:_PER_TURN]

    def ended(self, copy: int, step: int) -> None:
        """Take note that a copy's run has ended; a sample may still come that was made before."""
        copy_samples = self._open.pop((copy, step), None)
        if copy_samples is not None:
            self._over += copy_samples.samples

    def close(self) -> None:
        """Hand on all that is left: the phase is over, nothing is timed."""
        for copy_samples in self._open.values():
            self._over += copy_samples.samples
        self._open.clear()
        for ended_sample in self._over:
            self._emit(ended_sample)
        self._over.clear()


class _CopySamples:
    """The samples of one copy, in order, all but the last merged of equally many."""

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.samples: list[Sampled] = []
        self._weight = 1

    def take(self, sample: Sampled) -> None:
        samples = self.samples
        if samples and samples[-1].looks < self._weight:
            samples[-1] = merge_samples(samples[-1], sample, self.nodes)
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            pairs = zip(samples[::2], samples[1::2], strict=False)
            rest = samples[len(samples) & ~1 :]
            self.samples = [merge_samples(*pair, self.nodes) for pair in pairs] + rest
            self._weight *= 2


def merge_samples(first: Sampled, then: Sampled, nodes: Sequence[int]) -> Sampled:
    """Return two samples of one copy as one: averages by the samples behind each, extremes kept.

    `nodes` are those that its memory is to come from: what lay elsewhere in one sample
    must not vanish in an average.
    """
    first_weight, then_weight = first.looks, then.looks

    def mean(first_value: int, then_value: int) -> int:
        return round(
            (first_value * first_weight + then_value * then_weight) / (first_weight + then_weight)
        )

    def mean_table(first_table: _Table, then_table: _Table) -> _Table:
        before, after = dict(first_table), dict(then_table)
        keys = sorted(before.keys() | after.keys())
        return tuple((key, mean(before.get(key, 0), after.get(key, 0))) for key in keys)

    def united(first_set: tuple[int, ...], then_set: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted({*first_set, *then_set}))

    resident_bytes = _join_known(first.rss_bytes, then.rss_bytes, max)
    return replace(
        then,
        processes=max(first.processes, then.processes),
        unread=max(first.unread, then.unread),
        cpus=united(first.cpus, then.cpus),
        allowed=_join_known(first.allowed, then.allowed, united),
        migrations=_join_known(first.migrations, then.migrations, max),
        pages_migrated=_join_known(first.pages_migrated, then.pages_migrated, max),
        node_bytes=_join_known(first.node_bytes, then.node_bytes, mean_table),
        astray_bytes=max(
            (first.astray_bytes or first.node_bytes, then.astray_bytes or then.node_bytes),
            key=lambda table: _astray(table, nodes),
        ),
        policy=then.policy or first.policy,
        page_bytes=_join_known(first.page_bytes, then.page_bytes, mean_table),
        rss_bytes=_join_known(first.rss_bytes, then.rss_bytes, mean),
        peak_bytes=_join_known(
            _join_known(first.peak_bytes, then.peak_bytes, max), resident_bytes, max
        ),
        swap_bytes=_join_known(first.swap_bytes, then.swap_bytes, max),
        read_ns=max(first.read_ns, then.read_ns),
        looks=first_weight + then_weight,
    )


type _Table = tuple[tuple[int, int], ...]


def _join_known[Value](
    first: Value | None, then: Value | None, join: Callable[[Value, Value], Value]
) -> Value | None:
    if first is None or then is None:
        return first if then is None else then
    return join(first, then)


def _astray(node_bytes: _Table | None, nodes: Sequence[int]) -> float:
    """Rank a sample by memory on other nodes than `nodes`: its bytes times its share of all."""
    total_bytes = sum(size_bytes for _, size_bytes in node_bytes or ())
    astray_bytes = sum(size_bytes for node, size_bytes in node_bytes or () if node not in nodes)
    return astray_bytes * astray_bytes / total_bytes if total_bytes else 0.0
