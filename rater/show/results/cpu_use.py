"""What CPUs did while copies ran, counters and energy."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from rater.analysis.results.account import TimeAccount
from rater.analysis.results.counters import BenchmarkCounts, Rates, RunCounts
from rater.analysis.results.cpu_use import (
    CpuUse,
    DisturbanceKind,
    MachineDisturbance,
    MachineUse,
    RunCounters,
)
from rater.analysis.results.metrics import PhaseEnergy
from rater.analysis.results.score import BenchmarkScore, IterationScore, Summary
from rater.show.console import Column, Columns, Printer
from rater.show.format import format_number
from rater.text.cpuset import format_list
from rater.text.values import Json, JsonFields, count, percent, to_json

_WORST_SHOWN = 10
_WORST_SHARE = 0.001  # of foreign load, steal and interrupts: less is not among the worst


def notable_text(notable: Sequence[MachineDisturbance], run: int) -> str | None:
    """Return one sentence on what a person should know, None where that is nothing."""
    if not notable:
        return None
    text = "; ".join(_told(one) for one in notable)
    return f"while copies ran: {text} (`rater show {run} --cpus`)"


def notable_document(notable: Sequence[MachineDisturbance]) -> list[Json]:
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
    table = {MachineUse: JsonFields("* values{}", pressure)}
    return {"cpus": to_json(readings.cpus), "machine": to_json(readings.machine, table)}


def _told(one: MachineDisturbance) -> str:
    where = "the machine" if one.cpu is None else f"CPU {one.cpu}"
    when = one.benchmark or "all benchmarks in rotation"
    when += "" if one.iteration is None else f", iteration {one.iteration}"
    share = percent(one.share)
    match one.matter:
        case DisturbanceKind.FOREIGN:
            text = f"other work took {share} % of {where} ({when})"
        case DisturbanceKind.STEAL:
            text = f"the hypervisor took {share} % of {where} ({when})"
        case DisturbanceKind.QUOTA:
            text = f"a cgroup's CPU quota was used up in {share} % of the periods ({when})"
        case DisturbanceKind.THROTTLED:
            text = f"{where} was throttled {count(one.times or 0, 'time')}, too hot ({when})"
        case DisturbanceKind.SWAP:
            text = f"{count(one.times or 0, 'page')} swapped ({when})"
        case DisturbanceKind.MEMORY if one.share is not None:
            text = f"tasks waited for memory {share} % of the time ({when})"
        case DisturbanceKind.MEMORY:
            text = f"tasks waited for memory {count(one.times or 0, 'time')} ({when})"
    others = [cpu for cpu in one.cpus if cpu != one.cpu]
    if len(others) > 1:
        return f"{text}, and up to as much of {count(len(others), 'other CPU')}"
    return f"{text}, and up to as much of CPU {others[0]}" if others else text


class _Group(Struct, frozen=True):
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
            Column("MHz|min", [format_number(min(it, default=None), 0) for it in mhz]),
            Column("|mean", [format_number(statistics.fmean(it), 0) if it else "-" for it in mhz]),
            Column("|max", [format_number(max(it, default=None), 0) for it in mhz]),
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
            f"Foreign load of {len({u.cpu for u in cpus if u.foreign is None})} CPUs is unknown in "
            f"{count(len(unknown), 'phase')}: copies there were killed, left processes or migrated."
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


# -- Where the time of copies went -----------------------------------------------------------------


def on_cpu(it: IterationScore) -> float | None:
    """Return the share of their time that copies had a CPU; None: not known."""
    of = it.account
    return None if of is None or of.ran_s is None else of.ran_s / of.elapsed_s


def print_accounts(summary: Summary, printer: Printer) -> None:
    """Print what the copies' time was spent with, iteration by iteration, where that is known."""
    rows = [
        (benchmark, it, it.account)
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
        if it.counted and it.account is not None and it.account.ran_s is not None
    ]
    if all(it.waited_s is None for _, _, it in rows):
        return
    of = Columns(rows)
    printer.line()
    printer.table(
        [
            of.left("time of copies", lambda row: row[0].benchmark, flexible=True),
            of.right("iter", lambda row: row[1].iteration),
            *(
                of.percent(f"{words}|%", partial(_spent, name=name))
                for name, words in _SPENT.items()
            ),
        ]
    )
    known = [it.known for _, _, it in rows if it.known is not None]
    part = (
        f"; seen of {percent(min(known), 0)} % of the CPU time" if known and min(known) < 1 else ""
    )
    lacking = "" if len(known) == len(rows) else "; -: not known"
    printer.prose(
        "waited: runnable, but the CPU was another's; throttled: a cgroup's CPU quota was used up; "
        f"slept: waited for anything else{part}{lacking}"
    )


