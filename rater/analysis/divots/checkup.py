"""What a checkup says of a machine, section by section: readings of its runs in, verdicts out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
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
from rater.record.events import CopyEnded
from rater.record.stored import RunHead, StoredRun
from rater.text.values import group_by_key, percent, truncate_list

_SUMMED = ("latency", "bandwidth", "rate")  # metrics of a place with one copy, or of all together
_OTHER_LOAD = "other load"  # the doctor's check whose fault passes by itself
_LEAST_OF_PEAK = 0.5  # of what channels transfer: reads by all CPUs reach 70 to 90 %
# Times what the firmware promises: walks of page tables come on top.
_MOST_LATENCY = 2.0
_MIB = 1 << 20  # the kernel's numaperf.rst: bandwidth is in MiB/s
_LATENCY, _BANDWIDTH = "latency of memory, one CPU", "bandwidth, all CPUs of a node"


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


class CheckupMeasure(Struct, frozen=True):
    """A quantity that has a section of its own."""

    name: str
    probe: CheckupProbe
    metric: str
    unit: str

    @property
    def higher_is_worse(self) -> bool:
        """Whether it is a time; the others are rates."""
        return self.unit == "ns"


MEASURES = (
    CheckupMeasure(_LATENCY, CheckupProbe.LATENCY, "latency", "ns"),
    CheckupMeasure("bandwidth, one CPU", CheckupProbe.LATENCY, "bandwidth", "GB/s"),
    CheckupMeasure(_BANDWIDTH, CheckupProbe.BANDWIDTH, "bandwidth", "GB/s"),
    CheckupMeasure("loaded latency, five loads", CheckupProbe.LOADED, "line", "ns"),
    CheckupMeasure("each core alone", CheckupProbe.CORE, "rate", "per us"),
)


class PlaceReading(Struct, frozen=True, kw_only=True):
    """What one place gave in one round."""

    metric: str
    place: tuple[int, ...]
    value: float
    taken: bool  # others took more than `OTHERS_COST` of the time that its copies wanted a CPU


class ProbeRun(Struct, frozen=True, kw_only=True):
    """What a run of a checkup tells."""

    run: int
    probe: CheckupProbe
    round: int
    readings: tuple[PlaceReading, ...]
    copies: int
    placed: int  # of these so many were where the plan put them, by proof


def probe_run(
    run: StoredRun, proof: RunProof | None, point: CheckupPoint, round_number: int
) -> ProbeRun:
    """Return what a run of suite `matrix` tells of its places."""
    shares = _shares_by_cpu(run)
    copies_by_place = group_by_key((point.places[copy.copy], copy) for copy in run.copies)
    readings = [
        PlaceReading(
            metric=metric,
            place=place_of_value,
            value=value,
            taken=max(shares[copy.cpu] for copy in copies) >= OTHERS_COST,
        )
        for place, copies in copies_by_place.items()
        for metric, place_of_value, value in _values(place, copies, point.leaders)
    ]
    return ProbeRun(
        run=run.head.run,
        probe=point.probe,
        round=round_number,
        readings=tuple(readings),
        copies=len(run.copies),
        placed=len(proof.with_verdict(PlacementVerdict.MET)) if proof else 0,
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


def _values(
    place: tuple[int, ...], copies: Sequence[CopyEnded], leaders: Container[int]
) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Yield metric, place and value: of all copies together, or of the leader at each load."""
    metrics_by_copy = {copy.copy: dict(copy.metrics) for copy in copies}
    for metric in _SUMMED:
        known = [metrics[metric] for metrics in metrics_by_copy.values() if metric in metrics]
        if len(known) == len(copies):
            yield metric, place, sum(known)
    for copy, metrics in metrics_by_copy.items():
        for step in range(1, STEPS + 1):
            if copy in leaders and f"line{step}" in metrics:
                yield "line", (*place, step), metrics[f"line{step}"]


# -- Sections --------------------------------------------------------------------------------------


