"""What the CPUs did while copies ran: a line where it matters, tables where it is asked for."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from rater.analysis.counters.cpu_use import CpuUse, MachineUse, Matter, Notable, RunCounters
from rater.show.console.format import number
from rater.show.console.printer import Printer
from rater.show.console.table import Column, Columns
from rater.text.cpuset import format_list
from rater.text.to_json import Json, Members, to_json
from rater.text.words import count, percent

_WORST_SHOWN = 10
_WORST_SHARE = 0.001  # of foreign load, steal and interrupts: less is not among the worst


def notable_text(notable: Sequence[Notable], run: int) -> str | None:
    """Return one sentence on what a person should know, None where that is nothing."""
    if not notable:
        return None
    text = "; ".join(_told(one) for one in notable)
    return f"while copies ran: {text} (rater show {run} --cpus)"


def notable_document(notable: Sequence[Notable]) -> list[Json]:
    """Return the same as JSON values; shares are of the phase's time."""
    document: list[Json] = to_json(notable)
    return document


def print_cpus(readings: RunCounters, printer: Printer) -> None:
    """Print CPUs by lgroup, the worst ones, and the machine's counters; counted phases only."""
    printer.line()
    cpus = [use for use in readings.cpus if use.counted]
    if not cpus:
        printer.prose(
            "what the CPUs did was not read (--proof off, an older rater, or a run of another tool)"
        )
        return
    _print_lgroups(cpus, printer)
    worst = sorted(
        (use for use in cpus if _lost(use) > _WORST_SHARE or use.throttles),
        key=lambda use: (not use.copies, -_lost(use), -(use.throttles or 0), use.phase, use.cpu),
    )[:_WORST_SHOWN]
    if worst:
        printer.line()
        _print_worst(worst, printer)
    machine = [it for it in readings.machine if it.counted]
    if machine:
        printer.line()
        printer.prose(_machine_text(machine))


def cpus_document(readings: RunCounters) -> dict[str, Json]:
    """Return all readings as JSON values: by phase and CPU, and of the machine by phase."""
    waits = ("cpu", "memory", "io")
    pressure = {"pressure": lambda it: {what: it.pressure(what) for what in waits}}
    table = {MachineUse: Members("* values{}", pressure)}
    return {"cpus": to_json(readings.cpus), "machine": to_json(readings.machine, table)}


def _told(one: Notable) -> str:
    where = "the machine" if one.cpu is None else f"CPU {one.cpu}"
    when = one.benchmark or "all benchmarks in rotation"
    when += "" if one.iteration is None else f", iteration {one.iteration}"
    share = percent(one.share)
    match one.matter:
        case Matter.FOREIGN:
            text = f"other work took {share} % of {where} ({when})"
        case Matter.STEAL:
            text = f"the hypervisor took {share} % of {where} ({when})"
        case Matter.THROTTLED:
            text = f"{where} was throttled {count(one.times or 0, 'time')}, too hot ({when})"
        case Matter.SWAP:
            text = f"{count(one.times or 0, 'page')} swapped ({when})"
        case Matter.MEMORY if one.share is not None:
            text = f"tasks waited for memory {share} % of the time ({when})"
        case Matter.MEMORY:
            text = f"tasks waited for memory {count(one.times or 0, 'time')} ({when})"
    others = [cpu for cpu in one.cpus if cpu != one.cpu]
    if len(others) > 1:
        return f"{text}, and up to as much of {count(len(others), 'other CPU')}"
    return f"{text}, and up to as much of CPU {others[0]}" if others else text


@dataclass(frozen=True, slots=True)
class _Group:
    """CPUs of one lgroup on which copies ran, or none did, over the phases."""

    node: int | None
    used: bool
    uses: Sequence[CpuUse]

    def mean(self, name: str) -> float | None:
        """Return the mean share over CPUs and time, None where one is not known."""
        pairs = [(getattr(use, name), use.elapsed_s) for use in self.uses]
        known = [(share, time_s) for share, time_s in pairs if share is not None]
        total_s = sum(time_s for _, time_s in known)
        return sum(share * time_s for share, time_s in known) / total_s if total_s else None

    def most(self, name: str) -> float | None:
        """Return the share of one CPU in one phase that is highest."""
        known = (getattr(use, name) for use in self.uses)
        return max((share for share in known if share is not None), default=None)


