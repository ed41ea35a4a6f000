"""The list of runs, and words of a run's head."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from msgspec import Struct

from rater.analysis.results.disturbed import disturbance_reasons
from rater.record.run import RunStatus
from rater.record.stored import PER_HOUR, RunHead
from rater.show.screen.document import TEXT, Field, Part, ViewTable
from rater.show.screen.format import format_clock, format_number, run_title
from rater.text.values import count

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
    folded: int = 0  # runs of sweeps that were made again, which are not among these


def rows_that_fit() -> int:
    """Return how many runs fit on the screen."""
    return max(_LEAST_ROWS, shutil.get_terminal_size().lines - _OTHER_LINES)


def list_parts(page: RunPage, fleets: int = 0) -> Iterator[Part]:
    """Yield one row per run; what does not fit is cut or left out, when and tags never.

    Runs of `fleets` are in the archive beside the database, and are told where there are no others.
    """
    if not page.runs and page.folded:
        yield f"no run counts; {_folded_text(page)}"
        return
    if not page.runs:
        no_runs = "no run matches: `rater list` shows all"
        yield no_runs if page.narrowed else "no runs yet: `rater run` makes one"
        if fleets:
            yield f"{count(fleets, 'fleet')} with runs of their own: `rater fleet list`"
        return
    yield ViewTable(
        title="",
        rows=page.runs,
        fields=_list_fields(page.runs),
        style=_run_style,
        note=_list_note(page),
    )


def _list_fields(runs: Sequence[ListedRun]) -> tuple[Field, ...]:
    """Return the columns: a score for each unit; host and mode where they tell runs apart."""
    units = dict.fromkeys(run.unit for run in runs if run.score is not None)
    several_hosts = len({run.head.hostname for run in runs}) > 1
    all_plain = {run.head.mode for run in runs} == {_PLAIN}
    return (
        Field(heading="run", value=lambda run: run.head.run),
        Field(
            heading="started (UTC)", value=lambda run: started_text(run.head.started_at), form=TEXT
        ),
        Field(heading="status", value=lambda run: _status(run.head), form=TEXT),
        Field(
            heading="mode",
            value=lambda run: None if all_plain else run.head.mode,
            form=TEXT,
            optional=3,
        ),
        Field(heading="copies", value=lambda run: run.head.copies, optional=1),
        *(_score_field(unit) for unit in units),
        # None found where too much disturbed a run is not the same as none there.
        Field(
            heading="divots",
            value=lambda run: None if _disturbed(run.head) else run.divots,
            optional=2,
        ),
        Field(
            heading="host",
            value=lambda run: run.head.hostname if several_hosts else None,
            form=TEXT,
            flexible=True,
        ),
        Field(
            heading="what", value=lambda run: _describe_workload(run.head), form=TEXT, flexible=True
        ),
        Field(heading="time", value=lambda run: _time(run.head), optional=5),
        Field(heading="tags", value=lambda run: _tags(run.head), form=TEXT, flexible=True),
        Field(
            heading="command",
            value=lambda run: run.head.command_line,
            form=TEXT,
            flexible=True,
            optional=7,
        ),
    )


def _score_field(unit: str | None) -> Field:
    """Return the column of the scores that have a unit."""

    def score(run: ListedRun) -> str | None:
        return None if run.score is None or run.unit != unit else format_number(run.score)

    return Field(heading="copies/h" if unit == PER_HOUR else unit or "score", value=score)


def _list_note(page: RunPage) -> str:
    """Return how many runs there are, on which host if it is one, and how to see the others."""
    hosts = {run.head.hostname for run in page.runs}
    one_host = f", all on {host}" if len(hosts) == 1 and (host := hosts.pop()) else ""
    behind = f"; {_folded_text(page)}" if page.folded else ""
    if len(page.runs) < page.count:
        of_them = "that match" if page.narrowed else "stored"
        return (
            f"the latest {len(page.runs)} of {page.count} runs {of_them}{one_host} "
            f"(--limit N: more, --limit 0: all){behind}"
        )
    if one_host and page.count > 1:
        return f"{page.count} runs{one_host}{behind}"
    return behind.removeprefix("; ")


def _folded_text(page: RunPage) -> str:
    return f"{count(page.folded, 'more run')} did not count: `rater list --tag not-counted`"


def _run_style(run: ListedRun) -> str:
    return STATUS_STYLE.get(run.head.status, "yellow" if _disturbed(run.head) else "")


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


def _describe_workload(head: RunHead) -> str:
    """Return `mini/lu (test, base)` or `3 of mini (test, base)`."""
    title, several = run_title(head.suite, head.benchmarks)
    return (f"{len(head.benchmarks)} of {title}" if several else title) + details_text(head)
