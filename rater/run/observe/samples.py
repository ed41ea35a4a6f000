"""What is seen of the copies of a phase, from their gates to its end, on the trio thread."""

from __future__ import annotations

from collections.abc import Callable

from rater.plan.placement.place import Placement
from rater.record.events import Sampled
from rater.run.copies.launch import Child
from rater.run.observe.gate_check import nodes_of
from rater.run.observe.merge import together

MOST_SAMPLES = 16  # kept of one copy's run, however long it is
_PER_TURN = 8  # told at once while copies run: ends wait meanwhile, a few microseconds for each


type Key = tuple[int, int]  # copy, step


class Samples:
    """Keeps what is seen of each copy to a bounded number of samples, and hands them on.

    A copy that runs for hours is looked at thousands of times: with more than
    `MOST_SAMPLES` neighbours become one, the average of both.
    """

    def __init__(self, emit: Callable[[Sampled], None], placements: tuple[Placement, ...]) -> None:
        self._emit = emit
        self._placements = placements
        self._open: dict[Key, _Kept] = {}  # of copies that run
        self._over: list[Sampled] = []  # of those that do not any more

    def take(self, sample: Sampled) -> None:
        """Take one look, and hand on some of what copies left that have ended."""
        key = (sample.copy, sample.step)
        if key not in self._open:
            self._open[key] = _Kept(nodes_of(self._placements[sample.copy]))
        self._open[key].take(sample)
        for one in self._over[:_PER_TURN]:
            self._emit(one)
        del self._over[:_PER_TURN]

    def ended(self, child: Child) -> None:
        """Take note that a copy has ended; a look may still come that was made before."""
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
    """The samples of one copy, in order, all but the last of the same number of looks."""

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.samples: list[Sampled] = []
        self._looks = 1

    def take(self, sample: Sampled) -> None:
        samples = self.samples
        if samples and samples[-1].looks < self._looks:
            samples[-1] = together(samples[-1], sample, self.nodes)
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            pairs = zip(samples[::2], samples[1::2], strict=False)
            self.samples = [together(*pair, self.nodes) for pair in pairs] + samples[
                len(samples) & ~1 :
            ]
            self._looks *= 2
