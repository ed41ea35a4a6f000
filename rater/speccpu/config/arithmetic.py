"""Whole numbers as shells, `expr`, `printf` and configurations count them; pure."""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from msgspec import Struct

SHELL_BITS = 64  # of a shell's numbers, the sign in them (POSIX: signed long; C99 intmax_t)
_LONGEST = 200  # characters of an expression
_MOST_TOKENS = 60
_MOST_SHIFTED = 20_000  # bits that a number without end may be shifted by
_DEEPEST = 5  # variables whose values are expressions with variables


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


# -- Signs with two sides, for `expr`, sums and conditions of configurations -----------------------


class Grammar[T](Struct, frozen=True):
    """The signs between two values, the weakest first, those before one, and what a word is."""

    word: Callable[[str], T]
    between: tuple[dict[str, Callable[[T, T], T]], ...]
    before: dict[str, Callable[[T], T]]

    def value(self, tokens: list[str]) -> T:
        """Return what an expression comes to; raises ValueError or IndexError where it is none."""
        rest = tokens[::-1]
        value = self._value(rest, 0)
        if rest:
            raise ValueError("more than one expression")
        return value

    def _value(self, rest: list[str], level: int) -> T:
        if level == len(self.between):
            token = rest.pop()
            if token in self.before:
                return self.before[token](self._value(rest, level))
            if token != "(":
                return self.word(token)
            value = self._value(rest, 0)
            if rest.pop() != ")":
                raise ValueError("no )")
            return value
        value = self._value(rest, level + 1)
        while rest and rest[-1] in self.between[level]:
            combine = self.between[level][rest.pop()]
            value = combine(value, self._value(rest, level + 1))
        return value


def _divided(dividend: int, divisor: int) -> int:
    """Divide as C does: what is left over is cut towards zero."""
    return abs(dividend) // abs(divisor) * (1 if (dividend < 0) is (divisor < 0) else -1)


def _remainder(dividend: int, divisor: int) -> int:
    """Return the remainder with the sign of the dividend, unlike Python's."""
    return dividend - _divided(dividend, divisor) * divisor


_PRODUCTS: dict[str, Callable[[int, int], int]] = {
    "*": operator.mul,
    "/": _divided,
    "%": _remainder,
}
_SUMS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub}
_PLAIN = Grammar(int, (_SUMS, _PRODUCTS), {"-": operator.neg, "+": operator.pos})
_PLAIN_TOKEN = re.compile(r"\d{1,20}|[-+*/%()]", re.ASCII)


def whole_number(text: str) -> int | None:
    """Return the value of a sum of decimal numbers; None if it is no such sum."""
    tokens = _tokens(_PLAIN_TOKEN, text)
    return None if tokens is None else _computed_value(lambda: _PLAIN.value(tokens))


def _tokens(token: re.Pattern[str], text: str) -> list[str] | None:
    if len(text) > _LONGEST:
        return None
    tokens = token.findall(text)
    complete = "".join(tokens) == re.sub(r"\s", "", text)
    return tokens if complete and len(tokens) <= _MOST_TOKENS else None


def _computed_value(value: Callable[[], int]) -> int | None:
    try:
        return value()
    except (ValueError, ZeroDivisionError, IndexError):
        return None


# -- `expr`, whose numbers have no end (GNU coreutils) ---------------------------------------------


def _number_word(word: str) -> int:
    if not re.fullmatch(r"-?\d{1,40}", word, re.ASCII):
        raise ValueError("a word, expected a number")
    return int(word)


def _as_number(sign: str) -> Callable[[int, int], int]:
    return lambda left, right: int(compared(left, sign, right))


_EXPR = Grammar(
    _number_word,
    (
        {sign: _as_number(sign) for sign in _COMPARISONS} | {"=": _as_number("==")},
        _SUMS,
        _PRODUCTS,
    ),
    {},
)


