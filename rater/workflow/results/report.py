"""`rater report` and `rater scale`: stored runs as a page, and as a curve."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from rater.analysis.compare.compare import compare
from rater.analysis.compare.scaling import ExcludedRuns, scaling_curves
from rater.analysis.compare.scaling_samples import orders, smt_yields
from rater.analysis.divots.model.finding import RecurringDivot
from rater.analysis.results.copies import Point, PointRun
from rater.analysis.results.measure import find_measure
from rater.analysis.stats.curves import LawScale
from rater.record.stored import StoredRun
from rater.show.charts.comparison import curves_svg
from rater.show.charts.pairs import RunPair, pair_runs
from rater.show.charts.vega import library
from rater.show.compare.scaling import scaling_parts
from rater.show.compare.scaling_document import scaling_document
from rater.show.html.page import RunSet, report_html
from rater.show.html.shell import is_page
from rater.show.screen.document import Line, Part
from rater.store.store import Store
from rater.system.errors import InputError
from rater.text.cpuset import format_list
from rater.text.values import count, runs_text
from rater.workflow.arguments import Output, open_store_for_reading, print_json, print_view
from rater.workflow.results.divots import find_recurring
from rater.workflow.results.drawn import Drawn, drawn_by
from rater.workflow.results.plot import load_report_run
from rater.workflow.results.plot_pair import paired_run
from rater.workflow.results.points import (
    METRIC,
    check_distinct,
    checked_path,
    count_interim_looks,
    drawing_file,
    load_points,
    missing_points,
    write_drawing,
    write_output,
)

_STDOUT = "-"
_MOST_RUNS = 12  # every run on a page has its panels
_HEAD_BYTES = 4096  # of a file that is there: rater's own pages say so before that


def report(
    output: Output, *, run_words: tuple[str, ...], file: str | None, by: str | None, force: bool
) -> int:
    """Write the page; `by`: what its pictures of copies are of in place of times."""
    with open_store_for_reading(output, run_words) as store:
        points, without_runs = _points(store, run_words or ["last"])
        tests = count_interim_looks(store, points)
        shown, notes = _shown(points)
        numbers = [run.head.run for run in shown]
        path = page_path(output, file, "-".join(map(str, numbers)), force=force)
        vega = library()  # before the work: it may not be installed
        drawn = drawn_by(by, shown, None)
        pages = [load_report_run(store, run, drawn) for run in shown]
        between = find_recurring(
            store, [(page.run.head, page.divots) for page in pages if page.divots is not None]
        )
        pair = _pair(store, shown, drawn) if len(shown) == 2 else None
    together = _together(points, tests, (*without_runs, *notes), between)
    if together is not None:
        together = replace(together, pair=pair)
    page = report_html(pages, vega, together)
    return deliver_page(output, path, page, {"runs": numbers}, runs_text(numbers))


def _pair(store: Store, runs: Sequence[StoredRun], drawn: Drawn) -> RunPair | None:
    """Return two runs over one axis; None: they do not fit over each other."""
    before, after = (paired_run(store, run, drawn) for run in runs)
    with suppress(InputError):
        return pair_runs(before, after, measure=drawn.measure)
    return None


def page_path(output: Output, file: str | None, name: str, *, force: bool) -> Path:
    """Return where a page goes, which is about `name`. Raises `InputError`."""
    if file == "":  # a variable of the caller's that is empty: no reason to guess a name
        raise InputError(
            "-o '': expected the name of a page, or - for standard output; without -o it is "
            f"rater-report-{name}.html in the current directory"
        )
    path = Path(file or f"rater-report-{name}.html")
    if file != _STDOUT:
        check_page(path, force=force)
    elif output.json:
        raise InputError("-o - --json: both would be written to standard output; leave one out")
    return path


def deliver_page(
    output: Output, path: Path, page: str, document: dict[str, object], about: str
) -> int:
    """Write a page, and print its place, subject and size."""
    data = page.encode()
    if path == Path(_STDOUT):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return 0
    write_output(path, data)
    if output.json:
        print_json(document | {"file": str(path), "bytes": len(data)})
    else:
        size = f"{len(data) / 1e6:.1f} MB" if len(data) >= 1e5 else f"{len(data) / 1e3:.0f} KB"
        print(f"{path.resolve()}: report on {about}, {size}")
    return 0


def _points(store: Store, words: Sequence[str]) -> tuple[tuple[Point, ...], tuple[str, ...]]:
    """Return the points that words mean, as `rater compare` takes them, and which have no runs.

    What names runs once more is left out. The runs of a single point that is no sweep's are a
    point each.
    """
    wanted: list[str] = []
    seen: set[tuple[int, ...]] = set()
    for word in dict.fromkeys(words):
        plain_run = not word.startswith(("sweep:", "tag:")) and "," not in word
        numbers = tuple(store.find_all(word)) if plain_run else ()
        if not numbers or numbers not in seen:
            wanted.append(word)
        seen.add(numbers)
    points = load_points(store, wanted)
    check_distinct(points)
    if len(points) == 1 and len(points[0].runs) > 1:
        points = tuple(
            Point(f"run {point_run.run.head.run}", (), (PointRun(point_run.run, point_run.block),))
            for point_run in points[0].runs
        )
    return points, missing_points(store, wanted)


def _shown(points: Sequence[Point]) -> tuple[list[StoredRun], tuple[str, ...]]:
    """Return the runs that have pictures and tables, and in words which have none.

    All, or of points of several runs the last one of each. Raises `InputError` for too many points.
    """
    every = [point_run.run for point in points for point_run in point.runs]
    if len(every) == len(points) <= _MOST_RUNS:
        return every, ()
    if len(points) > _MOST_RUNS:
        raise InputError(
            f"{len(points)} points of {len(every)} runs: a page holds at most {_MOST_RUNS}; "
            "name fewer of them"
        )
    note = (
        f"{len(every)} runs are compared; the pictures and tables below them are those of the "
        "last run of each point"
    )
    return [point.runs[-1].run for point in points], (note,)


def _together(
    points: Sequence[Point], tests: int, notes: tuple[str, ...], between: tuple[RecurringDivot, ...]
) -> RunSet | None:
    if len(points) < 2:
        return None
    copies = {one.run.head.copies for point in points for one in point.runs}
    scaling = scaling_curves(points) if len(copies) > 1 else None
    return RunSet(
        comparison=compare(points, looks=tests),
        scaling=scaling if scaling and scaling.curves else None,
        notes=notes,
        between=between,
    )


def check_page(path: Path, *, force: bool) -> None:
    """Raise `InputError` for a place where no page can be written, or another file would go."""
    checked_path(path)
    if path.exists() and not path.is_file():  # a FIFO, /dev/stdout: nothing can take its place
        raise InputError(f"-o {path}: is no regular file; expected the name of a page")
    if not path.exists() or force:
        return
    try:
        with path.open("rb") as there:
            start = there.read(_HEAD_BYTES)
    except OSError as error:
        raise InputError(f"-o {path}: cannot be read ({error.strerror})") from error
    if start and not is_page(start.decode("utf-8", "replace")):
        raise InputError(
            f"-o {path}: already exists and was not written by rater; name another file, "
            "or --force writes over it"
        )


# -- `rater scale`: throughput against the number of copies ----------------------------------------

LAW_SCALES = {"log": LawScale.LOG, "rate": LawScale.RATE}  # by the words of --law
_MOST_REASONS = 6


def scale_points(
    output: Output, run_words: tuple[str, ...], file: str | None, law: str, by: str | None
) -> int:
    """Print the curves; `by`: the metric that they are of, in place of the copies' times."""
    drawing = drawing_file(file)
    with open_store_for_reading(output, run_words) as store:
        words = list(dict.fromkeys(run_words))
        points = load_points(store, words)
        missing = missing_points(store, words)
    runs = [point_run.run for point in points for point_run in point.runs]
    measure = None if by is None else find_measure(by.removeprefix(METRIC), runs)
    scaling = scaling_curves(points, LAW_SCALES[law], measure)
    # Both set times side by side.
    smt = smt_yields(scaling.samples) if measure is None else ()
    rotated = orders(scaling.samples) if measure is None else ()
    if not scaling.curves and not smt and not rotated:
        raise InputError(
            "\n  ".join(["no curve:", *_reasons(scaling.alone)])
            + "\na curve needs runs of the same with different numbers of copies: use\n"
            "`rater run ... --copies N` or `rater sweep --axis copies=1,2,4`"
        )
    if drawing is not None and scaling.curves:
        write_drawing(curves_svg(scaling.curves), drawing)

    def parts(_: object) -> Iterator[Part]:
        if measure is not None:
            yield f"By {measure.title}, of all copies together: {measure.better} is better."
        yield from scaling_parts(scaling, smt, rotated, missing)
        if file is not None and scaling.curves:
            panels = {one.name for curve in scaling.curves for one in curve.series}
            yield Line(f"{file}: {count(len(panels), 'panel')}", whole=True)

    print_view(output, scaling_document(scaling, smt, rotated, missing), parts)
    return 0


def _reasons(alone: Sequence[ExcludedRuns]) -> list[str]:
    by_reason: dict[str, list[ExcludedRuns]] = {}
    for excluded in alone:
        by_reason.setdefault(excluded.reason, []).append(excluded)
    lines = [_describe_excluded(reason, excluded) for reason, excluded in by_reason.items()]
    more = len(lines) - _MOST_REASONS
    return [*lines[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]


def _describe_excluded(reason: str, excluded: Sequence[ExcludedRuns]) -> str:
    """Return in words which runs a reason excludes from curves."""
    if len(excluded) == 1:
        return str(excluded[0])
    numbers = {run for runs in excluded for run in runs.runs}
    return f"runs {format_list(numbers)}: {reason}"
