"""The process that judges what copies wrote: nothing in it can hold up the run, or outlive it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rater.plan.schedule import Window, make_plan
from rater.plan.suite import Expected, Metric
from rater.record.events import CopyStarted, Event, Noted, PhaseEnded
from rater.record.run import RunStatus, Validity
from rater.run.copies.guard import Helpers, children, guard
from rater.run.copies.spawn import MARKER
from rater.run.supervise.supervisor import Supervisor
from rater.run.workplace import checker
from rater.run.workplace.checker import Checker
from rater.run.workplace.compare_output import CheckRequest, CheckResult, CheckRules
from tests.support.rig import Rig

ENDLESS = r"^((?:a+)+)$"
TRAP = "a" * 60 + "!\n"
NUMBER = Metric("speed", r"speed (\d+)", "GB/s", "higher", "mean", "stdout", 1.0)
STUCK = Metric("trap", ENDLESS, "", None, "sum", "stdout", 1.0)


def request(
    folder: Path, wrote: str, *metrics: Metric, expected: tuple[Expected, ...] = ()
) -> CheckRequest:
    stdout = folder / f"{len(list(folder.iterdir()))}.stdout"
    stdout.write_text(wrote)
    return CheckRequest(CheckRules(expected, metrics), str(folder), str(stdout), str(stdout))


def test_many_copies_of_several_benchmarks_are_judged_in_their_order(tmp_path: Path) -> None:
    text = "line\n" * 20_000  # more than a pipe holds
    requests = [
        request(tmp_path, "speed 7\n", NUMBER),
        request(tmp_path, "nothing\n", NUMBER),
        request(tmp_path, "anything"),
        request(tmp_path, text, expected=(Expected("stdout", text, 0, 0),)),
        request(tmp_path, "speed ?\n", NUMBER),
    ] * 20
    with Checker() as process:
        found = process.check(requests)
    wrong = CheckResult(Validity.INVALID, r"metric speed: no line of stdout matches speed (\d+)")
    assert found[:5] == [
        CheckResult(Validity.NOT_CHECKED, None, (("speed", 7.0),)),
        wrong,
        CheckResult(Validity.NOT_CHECKED),
        CheckResult(Validity.VALID),
        wrong,
    ]
    assert found == found[:5] * 20


def test_files_are_found_by_their_names_and_numbers_in_the_order_of_the_suite(
    tmp_path: Path,
) -> None:
    for n, name in enumerate(("out.stdout", "out.stderr", "log/x")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"a {n}\n")
    rules = CheckRules(
        tuple(Expected(f, f"a {n}", 0, 0) for n, f in ((0, "stdout"), (2, "log/x"))),
        tuple(
            Metric(name, r"a (\d)", "", None, "sum", file, 1.0)
            for name, file in (("c", "log/x"), ("b", "stderr"), ("a", "stdout"))
        ),
    )
    files = [str(tmp_path / name) for name in ("out.stdout", "out.stderr")]
    with Checker() as process:
        found = process.check([CheckRequest(rules, str(tmp_path), *files)])
    assert found == [CheckResult(Validity.VALID, None, (("c", 2.0), ("b", 1.0), ("a", 0.0)))]


def give_the_next_one_time(monkeypatch: pytest.MonkeyPatch, process: Checker) -> None:
    """Lift the limits once another process is needed: to start takes long on a full machine."""
    process.start()
    start = checker._Process

    def started(helpers: Helpers) -> checker._Process:
        monkeypatch.setattr(checker, "LIMIT_S", 60.0)
        process._wall_s = 60.0
        return start(helpers)

    monkeypatch.setattr(checker, "_Process", started)


@pytest.mark.parametrize(
    ("metrics", "expected", "at"),
    [
        ((NUMBER, STUCK), (), "metric trap: its pattern"),
        ((), (Expected("stdout", "", 0, 0, ignore=ENDLESS),), "checking stdout"),
    ],
)
def test_a_pattern_without_end_is_wrong_and_the_next_copy_is_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    metrics: tuple[Metric, ...],
    expected: tuple[Expected, ...],
    at: str,
) -> None:
    monkeypatch.setattr(checker, "LIMIT_S", 0.15)
    with Checker() as process:
        give_the_next_one_time(monkeypatch, process)
        bad, good = process.check(
            [
                request(tmp_path, f"{TRAP}speed 1\n", *metrics, expected=expected),
                request(tmp_path, "speed 2\n", NUMBER),
            ]
        )
    assert bad.detail == f"{at} took longer than 0.15 s of CPU time"
    assert good.metrics == (("speed", 2.0),)


def test_a_check_without_end_is_left_alone_when_the_run_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "AFTER_STOP_S", 0.1)
    begin_s = time.monotonic()
    with Checker(stopped=lambda: time.monotonic() > begin_s + 0.2) as process:
        found = process.check([request(tmp_path, ""), request(tmp_path, TRAP, STUCK)])
        assert time.monotonic() - begin_s < 20
        assert found == [CheckResult(Validity.NOT_CHECKED), CheckResult(Validity.UNCHECKED)]
        assert process.check([request(tmp_path, "", NUMBER)]) == [CheckResult(Validity.UNCHECKED)]


def test_when_the_process_dies_the_copy_in_hand_is_wrong_and_another_goes_on(
    tmp_path: Path,
) -> None:
    with guard("judge-dies", 1, use_cgroup=False) as keeper, Checker(keeper.helpers) as process:
        process.start()
        [first] = keeper.helpers.pids
        os.kill(first, signal.SIGKILL)
        bad, good = process.check([request(tmp_path, "speed 2\n", NUMBER)] * 2)
        assert bad.detail == "checking its output ended the process that did it (out of memory?)"
        assert good.metrics == (("speed", 2.0),)
        [second] = keeper.helpers.pids
        assert second != first


def test_a_process_that_is_stopped_is_not_waited_for_and_another_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        guard("judge-stops", 1, use_cgroup=False) as keeper,
        Checker(keeper.helpers, wall_s=0.3) as process,
    ):
        give_the_next_one_time(monkeypatch, process)
        [first] = keeper.helpers.pids
        os.kill(first, signal.SIGSTOP)
        bad, good = process.check([request(tmp_path, "speed 2\n", NUMBER)] * 2)
        assert bad.detail == (
            "checking its output took longer than 0.3 s (--check-limit), 0.0 s of it on a CPU: "
            "its process was stopped, or waits for a disk or a CPU"
        )
        assert good.metrics == (("speed", 2.0),)
        assert first not in children()


def test_the_process_is_no_leftover_and_bears_no_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARKER, "judge-stays")
    with guard("judge-stays", 1, use_cgroup=False) as keeper, Checker(keeper.helpers) as process:
        process.start()
        [pid] = keeper.helpers.pids
        assert pid in children()
        keeper.kill_strays()
        assert keeper.kill_leftovers() == []
        assert MARKER.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert os.getpgid(pid) == pid
        process.check([request(tmp_path, "speed 2\n", NUMBER)])
        assert keeper.helpers.pids == {pid}
    assert pid not in children()


def test_the_process_dies_with_rater_whatever_it_does(tmp_path: Path) -> None:
    (tmp_path / "stdout").write_text(TRAP)
    script = f"""
