"""What every use case shares: arguments of a run, an existing store, JSON or text."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from rater.errors import InputError
from rater.plan.options import Option, OptionForm, was_given
from rater.plan.request import BY_NAME, DEFAULT_SUITE, KIT, KIT_COPIES, OPTIONS, Request
from rater.process import print_error, remember_runs

if TYPE_CHECKING:
    from rater.show.console import Printer
    from rater.show.document import Part
    from rater.store.store import Store


# -- What the user typed for a run: the table of options as arguments, and the `Request` of them ---


def add_run_arguments(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Declare what `run` (and every command that plans a run) takes, but the options `without`.

    What was not given is None, False or an empty list: `parse_request` knows the defaults.
    """
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE[/BENCHMARK]",
        help=f"a suite's name or path; default {DEFAULT_SUITE}, unless a command follows `--`; "
        f"{KIT}DIR: run directories that an installed SPEC CPU made (runcpu --action runsetup)",
    )
    for title, options in groupby(OPTIONS, key=lambda it: it.group):
        group = parser.add_argument_group(title)
        for option in options:
            if option.name not in without:
                add_option(group, option)


def add_option(parser: argparse._ActionsContainer, option: Option, text: str | None = None) -> None:
    """Declare one option of a run; `text`: what it means for another command."""
    rest: dict[str, Any] = {"help": text or option.help, "dest": option.dest}
    form, convert = option.kind.form, option.kind.convert
    if form is OptionForm.FLAG:
        rest["action"] = "store_true"
    else:
        rest |= {"metavar": option.metavar, "choices": option.choices, "type": convert}
    if form in (OptionForm.SEVERAL, OptionForm.REPEATED):
        rest |= {"action": "append", "default": []}
    if form is OptionForm.SEVERAL:
        rest |= {"action": "extend", "nargs": "+"}
    if option.const is not None:
        rest |= {"nargs": "?", "const": option.const}
    parser.add_argument(option.typed, *(f"--{name}" for name in option.aliases), **rest)


def parse_request(args: argparse.Namespace) -> Request:
    """Check each value by itself; raises `InputError` naming the option."""
    if args.command is not None and args.suites:
        raise InputError(
            f"both a suite ({' '.join(args.suites)}) and a command behind `--`: "
            "one run rates one or the other"
        )
    if args.command is not None and not args.command:
        raise InputError("nothing behind `--`; expected a command, as in `rater run -- ./bench`")
    _check_belonging(args)
    of_kit = _check_kit(args)
    values: dict[str, Any] = {"copies": KIT_COPIES, "size": "", "tune": ""} if of_kit else {}
    for option in OPTIONS:
        value = getattr(args, option.dest)
        if was_given(value) and (value or option.field not in ("size", "tune")):
            values[option.field] = option.kind.check(option.typed, value)
    default = () if args.command or of_kit else (DEFAULT_SUITE,)
    return Request(
        suites=tuple(args.suites) or default, command=tuple(args.command or ()), **values
    )


def tags_from(args: argparse.Namespace) -> tuple[tuple[str, str], ...]:
    """Return what --tag was given; raises `InputError` for what is no KEY=VALUE."""
    option = BY_NAME["tag"]
    found: tuple[tuple[str, str], ...] = option.kind.check(option.typed, args.tag)
    return found


def with_common(request: Request, args: argparse.Namespace) -> Request:
    """Return a stored request with `--force`, `--share` and `--wait` as they were given now."""
    return replace(
        request,
        force=request.force or args.force,
        share=request.share or args.share,
        wait_s=args.wait,
    )


# Of a sweep, where the command that makes it has no option of this name.
OF_A_SWEEP: dict[str, Any] = dict.fromkeys(("block_order", "seed", "until", "show", "resume"))
OF_A_SWEEP |= dict.fromkeys(
    ("skip_refused", "listing", "example", "dry_run", "quiet", "verbose"), False
)
# What the command line adds to the arguments: which command it is, and what files gave.
_NO_OPTIONS = ("run", "subcommand", "command", "defaults")
# What may stand beside `--resume`: it says how to do or to show it, not what.
BESIDE_RESUME = (
    "resume",
    "force",
    "share",
    "wait",
    "quiet",
    "verbose",
    "dry_run",
    "json",
    "db",
    "retries",
)


def given_options(args: argparse.Namespace, but: Iterable[str]) -> list[str]:
    """Return the arguments that were given, as a user types them, but those called `but`."""
    given: list[str] = []
    for name, value in vars(args).items():
        if was_given(value) and name not in but and name not in _NO_OPTIONS:
            given += value if name == "suites" else [f"--{name.replace('_', '-')}"]
    return given


def _check_belonging(args: argparse.Namespace) -> None:
    """An option that would change nothing is a misunderstanding, not a wish."""
    why = "is for suites, a command has none"
    others = ["size", "tune"]
    if args.command is None:
        others, why = ["name"], "is for a command behind `--`"
    for name in others:
        value = getattr(args, name)
        if value is not None and name not in args.defaults:
            raise InputError(f"--{name} {value} {why}: leave it out")
        setattr(args, name, None)
    rotated = ("rotated", "heterogeneous")
    if args.increment is not None and args.mode not in rotated and args.order not in rotated:
        raise InputError(
            f"--increment {args.increment} is the step of rotated order: add --mode rotated, "
            "or leave it out"
        )


