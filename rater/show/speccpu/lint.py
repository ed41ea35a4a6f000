"""What was found in a bind list: a line each for people and editors, or JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rater.show.console.printer import Printer
from rater.speccpu.lint.check import KINDS, Lint
from rater.speccpu.lint.finding import LintFinding
from rater.speccpu.lint.fix import Corrected
from rater.speccpu.lint.scope import Scope, Seat
from rater.speccpu.lint.source import Source
from rater.text.cpuset import cpus_text
from rater.text.to_json import Members, to_json
from rater.text.words import copies_text, count

_MOST_OF_A_KIND = 12  # lines; a list for another machine is wrong in every one


def print_lint(
    found: Lint, source: Source, topology: str | None, printer: Printer, *, hint: str = ""
) -> None:
    """Print findings, notes and what was left out; `hint`: what to say of this machine."""
    shown: Counter[str] = Counter()
    of_kind = Counter(one.kind for one in found.findings)
    for one in found.findings:
        shown[one.kind] += 1
        if shown[one.kind] > _MOST_OF_A_KIND and of_kind[one.kind] > _MOST_OF_A_KIND + 1:
            continue
        of = f" ({', '.join(one.scopes)})" if one.scopes else ""
        printer.line(f"{source.where(one.line)}: {one.text}{of} [{one.kind}]")
    for kind, number in of_kind.items():
        if number > _MOST_OF_A_KIND + 1:
            lines = [source.where(one.line) for one in found.findings if one.kind == kind]
            more = number - _MOST_OF_A_KIND
            printer.line(f"{lines[-1]}: and {more} more up to here [{kind}] (--json has all)")
    printer.prose(_summary(found, source, topology), "bold" if found.findings else "")
    for note in found.notes:
        printer.prose(f"  note: {note}")
    for left in found.unchecked:
        printer.prose(f"  not checked: {left}", "yellow")
    if hint:
        printer.prose(f"  {hint}")


def _summary(found: Lint, source: Source, topology: str | None) -> str:
    on = f" on {topology}" if topology else ""
    ignored = f" ({found.ignored} ignored)" if found.ignored else ""
    number = len(found.findings)
    result = count(number, "finding") if number else "nothing found"
    lists = "; ".join(_list_line(scope, several=len(found.scopes) > 1) for scope in found.scopes)
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


def lint_document(
    found: Lint, source: Source, topology: str | None, fixes: Sequence[Corrected] | None
) -> dict[str, Any]:
    """Return all of it as JSON values; `fixes` is None where they were not asked for."""
    where = {"where": lambda one: source.where(one.line)}
    table = {
        LintFinding: Members(
            where,
            {"line": lambda one: source.own(one.line)[1]},
            "kind",
            {"meaning": lambda one: KINDS[one.kind]},
            "text copies cpus sections=scopes",
        ),
        Scope: Members("sections=label copies binds=seats"),
        Seat: Members(
            "copy name", where, "cpus memory=binding.policy memory_nodes=binding.mem_nodes"
        ),
        Corrected: Members("sections=label section copies remarks lines"),
    }
    document = {
        "file": source.name,
        "packed": source.packed,
        "topology": topology,
        "findings": found.findings,
        "ignored": found.ignored,
        "lists": found.scopes,
        "notes": found.notes,
        "not_checked": found.unchecked,
    } | ({} if fixes is None else {"fix": fixes})
    values: dict[str, Any] = to_json(document, table)
    return values
