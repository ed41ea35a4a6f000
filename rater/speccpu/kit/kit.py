"""Find the run directories that an installed SPEC CPU made, and read what is to be run there.

Run directories are made by `runcpu --action runsetup` (or `runspec`); a command
file in the directory of copy 0 says what every copy runs, and where. Names:
`run_TUNE_SIZE_LABEL.NNNN` (CPU2006 and later), plain numbers in CPU2000.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rater.errors import InputError
from rater.speccpu.kit.speccmds import CommandFile, SpecCommand, parse_speccmds, words_of
from rater.text.document import did_you_mean
from rater.text.textfile import file_problem, is_file, read_text
from rater.text.words import some

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
    comparison_environment: tuple[tuple[str, str], ...]  # its -E
    root: Path | None  # the kit (what shrc calls $SPEC), where the path tells it
    reference_s: float | None
    remarks: tuple[str, ...]  # what a person should know of the above

    @property
    def name(self) -> str:
        """The benchmark's name."""
        return self.run.benchmark


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
        raise InputError(f"{PREFIX}{folder}: no {COMMANDS} in it or below; {_MADE_BY}")
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
    elif first.name == own.name and not _is_same(first, own):
        # All of a benchmark's run directories lie side by side; the tree was moved or copied.
        beside = [own.parent / directory.name for directory in directories]
        named = _root(first) or first.parent
        is_there = _is_folder(first)
        if not is_there or all(map(_is_folder, beside)):
            there = "is another tree" if is_there else "is not there"
            remarks.append(
                f"{run.benchmark}: its command file names {named}, which {there}; the "
                "directories of these names beside it are used"
                + (
                    ", but commands still name files of that tree"
                    if any(str(named) in command.text for command in commands.commands)
                    else ""
                )
            )
            directories, first = beside, own
        else:
            remarks.append(
                f"{run.benchmark}: its command file names {named}, another tree: copies run "
                "there, not beside the file, where not all of these directories are"
            )
    twice = sorted(_same(directories))
    if twice:
        raise InputError(
            f"{run.file}: two copies have the run directory {twice[0]}: each would overwrite "
            "what the other writes; make the run directories again"
        )
    comparison, problem = _comparison(first / COMPARE)
    if problem:
        remarks.append(f"{run.benchmark}: outputs are not validated: {problem}")
    return KitBenchmark(
        run=run,
        directories=tuple(map(str, directories)),
        commands=commands,
        comparison=comparison.commands if comparison else (),
        comparison_environment=comparison.environment if comparison else (),
        root=_root(first),
        reference_s=_reference_s(first, run.size),
        remarks=tuple(remarks),
    )


def problems_of(kit: KitBenchmark, copies: int) -> tuple[str, ...]:
    """Say what stands in the way of running the first `copies` copies now."""
    said = []
    for copy, name in enumerate(kit.directories[:copies]):
        if not _is_folder(Path(name)):
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


class BindKind(StrEnum):
    """What a bind value is."""

    CPUS = "cpus"  # a list of CPUs, which others can stand for
    WORDS = "words"  # options or a mask: words of a binding command that stands around `$BIND`
    COMMAND = "command"  # a command that binds by itself


def bind_kind(bind: str) -> BindKind:
    """Return what a bind value is."""
    bind = bind.strip()
    if re.fullmatch(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*", bind, re.ASCII):
        return BindKind.CPUS
    if re.match(r"[-+!,\d]|all\b|0x", bind):
        return BindKind.WORDS
    return BindKind.COMMAND


def _comparison(file: Path) -> tuple[CommandFile | None, str | None]:
    """Return what a kit's compare.cmd says, else why outputs are not validated.

    Neither here nor in the kit does it keep a benchmark from being run.
    """
    if not is_file(file):
        return None, (
            f"no {COMPARE} in the run directory of copy 0 (the kit's own tools write it when they "
            "validate a run there)"
        )
    try:
        text = _text(file)
        if not text.strip():
            return None, f"{COMPARE} in the run directory of copy 0 is empty"
        return parse_speccmds(text, str(file)), None
    except InputError as error:
        return None, str(error)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other


def _same(directories: Sequence[Path]) -> set[str]:
    """Return directories that several copies have, under whatever names."""
    found: dict[object, Path] = {}
    twice = set()
    for directory in directories:
        key: object = directory
        with suppress(OSError):
            stat = directory.stat()
            key = (stat.st_dev, stat.st_ino)
        if key in found:
            twice.add(f"{directory}")
        found[key] = directory
    return twice


def _text(file: Path) -> str:
    try:
        # Names and values are bytes: what is no text to us may be one to the benchmark.
        return read_text(file, "a command file")
    except UnicodeDecodeError as error:
        return error.object.decode("utf-8-sig", "surrogateescape")
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
