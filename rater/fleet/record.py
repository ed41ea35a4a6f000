"""Runs of many hosts, as the index of a fleet has them, and the words that name them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from rater.errors import InputError
from rater.record.run import RunStatus, record
from rater.text.values import group_by_key

_WORD = re.compile(
    r"fleet:(?P<fleet>[0-9]{1,9}|last)(/(?P<host>[^/\s]+)(/(?P<attempt>[0-9]{1,9}))?)?"
)


@dataclass(frozen=True, slots=True)
class FleetReference:
    """`fleet:3`, `fleet:last`, a host of it (`fleet:3/n017`), one attempt (`fleet:3/n017/2`)."""

    fleet: int | None  # None: the last one
    host: str | None
    attempt: int | None


def fleet_word(text: str) -> FleetReference:
    """Read a word; raises `InputError` with what is expected."""
    found = _WORD.fullmatch(text)
    if found is None:
        raise InputError(
            f"{text!r}: expected fleet:N or fleet:last, a host of it as fleet:N/HOST, "
            "or one attempt as fleet:N/HOST/ATTEMPT"
        )
    number, attempt = found["fleet"], found["attempt"]
    return FleetReference(
        None if number == "last" else int(number),
        found["host"],
        None if attempt is None else int(attempt),
    )


@record
class IndexedRun:
    """A run in a database that a node published: a row of `fleet_run`."""

    fleet: int
    host: str  # the node, as the scheduler calls it
    attempt: int
    run: int  # its number in the published database
    uuid: str
    hostname: str | None
    machine_id_hash: str | None
    status: RunStatus
    reason: str | None
    started_at: str | None  # by the host's clock
    suite: str | None
    size: str | None
    tune: str | None
    mode: str
    copies: int
    cpu_model: str | None
    microcode: str | None
    memory_bytes: int | None
    kernel: str | None
    cpus: int  # that it could use
    setting: int  # number of its settings
    copy_runs: int
    failed: int
    sha256: str  # of the published database
    bytes: int
    others_cost: float | None = None  # of the score, what work of others cost; None: not known


@record
class HostTimes:
    """Times of a host in one benchmark, of each counted iteration, in seconds."""

    host: str
    attempt: int
    run: int
    benchmark: str
    bracket_s: tuple[
        float, ...
    ]  # first start to last end of all copies; none: side by side no copies
    copy_s: tuple[float, ...]  # of the median copy


@record
class HistoryPoint:
    """A host, or what is usual, in one fleet."""

    fleet: int
    started_at: str | None  # by the host's clock: a label, no order
    seconds: dict[str, float]  # its time in each benchmark, of the median iteration
    usual_s: dict[str, float]  # the other hosts' median
    hosts: int  # how many others
    facts: dict[str, str]  # what it was and how it was set
    usual_facts: dict[str, str]  # what most others were
    program: str = ""  # what was run: histories of several are told apart


def latest(runs: Iterable[IndexedRun]) -> dict[str, tuple[IndexedRun, ...]]:
    """Return the attempt of each host that counts: the last complete one, else the last."""
    chosen: dict[str, tuple[IndexedRun, ...]] = {}
    for host, own in group_by_key((run.host, run) for run in runs).items():
        attempts = group_by_key((run.attempt, run) for run in own)
        best = max(
            attempts,
            key=lambda it: (all(r.status is RunStatus.COMPLETE for r in attempts[it]), it),
        )
        chosen[host] = tuple(attempts[best])
    return chosen
