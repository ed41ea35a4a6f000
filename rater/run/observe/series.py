"""Series of a phase: what is read once a second while copies run, and at both edges.

The readings are those of `counters`, taken more often, and of sources that only a series has:
NUMA nodes, temperatures, and the CPU time, bytes read and bytes written of each copy.

Formats: proc_stat(5), proc_pid_io(5), Documentation/admin-guide/numastat.rst,
hwmon/sysfs-interface.rst and filesystems/proc.rst of the kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import add
from pathlib import Path
from typing import NamedTuple, Protocol

from rater.record.events import PhaseSeries
from rater.record.series import Column, SeriesPacker
from rater.run.host.foreign_load import TICKS_PER_S, cpu_ticks, process_cpu_ns
from rater.run.host.procfs import (
    list_folder,
    read_number,
    read_piece,
    read_text,
    ticks_of_children,
)
from rater.run.observe.memory_traffic import OpenEvent, ResctrlSource, TrafficSource
from rater.text.cpuset import parse_list

# Of /proc/stat, in hundredths of a second, and what other files say of a CPU.
CPU_COLUMNS = ("user", "system", "idle", "iowait", "irq", "steal", "mhz", "throttles")
COPY_COLUMNS = ("cpu_ms", "read_bytes", "written_bytes", "read_calls_bytes", "write_calls_bytes")
_NODE_MEMORY = (b" MemFree:", b" FilePages:")  # what stands before a number in a node's meminfo
_NODE_PAGES = ("numa_hit", "numa_miss", "numa_foreign", "local_node", "other_node")
_NODE_COLUMNS = ("free_kb", "cache_kb", *_NODE_PAGES)
_NUMASTAT = tuple(f"\n{name} ".encode() for name in _NODE_PAGES)
_IO = (b"\nread_bytes:", b"\nwrite_bytes:", b"\nrchar:", b"\nwchar:")
_TICK_MS = 1000 // TICKS_PER_S
_HUNDREDTHS = 100 / TICKS_PER_S
_MOST_DIGITS = 40  # of a number, with the blanks before it
_MOST_LOOKS = 32  # copies whose bytes are read in one turn: 20 us each
_MOST_PROCESSES = 16  # of one copy
# A copy whose first process had the CPU for so much of the time has no children that matter.
_BUSY = 0.9
_HOTTEST = ("Package id", "Tctl")  # labels of coretemp and k10temp: one for a package


class SeriesSource(Protocol):
    """Something of the machine that is read for a series alone."""

    @property
    def family(self) -> str:
        """Name of the family."""

    @property
    def places(self) -> Sequence[int]:
        """Numbers of the places; empty: this machine has none."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns."""

    @property
    def refused(self) -> str | None:
        """Why this user may not read it, and the way out; None: he may, or there is none."""

    def read(self) -> Sequence[Column]:
        """Return a number of each place for each column; None is what cannot be read."""


class NodeSource:
    """Memory of NUMA nodes: free, page cache, and pages given out by where they were asked for."""

    family = "node"
    refused: str | None = None
    columns = _NODE_COLUMNS

    def __init__(self, sys: Path) -> None:
        folder = sys / "devices/system/node"
        online = read_text(folder / "has_memory") or read_text(folder / "online")
        try:
            self.places: Sequence[int] = parse_list(online or "")
        except ValueError:
            self.places = ()
        self._folders = [f"{folder}/node{node}" for node in self.places]

    def read(self) -> Sequence[Column]:
        """Return kilobytes and pages of each node."""
        rows = [
            (
                *_numbers_at(f"{folder}/meminfo", _NODE_MEMORY),
                *_numbers_at(f"{folder}/numastat", _NUMASTAT),
            )
            for folder in self._folders
        ]
        return [*zip(*rows, strict=True)]


def _numbers_at(path: str, marks: Sequence[bytes]) -> list[int | None]:
    """Return the numbers behind some words of a file; None: not there.

    They are searched for: to take all lines apart takes four times as long.
    """
    try:
        text = b"\n" + read_piece(path)
    except OSError:
        return [None] * len(marks)
    return [_number_behind(text, mark) for mark in marks]


