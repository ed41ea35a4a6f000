"""What is seen of jobs of the backend `local`, from the files that their processes leave."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rater.fleet.backends import LocalBackend
from rater.fleet.plan import JobPhase, JobSeen
from rater.process import start_of

OURS = f"{os.getpid()} {start_of(os.getpid())}\n"
DEAD = f"{os.getpid()} 1\n"  # of a process that had our number before


def seen(folder: Path, processes: str | None, end: str | None = None) -> JobSeen | None:
    """Look at a job of which so much is written."""
    job = folder / "jobs" / "rater-f-n1.1.j1"
    job.mkdir(parents=True)
    for name, text in (("process", processes), ("end", end)):
        if text is not None:
            (job / name).write_text(text)
    return LocalBackend(folder).poll({"rater-f-n1.1": None}).get("rater-f-n1.1")


# Ids of our own: a number of a process is another one in each worker.
@pytest.mark.parametrize(
    "processes", [OURS, OURS + DEAD, DEAD + OURS], ids=["older", "job", "who looks at it"]
)
def test_a_job_runs_until_its_end_is_written_or_nobody_is_left_to_write_it(
    tmp_path: Path, processes: str
) -> None:
    assert seen(tmp_path, processes) == JobSeen("rater-f-n1.1.j1", JobPhase.RUNNING, "RUNNING")


def test_a_job_that_was_killed_with_who_looked_at_its_end_is_that_of_a_failed_node(
    tmp_path: Path,
) -> None:
    assert seen(tmp_path, DEAD * 2) == JobSeen("rater-f-n1.1.j1", JobPhase.ENDED, "NODE_FAIL")


@pytest.mark.parametrize("processes", [OURS * 2, DEAD * 2], ids=["living", "dead"])
def test_an_end_that_is_written_is_the_end(tmp_path: Path, processes: str) -> None:
    found = seen(tmp_path, processes, "FAILED signal 9")
    assert found == JobSeen("rater-f-n1.1.j1", JobPhase.ENDED, "FAILED", "signal 9")


def test_a_job_that_has_not_begun_is_not_known(tmp_path: Path) -> None:
    assert seen(tmp_path, None) is None
