"""`python -m benchmarks.divot_cases.two_faults --seed S --runs 12`: the choice of the model.

Runs with two faults at once, with a node that is slow by degrees, with a part that is slow from
some iteration on, and with what is no slow place at all; on machines of 2, 4 and 8 nodes, with
noise of 0.5 and 1.5 % a copy run. A run is right if each fault is named by a finding of its own,
and wrong if a finding names copies that no fault has. The rest is silent.
"""

from __future__ import annotations

import argparse
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from benchmarks.divot_cases.shapes import findings_in_times
from rater.analysis.divots.model.finding import Finding, Kind
from rater.analysis.stats.robust import Bools, Floats, Ints

NODES: Final = (2, 4, 8)
NOISES: Final = (0.005, 0.015)
_NODES_OF_PACKAGE: Final = 2
_ANSWERS: Final = ("right", "silent", "pieces", "wrong")
_OF_TIME: Final = (Kind.SLOW_ITERATION, Kind.STEP, Kind.WARM_UP, Kind.DRIFT)


@dataclass(frozen=True)
class Fault:
    """What has to be named: copies, in some iterations, as one finding of a kind."""

    copies: frozenset[int]
    kind: Kind | None = None  # None: any
    iterations: frozenset[int] | None = None  # None: not looked at


@dataclass
class Made:
    """A made run with what was planted."""

    log_s: Floats  # (B, I, S)
    node: Ints  # (S,)
    package: Ints  # (S,)
    faults: list[Fault] = field(default_factory=list)
    forbidden: frozenset[Kind] = frozenset()  # kinds that no finding may have

    @property
    def guilty(self) -> frozenset[int]:
        """All copies that have a fault."""
        return frozenset().union(*(fault.copies for fault in self.faults))


@dataclass(frozen=True)
class Stage:
    """The machine and the noise of a run that is to be made."""

    random: np.random.Generator
    nodes: int
    of_node: int
    noise: float

    def quiet(self, benchmarks: int, iterations: int) -> Made:
        """Return a run without a fault."""
        slots, draw = self.nodes * self.of_node, self.random.standard_normal
        node = np.arange(slots) // self.of_node
        package = node if self.nodes == 2 else node // _NODES_OF_PACKAGE
        level = np.log(self.random.uniform(20, 300, benchmarks))[:, None, None]
        log_s = level + 0.003 * draw((benchmarks, iterations, 1))
        log_s = log_s + 0.001 * draw((benchmarks, 1, slots))
        log_s = log_s + self.noise * draw((benchmarks, iterations, slots))
        return Made(log_s, node, package)

    def choose(self, numbers: Sequence[int]) -> int:
        """Return one of some numbers by chance."""
        return int(self.random.choice(numbers))

    def uniform(self, low: float, high: float) -> float:
        """Return a size between two sizes by chance."""
        return float(self.random.uniform(low, high))


def _members(mask: Bools) -> frozenset[int]:
    return frozenset(np.flatnonzero(mask).tolist())


def _size_of_node(stage: Stage) -> float:
    return stage.uniform(0.03, 0.08) * (1 if stage.noise < 0.01 else 1.5)


def _node_and_cpu(stage: Stage, *, inside: bool) -> Made:
    made = stage.quiet(stage.choose((3, 5)), 3)
    slow = made.node == stage.choose(range(stage.nodes))
    cpu = stage.choose(np.flatnonzero(slow if inside else ~slow).tolist())
    size = _size_of_node(stage)
    made.log_s[:, :, slow] += size
    made.log_s[:, :, cpu] += size * stage.uniform(2, 5)
    made.faults = [Fault(_members(slow), Kind.SLOW_LGROUP), Fault(frozenset({cpu}))]
    return made


