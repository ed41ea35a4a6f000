"""The parser of `rater`: its words, its help, its examples, and defaults from files."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Flag, auto
from itertools import batched
from textwrap import fill
from typing import Any, NamedTuple, NoReturn

from rater.system.process import (
    find_program,
    print_error,
    remember_database,
)

# -- The parser of `rater`: argparse with short messages that name the way out ---------------------

_MOST_OPTIONS = 12  # that the usage of the help names; the list below it has them all
_ABSENT = "the following arguments are required"  # argparse's words
_EXPECTED: dict[object, str] = {int: "a whole number", float: "a number"}


class CommandTrait(Flag):
    """What a command does besides its own work."""

    STARTS = auto()  # copies
    RESTORES = auto()  # itself what a dead sweep left of the machine's settings
    TAKES_COMMAND = auto()  # behind `--`


NO_TRAITS = CommandTrait(0)
RUNS = CommandTrait.STARTS | CommandTrait.RESTORES | CommandTrait.TAKES_COMMAND


class WholeHelp(argparse.Action):
    """Prints the help with all arguments, and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        """Do so; the rest of the command line does not count."""
        del namespace, values, option_string
        assert isinstance(parser, Parser)
        sys.stdout.write(parser.format_whole_help())
        parser.exit()


class ParagraphHelpFormatter(argparse.HelpFormatter):
    """Help whose paragraphs are filled to the terminal's width; indented lines stand as written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(
            part if part[:1] == " " else filled(part, width, indent) for part in parts
        )


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes take two lines, not the whole usage.

    `add_subparsers` makes those of the subcommands of this class too.
    """

    def __init__(
        self,
        *args: Any,
        examples: tuple[str, ...] = (),
        traits: CommandTrait = NO_TRAITS,
        **options: Any,
    ) -> None:
        super().__init__(*args, **{"formatter_class": ParagraphHelpFormatter} | options)
        self.examples = examples  # command lines to copy, at the end of the help
        self.traits = traits
        self.also: dict[str, str] = {}  # commands of two words that begin with this one
        self.seldom: set[str] = set()  # arguments that only `--help-all` shows, by `dest`
        # Where nothing is seldom, it is what `--help` shows.
        self.whole_help = self.add_argument(
            "--help-all",
            action=WholeHelp,
            dest="help",
            default=argparse.SUPPRESS,
            nargs=0,
            help=argparse.SUPPRESS,
        )

    def format_help(self) -> str:
        """Return the help without what few people need, which `--help-all` has.

        `rater` stands for itself there, as in a manual, however this process was called.
        """
        return self._format_arguments(self.seldom)

    def format_whole_help(self) -> str:
        """Return the help with all arguments."""
        return self._format_arguments(frozenset())

    def _format_arguments(self, hidden: Collection[str]) -> str:
        """Return the help: a short usage, arguments but the hidden ones, examples at its end."""
        shown = {action: action.help for action in self._actions if action.dest in hidden}
        for action in shown:
            action.help = argparse.SUPPRESS
        whole = super().format_help().removeprefix(self.format_usage())
        for action, text in shown.items():
            action.help = text
        whole = (self._short_usage or self.format_usage()) + whole
        if shown:
            more = f"{len(shown)} more options: `{self.prog} --help-all`"
            whole = f"{whole}\n{more}\n"
        also = "".join(f"  rater {name:<18} {about}\n" for name, about in self.also.items())
        lines = "".join(f"  {line}\n" for line in self.examples)
        for title, block in (("see also", also), ("examples", lines)):
            whole += f"\n{title}:\n{block}" if block else ""
        return whole

    @property
    def _short_usage(self) -> str | None:
        """The usage without its options, where they are so many that their list tells nothing."""
        options = [action for action in shown_actions(self) if action.option_strings]
        if len(options) <= _MOST_OPTIONS:
            return None
        formatter = self._get_formatter()
        formatter.add_usage(
            None, [action for action in self._actions if not action.option_strings], []
        )
        return formatter.format_help().replace(self.prog, f"{self.prog} [OPTION ...]", 1)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is; exit 2."""
        example = self.examples[:1] if _ABSENT in message else ()
        as_in = "".join(f"as in: `{line.partition('  #')[0].rstrip()}`; " for line in example)
        print_error(f"{message}\n  {as_in}more: `{self.prog} --help`")
        self.exit(2)

    def parse_args(  # type: ignore[override]  # one namespace class is enough
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse; what is left over is reported by the subcommand it stands behind."""
        parsed, words_left = self.parse_known_args(args, namespace)
        remember_database(getattr(parsed, "db", None))
        if words_left:
            parser = [self, *parsers_meant(self, parsed)][-1]
            several = next(
                (action for action in parser._actions if action.nargs in ("+", "*")), None
            )
            if several is None or any(word.startswith("-") and word != "-" for word in words_left):
                parser.error(_describe_surplus(parser, words_left))
            # argparse takes them in one piece only: `rater import a.json --json b.json`.
            setattr(parsed, several.dest, [*getattr(parsed, several.dest), *words_left])
        return parsed

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """Convert a value; what cannot be says itself what is expected, but for numbers."""
        convert = self._registry_get("type", action.type, action.type)
        try:
            return convert(arg_string)
        except ValueError as error:
            plain = _EXPECTED.get(convert)
            why = f"expected {plain}, got {arg_string!r}" if plain else str(error)
            raise argparse.ArgumentError(action, why) from None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Report a value that is no choice, with the nearest that is."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        near = _nearest(str(value), choices)
        way = f"did you mean {near}?" if near else f"expected one of {', '.join(choices)}"
        way = DROPPED.get(" ".join([self.prog, *action.option_strings, str(value)]), way)
        raise argparse.ArgumentError(action, f"{value!r} is no choice; {way}")


