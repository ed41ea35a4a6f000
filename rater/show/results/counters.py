"""Counters of a run: cycles per instruction and its parts, metrics, sums of what has no rates."""

from __future__ import annotations

from collections.abc import Sequence

from rater.analysis.counters.counted import BenchmarkCounts, RunCounts
from rater.analysis.counters.rates import Rates
from rater.show.console.printer import Printer
from rater.show.console.table import Column, Columns
from rater.text.to_json import Members, to_json
from rater.text.words import percent

_SHARE = "_share"  # ends the names of metrics that are shares
_MUCH_SPREAD = 0.05  # of the CPI between groups that are put together


def print_counters(counts: RunCounts, printer: Printer) -> None:
    """Print what was counted, benchmark by benchmark, and how far it can be trusted."""
    printer.line()
    if not counts.benchmarks:
        printer.prose("counters: nothing was counted in this run (rater run --counters cpi)")
        return
    rated = [it for it in counts.benchmarks if it.rates is not None]
    if rated:
        _print_rates(rated, printer)
    for it in rated:
        _print_stack(it, printer)
    for it in counts.benchmarks:
        if it.rates is None:
            _print_sums(it, printer)
    printer.some(_remarks(counts))


def _print_rates(rated: Sequence[BenchmarkCounts], printer: Printer) -> None:
    of = Columns(rated)
    names = dict.fromkeys(name for it in rated for name, _ in it.metrics)
    printer.table(
        [
            of.left("counters", _name, flexible=True),
            of.numbers("cycles|/instr", lambda it: _rates(it).cpi, 3),
            of.percent("spread|%", lambda it: it.cpi_spread, optional=1),
            of.numbers(
                "instr|/cycle", lambda it: 1 / _rates(it).cpi if _rates(it).cpi else None, 3
            ),
            of.numbers("GHz", lambda it: _rates(it).ghz, 2),
            of.numbers("10^9 instr|/copy", lambda it: _rates(it).instructions / 1e9, optional=2),
            *(_metric(rated, name, 3 + n) for n, name in enumerate(names)),
        ]
    )


def _metric(rated: Sequence[BenchmarkCounts], name: str, optional: int) -> Column:
    of = Columns(rated)
    words = name.removesuffix(_SHARE).replace("_", " ").replace(" mpki", "|/1000 instr")
    if name.endswith(_SHARE):
        return of.percent(f"{words}|%", lambda it: dict(it.metrics).get(name), optional=optional)
    return of.numbers(words, lambda it: dict(it.metrics).get(name), optional=optional)


def _print_stack(it: BenchmarkCounts, printer: Printer) -> None:
    if it.stack is None or it.rates is None or not it.rates.cpi:
        return
    of = Columns(it.stack.parts)
    cpi = it.rates.cpi
    printer.line()
    printer.table(
        [
            of.left(f"CPI of {_name(it)}", lambda part: part.name.replace("_", " ")),
            of.numbers("cycles|/instr", lambda part: part.cycles, 3),
            of.percent("share|%", lambda part: part.cycles / cpi),
        ]
    )
    if it.stack.missing:
        words = ", ".join(name.replace("_", " ") for name in it.stack.missing)
        printer.prose(f"not counted, and in `other`: {words}")
    if it.stack.excess:
        printer.prose(
            f"the parts were {percent(it.stack.excess)} % more than the CPI together, and are "
            "scaled to it: stalls of several kinds at once count for each"
        )


def _print_sums(it: BenchmarkCounts, printer: Printer) -> None:
    rows = [(group.name, *mean) for group in it.groups for mean in group.means]
    of = Columns(rows)
    printer.table(
        [
            of.left(f"{_name(it)}", lambda row: f"{row[0]} {row[1]}"),
            of.numbers("mean|/copy run", lambda row: row[2]),
        ]
    )


def _remarks(counts: RunCounts) -> list[str]:
    found = []
    for it in counts.benchmarks:
        found += [
            f"{_name(it)}: {group.name} was counted for {percent(group.share)} % of the time and "
            "scaled: others had the counters, or groups took turns"
            for group in it.groups
            if group.share < 1
        ]
        if it.cpi_spread is not None and it.cpi_spread > _MUCH_SPREAD:
            found.append(
                f"{_name(it)}: the CPI of its iterations differs by {percent(it.cpi_spread)} %: "
                "groups of such different iterations do not quite go together"
            )
    if counts.user_only:
        found.append("user mode only: what the kernel did for the copies is not in it")
    if counts.cost_us is not None:
        found.append(
            f"counting took {counts.cost_us:.0f} us of rater's CPU time a copy run, outside of "
            "its time"
        )
    return found


def _name(it: BenchmarkCounts) -> str:
    return f"{it.benchmark} {it.tune}" if it.tune else it.benchmark


def _rates(it: BenchmarkCounts) -> Rates:
    assert it.rates is not None
    return it.rates


def counters_document(counts: RunCounts) -> dict[str, object]:
    """Return the same as JSON values."""
    document: dict[str, object] = to_json(counts, _TABLE)
    return document


def counts_rows(counted: Sequence[BenchmarkCounts]) -> list[object]:
    """Return benchmarks as JSON values."""
    rows: list[object] = to_json(list(counted), _TABLE)
    return rows


_TABLE = {
    BenchmarkCounts: Members(
        "benchmark tune table cpi=rates.cpi",
        {"ipc": lambda it: 1 / it.rates.cpi if it.rates and it.rates.cpi else None},
        "ghz=rates.ghz instructions=rates.instructions cpi_spread stack metrics{} groups",
        {"rates": lambda it: dict(it.rates.by_event) if it.rates else None},
    ),
}
