"""The list of runs, and words of a run's head."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from rater.analysis.results.disturbed import disturbance_reasons
from rater.record.run import RunStatus
from rater.record.stored import PER_HOUR, RunHead
from rater.show.screen.document import TEXT, Field, Part, ViewTable
from rater.show.screen.format import format_clock, format_number, run_title

# -- Words of a run's head, for its own page and for lists; imports little, as lists start often ---

STATUS_STYLE = {
    RunStatus.FAILED: "bold red",
    RunStatus.INTERRUPTED: "bold yellow",
    RunStatus.KILLED: "bold yellow",
}


def started_text(at: str | None) -> str:
    """Return when something began, to the minute."""
    return "-" if at is None else at[:16].replace("T", " ")


def details_text(head: RunHead) -> str:
    """Return ` (test, base)`: size and tune, as far as there are any."""
    details = ", ".join(detail for detail in (head.size, head.tune) if detail)
    return f" ({details})" if details else ""


# -- The list of runs: a line each, as much of them as the terminal has room for -------------------

_OTHER_LINES = 4  # heading, what is left out, the shell's prompt
_LEAST_ROWS = 5
DISTURBED = "disturbed"  # too much to be judged
_PLAIN = "homogeneous"  # mode that goes without saying where all runs have it


class ListedRun(Struct, frozen=True):
    """A run as lists show it."""

    head: RunHead
    score: float | None  # None: no valid result of all benchmarks, or not worked out
    unit: str | None
    divots: int | None  # None: not searched


class RunPage(Struct, frozen=True):
    """Runs by number, and of how many they are the latest."""

    runs: tuple[ListedRun, ...]
    count: int
    narrowed: bool = False  # not all runs were asked for


def rows_that_fit() -> int:
    """Return how many runs fit on the screen."""
    return max(_LEAST_ROWS, shutil.get_terminal_size().lines - _OTHER_LINES)


def list_parts(page: RunPage) -> Iterator[Part]:
    """Yield one row per run; what does not fit is cut or left out, when and tags never."""
    runs = page.runs
    if not runs:
        none = "no run matches: `rater list` shows all"
        yield none if page.narrowed else "no runs yet: `rater run` makes one"
        return
    hosts, modes = {it.head.hostname for it in runs}, {it.head.mode for it in runs}
    units = dict.fromkeys(run.unit for run in runs if run.score is not None)

    def score(unit: str | None, run: ListedRun) -> str | None:
        return None if run.score is None or run.unit != unit else format_number(run.score)

    columns = (
        Field(heading="run", value=lambda it: it.head.run),
        Field(
            heading="started (UTC)", value=lambda it: started_text(it.head.started_at), form=TEXT
        ),
        Field(heading="status", value=lambda it: _status(it.head), form=TEXT),
        Field(
            heading="mode",
            value=lambda it: it.head.mode if modes != {_PLAIN} else None,
            form=TEXT,
            optional=3,
        ),
        Field(heading="copies", value=lambda it: it.head.copies, optional=1),
        *(
            Field(
                heading="copies/h" if unit == PER_HOUR else unit or "score",
                value=partial(score, unit),
            )
            for unit in units
        ),
        # None found where too much disturbed a run is not the same as none there.
        Field(
            heading="divots",
            value=lambda it: None if _disturbed(it.head) else it.divots,
            optional=2,
        ),
        Field(
            heading="host",
            value=lambda it: it.head.hostname if len(hosts) > 1 else None,
            form=TEXT,
            flexible=True,
        ),
        Field(heading="what", value=lambda it: _what(it.head), form=TEXT, flexible=True),
        Field(heading="time", value=lambda it: _time(it.head), optional=5),
        Field(
            heading="tags",
            value=lambda it: " ".join(f"{key}={value}" for key, value in it.head.tags),
            form=TEXT,
            flexible=True,
        ),
        Field(
            heading="command",
            value=lambda it: it.head.command_line,
            form=TEXT,
            flexible=True,
            optional=7,
        ),
    )
    one_host = f", all on {host}" if len(hosts) == 1 and (host := hosts.pop()) else ""
    note = f"{page.count} runs{one_host}" if one_host and page.count > 1 else ""
    if len(runs) < page.count:
        of_them = "that match" if page.narrowed else "stored"
        note = (
            f"the latest {len(runs)} of {page.count} runs {of_them}{one_host} "
            "(--limit N: more, --limit 0: all)"
        )

    def style(run: ListedRun) -> str:
        return STATUS_STYLE.get(run.head.status, "yellow" if _disturbed(run.head) else "")

    yield ViewTable(title="", rows=runs, fields=columns, style=style, note=note)


def _time(head: RunHead) -> str | None:
    return None if head.elapsed_s is None else format_clock(head.elapsed_s)


def _tags(head: RunHead) -> str:
    return " ".join(f"{key}={value}" for key, value in head.tags)


def _status(head: RunHead) -> str:
    if not _disturbed(head):
        return head.status.value
    # A complete one in a word: the columns beside it need the room.
    return DISTURBED if head.status is RunStatus.COMPLETE else f"{head.status.value}, {DISTURBED}"


def _disturbed(head: RunHead) -> bool:
    """Tell whether too much disturbed a run to judge it."""
    return bool(disturbance_reasons(head.others_cost, head.noise_cost))


def _what(head: RunHead) -> str:
    """Return `mini/lu (test, base)` or `3 of mini (test, base)`."""
    what, several = run_title(head.suite, head.benchmarks)
    return (f"{len(head.benchmarks)} of {what}" if several else what) + details_text(head)
