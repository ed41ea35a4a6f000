"""The self-test: slow copies on purpose, really or in made times, and see what rater finds."""

from __future__ import annotations

import math
import random
import shlex
import shutil
import tempfile
import time
from abc import abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Analysis, Finding, Thresholds
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
from rater.errors import InputError, RunError
from rater.files import Trusted, scratch_folder
from rater.plan.request import Request
from rater.plan.selftest import (
    CLEAN,
    LEAST_ITERATIONS,
    SECONDS,
    TAG,
    Injection,
    NotInjected,
    plan_injections,
    promised_injections,
    usual_copies,
)
from rater.plan.sweep import SweepSlot
from rater.plan.topology import Topology
from rater.process import StoppedBySignal, print_error
from rater.record.run import CopyStatus, Placement, RunStatus
from rater.record.stored import StoredRun, TimeRow
from rater.run.copies.disturb import Injector
from rater.run.copies.guard import Guard
from rater.run.host import discover as machine
from rater.run.host.foreign_load import (
    TICKS_PER_S,
    ForeignLoad,
    ForeignLoadSampler,
    busy_names,
    cpu_ticks,
)
from rater.run.programs.compile import cache_root
from rater.show.results.selftest import (
    SelfTest,
    refusal,
    refusal_document,
    selftest_document,
    selftest_parts,
    speed_words,
)
from rater.store.connection import default_path
from rater.text.values import join_and
from rater.workflow.arguments import Output, print_json, print_view
from rater.workflow.run.campaign import ONE_SLOT, Campaign, CampaignEnded, CampaignPoint
from rater.workflow.run.resolve import RunPlan, resolve
from rater.workflow.run.session import refuse_plan

_KERNELS = "mini/moldyn,vm,rays"  # busy with computing: what slows them is what we do
_FEWER_KERNELS = "mini/moldyn,vm"
_OVERHEAD = 1.3  # of what the kernels take by themselves
_MOST_ITERATIONS = 12
_REPEATS = 5
_REPEATS_S = 100.0  # no run is made once more after that: who waits for an answer gets one
TOO_NOISY = 3  # exit status: neither right nor wrong, it could not be told
_NAMED_SHARE = 0.05  # of a CPU, over a whole run: processes that are named
_NOT_TRIED = "not tried: other work went on for too long"
_OTHERS = 0.1  # share of a CPU that others may take in any iteration
_SAMPLE_S, _SAMPLES = 1.0, 3  # so many quiet samples in a row
_TRIALS, _QUICK_TRIALS = 20, 5  # runs for each size that is promised
_NOISE = 0.005  # of made times: standard deviation of the log, a quiet machine
_UNDISTURBED_S = 10.0


class SelfTestOptions(Struct, frozen=True):
    """What was asked for of a self-test."""

    copies: int | None
    quick: bool
    seconds: float
    seed: int | None
    until_idle: float | None  # seconds
    simulate: bool
    topology: str | None
    keep: bool
    wait: float | None  # seconds


def selftest(output: Output, asked: SelfTestOptions) -> int:
    """Inject and find; return the exit status."""
    if asked.copies is not None and asked.copies < 1:
        raise InputError(f"--copies {asked.copies}: expected a number of copies, 1 or more")
    for name, seconds in (("seconds", asked.seconds), ("until-idle", asked.until_idle)):
        if seconds is not None and not 0 < seconds < 1e6:
            raise InputError(f"--{name} {seconds:g}: expected seconds above 0")
    if asked.topology is not None and not asked.simulate:
        raise InputError("--topology: copies run on this machine only; add --simulate for another")
    if asked.simulate:
        return _Simulation(output, asked).run()
    if output.db is not None and not asked.keep:
        raise InputError(
            f"--db {output.db}: a self-test's runs go to a temporary database; add --keep to "
            "store them in this one"
        )
    if asked.keep:
        return _Experiment(output, asked, default_path(output.db)).run()
    with scratch_folder() as folder:
        test = _Experiment(output, asked, folder / "rater.db")
        try:
            return test.run()
        finally:
            if test.wrong:
                kept = shutil.move(folder / "rater.db", tempfile.mkdtemp(prefix="rater-selftest-"))
                print_error(f"its runs are in {kept}")


