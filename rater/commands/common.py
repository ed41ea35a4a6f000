"""What several subcommands take, declared once."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec import Struct

from rater.commands.command_line import NO_TRAITS, CommandTrait, Parser, Subparsers
from rater.plan.options import Option, OptionForm, Trait
from rater.plan.request import BY_NAME, DEFAULT_SUITE, KIT, OPTIONS
from rater.text.values import duration_s, size_bytes
from rater.workflow.arguments import Output, RunArguments, StartOptions

# Words of the tables below that several commands have.
RUN = "a number, the start of a uuid, last, last~1, or tag:K=V"
ONE_RUN = f"{RUN} (where one run has that tag); fleet:N/HOST: a host's run of a fleet"
ALL_RUNS = f"{RUN} (all runs with that tag)"
RESTORE = "runs that were removed (`rater rm`) come back; without it they stay removed"
POINTS = (
    "a point: a run (a number, the start of a uuid, last, last~1), several runs of one point "
    "(7,8,9 or 25-44), all runs with a tag (tag:thp=always), all points of a sweep (sweep:3, "
    "sweep:last), or a host's run of a fleet (fleet:3/n017)"
)
VERBOSE = """
-v, --verbose  every iteration, where the time of copies went, their memory, all remarks
"""
START = "@force\n@share\n@wait\n"  # how a run is started
SWEEP = """
--skip-refused     skip points that cannot run
--stop-on-failure  stop when a copy fails; default: go on
"""


# -- From parsed arguments to values of a use case -------------------------------------------------


def output_of(arguments: Namespace) -> Output:
    """Return where runs are kept and how they are shown; each command has some of these options."""
    return Output(
        db=arguments.db,
        json=arguments.json,
        quiet=getattr(arguments, "quiet", False),
        verbose=getattr(arguments, "verbose", False),
        dry_run=getattr(arguments, "dry_run", False),
        format=getattr(arguments, "format", None),
    )


def run_arguments_of(arguments: Namespace) -> RunArguments:
    """Return what was typed for a run, of a command that takes the options of `rater run`."""
    return RunArguments.from_parsed(vars(arguments))


def start_options_of(arguments: Namespace) -> StartOptions:
    """Return how a run is to be started."""
    return StartOptions(force=arguments.force, share=arguments.share, wait=arguments.wait)


def command_of(arguments: Namespace) -> tuple[str, ...] | None:
    """Return the words behind `--`, if that was typed."""
    return None if arguments.command is None else tuple(arguments.command)


# -- A command, and its arguments as a table -------------------------------------------------------

_CONVERTERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "duration": duration_s,
    "bytes": size_bytes,
    "path": Path,
}


class Subcommand(Struct, frozen=True, kw_only=True):
    """A command: what it calls, its arguments, and its help."""

    # Calls the use case, which it imports: no command pays for the modules of another. A command
    # without this has to be typed with one of its actions.
    run: Callable[[Namespace], int] | None
    arguments: str = ""  # the table that `add_arguments` reads; it may name converters of `types`
    tables: bool = False  # whether the command has `--format`
    gates: bool = False  # whether that has the forms that CI systems read as well
    types: Mapping[str, Callable[[str], Any]] = {}
    actions: Mapping[str, Subcommand] = {}
    traits: CommandTrait = NO_TRAITS
    help: str | None = None
    description: str | None = None
    epilog: str | None = None
    usage: str | None = None
    is_plain: bool = False  # without `--db` and `--json`


_TABLE_FORMATS = "--format (md|csv)  tables as Markdown, or as CSV without the text"
_GATE_FORMATS = """
--format (md|csv|junit|github|openmetrics)  tables as Markdown, or as CSV without the text; each
    benchmark as a case of JUnit (what cannot be judged is skipped, with the reason), as an
    annotation of GitHub with the tables in the step's summary, or as gauges of OpenMetrics
