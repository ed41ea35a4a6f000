"""`rater compare`: is one better than the other, by how much, and how sure is that."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from rater.commands.common import add_common
from rater.errors import InputError
from rater.text.words import some
from rater.workflow.common import existing_store, print_json
from rater.workflow.results.points import (
    NOT_DONE,
    POINTS_HELP,
    looks_of,
    points_from,
    points_without_runs,
    refuse_twice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rater.analysis.compare.model import Comparison
    from rater.analysis.results.points import Point
    from rater.store.store import Store

_NOT_JUDGED, _WORSE_FOUND = 2, 1  # exit statuses of --fail-on
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%?")
_WORSE = "worse"
_EPILOG = """\
verdicts: `better` and `worse` where the 95 % interval of the speedup excludes 1,
`same within 1 %` where it lies within the margin, else `cannot tell: N more rounds
would` (at the noise seen). Points of a sweep are compared inside its rounds. Of one
run each there is an interval of its iterations and no verdict: runs differ by more.
Rounds that it takes to call equal points `same within 1 %`, in 4 of 5 cases: 4 where
runs vary by 0.2 % (standard deviation), 8 at 0.5 %, 24 at 1 %, 87 at 2 %."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare `rater compare`."""
    parser = subparsers.add_parser(
        "compare",
        help="compare runs, tags or the points of a sweep: speedups, intervals, verdicts",
        description="Compare points with the first of them: everything that differs and is no "
        "axis, then for each benchmark and the suite the speedup (copies an hour over the "
        "baseline's) with its interval and verdict, and what became of the slow copies.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("points", metavar="POINT", nargs="+", help=POINTS_HELP)
    parser.add_argument(
        "--baseline",
        metavar="POINT|AXIS=VALUE",
        help="what the others are compared with (default: the first)",
    )
    parser.add_argument(
        "--within", metavar="P%", default="1%", help="what `same` means; default 1%%"
    )
    parser.add_argument(
        "--by",
        metavar="AXIS",
        help="of a sweep with several axes: compare the values of this one, those of the others "
        "held, in one verdict over all of them",
    )
    parser.add_argument(
        "--fail-on",
        metavar="worse[:P%]",
        help="exit with 1 where a benchmark or suite is worse (by more than P %%) with all "
        "comparisons considered (Holm), or a benchmark of the baseline has no valid result: of "
        "equal points, 1 table of 20 fails by chance; with 2 where it cannot be judged (one run "
        "of each: there is no verdict)",
    )
    parser.add_argument(
        "-o",
        dest="file",
        metavar="FILE",
        help="draw the speedups with their intervals as well, into FILE, by its name .svg, .png "
        "or .pdf",
    )
    add_common(parser)
    parser.set_defaults(run=compare_points)


def compare_points(args: argparse.Namespace) -> int:
    """Print the comparison; return the exit status."""
    from rater.analysis.compare.compare import compare
    from rater.workflow.results.output_file import checked_file

    file = None if args.file is None else checked_file(args.file)
    margin = share(args.within, "--within")
    if not margin:
        raise InputError("--within 0: nothing is the same to the last digit; expected P% above 0")
    worst = _fail_on(args.fail_on)
    with existing_store(args) as store:
        points = points_from(store, args.points)
        refuse_twice(points)
        baseline = _baseline(store, args.baseline, points)
        looks = looks_of(store, points)
        without = points_without_runs(store, args.points)
    comparison = compare(points, margin=margin, by=args.by, baseline=baseline, looks=looks)
    if file is not None:
        _draw(comparison, file)
    if args.json:
        from rater.show.compare.to_json import comparison_document

        document = comparison_document(comparison)
        print_json(document | {"points_without_runs": list(without)})
    else:
        from rich.console import Console

        from rater.show.compare.table import print_comparison
        from rater.show.console.printer import Printer

        printer = Printer(Console())
        printer.some(without, "yellow")
        print_comparison(comparison, printer)
    return 0 if worst is None else _gate(comparison, worst, without)


def _draw(comparison: Comparison, file: Path) -> None:
    from rater.show.charts.file import write_drawing
    from rater.show.charts.vega import comparison_svg, rendered_svg
    from rater.show.html.charts import comparison_data

    data = comparison_data(comparison)
    if data is None:
        raise InputError("-o: no benchmark has a valid result on both sides: nothing to draw")
    write_drawing(rendered_svg(comparison_svg(data), file.suffix.lower().removeprefix(".")), file)


def share(text: str, option: str) -> float:
    """Read `1%` or `1` as 0.01. Raises `InputError` naming the option."""
    found = _SHARE.fullmatch(text.strip())
    if found is None or float(found[1]) >= 100:
        raise InputError(f"{option} {text}: expected a number of per cent, as in {option} 1%")
    return float(found[1]) / 100


def _fail_on(text: str | None) -> float | None:
    """Return by how much worse fails: a share of the speedup; None: nothing does."""
    if text is None:
        return None
    word, colon, least = text.partition(":")
    if word != _WORSE:
        raise InputError(f"--fail-on {text}: expected worse, or worse:P% as in worse:2%")
    if not colon:
        return 0.0
    try:
        return share(least, "--fail-on")
    except InputError:
        raise InputError(
            f"--fail-on {text}: expected a number of per cent, as in --fail-on worse:2%"
        ) from None


def _gate(comparison: Comparison, least: float, without: Sequence[str]) -> int:
    """Say on stderr why it fails, or cannot be judged; return the exit status.

    `without`: points that have no runs. Those that a sweep left out, knowing why, are no obstacle.
    """
    unmade = [text for text in without if text.endswith(NOT_DONE)]
    worse = [
        f"{row.name} ({side.label})"
        for row, side, cell in comparison.verdicts()
        if cell.holds and cell.speedup is not None and cell.speedup.ratio < 1 - least
    ]
    lost = [f"{name} ({label})" for name, label in comparison.lost]
    unjudged = [f"{row.name} ({side.label})" for row, side in comparison.unjudged()]
    if worse:
        _say(f"--fail-on worse: worse: {some(worse)}")
    if lost:
        _say(f"--fail-on worse: no valid result, where the baseline has one: {some(lost)}")
    if worse or lost:
        return _WORSE_FOUND
    if unmade:
        _say(f"--fail-on worse: cannot be judged: {some(unmade)}")
        return _NOT_JUDGED
    if unjudged:
        _say(
            f"--fail-on worse: cannot be judged, one run each: {some(unjudged)}; make several "
            "runs of both, in turn (rater sweep --rounds 5), or name several: 7,8,9 10,11,12"
        )
        return _NOT_JUDGED
    if not any(cell.speedup for _, _, cell in comparison.verdicts()):
        _say("--fail-on worse: the baseline has no valid result: nothing was compared")
        return _NOT_JUDGED
    return 0


def _say(text: str) -> None:
    print(f"rater: {text}", file=sys.stderr)


def _baseline(store: Store, word: str | None, points: Sequence[Point]) -> str | None:
    """Return the label of the point that a word of the user means, or the word itself."""
    labels = {point.label for point in points}
    values = {"=".join(pair) for point in points for pair in point.values}
    if word is None or word in labels or word in values:
        return word
    return points_from(store, [word])[0].label
