"""What CPUs did while copies ran, where the copies' time went, counters and energy."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from rater.analysis.results.counters import BenchmarkCounts, RunCounts, StackPart
from rater.analysis.results.cpu_use import (
    CpuUse,
    DisturbanceKind,
    MachineUse,
    RunCounters,
)
from rater.analysis.results.foreign_processes import process_name, process_text
from rater.analysis.results.result import PhaseEnergy
from rater.analysis.results.score import Summary
from rater.plan.idle_power import IDLE_POWER
from rater.record.events import ForeignProcess
from rater.show.results.counted_cpus import (
    counted_cpu_json,
    counted_cpu_parts,
    metric_heading,
    stack_notes,
)
from rater.show.screen.document import (
    NUMBER,
    PERCENT,
    TEXT,
    Fact,
    Field,
    Line,
    Part,
    Row,
    ViewTable,
    decimals,
    facts,
)
from rater.text.cpuset import cpus_text, format_list
from rater.text.values import count, group_by_key, percent, to_json

if TYPE_CHECKING:
    from rater.show.documents.readings import (
        BenchmarkCountsJson,
        CountersJson,
        MachineUseJson,
        ReadingsJson,
    )
    from rater.show.documents.run import EnergyJson, EnergyPhaseJson

# -- What disturbed a run --------------------------------------------------------------------------

DISTURBANCES = {
    DisturbanceKind.FOREIGN: "other processes",
    DisturbanceKind.STEAL: "the hypervisor",
    DisturbanceKind.QUOTA: "CPU quota used up",
    DisturbanceKind.THROTTLED: "throttled, too hot",
    DisturbanceKind.SWAP: "pages swapped",
    DisturbanceKind.MEMORY: "waits for memory",
}


def disturbance_facts(notable: Sequence[Row]) -> Iterator[Fact]:
    """Yield what of a machine's readings a person should know: a row for each kind."""
    for disturbance in notable:
        amount = (
            f"up to {percent(disturbance['share'])} %" if disturbance["share"] is not None else None
        )
        cpus = disturbance["cpus"] or [disturbance["cpu"]] * (disturbance["cpu"] is not None)
        many = "of the time" if not cpus else f"of {cpus_text(cpus)}"
        where = f"{disturbance['benchmark'] or 'all benchmarks in rotation'}"
        where += (
            "" if disturbance["iteration"] is None else f", iteration {disturbance['iteration']}"
        )
        most = f" (most on CPU {disturbance['cpu']} in {where})" if len(cpus) > 1 else f" ({where})"
        text = f"{amount} {many}" if amount else count(disturbance["times"] or 0, "time")
        process = disturbance.get("process")
        who = "" if process is None else f"; {process_text(ForeignProcess(**process))}"
        yield DISTURBANCES[DisturbanceKind(disturbance["matter"])], text + most + who, "yellow"


# -- CPUs by NUMA node, the worst ones, and the machine's counters ---------------------------------

_WORST_SHOWN = 10
_WORST_SHARE = 0.001  # of foreign load, steal and interrupts: less is not among the worst


def cpu_parts(readings: RunCounters) -> Iterator[Part]:
    """Yield what CPUs and machine did; counted phases only."""
    cpus = [use for use in readings.cpus if use.counted]
    if not cpus:
        yield "CPU use was not recorded (--proof off, an older rater, or an imported run)."
        return
    legend = "foreign: use by other processes, rater included; most: one CPU in one phase"
    if any(use.together > 1 for use in cpus):
        legend += "; CPUs that the same copies may use share their foreign load equally"
    yield _node_table(cpus, legend)
    if readings.missed is not None:
        yield missed_text(readings.missed)
    unclear = [use for use in cpus if use.foreign is None and use.copies_used is None]
    unknown = {use.phase for use in unclear}
    if unknown:
        unknown_cpus = {use.cpu for use in unclear}
        yield (
            f"Foreign load of {count(len(unknown_cpus), 'CPU')} is unknown in "
            f"{count(len(unknown), 'phase')}: copies there were killed, left processes or migrated."
        )
    worst = sorted(
        (use for use in cpus if _lost(use) > _WORST_SHARE or use.throttles),
        key=lambda use: (not use.copies, -_lost(use), -(use.throttles or 0), use.phase, use.cpu),
    )
    yield _worst_table(worst[:_WORST_SHOWN])
    yield _process_table(readings)
    machine = [it for it in readings.machine if it.counted]
    yield facts(_machine_facts(machine), "The whole machine") if machine else None


