"""`rater run` and `rater rerun` made, and `--resume`: exactly what is missing of a stored run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rater.analysis.compare.conditions import ConditionDifference, stored_conditions
from rater.analysis.results.remaining import PhaseState, RemainingPlan, remaining_plan
from rater.plan.request import BY_NAME, Request
from rater.plan.schedule import Plan
from rater.plan.sweep import SweepSlot
from rater.record.run import RunStatus
from rater.record.stored import StoredRun
from rater.run.host import discover as machine
from rater.run.launcher.guard import end_leftovers, remove_unnamed
from rater.run.programs.compile import cache_root
from rater.show.live.lines import phase_name
from rater.show.plans.plan import (
    changes_document,
    changes_text,
    remainder_document,
    remainder_parts,
)
from rater.store.store import Store
from rater.system.errors import InputError
from rater.system.files import Trusted
from rater.system.process import print_error
from rater.text.values import count, to_json
from rater.workflow.arguments import (
    START_OPTIONS,
    Output,
    RunArguments,
    StartOptions,
    check_current_directory,
    open_existing_store,
    print_view,
)
from rater.workflow.doctor import tuned_settings_of
from rater.workflow.results.divots import store_placement_verdicts
from rater.workflow.results.stored import print_result
from rater.workflow.run.campaign import Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.head import ActiveRun, RunLauncher, conditions_now, utc_timestamp
from rater.workflow.run.refusals import refuse_plan
from rater.workflow.run.repeat import (
    Rerun,
    changed_conditions,
    dry_run,
    executed_commands,
    load_again,
    resolve_again,
)
from rater.workflow.run.resolve import RunPlan, resolve
from rater.workflow.run.session import MadeRun, stderr_excerpt

# -- One run, made and shown -----------------------------------------------------------------------


@dataclass(kw_only=True)
class OneRun(Campaign[MadeRun]):
    """A campaign of one run."""

    new: RunLauncher
    _status: int = field(init=False)

    def attempt(self, *_: object) -> RunLauncher:
        """Return the one there is."""
        return self.new

    def examine(self, slot: SweepSlot, made_run: MadeRun, took_s: float) -> MadeRun:
        """Return the run: nothing else is looked at."""
        del slot, took_s
        return made_run

    def stopped(self, slot: SweepSlot, made_run: MadeRun) -> None:
        """Show the part that was made."""
        self.judge(slot, made_run, ())

    def judge(self, slot: SweepSlot, examined: MadeRun, ahead: Sequence[SweepSlot]) -> None:
        """Show what came of the run."""
        del slot, ahead
        made_run, run = examined, examined.run
        self._status = made_run.status
        if run is None:
            return
        if self.output.json or not self.output.quiet:
            print_result(self.output, self.store, run, proved=made_run.proved)
        if excerpt := stderr_excerpt(run):
            print_error(excerpt)
        if made_run.status == 0:
            self._status = int(_is_uncounted(self.points.value[0].request, run))
        elif made_run.status <= 128 and (self.quiet or not f"{made_run.reason}".endswith("failed")):
            print_error(f"run {made_run.number} failed: {made_run.reason}")

    def conclude(self) -> CampaignEnded:
        """Return how it ended."""
        return CampaignEnded(RunStatus.COMPLETE, None, self._status)


def _is_uncounted(request: Request, run: StoredRun) -> bool:
    """Say it where counters were asked for and nothing was counted."""
    if request.counters is None or run.counted:
        return False
    words = f"run {run.head.run}: --counters {request.counters}"
    print_error(f"{words}: nothing was counted, see its notes")
    return True


def make_run(output: Output, trusted_plan: Trusted[RunPlan], launcher: RunLauncher) -> int:
    """Make a run and show it; return the exit status."""
    plan = trusted_plan.value
    refuse_plan(plan)
    return (
        OneRun(
            what=f"rater run {launcher.uuid[:8]}",
            points=Trusted({0: CampaignPoint("", plan.request, plan)}),
            quiet=output.quiet,
            screen=not output.quiet,
            output=output,
            new=launcher,
        )
        .execute()
        .exit_status
    )


def make_asked(output: Output, run_arguments: RunArguments) -> tuple[int, str]:
    """Make a new run of what was typed; return the exit status and its uuid."""
    plan, launcher = resolve(run_arguments.request(), machine.discover_topology()), RunLauncher()
    return make_run(output, Trusted(plan), launcher), launcher.uuid


# -- `rater run --resume RUN`: run exactly what is missing of a stored run -------------------------


class Resume(RunLauncher):
    """A stored run that goes on."""

    def __init__(self, run: StoredRun, runs_folder: Path, *, force: bool, keep: bool) -> None:
        super().__init__()
        if run.head.folder is None:
            raise InputError(
                f"run {run.head.run} cannot go on: no rater made this row of the database, its "
                f"uuid is {run.head.uuid!r}"
            )
        self.uuid = run.head.folder
        self._runs = runs_folder
        self._keep = keep
        self._stored = run
        self._force = force
        number = run.head.resumed + 1
        while (runs_folder / self.uuid / _folder(number)).exists():
            number += 1  # of one that was killed before it had taken up anything
        self._number = number

    @property
    def mark(self) -> str:
        """Another one for each attempt: the launcher of a killed one may still hunt its own."""
        return f"{self.uuid}.{self._number}.{os.getpid()}"

    @property
    def folder(self) -> Path:
        """Beside what the attempts before have left."""
        return Path(self.uuid) / _folder(self._number)

    def enter(
        self, store: Store, plan: Plan, start: StoredRun, say: Callable[[str], None]
    ) -> ActiveRun:
        """Take the run up; raises `InputError` where machine, settings or programs changed."""
        run, head = self._stored, self._stored.head
        remaining = left_of(plan, run)
        differences = changed_conditions(run, stored_conditions(start))
        weighty = [difference for difference in differences if difference.significant]
        if weighty and not self._force:
            raise InputError(refusal(run, weighty))
        if differences:
            say(f"differs from when run {head.run} began:{changes_text(differences)}")
        store.claim_run(
            head.run,
            resumed=head.resumed,
            torn=remaining.torn,
            placements=start.placements,
            pus=start.pus,
            notes=(
                _describe_resumption(remaining, start.head.started_at),
                *(f"differs since then: {difference}" for difference in differences),
                *(warning for warning in start.warnings if warning not in run.warnings),
            ),
        )
        end_leftovers(self.uuid, self.mark)  # not before the run is ours
        if not self._keep:
            kept_folders = {copy.run_dir for copy in run.copies if copy.run_dir is not None}
            remove_unnamed(self._runs / self.uuid, kept_folders, self._runs / self.folder)
        since_start_s = 0.0
        if head.started_at is not None:
            started_at = datetime.fromisoformat(head.started_at)
            since_start_s = (datetime.now(UTC) - started_at).total_seconds()
        return ActiveRun(
            number=head.run,
            phases=remaining.ahead,
            elapsed_before_ns=remaining.resumed_at_ns(round(since_start_s * 1e9)),
            runs_before=remaining.runs_done,
            failed_before=remaining.failed,
        )


def resume_run(
    output: Output, run_arguments: RunArguments, start_options: StartOptions, run_word: str
) -> int:
    """Take up a stored run; return the exit status of the whole of it."""
    if needless := run_arguments.option_words(without=START_OPTIONS):
        raise InputError(
            f"--resume {run_word}: leave out {' '.join(needless)}: what is left of a run is run "
            "as it was asked for; `rater run` and `rater rerun` make a new one"
        )
    with open_existing_store(output) as store:
        sourced_run = load_again(store, run_word, force=start_options.force)
    run, head = sourced_run.value, sourced_run.value.head
    if head.status is RunStatus.RUNNING:
        raise InputError(f"run {head.run} is still running; end it first, or wait for it")
    resolved = resolve_again(sourced_run, start_options, head.benchmarks, dry_run=output.dry_run)
    remaining = left_of(resolved.value.plan, run)
    if output.dry_run:
        return _dry_run(output, run, remaining, resolved.value, force=start_options.force)
    if not remaining.ahead:
        return _nothing_left(output, run, remaining)
    keep = resolved.value.request.keep
    attempt = Resume(run, cache_root() / "work", force=start_options.force, keep=keep)
    return make_run(output, resolved.trusted(), attempt)


def left_of(plan: Plan, run: StoredRun) -> RemainingPlan:
    """Return what is left of a run; raises `InputError` when its plan is another one by now."""
    names = tuple(used.name for used in run.benchmarks)
    if plan.benchmarks != names:
        raise InputError(
            f"run {run.head.run} cannot go on: it has the benchmarks {', '.join(names)}, its "
            f"suite now has {', '.join(plan.benchmarks)}; "
            f"`rater rerun {run.head.run}` makes a new run"
        )
    return remaining_plan(plan, run)


def refusal(run: StoredRun, differences: list[ConditionDifference]) -> str:
    """Say which differences keep a run from going on."""
    number = run.head.run
    return (
        f"run {number} cannot go on, its parts could not be compared; since it began, this "
        f"changed:{changes_text(differences)}\nwith --force it goes on, and the differences are "
        f"kept with it; `rater rerun {number}` makes a new run"
    )


def _folder(number: int) -> str:
    return f"resume-{number}"


def _describe_resumption(remaining: RemainingPlan, resumed_at: str | None) -> str:
    done = len(remaining.phases) - len(remaining.ahead)
    torn = [
        f"{phase_name(phase.phase.benchmark, phase.phase.iteration, phase.phase.counted, True)} "
        f"(phase {phase.stored}, again as phase {phase.phase.number})"
        for phase in remaining.phases
        if phase.state is PhaseState.TORN
    ]
    text = f"resumed at {resumed_at}, {done} of {len(remaining.phases)} phases done"
    return f"{text}; discarded incomplete: {'; '.join(torn)}" if torn else text


def _nothing_left(output: Output, run: StoredRun, remaining: RemainingPlan) -> int:
    head = run.head
    with open_existing_store(output) as store:
        if head.status in (RunStatus.KILLED, RunStatus.INTERRUPTED):
            failed = (
                f"{remaining.failed} of {remaining.runs_done} copy runs failed"
                if remaining.failed
                else None
            )
            store.close_run(
                head.run,
                resumed=head.resumed,
                status=RunStatus.FAILED if failed else RunStatus.COMPLETE,
                reason=failed,
                note=f"ended at {utc_timestamp()}: all phases were measured when it was "
                f"{head.status}",
            )
            run = store.load(head.run)
            store_placement_verdicts(store, run)
        if not output.quiet:
            print_error(
                f"run {head.run}: nothing is missing of {count(len(remaining.phases), 'phase')}"
            )
        if output.json or not output.quiet:
            print_result(output, store, run)
    return 0 if run.head.status is RunStatus.COMPLETE else 1


def _dry_run(
    output: Output, run: StoredRun, remaining: RemainingPlan, resolved: RunPlan, *, force: bool
) -> int:
    planned = tuned_settings_of(resolved.request)
    differences = changed_conditions(run, conditions_now(resolved), planned)
    weighty = [difference for difference in differences if difference.significant]
    weighty_refusal = refusal(run, weighty) if weighty and remaining.ahead and not force else None
    refused = (
        "\n".join((*resolved.refusals, *((weighty_refusal,) if weighty_refusal else ()))) or None
    )
    document = remainder_document(run.head, remaining) | {
        "executes": executed_commands(resolved),
        "differences": changes_document(differences),
        "refused": refused,
    }
    print_view(output, to_json(document), remainder_parts)
    return 0


# -- `rater run` and `rater rerun`: planned, then shown (`--dry-run`) or made ----------------------


def run(output: Output, run_arguments: RunArguments) -> int:
    """Make a new run, or show it (`--dry-run`); return the exit status."""
    request = run_arguments.request()
    check_current_directory()
    resolved = resolve(request, machine.discover_topology())
    if output.dry_run:
        return dry_run(output, resolved)
    return make_run(output, Trusted(resolved), RunLauncher())


def rerun(
    output: Output, run_word: str, tag_words: tuple[str, ...], start_options: StartOptions
) -> int:
    """Make a stored run once more, with these tags besides; return the exit status."""
    option = BY_NAME["tag"]
    tags = option.kind.check(option.typed, tag_words)
    with open_existing_store(output) as store:
        stored = load_again(store, run_word, force=start_options.force)
    resolved = resolve_again(stored, start_options, tags=tags, dry_run=output.dry_run)
    if output.dry_run:
        return dry_run(output, resolved.value, repeated_run=stored.value)
    return make_run(output, resolved.trusted(), Rerun(stored.value))
