"""`rater scale`: throughput against the number of copies."""

from __future__ import annotations

from rater.commands.common import POINTS, Subparsers, add_common, add_file, later


def register(subparsers: Subparsers) -> None:
    """Declare `rater scale`."""
    parser = subparsers.add_parser(
        "scale",
        help="throughput by copies",
        description="Report how throughput grows with the number of copies, per benchmark: "
        "speedup, efficiency against one copy and per lgroup, where it bends, flattens and falls "
        "(never from noise), the Universal Scalability Law, what second threads of cores yield, "
        "and rotated order against homogeneous. Runs that differ in more than their copies make "
        "curves of their own.",
    )
    parser.add_argument("which", metavar="RUN|SWEEP", nargs="+", help=POINTS)
    parser.add_argument(
        "--law",
        choices=("log", "rate"),
        default="log",
        help="what the law's least squares are of: the logarithms of rates (the default: noise is "
        "a share of a rate), or the rates themselves, as Gunther's examples are published",
    )
    add_file(parser, "draw the curves as well, into FILE, by its name .svg, .png or .pdf")
    add_common(parser)
    parser.set_defaults(run=later("results.scale", "scale_points"))
