"""A machine as text and as values for JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rater.plan.topology import PU, Cache, CpuKind, HwlocGroup, Node, NodeMemory, Topology
from rater.show.console import Column, Columns, table_lines, with_margin
from rater.show.format import align_columns, gigabytes_column, sanitize, wrap_text
from rater.text.cpuset import cpus_text, format_list
from rater.text.values import JsonFields, Table, count, join_and, objects, to_json

# -- A machine as its screens and its JSON see it: what belongs to which lgroup, core and cache ----


@dataclass(frozen=True)
class TopoView:
    """A machine and, when it is this one, the memory of its lgroups now (by OS number)."""

    topology: Topology
    now: Mapping[int, NodeMemory] = field(default_factory=dict)

    @cached_property
    def cores(self) -> dict[int, tuple[PU, ...]]:
        """All PUs by core, usable or not."""
        groups: dict[int, list[PU]] = defaultdict(list)
        for pu in self.topology.machine_pus:
            groups[pu.core].append(pu)
        return {core: tuple(pus) for core, pus in groups.items()}

    @cached_property
    def pus_of(self) -> dict[int | None, tuple[PU, ...]]:
        """All PUs by the node they belong to, None for those in no node.

        A node whose memory is forbidden is nobody's home but still has its CPUs.
        """
        forbidden = {
            cpu: node.os for node in self.topology.nodes if not node.allowed for cpu in node.cpus
        }
        groups: dict[int | None, list[PU]] = defaultdict(list)
        for pu in self.topology.machine_pus:
            home = pu.node if pu.node is not None else forbidden.get(pu.os)
            groups[home].append(pu)
        return {node: tuple(pus) for node, pus in groups.items()}

    @cached_property
    def llc_sizes(self) -> dict[int, int]:
        """Bytes of each last-level cache; 0 when not known."""
        pus = self.topology.machine_pus
        sizes = {pu.llc: 0 for pu in pus if pu.llc is not None}
        for level in (2, 3):  # an L3 is the last level where there is one
            for cache in self.topology.details.caches:
                llc = pus[cache.first].llc if cache.level == level and cache.count else None
                if llc is not None:
                    sizes[llc] = cache.size_bytes
        return sizes

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by OS number."""
        return tuple(sorted(self.topology.nodes, key=lambda node: node.os))

    def memory_bytes(self, node: Node) -> int:
        """Return the installed memory of a node, 0 when not known."""
        now = self.now.get(node.os)
        return node.memory_bytes if now is None else now.total_bytes

    def kept_out(self) -> list[tuple[tuple[int, ...], str]]:
        """Return CPUs that cannot be used, by reason."""
        topology, details = self.topology, self.topology.details
        usable = set(topology.by_cpu) | set(details.forbidden)
        rest = tuple(sorted(pu.os for pu in topology.machine_pus if pu.os not in usable))
        here = topology.is_this_system
        found = [
            (details.offline, f"offline{'' if here else ' or not allowed when the file was made'}"),
            (details.forbidden, "not allowed by a cpuset (cgroup, container, batch system)"),
            (rest, "not in the affinity of this process (taskset, or a parent that bound it)"),
        ]
        return [(cpus, why) for cpus, why in found if cpus]


def siblings(view: TopoView) -> Counter[tuple[int, ...]]:
    """Count cores by what their PUs' OS numbers are above the lowest of them."""
    found: Counter[tuple[int, ...]] = Counter()
    for pus in view.cores.values():
        numbers = sorted(pu.os for pu in pus)
        found[tuple(n - numbers[0] for n in numbers)] += 1
    return found


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


# -- A machine as text: lgroups, memory now, threads, caches, CPU kinds, distances -----------------

_MOST_ROWS = 128  # lgroups shown; --json has all
_MOST_IN_MATRIX = 16  # lgroups; more are summarised by distance
_MOST_ALIKE = 6  # sizes of one cache, patterns of siblings
_LEAST_CPUS = 16  # characters for a list of CPUs, however narrow the page
_LABEL = 11  # characters before the text of a line


