"""A machine as text and as values for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Struct, field

from rater.plan.topology import PU, Cache, CpuKind, HwlocGroup, Node, NodeMemory, Topology
from rater.show.screen.document import GIGABYTES, Field, Part, Row, ViewTable, facts
from rater.text.cpuset import cpus_text, format_list
from rater.text.values import (
    JsonFields,
    Table,
    count,
    group_by_key,
    join_and,
    objects,
    to_json,
    truncate_list,
)

if TYPE_CHECKING:
    from rater.show.documents.machine import TopoDocument

# -- A machine as its screens and its JSON see it: what belongs to which lgroup, core and cache ----


class TopoView(Struct, frozen=True, dict=True):
    """A machine and, when it is this one, the memory of its lgroups now (by OS number)."""

    topology: Topology
    now: Mapping[int, NodeMemory] = field(default_factory=dict)

    @cached_property
    def cores(self) -> dict[int, tuple[PU, ...]]:
        """All PUs by core, usable or not."""
        groups = group_by_key((pu.core, pu) for pu in self.topology.machine_pus)
        return {core: tuple(pus) for core, pus in groups.items()}

    @cached_property
    def pus_of(self) -> dict[int | None, tuple[PU, ...]]:
        """All PUs by the node they belong to, None for those in no node.

        A node that gives no memory is nobody's home but still has its CPUs.
        """
        giving_none = {
            cpu: node.os
            for node in self.topology.nodes
            if not node.gives_memory
            for cpu in node.cpus
        }
        groups = group_by_key(
            (giving_none.get(pu.os) if pu.node is None else pu.node, pu)
            for pu in self.topology.machine_pus
        )
        return {node: tuple(pus) for node, pus in groups.items()}

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by OS number."""
        return tuple(sorted(self.topology.nodes, key=lambda node: node.os))

    def memory_bytes(self, node: Node) -> int | None:
        """Return the installed memory of a node, None when not known."""
        now = self.now.get(node.os)
        return node.memory_bytes if now is None else now.total_bytes

    def kept_out(self) -> list[tuple[tuple[int, ...], str]]:
        """Return CPUs that cannot be used, by reason."""
        topology, details = self.topology, self.topology.details
        usable = set(topology.by_cpu) | set(details.forbidden)
        rest = tuple(sorted(pu.os for pu in topology.machine_pus if pu.os not in usable))
        is_here = topology.is_this_system
        reasons = [
            (
                details.offline,
                f"offline{'' if is_here else ' or not allowed when the file was made'}",
            ),
            (details.forbidden, "not allowed by a cpuset (cgroup, container, batch system)"),
            (rest, "not in the affinity of this process (taskset, or a parent that bound it)"),
        ]
        return [(cpus, why) for cpus, why in reasons if cpus]


def siblings(view: TopoView) -> Counter[tuple[int, ...]]:
    """Count cores by what their PUs' OS numbers are above the lowest of them."""
    cores = (_numbers(pus) for pus in view.cores.values())
    return Counter(tuple(number - numbers[0] for number in numbers) for numbers in cores)


def kind_rank(view: TopoView, kind: CpuKind) -> int | None:
    """Return the rank of a kind among all, None when its CPUs have no common one or none has."""
    if view.topology.unranked_kinds:
        return None
    members = set(kind.cpus)
    ranks = {pu.kind for pu in view.topology.machine_pus if pu.os in members}
    return ranks.pop() if len(ranks) == 1 else None


def packages_of(pus: Iterable[PU]) -> list[int]:
    """Return the packages of some PUs, ascending."""
    return sorted({pu.package for pu in pus if pu.package is not None})


# -- A machine as values for JSON ------------------------------------------------------------------


