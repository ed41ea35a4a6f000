"""On an emulated processor that counts: the instructions of a loop come out exact, for a user too.

One boot of QEMU with the script of `shared/arm64-guest`, `--icount 0`: one instruction a
nanosecond of the guest. Its disk is made by `guest.sh build` (a minute, apt and pip), never here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import CHECKOUT, TEST_DATA

GUEST = TEST_DATA / "arm64-guest" / "guest.sh"
CACHE = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
DISK = Path(os.environ.get("GUEST_ARM64") or Path(CACHE) / "guest-arm64") / "root.ext4"
LIMIT_S = 240
ROUNDS = (1_000_000, 3_000_000)  # of a loop of two instructions
SLACK = 16  # instructions before `main` differ by where the stack lies

PROGRAM = r"""
#include <stdlib.h>
int main(int count, char **words) {
    long n = atol(words[1]);
    __asm__ volatile("1: subs %0, %0, #1\n b.ne 1b" : "+r"(n) :: "cc");
    return count - 2;
}
"""

# Nobody, in one process: to import rater takes seconds there.
DRIVER = """
import contextlib, io, json, os, pathlib, subprocess, sys

folder, *rounds = sys.argv[1:]
pathlib.Path("/proc/sys/kernel/perf_event_paranoid").write_text("2")
loop = ["gcc", "-O1", "-static", "-o", "/usr/bin/loop", folder + "/loop.c"]
subprocess.run(loop, check=True)
os.mkdir("/run/own"); os.chown("/run/own", 65534, 65534); os.chdir("/run/own")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.environ |= {"HOME": "/run/own", "XDG_RUNTIME_DIR": "/run/own"}
os.environ |= {"RATER_DB": "/run/own/db", "RATER_LOCK": "/run/own/lock"}
from rater.cli import main

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


def missing() -> str | None:
    """Say what the guest lacks here; None when it can be booted."""
    lacking = [] if shutil.which("qemu-system-aarch64") else ["qemu-system-aarch64"]
    lacking += [str(path) for path in (GUEST, DISK) if not path.is_file()]
    return f"no guest that counts without {', '.join(lacking)}" if lacking else None


@pytest.mark.guest
@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_instructions_of_a_known_loop_are_counted_exactly_in_user_mode(tmp_path: Path) -> None:
    (tmp_path / "loop.c").write_text(PROGRAM)
    (tmp_path / "driver.py").write_text(DRIVER)
    done = subprocess.run(
        [
            *(str(GUEST), "run", "--nodes", "1", "--cpu", "neoverse-n1", "--icount", "0"),
            *("--timeout", str(LIMIT_S), "--bind", str(CHECKOUT), "--bind", str(tmp_path), "--"),
            *("env", f"PYTHONPATH=/opt/site:{CHECKOUT}", "python3", str(tmp_path / "driver.py")),
            *(str(tmp_path), *map(str, ROUNDS)),
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 40,
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
    rows = [it for copy in run["copies"] for it in copy["counts"] if it["event"] == "instructions"]
    assert [it["group_name"] for it in rows] == ["arm-neoverse-n1:stalls:u"] * 2
    assert all(it["enabled_ns"] == it["running_ns"] for it in rows)
    return [it["value"] for it in rows]
