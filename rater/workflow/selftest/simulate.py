"""The self-test's plants on made times: what the detector says, whatever this machine does now."""

from __future__ import annotations

import argparse
import random
from collections import Counter

from rater.analysis.divots.data.finding import Thresholds
from rater.analysis.divots.search import analyse
from rater.analysis.selftest.judge import Judgement, floor_of, judge, made, spread_of, tally
from rater.analysis.selftest.made_times import NOISE, made_times, rows_of
from rater.errors import InputError
from rater.plan.placement.place import Placement
from rater.plan.request.request import Request
from rater.plan.selftest import CLEAN, Injection, choose, usual_copies
from rater.plan.topology.model import Topology
from rater.run.host import discover as machine
from rater.show.console.terminal import terminal
from rater.show.divots.selftest import SelfTest, print_selftest, selftest_document
from rater.workflow.common import print_json
from rater.workflow.run.resolve import resolve
from rater.workflow.selftest.ran import same_again


def simulate(args: argparse.Namespace, kernels: str, iterations: int) -> int:
    """Plant in made times and find; return the exit status."""
    topology = machine.discover() if args.topology is None else machine.load(args.topology)
    copies = args.copies or usual_copies(len(topology.pus), len(topology.nodes))
    seed = random.randrange(10**6) if args.seed is None else args.seed
    request = Request((kernels,), copies=str(copies), iterations=iterations, size="test")
    resolved = resolve(request, topology)
    placements, benchmarks = resolved.placements, resolved.plan.benchmarks
    if not benchmarks:
        raise InputError("no kernel of the self-test fits this machine: fewer --copies")
    choice = random.Random(seed)
    plants, missing = choose(placements, benchmarks, iterations, choice)
    clean = made_times(CLEAN, placements, benchmarks, iterations, choice)
    spread = spread_of(clean)
    assert spread is not None  # every copy has a time
    floor = floor_of(spread.size)

    def judged(injection: Injection) -> Judgement:
        times = made_times(injection, placements, benchmarks, iterations, choice)
        found = analyse(
            [rows_of(times, injection, placements, benchmarks)],
            [(name, None) for name in benchmarks],
            Thresholds(),
            core_pus=_core_pus(topology),
        )
        effect = made(injection, times, clean, iterations)
        effect = None if injection is CLEAN else effect
        return judge(injection, effect, found.findings, floor, iterations)

    every = tuple(judged(injection) for injection in (CLEAN, *plants))
    test = SelfTest(
        copies=len(placements),
        cpus=_cpus(placements),
        lgroups=len({it.node for it in placements}),
        benchmarks=benchmarks,
        iterations=iterations,
        seed=seed,
        spread=spread.size,
        floor=floor,
        judged=every,
        missing=tuple(missing),
        tally=tally(every),
        again=0,
        command=same_again(args, seed, args.seconds),
        made_noise=NOISE,
    )
    if args.json:
        print_json(selftest_document(test))
    else:
        print_selftest(test, terminal())
    return 0 if test.tally.right else 1


def _cpus(placements: tuple[Placement, ...]) -> tuple[int, ...]:
    return tuple(sorted({it.cpu for it in placements if it.cpu is not None}))


def _core_pus(topology: Topology) -> list[tuple[int, int]]:
    threads = Counter(pu.core for pu in topology.pus)
    return sorted((pu.os, threads[pu.core]) for pu in topology.pus)
