"""Divots for people: the most costly first, what the layout explains apart."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from rater.analysis.divots.confirm import next_command
from rater.analysis.divots.data import words
from rater.analysis.divots.data.between import Between
from rater.analysis.divots.data.finding import PLACED, Analysis, Finding, nothing_to_compare
from rater.record.stored import RunHead
from rater.show.console.format import what_ran
from rater.show.console.printer import Printer
from rater.show.divots.to_json import evidence_line
from rater.text.words import copies_text, count, percent

_MOST_LINES = 10
_MOST_EXPLAINED = 4
_MOST_NEXT = 3
_NO_COPY = "A single slow copy would not stand out from its noise."
_NOTE = 0.002  # of the score; cheaper ones are shown dim


def print_divots(head: RunHead, analysis: Analysis, console: Console) -> None:
    """Print what was found in a run, or that nothing was and what would have been."""
    printer = Printer(console)
    name, more = what_ran(head.suite, head.benchmarks)
    ran = ", ".join(part for part in (name, more) if part)
    if len(ran) > 40:
        ran = count(len(head.benchmarks), "benchmark")
    printer.line(
        f"Run {head.run}: {ran}, {copies_text(head.copies)}, {count(head.iterations, 'iteration')}",
        "bold",
    )
    print_findings(head, analysis, printer)


def print_findings(head: RunHead, analysis: Analysis, printer: Printer) -> None:
    """Print the divots and what would confirm them, or in a line that there are none."""
    divots = [one for one in analysis.findings if not one.explained]
    explained = [one for one in analysis.findings if one.explained]
    if analysis.disturbed:
        printer.prose(disturbed_line(analysis), "bold yellow")
    if divots:
        _print_found(divots, analysis.lost, printer)
    elif analysis.disturbed:
        pass  # that nothing stands out says nothing then
    elif not (analysis.visible or explained):
        printer.prose(_nothing(head, analysis))
    else:
        none = "No divots: no copy and no part of the machine stands out."
        printer.prose(f"{none} {visible_line(analysis.visible)}", "green")
    if explained:
        printer.line("Explained by the layout, no divots:")
        printer.some(map(evidence_line, explained), most=_MOST_EXPLAINED, indent="  ")
    if divots and analysis.visible:
        printer.prose(visible_line(analysis.visible), "dim")
    if analysis.failed and (divots or analysis.visible):
        runs = count(analysis.failed, "copy run")
        printer.prose(f"{runs} that failed {'is' if analysis.failed == 1 else 'are'} left out.")
    if analysis.disturbed and head.source == "run":
        printer.line(f"next: rater rerun {head.run}   (when nothing else works on this machine)")
        return
    for text in _next_lines(divots, head):
        printer.line(text)


def disturbed_line(analysis: Analysis) -> str:
    """Return in words why a run was too disturbed to judge, and what its findings are then."""
    line = f"Too disturbed to judge: {'; '.join(analysis.disturbed)}."
    found = any(not one.explained for one in analysis.findings)
    return f"{line} What is found may be its doing." if found else line


def _nothing(head: RunHead, analysis: Analysis) -> str:
    if nothing_to_compare(head):
        return "Divots: too few copies and iterations to see any."
    if analysis.failed:
        return "No divots could have been seen: too few copies ended well."
    return "No divots: nothing stands out; with so few copies only large effects are detectable."


def _print_found(divots: Sequence[Finding], lost: float, printer: Printer) -> None:
    together = ""
    if lost - divots[0].cost >= _NOTE:  # none of them costs it alone
        of = "score" if divots[0].score_lost is not None else "copies' time"
        together = f" (together they cost {words.cost(lost)} of the {of})"
    printer.line(f"{count(len(divots), 'divot')}, the most costly first{together}:")
    for number, one in enumerate(divots[:_MOST_LINES], 1):
        style = "" if one.cost >= _NOTE or one.fast else "dim"
        printer.prose(f"  {number}. {evidence_line(one)}", style)
    if len(divots) > _MOST_LINES:
        printer.line(f"  and {len(divots) - _MOST_LINES} more (--json has them all)")


def _next_lines(divots: Sequence[Finding], head: RunHead) -> list[str]:
    """Return the commands that would confirm what was found, the same one once."""
    lines: dict[str, str] = {}
    for number, one in enumerate(divots[:_MOST_LINES], 1):
        command = next_command(number, one, head)
        if command is not None and len(lines) < _MOST_NEXT:
            confirms = one.kind in PLACED and "--confirm" in command
            what = f"against others like {'it' if len(one.cpus) == 1 else 'them'}"
            why = f"{one.place} {what}" if confirms else "whether it comes back"
            lines.setdefault(command, f"next: {command}   ({why})")
    return list(lines.values())


def visible_line(visible: dict[str, float]) -> str:
    """Return the smallest effects that the run could show as a sentence."""
    parts = []
    if not visible:
        return "With so few copies only large effects are detectable."
    if "group" in visible:
        parts.append(f"an lgroup slower by {percent(visible['group'])} % or more in all benchmarks")
    if "group-benchmark" in visible:
        parts.append(
            f"{'an lgroup ' if not parts else ''}by {percent(visible['group-benchmark'])} % in one"
            if parts
            else f"an lgroup slower by {percent(visible['group-benchmark'])} % or more"
        )
    if "cpu" in visible:
        parts.append(f"a CPU slower by {percent(visible['cpu'])} % or more all the time")
    if "copy" in visible:
        parts.append(f"a single copy slower by {percent(visible['copy'])} %")
    line = f"This run can see {', '.join(parts)}."
    return line if {"copy", "cpu"} & visible.keys() else f"{line} {_NO_COPY}"


def print_between(between: Sequence[Between], runs: int, console: Console) -> None:
    """Print what comes back in several runs, what moves about, and what only one has."""
    printer = Printer(console)
    printer.line()
    printer.line(f"Over {runs} runs:", "bold")
    if not between:
        printer.line("  no place has divots in any of them")
    printer.some((f"{one.kind}: {one.summary}" for one in between), most=_MOST_LINES, indent="  ")
