"""Names of many nodes in one word, as Slurm writes them: `n[001-128,200],login1`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from math import prod

from rater.system.errors import InputError

MOST_NODES = 20_000
_TOO_MANY = f"more than {MOST_NODES} nodes"
NODE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_BRACKETS = re.compile(r"(?:[^\[\]]|\[[^\[\]]*\])*")
_TERM = re.compile(r"((?:[^\[\],]|\[[^\[\]]*\])*)(,?)")  # to a comma outside of brackets
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_NUMBERED = re.compile(r"(.*?)(\d{1,9})")


def expand(text: str) -> tuple[str, ...]:
    """Return the names that a text stands for, in its order, each once.

    `n[1-3,7]` is n1, n2, n3, n7; `n[08-10]` keeps the zeros; several brackets multiply.
    Raises `InputError` for what is none, and for more than `MOST_NODES`.
    """
    if not _BRACKETS.fullmatch(text):
        raise _bad(text, "brackets do not match")
    names: dict[str, None] = {}
    for term, more in _TERM.findall(text):
        if not term.strip():
            raise _bad(text, "a name is missing")
        parts = [
            [part[2]] if part[1] is None else list(_numbers(part[1], text))
            for part in _PART.finditer(term.strip())
        ]
        if prod(map(len, parts)) > MOST_NODES:
            raise _bad(text, _TOO_MANY)
        for name in map("".join, product(*parts)):
            if not NODE_NAME.fullmatch(name):
                raise _bad(text, f"{name!r} is no name of a node")
            names[name] = None
        if len(names) > MOST_NODES:
            raise _bad(text, _TOO_MANY)
        if not more:
            break
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """Return the shortest text of this kind for names: those that end in a number, in brackets."""
    terms = []
    for (prefix, width), of_prefix in groupby(_split(names), key=lambda it: it[:2]):
        if width is None:
            terms += [prefix for _ in of_prefix]
            continue
        numbers = sorted({number for _, _, number in of_prefix})
        ranges = []
        for _, run in groupby(enumerate(numbers), key=lambda it: it[1] - it[0]):
            first, *_, last = [number for _, number in run] * 2
            ranges.append(f"{first:0{width}}" + (f"-{last:0{width}}" if last > first else ""))
        terms.append(prefix + (ranges[0] if len(numbers) == 1 else f"[{','.join(ranges)}]"))
    return ",".join(terms)


def _split(names: Iterable[str]) -> list[tuple[str, int | None, int]]:
    """Return prefix, digits that numbers are padded to (0: none) and number; None: no number."""
    parts: list[tuple[str, int | None, int]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            parts.append((name, None, 0))
        else:
            padded = len(match[2]) if match[2].startswith("0") else 0
            parts.append((match[1], padded, int(match[2])))
    # n098, n099, n100: the last one has the width of the first ones, though it begins with no 0.
    widths = {(prefix, width) for prefix, width, _ in parts if width}
    even = [
        (
            prefix,
            len(str(number)) if width == 0 and (prefix, len(str(number))) in widths else width,
            number,
        )
        for prefix, width, number in parts
    ]
    return sorted(even, key=lambda it: (it[0], -1 if it[1] is None else it[1], it[2]))


def _numbers(ranges: str, text: str) -> Iterator[str]:
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise _bad(text, f"[{ranges}]: {part!r} is neither a number nor FIRST-LAST")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first):
            raise _bad(text, f"[{ranges}]: {part} runs backwards")
        if int(last) - int(first) >= MOST_NODES:
            raise _bad(text, _TOO_MANY)
        width = len(first) if first.startswith("0") or len(first) == len(last) else 0
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{width}}"


def _bad(text: str, problem: str) -> InputError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InputError(f"--nodes {shown!r}: {problem}; expected names such as 'n[001-128]' or n1,n2")