def _unlike_nodes(stage: Stage) -> Made:
    made = stage.quiet(stage.choose((3, 5)), 3)
    if stage.nodes < 4:
        return _node_and_cpu(stage, inside=False)
    first = stage.choose(range(stage.nodes))
    others = [node for node in range(stage.nodes) if node // 2 != first // 2]
    size = _size_of_node(stage)
    for node, times in ((first, 1.0), (stage.choose(others), stage.uniform(1.8, 3))):
        made.log_s[:, :, made.node == node] += size * times
        made.faults.append(Fault(_members(made.node == node), Kind.SLOW_LGROUP))
    return made


def _by_degrees(stage: Stage) -> Made:
    made = stage.quiet(8, 3)
    slow = made.node == stage.choose(range(stage.nodes))
    top = 0.025 if stage.noise < 0.01 else 0.04
    made.log_s[:, :, slow] += stage.random.permutation(np.linspace(0, top, 8))[:, None, None]
    made.faults = [Fault(_members(slow), Kind.SLOW_LGROUP)]
    return made


def _part_over_time(stage: Stage, shape: Callable[[Stage, Ints], Floats]) -> Made:
    made = stage.quiet(stage.choose((1, 3, 5)), stage.choose((8, 10, 20)))
    part = made.package if stage.random.random() < 0.5 else made.node
    slow = part == stage.choose(np.unique(part).tolist())
    weights = shape(stage, np.arange(made.log_s.shape[1]))
    size = stage.uniform(0.02, 0.05) * (1 if stage.noise < 0.01 else 1.3)
    made.log_s += size * weights[None, :, None] * slow
    when = frozenset((np.flatnonzero(weights > 0.3) + 1).tolist())
    made.faults = [Fault(_members(slow), None, when)]
    made.forbidden = frozenset(_OF_TIME)
    return made


def _from_then_on(stage: Stage, iteration: Ints) -> Floats:
    first = stage.choose(range(len(iteration) // 4, 3 * len(iteration) // 4))
    return (iteration >= first).astype(float)


def _window(stage: Stage, iteration: Ints) -> Floats:
    first = stage.choose(range(1, len(iteration) - 3))
    return ((iteration >= first) & (iteration < first + 3)).astype(float)


def _ramp(stage: Stage, iteration: Ints) -> Floats:
    return 1.5 * iteration / (len(iteration) - 1)


def _two_windows(stage: Stage) -> Made:
    """Return a run in which two parts are slow at times of their own."""
    if stage.nodes < 4:
        return _part_over_time(stage, _from_then_on)
    made = stage.quiet(3, 10)
    first = stage.choose(range(stage.nodes))
    second = stage.choose([node for node in range(stage.nodes) if node != first])
    for node, since in ((first, 3), (second, 6)):
        slow = made.node == node
        made.log_s[:, since:, slow] += stage.uniform(0.03, 0.05)
        made.faults.append(Fault(_members(slow), None, frozenset(range(since + 1, 11))))
    made.forbidden = frozenset(_OF_TIME)
    return made


def _cluster(stage: Stage) -> Made:
    made = stage.quiet(5, 3)
    count = stage.choose((3, 4, 6))
    first = stage.choose(range(len(made.node) - count))
    slow = np.isin(np.arange(len(made.node)), np.arange(first, first + count))
    made.log_s[:, :, slow] += 0.033 if stage.noise < 0.01 else 0.06
    made.faults = [Fault(_members(slow))]
    return made


def _turns(stage: Stage) -> Made:
    """Return a run in one benchmark of which another node is slow each time, but for a few."""
    made = stage.quiet(3, 6)
    benchmark = stage.choose(range(3))
    for iteration in range(6):
        slow = made.node == stage.choose(range(stage.nodes))
        lucky = stage.random.random(len(slow)) < 0.06
        made.log_s[benchmark, iteration, slow & ~lucky] += 0.03 if stage.noise < 0.01 else 0.05
    made.faults = [Fault(frozenset(range(len(made.node))), Kind.WANDERING)]
    made.forbidden = frozenset({Kind.SLOW_LGROUP})
    return made


def _small_node(stage: Stage) -> Made:
    """Return a run with a node that is slow by less than can be seen: it may be named or not."""
    made = stage.quiet(5, 3)
    slow = made.node == stage.choose(range(stage.nodes))
    made.log_s[:, :, slow] += stage.uniform(0.006, 0.012)
    made.faults = [Fault(_members(slow), None)]
    made.forbidden = frozenset({Kind.GRADIENT})
    return made


def _unsteady(stage: Stage) -> Made:
    """Return a run with a CPU of five times the noise: it is unsteady, not slow."""
    made = stage.quiet(5, 5)
    cpu = stage.choose(range(len(made.node)))
    extra = stage.random.standard_normal(made.log_s.shape[:2])
    made.log_s[:, :, cpu] += 5 * stage.noise * (extra - extra.mean())
    made.faults = [Fault(frozenset({cpu}), Kind.UNSTEADY)]
    return made


def _boost(stage: Stage) -> Made:
    made = stage.quiet(3, stage.choose((3, 5)))
    made.log_s[:, 0] -= 0.02
    return made


def _clean(stage: Stage) -> Made:
    return stage.quiet(stage.choose((1, 3, 8)), stage.choose((1, 3, 10)))


KINDS: Final[Mapping[str, Callable[[Stage], Made]]] = {
    "node and CPU elsewhere": lambda stage: _node_and_cpu(stage, inside=False),
    "node and CPU inside": lambda stage: _node_and_cpu(stage, inside=True),
    "two unlike nodes": _unlike_nodes,
    "node by degrees": _by_degrees,
    "part from k on": lambda stage: _part_over_time(stage, _from_then_on),
    "part in a window": lambda stage: _part_over_time(stage, _window),
    "part ramps up": lambda stage: _part_over_time(stage, _ramp),
    "two parts from k on": _two_windows,
    "unnamed cluster": _cluster,
    "nodes in turn": _turns,
    "small node": _small_node,
    "unsteady CPU": _unsteady,
    "first iteration fast": _boost,
    "clean": _clean,
}


def make(kind: str, seed: str, number: int, nodes: int, noise: float) -> Made:
    """Return run `number` of a kind."""
    words = f"{seed} {kind} {nodes} {noise}"
    random = np.random.default_rng([zlib.crc32(words.encode()), number])
    of_node = int(random.choice((8, 16) if nodes > 2 else (8, 16, 24)))
    return KINDS[kind](Stage(random, nodes, of_node, noise))


def findings_of(made: Made) -> list[Finding]:
    """Return what the detector says of a run, without what the layout explains."""
    return findings_in_times(made.log_s, made.node, made.package)


def _names(finding: Finding, fault: Fault) -> bool:
    if fault.kind is Kind.WANDERING:
        return finding.kind is fault.kind
    if frozenset(finding.copies) != fault.copies:
        return False
    if fault.kind is not None and finding.kind is not fault.kind:
        return False
    if fault.iterations is None:
        return True
    told = frozenset(finding.iterations or fault.iterations)
    return 2 * len(told & fault.iterations) >= len(told | fault.iterations)


def verdict(made: Made, findings: Sequence[Finding]) -> str:
    """Return `right`, `silent` or `wrong`, and with `+` what is said beside a right answer."""
    innocent = [
        finding
        for finding in findings
        if finding.kind in made.forbidden
        or (finding.has_place and not frozenset(finding.copies) <= made.guilty)
        or not made.faults
    ]
    if innocent:
        return "wrong"
    if all(any(_names(finding, fault) for finding in findings) for fault in made.faults):
        return "right"
    named = [finding for finding in findings if finding.has_place]
    pieces = any(not any(_names(finding, fault) for fault in made.faults) for finding in named)
    return "pieces" if pieces else "silent"


def main() -> None:
    """Judge runs of all kinds and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.divot_cases.two_faults")
    parser.add_argument("--seed", default="open")
    parser.add_argument("--runs", type=int, default=10, help="of a kind, a machine and a noise")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind")
    parser.add_argument("--all", action="store_true", help="print what is said of each wrong run")
    args = parser.parse_args()
    began_s = time.process_time()
    print(
        f"{'kind':24}{'runs':>6}{'right':>7}{'silent':>8}{'pieces':>8}{'wrong':>7}  right by nodes"
    )
    for kind in args.kind or KINDS:
        said: Counter[str] = Counter()
        right: Counter[int] = Counter()
        for nodes in NODES:
            for noise in NOISES:
                for number in range(args.runs):
                    made = make(kind, args.seed, number, nodes, noise)
                    findings = findings_of(made)
                    answer = verdict(made, findings)
                    said[answer] += 1
                    right[nodes] += answer == "right"
                    if args.all and answer != "right":
                        print(f"{kind}, {nodes} nodes, {noise}, {number}: {answer}")
                        for fault in made.faults:
                            print(f"    planted {sorted(fault.copies)} {fault.iterations or ''}")
                        for finding in findings:
                            print(f"    {finding.kind} {finding.place}: {finding.summary}")
        counts = "".join(
            f"{number:8}" for number in (said.total(), *[said[answer] for answer in _ANSWERS])
        )
        print(f"{kind:24}{counts}  {dict(right)}", flush=True)
    print(f"{time.process_time() - began_s:.1f} s of CPU time")


if __name__ == "__main__":
    main()
