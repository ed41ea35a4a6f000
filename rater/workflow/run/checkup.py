"""`rater checkup`: is this machine as it should be? Matrices of its memory, cores, a short mix."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.checkup import (
    MEASURES,
    CheckupSection,
    CheckupVerdict,
    ProbeRun,
    doctor_section,
    exit_status,
    facts_section,
    measure_section,
    mix_section,
    probe_run,
)
from rater.analysis.divots.model.finding import Thresholds
from rater.analysis.doctor.examine import examine, tuned_settings
from rater.plan.checkup import (
    FULL,
    QUICK,
    TAG,
    CheckupLimits,
    CheckupPoint,
    CheckupProbe,
    checkup_points,
    request_of_point,
    usable_cpus,
    window_ms,
    windows_s,
)
from rater.plan.request import Request
from rater.plan.sweep import BlockOrder, SweepSlot, order_slots
from rater.plan.topology import Topology
from rater.record.run import RunStatus
from rater.record.stored import RunHead
from rater.run.host import discover as machine
from rater.run.host.memory import read_node_memory
from rater.show.html.shell import html_parts, page_html
from rater.show.results.checkup import checkup_document, checkup_page_parts, checkup_parts
from rater.system.errors import InputError, RaterError
from rater.system.files import Trusted, replace_file
from rater.system.paths import sysroot
from rater.system.process import print_error
from rater.text.values import count
from rater.workflow.arguments import Output, StartOptions, print_view
from rater.workflow.doctor import facts_now, names_here
from rater.workflow.results.divots import find_recurring, load_or_analyse
from rater.workflow.results.report import check_page
from rater.workflow.run.campaign import Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.resolve import RunPlan, resolve
from rater.workflow.run.session import MadeRun

if TYPE_CHECKING:
    from rater.show.documents.checkup import CheckupDocument

NO_MIX = "none"  # of --mix
_PAGE_MODE = 0o644
_RETRIES = 2  # of a run in which a copy failed
_FIRST_FIXED_S = 1.0  # of a run beside its windows, before one is known


class CheckupOptions(Struct, frozen=True, kw_only=True):
    """Options of `rater checkup`."""

    quick: bool
    tuned: bool
    page: Path | None
    mix: str | None  # None: the usual one
    seed: int | None


def checkup(output: Output, options: CheckupOptions, start_options: StartOptions) -> int:
    """Make the runs and print the verdicts; 0 all pass, 1 look here, 3 cannot tell."""
    if options.page is not None:
        check_page(options.page, force=start_options.force)
    topology = machine.discover_topology()
    limits = QUICK if options.quick else FULL
    if options.mix is not None:
        limits = replace(limits, mix="" if options.mix == NO_MIX else options.mix)
    free_bytes = {node: memory.free_bytes for node, memory in read_node_memory().items()}
    cpus_by_node = usable_cpus(topology)
    if not cpus_by_node:
        raise InputError("no CPU that may be used belongs to a NUMA node with memory of its own")
    usable = {node.os for node in topology.nodes if node.gives_memory}
    points = checkup_points(
        topology,
        cpus_by_node,
        {node: free for node, free in free_bytes.items() if node in usable and free},
    )
    points = tuple(it for it in points if it.probe is not CheckupProbe.MIX or limits.mix)
    name = uuid.uuid4().hex[:8]
    request = start_options.on(Request(tuned=options.tuned, tags=((TAG, name),)))
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    slots = order_slots(range(len(points)), limits.rounds, BlockOrder.SHUFFLED, seed)
    findings = examine(facts_now(sysroot(), with_load=True))
    tuned = tuned_settings(findings, names_here(sysroot())) if options.tuned else {}
    campaign = _Checkup(
        what=f"rater checkup {name}",
        points=Trusted(
            {place: CampaignPoint(point.probe, request, None) for place, point in enumerate(points)}
        ),
        slots=slots,
        retries=_RETRIES,
        output=output,
        quiet=True,
        name=name,
        topology=topology,
        plan=points,
        limits=limits,
        page=options.page,
        sections=[doctor_section(findings, tuned)],
    )
    return campaign.execute().exit_status


@dataclass(kw_only=True)
class _Checkup(Campaign[MadeRun]):
    """All probes in rounds, and the verdicts that come of them."""

    name: str
    topology: Topology
    plan: Sequence[CheckupPoint]
    limits: CheckupLimits
    page: Path | None
    sections: list[CheckupSection]
    _probes: list[ProbeRun] = field(default_factory=list)
    _mixes: list[RunHead] = field(default_factory=list)
    _settings: Mapping[str, str] = field(default_factory=dict)
    _failed: list[str] = field(default_factory=list)
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
        self._fixed_s += max(0.0, took_s - windows_s(self.plan[slot.point], self._window_ms))
        return made_run

    def disturbance(self, examined: MadeRun) -> str | None:
        """Return why a run failed: of a copy whose end is not known its numbers are not, either."""
        return examined.reason or "a copy failed" if examined.status else None

    def stopped(self, slot: SweepSlot, made_run: MadeRun) -> None:
        """Say nothing of a checkup that a signal ends."""

    def not_made(self, slot: SweepSlot, error: RaterError) -> None:
        """Go on without a run that could not be made, and say so at the end."""
        self._failed.append(f"{self.plan[slot.point].probe}: {error}")

    def judge(self, slot: SweepSlot, examined: MadeRun, ahead: Sequence[SweepSlot]) -> None:
        """Keep what a run tells."""
        point, run = self.plan[slot.point], examined.run
        if run is None or examined.status:
            self._failed.append(f"run {examined.number}: {examined.reason or 'is not stored'}")
            return
        self._settings = self._settings or dict(run.settings)
        if point.probe is CheckupProbe.MIX:
            self._mixes.append(run.head)
        else:
            self._probes.append(probe_run(run, examined.proved, point, slot.block))
        if not self.output.quiet and not self.output.json:
            rest = f"{count(len(ahead), 'run')} to go"
            print_error(f"{time.monotonic() - self._began_s:4.0f} s: {point.probe}, {rest}")

    def conclude(self) -> CampaignEnded:
        """Print the verdicts, and write the page."""
        measured = (measure_section(it, self._probes, self.topology) for it in MEASURES)
        sections = [section for section in measured if section is not None]
        self.sections += [facts_section(self._settings, sections), *sections]
        if self._mixes:
            self.sections.append(self._judge_mix())
        if self._failed:
            verdict, lines = CheckupVerdict.UNKNOWN, tuple(dict.fromkeys(self._failed))
            self.sections.append(
                CheckupSection(name="runs that failed", verdict=verdict, lines=lines)
            )
        status = exit_status(self.sections)
        document = checkup_document(
            self.name,
            self.sections,
            sorted([probe.run for probe in self._probes] + [head.run for head in self._mixes]),
            status=status,
            took_s=time.monotonic() - self._began_s,
        )
        print_view(self.output, document, checkup_parts)
        if self.page is not None:
            replace_file(self.page, _page(document).encode(), mode=_PAGE_MODE)
        return CampaignEnded(RunStatus.COMPLETE, None, status)

    def _judge_mix(self) -> CheckupSection:
        """Return what divots say of the runs on all CPUs at once."""
        searched = [
            (head, load_or_analyse(self.store, head, Thresholds(), fresh=False))
            for head in self._mixes
        ]
        return mix_section(searched, find_recurring(self.store, searched))


def _page(document: CheckupDocument) -> str:
    """Return the verdicts and matrices as a page."""
    title = f"Checkup {document['checkup']}: {document['took_s']:.0f} s"
    body = html_parts(checkup_page_parts(document))
    main = f"<main><h1>{title}</h1>{body}</main>"
    return page_html(title, main, document, skip={}, styles=["page.css"], scripts=[])
