"""What a run would do: plan, places, commands; as text and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from rater.analysis.results.remaining import PhaseState, PlannedPhase, RemainingPlan
from rater.plan.placement.summary import NodeShare, nodes_of_memory
from rater.plan.schedule import Order, Plan, order_table
from rater.plan.topology import Topology
from rater.record.run import Placement, RunStatus
from rater.record.stored import RunHead
from rater.show.live.lines import phase_name
from rater.show.screen.document import GIGABYTES, TEXT, Field, Part, Row, ViewTable, facts
from rater.show.screen.format import format_duration, format_gigabytes, sanitize
from rater.text.cpuset import format_list
from rater.text.values import JsonFields, copies_text, count, group_by_key, objects, to_json

if TYPE_CHECKING:
    from rater.analysis.compare.conditions import ConditionDifference
    from rater.show.documents.plan import (
        ConditionJson,
        DryRunDocument,
        ExecutesJson,
        MemorySourceJson,
        PlanDocument,
        PlannedCopyJson,
    )

# -- What a run would execute, for whom it is not their own: commands, set-ups, variables ----------


def executed_facts(executes: ExecutesJson) -> ViewTable:
    """Return what would be executed, whole, and where: what is not seen is not known."""
    return facts(_executed(executes))


def _executed(executes: ExecutesJson) -> Iterator[tuple[str, object]]:
    commands = executes["commands"]
    yield "set-up", executes["setups"]
    yield (
        "runs",
        [
            text if len(commands) == 1 else f"{benchmark}: {text}"
            for benchmark, text in commands.items()
        ],
    )
    yield "wrap", executes["wrap"]
    yield "prepare", executes["prepare"]
    yield "conclude", executes["conclude"]
    yield "env", [f"{name}={value}" for name, value in executes["environment"].items()]
    none = ["nothing: what the doctor would set is as it should be, or not here"] * executes[
        "tuned"
    ]
    yield "sets", [f"{name}={value}" for name, value in executes["settings"].items()] or none
    yield "pages", [*executes["pages"]]
    yield "in", executes["directory"]
    if executes["directories"]:
        yield "copies", f"each in a directory of its own below {executes['directories']}"


# -- Where copies are, as tables and for JSON: copy by copy, and lgroup by lgroup ------------------

_MOST_COPIES = 64  # shown one by one
_MOST_NODES = 64


def copies_document(
    topology: Topology, placements: Sequence[Placement], stagger_ns: int
) -> list[PlannedCopyJson]:
    """Return every copy for JSON, in ascending order."""
    distinct = {
        (placement.memory_policy, placement.memory_nodes, id(placement.cpus)): placement
        for placement in placements
    }
    nodes = {key: nodes_of_memory(placement, topology) for key, placement in distinct.items()}

    def memory(placement: Placement) -> MemorySourceJson:
        from_nodes = nodes[placement.memory_policy, placement.memory_nodes, id(placement.cpus)]
        return {"policy": placement.memory_policy, "nodes": [*from_nodes]}

    return [
        {
            "copy": placement.copy,
            "cpus": None if placement.cpus is None else [*placement.cpus],
            "core": placement.core,
            "llc": placement.llc,
            "node": placement.node,
            "package": placement.package,
            "memory": memory(placement),
            "start_ms": placement.copy * stagger_ns / 1e6,
        }
        for placement in placements
    ]


_SHARE = JsonFields(
    "node packages copies cpus pus cores_used cores memory_bytes memory_allowed=allowed need_bytes"
)


def place_parts(document: PlanDocument) -> Iterator[Part]:
    """Yield where copies are, one by one where they are few, and the part of each NUMA node."""
    copies, nodes = document["copies"], document["lgroups"]
    few = len(copies) <= _MOST_COPIES
    if not copies or copies[0]["cpus"] is None:
        yield "copies are not bound: the kernel puts them on any CPU, and moves them"
        return
    if few:
        starts = (_STARTS,) if copies[-1]["start_ms"] else ()
        yield ViewTable(title="", rows=copies, fields=(*_COPIES, *starts))
    else:
        yield f"{len(copies)} copies, shown by NUMA node (--json has each):"

    def sources(node: Row) -> str | None:
        memories = dict.fromkeys(_memory(copies[copy]) for copy in node["copies"])
        return ", ".join(memories) or None

    where = (
        Field(heading="memory|from", value=sources, form=TEXT, flexible=True),
        Field(heading="copy", value=lambda it: brief(it["copies"]), form=TEXT, flexible=True),
        Field(heading="CPUs", value=lambda it: brief(it["cpus"]), form=TEXT, flexible=True),
    )
    yield ViewTable(
        title="", rows=nodes, fields=_NODES if few else (*_NODES, *where), most=_MOST_NODES
    )
    giving_none_by_reason = group_by_key(
        (why, node["node"])
        for node in nodes
        if node["node"] is not None and (why := _why_no_memory(node))
    )
    for why, giving_none in giving_none_by_reason.items():
        single = len(giving_none) == 1
        yield (
            f"node{'' if single else 's'} {format_list(giving_none)}: {why}, "
            f"for {'its' if single else 'their'} CPUs all memory is remote"
        )


def _why_no_memory(node: Row) -> str:
    if node["memory_bytes"] == 0:
        return "no memory" if node["pus"] else ""
    return "" if node["memory_allowed"] else "memory not allowed (a cpuset)"


def brief(numbers: Sequence[int]) -> str:
    """Return ascending numbers as a list of ranges, or `0-124:4` where they lie equally far apart.

    >>> brief((0, 4, 8, 12))
    '0-12:4'
    """
    steps = {later - earlier for earlier, later in pairwise(numbers)}
    if len(numbers) > 2 and len(steps) == 1 and steps != {1}:
        return f"{numbers[0]}-{numbers[-1]}:{steps.pop()}"
    return format_list(numbers) or "-"


def _memory(copy: Row) -> str:
    policy, nodes = copy["memory"]["policy"], copy["memory"]["nodes"]
    return f"{policy}, node {format_list(nodes)}" if nodes else str(policy)


def _used_text(used: int, whole: int) -> str | None:
    return f"{used}/{whole}" if whole else None


_COPIES = (
    Field(heading="copy", value="copy"),
    Field(heading="CPUs", value=lambda it: format_list(it["cpus"]), form=TEXT, flexible=True),
    Field(heading="core", value="core"),
    Field(heading="LLC", value="llc"),
    Field(heading="node", value="node"),
    Field(heading="package", value="package"),
    Field(heading="memory", value=_memory, form=TEXT, flexible=True),
)
_STARTS = Field(heading="starts|at s", value=lambda it: f"{it['start_ms'] / 1e3:g}")
_NODES = (
    Field(heading="node", value=lambda it: "none" if it["node"] is None else it["node"]),
    Field(heading="package", value=lambda it: format_list(it["packages"]) or None, optional=3),
    Field(heading="copies", value=lambda it: len(it["copies"])),
    Field(heading="cores|used", value=lambda it: _used_text(it["cores_used"], it["cores"])),
    Field(heading="CPUs|used", value=lambda it: _used_text(len(it["cpus"]), it["pus"])),
    Field(
        heading="memory|GB",
        value=lambda it: it["memory_bytes"] if it["memory_allowed"] else None,
        form=GIGABYTES,
        optional=2,
    ),
    Field(heading="need of all|copies GB", value="need_bytes", form=GIGABYTES, optional=1),
)


# -- What a run would do: plan, places, order, time, memory and disk, as text and as JSON ----------

_ORDERS_SHOWN = 8
_PLAN = JsonFields(
    "mode benchmarks iterations discard order",
    {
        "phases": lambda plan: len(plan.phases),
        "warmup_s": lambda plan: plan.window.warmup_ns / 1e9 if plan.window else None,
        "window_s": lambda plan: plan.window.length_ns / 1e9 if plan.window else None,
        "stagger_ms": lambda plan: plan.stagger_ns / 1e6,
        "orders": lambda plan: objects("copies benchmarks", order_table(plan)),
    },
)


def plan_document(
    plan: Plan,
    topology: Topology,
    placements: Sequence[Placement],
    shares: Iterable[NodeShare],
    more: Mapping[str, object],
) -> PlanDocument:
    """Return the JSON document of a plan; `more`: members that planning alone does not know."""
    document: PlanDocument = to_json(
        {
            "machine": topology.source,
            **_PLAN.read(plan),
            "copies": copies_document(topology, placements, plan.stagger_ns),
            "lgroups": [_SHARE.read(share) for share in shares],
            **more,
        }
    )
    return document


def plan_parts(document: PlanDocument) -> Iterator[Part]:
    """Yield the plan for people: of a dry run also its commands and its costs."""
    benchmarks = document["benchmarks"]
    dry_run = cast("DryRunDocument", document) if "dry_run" in document else None
    what_runs, mode = benchmarks[0], document["mode"]
    if document["suite"] is not None:
        what_runs = f"suite {document['suite']}, size {document['size']}, tune {document['tune']}: "
        what_runs += count(len(benchmarks), "benchmark")
    rotated = document["order"] == Order.ROTATED.value
    if rotated and document["window_s"] is not None:
        mode += " in rotated order"
    mode += (
        f", {copies_text(len(document['copies']))}, {count(document['iterations'], 'iteration')}"
    )
    if document["discard"]:
        mode += f" (the first {document['discard']} not counted)"
    if dry_run:
        yield "dry run: nothing is started, built or stored"
    reserved = document["reserved_cpus"]
    yield facts(
        (
            ("what", what_runs),
            ("how", mode),
            *_timing(document),
            ("where", f"layout {document['layout']} on {document['machine']}"),
            ("reserved", reserved and f"CPUs {format_list(reserved)}, for the system and rater"),
        )
    )
    yield from place_parts(document)
    if rotated:
        orders = document["orders"]
        texts = [f"{_some(entry['copies'])}: {' '.join(entry['benchmarks'])}" for entry in orders]
        more = len(texts) - _ORDERS_SHOWN
        texts[_ORDERS_SHOWN:] = [f"and {more} more orders (--json has all)"] if more > 0 else []
        order = ["copies with the same queue, one round", *texts]
    else:
        order = [f"all copies: {', '.join(benchmarks)}"]
    yield facts(
        (
            ("order", order),
            *(_executed(dry_run["executes"]) if dry_run else ()),
            *(_estimates(dry_run) if dry_run else ()),
            *(("warning", text) for text in document["warnings"]),
            *(
                ("REFUSED", f"`rater run` would refuse this: {entry}")
                for entry in document["refused"]
            ),
        )
    )


def _timing(document: PlanDocument) -> Iterator[tuple[str, object]]:
    """Yield what is between starts, in a phase and between phases, and what is counted."""
    if document["stagger_ms"]:
        last_s = document["stagger_ms"] * (len(document["copies"]) - 1) / 1e3
        yield (
            "stagger",
            f"{document['stagger_ms']:g} ms between starts, the last copy starts after "
            f"{format_duration(last_s)}",
        )
    if document["window_s"] is not None:
        warm_up = format_duration(document["warmup_s"] or 0.0)
        yield (
            "window",
            f"{count(document['phases'], 'window')} of {format_duration(document['window_s'])}, "
            f"each after {warm_up} of warm-up; copies repeat until every run that began before its "
            "end has ended",
        )
    if document["counters"]:
        yield "counted", f"{', '.join(document['counters'])}: one an iteration, in turn"
    threads = document["threads"]
    if max(threads.values(), default=1) > 1:
        each = ", ".join(f"{name} {thread_count}" for name, thread_count in threads.items())
        same = len(set(threads.values())) == 1
        most = f"{max(threads.values())} CPUs for each copy"
        yield "threads", most if same else f"CPUs that a copy uses: {each}"
    cooldown_s, idle_s = document["cooldown_s"], document["until_idle_s"]
    if document["phases"] > 1 and (cooldown_s or idle_s is not None):
        rests = [f"{format_duration(cooldown_s)} of rest"] if cooldown_s else []
        if idle_s is not None:
            rests.append(f"at most {format_duration(idle_s)} until the machine is idle again")
        yield "between", f"phases: {', then '.join(rests)}"


def _estimates(document: DryRunDocument) -> Iterator[tuple[str, object]]:
    expected_s = document["expected_s"]
    if expected_s is None:
        least_s = document["stagger_ms"] * (len(document["copies"]) - 1) / 1e3 * document["phases"]
        time_text = (
            f"at least {format_duration(least_s)} of staggered starts" if least_s else "unknown"
        )
        yield "time", f"{time_text} (no reference time to estimate from)"
    elif document["window_s"] is not None:
        basis = "the windows and the runs that cross their ends"
        yield "time", f"about {format_duration(expected_s)}, {basis}"
    else:
        basis = "if this machine is as fast as the reference"
        yield "time", f"about {format_duration(expected_s)}, {basis}"
    available = f"{format_gigabytes(document['memory_available_bytes'])} available"
    if document["memory_benchmark"] is None:
        yield "memory", f"unknown ({available})"
    else:
        most = format_gigabytes(document["memory_bytes"] or 0)
        yield "memory", f"{most} at most, in {document['memory_benchmark']} ({available})"
    free = format_gigabytes(document["disk_available_bytes"])
    needed = format_gigabytes(document["disk_bytes"])
    yield "disk", f"{needed} for run directories, outputs apart ({free} free)"


def _some(copies: Sequence[int]) -> str:
    shown = ",".join(str(copy) for copy in copies[:4])
    return shown if len(copies) <= 4 else f"{shown},...,{copies[-1]}"


# -- What changed since a run was made, and what it lacks: as text and as values for JSON ----------


def changes_text(differences: Sequence[ConditionDifference]) -> str:
    """Return a line for each difference, indented, each behind a line end."""
    return "".join(f"\n  {sanitize(str(difference))}" for difference in differences)


def changes_document(differences: Sequence[ConditionDifference]) -> list[ConditionJson]:
    """Return differences for JSON."""
    return [
        {
            "what": difference.what,
            "before": difference.before,
            "now": difference.now,
            "weighs": difference.significant,
        }
        for difference in differences
    ]


def difference_parts(differences: Sequence[Row], since: str) -> Iterator[Part]:
    """Yield what is not as it was, as a table."""
    columns = (
        Field(heading="what", value="what", form=TEXT),
        Field(
            heading="was", value=lambda it: it["before"] or "not there", form=TEXT, flexible=True
        ),
        Field(heading="is", value=lambda it: it["now"] or "not there", form=TEXT, flexible=True),
    )
    yield ViewTable(title=f"differs from {since}", rows=differences, fields=columns)
    if not differences:
        yield f"nothing that is known before building differs from {since}"


def remainder_document(head: RunHead, remaining: RemainingPlan) -> dict[str, Any]:
    """Return which phases of a run are done, torn and missing."""
    return {
        "dry_run": True,
        "run": head.run,
        "uuid": head.uuid,
        "status": head.status.reported,
        "killed": head.status is RunStatus.KILLED,
        "phases": [
            {
                "phase": _number(phase),
                "benchmark": phase.phase.benchmark,
                "iteration": phase.phase.iteration,
                "counted": phase.phase.counted,
                "state": phase.state.value,
                "runs_as": None if phase.state is PhaseState.DONE else phase.phase.number,
            }
            for phase in remaining.phases
        ],
    }


def _number(planned: PlannedPhase) -> int:
    return planned.phase.number if planned.stored is None else planned.stored


def remainder_parts(document: Row) -> Iterator[Part]:
    """Yield the same for people, and what goes on would execute."""
    phases = document["phases"]
    done = sum(phase["state"] == PhaseState.DONE.value for phase in phases)
    status = RunStatus.KILLED.value if document["killed"] else document["status"]
    yield (
        f"run {document['run']} ({document['uuid'][:8]}), {status}: "
        f"{done} of {count(len(phases), 'phase')} done"
    )

    def name(row: Row) -> str:
        return phase_name(row["benchmark"], row["iteration"], row["counted"], ascii_only=False)

    def state(row: Row) -> str:
        torn = row["state"] == PhaseState.TORN.value
        return f"torn: runs again as phase {row['runs_as']}" if torn else str(row["state"])

    columns = (
        Field(heading="phase", value="phase"),
        Field(heading="what", value=name, form=TEXT),
        Field(heading="state", value=state, form=TEXT),
    )
    yield ViewTable(title="", rows=phases, fields=columns)
    yield executed_facts(document["executes"])
    if document["refused"] is not None:
        yield facts([("REFUSED", document["refused"].split("\n"))])
    elif document["differences"]:
        yield from difference_parts(document["differences"], "when it began")
    else:
        yield "machine, settings and suite are as they were; programs are compared once built"
