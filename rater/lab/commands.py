"""`rater lab` and its commands."""

from __future__ import annotations

from argparse import Namespace
from contextlib import suppress

from rater.commands.command_line import RUNS, CommandTrait
from rater.commands.common import SWEEP, Subcommand, command_of, output_of, run_arguments_of
from rater.system.errors import InputError

_DESCRIPTION = """\
Fit a line and a parabola to the layouts of a sweep, benchmark by benchmark: R2,
adjusted R2, AICc, the error for layouts left out, how wrong lines through two
layouts are about the rest, which model is warranted and how many more layouts
are needed to decide."""

_EPILOG = """\
x, where --x does not say: page-walk cycles where they were counted
(--counters), else TLB misses counted, else predicted from a stored trace
(rater lab trace), else the value of the axis: the share of large pages of --pages,
or of any axis whose values are numbers. What it was stands with it.

Warranted is a model with one more term only where an F test and AICc ask for
it and it differs from the simpler one by more than runs do from each other;
else nothing is chosen."""


_Y = """
--y time|cpu|user|energy|cycles|metric:NAME
                     of a copy: its time (the default; in a virtual machine whose host takes free
                     memory back its user time), its CPU time (where others work on the machine
                     too), its user time (without what the kernel does for it: the first touch of
                     memory), joules, cycles counted, or a number that it reports of itself
                     (metric:updates)
"""


_PAGES = """\
Sweep page layouts over a suite (default: pages) or a command and report what
a study of page sizes needs: speedups over base pages with geometric means, the
memory of a copy, where the cycles go (--counters cpi), models of time and
energy with their errors, as a summary and as one page. Layouts are compared
with 0%, never with no library."""


