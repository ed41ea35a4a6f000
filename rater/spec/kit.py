"""Find the run directories that an installed SPEC CPU made, and read what is to be run there.

Run directories are made by `runcpu --action runsetup` (or `runspec`); a command
file in the directory of copy 0 says what every copy runs, and where. Names:
`run_TUNE_SIZE_LABEL.NNNN` (CPU2006 and later), plain numbers in CPU2000.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.plan.textfile import file_problem, is_file, read_text
from rater.plan.tomltable import did_you_mean
from rater.spec.speccmds import CommandFile, SpecCommand, parse_speccmds, words_of

COMMANDS = "speccmds.cmd"
COMPARE = "compare.cmd"
PREFIX = "spec:"
_RUN_DIR = re.compile(r"run_([^_.]+)_([^_.]+)_(.+)\.(\d{4,})")
# Where command files lie below a kit or --output_root, below benchspec, a suite, a benchmark, its
# `run`, and in a run directory itself.
_PLACES = ("benchspec/*/*/run/*", "*/*/run/*", "*/run/*", "run/*", "*", ".")
_MADE_BY = (
    "make run directories first: `runcpu --action runsetup ...` (CPU2006: `runspec --action "
    "setup`), in a shell with the kit's shrc"
)
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


@dataclass(frozen=True, slots=True)
class KitBenchmark:
    """One benchmark of a kit, as its command file says it is to be run."""

    run: KitRun
    directories: tuple[str, ...]  # by copy, absolute
    commands: CommandFile
    comparison: tuple[SpecCommand, ...]  # of the kit's own compare.cmd; empty: there is none
    root: Path | None  # the kit (what shrc calls $SPEC), where the path tells it
    reference_s: float | None
    remarks: tuple[str, ...]  # what a person should know of the above

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.run.benchmark


def find_runs(folder: str) -> tuple[KitRun, ...]:
    """Return every command file below a kit, a part of it, or in one run directory.

    The end of `folder` may name benchmarks: `KIT/429.mcf,403.gcc`. Raises
    `InputError` when there is none.
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
    for place in _PLACES:
        found = [run_of(file) for file in sorted(path.glob(f"{place}/{COMMANDS}"))]
        if found:
            break
    else:
        if wanted:
            raise InputError(f"{PREFIX}{folder}: no such folder")
        raise InputError(f"{PREFIX}{folder}: no {COMMANDS} in it or below; {_MADE_BY}")
    known = sorted({run.benchmark for run in found})
    for name in wanted:
        if name not in known:
            raise InputError(
                f"{PREFIX}{folder}: no such folder, and no run directory of {name} in {path}; "
                f"{did_you_mean(name, known)}"
            )
    return tuple(run for run in found if not wanted or run.benchmark in wanted)


def run_of(file: Path) -> KitRun:
    """Return what path and name of a command file say of it; raises `InputError`."""
    problem = file_problem(file)
    if problem:
        raise InputError(f"{problem}; expected a command file of specinvoke")
    file = file.absolute()
    return _named(file, file.parent, file.stat().st_mtime_ns)


def _named(file: Path, directory: Path, made_ns: int) -> KitRun:
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
    return tuple(chosen), tuple(notes)


def _is(found: str | None, asked: str | None, suffix: str = "") -> bool:
    return asked is None or found is None or found in (asked, asked + suffix)


def _listed(names: Iterable[str]) -> str:
    found = sorted(set(names))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more


def read_benchmark(run: KitRun) -> KitBenchmark:
    """Read a command file and what lies beside it; raises `InputError` naming file and line."""
    commands = parse_speccmds(_text(run.file), str(run.file))
    remarks = []
    own = run.file.parent
    directories = [_absolute(own, name) for name in commands.directories] or [own]
    first = directories[0]
    if run.file.name != COMMANDS and run.tune is None:
        # A copy of a command file lies anywhere: its directories know what it is of.
        run = _named(run.file, first, run.made_ns)
    elif not first.is_dir() and first.name == own.name:
        # All of a benchmark's run directories lie side by side; the tree was moved.
        directories = [own.parent / directory.name for directory in directories]
        remarks.append(
            f"{run.benchmark}: its command file names {first.parent}, which is not there; the "
            f"directories of these names beside it are used ({own.parent})"
        )
        first = own
    twice = sorted(str(one) for one, times in Counter(directories).items() if times > 1)
    if twice:
        raise InputError(
            f"{run.file}: two copies have the run directory {twice[0]}: each would overwrite "
            "what the other writes; make the run directories again"
        )
    comparison = _comparison(first / COMPARE)
    if not comparison:
        remarks.append(
            f"{run.benchmark}: outputs are not validated: no {COMPARE} in {first} (the kit's "
            "own tools write it when they validate a run there)"
        )
    return KitBenchmark(
        run=run,
        directories=tuple(map(str, directories)),
        commands=commands,
        comparison=comparison,
        root=_root(first),
        reference_s=_reference_s(first, run.size),
        remarks=tuple(remarks),
    )


