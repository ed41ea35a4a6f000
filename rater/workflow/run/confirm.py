"""`rater divots --confirm RUN`: run a slow place against another like it, in turn."""

from __future__ import annotations

import argparse
import shlex
import sys
from functools import partial
from statistics import median

from msgspec.structs import replace

from rater.analysis.divots.confirm import (
    LEAST_PAIRS,
    ConfirmPlan,
    ConfirmVerdict,
    judge_pairs,
    slowdown_of,
    times_of,
    trial_of,
)
from rater.analysis.divots.model.finding import Finding, Thresholds
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import NOT_JUDGED, is_taken, mostly_disturbed
from rater.errors import InputError, RunError
from rater.files import Sourced, Trusted
from rater.plan.request import Request
from rater.plan.topology import Topology
from rater.process import print_error
from rater.record.stored import StoredRun
from rater.run.host import discover as machine
from rater.run.programs.compile import cache_root
from rater.show.console import Printer, terminal
from rater.show.document import print_parts
from rater.show.plans.plan import EXECUTED, executed_facts
from rater.show.results.divots import (
    ConfirmView,
    cpus_text,
    print_trial,
    print_verdict,
    trial_document,
)
from rater.show.results.to_json import evidence_line
from rater.text.values import count
from rater.workflow.arguments import open_existing_store, print_output, with_common
from rater.workflow.results.divots import load_or_analyse, refusal
from rater.workflow.run.head import RunLauncher
from rater.workflow.run.repeat import (
    WAY_TO_RUN,
    chdir_to,
    executed_commands,
    load_again,
    pin_suites,
    request_of,
    select_benchmarks,
)
from rater.workflow.run.resolve import resolve
from rater.workflow.run.session import Session

TAG = "confirm"
DEFAULT_PAIRS = 5
_SIDES = ("a", "b")


def confirm(args: argparse.Namespace) -> int:
    """Run the pairs, print the verdict; 0: confirmed, 1: not, and also where it cannot be run.

    With --dry-run always 0: refused or not, it was said what would run.
    """
    pairs = DEFAULT_PAIRS if args.pairs is None else args.pairs
    if pairs < LEAST_PAIRS:
        raise InputError(f"--pairs {pairs}: expected {LEAST_PAIRS} or more: one has no interval")
    again, number, finding, findings = _chosen(args)
    run = again.value
    topology = machine.discover_topology()
    refused = refusal(run, topology)
    trial = None if refused else trial_of(finding, findings, run)
    if isinstance(trial, str):
        trial, refused = None, trial
    view = ConfirmView(
        run=run.head.run,
        number=number,
        evidence=evidence_line(finding),
        trial=trial,
        refused=refused,
        pairs=pairs,
        commands=("", ""),
    )
    if trial is None:
        print_output(args, lambda: trial_document(view), partial(print_trial, view))
        return 0 if args.dry_run else 1
    requests = _requests(args, again, trial)
    view = replace(view, commands=(_command(requests[0]), _command(requests[1])))
    if args.dry_run or not args.json:
        print_output(args, lambda: trial_document(view), partial(print_trial, view))
    if args.dry_run:
        if not args.json:
            executed = EXECUTED.of(executed_commands(resolve(requests[0], topology)))
            print_parts([executed_facts(executed)], Printer(terminal()))
        if again.doubt is not None:
            print_error(again.doubt)
        return 0
    asked = again.of(requests).trusted()
    return _run(args, view, trial.slowdown, asked, topology)


def _chosen(
    args: argparse.Namespace,
) -> tuple[Sourced[StoredRun], int, Finding, tuple[Finding, ...]]:
    with open_existing_store(args) as store:
        again = load_again(args, store, args.confirm)
        run = again.value
        analysis = load_or_analyse(store, run.head, Thresholds(), fresh=args.fresh, run=run)
    found = [one for one in analysis.findings if not one.explained]
    number = 1 if args.finding is None else args.finding
    if not 1 <= number <= len(found):
        what = f"run {run.head.run} has {count(len(found), 'divot')}"
        raise InputError(
            f"--finding {number}: {what}, numbered from 1"
            if found
            else f"--confirm {args.confirm}: run {run.head.run} has no divots to confirm"
        )
    return again, number, found[number - 1], analysis.findings


