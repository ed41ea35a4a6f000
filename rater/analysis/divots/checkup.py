"""What a checkup says of a machine, section by section: readings of its runs in, verdicts out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from rater.analysis.divots.cells import FEWEST_ROUNDS, MOST_VISIBLE, CellsJudgement, judge_cells
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
from rater.plan.checkup import STEPS, CheckupPoint, CheckupProbe
from rater.plan.topology import Topology
from rater.record.stored import RunHead, StoredRun
from rater.text.values import count, percent, truncate_list

LINE_BYTES = 64
_OTHER_LOAD = "other load"  # the doctor's check whose fault passes by itself
_MOST_LATE = 0.1  # of a window: copies that begin later do not work beside the others
_LEAST_OF_PEAK = 0.5  # of what channels transfer: reads by all CPUs reach 70 to 90 %


class CheckupVerdict(StrEnum):
    """What is said of one section."""

    PASS = "PASS"
    LOOK = "LOOK HERE"
    UNKNOWN = "CANNOT TELL"
    SHOWN = "-"  # measured, and there is nothing to compare it with


class CheckupSection(Struct, frozen=True, kw_only=True):
    """One section; `cells` are those of a matrix in `unit`."""

    name: str
    verdict: CheckupVerdict
    lines: tuple[str, ...]
    unit: str = ""
    cells: CellsJudgement | None = None


class CheckupMeasure(Struct, frozen=True, kw_only=True):
    """A quantity that has a section of its own."""

    name: str
    probe: CheckupProbe
    metric: str
    unit: str
    higher_is_worse: bool


MEASURES = (
    CheckupMeasure(
        name="latency of memory, one CPU",
        probe=CheckupProbe.LATENCY,
        metric="latency",
        unit="ns",
        higher_is_worse=True,
    ),
    CheckupMeasure(
        name="bandwidth, one CPU",
        probe=CheckupProbe.LATENCY,
        metric="bandwidth",
        unit="GB/s",
        higher_is_worse=False,
    ),
    CheckupMeasure(
        name="bandwidth, all CPUs of a node",
        probe=CheckupProbe.BANDWIDTH,
        metric="bandwidth",
        unit="GB/s",
        higher_is_worse=False,
    ),
    CheckupMeasure(
        name="loaded latency, five loads",
        probe=CheckupProbe.LOADED,
        metric="line",
        unit="ns",
        higher_is_worse=True,
    ),
    CheckupMeasure(
        name="each core alone",
        probe=CheckupProbe.CORE,
        metric="rate",
        unit="per us",
        higher_is_worse=False,
    ),
)


class PlaceReading(Struct, frozen=True, kw_only=True):
    """What one place gave in one round."""

    place: tuple[int, ...]
    value: float
    taken: float | None  # share of the time that its copies wanted a CPU, by others


class ProbeRun(Struct, frozen=True, kw_only=True):
    """What a run of a checkup tells: readings by metric, and whether they hold."""

    run: int
    probe: CheckupProbe
    round: int
    readings: Mapping[str, tuple[PlaceReading, ...]]
    late_s: float  # the last copy was set up, after the windows should have begun
    copies: int
    placed: int  # of these so many were where the plan put them, by proof


def probe_run(
    run: StoredRun, proof: RunProof | None, point: CheckupPoint, round_number: int
) -> ProbeRun:
    """Return what a run of suite `matrix` tells of its places."""
    shares = shares_of_others(run, run_counters(run))
    readings: dict[str, list[PlaceReading]] = defaultdict(list)
    late_s = 0.0
    by_node: dict[int, list[tuple[int, dict[str, float], float | None]]] = defaultdict(list)
    for copy in run.copies:
        taken = shares[copy.phase, copy.copy, copy.step]
        metrics = dict(copy.metrics)
        late_s = max(late_s, metrics.get("late", 0.0))
        if point.probe is CheckupProbe.CORE and copy.cpu is not None and "rate" in metrics:
            readings["rate"].append(
                PlaceReading(place=(copy.cpu,), value=metrics["rate"], taken=taken)
            )
        elif copy.node is not None:
            by_node[copy.node].append((copy.copy, metrics, taken))
    for node, copies in by_node.items():
        known_shares = [share for _, _, share in copies if share is not None]
        taken = max(known_shares) if len(known_shares) == len(copies) else None
        for metric, place, value in _values_of_node(node, copies, point):
            readings[metric].append(PlaceReading(place=place, value=value, taken=taken))
    return ProbeRun(
        run=run.head.run,
        probe=point.probe,
        round=round_number,
        readings={metric: tuple(of_metric) for metric, of_metric in readings.items()},
        late_s=late_s,
        copies=len(run.copies),
        placed=len(proof.with_verdict(PlacementVerdict.MET)) if proof else 0,
    )


def _values_of_node(
    node: int,
    copies: Sequence[tuple[int, Mapping[str, float], float | None]],
    point: CheckupPoint,
) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Yield metric, place and value: of a matrix, or of a node under growing load."""
    if point.memory_node is not None:
        for metric in ("latency", "bandwidth"):
            values = [metrics[metric] for _, metrics, _ in copies if metric in metrics]
            if len(values) == len(copies):
                yield metric, (node, point.memory_node), sum(values)
        return
    for step in range(1, STEPS + 1):
        lines_ns = {number: metrics.get(f"line{step}") for number, metrics, _ in copies}
        known = {number: line_ns for number, line_ns in lines_ns.items() if line_ns}
        leader = next((known[number] for number in point.leaders if number in known), None)
        if leader is not None and len(known) == len(copies):
            yield "line", (node, step), leader
            yield "load", (node, step), sum(LINE_BYTES / line_ns for line_ns in known.values())


