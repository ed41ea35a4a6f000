"""What is to be done next for a fleet, what becomes of an attempt, and names of many nodes."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from rater.fleet.backends.node_names import MOST_NODES, compress, expand
from rater.fleet.plan import (
    LIVE,
    AttemptObservation,
    AttemptState,
    Ending,
    JobPhase,
    JobSeen,
    NodeAttempt,
    NodeVerdict,
    StoredFleet,
    VerdictStatus,
    deciding_attempt,
    updated_attempt,
)
from rater.system.errors import InputError
from rater.system.process import this_process
from tests.support.fleets import ASKED

NODES = ("n1", "n2", "n3")


def tried(node: str, *states: str) -> tuple[NodeAttempt, ...]:
    return tuple(
        NodeAttempt(node=node, attempt=number, state=AttemptState(state), intended_s=0.0)
        for number, state in enumerate(states, 1)
    )


type Tried = dict[str, tuple[NodeAttempt, ...]]


def fleet(
    most: int, parallel: int | None, attempts: Tried, *, cancelled: bool = False
) -> StoredFleet:
    asked = replace(ASKED, attempts=most, parallel=parallel)
    at = "2026-11-23T09:00:00Z" if cancelled else None
    return StoredFleet(
        number=1, asked=asked, begun=True, cancelled_at=at, owner=this_process(), attempts=attempts
    )


def wanted(
    most: int, parallel: int | None, attempts: Tried, **more: set[str]
) -> list[tuple[str, int]]:
    return fleet(most, parallel, dict.fromkeys(NODES, ()) | attempts).due(**more)


def test_every_node_is_tried_once_at_first_and_idle_ones_come_before_busy_ones() -> None:
    assert wanted(2, None, {}) == [("n1", 1), ("n2", 1), ("n3", 1)]
    assert wanted(2, None, {}, idle={"n3"}) == [("n3", 1), ("n1", 1), ("n2", 1)]


def test_there_are_never_more_jobs_than_were_asked_for() -> None:
    assert wanted(2, 2, {}) == [("n1", 1), ("n2", 1)]
    running = {"n1": tried("n1", "running"), "n2": tried("n2", "complete")}
    assert wanted(2, 2, running) == [("n3", 1)]
    assert wanted(2, 1, running) == []


@pytest.mark.parametrize("state", list(AttemptState))
def test_only_what_another_attempt_may_mend_is_tried_again(state: AttemptState) -> None:
    again = {"lost", "timeout", "partial"}
    attempts = {
        "n1": tried("n1", state),
        "n2": tried("n2", "complete"),
        "n3": tried("n3", "failed"),
    }
    assert wanted(2, None, attempts) == ([("n1", 2)] if state in again else [])
    assert wanted(1, None, attempts) == []


def test_nodes_not_tried_yet_come_before_second_attempts() -> None:
    attempts = {"n1": tried("n1", "lost"), "n2": tried("n2", "complete")}
    assert wanted(3, 1, attempts) == [("n3", 1)]


def test_a_named_node_is_tried_again_whatever_became_of_it() -> None:
    attempts = {node: tried(node, "refused") for node in NODES}
    assert wanted(1, None, attempts, again={"n2"}) == [("n2", 2)]
    attempts["n2"] = tried("n2", "running")
    assert wanted(1, None, attempts, again={"n2"}) == []


def test_a_cancelled_fleet_submits_nothing_and_ends_its_jobs() -> None:
    attempts = {"n1": tried("n1", "running"), "n2": tried("n2", "lost")}
    found = fleet(3, None, attempts, cancelled=True)
    assert found.due() == []
    assert found.ends() == [(attempts["n1"][0], Ending.CANCELLED)]


def test_an_attempt_is_ended_when_one_before_it_turns_out_to_be_complete() -> None:
    attempts = {"n1": tried("n1", "complete", "pending")}
    assert fleet(3, None, attempts).ends() == [(attempts["n1"][1], Ending.NOT_NEEDED)]
    assert deciding_attempt(attempts["n1"]).attempt == 1


@pytest.mark.parametrize("state", LIVE)
def test_a_fleet_with_a_job_is_not_at_its_end(state: AttemptState) -> None:
    attempts = {
        "n1": tried("n1", state),
        "n2": tried("n2", "complete"),
        "n3": tried("n3", "refused"),
    }
    assert not fleet(1, None, attempts).is_settled
    assert not fleet(1, None, attempts, cancelled=True).is_settled


def test_a_fleet_is_at_its_end_when_nothing_is_left_to_do() -> None:
    lost = {"n1": tried("n1", "lost", "complete"), "n2": tried("n2", "lost", "lost")}
    assert fleet(2, None, lost).is_settled
    again = {"n1": tried("n1", "lost"), "n2": tried("n2", "complete")}
    assert not fleet(2, None, again).is_settled
    assert not fleet(2, None, {"n1": ()}).is_settled
    assert fleet(2, None, {"n1": (), "n2": tried("n2", "lost")}, cancelled=True).is_settled


RUNNING = NodeAttempt(
    node="n1", attempt=1, state=AttemptState.RUNNING, intended_s=0.0, job="17", started_s=5.0
)
PENDING = NodeAttempt(
    node="n1",
    attempt=1,
    state=AttemptState.PENDING,
    intended_s=0.0,
    job="17",
    pending_s=5.0,
    reason="Priority",
)
INTENT = NodeAttempt(node="n1", attempt=1, state=AttemptState.INTENT, intended_s=0.0)
LIMITS = replace(ASKED, pending_limit_s=100.0, settle_s=60.0)
NOW_S = 1000.0


def verdict(status: str, ended_by: str | None = None, reason: str | None = None) -> NodeVerdict:
    return NodeVerdict(
        rater=1,
        fleet="f",
        node="n1",
        attempt=1,
        job="17",
        status=VerdictStatus(status),
        reason=reason,
        ended_by=ended_by,
        database="n1.1.db",
        sha256="ab",
        bytes=9,
        run="u",
        copies_done=12,
        copies_planned=16,
        started_at="2026-11-23T08:00:00Z",
        ended_at="2026-11-23T08:01:00Z",
        host={},
    )


def ended(word: str, reason: str | None = None) -> JobSeen:
    return JobSeen("17", JobPhase.ENDED, word, reason)


IS_PENDING = JobSeen("17", JobPhase.PENDING, "PENDING", "ReqNodeNotAvail, UnavailableNodes:n1")
IS_RUNNING = JobSeen("17", JobPhase.RUNNING, "RUNNING")


def later(attempt: NodeAttempt, job: JobSeen | None, after_s: float = 60.0) -> NodeAttempt:
    """The attempt after two looks that see the same, so long after each other."""
    first = updated_attempt(attempt, AttemptObservation(now_s=NOW_S, job=job), LIMITS)
    return updated_attempt(first, AttemptObservation(now_s=NOW_S + after_s, job=job), LIMITS)


@pytest.mark.parametrize("status", ["complete", "failed", "refused", "cancelled"])
def test_a_verdict_decides_whatever_the_scheduler_says(status: str) -> None:
    jobs = (None, IS_RUNNING, ended("NODE_FAIL"), ended("TIMEOUT"))
    for state, job in product(AttemptState, jobs):
        looked = AttemptObservation(now_s=NOW_S, verdict=verdict(status), job=job)
        it = updated_attempt(replace(RUNNING, state=state), looked, LIMITS)
        assert it.state.value == status
        assert it.verdict is not None


def test_what_is_published_late_goes_before_what_was_concluded() -> None:
    lost = later(RUNNING, ended("NODE_FAIL"))
    assert (lost.state, lost.reason) == (AttemptState.LOST, "the node failed (NODE_FAIL)")
    late = updated_attempt(
        lost, AttemptObservation(now_s=NOW_S + 999, verdict=verdict("complete")), LIMITS
    )
    assert late.state is AttemptState.COMPLETE
    part = updated_attempt(
        lost, AttemptObservation(now_s=NOW_S + 999, verdict=verdict("partial", "TERM")), LIMITS
    )
    assert (part.state, part.reason) == (
        AttemptState.LOST,
        "the node failed (NODE_FAIL); 12 of 16 copies",
    )


def test_no_answer_concludes_nothing() -> None:
    all_ = product(LIVE, (0.0, 1e6), (None, *Ending), (None, "17"))
    for state, age_s, ending, claimed in all_:
        it = replace(RUNNING, state=state, ending=ending, gone_s=0.0, pending_s=0.0)
        looked = AttemptObservation(now_s=NOW_S + age_s, answered=False, claimed_by=claimed)
        assert updated_attempt(it, looked, LIMITS) == it


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        ("NODE_FAIL", "lost", "the node failed (NODE_FAIL)"),
        ("BOOT_FAIL", "lost", "the node did not boot (BOOT_FAIL)"),
        ("PREEMPTED", "lost", "another job took its place (PREEMPTED)"),
        ("OUT_OF_MEMORY", "lost", "its memory did not do (OUT_OF_MEMORY)"),
        ("COMPLETED", "lost", "the job ended (COMPLETED) and published nothing"),
        ("FAILED", "lost", "the job ended (FAILED) and published nothing"),
        ("SOMETHING_NEW", "lost", "the job ended (SOMETHING_NEW) and published nothing"),
        ("TIMEOUT", "timeout", "the time limit was over (TIMEOUT)"),
        ("DEADLINE", "timeout", "the time limit was over (DEADLINE)"),
        ("CANCELLED", "cancelled", "cancelled in the scheduler, not by rater"),
    ],
)
def test_without_a_verdict_the_scheduler_says_why_but_not_at_once(
    word: str, state: str, reason: str
) -> None:
    first = updated_attempt(RUNNING, AttemptObservation(now_s=NOW_S, job=ended(word)), LIMITS)
    assert first.state is AttemptState.RUNNING
    it = later(RUNNING, ended(word))
    assert (it.state.value, it.reason) == (state, reason)


def test_a_job_that_never_ran_is_cancelled_at_once() -> None:
    it = updated_attempt(PENDING, AttemptObservation(now_s=NOW_S, job=ended("CANCELLED")), LIMITS)
    assert it.state is AttemptState.CANCELLED


@pytest.mark.parametrize(
    ("ended_by", "job", "ending", "state", "reason"),
    [
        ("USR1", ended("COMPLETED"), None, "timeout", "the time limit was near"),
        ("USR1", None, Ending.CANCELLED, "cancelled", "`rater fleet cancel`"),
        ("TERM", ended("CANCELLED"), None, "cancelled", "cancelled in the scheduler, not by rater"),
        ("TERM", ended("TIMEOUT"), None, "timeout", "the time limit was over (TIMEOUT)"),
        ("TERM", ended("NODE_FAIL"), None, "lost", "the node failed (NODE_FAIL)"),
        ("TERM", ended("FAILED"), None, "partial", "ended by SIGTERM"),
        ("TERM", None, None, "partial", "ended by SIGTERM"),
        (None, IS_RUNNING, None, "partial", "the disk filled"),
    ],
)
def test_a_part_is_called_by_what_ended_it(
    ended_by: str | None, job: JobSeen | None, ending: Ending | None, state: str, reason: str
) -> None:
    of = replace(RUNNING, ending=ending)
    part = verdict("partial", ended_by, "the disk filled")
    it = updated_attempt(of, AttemptObservation(now_s=NOW_S, verdict=part, job=job), LIMITS)
    assert (it.state.value, it.reason) == (state, f"{reason}; 12 of 16 copies")


def test_a_part_whose_job_has_not_ended_waits_for_the_schedulers_word() -> None:
    part = verdict("partial", "TERM")
    attempt = updated_attempt(
        RUNNING, AttemptObservation(now_s=NOW_S, verdict=part, job=IS_RUNNING), LIMITS
    )
    assert attempt.state is AttemptState.RUNNING
    attempt = updated_attempt(
        attempt, AttemptObservation(now_s=NOW_S + 1, verdict=part, answered=False), LIMITS
    )
    assert attempt.state is AttemptState.RUNNING
    attempt = updated_attempt(
        attempt, AttemptObservation(now_s=NOW_S + 9, verdict=part, job=ended("CANCELLED")), LIMITS
    )
    assert attempt.state is AttemptState.CANCELLED


def test_a_job_that_is_pending_too_long_is_ended_and_never_began() -> None:
    waits = updated_attempt(PENDING, AttemptObservation(now_s=5.0 + 99, job=IS_PENDING), LIMITS)
    assert (waits.ending, waits.reason) == (None, IS_PENDING.reason)
    late = updated_attempt(waits, AttemptObservation(now_s=5.0 + 100, job=IS_PENDING), LIMITS)
    assert (late.state, late.ending) == (AttemptState.PENDING, Ending.NEVER)
    never = updated_attempt(
        late, AttemptObservation(now_s=5.0 + 101, job=ended("CANCELLED")), LIMITS
    )
    assert (never.state, never.reason) == (
        AttemptState.NEVER,
        f"pending too long; {IS_PENDING.reason}",
    )


def test_a_job_that_began_just_before_it_was_given_up_goes_on() -> None:
    late = replace(PENDING, ending=Ending.NEVER, ending_s=4.0)
    it = updated_attempt(late, AttemptObservation(now_s=NOW_S, job=IS_RUNNING), LIMITS)
    assert (it.state, it.ending, it.started_s) == (AttemptState.RUNNING, None, NOW_S)


def test_a_job_may_be_pending_again_and_its_time_counts_anew() -> None:
    it = updated_attempt(RUNNING, AttemptObservation(now_s=NOW_S, job=IS_PENDING), LIMITS)
    assert (it.state, it.pending_s) == (AttemptState.PENDING, NOW_S)


def test_a_job_that_comes_back_after_it_was_gone_is_not_lost() -> None:
    gone = updated_attempt(RUNNING, AttemptObservation(now_s=NOW_S), LIMITS)
    back = updated_attempt(gone, AttemptObservation(now_s=NOW_S + 59, job=IS_RUNNING), LIMITS)
    assert (back.state, back.gone_s) == (AttemptState.RUNNING, None)


def test_a_job_that_the_scheduler_forgot_is_lost_after_a_while() -> None:
    it = later(RUNNING, None)
    assert it.state is AttemptState.LOST
    assert it.reason == "the scheduler knows nothing of job 17 any more, and nothing was published"
    it = later(replace(PENDING, ending=Ending.CANCELLED), None)
    assert it.state is AttemptState.CANCELLED


def test_an_intent_that_nobody_submitted_stays_until_somebody_does() -> None:
    assert updated_attempt(INTENT, AttemptObservation(now_s=NOW_S + 1e6), LIMITS) == INTENT
    found = updated_attempt(INTENT, AttemptObservation(now_s=NOW_S, job=IS_PENDING), LIMITS)
    assert (found.state, found.job) == (AttemptState.PENDING, "17")
    ending = replace(INTENT, ending=Ending.CANCELLED)
    assert (
        updated_attempt(ending, AttemptObservation(now_s=NOW_S), LIMITS).state
        is AttemptState.CANCELLED
    )


def test_an_intent_whose_job_ran_unseen_is_lost_when_nothing_is_published() -> None:
    first = updated_attempt(INTENT, AttemptObservation(now_s=NOW_S, claimed_by="17"), LIMITS)
    it = updated_attempt(first, AttemptObservation(now_s=NOW_S + 60, claimed_by="17"), LIMITS)
    assert (it.state, it.job) == (AttemptState.LOST, "17")


def test_a_damaged_database_is_a_lost_attempt() -> None:
    it = updated_attempt(
        RUNNING, AttemptObservation(now_s=NOW_S, damaged="another sha256", job=IS_RUNNING), LIMITS
    )
    assert (it.state, it.reason) == (AttemptState.LOST, "another sha256")


def test_every_look_at_every_state_ends_in_a_state_and_a_second_one_changes_nothing() -> None:
    jobs = [
        None,
        IS_PENDING,
        IS_RUNNING,
        *(ended(it) for it in ("NODE_FAIL", "CANCELLED", "FAILED")),
    ]
    verdicts = [
        None,
        verdict("complete"),
        *(verdict("partial", it) for it in (None, "USR1", "TERM")),
    ]
    looks = product(jobs, verdicts, (True, False), (None, "17"), (None, "damaged"))
    states = list(product(AttemptState, (None, Ending.NEVER, Ending.CANCELLED)))
    assert len(states) == 39
    for job, published, answered, claimed, damaged in looks:
        for state, ending in states:
            before = replace(RUNNING, state=state, ending=ending)
            looked = AttemptObservation(
                now_s=NOW_S,
                verdict=published,
                damaged=None if published else damaged,
                answered=answered,
                job=job,
                claimed_by=claimed,
            )
            after = updated_attempt(before, looked, LIMITS)
            assert updated_attempt(after, looked, LIMITS) == after
            if state.ended and published is None and damaged is None:
                assert after == before  # only what is published changes an end
            if after.state is AttemptState.COMPLETE:
                assert published is not None or state is AttemptState.COMPLETE
            if after.state.ended and not state.ended:
                assert published or damaged or answered


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n1,n3", ("n1", "n3")),
        ("n[1-3,7]", ("n1", "n2", "n3", "n7")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("n[8-10]", ("n8", "n9", "n10")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("a[1,3]-x, login", ("a1-x", "a3-x", "login")),
        ("n[1-2],n[2-3]", ("n1", "n2", "n3")),
        ("node-7.cluster.example", ("node-7.cluster.example",)),
    ],
)
def test_a_text_stands_for_names(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a name is missing"),
        ("n1,,n2", "a name is missing"),
        ("n[1-3", "brackets do not match"),
        ("n1]", "brackets do not match"),
        ("n[[1]]", "brackets do not match"),
        ("n[a-b]", "neither a number nor FIRST-LAST"),
        ("n[3-1]", "runs backwards"),
        ("n[]", "neither a number nor FIRST-LAST"),
        ("../n1", "no name of a node"),
        ("n 1", "no name of a node"),
        ("-n1", "no name of a node"),
        ("n[1-999999999]", f"more than {MOST_NODES} nodes"),
        ("n[1-999][1-999]", f"more than {MOST_NODES} nodes"),
    ],
)
def test_what_is_none_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        expand(text)


@pytest.mark.parametrize(
    "text",
    ["n1", "n[1-3,7]", "n[08-10]", "n[098-101]", "login,n[1-2]", "a1,b1", "r1n[1-2],r2n1", "n1-x"],
)
def test_names_become_the_same_text_again(text: str) -> None:
    assert compress(expand(text)) == text


def test_names_of_one_number_with_and_without_zeros_stay_apart() -> None:
    assert expand(compress(["n1", "n01"])) == ("n1", "n01")