def expr_value(arguments: str) -> int | None:
    """Return what `expr` prints for its arguments; None if it cannot be told."""
    words = split_words(arguments)
    if len(arguments) > _LONGEST or len(words) > _MOST_TOKENS:
        return None
    return _computed_value(lambda: _EXPR.value(words))


def split_words(text: str) -> list[str]:
    """Return the words of a command; a quote without its end makes a word that nothing means."""
    try:
        return shlex.split(text)
    except ValueError:
        return ["$"]


# -- Arithmetic of shells: `$((...))`, `let`, `((...))` --------------------------------------------

_SHELL_TOKEN = re.compile(
    r"0[xX][0-9a-fA-F]{1,32}|\d{1,2}#\w{1,64}|\d{1,40}|[A-Za-z_]\w*"
    r"|<<=|>>=|\*\*|<<|>>|&&|\|\||[-+*/%&|^<>=!]=|[-+*/%&|^<>=!~?:,()]",
    re.ASCII,
)
_SHIFTS = ("<<", ">>")
_BETWEEN: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda left, right: int(bool(left or right))},
    {"&&": lambda left, right: int(bool(left and right))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {sign: _as_number(sign) for sign in ("==", "!=")},
    {sign: _as_number(sign) for sign in ("<", "<=", ">", ">=")},
    {"<<": operator.lshift, ">>": operator.rshift},
    _SUMS,
    _PRODUCTS,
)
_COMBINED = {sign: combine for level in _BETWEEN for sign, combine in level.items()}
_BEFORE: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "!": lambda value: int(not value),
}
_ASSIGNING = {"=": None} | {f"{sign}=": sign for sign in ("*", "/", "%", "+", "-", "&", "^", "|")}
_ASSIGNING |= {f"{sign}=": sign for sign in _SHIFTS}


def shell_value(
    text: str, values: MutableMapping[str, str], bits: int | None = SHELL_BITS
) -> int | None:
    """Return what shell arithmetic comes to; None if it cannot be told.

    `values` are the variables; assignments change them. Numbers have `bits` bits and wrap
    around; None: they have no end, as who writes such a line may believe.
    """
    tokens = _tokens(_SHELL_TOKEN, text.replace("$", " ")[: _LONGEST + 1])
    if tokens is None:
        return None
    changed = dict(values)
    value = _computed_value(lambda: _ShellExpression(tokens, changed, bits).value())
    if value is not None:
        values.update(changed)
    return value


