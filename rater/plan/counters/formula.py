"""Formulas of counter tables: sums of names and numbers, evaluated by a whitelist; pure."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rater.text.document import did_you_mean

_LONGEST = 400  # characters
_MOST_NODES = 120
_LARGEST = 1e12  # number in a formula, and what comes of one
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {"min": min, "max": max}
_EXPECTED = "expected names of events, numbers, + - * / ( ), min(...) and max(...)"


@dataclass(frozen=True, slots=True)
class Formula:
    """A checked formula; `text` as it was written."""

    text: str
    names: frozenset[str]  # of events
    _tree: ast.expr

    def value(self, values: Mapping[str, float]) -> float:
        """Return what it comes to; `values` must have all `names`.

        Raises `ArithmeticError` for a division by zero, and for what no rate can be.
        """
        value = _value(self._tree, values)
        if not abs(value) <= _LARGEST:  # NaN neither
            raise OverflowError(value)
        return value


def parse_formula(text: str, known: Collection[str]) -> Formula:
    """Return the formula that a text says.

    Raises `ValueError` for anything but sums over `known` names, with what is wrong.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"more than {_LONGEST} characters")
    try:
        with warnings.catch_warnings(action="error"):  # of "1if": Python would print them
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"no formula; {_EXPECTED}") from None
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise ValueError("too long a formula")
    names: set[str] = set()
    _check(tree, known, names)
    return Formula(text, frozenset(names), tree)


def _check(node: ast.expr, known: Collection[str], names: set[str]) -> None:
    match node:
        case ast.Constant(value=int() | float() as number) if (
            not isinstance(number, bool) and number <= _LARGEST
        ):
            pass
        case ast.Name(id=name):
            if name not in known:
                raise ValueError(f"unknown event {name!r}; {did_you_mean(name, known)}")
            names.add(name)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, known, names)
            _check(right, known, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            _check(operand, known, names)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as args, keywords=[]) if (
            name in _FUNCTIONS
        ):
            for one in args:
                _check(one, known, names)
        case _:
            raise ValueError(f"{ast.unparse(node)!r}: {_EXPECTED}")


def _value(node: ast.expr, values: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=op, right=right):
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(operand=operand):
            return -_value(operand, values)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _FUNCTIONS[name](*(_value(one, values) for one in args))
    raise AssertionError(ast.dump(node))
