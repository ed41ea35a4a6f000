"""What a run would do: plan, places, commands; as text and as values for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TextIO

from rater.analysis.results.remaining import PhaseState, PlannedPhase, RemainingPlan
from rater.plan.placement.place import Placement
from rater.plan.placement.summary import NodeShare, nodes_of_memory
from rater.plan.schedule import Order, Plan
from rater.plan.topology import Topology
from rater.record.stored import RunHead
from rater.show.console import Column, Columns, is_ascii, table_lines
from rater.show.format import (
    align_columns,
    format_duration,
    format_gigabytes,
    gigabytes_column,
    sanitize,
)
from rater.show.live.grid import phase_name
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, copies_text, count, objects, to_json

if TYPE_CHECKING:
    from rater.analysis.compare.conditions import ConditionDifference

# -- What a run would execute, for whom it is not their own: commands, set-ups, variables ----------


@dataclass(frozen=True, slots=True)
class ExecutedCommands:
    """All that a run executes, each as a shell would take it."""

    directory: str  # where it is called
    setups: tuple[str, ...]  # of suites, then of benchmarks for each copy
    commands: tuple[tuple[str, str], ...]  # by benchmark
    wrap: str | None
    prepare: str | None
    environment: tuple[tuple[str, str], ...]  # what is added to rater's own
    settings: tuple[tuple[str, str], ...] = ()  # of the machine, set while it runs


def executed_lines(it: ExecutedCommands) -> Iterator[str]:
    """Yield it for people, a line each."""
    for text in it.setups:
        yield f"set-up   {text}"
    for name, text in it.commands:
        yield f"runs     {text}" if len(it.commands) == 1 else f"runs     {name}: {text}"
    if it.wrap:
        yield f"wrap     {it.wrap}"
    if it.prepare:
        yield f"prepare  {it.prepare}"
    for name, value in it.environment:
        yield f"env      {name}={value}"
    for name, value in it.settings:
        yield f"sets     {name}={value}"


def print_executed(it: ExecutedCommands, out: TextIO) -> None:
    """Print the same, whole, and where: what is not seen is not known."""
    for line in (*executed_lines(it), f"in       {it.directory}"):
        print(sanitize(line), file=out)


EXECUTED = JsonFields("directory setups commands{} wrap prepare environment{} settings{}")


# -- Where copies are, as tables and for JSON: copy by copy, and lgroup by lgroup ------------------

_MOST_COPIES = 64  # shown one by one; so many runs of more
_MOST_LGROUPS = 64
_PERIODS = (1, 2, 4, 8)  # threads of a core


def copies_document(
    topology: Topology, placements: Sequence[Placement], stagger_ns: int
) -> list[dict[str, Any]]:
    """Return every copy for JSON, in ascending order."""
    distinct = {(p.policy, p.memory_nodes, id(p.cpus)): p for p in placements}
    nodes = {key: nodes_of_memory(p, topology) for key, p in distinct.items()}
    return [
        {
            "copy": p.copy,
            "cpus": None if p.cpus is None else list(p.cpus),
            "core": p.core,
            "llc": p.llc,
            "node": p.node,
            "package": p.package,
            "memory": {
                "policy": str(p.policy),
                "nodes": list(nodes[p.policy, p.memory_nodes, id(p.cpus)]),
            },
            "start_ms": p.copy * stagger_ns / 1e6,
        }
        for p in placements
    ]


def lgroups_document(shares: Iterable[NodeShare]) -> list[dict[str, Any]]:
    """Return every lgroup's part of a plan for JSON."""
    return [to_json(share, _TABLE) for share in shares]


_TABLE = {
    NodeShare: JsonFields(
        "node packages copies cpus pus cores_used cores memory_bytes memory_allowed=allowed"
        " need_bytes"
    )
}


