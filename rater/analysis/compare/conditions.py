"""What runs were made under and what disturbed them; pure."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rater.analysis.results.cpu_use import CpuUse, RunCounters
from rater.analysis.results.steady import is_good
from rater.plan.options import MINOR
from rater.plan.request import OPTIONS
from rater.record.run import BenchmarkUsed, Host, MachinePU, PlacedCopy
from rater.record.stored import StoredCopy, StoredRun
from rater.settings.known import LAYOUT_TEXT, is_volatile
from rater.text.cpuset import format_list
from rater.text.secrets import Redactor
from rater.text.values import group_by_key, percent

# -- What two runs were made under, and what differs: machine, settings, programs, suite -----------

_VARIABLE = re.compile("^(environment variable|--env) ")
type Facts = dict[str, str | None]  # what, in words, and its value; None: there is none

_DIGEST_SHOWN = 12
_PLACES_SHOWN = 8
# What the kernel keeps for itself, and with it MemTotal, varies from boot to boot.
_SAME_MEMORY = 0.01
_ENVIRONMENT = "env."
_PATH, _FOLDERS = f"{_ENVIRONMENT}PATH", "folders in PATH"
# Where rater keeps what it compiled: the folder is called after a hash of all that went in.
_IN_CACHE = re.compile(r"\S*/build/[0-9a-f]{32}/")
# Not "memory", which is what --mem of a head is called: one would hide the other.
_STRUCTURE, _MEMORY = "structure of cores and caches", "installed memory"
_NAMES = {"hostname": "host name", "machine_id_hash": "machine id", "product": "product"}
# All that goes into the fingerprint but the structure of cores and caches.
_IDENTITY = {
    "architecture": "architecture",
    "vendor": "CPU vendor",
    "cpu_model": "CPU model",
    "microcode": "microcode",
    "pus": "hardware threads",
    "cores": "cores",
    "nodes": "NUMA nodes",
    "packages": "packages",
}
_OF_BENCHMARK = {
    "compiler": "compiler",
    "flags": "compiler flags",
    "reference_s": "reference time",
    "category": "category",
    "threads": "threads per copy",
}
# Worth a note: times can still be compared. (Programs are compared by themselves, what a layout
# file changes by the placements.)
_NO_SPEED = ("kernel.perf_event_paranoid", "limit.open_files", "limit.processes")
_MINOR = {
    _FOLDERS,
    "layout file",
    "rater",
    *(f"setting {name}" for name in _NO_SPEED),
    *(one.label for one in OPTIONS if MINOR in one.traits),
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run was, or would be, made under."""

    host: Host
    settings: tuple[tuple[str, str], ...]
    pus: tuple[MachinePU, ...]
    placements: tuple[PlacedCopy, ...]
    benchmarks: tuple[BenchmarkUsed, ...] | None  # None: not known, nothing is built yet
    suite_path: str | None
    suite_sha256: str | None
    rater_version: str | None


@dataclass(frozen=True, slots=True)
class ConditionDifference:
    """One thing that is not as it was."""

    what: str  # "setting thp.enabled", "program of lu"
    before: str | None  # None: there was none; so `now`
    now: str | None
    significant: bool = True  # False: worth a note, but times can still be compared

    def __str__(self) -> str:
        was = "was not there" if self.before is None else f"was {self.before}"
        return f"{self.what}: {was}, is {'not there' if self.now is None else self.now}"


def stored_conditions(run: StoredRun) -> Conditions:
    """Return the conditions of a stored run."""
    head = run.head
    return Conditions(
        *(run.host, run.settings, run.pus, run.placements, run.benchmarks),
        *(head.suite_path, head.suite_sha256, head.rater_version),
    )


def condition_differences(before: Conditions, now: Conditions) -> tuple[ConditionDifference, ...]:
    """Return what differs, machine first; settings that are mere readings are left out.

    Programs are compared by content: where rater's cache lies makes no difference.
    """
    return (
        *_host(before.host, now.host),
        *_places(before, now),
        *_settings(dict(before.settings), dict(now.settings)),
        *_suite(before, now),
        *_benchmarks(before.benchmarks, now.benchmarks),
        *compare_facts({"rater": before.rater_version}, {"rater": now.rater_version}),
    )