def missed_text(use: CpuUse) -> str:
    """Return that the kernel's statistics of CPUs miss work, in words."""
    copies_used = percent(use.copies_used or 0.0, 0)
    return (
        f"The CPU statistics of this machine miss work: CPU {use.cpu} was busy "
        f"{percent(use.busy, 0)} % by them, and copies alone used {copies_used} % of it. Foreign "
        "load is not known there."
    )


def cpus_document(readings: RunCounters) -> ReadingsJson:
    """Return all readings as JSON values: by phase and CPU, and of the machine by phase."""
    return {
        "cpus": to_json(readings.cpus),
        "machine": [_machine_use(use) for use in readings.machine],
        "processes": to_json(readings.processes),
    }


def _machine_use(use: MachineUse) -> MachineUseJson:
    return {
        "phase": use.phase,
        "benchmark": use.benchmark,
        "iteration": use.iteration,
        "counted": use.counted,
        "elapsed_s": use.elapsed_s,
        "values": dict(use.counters),
        "pressure": {
            "cpu": use.pressure("cpu"),
            "memory": use.pressure("memory"),
            "io": use.pressure("io"),
        },
    }


class _Group(Struct, frozen=True):
    """CPUs of one node on which copies ran, or none did, over the phases."""

    node: int | None
    used: bool
    uses: Sequence[CpuUse]

    def mean(self, name: str) -> float | None:
        """Return the mean share over CPUs and time of those that have one; None if none has."""
        pairs = [(getattr(use, name), use.elapsed_s) for use in self.uses]
        known_pairs = [(share, time_s) for share, time_s in pairs if share is not None]
        total_s = sum(time_s for _, time_s in known_pairs)
        return sum(share * time_s for share, time_s in known_pairs) / total_s if total_s else None

    def values(self, name: str) -> list[float]:
        """Return the shares of each CPU in each phase, without those that are not known."""
        return [value for use in self.uses if (value := getattr(use, name)) is not None]

    def most(self, name: str) -> float | None:
        """Return the share of one CPU in one phase that is highest."""
        return max(self.values(name), default=None)


def _node_table(cpus: Sequence[CpuUse], note: str) -> ViewTable:
    used = {use.cpu for use in cpus if use.copies}
    uses_of_nodes = group_by_key(
        ((use.cpu not in used, -1 if use.node is None else use.node), use) for use in cpus
    )
    groups = [
        _Group(uses[0].node, not unused, uses)
        for (unused, _), uses in sorted(uses_of_nodes.items())
    ]

    def mhz(statistic: Callable[[list[float]], float], group: _Group) -> float | None:
        frequencies_mhz = group.values("mean_mhz")
        return statistic(frequencies_mhz) if frequencies_mhz else None

    whole = decimals(0)
    columns = (
        Field(heading="node", value=lambda it: it.node),
        Field(heading="copies", value=lambda it: "yes" if it.used else "none", form=TEXT),
        Field(
            heading="CPUs",
            value=lambda it: format_list({use.cpu for use in it.uses}),
            form=TEXT,
            flexible=True,
        ),
        Field(heading="busy|%", value=lambda it: it.mean("busy"), form=PERCENT),
        Field(heading="foreign|%", value=lambda it: it.mean("foreign"), form=PERCENT),
        Field(heading="most|%", value=lambda it: it.most("foreign"), form=PERCENT),
        Field(heading="steal|%", value=lambda it: it.mean("steal"), form=PERCENT),
        Field(heading="most|%", value=lambda it: it.most("steal"), form=PERCENT, optional=2),
        Field(heading="irq|%", value=lambda it: it.mean("irq"), form=PERCENT),
        Field(heading="MHz|min", value=partial(mhz, min), form=whole),
        Field(heading="|mean", value=partial(mhz, statistics.fmean), form=whole),
        Field(heading="|max", value=partial(mhz, max), form=whole),
    )
    return ViewTable(title="", rows=groups, fields=columns, note=note)


