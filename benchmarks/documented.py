"""Run every command line of README and `docs/`, each as it stands: `make docs` fails if one does.

In a scratch folder with the files they name, a database of runs and sweeps, and `dry-run = true` as
the default of what would start copies (RATER_CONFIG). A documented command may find its copies
failing or too disturbed to judge, or lack what this machine does not have (`_LACKING`).

    python -m benchmarks.documented [PAGE ...]
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rater.plan.counter_tables import load_table, table_names
from tests.support.places import CHECKOUT
from tests.test_docs import PAGES, commands

_DEFAULTS = "".join(f"[{name}]\ndry-run = true\n" for name in ("run", "rerun", "sweep"))
# What cannot be had on any machine that runs this, with the reason.
_NOT_HERE = {
    "spec": "an installed SPEC CPU, or its result files",
    "fleet": "a cluster; tests/end_to_end has one on this machine",
    "lint-bind": "a configuration of SPEC CPU",
    "selftest": "minutes of a quiet machine; tests/workflow has it",
    "lab ": "minutes; tests/lab has it",
}
# What a command says that is right, where the machine or the database has not what the page names.
_LACKING = re.compile(
    r"no such (file|run|sweep)|cannot (be )?read|there is no (database|topology file)|"
    r"are not there|has no node|names no node|no CPI stack|no divots to confirm|"
    r"is no benchmark of it|it has no table \[axes\]|another run holds|no runs? in"
)


_ABSENT_GROUP = re.compile(r"the table \S+ has no group '([^']*)'")


def lacks_what_is_named(message: str) -> bool:
    """Tell whether a refusal is right: this machine or database has not what the page names.

    A group of counters is right if the table of any processor has it.
    """
    words = " ".join(message.split())
    if absent := _ABSENT_GROUP.search(words):
        tables = map(load_table, table_names())
        return any(group.name == absent[1] for table in tables for group in table.groups)
    return bool(_LACKING.search(words))


def _prepare(folder: Path, environment: dict[str, str]) -> None:
    """Make what pages name: a program, files, runs 1 to 15, a sweep."""
    (folder / "mybench").write_text("#!/bin/sh\nsleep 0.01\n")
    (folder / "mybench").chmod(0o755)
    (folder / "bench").symlink_to("mybench")
    (folder / "big.txt").write_text("line\n" * 10_000)
    quiet = {**environment, "RATER_CONFIG": ""}
    rater = [sys.executable, "-m", "rater"]

    def run(*words: str) -> None:
        subprocess.run([*rater, *words], cwd=folder, env=quiet, check=True, capture_output=True)

    for number in range(9):
        tag = f"build={'old' if number % 2 else 'new'}"
        run("run", "--quiet", "--copies", "2", "--tag", tag, "--", "./mybench")
    run("sweep", "--quiet", "--axis", "copies=1,2", "--rounds", "3", "--", "./mybench")
    run("suites", "new", "nightly")


def _skipped(line: str) -> str | None:
    words = " ".join(shlex.split(line, comments=True))
    return next((why for word, why in _NOT_HERE.items() if word in words), None)


def _lines(pages: list[Path]) -> Iterator[tuple[Path, str]]:
    for page in pages:
        for line in commands(page.read_text()):
            yield page, line


def main() -> int:
    """Return 1 if a documented command fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", metavar="PAGE", type=Path, nargs="*", default=PAGES)
    pages = parser.parse_args().pages
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "defaults.toml").write_text(_DEFAULTS)
        environment = {
            **os.environ,
            **{f"RATER_{it}": str(folder / it.lower()) for it in ("DB", "LOCK", "JOURNAL")},
            "RATER_CONFIG": str(folder / "defaults.toml"),
            "PYTHONPATH": str(CHECKOUT),
        }
        _prepare(folder, environment)
        ran, refused, lacking, skipped = 0, 0, 0, 0
        for page, line in _lines(pages):
            if _skipped(line):
                skipped += 1
                continue
            command = line.replace("rater ", f"{shlex.quote(sys.executable)} -m rater ", 1)
            try:
                done = subprocess.run(
                    ["sh", "-c", command],
                    cwd=folder,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                print(f"{page.relative_to(CHECKOUT)}: {line}: longer than 120 s")
                refused += 1
                continue
            ran += 1
            if done.returncode not in (0, 1, 3):
                if lacks_what_is_named(done.stderr):
                    lacking += 1
                    continue
                refused += 1
                why = done.stderr.strip().splitlines()[-1:] or [""]
                print(f"{page.relative_to(CHECKOUT)}: {line}\n    {done.returncode}: {why[0]}")
    print(
        f"{ran} commands of the pages ran: {refused} failed, {lacking} name what is not here; "
        f"{skipped} were not tried"
    )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
