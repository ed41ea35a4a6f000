"""Every view of a comparison says the same verdicts with the same doubts."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.model import Comparison
from rater.analysis.results.copies import Point
from rater.analysis.stats.intervals import RatioInterval
from rater.record.stored import StoredRun
from rater.show.charts.comparison import comparison_chart, comparison_svg
from rater.show.compare.comparison import comparison_document, comparison_parts
from rater.show.html.shell import html_parts
from rater.show.screen.document import MarkdownPrinter, print_parts, write_csv
from tests.support.compared_runs import SIX, beside_others, point
from tests.support.drawings import marks, needs_vega
from tests.support.printed import in_words, text_of


def with_benchmarks(runs: list[StoredRun], names: str) -> list[StoredRun]:
    """The same runs with the one benchmark of each under several names, a phase each."""
    several = []
    for run in runs:
        (benchmark,), (bracket,), copies = run.benchmarks, run.brackets, run.copies
        (cpus,), (machine,) = run.cpu_readings, run.machine_readings
        phases = list(enumerate(names))
        several.append(
            replace(
                run,
                benchmarks=tuple(replace(benchmark, name=name) for name in names),
                brackets=tuple(
                    replace(bracket, phase=phase, benchmark=name) for phase, name in phases
                ),
                copies=tuple(
                    replace(copy, phase=phase, benchmark=name)
                    for phase, name in phases
                    for copy in copies
                ),
                cpu_readings=tuple(replace(cpus, phase=phase) for phase, _ in phases),
                machine_readings=tuple(replace(machine, phase=phase) for phase, _ in phases),
            )
        )
    return several


def sides(names: str) -> list[Point]:
    """A quiet baseline; judged by CPU time; without a verdict; with a doubt; of few rounds."""
    slower = [cpu_s * 1.05 for cpu_s in SIX]
    runs = [
        beside_others(1, SIX, 0.0),
        beside_others(7, slower, 4.0),
        beside_others(13, SIX, 4.0, asleep_s=1.0),
        beside_others(19, slower, 0.0),
        beside_others(25, slower, 0.0)[:3],
    ]
    labels = ("quiet", "loud", "asleep", "slow", "short")
    return [
        point(label, *with_benchmarks(of_side, names))
        for label, of_side in zip(labels, runs, strict=True)
    ]


def csv_text(comparison: Comparison, *, detailed: bool) -> str:
    out = io.StringIO()
    write_csv(comparison_parts(comparison, detailed=detailed), out)
    return out.getvalue()


def markdown_text(comparison: Comparison, *, detailed: bool) -> str:
    out = io.StringIO()
    print_parts(comparison_parts(comparison, detailed=detailed), MarkdownPrinter(out))
    return out.getvalue().replace("\\", "")


def page_text(comparison: Comparison, *, detailed: bool) -> str:
    tags = html_parts(comparison_parts(comparison, detailed=detailed))
    return html.unescape(re.sub(r"<[^>]*>", " ", str(tags)))


VIEWS: dict[str, Callable[..., str]] = {
    **{
        f"{width} columns": lambda comparison, detailed, width=width: text_of(
            comparison_parts(comparison, detailed=detailed), width
        )
        for width in (60, 80, 140)
    },
    "Markdown": markdown_text,
    "CSV": csv_text,
    "page": page_text,
}
MARKS = {"better": "+", "worse": "-", "same": "="}


def reasons(speedup: RatioInterval) -> list[str]:
    """What a reader has to know beside the word of the verdict."""
    measure = ["by CPU time", speedup.by_cpu] if speedup.by_cpu else []
    return [*measure, *speedup.doubts, *([speedup.refused] if speedup.refused else [])]


def says_verdict(text: str, speedup: RatioInterval) -> bool:
    """Whether the word of a verdict stands there, or its ratio with the mark of a matrix."""
    mark = MARKS.get(speedup.short.split()[0], "?")
    ratio = "-" if mark == "?" else f"{speedup.ratio:.3f}"
    return speedup.short in text or re.search(rf"{ratio}\(?{re.escape(mark)}", text) is not None


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("detailed", [True, False])
@pytest.mark.parametrize("names", ["a", "abcdef"])
@pytest.mark.parametrize("others", [1, 4])
def test_a_view_says_each_verdict_with_its_doubts(
    view: str, detailed: bool, names: str, others: int
) -> None:
    points = sides(names)
    for chosen in [points[:5]] if others == 4 else [[points[0], other] for other in points[1:]]:
        comparison = compare(chosen)
        text = in_words(VIEWS[view](comparison, detailed=detailed))
        for row, side, cell in comparison.verdicts():
            speedup = cell.speedup
            assert speedup is not None
            where = (row.name, side.label, view, text)
            assert says_verdict(text, speedup), where
            for reason in reasons(speedup):
                assert reason in text, (reason, *where)


def test_documents_and_charts_have_the_values_of_the_verdict() -> None:
    comparison = compare(sides("ab")[:2])
    cell = comparison.benchmarks[0].cells[0]
    assert cell.by_cpu is not None
    (effect,) = comparison_document(comparison)["benchmarks"][0]["points"]
    assert effect["by_cpu_time"] == {
        "baseline": cell.by_cpu.baseline,
        "value": cell.by_cpu.value,
        "unit": "ratio by CPU time",
    }
    assert effect["speedup"] is not None
    assert effect["speedup"]["by_cpu_time"] == "others took 39 % of the CPU"
    chart = comparison_chart(comparison)
    assert chart is not None
    line = chart["data"]["lines"][0]
    assert line["text"].endswith("CPU time")
    assert "ratio by CPU time" in line["card"][-1]


@needs_vega
def test_an_interval_that_leaves_the_picture_ends_before_its_verdict() -> None:
    chart = comparison_chart(compare(sides("a")))
    assert chart is not None
    for line in chart["data"]["lines"]:
        line |= {"high": 99.0, "text": "1.067 ? CPU time"}
    svg = comparison_svg(chart)
    [intervals], [verdicts] = marks(svg, "intervals"), marks(svg, "verdicts")

    def place_of(mark: dict[str, str]) -> float:
        return float(re.findall(r"[-.\d]+", mark["transform"])[0])

    for interval, verdict in zip(intervals, verdicts, strict=True):
        end = place_of(interval) + max(0.0, float(interval["x2"]))
        assert end < place_of(verdict) - 5 * len("1.067 ? CPU time")  # a letter has 5 units or more


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_table_of_both_measures_says_which_is_which(width: int) -> None:
    text = text_of(comparison_parts(compare(sides("a"))), width)
    assert "ratio by CPU time" in in_words(text)
    alone = in_words(text_of(comparison_parts(compare(sides("a")[:2])), width))
    assert "(ratio by CPU time)" in alone or width == 60