def place_lines(
    shares: Sequence[NodeShare],
    topology: Topology,
    placements: Sequence[Placement],
    width: int,
) -> list[str]:
    """Return where copies that are bound are, and each lgroup's part.

    Few copies have a line each. More have one for those whose CPUs follow each other;
    where that is one line for each lgroup at most, they stand in the lgroup's own.
    """
    lgroups = lgroup_lines(shares, width)
    if len(placements) <= _MOST_COPIES:
        return [*_copy_lines(topology, placements, width), "", *lgroups]
    runs = [run for share in shares for run in _runs(share, placements)]
    if len(runs) <= sum(bool(share.copies) for share in shares) <= _MOST_LGROUPS:
        whole = lgroup_lines(shares, width, (topology, placements))
        if not any("~" in line for line in whole):
            return whole
    if len(runs) <= _MOST_COPIES:
        found = _run_lines(runs, topology, width)
        if not any("~" in line for line in found):
            return [*found, "", *lgroups]
    return [
        *lgroup_lines(shares, width, (topology, placements)),
        f"{len(placements)} copies are not shown one by one (--json has all)",
    ]


def _runs(share: NodeShare, placements: Sequence[Placement]) -> list[Sequence[Placement]]:
    """Cut the copies of an lgroup into runs in which numbers and CPUs rise in equal steps.

    Siblings may stand side by side: every second, fourth, ... copy can make a run.
    """
    own = [placements[copy] for copy in share.copies]
    found: list[Sequence[Placement]] = []
    for period in _PERIODS:
        runs = [run for first in range(period) for run in _rising(own[first::period])]
        found = runs if len(runs) < len(found) or not found else found
        if len(found) < 2:
            break
    return found


def _rising(placements: Sequence[Placement]) -> Iterator[Sequence[Placement]]:
    run: list[Placement] = []
    for placement in placements:
        if run:
            last = run[-1]
            step = _step(last, placement)
            if step is None or (len(run) > 1 and step != _step(run[-2], last)):
                yield run
                run = []
        run.append(placement)
    if run:
        yield run


def _step(one: Placement, other: Placement) -> tuple[int, int] | None:
    """Return by how much copy and CPU differ; None where CPUs are neither the same nor rising.

    None as well where memory comes from other lgroups; local memory is that of the CPUs.
    """
    if (one.policy, one.memory_nodes) != (other.policy, other.memory_nodes):
        return None
    if one.cpus is other.cpus or one.cpus == other.cpus:
        return other.copy - one.copy, 0
    if one.cpus is None or other.cpus is None or len(one.cpus) > 1 or len(other.cpus) > 1:
        return None
    rise = other.cpus[0] - one.cpus[0]
    return (other.copy - one.copy, rise) if rise > 0 else None


def _run_lines(runs: Sequence[Sequence[Placement]], topology: Topology, width: int) -> list[str]:
    """Return a line for each run of copies, by the number of its first."""
    shown = sorted(runs, key=lambda run: run[0].copy)
    of = Columns(shown)
    columns = [
        of.right("copies", lambda run: brief([p.copy for p in run])),
        of.left("CPUs", lambda run: brief(sorted(_cpus_of(run))), flexible=True),
        of.left("for each", lambda run: "all of them" if len(run[0].cpus or ()) > 1 else None),
        of.right("lgroup", lambda run: run[0].node),
        of.right("package", lambda run: run[0].package, optional=1),
        of.left("memory", lambda run: _memory(run[0], topology)),
    ]
    return table_lines(_known(columns), width, ascii_only=True)


def _cpus_of(run: Sequence[Placement]) -> set[int]:
    return {cpu for placement in run for cpu in placement.cpus or ()}


def _copy_lines(topology: Topology, placements: Sequence[Placement], width: int) -> list[str]:
    """Return a line for each copy, below a heading."""
    of = Columns(placements)
    columns = [
        of.right("copy", lambda p: p.copy),
        of.left("CPUs", lambda p: format_list(p.cpus or ()), flexible=True),
        of.right("core", lambda p: p.core),
        of.right("LLC", lambda p: p.llc),
        of.right("lgroup", lambda p: p.node),
        of.right("package", lambda p: p.package),
        of.left("memory", lambda p: _memory(p, topology), flexible=True),
    ]
    return table_lines(_known(columns), width, ascii_only=True)


