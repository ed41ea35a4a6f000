"""Nodes and attempts of a fleet: their names, what becomes of them, what is due next; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from rater.system.process import ProcessId
from rater.text.kinds import from_json
from rater.text.secrets import command_text
from rater.text.values import printable

# -- One try at a node, what a scheduler says of its job, what the node published of it ------------


class AttemptState(StrEnum):
    """How far an attempt came; each after those above it, the last eight are ends."""

    INTENT = "intent"  # written down before the scheduler is asked
    SUBMITTED = "submitted"  # the scheduler gave it a number
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"  # on its node, which another rater holds
    COMPLETE = "complete"  # all that was planned was measured, and is published
    FAILED = "failed"  # published, and copies of it failed
    PARTIAL = "partial"  # published, and something is missing
    REFUSED = "refused"  # the node, or the scheduler, does not take it
    LOST = "lost"  # nothing was published: node, job or file went away
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NEVER = "never"  # it did not start

    @property
    def ended(self) -> bool:
        """Tell whether nothing more is awaited of it."""
        return self not in LIVE

    @property
    def shown(self) -> str:
        """The state in words for people."""
        return "not started" if self is self.NEVER else self.value

    @property
    def is_retried(self) -> bool:
        """Tell whether another attempt may come to more without anybody changing anything."""
        return self in (self.LOST, self.TIMEOUT, self.PARTIAL)


LIVE = (
    *(AttemptState.INTENT, AttemptState.SUBMITTED, AttemptState.PENDING),
    *(AttemptState.RUNNING, AttemptState.WAITING),
)


class Ending(StrEnum):
    """Why rater itself ended a job."""

    CANCELLED = "cancelled"  # `rater fleet cancel`
    NEVER = "never"  # it was pending too long
    NOT_NEEDED = "not-needed"  # an attempt before has published all there was to measure


class JobPhase(StrEnum):
    """What a scheduler makes of a job."""

    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


class JobSeen(Struct, frozen=True):
    """What a scheduler says of a job."""

    job: str  # the scheduler's own number or name of it
    phase: JobPhase
    word: str  # the scheduler's: NODE_FAIL, TIMEOUT
    reason: str | None = None  # why it is pending, how it ended


class VerdictStatus(StrEnum):
    """What a node says that it came to."""

    COMPLETE = "complete"
    FAILED = "failed"
    PARTIAL = "partial"
    REFUSED = "refused"
    CANCELLED = "cancelled"  # before it began
    NOT_NEEDED = "not-needed"


class NodeVerdict(Struct, frozen=True, kw_only=True):
    """What a node published of an attempt, beside its database; a JSON file."""

    rater: int  # version of this document
    fleet: str  # uuid
    node: str
    attempt: int
    job: str
    status: VerdictStatus
    reason: str | None
    ended_by: str | None  # USR1, TERM: the signal that ended it early
    database: str | None  # file name beside this one; None: there was nothing to publish
    sha256: str | None
    bytes: int | None
    run: str | None  # uuid of the run
    copies_done: int | None  # copy runs in phases that count
    copies_planned: int | None  # None: not a number known beforehand (steady)
    started_at: str  # UTC, by the node's clock: a label, no order
    ended_at: str
    host: dict[str, str]  # what the node says of itself
    notes: tuple[str, ...] = ()


VERDICT_VERSION = 1
ADDED_NOTHING = "added nothing"  # how a note of a verdict begins
JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,400}")  # is given to a scheduler's commands


def verdict_from_json(text: str) -> NodeVerdict:
    """Return what a verdict's text holds. Raises `ValueError` for anything else."""
    fields: Any = from_json(NodeVerdict, text)
    verdict: NodeVerdict = fields
    if verdict.rater != VERDICT_VERSION:
        raise ValueError(f"version {verdict.rater} of this document, {VERDICT_VERSION} is known")
    sha256 = verdict.sha256
    if sha256 is not None and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise ValueError(f"sha256: {sha256!r} is none")
    name = sha256 and f"{verdict.node}.{verdict.attempt}.{sha256[:12]}.db"
    if verdict.database != name:
        raise ValueError(f"database: {verdict.database!r}, expected {name!r}")
    if not JOB.fullmatch(verdict.job):
        raise ValueError(f"job: {verdict.job!r} is no number or name of one")
    return verdict


