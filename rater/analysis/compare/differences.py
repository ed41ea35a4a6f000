"""What differs between compared runs, what disturbed them, what their doctors said; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import PurePath

from msgspec import Struct

from rater.analysis.compare.command_axes import is_one_template
from rater.analysis.compare.conditions import (
    ConditionDifference,
    Conditions,
    Facts,
    compare_facts,
    condition_differences,
    memory_of,
    stored_conditions,
    text_of,
)
from rater.analysis.doctor.examine import CHECKS, facts_of_run
from rater.analysis.doctor.findings import Check, DoctorFinding, DoctorVerdict
from rater.analysis.results.copies import Point
from rater.analysis.results.cpu_use import MachineDisturbance, run_counters
from rater.analysis.results.disturbed import (
    disturbance_reasons,
    foreign_load_cost,
    is_too_disturbed,
    mostly_disturbed,
)
from rater.analysis.results.placement import PlacementVerdict, prove_run
from rater.analysis.results.result import benchmarks_left_out, parse_request, stored_request
from rater.plan.options import IN_HEAD, MOVES_COPIES, CompareAs, Option
from rater.plan.request import BY_NAME, OPTIONS
from rater.record.stored import RunHead, StoredRun
from rater.settings.known import changes_with, is_volatile
from rater.text.cpuset import format_list
from rater.text.values import group_by_key

# A run beside other work, or one whose copies ran elsewhere than planned, may be slow for that
# reason alone: whoever reads a verdict has to know.


class DisturbedRun(Struct, frozen=True, kw_only=True):
    """One run that was disturbed."""

    run: int
    notable: tuple[MachineDisturbance, ...]  # what the machine's readings say
    not_met: tuple[int, ...]  # copies that ran, or had memory, elsewhere than planned
    warnings: tuple[str, ...]  # given before the first phase
    shared: bool  # made with --share: another run may have been beside it
    too_disturbed: tuple[str, ...] = ()  # why nothing can be said of it alone; empty: it can
    others_cost: float | None = None  # of its score; None: not known


def disturbed_runs(runs: Iterable[StoredRun]) -> tuple[DisturbedRun, ...]:
    """Return the runs that were disturbed; of imported ones hardly anything is known."""
    return tuple(filter(is_trouble, map(disturbance_of, runs)))


def is_trouble(trouble: DisturbedRun) -> bool:
    """Tell whether there is anything to say of what disturbed a run."""
    return bool(
        trouble.too_disturbed
        or trouble.notable
        or trouble.not_met
        or trouble.warnings
        or trouble.shared
    )


def taken_runs(troubles: Iterable[DisturbedRun]) -> set[int]:
    """Return the runs that others took too much of for a comparison."""
    return {trouble.run for trouble in troubles if is_too_disturbed(trouble.others_cost)}


def disturbed_points(points: Iterable[Point]) -> list[str]:
    """Return the points that cannot be judged, and why, in words."""
    points = list(points)
    taken = taken_runs(
        disturbed_runs(point_run.run for point in points for point_run in point.runs)
    )
    why = {
        point.label: mostly_disturbed([number in taken for number in point.numbers])
        for point in points
    }
    return [f"{label}: cannot tell: {reason}" for label, reason in why.items() if reason]


def disturbance_of(run: StoredRun) -> DisturbedRun:
    """Return what disturbed a run, if anything did."""
    run = run.without_torn()
    warnings = run.warnings if run.head.source == "run" else ()  # else: of reading the file
    counters = run_counters(run)
    others_cost = foreign_load_cost(run, counters)
    not_met = {copy.copy for copy in run.copies if copy.placement == PlacementVerdict.NOT_MET.value}
    if not any(copy.placement for copy in run.copies):  # not judged when it was made
        not_met = {copy for copies in prove_run(run).not_met().values() for copy in copies}
    return DisturbedRun(
        run=run.head.run,
        # The stored cost of others is not used: a run of a sweep may never have been searched.
        too_disturbed=disturbance_reasons(others_cost, run.head.noise_cost, counters.disturber),
        others_cost=others_cost,
        notable=counters.notable,
        not_met=tuple(sorted(not_met)),
        # What is left out of a suite, the comparison itself tells.
        warnings=tuple(warning for warning in warnings if not benchmarks_left_out((warning,))),
        shared=(stored_request(run.head) or {}).get("share") is True,
    )


# -- Differences between compared runs beside the axes of the comparison ---------------------------
#
# The machine, its settings, the programs and the options of `rater run` are compared as recorded.
# A difference between points puts the comparison in doubt; one within a point is avoidable noise.

# Fields of a run's head that no option of `rater run` gives.
_OF_NO_OPTION = ("suite", "source")
# The order in which fields of the head are told; an option that is new here is told after them.
_HEAD_ORDER = (
    *("mode", "order", "copies", "stagger", "increment", "suite", "size", "tune", "layout", "mem"),
    *("wrap", "warmup", "window", "source", "iterations", "discard"),
)
# All fields of the head that are compared: each by the name of its option, or by its own.
HEAD_FIELDS = sorted(
    (*(option.name for option in OPTIONS if IN_HEAD in option.traits), *_OF_NO_OPTION),
    key=lambda name: _HEAD_ORDER.index(name) if name in _HEAD_ORDER else len(_HEAD_ORDER),
)
_HEAD_VALUES = attrgetter(
    *(BY_NAME[name].field if name in BY_NAME else name for name in HEAD_FIELDS)
)
_LABELS = {"source": "origin"}


def _label_of(name: str) -> str:
    """Return what a field of the head is called in differences."""
    return BY_NAME[name].label if name in BY_NAME else _LABELS.get(name, name)


# Those that are compared as they were asked for, and those of them that change what copies do.
_ASKED = [
    option
    for option in OPTIONS
    if IN_HEAD not in option.traits
    and option.compare_as in (CompareAs.DIFFERENT_WORK, CompareAs.NOTE)
]
_ASKED_IN_ORDER = sorted(_ASKED, key=lambda option: option.field)
COPY_OPTIONS = tuple(option for option in _ASKED if option.compare_as is CompareAs.DIFFERENT_WORK)
# Labels of the fields of a head that change what copies do.
_WORK_LABELS = [
    _label_of(name)
    for name in HEAD_FIELDS
    if name not in BY_NAME or BY_NAME[name].compare_as is CompareAs.DIFFERENT_WORK
]
_OFF: tuple[object, ...] = (None, False, 0, "", [])
_PLACE = "place of copy "
_PLACES = "places of the copies"
_COMMAND = "command of "  # and a benchmark
_PLACE_SHOWN = ("CPUs", "node", "memory")
# A difference in one of these moves copies: their places follow from it.
_PLACING = {
    *("usable CPUs", "hardware threads"),
    *(one.label for one in OPTIONS if MOVES_COPIES in one.traits),
}
# What no machine changes, and result files without a host name tell.
_MACHINE = (
    *("host name", "machine id", "product"),
    *("architecture", "CPU vendor", "CPU model", "packages"),
)


class PointDifference(Struct, frozen=True, kw_only=True):
    """One thing that is not alike in all runs of a comparison."""

    what: str  # "setting thp.enabled", "program of lu"
    values: tuple[tuple[str | None, tuple[int, ...]], ...]  # and the runs that have it; None: none
    inside: tuple[str, ...]  # labels of the points whose own runs differ in it
    significant: bool  # False: worth a note
    # Whether it is only not known of all: result files do not tell what a run of rater's own does.
    unknown: bool = False

    @property
    def is_machine(self) -> bool:
        """Tell whether it says that the runs were made on different machines."""
        return self.what in _MACHINE and not self.unknown


def point_differences(points: Sequence[Point]) -> tuple[PointDifference, ...]:
    """Return what differs between the runs of all points, axes and what follows from them left out.

    Machines first, then what is significant, then what is worth a note.
    """
    runs = {one.run.head.run: one.run for point in points for one in point.runs}
    before = _facts_of(next(iter(runs.values())))
    values: dict[str, dict[int, str | None]] = {}
    last: dict[str, ConditionDifference] = {}  # with what the reference run has
    for number, run in runs.items():
        for difference in _differences(before, _facts_of(run)):
            last[difference.what] = difference
            values.setdefault(difference.what, {})[number] = difference.now
    placing = bool(values.keys() & _PLACING) or any(
        _explains(axis, label) for point in points for axis, _ in point.values for label in _PLACING
    )
    differences = []
    for label, by_run in values.items():
        every = {number: by_run.get(number, last[label].before) for number in runs}
        inside = tuple(
            point.label for point in points if len({every[number] for number in point.numbers}) > 1
        )
        if not inside and ((label == _PLACES and placing) or _is_axis(label, every, points)):
            continue
        groups = group_by_key((value, number) for number, value in every.items())
        unknown = len(groups) == 2 and any(
            runs[number].head.source == "import" for number in groups.get(None, ())
        )
        differences.append(
            PointDifference(
                what=label,
                values=tuple((value, tuple(numbers)) for value, numbers in groups.items()),
                inside=inside,
                significant=not unknown and last[label].significant,
                unknown=unknown,
            )
        )
    return tuple(
        sorted(differences, key=lambda it: (it.unknown, not it.significant, not it.is_machine))
    )


def _is_axis(label: str, every: dict[int, str | None], points: Sequence[Point]) -> bool:
    """Tell whether `what` is an axis, or follows from one: one value for each of the axis."""
    axes = {axis for point in points for axis, _ in point.values}
    for axis in axes:
        by_value: dict[str | None, set[str | None]] = {}
        recorded = True  # the very values of the axis, under whatever name
        for point in points:
            value = dict(point.values).get(axis)
            recorded_values = {every[number] for number in point.numbers}
            by_value.setdefault(value, set()).update(recorded_values)
            recorded = recorded and recorded_values == {value or None}  # an empty value: not set
        same = all(len(recorded_values) == 1 for recorded_values in by_value.values())
        if same and (recorded or _explains(axis, label)):
            return True
    return label.startswith(_COMMAND) and is_one_template(every, points)


def _explains(axis: str, label: str) -> bool:
    variable = axis.removeprefix("env:")
    if variable != axis:
        return label in (f"environment variable {variable}", f"--env {variable}")
    name = label.removeprefix("setting ").removeprefix("--")
    if axis in BY_NAME:
        return name in (axis, f"copies.{axis}") or label.startswith(tuple(BY_NAME[axis].implies))
    return name == axis or (name != label and changes_with(axis, name))


class _RunFacts(Struct, frozen=True):
    """What of a run is compared with another one."""

    run: StoredRun
    head: Facts
    asked: Facts  # options that are no part of the head; empty: not known
    conditions: Conditions


def _facts_of(run: StoredRun) -> _RunFacts:
    return _RunFacts(
        run=run,
        head=_head_facts(_HEAD_VALUES(run.head)),
        asked=_asked_facts(run.head.request or ""),
        conditions=stored_conditions(run),
    )


def _differences(before: _RunFacts, now: _RunFacts) -> Iterator[ConditionDifference]:
    reference, run = before.run, now.run
    yield from compare_facts(before.head, now.head)
    if reference.environment != run.environment:
        yield from _of_variables("--env", dict(reference.environment), dict(run.environment))
    if before.asked and now.asked:  # else imported, or of an older rater: not known
        yield from compare_facts(before.asked, now.asked)
    for one in condition_differences(before.conditions, now.conditions):
        # Places follow in one; which benchmarks have no partner, the comparison tells.
        members = [sorted((it or "").split(", ")) for it in (one.before, one.now)]
        others = one.what == "benchmarks" and members[0] != members[1]
        if not others and not one.what.startswith(_PLACE):
            yield one
    moved = _moved(reference, run)
    if moved:
        yield ConditionDifference(_PLACES, f"as in run {reference.head.run}", moved)


def run_differences(
    before: StoredRun, now: StoredRun, benchmark: str
) -> tuple[ConditionDifference, ...]:
    """Return what differs between two runs that may change a benchmark's time."""
    others = [f" of {name}" for name in (*before.head.benchmarks, *now.head.benchmarks)]
    others = [end for end in others if end != f" of {benchmark}"]
    return tuple(
        difference
        for difference in _differences(_facts_of(before), _facts_of(now))
        if not difference.what.endswith(tuple(others))
    )


