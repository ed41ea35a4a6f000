"""Make every output and picture of README and `docs/` anew, from real runs: `make captures`.

A block of a page that follows `<!-- capture SCENE -->` has commands (`$ rater ...`) and their
output. They are typed into a terminal of 80 columns, in the order of the pages, in the scene's
folder with a database of its own; new output replaces the old. `<!-- capture SCENE: N
lines -->` keeps the first N lines of each command. Pictures are of the runs of the scenes.

    python -m benchmarks.captures [SCENE ...]

The scenes `guest` (a slow NUMA node) and `fleet` (a slow host) need root, QEMU and Slurm, and the
scripts that RATER_TEST_DATA has: see `tests/end_to_end`. A scene that cannot be made is named, and
its blocks stay as they are.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.browser import Browser, chromium
from tests.support.places import CHECKOUT, TEST_DATA
from tests.test_docs import PAGES

_BLOCK = re.compile(
    r"(<!-- capture (?P<scene>[\w-]+)(?:: (?P<lines>\d+) lines)? -->\n+```\w*\n)"
    r"(?P<text>.*?)(?=^```$)",
    re.M | re.S,
)
_LONGEST_S = 1500.0
IMAGES = CHECKOUT / "docs" / "images"
PROGRAM = Path(sys.executable).with_name("rater")


@dataclass
class Block:
    """A captured block of a page."""

    page: Path
    scene: str
    lines: int | None
    commands: list[str]


def blocks(page: Path) -> list[Block]:
    """Return the captured blocks of a page, in its order."""
    return [
        Block(page, it["scene"], int(it["lines"]) if it["lines"] else None, typed(it["text"]))
        for it in _BLOCK.finditer(page.read_text())
    ]


def typed(text: str) -> list[str]:
    """Return the commands of a block; one that ends with a backslash goes on in the next line."""
    joined = text.replace("\\\n", "\\\0")
    return [
        line.removeprefix("$ ").replace("\\\0", "\\\n")
        for line in joined.splitlines()
        if line.startswith("$ ")
    ]


def replaced(page: Path, shown: dict[int, str]) -> None:
    """Write a page with the new text of its captured blocks, by their place."""
    places = iter(range(10_000))

    def new(match: re.Match[str]) -> str:
        return match[1] + shown.get(next(places), match["text"])

    page.write_text(_BLOCK.sub(new, page.read_text()))


# -- Where commands run ----------------------------------------------------------------------------


def on_a_terminal(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a shell command; return what a screen of 80 columns has of it, errors where it failed."""
    reader, screen = pty.openpty()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            ["sh", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=screen,
            stderr=errors,
        )
        os.close(screen)
        parts: list[bytes] = []
        while select.select([reader], [], [], _LONGEST_S)[0]:
            with suppress(OSError):  # nobody writes any more
                if part := os.read(reader, 1 << 16):
                    parts.append(part)
                    continue
            break
        os.close(reader)
        status = process.wait(_LONGEST_S)
        errors.seek(0)
        said = errors.read()
    text = b"".join(parts).decode().replace("\r\n", "\n")
    return text + (said if status else "")


