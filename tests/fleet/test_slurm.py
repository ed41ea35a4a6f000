"""On a Slurm cluster of four nodes: lost, cancelled, drained, narrow nodes, a killed submitter.

One cluster with the script of `shared/slurm`, which holds for all tests of this file: the nodes are
name spaces of this machine, the Slurm is real.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from rater.run.host.admission import machine_lock
from tests.support.calls import RATER, rater
from tests.support.places import TEST_DATA

SCRIPT = TEST_DATA / "slurm" / "cluster.sh"
MOST_S = 60.0
COPIES = ("--copies", "1", "--energy", "off", "--proof", "off", "--preflight", "off")


def missing() -> str | None:
    """Say what the cluster lacks here; None when it can be made."""
    programs = ("sbatch", "slurmctld", "slurmd", "munged", "unshare", "nsenter")
    lacking = [name for name in programs if shutil.which(name) is None]
    if not SCRIPT.is_file():
        lacking.append(str(SCRIPT))
    if os.geteuid() != 0:
        lacking.append("being root")
    return f"no Slurm cluster without {', '.join(lacking)}" if lacking else None


pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]


def script(folder: Path, *words: str) -> None:
    """Call the cluster's script; its daemons must hold no pipe of ours."""
    verb, *rest = words
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        subprocess.run(
            ["bash", SCRIPT, verb, folder, *rest],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            timeout=MOST_S,
            check=True,
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Path]:
    """Four idle nodes."""
    with tempfile.TemporaryDirectory(prefix="rater-slurm-", dir="/tmp") as name:
        folder = Path(name) / "bar"
        try:
            script(folder, "up", "4")
            for node in ("n1", "n2", "n3", "n4"):
                # The nodes have one network name space, where the machine's lock has a name by its
                # real path: another one on each node.
                (folder / "shared/locks" / node).mkdir(parents=True)
                (folder / "nodes" / node / "local/own").symlink_to(folder / "shared/locks" / node)
            yield folder
        finally:
            script(folder, "purge")


class Submitter:
    """Who calls rater on the cluster's submit host."""

    def __init__(self, cluster: Path, home: Path) -> None:
        self.cluster, self.home, self.ran = cluster, home, home / "ran"
        home.mkdir(parents=True)
        self.environment = os.environ | {
            "SLURM_CONF": str(cluster / "etc/slurm.conf"),
            "RATER_DB": str(home / "submit.db"),
            "RATER_FLEETS": str(home),
            "RATER_LOCK": str(cluster / "local/own/rater.lock"),
        }

    def run(self, nodes: str, *options: str, iterations: int = 1, command: str) -> list[str]:
        """The words that make a fleet."""
        scratch = str(self.cluster / "local")
        common = ("--scratch", scratch, "--settle", "1", "--poll", "0.2")
        count = f'echo "$SLURMD_NODENAME" >> {self.ran}; {command}'
        words = [*RATER, "fleet", "run", "--nodes", nodes, *common, *COPIES, *options]
        return [*words, "--iterations", str(iterations), "--", "sh", "-c", count]

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.home / "said").open("ab") as said:
            return subprocess.Popen(
                words,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )

    def call(self, *words: str) -> str:
        """Standard output of a command, Slurm's or rater's."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=MOST_S, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        return done.stdout

    def fleet(self, verb: str = "status", *words: str) -> dict[str, Any]:
        """What `rater fleet` says, in this process: it is asked often."""
        document: dict[str, Any] = json.loads(rater("fleet", verb, "--json", *words).stdout)
        return document

    def copies(self) -> dict[str, int]:
        """How often the program began on each node."""
        with suppress(FileNotFoundError):
            began = self.ran.read_text().split()
            return {node: began.count(node) for node in sorted(set(began))}
        return {}


@pytest.fixture
def submitter(
    cluster: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Submitter:
    name = re.sub(r"\W", "", request.node.name)[:40]
    found = Submitter(cluster, cluster / "shared" / name)
    for variable, value in found.environment.items():
        monkeypatch.setenv(variable, value)
    return found


def until(happened: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + MOST_S
    while not happened():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.05)


def stored_copies(cluster: Path, node: str) -> int:
    """Count the copies that have ended in the only database on a node's own disk."""
    [file] = (cluster / "nodes" / node / "local").rglob("node.db")
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as database:
        found: int = database.execute("SELECT count(*) FROM copy").fetchone()[0]
        return found


def attempts(document: dict[str, Any], node: str) -> list[tuple[str, str | None]]:
    """State and reason of each attempt at a node."""
    [found] = [it for it in document["nodes"] if it["node"] == node]
    return [(attempt["state"], attempt["reason"]) for attempt in found["attempts"]]