def work_of(run: StoredRun, *, whole: bool) -> tuple[object, ...]:
    """Return what runs must share to be of the same work, as far as they were asked to.

    That is the arguments of a command, and with `whole` the name of its program's file: where that
    lies, and what is in it, may change. A suite is called by its name and size.
    """
    request = stored_request(run.head) or {}
    words = request.get("command")
    words = [str(word) for word in words] if isinstance(words, list) else []
    facts = _head_facts(_HEAD_VALUES(run.head))
    return (
        *(facts[label] for label in _WORK_LABELS),
        run.environment,
        *(text_of(option_value(request, option)) for option in COPY_OPTIONS),
        PurePath(words[0]).name if words and whole else None,
        *words[1:],
    )


@lru_cache(64)  # most runs that are compared have the same ones
def _head_facts(values: tuple[object, ...]) -> Facts:
    labels = map(_label_of, HEAD_FIELDS)
    return {label: text_of(value) for label, value in zip(labels, values, strict=True)}


@lru_cache(64)
def _asked_facts(request: str) -> Facts:
    return _option_facts(_ASKED_IN_ORDER, parsed) if (parsed := parse_request(request)) else {}


def _of_variables(
    label: str, before: Mapping[str, str], now: Mapping[str, str]
) -> Iterator[ConditionDifference]:
    names = sorted(before.keys() | now.keys())
    yield from compare_facts(
        *({f"{label} {name}": variables.get(name) for name in names} for variables in (before, now))
    )


