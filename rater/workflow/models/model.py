"""`rater model`: what describes the layouts of a sweep, and how well it predicts."""

from __future__ import annotations

import argparse

from rater.analysis.models.models import SweepModel, models_of
from rater.analysis.models.observed import ModelWanted, observe
from rater.analysis.models.quantity import Effort, Explaining, Predicting
from rater.analysis.models.ranking import misses_of
from rater.errors import InputError
from rater.show.charts.model import model_lines, models_svg
from rater.show.console.printer import Printer
from rater.show.models.table import names_of, print_models
from rater.show.models.to_json import models_document
from rater.store.store import Store
from rater.store.sweeps import PREFIX, find_sweep
from rater.text.words import count
from rater.workflow.common import existing_store, show
from rater.workflow.models.traces import traces_of
from rater.workflow.results.output_file import drawing_file, write_drawing
from rater.workflow.results.points import points_from, points_without_runs


def model_sweep(args: argparse.Namespace) -> int:
    """Print the models of a sweep."""
    file = drawing_file(args.file)
    wanted = ModelWanted(
        predicting_of(args.y), None if args.x is None else Explaining(args.x), args.axis
    )
    with existing_store(args) as store:
        number = find_sweep(store, args.which)
        told = points_without_runs(store, [f"{PREFIX}{number}"])
        models = models_in(store, number, wanted, args.degree)
    if file is not None:
        write_drawing(models_svg(models, f"sweep {number}: {names_of(models)}"), file)

    def text(printer: Printer) -> None:
        lines = [model_lines(model, printer.width) if model.fits else [] for model in models]
        print_models(models, printer, lines, told)
        if file is not None:
            printer.line(f"{args.file}: {count(len(models), 'panel')}")

    show(args, lambda: models_document(number, models, told), text)
    return 0


def predicting_of(text: str) -> Predicting:
    """Return what --y asks for; raises `InputError`."""
    word, colon, name = text.partition(":")
    known = [str(effort) for effort in Effort if effort is not Effort.METRIC]
    if colon and word == Effort.METRIC and name:
        return Predicting(Effort.METRIC, name)
    if text not in known:
        raise InputError(f"--y {text}: expected {', '.join(known)} or metric:NAME")
    return Predicting(Effort(text))


def models_in(
    store: Store, sweep: int, wanted: ModelWanted, degree: int = 2
) -> tuple[SweepModel, ...]:
    """Return the models of a stored sweep; raises `InputError` where there is nothing to model."""
    points = points_from(store, [f"{PREFIX}{sweep}"])
    return models_of(observe(points, wanted, misses_of(traces_of(store, points))), degree=degree)
