"""The CPUs that `list:` and `expr:` mean on a machine (`cpu_expression` has the grammar)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from rater.errors import InputError
from rater.groups import grouped
from rater.plan.placement.cpu_expression import (
    MOST_CPUS,
    Chunks,
    Distribution,
    Part,
    Positions,
    parse_cpus,
    parse_expression,
    short,
)
from rater.plan.placement.orders import in_turn
from rater.plan.topology.model import PU, Topology
from rater.text import cpuset

_MEANING = {"N": "the machine", "S": "packages", "D": "dies", "C": "caches", "M": "lgroups"}


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


def evaluate(topology: Topology, text: str) -> tuple[PU, ...]:
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
        turns = in_turn(queues)
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
        """Return usable PUs in logical order by number of domain."""
        number = _numbering(self.topology, letter)
        numbers = ((number(pu), pu) for pu in self.topology.pus)
        domains = grouped((index, pu) for index, pu in numbers if index is not None)
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
    if letter == "M":
        return lambda pu: pu.node
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
