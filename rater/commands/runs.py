"""Commands that start copies: `run`, `plan`, `rerun`, `sweep`, `selftest`."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rater.commands.command_line import RUNS, CommandTrait
from rater.commands.common import (
    RUN,
    START,
    SWEEP,
    VERBOSE,
    Subcommand,
    output_of,
    run_arguments_of,
    start_options_of,
)
from rater.plan.selftest import IDLE_S, LEAST_ITERATIONS, SECONDS, TAG
from rater.plan.sweep import RETRIES
from rater.system.errors import InputError
from rater.workflow.arguments import Output, open_existing_store, print_view

if TYPE_CHECKING:
    from rater.workflow.sweep.request import SweepOptions


def _run(arguments: Namespace) -> int:
    if arguments.resume is None:
        from rater.workflow.run.begin import run

        return run(output_of(arguments), run_arguments=run_arguments_of(arguments))
    from rater.workflow.run.resume import resume_run

    return resume_run(
        output_of(arguments),
        run_arguments=run_arguments_of(arguments),
        start_options=start_options_of(arguments),
        run_word=arguments.resume,
    )


def _plan(arguments: Namespace) -> int:
    from rater.workflow.run.repeat import plan

    return plan(
        output_of(arguments), run_arguments=run_arguments_of(arguments), topology=arguments.topology
    )


def _rerun(arguments: Namespace) -> int:
    from rater.workflow.run.begin import rerun

    return rerun(
        output_of(arguments),
        run_word=arguments.which,
        tag_words=tuple(arguments.tag),
        start_options=start_options_of(arguments),
    )


def _comma_separated(text: str) -> list[str]:
    return text.split(",")


def _checkup(arguments: Namespace) -> int:
    from rater.workflow.run.checkup import CheckupOptions, checkup

    return checkup(
        output_of(arguments),
        options=CheckupOptions(
            quick=arguments.quick,
            tuned=arguments.tuned,
            page=arguments.page,
            mix=arguments.mix,
            only=[part for parts in arguments.only for part in parts],
            seed=arguments.seed,
        ),
        start_options=start_options_of(arguments),
    )


def _selftest(arguments: Namespace) -> int:
    from rater.workflow.run.selftest import SelfTestOptions, selftest

    return selftest(
        output_of(arguments),
        options=SelfTestOptions(
            copies=arguments.copies,
            quick=arguments.quick,
            seconds=arguments.seconds,
            seed=arguments.seed,
            until_idle=arguments.until_idle,
            simulate=arguments.simulate,
            topology=arguments.topology,
            keep=arguments.keep,
            wait=arguments.wait,
        ),
    )


_DESCRIPTION = """\
Run a suite or a command under every combination of the axes' values. A combination is a point. Each
block (round) runs every point once, in a new random order, so that drift over time hits all points
alike. rater checks and builds all points before the first run. It puts the machine's settings back
at the end, however the sweep ends.

An axis is an option of `rater run` (copies=1,2,4), what runs (command='./old -x,./new -x'), an
environment variable of every copy (env:MALLOC_ARENA_MAX=,1; empty: not set) or a setting of the
machine (thp=never,always; `rater settings` lists them; needs root). `\\,` is a comma inside a
value. The first point, made of the first value of every axis, is the baseline.

  rater sweep mini --axis copies=1,2,4 --axis thp=never,always --rounds 6
  rater sweep --axis copies=1,2 -- ./bench    a command instead of a suite
  rater sweep FILE.toml           the same from a file (rater sweep --example)
  rater sweep --resume 3          run what is missing of sweep 3
  rater sweep --show 3            its results; `rater compare sweep:3` compares
