"""`python -m benchmarks.mutations [--seed N] [--number N] [ROOM ...]`: do tests see what changes?

One random token of a room of rater/ is changed at a time, in a copy of the checkout, and the
tests of that room run: a change that they do not notice is printed, to be looked at. Some of
these mean the same as before. Exit status 1 where fewer than nine of ten changes were noticed.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Rooms, and the tests that are to notice a change there: seconds, not minutes.
ROOMS = {
    "analysis/doctor": ("tests/workflow/test_doctor.py",),
    "analysis/results": ("tests/analysis/results",),
    "analysis/compare": ("tests/analysis/compare", "tests/commands/test_compare.py"),
    "analysis/stats": ("tests/analysis/stats", "tests/analysis/test_scaling.py"),
    "plan": ("tests/plan",),
    "run/launcher": ("tests/run/launcher", "tests/run/supervise/test_supervisor.py"),
    "run/supervise": ("tests/run/supervise", "tests/run/launcher/test_guard.py"),
    "run/programs": ("tests/run/programs",),
    "run/workplace": ("tests/run/workplace", "tests/run/programs"),
    "settings": ("tests/settings",),
    "store": ("tests/store",),
}
_GOAL = 0.9
_PATIENCE_S = 300.0
_COPIED = ("rater", "tests", "benchmarks", "suites", "layouts", "db", "setup.cfg", "Makefile")
_OTHERS = {
    "==": "!=",
    "!=": "==",
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "+": "-",
    "-": "+",
    "*": "/",
    "and": "or",
    "or": "and",
    "True": "False",
    "False": "True",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "break": "continue",
}


@dataclass(frozen=True)
class Mutation:
    """One token of a file, and what stands in its place."""

    file: Path  # below the root
    line: int  # from 1
    column: int
    old: str
    new: str

    def apply(self, root: Path) -> None:
        """Change the file below `root`."""
        path = root / self.file
        lines = path.read_text().splitlines(keepends=True)
        text = lines[self.line - 1]
        end = self.column + len(self.old)
        lines[self.line - 1] = text[: self.column] + self.new + text[end:]
        path.write_text("".join(lines))

    def __str__(self) -> str:
        text = (ROOT / self.file).read_text().splitlines()[self.line - 1].strip()
        return f"{self.file}:{self.line}: {self.old} -> {self.new}: {text}"


def mutations_of(file: Path) -> Iterator[Mutation]:
    """Yield every change of one token that this script knows, in the order of the file."""
    tokens = tokenize.generate_tokens(io.StringIO((ROOT / file).read_text()).readline)
    for token in tokens:
        new = _OTHERS.get(token.string)
        if token.type == tokenize.NUMBER:
            new = _other_number(token.string)
        if new is not None and token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER):
            yield Mutation(file, token.start[0], token.start[1], token.string, new)


def _other_number(text: str) -> str | None:
    if text.isdecimal():
        return str(int(text) + 1)
    try:
        return repr(float(text) * 1.5 or 0.5)
    except ValueError:
        return None


def is_noticed(mutation: Mutation, tests: tuple[str, ...], folder: Path) -> bool:
    """Tell whether the tests of its room fail with a mutation."""
    copy = folder / "copy"
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(source, copy / name)
    mutation.apply(copy)
    words = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=copy,
            env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True  # what never ends is seen by whoever waits
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return done.returncode != 0


def main(argv: list[str]) -> int:
    """Make mutations and print those that nobody noticed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutations", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=", ".join(ROOMS))
    parser.add_argument("--number", type=int, default=60, help="of mutations (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="another one: other mutations")
    arguments = parser.parse_args(argv)
    unknown = [room for room in arguments.rooms if room not in ROOMS]
    if unknown:
        parser.error(f"no room {unknown[0]!r}; there are {', '.join(ROOMS)}")
    chance = random.Random(arguments.seed)
    choices = [
        (mutation, ROOMS[room])
        for room in arguments.rooms or ROOMS
        for file in sorted((ROOT / "rater" / room).rglob("*.py"))
        for mutation in mutations_of(file.relative_to(ROOT))
    ]
    chosen = chance.sample(choices, min(arguments.number, len(choices)))
    noticed = 0
    for number, (mutation, tests) in enumerate(chosen, 1):
        with tempfile.TemporaryDirectory(prefix="rater-mutation-") as folder:
            is_seen = is_noticed(mutation, tests, Path(folder))
        noticed += is_seen
        print(f"{number:3} {'noticed' if is_seen else 'NOT NOTICED'}  {mutation}", flush=True)
    share = noticed / len(chosen)
    print(f"{noticed} of {len(chosen)} changes of one token were noticed ({share:.0%})")
    return 1 if share < _GOAL else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
