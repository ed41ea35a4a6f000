"""Text on a page as wide as the terminal: sentences, and what stands at the left of them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rater.show.console.format import plain

_LEAST = 20  # characters that a sentence gets, however narrow the terminal


def is_ascii(encoding: str | None) -> bool:
    """Tell whether what is written in an encoding has to be plain ASCII."""
    return not (encoding or "ascii").lower().startswith("utf")


@dataclass(frozen=True, slots=True)
class Page:
    """What text is written on."""

    width: int = 80  # characters
    ascii_only: bool = False

    def prose(self, text: str) -> list[str]:
        """Return a sentence, broken between words where the page ends."""
        width = self.room(0)
        return textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)

    def room(self, margin: int) -> int:
        """Return the characters for text right of a margin."""
        return max(_LEAST, self.width - margin)

    def beside(self, begin: str, margin: int, sentences: Sequence[str]) -> list[str]:
        """Return sentences below each other, broken between words, with `begin` at their left."""
        lines = [
            line
            for sentence in sentences
            # break_on_hyphens: the words of a command line stay whole
            for line in textwrap.wrap(plain(sentence), self.room(margin), break_on_hyphens=False)
        ]
        return with_margin(begin, margin, lines)

    def joined(self, lines: Sequence[str]) -> str:
        """Return the lines without what the terminal cannot show."""
        return "\n".join(plain(line, ascii_only=self.ascii_only) for line in lines)


def with_margin(begin: str, margin: int, lines: Sequence[str]) -> list[str]:
    """Return the lines behind a margin, with `begin` in it before the first."""
    first, *more = lines or [""]
    return [f"{begin:<{margin}}{first}".rstrip(), *(" " * margin + line for line in more)]


def standard_page() -> Page:
    """Return what fits on standard output: the terminal, COLUMNS, or 80 characters."""
    return Page(shutil.get_terminal_size().columns, is_ascii(sys.stdout.encoding))
