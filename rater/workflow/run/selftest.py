"""The self-test: slow copies on purpose, really or in made times, and see what rater finds."""

from __future__ import annotations

import math
import random
import shlex
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Analysis, Thresholds
from rater.analysis.divots.selftest import (
    NOISIEST,
    STEADY,
    Costs,
    Deviation,
    Judgement,
    PromiseTrials,
    Times,
    Verdict,
    floor_of,
    judge,
    largest_speed_change,
    names,
    plant_size,
    spread_of,
    tally,
)
from rater.analysis.results.cpu_use import run_counters
from rater.plan.request import Request
from rater.plan.selftest import (
    CLEAN,
    LEAST_ITERATIONS,
    SECONDS,
    TAG,
    Injection,
    NotInjected,
    plan_injections,
    plan_pair,
    promised_injections,
    usual_copies,
)
from rater.plan.sweep import SweepSlot
from rater.plan.topology import Topology
from rater.record.run import CopyStatus, Placement, RunStatus
from rater.record.stored import StoredRun, TimeRow
from rater.run.host import discover as machine
from rater.run.host.foreign_load import (
    TICKS_PER_S,
    ForeignLoad,
    ForeignLoadSampler,
    busy_names,
    cpu_ticks,
)
from rater.run.launcher.guard import Guard
from rater.run.supervise.disturb import Injector
from rater.show.results.selftest import (
    SelfTest,
    refusal,
    refusal_document,
    selftest_document,
    selftest_parts,
    speed_words,
)
from rater.system.errors import InputError, RunError
from rater.system.files import Trusted, scratch_folder
from rater.system.process import print_error
from rater.text.values import join_and
from rater.workflow.arguments import Output, print_json, print_view
from rater.workflow.run.campaign import Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.head import RunLauncher
from rater.workflow.run.refusals import refuse_plan
from rater.workflow.run.resolve import resolve
from rater.workflow.run.session import MadeRun

_KERNELS = "mini/moldyn,vm,rays"  # busy with computing: what slows them is what we do
_FEWER_KERNELS = "mini/moldyn,vm"
_OVERHEAD = 1.3  # of what the kernels take by themselves
_MOST_ITERATIONS = 12
_REPEATS = 5
_REPEATS_S = 100.0  # no run is made once more after that: who waits for an answer gets one
_WRONG = 1  # exit status: its runs may tell more about it
TOO_NOISY = 3  # exit status: neither right nor wrong, it could not be told
_NAMED_SHARE = 0.05  # of a CPU, over a whole run: processes that are named
_NOT_TRIED = "not tried: other work went on for too long"
_OTHERS = 0.1  # share of a CPU that others may take in any iteration
_SAMPLE_S, _SAMPLES = 1.0, 3  # so many quiet samples in a row
_TRIALS, _QUICK_TRIALS = 20, 5  # runs for each size that is promised
_NOISE = 0.005  # of made times: standard deviation of the log, a quiet machine
_UNDISTURBED_S = 10.0


class SelfTestOptions(Struct, frozen=True, kw_only=True):
    """Options of `rater doctor selftest`."""

    copies: int | None
    quick: bool
    seconds: float
    seed: int | None
    until_idle: float | None  # seconds
    simulate: bool
    topology: str | None
    keep: bool
    wait: float | None  # seconds


def selftest(output: Output, options: SelfTestOptions) -> int:
    """Inject and find; return the exit status."""
    if options.copies is not None and options.copies < 1:
        raise InputError(f"--copies {options.copies}: expected a number of copies, 1 or more")
    for name, seconds in (("seconds", options.seconds), ("until-idle", options.until_idle)):
        if seconds is not None and not 0 < seconds < 1e6:
            raise InputError(f"--{name} {seconds:g}: expected seconds above 0")
    if options.topology is not None and not options.simulate:
        raise InputError("--topology: copies run on this machine only; add --simulate for another")
    if options.simulate:
        return _simulate(output, options)
    if output.db is not None and not options.keep:
        raise InputError(
            f"--db {output.db}: a self-test's runs go to a temporary database; add --keep to "
            "store them in this one"
        )
    if options.keep:
        return _inject(output, options)
    with scratch_folder() as folder:
        status = _inject(replace(output, db=str(folder / "rater.db")), options)
        if status == _WRONG:
            kept_database = shutil.move(
                folder / "rater.db", tempfile.mkdtemp(prefix="rater-selftest-")
            )
            print_error(f"its runs are in {kept_database}")
    return status


