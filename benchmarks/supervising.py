"""What the supervisor costs while copies run: CPU per copy, CPU while idle, memory."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

from benchmarks.bench import _CALL, Bench, median


def cost_per_copy(bench: Bench) -> None:
    """CPU of the supervisor per copy, as the slope between few and many copies."""
    few, many = 32, 1024

    def run(copies: int, proof: str) -> tuple[float, int]:
        options = ("--copies", str(copies), "--proof", proof, "--quiet")
        usage = bench.rater(*options, "--", "sleep", "0.5")["usage"]
        return usage["cpu_s"], usage["max_rss_bytes"]

    for proof, goal_us in (("off", 150), ("auto", 250)):
        slopes, peaks = [], []
        for _ in range(5):
            (little, _), (much, peak) = run(few, proof), run(many, proof)
            slopes.append((much - little) / (many - few) * 1e6)
            peaks.append(peak / 1e6)
        print(
            f"supervisor, --proof {proof}: {median(slopes):.0f} us of CPU per copy, at least "
            f"{min(slopes):.0f} (from {few} to {many} copies, median of 5; goal {goal_us}), peak "
            f"resident memory at {many} copies {max(peaks):.1f} MB (goal: under 60)",
            flush=True,
        )


def idle(bench: Bench, seconds: int = 60) -> None:
    """CPU of the supervisor while 128 copies sleep, with the live view on a pseudo-terminal."""

    def cpu_s(sleep: float) -> float:
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", _CALL, "run", "--copies", "128", "--", "sleep", str(sleep)],
            env=bench.environment | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        shown: list[bytes] = []

        def read() -> None:
            try:
                while chunk := os.read(master, 65536):
                    shown.append(chunk)
            except OSError:
                return

        reader = threading.Thread(target=read)
        reader.start()
        process.wait()
        reader.join()
        os.close(master)
        text = b"".join(shown).decode(errors="replace")
        start = text.rindex('{"cpu_s": ') + len('{"cpu_s": ')
        return float(text[start : text.index(",", start)])

    short, long = cpu_s(1), cpu_s(seconds + 1)
    print(
        f"128 copies sleep {seconds} s, live view on: {(long - short) / seconds * 100:.3f} % of "
        "one CPU (long run minus a 1 s run); goal: at most 0.5 %"
    )