class _ShellExpression:
    """One expression; what stands behind a decided `&&`, `||` or `?` is read and not counted."""

    def __init__(
        self, tokens: list[str], values: MutableMapping[str, str], bits: int | None, depth: int = 0
    ) -> None:
        self._rest = tokens[::-1]
        self._values, self._bits, self._depth = values, bits, depth

    def value(self) -> int:
        """Return the value of the last part; raises ValueError, IndexError, ZeroDivisionError."""
        value = self._assignment(counts=True)
        while self._takes(","):
            value = self._assignment(counts=True)
        if self._rest:
            raise ValueError("more than one expression")
        return value

    def _takes(self, token: str) -> bool:
        found = bool(self._rest) and self._rest[-1] == token
        if found:
            self._rest.pop()
        return found

    def _assignment(self, *, counts: bool) -> int:
        name, sign = (self._rest[-1], self._rest[-2]) if len(self._rest) > 1 else ("", "")
        if sign not in _ASSIGNING or not name.isidentifier():
            return self._choice(counts=counts)
        del self._rest[-2:]
        value = self._assignment(counts=counts)
        combined = _ASSIGNING[sign]
        if combined is not None:
            value = self._combined(combined, self._variable(name), value, counts=counts)
        if counts:
            self._values[name] = str(value)
        return value

    def _choice(self, *, counts: bool) -> int:
        condition = self._between(0, counts=counts)
        if not self._takes("?"):
            return condition
        first = self._assignment(counts=counts and condition != 0)
        if not self._takes(":"):
            raise ValueError("? without :")
        second = self._assignment(counts=counts and condition == 0)
        return first if condition else second

    def _between(self, level: int, *, counts: bool) -> int:
        if level == len(_BETWEEN):
            return self._power(counts=counts)
        value = self._between(level + 1, counts=counts)
        while self._rest and self._rest[-1] in _BETWEEN[level]:
            sign = self._rest.pop()
            decided = (sign == "&&" and not value) or (sign == "||" and value)
            right = self._between(level + 1, counts=counts and not decided)
            value = self._combined(sign, value, right, counts=counts)
        return value

    def _combined(self, sign: str, value: int, other: int, *, counts: bool) -> int:
        if not counts:
            return 0
        if sign in _SHIFTS:
            other = self._shift(other)
        return self._kept(_COMBINED[sign](value, other))

    def _shift(self, places: int) -> int:
        # A processor takes the low six bits of the count (x86 and ARM): 1<<64 is 1<<0.
        if self._bits is not None:
            return places % self._bits
        if not 0 <= places <= _MOST_SHIFTED:
            raise ValueError("a shift that nobody means")
        return places

    def _kept(self, value: int) -> int:
        if self._bits is None:
            return value
        half = 1 << (self._bits - 1)
        return (value + half) % (2 * half) - half

    def _power(self, *, counts: bool) -> int:
        base = self._before(counts=counts)
        if not self._takes("**"):
            return base
        exponent = self._power(counts=counts)
        if not 0 <= exponent <= _MOST_SHIFTED or abs(base) > 1 << SHELL_BITS:
            raise ValueError("a power that no shell works out")
        modulus = None if self._bits is None else 1 << self._bits
        return self._kept(pow(base, exponent, modulus)) if counts else 0

    def _before(self, *, counts: bool) -> int:
        token = self._rest.pop()
        if token in _BEFORE:
            return self._kept(_BEFORE[token](self._before(counts=counts)))
        if token == "(":
            value = self._assignment(counts=counts)
            if not self._takes(")"):
                raise ValueError("no )")
            return value
        return self._variable(token) if token.isidentifier() else self._number(token)

    def _variable(self, name: str) -> int:
        """Return a variable's value, which is an expression itself."""
        tokens = _tokens(_SHELL_TOKEN, self._values.get(name, ""))
        if not tokens or self._depth == _DEEPEST:
            raise ValueError("a variable that is not known")
        return _ShellExpression(tokens, self._values, self._bits, self._depth + 1).value()

    def _number(self, token: str) -> int:
        base, mark, digits = token.partition("#")
        if mark:
            value = int(digits, int(base))
        elif token[:1] == "0" and token.isdigit():
            value = int(token, 8)
        else:
            value = int(token, 0)
        if self._bits is not None and value >= 1 << (self._bits - 1):
            raise ValueError("a number that shells read differently")
        return value


# -- `printf` --------------------------------------------------------------------------------------

_CONVERSION = re.compile(
    r"%(?:%|(?P<flags>[-+ 0#]{0,4})(?P<width>\d{0,3})[hlLqjzt]{0,2}(?P<kind>[diuoxXsc]))", re.ASCII
)
_ESCAPED = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
_CONSTANT = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|\d+)", re.ASCII)
_MOST_PRINTED = 8192  # arguments


def printed(arguments: str, bits: int | None = SHELL_BITS) -> str | None:
    """Return what `printf` prints, without line ends behind it; None if it cannot be told.

    The format is used again while there are arguments, as POSIX says.
    """
    words = split_words(arguments)
    if words[:1] == ["--"]:
        del words[0]
    if not words or len(words) > _MOST_PRINTED or any(set("$`") & set(word) for word in words):
        return None
    form, rest = words[0], words[1:]
    for escape, character in _ESCAPED.items():
        form = form.replace(escape, character)
    wanted = sum(match["kind"] is not None for match in _CONVERSION.finditer(form))
    if "%" in _CONVERSION.sub("", form):
        return None
    texts: list[str] = []
    try:
        while not texts or (wanted and rest):
            texts.append(_CONVERSION.sub(lambda match: _converted(match, rest, bits), form))
    except ValueError:
        return None
    return "".join(texts).rstrip("\n")