class RunResult(Struct, frozen=True):
    """The times of one run, what was found in it, and what disturbed it."""

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


class _SelfTest:
    """One self-test: an undisturbed run, one for each plant, and what they came to."""

    made_noise: float | None = None

    def __init__(self, output: Output, asked: SelfTestOptions, topology: Topology) -> None:
        self._output = output
        self._asked = asked
        self._topology = topology
        self._seed = random.randrange(10**6) if asked.seed is None else asked.seed
        self._choice = random.Random(self._seed)
        self._again = 0
        self.wrong = False  # something went wrong that its runs may tell more about

    @abstractmethod
    def _run_once(self, injection: Injection, what: str, judged: Judge) -> Tried:
        """Make the run of one injection, and judge it."""

    def _promises(self, _: RunResult) -> tuple[PromiseTrials, ...]:
        return ()

    def _set_up(self, iterations: int) -> None:
        """Plan the runs, and what is planted in them."""
        of = self._topology
        request = Request(
            (_FEWER_KERNELS if self._asked.quick else _KERNELS,),
            copies=str(self._asked.copies or usual_copies(len(of.pus), len(of.nodes))),
            iterations=iterations,
            size="test",
            wait_s=self._asked.wait,
        )
        self._resolved = resolve(request, of)
        self._iterations = iterations
        self._cpu_of = {it.copy: it.cpu for it in self._placements if it.cpu is not None}
        self._plants, self._missing = plan_injections(self._placements, iterations, self._choice)

    @property
    def _placements(self) -> Sequence[Placement]:
        return self._resolved.placements

    @property
    def _benchmarks(self) -> tuple[str, ...]:
        return self._resolved.plan.benchmarks

    def _judge(
        self, injection: Injection, effect: float | None, ran: RunResult, floor: float
    ) -> Judgement:
        return judge(
            *(injection, effect, ran.found.findings, floor, self._iterations),
            others=ran.taken,
            unsteady=ran.unsteady,
            disturbed=ran.disturbed,
        )

    def _test(self) -> int:
        spread: Deviation | None = None

        def judge_noise(ran: RunResult) -> Judgement | None:
            nonlocal spread
            spread = spread_of(ran.times, ran.costs, self._cpu_of)
            if spread is None or spread.size > NOISIEST:
                return None
            return self._judge(CLEAN, None, ran, floor_of(spread.size))

        runs = 1 + len(self._plants)
        clean, first = self._run_once(CLEAN, f"1 of {runs}", judge_noise)
        if spread is None:
            raise RunError("no copy of the undisturbed run ended well: see `rater run mini`")
        if first is None:
            return self._refuse(spread, clean)
        floor = floor_of(spread.size)
        judged, missing = [first], [*self._missing]
        for number, injection in enumerate(self._plants, 2):
            if self._given_up(judged[-1]):
                missing.append(NotInjected(injection.kind, _NOT_TRIED))
                continue

            def judge_plant(ran: RunResult, injection: Injection = injection) -> Judgement:
                effect = plant_size(injection, ran.times, clean.times)
                return self._judge(injection, effect, ran, floor)

            _, judgement = self._run_once(injection, f"{number} of {runs}", judge_plant)
            judged += [judgement] if judgement else []
        test = SelfTest(
            copies=len(self._placements),
            cpus=tuple(sorted(set(self._cpu_of.values()))),
            lgroups=len({it.node for it in self._placements}),
            benchmarks=self._benchmarks,
            iterations=self._iterations,
            seed=self._seed,
            spread=spread.size,
            floor=floor,
            judged=tuple(judged),
            missing=tuple(missing),
            tally=tally(judged),
            again=self._again,
            command=self._same_again(),
            made_noise=self.made_noise,
            promised=self._promises(clean),
        )
        print_view(self._output, selftest_document(test), lambda _: selftest_parts(test))
        self.wrong = not replace(test, tally=replace(test.tally, unjudged=0)).right
        return 1 if self.wrong else TOO_NOISY if test.tally.unjudged else 0

    def _given_up(self, _: Judgement) -> bool:
        return False

    def _refuse(self, spread: Deviation, ran: RunResult) -> int:
        text = refusal(spread, ran.disturbed or ran.others_words, NOISIEST)
        if self._output.json:
            print_json(refusal_document(text, spread, ran.others, self._seed))
        print_error(text)
        return TOO_NOISY

    def _same_again(self) -> str:
        """Return the command that plants the same again."""
        args = self._asked
        more = " --simulate" if args.simulate else ""
        more += f" --topology {shlex.quote(args.topology)}" if args.topology is not None else ""
        more += f" --copies {args.copies}" if args.copies is not None else ""
        more += " --quick" if args.quick else ""
        more += "" if args.seconds == SECONDS else f" --seconds {args.seconds:g}"
        return f"rater doctor selftest --seed {self._seed}{more}"


