"""Hardware counters of a run: those asked for, those that work here, and the idle power."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

from rater.plan.count import CountSource
from rater.plan.counter_choice import (
    CounterChoice,
    choose_groups,
    refuse_few_iterations,
)
from rater.plan.counter_tables import MISS_CYCLES, TABLE_TEXT, CounterTable
from rater.plan.idle_power import GIVEN, IdlePower, idle_settings
from rater.plan.request import Request
from rater.plan.schedule import Plan
from rater.plan.topology import Topology
from rater.record.events import COUNT_GROUP
from rater.run.host.foreign_load import machine_times
from rater.run.observe.count_source import find_count_source
from rater.run.observe.energy import EnergyReader, idle_watts_by_domain
from rater.run.observe.perf import (
    CounterPlan,
    GroupProbe,
    PerfKernel,
    ReadyGroup,
    probe_group,
    this_processor,
)
from rater.system.errors import InputError
from rater.system.paths import sysroot
from rater.text.values import truncate_list
from rater.wings import Hook


class MissCosts(Protocol):
    """What the lab measured of this machine."""

    def miss_cycles(self) -> float | None:
        """Return the cycles that a TLB miss costs here; None: nobody measured it."""
        ...


_miss_costs = Hook[MissCosts]("miss costs")


def count_source_of(request: Request, topology: Topology) -> CountSource | None:
    """Return what counts instructions; None: they are not asked for, or planned elsewhere.

    Raises `InputError` where nothing can count them, or the run cannot have it.
    """
    if request.count is None or not topology.is_this_system:
        return None
    if request.of_kit:
        raise InputError("--count: of commands and suites; benchmarks of SPEC CPU have none yet")
    if request.counters is not None:
        raise InputError("--count and --counters want the same counters: make a run with each")
    return find_count_source()


def count_warnings(source: CountSource | None) -> tuple[str, ...]:
    """Return what a person should know before copies are counted."""
    if source is None or not source.wrap:
        return ()
    return (
        f"instructions are counted by {source.name}: copies take 5 to 50 times as long, and their "
        "times are no measure of anything; compare with --by instructions",
    )


def counters_of(
    request: Request, topology: Topology, plan: Plan, count: CountSource | None = None
) -> CounterChoice | None:
    """Return what a run is to count; None: nothing, or it is planned for another machine.

    Raises `InputError` for groups that are not there, and for more of them than iterations.
    """
    if count is not None and not count.wrap:
        return choose_groups(COUNT_GROUP, this_processor(sysroot()))
    if request.counters is None or not topology.is_this_system:
        return None
    choice = choose_groups(request.counters, this_processor(sysroot()))
    refuse_few_iterations(choice, plan.iterations, plan.discard)
    return choice


def counter_warnings(choice: CounterChoice | None, plan: Plan) -> tuple[str, ...]:
    """Return what a person should know of what is to be counted."""
    if choice is None:
        return ()
    if plan.window is None:
        return choice.notes
    return (
        *choice.notes,
        "counters: every run waits at a gate to be counted, later ones of a copy too: programs of "
        "milliseconds complete fewer runs in a window than without",
    )


def counter_settings(choice: CounterChoice | None) -> tuple[tuple[str, str], ...]:
    """Return the tables of what is counted, as they are kept with a run.

    With them the cost of a TLB miss on this machine, where a table has parts that follow from it.
    """
    tables = choice.tables if choice else ()
    cycles = _miss_costs().miss_cycles() if any(table.estimates for table in tables) else None
    return (
        *((f"{TABLE_TEXT}{table.name}", table.text) for table in tables),
        *(((MISS_CYCLES, f"{cycles:.4g}"),) if cycles is not None else ()),
    )


def estimate_text(table: CounterTable) -> str | None:
    """Return a sentence on the estimated parts of a table; None: there are none."""
    if not table.estimates:
        return None
    parts = ", ".join(part.name for part in table.estimates)
    cycles = _miss_costs().miss_cycles()
    if cycles is None:
        return (
            f"{table.name}: {parts} is not known: the processor counts misses alone, and nobody "
            "measured here what one costs (`rater lab trace --measure`)"
        )
    return f"{table.name}: {parts} is estimated: misses x the {cycles:.3g} cycles one costs here"


def ready_counters(
    choice: CounterChoice | None, discard: int
) -> tuple[CounterPlan | None, tuple[str, ...]]:
    """Try what is to be counted; return it as far as it works here, and what does not, in words."""
    if choice is None:
        return None, ()
    root = sysroot()
    groups = dict.fromkeys(group for turn in choice.turns for group in turn)
    probed = {group: probe_group(group, root=root) for group in groups}
    ready = {group: probe.ready for group, probe in probed.items() if probe.ready is not None}

    def turn(iteration: int) -> tuple[ReadyGroup, ...]:
        return tuple(ready[group] for group in choice.turn(iteration, discard) if group in ready)

    counters = CounterPlan(turn, choice.most_events, PerfKernel()) if ready else None
    return counters, _not_counted(list(probed.values()))


def _not_counted(probed: Sequence[GroupProbe]) -> tuple[str, ...]:
    """Return what does not count, all groups of one reason together."""
    reasons: dict[tuple[str, str, bool], list[str]] = {}
    for probe in probed:
        if probe.why:
            reasons.setdefault((probe.why, probe.remedy, probe.ready is None), []).append(
                probe.of.name
            )
    return tuple(
        f"counters: {truncate_list(names)} "
        f"{'not counted' if is_not_counted else 'counted in part'}: {why}"
        + (f"; {remedy}" if remedy else "")
        for (why, remedy, is_not_counted), names in reasons.items()
    )


# -- What the machine draws while it idles ---------------------------------------------------------

_BUSY_CPUS = 0.25  # of others: a machine with more to do does not idle


def idle_power_of(
    request: Request, say: Callable[[str], None]
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the settings of `--idle-power`, measured now where it was not given; warnings."""
    if request.idle_power is None:
        return (), ()
    asked = IdlePower.parse(request.idle_power)
    if asked.watts is not None:
        return idle_settings(f"given: {asked.watts:.4g} W", {GIVEN: asked.watts}), ()
    seconds = asked.seconds or 0.0
    with closing(EnergyReader(sysroot())) as reader:
        if reader.source is None:
            reason = "this machine counts no energy that this user may read"
            return (), (f"--idle-power: {reason} (`rater doctor counters`)",)
        say(f"idle power is measured for {seconds:g} s")
        before, begin_s = machine_times(), time.monotonic()
        watts_by_domain = idle_watts_by_domain(reader, seconds)
        after, elapsed_s = machine_times(), time.monotonic() - begin_s
    if not watts_by_domain:
        return (), ("--idle-power: no counter of energy moved meanwhile",)
    busy_cpus = (after.busy_s - before.busy_s) / elapsed_s if before and after else 0.0
    warnings = (
        f"--idle-power: the machine did not idle ({busy_cpus:.1f} CPUs were busy): what was "
        "measured is too much, and energy above it too little"
    )
    settings = idle_settings(f"measured for {seconds:g} s before the first phase", watts_by_domain)
    return settings, (warnings,) if busy_cpus > _BUSY_CPUS else ()
