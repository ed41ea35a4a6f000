"""`rater suites`: check one, and begin one."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.request import DEFAULT_SIZE
from rater.plan.suite import Benchmark, Suite
from rater.plan.suite_find import (
    find_suite,
    load_with_mistakes,
    select_from_suite,
    split_selection,
    suite_folders,
    suite_names,
    suite_warnings,
)
from rater.run.launcher.guard import guard
from rater.run.programs.child_process import Limits
from rater.run.programs.compile import cache_root
from rater.run.programs.inputs import SetupFiles
from rater.run.workplace.trial import (
    SuiteTrial,
    trial_folder,
    try_build,
    try_run,
    try_setup,
)
from rater.show.plans.suites import trial_parts
from rater.show.screen.console import Printer, screen
from rater.show.screen.document import print_parts
from rater.system.errors import InputError
from rater.system.paths import data_folder
from rater.system.process import typed_command
from rater.text.documents import NAME, NAME_EXPECTED, Mistake, MistakesError, file_size
from rater.text.values import to_dict
from rater.workflow.arguments import Output, print_json
from rater.workflow.machine import OF_SUITE, generator_failures, missing_programs

_OUTPUT_LIMIT_BYTES = 1 << 30  # as `rater run` has it unless told otherwise
# A mistake at one of these keys of a benchmark is about its program, which is not tried then.
_OF_PROGRAM = ("sources", "libraries", "flags", "command")


class BenchmarkCheck(Struct, frozen=True):
    """The check of one benchmark."""

    trial: SuiteTrial
    left_out: str | None = None  # why a run goes on without it, where the suite allows that


class TrialPrinter:
    """Prints the trials of a suite's benchmarks, each when it is over: a suite takes minutes."""

    def __init__(self, suite: Suite) -> None:
        self._width = max((len(benchmark.name) for benchmark in suite.benchmarks), default=0)
        self._built = {benchmark.name for benchmark in suite.benchmarks if benchmark.sources}
        self._printer = Printer(screen())

    def report(self, trial: SuiteTrial, left_out: str | None = None) -> None:
        """Print one trial."""
        name = trial.benchmark.ljust(self._width)
        document = to_dict(trial) | {"left_out": left_out}
        parts = trial_parts(document, name, is_built=trial.benchmark in self._built)
        print_parts(parts, self._printer)


class CheckOptions(Struct, frozen=True):
    """Options of `rater suites check`."""

    tune: str
    try_size: str | None  # "": the default one; None: nothing is run
    timeout: float  # seconds


def check(output: Output, suite: str | None, options: CheckOptions) -> int:
    """Exit 2 when the file is wrong, 1 when a program is missing or a benchmark fails."""

    if suite is None:
        raise InputError(_no_suite(options.try_size))
    name, benchmark_names = split_selection(suite)
    try:
        loaded, mistakes = load_with_mistakes(find_suite(name))
    except MistakesError as error:  # not TOML, or of another format
        if output.json:
            print_json({"ok": False, "mistakes": _mistakes(error.mistakes)})
        raise
    if mistakes:
        unmistaken = _unmistaken(loaded, mistakes)
        checked = [
            checked_benchmark
            for checked_benchmark in _checks(unmistaken, benchmark_names, options, run=False)
            if checked_benchmark.trial.error
        ]
        printer = None if output.json else TrialPrinter(loaded)
        for checked_benchmark in checked:
            if printer is not None:
                printer.report(checked_benchmark.trial)
        if output.json:
            document = _json(loaded, checked, [])
            print_json({**document, "ok": False, "mistakes": _mistakes(mistakes)})
        raise MistakesError(mistakes)
    selected = select_from_suite(loaded, suite)
    checked = []
    run = options.try_size is not None
    printer = None if output.json else TrialPrinter(selected)
    with guard(str(uuid4()), 1) if run else nullcontext():
        for checked_benchmark in _checks(selected, benchmark_names, options, run=run):
            if printer is not None:
                printer.report(checked_benchmark.trial, checked_benchmark.left_out)
            checked.append(checked_benchmark)
    return _conclude(selected, checked, output)


