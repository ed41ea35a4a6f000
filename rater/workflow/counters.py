"""Hardware counters: what a run asked for, what this machine gives, `rater counters`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

from rater.plan.counters.choice import (
    CounterChoice,
    TableGroup,
    choose,
    refuse_few_iterations,
)
from rater.plan.counters.table import TABLE_TEXT
from rater.plan.request.request import Request
from rater.plan.schedule.phases import Plan
from rater.plan.topology.model import Topology
from rater.run.counters.counting import CounterSet
from rater.run.counters.device import this_processor
from rater.run.counters.perf_event import PerfKernel
from rater.run.counters.probe import GroupProbe, ReadyGroup, probe
from rater.run.observe.energy import energy_sources
from rater.settings.paths import sysroot
from rater.show.console.page import standard_page
from rater.show.plans.counters import (
    CounterRow,
    EnergyRow,
    counters_document,
    counters_text,
)
from rater.text.words import some
from rater.workflow.common import print_json


def counters_of(request: Request, topology: Topology, plan: Plan) -> CounterChoice | None:
    """Return what a run is to count; None: nothing, or it is planned for another machine.

    Raises `InputError` for groups that are not there, and for more of them than iterations.
    """
    if request.counters is None or not topology.is_this_system:
        return None
    choice = choose(request.counters, this_processor(sysroot()))
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
    """Return the tables of what is counted, as they are kept with a run."""
    tables = choice.tables if choice else ()
    return tuple((f"{TABLE_TEXT}{table.name}", table.text) for table in tables)


def ready_counters(
    choice: CounterChoice | None, discard: int
) -> tuple[CounterSet | None, tuple[str, ...]]:
    """Try what is to be counted; return it as far as it works here, and what does not, in words."""
    if choice is None:
        return None, ()
    root = sysroot()
    groups = dict.fromkeys(one for turn in choice.turns for one in turn)
    probed = {one: probe(one, root=root) for one in groups}
    ready = {one: it.ready for one, it in probed.items() if it.ready is not None}

    def turn(iteration: int) -> tuple[ReadyGroup, ...]:
        return tuple(ready[one] for one in choice.turn(iteration, discard) if one in ready)

    counters = CounterSet(turn, choice.most_events, PerfKernel()) if ready else None
    return counters, _not_counted(list(probed.values()))


def _not_counted(probed: Sequence[GroupProbe]) -> tuple[str, ...]:
    """Return what does not count, all groups of one reason together."""
    reasons: dict[tuple[str, str, bool], list[str]] = {}
    for it in probed:
        if it.why:
            reasons.setdefault((it.why, it.remedy, it.ready is None), []).append(it.of.name)
    return tuple(
        f"counters: {some(names)} {'not counted' if none else 'counted in part'}: {why}"
        + (f"; {remedy}" if remedy else "")
        for (why, remedy, none), names in reasons.items()
    )


def counters(args: argparse.Namespace) -> int:
    """Show what this machine can count, each group tried."""
    root = sysroot()
    processor = this_processor(root)
    wanted = args.groups or ["all,software"]
    choices = [choose(word, processor) for word in wanted]
    groups: dict[TableGroup, None] = dict.fromkeys(
        group for one in choices for turn in one.turns for group in turn
    )
    rows = [_row(it) for it in map(partial(probe, root=root), groups)]
    energy = None
    if not args.groups:
        energy = [
            EnergyRow(it.name, tuple(domain.name for domain in it.domains), it.refused)
            for it in energy_sources(root)
        ]
    notes = tuple(dict.fromkeys(note for one in choices for note in one.notes))
    if args.json:
        print_json(counters_document(processor, rows, energy, notes))
    else:
        print(counters_text(processor, rows, energy, notes, standard_page()))
    return 0


def _row(it: GroupProbe) -> CounterRow:
    state = "works"
    if it.ready is None:
        state = "not counted"
    elif it.ready.user_only:
        state = "user mode only"
    elif it.missing:
        state = "in part"
    table, group = it.of.table, it.of.group
    return CounterRow(
        table.name,
        group.name,
        state,
        tuple(event.name for event in group.events),
        it.missing,
        it.why,
        it.remedy,
        in_stack=group in table.stack_groups(),
    )
