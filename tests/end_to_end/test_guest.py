"""On a real kernel: memory lies where the plan said, instructions come out exact.

One boot of QEMU each, with the scripts of `shared/numa-guest` (four lgroups) and of
`shared/arm64-guest` (`--icount 0`: one instruction a nanosecond of the guest). The latter's disk
is made by `guest.sh build` (a minute, apt and pip), never here.
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rater.run.host.procfs import meminfo
from rater.text.cpuset import parse_list
from tests.support.calls import rater
from tests.support.places import CHECKOUT, TEST_DATA

GUEST = TEST_DATA / "numa-guest" / "guest.sh"
BYTES = 16 << 20
POLICIES = ("local", "bind", "interleave", "bind:nodes=2,3", "preferred:nodes=1", "weighted")
HOME_CPUS = {0: 0, 1: 2, 2: 4, 3: 6}  # copy: the first CPU of its lgroup
# Of one run these bind their memory to lgroup 3 by themselves; on the second CPU of each lgroup.
STRAYS = {4: 1, 5: 3, 6: 5, 7: 7}
LIMIT_S = 600  # twenty times the usual duration: on a full machine it was eight times
NO_GUEST = 125  # status of the script: a kernel that did not come up, say
MEMORY_BYTES = 5 << 29  # four lgroups of 512 MB, and what QEMU takes
_HIDDEN = ("/tmp", "/run", "/mnt", "/media", "/dev")  # the guest has its own there

# Eight huge pages, aligned: even over four lgroups whether the kernel takes huge pages or not.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void copy_of(const char *name, FILE *to) {
    char line[4096];
    FILE *from = fopen(name, "r");
    while (from && fgets(line, sizeof line, from)) fputs(line, to);
}

int main(void) {
    char name[4096];
    unsigned long stray = 1UL << 3;
    if (atoi(getenv("RATER_COPY")) > 3 && syscall(SYS_set_mempolicy, 2, &stray, 64)) return 1;
    char *memory = aligned_alloc(2 << 20, SIZE);
    if (!memory) return 1;
    memset(memory, 1, SIZE);
    snprintf(name, sizeof name, "%s/ready.%s", getenv("GUEST_MARKS"), getenv("RATER_COPY"));
    FILE *to = fopen(name, "w");
    if (!to || fclose(to)) return 1;
    snprintf(name, sizeof name, "%s/looked.%s", getenv("GUEST_MARKS"), getenv("RATER_COPY"));
    while (access(name, F_OK)) usleep(10000);
    snprintf(name, sizeof name, "%s/%s", getenv("GUEST_OUT"), getenv("RATER_COPY"));
    to = fopen(name, "w");
    copy_of("/proc/self/status", to);
    copy_of("/proc/self/numa_maps", to);
    return fclose(to);
}
"""

