"""Load what the report page shows of a run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rater.analysis.divots.data.finding import Analysis
    from rater.record.stored import StoredRun
    from rater.show.html.data import Told
    from rater.store.store import Store


def told_of(store: Store, run: StoredRun) -> Told:
    """Return a run with all that a page says of it."""
    from rater.analysis.counters.cpu_use import read_back
    from rater.analysis.results.copies import cells_of
    from rater.analysis.results.score import summarise
    from rater.show.charts.labels import labels_from
    from rater.show.charts.picture import picture_of
    from rater.show.html.data import Told
    from rater.workflow.results.show_run import run_beside

    divots = _searched(store, run)
    cells = cells_of(run)
    beside = run_beside(store, run)
    return Told(
        run=run,
        summary=summarise(run),
        cells=cells,
        picture=picture_of(run.head, cells, labels_from(divots.findings if divots else ())),
        divots=divots,
        readings=read_back(run),
        beside=summarise(beside) if beside else None,
    )


def _searched(store: Store, run: StoredRun) -> Analysis | None:
    """Return the divots of a run however it ended; None: the search for them failed.

    Whatever goes wrong in it is a line on standard error: the page has everything else.
    """
    from rater.analysis.divots.data.finding import Analysis, Thresholds, nothing_to_compare
    from rater.workflow.results.divots import analysis_of

    if nothing_to_compare(run.head):
        return Analysis((), {})
    try:
        return analysis_of(store, run.head, Thresholds(), fresh=False, run=run)
    except Exception as error:  # of any kind: a search must not cost a page
        number = run.head.run
        print(
            f"rater: run {number}: no divots, the search for them failed "
            f"({type(error).__name__}: {error}); `rater divots {number}` tries again",
            file=sys.stderr,
        )
        return None
