"""What a run would execute, for whom it is not their own: commands, set-ups, variables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from rater.show.console.format import plain
from rater.text.to_json import Members


@dataclass(frozen=True, slots=True)
class Executed:
    """All that a run executes, each as a shell would take it."""

    directory: str  # where it is called
    setups: tuple[str, ...]  # of suites, then of benchmarks for each copy
    commands: tuple[tuple[str, str], ...]  # by benchmark
    wrap: str | None
    prepare: str | None
    environment: tuple[tuple[str, str], ...]  # what is added to rater's own
    settings: tuple[tuple[str, str], ...] = ()  # of the machine, set while it runs


def executed_lines(it: Executed) -> Iterator[str]:
    """Yield it for people, a line each."""
    for text in it.setups:
        yield f"set-up   {text}"
    for name, text in it.commands:
        yield f"runs     {text}" if len(it.commands) == 1 else f"runs     {name}: {text}"
    if it.wrap:
        yield f"wrap     {it.wrap}"
    if it.prepare:
        yield f"prepare  {it.prepare}"
    for name, value in it.environment:
        yield f"env      {name}={value}"
    for name, value in it.settings:
        yield f"sets     {name}={value}"


def print_executed(it: Executed, out: TextIO) -> None:
    """Print the same, whole, and where: what is not seen is not known."""
    for line in (*executed_lines(it), f"in       {it.directory}"):
        print(plain(line), file=out)


EXECUTED = Members("directory setups commands{} wrap prepare environment{} settings{}")
