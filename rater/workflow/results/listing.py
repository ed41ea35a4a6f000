"""`rater list`: a page of the runs that are stored, or those that are asked for."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

from rater.analysis.compare.conditions import disturbed_members
from rater.errors import InputError
from rater.process import print_error
from rater.record.run import escape_undecodable
from rater.record.stored import RunHead
from rater.show.results.listing import ListedRun, RunPage, print_list, rows_that_fit
from rater.store.connection import default_path, is_there
from rater.store.read import RunFilter
from rater.store.store import Store, divot_count, open_store
from rater.text.values import duration_s
from rater.workflow.arguments import print_output
from rater.workflow.results.divots import scores_of


def list_runs(args: argparse.Namespace) -> int:
    """Print the runs that are stored: the latest ones, or those that are asked for."""
    wanted = _filter(args)
    path = default_path(args.db)
    page = RunPage((), 0, narrowed=wanted != RunFilter())
    if is_there(path):
        with open_store(path) as store:
            page = _page(store, wanted, _limit(args))
    else:
        # Looking makes no database: a mistyped --db would leave an empty one behind.
        print_error(f"there is no database {path} yet")
    print_output(
        args,
        lambda: [_document(it) for it in page.runs],
        lambda printer: print_list(page, printer),
    )
    return 0


def _page(store: Store, wanted: RunFilter, limit: int | None) -> RunPage:
    numbers, count = store.matching(wanted, limit)
    heads = store.runs(None if len(numbers) == count and wanted == RunFilter() else numbers)
    scores = scores_of(store, heads)
    with store.reading() as connection:
        runs = tuple(
            ListedRun(
                head,
                score.value if score else None,
                score.unit if score else None,
                divot_count(connection, head.run),
            )
            for head, score in ((it, scores.get(it.run)) for it in heads)
        )
    return RunPage(runs, count, narrowed=wanted != RunFilter())


def _limit(args: argparse.Namespace) -> int | None:
    """Return how many runs at most; what nobody reads on a screen has all of them."""
    if args.limit is not None:
        return args.limit or None
    return None if args.json or not sys.stdout.isatty() else rows_that_fit()


def _document(run: ListedRun) -> dict[str, Any]:
    from rater.store.export import head_document

    return (
        head_document(run.head)
        | disturbed_members(run.head)
        | {"score": run.score, "score_unit": run.unit, "divots": run.divots}
    )


def _filter(args: argparse.Namespace) -> RunFilter:
    if args.limit is not None and args.limit < 0:
        raise InputError(f"--limit {args.limit}: expected a number of runs, 0 for all")
    return RunFilter(
        tags=tuple(_tag(text) for text in args.tag),
        host=args.host,
        suite=args.suite,
        since=None if args.since is None else _since(args.since, datetime.now(UTC)),
    )


def _tag(text: str) -> tuple[str, str | None]:
    name, equals, value = escape_undecodable(text).partition("=")
    if not name.strip():
        raise InputError(f"--tag {text!r}: expected KEY=VALUE, or KEY for any value")
    return name.strip(), value if equals else None


def _since(text: str, now: datetime) -> str:
    """Return the moment that `7d`, `12h`, `2026-11-20` or `2026-11-20T08:00` means, in UTC."""
    moment = _date(text.strip())
    if moment is None:
        try:  # a number alone: of what?
            ago_s = -1.0 if text.strip().isdecimal() else duration_s(text)
            moment = now - timedelta(seconds=ago_s) if ago_s >= 0 else None
        except (argparse.ArgumentTypeError, ValueError, OverflowError):
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
