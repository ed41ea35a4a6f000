"""What the golden screens are of: runs made up here, each in a folder with a database of its own.

A function makes what the file of its name in `tests/golden` shows. Times, hosts and machines are
fixed; nothing is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rater.commands.cli import main
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
from rater.record.run import BenchmarkUsed, CopyStatus, Host, MachinePU, RunStatus, Validity
from rater.store.store import Store, open_store
from rater.system.process import ProcessId, this_process
from tests.support.doctor_tree import change, make_doctor_tree
from tests.support.example_events import S, ended, over, phase, placed, run_of, with_head
from tests.support.made_runs import make, make_run
from tests.support.made_sweeps import make_sweep
from tests.support.observations import DOCUMENT, observed, read
from tests.support.raw_files import HEAD, bracket, configured, pack
from tests.support.settings_tree import CPUFREQ, CPUS, THP, make_tree
from tests.support.stored_runs import GONE
from tests.support.suite_text import BEYOND, OWN, SUM

GIB = 1 << 30
# How the kernel was set, in the words of a run's record.
SETTINGS = {
    "kernel.release": "6.1.0-42-amd64",
    "cpu.governor": "performance",
    "thp.enabled": "madvise",
}


def _uuid(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def noise(benchmark: int, iteration: int, copy: int) -> float:
    """A factor that looks like noise of 0.2 %, and is the same for ever."""
    return 1 + 0.0007 * ((7 * copy + 3 * iteration + 5 * benchmark) % 11 - 5)


def host(copies: int, nodes: int, name: str = "node7") -> Host:
    """The machine: as many hardware threads as copies."""
    return Host(
        fingerprint=f"fingerprint of {name}",
        hostname=name,
        machine_id_hash=f"id of {name}",
        cpu_model="CPU 9000",
        microcode="0x2b",
        vendor="GenuineIntel",
        memory_bytes=64 * GIB,
        pus=copies,
        cores=copies,
        nodes=nodes,
        packages=1,
        architecture="x86_64",
        product="Box",
    )


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
        self.owner = owner
        run = run_of(copies, nodes, names=names, iterations=iterations)
        used = tuple(
            BenchmarkUsed(
                name=name,
                category="fp" if place % 2 else "int",
                command=f"./{name}",
                reference_s=1000.0,
            )
            for place, name in enumerate(names)
        )
        pus = tuple(
            MachinePU(
                cpu=placement.copy,
                core=placement.copy,
                llc=placement.node,
                node=placement.node,
                package=0,
            )
            for placement in run.placements
        )
        more = {name: head.pop(name) for name in ("environment", "warnings") if name in head}
        self.run = replace(
            with_head(run, directory="/home/you", **head),
            host=machine or host(copies, nodes),
            settings=tuple(settings.items()),
            benchmarks=used,
            pus=pus,
            **more,
        )

    def store(self, store: Store) -> int:
        """Store it; return its number."""
        number = len(store.runs()) + 1
        run = with_head(
            self.run,
            uuid=_uuid(number),
            started_at=f"2026-11-{20 + number // 24:02}T{number % 24:02}:00:00Z",
        )
        number = store.create_run(run, self.owner)
        places = {placement.copy: placement for placement in run.placements}
        for event in self._events():
            store.append(number, placed(event, places, run.head.discard))
        return number

    def _events(self) -> Iterator[Event]:
        at_s, number = 0.0, 0
        total = len(self.names) * self.iterations
        for iteration in range(1, self.iterations + 1):
            for place, name in enumerate(self.names):
                if self.phases is not None and number >= self.phases:
                    break
                yield phase(number, name=name, iteration=iteration, total=total)
                copies: list[Any] = [
                    self._copy(number, place, iteration, copy, at_s) for copy in self._all
                ]
                yield from copies
                finish_s = max(copy.finish_ns for copy in copies) / S
                done = over(at_s, finish_s, number=number, name=name, iteration=iteration)
                first_ns = min(copy.finish_ns for copy in copies)
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
            ended(
                copy,
                round(at_s + time_s, 4),
                start_s=at_s,
                name=name,
                user_ns=round(time_s * (1 - self.others(iteration, copy)) * S),
                system_ns=round(0.001 * time_s * S),
            ),
            phase=number,
            iteration=iteration,
            max_rss_bytes=GIB // 4,
            minor_faults=70_000,
            involuntary_switches=40,
        )
        return replace(row, **self.ends.get((name, iteration, copy), {}))

    def _checks(self, number: int, name: str, copies: Sequence[CopyEnded]) -> Iterator[Event]:
        for copy in copies:
            if copy.status is CopyStatus.OK:
                wrong = copy.validity is Validity.INVALID
                validity = Validity.INVALID if wrong else Validity.VALID
                detail = "stdout line 3: expected 17, got 18" if wrong else None
                yield OutputChecked(
                    phase=number,
                    benchmark=name,
                    iteration=copy.iteration,
                    copy=copy.copy,
                    step=0,
                    validity=validity,
                    detail=detail,
                )

    def _readings(
        self, number: int, iteration: int, elapsed_s: float, copies: Sequence[Any]
    ) -> Iterator[Event]:
        rows = []
        for copy in copies:
            others_ns = round(self.others(iteration, copy.copy) * elapsed_s * S)
            busy_ns = copy.user_ns + others_ns
            idle_ns = max(0, round(elapsed_s * S) - busy_ns - copy.system_ns)
            rows.append(
                CpuReading(
                    cpu=copy.copy,
                    user_ns=busy_ns,
                    system_ns=copy.system_ns,
                    iowait_ns=0,
                    irq_ns=0,
                    steal_ns=0,
                    idle_ns=idle_ns,
                    mean_khz=2_600_000,
                    throttles=0,
                    interrupts=250,
                )
            )
        yield CpuReadings(number, tuple(rows))
        values = (("elapsed_ns", round(elapsed_s * S)), ("rater_cpu_ns", round(0.0002 * S)))
        yield MachineReadings(number, values)


def _store(folder: Path, *made: Made) -> None:
    with open_store(folder / "rater.db") as store:
        for it in made:
            it.store(store)


def history(folder: Path) -> None:
    """Sixteen runs, two of each commit: from the ninth on, after another kernel, 6 % slower."""
    settings = [{**SETTINGS, "kernel.release": release} for release in ("6.1.0-42", "6.1.0-43")]
    _store(
        folder,
        *(
            Made(
                ("lu",),
                copies=2,
                seconds=100 * noise(3, number, number // 3) * (1.06 if number > 8 else 1),
                settings=settings[number > 8],
                tags=(("commit", f"c{(number - 1) // 2}{'ab' * 18}"),),
            )
            for number in range(1, 17)
        ),
        Made(("lu",), copies=2, others=lambda iteration, cpu: 0.4),
        Made(("lu",), copies=1),
        Made(("lu",), copies=2, machine=host(2, 2, "node8")),
    )


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


def divots(folder: Path) -> None:
    """Runs 1-3: node 1 is slow in c; 4: also a copy, once; 5: nothing; 6: a copy in each of 14.

    7: node 1 is slow in c, hardly in others; 8: it is faster; 9: a copy failed.
    """

    def node_1(slowdown: float, *names: str) -> Callable[[str, int, int], float]:
        return lambda name, iteration, copy: slowdown if name in names and 7 < copy < 16 else 1

    def uneven(name: str, iteration: int, copy: int) -> float:
        return node_1(1.4, "c")(name, iteration, copy) * node_1(1.03, *"abd")(name, iteration, copy)

    def also_once(name: str, iteration: int, copy: int) -> float:
        once = (name, iteration, copy) == ("a", 2, 30)
        return 1.9 if once else node_1(1.18, "c")(name, iteration, copy)

    def in_each(name: str, iteration: int, copy: int) -> float:
        return 1.5 if copy == 2 * FOURTEEN.index(name) else 1

    four: dict[str, Any] = {"copies": 32, "nodes": 4, "iterations": 2, "names": tuple("abcd")}
    _store(
        folder,
        *(Made(**four, seconds=100 + number, slow=node_1(1.18, "c")) for number in range(3)),
        Made(**four, slow=also_once),
        Made(**four),
        Made(FOURTEEN, copies=32, nodes=4, slow=in_each),
        Made(**four, slow=uneven),
        Made(**four, slow=node_1(0.9, *"abcd")),
        Made(**four, ends={("a", 1, 3): FAILED}),
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
    base = [
        {"gups": 4 * noise(0, round_number, 0), "lu": 5 * noise(1, round_number, 3)}
        for round_number in rounds
    ]
    other = [
        {"gups": 4 * noise(0, round_number, 5), "lu": 4.75 * noise(1, round_number, 8)}
        for round_number in rounds
    ]
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
    from tests.support.fleets import MadeHost, collected  # noqa: PLC0415 - a wing

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


# -- Machines that are described, settings and checks in trees of files ---------------------------

VM = """<topology version="2.0">
  <object type="Machine" complete_cpuset="0x7" allowed_cpuset="0x3">
    <object type="Package" cpuset="0x3">
      <info name="CPUModel" value="AMD EPYC"/>
      <object type="NUMANode" os_index="0" cpuset="0x3" local_memory="13919014912"/>
      <object type="L3Cache" cache_size="33554432" cache_type="0">
        <object type="L2Cache" cache_size="1048576" cache_type="0">
          <object type="L1Cache" cache_size="49152" cache_type="1">
            <object type="Core"><object type="PU" os_index="0"/></object>
          </object>
        </object>
        <object type="L2Cache" cache_size="1048576" cache_type="0">
          <object type="L1Cache" cache_size="49152" cache_type="1">
            <object type="Core"><object type="PU" os_index="1"/></object>
          </object>
        </object>
      </object>
    </object>
  </object>
