"""What is longer than the screen goes through the user's pager, as git's output does."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.pager import Pager

from rater.text.cleaned import uncleaned


@contextmanager
def paged(console: Console) -> Iterator[None]:
    """Print what is printed inside through `$PAGER`, else `less -FRX`, where it is too long.

    Directly where standard output is no terminal, or `PAGER` is empty or `cat`.
    """
    words = shlex.split(os.environ.get("PAGER", "less -FRX"))
    found = shutil.which(words[0]) if words and words[0] != "cat" else None
    if found is None or not console.is_terminal or not sys.stdout.isatty():
        yield
        return
    with console.pager(_Program([found, *words[1:]], console.height), styles=True):
        yield


class _Program(Pager):
    def __init__(self, words: list[str], height: int) -> None:
        self._words, self._height = words, height

    def show(self, content: str) -> None:
        """Hand over the text; a pager that ends early has shown what was wanted."""
        if content.count("\n") < self._height:
            uncleaned(sys.stdout).write(content)  # cleaned when it was drawn
            return
        environment = {"LESS": "FRX", **os.environ}
        with (
            subprocess.Popen(self._words, stdin=subprocess.PIPE, env=environment) as program,
            suppress(BrokenPipeError),
        ):
            program.communicate(content.encode(errors="replace"))