def compare_facts(
    before: Mapping[str, str | None],
    now: Mapping[str, str | None],
    names: Iterable[str] | None = None,
) -> Iterator[ConditionDifference]:
    """Return the facts that differ, in the order of `names`, else as they come; no secrets."""
    redactor = Redactor()
    for what in dict.fromkeys((*before, *now)) if names is None else names:
        if before.get(what) != now.get(what):
            name = _VARIABLE.sub("", what)
            was, is_now = (
                value and (redactor.text(value) if name == what else redactor.pair(name, value))
                for value in (before.get(what), now.get(what))
            )
            yield ConditionDifference(what, was, is_now, what not in _MINOR)


def text_of(value: object) -> str | None:
    """Return a value as it is shown."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _fields(it: object, names: Mapping[str, str]) -> Facts:
    return {name: text_of(getattr(it, field)) for field, name in names.items()}


def _host(before: Host, now: Host) -> Iterator[ConditionDifference]:
    found = list(compare_facts(*(_host_facts(host) for host in (before, now))))
    known = any(one.what in _IDENTITY.values() for one in found)
    was, is_now = before.memory_bytes or 0, now.memory_bytes or 0
    for one in found:
        if one.what == _STRUCTURE and known:
            continue
        if one.what == _MEMORY and was and is_now and abs(was - is_now) <= _SAME_MEMORY * was:
            continue
        yield one


def _host_facts(host: Host) -> Facts:
    held = host.memory_bytes
    return _fields(host, _NAMES | _IDENTITY) | {
        _STRUCTURE: _digest(host.fingerprint),
        _MEMORY: None if held is None else f"{held / 1e9:.1f} GB",
    }


def _digest(sha256: str | None) -> str | None:
    return None if sha256 is None else f"sha256 {sha256[:_DIGEST_SHOWN]}"


def _places(before: Conditions, now: Conditions) -> Iterator[ConditionDifference]:
    sides = (before, now)
    yield from compare_facts(*({"usable CPUs": format_list(p.cpu for p in it.pus)} for it in sides))
    moved = list(
        compare_facts(
            *({f"place of copy {p.copy}": _place(p) for p in it.placements} for it in sides)
        )
    )
    more, shown = len(moved) - _PLACES_SHOWN, moved[:_PLACES_SHOWN]
    if more > 0:
        shown[-1] = replace(shown[-1], what=f"{shown[-1].what} (and {more} more)")
    yield from shown


def _place(placed: PlacedCopy) -> str:
    cpus = "not bound" if placed.cpus is None else f"CPUs {format_list(placed.cpus)}"
    names = {"core": "core", "llc": "LLC", "node": "lgroup", "package": "package"}
    units = [f"{name} {text}" for name, text in _fields(placed, names).items() if text is not None]
    return ", ".join([cpus, *units, memory_of(placed)])


def memory_of(placed: PlacedCopy) -> str:
    """Return policy and nodes of a copy's memory: `memory bind 0-1`."""
    return f"memory {placed.memory_policy} {format_list(placed.memory_nodes)}".rstrip()


def _settings(before: dict[str, str], now: dict[str, str]) -> Iterator[ConditionDifference]:
    names = sorted(name for name in before.keys() | now.keys() if not is_volatile(name))
    for one in compare_facts(_setting_facts(before, names), _setting_facts(now, names)):
        if one.what == _FOLDERS:
            was, is_now = (it.get(_PATH, "").split(":") for it in (before, now))
            lost = ":".join(word for word in was if word not in is_now)
            new = ":".join(word for word in is_now if word not in was)
            yield replace(one, before=lost or None, now=new or None)
        else:
            yield one


def _setting_facts(settings: Mapping[str, str], names: Iterable[str]) -> Facts:
    facts: Facts = {}
    for name in names:
        value = settings.get(name)
        if name == _PATH:  # in whatever order
            facts[_FOLDERS] = ":".join(sorted(set((value or "").split(":"))))
        elif name == LAYOUT_TEXT:
            digest = None if value is None else hashlib.sha256(value.encode()).hexdigest()
            facts["layout file"] = _digest(digest)
        elif name.startswith(_ENVIRONMENT):
            facts[f"environment variable {name.removeprefix(_ENVIRONMENT)}"] = value
        else:
            facts[f"setting {name}"] = value
    return facts