def topo_document(view: TopoView) -> TopoDocument:
    """Return the JSON document of a machine.

    CPUs and nodes by OS number; `logical`, `core`, `package` and `llc` are hwloc's
    logical indexes (an `llc` index is unique over L3 and L2), `thread` counts the
    PUs of a core from 0, `kind` ranks CPU kinds from 0, the slowest. `cpus` lists
    all PUs, usable or not, `nodes` all lgroups, both by OS number. `now` is null for
    a machine that is not this one. Bytes and pages are whole numbers; null: unknown.
    """
    topology, details = view.topology, view.topology.details
    pus = sorted(topology.machine_pus, key=lambda pu: pu.os)
    document = {
        "source": topology.source,
        "this_machine": topology.is_this_system,
        "product": details.product,
        "cpu_models": details.cpu_models,
        "architecture": details.architecture or None,
        "counts": {
            "packages": len(packages_of(pus)),
            "lgroups": len(topology.nodes),
            "llcs": len({pu.llc for pu in pus} - {None}),
            "cores": len(view.cores),
            "pus": len(pus),
            "usable_pus": len(topology.pus),
        },
        "cores_described": details.has_cores,
        "nodes": view.nodes,
        "cpus": pus,
        "cpus_without_node": _numbers(view.pus_of.get(None, ())),
        "not_usable": objects("cpus reason", view.kept_out()),
        "siblings": [
            {"threads": len(offsets), "offsets": offsets, "cores": cores}
            for offsets, cores in siblings(view).most_common()
        ],
        "caches": details.caches,
        "kinds": details.kinds,
        "groups": details.groups,
        "distances": None
        if topology.distances is None
        else {"nodes": topology.distance_nodes, "matrix": topology.distances},
    }
    values: TopoDocument = to_json(document, _table(view))
    return values


def _table(view: TopoView) -> Table:
    usable = view.topology.by_cpu

    def members_of(node: Node) -> dict[str, object]:
        pus = view.pus_of.get(node.os, ())
        return {
            "cpus": _numbers(pus),
            "usable_cpus": _numbers(pu for pu in pus if pu.os in usable),
            "near_cpus": node.cpus,
            "packages": packages_of(pus),
            "cores": {pu.core for pu in pus},
            "llcs": {pu.llc for pu in pus if pu.llc is not None},
            "memory_bytes": view.memory_bytes(node),
        }

    def covered(span: Cache | HwlocGroup) -> list[int]:
        return _numbers(view.topology.machine_pus[span.first : span.first + span.count])

    return {
        Node: JsonFields(
            "node=os logical",
            {"*": members_of},
            "subtype default allowed",
            {"now": lambda node: view.now.get(node.os)},
        ),
        NodeMemory: JsonFields(
            "free_bytes page_cache_bytes dirty_bytes free_huge_order_bytes huge_pages"
        ),
        PU: JsonFields(
            "cpu=os logical core thread=rank node package llc kind",
            {"usable": lambda pu: pu.os in usable},
        ),
        Cache: JsonFields("level type size_bytes?", {"cpus": covered}),
        CpuKind: JsonFields({"kind": lambda kind: kind_rank(view, kind)}, "cpus infos{}"),
        HwlocGroup: JsonFields("type subtype of_memory", {"cpus": covered}),
    }


def _numbers(pus: Iterable[PU]) -> list[int]:
    return sorted(pu.os for pu in pus)


# -- A machine as tables: NUMA nodes, memory now, threads, caches, CPU kinds, distances ------------

_MOST_ROWS = 128  # nodes shown; --json has all
_MOST_IN_MATRIX = 16  # nodes
_MOST_ALIKE = 6  # sizes of one cache, patterns of siblings


def topo_parts(document: TopoDocument) -> Iterator[Part]:
    """Yield the machine for people."""
    by_cpu = {entry["cpu"]: entry for entry in document["cpus"]}
    yield from _head(document)
    yield _nodes_table(document, by_cpu)
    described = document["cores_described"]
    text, matrix = _distances(document["distances"])
    yield from _memory_now([entry | entry["now"] for entry in document["nodes"] if entry["now"]])
    yield facts(
        (
            ("threads", list(_threads(document)) if described else []),
            ("caches", list(_caches(document))),
            ("CPU kinds", list(_kinds(document, by_cpu))),
            ("groups", "; ".join(_groups(document))),
            ("distances", text),
            ("no memory", _forbidden(document)),
            (
                "not usable",
                [
                    f"{cpus_text(entry['cpus'])}: {entry['reason']}"
                    for entry in document["not_usable"]
                ],
            ),
        )
    )
    yield matrix


