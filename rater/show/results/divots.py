"""Divots for people, and the trial of one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.analysis.compare.hardware import HardwareDifference
from rater.analysis.divots.confirm import ConfirmCause, ConfirmPlan, ConfirmResult
from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import (
    Analysis,
    CpuJudgement,
    Finding,
    RecurringDivot,
    nothing_to_compare,
)
from rater.analysis.results.cpu_use import FOREIGN_SHARE
from rater.analysis.results.periods import Period, period_text
from rater.record.stored import RunHead
from rater.show.results.to_json import evidence_line
from rater.show.screen.document import TEXT, Field, Line, Part, ViewTable, facts
from rater.show.screen.format import crop, run_title
from rater.text.cpuset import format_list
from rater.text.values import copies_text, count, group_by_key, percent, runs_text, signed_percent

if TYPE_CHECKING:
    from rater.show.documents.divots import (
        CopyVerdictJson,
        RunPairJson,
        TrialDocument,
        TrialJson,
        VerdictJson,
    )

# -- Divots for people: the most costly first, what the layout explains apart ----------------------

_MOST_LINES = 10
_LONGEST_LABEL, _LONGEST_VALUE = 44, 80  # of facts of machines
_MOST_EXPLAINED = 4
_MOST_NEXT = 3
_MOST_PERIODS = 4
_LONGEST_TITLE = 40
_NO_COPY = "Noise would hide a single slow copy."
_FEW = "With so few copies only large effects are detectable."
# What a run promises to show, by scope: of what, and in how much of the run.
SCOPES = {
    "group": ("a node", "in all benchmarks"),
    "group-benchmark": ("a node", "in one benchmark"),
    "cpu": ("a CPU", "throughout"),
    "copy-benchmark": ("a copy", "in one benchmark"),
    "copy": ("a copy", "in one iteration"),
    "iteration": ("an iteration", "in all benchmarks"),
}
_NOTE = 0.002  # of the score; cheaper ones are shown dim
_LARGE = 0.1  # of a time: a run that can show no less cannot say that nothing is slow


def divot_parts(head: RunHead, analysis: Analysis, *, every: bool = False) -> Iterator[Part]:
    """Yield the divots of a run; where there are none, the smallest that would have shown."""
    name, more = run_title(head.suite, head.benchmarks)
    ran = ", ".join(part for part in (name, more) if part)
    if len(ran) > _LONGEST_TITLE:
        ran = count(len(head.benchmarks), "benchmark")
    size = f"{copies_text(head.copies)}, {count(head.iterations, 'iteration')}"
    yield Line(f"Run {head.run}: {ran}, {size}", "bold")
    yield from finding_parts(head, analysis, every=every)


def finding_parts(
    head: RunHead, analysis: Analysis, *, every: bool = False, most_next: int = _MOST_NEXT
) -> Iterator[Part]:
    """Yield the verdict in a sentence, the divots, and what would confirm them.

    `every`: also those of a disturbed run; `most_next`: commands named at most.
    """
    shown = analysis.findings if every else analysis.sure
    divots = [finding for finding in shown if not finding.explained]
    yield from verdict_lines(head, analysis, divots)
    if hidden := len(analysis.findings) - len(shown):
        what = count(hidden, "finding")
        yield Line(f"{what} of a disturbed run: `rater divots {head.run} -v`", "dim")
    yield from _describe_findings(divots, analysis)
    yield from period_lines(analysis, divots)
    yield from remark_parts(analysis, shown)
    if analysis.disturbed and analysis.rerun:
        yield Line(f"next: `{analysis.rerun}`   (when nothing else runs on this machine)")
        return
    confirms = dict.fromkeys(analysis.confirm[:_MOST_LINES] if divots else ())
    yield from (Line(f"next: `{confirm}`", whole=True) for confirm in list(confirms)[:most_next])


def period_lines(analysis: Analysis, divots: Sequence[Finding]) -> Iterator[Line]:
    """Yield the places in time that no divot of those shown has as its evidence."""
    evidence_texts = [evidence.text for finding in divots for evidence in finding.evidence]
    untold = [period for period in analysis.periods if not _is_evidence(period, evidence_texts)]
    for period in untold[:_MOST_PERIODS]:
        yield Line(f"Over time: {period_text(period)}.", "yellow")
    if len(untold) > _MOST_PERIODS:
        smaller = count(len(untold) - _MOST_PERIODS, "smaller one")
        yield Line(f"Over time: {smaller}, which --json has.", "dim")


def _is_evidence(period: Period, evidence_texts: Sequence[str]) -> bool:
    """Tell whether a period of any of its phases is told by some evidence."""
    period_texts = tuple(period_text(member, is_named=False) for member in period.each)
    return any(text.startswith(period_texts) for text in evidence_texts)


def verdict_lines(head: RunHead, analysis: Analysis, divots: Sequence[Finding]) -> Iterator[Line]:
    """Yield what stands above the divots that are shown, or in their place."""
    failed, are = count(analysis.failed, "copy run"), "is" if analysis.failed == 1 else "are"
    if analysis.by_cpu is not None and not analysis.disturbed:
        yield Line(by_cpu_line(analysis, analysis.by_cpu), "bold yellow")
    if analysis.disturbed:
        yield Line(disturbed_line(analysis, shown=bool(divots)), "bold yellow")
    elif not divots and (can_judge(analysis) or analysis.findings):
        if analysis.failed:
            yield Line(f"No divots in what ended well; {failed} that did not {are} not judged.")
        else:
            none = "No divots: no copy and no part of the machine stands out."
            yield Line(f"{none}{_unknown(head, analysis)}", "green")
    elif not divots:
        yield Line(_nothing(head, analysis))
    elif analysis.failed:
        yield Line(f"{failed} that did not end well {are} not judged.")


def remark_parts(analysis: Analysis, shown: Sequence[Finding]) -> Iterator[Part]:
    """Yield what is slow as the layout explains, and what could have been seen."""
    explained = [finding for finding in shown if finding.explained]
    yield ViewTable(
        title="Explained, no divots",
        rows=explained,
        fields=(
            Field(heading="", value=lambda _: "  ", form=TEXT),
            Field(heading="", value=evidence_line, wrap=True),
        ),
        most=_MOST_EXPLAINED,
    )
    if len(shown) == len(explained) and not analysis.disturbed and (analysis.visible or explained):
        yield Line(visible_line(analysis.visible, by_cpu=analysis.by_cpu is not None), "dim")


def can_judge(analysis: Analysis) -> bool:
    """Tell whether a search without a find says anything: no huge effect was needed."""
    visible = analysis.visible.values()
    return not analysis.disturbed and min(visible, default=math.inf) <= _LARGE


def disturbed_line(analysis: Analysis, *, shown: bool = False) -> str:
    """Return in words why a run was too disturbed to judge; `shown`: its findings are below."""
    reasons = [*analysis.disturbed]
    if analysis.not_by_cpu:
        reasons.append(f"not by CPU time: {analysis.not_by_cpu}")
    line = f"Too disturbed to judge: {'; '.join(reasons)}."
    return f"{line} It may have caused the findings below." if shown else line


def by_cpu_line(analysis: Analysis, judgement: CpuJudgement) -> str:
    """Return in words that CPU time judges a run, and why."""
    took = percent(judgement.others_took, 0)
    return (
        f"Judged by CPU time, as elapsed times are disturbed: "
        f"{'; '.join(analysis.disturbed_times)}. Copies waited {took} % of their time for others."
    )


def _nothing(head: RunHead, analysis: Analysis) -> str:
    if head.source == "run" and head.elapsed_s is None:
        return "Nothing ran, so there is nothing to judge."
    if nothing_to_compare(head):
        why = "too few copies and iterations"
    elif analysis.failed and not analysis.visible:
        why = "too few copies ended well"
    elif head.source == "import" and not analysis.visible:
        why = "too few times of copies are known"
    else:
        why = "only a large slowdown would show here"
    return f"Cannot tell whether a part is slow: {why}."


def _unknown(head: RunHead, analysis: Analysis) -> str:
    """Say that it is not known what others took, of a run that was made here."""
    if head.source != "run" or analysis.others_cost is not None:
        return ""
    return " Whether other processes took time from the copies is unknown."


def _describe_findings(divots: Sequence[Finding], analysis: Analysis) -> Iterator[Part]:
    if not divots:
        return
    together, lost = "", analysis.lost
    if lost - divots[0].cost >= _NOTE:  # none of them costs it alone
        subject = "score" if divots[0].score_lost is not None else "copies' time"
        together = f" (together they cost {formatting.format_cost(lost)} of the {subject})"
    yield f"{count(len(divots), 'divot')}, the most costly first{together}:"
    columns = (
        Field(heading="", value=lambda row: f"{row[0]:3}."),
        Field(heading="", value=lambda row: evidence_line(row[1]), wrap=True),
    )
    yield ViewTable(
        title="",
        rows=list(enumerate(divots, 1)),
        fields=columns,
        style=lambda row: "" if row[1].cost >= _NOTE or row[1].fast else "dim",
        most=_MOST_LINES,
        tight=True,
        note=visible_line(analysis.visible, by_cpu=analysis.by_cpu is not None)
        if analysis.visible
        else "",
    )


def visible_line(visible: dict[str, float], *, by_cpu: bool = False) -> str:
    """Return the smallest effects that the run could show as a sentence."""
    if not visible:
        return _FEW
    one_benchmark = visible.get("group") == visible.get("group-benchmark")
    parts = group_by_key(
        (what, f"{percent(visible[scope])} % {where}")
        for scope, (what, where) in SCOPES.items()
        if scope in visible and not (scope == "group-benchmark" and one_benchmark)
    )
    sizes = "; ".join(f"{what} {', '.join(parts[what])}" for what in parts)
    measure = " by CPU time" if by_cpu else ""
    line = f"Smallest detectable slowdown{measure}: {sizes}."
    return f"{line} {_NO_COPY}" if parts.keys() == {SCOPES["group"][0]} else line


def hardware_parts(differences: Sequence[HardwareDifference]) -> Iterator[Part]:
    """Yield what runs' machines differ in, such as a memory slot that is empty in one of them."""
    yield facts(
        (
            (
                crop(difference.what, _LONGEST_LABEL, ascii_only=True),
                "; ".join(
                    f"{crop(value, _LONGEST_VALUE, ascii_only=True)} ({runs_text(runs)})"
                    for value, runs in difference.values
                ),
            )
            for difference in differences
        ),
        "Their machines differ",
        _MOST_LINES,
    )


