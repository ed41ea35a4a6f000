"""What notebooks and scripts read of the database: `import rater; rater.load("last")`.

Nothing here writes. Arrays are numpy's; `to_pandas`, `to_polars` and `to_arrow` make frames of them
where those libraries are installed.
"""

from __future__ import annotations

import argparse
from typing import Any

from msgspec import Struct

from rater.analysis.results.score import summarise
from rater.record.stored import StoredRun
from rater.show.results.to_json import divot_rows
from rater.store.export import head_document
from rater.workflow.arguments import open_store_for_reading
from rater.workflow.results.columns import ColumnTable, column_table, columns_of_copies
from rater.workflow.results.divots import analysis_for_results


class LoadedRun(Struct, frozen=True):
    """A stored run."""

    head: dict[
        str, Any
    ]  # as one of `rater list --json`: run, uuid, status, mode, copies, tags, ...
    copies: ColumnTable  # a row per copy run: benchmark, iteration, copy, cpu, node, elapsed_s, ...
    brackets: ColumnTable  # a row per benchmark and iteration: bracket_s, ratio, score_lost, ...
    settings: dict[str, str]  # of the machine and of the run, as they were recorded
    divots: tuple[dict[str, Any], ...]  # as `findings` of `rater divots --json`


def load(which: str | int = "last", *, db: str | None = None) -> LoadedRun:
    """Return a run: a number, the start of a uuid, `last`, `last~1`, `tag:K=V`, `fleet:3/n017`.

    `db`: the database, else RATER_DB, else the user's own. Raises `rater.errors.InputError` where
    there is no such run or database.
    """
    with open_store_for_reading(_asked(db, str(which))) as store:
        stored = store.load(store.find(str(which)))
        found = analysis_for_results(store, stored)
    return LoadedRun(
        head=head_document(stored.head),
        copies=columns_of_copies(stored),
        brackets=_brackets(stored),
        settings=dict(stored.settings),
        divots=tuple(divot_rows(found.findings, found.confirm)) if found else (),
    )


def runs(*, db: str | None = None) -> ColumnTable:
    """Return the heads of all stored runs, a row each, by number."""
    with open_store_for_reading(_asked(db, "last")) as store:
        heads = [head_document(head) for head in store.runs()]
    return column_table(list(heads[0]) if heads else [], [list(head.values()) for head in heads])


def _asked(db: str | None, which: str) -> argparse.Namespace:
    return argparse.Namespace(db=db, which=which, json=False)


def _brackets(stored: StoredRun) -> ColumnTable:
    names = (
        *("benchmark", "tune", "iteration", "counted", "selected", "copies", "good", "failed"),
        *("bracket_s", "overlap_s", "ratio", "per_hour", "median_copy_s", "score_lost"),
    )
    found = [it for one in summarise(stored).benchmarks for it in one.iterations]
    return column_table(names, [[getattr(it, name) for name in names] for it in found])
