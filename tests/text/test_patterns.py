"""Every regular expression of the package against long texts of a letter and near-matches.

Texts of others reach most of them: one that needs the square of a length hangs a command, deaf to
signals. They are found by walking the syntax trees, so that a new one is tried as well.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import rater
from rater.system.patterns import compile_later
from tests.support.wings import ABSENT

ROOT = Path(rater.__file__).parent
METHODS = {"match", "fullmatch", "search", "sub", "subn", "findall", "finditer", "split"}
NEAR = 1 << 14  # characters of a near-match: the square of that is seen, a multiple is not
SEEN_S = 0.024  # of CPU; linear ones need a tenth
LETTERS = 1 << 18
MOST_S = 0.25  # of CPU for so many
# What is not known before a run: file, and why it may be so.
MADE_LATER = {
    "system/patterns.py": "the patterns of its callers, which are tried here",
    "plan/metric.py": "a suite's own pattern, compiled to see whether it can be",
    "run/workplace/compare_output.py": "a suite's own pattern, run where it has a time limit",
    "analysis/compare/command_axes.py": "values of axes, each taken as it stands",
    "settings/known.py": "words of our own table of settings",
    "plan/placement/expression.py": "names of the forms in our own table",
    "speccpu/config/config.py": "one word, or nothing",
    "speccpu/results/read.py": "beginnings of files by a table of our own",
}


@dataclass(frozen=True)
class Pattern:
    where: str
    expression: re.Pattern[Any]
    methods: frozenset[str]

    def slowness(self, text: str, most_s: float) -> str:
        """Say with what it took longer; nothing, where it did not."""
        given: Any = text if isinstance(self.expression.pattern, str) else text.encode("latin-1")
        for method in self.methods:
            used = self._time(method, given)
            if used > most_s and self._needs_the_square(method, given, most_s):
                shown = f"{text[:30]!r}... of {len(text)}"
                return f"{self.where} {method} of {shown}: {used:.3f} s"
        return ""

    def _needs_the_square(self, method: str, text: Any, most_s: float) -> bool:
        """Tell whether a slow text takes 3.4 times as long as its half.

        On a slow machine linear patterns are beyond `most_s` too: theirs is 2 times as long, up to
        2.5 where repeats have a bound; that of the square is 4 times. The least of seven is taken,
        of two where it is plainly linear, in turn: what else runs (a hypervisor's guests) can only
        make it longer.
        """
        parts = (text[: len(text) // 2], text)
        times: list[list[float]] = []
        for _ in range(7):
            times.append([self._time(method, part) for part in parts])
            half, whole = (min(of_part) for of_part in zip(*times, strict=True))
            if len(times) > 1 and whole < 2.6 * half:
                return False
        return bool(whole > most_s and whole > 3.4 * half)

    def _time(self, method: str, text: Any) -> float:
        start = time.process_time()
        if method.startswith("sub"):
            getattr(self.expression, method)(text[:0], text)
        else:
            found = getattr(self.expression, method)(text)
            if method == "finditer":
                list(found)
        return time.process_time() - start


def known(node: ast.expr, names: dict[str, Any]) -> Any:
    """Return the value of an expression as the module begins, None if it has no value yet."""
    try:
        return eval(compile(ast.Expression(node), "pattern", "eval"), names)
    except NameError:
        return None


def called(node: ast.AST) -> str:
    """Return what is called of `re`, `compile` also where that is put off, or empty."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method)):
            return method
        case ast.Call(func=ast.Name(id="compile_later")):
            return "compile"
    return ""


@cache
def patterns() -> tuple[list[Pattern], set[str]]:
    """Return every pattern with the methods it is used by, and the files of those made later.

    Not as tests are collected: each worker does that, and one of them has these tests.
    """
    paths = sorted(ROOT.rglob("*.py"))
    nodes_of = {path: list(ast.walk(ast.parse(path.read_text()))) for path in paths}
    uses: dict[tuple[Path | None, str], set[str]] = {}  # by file and name; public ones: anywhere
    for path, nodes in nodes_of.items():
        for node in nodes:
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                name = getattr(node.value, "id", getattr(node.value, "attr", ""))
                uses.setdefault((path if name[:1] == "_" else None, name), set()).add(node.attr)
    expressions, later = [], set()
    for path, nodes in nodes_of.items():
        calls = [node for node in nodes if called(node) in METHODS | {"compile"}]
        if not calls:
            continue
        module = ".".join(("rater", *path.relative_to(ROOT).with_suffix("").parts))
        names = vars(import_module(module))
        targets = {
            node.value: target.id
            for node in nodes
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name)
        }
        for call in calls:
            assert isinstance(call, ast.Call)
            text = known(call.args[0], names)
            if text is None:
                later.add(str(path.relative_to(ROOT)))
                continue
            flags = [*call.args, *(keyword.value for keyword in call.keywords)][1:]
            values = [
                value for value in (known(flag, names) for flag in flags) if isinstance(value, int)
            ]
            expression = re.compile(text, *values)
            method, name = called(call), targets.get(call, "")
            by = {method} - {"compile"} or uses.get(
                (path if name[:1] == "_" else None, name), set()
            )
            where = f"{path.relative_to(ROOT)}:{call.lineno}"
            expressions.append(Pattern(where, expression, frozenset(by or {"match", "fullmatch"})))
    return expressions, later


REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}


def fits(sign: str, items: Any) -> bool:
    """Tell whether a sign is in a class of signs, however that is written."""
    return re.compile(f"(?s:{class_text(items)})").fullmatch(sign) is not None


def class_text(items: Any) -> str:
    words = {"DIGIT": "d", "SPACE": "s", "WORD": "w"}
    text = ""
    for op, value in items:
        match str(op):
            case "NEGATE":
                text += "^"
            case "LITERAL":
                text += re.escape(chr(value))
            case "RANGE":
                text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
            case _:
                word = words[str(value).rpartition("_")[2]]
                text += "\\" + (word.upper() if "_NOT_" in str(value) else word)
    return f"[{text}]"


def example(tree: Any) -> str:
    """Return a short text that a part of a pattern matches."""
    text = ""
    for op, value in tree:
        match str(op):
            case "LITERAL":
                text += chr(value)
            case "NOT_LITERAL":
                text += "b" if value == ord("a") else "a"
            case "ANY":
                text += "a"
            case "IN":
                signs = "a0A _-=.:,/'\"[]{}()<>+*%$#\\\n" + "".join(map(chr, range(33, 127)))
                text += next((sign for sign in signs if fits(sign, value)), "a")
            case "BRANCH":
                text += example(value[1][0])
            case "SUBPATTERN":
                text += example(value[3])
            case "ATOMIC_GROUP":
                text += example(value)
            case repeat if repeat in REPEATS:
                text += example(value[2]) * min(value[0] or value[1] == 1, 5)
    return text


def repeats(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what goes before each part that repeats, and one of that part."""
    for op, value in tree:
        match str(op):
            case repeat if repeat in REPEATS:
                if value[1] > 50:
                    yield before, example(value[2])
                yield from repeats(value[2], before)
            case "SUBPATTERN":
                yield from repeats(value[3], before)
            case "ATOMIC_GROUP":
                yield from repeats(value, before)
            case "BRANCH":
                for branch in value[1]:
                    yield from repeats(branch, before)
        before += example([(op, value)])


def literals(tree: Any) -> set[str]:
    """Return the letters that stand in a pattern."""
    if not isinstance(tree, list | tuple | _parser.SubPattern):
        return set()
    if len(tree) == 2 and str(tree[0]) in ("LITERAL", "NOT_LITERAL"):
        return {chr(tree[1])}
    return set().union(*(literals(tree[number]) for number in range(len(tree))))


def near_matches(expression: re.Pattern[Any]) -> tuple[list[str], set[str]]:
    """Return texts that nearly match, and the letters that a part which repeats begins with."""
    text: Any = expression.pattern
    text = text if isinstance(text, str) else text.decode("latin-1")
    tree = _parser.parse(text, expression.flags & ~re.UNICODE)
    places, whole = [("", ""), *repeats(tree)], example(tree)
    repeated = {place for _, place in places} - {""}
    units = literals(tree) | repeated | {"a", "0", " ", "\n", whole, whole[:-1]}
    texts = [
        before + unit * (NEAR // len(unit)) + "\0"
        for before in {before for before, _ in places}
        for unit in units - {""}
    ]
    return texts, {place[0] for place in repeated} or {"a"}


def test_a_pattern_that_is_compiled_later_is_the_one_that_re_compiles() -> None:
    later, at_once = compile_later(r"(a+)b", re.IGNORECASE), re.compile(r"(a+)b", re.IGNORECASE)
    for text in ("xAAb", "b", "aab"):
        assert bool(later.fullmatch(text)) == bool(at_once.fullmatch(text))
        assert later.findall(text) == at_once.findall(text)
    assert (later.pattern, later.flags) == (at_once.pattern, at_once.flags)


def test_all_patterns_are_known_but_those_that_are_made_later() -> None:
    known_ones, later = patterns()
    assert len(known_ones) > (150 if ABSENT else 200)
    assert {it for it in MADE_LATER if it.split("/")[0] not in ABSENT} == later


def test_no_pattern_needs_the_square_of_a_text() -> None:
    slow: list[str] = []
    for pattern in patterns()[0]:
        texts, letters = near_matches(pattern.expression)
        told = next(filter(None, (pattern.slowness(text, SEEN_S) for text in texts)), "")
        more = (pattern.slowness(letter * LETTERS, MOST_S) for letter in letters if not told)
        slow += filter(None, [told, *more])
    assert slow == []
