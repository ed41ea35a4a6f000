"""Suites found by name or path, what of them is selected, and what is probably not meant."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.suite import Benchmark, Size, Suite, read_suite
from rater.system.errors import InputError
from rater.system.paths import data_folder, is_file, user_folder
from rater.system.process import hint_to_measure_program
from rater.text.documents import (
    NAME,
    Mistake,
    MistakesError,
    did_you_mean,
    file_problem,
    read_text,
)

_LARGE_BYTES = 100_000_000  # to copy for every copy


def suite_warnings(
    suite: Suite,
    default_size: str,
    bytes_of: Callable[[Path], int],
    answered: Collection[tuple[str, str]] = (),
) -> list[str]:
    """Return a sentence for each kind of doubt, with the benchmarks it is about.

    `bytes_of` tells how large an input file is. Sizes `answered`, as (benchmark,
    size), are not told again to have no expected output.
    """
    doubts: list[tuple[str, Callable[[Benchmark, Size], bool]]] = [
        (
            "no expected output, so any answer passes",
            lambda benchmark, size: (
                not size.expected and (benchmark.name, size.name) not in answered
            ),
        ),
        ("no reference_s, so no ratio", lambda _, size: size.reference_s is None),
        (
            "no memory_mb or memory_total_mb, so a run that cannot fit is not refused",
            lambda _, size: size.memory_bytes is None and size.total_memory_bytes is None,
        ),
    ]
    lines = [f"{what}: {where}" for what, lacks in doubts if (where := _places(suite, lacks))]
    names = list(dict.fromkeys(name for benchmark in suite.benchmarks for name in benchmark.sizes))
    if default_size not in names and names:
        lines.append(
            f"no size {default_size}, which `rater run` takes unless it is given "
            f"--size {' or --size '.join(names)}"
        )
    for name in names:
        lacking = ", ".join(
            benchmark.name for benchmark in suite.benchmarks if name not in benchmark.sizes
        )
        if lacking:
            lines.append(f"no size {name}, so a run of the whole suite in it is refused: {lacking}")
    copied = (
        f"copy = true: {benchmark.name} gets {size_bytes / 1e6:.0f} MB of {wanted.name} for each "
        "copy before every run"
        for benchmark in suite.benchmarks
        for size in benchmark.sizes.values()
        for wanted in size.inputs
        if wanted.private and wanted.path is not None
        if (size_bytes := bytes_of(wanted.path)) > _LARGE_BYTES
    )
    return [*lines, *dict.fromkeys(copied)]


def _places(suite: Suite, lacks: Callable[[Benchmark, Size], bool]) -> str:
    places = {}
    for benchmark in suite.benchmarks:
        sizes = [size.name for size in benchmark.sizes.values() if lacks(benchmark, size)]
        if sizes or not benchmark.sizes:
            whole = len(sizes) == len(benchmark.sizes)
            places[benchmark.name] = "" if whole else f" ({', '.join(sizes)})"
    is_everywhere = len(places) == len(suite.benchmarks) > 1 and not any(places.values())
    return "all" if is_everywhere else ", ".join(name + sizes for name, sizes in places.items())


# -- Find suites by name or path, and the benchmarks of one that an argument selects ---------------


class FoundSuite(Struct, frozen=True):
    """A suite file that lies where suites are looked for."""

    name: str  # of the file, without .toml
    path: Path
    folder: Path | None  # None for a suite that comes with rater
    instead: Path | None = None  # the file that this name stands for, when it is another one


def suite_names() -> list[str]:
    """Return the names of the built-in suites, sorted."""
    return sorted(path.stem for path in data_folder("suites").glob("*.toml"))


def suite_folders(environment: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Return the user's folders of suites, absolute: those of $RATER_SUITES (`a:~/b`).

    Without it $XDG_DATA_HOME/rater/suites, else ~/.local/share/rater/suites; they need not exist.
    """
    values = os.environ if environment is None else environment
    named = _named_folders(values)
    if named:
        return named
    own = user_folder("DATA", values)
    return () if own is None else (own / "suites",)


def find_suites(
    environment: Mapping[str, str] | None = None,
) -> tuple[list[FoundSuite], list[str]]:
    """Return all suites by name, and the folders that cannot be read, in words.

    First the built-in ones, then folder by folder. Of a name that occurs twice
    the first is meant; the others name it as `instead`.
    """
    suites = [
        FoundSuite(name, data_folder("suites") / f"{name}.toml", None) for name in suite_names()
    ]
    first = {suite.name: suite.path for suite in suites}
    troubles = []
    named = _named_folders(os.environ if environment is None else environment)
    for place in suite_folders(environment):
        try:
            names = sorted(entry.name for entry in place.iterdir() if entry.suffix == ".toml")
        except FileNotFoundError:
            if named:
                troubles.append(f"{place} (of RATER_SUITES): no such folder")
            continue
        except OSError as error:
            troubles.append(f"{place}: {error.strerror}")
            continue
        for file in names:
            name = file.removesuffix(".toml")
            if NAME.fullmatch(name) and is_file(place / file):
                suites.append(FoundSuite(name, place / file, place, first.get(name)))
                first.setdefault(name, place / file)
    return suites, troubles


