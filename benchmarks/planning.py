"""What a plan costs: a large machine that is only described, against one CPU."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.bench import Bench

MACHINES = ("pack:16 numa:2 l3:4 core:4 pu:8", "nodes=1024x4", "nodes=1x4096")  # 4096 PUs each
PLANS = {
    "homogeneous": ("--", "true"),
    "wide masks": ("--bind", "package", "--", "true"),
    "rotated": ("--mode", "rotated", "--layout", "scatter", "mini"),  # tries other layouts as well
}
RUNS = 7


def plan(bench: Bench) -> None:
    """`rater plan` for 4096 copies against the same for one: the rest is start-up."""
    rater = [sys.executable, "-c", "import sys; from rater.cli import main; main(sys.argv[1:])"]

    def timed(*words: str) -> float:
        command = [*rater, "plan", "--topology", *words]
        begin = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, env=bench.environment, check=True)
        return (time.monotonic() - begin) * 1e3

    rows = {(name, machine): list[float]() for name in PLANS for machine in MACHINES}
    for _ in range(RUNS):
        for (name, machine), more in rows.items():
            words = PLANS[name]
            if machine.startswith("nodes=") and "package" in words:
                words = ("--bind", "node", "--", "true")  # it names no packages
            one = ("pack:1 core:1 pu:1", *words)
            more.append(timed(machine, *words) - timed(*one))
    print(f"rater plan of 4096 copies, ms more than the same of one (medians of {RUNS})")
    for (name, machine), more in rows.items():
        print(f"  {name:12} {machine:34}{statistics.median(more):6.0f}")
    print("goal: under 300 ms more than start-up")
