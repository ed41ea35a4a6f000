"""Orders that a user writes out: `list:0,8,1,9` by OS number, `expr:` in likwid's notation.

The grammar of `expr:` (blanks are allowed between words; `i`, `n` are numbers):

    EXPR    = PART ["@" PART]...         one list after the other
    PART    = DOMAIN                     all its CPUs, siblings side by side
            | DOMAIN ":" NUMBERS         positions in it, first threads of all cores first
            | "L:" DOMAIN ":" NUMBERS    the same
            | "E:" DOMAIN [":" n [":" CHUNK ":" STRIDE [":" OFFSET]]]
            | LETTER ":" ("scatter" | "balanced" | "cbalanced") [":" n]
    DOMAIN  = "N" | ("S" | "D" | "C" | "M") i
    NUMBERS = item ["," item]...         item: i, i-i or i-i:STEP

N is the machine, S a package, D a die (a package where there are none), C a
last-level cache, each counted in logical order, and M the lgroup with that OS
number; only usable CPUs count. `E:` takes n CPUs, siblings side by side, in
chunks whose starts are STRIDE apart, and begins again at the end of the domain,
as `likwid-pin` does. `scatter` deals CPUs of all domains of a letter in turn,
first threads of all cores first; `balanced` lists each domain's share in one
piece, siblings side by side, and `cbalanced` on as many cores as there are.
A run has a copy for each CPU that is listed, twice for one that is listed twice,
unless `--copies` says another number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from rater.errors import InputError
from rater.text import cpuset
from rater.text.words import printable

MOST_CPUS = 99_999  # in one list: as many as there can be copies

_DIGITS = re.compile(r"[0-9]+", re.ASCII)
_WORD = re.compile(r"[A-Za-z]+", re.ASCII)
_LETTERS = "NSDCM"
_DISTRIBUTIONS = ("scatter", "balanced", "cbalanced")
_BLANKS = " \t"


@dataclass(frozen=True, slots=True)
class Positions:
    """CPUs at positions of a domain, counted over first threads, then second threads, ..."""

    domain: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunks:
    """CPUs of a domain in chunks, siblings side by side."""

    domain: str
    count: int | None  # None: all of the domain
    chunk: int = 1
    stride: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Distribution:
    """CPUs of all domains of a letter, assigned to them evenly."""

    letter: str
    how: str
    count: int | None  # None: all of them


type Part = Positions | Chunks | Distribution


def parse_cpus(text: str) -> tuple[int, ...]:
    """Return the CPUs of what stands behind `list:`, in the order written.

    Raises `InputError` with the position of what is wrong. A CPU that stands there
    twice is wrong: that is how hand-written lists put two copies on one CPU.
    """
    reader = _Reader(text, "list:")
    cpus = reader.numbers(cpuset.MAX_NUMBER)
    reader.end()
    twice = sorted(cpu for cpu, times in Counter(cpus).items() if times > 1)
    if twice:
        raise InputError(
            f"list:{short(text)} names {'CPU' if len(twice) == 1 else 'CPUs'} "
            f"{cpuset.format_list(twice)} more than once: name each once (more copies than CPUs go "
            "round the list; to load a CPU twice on purpose, chain expressions: expr:N:0-3@N:0)"
        )
    return cpus


def parse_expression(text: str) -> tuple[Part, ...]:
    """Return the parts of what stands behind `expr:`.

    Raises `InputError` with the position of what is wrong.
    """
    reader = _Reader(text, "expr:")
    parts = [_part(reader)]
    while reader.skip("@"):
        parts.append(_part(reader))
    reader.end("'@' or the end")
    return tuple(parts)


def _part(reader: _Reader) -> Part:
    place = reader.place
    word = reader.word("a domain (N, S0, D0, C0, M0) or E: or L:")
    if word == "E":
        reader.need(":")
        return _chunks(reader, _domain(reader))
    if word == "L":
        reader.need(":")
        domain = _domain(reader)
        reader.need(":")
        return Positions(domain, reader.numbers(cpuset.MAX_NUMBER))
    if word not in _LETTERS:
        reader.fail("a domain (N, S0, D0, C0, M0) or E: or L:", place)
    if word == "N" or reader.at_digit():
        domain = word if word == "N" else f"{word}{reader.number(0, cpuset.MAX_NUMBER)}"
        if not reader.skip(":"):
            return Chunks(domain, None)
        if word != "N" or reader.at_digit():
            return Positions(domain, reader.numbers(cpuset.MAX_NUMBER))
    else:
        reader.need(
            ":", f"the number of a domain, as in {word}0, or ':' and {_any_of(_DISTRIBUTIONS)}"
        )
    place = reader.place
    how = reader.word(_any_of(_DISTRIBUTIONS))
    if how not in _DISTRIBUTIONS:
        reader.fail(_any_of(_DISTRIBUTIONS), place)
    return Distribution(word, how, reader.number(1, MOST_CPUS) if reader.skip(":") else None)


def _domain(reader: _Reader) -> str:
    place = reader.place
    letter = reader.word("a domain (N, S0, D0, C0, M0)")
    if letter not in _LETTERS:
        reader.fail("a domain (N, S0, D0, C0, M0)", place)
    return letter if letter == "N" else f"{letter}{reader.number(0, cpuset.MAX_NUMBER)}"


def _chunks(reader: _Reader, domain: str) -> Chunks:
    if not reader.skip(":"):
        return Chunks(domain, None)
    count = reader.number(1, MOST_CPUS)
    if not reader.skip(":"):
        return Chunks(domain, count)
    chunk = reader.number(1, MOST_CPUS)
    reader.need(":", "':' and the stride, as in E:N:8:2:4")
    stride = reader.number(1, MOST_CPUS)
    offset = reader.number(0, MOST_CPUS) if reader.skip(":") else 0
    return Chunks(domain, count, chunk, stride, offset)


class _Reader:
    """Words and numbers of a text, from left to right; its errors name the position."""

    def __init__(self, text: str, what: str) -> None:
        self.text = text
        self.what = what
        self.place = 0
        self._blanks()

    def fail(self, expected: str, place: int | None = None) -> NoReturn:
        place = self.place if place is None else place
        found = repr(self.text[place]) if place < len(self.text) else "the end"
        raise InputError(
            f"{self.what}{short(self.text)}: expected {expected} at character {place + 1} "
            f"behind {self.what}, found {found}"
        )

    def at_digit(self) -> bool:
        return _DIGITS.match(self.text, self.place) is not None

    def skip(self, sign: str) -> bool:
        if not self.text.startswith(sign, self.place):
            return False
        self.place += len(sign)
        self._blanks()
        return True

    def need(self, sign: str, expected: str | None = None) -> None:
        if not self.skip(sign):
            self.fail(expected or repr(sign))

    def end(self, expected: str = "',' or '-' or the end") -> None:
        if self.place < len(self.text):
            self.fail(expected)

    def word(self, expected: str) -> str:
        found = _WORD.match(self.text, self.place)
        if found is None:
            self.fail(expected)
        self.place = found.end()
        self._blanks()
        return found[0]

    def number(self, least: int, most: int) -> int:
        found = _DIGITS.match(self.text, self.place)
        digits = found[0].lstrip("0") or "0" if found else ""
        if found is None or len(digits) > len(str(most)) or not least <= int(digits) <= most:
            self.fail(f"a number from {least} to {most}")
        self.place = found.end()
        self._blanks()
        return int(digits)

    def numbers(self, most: int) -> tuple[int, ...]:
        """Return the numbers of `0,8-11,16-30:2` in the order written."""
        found: list[int] = []
        while True:
            place = self.place
            first = last = self.number(0, most)
            step = 1
            if self.skip("-"):
                last = self.number(0, most)
                if last < first:
                    self.fail(f"a range that runs upwards, not {first}-{last},", place)
                if self.skip(":"):
                    step = self.number(1, most)
            found += range(first, last + 1, step)
            if len(found) > MOST_CPUS:
                self.fail(f"no more than {MOST_CPUS} numbers", place)
            if not self.skip(","):
                return tuple(found)

    def _blanks(self) -> None:
        while self.place < len(self.text) and self.text[self.place] in _BLANKS:
            self.place += 1


def _any_of(words: Sequence[str]) -> str:
    return " or ".join(words)


def short(text: str) -> str:
    """Return a user's text for a message: printable, and cut where it is long."""
    clean = printable(text)
    return clean if len(clean) <= 60 else f"{clean[:50]}..."
