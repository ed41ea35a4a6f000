"""The gate of a run's divots: a limit is reached, excluded, or hidden by noise; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from msgspec import Struct

from rater.analysis.divots.model.finding import Analysis, Finding, Kind, RecurringDivot
from rater.analysis.results.gates import (
    EXCLUDED,
    GateAnswer,
    GateCase,
    GateVerdict,
    hidden_text,
    more_text,
    repeats_needed,
)
from rater.record.stored import RunHead
from rater.text.values import count

ANY: Final = "any"
# Without a limit a gate asks for what is large: a run that can show no less says nothing.
LARGE: Final = 0.1
_SCOPES_OF_ANY: Final = ("group", "cpu", "iteration")
# Of what a run promises to show (`findings.visible`), the scope of each kind.
_SCOPE_OF_KIND: Final = {
    Kind.SLOW_LGROUP: "group",
    Kind.SLOW_GROUP: "group",
    Kind.SLOW_CPU: "cpu",
    Kind.OUTLIER_COPY: "copy",
    Kind.SLOW_ITERATION: "iteration",
    Kind.STEP: "iteration",
    Kind.WARM_UP: "iteration",
    Kind.DRIFT: "iteration",
}
# These kinds accuse a place of the machine, which a run must have to exclude it.
_KINDS_OF_PLACE: Final = (Kind.SLOW_LGROUP, Kind.SLOW_CPU)
_LEAST_ITERATIONS: Final = 3  # of two, nobody can say which one is slow
_NOUNS: Final = {
    "group": "a node",
    "cpu": "a CPU",
    "copy": "a copy in one iteration",
    "iteration": "an iteration",
}


class GateLimit(Struct, frozen=True):
    """What a gate asks for: a kind of divot, or any, from a slowdown on."""

    kind: str
    least: float  # share of a time; 0: any size

    @property
    def limit_text(self) -> str:
        """The words of `--fail-on`."""
        return f"{self.kind}:{self.least * 100:g}%" if self.least else self.kind

    @property
    def asked(self) -> float:
        """The slowdown that has to be excluded."""
        return self.least or LARGE


class JudgedRun(Struct, frozen=True, kw_only=True):
    """A run with its analysis."""

    head: RunHead
    analysis: Analysis
    # NUMA nodes, or packages, that its copies ran on; the same of CPUs. 0: the run names none;
    # None: not known of all copies.
    nodes: int | None = None
    cpus: int | None = None


def run_cases(run: JudgedRun, limits: Sequence[GateLimit]) -> Iterator[GateCase]:
    """Yield a case for each limit of a run with its findings, or with the noise that hides them."""
    for limit in limits:
        verdicts = [*judge_run(run, [limit])]
        answers = {verdict.answer for verdict in verdicts}
        answer = next(
            (worst for worst in (GateAnswer.FOUND, GateAnswer.OPEN) if worst in answers),
            GateAnswer.EXCLUDED,
        )
        reasons = [verdict.reason for verdict in verdicts if verdict.answer is answer]
        yield GateCase(
            gate="divots",
            name=limit.limit_text,
            place=f"run {run.head.run}",
            answer=answer,
            reason="; ".join(filter(None, dict.fromkeys(reasons))),
        )


def judge_run(run: JudgedRun, limits: Sequence[GateLimit]) -> Iterator[GateVerdict]:
    """Yield what can be said of a run, limit by limit."""
    name = f"run {run.head.run}"
    if run.analysis.disturbed:
        reason = f"{name} cannot be judged: {'; '.join(run.analysis.disturbed)}"
        yield GateVerdict(answer=GateAnswer.OPEN, reason=reason)
        return
    for limit in limits:
        yield from _judge_limit(run, limit, name)


def _judge_limit(run: JudgedRun, limit: GateLimit, name: str) -> Iterator[GateVerdict]:
    findings = [finding for finding in run.analysis.findings if _is_asked(finding.kind, limit)]
    found = [reason for finding in findings if (reason := _reason_found(finding, limit))]
    if found:
        yield from (GateVerdict(answer=GateAnswer.FOUND, reason=reason) for reason in found)
        return
    for finding in findings:
        if finding.explained and finding.by_cpu and finding.slowdown - 1 >= limit.asked:
            reason = f"{name}: {finding.place}: {finding.expectation}"
            yield GateVerdict(answer=GateAnswer.OPEN, reason=reason)
    yield from (_judge_scope(run, limit, scope, name) for scope in _scopes(run, limit))


def _scopes(run: JudgedRun, limit: GateLimit) -> Sequence[str]:
    """Return the scopes in which a run must be able to show the limit."""
    if limit.kind == ANY:
        # What a run does not have, or not twice, cannot be slow beside its like.
        one_node = run.nodes is None or run.nodes < 2
        one_iteration = run.head.iterations - run.head.discard < _LEAST_ITERATIONS
        lacking = {"group"} if one_node else set()
        lacking |= {"iteration"} if one_iteration else set()
        return [scope for scope in _SCOPES_OF_ANY if scope not in lacking]
    scope = next((scope for kind, scope in _SCOPE_OF_KIND.items() if kind == limit.kind), None)
    # Other kinds are shapes in which time is lost; what can be seen of one copy stands for them.
    return [scope or "cpu"]


def _judge_scope(run: JudgedRun, limit: GateLimit, scope: str, name: str) -> GateVerdict:
    visible = run.analysis.visible.get(scope)
    place = _NOUNS[scope]
    lacking = _lacking_place(run, limit, scope)
    can_have_kind = lacking is None or limit.kind not in _KINDS_OF_PLACE
    if visible is not None and visible <= limit.asked and can_have_kind:
        return EXCLUDED
    if lacking is not None:
        return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: {lacking}")
    iterations = max(1, run.head.iterations - run.head.discard)
    if scope == "iteration" and iterations < _LEAST_ITERATIONS:
        reason = f"{name}: {count(iterations, 'iteration')}: none can be told from the others"
        return GateVerdict(answer=GateAnswer.OPEN, reason=reason)
    needed = None if visible is None else repeats_needed(iterations, visible, limit.asked)
    way_out = more_text(iterations, needed, "iteration")
    hidden = hidden_text(place, limit=limit.asked, visible=visible, way_out=way_out)
    return GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: {hidden}")


def _lacking_place(run: JudgedRun, limit: GateLimit, scope: str) -> str | None:
    """Say why no place of a scope can be accused in a run; None: one can."""
    if scope == "group" and run.nodes is not None and run.nodes < 2:
        known = "no node is known" if not run.nodes else "its copies ran on one node"
        return f"{known}: {_NOUNS[scope]} has nothing to be compared with"
    if limit.kind == Kind.SLOW_CPU and run.cpus == 0:
        return f"no CPU is known: a slow copy is of kind {Kind.OUTLIER_COPY}"
    return None


def judge_recurring(
    between: Sequence[RecurringDivot], limits: Sequence[GateLimit]
) -> Iterator[GateVerdict]:
    """Yield what several runs have in common that a limit asks for."""
    for limit in limits:
        for divot in between:
            if _is_asked(divot.kind, limit) and _is_large(divot.slowdown, divot.kind, limit):
                size = f"{(divot.slowdown - 1) * 100:+.1f} %"
                yield GateVerdict(
                    answer=GateAnswer.FOUND,
                    reason=f"{limit.kind}: {divot.places[0].place} ({size})",
                )


def _is_asked(kind: Kind, limit: GateLimit) -> bool:
    return limit.kind in (kind, ANY)


def _is_large(slowdown: float, kind: Kind, limit: GateLimit) -> bool:
    """Tell whether a size reaches a limit; a faster part is no slow one, whatever its kind."""
    is_fast_part = limit.kind.startswith("slow-") and slowdown < 1
    return not is_fast_part and abs(slowdown - 1) >= limit.least


def _reason_found(finding: Finding, limit: GateLimit) -> str | None:
    """Return a finding that reaches a limit in words, or None."""
    if finding.explained:
        return None
    size, where = _largest(finding)
    if not _is_large(size, finding.kind, limit):
        return None
    return f"{limit.kind}: {finding.place} ({where}{(size - 1) * 100:+.1f} %)"


def _largest(finding: Finding) -> tuple[float, str]:
    """Return the largest slowdown of a finding that its sentence stands for, and where that is.

    The typical one, or that of one benchmark or copy over its iterations: a single
    iteration of three is no more than its noise.
    """
    by_part: dict[str, list[float]] = {}
    for cell in finding.cells:
        by_part.setdefault(f"{cell.benchmark} ", []).append(cell.slowdown)
    for single in finding.singles:
        name = f"copy {single.copy} of {single.benchmark} "
        by_part.setdefault(name, []).append(single.slowdown)
    largest, where = finding.slowdown, ""
    for name, sizes in by_part.items():
        if abs(median(sizes) - 1) > abs(largest - 1):
            largest, where = median(sizes), name
    return largest, where