def _requests(
    args: argparse.Namespace, run: Sourced[StoredRun], trial: ConfirmPlan
) -> tuple[Request, Request]:
    """Return what both sides ask for; raises `InputError` for runs of a kit."""
    head = run.value.head
    request = request_of(head)
    if request.of_kit:
        raise InputError(
            f"run {head.run} is of SPEC CPU's run directories, which are made for its number of "
            f"copies: `rater rerun {head.run}` shows whether the divot comes back"
        )
    chdir_to(args, run.of(head.directory or "."), f"run {head.run}", WAY_TO_RUN)
    request = replace(
        select_benchmarks(pin_suites(with_common(request, args), head), trial.benchmarks),
        copies=str(trial.copies),
        # A barrier, one iteration: pairs are what is repeated.
        mode=None,
        order=None,
        stagger_ms=None,
        warmup_s=None,
        window_s=None,
        increment=1,
        iterations=1,
        discard=0,
        smt=None,
        kind=None,
        reserve=None,
        bind_from_file=False,
        counters=None,
    )
    return (
        replace(request, layout=cpus_text(trial.here)),
        replace(request, layout=cpus_text(trial.there)),
    )


def _command(request: Request) -> str:
    words = ["rater", "run", *request.suites]
    if request.suites:
        words += ["--size", request.size, "--tune", request.tune]
    words += ["--copies", str(request.copies), "--layout", request.layout]
    words += ["--mem", request.memory] if request.memory else []
    words += ["--name", request.called] if request.called else []
    words += ["--", *request.command] if request.command else []
    return shlex.join(words)


def _run(
    args: argparse.Namespace,
    view: ConfirmView,
    slowdown_found: float,
    requests: Trusted[tuple[Request, Request]],
    topology: Topology,
) -> int:
    quiet = argparse.Namespace(db=args.db, json=False, quiet=True)
    runs: list[tuple[int, int]] = []
    slowdowns: list[float] = []
    taken: list[bool] = []
    foreign: tuple[list[float], list[float]] = ([], [])
    for pair in range(1, view.pairs + 1):
        numbers, times = [], []
        for side, request, others in zip(_SIDES, requests.value, foreign, strict=True):
            tags = ((TAG, str(view.run)), ("side", side), ("pair", str(pair)))
            resolved = resolve(replace(request, tags=tags), topology)
            attempt = RunLauncher()
            status = Session(quiet, Trusted(resolved), cache_root(), attempt).run()
            number = attempt.number or 0
            if status:
                print_error(f"run {number} did not end well: no verdict")
                return status
            numbers.append(number)
            with open_existing_store(args) as store:
                run = store.load(number)
            times.append(times_of(run))
            taken.append(is_taken(run.head.others_cost))
            others += [
                use.foreign
                for use in run_counters(run).cpus
                if use.copies and use.foreign is not None
            ]
        slowdown = slowdown_of(times[0], times[1])
        if slowdown is None:  # an output was wrong in each of its benchmarks
            raise RunError(f"runs {numbers[0]} and {numbers[1]} have no benchmark in common")
        slowdowns.append(slowdown)
        runs.append((numbers[0], numbers[1]))
        if not args.quiet and not args.json:
            print(f"  pair {pair} of {view.pairs}: {(slowdown - 1) * 100:+.1f} %", file=sys.stderr)
    verdict = judge_pairs(slowdowns, slowdown_found)
    disturbed = mostly_disturbed(taken)
    if disturbed:
        verdict = replace(verdict, answer=ConfirmVerdict.CANNOT_TELL)
    shares = (median(foreign[0]), median(foreign[1])) if all(foreign) else None
    done = replace(view, runs=tuple(runs), verdict=verdict, foreign=shares, disturbed=disturbed)
    print_output(args, lambda: trial_document(done), partial(print_verdict, done))
    if disturbed:
        return NOT_JUDGED
    return 0 if verdict.answer in (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER) else 1
