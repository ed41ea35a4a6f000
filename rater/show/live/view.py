"""Which view a run has: live on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rater.record.stored import StoredRun
from rater.show.live.lines import LineView, View
from rater.show.live.progress import PhaseAhead
from rater.show.screen.console import TextScreen
from rater.text.secrets import sanitizing_stream


def make_view(
    screen: TextScreen,
    run: StoredRun,
    phases: Sequence[PhaseAhead] = (),
    *,
    is_plain: bool = False,
) -> View:
    """Return the live view where a screen is a terminal that can move its cursor, else lines.

    `is_plain`: lines in any case.
    """
    if not is_plain and screen.is_terminal and not screen.is_dumb:
        from rater.show.live.live import LiveConsole, LiveView  # noqa: PLC0415 - rich starts slowly

        return LiveView(LiveConsole(file=screen.file), run, phases)
    return LineView(sanitizing_stream(screen.file), run)
