"""Compare the hosts of a fleet: kinds apart, the slow ones named, with what is odd about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from rater.analysis.results.disturbed import mostly_disturbed
from rater.analysis.stats.robust import Floats, median
from rater.fleet.archive import IndexedRun, latest
from rater.fleet.model import (
    FEWEST_HOSTS,
    FleetComparison,
    HostResult,
    KindComparison,
    OddSetting,
    SlowBenchmark,
    SlowHost,
    Slowness,
    compare_hosts,
)
from rater.settings.known import is_volatile
from rater.text.values import group_by_key

_SAME_MEMORY = 0.02  # machines of one kind tell the kernel's share differently
_ALIKE = 0.4  # of its slowdown: a benchmark that shows so much shows it
_MOST_OF = 0.5  # hosts of a kind that a usual value needs
# What differs on every machine or run and explains nothing.
_OWN = ("kernel.cmdline", "kernel.version", "env.PATH")

# Of a host's attempt and run: by benchmark the times of its brackets and of its median copies, in
# seconds. Side by side no copies: no brackets.
type Times = dict[str, tuple[tuple[float, ...], tuple[float, ...]]]


def results_of(
    runs: Iterable[IndexedRun],
    times: Mapping[tuple[str, int, int], Times],
    settings: Mapping[int, dict[str, str]],
    command: str | None = None,
) -> list[HostResult]:
    """Return each host's last complete attempt, else its last; of several runs in it the last.

    `command`: what they ran, where that is no suite.
    """
    found = []
    for own in latest(runs).values():
        run = own[-1]
        of: Times = {}
        for one in own:
            of |= times.get((one.host, one.attempt, one.run), {})
        found.append(
            HostResult(
                run,
                settings.get(run.setting, {}),
                {name: bracket_s for name, (bracket_s, _) in of.items() if bracket_s},
                {name: copy_s for name, (_, copy_s) in of.items()},
                command or ", ".join(filter(None, (run.suite, run.size))),
            )
        )
    return found


def compare_fleet(results: Iterable[HostResult]) -> FleetComparison:
    """Hold the hosts of each kind against each other."""
    results = list(results)
    kinds = group_by_key((_kind(it.run), it) for it in results if it.copy_s)
    groups = [group for them in kinds.values() for group in _of_one_memory(them)]
    groups.sort(key=lambda them: (-len(them), them[0].host))
    return FleetComparison(
        tuple(
            replace(_compared(them, groups[0][0].run), beside=_beside(them, groups[0]))
            for them in groups
        ),
        tuple(sorted(it.host for it in results if not it.copy_s)),
    )


def _beside(own: list[HostResult], usual: list[HostResult]) -> tuple[SlowHost, ...] | None:
    """Return the hosts of a small kind that are slow among those of the most common one.

    Where these run the same machine with another kernel or microcode: a host that got slower with
    a new kernel is the reason to look.
    """
    first = usual[0].run
    of = replace(own[0].run, microcode=first.microcode, kernel=first.kernel)
    if own is usual or any(_apart(of, first)) or not len(own) < FEWEST_HOSTS <= len(usual):
        return None
    if mostly_disturbed([it.taken for it in usual]):
        return None
    hosts = {it.host for it in own}
    return tuple(it for it in _compared([*usual, *own], first).slow if it.host in hosts)


def _kind(run: IndexedRun) -> tuple[object, ...]:
    """Return what hosts have to have in common to be compared, but for a little memory."""
    return run.cpu_model, run.microcode, run.kernel, run.cpus, run.copies, run.what


def _of_one_memory(them: Iterable[HostResult]) -> Iterator[list[HostResult]]:
    group: list[HostResult] = []
    for one in sorted(them, key=lambda it: it.run.memory_bytes or 0):
        if group and is_other_memory(group[-1].run, one.run):
            yield group
            group = []
        group.append(one)
    yield group


def _compared(them: Sequence[HostResult], first: IndexedRun) -> KindComparison:
    results = sorted(them, key=lambda it: it.host)
    names = sorted({name for it in results for name in it.copy_s})
    # One measure for all hosts in a benchmark: brackets where all that ran it have them.
    bracketed = {
        name for name in names if all(name in it.bracket_s for it in results if name in it.copy_s)
    }
    whole = _logs(
        [
            [(it.bracket_s if name in bracketed else it.copy_s).get(name, ()) for name in names]
            for it in results
        ]
    )
    copies = _distances(_logs([[it.copy_s.get(name, ()) for name in names] for it in results]))
    usual = _usual_settings(results)
    odd = {it.host: own for it in results if (own := tuple(_odd(it.settings, usual)))}
    found = None if len(results) < FEWEST_HOSTS else compare_hosts(whole)
    distances = _distances(whole) if found is None else found.distances
    if len(results) == 1:
        distances = np.full(whole.shape[:2], np.nan)
    slow = [
        _slow(it, results[it.host], names, (distances[it.host], copies[it.host]), odd)
        for it in (found.slow if found else ())
    ]
    named = {it.host for it in slow}
    others = [h for h, it in enumerate(results) if it.host not in named]
    quiet: list[int] = []
    if found:
        quiet = sorted(others, key=lambda h: float(np.nanmax(np.abs(distances[h]))))
        others.sort(key=lambda h: -np.nanmean(distances[h]))
    return KindComparison(
        kind=results[0].run,
        apart=tuple(_apart(results[0].run, first)),
        hosts=(*(it.host for it in slow), *(results[h].host for h in others)),
        slowdowns={
            it.host: {
                name: None if np.isnan(size) else float(np.exp(size))
                for name, size in zip(names, row, strict=True)
            }
            for it, row in zip(results, distances, strict=True)
        },
        slow=() if mostly_disturbed([it.taken for it in results], "host") else tuple(slow),
        visible_whole=float(np.expm1(found.visible_whole)) if found else None,
        visible_one=float(np.expm1(found.visible_one)) if found else None,
        quiet=tuple(results[h].host for h in quiet),
        odd_settings=odd,
        disturbed=tuple(it.host for it in results if it.taken),
    )


def _slow(
    found: Slowness,
    result: HostResult,
    names: Sequence[str],
    rows: tuple[Floats, Floats],
    odd: Mapping[str, tuple[OddSetting, ...]],
) -> SlowHost:
    """Return a slow host; `rows` are its distances, of all copies and of median ones."""
    row, copies = rows
    known = row[~np.isnan(row)]
    return SlowHost(
        result.host,
        result.run.attempt,
        float(np.exp(found.effect)),
        float(np.exp(median(copies))),
        int(np.sum(known > _ALIKE * found.effect)) if found.effect else 0,
        known.size,
        tuple(
            SlowBenchmark(names[b], float(np.exp(row[b])), float(np.exp(copies[b])))
            for b in found.benchmarks
        ),
        found.by_chance,
        odd.get(result.host, ()),
        float(np.exp(np.mean(known))),
    )


def _logs(times: Sequence[Sequence[Sequence[float]]]) -> Floats:
    """Return ln of times (hosts, benchmarks, iterations), NaN where a host has fewer."""
    longest = max((len(cell) for row in times for cell in row), default=1)
    logs = np.full((len(times), len(times[0]), max(longest, 1)), np.nan)
    for h, row in enumerate(times):
        for b, cell in enumerate(row):
            logs[h, b, : len(cell)] = np.log(cell)
    return logs


def _distances(logs: Floats) -> Floats:
    """Return ln of a host's median time over all hosts' median of it, (hosts, benchmarks)."""
    each = median(logs)
    return np.asarray(each - median(each.T)[None, :])


def _usual_settings(results: Sequence[HostResult]) -> dict[str, str]:
    """Return the value of each setting that more than half of the hosts have; "" for none."""
    usual = {}
    for name in {name for it in results for name in it.settings}:
        if is_volatile(name) or name in _OWN:
            continue
        ((value, many),) = Counter(it.settings.get(name, "") for it in results).most_common(1)
        if many > _MOST_OF * len(results):
            usual[name] = value
    return usual


def _odd(settings: Mapping[str, str], usual: Mapping[str, str]) -> Iterator[OddSetting]:
    for name, value in sorted(usual.items()):
        own = settings.get(name, "")
        if own != value:
            yield OddSetting(name, own or None, value or None)


def _apart(kind: IndexedRun, first: IndexedRun) -> Iterator[str]:
    """Say in what a kind differs from the most common one."""
    for what, name in (("CPU", "cpu_model"), ("microcode", "microcode"), ("kernel", "kernel")):
        if getattr(kind, name) != getattr(first, name):
            yield f"{what} {getattr(kind, name) or 'not known'}"
    if is_other_memory(kind, first):
        yield f"memory {kind.memory_text or 'not known'}"
    if kind.cpus != first.cpus:
        yield f"{kind.cpus} usable CPUs"
    if kind.copies != first.copies:
        yield f"{kind.copies} copies"
    if kind.what != first.what:
        yield kind.what


def is_other_memory(one: IndexedRun, other: IndexedRun) -> bool:
    """Tell whether memory differs by more than what kernels keep of it."""
    low, high = sorted((one.memory_bytes or 0, other.memory_bytes or 0))
    return high > low * (1 + _SAME_MEMORY)
