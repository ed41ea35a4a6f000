"""Find the lines of keys in a TOML text, which tomllib does not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_DOTTED = rf"{PART}(?:\s*\.\s*{PART})*"
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_DOTTED})\s*\]\]?\s*(?:#.*)?$")
_ASSIGNMENT = re.compile(rf"\s*({_DOTTED})\s*=")
# What hides or nests line ends: strings (the long kinds first), comments, brackets.
_SIGN = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}'''
    r"""|'{3}.*?'{3,5}"""
    r"""|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|\#[^\n]*|[\[\]{}\n]""",
    re.DOTALL,
)
_INDEX = re.compile(r"\[\d+\]$")

type Key = tuple[str, ...]


def key_lines(text: str) -> dict[Key, int]:
    """Map every key and table header of a TOML text to its line (from 1).

    The tables of `[[name]]` are found as `name[0]`, `name[1]` and so on. Keys
    inside inline tables are not found: see `find_line`.
    """
    lines: dict[Key, int] = {}
    latest: dict[Key, Key] = {}  # the key of a [[name]] to that of its last table
    table: Key = ()
    begin, first = 0, 1  # of the statement we are in: its first character, its line
    number, depth = 1, 0  # line and open brackets here
    for sign in _SIGN.finditer(text + "\n"):
        number += sign[0].count("\n")
        if sign[0] in ("[", "{"):
            depth += 1
        elif sign[0] in ("]", "}"):
            depth -= 1
        if sign[0] != "\n" or depth:
            continue
        statement = text[begin : sign.start()]
        header, assignment = _HEADER.match(statement), _ASSIGNMENT.match(statement)
        key: Key = ()
        if header:
            key = table = _resolved(_parts(header[2]), latest, opens=header[1] == "[[")
            lines.setdefault(_plain(key), first)
        elif assignment:
            key = table + _parts(assignment[1])
        for length in range(1, len(key) + 1):
            lines.setdefault(key[:length], first)
        begin, first = sign.end(), number
    return lines


def find_line(lines: Mapping[Key, int], key: Key) -> int | None:
    """Return the line of `key`, else that of the nearest key around it that has one.

    A part may end in an index, `args[2]`: then the line of the item counts, else
    that of its list.
    """
    plain = _plain(key)
    for length in range(len(key), 0, -1):
        exact = key[:length]
        for candidate in (exact, (*exact[:-1], plain[length - 1]), plain[:length]):
            if candidate in lines:
                return lines[candidate]
    return None


def _resolved(parts: Key, latest: dict[Key, Key], *, opens: bool) -> Key:
    """Return a header's key with the indices of the `[[tables]]` that it lies in."""
    key: Key = ()
    for part in parts[:-1]:
        key = latest.get((*key, part), (*key, part))
    whole = (*key, parts[-1])
    if opens:
        before = latest.get(whole)
        position = 0 if before is None else int(before[-1][len(parts[-1]) + 1 : -1]) + 1
        latest[whole] = (*key, f"{parts[-1]}[{position}]")
    return latest.get(whole, whole)


def _plain(key: Key) -> Key:
    return tuple(_INDEX.sub("", part) for part in key)


def _parts(dotted: str) -> Key:
    return tuple(part.strip("\"'") for part in re.findall(PART, dotted))
