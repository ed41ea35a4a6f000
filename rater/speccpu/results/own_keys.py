"""rater's own keys in the raw files that it exports, read back: what SPEC's format has no key for.

Their values are JSON objects in one line of ASCII; other programs skip keys that they do
not know. Of the file: `rater_run`, `rater_phaseNNN`, `rater_benchmarkNNN`, `rater_pus`, and by
copy `rater_placeNNN` (where its rows say that it was) and `rater_planNNN` (where it was
sent). Of a result: `rater_result`, and `rater_copyNNN` for a copy that differs from the rest.
`rater.speccpu.export.own_write` writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

from rater.plan.placement.counts import MOST_COPIES
from rater.record.run import BenchmarkUsed, MachinePU, PlacedCopy
from rater.record.status import CopyStatus, RunStatus, Validity
from rater.record.stored import RunHead, StoredBracket, StoredRun
from rater.speccpu.results.places import NOWHERE, Place
from rater.speccpu.results.result import MOST_NUMBER, SpecFile, SpecIteration
from rater.text.cpuset import parse_list

PREFIX = "rater_"
PLACES = ("cpu", "core", "llc", "node", "package")
PHASE_TIMES = ("start_ns", "finish_ns", "last_start_ns", "first_finish_ns")
POLICIES = ("none", "local", "bind", "preferred", "interleave", "weighted")
# In a run that came from elsewhere any of these may be unknown.
RUN_TEXTS = ("hostname", "suite", "size", "tune", "layout", "memory", "started_at", "reason")
_MODES = ("homogeneous", "rotated", "staggered", "heterogeneous")
_NUMBERED = re.compile(r"rater_(phase|benchmark|place|plan|copy)(\d{3,6})$", re.ASCII)
_MOST = 65_535  # of a CPU, a node, ...
_MOST_NS = 10**18
_LONGEST = 10_000  # characters of a text

type _Line = tuple[int, str]  # its number, and the value there
type Told = Mapping[str, _Line]  # by key


@dataclass(frozen=True, slots=True)
class OwnCopy:
    """How a copy ended, as the exported row had it."""

    status: CopyStatus = CopyStatus.OK
    exit_code: int | None = None
    signal: int | None = None
    validity: Validity = Validity.UNCHECKED
    detail: str | None = None
    start_ns: int | None = None
    place: Place | None = None  # None: the same as of the copy's other runs


@dataclass(frozen=True, slots=True)
class OwnRun:
    """What the own keys say of the run as a whole."""

    head: Mapping[str, Any] | None  # fields of `RunHead`
    phases: Mapping[int, Mapping[str, Any]]  # fields of `StoredBracket`
    benchmarks: tuple[BenchmarkUsed, ...]
    pus: tuple[MachinePU, ...] | None
    plans: tuple[PlacedCopy, ...]
    places: Mapping[int, Place]  # by copy: where it was in most of its runs


@dataclass(frozen=True, slots=True)
class OwnResult:
    """What SPEC's keys cannot say of a result; rotated order: of one copy's run."""

    run: OwnRun
    phase: int
    benchmark: str
    tune: str | None
    iteration: int
    counted: bool
    usual: OwnCopy  # of the copies that no key of their own tells of
    step: int = 0
    copy: int | None = None  # rotated order
    copies: Mapping[int, OwnCopy] = field(default_factory=dict)

    def of(self, copy: int) -> OwnCopy:
        """Return how a copy ended."""
        return self.copies.get(copy, self.usual)

    def place(self, copy: int) -> Place:
        """Return where a copy was, without any value where that is not known."""
        own = self.of(copy).place
        return self.run.places.get(copy, NOWHERE) if own is None else own


@dataclass(slots=True)
class OwnIteration(SpecIteration):
    """A result with rater's own keys, if it has any."""

    told: dict[str, _Line] = field(default_factory=dict)
    own: OwnResult | None = None  # what they say


@dataclass(slots=True)
class OwnFile(SpecFile):
    """A raw file with rater's own keys, if it has any."""

    told: dict[str, _Line] = field(default_factory=dict)