def _nodes_table(document: TopoDocument, by_cpu: Mapping[int, Row]) -> ViewTable:
    """Return a line for each NUMA node, the last for the CPUs that belong to none."""
    rows = [entry | {"note": _note(entry, document["nodes"])} for entry in document["nodes"]]
    homeless = document["cpus_without_node"]
    if homeless:
        homeless_cpus = [by_cpu[cpu] for cpu in homeless]
        numbers = {
            f"{key}s": {entry[key] for entry in homeless_cpus} - {None}
            for key in ("package", "core", "llc")
        }
        usable = [entry["cpu"] for entry in homeless_cpus if entry["usable"]]
        note = "(no memory of their own)"
        rows.append(
            {"node": "none", "cpus": homeless, "usable_cpus": usable, "note": note, **numbers}
        )
    described = document["cores_described"]
    homes = Counter(llc for entry in document["nodes"] for llc in entry["llcs"])

    def some(row: Row) -> str:
        usable, all_cpus = len(row["usable_cpus"]), len(row["cpus"])
        return str(all_cpus) if usable == all_cpus else f"{usable} of {all_cpus}"

    def llcs(row: Row) -> str | None:
        shared = any(homes[llc] > 1 for llc in row["llcs"])
        return f"{len(row['llcs'])}{' shared' if shared else ''}" if row["llcs"] else None

    nodes = (
        Field(heading="node", value="node"),
        Field(
            heading="package",
            value=lambda entry: format_list(entry["packages"]) or None,
            optional=2,
        ),
        Field(heading="cores", value=lambda entry: len(entry["cores"]) if described else None),
        Field(heading="CPUs", value=some),
        Field(heading="LLCs", value=llcs, optional=1),
        Field(heading="memory|GB", value="memory_bytes", form=GIGABYTES, optional=3),
        Field(
            heading="CPU numbers",
            value=lambda entry: f"{format_list(entry['cpus'])}  {entry['note']}".strip(),
            wrap=True,
        ),
    )
    return ViewTable(title="", rows=rows, fields=nodes, most=_MOST_ROWS)


def _head(document: Row) -> Iterator[str]:
    names = [document["product"] or "", " + ".join(document["cpu_models"])]
    message = ", ".join(name for name in names if name) or document["architecture"]
    yield document["source"] + (f": {message}" if message else "")
    counts, nodes = document["counts"], document["nodes"]
    bare = sum(not node["cpus"] for node in nodes)
    several = count(len(nodes), "NUMA node") + (f" ({bare} without CPUs)" if bare else "")
    cpus = counts["pus"]
    described = {
        "packages": counts["packages"],
        "caches": counts["llcs"],
        "cores": document["cores_described"],
        "distances": document["distances"] or len(nodes) < 2,
    }
    parts = [
        count(counts["packages"], "package") if described["packages"] else "",
        several,
        count(counts["llcs"], "LLC") if described["caches"] else "",
        count(counts["cores"], "core") if described["cores"] else "",
        count(cpus, "CPU"),
        f"of which {counts['usable_pus']} may be used" if counts["usable_pus"] < cpus else "",
    ]
    unknown = ", ".join(name for name, there in described.items() if not there)
    text = ", ".join(part for part in parts if part)
    yield f"{text}; not described: {unknown}" if unknown else text


