"""One step of a fleet: look, store, do what is due; collected, and on the screen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from rater.fleet.agent import this_rater
from rater.fleet.archive import admit_database
from rater.fleet.backends.registry import POLL_S, backend
from rater.fleet.backends.scheduler import (
    Backend,
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
)
from rater.fleet.foreign import SourceRefusedError
from rater.fleet.plan import (
    AttemptObservation,
    AttemptState,
    JobPhase,
    JobSeen,
    NodeAttempt,
    StoredFleet,
    VerdictStatus,
    job_name,
    scheduler_job,
    updated_attempt,
)
from rater.fleet.shared_folder import PublishedVerdict, SharedFolder
from rater.fleet.show_nodes import nodes_document, nodes_parts
from rater.fleet.store import (
    change,
    claim_submission,
    intend,
    load_fleet,
    set_fleet,
)
from rater.store.open_database import OpenDatabase
from rater.system.errors import InputError
from rater.system.process import is_alive, print_error, this_process
from rater.text.values import count
from rater.workflow.arguments import Output, print_view

# What is to be done is written down before it is done, so that the next step knows what may have
# happened: a job may be submitted twice (one of the two runs), an ended job cancelled once more.

_FIRMLY_AFTER_S = 60.0  # a job that was asked to end, and has not
_FOR_GOOD = (AttemptState.COMPLETE, AttemptState.FAILED, AttemptState.REFUSED)
_UNSAID = (AttemptState.INTENT, AttemptState.SUBMITTED)
_MOST_FOLLOWED = 16  # nodes whose every step is said; of more only how they end


type _Key = tuple[str, int]  # node and attempt


class FleetDriver:
    """Steps of one fleet; not `quiet` says on standard error what becomes of nodes."""

    def __init__(
        self, store: OpenDatabase, number: int, calls: Backend | None = None, *, quiet: bool = True
    ) -> None:
        """Check the owner of the plan and of its folder: rater runs and removes files by them."""
        self.store, self.number, self._backend, self._quiet = store, number, calls, quiet
        self.silent: str | None = None  # why the scheduler gave no answer in the last step
        self._seen: Mapping[str, JobSeen] = {}
        # What verdicts said, with the state of their files.
        self._files: dict[_Key, tuple[object, PublishedVerdict]] = {}
        asked = store.sourced(load_fleet(store, number).asked)
        if asked.doubt is not None:
            raise InputError(
                f"rater cannot tell that fleet {number} is yours: {asked.doubt}; `rater fleet "
                "status` shows it, a copy of the database that is yours goes on with it"
            )
        self.asked = asked.trusted().value
        self.folder = SharedFolder(Path(self.asked.folder))
        self.folder.check()

    def refresh(self) -> StoredFleet:
        """Look at what was published and at the scheduler, store it, and return the fleet.

        The scheduler is asked only for attempts whose verdict is not there. Jobs that it has
        forgotten cost it most, and administrators block who asks for them at every look.
        """
        fleet = load_fleet(self.store, self.number)
        states = self.folder.verdict_files()
        unknown = [row for row in fleet.live if not self._is_decided(row, states.get(row.key))]
        claimed = {row.key: self.folder.claimed_by(*row.key) for row in unknown}
        self._poll(unknown, claimed)
        # Once more: a job that has ended since the first look published before it ended.
        now_s, states, changes = time.time(), self.folder.verdict_files(), []
        for row in fleet.every:
            published = self._published(row, states.get(row.key))
            looked = self._looked(row, published, claimed.get(row.key), now_s)
            now = updated_attempt(row, looked, self.asked)
            changes.append((row, now))
            if looked.damaged and now.state is AttemptState.LOST and now.state != row.state:
                self.folder.set_aside(*row.key)
        return self._stored(changes, now_s)

    def act(
        self, fleet: StoredFleet, *, submit: bool = True, again: Sequence[str] = ()
    ) -> StoredFleet:
        """Do what is due: end jobs, take up what a killed submitter left, submit.

        `again`: nodes that are tried once more however often they were.
        """
        now_s = time.time()
        ends = [
            (ending_attempt, replace(ending_attempt, ending=why, ending_s=now_s))
            for ending_attempt, why in fleet.ends()
        ]
        fleet = self._stored(ends, now_s)
        ending = [
            ending_attempt
            for ending_attempt in fleet.live
            if ending_attempt.ending is not None and ending_attempt.job
        ]
        # Gently at first, those that wait at once.
        for late in (False, True):
            some = [
                str(ending_attempt.job)
                for ending_attempt in ending
                if (
                    ending_attempt.ending_s is not None
                    and now_s - ending_attempt.ending_s > _FIRMLY_AFTER_S
                )
                is late
            ]
            if some:
                self._ask(partial(_cancel, some, gently=not late))
        if submit and not self.silent:
            self._submit_left(fleet)
            nodes = tuple(fleet.attempts) if self.asked.parallel and fleet.due(again=again) else ()
            cluster_nodes = (
                self._ask(lambda ending_attempt: ending_attempt.nodes(nodes)) if nodes else ()
            )
            idle = {
                ending_attempt.name
                for ending_attempt in cluster_nodes or ()
                if ending_attempt.is_idle
            }
            for node, attempt in fleet.due(idle, again):
                row = intend(self.store, self.number, node, attempt, time.time())
                if row is not None and not self._submit(row):
                    break
        return load_fleet(self.store, self.number)

    # -- looking ----------------------------------------------------------------------------------

    def _published(self, row: NodeAttempt, state: object) -> PublishedVerdict | None:
        """Return what is published of an attempt and not known to be whole yet.

        A file that has not changed since the last look is not read again.
        """
        if state is None or (row.verdict and row.state in _FOR_GOOD):
            return None
        before, known_digest = self._files.get(row.key, (None, None))
        if before != state:
            known_digest = self.folder.looked_up(self.asked.uuid, *row.key)
            if known_digest is not None and not known_digest.absent:
                self._files[row.key] = state, known_digest
        return known_digest

    def _is_decided(self, row: NodeAttempt, state: object) -> bool:
        """Tell whether what is published of an attempt says all, whatever became of its job."""
        published = self._published(row, state)
        if published is None or published.damaged or published.verdict is None:
            return False
        return published.verdict.status is not VerdictStatus.PARTIAL

    def _poll(self, rows: Sequence[NodeAttempt], claimed: Mapping[_Key, str | None]) -> None:
        """Ask for the jobs that have not ended; why there is no answer is kept.

        The job that began on the node is the one, where a killed submitter left two. Of one that
        is pending the node may have more to say than the job.
        """
        self.silent, self._seen = None, {}
        rows_by_name = {job_name(self.asked.uuid, *row.key): row for row in rows}
        jobs = {}
        for name, row in rows_by_name.items():
            began = claimed.get(row.key)
            jobs[name] = row.job if began is None else scheduler_job(began)
        if not jobs:
            return
        seen = dict(self._ask(lambda it: it.poll(jobs)) or {})
        pending = {
            rows_by_name[name].node: name for name in seen if seen[name].phase is JobPhase.PENDING
        }
        nodes = self._ask(lambda it: it.nodes(tuple(pending))) if pending else ()
        for node in nodes or ():
            if node.reason:
                it = seen[pending[node.name]]
                why = (f"{node.name} is {node.word}: {node.reason}", it.reason)
                seen[pending[node.name]] = replace(it, reason="; ".join(filter(None, why)))
        if self.silent is None:
            self._seen = seen

    def _looked(
        self,
        attempt: NodeAttempt,
        published: PublishedVerdict | None,
        claimed: str | None,
        now_s: float,
    ) -> AttemptObservation:
        """Return what there is to see of an attempt."""
        verdict, damaged = (published.verdict, published.damaged) if published else (None, None)
        if published is not None and published.absent:
            # Not seen here yet; a verdict without its database is none in the end.
            late = attempt.gone_s is not None and now_s - attempt.gone_s >= self.asked.settle_s
            verdict, damaged = None, damaged if late else None
        job = self._seen.get(job_name(self.asked.uuid, *attempt.key))
        gone = job is None or job.phase is JobPhase.ENDED
        return AttemptObservation(
            now_s=now_s,
            verdict=None if damaged else verdict,
            damaged=damaged,
            answered=self.silent is None,
            job=job,
            claimed_by=None if claimed is None else scheduler_job(claimed),
            waits_for=None if gone else self.folder.waits_for(*attempt.key),
            log=self.folder.last_words(*attempt.key) if gone and not attempt.state.ended else None,
        )

    # -- doing ------------------------------------------------------------------------------------

    def _submit_left(self, fleet: StoredFleet) -> None:
        """Submit what was written down and is not with the scheduler: its submitter was killed."""
        for live_attempt in fleet.live:
            if live_attempt.state is not AttemptState.INTENT or live_attempt.ending is not None:
                continue
            ours = live_attempt.owner == this_process()
            if not ours and is_alive(live_attempt.owner):
                continue
            if (
                ours or claim_submission(self.store, self.number, live_attempt)
            ) and not self._submit(live_attempt):
                return

    def _submit(self, attempt: NodeAttempt) -> bool:
        """Submit what is written down; False: the scheduler gives no answers now."""
        os.close(self.folder.open_log(*attempt.key))
        order = JobSpec(
            name=job_name(self.asked.uuid, *attempt.key),
            node=attempt.node,
            command=(
                *(*this_rater(), "fleet", "agent", "--spec", str(self.folder.spec_file)),
                *("--node", attempt.node, "--attempt", str(attempt.attempt), "--job", "{job}"),
            ),
            directory=Path(self.asked.directory),
            log=self.folder.log(*attempt.key),
            minutes=self.asked.minutes,
            arguments=self.asked.arguments,
        )
        now_s = time.time()
        try:
            job = self._calls.submit(self.store.sourced(order).trusted())
            now = replace(attempt, state=AttemptState.SUBMITTED, job=job, reason=None)
        except SchedulerUnavailableError as error:
            self.silent = str(error)
            now = replace(attempt, reason=f"not submitted yet: {error}")
        except JobRejectedError as error:
            why = f"not taken by the scheduler: {error}"
            now = replace(attempt, state=AttemptState.REFUSED, reason=why, ended_s=now_s)
        self._stored([(attempt, now)], now_s)
        return not self.silent

    @property
    def _calls(self) -> Backend:
        if self._backend is None:
            self._backend = backend(self.asked.backend, self.folder.path)
        return self._backend

    def _ask[T](self, call: Callable[[Backend], T]) -> T | None:
        """Return the answer of the scheduler; without one None, and `silent` keeps the reason."""
        try:
            return call(self._calls)
        except (SchedulerUnavailableError, JobRejectedError) as error:
            self.silent = str(error)
            return None

    def _stored(
        self, changes: Sequence[tuple[NodeAttempt, NodeAttempt]], now_s: float
    ) -> StoredFleet:
        before = {row.key: row.state for row, _ in changes}
        stored = change(self.store, self.number, changes, now_s)
        fleet = load_fleet(self.store, self.number)
        for attempt in () if self._quiet else stored:
            if before[attempt.key] is attempt.state or attempt.state in _UNSAID:
                continue
            if attempt.state.ended or len(fleet.attempts) <= _MOST_FOLLOWED:
                again = f" (attempt {attempt.attempt})" if attempt.attempt > 1 else ""
                why = f": {attempt.reason}" if attempt.reason else ""
                print_error(f"{attempt.node}{again}: {attempt.state.shown}{why}")
        return fleet


def take_back_cancelling(steps: FleetDriver, nodes: Collection[str]) -> StoredFleet:
    """Let a cancelled fleet go on with these nodes; the others stay cancelled for good."""
    set_fleet(steps.store, steps.number, cancelled_at=None)
    steps.folder.mark_cancelled(False)
    fleet, now_s, changes = load_fleet(steps.store, steps.number), time.time(), []
    for node, tried in fleet.attempts.items():
        if node in nodes:
            continue
        changes += [(row, replace(row, ending=None)) for row in tried if row.state.ended]
        if not tried and (row := intend(steps.store, steps.number, node, 1, now_s)):
            why = "`rater fleet cancel`"
            changes.append((row, replace(row, state=AttemptState.CANCELLED, reason=why)))
    change(steps.store, steps.number, changes, now_s)
    return load_fleet(steps.store, steps.number)


def _cancel(ids: Sequence[str], calls: Backend, *, gently: bool) -> None:
    calls.cancel(ids, gently=gently)


# -- A fleet on the screen: its present state, and every change until its end ----------------------


def show_fleet(
    output: Output, fleet: StoredFleet, silent: str | None, *, every: bool = False
) -> None:
    """Print a fleet; `silent`: why the scheduler gave no answer."""
    if output.json or not output.quiet:
        print_view(output, nodes_document(fleet, silent), partial(nodes_parts, every=every))


def waited(output: Output, poll: float | None, steps: FleetDriver) -> int:
    """Go on with a fleet until it has come to its end, collect and show it; return the status.

    Ctrl-C ends the waiting alone: jobs go on.
    """
    said = None
    while True:
        fleet = steps.act(steps.refresh())
        if steps.silent != said and steps.silent is not None and not output.quiet:
            print_error(f"the scheduler gave no answer, asking again: {steps.silent}")
        said = steps.silent
        if fleet.is_settled:
            break
        time.sleep(POLL_S[fleet.asked.backend] if poll is None else poll)
    if collect_published(steps, quiet=output.quiet) and not steps.refresh().is_settled:
        return waited(output, poll, steps)  # what was damaged is measured again
    set_fleet(steps.store, steps.number, begun=1)
    fleet = steps.refresh()
    show_fleet(output, fleet, steps.silent)
    return 0 if fleet.status == "complete" else 1


# -- Collect what nodes have published: into the archive and its index, as often as one likes ------


def collect_published(steps: FleetDriver, *, quiet: bool) -> int:
    """Admit every published database that was not; return how many had to be set aside.

    One that is damaged makes its attempt a lost one, which is tried again where attempts are left.
    """
    fleet = load_fleet(steps.store, steps.number)
    added = aside = 0
    for row in fleet.every:
        verdict = row.verdict
        if verdict is None or verdict.database is None or row.collected == verdict.sha256:
            continue
        file = steps.folder.inbox / verdict.database
        if not file.exists():
            print_error(f"{row.node}: {file} is not there (yet)")
            continue
        now = replace(row, collected=verdict.sha256)
        try:
            new = admit_database(steps.store, file, fleet.number, *row.key, sha256=verdict.sha256)
            added += new
        except SourceRefusedError as error:
            print_error(f"{row.node}: {verdict.database} is set aside: {error}")
            steps.folder.set_aside(*row.key)
            why = f"the published database was set aside: {error}"
            now = replace(row, state=AttemptState.LOST, reason=why, verdict=None)
            aside += 1
        change(steps.store, steps.number, [(row, now)], time.time())
    if not quiet:
        print_error(
            f"{count(added, 'database')} collected" + (f", {aside} set aside" if aside else "")
        )
    return aside