# -- Sections --------------------------------------------------------------------------------------


def measure_section(
    measure: CheckupMeasure, runs: Iterable[ProbeRun], topology: Topology, window_s: float
) -> CheckupSection | None:
    """Return the section of a measure, or None if nothing of it could be run."""
    of_probe = sorted((run for run in runs if run.probe is measure.probe), key=lambda it: it.round)
    if not of_probe:
        return None
    values: dict[tuple[int, ...], list[float]] = defaultdict(list)
    others_took: dict[tuple[int, ...], list[bool]] = defaultdict(list)
    for run in of_probe:
        for reading in run.readings.get(measure.metric, ()):
            values[reading.place].append(reading.value)
            others_took[reading.place].append((reading.taken or 0.0) >= OTHERS_COST)
    disturbed = [place for place in values if mostly_disturbed(others_took[place], "round")]
    judgement = judge_cells(
        values,
        # A place that others disturbed is shown, but is no peer of any.
        {it: it if it in disturbed else _peers(it, measure, topology) for it in values},
        higher_is_worse=measure.higher_is_worse,
    )
    obstacles = [*_obstacles(of_probe, values, window_s)]
    if disturbed:
        places = truncate_list([place_text(place, measure.probe) for place in disturbed])
        obstacles.insert(0, f"others took more than {percent(OTHERS_COST, 0)} % of {places}")
    if judgement.visible is not None and judgement.visible > MOST_VISIBLE:
        obstacles.append("rounds differ so much that a place twice as bad could hide")
    lines = [
        f"{place_text(cell.place, measure.probe)}: {cell.value:.4g} {measure.unit}, "
        f"{percent(cell.worse, 0)} % worse than its peers"
        for cell in judgement.slow
    ]
    if judgement.visible is None:
        verdict = CheckupVerdict.UNKNOWN if disturbed else CheckupVerdict.SHOWN
        lines += [] if disturbed else ["nothing to compare with: no two places are alike"]
    else:
        verdict = CheckupVerdict.PASS
        if judgement.visible <= MOST_VISIBLE:
            lines.append(f"{percent(judgement.visible, 0)} % would be seen of one place")
    if obstacles:
        verdict = CheckupVerdict.UNKNOWN
    if judgement.slow:
        verdict = CheckupVerdict.LOOK
    return CheckupSection(
        name=measure.name,
        verdict=verdict,
        lines=(*obstacles, *lines),
        unit=measure.unit,
        cells=judgement,
    )


def _obstacles(
    runs: Sequence[ProbeRun], values: Mapping[tuple[int, ...], Sequence[float]], window_s: float
) -> Iterator[str]:
    copies, placed = sum(run.copies for run in runs), sum(run.placed for run in runs)
    if placed < copies:
        yield f"{copies - placed} of {copies} copies without proof of their CPUs and memory"
    late = [run for run in runs if run.late_s > _MOST_LATE * window_s]
    if len(late) * 2 > len(runs):
        yield f"set-up took too long in {len(late)} of {count(len(runs), 'run')}"
    if min(map(len, values.values()), default=0) < FEWEST_ROUNDS:
        yield f"fewer than {FEWEST_ROUNDS} rounds were measured of each place"


def _peers(place: tuple[int, ...], measure: CheckupMeasure, topology: Topology) -> Hashable:
    """Return what a place has in common with those that should be as good."""
    if measure.probe is CheckupProbe.CORE:
        return topology.by_cpu[place[0]].kind if place[0] in topology.by_cpu else None
    cpus = len([pu for pu in topology.pus if pu.node == place[0]])
    if measure.probe is CheckupProbe.LOADED:
        return cpus, place[1]
    return cpus, distance(topology, place[0], place[1]), _is_ordinary(topology, place[1])


def _is_ordinary(topology: Topology, node: int) -> bool:
    return topology.by_node[node].default and bool(topology.by_node[node].cpus)