def _of_options(
    options: Iterable[Option], before: Mapping[str, object], now: Mapping[str, object]
) -> Iterator[ConditionDifference]:
    options = list(options)
    yield from compare_facts(*(_option_facts(options, request) for request in (before, now)))


def _option_facts(options: Iterable[Option], request: Mapping[str, object]) -> Facts:
    return {option.label: text_of(option_value(request, option)) for option in options}


def option_value(request: Mapping[str, object], option: Option) -> object:
    """Return the value of an option in a request; None for its default, typed or left out."""
    value = request.get(option.field)
    return None if value in (*_OFF, option.default, *option.neutral) else value


def _moved(reference: StoredRun, run: StoredRun) -> str | None:
    """Describe the first copy whose place differs; None if no copy is known to have moved."""
    if run.placements and run.placements == reference.placements:
        return None
    was, is_now = _placed(reference), _placed(run)
    moved = []
    for copy in sorted(was.keys() & is_now.keys()):
        before, now = was[copy], is_now[copy]
        known = [unit for unit in now if unit in before]
        changed = [unit for unit in known if before[unit] != now[unit]]
        if "CPUs" in changed:  # core, cache and package follow from it
            changed = [unit for unit in changed if unit in _PLACE_SHOWN]
        if changed:
            words = [", ".join(it[unit] for unit in changed) for it in (now, before)]
            moved.append(f"copy {copy} on {words[0]}, not {words[1]}")
    if len(moved) > 1:
        return f"{len(moved)} copies elsewhere, {moved[0]}"
    return moved[0] if moved else None


