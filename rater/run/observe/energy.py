"""Energy that the machine counts: powercap (RAPL), perf's `power` PMU, or hwmon, the first it has.

Counters of joules since some moment, of which only the growth is of use. Those of powercap
wrap around (65 kJ or 262 kJ on Intel): a reader that comes too seldom counts too little. Arm
servers tell power alone: samples of it are added up, which is an estimate.

Formats: Documentation/power/powercap/powercap.rst, hwmon/sysfs-interface.rst and
Documentation/ABI/testing/sysfs-bus-event_source-devices-events of the kernel.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct

from rater.run.host.procfs import list_folder, read_number, read_text
from rater.run.observe.perf import PerfEvent, perf_event_open, perf_refusal
from rater.system.patterns import compile_later
from rater.text.cpuset import parse_list

# Numbers are hexadecimal. Not intel-rapl-mmio, which counts the same once more.
_ZONE = compile_later(r"intel-rapl(:[0-9a-f]+)+")
_OF_PACKAGE = compile_later(r"package-([0-9]{1,9})(.*)")
# Of amd_energy, which has a counter for each core too.
_SOCKET = compile_later(r"Esocket([0-9]{1,9})")
_PERF_NAMES = {
    "energy-pkg": "",
    "energy-ram": "dram",
    "energy-cores": "core",
    "energy-gpu": "uncore",
    "energy-psys": "psys",
}
_PSYS = "psys"
_HIGHEST_W = 2000.0  # that a domain may draw: how soon its counter can wrap follows from it
# Power by socket: of NVIDIA Grace (power1_oem_info of ACPI meters; "Grace" is all of a socket)
# and of xgene_hwmon (power*_label), which has a chip for each socket.
_POWER_OF_SOCKET = compile_later(r"(Grace|CPU|SysIO|Module) Power Socket ([0-9]{1,9})")
_POWER_OF_CHIP = {"CPU power": "", "IO power": "-io"}
_SAMPLED = "hwmon power"
_MOVES_WITHIN_S = 0.01  # a counter that works
_SAMPLED_S = 0.5  # between two samples of power; meters average over 50 ms to 1 s themselves

type OpenEvent = Callable[[int, int, int], int]  # type, config, CPU: a descriptor, or OSError


def _leave_nothing_open() -> None:
    """Close nothing: a file is opened for each reading."""


class EnergyDomain(Struct, frozen=True, kw_only=True):
    """One counter of energy; `read` returns microjoules, and raises OSError or ValueError.

    Names are the same for all sources: `package-0` (hwloc's number), `package-0-die-1`, below one
    `package-0-dram`, `-core`, `-uncore`; `psys` is all of the machine.
    """

    name: str
    place: str  # where it is read
    read: Callable[[], int]
    range_uj: int | None = None  # where the counter wraps around; None for one that never does
    close: Callable[[], None] = _leave_nothing_open  # nobody reads it any more


class EnergySource(Struct, frozen=True):
    """The domains of one source; `refused` says why some cannot be read, and the way out."""

    name: str  # powercap, perf, hwmon, hwmon power
    domains: tuple[EnergyDomain, ...]
    refused: str | None = None

    def close(self) -> None:
        """Close what its counters hold open."""
        for domain in self.domains:
            domain.close()

    @property
    def every_s(self) -> float:
        """How often it has to be read at least: power to be sampled, counters before they wrap."""
        return _SAMPLED_S if self.name == _SAMPLED else longest_wait_s(self.domains)


def grown_uj(before_uj: int, now_uj: int, range_uj: int | None) -> int | None:
    """Return the growth of a counter that wrapped at most once; None when it was reset."""
    if now_uj >= before_uj:
        return now_uj - before_uj
    return None if range_uj is None else now_uj + range_uj - before_uj


def longest_wait_s(domains: Iterable[EnergyDomain]) -> float:
    """Return how long counters may go unread: half of the time in which one could wrap around."""
    ranges = (domain.range_uj for domain in domains if domain.range_uj)
    return min((range_uj / 1e6 / _HIGHEST_W / 2 for range_uj in ranges), default=math.inf)


def energy_sources(
    root: Path, open_event: OpenEvent | None = None, clock_s: Callable[[], float] = time.monotonic
) -> Iterator[EnergySource]:
    """Yield the sources of the machine below `root`, best first; empty ones are left out.

    `open_event` opens a counter of a PMU; without it the kernel's, of this machine only. `clock_s`
    tells when power was sampled.
    """
    packages = _packages(root)
    sources = (
        _powercap(root, packages),
        _perf(root, packages, open_event or (_open_event if root == Path("/") else None)),
        _hwmon(root, packages),
        _hwmon_power(root, packages, clock_s),
    )
    return (source for source in sources if source.domains or source.refused)


class EnergyReader:
    """Reads the counters of the first source that has some, for a run; safe to use in threads."""

    def __init__(
        self,
        root: Path,
        open_event: OpenEvent | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        sources = list(energy_sources(root, open_event, clock_s))
        usable = [source for source in sources if source.domains]
        self.source = usable[0] if usable else None
        for source in usable[1:]:
            source.close()
        refused = [source.refused for source in sources if source.refused]
        # One refusal is enough, and none is reported when another source can be read.
        self._notes = refused[:1] if not usable or usable[0].refused else []
        domains = self.source.domains if self.source else ()
        if self.source is not None and self.source.name == _SAMPLED:
            self._notes.append(
                "energy is an estimate: this machine tells its power alone, which is sampled every "
                f"{_SAMPLED_S:g} s"
            )
        self._left = {domain.name: domain for domain in domains}
        self._last: dict[str, int] = {}
        self._total: dict[str, int] = {}
        self._lock = threading.Lock()
        # How often it has to be read at least.
        self.every_s = self.source.every_s if self.source else math.inf

    def read(self) -> dict[str, int]:
        """Return microjoules since the first reading by domain, of those that can still be read."""
        with self._lock:
            for name, domain in list(self._left.items()):
                try:
                    now_uj = domain.read()
                    more_uj = grown_uj(self._last.get(name, now_uj), now_uj, domain.range_uj)
                except (OSError, ValueError):
                    more_uj = None
                if more_uj is None:
                    self._drop(domain)
                    continue
                self._last[name] = now_uj
                self._total[name] = self._total.get(name, 0) + more_uj
            return dict(self._total)

    def _drop(self, domain: EnergyDomain) -> None:
        del self._left[domain.name]
        self._total.pop(domain.name, None)
        self._notes.append(
            f"energy of {domain.name} is not known from here on: {domain.place} cannot be read any "
            "more, or began anew"
        )

    def close(self) -> None:
        """Close the counters: none is read any more."""
        with self._lock:
            self._left.clear()
            if self.source is not None:
                self.source.close()

    def take_notes(self) -> list[str]:
        """Return the notes for people since the last call."""
        with self._lock:
            notes, self._notes = self._notes, []
            return notes

    async def keep_up(self) -> None:
        """Read so often that no counter wraps around unseen, until cancelled; in a thread."""
        while self._left and self.every_s < math.inf:
            await trio.sleep(self.every_s)
            await trio.to_thread.run_sync(self.read, abandon_on_cancel=True)


def idle_watts_by_domain(
    reader: EnergyReader,
    seconds: float,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> dict[str, float]:
    """Return what each domain draws on the average while nothing of a run has begun.

    Those that do not move are left out: they count nothing.
    """
    reader.read()
    begin_s = clock_s()
    while (left_s := begin_s + seconds - clock_s()) > 0:
        sleep(min(left_s, reader.every_s))
        grown_uj = reader.read()
    elapsed_s = clock_s() - begin_s
    return {name: uj / 1e6 / elapsed_s for name, uj in grown_uj.items() if uj}


# -- sources -----------------------------------------------------------------------------------


def _packages(root: Path) -> dict[int, int]:
    first_cpu: dict[int, int] = {}
    for file in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/topology/physical_package_id"):
        package, cpu = read_number(file), int(file.parts[-3].removeprefix("cpu"))
        if package is not None:
            first_cpu[package] = min(cpu, first_cpu.get(package, cpu))
    return {
        package: rank for rank, package in enumerate(sorted(first_cpu, key=first_cpu.__getitem__))
    }


def _reader_of_file(path: Path) -> Callable[[], int]:
    return lambda: int(path.read_text())


def _keep_readable(domains: Iterable[EnergyDomain]) -> tuple[tuple[EnergyDomain, ...], bool]:
    usable_by_name: dict[str, EnergyDomain] = {}
    is_forbidden = False
    for domain in domains:
        try:
            domain.read()
        except (OSError, ValueError) as error:
            is_forbidden |= isinstance(error, PermissionError)
            domain.close()
        else:
            usable_by_name.setdefault(domain.name, domain)
    return tuple(usable_by_name.values()), is_forbidden


def _make_source(name: str, domains: Iterable[EnergyDomain], files: Path) -> EnergySource:
    usable, is_forbidden = _keep_readable(domains)
    explanation = (
        f"energy is not known: {files} can be read by root alone; `sudo chmod a+r {files}` lets "
    )
    refused = f"{explanation}everybody read it until the next boot" if is_forbidden else None
    return EnergySource(name, usable, refused)


def _powercap(root: Path, packages: dict[int, int]) -> EnergySource:
    folder = root / "sys/class/powercap"
    zones = {
        folder_of_zone.name: folder_of_zone
        for folder_of_zone in list_folder(folder)
        if _ZONE.fullmatch(folder_of_zone.name)
    }

    def name_of(zone: str) -> str:
        zone_name = read_text(zones[zone] / "name") or zone
        parent_zone = zone.rpartition(":")[0]
        return (
            f"{name_of(parent_zone)}-{zone_name}"
            if parent_zone in zones
            else _renumber_package(zone_name, packages)
        )

    domains = (
        EnergyDomain(
            name=name_of(zone),
            place=str(zone_folder / "energy_uj"),
            read=_reader_of_file(zone_folder / "energy_uj"),
            range_uj=read_number(zone_folder / "max_energy_range_uj"),
        )
        for zone, zone_folder in zones.items()
    )
    return _make_source("powercap", domains, folder / "intel-rapl:*/energy_uj")


def _renumber_package(name: str, packages: dict[int, int]) -> str:
    match = _OF_PACKAGE.fullmatch(name)
    return f"package-{packages.get(int(match[1]), int(match[1]))}{match[2]}" if match else name


def _perf(root: Path, packages: dict[int, int], open_event: OpenEvent | None) -> EnergySource:
    pmu = root / "sys/bus/event_source/devices/power"
    pmu_type, cpus = read_number(pmu / "type"), read_text(pmu / "cpumask")
    domains: list[EnergyDomain] = []
    refused = None
    if pmu_type is not None and cpus is not None and open_event is not None:
        try:
            # One by one: those that were opened before an error are closed.
            domains.extend(_perf_domains(root, pmu_type, parse_list(cpus), packages, open_event))
        except (OSError, ValueError) as error:  # else: no such counter on this processor
            if isinstance(error, PermissionError):
                reason, remedy = perf_refusal(error, 0, root)
                refused = f"energy is not known: {reason}; {remedy}"
            for domain in domains:
                domain.close()
            domains = []
    return EnergySource("perf", tuple(_keep_moving(_keep_readable(domains)[0])), refused)


def _keep_moving(domains: Iterable[EnergyDomain]) -> Iterator[EnergyDomain]:
    """Leave out events that count nothing, as those of virtual machines.

    An event counts from its opening on, and moves every millisecond. Graphics may draw nothing.
    """
    until_s = time.monotonic() + _MOVES_WITHIN_S
    for domain in domains:
        while not domain.read() and time.monotonic() < until_s:
            time.sleep(_MOVES_WITHIN_S / 20)
        if domain.read() or domain.name.endswith("-uncore"):
            yield domain
        else:
            domain.close()


def _perf_domains(
    root: Path, pmu_type: int, cpus: Iterable[int], packages: dict[int, int], open_event: OpenEvent
) -> Iterator[EnergyDomain]:
    events = root / "sys/bus/event_source/devices/power/events"
    dies_by_package: Counter[int] = Counter()  # a CPU of each is in the mask
    for position, cpu in enumerate(cpus):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        package = packages.get(read_number(topology / "physical_package_id") or 0, 0)
        package_name = f"package-{package}" + (
            f"-die-{dies_by_package[package]}" if dies_by_package[package] else ""
        )
        dies_by_package[package] += 1
        for event, part in _PERF_NAMES.items():
            config = re.fullmatch(r"event=(0x[0-9a-f]+)", read_text(events / event) or "")
            scale = read_text(events / f"{event}.scale")
            if config is None or scale is None or (part == _PSYS and position):
                continue
            name = part if part == _PSYS else f"{package_name}-{part}" if part else package_name
            descriptor = open_event(pmu_type, int(config[1], 16), cpu)
            yield EnergyDomain(
                name=name,
                place=f"power/{event}/",
                read=_reader_of_event(descriptor, float(scale)),
                close=partial(os.close, descriptor),
            )


def _reader_of_event(descriptor: int, scale_j: float) -> Callable[[], int]:
    return lambda: round(int.from_bytes(os.read(descriptor, 8), "little") * scale_j * 1e6)


def _open_event(pmu_type: int, config: int, cpu: int) -> int:
    return perf_event_open(PerfEvent(pmu_type, config), cpu=cpu)


def _hwmon(root: Path, packages: dict[int, int]) -> EnergySource:
    folder = root / "sys/class/hwmon"

    def domains() -> Iterator[EnergyDomain]:
        for file in list_folder(folder, "hwmon*/energy*_input"):
            chip = read_text(file.parent / "name") or file.parent.name
            label = read_text(file.with_name(file.name.replace("_input", "_label"))) or ""
            socket = _SOCKET.fullmatch(label)
            if socket is None and label.startswith("Ecore"):
                continue
            package = int(socket[1]) if socket else 0
            name = (
                f"package-{packages.get(package, package)}"
                if socket
                else f"{chip}-{label or file.name.removesuffix('_input')}"
            )
            yield EnergyDomain(name=name, place=str(file), read=_reader_of_file(file))

    return _make_source("hwmon", domains(), folder / "hwmon*/energy*_input")


class _PowerMeter:
    """Adds up the power of a file: between two samples it was their mean."""

    def __init__(self, path: Path, clock_s: Callable[[], float]) -> None:
        self._read_uw, self._clock_s = _reader_of_file(path), clock_s
        self._last: tuple[float, int] | None = None  # when, and microwatts
        self._total_uj = 0.0

    def read(self) -> int:
        power_uw, now_s = self._read_uw(), self._clock_s()
        if self._last is not None:
            last_s, last_uw = self._last
            self._total_uj += (last_uw + power_uw) / 2 * (now_s - last_s)
        self._last = now_s, power_uw
        return round(self._total_uj)


def _hwmon_power(
    root: Path, packages: dict[int, int], clock_s: Callable[[], float]
) -> EnergySource:
    folder = root / "sys/class/hwmon"
    chips = list_folder(folder, "hwmon*")
    domains = (
        EnergyDomain(name=name, place=str(file), read=_PowerMeter(file, clock_s).read)
        for name, file in (*_power_of_sockets(chips, packages), *_power_of_chips(chips, packages))
    )
    return _make_source(_SAMPLED, domains, folder / "hwmon*/power*")


def _power_of_sockets(
    chips: Iterable[Path], packages: dict[int, int]
) -> Iterator[tuple[str, Path]]:
    """Yield the power of sockets by the name of the domain; the package has a socket's whole power.

    Where a socket has no meter for all of it, that of its CPU is the package's.
    """
    files: dict[int, dict[str, Path]] = {}
    for chip in chips:
        label = read_text(chip / "device/power1_oem_info") or ""
        if meter := _POWER_OF_SOCKET.fullmatch(label):
            files.setdefault(int(meter[2]), {})[meter[1]] = chip / "device/power1_average"
    for socket, file_by_rail in sorted(files.items()):
        whole = "Grace" if "Grace" in file_by_rail else "CPU"
        for rail, file in sorted(file_by_rail.items()):
            part = "" if rail == whole else f"-{rail.lower()}"
            yield f"package-{packages.get(socket, socket)}{part}", file


def _power_of_chips(chips: Iterable[Path], packages: dict[int, int]) -> Iterator[tuple[str, Path]]:
    seen: Counter[str] = Counter()
    for chip in chips:
        for file in list_folder(chip, "power*_input"):
            label = read_text(file.with_name(file.name.replace("_input", "_label"))) or ""
            if label in _POWER_OF_CHIP:
                socket = seen[label]
                seen[label] += 1
                yield f"package-{packages.get(socket, socket)}{_POWER_OF_CHIP[label]}", file
