"""Windows of steady mode, and a steady run beside one whose copies wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rater.analysis.results.steadiness import DriftVerdict
from rater.analysis.results.steady import ENOUGH
from rater.show.screen.document import (
    CHANGE,
    NUMBER,
    PERCENT,
    SECONDS,
    TEXT,
    Field,
    Line,
    Part,
    Row,
    ViewTable,
    benchmark_fields,
    decimals,
    facts,
)
from rater.text.values import count, percent, signed_percent

if TYPE_CHECKING:
    from rater.show.documents.run import BarrierJson, SummaryDocument

# -- Windows of steady mode ------------------------------------------------------------------------

_WORTH_NAMING = 1.02  # a node's slowdown
_MOST_NODES = 16
_MOST_FALLS = 4  # copies


def window_parts(document: SummaryDocument) -> Iterator[Part]:
    """Yield whether each counted window was steady, what it needs, and its NUMA nodes."""
    windows = [*_counted_windows(document)]
    columns = (
        *benchmark_fields(windows),
        Field(heading="verdict", value="halves.verdict", form=TEXT),
        Field(heading="2nd half|vs 1st %", value="halves.difference", form=CHANGE),
        Field(heading="95 %|interval", value=_interval, optional=3),
        Field(heading="runs in|a half", value="halves.fewest_whole_runs", optional=4),
        Field(heading="copies|CV %", value="rates.cv", form=PERCENT, optional=5),
        Field(heading="copies|ran %", value="occupied", form=PERCENT),
        Field(
            heading="between|runs ms",
            value=lambda it: it["gap_s"] and it["gap_s"] * 1e3,
            form=decimals(1),
            optional=6,
        ),
        Field(heading="needs|--window", value="halves.needed_window_s", form=NUMBER),
        Field(heading="needs|--warmup", value="needed_warmup_s", form=NUMBER),
    )

    def style(window: Row) -> str:
        steady = window["halves"]["verdict"] == DriftVerdict.STEADY.value
        return "" if steady and not window["needed_warmup_s"] else "yellow"

    yield ViewTable(title="", rows=windows, fields=columns, style=style)
    if any(window["needed_warmup_s"] for window in windows):
        yield Line(
            "The warm-up was shorter than the longest run: copies still ran in step, so rates are "
            "too high, usually by 1 to 8 %. Repeat with the --warmup above.",
            "bold yellow",
        )
    if any(window["halves"]["needed_window_s"] for window in windows):
        yield "A longer --window (above) shows whether the rate was steady."
    yield from _fall_lines(windows)
    least = min(
        (window["occupied"] for window in windows if window["occupied"] is not None), default=1.0
    )
    if least < ENOUGH:
        yield Line(
            f"Copies ran only {percent(least)} % of a window: starting and setting up runs "
            "took the rest. This lowers the rate: make each run longer.",
            "yellow",
        )
    yield _nodes(windows)


def _fall_lines(windows: Sequence[Row]) -> Iterator[Part]:
    """Yield which copies slowed down alone, those that did most of all windows first."""
    falls = [(window, fall) for window in windows for fall in window["halves"]["falls"]]
    falls.sort(key=lambda pair: pair[1]["change"])
    for window, fall in falls[:_MOST_FALLS]:
        name = f"{window['benchmark']}, " if window.get("benchmark") else ""
        change, usual_change = fall["change"], fall["usual_change"]
        yield Line(
            f"{name}iteration {window['iteration']}: the rate of copy {fall['copy']} changed by "
            f"{signed_percent(change, 0)} % from the first half of the window to the second, that "
            f"of the median copy by {signed_percent(usual_change, 0)} %.",
            "yellow",
        )
    if len(falls) > _MOST_FALLS:
        yield f"and {count(len(falls) - _MOST_FALLS, 'more copy', 'more copies')} so (--json)"


def _counted_windows(document: SummaryDocument) -> Iterator[Row]:
    """Yield the counted windows that have a result."""
    windows: Iterable[Row]
    if "mix" in document:
        windows = document["mix"]["windows"]
    else:
        rows: Sequence[Row] = document["benchmarks"]
        windows = ({**row, **row["steady"]} for row in rows if row.get("steady"))
    return (row for row in windows if row["counted"] and not row["reason"] and row["halves"])


def _interval(window: Row) -> str | None:
    interval = window["halves"]["interval_95"]
    return interval and f"{signed_percent(interval[0])} to {signed_percent(interval[1])}"


def _nodes(windows: Sequence[Row]) -> ViewTable:
    """Return the NUMA nodes of one window, of several those that are slower."""
    rows = [
        window | group
        for window in windows
        for group in window["lgroups"]
        if len(window["lgroups"]) > 1
        and (len(windows) == 1 or (group["slowdown"] or 1) > _WORTH_NAMING)
    ]
    unit = rows[0]["unit"].removeprefix("copies") if rows else ""
    columns = (
        Field(
            heading="window",
            value=lambda it: it.get("benchmark") if len(windows) > 1 else None,
            form=TEXT,
        ),
        Field(heading="iter", value=lambda it: it["iteration"] if len(windows) > 1 else None),
        Field(heading="node", value="node"),
        Field(
            heading="copies",
            value=lambda it: it["copies"] if isinstance(it["copies"], int) else None,
        ),
        Field(heading=(unit, "together"), value="rate", form=NUMBER),
        Field(heading=(unit, "a copy"), value="per_copy", form=NUMBER),
        Field(
            heading="slowdown|%",
            value=lambda it: it["slowdown"] and it["slowdown"] - 1,
            form=CHANGE,
        ),
    )
    title = "" if len(windows) == 1 else "Slower NUMA nodes"
    return ViewTable(title=title, rows=rows, fields=columns, most=_MOST_NODES)


# -- A steady run beside one with a barrier --------------------------------------------------------


def barrier_parts(pair: BarrierJson) -> Iterator[Part]:
    """Yield both runs side by side, and what waiting for the slowest copy cost."""
    mode, sides = pair["other_mode"], pair["sides"]
    by_ratio = any(side["steady_ratio"] and side["other_ratio"] for side in sides)
    key, unit = ("ratio", "ratio") if by_ratio else ("per_hour", "/hour")
    total = {**pair, "benchmark": "all"} if len(sides) > 1 or pair["order"] == "rotated" else None
    rows = [*sides, *([total] if total else [])]

    def rate(row: Row, side: str) -> float | None:
        value: float | None = row.get(f"{side}_{key}")
        return value

    columns = (
        *benchmark_fields(sides),
        Field(heading=("steady", unit), value=partial(rate, side="steady"), form=NUMBER),
        Field(heading=(mode, unit), value=partial(rate, side="other"), form=NUMBER),
        Field(heading="steady|is %", value="difference", form=CHANGE),
        Field(heading="score|lost %", value="score_lost", form=PERCENT),
        Field(heading="steady|run s", value="steady_run_s", form=SECONDS, optional=1),
        Field(heading=(mode, "copy s"), value="other_run_s", form=SECONDS, optional=1),
        Field(heading="a run is|longer %", value="longer", form=CHANGE, optional=2),
        Field(heading="not compared", value=lambda row: row.get("reason"), form=TEXT),
    )
    title = f"Run {pair['steady']}, steady, beside run {pair['other']}, {mode}"
    yield ViewTable(
        title=title,
        rows=rows,
        fields=columns,
        style=lambda row: "yellow" if row.get("reason") else "",
    )
    idle, occupied = pair["idle_share"], pair["steady_occupied"]
    lost = pair["score_lost"]
    yield facts(
        (
            ("they also differ in", list(pair["differences"]), "yellow"),
            (
                "waiting cost",
                lost is not None
                and f"{percent(lost)} % of the {mode} score; without it {mode} would complete "
                f"{percent(1 / (1 - lost) - 1)} % more",
            ),
            (
                "waiting cost",
                idle is not None and f"{percent(idle)} % of the copies' time at the end of {mode}",
            ),
            (
                "nothing ran",
                occupied is not None
                and occupied < ENOUGH
                and f"in {percent(1 - occupied)} % of a steady window (rater's starts, set-ups)",
            ),
        )
    )