def between_parts(between: Sequence[RecurringDivot], runs: int) -> Iterator[Part]:
    """Yield what comes back in several runs, what moves about, and what only one has."""
    title = f"Over {runs} runs"
    yield facts([(divot.kind, divot.summary) for divot in between], title, _MOST_LINES)
    if not between:
        yield ""
        yield Line(f"{title} no CPU, node or copy stands out more than once.", "bold")


# -- The trial of a divot: what is run against what, and what came of it ---------------------------

_MEANS = {
    ConfirmCause.PLACE: "the same copies are faster elsewhere",
    ConfirmCause.COPY: "other copies are faster in the same place",
    ConfirmCause.NEITHER: "the difference is not there now",
    ConfirmCause.CANNOT_TELL: "too noisy; use more --pairs",
}


class ConfirmView(Struct, frozen=True, kw_only=True):
    """A trial of a divot, and its outcome."""

    run: int
    number: int  # of the finding, from 1
    evidence: str  # the finding in a line
    trial: ConfirmPlan | None
    refused: str | None  # why it cannot be run
    pairs: int
    commands: tuple[str, ...]  # what a side would be as `rater run ...`
    runs: Sequence[tuple[int, ...]] = ()  # numbers of the runs, a round each
    verdict: ConfirmResult | None = None  # of the place: the same copies elsewhere
    copy_verdict: ConfirmResult | None = None  # of the copy: other copies there
    cause: ConfirmCause | None = None
    by_cpu: bool = False  # CPU time judges
    foreign: tuple[float, float] | None = None  # share of a side's CPUs that others took, median
    disturbed: str | None = None  # why it cannot be judged


