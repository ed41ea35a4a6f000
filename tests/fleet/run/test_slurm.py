"""What is said to Slurm, and what its commands say, without a Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.fleet.backends import (
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
    SlurmBackend,
    job_of_sacct,
    job_of_scontrol,
    jobs_of_squeue,
    sbatch_words,
    script,
)
from rater.fleet.plan import JobPhase

ORDER = JobSpec(
    name="rater-0123456789ab-n1.1",
    node="n1",
    command=("/opt/my venv/bin/python", "-m", "rater", "--job", "{job}"),
    directory=Path("/home/me"),
    log=Path("/home/me/log/100%.log"),
    minutes=30,
    arguments=("--partition=fast",),
)


def test_a_job_is_alone_on_its_node_and_inherits_nothing() -> None:
    words = sbatch_words(ORDER)
    wanted = "--nodelist=n1 --exclusive --mem=0 --no-requeue --export=NONE --propagate=NONE"
    assert set(wanted.split()) < set(words)
    assert "--time=30" in words
    assert "--signal=B:USR1@120" in words
    assert "--output=/home/me/log/100%%.log" in words
    assert words[-1] == "--partition=fast"


@pytest.mark.parametrize(("minutes", "notice_s"), [(None, 120), (1, 15), (4, 60), (600, 120)])
def test_short_jobs_are_told_late(minutes: int | None, notice_s: int) -> None:
    order = JobSpec("a", "n1", (), Path("/"), Path("/log"), minutes)
    assert order.notice_s == notice_s


def test_the_script_becomes_the_command_with_the_number_of_the_job(tmp_path: Path) -> None:
    text = script(ORDER)
    assert text.splitlines()[1].startswith("exec '/opt/my venv/bin/python' -m rater")
    shown = text.replace("exec '/opt/my venv/bin/python'", "exec echo")
    done = subprocess.run(
        ["sh"], input=shown, env={"SLURM_JOB_ID": "17"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "-m rater --job 17.0\n"


def test_squeue_tells_the_states_of_our_jobs_and_not_of_others() -> None:
    said = (
        "17|rater-f-n1.1|PENDING|ReqNodeNotAvail, UnavailableNodes:n1\n"
        "18|rater-f-n2.1|RUNNING|None\n"
        "19|rater-f-n3.1|NODE_FAIL|None\n"
        "20|somebody's|RUNNING|None\n"
    )
    found = jobs_of_squeue(said, {"rater-f-n1.1": "17", "rater-f-n2.1": None, "rater-f-n3.1": "19"})
    assert {it.job: it.phase for it in found.values()} == {
        "17": JobPhase.PENDING,
        "18": JobPhase.RUNNING,
        "19": JobPhase.ENDED,
    }
    assert found["rater-f-n1.1"].reason == "ReqNodeNotAvail, UnavailableNodes:n1"
    assert found["rater-f-n2.1"].reason is None


def test_of_two_jobs_with_one_name_the_one_counts_that_is_meant_or_still_is() -> None:
    said = "17|a|COMPLETED|None\n18|a|RUNNING|None\n"
    assert jobs_of_squeue(said, {"a": None})["a"].job == "18"
    assert jobs_of_squeue(said, {"a": "17"})["a"].job == "17"


@pytest.mark.parametrize("word", ["COMPLETING", "SUSPENDED", "STAGE_OUT"])
def test_a_job_that_has_not_let_go_of_its_node_runs(word: str) -> None:
    assert jobs_of_squeue(f"17|a|{word}|None\n", {"a": "17"})["a"].phase is JobPhase.RUNNING


@pytest.mark.parametrize(
    ("exit_code", "reason"),
    [
        ("9:0", "exit status 9"),
        ("0:9", "signal 9"),
        ("0:53", "signal 53: is the fleet's folder there on the node?"),
    ],
)
def test_scontrol_and_sacct_tell_how_a_job_ended(exit_code: str, reason: str) -> None:
    line = f"JobId=17 JobName=a JobState=FAILED Reason=NonZeroExitCode ExitCode={exit_code} Q=1\n"
    seen = job_of_scontrol(line)
    assert seen is not None
    assert (seen.job, seen.word, seen.reason) == ("17", "FAILED", reason)
    assert job_of_sacct(f"17|FAILED|{exit_code}\n") == seen


def test_what_is_no_job_is_none() -> None:
    assert job_of_scontrol("slurm_load_jobs error: Invalid job id specified") is None
    assert job_of_sacct("") is None
    cancelled = job_of_sacct("17|CANCELLED by 0|0:15\n")
    assert cancelled is not None
    assert cancelled.word == "CANCELLED"


def commands(folder: Path, patch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Put commands of that name first in PATH; the others of Slurm's do nothing."""
    for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct"):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{bodies.get(name, '')}\n")
        file.chmod(0o755)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Unable to contact slurm controller (connect failure)", SchedulerUnavailableError),
        (
            "Batch job submission failed: Socket timed out on send/recv operation",
            SchedulerUnavailableError,
        ),
        (
            "Batch job submission failed: Resource temporarily unavailable",
            SchedulerUnavailableError,
        ),
        ("QOSMaxSubmitJobPerUserLimit", SchedulerUnavailableError),
        ("invalid partition specified: fast", JobRejectedError),
        ("Batch job submission failed: Requested time limit is invalid", JobRejectedError),
    ],
)
def test_what_may_pass_is_tried_later_and_what_is_wrong_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[Exception]
) -> None:
    commands(tmp_path, monkeypatch, sbatch=f"echo 'sbatch: error: {said}' >&2; exit 1")
    with pytest.raises(kind) as error:
        SlurmBackend().submit(ORDER)
    assert said in str(error.value)


def test_the_shells_options_for_slurm_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, monkeypatch, sbatch="env >&2; exit 1")
    monkeypatch.setenv("SBATCH_PARTITION", "slow")
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_CONF", "/etc/mine")
    with pytest.raises(JobRejectedError) as error:
        SlurmBackend().submit(ORDER)
    assert "SLURM_CONF=/etc/mine" in str(error.value)
    assert "SBATCH_PARTITION" not in str(error.value)
    assert "SLURM_JOB_ID" not in str(error.value)


def test_a_machine_without_slurm_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="not on this machine"):
        SlurmBackend()
