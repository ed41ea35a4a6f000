"""`rater completion`: a shell's completion of commands, options and values, from the parser."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from rater.command_line.parser import subparsers_of
from rater.commands.common import Subparsers

SHELLS = ("bash", "zsh", "fish")
# What an argument takes, by the words its help has for it; those in small letters are values.
_FILES = {"FILE", "FILE.cmd", "PATH", "MACHINE", "SUITE", "LAYOUT", "CONFIG", "DB"}
_DIRECTORIES = {"DIR"}


def register(subparsers: Subparsers) -> None:
    """Declare the subcommand."""
    parser = subparsers.add_parser(
        "completion",
        help="for bash, zsh or fish",
        description="Print the completion of commands, options and their values for a shell. "
        "Packages install it; elsewhere: "
        "bash: rater completion bash > ~/.local/share/bash-completion/completions/rater; "
        "zsh: rater completion zsh > _rater, in a folder of $fpath; "
        "fish: rater completion fish > ~/.config/fish/completions/rater.fish.",
    )
    parser.add_argument("shell", choices=SHELLS, help="whose")
    parser.set_defaults(run=_print)


def _print(args: argparse.Namespace) -> int:
    sys.stdout.write(script(args.shell, args.whole))
    return 0


def script(shell: str, parser: argparse.ArgumentParser) -> str:
    """Return the completion of one of `SHELLS` for all that the parser takes."""
    import shtab

    for action in _all_actions(parser):
        words = str(action.metavar or "").replace("[", "|").split("|")
        if action.nargs == 0 or action.choices:
            continue
        if known := [word for word in words if word.isalpha() and word.islower()]:
            action.choices = known
        elif not _FILES.isdisjoint(words):
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab looks for it
        elif not _DIRECTORIES.isdisjoint(words):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # as above
    return shtab.complete(parser, shell=shell) + "\n"


def _all_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    yield from parser._actions
    for sub in subparsers_of(parser).values():
        yield from _all_actions(sub)
