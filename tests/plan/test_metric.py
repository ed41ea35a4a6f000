"""`--metric` and `[metrics]` of suites: one meaning for all of their texts."""

from __future__ import annotations

import pytest

from rater.plan.metric import Metric, parse_metric, parse_metrics
from rater.plan.request import Request
from rater.system.errors import InputError
from rater.workflow.arguments import RunArguments


def fields_of(text: str) -> tuple[str, str, str | None, str, str]:
    """What a text says: name, unit, better, combine, file."""
    metric = parse_metric(text)
    return metric.name, metric.unit, metric.better, metric.combine, metric.file


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Triad: ([0-9.]+) MB/s", ("Triad", "MB/s", "higher", "sum", "stdout")),
        (r"^Copy:\s+(\d+)\s+GB/s$", ("Copy", "GB/s", "higher", "sum", "stdout")),
        ("load latency ([0-9.]+) ns", ("load latency", "ns", "lower", "mean", "stdout")),
        (r"\(words\) = ([0-9]+)", ("words", "", None, "mean", "stdout")),
        (r"([0-9.]+) (?:seconds|s)", ("metric", "", None, "mean", "stdout")),
        ("the mean: ([0-9.]+)", ("the mean", "", None, "mean", "stdout")),
        ("higher: ([0-9.]+)", ("higher", "", None, "mean", "stdout")),
    ],
)
def test_a_pattern_alone_is_named_by_the_words_around_its_number(
    text: str, expected: tuple[str, str, str | None, str, str]
) -> None:
    assert fields_of(text) == expected
    assert parse_metric(text).pattern == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bandwidth MB/s higher: T: (.+) x", ("bandwidth", "MB/s", "higher", "sum", "stdout")),
        ("bandwidth MB/s higher mean: (.+)", ("bandwidth", "MB/s", "higher", "mean", "stdout")),
        ("answer time s lower stderr: (.+)", ("answer time", "s", "lower", "mean", "stderr")),
        ("moves higher: (.+)", ("moves", "", "higher", "mean", "stdout")),
    ],
)
def test_a_head_before_a_colon_gives_name_unit_and_direction(
    text: str, expected: tuple[str, str, str | None, str, str]
) -> None:
    assert fields_of(text) == expected


def test_the_keys_of_a_suite_say_all_of_it() -> None:
    text = "name=copy rate, unit=GB/s, better=lower, scale=1e-3, file=out/a.txt, pattern=a, (b+)"
    assert parse_metric(text) == Metric(
        name="copy rate",
        pattern="a, (b+)",
        unit="GB/s",
        better="lower",
        combine="mean",
        file="out/a.txt",
        scale=0.001,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Triad: [0-9.]+", "expected exactly one group (...), the number, got 0"),
        ("a (b) (c)", "got 2; write (?:...) for groups that are not the number"),
        ("a ([0-9.]+", "expected a regular expression of Python, got 'a ([0-9.]+'"),
        ("", "expected 'PATTERN'"),
        ("rate MB/s higher fast: (x)", "'fast' behind higher: expected sum, mean"),
        ("name=a, unt=s, pattern=(x)", "'unt=s': expected a key of name, unit"),
        ("name=a, better=more, pattern=(x)", "better=more: expected higher or lower"),
        ("name=a, file=../b, pattern=(x)", "expected a path inside the run directory"),
        ("name=a, scale=0, pattern=(x)", "scale=0: expected a number above 0"),
        ("name=, pattern=(x)", "'': expected a name"),
    ],
)
def test_what_is_wrong_says_what_is_expected(text: str, words: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_metric(text)
    assert words in str(error.value)


def test_a_metric_may_be_of_one_of_several_programs() -> None:
    text = "Triad MB/s higher sum of ./stream -x: Triad: ([0-9.]+)"
    first, second = parse_metrics([text, "name=Triad,unit=MB/s,program=b,pattern=([0-9]+)"])
    assert (first.program, first.combine, first.unit) == ("./stream -x", "sum", "MB/s")
    assert second.program == "b"
    with pytest.raises(ValueError, match="expected the name of a program behind it"):
        parse_metric("Triad MB/s higher of: Triad: ([0-9.]+)")
    with pytest.raises(ValueError, match="two metrics are called Triad"):
        parse_metrics([text, "Triad MB/s higher: ([0-9]+)"])


def test_two_metrics_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two metrics are called a: name each"):
        parse_metrics(["a (b)", "a (c)"])


def test_a_run_keeps_the_texts_of_its_metrics_and_a_suite_takes_none() -> None:
    typed = RunArguments(command=("./a",), options={"metric": ["a (b)", "c s lower: (d)"]})
    assert typed.request().metrics == ("a (b)", "c s lower: (d)")
    assert Request().metrics == ()
    with pytest.raises(InputError, match=r"--metric a .b. is for a command behind"):
        RunArguments(suites=("mini",), options={"metric": ["a (b)"]}).request()
    with pytest.raises(InputError, match="--metric: expected a regular expression"):
        RunArguments(command=("./a",), options={"metric": ["(("]}).request()