def _number_behind(text: bytes, mark: bytes) -> int | None:
    at = text.find(mark)
    if at < 0:
        return None
    at += len(mark)
    number = text[at : at + _MOST_DIGITS].split(None, 1)
    return int(number[0]) if number and number[0].isdigit() else None


class PackageSource:
    """Temperatures of packages, by the sensors that their processors have for the whole."""

    family = "package"
    refused: str | None = None
    columns = ("temperature_mc",)

    def __init__(self, sys: Path) -> None:
        files = [
            label.with_name(label.name.replace("_label", "_input"))
            for label in list_folder(sys / "class/hwmon", "hwmon*/temp*_label")
            if (read_text(label) or "").startswith(_HOTTEST)
        ]
        self._files = [file for file in files if read_number(file) is not None]
        self.places = tuple(range(len(self._files)))

    def read(self) -> Sequence[Column]:
        """Return thousandths of a degree Celsius."""
        return [[read_number(file) for file in self._files]]


def machine_sources(
    root: Path | None, open_event: OpenEvent | None = None
) -> tuple[SeriesSource, ...] | None:
    """Return what series of the machine below `root` have besides the readings of `counters`.

    None without a root: there are to be no series. `open_event` opens a counter of a PMU; without
    it the kernel's, of this machine only.
    """
    if root is None:
        return None
    sources: list[SeriesSource] = [NodeSource(root / "sys"), PackageSource(root / "sys")]
    return (*sources, TrafficSource(root, open_event), ResctrlSource(root))


class MachineSample(NamedTuple):
    """The readings of `counters` that a series has too, of one moment of CLOCK_MONOTONIC."""

    at_ns: int
    stat: bytes  # text of /proc/stat
    counters: Mapping[str, int]  # of the whole machine, by name
    khz: Mapping[int, int]  # by CPU, of those whose frequency was read
    throttles: Mapping[int, int]  # by CPU, of those whose count was read


class CopyLook(NamedTuple):
    """What the processes of a running copy have used so far."""

    pid: int
    cpu_ns: int
    bytes_moved: tuple[int, ...] | None  # as `_IO`; None: not read in this turn
    # CPU time of its one process when its bytes were read. It is not known of several processes.
    settled_ns: int | None = None


class EndedUse(NamedTuple):
    """What the kernel counted of a copy's run when it ended."""

    cpu_ns: int
    read_bytes: int  # of disks, as `read_bytes` of /proc/PID/io
    written_bytes: int


class _Ended(NamedTuple):
    """What the earlier runs of a copy in this phase have used."""

    cpu_ns: int
    bytes_moved: tuple[int, ...]


class _Packers(NamedTuple):
    """A packer of each family."""

    cpus: SeriesPacker
    machine: SeriesPacker
    copies: SeriesPacker
    sources: Sequence[SeriesPacker]