def _nearest(word: str, choices: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(choices), n=1)), None)


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, Parser]:
    """Return the parsers of its subcommands by name, in the order of the help."""
    if isinstance(parser, TopLevelParser):
        return dict(parser.commands)
    return {
        name: sub
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, sub in action.choices.items()
    }


def parsers_below(parser: argparse.ArgumentParser) -> Iterator[Parser]:
    """Yield the parsers of all subcommands, and of theirs, in the order of their helps."""
    for sub in subparsers_of(parser).values():
        yield sub
        yield from parsers_below(sub)


def parsers_meant(parser: argparse.ArgumentParser, args: argparse.Namespace) -> Iterator[Parser]:
    """Yield the parser of the subcommand that was typed, and of that one's."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) and getattr(args, action.dest):
            sub = action.choices[getattr(args, action.dest)]
            yield sub
            yield from parsers_meant(sub, args)


def shown_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield its arguments that the help names, without those of subcommands."""
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS and not isinstance(
            action, argparse._SubParsersAction
        ):
            yield action


def unknown_command(words: Sequence[str], commands: Mapping[str, Parser]) -> str | None:
    """Say what to type where the first word is neither a command of rater nor an option."""
    word = next((words[position] for position in positional(words)), None)
    if word is None or word in commands:
        return None
    near = _nearest(word, commands)
    program = find_program(word)
    if near and program is None:
        return f"unknown command {word!r}; did you mean `rater {near}`?"
    if program is not None:
        line = shlex.join([program, *words[words.index(word) + 1 :]])
        return f"{word} is not a command of rater; to measure that program: `rater run -- {line}`"
    return f"unknown command {word!r}; `rater help` lists the commands"


def positional(words: Sequence[str]) -> Iterator[int]:
    """Yield where no option stands before the subcommand; `--db` is the only one with a value."""
    for position, word in enumerate(words):
        if not word.startswith("-") and words[position - 1 : position] != ["--db"]:
            yield position


# Names that commands had, which answer with today's for this version.
RENAMED = {
    "plot": "show plot",
    "selftest": "doctor selftest",
    "counters": "doctor counters",
    "layouts": "plan layouts",
    "restore": "settings restore",
    "pages": "lab trace",
    "model": "lab model",
    "lint-bind": "spec lint-bind",
    "import spec": "spec import",
    "merge": "fleet merge",
}

# What was dropped, as it was typed, and what does it now.
DROPPED = {
    "rater spec lint-bind --fix": "`rater plan --topology MACHINE -- true` lists each copy's CPU",
    "rater import --topology": "`rater spec import` has it, documents say it themselves",
    "rater show --with": "`rater compare RUN RUN2` compares any two runs",
    **dict.fromkeys(
        (f"rater {name} --speccmds-out" for name in ("run", "plan", "sweep")),
        "`rater show RUN --copies --json` has the times of every workload",
    ),
    "rater export --format rsf": "use csv or observations, which have every copy's time and place",
}


