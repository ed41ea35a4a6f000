"""Collect the families of subcommands into one parser, run one, turn errors into exit status."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from rater import __version__
from rater.commands.command_line import (
    CommandTrait,
    ListedCommand,
    Menu,
    Parser,
    Subparsers,
    TopLevelParser,
    parsers_below,
    parsers_meant,
    positional,
    unknown_command,
)
from rater.system.errors import InputError, RaterError
from rater.system.paths import exists, journal_paths
from rater.system.process import (
    StoppedBySignal,
    handle_stop_signals,
    ignore_broken_pipe,
    print_error,
    raise_stopped,
)
from rater.text.secrets import cleaned_streams
from rater.wings import COMMANDS

# Grouped by what people come for; the most used groups and commands stand first. A command of two
# words stands in the help of the command that its first word names.
MENU: Menu = {
    "measure": {
        "run": ListedCommand("N copies side by side", "commands.runs"),
        "plan": ListedCommand("what would run where", "commands.runs"),
        "plan layouts": ListedCommand("how copies are placed", "commands.machine"),
        "sweep": ListedCommand("all combinations", "commands.runs"),
        "rerun": ListedCommand("a stored run once more", "commands.runs"),
    },
    "results": {
        "list": ListedCommand("the stored runs", "commands.results"),
        "show": ListedCommand("a run's results", "commands.results"),
        "show plot": ListedCommand("copies' times, drawn", "commands.results"),
        "divots": ListedCommand("what is slow, and where", "commands.results"),
        "report": ListedCommand("a run as an HTML page", "commands.results"),
        "export": ListedCommand("a run as CSV, JSON, ...", "commands.results"),
        "bundle": ListedCommand("runs as one zip", "commands.results"),
        "import": ListedCommand("runs from files", "commands.results"),
        "rm": ListedCommand("remove runs and sweeps", "commands.results"),
    },
    "compare": {
        "versus": ListedCommand("commands, with a gate", "commands.runs"),
        "compare": ListedCommand("runs, tags or sweeps", "commands.results"),
        "scale": ListedCommand("throughput by copies", "commands.results"),
        "history": ListedCommand("what changed, and when", "commands.results"),
    },
    "machine": {
        "doctor": ListedCommand("check this machine", "commands.machine"),
        "checkup": ListedCommand("is it as it should be?", "commands.runs"),
        "doctor counters": ListedCommand("hardware counters", "commands.machine"),
        "doctor selftest": ListedCommand("test divot detection", "commands.runs"),
        "topo": ListedCommand("nodes, CPUs, caches", "commands.machine"),
        "settings": ListedCommand("tunable settings", "commands.machine"),
        "settings restore": ListedCommand("restore settings", "commands.machine"),
        "suites": ListedCommand("list, show, create", "commands.machine"),
    },
    "more": {name: ListedCommand(about, module) for name, (about, module) in COMMANDS.items()},
    "shell": {
        "trust": ListedCommand("use a folder's defaults", "commands.machine"),
        "paths": ListedCommand("where files lie", "commands.machine"),
        "completion": ListedCommand("bash, zsh or fish", "commands.machine"),
    },
}
# Options with which a command only looks: it then reports changed settings and restores none.
_LOOKING = ("dry_run", "listing", "show", "example")


def build_parser() -> TopLevelParser:
    """Return the whole parser, which declares a command when it is asked for."""
    parser = TopLevelParser(
        prog="rater",
        menu=MENU,
        declare=_declare_command,
        examples=(
            "rater run -- ./mybench --flag   # your program, one copy per CPU",
            "rater run mini --copies cores   # a built-in suite, a copy on each core",
        ),
        description="Run N copies of a benchmark at once, and find the slow part of the machine.",
        epilog="RUN: a number, the start of a uuid, last, last~1. More: rater COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"rater {__version__}")
    parser.add_argument("--db", metavar="PATH", default=None, help="the database (else RATER_DB)")
    parser.add_argument(
        "--json", action="store_true", default=False, help="one JSON document on stdout"
    )
    return parser


def _declare_command(subparsers: Subparsers, name: str, listed: ListedCommand) -> None:
    """Declare one command; its module is imported here, so that no command pays for others."""
    from rater.commands.common import declare

    commands = import_module(f"rater.{listed.module}").COMMANDS
    declare(subparsers, name, commands[name], listed.about)


def _parse(parser: TopLevelParser, words: list[str]) -> Namespace:
    """Return the arguments, with the defaults of configuration files behind the command.

    Raises `InputError` for a wrong file; exits 2 for words that are wrong.
    """
    words = parser.commands.join_words(words)
    unknown = unknown_command(words, parser.commands)
    if unknown is not None:
        parser.error(unknown)
    position = next(positional(words), len(words))
    if position == len(words):  # the help of rater alone needs no file of defaults
        return parser.parse_args(words)
    from rater.commands.defaults import describe_defaults, find_defaults

    command, behind = words[position], words[position + 1 :]
    defaults = find_defaults(parser, command, words)
    if command in ("trust", "completion"):
        parser.commands[command].set_defaults(whole=parser)
    given = [default.word for default in defaults]
    arguments = parser.parse_args([*words[:position], command, *given, *behind])
    arguments.defaults = {default.dest for default in defaults}
    is_loud = getattr(arguments, "dry_run", False) or getattr(arguments, "quiet", None) is False
    for line in describe_defaults(defaults, quiet=not is_loud):
        print_error(line)
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    Everything behind the first `--` is a command to rate, taken as it stands.
    """
    try:
        return _main(argv)
    except StoppedBySignal as stopped:
        return stopped.exit_status
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str] | None) -> int:
    _fill_standard_descriptors()
    ignore_broken_pipe()
    with cleaned_streams():
        return _run_command(argv)