def topo_lines(view: TopoView, width: int, *, ascii_only: bool = False) -> list[str]:
    """Return the machine for people, in lines of at most `width` characters."""
    lines = [*_head(view, width), ""]
    lines += _lgroup_table(view, width)
    if view.now:
        lines += ["", *_memory_table(view, width, ascii_only=ascii_only)]
    sections = [
        *_labelled("threads", _threads(view), width),
        *_labelled("caches", _caches(view), width),
        *_labelled("CPU kinds", _kinds(view), width),
        *_labelled("groups", _groups(view), width),
        *_labelled("distances", _distances(view, width - _LABEL), width),
        *_labelled("no memory", _homeless(view), width),
        *_labelled("not usable", _kept_out(view), width),
    ]
    lines += ["", *sections] if sections else []
    return [sanitize(line, ascii_only=ascii_only).rstrip() for line in lines]


def _head(view: TopoView, width: int) -> Iterator[str]:
    topology, details = view.topology, view.topology.details
    names = [details.product or "", " + ".join(details.cpu_models)]
    message = ", ".join(name for name in names if name) or details.architecture
    yield from wrap_text(topology.source + (f": {message}" if message else ""), width)
    pus = topology.machine_pus
    packages = len(packages_of(pus))
    bare = sum(not view.pus_of.get(node.os) for node in topology.nodes)
    lgroups = count(len(topology.nodes), "lgroup") + (f" ({bare} without CPUs)" if bare else "")
    parts = [
        count(packages, "package") if packages else "",
        lgroups,
        count(len(view.llc_sizes), "LLC") if view.llc_sizes else "",
        count(len(view.cores), "core") if details.has_cores else "",
        count(len(pus), "PU"),
        f"of which {len(topology.pus)} may be used" if len(topology.pus) < len(pus) else "",
    ]
    unknown = [
        name
        for name, known in (
            ("packages", packages),
            ("caches", view.llc_sizes),
            ("cores", details.has_cores),
            ("distances", topology.distances or len(topology.nodes) < 2),
        )
        if not known
    ]
    text = ", ".join(part for part in parts if part)
    if unknown:
        text += f"; not described: {', '.join(unknown)}"
    yield from wrap_text(text, width)


def _lgroup_table(view: TopoView, width: int) -> list[str]:
    shown = view.nodes[:_MOST_ROWS]
    rows = [(str(node.os), view.pus_of.get(node.os, ()), _note(view, node)) for node in shown]
    memory = [view.memory_bytes(node) or None for node in shown]
    if None in view.pus_of:
        rows.append(("none", view.pus_of[None], "(no memory of their own)"))
        memory.append(None)
    of = Columns(rows)
    columns = [
        of.right("lgroup", lambda row: row[0]),
        of.right("package", lambda row: format_list(packages_of(row[1])) or None, optional=2),
        of.right("cores", lambda row: _cores(view, row[1])),
        of.right("PUs", lambda row: _some_of(view, row[1])),
        of.left("LLC", lambda row: _llc(view, row[1]), optional=1),
        Column("memory|GB", gigabytes_column(memory), optional=3),
    ]
    columns = [column for column in columns if any(cell not in ("-", "") for cell in column.cells)]
    lines = table_lines(columns, width - _LEAST_CPUS - 2, ascii_only=False)
    taken = max(map(len, lines)) + 2
    room = max(_LEAST_CPUS, width - taken)
    head, body = lines[: -len(rows)], lines[-len(rows) :]
    found = [f"{head[0]:<{taken}}CPUs", *head[1:]]
    for begin, (_, pus, note) in zip(body, rows, strict=True):
        cpus = format_list(pu.os for pu in pus)
        texts = [*_broken(cpus, room)] if cpus else []
        if texts and note and len(texts[-1]) + len(note) + 2 <= room:
            texts[-1] += f"  {note}"
        elif note:
            texts += wrap_text(note, room, indent="")
        found += with_margin(begin, taken, texts)
    if len(view.nodes) > _MOST_ROWS:
        found.append(f"and {len(view.nodes) - _MOST_ROWS} more (--json has all)")
    return found


