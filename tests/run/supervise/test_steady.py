"""Steady mode with real processes: copies repeat, the window decides what counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from rater.plan.schedule import Order, Plan, Window, make_plan, resolve_mode, resolve_window
from rater.record.events import CopyEnded, Event, PhaseStarted
from rater.record.run import CopyStatus, RunStatus, Validity
from rater.run.launcher.copies import CopySpec
from rater.run.launcher.launcher import Launcher
from rater.run.launcher.table import ProcessEntry
from rater.run.supervise.stopping import WindowWatch
from rater.run.supervise.supervisor import Supervisor
from rater.run.workplace.run_dirs import RunFolders
from rater.system.errors import InputError, RunError
from tests.support.rig import Rig, Seen, in_window

MS = 1_000_000
WINDOW = Window(warmup_ns=100 * MS, length_ns=300 * MS)


def steady(*names: str, copies: int, window: Window = WINDOW, **more: Any) -> Plan:
    return make_plan(list(names), copies, mode="steady", window=window, **more)


def repeated(
    folder: Path,
    scripts: dict[str, str],
    copies: int,
    enough: Callable[[Seen], bool],
    directory: str | None = None,
    **more: Any,
) -> Seen:
    """Run until enough is seen."""

    def run(place: Path, window: Window) -> Seen:
        return Rig(place, directory=directory).run(
            scripts, copies, steady(*scripts, copies=copies, window=window, **more)
        )

    return in_window(folder, WINDOW, run, enough)


def runs_of(ended: list[Any], copy: int) -> list[Any]:
    return [event for event in ended if event.copy == copy]


# Copies without a directory of their own are started again by the launcher itself.
either_directory = pytest.mark.parametrize("directory", [None, str(Path.cwd())])


@either_directory
def test_a_copy_starts_again_as_soon_as_it_ends_until_the_window_has_closed(
    tmp_path: Path, directory: str | None
) -> None:
    def enough(seen: Seen) -> bool:
        return all(len(runs_of(seen.ended, copy)) > 1 for copy in range(3))

    seen = repeated(tmp_path, {"nap": "sleep 0.03"}, 3, enough, directory)
    assert seen.outcome.status is RunStatus.COMPLETE
    [bracket] = seen.brackets
    [head] = seen.events_of(PhaseStarted)
    assert (bracket.window_start_ns, bracket.window_finish_ns) == head.window_ns
    assert bracket.complete
    for copy in range(3):
        runs = runs_of(seen.ended, copy)
        assert [run.step for run in runs] == list(range(len(runs)))
        assert all(a.finish_ns <= b.start_ns for a, b in pairwise(runs))
        assert all(run.iteration == 1 and run.status is CopyStatus.OK for run in runs)


@either_directory
def test_every_run_that_began_before_the_window_closed_ends_and_no_later_one_is_reported(
    tmp_path: Path, directory: str | None
) -> None:
    # Copy 0's run is long: the others must go on, untold, until it has ended.
    script = 'if [ "$RATER_COPY" = 0 ]; then sleep 0.9; else sleep 0.02; fi'
    seen = Rig(tmp_path, directory=directory).run({"mixed": script}, 3, steady("mixed", copies=3))
    [bracket] = seen.brackets
    assert bracket.window_finish_ns is not None
    assert all(run.start_ns < bracket.window_finish_ns for run in seen.ended)
    assert all(run.status is CopyStatus.OK for run in seen.ended)
    assert runs_of(seen.ended, 0)[-1].finish_ns == bracket.finish_ns > bracket.window_finish_ns
    assert len(seen.started) == len(seen.ended)


def test_what_the_copies_wrote_is_judged_and_cleared_while_they_run(tmp_path: Path) -> None:
    rig = Rig(tmp_path, expected="well\n")
    seen = rig.run({"say": "echo well; sleep 0.02"}, 2, steady("say", copies=2))
    assert seen.outcome.status is RunStatus.COMPLETE
    assert {event.validity for event in seen.checked} == {Validity.VALID}
    assert len(seen.checked) == len(seen.ended)
    assert list(rig.work.iterdir()) == []


def test_a_wrong_answer_fails_the_run_and_its_files_stay(tmp_path: Path) -> None:
    rig = Rig(tmp_path, expected="well\n")
    script = '[ "$RATER_COPY" = 1 ] && echo ill || echo well; sleep 0.05'
    seen = rig.run({"say": script}, 2, steady("say", copies=2))
    wrong = [event for event in seen.checked if event.validity is Validity.INVALID]
    assert {event.copy for event in wrong} == {1}
    assert all(event.run_dir and Path(event.run_dir).is_dir() for event in wrong)
    assert (seen.outcome.status, seen.outcome.reason) == (
        RunStatus.FAILED,
        f"{len(wrong)} copy {'run' if len(wrong) == 1 else 'runs'} failed",
    )


@either_directory
def test_a_copy_that_fails_does_not_start_again_and_the_others_go_on(
    tmp_path: Path, directory: str | None
) -> None:
    def enough(seen: Seen) -> bool:
        return len(runs_of(seen.ended, 0)) > 1

    script = '[ "$RATER_COPY" = 1 ] && exit 3; sleep 0.03'
    seen = repeated(tmp_path, {"torn": script}, 3, enough, directory)
    assert [run.status for run in runs_of(seen.ended, 1)] == [CopyStatus.FAILED]
    assert seen.outcome.status is RunStatus.FAILED
    assert seen.outcome.reason == "1 copy run failed"
    assert seen.brackets[0].window_finish_ns is not None


def test_a_next_run_that_can_not_be_made_fails_the_run_and_ends_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = RunFolders.spec

    def refused(self: RunFolders, copy: int, position: int, *more: Any) -> CopySpec:
        if (copy, position) == (1, 2):
            raise RunError("no folder for copy 1")
        return make(self, copy, position, *more)

    monkeypatch.setattr(RunFolders, "spec", refused)
    rig = Rig(tmp_path, directory=str(Path.cwd()), expected="well\n")
    window = Window(warmup_ns=0, length_ns=60_000 * MS)  # over as soon as it fails
    seen = rig.run({"nap": "echo well; exec sleep 0.02"}, 3, steady("nap", copies=3, window=window))
    assert seen.outcome.status is RunStatus.FAILED
    assert seen.outcome.reason == "no folder for copy 1"
    assert len(runs_of(seen.ended, 1)) == 2
    assert list(rig.work.iterdir()) == []


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many processes each table has that was sent to the launcher."""
    sizes: list[int] = []
    start = Launcher.start

    async def noted(self: Launcher, entries: Sequence[ProcessEntry]) -> None:
        sizes.append(len(entries))
        await start(self, entries)

    monkeypatch.setattr(Launcher, "start", noted)
    return sizes


