"""The pictures of docs/: pages of `rater report` and the live view, from real runs, as PNG.

`python -m benchmarks.screenshots [FOLDER]` makes a large synthetic run (143 copies x 29
benchmarks x 3 iterations with a slow lgroup), imports the 64-copy SPEC sample where it
lies, and runs suite mini here; it prints how long each page took to write and to draw.
Needs chromium, tmux and the extra `rater[report]`.
"""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from tests.support.browser import Browser, chromium

SHARED = Path(__file__).resolve().parents[2] / "shared"  # data of others, where it lies
SPEC_SAMPLE = SHARED / "spec-samples" / "CINT2006-64copies.rsf"
_RATER = [sys.executable, "-m", "rater"]
_DRAWN = "document.documentElement.dataset.drawnMs"
_NODES, _PER_NODE, _COPIES = 8, 18, 143
_NAMES = (
    *("400.perlbench", "401.bzip2", "403.gcc", "429.mcf", "445.gobmk"),
    *("456.hmmer", "458.sjeng", "462.libquantum", "464.h264ref", "471.omnetpp"),
    *("473.astar", "483.xalancbmk", "410.bwaves", "416.gamess", "433.milc"),
    *("434.zeusmp", "435.gromacs", "436.cactusADM", "437.leslie3d", "444.namd"),
    *("447.dealII", "450.soplex", "453.povray", "454.calculix", "459.GemsFDTD"),
    *("465.tonto", "470.lbm", "481.wrf", "482.sphinx3"),
)
_LIVE = "mini/words mini/sort mini/lu --copies 24 --size test --iterations 2"
_LIVE_SIZE = 100, 20
_LEAST_DONE = 5


@dataclass
class Shot:
    """One picture: a page in a window of this size, after these steps in the page."""

    name: str
    page: Path
    width: int
    height: int
    dark: bool = False
    steps: Sequence[str] = field(default_factory=tuple)


