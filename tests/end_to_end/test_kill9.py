"""kill -9 of any command: nothing it started lives on, nothing is lost or half done.

The long form, 200 kills, is `make torture`.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from benchmarks.torture.commands import COMMANDS
from benchmarks.torture.stopping import Stopped

BY_NAME = {command.name: command for command in COMMANDS}


@pytest.mark.parametrize("name", ["run", "import", "rm"])
def test_a_command_that_is_killed_is_done_whole_or_not_at_all_and_the_next_one_works(
    tmp_path: Path, name: str
) -> None:
    stopped = Stopped.of(BY_NAME[name], tmp_path / "of", dict(os.environ))
    late_s = 0.8 * stopped.takes_s  # in the midst of what it writes
    assert stopped.wrong(tmp_path / "killed", [(late_s, signal.SIGKILL)]) is None


def test_without_a_cgroup_the_watchdog_still_finds_everything(tmp_path: Path) -> None:
    # A name in PYTHONPATH that makes the run believe there is no cgroup file system.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import rater.run.copies.guard as g\ng.Cgroup.make = classmethod(lambda *a, **k: None)\n"
    )
    environment = dict(os.environ) | {"PYTHONPATH": str(hook)}
    stopped = Stopped.of(BY_NAME["run"], tmp_path / "of", environment)
    late_s = 0.8 * stopped.takes_s
    assert stopped.wrong(tmp_path / "killed", [(late_s, signal.SIGKILL)]) is None
