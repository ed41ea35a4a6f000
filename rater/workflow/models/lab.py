"""`rater lab pages`: a sweep over page layouts, all that it comes to as a summary and a page."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rater.analysis.models.axis import PAGES
from rater.analysis.models.lab import PageLab, page_lab
from rater.errors import InputError
from rater.plan.pages.layout import parse_pages
from rater.show.charts.vega import library
from rater.show.html.page import page_of
from rater.show.html.several import Together
from rater.show.models.lab import lab_document, print_lab
from rater.store.store import Store
from rater.store.sweeps import PREFIX, find_sweep, load_sweep
from rater.streams import say
from rater.text.words import count
from rater.workflow.common import existing_store, print_json, show
from rater.workflow.models.model import predicting_of
from rater.workflow.models.traces import traces_of
from rater.workflow.results.divots import between_of
from rater.workflow.results.output_file import write_output
from rater.workflow.results.page import loaded
from rater.workflow.results.points import looks_of, points_from, points_without_runs
from rater.workflow.results.report import check_page
from rater.workflow.run_arguments import options_given
from rater.workflow.sweep.conduct import new
from rater.workflow.sweep.view import show_sweep

SUITE = "pages"
LAYOUTS = "0%,12.5%,25%,37.5%,50%,62.5%,75%,87.5%,100%"
QUICK_LAYOUTS = "0%,25%,50%,100%"
_QUICK = {"size": "test", "iterations": 1, "rounds": 2}
_WITH_SHOW = ("show", "y", "action", "file", "json", "db")


@dataclass(frozen=True, slots=True)
class LabPage:
    """Where the page goes."""

    file: Path | None  # None: rater-lab-pages-SWEEP.html
    vega: str | None  # as a script; None: it is not installed

    def path(self, sweep: int) -> Path:
        """Return where it goes."""
        return self.file or Path(f"rater-lab-pages-{sweep}.html")


def lab_pages(args: argparse.Namespace) -> int:
    """Sweep page layouts, or take a sweep that is stored, and tell what it came to."""
    page = _page_of(args)
    if args.show is not None:
        given = options_given(args, _WITH_SHOW)
        if given or args.command is not None:
            raise InputError(f"--show {args.show} runs nothing: leave out {' '.join(given)}")
        with existing_store(args) as store:
            _tell(page, args, store, find_sweep(store, args.show))
        return 0
    _complete(args)
    return new(args, partial(tell_ended, page))


def _page_of(args: argparse.Namespace) -> LabPage:
    """Return the page, checked before the work; raises `InputError` where it is asked for."""
    path = None if args.file is None else Path(args.file)
    if path is None and args.json:  # to programs the document alone
        return LabPage(path, None)
    if path is not None:
        check_page(path, force=False)
    try:
        return LabPage(path, library())
    except InputError:
        if path is not None:
            raise
        return LabPage(path, None)


def _complete(args: argparse.Namespace) -> None:
    """Fill in what makes a sweep of page layouts out of what was asked for."""
    layouts = args.layouts or (QUICK_LAYOUTS if args.quick else LAYOUTS)
    wanted = [parse_pages(text) for text in layouts.split(",")]
    if not any(layout.is_base for layout in wanted):
        raise InputError(
            f"--layouts {layouts}: layouts are compared with 0%, which is none of them; add it"
        )
    args.axis = [f"{PAGES}={layouts}"]
    if not args.suites and args.command is None:
        args.suites = [SUITE]
    if args.quick:
        for name, value in _QUICK.items():
            if getattr(args, name) is None:
                setattr(args, name, value)


def tell_ended(page: LabPage, args: argparse.Namespace, store: Store, sweep: int) -> None:
    """Tell what a sweep that has ended came to, however early it did."""
    slots = load_sweep(store, sweep).slots
    if len({it.slot.point for it in slots if it.done}) < 2:  # stopped: nothing to compare
        show_sweep(args, store, sweep)
    else:
        _tell(page, args, store, sweep)


def _tell(page: LabPage, args: argparse.Namespace, store: Store, sweep: int) -> None:
    """Print what a sweep came to, and write its page."""
    word = f"{PREFIX}{sweep}"
    points = points_from(store, [word])
    lab = page_lab(
        sweep,
        points,
        looks=looks_of(store, points),
        missing=points_without_runs(store, [word]),
        predicting=predicting_of(args.y),
        traces=traces_of(store, points),
    )
    path = None if args.json and page.file is None else _write(page, store, lab)
    if args.json:
        print_json(lab_document(lab) | {"file": None if path is None else str(path)})
        return
    show(args, lambda: None, partial(print_lab, lab))
    if path is None:
        say("no page: it needs vl-convert-python; `pip install 'rater[report]'` installs it")
    else:
        size = path.stat().st_size / 1e6
        print(f"\n{path.resolve()}: {count(len(lab.points), 'layout')}, {size:.1f} MB")


def _write(page: LabPage, store: Store, lab: PageLab) -> Path | None:
    """Write the page, with the pictures of a run in base pages and one with the most large ones."""
    if page.vega is None:
        return None
    shown = [lab.comparison.sides[at].runs[-1].run for at in (0, lab.largest)]
    pages = [loaded(store, run) for run in shown]
    between = between_of(store, [(it.run.head, it.divots) for it in pages if it.divots is not None])
    note = "The pictures of single copies below are of the last run of each of these two layouts: "
    labels = ", ".join(lab.comparison.sides[at].label for at in (0, lab.largest))
    together = Together(lab.comparison, None, (*lab.missing, note + labels), between, lab)
    path = page.path(lab.sweep)
    check_page(path, force=False)
    write_output(path, page_of(pages, page.vega, together).encode())
    return path
