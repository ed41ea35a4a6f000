"""The PUs of a machine in the order in which copies get them: filtered, ordered, in slots; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import zip_longest
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from rater.errors import InputError
from rater.plan.placement.layout import (
    MOST_CPUS,
    Chunks,
    CpuOrder,
    Distribution,
    Layout,
    MachineParts,
    Part,
    Positions,
    options,
    parse_cpus,
    parse_expression,
    short,
)
from rater.plan.topology import PU, Topology, ranked
from rater.text import cpuset
from rater.text.values import group_by_key

# What a copy gets is a *slot*: one PU, or several neighbouring ones. Orders work on
# *tiers* of slots, the best ones first: the first threads of all cores, faster kinds
# before slower ones, then the second threads, and so on. Each order is a permutation
# of the slots. A *domain* is the usable PUs of one lgroup; PUs without a node form
# one domain a package. A slot counts where its first PU lies.

type Key = Callable[[PU], object]
type Slot = tuple[PU, ...]  # the PUs of one copy, in logical order
type Tiers = Sequence[Sequence[Slot]]  # slots in logical order in each


def interleave[T](queues: Iterable[Sequence[T]]) -> list[T]:
    """Return one of each queue, then the second one of each, and so on."""
    return [one for row in zip_longest(*queues) for one in row if one is not None]


def singles(topology: Topology) -> Tiers:
    """Return each usable PU as a slot of its own."""
    tiers = group_by_key(((pu.rank, -pu.kind), (pu,)) for pu in topology.pus)
    return [tiers[tier] for tier in sorted(tiers)]


def by_number(tiers: Tiers) -> list[Slot]:
    """Return the slots by ascending OS number."""
    return sorted(_all(tiers), key=lambda slot: slot[0].os)


def compact(tiers: Tiers) -> list[Slot]:
    """Return the slots by logical index: each as near as possible to the one before."""
    return sorted(_all(tiers), key=lambda slot: slot[0].logical)


def cores(tiers: Tiers) -> list[Slot]:
    """Return tier after tier, each along the machine: every core once, then second threads."""
    return _all(tiers)


def fill(tiers: Tiers) -> list[Slot]:
    """Return the slots domain by domain; inside one as `cores` does."""
    place: dict[object, int] = {}
    for slot in compact(tiers):
        place.setdefault(slot[0].domain, len(place))
    return sorted(_all(tiers), key=lambda slot: place[slot[0].domain])


def scatter(tiers: Tiers) -> list[Slot]:
    """Return the slots, each next one as far from those before as the machine allows.

    In each tier the domains take turns: one of each package, then the second one of
    each. Inside a domain packages and then LLCs take turns. A domain over several
    packages stands beside packages, so loose cores of a broken tree never count like
    one. As every domain has a turn in every round, equal domains differ by at most
    one slot at every prefix, however many of them a package holds.
    """
    packages: dict[object, set[int | None]] = {}
    for slot in _all(tiers):
        packages.setdefault(slot[0].domain, set()).update(pu.package for pu in slot)

    def top(pu: PU) -> object:
        domain = pu.domain
        return pu.package if len(packages[domain]) == 1 else ("domain", domain)

    found: list[Slot] = []
    for tier in tiers:
        domains = group_by_key((slot[0].domain, slot) for slot in tier)
        turns = _round_robin([slots[0] for slots in domains.values()], (top,))
        queues = [domains[first[0].domain] for first in turns]
        found += interleave([_round_robin(queue, _INSIDE) for queue in queues])
    return found


def balanced(tiers: Tiers, copies: int) -> list[Slot]:
    """Return the slots that `scatter` gives to so many copies, by logical index."""
    return sorted(scatter(tiers)[:copies], key=lambda slot: slot[0].logical)


# Every order that depends on nothing but the slots.
PERMUTATIONS: dict[CpuOrder, Callable[[Tiers], list[Slot]]] = {
    CpuOrder.OS: by_number,
    CpuOrder.COMPACT: compact,
    CpuOrder.CORES: cores,
    CpuOrder.FILL: fill,
    CpuOrder.SCATTER: scatter,
}

_INSIDE: tuple[Key, ...] = (lambda pu: pu.package, lambda pu: pu.llc)


def _all(tiers: Tiers) -> list[Slot]:
    return [slot for tier in tiers for slot in tier]


def _round_robin(slots: Sequence[Slot], keys: Sequence[Key]) -> Sequence[Slot]:
    """Take slots in turn from the groups of the first key, each ordered by the keys after it."""
    if not keys or len(slots) < 2:
        return slots
    groups = group_by_key((keys[0](slot[0]), slot) for slot in slots)
    return interleave([_round_robin(group, keys[1:]) for group in groups.values()])


# -- What of a machine a layout leaves to its copies: exclusions, reserved cores, filters ----------


class FilteredMachine(Struct, frozen=True):
    """A machine as a layout sees it."""

    topology: Topology  # with the PUs that copies are given, ranks counted among these
    open: Topology  # before `only`, `exclude`, `kind` and `smt`: all but the reserved cores
    reserved: tuple[PU, ...]  # for the system and the supervisor, in logical order


def apply_filters(topology: Topology, layout: Layout) -> FilteredMachine:
    """Return what a layout leaves of a machine.

    In this order: CPUs that it names are usable; excluded CPUs go; the reserved cores are taken
    from the rest of the machine (so `--reserve` costs copies nothing where they do not run); `only`
    and `kind` choose among what is left; `smt` keeps the first threads of each core.
    Raises `InputError` for CPUs, lgroups, cores and kinds that the machine does not
    have, and when nothing is left.
    """
    named = parse_cpus(layout.text) if layout.order is CpuOrder.LIST else ()
    topology = topology.with_cpus((*named, *layout.only.cpus))
    _check_parts(topology, layout.only, f"layout {layout.name}")
    _check_parts(topology, layout.exclude, f"layout {layout.name}: exclude")
    may = _without(topology, layout.exclude) if layout.exclude else topology
    reserved = reserve(may, layout.reserve) if layout.reserve else ()
    taken = {pu.os for pu in reserved}
    pus = [pu for pu in may.pus if pu.os not in taken]
    if layout.only.cpus:
        cpus = set(layout.only.cpus)
        pus = [pu for pu in pus if pu.os in cpus]
    if layout.only.nodes:
        nodes = set(layout.only.nodes)
        pus = [pu for pu in pus if pu.node in nodes]
    if layout.kind:
        wanted = kind_number(topology, layout.kind)
        pus = [pu for pu in pus if pu.kind == wanted]
    left = restrict_to(topology, pus)
    if layout.smt is not None:
        left = restrict_to(topology, [pu for pu in left.pus if pu.rank < layout.smt])
    if not left.pus:
        raise InputError(
            f"layout {layout.name} ({', '.join(options(layout))}) leaves none of the "
            f"{len(topology.pus)} usable CPUs of {topology.source} to copies: ask for less"
        )
    rest = (
        restrict_to(topology, [pu for pu in topology.pus if pu.os not in taken])
        if taken
        else topology
    )
    return FilteredMachine(left, rest, reserved)


def restrict_to(topology: Topology, pus: Collection[PU]) -> Topology:
    """Return the machine with these of its usable PUs (in logical order) as the only ones.

    A PU's rank is counted anew among those of its core that are left.
    """
    if len(pus) == len(topology.pus):
        return topology
    return replace(topology, pus=ranked(pus), whole=topology.machine_pus)


def reserve(topology: Topology, cores: int) -> tuple[PU, ...]:
    """Return the PUs of `cores` whole cores to keep free of copies, in logical order.

    First the core of the lowest OS number, where interrupts arrive, then one of
    each other lgroup, and so on in turn; in each the cores of the lowest OS numbers.
    Raises `InputError` when that would leave no core.
    """
    if cores >= len(topology.cores):
        raise InputError(
            f"reserve {cores}: {topology.source} has {len(topology.cores)} usable cores "
            "that are not excluded: reserve fewer, so that one is left for copies"
        )
    by_number = sorted(topology.cores, key=lambda core: min(pu.os for pu in core))
    lgroups = group_by_key((core[0].domain, core) for core in by_number)
    taken = (pu for core in interleave(lgroups.values())[:cores] for pu in core)
    return tuple(sorted(taken, key=lambda pu: pu.logical))


def kind_number(topology: Topology, kind: str) -> int:
    """Return the number (0 the slowest) of `fast`, `slow` or a number as text.

    Raises `InputError` for one that the usable CPUs are not of, and where nothing tells
    which of several kinds is faster.
    """
    unranked = topology.unranked_kinds
    if unranked:
        kinds = ", ".join(f"CPUs {cpuset.format_list(cpus)}" for cpus in unranked)
        raise InputError(
            f"kind {kind}: {topology.source} has CPUs of {len(unranked)} kinds ({kinds}) and does "
            "not tell which is faster: name the CPUs, as in --layout "
            f"list:{cpuset.format_list(unranked[0])}"
        )
    by_kind = group_by_key((pu.kind, pu.os) for pu in topology.pus)
    number = {"fast": max(by_kind), "slow": min(by_kind)}.get(kind)
    if number is None:
        number = int(kind)
    if number not in by_kind:
        kinds = ", ".join(f"{k} (CPUs {cpuset.format_list(by_kind[k])})" for k in sorted(by_kind))
        raise InputError(f"kind {kind}: the usable CPUs of {topology.source} are of kind {kinds}")
    return number


def check_asked(topology: Topology, *, smt: int | None, kind: str | None) -> None:
    """Refuse `--smt` and `--kind` where the machine has nothing for them to choose from.

    A layout's own are not held to it: it is for any machine. Raises `InputError`.
    """
    threads = max(Counter(pu.core for pu in topology.machine_pus).values())
    if smt is not None and smt > threads:
        has = "one thread" if threads == 1 else f"{threads} threads at most"
        most = "" if threads == 1 else f"use --smt {threads}, --smt 1, or "
        raise InputError(f"--smt {smt}: a core of {topology.source} has {has}: {most}leave it out")
    one_kind = len({pu.kind for pu in topology.machine_pus}) == 1 and not topology.unranked_kinds
    if kind in ("fast", "slow") and one_kind:
        raise InputError(
            f"--kind {kind}: all CPUs of {topology.source} are of one kind: leave it out"
        )


def _without(topology: Topology, parts: MachineParts) -> Topology:
    cpus, nodes, cores = set(parts.cpus), set(parts.nodes), set(parts.cores)
    return restrict_to(
        topology,
        [
            pu
            for pu in topology.pus
            if pu.os not in cpus and pu.node not in nodes and pu.core not in cores
        ],
    )


def _check_parts(topology: Topology, parts: MachineParts, where: str) -> None:
    """Refuse a layout made for another machine; CPUs that are only offline may be named."""
    cpus = {pu.os for pu in topology.machine_pus} | set(topology.details.offline)
    for name, wanted, there in (
        ("CPUs", parts.cpus, cpus),
        ("NUMA nodes", parts.nodes, set(topology.by_node)),
        ("cores", parts.cores, {pu.core for pu in topology.machine_pus}),
    ):
        absent = set(wanted) - there
        if absent:
            raise InputError(
                f"{where}: {topology.source} has no {name} {cpuset.format_list(absent)}; "
                f"it has {cpuset.format_list(there)}"
            )


# -- The CPUs that `list:` and `expr:` mean on a machine (`cpu_expression` has the grammar) --------

_MEANING = {"N": "the machine", "S": "packages", "D": "dies", "C": "caches", "M": "NUMA nodes"}


def cpus_of(topology: Topology, text: str) -> tuple[PU, ...]:
    """Return the PUs that `list:` names; raises `InputError` for those that may not be used."""
    cpus = parse_cpus(text)
    missing = [cpu for cpu in cpus if cpu not in topology.by_cpu]
    if missing:
        existing = {pu.os for pu in topology.machine_pus}
        unusable = [cpu for cpu in missing if cpu in existing]
        absent = [cpu for cpu in missing if cpu not in existing]
        wrong = [f"{_cpus(absent)} not there"] if absent else []
        wrong += [f"{_cpus(unusable)} not free to use"] if unusable else []
        raise InputError(
            f"list:{short(text)}: on {topology.source} {' and '.join(wrong)}: "
            f"use some of {cpuset.format_list(topology.by_cpu)}"
        )
    return tuple(topology.by_cpu[cpu] for cpu in cpus)


def evaluate_expression(topology: Topology, text: str) -> tuple[PU, ...]:
    """Return the PUs that `expr:` means on a machine; one can be there more than once.

    Raises `InputError` for domains and positions that the machine does not have.
    """
    machine = _Machine(topology, text)
    found = [pu for part in parse_expression(text) for pu in machine.part(part)]
    if len(found) > MOST_CPUS:
        machine.fail(f"{len(found)} CPUs, expected no more than {MOST_CPUS}")
    return tuple(found)


class _Machine:
    """The domains of a machine for one expression, which its errors quote."""

    def __init__(self, topology: Topology, text: str) -> None:
        self.topology = topology
        self.text = text

    def fail(self, message: str) -> NoReturn:
        raise InputError(f"expr:{short(self.text)}: {message}")

    def part(self, part: Part) -> Sequence[PU]:
        """Return the PUs of one part."""
        match part:
            case Positions(domain, positions):
                pus = _cores_first(self._named(domain))
                beyond = [position for position in positions if position >= len(pus)]
                if beyond:
                    self.fail(
                        f"{domain} has no position {cpuset.format_list(beyond)} on "
                        f"{self.topology.source}: its {len(pus)} usable CPUs are at "
                        f"{cpuset.format_list(range(len(pus)))}"
                    )
                return [pus[position] for position in positions]
            case Chunks(domain, count, chunk, stride, offset):
                pus = self._named(domain)
                if offset >= len(pus):
                    self.fail(
                        f"the offset {offset} lies behind the {len(pus)} usable CPUs of {domain} "
                        f"on {self.topology.source}"
                    )
                return _chunked(pus, count or len(pus), chunk, stride, offset)
            case Distribution(letter, how, count):
                return self._in_turns(letter, how, count)

    def _in_turns(self, letter: str, how: str, count: int | None) -> list[PU]:
        domains = list(self._domains(letter).values())
        queues = [_cores_first(pus) for pus in domains]
        turns = interleave(queues)
        if count is not None and count > len(turns):
            self.fail(
                f"{letter}:{how}:{count} wants {count} CPUs, and {_MEANING[letter]} of "
                f"{self.topology.source} have {len(turns)} that may be used"
            )
        turns = turns[:count]
        if how == "scatter":
            return turns
        chosen = {pu.os for pu in turns}
        shares = [[pu for pu in pus if pu.os in chosen] for pus in domains]
        if how == "balanced":
            shares = [pus[: len(share)] for pus, share in zip(domains, shares, strict=True)]
        return [pu for share in shares for pu in share]

    def _named(self, domain: str) -> list[PU]:
        letter, index = domain[0], int(domain[1:] or 0)
        domains = self._domains(letter)
        if index not in domains:
            there = cpuset.format_list(domains).replace(",", f",{letter}")
            self.fail(
                f"{self.topology.source} has no {domain} with usable CPUs; "
                f"{_MEANING[letter]} with some: {letter}{there}"
            )
        return domains[index]

    def _domains(self, letter: str) -> dict[int, list[PU]]:
        number = _numbering(self.topology, letter)
        numbers = ((number(pu), pu) for pu in self.topology.pus)
        domains = group_by_key((index, pu) for index, pu in numbers if index is not None)
        if not domains:
            self.fail(
                f"{letter} stands for {_MEANING[letter]}, and {self.topology.source} names none "
                "for its usable CPUs: use N"
            )
        return domains


def _chunked(pus: Sequence[PU], count: int, chunk: int, stride: int, offset: int) -> list[PU]:
    picked: list[PU] = []
    start = offset
    while len(picked) < count:
        picked += pus[start : min(start + chunk, start + count - len(picked))]
        start += stride
        if start >= len(pus):
            start = offset
    return picked


def _numbering(topology: Topology, letter: str) -> Callable[[PU], int | None]:
    dies = [group for group in topology.details.groups if group.type == "Die"]
    if letter == "N":
        return lambda _: 0
    if letter == "M":  # likwid counts nodes: their own numbers can have gaps
        place = {node: index for index, node in enumerate(sorted(topology.by_node))}
        return lambda pu: None if pu.node is None else place[pu.node]
    if letter == "C":
        caches = dict.fromkeys(pu.llc for pu in topology.machine_pus if pu.llc is not None)
        position = {llc: index for index, llc in enumerate(caches)}
        return lambda pu: None if pu.llc is None else position[pu.llc]
    if letter == "D" and dies:
        of = {
            logical: index
            for index, die in enumerate(dies)
            for logical in range(die.first, die.first + die.count)
        }
        return lambda pu: of.get(pu.logical)
    return lambda pu: pu.package


def _cores_first(pus: Sequence[PU]) -> list[PU]:
    return sorted(pus, key=lambda pu: (pu.rank, pu.logical))


def _cpus(cpus: Sequence[int]) -> str:
    listed = cpuset.format_list(cpus)
    return f"CPU {listed} is" if len(cpus) == 1 else f"CPUs {listed} are"


# -- Slots of several neighbouring PUs, for copies that use several CPUs ---------------------------


def slots_of(topology: Topology, copies: int, threads: int) -> Tiers:
    """Return disjoint slots of `threads` neighbouring PUs, in tiers, best ones first.

    As many as the machine has, at least one: with all its PUs where it has too few.
    A slot lies in one lgroup while any has room, and within one LLC if it fits.
    It is of separate cores as long as `copies` slots of such can be had, unless
    slots with siblings lie in one lgroup where these do not.
    """
    if threads == 1:
        return singles(topology)
    crowded = _groups(topology.pus, threads)
    if not crowded:
        return [[topology.pus]]
    if copies * threads <= len(topology.cores):
        firsts = [pu for pu in topology.pus if pu.rank == 0]
        alone = _groups(firsts, threads)
        if _straying(scatter(alone)[:copies]) <= _straying(scatter(crowded)[:copies]):
            return alone
    return crowded


def whole_first(tiers: Tiers, copies: int) -> tuple[Tiers, Tiers]:
    """Return the slots for `copies`, and those that orders may use only behind them.

    Behind are slots over several lgroups, as far as there are enough without them.
    """
    first: list[Sequence[Slot]] = []
    behind: list[Sequence[Slot]] = []
    for tier in tiers:
        enough = sum(map(len, first)) >= copies
        (behind if enough and _straying(tier) else first).append(tier)
    return first, behind


def spread_slots(topology: Topology, copies: int, threads: int) -> list[Slot]:
    """Return disjoint slots of `threads` neighbouring PUs in the order of `scatter`.

    One a copy, or as many as the machine has; a single one with all its PUs where it
    has too few. A slot lies in one lgroup while any has room, and within one LLC if it
    fits. Of each core so few PUs are taken as leave room for all copies of its lgroup:
    only one as long as there are enough cores.
    """
    if threads == 1:
        return scatter(singles(topology))[:copies]
    wanted = min(copies, len(topology.pus) // threads)
    if not wanted:
        return [topology.pus]
    assigned = [
        scatter(_groups(pus, threads))[:wanted]
        for pus in _tiers_of_cores(topology.pus)
        if len(pus) >= wanted * threads
    ]
    return _loosened(topology, min(assigned, key=_straying), threads)


def _tiers_of_cores(pus: Sequence[PU]) -> list[list[PU]]:
    most = max(pu.rank for pu in pus) + 1
    return [[pu for pu in pus if pu.rank < depth] for depth in range(1, most + 1)]


def _loosened(topology: Topology, slots: Sequence[Slot], threads: int) -> list[Slot]:
    """Give the copies of an lgroup as many cores as it has: whole ones first, the rest crowded.

    That one lgroup is full must not crowd the copies of all others, nor the last copy of
    an lgroup those beside it. No copy gets more PUs of a core than it had to. Lgroups
    that a straying group reaches into stay as they are.
    """
    owned = group_by_key((pu.domain, pu) for pu in topology.pus)
    places = group_by_key(
        (domain, place) for place, slot in enumerate(slots) for domain in {pu.domain for pu in slot}
    )
    found = list(slots)
    for domain, own in places.items():
        if not _straying([slots[place] for place in own]):
            for place, slot in zip(own, _fill(owned[domain], len(own), threads), strict=True):
                found[place] = slot
    return found


def _fill(pus: Sequence[PU], copies: int, threads: int) -> list[Slot]:
    """Cut the PUs of an lgroup, which has room for all `copies`, into their groups."""
    tiers = _tiers_of_cores(pus)
    usable = next(tier for tier in tiers if len(tier) >= copies * threads)
    whole = scatter(_groups(tiers[0], threads))[:copies]
    while True:
        taken = {pu.core for slot in whole for pu in slot}
        rest = [pu for pu in usable if pu.core not in taken]
        missing = copies - len(whole)
        if len(rest) >= missing * threads:
            return whole + scatter(_groups(rest, threads))[:missing]
        whole.pop()


def _groups(pus: Sequence[PU], threads: int) -> list[list[Slot]]:
    """Cut PUs into groups; tiers of them, those that lie closest together first.

    What is left over in an LLC meets what is left over in others of its lgroup, and so on up.
    """
    levels: tuple[Key, ...] = (
        lambda pu: (pu.domain, pu.llc, pu.kind),
        lambda pu: (pu.domain, pu.llc),
        lambda pu: pu.domain,
        lambda pu: pu.package,
        lambda pu: None,
    )
    tiers: list[list[Slot]] = []
    rest = list(pus)
    for key in levels:
        whole: list[Slot] = []
        left: list[PU] = []
        for group in group_by_key((key(pu), pu) for pu in rest).values():
            end = len(group) // threads * threads
            whole += [tuple(group[begin : begin + threads]) for begin in range(0, end, threads)]
            left += group[end:]
        rest = sorted(left, key=lambda pu: pu.logical)
        cut = group_by_key((min(pu.kind for pu in slot), slot) for slot in whole)  # by the slowest
        tiers += [cut[kind] for kind in sorted(cut, reverse=True)]
    return tiers


def _straying(slots: Sequence[Slot]) -> int:
    return sum(len({pu.domain for pu in slot}) > 1 for slot in slots)