"""


def _sweep(arguments: Namespace) -> int:
    if arguments.example:
        from rater.plan.sweep import EXAMPLE

        sys.stdout.write(EXAMPLE)
        return 0
    if arguments.listing:
        return _list_sweeps(output_of(arguments))
    if arguments.retries is not None and arguments.retries < 0:
        raise InputError(f"--retries {arguments.retries}: expected 0 or more")
    if arguments.show is not None:
        return _show_sweep(output_of(arguments), arguments.show)
    from rater.workflow.sweep.execute import resume_sweep, run_sweep

    if arguments.resume is None:
        return run_sweep(
            run_arguments_of(arguments),
            options=_sweep_options_of(arguments),
            output=output_of(arguments),
        )
    return resume_sweep(
        output_of(arguments),
        run_arguments=run_arguments_of(arguments),
        options=_sweep_options_of(arguments),
        start_options=start_options_of(arguments),
        sweep_word=arguments.resume,
    )


def _versus(arguments: Namespace) -> int:
    from rater.workflow.sweep.versus import VersusOptions, versus

    without_words = Namespace(**{**vars(arguments), "suites": [], "command": None})
    return versus(
        output_of(arguments),
        run_arguments=run_arguments_of(without_words),
        options=VersusOptions(
            commands=tuple(arguments.suites),
            rounds=arguments.rounds,
            seed=arguments.seed,
            until=arguments.until_decided,
            within=arguments.within,
            by=tuple(arguments.by),
            fail_on=arguments.fail_on,
            retry=arguments.retry,
        ),
    )


def _sweep_options_of(arguments: Namespace) -> SweepOptions:
    """Return what was typed of a sweep itself."""
    from rater.workflow.sweep.request import SweepOptions

    return SweepOptions(
        axis=tuple(arguments.axis),
        rounds=arguments.rounds,
        block_order=arguments.block_order,
        seed=arguments.seed,
        until=arguments.until_decided,
        retries=arguments.retries,
        skip_refused=arguments.skip_refused,
        stop_on_failure=arguments.stop_on_failure,
    )


def _show_sweep(output: Output, sweep: str) -> int:
    from rater.store.sweeps import find_sweep
    from rater.workflow.sweep.view import show_sweep

    with open_existing_store(output) as store:
        show_sweep(replace(output, verbose=True), store, find_sweep(store, sweep))
    return 0


def _list_sweeps(output: Output) -> int:
    from rater.show.compare.sweep import sweeps_document, sweeps_parts
    from rater.store.sweeps import sweeps
    from rater.workflow.sweep.view import view_of

    with open_existing_store(output) as store:
        views = [view_of(sweep) for sweep in sweeps(store)]
    print_view(output, sweeps_document(views), lambda _: sweeps_parts(views))
    return 0


COMMANDS = {
    "run": Subcommand(
        run=_run,
        arguments=f"""
@run
options:
--resume RUN         run what is missing of a stored run, with its own options; refused if the
                     machine, settings, programs or suite changed; --force resumes anyway
--dry-run            show plan, order, time, memory, disk; run nothing
--quiet              no progress, no table
{VERBOSE}
$ rater run -- ./mybench --flag
$ rater run mini --copies cores --iterations 3
$ rater run --copies 128 --mode staggered --stagger 6s -- ./mybench
$ rater run mini/lu --mode steady --warmup 10s --window 1m
$ rater run --resume last         # what is missing of an interrupted run
""",
        traits=RUNS,
        description="Run N copies of each benchmark at once, placed by the machine's topology. "
        "`rater run [SUITE[/BENCHMARK] ...]` or `rater run -- COMMAND ...`.",
    ),
    "plan": Subcommand(
        run=_plan,
        arguments="""
@run
options:
--topology MACHINE   hwloc XML file, a description such as 'pack:2 numa:4 core:8 pu:2', or
                     nodes=4x24 (default: this machine)
--dry-run
--quiet
$ rater plan mini --copies 16 --layout scatter
$ rater plan --topology 'pack:2 numa:4 core:8 pu:2' --copies pus -- ./mybench
""",
        tables=True,
        traits=CommandTrait.TAKES_COMMAND,
        description="Show what `rater run` with the same arguments would run where: each copy's "
        "CPUs, core, last-level cache (LLC), NUMA node, package and memory, the share of each "
        "node, and warnings. Nothing is started, locked or stored; a command need not "
        "exist.",
        epilog="--json: `copies`, `lgroups`, `warnings`, `orders`, ...; CPUs and lgroups by OS "
        "number, cores and LLCs by hwloc's logical indexes.",
    ),
    "rerun": Subcommand(
        run=_rerun,
        arguments=f"""
RUN >which           {RUN}
--tag K=V ...        one more, or another value
{START}
--dry-run            show what differs, and the plan
--quiet              no progress, no table
{VERBOSE}
$ rater rerun 7
$ rater rerun last --tag fan=fixed
""",
        traits=CommandTrait.STARTS | CommandTrait.RESTORES,
        description="Make a new run of what a stored one was asked for: the same suite or "
        "command in the same directory, as many copies, every option; and report what differs.",
    ),
    "sweep": Subcommand(
        run=_sweep,
        arguments=f"""
@run -until
the sweep:
--axis NAME=V1,V2,... ...  what varies, and its values; several times: every combination
--rounds N:int       blocks; default 6, the fewest that show whether blocks are independent
{SWEEP}
--block-order (shuffled|given|abba)
                     order of points in a block: shuffled (default), given, or abba: every second
                     block backwards (--order takes these words too)
--seed N:int         seed of the shuffled orders; stored
--until [energy:]P% >until_decided  check after every block from the third on, and stop once every
                     comparison with the baseline is better, worse or the same within P%%; intervals
                     are wider for the repeated checks, so that equal points are not called
                     different more often; energy:P%% compares joules per copy
--retries N:int      a run that other work disturbed too much is made again, at once, up to N times
                     (default {RETRIES}); the last one counts
--dry-run            show all points; run nothing
--quiet              no progress, no table
-v, --verbose        all points, benchmarks and what the comparison stands on, as --show has them;
                     without it a terminal gets what fits a screen
