"""`rater show plot`: the copies of a run as a picture; what it shares with the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.results.copies import Cell, counts_of, group_cells
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.periods import notable_periods
from rater.analysis.results.score import summarise
from rater.analysis.results.series import phase_times
from rater.record.stored import RunHead, StoredRun
from rater.show.charts.comparison import cpi_chart, cpi_lines, cpi_svg
from rater.show.charts.machine import machine_rows, machine_svg
from rater.show.charts.panels import labels_from, panel_values, picture_svg
from rater.show.charts.picture import picture_document, picture_of
from rater.show.charts.terminal import print_picture
from rater.show.charts.timeline import timeline_svg
from rater.show.charts.tracks import print_tracks, series_document
from rater.show.html.story import ReportRun, run_data
from rater.show.results.cpu_use import counts_json
from rater.show.screen.console import Printer, screen
from rater.show.screen.format import sanitize
from rater.store.store import Store
from rater.system.errors import InputError
from rater.workflow.arguments import Output, open_store_for_reading, print_json_rows
from rater.workflow.results.divots import analysis_for_results, load_or_analyse
from rater.workflow.results.drawn import TIMES, Drawn, drawn_by
from rater.workflow.results.plot_pair import PairView, draw_pair
from rater.workflow.results.points import drawing_file, load_points, write_drawing
from rater.workflow.results.stored import run_beside

# -- Load what the report page, and its pictures as files, show of a run ---------------------------


def load_report_run(store: Store, run: StoredRun, drawn: Drawn = TIMES) -> ReportRun:
    """Return a run with all that a page says of it; `drawn`: what its pictures are of."""
    divots = analysis_for_results(store, run, however_it_ended=True)
    cells = group_cells(run)
    barrier = run_beside(store, run)
    return ReportRun(
        run=run,
        summary=summarise(run),
        cells=cells,
        picture=picture_of(
            run.head,
            drawn.cells_of(run, cells),
            labels_from(divots.sure if divots else ()),
            measure=drawn.measure,
        ),
        divots=divots,
        readings=run_counters(run),
        barrier=summarise(barrier) if barrier else None,
    )


# -- `rater show plot`: the times of a run's copies as a picture, in the terminal or in a file -----


class PlotOptions(Struct, frozen=True, kw_only=True):
    """Options of a picture."""

    benchmark: str | None
    iteration: int | None
    file: str | None
    machine: bool
    timeline: bool
    cpi: bool
    time: bool
    scatter: bool
    ranks: bool
    by: str | None  # CPU time or a metric in place of time


def plot(output: Output, run_words: tuple[str, ...], options: PlotOptions) -> int:
    """Draw in the terminal or into a file."""
    file = drawing_file(options.file)
    words = run_words or ("last",)
    of_time = {"--timeline": options.timeline, "--time": options.time, "--cpi": options.cpi}
    if options.by is not None and any(of_time.values()):
        other = next(name for name, is_asked in of_time.items() if is_asked)
        raise InputError(
            f"--by {options.by}: {other} draws no other measure; leave one of them out"
        )
    if options.cpi:
        return _draw_cpi(output, words, options, file)
    if len(words) > 1:
        return _draw_two(output, words, options, file)
    if options.scatter or options.ranks:
        raise InputError("--scatter and --ranks are of two runs: `rater show plot A B --ranks ...`")
    if options.time:
        return _draw_time(output, words[0], options, file)
    if options.machine or options.timeline:
        return _draw_other(output, words[0], options, file)
    with open_store_for_reading(output, words) as store:
        run = store.load(store.find(words[0]))
        divots = load_or_analyse(store, run.head, Thresholds(), fresh=False, run=run)
    benchmark = _chosen(options.benchmark, options.iteration, group_cells(run), run.head)
    drawn = drawn_by(options.by, [run], benchmark)
    picture = picture_of(
        run.head,
        drawn.cells(run),
        labels_from(divots.sure),
        measure=drawn.measure,
        benchmark=benchmark,
        iteration=options.iteration,
        ranges=output.json or file is not None,
    )
    if file is not None:
        write_drawing(picture_svg(picture), file)
    if output.json:
        print_json_rows(picture_document(picture, run.head, options.file))
    elif file is not None:
        panels = len(picture.panels)
        print(
            f"{options.file}: {picture.title}" + (f", {panels} benchmarks" if panels != 1 else "")
        )
    else:
        print_picture(picture, Printer(screen()))
    return 0


def _draw_two(output: Output, words: Sequence[str], options: PlotOptions, file: Path | None) -> int:
    if len(words) > 2:
        raise InputError(f"{' '.join(words)}: expected one run, or two; more are drawn with --cpi")
    of_one = {"--timeline": options.timeline, "--time": options.time}
    of_one["--iteration"] = options.iteration is not None
    wrong = [name for name, value in of_one.items() if value]
    if options.scatter + options.ranks + options.machine > 1:
        raise InputError("--scatter, --ranks and --machine are a picture each: name one of them")
    if wrong:
        raise InputError(f"{wrong[0]} is of one run: leave it out, or name one")
    view = PairView(
        benchmark=options.benchmark,
        file=options.file,
        machine=options.machine,
        scatter=options.scatter,
        ranks=options.ranks,
        by=options.by,
    )
    return draw_pair(output, words, view, file)


def _draw_other(output: Output, word: str, options: PlotOptions, file: Path | None) -> int:
    option = "--machine" if options.machine else "--timeline"
    if file is None:
        raise InputError(f"{option}: expected -o FILE as well; the terminal has no such picture")
    if options.machine and (options.benchmark is not None or options.iteration is not None):
        raise InputError("--machine is of the whole run: leave out --benchmark and --iteration")
    with open_store_for_reading(output, [word]) as store:
        shown = load_report_run(store, store.load(store.find(word)))
    head = shown.run.head
    benchmark = _chosen(options.benchmark, options.iteration, shown.cells, head)
    if options.machine:
        svg = _machine(shown, options.by)
    else:
        data = run_data(shown, {})
        svg = timeline_svg(data, _bracket(data, benchmark, options.iteration, head))
    write_drawing(svg, file)
    if output.json:
        print_json_rows({"run": head.run, "file": options.file})
    else:
        print(f"{options.file}: {option.removeprefix('--')}, run {head.run}")
    return 0


def _machine(shown: ReportRun, by: str | None) -> str:
    """Return the machine of a run as an SVG, its CPUs by the times of copies or another measure."""
    head = shown.run.head
    rows = machine_rows(shown.run)
    if not rows:
        raise InputError(f"run {head.run}: it is not known where its copies ran")
    drawn = drawn_by(by, [shown.run], None)
    picture = picture_of(head, drawn.cells(shown.run), measure=drawn.measure)
    panels = [panel_values(panel, {}, repeated=False) for panel in picture.panels]
    return machine_svg(head.run, rows, panels, drawn.measure)


def _draw_time(output: Output, word: str, options: PlotOptions, file: Path | None) -> int:
    """Draw what the machine did over the time of brackets: all that are meant, one into a file."""
    with open_store_for_reading(output, [word]) as store:
        run = store.load(store.find(word))
        shown = load_report_run(store, run) if file is not None else None
    head = run.head
    benchmark = _chosen(options.benchmark, options.iteration, group_cells(run), head)
    phases = [
        phase
        for phase in phase_times(run)
        if benchmark is None or phase.benchmark in (None, benchmark)
        if options.iteration in (None, phase.iteration)
    ]
    if not phases:
        raise InputError(
            f"run {head.run}: no series is stored of that: its copies ran for less than a second, "
            "or it was made with --series off, --proof off or by an older rater, or imported"
        )
    periods = notable_periods(phases)
    if file is not None and shown is not None:
        data = run_data(shown, {})
        number = _bracket(data, benchmark, options.iteration, head, with_tracks=True)
        write_drawing(timeline_svg(data, number), file)
    if output.json:
        print_json_rows(series_document(phases, periods, head, options.file))
    elif file is not None:
        print(f"{options.file}: over time, run {head.run}")
    else:
        print_tracks(head, phases, periods, Printer(screen()))
    return 0


def _draw_cpi(output: Output, words: Sequence[str], options: PlotOptions, file: Path | None) -> int:
    if options.iteration is not None:
        raise InputError("--cpi is of all iterations together: leave out --iteration")
    with open_store_for_reading(output, words) as store:
        points = load_points(store, words)
    counted = [(point.label, counts_of(point.runs)) for point in points]
    if options.benchmark is not None:
        counted = [
            (label, tuple(it for it in some if options.benchmark in it.benchmark))
            for label, some in counted
        ]
    chart = cpi_chart(counted)
    if chart is None:
        raise InputError(
            f"{' '.join(words)}: no CPI stack was counted; make a run with --counters cpi "
            "(`rater doctor counters` shows what this machine counts)"
        )
    title = " and ".join(label for label, _ in counted)
    if file is not None:
        write_drawing(cpi_svg(chart, title), file)
    if output.json:
        rows = [
            {"point": label, "counters": [counts_json(counts) for counts in some]}
            for label, some in counted
        ]
        print_json_rows({"file": options.file, "points": rows})
    elif file is not None:
        print(f"{options.file}: CPI of {title}")
    else:
        printer = Printer(screen())
        for line in cpi_lines(chart, printer.width):
            printer.line(line)
    return 0


def _bracket(
    data: dict[str, Any],
    benchmark: str | None,
    iteration: int | None,
    head: RunHead,
    *,
    with_tracks: bool = False,
) -> int:
    brackets = data["timeline"]["brackets"]
    asked = None if benchmark is None else sanitize(benchmark)
    places = [
        place
        for place, bracket in enumerate(brackets)
        if bracket["benchmark"] in (None, asked) or asked is None
        if iteration in (None, bracket["iteration"])
        if bracket["tracks"] or not with_tracks
    ]
    if not places:
        raise InputError(f"run {head.run}: nothing is stored of when its copies ran")
    return max(places, key=lambda place: brackets[place]["lost"] or 0.0)


def _chosen(
    word: str | None, iteration: int | None, cells: Sequence[Cell], head: RunHead
) -> str | None:
    """Return the whole name of the benchmark that was asked for, None for all.

    Raises `InputError` where nothing, or not one alone, answers to the name or the number.
    """
    names = list(dict.fromkeys(cell.benchmark for cell in cells))
    if not names:
        raise InputError(f"run {head.run} has no copy that ended: there is nothing to draw")
    chosen = None
    if word is not None:
        matches = [name for name in names if name == word]
        matches = matches or [name for name in names if word in name]
        if len(matches) != 1:
            why = "is in the names of several" if matches else "is no benchmark of it"
            raise InputError(
                f"--benchmark {word}: {why} (run {head.run}); expected one of "
                f"{', '.join(matches or names)}"
            )
        (chosen,) = matches
    iterations = sorted({cell.iteration for cell in cells if chosen in (None, cell.benchmark)})
    if iteration is not None and iteration not in iterations:
        raise InputError(
            f"--iteration {iteration}: run {head.run} has not this iteration; expected one of "
            f"{', '.join(map(str, iterations))}"
        )
    return chosen
