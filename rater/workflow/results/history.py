"""`rater history`: a benchmark over the runs of a host."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from rater.analysis.compare.history import Group, Grouping, RunHistory, run_histories
from rater.analysis.stats.steps import FEWEST_POINTS
from rater.record.stored import RunHead
from rater.show.charts.history import history_svg
from rater.show.charts.vega import library
from rater.show.compare.history import history_document, history_parts
from rater.show.html.history import history_html
from rater.store.read import RunFilter
from rater.store.store import Store
from rater.store.sweeps import NOT_COUNTED
from rater.system.errors import InputError
from rater.text.values import parse_percent, truncate_list
from rater.workflow.arguments import Output, open_existing_store, print_view
from rater.workflow.results.compare import CPU_TIME
from rater.workflow.results.listing import parse_since
from rater.workflow.results.points import METRIC, drawing_file, write_drawing, write_output
from rater.workflow.results.report import page_path

_COMMIT = "commit"  # the tag of this name
_TAG = "tag:"
_GROUPS = {group.value: Grouping(group=group) for group in Group if group is not Group.TAG} | {
    _COMMIT: Grouping(group=Group.TAG, tag=_COMMIT)
}
_MOST_NAMES = 20


class HistoryOptions(Struct, frozen=True, kw_only=True):
    """Options of a history."""

    name: str  # of a benchmark, or SUITE/BENCHMARK
    by: tuple[str, ...]
    within: str | None
    host: str | None
    since: str | None
    limit: int
    file: str | None  # .html: the page; else a picture
    force: bool


class HistoryWords(Struct, frozen=True, kw_only=True):
    """What the words of `--by` mean: as for comparisons one axis, and one measure beside it."""

    grouping: Grouping
    metric: str | None
    cpu_time: bool


def history(output: Output, options: HistoryOptions) -> int:
    """Print the histories of a benchmark: one for each kind of run, the last one run first."""
    words = split_by(options.by)
    least = None if options.within is None else _least(options.within)
    if options.limit < 1:
        raise InputError(f"--limit {options.limit}: expected a number of runs, 1 or more")
    page = _page_path(output, options)
    drawing = None if page else drawing_file(options.file)
    vega_library = library() if page else ""  # before the work: it may not be installed
    with open_existing_store(output) as store:
        heads, other_hosts = _heads(store, options)
        chosen = heads[-options.limit :]
        runs = list(store.load_all([head.run for head in chosen]))
    benchmark = _benchmark_of(options.name, chosen[-1])
    host = chosen[-1].hostname
    histories = run_histories(
        benchmark,
        runs,
        grouping=words.grouping,
        by_cpu=words.cpu_time,
        by_metric=words.metric,
        least=least,
    )
    if drawing is not None:
        write_drawing(_drawing(options.name, host, histories), drawing)
    earlier = len(heads) - len(chosen)
    document = history_document(options.name, host, other_hosts, histories, earlier)
    if page is not None:
        write_output(page, history_html(document, histories, vega_library).encode())
    print_view(output, document, history_parts)
    return 0


def _drawing(name: str, host: str | None, histories: Sequence[RunHistory]) -> str:
    drawn = [of_kind for of_kind in histories if of_kind.is_long_enough]
    if not drawn:
        raise InputError(f"-o: no history has {FEWEST_POINTS} points: nothing to draw")
    return history_svg(name, host, drawn)


def _page_path(output: Output, options: HistoryOptions) -> Path | None:
    """Return where a page goes; None: none is asked for. Raises `InputError`."""
    if options.file is None or not options.file.lower().endswith((".html", ".htm")):
        return None
    return page_path(output, options.file, options.name, force=options.force)


def split_by(by: Sequence[str]) -> HistoryWords:
    """Return what the words of `--by` mean; raises `InputError` where two mean the same thing.

    `metric:NAME` is a metric in any case.
    """
    groups = [word for word in by if word in _GROUPS or word.startswith(_TAG)]
    measures = [word for word in by if word not in groups]
    for words, what in ((groups, "what makes runs a point"), (measures, "one measure")):
        if len(words) > 1:
            raise InputError(f"--by {words[1]}: {what}, one at a time (--by {words[0]})")
    grouping = _grouping(groups[0]) if groups else Grouping()
    measure = measures[0] if measures else None
    return HistoryWords(
        grouping=grouping,
        metric=None if measure in (None, CPU_TIME) else measure.removeprefix(METRIC),
        cpu_time=measure == CPU_TIME,
    )


def _grouping(word: str) -> Grouping:
    if word in _GROUPS:
        return _GROUPS[word]
    name = word.removeprefix(_TAG)
    if not name or "=" in name:
        raise InputError(f"--by {word}: expected the name of a tag, as in --by tag:build")
    return Grouping(group=Group.TAG, tag=name)


def _least(within: str) -> float:
    share = parse_percent(within)
    if not share:
        raise InputError(
            f"--within {within}: expected a number of per cent above 0, as in --within 1%"
        )
    return share


def _heads(store: Store, options: HistoryOptions) -> tuple[list[RunHead], list[str]]:
    """Return the runs of a benchmark on one host, the latest last, and the other hosts of it.

    Without `--host` that of its last run. Runs that were made again do not count.
    """
    since = None if options.since is None else parse_since(options.since, datetime.now(UTC))
    wanted = RunFilter(since=since, without_tag=NOT_COUNTED)
    heads = store.runs(store.matching(wanted, None)[0])
    named = sorted(
        (head for head in heads if _benchmark_of(options.name, head) in head.benchmarks),
        key=lambda head: (head.started_at or "", head.run),
    )
    if not named:
        names = sorted({name for head in heads for name in head.benchmarks})
        have = f"benchmarks: {truncate_list(names, _MOST_NAMES)}" if names else "there are no runs"
        when = "" if since is None else f" since {options.since}"
        raise InputError(
            f"{options.name}: no run{when} has a benchmark of this name; {have} "
            "(hosts of a fleet: `rater fleet history`)"
        )
    host = named[-1].hostname if options.host is None else options.host
    hosts = list(dict.fromkeys(head.hostname or "" for head in reversed(named)))
    chosen = [head for head in named if head.hostname == host]
    if not chosen:
        known = truncate_list([name for name in hosts if name], _MOST_NAMES)
        raise InputError(f"--host {host}: no run of {options.name} was made there; hosts: {known}")
    return chosen, [name for name in hosts if name and name != host]


def _benchmark_of(name: str, head: RunHead) -> str:
    """Return the benchmark that a name means among those of a run: `lu` of `mini/lu` too."""
    suite, _, benchmark = name.rpartition("/")
    is_of_suite = suite in (head.suite or "").split(", ")
    return benchmark if name not in head.benchmarks and is_of_suite else name