def trial_parts(view: ConfirmView) -> Iterator[Part]:
    """Yield what is compared."""
    yield Line(f"Divot {view.number} of run {view.run}: {view.evidence}", "bold")
    if view.trial is None:
        yield f"cannot be confirmed here: {view.refused}"
        return
    copies = copies_text(view.trial.copies)
    rounds = count(view.pairs, "round")
    yield f"{rounds} of runs in turn, {copies} each, without the other copies:"
    yield facts(zip("ABC", view.commands, strict=False))
    yield "A against B: is it the place? A against C: is it the copy?"


def verdict_parts(view: ConfirmView) -> Iterator[Part]:
    """Yield the verdict, with every pair."""
    if view.verdict is None or view.trial is None:
        return
    verdict, trial = view.verdict, view.trial
    cause = view.cause or ConfirmCause.CANNOT_TELL
    is_slow_again = cause in (ConfirmCause.PLACE, ConfirmCause.COPY)
    measure = " (by CPU time)" if view.by_cpu else ""
    yield Line(
        f"{cause}: {view.disturbed or _MEANS[cause]}{measure}",
        "bold yellow" if is_slow_again else "bold",
    )
    taken_slow, taken_other = (f"{percent(share, 0)} %" for share in view.foreign or (0.0, 0.0))
    slow_cpus, other_cpus = formatting.format_cpus(trial.here), formatting.format_cpus(trial.there)
    is_taken = view.foreign is not None and max(view.foreign) >= FOREIGN_SHARE
    yield facts(
        (
            (f"{trial.place} against {trial.there_name}", _result_text(verdict, trial)),
            (
                "the same against other copies there",
                view.copy_verdict and _result_text(view.copy_verdict, trial),
            ),
            (
                f"rounds (runs {view.runs[0][0]} to {view.runs[-1][-1]})",
                ", ".join(_percent(pair) for pair in verdict.pairs),
            ),
            (
                "other processes",
                is_taken
                and f"took {taken_slow} of {slow_cpus} and {taken_other} of {other_cpus}: "
                "divot, or busy machine?",
                "yellow",
            ),
        )
    )