def own_of(one: SpecIteration) -> OwnResult | None:
    """Return what rater's own keys say of a result."""
    return one.own if isinstance(one, OwnIteration) else None


def keep(it: SpecFile | SpecIteration, line: int, key: str, value: str) -> None:
    """Keep an own key of a file or of a result until the file's end."""
    if isinstance(it, OwnFile | OwnIteration):
        it.told.setdefault(key, (line, value))


def take_own(file: SpecFile) -> None:
    """Understand the own keys of a raw file and of its results.

    Names and numbers of its results are then those of the exported run; what cannot be
    understood is a problem with its line.
    """
    if not isinstance(file, OwnFile):
        return
    told = [one for one in file.iterations if isinstance(one, OwnIteration) and one.told]
    if not told:
        return
    run = OwnRun(
        head=_understood(file, file.told, "rater_run", _run),
        phases=_numbered(file, file.told, "phase", _phase),
        benchmarks=tuple(_numbered(file, file.told, "benchmark", _benchmark).values()),
        pus=_understood(file, file.told, "rater_pus", _pus),
        plans=tuple(
            replace(plan, copy=copy)
            for copy, plan in sorted(_numbered(file, file.told, "plan", _plan).items())
        ),
        places=_numbered(file, file.told, "place", _place),
    )
    for one in told:
        result = _understood(file, one.told, "rater_result", _result(run))
        if result is None:
            continue
        copies = _numbered(file, one.told, "copy", _copy(result.usual))
        one.own = replace(result, copies=copies)
        one.counted = result.counted
        one.benchmark = result.benchmark
        if result.copy is None:  # else the number says which copy's run it is
            one.iteration = min(result.iteration, MOST_NUMBER)


def own_bracket(bracket: StoredBracket, one: SpecIteration) -> StoredBracket:
    """Return the bracket of a result with what the own keys say of its phase."""
    own = own_of(one)
    if own is None:
        return bracket
    values = dict(own.run.phases.get(own.phase, {}))
    if not values:
        return replace(bracket, tune=own.tune, counted=own.counted or own.copy is not None)
    if any(values[name] is None for name in PHASE_TIMES[:2]):
        values |= dict.fromkeys(PHASE_TIMES)
    return replace(bracket, **values)


def in_own_order(members: Sequence[SpecIteration]) -> Sequence[SpecIteration]:
    """Return the results of a file in the order in which the exported run had them."""
    owns = [own_of(one) for one in members]
    if not all(owns):
        return members
    phases = [own.phase for own in owns if own is not None]
    return [one for _, _, one in sorted(zip(phases, range(len(phases)), members, strict=True))]


def restored(
    stored: StoredRun, members: Sequence[SpecIteration], *, with_machine: bool
) -> StoredRun:
    """Return an imported run with what the own keys say; without them it is as it was.

    `with_machine` is False where the user describes the machine: that holds then.
    """
    own = next((own for own in map(own_of, members) if own is not None), None)
    if own is None:
        return stored
    run, head = own.run, stored.head
    if run.head is not None:
        values = dict(run.head)
        if RunStatus.COMPLETE in (values["status"], head.status):
            # A file that was cut or changed since is what its results say.
            values |= {"status": head.status, "reason": head.reason}
        if values["order"] != head.order:
            values |= {"order": head.order, "mode": head.mode}
        head = replace(head, **values)
    benchmarks = _in_ring_order(stored.benchmarks, run.benchmarks)
    return replace(
        stored,
        head=replace(head, benchmarks=tuple(used.name for used in benchmarks)),
        host=replace(stored.host, hostname=head.hostname),
        benchmarks=benchmarks,
        pus=run.pus if with_machine and run.pus is not None else stored.pus,
        placements=run.plans if with_machine else stored.placements,
    )


def _in_ring_order(
    known: Sequence[BenchmarkUsed], told: Sequence[BenchmarkUsed]
) -> tuple[BenchmarkUsed, ...]:
    by_name = {used.name: used for used in known}
    found: dict[str, BenchmarkUsed] = {}
    for own in told:
        used = by_name.get(own.name, own)
        found[own.name] = replace(
            used,
            category=own.category,
            threads=own.threads,
            reference_s=own.reference_s or used.reference_s,
        )
    return (*found.values(), *(used for name, used in by_name.items() if name not in found))


