"""What `rater checkup` runs: which copies work where, whose turn comes when; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import batched

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.request import Request
from rater.plan.topology import Topology
from rater.text.cpuset import format_list

TAG, PROBE = "checkup", "probe"  # tags of its runs
LOADS = 5  # intensities of load, as suites/memory/matrix.c has them
_SUITE = "matrix"
_MB = 1 << 20
# STREAM asks for four times the caches of all CPUs that take part.
_CACHE_TIMES = 4
_LEAST_ALONE, _MOST_ALONE, _LEAST_SHARED = 64 * _MB, 4096 * _MB, 32 * _MB
_LEAST_WORKING_SET = 4 * _MB  # a matrix of caches would be no matrix of memory
_MOST_OF_FREE = 0.4  # of a node's free memory
_MOST_COPIES = 512  # of a run: with more the nodes of memory are parted among runs
_WINDOW_MS = (50, 1000)
_OF_FIXED = 1 / 32  # of a run beside its windows, at least: a slow machine wants longer windows
_WINDOW_WITH_GAP = 1.1  # matrix.c: GAP_SHARE
_LEAST_PROOF_S = 0.2


class CheckupPart(StrEnum):
    """What a checkup looks at; `--only` names one."""

    DOCTOR = "doctor"
    FACTS = "facts"
    MEMORY = "memory"
    CORES = "cores"
    MIX = "mix"


class CheckupProbe(StrEnum):
    """What a run of a checkup measures; but for the mix, a benchmark of suite `matrix`."""

    LATENCY = "node-latency"
    BANDWIDTH = "node-bandwidth"
    LOADED = "node-loaded"
    CORE = "core"
    MIX = "mix"

    @property
    def part(self) -> CheckupPart:
        """The part of a checkup that it belongs to."""
        others = {CheckupProbe.CORE: CheckupPart.CORES, CheckupProbe.MIX: CheckupPart.MIX}
        return others.get(self, CheckupPart.MEMORY)


# Windows one after another in a turn, as matrix.c has them.
_WINDOWS = {CheckupProbe.LATENCY: 2, CheckupProbe.LOADED: LOADS}


class CheckupLimits(Struct, frozen=True, kw_only=True):
    """How long a checkup may take, and what runs on all CPUs at once."""

    rounds: int
    total_s: float
    mix: str
    mix_size: str


FULL = CheckupLimits(rounds=3, total_s=570, mix="mini/lu,sort,vm,sparse", mix_size="train")
QUICK = CheckupLimits(rounds=3, total_s=110, mix="mini/lu,sort,vm", mix_size="test")


class CheckupPoint(Struct, frozen=True, kw_only=True):
    """One kind of run."""

    probe: CheckupProbe
    cpus: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()  # each CPU has a copy for each of them; empty: its own node
    places: tuple[tuple[int, ...], ...] = ()  # of each copy; equal ones work at the same time
    bytes: int = 0  # of a copy's working set

    @property
    def turns(self) -> tuple[int, ...]:
        """The turn of each copy."""
        order = {place: turn for turn, place in enumerate(dict.fromkeys(self.places))}
        return tuple(order[place] for place in self.places)

    @property
    def leaders(self) -> tuple[int, ...]:
        """The first copy of each turn: it waits for its loads while the others read."""
        return tuple(self.places.index(place) for place in dict.fromkeys(self.places))

    @property
    def windows(self) -> int:
        """How many windows there are one after another."""
        return _WINDOWS.get(self.probe, 1) * len(set(self.places))

    def windows_s(self, window: int) -> float:
        """Return how long its windows, of so many milliseconds, take together."""
        return self.windows * window * _WINDOW_WITH_GAP / 1e3


def usable_cpus(topology: Topology) -> dict[int, tuple[int, ...]]:
    """Return the CPUs of each node with memory that rater may use, a thread of each core first."""
    return {
        domain.node: tuple(pu.os for pu in sorted(domain.pus, key=lambda pu: (pu.rank, pu.os)))
        for domain in sorted(topology.domains, key=lambda domain: domain.node or 0)
        if domain.node is not None
    }


def checkup_points(
    topology: Topology, cpus_by_node: Mapping[int, tuple[int, ...]], free_bytes: Mapping[int, int]
) -> tuple[CheckupPoint, ...]:
    """Return the runs of a round; `free_bytes` has each node whose memory is measured."""
    firsts = {node: cpus[:1] for node, cpus in cpus_by_node.items()}
    room = {node: int(_MOST_OF_FREE * free) for node, free in free_bytes.items()}
    alone_bytes, shared_bytes = _working_sets(topology)
    points = [*_matrices(CheckupProbe.LATENCY, firsts, alone_bytes, room)]
    most_of_node = max(map(len, cpus_by_node.values()))
    if most_of_node > 1:
        points += _matrices(CheckupProbe.BANDWIDTH, cpus_by_node, shared_bytes, room)
        loaded = CheckupPoint(
            probe=CheckupProbe.LOADED,
            cpus=tuple(cpu for cpus in cpus_by_node.values() for cpu in cpus),
            places=tuple((node,) for node, cpus in cpus_by_node.items() for _ in cpus),
            bytes=min([alone_bytes, *(room.get(it, 0) // most_of_node for it in cpus_by_node)]),
        )
        points += [loaded] if loaded.bytes >= _LEAST_WORKING_SET else []
    cores = tuple(sorted(min(core, key=lambda pu: pu.rank).os for core in topology.cores))
    places = tuple((cpu,) for cpu in cores)
    core_point = CheckupPoint(
        probe=CheckupProbe.CORE, cpus=cores, places=places, bytes=_LEAST_WORKING_SET
    )
    return (*points, core_point, CheckupPoint(probe=CheckupProbe.MIX))


def _matrices(
    probe: CheckupProbe,
    cpus_by_node: Mapping[int, tuple[int, ...]],
    wanted_bytes: int,
    room: Mapping[int, int],
) -> Iterator[CheckupPoint]:
    """Yield runs in which each CPU has a copy for the memory of each node."""
    node_by_cpu = {cpu: node for node, cpus in cpus_by_node.items() for cpu in cpus}
    copies = len(node_by_cpu)
    fitting = [node for node in sorted(room) if room[node] // copies >= _LEAST_WORKING_SET]
    for nodes in batched(fitting, max(1, _MOST_COPIES // copies)):
        yield CheckupPoint(
            probe=probe,
            cpus=tuple(node_by_cpu),
            memory_nodes=nodes,
            places=tuple((node, memory) for memory in nodes for node in node_by_cpu.values()),
            bytes=min([wanted_bytes, *(room[node] // copies for node in nodes)]),
        )


def _working_sets(topology: Topology) -> tuple[int, int]:
    """Return bytes of a copy that has a cache alone, and of one that shares it with all others."""
    largest = max(topology.details.caches, key=lambda cache: cache.size_bytes, default=None)
    size, sharers = (largest.size_bytes, largest.count) if largest else (0, 1)
    alone = min(max(_CACHE_TIMES * size, _LEAST_ALONE), _MOST_ALONE)
    return alone, max(_CACHE_TIMES * size // max(sharers, 1), _LEAST_SHARED)


def window_ms(points: Sequence[CheckupPoint], *, round_s: float, fixed_s: float) -> int:
    """Return how long a window of a round may be; `fixed_s`: of the round beside its windows."""
    windows = sum(point.windows for point in points)
    wanted_ms = 1e3 * (round_s - fixed_s) / max(windows * _WINDOW_WITH_GAP, 1)
    least, most = _WINDOW_MS
    return round(min(max(wanted_ms, 1e3 * _OF_FIXED * fixed_s / len(points), least), most))


def request_of_point(
    point: CheckupPoint, request: Request, *, window: int, limits: CheckupLimits
) -> Request:
    """Return what a run of a point asks for; `request` has what all runs share."""
    tags = (*request.tags, (PROBE, point.probe))
    if point.probe is CheckupProbe.MIX:
        return replace(
            request,
            suites=(limits.mix,),
            size=limits.mix_size,
            iterations=3,
            timeout_s=limits.total_s,
            tags=tags,
        )
    # Copies are looked at twice while they take turns: more costs those that share a CPU.
    proof_s = max(point.windows_s(window) / 2.5, _LEAST_PROOF_S)
    memory = f"bind:each={format_list(point.memory_nodes)}" if point.memory_nodes else "local"
    return replace(
        request,
        suites=(f"{_SUITE}/{point.probe}",),
        size="test",
        copies=str(len(point.places)),
        layout=f"list:{','.join(map(str, point.cpus))}",
        memory=memory,
        environment=(
            ("MATRIX_KIB", str(point.bytes >> 10)),
            ("MATRIX_WINDOW_MS", str(window)),
            ("MATRIX_TURNS", ",".join(map(str, point.turns))),
            ("MATRIX_LEADERS", ",".join(map(str, point.leaders))),
        ),
        proof=f"{proof_s:.2f}",
        tags=tags,
    )
