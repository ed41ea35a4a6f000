"""What the shell makes of a submit command, arithmetic too, as far as placement needs it; pure."""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, field

# -- What the shell makes of a submit command, as far as placement depends on it -------------------
#
# Followed: variables, `NAME=value ;`, `let "N=..."`, `$((...))`, `$[...]`, `` `expr ...` ``,
# `printf '0x%x'`, `if` and `case`, `&&` and `||` behind a test. Text that is not understood stays
# unchanged, a condition with its `if`.

LONGEST = 8_000  # characters of a command that are looked at
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_ASSIGNED = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_LET = re.compile(r"\s*let\s+(.{1,200})$", re.DOTALL)
_LET_SUM = re.compile(r"([A-Za-z_]\w*)\s{0,20}=(.*)$", re.DOTALL)
_PRINTED = re.compile(
    r"""(?:`|\$?\()?\s{0,20}printf\s{1,20}["']?(0x)?%0?\d{0,3}(?:l{0,2})([xXdisu])["']?"""
    r"""\s{1,20}(\d{1,20})(?!\d)\s{0,20}[`)]?""",
    re.ASCII,
)
_EXPR = re.compile(r"(?:`\s{0,20}expr\s([^`;|&]{1,80})`|\$\(\s{0,20}expr\s([^();|&]{1,80})\))")
_PIECES = re.compile(
    r"""\$\(\([^;\n]{0,200}?\)\)|"(?:[^"\\]|\\.)*"|'[^']*'|\\.|;;|[;\n]|&&|\|\||.""", re.DOTALL
)
_KEYWORD = re.compile(r"\s*(if|then|elif|else|fi|esac)(?:\s|$)")
_CASE = re.compile(r"\s*case\s+(\S{1,100}|\"[^\"]{0,100}\")\s+in(?:\s+|$)")
_SEPARATORS = frozenset({";", "\n", "&&", "|", "||", ";;"})
_COMPARE = {"-eq": "==", "-ne": "!=", "-lt": "<", "-gt": ">", "-le": "<=", "-ge": ">="}
_LONGEST_TEST = 300
_INNER = re.compile(r"\(\((.{1,200})\)\)\s*$", re.DOTALL)
_INNER_SIGN = re.compile(r"(<=|>=|==|!=|(?<![<>])[<>](?![<>]))")


def commands_of(submit: str, bind: str | None, copy: int) -> Iterator[str]:
    """Yield the commands that a copy's shell runs for its submit command."""
    text = submit[:LONGEST].replace("\\$", "$").replace("\\`", "`")
    values = {"SPECCOPYNUM": str(copy), "SPECUSERNUM": str(copy)}
    if bind is not None:
        values["BIND"] = bind
        text = _with(text, {"BIND": bind})
        text = text.replace("\\$", "$")
    return executed(text, values)


def executed(text: str, values: dict[str, str]) -> Iterator[str]:
    """Yield the commands that run, in order; `values` are the variables, and are changed.

    What stands behind a condition that is not understood comes between `if ...` and `fi`.
    """
    return _Shell(values).run(text)


class _Block(Struct, kw_only=True):
    """An `if` or `case` that is open; None: not known."""

    around: bool | None  # whether what it stands in runs
    holds: bool | None = None  # the branch that is open
    held: bool | None = False  # a branch before it
    word: str | None = None  # case: what it asks about
    asks: bool = True  # if: before `then`; case: before the `)` of a pattern
    unclear: bool = False  # its `if ...` was yielded
    pattern: list[str] = field(default_factory=list)

    def open_branch(self, condition: bool | None) -> None:
        """Open a branch with its condition."""
        self.asks = False
        if self.around is False or self.held is True or condition is False:
            self.holds = False
        elif condition and self.held is False:
            self.holds, self.held = self.around, True
        else:
            self.holds, self.held = None, None