# -- values ---------------------------------------------------------------------------------------


class _Fields:
    """The members of a JSON object; raises `ValueError` in words for what cannot be."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values

    def whole(self, name: str, most: int = _MOST, least: int = 0) -> int | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            _wrong(f"{name}: no whole number from {least} to {most}")
        return value

    def number(self, name: str) -> float | None:
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e12:
            _wrong(f"{name}: no number")
        return float(value)

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > _LONGEST or not _storable(value):
            _wrong(f"{name}: no text")
        return value

    def name(self, name: str) -> str:
        value = self.text(name)
        if not value:
            _wrong(f"{name}: no name")
        return value

    def flag(self, name: str) -> bool:
        value = self.values.get(name)
        if not isinstance(value, bool):
            _wrong(f"{name}: neither true nor false")
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in choices:
            _wrong(f"{name}: none of {', '.join(choices)}")
        return value

    def cpu_list(self, name: str) -> tuple[int, ...] | None:
        value = self.text(name)
        return None if value is None else tuple(sorted(parse_list(value))) if value else ()


def _wrong(text: str) -> NoReturn:
    raise ValueError(text)


def _storable(text: str) -> bool:
    """Tell whether it is Unicode: JSON can escape half a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _understood[T](file: SpecFile, told: Told, key: str, read: Callable[[_Fields], T]) -> T | None:
    """Return what a key says; None where it is not there, or names a problem."""
    if key not in told:
        return None
    line, text = told[key]
    try:
        value = json.loads(text)
        if not isinstance(value, dict):
            _wrong("no object")
        return read(_Fields(value))
    except (ValueError, RecursionError) as error:
        problem = "no JSON" if isinstance(error, json.JSONDecodeError) else str(error)[:200]
        file.problems.add(line, f"{key}: {problem}")
        return None


def _numbered[T](
    file: SpecFile, told: Told, what: str, read: Callable[[_Fields], T]
) -> dict[int, T]:
    """Return what the keys of a kind say, by their number, in its order."""
    found = {}
    for key in told:
        name = _NUMBERED.match(key)
        value = _understood(file, told, key, read) if name and name[1] == what else None
        if name and value is not None:
            found[int(name[2])] = value
    return dict(sorted(found.items(), key=lambda item: item[0]))


def _run(told: _Fields) -> dict[str, Any]:
    values: dict[str, Any] = {name: told.text(name) for name in RUN_TEXTS}
    if values["started_at"] is not None:
        datetime.fromisoformat(values["started_at"])
    mode = told.choice("mode", _MODES, "homogeneous")
    order = told.choice("order", ("homogeneous", "rotated"), "homogeneous")
    if (mode in ("rotated", "heterogeneous")) != (order == "rotated"):
        _wrong(f"mode {mode} has no order {order}")
    return values | {
        "mode": mode,
        "order": order,
        "status": RunStatus(told.choice("status", _STATUSES, "complete")),
        "copies": told.whole("copies", MOST_COPIES, 1) or 1,
        "iterations": told.whole("iterations", 2**31 - 1) or 0,
        "discard": told.whole("discard", 2**31 - 1) or 0,
        "increment": told.whole("increment", 2**31 - 1) or 0,
        "stagger_ms": told.number("stagger_ms") or 0.0,
    }


_STATUSES = tuple(str(s) for s in (RunStatus.COMPLETE, RunStatus.FAILED, RunStatus.INTERRUPTED))
_NUMBERS_OF_RUN: tuple[str, ...] = ("copies", "iterations", "discard", "increment", "stagger_ms")


def run_values(head: RunHead) -> dict[str, Any]:
    """Return what `rater_run` says of a run."""
    values: dict[str, Any] = {name: getattr(head, name) for name in RUN_TEXTS}
    return values | {
        "mode": head.mode if head.mode in _MODES else head.order,
        "order": head.order,
        "status": head.status.reported if head.status.reported in _STATUSES else "interrupted",
        **{name: getattr(head, name) for name in _NUMBERS_OF_RUN},
    }


