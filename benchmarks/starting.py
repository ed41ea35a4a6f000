"""How copies start: skew, bracket, stagger, and rater's own start-up."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.bench import Bench, Ran, in_turn, installed, median

COPIES = 128
BURN_MS = 5


def skew(bench: Bench) -> None:
    """128 copies that burn 5 ms of CPU: when does the last one execute its first instruction?"""
    burn = str(BURN_MS)
    many = f"seq {COPIES}"
    contestants = {
        "rater": lambda: bench.by_rater(COPIES, burn),
        "C loop, pinned": lambda: bench.by_loop(COPIES, burn),
        "xargs -P": lambda: bench.by_shell(
            f"{many} | xargs -P {COPIES} -I{{}} {bench.stamp} {burn}"
        ),
    }
    if installed("parallel"):
        contestants["GNU parallel"] = lambda: bench.by_shell(
            f"{many} | parallel -j {COPIES} {bench.stamp} {burn} '#' {{}}"
        )
    else:
        print("GNU parallel is not installed: left out")
    results = in_turn(contestants)
    own = results["rater"]
    print(f"{COPIES} copies, {BURN_MS} ms CPU each, medians of {len(own)}")
    print(f"{'':16}{'skew ms':>10}{'rater / it':>12}{'elapsed ms':>12}{'rater / it':>12}")
    for name, ran in results.items():
        skew_ms, elapsed_ms = _medians(ran)
        print(
            f"{name:16}{skew_ms:10.1f}{_medians(own)[0] / skew_ms:12.2f}"
            f"{elapsed_ms:12.1f}{_medians(own)[1] / elapsed_ms:12.3f}"
        )
    print("goals: skew at most 0.5 of the C loop, 0.25 of GNU parallel; bracket at most 1.05")


def _medians(ran: list[Ran]) -> tuple[float, float]:
    return median([r.skew_ms for r in ran]), median([r.elapsed_ms for r in ran])


def bracket_truth(bench: Bench) -> None:
    """64 sleeping copies: the bracket against the span the copies stamped themselves."""
    over = [ran.elapsed_ms - ran.span_ms for ran in (bench.by_rater(64, "-1000") for _ in range(5))]
    print(
        f"64 copies that sleep 1 s: bracket - (last finish - first start) = "
        f"{median(over):.2f} ms (median of 5, largest {max(over):.2f}); goal: under 5 ms"
    )


def stagger(bench: Bench) -> None:
    """64 copies 20 ms apart: planned against actual release."""
    document = bench.rater("--copies", "64", "--stagger", "20", "--json", "--", bench.stamp, "1")
    rows = bench.query(
        "SELECT abs(start_ns - planned_start_ns) / 1e6 FROM copy "
        f"WHERE run_id = {document['run']} ORDER BY 1",
    )
    late = [float(row) for row in rows]
    print(
        f"64 copies x 20 ms: release off by {median(late):.3f} ms (median), "
        f"{late[int(len(late) * 0.95)]:.3f} ms (95th percentile), {late[-1]:.3f} ms (largest); "
        "goal: at most 1 ms at the 95th percentile"
    )


def startup(bench: Bench) -> None:
    """`rater --help` against `python -c pass`."""
    rater = [sys.executable, "-c", "import sys; from rater.cli import main; main(sys.argv[1:])"]

    def timed(command: list[str]) -> float:
        begin = time.monotonic()
        subprocess.run(command, stdout=subprocess.DEVNULL, env=bench.environment, check=True)
        return (time.monotonic() - begin) * 1e3

    empty, helped = [], []
    for _ in range(15):
        empty.append(timed([sys.executable, "-c", "pass"]))
        helped.append(timed([*rater, "--help"]))
    print(
        f"rater --help {statistics.median(helped):.0f} ms, python -c pass "
        f"{statistics.median(empty):.0f} ms: "
        f"{statistics.median(helped) - statistics.median(empty):.0f} ms more "
        "(medians of 15); goal: at most 120 ms more"
    )
