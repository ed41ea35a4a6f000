"""CPUs that a user writes out: `list:0,8,1,9` by OS number, `expr:` in likwid's notation; pure.

The grammar of `expr:` (blanks are allowed around signs; `i`, `n` are numbers):

    EXPR    = PART ["@" PART]...         one list after the other
    PART    = DOMAIN                     all its CPUs, siblings side by side
            | DOMAIN ":" NUMBERS         positions in it, first threads of all cores first
            | "L:" DOMAIN ":" NUMBERS    the same
            | "E:" DOMAIN [":" n [":" CHUNK ":" STRIDE [":" OFFSET]]]
            | LETTER ":" ("scatter" | "balanced" | "cbalanced") [":" n]
    DOMAIN  = "N" | ("S" | "D" | "C" | "M") i
    NUMBERS = item ["," item]...         item: i, i-i or i-i:STEP

N is the machine, S a package, D a die (a package where there are none), C a last-level cache, each
counted in logical order, and M a NUMA node by its place among them; only usable CPUs count. `E:`
takes n CPUs, siblings side by side, in chunks whose starts are STRIDE apart, and begins again at
the end of the domain, as `likwid-pin` does. `scatter` deals CPUs of all domains of a letter in
turn, first threads of all cores first; `balanced` lists each domain's share in one piece, siblings
side by side, and `cbalanced` on as many cores as there are. A run has a copy for each CPU that is
listed, twice for one that is listed twice, unless `--copies` says another number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from rater.plan.topology import PU, Topology
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text import cpuset
from rater.text.values import group_by_key, interleave, printable

MOST_CPUS = 99_999  # in one list: as many as there can be copies

_DOMAIN, _MANY, _NUMBER = "(N|[SDCM][0-9]{1,5})", "0*([1-9][0-9]{0,4})", "([0-9]{1,5})"
_FORMS = {  # how CPUs are taken; the groups are the domain and what the numbers are made of
    "all": compile_later(f"(?:E:)?{_DOMAIN}"),
    "chunks": compile_later(f"E:{_DOMAIN}:{_MANY}(?::{_MANY}:{_MANY}(?::{_NUMBER})?)?"),
    "positions": compile_later(f"(?:L:)?{_DOMAIN}:([0-9].*)"),
    **{
        how: compile_later(f"([NSDCM]):{how}(?::{_MANY})?")
        for how in ("scatter", "balanced", "cbalanced")
    },
}
_EXPECTED = "a domain (N, S0, D0, C0, M0), N:0-3, E:N:8[:CHUNK:STRIDE[:OFFSET]] or S:scatter[:8]"
_MEANING = {"N": "the machine", "S": "packages", "D": "dies", "C": "caches", "M": "NUMA nodes"}


class Part(Struct, frozen=True):
    """CPUs of a domain, or of all domains of a letter."""

    domain: str  # "N", "S0", or a letter alone
    how: str  # of `_FORMS`
    numbers: tuple[int, ...] = ()  # positions; count, chunk, stride, offset; or count: all there is


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of what stands behind `list:`, in the order written.

    Raises `InputError`. A CPU that stands there twice is wrong: that is how hand-written
    lists put two copies on one CPU.
    """
    try:
        cpus = _numbers(text)
    except ValueError as error:
        raise InputError(f"list:{_short(text)}: {error}") from None
    twice = [cpu for cpu, times in Counter(cpus).items() if times > 1]
    if twice:
        raise InputError(
            f"list:{_short(text)} names {cpuset.cpus_text(twice)} more than once: name each once "
            "(more copies than CPUs go round the list; to load a CPU twice on purpose, chain "
            "expressions: expr:N:0-3@N:0)"
        )
    return cpus


def parse_expression(text: str) -> tuple[Part, ...]:
    """Return the parts of what stands behind `expr:`; raises `InputError` that quotes a wrong one.

    >>> parse_expression("E:S1:4 @ M:scatter")
    (Part(domain='S1', how='chunks', numbers=(4,)), Part(domain='M', how='scatter', numbers=()))
    """
    plain = text
    for sign in "-:,@":
        plain = sign.join(part.strip() for part in plain.split(sign))
    try:
        return tuple(map(_part, plain.split("@")))
    except ValueError as error:
        raise InputError(f"expr:{_short(text)}: {error}") from None


def cpus_of(topology: Topology, text: str) -> tuple[PU, ...]:
    """Return the PUs that `list:` names; raises `InputError` for those that may not be used."""
    cpus = parse_cpus(text)
    missing = [cpu for cpu in cpus if cpu not in topology.by_cpu]
    if missing:
        existing = {pu.os for pu in topology.machine_pus}
        wrong = group_by_key(
            ("not free to use" if cpu in existing else "not there", cpu) for cpu in missing
        )
        texts = [
            f"{cpuset.cpus_text(wrong[why])} {'is' if len(wrong[why]) == 1 else 'are'} {why}"
            for why in sorted(wrong, reverse=True)
        ]
        raise InputError(
            f"list:{_short(text)}: on {topology.source} {' and '.join(texts)}: "
            f"use some of {cpuset.format_list(topology.by_cpu)}"
        )
    return tuple(topology.by_cpu[cpu] for cpu in cpus)


def evaluate_expression(topology: Topology, text: str) -> tuple[PU, ...]:
    """Return the PUs that `expr:` means on a machine; one can be there more than once.

    Raises `InputError` for domains and positions that the machine does not have.
    """
    parts = parse_expression(text)
    try:
        pus = tuple(pu for part in parts for pu in _pus_of(topology, part))
    except ValueError as error:
        raise InputError(f"expr:{_short(text)}: {error}") from None
    if len(pus) > MOST_CPUS:
        raise InputError(f"expr:{_short(text)}: {len(pus)} CPUs, expected at most {MOST_CPUS}")
    return pus


