"""`rater divots --confirm RUN`: run a slow place against another like it, in turn."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.confirm import (
    LEAST_PAIRS,
    ConfirmCause,
    ConfirmPlan,
    ConfirmVerdict,
    cpu_times_of,
    judge_cause,
    judge_pairs,
    slowdown_of,
    times_of,
    trial_of,
)
from rater.analysis.divots.model.finding import Finding, Thresholds
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import (
    NOT_JUDGED,
    is_too_disturbed,
    mostly_disturbed,
)
from rater.plan.request import Request
from rater.plan.sweep import BlockOrder, SweepSlot, order_slots
from rater.record.run import RunStatus
from rater.record.stored import StoredRun
from rater.run.host import discover as machine
from rater.show.plans.plan import executed_facts
from rater.show.results.divots import (
    ConfirmView,
    cpus_text,
    trial_document,
    trial_parts,
    verdict_parts,
)
from rater.show.results.to_json import evidence_line
from rater.show.screen.console import Printer, screen
from rater.show.screen.document import print_parts
from rater.system.errors import InputError, RunError
from rater.system.files import Sourced, Trusted
from rater.system.process import print_error
from rater.text.values import count
from rater.workflow.arguments import Output, StartOptions, open_existing_store, print_view
from rater.workflow.results.divots import load_or_analyse, refusal
from rater.workflow.run.campaign import Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.repeat import (
    WAY_TO_RUN,
    chdir_to,
    executed_commands,
    load_again,
    pin_suites,
    request_of,
    select_benchmarks,
)
from rater.workflow.run.resolve import RunPlan, resolve
from rater.workflow.run.session import MadeRun

TAG = "confirm"
DEFAULT_PAIRS = 5
_SIDES = ("a", "b", "c")


# Exit status by what a divot is of.
_STATUS = {
    ConfirmCause.PLACE: 0,
    ConfirmCause.COPY: 0,
    ConfirmCause.NEITHER: 1,
    ConfirmCause.CANNOT_TELL: NOT_JUDGED,
}


class ConfirmOptions(Struct, frozen=True):
    """Options of `rater divots --confirm`."""

    confirm: str  # the run
    finding: int | None
    pairs: int | None
    fresh: bool


def confirm(output: Output, options: ConfirmOptions, start_options: StartOptions) -> int:
    """Run the pairs, print the verdict; 0: confirmed, 1: not, and also where it cannot be run.

    With --dry-run always 0: refused or not, it was said what would run.
    """
    pairs = DEFAULT_PAIRS if options.pairs is None else options.pairs
    if pairs < LEAST_PAIRS:
        raise InputError(f"--pairs {pairs}: expected {LEAST_PAIRS} or more: one has no interval")
    sourced_run, number, finding, findings = _choose_finding(output, options, start_options)
    run = sourced_run.value
    topology = machine.discover_topology()
    refusal_reason = refusal(run, topology)
    trial = None if refusal_reason else trial_of(finding, findings, run)
    if isinstance(trial, str):
        trial, refusal_reason = None, trial
    view = ConfirmView(
        run=run.head.run,
        number=number,
        evidence=evidence_line(finding),
        trial=trial,
        refused=refusal_reason,
        pairs=pairs,
        commands=(),
    )
    if trial is None:
        print_view(output, trial_document(view), lambda _: trial_parts(view))
        return 0 if output.dry_run else 1
    requests = _requests(sourced_run, trial, start_options, dry_run=output.dry_run)
    view = replace(view, commands=tuple(map(_command, requests)))
    if output.dry_run or not output.json:
        print_view(output, trial_document(view), lambda _: trial_parts(view))
    if output.dry_run:
        if not output.json:
            executed = executed_commands(resolve(requests[0], topology))
            print_parts([executed_facts(executed)], Printer(screen()))
        if sourced_run.doubt is not None:
            print_error(sourced_run.doubt)
        return 0
    trusted_requests = sourced_run.with_value(requests).trusted().value
    plans = [resolve(request, topology) for request in trusted_requests]
    pairs_run = _Pairs(
        what=f"rater divots --confirm {run.head.run}",
        points=Trusted(
            {
                side: CampaignPoint(_SIDES[side], plan.request, plan)
                for side, plan in enumerate(plans)
            }
        ),
        slots=order_slots(range(len(plans)), pairs, BlockOrder.GIVEN, 0),
        quiet=True,
        output=output,
        view=view,
        slowdown=trial.slowdown,
        by_cpu=finding.by_cpu,
    )
    return pairs_run.execute().exit_status


def _choose_finding(
    output: Output, options: ConfirmOptions, start_options: StartOptions
) -> tuple[Sourced[StoredRun], int, Finding, tuple[Finding, ...]]:
    with open_existing_store(output) as store:
        sourced_run = load_again(store, options.confirm, force=start_options.force)
        run = sourced_run.value
        analysis = load_or_analyse(store, run.head, Thresholds(), fresh=options.fresh, run=run)
    unexplained = [finding for finding in analysis.findings if not finding.explained]
    number = 1 if options.finding is None else options.finding
    if not 1 <= number <= len(unexplained):
        run_and_count = f"run {run.head.run} has {count(len(unexplained), 'divot')}"
        raise InputError(
            f"--finding {number}: {run_and_count}, numbered from 1"
            if unexplained
            else f"--confirm {options.confirm}: run {run.head.run} has no divots to confirm"
        )
    return sourced_run, number, unexplained[number - 1], analysis.findings


def _requests(
    sourced_run: Sourced[StoredRun],
    trial: ConfirmPlan,
    start_options: StartOptions,
    *,
    dry_run: bool,
) -> tuple[Request, ...]:
    """Return what the sides ask for; raises `InputError` for runs of a kit."""
    head = sourced_run.value.head
    request = request_of(head)
    if request.of_kit:
        raise InputError(
            f"run {head.run} is of SPEC CPU's run directories, which are made for its number of "
            f"copies: `rater rerun {head.run}` shows whether the divot comes back"
        )
    chdir_to(
        sourced_run.with_value(head.directory or "."),
        f"run {head.run}",
        WAY_TO_RUN,
        dry_run=dry_run,
    )
    request = replace(
        select_benchmarks(pin_suites(start_options.on(request), head), trial.benchmarks),
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

    def side(numbers: Sequence[int], cpus: Sequence[int]) -> Request:
        listed = ",".join(map(str, numbers))
        copy_numbers = f"{listed}/{trial.copies_of_run}"
        return replace(request, layout=cpus_text(cpus), copy_numbers=copy_numbers)

    others = [side(trial.other_numbers, trial.here)] if trial.other_numbers else []
    return (side(trial.numbers, trial.here), side(trial.numbers, trial.there), *others)


def _command(request: Request) -> str:
    words = ["rater", "run", *request.suites]
    if request.suites:
        words += ["--size", request.size, "--tune", request.tune]
    words += ["--copies", str(request.copies), "--copy-numbers", request.copy_numbers or ""]
    words += ["--layout", request.layout]
    words += ["--mem", request.memory] if request.memory else []
    words += ["--name", request.called] if request.called else []
    words += ["--", *request.command] if request.command else []
    return shlex.join(words)


class _SideRun(Struct, frozen=True, kw_only=True):
    """One run of a side."""

    number: int
    times_s: dict[str, float]
    cpu_times_s: dict[str, float] | None  # None: CPU time may not judge
    is_disturbed: bool


@dataclass(kw_only=True)
class _Pairs(Campaign[MadeRun]):
    """The sides in turn, and how much slower the first one was than each of the others."""

    view: ConfirmView
    slowdown: float  # as it was found
    by_cpu: bool  # the finding is of CPU time
    _rounds: list[list[_SideRun]] = field(default_factory=list)
    _foreign: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    _failed: int = 0

    def plan_of(self, slot: SweepSlot) -> RunPlan:
        """Return a side with the tags of its pair."""
        plan = super().plan_of(slot)
        side = (("side", _SIDES[slot.point]), ("pair", str(slot.block)))
        return replace(plan, request=replace(plan.request, tags=((TAG, f"{self.view.run}"), *side)))

    def examine(self, slot: SweepSlot, made_run: MadeRun, took_s: float) -> MadeRun:
        """Return the run: all that is looked at came with it."""
        del slot, took_s
        return made_run

    def stopped(self, slot: SweepSlot, made_run: MadeRun) -> None:
        """Say that there is no verdict."""
        self.judge(slot, made_run, ())

    def judge(self, slot: SweepSlot, examined: MadeRun, ahead: Sequence[SweepSlot]) -> None:
        """Keep the times of a side, and with the last one say how far they are apart."""
        del ahead
        made_run, run = examined, examined.run
        if made_run.status or run is None:
            print_error(f"run {made_run.number} did not end well: no verdict")
            self._failed = made_run.status or 1
            return
        if slot.point == 0:
            self._rounds.append([])
        self._rounds[-1].append(
            _SideRun(
                number=made_run.number,
                times_s=times_of(run),
                cpu_times_s=cpu_times_of(run),
                is_disturbed=is_too_disturbed(made_run.others_cost),
            )
        )
        if slot.point < len(self._foreign):
            self._foreign[slot.point].extend(
                cpu_use.foreign
                for cpu_use in run_counters(run).cpus
                if cpu_use.copies and cpu_use.foreign is not None
            )
        is_last = len(self._rounds[-1]) == len(self.view.commands)
        if is_last and not self.output.quiet and not self.output.json:
            slowdowns = [self._slowdown(self._rounds[-1], side) for side in self._other_sides]
            texts = (f"{(slowdown - 1) * 100:+.1f} %" for slowdown in slowdowns)
            names = ("elsewhere", "other copies there")
            told = ", ".join(
                f"{text} against {name}" for text, name in zip(texts, names, strict=False)
            )
            print(f"  round {slot.block} of {self.view.pairs}: {told}", file=sys.stderr)

    @property
    def _other_sides(self) -> range:
        return range(1, len(self.view.commands))

    def _slowdown(self, of_round: Sequence[_SideRun], side: int, *, by_cpu: bool = False) -> float:
        """Return the time of the first side over that of another one, in one round."""
        times_s = [
            (side_run.cpu_times_s or {}) if by_cpu else side_run.times_s for side_run in of_round
        ]
        slowdown = slowdown_of(times_s[0], times_s[side])
        if slowdown is None:  # an output was wrong in each of its benchmarks
            first, second = of_round[0].number, of_round[side].number
            raise RunError(f"runs {first} and {second} have no benchmark in common")
        return slowdown

    def check_stop(self, *_: object) -> CampaignEnded | None:
        """End it with the first run that did not end well."""
        status = self._failed
        return CampaignEnded(RunStatus.FAILED, None, status) if status else None

    def _measure(self) -> tuple[bool, str | None]:
        """Return whether CPU time judges, and why nothing does.

        Others that are where the divot is are of the place; others everywhere hide it.
        """
        disturbed = mostly_disturbed([of_round[1].is_disturbed for of_round in self._rounds])
        if not disturbed and not self.by_cpu:
            return False, None
        runs = [side_run for of_round in self._rounds for side_run in of_round]
        if all(side_run.cpu_times_s for side_run in runs):
            return True, None
        return False, disturbed or "CPU time, of which the divot is, may not judge these runs"

    def conclude(self) -> CampaignEnded:
        """Print the verdict."""
        by_cpu, obstacle = self._measure()
        place, copy = (
            judge_pairs(
                [self._slowdown(of_round, side, by_cpu=by_cpu) for of_round in self._rounds],
                self.slowdown,
            )
            if side in self._other_sides
            else None
            for side in (1, 2)
        )
        assert place is not None
        cause = ConfirmCause.CANNOT_TELL if obstacle else judge_cause(place, copy)
        if obstacle:
            place = replace(place, answer=ConfirmVerdict.CANNOT_TELL)
        foreign_here, foreign_there = self._foreign
        concluded = replace(
            self.view,
            runs=tuple(
                tuple(side_run.number for side_run in of_round) for of_round in self._rounds
            ),
            verdict=place,
            copy_verdict=copy,
            cause=cause,
            by_cpu=by_cpu,
            foreign=(median(foreign_here), median(foreign_there))
            if foreign_here and foreign_there
            else None,
            disturbed=obstacle,
        )
        print_view(self.output, trial_document(concluded), lambda _: verdict_parts(concluded))
        return CampaignEnded(RunStatus.COMPLETE, None, _STATUS[cause])