class RunResult(Struct, frozen=True, kw_only=True):
    """The times of one run, its findings, and its disturbances."""

    times: Times
    found: Analysis
    costs: Costs = {}
    others: float = 0.0  # the most that others took of a CPU in any iteration, as a share
    others_words: str = ""  # of which CPU, and who it was

    @property
    def taken(self) -> float | None:
        """What others took of a CPU, where it was too much."""
        return self.others if self.others > _OTHERS else None

    @property
    def unsteady(self) -> float | None:
        """By how much the speed of a CPU changed by itself, where it was too much."""
        change, _ = largest_speed_change(self.costs)
        return change if abs(change) > STEADY else None

    @property
    def disturbed(self) -> str:
        """What others did to its CPUs meanwhile, in words; "" when they were left alone."""
        if self.taken is not None:
            return self.others_words
        return "" if self.unsteady is None else speed_words(*largest_speed_change(self.costs))


@dataclass
class _SelfTest:
    """An undisturbed run and one run for each planted slowdown, and their judgements."""

    output: Output
    asked: SelfTestOptions
    topology: Topology
    iterations: int = LEAST_ITERATIONS
    made_noise: float | None = None
    judged: list[Judgement] = field(default_factory=list)
    again: int = 0
    clean: RunResult | None = None
    spread: Deviation | None = None  # of the undisturbed run

    def __post_init__(self) -> None:
        """Plan the runs, and what is planted in them."""
        options, topology = self.asked, self.topology
        self.seed = random.randrange(10**6) if options.seed is None else options.seed
        self.choice = random.Random(self.seed)
        request = Request(
            suites=(_FEWER_KERNELS if options.quick else _KERNELS,),
            copies=str(options.copies or usual_copies(len(topology.pus), len(topology.nodes))),
            iterations=self.iterations,
            size="test",
            wait_s=options.wait,
        )
        self.run = resolve(request, topology)
        self.cpu_of = {
            placement.copy: placement.cpu
            for placement in self.run.placements
            if placement.cpu is not None
        }
        plants, missing = plan_injections(self.run.placements, self.iterations, self.choice)
        self.injections, self.missing = (CLEAN, *plants), [*missing]

    def judge(
        self, injection: Injection, result: RunResult, second: Injection | None = None
    ) -> Judgement | None:
        """Judge a run by one of its plants; None: too noisy to plant anything."""
        effect = None
        if injection is CLEAN:
            self.clean, self.spread = result, spread_of(result.times, result.costs, self.cpu_of)
        elif self.clean is not None:
            effect = plant_size(injection, result.times, self.clean.times, second)
        if self.spread is None or self.spread.size > NOISIEST:
            return None
        return judge(
            injection if second is None else injection.planted_beside(second),
            effect,
            result.found.findings,
            floor=floor_of(self.spread.size),
            iterations=self.iterations,
            others=result.taken,
            unsteady=result.unsteady,
            disturbed=result.disturbed,
            second=second,
        )

    def take(self, judgement: Judgement | None) -> None:
        """Keep what was judged."""
        if self.spread is None:
            raise RunError("no copy of the undisturbed run ended well: see `rater run mini`")
        self.judged += [judgement] if judgement else []

    def show(self, promised: tuple[PromiseTrials, ...] = ()) -> int:
        """Print the judgements, or why nothing was planted; return the exit status."""
        spread, clean = self.spread, self.clean
        assert spread is not None
        assert clean is not None
        if not self.judged:
            reason = refusal(spread, clean.disturbed or clean.others_words, NOISIEST)
            if self.output.json:
                print_json(refusal_document(reason, spread, clean.others, self.seed))
            print_error(reason)
            return TOO_NOISY
        self_test = SelfTest(
            copies=len(self.run.placements),
            cpus=tuple(sorted(set(self.cpu_of.values()))),
            lgroups=len({placement.node for placement in self.run.placements}),
            benchmarks=self.run.plan.benchmarks,
            iterations=self.iterations,
            seed=self.seed,
            spread=spread.size,
            floor=floor_of(spread.size),
            judged=tuple(self.judged),
            missing=tuple(self.missing),
            tally=tally(self.judged),
            again=self.again,
            command=self._command(),
            made_noise=self.made_noise,
            promised=promised,
        )
        print_view(self.output, selftest_document(self_test), lambda _: selftest_parts(self_test))
        if not replace(self_test, tally=replace(self_test.tally, unjudged=0)).right:
            return _WRONG
        return TOO_NOISY if self_test.tally.unjudged else 0

    def _command(self) -> str:
        """Return the command that plants the same again."""
        options = self.asked
        words = " --simulate" if options.simulate else ""
        words += (
            f" --topology {shlex.quote(options.topology)}" if options.topology is not None else ""
        )
        words += f" --copies {options.copies}" if options.copies is not None else ""
        words += " --quick" if options.quick else ""
        words += "" if options.seconds == SECONDS else f" --seconds {options.seconds:g}"
        return f"rater doctor selftest --seed {self.seed}{words}"


