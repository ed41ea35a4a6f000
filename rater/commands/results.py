"""Commands about stored runs: `list`, `show`, `divots`, `compare`, `report`, ..."""

from __future__ import annotations

from argparse import Namespace
from typing import Protocol

from rater.commands.common import (
    ALL_RUNS,
    ONE_RUN,
    POINTS,
    RESTORE,
    RUN,
    START,
    VERBOSE,
    Subcommand,
    output_of,
    start_options_of,
)
from rater.record.run import is_fleet_word
from rater.system.errors import InputError
from rater.system.process import DISTRIBUTION
from rater.text.values import parse_percent
from rater.wings import Hook
from rater.workflow.arguments import Output


class FleetWords(Protocol):
    """Use cases of a wing for words that mean a whole fleet."""

    def confirm(self, output: Output, confirm: str, finding: int | None, pairs: int | None) -> int:
        """Run the slow hosts of a fleet again, each beside a quiet one."""

    def fleet_divots(
        self,
        output: Output,
        run_words: tuple[str, ...],
        *,
        fail_on: tuple[str, ...],
        threshold_group: float,
        threshold_copy: float,
        against: str | None,
    ) -> int:
        """Report which hosts of a fleet are slow, among themselves or against another fleet's.

        Thresholds are in per cent.
        """

    def report(
        self, output: Output, run_words: tuple[str, ...], file: str | None, force: bool
    ) -> int:
        """Write the page of a fleet."""


_FLEET_WORDS = Hook[FleetWords]("fleet words")


_ANY = "any"
_GROUP = (
    1.5  # per cent, as in `Thresholds` of model/finding.py, which is too much to load for --help
)
_COPY = 3.0
_TRIAL_ONLY = ("finding", "pairs", "dry_run", "force", "share", "wait", "quiet")


def _per_cent(text: str) -> float:
    value = parse_percent(text, 1000)
    if not value:
        raise ValueError(f"{text!r}: expected per cent above 0, such as 1.5")
    return value


def _is_whole_fleet(word: str) -> bool:
    """Tell whether a word means all hosts of a fleet (`fleet:3`), not one (`fleet:3/n017`)."""
    return is_fleet_word(word) and "/" not in word


def _divots(arguments: Namespace) -> int:
    if arguments.confirm is not None:
        return _confirm(arguments)
    trial_options = [name for name in _TRIAL_ONLY if getattr(arguments, name) not in (None, False)]
    if trial_options:
        option = f"--{trial_options[0].replace('_', '-')}"
        raise InputError(f"{option} belongs to --confirm RUN: `rater divots --confirm last ...`")
    if any(map(_is_whole_fleet, arguments.which)):
        return _FLEET_WORDS().fleet_divots(
            output_of(arguments),
            run_words=tuple(arguments.which),
            fail_on=tuple(arguments.fail_on),
            threshold_group=arguments.threshold_group,
            threshold_copy=arguments.threshold_copy,
            against=arguments.against,
        )
    if arguments.format == "nodelist":
        raise InputError("--format nodelist belongs to fleet:N: `rater divots fleet:3`")
    if arguments.against is not None:
        raise InputError("--against belongs to fleet:N: `rater divots fleet:4 --against fleet:3`")
    from rater.workflow.results.divots import find_divots

    return find_divots(
        output_of(arguments),
        run_words=tuple(arguments.which),
        fail_on=tuple(arguments.fail_on),
        threshold_group=arguments.threshold_group,
        threshold_copy=arguments.threshold_copy,
        fresh=arguments.fresh,
    )


