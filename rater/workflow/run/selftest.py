"""Slow copies on purpose, and see whether rater finds just these."""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rater.errors import InputError, RunError
from rater.files import scratch_folder
from rater.process import print_error
from rater.workflow.arguments import print_json

if TYPE_CHECKING:
    from rater.analysis.divots.model.finding import Finding
    from rater.analysis.divots.selftest import Deviation, Judgement
    from rater.plan.selftest import Injection, NotInjected
    from rater.run.copies.disturb import Injector
    from rater.run.copies.guard import Guard
    from rater.store.store import Store
    from rater.workflow.run.resolve import RunPlan
    from rater.workflow.run.selftest_runs import RunResult


TAG = "selftest"
_KERNELS = "mini/moldyn,vm,rays"  # busy with computing: what slows them is what we do
_FEWER_KERNELS = "mini/moldyn,vm"
SECONDS = 60.0
_OVERHEAD = 1.3  # of what the kernels take by themselves
LEAST_ITERATIONS, _MOST_ITERATIONS = 3, 12
_REPEATS = 5
_REPEATS_S = 100.0  # no run is made once more after that: who waits for an answer gets one
TOO_NOISY = 3  # exit status: neither right nor wrong, it could not be told
IDLE_S = 300.0
_NAMED_SHARE = 0.05  # of a CPU, over a whole run: processes that are named
_NOT_TRIED = "not tried: other work went on for too long"


def selftest(args: argparse.Namespace) -> int:
    """Inject and find; return the exit status."""
    from rater.run.host.admission import default_lock_path, machine_lock
    from rater.store.connection import default_path
    from rater.workflow.run.head import utc_timestamp

    if args.copies is not None and args.copies < 1:
        raise InputError(f"--copies {args.copies}: expected a number of copies, 1 or more")
    if not 0 < args.seconds < 1e6:
        raise InputError(f"--seconds {args.seconds:g}: expected seconds above 0")
    if args.until_idle is not None and not 0 < args.until_idle < 1e6:
        raise InputError(f"--until-idle {args.until_idle:g}: expected seconds above 0")
    if args.topology is not None and not args.simulate:
        raise InputError("--topology: copies run on this machine only; add --simulate for another")
    if args.simulate:
        from rater.workflow.run.selftest_runs import simulate

        return simulate(args, _FEWER_KERNELS if args.quick else _KERNELS, LEAST_ITERATIONS)
    if args.db is not None and not args.keep:
        raise InputError(
            f"--db {args.db}: a self-test's runs go to a temporary database; add --keep to "
            "store them in this one"
        )
    holder = f"rater doctor selftest, process {os.getpid()}, since {utc_timestamp()}"
    with machine_lock(default_lock_path(), holder, wait_s=args.wait or 0.0, report=print_error):
        if args.keep:
            return _SelftestRunner(args, default_path(args.db)).run()
        with scratch_folder() as folder:
            test = _SelftestRunner(args, folder / "rater.db")
            try:
                return test.run()
            finally:
                if test.wrong:
                    kept = shutil.move(
                        folder / "rater.db", tempfile.mkdtemp(prefix="rater-selftest-")
                    )
                    print_error(f"its runs are in {kept}")


