"""Steady mode against a C loop that starts the same copies again and again."""

from __future__ import annotations

import subprocess

from benchmarks.bench import Bench, median

COPIES = 128
BURN_MS = 20
WARMUP_S = 2
WINDOW_S = 30
ROUNDS = 2


def steady(bench: Bench) -> None:
    """128 copies that burn 20 ms of CPU, for 30 s: completions per second."""
    own, loop = [], []
    for _ in range(ROUNDS):  # in turn, so that drift hits both
        own.append(_by_rater(bench))
        loop.append(_by_loop(bench))
    print(f"{COPIES} copies that burn {BURN_MS} ms of CPU, {WINDOW_S} s, medians of {ROUNDS}")
    print(f"rater   {median(own):8.2f} completions/s")
    print(f"C loop  {median(loop):8.2f} completions/s")
    print(f"ratio   {median(own) / median(loop):8.3f}; goal: at least 0.9")


def _by_rater(bench: Bench) -> float:
    options = ["--copies", str(COPIES), "--mode", "steady"]
    options += ["--warmup", str(WARMUP_S), "--window", str(WINDOW_S), "--quiet"]
    bench.rater(*options, "--", bench.stamp, str(BURN_MS))
    [rate] = bench.query(
        "SELECT completions / window_s FROM steady_rate WHERE run_id = (SELECT max(id) FROM run)"
    )
    return float(rate)


def _by_loop(bench: Bench) -> float:
    command = [bench.respawnloop, str(COPIES), str(WARMUP_S), str(WINDOW_S)]
    done = subprocess.run([*command, bench.stamp, str(BURN_MS)], stdout=subprocess.PIPE, check=True)
    return int(done.stdout) / WINDOW_S