def _checks(
    suite: Suite, benchmark_names: Sequence[str], options: CheckOptions, *, run: bool
) -> Iterator[BenchmarkCheck]:
    """Check one benchmark after the other; `benchmark_names`: the user named them, so they
    are not left out."""

    cache = cache_root()
    limits = Limits(options.timeout, _OUTPUT_LIMIT_BYTES)
    setup_files: SetupFiles | None = None
    missing = missing_programs(suite)
    if missing[OF_SUITE]:
        yield BenchmarkCheck(SuiteTrial(benchmark=OF_SUITE, error="\n".join(missing[OF_SUITE])))
    elif run:
        try:
            setup_files = try_setup(suite, options.try_size or None, cache, limits)
        except InputError as error:
            yield BenchmarkCheck(SuiteTrial(benchmark=OF_SUITE, error=str(error)))
    with trial_folder(cache) if run else nullcontext(cache) as work:
        for benchmark in suite.benchmarks:
            problems = missing[benchmark.name]
            if problems and "missing" in suite.leave_out and benchmark.name not in benchmark_names:
                yield BenchmarkCheck(
                    SuiteTrial(benchmark=benchmark.name, error=None), "; ".join(problems)
                )
            elif problems or not run:
                yield BenchmarkCheck(_build_benchmark(benchmark, problems, options.tune, cache))
            else:
                yield BenchmarkCheck(
                    try_run(
                        benchmark,
                        options.tune,
                        options.try_size or None,
                        cache=cache,
                        work=work,
                        limits=limits,
                        suite=suite,
                        setup_files=setup_files,
                    )
                )


def _build_benchmark(
    benchmark: Benchmark, problems: Sequence[str], tune: str, cache: Path
) -> SuiteTrial:
    """Build a benchmark, or find its command; say all that is wrong with its programs."""

    failures = [*problems, *generator_failures(benchmark, cache)]
    if failures and not benchmark.sources:  # its command is among the problems, or is there
        return SuiteTrial(benchmark=benchmark.name, error="\n".join(failures))
    trial = try_build(benchmark, tune, cache)
    failures += [trial.error] if trial.error else []
    return replace(trial, error="\n".join(failures) or None)


def _unmistaken(suite: Suite, mistakes: Sequence[Mistake]) -> Suite:
    """Return the suite with the benchmarks whose programs are told without a mistake."""
    keys = {re.sub(r"\[\d+\]", "", mistake.key) for mistake in mistakes}
    unmistaken = []
    for benchmark in suite.benchmarks:
        benchmark_key = f"benchmarks.{benchmark.name}"
        program_keys = {benchmark_key, *(f"{benchmark_key}.{key}" for key in _OF_PROGRAM)}
        if not keys & program_keys:
            unmistaken.append(benchmark)
    return replace(suite, benchmarks=tuple(unmistaken))


def _conclude(suite: Suite, checked: Sequence[BenchmarkCheck], output: Output) -> int:
    """Say what is doubtful, and the sum of it all."""

    answered = {
        (checked_benchmark.trial.benchmark, checked_benchmark.trial.size)
        for checked_benchmark in checked
        if checked_benchmark.trial.size is not None
    }
    warnings = suite_warnings(suite, DEFAULT_SIZE, file_size, answered)
    trials = [checked_benchmark.trial for checked_benchmark in checked]
    failed = [trial.benchmark for trial in trials if trial.error is not None]
    if output.json:
        print_json({**_json(suite, checked, warnings), "ok": not failed, "mistakes": []})
        return 1 if failed else 0
    for warning in warnings:
        Printer(screen()).prose(f"warning: {warning}")
    if failed:
        text = f"{suite.name}: {len(failed)} of {len(trials)} benchmarks failed"
        if failed[0] not in {benchmark.name for benchmark in suite.benchmarks}:
            others = f", and {len(failed) - 1} of {len(trials) - 1} benchmarks failed"
            text = f"{suite.name}: its set-up fails{others if failed[1:] else ''}"
        run_folders = {str(Path(trial.run_dir).parent) for trial in trials if trial.run_dir}
        print("; their files stay in ".join([text, *run_folders]), file=sys.stderr)
    else:
        left_out_count = sum(
            checked_benchmark.left_out is not None for checked_benchmark in checked
        )
        left_out_words = (
            f", {left_out_count} of {len(trials)} benchmarks left out" if left_out_count else ""
        )
        print(f"{suite.name}: nothing wrong{left_out_words}")
    return 1 if failed else 0