def _worst_table(worst: Sequence[CpuUse]) -> ViewTable:
    hot = any(use.throttles for use in worst)
    columns = (
        Field(heading="CPU", value=lambda use: use.cpu),
        Field(heading="node", value=lambda use: use.node),
        Field(heading="copy", value=lambda use: format_list(use.copies) or None, flexible=True),
        Field(
            heading="benchmark",
            value=lambda use: use.benchmark or "(rotated)",
            form=TEXT,
            flexible=True,
        ),
        Field(heading="iter", value=lambda use: use.iteration),
        Field(heading="busy|%", value=lambda use: use.busy, form=PERCENT),
        Field(heading="foreign|%", value=lambda use: use.foreign, form=PERCENT),
        Field(heading="steal|%", value=lambda use: use.steal, form=PERCENT),
        Field(heading="irq|%", value=lambda use: use.irq, form=PERCENT),
        Field(
            heading="interrupts|/s",
            value=lambda use: use.interrupts_per_s,
            form=decimals(0),
            optional=1,
        ),
        Field(heading="MHz", value=lambda use: use.mean_mhz, form=decimals(0)),
        Field(heading="too hot|times", value=lambda use: use.throttles if hot else None),
    )
    return ViewTable(
        title="Most foreign load, steal and interrupts; CPUs of copies first",
        rows=worst,
        fields=columns,
    )


def _process_table(readings: RunCounters) -> ViewTable:
    """Return other processes that took most of CPUs in counted phases; those of copies first."""
    uses = {(use.phase, use.cpu): use for use in readings.cpus if use.counted}
    rows = [
        (process, use)
        for process in readings.processes
        if (use := uses.get((process.phase, process.cpu))) is not None
    ]
    rows.sort(key=lambda row: (not row[1].copies, -row[0].share, row[0].phase, row[0].cpu))
    columns = (
        Field(heading="CPU", value=lambda row: row[0].cpu),
        Field(heading="copy", value=lambda row: format_list(row[1].copies) or None, flexible=True),
        Field(
            heading="benchmark",
            value=lambda row: row[1].benchmark or "(rotated)",
            form=TEXT,
            flexible=True,
        ),
        Field(heading="iter", value=lambda row: row[1].iteration),
        Field(heading="process", value=lambda row: process_name(row[0]), form=TEXT),
        Field(heading="took|%", value=lambda row: row[0].share, form=PERCENT),
    )
    return ViewTable(
        title="Other processes that took most of a CPU; CPUs of copies first",
        rows=rows[:_WORST_SHOWN],
        fields=columns,
    )


def _lost(use: CpuUse) -> float:
    return (use.foreign or 0.0) + use.steal + use.irq


_WAITS = ("cpu", "memory", "io")
_COUNTERS = {
    "pswpin": "pages swapped in",
    "pswpout": "pages swapped out",
    "pgmajfault": "major faults",
    "allocstall": "waits for memory to be freed",
    "memory_limit_hits": "times at the limit of memory",
    "pgmigrate_success": "pages moved",
    "numa_hint_faults": "NUMA hinting faults",
    "thp_fault_fallback": "huge pages not had",
}


