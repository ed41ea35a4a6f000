"""Samples of running copies, and runs that have them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rater.record.events import GateFacts, Observed, RunEnded, Sampled
from rater.record.run import MachinePU, MemoryPolicy, Placement, RunStatus
from rater.record.stored import StoredRun
from rater.store.store import Store
from tests.support.example_events import ended, over, phase, run_of
from tests.support.example_runs import copy_row, stored
from tests.support.stored_runs import PUS, append

MB = 1_000_000


PAGE = 4096


def sample(nodes: dict[int, int] | None, **changes: Any) -> Sampled:
    """A look at copy 2 on CPU 2 after 0.2 s, its memory in small pages."""
    total = sum(nodes.values()) if nodes else 0
    seen = Sampled(
        phase=0,
        copy=2,
        step=0,
        age_ns=200_000_000,
        processes=1,
        unread=0,
        cpus=(2,),
        allowed=(2,),
        migrations=0,
        pages_migrated=0,
        node_bytes=None if nodes is None else tuple(sorted(nodes.items())),
        policy="local",
        page_bytes=None if nodes is None else ((PAGE, total),),
        rss_bytes=total + MB,
        peak_bytes=total + 2 * MB,
        swap_bytes=0,
        read_ns=1000,
    )
    return replace(seen, **changes)


FOUR_PUS = tuple(MachinePU(cpu=cpu, core=cpu, llc=0, node=cpu // 2, package=0) for cpu in range(4))


PLACED = tuple(
    Placement(
        copy=copy,
        cpus=(copy,),
        cpu=copy,
        core=copy,
        llc=0,
        node=copy // 2,
        package=0,
        memory_policy=MemoryPolicy.LOCAL,
        memory_nodes=(),
    )
    for copy in range(4)
)


def seen_run(remote: int | None = 1, **head: Any) -> StoredRun:
    """Four copies on two lgroups, twice; the memory of copy `remote` lies away in iteration 1."""
    rows = [
        copy_row(
            copy,
            3.0 + copy,
            phase=phase,
            iteration=phase + 1,
            node=copy // 2,
            gate=GateFacts((copy,), (0, 1)),
        )
        for phase in range(2)
        for copy in range(4)
    ]

    def sample_of(phase: int, copy: int) -> Sampled:
        home = copy // 2
        away = copy == remote and phase == 0
        return sample(
            {1 - home: 300 * MB, home: 100 * MB} if away else {home: 400 * MB},
            phase=phase,
            copy=copy,
            cpus=(copy,),
            allowed=(copy,),
        )

    run = stored(rows, copies=4, iterations=2, **head)
    return replace(
        run,
        placements=PLACED,
        pus=FOUR_PUS,
        samples=tuple(sample_of(phase, number) for phase in range(2) for number in range(4)),
        observed=Observed(
            cadence="auto",
            samples=8,
            interval_s=None,
            cpu_s=0.02,
            share=0.004,
            longest_read_s=0.003,
            unknown=(),
        ),
        warnings=(),
        notes=(),
    )


OBSERVED = Observed(
    cadence="auto",
    samples=3,
    interval_s=1.5,
    cpu_s=0.01,
    share=0.005,
    longest_read_s=0.002,
    unknown=("no sched here",),
)


BARE = Sampled(
    phase=0,
    copy=1,
    step=0,
    age_ns=5,
    processes=1,
    unread=1,
    cpus=(),
    allowed=None,
    migrations=None,
    pages_migrated=None,
    node_bytes=None,
    policy=None,
    page_bytes=None,
    rss_bytes=None,
    peak_bytes=None,
    swap_bytes=None,
    read_ns=7,
)


FULL = sample(
    {0: 30 * MB, 1: 90 * MB},
    copy=0,
    cpus=(0, 1, 4),
    allowed=(0, 1, 2, 4),
    page_bytes=((4096, 20 * MB), (2 << 20, 100 * MB)),
    looks=3,
)


def store_run(store: Store) -> int:
    """Two copies on two lgroups: one looked at twice and a late look, one hardly."""
    number = store.create_run(replace(run_of(2, 2), pus=PUS))
    append(store, number, phase())
    append(
        store,
        number,
        replace(ended(0, 3.0), gate=GateFacts((0, 1, 2, 4), (0, 1))),
        replace(ended(1, 3.0), gate=GateFacts(None, (1,))),
        FULL,
        replace(FULL, age_ns=400_000_000, looks=1, node_bytes=((0, 120 * MB),)),
        BARE,
    )
    append(store, number, over(0.0, 3.0), OBSERVED, RunEnded(RunStatus.COMPLETE, None))
    return number
