"""hwloc's XML (version 2 and 3) as a `Topology`, and what else it says of a machine; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NoReturn
from xml.parsers import expat

from msgspec import Struct, field

from rater.plan.topology import (
    Cache,
    CpuKind,
    Details,
    HwlocGroup,
    RawDistances,
    RawKind,
    RawNode,
    RawPU,
    Topology,
    build_topology,
    merge_kinds,
)
from rater.system.errors import InputError
from rater.system.patterns import compile_later
from rater.text import cpuset
from rater.text.values import printable

# -- The elements of an hwloc XML file that matter, read by expat, each with its place in the file -

_LONGEST_SUBTYPE = 24
_DEEPEST = 200  # a real machine has about 25 levels; the tree is walked by recursion
# More than 16384 PUs with cores and three caches each have; they bound the time and the memory
# that a hostile file takes.
_MOST_ELEMENTS = 400_000
_MOST_OBJECTS = 120_000
_MOST_ATTRIBUTES = 1_000_000
_MOST_MATRICES = 1000
_ENCODINGS = ("UTF-8", "UTF-16", "ISO-8859-1", "US-ASCII")  # that expat itself reads
# XML allows no declaration behind a blank line, which a copied text may have. It is blanked out, so
# that lines keep their numbers.
_LATE_DECLARATION = compile_later(rb"\A(\s+)<\?xml [^<>?\r\n]{0,100}\?>")
_MEMORY_TYPES = ("NUMANode", "MemCache")
_NO_CPUS_TYPES = ("Misc", "Bridge", "PCIDev", "OSDev")  # their CPUs are those of their parent
_parse_bitmap = lru_cache(maxsize=256)(cpuset.parse_bitmap)  # neighbours repeat each other's sets


class Element(Struct, kw_only=True):
    """One element of the file that matters, with helpers whose errors name its place."""

    source: str
    line: int
    tag: str  # for people: "object PU", "cpukind"
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)  # objects
    memory_children: list[Element] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)  # of indexes and u64values
    infos: dict[str, str] = field(default_factory=dict)  # of <info>; the first of a name counts

    def fail(self, message: str) -> NoReturn:
        """Raise the error of this place; `message` goes on after the tag."""
        raise InputError(f"{self.source}:{self.line}: {self.tag}{message}")

    def number(self, name: str, default: int | None = None) -> int:
        """Return the whole number in an attribute; without a default it must be there."""
        text = self._attribute(name, None if default is None else str(default), "a number")
        digits = text.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            self.fail(f": {name}={text[:60]!r}, expected a number")
        return int(text)

    def mask(self, name: str, default: int | None = None) -> int:
        """Return the mask of the bitmap in an attribute; without a default it must be there."""
        if default is not None and name not in self.attributes:
            return default
        try:
            return _parse_bitmap(self._attribute(name, None, "a bitmap"))
        except ValueError as error:
            self.fail(f": {name}: {error}")

    def _attribute(self, name: str, default: str | None, expected: str) -> str:
        text = self.attributes.get(name, default)
        if text is None:
            self.fail(f" has no {name}, expected {name}= and {expected}")
        return text

    @property
    def type(self) -> str:
        """The type of an object."""
        return self.attributes["type"]

    def subtype(self) -> str | None:
        """Return what hwloc calls a special node or group, cut where it is long."""
        return short(self.attributes.get("subtype", ""), _LONGEST_SUBTYPE) or None

    def os_index(self) -> int:
        """Return the OS number of a PU or node."""
        number = self.number("os_index")
        if not 0 <= number <= cpuset.MAX_NUMBER:
            self.fail(f": os_index={number}, expected 0 to {cpuset.MAX_NUMBER}")
        return number


def short(text: str, longest: int = 64) -> str:
    """Return a name that a file gives to something, cut where it is longer than people's are."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