def lgroup_lines(
    shares: Sequence[NodeShare],
    width: int,
    whole: tuple[Topology, Sequence[Placement]] | None = None,
) -> list[str]:
    """Return a line for each lgroup; with the machine and all placements also which copies."""
    shown = shares[:_MOST_LGROUPS]
    of = Columns(shown)
    installed = [s.memory_bytes if s.allowed else None for s in shown]
    columns = [
        of.right("lgroup", lambda s: "none" if s.node is None else s.node),
        of.right("package", lambda s: format_list(s.packages) or None, optional=3),
        of.right("copies", lambda s: len(s.copies)),
        of.right("cores|used", lambda s: _of(s.cores_used, s.cores)),
        of.right("PUs|used", lambda s: _of(len(s.cpus), s.pus)),
        Column("memory|GB", gigabytes_column(installed, 2), optional=2),
        Column("copies|need GB", gigabytes_column([s.need_bytes for s in shown], 2), optional=1),
    ]
    if whole is not None:
        columns += [
            of.left("memory|from", lambda s: _policies(s, *whole), flexible=True),
            of.left("copy", lambda s: brief(s.copies), flexible=True),
            of.left("CPUs", lambda s: brief(s.cpus), flexible=True),
        ]
    lines = table_lines(_known(columns), width, ascii_only=True)
    if len(shares) > _MOST_LGROUPS:
        lines.append(f"and {len(shares) - _MOST_LGROUPS} more lgroups (--json has all)")
    forbidden = [s.node for s in shares if not s.allowed and s.node is not None]
    if forbidden:
        one = len(forbidden) == 1
        lines.append(
            f"lgroup{'' if one else 's'} {format_list(forbidden)}: memory not allowed (a cpuset), "
            f"for {'its' if one else 'their'} CPUs all memory is remote"
        )
    return lines


def brief(numbers: Sequence[int]) -> str:
    """Return ascending numbers as a list of ranges, or `0-124:4` where they lie equally far apart.

    >>> brief((0, 4, 8, 12))
    '0-12:4'
    """
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]}:{steps.pop()}"
    return format_list(numbers) or "-"


def _policies(share: NodeShare, topology: Topology, placements: Sequence[Placement]) -> str:
    """Return where the copies of an lgroup have their memory from."""
    if not share.copies:
        return "-"
    distinct = {
        (p.policy, p.memory_nodes, id(p.cpus)): p for p in (placements[c] for c in share.copies)
    }
    return ", ".join(dict.fromkeys(_memory(p, topology) for p in distinct.values()))


def _memory(placement: Placement, topology: Topology) -> str:
    nodes = nodes_of_memory(placement, topology)
    return f"{placement.policy} {format_list(nodes)}" if nodes else str(placement.policy)


def _known(columns: Iterable[Column]) -> list[Column]:
    """Leave out columns in which nothing is known."""
    return [column for column in columns if any(cell != "-" for cell in column.cells)]


def _of(used: int, there: int) -> str:
    return f"{used}/{there}" if there else "-"


# -- What a run would do: plan, places, order, time, memory and disk, as text and as JSON ----------

_LABEL = 9  # characters before the text of a line
_ORDERS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Estimates:
    """What a run on this machine would take of it."""

    memory_bytes: int
    memory_benchmark: str | None
    memory_available_bytes: int
    disk_bytes: int
    disk_available_bytes: int


@dataclass(frozen=True, slots=True)
class PlanView:
    """A resolved run; with estimates it is a dry run of it here, else only a plan."""

    suite: str | None
    size: str | None
    tune: str | None
    plan: Plan
    placements: tuple[Placement, ...]
    layout: str
    topology: Topology
    shares: tuple[NodeShare, ...]
    orders: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]  # (copies, benchmarks in order)
    expected_s: float | None
    estimates: Estimates | None
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    reserved: tuple[int, ...] = ()  # OS numbers of the CPUs kept free of copies
    threads: tuple[tuple[str, int], ...] = ()  # CPUs a copy uses, by benchmark
    cooldown_s: float = 0.0  # rest between phases
    until_idle_s: float | None = None  # longest wait for an idle machine between them; None: none
    executed: ExecutedCommands | None = None  # of a dry run
    counters: tuple[str, ...] = ()  # groups of events, one an iteration


def print_plan(view: PlanView, out: TextIO, width: int) -> None:
    """Print the plan for people, in lines of at most `width` characters; paths stay whole."""
    for line in _lines(view, width):
        label = len(line) - len(line[_LABEL:].lstrip()) if line[_LABEL:].strip() else 0
        text = textwrap.fill(
            sanitize(line),
            width,
            subsequent_indent=" " * label,
            break_on_hyphens=False,
            break_long_words="/" not in line,  # a path can be copied
        )
        print(text, file=out)