def _result_text(result: ConfirmResult, trial: ConfirmPlan) -> str:
    return (
        f"{result.answer}: {_percent(result.slowdown)}, 95 % interval {_percent(result.low)} to "
        f"{_percent(result.high)}; originally {_percent(trial.slowdown)}"
    )


def trial_document(view: ConfirmView) -> TrialDocument:
    """Return the same for programs."""
    return {
        "run": view.run,
        "finding": view.number,
        "evidence": view.evidence,
        "refused": view.refused,
        "trial": _trial_json(view),
        "runs": [_round_json(of_round) for of_round in view.runs],
        "verdict": _verdict_json(view),
    }


def _trial_json(view: ConfirmView) -> TrialJson | None:
    trial = view.trial
    if trial is None:
        return None
    slow, elsewhere, *others = view.commands
    return {
        "benchmarks": [*trial.benchmarks],
        "copies": trial.copies,
        "pairs": view.pairs,
        "a": {
            "place": trial.place,
            "cpus": [*trial.here],
            "copy_numbers": [*trial.numbers],
            "command": slow,
        },
        "b": {
            "place": trial.there_name,
            "cpus": [*trial.there],
            "copy_numbers": [*trial.numbers],
            "command": elsewhere,
        },
        "c": {
            "place": trial.place,
            "cpus": [*trial.here],
            "copy_numbers": [*trial.other_numbers],
            "command": others[0],
        }
        if others
        else None,
        "slowdown": trial.slowdown,
    }


def _round_json(of_round: Sequence[int]) -> RunPairJson:
    slow, elsewhere, *others = of_round
    return {"a": slow, "b": elsewhere, "c": others[0] if others else None}


def _copy_json(result: ConfirmResult) -> CopyVerdictJson:
    return {
        "answer": result.answer,
        "slowdown": result.slowdown,
        "pairs": [*result.pairs],
        "interval": [result.low, result.high],
    }


def _verdict_json(view: ConfirmView) -> VerdictJson | None:
    verdict = view.verdict
    if verdict is None:
        return None
    return {
        "answer": verdict.answer,
        "slowdown": verdict.slowdown,
        "pairs": [*verdict.pairs],
        "interval": [verdict.low, verdict.high],
        "foreign": None if view.foreign is None else [*view.foreign],
        "disturbed": view.disturbed,
        "cause": view.cause or ConfirmCause.CANNOT_TELL,
        "copy": None if view.copy_verdict is None else _copy_json(view.copy_verdict),
        "by_cpu_time": view.by_cpu,
    }


def cpus_text(cpus: Sequence[int]) -> str:
    """Return the layout of a side: these CPUs, one after the other."""
    return f"list:{format_list(cpus)}"


def _percent(slowdown: float) -> str:
    return f"{signed_percent(slowdown - 1)} %"