def _placed(run: StoredRun) -> dict[int, dict[str, str]]:
    """Return by copy where it was, by kinds of units; of result files from the copies' own rows."""
    if run.placements:
        return {
            placement.copy: _units(
                placement.cpus,
                core=placement.core,
                LLC=placement.llc,
                node=placement.node,
                package=placement.package,
            )
            | {"memory": memory_of(placement)}
            for placement in run.placements
        }
    placed: dict[int, dict[str, str]] = {}
    for copy in run.copies:
        if copy.copy not in placed and copy.cpu is not None:
            placed[copy.copy] = _units(
                (copy.cpu,), core=copy.core, node=copy.node, package=copy.package
            )
    return placed


def _units(cpus: tuple[int, ...] | None, **units: int | None) -> dict[str, str]:
    mask = "any CPU (not bound)" if cpus is None else f"CPUs {format_list(cpus)}"
    return {"CPUs": mask} | {name: f"{name} {it}" for name, it in units.items() if it is not None}


# -- of a steady run and one with a barrier ----------------------------------------------------

_INHERITED = "env."
_NOT_COMPARED = "env.PATH"  # the programs themselves are compared by content
# Options of one mode alone: a steady run and its partner differ in them by their nature. (A stagger
# of the partner is refused by `differ_beyond_mode` itself; an increment counts in rotated order.)
_OF_ONE_MODE = {"mode", "order", "stagger", "increment", "warmup", "window"}
# Fields of the head that both runs must share: all that change what a copy does, but for the mode.
_SAME_BESIDE_MODE = (
    "hostname",
    "suite",
    *(
        option.field
        for option in OPTIONS
        if IN_HEAD in option.traits
        and option.compare_as is CompareAs.DIFFERENT_WORK
        and option.name not in _OF_ONE_MODE
    ),
)


# Options that change what copies do and are not in the head: of both requests. What the command is
# called is a name; programs are compared by content.
_BESIDE_MODE = tuple(
    option
    for option in OPTIONS
    if IN_HEAD not in option.traits
    and option.compare_as in (CompareAs.DIFFERENT_WORK, CompareAs.RECORDED_EFFECT)
    and option.name not in _OF_ONE_MODE
    and option.name not in ("name", "env", "speccmds")
)


def differ_beyond_mode(head: RunHead, other: RunHead) -> bool:
    """Tell whether two runs differ in more than the mode: then no comparison is shown unasked.

    Requests and heads are compared here, programs in `compare_with_barrier`.
    """
    request, other_request = stored_request(head), stored_request(other)
    if other.stagger_ms:
        return True
    if any(getattr(head, name) != getattr(other, name) for name in _SAME_BESIDE_MODE):
        return True
    if request is None or other_request is None:
        return request is not other_request
    return _variables(request) != _variables(other_request) or any(
        option_value(request, option) != option_value(other_request, option)
        for option in _BESIDE_MODE
    )