def problems_of(kit: KitBenchmark, copies: int) -> tuple[str, ...]:
    """Say what stands in the way of running the first `copies` copies now."""
    said = []
    for copy, name in enumerate(kit.directories[:copies]):
        if not Path(name).is_dir():
            said.append(f"copy {copy} of {kit.name}: no run directory {name}; {_MADE_BY}")
        elif not os.access(name, os.W_OK | os.X_OK):
            said.append(f"copy {copy} of {kit.name}: no permission to write into {name}")
        if len(said) == _SHOWN:
            said.append(f"{kit.name}: and perhaps more")
            break
    return tuple(said)


def programs_of(kit: KitBenchmark) -> tuple[Path, ...]:
    """Return the programs of a benchmark that lie in the run directory of copy 0 or beside it."""
    first = kit.directories[0]
    found: dict[Path, None] = {}
    for command in kit.commands.commands:
        for word in words_of(command.text):
            # In `echo "../run_x/exe args" > run.sh ; ...` the program stands inside a word.
            for part in word.split()[:1]:
                file = Path(os.path.normpath(os.path.join(first, part)))  # noqa: PTH118 - `..`
                if "/" in part and is_file(file) and os.access(file, os.X_OK):
                    found[file] = None
    return tuple(found)


def compared_files(comparison: Sequence[SpecCommand]) -> tuple[str, ...]:
    """Return the outputs that comparing commands look at: the last word of each.

    `specdiff [options] EXPECTED OUTPUT`; those outside of the run directory left out.
    """
    words = [words_of(command.text) for command in comparison]
    last = dict.fromkeys(some[-1] for some in words if len(some) > 1)
    return tuple(name for name in last if not name.startswith(("/", "../")))


def is_command(bind: str) -> bool:
    """Tell whether a bind value is more than a list of CPUs: a command that binds by itself."""
    return re.fullmatch(r"[\d,-]+", bind.strip()) is None


def cpus_in(command: str) -> str | None:
    """Return the list of CPUs that a `numactl` or `taskset` command names; None: it does not."""
    match = re.search(
        r"(?:--physcpubind[= ]|numactl\b.*?\s-C\s*|taskset\b.*?(?:\s-c|--cpu-list)[= ]*)"
        r"(\d[\d,-]*)(?:\s|$)",
        command,
    )
    return match[1] if match else None


def _comparison(file: Path) -> tuple[SpecCommand, ...]:
    if not is_file(file):
        return ()
    return parse_speccmds(_text(file), str(file)).commands


def _text(file: Path) -> str:
    try:
        return read_text(file, "a command file")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error


def _absolute(own: Path, name: str) -> Path:
    return Path(os.path.normpath(own / name))  # `-C ../run_x.0001` is one directory


def _root(directory: Path) -> Path | None:
    for folder in directory.parents:
        if folder.name == "benchspec":
            return folder.parent
    return None


def _reference_s(directory: Path, size: str | None) -> float | None:
    """Return the reference time in `data/SIZE/reftime` of a benchmark, None where there is none.

    Two lines, `ref` and seconds (CPU2000, CPU2006), or `refrate SECONDS` (CPU2017), as a
    public runner reads them (github rrwhx/runspec).
    """
    if size is None or directory.parent.name != "run":
        return None
    file = directory.parent.parent / "data" / size / "reftime"
    try:
        words = read_text(file, "a reference time").split()
        value = float(words[words.index(size) + 1])
    except (OSError, ValueError, IndexError):
        return None
    return value if 0 < value < 1e9 else None
