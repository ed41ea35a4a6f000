"""What disturbed compared runs: a line for each kind of disturbance, the worst runs first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rater.analysis.conditions.disturbances import DisturbedRun
from rater.analysis.counters.cpu_use import Matter, Notable
from rater.show.console.format import crop
from rater.show.console.printer import Printer
from rater.text.cpuset import format_list
from rater.text.words import percent, runs_text, some

_MOST_RUNS = 5  # of one kind of disturbance
_MOST_SHARES = 3
_MOST_BRIEF = 2  # kinds
_LONGEST_WARNING = 60
_WORDS = {
    Matter.FOREIGN: "other work took",
    Matter.STEAL: "the hypervisor took",
    Matter.THROTTLED: "throttled, too hot",
    Matter.SWAP: "pages swapped",
    Matter.MEMORY: "tasks waited for memory",
}


def print_troubles(
    troubles: Sequence[DisturbedRun], printer: Printer, *, brief: bool = False
) -> None:
    """Print them, nothing where there are none; `brief`: the weightiest, as one sentence."""
    lines = list(_lines(troubles))
    if not lines:
        return
    if brief:
        printer.prose(f"Disturbed runs: {'; '.join(lines[:_MOST_BRIEF])}", "yellow")
        printer.line()
        return
    printer.prose("Disturbed runs (`rater show RUN` has the rest):", "bold yellow")
    printer.some(lines, "yellow", most=len(lines), indent="  ")
    printer.line()


def _lines(troubles: Sequence[DisturbedRun]) -> Iterator[str]:
    unjudged = sorted(one.run for one in troubles if one.too_disturbed)
    if unjudged:
        yield f"too disturbed to judge: {runs_text(unjudged, _MOST_RUNS)}"
    for matter, words in _WORDS.items():
        own = [(one.run, it) for one in troubles for it in one.notable if it.matter is matter]
        own.sort(key=lambda pair: -(pair[1].share or pair[1].times or 0))
        if own:
            yield f"{words}: {some([_text(run, it) for run, it in own], _MOST_SHARES)}"
    moved = [one for one in troubles if one.not_met]
    if moved:
        copies = [f"run {one.run} (copies {format_list(one.not_met)})" for one in moved]
        yield f"copies not where they were planned: {some(copies, _MOST_RUNS)}"
    shared = [one.run for one in troubles if one.shared]
    if shared:
        yield f"made with --share, beside other runs: {runs_text(shared, _MOST_RUNS)}"
    warned: dict[str, dict[int, None]] = {}
    for one in troubles:
        for text in one.warnings:
            warned.setdefault(text.partition(": ")[0], {})[one.run] = None
    for text, runs in warned.items():
        who = runs_text(sorted(runs), _MOST_RUNS)
        yield f"{crop(text, _LONGEST_WARNING, ascii_only=True)}: {who}"


def _text(run: int, one: Notable) -> str:
    if one.share is None:
        return f"run {run} ({one.times} times)"
    cpu = "" if one.cpu is None else f" of CPU {one.cpu}"
    return f"{percent(one.share)} %{cpu} (run {run})"
