"""Fleets under faults, on a Slurm cluster of one machine: what became of every node and every copy.

    python -m benchmarks.fleet_faults CLUSTER.SH DIR [FAULT...] [--kills 50]

CLUSTER.SH makes a cluster of four nodes in DIR (`up`, `env`, `exec`, `node-kill`, `node-start`), as
`shared/slurm/cluster.sh` does; it needs root and Slurm. Each fault has a database of its own. For
each, a line says what the fleet made of it, and whether that is right: the state and reason of each
node, every copy measured once (as the programs themselves have counted), and nothing left running.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RATER = [sys.executable, "-P", "-m", "rater"]
# Copies sleep: four nodes of one machine are not to wait for each other's CPU time.
PROGRAM = 'echo "$SLURMD_NODENAME" >> "$RAN"; sleep "$S"'


@dataclass
class Bar:
    """The cluster, and places for one fault."""

    script: Path
    folder: Path
    name: str
    environment: dict[str, str]
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home = Path(self.environment["RATER_BAR_SHARED"]) / f"{self.name}-{os.getpid()}"
        self.home.mkdir()
        local = Path(self.environment["RATER_BAR_LOCAL"])
        for number in range(1, 5):
            # The nodes have one network name space, where the machine's lock has a name by its real
            # path: another one on each node.
            real = Path(self.environment["RATER_BAR_SHARED"]) / "locks" / f"n{number}"
            real.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                (self.folder / f"nodes/n{number}/local/own").symlink_to(real)
        self.environment = self.environment | {
            "RATER_DB": str(self.home / "submit.db"),
            "RATER_FLEETS": str(self.home),
            "RATER_LOCK": f"{local}/own/rater.lock",
            "RATER_CONFIG": "",
        }

    def cluster(self, *words: str) -> str:
        """Call the cluster's script."""
        verb, *rest = words
        done = subprocess.run(
            ["bash", self.script, verb, self.folder, *rest],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=True,
        )
        return done.stdout

    def slurm(self, *words: str) -> str:
        """Call a command of Slurm's."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    def words(self, nodes: str, *options: str, copies: int, iterations: int, s: float) -> list[str]:
        """A fleet that runs so many copies of `s` seconds."""
        return [
            *("fleet", "run", "--nodes", nodes, "--scratch", self.environment["RATER_BAR_LOCAL"]),
            *("--copies", str(copies), "--iterations", str(iterations), "--poll", "0.5"),
            *("--env", f"RAN={self.ran}", "--env", f"S={s}", "--energy", "off", "--proof", "off"),
            *("--settle", "3", *options, "--", "sh", "-c", PROGRAM),
        ]

    @property
    def ran(self) -> Path:
        """Where copies count themselves."""
        return self.home / "ran"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start rater; its news go to a file."""
        with (self.home / "news").open("a") as news:
            return subprocess.Popen(
                [*RATER, *words],
                env=self.environment,
                stdout=news,
                stderr=news,
                text=True,
                start_new_session=True,
            )

    def rater(self, *words: str, most_s: float = 300.0) -> int:
        """Call rater to its end."""
        return self.start(*words).wait(most_s)

    def fleet(self, which: str = "last") -> dict[str, Any]:
        """A fleet as it is stored."""
        done = subprocess.run(
            [*RATER, "fleet", "status", which, "--json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def times_ran(self) -> Counter[str]:
        """How often the program began on each node."""
        with suppress(FileNotFoundError):
            return Counter(self.ran.read_text().split())
        return Counter()

    def until(self, happened: Callable[[], bool], most_s: float = 60.0) -> None:
        """Wait until something is so."""
        deadline_s = time.monotonic() + most_s
        while not happened():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.name}: it did not happen in {most_s:g} s")
            time.sleep(0.05)

    def process(self, name: str, node: str | None = None) -> int:
        """The number of a daemon of the cluster, as this name space has it."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if Path(words[0]).name != name or (node is not None and node not in words):
                    continue
                there = (entry / "environ").read_bytes().decode(errors="replace")
                if f"SLURM_CONF={self.environment['SLURM_CONF']}" in there:
                    return int(entry.name)
        raise LookupError(f"no {name} {node or ''}")

    def job(self, node: str) -> str:
        """The number of the job that a node has."""
        for line in self.slurm("squeue", "-h", "-o", "%i %j").splitlines():
            number, name = line.split()
            if name.endswith(f"-{node}.1"):
                return number
        raise LookupError(node)


Told = tuple[bool, str]


def summary(document: dict[str, Any]) -> str:
    """What became of each attempt, in words."""
    return "; ".join(
        f"{node['node']} "
        + ", then ".join(
            it["state"]
            + (f" ({it['reason']})" if it["reason"] else "")
            + (f" [{it['notes'][0]}]" if it["notes"] else "")
            for it in node["attempts"]
        )
        for node in document["nodes"]
    )


def states(document: dict[str, Any], node: str) -> list[str]:
    """The states of a node's attempts."""
    [found] = [it for it in document["nodes"] if it["node"] == node]
    return [it["state"] for it in found["attempts"]]


def good_copies(bar: Bar) -> Counter[str]:
    """Copies of phases that count, in the database that stands for each node."""
    found: Counter[str] = Counter()
    for node in bar.fleet()["nodes"]:
        done = [it["copies_done"] for it in node["attempts"] if it["copies_done"] is not None]
        found[node["node"]] = done[-1] if done else 0
    return found


def power(bar: Bar) -> Told:
    """n2 loses power in its second iteration and comes back."""
    waiting = bar.start(*bar.words("n[1-3]", "--wait", copies=4, iterations=4, s=1.5))
    bar.until(lambda: bar.times_ran()["n2"] > 4)
    time.sleep(0.7)  # in the midst of the second phase: the end of the first is stored by now
    bar.cluster("node-kill", "n2")
    time.sleep(5)
    bar.until(lambda: "lost" in states(bar.fleet(), "n2"), 90)
    bar.cluster("node-start", "n2")
    waiting.wait(180)
    it = bar.fleet()
    right = states(it, "n2") == ["lost", "complete"] and states(it, "n1") == ["complete"]
    right = right and "resumed" in summary(it) and set(good_copies(bar).values()) == {16}
    right = right and bar.times_ran()["n1"] == 16 and bar.times_ran()["n2"] <= 16 + 4
    return right, f"{summary(it)}; programs began {dict(bar.times_ran())}"


def slurmd(bar: Bar) -> Told:
    """slurmd of n3 is killed in mid-run, and another one started 8 s later: the run counts."""
    waiting = bar.start(*bar.words("n3", "--wait", copies=2, iterations=4, s=4))
    bar.until(lambda: bar.times_ran()["n3"] > 2)
    daemon = bar.process("slurmd", "n3")
    shell = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(shell, signal.SIGSTOP)  # it would end the node with its slurmd
    try:
        os.kill(daemon, signal.SIGKILL)
        time.sleep(8)
        bar.cluster("exec", "n3", "sh", "-c", "slurmd -N n3 </dev/null >/dev/null 2>&1")
        waiting.wait(120)
    finally:
        os.kill(shell, signal.SIGCONT)
        bar.cluster("node-kill", "n3")
        bar.cluster("node-start", "n3")
    it = bar.fleet()
    right = states(it, "n3") == ["complete"] and bar.times_ran()["n3"] == 8
    return right, f"{summary(it)}; programs began {dict(bar.times_ran())}"


def scancel(bar: Bar) -> Told:
    """A job is cancelled past rater: not tried again, until somebody asks; then what is missing."""
    waiting = bar.start(*bar.words("n1", "--wait", copies=2, iterations=3, s=2))
    bar.until(lambda: bar.times_ran()["n1"] > 2)
    bar.slurm("scancel", bar.job("n1"))
    waiting.wait(60)
    it = bar.fleet()
    right = states(it, "n1") == ["cancelled"] and "in the scheduler" in summary(it)
    bar.rater("fleet", "retry", "--nodes", "n1", "--wait", "--poll", "0.5")
    after = bar.fleet()
    right = right and states(after, "n1") == ["cancelled", "complete"]
    right = right and good_copies(bar)["n1"] == 6 and "resumed" in summary(after)
    return right, f"{summary(after)}; programs began {dict(bar.times_ran())}"


def limit(bar: Bar) -> Told:
    """Jobs of one minute for a run of a hundred seconds."""
    words = bar.words(
        "n4", "--wait", "--minutes", "1", "--attempts", "9", copies=2, iterations=10, s=10
    )
    bar.rater(*words, most_s=600)
    it = bar.fleet()
    found = states(it, "n4")
    right = found[-1] == "complete" and set(found[:-1]) == {"timeout"}
    right = right and good_copies(bar)["n4"] == 20
    return right, f"{summary(it)}; programs began {dict(bar.times_ran())}"


def drained(bar: Bar) -> Told:
    """A drained node never begins; when it is back, another attempt does."""
    bar.slurm("scontrol", "update", "nodename=n1", "state=drain", "reason=broken fan")
    try:
        words = bar.words(
            "n[1-2]",
            "--wait",
            "--attempts",
            "1",
            "--pending-limit",
            "4",
            copies=2,
            iterations=1,
            s=0.5,
        )
        bar.rater(*words)
        it = bar.fleet()
    finally:
        bar.slurm("scontrol", "update", "nodename=n1", "state=resume")
    right = states(it, "n1") == ["never"] and states(it, "n2") == ["complete"]
    right = right and "ReqNodeNotAvail" in summary(it)
    bar.rater("fleet", "retry", "--wait", "--poll", "0.5")
    after = bar.fleet()
    right = right and states(after, "n1") == ["never", "complete"]
    return right and bar.times_ran() == {"n1": 2, "n2": 2}, summary(after)


def frozen(bar: Bar) -> Told:
    """slurmctld gives no answer for 20 s while copies run: nothing is concluded."""
    waiting = bar.start(*bar.words("n[1-4]", "--wait", copies=2, iterations=3, s=8))
    bar.until(lambda: len(bar.times_ran()) == 4)
    control = bar.process("slurmctld")
    os.kill(control, signal.SIGSTOP)
    try:
        began_s = time.monotonic()
        silent = bar.fleet()
        asked_s = time.monotonic() - began_s
        time.sleep(max(0.0, 20 - asked_s))
    finally:
        os.kill(control, signal.SIGCONT)
    waiting.wait(120)
    it = bar.fleet()
    right = silent["scheduler"] is not None and silent["counts"] == {"running": 4}
    right = right and it["counts"] == {"complete": 4} and set(bar.times_ran().values()) == {6}
    told = f'asked while frozen: {silent["counts"]}, "{silent["scheduler"]}" after {asked_s:.1f} s'
    return right and all(states(it, f"n{n}") == ["complete"] for n in range(1, 5)), (
        f"{told}; then {it['counts']}"
    )


def killed(bar: Bar, kills: int = 50) -> Told:
    """Whoever submits and waits is killed at random instants; the same is typed again."""
    chance = random.Random(7)
    done, fleets, notes, right = 0, 0, [], True
    while done < kills:
        fleets += 1
        bar.ran.unlink(missing_ok=True)
        options = (f"--tag=fleet-of={fleets}", "--quiet")
        run = bar.words("n[1-4]", "--wait", *options, copies=2, iterations=2, s=1)
        while True:
            is_stored = len(json.loads(listed(bar))) == fleets
            wait = ["fleet", "wait", "--poll", "0.5", "--quiet"]
            words = wait if is_stored and chance.random() < 0.5 else run
            rater = bar.start(*words)
            try:
                rater.wait(chance.uniform(0.2, 3.0) if done < kills else 120)
            except subprocess.TimeoutExpired:
                os.killpg(rater.pid, signal.SIGKILL)
                rater.wait()
                done += 1
                continue
            break
        it = bar.fleet()
        nodes = {node["node"]: len(node["attempts"]) for node in it["nodes"]}
        ran = bar.times_ran()
        fine = it["counts"] == {"complete": 4} and set(nodes.values()) == {1}
        fine = (
            fine
            and ran == {f"n{n}": 4 for n in range(1, 5)}
            and set(good_copies(bar).values()) == {4}
        )
        right = right and fine and len(json.loads(listed(bar))) == fleets
        if not fine:
            notes.append(f"fleet {fleets}: {summary(it)}; programs began {dict(ran)}")
    told = f"{done} kills over {fleets} fleets of 4 nodes and 16 copies"
    jobs = len(list(bar.home.glob("rater-*/claim/*")))
    return right, f"{told}; {jobs} attempts began; {'; '.join(notes) or 'every copy ran once'}"


def listed(bar: Bar) -> str:
    """All fleets, as JSON."""
    if not Path(bar.environment["RATER_DB"]).exists():
        return "[]"
    words = [*RATER, "fleet", "list", "--json"]
    done = subprocess.run(words, env=bar.environment, capture_output=True, text=True, check=True)
    return done.stdout


FAULTS: dict[str, Callable[[Bar], Told]] = {
    "power": power,
    "slurmd": slurmd,
    "scancel": scancel,
    "limit": limit,
    "drained": drained,
    "frozen": frozen,
    "killed": killed,
}


def main() -> int:
    """Make the cluster, then one fault after the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("script", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--kills", type=int, default=50)
    args = parser.parse_args()
    wrong = set(args.faults) - FAULTS.keys()
    if wrong:
        parser.error(f"no such fault: {', '.join(sorted(wrong))}")
    with Path(os.devnull).open("r+") as nothing:
        subprocess.run(
            ["bash", args.script, "up", args.folder, "4"],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            check=True,
        )
    said = subprocess.run(
        ["bash", args.script, "env", args.folder], capture_output=True, text=True, check=True
    ).stdout
    pairs = (line.removeprefix("export ").partition("=") for line in said.splitlines())
    environment = dict(os.environ) | {name: value for name, _, value in pairs}
    failed = 0

    def one(name: str) -> tuple[bool, str, float]:
        began_s = time.monotonic()
        bar = Bar(args.script, args.folder, name, environment)
        try:
            it = FAULTS[name]
            right, told = killed(bar, args.kills) if it is killed else it(bar)
        except (TimeoutError, LookupError, RuntimeError, subprocess.SubprocessError) as error:
            right, told = False, f"{type(error).__name__}: {error}"
        return right, told, time.monotonic() - began_s

    names = args.faults or list(FAULTS)
    with ThreadPoolExecutor() as pool:
        # Of minutes, and on the one node that the others, but the last two, leave alone.
        slow = pool.submit(one, "limit") if "limit" in names else None
        for name in sorted(names, key=list(FAULTS).index):
            if name == "limit":
                continue
            if name == "frozen" and slow is not None:
                slow.result()
            right, told, took_s = one(name)
            failed += not right
            print(f"{'right' if right else 'WRONG'}  {name} ({took_s:.0f} s): {told}", flush=True)
        if slow is not None:
            right, told, took_s = slow.result()
            failed += not right
            print(f"{'right' if right else 'WRONG'}  limit ({took_s:.0f} s): {told}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
