"""`rater divots`: what is slow in runs, and what comes back in the same place."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median

from rater.analysis.divots.data.between import Between
from rater.analysis.divots.data.finding import Finding, Kind, Thresholds
from rater.errors import InputError
from rater.show.console.printer import Printer
from rater.show.divots.findings import print_between, print_divots
from rater.show.divots.to_json import divots_document
from rater.streams import say
from rater.text.words import parse_percent
from rater.workflow.common import show, store_to_read
from rater.workflow.results.divots import analysis_of, between_of

ANY = "any"
MOST_PER_CENT = 1000
NOT_JUDGED = 3  # exit status: too much disturbed a run to say that it has no such divot


def find_divots(args: argparse.Namespace) -> int:
    """Print what is slow in the runs; 1 where --fail-on says so, 3 where that cannot be judged."""
    limits = [_limit(text) for text in args.fail_on]
    thresholds = Thresholds(args.threshold_group, args.threshold_copy)
    with store_to_read(args) as store:
        numbers = list(
            dict.fromkeys(n for spec in args.which or ["last"] for n in store.find_all(spec))
        )
        heads = {head.run: head for head in store.runs(numbers)}
        runs = [
            (heads[number], analysis_of(store, heads[number], thresholds, fresh=args.fresh))
            for number in numbers
        ]
        between = between_of(store, runs)
        judged = [(head, analysis) for head, analysis in runs if not analysis.disturbed]
        sure = between if len(judged) == len(runs) else between_of(store, judged)

    def text(printer: Printer) -> None:
        for head, analysis in runs:
            print_divots(head, analysis, printer.console)
        if len(runs) > 1:
            print_between(between, len(runs), printer.console)

    show(args, lambda: divots_document(runs, between), text)
    status = _status(limits, [one for _, it in judged for one in it.findings], sure)
    if status or not limits or len(judged) == len(runs):
        return status
    for head, analysis in runs:
        if analysis.disturbed:
            say(f"--fail-on: run {head.run} cannot be judged: {'; '.join(analysis.disturbed)}")
    return NOT_JUDGED


def _limit(text: str) -> tuple[str, float]:
    """Return the kind and the least slowdown of `slow-lgroup:2%`."""
    kind, colon, size = text.partition(":")
    kinds = [str(one) for one in Kind if one is not Kind.LAYOUT]
    if kind not in (*kinds, ANY):
        raise InputError(f"--fail-on {text}: no kind of divot; expected {ANY}, {', '.join(kinds)}")
    least = parse_percent(size, MOST_PER_CENT) if colon else 0.0
    if least is None or (colon and not least):
        raise InputError(f"--fail-on {text}: {size!r}: expected per cent above 0, such as 1.5")
    return kind, least


def _status(
    limits: Sequence[tuple[str, float]], findings: Sequence[Finding], between: Sequence[Between]
) -> int:
    sizes = [(one.kind, one.place, *_largest(one)) for one in findings if not one.explained]
    sizes += [(one.kind, one.places[0].place, one.slowdown, "") for one in between]
    for kind, least in limits:
        for of, place, size, where in sizes:
            if kind not in (of, ANY) or (kind.startswith("slow-") and size < 1):
                continue  # a faster lgroup is no slow group, whatever its kind is called
            if abs(size - 1) >= least:
                say(f"--fail-on {kind}: {place} ({where}{(size - 1) * 100:+.1f} %)")
                return 1
    return 0


def _largest(one: Finding) -> tuple[float, str]:
    """Return the largest slowdown of a finding that its sentence stands for, and of what it is.

    The typical one, or that of one benchmark or copy over its iterations: a single
    iteration of three is no more than its noise.
    """
    by_part: dict[str, list[float]] = {}
    for cell in one.cells:
        by_part.setdefault(f"{cell.benchmark} ", []).append(cell.slowdown)
    for single in one.singles:
        name = f"copy {single.copy} of {single.benchmark} "
        by_part.setdefault(name, []).append(single.slowdown)
    largest, where = one.slowdown, ""
    for name, sizes in by_part.items():
        if abs(median(sizes) - 1) > abs(largest - 1):
            largest, where = median(sizes), name
    return largest, where
