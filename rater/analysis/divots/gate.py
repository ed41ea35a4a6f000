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
from rater.text.values import count, percent

ANY: Final = "any"
# Without a limit a gate asks for what is large: a run that can show no less says nothing.
LARGE: Final = 0.1
# A single slow copy is a divot of some kind, so that `any` has to be able to see one.
_SCOPES_OF_ANY: Final = ("group", "cpu", "copy", "iteration")
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
# These kinds are told of several runs, and never of one.
_KINDS_OF_RUNS: Final = (Kind.RECURRING, Kind.ONCE)
# A size found four times in five is at least so many standard errors: about 4 for the evidence that
# pays, and 0.84 for the power of 0.8 (`findings.visible`).
_ERRORS_OF_VISIBLE: Final = 4.84
_ONE_SIDED: Final = 1.645  # standard errors; a true size is beyond them in one of twenty
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
    has_starts: bool = True  # whether it is known when its copies began
    is_alone: bool = True  # whether it is judged without other runs


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
    yield from (
        GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: {reason}")
        for finding in findings
        if (reason := _reason_near(run, finding, limit))
    )
    if lacking := _lacking_knowledge(run, limit):
        yield GateVerdict(answer=GateAnswer.OPEN, reason=f"{name}: {lacking}")
        return
    if limit.kind in _KINDS_OF_RUNS:
        return  # `judge_recurring` asks about them
    yield from (_judge_scope(run, limit, scope, name) for scope in _scopes(run, limit))


def _reason_near(run: JudgedRun, finding: Finding, limit: GateLimit) -> str | None:
    """Say that a finding below the limit may in truth reach it; None: that is excluded."""
    visible = run.analysis.visible.get(_SCOPE_OF_KIND.get(finding.kind, "cpu"))
    if finding.explained or not limit.least or visible is None:
        return None
    size, where = _largest(finding)
    most = size - 1 + visible * _ONE_SIDED / _ERRORS_OF_VISIBLE
    if most < limit.least or (limit.kind.startswith("slow-") and size < 1):
        return None
    return (
        f"{finding.place}: {where}{percent(size - 1)} % was found, {percent(most)} % is possible, "
        f"{percent(limit.least)} % was asked"
    )


def _lacking_knowledge(run: JudgedRun, limit: GateLimit) -> str | None:
    """Say what a run lacks without which no divot of the asked kind is ever found in it."""
    iterations = run.head.iterations - run.head.discard
    if limit.kind in _KINDS_OF_RUNS and run.is_alone:
        return f"{limit.kind} is told of several runs: `rater divots RUN RUN ...`"
    if limit.kind == Kind.WANDERING and run.is_alone and iterations < 2:
        return "one iteration: nothing can be slow elsewhere in another one"
    if limit.kind == Kind.STARTUP and not run.has_starts:
        return "it is not known when its copies began"
    return None


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
    # What a single iteration shows does not sink with the number of iterations.
    is_mean = visible is not None and scope in ("group", "cpu")
    needed = repeats_needed(iterations, visible or 0.0, limit.asked) if is_mean else None
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