def _confirm(arguments: Namespace) -> int:
    needless = [*arguments.which, *(["--fail-on"] if arguments.fail_on else [])]
    needless += ["--against"] if arguments.against is not None else []
    if needless:
        raise InputError(f"--confirm {arguments.confirm}: leave out {' '.join(needless)}")
    if _is_whole_fleet(arguments.confirm):
        return _FLEET_WORDS().confirm(
            output_of(arguments),
            confirm=arguments.confirm,
            finding=arguments.finding,
            pairs=arguments.pairs,
        )
    from rater.workflow.run.confirm import ConfirmOptions, confirm

    return confirm(
        output_of(arguments),
        options=ConfirmOptions(
            confirm=arguments.confirm,
            finding=arguments.finding,
            pairs=arguments.pairs,
            fresh=arguments.fresh,
        ),
        start_options=start_options_of(arguments),
    )


def _report(arguments: Namespace) -> int:
    run_words = tuple(arguments.which)
    if any(map(_is_whole_fleet, run_words)):
        if arguments.by is not None:
            raise InputError(f"--by {arguments.by}: is of runs, not of whole fleets; leave it out")
        return _FLEET_WORDS().report(
            output_of(arguments), run_words=run_words, file=arguments.file, force=arguments.force
        )
    from rater.workflow.results.report import report

    return report(
        output_of(arguments),
        run_words=run_words,
        file=arguments.file,
        by=arguments.by,
        force=arguments.force,
    )


def _list_runs(arguments: Namespace) -> int:
    from rater.workflow.results.listing import ListOptions, list_runs

    return list_runs(
        output_of(arguments),
        options=ListOptions(
            limit=arguments.limit,
            tag=tuple(arguments.tag),
            host=arguments.host,
            suite=arguments.suite,
            since=arguments.since,
        ),
    )


def _show_run(arguments: Namespace) -> int:
    from rater.workflow.results.stored import CopiesOptions, show_run

    return show_run(
        output_of(arguments),
        run_word=arguments.which,
        of_copies=CopiesOptions(
            baseline=arguments.baseline,
            baseline_iteration=arguments.baseline_iteration,
            drop=arguments.drop,
        ),
        with_proof=arguments.with_proof,
        with_copies=arguments.with_copies,
        sort=arguments.sort,
        with_cpus=arguments.with_cpus,
        with_counters=arguments.with_counters,
    )


def _plot(arguments: Namespace) -> int:
    from rater.workflow.results.plot import PlotOptions, plot

    return plot(
        output_of(arguments),
        run_words=tuple(arguments.which),
        options=PlotOptions(
            benchmark=arguments.benchmark,
            iteration=arguments.iteration,
            file=arguments.file,
            machine=arguments.machine,
            timeline=arguments.timeline,
            cpi=arguments.cpi,
            scatter=arguments.scatter,
            ranks=arguments.ranks,
            time=arguments.time,
            by=arguments.by,
        ),
    )


def _export_run(arguments: Namespace) -> int:
    from rater.workflow.results.exports import export_runs

    return export_runs(output_of(arguments), words=tuple(arguments.which))


