"""What a finding says: benchmarks, size and how many of how many, in the user's words; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rater.analysis.divots.data import words
from rater.analysis.divots.data.candidate import Draft
from rater.analysis.divots.data.finding import Kind
from rater.analysis.divots.data.table import Table
from rater.analysis.divots.pipeline import Detected
from rater.analysis.stats.robust import middle
from rater.text.cpuset import format_list

OF_ALL = (Kind.SLOW_ITERATION, Kind.DRIFT, Kind.STARTUP, Kind.WANDERING)  # not of a place
_MOST_NAMES = 5
# Of the typical effect, and beyond it (ln): a benchmark that shows so much is named.
_MUCH_MORE, _MORE = 1.5, 0.05
_MODES = {
    "late-start": "the last copy started late",
    "ramp": "the later a copy started, the longer it took",
    "convoy": "the copies came through the start one after another",
    "input-wait": "copies had to wait, and computed less of the time",
}


def summary_of(
    found: Detected, draft: Draft, benchmarks: list[int], iterations: list[int], copies: list[int]
) -> str:
    """Return what happened to whom: benchmarks, size, how many of how many."""
    names = [found.table.name(b) for b in benchmarks]
    which = words.named(names, found.table.shape[0])
    size = words.per_cent(math.exp(draft.size))
    one_of = f"{words.copies(copies)}, 1 of {found.table.copies}"
    if draft.kind in (*OF_ALL, Kind.BIMODAL):
        return _of_whole(found.table, draft, which, size, iterations)
    if "spread" in draft.facts:
        return (
            f"{which}: copies differ by {float(draft.facts['spread']) * 100:.1f} % (standard "
            "deviation), the same ones slow and fast every iteration "
            f"(to {float(draft.facts['repeat']) * 100:.1f} %)"
        )
    if "repeat" in draft.facts or "showing" in draft.facts:
        where = _in_iterations(found.table, iterations)
        return _every_time(found.table, draft, which, names, copies) + (where and f",{where}")
    if draft.kind is Kind.OUTLIER_COPY:
        part = draft.parts[0]
        whole = int(np.sum(~np.isnan(found.table.log_s[part.b, part.i])))
        if len(copies) == 1:
            where = _in_iterations(found.table, iterations)
            return f"{which}{where} {words.than_others(math.exp(draft.size))} ({one_of})"
        how = words.sizes([math.exp(float(e)) for e in part.effect])
        where = _in_iterations(found.table, iterations)
        return f"{which}{where}: {len(part.slots)} of {whole} copies {how}"
    return f"{which} {size}{_worst(found.table, draft)} ({_how_many(found, draft)})"


def _of_whole(table: Table, draft: Draft, which: str, size: str, iterations: list[int]) -> str:
    """Return the words for what concerns all copies, or two sorts of them."""
    facts = draft.facts
    if draft.kind is Kind.SLOW_ITERATION:
        number = table.iterations[iterations[0]]
        return f"iteration {number}: {which} {size} over the others{_all_but(table, draft)}"
    if draft.kind is Kind.WANDERING:
        return f"{which}: the lgroups take turns, {_turns(table, str(facts['turns']))}"
    if draft.kind is Kind.DRIFT:
        return f"{which} {size} from the first to the last of {table.shape[1]} iterations"
    if draft.kind is Kind.STARTUP:
        where = _in_iterations(table, iterations)
        return f"{which}{where}: start-up ({_MODES[str(facts['mode'])]}), {size} of the median time"
    same = ", the same copies every time" if facts.get("same") else ""
    return (
        f"{which}: two groups of copies, {float(facts['share']) * 100:.0f} % of them {size}{same}; "
        "not by lgroup or CPU"
    )


def _all_but(table: Table, draft: Draft) -> str:
    """Return the copies that kept their speed in a slow iteration, by number if they are few."""
    if not draft.facts.get("kept"):
        return ""
    spared = [int(name) for name in str(draft.facts.get("spared", "")).split()]
    if spared and not _others_kept(table, draft, spared):
        plural = "s" if len(spared) > 1 else ""
        return f", all but lgroup{plural} {format_list(spared)}"
    part = draft.parts[0]
    there = ~np.isnan(table.log_s[part.b, part.i])
    away = there.copy()
    away[part.slots] = False
    stayed = sorted(int(c) for c in table.copy[part.b, part.i, away])
    if len(stayed) <= _MOST_NAMES:
        return f", all but {words.copies(stayed)}"
    return f", but {len(stayed)} of {int(there.sum())} copies kept their speed"


def _others_kept(table: Table, draft: Draft, spared: list[int]) -> bool:
    """Tell whether copies kept their speed that are not of the spared lgroups."""
    away = ~draft.slots & ~np.isin(table.node, spared)
    part = draft.parts[0]
    return bool((away & ~np.isnan(table.log_s[part.b, part.i])).any())


def _every_time(
    table: Table, draft: Draft, which: str, names: Sequence[str], copies: Sequence[int]
) -> str:
    """Return the words for copies that are off in several benchmarks, or in every iteration."""
    facts, of = draft.facts, table.shape[0]
    how, again = words.per_cent(math.exp(draft.size)), ""
    if "repeat" in facts:
        how = words.sizes([math.exp(float(facts[end])) for end in ("low", "high")])
        again = f", every iteration alike (to {float(facts['repeat']) * 100:.1f} %)"
    if "showing" not in facts:
        if len(copies) == 1:
            one_of = f"{words.copies(copies)}, 1 of {table.copies}"
            return f"{which} {words.than_others(math.exp(draft.size))} ({one_of}){again}"
        return f"{which}: {len(copies)} of {table.copies} copies {how}{again}"
    some = f" ({', '.join(names)})" if len(names) < of and len(names) <= _MOST_NAMES else ""
    worst = "" if "repeat" in facts else _worst(table, draft)
    return f"{how} in {int(facts['showing'])} of {int(facts['of'])} benchmarks{some}{worst}{again}"


def _worst(table: Table, draft: Draft) -> str:
    """Return `, 429.mcf +40.1 %` where a benchmark shows much more than is typical."""
    by_benchmark: dict[int, list[float]] = {}
    for part in draft.parts:
        if len(part.effect):
            by_benchmark.setdefault(part.b, []).append(float(np.median(part.effect)))
    sign = math.copysign(1.0, draft.size)
    sizes = {b: sign * float(np.median(each)) for b, each in by_benchmark.items()}
    if len(sizes) < 2:
        return ""
    worst = max(sizes, key=lambda b: sizes[b])
    if sizes[worst] < max(_MUCH_MORE * abs(draft.size), abs(draft.size) + _MORE):
        return ""
    return f", {table.name(worst)} {words.per_cent(math.exp(sign * sizes[worst]))}"


def _turns(table: Table, told: str) -> str:
    """Return `iteration 1: lgroup 2 +1.9 %; ...` of a wandering's facts."""
    by_iteration: dict[int, list[str]] = {}
    for item in told.split():
        k, name, effect = item.split(":")
        size = words.per_cent(math.exp(float(effect)))
        by_iteration.setdefault(int(k), []).append(f"lgroup {name} {size}")
    return "; ".join(
        f"iteration {table.iterations[k]}: {', '.join(parts)}" for k, parts in by_iteration.items()
    )


