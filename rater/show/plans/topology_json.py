"""A machine as values for JSON."""

from __future__ import annotations

from collections.abc import Iterable

from rater.plan.topology.lgroup_memory import LgroupMemory
from rater.plan.topology.model import PU, Cache, CpuKind, HwlocGroup, Node
from rater.show.plans.topology_view import TopoView, kind_rank, packages_of, siblings
from rater.text.to_json import Members, Table, objects, to_json


def topo_document(view: TopoView) -> dict[str, object]:
    """Return the JSON document of a machine.

    CPUs and nodes by OS number; `logical`, `core`, `package` and `llc` are hwloc's
    logical indexes (an `llc` index is unique over L3 and L2), `thread` counts the
    PUs of a core from 0, `kind` ranks CPU kinds from 0, the slowest. `cpus` lists
    all PUs, usable or not, `nodes` all lgroups, both by OS number. `now` is null for
    a machine that is not this one. Bytes and pages are whole numbers; null: unknown.
    """
    topology, details = view.topology, view.topology.details
    pus = sorted(topology.machine_pus, key=lambda pu: pu.os)
    document: dict[str, object] = {
        "source": topology.source,
        "this_machine": topology.is_this_system,
        "product": details.product,
        "cpu_models": details.cpu_models,
        "architecture": details.architecture or None,
        "counts": {
            "packages": len(packages_of(pus)),
            "lgroups": len(topology.nodes),
            "llcs": len(view.llc_sizes),
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
    values: dict[str, object] = to_json(document, _table(view))
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
            "memory_bytes": view.memory_bytes(node) or None,
        }

    def covered(span: Cache | HwlocGroup) -> list[int]:
        return _numbers(view.topology.machine_pus[span.first : span.first + span.count])

    return {
        Node: Members(
            "node=os logical",
            {"*": members_of},
            "subtype default allowed",
            {"now": lambda node: view.now.get(node.os)},
        ),
        LgroupMemory: Members(
            "free_bytes page_cache_bytes dirty_bytes free_huge_order_bytes huge_pages"
        ),
        PU: Members(
            "cpu=os logical core thread=rank node package llc kind",
            {"usable": lambda pu: pu.os in usable},
        ),
        Cache: Members("level type size_bytes?", {"cpus": covered}),
        CpuKind: Members({"kind": lambda kind: kind_rank(view, kind)}, "cpus infos{}"),
        HwlocGroup: Members("type subtype of_memory", {"cpus": covered}),
    }


def _numbers(pus: Iterable[PU]) -> list[int]:
    return sorted(pu.os for pu in pus)
