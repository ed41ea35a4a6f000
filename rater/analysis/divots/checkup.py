"""What a checkup says of a machine, section by section: readings of its runs in, verdicts out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

from msgspec import Struct

from rater.analysis.divots.cells import (
    FEWEST_ROUNDS,
    MOST_VISIBLE,
    CellsJudgement,
    cells_by_line,
    judge_cells,
    mean_worse,
)
from rater.analysis.divots.model.finding import Analysis, Kind, RecurringDivot
from rater.analysis.doctor.findings import DoctorFinding, DoctorVerdict
from rater.analysis.results.cpu_use import run_counters
from rater.analysis.results.disturbed import (
    OTHERS_COST,
    is_too_disturbed,
    mostly_disturbed,
    shares_of_others,
)
from rater.analysis.results.gates import GateAnswer, status_of_answers
from rater.analysis.results.placement import PlacementVerdict, RunProof
from rater.plan.checkup import LOADS, CheckupPoint, CheckupProbe
from rater.plan.topology import Topology
from rater.record.stored import StoredRun
from rater.text.cpuset import cpus_text, format_list, nodes_text
from rater.text.values import group_by_key, percent, truncate_list

_OTHER_LOAD = "other load"  # the doctor's check whose fault passes by itself
_BESIDE_MODULES = (" on CXL", " persistent memory")  # memory of another kind, on purpose
_LEAST_OF_PEAK = 0.5  # of what channels transfer: reads by all CPUs reach 70 to 90 %
# Times what the firmware promises: walks of page tables come on top.
_MOST_LATENCY = 2.0
_UNREAD = "unread."  # names of facts that could not be read, as `rater.run.host.hardware` has them
_MIB = 1 << 20  # the kernel's numaperf.rst: bandwidth is in MiB/s


class CheckupVerdict(StrEnum):
    """What is said of one section."""

    PASS = "PASS"
    LOOK = "LOOK HERE"
    UNKNOWN = "CANNOT TELL"
    SHOWN = "-"  # measured, and there is nothing to compare it with


class CheckupSection(Struct, frozen=True, kw_only=True):
    """One section: what is to be looked at, what stands against a verdict, what else is said."""

    name: str
    found: tuple[str, ...] = ()
    obstacles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_judged: bool = True  # False: there was nothing to compare with
    unit: str = ""  # of the cells
    cells: CellsJudgement = CellsJudgement(cells=(), visible=None)

    @property
    def verdict(self) -> CheckupVerdict:
        """A slow place counts before an obstacle, and this before all that is well."""
        if self.found:
            return CheckupVerdict.LOOK
        if self.obstacles:
            return CheckupVerdict.UNKNOWN
        return CheckupVerdict.PASS if self.is_judged else CheckupVerdict.SHOWN

    @property
    def lines(self) -> tuple[str, ...]:
        """The reasons of the verdict, and what else is said."""
        return (*self.obstacles, *self.found, *self.notes)


class CheckupMeasure(Struct, frozen=True):
    """A quantity that has a section of its own."""

    name: str
    probe: CheckupProbe
    metrics: tuple[str, ...]  # one of a place, or one of it at each load
    unit: str

    @property
    def higher_is_worse(self) -> bool:
        """Whether it is a time; the others are rates."""
        return self.unit == "ns"

    def cpus_text(self, numbers: Iterable[int]) -> str:
        """Return CPUs in words, by the first numbers of their places."""
        if self.probe is CheckupProbe.CORE:
            return cpus_text(numbers)
        return f"CPUs of {nodes_text(numbers)}"


_LINES = tuple(f"line{load}" for load in range(1, LOADS + 1))
MEASURES = (
    CheckupMeasure("latency of memory, one CPU", CheckupProbe.LATENCY, ("latency",), "ns"),
    CheckupMeasure("bandwidth, one CPU", CheckupProbe.LATENCY, ("bandwidth",), "GB/s"),
    CheckupMeasure("bandwidth, all CPUs of a node", CheckupProbe.BANDWIDTH, ("bandwidth",), "GB/s"),
    CheckupMeasure("loaded latency, five loads", CheckupProbe.LOADED, _LINES, "ns"),
    CheckupMeasure("each core alone", CheckupProbe.CORE, ("rate",), "per us"),
)
_LATENCY, _BANDWIDTH = MEASURES[0].name, MEASURES[2].name  # those that are rated


class PlaceReading(Struct, frozen=True, kw_only=True):
    """What one place gave in one round."""

    measure: CheckupMeasure
    place: tuple[int, ...]
    value: float
    is_taken: bool  # others took more than `OTHERS_COST` of the time that its copies wanted a CPU
    is_proved: bool  # its copies and their memory were where the plan put them


def readings_of(
    run: StoredRun, proof: RunProof | None, point: CheckupPoint
) -> Iterator[PlaceReading]:
    """Yield what a run of suite `matrix` tells of its places."""
    shares = _shares_by_cpu(run)
    proved = {it.copy for it in proof.with_verdict(PlacementVerdict.MET)} if proof else set()
    copies_by_place = group_by_key((point.places[copy.copy], copy) for copy in run.copies)
    for measure in MEASURES:
        for place, copies in copies_by_place.items() if measure.probe is point.probe else ():
            # Rates of the copies add up. Of copies that share a load the first one has the time.
            leader = min(copies, key=lambda copy: copy.copy)
            told = [leader] if measure.higher_is_worse else copies
            for load, metric in enumerate(measure.metrics, 1):
                values = [value for copy in told for name, value in copy.metrics if name == metric]
                if len(values) == len(told):
                    yield PlaceReading(
                        measure=measure,
                        place=(*place, load) if len(measure.metrics) > 1 else place,
                        value=sum(values),
                        is_taken=max(shares[copy.cpu] for copy in copies) >= OTHERS_COST,
                        is_proved=all(copy.copy in proved for copy in copies),
                    )


def _shares_by_cpu(run: StoredRun) -> dict[int | None, float]:
    """Return which share of the time that copies wanted a CPU others took, 0 where not known.

    Copies on one CPU wait for each other, too: together they lost no more than the one that lost
    the most to others.
    """
    shares = shares_of_others(run, run_counters(run))
    ran_s: defaultdict[int | None, float] = defaultdict(float)
    lost_s: defaultdict[int | None, float] = defaultdict(float)
    for copy in run.copies:
        copy_s, share = copy.cpu_s or 0.0, shares[copy.phase, copy.copy, copy.step] or 0.0
        ran_s[copy.cpu] += copy_s
        lost_s[copy.cpu] = max(lost_s[copy.cpu], copy_s * share / max(1 - share, 1e-6))
    return {cpu: lost_s[cpu] / ((ran_s[cpu] + lost_s[cpu]) or 1.0) for cpu in ran_s}


# -- Sections --------------------------------------------------------------------------------------


def measure_section(
    measure: CheckupMeasure, readings: Iterable[PlaceReading], topology: Topology
) -> CheckupSection | None:
    """Return the section of a measure, or None if nothing of it could be run."""
    by_place = group_by_key(
        (reading.place, reading) for reading in readings if reading.measure == measure
    )
    if not by_place:
        return None
    disturbed = {
        place
        for place, of_place in by_place.items()
        if mostly_disturbed([reading.is_taken for reading in of_place], "round")
    }
    # A place that others disturbed is shown, but is no peer of any.
    peers = {
        place: place if place in disturbed else _peers(place, measure, topology)
        for place in by_place
    }
    judgement = judge_cells(
        {place: [reading.value for reading in of_place] for place, of_place in by_place.items()},
        peers,
        higher_is_worse=measure.higher_is_worse,
        lines_of=partial(_lines_of, topology=topology),
    )
    obstacles: list[str] = []
    if disturbed:
        cpus = measure.cpus_text({place[0] for place in disturbed})
        obstacles.append(f"others took more than {percent(OTHERS_COST, 0)} % of {cpus}")
    proofs = [reading.is_proved for of_place in by_place.values() for reading in of_place]
    if not all(proofs):
        obstacles.append(
            f"{proofs.count(False)} of {len(proofs)} measurements without proof of their CPUs "
            "and memory"
        )
    if min(map(len, by_place.values())) < FEWEST_ROUNDS:
        obstacles.append(f"fewer than {FEWEST_ROUNDS} rounds were measured of each place")
    notes = []
    if judgement.visible is None and not disturbed:
        notes.append("nothing to compare with: no two places are alike")
    elif judgement.visible is not None and judgement.visible > MOST_VISIBLE:
        obstacles.append("rounds differ so much that a place twice as bad could hide")
    elif judgement.visible is not None:
        notes.append(f"{percent(judgement.visible, 0)} % would be seen of one place")
    return CheckupSection(
        name=measure.name,
        found=tuple(_describe_slow(judgement, measure, topology)),
        obstacles=tuple(obstacles),
        notes=tuple(notes),
        is_judged=judgement.visible is not None,
        unit=measure.unit,
        cells=judgement,
    )


def _describe_slow(
    judgement: CellsJudgement, measure: CheckupMeasure, topology: Topology
) -> Iterator[str]:
    """Yield the slow places; those that have a node in common are one, with one size."""
    nodes = {cell.place[-1] for cell in judgement.cells}
    for cells in cells_by_line(judgement.slow, partial(_lines_of, topology=topology)):
        firsts, lasts = ({cell.place[axis] for cell in cells} for axis in (0, -1))
        place = measure.cpus_text(firsts)
        if measure.probe is CheckupProbe.CORE:
            place = f"{place} (node {_node_of(min(firsts), topology)})"
        elif measure.probe is CheckupProbe.LOADED:
            place = f"{place} at load {format_list(lasts)} of {LOADS}"
        else:
            memory = f"all {len(nodes)} nodes" if lasts == nodes else nodes_text(lasts)
            place = f"{place}, memory of {memory}"
        values = [f"{cell.value:.4g}" for cell in sorted(cells, key=lambda cell: cell.value)]
        span = " to ".join(dict.fromkeys([values[0], values[-1]]))
        worse = f"{percent(mean_worse(cells), 0)} % worse than"
        yield f"{place}: {span} {measure.unit}, {worse} {'their' if values[1:] else 'its'} peers"


def _lines_of(place: tuple[int, ...], topology: Topology) -> Sequence[Hashable]:
    """Return the row and the column of a place; of a core its node."""
    return place if len(place) > 1 else (_node_of(place[0], topology),)


def _node_of(cpu: int, topology: Topology) -> int | None:
    return topology.by_cpu[cpu].node if cpu in topology.by_cpu else None


def _peers(place: tuple[int, ...], measure: CheckupMeasure, topology: Topology) -> Hashable:
    """Return what a place has in common with those that should be as good."""
    if measure.probe is CheckupProbe.CORE:
        return topology.by_cpu[place[0]].kind if place[0] in topology.by_cpu else None
    cpus = len([pu for pu in topology.pus if pu.node == place[0]])
    if measure.probe is CheckupProbe.LOADED:
        return cpus, place[1]
    memory = topology.by_node[place[1]]
    distance = topology.distance(*place)
    if distance is None:
        distance = float(place[0] != place[1])
    return cpus, distance, memory.default and bool(memory.cpus)


def doctor_section(findings: Sequence[DoctorFinding], tuned: Mapping[str, str]) -> CheckupSection:
    """Return what the doctor found, without what is set for the time of the checkup."""
    faults = {
        finding.check: f"{finding.check}: {finding.seen}"
        for finding in findings
        if finding.verdict is DoctorVerdict.BAD
        and not (finding.settings and {name for name, _ in finding.settings} <= tuned.keys())
    }
    passing = faults.pop(_OTHER_LOAD, None)
    consider = sum(finding.verdict is DoctorVerdict.CONSIDER for finding in findings)
    return CheckupSection(
        name="doctor",
        found=tuple(faults.values()),
        obstacles=(passing,) if passing else (),
        notes=(f"{consider} to consider: `rater doctor`",),
    )


def facts_section(
    settings: Mapping[str, str], sections: Sequence[CheckupSection]
) -> CheckupSection:
    """Return the section of facts: which are odd, and how measured values compare with them.

    `sections` are those of measures. A section that cannot tell is not rated.
    """
    had = {
        section.name: {cell.place: cell.value for cell in section.cells.cells}
        for section in sections
        if section.verdict is not CheckupVerdict.UNKNOWN
    }
    ratings = [*_ratings(settings, had.get(_BANDWIDTH, {}), had.get(_LATENCY, {}))]
    unread = [
        f"{name.removeprefix(_UNREAD)} not known: {reason}"
        for name, reason in settings.items()
        if name.startswith(_UNREAD)
    ]
    return CheckupSection(
        name="facts of the machine",
        found=(*_odd_modules(settings), *(text for text, is_met in ratings if not is_met)),
        notes=(*(text for text, is_met in ratings if is_met), *unread),
        is_judged=bool(ratings) or "dimms.found" in settings,
    )


def _odd_modules(settings: Mapping[str, str]) -> Iterator[str]:
    channels = settings.get("dimms.channels", "")
    match = re.fullmatch(r"(\d+) of (\d+) populated", channels)
    if match and match[1] != match[2]:
        empty = [
            name.removeprefix("dimm.")
            for name, text in settings.items()
            if name.startswith("dimm.") and text == "empty"
        ]
        yield f"memory channels: {channels}; empty: {truncate_list(empty)}"
    modules = [
        text
        for text in settings.get("dimms.found", "").split(", ")
        if " x " in text and not any(kind in text for kind in _BESIDE_MODULES)
    ]
    if len(modules) > 1:
        yield f"memory modules are not alike: {', '.join(modules)}"


def _ratings(
    settings: Mapping[str, str],
    bandwidth: Mapping[tuple[int, ...], float],
    latency: Mapping[tuple[int, ...], float],
) -> Iterator[tuple[str, bool]]:
    """Yield what was had of what channels transfer and firmware (HMAT) promises; is it enough?

    All nodes together read their own memory. A promise is that of a node to the nodes nearest to
    it.
    """
    local = [value for place, value in bandwidth.items() if place[0] == place[1]]
    if "dimms.peak_mb_s" in settings and local:
        yield _read_of(sum(local), int(settings["dimms.peak_mb_s"]) / 1e3, "of its channels")
    for name, initiators in settings.items():
        match = re.fullmatch(r"(hmat\.node(\d+)\.)initiators", name)
        for initiator in initiators.split(",") if match else ():
            assert match is not None
            place = (int(initiator), int(match[2]))
            where = f"CPUs of node {place[0]}, memory of node {place[1]}"
            promised = settings.get(f"{match[1]}read_bandwidth_mb_s")
            if promised and place in bandwidth:
                text, is_met = _read_of(bandwidth[place], int(promised) * _MIB / 1e9, "promised")
                yield f"{where}: {text}", is_met
            promised = settings.get(f"{match[1]}read_latency_ns")
            if promised and place in latency:
                times = latency[place] / int(promised)
                said = f"{latency[place]:.4g} ns, {times:.1f} times the {promised} promised"
                yield f"{where}: {said}", times <= _MOST_LATENCY


def _read_of(had: float, peak: float, of: str) -> tuple[str, bool]:
    share = percent(had / peak, 0)
    return f"{had:.4g} GB/s read, {share} % of the {peak:.4g} {of}", had >= _LEAST_OF_PEAK * peak


def mix_section(
    analyses: Sequence[Analysis], recurring: Sequence[RecurringDivot]
) -> CheckupSection:
    """Return what divots say of runs on all CPUs: those that come back are to be looked at."""
    disturbed = mostly_disturbed([is_too_disturbed(it.others_cost) for it in analyses])
    if disturbed:
        return CheckupSection(name="all CPUs at once", obstacles=(f"divots: {disturbed}",))
    visible = next((it.visible for it in reversed(analyses) if it.visible), {})
    sizes = ", ".join(f"{scope} {percent(size, 0)} %" for scope, size in visible.items())
    return CheckupSection(
        name="all CPUs at once",
        found=tuple(divot.summary for divot in recurring if divot.kind is Kind.RECURRING),
        notes=(f"would be seen: {sizes}",) if sizes else (),
    )


_ANSWERS = {CheckupVerdict.LOOK: GateAnswer.FOUND, CheckupVerdict.UNKNOWN: GateAnswer.OPEN}


def exit_status(sections: Iterable[CheckupSection]) -> int:
    """Return 1 where something is to be looked at, 3 where something cannot be told, else 0."""
    return status_of_answers(
        _ANSWERS.get(section.verdict, GateAnswer.EXCLUDED) for section in sections
    )
