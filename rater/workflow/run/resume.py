"""`rater run --resume RUN`: exactly what is missing of a stored run."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from rater.analysis.compare.conditions import ConditionDifference, stored_conditions
from rater.analysis.results.remaining import PhaseState, RemainingPlan, remaining_plan
from rater.plan.schedule import Plan
from rater.record.run import RunStatus
from rater.record.stored import StoredRun
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
from rater.system.process import print_error
from rater.text.values import count, to_json
from rater.workflow.arguments import (
    START_OPTIONS,
    Output,
    RunArguments,
    StartOptions,
    open_existing_store,
    print_view,
)
from rater.workflow.doctor import tuned_settings_of
from rater.workflow.results.kept import store_placement_verdicts
from rater.workflow.results.stored import print_result
from rater.workflow.run.begin import make_run
from rater.workflow.run.head import ActiveRun, RunLauncher, conditions_now, utc_timestamp
from rater.workflow.run.repeat import (
    changed_conditions,
    executed_commands,
    load_again,
    resolve_again,
)
from rater.workflow.run.resolve import RunPlan


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
