"""Predicted against measured benefits of page mappings: the errors of `rater pages`, by program.

    python -m benchmarks.page_ranking [--rounds N] [--only NAME,...] [--measure] [FOLDER]

Programs with several kinds of data (written for this, or such as people have: those of
`benchmarks.page_layouts`) and kernels of the suites are traced once and run with every mapping of
their data to 4 KB and 2 MB pages, turn by turn (`rater pages --check all`). FOLDER
(default: a temporary one) keeps the databases: what was traced there already is only run. Prints a
line a mapping and, in per cent of the maximum benefit, mean and largest error a program and of all
that stand out of their noise (goal: a mean under 5.8 %, IBM's CPO). Wants a quiet machine, and
transparent huge pages.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.page_layouts.inputs import Work, programs

_SOURCE = Path(__file__).with_name("page_mixed.c")
_GOAL = 0.058
_STEPS = "1500000"
_MIXES = {
    "mixed-equal": (_STEPS, "33", "33", "dependent"),
    "mixed-array": (_STEPS, "20", "20", "dependent"),
    "mixed-table": (_STEPS, "60", "20", "dependent"),
    "mixed-nodes": (_STEPS, "10", "70", "dependent"),
    "mixed-overlap": ("4000000", "33", "0", "independent"),
}
_KERNELS = {"gups": "mini/gups", "sort": "mini/sort", "words": "mini/words", "lu": "mini/lu"}
_COMMANDS = ("python3", "perl", "tclsh", "zstd", "sqlite3")


def main(argv: Sequence[str]) -> int:
    """Trace and check all programs; return 0 where the mean error is under the goal."""
    parser = argparse.ArgumentParser(prog="benchmarks.page_ranking")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join((*_MIXES, *_KERNELS, *_COMMANDS)))
    parser.add_argument("--measure", action="store_true", help="costs anew, before the runs")
    parser.add_argument("--trace", action="store_true", help="trace what is not there, run nothing")
    parser.add_argument("folder", nargs="?", type=Path)
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = args.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        program = folder / "page_mixed"
        subprocess.run(["cc", "-O2", "-o", program, _SOURCE], check=True)
        works = {work.name: work for work in programs(folder)}
        checks = {}
        for name in args.only.split(","):
            work = _work(name, program, works)
            if work is None:
                print(f"{name}: its program is not here: left out")
                continue
            checks[name] = _checked(work, folder, args)
            if checks[name]:
                _tell(name, checks[name])
    if args.trace:
        return 0
    return _conclude({name: it["check"] for name, it in checks.items() if it.get("check")})


def _work(name: str, program: Path, works: Mapping[str, Work]) -> Work | None:
    """Return what `rater pages` is to trace, None for what is not installed."""
    if name in _MIXES:
        return Work(name, ("--", str(program.absolute()), *_MIXES[name]))
    if name in _KERNELS:
        return Work(name, (_KERNELS[name], "--size", "test"))
    found = works.get(name)
    return None if found is None else replace(found, command=("--", *found.command))


def _checked(work: Work, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Return the document of one program, traced where it is not yet."""
    database = (folder / f"{work.name}.db").absolute()
    places = {"RATER_DB": str(database), "RATER_LOCK": str((folder / "lock").absolute())}
    places |= work.environment
    if not database.exists():
        _rater(["--json", "pages", *work.command], places, folder)
    if args.trace:
        return {}
    asked = ["--show", "last", "--check", "all", "--rounds", str(args.rounds)]
    more = ["--measure"] if args.measure else []  # here: tracing may have been beside other work
    found = _rater(["--json", "pages", *asked, *more], places, folder)
    (folder / f"{work.name}.json").write_text(json.dumps(found))
    return found


def _rater(words: Sequence[str], places: Mapping[str, str], folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "rater", *words],
        env={**os.environ, **places},
        cwd=folder,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _tell(name: str, document: Mapping[str, Any]) -> None:
    check = document["check"]
    told = "" if check["told"] else "  (does not stand out of the noise)"

    def ms(what: str) -> str:
        return f"{check[what] * 1e3:.1f} ms"

    print(
        f"{name}: saves {ms('most_saved_s')} +-{ms('most_saved_noise_s')}, "
        f"predicted {ms('predicted_s')}; error mean {100 * check['mean_error']:.1f} %, "
        f"largest {100 * check['max_error']:.1f} %{told}"
    )
    for it in check["mappings"]:
        predicted, measured, noise, error = (
            100 * it[what] for what in ("predicted", "measured", "noise", "error")
        )
        print(
            f"  {it['layout']:<30} {it['median_s']:.4f} s, predicted {predicted:6.1f} %, "
            f"measured {measured:6.1f} % +-{noise:4.1f}, error {error:+5.1f}",
            flush=True,
        )


def _conclude(checks: Mapping[str, Mapping[str, Any]]) -> int:
    # Of one mapping beside the base both benefits are 100 % by definition: that tells nothing.
    told = {name: it for name, it in checks.items() if it["told"] and len(it["mappings"]) > 2}
    errors = [abs(m["error"]) for it in told.values() for m in it["mappings"][1:]]
    if not errors:
        print("no program's benefit stands out of the noise")
        return 1
    mean = statistics.fmean(errors)
    print(
        f"{len(told)} of {len(checks)} programs, {len(errors)} mappings: mean error "
        f"{100 * mean:.1f} %, largest {100 * max(errors):.1f} % of the maximum benefit"
    )
    return 0 if mean < _GOAL else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