_SPENT = {
    "ran_s": "on CPU",
    "waited_s": "waited",
    "throttled_s": "throttled",
    "stopped_s": "stopped",
    "slept_s": "slept",
}


def _spent(row: tuple[BenchmarkScore, IterationScore, TimeAccount], name: str) -> float | None:
    account = row[2]
    time_s: float | None = getattr(account, name)
    return None if time_s is None else time_s / account.elapsed_s


# -- Counters of a run: cycles per instruction and its parts, metrics, sums of what has no rates ---

_SHARE = "_share"  # ends the names of metrics that are shares
_MUCH_SPREAD = 0.05  # of the CPI between groups that are put together


def print_counters(counts: RunCounts, printer: Printer) -> None:
    """Print what was counted, benchmark by benchmark, and how far it can be trusted."""
    printer.line()
    if not counts.benchmarks:
        printer.prose("nothing was counted in this run; `rater doctor counters` shows what can be")
        return
    rated = [it for it in counts.benchmarks if it.rates is not None]
    if rated:
        _print_rates(rated, printer)
    for it in rated:
        _print_stack(it, printer)
    for it in counts.benchmarks:
        if it.rates is None:
            _print_sums(it, printer)
    printer.some(_remarks(counts))


def _print_rates(rated: Sequence[BenchmarkCounts], printer: Printer) -> None:
    of = Columns(rated)
    names = dict.fromkeys(name for it in rated for name, _ in it.metrics)
    printer.table(
        [
            of.left("counters", _name, flexible=True),
            of.numbers("cycles|/instr", lambda it: _rates(it).cpi, 3),
            of.percent("spread|%", lambda it: it.cpi_spread, optional=1),
            of.numbers(
                "instr|/cycle", lambda it: 1 / _rates(it).cpi if _rates(it).cpi else None, 3
            ),
            of.numbers("GHz", lambda it: _rates(it).ghz, 2),
            of.numbers("10^9 instr|/copy", lambda it: _rates(it).instructions / 1e9, optional=2),
            *(_metric(rated, name, 3 + n) for n, name in enumerate(names)),
        ]
    )


def _metric(rated: Sequence[BenchmarkCounts], name: str, optional: int) -> Column:
    of = Columns(rated)
    words = name.removesuffix(_SHARE).replace("_", " ").replace(" mpki", "|/1000 instr")
    if name.endswith(_SHARE):
        return of.percent(f"{words}|%", lambda it: dict(it.metrics).get(name), optional=optional)
    return of.numbers(words, lambda it: dict(it.metrics).get(name), optional=optional)


def _print_stack(it: BenchmarkCounts, printer: Printer) -> None:
    if it.stack is None or it.rates is None or not it.rates.cpi:
        return
    of = Columns(it.stack.parts)
    cpi = it.rates.cpi
    printer.line()
    printer.table(
        [
            of.left(f"CPI of {_name(it)}", lambda part: part.name.replace("_", " ")),
            of.numbers("cycles|/instr", lambda part: part.cycles, 3),
            of.percent("share|%", lambda part: part.cycles / cpi),
        ]
    )
    if it.stack.missing:
        words = ", ".join(name.replace("_", " ") for name in it.stack.missing)
        printer.prose(f"not counted, and in `other`: {words}")
    if it.stack.excess:
        printer.prose(
            f"the parts were {percent(it.stack.excess)} % more than the CPI together, and are "
            "scaled to it: stalls of several kinds at once count for each"
        )


def _print_sums(it: BenchmarkCounts, printer: Printer) -> None:
    rows = [(group.name, *mean) for group in it.groups for mean in group.means]
    of = Columns(rows)
    printer.table(
        [
            of.left(f"{_name(it)}", lambda row: f"{row[0]} {row[1]}"),
            of.numbers("mean|/copy run", lambda row: row[2]),
        ]
    )


def _remarks(counts: RunCounts) -> list[str]:
    found = []
    for it in counts.benchmarks:
        found += [
            f"{_name(it)}: {group.name} was counted for {percent(group.share)} % of the time and "
            "scaled: others had the counters, or groups took turns"
            for group in it.groups
            if group.share < 1
        ]
        if it.cpi_spread is not None and it.cpi_spread > _MUCH_SPREAD:
            found.append(
                f"{_name(it)}: the CPI of its iterations differs by {percent(it.cpi_spread)} %: "
                "groups of such different iterations do not quite go together"
            )
    if counts.user_only:
        found.append("user mode only: what the kernel did for the copies is not in it")
    if counts.cost_us is not None:
        found.append(
            f"counting took {counts.cost_us:.0f} us of rater's CPU time a copy run, outside of "
            "its time"
        )
    return found