def _note(view: TopoView, node: Node) -> str:
    """Say what is special about a node: memory without CPUs, memory of another kind."""
    parts = [node.subtype] if node.subtype and node.subtype != "DRAM" else []
    if not view.pus_of.get(node.os):
        near = [n.os for n in view.nodes if n.default and set(n.cpus) & set(node.cpus)]
        parts.append(f"no CPUs; near lgroup {format_list(near)}" if near else "no CPUs")
    if not node.allowed:
        parts.append("memory not allowed")
    return f"({', '.join(parts)})" if parts else ""


def _memory_table(view: TopoView, width: int, *, ascii_only: bool) -> list[str]:
    now = list(view.now.values())[:_MOST_ROWS]
    columns = [
        Column("lgroup", [str(memory.node) for memory in now]),
        Column("installed|GB", gigabytes_column([m.total_bytes for m in now])),
        Column("free|GB", gigabytes_column([m.free_bytes for m in now])),
        Column("in huge|blocks GB", gigabytes_column([m.free_huge_order_bytes for m in now])),
        Column("page|cache GB", gigabytes_column([m.page_cache_bytes for m in now])),
        Column("dirty|GB", gigabytes_column([m.dirty_bytes for m in now]), optional=1),
    ]
    sizes = sorted({pool.size_bytes for memory in now for pool in memory.huge_pages})
    unused = []
    for size in sizes:
        pools = [next((p for p in m.huge_pages if p.size_bytes == size), None) for m in now]
        if any(pool is not None and pool.total for pool in pools):
            cells = ["-" if pool is None else f"{pool.free}/{pool.total}" for pool in pools]
            columns.append(Column((f"{_binary(size)} pages", "free/all"), cells))
        else:
            unused.append(_binary(size))
    lines = ["memory now", *table_lines(columns, width, ascii_only=ascii_only)]
    if unused:
        lines.append(f"no huge pages of {' or '.join(unused)} are set aside (hugetlb)")
    return lines


def _threads(view: TopoView) -> Iterator[str]:
    if not view.topology.details.has_cores:
        return  # each PU was taken for a core of its own
    patterns = siblings(view)
    by_threads: dict[int, list[tuple[tuple[int, ...], int]]] = defaultdict(list)
    for offsets, cores in patterns.most_common():
        by_threads[len(offsets)].append((offsets, cores))
    for threads in sorted(by_threads, reverse=True):
        found = by_threads[threads]
        cores = sum(n for _, n in found)
        who = "every core" if len(by_threads) == 1 else count(cores, "core")
        has = "has" if who == "every core" or cores == 1 else "have"
        if threads == 1:
            yield f"{who} {has} 1 (no SMT)"
        elif len(found) <= _MOST_ALIKE:
            how = " or ".join(_pattern(offsets) for offsets, _ in found)
            yield f"{who} {has} {threads}: CPUs {how}"
        else:
            yield f"{who} {has} {threads}, numbered without a rule (--json has them)"


def _pattern(offsets: Sequence[int]) -> str:
    names = ["n", *(f"n+{offset}" for offset in offsets[1:])]
    if offsets == tuple(range(len(offsets))) and len(offsets) > 2:
        return f"n to {names[-1]}"
    return join_and(names)


