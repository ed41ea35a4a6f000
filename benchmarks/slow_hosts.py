"""Made fleets with several slow hosts: which are named, the printed limit, what a gate says.

    python -m benchmarks.slow_hosts [--seeds 50] [--table named|wide|clean|one|limit|gate]

A fleet is `hosts` x 14 benchmarks x 3 iterations unless a line says otherwise. Noise of iterations
has the tail of Student's t of 4; hosts differ by nature by .3 % in each benchmark, and by .2 % as
a whole. Nothing is run: seconds of CPU time for 50 seeds.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rater.analysis.divots.gate import GateLimit
from rater.analysis.results.gates import gate_status
from rater.analysis.stats.robust import Floats
from rater.fleet.archive import IndexedRun
from rater.fleet.gate import SLOW_HOST, SLOW_THROUGHOUT, judge_fleet
from rater.fleet.hosts import HostResult, compare_fleet
from rater.fleet.slowness import HostsJudged, compare_hosts
from rater.record.run import RunStatus

_T4_DEVIATION = 2**0.5  # of Student's t of 4 degrees
_WHOLE_BY_NATURE = 0.002  # ln time: how far hosts of one kind are apart in all benchmarks
_EACH_BY_NATURE = 0.003  # and in each


@dataclass(frozen=True, slots=True)
class Plant:
    """How much slower one host is made."""

    effect: float  # time over its healthy time, less 1
    benchmark: int | None = None  # None: all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeFleet:
    """A kind of fleet; each seed gives another one."""

    hosts: int
    plants: Mapping[int, Sequence[Plant]] = field(default_factory=dict)  # by host
    benchmarks: int = 14
    iterations: int = 3
    noise: float = 0.004  # standard deviation of an iteration, ln
    by_nature: float = _WHOLE_BY_NATURE

    def logs(self, seed: int) -> Floats:
        """Return ln of times, (hosts, benchmarks, iterations)."""
        random = np.random.default_rng([seed, self.hosts, self.benchmarks])
        shape = (self.hosts, self.benchmarks, self.iterations)
        logs = self.noise * random.standard_t(4, shape) / _T4_DEVIATION
        logs += _EACH_BY_NATURE * random.standard_normal((self.hosts, self.benchmarks, 1))
        logs += self.by_nature * random.standard_normal((self.hosts, 1, 1))
        for host, plants in self.plants.items():
            for plant in plants:
                where = slice(None) if plant.benchmark is None else plant.benchmark
                logs[host, where] += np.log1p(plant.effect)
        return np.asarray(logs)


def alike(hosts: int, slow: int, effect: float, **other: float) -> MadeFleet:
    """Return a fleet in which so many hosts are slow alike in all benchmarks."""
    plants = {host: [Plant(effect)] for host in range(slow)}
    return MadeFleet(hosts=hosts, plants=plants, **other)  # type: ignore[arg-type]


def spread(hosts: int, slow: int, effect: float) -> MadeFleet:
    """Return a fleet with slow hosts of three kinds: all benchmarks, half of it, one benchmark."""
    kinds = [[Plant(effect)], [Plant(3 * effect, 5)], [Plant(effect / 2)]]
    return MadeFleet(hosts=hosts, plants={host: kinds[host % 3] for host in range(slow)})


# -- Which hosts are named -------------------------------------------------------------------------

SEVERAL = ((8, 1), (8, 2), (12, 3), (16, 3), (16, 5), (40, 5), (40, 12), (200, 20))


@dataclass(slots=True)
class Named:
    """What became of the hosts of several seeds."""

    planted: int = 0
    named: int = 0  # of these
    as_planted: int = 0  # and in what they were slow: all benchmarks, or the one alone
    false: int = 0
    fleets: int = 0

    def add(self, fleet: MadeFleet, judged: HostsJudged) -> None:
        """Count one fleet."""
        slow = {host.host: host for host in judged.slow}
        self.fleets += 1
        self.planted += len(fleet.plants)
        self.named += len(slow.keys() & fleet.plants.keys())
        self.false += len(slow.keys() - fleet.plants.keys())
        for host, plants in fleet.plants.items():
            if host in slow:
                one = tuple(it.benchmark for it in plants if it.benchmark is not None)
                whole = any(it.benchmark is None for it in plants)
                found = slow[host].effect > 0, slow[host].benchmarks
                self.as_planted += found == (whole, one)

    @property
    def cells(self) -> tuple[str, ...]:
        """Recall, how many are told as planted, and false hosts a fleet."""
        if not self.planted:
            return ("", "", f"{self.false / self.fleets:.3f}")
        shares = (self.named / self.planted, self.as_planted / self.planted)
        return (*(f"{share:.2f}" for share in shares), f"{self.false / self.fleets:.3f}")


def of_seeds(fleet: MadeFleet, seeds: int) -> Named:
    """Judge fleets of a kind."""
    counted = Named()
    for seed in range(seeds):
        counted.add(fleet, compare_hosts(fleet.logs(seed)))
    return counted


def named_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield recall and false hosts of fleets with several slow hosts."""
    yield ("fleet", "named", "as planted", "false a fleet")
    for hosts, slow in SEVERAL:
        for effect in (0.03, 0.06):
            name = f"{slow} of {hosts}, {effect:+.0%} in all"
            yield (name, *of_seeds(alike(hosts, slow, effect), seeds).cells)
        yield (f"{slow} of {hosts}, mixed", *of_seeds(spread(hosts, slow, 0.06), seeds).cells)


