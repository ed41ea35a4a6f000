"""Places of copies in an observations document, as its topology tells them; pure.

An observation names any of CPU, core, last-level cache, node and package. What it leaves out is
what all CPUs share on which it may have run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rater.record.run import MachinePU
from rater.text.cpuset import MAX_NUMBER, format_list
from rater.text.documents import TableReader
from rater.text.kinds import ValueKind, whole
from rater.text.values import group_by_key, truncate_list

PLACE: Final = whole(0, MAX_NUMBER)  # of a CPU, core, last-level cache, node or package


def _places(value: Any) -> tuple[int, ...] | None:
    are_places = type(value) is list and all(
        type(place) is int and 0 <= place <= MAX_NUMBER for place in value
    )
    return tuple(sorted(set(value))) if are_places else None


PLACES: ValueKind[tuple[int, ...]] = ValueKind(
    f"a list of whole numbers from 0 to {MAX_NUMBER}", _places, ()
)
# Keys of `topology`, and the place of an observation that each of them numbers.
SHARED_BY_PU: Final = {"nodes": "node", "cores": "core", "packages": "package", "llcs": "llc"}
# Of an observation, the smallest first: the first that is known says most about the others.
_PLACE_NAMES: Final = ("cpu", "core", "llc", "node", "package")
_NOUNS: Final = {"cpu": "CPU", "llc": "last-level cache"}
_MOST_RANGES: Final = 6  # of CPUs in a note
_NUMBER = re.compile(r"[0-9]{1,5}", re.ASCII)

type _Named = tuple[int | None, ...]  # what an observation says, by `_PLACE_NAMES`


def read_pus(topology: TableReader) -> tuple[MachinePU, ...]:
    """Return the CPUs of a document's topology; a CPU in two places of a kind is a mistake."""
    places: dict[int, dict[str, int]] = {}
    for key, name in SHARED_BY_PU.items():
        groups = topology.table(key)
        for word in groups.names(_NUMBER, f"expected numbers as keys, each of a {_noun(name)}"):
            for cpu in groups.get(word, PLACES):
                place = places.setdefault(cpu, {})
                if word.isdecimal() and place.setdefault(name, int(word)) != int(word):
                    groups.unexpected(
                        f"no CPU of another {_noun(name)} (CPU {cpu} is in {place[name]})", word
                    )
    return tuple(
        MachinePU(
            cpu=cpu,
            core=place.get("core"),
            llc=place.get("llc"),
            node=place.get("node"),
            package=place.get("package"),
        )
        for cpu, place in sorted(places.items())
    )


class ObservedPlaces:
    """The places that a document's topology knows; it completes those of the observations.

    Where the two contradict each other the observation counts, and `notes` names the contradiction.
    """

    def __init__(self, pus: tuple[MachinePU, ...]) -> None:
        self._places: dict[int, dict[str, int]] = {  # by CPU
            pu.cpu: {
                name: number for name in _PLACE_NAMES if (number := getattr(pu, name)) is not None
            }
            for pu in pus
        }
        self._cpus_by_place: dict[tuple[str, int], frozenset[int]] = {
            place: frozenset(cpus)
            for place, cpus in group_by_key(
                (place, cpu) for cpu, places in self._places.items() for place in places.items()
            ).items()
        }
        # Of a CPU: the first observation of a place; what others say of it, place by place.
        self._first_said: dict[tuple[str, int], int] = {}
        self._against_topology: dict[str, dict[int, int]] = {}
        self._against_each_other: dict[str, dict[int, int]] = {}

    def complete(self, column: dict[str, list[Any]]) -> None:
        """Fill in the places that observations leave out; `column` has their values by field."""
        rows: list[_Named] = list(zip(*(column[name] for name in _PLACE_NAMES), strict=True))
        completed = {row: self._completed(row) for row in dict.fromkeys(rows)}
        for row in completed:
            self._compare(row)
        if not self._places or not rows:
            return
        values_by_name = zip(*(completed[row] for row in rows), strict=True)
        for name, values in zip(_PLACE_NAMES, values_by_name, strict=True):
            column[name] = list(values)

    def notes(self) -> Iterator[str]:
        """Yield what cannot be true at once, in a sentence each."""
        for name, said in self._against_topology.items():
            cpu, number = min(said.items())
            known = self._places[cpu][name]
            yield (
                f"the observations have {_cpus_text(said)} in another {_noun(name)} than the "
                f"topology has (CPU {cpu} in {number}, not {known}): what they say counts"
            )
        for name, said in self._against_each_other.items():
            cpu, number = min(said.items())
            first = self._first_said[name, cpu]
            yield (
                f"the observations have {_cpus_text(said)} in more than one {_noun(name)} "
                f"(CPU {cpu} in {first} and {number})"
            )
        yield from self._note_cores()

    def _note_cores(self) -> Iterator[str]:
        """Yield a note of cores in two packages: numbers that start again in each package."""
        packages: dict[int, dict[int, int]] = {}  # of a core, with the first CPU in each
        for cpu, places in sorted(self._places.items()):
            if "core" in places and "package" in places:
                packages.setdefault(places["core"], {}).setdefault(places["package"], cpu)
        torn = [core for core, cpus in packages.items() if len(cpus) > 1]
        if torn:
            (package, cpu), (other_package, other_cpu) = list(packages[min(torn)].items())[:2]
            yield (
                f"topology.cores has cores of several packages ({min(torn)}: CPU {cpu} of package "
                f"{package}, CPU {other_cpu} of {other_package}): cores are numbered over the "
                "whole machine"
            )

    def _compare(self, row: _Named) -> None:
        """Note where an observation has its CPU elsewhere than the topology or an earlier one."""
        cpu = row[0]
        if cpu is None:
            return
        for name, number in zip(_PLACE_NAMES[1:], row[1:], strict=True):
            if number is None:
                continue
            if number != self._first_said.setdefault((name, cpu), number):
                self._against_each_other.setdefault(name, {}).setdefault(cpu, number)
            if number != self._places.get(cpu, {}).get(name, number):
                self._against_topology.setdefault(name, {}).setdefault(cpu, number)

    def _completed(self, row: _Named) -> _Named:
        """Return the places of a row with those that all CPUs have on which it may have run."""
        candidates: frozenset[int] = frozenset()
        for name, number in zip(_PLACE_NAMES, row, strict=True):
            if number is not None:
                cpus = self._cpus_by_place.get((name, number), frozenset())
                candidates = (candidates & cpus) or candidates or cpus
        if not candidates:
            return row
        return tuple(
            self._shared(name, candidates) if number is None else number
            for name, number in zip(_PLACE_NAMES, row, strict=True)
        )

    def _shared(self, name: str, cpus: Iterable[int]) -> int | None:
        """Return the place that all CPUs have; None: not known of all, or not the same."""
        numbers = {self._places[cpu].get(name) for cpu in cpus}
        return numbers.pop() if len(numbers) == 1 else None


def _cpus_text(cpus: Iterable[int]) -> str:
    numbers = sorted(cpus)
    ranges = truncate_list(format_list(numbers).split(","), _MOST_RANGES)
    return f"CPU{'' if len(numbers) == 1 else 's'} {ranges}"


def _noun(name: str) -> str:
    return _NOUNS.get(name, name)
