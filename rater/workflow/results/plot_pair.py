"""`rater show plot A B`: two runs in one picture, in the terminal or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from rater.analysis.divots.model.finding import Thresholds
from rater.record.stored import StoredRun
from rater.show.charts.machine import machine_rows, pair_machine_svg
from rater.show.charts.pairs import (
    PairedRun,
    RunPair,
    pair_document,
    pair_parts,
    pair_runs,
    ranks_svg,
    scatter_svg,
)
from rater.show.charts.panels import labels_from, picture_svg
from rater.show.charts.terminal import print_picture
from rater.show.screen.console import Printer, screen
from rater.show.screen.document import print_parts
from rater.store.store import Store
from rater.system.errors import InputError
from rater.text.values import count
from rater.workflow.arguments import Output, open_store_for_reading, print_json_rows
from rater.workflow.results.divots import load_or_analyse
from rater.workflow.results.drawn import Drawn, drawn_by
from rater.workflow.results.points import write_drawing


class PairView(Struct, frozen=True, kw_only=True):
    """Which picture of two runs is asked for; none of them: copies by place."""

    benchmark: str | None
    file: str | None
    machine: bool
    scatter: bool
    ranks: bool
    by: str | None  # CPU time or a metric in place of time


def draw_pair(output: Output, words: Sequence[str], view: PairView, file: Path | None) -> int:
    """Draw two runs over one axis of places; raises `InputError` for runs that do not fit."""
    option = "--machine" if view.machine else "--scatter" if view.scatter else "--ranks"
    if file is None and (view.machine or view.scatter or view.ranks):
        raise InputError(f"{option}: expected -o FILE as well; the terminal has no such picture")
    with open_store_for_reading(output, words) as store:
        runs = [store.load(store.find(word)) for word in words]
        benchmark = _chosen(view.benchmark, runs)
        drawn = drawn_by(view.by, runs, benchmark)
        before, after = (paired_run(store, run, drawn) for run in runs)
    pair = pair_runs(before, after, benchmark, drawn.measure)
    if file is not None:
        write_drawing(_drawing(pair, view, runs[1]), file)
    if output.json:
        print_json_rows(pair_document(pair, view.file))
    elif file is not None:
        print(f"{view.file}: {pair.picture.title}, {count(len(pair.benchmarks), 'benchmark')}")
    else:
        printer = Printer(screen())
        print_picture(pair.picture, printer)
        printer.line()
        print_parts(pair_parts(pair), printer)
    return 0


def paired_run(store: Store, run: StoredRun, drawn: Drawn) -> PairedRun:
    """Return what is drawn of a run with the names of its slow parts."""
    divots = load_or_analyse(store, run.head, Thresholds(), fresh=False, run=run)
    return PairedRun(head=run.head, cells=drawn.cells(run), labels=labels_from(divots.sure))


def _drawing(pair: RunPair, view: PairView, run: StoredRun) -> str:
    if view.scatter:
        return scatter_svg(pair)
    if view.ranks:
        return ranks_svg(pair)
    if not view.machine:
        return picture_svg(pair.picture)
    if pair.axis != "CPU":
        names = " and ".join(f"run {number}" for number in pair.runs)
        raise InputError(f"--machine: {names} are laid over each other by copy, not by CPU")
    return pair_machine_svg(machine_rows(run), pair, pair.measure)


def _chosen(word: str | None, runs: Sequence[StoredRun]) -> str | None:
    """Return the whole name of a benchmark. Raises `InputError` for none, or several."""
    names = list(dict.fromkeys(copy.benchmark for run in runs for copy in run.copies))
    if word is None or word in names:
        return word
    matches = [name for name in names if word in name]
    if len(matches) != 1:
        why = "is in the names of several" if matches else "is no benchmark of them"
        raise InputError(f"--benchmark {word}: {why}: {', '.join(matches or names)}")
    return matches[0]
