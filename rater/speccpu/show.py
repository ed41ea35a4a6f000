"""Results read from SPEC's files, and the mistakes in a bind list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rater.show.screen.document import Line, Part, facts
from rater.show.screen.format import format_number, needed_decimals
from rater.speccpu.config.keys import Problem
from rater.speccpu.lint.bind_list import BoundCopy, LintFinding, Scope, Source
from rater.speccpu.lint.check import KINDS, LintReport
from rater.speccpu.results.read import SpecImport
from rater.speccpu.results.recompute import Disagreement, RecomputedResults, own_ratio
from rater.speccpu.results.result import SpecIteration
from rater.text.cpuset import cpus_text, format_list
from rater.text.values import JsonFields, copies_text, count, group_by_key, to_json

_FORMATS = {"rsf": "raw file", "log": "log", "csv": "CSV report"}
_MOST = 10  # remarks, problems, disagreements: --json has all


def import_parts(imported: SpecImport, run: int, added: bool, *, again: str = "") -> Iterator[Part]:
    """Yield one imported file; `again`: what to say of a file that was stored already."""
    file, recomputed = imported.file, imported.recomputed
    if not added:
        yield Line(f"run {run}: {file.name} is stored already, nothing was added{again}", "bold")
        return
    what = " ".join(filter(None, (file.suite, file.metric, file.size)))
    yield Line(f"run {run}: {file.name} ({_FORMATS[file.format]}, {what}) imported", "bold")
    means = [
        f"{tune} {_mean(mean, tune, recomputed)}"
        + (f"; the file: {said.value:.{min(said.places, 6)}f}" if said else "")
        for tune, mean in recomputed.means
        for said in [file.means.get(tune)]
    ]
    wrong, compared = recomputed.disagreements, count(recomputed.compared, "value")
    agree = f"{compared} of the file: all agree" if recomputed.compared else ""
    if wrong:
        agree = f"{compared} of the file, {len(wrong)} disagree with its own numbers:"
    problems = file.problems
    yield facts(
        (
            ("holds", counted(imported)),
            ("copies", imported.places.summary()),
            ("notes", _some(imported.remarks)),
            ("geometric mean", means),
            ("checked", [agree, *_some(wrong)] if agree else []),
            ("problems", [str(problems.count), *_some(problems)] if problems.count else []),
        )
    )
    yield Line(f"next: `rater show {run}`", whole=True)


def _some(values: Iterable[object]) -> list[str]:
    texts = list(map(str, values))
    more = len(texts) - _MOST
    return [*texts[:_MOST], *([f"and {more} more (--json has all)"] if more > 0 else [])]


def counted(imported: SpecImport) -> str:
    """Return benchmarks, tunes, iterations and copies of a file in a line."""
    iterations = imported.file.iterations
    head = imported.stored.head
    tunes = " and ".join(sorted({iteration.tune for iteration in iterations}))
    parts = [
        f"{count(len(head.benchmarks), 'benchmark')} {tunes}",
        count(head.iterations, "iteration"),
        copies_text(head.copies),
        count(len(imported.brackets), "bracket") if head.order != "rotated" else "rotated",
        count(imported.copy_runs, "copy time"),
    ]
    bad = sum(not iteration.good for iteration in iterations)
    failed = sum(len(iteration.failures) for iteration in iterations)
    if bad:
        parts.append(f"{bad} not valid")
    if failed:
        parts.append(f"{count(failed, 'copy run')} failed")
    return ", ".join(parts)


_TABLE = {
    Disagreement: JsonFields("line where what file own"),
    Problem: JsonFields("line text"),
    SpecIteration: JsonFields(
        "benchmark tune iteration copies",
        {
            "copy_times": lambda it: len(it.times_s),
            "failed_copies": lambda it: format_list(it.failures),
        },
        "reported_s reference_s reference_derived ratio=ratio.value selected valid errors",
    ),
}
_IMPORT = JsonFields(
    "file=file.name file.format stored.head.uuid file.sha256 file.suite file.metric file.size"
    " stored.head.copies stored.head.iterations",
    {
        "benchmarks": lambda one: len(one.stored.head.benchmarks),
        "tunes": lambda one: {iteration.tune for iteration in one.file.iterations},
        "placement": lambda one: one.places.summary(),
        "means": lambda imported: {
            tune: {"file": getattr(imported.file.means.get(tune), "value", None), "own": mean}
            for tune, mean in imported.recomputed.means
        },
        "problems": lambda one: [*one.file.problems],
    },
    "copy_times=copy_runs results=file.iterations checked=recomputed.compared"
    " recomputed.disagreements problem_count=file.problems.count stored.notes",
)


def import_document(imported: SpecImport, run: int, added: bool) -> dict[str, Any]:
    """Return one imported file as JSON values."""
    file = imported.file
    document: dict[str, Any] = to_json(
        {**_IMPORT.read(imported), "run": run, "added": added}, _TABLE
    )
    results = zip(document["results"], file.iterations, strict=True)
    document["results"] = [it | {"own_ratio": own_ratio(of, file.suite)} for it, of in results]
    return document


def _mean(mean: float | None, tune: str, recomputed: RecomputedResults) -> str:
    of_tune = [result for result in recomputed.benchmarks if result.tune == tune]
    without = sum(result.ratio is None for result in of_tune)
    shown = "none" if mean is None else format_number(mean, max(2, needed_decimals([mean])))
    left = f" ({without} of {count(len(of_tune), 'benchmark')} without a valid ratio)"
    return shown + (left if without else "")


# -- Mistakes in a bind list: a line each for people and editors, or JSON --------------------------

_MOST_OF_A_KIND = 12  # lines; a list for another machine is wrong in every one


def lint_parts(
    report: LintReport, source: Source, topology: str | None, *, hint: str = ""
) -> Iterator[Part]:
    """Yield findings, notes and what was left out; `hint`: what to say of this machine."""
    by_kind = group_by_key((finding.kind, finding) for finding in report.findings)
    many = {
        kind: findings for kind, findings in by_kind.items() if len(findings) > _MOST_OF_A_KIND + 1
    }
    hidden = [one for findings in many.values() for one in findings[_MOST_OF_A_KIND:]]
    for one in report.findings:
        if one not in hidden:
            of = f" ({', '.join(one.scopes)})" if one.scopes else ""
            yield Line(f"{source.where(one.line)}: {one.text}{of} [{one.kind}]", whole=True)
    for kind, findings in many.items():
        last, more = source.where(findings[-1].line), len(findings) - _MOST_OF_A_KIND
        yield Line(f"{last}: and {more} more up to here [{kind}] (--json has all)", whole=True)
    yield Line(_summary(report, source, topology), "bold" if report.findings else "")
    yield from (f"  note: {note}" for note in report.notes)
    yield from (Line(f"  not checked: {left}", "yellow") for left in report.unchecked)
    yield f"  {hint}" if hint else None


def _summary(report: LintReport, source: Source, topology: str | None) -> str:
    on = f" on {topology}" if topology else ""
    ignored = f" ({report.ignored} ignored)" if report.ignored else ""
    number = len(report.findings)
    result = count(number, "finding") if number else "nothing found"
    if report.unread:
        result += f", {copies_text(report.unread)} not read"
    elif not number and not report.is_complete:
        result += " in what was read, how many copies is not known"
    lists = "; ".join(_list_line(scope, several=len(report.scopes) > 1) for scope in report.scopes)
    name = f"the configuration inside {source.name}" if source.packed else source.name
    return f"{name}: {result}{ignored}; {lists}{on}"


def _list_line(scope: Scope, *, several: bool) -> str:
    cpus = {cpu for seat in scope.seats for cpu in seat.cpus}
    parts = [count(len(scope.seats), "bind")] if scope.seats and scope.form != "copy" else []
    if scope.copies is not None:
        parts.append(copies_text(scope.copies))
    if cpus:
        parts.append(cpus_text(sorted(cpus)))
    label = f"{scope.label}: " if several and scope.label else ""
    return label + (", ".join(parts) or "no CPUs named")


def lint_document(report: LintReport, source: Source, topology: str | None) -> dict[str, Any]:
    """Return all of it as JSON values."""
    where = {"where": lambda one: source.where(one.line)}
    table = {
        LintFinding: JsonFields(
            where,
            {"line": lambda one: source.place_of(one.line)[1]},
            "kind",
            {"meaning": lambda one: KINDS[one.kind]},
            "text copies cpus sections=scopes",
        ),
        Scope: JsonFields("sections=label copies binds=seats"),
        BoundCopy: JsonFields(
            "copy name", where, "cpus memory=binding.policy memory_nodes=binding.mem_nodes"
        ),
    }
    document = {
        "file": source.name,
        "packed": source.packed,
        "topology": topology,
        "findings": report.findings,
        "ignored": report.ignored,
        "lists": report.scopes,
        "notes": report.notes,
        "not_checked": report.unchecked,
        "copies_not_read": report.unread,
    }
    values: dict[str, Any] = to_json(document, table)
    return values