def _name(it: BenchmarkCounts) -> str:
    return f"{it.benchmark} {it.tune}" if it.tune else it.benchmark


def _rates(it: BenchmarkCounts) -> Rates:
    assert it.rates is not None
    return it.rates


def counters_document(counts: RunCounts) -> dict[str, object]:
    """Return the same as JSON values."""
    document: dict[str, object] = to_json(counts, _TABLE)
    return document


def counts_rows(counted: Sequence[BenchmarkCounts]) -> list[object]:
    """Return benchmarks as JSON values."""
    rows: list[object] = to_json(list(counted), _TABLE)
    return rows


_TABLE = {
    BenchmarkCounts: JsonFields(
        "benchmark tune table cpi=rates.cpi",
        {"ipc": lambda it: 1 / it.rates.cpi if it.rates and it.rates.cpi else None},
        "ghz=rates.ghz instructions=rates.instructions cpi_spread stack metrics{} groups",
        {"rates": lambda it: dict(it.rates.by_event) if it.rates else None},
    ),
}


# -- Energy of a run: joules of phases, copies and the suite, where the machine counts them --------


class _Row(Struct, frozen=True):
    """One phase with readings."""

    energy: PhaseEnergy
    it: IterationScore | None  # None: it runs several benchmarks

    @property
    def joules_per_copy(self) -> float | None:
        """Of a copy, or in rotated order of a copy's run of any benchmark."""
        if self.it is not None:
            return self.it.joules_per_copy
        joules, runs = self.energy.joules, self.energy.copy_runs
        return None if joules is None or not runs else joules / runs


def print_energy(summary: Summary, printer: Printer) -> None:
    """Print a line for each counted phase, what the suite comes to, and why there is none."""
    rows = [row for row in _rows(summary) if row.energy.counted]
    if not rows:
        return
    printer.line()
    known = [row for row in rows if row.energy.joules is not None]
    if known:
        of = Columns(known)
        printer.table(
            [
                of.left("energy", lambda row: row.energy.benchmark or "(all)", flexible=True),
                of.right("iter", lambda row: row.energy.iteration),
                of.numbers("J", lambda row: row.energy.joules),
                of.numbers("J|/copy", lambda row: row.joules_per_copy),
                of.numbers("W", lambda row: row.energy.watts),
                of.numbers("energy x|time Js", lambda row: row.energy.energy_delay_js, optional=1),
                of.numbers("memory|J", lambda row: _memory(row.energy), optional=2),
            ]
        )
        if summary.joules is not None and len(summary.benchmarks) != 1:
            printer.prose(f"energy of the suite: {summary.joules:.4g} J")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.energy.reason:
            reasons.setdefault(row.energy.reason, []).append(row.energy.benchmark or "(all)")
    printer.some(
        (f"no energy of {', '.join(dict.fromkeys(of))}: {why}" for why, of in reasons.items()),
        "yellow",
    )


def _rows(summary: Summary) -> Iterator[_Row]:
    scores = {
        it.energy.phase: it
        for benchmark in summary.benchmarks
        for it in benchmark.iterations
        if it.energy is not None
    }
    return (_Row(energy, scores.get(energy.phase)) for energy in summary.energies)


def _memory(energy: PhaseEnergy) -> float | None:
    """Return the joules of memory, where they are counted apart."""
    ours = {f"package-{package}" for package, _ in energy.packages}
    parts = [
        joules
        for name, joules in energy.domains
        if name.endswith("-dram") and name.removesuffix("-dram").partition("-die")[0] in ours
    ]
    return sum(parts) if parts else None


ENERGY_MEMBERS = JsonFields(
    "energy.phase energy.benchmark energy.iteration energy.counted energy.elapsed_s energy.joules"
    " joules_per_copy energy.watts energy.energy_delay_js",
    {"domains": lambda row: dict(row.energy.domains)},
    "energy.reason",
)


def energy_document(summary: Summary) -> Mapping[str, object]:
    """Return what JSON has of it: nothing where the machine counts no energy."""
    phases = [ENERGY_MEMBERS.of(row) for row in _rows(summary)]
    return {"energy": {"suite_joules": summary.joules, "phases": phases}} if phases else {}