class PhaseSampler:
    """The series of one phase; `add`, `add_copies` and `close` may be called from other threads.

    `copies`: their numbers in this phase.
    """

    def __init__(self, sources: Iterable[SeriesSource], copies: Sequence[int]) -> None:
        self._sources = [source for source in sources if source.places]
        self._packers: _Packers | None = None  # made by the first sample
        self._ended = dict.fromkeys(copies, _Ended(0, (0,) * len(_IO)))
        self._places = {copy: place for place, copy in enumerate(self._ended)}
        # The last known numbers of each copy, by column and place.
        self._totals = [[0] * len(self._places) for _ in COPY_COLUMNS]
        self._looks: dict[int, CopyLook] = {}
        self._last_ns: dict[int, int] = {}  # when a copy was looked at
        self._turn = 0
        self._lock = threading.Lock()
        self._over = False
        self.samples = 0

    def read_sources(self) -> list[Sequence[Column]]:
        """Return what the sources say now."""
        return [source.read() for source in self._sources]

    def add(self, sample: MachineSample, readings: Sequence[Sequence[Column]]) -> None:
        """Add a sample of all but the copies; the first one is of the phase's begin.

        `readings`: of the sources, at the same moment.
        """
        ticks = cpu_ticks(sample.stat)
        with self._lock:
            if self._over:
                return
            if self._packers is None:
                columns = tuple(sorted(sample.counters.keys() - {"elapsed_ns"}))
                self._packers = _Packers(
                    cpus=SeriesPacker("cpu", tuple(ticks), CPU_COLUMNS),
                    machine=SeriesPacker("machine", (0,), columns),
                    copies=SeriesPacker("copy", tuple(self._ended), COPY_COLUMNS),
                    sources=[
                        SeriesPacker(source.family, source.places, source.columns)
                        for source in self._sources
                    ],
                )
                nothing = [0] * len(self._ended)
                self._packers.copies.add(sample.at_ns, [nothing] * len(COPY_COLUMNS))
            cpus, machine = self._packers.cpus, self._packers.machine
            cpus.add(sample.at_ns, _cpu_columns(cpus.places, ticks, sample))
            machine.add(sample.at_ns, [[sample.counters.get(name)] for name in machine.columns])
            for packer, columns_of_source in zip(self._packers.sources, readings, strict=True):
                packer.add(sample.at_ns, columns_of_source)
            self.samples += 1

    def look_at(self, copies: Mapping[int, int], now_ns: int) -> dict[int, CopyLook]:
        """Return what running copies (by process) have used, those of which it is known.

        Of some, in turn, children and bytes are looked at.
        """
        looks: dict[int, CopyLook] = {}
        numbers = [*copies.items()]
        first = self._turn * _MOST_LOOKS % max(1, len(numbers))
        self._turn += 1
        for place, (pid, copy) in enumerate(numbers):
            is_due = (place - first) % len(numbers) < _MOST_LOOKS
            before = self._looks.get(copy)
            before = before if before is not None and before.pid == pid else None
            since_ns = now_ns - self._last_ns.get(copy, 0)
            look = look_at_copy(pid, before, since_ns=since_ns, with_bytes=is_due)
            if look is not None:
                looks[copy] = look
        return looks

    def add_copies(
        self, at_ns: int, looks: Mapping[int, CopyLook], running: Collection[int] = ()
    ) -> None:
        """Add a sample of the copies; those `running` that have no look are not known."""
        with self._lock:
            if self._over or self._packers is None:
                return
            without_bytes = []
            cpu_ms = self._totals[0]
            for copy, look in looks.items():
                before = self._looks.get(copy)
                if look is before:  # it has not run since
                    continue
                place = self._places[copy]
                cpu_ms[place] = (self._ended[copy].cpu_ns + look.cpu_ns) // 10**6
                if look.bytes_moved is not None:
                    self._looks[copy] = look
                    self._set_bytes(copy, look.bytes_moved)
                    continue
                without_bytes.append(place)
                moved, settled_ns = None, None
                if before is not None and before.pid == look.pid:
                    _, _, moved, settled_ns = before
                self._looks[copy] = CopyLook(look.pid, look.cpu_ns, moved, settled_ns)
            self._last_ns.update(dict.fromkeys(looks, at_ns))
            unseen = [self._places[copy] for copy in running if copy not in looks]
            columns: list[list[int | None]] = [[*column] for column in self._totals]
            for number, column in enumerate(columns):
                for place in unseen if not number else (*unseen, *without_bytes):
                    column[place] = None
            self._packers.copies.add(at_ns, columns)

    def _set_bytes(self, copy: int, moved: Sequence[int]) -> None:
        """Set what a copy has moved in all; `moved`: in the run that goes on."""
        place = self._places[copy]
        sums = map(add, self._ended[copy].bytes_moved, moved)
        for column, number in zip(self._totals[1:], sums, strict=True):
            column[place] = number

    def copy_ended(self, copy: int, pid: int, use: EndedUse) -> None:
        """Take the end of a copy's run, which used so much in all.

        Bytes of calls are those of the last look: the kernel counts none of them at the end.
        """
        look = self._looks.pop(copy, None)
        ended = self._ended[copy]
        seen = look.bytes_moved if look is not None and look.pid == pid else None
        read, written, *by_calls = seen or (0,) * len(_IO)
        moved = (max(read, use.read_bytes), max(written, use.written_bytes), *by_calls)
        self._ended[copy] = _Ended(ended.cpu_ns + use.cpu_ns, _sums((ended.bytes_moved, moved)))
        self._totals[0][self._places[copy]] = self._ended[copy].cpu_ns // 10**6
        self._set_bytes(copy, (0,) * len(_IO))

    def close(self, phase: int, origin_ns: int) -> tuple[PhaseSeries, ...]:
        """Return the series; nothing of a phase that had no sample between its edges."""
        with self._lock:
            self._over = True
        packers = self._packers
        if packers is None or self.samples < 3:
            return ()
        return tuple(
            packer.finish(phase, origin_ns)
            for packer in (packers.cpus, packers.machine, packers.copies, *packers.sources)
            if packer.places
        )