def _machine_facts(machine: Sequence[MachineUse]) -> Iterator[Fact]:
    for resource in _WAITS:
        shares_and_times = [
            (share, use.elapsed_s)
            for use in machine
            if (share := use.pressure(resource)) is not None
        ]
        if shares_and_times:
            waited_s = sum(share * time_s for share, time_s in shares_and_times)
            total_s = sum(use.elapsed_s for use in machine)
            yield f"some task waited for {resource}", f"{percent(waited_s / total_s)} % of the time"
    totals: defaultdict[str, int] = defaultdict(int)
    for use in machine:
        for name, value in use.counters.items():
            totals[name] += value
    seen = [(words, str(totals[name])) for name, words in _COUNTERS.items() if totals[name]]
    yield from seen or [("pages", "none swapped, moved or waited for")]


# -- Where the time of copies went -----------------------------------------------------------------

_SPENT = {
    "ran_s": "on CPU",
    "waited_s": "waited",
    "throttled_s": "throttled",
    "stopped_s": "stopped",
    "slept_s": "slept",
}


def account_parts(document: Row) -> Iterator[Part]:
    """Yield what the copies' time was spent with, iteration by iteration, if that is known."""
    rows = [
        row
        for row in document["benchmarks"]
        if row.get("account") and row["counted"] and row["account"]["ran_s"] is not None
    ]
    if all(row["account"]["waited_s"] is None for row in rows):
        return

    def spent(row: Row, name: str) -> float | None:
        time_s = row["account"][name]
        return None if time_s is None else time_s / row["account"]["elapsed_s"]

    def partly(row: Row) -> float | None:
        return None if row["account"]["known"] == 1 else row["account"]["known"]

    columns = (
        Field(heading="time of copies", value="benchmark", form=TEXT, flexible=True),
        Field(heading="iter", value="iteration"),
        *(
            Field(heading=f"{words}|%", value=partial(spent, name=name), form=PERCENT)
            for name, words in _SPENT.items()
        ),
        Field(heading="of CPU|time %", value=partly, form=PERCENT, optional=1),
    )
    note = (
        "waited: runnable, but others had the CPU; throttled: a cgroup's CPU quota was used up; "
        "slept: waited for anything else"
    )
    yield ViewTable(title="", rows=rows, fields=columns, note=note)


# -- Counters of a run: cycles per instruction and its parts, metrics, sums of what has no rates ---

_SHARE = "_share"  # ends the names of metrics that are shares
_MUCH_SPREAD = 0.05  # of the CPI between groups that are put together


def counter_parts(counts: RunCounts, *, every: bool = False) -> Iterator[Part]:
    """Yield what was counted, benchmark by benchmark, and how far it can be trusted.

    `every`: of each CPU, else of the worst ones.
    """
    if not counts.benchmarks:
        yield "Nothing was counted in this run; `rater doctor counters` shows what can be."
        return
    yield _rates_table(
        [benchmark for benchmark in counts.benchmarks if benchmark.rates is not None]
    )
    for counts_of_benchmark in counts.benchmarks:
        if counts_of_benchmark.rates is None:
            means = [
                (group.name, *mean) for group in counts_of_benchmark.groups for mean in group.means
            ]
            columns = (
                Field(
                    heading=_name(counts_of_benchmark),
                    value=lambda row: f"{row[0]} {row[1]}",
                    form=TEXT,
                ),
                Field(heading="mean|/copy run", value=lambda row: row[2], form=NUMBER),
            )
            yield ViewTable(title="", rows=means, fields=columns)
        else:
            yield _stack_table(counts_of_benchmark)
    yield from counted_cpu_parts(counts, every=every)
    yield facts(_counter_facts(counts))


