"""Page sizes that copies had: planned against achieved, in a table, in sentences, as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rater.lab.layout.layout import REST
from rater.lab.layout.proof import CopyPages, PageVerdict, RunPages
from rater.show.screen.document import NUMBER, PERCENT, TEXT, Field, Part, ViewTable, facts
from rater.text.cpuset import copy_numbers_text
from rater.text.values import JsonFields, count, group_by_key, to_json, truncate_list

_LITTLE = 0.5  # of a program's memory: less than that is shown in colour
_MOST_COPIES = 6  # named one by one
_MOST_BENCHMARKS = 4  # shown unasked


def page_parts(pages: RunPages, *, every: bool = False) -> Iterator[Part]:
    """Yield what the copies of a run had."""
    rows = pages.categories
    shown = (
        rows
        if every
        else [category_row for category_row in rows if category_row.resident_bytes >= 1 << 20]
        or rows
    )
    if len({category_row.benchmark for category_row in shown}) > _MOST_BENCHMARKS and not every:
        shown = [category_row for category_row in shown if category_row.differ]
    columns = (
        Field(heading="pages", value=lambda row: row.benchmark, form=TEXT, flexible=True),
        Field(heading="data", value=lambda row: row.category, form=TEXT),
        Field(heading="seen", value=lambda row: row.copies),
        Field(heading="resident|MB", value=lambda row: row.resident_bytes / 1e6, form=NUMBER),
        Field(heading="planned|%", value=lambda row: row.planned_share, form=PERCENT),
        Field(heading="had|%", value=lambda row: row.huge_share, form=PERCENT),
        Field(heading="differ", value=lambda row: row.differ),
    )
    yield ViewTable(title="", rows=shown, fields=columns)
    differ = pages.copies_with(PageVerdict.DIFFERS)
    met_copies = len(pages.copies_with(PageVerdict.MET))
    text = f"{pages.layout} ({pages.backing}): {met_copies} of "
    text += f"{count(len(pages.copies), 'copy run')} as planned"
    if pages.reached is not None:
        text += f"; reached {100 * pages.reached:.0f} % of this program's memory"
    is_little = pages.reached is not None and pages.reached < _LITTLE
    named = differ if every else differ[:_MOST_COPIES]
    more = len(differ) - len(named)
    first = {copy.copy.benchmark: copy.copy for copy in reversed(pages.copies)}
    unknown = group_by_key(
        (copy_pages.reasons, copy_pages.copy.copy)
        for copy_pages in pages.copies_with(PageVerdict.NOT_KNOWN)
    )
    yield facts(
        (
            ("--pages", text, "bold red" if differ else "yellow" if is_little else ""),
            *(
                (f"rest of {name}", region.note)
                for name, copy_pages in reversed(first.items())
                for region in copy_pages.pages
                if region.category == REST
            ),
            *(
                ("differs", f"{copy_pages.name}: {'; '.join(copy_pages.reasons)}", "red")
                for copy_pages in named
            ),
            ("", more and f"and {more} more differ (--proof names them all)", "red"),
            *(
                (
                    "unknown",
                    f"{copy_numbers_text(copies)}: {truncate_list(list(reasons))}",
                    "yellow",
                )
                for reasons, copies in unknown.items()
            ),
        )
    )


_TABLE = {
    CopyPages: JsonFields(
        "copy.phase copy.benchmark copy.iteration copy.copy copy.step verdict reasons"
        " regions=copy.pages reached"
    )
}
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
            **JsonFields("layout backing").read(pages),
            "met": len(pages.copies_with(PageVerdict.MET)),
            "differ": len(pages.copies_with(PageVerdict.DIFFERS)),
            "not_known": len(pages.copies_with(PageVerdict.NOT_KNOWN)),
            **JsonFields("reached categories").read(pages),
            "copies_listed": "all" if listed else "differ",
            "copies": pages.copies if listed else pages.copies_with(PageVerdict.DIFFERS),
        },
        _TABLE,
    )
    return document
