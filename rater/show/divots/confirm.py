"""The trial of a divot: what is run against what, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.counters.cpu_use import FOREIGN_SHARE
from rater.analysis.divots.confirm import Answer, Told, Trial
from rater.analysis.divots.data import words
from rater.show.console.printer import Printer
from rater.text.cpuset import format_list
from rater.text.to_json import objects, to_json
from rater.text.words import copies_text, count, percent, signed_percent

_MEANS = {
    Answer.CONFIRMED: "the same place is slow again",
    Answer.SMALLER: "slow again, but by less than half of what was found",
    Answer.NOT_CONFIRMED: "the difference is not there now",
    Answer.OPEN: "too noisy to tell; more --pairs would",
}


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial with what it is of, and what came of it."""

    run: int
    number: int  # of the finding, from 1
    evidence: str  # the finding in a line
    trial: Trial | None
    refused: str | None  # why it cannot be run
    pairs: int
    commands: tuple[str, str]  # what a side would be as `rater run ...`
    runs: Sequence[tuple[int, int]] = ()  # numbers of the runs, a pair each
    verdict: Told | None = None
    foreign: tuple[float, float] | None = None  # share of a side's CPUs that others took, median


def print_trial(view: TrialView, printer: Printer) -> None:
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


def print_verdict(view: TrialView, printer: Printer) -> None:
    """Print the verdict, with every pair."""
    if view.verdict is None or view.trial is None:
        return
    verdict, trial = view.verdict, view.trial
    pairs = ", ".join(_percent(one) for one in verdict.pairs)
    printer.prose(f"pairs: {pairs} (runs {view.runs[0][0]} to {view.runs[-1][1]})")
    style = "bold yellow" if verdict.answer in (Answer.CONFIRMED, Answer.SMALLER) else "bold"
    printer.prose(f"{verdict.answer}: {_MEANS[verdict.answer]}", style)
    printer.prose(
        f"  {trial.place} against {trial.there_name}: {_percent(verdict.slowdown)}, "
        f"95 % interval {_percent(verdict.low)} to {_percent(verdict.high)}; "
        f"originally {_percent(trial.slowdown)}"
    )
    if view.foreign is not None and max(view.foreign) >= FOREIGN_SHARE:
        a, b = (f"{percent(share, 0)} %" for share in view.foreign)
        printer.prose(
            f"meanwhile other processes took {a} of {words.cpus(trial.here)} and {b} of "
            f"{words.cpus(trial.there)}: is that the divot, or is the machine busy?",
            "yellow",
        )


def trial_document(view: TrialView) -> dict[str, object]:
    """Return the same for programs."""
    trial, verdict = view.trial, view.verdict
    document: dict[str, object] = to_json(
        {
            "run": view.run,
            "finding": view.number,
            "evidence": view.evidence,
            "refused": view.refused,
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
                "answer": verdict.answer,
                "slowdown": verdict.slowdown,
                "interval": [verdict.low, verdict.high],
                "pairs": verdict.pairs,
                "foreign": view.foreign,
            },
        }
    )
    return document


def cpus_text(cpus: Sequence[int]) -> str:
    """Return the layout of a side: these CPUs, one after the other."""
    return f"list:{format_list(cpus)}"


def _percent(slowdown: float) -> str:
    return f"{signed_percent(slowdown - 1)} %"
