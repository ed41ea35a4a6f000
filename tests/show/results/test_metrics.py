"""Metrics whose values or units are out of the ordinary keep their table readable."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from rater.analysis.results.score import summarise
from rater.record.run import MetricUsed
from rater.show.console import Printer
from rater.show.results.copies import print_metrics
from tests.support.example_runs import copy_row, stored


def shown(
    metrics: Sequence[MetricUsed], values: Sequence[Sequence[float]], *, width: int = 100
) -> list[str]:
    """What is printed of metrics of which copy c reported values[c], each on an own lgroup."""
    rows = [
        replace(
            copy_row(c, 1.0, node=c),
            metrics=tuple(zip((metric.name for metric in metrics), of, strict=True)),
        )
        for c, of in enumerate(values)
    ]
    run = stored(rows, copies=len(values))
    run = replace(run, benchmarks=(replace(run.benchmarks[0], metrics=tuple(metrics)),))
    out = io.StringIO()
    print_metrics(summarise(run).metrics, Printer(Console(file=out, width=width)))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def metric(name: str, combine: str = "mean", unit: str = "s") -> MetricUsed:
    return MetricUsed(name, unit, "lower", combine)


def test_small_and_huge_values_keep_their_digits_and_their_columns() -> None:
    metrics = [metric("tiny"), metric("huge"), metric("digits"), metric("usual")]
    lines = shown(metrics, [[3.2e-9, 1.8e19, 1e200, 1.5], [3.4e-9, 1.9e19, 2e200, 2.5]])
    assert [line[:28] for line in lines[2:6]] == [
        "a          tiny     3.300e-0",
        "           huge     1.850e+1",
        "           digits  1.500e+20",
        "           usual         2.0",
    ]
    assert [line.split()[-6:] for line in lines[2:6]] == [
        ["3.200e-09", "3.300e-09", "3.400e-09", "1,", "1,", "1"],
        ["1.800e+19", "1.850e+19", "1.900e+19", "1,", "1,", "1"],
        ["1.000e+200", "1.500e+200", "2.000e+200", "1,", "1,", "1"],
        ["1.50", "2.00", "2.50", "1,", "1,", "1"],
    ]
    assert lines[-4:] == [
        "a tiny, s          3.200e-09   3.400e-09",
        "a huge, s          1.800e+19   1.900e+19",
        "a digits, s       1.000e+200  2.000e+200",
        "a usual, s              1.50        2.50",
    ]


@pytest.mark.parametrize("width", [80, 200])
def test_a_long_unit_takes_no_room_of_the_values(width: int) -> None:
    lines = shown([metric("speed", unit="u" * 300)], [[1.5], [2.5]], width=width)
    assert lines[2].split()[2] == "2.00"
    assert lines[2].split()[3].startswith("u" * 8)
    assert "u" * 17 not in "".join(lines)


def test_of_many_lgroups_the_extremes_are_told_and_of_what_cannot_be_added_up_the_reason() -> None:
    lines = shown([metric("tiny")], [[(c + 1) * 1e-9] for c in range(20)])
    assert " ".join(line.strip() for line in lines).endswith(
        "a, tiny: mean over the copies of an lgroup: 1.000e-09 (lgroup 0) to 2.000e-08 "
        "(lgroup 19) s"
    )
    lines = shown([metric("much", "sum")], [[1e308], [1.2e308]])
    assert lines[2].split()[:4] == ["a", "much", "-", "s"]
    assert lines[3] == "a, much: no value: too large to add up"
