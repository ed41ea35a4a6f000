"""One step of a fleet: look, store, do what is due; collected, and on the screen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from rater.errors import InputError
from rater.fleet.agent import this_rater
from rater.fleet.archive import admit_database
from rater.fleet.backends import (
    POLL_S,
    Backend,
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
    backend,
)
from rater.fleet.foreign import SourceRefusedError
from rater.fleet.plan import (
    AttemptObservation,
    AttemptState,
    JobPhase,
    JobSeen,
    NodeAttempt,
    due_actions,
    job_name,
    scheduler_job,
    updated_attempt,
)
from rater.fleet.shared_folder import PublishedVerdict, SharedFolder
from rater.fleet.store import (
    StoredFleet,
    change,
    claim_submission,
    intend,
    load_fleet,
    set_fleet,
)
from rater.fleet.table import fleet_document, fleet_parts
from rater.process import is_alive, print_error, this_process
from rater.store.open_database import OpenDatabase
from rater.text.values import count
from rater.workflow.arguments import Output, print_view

# What is to be done is written down before it is done, so that the next step knows what may have
# happened: a job may be submitted twice (one of the two runs), an ended job cancelled once more.

_FIRMLY_AFTER_S = 60.0  # a job that was asked to end, and has not
_FOR_GOOD = (AttemptState.COMPLETE, AttemptState.FAILED, AttemptState.REFUSED)


type _Key = tuple[str, int]  # node and attempt


def no_news(_: NodeAttempt) -> None:
    """Say nothing of what became of an attempt."""


class FleetDriver(Struct, dict=True):
    """Steps of one fleet."""

    store: OpenDatabase
    number: int
    news: Callable[[NodeAttempt], None] = no_news  # is told of each change
    silent: str | None = None  # why the scheduler gave no answer in the last step
    _backend: Backend | None = None
    _seen: dict[str, JobSeen] = field(default_factory=dict)
    # What verdicts said, with the state of their files.
    _files: dict[_Key, tuple[object, PublishedVerdict]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Judge whose the plan and its folder are: what they say is run, written and removed."""
        asked = self.store.sourced(load_fleet(self.store, self.number).asked)
        if asked.doubt is not None:
            raise InputError(
                f"rater cannot tell that fleet {self.number} is yours: {asked.doubt}; `rater fleet "
                "status` shows it, a copy of the database that is yours goes on with it"
            )
        self.folder = SharedFolder(Path(asked.trusted().value.folder))
        self.folder.check()

    def refresh(self) -> StoredFleet:
        """Look at what was published, and at the scheduler; store it; return the fleet."""
        fleet = load_fleet(self.store, self.number)
        claimed = {row.key: self.folder.claimed_by(*row.key) for row in fleet.live}
        self._poll(fleet, claimed)  # before the look at what is published: it ends after that
        now_s = time.time()
        published = self._published(fleet)
        changes = []
        for row in fleet.every:
            looked = self._looked(fleet, row, published.get(row.key), claimed.get(row.key), now_s)
            now = updated_attempt(row, looked, fleet.limits)
            changes.append((row, now))
            if looked.damaged and now.state is AttemptState.LOST and now.state != row.state:
                self.folder.set_aside(*row.key)
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
        rows = {row.key: row for row in fleet.live}
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

    def _published(self, fleet: StoredFleet) -> dict[_Key, PublishedVerdict]:
        """Return what is published and not known to be whole yet, by node and attempt.

        A file that has not changed since the last look is not read again.
        """
        found: dict[_Key, PublishedVerdict] = {}
        states = self.folder.verdict_files()
        for row in fleet.every:
            state = states.get(row.key)
            if state is None or (row.verdict and row.state in _FOR_GOOD):
                continue
            before, known = self._files.get(row.key, (None, None))
            if before != state:
                known = self.folder.looked_up(fleet.asked.uuid, *row.key)
                if known is not None and not known.absent:
                    self._files[row.key] = state, known
            if known is not None:
                found[row.key] = known
        return found

    def _poll(self, fleet: StoredFleet, claimed: Mapping[_Key, str | None]) -> None:
        """Ask for the jobs that have not ended; why there is no answer is kept.

        The job that began on the node is the one, where a killed submitter left two. Of one that
        is pending the node may have more to say than the job.
        """
        self.silent, self._seen = None, {}
        names = {job_name(fleet.asked.uuid, *row.key): row for row in fleet.live}
        jobs = {}
        for name, row in names.items():
            began = claimed.get(row.key)
            jobs[name] = row.job if began is None else scheduler_job(began)
        if not jobs:
            return
        try:
            self._seen = dict(self._calls(fleet).poll(jobs))
            pending = {
                name: names[name].node
                for name, it in self._seen.items()
                if it.phase is JobPhase.PENDING
            }
            found = self._calls(fleet).nodes(tuple(pending.values())) if pending else ()
        except (SchedulerUnavailableError, JobRejectedError) as error:
            self.silent = str(error)
            return
        nodes = {it.name: it for it in found if it.reason}
        for name in (name for name, node in pending.items() if node in nodes):
            node, it = nodes[pending[name]], self._seen[name]
            why = "; ".join(filter(None, (f"{node.name} is {node.word}: {node.reason}", it.reason)))
            self._seen[name] = replace(it, reason=why)

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
        job = self._seen.get(job_name(fleet.asked.uuid, it.node, it.attempt))
        gone = job is None or job.phase is JobPhase.ENDED
        of = it.node, it.attempt
        return AttemptObservation(
            now_s,
            verdict,
            damaged,
            self.silent is None,
            job,
            None if claimed is None else scheduler_job(claimed),
            waits_for=None if gone else self.folder.waits_for(*of),
            log=self.folder.last_words(*of) if gone and not it.state.ended else None,
        )

    # -- doing ------------------------------------------------------------------------------------

    def _end(self, fleet: StoredFleet, now_s: float) -> None:
        """End the jobs that are to end: gently at first, those that wait at once."""
        ending = [row for row in fleet.live if row.ending is not None and row.job]
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
        for it in fleet.live:
            if it.state is not AttemptState.INTENT or it.ending is not None:
                continue
            ours = it.owner == this_process()
            if not ours and is_alive(it.owner):
                continue
            taken = ours or claim_submission(self.store, self.number, it)
            if taken and not self._submit(fleet, it):
                return

    def _submit(self, fleet: StoredFleet, it: NodeAttempt) -> bool:
        """Submit what is written down; False: the scheduler gives no answers now."""
        asked = fleet.asked
        log = self.folder.log(it.node, it.attempt)
        os.close(self.folder.open_log(it.node, it.attempt))
        order = JobSpec(
            name=job_name(asked.uuid, it.node, it.attempt),
            node=it.node,
            command=(
                *(*this_rater(), "fleet", "agent", "--spec", str(self.folder.spec_file)),
                *("--node", it.node, "--attempt", str(it.attempt), "--job", "{job}"),
            ),
            directory=Path(asked.directory),
            log=log,
            minutes=asked.minutes,
            arguments=asked.arguments,
        )
        now_s = time.time()
        try:
            job = self._calls(fleet).submit(self.store.sourced(order).trusted())
        except SchedulerUnavailableError as error:
            self.silent = str(error)
            self._store([(it, replace(it, reason=f"not submitted yet: {error}"))], now_s)
            return False
        except JobRejectedError as error:
            why = f"not taken by the scheduler: {error}"
            no = replace(it, state=AttemptState.REFUSED, reason=why, ended_s=now_s)
            self._store([(it, no)], now_s)
            return True
        done = replace(it, state=AttemptState.SUBMITTED, job=job, reason=None)
        self._store([(it, done)], now_s)
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

    def _store(self, changes: Iterable[tuple[NodeAttempt, NodeAttempt]], now_s: float) -> None:
        pairs = list(changes)
        before = {row.key: row.state for row, _ in pairs}
        for it in change(self.store, self.number, pairs, now_s):
            if before[it.node, it.attempt] is not it.state:
                self.news(it)


