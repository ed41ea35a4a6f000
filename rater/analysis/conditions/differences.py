"""What differs between runs that are compared, and is not what they are compared in; pure.

All that is recorded of the machine, its settings, the programs and what was asked for.
Between points it puts the comparison in doubt; within a point it is noise that need not be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from rater.analysis.conditions.changes import Difference, differences, stored_conditions
from rater.analysis.results.points import Point
from rater.record.stored import RunHead, StoredRun
from rater.text.cpuset import format_list

_HEAD = (
    ("mode", "mode"),
    ("order", "order"),
    ("copies", "copies"),
    ("stagger_ms", "ms between starts"),
    ("increment", "--increment"),
    ("suite", "suite"),
    ("size", "size"),
    ("tune", "tune"),
    ("layout", "layout"),
    ("memory", "memory"),
    ("wrap", "--wrap"),
    ("warmup_s", "--warmup"),
    ("window_s", "--window"),
    ("source", "origin"),
)
_LESSER_HEAD = (("iterations", "iterations"), ("discard", "discarded iterations"))
# Options that stand in the head of a run or among its benchmarks, or that change no times.
_TOLD_ELSEWHERE = {
    *("suites", "command", "speccmds", "copies", "mode", "stagger_ms", "order", "warmup_s"),
    *("window_s", "increment", "iterations", "discard", "size", "tune", "layout", "memory"),
    *("timeout_s", "grace_s", "tags", "environment", "wrap", "output_limit_bytes"),
    *("oversubscribe", "preflight", "keep", "speccmds_out", "force", "share"),
}
_LESSER_OPTIONS = {"cooldown_s", "until_idle_s", "proof"}
_OPTION_NAMES = {"cooldown_s": "--cooldown", "until_idle_s": "--until-idle"}
# What options are that a run's request has not got: it was made before they were. Those that
# are not named here are off then.
_DEFAULTS: dict[str, object] = {
    **{"alloc": "system", "hugepages": "off", "preflight": "warn", "proof": "auto"},
    **{"cooldown_s": 0.0, "bind_from_file": False},
}
_OFF: tuple[object, ...] = (None, False, 0, "", [])
_PLACE = "place of copy "
_PLACES = "places of the copies"
_PLACE_SHOWN = ("CPUs", "lgroup", "memory")
# A difference in one of these moves copies: their places follow from it.
_PLACING = {
    *("copies", "layout", "memory", "--bind", "--bind-from-file", "--smt", "--kind", "--reserve"),
    *("usable CPUs", "hardware threads", "order"),
}
# What follows from an axis beside the thing of its own name.
_IMPLIED = {
    "tune": ("program of ", "command of ", "compiler of ", "compiler flags of ", "input files of "),
    "size": ("command of ", "input files of ", "reference time of ", "program of "),
    "mode": ("order", "ms between starts", "--increment", "--warmup", "--window"),
    "stagger": ("ms between starts", "mode"),
    "mem": ("memory",),
    # The kernel keeps more free while there are huge pages.
    "thp": ("setting vm.min_free_kbytes",),
    "smt": ("setting cpu.smt.", "hardware threads", "usable CPUs"),
    "hugepages": ("environment variable GLIBC_TUNABLES", "--env GLIBC_TUNABLES"),
    "alloc": ("environment variable LD_PRELOAD", "--env LD_PRELOAD"),
    "boost": ("setting cpu.boost", "setting cpu.no_turbo"),
    "aslr": ("setting kernel.randomize_va_space",),
    "zone_reclaim": ("setting vm.zone_reclaim_mode",),
    "overcommit": ("setting vm.overcommit_memory",),
}
# What no machine changes, and result files without a host name tell.
_MACHINE = ("host name", "machine id", "architecture", "CPU vendor", "CPU model", "packages")


@dataclass(frozen=True, slots=True)
class Apart:
    """One thing that is not alike in all runs."""

    what: str  # "setting thp.enabled", "program of lu"
    values: tuple[tuple[str | None, tuple[int, ...]], ...]  # and the runs that have it; None: none
    inside: tuple[str, ...]  # labels of the points whose own runs differ in it
    weighs: bool  # False: worth a note
    # Whether it is only not known of all: result files do not tell what a run of rater's own does.
    unknown: bool = False

    @property
    def is_machine(self) -> bool:
        """Tell whether it says that the runs were made on different machines."""
        return self.what in _MACHINE and not self.unknown


def apart(points: Sequence[Point], volatile: Callable[[str], bool]) -> tuple[Apart, ...]:
    """Return what differs between the runs of all points, axes and what follows from them left out.

    Machines first, then what weighs, then what is worth a note. `volatile` names
    settings that are mere readings (`rater.record.settings.volatile`).
    """
    runs = {one.run.head.run: one.run for point in points for one in point.runs}
    reference = next(iter(runs.values()))
    values: dict[str, dict[int, str | None]] = {}
    standard: dict[str, str | None] = {}  # what the reference run has
    notes: set[str] = set()
    for number, run in runs.items():
        for what, before, now, weighs in _differences(reference, run, volatile):
            standard[what] = before
            values.setdefault(what, {})[number] = now
            if not weighs:
                notes.add(what)
    placing = bool(values.keys() & _PLACING) or any(
        _explains(axis, what) for point in points for axis, _ in point.values for what in _PLACING
    )
    found = []
    for what, own in values.items():
        every = {number: own.get(number, standard[what]) for number in runs}
        inside = tuple(
            point.label for point in points if len({every[n] for n in point.numbers}) > 1
        )
        if what == _PLACES and placing and not inside:
            continue
        if not inside and _is_axis(what, every, points):
            continue
        groups: dict[str | None, list[int]] = {}
        for number, value in every.items():
            groups.setdefault(value, []).append(number)
        told = tuple((value, tuple(numbers)) for value, numbers in groups.items())
        unknown = len(groups) == 2 and any(
            runs[number].head.source == "import" for number in groups.get(None, ())
        )
        found.append(Apart(what, told, inside, not unknown and what not in notes, unknown))
    return tuple(sorted(found, key=lambda one: (one.unknown, not one.weighs, not one.is_machine)))


def _is_axis(what: str, every: dict[int, str | None], points: Sequence[Point]) -> bool:
    """Tell whether `what` is an axis, or follows from one: one value for each of the axis."""
    axes = {axis for point in points for axis, _ in point.values}
    for axis in axes:
        by_value: dict[str | None, set[str | None]] = {}
        recorded = True  # the very values of the axis, under whatever name
        for point in points:
            value = dict(point.values).get(axis)
            own = {every[number] for number in point.numbers}
            by_value.setdefault(value, set()).update(own)
            recorded = recorded and own == {value or None}  # an empty value: not set
        alike = all(len(own) == 1 for own in by_value.values())
        if alike and (recorded or _explains(axis, what)):
            return True
    return False


def _explains(axis: str, what: str) -> bool:
    variable = axis.removeprefix("env:")
    if variable != axis:
        return what in (f"environment variable {variable}", f"--env {variable}")
    name = what.removeprefix("setting ").removeprefix("--")
    if name in (axis, f"{axis}.enabled", f"{axis}_enabled"):
        return True
    if name != what and name.rpartition(".")[2] == axis:  # governor is cpu.governor
        return True
    family, _, size = axis.partition(".")
    if family == "hugepages" and size:  # a pool is counted on every node
        return name.startswith("hugepages.") and size.partition(".")[0] in name.split(".")
    return any(what.startswith(begin) for begin in _IMPLIED.get(axis, ()))


def _differences(
    reference: StoredRun, run: StoredRun, volatile: Callable[[str], bool]
) -> Iterator[tuple[str, str | None, str | None, bool]]:
    """Return what, its value in the reference run, in this one, and whether it weighs."""
    yield from _asked(reference, run)
    found = differences(stored_conditions(reference), stored_conditions(run), volatile)
    for one in found:
        if one.what.startswith(_PLACE):
            continue  # told below, for all copies in one
        if one.what == "benchmarks" and _other_members(one):
            continue  # which of them have no partner, the comparison tells
        yield one.what, one.before, one.now, one.weighs
    moved = _moved(reference, run)
    if moved:
        yield _PLACES, f"as in run {reference.head.run}", moved, True


def _moved(reference: StoredRun, run: StoredRun) -> str | None:
    """Return where the first copy that is elsewhere was and is; None where none is known to be."""
    was, is_now = _placed(reference), _placed(run)
    told = []
    for copy in sorted(was.keys() & is_now.keys()):
        before, now = was[copy], is_now[copy]
        known = [unit for unit in now if unit in before]
        changed = [unit for unit in known if before[unit] != now[unit]]
        if "CPUs" in changed:  # core, cache and package follow from it
            changed = [unit for unit in changed if unit in _PLACE_SHOWN]
        if changed:
            words = [", ".join(it[unit] for unit in changed) for it in (now, before)]
            told.append(f"copy {copy} on {words[0]}, not {words[1]}")
    if len(told) > 1:
        return f"{len(told)} copies elsewhere, {told[0]}"
    return told[0] if told else None


def _placed(run: StoredRun) -> dict[int, dict[str, str]]:
    """Return by copy where it was, by kinds of units; of result files from the copies' own rows."""
    if run.placements:
        return {
            it.copy: _units(it.cpus, core=it.core, LLC=it.llc, lgroup=it.node, package=it.package)
            | {"memory": f"memory {it.memory_policy} {format_list(it.memory_nodes)}".rstrip()}
            for it in run.placements
        }
    found: dict[int, dict[str, str]] = {}
    for copy in run.copies:
        if copy.copy not in found and copy.cpu is not None:
            found[copy.copy] = _units(
                (copy.cpu,), core=copy.core, lgroup=copy.node, package=copy.package
            )
    return found


