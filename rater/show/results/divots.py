"""Divots for people, the trial of one, and what the self-test planted beside what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from rater.analysis.divots.confirm import ConfirmPlan, ConfirmResult, ConfirmVerdict, next_command
from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.finding import (
    PLACED,
    Analysis,
    Finding,
    Kind,
    RecurringDivot,
    nothing_to_compare,
)
from rater.analysis.divots.selftest import Deviation, Judgement, PromiseTrials, Tally, Verdict
from rater.analysis.results.cpu_use import FOREIGN_SHARE
from rater.plan.selftest import NotInjected, PlantKind
from rater.record.stored import RunHead
from rater.show.console import Columns, Printer
from rater.show.format import run_title
from rater.show.results.to_json import evidence_line
from rater.text.cpuset import format_list
from rater.text.values import (
    JsonFields,
    copies_text,
    count,
    objects,
    percent,
    signed_percent,
    to_json,
)

# -- Divots for people: the most costly first, what the layout explains apart ----------------------

_MOST_LINES = 10
_MOST_EXPLAINED = 4
_MOST_NEXT = 3
_NO_COPY = "A single slow copy would not stand out from its noise."
# What a run promises to show: scopes with their words, those of one sort behind each other.
_SCOPES = {
    "group": "an lgroup slower by {} % or more in all benchmarks",
    "group-benchmark": "an lgroup slower by {} % or more",
    "cpu": "a CPU slower by {} % or more all the time",
    "copy": "a single copy slower by {} %",
    "iteration": "an iteration slower by {} %",
}
_NOTE = 0.002  # of the score; cheaper ones are shown dim


def print_divots(head: RunHead, analysis: Analysis, console: Console) -> None:
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
        together = f" (together they cost {formatting.format_cost(lost)} of the {of})"
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
    if not visible:
        return "With so few copies only large effects are detectable."
    words = _SCOPES | ({"group-benchmark": "by {} % in one"} if "group" in visible else {})
    parts = [words[scope].format(percent(visible[scope])) for scope in _SCOPES if scope in visible]
    line = f"This run can see {', '.join(parts)}."
    return line if {"copy", "cpu"} & visible.keys() else f"{line} {_NO_COPY}"


def print_between(between: Sequence[RecurringDivot], runs: int, console: Console) -> None:
    """Print what comes back in several runs, what moves about, and what only one has."""
    printer = Printer(console)
    printer.line()
    printer.line(f"Over {runs} runs:", "bold")
    if not between:
        printer.line("  no place has divots in any of them")
    printer.some((f"{one.kind}: {one.summary}" for one in between), most=_MOST_LINES, indent="  ")


# -- The trial of a divot: what is run against what, and what came of it ---------------------------

_MEANS = {
    ConfirmVerdict.CONFIRMED: "the same place is slow again",
    ConfirmVerdict.SMALLER: "slow again, but by less than half of what was found",
    ConfirmVerdict.NOT_CONFIRMED: "the difference is not there now",
    ConfirmVerdict.OPEN: "too noisy to tell; more --pairs would",
}


@dataclass(frozen=True, slots=True)
class ConfirmView:
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
    printer.prose(f"{verdict.answer}: {_MEANS[verdict.answer]}", style)
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


# -- What was planted beside what was found --------------------------------------------------------

_MOST_WRONG = 4


@dataclass(frozen=True, slots=True)
class SelfTest:
    """A self-test that came to its end."""

    copies: int
    cpus: tuple[int, ...]
    lgroups: int
    benchmarks: tuple[str, ...]
    iterations: int
    seed: int
    spread: float  # by how much copies differ with nothing planted, as a share
    floor: float  # smaller slowdowns are not judged
    judged: tuple[Judgement, ...]  # the clean run first
    missing: tuple[NotInjected, ...]
    tally: Tally
    again: int  # runs that were made once more because something disturbed them
    command: str  # plants the same again
    made_noise: float | None = None  # of made times; None: copies ran
    promised: tuple[PromiseTrials, ...] = ()  # of made times

    @property
    def right(self) -> bool:
        """Whether all was named and nothing else, and what runs promise to show was found."""
        return self.tally.right and all(one.kept for one in self.promised)


def print_selftest(test: SelfTest, console: Console) -> None:
    """Print what was planted and what was found, side by side."""
    printer = Printer(console)
    how = "Self-test" if test.made_noise is None else f"Made times ({test.made_noise:.1%} noise)"
    printer.prose(
        f"{how}: {copies_text(test.copies)} on CPUs {format_list(test.cpus)} "
        f"({count(test.lgroups, 'lgroup')}), {' '.join(test.benchmarks)}, "
        f"{count(test.iterations, 'iteration')} of each, seed {test.seed}",
        "bold",
    )
    printer.prose(
        f"With nothing planted copies differ by {test.spread:.1%}: what is below "
        f"{test.floor:.1%} is not judged."
        + (
            f" {count(test.again, 'run')} made once more, because something else slowed the CPUs."
            if test.again
            else ""
        )
    )
    printer.line()
    of = Columns(test.judged)
    printer.table(
        [
            of.left("planted", lambda one: one.injection.kind),
            of.left("where", _where, flexible=True),
            of.right("slowed|by", lambda one: "" if one.made is None else _by(one.made)),
            of.left("found", _what_was_found, flexible=True),
            of.left("", lambda one: one.verdict),
        ],
        ["" if one.verdict is Verdict.RIGHT else "red" for one in test.judged],
    )
    for trial in test.promised:
        _print_trials(trial, printer)
    for one in test.judged:
        _print_own(one, printer)
        _print_wrong(one, printer)
    if test.missing:
        printer.line()
        printer.line("Not planted here:")
        for missing in test.missing:
            printer.prose(f"  {missing.kind}: {missing.why}")
    printer.line()
    printer.line(summary(test.tally), "green" if test.right else "red")
    if not test.right:
        printer.prose(advice(test))


def _print_trials(one: PromiseTrials, printer: Printer) -> None:
    """Print how often what is only as slow as a run promises to show was found."""
    what = _SCOPES[one.scope].format(percent(one.injection.aimed - 1))
    what += " in one benchmark" if one.scope == "group-benchmark" else ""
    style = "" if one.kept else "red"
    printer.prose(f"promised: {what}; found in {one.found} of {one.trials} runs", style)


def _print_own(one: Judgement, printer: Printer) -> None:
    """Print what was found that nobody planted, but that the CPU times say as well."""
    if one.own:
        printer.line()
        printer.prose(
            f"{one.injection.kind}: not planted, but so: the CPUs' own speed changed like that "
            "meanwhile (others on the same host or core, or their clock)."
        )
    for finding in one.own[:_MOST_WRONG]:
        printer.prose(f"  the machine's own: {finding.kind}, {evidence_line(finding)}")


def _print_wrong(one: Judgement, printer: Printer) -> None:
    """Print what is wrong with one of them, in full."""
    if one.verdict is Verdict.RIGHT:
        return
    printer.line()
    printer.prose(f"{one.injection.kind}, {one.injection.place}: {one.injection.how}.", "bold")
    if one.verdict is Verdict.NOT_JUDGED and one.disturbed:
        printer.prose(f"  {one.disturbed[0].upper()}{one.disturbed[1:]}.")
    if one.failed and one.made is not None:
        printer.prose(f"  It came to {one.made - 1:+.1%} only: there was nothing to be found.")
    elif one.injection.kind is not PlantKind.NOTHING and not one.named:
        printer.prose("  Not named.")
    for label, findings in (("false", one.false), ("also true", one.secondary)):
        for finding in findings[:_MOST_WRONG]:
            printer.prose(f"  {label}: {finding.kind}, {evidence_line(finding)}")
        if len(findings) > _MOST_WRONG:
            printer.line(f"  {label}: {len(findings) - _MOST_WRONG} more (--json has them all)")


def _where(one: Judgement) -> str:
    injection = one.injection
    return "" if injection.kind is PlantKind.NOTHING else injection.place


def _what_was_found(one: Judgement) -> str:
    found = [_found(it) for it in (one.named or one.secondary)[:1]]
    found += [f"{len(one.false)} false"] if one.false else []
    found += [f"{len(one.own)} of the machine's own"] if one.own else []
    return ", ".join(found) or "nothing"


def _by(slowdown: float) -> str:
    return f"{(slowdown - 1) * 100:+.0f} %"


def _found(one: Finding) -> str:
    """Return a finding in a few words: its place and its size."""
    place = one.place
    if one.kind is Kind.SLOW_ITERATION:
        place = f"iteration {one.iteration}"
    elif not one.has_place:
        place = str(one.kind)
    elif one.kind is Kind.OUTLIER_COPY:
        place = formatting.format_copies(one.copies)
    if one.kind in (Kind.SLOW_ITERATION, Kind.OUTLIER_COPY) and one.benchmark:
        place += f", {one.benchmark}"
        if one.kind is Kind.OUTLIER_COPY and one.iteration is not None:
            place += f" iteration {one.iteration}"
    return f"{place} {_by(one.slowdown)}"


def summary(tally: Tally) -> str:
    """Return what a self-test came to in one line."""
    divots = "divot" if tally.planted == 1 else "divots"
    failed = f", {tally.failed} without effect" if tally.failed else ""
    failed += f", {tally.unjudged} not judged" if tally.unjudged else ""
    return (
        f"selftest: {tally.named} of {tally.planted} planted {divots} named, "
        f"{tally.false} false{failed}"
    )


def advice(test: SelfTest) -> str:
    """Return what to do about a self-test that was not all right."""
    if test.made_noise is not None:
        return (
            f"Nothing but rater made these times: please report `{test.command}` with the output "
            "of `--json`."
        )
    if any(it.verdict is Verdict.NOT_JUDGED and it.others is not None for it in test.judged):
        return (
            "Other processes took more than a tenth of a CPU, and went on when it was tried "
            "again: this machine is not quiet. Stop them, or let it wait for them: "
            f"`{test.command} --until-idle`. What the detector makes of this machine's shape "
            "`rater selftest --simulate` tells meanwhile."
        )
    if test.tally.unjudged:
        return (
            "Something that this system does not see changed the speed of its CPUs: other guests "
            "of the same host, or a clock that goes up and down (`rater settings` shows governor "
            f"and boost). Let it try for longer: `{test.command} --until-idle`."
        )
    return (
        f"`{test.command}` plants the same again. If that is right, something else ran beside "
        "it this time; if not, rater is: please report it with the output of `--json`."
    )


def speed_words(change: float, cpu: int | None) -> str:
    """Return how the speed of a CPU changed by itself; `change`: of the time for the same work."""
    more = "more" if change > 0 else "less"
    return f"the same work took {abs(change):.0%} {more} CPU time on CPU {cpu} for a while"


def refusal(spread: Deviation, disturbed: str, noisiest: float) -> str:
    """Return why nothing is planted on a machine this noisy; `disturbed`: by what, if known."""
    return (
        f"this machine is too noisy right now: copies differ by {spread.size:.0%} without "
        f"anything planted (copy {spread.copy} of {spread.benchmark}, iteration "
        f"{spread.iteration}; {noisiest:.0%} would do). {disturbed}{'; ' if disturbed else ''}"
        "stop what else runs here, or let it wait for that: `rater selftest --until-idle`; what "
        "the detector makes of this machine's shape: `rater selftest --simulate`"
    )


def refusal_document(text: str, spread: Deviation, others: float, seed: int) -> dict[str, object]:
    """Return the same as JSON."""
    return {
        "right": False,
        "refused": text,
        "seed": seed,
        "spread": round(spread.size, 5),
        "others": round(others, 5),
    }


_TABLE = {
    SelfTest: JsonFields(
        "right",
        {"summary": lambda test: summary(test.tally)},
        "tally.planted tally.named tally.false copies cpus benchmarks iterations seed spread:5"
        " floor:5 made_noise not_judged=tally.unjudged made_again=again plants=judged"
        " not_planted=missing promised",
    ),
    PromiseTrials: JsonFields("scope injection.kind size=injection.aimed:5 trials found kept"),
    Judgement: JsonFields(
        "injection.kind injection.place injection.how injection.copies injection.cpus"
        " injection.node injection.benchmark injection.iteration injection.aimed slowdown=made:5"
        " verdict others:5 unsteady:5 disturbed named also_true=secondary false"
        " machines_own=own too_small=small"
    ),
    Finding: JsonFields("kind place slowdown:5 copies", {"evidence": evidence_line}),
}


def selftest_document(test: SelfTest) -> dict[str, object]:
    """Return a self-test as JSON."""
    document: dict[str, object] = to_json(test, _TABLE)
    return document