class _Stopped(Exception):  # noqa: N818 - not an error: the user's signal
    """A run ended by a signal, with the exit status that says so."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _SelftestRunner:
    """One self-test: runs, one after the other, and what they came to."""

    def __init__(self, args: argparse.Namespace, database: Path) -> None:
        from rater.run.host import discover as machine

        self._args = args
        self._database = database
        self._topology = machine.discover_topology()
        self._seed = random.randrange(10**6) if args.seed is None else args.seed
        self._choice = random.Random(self._seed)
        self._done = 0
        self._again = 0
        self._injector: Injector | None = None
        self._last_repeat_s = time.monotonic() + _REPEATS_S
        self.wrong = False  # something went wrong that its runs may tell more about

    def run(self) -> int:
        """Run everything and show it; return the exit status."""
        from rater.plan.selftest import plan_injections, usual_copies
        from rater.run.host.foreign_load import ForeignLoadSampler

        topology, asked = self._topology, self._args
        usual = not (asked.quick or asked.until_idle) and asked.seconds == SECONDS
        if usual and not ForeignLoadSampler().busy().quiet:
            self._report("in short (--quick), as other work goes on here")
            asked.quick = True
        copies = self._args.copies or usual_copies(len(topology.pus), len(topology.nodes))
        kernels = _FEWER_KERNELS if self._args.quick else _KERNELS
        resolved = self._resolve(kernels, copies, LEAST_ITERATIONS)
        plants, missing = plan_injections(resolved.placements, LEAST_ITERATIONS, self._choice)
        once_s = sum(resolved.expected_s.values()) * _OVERHEAD * (1 + len(plants))
        wanted = 0 if self._args.quick else int(self._args.seconds / once_s)
        iterations = min(max(wanted, LEAST_ITERATIONS), _MOST_ITERATIONS)
        if iterations != LEAST_ITERATIONS:
            resolved = self._resolve(kernels, copies, iterations)
            plants, missing = plan_injections(
                resolved.placements, iterations, random.Random(self._seed)
            )
        try:
            return self._test(resolved, plants, missing)
        except _Stopped as stopped:
            return stopped.status

    def _resolve(self, suite: str, copies: int, iterations: int) -> RunPlan:
        from rater.plan.request import Request
        from rater.workflow.run.resolve import resolve

        # The lock is held already, for all of its runs.
        request = Request(
            (suite,), copies=str(copies), iterations=iterations, size="test", share=True
        )
        return resolve(request, self._topology)

    def _test(
        self, resolved: RunPlan, plants: Sequence[Injection], missing: Sequence[NotInjected]
    ) -> int:
        from rater.analysis.divots.selftest import NOISIEST, floor_of, plant_size, spread_of, tally
        from rater.plan.selftest import CLEAN, NotInjected
        from rater.show.results.selftest import SelfTest, print_selftest, selftest_document
        from rater.workflow.run.selftest_runs import same_again

        runs = 1 + len(plants)
        copies, iterations = resolved.plan.copies, resolved.plan.iterations
        spread: Deviation | None = None

        def noise_judged(ran: RunResult) -> Judgement | None:
            nonlocal spread
            spread = spread_of(ran.times, ran.costs, _cpu_of(resolved))
            if spread is None or spread.size > NOISIEST:
                return None
            return self._judge(CLEAN, None, ran, floor_of(spread.size), resolved)

        clean, first = self._ran(resolved, CLEAN, runs, noise_judged)
        if spread is None:
            raise RunError("no copy of the undisturbed run ended well: see `rater run mini`")
        if first is None:
            return self._refuse(spread, clean)
        floor = floor_of(spread.size)
        judged: list[Judgement] = [first]
        missing = list(missing)
        for injection in plants:
            if self._given_up(judged[-1]):
                missing.append(NotInjected(injection.kind, _NOT_TRIED))
                continue

            def judge_injection(ran: RunResult, injection: Injection = injection) -> Judgement:
                effect = plant_size(injection, ran.times, clean.times)
                return self._judge(injection, effect, ran, floor, resolved)

            _, judgement = self._ran(resolved, injection, runs, judge_injection)
            judged.append(judgement)
        test = SelfTest(
            copies=copies,
            cpus=tuple(sorted({it.cpu for it in resolved.placements if it.cpu is not None})),
            lgroups=len({it.node for it in resolved.placements}),
            benchmarks=resolved.plan.benchmarks,
            iterations=iterations,
            seed=self._seed,
            spread=spread.size,
            floor=floor,
            judged=tuple(judged),
            missing=tuple(missing),
            tally=tally(judged),
            again=self._again,
            command=same_again(self._args, self._seed, SECONDS),
        )
        if self._args.json:
            print_json(selftest_document(test))
        else:
            from rater.show.console import terminal

            print_selftest(test, terminal())
        told = replace(test.tally, unjudged=0)
        self.wrong = not told.right
        return 1 if self.wrong else TOO_NOISY if test.tally.unjudged else 0

    def _given_up(self, last: Judgement) -> bool:
        from rater.analysis.divots.selftest import Verdict

        late = time.monotonic() > self._last_repeat_s and not self._args.until_idle
        return late and last.verdict is Verdict.NOT_JUDGED

    def _refuse(self, spread: Deviation, ran: RunResult) -> int:
        from rater.analysis.divots.selftest import NOISIEST
        from rater.show.results.selftest import refusal, refusal_document

        text = refusal(spread, ran.disturbed or ran.taken_words, NOISIEST)
        if self._args.json:
            print_json(refusal_document(text, spread, ran.others, self._seed))
        print_error(text)
        return TOO_NOISY

    @staticmethod
    def _judge(
        injection: Injection, effect: float | None, ran: RunResult, floor: float, resolved: RunPlan
    ) -> Judgement:
        from rater.analysis.divots.selftest import explained_by_speed, judge

        cpu_of = _cpu_of(resolved)
        judgement = judge(
            *(injection, effect, ran.findings, floor, resolved.plan.iterations),
            others=ran.taken,
            unsteady=ran.unsteady,
            is_own=lambda one: explained_by_speed(one, ran.costs, cpu_of) is not None,
        )
        return replace(judgement, disturbed=ran.disturbed)

    def _ran[J: Judgement | None](
        self, resolved: RunPlan, injection: Injection, runs: int, judged: Callable[[RunResult], J]
    ) -> tuple[RunResult, J]:
        """Run one injection, and judge it; again where it is not right and its CPUs were disturbed.

        A disturbance can only hide what was planted or add to it, so that what is right in
        spite of it is right.
        """
        from rater.analysis.divots.selftest import Verdict
        from rater.workflow.run.selftest_runs import wait_until_idle

        self._done += 1
        what = f"{self._done} of {runs}: {injection.kind}, {injection.place}"
        patience_s = time.monotonic() + (self._args.until_idle or 0.0)
        tries = 0
        while True:
            self._report(what)
            wait_until_idle(frozenset(_cpu_of(resolved).values()), patience_s)
            ran = self._once(resolved, injection)
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

    def _report(self, text: str) -> None:
        print_error(f"selftest {text}")

    def _once(self, resolved: RunPlan, injection: Injection) -> RunResult:
        from rater.files import Trusted
        from rater.record.run import CopyStatus
        from rater.run.host.foreign_load import ForeignLoadSampler
        from rater.run.programs.compile import cache_root
        from rater.store.store import open_store
        from rater.workflow.run.selftest_runs import RunResult, most_taken, taken_words
        from rater.workflow.run.session import Session

        resolved = replace(
            resolved, request=replace(resolved.request, tags=((TAG, str(injection.kind)),))
        )
        quiet = argparse.Namespace(db=str(self._database), json=False, quiet=True)
        session = Session(quiet, Trusted(resolved), cache_root())
        watch = ForeignLoadSampler()

        def listeners(keeper: Guard) -> tuple[Injector, ...]:
            from rater.run.copies.disturb import Injector

            self._injector = Injector(injection, resolved.placements, keeper)
            return (self._injector,)

        session.listeners = listeners
        status = session.run()
        if status > 128:
            raise _Stopped(status)
        if status or self._injector is None:
            raise RunError(f"the self-test's run of {injection.kind} failed: it was given up")
        with open_store(self._database) as store:
            number = store.find(session.attempt.uuid)
            run = store.load(number)
            findings = _findings_of(store, number)
        times = {
            (it.benchmark, it.iteration, it.copy): it.elapsed_s
            for it in run.copies
            if it.status is CopyStatus.OK
        }
        seen = self._injector.seen
        costs = {(it.benchmark, it.iteration, cpu): cost for it in seen for cpu, cost in it.costs}
        busy = watch.busy(_NAMED_SHARE, stale_s=math.inf)
        return RunResult(times, findings, most_taken(seen)[0], costs, taken_words(seen, busy))


def _findings_of(store: Store, number: int) -> tuple[Finding, ...]:
    from rater.analysis.divots.findings import analyse
    from rater.analysis.divots.model.finding import Thresholds

    times = store.times(number)
    found = analyse(times.chunks, times.benchmarks, Thresholds(), core_pus=times.core_pus)
    return found.findings


def _cpu_of(resolved: RunPlan) -> dict[int, int]:
    return {it.copy: it.cpu for it in resolved.placements if it.cpu is not None}
