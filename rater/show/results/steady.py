"""Windows of steady mode, and a run with a barrier beside one: tables over the run's document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from rater.analysis.results.steadiness import DriftVerdict
from rater.analysis.results.steady import ENOUGH
from rater.show.document import (
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
from rater.text.values import percent, signed_percent

_WORTH_NAMING = 1.02  # a node's slowdown
_MOST_NODES = 16


def window_parts(document: Row) -> Iterator[Part]:
    """Yield whether each counted window was steady, what it needs, and its NUMA nodes."""
    windows = [*_windows(document)]
    columns = (
        *benchmark_fields(windows),
        Field("verdict", "halves.verdict", TEXT),
        Field("2nd half|vs 1st %", "halves.difference", CHANGE),
        Field("95 %|interval", _interval, optional=3),
        Field("runs in|a half", "halves.fewest_whole_runs", optional=4),
        Field("copies|CV %", "rates.cv", PERCENT, optional=5),
        Field("copies|ran %", "occupied", PERCENT),
        Field("between|runs ms", lambda it: it["gap_s"] and it["gap_s"] * 1e3, decimals(1), 6),
        Field("needs|--window", "halves.needed_window_s", NUMBER),
        Field("needs|--warmup", "needed_warmup_s", NUMBER),
    )

    def style(it: Row) -> str:
        steady = it["halves"]["verdict"] == DriftVerdict.STEADY.value
        return "" if steady and not it["needed_warmup_s"] else "yellow"

    yield ViewTable("", windows, columns, style)
    if any(it["needed_warmup_s"] for it in windows):
        yield Line(
            "The warm-up was shorter than the longest run: copies still ran in step, so rates are "
            "too high, usually by 1 to 8 %. Repeat with the --warmup above.",
            "bold yellow",
        )
    if any(it["halves"]["needed_window_s"] for it in windows):
        yield "A longer --window (above) shows whether the rate was steady."
    least = min((it["occupied"] for it in windows if it["occupied"] is not None), default=1.0)
    if least < ENOUGH:
        yield Line(
            f"Copies ran only {percent(least)} % of a window: starting and setting up runs "
            "took the rest. This lowers the rate: make each run longer.",
            "yellow",
        )
    yield _nodes(windows)


def _windows(document: Row) -> Iterator[Row]:
    """Yield the counted windows that have a result."""
    if "mix" in document:
        rows = document["mix"]["windows"]
    else:
        rows = [it | it["steady"] for it in document["benchmarks"] if it.get("steady")]
    return (it for it in rows if it["counted"] and not it["reason"] and it["halves"])


def _interval(it: Row) -> str | None:
    ends = it["halves"]["interval_95"]
    return ends and f"{signed_percent(ends[0])} to {signed_percent(ends[1])}"


def _nodes(windows: Sequence[Row]) -> ViewTable:
    """Return the NUMA nodes of one window, of several those that are slower."""
    rows = [
        it | group
        for it in windows
        for group in it["lgroups"]
        if len(it["lgroups"]) > 1
        and (len(windows) == 1 or (group["slowdown"] or 1) > _WORTH_NAMING)
    ]
    unit = rows[0]["unit"].removeprefix("copies") if rows else ""
    columns = (
        Field("window", lambda it: it.get("benchmark") if len(windows) > 1 else None, TEXT),
        Field("iter", lambda it: it["iteration"] if len(windows) > 1 else None),
        Field("node", "node"),
        Field("copies", lambda it: it["copies"] if isinstance(it["copies"], int) else None),
        Field((unit, "together"), "rate", NUMBER),
        Field((unit, "a copy"), "per_copy", NUMBER),
        Field("slowdown|%", lambda it: it["slowdown"] and it["slowdown"] - 1, CHANGE),
    )
    title = "" if len(windows) == 1 else "Slower NUMA nodes"
    return ViewTable(title, rows, columns, most=_MOST_NODES)


# -- A steady run beside one with a barrier --------------------------------------------------------


def barrier_parts(pair: Row) -> Iterator[Part]:
    """Yield both runs side by side, and what waiting for the slowest copy cost."""
    mode, sides = pair["other_mode"], pair["sides"]
    by_ratio = any(it["steady_ratio"] and it["other_ratio"] for it in sides)
    key, unit = ("ratio", "ratio") if by_ratio else ("per_hour", "/hour")
    whole = {**pair, "benchmark": "all"} if len(sides) > 1 or pair["order"] == "rotated" else None
    rows = [*sides, *([whole] if whole else [])]

    def rate(it: Row, side: str) -> float | None:
        value: float | None = it.get(f"{side}_{key}")
        return value

    columns = (
        *benchmark_fields(sides),
        Field(("steady", unit), partial(rate, side="steady"), NUMBER),
        Field((mode, unit), partial(rate, side="other"), NUMBER),
        Field("steady|is %", "difference", CHANGE),
        Field("score|lost %", "score_lost", PERCENT),
        Field("steady|run s", "steady_run_s", SECONDS, optional=1),
        Field((mode, "copy s"), "other_run_s", SECONDS, optional=1),
        Field("a run is|longer %", "longer", CHANGE, optional=2),
        Field("not compared", lambda it: it.get("reason"), TEXT),
    )
    title = f"Run {pair['steady']}, steady, beside run {pair['other']}, {mode}"
    yield ViewTable(title, rows, columns, lambda it: "yellow" if it.get("reason") else "")
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