# -- Copies that run: a campaign of one run for each injection -------------------------------------


def _inject(output: Output, options: SelfTestOptions) -> int:
    is_usual = not (options.quick or options.until_idle) and options.seconds == SECONDS
    if is_usual and not ForeignLoadSampler().busy().quiet:
        print_error("selftest in short (--quick), as other work goes on here")
        options = replace(options, quick=True)
    test = _SelfTest(output, options, machine.discover_topology())
    once_s = sum(test.run.expected_s.values()) * _OVERHEAD * len(test.injections)
    iterations = min(0 if options.quick else int(options.seconds / once_s), _MOST_ITERATIONS)
    if iterations > LEAST_ITERATIONS:
        options = replace(options, seed=test.seed)
        test = _SelfTest(output, options, test.topology, iterations)
    refuse_plan(test.run)
    points = {}
    for number, injection in enumerate(test.injections):
        request = replace(test.run.request, tags=((TAG, str(injection.kind)),))
        points[number] = CampaignPoint(injection.kind, request, replace(test.run, request=request))
    runs = _Injected(
        what="rater doctor selftest",
        output=output,
        points=Trusted(points),
        slots=[SweepSlot(1, number + 1, number) for number in points],
        retries=_REPEATS,
        test=test,
    )
    return runs.execute().exit_status


class _InjectedRun(Struct, frozen=True):
    """A run in which a slowdown was planted, and how well it was found."""

    result: RunResult
    judgement: Judgement | None  # None: the machine is too noisy to plant anything


@dataclass(kw_only=True)
class _Injected(Campaign[_InjectedRun]):
    """Real copies, slowed by processes that compete with them."""

    test: _SelfTest
    _until_s: float = field(default_factory=lambda: time.monotonic() + _REPEATS_S)
    _patience_s: float = 0.0  # until when a quiet machine is waited for, of the clock
    _watch: ForeignLoadSampler = field(init=False)
    _injector: Injector = field(init=False)

    def say(self, text: str, point: CampaignPoint | None = None) -> None:
        """Tell whom it waits for, and nothing of single runs."""
        if point is None:
            super().say(text)

    def attempt(self, slot: SweepSlot, tries: int) -> RunLauncher:
        """Wait until others leave the CPUs of the copies alone, where that was asked for."""
        if tries == 0:
            injection = self.test.injections[slot.point]
            self.say(
                f"selftest {slot.position} of {len(self.slots)}: {injection.kind}, "
                f"{injection.place}"
            )
            self._patience_s = time.monotonic() + (self.test.asked.until_idle or 0.0)
        quiet_samples, busy_before = 0, _busy_s()
        while quiet_samples < _SAMPLES and time.monotonic() < self._patience_s:
            time.sleep(_SAMPLE_S)
            busy_after = _busy_s()
            busy_s = (
                busy_after.get(cpu, 0.0) - busy_before.get(cpu, 0.0)
                for cpu in self.test.cpu_of.values()
            )
            quiet_samples = (
                quiet_samples + 1 if max(busy_s, default=0.0) <= _OTHERS * _SAMPLE_S else 0
            )
            busy_before = busy_after
        self._watch = ForeignLoadSampler()
        return RunLauncher()

    def listeners(self, slot: SweepSlot, keeper: Guard) -> tuple[Injector]:
        """Return what slows copies."""
        injection = self.test.injections[slot.point]
        self._injector = Injector(injection, self.test.run.placements, keeper)
        return (self._injector,)

    def examine(self, slot: SweepSlot, made_run: MadeRun, took_s: float) -> _InjectedRun:
        """Search the run, and judge whether the planted slowdown was found."""
        del took_s
        injection = self.test.injections[slot.point]
        if made_run.status or made_run.run is None:
            raise RunError(f"the self-test's run of {injection.kind} failed: it was given up")
        times = self.store.times(made_run.number)
        analysis = analyse(times.chunks, times.benchmarks, Thresholds(), core_pus=times.core_pus)
        busy = self._watch.busy(_NAMED_SHARE, stale_s=math.inf)
        result = result_of(made_run.run, analysis, self._injector.taken_s, busy)
        return _InjectedRun(result, self.test.judge(injection, result))

    def disturbance(self, examined: _InjectedRun) -> str | None:
        """Return what others did to a run whose slowdown was not found rightly.

        Others can only hide what was planted or add to it. A run that is right in spite of them
        is right.
        """
        if examined.judgement is None:
            return examined.result.disturbed or "copies differ too much"
        if examined.judgement.verdict is Verdict.RIGHT:
            return None
        return examined.result.disturbed or None

    def repeats(self, tries: int, examined: _InjectedRun) -> bool:
        """Tell whether to go on: one run is enough to say that a machine is too noisy."""
        is_late = time.monotonic() > self._until_s
        is_usual = tries < self.retries and not is_late and examined.judgement is not None
        return is_usual or time.monotonic() <= self._patience_s

    def discard(self, slot: SweepSlot, made_run: MadeRun, reason: str) -> None:
        """Count it."""
        del slot, made_run
        self.test.again += 1
        self.say(f"selftest once more: {reason}")

    def judge(self, slot: SweepSlot, examined: _InjectedRun, ahead: Sequence[SweepSlot]) -> None:
        """Keep the judgement."""
        del slot, ahead
        self.test.take(examined.judgement)

    def stopped(self, slot: SweepSlot, made_run: MadeRun) -> None:
        """Keep that nothing was judged."""
        del slot, made_run
        self.test.take(None)

    def check_stop(self, _: SweepSlot, ahead: Sequence[SweepSlot]) -> CampaignEnded | None:
        """Give up what is left on a machine that is too noisy, or disturbed for too long."""
        if not self.test.judged:
            return self.conclude()
        is_late = time.monotonic() > self._until_s and not self.test.asked.until_idle
        if not ahead or not is_late or self.test.judged[-1].verdict is not Verdict.NOT_JUDGED:
            return None
        given_up = [self.test.injections[slot.point].kind for slot in ahead]
        self.test.missing += [NotInjected(kind, _NOT_TRIED) for kind in given_up]
        return self.conclude()

    def conclude(self) -> CampaignEnded:
        """Show all judgements."""
        return CampaignEnded(RunStatus.COMPLETE, None, self.test.show())


