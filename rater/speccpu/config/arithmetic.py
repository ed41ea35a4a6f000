"""Arithmetic of the shell with whole numbers, and comparisons."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

_LONGEST = 200  # characters of an expression
_MOST_TOKENS = 60
_BITS = 64  # of the shell's numbers
_TOKEN = re.compile(r"\s{0,200}(\d{1,20}|<<|>>|[-+*/%()])", re.ASCII)
_NAME = re.compile(r"(?<![\w$])[A-Za-z_]\w*")


def compared[T: (int, float, str)](a: T, sign: str, b: T) -> bool:
    """Return whether `a == b`, `a < b`, ... holds."""
    return _COMPARISONS[sign](a, b)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def with_sums(text: str, values: Mapping[str, str]) -> str:
    """Replace `$((...))` and `$[...]`, the inner ones first."""
    for start, close in (("$((", "))"), ("$[", "]")):
        at = text.rfind(start)
        while at >= 0:
            end = _end_of(text, at + len(start), close)
            value = None if end < 0 else evaluate(text[at + len(start) : end], values)
            if value is not None:
                text = f"{text[:at]}{value}{text[end + len(close) :]}"
            at = text.rfind(start, 0, at)
    return text


def _end_of(text: str, at: int, close: str) -> int:
    """Return where an expression ends, -1 where it does not."""
    depth = 0
    for place in range(at, min(len(text), at + _LONGEST)):
        if depth == 0 and text.startswith(close, place):
            return place
        depth += (text[place] == "(") - (text[place] == ")")
        if depth < 0:
            return -1
    return -1


def evaluate(text: str, values: Mapping[str, str]) -> int | None:
    """Return what shell arithmetic of whole numbers comes to, None where it is beyond us."""
    if len(text) > _LONGEST:
        return None
    text = _NAME.sub(lambda found: values.get(found[0], found[0]), text.replace("$", " "))
    if len(text) > _LONGEST:
        return None
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or len(tokens) > _MOST_TOKENS:
        return None
    try:
        value, rest = _expression(tokens, 0)
    except (ValueError, ZeroDivisionError, IndexError):
        return None
    return None if rest else value


def _divided(a: int, b: int) -> int:
    """The shell cuts towards zero."""
    return abs(a) // abs(b) * (1 if (a < 0) is (b < 0) else -1)


_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divided, "%": lambda a, b: a - _divided(a, b) * b},
)


def _expression(tokens: list[str], level: int) -> tuple[int, list[str]]:
    if level == len(_LEVELS):
        if tokens[0] == "(":
            value, rest = _expression(tokens[1:], 0)
            if rest[0] != ")":
                raise ValueError("no )")
            return value, rest[1:]
        return int(tokens[0]), tokens[1:]
    value, rest = _expression(tokens, level + 1)
    while rest and rest[0] in _LEVELS[level]:
        sign = rest[0]
        other, rest = _expression(rest[1:], level + 1)
        if level == 0 and not 0 <= other < _BITS:
            raise ValueError("the processor's own affair")
        value = _LEVELS[level][sign](value, other)
        if not -(1 << _BITS) < value < 1 << _BITS:
            raise ValueError("more than the shell can count")
    return value, rest
