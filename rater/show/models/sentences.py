"""What models of layouts say, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from rater.analysis.models.choice import MARGIN, TermState, TermVerdict
from rater.analysis.models.models import LEAST_VALUES, SweepModel
from rater.analysis.models.polynomial import NAMES, PolynomialFit
from rater.analysis.models.sparse import SparseFit
from rater.text.words import count, signed_percent

HOW = (
    "Warranted is what an F test at 5 % and AICc ask for and what differs from the simpler model "
    "by more than the noise of runs. More layouts: so many that the 95 % interval, which narrows "
    "with the root of their number (same spread, same scatter), excludes 0 at the size seen or "
    f"lies within {MARGIN * 100:g} %. Left out: each layout predicted by the model of all others."
)


def head_text(model: SweepModel) -> str:
    """Say what is modelled, and from how much."""
    observed = model.observed
    runs = {run for one in observed.layouts for run in one.runs}
    return f"{observed.name}: {count(len(observed.layouts), 'layout')}, {count(len(runs), 'run')}"


def quantities_text(model: SweepModel) -> str:
    """Say what x and y are, and where they are from."""
    x, y = model.observed.x, model.observed.y
    told = [
        f"{letter}: {one.name}{f' ({one.unit})' if one.unit else ''}, {one.source}."
        for letter, one in (("x", x), ("y", y))
    ]
    return " ".join(told)


def noise_text(model: SweepModel) -> str:
    """Say how much runs of one layout differ."""
    noise, of_layout = model.observed.noise, model.observed.layout_noise
    if noise.degrees is None:
        return (
            f"Too few runs were repeated to know how much they differ: {noise.sd * 100:.0f} % is "
            "assumed (rater sweep --rounds)."
        )
    return (
        f"Runs of one layout differ by {noise.sd * 100:.2g} % (standard deviation), a layout's "
        f"value is known to {of_layout * 100:.2g} %."
    )


def choice_texts(model: SweepModel) -> Iterator[str]:
    """Say what is warranted and what is not, and what would tell."""
    choice = model.choice
    if choice is None:
        yield (
            f"No model: {count(len(set(model.x.tolist())), 'value')} of x, and through two of them "
            f"goes every line; {LEAST_VALUES} or more are needed."
        )
        return
    if choice.chosen is None:
        yield "Warranted: nothing. No model tells more than the mean of all layouts."
    else:
        fit = model.chosen or model.sparse
        yield f"Warranted: {choice.chosen}{f', y = {formula(fit)}' if fit else ''}."
    for term in choice.terms:
        yield _term_text(model, term)


def formula(fit: PolynomialFit | SparseFit) -> str:
    """Return a model as `y = 0.313 - 0.00126 x`."""
    if isinstance(fit, SparseFit):
        return f"{count(len(fit.terms), 'term')} of {', '.join(fit.features)}"
    first, *others = fit.coefficients
    text = f"{first:.4g}"
    for power, value in enumerate(others, 1):
        x = "x" if power == 1 else f"x^{power}"
        text += f" {'-' if value < 0 else '+'} {abs(value):.4g} {x}"
    return text


def _term_text(model: SweepModel, term: TermVerdict) -> str:
    y = model.observed.y.name
    seen = f"{signed_percent(term.effect)} %"
    if term.low is not None and term.high is not None:
        seen += f" ({signed_percent(term.low)} to {signed_percent(term.high)})"
    what = {
        1: f"{y}, from the smallest to the largest x: {seen}",
        2: f"bend, the middle off the chord of the ends: {seen}",
    }.get(term.degree, f"{NAMES[term.degree]} term: {seen}")
    if term.state is TermState.THERE:
        verdict = "beyond chance and noise"
    elif term.state is TermState.SMALL:
        verdict = f"within {MARGIN * 100:g} %: does not matter"
    elif term.state is TermState.NOISE:
        verdict = (
            f"changes no layout by more than {term.largest_difference * 100:.2g} %, less than the "
            f"noise of runs ({term.noise * 100:.2g} %): not chosen"
        )
    else:
        verdict = f"cannot be told{_more_text(model, term)}"
    return f"{what[0].upper()}{what[1:]}: {verdict}."


def _more_text(model: SweepModel, term: TermVerdict) -> str:
    if term.low is None:
        return ", no layout more than coefficients"
    if term.more_layouts is None:
        return "; even 1000 more layouts like these would not"
    n, rounds = len(model.observed.layouts), min(len(one.runs) for one in model.observed.layouts)
    text = f"; {count(term.more_layouts, 'more layout')} would tell"
    fit = next(fit for fit in model.fits if fit.degree == term.degree)
    scatter = fit.sigma / (abs(float(model.y.mean())) or 1.0)
    if 0 < scatter <= 1.5 * term.noise:  # what is left is noise of runs
        more = -(-rounds * term.more_layouts // n)
        text += f", or {count(more, 'more round')} of these: the scatter is the noise of runs"
    return text
