"""What a bind list gets wrong on a machine, or against its own pattern; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rater.plan.placement.layout import BindLevel, CpuOrder, Layout
from rater.plan.placement.place import plan_placements
from rater.plan.topology import PU, Topology
from rater.record.run import MemoryPolicy
from rater.speccpu.lint.bind_list import (
    BoundCopy,
    LintFinding,
    Scope,
    cpus_text,
    named,
    nodes_text,
)
from rater.text.values import copies_text, count

# -- Which CPUs stand against the pattern of their own list, when no machine is known --------------

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
        node = {group: votes.most_common(1)[0][0] for group, votes in classes.items()}
        wrong = sum(votes.total() - votes[node[group]] for group, votes in classes.items())
        if best is None or (wrong, block) < best:
            best = (wrong, block)
            expected = {cpu: node[cpu // block % nodes] for cpu in cpus}
    if best is None or best[0] > _LARGEST_SHARE * len(cpus):
        return {}
    if min(Counter(expected.values()).values()) < _FEWEST_OF_A_NODE:
        return {}
    expected_node = {}
    for this_place, cpu in enumerate(cpus):
        if node_of[cpu] == expected[cpu]:
            continue
        row = cpus if best[1] > 1 else [other for other in cpus if expected[other] == expected[cpu]]
        at = this_place if best[1] > 1 else row.index(cpu)
        around = (*row[max(0, at - 1) : at], *row[at + 1 : at + 2])
        if len(around) == 2 and all(
            node_of[other] == expected[other] == expected[cpu] for other in around
        ):
            expected_node[cpu] = expected[cpu]
    return expected_node


def _blocks(cpus: list[int], node_of: Mapping[int, int]) -> list[int]:
    starts = [
        cpu
        for place, cpu in enumerate(cpus)
        if place == 0 or node_of[cpu] != node_of[cpus[place - 1]]
    ]
    starts.append(cpus[-1] + 1)
    lengths: Counter[int] = Counter()
    for step in (1, 3):
        lengths.update(end - start for start, end in zip(starts, starts[step:], strict=False))
    return [length for length, _ in lengths.most_common(_MOST_LENGTHS)]


# -- What a bind list gets wrong on a machine: absent CPUs and nodes, far memory, idle CPUs --------

# Every copy as far from the others as can be: with fewer copies than CPUs, too, each has a
# core of its own, and nodes differ by one copy at most.
_SPREAD = Layout(name="scatter", description="", order=CpuOrder.SCATTER, bind=BindLevel.PU)


def machine_findings(scope: Scope) -> Iterator[LintFinding]:
    """Find what only the machine can tell."""
    topology = scope.context.machine
    machine = {pu.os for pu in topology.machine_pus}
    for seat in scope.seats:
        yield from _absent(seat, topology, machine)
        yield from _far(seat, scope)
    usable = len(topology.pus)
    if scope.running > usable and any(seat.cpus for seat in scope.seats):
        yield LintFinding(
            line=scope.copies_line or scope.seats[-1].line,
            kind="many-copies",
            text=f"{scope.running} copies on {count(usable, 'CPU')} that may be used "
            f"({topology.source}): copies share CPUs; run {usable}",
        )
    # A copy too many shares a core and leaves none idle; what is missing was found above.
    sharing = list(_siblings(scope))
    yield from sharing
    if not sharing:
        yield from _idle(scope)


def _width_of(scope: Scope) -> int:
    masks = Counter(seat.cpus for seat in scope.used if seat.cpus and not seat.wide)
    if not masks or max(masks.values()) > 1:
        return 1
    return Counter(len(mask) for mask in masks).most_common(1)[0][0]


def _wanted_copies(scope: Scope) -> int:
    """Return how many copies a list must have to leave nothing idle and share no core early.

    The CPUs are those of as many threads a core as the copies need.
    """
    width = _width_of(scope)
    if width > 1:
        return plan_placements(scope.context.machine, _SPREAD, 1, MemoryPolicy.LOCAL, width).most
    return len(_tier(scope))


def _tier(scope: Scope) -> tuple[PU, ...]:
    topology = scope.context.machine
    number = max(len(scope.seats), scope.running)
    ranks = Counter(pu.rank for pu in topology.pus)
    room = 0
    for rank in sorted(ranks):
        room += ranks[rank]
        if room >= number:
            return tuple(pu for pu in topology.pus if pu.rank <= rank)
    return topology.pus


def _absent(seat: BoundCopy, topology: Topology, machine: set[int]) -> Iterator[LintFinding]:
    bound = set(seat.cpus if seat.binding.cpus else ())
    missing = bound - machine
    if missing:
        offline = missing <= set(topology.details.offline)
        existing = f"{topology.source} has {cpus_text(machine)}"
        why = "offline or not allowed" if offline else f"not there: {existing}"
        verb = "is" if len(missing) == 1 else "are"
        text = f" binds {cpus_text(missing)}, which {verb} {why}"
        yield seat.finding("cpu-missing", text, sorted(missing))
    forbidden = bound - missing - topology.by_cpu.keys()
    if forbidden:
        text = (
            f" binds {cpus_text(forbidden)}, which may not be used (a cpuset or a "
            f"mask leaves {cpus_text(topology.by_cpu)})"
        )
        yield seat.finding("cpu-missing", text, sorted(forbidden))
    absent = {*seat.binding.mem_nodes, *seat.binding.cpu_nodes} - topology.by_node.keys()
    if absent:
        existing = nodes_text(topology.by_node) if topology.by_node else "no node"
        text = f" names {nodes_text(absent)}: the machine has {existing} with memory"
        yield seat.finding("node-missing", text)
    named_nodes = [topology.by_node[number] for number in {*seat.binding.mem_nodes} - absent]
    bare = {node.os for node in named_nodes if node.lacks_memory}
    if bare:
        has = "has" if len(bare) == 1 else "have"
        others = nodes_text(node.os for node in topology.nodes if node.gives_memory)
        text = (
            f" binds memory to {nodes_text(bare)}, which {has} no memory: the kernel refuses it; "
            f"{others} gives some"
        )
        yield seat.finding("node-missing", text)
    shut = {node.os for node in named_nodes if not node.allowed} - bare
    if shut:
        text = f" binds memory to {nodes_text(shut)}, whose memory may not be used"
        yield seat.finding("node-missing", text)


def _far(seat: BoundCopy, scope: Scope) -> Iterator[LintFinding]:
    binding, topology = seat.binding, scope.context.machine
    if binding.policy not in ("bind", "preferred") or not binding.mem_nodes:
        return
    memory = [
        topology.by_node[number] for number in binding.mem_nodes if number in topology.by_node
    ]
    near = {cpu for node in memory for cpu in node.cpus}
    # A CPU without a node has no memory of its own, and any other will do.
    far = [
        cpu
        for cpu in seat.cpus
        if cpu in topology.by_cpu and topology.by_cpu[cpu].node is not None and cpu not in near
    ]
    if not far or not memory:
        return
    homes = sorted({home for cpu in far if (home := topology.by_cpu[cpu].node) is not None})
    distances = [
        distance
        for home in homes
        for node in memory
        if (distance := topology.distance(home, node.os))
    ]
    distance_text = f" (distance {max(distances):g})" if distances else ""
    taken = {cpu for other in scope.seats for cpu in other.cpus}
    free = sorted(cpu for cpu in near if cpu not in taken and cpu in topology.by_cpu)
    option = f"{'-m' if binding.policy == 'bind' else '-p'} {','.join(map(str, homes))}"
    where = nodes_text(node.os for node in memory)
    out = (
        f"bind {cpus_text(free)} of {where}, still free, or use {option}"
        if free
        else f"use {option}"
    )
    text = (
        f" binds memory to {nodes_text(binding.mem_nodes)}, but {cpus_text(far)} "
        f"{'is' if len(far) == 1 else 'are'} of {nodes_text(homes)}{distance_text}; {out}"
    )
    yield seat.finding("far-memory", text, far)


def _siblings(scope: Scope) -> Iterator[LintFinding]:
    topology = scope.context.machine
    seats = [seat for seat in scope.used if len(seat.cpus) == 1 and seat.cpus[0] in topology.by_cpu]
    if len(seats) < len(scope.used) or not seats:
        return
    first: dict[int, BoundCopy] = {}
    sharing: list[tuple[BoundCopy, BoundCopy]] = []
    for seat in seats:
        core = topology.by_cpu[seat.cpus[0]].core
        other = first.setdefault(core, seat)
        if other is not seat and other.cpus != seat.cpus:
            sharing.append((seat, other))
    free = [core for core in topology.cores if core[0].core not in first]
    if not sharing or not free:
        return
    seat, other = sharing[0]
    more = f" ({copies_text(len(sharing))} in all do)" if len(sharing) > 1 else ""
    yield LintFinding(
        line=seat.line,
        kind="siblings",
        text=f"{seat.name} (CPU {seat.cpus[0]}) shares the core of {other.name} "
        f"(CPU {other.cpus[0]}, "
        f"{scope.context.source.number(other.line)}){more}, while {count(len(free), 'core')} "
        f"{'has' if len(free) == 1 else 'have'} no copy: {cpus_text(core[0].os for core in free)}"
        " first",
        copies=tuple(one.copy for one, _ in sharing),
        cpus=tuple(one.cpus[0] for one, _ in sharing),
    )


def _idle(scope: Scope) -> Iterator[LintFinding]:
    seats, topology = scope.seats, scope.context.machine
    if not seats or scope.deliberate or any(not seat.cpus or seat.wide for seat in seats):
        return
    if scope.form == "copy" and scope.copies is None:
        return
    used = {cpu for seat in seats for cpu in seat.cpus}
    doubled = scope.goes_round or sum(len(seat.cpus) for seat in seats) > len(used)
    if scope.context.copies is not None and not doubled:
        return  # so many copies are wanted
    width = _width_of(scope)
    if width > 1:
        idle = set(topology.by_cpu) - used
        if scope.running >= _wanted_copies(scope) or len(idle) < width:
            return
    else:
        idle = {pu.os for pu in _tier(scope)} - used
    if not idle:
        return
    nodes = Counter(topology.by_cpu[cpu].node for cpu in idle)
    at = ", ".join(
        f"{number} on " + ("no node" if node is None else f"node {node}")
        for node, number in sorted(nodes.items(), key=lambda one: (one[0] is None, one[0]))
    )
    if doubled:
        them = "it" if len(idle) == 1 else "them"
        out = f"bind {them} where copies share CPUs"
    else:
        out = (
            f"a list for all has {_wanted_copies(scope)} copies (if {scope.running} are "
            f"meant: --copies {scope.running})"
        )
    yield LintFinding(
        line=scope.copies_line or seats[-1].line,
        kind="idle",
        text=f"{cpus_text(idle)} {'has' if len(idle) == 1 else 'have'} no copy ({at}); {out}",
        cpus=tuple(sorted(idle)),
    )


def remote_note(scope: Scope) -> Iterator[str]:
    """Name copies whose memory is all remote because their node has none."""
    topology = scope.context.topology
    by_cpu = topology.by_cpu if topology is not None else {}
    bare: dict[int, int] = {}  # node without memory by copy
    for seat in scope.used:
        for cpu in seat.cpus:
            node = by_cpu[cpu].bare_node if cpu in by_cpu else None
            if node is not None:
                bare[seat.copy] = node
    if bare:
        has = "has" if len(set(bare.values())) == 1 else "have"
        whose = "copy" if len(bare) == 1 else "copies"
        yield (
            f"{nodes_text(bare.values())} {has} no memory: all memory of {whose} "
            f"{named(bare)} is remote"
        )


def prefix_note(scope: Scope) -> Iterator[str]:
    """Say for which numbers of copies a list that fills the machine shares cores early."""
    seats, topology = scope.seats, scope.context.topology
    if topology is None or scope.copies is not None or scope.form == "copy":
        return
    if any(len(seat.cpus) != 1 or seat.cpus[0] not in topology.by_cpu for seat in seats):
        return
    reached = {topology.by_cpu[seat.cpus[0]].core for seat in seats}
    used: set[int] = set()
    early: list[int] = []
    for place_, seat in enumerate(seats):
        core = topology.by_cpu[seat.cpus[0]].core
        # Of a prefix that ends here: it has shared, and a core that is reached later is free.
        used.add(core)
        if len(used) < place_ + 1 and len(used) < len(reached):
            early.append(place_ + 1)
    if early:
        of = f" ({scope.label})" if scope.label else ""
        yield (
            f"with {early[0]} to {early[-1]} copies of this list{of} some share a core while other "
            "cores have none"
        )