def _sums(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the sum of each column."""
    return tuple(map(sum, zip(*rows, strict=True)))


def _cpu_columns(
    cpus: Sequence[int], ticks: Mapping[int, tuple[int, ...]], sample: MachineSample
) -> Sequence[Column]:
    """Return the columns of CPUs; those that are offline meanwhile are not known."""
    columns: list[list[int | None]]
    if ticks.keys() >= {*cpus}:
        user, nice, system, idle, iowait, irq, softirq, steal = zip(
            *map(ticks.__getitem__, cpus), strict=True
        )
        busy, interrupted = map(add, user, nice), map(add, irq, softirq)
        columns = [[*column] for column in (busy, system, idle, iowait, interrupted, steal)]
    else:
        rows = (
            (own[0] + own[1], own[2], own[3], own[4], own[5] + own[6], own[7])
            if (own := ticks.get(cpu))
            else (None,) * 6
            for cpu in cpus
        )
        columns = [[*column] for column in zip(*rows, strict=True)]
    if _HUNDREDTHS != 1:
        columns = [
            [None if value is None else round(value * _HUNDREDTHS) for value in column]
            for column in columns
        ]
    nothing: Column = [None] * len(cpus)  # where there are no such files
    mhz = [sample.khz[it] // 1000 if it in sample.khz else None for it in cpus]
    throttles = [sample.throttles.get(cpu) for cpu in cpus] if sample.throttles else nothing
    return [*columns, mhz if sample.khz else nothing, throttles]


def look_at_copy(
    pid: int, before: CopyLook | None, *, since_ns: int, with_bytes: bool
) -> CopyLook | None:
    """Return what a copy's processes have used; None is not known.

    `before`: the last look, so long ago. Unless bytes are due the children of a process are not
    looked at: it must have had the CPU itself. The time of those that were waited for is in ticks.
    A copy of one process that has not run since its bytes were read is as it was.
    """
    own_ns = process_cpu_ns(pid)
    if own_ns is None:
        return None
    if before is not None and before.settled_ns == own_ns:
        return before
    if not with_bytes:
        is_busy = before is not None and own_ns - before.cpu_ns >= _BUSY * since_ns
        return CopyLook(pid, own_ns, None) if is_busy else None
    cpu_ns, moved = 0, list[Sequence[int]]()
    tree = [pid]
    for process in tree:  # which grows
        try:
            stat = read_piece(f"/proc/{process}/stat")
            children = read_piece(f"/proc/{process}/task/{process}/children").split()
        except OSError:  # it has ended meanwhile
            continue
        process_ns = own_ns if process == pid else process_cpu_ns(process)
        cpu_ns += (process_ns or 0) + ticks_of_children(stat) * _TICK_MS * 10**6
        known = [it for it in _numbers_at(f"/proc/{process}/io", _IO) if it is not None]
        if len(known) == len(_IO):  # else it may not be read
            moved.append(known)
        tree += map(int, children[: _MOST_PROCESSES - len(tree)])
    cpu_ns = max(cpu_ns, own_ns, before.cpu_ns if before is not None else 0)
    is_alone = len(tree) == 1 and process_cpu_ns(pid) == own_ns  # nor has it run meanwhile
    return CopyLook(pid, cpu_ns, _sums(moved) if moved else None, own_ns if is_alone else None)