def _converted(match: re.Match[str], rest: list[str], bits: int | None) -> str:
    kind = match["kind"]
    if kind is None:
        return "%"
    word = rest.pop(0) if rest else ""
    if kind in "sc":
        width = match["width"] or "0"
        text = word[:1] if kind == "c" else word
        return text.ljust(int(width)) if "-" in match["flags"] else text.rjust(int(width))
    value = _constant(word)
    if bits is not None and not -(1 << (bits - 1)) <= value < 1 << bits:
        raise ValueError("a number that printf does not take")
    if kind in "oxXu":
        value = value % (1 << bits) if bits is not None else value
    if kind == "o" and "#" in match["flags"]:
        raise ValueError("a form of octal numbers that Python writes otherwise")
    return f"%{match['flags']}{match['width']}{'d' if kind in 'iu' else kind}" % value


def _constant(word: str) -> int:
    if not word:
        return 0
    if not _CONSTANT.fullmatch(word):
        raise ValueError("no number")
    digits = word.lstrip("+-")
    octal = digits[:1] == "0" and digits.isdigit()
    return int(word, 8) if octal else int(word, 0)


# -- Sums inside a text ----------------------------------------------------------------------------


def with_sums(text: str, values: MutableMapping[str, str], bits: int | None = SHELL_BITS) -> str:
    """Replace `$((...))` and `$[...]`, the inner ones first."""
    for start, close in (("$((", "))"), ("$[", "]")):
        at = text.rfind(start)
        while at >= 0:
            end = _end_of(text, at + len(start), close)
            value = None if end < 0 else shell_value(text[at + len(start) : end], values, bits)
            if value is not None:
                text = f"{text[:at]}{value}{text[end + len(close) :]}"
            at = text.rfind(start, 0, at)
    return text


def _end_of(text: str, at: int, close: str) -> int:
    depth = 0
    for place in range(at, min(len(text), at + _LONGEST)):
        if depth == 0 and text.startswith(close, place):
            return place
        depth += (text[place] == "(") - (text[place] == ")")
        if depth < 0:
            return -1
    return -1


_EXPR_CALL = re.compile(r"`\s{0,20}expr\s([^`;|&]{1,200})`|\$\(\s{0,20}expr\s([^();|&]{1,200})\)")
_PRINTF_CALL = re.compile(
    r"`\s{0,20}printf\s([^`;|&]{1,400})`|\$\(\s{0,20}printf\s([^();|&]{1,400})\)"
)
_ROUNDS = 4  # of calls inside sums inside calls


def with_computed(
    text: str, values: MutableMapping[str, str], bits: int | None = SHELL_BITS
) -> str:
    """Replace sums, and what `expr` and `printf` print, as far as that can be told."""

    def computed_call(match: re.Match[str]) -> str:
        value = expr_value(match[1] or match[2])
        return match[0] if value is None else str(value)

    def printed_call(match: re.Match[str]) -> str:
        output = printed(match[1] or match[2], bits)
        return match[0] if output is None else output

    for _ in range(_ROUNDS):
        before = text
        text = with_sums(text, values, bits)
        if "expr" in text:
            text = _EXPR_CALL.sub(computed_call, text)
        if "printf" in text:
            text = _PRINTF_CALL.sub(printed_call, text)
        if text == before:
            break
    return text


def with_values(text: str, values: Mapping[str, str], most: int) -> str:
    """Replace `$NAME` and `${NAME}` of known variables; at most `most` characters of it."""
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), text)[:most]


_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
