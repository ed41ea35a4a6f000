"""Runs of the self-test: what came of one and who disturbed it, and runs on made times."""

from __future__ import annotations

import argparse
import math
import random
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Sequence, Set

from msgspec import Struct

from rater.analysis.divots.findings import analyse
from rater.analysis.divots.model.finding import Analysis, Finding, Thresholds
from rater.analysis.divots.selftest import (
    STEADY,
    PromiseTrials,
    Times,
    floor_of,
    judge,
    largest_speed_change,
    names,
    plant_size,
    spread_of,
    tally,
)
from rater.errors import InputError
from rater.plan.placement.place import Placement
from rater.plan.request import Request
from rater.plan.selftest import (
    CLEAN,
    Injection,
    plan_injections,
    promised_injections,
    usual_copies,
)
from rater.record.stored import TimeRow
from rater.run.copies.disturb import PROC, DisturbanceRecord, busy_by_cpu
from rater.run.host import discover as machine
from rater.run.host.foreign_load import ForeignLoad, busy_names
from rater.show.console import terminal
from rater.show.results.selftest import SelfTest, print_selftest, selftest_document, speed_words
from rater.text.values import join_and
from rater.workflow.arguments import print_json
from rater.workflow.run.resolve import resolve

_SAMPLE_S, _SAMPLES = 1.0, 3  # so many quiet samples in a row
OTHERS = 0.1  # share of a CPU that others may take in any iteration


class RunResult(Struct, frozen=True):
    """One run with what was done in it."""

    times: dict[tuple[str, int, int], float]
    findings: tuple[Finding, ...]
    others: float  # the most that others took of a CPU in any iteration, as a share
    costs: dict[tuple[str, int, int], float]  # see `analysis.cpuspeed.Costs`
    taken_words: str = ""  # of which CPU, and who it was

    @property
    def taken(self) -> float | None:
        """What others took of a CPU, where it was too much."""
        return self.others if self.others > OTHERS else None

    @property
    def unsteady(self) -> float | None:
        """By how much the speed of a CPU changed by itself, where it was too much."""
        change, _ = largest_speed_change(self.costs)
        return change if abs(change) > STEADY else None

    @property
    def disturbed(self) -> str:
        """What others did to its CPUs meanwhile, in words; "" when they were left alone."""
        if self.taken is not None:
            return self.taken_words
        return "" if self.unsteady is None else speed_words(*largest_speed_change(self.costs))


def most_taken(seen: Sequence[DisturbanceRecord]) -> tuple[float, int | None, str]:
    """Return the most that others took of a CPU while a benchmark ran once: share, CPU, when."""
    cells = [
        (share, cpu, f"{cell.benchmark}, iteration {cell.iteration}")
        for cell in seen
        for cpu, share in cell.others
    ]
    return max(cells, key=lambda cell: cell[0], default=(0.0, None, ""))


def taken_words(seen: Sequence[DisturbanceRecord], found: ForeignLoad) -> str:
    """Say which CPU others took most of, and which processes worked meanwhile."""
    share, cpu, when = most_taken(seen)
    where = "a CPU" if cpu is None else f"CPU {cpu} ({when})"
    return f"others took {share:.0%} of {where}: {who(found)}"


def who(found: ForeignLoad) -> str:
    """Name those who worked beside a run."""
    names = busy_names(found)
    if found.stolen:
        names.append(f"the hypervisor's other guests ({found.stolen:.0%} of all CPUs)")
    return join_and(names) if names else "no process that can be seen here"


def wait_until_idle(cpus: Set[int], patience_s: float) -> None:
    """Wait until others leave the CPUs of the copies alone; `patience_s`: of the clock."""
    quiet = 0
    before = busy_by_cpu(PROC)
    while quiet < _SAMPLES and time.monotonic() < patience_s:
        time.sleep(_SAMPLE_S)
        after = busy_by_cpu(PROC)
        busy_s = [after[cpu] - before[cpu] for cpu in after if cpu in cpus and cpu in before]
        quiet = quiet + 1 if max(busy_s, default=0.0) <= OTHERS * _SAMPLE_S else 0
        before = after


