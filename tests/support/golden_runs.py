"""What the golden screens are of: runs made up here, each in a folder with a database of its own.

A function makes what the file of its name in `tests/golden` shows. Times, hosts and machines are
fixed; nothing is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rater.process import ProcessId
from rater.record.events import (
    CopyEnded,
    CpuReading,
    CpuReadings,
    Event,
    MachineReadings,
    Noted,
    OutputChecked,
    RunEnded,
)
from rater.record.run import BenchmarkUsed, CopyStatus, Host, MachinePU, Run, RunStatus, Validity
from rater.store.store import Store, open_store
from tests.support.example_events import S, ended, over, phase, run_of
from tests.support.fleets import MadeHost, collected
from tests.support.made_sweeps import make_sweep
from tests.support.observations import DOCUMENT
from tests.support.stored_runs import GONE

GIB = 1 << 30
TICK_S = 0.01
# How the kernel was set, in the words of a run's record.
SETTINGS = {
    "kernel.release": "6.1.0-42-amd64",
    "cpu.governor": "performance",
    "thp.enabled": "madvise",
}

type Of = Mapping[tuple[str, int, int], float]  # benchmark, iteration, copy


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def noise(benchmark: int, iteration: int, copy: int) -> float:
    """A factor that looks like noise of 0.2 %, and is the same for ever."""
    return 1 + 0.0007 * ((7 * copy + 3 * iteration + 5 * benchmark) % 11 - 5)


def host(copies: int, nodes: int, name: str = "node7") -> Host:
    """The machine: as many hardware threads as copies."""
    return Host(
        f"fingerprint of {name}", name, f"id of {name}", "CPU 9000", "0x2b", "GenuineIntel",
        64 * GIB, copies, copies, nodes, 1, "x86_64", "Box",
    )  # fmt: skip


class Made:
    """One run that is put into a database: each part can be changed before it is stored."""

    def __init__(
        self,
        names: Sequence[str] = ("gups", "lu"),
        *,
        copies: int = 8,
        nodes: int = 2,
        iterations: int = 1,
        seconds: float = 100.0,
        slow: Callable[[str, int, int], float] = lambda name, iteration, copy: 1.0,
        others: Callable[[int, int], float] = lambda iteration, cpu: 0.0,
        ends: Mapping[tuple[str, int, int], Mapping[str, Any]] | None = None,
        phases: int | None = None,
        status: RunStatus = RunStatus.COMPLETE,
        reason: str | None = None,
        notes: Sequence[str] = (),
        owner: ProcessId | None = None,
        machine: Host | None = None,
        settings: Mapping[str, str] = SETTINGS,
        **head: Any,
    ) -> None:
        """`slow` is a copy's factor; `others` the share of a CPU that other processes took.

        `ends` changes how copies ended; after `phases` phases the run was over. An `owner` that
        is given has not ended it.
        """
        self.names, self.copies, self.iterations, self.seconds = names, copies, iterations, seconds
        self.slow, self.others, self.ends = slow, others, ends or {}
        self.phases, self.status, self.reason, self.notes = phases, status, reason, notes
        self.owner, self.settings = owner, settings
        self.host = machine or host(copies, nodes)
        made = run_of(copies, nodes, names=names, iterations=iterations)
        used = tuple(
            BenchmarkUsed(name, "fp" if place % 2 else "int", f"./{name}", 1000.0)
            for place, name in enumerate(names)
        )
        self.run: Run = replace(made, benchmarks=used, directory="/home/you", **head)
        self.pus = tuple(MachinePU(it.copy, it.copy, it.node, it.node, 0) for it in made.placements)

    def store(self, store: Store) -> int:
        """Store it; return its number."""
        number = len(store.runs()) + 1
        run = replace(
            self.run,
            uuid=_uuid(number),
            started_at=f"2026-11-{20 + number // 24:02}T{number % 24:02}:00:00Z",
        )
        number = store.create_run(run, self.host, self.settings.items(), self.pus, self.owner)
        for event in self._events():
            store.append(number, event)
        return number

    def _events(self) -> Iterator[Event]:
        at_s, number = 0.0, 0
        total = len(self.names) * self.iterations
        for iteration in range(1, self.iterations + 1):
            for place, name in enumerate(self.names):
                if self.phases is not None and number >= self.phases:
                    break
                yield phase(number, name=name, iteration=iteration, total=total)
                copies = [self._copy(number, place, iteration, c, at_s) for c in self._all]
                yield from copies
                finish_s = max(it.finish_ns for it in copies) / S
                done = over(at_s, finish_s, number=number, name=name, iteration=iteration)
                first_ns = min(it.finish_ns for it in copies)
                yield replace(done, first_finish_ns=first_ns)
                yield from self._checks(number, name, copies)
                yield from self._readings(number, iteration, finish_s - at_s, copies)
                at_s, number = finish_s + 1, number + 1
        yield from map(Noted, self.notes)
        if self.owner is None:
            yield RunEnded(self.status, self.reason)

    @property
    def _all(self) -> range:
        return range(self.copies)

    def _copy(self, number: int, place: int, iteration: int, copy: int, at_s: float) -> CopyEnded:
        name = self.names[place]
        computed_s = self.seconds * (1 + place / 4) * noise(place, iteration, copy)
        time_s = computed_s * self.slow(name, iteration, copy)
        time_s /= 1 - self.others(iteration, copy)
        row = replace(
            ended(copy, round(at_s + time_s, 4), start_s=at_s, name=name),
            phase=number,
            iteration=iteration,
            user_ns=round(time_s * (1 - self.others(iteration, copy)) * S),
            system_ns=round(0.001 * time_s * S),
            max_rss_bytes=GIB // 4,
            minor_faults=70_000,
            involuntary_switches=40,
        )
        return replace(row, **self.ends.get((name, iteration, copy), {}))

    def _checks(self, number: int, name: str, copies: Sequence[CopyEnded]) -> Iterator[Event]:
        for it in copies:
            if it.status is CopyStatus.OK:
                wrong = it.validity is Validity.INVALID
                validity = Validity.INVALID if wrong else Validity.VALID
                detail = "stdout line 3: expected 17, got 18" if wrong else None
                yield OutputChecked(number, name, it.iteration, it.copy, 0, validity, detail)

    def _readings(
        self, number: int, iteration: int, elapsed_s: float, copies: Sequence[CopyEnded]
    ) -> Iterator[Event]:
        rows = []
        for it in copies:
            others_ns = round(self.others(iteration, it.copy) * elapsed_s * S)
            busy_ns = it.user_ns + others_ns
            idle_ns = max(0, round(elapsed_s * S) - busy_ns - it.system_ns)
            rows.append(
                CpuReading(it.copy, busy_ns, it.system_ns, 0, 0, 0, idle_ns, 2_600_000, 0, 250)
            )
        yield CpuReadings(number, tuple(rows))
        values = (("elapsed_ns", round(elapsed_s * S)), ("rater_cpu_ns", round(0.0002 * S)))
        yield MachineReadings(number, values)


def _store(folder: Path, *made: Made) -> None:
    with open_store(folder / "rater.db") as store:
        for it in made:
            it.store(store)


FOURTEEN = (
    *("blocksort", "events", "flow", "gametree", "gups", "lu", "moldyn"),
    *("rays", "sort", "sparse", "stencil", "triad", "vm", "words"),
)


def healthy(folder: Path) -> None:
    """Run 1: two benchmarks once; 2: three iterations; 3: fourteen benchmarks, three times."""
    _store(folder, Made(), Made(iterations=3), Made(FOURTEEN, iterations=3))


def slow_node(folder: Path) -> None:
    """The copies on node 1 take 8 % longer, in both benchmarks and three iterations; run 2 not."""
    _store(
        folder,
        Made(copies=16, iterations=3, slow=lambda name, iteration, copy: 1.08 if copy > 7 else 1),
        Made(copies=16, iterations=3),
    )


def slow_copy(folder: Path) -> None:
    """Copy 3 takes 40 % longer in lu; in run 2 copy 5 in the second iteration alone."""
    _store(
        folder,
        Made(iterations=3, slow=lambda name, _, copy: 1.4 if (name, copy) == ("lu", 3) else 1),
        Made(
            iterations=3, slow=lambda _, iteration, copy: 1.4 if (iteration, copy) == (2, 5) else 1
        ),
    )


FAILED: Mapping[str, Any] = {"status": CopyStatus.FAILED, "exit_code": 3}


def failed(folder: Path) -> None:
    """Run 1: copies that failed in every way; 2: all copies of a benchmark did; 3: nothing ran."""
    ends: dict[tuple[str, int, int], Mapping[str, Any]] = {
        ("gups", 1, 1): FAILED,
        ("gups", 1, 2): {"status": CopyStatus.FAILED, "exit_code": None, "signal": 11},
        ("gups", 1, 3): {"status": CopyStatus.TIMEOUT, "exit_code": None, "signal": 9},
        ("gups", 1, 4): {"status": CopyStatus.WRONG_OUTPUT, "validity": Validity.INVALID},
        ("lu", 1, 5): {"note": "left 2 processes behind"},
    }
    _store(
        folder,
        Made(ends=ends, status=RunStatus.FAILED, reason="4 copies failed"),
        Made(
            ends={("lu", 1, copy): FAILED for copy in range(8)},
            status=RunStatus.FAILED,
            reason="8 copies failed",
        ),
        Made(phases=0, status=RunStatus.FAILED, reason="lu did not build"),
    )


def disturbed(folder: Path) -> None:
    """Run 1: another process has CPU 2 for 60 % of the time; 2: all CPUs for half of it."""
    _store(
        folder,
        Made(iterations=3, others=lambda iteration, cpu: 0.6 if cpu == 2 else 0),
        Made(
            iterations=3,
            others=lambda iteration, cpu: 0.5,
            warnings=("busy before the start: make (pid 812, 397 % of a CPU)",),
        ),
        Made(iterations=3),
    )


def interrupted(folder: Path) -> None:
    """Run 1: stopped by Ctrl-C after three of six phases; 2: rater was killed; 3: went on later."""
    _store(
        folder,
        Made(iterations=3, phases=3, status=RunStatus.INTERRUPTED, reason="SIGINT"),
        Made(iterations=3, phases=2, owner=GONE),
    )


def sweep(folder: Path) -> None:
    """Sweep 1: THP, better for lu by 5 % and the same for gups; 2: one round; 3: copies."""
    database = folder / "rater.db"
    rounds = range(6)
    base = [{"gups": 4 * noise(0, n, 0), "lu": 5 * noise(1, n, 3)} for n in rounds]
    other = [{"gups": 4 * noise(0, n, 5), "lu": 4.75 * noise(1, n, 8)} for n in rounds]
    make_sweep(database, "env:MALLOC", {"small": base, "huge": other})
    make_sweep(database, "hugepages", {"off": [4.0], "thp": [3.9]})
    curve = {"1": 10.0, "2": 10.1, "4": 10.6, "8": 14.0, "16": 27.0}
    make_sweep(
        database,
        "copies",
        {n: [{"gups": s * noise(0, r, int(n))} for r in range(3)] for n, s in curve.items()},
    )


def fleet(folder: Path) -> None:
    """Fleet 1: twelve hosts, n3 5 % slower in everything, n4 with a slow NUMA node."""
    collected(
        folder / "rater.db",
        {"n3": MadeHost(node="n3", slow={"": 1.05}), "n4": MadeHost(node="n4", slow_lgroup=1.08)},
        hosts=12,
    )


def imports(folder: Path) -> None:
    """A document to import, one that is none, and one that says the same run again."""
    (folder / "times.json").write_text(json.dumps(DOCUMENT))
    (folder / "wrong.json").write_text('{"rater": 1, "observations": 7}')
    (folder / "text.json").write_text("not JSON\n")


def empty(folder: Path) -> None:
    """No database yet."""
