"""Which CPUs stand against the pattern of their own list, when no machine is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

_FEWEST_CPUS = 8
_FEWEST_OF_A_NODE = 3
_LARGEST_SHARE = 0.1  # that may differ: with more it is another pattern
_MOST_LENGTHS = 16


def misplaced(node_of: Mapping[int, int]) -> dict[int, int]:
    """Return CPUs whose node the others contradict, with the node that they make it.

    Machines number CPUs by blocks that take turns over the nodes: `(cpu // B) % k`, B = 1
    where numbers alternate; second threads are a second round. A CPU is misplaced when the
    best such pattern says so and its neighbours in the pattern, before and behind, keep to
    it: at a border another block length would explain it as well.
    """
    cpus = sorted(node_of)
    nodes = len(set(node_of.values()))
    if len(cpus) < _FEWEST_CPUS or nodes < 2:
        return {}
    best: tuple[int, int] | None = None
    expected: dict[int, int] = {}
    for block in _blocks(cpus, node_of):
        classes: dict[int, Counter[int]] = {}
        for cpu in cpus:
            classes.setdefault(cpu // block % nodes, Counter())[node_of[cpu]] += 1
        node = {one: votes.most_common(1)[0][0] for one, votes in classes.items()}
        wrong = sum(votes.total() - votes[node[one]] for one, votes in classes.items())
        if best is None or (wrong, block) < best:
            best = (wrong, block)
            expected = {cpu: node[cpu // block % nodes] for cpu in cpus}
    if best is None or best[0] > _LARGEST_SHARE * len(cpus):
        return {}
    if min(Counter(expected.values()).values()) < _FEWEST_OF_A_NODE:
        return {}
    found = {}
    for place, cpu in enumerate(cpus):
        if node_of[cpu] == expected[cpu]:
            continue
        row = cpus if best[1] > 1 else [one for one in cpus if expected[one] == expected[cpu]]
        at = place if best[1] > 1 else row.index(cpu)
        around = (*row[max(0, at - 1) : at], *row[at + 1 : at + 2])
        if len(around) == 2 and all(
            node_of[one] == expected[one] == expected[cpu] for one in around
        ):
            found[cpu] = expected[cpu]
    return found


def _blocks(cpus: list[int], node_of: Mapping[int, int]) -> list[int]:
    """Return the lengths that blocks of one node have most often, also where one CPU cuts them."""
    starts = [
        cpu
        for place, cpu in enumerate(cpus)
        if place == 0 or node_of[cpu] != node_of[cpus[place - 1]]
    ]
    starts.append(cpus[-1] + 1)
    lengths: Counter[int] = Counter()
    for step in (1, 3):
        lengths.update(b - a for a, b in zip(starts, starts[step:], strict=False))
    return [length for length, _ in lengths.most_common(_MOST_LENGTHS)]
