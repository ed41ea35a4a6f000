"""The backends ssh and pbs, with programs that play ssh and the commands of PBS."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rater.fleet.backends.pbs import PbsBackend, qsub_words, script
from rater.fleet.backends.scheduler import (
    JobRejectedError,
    JobSpec,
    SchedulerUnavailableError,
)
from rater.fleet.backends.ssh import SshBackend
from rater.fleet.plan import JobPhase, JobSeen
from rater.system.errors import InputError
from rater.system.files import Trusted
from tests.support.calls import Rater
from tests.support.processes import wait_until

# Plays ssh: options, a node, and a command for its shell; n9 is down and n8 unknown.
SSH = """#!/bin/sh
while :; do case $1 in -[oF]) shift 2 ;; -*) shift ;; *) break ;; esac; done
node=$1; shift
[ -e down ] && node=n9
case $node in
n8) echo "ssh: Could not resolve hostname n8: Name or service not known" >&2; exit 255 ;;
n9) echo "ssh: connect to host n9 port 22: No route to host" >&2; exit 255 ;;
esac
cd / && exec sh -c "$*"
"""


@pytest.fixture
def order(tmp_path: Path) -> JobSpec:
    log = tmp_path / "log"
    log.touch()
    return JobSpec(
        name="rater-f-n1.1",
        node="n1",
        command=("/bin/sh", "-c", "pwd; exec sleep 60", "{job}"),
        directory=tmp_path,
        log=log,
        minutes=None,
    )


@pytest.fixture
def played_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "my ssh"
    program.write_text(SSH)
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RATER_SSH", f"'{program}' -F file")
    return program


def ended(backend: SshBackend, job: str) -> JobSeen:
    """Wait for the end of a job."""
    return wait_until(
        lambda: next(
            (it for it in backend.poll({"x": job}).values() if it.phase is JobPhase.ENDED), None
        )
    )


@pytest.mark.usefixtures("played_ssh")
def test_a_job_runs_on_its_node_is_seen_and_told_to_end(order: JobSpec, tmp_path: Path) -> None:
    backend = SshBackend(tmp_path)
    job = backend.submit(Trusted(order))
    running = {"rater-f-n1.1": JobSeen(job, JobPhase.RUNNING, "RUNNING")}
    assert backend.poll({"rater-f-n1.1": job}) == backend.poll({"rater-f-n1.1": None}) == running
    wait_until(lambda: order.log.read_text() == f"{tmp_path}\n")
    backend.cancel([job], gently=True)
    end = ended(backend, job)
    assert (end.word, end.reason) == ("FAILED", "signal 10")
    backend.cancel([job], gently=False)  # no error: it has ended


@pytest.mark.usefixtures("played_ssh")
def test_nodes_that_are_not_reached_have_the_reason_and_unknown_ones_are_none(
    order: JobSpec, tmp_path: Path
) -> None:
    backend = SshBackend(tmp_path)
    first, last = backend.nodes(["n1", "n8", "n9"])
    assert (first.name, first.is_idle, first.reason) == ("n1", True, None)
    assert (last.name, last.is_idle) == ("n9", False)
    assert "No route to host" in str(last.reason)
    with pytest.raises(JobRejectedError, match="No route to host"):
        backend.submit(Trusted(replace(order, node="n9")))
    with pytest.raises(InputError, match="has no list of nodes"):
        backend.nodes([])


@pytest.mark.usefixtures("played_ssh")
def test_a_node_that_is_gone_for_long_has_failed_and_a_short_silence_concludes_nothing(
    order: JobSpec, tmp_path: Path
) -> None:
    backend = SshBackend(tmp_path)
    job = backend.submit(Trusted(order))
    (tmp_path / "down").touch()
    seen = backend.poll({"x": job})["x"]
    assert (seen.phase, seen.word) == (JobPhase.RUNNING, "UNREACHED")
    (tmp_path / "jobs" / job / "unreached").write_text(f"{time.time() - 700:.0f}")
    seen = backend.poll({"x": job})["x"]
    assert (seen.phase, seen.word) == (JobPhase.ENDED, "NODE_FAIL")
    assert str(seen.reason).startswith("not reached for 10 minutes: ssh: connect to host n9")
    (tmp_path / "down").unlink()
    assert backend.poll({"x": job})["x"].phase is JobPhase.RUNNING
    (tmp_path / "jobs" / job / "boot").write_text("another boot")  # the node lost its power
    assert backend.poll({"x": job})["x"].word == "NODE_FAIL"
    (tmp_path / "jobs" / job / "boot").write_text(
        Path("/proc/sys/kernel/random/boot_id").read_text()
    )
    backend.cancel([job], gently=False)
    assert ended(backend, job).word == "CANCELLED"


@pytest.mark.usefixtures("played_ssh")
def test_a_node_that_a_file_names_is_no_option_of_ssh(order: JobSpec, tmp_path: Path) -> None:
    backend = SshBackend(tmp_path)
    job = backend.submit(Trusted(order))
    (tmp_path / "jobs" / job / "node").write_text("-oProxyCommand=touch taken")
    assert backend.poll({"x": job})["x"].word == "UNREACHED"
    assert not (tmp_path / "taken").exists()
    (tmp_path / "jobs" / job / "node").write_text("n1")
    backend.cancel([job], gently=False)
    ended(backend, job)


@pytest.mark.usefixtures("played_ssh")
def test_a_fleet_by_ssh_is_measured_and_collected(
    rater: Rater, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATER_FLEETS", str(tmp_path / "fleets"))
    words = f"fleet run --backend ssh --nodes n1 --settle 0 --poll 0.1 --scratch {tmp_path} --wait"
    program = ("--copies", "1", "--energy", "off", "--proof", "off", "--preflight", "off")
    status, out, err = rater(*words.split(), *program, "--", "true")
    assert (status, "1 node: 1 complete" in out) == (0, True), err
    assert "on " in rater("show", "fleet:1/n1")[1]


# -- PBS -------------------------------------------------------------------------------------------

NODES = {
    "n1": {"state": "free", "queue": "fast"},
    "n2": {"state": "job-exclusive"},
    "n3": {"state": "offline,down", "comment": "bad DIMM"},
}
JOBS = {
    "17.server": {"Job_Name": "a", "job_state": "R"},
    "18.server": {"Job_Name": "b", "job_state": "Q", "comment": "Not Running: no node"},
    "19.server": {"Job_Name": "c", "job_state": "F", "Exit_status": 3},
}


@pytest.fixture
def pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., PbsBackend]:
    """Commands of PBS that say so much, and write down how they were called."""

    def commands(**bodies: str) -> PbsBackend:
        said = {
            "pbsnodes": json.dumps({"nodes": NODES}),
            "qstat": json.dumps({"Jobs": JOBS}),
            "qselect": "17.server\n18.server\n19.server",
        }
        for name in ("pbsnodes", "qsub", "qstat", "qselect", "qsig", "qdel"):
            file = tmp_path / name
            body = bodies.get(name, f"cat <<'END'\n{said.get(name, '')}\nEND")
            file.write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/calls\n{body}\n')
            file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return PbsBackend()

    return commands


def called(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def test_nodes_of_pbs_have_their_state_and_those_of_a_queue_are_listed(
    pbs: Callable[..., PbsBackend],
) -> None:
    backend = pbs()
    nodes = backend.nodes(["n3", "n1", "n7"])
    assert [(it.name, it.word, it.is_idle, it.reason) for it in nodes] == [
        ("n3", "offline,down", False, "bad DIMM"),
        ("n1", "free", True, None),
    ]
    assert [it.name for it in backend.nodes([])] == ["n1", "n2", "n3"]
    assert [it.name for it in backend.nodes([], "fast")] == ["n1"]


def test_a_job_of_pbs_is_alone_on_its_node_and_told_before_its_limit(
    pbs: Callable[..., PbsBackend], order: JobSpec, tmp_path: Path
) -> None:
    backend = pbs(qsub="cat > script; echo 17.server")
    os.chdir(tmp_path)
    timed = replace(order, minutes=30, command=("/opt/my rater/rater", "--job", "{job}"))
    assert backend.submit(Trusted(timed)) == "17"
    (call,) = called(tmp_path)
    assert "-l select=1:host=n1 -l place=excl -l walltime=1800 -r n" in call
    text = (tmp_path / "script").read_text()
    assert text == script(timed)
    assert "(sleep 1680 && kill -USR1 $$)" in text
    assert text.endswith("exec '/opt/my rater/rater' --job ''\"${PBS_JOBID%%.*}\"''\n")
    assert "walltime" not in " ".join(qsub_words(order))


def test_jobs_of_pbs_are_asked_for_at_once_and_by_name_where_no_number_is_known(
    pbs: Callable[..., PbsBackend], tmp_path: Path
) -> None:
    both = "[ $# = 3 ] && echo '17.server 18.server 19.server' || echo 19.server"
    backend = pbs(qselect=both)
    seen = backend.poll({"a": "17", "b": "18", "c": None, "d": "20"})
    assert seen == {
        "a": JobSeen("17", JobPhase.RUNNING, "R"),
        "b": JobSeen("18", JobPhase.PENDING, "Q", "Not Running: no node"),
        "c": JobSeen("19", JobPhase.ENDED, "FAILED", "exit status 3"),
    }
    assert [line.split()[0] for line in called(tmp_path)] == ["qselect"] * 2 + ["qstat"]


@pytest.mark.parametrize(
    ("facts", "word", "reason"),
    [
        ({"Exit_status": 0}, "COMPLETED", "exit status 0"),
        ({"Exit_status": -29}, "TIMEOUT", None),
        ({"Exit_status": 271}, "FAILED", "signal 15"),
        ({"comment": "deleted by me"}, "CANCELLED", "deleted by me"),
    ],
)
def test_how_a_job_of_pbs_ended(
    pbs: Callable[..., PbsBackend], facts: dict[str, Any], word: str, reason: str | None
) -> None:
    told = json.dumps({"Jobs": {"17.server": {"job_state": "F", **facts}}})
    seen = pbs(qstat=f"echo '{told}'").poll({"a": "17"})["a"]
    assert (seen.phase, seen.word, seen.reason) == (JobPhase.ENDED, word, reason)


def test_running_jobs_of_pbs_are_told_and_waiting_ones_taken_out(
    pbs: Callable[..., PbsBackend], tmp_path: Path
) -> None:
    pbs(qdel="echo finished >&2; exit 1").cancel(["17", "18"], gently=True)
    assert called(tmp_path)[2:] == ["qsig -s SIGUSR1 17", "qdel 18"]


def test_what_pbs_says_of_itself_concludes_nothing(pbs: Callable[..., PbsBackend]) -> None:
    with pytest.raises(SchedulerUnavailableError):
        pbs(pbsnodes="echo 'Connection refused' >&2; exit 111").nodes(["n1"])
    with pytest.raises(SchedulerUnavailableError, match="not JSON"):
        pbs(qstat="echo '{'").poll({"a": "17"})
    for nodes in ("[1, 2]", '{"p1": null}'):
        with pytest.raises(SchedulerUnavailableError, match="no objects in 'nodes'"):
            pbs(pbsnodes=f"echo '{{\"nodes\": {nodes}}}'").nodes(["n1"])
    assert pbs(qselect="").poll({"a": "17"}) == {}