def _phase(told: _Fields) -> dict[str, Any]:
    return {
        "tune": told.text("tune"),
        "counted": told.flag("counted"),
        "complete": told.flag("complete"),
        **{name: told.whole(name, _MOST_NS, -_MOST_NS) for name in PHASE_TIMES},
    }


def _benchmark(told: _Fields) -> BenchmarkUsed:
    category = told.values.get("category")
    if category not in ("int", "fp", None):
        _wrong("category: none of int, fp")
    return BenchmarkUsed(
        name=told.name("name"),
        category=category,
        command="",
        reference_s=told.number("reference_s"),
        binary_sha256=None,
        compiler=None,
        flags=None,
        threads=told.whole("threads", least=1) or 1,
    )


def _pus(told: _Fields) -> tuple[MachinePU, ...]:
    pus: dict[int, dict[str, int]] = {cpu: {} for cpu in told.cpu_list("cpus") or ()}
    for name in PLACES[1:]:
        groups = told.values.get(name, {})
        if not isinstance(groups, dict):
            _wrong(f"{name}: no object")
        for number in groups:
            if not (number.isascii() and number.isdecimal() and int(number) <= _MOST):
                _wrong(f"{name}: no number: {number[:20]!r}")
            for cpu in _Fields(groups).cpu_list(number) or ():
                pus.setdefault(cpu, {})[name] = int(number)
    return tuple(
        MachinePU(cpu, it.get("core"), it.get("llc"), it.get("node"), it.get("package"))
        for cpu, it in sorted(pus.items())
    )


def _place(told: _Fields) -> Place:
    return Place(
        cpu=told.whole("cpu"),
        core=told.whole("core"),
        llc=told.whole("llc"),
        node=told.whole("node"),
        package=told.whole("package"),
        mem_nodes=told.cpu_list("mem_nodes") or (),
    )


def _plan(told: _Fields) -> PlacedCopy:
    return PlacedCopy(
        copy=0,
        cpus=told.cpu_list("cpus"),
        cpu=told.whole("cpu"),
        core=told.whole("core"),
        llc=told.whole("llc"),
        node=told.whole("node"),
        package=told.whole("package"),
        memory_policy=told.choice("policy", POLICIES, "none"),
        memory_nodes=told.cpu_list("nodes") or (),
    )


def _result(run: OwnRun) -> Callable[[_Fields], OwnResult]:
    def read(told: _Fields) -> OwnResult:
        usual = told.values.get("copies", {})
        if not isinstance(usual, dict):
            _wrong("copies: no object")
        return OwnResult(
            run=run,
            phase=told.whole("phase", 2**31 - 1) or 0,
            benchmark=told.name("benchmark"),
            tune=told.text("tune"),
            iteration=told.whole("iteration", 2**63 - 1) or 0,
            counted=told.flag("counted"),
            usual=_copy(OwnCopy())(_Fields(usual)),
            step=told.whole("step", 2**31 - 1) or 0,
            copy=told.whole("copy", MOST_COPIES - 1),
        )

    return read


def _copy(usual: OwnCopy) -> Callable[[_Fields], OwnCopy]:
    """Return a reader of a copy; what says no more than start or place ended as `usual`."""

    def read(told: _Fields) -> OwnCopy:
        place = told.values.get("place")
        if place is not None and not isinstance(place, dict):
            _wrong("place: no object")
        seen = replace(
            usual,
            start_ns=told.whole("start_ns", _MOST_NS, -_MOST_NS),
            place=None if place is None else _place(_Fields(place)),
        )
        if "validity" not in told.values:
            return seen
        statuses = tuple(str(status) for status in CopyStatus)
        validities = tuple(str(validity) for validity in Validity)
        return replace(
            seen,
            status=CopyStatus(told.choice("status", statuses, "ok")),
            exit_code=told.whole("exit_code", 2**31, -(2**31)),
            signal=told.whole("signal", 4096),
            validity=Validity(told.choice("validity", validities, "unchecked")),
            detail=told.text("detail"),
        )

    return read