@dataclass
class Scene:
    """A folder with what its commands need; `here` runs one after the other on this machine."""

    folder: Path
    stack: ExitStack
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "rater").symlink_to(PROGRAM)
        names = ("DB", "LOCK", "JOURNAL", "CACHE")
        variables = {f"RATER_{name}": str(self.folder / name.lower()) for name in names}
        self.environment = {
            **{
                key: value
                for key, value in os.environ.items()
                if not key.startswith(("RATER_", "SLURM_"))
            },
            **variables,
            **{"RATER_CONFIG": "", "COLUMNS": "80", "LINES": "24", "TERM": "dumb"},
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
        }

    def sh(self, command: str) -> str:
        """Run a command that no page shows."""
        return subprocess.run(
            ["sh", "-ec", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=_LONGEST_S,
        ).stdout

    def run(self, commands: Sequence[str]) -> list[str]:
        """Return what each command printed."""
        return [on_a_terminal(command, self.folder, self.environment) for command in commands]


def first_run(scene: Scene) -> None:
    """Build the suite beforehand: a tutorial begins with a run."""
    scene.sh("rater suites check mini >/dev/null")


def own_program(scene: Scene) -> None:
    """A file that takes xz a second or two."""
    scene.sh("seq 1 4000000 > big.txt")


def disturbed(scene: Scene) -> None:
    """A busy loop on CPU 1, all the time."""
    first_run(scene)
    loop = subprocess.Popen(["taskset", "-c", "1", "sh", "-c", "while :; do :; done"])
    scene.stack.callback(loop.wait)
    scene.stack.callback(loop.kill)


def nightly(scene: Scene) -> None:
    """What the tutorial says to type and to write."""
    page = (CHECKOUT / "docs/tutorials/own-suite.md").read_text()
    fences = re.findall(r"^```\w*\n(.*?)^```$", page, re.M | re.S)
    scene.sh(next(fence for fence in fences if fence.startswith("mkdir nightly")))
    suite = next(fence for fence in fences if fence.startswith("# nightly.toml"))
    (scene.folder / "nightly" / "nightly.toml").write_text(
        suite.replace('stdin = "report.sql"', 'stdin = "report.sql"\nreference_s = 0.29')
    )
    scene.folder /= "nightly"


def merge(scene: Scene) -> None:
    """Databases of two hosts, and a file that is none."""
    for name in ("n1", "n2"):
        scene.sh(f"rater --db {name}.db run --quiet --copies 2 -- true")
    (scene.folder / "n3.db").write_text("no database\n")


class Guest(Scene):
    """Four NUMA nodes of two CPUs in QEMU; a copy on node 2 has a quarter more to do."""

    def run(self, commands: Sequence[str]) -> list[str]:
        """Boot once and type all commands there."""
        guest = TEST_DATA / "numa-guest" / "guest.sh"
        shared = self.folder / "shared"
        shared.mkdir()
        (shared / "mybench").write_text(_PLANTED)
        (shared / "mybench").chmod(0o755)
        (shared / "typed.json").write_text(json.dumps(list(commands)))
        (shared / "driver.py").write_text(_DRIVER)
        folders = {CHECKOUT, Path(sys.prefix), Path(sys.base_prefix), self.folder}
        bound = [word for path in sorted(folders) for word in ("--bind", str(path))]
        kept = {
            f"RATER_{name}": f"/dev/shm/{name.lower()}"
            for name in ("DB", "LOCK", "CACHE", "JOURNAL")
        }
        variables = {
            **{"PYTHONPATH": str(CHECKOUT), "COLUMNS": "80", "LINES": "24", "TERM": "dumb"},
            **{**kept, "RATER_CONFIG": ""},
        }
        set_ = [word for pair in variables.items() for word in ("--env", "=".join(pair))]
        limit = ["--timeout", str(round(_LONGEST_S))]
        program = [sys.executable, str(shared / "driver.py"), str(PROGRAM)]
        subprocess.run(
            ["bash", str(guest), *limit, "--cwd", str(shared), *bound, "--share", str(shared),
             *set_, "--", *program],
            check=True, timeout=_LONGEST_S + 60, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self.environment["RATER_DB"] = str(shared / "db")
        shown: list[str] = json.loads((shared / "shown.json").read_text())
        return shown


_PLANTED = """\
#!/bin/sh
# A copy on NUMA node 2 takes a quarter longer.
[ "$RATER_NODE" = 2 ] && exec sleep 6.25
exec sleep 5
"""
_DRIVER = """\
import json, os, shutil, subprocess, sys
os.makedirs("/tmp/bin")
os.symlink(sys.argv[1], "/tmp/bin/rater")
os.environ["PATH"] = "/tmp/bin:" + os.environ["PATH"]
shown = []
for command in json.load(open("typed.json")):
    print(command, file=sys.stderr, flush=True)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    shown.append(done.stdout + (done.stderr if done.returncode else ""))
    json.dump(shown, open("shown.json", "w"))
shutil.copy(os.environ["RATER_DB"], "db")
"""


def fleet(scene: Scene) -> None:
    """Four Slurm nodes on this machine; n3 may use 0.4 of a CPU."""
    script = TEST_DATA / "slurm" / "cluster.sh"
    bar = scene.folder / "bar"

    def cluster(*words: str) -> None:
        subprocess.run(
            ["bash", script, words[0], bar, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
            timeout=120,
        )

    scene.stack.callback(cluster, "purge")
    cluster("up", "4")
    cluster("node-slow", "n3", "40")
    for node in ("n1", "n2", "n3", "n4"):
        (bar / "shared/locks" / node).mkdir(parents=True)
        (bar / "nodes" / node / "local/own").symlink_to(bar / "shared/locks" / node)
    (bar / "local").mkdir(exist_ok=True)
    scene.environment |= {
        "SLURM_CONF": str(bar / "etc/slurm.conf"),
        "RATER_FLEETS": str(bar / "shared"),
        "RATER_LOCK": str(bar / "local/own/rater.lock"),
    }


def nothing(scene: Scene) -> None:
    """An empty folder."""


SCENES: dict[str, tuple[type[Scene], Callable[[Scene], None]]] = {
    "first-run": (Scene, first_run),
    "own-program": (Scene, own_program),
    "disturbed": (Scene, disturbed),
    "nightly": (Scene, nightly),
    "sweep": (Scene, first_run),
    "compare": (Scene, own_program),
    "merge": (Scene, merge),
    "doctor": (Scene, nothing),
    "guest": (Guest, nothing),
    "fleet": (Scene, fleet),
}


# -- Pictures --------------------------------------------------------------------------------------


def pictures(scene: Scene) -> None:
    """Draw the report of the guest's run, as pages show it."""
    program = chromium()
    if program is None:
        raise RuntimeError("no Chromium")
    report = scene.folder / "report.html"
    scene.sh(f"rater report 1 -o {report} --force")
    with Browser(program) as browser:
        for name, width, height, dark in (
            ("report", 1200, 1000, False),
            ("report-node-dark", 1200, 1000, True),
            ("report-phone", 390, 844, False),
        ):
            browser.screen(width, height, dark=dark)
            browser.open(report)
            if dark:
                browser.click("a[data-pick]")
            browser.frame()
            (IMAGES / f"{name}.png").write_bytes(browser.picture())


@contextmanager
def opened(name: str) -> Iterator[Scene]:
    """Set a scene up; take it down afterwards."""
    kind, prepare = SCENES[name]
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="rater-", dir="/var/tmp"))
        )
        scene = kind(folder, stack)
        prepare(scene)
        yield scene


