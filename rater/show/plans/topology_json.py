"""A machine as values for JSON."""

from __future__ import annotations

from rater.plan.topology.model import PU, Cache, Group, Node
from rater.show.plans.topology_view import TopoView, kind_rank, packages_of, siblings


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
    return {
        "source": topology.source,
        "this_machine": topology.is_this_system,
        "product": details.product,
        "cpu_models": list(details.cpu_models),
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
        "nodes": [_node_json(view, node) for node in view.nodes],
        "cpus": [_pu_json(pu, usable=pu.os in topology.by_cpu) for pu in pus],
        "cpus_without_node": sorted(pu.os for pu in view.pus_of.get(None, ())),
        "not_usable": [{"cpus": list(cpus), "reason": why} for cpus, why in view.kept_out()],
        "siblings": [
            {"threads": len(offsets), "offsets": list(offsets), "cores": cores}
            for offsets, cores in siblings(view).most_common()
        ],
        "caches": [_cache_json(view, cache) for cache in details.caches],
        "kinds": [
            {
                "kind": kind_rank(view, kind),
                "cpus": list(kind.cpus),
                "infos": dict(kind.infos),
            }
            for kind in details.kinds
        ],
        "groups": [
            {"type": g.type, "subtype": g.subtype, "of_memory": g.of_memory, "cpus": _cpus(view, g)}
            for g in details.groups
        ],
        "distances": None
        if topology.distances is None
        else {
            "nodes": list(topology.distance_nodes),
            "matrix": [list(row) for row in topology.distances],
        },
    }


def _node_json(view: TopoView, node: Node) -> dict[str, object]:
    pus = view.pus_of.get(node.os, ())
    now = view.now.get(node.os)
    return {
        "node": node.os,
        "logical": node.logical,
        "cpus": sorted(pu.os for pu in pus),
        "usable_cpus": sorted(pu.os for pu in pus if pu.os in view.topology.by_cpu),
        "near_cpus": list(node.cpus),
        "packages": packages_of(pus),
        "cores": sorted({pu.core for pu in pus}),
        "llcs": sorted({pu.llc for pu in pus if pu.llc is not None}),
        "memory_bytes": view.memory_bytes(node) or None,
        "subtype": node.subtype,
        "default": node.default,
        "allowed": node.allowed,
        "now": None
        if now is None
        else {
            "free_bytes": now.free_bytes,
            "page_cache_bytes": now.page_cache_bytes,
            "dirty_bytes": now.dirty_bytes,
            "free_huge_order_bytes": now.free_huge_order_bytes,
            "huge_pages": [
                {"size_bytes": p.size_bytes, "total": p.total, "free": p.free}
                for p in now.huge_pages
            ],
        },
    }


def _pu_json(pu: PU, *, usable: bool) -> dict[str, object]:
    return {
        "cpu": pu.os,
        "logical": pu.logical,
        "core": pu.core,
        "thread": pu.rank,
        "node": pu.node,
        "package": pu.package,
        "llc": pu.llc,
        "kind": pu.kind,
        "usable": usable,
    }


def _cache_json(view: TopoView, cache: Cache) -> dict[str, object]:
    return {
        "level": cache.level,
        "type": cache.type,
        "size_bytes": cache.size_bytes or None,
        "cpus": _cpus(view, cache),
    }


def _cpus(view: TopoView, span: Cache | Group) -> list[int]:
    pus = view.topology.machine_pus[span.first : span.first + span.count]
    return sorted(pu.os for pu in pus)
