"""Copies counted by the kernel itself, through the supervisor: software events are everywhere."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path

import pytest

from rater.plan.counter_choice import TableGroup
from rater.plan.counter_tables import load_table
from rater.plan.schedule import Order, Window, make_plan
from rater.record.events import CopyCounted, PhaseCounted
from rater.run.copies.counters import CounterPlan, PerfKernel, ReadyGroup, probe_group
from tests.support.perf import INHERIT, MadeKernel
from tests.support.rig import Rig, Seen

# Pages touched, processes and children of them, more of each with the copy's number.
SCRIPT = """
n=$((RATER_COPY + 1))
while [ $n -gt 0 ]; do
  sh -c 'head -c 200000 /dev/zero | tail -c 1 >/dev/null & wait'
  n=$((n - 1))
done
"""


def software() -> ReadyGroup:
    table = load_table("software")
    ready = probe_group(TableGroup(table, table.groups[0])).ready
    if ready is None:
        pytest.skip("this kernel lets nobody count (kernel.perf_event_paranoid)")
    return ready


def counted(ready: ReadyGroup, kernel: PerfKernel | None = None) -> CounterPlan:
    return CounterPlan(lambda iteration: (ready,), len(ready.events), kernel or PerfKernel())


def values(seen: Seen) -> dict[tuple[int, int, int], dict[str, int | None]]:
    return {
        (it.phase, it.copy, it.step): {count.event: count.value for count in it.counts}
        for it in seen.of(CopyCounted)
    }


@pytest.mark.slow
def test_page_faults_are_those_of_getrusage_but_for_the_gates_own(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    seen = Rig(tmp_path, counters=counted(software())).run({"pages": SCRIPT}, 6)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    found = values(seen)
    own = {}
    for copy in range(6):
        faults, usage = found[0, copy, 0]["minor_faults"], seen.by_copy(copy)
        assert faults is not None
        own[copy] = usage.minor_faults - faults
        clock_ns = found[0, copy, 0]["task_clock_ns"]
        assert clock_ns is not None
        assert clock_ns == pytest.approx(usage.cpu_ns, rel=0.3, abs=5e6)
    assert (found[0, 5, 0]["minor_faults"] or 0) > 3 * (found[0, 0, 0]["minor_faults"] or 0)
    # The gate's, and what exec itself takes: the kernel counts those for getrusage only. Each loop
    # has three execs.
    assert all(-3 <= own[copy] - own[0] <= 9 * copy for copy in range(6))
    assert own[0] < 200
    [cost] = seen.of(PhaseCounted)
    assert cost.copies == 6
    assert min(cost.open_ns, cost.read_ns, cost.close_ns) > 0
    order = [type(it).__name__ for it in seen.events]
    assert order.index("CopyCounted") > max(
        n for n, name in enumerate(order) if name == "CopyEnded"
    ), "read when nothing is timed any more"


@pytest.mark.slow
def test_every_run_of_a_queue_and_of_a_window_is_counted(tmp_path: Path) -> None:
    scripts = {"a": "exit 0", "b": ":"}
    rotated = make_plan(list(scripts), 2, mode="rotated", order=Order.ROTATED, iterations=2)
    window = Window(0, 300_000_000)
    steady = make_plan(["a"], 2, mode="steady", order=Order.HOMOGENEOUS, window=window)
    for name, plan in (("rotated", rotated), ("steady", steady)):
        folder = tmp_path / name
        folder.mkdir()
        seen = Rig(folder, counters=counted(software())).run(scripts, 2, plan)
        runs = {(it.phase, it.copy, it.step) for it in seen.ended}
        assert values(seen).keys() == runs
        assert len(runs) >= 4
        [cost] = seen.of(PhaseCounted)
        assert cost.copies >= len(runs)


def test_groups_are_opened_on_the_gate_and_never_left_open(tmp_path: Path) -> None:
    kernel = MadeKernel(running=0.5)
    ready = replace(software(), name="made:one")
    seen = Rig(tmp_path, counters=counted(ready, kernel)).run({"a": "exit 3", "b": ":"}, 2)
    assert not kernel.opened
    pids = {it.pid for it in seen.ended}
    assert {pid for _, _, pid in kernel.calls} == pids
    assert all(flags & INHERIT for _, flags, _ in kernel.calls)
    leaders = [flags & 1 and flags >> 12 & 1 for config, flags, _ in kernel.calls if config == 1]
    assert leaders == [1] * 4, "not before the exec"
    [first, *_] = seen.of(CopyCounted)
    assert {it.group_name for it in first.counts} == {"made:one"}
    assert not first.counts[0].in_full
    assert first.counts[0].estimate == 2000


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.EMFILE, "too many open files, EMFILE: raise `ulimit -n`"),
        (errno.ESRCH, "the process was gone, ESRCH"),
    ],
)
def test_a_run_goes_on_where_copies_cannot_be_counted(
    tmp_path: Path, number: int, told: str
) -> None:
    taken = []

    def second(event: object, flags: int) -> int:
        taken.append(event)
        return number if len(taken) % 2 == 0 else 0

    kernel = MadeKernel(refuse=second)
    seen = Rig(tmp_path, counters=counted(software(), kernel)).run({"a": ":"}, 2)
    assert seen.outcome.reason is None
    assert len(seen.ended) == 2
    assert not seen.of(CopyCounted)
    assert seen.notes.count(f"counters: not every copy was counted: {told}") == 1
    assert not kernel.opened