class NodeAttempt(Struct, frozen=True, kw_only=True):
    """One stored try at a node; times are seconds since 1970 by the submit host's clock."""

    node: str
    attempt: int  # from 1
    state: AttemptState
    intended_s: float  # when it was written down
    reason: str | None = None  # of its state, in words
    job: str | None = None  # the scheduler's number
    ending: Ending | None = None  # rater ends the job, because of this
    ending_s: float | None = None  # since when
    started_s: float | None = None  # when its job was first seen running
    pending_s: float | None = None  # since when it is pending
    gone_s: float | None = None  # since when the scheduler has it no more, and nothing is published
    ended_s: float | None = None
    verdict: NodeVerdict | None = None
    collected: str | None = None  # sha256 of its database when that was collected
    version: int = 0  # of its row, as it was read
    pid: int = 0  # of the submitting process
    pid_start: int | None = None
    boot_id: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """The node, and the number of the attempt."""
        return self.node, self.attempt

    @property
    def owner(self) -> ProcessId:
        """The submitting process."""
        return ProcessId(self.pid, self.pid_start, self.boot_id)


def job_name(fleet: str, node: str, attempt: int) -> str:
    """Return what the job of an attempt is called: the same however often it is submitted."""
    return f"rater-{fleet.replace('-', '')[:12]}-{node}.{attempt}"


def scheduler_job(answer: str) -> str:
    """Return the scheduler's number of a job: `17` of `17.0`, which was restarted 0 times."""
    return answer.partition(".")[0] if answer[:1].isdigit() else answer


# -- The request of a fleet ------------------------------------------------------------------------


FILES: Final = "files"  # the backend of a fleet made of databases: nothing is submitted for it


class FleetOptions(Struct, frozen=True, kw_only=True):
    """The options of a fleet that its nodes get unchanged."""

    backend: str
    parallel: int | None
    attempts: int
    minutes: int | None
    pending_limit_s: float | None
    busy_limit_s: float  # so long another rater may hold a node
    arguments: tuple[str, ...]  # of the site, for the scheduler
    allow_partial: bool


class FleetRequest(FleetOptions, frozen=True, kw_only=True):
    """The request of a fleet, stored before anything is submitted; nodes read it as JSON."""

    uuid: str
    started_at: str  # UTC, ISO 8601 with "Z"
    folder: str
    scratch: str
    directory: str
    words: tuple[str, ...]  # behind `rater run` on each node
    command: tuple[str, ...] | None
    command_line: str
    rater_version: str
    settle_s: float
    confirms: int | None = None  # the fleet whose slow hosts are run again; None: no other's
    lock: str | None = None  # RATER_LOCK of the submit host, which nodes are told

    @property
    def workload_text(self) -> str:
        """What is measured: the suites, or the command; and for which fleet again."""
        suites = " ".join(word for word in self.words if not word.startswith("-")) or "mini"
        command = command_text(self.command) if self.command else suites
        return command if self.confirms is None else f"{command} (confirms fleet {self.confirms})"


# -- What becomes of an attempt: its verdict decides, the scheduler explains what is absent --------
#
# intent -> submitted -> pending <-> running <-> waiting -> complete | failed | partial | refused |
# lost | timeout | cancelled | never
#
# No answer of the scheduler concludes nothing. What is published late goes before what was
# concluded.

# Words of Slurm for ends, beside those of jobs that ended by themselves.
_TIMEOUTS = {"TIMEOUT", "DEADLINE"}
_CANCELLED = {"CANCELLED", "REVOKED"}
_WORDS = {
    "NODE_FAIL": "the node failed (NODE_FAIL)",
    "BOOT_FAIL": "the node did not boot (BOOT_FAIL)",
    "PREEMPTED": "another job took its place (PREEMPTED)",
    "OUT_OF_MEMORY": "its memory did not do (OUT_OF_MEMORY)",
}
_MOST_REASON = 400