class _Shell:
    def __init__(self, values: dict[str, str]) -> None:
        self.values = values
        self.blocks: list[_Block] = []
        self.status: bool | None = True  # of the last command
        self.asked = ""  # the last test that is not understood

    def run(self, text: str) -> Iterator[str]:
        for before, part in _commands(text):
            block = self.blocks[-1] if self.blocks else None
            if before == ";;" and block is not None and block.word is not None:
                block.asks, block.pattern = True, []
            if not part.strip():
                continue
            chained = before in ("&&", "||") and not (block and block.word and block.asks)
            if chained and self.status is not None and self.status is not (before == "&&"):
                continue
            if chained and self.status is None and not (block and block.asks):
                yield f"if {self.asked}"
                yield from self._part(part)
                yield "fi"
                self.status = None
                continue
            yield from self._part(part)

    def _running(self) -> bool | None:
        if not self.blocks:
            return True
        block = self.blocks[-1]
        return block.around if block.asks else block.holds

    def _part(self, part: str) -> Iterator[str]:
        while part.strip():
            block = self.blocks[-1] if self.blocks else None
            word = _KEYWORD.match(part)
            by_pattern = block is not None and block.asks and (word is None or word[1] != "esac")
            if block is not None and block.word is not None and by_pattern:
                before, found, part = part.partition(")")
                block.pattern += before.strip().lstrip("(").split("|")
                if found:
                    block.open_branch(_fits(block.word, block.pattern))
                continue
            if word is not None:
                yield from self._keyword(word[1])
                part = part[word.end() :]
                continue
            case = _CASE.match(part)
            if case is None:
                if self._running() is not False:
                    yield from self._command(part)
                return
            value = _computed(_with(case[1], self.values), self.values).strip("\"'")
            self.blocks.append(_Block(around=self._running(), word=value))
            if ("$" in value or "`" in value) and self._running() is not False:
                self.blocks[-1].unclear = True
                yield f"case {value}"
            part = part[case.end() :]

    def _keyword(self, word: str) -> Iterator[str]:
        if word == "if":
            self.blocks.append(_Block(around=self._running()))
            self.status = True
            return
        if not self.blocks:
            return
        block = self.blocks[-1]
        if word == "then":
            block.open_branch(self.status)
        elif word == "elif":
            block.asks, self.status = True, True
        elif word == "else":
            block.open_branch(True)
        else:
            self.blocks.pop()
            self.status = True
            if block.unclear:
                yield "fi"

    def _command(self, part: str) -> Iterator[str]:
        values = self.values
        command = _computed(_with(part, values), values)
        certain = self._running() is True
        block = self.blocks[-1] if self.blocks else None
        asks = block is not None and block.word is None and block.asks
        self.status = None if asks else True  # what is no test works
        let = _LET.match(command)
        if let:
            self._let(let[1], certain)
            return
        assigned = _ASSIGNED.match(command)
        if assigned and not re.search(r"\s\S", assigned[2].strip(" `\"'")):
            if certain:
                values[assigned[1]] = assigned[2].strip(" `\"'")
            else:
                values.pop(assigned[1], None)
            return
        tested = _test(command, values)
        if tested is not None:
            self.status = tested[0]
        self.asked = command.strip()
        if asks and block is not None and self.status is None:
            if not block.unclear:
                yield f"if {self.asked}"
            block.unclear = True
        elif tested is None:
            yield command

    def _let(self, text: str, certain: bool) -> None:
        assignment = _LET_SUM.match(text.strip().strip("\"'"))
        if assignment is None:
            return
        value = evaluate(assignment[2], self.values)
        if value is None or not certain:
            self.values.pop(assignment[1], None)
        else:
            self.values[assignment[1]] = str(value)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    before, parts = "", [""]
    for piece in _PIECES.findall(text):
        if piece in _SEPARATORS:
            yield before, "".join(parts)
            before, parts = piece, []
        else:
            parts.append(piece)
    yield before, "".join(parts)


def _fits(word: str, patterns: list[str]) -> bool | None:
    """Tell whether a pattern of a `case` means its word; None if that is not known."""
    if "$" in word or "`" in word or any("$" in pattern for pattern in patterns):
        return None
    fitting = (pattern.strip().strip("\"'") for pattern in patterns if len(pattern) <= 60)
    return any(fnmatchcase(word[:100], one) for one in fitting)


# -- tests ----------------------------------------------------------------------------------------


def _test(text: str, values: dict[str, str]) -> tuple[bool | None] | None:
    """Return the result of a test; `(None,)` if it cannot be told, None for other commands."""
    text = text.strip()
    if text in ("true", ":", "false"):
        return (text != "false",)
    if text.startswith("! "):
        found = _test(text[2:], values)
        return found if found in (None, (None,)) else (not found[0],)
    inner = _INNER.match(text)
    if inner:
        return (_sum_test(inner[1], values),)
    for start, end in (("[[ ", " ]]"), ("[ ", " ]"), ("test ", "")):
        if text.startswith(start) and text.endswith(end) and len(text) <= _LONGEST_TEST:
            return (_any_of(_split(text[len(start) : len(text) - len(end)])),)
    return None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote without its end
        return ["$"]


