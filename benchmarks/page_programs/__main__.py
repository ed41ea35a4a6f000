"""What the lab predicts for ten programs that nobody used to build it, against what they save.

    python -m benchmarks.page_programs [--db FILE] [--rounds 7] [--own-slope] [NAME ...]

Each program is traced unless the database has a trace of it, then runs in base pages and in the
pages that the lab thinks best, turn by turn. Exit status 1: fewer than eight in ten ratios of the
predicted to the measured saving lie between .8 and 1.25. About 15 minutes on two quiet CPUs.

`--own-slope` runs with large pages for every second 2 MB, too: what that saved, for each second
predicted of it, scales the prediction for all. It has what no trace can tell, as which loads wait
for others, and all data structures alike.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

_SUITE = Path(__file__).with_name("page-programs.toml")
_LOW, _HIGH = 0.8, 1.25
_GOAL = 0.8  # of the programs
_OWN_HEAD = "program        predicted ms  own slope ms  measured ms    +-  ratio"
_HEAD = "program       predicted ms  least..most  measured ms    +-  ratio  time"


def _call(db: Path, *arguments: str) -> Any:
    """Call `rater lab`, return its JSON; raises `SystemExit` where it fails."""
    command = (sys.executable, "-m", "rater", "lab", *arguments, "--db", str(db), "--json")
    environment = os.environ | {"RATER_SUITES": str(_SUITE.parent)}  # where checks find it
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}")
    return json.loads(done.stdout)


def _is_near(ratio: float | None) -> bool:
    return ratio is not None and _LOW <= ratio <= _HIGH


def _check_row(db: Path, name: str, trace: int, rounds: int) -> tuple[str, float | None]:
    """Check a trace; return a line of the table, and the ratio."""
    words = ("trace", "--show", str(trace), "--check", "--rounds", str(rounds))
    check = _call(db, *words)["check"]
    best = max(check["mappings"], key=lambda mapping: mapping["predicted_s"])
    ratio = best["ratio"]
    texts = (
        f"{name:13} {_ms(best['predicted_s']):>12}",
        f"{_ms(best['least_s']):>6}..{_ms(best['most_s']):<6} {_ms(best['saved_s']):>10}",
        f"{_ms(best['noise_s']):>5} {_ratio_text(ratio):>6}  {check['time']:5}",
    )
    return " ".join(texts), ratio


def _own_row(db: Path, name: str, rounds: int) -> tuple[str, float | None]:
    """Run no, every second and all large pages; return a line, and the own slope's ratio."""
    layouts = ("--layouts", "0%,spread:50%,100%", "--rounds", str(rounds), "--y", "user")
    words = ("pages", f"{_SUITE}/{name}", "--size", "test", "--copies", "1", *layouts)
    (ranking,) = _call(
        db, *words, "--iterations", "3", "--quiet", "-o", str(db.with_suffix(".html"))
    )["rankings"]
    best = max(ranking["check"]["mappings"], key=lambda mapping: mapping["predicted_s"])
    ratio = best["own_ratio"]
    texts = (
        f"{name:13} {_ms(best['predicted_s']):>13} {_ms(best['by_own_slope_s']):>13}",
        f"{_ms(best['saved_s']):>12} {_ms(best['noise_s']):>5} {_ratio_text(ratio):>6}",
    )
    return " ".join(texts), ratio


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _ratio_text(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _measure(db: Path, names: list[str], rounds: int, *, own_slope: bool) -> int:
    heads = _call(db, "trace", "--list") if db.exists() else []
    traced = {head["name"]: head["number"] for head in heads}
    print(_OWN_HEAD if own_slope else _HEAD, flush=True)
    near = 0
    for name in names:
        trace = traced.get(name) or _call(db, "trace", f"{_SUITE}/{name}")["trace"]
        if own_slope:
            text, ratio = _own_row(db, name, rounds)
        else:
            text, ratio = _check_row(db, name, trace, rounds)
        print(f"{text} {'' if _is_near(ratio) else 'beyond the goal'}".rstrip(), flush=True)
        near += _is_near(ratio)
    print(f"{near} of {len(names)} ratios lie between {_LOW} and {_HIGH}")
    return 0 if near >= _GOAL * len(names) else 1


def main() -> int:
    """Trace, run, print the table; return the exit status."""
    every_name = list(tomllib.loads(_SUITE.read_text())["benchmarks"])
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.page_programs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--db", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--own-slope", action="store_true")
    arguments = parser.parse_args()
    names = arguments.names or every_name
    if unknown := set(names) - set(every_name):
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(every_name)}")
    if arguments.db is not None:
        return _measure(
            arguments.db.resolve(), names, arguments.rounds, own_slope=arguments.own_slope
        )
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "traces.sqlite"
        return _measure(db, names, arguments.rounds, own_slope=arguments.own_slope)


if __name__ == "__main__":
    raise SystemExit(main())
