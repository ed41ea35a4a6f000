"""How fast documents and result files are read."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.bench import _CALL, Bench, median

_BYTES = 100_000_000
_COPIES = 128
_BENCHMARKS = ("400.perlbench", "401.bzip2", "403.gcc", "429.mcf", "445.gobmk", "456.hmmer")
_WORKLOADS = 3
# What a script that only wants the copies' times asks of the file.
_GREP = ("grep", "-cE", r"^Copy [0-9]+ of .*Total elapsed time: [0-9.]+$")


def log_reading(bench: Bench) -> None:
    """Import 100 MB of log into a new database; beside it, grep's time for the same file."""
    log = bench.folder / "spec.log"
    copies = write_log(log)
    rater_s, grep_s, peaks = [], [], []
    for place in range(3):
        database = bench.folder / f"spec{place}.db"
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", _CALL, "import", "spec", str(log), "--json"],
            env=bench.environment | {"RATER_DB": str(database)},
            capture_output=True,
            text=True,
            check=True,
        )
        rater_s.append(time.monotonic() - began)
        peaks.append(json.loads(done.stderr.splitlines()[-1])["max_rss_bytes"] / 1e6)
        (run,) = json.loads(done.stdout)["runs"]
        if run["copy_times"] != copies or run["problem_count"] or run["disagreements"]:
            raise SystemExit(f"{run['copy_times']} of {copies} copy times read")
        began = time.monotonic()
        # Into a pipe: of /dev/null grep knows that the first line is enough.
        subprocess.run([*_GREP, log], stdout=subprocess.PIPE, check=True)
        grep_s.append(time.monotonic() - began)
        database.unlink()
    size_mb = log.stat().st_size / 1e6
    log.unlink()
    print(
        f"{size_mb:.0f} MB of log, {copies} copy times: imported in {median(rater_s):.1f} s "
        f"(goal: under 20), {size_mb / median(rater_s):.0f} MB/s, "
        f"{median(rater_s) / median(grep_s):.0f} times as long as grep needs to count the lines "
        f"of copies; peak resident memory {max(peaks):.0f} MB (goal: under 300)"
    )


def document_reading(bench: Bench) -> None:
    """Import 11 136 observations of 128 copies into a new database: CPU time of the whole call."""
    document = bench.folder / "times.json"
    shape = ((f"b{b:02}", i, c) for b in range(29) for i in range(3) for c in range(_COPIES))
    rows = [
        {"benchmark": name, "iteration": iteration, "copy": copy, "cpu": copy, "node": copy // 32}
        | {"start_s": 500.0 * iteration, "elapsed_s": 100 + copy / 8, "cpu_s": 99.5, "status": "ok"}
        for name, iteration, copy in shape
    ]
    run = {"uuid": "u", "mode": "homogeneous", "copies": _COPIES}
    document.write_text(json.dumps({"rater": 1, "run": run, "observations": rows}))
    spent_s = []
    for place in range(5):
        database = bench.folder / f"document{place}.db"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "rater", "import", str(document)],
            env=bench.environment | {"RATER_DB": str(database)},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    print(
        f"{len(rows)} observations: imported with {median(spent_s):.2f} s of CPU time, at best "
        f"{min(spent_s):.2f} s (goal: 0.4)"
    )


def write_log(path: Path) -> int:
    """Write a log of homogeneous runs, `_BYTES` long; return how many times of copies it has."""
    iteration = 0
    with path.open("w", encoding="ascii") as out:
        out.write('runspec v6674 started at Fri Jul 14 14:44:55 2017 on "host"\n')
        while out.tell() < _BYTES:
            iteration += 1
            for benchmark in _BENCHMARKS:
                out.write(_bracket(benchmark, iteration))
    return iteration * len(_BENCHMARKS) * _COPIES


def _bracket(benchmark: str, iteration: int) -> str:
    folder = f"/opt/cpu2006/benchspec/CPU2006/{benchmark}/run/run_base_ref_gcc"
    lines = [f"  Running {benchmark} ref base gcc default ({_COPIES} copies)", "Commands to run:"]
    for copy in range(_COPIES):
        lines += [f"    -b {copy}", f"    -C {folder}.{copy:04}"]
    lines.append(f"    -o ref.out -e ref.err numactl -l -C $BIND {folder}.0000/exe (timed)")
    lines += [
        f"Workload elapsed time ({copy}:{workload}) = {100 + copy / 8:.6f} seconds"
        for workload in range(1, _WORKLOADS + 1)
        for copy in range(_COPIES)
    ]
    for copy in range(_COPIES):
        lines.append(
            f"Copy {copy} of {benchmark} (base ref) run {iteration} finished at "
            f"Fri Jul 14 14:52:21 2017.  Total elapsed time: {_WORKLOADS * (100 + copy / 8):.6f}"
        )
    lines += [
        f"comparing files in '{folder}.{copy:04}'\n"
        "comparing 'ref.out' with abstol=1e-07, binary=, calctol=0, cw=, floatcompare=, obiwan="
        for copy in range(_COPIES)
    ]
    whole_s = _WORKLOADS * (100 + (_COPIES - 1) / 8)
    lines += [
        "Benchmark Times:",
        f"  Start:    Fri Jul 14 14:45:44 2017 ({1500061544 + 400 * iteration})",
        "  Elapsed:  00:06:00 (360)",
        f"  Reported: {int(whole_s)} {round(whole_s % 1 * 1e9)} {whole_s:.6f}",
        f" Success {benchmark} base ref ratio={_COPIES * 9770 / whole_s:.2f}, "
        f"runtime={whole_s:.6f}, power=0.00w, temp=0.00 deg, humidity=0.00%",
    ]
    return "\n".join(lines) + "\n"