class AttemptObservation(Struct, frozen=True, kw_only=True):
    """What there is to see of an attempt at a time."""

    now_s: float
    verdict: NodeVerdict | None = None
    damaged: str | None = None  # what is wrong with what was published
    answered: bool = True  # the scheduler did
    job: JobSeen | None = None  # None if the scheduler does not know the job
    claimed_by: str | None = None  # the job that began on the node
    waits_for: str | None = None  # what that job says of another rater there
    log: str | None = None  # the end of what it printed, and where that is


def updated_attempt(
    attempt: NodeAttempt, looked: AttemptObservation, request: FleetRequest
) -> NodeAttempt:
    """Return the attempt after a look at its folder and its job."""
    if looked.verdict is not None and looked.verdict != attempt.verdict:
        return _published(attempt, looked.verdict, looked)
    if looked.damaged is not None and attempt.verdict is None:
        if attempt.state is AttemptState.LOST and attempt.reason == looked.damaged:
            return attempt
        return _ended(attempt, AttemptState.LOST, looked.damaged, looked)
    if attempt.state.ended or not looked.answered:
        return attempt
    if attempt.verdict is not None:  # partial, of a job that had not ended
        return _published(attempt, attempt.verdict, looked)
    return _without_verdict(attempt, looked, request)


def _published(
    attempt: NodeAttempt, verdict: NodeVerdict, looked: AttemptObservation
) -> NodeAttempt:
    """Return an attempt of which something is published."""
    attempt = replace(attempt, verdict=verdict, job=verdict.job)
    if verdict.status is not VerdictStatus.PARTIAL:
        is_needed = verdict.status is not VerdictStatus.NOT_NEEDED
        state = AttemptState(verdict.status if is_needed else AttemptState.CANCELLED)
        return _ended(attempt, state, verdict.reason, looked)
    if attempt.state.ended:  # concluded before; what is published late says how far it came
        return replace(attempt, reason=_and(attempt.reason, copies_told(verdict)))
    reason = _why_partial(attempt, verdict, looked)
    if reason is None:
        return replace(attempt, state=AttemptState.RUNNING, reason="it is ending")
    nothing = [note for note in verdict.notes if note.startswith(ADDED_NOTHING)]
    return _ended(attempt, reason[0], _and(reason[1], *nothing, copies_told(verdict)), looked)


def _why_partial(
    attempt: NodeAttempt, verdict: NodeVerdict, looked: AttemptObservation
) -> tuple[AttemptState, str | None] | None:
    """Return why a node measured only a part, or None until its job has ended."""
    if attempt.ending is Ending.CANCELLED:
        return AttemptState.CANCELLED, "`rater fleet cancel`"
    if verdict.ended_by is None:
        return AttemptState.PARTIAL, verdict.reason
    if verdict.ended_by == "USR1":
        return AttemptState.TIMEOUT, "the time limit was near"
    # By a signal of the scheduler, or of somebody: the scheduler says which.
    reason = AttemptState.PARTIAL, f"ended by SIG{verdict.ended_by}"
    if not looked.answered or looked.job is None:
        return reason if looked.answered else None
    if looked.job.phase is not JobPhase.ENDED:
        return None
    state, why = _concluded(attempt, looked.job)
    by_itself = state is AttemptState.LOST and looked.job.word not in _WORDS
    return reason if by_itself else (state, why)


def _without_verdict(
    attempt: NodeAttempt, looked: AttemptObservation, request: FleetRequest
) -> NodeAttempt:
    job = looked.job
    if job is None and attempt.state is AttemptState.INTENT and looked.claimed_by is None:
        # Not submitted; or it was, by one who was killed, and it is found when it begins.
        if attempt.ending is not None:
            return _ended(attempt, *_by_ending(attempt), looked)
        return attempt
    if job is None or job.phase is JobPhase.ENDED:
        return _gone(attempt, looked, request)
    attempt = replace(attempt, job=job.job, gone_s=None)
    if job.phase is JobPhase.RUNNING:
        started = looked.now_s if attempt.started_s is None else attempt.started_s
        ending = None if attempt.ending is Ending.NEVER else attempt.ending  # it began after all
        return replace(
            attempt,
            state=AttemptState.WAITING if looked.waits_for else AttemptState.RUNNING,
            reason=_short(looked.waits_for or job.reason),
            started_s=started,
            pending_s=None,
            ending=ending,
            ending_s=None if ending is None else attempt.ending_s,
        )
    since = looked.now_s if attempt.pending_s is None else attempt.pending_s
    late = request.pending_limit_s is not None and looked.now_s - since >= request.pending_limit_s
    attempt = replace(
        attempt, state=AttemptState.PENDING, reason=_short(job.reason), pending_s=since
    )
    if late and attempt.ending is None:
        return replace(attempt, ending=Ending.NEVER, ending_s=looked.now_s)
    return attempt


