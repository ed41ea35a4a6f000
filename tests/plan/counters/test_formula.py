"""Formulas of counter tables."""

from __future__ import annotations

import pytest

from rater.plan.counter_tables import parse_formula

VALUES = {"a": 6.0, "b": 4.0, "zero": 0.0}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a", 6.0),
        ("1000 * a", 6000.0),
        ("a / (a + b)", 0.6),
        ("-a + 2.5", -3.5),
        ("max(b - a, 0)", 0.0),
        ("min(a, b, 5) - max(1, 2)", 2.0),
    ],
)
def test_a_formula_comes_to_what_it_says(text: str, value: float) -> None:
    assert parse_formula(text, VALUES).value(VALUES) == pytest.approx(value)


def test_a_formula_knows_the_events_it_needs() -> None:
    assert parse_formula("a / max(a, b)", VALUES).names == {"a", "b"}
    for text in (
        "a / zero",
        "1e12 * a",
        "*".join(["1e12"] * 30),
        "0 * (" + "*".join(["1e12"] * 27) + ")",
    ):
        with pytest.raises(ArithmeticError):
            parse_formula(text, VALUES).value(VALUES)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("c + a", "unknown event 'c'; there are: a, b, zero"),
        ("a.real", "'a.real': expected names"),
        ("a[0]", "expected names"),
        ("__import__('os')", "expected names"),
        ("max(a)", "expected names"),
        ("max(*a, b)", "unknown|expected names"),
        ("max(a, b, key=a)", "expected names"),
        ("(lambda: a)()", "expected names"),
        ("a if b else a", "expected names"),
        ("a ** b", "expected names"),
        ("a // b", "expected names"),
        ("True", "expected names"),
        ("'a'", "expected names"),
        ("1e13", "expected names"),
        ("1j", "expected names"),
        ("a +", "no formula"),
        ("1if a else b", "no formula"),
        ("(" * 300 + "a", "no formula"),
        ("a" * 500, "more than 400 characters"),
        ("+".join("a" * 100), "too long"),
    ],
)
def test_anything_but_sums_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_formula(text, VALUES)