def _suite(before: Conditions, now: Conditions) -> Iterator[ConditionDifference]:
    """Compare the texts of suite files, wherever they lie: one line each of path and hash."""
    was, is_now = (
        dict(
            zip(
                (f"suite file {path}" for path in (it.suite_path or "").splitlines()),
                map(_digest, (it.suite_sha256 or "").splitlines()),
                strict=False,
            )
        )
        for it in (before, now)
    )
    if sorted(map(str, was.values())) != sorted(map(str, is_now.values())):
        yield from compare_facts(was, is_now)


def _benchmarks(
    before: Sequence[BenchmarkUsed] | None, now: Sequence[BenchmarkUsed] | None
) -> Iterator[ConditionDifference]:
    if before is None or now is None:
        return
    sides = (before, now)
    yield from compare_facts(*({"benchmarks": ", ".join(one.name for one in it)} for it in sides))
    known = {used.name: used for used in before}
    for used in now:
        if used.name in known:
            yield from compare_facts(_benchmark_facts(known[used.name]), _benchmark_facts(used))


def _benchmark_facts(used: BenchmarkUsed) -> Facts:
    metrics = [
        f"{metric.name} [{metric.unit}], {metric.better or 'neither'} is better, {metric.combine}"
        for metric in used.metrics
    ]
    facts = {
        "program": _digest(used.binary_sha256),
        "command": _IN_CACHE.sub("", used.command) or None,
        "input files": _digest(used.inputs_sha256),
        **_fields(used, _OF_BENCHMARK),
        "metrics": "; ".join(metrics) or None,
    }
    return {f"{what} of {used.name}": value for what, value in facts.items()}


# -- Whether a run was too disturbed to judge: what others cost, and what noise alone did ----------
#
# What others cost is worked out as what a divot costs is: the score again, without the time
# that they took from each copy. A copy lost no more to them than it was without a CPU for, and
# no more than they, and the hypervisor's other guests, worked on its CPU in that phase. Nor did it
# lose what it did not want: a scheduler gives each that waits for a CPU the same, so a copy that
# sleeps or waits for a disk got as much as any of those it had to share with. Heat is the machine's
# own and no work of others; ends that rater stamped late fail their copies.

# Shares of the score. Simulated (`python -m benchmarks.disturbing`): where others cost a tenth, one
# of 8 or 32 copies must be slower by about half to be found, 6 % without them; a CPU of two by 5 %,
# without them 2 %. Half as much costs half of that; twice as much hides everything.
OTHERS_COST = 0.10
# Of 380 healthy runs of the second generator (up to 512 copies, deviations up to 5 %, tails as
# heavy as Student's t with 3 degrees) noise cost one 14 %, of published and real ones 3.3 %.
NOISE_COST = 0.20


def disturbance_reasons(others_cost: float | None, noise_cost: float | None) -> tuple[str, ...]:
    """Return why a run is too disturbed to judge, nothing where it is not; None: not known."""
    found = []
    if others_cost is not None and others_cost >= OTHERS_COST:
        lost = f"{percent(others_cost, 0)} %"
        found.append(f"other work on these CPUs lowered the score by {lost}")
    if noise_cost is not None and noise_cost >= NOISE_COST:
        lost = f"{percent(noise_cost, 0)} %"
        found.append(f"times vary so much that noise alone lowered the score by {lost}")
    return tuple(found)


class _Costs(Protocol):
    @property
    def others_cost(self) -> float | None: ...
    @property
    def noise_cost(self) -> float | None: ...


def disturbed_members(of: _Costs) -> dict[str, Any]:
    """Return why a run was too disturbed to judge (empty: it was not), and what that rests on."""
    costs = {"others_cost": of.others_cost, "noise_cost": of.noise_cost}
    why = disturbance_reasons(of.others_cost, of.noise_cost)
    return {"disturbed": [*why]} | {k: None if v is None else round(v, 5) for k, v in costs.items()}