def _sum_test(text: str, values: dict[str, str]) -> bool | None:
    sides = _INNER_SIGN.split(text)
    if len(sides) != 3:
        return None
    left, right = evaluate(sides[0], values), evaluate(sides[2], values)
    return None if left is None or right is None else compared(left, sides[1], right)


def _any_of(words: list[str]) -> bool | None:
    for sign, join in (("-o", any), ("-a", all)):
        if sign in words[1:]:
            at = words.index(sign, 1)
            both = (_any_of(words[:at]), _any_of(words[at + 1 :]))
            return None if None in both else join(bool(one) for one in both)
    if words[:1] == ["!"]:
        value = _any_of(words[1:])
        return None if value is None else not value
    if any("$" in word or "`" in word for word in words):
        return None
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") is (words[0] == "-z")
    return _one_test(*words) if len(words) == 3 else None


def _one_test(first: str, sign: str, second: str) -> bool | None:
    if sign in ("=", "==", "!="):
        return (first == second) is (sign != "!=")
    first_number, second_number = evaluate(first, {}), evaluate(second, {})
    if sign not in _COMPARE or first_number is None or second_number is None:
        return None
    return compared(first_number, _COMPARE[sign], second_number)


# -- words ----------------------------------------------------------------------------------------


def _with(text: str, values: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), text)[
        : 4 * LONGEST
    ]


def _computed(text: str, values: dict[str, str]) -> str:
    if "expr" in text:
        text = _EXPR.sub(_expr, text)
    text = with_sums(text, values)
    return _PRINTED.sub(_printed, text) if "printf" in text else text


def _expr(match: re.Match[str]) -> str:
    text = (match[1] or match[2]).replace("\\*", "*").replace("'*'", "*").replace('"*"', "*")
    return f"$(({text.strip()}))"


def _printed(match: re.Match[str]) -> str:
    kind, value = match[2].lower(), int(match[3])
    return f"0x{value:x}" if kind == "x" else str(value)


# -- Arithmetic of the shell with whole numbers, and comparisons -----------------------------------

_LONGEST = 200  # characters of an expression
_MOST_TOKENS = 60
_BITS = 64  # of the shell's numbers
_TOKEN = re.compile(r"(\d{1,20}|<<|>>|[-+*/%()])", re.ASCII)
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
    depth = 0
    for place in range(at, min(len(text), at + _LONGEST)):
        if depth == 0 and text.startswith(close, place):
            return place
        depth += (text[place] == "(") - (text[place] == ")")
        if depth < 0:
            return -1
    return -1


def evaluate(text: str, values: Mapping[str, str]) -> int | None:
    """Return the value of shell arithmetic of whole numbers; None if it cannot be told."""
    if len(text) > _LONGEST:
        return None
    text = _NAME.sub(lambda found: values.get(found[0], found[0]), text.replace("$", " "))
    if len(text) > _LONGEST:
        return None
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or len(tokens) > _MOST_TOKENS:
        return None
    try:
        return _SUMS.value(tokens)
    except (ValueError, ZeroDivisionError, IndexError):
        return None


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


def _counted(combine: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def compute(left_value: int, right_value: int) -> int:
        if combine in (operator.lshift, operator.rshift) and not 0 <= right_value < _BITS:
            raise ValueError("the processor's own affair")
        value = combine(left_value, right_value)
        if not -(1 << _BITS) < value < 1 << _BITS:
            raise ValueError("more than the shell can count")
        return value

    return compute


def _divided(dividend: int, divisor: int) -> int:
    """The shell cuts towards zero."""
    return abs(dividend) // abs(divisor) * (1 if (dividend < 0) is (divisor < 0) else -1)


def _remainder(dividend: int, divisor: int) -> int:
    """The remainder has the sign of the dividend, unlike Python's."""
    return dividend - _divided(dividend, divisor) * divisor


_SIGNS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divided, "%": _remainder},
)
_SUMS = Grammar(
    int,
    tuple({sign: _counted(combine) for sign, combine in level.items()} for level in _SIGNS),
    {"-": operator.neg, "+": operator.pos},
)
