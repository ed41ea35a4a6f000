"""What an hwloc XML file says of a machine beyond what placement needs: names, caches, groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rater.plan.topology.build import RawKind
from rater.plan.topology.model import Cache, CpuKind, Details, HwlocGroup
from rater.plan.topology.xml_elements import Element, File, short
from rater.text import cpuset

# Not those of instructions (L1iCache): hwloc itself leaves them out unless asked.
_CACHE = re.compile("L[1-5]Cache")
_DATA_CACHE = 1  # HWLOC_OBJ_CACHE_DATA
_MEMORY_GROUP = 1001  # HWLOC_GROUP_KIND_MEMORY
_LARGEST_CACHE_BYTES = 1 << 50
# What boards say that nobody gave a name.
_PLACEHOLDERS = ("o.e.m.", "default string", "not specified", "system product name", "system manuf")


@dataclass(frozen=True, slots=True)
class Span:
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
    return Details(
        cpu_models=_models([*packages, infos]),
        product=_product(infos),
        architecture=short(infos.get("Architecture", "")),
        has_cores=any(span.element.type == "Core" for span in spans),
        caches=tuple(_cache(span) for span in spans if _CACHE.fullmatch(span.element.type)),
        groups=tuple(
            HwlocGroup(
                span.element.type,
                span.element.subtype(),
                span.element.number("kind", 0) == _MEMORY_GROUP,
                span.first,
                span.count,
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
        offline=cpuset.numbers_of(everything & ~machine),
        forbidden=cpuset.numbers_of(machine & ~allowed),
    )


def _cache(span: Span) -> Cache:
    element = span.element
    type_ = "data" if element.number("cache_type", 0) == _DATA_CACHE else "unified"
    size = element.number("cache_size", 0)
    if not 0 <= size <= _LARGEST_CACHE_BYTES:
        element.fail(f": cache_size={size}, expected bytes, 0 to 2^50")
    return Cache(int(element.type[1]), type_, size, span.first, span.count)


def _models(infos: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the distinct CPU models; some vendors pad them with blanks."""
    models = (short(" ".join(info.get("CPUModel", "").split())) for info in infos)
    return tuple(dict.fromkeys(model for model in models if model))


def _product(infos: Mapping[str, str]) -> str | None:
    """Return `Dell Inc. PowerEdge R630`, None when the firmware says nothing."""
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
    return "" if worthless or any(p in name.casefold() for p in _PLACEHOLDERS) else name