def distance(topology: Topology, node: int, memory_node: int) -> float:
    """Return how far a node is by the firmware; 0 or 1 where that is not known."""
    order = topology.distance_nodes
    if topology.distances is None or not {node, memory_node} <= set(order):
        return float(node != memory_node)
    return topology.distances[order.index(node)][order.index(memory_node)]


def place_text(place: tuple[int, ...], probe: CheckupProbe) -> str:
    """Return a place in words: `CPUs of node 1, memory of node 3`."""
    if probe is CheckupProbe.CORE:
        return f"CPU {place[0]}"
    if probe is CheckupProbe.LOADED:
        return f"node {place[0]} at load {place[1]} of {STEPS}"
    return f"CPUs of node {place[0]}, memory of node {place[1]}"


def doctor_section(findings: Sequence[DoctorFinding], tuned: Mapping[str, str]) -> CheckupSection:
    """Return what the doctor found, without what is set for the time of the checkup."""
    bad = [
        finding
        for finding in findings
        if finding.verdict is DoctorVerdict.BAD
        and not (finding.settings and {name for name, _ in finding.settings} <= tuned.keys())
    ]
    consider = sum(finding.verdict is DoctorVerdict.CONSIDER for finding in findings)
    lines = [f"{finding.check}: {finding.seen}" for finding in bad]
    verdict = CheckupVerdict.LOOK if bad else CheckupVerdict.PASS
    if [finding.check for finding in bad] == [_OTHER_LOAD]:
        verdict = CheckupVerdict.UNKNOWN
    return CheckupSection(
        name="doctor",
        verdict=verdict,
        lines=(*lines, f"{consider} to consider: `rater doctor`"),
    )


def facts_section(settings: Mapping[str, str], bandwidth: CellsJudgement | None) -> CheckupSection:
    """Return what is odd in the facts of the machine, and what it had of its rated bandwidth.

    `bandwidth` is that of all CPUs of a node. Its local cells together are what the machine had.
    """
    odd: list[str] = []
    lines: list[str] = []
    channels = settings.get("dimms.channels", "")
    match = re.fullmatch(r"(\d+) of (\d+) populated", channels)
    if match and match[1] != match[2]:
        empty = [name for name, text in settings.items() if _is_empty_slot(name, text)]
        names = truncate_list([name.removeprefix("dimm.") for name in empty])
        odd.append(f"memory channels: {channels}; empty: {names}")
    modules = [text for text in settings.get("dimms.found", "").split(", ") if " x " in text]
    if len(modules) > 1:
        odd.append(f"memory modules are not alike: {', '.join(modules)}")
    local = [it.value for it in bandwidth.cells if it.place[0] == it.place[1]] if bandwidth else []
    if "dimms.peak_mb_s" in settings and local:
        rated, had = int(settings["dimms.peak_mb_s"]) / 1e3, sum(local)
        text = (
            f"{had:.4g} GB/s read, {percent(had / rated, 0)} % of the {rated:.4g} of its channels"
        )
        (odd if had < _LEAST_OF_PEAK * rated else lines).append(text)
    unknown = [name.removeprefix("unread.") for name in settings if name.startswith("unread.")]
    if unknown:
        lines.append(f"not known: {', '.join(unknown)} (`rater topo --facts`)")
    return CheckupSection(
        name="facts of the machine",
        verdict=CheckupVerdict.LOOK if odd else CheckupVerdict.PASS,
        lines=(*odd, *lines),
    )


def _is_empty_slot(name: str, text: str) -> bool:
    return name.startswith("dimm.") and text == "empty"


def mix_section(
    searched: Sequence[tuple[RunHead, Analysis]], recurring: Sequence[RecurringDivot]
) -> CheckupSection:
    """Return what divots say of runs on all CPUs: those that come back are to be looked at."""
    disturbed = mostly_disturbed([is_too_disturbed(it.others_cost) for _, it in searched])
    back = [divot.summary for divot in recurring if divot.kind is Kind.RECURRING]
    seen = [analysis.visible for _, analysis in searched if analysis.visible]
    lines = [f"divots: {disturbed}"] if disturbed else back
    if seen and not disturbed:
        sizes = ", ".join(f"{scope} {percent(size, 0)} %" for scope, size in seen[-1].items())
        lines = [*lines, f"would be seen: {sizes}"]
    verdict = CheckupVerdict.LOOK if back else CheckupVerdict.PASS
    return CheckupSection(
        name="all CPUs at once",
        verdict=CheckupVerdict.UNKNOWN if disturbed else verdict,
        lines=tuple(lines),
    )


_ANSWERS = {CheckupVerdict.LOOK: GateAnswer.FOUND, CheckupVerdict.UNKNOWN: GateAnswer.OPEN}


def exit_status(sections: Iterable[CheckupSection]) -> int:
    """Return 1 where something is to be looked at, 3 where something cannot be told, else 0."""
    return status_of_answers(
        _ANSWERS.get(section.verdict, GateAnswer.EXCLUDED) for section in sections
    )
