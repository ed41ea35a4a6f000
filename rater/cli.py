"""Collect the families of subcommands into one parser, run one, turn errors into exit status."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from rater import __version__
from rater.command_line import (
    CommandTrait,
    Parser,
    TopLevelParser,
    described,
    find_defaults,
    parsers_below,
    parsers_meant,
    subparsers_of,
    unknown_command,
)
from rater.errors import RaterError
from rater.files import is_there, journal_paths
from rater.process import StoppedBySignal, handled, ignore_broken_pipe, print_error, raise_stopped
from rater.text.secrets import cleaned_streams
from rater.wings import COMMANDS

# A new command is a new file here; each declares its arguments in `register`.
FAMILIES = (
    "commands.runs.register_run",
    "commands.runs.register_plan",
    "commands.runs.register_rerun",
    "commands.results.register_results",
    "commands.results.register_divots",
    "commands.results.register_plot",
    "commands.results.register_report",
    "commands.runs.register_selftest",
    "commands.results.register_compare",
    "commands.results.register_scale",
    "commands.runs.register_sweep",
    "commands.machine.register_settings",
    "commands.machine.register_suites",
    "commands.machine.register_layouts",
    "commands.machine.register_topo",
    "commands.machine.register_completion",
    "commands.machine.register_doctor",
)
_LOOKING = ("dry_run", "listing", "show", "example")  # with these nothing is restored


def build_parser() -> TopLevelParser:
    """Return the whole parser; imports only the families' argument declarations."""
    parser = TopLevelParser(
        prog="rater",
        description="Run N copies of a benchmark at once, and find the slow part of the machine.",
        epilog="RUN: a number, the start of a uuid, last, last~1. More: rater COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"rater {__version__}")
    parser.add_argument("--db", metavar="PATH", default=None, help="the database (else RATER_DB)")
    parser.add_argument(
        "--json", action="store_true", default=False, help="one JSON document on stdout"
    )
    commands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", parser_class=Parser)
    for family in (*FAMILIES, *COMMANDS):
        module, _, function = family.rpartition(".")
        getattr(import_module(f"rater.{module}"), function)(commands)
    commands.choices["completion"].set_defaults(whole=parser)
    return parser


def _parsed(parser: Parser, words: list[str]) -> argparse.Namespace:
    """Return the arguments, with the defaults of configuration files behind the command.

    Raises `InputError` for a wrong file; exits 2 for words that are wrong.
    """
    commands = subparsers_of(parser)
    unknown = unknown_command(words, commands)
    if unknown is not None:
        parser.error(unknown)
    at = next((i for i, word in enumerate(words) if word in commands), len(words))
    found = find_defaults(parser, words[at], words) if at < len(words) else ()
    args = parser.parse_args([*words[: at + 1], *(it.word for it in found), *words[at + 1 :]])
    args.defaults = {it.dest for it in found}
    if getattr(args, "dry_run", False) or getattr(args, "quiet", None) is False:
        for line in described(found):
            print_error(line)
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    Everything behind the first `--` is a command to rate, taken as it stands.
    """
    try:
        with handled(raise_stopped):
            return _main(argv)
    except StoppedBySignal as stopped:
        return stopped.exit_status
    except KeyboardInterrupt:
        return 130


def _main(argv: Sequence[str] | None) -> int:
    _fill_standard_descriptors()
    ignore_broken_pipe()
    with cleaned_streams():
        return _command(argv)


def _command(argv: Sequence[str] | None) -> int:
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
        args = _parsed(parser, words)
    except RaterError as error:
        print_error(error)
        return error.exit_status
    if args.subcommand is None:
        if command is not None:
            parser.error(f"to measure a program: rater run -- {shlex.join(command)}")
        parser.print_help()
        return 0
    meant = list(parsers_meant(parser, args))
    traits = {trait for it in meant for trait in it.traits}
    if command is not None and CommandTrait.TAKES_COMMAND not in traits:
        every = _with_command(parser)
        typed = meant[-1] if _with_command(meant[0]) else meant[0]
        *most, last, this = (f"`{it.prog.partition(' ')[2]}`" for it in (*every, typed))
        parser.error(
            f"`--` and a command behind it belong to `rater` {', '.join(most)} and {last}, not "
            f"{this}"
        )
    args.command = command
    if CommandTrait.RESTORES not in traits or any(getattr(args, it, None) for it in _LOOKING):
        _report_settings()
    try:
        if CommandTrait.STARTS in traits:
            import_module("rater.run.copies.limits").refuse_small_limits()
        status: int = args.run(args)
        sys.stdout.flush()
    except RaterError as error:
        with suppress(OSError):
            print_error(error)
        return error.exit_status
    except OSError as error:
        # Of the system, not of a copy: standard output on a full disk, no more processes.
        with suppress(OSError):
            print_error(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return status


def _with_command(parser: Parser) -> list[Parser]:
    """Return the parsers of subcommands that take a command to rate."""
    return [it for it in parsers_below(parser) if CommandTrait.TAKES_COMMAND in it.traits]


def _report_settings() -> None:
    """Say that a dead sweep left settings changed; a look at the file system where none did."""
    if any(is_there(path) for path in journal_paths()):
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
            os.open(os.devnull, os.O_RDWR)  # the lowest free number is this one
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - a number, for good