def _note(node: Row, nodes: Sequence[Row]) -> str:
    """Say what is special about a node: memory without CPUs, memory of another kind."""
    parts = [node["subtype"]] if node["subtype"] not in (None, "", "DRAM") else []
    if not node["cpus"]:
        near_cpus = set(node["near_cpus"])
        near = [it["node"] for it in nodes if it["default"] and near_cpus & set(it["near_cpus"])]
        parts.append(f"no CPUs; near node {format_list(near)}" if near else "no CPUs")
    if node["memory_bytes"] == 0:
        parts.append("no memory")
    elif not node["allowed"]:
        parts.append("memory not allowed")
    return f"({', '.join(parts)})" if parts else ""


def _memory_now(nodes: Sequence[Row]) -> Iterator[Part]:
    def pool(node: Row, size: int) -> Row | None:
        return next(
            (page_pool for page_pool in node["huge_pages"] if page_pool["size_bytes"] == size), None
        )

    def free(node: Row, size: int) -> str | None:
        huge_pool = pool(node, size)
        return None if huge_pool is None else f"{huge_pool['free']}/{huge_pool['total']}"

    sizes = sorted({page_pool["size_bytes"] for node in nodes for page_pool in node["huge_pages"]})
    kept = [size for size in sizes if any((pool(node, size) or {}).get("total") for node in nodes)]
    columns = (
        Field(heading="node", value="node"),
        Field(heading="installed|GB", value="memory_bytes", form=GIGABYTES),
        Field(heading="free|GB", value="free_bytes", form=GIGABYTES),
        Field(heading="in huge|blocks GB", value="free_huge_order_bytes", form=GIGABYTES),
        Field(heading="page|cache GB", value="page_cache_bytes", form=GIGABYTES),
        Field(heading="dirty|GB", value="dirty_bytes", form=GIGABYTES, optional=1),
        *(
            Field(heading=(f"{_binary(size)} pages", "free/all"), value=partial(free, size=size))
            for size in kept
        ),
    )
    yield ViewTable(title="memory now", rows=nodes, fields=columns, most=_MOST_ROWS)
    unused = " or ".join(_binary(size) for size in sizes if size not in kept)
    yield f"no huge pages of {unused} are set aside (hugetlb)" if unused else None


def _threads(document: Row) -> Iterator[str]:
    by_threads = group_by_key(
        (pattern_row["threads"], pattern_row) for pattern_row in document["siblings"]
    )
    for threads in sorted(by_threads, reverse=True):
        patterns = by_threads[threads]
        cores = sum(pattern_row["cores"] for pattern_row in patterns)
        cores_named = "every core has" if len(by_threads) == 1 else f"{count(cores, 'core')} with"
        if threads == 1:
            yield f"{cores_named} 1 (no SMT)"
        elif len(patterns) <= _MOST_ALIKE:
            offsets_named = " or ".join(
                _pattern(pattern_row["offsets"]) for pattern_row in patterns
            )
            yield f"{cores_named} {threads}: CPUs {offsets_named}"
        else:
            yield f"{cores_named} {threads}, numbered without a rule (--json has them)"


def _pattern(offsets: Sequence[int]) -> str:
    names = ["n", *(f"n+{offset}" for offset in offsets[1:])]
    if list(offsets) == list(range(len(offsets))) and len(offsets) > 2:
        return f"n to {names[-1]}"
    return join_and(names)


def _caches(document: Row) -> Iterator[str]:
    kinds = group_by_key(
        ((cache_row["level"], cache_row["type"]), (cache_row["size_bytes"], len(cache_row["cpus"])))
        for cache_row in document["caches"]
    )
    for level, type_ in sorted(kinds, reverse=True):
        sizes = Counter(kinds[level, type_]).most_common()
        name = f"L{level}{'d' if type_ == 'data' else ''}"
        for (size, cpus), cache_count in sizes[:_MOST_ALIKE]:
            yield (
                f"{name:<3}  {cache_count} x {_binary(size) if size else 'unknown size'}, "
                f"one for {'each CPU' if cpus == 1 else f'{cpus} CPUs'}"
            )
        if len(sizes) > _MOST_ALIKE:
            yield f"{name:<3}  {len(sizes) - _MOST_ALIKE} more of other kinds"