def measure_section(
    measure: CheckupMeasure, runs: Iterable[ProbeRun], topology: Topology
) -> CheckupSection | None:
    """Return the section of a measure, or None if nothing of it could be run."""
    of_probe = sorted((run for run in runs if run.probe is measure.probe), key=lambda it: it.round)
    if not of_probe:
        return None
    readings = group_by_key(
        (reading.place, reading)
        for run in of_probe
        for reading in run.readings
        if reading.metric == measure.metric
    )
    disturbed = {
        place
        for place, of_place in readings.items()
        if mostly_disturbed([reading.taken for reading in of_place], "round")
    }
    judgement = judge_cells(
        {place: [reading.value for reading in readings[place]] for place in readings},
        # A place that others disturbed is shown, but is no peer of any.
        {
            place: place if place in disturbed else _peers(place, measure, topology)
            for place in readings
        },
        higher_is_worse=measure.higher_is_worse,
    )
    obstacles: list[str] = []
    if disturbed:
        firsts = sorted({place[0] for place in disturbed})
        cpus = truncate_list([cpus_text(first, measure.probe) for first in firsts])
        obstacles.append(f"others took more than {percent(OTHERS_COST, 0)} % of {cpus}")
    copies, placed = sum(run.copies for run in of_probe), sum(run.placed for run in of_probe)
    if placed < copies:
        obstacles.append(
            f"{copies - placed} of {copies} copies without proof of their CPUs and memory"
        )
    if min(map(len, readings.values()), default=0) < FEWEST_ROUNDS:
        obstacles.append(f"fewer than {FEWEST_ROUNDS} rounds were measured of each place")
    if judgement.visible is not None and judgement.visible > MOST_VISIBLE:
        obstacles.append("rounds differ so much that a place twice as bad could hide")
    verdict = CheckupVerdict.SHOWN if judgement.visible is None else CheckupVerdict.PASS
    if judgement.slow:
        verdict = CheckupVerdict.LOOK
    elif obstacles:
        verdict = CheckupVerdict.UNKNOWN
    return CheckupSection(
        name=measure.name,
        verdict=verdict,
        lines=(*obstacles, *_cell_lines(judgement, measure, is_compared=not disturbed)),
        unit=measure.unit,
        cells=judgement,
    )


def _cell_lines(
    judgement: CellsJudgement, measure: CheckupMeasure, *, is_compared: bool
) -> Iterator[str]:
    """Yield the slow places, and how large a difference would be seen."""
    for cell in judgement.slow:
        yield (
            f"{place_text(cell.place, measure.probe)}: {cell.value:.4g} {measure.unit}, "
            f"{percent(cell.worse, 0)} % worse than its peers"
        )
    if judgement.visible is None and is_compared:
        yield "nothing to compare with: no two places are alike"
    elif judgement.visible is not None and judgement.visible <= MOST_VISIBLE:
        yield f"{percent(judgement.visible, 0)} % would be seen of one place"


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


def place_text(place: tuple[int, ...], probe: CheckupProbe) -> str:
    """Return a place in words: `CPUs of node 1, memory of node 3`."""
    if probe is CheckupProbe.LOADED:
        return f"node {place[0]} at load {place[1]} of {STEPS}"
    memory = f", memory of node {place[1]}" if len(place) > 1 else ""
    return f"{cpus_text(place[0], probe)}{memory}"


def cpus_text(number: int, probe: CheckupProbe) -> str:
    """Return the CPUs of a place in words, by the first number of the place."""
    return f"CPU {number}" if probe is CheckupProbe.CORE else f"CPUs of node {number}"


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


def facts_section(
    settings: Mapping[str, str], sections: Sequence[CheckupSection]
) -> CheckupSection:
    """Return the section of facts: which are odd, and how measured values compare with them.

    `sections` are those of measures. A section that cannot tell is not rated.
    """
    rated = {
        section.name: {cell.place: cell.value for cell in section.cells.cells}
        for section in sections
        if section.cells and section.verdict is not CheckupVerdict.UNKNOWN
    }
    bandwidth, latency = (rated.get(name, {}) for name in (_BANDWIDTH, _LATENCY))
    ratings = [*_ratings(settings, bandwidth, latency)]
    odd = [*_odd_modules(settings), *(text for text, is_met in ratings if not is_met)]
    lines = [text for text, is_met in ratings if is_met]
    is_judged = bool(ratings) or "dimms.found" in settings
    verdict = CheckupVerdict.PASS if is_judged else CheckupVerdict.SHOWN
    unknown = [name.removeprefix("unread.") for name in settings if name.startswith("unread.")]
    if unknown:
        lines.append(f"not known: {', '.join(unknown)} (`rater topo --facts`)")
    return CheckupSection(
        name="facts of the machine",
        verdict=CheckupVerdict.LOOK if odd else verdict,
        lines=(*odd, *lines),
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
    modules = [text for text in settings.get("dimms.found", "").split(", ") if " x " in text]
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
            where = place_text(place, CheckupProbe.LATENCY)
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