def _numbers(text: str) -> tuple[int, ...]:
    all_numbers: list[int] = []
    for item in text.split(","):
        span, colon, step = item.partition(":")
        numbers = cpuset.parse_list(span)
        if not numbers or (colon and not re.fullmatch(_MANY, step.strip(), re.ASCII)):
            raise ValueError(f"{item!r} is no number or range, as in 7, 0-3 or 0-62:2")
        all_numbers += numbers[:: int(step or 1)]
        if len(all_numbers) > MOST_CPUS:
            raise ValueError(f"expected no more than {MOST_CPUS} numbers")
    return tuple(all_numbers)


def _part(text: str) -> Part:
    for how, form in _FORMS.items():
        if match := form.fullmatch(text):
            domain, *rest = (group for group in match.groups() if group is not None)
            numbers = _numbers(rest[0]) if how == "positions" else tuple(map(int, rest))
            return Part(domain, how, numbers)
    raise ValueError(f"{_short(text)!r} is none of its parts: expected {_EXPECTED}")


def _pus_of(topology: Topology, part: Part) -> Sequence[PU]:
    domains = _domains(topology, part.domain[0])
    if part.how in ("scatter", "balanced", "cbalanced"):
        return _in_turns(topology, part, list(domains.values()))
    index = int(part.domain[1:] or 0)
    if index not in domains:
        letter = part.domain[0]
        there = cpuset.format_list(domains).replace(",", f",{letter}")
        raise ValueError(
            f"{topology.source} has no {part.domain} with usable CPUs; "
            f"{_MEANING[letter]} with some: {letter}{there}"
        )
    pus = domains[index]
    if part.how != "positions":
        return _chunked(topology, part, pus)
    pus = _cores_first(pus)
    beyond = [position for position in part.numbers if position >= len(pus)]
    if beyond:
        raise ValueError(
            f"{part.domain} has no position {cpuset.format_list(beyond)} on {topology.source}: its "
            f"{len(pus)} usable CPUs are at {cpuset.format_list(range(len(pus)))}"
        )
    return [pus[position] for position in part.numbers]


def _in_turns(topology: Topology, part: Part, domains: Sequence[Sequence[PU]]) -> list[PU]:
    turns = interleave(map(_cores_first, domains))
    count = part.numbers[0] if part.numbers else len(turns)
    if count > len(turns):
        raise ValueError(
            f"{part.domain}:{part.how}:{count} wants {count} CPUs, and {_MEANING[part.domain]} of "
            f"{topology.source} have {len(turns)} that may be used"
        )
    if part.how == "scatter":
        return turns[:count]
    chosen = {pu.os for pu in turns[:count]}
    shares = [[pu for pu in pus if pu.os in chosen] for pus in domains]
    if part.how == "balanced":
        shares = [[*pus[: len(share)]] for pus, share in zip(domains, shares, strict=True)]
    return [pu for share in shares for pu in share]


def _chunked(topology: Topology, part: Part, pus: Sequence[PU]) -> list[PU]:
    given = part.numbers
    count, chunk, stride, offset = (*given, *(len(pus), 1, 1, 0)[len(given) :])
    if offset >= len(pus):
        raise ValueError(
            f"the offset {offset} lies behind the {len(pus)} usable CPUs of {part.domain} "
            f"on {topology.source}"
        )
    picked: list[PU] = []
    start = offset
    while len(picked) < count:
        picked += pus[start : min(start + chunk, start + count - len(picked))]
        start += stride
        if start >= len(pus):
            start = offset
    return picked


def _domains(topology: Topology, letter: str) -> dict[int, list[PU]]:
    """Return the usable PUs of the domains of a letter, by their numbers."""
    number = _numbering(topology, letter)
    domains = group_by_key((number(pu), pu) for pu in topology.pus)
    numbered = {index: pus for index, pus in domains.items() if index is not None}
    if not numbered:
        raise ValueError(
            f"{letter} stands for {_MEANING[letter]}, and {topology.source} names none "
            "for its usable CPUs: use N"
        )
    return numbered


def _numbering(topology: Topology, letter: str) -> Callable[[PU], int | None]:
    dies = [group for group in topology.details.groups if group.type == "Die"]
    if letter == "N":
        return lambda _: 0
    if letter == "M":  # likwid counts nodes: their own numbers can have gaps
        nodes: dict[int | None, int] = {
            node: at for at, node in enumerate(sorted(topology.by_node))
        }
        return lambda pu: nodes.get(pu.node)
    if letter == "C":
        llcs = dict.fromkeys(pu.llc for pu in topology.machine_pus if pu.llc is not None)
        caches: dict[int | None, int] = {llc: at for at, llc in enumerate(llcs)}
        return lambda pu: caches.get(pu.llc)
    if letter == "D" and dies:
        of = {n: at for at, die in enumerate(dies) for n in range(die.first, die.first + die.count)}
        return lambda pu: of.get(pu.logical)
    return lambda pu: pu.package


def _cores_first(pus: Sequence[PU]) -> list[PU]:
    return sorted(pus, key=lambda pu: (pu.rank, pu.logical))


def _short(text: str) -> str:
    """Return a user's text for a message: printable, and cut where it is long."""
    return printable(text, 60)
