"""What is printed of a run, as text."""

import io
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from rater.analysis.compare.barrier import BarrierComparison
from rater.analysis.divots.model.finding import Analysis
from rater.analysis.results.cpu_use import MachineDisturbance
from rater.analysis.results.score import Summary
from rater.show.results.run import ShownRun, run_parts
from rater.show.results.run_document import summary_document
from rater.show.screen.console import Printer, TextScreen
from rater.show.screen.document import Part, print_parts
from rater.text.values import to_json


def parts_of(
    summary: Summary,
    *,
    comparison: BarrierComparison | None = None,
    notable: Sequence[MachineDisturbance] = (),
    divots: Analysis | None = None,
    after_run: bool = True,
    **options: Any,
) -> Iterable[Part]:
    """The parts of a run as `rater run` prints it at its end."""
    document: Any = summary_document(summary, comparison)
    document |= {"placement": None, "notable": to_json(notable)}
    shown = ShownRun(
        head=summary.head,
        document=document,
        proof=summary.proof,
        pages=summary.pages,
        divots=divots,
    )
    return run_parts(shown, after_run=after_run, **options)


def text_of(parts: Iterable[Part], width: int = 100) -> str:
    """What parts of a view are where lines are so wide."""
    return printed_by(partial(print_parts, parts), width)


def printed(summary: Summary, width: int = 100, **options: Any) -> str:
    """What is printed of a run where lines are so wide."""
    return text_of(parts_of(summary, **options), width)


def in_words(text: str) -> str:
    """The text without its line ends: what a sentence says wherever it was broken."""
    return " ".join(text.split())


def printed_by(show: Callable[[Printer], None], width: int = 100) -> str:
    """What something writes where lines are so wide."""
    stream = io.StringIO()
    show(Printer(TextScreen(stream, width=width)))
    return stream.getvalue()