import sys
from rater.plan.suite import Metric
from rater.run.workplace.checker import Checker
from rater.run.workplace.compare_output import CheckRequest, CheckRules
checker = Checker()
checker.start()
print(*checker._helpers.pids, flush=True)
rules = CheckRules((), (Metric("m", {ENDLESS!r}, "", None, "sum", "stdout", 1.0),))
checker.check([CheckRequest(rules, {str(tmp_path)!r}, {str(tmp_path / "stdout")!r}, "")])
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as rater:
        assert rater.stdout is not None
        pidfd = os.pidfd_open(int(rater.stdout.readline()))
        try:
            time.sleep(0.1)  # into the pattern; if not yet there, all the better
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)  # readable when the process has ended
            assert poll.poll(0) == []
            rater.kill()
            assert poll.poll(20_000) != []
        finally:
            os.close(pidfd)


def test_a_run_that_is_stopped_while_it_judges_ends_and_leaves_the_rest_unchecked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "AFTER_STOP_S", 0.1)

    def stop(event: Event, supervisor: Supervisor) -> None:
        if isinstance(event, PhaseEnded):
            os.kill(os.getpid(), signal.SIGINT)

    begin_s = time.monotonic()
    rig = Rig(tmp_path, metrics=(STUCK,), on_event=stop)
    seen = rig.run({"trap": f"echo {TRAP}"}, 2)
    assert time.monotonic() - begin_s < 20
    assert (seen.outcome.status, seen.outcome.signal) == (RunStatus.INTERRUPTED, signal.SIGINT)
    assert seen.checked == []
    assert {event.validity for event in seen.ended} == {Validity.UNCHECKED}
    assert not [event for event in seen.events if isinstance(event, Noted)]
    assert list(rig.work.iterdir()) == []


def test_a_pattern_without_end_does_not_hold_up_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "LIMIT_S", 0.3)
    gone = tmp_path / "gone"
    # The first run of copy 0 sets the trap, which is sprung while the others go on.
    script = f"if mkdir {gone} 2>/dev/null; then echo {TRAP.strip()}; else echo aa; fi; sleep 0.02"
    window = Window(warmup_ns=0, length_ns=1_000_000_000)
    plan = make_plan(["nap"], 2, mode="steady", window=window)
    metric = Metric("trap", rf"{ENDLESS}|(?!)", "", None, "sum", "stdout", 1.0)
    seen = Rig(tmp_path, metrics=(metric,)).run({"nap": script}, 2, plan)
    [told] = [event for event in seen.checked if event.detail and "longer" in event.detail]
    assert told.detail == "metric trap: its pattern took longer than 0.3 s of CPU time"
    assert len(seen.checked) == len(seen.ended)
    [trapped] = [it for it in seen.ended if (it.copy, it.step) == (told.copy, told.step)]
    meanwhile = seen.events[seen.events.index(trapped) : seen.events.index(told)]
    assert sum(isinstance(event, CopyStarted) for event in meanwhile) > 4
