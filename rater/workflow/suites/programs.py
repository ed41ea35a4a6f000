"""The programs that a suite needs: which of them are not there, which cannot be built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rater.errors import InputError
from rater.plan.suite.find import suite_file_text
from rater.plan.suite.model import Benchmark, Suite
from rater.run.programs.compile import compile_program, find_command
from rater.text.toml_lines import Key, find_line, key_lines

OF_SUITE = "[suite]"  # no benchmark can be called so


def missing_programs(suite: Suite) -> dict[str, list[str]]:
    """Return what is wrong with the programs that must exist, by benchmark and `OF_SUITE`.

    One line for each program, with the file's line where it is first named.
    """
    lines = key_lines(suite_file_text(suite.path))

    def wrong(commands: Iterator[tuple[Key, str]]) -> list[str]:
        mistakes: dict[str, str] = {}
        for key, program in commands:
            if program in mistakes:
                continue
            line = find_line(lines, key)
            try:
                find_command(program, f"{suite.path.name}:{line}: {'.'.join(key)}")
            except InputError as error:
                mistakes[program] = str(error)
        return list(mistakes.values())

    found = {OF_SUITE: wrong((("suite", "setup"), word) for word in suite.setup[:1])}
    for benchmark in suite.benchmarks:
        found[benchmark.name] = wrong(_programs(benchmark))
    return found


def generator_failures(benchmark: Benchmark, cache: Path) -> list[str]:
    """Compile the programs that make a benchmark's inputs; return what the compiler says."""
    failures: dict[str, None] = {}
    for size in benchmark.sizes.values():
        for wanted in size.inputs:
            if wanted.generator is None:
                continue
            try:  # as for a run, so that it finds the result in the cache
                compile_program("generator", wanted.generator.sources, ("-O2",), ("-lm",), cache)
            except InputError as error:
                failures[f"input {wanted.name}: {error}"] = None
    return list(failures)


def _programs(benchmark: Benchmark) -> Iterator[tuple[Key, str]]:
    """Yield every program of a benchmark that is not compiled, and where it is named."""
    top = ("benchmarks", benchmark.name)
    yield from (((*top, "command"), word) for word in benchmark.command[:1])
    yield from (((*top, "setup"), word) for word in benchmark.setup[:1])
    for size in benchmark.sizes.values():
        for position, command in enumerate(size.commands):
            place = (f"commands[{position}]",) if len(size.commands) > 1 else ()
            key = (*top, "sizes", size.name, *place, "command")
            yield from ((key, word) for word in command.program[:1])