def _rates_table(rated: Sequence[BenchmarkCounts]) -> ViewTable:
    def metric(name: str, counts: BenchmarkCounts) -> float | None:
        return dict(counts.metrics).get(name)

    names = dict.fromkeys(name for counts in rated for name, _ in counts.metrics)
    metrics = [
        Field(
            heading=metric_heading(name),
            value=partial(metric, name),
            form=PERCENT if name.endswith(_SHARE) else NUMBER,
            optional=3 + place,
        )
        for place, name in enumerate(names)
    ]
    columns = (
        Field(heading="counters", value=_name, form=TEXT, flexible=True),
        Field(heading="cycles|/instr", value=lambda counts: counts.rates.cpi, form=decimals(3)),
        Field(heading="spread|%", value=lambda counts: counts.cpi_spread, form=PERCENT, optional=1),
        Field(
            heading="instr|/cycle",
            value=lambda counts: 1 / counts.rates.cpi if counts.rates.cpi else None,
            form=decimals(3),
        ),
        Field(heading="GHz", value=lambda counts: counts.rates.ghz, form=decimals(2)),
        Field(
            heading="10^9 instr|/copy",
            value=lambda counts: counts.rates.instructions / 1e9,
            form=NUMBER,
            optional=2,
        ),
        *metrics,
    )
    return ViewTable(title="", rows=rated, fields=columns)


def _stack_table(counts: BenchmarkCounts) -> ViewTable | None:
    if counts.stack is None or counts.rates is None or not counts.rates.cpi:
        return None
    cpi, estimated = counts.rates.cpi, counts.stack.estimated

    def part_name(part: StackPart) -> str:
        return part.name.replace("_", " ") + " (estimated)" * (part.name in estimated)

    columns = (
        Field(heading=f"CPI of {_name(counts)}", value=part_name, form=TEXT),
        Field(heading="cycles|/instr", value=lambda part: part.cycles, form=decimals(3)),
        Field(heading="share|%", value=lambda part: part.cycles / cpi, form=PERCENT),
    )
    return ViewTable(title="", rows=counts.stack.parts, fields=columns)


def _counter_facts(counts: RunCounts) -> Iterator[Fact]:
    for benchmark in counts.benchmarks:
        name = _name(benchmark)
        yield from ((name, text) for text in stack_notes(benchmark))
        yield from (
            (
                name,
                f"{group.name} was counted {percent(group.share)} % of the time and scaled: "
                "others used the counters, or groups took turns",
            )
            for group in benchmark.groups
            if group.share < 1
        )
        if benchmark.cpi_spread is not None and benchmark.cpi_spread > _MUCH_SPREAD:
            yield (
                name,
                f"CPI differs by {percent(benchmark.cpi_spread)} % between iterations: groups "
                "counted in different iterations do not quite fit together",
            )
    yield "user mode", counts.user_only and "the kernel's work for the copies is not counted"
    yield (
        "cost",
        counts.cost_us is not None
        and f"{counts.cost_us:.0f} us of rater's CPU time a copy run, outside of its time",
    )


def _name(counts: BenchmarkCounts) -> str:
    return f"{counts.benchmark} {counts.tune}" if counts.tune else counts.benchmark


def counters_document(counts: RunCounts) -> CountersJson:
    """Return what was counted as JSON values."""
    return {
        "benchmarks": [counts_json(benchmark) for benchmark in counts.benchmarks],
        "user_only": counts.user_only,
        "cost_us": counts.cost_us,
    }


def counts_json(counts: BenchmarkCounts) -> BenchmarkCountsJson:
    """Return what was counted of one benchmark as JSON values."""
    rates = counts.rates
    return {
        "benchmark": counts.benchmark,
        "tune": counts.tune,
        "table": counts.table,
        "cpi": rates.cpi if rates else None,
        "ipc": 1 / rates.cpi if rates and rates.cpi else None,
        "ghz": rates.ghz if rates else None,
        "instructions": rates.instructions if rates else None,
        "cpi_spread": counts.cpi_spread,
        "stack": to_json(counts.stack),
        "metrics": dict(counts.metrics),
        "miss_cycles": counts.miss_cycles,
        "cpus": [counted_cpu_json(cpu) for cpu in counts.cpus],
        "groups": to_json(counts.groups),
        "rates": dict(rates.by_event) if rates else None,
    }


# -- Energy of a run: joules of phases, copies and the suite, where the machine counts them --------