def test_the_launcher_repeats_what_no_run_needs_a_file_of_until_one_fails_whose_files_stay(
    tmp_path: Path, tables: list[int]
) -> None:
    # Each run appends a line; the fourth of copy 1 says so and fails.
    count = f"{tmp_path}/runs.$RATER_COPY"
    script = f"""
    echo x >> {count}; echo run $(wc -l < {count}) >&2; sleep 0.02
    [ "$RATER_COPY$(wc -l < {count})" != 14 ]"""
    rig = Rig(tmp_path, directory=str(tmp_path))
    window = Window(warmup_ns=0, length_ns=60_000 * MS)

    def stop_at_six(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyEnded) and event.step >= 6:
            supervisor.stop(2, None)

    rig.on_event = stop_at_six
    seen = rig.run({"count": script}, 2, steady("count", copies=2, window=window))
    # On a busy machine a run may end before the launcher has started the next: rater asks then.
    assert (tables[0], sum(tables) < len(seen.ended)) == (2, True)
    for copy in (0, 1):
        runs = runs_of(seen.ended, copy)
        assert [run.step for run in runs] == list(range(len(runs)))
        assert all(a.finish_ns <= b.start_ns for a, b in pairwise(runs))
        assert all(run.pid and run.user_ns + run.system_ns > 0 for run in runs)
    failed = runs_of(seen.ended, 1)
    assert [run.status for run in failed] == [CopyStatus.OK] * 3 + [CopyStatus.FAILED]
    assert failed[-1].exit_code == 1
    kept = sorted(file.name for file in rig.work.iterdir())
    assert [Path(rig.work, name).read_text() for name in kept if "stderr" in name] == ["run 4\n"]
    assert failed[-1].run_dir == f"{rig.work}/{kept[0].removesuffix('stderr')}*"