def _kinds(document: Row, by_cpu: Mapping[int, Row]) -> Iterator[str]:
    kinds = document["kinds"]
    if len(kinds) < 2:
        return
    ranked = len({it["kind"] for it in kinds}) > 1
    yield "by speed, the slowest 0:" if ranked else "which is the fastest is not known:"
    for kind in sorted(kinds, key=lambda it: (it["kind"] or 0) if ranked else 0):
        cores = {by_cpu[cpu]["core"] for cpu in kind["cpus"] if cpu in by_cpu}
        infos = kind["infos"]
        facts = [
            count(len(cores), "core"),
            infos.get("CoreType"),
            *(
                f"{infos[name]} MHz {word}" if name in infos else None
                for name, word in (("FrequencyBaseMHz", "base"), ("FrequencyMaxMHz", "max"))
            ),
            f"capacity {infos['LinuxCapacity']} of 1024" if "LinuxCapacity" in infos else None,
        ]
        rank = kind["kind"] if ranked else "-"
        yield f"{rank}  {cpus_text(kind['cpus'])}: {', '.join(filter(None, facts))}"


def _groups(document: Row) -> Iterator[str]:
    sizes: dict[str, list[int]] = {}
    for group in document["groups"]:
        cpus = len(group["cpus"])
        if group["subtype"] is None and (group["of_memory"] or cpus == len(document["cpus"])):
            continue
        name = group["subtype"] or group["type"]
        if name == "Group":  # nested ones of different sizes are different things
            name = f"Group {cpus}"
        sizes.setdefault(name, []).append(cpus)
    for name, cpus_of in sizes.items():
        yield f"{count(len(cpus_of), name.split()[0].lower())} of {_range(cpus_of)} CPUs"


def _distances(distances: Row | None) -> tuple[str, ViewTable | None]:
    """Return distances in a sentence, or one by one: of a few nodes that are not equally far."""
    if distances is None or len(distances["nodes"]) < 2:
        return "", None
    nodes, matrix = distances["nodes"], distances["matrix"]
    diagonal = [row[place] for place, row in enumerate(matrix)]
    others = [
        value
        for place, row in enumerate(matrix)
        for target, value in enumerate(row)
        if place != target
    ]
    if len({*diagonal}) == len({*others}) == 1:
        return f"{diagonal[0]:g} to itself, {others[0]:g} to every other node", None
    if len(nodes) > _MOST_IN_MATRIX:
        rows = [Counter(row) - Counter([row[place]]) for place, row in enumerate(matrix)]
        far = [f"{_range([row[it] for row in rows])} at {it:g}" for it in sorted({*others})]
        return f"{_range(diagonal)} to itself; from any one, {truncate_list(far, 24)}", None
    order = sorted(range(len(nodes)), key=lambda place: nodes[place])

    def distance(place: int, target: int) -> str:
        return f"{matrix[place][target]:g}"

    columns = [
        Field(heading=str(nodes[target]), value=partial(distance, target=target))
        for target in order
    ]
    first = Field(heading="from, to node", value=lambda place: nodes[place])
    return "", ViewTable(title="distances", rows=order, fields=[first, *columns], repeated=1)


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def _forbidden(document: Row) -> str:
    homeless = {it["cpu"] for it in document["cpus"] if it["node"] is None}
    texts = []
    for is_bare, why in ((True, "node has none"), (False, "node's memory is not allowed (cpuset)")):
        lost = [
            cpu
            for node in document["nodes"]
            if (node["memory_bytes"] == 0) is is_bare
            for cpu in node["cpus"]
            if cpu in homeless
        ]
        if lost:
            texts.append(f"{cpus_text(lost)}: their NUMA {why}, so all memory is remote")
    return "; ".join(texts)


def _binary(size_bytes: int) -> str:
    """Return a size of caches and pages: `48 KiB`, `35.75 MiB`."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >> bits:
            return f"{round(size_bytes / (1 << bits), 2):g} {unit}"
    return f"{size_bytes} B"
