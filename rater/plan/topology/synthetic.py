"""hwloc's synthetic descriptions of machines, read as far as a wrong one can be told.

The form: one level per word, outermost first, `[type:]count[(attributes)]`, memory in brackets
(hwloc's documentation, "Synthetic topologies"). hwloc itself makes the machine; what it would
overlook without a word is refused here.
"""

from __future__ import annotations

import math
import re

from rater.errors import InputError

_LONGEST_SHOWN = 200  # characters of a description in a message
MOST_PUS = 16384  # twice what Linux can have; hwloc's time grows with the square
EXAMPLE = "such as 'pack:2 numa:4 l3:2 core:8 pu:2', or nodes=4x24 for 4 nodes of 24 CPUs"
# One level: `pack:2`, `l3:2(size=32MB)`, `2`, `[numa]`.
_LEVEL = re.compile(
    r"\s*(?:(?:([A-Za-z0-9]+):)?([0-9]+)(?:\([^()]*\))?|\[[^\[\]]*\])(?=\s|\[|$)", re.ASCII
)
_INDEXES = re.compile(r"(?<=[(\s])indexes=([^)\s]*)")
_KINDS = ("package", "socket", "numanode", "node", "die", "group", "core", "pu", "machine")
_SAME = {"socket": "package", "node": "numanode"}


def without_types(text: str) -> str:
    """Return a description with every `indexes=` by types (`core:pack:pu`) as `step*count` loops.

    hwloc (2.11 as pyhwloc 3.0.1 has it) looks for the last level before it has set a field of it,
    and where that is 0 by chance it numbers the CPUs as they lie, without a word. Raises
    `InputError` when the text describes no machine, or its numbers are not those of a level.
    """
    widths: dict[str, int] = {}  # of the levels that have a type, outermost first
    levels: list[tuple[str, int]] = []
    position, width = 0, 1
    while position < len(text.rstrip()):
        level = _LEVEL.match(text, position)
        if level is None:
            raise InputError(
                f"{shown(text)} is neither a file nor a description of a machine (stuck at "
                f"{text[position:].strip()[:20]!r}): expected a path or a description {EXAMPLE}"
            )
        position = level.end()
        if level[2] is not None:
            width *= int(level[2]) if len(level[2]) < 7 else 10**7
            widths[_kind(level[1] or "")] = width
        if not 1 <= width <= MOST_PUS:
            raise InputError(
                f"{shown(text)} does not describe a machine of 1 to {MOST_PUS} PUs: "
                f"expected one {EXAMPLE}"
            )
        levels.append((level[0], width if level[2] is not None else 0))
    widths["pu"] = width
    return "".join(_with_loops(level, width, widths) for level, width in levels)


def shown(text: str) -> str:
    """Return a description as a message quotes it: no longer than anybody reads."""
    return repr(text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}...")


def _with_loops(level: str, width: int, widths: dict[str, int]) -> str:
    """Return the words of one level; those of attached memory (`width` 0) stay as they are."""
    if not width:
        return level
    return _INDEXES.sub(lambda found: f"indexes={_loops(found[1], width, widths)}", level)


def _loops(indexes: str, total: int, widths: dict[str, int]) -> str:
    """Return the value of one `indexes=` of a level of `total` parts as hwloc reads it safely."""
    if re.fullmatch(r"[0-9,]+", indexes):
        numbers = [int(one) for one in indexes.split(",") if one]
        if len(numbers) != total or len(set(numbers)) != total:
            raise InputError(
                f"indexes={indexes[:40]} has {len(set(numbers))} different numbers for {total} "
                f"parts of its level, expected {total}"
            )
        return indexes
    if "*" in indexes:
        _check_loops(indexes, total)
        return indexes
    named = [_kind(word) for word in indexes.split(":")]
    known = [kind for kind in widths if kind and total % widths[kind] == 0]
    for word, kind in zip(indexes.split(":"), named, strict=True):
        if kind not in known or named.count(kind) > 1:
            raise InputError(
                f"indexes={indexes[:40]}: {word!r} is no level at or above this one, or is named "
                f"twice, expected types of levels in any order, once each, such as core:pack:pu"
            )
    loops = []
    inwards = [kind for kind in widths if kind in named]
    for kind in named:
        above = ([1] + [widths[one] for one in inwards])[inwards.index(kind)]
        loops.append(f"{total // widths[kind]}*{widths[kind] // above}")
    return ":".join(loops)


def _check_loops(indexes: str, total: int) -> None:
    pairs = [
        re.fullmatch(r"([1-9][0-9]{0,8})\*([1-9][0-9]{0,8})", one) for one in indexes.split(":")
    ]
    found = [(int(one[1]), int(one[2])) for one in pairs if one]
    # hwloc adds the innermost loop itself where none has a step of 1.
    reached = math.prod(count for _, count in found) * min((step for step, _ in found), default=1)
    if len(found) != len(pairs) or reached != total:
        raise InputError(
            f"indexes={indexes[:40]} makes {reached} numbers for {total} parts of its level, "
            "expected loops step*count whose counts have that product, such as 2*8:16*2:1*2"
        )


def _kind(word: str) -> str:
    """Return a type's full name, of which hwloc takes two letters or more; "" when unknown."""
    cache = re.fullmatch(r"(l[1-5]i?)[du]?(?:cache)?", word.lower())
    if cache:
        return cache[1]
    letters = word.lower().rstrip("0123456789")
    for kind in _KINDS:
        if len(letters) >= 2 and kind.startswith(letters):
            return _SAME.get(kind, kind)
    return ""