# One process for all runs: to import rater takes seconds there. Tests read their results here.
DRIVER = '''
import json, os, pathlib, shutil, signal, sqlite3, sys
from contextlib import closing, redirect_stdout
from io import StringIO
from rater.commands.cli import main
from rater.record.samples import Samples
from rater.run.supervise import job as phase_record
from rater.system.paths import default_journal_path
from rater.settings.tuner import SettingsSession

ATTEMPTS = 4  # a host under load pauses the guest as a copy ends: rightly, its time is not known
program, *policies = sys.argv[1:]
shared = pathlib.Path(os.environ["GUEST_SHARE"])

class Opening(Samples):
    """Lets a copy go on that was looked at twice since it had its memory."""

    def take(self, sample):
        super().take(sample)
        marks = pathlib.Path(os.environ["GUEST_MARKS"])
        once, twice = marks / f"once.{sample.copy}", marks / f"looked.{sample.copy}"
        if (marks / f"ready.{sample.copy}").exists():
            (twice if once.exists() else once).touch()

phase_record.Samples = Opening

def pools():
    folder = pathlib.Path("/sys/devices/system/node")
    files = folder.glob("node*/hugepages/hugepages-2048kB/nr_hugepages")
    return [int(file.read_text()) for file in sorted(files)]

def sets_pools_and_dies():
    with SettingsSession(pathlib.Path("/"), default_journal_path(), "a test") as tuner:
        tuner.set({"hugepages.2048kB.node1": "8", "hugepages.2048kB.node3": "4"})
        os.kill(os.getpid(), signal.SIGKILL)

found = [pools()]
child = os.fork()
if not child:
    sets_pools_and_dies()
os.waitpid(child, 0)
found.append(pools())
assert main(["settings", "restore"]) == 0
found.append(pools())
(shared / "pools.json").write_text(json.dumps(found))

def last_run():
    with closing(sqlite3.connect(os.environ["RATER_DB"])) as connection:
        return connection.execute("SELECT max(id) FROM run").fetchone()[0]

def host_paused_at_an_end():
    """Show the last run; tell whether a copy only failed because nobody saw when it ended."""
    with redirect_stdout(StringIO()) as shown:
        main(["show", "last"])
    print(shown.getvalue())
    return "its time is not known" in " ".join(shown.getvalue().split())

numbers = {}
for policy in policies:
    strays = ["--copies", "8", "--layout", "list:0,2,4,6,1,3,5,7"]
    asked = strays if policy == "local" else ["--copies", "4"]
    asked += ["--mem", policy, "--proof", "0.2", "--energy", "off", "--preflight", "off"]
    for attempt in range(ATTEMPTS):
        out = shared / f"{policy}.{attempt}"
        os.environ["GUEST_OUT"] = str(out)
        os.environ["GUEST_MARKS"] = f"/dev/shm/marks.{policy}.{attempt}"
        os.mkdir(out)
        os.mkdir(os.environ["GUEST_MARKS"])
        if main(["run", *asked, "--quiet", "--", program]) == 0:
            numbers[policy] = last_run(), out.name
            break
        if not host_paused_at_an_end():
            sys.exit(f"the run of {policy} failed")
    else:
        sys.exit(f"the run of {policy} failed {ATTEMPTS} times")
(shared / "numbers.json").write_text(json.dumps(numbers))
shutil.copy(os.environ["RATER_DB"], shared / "runs.db")
'''


@dataclass(frozen=True)
class Ran:
    """What one run in the guest left."""

    copies: dict[int, str]  # what each copy read of itself
    shown: dict[str, Any]
    stored: dict[str, Any]

    def cpus(self, copy: int) -> tuple[int, ...]:
        """The CPUs that a copy read it might use."""
        [found] = re.findall(r"^Cpus_allowed_list:\s*(\S+)$", self.copies[copy], re.MULTILINE)
        return parse_list(found)

    def by_node(self, copy: int) -> dict[int, float]:
        """How a copy's anonymous memory lay, as shares of it."""
        pages: dict[int, int] = {}
        for line in self.copies[copy].splitlines():
            if " anon=" in line:
                for node, count in re.findall(r" N(\d+)=(\d+)", line):
                    pages[int(node)] = pages.get(int(node), 0) + int(count)
        total = sum(pages.values())
        assert total * 4096 >= BYTES
        return {node: count / total for node, count in pages.items()}

    def planned(self, copy: int) -> tuple[int, str, tuple[int, ...]]:
        """CPU, memory policy and nodes that are stored as a copy's plan."""
        [one] = [row for row in self.stored["placements"] if row["copy"] == copy]
        return one["cpu"], one["memory_policy"], tuple(one["memory_nodes"])

    @property
    def verdicts(self) -> list[str]:
        """What the proof says of each copy."""
        return [copy["verdict"] for copy in self.shown["placement"]["copies"]]


