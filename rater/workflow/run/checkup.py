"""`rater checkup`: is this machine as it should be? Matrices of its memory, cores, a short mix."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.checkup import (
    MEASURES,
    CheckupSection,
    PlaceReading,
    doctor_section,
    exit_status,
    facts_section,
    measure_section,
    mix_section,
    readings_of,
)
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.doctor.examine import examine, tuned_settings
from rater.plan.checkup import (
    FULL,
    QUICK,
    TAG,
    CheckupLimits,
    CheckupPart,
    CheckupPoint,
    CheckupProbe,
    checkup_points,
    request_of_point,
    usable_cpus,
    window_ms,
)
from rater.plan.request import Request
from rater.plan.sweep import BlockOrder, SweepSlot, order_slots
from rater.plan.topology import Topology
from rater.record.events import Noted
from rater.record.run import RunStatus
from rater.record.stored import RunHead
from rater.run.host import discover as machine
from rater.run.host.hardware import hardware_facts
from rater.run.host.memory import read_node_memory
from rater.run.launcher.processor import processor_facts
from rater.show.html.shell import html_parts, page_html
from rater.show.results.checkup import (
    checkup_document,
    checkup_page_parts,
    checkup_parts,
    checkup_title,
    verdict_notes,
)
from rater.system.errors import InputError, RaterError
from rater.system.files import Trusted
from rater.system.paths import sysroot
from rater.system.process import print_error
from rater.text.values import count, group_by_key
from rater.workflow.arguments import Output, StartOptions, print_view
from rater.workflow.doctor import facts_now, names_here
from rater.workflow.results.divots import find_recurring, load_or_analyse
from rater.workflow.results.points import write_output
from rater.workflow.results.report import check_page
from rater.workflow.run.campaign import Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.resolve import RunPlan, resolve
from rater.workflow.run.session import MadeRun

NO_MIX = "none"  # of --mix
_RETRIES = 2  # of a run in which a copy failed
# Times what a whole checkup takes: then no further run is made. Emulated machines of four nodes
# took twice as long.
_MOST_TIMES = 3
_FIRST_FIXED_S = 1.0  # of a run beside its windows, before one is known


class CheckupOptions(Struct, frozen=True, kw_only=True):
    """Options of `rater checkup`."""

    quick: bool
    tuned: bool
    page: Path | None
    mix: str | None  # None: the usual one
    only: Sequence[str]  # parts; empty: all
    seed: int | None


def checkup(output: Output, options: CheckupOptions, start_options: StartOptions) -> int:
    """Make the runs and print the verdicts; 0 all pass, 1 look here, 3 cannot tell."""
    if options.page is not None:
        check_page(options.page, force=start_options.force)
    limits = QUICK if options.quick else FULL
    if options.mix is not None:
        limits = replace(limits, mix="" if options.mix == NO_MIX else options.mix)
    parts = _chosen_parts(options.only, has_mix=bool(limits.mix))
    topology = machine.discover_topology()
    all_points = _points_of(topology)
    points = tuple(point for point in all_points if point.probe.part in parts)
    name = uuid.uuid4().hex[:8]
    request = start_options.on(Request(tuned=options.tuned, tags=((TAG, name),)))
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    findings = examine(facts_now(sysroot(), with_load=True))
    tuned = tuned_settings(findings, names_here(sysroot())) if options.tuned else {}
    campaign = _Checkup(
        what=f"rater checkup {name}",
        points=Trusted(
            {place: CampaignPoint(point.probe, request, None) for place, point in enumerate(points)}
        ),
        slots=order_slots(range(len(points)), limits.rounds, BlockOrder.SHUFFLED, seed),
        retries=_RETRIES,
        output=output,
        quiet=True,
        name=name,
        parts=parts,
        topology=topology,
        plan=points,
        limits=replace(limits, total_s=limits.total_s * len(points) / len(all_points)),
        longest_s=_MOST_TIMES * limits.total_s,
        page=options.page,
        doctor=doctor_section(findings, tuned),
    )
    # Without runs nothing is held from others.
    return (campaign.execute() if points else campaign.conclude()).exit_status


def _chosen_parts(only: Sequence[str], *, has_mix: bool) -> tuple[CheckupPart, ...]:
    """Return the parts to look at, in their order. Raises `InputError`."""
    unknown = [word for word in only if word not in [*CheckupPart]]
    if unknown:
        expected = f"expected one of {', '.join(CheckupPart)}"
        raise InputError(f"--only {unknown[0]}: is no section of a checkup; {expected}")
    if CheckupPart.MIX in only and not has_mix:
        raise InputError(f"--only {CheckupPart.MIX}: --mix {NO_MIX} leaves it out; drop one")
    parts = tuple(part for part in CheckupPart if not only or part in only)
    return parts if has_mix else tuple(part for part in parts if part is not CheckupPart.MIX)


def _points_of(topology: Topology) -> tuple[CheckupPoint, ...]:
    """Return the runs of a round of a whole checkup."""
    memory = read_node_memory()
    cpus_by_node = usable_cpus(topology)
    if not cpus_by_node:
        raise InputError("no CPU that may be used belongs to a NUMA node with memory of its own")
    nodes = [node.os for node in topology.nodes if node.gives_memory and node.os in memory]
    free_bytes = {node: memory[node].free_bytes for node in nodes}
    return checkup_points(
        topology, cpus_by_node, {node: free for node, free in free_bytes.items() if free}
    )


@dataclass(kw_only=True)
class _Checkup(Campaign[MadeRun]):
    """All probes in rounds, and the verdicts that come of them."""

    name: str
    parts: Sequence[CheckupPart]
    topology: Topology
    plan: Sequence[CheckupPoint]
    limits: CheckupLimits
    longest_s: float
    page: Path | None
    doctor: CheckupSection
    _runs: list[RunHead] = field(default_factory=list)
    _readings: list[PlaceReading] = field(default_factory=list)
    _mixes: list[RunHead] = field(default_factory=list)
    _not_made: list[tuple[str, str]] = field(default_factory=list)  # reasons, and of which runs
    _began_s: float = field(default_factory=time.monotonic)
    _round: int = 0
    _window_ms: int = 0  # of this round
    _fixed_s: float = 0.0  # of this round's runs so far, beside their windows

    def plan_of(self, slot: SweepSlot) -> RunPlan:
        """Return the plan of a run; windows of a round are as long as what is left allows."""
        if slot.block != self._round:
            left_s = self.limits.total_s - (time.monotonic() - self._began_s)
            self._window_ms = window_ms(
                self.plan,
                round_s=left_s / (self.limits.rounds - slot.block + 1),
                fixed_s=self._fixed_s or _FIRST_FIXED_S * len(self.plan),
            )
            self._round, self._fixed_s = slot.block, 0.0
        request = request_of_point(
            self.plan[slot.point],
            self.points.value[slot.point].request,
            window=self._window_ms,
            limits=self.limits,
        )
        tags = (*request.tags, ("round", str(slot.block)))
        return resolve(replace(request, tags=tags), self.topology)

    def examine(self, slot: SweepSlot, made_run: MadeRun, took_s: float) -> MadeRun:
        """Return the run: all that is looked at came with it."""
        self._fixed_s += max(0.0, took_s - self.plan[slot.point].windows_s(self._window_ms))
        return made_run

    def disturbance(self, examined: MadeRun) -> str | None:
        """Return why a run failed: of a copy whose end is not known its numbers are not, either."""
        return examined.reason or "a copy failed" if examined.status else None

    def not_made(self, slot: SweepSlot, error: RaterError) -> None:
        """Go on without a run that could not be made, and say so at the end."""
        self._not_made.append((str(error), self.plan[slot.point].probe))

    def judge(self, slot: SweepSlot, examined: MadeRun, ahead: Sequence[SweepSlot]) -> None:
        """Keep what a run tells."""
        point, run = self.plan[slot.point], examined.run
        if run is None or examined.status:
            self._not_made.append((examined.reason or "is not stored", f"run {examined.number}"))
            return
        self._runs.append(run.head)
        if point.probe is CheckupProbe.MIX:
            self._mixes.append(run.head)
        else:
            self._readings += readings_of(run, examined.proved, point)
        if not self.output.quiet and not self.output.json:
            rest = f"{count(len(ahead), 'run')} to go"
            print_error(f"{time.monotonic() - self._began_s:4.0f} s: {point.probe}, {rest}")

    def check_stop(self, slot: SweepSlot, ahead: Sequence[SweepSlot]) -> CampaignEnded | None:
        """End a checkup whose runs take much longer than a whole one."""
        took_s = time.monotonic() - self._began_s
        if not ahead or took_s < self.longest_s:
            return None
        rest = f"{count(len(ahead), 'run')} to go, where other work or the mix took the time"
        self._not_made.append((rest, f"ended after {took_s:.0f} s"))
        return self.conclude()

    def close(self, ended: CampaignEnded) -> None:
        """Tell the verdicts so far of a checkup that a signal ends."""
        if ended.status is RunStatus.INTERRUPTED:
            made = f"{len(self._runs)} of {count(len(self.slots), 'run')} were made and stay"
            self._not_made.append((f"{made}; the same command begins anew", f"{ended.reason}"))
            self._tell([*self._judge()], ended.exit_status)

    def conclude(self) -> CampaignEnded:
        """Print the verdicts, and write the page."""
        sections = [*self._judge()]
        status = exit_status(sections)
        self._tell(sections, status)
        return CampaignEnded(RunStatus.COMPLETE, None, status)

    def _tell(self, sections: Sequence[CheckupSection], status: int) -> None:
        document = checkup_document(
            self.name,
            sections,
            [head.run for head in self._runs],
            status=status,
            took_s=time.monotonic() - self._began_s,
            left_out=[part for part in CheckupPart if part not in self.parts],
        )
        if self._runs:
            self.store.append(self._runs[-1].run, *map(Noted, verdict_notes(document)))
        print_view(self.output, document, checkup_parts)
        if self.page is not None:
            title = checkup_title(document)
            main = f"<h1>{title}</h1>{html_parts(checkup_page_parts(document))}"
            page = page_html(title, main, document, skip={}, styles=["page.css"], scripts=[])
            write_output(self.page, page.encode())

    def _judge(self) -> Iterator[CheckupSection]:
        """Yield the sections that were asked for."""
        measured = [measure_section(it, self._readings, self.topology) for it in MEASURES]
        sections = [section for section in measured if section is not None]
        if CheckupPart.DOCTOR in self.parts:
            yield self.doctor
        if CheckupPart.FACTS in self.parts:
            yield facts_section(dict(hardware_facts()) | dict(processor_facts()), sections)
        yield from sections
        with_runs = {point.probe.part for point in self.plan}
        if CheckupPart.MEMORY in self.parts and CheckupPart.MEMORY not in with_runs:
            obstacle = "no NUMA node has enough free memory to be measured"
            yield CheckupSection(name=CheckupPart.MEMORY, obstacles=(obstacle,))
        if self._mixes:
            searched = [
                (head, load_or_analyse(self.store, head, Thresholds(), fresh=False))
                for head in self._mixes
            ]
            recurring = find_recurring(self.store, searched)
            yield mix_section([analysis for _, analysis in searched], recurring)
        obstacles = tuple(
            f"{', '.join(dict.fromkeys(runs))}: {reason}"
            for reason, runs in group_by_key(self._not_made).items()
        )
        if obstacles:
            yield CheckupSection(name="runs", obstacles=obstacles)