def _make_bundle(arguments: Namespace) -> int:
    from rater.workflow.results.bundle import make_bundle

    return make_bundle(
        output_of(arguments),
        run_words=tuple(arguments.which),
        file=arguments.file,
        force=arguments.force,
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise ValueError(f"{text!r}: expected NAME=VALUE")
    return name, value


def _columns(text: str) -> list[tuple[str, str]]:
    """Read WHAT=COLUMN,...; a comma of a column's own name is written twice."""
    words = text.replace(",,", "\0").split(",")
    return [_pair(word.replace("\0", ",")) for word in words]


def _import_documents(arguments: Namespace) -> int:
    from rater.workflow.results.stored import ImportOptions, import_documents

    is_table = arguments.csv or arguments.column
    typed = [column for columns in arguments.column for column in columns]
    columns = dict(typed)
    for word in columns:
        if [other for other, _ in typed].count(word) > 1:
            raise InputError(f"--column {word}=: two columns are given for it; name one")
    return import_documents(
        output_of(arguments),
        files=tuple(arguments.files),
        options=ImportOptions(
            restore=arguments.restore,
            columns=columns if is_table else None,
            tags=dict(arguments.tag),
        ),
    )


def _remove(arguments: Namespace) -> int:
    from rater.workflow.results.stored import remove

    return remove(output_of(arguments), run_words=tuple(arguments.which), yes=arguments.yes)


def _compare(arguments: Namespace) -> int:
    from rater.workflow.results.compare import CompareOptions, compare_points

    return compare_points(
        output_of(arguments),
        options=CompareOptions(
            points=tuple(arguments.points),
            baseline=arguments.baseline,
            within=arguments.within,
            by=tuple(arguments.by),
            memory=arguments.memory,
            csv=arguments.csv,
            fail_on=arguments.fail_on,
            file=arguments.file,
        ),
    )


def _scale(arguments: Namespace) -> int:
    from rater.workflow.results.report import scale_points

    return scale_points(
        output_of(arguments),
        run_words=tuple(arguments.which),
        file=arguments.file,
        law=arguments.law,
        by=arguments.by,
    )


def _history(arguments: Namespace) -> int:
    from rater.workflow.results.history import HistoryOptions, history

    return history(
        output_of(arguments),
        options=HistoryOptions(
            name=arguments.name,
            by=tuple(arguments.by),
            within=arguments.within,
            host=arguments.host,
            since=arguments.since,
            limit=arguments.limit,
            file=arguments.file,
            force=arguments.force,
        ),
    )


_EPILOG = """\
verdicts: `better` and `worse` where the 95 % interval of the speedup excludes 1,
`same within 1 %` if it lies within the margin, else `inconclusive: about N more rounds
needed` (at the noise seen). Points of a sweep are compared inside its rounds. Of one
run each there is neither interval nor verdict: how far runs differ is not known.
Rounds that it takes to call equal points `same within 1 %`, in 4 of 5 cases: 4 where
runs vary by 0.2 % (standard deviation), 8 at 0.5 %, 24 at 1 %, 87 at 2 %."""


COMMANDS = {
    "list": Subcommand(
        run=_list_runs,
        arguments="""
--limit N:int        the latest N runs, 0 for all (default: as many as fit on the screen, 100 if the
                     output is no terminal, all of them with --json)
--tag KEY[=VALUE] ...  runs with this tag; several times: with all of them
--host NAME          runs of a host; n1* for several
--suite NAME         runs of a suite; spec* for several
--since TIME         runs begun since a date (2026-11-20; UTC), or within 7d, 12h
$ rater list                      # the latest runs
$ rater list --since 7d --host 'n1*' --tag thp=always
$ rater list --limit 0 --json     # all runs, for programs
""",
        description="Show the runs that are stored: what ran, when, how it ended, its score and "
        "how many divots were found.",
    ),
    "show": Subcommand(
        run=_show_run,
        arguments=f"""
RUN? >which =last    {ONE_RUN} (default: last)
{VERBOSE}
--proof >with_proof  the memory of every benchmark (resident, page sizes, share on the NUMA nodes
                     planned) and every copy that was not placed as planned
--copies >with_copies  a row a copy (with -v for each iteration): CPU, time, CPU time, for whom it
                     waited, sleep, memory, faults, metrics, exit; the times of the copies over the
                     median copy of each benchmark and iteration; of several commands (SPEC:
                     workloads) each one's time
--format (openmetrics)  the results as gauges of OpenMetrics, for a monitor
--sort COLUMN        of --copies: time, median (default), cpu-time, waited, own, others, slept,
                     memory, faults or a metric, largest first; copy, cpu, node or exit, smallest
                     first; --sort=-COLUMN the other way round
--baseline RUN       of --copies: the run whose median copies are 1, with its ratios next to this
                     run's (default: the run itself)
--baseline-iteration N:int  of --copies: the median copies of this iteration alone (default: of all
                     that count)
--drop K:int         of --copies: the statistics also without the K slowest copies of each iteration
--cpus >with_cpus    what the CPUs did while copies ran: busy, work of others, time the hypervisor
                     took, interrupts and frequency by NUMA node, and the worst CPUs
--counters >with_counters  what the hardware counted: cycles per instruction and their parts,
                     misses, remote memory, clock (runs with --counters)
$ rater show last
$ rater show 7 --copies           # every copy's time over the median copy
$ rater show 7 --proof            # where memory and copies really were
""",
        description="Show the results of a run: every benchmark, where its copies and their "
        "memory were, the score.",
    ),
    "export": Subcommand(
        run=_export_run,
        arguments=f"""
RUN|POINT+ >which    {ONE_RUN}; with --format csv several: runs, sweep:3, tag:build=old
--format (observations|csv|json|parquet|trace) =observations
                     observations: times and places as `rater import` takes them (default); csv: a
                     line per copy; parquet: the same with types (pip install
                     '{DISTRIBUTION}[data]'); json: everything that is stored; trace: copies as
                     slices and series as counters, for Perfetto (ui.perfetto.dev) and Chrome
$ rater export 7 --format csv > run7.csv
$ rater export sweep:3 --format csv > sweep3.csv  # with a column for the point
$ rater export 7 --format trace > run7.trace.json  # open it in ui.perfetto.dev
$ rater export last               # as `rater import` reads it
""",
        description="Write a run, or the copies of several, on stdout as text for other programs.",
    ),
    "bundle": Subcommand(
        run=_make_bundle,
        arguments=f"""
RUN* >which          {ALL_RUNS} (default: last)
-o FILE >file        the zip (default: rater-RUN.zip in the current directory)
--force              write over FILE
$ rater bundle last -o slow-node.zip
$ rater bundle tag:checkup=1f3a90c2
$ rater import slow-node.zip
""",
        description="Write runs with all that is known of them as one zip: rows, facts, topology "
        "of the machine, the report, and how to make them again; secrets are left out. `rater "
        "import FILE` takes it in elsewhere, and `rater rerun RUN --dry-run` there names what "
        "differs.",
    ),
    "import": Subcommand(
        run=_import_documents,
        arguments=f"""
FILE+ >files         a document, - for standard input, a database, or a zip of `rater
                     bundle`
--tag KEY=VALUE:pair ...  a tag of every run that is read
--csv                a table: a line a copy run, below a heading with the names of columns
--column WHAT=COLUMN[,...]:columns ...  of a table: which column is the benchmark, the time
                     (time_ms, time_us, time_ns), iteration, copy, cpu, node, start, cpu_time,
                     category (int, fp), reference, joules, metric:NAME, count:NAME; run, host and
                     tag:NAME divide the table into runs
--restore            of a database: {RESTORE}
$ rater import times.json more.json
$ rater import other-machine.db   # all its runs, as `rater fleet merge` does
$ rater import hyperfine.json --tag build=old
$ rater import times.csv --csv --column benchmark=name,time=seconds
""",
        types={"pair": _pair, "columns": _columns},
        description="Store a run from each observations document, from each result file of "
        "hyperfine, pyperf, Google benchmark (JSON) or BenchExec (XML), from a table, and all "
        "runs of each database of rater. What is stored already is not added again. A file that "
        "cannot be read is named and does not keep the others out; the exit status is then 2. "
        "Results of SPEC CPU: `rater spec import`.",
    ),
    "rm": Subcommand(
        run=_remove,
        arguments=f"""
RUN|SWEEP+ >which    {ALL_RUNS}; sweep:3 or sweep:last: a sweep with all its runs
--yes                do not ask before a tag or a sweep takes several runs
$ rater rm 7 8
$ rater rm tag:trial=yes --yes
$ rater rm sweep:3 --yes
""",
        description="Remove runs and sweeps from the database.",
    ),
    "divots": Subcommand(
        run=_divots,
        arguments=f"""
RUN* >which          {RUN} (default: last)
--fresh              search again, whatever is stored of it
--threshold-group P:per_cent ={_GROUP:g}  smallest slowdown of a part of the machine that counts, in
                     %% (default: {_GROUP:g})
--threshold-copy P:per_cent ={_COPY:g}  smallest slowdown of a single copy that counts, in %%
                     (default: {_COPY:g})
--fail-on KIND[:P] ...  exit 1 if there is a divot of this kind of P %% or more (slow-lgroup:2%%,
                     {_ANY}:5%%), or every copy of a run failed, 3 where one of P %% is not
                     excluded: noise or other processes hide it; with fleet:N slow-host:5%% (in all
                     benchmarks or in one) or slow-throughout:5%% (in all), 3 where a host is
                     missing; may be given several times
--against FLEET      with fleet:N: judge its hosts against those of another fleet of the same kind
                     (fleet:3), as one new host, or a fleet that is slow as a whole
--format (nodelist|junit|github|openmetrics)  nodelist, with fleet:N: its slow hosts alone, in one
                     word as Slurm takes them; the others: each run and gate as CI systems read it
-v, --verbose        also what is found in a disturbed run
confirm a divot:
--confirm RUN        run the divot's benchmarks alternately on its CPUs and on comparable CPUs, and
                     report whether it comes back; exits 0 if so; fleet:N: run its slow hosts again,
                     each beside a quiet one
--finding N:int      which divot of the run, as numbered; default 1
--pairs K:int        runs of each side; default 5
{START}
--dry-run            show what would run; run nothing
--quiet              no progress
$ rater divots                    # of the last run
$ rater divots 12 13 14           # what comes back, what moves about
$ rater divots 12 --fail-on slow-lgroup:2%
$ rater divots --confirm 12       # run the slow place against another like it
""",
        types={"per_cent": _per_cent},
        description="Report what is slow in a run (or fast), where, by how much and what it costs; "
        "with several runs also what comes back in the same place; with fleet:N which of its hosts "
        "are slow.",
    ),
    "show plot": Subcommand(
        run=_plot,
        arguments=f"""
RUN* >which          {RUN} (default: last); two RUNs: copies of the first grey, of the second black,
                     laid over each other by CPU, else by copy
--benchmark B        only this one (or the part of a name)
--iteration I:int    only this one (default: all that count)
--by METRIC|cpu      the number of this name that copies report (`rater run --metric`), or their CPU
                     time, in place of their times
-o FILE >file        draw into FILE, by its name .svg, .png or .pdf (default: in the terminal)
--scatter            of two RUNs: a dot for each copy, the time in the second over that in the first
                     (with -o)
--ranks              of two RUNs: copies in the order of their times, a curve each (with -o)
either:
--machine            the machine instead, each CPU coloured by the slowdown of its copies, of two
                     RUNs by how those of --benchmark, else of the one that changed most, did
                     (with -o)
--timeline           who ran when instead: of the bracket of --benchmark and --iteration, else of
                     the one that lost most (with -o)
--time               what CPUs, memory, disks and copies did over time instead (runs that kept
                     series: see `run --series`), a block for each bracket
--cpi                the cycles of an instruction and their parts instead (runs with --counters), a
                     bar for each benchmark; of several RUNs, or points as of `compare`, in %% of
                     the first one's
$ rater show plot last
$ rater show plot 7 -o run7.svg
$ rater show plot 7 --by bandwidth
$ rater show plot 7 8             # before and after in one picture
""",
        description="Draw the time of every copy, grouped by NUMA node: one benchmark, or a small "
        "panel for each benchmark of the run. Slow parts have their names beside them.",
    ),
    "report": Subcommand(
        run=_report,
        arguments=f"""
POINT* >which        {POINTS}; of several the first is what the others are compared with (default:
                     last); or fleet:N: all hosts of a fleet
--by METRIC|cpu      pictures of copies and of the machine are of the number of this name that
                     copies report, or of their CPU time, in place of their times
-o FILE >file        the page; - is standard output (default: rater-report-RUN.html in the current
                     directory)
--force              write over FILE though rater did not make it
$ rater report last -o run.html
""",
        description="Write one HTML page: what ran, what is slow and where, with a "
        "picture of every copy's time, the machine coloured by slowdown, who ran when, and all "
        "tables. It needs no network and no other file.",
    ),
    "compare": Subcommand(
        run=_compare,
        arguments=f"""
POINT+ >points       {POINTS}
--baseline POINT|AXIS=VALUE  what the others are compared with (default: the first)
--within P% =1%      what `same` means; default 1%%
--by METRIC|AXIS|cpu ...  METRIC: compare the number of this name that programs report (`rater run
                     --metric`), in place of their times; AXIS: of a sweep with several axes compare
                     the values of this one, those of the others held, in one verdict over all of
                     them; cpu: compare CPU time, as is done unasked where others took the CPU of
                     programs that are bound by it. An axis may stand beside a measure
-v, --verbose        also the values by elapsed time of what is judged by CPU time
--memory             average and maximum resident memory of a copy instead: a line for each
                     benchmark, a pair of columns for each point (one point will do)
--csv                with --memory: as CSV, in bytes
--fail-on worse[:P%]  exit with 1 if a benchmark or suite is worse (by more than P %%) with all
                     comparisons considered (Holm), or a benchmark of the baseline has no valid
                     result: of equal points, 1 table of 20 fails by chance; with 3 if it cannot be
                     judged (one run of each, or most runs were disturbed: there is no verdict)
-o FILE >file        draw the speedups with their intervals as well, into FILE, by its name .svg,
                     .png or .pdf
$ rater compare 7 8
$ rater compare tag:build=old tag:build=new
$ rater compare sweep:last
""",
        tables=True,
        gates=True,
        description="Compare points with the first of them: everything that differs and is no "
        "axis, then for each benchmark and the suite the speedup (copies an hour over the "
        "baseline's) with its interval and verdict, and how the slowest copies changed.",
        epilog=_EPILOG,
    ),
    "scale": Subcommand(
        run=_scale,
        arguments=f"""
RUN|SWEEP+ >which    {POINTS}
--by METRIC          the number of this name that programs report (`rater run --metric`), of all
                     copies together, in place of their times
--law (log|rate) =log  what the law's least squares are of: the logarithms of rates (the default:
                     noise is a share of a rate), or the rates themselves, as Gunther's examples are
                     published
-o FILE >file        draw the curves as well, into FILE, by its name .svg, .png or .pdf
$ rater scale sweep:last
""",
        tables=True,
        description="Report how throughput grows with the number of copies, per benchmark: "
        "speedup, efficiency against one copy and per NUMA node, where it bends, flattens and "
        "falls (never from noise), the Universal Scalability Law, what second threads of cores "
        "yield, and rotated order against homogeneous. Runs that differ in more than their copies "
        "make curves of their own.",
    ),
    "history": Subcommand(
        run=_history,
        arguments="""
BENCHMARK >name      its name, or SUITE/BENCHMARK
--by day|commit|tag:K|run|session|cpu|METRIC ...  what makes runs a point: a day (UTC), a value of
                     the tag `commit` or K, a run, or a session (an hour without a run parts two;
                     the default where there are six, else a run); beside it the measure, as in
                     `rater compare`: cpu, or a number that programs report (metric:NAME)
--within P%          smallest step that is told; default 1%%, of counts of instructions 0.1%%
--host NAME          runs of this host (default: of the last run)
--since TIME         runs begun since a date (2026-11-20; UTC), or within 7d, 12h
--limit N:int =500   the latest N runs; default 500
-o FILE >file        into FILE as well, by its name a page (.html) or a picture (.svg, .png, .pdf)
--force              write a page over FILE though rater did not make it
$ rater history mini/lu
$ rater history mini/lu -o lu.html
$ rater history solve --by commit --by instructions
""",
        tables=True,
        description="Report when a benchmark became faster or slower on a host: the steps of its "
        "level, their dates, and what changed then (kernel, microcode, settings, program, memory "
        "slots). Runs that were asked to do other work have a history of their own. A step needs "
        "three points on each side; noise makes none.",
    ),
}
