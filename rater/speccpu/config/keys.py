"""Names of benchmarks and suites as SPEC's files spell them, and mistakes of a file by line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

# Numbers of the floating-point benchmarks; the suites' other benchmarks are integer ones.
_FP = {
    "cpu2000": {168, 171, 172, 173, 177, 178, 179, 183, 187, 188, 189, 191, 200, 301},
    "cpu2006": {
        *(410, 416, 433, 434, 435, 436, 437, 444, 447, 450, 453, 454, 459, 465, 470, 481, 482),
    },
    "cpu2017": {
        *(503, 507, 508, 510, 511, 519, 521, 526, 527, 538, 544, 549, 554),
        *(603, 607, 619, 621, 627, 628, 638, 644, 649, 654),
    },
    "cpu2026": {
        *(709, 722, 731, 736, 737, 748, 749, 765, 766, 767, 772, 782),
        *(800, 803, 809, 811, 816, 820, 822, 849, 857, 865, 867, 872, 881),
    },
}
_INT = {
    "cpu2000": {164, 175, 176, 181, 186, 197, 252, 253, 254, 255, 256, 300},
    "cpu2006": {400, 401, 403, 429, 445, 456, 458, 462, 464, 471, 473, 483},
    "cpu2017": {
        *(500, 502, 505, 520, 523, 525, 531, 541, 548, 557),
        *(600, 602, 605, 620, 623, 625, 631, 641, 648, 657),
    },
    "cpu2026": {
        *(706, 707, 708, 710, 714, 721, 723, 727, 729, 734, 735, 750, 753, 777),
        *(801, 807, 817, 821, 823, 827, 829, 834, 835, 838, 846, 853, 854),
    },
}
_NUMBER = re.compile(r"(\d{3})[._]")
NOT_SCORED = (996, 997, 998, 999)  # specrand: run, but in no metric
KNOWN_SUITES = tuple(_FP)
# CPU2000's rates count in units of the longest reference time an hour (171.swim, 3100 s).
RATE_FACTOR = {"cpu2000": 3600 / 3100}
SPEED_FACTOR = {"cpu2000": 100.0}


_NUMBERED = re.compile(r"\d{3}\.[\w+-]+", re.ASCII)


def number_of(benchmark: str) -> int | None:
    """Return 400 for `400.perlbench`, None for a name without a number."""
    found = _NUMBER.match(benchmark)
    return int(found[1]) if found else None


def suite_of(benchmark: str) -> str | None:
    """Return the suite that has a benchmark of this number."""
    number = number_of(benchmark)
    for suite in KNOWN_SUITES:
        if number in _FP[suite] or number in _INT[suite]:
            return suite
    return None


def first_benchmark(words: Iterable[str]) -> str | None:
    """Return the first word that is a benchmark with its number: 400.perlbench, 500.perlbench_r."""
    return next((word for word in words if _NUMBERED.fullmatch(word) and suite_of(word)), None)


def category(benchmark: str, suite: str | None, metric: str | None = None) -> str | None:
    """Return "int" or "fp"; None if neither number nor metric says it.

    The number tells, else the metric of a raw file (`CINT2006`, `SPECrate2017_fp_base`).
    """
    number = number_of(benchmark)
    if suite in _FP and number in _FP[suite]:
        return "fp"
    if suite in _INT and number in _INT[suite]:
        return "int"
    lowered = (metric or "").lower()
    if number in NOT_SCORED or not lowered:
        return None
    return "fp" if "fp" in lowered else "int" if "int" in lowered else None


def is_whole(benchmarks: Iterable[str]) -> bool:
    """Tell whether these are all the benchmarks of a suite's metric: int or fp, rate or speed.

    Names that are of no suite are whole as they are.
    """
    numbers = {number_of(benchmark) for benchmark in benchmarks}
    suites = [*_FP.values(), *_INT.values()]
    # CPU2017's rates are numbered from 500, its speeds from 600, CPU2026's from 700 and 800; the
    # other suites have one set.
    halves = ({5}, {6}, {7}, {8}, {1, 2, 3, 4})
    groups = (
        {number for number in suite_numbers if number // 100 in half}
        for suite_numbers in suites
        for half in halves
    )
    return all(group <= numbers for group in groups if group & numbers)


def dotted(key: str) -> str:
    """Return `400.perlbench` for `400_perlbench`, the spelling inside keys."""
    return re.sub(r"^(\d+)_", r"\1.", key)


def undotted(benchmark: str) -> str:
    """Return a name as it can stand inside a key."""
    return re.sub(r"[^A-Za-z0-9_+-]", "_", benchmark) or "_"


# -- What is wrong with a file of SPEC's, line by line ---------------------------------------------

_MOST_PROBLEMS = 1000  # kept with their line; of more only the number is


class Problem(Struct, frozen=True, order=True):
    """Something of a file that could not be read, or cannot be so."""

    line: int  # from 1; 0: the file as a whole
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}" if self.line else self.text


class Problems(Struct):
    """The problems of one file: the first thousand, and how many there were."""

    kept: list[Problem] = field(default_factory=list)
    count: int = 0

    def add(self, line: int, text: str) -> None:
        """Note a problem; of a flood only the number is kept."""
        self.count += 1
        if len(self.kept) < _MOST_PROBLEMS:
            self.kept.append(Problem(line, text))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.kept)
