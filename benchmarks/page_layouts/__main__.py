"""`python -m benchmarks.page_layouts [PART] ...`: `--pages` as it is here. Parts:

programs  planned against achieved shares of programs that people have, with equal outputs
stress    every call that gets or gives memory back, 8 threads and forks, on several layouts
overhead  [PAIRS [FILE]] what the library costs at 0 % on the kernels of `mini` (one copy), with an
          interval; pairs add up in FILE over calls
gups      random updates of 512 MB over nine layouts
host      what the first touch of memory costs that was free for seconds, without rater

Each makes a folder of its own (RATER_DB, RATER_CACHE, RATER_LOCK) and removes it. Without names:
programs and stress.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.comparing import paired_intervals
from benchmarks.page_layouts.inputs import Work, programs

HERE = Path(__file__).parent
SHARES = ("0%", "25%", "50%", "75%", "100%")
STRESSED = (
    *("0%", "50%", "spread:50%", "random:50%:7", "100%", "2M@2M-8M+2M@16M-40M"),
    *("heap:huge;mmap:spread:50%", "heap:base", "heap:huge;mmap:huge"),
)
NINE = ("0%", "12.5%", "25%", "37.5%", "50%", "62.5%", "75%", "87.5%", "100%")


@contextmanager
def own_place() -> Iterator[tuple[Path, dict[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="page-layouts-") as folder:
        place = Path(folder)
        yield (
            place,
            os.environ
            | {
                "RATER_DB": str(place / "db"),
                "RATER_CACHE": os.environ.get("RATER_CACHE", str(place / "cache")),
                "RATER_LOCK": str(place / "lock"),
            },
        )


def rater(environment: dict[str, str], *words: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "rater", *map(str, words)],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{words}: {done.returncode}: {done.stderr[-600:]}")
    return done.stdout


def pages_of(document: str) -> dict[str, dict[str, float]]:
    """Largest resident memory first."""
    rows = json.loads(document)["pages"]["categories"]
    return {row["category"]: row for row in sorted(rows, key=lambda it: -it["resident_bytes"])}


def run_programs(only: Sequence[str]) -> None:
    print("program      heap MB / mapped MB   planned: had of heap, of mappings (output)")
    with own_place() as (place, environment):
        for work in programs(place):
            if only and work.name not in only:
                continue
            try:
                print(_program(work, place, environment), flush=True)
            except RuntimeError as error:
                print(f"{work.name:12} {error}", flush=True)


def _program(work: Work, place: Path, environment: dict[str, str]) -> str:
    found = environment | work.environment
    shell = ["sh", "-c", 'exec "$@" > "$OUT"', "sh", *work.command]

    def output(file: Path) -> str:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:12]

    out = place / "plain"
    subprocess.run(shell, env=found | {"OUT": str(out)}, cwd=place, check=True, stderr=-3)
    plain = output(out)
    cells, sizes = [], ""
    for share in SHARES:
        out = place / "out"
        words = ("--copies", 1, "--pages", f"{work.how}{share}", "--env", f"OUT={out}")
        options = [word for pair in work.environment.items() for word in ("--env", "=".join(pair))]
        document = rater(found, "run", "--json", *words, *options, "--", *shell, cwd=place)
        rows = pages_of(document)
        shown = []
        for category in ("heap", "mmap"):
            row = rows.get(category)
            shown.append("-" if row is None else f"{100 * (row['huge_share'] or 0):.0f}")
        sizes = " / ".join(
            f"{rows[it]['resident_bytes'] / 1e6:.1f}" if it in rows else "-"
            for it in ("heap", "mmap")
        )
        same = "same" if output(out) == plain else "DIFFERS"
        met = json.loads(document)["pages"]["met"]
        cells.append(f"{share}: {' '.join(shown)} {same}{'' if met else ' (marked)'}")
    return f"{work.name:12} {sizes:>18}   {' | '.join(cells)}"


def run_stress(only: Sequence[str]) -> None:
    with own_place() as (place, environment):
        program = place / "stress"
        command = ["cc", "-O2", "-g", str(HERE / "stress.c"), "-o", str(program), "-lpthread"]
        subprocess.run(command, check=True)
        for layout in only or STRESSED:
            words = ("--copies", 2, "--timeout", "120", "--pages", layout, "--pages-heap", "64M")
            rater(environment, "run", "--json", *words, "--", program, 8, 2500, 4)
            print(f"stress 8 threads, 4 forks, 2 copies, --pages {layout}: ok", flush=True)


def run_overhead(only: Sequence[str]) -> None:
    """Pairs of runs, with 0 % and without the library, ABBA; CPU time of the copy.

    A file's pairs count too, and what is measured is added to it.
    """
    rounds = int(only[0]) if only else 15
    file = Path(only[1]) if len(only) > 1 else None
    pairs: list[dict[str, float]] = []  # of each pair what 0 % costs, by kernel
    if file is not None and file.exists():
        pairs = [json.loads(line) for line in file.read_text().splitlines()]
    with own_place() as (_, environment):
        for turn in range(rounds):
            pairs.append(_pair(environment, plain_first=turn % 2 == 0))
            if file is not None:
                with file.open("a") as out:
                    out.write(json.dumps(pairs[-1]) + "\n")
    for name in pairs[0]:
        _say_overhead(name, [it[name] for it in pairs])
    _say_overhead("all", [statistics.geometric_mean(it.values()) for it in pairs])


def _pair(environment: dict[str, str], *, plain_first: bool) -> dict[str, float]:
    plain: dict[str, float] = {}
    with_pages: dict[str, float] = {}
    sides: list[tuple[dict[str, float], tuple[str, ...]]]
    sides = [(plain, ()), (with_pages, ("--pages", "0%"))]
    for times, words in sides if plain_first else reversed(sides):
        command = ("run", "mini", "--size", "test", "--copies", 1, "--proof", "off", *words)
        rater(environment, *command, "--quiet")
        rows = json.loads(rater(environment, "export", "last", "--format", "observations"))
        for it in rows["observations"]:
            times[it["benchmark"]] = it["cpu_s"]
    return {name: with_pages[name] / seconds for name, seconds in plain.items()}


def _say_overhead(name: str, ratios: Sequence[float]) -> None:
    """Say the geometric mean with its 95 % interval over pairs."""
    if len(ratios) < 2:
        print(f"{name:10} x{ratios[0]:.4f}")
        return
    mean, reach = paired_intervals(np.log(np.array(ratios)))
    low, high = np.exp(mean - reach), np.exp(mean + reach)
    print(
        f"{name:10} x{np.exp(mean):.4f} (95 %: {low:.4f} to {high:.4f}; median "
        f"{statistics.median(ratios):.4f}; {len(ratios)} pairs)"
    )


def run_gups(only: Sequence[str]) -> None:
    rounds = int(only[0]) if only else 5
    with own_place() as (place, environment):
        program = place / "gups"
        source = HERE / "gups.c"
        subprocess.run(["cc", "-O2", str(source), "-o", str(program)], check=True)
        times: dict[str, list[float]] = {}
        had: dict[str, float] = {}
        for turn in range(rounds):
            for layout in NINE if turn % 2 else reversed(NINE):
                words = ("--copies", 1, "--proof", "off", "--pages", layout)
                command = ("run", "--json", *words, "--", program, 512, 8)
                had[layout] = pages_of(rater(environment, *command))["heap"]["huge_share"]
                rows = json.loads(rater(environment, "export", "last", "--format", "observations"))
                times.setdefault(layout, []).append(rows["observations"][0]["cpu_s"])
        base = statistics.median(times["0%"])
        for layout in NINE:
            middle = statistics.median(times[layout])
            print(
                f"gups 512 MB {layout:>6}: had {100 * had[layout]:5.1f} %, CPU {middle:.3f} s, "
                f"speedup {base / middle:.3f}, runs {min(times[layout]):.3f} to "
                f"{max(times[layout]):.3f} s"
            )


def run_host(only: Sequence[str]) -> None:
    with own_place() as (place, _):
        program = place / "given_back"
        source = HERE / "given_back.c"
        subprocess.run(["cc", "-O2", str(source), "-o", str(program)], check=True)
        for pages in only or ("huge", "base"):
            subprocess.run([program, pages], check=True)


PARTS: dict[str, Callable[[Sequence[str]], None]] = {
    "programs": run_programs,
    "stress": run_stress,
    "overhead": run_overhead,
    "gups": run_gups,
    "host": run_host,
}


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] not in PARTS:
        sys.exit(__doc__)
    if shutil.which("cc") is None:
        sys.exit("no C compiler")
    if not words:
        run_programs(())
        run_stress(())
    else:
        PARTS[words[0]](words[1:])


if __name__ == "__main__":
    main()
