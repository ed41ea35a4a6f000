"""The help of `rater` itself: every command in a few words, by what people come for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import batched
from textwrap import fill

from rater.command_line.examples import EXAMPLES
from rater.command_line.parser import Parser

# The most used first, among the groups and in each; a test holds that no command is missing.
GROUPS = {
    "measure": ("run", "plan", "sweep", "rerun", "lab", "selftest"),
    "results": ("show", "list", "divots", "report", "plot", "export"),
    "compare": ("compare", "scale", "model", "pages"),
    "machine": ("doctor", "topo", "settings", "restore", "counters", "layouts"),
    "database": ("import", "merge", "rm"),
    "suites": ("suites", "lint-bind"),
    "fleet": ("fleet", "history"),
    "shell": ("completion",),
}
_COLUMNS = 80  # from which on two commands stand in a line
_WIDE = (10, 45)  # where the first and the second command of a line begin
_NAME = 11
MOST_WORDS = 23  # letters of a command's words, so that two commands fit a line


class Overview(Parser):
    """The parser of `rater`, whose help fits a screen of 24 lines."""

    def format_help(self) -> str:
        """Return usage, all commands by group, and what holds for all of them."""
        width = self._get_formatter()._width + 2  # that argparse leaves free
        about = command_words(self)
        rows = [
            row
            for title, names in GROUPS.items()
            for row in _rows(title, names, about, 2 if width >= _COLUMNS else 1)
        ]
        return "\n".join(
            [
                f"usage: {self.prog} [--db PATH] [--json] [--version] COMMAND ...",
                *fill(self.description or "", width - 1).splitlines(),
                "",
                *rows,
                "",
                *EXAMPLES[self.prog],
                *fill(self.epilog or "", width - 1).splitlines(),
                "",
            ]
        )


def command_words(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return what each command does in a few words, by name."""
    return {
        it.dest: it.help or ""
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for it in action._choices_actions
    }


def _rows(
    title: str, names: tuple[str, ...], about: Mapping[str, str], across: int
) -> Iterator[str]:
    for number, some in enumerate(batched(names, across)):
        line = "" if number else f"{title}:"
        for name, start in zip(some, _WIDE, strict=False):
            line = f"{line:<{start}}{name:<{_NAME}}{about[name]}"
        yield line
