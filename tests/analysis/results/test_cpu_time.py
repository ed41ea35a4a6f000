"""When CPU time may judge, and for whom copies waited."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rater.analysis.results.account import account_for_copy, crowded_remarks
from rater.analysis.results.cpu_time import CpuTimeRule
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.waiting import split_waits
from rater.record.events import CopyEnded, Sampled
from rater.record.run import LEFT_BEHIND, MachinePU
from rater.record.stored import StoredRun
from tests.support.cpu_readings import computed, read_run
from tests.support.example_runs import S, reading


def waiting(copy: int, ran_s: float, **changes: Any) -> CopyEnded:
    """A copy of 10 s that ran so long and waited for a CPU for the rest."""
    delay_ns = round((10.0 - ran_s) * S)
    cpu_ns = round(ran_s * S)
    return computed(copy, ran_s, **{"run_delay_ns": delay_ns, "run_delay_cpu_ns": cpu_ns} | changes)


def on_cores(run: StoredRun, cpus: int = 8) -> StoredRun:
    """A machine of cores with one thread each."""
    return replace(
        run,
        pus=tuple(MachinePU(cpu=cpu, core=cpu, llc=0, node=0, package=0) for cpu in range(cpus)),
    )


def why_not(run: StoredRun) -> str | None:
    (key,) = {(copy.benchmark, copy.tune) for copy in run.copies}
    return CpuTimeRule(run).why_not(key)


def test_copies_with_a_cpu_each_are_judged_beside_others() -> None:
    copies = [waiting(0, 6.0, cpu=0), waiting(1, 7.0, cpu=1)]
    run = on_cores(read_run(copies, reading(0, 10.0), reading(1, 10.0)))
    times = CpuTimeRule(run).times((copies[0].benchmark, copies[0].tune))
    assert times is not None
    assert times.longest_s == 7.0
    assert times.others_took == pytest.approx(0.35)


@pytest.mark.parametrize("copies", [3, 8, 1024])
def test_more_copies_than_cpus_are_never_judged_by_cpu_time(copies: int) -> None:
    rows = [waiting(copy, 20 / copies, cpu=copy % 2) for copy in range(copies)]
    run = on_cores(read_run(rows, reading(0, 10.0), reading(1, 10.0)), cpus=2)
    assert why_not(run) == f"{copies} copies share 2 CPUs"
    anywhere = read_run(rows, reading(0, 10.0), reading(1, 10.0), masks=[None] * copies)
    assert why_not(on_cores(anywhere, cpus=2)) == f"{copies} copies share 2 CPUs"


def test_two_copies_bound_to_one_cpu_of_many_are_not_judged() -> None:
    rows = [waiting(0, 5.0, cpu=3), waiting(1, 5.0, cpu=3), waiting(2, 9.0, cpu=4)]
    run = on_cores(read_run(rows, reading(3, 10.0), reading(4, 10.0)))
    assert why_not(run) == "it is not known on which CPUs its copies ran"
    seen = [replace(row, last_cpu=row.cpu) for row in rows]
    assert why_not(replace(run, copies=tuple(seen))) == "copies shared CPU 3"


def test_unbound_copies_are_judged_by_where_they_ran() -> None:
    rows = [waiting(0, 6.0, cpu=None, last_cpu=2), waiting(1, 7.0, cpu=None, last_cpu=5)]
    run = on_cores(read_run(rows, *(reading(cpu, 9.0) for cpu in range(8)), masks=[None, None]))
    assert why_not(run) is None
    moved = Sampled(
        phase=rows[0].phase,
        copy=0,
        step=0,
        age_ns=S,
        processes=1,
        unread=0,
        cpus=(4, 5),
        allowed=None,
        migrations=None,
        pages_migrated=None,
        node_bytes=None,
        policy=None,
        page_bytes=None,
        rss_bytes=None,
        peak_bytes=None,
        swap_bytes=None,
        read_ns=0,
    )
    assert why_not(replace(run, samples=(moved,))) == "copies shared CPU 5"


def test_a_copy_that_owns_a_core_is_judged_unless_others_work_on_that_core() -> None:
    rows = [waiting(0, 9.0, cpu=0)]
    quiet = read_run(rows, reading(0, 5.0), reading(1, 4.5), masks=[(0, 1)])
    assert why_not(quiet) is None
    loud = read_run(rows, reading(0, 9.0), reading(1, 9.0), masks=[(0, 1)])
    assert why_not(loud) == "a CPU was shared with another thread of its core"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"run_delay_ns": None}, "it is not known how long copies waited for a CPU"),
        ({"run_delay_ns": 12 * S}, "its copies have several threads"),
        ({"run_delay_ns": S}, "copies slept 30 % of the time"),
        (
            {"note": LEFT_BEHIND},
            "processes that copies left behind may have used CPU time",
        ),
    ],
)
def test_programs_that_cpu_time_does_not_describe_are_not_judged(
    changes: dict[str, Any], why: str
) -> None:
    run = on_cores(read_run([waiting(0, 6.0, cpu=0, **changes)], reading(0, 10.0)))
    assert why_not(run) == why


@pytest.mark.parametrize(
    ("asleep_s", "elapsed_s", "judged"),
    [
        (0.008, 0.2, True),
        (0.02, 0.2, False),
        (0.15, 10.0, True),
        (0.25, 10.0, False),
        (0.004, 0.05, False),
    ],
)
def test_short_copies_may_take_ten_milliseconds_to_begin_and_end(
    asleep_s: float, elapsed_s: float, judged: bool
) -> None:
    ran_ns = round((elapsed_s - asleep_s) * S)
    row = replace(
        computed(0, 1.0, cpu=0),
        elapsed_ns=round(elapsed_s * S),
        finish_ns=round(elapsed_s * S),
        cpu_ns=ran_ns,
        run_delay_ns=0,
        run_delay_cpu_ns=ran_ns,
    )
    run = on_cores(read_run([row], reading(0, 10.0)))
    assert (why_not(run) is None) is judged


def test_copies_that_start_one_after_another_are_not_judged() -> None:
    run = on_cores(read_run([waiting(0, 6.0, cpu=0)], reading(0, 10.0)))
    staggered = replace(run, head=replace(run.head, mode="staggered", stagger_ms=6000.0))
    assert why_not(staggered) == "its copies do not all start together"


def splits(run: StoredRun) -> list[tuple[float | None, ...]]:
    waits = split_waits(run, run_counters(run).cpus)
    return [
        tuple(part and round(part, 6) for part in (split.for_own_s, split.for_others_s))
        for split in waits.values()
    ]


def test_who_has_its_cpu_for_itself_waited_for_others() -> None:
    run = on_cores(read_run([waiting(0, 6.0, cpu=0), waiting(1, 9.0, cpu=1)]))
    assert splits(run) == [(0.0, 4.0), (0.0, 1.0)]


def test_waiting_of_copies_that_share_a_cpu_is_for_both_in_proportion() -> None:
    # Two copies of 4 s each and 2 s of others on one CPU: each copy waited 6 s,
    # 4 : 2 for the other copy and for others.
    rows = [waiting(0, 4.0, cpu=0), waiting(1, 4.0, cpu=0)]
    run = on_cores(read_run(rows, reading(0, 10.0)))
    assert splits(run) == [(4.0, 2.0)] * 2
    alone = on_cores(read_run([waiting(copy, 5.0, cpu=0) for copy in (0, 1)], reading(0, 10.0)))
    assert splits(alone) == [(5.0, 0.0)] * 2


def test_for_whom_copies_waited_is_not_known_without_readings_of_the_cpu() -> None:
    rows = [waiting(0, 4.0, cpu=0), waiting(1, 4.0, cpu=0)]
    assert splits(on_cores(read_run(rows))) == [(None, None)] * 2


# Both threads of a copy of 10 s on one CPU are runnable all the time; a single thread at most 10 s.
@pytest.mark.parametrize(
    ("ran_s", "waited_s", "is_crowded"),
    [(10.0, 10.0, True), (5.0, 15.0, True), (6.0, 4.0, False), (2.0, 8.0, False)],
)
def test_more_threads_than_cpus_are_told_whatever_else_took_the_cpu(
    ran_s: float, waited_s: float, is_crowded: bool
) -> None:
    delay_ns = round(waited_s * S)
    run = on_cores(read_run([waiting(0, ran_s, cpu=0, run_delay_ns=delay_ns)], reading(0, 10.0)))
    remarks = [*crowded_remarks(run)]
    assert bool(remarks) == is_crowded
    assert all("copy 0: more threads than the 1 CPU that a copy is bound" in it for it in remarks)


# One thread, as the kernel had it here: the copy ran 1.56 ms of 1.63 ms, and had waited 14.6 ms for
# its CPU, most of it before its start.
BEFORE_ITS_START = {
    "elapsed_ns": 1_626_267,
    "finish_ns": 1_626_267,
    "cpu_ns": 1_563_141,
    "run_delay_ns": 14_577_946,
    "run_delay_cpu_ns": 1_563_959,
}


def test_a_wait_before_the_start_is_no_sign_of_threads_and_not_of_the_copys_time() -> None:
    copy = replace(waiting(0, 10.0, cpu=0), **BEFORE_ITS_START)
    run = on_cores(read_run([copy], reading(0, 10.0)))
    assert [*crowded_remarks(run)] == []
    account = account_for_copy(copy, 1, {}, 1)
    assert account.ran_s == pytest.approx(0.001563, abs=1e-6)
    assert account.waited_s == pytest.approx(0.000062, abs=1e-6)
    assert why_not(run) != "its copies have several threads"


def test_threads_that_were_not_seen_are_not_guessed() -> None:
    unseen = waiting(0, 10.0, cpu=0, run_delay_ns=None, run_delay_cpu_ns=None)
    assert [*crowded_remarks(on_cores(read_run([unseen], reading(0, 10.0))))] == []
