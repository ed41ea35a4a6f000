"""Results of the rotated order as a table and sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rater.analysis.results.rotated import RotatedScore, RunTail
from rater.record.stored import RunHead
from rater.show.console.format import count, decimals, duration, number, percent
from rater.show.console.rows import NotMet, not_met_column
from rater.show.console.table import Column, place_text, seconds_columns


def rotated_lines(
    rotated: RotatedScore,
    head: RunHead,
    not_met: NotMet,
    table: Callable[[Sequence[Column]], None],
    prose: Callable[[str], None],
) -> None:
    """Hand the table per benchmark to `table` and what else there is to say to `prose`."""
    spreads = [benchmark.times_s for benchmark in rotated.benchmarks]
    shown = ("mean", "minimum", "lower_quartile", "median", "upper_quartile", "maximum")
    cells = seconds_columns(*([getattr(s, name) if s else None for s in spreads] for name in shown))
    times = dict(zip(shown, cells, strict=True))
    counts = [s.count if s else 0 for s in spreads]
    rates = [benchmark.rates.mean if benchmark.rates else None for benchmark in rotated.benchmarks]
    names = [benchmark.benchmark for benchmark in rotated.benchmarks]

    def seconds(title: str, name: str, optional: int = 0) -> Column:
        return Column((title, "s"), times[name], optional=optional)

    astray: dict[str, set[int]] = {name: set() for name in names}
    for (name, _), copies in not_met.items():
        astray.setdefault(name, set()).update(copies)
    differ = any(how_many != head.copies for how_many in counts)
    table(
        [
            Column(("benchmark", ""), names, right=False, flexible=True),
            *([Column(("copies", ""), [str(how_many) for how_many in counts])] if differ else []),
            Column(
                ("ratio", "mean") if rotated.unit == "ratio" else ("copies", "/hour"),
                [number(rate, decimals(rates)) for rate in rates],
            ),
            seconds("mean", "mean"),
            Column(("CV", "%"), [percent(s.cv if s else None) for s in spreads]),
            seconds("min", "minimum", 1),
            seconds("q1", "lower_quartile", 3),
            seconds("median", "median", 2),
            seconds("q3", "upper_quartile", 3),
            seconds("max", "maximum"),
            Column(("copy/CPU", "/lgroup"), [place_text(b.slowest) for b in rotated.benchmarks]),
            *not_met_column([len(astray[name]) for name in names]),
        ]
    )
    over = (
        "copies: how many count for the benchmark"
        if differ
        else (f"over {count(head.copies, 'copy', 'copies')}")
    )
    prose(
        f"{over}, each by its median over "
        f"{count(rotated.rounds, 'round')}; copy/CPU/lgroup of the slowest; score lost is not "
        "given in rotated order"
    )
    for benchmark in rotated.benchmarks:
        if benchmark.reason:
            prose(f"{benchmark.benchmark}: {benchmark.reason}")
    prose("")
    _score(rotated, prose)
    _times(rotated, prose)


def _score(rotated: RotatedScore, prose: Callable[[str], None]) -> None:
    what = f"{rotated.unit}, geometric mean of each copy, {rotated.proposed_in}"
    if rotated.score is None:
        prose(f"no score over copies ({what}): {rotated.reason}")
        return
    places = decimals([copy.rate for copy in rotated.copies])
    prose(f"mean over copies {number(rotated.score, places)}, CV {percent(rotated.cv)} % ({what})")
    if len(rotated.copies) > 1:
        last = min(rotated.copies, key=lambda copy: copy.rate)
        where = "" if last.cpu is None else f", CPU {last.cpu}"
        where += "" if last.node is None else f", lgroup {last.node}"
        prose(f"the lowest of them: copy {last.copy}{where}: {number(last.rate, places)}")


def _times(rotated: RotatedScore, prose: Callable[[str], None]) -> None:
    if rotated.tail is not None:
        tail = rotated.tail
        prose(
            f"tail: the first copy was done {duration(tail.length_s)} before the end "
            f"({duration(tail.total_s)} in all); {_idle(tail)} over the whole run was idle in it, "
            f"{count(tail.runs_in_tail, 'run')} ended in it"
        )
    if rotated.gaps is not None:
        gaps = rotated.gaps
        prose(
            f"between two steps of a copy: {gaps.median_s * 1e3:.1f} ms (median), "
            f"{gaps.longest_s * 1e3:.1f} ms at most, {percent(gaps.share)} % of the copies' time"
        )


def _idle(tail: RunTail) -> str:
    """Where the PUs of the copies are known, a PU is idle once its last copy is done."""
    if tail.core_idle_share is not None:
        return f"{percent(tail.core_idle_share)} % of core time"
    return f"{percent(tail.idle_share)} % of the copies' time"