def take_back_cancelling(steps: FleetDriver, wanted: Collection[str]) -> StoredFleet:
    """Let a cancelled fleet go on with these nodes; the others stay cancelled for good."""
    set_fleet(steps.store, steps.number, cancelled_at=None)
    steps.folder.mark_cancelled(False)
    fleet, now_s = load_fleet(steps.store, steps.number), time.time()
    for node in (it for it in fleet.nodes if it not in wanted):
        left = fleet.attempts[node] or (intend(steps.store, steps.number, node, 1, now_s),)
        changes = []
        for row in (it for it in left if it is not None):
            now = replace(row, ending=None)
            if not fleet.attempts[node]:
                now = replace(now, state=AttemptState.CANCELLED, reason="`rater fleet cancel`")
            changes.append((row, now if now.state.ended else row))
        change(steps.store, steps.number, changes, now_s)
    return load_fleet(steps.store, steps.number)


# -- A fleet on the screen: as it is, and what becomes of it while somebody waits ------------------

_MOST_FOLLOWED = 16  # nodes whose every step is said


def show_fleet(
    output: Output, fleet: StoredFleet, silent: str | None, *, every: bool = False
) -> None:
    """Print a fleet; `silent`: why the scheduler gave no answer."""
    print_view(output, fleet_document(fleet, silent), partial(fleet_parts, every=every))


def update_printer(nodes: int, *, quiet: bool) -> Callable[[NodeAttempt], None]:
    """Return what says on standard error what becomes of nodes; of many only how they end."""

    def tell(it: NodeAttempt) -> None:
        if it.state in (AttemptState.INTENT, AttemptState.SUBMITTED):
            return
        if nodes > _MOST_FOLLOWED and not it.state.ended:
            return
        again = f" (attempt {it.attempt})" if it.attempt > 1 else ""
        print_error(f"{it.node}{again}: {it.state.text}" + (f": {it.reason}" if it.reason else ""))

    return no_news if quiet else tell


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
    if output.json or not output.quiet:
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
