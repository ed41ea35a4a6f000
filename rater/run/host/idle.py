"""Between phases: wait until the machine is back in its state from before the first phase.

It is back when others keep no more CPUs busy than then, every temperature is within 3 degrees
of its baseline (krun's rule: Barrett et al., "Virtual machine warmup blows hot and
cold", OOPSLA 2017), and a CPU given work runs at no less than 0.9 of its frequency.
An idle CPU's frequency says nothing: it is low when all is well and may still be
high after work, so a CPU of each package is kept busy for a moment and read then.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import trio
from msgspec import Struct

from rater.run.host.foreign_load import machine_times
from rater.run.host.procfs import read_number
from rater.run.host.thread_binding import on_cpu

DEFAULT_MAX_S = 300.0
_SYS = Path("/sys")
_BASELINE_S = 1.0
_POLL_S = 0.5
_WARMER_C = 3.0
_HOTTEST_C = 127.0  # an eight-bit sensor that is not connected reads so much
_LEAST_FREQUENCY = 0.9
# Load counts in CPUs, not as a share of all: one busy PU of 256 is one too many. What is tolerated
# grows a little with the machine, as the noise of its daemons and of counting by ticks does.
_MORE_CPUS, _MORE_SHARE = 0.1, 0.002
_BUSY_CPUS, _BUSY_SHARE = 0.25, 0.005  # a baseline above this is not that of an idle machine
_AWAKE_S = 0.05  # long enough for a governor to answer
_NAMED = 3


class _Times(Struct, frozen=True):
    at_s: float
    busy_s: float
    own_s: float
    cpus: int


class IdleWatch:
    """Measures the machine before the first phase and waits until it is in that state again.

    `cpus` are those the run uses (OS numbers). Frequencies lie below
    `sys`; `temperatures` returns degrees Celsius by sensor, `own_cpu_s` our own CPU
    time in seconds, `keep_awake` keeps a CPU busy for a moment, if it can.
    """

    def __init__(
        self,
        cpus: Iterable[int],
        *,
        max_s: float = DEFAULT_MAX_S,
        sys: Path = _SYS,
        temperatures: Callable[[], Mapping[str, float]] | None = None,
        own_cpu_s: Callable[[], float] | None = None,
        keep_awake: Callable[[int], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = trio.sleep,
    ) -> None:
        self._max_s = max_s
        self._temperatures = temperatures or hottest_by_sensor
        self._own_cpu_s = own_cpu_s or _own_cpu_s
        self._keep_awake = keep_awake or _spin_on
        self._clock = clock
        self._sleep = sleep
        self._frequencies = _frequency_files(sys, cpus)
        self._busy_cpus: float | None = None
        self._temperature_c: Mapping[str, float] = {}
        self._khz: Mapping[int, int] = {}

    async def take_baseline(self) -> tuple[str, ...]:
        """Sample the machine for a second; return what a person should know of it, in words."""
        before = self._times()
        earlier = await trio.to_thread.run_sync(self._temperatures)
        await self._sleep(_BASELINE_S)
        after = self._times()
        later = await trio.to_thread.run_sync(self._temperatures)
        self._busy_cpus = _others_busy(before, after)
        self._temperature_c = {
            sensor: max(celsius, earlier.get(sensor, celsius)) for sensor, celsius in later.items()
        }
        self._khz = await trio.to_thread.run_sync(self._awake_khz)
        return tuple(self._remarks(after))

    async def wait(self, report: Callable[[str], None] | None = None) -> str | None:
        """Wait until load, temperatures and frequency are back; say it when `max_s` was too short.

        `report` is called at every poll with what is not back yet. Can be cancelled.
        """
        begin_s = self._clock()
        if self._busy_cpus is None and not self._temperature_c and not self._khz:
            return None
        before = self._times()
        while True:
            await self._sleep(_POLL_S)
            after = self._times()
            missing = await trio.to_thread.run_sync(self._not_back, before, after)
            before = after
            waited_s = self._clock() - begin_s
            if not missing:
                return None
            if waited_s >= self._max_s:
                still = ", ".join(missing)
                return f"--until-idle: went on after {waited_s:.0f} s although {still}"
            if report is not None:
                report(", ".join(missing))

    # -- sampling -----------------------------------------------------------------------------

    def _times(self) -> _Times | None:
        machine = machine_times()
        if machine is None:
            return None
        busy_s = machine.busy_s + machine.stolen_s
        return _Times(self._clock(), busy_s, self._own_cpu_s(), machine.cpus)

    def _awake_khz(self) -> dict[int, int]:
        khz_by_cpu = {}
        for cpu, path in self._frequencies.items():
            self._keep_awake(cpu)
            khz = read_number(path)
            if khz:
                khz_by_cpu[cpu] = khz
        return khz_by_cpu

    # -- comparing ----------------------------------------------------------------------------

    def _remarks(self, times: _Times | None) -> Iterable[str]:
        shown_by_name = {
            "load": self._busy_cpus is not None,
            "temperatures": bool(self._temperature_c),
            "CPU frequency": bool(self._khz),
        }
        lacking = " and no ".join(name for name, is_shown in shown_by_name.items() if not is_shown)
        if lacking:
            shown = " and ".join(name for name, is_shown in shown_by_name.items() if is_shown)
            goes_by = f"it goes by {shown} alone" if shown else "it can not wait for anything"
            yield f"--until-idle: this machine shows no {lacking}: {goes_by}"
        if times is not None and self._busy_cpus is not None:
            limit = max(_BUSY_CPUS, _BUSY_SHARE * times.cpus)
            if self._busy_cpus >= limit:
                yield (
                    f"--until-idle: the machine was not idle before the first phase (others kept "
                    f"{self._busy_cpus:.1f} CPUs busy): phases wait for that, not for less"
                )

    def _not_back(self, before: _Times | None, after: _Times | None) -> list[str]:
        missing = self._too_busy(before, after) + self._too_warm()
        # The frequency comes last: to read it makes a CPU work.
        return missing or self._too_slow()

    def _too_busy(self, before: _Times | None, after: _Times | None) -> list[str]:
        busy_cpus = _others_busy(before, after)
        if busy_cpus is None or after is None or self._busy_cpus is None:
            return []
        if busy_cpus <= self._busy_cpus + max(_MORE_CPUS, _MORE_SHARE * after.cpus):
            return []
        return [
            f"others keep {busy_cpus:.1f} CPUs busy ({self._busy_cpus:.1f} before the first phase)"
        ]

    def _too_warm(self) -> list[str]:
        now_c = self._temperatures() if self._temperature_c else {}
        too_warm = sorted(
            (before_c - now_c[sensor], sensor)
            for sensor, before_c in self._temperature_c.items()
            if sensor in now_c and now_c[sensor] - before_c > _WARMER_C
        )
        texts = [
            f"{sensor} is at {now_c[sensor]:.0f} °C ({self._temperature_c[sensor]:.0f} before)"
            for _, sensor in too_warm[:_NAMED]
        ]
        if len(too_warm) > _NAMED:
            texts.append(f"{len(too_warm) - _NAMED} more sensors are too warm")
        return texts

    def _too_slow(self) -> list[str]:
        now_khz = self._awake_khz() if self._khz else {}
        return [
            f"CPU {cpu} runs at {now_khz[cpu] / 1e6:.2f} GHz ({before_khz / 1e6:.2f} before)"
            for cpu, before_khz in self._khz.items()
            if cpu in now_khz and now_khz[cpu] < _LEAST_FREQUENCY * before_khz
        ]


async def cool_down(
    cooldown_s: float,
    watch: IdleWatch | None,
    *,
    report: Callable[[str], None] | None = None,
    sleep: Callable[[float], Awaitable[object]] = trio.sleep,
) -> str | None:
    """Sleep `cooldown_s` seconds, then wait for `watch` if there is one. Can be cancelled."""
    if cooldown_s > 0:
        await sleep(cooldown_s)
    return await watch.wait(report) if watch is not None else None


def hottest_by_sensor() -> dict[str, float]:
    """Return degrees Celsius by sensor; of sensors of one name (two packages) the highest.

    Zero and less, or 127 and more, is what sensors tell that are not connected.
    """
    import psutil  # noqa: PLC0415 - 9 ms, and few runs wait for a machine at rest

    celsius_by_sensor: dict[str, float] = {}
    for chip, sensors in psutil.sensors_temperatures().items():
        for sensor in sensors:
            if 0 < sensor.current < _HOTTEST_C:
                name = f"{chip} {sensor.label}".strip()
                celsius_by_sensor[name] = max(
                    sensor.current, celsius_by_sensor.get(name, sensor.current)
                )
    return celsius_by_sensor


def _others_busy(before: _Times | None, after: _Times | None) -> float | None:
    if before is None or after is None or after.at_s <= before.at_s:
        return None
    busy_s = after.busy_s - before.busy_s
    return max(0.0, (busy_s - (after.own_s - before.own_s)) / (after.at_s - before.at_s))


def _own_cpu_s() -> float:
    return sum(os.times()[:4])  # ours and that of children that ended


def _frequency_files(sys: Path, cpus: Iterable[int]) -> dict[int, Path]:
    """Return the file of one CPU of each package that tells its frequency: heat is of a package."""
    file_by_package: dict[int | None, tuple[int, Path]] = {}
    for cpu in sorted(cpus):
        folder = sys / f"devices/system/cpu/cpu{cpu}"
        package = read_number(folder / "topology/physical_package_id")
        frequency_file = folder / "cpufreq/scaling_cur_freq"
        if package not in file_by_package and frequency_file.exists():
            file_by_package[package] = (cpu, frequency_file)
    return dict(file_by_package.values())


def _spin_on(cpu: int) -> None:
    """Keep a CPU busy for a moment, in the calling thread, if we may run there."""
    with on_cpu(cpu):
        end_s = time.perf_counter() + _AWAKE_S
        while time.perf_counter() < end_s:
            pass