def _check_kit(args: argparse.Namespace) -> bool:
    """Tell whether benchmarks of a kit are asked for; raises `InputError` for what does not fit."""
    kits = [suite for suite in args.suites if suite.startswith(KIT)]
    others = [suite for suite in args.suites if not suite.startswith(KIT)]
    of_kit = bool(kits or args.speccmds)
    if of_kit and (others or args.command is not None):
        what = others[0] if others else "a command behind `--`"
        named = kits[0] if kits else f"--speccmds {args.speccmds[0]}"
        raise InputError(f"both {named} and {what}: one run rates one or the other")
    if args.bind_from_file:
        if not of_kit:
            raise InputError(
                f"--bind-from-file is for {KIT}DIR and --speccmds FILE.cmd: leave it out"
            )
        for name in ("layout", "bind", "smt", "kind", "reserve"):
            if BY_NAME[name].given(args):
                raise InputError(
                    f"--bind-from-file places copies as the command file says: leave out --{name}"
                )
    for option, value in (("--size", args.size), ("--tune", args.tune)):
        if of_kit and not kits and value is not None:
            raise InputError(
                f"{option} {value} chooses among the run directories of {KIT}DIR, and a command "
                "file is of one: leave it out"
            )
    if of_kit and args.run_dirs:
        raise InputError("--run-dirs: copies of a kit work in its run directories: leave it out")
    return of_kit


# -- What every use case shares: an existing store, JSON or text on standard output, a word aside --

_RUN_WORDS = ("which", "points", "baseline")  # arguments that are words for runs


def open_existing_store(args: argparse.Namespace) -> Store:
    """Open the database, which there must be."""
    from rater.files import is_there
    from rater.store.connection import default_path
    from rater.store.store import open_store

    path = default_path(args.db)
    if not is_there(path):
        raise InputError(
            f"there is no database {path}; `rater run` makes it, or name another with --db"
        )
    return open_store(path)


def open_to_list(args: argparse.Namespace) -> Store | None:
    """Open the database; None, and a word, where there is none yet and none is named."""
    from rater.files import is_there
    from rater.store.connection import default_path

    if args.db or is_there(default_path(None)):
        return open_existing_store(args)
    print_error(f"there is no database {default_path(None)} yet")
    return None


class FleetArchive(Protocol):
    """What a wing has of runs in the archive of a fleet."""

    def fleet_words(self, words: Sequence[str | None]) -> list[str]:
        """Return those words that name archived runs."""

    def copy_runs(self, store: Store, words: Sequence[str]) -> tuple[Store, Mapping[str, int]]:
        """Return a store of copies of what words mean, and their numbers there."""


def open_store_for_reading(args: argparse.Namespace) -> Store:
    """Open the database, which there must be, of a command that only reads runs.

    Where its words name runs in the archive of a fleet (`fleet:3/n017`), these are copied, and
    the store has them alone.
    """
    from rater.wings import Hook

    archive = Hook[FleetArchive]("fleet archive")
    store = open_existing_store(args)
    words: list[str | None] = []
    for name in _RUN_WORDS:
        given = getattr(args, name, None)
        words += [given] if isinstance(given, str) else given or []
    archived = archive().fleet_words(words)
    if not archived:
        return store
    with store:
        copied, numbers = archive().copy_runs(store, archived)
    remember_runs({number: word for word, number in numbers.items()})
    for word, number in numbers.items():
        print_error(f"{word} is called run {number} here, and {word} in commands")
    return copied


def check_current_directory() -> None:
    """Raise `InputError` where the current directory is gone or forbidden."""
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            f"the current directory cannot be entered ({error.strerror}); cd to one that is there"
        ) from error


def print_view[D](
    args: argparse.Namespace, document: D, parts: Callable[[D], Iterable[Part]]
) -> None:
    """Print a JSON document as it is, or its tables and sentences as `--format` says."""
    if args.json:
        print_json(document)
        return
    from rater.show.document import print_parts, write_csv

    if getattr(args, "format", None) == "csv":
        write_csv(parts(document), sys.stdout)
    else:
        print_parts(parts(document), _printer(args))


def _printer(args: argparse.Namespace) -> Printer:
    from rater.show.console import Printer, terminal

    if getattr(args, "format", None) == "md":
        from rater.show.document import MarkdownPrinter

        return MarkdownPrinter(sys.stdout)
    return Printer(terminal())


JSON_VERSION = 1  # of documents: grows when a key is taken away or comes to mean something else


def print_json(value: object) -> None:
    """Print the one JSON document of a `--json` command.

    The version stands in it under `rater`, of a list in each of its members.
    """
    if isinstance(value, Mapping):
        value = {"rater": JSON_VERSION, **value}
    elif isinstance(value, list):
        value = [{"rater": JSON_VERSION, **it} if isinstance(it, Mapping) else it for it in value]
    # At once: of the pieces of `json.dump` a list of all runs has millions, each cleaned by itself.
    sys.stdout.write(f"{json.dumps(value, indent=2, allow_nan=False)}\n")


def print_json_rows(document: Mapping[str, object]) -> None:
    """Print the one JSON document of a `--json` command, an element of its lists a line.

    Ten times as fast as `print_json`, which matters for thousands of copies.
    """
    told = []
    for key, value in {"rater": JSON_VERSION, **document}.items():
        text = json.dumps(value, allow_nan=False)
        if isinstance(value, list) and value and not isinstance(value[0], int):
            rows = [f"    {json.dumps(one, allow_nan=False)}" for one in value]
            text = "[\n" + ",\n".join(rows) + "\n  ]"
        told.append(f"  {json.dumps(key)}: {text}")
    sys.stdout.write("{\n" + ",\n".join(told) + "\n}\n")