def _describe_surplus(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Say which words an option or argument does not exist for."""
    options = [string for action in shown_actions(parser) for string in action.option_strings]
    for word in words:
        name = word.partition("=")[0]
        if word.startswith("-"):
            near = _nearest(name, options)
            meant = DROPPED.get(f"{parser.prog} {name}", f"did you mean {near}?" if near else "")
            return f"{parser.prog} has no option {name}{meant and '; '}{meant}"
    return f"{parser.prog} takes no further argument {' '.join(words)!r}"


# -- The help of `rater` itself: every command in a few words, by what people come for -------------


class ListedCommand(NamedTuple):
    """A command of `rater`, which is declared when it is asked for."""

    about: str
    module: str  # below `rater`: it has what the command is, in `COMMANDS`


type Menu = Mapping[str, Mapping[str, ListedCommand]]  # by title and name
type Subparsers = argparse._SubParsersAction[Parser]
type DeclareCommand = Callable[[Subparsers, str, ListedCommand], object]  # str: the command's name

# Characters: from this width of the terminal on two commands stand in a line, the first and the
# second at these columns, each name padded to this width.
_WIDTH_OF_TWO = 80
_COMMAND_STARTS = (10, 45)
_NAME_WIDTH = 11


class TopLevelParser(Parser):
    """The parser of `rater`, whose help fits a screen of 24 lines.

    `declare` adds the parser of one command; it is called when the command is asked for.
    """

    def __init__(self, *args: Any, menu: Menu, declare: DeclareCommand, **options: Any) -> None:
        super().__init__(*args, **options)
        self.menu = menu
        self.declare = declare
        self.commands = Commands(self)

    def parse_known_args(  # type: ignore[override]  # as `parse_args`
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, with the one command declared that is named."""
        words = self.commands.join_words(sys.argv[1:] if args is None else args)
        self.commands.get(next((words[position] for position in positional(words)), ""))
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        """Return usage, all commands by group, and what holds for all of them."""
        width = self._get_formatter()._width + 2  # that argparse leaves free
        rows = [
            row
            for title, group in self.menu.items()
            for row in _format_group(title, group, 2 if width >= _WIDTH_OF_TWO else 1)
        ]
        return "\n".join(
            [
                f"usage: {self.prog} [--db PATH] [--json] [--version] COMMAND ...",
                *fill(self.description or "", width - 1).splitlines(),
                "",
                *rows,
                "",
                *self.examples,
                *fill(self.epilog or "", width - 1).splitlines(),
                "",
            ]
        )


class Commands(Mapping[str, Parser]):
    """The parsers of all commands by name, each declared when it is asked for.

    A command may have two words (`show plot`), which `join_words` makes one of.
    """

    def __init__(self, parser: TopLevelParser) -> None:
        self._listed = {
            name: listed for group in parser.menu.values() for name, listed in group.items()
        }
        self._declare = parser.declare
        self._declared = parser.add_subparsers(
            dest="subcommand", metavar="COMMAND", parser_class=Parser
        )

    def __getitem__(self, name: str) -> Parser:
        """Return a command's parser; raises `KeyError` for none."""
        if name not in self._declared.choices:
            self._declare(self._declared, name, self._listed[name])
        parser = self._declared.choices[name]
        parser.also = {
            words: listed.about
            for words, listed in self._listed.items()
            if words.startswith(f"{name} ")
        }
        return parser

    def __contains__(self, name: object) -> bool:
        return name in self._listed  # the command is not declared by that

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    def join_words(self, words: Sequence[str]) -> list[str]:
        """Return what was typed, with today's name of a command, of two words as one word."""
        position = next(positional(words), len(words))
        for size in (2, 1):
            typed = " ".join(words[position : position + size])
            if new_name := RENAMED.get(typed):
                print_error(f"`rater {typed}` is `rater {new_name}` now")
                return self.join_words(
                    [*words[:position], *new_name.split(), *words[position + size :]]
                )
        typed = " ".join(words[position : position + 2])
        if typed not in self._listed:
            return [*words]
        return [*words[:position], typed, *words[position + 2 :]]


def _format_group(
    title: str, group: Mapping[str, ListedCommand], commands_per_line: int
) -> Iterator[str]:
    """Yield the lines of a group of commands; commands of two words are not among them."""
    shown = [(name, listed.about) for name, listed in group.items() if " " not in name]
    for line_number, commands in enumerate(batched(shown, commands_per_line)):
        line = "" if line_number else f"{title}:"
        for (name, about), start in zip(commands, _COMMAND_STARTS, strict=False):
            line = f"{line:<{start}}{name:<{_NAME_WIDTH}}{about}"
        yield line