def _pages(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 40:
        raise ValueError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def _rate(text: str) -> float:
    is_percent = text.endswith("%")
    with suppress(ValueError):
        value = float(text.removesuffix("%")) / (100 if is_percent else 1)
        if 1e-6 <= value <= 1:
            return value
    raise ValueError(f"expected a share from 0.000001 to 1, as 0.01 or 1%, got {text!r}")


def _study_pages(arguments: Namespace) -> int:
    from rater.lab.models.study import StudyOptions, lab_pages
    from rater.workflow.sweep.request import SweepOptions

    return lab_pages(
        output_of(arguments),
        options=run_arguments_of(arguments),
        sweep=SweepOptions(
            rounds=arguments.rounds,
            skip_refused=arguments.skip_refused,
            stop_on_failure=arguments.stop_on_failure,
        ),
        study=StudyOptions(layouts=arguments.layouts, quick=arguments.quick),
        show=arguments.show,
        file=arguments.file,
        y=arguments.y,
    )


def _trace_pages(arguments: Namespace) -> int:
    from rater.lab.trace.pages import TraceOptions, pages

    return pages(
        output_of(arguments),
        options=TraceOptions(
            which=arguments.which,
            command=command_of(arguments),
            trace=arguments.trace,
            size=arguments.size,
            tune=arguments.tune,
            tlb=arguments.tlb,
            sizes=arguments.sizes,
            budget=arguments.budget,
            loads=arguments.loads,
            sample=arguments.sample,
            check=arguments.check,
            rounds=arguments.rounds,
            measure=arguments.measure,
            timeout=arguments.timeout,
            file=arguments.file,
        ),
        listing=arguments.listing,
    )


def _model_sweep(arguments: Namespace) -> int:
    from rater.lab.models.study import ModelOptions, model_points, model_sweep

    options = ModelOptions(
        x=arguments.x,
        y=arguments.y,
        axis=arguments.axis,
        degree=arguments.degree,
        file=arguments.file,
    )
    if (arguments.csv is None) == (arguments.which is None):
        raise InputError("expected a SWEEP, as in `rater lab model last`, or --csv FILE")
    if arguments.csv is not None:
        return model_points(output_of(arguments), arguments.csv, options)
    return model_sweep(output_of(arguments), arguments.which, options)


_ACTIONS = {
    "pages": Subcommand(
        run=_study_pages,
        arguments=f"""
@run
the study:
--layouts LAYOUT,...  as --pages takes them, 0%% among them; default: nine from 0%% to 100%%
{_Y}
--rounds N:int       default 6
{SWEEP}
--quick              size test, four layouts, two rounds: about a minute, to see that all works
--show SWEEP         of a sweep that is stored; runs nothing
--dry-run            show all layouts; run nothing
--quiet              no progress, no summary
-o FILE >file        the page (default: rater-lab-pages-SWEEP.html)
""",
        traits=RUNS,
        help="what page sizes do to a suite or a command",
        description=_PAGES,
    ),
    "trace": Subcommand(
        run=_trace_pages,
        arguments="""
SUITE/BENCHMARK? >which  one benchmark of a suite; or a command behind `--`
--list >listing      list the stored traces
--show TRACE >trace ?last  show a stored trace again: a number, last, last~1, the start of a uuid
--size SIZE          of the benchmark (default: test, else the first)
--tune TUNE =base    whose compiler flags (default: base)
--tlb LEVELS         another TLB than this machine's: ENTRIESxWAYS for each level, as
                     64x4,1536x12, or by page size, as 4k/64k:64x4+2M:32x4,4k/64k/2M:1536x12
--sizes SIZES =4k,2M  the page sizes to map categories to, of 4k, 64k, 2M, 1G (default: 4k,2M)
--budget N:pages     report the best mapping with at most N large pages
--loads (dependent|independent|between) =between  what a miss costs: all of it, what is left beside
                     other work, or the geometric mean of the two (the default)
--sample RATE:rate =1  follow a share of all pages only, chosen by hash (SHARDS), as 0.01: less work
                     for large programs; its error is reported
--check (chosen|all) ?chosen  then run the predicted best, the worst and the all-or-nothing mappings
                     (all: every one) with `rater run --pages`, turn by turn, and report how far the
                     prediction is off
--rounds N:pages =9  of --check: runs of each mapping, three times the program each (default: 9)
--measure            measure anew what misses and faults cost here, instead of once a machine and
                     kernel; with --show, rank with these costs; with no program, print them
--timeout S:duration =3600  give up on the traced run after so long (default: 3600)
-o FILE >file        draw the histograms as well, into FILE, by its name .svg, .png or .pdf
$ rater lab trace mini/gups --size test
$ rater lab trace --budget 20 -- ./program input
""",
        types={"pages": _pages, "rate": _rate},
        traits=CommandTrait.TAKES_COMMAND,
        help="trace a program's pages",
        description="Run a program once under a tracer (valgrind, with a tool that is compiled "
        "here) and report how it reuses pages of 4 KB, 64 KB, 2 MB and 1 GB, category by category: "
        "heap (blocks of malloc below 128 KB), mmap (larger ones, and its anonymous mappings), "
        "static (.data, .bss). Every mapping of these to page sizes is ranked by what it saves: "
        "TLB misses and page faults, each at what it costs on this machine.",
    ),
    "model": Subcommand(
        run=_model_sweep,
        arguments=f"""
SWEEP? >which        a number, last, last~1, the start of a uuid
--csv FILE           points of your own instead, a row each, with a heading: --x and --y name two of
                     its columns; a column `benchmark` divides them, rows of one `layout` are runs
--x walks|misses|huge|axis|COLUMN  page-walk cycles, TLB misses, the share of large pages, or the
                     axis as it is
{_Y}
--axis NAME          the axis to use as x, if there are several
--degree (2|3):int =2  of the highest polynomial; default 2
-o FILE >file        draw the models as well, into FILE, by its name .svg, .png or .pdf
$ rater lab model last
$ rater lab model 3 --x walks --y cycles -o fits.svg
$ rater lab model --csv points.csv --x walks --y joules
""",
        help="fit time to page walks",
        description=_DESCRIPTION,
        epilog=_EPILOG,
    ),
}
COMMANDS = {
    "lab": Subcommand(
        run=None,
        arguments="""
$ rater lab pages --quick         # about a minute, to see that all works
$ rater lab pages --layouts 0%,spread:50%,100% -- ./mybench
$ rater lab pages --show last     # of a sweep that is stored
$ rater lab trace mini/gups --size test
$ rater lab model last            # what large pages, or any axis of numbers, do
""",
        description="Studies of page sizes: what they do to a program, why, and models of it.",
        actions=_ACTIONS,
    )
}
