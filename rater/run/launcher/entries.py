"""Runs of copies as entries of the table that the launcher forks by, and their order there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import batched, zip_longest

from rater.record.run import Placement
from rater.run.host.thread_binding import MODES
from rater.run.launcher.copies import Child
from rater.run.launcher.table import ProcessEntry, ProcessFlag

_PROCESSES_PER_TURN = 8


def interleave_by_cpus(
    children: Iterable[Child], placements: Sequence[Placement]
) -> Iterator[Child]:
    """Yield a few runs of each set of CPUs in turn: the order in which the launcher forks them.

    The launcher moves to the CPUs of each process before it forks. When the CPUs change with
    every process, these moves are half of what a fork costs. When all processes of one CPU come
    first, the first instructions of copies lie twice as far apart (128 copies on 2 CPUs: 170 ms
    instead of 89 ms).
    """
    by_cpus: dict[tuple[int, ...] | None, list[Child]] = {}
    for child in children:
        by_cpus.setdefault(placements[child.copy].cpus, []).append(child)
    batches = (batched(group, _PROCESSES_PER_TURN) for group in by_cpus.values())
    turns = zip_longest(*batches, fillvalue=())
    return (child for turn in turns for batch in turn for child in batch)


def make_entry(
    child: Child, place: Placement, flags: int, *, first_look_ms: int = 0
) -> ProcessEntry:
    """Return the entry of a process in the launcher's table; `flags` are `ProcessFlag`s."""
    spec, next_spec = child.spec, child.next_spec
    if spec.workloads:
        flags |= ProcessFlag.REPORTS
    if next_spec is not None:
        flags |= ProcessFlag.AGAIN
    return ProcessEntry(
        token=child.token,
        copy=child.copy,
        argv=[*map(os.fsencode, spec.argv)],
        shared_variables=spec.shared_variables,
        own_variables=spec.own_variables,
        directory=os.fsencode(spec.directory),
        output=os.fsencode(spec.stdout),
        error=os.fsencode(spec.stderr),
        next_output=os.fsencode(next_spec.stdout) if next_spec else b"",
        next_error=os.fsencode(next_spec.stderr) if next_spec else b"",
        cpus=place.cpus,
        policy=MODES[place.memory_policy],
        nodes=place.memory_nodes,
        transparent=spec.transparent,
        accepted=(0, *spec.accepted),
        after=child.after,
        flags=flags,
        first_look_ms=first_look_ms,
        offset_ns=child.offset_ns,
    )
