"""`rater list`, `show`, `export`, `import`, `rm`: what is stored, in and out."""

from __future__ import annotations

import argparse
from pathlib import Path

from rater.command_line.parser import Parser
from rater.commands.common import (
    ALL_RUNS,
    ONE_RUN,
    RESTORE,
    Subparsers,
    add_common,
    add_run_word,
    add_topology,
    later,
)
from rater.errors import InputError


def register(subparsers: Subparsers) -> None:
    """Declare the subcommands that read and change what is stored."""
    listing = subparsers.add_parser(
        "list",
        help="the stored runs",
        description="Show the runs that are stored: what ran, when, how it ended, its score and "
        "how many divots were found.",
    )
    listing.add_argument(
        "--limit",
        metavar="N",
        type=int,
        help="the latest N runs, 0 for all (default: as many as fit on the screen; all of them "
        "with --json and where the output is no terminal)",
    )
    listing.add_argument(
        "--tag",
        metavar="KEY[=VALUE]",
        action="append",
        default=[],
        help="runs with this tag; several times: with all of them",
    )
    listing.add_argument("--host", metavar="NAME", help="runs of a host; n1* for several")
    listing.add_argument("--suite", metavar="NAME", help="runs of a suite; spec* for several")
    listing.add_argument(
        "--since",
        metavar="TIME",
        help="runs begun since a date (2026-11-20; UTC), or within 7d, 12h",
    )
    listing.set_defaults(run=later("results.listing", "list_runs"))

    show = subparsers.add_parser(
        "show",
        help="a run's results",
        description="Show the results of a run: every benchmark, where its copies and their "
        "memory were, the score.",
    )
    add_run_word(show, "?", ONE_RUN)
    show.add_argument(
        "--with",
        dest="beside",
        metavar="RUN2",
        help="of a steady run: the run in homogeneous (or rotated) mode to compare it with; "
        "default: the latest of the same copies",
    )
    show.add_argument(
        "--proof",
        dest="with_proof",
        action="store_true",
        help="with the memory of every benchmark (resident, page sizes, share on the lgroups "
        "planned) and every copy that was not placed as planned",
    )
    show.add_argument(
        "--copies",
        dest="with_copies",
        action="store_true",
        help="with the times of the copies over the median copy: median, mean, standard "
        "deviation and maximum of each benchmark and iteration, the slowest copies, and of several "
        "commands (SPEC: workloads) each one's time",
    )
    show.add_argument(
        "--baseline",
        metavar="RUN",
        help="of --copies: the run whose median copies are 1, and whose ratios stand beside "
        "this one's (default: the run itself)",
    )
    show.add_argument(
        "--baseline-iteration",
        metavar="N",
        type=int,
        help="of --copies: the median copies of this iteration alone (default: of all that count)",
    )
    show.add_argument(
        "--drop",
        metavar="K",
        type=int,
        help="of --copies: the statistics also without the K slowest copies of each iteration",
    )
    show.add_argument(
        "--cpus",
        dest="with_cpus",
        action="store_true",
        help="with what the CPUs did while copies ran: busy, work of others, time the hypervisor "
        "took, interrupts and frequency by lgroup, and the worst CPUs",
    )
    show.add_argument(
        "--counters",
        dest="with_counters",
        action="store_true",
        help="with what the hardware counted: cycles per instruction and their parts, misses, "
        "remote memory, clock (runs with --counters)",
    )
    show.set_defaults(run=later("results.show_run", "show_run"))

    export = subparsers.add_parser(
        "export",
        help="a run as CSV, JSON, ...",
        description="Write a run on stdout as text for other programs.",
    )
    add_run_word(export, text=ONE_RUN)
    export.add_argument(
        "--format",
        choices=("observations", "csv", "json", "parquet", "rsf"),
        default="observations",
        help="observations: times and places as `rater import` takes them (default); "
        "csv: a line per copy; parquet: the same with types (pip install 'rater-bench[data]'); "
        "json: everything that is stored; rsf: `key: value` lines as in SPEC CPU's raw files, "
        "marked as an estimate",
    )
    export.set_defaults(run=later("results.stored", "export_run"))

    importing = subparsers.add_parser(
        "import",
        help="runs from files",
        usage="rater import FILE...\n       rater import spec FILE... [--topology MACHINE]",
        description="Store a run from each observations document and all runs of each database of "
        "rater (as `rater merge` does), or with the word `spec` a run "
        "from each raw result file (.rsf) or log of SPEC CPU: every copy's time, where it was "
        "bound, and what the file reports beside what its times come to. What is stored already "
        "is not added again. A file that cannot be read is named and does not keep the others "
        "out; the exit status is then 2.",
    )
    importing.add_argument(
        "words",
        metavar="FILE",
        nargs=argparse.REMAINDER,  # options may stand between the files: parsed by `_import`
        help="a document, - for standard input, or a database; behind `spec` raw files and logs",
    )
    importing.add_argument(
        "--restore",
        action="store_true",
        default=argparse.SUPPRESS,
        help=f"of a database: {RESTORE}",
    )
    _topology(importing)
    importing.set_defaults(run=_import)

    remove = subparsers.add_parser(
        "rm", help="remove runs and sweeps", description="Remove runs and sweeps from the database."
    )
    remove.add_argument(
        "which",
        metavar="RUN|SWEEP",
        nargs="+",
        help=f"{ALL_RUNS}; sweep:3 or sweep:last: a sweep with all its runs",
    )
    remove.add_argument(
        "--yes", action="store_true", help="do not ask before a tag or a sweep takes several runs"
    )
    remove.set_defaults(run=later("results.stored", "remove"))

    for parser in (listing, show, export, importing, remove):
        add_common(parser)


def _topology(parser: argparse.ArgumentParser) -> None:
    add_topology(
        parser,
        "with `spec`: the machine it was measured on, which tells the lgroups of the copies' "
        "CPUs: an hwloc XML file, a description, or nodes=4x16",
        default=argparse.SUPPRESS,
    )


def _import(args: argparse.Namespace) -> int:
    words: list[str] = args.words
    spec = words[:1] == ["spec"] and (len(words) > 1 or not Path("spec").exists())
    parser = Parser(prog="rater import spec" if spec else "rater import")
    what = (
        "a raw file (.rsf) or a log" if spec else "a document or a database; - for standard input"
    )
    parser.add_argument("file", metavar="FILE", nargs="+", help=what)
    if not spec:
        parser.add_argument("--restore", action="store_true", help=f"of a database: {RESTORE}")
    _topology(parser)
    add_common(parser)
    parser.parse_intermixed_args(words[1:] if spec else words, args)
    if spec:
        return later("speccpu.import_results", "import_spec")(args)
    if hasattr(args, "topology"):
        raise InputError(
            "--topology belongs to `rater import spec FILE...`: a document has its own"
        )
    return later("results.import_documents", "import_documents")(args)