</topology>
"""
# Two nodes of one core of two threads each, memory of a GPU, CPU 6 in no node, CPU 3 forbidden.
ODD = """<topology version="2.0">
  <object type="Machine" allowed_cpuset="0x57" allowed_nodeset="0xb">
    <object type="NUMANode" os_index="9" cpuset="0x0" subtype="GPUMemory"/>
    <object type="NUMANode" os_index="3" cpuset="0x3" subtype="HBM" local_memory="16000000000"/>
    <object type="Package">
      <object type="NUMANode" os_index="0" cpuset="0x3" local_memory="64000000000"/>
      <object type="L2Cache" cache_size="2097152">
        <object type="Core"><object type="PU" os_index="0"/>
          <object type="PU" os_index="1"/></object>
      </object>
    </object>
    <object type="Package">
      <object type="NUMANode" os_index="1" cpuset="0xc" local_memory="64000000000"/>
      <object type="L2Cache" cache_size="1048576">
        <object type="Core"><object type="PU" os_index="2"/>
          <object type="PU" os_index="3"/></object>
      </object>
      <object type="Core"><object type="PU" os_index="6"/></object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="3" kind="5" name="NUMALatency" indexing="os">
    <indexes>0 1 3</indexes><u64values>10 21 17 21 10 28 17 28 10</u64values>
  </distances2>
  <cpukind cpuset="0xf"><info name="FrequencyMaxMHz" value="5000"/></cpukind>
  <cpukind cpuset="0x40"><info name="FrequencyMaxMHz" value="3000"/></cpukind>