def capture(name: str, blocks: Sequence[Block]) -> list[str]:
    """Return the new text of each block of a scene."""
    commands = [command for block in blocks for command in block.commands]
    with opened(name) as scene:
        shown = iter(scene.run(commands))
        texts = [
            "".join(f"$ {command}\n{_cut(next(shown), block.lines)}" for command in block.commands)
            for block in blocks
        ]
        if name == "guest":
            pictures(scene)
        return [text.replace(f"{scene.folder}/", "") for text in texts]


def _cut(text: str, lines: int | None) -> str:
    every = [line.rstrip() for line in text.strip("\n").splitlines()]
    kept = every if lines is None or len(every) <= lines else [*every[:lines], "..."]
    return "".join(f"{line}\n" for line in kept)


def main() -> int:
    """Return 1 where a scene could not be made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenes", metavar="SCENE", nargs="*", choices=[*SCENES, []])
    wanted = parser.parse_args().scenes or [*SCENES]
    pages = {page: blocks(page) for page in PAGES}
    shown: dict[Path, dict[int, str]] = {page: {} for page in pages}
    failed = []
    for name in wanted:
        places = [
            (page, number)
            for page, of in pages.items()
            for number, it in enumerate(of)
            if it.scene == name
        ]
        # Tutorials first: other pages show the runs that tutorials made.
        places.sort(key=lambda it: "tutorials" not in it[0].parts)
        if not places:
            continue
        print(f"{name}: {len(places)} blocks", flush=True)
        try:
            texts = capture(name, [pages[page][number] for page, number in places])
        except (OSError, RuntimeError, StopIteration, subprocess.SubprocessError) as error:
            print(f"{name}: not made: {error}", file=sys.stderr)
            failed.append(name)
            continue
        for (page, number), text in zip(places, texts, strict=True):
            shown[page][number] = text
        for page in {page for page, _ in places}:
            replaced(page, shown[page])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
