"""How copies start: skew, bracket, stagger, a phase; and rater's own start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.bench import Bench, Called, Ran, in_turn, installed, median

BURN = "5"  # ms of CPU
_PHASES = 100
type Figures = Iterator[tuple[str, float]]


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
    skews = {name: median(it.skew_ms for it in of) for name, of in ran.items()}
    elapsed = {name: median(it.elapsed_ms for it in of) for name, of in ran.items()}
    yield f"skew-{copies}", skews.pop("rater") / skews["loop"]
    yield f"bracket-{copies}", elapsed["rater"] / elapsed["loop"]
    loop_ms = skews.pop("loop")
    yield from ((f"{name}-skew", skew_ms / loop_ms) for name, skew_ms in skews.items())


def many_together(bench: Bench) -> Figures:
    """The same with 1024 copies."""
    return together(bench, copies=1024, runs=3)


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
    """What an iteration more costs: of one `true`, and of 128."""

    def phase_ms(copies: int, iterations: int) -> float:
        def run(number: int) -> Called:
            words = ("--copies", str(copies), "--iterations", str(number), "--quiet", "--", "true")
            return bench.rater("run", *words)

        ran = in_turn({"one": lambda: run(1), "all": lambda: run(1 + iterations)}, runs=3)
        one_s, all_s = (min(it.wall_s for it in ran[name]) for name in ("one", "all"))
        return (all_s - one_s) / iterations * 1e3

    yield "phase", phase_ms(1, _PHASES)
    yield "spawn-128", phase_ms(128, 10)
    if installed("hyperfine"):
        command = ("hyperfine", "-N", "--style", "none", "--warmup", "3", "--runs", str(_PHASES))
        yield "hyperfine", bench.call((*command, "true")).wall_s / (_PHASES + 3) * 1e3
    if installed("runexec"):
        one = ("runexec", "--no-container", "--output", "/dev/null", "--", "true")
        yield "runexec", min(bench.call(one).wall_s for _ in range(3)) * 1e3


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