def missing() -> str | None:
    """Say what the guest lacks here; None when it can be booted."""
    programs = ("qemu-system-x86_64", "busybox", "cpio", "cc", "unshare")
    lacking = [name for name in programs if shutil.which(name) is None]
    if not list(Path("/boot").glob("vmlinuz-*-cloud-amd64")):
        lacking.append("a kernel /boot/vmlinuz-*-cloud-amd64")
    if not GUEST.is_file():
        lacking.append(str(GUEST))
    if meminfo(Path("/proc/meminfo")).get("MemAvailable", 0) < MEMORY_BYTES:
        lacking.append(f"{MEMORY_BYTES / 1e9:.1f} GB of free memory")
    if os.geteuid() != 0:
        lacking.append("being root")
    return f"no NUMA guest without {', '.join(lacking)}" if lacking else None


within_limit = pytest.mark.timeout(2 * (LIMIT_S + 200))
needs_guest = pytest.mark.skipif(missing() is not None, reason=str(missing()))


def hidden(paths: set[Path]) -> Iterator[str]:
    """What the guest sees of this machine only when told to: `--bind` for each such path."""
    for path in sorted(paths):
        if path.parts[:2] in {("/", name[1:]) for name in _HIDDEN} or (
            path.stat().st_dev != Path("/").stat().st_dev
        ):
            yield from ("--bind", str(path))


