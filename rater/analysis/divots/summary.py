"""What a finding says: benchmarks, size and how many of how many, in the user's words; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rater.analysis.divots.model import formatting
from rater.analysis.divots.model.causes import Hit
from rater.analysis.divots.model.finding import Kind
from rater.analysis.divots.model.table import UNKNOWN, Table
from rater.text.cpuset import format_list

# Not of a place.
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
_MOST_NAMES = 5
# Of the typical effect, and beyond it (ln): a benchmark that shows so much is named.
_MUCH_MORE, _MORE = 1.5, 0.05
# A range is told where sizes are apart by so much (ln), and by such a share of the size.
_LEAST_RANGE, _VARIES = 0.005, 0.1
_MODES = {
    "late-start": "the last copy started late",
    "ramp": "the later a copy started, the longer it took",
    "convoy": "the copies came through the start one after another",
    "input-wait": "copies had to wait, and computed less of the time",
}


def summary_of(table: Table, hit: Hit) -> str:
    """Return what happened to whom: benchmarks, size, how many of how many."""
    benchmarks, iterations = hit.benchmarks, hit.iterations
    which = formatting.named([table.name(b) for b in benchmarks], table.shape[0])
    size = formatting.format_slowdown(math.exp(float(hit.facts.get("rise", hit.size))))
    if hit.kind in (*OF_ALL, Kind.BIMODAL):
        return _of_whole(table, hit, which, size, iterations)
    copies = sorted({int(c) for c in table.copy[hit.covered]})
    told = f"{which} {_range(table, hit)} ({_how_many(table, hit, copies)})"
    if "changing" in hit.facts:
        told += ", other copies each time"
    return told + _undecided(table, hit, copies)


def _undecided(table: Table, hit: Hit, copies: Sequence[int]) -> str:
    """Return that slow copies may be the normal ones, of as many fast ones of no other sort."""
    named = hit.level not in ("set", "run", "modes")
    if hit.level == "half":  # of the only lgroup
        named = len(np.unique(table.node)) > 1
    if named or 2 * len(copies) != table.copies or table.copies <= 2:
        return ""
    way = "use --iterations 3 or " if table.shape[1] == 1 else ""
    return (
        f": {len(copies)} of {table.copies} copies differ; this run cannot show which half is "
        f"normal; {way}compare with another run"
    )


def _range(table: Table, hit: Hit) -> str:
    """Return `+18.2 %`, or `+18.2 % (+11 to +29 %, most in 429.mcf)` where it varies.

    Over benchmarks, iterations or copies: the first with half of the widest range of the three.
    """
    typical, least = hit.size, max(_LEAST_RANGE, _VARIES * abs(hit.size))
    text = formatting.format_slowdown(math.exp(typical))
    each = np.where(hit.covered, hit.effect, np.nan)
    members = (hit.benchmarks, hit.iterations, np.flatnonzero(hit.slots).tolist())
    ranges = [
        [float(np.nanmedian(np.take(each, at, k))) for at in some] for k, some in enumerate(members)
    ]
    spans = [max(sizes) - min(sizes) for sizes in ranges]
    axis = next(k for k, span in enumerate(spans) if 2 * span >= max(spans))
    sizes = ranges[axis]
    if spans[axis] < least:
        return text
    worst, most = max(sizes, key=lambda size: size * typical), ""
    if axis == 0 and abs(worst) >= max(_MUCH_MORE * abs(typical), abs(typical) + _MORE):
        most = f", most in {table.name(hit.benchmarks[sizes.index(worst)])}"
    return f"{text} ({formatting.sizes([math.exp(size) for size in sizes])}{most})"


def _how_many(table: Table, hit: Hit, copies: Sequence[int]) -> str:
    """Return `8 of 8 copies, 3 of 3 iterations`."""
    there = ~np.isnan(table.log_s)
    count = [int(hit.covered[cell].sum()) for cell in hit.cells]
    singly = hit.kind is Kind.OUTLIER_COPY and len(hit.cells) == 1  # of all that ran there
    slots = hit.slots | singly
    ran = [int((there[cell] & slots).sum()) for cell in hit.cells]
    known, covered = int(np.median(ran)), int(np.median(count))
    if len(copies) == 1:
        text = f"copy {copies[0]}, 1 of {table.copies} copies"
    else:
        text = f"{covered} of {known} copies"
    if hit.level in ("node", "package", "llc", "core", "cpu"):
        members = np.isin(getattr(table, hit.level), hit.groups)
        failed = [int((table.ran[cell] & members & ~there[cell]).sum()) for cell in hit.cells]
        text += f", {int(np.median(failed))} failed" if np.median(failed) >= 1 else ""
    if table.shape[1] > 1:
        text += f", {len(hit.iterations)} of {table.shape[1]} iterations"
        which = format_list(table.iterations[at] for at in hit.iterations)
        if "," not in which and len(hit.iterations) < table.shape[1]:
            text += f": {which}" if "-" in which else f": iteration {which}"
    return text


def _of_whole(table: Table, hit: Hit, which: str, size: str, iterations: list[int]) -> str:
    """Return the words for what concerns all copies, or two sorts of them."""
    facts, where = hit.facts, _in_iterations(table, iterations)
    numbers = [table.iterations[k] for k in iterations]
    copies = sorted({int(c) for c in table.copy[hit.covered]})
    beside = f"{which} {_range(table, hit)} against the other iterations"
    share = f"{float(facts.get('share', 0.0)) * 100:.0f} % of "
    match hit.kind:
        case Kind.SLOW_ITERATION:
            text = f"iteration {numbers[0]}: {beside}{_all_but(table, hit)}"
        case Kind.STEP | Kind.WARM_UP:
            name = "warm-up, iteration" if hit.kind is Kind.WARM_UP else "iteration"
            span = f"s {numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f" {numbers[0]}"
            text = f"{name}{span} of {table.shape[1]}: {beside}"
        case Kind.GRADIENT:
            text = f"{which}{where}: {size} from the first copy to the last, evenly"
        case Kind.NO_PLACE:
            text = (
                f"{which}: one copy or a few {_range(table, hit)} in {len(hit.cells)} phases, "
                f"{len(copies)} different ones by chance; no place is at fault"
            )
        case Kind.WANDERING:
            turns = _turns(table, str(facts["turns"]))
            text = f"{which}: another NUMA node is slow in each iteration ({turns})"
        case Kind.DRIFT:
            text = f"{which} {size} from the first to the last of {table.shape[1]} iterations"
        case Kind.STARTUP:
            mode = _MODES[str(facts["mode"])]
            text = f"{which}{where}: start-up ({mode}), {size} of the median time"
        case _ if hit.level == "modes" and not facts.get("same"):
            text = f"{which}: does not repeat, {share}the copies {size}, other ones each iteration"
        case _:
            same = ", the same copies every time" if facts.get("same") else ""
            text = (
                f"{which}: two groups of copies, {share}them {size}{same}; "
                f"{_on_lgroups(table, hit)}{_undecided(table, hit, copies)}"
            )
    return text


def _on_lgroups(table: Table, hit: Hit) -> str:
    """Return where the slow ones of two groups of copies are, which are no part of the machine."""
    known = table.node != UNKNOWN
    on = np.unique(table.node[hit.slots])
    if len(on) == 1 and known.all() and len(np.unique(table.node)) > 1:
        return f"all on node {on[0]}, not all of it"
    return "not by NUMA node or CPU"


def _all_but(table: Table, hit: Hit) -> str:
    """Return the copies that kept their speed in a slow iteration, by number if they are few."""
    if not hit.facts.get("kept"):
        return ""
    cell = hit.cells[0]
    there = ~np.isnan(table.log_s[cell])
    away = there & ~hit.covered[cell]
    spared = np.unique(table.node[away])
    if UNKNOWN not in spared and not np.isin(table.node[there & ~away], spared).any():
        return f", all but node{'s' if len(spared) > 1 else ''} {format_list(spared)}"
    stayed = sorted(int(c) for c in table.copy[cell][away])
    if len(stayed) <= _MOST_NAMES:
        return f", all but {formatting.format_copies(stayed)}"
    return f", but {len(stayed)} of {int(there.sum())} copies kept their speed"


def _turns(table: Table, told: str) -> str:
    """Return `iteration 1: lgroup 2 +1.9 %; ...` of a wandering's facts."""
    by_iteration: dict[int, list[str]] = {}
    for item in told.split():
        k, name, effect = item.split(":")
        size = formatting.format_slowdown(math.exp(float(effect)))
        by_iteration.setdefault(int(k), []).append(f"node {name} {size}")
    return "; ".join(
        f"iteration {table.iterations[k]}: {', '.join(parts)}" for k, parts in by_iteration.items()
    )


def _in_iterations(table: Table, iterations: Sequence[int]) -> str:
    if table.shape[1] < 2 or len(iterations) == table.shape[1]:
        return ""
    numbers = [table.iterations[i] for i in iterations]
    return f" {'iteration' if len(numbers) == 1 else 'iterations'} " + ",".join(map(str, numbers))
