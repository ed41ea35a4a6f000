"""`rater compare`: is one better than the other, by how much, and how sure is that."""

from __future__ import annotations

from rater.commands.common import POINTS, Subparsers, add_common, add_file, later

_EPILOG = """\
verdicts: `better` and `worse` where the 95 % interval of the speedup excludes 1,
`same within 1 %` where it lies within the margin, else `inconclusive: about N more rounds
needed` (at the noise seen). Points of a sweep are compared inside its rounds. Of one
run each there is an interval of its iterations and no verdict: runs differ by more.
Rounds that it takes to call equal points `same within 1 %`, in 4 of 5 cases: 4 where
runs vary by 0.2 % (standard deviation), 8 at 0.5 %, 24 at 1 %, 87 at 2 %."""


def register(subparsers: Subparsers) -> None:
    """Declare `rater compare`."""
    parser = subparsers.add_parser(
        "compare",
        help="runs, tags or sweeps",
        description="Compare points with the first of them: everything that differs and is no "
        "axis, then for each benchmark and the suite the speedup (copies an hour over the "
        "baseline's) with its interval and verdict, and what became of the slow copies.",
        epilog=_EPILOG,
    )
    parser.add_argument("points", metavar="POINT", nargs="+", help=POINTS)
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
        "--memory",
        action="store_true",
        help="average and maximum resident memory of a copy instead: a line for each benchmark, a "
        "pair of columns for each point (one point will do)",
    )
    parser.add_argument("--csv", action="store_true", help="with --memory: as CSV, in bytes")
    parser.add_argument(
        "--fail-on",
        metavar="worse[:P%]",
        help="exit with 1 where a benchmark or suite is worse (by more than P %%) with all "
        "comparisons considered (Holm), or a benchmark of the baseline has no valid result: of "
        "equal points, 1 table of 20 fails by chance; with 2 where it cannot be judged (one run "
        "of each: there is no verdict)",
    )
    add_file(
        parser,
        "draw the speedups with their intervals as well, into FILE, by its name .svg, .png or .pdf",
    )
    add_common(parser)
    parser.set_defaults(run=later("results.compare", "compare_points"))