stored sweeps:
--resume SWEEP       a number, last: run what is missing; with --rounds N more blocks; refused where
                     machine, suite or programs changed (--force: go on all the same)
--list >listing      list them
--show SWEEP         points and results of a sweep
--example            print a file to begin with
$ rater sweep mini --axis copies=1,2,4,8 --rounds 3
$ rater sweep --axis thp=always,never --rounds 5 -- ./mybench
$ rater sweep mini --axis alloc=system,jemalloc --until 1% --rounds 20
""",
        tables=True,
        traits=RUNS,
        description=_DESCRIPTION,
    ),
    "versus": Subcommand(
        run=_versus,
        arguments="""
COMMAND+ >suites     a command as a shell has it, in quotes; the first is what others are compared
                     with
the comparison:
--rounds N:int       each round runs every command once, in random order; default 6
--fail-on worse[:P%]  exit with 1 if a command is worse (by more than P %%) than the first, with 3
                     if that cannot be judged, with 0 only if it is excluded
--retry N:int =0     a gate that fails is tried again with new runs, up to N times; it fails only
                     if the last try fails, too
--by METRIC|cpu ...  judge by the number of this name (--metric), or by CPU time
--within P%          what `same` means; default 1%%
--until P% >until_decided  stop once every comparison is decided within P%%; --rounds is the most
--seed N:int         seed of the shuffled orders; stored
--dry-run            show what would run; run nothing
--quiet              no progress
-v, --verbose        all differences, and what the comparison is based on
@run -suites -speccmds -bind-from-file -size -tune -until
$ rater versus './old -x' './new -x' --copies 8 --fail-on worse:2%
$ rater versus './old' './new' --metric 'Triad: ([0-9.]+) MB/s' --by Triad
$ rater versus 'gzip -kc1 f' 'zstd -c1 f' --format md
""",
        tables=True,
        gates=True,
        traits=CommandTrait.STARTS | CommandTrait.RESTORES,
        description="Compare commands with the first of them: rounds of all, in random order, "
        "their speedups with intervals and verdicts, and a gate. It is a sweep over the command, "
        "and `rater compare` has all of it.",
    ),
    "checkup": Subcommand(
        run=_checkup,
        arguments=f"""
--quick              about two minutes instead of ten
@tuned
--mix SUITE          what runs on all CPUs at once, SUITE[/BENCHMARK,...], or none; default: four
                     kernels of suite mini
--only SECTION[,...]:words ...  only these of doctor, facts, memory, cores, mix: after a change of
                     modules, the memory. It takes as much less time as there are fewer runs
--page FILE:path     also write the verdicts and matrices as an HTML page
--seed N:int         seed of the order of the runs (default: by chance)
{START}
--quiet              no progress
$ rater checkup
$ rater checkup --quick --page checkup.html
$ rater checkup --only memory
""",
        types={"words": _comma_separated},
        tables=True,
        traits=CommandTrait.STARTS | CommandTrait.RESTORES,
        description="Is this machine as it should be? Measure latency and bandwidth of memory from "
        "each NUMA node to each, latency under load, each core alone, and all CPUs at once, in "
        "three rounds. A place is compared with those that should be as good. Each section is "
        "PASS, LOOK HERE or CANNOT TELL. Exits 0 where all pass, 1 to look at something, 3 where "
        "other work or noise hides it. The runs are stored, tagged checkup=NAME.",
    ),
    "doctor selftest": Subcommand(
        run=_selftest,
        arguments=f"""
--copies N:int       default: one a CPU, enough to tell NUMA nodes apart; 8 on one or two CPUs
either:
--quick              two kernels instead of three
--seconds S:duration ={SECONDS:g}  about how long it may take (default {SECONDS:g}); more means more
                     iterations, at least {LEAST_ITERATIONS}
options:
--seed N:int         plant what this seed chose (default: by chance)
--until-idle MAX_S:duration ?{IDLE_S:g}  before each run wait until other processes leave the CPUs
                     alone, and repeat it where they did not, for MAX_S seconds each (default
                     {IDLE_S:g})
--simulate           run nothing: plant in simulated times of this machine's shape with little
                     noise. Report what the detector finds, and how often it finds what it promises;
                     works on a busy machine, too
--topology MACHINE   with --simulate: another machine, an hwloc XML file or a description (4x16)
--keep               store the runs in the database, tagged {TAG}=KIND
@wait
$ rater doctor selftest --quick
""",
        traits=CommandTrait.STARTS,
        description="Run a few copies several times: undisturbed, then with one known slowdown "
        "each time: competing processes on a NUMA node, on a CPU, in one iteration. Each must "
        "be detected, and nothing else. Exits 0 only then, 3 if the machine is too busy. "
        "Takes about a minute; the runs go to a temporary database.",
    ),
}
