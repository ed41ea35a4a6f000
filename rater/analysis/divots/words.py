"""Causes in the user's words: where, in which benchmarks, by how much, how many; pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.causes import Cause
from rater.analysis.divots.model.effects import DivotEffect, EffectKind
from rater.analysis.divots.model.families import LOCAL, NODE_SHIFT
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.layout import node_counts
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.analysis.stats.robust import Bools, Ints
from rater.text.cpuset import copy_numbers_text, format_list

# Kinds of findings that are about no place.
OF_ALL = (
    Kind.SLOW_ITERATION,
    Kind.DRIFT,
    Kind.STEP,
    Kind.WARM_UP,
    Kind.GRADIENT,
    Kind.STARTUP,
    Kind.WANDERING,
    Kind.NO_PLACE,
)
_MOST_NAMED = 8  # copies or CPUs
# A benchmark is named if it shows so many times the typical effect, and so much (ln) beyond it.
_MUCH_MORE, _MORE = 1.5, 0.05
# A range is shown if sizes are apart by so much (ln), and by such a share of the typical size.
_LEAST_RANGE, _VARIES = 0.005, 0.1
# What happened at a start, and whose seconds and share of the time are named.
_MODES = {
    "late-start": "the last copy started {0} after the first, {1} of the median time",
    "ramp": "the later a copy started, the longer it took: the last one {0} longer, {1}",
    "convoy": "the copies came through the start one after another: "
    "the median copy took {0} longer, {1}, the last one {2}",
    "input-wait": "copies waited, and computed less of the time: the median copy {0}, {1}",
}
_NOTHING = 0.0005  # share of the score; a cost below it is shown as none
_TIME = "copies' time"
_ORDINALS = ("first", "second", "third", "fourth")


def only_one(numbers: Ints) -> int | None:
    """Return the one number that all are, None for several or an unknown one."""
    first = int(numbers[0]) if len(numbers) else UNKNOWN
    return first if first != UNKNOWN and bool((numbers == first).all()) else None


# -- where ----------------------------------------------------------------------------------------


def place_of(table: Table, cause: Cause, cpus: Sequence[int], copies: Sequence[int]) -> str:
    """Return the simplest part of the machine that a cause is of, else its CPUs or copies."""
    numbered, slots, level = copy_numbers_text(copies), cause.slots, cause.level
    on = formatting.format_cpus(cpus) if cpus else numbered
    fixed = {
        **dict.fromkeys(OF_ALL, "whole run" if cause.everywhere else "all copies"),
        Kind.NO_PLACE: "no place",
        Kind.BIMODAL: "some copies",
        Kind.LAYOUT: on,
    }
    if cause.kind in fixed:
        return fixed[cause.kind]
    if "moves" in cause.facts:
        return f"{numbered}, wherever it ran"
    group, many = cause.groups[0] if cause.groups else UNKNOWN, int(slots.sum())
    node, memory = only_one(table.node[slots]), only_one(table.memory[slots])
    if level == "node+memory":
        node, memory = divmod(group, NODE_SHIFT)
    elif level == "remote" and None not in (node, memory):
        level = EffectKind.NODE_AND_MEMORY
    elif level == "core" and len(cpus) == 1:  # its one CPU is what copies shared
        level = EffectKind.CPU
    lgroups = len(np.unique(table.node)) > 1
    inside = node is not None and lgroups
    half = "upper" if group % 2 else "lower"
    thread = _ORDINALS[group] if 0 <= group < len(_ORDINALS) else f"{group + 1}th"
    names = {
        "node": _numbered("node", cause.groups),
        "package": _numbered("package", cause.groups),
        "llc": _numbered("LLC", cause.groups) + (f" (node {node})" if inside else ""),
        "node+memory": f"{numbered} (memory on node {memory}, CPUs on node {node})",
        "remote": f"{numbered} (memory on {'their own' if group == LOCAL else 'another'} node)",
        "memory": f"{numbered} (memory on node {group})",
        "sharing": f"{on} (not explained by how many copies share a core)",
        "thread": f"{thread} threads of the cores ({on})",
        "half": f"{half} half of {'every' if lgroups else 'the'} NUMA node ({on})",
        "half of lgroup": f"{half} half of node {group // 2} ({on})",
        "cpu": f"{on} ({many} copies)" if many > len(cpus) else "",
        "core": f"{_numbered('core', cause.groups)} ({on})" if many > 1 else "",
    }
    if names.get(level):
        return names[level]
    if cause.kind is Kind.OUTLIER_COPY and len(cpus) > _MOST_NAMED:
        on = numbered
    elif cpus and np.isin(table.cpu, cpus).sum() > many:  # other copies on these CPUs are not slow
        on = f"{numbered} ({on})"
    return f"{on} of node {node}" if inside and level == "set" and many > 1 and cpus else on


def _numbered(noun: str, numbers: Sequence[int]) -> str:
    return f"{noun}{'s' if len(numbers) > 1 else ''} {format_list(numbers)}"


# -- what -----------------------------------------------------------------------------------------


def summary_of(table: Table, cause: Cause) -> str:
    """Return what happened to whom: benchmarks, size, how many of how many."""
    facts, numbers = cause.facts, [table.iterations[index] for index in cause.iterations]
    names = formatting.named(
        [table.name(benchmark) for benchmark in cause.benchmarks], table.shape[0]
    )
    size = formatting.format_slowdown(math.exp(float(facts.get("rise", cause.size))))
    copies = np.unique(table.copy[cause.covered]).tolist()
    several = len(numbers) > 1
    iterations = f"iteration{'s' * several} {numbers[0]}" + f"-{numbers[-1]}" * several
    where = ""
    if len(numbers) < table.shape[1]:
        where = f" iteration{'s' * several} {','.join(map(str, numbers))}"
    share = f"{float(facts.get('share', 0.0)) * 100:.0f} % of "
    match cause.kind:
        case Kind.SLOW_ITERATION:
            text = f"{iterations}: {names} {_range(table, cause)} against the other iterations"
            text += _all_but(table, cause)
        case Kind.STEP | Kind.WARM_UP as kind:
            early = "warm-up, " if kind is Kind.WARM_UP else ""
            text = f"{early}{iterations} of {table.shape[1]}: {names} {_range(table, cause)} "
            text += "against the other iterations"
        case Kind.DRIFT:
            text = f"{names} {size} from the first to the last of {table.shape[1]} iterations"
        case Kind.GRADIENT:
            text = f"{names}{where}: {size} from the first copy to the last, evenly"
        case Kind.STARTUP:
            text = f"{names}{where}: start-up ({_start_up(facts, size)})"
        case Kind.WANDERING:
            turns = _turns(table, str(facts["turns"]))
            text = f"{names}: another NUMA node is slow in each iteration ({turns})"
        case Kind.UNSTEADY:
            numbered = copy_numbers_text(copies)
            text = (
                f"{names}: times vary {float(facts['ratio']):.1f} times as much as those of other "
                f"copies, about the same mean ({numbered}, of {table.copies})"
            )
        case Kind.NO_PLACE:
            text = (
                f"{names}: one copy or a few {_range(table, cause)} in {len(cause.cells)} phases, "
                f"{len(copies)} different ones by chance; no place is at fault"
            )
        case Kind.BIMODAL if cause.level == "modes":
            text = f"{names}: does not repeat, {share}the copies {size}, other ones each iteration"
        case Kind.BIMODAL:
            same = ", the same copies every time" if facts.get("same") else ""
            text = f"{names}: two groups of copies, {share}them {size}{same}; "
            text += _on_lgroups(table, cause) + _undecided(table, cause, copies)
        case _:
            text = f"{names} {_range(table, cause)} ({_how_many(table, cause, copies)})"
            text += _undecided(table, cause, copies)
    return text


def _start_up(facts: Mapping[str, float | str], size: str) -> str:
    """Return what happened at the start, with its seconds and its share of the time."""
    seconds = [
        formatting.format_seconds(float(facts[name]))
        for name in ("seconds", "last_s")
        if name in facts
    ]
    return _MODES[str(facts["mode"])].format(seconds[0], size, seconds[-1])


def _undecided(table: Table, cause: Cause, copies: Sequence[int]) -> str:
    """Return that slow copies may be the normal ones, of as many fast ones of no other sort."""
    named = cause.level not in ("set", "modes")
    if cause.level == "half":  # of the only lgroup
        named = len(np.unique(table.node)) > 1
    if named or 2 * len(copies) != table.copies or table.copies <= 2:
        return ""
    way = "use --iterations 3 or " if table.shape[1] == 1 else ""
    return (
        f": {len(copies)} of {table.copies} copies differ; this run cannot show which half is "
        f"normal; {way}compare with another run"
    )


def _range(table: Table, cause: Cause) -> str:
    """Return `+18.2 %`, or `+18.2 % (+11 to +29 %, most in 429.mcf)` where it varies.

    Over benchmarks, iterations or copies: the first with half of the widest range of the three.
    """
    typical = cause.size
    text = formatting.format_slowdown(math.exp(typical))
    each = np.where(cause.covered, cause.effect, np.nan)
    members = (cause.benchmarks, cause.iterations, np.flatnonzero(cause.slots).tolist())
    ranges = [
        [float(np.nanmedian(np.take(each, at, axis_index))) for at in some]
        for axis_index, some in enumerate(members)
    ]
    spans = [max(sizes) - min(sizes) for sizes in ranges]
    axis = next(axis_index for axis_index, span in enumerate(spans) if 2 * span >= max(spans))
    sizes = ranges[axis]
    if spans[axis] < max(_LEAST_RANGE, _VARIES * abs(typical)):
        return text
    worst, most = max(sizes, key=lambda size: size * typical), ""
    if axis == 0 and abs(worst) >= max(_MUCH_MORE * abs(typical), abs(typical) + _MORE):
        most = f", most in {table.name(cause.benchmarks[sizes.index(worst)])}"
    return f"{text} ({formatting.sizes([math.exp(size) for size in sizes])}{most})"


def _how_many(table: Table, cause: Cause, copies: Sequence[int]) -> str:
    """Return `8 of 8 copies, 3 of 3 iterations`."""
    has_run, cells, iterations = ~np.isnan(table.log_s), cause.cells, cause.iterations

    def typical(of: Bools) -> int:
        return int(np.median([of[cell].sum() for cell in cells]))

    singly = cause.kind is Kind.OUTLIER_COPY and len(cells) == 1  # of all that ran there
    slots = cause.slots | singly
    members = np.zeros(len(slots), dtype=bool)
    if cause.level in ("node", "package", "llc", "core", "cpu"):
        members = np.isin(getattr(table, cause.level), cause.groups)
    text = f"copy {copies[0]}, 1 of {table.copies} copies"
    if len(copies) > 1:  # a few of a slow part may have kept their speed
        text = f"{typical(cause.covered)} of {typical(has_run & (slots | members))} copies"
    if members.any():
        failed = typical(table.ran & members & ~has_run)
        text += f", {failed} failed" if failed else ""
    if table.shape[1] > 1:
        text += f", {len(iterations)} of {table.shape[1]} iterations"
        which = format_list(table.iterations[at] for at in iterations)
        if "," not in which and len(iterations) < table.shape[1]:
            text += f": {which}" if "-" in which else f": iteration {which}"
    return text


def _on_lgroups(table: Table, cause: Cause) -> str:
    """Return where the slow ones of two groups of copies are, which are no part of the machine."""
    on = np.unique(table.node[cause.slots])
    if len(on) == 1 and UNKNOWN not in table.node and len(np.unique(table.node)) > 1:
        return f"all on node {on[0]}, not all of it"
    return "not by NUMA node or CPU"


def _all_but(table: Table, cause: Cause) -> str:
    """Return the copies that kept their speed in a slow iteration, by number if they are few."""
    if not cause.facts.get("kept"):
        return ""
    cell = cause.cells[0]
    has_run = ~np.isnan(table.log_s[cell])
    away = has_run & ~cause.covered[cell]
    spared = np.unique(table.node[away])
    if UNKNOWN not in spared and not np.isin(table.node[has_run & ~away], spared).any():
        return f", all but {_numbered('node', spared.tolist())}"
    stayed = np.unique(table.copy[cell][away]).tolist()
    if len(stayed) <= _MOST_NAMED:
        return f", all but {copy_numbers_text(stayed)}"
    return f", but {len(stayed)} of {int(has_run.sum())} copies kept their speed"


def _turns(table: Table, facts: str) -> str:
    """Return `iteration 1: lgroup 2 +1.9 %; ...` of a wandering's facts."""
    by_iteration: dict[int, list[str]] = {}
    for item in facts.split():
        index, name, effect = item.split(":")
        size = formatting.format_slowdown(math.exp(float(effect)))
        by_iteration.setdefault(int(index), []).append(f"node {name} {size}")
    return "; ".join(
        f"iteration {table.iterations[index]}: {', '.join(parts)}"
        for index, parts in by_iteration.items()
    )