def find_suite(name_or_path: str) -> Path:
    """Return the file of a suite: a name wins over a file called like it, the first name wins.

    Behind a path `.toml` may be left out. Raises `InputError` for an unknown name
    or a file that cannot be read.
    """
    paths = {suite.name: suite.path for suite in find_suites()[0] if suite.instead is None}
    typed_path = Path(name_or_path)
    if name_or_path in paths:
        path = paths[name_or_path]
    elif name_or_path.endswith(".toml") or is_file(typed_path):
        path = typed_path
        if typed_path.suffix != ".toml" and (hint := hint_to_measure_program(name_or_path)):
            raise InputError(f"{name_or_path} is a program, not a suite; {hint}")
    elif "/" in name_or_path:
        path = _with_toml(typed_path) if is_file(_with_toml(typed_path)) else typed_path
    else:
        way_out = hint_to_measure_program(name_or_path) or _way_out(name_or_path, paths)
        raise InputError(f"unknown suite {name_or_path!r}; {way_out}")
    problem = file_problem(path, name_or_path)
    if problem:
        way_out = _meant_file(name_or_path) or f"(suites by name: {', '.join(paths)})"
        raise InputError(f"suite: {problem} {way_out}")
    return path.absolute()


def load_suite(name_or_path: str) -> Suite:
    """Read a suite by its name, or a file.

    Raises `InputError` for an unknown name or an unreadable file, and
    `MistakesError` with every mistake in it.
    """
    path = find_suite(name_or_path)
    try:
        suite, mistakes = load_with_mistakes(path)
    except InputError as error:
        if path.suffix == ".toml":
            raise
        raise InputError(
            f"{name_or_path} is no suite, which is a TOML file; to measure a program with that "
            f"file: `rater run -- PROGRAM {shlex.quote(name_or_path)}`\n  ({error})"
        ) from None
    if mistakes:
        raise MistakesError(mistakes)
    return suite


def load_with_mistakes(path: Path) -> tuple[Suite, tuple[Mistake, ...]]:
    """Return what could be read of a suite file, and the mistakes in it.

    Raises `InputError` when it cannot be read at all.
    """
    return read_suite(
        suite_file_text(path),
        path,
        file_problem,
        partial(read_text, too_large_for="a comparison of text"),
    )


def suite_file_text(path: Path) -> str:
    """Return the text of a suite file; raises `InputError` when it cannot be read."""
    try:
        return read_text(path)
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 text, expected a suite in TOML") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def split_selection(selection: str) -> tuple[str, tuple[str, ...]]:
    """Split `SUITE/BENCHMARK,BENCHMARK` into suite (name or path) and benchmark names.

    `./my.toml` and `./my.toml/triad` are paths; so is any existing file, with
    `.toml` left out too, and whatever cannot be the name of a suite and those of
    benchmarks.
    """
    suite, suffix, names = selection.partition(".toml/")
    if suffix:
        return f"{suite}.toml", _split_names(names)
    before, _, last = selection.rpartition("/")
    if selection.endswith(".toml") or is_file(selection):
        return selection, ()
    if is_file(before):
        return before, _split_names(last)
    suite, slash, names = selection.partition("/")
    if slash and ("/" in names or suite not in {it.name for it in find_suites()[0]}):
        is_path = "/" in names or not NAME.fullmatch(suite) or Path(suite).is_dir()
        if "/" in before and is_file(_with_toml(Path(before))):
            return before, _split_names(last)
        if is_path or is_file(_with_toml(Path(selection))):
            return selection, ()
    return suite, _split_names(names)


def select_from_suite(suite: Suite, selection: str) -> Suite:
    """Return the suite with only the benchmarks a `SUITE/BENCHMARK,...` argument names.

    They keep the suite's order, which is the ring of rotated order. Raises
    `InputError` for names the suite does not have.
    """
    wanted = split_selection(selection)[1]
    if not wanted:
        return suite
    names = [benchmark.name for benchmark in suite.benchmarks]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise InputError(
            "\n".join(
                f"suite {suite.name} has no benchmark {name!r}; {did_you_mean(name, names)}"
                for name in unknown
            )
        )
    return replace(
        suite,
        benchmarks=tuple(benchmark for benchmark in suite.benchmarks if benchmark.name in wanted),
    )


def load_selection(selection: str) -> Suite:
    """Read the suite a `SUITE/BENCHMARK,...` argument names, with only those benchmarks."""
    return select_from_suite(load_suite(split_selection(selection)[0]), selection)


def _named_folders(values: Mapping[str, str]) -> tuple[Path, ...]:
    words = values.get("RATER_SUITES", "").split(":")
    folders = (
        os.path.expanduser(word)  # noqa: PTH111 - it leaves an unknown ~user, where Path raises
        for word in words
        if word.strip()
    )
    return tuple(dict.fromkeys(Path(word).absolute() for word in folders))


def _meant_file(typed: str) -> str | None:
    before, _, names = typed.rpartition("/")
    if not before or not is_file(_with_toml(Path(before))):
        return None
    return f"- did you mean {'' if '/' in before else './'}{before}.toml/{names}?"


def _split_names(names: str) -> tuple[str, ...]:
    return tuple(name for name in names.split(",") if name)


def _with_toml(path: Path) -> Path:
    return path.with_name(f"{path.name}.toml") if path.name else path


def _way_out(word: str, suites: Mapping[str, Path]) -> str:
    here = _with_toml(Path(word))
    if is_file(here):
        return f"did you mean ./{here}? (a file is given by its path)"
    return (
        f"{did_you_mean(word, suites)} (a suite of your own is given by its path, ./NAME.toml, "
        "or lies in a folder of RATER_SUITES)"
    )
