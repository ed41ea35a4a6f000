"""kill -9 of the supervisor: nothing it started lives on, nothing that finished is lost.

The long form, 50 kills, is `make torture`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.torture.kill9 import one_kill


@pytest.mark.parametrize("after_s", [0.35, 0.8, 1.3])
def test_a_killed_supervisor_leaves_no_process_and_loses_no_finished_copy(
    tmp_path: Path, after_s: float
) -> None:
    orphans, lost, _, took_s = one_kill(tmp_path, dict(os.environ), after_s)
    assert (orphans, lost) == (0, 0)
    assert took_s < 20  # moments; the bound is for busy machines


def test_without_a_cgroup_the_watchdog_still_finds_everything(tmp_path: Path) -> None:
    # A name in PYTHONPATH that makes the run believe there is no cgroup file system.
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        "import rater.run.copies.guard as g\ng.Cgroup.make = classmethod(lambda *a, **k: None)\n"
    )
    environment = dict(os.environ) | {"PYTHONPATH": str(hook)}
    orphans, lost, _, took_s = one_kill(tmp_path, environment, 0.9)
    assert (orphans, lost) == (0, 0)
    assert took_s < 20  # moments; the bound is for busy machines