def _gone(attempt: NodeAttempt, looked: AttemptObservation, request: FleetRequest) -> NodeAttempt:
    """Return an attempt whose job has ended, as far as can be known; it may publish yet."""
    since = looked.now_s if attempt.gone_s is None else attempt.gone_s
    job = attempt.job or looked.claimed_by if looked.job is None else looked.job.job
    attempt = replace(attempt, gone_s=since, job=job)
    never_ran = attempt.started_s is None and looked.claimed_by is None
    at_once = never_ran and looked.job is not None and looked.job.word in _CANCELLED
    if looked.now_s - since < request.settle_s and not at_once:
        return attempt
    if looked.job is None:
        state, why = _forgotten(attempt, never_ran)
    else:
        state, why = _concluded(attempt, looked.job)
    if state in (AttemptState.LOST, AttemptState.TIMEOUT):
        why = _and(why, looked.log)
    return _ended(attempt, state, why, looked)


def _forgotten(attempt: NodeAttempt, never_ran: bool) -> tuple[AttemptState, str | None]:
    """Conclude of a job that the scheduler does not know any more."""
    if attempt.ending is not None:
        return _by_ending(attempt)
    message = f"the scheduler knows nothing of job {attempt.job} any more"
    if never_ran:
        return AttemptState.LOST, f"{message}, and it was not seen to run"
    return AttemptState.LOST, f"{message}, and nothing was published"


def _concluded(attempt: NodeAttempt, job: JobSeen) -> tuple[AttemptState, str | None]:
    """Conclude from the scheduler's word for a job that has ended."""
    if job.word in _TIMEOUTS:
        return AttemptState.TIMEOUT, f"the time limit was over ({job.word})"
    if attempt.ending is not None:
        return _by_ending(attempt)
    if job.word in _CANCELLED:
        return AttemptState.CANCELLED, "cancelled in the scheduler, not by rater"
    if job.word in _WORDS:
        return AttemptState.LOST, _and(_WORDS[job.word], job.reason)
    message = f"the job ended ({job.word}) and published nothing"
    return AttemptState.LOST, _and(message, job.reason)


def _by_ending(attempt: NodeAttempt) -> tuple[AttemptState, str | None]:
    if attempt.ending is Ending.NEVER:
        return AttemptState.NEVER, _and("pending too long", attempt.reason)
    if attempt.ending is Ending.NOT_NEEDED:
        return AttemptState.CANCELLED, "an attempt before it has published everything"
    return AttemptState.CANCELLED, "`rater fleet cancel`"


def copies_told(verdict: NodeVerdict) -> str | None:
    """Say how many copies of how many a verdict has."""
    if verdict.copies_done is None:
        return None
    of = "" if verdict.copies_planned is None else f" of {verdict.copies_planned}"
    return f"{verdict.copies_done}{of} copies"


def _ended(
    attempt: NodeAttempt, state: AttemptState, why: str | None, looked: AttemptObservation
) -> NodeAttempt:
    return replace(
        attempt, state=state, reason=_short(why), ended_s=looked.now_s, pending_s=None, gone_s=None
    )


def _and(*texts: str | None) -> str | None:
    return "; ".join(text for text in texts if text) or None


def _short(text: str | None) -> str | None:
    return None if text is None else printable(text, _MOST_REASON)


# -- A fleet: how it stands, and what is to be done for it -----------------------------------------


