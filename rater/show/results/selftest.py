"""Divots that the self-test planted beside those found, in words and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.analysis.divots.model.finding import (
    Finding,
    Kind,
)
from rater.analysis.divots.selftest import Deviation, Judgement, PromiseTrials, Tally, Verdict
from rater.plan.selftest import NotInjected, PlantKind
from rater.show.results.divots import SCOPES
from rater.show.results.to_json import evidence_line
from rater.show.screen.document import TEXT, Fact, Field, Line, Part, ViewTable, facts
from rater.text.cpuset import copy_numbers_text, format_list
from rater.text.values import copies_text, count, percent, to_json

if TYPE_CHECKING:
    from rater.show.documents.selftest import (
        FoundJson,
        PlantJson,
        PromiseJson,
        SelfTestDocument,
        SelfTestRefusedDocument,
    )

_MOST_WRONG = 4
_DIGITS = 5  # of shares and slowdowns in JSON


class SelfTest(Struct, frozen=True, kw_only=True):
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
        return self.tally.right and all(promise.kept for promise in self.promised)


def selftest_parts(test: SelfTest) -> Iterator[Part]:
    """Yield the planted divots beside the findings."""
    how = "Self-test" if test.made_noise is None else f"Made times ({test.made_noise:.1%} noise)"
    yield Line(
        f"{how}: {copies_text(test.copies)} on CPUs {format_list(test.cpus)} "
        f"({count(test.lgroups, 'NUMA node')}), {' '.join(test.benchmarks)}, "
        f"{count(test.iterations, 'iteration')} of each, seed {test.seed}",
        "bold",
    )
    repeated = f" {count(test.again, 'run')} repeated: something else slowed the CPUs."
    yield (
        f"Undisturbed copies differ by {test.spread:.1%}; slowdowns below {test.floor:.1%} are not "
        f"judged.{repeated if test.again else ''}"
    )
    columns = (
        Field(heading="planted", value=lambda judgement: judgement.injection.kind, form=TEXT),
        Field(heading="where", value=_where, form=TEXT, flexible=True),
        Field(
            heading="slowed|by",
            value=lambda judgement: "" if judgement.made is None else _by(judgement.made),
        ),
        Field(heading="found", value=_what_was_found, form=TEXT, flexible=True),
        Field(heading="", value=lambda judgement: judgement.verdict, form=TEXT),
    )
    yield ViewTable(
        title="",
        rows=test.judged,
        fields=columns,
        style=lambda judgement: "" if judgement.verdict is Verdict.RIGHT else "red",
    )
    yield facts(map(_trials, test.promised))
    for judgement in test.judged:
        if judgement.verdict is not Verdict.RIGHT:
            yield facts(
                _wrong(judgement), f"{judgement.injection.kind}, {judgement.injection.place}"
            )
    yield facts(((missing.kind, missing.why) for missing in test.missing), "Not planted here")
    yield Line(summary(test.tally), "green" if test.right else "red")
    yield None if test.right else advice(test)


def _trials(trials: PromiseTrials) -> Fact:
    """Return how often what is only as slow as a run promises to show was found."""
    what, where = SCOPES[trials.scope]
    text = f"{what} {percent(trials.injection.aimed - 1)} % slower {where}; found in "
    return "promised", f"{text}{trials.found} of {trials.trials} runs", "" if trials.kept else "red"


def _wrong(judgement: Judgement) -> Iterator[Fact]:
    """Yield what is wrong with one of them, in full."""
    yield "planted", f"{judgement.injection.how}."
    if judgement.verdict is Verdict.NOT_JUDGED and judgement.disturbed:
        yield "disturbed", f"{judgement.disturbed[0].upper()}{judgement.disturbed[1:]}."
    if judgement.failed and judgement.made is not None:
        yield "too small", f"it slowed them by only {judgement.made - 1:.1%}: too little to detect"
    elif judgement.injection.kind is not PlantKind.NOTHING and not judgement.named:
        yield "found", "Not named."
    for label, findings in (("false", judgement.false), ("also true", judgement.secondary)):
        shown = findings[:_MOST_WRONG]
        yield from ((label, f"{it.kind}, {evidence_line(it)}") for it in shown)
        more = len(findings) - len(shown)
        yield label, more and f"{more} more (--json has them all)"


def _where(judgement: Judgement) -> str:
    injection = judgement.injection
    return "" if injection.kind is PlantKind.NOTHING else injection.place


def _what_was_found(judgement: Judgement) -> str:
    found = [
        _describe_findings(finding) for finding in (judgement.named or judgement.secondary)[:1]
    ]
    found += [f"{len(judgement.false)} false"] if judgement.false else []
    return ", ".join(found) or "nothing"


def _by(slowdown: float) -> str:
    return f"{(slowdown - 1) * 100:+.0f} %"


def _describe_findings(finding: Finding) -> str:
    """Return a finding in a few words: its place and its size."""
    place = finding.place
    if finding.kind is Kind.SLOW_ITERATION:
        place = f"iteration {finding.iteration}"
    elif not finding.has_place:
        place = str(finding.kind)
    elif finding.kind is Kind.OUTLIER_COPY:
        place = copy_numbers_text(finding.copies)
    if finding.kind in (Kind.SLOW_ITERATION, Kind.OUTLIER_COPY) and finding.benchmark:
        place += f", {finding.benchmark}"
        if finding.kind is Kind.OUTLIER_COPY and finding.iteration is not None:
            place += f" iteration {finding.iteration}"
    return f"{place} {_by(finding.slowdown)}"


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
            "Other processes took more than a tenth of a CPU, also when it was repeated. Stop "
            f"them, or wait for them: `{test.command} --until-idle`. Meanwhile `rater doctor "
            "selftest --simulate` tests the detector on this machine's shape."
        )
    if test.tally.unjudged:
        return (
            "CPU speed changed for a reason outside this system: other guests of the host, or "
            "frequency scaling (`rater settings` shows governor and boost). Try for longer: "
            f"`{test.command} --until-idle`."
        )
    return (
        f"`{test.command}` repeats this test. If it passes, other load was the cause. If not, "
        "please report it with the output of `--json`."
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
        "stop what else runs here, or let it wait for that: `rater doctor selftest --until-idle`; "
        "what the detector makes of this machine's shape: `rater doctor selftest --simulate`"
    )


def refusal_document(
    text: str, spread: Deviation, others: float, seed: int
) -> SelfTestRefusedDocument:
    """Return the same as JSON."""
    return {
        "right": False,
        "refused": text,
        "seed": seed,
        "spread": round(spread.size, _DIGITS),
        "others": round(others, _DIGITS),
    }


def selftest_document(test: SelfTest) -> SelfTestDocument:
    """Return a self-test as JSON."""
    return {
        "right": test.right,
        "summary": summary(test.tally),
        "planted": test.tally.planted,
        "named": test.tally.named,
        "false": test.tally.false,
        "copies": test.copies,
        "cpus": [*test.cpus],
        "benchmarks": [*test.benchmarks],
        "iterations": test.iterations,
        "seed": test.seed,
        "spread": round(test.spread, _DIGITS),
        "floor": round(test.floor, _DIGITS),
        "made_noise": test.made_noise,
        "not_judged": test.tally.unjudged,
        "made_again": test.again,
        "plants": [_plant(judgement) for judgement in test.judged],
        "not_planted": to_json(test.missing),
        "promised": [_promise(trials) for trials in test.promised],
    }


def _plant(judgement: Judgement) -> PlantJson:
    injection = judgement.injection
    return {
        "kind": injection.kind,
        "place": injection.place,
        "how": injection.how,
        "copies": [*injection.copies],
        "cpus": [*injection.cpus],
        "node": injection.node,
        "benchmark": injection.benchmark,
        "iteration": injection.iteration,
        "aimed": injection.aimed,
        "slowdown": _rounded(judgement.made),
        "verdict": judgement.verdict,
        "others": _rounded(judgement.others),
        "unsteady": _rounded(judgement.unsteady),
        "disturbed": judgement.disturbed,
        "named": [_found_json(finding) for finding in judgement.named],
        "also_true": [_found_json(finding) for finding in judgement.secondary],
        "false": [_found_json(finding) for finding in judgement.false],
        "too_small": [_found_json(finding) for finding in judgement.small],
    }


def _found_json(finding: Finding) -> FoundJson:
    return {
        "kind": finding.kind,
        "place": finding.place,
        "slowdown": round(finding.slowdown, _DIGITS),
        "copies": [*finding.copies],
        "evidence": evidence_line(finding),
    }


def _promise(trials: PromiseTrials) -> PromiseJson:
    return {
        "scope": trials.scope,
        "kind": trials.injection.kind,
        "size": round(trials.injection.aimed, _DIGITS),
        "trials": trials.trials,
        "found": trials.found,
        "kept": trials.kept,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, _DIGITS)