def _units(cpus: tuple[int, ...] | None, **units: int | None) -> dict[str, str]:
    mask = "any CPU (not bound)" if cpus is None else f"CPUs {format_list(cpus)}"
    return {"CPUs": mask} | {name: f"{name} {it}" for name, it in units.items() if it is not None}


def _other_members(one: Difference) -> bool:
    """Tell whether lists of benchmarks differ in more than their order."""
    return sorted((one.before or "").split(", ")) != sorted((one.now or "").split(", "))


def _asked(
    reference: StoredRun, run: StoredRun
) -> Iterator[tuple[str, str | None, str | None, bool]]:
    before, now = reference.head, run.head
    for fields, weighs in ((_HEAD, True), (_LESSER_HEAD, False)):
        for field, name in fields:
            was, is_now = getattr(before, field), getattr(now, field)
            if was != is_now:
                yield name, _text(was), _text(is_now), weighs
    given, given_now = dict(reference.environment), dict(run.environment)
    for name in sorted(given.keys() | given_now.keys()):
        if given.get(name) != given_now.get(name):
            yield f"--env {name}", given.get(name), given_now.get(name), True
    asked, asked_now = _request(before), _request(now)
    if not asked or not asked_now:  # imported, or of an older rater: not known
        return
    for key in sorted((asked.keys() | asked_now.keys()) - _TOLD_ELSEWHERE):
        was, is_now = _option(asked, key), _option(asked_now, key)
        if was != is_now:
            name = _OPTION_NAMES.get(key, f"--{key.replace('_', '-')}")
            yield name, _text(was), _text(is_now), key not in _LESSER_OPTIONS


def _option(asked: dict[str, object], key: str) -> object:
    """Return what was asked for; None where that is the default, said or not."""
    value = asked.get(key)
    return None if value in _OFF or value == _DEFAULTS.get(key) else value


def _request(head: RunHead) -> dict[str, object]:
    try:
        found = json.loads(head.request or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