class StoredFleet(Struct, frozen=True, kw_only=True):
    """A fleet read back."""

    number: int
    asked: FleetRequest
    begun: bool  # the command that made it came to its end
    cancelled_at: str | None
    owner: ProcessId
    attempts: Mapping[str, tuple[NodeAttempt, ...]]  # at each node, in their order

    @property
    def every(self) -> tuple[NodeAttempt, ...]:
        """All attempts, node by node."""
        return tuple(it for of in self.attempts.values() for it in of)

    @property
    def live(self) -> tuple[NodeAttempt, ...]:
        """The attempts that have not ended."""
        return tuple(it for it in self.every if not it.state.ended)

    @property
    def is_settled(self) -> bool:
        """Tell whether no job is left and none will be submitted."""
        return not self.live and not self.due()

    @property
    def deciding(self) -> dict[str, NodeAttempt | None]:
        """The attempt that stands for each node; None: not tried yet."""
        return {it: deciding_attempt(own) if own else None for it, own in self.attempts.items()}

    @property
    def complete(self) -> int:
        """How many nodes have measured all that was planned."""
        attempts = self.deciding.values()
        return sum(it is not None and it.state is AttemptState.COMPLETE for it in attempts)

    @property
    def status(self) -> str:
        """How it stands, in a word."""
        if self.complete == len(self.attempts):
            return "complete"
        if not self.is_settled:
            return "cancelling" if self.cancelled_at else "running"
        return "cancelled" if self.cancelled_at else "incomplete"

    def ends(self) -> list[tuple[NodeAttempt, Ending]]:
        """Return the jobs that are to end and do not yet, and why."""
        ends = []
        for it in self.live:
            done = deciding_attempt(self.attempts[it.node]).state is AttemptState.COMPLETE
            why = Ending.CANCELLED if self.cancelled_at else Ending.NOT_NEEDED if done else None
            if why is not None and it.ending is None:
                ends.append((it, why))
        return ends

    def due(self, idle: Collection[str] = (), again: Collection[str] = ()) -> list[tuple[str, int]]:
        """Return what is to be submitted now: nodes with numbers of attempts, in this order.

        Nodes that were not tried yet come before others, and of both those that are idle: a node
        that is busy must not keep one waiting that is free. Nodes of `again` are tried once more
        even if they were as often as the fleet allows.
        """
        if self.cancelled_at:
            return []
        wanted = [
            (node, len(tried) + 1)
            for node, tried in self.attempts.items()
            if all(it.state.ended for it in tried)
            and (node in again or _is_wanted(tried, self.asked.attempts))
        ]
        wanted.sort(key=lambda it: (it[1], it[0] not in idle))  # stable: else in the order of nodes
        most = self.asked.parallel
        return wanted if most is None else wanted[: max(0, most - len(self.live))]


def _is_wanted(attempts: Sequence[NodeAttempt], most: int) -> bool:
    """Tell whether a node whose attempts have ended is to be tried, or once more."""
    if not attempts:
        return True
    last = deciding_attempt(attempts)
    if last.state is AttemptState.CANCELLED:  # by `rater fleet cancel`, which was taken back since
        return last.ending is Ending.CANCELLED
    tried = [attempt for attempt in attempts if attempt.state is not AttemptState.CANCELLED]
    return len(tried) < most and last.state.is_retried


def may_come_to_more(attempts: Sequence[NodeAttempt]) -> bool:
    """Tell whether a node is tried again by `rater fleet retry` that is not told the nodes."""
    if not all(attempt.state.ended for attempt in attempts):
        return False
    last = deciding_attempt(attempts) if attempts else None
    if last is None or last.ending is Ending.CANCELLED:
        return last is None or last.state is AttemptState.CANCELLED
    return last.state.is_retried or last.state is AttemptState.NEVER


def deciding_attempt(attempts: Sequence[NodeAttempt]) -> NodeAttempt:
    """Return the attempt that stands for a node: one that has everything, else the last."""
    complete = [attempt for attempt in attempts if attempt.state is AttemptState.COMPLETE]
    return (complete or attempts)[-1]
