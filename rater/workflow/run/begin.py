"""`rater run` and `rater rerun`: planned, then shown (`--dry-run`) or made.

What only other ways than a new run need is imported where it is used: a tenth of a short run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rater.plan.request import BY_NAME, Request
from rater.plan.sweep import SweepSlot
from rater.record.run import RunStatus
from rater.record.stored import StoredRun
from rater.run.host import discover as machine
from rater.run.programs.compile import cache_root
from rater.system.errors import InputError
from rater.system.files import Trusted
from rater.system.process import print_error
from rater.workflow.arguments import (
    Output,
    RunArguments,
    StartOptions,
    check_current_directory,
    open_existing_store,
)
from rater.workflow.run.campaign import Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.head import RunLauncher
from rater.workflow.run.refusals import refuse_plan
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
            from rater.workflow.results.stored import print_result

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
    request, launcher = run_arguments.request(), RunLauncher()
    plan = resolve(request, machine.discover_topology(cache_root()))
    return make_run(output, Trusted(plan), launcher), launcher.uuid


# -- A new run, and a stored one made once more ----------------------------------------------------


def run(output: Output, run_arguments: RunArguments) -> int:
    """Make a new run, or show it (`--dry-run`); return the exit status."""
    request = run_arguments.request()
    check_current_directory()
    kept = None if output.dry_run else cache_root()  # a dry run leaves no file
    resolved = resolve(request, machine.discover_topology(kept))
    if output.dry_run:
        from rater.workflow.run.repeat import dry_run

        return dry_run(output, resolved)
    return make_run(output, Trusted(resolved), RunLauncher())


def rerun(
    output: Output, run_word: str, tag_words: tuple[str, ...], start_options: StartOptions
) -> int:
    """Make a stored run once more, with these tags besides; return the exit status.

    Raises `InputError`, for a dry run with what differs between the machines.
    """
    from rater.workflow.run.repeat import (
        Rerun,
        dry_run,
        load_again,
        resolve_again,
        text_of_differences,
    )

    option = BY_NAME["tag"]
    tags = option.kind.check(option.typed, tag_words)
    with open_existing_store(output) as store:
        stored = load_again(store, run_word, force=start_options.force)
    try:
        resolved = resolve_again(stored, start_options, tags=tags, dry_run=output.dry_run)
    except InputError as error:
        if not output.dry_run:
            raise
        raise InputError(f"{error}\n{text_of_differences(stored.value)}") from error
    if output.dry_run:
        return dry_run(output, resolved.value, repeated_run=stored.value)
    return make_run(output, resolved.trusted(), Rerun(stored.value))