def _no_suite(try_size: str | None) -> str:
    """Say that `suites check` lacks its SUITE, and whether --run took it as its SIZE."""
    if try_size:
        return (
            f"suites check: --run took {try_size!r} as its SIZE and no SUITE is left: write "
            f"`rater suites check SUITE --run={try_size}`, or `rater suites check {try_size} --run`"
        )
    return "suites check: which SUITE? A name that `rater suites` lists, or the path of a TOML file"


def _json(
    suite: Suite, checked: Sequence[BenchmarkCheck], warnings: Sequence[str]
) -> dict[str, object]:
    return {
        "suite": suite.name,
        "path": str(suite.path),
        "benchmarks": [
            {**to_dict(checked_benchmark.trial), "left_out": checked_benchmark.left_out}
            for checked_benchmark in checked
        ],
        "warnings": list(warnings),
    }


def _mistakes(mistakes: Sequence[Mistake]) -> list[dict[str, object]]:
    return [
        {
            "file": str(mistake.path),
            "line": mistake.line,
            "key": mistake.key or None,
            "text": mistake.text,
        }
        for mistake in mistakes
    ]


# -- `rater suites new`: write an example that runs, to be changed by its owner --------------------

_NAME = "NAME"  # stands for the suite's name in the files of the example
_MAIN = "suite.toml"  # the example's file that becomes NAME.toml; the others go to NAME/


def new(output: Output, name: str, place: Path | None) -> int:
    """Write an example that runs; return the exit status."""
    suite_file, programs = _places(name, place)
    written = _write(suite_file, programs)
    # In a folder of suites its name is enough.
    by_name = suite_file.parent.absolute() in suite_folders()
    shown_name = suite_file.stem if by_name else shlex.quote(_as_path(suite_file))
    next_steps = [
        (typed_command(f"rater suites check {shown_name} --run"), "is every answer right?"),
        (typed_command(f"rater run {shown_name} --size test"), "a copy on every CPU, all at once"),
        (f"${{EDITOR:-vi}} {shlex.quote(_as_path(suite_file))}", "put your own program in"),
    ]
    if output.json:
        print_json(
            {
                "suite": suite_file.stem,
                "written": [str(path) for path in written],
                "next": [command for command, _ in next_steps],
            }
        )
        return 0
    print("written:")
    for path in written:
        print(f"  {path}")
    width = max(len(command) for command, _ in next_steps)
    print("\nnext:")
    for command, purpose in next_steps:
        print(f"  {command.ljust(width)}   # {purpose}")
    return 0


def _places(name: str, place: Path | None) -> tuple[Path, Path]:
    """Return where the suite's file and the folder of its programs go.

    Raises `InputError` when the name is none, is taken, or something lies there.
    """

    programs = (place or Path()) / name.removesuffix(".toml")
    stem = programs.name
    if not NAME.fullmatch(stem) or name.endswith("/"):
        raise InputError(f"suites new: {name!r}: {NAME_EXPECTED}, or the path of one")
    if stem in suite_names():
        raise InputError(
            f"suites new: the name {stem} is that of a suite that comes with rater, and names win: "
            "take another one"
        )
    main = programs.with_name(f"{stem}.toml")
    taken = [str(path) for path in (main, programs) if path.exists() or path.is_symlink()]
    if taken:
        raise InputError(
            f"suites new: {' and '.join(taken)} {'is' if len(taken) == 1 else 'are'} there "
            "already, nothing was written: take another NAME, or another folder with --dir"
        )
    return main, programs


def _write(main: Path, programs: Path) -> list[Path]:
    """Write the example; what was begun is taken back when it cannot be finished."""

    source = data_folder("suites") / "new"
    files = {programs / path.name: path for path in sorted(source.iterdir()) if path.name != _MAIN}
    files[main] = source / _MAIN
    written: list[Path] = []
    try:
        main.parent.mkdir(parents=True, exist_ok=True)
        programs.mkdir()
        for target, path in files.items():
            with target.open("x", encoding="utf-8") as file:  # never over something else
                written.append(target)
                file.write(path.read_text(encoding="utf-8").replace(_NAME, main.stem))
                if path.suffix == ".sh":
                    os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode | 0o111)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        if written:
            with suppress(OSError):
                programs.rmdir()
        raise InputError(
            f"suites new: {error.filename or main}: {error.strerror}; "
            "name a folder of yours with --dir"
        ) from error
    return [main, *(path for path in files if path != main)]


def _as_path(path: Path) -> str:
    """Return a path that is not taken for a name."""
    text = str(path)
    return text if text.startswith(("/", "../")) else f"./{text}"