# -- what it costs, and what explains it ----------------------------------------------------------


def cost_of(table: Table, cause: Cause) -> str:
    """Return what a cause costs; empty where there is nothing to say."""
    most = max(cause.cells_lost.values(), default=0.0)
    if cause.lost < _NOTHING < most and len(cause.iterations) < table.shape[1]:
        rate = formatting.format_cost(most)
        nothing = "costs nothing of the score (the median iteration counts)"
        return f"{nothing}, {rate} of that iteration's rate"
    if cause.lost > 0:
        of, each = ("score", "a rate") if table.barrier else (_TIME, "those of a benchmark")
        text = f"costs {formatting.format_cost(cause.lost)} of the {of}"
        if cause.rate_lost > 1.5 * cause.lost:
            text += f", up to {formatting.format_cost(cause.rate_lost)} of {each}"
        return text
    if cause.size > 0 and table.barrier and table.copies > 1:
        why = "it only got faster" if cause.kind is Kind.DRIFT else "slower copies are waited for"
        return f"costs nothing: {why}"
    return ""


def expectation_of(table: Table, effect: DivotEffect) -> str:
    """Return what the layout predicts."""
    (load, usual), most_words = (f"{count:g}" for count in effect.counts), "most"
    if effect.kind == "load" and effect.counts[1] not in node_counts(table):  # the middle of two
        usual, most_words = "fewer" if effect.counts[0] > effect.counts[1] else "more", "others"
    noun = "copy" if load == "1" else "copies"
    return {
        "sharing-cpu": f"{load} {noun} on one CPU where most have {usual}",
        "sharing-core": f"{load} {noun} on one core where most cores have {usual}",
        "core-kind": "another kind of core",
        "load": f"{load} {noun} on a NUMA node where {most_words} have {usual}",
    }[effect.kind]
