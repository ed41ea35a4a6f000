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
from pathlib import Path

from rater import __version__
from rater.commands.command_line import (
    CommandTrait,
    ListedCommand,
    Menu,
    Parser,
    TopLevelParser,
    parsers_below,
    parsers_meant,
    positional,
    unknown_command,
)
from rater.system.errors import RaterError
from rater.system.paths import is_there, journal_paths
from rater.system.process import (
    StoppedBySignal,
    handled,
    ignore_broken_pipe,
    print_error,
    raise_stopped,
)
from rater.text.secrets import cleaned_streams
from rater.wings import COMMANDS

# By what people come for, the most used first among the groups and in each. What has two words
# stands in the help of the command that its first word names.
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
        "import": ListedCommand("runs from files", "commands.results"),
        "rm": ListedCommand("remove runs and sweeps", "commands.results"),
    },
    "compare": {
        "compare": ListedCommand("runs, tags or sweeps", "commands.results"),
        "scale": ListedCommand("throughput by copies", "commands.results"),
    },
    "machine": {
        "doctor": ListedCommand("check this machine", "commands.machine"),
        "doctor counters": ListedCommand("hardware counters", "commands.machine"),
        "doctor selftest": ListedCommand("test divot detection", "commands.runs"),
        "topo": ListedCommand("nodes, CPUs, caches", "commands.machine"),
        "settings": ListedCommand("tunable settings", "commands.machine"),
        "settings restore": ListedCommand("restore settings", "commands.machine"),
        "suites": ListedCommand("list, show, create", "commands.machine"),
    },
    "more": {name: ListedCommand(*it) for name, it in COMMANDS.items()},
    "shell": {
        "trust": ListedCommand("use a folder's defaults", "commands.machine"),
        "completion": ListedCommand("bash, zsh or fish", "commands.machine"),
    },
}
_LOOKING = ("dry_run", "listing", "show", "example")  # with these nothing is restored


def build_parser() -> TopLevelParser:
    """Return the whole parser, which declares a command when it is asked for."""
    parser = TopLevelParser(
        prog="rater",
        menu=MENU,
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


def _parsed(parser: TopLevelParser, words: list[str]) -> argparse.Namespace:
    """Return the arguments, with the defaults of configuration files behind the command.

    Raises `InputError` for a wrong file; exits 2 for words that are wrong.
    """
    words = parser.commands.joined(words)
    unknown = unknown_command(words, parser.commands)
    if unknown is not None:
        parser.error(unknown)
    at = next(positional(words), len(words))
    if at == len(words):  # of rater alone: its help needs no file of defaults
        return parser.parse_args(words)
    files = import_module("rater.commands.common")
    found = files.find_defaults(parser, words[at], words)
    for word in {"trust", "completion"}.intersection(words[at : at + 1]):
        parser.commands[word].set_defaults(whole=parser)
    args = parser.parse_args([*words[: at + 1], *(it.word for it in found), *words[at + 1 :]])
    args.defaults = {it.dest for it in found}
    loud = getattr(args, "dry_run", False) or getattr(args, "quiet", None) is False
    for line in files.described(found, quiet=not loud):
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
            parser.error(f"to measure a program: `rater run -- {shlex.join(command)}`")
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
            import_module("rater.run.launcher.limits").refuse_small_limits()
        if args.db:  # a run may be made in another directory
            args.db = str(Path(args.db).absolute())
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
