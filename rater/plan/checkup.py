"""What `rater checkup` runs: which copies work where, whose turn comes when; pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.request import Request
from rater.plan.topology import PU, Topology
from rater.text.cpuset import format_list

TAG, PROBE, MEMORY = "checkup", "probe", "memory"  # tags of its runs
STEPS = 5  # intensities of load, as suites/memory/matrix.c has them
_SUITE = "matrix"
_MB = 1 << 20
# STREAM asks for four times the caches of all CPUs that take part.
_CACHE_TIMES = 4
_LEAST_ALONE, _MOST_ALONE, _LEAST_SHARED = 64 * _MB, 4096 * _MB, 32 * _MB
_LEAST_WORKING_SET = 4 * _MB  # where memory is short
_MOST_OF_FREE = 0.4  # of a node's free memory
_WINDOW_MS = (50, 1000)
_OF_SETUP = 1 / 8  # of the time of set-up, at least: a machine that is slow wants longer windows
_WINDOW_WITH_GAP = 1.1  # matrix.c: GAP_SHARE
_LEAST_PROOF_S = 0.2
_OVERHEAD_S = 0.5  # of a run beside its windows


class CheckupProbe(StrEnum):
    """What a run of a checkup measures; but for the mix, a benchmark of suite `matrix`."""

    LATENCY = "node-latency"
    BANDWIDTH = "node-bandwidth"
    LOADED = "node-loaded"
    CORE = "core"
    MIX = "mix"


class CheckupLimits(Struct, frozen=True, kw_only=True):
    """How long a checkup may take, and what runs on all CPUs at once."""

    rounds: int
    matrix_s: float  # for all windows together
    mix: str
    mix_size: str


FULL = CheckupLimits(rounds=3, matrix_s=360, mix="mini/lu,sort,vm,sparse", mix_size="train")
QUICK = CheckupLimits(rounds=3, matrix_s=60, mix="mini/lu,sort,vm", mix_size="test")


class CheckupPoint(Struct, frozen=True, kw_only=True):
    """One kind of run: a probe, and for a matrix the node that has the memory."""

    probe: CheckupProbe
    memory_node: int | None
    cpus: tuple[int, ...]  # of its copies, in their order
    turns: str  # whose turns come one after another, as MATRIX_TURNS has it
    slots: int  # windows one after another
    bytes: int  # of a copy's working set
    leaders: tuple[int, ...] = ()


def checkup_points(
    topology: Topology, cpus_by_node: dict[int, tuple[int, ...]], free_bytes: dict[int, int]
) -> tuple[CheckupPoint, ...]:
    """Return the runs of a round; `free_bytes` has each node whose memory is measured."""
    nodes = tuple(sorted(cpus_by_node))
    turns = ",".join(map(str, nodes))
    first = tuple(cpus_by_node[node][0] for node in nodes)
    every = tuple(cpu for node in nodes for cpu in cpus_by_node[node])
    most_of_node = max(map(len, cpus_by_node.values()))
    room = {node: int(_MOST_OF_FREE * size) for node, size in free_bytes.items()}
    local_room = min(room.get(node, 0) for node in nodes) // most_of_node
    alone_bytes, shared_bytes = _working_sets(topology)
    points: list[CheckupPoint] = []

    def add(
        probe: CheckupProbe, cpus: tuple[int, ...], slots: int, size: int, memory_node: int | None
    ) -> None:
        if size < _LEAST_WORKING_SET:
            return  # a matrix of caches would be no matrix of memory
        leaders = tuple(map(every.index, first)) if probe is CheckupProbe.LOADED else ()
        points.append(
            CheckupPoint(
                probe=probe,
                memory_node=memory_node,
                cpus=cpus,
                turns="copies" if probe is CheckupProbe.CORE else turns,
                slots=slots,
                bytes=size,
                leaders=leaders,
            )
        )

    for node in sorted(room):
        size = min(alone_bytes, room[node] // len(nodes))
        add(CheckupProbe.LATENCY, first, 2 * len(nodes), size, node)
        if most_of_node > 1:
            size = min(shared_bytes, room[node] // len(every))
            add(CheckupProbe.BANDWIDTH, every, len(nodes), size, node)
    if most_of_node > 1:
        add(CheckupProbe.LOADED, every, STEPS * len(nodes), min(alone_bytes, local_room), None)
    cores = {pu.core: pu.os for pu in sorted(topology.pus, key=lambda pu: -pu.rank)}
    add(CheckupProbe.CORE, tuple(sorted(cores.values())), len(cores), _LEAST_WORKING_SET, None)
    add(CheckupProbe.MIX, (), 0, _LEAST_WORKING_SET, None)
    return tuple(points)


def _working_sets(topology: Topology) -> tuple[int, int]:
    """Return bytes of a copy that has a cache alone, and of one that shares it with all others."""
    largest = max(topology.details.caches, key=lambda cache: cache.size_bytes, default=None)
    size, sharers = (largest.size_bytes, largest.count) if largest else (0, 1)
    alone = min(max(_CACHE_TIMES * size, _LEAST_ALONE), _MOST_ALONE)
    return alone, max(_CACHE_TIMES * size // max(sharers, 1), _LEAST_SHARED)


def usable_cpus(topology: Topology) -> dict[int, tuple[int, ...]]:
    """Return the CPUs of each node with memory that rater may use, a thread of each core first."""

    def order(pu: PU) -> tuple[int, int]:
        return (pu.rank, pu.os)

    cpus: dict[int, list[int]] = {}
    for pu in sorted(topology.pus, key=order):
        if pu.node is not None:
            cpus.setdefault(pu.node, []).append(pu.os)
    return {node: tuple(cpus[node]) for node in sorted(cpus)}


def window_ms(points: Sequence[CheckupPoint], limits: CheckupLimits, setup_s: float) -> int:
    """Return how long a window may be so that all of a checkup takes its time."""
    runs = [point for point in points if point.slots]
    rest_s = limits.matrix_s / limits.rounds - len(runs) * (setup_s + _OVERHEAD_S)
    slots = sum(point.slots for point in runs)
    least, most = _WINDOW_MS
    wanted = max(1e3 * rest_s / (slots * _WINDOW_WITH_GAP), _OF_SETUP * 1e3 * setup_s)
    return round(min(max(wanted, least), most))


def _proof_s(point: CheckupPoint, setup_s: float, window: int) -> float:
    """Return how often copies are looked at: twice, which costs those that share a CPU the least.

    The second look is in the midst of the turns.
    """
    return max((setup_s + point.slots * window * _WINDOW_WITH_GAP / 1e3) / 2.5, _LEAST_PROOF_S)


def request_of_point(
    point: CheckupPoint, request: Request, *, setup_s: float, window: int, limits: CheckupLimits
) -> Request:
    """Return what a run of a point asks for; `request` has what all runs share."""
    tags = (*request.tags, (PROBE, point.probe))
    if point.probe is CheckupProbe.MIX:
        return replace(request, suites=(limits.mix,), size=limits.mix_size, iterations=3, tags=tags)
    environment = {
        "MATRIX_KIB": str(point.bytes >> 10),
        "MATRIX_WINDOW_MS": str(window),
        "MATRIX_SETUP_MS": str(round(1e3 * setup_s)),
        "MATRIX_TURNS": point.turns,
        "MATRIX_LEADERS": ",".join(map(str, point.leaders)),
    }
    node = point.memory_node
    return replace(
        request,
        suites=(f"{_SUITE}/{point.probe}",),
        size="test",
        copies=str(len(point.cpus)),
        layout=f"list:{','.join(map(str, point.cpus))}",
        memory="local" if node is None else f"bind:nodes={format_list((node,))}",
        environment=tuple((name, value) for name, value in environment.items() if value),
        proof=f"{_proof_s(point, setup_s, window):.2f}",
        tags=tags if node is None else (*tags, (MEMORY, str(node))),
    )
