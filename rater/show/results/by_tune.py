"""Every run of every benchmark in one row, tune beside tune, as SPEC's reports have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rater.show.screen.document import TEXT, Field, Row, ViewTable
from rater.show.screen.format import format_number, needed_decimals
from rater.text.values import group_by_key

_LEAST_ITERATIONS = 2


def tune_table(rows: Sequence[Row]) -> ViewTable | None:
    """Return a row for each benchmark, and a column for each tune and iteration.

    `rows`: the document's `benchmarks`. None for one tune, and for one iteration of each.
    """
    tunes = list(dict.fromkeys(row.get("tune") for row in rows))
    iterations = sorted({row["iteration"] for row in rows if row.get("iteration") is not None})
    if len(tunes) < 2 or len(iterations) < _LEAST_ITERATIONS:
        return None
    unit = "ratio" if any(row.get("ratio") is not None for row in rows) else "copies_per_hour"
    by_name = group_by_key((row["benchmark"], row) for row in rows)

    def result(tune: str | None, iteration: int) -> Callable[[str], str | None]:
        def rate_text(name: str) -> str | None:
            named = by_name[name]
            places = needed_decimals([row.get(unit) for row in named])
            of_run = (
                row
                for row in named
                if row.get("tune") == tune and row.get("iteration") == iteration
            )
            row = next(of_run, None)
            if row is None or row.get(unit) is None:
                return None
            return f"{format_number(row[unit], places)}{'*' if row.get('selected') else ' '}"

        return rate_text

    fields = [Field(heading=("runs by", "tune"), value=lambda name: name, form=TEXT, flexible=True)]
    for tune in tunes:
        for place, iteration in enumerate(iterations):
            heading = ((tune or "-") if place == 0 else "", f"#{iteration}")
            fields.append(Field(heading=heading, value=result(tune, iteration)))
    noun = "ratios" if unit == "ratio" else "copies an hour"
    return ViewTable(
        title="", rows=list(by_name), fields=fields, note=f"{noun}; * the iteration that counts"
    )
