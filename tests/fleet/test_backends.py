"""Slurm and local jobs as they are asked and seen, nodes and agents that refuse."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater import __version__
from rater.fleet import agent, shared_folder
from rater.fleet.agent import Agent, JobSignals, ending_signals
from rater.fleet.backends.local import LocalBackend
from rater.fleet.backends.scheduler import (
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
)
from rater.fleet.backends.slurm import (
    SlurmBackend,
    job_of_scontrol,
    jobs_of_sacct,
    jobs_of_squeue,
    sbatch_words,
    script,
)
from rater.fleet.plan import (
    AttemptObservation,
    AttemptState,
    JobPhase,
    JobSeen,
    NodeAttempt,
    NodeVerdict,
    VerdictStatus,
    updated_attempt,
)
from rater.fleet.shared_folder import (
    SharedFolder,
    node_facts,
    partial_mask,
)
from rater.record.events import RunEnded
from rater.record.run import RunStatus
from rater.run.host.admission import machine_lock
from rater.store.store import open_store
from rater.system.errors import InputError
from rater.system.files import Trusted, describe_shared_disk
from rater.system.process import process_start_ticks
from tests.support.example_events import ended, over, phase, run_of
from tests.support.fleets import ASKED
from tests.support.stored_runs import begin
from tests.support.strangers import give, needs_root

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
    order = JobSpec(
        name="a", node="n1", command=(), directory=Path("/"), log=Path("/log"), minutes=minutes
    )
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
    jobs = jobs_of_squeue(said, {"rater-f-n1.1": "17", "rater-f-n2.1": None, "rater-f-n3.1": "19"})
    assert {job.job: job.phase for job in jobs.values()} == {
        "17": JobPhase.PENDING,
        "18": JobPhase.RUNNING,
        "19": JobPhase.ENDED,
    }
    assert jobs["rater-f-n1.1"].reason == "ReqNodeNotAvail, UnavailableNodes:n1"
    assert jobs["rater-f-n2.1"].reason is None


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
    assert jobs_of_sacct(f"16|COMPLETED|0:0\n17|FAILED|{exit_code}\n")["17"] == seen


def test_what_is_no_job_is_none() -> None:
    assert job_of_scontrol("slurm_load_jobs error: Invalid job id specified") is None
    assert jobs_of_sacct("") == {}
    assert jobs_of_sacct("17|CANCELLED by 0|0:15\n")["17"].word == "CANCELLED"


def commands(folder: Path, patch: pytest.MonkeyPatch, **bodies: str) -> None:
    """Put commands of that name first in PATH; the others of Slurm's do nothing."""
    for name in ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "sacct"):
        file = folder / name
        file.write_text(f"#!/bin/sh\n{bodies.get(name, '')}\n")
        file.chmod(0o755)
    patch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def asked(folder: Path, patch: pytest.MonkeyPatch, jobs: int, sacct: str) -> list[str]:
    """The commands that are called to poll so many jobs, which squeue does not know any more."""
    log = folder / "calls"
    call = f'echo "${{0##*/}} $*" >> {log}'
    commands(folder, patch, squeue=call, scontrol=f"{call}; exit 1", sacct=f"{call}; {sacct}")
    SlurmBackend().poll({f"rater-{job}": str(job) for job in range(1, jobs + 1)})
    return [line.split()[0] for line in log.read_text().splitlines()]


@pytest.mark.parametrize("sacct", ["exit 0", "echo 'storage is disabled' >&2; exit 1"])
def test_of_jobs_that_are_forgotten_one_command_asks_for_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sacct: str
) -> None:
    assert asked(tmp_path, monkeypatch, 30, sacct) == ["squeue", "sacct"]


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
        SlurmBackend().submit(Trusted(ORDER))
    assert said in str(error.value)


def test_the_shells_options_for_slurm_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path, monkeypatch, sbatch="env >&2; exit 1")
    monkeypatch.setenv("SBATCH_PARTITION", "slow")
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    monkeypatch.setenv("SLURM_CONF", "/etc/mine")
    with pytest.raises(JobRejectedError) as error:
        SlurmBackend().submit(Trusted(ORDER))
    assert "SLURM_CONF=/etc/mine" in str(error.value)
    assert "SBATCH_PARTITION" not in str(error.value)
    assert "SLURM_JOB_ID" not in str(error.value)


def test_a_machine_without_slurm_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="not on this machine"):
        SlurmBackend()


OURS = f"{os.getpid()} {process_start_ticks(os.getpid())}\n"
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


