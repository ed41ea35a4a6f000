"""One try at a node, what a scheduler says of its job, what the node published of it; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rater.text.kinds import from_json


class AttemptState(StrEnum):
    """How far an attempt came; each after those above it, the last eight are ends."""

    INTENT = "intent"  # written down; whether the scheduler has it is not known yet
    SUBMITTED = "submitted"  # the scheduler gave it a number
    PENDING = "pending"
    RUNNING = "running"
    COMPLETE = "complete"  # all that was planned was measured, and is published
    FAILED = "failed"  # published, and copies of it failed
    PARTIAL = "partial"  # published, and something is missing
    REFUSED = "refused"  # the node, or the scheduler, does not take it as it is
    LOST = "lost"  # nothing was published: node, job or file went away
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    NEVER = "never"  # it did not start

    @property
    def ended(self) -> bool:
        """Tell whether nothing more is awaited of it."""
        return self not in LIVE

    @property
    def is_retried(self) -> bool:
        """Tell whether another attempt may come to more without anybody changing anything."""
        return self in (self.LOST, self.TIMEOUT, self.NEVER, self.PARTIAL)


LIVE = (
    *(AttemptState.INTENT, AttemptState.SUBMITTED),
    *(AttemptState.PENDING, AttemptState.RUNNING),
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


@dataclass(frozen=True, slots=True)
class JobSeen:
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


@dataclass(frozen=True, slots=True)
class NodeVerdict:
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


def verdict_from_json(text: str) -> NodeVerdict:
    """Return what a verdict's text holds. Raises `ValueError` for anything else."""
    found: Any = from_json(NodeVerdict, text)
    verdict: NodeVerdict = found
    if verdict.rater != VERDICT_VERSION:
        raise ValueError(f"version {verdict.rater} of this document, {VERDICT_VERSION} is known")
    name = verdict.database
    if name is not None and ("/" in name or name.startswith(".")):
        raise ValueError(f"database: {name!r} is no name of a file beside it")
    if (name is None) != (verdict.sha256 is None):
        raise ValueError("database and sha256: one without the other")
    return verdict


@dataclass(frozen=True, slots=True)
class NodeAttempt:
    """One try at a node as it is stored; times: seconds since 1970 by the submit host's clock."""

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


def job_name(fleet: str, node: str, attempt: int) -> str:
    """Return what the job of an attempt is called: the same however often it is submitted."""
    return f"rater-{fleet.replace('-', '')[:12]}-{node}.{attempt}"


def scheduler_job(told: str) -> str:
    """Return the scheduler's number of a job: `17` of `17.0`, which was restarted 0 times."""
    return told.partition(".")[0] if told[:1].isdigit() else told