def result_of(
    run: StoredRun,
    analysis: Analysis,
    taken_s: dict[tuple[str, int, int], float],
    busy: ForeignLoad,
) -> RunResult:
    """Return times, findings and disturbances of one run.

    `taken_s`: CPU time that competing processes took, by benchmark, iteration and CPU. `busy`:
    who else worked while it ran.
    """
    times = {
        (copy.benchmark, copy.iteration, copy.copy): copy.elapsed_s
        for copy in run.copies
        if copy.status is CopyStatus.OK
    }
    foreign_shares: dict[tuple[str, int, int], float] = {}
    costs: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    for cpu_use in run_counters(run).cpus:
        if cpu_use.copies and cpu_use.benchmark is not None and cpu_use.iteration is not None:
            cell = (cpu_use.benchmark, cpu_use.iteration, cpu_use.cpu)
            # Ticks of a moment may come to less than what is taken off.
            foreign_s = (
                cpu_use.foreign or 0.0
            ) * cpu_use.elapsed_s + cpu_use.steal * cpu_use.elapsed_s
            others_s = max(0.0, foreign_s - taken_s.get(cell, 0.0))
            foreign_shares[cell] = min(1.0, others_s / cpu_use.elapsed_s)
            costs[cell] += others_s
    for copy_ended in run.copies:
        if copy_ended.cpu is not None:
            costs[copy_ended.benchmark, copy_ended.iteration, copy_ended.cpu] += (
                copy_ended.cpu_s or 0.0
            )
    worst_cell = max(foreign_shares, key=lambda cell: foreign_shares[cell], default=None)
    return RunResult(
        times=times,
        found=analysis,
        costs=costs,
        others=foreign_shares[worst_cell] if worst_cell else 0.0,
        others_words=others_words(worst_cell, foreign_shares, busy),
    )


