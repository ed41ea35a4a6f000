"""CPU and node lists as people and the kernel write them (`0-3,8`), and hwloc's hex bitmaps.

Everything here raises `ValueError` with the position inside the text; callers
know where the text came from and turn it into an `InputError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rater.system.patterns import compile_later

# Linux allows 8192 CPUs and 1024 nodes; the limit only keeps `0-4000000000` from eating memory.
MAX_NUMBER = 65535

_NUMBER = compile_later(r"[0-9]+", re.ASCII)
_WORD = compile_later(r"0x[0-9a-f]{1,8}", re.ASCII | re.IGNORECASE)
_LONGEST_BITMAP = (MAX_NUMBER + 1) // 32 * len("0xffffffff,")


def parse_list(text: str) -> tuple[int, ...]:
    """Return the numbers of `0-3,8` in the order written, ranges expanded.

    Blanks around numbers, `-` and `,` are allowed, and so is an empty text (the
    kernel's way to say "none"). A number named twice appears twice: whether that
    is a mistake is for the caller to say.
    """
    if not text.strip():
        return ()
    numbers: list[int] = []
    position = 0
    while True:
        first, position = _parse_number(text, position)
        last = first
        if text[position : position + 1] == "-":
            last, position = _parse_number(text, position + 1)
            if last < first:
                raise ValueError(f"the range {first}-{last} in {text!r} runs backwards")
        numbers.extend(range(first, last + 1))
        if len(numbers) > MAX_NUMBER + 1:
            raise ValueError(f"{text[:40]!r}... names more than {MAX_NUMBER + 1} numbers")
        if position == len(text):
            return tuple(numbers)
        if text[position] != ",":
            raise ValueError(
                f"unexpected {text[position]!r} at character {position + 1} of {text!r}, "
                "expected ',' or '-' or the end"
            )
        position += 1


def parse_set(text: str) -> frozenset[int]:
    """Return the numbers of `0-3,8` (or of an empty text) as a set."""
    return frozenset(parse_list(text))


def format_list(numbers: Iterable[int]) -> str:
    """Return `0-3,8` for any numbers: ascending, each once; `` for none."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def copy_numbers_text(copies: Iterable[int]) -> str:
    """Return `copy 3`, `copies 0-3,8`."""
    return _named("copy", "copies", copies)


def cpus_text(cpus: Iterable[int]) -> str:
    """Return `CPU 3`, `CPUs 0-3,8`."""
    return _named("CPU", "CPUs", cpus)


def nodes_text(nodes: Iterable[int]) -> str:
    """Return `node 3`, `nodes 0-3,8`."""
    return _named("node", "nodes", nodes)


def _named(singular: str, plural: str, numbers: Iterable[int]) -> str:
    different = set(numbers)
    return f"{singular if len(different) == 1 else plural} {format_list(different)}"


def parse_bitmap(text: str) -> int:
    """Return the mask, bit n for number n, of an hwloc bitmap.

    The form is that of hwloc's XML: 32-bit hex words, the highest first, joined by
    commas, an empty word being 0 (`0x00000001,,0x00000100`). hwloc's infinite
    bitmaps (`0xf...f,0x...`) are an error: no machine has endless CPUs.
    """
    if "..." in text:
        raise ValueError(f"the bitmap {_short(text)} is infinite, expected a finite one")
    if len(text) > _LONGEST_BITMAP:
        raise ValueError(f"the bitmap {_short(text)} names numbers above {MAX_NUMBER}")
    if not text:
        raise ValueError("the bitmap is empty, expected hex words such as 0x000000ff")
    words = text.split(",")
    if not words[-1]:
        raise ValueError(f"the bitmap {_short(text)} ends with ',', expected a last word 0x...")
    if len(words) > (MAX_NUMBER + 1) // 32:
        raise ValueError(f"the bitmap {_short(text)} names numbers above {MAX_NUMBER}")
    mask = 0
    shift = 32 * len(words)
    for index, word in enumerate(words):
        shift -= 32
        if word:  # most are empty in the bitmap of one CPU of thousands
            if not _WORD.fullmatch(word):
                raise _bad_word(text, words, index)
            mask |= int(word, 16) << shift
    return mask


def mask_of(numbers: Iterable[int]) -> int:
    """Return the mask that has bit n for every number n."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def numbers_of(mask: int) -> tuple[int, ...]:
    """Return the numbers of a mask, ascending."""
    digits = bin(mask)[:1:-1]
    return tuple(match.start() for match in re.finditer("1", digits))


def _parse_number(text: str, position: int) -> tuple[int, int]:
    position = _skip_blanks(text, position)
    match = _NUMBER.match(text, position)
    if match is None:
        found = repr(text[position]) if position < len(text) else "the end"
        raise ValueError(
            f"expected a number at character {position + 1} of {text!r}, found {found}"
        )
    digits = match.group().lstrip("0") or "0"
    if len(digits) > len(str(MAX_NUMBER)) or int(digits) > MAX_NUMBER:
        raise ValueError(
            f"the number at character {position + 1} of {_short(text)} is above {MAX_NUMBER}"
        )
    return int(digits), _skip_blanks(text, match.end())


def _skip_blanks(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _bad_word(text: str, words: list[str], index: int) -> ValueError:
    position = sum(len(word) + 1 for word in words[:index]) + 1
    return ValueError(
        f"{_short(words[index])} at character {position} of the bitmap {_short(text)} "
        "is no word of up to 8 hex digits, expected 0x..."
    )


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:50]) + "..."
