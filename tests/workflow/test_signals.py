"""A signal at the worst of moments: a run that was begun is ended in order, or none is there."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.torture.commands import COMMANDS
from benchmarks.torture.stopping import Stopped
from rater.store.store import Store
from rater.workflow.run import session
from rater.workflow.run.session import Recorder
from tests.support.calls import Rater, rows

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def signal_at(
    patch: pytest.MonkeyPatch, owner: Any, name: str, number: int, *, after: bool = False
) -> None:
    """Send us a signal as a function is called, or as it returns."""
    real = getattr(owner, name)

    def call(*args: Any, **more: Any) -> Any:
        if not after:
            os.kill(os.getpid(), number)
        result = real(*args, **more)
        if after:
            os.kill(os.getpid(), number)
        return result

    patch.setattr(owner, name, call)


@pytest.mark.parametrize("number", NUMBERS)
def test_before_the_run_s_row_there_is_none(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    signal_at(monkeypatch, session, "make_ready", number)
    assert rater("run", "--quiet", "--copies", "1", "--", "true") == (128 + number, "", "")
    assert rows("SELECT * FROM run") == []


@pytest.mark.parametrize("number", NUMBERS)
def test_as_soon_as_the_row_is_there_the_run_is_interrupted(
    rater: Rater, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    signal_at(monkeypatch, Store, "create_run", number, after=True)
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] == 128 + number
    assert rows("SELECT status, reason FROM run") == [("interrupted", f"stopped by {number.name}")]
    assert rows("SELECT * FROM copy") == []


def test_while_the_database_takes_the_last_rows_it_is_not_closed(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_at(monkeypatch, Recorder, "close", signal.SIGINT)
    signal_at(monkeypatch, Store, "_checkpoint", signal.SIGTERM)  # in the recorder's thread
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] in (130, 143)
    assert rows("SELECT copy.status, run.status FROM copy, run") == [("ok", "complete")]


def test_a_run_that_breaks_is_failed_and_says_why(
    rater: Rater, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise OSError("no more threads")

    monkeypatch.setattr(Recorder, "start", broken)
    assert rater("run", "--quiet", "--copies", "1", "--", "true")[0] == 1
    assert rows("SELECT status, reason FROM run") == [("failed", "no more threads")]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    [run] = [command for command in COMMANDS if command.name == "run"]
    return Stopped.of(run, tmp_path_factory.mktemp("stopped"), dict(os.environ))


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
@pytest.mark.parametrize("share", [0.3, 0.7])
def test_at_any_moment_a_run_ends_in_order(
    tmp_path: Path, stopped: Stopped, share: float, many: bool
) -> None:
    sent = [(share * stopped.takes_s, NUMBERS[0])]
    sent += [(0.01, number) for number in NUMBERS * 3 if many]
    assert stopped.wrong(tmp_path, sent) is None
