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
from rater.show.screen.console import Printer, terminal
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


class Checked(Struct, frozen=True):
    """What was found out about one benchmark."""

    trial: SuiteTrial
    left_out: str | None = None  # why a run goes on without it, where the suite allows that


def report_trial(suite: Suite, trial: SuiteTrial, left_out: str | None = None) -> None:
    """Print a trial when it is over: a whole suite takes minutes."""

    name = trial.benchmark.ljust(max(len(benchmark.name) for benchmark in suite.benchmarks))
    is_built = any(b.sources for b in suite.benchmarks if b.name == trial.benchmark)
    document = to_dict(trial) | {"left_out": left_out}
    print_parts(trial_parts(document, name, is_built=is_built), Printer(terminal()))


class CheckOptions(Struct, frozen=True):
    """What was asked for of a check."""

    tune: str
    try_size: str | None  # "": the default one; None: nothing is run
    timeout: float  # seconds


def check(output: Output, suite: str | None, options: CheckOptions) -> int:
    """Exit 2 when the file is wrong, 1 when a program is missing or a benchmark fails."""

    if suite is None:
        raise InputError(_no_suite(options.try_size))
    name, named = split_selection(suite)
    try:
        found, mistakes = load_with_mistakes(find_suite(name))
    except MistakesError as error:  # not TOML, or of another format
        if output.json:
            print_json({"ok": False, "mistakes": _mistakes(error.mistakes)})
        raise
    if mistakes:
        unmistaken = _unmistaken(found, mistakes)
        checked = [c for c in _checks(unmistaken, named, options, run=False) if c.trial.error]
        for one in checked:
            if not output.json:
                report_trial(found, one.trial)
        if output.json:
            print_json({**_json(found, checked, []), "ok": False, "mistakes": _mistakes(mistakes)})
        raise MistakesError(mistakes)
    found = select_from_suite(found, suite)
    checked = []
    run = options.try_size is not None
    with guard(str(uuid4()), 1) if run else nullcontext():
        for one in _checks(found, named, options, run=run):
            if not output.json:
                report_trial(found, one.trial, one.left_out)
            checked.append(one)
    return _conclude(found, checked, output)


def _checks(
    suite: Suite, named: Sequence[str], options: CheckOptions, *, run: bool
) -> Iterator[Checked]:
    """Check one benchmark after the other; those `named` by the user are never left out."""

    cache = cache_root()
    limits = Limits(options.timeout, _OUTPUT_LIMIT_BYTES)
    left: SetupFiles | None = None
    missing = missing_programs(suite)
    if missing[OF_SUITE]:
        yield Checked(SuiteTrial(benchmark=OF_SUITE, error="\n".join(missing[OF_SUITE])))
    elif run:
        try:
            left = try_setup(suite, options.try_size or None, cache, limits)
        except InputError as error:
            yield Checked(SuiteTrial(benchmark=OF_SUITE, error=str(error)))
    with trial_folder(cache) if run else nullcontext(cache) as work:
        for benchmark in suite.benchmarks:
            problems = missing[benchmark.name]
            if problems and "missing" in suite.leave_out and benchmark.name not in named:
                yield Checked(SuiteTrial(benchmark=benchmark.name, error=None), "; ".join(problems))
            elif problems or not run:
                yield Checked(_built(benchmark, problems, options.tune, cache))
            else:
                yield Checked(
                    try_run(
                        benchmark,
                        options.tune,
                        options.try_size or None,
                        cache=cache,
                        work=work,
                        limits=limits,
                        suite=suite,
                        setup_files=left,
                    )
                )


def _built(benchmark: Benchmark, problems: Sequence[str], tune: str, cache: Path) -> SuiteTrial:
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
    whole = []
    for benchmark in suite.benchmarks:
        top = f"benchmarks.{benchmark.name}"
        about = {top, *(f"{top}.{key}" for key in _OF_PROGRAM)}
        if not keys & about:
            whole.append(benchmark)
    return replace(suite, benchmarks=tuple(whole))


def _conclude(suite: Suite, checked: Sequence[Checked], output: Output) -> int:
    """Say what is doubtful, and the sum of it all."""

    answered = {(c.trial.benchmark, c.trial.size) for c in checked if c.trial.size is not None}
    warnings = suite_warnings(suite, DEFAULT_SIZE, file_size, answered)
    trials = [c.trial for c in checked]
    failed = [trial.benchmark for trial in trials if trial.error is not None]
    if output.json:
        print_json({**_json(suite, checked, warnings), "ok": not failed, "mistakes": []})
        return 1 if failed else 0
    for warning in warnings:
        Printer(terminal()).prose(f"warning: {warning}")
    if failed:
        text = f"{suite.name}: {len(failed)} of {len(trials)} benchmarks failed"
        if failed[0] not in {benchmark.name for benchmark in suite.benchmarks}:
            others = f", and {len(failed) - 1} of {len(trials) - 1} benchmarks failed"
            text = f"{suite.name}: its set-up fails{others if failed[1:] else ''}"
        kept = {str(Path(trial.run_dir).parent) for trial in trials if trial.run_dir}
        print("; their files stay in ".join([text, *kept]), file=sys.stderr)
    else:
        left = sum(c.left_out is not None for c in checked)
        more = f", {left} of {len(trials)} benchmarks left out" if left else ""
        print(f"{suite.name}: nothing wrong{more}")
    return 1 if failed else 0


def _no_suite(try_size: str | None) -> str:
    """Say that `suites check` lacks its SUITE, and whether --run took it as its SIZE."""
    if try_size:
        return (
            f"suites check: --run took {try_size!r} as its SIZE and no SUITE is left: write "
            f"`rater suites check SUITE --run={try_size}`, or `rater suites check {try_size} --run`"
        )
    return "suites check: which SUITE? A name that `rater suites` lists, or the path of a TOML file"


def _json(suite: Suite, checked: Sequence[Checked], warnings: Sequence[str]) -> dict[str, object]:
    return {
        "suite": suite.name,
        "path": str(suite.path),
        "benchmarks": [{**to_dict(c.trial), "left_out": c.left_out} for c in checked],
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


# -- `rater suites new`: write a suite that runs as it is, to be changed by its owner --------------

_NAME = "NAME"  # stands for the suite's name in the files of the example
_MAIN = "suite.toml"  # the example's file that becomes NAME.toml; the others go to NAME/


def new(output: Output, name: str, place: Path | None) -> int:
    """Write an example that runs; return the exit status."""
    main, programs = _places(name, place)
    written = _write(main, programs)
    # In a folder of suites its name is enough.
    by_name = main.parent.absolute() in suite_folders()
    shown = main.stem if by_name else shlex.quote(_as_path(main))
    next_ = [
        (typed_command(f"rater suites check {shown} --run"), "is every answer right?"),
        (typed_command(f"rater run {shown} --size test"), "a copy on every CPU, all at once"),
        (f"${{EDITOR:-vi}} {shlex.quote(_as_path(main))}", "put your own program in"),
    ]
    if output.json:
        print_json(
            {
                "suite": main.stem,
                "written": [str(path) for path in written],
                "next": [command for command, _ in next_],
            }
        )
        return 0
    print("written:")
    for path in written:
        print(f"  {path}")
    width = max(len(command) for command, _ in next_)
    print("\nnext:")
    for command, why in next_:
        print(f"  {command.ljust(width)}   # {why}")
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
