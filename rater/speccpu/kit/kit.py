"""Read what an installed SPEC CPU runs in its run directories: benchmarks with their copies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rater.errors import InputError
from rater.speccpu.kit.runs import COMMANDS, MADE_BY, KitRun, named_run
from rater.speccpu.kit.speccmds import CommandFile, SpecCommand, parse_speccmds, words_of
from rater.text.textfile import is_file, read_text

COMPARE = "compare.cmd"
_MOST_PROBLEMS = 6


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


def read_benchmark(run: KitRun) -> KitBenchmark:
    """Read a command file and what lies beside it; raises `InputError` naming file and line."""
    commands = parse_speccmds(_text(run.file), str(run.file))
    own = run.file.parent
    directories = [_absolute(own, name) for name in commands.directories] or [own]
    remarks: list[str] = []
    if run.file.name != COMMANDS and run.tune is None:
        # A copy of a command file lies anywhere: its directories know what it is of.
        run = named_run(run.file, directories[0], run.made_ns)
    elif directories[0].name == own.name and not _is_same(directories[0], own):
        directories, remark = _of_which_tree(own, directories, commands)
        remarks.append(f"{run.benchmark}: its command file names {remark}")
    first = directories[0]
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


def _of_which_tree(
    own: Path, directories: list[Path], commands: CommandFile
) -> tuple[list[Path], str]:
    """Return the directories that are used where the tree was moved or copied, and a remark.

    All of a benchmark's run directories lie side by side.
    """
    first = directories[0]
    named = _root(first) or first.parent
    siblings = [own.parent / directory.name for directory in directories]
    is_there = _is_folder(first)
    if is_there and not all(map(_is_folder, siblings)):
        return directories, (
            f"{named}, another tree: copies run there, not beside the file, where not all of "
            "these directories are"
        )
    there = "is another tree" if is_there else "is not there"
    text = f"{named}, which {there}; the directories of these names beside it are used"
    if any(str(named) in command.text for command in commands.commands):
        text += ", but commands still name files of that tree"
    return siblings, text


def problems_of(kit: KitBenchmark, copies: int) -> tuple[str, ...]:
    """Say what stands in the way of running the first `copies` copies now."""
    problems = []
    for copy, name in enumerate(kit.directories[:copies]):
        if not _is_folder(Path(name)):
            problems.append(f"copy {copy} of {kit.name}: no run directory {name}; {MADE_BY}")
        elif not os.access(name, os.W_OK | os.X_OK):
            problems.append(f"copy {copy} of {kit.name}: no permission to write into {name}")
        if len(problems) == _MOST_PROBLEMS:
            problems.append(f"{kit.name}: and perhaps more")
            break
    return tuple(problems)


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