</topology>
"""


def _machine(inside: str, after: str = "") -> str:
    return f'<topology version="2.0"><object type="Machine">{inside}</object>{after}</topology>'


def machines(folder: Path) -> None:
    """Topology files: usual, odd, of many nodes, with mistakes."""
    caches = "".join(
        f'<object type="L3Cache" cache_size="{size}"><object type="Core">'
        f'<object type="PU" os_index="{cpu}"/></object></object>'
        for cpu, size in enumerate((8 << 20, 16 << 20))
    )
    node = '<object type="NUMANode" os_index="0" cpuset="0x3"/>'
    twenty = "".join(
        f'<object type="NUMANode" os_index="{number}" cpuset="{1 << number:#x}"/>'
        f'<object type="PU" os_index="{number}"/>'
        for number in range(20)
    )
    distances = " ".join(
        "10" if number == j else "22" if number // 2 == j // 2 else "30"
        for number in range(20)
        for j in range(20)
    )
    latency = (
        f'<distances2 type="NUMANode" name="NUMALatency" nbobjs="20"><indexes>'
        f"{' '.join(map(str, range(20)))}</indexes><u64values>{distances}</u64values></distances2>"
    )
    for name, text in {
        "vm": VM,
        "odd": ODD,
        "unranked": ODD.replace("FrequencyMaxMHz", "Colour"),
        "caches": _machine(node + caches),
        "twenty": _machine(twenty, latency),
        "control": VM.replace("AMD EPYC", "AMD&#x9b;31m"),
        "twice": VM.replace('os_index="1"', 'os_index="0"'),
    }.items():
        (folder / f"{name}.xml").write_text(text)
    for name, text in {
        "own": 'order = "fill"\nbind = "pu"\n[counts]\n0 = 3\nrest = 1\n',
        "left-out": 'order = "fill"\nnodes = "0"\n[counts]\n1 = 3\n',
        "full": 'order = "balanced"\n[counts]\n0 = 14\nrest = 1\n',
        "not-there": 'order = "fill"\n[counts]\n7 = 1\n',
        "too-many": 'order = "fill"\n[counts]\n0 = 99999\nrest = 99999\n',
        "mistakes": 'order = "fil"\nsmt = 0\n',
        "cursor": '# \u202e\norder = "fill"  # \u009b2J\n',
    }.items():
        (folder / f"{name}.toml").write_text(text)
    suite = '[suite]\nformat = 1\nname = "heavy"\n[benchmarks.one]\ncommand = ["./nowhere"]\n'
    (folder / "heavy.toml").write_text(f"{suite}[benchmarks.one.sizes.train]\nmemory_mb = 300\n")


def suites(folder: Path) -> None:
    """Suites of two benchmarks: plain, in many words, with long names, wrong; one of all words."""
    wordy = OWN.replace('"sums"', '"sums – of all kinds, and of some more kinds"').replace(
        '"harmonic sum"', '"adds up the harmonic series term by term"'
    )
    wordy = wordy.replace("\ndesc", '\nreference_machine = "a laptop on the desk"\ndesc', 1)
    long = OWN.replace("benchmarks.sum", f"benchmarks.{'s' * 90}")
    for name, text in {
        "own": OWN,
        "wordy": wordy.replace('args = ["you"]', 'args = ["you"]\nreference_s = 1'),
        "long": long.replace("sizes.test", f"sizes.{'t' * 90}"),
        "lines": OWN.replace('"echo", "hello"', '"echo", "a\\nb"'),
        "wrong": OWN.replace("sources", "source").replace("0.25", "-1"),
        "beyond": BEYOND,
    }.items():
        (folder / f"{name}.toml").write_text(text)
    (folder / "sum.c").write_text(SUM)
    (folder / "first.txt").write_text("1")


def settings(folder: Path) -> None:
    """The settings of a machine of four CPUs and two nodes."""
    make_tree(folder / "machine")


def fit(folder: Path) -> None:
    """A machine that is fit to be measured."""
    make_doctor_tree(folder / "machine")


def unfit(folder: Path) -> None:
    """A machine with what makes results vary."""
    make_doctor_tree(folder / "machine")
    change(
        folder / "machine",
        {
            "proc/cmdline": "quiet",
            "proc/loadavg": "3.00 2.01 1.05 4/200 4000",
            "proc/sys/kernel/numa_balancing": "1",
            "proc/sys/vm/zone_reclaim_mode": "1",
            "sys/kernel/mm/ksm/run": "1",
            f"{THP}/enabled": "[always] madvise never",
            f"{CPUS}/isolated": "",
            f"{CPUS}/nohz_full": "",
            f"{CPUS}/smt/control": "on",
            f"{CPUS}/smt/active": "1",
            f"{CPUS}/intel_pstate/no_turbo": "0",
            **{f"{CPUFREQ}/policy{number}/scaling_governor": "powersave" for number in range(4)},
        },
    )


# -- Runs to be compared --------------------------

SLOW = (10.0, 10.05, 9.95, 10.02, 9.98)
FAST = (9.0, 9.05, 8.94, 9.02, 8.98)


def _both(times: Sequence[float], factor: float = 1.0) -> list[tuple[float, float]]:
    return [(time_s * factor - 0.01, time_s * factor) for time_s in times]


def points(folder: Path) -> None:
    """1-5 never, 6-10 always (THP); 11-20 two benchmarks; 21-30 slow copies; 31-38 a drift; ..."""
    database = folder / "rater.db"
    two = ("gups", "lu")
    make(database, _both(SLOW), {"thp": "never"}, {"thp.enabled": "never", "vm.swappiness": "60"})
    make(database, _both(FAST), {"thp": "always"}, {"thp.enabled": "always", "vm.swappiness": "10"})
    make(database, _both(SLOW), {"of": "slow"}, names=two)
    make(database, _both(FAST), {"of": "fast"}, names=two)
    make(database, [(10.0 + number / 1000, 12.0 + number / 100) for number in range(5)], {"x": "0"})
    make(database, [(10.0 - number / 1000, 10.001) for number in range(5)], {"x": "1"})
    make(database, _both([10.0 * 1.02**number for number in range(8)]))
    make(database, _both(SLOW, 1.1), {"of": "slower"}, names=two)
    where = "glibc.malloc.hugetlb=1:glibc.malloc.arena_max="
    for number, times in enumerate((SLOW, FAST)):
        make(database, _both(times), {"tunables": f"{where}{number}"})
    usual = [10.0 + 0.005 * (-1) ** number + 0.001 * (number % 3) for number in range(10)]
    make(database, _both(usual), {"rare": "0"})
    make(database, _both([*usual[:6], 12.0, *usual[7:]]), {"rare": "1"})
    make(database, [(0.00001, 0.00001), (900.0, 900.0), (9.0, 9.0), (9.1, 9.1)])
    make(database, _both(SLOW[:1]), names=["vm"])


def tagged(folder: Path) -> None:
    """Runs with tags; the fourth still runs."""
    for uuid, tags in (
        ("a", (("bios", "old"), ("day", "1"))),
        ("b", (("bios", "new"),)),
        ("c", (("bios", "old"), ("day", "2"))),
    ):
        make_run(folder / "rater.db", uuid=uuid, tags=tags)
    make_run(folder / "rater.db", uuid="d", finished=False, owner=this_process())


def copies(folder: Path) -> None:
    """Run 1: four copies of 10, 10, 10 and 14 s; run 2: of 10, 10, 10 and 20 s."""
    with open_store(folder / "rater.db") as store:
        for uuid, last_s in (("first", 14.0), ("second", 20.0)):
            rows = [
                {"benchmark": "429.mcf", "iteration": 0, "copy": copy, "cpu": copy}
                | {"core": 7 if copy == 3 else None, "node": copy // 2, "start_s": 0.0}
                | {"elapsed_s": last_s if copy == 3 else 10.0}
                for copy in range(4)
            ]
            store.add(read(observed(*rows, uuid=uuid, copies=4, host="h")))


# -- Files of SPEC CPU, and studies of page sizes ------------------------

_BOUND = "submit = taskset -c $BIND $command\n"
RAW_FILES: dict[str, str | bytes] = {
    "good": configured(
        "bind0 = numactl -C 2 -m 0\nbind1 = numactl -C 5 -m 1\nsubmit = $BIND $command\n"
    ),
    "lacks-cpu": configured(f"bind = 1, 9\n{_BOUND}"),
    "far-memory": configured("submit = numactl -m 0 -C $SPECCOPYNUM $command\n"),
    "lacks-node": configured("submit = numactl -m 7 -C $SPECCOPYNUM $command\n"),
    "same-cpu": configured(f"bind = 3\n{_BOUND}"),
    "unclear": configured("submit = numactl -C x $command\n"),
    "by-memory": configured("submit = numactl -m 1 -C 3 $command\n"),
    "no-nodes": configured(f"bind = 1, 6\n{_BOUND}"),
    "no-submit": configured("bind = 3, 7\n"),
    "relative": configured("submit = numactl -i all -C +$SPECCOPYNUM $command\n"),
    "condition": configured(
        "%if '%{mode}' =~ /far/\nsubmit = numactl -m 1 -C $SPECCOPYNUM $command\n%else\n"
        "submit = taskset -c $SPECCOPYNUM $command\n%endif\n"
    ),
    "not-valid": HEAD + bracket(0).replace("valid: S", "valid: VE") + bracket(1),
    "missing": HEAD + bracket().replace("clcopies: 2", "clcopies: 64"),
    "disagrees": "garbage\n" + HEAD + bracket(ratio=21),
    "basepeak": HEAD + bracket() + bracket(tune="peak", more="basepeak: 1"),
    "estimate": f"{HEAD}spec.cpu2006.rater_estimate: 1\n{bracket()}",
    "printed": "runcpu v6612\nProducing Raw Reports\n    format: raw -> /r/CPU2017.1.rsf\n"
    "The log for this run is in /r/CPU2017.1.log\n",
    "debug": "1429610945.00: runspec v6674 started\n",
    "web": "<!DOCTYPE html>\n<p>SPEC runcpu\n",
    "report": "  SPEC(R) CPU2017 Integer Rate Result\n",
    "configuration": "intrate:\n copies = 2\n",
    "gzip": b"\x1f\x8b\x08rest",
    "zstd": b"(\xb5/\xfdrest",
    "bytes": bytes(range(256)) * 100,
    "nothing": "",
    "head-alone": "spec.cpu2006.size: ref\n",
    "log-alone": 'runspec v6674 started at x on "h"\n',
}
WRONG_BINDS = """\
# a list for four CPUs
submit = $BIND $command
bind0 = numactl -m 0 --physcpubind=0
bind1 = numactl -m 0 --physcpubind=1
bind2 = numactl -m 0 --physcpubind=2
bind3 = numactl -m 1 --physcpubind=1
"""
RIGHT_BINDS = WRONG_BINDS.replace("-m 0 --physcpubind=2", "-m 1 --physcpubind=2").replace(
    "-m 1 --physcpubind=1", "-m 1 --physcpubind=3"
)


def spec(folder: Path) -> None:
    """Result files with what can be odd about them, and what is none; configurations."""
    for name, data in RAW_FILES.items():
        (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    pieces = "".join(
        f"spec.cpu2006.rawconfig{number:03}: {piece}\n"
        for number, piece in enumerate(pack(WRONG_BINDS))
    )
    many = "".join(f"bind{cpu} = taskset -c {cpu}\n" for cpu in range(40))
    for name, text in {
        "wrong.cfg": WRONG_BINDS,
        "right.cfg": RIGHT_BINDS,
        "many.cfg": f"submit = $BIND $command\n{many}",
        "binds.inc": "bind0 = taskset -c 0\nbind1 = taskset -c 0\n",
        "including.cfg": "include: binds.inc\ninclude: absent.inc\nsubmit = $BIND $command\n"
        "copies = 3\n",
        "inside.rsf": HEAD + pieces + bracket(times=(400.0,) * 5),
        "no-binds.cfg": "tune = base\n",
        "macro.cfg": "copies = 2\nsubmit = taskset -c $SPECCOPYNUM $command\n%ifdef %{smt-on}\n"
        "copies = %{cores}\n%endif\n",
    }.items():
        (folder / name).write_text(text)


def spec_stored(folder: Path) -> None:
    """Runs of such files: not valid, incomplete, disagreeing, bound oddly."""
    for name in ("good", "not-valid", "missing", "disagrees", "lacks-cpu"):
        (folder / name).write_text(str(RAW_FILES[name]))
        words = ["--topology", "nodes=2x4"] if name == "lacks-cpu" else []
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            main(["spec", "import", "--db", str(folder / "rater.db"), *words, name])


def studies(folder: Path) -> None:
    """Sweeps over page layouts: 1 a line, 2 a parabola, 3 noise, 4 THP, 5 a category, 6 two; ..."""
    shares = (0, 12.5, 25, 50, 75, 87.5, 100)
    parabola = {f"{share}%": [10 - 0.088 * share + 0.00048 * share**2] * 2 for share in shares}
    nothing = {
        "0%": [10.0, 10.4, 9.8],
        "25%": [9.9, 10.1, 10.5],
        "50%": [10.2, 9.7, 10.0],
        "75%": [10.3, 10.0, 9.9],
        "100%": [9.8, 10.2, 10.1],
    }
    times: list[tuple[str, Mapping[str, Sequence[float | Mapping[str, float]]]]] = [
        ("pages", {f"{share}%": [10 - 0.04 * share] * 2 for share in shares}),
        ("pages", parabola),
        ("pages", nothing),
        ("thp", {"never": [1.0], "always": [0.9]}),
        ("pages", {"0%": [1.0], "heap:huge": [0.9], "100%": [0.8]}),
        ("pages", {"0%": [1.0], "100%": [0.9]}),
        ("pages", {"0%": [1.0], "100%": []}),
        ("env:SIZE", {"1M": [1.0], "2M": [2.0], "4M": [4.0], "8M": [8.0]}),
        (
            "pages",
            {
                f"{number}%": [{"gups": 8 - number / 25, "lu": 3.0}] * 3
                for number in (25, 0, 50, 75, 100)
            },
        ),
    ]
    for axis, values in times:
        # With noise: what exact numbers leave after a fit is another one on each machine.
        noisy = {
            text: [
                {name: s * noise(place, number, len(name)) for name, s in _named(one).items()}
                for number, one in enumerate(them)
            ]
            for place, (text, them) in enumerate(values.items())
        }
        make_sweep(folder / "rater.db", axis, noisy)


def _named(seconds: float | Mapping[str, float]) -> Mapping[str, float]:
    return {"gups": seconds} if isinstance(seconds, float) else seconds
