"""What the lab predicts for ten programs that nobody used to build it, against what they save.

    python -m benchmarks.page_programs [--db FILE] [--rounds 7] [NAME ...]

Each program is traced unless the database has a trace of it, then runs in base pages and in the
pages that the lab thinks best, turn by turn. Exit status 1: fewer than eight in ten ratios of the
predicted to the measured saving lie between .8 and 1.25. About 15 minutes on two quiet CPUs.
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
_HEAD = "program       predicted ms  least..most  measured ms    +-  ratio  time"


def _call(db: Path, *arguments: str) -> Any:
    """Call `rater lab trace`, return its JSON; raises `SystemExit` where it fails."""
    command = (sys.executable, "-m", "rater", "lab", "trace", *arguments, "--db", str(db), "--json")
    environment = os.environ | {"RATER_SUITES": str(_SUITE.parent)}  # where checks find it
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {done.returncode}")
    return json.loads(done.stdout)


def _row(name: str, check: dict[str, Any]) -> tuple[str, bool]:
    """Return a line of the table, and whether the ratio lies where it should."""
    best = max(check["mappings"], key=lambda mapping: mapping["predicted_s"])
    ratio, noise_s = best["ratio"], best["noise_s"]
    is_near = ratio is not None and _LOW <= ratio <= _HIGH
    texts = (
        f"{name:13} {best['predicted_s'] * 1e3:12.1f}",
        f"{best['least_s'] * 1e3:6.1f}..{best['most_s'] * 1e3:<6.1f} {best['saved_s'] * 1e3:10.1f}",
        f"{'-' if noise_s is None else f'{noise_s * 1e3:.1f}':>5}",
        f"{'-' if ratio is None else f'{ratio:.2f}':>6}  {check['time']:5}",
        "" if is_near else "beyond the goal",
    )
    return " ".join(texts).rstrip(), is_near


def _measure(db: Path, names: list[str], rounds: int) -> int:
    traced = {head["name"]: head["number"] for head in _call(db, "--list")} if db.exists() else {}
    print(_HEAD, flush=True)
    near = 0
    for name in names:
        number = traced.get(name) or _call(db, f"{_SUITE}/{name}")["trace"]
        document = _call(db, "--show", str(number), "--check", "--rounds", str(rounds))
        text, is_near = _row(name, document["check"])
        print(text, flush=True)
        near += is_near
    print(f"{near} of {len(names)} ratios lie between {_LOW} and {_HIGH}")
    return 0 if near >= _GOAL * len(names) else 1


def main() -> int:
    """Trace, run, print the table; return the exit status."""
    every_name = list(tomllib.loads(_SUITE.read_text())["benchmarks"])
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.page_programs")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--db", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    names = arguments.names or every_name
    if unknown := set(names) - set(every_name):
        parser.error(f"{', '.join(sorted(unknown))}: expected some of {', '.join(every_name)}")
    if arguments.db is not None:
        return _measure(arguments.db.resolve(), names, arguments.rounds)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(Path(folder) / "traces.sqlite", names, arguments.rounds)


if __name__ == "__main__":
    raise SystemExit(main())