def _print_lgroups(cpus: Sequence[CpuUse], printer: Printer) -> None:
    used = {use.cpu for use in cpus if use.copies}
    found: defaultdict[tuple[bool, int], list[CpuUse]] = defaultdict(list)
    for use in cpus:
        found[use.cpu not in used, -1 if use.node is None else use.node].append(use)
    groups = [_Group(uses[0].node, not unused, uses) for (unused, _), uses in sorted(found.items())]
    mhz = [[u.mean_mhz for u in group.uses if u.mean_mhz is not None] for group in groups]
    of = Columns(groups)
    columns = [
        of.right("lgroup", lambda it: it.node),
        of.left("copies", lambda it: "yes" if it.used else "none"),
        of.left("CPUs", lambda it: format_list({use.cpu for use in it.uses}), flexible=True),
        of.percent("busy|%", lambda it: it.mean("busy")),
        of.percent("foreign|%", lambda it: it.mean("foreign")),
        of.percent("most|%", lambda it: it.most("foreign")),
        of.percent("steal|%", lambda it: it.mean("steal")),
        of.percent("most|%", lambda it: it.most("steal"), optional=2),
        of.percent("irq|%", lambda it: it.mean("irq")),
    ]
    if any(mhz):
        columns += [
            Column("MHz|min", [number(min(it, default=None), 0) for it in mhz]),
            Column("|mean", [number(statistics.fmean(it), 0) if it else "-" for it in mhz]),
            Column("|max", [number(max(it, default=None), 0) for it in mhz]),
        ]
    printer.table(columns)
    text = (
        "of all CPUs and phases together; foreign: work of others than copies, rater's own "
        "included; most: of one CPU in one phase"
    )
    if any(use.together > 1 for use in cpus):
        text += "; CPUs that the same copies may use share their foreign load equally"
    printer.prose(text)
    unknown = {use.phase for use in cpus if use.foreign is None}
    if unknown:
        printer.prose(
            f"foreign load of {len({u.cpu for u in cpus if u.foreign is None})} CPUs is not known "
            f"in {count(len(unknown), 'phase')}: copies there were ended, left processes behind "
            "or moved"
        )
    if not any(mhz):
        printer.prose("frequency is not known: no cpufreq on this machine, or the phases too short")


def _print_worst(worst: Sequence[CpuUse], printer: Printer) -> None:
    of = Columns(worst)
    columns = [
        of.right("CPU", lambda use: use.cpu),
        of.right("lgroup", lambda use: use.node),
        of.right("copy", lambda use: format_list(use.copies) or None, flexible=True),
        of.left("benchmark", lambda use: use.benchmark or "(rotated)", flexible=True),
        of.right("iter", lambda use: use.iteration),
        of.percent("busy|%", lambda use: use.busy),
        of.percent("foreign|%", lambda use: use.foreign),
        of.percent("steal|%", lambda use: use.steal),
        of.percent("irq|%", lambda use: use.irq),
    ]
    if any(use.interrupts_per_s is not None for use in worst):
        columns.append(of.numbers("interrupts|/s", lambda use: use.interrupts_per_s, 0, optional=1))
    if any(use.mean_mhz is not None for use in worst):
        columns.append(of.numbers("MHz", lambda use: use.mean_mhz, 0))
    if any(use.throttles for use in worst):
        columns.append(of.right("too hot|times", lambda use: use.throttles))
    printer.line("most foreign load, steal and interrupts, CPUs of copies first:")
    printer.table(columns)


def _lost(use: CpuUse) -> float:
    return (use.foreign or 0.0) + use.steal + use.irq


_SAID = {  # in this order
    "pswpin": ("page swapped in", "pages swapped in"),
    "pswpout": ("page swapped out", "pages swapped out"),
    "pgmajfault": ("major fault", "major faults"),
    "allocstall": ("wait for memory to be freed", "waits for memory to be freed"),
    "pgmigrate_success": ("page moved", "pages moved"),
    "numa_hint_faults": ("NUMA hinting fault", "NUMA hinting faults"),
    "thp_fault_fallback": ("huge page not had", "huge pages not had"),
}


def _machine_text(machine: Sequence[MachineUse]) -> str:
    elapsed_s = sum(it.elapsed_s for it in machine)
    waits = []
    for what in ("cpu", "memory", "io"):
        shares = [
            (share, it.elapsed_s) for it in machine if (share := it.pressure(what)) is not None
        ]
        if shares:
            waited_s = sum(share * time_s for share, time_s in shares)
            waits.append(f"{what} {percent(waited_s / elapsed_s)} %")
    totals: defaultdict[str, int] = defaultdict(int)
    for it in machine:
        for name, value in it.values:
            totals[name] += value
    counters = [count(totals[name], *words) for name, words in _SAID.items() if totals[name]]
    text = "the whole machine"
    if waits:
        text += f": some task waited for {', '.join(waits)} of the time"
    return f"{text}; {', '.join(counters) or 'no page swapped, moved or waited for'}"