def foreign_load_cost(run: StoredRun, counters: RunCounters) -> float | None:
    """Return the share of the score that others took, 0 to 1; None where it was not recorded.

    `counters` are those of the run. Where copies do not wait for each other (rotated order,
    steady mode), of all copies' time.
    """
    if not counters.cpus:
        return None
    run = run.without_torn()
    uses: dict[tuple[int, int | None], CpuUse] = {(it.phase, it.cpu): it for it in counters.cpus}
    # Copies that are not bound share all CPUs, and so the work of others: one stands for all.
    uses |= {(it.phase, None): it for it in counters.cpus}
    own_s = {it.phase: dict(it.values).get("rater_cpu_ns", 0) / 1e9 for it in counters.machine}
    threads = {used.name: used.threads for used in run.benchmarks}
    sharers = _sharers(run)
    ran_s: defaultdict[tuple[int, int], float] = defaultdict(float)  # all of a copy's in a phase
    for it in run.copies:
        ran_s[it.phase, it.copy] += it.elapsed_s
    counted = [it for it in run.copies if it.counted and is_good(it) and it.elapsed_ns > 0]
    taken = []
    for it in counted:
        share = it.elapsed_s / ran_s[it.phase, it.copy]
        used = uses.get((it.phase, it.cpu))
        used_s = _used_s(it, threads.get(it.benchmark, 1))
        lost_s = 0.0
        if used:
            foreign_s = share * _foreign_s(used, own_s.get(it.phase, 0.0))
            wanted_s = math.inf if it.cpu_s is None else sharers * used_s
            lost_s = min(foreign_s, wanted_s) + share * used.steal * used.elapsed_s
        taken.append(min(lost_s, it.elapsed_s - used_s))
    if run.head.order == "rotated" or run.head.mode == "steady":
        elapsed_s = sum(it.elapsed_s for it in counted)
        return sum(taken) / elapsed_s if elapsed_s else None
    cells = group_by_key(
        ((it.tune, it.benchmark, it.phase), (it, lost_s))
        for it, lost_s in zip(counted, taken, strict=True)
    )
    brackets: defaultdict[object, list[tuple[float, float]]] = defaultdict(list)
    for (tune, name, _), cell in cells.items():
        brackets[tune, name].append((_bracket_s(cell, 0), _bracket_s(cell, 1)))
    ratios = [
        math.log(_standing([fair for _, fair in it]) / _standing([whole for whole, _ in it]))
        for it in brackets.values()
    ]
    return max(0.0, 1 - math.exp(sum(ratios) / len(ratios))) if ratios else None


def _sharers(run: StoredRun) -> float:
    """Return with how many others a copy may have shared its CPU: the load before, one at least."""
    try:
        return max(1.0, float(dict(run.settings).get("load.1min") or 1))
    except ValueError:
        return 1.0


def _foreign_s(use: CpuUse, rater_s: float) -> float:
    """Return how long others worked on a CPU in a phase; rater's own threads may all have."""
    return max(0.0, (use.foreign or 0.0) * use.elapsed_s - rater_s)


def _used_s(copy: StoredCopy, threads: int) -> float:
    """Return how long a copy had a CPU: some of its time it must have had one."""
    used_s = 0.0 if copy.cpu_s is None else copy.cpu_s / threads
    return min(max(used_s, 1e-6 * copy.elapsed_s), copy.elapsed_s)


def _bracket_s(cell: Sequence[tuple[StoredCopy, float]], share: int) -> float:
    """Return first start to last end of copies, each with `share` of what it lost taken off."""
    begin_ns = min(it.start_ns or 0 for it, _ in cell)
    ends = ((it.start_ns or 0) - begin_ns + it.elapsed_ns - share * s * 1e9 for it, s in cell)
    return max(ends) / 1e9


def _standing(brackets_s: Sequence[float]) -> float:
    """Return the one that stands for a benchmark: of three the median, of two the slower."""
    return sorted(brackets_s)[len(brackets_s) // 2]
