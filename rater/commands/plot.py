"""`rater plot`: the times of a run's copies as a picture, in the terminal or in a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rater.commands.common import add_common
from rater.errors import InputError
from rater.workflow.common import existing_store, print_json_rows
from rater.workflow.results.output_file import checked_file

if TYPE_CHECKING:
    from rater.analysis.results.copies import Cell
    from rater.record.stored import RunHead, StoredRun
    from rater.show.charts.picture import Label
    from rater.store.store import Store


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater plot`."""
    parser = subparsers.add_parser(
        "plot",
        help="the time of every copy as a picture, in the terminal or in a file",
        description="Draw the time of every copy, lgroup beside lgroup: one benchmark, or a small "
        "panel for each benchmark of the run. Slow parts have their names beside them.",
    )
    parser.add_argument(
        "which",
        metavar="RUN",
        nargs="?",
        default="last",
        help="a number, the start of a uuid, last, last~1, or tag:K=V (default: last)",
    )
    parser.add_argument("--benchmark", metavar="B", help="only this one (or the part of a name)")
    parser.add_argument(
        "--iteration", metavar="I", type=int, help="only this one (default: all that count)"
    )
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        help="draw into FILE, by its name .svg, .png or .pdf (default: in the terminal)",
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--machine",
        action="store_true",
        help="the machine instead, each CPU coloured by the slowdown of its copies (with -o)",
    )
    other.add_argument(
        "--timeline",
        action="store_true",
        help="who ran when instead: of the bracket of --benchmark and --iteration, else of the "
        "one that lost most (with -o)",
    )
    add_common(parser)
    parser.set_defaults(run=_plot)


def _plot(args: argparse.Namespace) -> int:
    from rater.analysis.results.copies import cells_of
    from rater.show.charts.picture import picture_document, picture_of

    file = None if args.file is None else checked_file(args.file)
    if args.machine or args.timeline:
        return _draw_other(args, file)
    with existing_store(args) as store:
        run = store.load(store.find(args.which))
        labels = _labels_of(store, run)
    cells = cells_of(run)
    benchmark = _chosen(args.benchmark, args.iteration, cells, run.head)
    picture = picture_of(
        run.head,
        cells,
        labels,
        benchmark=benchmark,
        iteration=args.iteration,
        ranges=args.json or file is not None,
    )
    if file is not None:
        from rater.show.charts.file import draw

        draw(picture, file)
    if args.json:
        print_json_rows(picture_document(picture, run.head, args.file))
    elif file is not None:
        print(f"{args.file}: {_what(picture.title, len(picture.panels))}")
    else:
        from rich.console import Console

        from rater.show.charts.terminal import print_picture
        from rater.show.console.printer import Printer

        print_picture(picture, Printer(Console()))
    return 0


def _draw_other(args: argparse.Namespace, file: Path | None) -> int:
    """Draw the machine or the timeline, as `rater report` has them."""
    from rater.show.charts.file import write_drawing
    from rater.show.charts.vega import machine_svg, rendered_svg, timeline_svg
    from rater.show.html.data import run_data
    from rater.workflow.results.page import told_of

    what = "--machine" if args.machine else "--timeline"
    if file is None:
        raise InputError(f"{what}: expected -o FILE as well; the terminal has no such picture")
    if args.machine and (args.benchmark is not None or args.iteration is not None):
        raise InputError("--machine is of the whole run: leave out --benchmark and --iteration")
    with existing_store(args) as store:
        told = told_of(store, store.load(store.find(args.which)))
    head = told.run.head
    benchmark = _chosen(args.benchmark, args.iteration, told.cells, head)
    data = run_data(told, {})
    if args.machine:
        if not data["machine"]:
            raise InputError(f"run {head.run}: it is not known where its copies ran")
        svg = machine_svg(data)
    else:
        svg = timeline_svg(data, _bracket(data, benchmark, args.iteration, head))
    write_drawing(rendered_svg(svg, file.suffix.lower().removeprefix(".")), file)
    if args.json:
        print_json_rows({"run": head.run, "file": args.file})
    else:
        print(f"{args.file}: {what.removeprefix('--')}, run {head.run}")
    return 0


def _bracket(
    data: dict[str, Any], benchmark: str | None, iteration: int | None, head: RunHead
) -> int:
    """Return the place of the bracket that was asked for, else of that which lost most."""
    from rater.show.console.format import plain

    brackets = data["timeline"]["brackets"]
    asked = None if benchmark is None else plain(benchmark)
    found = [
        place
        for place, one in enumerate(brackets)
        if one["benchmark"] in (None, asked) or asked is None
        if iteration in (None, one["iteration"])
    ]
    if not found:
        raise InputError(f"run {head.run}: nothing is stored of when its copies ran")
    return max(found, key=lambda place: brackets[place]["lost"] or 0.0)


def _labels_of(store: Store, run: StoredRun) -> tuple[Label, ...]:
    """Return the names of the run's slow parts: what `rater divots` has found, or finds now."""
    from rater.analysis.divots.data.finding import Thresholds
    from rater.show.charts.labels import labels_from
    from rater.workflow.results.divots import analysis_of

    found = analysis_of(store, run.head, Thresholds(), fresh=False, run=run)
    return labels_from(found.findings)


def _what(title: str, panels: int) -> str:
    return title if panels == 1 else f"{title}, {panels} benchmarks"


def _chosen(
    wanted: str | None, iteration: int | None, cells: Sequence[Cell], head: RunHead
) -> str | None:
    """Return the whole name of the benchmark that was asked for, None for all.

    Raises `InputError` where nothing, or not one alone, answers to the name or the number.
    """
    names = list(dict.fromkeys(cell.benchmark for cell in cells))
    if not names:
        raise InputError(f"run {head.run} has no copy that ended: there is nothing to draw")
    chosen = None
    if wanted is not None:
        found = [name for name in names if name == wanted]
        found = found or [name for name in names if wanted in name]
        if len(found) != 1:
            why = "is in the names of several" if found else "is no benchmark of it"
            raise InputError(
                f"--benchmark {wanted}: {why} (run {head.run}); expected one of "
                f"{', '.join(found or names)}"
            )
        (chosen,) = found
    there = sorted({cell.iteration for cell in cells if chosen in (None, cell.benchmark)})
    if iteration is not None and iteration not in there:
        raise InputError(
            f"--iteration {iteration}: run {head.run} has not this iteration; expected one of "
            f"{', '.join(map(str, there))}"
        )
    return chosen