def _caches(view: TopoView) -> Iterator[str]:
    kinds: dict[tuple[int, str], Counter[tuple[int, int]]] = defaultdict(Counter)
    for cache in view.topology.details.caches:
        kinds[cache.level, cache.type][cache.size_bytes, cache.count] += 1
    rows = []
    for level, type_ in sorted(kinds, reverse=True):
        found = kinds[level, type_].most_common()
        name = f"L{level}{'d' if type_ == 'data' else ''}"
        for (size, pus), n in found[:_MOST_ALIKE]:
            each = "one for each PU" if pus == 1 else f"one for {pus} PUs"
            rows.append((name, _binary(size) if size else "?", f"x {n}", each))
        if len(found) > _MOST_ALIKE:
            rows.append((name, "...", "", f"{len(found) - _MOST_ALIKE} more of other kinds"))
    if rows:
        yield from align_columns(rows, (False, True, False, False))


def _kinds(view: TopoView) -> Iterator[str]:
    kinds = view.topology.details.kinds
    if len(kinds) < 2:
        return
    ranked = len({kind_rank(view, kind) for kind in kinds}) > 1
    order = sorted(kinds, key=lambda kind: (kind_rank(view, kind) or 0) if ranked else 0)
    yield "by speed, the slowest 0:" if ranked else "which is the fastest is not known:"
    for kind in order:
        members = set(kind.cpus)
        cores = {pu.core for pu in view.topology.machine_pus if pu.os in members}
        rank = str(kind_rank(view, kind)) if ranked else "-"
        lines = [count(len(cores), "core"), *_speed(dict(kind.infos))]
        yield f"{rank}  {cpus_text(kind.cpus)}: {', '.join(lines)}"


def _speed(infos: dict[str, str]) -> Iterator[str]:
    if "CoreType" in infos:
        yield infos["CoreType"]
    for name, words in (("FrequencyBaseMHz", "base"), ("FrequencyMaxMHz", "max")):
        if name in infos:
            yield f"{infos[name]} MHz {words}"
    if "LinuxCapacity" in infos:
        yield f"capacity {infos['LinuxCapacity']} of 1024"


def _groups(view: TopoView) -> Iterator[str]:
    found: Counter[str] = Counter()
    sizes: dict[str, set[int]] = defaultdict(set)
    for group in view.topology.details.groups:
        everything = group.count == len(view.topology.machine_pus)
        if group.subtype is None and (group.of_memory or everything):
            continue
        name = group.subtype or group.type
        if name == "Group":  # nested ones of different sizes are different things
            name = f"Group {group.count}"
        found[name] += 1
        sizes[name].add(group.count)
    lines = []
    for name, n in found.items():
        lines.append(f"{count(n, name.split()[0].lower())} of {_range(list(sizes[name]))} PUs")
    if lines:
        yield "; ".join(lines)


def _distances(view: TopoView, width: int) -> Iterator[str]:
    topology = view.topology
    matrix, nodes = topology.distances, topology.distance_nodes
    if matrix is None or len(nodes) < 2:
        return
    places = range(len(nodes))
    own = {matrix[i][i] for i in places}
    others = {matrix[i][j] for i in places for j in places if i != j}
    if len(own) == 1 and len(others) == 1:
        yield f"{own.pop():g} to itself, {others.pop():g} to every other lgroup"
        return
    order = sorted(places, key=lambda i: nodes[i])
    cells = [["to", *(str(nodes[i]) for i in order)]]
    cells += [[f"from {nodes[i]}", *(f"{matrix[i][j]:g}" for j in order)] for i in order]
    wide = max(len(cell) for row in cells for cell in row[1:]) + 2
    first = max(len(row[0]) for row in cells)
    if len(nodes) <= _MOST_IN_MATRIX and first + wide * len(nodes) <= width:
        for row in cells:
            yield f"{row[0]:>{first}}" + "".join(f"{cell:>{wide}}" for cell in row[1:])
        return
    yield from _levels(matrix)


