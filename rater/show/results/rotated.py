"""Results of the rotated order as a table and sentences."""

from __future__ import annotations

from rater.analysis.results.rotated import RotatedScore, RunTail
from rater.record.stored import RunHead
from rater.show.console.format import decimals, duration, number, place
from rater.show.console.printer import Printer
from rater.show.console.rows import NotMet, not_met_column
from rater.show.console.table import Column, Columns, seconds_columns
from rater.text.words import copies_text, count, percent


def print_rotated(rotated: RotatedScore, head: RunHead, not_met: NotMet, printer: Printer) -> None:
    """Print the table per benchmark and what else there is to say."""
    rows = rotated.benchmarks
    of = Columns(rows)
    spreads = [benchmark.times_s for benchmark in rows]
    shown = ("mean", "minimum", "lower_quartile", "median", "upper_quartile", "maximum")
    cells = seconds_columns(*([getattr(s, name) if s else None for s in spreads] for name in shown))
    mean, low, quarter, median, three_quarters, high = cells
    counts = [s.count if s else 0 for s in spreads]
    astray: dict[str, set[int]] = {benchmark.benchmark: set() for benchmark in rows}
    for (name, _), copies in not_met.items():
        astray.setdefault(name, set()).update(copies)
    differ = any(how_many != head.copies for how_many in counts)
    printer.table(
        [
            of.left("benchmark", lambda b: b.benchmark, flexible=True),
            *([Column("copies", [str(how_many) for how_many in counts])] if differ else []),
            of.numbers(
                "ratio|mean" if rotated.unit == "ratio" else "copies|/hour",
                lambda b: b.rates.mean if b.rates else None,
            ),
            Column("mean|s", mean),
            of.percent("CV|%", lambda b: b.times_s.cv if b.times_s else None),
            Column("min|s", low, optional=1),
            Column("q1|s", quarter, optional=3),
            Column("median|s", median, optional=2),
            Column("q3|s", three_quarters, optional=3),
            Column("max|s", high),
            of.place(lambda b: b.slowest, "slowest copy"),
            *not_met_column([len(astray[benchmark.benchmark]) for benchmark in rows]),
        ]
    )
    over = (
        "copies: how many count for the benchmark"
        if differ
        else (f"over {copies_text(head.copies)}")
    )
    printer.prose(
        f"{over}, each by its median over "
        f"{count(rotated.rounds, 'round')}; score lost is not "
        "given in rotated order"
    )
    for benchmark in rotated.benchmarks:
        if benchmark.reason:
            printer.prose(f"{benchmark.benchmark}: {benchmark.reason}")
    printer.line()
    _score(rotated, printer)
    _times(rotated, printer)


def _score(rotated: RotatedScore, printer: Printer) -> None:
    what = f"{rotated.unit}, geometric mean of each copy, {rotated.proposed_in}"
    if rotated.score is None:
        printer.prose(f"no score over copies ({what}): {rotated.reason}")
        return
    places = decimals([copy.rate for copy in rotated.copies])
    printer.prose(
        f"mean over copies {number(rotated.score, places)}, CV {percent(rotated.cv)} % ({what})"
    )
    if len(rotated.copies) > 1:
        last = min(rotated.copies, key=lambda copy: copy.rate)
        printer.prose(
            f"the lowest of them: {', '.join([f'copy {last.copy}', *place(last.cpu, last.node)])}: "
            f"{number(last.rate, places)}"
        )


def _times(rotated: RotatedScore, printer: Printer) -> None:
    if rotated.tail is not None:
        tail = rotated.tail
        printer.prose(
            f"tail: the first copy was done {duration(tail.length_s)} before the end "
            f"({duration(tail.total_s)} in all); {_idle(tail)} over the whole run was idle in it, "
            f"{count(tail.runs_in_tail, 'run')} ended in it"
        )
    if rotated.gaps is not None:
        gaps = rotated.gaps
        printer.prose(
            f"between two steps of a copy: {gaps.median_s * 1e3:.1f} ms (median), "
            f"{gaps.longest_s * 1e3:.1f} ms at most, {percent(gaps.share)} % of the copies' time"
        )


def _idle(tail: RunTail) -> str:
    """Where the PUs of the copies are known, a PU is idle once its last copy is done."""
    if tail.core_idle_share is not None:
        return f"{percent(tail.core_idle_share)} % of core time"
    return f"{percent(tail.idle_share)} % of the copies' time"
