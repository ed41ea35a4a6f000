"""What every use case shares: arguments of a run, an existing store, JSON or text."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from rater.plan.options import Option, was_given
from rater.plan.request import (
    BY_NAME,
    COMMAND,
    DEFAULT_SUITE,
    KIT,
    KIT_COPIES,
    OPTIONS,
    Request,
)
from rater.system.errors import InputError
from rater.system.process import print_error, remember_runs

if TYPE_CHECKING:
    from rater.show.screen.document import Part
    from rater.store.store import Store


# -- Options of a run and of a command, made of parsed arguments -----------------------------------


class RunArguments(Struct, frozen=True):
    """Words that were typed for a run, no value checked; options that were not given are absent."""

    suites: tuple[str, ...] = ()
    command: tuple[str, ...] | None = None  # behind `--`
    options: dict[str, Any] = {}  # by name, as argparse has them
    defaults: frozenset[str] = frozenset()  # those that a file of defaults gave

    @classmethod
    def from_parsed(cls, arguments: Mapping[str, Any]) -> RunArguments:
        """Return what parsed arguments have, by name."""
        values = {option.name: arguments.get(option.dest) for option in OPTIONS}
        return cls(
            tuple(arguments["suites"]),
            None if arguments["command"] is None else tuple(arguments["command"]),
            {name: value for name, value in values.items() if was_given(value)},
            frozenset(arguments["defaults"]),
        )

    def with_option(self, option: Option, value: object) -> RunArguments:
        """Return a copy in which an option has a value, as argparse would have it.

        Without a value the copy lacks the option. `COMMAND` stands for the words behind `--`.
        """
        if option is COMMAND:
            return replace(self, command=COMMAND.kind.check(f"axis {COMMAND.name}", value))
        options = {name: given for name, given in self.options.items() if name != option.name}
        added = {option.name: value} if was_given(value) else {}
        return replace(self, options=options | added, defaults=self.defaults - {option.name})

    def option_words(self, without: Collection[str] = ()) -> list[str]:
        """Return what was given in the words of a user, except the options `without`."""
        names = [f"--{name}" for name in self.options if name not in without]
        return [*self.suites, *names, *(["-- COMMAND"] if self.command is not None else [])]

    def request(self) -> Request:
        """Check each value by itself; raises `InputError` naming the option."""
        if self.command is not None and self.suites:
            raise InputError(
                f"both a suite ({' '.join(self.suites)}) and a command behind `--`: "
                "one run rates one or the other"
            )
        if self.command is not None and not self.command:
            raise InputError(
                "nothing behind `--`; expected a command, as in `rater run -- ./bench`"
            )
        needless = self._needless()
        of_kit = _check_kit(self)
        values: dict[str, Any] = {"copies": KIT_COPIES, "size": "", "tune": ""} if of_kit else {}
        for name, value in self.options.items():
            option = BY_NAME[name]
            if name not in needless and (value or name not in ("size", "tune")):
                values[option.field] = option.kind.check(option.typed, value)
        default = () if self.command or of_kit else (DEFAULT_SUITE,)
        return Request(suites=self.suites or default, command=self.command or (), **values)

    def _needless(self) -> tuple[str, ...]:
        """Return options that have no effect here.

        Raises `InputError` where the user typed one, which is a misunderstanding. A file of
        defaults may give them.
        """
        needless: tuple[str, ...] = ("name", "metric")
        reason = "is for a command behind `--`"
        if self.command is not None:
            reason, needless = "is for suites, a command has none", ("size", "tune")
        for name in needless:
            if name in self.options and name not in self.defaults:
                value = self.options[name]
                words = " ".join(value) if isinstance(value, list) else value
                raise InputError(f"--{name} {words} {reason}: leave it out")
        rotated = {"rotated", "heterogeneous"}.intersection(
            self.options.get(name, "") for name in ("mode", "order")
        )
        warmup = str(self.options.get("warmup", "0"))
        if self.options.get("mode") != "steady" and not warmup.isdecimal():
            raise InputError(
                f"--warmup {warmup}: expected a whole number of iterations that do not count; "
                "seconds belong to --mode steady"
            )
        if "increment" in self.options and not rotated:
            raise InputError(
                f"--increment {self.options['increment']} is the step of rotated order: add "
                "--mode rotated, or leave it out"
            )
        return needless


class StartOptions(Struct, frozen=True):
    """Options of how a run is made; these may stand beside `--resume`."""

    force: bool = False
    share: bool = False
    wait: float | None = None  # seconds

    def on(self, request: Request) -> Request:
        """Return a stored request with these options of the new run."""
        return replace(
            request,
            force=request.force or self.force,
            share=request.share or self.share,
            wait_s=self.wait,
        )


START_OPTIONS = StartOptions.__struct_fields__


def _check_kit(run_arguments: RunArguments) -> bool:
    """Tell whether benchmarks of a kit are asked for; raises `InputError` for what does not fit."""
    kit_words = [suite for suite in run_arguments.suites if suite.startswith(KIT)]
    other_suites = [suite for suite in run_arguments.suites if not suite.startswith(KIT)]
    options = run_arguments.options
    of_kit = bool(kit_words) or "speccmds" in options
    if of_kit and (other_suites or run_arguments.command is not None):
        other_word = other_suites[0] if other_suites else "a command behind `--`"
        kit_word = kit_words[0] if kit_words else f"--speccmds {options['speccmds'][0]}"
        raise InputError(f"both {kit_word} and {other_word}: one run rates one or the other")
    if "bind-from-file" in options:
        if not of_kit:
            raise InputError(
                f"--bind-from-file is for {KIT}DIR and --speccmds FILE.cmd: leave it out"
            )
        for name in ("layout", "bind", "smt", "kind", "reserve"):
            if name in options:
                raise InputError(
                    f"--bind-from-file places copies as the command file says: leave out --{name}"
                )
    for name in ("size", "tune"):
        if of_kit and not kit_words and name in options:
            raise InputError(
                f"--{name} {options[name]} chooses among the run directories of {KIT}DIR, and a "
                "command file is of one: leave it out"
            )
    if of_kit and "run-dirs" in options:
        raise InputError("--run-dirs: copies of a kit work in its run directories: leave it out")
    return of_kit


# -- What every use case shares: an existing store, JSON or text on standard output, a word aside --


def open_existing_store(output: Output) -> Store:
    """Open the database, which there must be."""
    from rater.store.connection import default_path
    from rater.store.store import open_store
    from rater.system.paths import exists

    path = default_path(output.db)
    if not exists(path):
        raise InputError(
            f"there is no database {path}; `rater run` makes it, or name another with --db"
        )
    return open_store(path)


def open_to_list(output: Output) -> Store | None:
    """Open the database; None, and a word, where there is none yet and none is named."""
    from rater.store.connection import default_path
    from rater.system.paths import exists

    if output.db or exists(default_path(None)):
        return open_existing_store(output)
    print_error(f"there is no database {default_path(None)} yet")
    return None


class Output(Struct, frozen=True, kw_only=True):
    """Where runs are kept, and how they are shown."""

    db: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    dry_run: bool = False
    format: str | None = None  # md or csv: as Markdown, or the tables alone


class FleetArchive(Protocol):
    """What a wing has of runs in the archive of a fleet."""

    def fleet_words(self, words: Sequence[str | None]) -> list[str]:
        """Return those words that name archived runs."""

    def copy_runs(self, store: Store, words: Sequence[str]) -> tuple[Store, Mapping[str, int]]:
        """Return a store of copies of what words mean, and their numbers there."""


def open_store_for_reading(output: Output, words: Iterable[str | None]) -> Store:
    """Open the database, which there must be, of a command that only reads the runs of `words`.

    Where they name runs in the archive of a fleet (`fleet:3/n017`), these are copied, and the
    store has them alone.
    """
    from rater.wings import Hook

    archive = Hook[FleetArchive]("fleet archive")
    store = open_existing_store(output)
    archived = archive().fleet_words([*words])
    if not archived:
        return store
    with store:
        copied, numbers = archive().copy_runs(store, archived)
    remember_runs({number: word for word, number in numbers.items()})
    for word, number in numbers.items():
        print_error(f"run {number} below is {word}: use {word} in commands")
    return copied


def check_current_directory() -> None:
    """Raise `InputError` where the current directory is gone or forbidden."""
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            f"the current directory cannot be entered ({error.strerror}); cd to one that is there"
        ) from error


def print_view[D](output: Output, document: D, parts: Callable[[D], Iterable[Part]]) -> None:
    """Print a document as JSON, or its tables and sentences in the form of `--format`."""
    if output.json:
        print_json(document)
        return
    from rater.show.screen.console import Printer, screen
    from rater.show.screen.document import MarkdownPrinter, print_parts, write_csv

    if output.format == "csv":
        write_csv(parts(document), sys.stdout)
    elif output.format == "md":
        print_parts(parts(document), MarkdownPrinter(sys.stdout))
    else:
        print_parts(parts(document), Printer(screen()))


JSON_VERSION = 1  # of documents: grows when a key is taken away or comes to mean something else


def print_json(value: object) -> None:
    """Print the one JSON document of a `--json` command.

    The version stands in it under `rater`, of a list in each of its members.
    """
    if isinstance(value, Mapping):
        value = {"rater": JSON_VERSION, **value}
    elif isinstance(value, list):
        value = [
            {"rater": JSON_VERSION, **element} if isinstance(element, Mapping) else element
            for element in value
        ]
    # At once: of the pieces of `json.dump` a list of all runs has millions, each cleaned by itself.
    sys.stdout.write(f"{json.dumps(value, indent=2, allow_nan=False)}\n")


def print_json_rows(document: Mapping[str, object]) -> None:
    """Print the one JSON document of a `--json` command, an element of its lists a line.

    Ten times as fast as `print_json`, which matters for thousands of copies.
    """
    members = []
    for key, value in {"rater": JSON_VERSION, **document}.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and not isinstance(value[0], int):
            rows = [f"    {json.dumps(row, allow_nan=False)}" for row in value]
            text = "[\n" + ",\n".join(rows) + "\n  ]"
        members.append(f"  {json.dumps(key)}: {text}")
    sys.stdout.write("{\n" + ",\n".join(members) + "\n}\n")