type Judge = Callable[[RunResult], Judgement | None]  # None: too noisy to plant anything
type Tried = tuple[RunResult, Judgement | None]


# -- Copies that run -------------------------------------------------------------------------------


class _Experiment(_SelfTest):
    """Real copies, slowed by processes that compete with them."""

    def __init__(self, output: Output, asked: SelfTestOptions, database: Path) -> None:
        super().__init__(output, asked, machine.discover_topology())
        self._database = database
        self._last_repeat_s = time.monotonic() + _REPEATS_S

    def run(self) -> int:
        """Run everything and show it; return the exit status."""
        asked = self._asked
        usual = not (asked.quick or asked.until_idle) and asked.seconds == SECONDS
        if usual and not ForeignLoadSampler().busy().quiet:
            print_error("selftest in short (--quick), as other work goes on here")
            self._asked = asked = replace(asked, quick=True)
        self._set_up(LEAST_ITERATIONS)
        once_s = sum(self._resolved.expected_s.values()) * _OVERHEAD * (1 + len(self._plants))
        iterations = min(0 if asked.quick else int(asked.seconds / once_s), _MOST_ITERATIONS)
        if iterations > LEAST_ITERATIONS:
            self._choice = random.Random(self._seed)
            self._set_up(iterations)
        plan = self._resolved
        refuse_plan(plan)
        self._runs = _Injected(
            what="rater doctor selftest",
            database=self._database,
            cache=cache_root(),
            points=Trusted({0: CampaignPoint("", plan.request, plan)}),
            test=self._test,
        )
        return self._runs.execute().exit_status

    def _given_up(self, last: Judgement) -> bool:
        late = time.monotonic() > self._last_repeat_s and not self._asked.until_idle
        return late and last.verdict is Verdict.NOT_JUDGED

    def _run_once(self, injection: Injection, what: str, judged: Judge) -> Tried:
        """Run one injection, and judge it; again where it is not right and its CPUs were disturbed.

        A disturbance can only hide what was planted or add to it, so that what is right in
        spite of it is right.
        """
        what = f"{what}: {injection.kind}, {injection.place}"
        patience_s = time.monotonic() + (self._asked.until_idle or 0.0)
        tries = 0
        while True:
            print_error(f"selftest {what}")
            self._wait_until_idle(patience_s)
            ran = self._execute(injection)
            judgement = judged(ran)
            tries += 1
            if judgement is not None and judgement.verdict is Verdict.RIGHT:
                return ran, judgement
            # Of a machine that is too noisy one run is enough to say so, unless it is waited for.
            calm = judgement is not None and not ran.disturbed
            enough = tries > _REPEATS or time.monotonic() > self._last_repeat_s
            impatient = enough or judgement is None
            if calm or (impatient and time.monotonic() > patience_s):
                return ran, judgement
            self._again += 1
            what = f"once more: {ran.disturbed or 'copies differ too much'}"

    def _wait_until_idle(self, patience_s: float) -> None:
        """Wait until others leave the CPUs of the copies alone; `patience_s`: of the clock."""
        quiet, before = 0, _busy_s()
        while quiet < _SAMPLES and time.monotonic() < patience_s:
            time.sleep(_SAMPLE_S)
            after = _busy_s()
            busy_s = (after.get(cpu, 0.0) - before.get(cpu, 0.0) for cpu in self._cpu_of.values())
            quiet = quiet + 1 if max(busy_s, default=0.0) <= _OTHERS * _SAMPLE_S else 0
            before = after

    def _execute(self, injection: Injection) -> RunResult:
        runs, watch = self._runs, ForeignLoadSampler()
        runs.injection = injection
        made = runs.make_run(ONE_SLOT[0], runs.points.value[0])
        if made.status > 128:
            raise StoppedBySignal(made.status - 128)
        if made.status or made.run is None or runs.injector is None:
            raise RunError(f"the self-test's run of {injection.kind} failed: it was given up")
        times = runs.store.times(made.number)
        found = analyse(times.chunks, times.benchmarks, Thresholds(), core_pus=times.core_pus)
        busy = watch.busy(_NAMED_SHARE, stale_s=math.inf)
        return result_of(made.run, found, runs.injector.taken_s, busy)


