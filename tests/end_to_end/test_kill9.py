"""kill -9 of any command: nothing it started lives on, nothing is lost or half done.

The long form, 200 kills, is `make torture`.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.torture.commands import COMMANDS
from benchmarks.torture.stopping import Stopped

BY_NAME = {command.name: command for command in COMMANDS}


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return Stopped.of(BY_NAME["run"], tmp_path_factory.mktemp("run"), dict(os.environ))


def test_a_run_that_is_killed_leaves_what_was_done_and_the_next_one_works(
    tmp_path: Path, whole_run: Stopped
) -> None:
    assert whole_run.wrong(tmp_path / "killed", late(whole_run)) is None


@pytest.mark.parametrize("name", ["import", "rm"])
def test_a_command_that_is_killed_is_done_whole_or_not_at_all_and_the_next_one_works(
    tmp_path: Path, name: str
) -> None:
    stopped = Stopped.of(BY_NAME[name], tmp_path / "of", dict(os.environ))
    assert stopped.wrong(tmp_path / "killed", late(stopped)) is None


def late(stopped: Stopped) -> list[tuple[float, signal.Signals]]:
    """The moment of the kill: in the midst of what it writes."""
    return [(0.8 * stopped.takes_s, signal.SIGKILL)]


def test_without_a_cgroup_the_watchdog_still_finds_everything(
    tmp_path: Path, whole_run: Stopped
) -> None:
    # A name in PYTHONPATH that makes the run believe there is no cgroup file system.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import rater.run.copies.guard as g\ng.Cgroup.make = classmethod(lambda *a, **k: None)\n"
    )
    stopped = replace(whole_run, environment=dict(os.environ) | {"PYTHONPATH": str(hook)})
    assert stopped.wrong(tmp_path / "killed", late(stopped)) is None
