"""The preprocessor of SPEC CPU's configuration files, as far as placement depends on it."""

from __future__ import annotations

import re

from rater.speccpu.config.arithmetic import compared
from rater.speccpu.problem import Problem

_DIRECTIVE = re.compile(r"\s*%\s*(\w+)(.*)")
_MACRO = re.compile(r"%\{([A-Za-z_][\w-]*)\}")
_DEFINED = re.compile(r"(!\s*)?defined\s*\(\s*(?:%\{)?([A-Za-z_][\w-]*)\}?\s*\)$")
_COMPARED = re.compile(
    r"""(?P<left>"[^"]*"|'[^']*'|[\w.+-]+)\s*(?P<sign>==|!=|<=|>=|<|>|eq|ne|lt|gt|le|ge)"""
    r"""\s*(?P<right>"[^"]*"|'[^']*'|[\w.+-]+)$"""
)
_LONGEST_CONDITION = 1000
_ROUNDS = 20  # of macros inside macros
_LONGEST = 100_000  # characters that a line may grow to
_MOST_REPLACED = 30_000_000  # characters in all: a macro that doubles itself has no end


class Preprocessor:
    """Feed it every line in order: `keeps` says whether the line counts."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems
        self._macros: dict[str, str] = {}
        # line, whether what is around it holds, holds now, held already
        self._open: list[tuple[int, bool, bool, bool]] = []
        self._left = _MOST_REPLACED
        self._uncertain: list[Problem | None] = []  # of the conditions that are open
        self._outside = False  # the last condition asks for a macro that is not defined

    @property
    def uncertain(self) -> list[Problem]:
        """The conditions around this line that are not understood, or depend on the outside."""
        return [one for one in self._uncertain if one is not None]

    def keeps(self, number: int, line: str) -> bool:
        """Tell whether a line is a part of the configuration (directives are not)."""
        found = _DIRECTIVE.match(line)
        if found is None or line.lstrip().startswith("%{"):
            return self._holds()
        self._directive(number, found[1].lower(), found[2].strip())
        return False

    def replaced(self, line: str) -> str:
        """Return the line with its macros; one that is not defined stays as it is."""
        for _ in range(_ROUNDS):
            if "%{" not in line or self._left <= 0:
                break
            after = _MACRO.sub(lambda found: self._macros.get(found[1], found[0]), line)
            self._left -= len(after)
            if after == line or len(after) > _LONGEST:
                break
            line = after
        return line

    def finish(self, last: int) -> None:
        """Name conditions that the file does not end."""
        for number, *_ in self._open:
            self._problems.append(Problem(number, f"%if without %endif (the file ends at {last})"))
        if self._left <= 0:
            self._problems.append(Problem(0, "macros that grow without end: the last are left"))

    def _holds(self) -> bool:
        return not self._open or self._open[-1][2]

    def _directive(self, number: int, name: str, rest: str) -> None:
        if name in ("if", "ifdef", "ifndef"):
            around = self._holds()
            self._uncertain.append(None)
            holds = around and self._condition(number, name, rest)
            self._open.append((number, around, holds, holds))
        elif name in ("elif", "else", "endif"):
            if not self._open:
                self._problems.append(Problem(number, f"%{name} without %if"))
                return
            line, around, _, held = self._open.pop()
            if name == "endif":
                self._uncertain.pop()
            if name == "else":
                self._open.append((line, around, around and not held, True))
            elif name == "elif":
                holds = around and not held and self._condition(number, "if", rest)
                self._open.append((line, around, holds, held or holds))
        elif not self._holds():
            return
        elif name == "define":
            parts = rest.split(None, 1)
            if parts:
                value = parts[1] if len(parts) > 1 else ""
                self._macros[parts[0]] = self.replaced(value)[:_LONGEST]
        elif name == "undef":
            self._macros.pop(rest.strip(), None)
        elif name == "include":
            self._problems.append(Problem(number, f"%include {rest[:60]} is not followed"))

    def _condition(self, number: int, name: str, rest: str) -> bool:
        if name != "if":
            known = rest.strip().removeprefix("%{").removesuffix("}") in self._macros
            self._outside = not known
            value: bool | None = known is (name == "ifdef")
        else:
            self._outside = False
            value = self._value(rest) if len(rest) <= _LONGEST_CONDITION else None
        if value is None:
            problem = Problem(
                number, f"the condition %if {rest[:60]} is not understood: taken as false"
            )
            self._problems.append(problem)
            self._uncertain[-1] = self._uncertain[-1] or problem
        elif self._outside:
            self._uncertain[-1] = self._uncertain[-1] or Problem(
                number,
                f"the condition %{name} {rest[:60]} asks for a macro that is not defined here: "
                f"taken as if it {'holds' if value else 'does not hold'}",
            )
        return bool(value)

    def _value(self, text: str) -> bool | None:
        """Return what a condition comes to, None where it is beyond us."""
        text = text.strip()
        for sign, join in (("||", any), ("&&", all)):
            if sign in text:
                values = [self._value(part) for part in text.split(sign)]
                return None if None in values else join(bool(value) for value in values)
        defined = _DEFINED.match(text)
        if defined:
            return (defined[2] in self._macros) is not bool(defined[1])
        text = self.replaced(text)
        self._outside = self._outside or "%{" in text
        if re.fullmatch(r"!?\s*\d{1,18}", text, re.ASCII):
            return bool(int(text.lstrip("! "))) is not text.startswith("!")
        compared = _COMPARED.match(text) if len(text) <= _LONGEST_CONDITION else None
        if compared is None:
            return None
        left, right = (compared[side].strip("\"'") for side in ("left", "right"))
        return _compare(left, compared["sign"], right)


def _compare(left: str, sign: str, right: str) -> bool | None:
    words = {"eq": "==", "ne": "!=", "lt": "<", "gt": ">", "le": "<=", "ge": ">="}
    if sign in words:
        return compared(left, words[sign], right)
    try:
        return compared(float(left), sign, float(right))
    except ValueError:
        return compared(left, sign, right) if sign in ("==", "!=") else None
