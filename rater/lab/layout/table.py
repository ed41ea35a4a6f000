"""Page sizes that copies had: planned against achieved, in a table, in sentences, as JSON."""

from __future__ import annotations

from typing import Any

from rater.lab.layout.layout import REST
from rater.lab.layout.proof import CopyPages, PageVerdict, RunPages
from rater.show.console import Columns, Printer
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, count, to_json, truncate_list

_LITTLE = 0.5  # of a program's memory: less than that is shown in colour
_MOST_COPIES = 6  # named one by one
_MOST_BENCHMARKS = 4  # shown unasked


def print_pages(pages: RunPages | None, printer: Printer, *, every: bool = False) -> None:
    """Print what the copies of a run had; nothing where page sizes were not chosen."""
    if pages is None:
        return
    printer.line()
    rows = pages.categories
    shown = rows if every else [it for it in rows if it.resident_bytes >= 1 << 20] or rows
    names = dict.fromkeys(it.benchmark for it in shown)
    if len(names) > _MOST_BENCHMARKS and not every:
        shown = [it for it in shown if it.differ]
    if shown:
        of = Columns(shown)
        printer.table(
            [
                of.left("pages", lambda row: row.benchmark, flexible=True),
                of.left("data", lambda row: row.category),
                of.right("seen", lambda row: row.copies),
                of.numbers("resident|MB", lambda row: row.resident_bytes / 1e6),
                of.percent("planned|%", lambda row: row.planned_share),
                of.percent("had|%", lambda row: row.huge_share),
                of.right("differ", lambda row: row.differ),
            ]
        )
    differ = pages.of(PageVerdict.DIFFERS)
    met = len(pages.of(PageVerdict.MET))
    text = f"--pages {pages.layout} ({pages.backing}): {met} of "
    text += f"{count(len(pages.copies), 'copy run')} as planned"
    if pages.reached is not None:
        text += f"; reached {100 * pages.reached:.0f} % of this program's memory"
    little = pages.reached is not None and pages.reached < _LITTLE
    printer.prose(text, "bold red" if differ else "yellow" if little else "")
    first = {one.benchmark: one for one in reversed(pages.copies)}
    for name, one in reversed(first.items()):
        for it in (region for region in one.regions if region.category == REST):
            printer.prose(f"rest of {name}: {it.note}")
    named = differ if every else differ[:_MOST_COPIES]
    for one in named:
        printer.prose(f"differs: {_name(one)}: {'; '.join(one.reasons)}", "red")
    if len(differ) > len(named):
        printer.prose(f"and {len(differ) - len(named)} more differ; --proof names them all", "red")
    reasons: dict[tuple[str, ...], list[CopyPages]] = {}
    for one in pages.of(PageVerdict.NOT_KNOWN):
        reasons.setdefault(one.reasons, []).append(one)
    for why, those in reasons.items():
        numbers = format_list({one.copy for one in those})
        printer.prose(f"not known: copies {numbers}: {truncate_list(list(why))}", "yellow")


def _name(one: CopyPages) -> str:
    return f"copy {one.copy} of {one.benchmark}, iteration {one.iteration}"


_TABLE = {CopyPages: JsonFields("*"), RunPages: JsonFields("*")}
_MOST_LISTED = 512


def pages_document(pages: RunPages | None, *, every: bool = True) -> dict[str, Any] | None:
    """Return the JSON document: sizes in bytes, shares from 0 to 1; None without --pages.

    Copy runs are all of them with `every` (or where they are few), else those that differ.
    """
    if pages is None:
        return None
    listed = every or len(pages.copies) <= _MOST_LISTED
    document: dict[str, Any] = to_json(
        {
            **JsonFields("layout backing").of(pages),
            "met": len(pages.of(PageVerdict.MET)),
            "differ": len(pages.of(PageVerdict.DIFFERS)),
            "not_known": len(pages.of(PageVerdict.NOT_KNOWN)),
            **JsonFields("reached categories").of(pages),
            "copies_listed": "all" if listed else "differ",
            "copies": pages.copies if listed else pages.of(PageVerdict.DIFFERS),
        },
        _TABLE,
    )
    return document