def others_words(
    worst_cell: tuple[str, int, int] | None,
    foreign_shares: dict[tuple[str, int, int], float],
    busy: ForeignLoad,
) -> str:
    """Say which CPU others took most of, and which processes worked meanwhile."""
    names = busy_names(busy)
    if busy.stolen:
        names.append(f"the hypervisor's other guests ({busy.stolen:.0%} of all CPUs)")
    words = join_and(names) if names else "no process that can be seen here"
    if worst_cell is None:
        return f"others worked on a CPU: {words}"
    name, iteration, cpu = worst_cell
    where = f"CPU {cpu} ({name}, iteration {iteration})"
    return f"others took {foreign_shares[worst_cell]:.0%} of {where}: {words}"


def _busy_s() -> dict[int, float]:
    """Return the CPU time of everybody by CPU since boot; empty where it cannot be read."""
    try:
        ticks = cpu_ticks(Path("/proc/stat").read_bytes())
    except (OSError, ValueError):
        return {}
    # All but idle and iowait: time that the hypervisor gave to others is part of it.
    return {
        cpu: (sum(cpu_ticks_by_state) - cpu_ticks_by_state[3] - cpu_ticks_by_state[4]) / TICKS_PER_S
        for cpu, cpu_ticks_by_state in ticks.items()
    }


# -- Made times: what the detector finds on a quiet machine of this shape, whatever this one does --


def _simulate(output: Output, options: SelfTestOptions) -> int:
    """Plant in made times and find; return the exit status."""
    described = options.topology
    topology = (
        machine.discover_topology() if described is None else machine.load_topology(described)
    )
    test = _SelfTest(output, options, topology, made_noise=_NOISE)
    placements, benchmarks = test.run.placements, test.run.plan.benchmarks
    if not benchmarks:
        raise InputError("no kernel of the self-test fits this machine: fewer --copies")
    threads = Counter(pu.core for pu in topology.pus)
    core_pus = sorted((pu.os, threads[pu.core]) for pu in topology.pus)

    def make(*injections: Injection) -> RunResult:
        rows = made_rows(injections, placements, benchmarks, test.iterations, test.choice)
        analysis = analyse(
            [rows], [(benchmark, None) for benchmark in benchmarks], Thresholds(), core_pus=core_pus
        )
        return RunResult(times=times_of_rows(rows, benchmarks), found=analysis)

    def planned(visible: dict[str, float]) -> dict[str, Injection]:
        shape = placements, benchmarks, test.iterations
        return promised_injections(visible, *shape, test.choice)

    def tried(scope: str, size: float) -> PromiseTrials:
        trials = _QUICK_TRIALS if options.quick else _TRIALS
        plants = [planned({scope: size})[scope] for _ in range(trials)]
        was_seen = [
            any(names(finding, plant, test.iterations) for finding in make(plant).found.findings)
            for plant in plants
        ]
        return PromiseTrials(scope, plants[0], trials, sum(was_seen))

    for injection in test.injections:
        test.take(test.judge(injection, make(injection)))
        if not test.judged:
            return test.show()
    if pair := plan_pair(test.injections, placements, test.choice):
        both = make(*pair)
        for injection, beside in (pair, pair[::-1]):
            test.take(test.judge(injection, both, beside))
    visible = test.clean.found.visible if test.clean else {}
    return test.show(tuple(tried(scope, visible[scope]) for scope in planned(visible)))


def made_rows(
    injections: Sequence[Injection],
    placements: Sequence[Placement],
    benchmarks: Sequence[str],
    iterations: int,
    choice: random.Random,
) -> list[TimeRow]:
    """Return rows for the search of divots, as they would be with just what is planted."""
    return [
        TimeRow(
            benchmark=number,
            iteration=iteration,
            copy=placement.copy,
            step=0,
            cpu=placement.cpu,
            core=placement.core,
            llc=placement.llc,
            node=placement.node,
            package=placement.package,
            memory=placement.node,
            start_ns=0,
            elapsed_ns=round(1e9 * time_s),
            cpu_ns=None,
            good=1,
        )
        for number, name in enumerate(benchmarks)
        for iteration in range(1, iterations + 1)
        for placement in placements
        for slowdown in [
            math.prod(
                injection.aimed
                for injection in injections
                if injection.concerns(name, iteration, placement.copy)
            )
        ]
        for time_s in [_UNDISTURBED_S * slowdown * math.exp(choice.gauss(0, _NOISE))]
    ]


def times_of_rows(rows: Iterable[TimeRow], benchmarks: Sequence[str]) -> Times:
    """Return the times of rows, in seconds."""
    return {
        (benchmarks[row.benchmark], row.iteration, row.copy): row.elapsed_ns / 1e9 for row in rows
    }
