"""Published databases of hosts as a fleet's nodes leave them, with times made up here."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from rater.fleet.archive import IndexedRun, admit_database
from rater.fleet.plan import FleetRequest
from rater.record.events import Event, RunEnded
from rater.record.run import BenchmarkUsed, Host, MachinePU, MemoryPolicy, Placement, RunStatus
from rater.store.store import open_store
from tests.support.example_events import ended, over, phase, run_of, with_head
from tests.support.stored_runs import append

type Times = npt.NDArray[np.float64]  # (benchmarks, iterations, copies), seconds

NAMES = (
    *("blocksort", "events", "flow", "gametree", "gups", "lu", "moldyn"),
    *("rays", "sort", "sparse", "stencil", "triad", "vm", "words"),
)
SETTINGS = {
    "kernel.release": "6.1.0-42-amd64",
    "cpu.governor": "performance",
    "thp.enabled": "madvise",
}
GIB = 1 << 30
ASKED = FleetRequest(
    uuid="0123456789ab-cdef",
    started_at="2026-11-23T08:00:00Z",
    backend="slurm",
    folder="",
    scratch="/var/tmp",
    directory="/",
    words=("mini",),
    command=None,
    command_line="rater fleet run",
    rater_version="0.1",
    parallel=None,
    attempts=2,
    minutes=None,
    pending_limit_s=None,
    busy_limit_s=600.0,
    settle_s=0.0,
    arguments=(),
    allow_partial=False,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeHost:
    """One host of a fleet: its facts, and how much slower it runs each benchmark."""

    node: str
    slow: Mapping[str, float] = field(default_factory=dict)  # by benchmark; "" is all of them
    slow_lgroup: float = 1.0  # the last lgroup's copies take so much longer
    settings: Mapping[str, str] = field(default_factory=lambda: SETTINGS)
    microcode: str = "0xa0011d5"
    memory_bytes: int = 512 * GIB
    cpus: int | None = None  # usable ones; None: as many as copies


def indexed_run(host: str, **other: Any) -> IndexedRun:
    """A run of four copies as the index of a fleet has it."""
    row = IndexedRun(
        fleet=1, host=host, attempt=1, run=1, uuid=host, hostname=host, machine_id_hash=None,
        status=RunStatus.COMPLETE, reason=None, started_at=None, suite="mini", size="test",
        tune="base", mode="homogeneous", copies=4, cpu_model="CPU 9000", microcode="0x1",
        memory_bytes=64 << 30, kernel="6.1", cpus=4, setting=1, copy_runs=8, failed=0,
        sha256="", bytes=1,
    )  # fmt: skip
    return replace(row, **other)


def host_facts(host: MadeHost, copies: int) -> Host:
    """What the machine says of itself."""
    return Host(
        fingerprint="fingerprint",
        hostname=host.node,
        machine_id_hash=f"id of {host.node}",
        cpu_model="AMD EPYC 7763",
        microcode=host.microcode,
        vendor="AuthenticAMD",
        memory_bytes=host.memory_bytes,
        pus=copies,
        cores=copies,
        nodes=2,
        packages=1,
        architecture="x86_64",
        product="Box",
    )


def times_of(
    host: MadeHost,
    names: Sequence[str],
    iterations: int,
    copies: int,
    random: np.random.Generator,
    *,
    noise: float = 0.004,
    spread: float = 0.003,
) -> Times:
    """Times about 100 s: hosts differ by `spread`, iterations and copies by `noise` (t of 4)."""
    shape = (len(names), iterations, copies)
    logs = spread * random.standard_normal((len(names), 1, 1))
    logs = logs + noise * random.standard_t(4, (len(names), iterations, 1)) / 2**0.5
    logs = logs + noise * random.standard_normal(shape)
    for place, name in enumerate(names):
        logs[place] += np.log(host.slow.get(name, 1.0) * host.slow.get("", 1.0))
    if copies > 1:
        logs[:, :, copies // 2 :] += np.log(host.slow_lgroup)
    return 100 * np.exp(logs)


def publish(
    path: Path,
    host: MadeHost,
    times: Times,
    names: Sequence[str] = NAMES,
    *,
    run_uuid: str | None = None,
    started_at: str = "2026-11-20T12:00:00Z",
    status: RunStatus = RunStatus.COMPLETE,
) -> Path:
    """Write one node's database as `rater fleet` publishes it: whole, in one file, no log."""
    benchmarks, iterations, copies = times.shape
    run = replace(
        with_head(
            run_of(copies, 2 if copies > 1 else 1, names=names, iterations=iterations),
            uuid=run_uuid or str(uuid.uuid5(uuid.NAMESPACE_OID, f"{host.node} {started_at}")),
            started_at=started_at,
        ),
        host=host_facts(host, copies),
        settings=tuple(host.settings.items()),
        pus=tuple(
            MachinePU(cpu=copy, core=copy, llc=0, node=2 * copy // copies, package=0)
            for copy in range(host.cpus or copies)
        ),
        benchmarks=tuple(
            BenchmarkUsed(
                name=name,
                category="int",
                command=name,
                reference_s=1000.0,
                binary_sha256=None,
                compiler=None,
                flags=None,
            )
            for name in names
        ),
        placements=tuple(
            Placement(
                copy=copy,
                cpus=(copy,),
                cpu=copy,
                core=copy,
                llc=0,
                node=2 * copy // copies,
                package=0,
                memory_policy=MemoryPolicy.LOCAL,
                memory_nodes=(),
            )
            for copy in range(copies)
        ),
    )
    events: list[Event] = []
    for benchmark in range(benchmarks):
        for iteration in range(iterations):
            number = benchmark * iterations + iteration
            events.append(phase(number, name=names[benchmark], iteration=iteration + 1))
            events += [
                replace(
                    ended(copy, float(time_s), name=names[benchmark]),
                    phase=number,
                    iteration=iteration + 1,
                )
                for copy, time_s in enumerate(times[benchmark, iteration])
            ]
            slowest = float(times[benchmark, iteration].max())
            events.append(
                over(0.0, slowest, number=number, name=names[benchmark], iteration=iteration + 1)
            )
    events.append(RunEnded(status, None))
    work = path.with_name(f"{path.name}.work")
    work.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    with open_store(work) as store:
        number = store.create_run(run)
        append(store, number, *events)
        with store.writing("checking outputs") as connection:
            connection.execute("UPDATE copy SET validity = 'valid'")
    with closing(sqlite3.connect(work)) as connection:
        connection.execute("VACUUM INTO ?", (str(path),))
    work.unlink()
    return path


def collected(
    database: Path,
    slow: Mapping[str, MadeHost],
    hosts: int = 5,
    fleet: int = 1,
    *,
    started_at: str = "2026-11-20T12:00:00Z",
) -> None:
    """A fleet of n1, n2, ... (two benchmarks, iterations, copies); `slow` instead of some."""
    random = np.random.default_rng(fleet)
    names = ("lu", "vm")
    with open_store(database) as store:
        for number in range(1, hosts + 1):
            host = slow.get(f"n{number}", MadeHost(node=f"n{number}"))
            times = times_of(host, names, 2, 2, random, noise=0.001, spread=0.001)
            path = database.with_name("published.db")
            publish(path, host, times, names, started_at=started_at)
            assert admit_database(store, path, fleet, host.node, 1)
            path.unlink()
