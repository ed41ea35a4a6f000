"""What the shell makes of a submit command, as far as placement needs it; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from msgspec import Struct, field

from rater.speccpu.config.arithmetic import (
    SHELL_BITS,
    compared,
    shell_value,
    split_words,
    with_computed,
    with_values,
)

# -- What the shell makes of a submit command, as far as placement depends on it -------------------
#
# Followed: variables, `NAME=value ;`, `let "N=..."`, `((...))`, `$((...))`, `$[...]`,
# `` `expr ...` ``, `` `printf ...` ``, `if` and `case`, `&&` and `||` behind a test. Text that is
# not understood stays unchanged, a condition with its `if`.

LONGEST = 8_000  # characters of a command that are looked at
_MOST_TEXT = 4 * LONGEST  # characters, its variables replaced
_ASSIGNED = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_LET = re.compile(r"\s*let\s+(.{1,200})$", re.DOTALL)
_PIECES = re.compile(
    r"""\$?\(\([^;\n]{0,200}?\)\)|"(?:[^"\\]|\\.)*"|'[^']*'|\\.|;;|[;\n]|&&|\|\||.""", re.DOTALL
)
_KEYWORD = re.compile(r"\s*(if|then|elif|else|fi|esac)(?:\s|$)")
_CASE = re.compile(r"\s*case\s+(\S{1,100}|\"[^\"]{0,100}\")\s+in(?:\s+|$)")
_SEPARATORS = frozenset({";", "\n", "&&", "|", "||", ";;"})
_COMPARE = {"-eq": "==", "-ne": "!=", "-lt": "<", "-gt": ">", "-le": "<=", "-ge": ">="}
_LONGEST_TEST = 300
_INNER = re.compile(r"\(\((.{1,200})\)\)\s*$", re.DOTALL)
_ASSIGNS = re.compile(r"(?<!\w)([A-Za-z_]\w*+)\s{0,20}(?:[-+*/%&|^]|<<|>>)?=(?!=)")
_DECIMAL = re.compile(r"-?\d{1,18}", re.ASCII)


def commands_of(
    submit: str, bind: str | None, copy: int, bits: int | None = SHELL_BITS
) -> Iterator[str]:
    """Yield the commands that a copy's shell runs for its submit command.

    `bits` are those of the shell's numbers; None: numbers without end.
    """
    text = submit[:LONGEST].replace("\\$", "$").replace("\\`", "`")
    values = {"SPECCOPYNUM": str(copy), "SPECUSERNUM": str(copy)}
    if bind is not None:
        values["BIND"] = bind
        text = with_values(text, {"BIND": bind}, _MOST_TEXT)
        text = text.replace("\\$", "$")
    return executed(text, values, bits)


def executed(text: str, values: dict[str, str], bits: int | None = SHELL_BITS) -> Iterator[str]:
    """Yield the commands that run, in order; `values` are the variables, and are changed.

    What stands behind a condition that is not understood comes between `if ...` and `fi`.
    """
    return _Shell(values, bits).run(text)


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
    def __init__(self, values: dict[str, str], bits: int | None) -> None:
        self.values, self.bits = values, bits
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
            value = self._computed(case[1]).strip("\"'")
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
        command = self._computed(part)
        certain = self._running() is True
        block = self.blocks[-1] if self.blocks else None
        asks = block is not None and block.word is None and block.asks
        self.status = None if asks else True  # what is no test works
        let = _LET.match(command)
        if let:
            for word in split_words(let[1]):
                self._count(word, certain=certain)
            return
        assigned = _ASSIGNED.match(command)
        if assigned and not re.search(r"\s\S", assigned[2].strip(" `\"'")):
            if certain:
                values[assigned[1]] = assigned[2].strip(" `\"'")
            else:
                values.pop(assigned[1], None)
            return
        tested = self._test(command, certain=certain)
        if tested is not None:
            self.status = tested[0]
        self.asked = command.strip()
        if asks and block is not None and self.status is None:
            if not block.unclear:
                yield f"if {self.asked}"
            block.unclear = True
        elif tested is None:
            yield command

    def _computed(self, text: str) -> str:
        # What may not run must not change the variables.
        values = self.values if self._running() is True else dict(self.values)
        return with_computed(with_values(text, self.values, _MOST_TEXT), values, self.bits)

    def _count(self, text: str, *, certain: bool) -> int | None:
        """Return what `let` or `((...))` comes to; None if that cannot be told.

        Variables that it sets are not known any more where it may not run, or cannot be told.
        """
        values = dict(self.values)
        value = shell_value(text, values, self.bits)
        if value is not None and certain:
            self.values.update(values)
        else:
            for name in _ASSIGNS.findall(text):
                self.values.pop(name, None)
        return value

    def _test(self, text: str, *, certain: bool) -> tuple[bool | None] | None:
        """Return the result of a test; `(None,)` if it cannot be told, None for other commands."""
        text = text.strip()
        if text in ("true", ":", "false"):
            return (text != "false",)
        if text.startswith("! "):
            found = self._test(text[2:], certain=certain)
            return found if found in (None, (None,)) else (not found[0],)
        inner = _INNER.match(text)
        if inner:
            value = self._count(inner[1], certain=certain)
            return (None if value is None else value != 0,)
        for start, end in (("[[ ", " ]]"), ("[ ", " ]"), ("test ", "")):
            if text.startswith(start) and text.endswith(end) and len(text) <= _LONGEST_TEST:
                return (_any_of(split_words(text[len(start) : len(text) - len(end)])),)
        return None


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
    if sign not in _COMPARE or not (_DECIMAL.fullmatch(first) and _DECIMAL.fullmatch(second)):
        return None
    return compared(int(first), _COMPARE[sign], int(second))
