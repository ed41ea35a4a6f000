"""The parser of `rater`: argparse with short messages that name the way out."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from rater.command_line.examples import EXAMPLES
from rater.streams import say
from rater.text.textfile import is_file

type Subparsers = argparse._SubParsersAction[Parser]


_MOST_OPTIONS = 12  # that the usage of the help names; the list below it has them all
_ABSENT = "the following arguments are required"  # argparse's words
_EXPECTED = {"int": "a whole number", "float": "a number"}


class Paragraphs(argparse.HelpFormatter):
    """Help whose paragraphs are filled to the terminal's width; indented lines stand as written."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = super()._fill_text
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(it if it[:1] == " " else filled(it, width, indent) for it in parts)


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes take two lines, not the whole usage.

    `add_subparsers` makes those of the subcommands of this class too.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"formatter_class": Paragraphs} | options)

    def format_help(self) -> str:
        """Return the help: what it takes in few words, and command lines to copy at its end."""
        whole = super().format_help()
        if self._short_usage is not None:
            whole = self._short_usage + whole.removeprefix(self.format_usage())
        lines = "".join(f"  {line}\n" for line in EXAMPLES.get(self.prog, ()))
        return whole + (f"\nexamples:\n{lines}" if lines else "")

    @property
    def _short_usage(self) -> str | None:
        """The usage without its options, where they are so many that their list tells nothing."""
        options = [it for it in shown_actions(self) if it.option_strings]
        if len(options) <= _MOST_OPTIONS:
            return None
        formatter = self._get_formatter()
        formatter.add_usage(None, [it for it in self._actions if not it.option_strings], [])
        return formatter.format_help().replace(self.prog, f"{self.prog} [OPTION ...]", 1)

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where help is; exit 2."""
        for kind, expected in _EXPECTED.items():
            message = message.replace(f"invalid {kind} value:", f"expected {expected}, got")
        example = EXAMPLES.get(self.prog, ())[:1] if _ABSENT in message else ()
        as_in = "".join(f"as in: {line.partition('  #')[0].rstrip()}; " for line in example)
        say(f"{message}\n  {as_in}more: {self.prog} --help")
        self.exit(2)

    def parse_args(  # type: ignore[override]  # one namespace class is enough
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse; what is left over is reported by the subcommand it stands behind."""
        parsed, left = self.parse_known_args(args, namespace)
        if left:
            command = getattr(parsed, "subcommand", None)
            parser = subparsers_of(self).get(command, self) if command else self
            parser.error(_not_taken(parser, left))
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Report a value that is no choice, with the nearest that is."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(it) for it in action.choices]
        near = _nearest(str(value), choices)
        way = f"did you mean {near}?" if near else f"expected one of {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"{value!r} is no choice; {way}")


def _nearest(word: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1)), None)


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of its subcommands by name, in the order of the help."""
    return {
        name: sub
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, sub in action.choices.items()
    }


def shown_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield its arguments that the help names, without those of subcommands."""
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS and not isinstance(
            action, argparse._SubParsersAction
        ):
            yield action


def unknown_command(words: Sequence[str], known: Iterable[str]) -> str | None:
    """Say what to type where the first word is neither a command of rater nor an option."""
    names = list(known)
    word = next((it for it in _positional(words)), None)
    if word is None or word in names:
        return None
    near = _nearest(word, names)
    program = _program(word)
    if near and program is None:
        return f"unknown command {word!r}; did you mean `rater {near}`?"
    if program is not None:
        line = shlex.join([program, *words[words.index(word) + 1 :]])
        return f"{word} is not a command of rater; to measure that program: rater run -- {line}"
    return f"unknown command {word!r}; `rater` alone lists the commands"


def program_hint(word: str) -> str:
    """Return how to measure a program where its name was given in place of a suite, else ""."""
    program = _program(word)
    return "" if program is None else f"to measure that program: rater run -- {program} ..."


def _program(word: str) -> str | None:
    """Return how to type a program, on the PATH or a file here, None for what is none."""
    import shutil  # of some milliseconds, for a mistake only

    if shutil.which(word) is not None:
        return word
    return f"./{word}" if is_file(word) and os.access(word, os.X_OK) else None


def _positional(words: Sequence[str]) -> Iterator[str]:
    """Yield what is no option before the subcommand; `--db` is the only one with a value."""
    left = iter(words)
    for word in left:
        if word == "--db":
            next(left, None)
        elif not word.startswith("-"):
            yield word


def _not_taken(parser: argparse.ArgumentParser, left: Sequence[str]) -> str:
    """Say which words an option or argument does not exist for."""
    options = [it for action in shown_actions(parser) for it in action.option_strings]
    for word in left:
        name = word.partition("=")[0]
        if word.startswith("-"):
            near = _nearest(name, options)
            meant = f"; did you mean {near}?" if near else ""
            return f"{parser.prog} has no option {name}{meant}"
    return f"{parser.prog} takes no further argument {' '.join(left)!r}"
