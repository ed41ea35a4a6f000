"""The mistakes of a bind list: where one copy is bound, held against the others and a machine.

Pure: a configuration and, where it is known, the machine in; findings in the order of the
lines out. Without a machine only that is found which no machine can make right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.results.gates import EXCLUDED, GateAnswer, GateVerdict
from rater.speccpu.config.arithmetic import SHELL_BITS
from rater.speccpu.config.binding import binding_of
from rater.speccpu.config.config import ConfigSetting, Section
from rater.speccpu.lint.bind_list import (
    BY_COPY,
    MOST_SEATS,
    BoundCopy,
    LintContext,
    LintFinding,
    Scope,
    Source,
    cpus_text,
    named,
    scopes_of,
)
from rater.speccpu.lint.machine import machine_findings, misplaced, prefix_note, remote_note
from rater.text.values import copies_text, count

KINDS = {
    "repeated": "a bind name is given twice",
    "gap": "a bind number is missing between others",
    "not-used": "binds that no submit command uses",
    "no-binds": "a submit command with $BIND, and no binds",
    "unclear": "a bind that is wrong in itself",
    "cpu-twice": "copies have the same CPU",
    "few-binds": "more copies than binds: the list goes round again",
    "many-binds": "fewer copies than binds",
    "node-differs": "a memory node against the pattern of the others (without a machine)",
    "cpu-missing": "a CPU that the machine lacks, or that may not be used",
    "node-missing": "a node that the machine lacks, or whose memory may not be used",
    "far-memory": "memory of another node than the CPU's",
    "many-copies": "more copies than CPUs",
    "siblings": "copies share a core while another core has none",
    "idle": "CPUs without a copy",
}
_BIND_NAME = re.compile(r"bind(\d{1,9})$", re.ASCII)


class LintReport(Struct, frozen=True, kw_only=True):
    """All that was found, and what could not be looked at."""

    findings: tuple[LintFinding, ...]  # in the order of lines
    ignored: int  # findings of kinds that were not asked for
    notes: tuple[str, ...]  # true and no mistake
    unchecked: tuple[str, ...]  # what was left out, and how it can be had
    scopes: tuple[Scope, ...]

    @property
    def unread(self) -> int:
        """Copies whose command was not understood, of all lists."""
        return sum(scope.unread for scope in self.scopes)

    @property
    def is_complete(self) -> bool:
        """Whether every copy that runs was looked at."""
        return not self.unread and not any(scope.lacks_copies for scope in self.scopes)

    @property
    def verdict(self) -> GateVerdict:
        """The answer of the check: mistakes are excluded where all copies were read."""
        if self.findings:
            return GateVerdict(answer=GateAnswer.FOUND)
        if self.is_complete:
            return EXCLUDED
        return GateVerdict(answer=GateAnswer.OPEN, reason=f"{copies_text(self.unread)} not read")


def lint(context: LintContext) -> LintReport:
    """Check a configuration."""
    source, section = context.source, context.section
    scopes = scopes_of(context)
    findings: dict[LintFinding, list[str]] = {}
    for scope in scopes:
        for finding in _of_scope(scope):
            findings.setdefault(finding, []).append(scope.label)
    of_scopes = (
        None
        if section is None
        else [bind.section for checked_scope in scopes for bind in checked_scope.binds]
    )
    sections = {setting.line: setting.section for setting in source.config.settings}
    for finding in _repeated(source, of_scopes):
        findings[finding] = [
            checked_scope.label
            for checked_scope in scopes
            if sections[finding.line] in {bind.section for bind in checked_scope.binds}
        ]
    for finding in _not_used(scopes):
        findings[finding] = []
    checked = [scope.label for scope in scopes if scope.seats]
    everything = [
        replace(finding, scopes=() if set(checked) <= set(labels) else tuple(labels))
        for finding, labels in findings.items()
    ]
    everything.sort(key=lambda finding: (finding.line, finding.order))
    kept = tuple(finding for finding in everything if finding.kind not in context.ignore)
    return LintReport(
        findings=kept,
        ignored=len(everything) - len(kept),
        notes=tuple(dict.fromkeys(note for scope in scopes for note in _notes(scope))),
        unchecked=tuple(dict.fromkeys(_unchecked(context, scopes))),
        scopes=tuple(scopes),
    )


def _of_scope(scope: Scope) -> Iterator[LintFinding]:
    if scope.uses_bind and not scope.seats:
        yield LintFinding(
            line=scope.submit_line,
            kind="no-binds",
            text="submit uses $BIND and there is no bind line: copies run unbound; add "
            "bind0 = ..., bind1 = ...",
        )
    if scope.unused_list is not None and scope.uses_bind:
        first = _number(scope, scope.binds[0].line)
        yield LintFinding(
            line=scope.unused_list.line,
            kind="repeated",
            text=f"a `bind =` list, and bindN lines (from {first} on) hold as well: one of the two "
            "is not used (here bindN is checked); keep one of them",
        )
    yield from _unclear(scope)
    yield from _gaps(scope)
    yield from _numbers_of_copies(scope)
    yield from _twice(scope)
    if scope.context.topology is None:
        yield from _against_the_pattern(scope)
    else:
        yield from machine_findings(scope)


def _number(scope: Scope, line: int) -> str:
    return scope.context.source.number(line)


# -- names ----------------------------------------------------------------------------------------


def _repeated(source: Source, sections: list[Section] | None) -> Iterator[LintFinding]:
    first: dict[tuple[object, str], ConfigSetting] = {}
    lines = 0
    again: list[tuple[ConfigSetting, ConfigSetting]] = []
    for setting in source.config.settings:
        number = _BIND_NAME.match(setting.name)
        if number is None and setting.name != "bind":
            continue
        if sections is not None and setting.section not in sections:
            continue
        lines += number is not None
        name = f"bind{int(number[1])}" if number else setting.name
        before = first.setdefault((setting.section, name), setting)
        if before is not setting:
            again.append((setting, before))
            first[setting.section, name] = setting
    for setting, before in again:
        yield LintFinding(
            line=setting.line,
            kind="repeated",
            text=f"{setting.name} is given again ({source.number(before.line)}: "
            f"{before.value[:50]}), and only one of them counts: {count(lines, 'bindN line')} are "
            f"{count(lines - len(again), 'bind')}; give it a number of its own",
        )


def _gaps(scope: Scope) -> Iterator[LintFinding]:
    if scope.form != "bindN":
        return
    expected = 0
    for bind in scope.binds:
        number = int(bind.name[4:])
        if number > expected:
            missing = f"bind{expected}" + (f"-bind{number - 1}" if number > expected + 1 else "")
            after = f"after bind{expected - 1}" if expected else "as the first"
            yield LintFinding(
                line=bind.line,
                kind="gap",
                text=f"bind{number} comes {after}: {missing} is missing; number binds from 0, "
                "without gaps",
            )
        expected = number + 1


def _not_used(scopes: list[Scope]) -> Iterator[LintFinding]:
    used = {bind.line for scope in scopes if scope.uses_bind for bind in scope.binds}
    idle = {bind.line for scope in scopes for bind in scope.binds} - used
    if not idle:
        return
    submits = {scope.submit_line for scope in scopes if scope.submit}
    why = "no submit command uses $BIND" if submits else "there is no submit command"
    yield LintFinding(
        line=min(idle),
        kind="not-used",
        text=f"the binds ({count(len(idle), 'line')} from here on) bind nothing: {why}; write "
        "`submit = $BIND $command` for binds that are commands, `submit = taskset -c $BIND "
        "$command` for CPU numbers",
    )


def _unclear(scope: Scope) -> Iterator[LintFinding]:
    for seat in scope.seats:
        if seat.binding.problem and seat.is_read:
            yield seat.finding("unclear", f": {seat.binding.problem}")
            if scope.form == "copy":
                return


def _notes(scope: Scope) -> Iterator[str]:
    yield from prefix_note(scope)
    yield from _unbound(scope)
    yield from remote_note(scope)


def _unbound(scope: Scope) -> Iterator[str]:
    unbound = [
        seat
        for seat in scope.used
        if seat.is_read and not (seat.cpus or seat.binding.cpu_nodes or seat.binding.problem)
    ]
    if unbound and scope.submit and (scope.copies is not None or scope.form != "copy"):
        where = scope.context.source.where(unbound[0].line)
        of = f" ({scope.label})" if scope.label else ""
        verb = "is" if len(unbound) == 1 else "are"
        yield f"{where}: {copies_text(len(unbound))}{of} {verb} bound to no CPU"


# -- numbers --------------------------------------------------------------------------------------


def _numbers_of_copies(scope: Scope) -> Iterator[LintFinding]:
    values = scope.values
    copies = scope.copies
    if not scope.uses_bind or copies is None or not values:
        return
    line = scope.copies_line or scope.seats[-1].line
    if scope.goes_round:
        again = copies - values
        late = f"copies {values}-{copies - 1} share" if again > 1 else f"copy {values} shares"
        shared = f"copies 0-{min(again, values) - 1}" if min(again, values) > 1 else "copy 0"
        yield LintFinding(
            line=line,
            kind="few-binds",
            text=f"{copies_text(copies)} and {count(values, 'bind')}: the list goes round "
            f"again, {late} CPUs with {shared}; add {_added(scope, values, copies)} or run "
            f"{copies_text(values)}",
            copies=tuple(range(values, copies)),
        )
    elif copies < values and not scope.deliberate:
        beyond = scope.seats[copies]
        unused = values - copies
        text = f"{beyond.name} ({_number(scope, beyond.line)})"
        if unused > 1:
            text += f" to {scope.seats[values - 1].name}"
        left = {cpu for seat in scope.seats[copies:] for cpu in seat.cpus}
        left -= {cpu for seat in scope.used for cpu in seat.cpus}
        idle = f", {cpus_text(left)} stay{'s' if len(left) == 1 else ''} idle" if left else ""
        yield LintFinding(
            line=line,
            kind="many-binds",
            text=f"{copies_text(copies)} and {count(values, 'bind')}: {text} "
            f"{'is' if unused == 1 else 'are'} not used{idle}; run "
            f"{values} copies or shorten the list",
            cpus=tuple(sorted(left)),
        )


def _added(scope: Scope, values: int, copies: int) -> str:
    if scope.form == "bind":
        return count(copies - values, "entry", "entries")
    last = int(scope.binds[-1].name[4:])
    first = f"bind{last + 1}"
    return first if copies - values == 1 else f"{first} to bind{last + copies - values}"


# -- the same CPU ---------------------------------------------------------------------------------


def _twice(scope: Scope) -> Iterator[LintFinding]:
    # What goes round again is one mistake, found by the numbers.
    seats = scope.seats[: scope.values] if scope.goes_round else scope.seats
    where = scope.context.source.number
    users: dict[tuple[int, ...], list[BoundCopy]] = {}
    owner: dict[int, BoundCopy] = {}
    free = _free(scope, seats)
    again: list[BoundCopy] = []  # that one command binds where an earlier copy is
    for seat in seats:
        if not seat.cpus:
            continue
        same = users.setdefault(seat.cpus, [])
        same.append(seat)
        # So many copies as CPUs may share these on purpose, unless a number went round.
        is_round = len(same) > 1 and scope.form == "copy" and _is_wrapped(scope, seat)
        if len(same) > len(seat.cpus) or is_round:
            if scope.form == "copy":
                again.append(seat)
            else:
                yield _shared(seat, same, free, where)
            continue
        others = {owner[cpu].cpus: owner[cpu] for cpu in seat.cpus if cpu in owner}
        others.pop(seat.cpus, None)
        if others and len(same) == 1:
            other = next(iter(others.values()))
            common = sorted(set(other.cpus) & set(seat.cpus))
            text = (
                f" binds {cpus_text(seat.cpus)}, of which {other.name} ({where(other.line)}: "
                f"{cpus_text(other.cpus)}) has {cpus_text(common)} too{_offer(free)}"
            )
            yield seat.finding("cpu-twice", text, common, other)
        for cpu in seat.cpus:
            owner.setdefault(cpu, seat)
    if len(again) == 1:
        yield _shared(again[0], users[again[0].cpus], free, where)
    elif again:
        yield _again(scope, again, free)


def _again(scope: Scope, again: list[BoundCopy], free: tuple[int, ...]) -> LintFinding:
    """Return the finding of copies that one command binds where others are already."""
    copies = {seat.copy for seat in again}
    cpus = {cpu for seat in again for cpu in seat.cpus}
    first = [seat.copy for seat in scope.seats if seat.copy not in copies and cpus & set(seat.cpus)]
    text = (
        f"copies {named(copies)} bind {cpus_text(cpus)} again (as "
        f"{'copy' if len(first) == 1 else 'copies'} {named(first)}"
        f"{' does' if len(first) == 1 else ' do'})"
    )
    return LintFinding(
        line=again[0].line,
        kind="cpu-twice",
        text=text + (_wrapped(scope, again) or _offer(free)),
        copies=tuple(sorted({*first, *copies})),
        cpus=tuple(sorted(cpus)),
    )


def _wrapped(scope: Scope, again: list[BoundCopy]) -> str:
    """Say that the shell's numbers wrapped around, where numbers without end bind elsewhere."""
    wrapped = [seat for seat in again if _is_wrapped(scope, seat)]
    if not wrapped:
        return ""
    cpus = {cpu for seat in wrapped for cpu in _intended_cpus(scope, seat) or ()}
    return (
        f": shells count in {SHELL_BITS} bits, and 1<<{SHELL_BITS} is 1 again; "
        f"{cpus_text(cpus)} {'was' if len(cpus) == 1 else 'were'} meant, which a list of CPUs "
        "binds (taskset -c)"
    )