def energy_parts(document: Row) -> Iterator[Part]:
    """Yield a row for each counted phase, what the suite comes to, and why there is none."""
    energy = document.get("energy", {"suite_joules": None, "phases": ()})
    rows = [phase for phase in energy["phases"] if phase["counted"]]
    columns = (
        Field(
            heading="energy",
            value=lambda phase: phase["benchmark"] or "(all)",
            form=TEXT,
            flexible=True,
        ),
        Field(heading="iter", value="iteration"),
        Field(heading="J", value="joules", form=NUMBER),
        Field(heading="J|/copy", value="joules_per_copy", form=NUMBER),
        Field(heading="W", value="watts", form=NUMBER),
        Field(heading="J above|idle", value="above_idle_joules", form=NUMBER),
        Field(heading="energy x|time Js", value="energy_delay_js", form=NUMBER, optional=1),
        Field(heading="memory|J", value="memory_joules", form=NUMBER, optional=2),
    )
    with_joules = [phase for phase in rows if phase["joules"] is not None]
    yield ViewTable(title="", rows=with_joules, fields=columns)
    if energy.get("idle_power"):
        yield f"J above idle: idle power was {energy['idle_power']}"
        if any(phase["idle_watts"] and phase["above_idle_joules"] is None for phase in with_joules):
            yield (
                "J above idle is not known where the copies' phase drew less than that: something "
                "else ran while idle power was measured"
            )
    if energy["suite_joules"] is not None and len(document["results"]) != 1:
        yield f"energy of the suite: {energy['suite_joules']:.4g} J"
    benchmarks_by_reason = group_by_key(
        (phase["reason"], phase["benchmark"] or "(all)") for phase in rows if phase["reason"]
    )
    for reason, without_energy in benchmarks_by_reason.items():
        yield Line(f"no energy of {', '.join(dict.fromkeys(without_energy))}: {reason}", "yellow")


def _memory_joules(energy: PhaseEnergy) -> float | None:
    """Return the joules of memory at the packages with copies, where they are counted apart."""
    packages = {f"package-{package}" for package, _ in energy.packages}
    parts = [
        joules
        for domain, joules in energy.domains
        if domain.endswith("-dram")
        and domain.removesuffix("-dram").partition("-die")[0] in packages
    ]
    return sum(parts) if parts else None


def energy_json(summary: Summary) -> EnergyJson:
    """Return energy by phase; a machine that counts none has no phases.

    `joules_per_copy`: of a copy, or in rotated order of a copy's run of any benchmark.
    """
    per_copy = {
        iteration.phase: iteration.joules_per_copy
        for score in summary.scores
        for iteration in score.iterations
    }
    phases: list[EnergyPhaseJson] = []
    for energy in summary.energies:
        if energy.phase in per_copy and summary.mix is None:
            joules_per_copy = per_copy[energy.phase]
        elif energy.joules is not None and energy.copy_runs:
            joules_per_copy = energy.joules / energy.copy_runs
        else:
            joules_per_copy = None
        phases.append(_phase_json(energy, joules_per_copy))
    idle_power = dict(summary.run.settings).get(IDLE_POWER)
    return {"suite_joules": summary.joules, "idle_power": idle_power, "phases": phases}


def _phase_json(energy: PhaseEnergy, joules_per_copy: float | None) -> EnergyPhaseJson:
    return {
        "phase": energy.phase,
        "benchmark": energy.benchmark,
        "iteration": energy.iteration,
        "counted": energy.counted,
        "elapsed_s": energy.elapsed_s,
        "joules": energy.joules,
        "watts": energy.watts,
        "energy_delay_js": energy.energy_delay_js,
        "idle_watts": energy.idle_w,
        "above_idle_joules": energy.above_idle_j,
        "memory_joules": _memory_joules(energy),
        "domains": dict(energy.domains),
        "reason": energy.reason,
        "joules_per_copy": joules_per_copy,
    }