class File:
    """The elements of one file that matter, as expat meets them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.open: list[Element | None] = []  # None: an element that does not matter
        self.root: Element | None = None
        self.matrices: list[Element] = []
        self.kinds: list[Element] = []
        self.infos: dict[str, str] = {}  # of the file as a whole (version 3)
        self.elements = 0
        self.objects = 0
        self.text: list[str] | None = None  # where character data goes, None: nowhere

    def read(self, text: str | bytes) -> None:
        """Read a whole file; raises `InputError` with the line of what is wrong."""
        self.parser = expat.ParserCreate("utf-8" if isinstance(text, str) else None)
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.XmlDeclHandler = self._declaration
        try:
            data = text.encode("utf-8", "replace") if isinstance(text, str) else text
            data = _LATE_DECLARATION.sub(rb"\1", data)
            if data.count(b"=") > _MOST_ATTRIBUTES:
                self._fail(1, f"more than {_MOST_ATTRIBUTES} attributes, expected an hwloc file")
            self.parser.Parse(data, True)
        except expat.ExpatError as error:
            self._fail(
                error.lineno,
                f"not well-formed XML ({expat.ErrorString(error.code)}), "
                "expected a whole hwloc XML file",
            )

    def _fail(self, line: int, message: str) -> NoReturn:
        raise InputError(f"{self.source}:{line}: {message}")

    def _declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        # For others expat asks Python, whose codecs warn, fail in their own ways, or are no text.
        if encoding is not None and encoding.upper() not in _ENCODINGS:
            self._fail(
                self.parser.CurrentLineNumber,
                f"encoding={encoding[:40]!r}, expected hwloc XML in UTF-8",
            )

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if internal:  # the only place where entities, and so their explosion, can be declared
            self._fail(
                self.parser.CurrentLineNumber,
                "the DOCTYPE has declarations of its own, "
                'expected <!DOCTYPE topology SYSTEM "hwloc2.dtd"> or none',
            )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        line = self.parser.CurrentLineNumber
        if len(self.open) >= _DEEPEST:
            self._fail(line, f"<{tag}> lies more than {_DEEPEST} deep, expected an hwloc file")
        parent = self.open[-1] if self.open else None
        self.elements += 1
        if self.elements > _MOST_ELEMENTS:
            self._fail(line, f"more than {_MOST_ELEMENTS} elements, expected an hwloc file")
        new: Element | None = None
        if not self.open:
            self._topology(tag, attributes, line)
        elif tag == "object":
            new = self._object(parent, attributes, line)
        elif tag == "distances2" and len(self.open) == 1:
            new = Element(source=self.source, line=line, tag=tag, attributes=attributes)
            if len(self.matrices) == _MOST_MATRICES:
                new.fail(f" is one of more than {_MOST_MATRICES}, expected a few")
            self.matrices.append(new)
        elif tag == "cpukind" and len(self.open) == 1:
            new = Element(source=self.source, line=line, tag=tag, attributes=attributes)
            self.kinds.append(new)
        elif tag in ("indexes", "u64values") and parent is not None and parent.tag == "distances2":
            self.text = parent.texts.setdefault(tag, [])
        elif tag == "info":
            self._info(parent, attributes)
        self.open.append(new)

    def _end(self, tag: str) -> None:
        if self.text is not None:
            self.text.append(" ")  # numbers of two blocks do not run together
            self.text = None
        self.open.pop()

    def _characters(self, data: str) -> None:
        if self.text is not None:
            self.text.append(data)

    def _topology(self, tag: str, attributes: dict[str, str], line: int) -> None:
        if tag != "topology":
            self._fail(line, f"found <{tag[:40]}>, expected <topology> of an hwloc XML file")
        version = attributes.get("version", "1")
        major = version.partition(".")[0]
        if major in ("0", "1"):
            self._fail(
                line,
                "this is the format of hwloc 1.x, expected version 2 or 3: convert it with "
                "`lstopo --input OLD.xml NEW.xml` of hwloc 2.x",
            )
        if major not in ("2", "3"):
            self._fail(
                line,
                f"<topology version={version[:20]!r}>, expected version 2 or 3, such as "
                "`lstopo --export-xml-flags v2` writes",
            )

    def _object(
        self, parent: Element | None, attributes: dict[str, str], line: int
    ) -> Element | None:
        kind = attributes.get("type")
        if not kind:
            self._fail(line, "<object> has no type, expected type=")
        self.objects += 1
        if self.objects > _MOST_OBJECTS:
            self._fail(line, f"more than {_MOST_OBJECTS} objects, expected an hwloc file")
        new = Element(
            source=self.source,
            line=line,
            tag=f"object {printable(kind[:40])}",
            attributes=attributes,
        )
        if parent is not None:
            if kind in _NO_CPUS_TYPES:
                return None
            (parent.memory_children if kind in _MEMORY_TYPES else parent.children).append(new)
            return new
        if len(self.open) > 1:
            return None  # inside a device
        if self.root is not None:
            new.fail(" is a second outermost object, expected one Machine")
        if kind != "Machine":
            new.fail(" is the outermost object, expected a Machine")
        self.root = new
        return new

    def _info(self, parent: Element | None, attributes: dict[str, str]) -> None:
        """Keep what an <info> says of its element; version 3 says some of it of the whole file."""
        infos = self.infos if len(self.open) == 1 else parent.infos if parent is not None else {}
        infos.setdefault(attributes.get("name", ""), attributes.get("value", ""))


# -- Read hwloc's XML (version 2 and 3) into a `Topology` ------------------------------------------
#
# Our own reader over expat, because hwloc's gives no position in its errors,
# accepts contradictory files and crashes on some valid ones. Every mistake in a
# file becomes an `InputError` that begins with `FILE:LINE:`.

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
    return build_topology(
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
        self.pus.append(
            RawPU(
                os=os,
                core=get("Core"),
                package=get("Package"),
                l3=get("L3Cache"),
                l2=get("L2Cache"),
            )
        )


def _ordered(elements: list[Element], name: str) -> list[Element]:
    if len(elements) < 2:
        return elements

    def first(element: Element) -> float:
        mask = element.mask(f"complete_{name}", 0) or element.mask(name, 0)
        return (mask & -mask).bit_length() if mask else float("inf")

    return sorted(elements, key=first)


def _nodes(tree: _Tree) -> list[RawNode]:
    nodes: dict[int, RawNode] = {}
    for element in tree.nodes:
        os = element.os_index()
        if os in nodes:
            element.fail(f": os_index={os} is there twice, expected each node once")
        cpus = element.mask("cpuset")
        if cpus & ~tree.mask:
            listed = cpuset.format_list(cpuset.numbers_of(cpus & ~tree.mask))
            element.fail(f": cpuset names CPUs {listed[:60]}, expected CPUs that have a PU object")
        memory = element.number("local_memory", 0)  # which hwloc leaves out where there is none
        if not 0 <= memory <= _MOST_MEMORY_BYTES:
            element.fail(f": local_memory={memory}, expected bytes, 0 to 2^60")
        nodes[os] = RawNode(os, cpus, memory, element.subtype())
    if not nodes:
        tree.root.fail(" has no NUMANode below it, expected at least one")
    if sum(node.cpus.bit_count() for node in nodes.values()) > _MOST_NODES_A_CPU * len(tree.pus):
        tree.root.fail(
            f": its {len(tree.pus)} CPUs lie in more than {_MOST_NODES_A_CPU} NUMA nodes each, "
            "expected one to four"
        )
    return list(nodes.values())


def _kinds(elements: Sequence[Element], tree: _Tree) -> list[RawKind]:
    if len(elements) > len(tree.pus):
        elements[-1].fail(f" is one of {len(elements)}, expected no more than there are PUs")
    kinds = [
        RawKind(element.mask("cpuset"), element.number("forced_efficiency", -1), element.infos)
        for element in elements
    ]
    if sum(kind.cpus.bit_count() for kind in kinds) > _MOST_NODES_A_CPU * len(tree.pus):
        elements[-1].fail(f": the CPUs are of more than {_MOST_NODES_A_CPU} kinds, expected one")
    return merge_kinds(kinds)


def _distances(
    matrices: Sequence[Element], tree: _Tree, node_numbers: set[int]
) -> RawDistances | None:
    """Return NUMALatency between NUMA nodes; hwloc 1 and hand-made files may leave its name out."""
    between_nodes = [matrix for matrix in matrices if matrix.attributes.get("type") == "NUMANode"]
    for element in between_nodes:
        if element.attributes.get("name") == "NUMALatency":
            return _matrix(element, tree, node_numbers)
    for element in between_nodes:
        if not element.attributes.get("name") and element.number("kind", 0) & _MEANS_LATENCY:
            return _matrix(element, tree, node_numbers)
    return None


def _matrix(element: Element, tree: _Tree, node_numbers: set[int]) -> RawDistances:
    size = element.number("nbobjs")
    if size > _MOST_NODES:
        element.fail(f": nbobjs={size}, expected at most {_MOST_NODES} nodes, the limit of Linux")
    indexes = "".join(element.texts.get("indexes", ())).split(maxsplit=max(0, size))
    values = "".join(element.texts.get("u64values", ())).split(maxsplit=size * size)
    if size < 1 or len(indexes) != size or len(values) != size * size:
        element.fail(
            f": {len(indexes)} indexes and {len(values)} values for nbobjs={size}, "
            "expected nbobjs indexes and nbobjs x nbobjs values"
        )
    for text in (*indexes, *values):
        if not (text.isascii() and text.isdigit() and len(text) <= 20):
            element.fail(f": {text[:40]!r} among its numbers, expected digits")
    nodes = [int(text) for text in indexes]
    if element.attributes.get("indexing", "os") == "gp":
        by_gp = {node.number("gp_index", -1): node.os_index() for node in tree.nodes}
        nodes = [by_gp.get(gp, -1) for gp in nodes]
    if len(set(nodes)) < size or not node_numbers.issuperset(nodes):
        element.fail(": its indexes are not those of NUMA nodes, expected each node at most once")
    rows = [
        tuple(float(text) for text in values[begin : begin + size])
        for begin in range(0, size * size, size)
    ]
    return RawDistances(tuple(nodes), tuple(rows))


# -- What an hwloc XML file says of a machine beyond what placement needs: names, caches, groups ---

# Not those of instructions (L1iCache): hwloc itself leaves them out unless asked.
_CACHE = compile_later("L[1-5]Cache")
_DATA_CACHE = 1  # HWLOC_OBJ_CACHE_DATA
_FIRST_WITH_KINDS = (2, 4)  # version of hwloc
_MEMORY_GROUP = 1001  # HWLOC_GROUP_KIND_MEMORY
_LARGEST_CACHE_BYTES = 1 << 50
# What boards say that nobody gave a name.
_PLACEHOLDERS = ("o.e.m.", "default string", "not specified", "system product name", "system manuf")


class Span(Struct, frozen=True):
    """An object and the PUs below it: they follow each other in logical order."""

    element: Element
    first: int
    count: int


def details_of(
    file: File, spans: Sequence[Span], kinds: Sequence[RawKind], *, machine: int, allowed: int
) -> Details:
    """Return the details of a file; `machine` and `allowed` are masks of OS numbers.

    `spans` has what PUs lie in, outer objects before inner ones. Raises `InputError`
    for a number that is none.
    """
    root = file.root
    infos = (root.infos if root is not None else {}) | file.infos
    everything = root.mask("complete_cpuset", machine) if root is not None else machine
    packages = (span.element.infos for span in spans if span.element.type == "Package")
    caches = [_cache(span) for span in spans if _CACHE.fullmatch(span.element.type)]
    return Details(
        cpu_models=_models([*packages, infos]),
        product=_product(infos),
        architecture=short(infos.get("Architecture", "")),
        has_cores=any(span.element.type == "Core" for span in spans),
        caches=tuple(cache for cache in caches if cache.count),
        groups=tuple(
            HwlocGroup(
                type=span.element.type,
                subtype=span.element.subtype(),
                of_memory=span.element.number("kind", 0) == _MEMORY_GROUP,
                first=span.first,
                count=span.count,
            )
            for span in spans
            if span.element.type in ("Die", "Group")
        ),
        kinds=tuple(
            CpuKind(
                cpuset.numbers_of(kind.cpus & machine),
                tuple((short(name), short(value)) for name, value in kind.infos.items()),
            )
            for kind in kinds
            if kind.cpus & machine
        ),
        has_kinds=bool(kinds) or _looks_for_kinds(infos),
        offline=cpuset.numbers_of(everything & ~machine),
        forbidden=cpuset.numbers_of(machine & ~allowed),
    )


def _looks_for_kinds(infos: Mapping[str, str]) -> bool:
    """Tell whether the hwloc that wrote a file knew kinds of CPUs: since version 2.4."""
    version = re.match(r"(\d{1,3})\.(\d{1,3})", infos.get("hwlocVersion", ""), re.ASCII)
    return version is not None and (int(version[1]), int(version[2])) >= _FIRST_WITH_KINDS


def _cache(span: Span) -> Cache:
    element = span.element
    type_ = "data" if element.number("cache_type", 0) == _DATA_CACHE else "unified"
    size = element.number("cache_size", 0)
    if not 0 <= size <= _LARGEST_CACHE_BYTES:
        element.fail(f": cache_size={size}, expected bytes, 0 to 2^50")
    return Cache(
        level=int(element.type[1]), type=type_, size_bytes=size, first=span.first, count=span.count
    )


def _models(infos: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    models = (short(" ".join(info.get("CPUModel", "").split())) for info in infos)
    return tuple(dict.fromkeys(model for model in models if model))


def _product(infos: Mapping[str, str]) -> str | None:
    maker = _name(infos.get("DMISysVendor")) or _name(infos.get("DMIBoardVendor"))
    name = (
        _name(infos.get("DMIProductName"))
        or _name(infos.get("PlatformModel"))
        or _name(infos.get("DMIBoardName"))
    )
    if maker and name and name.casefold().startswith(maker.casefold()):
        return name
    return " ".join(text for text in (maker, name) if text) or None


def _name(text: str | None) -> str:
    name = short(" ".join((text or "").split()))
    worthless = not any(sign.isalnum() for sign in name) or name == "None"
    is_placeholder = any(placeholder in name.casefold() for placeholder in _PLACEHOLDERS)
    return "" if worthless or is_placeholder else name