@dataclass(kw_only=True)
class _Injected(Campaign):
    """The runs of a self-test, which says itself which are made, and how often."""

    test: Callable[[], int]
    injection: Injection = CLEAN
    injector: Injector | None = None

    def plan_of(self, slot: SweepSlot) -> RunPlan:
        """Return the run with the tag of what is injected."""
        plan = super().plan_of(slot)
        tags = ((TAG, str(self.injection.kind)),)
        return replace(plan, request=replace(plan.request, tags=tags))

    def listeners(self, _: SweepSlot, keeper: Guard) -> tuple[Injector]:
        """Return what slows copies."""
        plan = self.points.value[0].plan
        assert plan is not None
        self.injector = Injector(self.injection, plan.placements, keeper)
        return (self.injector,)

    def say(self, text: str, point: CampaignPoint | None = None) -> None:
        """Tell whom it waits for, and nothing of single runs."""
        if point is None:
            super().say(text)

    def make_all(self) -> CampaignEnded:
        """Make what the self-test asks for."""
        return CampaignEnded(RunStatus.COMPLETE, None, self.test())


def result_of(
    run: StoredRun, found: Analysis, taken_s: dict[tuple[str, int, int], float], busy: ForeignLoad
) -> RunResult:
    """Return what one run came to.

    `taken_s`: CPU time that competing processes took, by benchmark, iteration and CPU. `busy`:
    who else worked while it ran.
    """
    times = {
        (it.benchmark, it.iteration, it.copy): it.elapsed_s
        for it in run.copies
        if it.status is CopyStatus.OK
    }
    others: dict[tuple[str, int, int], float] = {}
    costs: defaultdict[tuple[str, int, int], float] = defaultdict(float)
    for use in run_counters(run).cpus:
        if use.copies and use.benchmark is not None and use.iteration is not None:
            cell = (use.benchmark, use.iteration, use.cpu)
            # Ticks of a moment may come to less than what is taken off.
            foreign_s = (use.foreign or 0.0) * use.elapsed_s + use.steal * use.elapsed_s
            others_s = max(0.0, foreign_s - taken_s.get(cell, 0.0))
            others[cell] = min(1.0, others_s / use.elapsed_s)
            costs[cell] += others_s
    for it in run.copies:
        if it.cpu is not None:
            costs[it.benchmark, it.iteration, it.cpu] += it.cpu_s or 0.0
    worst = max(others, key=lambda cell: others[cell], default=None)
    return RunResult(
        times, found, costs, others[worst] if worst else 0.0, others_words(worst, others, busy)
    )


