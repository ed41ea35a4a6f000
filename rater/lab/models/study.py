"""`rater lab pages` and `rater lab model`: a sweep over page layouts, and what describes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.compare.differences import disturbed_points
from rater.analysis.results.copies import Point
from rater.lab.layout.layout import parse_pages
from rater.lab.models.model import (
    LEAST_VALUES,
    BenchmarkTrace,
    PageLab,
    SweepModel,
    misses_of,
    models_of,
    page_lab,
)
from rater.lab.models.observed import ModelRequest, observe
from rater.lab.models.points_file import points_of_csv
from rater.lab.models.quantities import (
    HOST_TAKES_MEMORY,
    OF_TIME,
    PAGES,
    PredictorKind,
    effort_named,
    usual_effort,
)
from rater.lab.models.show import ModelSource, models_document, models_parts, models_svg
from rater.lab.models.show_study import lab_document, lab_parts, page_part
from rater.lab.trace.costs import page_costs
from rater.lab.trace.store import load_trace, trace_heads
from rater.plan.tlb import parse_tlb
from rater.show.charts.vega import library
from rater.show.html.page import RunSet, report_html
from rater.show.screen.document import Line, Part
from rater.store.store import Store
from rater.store.sweeps import PREFIX, find_sweep, load_sweep
from rater.system.errors import InputError
from rater.system.process import pip_install, print_error
from rater.text.documents import read_text
from rater.text.values import count, truncate_list
from rater.workflow.arguments import Output, RunArguments, open_existing_store, print_view
from rater.workflow.results.divots import find_recurring
from rater.workflow.results.plot import load_report_run
from rater.workflow.results.points import (
    count_interim_looks,
    drawing_file,
    load_points,
    missing_points,
    write_drawing,
    write_output,
)
from rater.workflow.results.report import check_page
from rater.workflow.sweep.execute import run_sweep
from rater.workflow.sweep.request import SweepOptions
from rater.workflow.sweep.view import show_sweep

# -- `rater lab pages`: a sweep over page layouts, all that it comes to as a summary and a page ----

SUITE = "pages"
LAYOUTS = "0%,12.5%,25%,37.5%,50%,62.5%,75%,87.5%,100%"
QUICK_LAYOUTS = "0%,25%,50%,100%"


class LabPage(Struct, frozen=True):
    """Where the page goes."""

    file: Path | None  # None: rater-lab-pages-SWEEP.html
    vega: str | None  # the library as a script; None when it is not installed

    def path(self, sweep: int) -> Path:
        """Return where it goes."""
        return self.file or Path(f"rater-lab-pages-{sweep}.html")


class StudyOptions(Struct, frozen=True):
    """The options of a study itself."""

    layouts: str | None
    quick: bool


def lab_pages(
    output: Output,
    *,
    options: RunArguments,
    sweep: SweepOptions,
    study: StudyOptions,
    show: str | None,
    file: str | None,
    y: str | None,
) -> int:
    """Sweep page layouts, or take a stored sweep, and show the models of y over them."""
    page = _page_of(None if file is None else Path(file), json=output.json)
    if show is not None:
        study_words = [f"--{name}" for name in study.__struct_fields__ if getattr(study, name)]
        if given := [*options.option_words(), *sweep.option_words(), *study_words]:
            raise InputError(f"--show {show} runs nothing: leave out {' '.join(given)}")
        with open_existing_store(output) as store:
            _tell(page, y, output, store, find_sweep(store, show))
        return 0
    return run_sweep(*_sweep_of(options, sweep, study), output, partial(tell_ended, page, y))


def _page_of(path: Path | None, *, json: bool) -> LabPage:
    if path is None and json:  # to programs the document alone
        return LabPage(path, None)
    if path is not None:
        check_page(path, force=False)
    try:
        return LabPage(path, library())
    except InputError:
        if path is not None:
            raise
        return LabPage(path, None)


def _sweep_of(
    typed: RunArguments, sweep_options: SweepOptions, study: StudyOptions
) -> tuple[RunArguments, SweepOptions]:
    layouts = study.layouts or (QUICK_LAYOUTS if study.quick else LAYOUTS)
    parsed_layouts = [parse_pages(text) for text in layouts.split(",")]
    if not any(layout.is_base for layout in parsed_layouts):
        raise InputError(
            f"--layouts {layouts}: layouts are compared with 0%, which is none of them; add it"
        )
    sweep_options = replace(sweep_options, axis=(f"{PAGES}={layouts}",))
    if not typed.suites and typed.command is None:
        typed = replace(typed, suites=(SUITE,))
    if study.quick:
        quick = {"iterations": 1} | ({"size": "test"} if typed.command is None else {})
        typed = replace(typed, options=quick | typed.options)
        sweep_options = replace(
            sweep_options, rounds=2 if sweep_options.rounds is None else sweep_options.rounds
        )
    return typed, sweep_options


def tell_ended(
    page: LabPage, effort_word: str | None, output: Output, store: Store, sweep: int
) -> None:
    """Show the results of a sweep that has ended, or was stopped early."""
    slots = load_sweep(store, sweep).slots
    if len({slot.slot.point for slot in slots if slot.done}) < 2:  # stopped: nothing to compare
        show_sweep(output, store, sweep)
    else:
        _tell(page, effort_word, output, store, sweep)


def _tell(page: LabPage, effort_word: str | None, output: Output, store: Store, sweep: int) -> None:
    word = f"{PREFIX}{sweep}"
    points = load_points(store, [word])
    effort = effort_named(effort_word) if effort_word else usual_effort(points)
    is_chosen = effort_word is None and effort is not OF_TIME
    lab = page_lab(
        sweep,
        points,
        looks=count_interim_looks(store, points),
        missing=(*missing_points(store, [word]), *([HOST_TAKES_MEMORY] if is_chosen else [])),
        predicting=effort,
        traces=traces_of(store, points),
    )
    path = None if output.json and page.file is None else _write(page, store, lab)
    document = lab_document(lab) | {"file": None if path is None else str(path)}
    print_view(output, document, lambda _: lab_parts(lab))
    if output.json:
        return
    if path is None:
        print_error(
            f"no report: it needs vl-convert-python; `{pip_install('[report]')}` installs it"
        )
    else:
        size = path.stat().st_size / 1e6
        print(f"\n{path.resolve()}: {count(len(lab.points), 'layout')}, {size:.1f} MB")


def _write(page: LabPage, store: Store, lab: PageLab) -> Path | None:
    if page.vega is None:
        return None
    shown = [lab.comparison.sides[side].runs[-1].run for side in (0, lab.largest)]
    pages = [load_report_run(store, run) for run in shown]
    between = find_recurring(
        store,
        [
            (report_run.run.head, report_run.divots)
            for report_run in pages
            if report_run.divots is not None
        ],
    )
    note = "The pictures of single copies below are of the last run of each of these two layouts: "
    labels = ", ".join(lab.comparison.sides[side].label for side in (0, lab.largest))
    together = RunSet(
        comparison=lab.comparison,
        scaling=None,
        notes=(*lab.missing, note + labels),
        between=between,
        study=page_part(lab),
    )
    path = page.path(lab.sweep)
    check_page(path, force=False)
    write_output(path, report_html(pages, page.vega, together).encode())
    return path


# -- `rater lab model`: what describes the layouts of a sweep, and how well it predicts ------------


class ModelOptions(Struct, frozen=True, kw_only=True):
    """Options of `rater lab model`.

    `x` is the word of a `PredictorKind`, and None takes the first that is known. `y` names the
    predicted quantity: a word of `EFFORTS`, or a metric that copies report. Of a CSV file both
    name columns.
    """

    x: str | None
    y: str | None
    axis: str | None
    degree: int
    file: str | None


def model_points(output: Output, csv: str, options: ModelOptions) -> int:
    """Print the models of points that somebody else measured. Raises `InputError`."""
    drawing = drawing_file(options.file)
    if options.x is None or options.y is None:
        raise InputError("--csv: expected --x COLUMN and --y COLUMN as well, names of its columns")
    if options.axis is not None:
        raise InputError("--axis is of a sweep: leave it out with --csv")
    text = _read_points(csv)
    models = models_of(points_of_csv(text, csv, x=options.x, y=options.y), degree=options.degree)
    _print_models(output, models, ModelSource(None, csv), options, drawing)
    return 0


def _read_points(csv: str) -> str:
    """Return the text of a file of points. Raises `InputError`."""
    try:
        return read_text(Path(csv), "points")
    except UnicodeDecodeError as error:
        raise InputError(
            f"--csv {csv}: byte {error.start + 1} is not UTF-8; save it as CSV in UTF-8"
        ) from None
    except OSError as error:
        raise InputError(f"--csv {csv}: cannot be read ({error.strerror})") from None


def model_sweep(output: Output, sweep_word: str, options: ModelOptions) -> int:
    """Print the models of a sweep. Raises `InputError`."""
    drawing = drawing_file(options.file)
    predictor = None if options.x is None else _predictor(options.x)
    with open_existing_store(output) as store:
        number = find_sweep(store, sweep_word)
        points = load_points(store, [f"{PREFIX}{number}"])
        effort = effort_named(options.y) if options.y else usual_effort(points)
        missing = missing_points(store, [f"{PREFIX}{number}"])
        if options.y is None and effort is not OF_TIME:
            missing = (*missing, HOST_TAKES_MEMORY)
        model_request = ModelRequest(effort, predictor, options.axis)
        models = models_in(store, number, model_request, options.degree)
        disturbed = disturbed_points(points)
    source = ModelSource(number, f"sweep {number}", missing=missing, disturbed=tuple(disturbed))
    _print_models(output, models, source, options, drawing)
    return 0


def _predictor(word: str) -> PredictorKind:
    try:
        return PredictorKind(word)
    except ValueError:
        kinds = ", ".join(PredictorKind)
        raise InputError(f"--x {word}: expected one of {kinds}; COLUMN is for --csv") from None


def _print_models(
    output: Output,
    models: Sequence[SweepModel],
    source: ModelSource,
    options: ModelOptions,
    drawing: Path | None,
) -> None:
    file = options.file
    if drawing is not None:
        names = truncate_list([model.observed.name for model in models])
        if not any(model.fits for model in models):
            raise InputError(f"{file}: nothing to draw: a model needs {LEAST_VALUES} values of x")
        title = source.name if names == source.name else f"{source.name}: {names}"
        write_drawing(models_svg(models, title), drawing)

    def parts(_: object) -> Iterator[Part]:
        yield from models_parts(models, [*source.missing, *source.disturbed])
        if file is not None:
            yield Line(f"{file}: {count(len(models), 'panel')}", whole=True)

    print_view(output, models_document(models, source), parts)


def models_in(
    store: Store, sweep: int, model_request: ModelRequest, degree: int = 2
) -> tuple[SweepModel, ...]:
    """Return the models of a stored sweep; raises `InputError` where there is nothing to model."""
    points = load_points(store, [f"{PREFIX}{sweep}"])
    return models_of(
        observe(points, model_request, misses_of(traces_of(store, points))), degree=degree
    )


# -- Stored traces (`rater lab trace`) of the benchmarks of a sweep --------------------------------


def traces_of(store: Store, points: Sequence[Point]) -> dict[str, BenchmarkTrace]:
    """Return the latest trace of each benchmark, of the same suite and size as the runs."""
    head = points[0].runs[0].run.head
    suites = set((head.suite or "").split(", ")) if head.suite else {None}
    latest = {
        trace_head.name: trace_head.number
        for trace_head in trace_heads(store)
        if trace_head.name in head.benchmarks
        and (trace_head.suite in suites)
        and (trace_head.suite is None or trace_head.size == head.size)
    }
    trace_by_name = {}
    for name, number in latest.items():
        stored = load_trace(store, number)
        costs = page_costs(stored.costs, parse_tlb(stored.trace.tlb))
        trace_by_name[name] = BenchmarkTrace(number, stored.trace, costs)
    return trace_by_name
