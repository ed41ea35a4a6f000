"""Which model is warranted: lines as lines, parabolas as parabolas, noise as nothing."""

from __future__ import annotations

import numpy as np
import pytest

from rater.analysis.stats.robust import Floats
from rater.lab.fits import fit_polynomial
from rater.lab.models import ModelChoice, TermState, choose_model

X = np.linspace(0, 100, 9)
# Nine numbers without slope or bend to speak of, of standard deviation about 1 %.
NOISE = np.array([0.3, -1.2, 0.9, 0.4, -0.8, 1.3, -1.1, 0.6, -0.4]) / 100


def chosen(y: Floats, noise: float = 0.001, degree: int = 2) -> ModelChoice:
    fits = [fit for d in range(degree + 1) if (fit := fit_polynomial(X, y, d)) is not None]
    return choose_model((X, y), fits, noise)


def test_a_line_is_a_line_exact_and_in_noise() -> None:
    line = 3 - 0.01 * X
    assert chosen(line).chosen == "linear"
    assert chosen(line * (1 + NOISE)).chosen == "linear"
    assert chosen(line, degree=3).chosen == "linear"


def test_a_parabola_is_a_parabola_exact_and_in_noise_though_no_line_fits_at_all() -> None:
    parabola = 1 + 4 * (X / 100 - 0.5) ** 2
    assert chosen(parabola).chosen == "quadratic"
    assert chosen(parabola * (1 + NOISE)).chosen == "quadratic"
    assert [term.state for term in chosen(parabola).terms] == [TermState.UNKNOWN, TermState.THERE]


def test_of_noise_nothing_is_chosen() -> None:
    choice = chosen(1 + NOISE)
    assert choice.chosen is None
    assert [term.state for term in choice.terms] == [TermState.UNKNOWN, TermState.UNKNOWN]


def test_what_is_smaller_than_runs_differ_is_not_chosen_however_significant() -> None:
    line = 3 - 0.0003 * X  # 1 % over all layouts: half of it from the mean
    assert chosen(line, noise=0.004).chosen == "linear"
    choice = chosen(line, noise=0.006)
    assert choice.chosen is None
    assert choice.terms[0].state is TermState.NOISE


def test_the_effect_is_the_change_from_end_to_end_and_the_bend_that_from_the_chord() -> None:
    y = 1 - 0.4 * (X / 100) + 0.2 * (X / 100) ** 2  # the middle lies 0.05 under its chord
    line, bend = chosen(y).terms
    assert line.effect == pytest.approx(-0.2 / y.mean())
    assert bend.effect == pytest.approx(0.05 / y.mean())  # the ends are above: it bends upwards


def test_so_many_more_layouts_make_the_interval_as_narrow_as_is_needed() -> None:
    (line, _) = chosen(1 + NOISE).terms
    assert line.low is not None
    assert line.high is not None
    half = (line.high - line.low) / 2
    goal = max(abs(line.effect), 0.01 - abs(line.effect))
    assert half > goal
    assert line.more_layouts is not None
    n = 9 + line.more_layouts
    # t(7) is 2.365 and goes to about 2.0: the interval narrows with the root of n and with t.
    assert half * np.sqrt(9 / n) * 2.0 / 2.365 <= goal * 1.03
    assert half * np.sqrt(9 / (n - 2)) > goal


def test_small_terms_that_are_known_to_be_small_need_no_more_layouts() -> None:
    _, bend = chosen((3 - 0.01 * X) * (1 + NOISE / 20)).terms
    assert (bend.state, bend.more_layouts) == (TermState.SMALL, None)
