"""The console on standard output or error: colours and cursor are ours, text is cleaned."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rater.text.cleaned import uncleaned
from rater.text.words import printable_lines


class Terminal(Console):
    """Everything that is drawn goes through `render`: control codes come from rich alone."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield the segments of what is drawn; text of others cannot move the cursor."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable_lines(text), style, control)


def terminal(*, stderr: bool = False) -> Console:
    """Return the console that standard output, or error, is now."""
    return Terminal(file=uncleaned(sys.stderr if stderr else sys.stdout))
