"""What is seen of the copies of a phase, from their gates to its end, on the trio thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rater.plan.evidence import gate_complaints, together
from rater.plan.memory import MemoryPolicy
from rater.plan.place import Placement
from rater.record import GateFacts, Noted, Sampled
from rater.run.launch import Child
from rater.run.procdir import gate_facts

MOST_SAMPLES = 16  # kept of one copy's run, however long it is
_PER_TURN = 8  # told at once while copies run: ends wait meanwhile, a few microseconds for each
_NAMED = 3  # copies of one note

type Key = tuple[int, int]  # copy, step


class GateCheck:
    """Reads what copies at their gates may use, and says once of each copy what is not planned."""

    def __init__(self, placements: tuple[Placement, ...], tell: Callable[[Noted], None]) -> None:
        self._placements = placements
        self._tell = tell
        self._told: set[int] = set()
        self._facts: dict[int, GateFacts] = {}

    def check(self, children: Iterable[Child]) -> None:
        """Look at copies that wait at their gates; none of them is reaped yet."""
        found: list[str] = []
        for child in children:
            child.gate_facts = self._facts[child.copy] = facts = gate_facts(child.pid)
            if child.copy in self._told:
                continue
            plan = self._placements[child.copy]
            for complaint in gate_complaints(facts, plan.cpus, _nodes(plan)):
                self._told.add(child.copy)
                found.append(f"copy {child.copy} {complaint}")
        if found:
            more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            self._tell(Noted(f"not placed as planned: {'; '.join(found[:_NAMED])}{more}"))

    def take_over(self, child: Child) -> None:
        """Take what the copy might use at its gate for its next run, which has none.

        It was bound the same way, and by now the program may have bound itself.
        """
        child.gate_facts = self._facts.get(child.copy)


def _nodes(plan: Placement) -> tuple[int, ...]:
    """Return the nodes that memory is to come from, as far as the placement alone tells."""
    if plan.memory_nodes or plan.policy is not MemoryPolicy.LOCAL or plan.node is None:
        return plan.memory_nodes
    return (plan.node,)


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
            self._open[key] = _Kept(_nodes(self._placements[sample.copy]))
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
        self._nodes = nodes
        self.samples: list[Sampled] = []
        self._looks = 1

    def take(self, sample: Sampled) -> None:
        samples = self.samples
        if samples and samples[-1].looks < self._looks:
            samples[-1] = together(samples[-1], sample, self._nodes)
            return
        samples.append(sample)
        if len(samples) > MOST_SAMPLES:
            pairs = zip(samples[::2], samples[1::2], strict=False)
            self.samples = [together(*pair, self._nodes) for pair in pairs] + samples[
                len(samples) & ~1 :
            ]
            self._looks *= 2
