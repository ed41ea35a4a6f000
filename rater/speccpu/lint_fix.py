"""The corrected list: rater's own placement, written the way the configuration binds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rater.plan.topology import Topology
from rater.speccpu.config import Section
from rater.speccpu.lint import LintReport
from rater.speccpu.lint_list import BY_COPY, BoundCopy, Scope, Source
from rater.speccpu.lint_machine import spread, wanted_copies, width_of
from rater.speccpu.places import Binding, binding_of
from rater.text.cpuset import format_list, mask_of
from rater.text.values import count

_NUMBERS = r"\+?\d[\d,:-]*"
_CPUS = re.compile(rf"(--physcpubind(?:=|\s+)|(?<!\S)-C\s*=?|dplace\s+-c\s*)({_NUMBERS})")
_CPU_NODES = re.compile(rf"(--(?:cpunodebind|cpubind)(?:=|\s+)|(?<!\S)-N\s*=?)({_NUMBERS})")
_MEMORY = re.compile(rf"(--(?:membind|preferred)(?:=|\s+)|(?<!\S)-[mp]\s*=?)({_NUMBERS})")
_TASKSET = re.compile(rf"(taskset\s+(?:-\w+\s+|--\S+\s+)*)(0x[0-9a-fA-F]+|{_NUMBERS})")
_PLAIN = re.compile(rf"\s*{_NUMBERS}\s*$")
_LONGEST_LIST = 8000  # characters of a `bind = ...` line; longer ones are written as bindN
_AT_HOME = ("bind", "preferred")


@dataclass(frozen=True, slots=True)
class CorrectedList:
    """Lines that take the place of a section's `bind`, `bindN` and, where it is given, `submit`.

    They have no heading of their own: behind one, the settings below would be another section's.
    """

    label: str  # of the scope: benchmarks and tunes
    section: str  # that they belong to, "default" for the head of the file
    copies: int
    remarks: tuple[str, ...]  # what must be known to use it
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """The lines and the remarks, as they can stand in a configuration."""
        return "\n".join([*(f"# {remark}" for remark in self.remarks), *self.lines])


@dataclass(frozen=True, slots=True)
class _Target:
    """Where one copy is to go."""

    cpus: tuple[int, ...]
    node: int | None  # whose memory it can have; None: none is near


def corrected(found: LintReport, topology: Topology, source: Source) -> tuple[CorrectedList, ...]:
    """Return a list for each set of lines that bind copies and in which something was found.

    As many copies as are asked for and have a CPU each; else as many as leave nothing idle
    and share no core early.
    """
    everywhere = any(not one.scopes for one in found.findings)
    wrong = {label for one in found.findings for label in one.scopes}
    groups: dict[tuple[object, ...], list[Scope]] = {}
    for scope in found.scopes:
        if any(seat.cpus or seat.binding.cpu_nodes for seat in scope.seats):
            key = (scope.submit, *scope.binds) if scope.binds else (scope.submit, scope.section)
            groups.setdefault(key, []).append(scope)
    return tuple(
        _of_group(group, topology, source)
        for group in groups.values()
        if everywhere or any(scope.label in wrong for scope in group)
    )


def _of_group(group: Sequence[Scope], topology: Topology, source: Source) -> CorrectedList:
    # The list is made for the scope with most copies; the others take a part of it.
    scope = max(group, key=lambda one: (not one.deliberate, one.running))
    width = width_of(scope)
    remarks = [f"made by `rater lint-bind --fix` for {topology.source}"]
    section = _heading(scope.section)
    most = spread(topology, 1, width).most
    if scope.asked:
        copies = min(scope.running, most)
    elif scope.form == "copy" and scope.copies is None:
        copies = len(topology.cores)
    else:
        copies = wanted_copies(scope, topology)
    if scope.running > copies:
        remarks.append(
            f"{count(copies, 'copy has', 'copies have')} CPUs of their own here, not "
            f"{scope.running}: run with {'--copies' if scope.asked else 'copies ='} {copies}"
        )
    targets = [
        _Target(one.cpus or (), _memory_of(topology, one.cpus or ()))
        for one in spread(topology, copies, width).placements
    ]
    submit, binds = _written(scope, targets)
    lines = []
    if not scope.asked and scope.copies not in (None, copies):
        lines.append(f"copies = {copies}")
    if submit is not None:
        lines.append(f"submit = {submit}")
    lines += _list_lines(scope, binds)
    # What is replaced: a list that is half old and half new would be worse than either.
    replaced = {scope.copies_line} if lines[0].startswith("copies") else set()
    replaced |= {one.line for one in scope.submits} if submit is not None else set()
    held = {one.section for one in scope.binds}
    replaced |= {
        one.line
        for one in source.config.settings
        if one.name.startswith("bind") and one.section in held
    }
    if replaced:
        inside = f" of section {section}:" if section != "default" else ""
        remarks.append(f"in place of {_lines_text(replaced, source)}{inside}")
    labels = ", ".join(dict.fromkeys(one.label for one in group if one.label))
    return CorrectedList(labels, section, copies, tuple(remarks), tuple(lines))


def _lines_text(lines: Iterable[int], source: Source) -> str:
    files: dict[str, list[int]] = {}
    for line in sorted(lines):
        file, own = source.own(line)
        files.setdefault(file, []).append(own)
    return " and ".join(
        f"{'line' if len(own) == 1 else 'lines'} {format_list(own)}"
        + (f" of {file}" if len(files) > 1 or file != source.main else "")
        for file, own in files.items()
    )


def _memory_of(topology: Topology, cpus: Iterable[int]) -> int | None:
    nodes = {topology.by_cpu[cpu].node for cpu in cpus}
    node = nodes.pop() if len(nodes) == 1 else None
    if node is None or not topology.by_node[node].allowed:
        return None
    return node


def _heading(section: Section) -> str:
    parts = [section.benchmarks, section.tunes, section.labels, section.machines]
    if all(part == ("default",) for part in parts):
        return "default"
    while parts[-1] == ("default",):
        parts.pop()
    return "=".join(",".join(part) for part in parts)


# -- the way it is written ------------------------------------------------------------------------


def _written(scope: Scope, targets: Sequence[_Target]) -> tuple[str | None, list[str]]:
    """Return the submit command where it must change, and the values of `$BIND`.

    The file's own way is tried first; what rater reads back from it decides.
    """
    seat = next(s for s in scope.seats if s.cpus or s.binding.cpu_nodes)
    if scope.uses_bind:
        binds = [_like(seat, target) for target in targets]
        if _reads_back(scope.submit, binds, targets, seat):
            return None, binds
    elif BY_COPY.search(scope.submit):
        submit = BY_COPY.sub("$BIND", scope.submit)
        binds = [format_list(target.cpus) for target in targets]
        if "\n" not in submit and _reads_back(submit, binds, targets, seat):
            return submit, binds
    script = "run.sh" in scope.submit
    submit = 'echo "$command" > run.sh ; $BIND bash run.sh' if script else "$BIND $command"
    return submit, [_command(seat.binding, target) for target in targets]


def _like(seat: BoundCopy, target: _Target) -> str:
    """Return the text of a bind for another copy, spelled as this one is."""
    cpus = format_list(target.cpus)
    text = seat.text
    if _PLAIN.match(text):
        # Behind --cpunodebind a plain number is a node's.
        return str(target.node) if seat.wide and target.node is not None else cpus
    text = _CPUS.sub(lambda found: f"{found[1]}{cpus}", text)
    text = _TASKSET.sub(_of_taskset(target.cpus), text)
    if target.node is not None:
        text = _CPU_NODES.sub(lambda found: f"{found[1]}{target.node}", text)
        return _MEMORY.sub(lambda found: f"{found[1]}{target.node}", text)
    if seat.wide:
        text = _CPU_NODES.sub(f"--physcpubind={cpus}", text)
    return _MEMORY.sub("--localalloc", text)


def _of_taskset(cpus: Sequence[int]) -> Callable[[re.Match[str]], str]:
    def written(found: re.Match[str]) -> str:
        is_list = re.search(r"(?:^|\s)(?:-a?c|-ca|--cpu-list)\s", found[1])
        return found[1] + (format_list(cpus) if is_list else hex(mask_of(cpus)))

    return written


def _command(binding: Binding, target: _Target) -> str:
    """Return a command that binds, for configurations whose own way cannot name any CPU."""
    cpus = format_list(target.cpus)
    if binding.by in ("taskset", "list"):
        return f"taskset -c {cpus}"
    if binding.policy in _AT_HOME and target.node is not None:
        option = "-m" if binding.policy == "bind" else "--preferred="
        return f"numactl {option}{' ' if option == '-m' else ''}{target.node} --physcpubind={cpus}"
    return f"numactl --localalloc --physcpubind={cpus}"


def _reads_back(
    submit: str, binds: Sequence[str], targets: Sequence[_Target], seat: BoundCopy
) -> bool:
    """Tell whether rater reads from submit and binds what was meant."""
    for copy, (bind, target) in enumerate(zip(binds, targets, strict=True)):
        found = binding_of(submit, bind, copy)
        if found.problem or (found.cpus or ()) != tuple(sorted(target.cpus)):
            node_wide = seat.wide and not found.cpus and found.cpu_nodes == (target.node,)
            if found.problem or not node_wide:
                return False
        if found.policy in _AT_HOME and found.mem_nodes != (target.node,):
            return False
    return True


def _list_lines(scope: Scope, binds: Sequence[str]) -> list[str]:
    listed = "bind = " + ", ".join(binds)
    plain = not any("," in bind for bind in binds) and len(listed) <= _LONGEST_LIST
    if plain and (scope.form == "bind" or (scope.form == "copy" and _PLAIN.match(binds[0]))):
        return [listed]
    return [f"bind{copy} = {bind}" for copy, bind in enumerate(binds)]
