"""One step of a fleet: look, store, do what is due; collected, and on the screen."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from rater.fleet.agent import this_rater
from rater.fleet.archive import AdmitOutcome, admit_database
from rater.fleet.backends import (
    POLL_S,
    Backend,
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
    backend,
)
from rater.fleet.plan import (
    AttemptObservation,
    AttemptState,
    JobSeen,
    NodeAttempt,
    deciding_attempt,
    due_actions,
    job_name,
    scheduler_job,
    updated_attempt,
)
from rater.fleet.shared_folder import PublishedVerdict, SharedFolder
from rater.fleet.store import (
    StoredAttempt,
    StoredFleet,
    change,
    claim_submission,
    intend,
    load_fleet,
    mark_begun,
)
from rater.fleet.table import FleetView, NodeView, fleet_document, print_fleet, what_text
from rater.process import is_alive, print_error, this_process
from rater.store.open_database import OpenDatabase
from rater.text.values import count
from rater.workflow.arguments import print_output

# What is to be done is written down before it is done, so that the next step knows what may have
# happened: a job may be submitted twice (one of the two runs), an ended job cancelled once more.

_FIRMLY_AFTER_S = 60.0  # a job that was asked to end, and has not
_FOR_GOOD = (AttemptState.COMPLETE, AttemptState.FAILED, AttemptState.REFUSED)


def no_news(_: NodeAttempt) -> None:
    """Say nothing of what became of an attempt."""


@dataclass
class FleetDriver:
    """Steps of one fleet."""

    store: OpenDatabase
    number: int
    news: Callable[[NodeAttempt], None] = no_news  # is told of each change
    silent: str | None = None  # why the scheduler gave no answer in the last step
    _backend: Backend | None = None
    _seen: dict[str, JobSeen] = field(default_factory=dict)
    # What verdicts said, with the state of their files.
    _files: dict[tuple[str, int], tuple[object, PublishedVerdict]] = field(default_factory=dict)

    def refresh(self) -> StoredFleet:
        """Look at what was published, and at the scheduler; store it; return the fleet."""
        fleet = load_fleet(self.store, self.number)
        folder = SharedFolder(Path(fleet.asked.folder))
        claimed = {
            (row.attempt.node, row.attempt.attempt): folder.claimed_by(
                row.attempt.node, row.attempt.attempt
            )
            for row in fleet.live
        }
        self._poll(fleet, claimed)  # before the look at what is published: it ends after that
        now_s = time.time()
        published = self._published(fleet, folder)
        changes = []
        for row in (row for of_node in fleet.rows.values() for row in of_node):
            key = (row.attempt.node, row.attempt.attempt)
            looked = self._looked(fleet, row.attempt, published.get(key), claimed.get(key), now_s)
            now = updated_attempt(row.attempt, looked, fleet.limits)
            changes.append((row, now))
            if looked.damaged and now.state is AttemptState.LOST and now.state != row.attempt.state:
                folder.set_aside(*key)
        self._store(changes, now_s)
        return load_fleet(self.store, self.number)

    def act(
        self, fleet: StoredFleet, *, submit: bool = True, again: Sequence[str] = ()
    ) -> StoredFleet:
        """Do what is due: end jobs, take up what a killed submitter left, submit.

        `again`: nodes that are tried once more however often they were.
        """
        now_s = time.time()
        todo = due_actions(fleet.rules, fleet.nodes, fleet.attempts)
        rows = {(row.attempt.node, row.attempt.attempt): row for row in fleet.live}
        ends = [
            (rows[it.node, it.attempt], replace(it, ending=why, ending_s=now_s))
            for it, why in todo.end
        ]
        self._store(ends, now_s)
        fleet = load_fleet(self.store, self.number)
        self._end(fleet, now_s)
        if submit and not self.silent:
            self._submit_left(fleet)
            all_at_once = replace(fleet.rules, parallel=None)
            wanted = due_actions(all_at_once, fleet.nodes, fleet.attempts, again=again).submit
            idle = self._idle([node for node, _ in wanted]) if wanted else set()
            for node, attempt in due_actions(
                fleet.rules, fleet.nodes, fleet.attempts, idle, again
            ).submit:
                row = intend(self.store, self.number, node, attempt, time.time())
                if row is not None and not self._submit(fleet, row):
                    break
        return load_fleet(self.store, self.number)

    # -- looking ----------------------------------------------------------------------------------

    def _published(
        self, fleet: StoredFleet, folder: SharedFolder
    ) -> dict[tuple[str, int], PublishedVerdict]:
        """Return what is published and not known to be whole yet, by node and attempt.

        A file that has not changed since the last look is not read again.
        """
        found: dict[tuple[str, int], PublishedVerdict] = {}
        states = folder.verdict_files()
        for row in (row for of_node in fleet.rows.values() for row in of_node):
            key = (row.attempt.node, row.attempt.attempt)
            state = states.get(key)
            if state is None or (
                row.attempt.verdict is not None and row.attempt.state in _FOR_GOOD
            ):
                continue
            known = self._files.get(key)
            if known is None or known[0] != state:
                looked_up = folder.looked_up(fleet.asked.uuid, *key)
                if looked_up is None:
                    continue
                known = (state, looked_up)
                if not looked_up.absent:
                    self._files[key] = known
            found[key] = known[1]
        return found

    def _poll(self, fleet: StoredFleet, claimed: Mapping[tuple[str, int], str | None]) -> None:
        """Ask for the jobs that have not ended; why there is no answer is kept.

        The job that began on the node is the one, where a killed submitter left two.
        """
        self.silent, self._seen = None, {}
        jobs = {}
        for it in (row.attempt for row in fleet.live):
            began = claimed.get((it.node, it.attempt))
            job = it.job if began is None else scheduler_job(began)
            jobs[job_name(fleet.asked.uuid, it.node, it.attempt)] = job
        if not jobs:
            return
        try:
            self._seen = dict(self._calls(fleet).poll(jobs))
        except (SchedulerUnavailableError, JobRejectedError) as error:
            self.silent = str(error)

    def _looked(
        self,
        fleet: StoredFleet,
        it: NodeAttempt,
        published: PublishedVerdict | None,
        claimed: str | None,
        now_s: float,
    ) -> AttemptObservation:
        """Return what there is to see of an attempt."""
        verdict = damaged = None
        if published is not None and published.absent:
            # Not seen here yet; a verdict without its database is none in the end.
            late = it.gone_s is not None and now_s - it.gone_s >= fleet.asked.settle_s
            damaged = published.damaged if late else None
        elif published is not None:
            damaged = published.damaged
            verdict = None if damaged else published.verdict
        return AttemptObservation(
            now_s,
            verdict,
            damaged,
            self.silent is None,
            self._seen.get(job_name(fleet.asked.uuid, it.node, it.attempt)),
            None if claimed is None else scheduler_job(claimed),
        )

    # -- doing ------------------------------------------------------------------------------------

    def _end(self, fleet: StoredFleet, now_s: float) -> None:
        """End the jobs that are to end: gently at first, those that wait at once."""
        ending = [
            row.attempt for row in fleet.live if row.attempt.ending is not None and row.attempt.job
        ]
        gently: list[str] = []
        firmly: list[str] = []
        for it in ending:
            late = it.ending_s is not None and now_s - it.ending_s > _FIRMLY_AFTER_S
            (firmly if late else gently).append(str(it.job))
        try:
            for some, kind in ((gently, True), (firmly, False)):
                if some:
                    self._calls(fleet).cancel(some, gently=kind)
        except (SchedulerUnavailableError, JobRejectedError) as error:
            self.silent = str(error)

    def _submit_left(self, fleet: StoredFleet) -> None:
        """Submit what was written down and is not with the scheduler: its submitter was killed."""
        for row in fleet.live:
            it = row.attempt
            if it.state is not AttemptState.INTENT or it.ending is not None:
                continue
            ours = row.owner == this_process()
            if not ours and is_alive(row.owner):
                continue
            taken = ours or claim_submission(self.store, self.number, row)
            if taken and not self._submit(fleet, row):
                return

    def _submit(self, fleet: StoredFleet, row: StoredAttempt) -> bool:
        """Submit what is written down; False: the scheduler gives no answers now."""
        asked, it = fleet.asked, row.attempt
        folder = SharedFolder(Path(asked.folder))
        log = folder.log(it.node, it.attempt)
        order = JobSpec(
            name=job_name(asked.uuid, it.node, it.attempt),
            node=it.node,
            command=(
                *(*this_rater(), "fleet", "agent", "--spec", str(folder.spec_file)),
                *("--node", it.node, "--attempt", str(it.attempt), "--job", "{job}"),
            ),
            directory=Path(asked.directory),
            log=log,
            minutes=asked.minutes,
            arguments=asked.arguments,
        )
        now_s = time.time()
        try:
            job = self._calls(fleet).submit(order)
        except SchedulerUnavailableError as error:
            self.silent = str(error)
            self._store([(row, replace(it, reason=f"not submitted yet: {error}"))], now_s)
            return False
        except JobRejectedError as error:
            why = f"not taken by the scheduler: {error}"
            no = replace(it, state=AttemptState.REFUSED, reason=why, ended_s=now_s)
            self._store([(row, no)], now_s)
            return True
        done = replace(it, state=AttemptState.SUBMITTED, job=job, reason=None)
        self._store([(row, done)], now_s)
        return True

    def _idle(self, nodes: Iterable[str]) -> set[str]:
        fleet = load_fleet(self.store, self.number)
        try:
            return {it.name for it in self._calls(fleet).nodes(tuple(nodes)) if it.is_idle}
        except (SchedulerUnavailableError, JobRejectedError):
            return set()

    def _calls(self, fleet: StoredFleet) -> Backend:
        if self._backend is None:
            self._backend = backend(fleet.asked.backend, Path(fleet.asked.folder))
        return self._backend

    def _store(self, changes: Iterable[tuple[StoredAttempt, NodeAttempt]], now_s: float) -> None:
        pairs = list(changes)
        before = {(row.attempt.node, row.attempt.attempt): row.attempt.state for row, _ in pairs}
        for it in change(self.store, self.number, pairs, now_s):
            if before[it.node, it.attempt] is not it.state:
                self.news(it)


# -- A fleet on the screen: as it is, and what becomes of it while somebody waits ------------------

_MOST_FOLLOWED = 16  # nodes whose every step is said


def view_of(fleet: StoredFleet, silent: str | None = None) -> FleetView:
    """Return a fleet as it is shown."""
    asked = fleet.asked
    nodes = tuple(
        NodeView(node, deciding_attempt(tried) if tried else None, tried)
        for node, tried in fleet.attempts.items()
    )
    return FleetView(
        fleet.number,
        asked.uuid,
        asked.started_at,
        asked.backend,
        asked.folder,
        what_text(asked.words, asked.command),
        status_of(fleet),
        silent,
        nodes,
    )


def status_of(fleet: StoredFleet) -> str:
    """Return in a word how a fleet stands."""
    if is_complete(fleet):
        return "complete"
    if not fleet.is_settled:
        return "cancelling" if fleet.cancelled_at else "running"
    return "cancelled" if fleet.cancelled_at else "incomplete"


def is_complete(fleet: StoredFleet) -> bool:
    """Tell whether every node has measured all that was planned."""
    return all(
        tried and deciding_attempt(tried).state is AttemptState.COMPLETE
        for tried in fleet.attempts.values()
    )


def show_fleet(
    args: argparse.Namespace, fleet: StoredFleet, silent: str | None, *, every: bool = False
) -> None:
    """Print a fleet."""
    view = view_of(fleet, silent)
    print_output(args, partial(fleet_document, view), partial(print_fleet, view, every=every))


def update_printer(nodes: int, *, quiet: bool) -> Callable[[NodeAttempt], None]:
    """Return what says on standard error what becomes of nodes; of many only how they end."""

    def tell(it: NodeAttempt) -> None:
        if it.state in (AttemptState.INTENT, AttemptState.SUBMITTED):
            return
        if nodes > _MOST_FOLLOWED and not it.state.ended:
            return
        again = f" (attempt {it.attempt})" if it.attempt > 1 else ""
        print_error(f"{it.node}{again}: {it.state}" + (f": {it.reason}" if it.reason else ""))

    return no_news if quiet else tell


def waited(args: argparse.Namespace, steps: FleetDriver) -> int:
    """Go on with a fleet until it has come to its end, collect and show it; return the status.

    Ctrl-C ends the waiting alone: jobs go on.
    """
    said = None
    while True:
        fleet = steps.act(steps.refresh())
        if steps.silent != said and steps.silent is not None and not args.quiet:
            print_error(f"the scheduler gave no answer, asking again: {steps.silent}")
        said = steps.silent
        if fleet.is_settled:
            break
        time.sleep(POLL_S[fleet.asked.backend] if args.poll is None else args.poll)
    if collect_published(steps, quiet=args.quiet) and not steps.refresh().is_settled:
        return waited(args, steps)  # what was damaged is measured again
    mark_begun(steps.store, steps.number)
    fleet = steps.refresh()
    if args.json or not args.quiet:
        show_fleet(args, fleet, steps.silent)
    return 0 if is_complete(fleet) else 1


# -- Collect what nodes have published: into the archive and its index, as often as one likes ------


def collect_published(steps: FleetDriver, *, quiet: bool) -> int:
    """Admit every published database that was not; return how many had to be set aside.

    One that is damaged makes its attempt a lost one, which is tried again where attempts are left.
    """
    fleet = load_fleet(steps.store, steps.number)
    folder = SharedFolder(Path(fleet.asked.folder))
    added = aside = 0
    for row in (row for of_node in fleet.rows.values() for row in of_node):
        verdict = row.attempt.verdict
        if verdict is None or verdict.database is None or row.attempt.collected == verdict.sha256:
            continue
        file = folder.inbox / verdict.database
        if not file.exists():
            print_error(f"{row.attempt.node}: {file} is not there (yet)")
            continue
        with steps.store.writing("collecting") as connection:
            admission = admit_database(
                connection,
                file,
                fleet.number,
                row.attempt.node,
                row.attempt.attempt,
                expected_sha256=verdict.sha256,
            )
        if admission.outcome is AdmitOutcome.SET_ASIDE:
            print_error(f"{row.attempt.node}: {verdict.database} is set aside: {admission.reason}")
            folder.set_aside(row.attempt.node, row.attempt.attempt)
            why = f"the published database was set aside: {admission.reason}"
            _stored(
                steps, row, replace(row.attempt, state=AttemptState.LOST, reason=why, verdict=None)
            )
            aside += 1
            continue
        added += admission.outcome in (AdmitOutcome.ADDED, AdmitOutcome.REPLACED)
        _stored(steps, row, replace(row.attempt, collected=verdict.sha256))
    if not quiet:
        print_error(
            f"{count(added, 'database')} collected" + (f", {aside} set aside" if aside else "")
        )
    return aside


def _stored(steps: FleetDriver, row: StoredAttempt, now: NodeAttempt) -> None:
    change(steps.store, steps.number, [(row, now)], time.time())
