"""What becomes of an attempt: its verdict decides, the scheduler explains what is absent; pure.

    intent -> submitted -> pending <-> running -> complete | failed | partial | refused
                                               -> lost | timeout | cancelled | never

No answer of the scheduler concludes nothing. What is published late goes before what was concluded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rater.plan.fleet.attempt import (
    AttemptState,
    Ending,
    JobPhase,
    JobSeen,
    NodeAttempt,
    NodeVerdict,
    VerdictStatus,
)
from rater.text.words import printable

_BY_VERDICT = {
    VerdictStatus.COMPLETE: AttemptState.COMPLETE,
    VerdictStatus.FAILED: AttemptState.FAILED,
    VerdictStatus.REFUSED: AttemptState.REFUSED,
    VerdictStatus.CANCELLED: AttemptState.CANCELLED,
    VerdictStatus.NOT_NEEDED: AttemptState.CANCELLED,
}
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


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """How long what is waited for."""

    pending_s: float | None = None  # a job may be pending; None: for ever
    settle_s: float = 60.0  # a published file may need to be seen here (NFS: about a minute)


@dataclass(frozen=True, slots=True)
class Looked:
    """What there is to see of an attempt at a time."""

    now_s: float
    verdict: NodeVerdict | None = None
    damaged: str | None = None  # what is wrong with what was published
    answered: bool = True  # the scheduler did
    job: JobSeen | None = None  # None: it does not know the job
    claimed_by: str | None = None  # the job that began on the node


def judged(attempt: NodeAttempt, looked: Looked, limits: FleetLimits) -> NodeAttempt:
    """Return the attempt as it is after a look."""
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
    return _without_verdict(attempt, looked, limits)


def _published(attempt: NodeAttempt, verdict: NodeVerdict, looked: Looked) -> NodeAttempt:
    """Return an attempt of which something is published."""
    attempt = replace(attempt, verdict=verdict, job=verdict.job)
    if verdict.status is not VerdictStatus.PARTIAL:
        return _ended(attempt, _BY_VERDICT[verdict.status], verdict.reason, looked)
    if attempt.state.ended:  # concluded before; what is published late says how far it came
        return replace(attempt, reason=_and(attempt.reason, copies_told(verdict)))
    found = _why_partial(attempt, verdict, looked)
    if found is None:
        return replace(attempt, state=AttemptState.RUNNING, reason="it is ending")
    return _ended(attempt, found[0], _and(found[1], copies_told(verdict)), looked)


def _why_partial(
    attempt: NodeAttempt, verdict: NodeVerdict, looked: Looked
) -> tuple[AttemptState, str | None] | None:
    """Say why a node measured a part only; None: it is known when its job has ended."""
    if attempt.ending is Ending.CANCELLED:
        return AttemptState.CANCELLED, "`rater fleet cancel`"
    if verdict.ended_by is None:
        return AttemptState.PARTIAL, verdict.reason
    if verdict.ended_by == "USR1":
        return AttemptState.TIMEOUT, "the time limit was near"
    # By a signal of the scheduler, or of somebody: the scheduler says which.
    told = AttemptState.PARTIAL, f"ended by SIG{verdict.ended_by}"
    if not looked.answered or looked.job is None:
        return told if looked.answered else None
    if looked.job.phase is not JobPhase.ENDED:
        return None
    state, why = _concluded(attempt, looked.job)
    by_itself = state is AttemptState.LOST and looked.job.word not in _WORDS
    return told if by_itself else (state, why)


def _without_verdict(attempt: NodeAttempt, looked: Looked, limits: FleetLimits) -> NodeAttempt:
    job = looked.job
    if job is None and attempt.state is AttemptState.INTENT and looked.claimed_by is None:
        # Not submitted; or it was, by one who was killed, and it is found when it begins.
        if attempt.ending is not None:
            return _ended(attempt, *_by_ending(attempt), looked)
        return attempt
    if job is None or job.phase is JobPhase.ENDED:
        return _gone(attempt, looked, limits)
    attempt = replace(attempt, job=job.job, gone_s=None)
    if job.phase is JobPhase.RUNNING:
        started = looked.now_s if attempt.started_s is None else attempt.started_s
        ending = None if attempt.ending is Ending.NEVER else attempt.ending  # it began after all
        return replace(
            attempt,
            state=AttemptState.RUNNING,
            reason=None,
            started_s=started,
            pending_s=None,
            ending=ending,
            ending_s=None if ending is None else attempt.ending_s,
        )
    since = looked.now_s if attempt.pending_s is None else attempt.pending_s
    late = limits.pending_s is not None and looked.now_s - since >= limits.pending_s
    attempt = replace(
        attempt, state=AttemptState.PENDING, reason=_short(job.reason), pending_s=since
    )
    if late and attempt.ending is None:
        return replace(attempt, ending=Ending.NEVER, ending_s=looked.now_s)
    return attempt


def _gone(attempt: NodeAttempt, looked: Looked, limits: FleetLimits) -> NodeAttempt:
    """Return an attempt whose job has ended, as far as can be known; it may publish yet."""
    since = looked.now_s if attempt.gone_s is None else attempt.gone_s
    job = attempt.job or looked.claimed_by if looked.job is None else looked.job.job
    attempt = replace(attempt, gone_s=since, job=job)
    never_ran = attempt.started_s is None and looked.claimed_by is None
    at_once = never_ran and looked.job is not None and looked.job.word in _CANCELLED
    if looked.now_s - since < limits.settle_s and not at_once:
        return attempt
    if looked.job is None:
        state, why = _forgotten(attempt, never_ran)
    else:
        state, why = _concluded(attempt, looked.job)
    return _ended(attempt, state, why, looked)


def _forgotten(attempt: NodeAttempt, never_ran: bool) -> tuple[AttemptState, str | None]:
    """Conclude of a job that the scheduler does not know any more."""
    if attempt.ending is not None:
        return _by_ending(attempt)
    what = f"the scheduler knows nothing of job {attempt.job} any more"
    if never_ran:
        return AttemptState.LOST, f"{what}, and it was not seen to run"
    return AttemptState.LOST, f"{what}, and nothing was published"


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
    told = f"the job ended ({job.word}) and published nothing"
    return AttemptState.LOST, _and(told, job.reason)


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
    attempt: NodeAttempt, state: AttemptState, why: str | None, looked: Looked
) -> NodeAttempt:
    return replace(
        attempt, state=state, reason=_short(why), ended_s=looked.now_s, pending_s=None, gone_s=None
    )


def _and(*texts: str | None) -> str | None:
    return "; ".join(text for text in texts if text) or None


def _short(text: str | None) -> str | None:
    return None if text is None else printable(text, _MOST_REASON)