def test_a_node_that_loses_power_is_resumed_and_a_killed_submitter_loses_nothing(
    submitter: Submitter, cluster: Path
) -> None:
    go = submitter.home / "go"
    began = f'"$(grep -c "^$SLURMD_NODENAME$" {submitter.ran})"'
    wait = f"[ {began} = 1 ] || until [ -e {go} ]; do sleep .05; done"
    words = submitter.run("n[1-3]", "--wait", iterations=2, command=wait)
    first = submitter.start(words)
    until(lambda: submitter.copies() == {"n1": 2, "n2": 2, "n3": 2})
    until(lambda: stored_copies(cluster, "n2") == 1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    script(cluster, "node-kill", "n2")
    # Slurm finds it out by itself in 20 s.
    submitter.call("scontrol", "update", "nodename=n2", "state=down", "reason=power")
    go.touch()
    waiting = submitter.start([*RATER, "fleet", "wait", "--poll", "0.2", "--quiet"])
    until(lambda: len(attempts(submitter.fleet(), "n2")) == 2)
    script(cluster, "node-start", "n2")
    submitter.call("scontrol", "update", "nodename=n2", "state=resume")
    assert waiting.wait(MOST_S) == 0
    document = submitter.fleet()
    [lost, complete] = attempts(document, "n2")
    assert lost[0] == "lost"
    assert str(lost[1]).startswith("the node failed (NODE_FAIL); NodeDown; its log /")
    assert complete == ("complete", None)
    assert attempts(document, "n1") == attempts(document, "n3") == [("complete", None)]
    [again] = [node["attempts"][1] for node in document["nodes"] if node["node"] == "n2"]
    assert again["notes"] == ["resumed: 1 copies were there"]
    assert submitter.copies() == {"n1": 2, "n2": 3, "n3": 2}
    assert again["host"]["usable_cpus"] == again["host"]["online_cpus"]
    assert all(
        attempt["collected"] for node in document["nodes"] for attempt in node["attempts"][-1:]
    )


def test_drained_narrow_and_cancelled_nodes_are_rows_with_their_reasons(
    submitter: Submitter,
) -> None:
    submitter.call("scontrol", "update", "nodename=n4", "state=drain", "reason=broken fan")
    try:
        options = ("--attempts", "1", "--pending-limit", "5", "--wait")
        command = "[ $SLURMD_NODENAME = n4 ] || exec sleep 60"
        waiting = submitter.start(submitter.run("n[1,4]", *options, command=command))
        until(lambda: submitter.copies() == {"n1": 1})
        job = submitter.call("squeue", "-h", "-w", "n1", "-t", "R", "-o", "%i").strip()
        submitter.call("scancel", job)
        assert waiting.wait(MOST_S) == 1
    finally:
        submitter.call("scontrol", "update", "nodename=n4", "state=resume")
    until(lambda: submitter.call("sinfo", "-h", "-n", "n4", "-o", "%T").strip() == "idle")
    document = submitter.fleet()
    [(state, reason)] = attempts(document, "n1")
    assert state == "cancelled"
    assert str(reason).startswith("cancelled in the scheduler, not by rater")
    [(state, reason)] = attempts(document, "n4")
    assert (state, "ReqNodeNotAvail" in str(reason)) == ("never", True)
    assert str(reason).startswith("pending too long; n4 is drained: broken fan (root, 20")
    assert attempts(submitter.fleet("retry", "--wait", "--poll", "0.2"), "n4")[-1][0] == "complete"
    if os.cpu_count() == 1:
        return
    words = submitter.run("n3", "--wait", "--slurm-arg=--oversubscribe", command="true")
    assert rater(*words[len(RATER) :]).returncode == 1
    [(state, reason)] = attempts(submitter.fleet(), "n3")
    assert (state, "the job may use CPUs" in str(reason)) == ("refused", True)


def test_a_node_that_another_rater_holds_waits_with_who_it_is_and_goes_on_when_it_is_free(
    submitter: Submitter, cluster: Path
) -> None:
    with machine_lock(cluster / "shared/locks/n3/rater.lock", "rater run 1a2b"):
        words = submitter.run("n3", command="true")
        assert rater(*words[len(RATER) :]).returncode == 0
        until(lambda: submitter.fleet()["counts"] == {"waiting": 1})
        [(_, reason)] = attempts(submitter.fleet(), "n3")
        assert str(reason).startswith("another rater holds it; rater run 1a2b; waits since 20")
    assert submitter.fleet("wait", "--poll", "0.2")["status"] == "complete"
    with machine_lock(cluster / "shared/locks/n3/rater.lock", "rater run 1a2b"):
        words = submitter.run("n3", "--wait", "--busy-limit", "0.5s", command="true")
        assert rater(*words[len(RATER) :]).returncode == 1
    assert attempts(submitter.fleet(), "n3") == [
        ("refused", "another rater held the node for 0.5 s; rater run 1a2b")
    ]


def test_a_cancelled_fleet_is_retried_to_its_end(submitter: Submitter) -> None:
    go = submitter.home / "go"
    words = submitter.run("n[1-2]", command=f"[ -e {go} ] || exec sleep 60")
    assert rater(*words[len(RATER) :]).returncode == 0
    until(lambda: submitter.copies() == {"n1": 1, "n2": 1})
    assert submitter.fleet("cancel", "--wait")["status"] == "cancelled"
    go.touch()
    document = submitter.fleet("retry", "--wait", "--poll", "0.2")
    assert (document["status"], document["counts"]) == ("complete", {"complete": 2})
    assert submitter.copies() == {"n1": 2, "n2": 2}


def test_nodes_and_options_that_slurm_does_not_have_are_refused(submitter: Submitter) -> None:
    done = rater(*submitter.run("n[1-9]", command="true")[len(RATER) :])
    assert done.returncode == 2
    assert (
        "n5, n6, n7, n8 and 1 more: not among the nodes that the backend slurm knows" in done.stderr
    )
    words = submitter.run("n1", "--slurm-arg=--partition=fast", "--wait", command="true")
    assert rater(*words[len(RATER) :]).returncode == 1
    [(state, reason)] = attempts(submitter.fleet(), "n1")
    assert (state, "invalid partition" in str(reason)) == ("refused", True)
