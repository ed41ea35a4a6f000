"""Plays the workflow of docs/how-to/ci.md as GitHub does: `python -m benchmarks.workflow_page`.

A repository is made whose change is three times as slow: the workflow has to fail, and to leave
what it promises. With the same program it has to pass, or to say that it cannot judge.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree

PAGE: Final = Path(__file__).parent.parent / "docs" / "how-to" / "ci.md"
_MAKEFILE: Final = "bench: bench.sh\n\tcp bench.sh bench && chmod +x bench\n"
_OLD: Final = "#!/bin/sh\nsleep 0.02\n"
_SLOWER: Final = "#!/bin/sh\nsleep 0.06\n"
_STEP: Final = re.compile(r"^ {8}run: (?:\|\n((?:(?: {10}.*)?\n)+)|(.+)\n)", re.MULTILINE)


def steps() -> list[str]:
    """Return the commands of the steps of the page's workflow."""
    text = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert text, f"{PAGE} has no workflow"
    return [textwrap.dedent(block) or line for block, line in _STEP.findall(text[1])]


def _git(folder: Path, *words: str) -> None:
    names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def _make_repository(folder: Path, new_program: str) -> Path:
    """Return a clone of a repository with the old program; its own tree has a new one."""
    origin = folder / "origin"
    origin.mkdir()
    _git(origin, "init")
    (origin / "Makefile").write_text(_MAKEFILE)
    (origin / "bench.sh").write_text(_OLD)
    _git(origin, "add", ".")
    _git(origin, "commit", "-m", "old")
    _git(folder, "clone", "-q", str(origin), "change")
    (folder / "change" / "bench.sh").write_text(new_program)
    return folder / "change"


def play(folder: Path) -> tuple[int, str]:
    """Run each step in a shell of its own, up to one that fails; return its status, and the output.

    What installs rater is left out: the rater of this environment is measured.
    """
    settings = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "RATER_DB": str(folder / "rater.db"),
        "GITHUB_BASE_REF": "main",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
    }
    output = ""
    for step in steps():
        if "pip install" not in step:
            done = subprocess.run(
                ["bash", "-e", "-o", "pipefail", "-c", step],
                cwd=folder,
                env=os.environ | settings,
                capture_output=True,
                text=True,
                check=False,
            )
            output += done.stdout + done.stderr
            if done.returncode:
                return done.returncode, output
    return 0, output


def main() -> int:
    """Play both changes; return 1 where one does not end as the page says."""
    status = 0
    for name, program, expected in (("slower", _SLOWER, 1), ("the same", _OLD, 0)):
        with TemporaryDirectory() as folder:
            clone = _make_repository(Path(folder), program)
            ended, output = play(clone)
            files = [clone / "rater.xml", clone / "rater.html", clone / "summary.md"]
            lacking = [file.name for file in files if not file.exists()]
            failures = "?" if lacking else ElementTree.parse(files[0]).getroot().get("failures")
        is_right = ended == expected and not lacking and failures == str(expected)
        print(f"{name}: exit {ended}, {failures} failures: {'right' if is_right else 'WRONG'}")
        if not is_right:
            print(output, *lacking, sep="\n", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
