"""Lines, sentences and tables on a console, as wide as it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from rater.show.console.format import plain, wrapped
from rater.show.console.page import is_ascii
from rater.show.console.table import Column, table_lines

_MOST_REMARKS = 10  # lines of failed copies, and of warnings and notes


class Printer:
    """Lines of text on a console, none of it read as rich's markup, none of it wrapped there."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = console.width
        self.ascii_only = is_ascii(console.encoding)

    def line(self, text: str = "", style: str = "") -> None:
        """Print one line as it is."""
        text = plain(text, ascii_only=self.ascii_only)
        self.console.print(Text(text, style), soft_wrap=True, highlight=False)

    def prose(self, text: str, style: str = "") -> None:
        """Print a sentence, broken between words where the console ends."""
        clean = plain(text, ascii_only=self.ascii_only)
        for line in wrapped(clean, max(20, self.width)):
            self.line(line, style)

    def table(self, columns: Sequence[Column], styles: Sequence[str] = ()) -> None:
        """Print a table; `styles` are those of its rows."""
        clean = [
            replace(one, cells=[plain(cell, ascii_only=self.ascii_only) for cell in one.cells])
            for one in columns
        ]
        lines = table_lines(clean, self.width, ascii_only=self.ascii_only)
        heading = len(lines) - max(len(column.cells) for column in columns)
        for place, line in enumerate(lines):
            row = place - heading
            style = "bold" if row < 0 else styles[row] if row < len(styles) else ""
            self.line(line, style)

    def some(
        self, texts: Iterable[str], style: str = "", *, most: int = _MOST_REMARKS, indent: str = ""
    ) -> None:
        """Print sentences, and of many only how many more there are."""
        shown = list(texts)
        for text in shown[:most]:
            self.prose(indent + text, style)
        if len(shown) > most:
            self.prose(f"{indent}and {len(shown) - most} more (--json has them all)", style)
