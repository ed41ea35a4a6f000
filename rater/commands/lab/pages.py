"""`rater pages`: which pages a program refers to, and which data deserves large ones."""

from __future__ import annotations

import argparse

from rater.commands.common import Subparsers, add_common, add_file, later
from rater.text.units import duration_s


def register(subparsers: Subparsers) -> None:
    """Declare `rater pages`."""
    parser = subparsers.add_parser(
        "pages",
        help="trace a program's pages",
        description="Run a program once under a tracer (valgrind, with a tool that is compiled "
        "here) and report how it reuses pages of 4 KB, 64 KB, 2 MB and 1 GB, category by category: "
        "heap (blocks of malloc below 128 KB), mmap (larger ones, and its anonymous mappings), "
        "static (.data, .bss). Every mapping of these to page sizes is ranked by what it saves: "
        "TLB misses and page faults, each at what it costs on this machine.",
    )
    parser.add_argument(
        "which",
        nargs="?",
        metavar="SUITE/BENCHMARK",
        help="one benchmark of a suite; or a command behind `--`",
    )
    parser.add_argument(
        "--list", dest="listing", action="store_true", help="list the stored traces"
    )
    parser.add_argument(
        "--show",
        dest="trace",
        metavar="TRACE",
        nargs="?",
        const="last",
        help="show a stored trace again: a number, last, last~1, the start of a uuid",
    )
    parser.add_argument(
        "--size", metavar="SIZE", help="of the benchmark (default: test, else the first)"
    )
    parser.add_argument("--tune", default="base", help="whose compiler flags (default: base)")
    parser.add_argument(
        "--tlb",
        metavar="LEVELS",
        help="another TLB than this machine's: ENTRIESxWAYS for each level, as 64x4,1536x12, or by "
        "page size, as 4k/64k:64x4+2M:32x4,4k/64k/2M:1536x12",
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZES",
        default="4k,2M",
        help="the page sizes to map categories to, of 4k, 64k, 2M, 1G (default: 4k,2M)",
    )
    parser.add_argument(
        "--budget",
        metavar="N",
        type=_pages,
        help="report the best mapping with at most N large pages",
    )
    parser.add_argument(
        "--loads",
        choices=("dependent", "independent", "between"),
        default="between",
        help="what a miss costs: all of it, what is left beside other work, or the geometric mean "
        "of the two (the default)",
    )
    parser.add_argument(
        "--sample",
        metavar="RATE",
        type=_rate,
        default=1.0,
        help="follow a share of all pages only, chosen by hash (SHARDS), as 0.01: less work for "
        "large programs; its error is reported",
    )
    parser.add_argument(
        "--check",
        nargs="?",
        const="chosen",
        choices=("chosen", "all"),
        help="then run the predicted best, the worst and the all-or-nothing mappings (all: every "
        "one) with `rater run --pages`, turn by turn, and report how far the prediction is off",
    )
    parser.add_argument(
        "--rounds",
        metavar="N",
        type=_pages,
        default=9,
        help="of --check: runs of each mapping, three times the program each (default: 9)",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure anew what misses and faults cost here, instead of once a machine and "
        "kernel; with --show, rank with these costs",
    )
    parser.add_argument(
        "--timeout",
        type=duration_s,
        default=3600.0,
        metavar="S",
        help="give up on the traced run after so long (default: 3600)",
    )
    add_file(parser, "draw the histograms as well, into FILE, by its name .svg, .png or .pdf")
    add_common(parser)
    parser.set_defaults(run=later("pages.pages", "pages"))


def _pages(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 40:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def _rate(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 1e-6 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f"expected a share from 0.000001 to 1, as 0.01 or 1%, got {text!r}"
        )
    return value
