"""Read hwloc's XML (version 2 and 3) into a `Topology`.

Our own reader over expat, because hwloc's gives no position in its errors,
accepts contradictory files and crashes on some valid ones. Every mistake in a
file becomes an `InputError` that begins with `FILE:LINE:`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rater.errors import InputError
from rater.plan.topology.build import RawDistances, RawKind, RawNode, RawPU, build
from rater.plan.topology.details import Span, details_of
from rater.plan.topology.model import Topology
from rater.plan.topology.xml_elements import Element, File
from rater.text import cpuset

_COUNTED_TYPES = ("Package", "L3Cache", "L2Cache", "Core")
_MEANS_LATENCY = 4  # HWLOC_DISTANCES_KIND_MEANS_LATENCY
_MOST_NODES_A_CPU = 64  # DRAM, HBM, PMEM, CXL: three or four; bounds the time of a hostile file
_MOST_MEMORY_BYTES = 1 << 60
_MOST_NODES = 1024  # in a matrix
_EVERYTHING = ~0


def parse_xml(
    text: str | bytes,
    source: str,
    *,
    usable: frozenset[int] | None = None,
    is_this_system: bool = False,
) -> Topology:
    """Return the machine that an hwloc XML file describes.

    `source` is what the file is called in errors. The PUs that may be used are
    those of the file that its `allowed_cpuset` and `usable` (OS numbers, None:
    all) have in common. Raises `InputError` for everything that is not a whole
    and consistent hwloc XML file of version 2 or 3.
    """
    file = File(source)
    file.read(text)
    if file.root is None:
        raise InputError(f"{source}:1: no <object> in the file, expected a Machine")
    tree = _Tree(file.root)
    nodes = _nodes(tree)
    allowed = tree.mask & file.root.mask("allowed_cpuset", _EVERYTHING)
    may = allowed if usable is None else allowed & cpuset.mask_of(usable)
    if not may:
        listed = cpuset.format_list(cpuset.numbers_of(allowed)) or "none"
        file.root.fail(
            f": none of its {len(tree.pus)} CPUs may be used (allowed_cpuset: {listed}), "
            "expected at least one"
        )
    kinds = _kinds(file.kinds, tree)
    details = details_of(file, tree.spans, kinds, machine=tree.mask, allowed=allowed)
    return build(
        tree.pus,
        nodes,
        usable=may,
        allowed_nodes=file.root.mask("allowed_nodeset", _EVERYTHING),
        source=source,
        kinds=kinds,
        architecture=details.architecture,
        distances=_distances(file.matrices, tree, {node.os for node in nodes}),
        is_this_system=is_this_system,
        details=details,
    )


class _Tree:
    """The PUs and NUMA nodes below a Machine in logical order.

    Siblings are ordered by the first CPU of their complete_cpuset, and a parent's
    memory comes after its CPUs: that is how hwloc numbers.
    """

    def __init__(self, root: Element) -> None:
        self.root = root
        self.pus: list[RawPU] = []
        self.nodes: list[Element] = []
        self.mask = 0  # of all PUs
        self.spans: list[Span] = []  # objects above PUs; outer before inner ones
        self._counts = dict.fromkeys(_COUNTED_TYPES, 0)
        self._cpus(root, {})
        if not self.pus:
            root.fail(" has no PU below it, expected at least one")

    def _cpus(self, element: Element, above: dict[str, int]) -> None:
        kind = element.type
        if kind == "PU":
            if element.children:
                element.children[0].fail(" lies inside a PU, expected nothing there but memory")
            self._pu(element, above)
            self._memory(element)
            return
        if kind in self._counts:
            if kind in above:
                element.fail(f" lies inside another {kind}, expected it beside")
            above = above | {kind: self._counts[kind]}
            self._counts[kind] += 1
        first, place = len(self.pus), len(self.spans)
        for child in _ordered(element.children, "cpuset"):
            self._cpus(child, above)
        self.spans.insert(place, Span(element, first, len(self.pus) - first))
        self._memory(element)

    def _memory(self, element: Element) -> None:
        for child in _ordered(element.memory_children, "nodeset"):
            if child.type == "NUMANode":
                self.nodes.append(child)
            self._memory(child)

    def _pu(self, element: Element, above: dict[str, int]) -> None:
        os = element.os_index()
        bit = 1 << os
        if self.mask & bit:
            element.fail(f": os_index={os} is there twice, expected each PU once")
        if element.mask("cpuset", bit) != bit:
            element.fail(
                f": cpuset={element.attributes['cpuset'][:60]!r}, expected the bitmap of "
                f"os_index={os} alone"
            )
        self.mask |= bit
        get = above.get
        self.pus.append(RawPU(os, get("Core"), get("Package"), get("L3Cache"), get("L2Cache")))


def _ordered(elements: list[Element], name: str) -> list[Element]:
    """Return siblings by the lowest number of their complete (or plain) set; without a set last."""
    if len(elements) < 2:
        return elements

    def first(element: Element) -> float:
        mask = element.mask(f"complete_{name}", 0) or element.mask(name, 0)
        return (mask & -mask).bit_length() if mask else float("inf")

    return sorted(elements, key=first)


def _nodes(tree: _Tree) -> list[RawNode]:
    found: dict[int, RawNode] = {}
    for element in tree.nodes:
        os = element.os_index()
        if os in found:
            element.fail(f": os_index={os} is there twice, expected each node once")
        cpus = element.mask("cpuset")
        if cpus & ~tree.mask:
            listed = cpuset.format_list(cpuset.numbers_of(cpus & ~tree.mask))
            element.fail(f": cpuset names CPUs {listed[:60]}, expected CPUs that have a PU object")
        memory = element.number("local_memory", 0)
        if not 0 <= memory <= _MOST_MEMORY_BYTES:
            element.fail(f": local_memory={memory}, expected bytes, 0 to 2^60")
        found[os] = RawNode(os, cpus, memory, element.subtype())
    if not found:
        tree.root.fail(" has no NUMANode below it, expected at least one")
    if sum(node.cpus.bit_count() for node in found.values()) > _MOST_NODES_A_CPU * len(tree.pus):
        tree.root.fail(
            f": its {len(tree.pus)} CPUs lie in more than {_MOST_NODES_A_CPU} NUMA nodes each, "
            "expected one to four"
        )
    return list(found.values())


def _kinds(elements: Sequence[Element], tree: _Tree) -> list[RawKind]:
    if len(elements) > len(tree.pus):
        elements[-1].fail(f" is one of {len(elements)}, expected no more than there are PUs")
    kinds = [
        RawKind(element.mask("cpuset"), element.number("forced_efficiency", -1), element.infos)
        for element in elements
    ]
    if sum(kind.cpus.bit_count() for kind in kinds) > _MOST_NODES_A_CPU * len(tree.pus):
        elements[-1].fail(f": the CPUs are of more than {_MOST_NODES_A_CPU} kinds, expected one")
    return kinds


def _distances(matrices: Sequence[Element], tree: _Tree, known: set[int]) -> RawDistances | None:
    """Return NUMALatency between NUMA nodes; hwloc 1 and hand-made files may leave its name out."""
    between_nodes = [m for m in matrices if m.attributes.get("type") == "NUMANode"]
    for element in between_nodes:
        if element.attributes.get("name") == "NUMALatency":
            return _matrix(element, tree, known)
    for element in between_nodes:
        if not element.attributes.get("name") and element.number("kind", 0) & _MEANS_LATENCY:
            return _matrix(element, tree, known)
    return None


def _matrix(element: Element, tree: _Tree, known: set[int]) -> RawDistances:
    n = element.number("nbobjs")
    if n > _MOST_NODES:
        element.fail(f": nbobjs={n}, expected at most {_MOST_NODES} nodes, the limit of Linux")
    indexes = "".join(element.texts.get("indexes", ())).split(maxsplit=max(0, n))
    values = "".join(element.texts.get("u64values", ())).split(maxsplit=n * n)
    if n < 1 or len(indexes) != n or len(values) != n * n:
        element.fail(
            f": {len(indexes)} indexes and {len(values)} values for nbobjs={n}, "
            "expected nbobjs indexes and nbobjs x nbobjs values"
        )
    for text in (*indexes, *values):
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            element.fail(f": {text[:40]!r} among its numbers, expected digits")
    nodes = [int(text) for text in indexes]
    if element.attributes.get("indexing", "os") == "gp":
        by_gp = {node.number("gp_index", -1): node.os_index() for node in tree.nodes}
        nodes = [by_gp.get(gp, -1) for gp in nodes]
    if len(set(nodes)) < n or not known.issuperset(nodes):
        element.fail(": its indexes are not those of NUMA nodes, expected each node at most once")
    rows = [tuple(float(text) for text in values[i : i + n]) for i in range(0, n * n, n)]
    return RawDistances(tuple(nodes), tuple(rows))
