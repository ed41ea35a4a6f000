"""Names of many nodes in one word, as Slurm writes them: `n[001-128,200],login1`; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from rater.errors import InputError
from rater.text.words import count

MOST_NODES = 20_000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that a text stands for, in its order, each once.

    `n[1-3,7]` is n1, n2, n3, n7; `n[08-10]` keeps the zeros; several brackets multiply.
    Raises `InputError` for what is none, and for more than `MOST_NODES`.
    """
    found: dict[str, None] = {}
    for term in _terms(text):
        for name in _expanded(term, text):
            if not _NAME.fullmatch(name):
                raise _bad(text, f"{name!r} is no name of a node")
            found[name] = None
            if len(found) > MOST_NODES:
                raise _bad(text, f"more than {count(MOST_NODES, 'node')}")
    return tuple(found)


def compress(names: Iterable[str]) -> str:
    """Return the shortest text of this kind for names: those that end in a number, in brackets."""
    terms = []
    for key, of_prefix in groupby(_split(names), key=lambda it: it[:2]):
        if key[1] is None:
            terms += [prefix for prefix, _, _ in of_prefix]
            continue
        numbers = sorted({number for _, _, number in of_prefix})
        width = key[1]
        ranges = [
            f"{first:0{width}}" if first == last else f"{first:0{width}}-{last:0{width}}"
            for first, last in _runs(numbers)
        ]
        alone = len(numbers) == 1
        terms.append(f"{key[0]}{ranges[0]}" if alone else f"{key[0]}[{','.join(ranges)}]")
    return ",".join(terms)


def _split(names: Iterable[str]) -> list[tuple[str, int | None, int]]:
    """Return prefix, digits that numbers are padded to (0: none) and number; None: no number."""
    found: list[tuple[str, int | None, int]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            found.append((name, None, 0))
        else:
            padded = len(match[2]) if match[2].startswith("0") else 0
            found.append((match[1], padded, int(match[2])))
    # n098, n099, n100: the last one has the width of the first ones, though it begins with no 0.
    widths = {(prefix, w) for prefix, w, _ in found if w}
    even = [
        (prefix, len(str(n)), n) if w == 0 and (prefix, len(str(n))) in widths else (prefix, w, n)
        for prefix, w, n in found
    ]
    return sorted(even, key=lambda it: (it[0], -1 if it[1] is None else it[1], it[2]))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    for _, run in groupby(enumerate(numbers), key=lambda it: it[1] - it[0]):
        found = [number for _, number in run]
        yield found[0], found[-1]


def _terms(text: str) -> list[str]:
    """Split at the commas that stand outside of brackets."""
    terms, depth = [""], 0
    for sign in text:
        depth += (sign == "[") - (sign == "]")
        if depth not in (0, 1):
            raise _bad(text, "brackets do not match")
        if sign == "," and depth == 0:
            terms.append("")
        else:
            terms[-1] += sign
    if depth:
        raise _bad(text, "brackets do not match")
    stripped = [term.strip() for term in terms]
    if not all(stripped):
        raise _bad(text, "a name is missing")
    return stripped


def _expanded(term: str, text: str) -> list[str]:
    names = [""]
    for part in _PART.finditer(term):
        ends = [part[2]] if part[1] is None else list(_numbers(part[1], text))
        if len(names) * len(ends) > MOST_NODES:
            raise _bad(text, f"more than {count(MOST_NODES, 'node')}")
        names = [name + end for name in names for end in ends]
    return names


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for one in ranges.split(","):
        match = _RANGE.fullmatch(one.strip())
        if match is None:
            raise _bad(text, f"[{ranges}]: {one!r} is neither a number nor FIRST-LAST")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _bad(text, f"[{ranges}]: {one} runs backwards")
        if int(last) - int(first) >= MOST_NODES:
            raise _bad(text, f"more than {count(MOST_NODES, 'node')}")
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{width}}"


def _bad(text: str, what: str) -> InputError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InputError(f"--nodes {shown!r}: {what}; expected names such as n[001-128] or n1,n2")