def same_again(args: argparse.Namespace, seed: int, usual_s: float) -> str:
    """Return the command that plants the same again; `usual_s`: what --seconds is without it."""
    more = " --simulate" if args.simulate else ""
    more += f" --topology {shlex.quote(args.topology)}" if args.topology is not None else ""
    more += f" --copies {args.copies}" if args.copies is not None else ""
    more += " --quick" if args.quick else ""
    more += "" if args.seconds == usual_s else f" --seconds {args.seconds:g}"
    return f"rater doctor selftest --seed {seed}{more}"


# -- The self-test's plants on made times: what the detector says, whatever this machine does now --

_TRIALS, _QUICK_TRIALS = 20, 5  # runs for each size that is promised
NOISE = 0.005  # standard deviation of the log of a time: a quiet machine
_UNDISTURBED_S = 10.0


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
        for time_s in [_UNDISTURBED_S * slowdown * math.exp(choice.gauss(0, NOISE))]
    ]


def times_of_rows(rows: Iterable[TimeRow], benchmarks: Sequence[str]) -> Times:
    """Return the times of rows, in seconds."""
    return {(benchmarks[it.benchmark], it.iteration, it.copy): it.elapsed_ns / 1e9 for it in rows}


def simulate(args: argparse.Namespace, kernels: str, iterations: int) -> int:
    """Plant in made times and find; return the exit status."""
    topology = (
        machine.discover_topology()
        if args.topology is None
        else machine.load_topology(args.topology)
    )
    copies = args.copies or usual_copies(len(topology.pus), len(topology.nodes))
    seed = random.randrange(10**6) if args.seed is None else args.seed
    request = Request((kernels,), copies=str(copies), iterations=iterations, size="test")
    resolved = resolve(request, topology)
    placements, benchmarks = resolved.placements, resolved.plan.benchmarks
    if not benchmarks:
        raise InputError("no kernel of the self-test fits this machine: fewer --copies")
    choice = random.Random(seed)
    plants, missing = plan_injections(placements, iterations, choice)
    threads = Counter(pu.core for pu in topology.pus)
    core_pus = sorted((pu.os, threads[pu.core]) for pu in topology.pus)

    def made(injection: Injection) -> tuple[Times, Analysis]:
        rows = made_rows(injection, placements, benchmarks, iterations, choice)
        named = [(name, None) for name in benchmarks]
        found = analyse([rows], named, Thresholds(), core_pus=core_pus)
        return times_of_rows(rows, benchmarks), found

    clean, undisturbed = made(CLEAN)
    spread = spread_of(clean)
    assert spread is not None  # every copy has a time
    floor = floor_of(spread.size)
    judged = [judge(CLEAN, None, undisturbed.findings, floor, iterations)]
    for injection in plants:
        times, found = made(injection)
        effect = plant_size(injection, times, clean)
        judged.append(judge(injection, effect, found.findings, floor, iterations))

    def trials(scope: str) -> PromiseTrials:
        of = {scope: undisturbed.visible[scope]}
        tried = [
            promised_injections(of, placements, benchmarks, iterations, choice)[scope]
            for _ in range(_QUICK_TRIALS if args.quick else _TRIALS)
        ]
        seen = [any(names(it, one, iterations) for it in made(one)[1].findings) for one in tried]
        return PromiseTrials(scope, tried[0], len(tried), sum(seen))

    scopes = promised_injections(undisturbed.visible, placements, benchmarks, iterations, choice)
    promised = tuple(trials(scope) for scope in scopes)
    test = SelfTest(
        copies=len(placements),
        cpus=tuple(sorted({it.cpu for it in placements if it.cpu is not None})),
        lgroups=len({it.node for it in placements}),
        benchmarks=benchmarks,
        iterations=iterations,
        seed=seed,
        spread=spread.size,
        floor=floor,
        judged=tuple(judged),
        missing=tuple(missing),
        tally=tally(judged),
        again=0,
        command=same_again(args, seed, args.seconds),
        made_noise=NOISE,
        promised=promised,
    )
    if args.json:
        print_json(selftest_document(test))
    else:
        print_selftest(test, terminal())
    return 0 if test.right else 1
