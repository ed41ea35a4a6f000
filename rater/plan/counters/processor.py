"""Which processor this is, as `/proc/cpuinfo` says, and whether a table is for it; pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Processor:
    """What the kernel says of the first CPU; None where its architecture has no such thing."""

    name: str  # for people; "" where the kernel has none
    vendor: str | None = None  # x86: GenuineIntel, AuthenticAMD
    family: int | None = None
    model: int | None = None
    stepping: int | None = None
    implementer: int | None = None  # Arm: 0x41
    part: int | None = None
    pvr: int | None = None  # POWER: the upper half of the processor version register


@dataclass(frozen=True, slots=True)
class ProcessorMatch:
    """Processors that a table is for: all that is given must fit; nothing given: none."""

    vendor: str | None = None
    family: int | None = None
    models: tuple[range, ...] = ()
    steppings: tuple[range, ...] = ()
    implementer: int | None = None
    parts: tuple[range, ...] = ()
    pvr: int | None = None

    def fits(self, processor: Processor) -> bool:
        """Tell whether a table with this match is for a processor."""
        single = [
            (self.vendor, processor.vendor),
            (self.family, processor.family),
            (self.implementer, processor.implementer),
            (self.pvr, processor.pvr),
        ]
        several = [
            (self.models, processor.model),
            (self.steppings, processor.stepping),
            (self.parts, processor.part),
        ]
        given = any(wanted is not None for wanted, _ in single)
        return (
            given
            and all(wanted is None or wanted == found for wanted, found in single)
            and all(not wanted or any(found in it for it in wanted) for wanted, found in several)
        )


def parse_cpuinfo(text: str) -> Processor:
    """Return the processor of `/proc/cpuinfo`: of its first CPU, POWER's from its last lines."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            values.setdefault(name.strip(), value.strip())
    pvr = re.search(r"\(pvr ([0-9a-f]{4}) [0-9a-f]{4}\)", values.get("revision", ""))

    def number(name: str, parse: Callable[[str], int] = lambda text: int(text, 0)) -> int | None:
        try:
            return parse(values[name])
        except (KeyError, ValueError):
            return None

    return Processor(
        values.get("model name") or (values.get("cpu") or "" if pvr else ""),
        vendor=values.get("vendor_id"),
        family=number("cpu family"),
        model=number("model"),
        stepping=number("stepping"),
        implementer=number("CPU implementer"),
        part=number("CPU part"),
        pvr=int(pvr[1], 16) if pvr else None,
    )
