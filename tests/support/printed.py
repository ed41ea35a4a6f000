"""What is printed of a run, as text."""

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console

from rater.analysis.results.score import Summary
from rater.show.console import Printer
from rater.show.results.run import print_summary


def printed(summary: Summary, width: int = 100, **options: Any) -> str:
    """What `print_summary` writes where lines are so wide."""
    stream = io.StringIO()
    print_summary(summary, Console(file=stream, width=width), **options)
    return stream.getvalue()


def in_words(text: str) -> str:
    """The text without its line ends: what a sentence says wherever it was broken."""
    return " ".join(text.split())


def printed_by(show: Callable[[Printer], None], width: int = 100) -> str:
    """What something writes where lines are so wide."""
    stream = io.StringIO()
    show(Printer(Console(file=stream, width=width)))
    return stream.getvalue()
