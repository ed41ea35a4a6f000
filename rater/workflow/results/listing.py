"""`rater list`: a page of the runs that are stored, or those that are asked for."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rater.record.run import RunStatus, escape_undecodable
from rater.record.stored import RunHead
from rater.show.results.disturbed import disturbed_json
from rater.show.results.listing import ListedRun, RunPage, list_parts, rows_that_fit
from rater.store.connection import StoreError
from rater.store.read import RunFilter
from rater.store.store import ListedNumbers, RunScore, Store, load_listed
from rater.store.sweeps import NOT_COUNTED
from rater.system.errors import InputError, RaterError
from rater.text.values import duration_s
from rater.workflow.arguments import Output, open_to_list, print_view
from rater.workflow.results.kept import SCORE_VERSION, store_score

if TYPE_CHECKING:
    from rater.record.documents import ListedRunJson

_MOST_RUNS = 10**9  # SQLite's numbers end
_PIPED_ROWS = 100  # listed where there is no screen that has room for some


class ListOptions(Struct, frozen=True, kw_only=True):
    """Which runs were asked for."""

    limit: int | None
    tag: tuple[str, ...]
    host: str | None
    suite: str | None
    since: str | None


def list_runs(output: Output, options: ListOptions) -> int:
    """Print the runs that are stored: the latest ones, or those that are asked for."""
    wanted = _filter(options)
    page = RunPage((), 0, narrowed=wanted != RunFilter())
    asks_for_folded = any(name == NOT_COUNTED for name, _ in wanted.tags)
    # Programs get every run; people those that count, and how many were made again.
    folds = not output.json and not asks_for_folded
    fleets = 0
    if (store := open_to_list(output)) is not None:
        with store:
            unasked = None if output.json else _rows_for_people()
            limit = unasked if options.limit is None else min(options.limit, _MOST_RUNS) or None
            # A document must not depend on how fast the machine is.
            longest_s = math.inf if output.json else _LONGEST_S
            page = _page(store, wanted, limit, longest_s, folds=folds)
            fleets = _count_fleets(store)
    documents = [_document(it) for it in page.runs] if output.json else []
    print_view(output, documents, lambda _: list_parts(page, fleets))
    return 0


def _rows_for_people() -> int:
    """Return how many runs are listed unless somebody wants others."""
    return rows_that_fit() if sys.stdout.isatty() else _PIPED_ROWS


def _page(
    store: Store, run_filter: RunFilter, limit: int | None, longest_s: float, *, folds: bool
) -> RunPage:
    """Return the latest runs; `folds`: without those that were made again, which are counted."""
    shown = replace(run_filter, without_tag=NOT_COUNTED) if folds else run_filter
    numbers, count = store.matching(shown, limit)
    folded = store.matching(run_filter, 0)[1] - count
    heads = store.runs(None if len(numbers) == count and shown == RunFilter() else numbers)
    with store.reading() as connection:
        stored = load_listed(connection, [head.run for head in heads], SCORE_VERSION)
    scores = _scores_of(store, heads, stored, longest_s)
    runs = tuple(
        ListedRun(
            head,
            score.value if score else None,
            score.unit if score else None,
            stored[head.run].divots if head.run in stored else None,
        )
        for head, score in ((head, scores.get(head.run)) for head in heads)
    )
    return RunPage(runs, count, narrowed=run_filter != RunFilter(), folded=folded)


def _count_fleets(store: Store) -> int:
    """Return how many fleets have their runs in the archive beside the database."""
    with store.reading() as connection:
        (fleets,) = connection.execute("SELECT count(DISTINCT fleet) FROM fleet_run").fetchone()
    return int(fleets)


def _document(run: ListedRun) -> ListedRunJson:
    from rater.store.export import head_document

    return {
        **head_document(run.head),
        **disturbed_json(run.head),
        "score": run.score,
        "score_unit": run.unit,
        "divots": run.divots,
    }


def _filter(options: ListOptions) -> RunFilter:
    if options.limit is not None and options.limit < 0:
        raise InputError(f"--limit {options.limit}: expected a number of runs, 0 for all")
    return RunFilter(
        tags=tuple(_tag(text) for text in options.tag),
        host=options.host,
        suite=options.suite,
        since=None if options.since is None else parse_since(options.since, datetime.now(UTC)),
    )


def _tag(text: str) -> tuple[str, str | None]:
    name, equals, value = escape_undecodable(text).partition("=")
    if not name.strip():
        raise InputError(f"--tag {text!r}: expected KEY=VALUE, or KEY for any value")
    return name.strip(), value if equals else None


def parse_since(text: str, now: datetime) -> str:
    """Return the moment of `--since` as the database has starts; raises `InputError`."""
    moment = _date(text.strip())
    if moment is None:
        try:  # a number alone: of what?
            ago_s = -1.0 if text.strip().isdecimal() else duration_s(text)
            moment = now - timedelta(seconds=ago_s) if ago_s >= 0 else None
        except (ValueError, OverflowError):
            moment = None
    if moment is None:
        raise InputError(
            f"--since {text!r}: expected a date (2026-11-20, 2026-11-20T08:00; UTC) or how long "
            "ago (7d, 12h)"
        )
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _date(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def latest_like(store: Store, head: RunHead) -> tuple[RunHead, ...]:
    """Return the runs of the same host and suite: what a run is compared with is among them."""
    wanted = RunFilter(host=head.hostname, suite=head.suite)
    return store.runs(store.matching(wanted, None)[0])


# -- The one number of each run: kept since it ended, else worked out now --------------------------

_LONGEST_S = 1.0  # that a list for people works out what nobody has


def _scores_of(
    store: Store, heads: Sequence[RunHead], stored: Mapping[int, ListedNumbers], longest_s: float
) -> dict[int, RunScore]:
    """Return the numbers of runs by run: what is kept, else worked out, the latest runs' first.

    `longest_s`: for so long; the next list goes on.
    """
    scores = {number: listed.score for number, listed in stored.items() if listed.score}
    until_s = time.monotonic() + longest_s
    for head in reversed(heads):
        if time.monotonic() > until_s:
            break
        if head.run not in scores and head.status is not RunStatus.RUNNING:
            try:
                scores[head.run] = store_score(store, store.load(head.run))
            except (RaterError, ArithmeticError, ValueError) as error:
                if isinstance(error, StoreError):
                    raise
                continue  # damaged rows: `rater show` says which
    return scores