"""


def declare(
    subparsers: Subparsers, name: str, command: Subcommand, about: str | None = None
) -> Parser:
    """Declare a command and its actions, with `--db` and `--json` where it runs something."""
    texts: dict[str, Any] = {
        "description": command.description,
        "epilog": command.epilog,
        "usage": command.usage,
    }
    if help_text := about or command.help:  # argparse does not list a command without this
        texts["help"] = help_text
    parser = subparsers.add_parser(name, traits=command.traits, **texts)
    add_arguments(parser, command.arguments, command.types)
    if command.actions:
        actions = parser.add_subparsers(
            dest="action",
            metavar="ACTION" if command.run else "COMMAND",
            required=command.run is None,
        )
        for action_name, action in command.actions.items():
            declare(actions, action_name, action)
    if command.run is None:
        return parser
    parser.set_defaults(run=command.run)
    if command.is_plain:
        return parser
    # Both may also stand before the subcommand; a default here would overwrite their value.
    absent: dict[str, Any] = {"default": argparse.SUPPRESS}
    parser.add_argument("--db", metavar="PATH", help="the database (else RATER_DB)", **absent)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout", **absent)
    if command.tables:
        add_arguments(parser, _GATE_FORMATS if command.gates else _TABLE_FORMATS)
    return parser


def add_arguments(
    parser: Parser, table: str, types: Mapping[str, Callable[[str], Any]] = {}
) -> None:
    """Declare the arguments of a table: words that are typed, two spaces, their help.

    The help may go on in indented lines. Kinds of entries:

    the trial:                a title: the entries below are a group of the help
    either:                   at most one of the entries below may be given, up to `options:`
    -v, --verbose             an option without a value
    --iteration I:int         a value and the name of its converter, of `types` too
    --from FILE+              the option takes several words, and may be given several times
    --tag K=V ...             the option may be given several times; `!`: it has to be given
    --law (log|rate) =log     one of these words, and the default
    --run SIZE ?test          the value may be left out, and is `test` then
    RUN* >which               positional: one, or (?) one at most, (*) any, (+) one at least;
                              the parsed value is called `which`
    $ rater show last         a command line to copy, at the end of the help
    @force                    the option of that name of `rater run`
    @run -wait -share         all options of `rater run` but these two
    """
    group: argparse._ActionsContainer = parser
    for entry in re.split(r"\n(?=\S)", table.strip("\n")):
        typed, _, help_text = (part.strip() for part in entry.partition("  "))
        if typed.startswith("$"):
            parser.examples += (entry[2:].rstrip(),)
        elif typed.startswith("@run"):
            add_run_arguments(parser, without=[word[1:] for word in typed.split()[1:]])
        elif typed.startswith("@"):
            add_option(group, BY_NAME[typed[1:]])
        elif not typed.startswith("-") and typed.endswith(":"):
            group = parser
            if typed == "either:":
                group = parser.add_mutually_exclusive_group()
            elif typed != "options:":
                group = parser.add_argument_group(typed[:-1])
        elif typed:
            names, settings = _argument_settings(typed.split(), {**_CONVERTERS, **types})
            shown_help = " ".join(help_text.split()) or argparse.SUPPRESS
            group.add_argument(*names, help=shown_help, **settings)


_MARKS: dict[str, dict[str, Any]] = {
    "...": {"action": "append", "default": []},
    "!": {"required": True},
}


def _argument_settings(
    words: Sequence[str], types: Mapping[str, Callable[[str], Any]]
) -> tuple[list[str], dict[str, Any]]:
    """Return the names of an argument, and the keywords that `add_argument` takes with them."""
    names = [word.rstrip(",") for word in words if word.startswith("-")]
    settings: dict[str, Any] = {}
    convert: Callable[[str], Any] = str
    for word in words[len(names) :]:
        mark, value = word[0], word[1:]
        if word in _MARKS:
            settings |= _MARKS[word]
        elif mark == ">":
            settings["dest"] = value
        elif mark == "=":
            settings["default"] = convert(value)
        elif mark == "?":
            settings |= {"nargs": "?", "const": convert(value)}
        else:
            metavar, _, type_name = word.rpartition(":")
            if type_name in types:
                settings["type"] = convert = types[type_name]
            else:
                metavar = word
            if mark == "(":
                settings["choices"] = tuple(map(convert, metavar.strip("()").split("|")))
            else:
                settings["metavar"] = metavar
    metavar = settings.get("metavar", "")
    if names:
        is_flag = not {"metavar", "choices"} & settings.keys()
        several = {"metavar": metavar[:-1], "nargs": "+", "action": "extend", "default": []}
        settings |= several if metavar.endswith("+") else {}
        return names, settings | ({"action": "store_true"} if is_flag else {})
    if metavar[-1:] in {"?", "*", "+"}:
        settings |= {"metavar": metavar[:-1], "nargs": metavar[-1]}
    return [settings.pop("dest", metavar.rstrip("?*+").lower())], settings


# -- The table of options as arguments -------------------------------------------------------------


def add_run_arguments(parser: Parser, without: Sequence[str] = ()) -> None:
    """Declare suites and all options of `rater run`, except what is named in `without`.

    The value of an option that was not given is None, False or an empty list: `Request` has the
    defaults.
    """
    if "suites" not in without:
        parser.add_argument(
            "suites",
            nargs="*",
            metavar="SUITE[/BENCHMARK]",
            help=f"a suite's name or path; default {DEFAULT_SUITE}, unless a command follows `--`; "
            f"{KIT}DIR: run directories that an installed SPEC CPU made (runcpu --action runsetup)",
        )
    for title, options in groupby(OPTIONS, key=lambda option: option.group):
        group = parser.add_argument_group(title)
        for option in options:
            if option.name not in without:
                action = add_option(group, option)
                if Trait.COMMON not in option.traits:
                    parser.seldom.add(action.dest)
    parser.whole_help.help = "show all options and exit"


def add_option(parser: argparse._ActionsContainer, option: Option) -> argparse.Action:
    """Declare one option of a run."""
    settings: dict[str, Any] = {"help": option.help, "dest": option.dest}
    form, convert = option.kind.form, option.kind.convert
    if form is OptionForm.FLAG:
        settings["action"] = "store_true"
    else:
        settings |= {"metavar": option.metavar, "choices": option.choices, "type": convert}
    if form in (OptionForm.SEVERAL, OptionForm.REPEATED):
        settings |= {"action": "append", "default": []}
    if form is OptionForm.SEVERAL:
        settings |= {"action": "extend", "nargs": "+"}
    if option.const is not None:
        settings |= {"nargs": "?", "const": option.const}
    aliases = (f"--{name}" for name in option.aliases)
    return parser.add_argument(option.typed, *aliases, **settings)
