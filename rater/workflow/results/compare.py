"""`rater compare` and `rater divots`: points with the first of them, and what is slow in runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rater.analysis.compare.compare import compare
from rater.analysis.compare.gate import comparison_cases, judge_comparison
from rater.analysis.compare.model import Comparison, counted_changes, cpi_changes
from rater.analysis.results.copies import Point, memory_rows
from rater.analysis.results.disturbed import NOT_JUDGED
from rater.analysis.results.gates import GateAnswer, GateCase, gate_status, reasons_of
from rater.analysis.stats.intervals import Decision
from rater.show.charts.comparison import comparison_chart, comparison_svg
from rater.show.compare.comparison import comparison_document, comparison_parts
from rater.show.compare.cycles import counted_document, counted_parts, cpi_document, cpi_parts
from rater.show.compare.memory import memory_document, memory_parts, write_memory_csv
from rater.show.documents.compare import ComparisonDocument
from rater.show.screen.document import Line, Part
from rater.store.store import Store
from rater.system.errors import InputError
from rater.system.process import print_error
from rater.text.values import count, parse_percent, truncate_list
from rater.workflow.arguments import Output, open_store_for_reading, print_json, print_view
from rater.workflow.results.ci import CI_FORMATS, print_gates
from rater.workflow.results.points import (
    METRIC,
    NOT_DONE,
    check_distinct,
    count_interim_looks,
    drawing_file,
    load_points,
    missing_points,
    write_drawing,
)

_WORSE_FOUND = 1  # exit status of --fail-on
_WORSE = "worse"
_MOST_HIDDEN = 4  # of what a gate cannot judge, that are told
_SEVERAL_RUNS = (
    "make several runs of both, in turn (`rater sweep --rounds 6 --axis ...`), when nothing else "
    "works on this machine, or name several: 7,8,9 10,11,12"
)
CPU_TIME = "cpu"  # no axis: the word of --by for CPU time


class CompareOptions(Struct, frozen=True, kw_only=True):
    """Options of a comparison."""

    points: tuple[str, ...]
    baseline: str | None
    within: str
    by: tuple[str, ...]
    memory: bool
    csv: bool
    fail_on: str | None
    file: str | None


def compare_points(output: Output, options: CompareOptions) -> int:
    """Print the comparison; return the exit status."""
    if options.memory:
        return _compare_memory(output, options)
    if options.csv:
        raise InputError(
            "--csv belongs to --memory; `rater compare --json` has all of a comparison"
        )
    file = drawing_file(options.file)
    worst = gate_limit(options.fail_on)
    words = options.points
    with open_store_for_reading(output, [*words, options.baseline]) as store:
        comparison, without = compare_words(
            store, words, options.within, baseline=options.baseline, by=options.by
        )
    counted = cpi_changes(comparison.sides)
    rates = counted_changes(comparison.sides)
    if file is not None:
        chart = comparison_chart(comparison)
        if chart is None:
            raise InputError("-o: no benchmark has a valid result in both points: nothing to draw")
        write_drawing(comparison_svg(chart), file)

    def document() -> ComparisonDocument:
        values = comparison_document(comparison)
        if counted:
            values["cpi"] = cpi_document(counted)
        if rates:
            values["counted"] = counted_document(rates)
        values["points_without_runs"] = [*without]
        return values

    def parts(_: object) -> Iterator[Part]:
        yield from (Line(text, "yellow") for text in without)
        yield from comparison_parts(comparison, with_elapsed=output.verbose)
        yield from counted_parts(rates, comparison.sides)
        yield from cpi_parts(counted, comparison.sides)

    if output.format in CI_FORMATS and not output.json:
        cases = gate_cases(comparison, options.fail_on, without)
        print_gates(output, f"rater compare {' '.join(words)}", cases, parts(None))
    elif output.json:
        print_json(document())
    else:
        print_view(output, comparison, parts)
    return 0 if worst is None else gate_comparison(comparison, worst, without)


def gate_cases(
    comparison: Comparison, fail_on: str | None, without: Sequence[str]
) -> list[GateCase]:
    """Return the cases of a gate for CI, of `worse` where no `--fail-on` was given."""
    gate, limit = fail_on or _WORSE, gate_limit(fail_on) or 0.0
    return [*comparison_cases(comparison, gate, limit), *_missing_cases(gate, without)]


def _missing_cases(gate: str, without: Sequence[str]) -> Iterator[GateCase]:
    """Yield a case for each point that has no runs, though they were to be made."""
    for text in without:
        if text.endswith(NOT_DONE):
            yield GateCase(
                gate=gate, name="all", place="missing", answer=GateAnswer.OPEN, reason=text
            )


def compare_words(
    store: Store, words: Sequence[str], within: str, *, baseline: str | None, by: Sequence[str]
) -> tuple[Comparison, tuple[str, ...]]:
    """Compare what words mean with the first, or the baseline; also say which points have no runs.

    `within`: per cent that mean the same; `by`: an axis, `cpu`, or both. Raises `InputError`.
    """
    margin = margin_of(within)
    points = load_points(store, words)
    check_distinct(points)
    words_of_by = split_by(by, points)
    comparison = compare(
        points,
        margin=margin,
        by=words_of_by.axis,
        baseline=_baseline(store, baseline, points),
        looks=count_interim_looks(store, points),
        by_cpu=words_of_by.cpu_time,
        by_metric=words_of_by.metric,
    )
    return comparison, missing_points(store, words)


def margin_of(within: str) -> float:
    """Return what `--within` calls the same, as a share; raises `InputError`."""
    margin = parse_percent(within)
    if margin is None:
        raise InputError(f"--within {within}: expected a number of per cent, as in --within 1%")
    if not margin:
        raise InputError("--within 0: nothing is the same to the last digit; expected P% above 0")
    return margin


class ByWords(Struct, frozen=True, kw_only=True):
    """What the words of `--by` mean."""

    axis: str | None  # whose values are compared
    metric: str | None  # that programs report, in place of their times
    cpu_time: bool


def split_by(by: Sequence[str], points: Sequence[Point]) -> ByWords:
    """Return what the words of `--by` mean: an axis of the points, `cpu`, or a metric.

    An axis goes before a metric of its name; `metric:NAME` is the metric in any case. Raises
    `InputError` where two words mean the same thing.
    """
    axes = {name for point in points for name, _ in point.values}
    named = {
        "axis": [word for word in by if word in axes],
        "metric": [
            word.removeprefix(METRIC) for word in by if word not in axes and word != CPU_TIME
        ],
    }
    for words in named.values():
        if len(words) > 1:
            raise InputError(f"--by {words[1]}: one axis and one measure at a time")
    axis, metric = (words[0] if words else None for words in named.values())
    if metric is not None and CPU_TIME in by:
        raise InputError(f"--by {metric} and --by {CPU_TIME}: one measure at a time")
    return ByWords(axis=axis, metric=metric, cpu_time=CPU_TIME in by)


def _compare_memory(output: Output, options: CompareOptions) -> int:
    given = {
        "--baseline": options.baseline,
        "--by": options.by,
        "--fail-on": options.fail_on,
        "-o": options.file,
        "--json beside --csv": options.csv and output.json,
    }
    wrong = [name for name, value in given.items() if value]
    if wrong:
        raise InputError(f"--memory compares nothing: leave out {truncate_list(wrong)}")
    with open_store_for_reading(output, options.points) as store:
        points = load_points(store, options.points)
        without = missing_points(store, options.points)
    rows, labels = memory_rows(points), [point.label for point in points]
    if options.csv:
        write_memory_csv(rows, labels, sys.stdout)
        return 0

    def parts(_: object) -> Iterator[Part]:
        yield from (Line(text, "yellow") for text in without)
        yield from memory_parts(rows, labels)

    document = memory_document(rows, labels)
    document["points_without_runs"] = [*without]
    print_view(output, document, parts)
    return 0


def gate_limit(text: str | None) -> float | None:
    """Return the share of `--fail-on worse:P%`; None: no gate. Raises `InputError`."""
    if text is None:
        return None
    word, colon, least = text.partition(":")
    if word != _WORSE:
        raise InputError(f"--fail-on {text}: expected worse, or worse:P% as in worse:2%")
    share = parse_percent(least) if colon else 0.0
    if share is None:
        raise InputError(
            f"--fail-on {text}: expected a number of per cent, as in --fail-on worse:2%"
        )
    return share


def gate_comparison(comparison: Comparison, least: float, without: Sequence[str]) -> int:
    """Say on stderr why it fails, or cannot be judged; return the exit status.

    `without`: points that have no runs. Those that a sweep left out, knowing why, are no obstacle.
    """
    unmade = [text for text in without if text.endswith(NOT_DONE)]
    verdicts = [*judge_comparison(comparison, least)]
    for row, side, cell in comparison.verdicts():
        if cell.speedup is not None and cell.speedup.verdict is Decision.RARELY:
            print_error(
                f"--fail-on worse: not worse: {row.name} ({side.label}): "
                f"{cell.speedup.verdict_text}"
            )
    lost = [f"{name} ({label})" for name, label in comparison.lost]
    worse = reasons_of(verdicts, GateAnswer.FOUND)
    if worse:
        print_error(f"--fail-on worse: worse: {truncate_list(worse)}")
    if lost:
        print_error(
            f"--fail-on worse: no valid result, where the baseline has one: {truncate_list(lost)}"
        )
    if worse or lost:
        return _WORSE_FOUND
    if unmade:
        print_error(f"--fail-on worse: cannot be judged: {truncate_list(unmade)}")
        return NOT_JUDGED
    if not verdicts:
        print_error("--fail-on worse: the baseline has no valid result: nothing was compared")
        return NOT_JUDGED
    if hidden := reasons_of(verdicts, GateAnswer.OPEN):
        more = len(hidden) - _MOST_HIDDEN
        and_more = [f"and {count(more, 'more row')}"] if more > 0 else []
        way_out = [_SEVERAL_RUNS] if comparison.unjudged() else []
        told = "; ".join([*hidden[:_MOST_HIDDEN], *and_more, *way_out])
        print_error(f"--fail-on worse: cannot be judged: {told}")
    return gate_status(verdicts)


def _baseline(store: Store, word: str | None, points: Sequence[Point]) -> str | None:
    labels = {point.label for point in points}
    values = {"=".join(pair) for point in points for pair in point.values}
    if word is None or word in labels or word in values:
        return word
    return load_points(store, [word])[0].label
