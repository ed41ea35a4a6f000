"""What the supervisor costs while copies run: CPU for each copy, live view, proof; steady mode."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from benchmarks.bench import CALL, Bench, in_turn, installed, median
from benchmarks.starting import BURN, Figures

_FEW, _MANY = 32, 1024
_LIVE_S = 15
_PROOF_S = 10
_SERIES_S, _SERIES_TURNS = 10, 4
_WARMUP_S, _WINDOW_S = 1, 8


def own_cpu(bench: Bench) -> Figures:
    """CPU of the supervisor for a copy, as the slope between few and many copies."""

    def cpu_s(copies: int, proof: str) -> float:
        words = ("--copies", str(copies), "--proof", proof, "--quiet", "--", "sleep", "0.3")
        return float(bench.supervise(*words)["usage"]["cpu_s"])

    for proof, name in (("off", "own-cpu"), ("auto", "own-cpu-proof")):
        slopes = [cpu_s(_MANY, proof) - cpu_s(_FEW, proof) for _ in range(3)]
        yield name, [slope / (_MANY - _FEW) * 1e6 for slope in slopes]


def live(bench: Bench) -> Figures:
    """128 copies that sleep, with the live view on a pseudo-terminal."""
    master, slave = pty.openpty()
    words = ("run", "--copies", "128", "--", "sleep", str(_LIVE_S))
    process = subprocess.Popen(
        [sys.executable, "-c", CALL, *words],
        env=bench.environment | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = bytearray()
    with suppress(OSError):  # nobody has the terminal open any more
        while chunk := os.read(master, 65536):
            shown += chunk
    process.wait()
    os.close(master)
    used = json.loads(shown[shown.rindex(b'{"cpu_s"') :].splitlines()[0])
    yield "live-cpu", used["cpu_s"] * 1e3
    yield "live-memory", used["peak_bytes"] / 1e6


def proof(bench: Bench) -> Figures:
    """What looks at 128 copies cost while these run."""

    def cpu_s(how: str) -> float:
        words = ("--copies", "128", "--proof", how, "--quiet", "--", "sleep", str(_PROOF_S))
        return float(bench.supervise(*words)["usage"]["cpu_s"])

    yield "proof-cpu", (cpu_s("auto") - cpu_s("off")) / _PROOF_S * 100


def series(bench: Bench) -> Figures:
    """What samples of 128 copies cost for 10 s, and of 128 that burn 5 ms: against --series off."""

    def usage(how: str) -> float:
        words = ("--copies", "128", "--series", how, "--quiet", "--", "sleep", str(_SERIES_S))
        return float(bench.supervise(*words)["usage"]["cpu_s"])

    def calls(how: str) -> int:
        """Return the system calls of rater, its launcher and copies: these are as many in both."""
        traced = str(bench.folder / "calls")
        command = (sys.executable, "-m", "rater", "run", "--copies", "2", "--series", how)
        bench.call(
            ("strace", "-f", "-qq", "-c", "-U", "calls,name", "-o", traced)
            + (*command, "--quiet", "--", "sleep", str(_SERIES_S))
        )
        [total] = re.findall(r"^ *(\d+) total$", Path(traced).read_text(), re.MULTILINE)
        return int(total)

    cpu_s = in_turn({how: partial(usage, how) for how in ("auto", "off")}, _SERIES_TURNS)
    pairs = zip(cpu_s["auto"], cpu_s["off"], strict=True)
    yield "series-cpu", [(sampled - bare) / _SERIES_S * 100 for sampled, bare in pairs]
    ran = in_turn(
        {how: partial(bench.by_rater, 128, BURN, "--series", how) for how in ("auto", "off")},
        2 * _SERIES_TURNS,
    )
    for name in ("skew", "bracket"):
        field = {"skew": "skew_ms", "bracket": "elapsed_ms"}[name]
        bare = median(getattr(it, field) for it in ran["off"])
        yield f"series-{name}", [getattr(it, field) / bare for it in ran["auto"]]
    if installed("strace"):
        yield "series-calls", (calls("auto") - calls("off")) / _SERIES_S


def steady(bench: Bench) -> Figures:
    """128 copies that burn 20 ms of CPU: completions against those of a C loop, in turn."""
    window = ("--warmup", str(_WARMUP_S), "--window", str(_WINDOW_S))
    words = ("--copies", "128", "--mode", "steady", *window, "--quiet", "--", bench.stamp, "20")
    loop = (bench.respawnloop, "128", str(_WARMUP_S), str(_WINDOW_S), bench.stamp, "20")
    ratios = []
    for _ in range(3):
        bench.rater("run", *words)
        last = "run_id = (SELECT max(id) FROM run)"
        [rate] = bench.query(f"SELECT completions / window_s FROM steady_rate WHERE {last}")
        ratios.append(rate * _WINDOW_S / int(bench.call(loop).out))
    yield "steady", ratios