def booted(folder: Path, shared: Path) -> subprocess.CompletedProcess[str]:
    """Boot, run what `folder` has, and return how that ended."""
    folders = {CHECKOUT, folder, Path(sys.prefix), Path(sys.base_prefix)}
    kept = {
        f"RATER_{name}": f"/dev/shm/rater-{name}" for name in ("DB", "LOCK", "CACHE", "JOURNAL")
    }
    variables = {"PYTHONPATH": str(CHECKOUT)} | kept
    return subprocess.run(
        [
            *(str(GUEST), "-v", "--timeout", str(LIMIT_S), "--cwd", "/", *hidden(folders)),
            *("--share", str(shared)),
            *(word for pair in variables.items() for word in ("--env", "=".join(pair))),
            *("--", sys.executable, str(folder / "driver.py"), str(folder / "touch"), *POLICIES),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 180,
        check=False,
    )


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Boot once, once more where that failed; the folder that the guest wrote to."""
    folder = tmp_path_factory.mktemp("guest")
    (folder / "touch.c").write_text(PROGRAM)
    (folder / "driver.py").write_text(DRIVER)
    program, shared = folder / "touch", folder / "shared"
    subprocess.run(["cc", "-O0", f"-DSIZE={BYTES}", "-o", program, folder / "touch.c"], check=True)
    compileall.compile_dir(CHECKOUT / "rater", quiet=1)  # the guest can not keep what it compiles
    done = booted(folder, shared)
    if done.returncode == NO_GUEST:  # nothing of rater's
        print(done.stderr)
        shared = folder / "again"
        done = booted(folder, shared)
    said = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, said
    print(done.stderr)
    return shared


@pytest.fixture(scope="module")
def runs(guest: Path) -> dict[str, Ran]:
    """What each policy's run left."""
    numbers = json.loads((guest / "numbers.json").read_text())
    return {policy: left(guest, *numbers[policy]) for policy in POLICIES}


def left(shared: Path, number: int, folder: str) -> Ran:
    """What a run left in the folder that the guest wrote to."""
    run = ("--json", "--db", str(shared / "runs.db"))
    return Ran(
        {int(path.name): path.read_text() for path in (shared / folder).iterdir()},
        json.loads(rater("show", *run, "--proof", number).stdout),
        json.loads(rater("export", *run, "--format", "json", number).stdout),
    )


def report(policy: str, ran: Ran) -> None:
    """Print what was seen: `pytest -m guest -s` shows it."""
    for copy in sorted(ran.copies):
        cpu, stored, nodes = ran.planned(copy)
        lay = ", ".join(
            f"node {number} {100 * s:.1f} %" for number, s in sorted(ran.by_node(copy).items())
        )
        print(
            f"{policy:18} copy {copy}: CPU {cpu}, allowed {list(ran.cpus(copy))}, {stored} "
            f"{list(nodes)}; memory {lay}; plan {ran.verdicts[copy]}"
        )


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
@pytest.mark.parametrize("policy", POLICIES)
def test_copies_run_on_the_cpus_that_were_planned(runs: dict[str, Ran], policy: str) -> None:
    ran = runs[policy]
    report(policy, ran)
    home = HOME_CPUS | (STRAYS if policy == "local" else {})
    assert {copy: ran.planned(copy)[0] for copy in ran.copies} == home
    assert {copy: ran.cpus(copy) for copy in ran.copies} == {c: (p,) for c, p in home.items()}
    assert ran.shown["benchmarks"][0]["good_copies"] == len(home)


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
@pytest.mark.parametrize("policy", ["local", "bind"])
def test_memory_lies_on_the_lgroup_of_the_copy(runs: dict[str, Ran], policy: str) -> None:
    for copy in range(4):
        assert runs[policy].planned(copy)[1:] == (policy, () if policy == "local" else (copy,))
        assert runs[policy].by_node(copy) == {copy: 1.0}


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
def test_interleaved_memory_lies_on_all_lgroups_alike(runs: dict[str, Ran]) -> None:
    for copy in range(4):
        assert runs["interleave"].planned(copy)[1:] == ("interleave", (0, 1, 2, 3))
        shares = runs["interleave"].by_node(copy)
        assert sorted(shares) == [0, 1, 2, 3]
        assert min(shares.values()) > 0.2


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
def test_memory_lies_on_remote_lgroups_when_they_are_named(runs: dict[str, Ran]) -> None:
    for copy in range(4):
        assert runs["bind:nodes=2,3"].planned(copy)[1:] == ("bind", (2, 3))
        assert runs["bind:nodes=2,3"].by_node(copy).keys() <= {2, 3}
        assert runs["preferred:nodes=1"].planned(copy)[1:] == ("preferred", (1,))
        assert runs["preferred:nodes=1"].by_node(copy) == {1: 1.0}


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
def test_a_kernel_without_weights_interleaves_evenly_and_says_so(runs: dict[str, Ran]) -> None:
    ran = runs["weighted"]
    said = [text for text in ran.stored["warnings"] if text.startswith("--mem weighted")]
    policies = {ran.planned(copy)[1] for copy in range(4)}
    assert policies == {"interleave" if said else "weighted"}
    assert ran.shown["memory"] == "weighted"
    for copy in range(4):
        assert sorted(ran.by_node(copy)) == [0, 1, 2, 3]


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
@pytest.mark.parametrize("policy", POLICIES)
def test_the_proof_says_that_the_plan_was_met(runs: dict[str, Ran], policy: str) -> None:
    ran = runs[policy]
    assert ran.verdicts[:4] == ["met"] * 4
    assert all(copy["seen"]["rss_max_bytes"] > BYTES for copy in ran.shown["placement"]["copies"])


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
def test_the_proof_tells_a_copy_that_took_its_memory_elsewhere(runs: dict[str, Ran]) -> None:
    ran = runs["local"]
    assert [ran.by_node(copy).get(3, 0) > 0.95 for copy in STRAYS] == [True] * 4
    assert ran.verdicts[4:] == ["not met"] * 3 + ["met"]
    [reason] = ran.shown["placement"]["copies"][4]["reasons"]
    print(reason)
    assert re.search(r"\d+ % of its \S+ MB was on node 3.*; planned: node 0; .* bind:3", reason)


@pytest.mark.guest
@pytest.mark.slow
@within_limit
@needs_guest
def test_pools_of_huge_pages_are_put_back_on_their_lgroups_after_kill_9(guest: Path) -> None:
    before, killed, restored = json.loads((guest / "pools.json").read_text())
    assert before == [0, 0, 0, 0]
    assert killed == [0, 8, 0, 4]
    assert restored == before


COUNTING_GUEST = TEST_DATA / "arm64-guest" / "guest.sh"
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
DISK = Path(os.environ.get("GUEST_ARM64") or Path(CACHE) / "guest-arm64") / "root.ext4"
COUNTING_LIMIT_S = 240
ROUNDS = (1_000_000, 3_000_000)  # of a loop of two instructions
SLACK = 16  # instructions before `main` differ by where the stack lies

COUNTED_PROGRAM = r"""
#include <stdlib.h>
int main(int count, char **words) {
    long n = atol(words[1]);
    __asm__ volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(n) :: "cc");
    return count - 2;
}
"""

# Nobody, in one process: to import rater takes seconds there.
COUNTING_DRIVER = """
import contextlib, io, json, os, pathlib, subprocess, sys

folder, *rounds = sys.argv[1:]
pathlib.Path("/proc/sys/kernel/perf_event_paranoid").write_text("2")
loop = ["gcc", "-O1", "-static", "-o", "/usr/bin/loop", folder + "/loop.c"]
subprocess.run(loop, check=True)
os.mkdir("/run/own"); os.chown("/run/own", 65534, 65534); os.chdir("/run/own")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ |= {"HOME": "/run/own", "XDG_RUNTIME_DIR": "/run/own"}
os.environ |= {"RATER_DB": "/run/own/db", "RATER_LOCK": "/run/own/lock"}
from rater.commands.cli import main

def said(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        status = main(list(words))
    assert status == 0, status
    return json.loads(out.getvalue())

plain = ["--copies", "1", "--iterations", "2", "--proof", "off", "--preflight", "off", "--quiet"]
found = []
for asked, n in zip(("stalls", "stalls:u"), rounds):
    assert main(["run", *plain, "--counters", asked, "--", "loop", n]) == 0
    found.append(said("export", "last", "--format", "json"))
print("FOUND", json.dumps(found))
"""


def missing_for_counting() -> str | None:
    """Say what the guest lacks here; None when it can be booted."""
    lacking = [] if shutil.which("qemu-system-aarch64") else ["qemu-system-aarch64"]
    lacking += [str(path) for path in (COUNTING_GUEST, DISK) if not path.is_file()]
    return f"no guest that counts without {', '.join(lacking)}" if lacking else None


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.skipif(missing_for_counting() is not None, reason=str(missing_for_counting()))
def test_instructions_of_a_known_loop_are_counted_exactly_in_user_mode(tmp_path: Path) -> None:
    (tmp_path / "loop.c").write_text(COUNTED_PROGRAM)
    (tmp_path / "driver.py").write_text(COUNTING_DRIVER)
    done = subprocess.run(
        [
            *(str(COUNTING_GUEST), "run", "--nodes", "1", "--cpu", "neoverse-n1", "--icount", "0"),
            *(
                "--timeout",
                str(COUNTING_LIMIT_S),
                "--bind",
                str(CHECKOUT),
                "--bind",
                str(tmp_path),
                "--",
            ),
            *("env", f"PYTHONPATH=/opt/site:{CHECKOUT}", "python3", str(tmp_path / "driver.py")),
            *(str(tmp_path), *map(str, ROUNDS)),
        ],
        capture_output=True,
        text=True,
        timeout=COUNTING_LIMIT_S + 40,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    fewer, more = (counts(run) for run in json.loads(line.removeprefix("FOUND ")))
    print(fewer, more)  # `pytest -m guest -s` shows it
    for runs in (fewer, more):
        assert max(runs) - min(runs) <= SLACK
    assert abs(more[0] - fewer[0] - 2 * (ROUNDS[1] - ROUNDS[0])) <= SLACK


def counts(run: dict[str, Any]) -> list[int]:
    """Instructions of each run of the copy, all of them in user mode and in full."""
    rows = [
        count
        for copy in run["copies"]
        for count in copy["counts"]
        if count["event"] == "instructions"
    ]
    assert [row["group_name"] for row in rows] == ["arm-neoverse-n1:stalls:u"] * 2
    assert all(row["enabled_ns"] == row["running_ns"] for row in rows)
    return [row["value"] for row in rows]
