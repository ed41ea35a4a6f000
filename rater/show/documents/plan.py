"""Documents of `rater plan --json`, `rater run --dry-run --json`, `plan layouts` and `suites`."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from rater.plan.schedule import Order
from rater.record.run import MemoryPolicy
from rater.show.documents.common import Copy, Core, Node, Package


class MemorySourceJson(TypedDict):
    """Where the memory of a copy comes from."""

    policy: Annotated[MemoryPolicy, "Memory policy."]
    nodes: Annotated[list[int], "NUMA nodes; empty: any."]


class PlannedCopyJson(TypedDict):
    """Where a copy will run."""

    copy: Copy
    cpus: Annotated[list[int] | None, "CPUs it may use; null: not bound."]
    core: Core
    llc: Annotated[int | None, "Number of its last-level cache; null: not known."]
    node: Node
    package: Package
    memory: Annotated[MemorySourceJson, "Where its memory comes from."]
    start_ms: Annotated[float, "Milliseconds from the first copy's release."]


class NodeShareJson(TypedDict):
    """What a NUMA node has of the copies."""

    node: Annotated[int | None, "Number of the NUMA node; null: CPUs of no node."]
    packages: Annotated[list[int], "Its packages."]
    copies: Annotated[list[int], "Copies on its CPUs."]
    cpus: Annotated[list[int], "CPUs that copies use."]
    pus: Annotated[int, "Its CPUs."]
    cores_used: Annotated[int, "Cores that copies use."]
    cores: Annotated[int, "Its cores."]
    memory_bytes: Annotated[int | None, "Its memory, 0: it has none; null: not known."]
    memory_allowed: Annotated[bool, "false: a cpuset forbids its memory."]
    need_bytes: Annotated[int | None, "Memory that its copies need; null: not known."]


class OrderJson(TypedDict):
    """Copies that run their benchmarks in one order."""

    copies: Annotated[list[int], "Numbers of the copies."]
    benchmarks: Annotated[list[str], "Benchmarks in their order."]


class ExecutesJson(TypedDict):
    """What a run would execute."""

    directory: Annotated[str, "Directory of the commands."]
    setups: Annotated[list[str], "Commands before the first phase."]
    commands: Annotated[dict[str, str], "Command of each benchmark."]
    wrap: Annotated[str | None, "Command that each copy runs under."]
    prepare: Annotated[str | None, "Command before each phase."]
    conclude: Annotated[str | None, "Command after each phase."]
    environment: Annotated[dict[str, str], "Variables that are set."]
    settings: Annotated[dict[str, str], "Settings of the machine that are set."]
    tuned: Annotated[bool, "Whether settings are set as the doctor would."]
    pages: Annotated[list[str], "Page sizes of data, in words."]
    directories: Annotated[str | None, "Where each copy has a directory of its own."]


class PlanDocument(TypedDict):
    """What a run would do."""

    machine: Annotated[str, "Machine that it is planned for."]
    layout: Annotated[str, "Layout of the copies."]
    mode: Annotated[str, "homogeneous, rotated, staggered or steady."]
    suite: Annotated[str | None, "Name of the suite; null: a command."]
    size: Annotated[str | None, "Size of the inputs."]
    tune: Annotated[str | None, "SPEC's tune."]
    benchmarks: Annotated[list[str], "Benchmarks in their order."]
    iterations: Annotated[int, "Iterations of each benchmark."]
    discard: Annotated[int, "First iterations that do not count."]
    order: Annotated[Order, "Who runs what: homogeneous or rotated."]
    phases: Annotated[int, "Number of phases."]
    warmup_s: Annotated[float | None, "Warm-up (steady mode)."]
    window_s: Annotated[float | None, "Window (steady mode)."]
    threads: Annotated[dict[str, int], "CPUs that a copy of each benchmark uses."]
    cooldown_s: Annotated[float, "Rest between two phases."]
    until_idle_s: Annotated[float | None, "How long it waits for an idle machine."]
    stagger_ms: Annotated[float, "Milliseconds between the starts of two copies."]
    copies: Annotated[list[PlannedCopyJson], "Copies by number."]
    lgroups: Annotated[list[NodeShareJson], "NUMA nodes."]
    reserved_cpus: Annotated[list[int], "CPUs left to the system and rater."]
    counters: Annotated[list[str], "Groups of events that are counted."]
    orders: Annotated[list[OrderJson], "Copies by the order of their benchmarks."]
    expected_s: Annotated[float | None, "How long it takes; null: not known."]
    warnings: Annotated[list[str], "What there is to note, in words."]
    refused: Annotated[list[str], "Why `rater run` would refuse it; empty: it would not."]


class ConditionJson(TypedDict):
    """A condition that changed since a run was made."""

    what: Annotated[str, "What changed, in words."]
    before: Annotated[object, "What it was."]
    now: Annotated[object, "What it is."]
    weighs: Annotated[bool, "true: it may explain a difference; false: worth a note."]


class DryRunDocument(PlanDocument):
    """What a run would do, with its needs of memory and disk."""

    dry_run: Annotated[bool, "true."]
    memory_bytes: Annotated[int | None, "Memory that all copies need; null: not known."]
    memory_benchmark: Annotated[str | None, "Benchmark that needs it."]
    memory_available_bytes: Annotated[int, "Memory that is free."]
    disk_bytes: Annotated[int, "Disk that it needs."]
    disk_available_bytes: Annotated[int, "Disk that is free."]
    executes: Annotated[ExecutesJson, "What it would execute."]
    differences: NotRequired[
        Annotated[list[ConditionJson], "What changed since the run that is made again."]
    ]


class LayoutJson(TypedDict):
    """A layout; of one that does not read only name, path and error."""

    name: Annotated[str, "Name of the layout."]
    path: Annotated[str | None, "Its file; null: it was written in the command."]
    error: Annotated[str | None, "Why it does not read, in words."]
    description: NotRequired[Annotated[str, "What it does, in words."]]
    equals: NotRequired[Annotated[str | None, "A layout that does the same."]]
    order: NotRequired[Annotated[str, "Order in which CPUs are used."]]
    bind: NotRequired[Annotated[str, "What a copy is bound to."]]
    smt: NotRequired[Annotated[object, "Threads of a core that are used; null: all."]]
    kind: NotRequired[Annotated[object, "Kind of cores that is used; null: all."]]
    reserve: NotRequired[Annotated[object, "CPUs left to the system."]]
    only: NotRequired[Annotated[dict[str, str] | None, "Parts of the machine it is limited to."]]
    exclude: NotRequired[Annotated[dict[str, str] | None, "Parts of the machine it leaves out."]]
    counts: NotRequired[Annotated[object, "How many parts it uses; null: all."]]


class ListedSuiteJson(TypedDict):
    """A suite of the list."""

    name: Annotated[str, "Name of the suite."]
    path: Annotated[str, "Its file."]
    folder: Annotated[str | None, "Folder of the user that it is in; null: it comes with rater."]
    instead: Annotated[str | None, "File that the name stands for, when it is another one."]
    description: Annotated[str | None, "What it is, in words."]
    benchmarks: Annotated[list[str], "Names of its benchmarks."]
    sizes: Annotated[list[str], "Sizes of inputs."]
    error: Annotated[str | None, "Why it does not read, in words."]