VERDICT = NodeVerdict(
    rater=1,
    fleet="f",
    node="n1",
    attempt=1,
    job="17",
    status=VerdictStatus.COMPLETE,
    reason=None,
    ended_by=None,
    database=None,
    sha256=None,
    bytes=None,
    run="u",
    copies_done=2,
    copies_planned=2,
    started_at="2026-11-23T08:00:00Z",
    ended_at="2026-11-23T08:01:00Z",
    host={"hostname": "n1"},
)
MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:1 - nfs4 server:/home rw
31 22 0:41 / /scratch rw - lustre mgs@tcp:/scratch rw
32 31 8:2 / /scratch/local rw - xfs /dev/sdb1 rw
33 22 0:42 / /my\\040share rw - fuse.sshfs host:/ rw
"""


@pytest.fixture
def folder(tmp_path: Path) -> SharedFolder:
    it = SharedFolder(tmp_path / "fleet")
    it.make(replace(ASKED, uuid="f", scratch="/tmp"))
    return it


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home/me", "nfs4"),
        ("/scratch/me", "lustre"),
        ("/my share/x", "fuse.sshfs"),
        ("/scratch/local/x", None),
        ("/var/tmp", None),
        ("/homes", None),
    ],
)
def test_a_disk_of_several_machines_is_told_by_the_deepest_mount(
    tmp_path: Path, place: str, kind: str | None
) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    said = describe_shared_disk(Path(place), "another", mountinfo)
    assert (said is None) == (kind is None)
    assert kind is None or f"({kind})" in str(said)


def test_a_narrow_mask_is_told_with_both_lists(tmp_path: Path) -> None:
    cpus = tmp_path / "devices/system/cpu"
    cpus.mkdir(parents=True)
    (cpus / "online").write_text("0-7\n")
    assert partial_mask(tmp_path, set(range(8))) is None
    assert "CPUs 0-3 of 0-7" in str(partial_mask(tmp_path, {0, 1, 2, 3}))
    assert {"hostname", "boot_id", "kernel", "usable_cpus"} <= node_facts().keys()


def test_one_job_does_an_attempt_and_another_is_told_which(folder: SharedFolder) -> None:
    assert folder.claim("n1", 1, "17.0") is None
    assert folder.claim("n1", 1, "18.0") == "17.0"
    assert folder.claim("n1", 2, "18.0") is None
    assert folder.claimed_by("n1", 1) == "17.0"
    assert folder.claimed_by("n2", 1) is None


def test_a_job_that_the_scheduler_starts_again_goes_on_with_its_attempt(
    folder: SharedFolder,
) -> None:
    assert folder.claim("n1", 1, "17.0") is None
    assert folder.claim("n1", 1, "17.0") == "17.0"
    assert folder.claim("n1", 1, "17.1") is None
    assert folder.claim("n1", 1, "17.0") == "17.1"
    assert folder.claim("n2", 1, "rater-f-n2.1.jabc") is None
    assert folder.claim("n2", 1, "rater-f-n2.1.jabd") == "rater-f-n2.1.jabc"


def test_what_is_published_is_read_back_with_its_database(
    folder: SharedFolder, tmp_path: Path
) -> None:
    assert folder.looked_up("f", "n1", 1) is None
    database = tmp_path / "node.db"
    database.write_bytes(b"x" * 3_000_000)
    put = folder.publish(VERDICT, database)
    assert put.bytes == 3_000_000
    found = folder.looked_up("f", "n1", 1)
    assert found is not None
    assert (found.verdict, found.damaged) == (put, None)
    assert folder.verdict_files().keys() == {("n1", 1)}
    assert [path.name for path in folder.inbox.iterdir() if path.name.startswith(".")] == []


def test_a_database_that_was_cut_changed_or_removed_is_told(
    folder: SharedFolder, tmp_path: Path
) -> None:
    database = tmp_path / "node.db"
    database.write_bytes(b"x" * 100)
    put = folder.publish(VERDICT, database)
    file = folder.inbox / str(put.database)
    for content, said in ((b"x" * 99, "99 bytes large"), (b"x" * 99 + b"y", "another sha256")):
        file.write_bytes(content)
        found = folder.checked(put)
        assert said in str(found.damaged)
        assert not found.absent
    file.unlink()
    assert folder.checked(put).absent
    folder.set_aside("n1", 1)
    assert folder.looked_up("f", "n1", 1) is None


def test_setting_aside_takes_the_files_of_one_attempt_alone(
    folder: SharedFolder, tmp_path: Path
) -> None:
    database = tmp_path / "node.db"
    database.write_bytes(b"x")
    for node, attempt in (("n1", 1), ("n1", 11), ("n1.1", 1)):
        folder.publish(replace(VERDICT, node=node, attempt=attempt), database)
    folder.set_aside("n1", 1)
    assert folder.verdict_files().keys() == {("n1", 11), ("n1.1", 1)}
    assert len(list((folder.path / "aside").iterdir())) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"complete"', '"perfect"', "status"),
        ('"rater": 1', '"rater": 2', "version 2"),
        ('"node": "n1"', '"node": "n2"', "another attempt"),
        ('"database": null', '"database": "../../etc/passwd"', "expected 'n1.1.abababababab.db'"),
        ("{", "[", "damaged"),
    ],
)
def test_a_verdict_that_is_none_is_told(
    folder: SharedFolder, old: str, new: str, said: str
) -> None:
    folder.publish(VERDICT, None)
    file = folder.inbox / "n1.1.json"
    text = file.read_text().replace(old, new, 1)
    if "passwd" in new:
        text = text.replace('"sha256": null', f'"sha256": "{"ab" * 32}"')
    file.write_text(text)
    found = folder.looked_up("f", "n1", 1)
    assert found is not None
    assert found.verdict is None
    assert said in str(found.damaged)


def test_a_cancelled_fleet_is_seen_by_its_nodes(folder: SharedFolder) -> None:
    before = folder.is_cancelled
    folder.mark_cancelled(True)
    assert (before, folder.is_cancelled) == (False, True)
    assert folder.spec().words == ("mini",)


@pytest.fixture
def signals() -> Iterator[JobSignals]:
    with ending_signals() as it:
        yield it


@pytest.fixture
def node_agent(tmp_path: Path, signals: JobSignals) -> Agent:
    (tmp_path / "scratch").mkdir()
    folder = SharedFolder(tmp_path / "fleet")
    words = ("--copies=1", "--energy=off", "--proof=off", "--preflight=off")
    spec = replace(
        ASKED, uuid="0123456789abcdef", rater_version=__version__, words=words,
        command=("true",), directory=str(tmp_path), scratch=str(tmp_path / "scratch"),
        lock=str(tmp_path / "lock"),
    )  # fmt: skip
    folder.make(spec)
    return Agent(folder, spec, "n1", 1, "17.0", signals)


def refused(agent: Agent, **changed: object) -> str:
    """Why a node is refused whose spec differs so."""
    spec = replace(agent.spec, **changed)
    verdict = Agent(agent.folder, spec, "n1", 1, "17.0", agent.signals).run()
    assert verdict.status is VerdictStatus.REFUSED
    assert verdict.database is None
    return str(verdict.reason)


def test_another_rater_directory_or_disk_is_refused_with_the_reason(node_agent: Agent) -> None:
    assert "is on this node, 0.0 on the submit host" in refused(node_agent, rater_version="0.0")
    assert "/nowhere is not on this node" in refused(node_agent, directory="/nowhere")
    assert "name a folder on its own disk with --scratch" in refused(node_agent, scratch="/nowhere")


def test_a_disk_of_several_machines_and_a_narrow_mask_are_refused(
    node_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        agent, "describe_shared_disk", lambda *_: "on a file system of several machines"
    )
    assert refused(node_agent) == "on a file system of several machines"
    monkeypatch.setattr(agent, "partial_mask", lambda: "the job may use CPUs 0 of 0-1")
    assert refused(node_agent) == "the job may use CPUs 0 of 0-1"
    # Allowed, and told all the same.
    assert "several machines" in refused(node_agent, allow_partial=True)
    assert shared_folder.partial_mask(mask=set(range(4096))) is None


def test_a_cancelled_fleet_is_not_begun(node_agent: Agent) -> None:
    node_agent.folder.mark_cancelled(True)
    assert node_agent.run().status is VerdictStatus.CANCELLED
    assert not node_agent.database.exists()


def test_a_node_that_another_rater_holds_is_waited_for_and_refused_with_who_it_is(
    node_agent: Agent,
) -> None:
    assert node_agent.folder.claim("n1", 1, "17.0") is None
    holder = f"rater run 1a2b, process {os.getpid()}, user me, since 10:03"
    with machine_lock(node_agent.scratch.parent.parent / "held", holder):
        said = refused(
            node_agent, lock=str(node_agent.scratch.parent.parent / "held"), busy_limit_s=0.3
        )
    assert said == f"another rater held the node for 0.3 s; {holder}"
    waits = str(node_agent.folder.waits_for("n1", 1))
    assert waits.startswith(f"another rater holds it; {holder}; waits since 20")
    assert waits.endswith("Z, 0.3 s at most")


def test_a_node_that_waits_in_its_run_says_so_and_for_whom(
    node_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert node_agent.folder.claim("n1", 1, "17.0") is None
    monkeypatch.setattr(agent, "_machine_holder", lambda _: None)  # it was free a moment ago
    marks: list[str] = []
    monkeypatch.setattr(SharedFolder, "mark_waiting", lambda *it: marks.append(it[-1]))
    node_agent.spec = replace(node_agent.spec, busy_limit_s=0.5)
    holder = f"rater run 1a2b, process {os.getppid()}, user me, since 10:03"
    with machine_lock(Path(str(node_agent.spec.lock)), holder):
        verdict = node_agent.run()
    assert marks[0].startswith(f"another rater holds it; {holder}; waits since 20")
    assert (verdict.status, holder in str(verdict.reason)) == (VerdictStatus.REFUSED, True)


def test_an_attempt_that_added_nothing_says_so_in_its_row(
    node_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "_rater", ran_a_half)
    node_agent.run()

    def ended_at_once(agent: Agent, *_: str, **__: object) -> tuple[int, str]:
        agent.signals.take(signal.SIGUSR1, None)
        return 143, ""

    monkeypatch.setattr(Agent, "_rater", ended_at_once)
    node_agent.signals.first = None
    again = Agent(node_agent.folder, node_agent.spec, "n1", 2, "18.0", node_agent.signals).run()
    assert again.notes[-1] == "added nothing to the 2 copies that were there"
    looked = AttemptObservation(now_s=1.0, verdict=again)
    attempt = NodeAttempt(node="n1", attempt=2, state=AttemptState.RUNNING, intended_s=0.0)
    now = updated_attempt(attempt, looked, node_agent.spec)
    assert (now.state, now.reason) == (
        AttemptState.TIMEOUT,
        "the time limit was near; added nothing to the 2 copies that were there; 2 of 4 copies",
    )


def test_a_damaged_database_of_the_node_is_set_aside(
    node_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_agent.scratch.mkdir(parents=True)
    node_agent.database.write_bytes(b"SQLite format 3\0" + bytes(5000))
    monkeypatch.setattr(Agent, "_rater", lambda *_, **__: (2, "rater: refused all the same"))
    verdict = node_agent.run()
    assert (verdict.status, verdict.reason) == (VerdictStatus.REFUSED, "refused all the same")
    assert verdict.notes[0].startswith("set aside, a new run:")
    assert node_agent.database.with_name("damaged-node.db").stat().st_size == 5016


def test_a_node_that_has_published_everything_does_nothing_more(
    node_agent: Agent, tmp_path: Path
) -> None:
    whole = tmp_path / "whole.db"
    whole.write_bytes(b"x")
    node_agent.folder.publish(node_agent.verdict(VerdictStatus.COMPLETE, None), whole)
    again = Agent(node_agent.folder, node_agent.spec, "n1", 2, "18.0", node_agent.signals).run()
    assert (again.status, again.reason) == (
        VerdictStatus.NOT_NEEDED,
        "attempt 1 has published everything",
    )


def ran_a_half(agent: Agent, *words: str, **_: object) -> tuple[int, str]:
    """What `rater run` leaves that was told to end after the first of two phases."""
    with open_store(agent.database) as store:
        number = begin(store, run_of(2, iterations=2))
        store.append(number, phase(total=2), ended(0, 1.0), ended(1, 1.0), over(0.0, 1.0))
        store.append(number, RunEnded(RunStatus.INTERRUPTED, "SIGTERM"))
    agent.signals.take(signal.SIGUSR1, None)
    return 143, ""


def test_what_was_measured_before_the_time_limit_is_published_and_resumed_elsewhere(
    node_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Agent, "_rater", ran_a_half)
    verdict = node_agent.run()
    assert (verdict.status, verdict.ended_by) == (VerdictStatus.PARTIAL, "USR1")
    assert (verdict.copies_done, verdict.copies_planned) == (2, 4)
    found = node_agent.folder.looked_up(node_agent.spec.uuid, "n1", 1)
    assert found is not None
    assert (found.verdict, found.damaged) == (verdict, None)

    node_agent.database.unlink()  # the node came back without its disk
    asked: list[tuple[str, ...]] = []

    def no(_: Agent, *words: str, **__: object) -> tuple[int, str]:
        asked.append(words)
        return 1, "no"

    monkeypatch.setattr(Agent, "_rater", no)
    node_agent.signals.first = None
    again = Agent(node_agent.folder, node_agent.spec, "n1", 2, "18.0", node_agent.signals).run()
    assert asked == [("--resume", "1")]
    assert again.notes == (
        "goes on with what attempt 1 published",
        "resumed: 2 copies were there",
    )
    assert (again.status, again.reason, again.copies_done) == (VerdictStatus.PARTIAL, "no", 2)


def put_link(file: Path, secret: Path) -> None:
    file.symlink_to(secret)


def put_hard_link(file: Path, secret: Path) -> None:
    file.hardlink_to(secret)


def put_pipe(file: Path, _: Path) -> None:
    os.mkfifo(file)


def put_folder(file: Path, _: Path) -> None:
    file.mkdir()


def put_huge(file: Path, _: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(1 << 40)  # sparse: a terabyte of zeros


PUTS = [
    (put_link, "a symbolic link, expected a file"),
    (put_hard_link, "a file of 2 hard links, expected one"),
    (put_pipe, "not a regular file but a pipe or a device"),
    (put_folder, "not a regular file but a directory"),
    (put_huge, ""),
]


@pytest.mark.parametrize(("put", "said"), PUTS)
def test_what_a_host_put_in_place_of_a_verdict_or_a_database_is_named_and_never_followed(
    folder: SharedFolder, tmp_path: Path, put: Callable[[Path, Path], None], said: str
) -> None:
    database = tmp_path / "node.db"
    database.write_bytes(b"x" * 100)
    published = folder.publish(VERDICT, database)
    file = folder.inbox / str(published.database)
    secret = tmp_path / "secret"
    file.rename(secret)
    put(file, secret)
    looked_up = folder.looked_up("f", "n1", 1)
    assert looked_up is not None
    assert (said or "bytes large, which its verdict does not say") in str(looked_up.damaged)
    verdict = folder.inbox / "n1.1.json"
    verdict.rename(secret)
    put(verdict, secret)
    looked_up = folder.looked_up("f", "n1", 1)
    assert looked_up is not None
    assert (looked_up.verdict, (said or "its verdict is damaged") in str(looked_up.damaged)) == (
        None,
        True,
    )
    folder.set_aside("n1", 1)
    assert list(folder.inbox.iterdir()) == []


@pytest.mark.parametrize(("put", "said"), PUTS[:4])
def test_a_log_is_no_way_to_another_file(
    folder: SharedFolder, tmp_path: Path, put: Callable[[Path, Path], None], said: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's own")
    put(folder.log("n1", 1), secret)
    assert f"cannot be read ({said})" in folder.last_words("n1", 1)
    with pytest.raises(InputError, match="no log of a fleet"):
        folder.open_log("n1", 1)
    assert secret.read_text() == "root's own"


@pytest.mark.parametrize("job", ["--user=alice", "../../x", "17 18", "\udcff", "17\x00", "a" * 999])
def test_a_job_that_a_host_names_reaches_no_command_of_the_scheduler(
    folder: SharedFolder, job: str
) -> None:
    folder.publish(replace(VERDICT, job=job), None)
    found = folder.looked_up("f", "n1", 1)
    assert found is not None
    assert (found.verdict, "is no number or name of one" in str(found.damaged)) == (None, True)
    assert folder.claim("n1", 1, "17.0") is None
    (folder.path / "claim/n1.1/job").write_text(job, errors="replace")
    assert folder.claimed_by("n1", 1) is None


@needs_root
def test_the_folder_of_a_fleet_that_a_stranger_swaps_is_never_used(
    folder: SharedFolder, tmp_path: Path
) -> None:
    folder.check()
    theirs = tmp_path / "theirs"
    folder.path.rename(tmp_path / "ours")
    shutil.copytree(tmp_path / "ours", theirs)
    give(theirs)
    for swapped in (theirs, tmp_path / "link"):
        if swapped.name == "link":
            swapped.symlink_to(tmp_path / "ours")
            give(swapped)
        swapped.rename(folder.path)
        with pytest.raises(InputError, match="user 1234"):
            folder.check()
        with pytest.raises(InputError, match="user 1234"):
            folder.open_log("n1", 1)
        assert "user 1234" in folder.last_words("n1", 1)
        folder.path.rename(tmp_path / f"gone-{swapped.name}")
    assert list((tmp_path / "ours/log").iterdir()) == []
