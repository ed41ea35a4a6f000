"""Load what the report page, and its pictures as files, show of a run."""

from __future__ import annotations

from rater.analysis.counters.cpu_use import run_counters
from rater.analysis.results.copies import cells_of
from rater.analysis.results.score import summarise
from rater.record.stored import StoredRun
from rater.show.charts.labels import labels_from
from rater.show.charts.picture import picture_of
from rater.show.html.data import PageRun
from rater.store.store import Store
from rater.workflow.results.divots import analysis_beside_results
from rater.workflow.results.show_run import run_beside


def loaded(store: Store, run: StoredRun) -> PageRun:
    """Return a run with all that a page says of it."""
    divots = analysis_beside_results(store, run, however_it_ended=True)
    cells = cells_of(run)
    barrier = run_beside(store, run)
    return PageRun(
        run=run,
        summary=summarise(run),
        cells=cells,
        picture=picture_of(run.head, cells, labels_from(divots.findings if divots else ())),
        divots=divots,
        readings=run_counters(run),
        barrier=summarise(barrier) if barrier else None,
    )
