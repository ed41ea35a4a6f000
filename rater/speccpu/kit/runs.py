"""Find the run directories that an installed SPEC CPU made, and choose among them.

Run directories are made by `runcpu --action runsetup` (or `runspec`); a command
file in the directory of copy 0 says what every copy runs, and where. Names:
`run_TUNE_SIZE_LABEL.NNNN` (CPU2006 and later), plain numbers in CPU2000.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.text.document import did_you_mean
from rater.text.textfile import file_problem
from rater.text.words import some

COMMANDS = "speccmds.cmd"
PREFIX = "spec:"
MADE_BY = (
    "make run directories first: `runcpu --action runsetup ...` (CPU2006: `runspec --action "
    "setup`), in a shell with the kit's shrc"
)
_RUN_DIR = re.compile(r"run_([^_.]+)_([^_.]+)_(.+)\.(\d{4,})")
# Where command files lie below a kit or --output_root, below benchspec, a suite, a benchmark, its
# `run`, and in a run directory itself.
_PLACES = ("benchspec/*/*/run/*", "*/*/run/*", "*/run/*", "run/*", "*", ".")
_SHOWN = 6  # names in an error


@dataclass(frozen=True, slots=True)
class KitRun:
    """A command file, and what the names around it say of it."""

    file: Path  # absolute
    benchmark: str  # 429.mcf
    tune: str | None  # base or peak; None: the directory's name does not say
    size: str | None  # test, train, ref, refrate; None as above
    label: str | None
    number: int  # of the directory of copy 0
    made_ns: int  # when the file was written


def find_runs(folder: str) -> tuple[tuple[KitRun, ...], tuple[str, ...]]:
    """Return every command file below a kit, a part of it, or in one run directory.

    With them come words on folders that may not be looked into. The end of `folder` may name
    benchmarks: `KIT/429.mcf,403.gcc`. Raises `InputError` when there is none.
    """
    path = Path(folder)
    wanted: tuple[str, ...] = ()
    if not os.path.lexists(path) and path.parent.is_dir():
        wanted = tuple(name for name in path.name.split(",") if name)
        path = path.parent
    if path.is_file():
        raise InputError(
            f"{PREFIX}{folder}: a file; expected a kit, a run directory or a folder of them "
            f"(--speccmds {folder} takes a command file)"
        )
    if not path.is_dir():
        raise InputError(f"{PREFIX}{folder}: no such folder")
    ever: list[Path] = []
    for place in _PLACES:
        closed: list[Path] = []
        parts = [part for part in place.split("/") if part != "."]
        found = [run_of(file) for file in _below(path, parts, closed)]
        if found:
            break
        ever += closed
    else:
        if ever:
            raise InputError(
                f"{PREFIX}{folder}: no {COMMANDS} found, and no permission to look into "
                f"{_listed(map(str, ever))}"
            )
        if wanted:
            raise InputError(f"{PREFIX}{folder}: no such folder")
        raise InputError(f"{PREFIX}{folder}: no {COMMANDS} in it or below; {MADE_BY}")
    notes: tuple[str, ...] = ()
    if closed:
        notes = (
            f"left out: no permission to look into {_listed(map(str, closed))}: what is there "
            "is not run",
        )
    known = sorted({run.benchmark for run in found})
    for name in wanted:
        if name not in known:
            raise InputError(
                f"{PREFIX}{folder}: no such folder, and no run directory of {name} in {path}; "
                + (notes[0] if notes else did_you_mean(name, known))
            )
    return tuple(run for run in found if not wanted or run.benchmark in wanted), notes


def _below(folder: Path, parts: Sequence[str], closed: list[Path]) -> list[Path]:
    """Return the command files in folders of these names (`*`: any), in order.

    What may not be looked into is added to `closed`: `Path.glob` would pass over it.
    """
    try:
        if not parts:
            return [folder / COMMANDS] if (folder / COMMANDS).is_file() else []
        if parts[0] != "*":
            inside = [folder / parts[0]] if (folder / parts[0]).is_dir() else []
        else:
            with os.scandir(folder) as entries:
                inside = sorted(Path(entry) for entry in entries if entry.is_dir())
    except PermissionError:
        closed.append(folder)
        return []
    except OSError:  # gone since, or no folder that can be read at all
        return []
    return [file for one in inside for file in _below(one, parts[1:], closed)]


def run_of(file: Path) -> KitRun:
    """Return what path and name of a command file say of it; raises `InputError`."""
    problem = file_problem(file)
    if problem:
        raise InputError(f"{problem}; expected a command file of specinvoke")
    file = file.absolute()
    return named_run(file, file.parent, file.stat().st_mtime_ns)


def named_run(file: Path, directory: Path, made_ns: int) -> KitRun:
    """Return what the names of a command file and of its run directory say."""
    match = _RUN_DIR.fullmatch(directory.name)
    if directory.parent.name == "run":
        name = directory.parent.parent.name
    elif file.name == COMMANDS:
        name = directory.name
    else:
        name = file.name.removesuffix(".cmd").removesuffix(".speccmds")
    if match is None:
        number = int(directory.name) if directory.name.isdecimal() else 0
        return KitRun(file, name or "speccmds", None, None, None, number, made_ns)
    tune, size, label = match[1], match[2], match[3]
    return KitRun(file, name, tune, size, label, int(match[4]), made_ns)


def newest_runs(
    runs: Sequence[KitRun], size: str | None, tune: str | None, where: str
) -> tuple[tuple[KitRun, ...], tuple[str, ...]]:
    """Return the newest run of each benchmark, and in words where there were older ones.

    `size` and `tune` (None: not asked for) choose; `ref` means `refrate` as well.
    Raises `InputError` where there is a choice that nobody made.
    """
    fitting = [run for run in runs if _is(run.size, size, "rate") and _is(run.tune, tune)]
    if not fitting:
        asked = " ".join(
            f"--{name} {value}" for name, value in (("size", size), ("tune", tune)) if value
        )
        there = _listed(f"{run.tune} {run.size}" for run in runs if run.size)
        raise InputError(f"{where}: no run directory for {asked}; there are: {there or 'unnamed'}")
    for what, values in (
        ("size", {run.size for run in fitting if run.size}),
        ("tune", {run.tune for run in fitting if run.tune}),
    ):
        if len(values) > 1:
            raise InputError(
                f"{where}: run directories of {what}s {_listed(values)}; choose one with --{what}"
            )
    by_name: dict[str, list[KitRun]] = {}
    for run in fitting:
        by_name.setdefault(run.benchmark, []).append(run)
    chosen, notes = [], []
    for name, several in by_name.items():
        *older, newest = sorted(several, key=lambda run: (run.made_ns, run.number))
        chosen.append(newest)
        if older:
            notes.append(
                f"{name}: {newest.file.parent.name} is the newest of {len(several)} run "
                "directories with a command file, and is the one that is run"
            )
    if len(notes) > 1:
        several = [run for run in chosen if len(by_name[run.benchmark]) > 1]
        names = [f"{run.benchmark}: {run.file.parent.name}" for run in several]
        notes = [
            f"{len(notes)} benchmarks have several run directories with a command file: the "
            f"newest of each is run ({_listed(names)})"
        ]
    return tuple(chosen), tuple(notes)


def _is(found: str | None, asked: str | None, suffix: str = "") -> bool:
    return asked is None or found is None or found in (asked, asked + suffix)


def _listed(names: Iterable[str]) -> str:
    return some(sorted(set(names)), _SHOWN)