def _levels(matrix: Sequence[Sequence[float]]) -> Iterator[str]:
    """Say how many lgroups lie at which distance from any one."""
    rows = [Counter(value for j, value in enumerate(row) if j != i) for i, row in enumerate(matrix)]
    own = sorted({row[i] for i, row in enumerate(matrix)})
    yield f"{_range(own)} to itself; to the other {len(matrix) - 1} lgroups, from any one:"
    values = sorted({value for row in rows for value in row})
    lines = [f"{_range([row[value] for row in rows])} at {value:g}" for value in values]
    if len(lines) > 4 * _MOST_ALIKE:
        lines = [*lines[: 4 * _MOST_ALIKE], f"and {len(lines) - 4 * _MOST_ALIKE} more distances"]
    yield ", ".join(lines)
    if any(matrix[i][j] != matrix[j][i] for i in range(len(matrix)) for j in range(i)):
        yield "not the same in both directions"


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}-{high:g}"


def _homeless(view: TopoView) -> Iterator[str]:
    nowhere = view.pus_of.get(None, ())
    lost = [pu for pu in view.topology.machine_pus if pu.node is None and pu not in nowhere]
    if lost:
        yield f"{cpus_text(pu.os for pu in lost)}: the memory of their lgroup is not allowed"


def _kept_out(view: TopoView) -> Iterator[str]:
    for cpus, why in view.kept_out():
        yield f"{cpus_text(cpus)}: {why}"


def _labelled(label: str, texts: Iterable[str], width: int) -> Iterator[str]:
    """Return the lines of a section, its name before the first."""
    room = max(_LEAST_CPUS, width - _LABEL)
    # Lists of CPUs are words of their own: they may break behind a comma.
    lines = [line for text in texts for line in _folded(text, room)]
    yield from with_margin(label, _LABEL, lines) if lines else ()


def _folded(text: str, room: int) -> list[str]:
    if len(text) <= room:
        return [text]
    lines: list[str] = []
    for line in wrap_text(text, room):
        lines += _broken(line, room) if len(line) > room else [line]
    return lines


def _broken(text: str, room: int) -> list[str]:
    """Break a list such as `0-3,8` behind commas into lines of at most `room` characters."""
    lines = [""]
    for piece in text.split(","):
        longer = f"{lines[-1]},{piece}" if lines[-1] else piece
        if len(longer) <= room - 1 or not lines[-1]:
            lines[-1] = longer
        else:
            lines[-1] += ","
            lines.append(piece)
    return lines


def _cores(view: TopoView, pus: Sequence[PU]) -> str:
    return str(len({pu.core for pu in pus})) if view.topology.details.has_cores else "-"


def _some_of(view: TopoView, pus: Sequence[PU]) -> str:
    usable = sum(pu.os in view.topology.by_cpu for pu in pus)
    return str(len(pus)) if usable == len(pus) else f"{usable} of {len(pus)}"


def _llc(view: TopoView, pus: Sequence[PU]) -> str:
    """Return `2 x 32 MiB`; `shared 39 MiB` for a cache that serves other lgroups as well."""
    inside = {pu.os for pu in pus}
    llcs = {pu.llc for pu in pus if pu.llc is not None}
    if not llcs:
        return "-"
    sizes = Counter(view.llc_sizes[llc] for llc in llcs)
    others = (pu for pu in view.topology.machine_pus if pu.llc in llcs and pu.os not in inside)
    size = _binary(max(sizes)) if max(sizes) else ""
    if len(llcs) == 1 and any(others):
        return f"shared {size}".rstrip()
    if len(llcs) == len(sizes) > 1 and all(sizes):
        return " and ".join(_binary(one) for one in sorted(sizes))
    if len(sizes) > 1 and min(sizes):
        size = f"{_binary(min(sizes))} to {size}"
    return f"{len(llcs)} x {size}" if size else str(len(llcs))


def _binary(size_bytes: int) -> str:
    """Return a size of caches and pages: `48 KiB`, `35.75 MiB`."""
    for unit, bits in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >> bits:
            return f"{round(size_bytes / (1 << bits), 2):g} {unit}"
    return f"{size_bytes} B"
