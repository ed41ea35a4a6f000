"""How copies start: skew, bracket, stagger, a phase; and rater's own start."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks.bench import Bench, Called, Ran, in_turn, installed, median

BURN = "5"  # ms of CPU
_PHASES = 100
_TURNS = 5  # of rater and the loop
type Values = float | Sequence[float]  # one, or that of each run, of which the median counts
type Figures = Iterator[tuple[str, Values]]


def together(bench: Bench, copies: int = 128, runs: int = 7) -> Figures:
    """Copies that burn 5 ms of CPU: when does the last one execute its first instruction?"""
    contestants: dict[str, Callable[[], Ran]] = {
        "loop": lambda: bench.by_loop(copies, BURN),
        "rater": lambda: bench.by_rater(copies, BURN),
    }
    if copies == 128:
        rivals = {
            "xargs": f"xargs -P {copies} -I{{}} {bench.stamp} {BURN}",
            "parallel": f"parallel -j {copies} {bench.stamp} {BURN} '#' {{}}",
        }
        contestants |= {
            name: partial(bench.by_shell, f"seq {copies} | {command}")
            for name, command in rivals.items()
            if installed(name)
        }
    ran = in_turn(contestants, runs)
    loop = ran.pop("loop")
    loop_skew_ms = median(it.skew_ms for it in loop)
    loop_elapsed_ms = median(it.elapsed_ms for it in loop)
    by_rater = ran.pop("rater")
    yield f"skew-{copies}", [it.skew_ms / loop_skew_ms for it in by_rater]
    yield f"bracket-{copies}", [it.elapsed_ms / loop_elapsed_ms for it in by_rater]
    for name, by_rival in ran.items():
        yield f"{name}-skew", [it.skew_ms / loop_skew_ms for it in by_rival]


def many_together(bench: Bench) -> Figures:
    """The same with 1024 copies."""
    return together(bench, copies=1024, runs=5)


def bracket(bench: Bench) -> Figures:
    """64 sleeping copies: the bracket against the span the copies stamped themselves."""
    ran = [bench.by_rater(64, "-500") for _ in range(3)]
    yield "bracket-late", median(it.elapsed_ms - it.span_ms for it in ran)


def stagger(bench: Bench) -> Figures:
    """64 copies 20 ms apart, as they stamped it: steps off from those that were planned."""
    stamps = bench.folder / "stagger"
    words = ("--copies", "64", "--stagger", "20", "--quiet", "--", bench.stamp, "1")
    bench.rater("run", *words, STAMPS=str(stamps))
    starts = sorted(int(line.split()[0]) / 1e6 for line in stamps.read_text().splitlines())
    offsets = [start - 20 * place for place, start in enumerate(starts)]
    late = sorted(abs(offset - median(offsets)) for offset in offsets)
    yield "stagger-p95", late[int(len(late) * 0.95)]


def phases(bench: Bench) -> Figures:
    """What an iteration more costs, of one `true` and of 128, against a C loop that runs them."""
    program = shutil.which("true") or "/bin/true"

    def loop_ms(copies: int, calls: int) -> float:
        command = (bench.spawnloop, str(copies), program)
        return median(int(bench.call(command).out) / 1e6 for _ in range(calls))

    def phase_ms(copies: int, iterations: int) -> float:
        def run_s(number: int) -> float:
            words = ("--copies", str(copies), "--iterations", str(number), "--quiet", "--", "true")
            return bench.rater("run", *words).wall_s

        return (run_s(1 + iterations) - run_s(1)) / iterations * 1e3

    def in_pairs(copies: int, iterations: int) -> tuple[list[float], list[float]]:
        """Return the times of phases, and of the loops that were measured after each."""
        pairs = [(phase_ms(copies, iterations), loop_ms(copies, iterations)) for _ in range(_TURNS)]
        ours, theirs = zip(*pairs, strict=True)
        return [*ours], [*theirs]

    ours_ms, theirs_ms = in_pairs(1, _PHASES)
    yield "phase-ms", ours_ms
    yield "phase", [ours / theirs for ours, theirs in zip(ours_ms, theirs_ms, strict=True)]
    one_ms = median(theirs_ms)
    ours_ms, theirs_ms = in_pairs(128, 10)
    yield "spawn-128", [ours / theirs for ours, theirs in zip(ours_ms, theirs_ms, strict=True)]
    if installed("hyperfine"):
        command = ("hyperfine", "-N", "--style", "none", "--warmup", "3", "--runs", str(_PHASES))
        yield "hyperfine", bench.call((*command, "true")).wall_s / (_PHASES + 3) * 1e3 / one_ms
    if installed("runexec"):
        one = ("runexec", "--no-container", "--output", "/dev/null", "--", "true")
        yield "runexec", [bench.call(one).wall_s * 1e3 / one_ms for _ in range(3)]


def startup(bench: Bench) -> Figures:
    """Commands that have little to do, against `python -c pass`."""
    bench.rater("run", "--quiet", "--", "true")
    commands = {"help": ["--help"], "list": ["list"], "run": ["run", "--quiet", "--", "true"]}
    contestants: dict[str, Callable[[], Called]] = {
        name: partial(bench.rater, *words) for name, words in commands.items()
    }
    contestants["python"] = lambda: bench.call([sys.executable, "-c", "pass"])
    ran = in_turn(contestants, runs=11)
    python = ran.pop("python")
    for name, of in ran.items():
        yield f"start-{name}", min(it.cpu_s for it in of) / min(it.cpu_s for it in python)
    waited = median(it.wall_s for it in ran["run"]) / median(it.wall_s for it in python)
    yield "start-run-wall", waited