WIDE_NOISE = (0.003, 0.01, 0.03)
WIDE_BENCHMARKS = (1, 2, 6, 14, 40)


def clean_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield false hosts a fleet, where no host is slow."""
    yield ("clean: benchmarks", "hosts", *(f"noise {noise:.1%}" for noise in WIDE_NOISE))
    for benchmarks in WIDE_BENCHMARKS:
        for hosts in (4, 5, 8, 12, 16, 40, 200):
            fleets = [
                MadeFleet(hosts=hosts, benchmarks=benchmarks, noise=noise) for noise in WIDE_NOISE
            ]
            false = [of_seeds(fleet, seeds).false / seeds for fleet in fleets]
            yield (str(benchmarks), str(hosts), *(f"{share:.3f}" for share in false))


def wide_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield recall and false hosts a fleet over wide ranges of noise, effects and benchmarks."""
    effects = (0.02, 0.05, 0.1, 0.25)
    yield ("fleet", "benchmarks", "noise", *(f"{effect:+.0%}" for effect in effects), "false")
    for hosts, slow in ((8, 2), (12, 3), (40, 5)):
        for benchmarks in WIDE_BENCHMARKS:
            for noise in WIDE_NOISE:
                counted = [
                    of_seeds(alike(hosts, slow, effect, benchmarks=benchmarks, noise=noise), seeds)
                    for effect in effects
                ]
                false = sum(it.false for it in counted) / sum(it.fleets for it in counted)
                cells = (f"{it.named / it.planted:.2f}" for it in counted)
                row = (f"{slow} of {hosts}", str(benchmarks), f"{noise:.1%}", *cells)
                yield (*row, f"{false:.3f}")


def one_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield false hosts of clean fleets and the recall of one slow host, by the number of hosts."""
    names = ("false a fleet", "1 % apart", "+2% in all", "+3% in all", "+5% in one")
    yield ("hosts", *names)
    for hosts in (4, 8, 12, 64, 1000):
        clean = [MadeFleet(hosts=hosts), MadeFleet(hosts=hosts, by_nature=0.01)]
        one = MadeFleet(hosts=hosts, plants={0: [Plant(0.05, 3)]})
        slow = [alike(hosts, 1, 0.02), alike(hosts, 1, 0.03), one]
        false = (f"{of_seeds(fleet, seeds).false / seeds:.3f}" for fleet in clean)
        recall = (f"{of_seeds(fleet, seeds).named / seeds:.2f}" for fleet in slow)
        yield (str(hosts), *false, *recall)


# -- Is the printed limit kept beside slow hosts ---------------------------------------------------


def limit_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield how many of the planted hosts that are at the printed limit or above are named.

    One host more is slow by 1 to 2.5 times the limit that the fleet prints without it, in all
    benchmarks or in one; the limit is then the one that the fleet prints with it.
    """
    yield (
        "slow hosts beside it",
        "noise",
        "benchmarks",
        "all: kept",
        "limit",
        "one: kept",
        "limit",
    )
    for hosts, slow in ((8, 0), (8, 1), (12, 2), (16, 2), (40, 4)):
        for noise in WIDE_NOISE:
            for benchmarks in (1, 6, 14, 40):
                fleet = alike(hosts, slow, 0.06, noise=noise, benchmarks=benchmarks)
                cells = [_kept(fleet, seeds, benchmark) for benchmark in (None, 0)]
                row = [cell for pair in cells for cell in pair]
                yield (f"{slow} of {hosts}", f"{noise:.1%}", str(benchmarks), *row)