def _run_command(argv: Sequence[str] | None) -> int:
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # Inherited from a careless parent: children would vanish without a status.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words = list(sys.argv[1:] if argv is None else argv)
    command: list[str] | None = None
    if "--" in words:
        split = words.index("--")
        words, command = words[:split], words[split + 1 :]
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    parser = build_parser()
    try:
        _refuse_far_clock()
        arguments = _parse(parser, words)
    except RaterError as error:
        print_error(error)
        return error.exit_status
    if arguments.subcommand is None:
        if command is not None:
            parser.error(f"to measure a program: `rater run -- {shlex.join(command)}`")
        parser.print_help()
        return 0
    parsers = list(parsers_meant(parser, arguments))
    traits = {trait for meant in parsers for trait in meant.traits}
    if command is not None and CommandTrait.TAKES_COMMAND not in traits:
        _refuse_command(parser, parsers)
    arguments.command = command
    only_looks = any(getattr(arguments, option, None) for option in _LOOKING)
    if CommandTrait.RESTORES not in traits or only_looks:
        _report_settings()
    try:
        if CommandTrait.STARTS in traits:
            import_module("rater.run.launcher.limits").refuse_small_limits()
        if arguments.db:  # a run may be made in another directory
            arguments.db = str(Path(arguments.db).absolute())
        # Not before: until here a signal just ends the process, as nothing is begun that has to
        # be put back.
        with handle_stop_signals(raise_stopped):
            status: int = arguments.run(arguments)
            sys.stdout.flush()
    except RaterError as error:
        with suppress(OSError):
            print_error(error)
        return error.exit_status
    except (OSError, RuntimeError, ExceptionGroup) as error:
        return _end_by_system(error)
    return status


def _refuse_far_clock() -> None:
    """Raise `InputError` where the clock of the machine is beyond what Python can read."""
    try:
        time.time()
    except OverflowError as error:
        raise InputError(
            "the clock of this machine is beyond the year 2262: set it (`date -s`, `timedatectl`)"
        ) from error


def _end_by_system(error: Exception) -> int:
    """Say what the system refused rater, not a copy, and return the exit status.

    That is standard output on a full disk, or one more process. Raises any other error again.
    """
    lack = import_module("rater.run.launcher.start_errors").find_process_lack(error)
    if lack is None and not isinstance(error, OSError):
        raise error
    with suppress(OSError):
        print_error(lack or error)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


def _refuse_command(parser: Parser, parsers: Sequence[Parser]) -> NoReturn:
    """Exit 2 and name the commands that take a command to rate; `parsers`: of what was typed."""
    takers = _parsers_with_command(parser)
    typed = parsers[-1] if _parsers_with_command(parsers[0]) else parsers[0]
    names = [f"`{taker.prog.partition(' ')[2]}`" for taker in (*takers, typed)]
    parser.error(
        f"`--` and a command behind it belong to `rater` {', '.join(names[:-2])} and {names[-2]}, "
        f"not {names[-1]}"
    )


def _parsers_with_command(parser: Parser) -> list[Parser]:
    """Return the parsers of subcommands that take a command to rate."""
    return [sub for sub in parsers_below(parser) if CommandTrait.TAKES_COMMAND in sub.traits]


def _report_settings() -> None:
    """Say that a dead sweep left settings changed.

    Where none did this costs a look at the file system alone.
    """
    if any(exists(path) for path in journal_paths()):
        import_module("rater.workflow.doctor").report()


def _fill_standard_descriptors() -> None:
    """Put /dev/null where standard input, output or error is closed.

    Else the database, opened next, would get that number, and what a program
    prints would go into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - a number, for good
