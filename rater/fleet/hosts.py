"""Compare the hosts of a fleet: kinds apart, the slow ones named, with what is odd about them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from rater.analysis.results.disturbed import is_taken, mostly_disturbed
from rater.analysis.stats.robust import Floats, median
from rater.fleet.archive import HostTimes, IndexedRun, latest
from rater.fleet.model import (
    FEWEST_HOSTS,
    FleetComparison,
    HostKind,
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


def results_of(
    runs: Iterable[IndexedRun],
    times: Iterable[HostTimes],
    settings: Mapping[int, dict[str, str]],
    command: str | None = None,
) -> list[HostResult]:
    """Return each host's last complete attempt, else its last; of several runs in it the last.

    `command`: what they ran, where that is no suite.
    """
    of_run = group_by_key(((it.host, it.attempt, it.run), it) for it in times)
    found = []
    for own in latest(runs).values():
        run = own[-1]
        rows = [row for one in own for row in of_run.get((one.host, one.attempt, one.run), ())]
        found.append(
            HostResult(
                run.host,
                run.attempt,
                run.run,
                _kind(run),
                settings.get(run.setting, {}),
                {row.benchmark: row.bracket_s for row in rows if row.bracket_s},
                {row.benchmark: row.copy_s for row in rows},
                is_taken(run.others_cost),
                command or ", ".join(filter(None, (run.suite, run.size))),
                settings.get(run.setting, {}) | _facts(run),
                run.started_at,
                {row.benchmark: statistics.median(row.bracket_s or row.copy_s) for row in rows},
            )
        )
    return found


def _facts(run: IndexedRun) -> dict[str, str]:
    names = (
        "kernel",
        "microcode",
        "machine_id_hash",
        "cpu_model",
        "memory_bytes",
        "cpus",
        "copies",
    )
    return {name: str(it) for name in names if (it := getattr(run, name)) is not None}


def compare_fleet(results: Iterable[HostResult]) -> FleetComparison:
    """Hold the hosts of each kind against each other."""
    with_times = [it for it in results if it.copy_s]
    without = [it.host for it in results if not it.copy_s]
    groups = sorted(_of_one_kind(with_times), key=lambda them: (-len(them), them[0].host))
    kinds = [_compared(them, groups[0][0].kind) for them in groups]
    kinds = [replace(it, beside=_beside(it, groups)) for it in kinds]
    return FleetComparison(tuple(kinds), tuple(sorted(without)))


def _beside(
    kind: KindComparison, groups: Sequence[Sequence[HostResult]]
) -> tuple[SlowHost, ...] | None:
    """Return the hosts of a small kind that are slow among those of the most common one.

    Where these run the same machine with another kernel or microcode: a host that got slower with
    a new kernel is the reason to look.
    """
    usual, own = groups[0], [it for of in groups[1:] for it in of if it.host in kind.hosts]
    first = usual[0].kind
    of = own[0].kind if own else first
    of = replace(of, microcode=first.microcode, kernel=first.kernel)
    if not own or any(_apart(of, first)) or len(usual) < FEWEST_HOSTS or len(own) >= FEWEST_HOSTS:
        return None
    if mostly_disturbed([it.taken for it in usual]):
        return None
    found = _compared([*usual, *own], first)
    return tuple(it for it in found.slow if it.host in kind.hosts)


def _kind(run: IndexedRun) -> HostKind:
    suite = run.suite or "a command"
    what = ", ".join(str(it) for it in (suite, run.size, run.tune, run.mode) if it)
    return HostKind(
        *(run.cpu_model, run.microcode, run.memory_bytes, run.kernel),
        *(run.cpus, run.copies, what),
    )


def _of_one_kind(results: Sequence[HostResult]) -> Iterator[list[HostResult]]:
    """Return the hosts in groups: all the same, but for a little memory."""
    same = group_by_key(
        (
            (
                *(it.kind.cpu_model, it.kind.microcode, it.kind.kernel),
                *(it.kind.cpus, it.kind.copies, it.kind.what),
            ),
            it,
        )
        for it in results
    )
    for them in same.values():
        ordered = sorted(them, key=lambda it: it.kind.memory_bytes or 0)
        group: list[HostResult] = []
        for one in ordered:
            last = (group[-1].kind.memory_bytes or 0) if group else None
            if last is not None and (one.kind.memory_bytes or 0) > last * (1 + _SAME_MEMORY):
                yield group
                group = []
            group.append(one)
        yield group


def _compared(them: Sequence[HostResult], first: HostKind) -> KindComparison:
    results = sorted(them, key=lambda it: it.host)
    counted = Counter(name for it in results for name in it.copy_s)
    names = tuple(sorted(counted))
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
    typical = _logs([[it.copy_s.get(name, ()) for name in names] for it in results])
    usual = _usual_settings(results)
    odd = {it.host: own for it in results if (own := tuple(_odd(it.settings, usual)))}
    few = len(results) < FEWEST_HOSTS
    found = None if few else compare_hosts(whole)
    distances = _distances(whole) if found is None else found.distances
    if len(results) == 1:
        distances = np.full(whole.shape[:2], np.nan)
    copies = _distances(typical)
    slow = [
        _slow(it, results[it.host], names, (distances[it.host], copies[it.host]), odd)
        for it in (found.slow if found else ())
    ]
    named = {it.host for it in slow}
    others = [h for h, it in enumerate(results) if it.host not in named]
    by_mean = others if few else sorted(others, key=lambda h: -np.nanmean(distances[h]))
    quiet = [] if few else sorted(others, key=lambda h: float(np.nanmax(np.abs(distances[h]))))
    return KindComparison(
        results[0].kind,
        tuple(_apart(results[0].kind, first)),
        (*(it.host for it in slow), *(results[h].host for h in by_mean)),
        names,
        {it.host: _slowdowns(row) for it, row in zip(results, distances, strict=True)},
        () if mostly_disturbed([it.taken for it in results], "host") else tuple(slow),
        None if found is None else float(np.expm1(found.visible_whole)),
        None if found is None else float(np.expm1(found.visible_one)),
        tuple(results[h].host for h in quiet),
        odd,
        tuple(it.host for it in results if it.taken),
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
        result.attempt,
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


def _slowdowns(row: Floats) -> tuple[float | None, ...]:
    return tuple(None if np.isnan(it) else float(np.exp(it)) for it in row)


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


def _apart(kind: HostKind, first: HostKind) -> Iterator[str]:
    """Say in what a kind differs from the most common one."""
    for what, own, usual in (
        ("CPU", kind.cpu_model, first.cpu_model),
        ("microcode", kind.microcode, first.microcode),
        ("kernel", kind.kernel, first.kernel),
    ):
        if own != usual:
            yield f"{what} {own or 'not known'}"
    if is_other_memory(kind.memory_bytes, first.memory_bytes):
        size = "not known" if kind.memory_bytes is None else f"{kind.memory_bytes / 2**30:.0f} GiB"
        yield f"memory {size}"
    if kind.cpus != first.cpus:
        yield f"{kind.cpus} usable CPUs"
    if kind.copies != first.copies:
        yield f"{kind.copies} copies"
    if kind.what != first.what:
        yield kind.what


def is_other_memory(own: int | None, usual: int | None) -> bool:
    """Tell whether memory differs by more than what kernels keep of it."""
    low, high = sorted((own or 0, usual or 0))
    return high > low * (1 + _SAME_MEMORY)