def _kept(fleet: MadeFleet, seeds: int, benchmark: int | None) -> tuple[str, str]:
    kept, above, limits = 0, 0, []
    for seed in range(seeds):
        logs, last = fleet.logs(seed), fleet.hosts - 1
        without = compare_hosts(logs)
        visible = without.visible_whole if benchmark is None else without.visible_one
        effect = visible * (1 + 1.5 * (seed % 10) / 10)
        logs[last, slice(None) if benchmark is None else benchmark] += effect
        judged = compare_hosts(logs)
        visible = judged.visible_whole if benchmark is None else judged.visible_one
        limits.append(visible)
        if effect >= visible:
            above += 1
            kept += last in {host.host for host in judged.slow}
    limit = f"{float(np.expm1(np.median(limits))):.1%}"
    return (f"{kept}/{above}", limit)


# -- What a gate says ------------------------------------------------------------------------------


def _run(host: str) -> IndexedRun:
    return IndexedRun(
        fleet=1, host=host, attempt=1, run=1, uuid=host, hostname=host, machine_id_hash=None,
        status=RunStatus.COMPLETE, reason=None, started_at=None, suite="mini", size="test",
        tune="base", mode="homogeneous", copies=4, cpu_model="CPU", microcode="1",
        memory_bytes=1 << 36, kernel="6.1", cpus=4, setting=1, copy_runs=8, failed=0,
        sha256="", bytes=1,
    )  # fmt: skip


def gate_of(fleet: MadeFleet, seed: int, limit: GateLimit) -> int:
    """Return the exit status of a gate over one fleet."""
    results = []
    for host, rows in enumerate(np.exp(fleet.logs(seed))):
        times = {f"b{place:02}": tuple(map(float, row)) for place, row in enumerate(rows)}
        run = _run(f"n{host:03}")
        results.append(HostResult(run=run, settings={}, bracket_s=times, copy_s=times))
    return gate_status(judge_fleet(compare_fleet(results), (), (), [limit]))


def gate_rows(seeds: int) -> Iterator[tuple[str, ...]]:
    """Yield how often a gate of 5 % gives 0, 1 and 3, by the size of the effect over it."""
    yield ("gate", "hosts", "noise", "effect", "0", "1", "3")
    for kind, benchmark in ((SLOW_THROUGHOUT, None), (SLOW_HOST, None), (SLOW_HOST, 3)):
        place = f"{kind}, {'all' if benchmark is None else 'one'}"
        for hosts, slow in ((4, 1), (8, 1), (8, 2), (16, 3)):
            for noise in (0.003, 0.01, 0.03):
                for times in (0.0, 0.5, 1.0, 2.0):
                    plants = {host: [Plant(0.05 * times, benchmark)] for host in range(slow)}
                    fleet = MadeFleet(hosts=hosts, plants=plants, noise=noise)
                    statuses = Counter(
                        gate_of(fleet, seed, GateLimit(kind, 0.05)) for seed in range(seeds)
                    )
                    row = (str(statuses[status]) for status in (0, 1, 3))
                    yield (place, f"{slow} of {hosts}", f"{noise:.1%}", f"{0.05 * times:.1%}", *row)


TABLES = {
    "named": named_rows,
    "wide": wide_rows,
    "clean": clean_rows,
    "one": one_rows,
    "limit": limit_rows,
    "gate": gate_rows,
}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--table", choices=TABLES, action="append")
    arguments = parser.parse_args()
    for name in arguments.table or TABLES:
        for row in TABLES[name](arguments.seeds):
            first, *others = row
            print(f"{first:26}", *(f"{cell:>13}" for cell in others), flush=True)
        print()


if __name__ == "__main__":
    main()
