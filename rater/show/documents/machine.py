"""Documents of `rater topo --json`, `rater settings --json` and `rater doctor --json`."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict


class PartCountsJson(TypedDict):
    """How many parts a machine has."""

    packages: Annotated[int, "Packages."]
    lgroups: Annotated[int, "NUMA nodes."]
    llcs: Annotated[int, "Last-level caches."]
    cores: Annotated[int, "Cores."]
    pus: Annotated[int, "CPUs (hardware threads)."]
    usable_pus: Annotated[int, "CPUs that rater may use."]


class MachineNodeJson(TypedDict):
    """A NUMA node."""

    node: Annotated[int, "The kernel's number of the NUMA node."]
    logical: Annotated[int, "hwloc's logical index."]
    cpus: Annotated[list[int], "Its CPUs."]
    usable_cpus: Annotated[list[int], "Of these, those that rater may use."]
    near_cpus: Annotated[list[int], "CPUs near to it, of a node without its own."]
    packages: Annotated[list[int], "Its packages."]
    cores: Annotated[list[int], "Its cores."]
    llcs: Annotated[list[int], "Its last-level caches."]
    memory_bytes: Annotated[int | None, "Its memory, 0: it has none; null: not known."]
    subtype: Annotated[str | None, "Kind of memory, where hwloc knows it: HBM, NVM."]
    default: Annotated[bool, "Whether memory comes from it by default."]
    allowed: Annotated[bool, "false: a cpuset forbids its memory."]
    now: Annotated[dict[str, Any] | None, "Its memory now; null: not this machine."]


class MachineCpuJson(TypedDict):
    """A CPU."""

    cpu: Annotated[int, "The kernel's number of the CPU."]
    logical: Annotated[int, "hwloc's logical index."]
    core: Annotated[int | None, "Number of its core."]
    thread: Annotated[int, "Place among the threads of its core, from 0."]
    node: Annotated[int | None, "Number of its NUMA node."]
    package: Annotated[int | None, "Number of its package."]
    llc: Annotated[int | None, "Number of its last-level cache."]
    kind: Annotated[int | None, "Rank of its kind of core, from 0, the slowest."]
    usable: Annotated[bool, "Whether rater may use it."]


class NotUsableJson(TypedDict):
    """CPUs that rater may not use."""

    cpus: Annotated[list[int], "Numbers of the CPUs."]
    reason: Annotated[str, "Why, in words."]


class SiblingsJson(TypedDict):
    """Cores whose threads are numbered alike."""

    threads: Annotated[int, "Threads of a core."]
    offsets: Annotated[list[int], "Numbers of the threads, less that of the first."]
    cores: Annotated[int, "Number of such cores."]


class CacheJson(TypedDict):
    """A cache."""

    level: Annotated[int, "Level, from 1."]
    type: Annotated[str, "What it holds: data, instructions or both."]
    size_bytes: Annotated[int | None, "Its size; null: not known."]
    cpus: Annotated[list[int], "CPUs that share it."]


class CpuKindJson(TypedDict):
    """A kind of cores."""

    kind: Annotated[int | None, "Rank of the kind, from 0, the slowest."]
    cpus: Annotated[list[int], "CPUs of the kind."]
    infos: Annotated[dict[str, str], "What hwloc knows of it."]


class GroupJson(TypedDict):
    """A part of the machine that hwloc has between the others."""

    type: Annotated[str, "hwloc's type."]
    subtype: Annotated[str | None, "hwloc's subtype."]
    of_memory: Annotated[bool, "true: it groups memory."]
    cpus: Annotated[list[int], "Its CPUs."]


class DistancesJson(TypedDict):
    """Distances between NUMA nodes."""

    nodes: Annotated[list[int], "Nodes, in the order of rows and columns."]
    matrix: Annotated[list[list[float]], "Distances as the firmware states them."]


class TopoDocument(TypedDict):
    """A machine; numbers of CPUs and nodes are the kernel's, all others hwloc's logical indexes."""

    source: Annotated[str, "Where it is known from."]
    this_machine: Annotated[bool, "true: it is the one rater runs on."]
    product: Annotated[str | None, "Vendor and product, as the firmware names them."]
    cpu_models: Annotated[list[str], "Models of its CPUs."]
    architecture: Annotated[str | None, "Architecture, as `uname -m` has it."]
    counts: Annotated[PartCountsJson, "How many parts it has."]
    cores_described: Annotated[bool, "false: cores are not described, each CPU counts as one."]
    nodes: Annotated[list[MachineNodeJson], "NUMA nodes, by number."]
    cpus: Annotated[list[MachineCpuJson], "CPUs, usable or not, by number."]
    cpus_without_node: Annotated[list[int], "CPUs of no NUMA node."]
    not_usable: Annotated[list[NotUsableJson], "CPUs that rater may not use, and why."]
    siblings: Annotated[list[SiblingsJson], "How threads of cores are numbered."]
    caches: Annotated[list[CacheJson], "Caches."]
    kinds: Annotated[list[CpuKindJson], "Kinds of cores."]
    groups: Annotated[list[GroupJson], "Other groups that hwloc has."]
    distances: Annotated[DistancesJson | None, "Distances; null: not known."]


class HardwareFactJson(TypedDict):
    """A fact of a machine that no setting changes."""

    group: Annotated[str, "What it is about: processor, firmware, memory, memory slots, ..."]
    name: Annotated[str, "Its name, as stored runs have it among their settings."]
    value: Annotated[str, "What is known."]


class UnreadJson(TypedDict):
    """What could not be read of a machine."""

    what: Annotated[str, "What is not known."]
    why: Annotated[str, "Why, and the way to know it."]


class HardwareDocument(TypedDict):
    """Facts of a machine: firmware, memory modules, promises, TLBs."""

    of: Annotated[str, "Whose they are: this machine, or that of a run."]
    facts: Annotated[list[HardwareFactJson], "What is known."]
    unread: Annotated[list[UnreadJson], "What is not known, and why."]


class SettingJson(TypedDict):
    """A setting of the machine."""

    name: Annotated[str, "Name of the setting."]
    recorded_as: Annotated[str | None, "Its name in stored runs, where that is another."]
    group: Annotated[str, "Group of settings that it belongs to."]
    what: Annotated[str, "What it does, in words."]
    value: Annotated[str, "Its value now; of several files each."]
    choices: Annotated[list[str] | None, "Values that it may have; null: a number."]
    least: Annotated[int | None, "Smallest number; null: choices."]
    most: Annotated[int | None, "Largest number; null: unbounded, or choices."]
    settable: Annotated[bool, "Whether it can be set now."]
    obstacle: Annotated[str | None, "Why it cannot be set, in words."]
    files: Annotated[dict[str, str | None], "Files of the kernel with their values."]


class LackingJson(TypedDict):
    """Settings that this machine has not."""

    names: Annotated[list[str], "Names of the settings."]
    why: Annotated[str, "Why they are not here, in words."]


class SettingsDocument(TypedDict):
    """Settings of the machine that rater can set."""

    settings: Annotated[list[SettingJson], "Settings that are here."]
    lacking: Annotated[list[LackingJson], "Settings that are not here."]
    journals: Annotated[list[str], "Files with old values that are not put back yet."]


class DoctorFindingJson(TypedDict):
    """What the doctor says of one thing."""

    check: Annotated[str, "Name of the check."]
    verdict: Annotated[str, "bad, consider, good or cannot tell."]
    seen: Annotated[str, "What was seen, in words."]
    why: Annotated[str, "Why it matters, in words."]
    command: Annotated[str | None, "Command that mends it; null: none."]
    settings: Annotated[dict[str, str], "Settings that mend it."]


class PoolJson(TypedDict):
    """A pool of huge pages of one NUMA node."""

    lgroup: Annotated[int | None, "Number of the NUMA node; null: of the machine."]
    size_bytes: Annotated[int, "Size of a page."]
    total_pages: Annotated[int, "Pages of the pool."]
    free_pages: Annotated[int, "Free pages of the pool."]
    more_now: Annotated[int | None, "Pages that could be added now; null: not told."]
    more_at_most: Annotated[int | None, "Pages that could be added at most."]
    file: Annotated[str, "File of the kernel that sets the pool."]
    setting: Annotated[str, "Setting of rater that does."]


class DoctorDocument(TypedDict):
    """What the doctor says of a machine."""

    of: Annotated[str, "Machine, or run, that it is about."]
    counts: Annotated[dict[str, int], "Number of findings by verdict."]
    findings: Annotated[list[DoctorFindingJson], "Findings."]
    huge_pages: Annotated[list[PoolJson], "Pools of huge pages."]
    tuned: Annotated[dict[str, str], "Settings that the doctor would set."]