def _is_wrapped(scope: Scope, seat: BoundCopy) -> bool:
    """Tell whether numbers without end would bind a copy elsewhere."""
    return _intended_cpus(scope, seat) not in (None, seat.cpus)


def _intended_cpus(scope: Scope, seat: BoundCopy) -> tuple[int, ...] | None:
    return binding_of(scope.submit, None, seat.copy, bits=None).cpus


def _shared(
    seat: BoundCopy, same: list[BoundCopy], free: tuple[int, ...], where: Callable[[int], str]
) -> LintFinding:
    first = same[0]
    before = f"{first.name}, {where(first.line)}" if first.line != seat.line else first.name
    cpus = cpus_text(seat.cpus)
    if len(seat.cpus) == 1:
        times = {2: "again", 3: "a third time"}.get(len(same), f"as the {len(same)}th")
        text = f" binds {cpus} {times} ({before} has it)"
    else:
        nth = _nth(len(same))
        text = f" is the {nth} copy on {cpus}, {len(seat.cpus)} CPUs ({before} is the first)"
    there, here = first.binding.mem_nodes, seat.binding.mem_nodes
    if there != here and len({*there, *here}) > 1:
        text += f", there with memory node {named(there)} and here {named(here)}"
    return seat.finding("cpu-twice", text + _offer(free), seat.cpus, first)


