"""Commands about stored runs: `list`, `show`, `divots`, `compare`, `report`, ..."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Protocol

from rater.commands.common import (
    ALL_RUNS,
    ONE_RUN,
    POINTS,
    RESTORE,
    Subparsers,
    add_common,
    add_doing,
    add_file,
    add_flag,
    add_force_and_share,
    add_run_word,
    add_verbose,
    call,
    lazy_command,
)
from rater.errors import InputError
from rater.process import DISTRIBUTION
from rater.record.run import is_fleet_word
from rater.text.values import parse_percent
from rater.wings import Hook


class FleetWords(Protocol):
    """What a wing does where a word means a whole fleet: as the commands of these names."""

    confirm: Callable[..., int]
    fleet_divots: Callable[..., int]
    report: Callable[..., int]


_FLEET_WORDS = Hook[FleetWords]("fleet words")


def register_results(subparsers: Subparsers) -> None:
    """Declare the subcommands that read and change what is stored."""
    listing = subparsers.add_parser(
        "list",
        description="Show the runs that are stored: what ran, when, how it ended, its score and "
        "how many divots were found.",
    )
    listing.add_argument(
        "--limit",
        metavar="N",
        type=int,
        help="the latest N runs, 0 for all (default: as many as fit on the screen; all of them "
        "with --json and if the output is no terminal)",
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
    add_common(listing, "workflow.results.listing.list_runs")

    show = subparsers.add_parser(
        "show",
        description="Show the results of a run: every benchmark, where its copies and their "
        "memory were, the score.",
    )
    add_run_word(show, "?", ONE_RUN)
    add_verbose(show)
    add_flag(
        show,
        "--proof",
        dest="with_proof",
        help="the memory of every benchmark (resident, page sizes, share on the NUMA nodes "
        "planned) and every copy that was not placed as planned",
    )
    add_flag(
        show,
        "--copies",
        dest="with_copies",
        help="the times of the copies over the median copy: median, mean, standard "
        "deviation and maximum of each benchmark and iteration, the slowest copies, and of several "
        "commands (SPEC: workloads) each one's time",
    )
    show.add_argument(
        "--baseline",
        metavar="RUN",
        help="of --copies: the run whose median copies are 1, with its ratios next to this run's "
        "(default: the run itself)",
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
    add_flag(
        show,
        "--cpus",
        dest="with_cpus",
        help="what the CPUs did while copies ran: busy, work of others, time the hypervisor "
        "took, interrupts and frequency by NUMA node, and the worst CPUs",
    )
    add_flag(
        show,
        "--counters",
        dest="with_counters",
        help="what the hardware counted: cycles per instruction and their parts, misses, "
        "remote memory, clock (runs with --counters)",
    )
    add_common(show, "workflow.results.stored.show_run")

    export = subparsers.add_parser(
        "export",
        description="Write a run on stdout as text for other programs.",
    )
    add_run_word(export, text=ONE_RUN)
    export.add_argument(
        "--format",
        choices=("observations", "csv", "json", "parquet"),
        default="observations",
        help="observations: times and places as `rater import` takes them (default); "
        f"csv: a line per copy; parquet: the same with types (pip install '{DISTRIBUTION}[data]'); "
        "json: everything that is stored",
    )
    add_common(export, "workflow.results.stored.export_run")

    importing = subparsers.add_parser(
        "import",
        description="Store a run from each observations document and all runs of each database of "
        "rater. What is stored already is not added again. A file that cannot be read is named "
        "and does not keep the others out; the exit status is then 2. Results of SPEC CPU: "
        "`rater spec import`.",
    )
    importing.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a document, - for standard input, or a database",
    )
    add_flag(importing, "--restore", help=f"of a database: {RESTORE}")
    add_common(importing, "workflow.results.stored.import_documents")

    remove = subparsers.add_parser("rm", description="Remove runs and sweeps from the database.")
    remove.add_argument(
        "which",
        metavar="RUN|SWEEP",
        nargs="+",
        help=f"{ALL_RUNS}; sweep:3 or sweep:last: a sweep with all its runs",
    )
    add_flag(remove, "--yes", help="do not ask before a tag or a sweep takes several runs")
    add_common(remove, "workflow.results.stored.remove")


_ANY = "any"
_GROUP = 1.5  # per cent, as in `divots.data.finding.Thresholds`: too much to load for --help
_COPY = 3.0
_TRIAL_ONLY = ("finding", "pairs", "dry_run", "force", "share", "wait", "quiet")


def register_divots(subparsers: Subparsers) -> None:
    """Declare `rater divots`."""
    parser = subparsers.add_parser(
        "divots",
        description="Report what is slow in a run (or fast), where, by how much and what it costs; "
        "with several runs also what comes back in the same place; with fleet:N which of its hosts "
        "are slow.",
    )
    add_run_word(parser, "*")
    add_flag(parser, "--fresh", help="search again, whatever is stored of it")
    parser.add_argument(
        "--threshold-group",
        metavar="P",
        type=_per_cent,
        default=_GROUP / 100,
        help=f"smallest slowdown of a part of the machine that counts, in %% (default: {_GROUP:g})",
    )
    parser.add_argument(
        "--threshold-copy",
        metavar="P",
        type=_per_cent,
        default=_COPY / 100,
        help=f"smallest slowdown of a single copy that counts, in %% (default: {_COPY:g})",
    )
    parser.add_argument(
        "--fail-on",
        metavar="KIND[:P]",
        action="append",
        default=[],
        help="exit 1 if there is a divot of this kind of P %% or more (slow-lgroup:2%%, "
        f"{_ANY}:5%%), or every copy of a run failed, 3 where there is none but a run was too "
        "disturbed to judge; with fleet:N slow-host:5%%, 3 where hosts are missing or cannot be "
        "judged; may be given several times",
    )
    add_flag(parser, "-v", "--verbose", help="also what is found in a disturbed run")
    trial = parser.add_argument_group("confirm a divot")
    trial.add_argument(
        "--confirm",
        metavar="RUN",
        help="run the divot's benchmarks alternately on its CPUs and on comparable CPUs, and "
        "report whether it comes back; exits 0 if so; fleet:N: run its slow hosts again, each "
        "beside a quiet one",
    )
    trial.add_argument(
        "--finding", metavar="N", type=int, help="which divot of the run, as numbered; default 1"
    )
    trial.add_argument("--pairs", metavar="K", type=int, help="runs of each side; default 5")
    add_force_and_share(trial)
    add_doing(trial, "show what would run; run nothing", "no progress")
    parser.set_defaults(run=_divots)
    add_common(parser)


def _per_cent(text: str) -> float:
    value = parse_percent(text, 1000)
    if not value:
        raise ValueError(f"{text!r}: expected per cent above 0, such as 1.5")
    return value


def _divots(args: argparse.Namespace) -> int:
    if args.confirm is not None:
        given = [*args.which, *(["--fail-on"] if args.fail_on else [])]
        if given:
            raise InputError(f"--confirm {args.confirm}: leave out {' '.join(given)}")
        if is_fleet_word(args.confirm) and "/" not in args.confirm:
            return call(_FLEET_WORDS().confirm, args)
        return lazy_command("workflow.run.confirm", "confirm")(args)
    given = [name for name in _TRIAL_ONLY if getattr(args, name) not in (None, False)]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise InputError(f"{option} belongs to --confirm RUN: `rater divots --confirm last ...`")
    if any(is_fleet_word(word) and "/" not in word for word in args.which):
        return call(_FLEET_WORDS().fleet_divots, args)
    return lazy_command("workflow.results.divots", "find_divots")(args)


def register_plot(subparsers: Subparsers) -> None:
    """Declare `rater show plot`."""
    parser = subparsers.add_parser(
        "show plot",
        description="Draw the time of every copy, grouped by NUMA node: one benchmark, or a small "
        "panel for each benchmark of the run. Slow parts have their names beside them.",
    )
    add_run_word(parser, "*")
    parser.add_argument("--benchmark", metavar="B", help="only this one (or the part of a name)")
    parser.add_argument(
        "--iteration", metavar="I", type=int, help="only this one (default: all that count)"
    )
    add_file(parser, "draw into FILE, by its name .svg, .png or .pdf (default: in the terminal)")
    other = parser.add_mutually_exclusive_group()
    add_flag(
        other,
        "--machine",
        help="the machine instead, each CPU coloured by the slowdown of its copies (with -o)",
    )
    add_flag(
        other,
        "--timeline",
        help="who ran when instead: of the bracket of --benchmark and --iteration, else of the "
        "one that lost most (with -o)",
    )
    add_flag(
        other,
        "--cpi",
        help="the cycles of an instruction and their parts instead (runs with --counters), a bar "
        "for each benchmark; of several RUNs, or points as of `compare`, in %% of the first one's",
    )
    add_common(parser, "workflow.results.plot.plot")


def register_report(subparsers: Subparsers) -> None:
    """Declare `rater report`."""
    parser = subparsers.add_parser(
        "report",
        description="Write one HTML page: what ran, what is slow and where, with a "
        "picture of every copy's time, the machine coloured by slowdown, who ran when, and all "
        "tables. It needs no network and no other file.",
    )
    parser.add_argument(
        "which",
        metavar="POINT",
        nargs="*",
        default=[],
        help=f"{POINTS}; of several the first is what the others are compared with (default: "
        "last); or fleet:N: all hosts of a fleet",
    )
    add_file(
        parser,
        "the page; - is standard output (default: rater-report-RUN.html in the current directory)",
    )
    add_flag(parser, "--force", help="write over FILE though rater did not make it")
    parser.set_defaults(run=_report)
    add_common(parser)


def _report(args: argparse.Namespace) -> int:
    if any(is_fleet_word(word) and "/" not in word for word in args.which):
        return call(_FLEET_WORDS().report, args)
    return lazy_command("workflow.results.report", "report")(args)


_EPILOG = """\
verdicts: `better` and `worse` where the 95 % interval of the speedup excludes 1,
`same within 1 %` if it lies within the margin, else `inconclusive: about N more rounds
needed` (at the noise seen). Points of a sweep are compared inside its rounds. Of one
run each there is an interval of its iterations and no verdict: runs differ by more.
Rounds that it takes to call equal points `same within 1 %`, in 4 of 5 cases: 4 where
runs vary by 0.2 % (standard deviation), 8 at 0.5 %, 24 at 1 %, 87 at 2 %."""


def register_compare(subparsers: Subparsers) -> None:
    """Declare `rater compare`."""
    parser = subparsers.add_parser(
        "compare",
        description="Compare points with the first of them: everything that differs and is no "
        "axis, then for each benchmark and the suite the speedup (copies an hour over the "
        "baseline's) with its interval and verdict, and how the slowest copies changed.",
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
        metavar="AXIS|cpu",
        action="append",
        default=[],
        help="of a sweep with several axes: compare the values of this one, those of the others "
        "held, in one verdict over all of them; cpu: compare CPU time, as is done unasked where "
        "others took the CPU of programs that are bound by it; may be given with both",
    )
    add_flag(
        parser,
        "--memory",
        help="average and maximum resident memory of a copy instead: a line for each benchmark, a "
        "pair of columns for each point (one point will do)",
    )
    add_flag(parser, "--csv", help="with --memory: as CSV, in bytes")
    parser.add_argument(
        "--fail-on",
        metavar="worse[:P%]",
        help="exit with 1 if a benchmark or suite is worse (by more than P %%) with all "
        "comparisons considered (Holm), or a benchmark of the baseline has no valid result: of "
        "equal points, 1 table of 20 fails by chance; with 3 if it cannot be judged (one run "
        "of each, or most runs were disturbed: there is no verdict)",
    )
    add_file(
        parser,
        "draw the speedups with their intervals as well, into FILE, by its name .svg, .png or .pdf",
    )
    add_common(parser, "workflow.results.compare.compare_points", tables=True)


def register_scale(subparsers: Subparsers) -> None:
    """Declare `rater scale`."""
    parser = subparsers.add_parser(
        "scale",
        description="Report how throughput grows with the number of copies, per benchmark: "
        "speedup, efficiency against one copy and per NUMA node, where it bends, "
        "flattens and falls (never from noise), the Universal Scalability Law, what second threads "
        "of cores yield, and rotated order against homogeneous. Runs that differ in more than "
        "their copies make curves of their own.",
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
    add_common(parser, "workflow.results.report.scale_points", tables=True)
