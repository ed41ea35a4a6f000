"""Savings that a trace predicts against those of runs, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.lab.trace.ranking import BenefitCheck, CheckedMapping
from rater.show.screen.document import CHANGE, TEXT, Field, Form, Line, Part, ViewTable
from rater.text.values import JsonFields, percent

CHECK = {
    BenefitCheck: JsonFields(
        "told rounds predicted_s most_saved_s most_saved_noise_s mean_error max_error mappings"
    ),
    CheckedMapping: JsonFields(
        "layout=name times_s median_s predicted_s least_s most_s saved_s noise_s ratio"
        " by_own_slope_s own_ratio predicted measured noise error"
    ),
}
USER_TIME = (
    "Times are user times, and predictions have no page faults in them: the host of this virtual "
    "machine takes free memory back (`rater doctor`), and what its return costs is in CPU times."
)
# Of ns.
MILLISECONDS = Form(lambda values: ["-" if it is None else milliseconds(it) for it in values])


def check_parts(check: BenefitCheck) -> Iterator[Part]:
    """Yield predicted against measured savings, of the predicted best first, and each mapping."""
    yield from _best_parts(check.best)
    if check.rounds == 1:
        yield "One round: how far runs differ is not known, so these runs cannot judge."
    elif not check.told:
        yield "Noise hides the largest saving of any mapping: these runs cannot judge."
    yield ViewTable(title="", rows=check.mappings, fields=tuple(_fields(check)))
    if check.told and check.mean_error is not None:
        yield (
            "error in per cent of the maximum benefit: "
            f"mean {percent(check.mean_error)} %, largest {percent(check.max_error)} %"
        )


def _best_parts(best: CheckedMapping) -> Iterator[Part]:
    noise = "" if best.noise_s is None else f" +- {milliseconds(best.noise_s * 1e9)}"
    yield Line(
        f"{best.name}: predicted to save {milliseconds(best.predicted_s * 1e9)} ms"
        f"{range_text([best.least_s, best.most_s])}, measured "
        f"{milliseconds(best.saved_s * 1e9)}{noise} ms{_ratio_words(best.ratio)}",
        "bold",
    )
    if best.by_own_slope_s is not None:
        yield (
            f"By the program's own slope: {milliseconds(best.by_own_slope_s * 1e9)} ms"
            f"{_ratio_words(best.own_ratio)}. Each millisecond predicted of its other mappings "
            f"saved {best.own_slope:.2f}."
        )


def _fields(check: BenefitCheck) -> Iterator[Field]:
    def in_ns(seconds: float | None) -> float | None:
        return None if seconds is None else seconds * 1e9

    yield Field(heading="page sizes|", value=lambda mapping: mapping.name, form=TEXT, flexible=True)
    yield Field(heading="runs|", value=lambda mapping: len(mapping.times_s), optional=1)
    yield Field(heading="median|s", value=lambda mapping: f"{mapping.median_s:.4f}")
    yield Field(
        heading="predicted|ms", value=lambda mapping: mapping.predicted_s * 1e9, form=MILLISECONDS
    )
    yield Field(
        heading="measured|ms", value=lambda mapping: mapping.saved_s * 1e9, form=MILLISECONDS
    )
    yield Field(heading="+-|ms", value=lambda mapping: in_ns(mapping.noise_s), form=MILLISECONDS)
    yield Field(heading="ratio|", value=_ratio_text)
    if any(mapping.own_slope is not None for mapping in check.mappings):
        yield Field(
            heading="own|slope ms",
            value=lambda mapping: in_ns(mapping.by_own_slope_s),
            form=MILLISECONDS,
            optional=3,
        )
    if check.mean_error is not None:
        yield Field(
            heading="error|% of most",
            value=lambda mapping: mapping.error,
            form=CHANGE,
            optional=2,
        )


def _ratio_text(mapping: CheckedMapping) -> str | None:
    return None if mapping.ratio is None or not mapping.predicted_s else f"{mapping.ratio:.2f}"


def _ratio_words(ratio: float | None) -> str:
    return "" if ratio is None else f": ratio {ratio:.2f}"


def range_text(saved_s: Sequence[float | None]) -> str:
    """Return between what a saving lies: ` (13.7 to 79.9, as loads wait for each other)`."""
    known_ns = [each_s * 1e9 for each_s in saved_s if each_s is not None]
    if not known_ns:
        return ""
    least, most = milliseconds(min(known_ns)), milliseconds(max(known_ns))
    return f" ({least} to {most}, as loads wait for each other)"


def milliseconds(ns: float) -> str:
    """Return nanoseconds as ms with three digits."""
    value = ns / 1e6
    places = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{places}f}"