def plan_document(view: PlanView) -> dict[str, Any]:
    """Return the JSON document of a plan."""
    document: dict[str, Any] = to_json(_DOCUMENT.of(view))
    if view.estimates is not None:
        document |= {"dry_run": True} | to_json(view.estimates)
    if view.executed is not None:
        document["executes"] = EXECUTED.of(view.executed)
    return document


_DOCUMENT = JsonFields(
    "machine=topology.source layout plan.mode plan.benchmarks plan.iterations plan.order",
    {
        "phases": lambda view: len(view.plan.phases),
        "warmup_s": lambda view: view.plan.window.warmup_ns / 1e9 if view.plan.window else None,
        "window_s": lambda view: view.plan.window.length_ns / 1e9 if view.plan.window else None,
    },
    "threads{} cooldown_s until_idle_s",
    {
        "stagger_ms": lambda view: view.plan.stagger_ns / 1e6,
        "copies": lambda view: copies_document(
            view.topology, view.placements, view.plan.stagger_ns
        ),
        "lgroups": lambda view: lgroups_document(view.shares),
    },
    "reserved_cpus=reserved counters",
    {"orders": lambda view: objects("copies benchmarks", view.orders)},
    "expected_s warnings refused=refusals",
)


def _lines(view: PlanView, width: int) -> Iterator[str]:
    plan = view.plan
    what = (
        plan.benchmarks[0]
        if view.suite is None
        else f"suite {view.suite}, size {view.size}, tune {view.tune}: "
        f"{count(len(plan.benchmarks), 'benchmark')}"
    )
    if view.estimates is not None:
        yield "dry run: nothing is started, built or stored"
        yield ""
    yield f"what     {what}"
    rounds = f", {count(plan.iterations, 'iteration')}"
    if plan.discard:
        rounds += f" (the first {plan.discard} not counted)"
    rotated = plan.window is not None and plan.order is Order.ROTATED
    mode = f"{plan.mode} in rotated order" if rotated else plan.mode
    yield f"how      {mode}, {copies_text(plan.copies)}{rounds}"
    yield from _timing(view)
    yield f"where    layout {view.layout} on {view.topology.source}"
    if view.reserved:
        yield f"reserved CPUs {format_list(view.reserved)}, for the system and rater itself"
    yield ""
    yield from _places(view, width)
    yield ""
    if plan.order is Order.ROTATED:
        yield "order    copies with the same queue, one round:"
        shown = [(_some(copies), " ".join(names)) for copies, names in view.orders[:_ORDERS_SHOWN]]
        width = max(len(copies) for copies, _ in shown)
        for copies, names in shown:
            yield f"           {copies:>{width}}  {names}"
        if len(view.orders) > _ORDERS_SHOWN:
            yield f"           and {len(view.orders) - _ORDERS_SHOWN} more orders (--json has all)"
    else:
        yield f"order    all copies: {' then '.join(plan.benchmarks)}"
    if view.executed is not None:
        yield ""
        yield from executed_lines(view.executed)
    if view.estimates is not None:
        yield ""
        yield from _estimates(view, view.estimates)
    if view.estimates is None and (view.warnings or view.refusals):
        yield ""
    for warning in view.warnings:
        yield f"warning  {warning}"
    for refusal in view.refusals:
        yield f"REFUSED  as it stands, this run would be refused: {refusal}"


def _timing(view: PlanView) -> Iterator[str]:
    """What is between starts, in a phase and between phases, and what is counted."""
    plan = view.plan
    if plan.stagger_ns:
        last_s = plan.stagger_ns * (plan.copies - 1) / 1e9
        yield (
            f"stagger  {plan.stagger_ns / 1e6:g} ms between starts, "
            f"the last copy starts after {format_duration(last_s)}"
        )
    if plan.window is not None:
        windows = count(len(plan.phases), "window")
        yield (
            f"window   {windows} of {format_duration(plan.window.length_ns / 1e9)}, each after "
            f"{format_duration(plan.window.warmup_ns / 1e9)} of warm-up; copies repeat until "
            "every run "
            "that began before its end has ended"
        )
    if view.counters:
        yield f"counted  {', '.join(view.counters)}: one an iteration, in turn"
    several = [(name, threads) for name, threads in view.threads if threads > 1]
    if several:
        most = max(threads for _, threads in several)
        if len({threads for _, threads in view.threads}) == 1:
            yield f"threads  {most} CPUs for each copy"
        else:
            each = ", ".join(f"{name} {threads}" for name, threads in view.threads)
            yield f"threads  CPUs that a copy uses: {each}"
    if len(plan.phases) > 1 and (view.cooldown_s or view.until_idle_s is not None):
        rests = [f"{format_duration(view.cooldown_s)} of rest"] if view.cooldown_s else []
        if view.until_idle_s is not None:
            rests.append(
                f"at most {format_duration(view.until_idle_s)} until the machine is idle again"
            )
        yield f"between  phases: {', then '.join(rests)}"


