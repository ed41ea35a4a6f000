"""Divots for people, the trial of one, and what the self-test planted beside what was found."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.console import Console

from rater.analysis.divots.confirm import ConfirmPlan, ConfirmResult, ConfirmVerdict
from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import (
    Analysis,
    Finding,
    RecurringDivot,
    nothing_to_compare,
)
from rater.analysis.results.cpu_use import FOREIGN_SHARE
from rater.record.stored import RunHead
from rater.show.console import Printer
from rater.show.format import run_title
from rater.show.results.to_json import evidence_line
from rater.text.cpuset import format_list
from rater.text.values import (
    JsonFields,
    copies_text,
    count,
    group_by_key,
    objects,
    percent,
    signed_percent,
    to_json,
)

# -- Divots for people: the most costly first, what the layout explains apart ----------------------

_MOST_LINES = 10
_MOST_EXPLAINED = 4
_MOST_NEXT = 3
_NO_COPY = "Noise would hide a single slow copy."
# What a run promises to show, by scope: of what, and in how much of the run.
SCOPES = {
    "group": ("an lgroup", "in all benchmarks"),
    "group-benchmark": ("an lgroup", "in one benchmark"),
    "cpu": ("a CPU", "all the time"),
    "copy-benchmark": ("a copy", "in one benchmark"),
    "copy": ("a copy", "once"),
    "iteration": ("an iteration", "in all benchmarks"),
}
_NOTE = 0.002  # of the score; cheaper ones are shown dim


def print_divots(
    head: RunHead, analysis: Analysis, console: Console, *, every: bool = False
) -> None:
    """Print what was found in a run, or that nothing was and what would have been."""
    printer = Printer(console)
    name, more = run_title(head.suite, head.benchmarks)
    ran = ", ".join(part for part in (name, more) if part)
    if len(ran) > 40:
        ran = count(len(head.benchmarks), "benchmark")
    printer.line(
        f"Run {head.run}: {ran}, {copies_text(head.copies)}, {count(head.iterations, 'iteration')}",
        "bold",
    )
    print_findings(head, analysis, printer, every=every)


def print_findings(
    head: RunHead,
    analysis: Analysis,
    printer: Printer,
    *,
    every: bool = False,
    most_next: int = _MOST_NEXT,
) -> None:
    """Print the divots and what would confirm them, or in a line that there are none.

    `every`: also those of a disturbed run; `most_next`: commands named at most.
    """
    shown = analysis.findings if every else analysis.sure
    divots = [one for one in shown if not one.explained]
    explained = [one for one in shown if one.explained]
    if analysis.disturbed:
        printer.prose(disturbed_line(analysis, shown=bool(divots)), "bold yellow")
        if hidden := len(analysis.findings) - len(shown):
            way = f"`rater divots {head.run} -v` shows {'it' if hidden == 1 else 'them'}"
            printer.prose(f"{count(hidden, 'finding')} of a disturbed run: {way}", "dim")
    if divots:
        _print_found(divots, analysis.lost, printer)
    elif analysis.disturbed:
        pass  # that nothing stands out says nothing then
    elif not (analysis.visible or explained):
        printer.prose(_nothing(head, analysis))
    else:
        none = "No divots: no copy and no part of the machine stands out."
        printer.prose(f"{none} {visible_line(analysis.visible)}{_unknown(head, analysis)}", "green")
    if explained:
        printer.line("Explained by the layout, no divots:")
        printer.some(map(evidence_line, explained), most=_MOST_EXPLAINED, indent="  ")
    if divots and analysis.visible:
        printer.prose(visible_line(analysis.visible), "dim")
    if analysis.failed and (divots or analysis.visible):
        runs = count(analysis.failed, "copy run")
        printer.prose(f"{runs} that failed {'is' if analysis.failed == 1 else 'are'} left out.")
    if analysis.disturbed and analysis.rerun:
        printer.line(f"next: `{analysis.rerun}`   (when nothing else works on this machine)")
        return
    for text in _next_lines(divots, analysis.confirm)[:most_next]:
        printer.line(text)


def disturbed_line(analysis: Analysis, *, shown: bool = False) -> str:
    """Return in words why a run was too disturbed to judge; `shown`: its findings are below."""
    line = f"Too disturbed to judge: {'; '.join(analysis.disturbed)}."
    return f"{line} It may have caused the findings below." if shown else line


def _nothing(head: RunHead, analysis: Analysis) -> str:
    if head.source == "run" and head.elapsed_s is None:
        return "Nothing ran: there is nothing to be judged."
    if nothing_to_compare(head):
        return "Divots: too few copies and iterations to see any."
    if analysis.failed:
        return "No divots could have been seen: too few copies ended well."
    if head.source == "import":
        return "No divots could have been seen: too few times of copies are known."
    few = "with so few copies only large effects are detectable."
    if unknown := _unknown(head, analysis):
        return f"No divots were found; {few}{unknown}"
    return f"No divots: nothing stands out; {few}"


def _unknown(head: RunHead, analysis: Analysis) -> str:
    """Say that it is not known what others took, of a run that was made here."""
    if head.source != "run" or analysis.others_cost is not None:
        return ""
    return " Whether other work took time from the copies is not known."


def _print_found(divots: Sequence[Finding], lost: float, printer: Printer) -> None:
    together = ""
    if lost - divots[0].cost >= _NOTE:  # none of them costs it alone
        of = "score" if divots[0].score_lost is not None else "copies' time"
        together = f" (together they cost {formatting.format_cost(lost)} of the {of})"
    printer.prose(f"{count(len(divots), 'divot')}, the most costly first{together}:")
    for number, one in enumerate(divots[:_MOST_LINES], 1):
        style = "" if one.cost >= _NOTE or one.fast else "dim"
        printer.prose(f"  {number}. {evidence_line(one)}", style)
    if len(divots) > _MOST_LINES:
        printer.line(f"  and {len(divots) - _MOST_LINES} more (--json has them all)")


def _next_lines(divots: Sequence[Finding], commands: Sequence[str]) -> list[str]:
    """Return the commands that would confirm what was found, the same one once."""
    lines: dict[str, str] = {}
    for one, command in zip(divots[:_MOST_LINES], commands, strict=False):
        confirms = "--confirm" in command
        what = f"against others like {'it' if len(one.cpus) == 1 else 'them'}"
        why = f"{one.place} {what}" if confirms else "whether it comes back"
        lines.setdefault(command, f"next: `{command}`   ({why})")
    return list(lines.values())


def visible_line(visible: dict[str, float]) -> str:
    """Return the smallest effects that the run could show as a sentence."""
    if not visible:
        return "With so few copies only large effects are detectable."
    one_benchmark = visible.get("group") == visible.get("group-benchmark")
    parts = group_by_key(
        (what, f"{percent(visible[scope])} % {where}")
        for scope, (what, where) in SCOPES.items()
        if scope in visible and not (scope == "group-benchmark" and one_benchmark)
    )
    sizes = "; ".join(f"{what} {', '.join(parts[what])}" for what in parts)
    line = f"Smallest detectable slowdown: {sizes}."
    return f"{line} {_NO_COPY}" if parts.keys() == {"an lgroup"} else line


def print_between(between: Sequence[RecurringDivot], runs: int, console: Console) -> None:
    """Print what comes back in several runs, what moves about, and what only one has."""
    printer = Printer(console)
    printer.line()
    printer.line(f"Over {runs} runs:", "bold")
    if not between:
        printer.line("  no CPU, lgroup or copy stands out in more than one run")
    printer.some((f"{one.kind}: {one.summary}" for one in between), most=_MOST_LINES, indent="  ")


# -- The trial of a divot: what is run against what, and what came of it ---------------------------

_MEANS = {
    ConfirmVerdict.CONFIRMED: "the same place is slow again",
    ConfirmVerdict.SMALLER: "slow again, but less than half as much",
    ConfirmVerdict.NOT_CONFIRMED: "the difference is not there now",
    ConfirmVerdict.OPEN: "inconclusive: too noisy; use more --pairs",
}


class ConfirmView(Struct, frozen=True):
    """A trial with what it is of, and what came of it."""

    run: int
    number: int  # of the finding, from 1
    evidence: str  # the finding in a line
    trial: ConfirmPlan | None
    refused: str | None  # why it cannot be run
    pairs: int
    commands: tuple[str, str]  # what a side would be as `rater run ...`
    runs: Sequence[tuple[int, int]] = ()  # numbers of the runs, a pair each
    verdict: ConfirmResult | None = None
    foreign: tuple[float, float] | None = None  # share of a side's CPUs that others took, median
    disturbed: str | None = None  # why it cannot be judged


def print_trial(view: ConfirmView, printer: Printer) -> None:
    """Print what is compared."""
    printer.prose(f"Divot {view.number} of run {view.run}: {view.evidence}", "bold")
    if view.trial is None:
        printer.prose(f"cannot be confirmed here: {view.refused}")
        return
    trial = view.trial
    copies = copies_text(trial.copies)
    printer.prose(
        f"{count(view.pairs, 'pair')} of runs in turn, {copies} each, without the other copies:"
    )
    for side, command in zip("AB", view.commands, strict=True):
        printer.prose(f"  {side}  {command}")


def print_verdict(view: ConfirmView, printer: Printer) -> None:
    """Print the verdict, with every pair."""
    if view.verdict is None or view.trial is None:
        return
    verdict, trial = view.verdict, view.trial
    pairs = ", ".join(_percent(one) for one in verdict.pairs)
    printer.prose(f"pairs: {pairs} (runs {view.runs[0][0]} to {view.runs[-1][1]})")
    style = (
        "bold yellow"
        if verdict.answer in (ConfirmVerdict.CONFIRMED, ConfirmVerdict.SMALLER)
        else "bold"
    )
    printer.prose(f"{verdict.answer}: {view.disturbed or _MEANS[verdict.answer]}", style)
    printer.prose(
        f"  {trial.place} against {trial.there_name}: {_percent(verdict.slowdown)}, "
        f"95 % interval {_percent(verdict.low)} to {_percent(verdict.high)}; "
        f"originally {_percent(trial.slowdown)}"
    )
    if view.foreign is not None and max(view.foreign) >= FOREIGN_SHARE:
        a, b = (f"{percent(share, 0)} %" for share in view.foreign)
        printer.prose(
            f"meanwhile other processes took {a} of {formatting.format_cpus(trial.here)} and {b} "
            "of "
            f"{formatting.format_cpus(trial.there)}: is that the divot, or is the machine busy?",
            "yellow",
        )


def trial_document(view: ConfirmView) -> dict[str, object]:
    """Return the same for programs."""
    trial, verdict = view.trial, view.verdict
    document: dict[str, object] = to_json(
        {
            **JsonFields("run finding=number evidence refused").of(view),
            "trial": trial
            and {
                "benchmarks": trial.benchmarks,
                "copies": trial.copies,
                "pairs": view.pairs,
                "a": {"place": trial.place, "cpus": trial.here, "command": view.commands[0]},
                "b": {"place": trial.there_name, "cpus": trial.there, "command": view.commands[1]},
                "slowdown": trial.slowdown,
            },
            "runs": objects("a b", view.runs),
            "verdict": verdict
            and {
                **JsonFields("answer slowdown pairs").of(verdict),
                "interval": [verdict.low, verdict.high],
                **JsonFields("foreign disturbed").of(view),
            },
        }
    )
    return document


def cpus_text(cpus: Sequence[int]) -> str:
    """Return the layout of a side: these CPUs, one after the other."""
    return f"list:{format_list(cpus)}"


def _percent(slowdown: float) -> str:
    return f"{signed_percent(slowdown - 1)} %"