def large_run(seed: int = 7) -> dict[str, object]:
    """12,441 copy runs as an observations document: lgroup 5 slow by what each one needs of it.

    With a slow CPU (77), one long copy, and a second lgroup that is slow in 429.mcf alone.
    """
    chance = random.Random(seed)
    base = {name: chance.uniform(400, 1500) for name in _NAMES}
    hurt = {name: chance.uniform(0, 0.25) for name in _NAMES}
    observations = []
    at = 0.0
    for iteration in (1, 2, 3):
        for name in _NAMES:
            times = []
            for copy in range(_COPIES):
                elapsed_s = base[name] * (1 + chance.gauss(0, 0.004))
                elapsed_s *= 1 + hurt[name] if copy // _PER_NODE == 5 else 1
                elapsed_s *= 1.08 if name == "429.mcf" and copy // _PER_NODE == 2 else 1
                elapsed_s *= 1.04 if copy == 77 else 1
                elapsed_s *= 1.9 if (name, iteration, copy) == ("473.astar", 2, 20) else 1
                times.append(elapsed_s)
            observations += [
                {
                    "benchmark": name,
                    "iteration": iteration,
                    "copy": copy,
                    "cpu": copy,
                    "core": copy,
                    "node": copy // _PER_NODE,
                    "package": copy // _PER_NODE // 4,
                    "start_s": at + 2e-4 * copy,
                    "elapsed_s": elapsed_s,
                }
                for copy, elapsed_s in enumerate(times)
            ]
            at += max(times) + 3
    pus = _NODES * _PER_NODE
    run = {"uuid": "large-143x29x3", "host": "synthetic", "mode": "homogeneous", "copies": _COPIES}
    return {
        "rater": 1,
        "run": run | {"started_at": "2026-11-20T12:00:00Z"},
        "topology": {
            "nodes": {str(n): [*range(n * _PER_NODE, (n + 1) * _PER_NODE)] for n in range(_NODES)},
            "cores": {str(cpu): [cpu] for cpu in range(pus)},
            "packages": {"0": [*range(pus // 2)], "1": [*range(pus // 2, pus)]},
        },
        "observations": observations,
    }


def main() -> int:
    """Make all pictures that can be made here; return the exit status."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs")
    program = chromium()
    if program is None:
        print("screenshots: there is no chromium here", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="rater-shots-") as name:
        scratch = Path(name)
        os.environ |= {
            "RATER_DB": f"{scratch}/rater.db",
            "RATER_LOCK": f"{scratch}/lock",
            "RATER_CACHE": f"{scratch}/cache",
        }
        pages = {"large": _large(scratch), "own": _own(scratch)}
        if SPEC_SAMPLE.is_file():
            _rater("import", "spec", str(SPEC_SAMPLE))
            pages["spec"] = _report(scratch / "spec.html")
        live = _live_page(scratch)
        with Browser(program) as browser:
            for shot in _shots(pages, live):
                _take(browser, shot, folder)
    return 0


def _shots(pages: dict[str, Path], live: Path) -> list[Shot]:
    large, own = pages["large"], pages["own"]
    lgroup = "document.querySelector('[data-node=\"5\"]').click()"
    panels = "document.getElementById('pictures').scrollIntoView()"
    when = "document.getElementById('when').scrollIntoView()"
    second = (
        "(s => { s.value = '32'; s.dispatchEvent(new Event('change')); })"
        "(document.getElementById('bracket'))"
    )
    shots = [
        Shot("report-large", large, 1400, 1400),
        Shot("report-large-lgroup-dark", large, 1400, 1300, dark=True, steps=(lgroup, panels)),
        Shot("report-large-time", large, 1400, 1250, steps=(when, second)),
        Shot("report-large-phone", large, 390, 1400, steps=(panels,)),
        Shot("report-own", own, 1400, 1500),
        Shot("live", live, 860, 420),
    ]
    if "spec" in pages:
        shots.insert(4, Shot("report-spec", pages["spec"], 1400, 1300))
    return shots


def _rater(*words: str) -> str:
    done = subprocess.run([*_RATER, *words], check=True, capture_output=True, text=True)
    return done.stdout


def _report(path: Path) -> Path:
    began = time.monotonic()
    _rater("report", "last", "-o", str(path))
    took_s = time.monotonic() - began
    print(f"{path.name}: written in {took_s:.1f} s, {path.stat().st_size / 1e6:.2f} MB")
    return path


def _large(scratch: Path) -> Path:
    file = scratch / "large.json"
    file.write_text(json.dumps(large_run()))
    _rater("import", str(file))
    return _report(scratch / "large.html")


def _own(scratch: Path) -> Path:
    _rater("run", "mini", "--size", "test", "--iterations", "3", "--quiet")
    return _report(scratch / "own.html")


def _take(browser: Browser, shot: Shot, folder: Path) -> None:
    browser.events.clear()
    browser.screen(shot.width, shot.height, dark=shot.dark)
    browser.open(shot.page)
    if shot.name != "live":
        browser.wait(lambda: browser.js(_DRAWN), f"{shot.name} is not drawn")
    for step in shot.steps:
        browser.js(step)
        browser.frame()
    if shot.name == "live":  # as high as what stands there
        browser.screen(shot.width, int(browser.js("document.body.scrollHeight")) + 32)
    drawn = f", drawn in {browser.js(_DRAWN)} ms" if shot.name != "live" else ""
    image = Image.open(io.BytesIO(browser.picture()))
    path = folder / f"{shot.name}.png"
    few = image.convert("RGB").quantize(256, kmeans=2, dither=Image.Dither.NONE)
    few.save(path, optimize=True)  # a third of the size, and nobody sees it
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB{drawn}")


def _live_page(scratch: Path) -> Path:
    """Run rater in a terminal of tmux's, take what stands there, and return it as a page."""
    tmux = ["tmux", "-L", f"rater-shots-{os.getpid()}", "-f", "/dev/null"]
    wide, high = _LIVE_SIZE
    command = f"{shlex.join(_RATER)} run {_LIVE}"
    subprocess.run(
        [*tmux, "new-session", "-d", "-x", str(wide), "-y", str(high), command], check=True
    )
    taken = ""
    try:
        while True:
            time.sleep(0.3)
            seen = subprocess.run(
                [*tmux, "capture-pane", "-p", "-e"], capture_output=True, text=True, check=False
            )
            if seen.returncode:  # the run has ended, and its terminal with it
                break
            taken = seen.stdout if "phase" in seen.stdout else taken
            if _done(seen.stdout) >= _LEAST_DONE and "phase 1 of" not in seen.stdout:
                break
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
    console = Console(record=True, width=wide, file=io.StringIO(), force_terminal=True)
    lines = taken.rstrip().splitlines()
    first = next((i for i, line in enumerate(lines) if "benchmarks" in line), 0)
    console.print(Text.from_ansi("\n".join(lines[first:])), soft_wrap=True, highlight=False)
    form = (
        "<!DOCTYPE html><meta charset=utf-8><style>{stylesheet}"
        "body{{margin:1rem;color:{foreground};background:{background};}}"
        "pre{{margin:0;font:14px/1.35 'DejaVu Sans Mono',monospace}}</style>"
        "<pre>{code}</pre>"
    )
    path = scratch / "live.html"
    path.write_text(console.export_html(code_format=form, theme=DIMMED_MONOKAI))
    return path


def _done(screen: str) -> int:
    """How many copies are done, as the live view tells it."""
    plain = Text.from_ansi(screen).plain
    words = plain.partition(" done")[0].split()
    return int(words[-1]) if " done" in plain and words[-1].isdigit() else 0


if __name__ == "__main__":
    raise SystemExit(main())