def _places(view: PlanView, width: int) -> Iterator[str]:
    if view.placements[0].cpus is None:
        yield "copies are not bound: the kernel puts them on any CPU, and moves them"
        return
    yield from place_lines(view.shares, view.topology, view.placements, width)


def _estimates(view: PlanView, estimates: Estimates) -> Iterator[str]:
    plan = view.plan
    if view.expected_s is None:
        least_s = plan.stagger_ns * (plan.copies - 1) / 1e9 * len(plan.phases)
        more = (
            f"at least {format_duration(least_s)} of staggered starts" if least_s else "not known"
        )
        yield f"time     {more} (no reference time to estimate from)"
    else:
        if plan.window is not None:
            basis = "the windows and the runs that cross their ends"
        else:
            basis = "if this machine is as fast as the reference"
        yield f"time     about {format_duration(view.expected_s)}, {basis}"
    available = f"{format_gigabytes(estimates.memory_available_bytes)} available"
    if estimates.memory_benchmark is None:
        yield f"memory   not known ({available})"
    else:
        needed = (
            f"{format_gigabytes(estimates.memory_bytes)} at most, in {estimates.memory_benchmark}"
        )
        yield f"memory   {needed} ({available})"
    yield (
        f"disk     {format_gigabytes(estimates.disk_bytes)} for run directories, outputs apart "
        f"({format_gigabytes(estimates.disk_available_bytes)} free)"
    )


def _some(copies: tuple[int, ...]) -> str:
    shown = ",".join(str(copy) for copy in copies[:4])
    return shown if len(copies) <= 4 else f"{shown},...,{copies[-1]}"


# -- What changed since a run was made, and what it lacks: as text and as values for JSON ----------


def changes_text(found: Sequence[ConditionDifference]) -> str:
    """Return a line for each difference, indented, each behind a line end."""
    return "".join(f"\n  {sanitize(str(difference))}" for difference in found)


DIFFERENCE = JsonFields("what before now weighs=significant")


def changes_document(found: Sequence[ConditionDifference]) -> list[dict[str, object]]:
    """Return differences for JSON."""
    return [DIFFERENCE.of(it) for it in found]


def print_remainder(head: RunHead, left: RemainingPlan, out: TextIO) -> None:
    """Print which phases of a run are done, torn and missing."""
    ascii_only = is_ascii(out.encoding)
    phases = left.phases
    done = sum(it.state is PhaseState.DONE for it in phases)
    print(
        f"run {head.run} ({head.uuid[:8]}), {head.status.value}: "
        f"{done} of {count(len(phases), 'phase')} done",
        file=out,
    )
    rows = [
        (
            str(_number(it)),
            phase_name(it.phase.benchmark, it.phase.iteration, it.phase.counted, ascii_only),
            _state(it),
        )
        for it in phases
    ]
    for line in align_columns([("phase", "what", ""), *rows], (True, False, False)):
        print(f"  {line}", file=out)


def remainder_document(head: RunHead, left: RemainingPlan) -> dict[str, object]:
    """Return the same for JSON."""
    return {
        "dry_run": True,
        "run": head.run,
        "uuid": head.uuid,
        "status": head.status.reported,
        "phases": [
            {
                "phase": _number(it),
                "benchmark": it.phase.benchmark,
                "iteration": it.phase.iteration,
                "state": it.state.value,
                "runs_as": None if it.state is PhaseState.DONE else it.phase.number,
            }
            for it in left.phases
        ],
    }


def _number(it: PlannedPhase) -> int:
    return it.phase.number if it.stored is None else it.stored


def _state(it: PlannedPhase) -> str:
    if it.state is PhaseState.TORN:
        return f"torn: runs again as phase {it.phase.number}"
    return it.state.value
