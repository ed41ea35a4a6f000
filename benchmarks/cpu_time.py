"""What `rater divots` says of real runs beside loads, planted and clean: right, silent, wrong.

`python -m benchmarks.cpu_time [--runs 20] [--loads 0,1,4,20] [--rater PATH]`: a copy on each CPU,
of a program that fills nothing or the L2 cache. Planted: the last copy has a tenth more work. Load
1 is a competitor on the last CPU; more of them move freely. The last columns are ln of the last
copy's CPU time over that of the others, the median and the most over the runs: of clean runs
beside a competitor, what that costs in caches. `divots/by_cpu_time.py` has its largest value.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

SOURCE = r"""
#include <stdlib.h>
int main(int count, char **words) { /* WORK KIB: steps over so much memory */
  long steps = atol(words[1]) * 10000, size = atol(words[2]) * 128 + 1;
  volatile long *cells = calloc(size, sizeof *cells);
  unsigned long state = 1;
  for (long step = 0; step < steps; step++) {
    state = state * 6364136223846793005UL + 1442695040888963407UL;
    cells[(state >> 33) % size] += step;
  }
  return count < 3;
}
"""
MORE_WORK = 1.10
WORK = 3000
ITERATIONS = 10


@contextlib.contextmanager
def load(processes: int, cpu: int) -> Iterator[None]:
    """Keep so many competitors busy; a single one stays on a CPU."""
    bound = ["taskset", "-c", str(cpu)] if processes == 1 else []
    busy = [
        subprocess.Popen([*bound, sys.executable, "-c", "while True: pass"])
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def run_once(
    rater: str, folder: Path, *, planted: bool, size_kib: int, copies: int
) -> tuple[str, float | None]:
    """Make a run; return what `rater divots` says, and ln of the ratio of CPU times."""
    last = copies - 1
    more = round(WORK * MORE_WORK) if planted else WORK
    work = f"$((RATER_COPY == {last} ? {more} : {WORK}))"
    database = str(folder / "rater.db")
    environment = {**os.environ, "RATER_LOCK": str(folder / "lock"), "RATER_CACHE": str(folder)}

    def call(*words: str) -> str:
        done = subprocess.run(
            [rater, *words], capture_output=True, text=True, env=environment, check=False
        )
        return done.stdout

    call(
        *("run", "--db", database, "--quiet", "--copies", str(copies)),
        *("--iterations", str(ITERATIONS), "--name", "program", "--"),
        *("sh", "-c", f"exec {folder / 'program'} {work} {size_kib}"),
    )
    document = json.loads(call("divots", "last", "--db", database, "--json") or "{}")
    found = [divot for divot in document.get("divots", []) if not divot["explained"]]
    placed = [divot for divot in found if divot["copies"] and len(divot["copies"]) < copies]
    measured = json.loads(call("export", "last", "--db", database, "--format", "json") or "{}")
    word = judge(document, placed, planted=planted, last=last)
    if word in ("wrong", "not judged"):
        why_not = document.get("not_by_cpu_time")
        reasons = [why_not] if why_not else [divot["evidence"] for divot in placed]
        print(f"    {word}: {'; '.join(map(str, reasons))}", flush=True)
    return word, cpu_ratio(measured, last)


def judge(
    document: dict[str, object], placed: Sequence[dict[str, object]], *, planted: bool, last: int
) -> str:
    """Return what was said: right, silent, wrong, clean or not judged."""
    if document.get("disturbed"):
        return "not judged"
    if any(divot["copies"] != [last] for divot in placed):
        return "wrong"
    if planted:
        return "right" if placed else "silent"
    return "wrong" if placed else "clean"


def cpu_ratio(measured: dict[str, object], last: int) -> float | None:
    """Return ln of the median CPU time of the last copy over that of the others; None: not read."""
    copies = measured.get("copies")
    if not isinstance(copies, list) or not copies:
        return None
    times = {
        of_last: [copy["cpu_ns"] for copy in copies if (copy["copy"] == last) is of_last]
        for of_last in (True, False)
    }
    if not all(times.values()):
        return None
    return math.log(statistics.median(times[True]) / statistics.median(times[False]))


def main() -> None:
    """Print a line for each load, size and plant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--loads", default="0,1,4,20")
    parser.add_argument("--sizes", default="0,400", help="KiB of memory of a copy")
    parser.add_argument("--rater", default=str(Path(sys.executable).parent / "rater"))
    options = parser.parse_args()
    copies = len(os.sched_getaffinity(0))
    print("load  memory KiB  planted  said                                     ln CPU time")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.c").write_text(SOURCE)
        subprocess.run(["cc", "-O2", "-o", folder / "program", folder / "program.c"], check=True)
        for processes in map(int, options.loads.split(",")):
            for size_kib in map(int, options.sizes.split(",")):
                for planted in (True, False):
                    with load(processes, copies - 1):
                        results = [
                            run_once(
                                options.rater,
                                folder,
                                planted=planted,
                                size_kib=size_kib,
                                copies=copies,
                            )
                            for _ in range(options.runs)
                        ]
                    said = Counter(word for word, _ in results)
                    ratios = [ratio for _, ratio in results if ratio is not None]
                    words = ", ".join(f"{word} {many}" for word, many in said.most_common())
                    middle = f"{statistics.median(ratios):+.3f}" if ratios else "-"
                    most = f"{max(ratios):+.3f}" if ratios else "-"
                    print(
                        f"{processes:4}  {size_kib:10}  {'+10 %' if planted else 'none':7}  "
                        f"{words:40} {middle} (most {most})",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
