"""The processor of this machine, and the types that its counters have at this kernel."""

from __future__ import annotations

from pathlib import Path

from rater.plan.counters.processor import Processor, parse_cpuinfo
from rater.plan.counters.table import CounterTable, EventGroup, EventSource
from rater.run.counters.perf_event import PerfEvent
from rater.run.host.sysfiles import listed, read_number, read_text

_TYPES = {EventSource.HARDWARE: 0, EventSource.SOFTWARE: 1, EventSource.RAW: 4}


def this_processor(root: Path = Path("/")) -> Processor:
    """Return the processor of this machine."""
    return parse_cpuinfo(read_text(root / "proc/cpuinfo") or "")


def perf_events(
    table: CounterTable, group: EventGroup, root: Path = Path("/")
) -> tuple[PerfEvent, ...]:
    """Return the events of a group as this kernel takes them."""
    kind = _TYPES[table.source]
    if table.source is EventSource.RAW and table.device:
        for device in listed(root / "sys/bus/event_source/devices", table.device):
            own = read_number(device / "type")
            if own is not None:
                kind = own
                break
    return tuple(PerfEvent(kind, event.config, event.config1) for event in group.events)