def others_words(
    worst: tuple[str, int, int] | None,
    others: dict[tuple[str, int, int], float],
    busy: ForeignLoad,
) -> str:
    """Say which CPU others took most of, and which processes worked meanwhile."""
    who = busy_names(busy)
    if busy.stolen:
        who.append(f"the hypervisor's other guests ({busy.stolen:.0%} of all CPUs)")
    named = join_and(who) if who else "no process that can be seen here"
    if worst is None:
        return f"others worked on a CPU: {named}"
    name, iteration, cpu = worst
    return f"others took {others[worst]:.0%} of CPU {cpu} ({name}, iteration {iteration}): {named}"


def _busy_s() -> dict[int, float]:
    """Return the CPU time of everybody by CPU since boot; empty where it cannot be read."""
    try:
        ticks = cpu_ticks(Path("/proc/stat").read_bytes())
    except (OSError, ValueError):
        return {}
    # All but idle and iowait: time that the hypervisor gave to others is part of it.
    return {cpu: (sum(of) - of[3] - of[4]) / TICKS_PER_S for cpu, of in ticks.items()}


# -- Made times: what the detector finds on a quiet machine of this shape, whatever this one does --


class _Simulation(_SelfTest):
    """The same plants in made times."""

    made_noise = _NOISE

    def __init__(self, output: Output, asked: SelfTestOptions) -> None:
        of = asked.topology
        where = machine.discover_topology() if of is None else machine.load_topology(of)
        super().__init__(output, asked, where)

    def run(self) -> int:
        """Plant in made times and find; return the exit status."""
        self._set_up(LEAST_ITERATIONS)
        if not self._benchmarks:
            raise InputError("no kernel of the self-test fits this machine: fewer --copies")
        return self._test()

    def _run_once(self, injection: Injection, _: str, judged: Judge) -> Tried:
        ran = self._make(injection)
        return ran, judged(ran)

    def _make(self, injection: Injection) -> RunResult:
        names = self._benchmarks
        rows = made_rows(injection, self._placements, names, self._iterations, self._choice)
        threads = Counter(pu.core for pu in self._topology.pus)
        core_pus = sorted((pu.os, threads[pu.core]) for pu in self._topology.pus)
        found = analyse([rows], [(it, None) for it in names], Thresholds(), core_pus=core_pus)
        return RunResult(times_of_rows(rows, names), found)

    def _promises(self, clean: RunResult) -> tuple[PromiseTrials, ...]:
        visible = clean.found.visible
        return tuple(self._try(it, visible[it]) for it in self._promised(visible))

    def _promised(self, visible: dict[str, float]) -> dict[str, Injection]:
        shape = self._placements, self._benchmarks, self._iterations
        return promised_injections(visible, *shape, self._choice)

    def _try(self, scope: str, size: float) -> PromiseTrials:
        trials = _QUICK_TRIALS if self._asked.quick else _TRIALS
        tried = [self._promised({scope: size})[scope] for _ in range(trials)]
        seen = [self._names(self._make(one).found.findings, one) for one in tried]
        return PromiseTrials(scope, tried[0], trials, sum(seen))

    def _names(self, findings: Iterable[Finding], one: Injection) -> bool:
        return any(names(it, one, self._iterations) for it in findings)


def made_rows(
    injection: Injection,
    placements: Sequence[Placement],
    benchmarks: Sequence[str],
    iterations: int,
    choice: random.Random,
) -> list[TimeRow]:
    """Return rows for the search of divots, as they would be with just what is planted."""
    return [
        TimeRow(
            *(number, k, it.copy, 0),
            *(it.cpu, it.core, it.llc, it.node, it.package, it.node),
            *(0, round(1e9 * time_s), None, 1),
        )
        for number, name in enumerate(benchmarks)
        for k in range(1, iterations + 1)
        for it in placements
        for slowdown in [injection.aimed if injection.concerns(name, k, it.copy) else 1.0]
        for time_s in [_UNDISTURBED_S * slowdown * math.exp(choice.gauss(0, _NOISE))]
    ]


def times_of_rows(rows: Iterable[TimeRow], benchmarks: Sequence[str]) -> Times:
    """Return the times of rows, in seconds."""
    return {(benchmarks[it.benchmark], it.iteration, it.copy): it.elapsed_ns / 1e9 for it in rows}