def minor_differences(run: StoredRun, other: StoredRun) -> tuple[str, ...]:
    """Return what is worth a word beside a comparison: rests, and what the copies inherited."""
    request, other_request = stored_request(run.head) or {}, stored_request(other.head) or {}
    differences: list[str] = []
    if request and other_request:
        rests = [BY_NAME[name] for name in ("cooldown", "until-idle")]
        differences = _in_words(_of_options(rests, request, other_request))
    given = (
        _variables(request).keys() & _variables(other_request).keys()
    )  # these stand over inherited ones
    inherited = (
        {
            name.removeprefix(_INHERITED): value
            for name, value in some
            if name.startswith(_INHERITED)
            and name != _NOT_COMPARED
            and name.removeprefix(_INHERITED) not in given
        }
        for some in (run.settings, other.settings)
    )
    return (*differences, *_in_words(_of_variables("environment variable", *inherited)))


def _variables(request: Mapping[str, object]) -> dict[str, str]:
    pairs = request.get("environment")
    if not isinstance(pairs, list):
        return {}
    return {str(pair[0]): str(pair[1]) for pair in pairs if isinstance(pair, list) and pair[1:]}


def _in_words(differences: Iterator[ConditionDifference]) -> list[str]:
    values = ((one.what, *(it or "none" for it in (one.now, one.before))) for one in differences)
    return [f"{what} {there}, not {here}" for what, there, here in values]


# -- In what the doctor's findings differ between runs that are compared ---------------------------

_SETTING = "setting "


class DoctorDifference(Struct, frozen=True):
    """One check that does not say the same of all runs."""

    check: str
    why: str  # it matters
    values: tuple[tuple[DoctorVerdict, str, tuple[int, ...]], ...]  # what was seen, in which runs


def doctor_differences(
    points: Sequence[Point], differences: Sequence[PointDifference]
) -> tuple[DoctorDifference, ...]:
    """Return the checks whose verdicts differ between runs of several points.

    `differences` are those of the comparison: what is an axis, or follows from one, is not among
    them and is not told here either. Runs of which a check cannot tell anything are left out.
    """
    runs = {one.run.head.run: one.run for point in points for one in point.runs}
    names = {difference.what.removeprefix(_SETTING) for difference in differences}
    all_settings = {run.settings for run in runs.values()}
    recorded = {name for settings in all_settings for name, _ in settings}
    telling = {name for name in recorded if name in names or is_volatile(name)}
    checks = [check for check in CHECKS if any(map(check.goes_by, telling))]
    findings = _findings(checks, runs)
    differing: list[DoctorDifference] = []
    for check in checks:
        known_findings = {
            number: finding
            for number, finding in findings[check.name].items()
            if finding.verdict is not DoctorVerdict.UNKNOWN
        }
        if not _between(points, known_findings):
            continue
        groups = group_by_key(
            ((finding.verdict, finding.seen), number) for number, finding in known_findings.items()
        )
        values = tuple(
            (verdict, seen, tuple(numbers)) for (verdict, seen), numbers in groups.items()
        )
        differing.append(DoctorDifference(check.name, check.why, values))
    return tuple(differing)


def _findings(
    checks: Sequence[Check], runs: Mapping[int, StoredRun]
) -> dict[str, dict[int, DoctorFinding]]:
    """Return the findings of each run by check and number; runs of equal facts are judged once."""
    by_facts: dict[object, list[DoctorFinding]] = {}
    different: dict[DoctorFinding, DoctorFinding] = {}  # most runs have the same few
    findings: dict[str, dict[int, DoctorFinding]] = {check.name: {} for check in checks}
    for number, run in runs.items():
        key = (run.settings, run.host)
        if key not in by_facts:
            facts = facts_of_run(run)
            found = (check.finding(facts) for check in checks)
            by_facts[key] = [different.setdefault(finding, finding) for finding in found]
        for finding in by_facts[key]:
            findings[finding.check][number] = finding
    return findings


def _between(points: Sequence[Point], findings: dict[int, DoctorFinding]) -> bool:
    """Tell whether points, not only runs within one, differ in their verdicts."""
    sets = [
        {findings[number].verdict for number in point.numbers if number in findings}
        for point in points
    ]
    return len({frozenset(verdicts) for verdicts in sets if verdicts}) > 1