def _nth(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 // 10 != 1 else 0, "th")
    return f"{number}{ending}"


def _free(scope: Scope, seats: tuple[BoundCopy, ...]) -> tuple[int, ...]:
    have = {cpu for seat in seats for cpu in seat.cpus}
    if scope.context.topology is not None:
        return tuple(sorted(set(scope.context.topology.by_cpu) - have))
    if len(have) < 3:
        return ()
    holes = set(range(min(have), max(have))) - have
    # A list with a step (0,8,16) leaves out most numbers on purpose.
    return tuple(sorted(holes)) if len(holes) <= len(have) // 4 else ()


def _offer(free: tuple[int, ...]) -> str:
    if not free:
        return "; give each copy a CPU of its own"
    return f"; {cpus_text(free)} {'has' if len(free) == 1 else 'have'} no copy"


# -- without a machine ----------------------------------------------------------------------------


def _against_the_pattern(scope: Scope) -> Iterator[LintFinding]:
    node_of: dict[int, int] = {}
    seat_of: dict[int, BoundCopy] = {}
    for seat in scope.seats:
        near = seat.binding.policy in ("bind", "preferred") and len(seat.binding.mem_nodes) == 1
        if near and len(seat.cpus) == 1 and seat.cpus[0] not in node_of:
            node_of[seat.cpus[0]] = seat.binding.mem_nodes[0]
            seat_of[seat.cpus[0]] = seat
    for cpu, expected in misplaced(node_of).items():
        seat = seat_of[cpu]
        text = (
            f" binds memory to node {node_of[cpu]} for CPU {cpu}; the {len(node_of) - 1} other "
            f"CPUs of the list make it node {expected} (--topology tells for certain)"
        )
        yield seat.finding("node-differs", text, (cpu,))


def _unchecked(context: LintContext, scopes: list[Scope]) -> Iterator[str]:
    source, topology = context.source, context.topology
    for problem in source.config.problems:
        where = source.where(problem.line) if problem.line else source.name
        yield f"{where}: {problem.text}"
    for doubt in source.config.uncertain:
        if doubt not in source.config.problems:
            yield f"{source.where(doubt.line)}: {doubt.text}; --define NAME[=VALUE] tells"
    yield from source.missing
    for scope in scopes:
        of = f" ({scope.label})" if scope.label and len(scopes) > 1 else ""
        if scope.lacks_copies:
            by = "$SPECCOPYNUM" if BY_COPY.search(scope.submit) else "one command for all copies"
            yield (
                f"{source.where(scope.submit_line)}: which CPUs are used, by {by}{of}: the file "
                "does not say how many copies; --copies N does"
            )
        if scope.copies is not None and scope.form == "copy" and scope.copies > MOST_SEATS:
            yield f"copies beyond {MOST_SEATS}{of}: no machine has so many CPUs"
        unread = [seat for seat in scope.seats if not seat.is_read]
        if unread:
            first = unread[0]
            what = " ".join((first.text or scope.submit).split())[:60]
            yield (
                f"{source.where(first.line)}: {copies_text(len(unread))}{of} whose "
                f"command names no CPU that rater can read: {what}"
            )
    if topology is None:
        yield (
            "the machine: CPUs and nodes that it lacks, memory on another node than the CPU's, "
            "idle CPUs, shared cores; --topology FILE.xml, 'pack:2 numa:1 core:10 pu:2', "
            "nodes=2x20 or `this` (this machine) supplies it"
        )
    elif not topology.details.has_cores:
        yield (
            f"which CPUs are threads of one core: {topology.source} does not tell; an hwloc XML "
            "file or a description with core: and pu: does"
        )