def test_what_the_launcher_cannot_repeat_rater_asks_for_and_no_run_is_lost(
    tmp_path: Path, tables: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    init = Launcher.__init__

    def without_room_to_wait(self: Launcher, processes: int, *more: Any) -> None:
        init(self, processes // 2, *more)

    monkeypatch.setattr(Launcher, "__init__", without_room_to_wait)

    def enough(seen: Seen) -> bool:
        return len(runs_of(seen.ended, 0)) > 2

    seen = repeated(tmp_path, {"nap": "sleep 0.02"}, 1, enough, str(tmp_path))
    assert seen.outcome.status is RunStatus.COMPLETE
    assert [*tmp_path.glob("*/work/*")] == []
    runs = runs_of(seen.ended, 0)
    assert [run.step for run in runs] == list(range(len(runs)))
    assert len(tables) >= len(runs)


def test_when_every_copy_failed_there_is_no_window(tmp_path: Path) -> None:
    window = Window(warmup_ns=0, length_ns=60_000 * MS)  # over as soon as they have failed
    seen = Rig(tmp_path).run({"bad": "exit 3"}, 2, steady("bad", copies=2, window=window))
    assert len(seen.ended) == 2
    [bracket] = seen.brackets
    assert bracket.window_start_ns is None
    assert not bracket.complete


def test_in_rotated_order_each_copy_goes_round_the_ring(tmp_path: Path) -> None:
    scripts = {"a": "sleep 0.02", "b": "sleep 0.03", "c": "sleep 0.01"}

    def of_phase(seen: Seen, copy: int, phase: int) -> list[Any]:
        return [run for run in runs_of(seen.ended, copy) if run.phase == phase]

    def enough(seen: Seen) -> bool:
        return all(len(of_phase(seen, copy, phase)) > 1 for copy in (0, 1) for phase in (0, 1))

    seen = repeated(tmp_path, scripts, 2, enough, order=Order.ROTATED, iterations=2)
    for phase in (0, 1):
        for copy, ring in enumerate(("abc", "bca")):
            runs = of_phase(seen, copy, phase)
            assert [run.benchmark for run in runs] == [
                ring[number % 3] for number in range(len(runs))
            ]
            assert {run.iteration for run in runs} == {phase + 1}
    assert [(bracket.benchmark, bracket.iteration) for bracket in seen.brackets] == [
        (None, 1),
        (None, 2),
    ]


def test_the_head_of_a_phase_shows_its_window(tmp_path: Path) -> None:
    seen = Rig(tmp_path).run({"nap": "sleep 0.05"}, 1, steady("nap", copies=1))
    [head] = seen.events_of(PhaseStarted)
    assert head.window_ns == (100 * MS, 400 * MS)
    assert head.expected_s == 0.4


@either_directory
def test_stopped_before_its_window_is_over_a_phase_has_no_window(
    tmp_path: Path, directory: str | None
) -> None:
    def stop_soon(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, CopyEnded):
            supervisor.stop(2, None)

    plan = steady("nap", copies=2, window=Window(60_000 * MS, MS))
    rig = Rig(tmp_path, on_event=stop_soon, directory=directory)
    seen = rig.run({"nap": "sleep 0.02"}, 2, plan)
    assert seen.outcome.status is RunStatus.INTERRUPTED
    assert list(rig.work.iterdir()) == []
    [bracket] = seen.brackets
    assert (bracket.complete, bracket.window_start_ns) == (False, None)


def test_steady_mode_is_homogeneous_unless_an_order_says_else() -> None:
    assert resolve_mode("steady", None) == ("steady", Order.HOMOGENEOUS, 0.0)
    assert resolve_mode("steady", 5.0, "rotated") == ("steady", Order.ROTATED, 5.0)
    assert resolve_mode("rotated", None, "rotated") == ("rotated", Order.ROTATED, 0.0)


def test_an_order_that_contradicts_is_an_error() -> None:
    with pytest.raises(InputError, match="--order rotated goes with --mode steady"):
        resolve_mode("homogeneous", None, "rotated")
    with pytest.raises(InputError, match="expected homogeneous or rotated"):
        resolve_mode("steady", None, "sideways")


def test_without_a_warm_up_a_tenth_of_the_window_is_one() -> None:
    assert resolve_window("steady", None, 60.0) == Window(6_000 * MS, 60_000 * MS, grows=True)
    assert resolve_window("steady", 0.0, 60.0) == Window(0, 60_000 * MS)
    # The last copy starts 8 s after the first: not before then.
    assert resolve_window("steady", None, 60.0, 8.0) == Window(8_000 * MS, 60_000 * MS, grows=True)
    assert resolve_window("rotated", None, None) is None


@pytest.mark.parametrize(
    ("mode", "warmup_s", "window_s", "stagger_s", "message"),
    [
        ("steady", None, None, 0.0, "needs --window S"),
        ("steady", 1.0, 10.0, 8.0, "--warmup 1: the last copy starts 8 s"),
        ("homogeneous", None, 10.0, 0.0, "--window 10 belongs to --mode steady"),
        ("rotated", 3.0, None, 0.0, "--warmup 3 belongs to --mode steady"),
    ],
)
def test_a_window_that_can_not_be_is_an_error(
    mode: str, warmup_s: float | None, window_s: float | None, stagger_s: float, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        resolve_window(mode, warmup_s, window_s, stagger_s)


def test_daemons_that_copies_leave_die_while_others_run_and_are_reported_in_few_words(
    tmp_path: Path,
) -> None:
    script = f"setsid sh -c 'echo $$ >> {tmp_path}/daemons; exec sleep 60' & sleep 0.02"
    more = "more processes were left behind in the phase of leak and killed"
    seen = repeated(tmp_path, {"leak": script}, 2, lambda seen: more in seen.notes)
    pids = (tmp_path / "daemons").read_text().split()
    assert not any(Path("/proc", pid).exists() for pid in pids)
    assert "left process" in seen.notes
    assert len(seen.notes.splitlines()) <= 9


def test_what_dies_with_its_own_copy_is_nobodys_leftover(tmp_path: Path) -> None:
    # `sleep` is still dying when its shell, a filler, is gone.
    seen = Rig(tmp_path).run({"nap": "sleep 0.1; true"}, 4, steady("nap", copies=4))
    assert "left process" not in seen.notes


def test_a_warm_up_that_was_not_asked_for_lasts_until_every_copy_has_run_once(
    tmp_path: Path,
) -> None:
    window = resolve_window("steady", None, 0.2)
    assert window == Window(20 * MS, 200 * MS, grows=True)
    script = 'if [ "$RATER_COPY" = 0 ]; then sleep 0.3; else sleep 0.02; fi'
    seen = Rig(tmp_path).run({"mixed": script}, 2, steady("mixed", copies=2, window=window))
    [bracket] = seen.brackets
    first = max(runs_of(seen.ended, copy)[0].finish_ns for copy in range(2))
    assert bracket.window_start_ns is not None
    assert bracket.window_finish_ns is not None
    begin_ns = min(run.start_ns for run in seen.ended)
    assert bracket.window_start_ns - begin_ns >= 1.45 * (first - begin_ns)
    assert bracket.window_finish_ns - bracket.window_start_ns == 200 * MS
    assert all(run.start_ns < bracket.window_finish_ns for run in seen.ended)
    assert resolve_window("steady", 0.01, 0.2) == Window(10 * MS, 200 * MS)  # as it was asked for


def test_a_window_in_which_copies_stood_still_is_none() -> None:
    watch = WindowWatch(Window(warmup_ns=0, length_ns=1), copies=2)
    assert not watch.note_suspension()  # nothing runs yet
    begin_ns = time.monotonic_ns()
    watch.note_start(begin_ns)
    assert watch.bounds_ns(begin_ns) == (0, 1)
    assert watch.note_suspension()


@pytest.mark.parametrize(("stalls_ms", "spoiled"), [([0.9], False), ([0.6, 0.6], True)])
def test_a_window_says_nothing_of_a_rate_if_the_launcher_stood_for_a_hundredth_of_it(
    stalls_ms: list[float], *, spoiled: bool
) -> None:
    watch = WindowWatch(Window(warmup_ns=0, length_ns=100 * MS), copies=1)
    watch.note_stall(50 * MS)  # nothing runs yet
    watch.note_start(0)
    for stall_ms in stalls_ms:
        watch.note_stall(round(stall_ms * MS))
    assert (watch.bounds_ns(0) is None) is spoiled
    assert watch.stalled_ns == (round(sum(stalls_ms) * MS) if spoiled else None)


def test_an_end_told_after_the_window_closes_it_though_it_was_stamped_before() -> None:
    watch = WindowWatch(Window(warmup_ns=0, length_ns=1), copies=1)
    began_ns = time.monotonic_ns()
    closed: list[bool] = []
    assert not watch.note_start(began_ns)
    trio.run(watch.run, lambda: closed.append(True))
    assert closed == []  # one that counts goes on, as far as is known
    assert watch.note_end(began_ns, first=True)


def test_a_start_told_after_the_window_was_closed_is_a_fillers() -> None:
    watch = WindowWatch(Window(warmup_ns=0, length_ns=MS), copies=1)
    watch.note_start(0)
    watch.closed = True
    assert watch.note_start(1)