def _in_iterations(table: Table, iterations: Sequence[int]) -> str:
    if table.shape[1] < 2 or len(iterations) == table.shape[1]:
        return ""
    numbers = [table.iterations[i] for i in iterations]
    return f" {'iteration' if len(numbers) == 1 else 'iterations'} " + ",".join(map(str, numbers))


def _how_many(found: Detected, draft: Draft) -> str:
    """Return `8 of 8 copies, 3 of 3 iterations`."""
    table = found.table
    size = int(draft.slots.sum())
    showing = []
    for part in draft.parts:
        left = found.residuals[part.b, part.i]
        usual = middle(np.delete(left, part.slots)) if len(part.slots) < len(left) else 0.0
        over = np.sign(draft.size) * (left[part.slots] + part.effect - np.nan_to_num(usual))
        half = over > np.abs(part.effect) / 2
        showing.append(int(np.sum(half)))
    copies = int(np.median(showing)) if showing else 0
    ran = [int(np.sum(draft.slots & ~np.isnan(table.log_s[p.b, p.i]))) for p in draft.parts]
    there = int(np.median(ran)) if ran else size
    text = f"{copies} of {there} copies"
    if there < size:
        text += f", {size - there} failed"
    if table.shape[1] > 1:
        count = len({part.i for part in draft.parts})
        text += f", {count} of {table.shape[1]} iterations"
    return text
