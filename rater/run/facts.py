"""What a run should remember of its host: which machine, and how it was set.

Everything is read from /proc, /sys and /etc, whose places are parameters so that
tests can show other machines. What does not exist is left out, never guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from rater.plan import cpuset
from rater.plan.topology import Topology
from rater.record import Host

_PROC, _SYS, _ETC = Path("/proc"), Path("/sys"), Path("/etc")
_CPUINFO_BYTES = 1 << 16  # the first CPUs tell; all 384 of a large machine take milliseconds
_SELECTED = re.compile(r"\[([^\]]+)\]")


def host_facts(topology: Topology, proc: Path = _PROC, sys: Path = _SYS, etc: Path = _ETC) -> Host:
    """Return what identifies this host; `topology` is that of `rater.run.machine.discover`.

    The fingerprint is SHA-256 over CPU model, microcode and the structure of packages,
    nodes, caches, cores and threads: equal on machines that should perform alike, and
    after a reboot; another one after a microcode update, or when SMT is switched or a
    CPU goes offline. No measured frequency, no name, no memory size goes in. Two
    machines of one type differ in `machine_id_hash`, a keyed hash of /etc/machine-id.
    """
    cpu = _cpuinfo(proc)
    vendor = _joined(cpu, "vendor_id", "CPU implementer")
    model = _joined(cpu, "model name", "cpu", "Processor") or _arm_parts(cpu)
    microcode = _joined(cpu, "microcode") or _read(
        sys / "devices/system/cpu/cpu0/microcode/version"
    )
    architecture = platform.machine()
    pus = topology.machine_pus
    identity = (
        "rater-host-1",
        architecture,
        vendor or "",
        model or "",
        microcode or "",
        _structure(topology),
    )
    memory = _meminfo(proc).get("MemTotal")
    dmi = (_read(sys / "class/dmi/id" / name) for name in ("sys_vendor", "product_name"))
    return Host(
        fingerprint=hashlib.sha256("\n".join(identity).encode()).hexdigest(),
        hostname=_read(proc / "sys/kernel/hostname") or platform.node(),
        machine_id_hash=_machine_id(etc),
        product=" ".join(text for text in dmi if text) or None,
        vendor=vendor,
        cpu_model=model,
        microcode=microcode,
        architecture=architecture,
        memory_bytes=memory,
        pus=len(pus),
        cores=len({pu.core for pu in pus}),
        nodes=len(topology.nodes),
        packages=len({pu.package for pu in pus if pu.package is not None}),
    )


def settings_snapshot(proc: Path = _PROC, sys: Path = _SYS) -> tuple[tuple[str, str], ...]:
    """Return the settings that change results, as (name, value) pairs sorted by name.

    Values are the kernel's own words; of a choice such as `always [madvise] never`
    the chosen one. `memory.*` are bytes, `load.*` numbers of tasks, `hugepages.*`
    numbers of pages.
    """
    found = dict(_settings(proc, sys))
    return tuple(sorted((name, value) for name, value in found.items() if value))


def _settings(proc: Path, sys: Path) -> Iterator[tuple[str, str | None]]:
    kernel, vm, cpus = proc / "sys/kernel", proc / "sys/vm", sys / "devices/system/cpu"
    yield "kernel.release", _read(kernel / "osrelease")
    yield "kernel.version", _read(kernel / "version")
    yield "kernel.cmdline", _read(proc / "cmdline")
    yield "kernel.numa_balancing", _read(kernel / "numa_balancing")
    yield "kernel.randomize_va_space", _read(kernel / "randomize_va_space")
    for name in ("swappiness", "zone_reclaim_mode", "overcommit_memory"):
        yield f"vm.{name}", _read(vm / name)
    for name, file in (
        ("cpu.governor", "scaling_governor"),
        ("cpu.driver", "scaling_driver"),
        ("cpu.energy_preference", "energy_performance_preference"),
        ("cpu.max_khz", "scaling_max_freq"),
    ):
        yield name, _of_policies(cpus / "cpufreq", file)
    yield "cpu.boost", _read(cpus / "cpufreq/boost")
    yield "cpu.no_turbo", _read(cpus / "intel_pstate/no_turbo")
    yield "cpu.smt.control", _read(cpus / "smt/control")
    yield "cpu.smt.active", _read(cpus / "smt/active")
    yield "cpu.isolated", _read(cpus / "isolated")
    yield "cpu.offline", _read(cpus / "offline")
    for path in _listed(cpus / "vulnerabilities"):
        yield f"mitigation.{path.name}", _read(path)
    yield from _huge_pages(sys)
    clock = sys / "devices/system/clocksource/clocksource0/current_clocksource"
    yield "clocksource", _read(clock)
    load = (_read(proc / "loadavg") or "").split()
    for name, text in zip(("1min", "5min", "15min"), load, strict=False):
        yield f"load.{name}", text
    memory = _meminfo(proc)
    for name, key in (
        ("free", "MemFree"),
        ("available", "MemAvailable"),
        ("cached", "Cached"),
        ("swap_free", "SwapFree"),
    ):
        yield f"memory.{name}_bytes", str(memory[key]) if key in memory else None
    yield "libc", _libc()


def _huge_pages(sys: Path) -> Iterator[tuple[str, str | None]]:
    transparent = sys / "kernel/mm/transparent_hugepage"
    for name in ("enabled", "defrag", "shmem_enabled"):
        yield f"thp.{name}", _selected(transparent / name)
    yield "thp.khugepaged_defrag", _read(transparent / "khugepaged/defrag")
    for path in _listed(transparent, "hugepages-*kB"):
        size = path.name.removeprefix("hugepages-")
        yield f"thp.{size}.enabled", _selected(path / "enabled")
    for node in _listed(sys / "devices/system/node", "node[0-9]*"):
        for path in _listed(node / "hugepages", "hugepages-*kB"):
            size = path.name.removeprefix("hugepages-")
            for name, file in (("total", "nr_hugepages"), ("free", "free_hugepages")):
                yield f"hugepages.{node.name}.{size}.{name}", _read(path / file)


def _of_policies(cpufreq: Path, file: str) -> str | None:
    """Return a value of all CPUs, or `performance (CPUs 0-3), powersave (CPUs 4-7)`."""
    cpus: dict[str, set[int]] = {}
    for policy in _listed(cpufreq, "policy[0-9]*"):
        value = _read(policy / file)
        if value:
            cpus.setdefault(value, set()).update(_policy_cpus(policy))
    if len(cpus) < 2:
        return next(iter(cpus), None)
    return ", ".join(f"{value} (CPUs {cpuset.format_list(cpus[value])})" for value in sorted(cpus))


def _policy_cpus(policy: Path) -> set[int]:
    text = _read(policy / "affected_cpus") or policy.name.removeprefix("policy")
    return {int(word) for word in text.split() if word.isdecimal()}


def _structure(topology: Topology) -> str:
    """Return the shape of the whole machine, the same however much of it may be used."""
    lines = [
        f"{pu.os} core {pu.core} package {pu.package} llc {pu.llc} kind {pu.kind}"
        for pu in topology.machine_pus
    ]
    lines += [f"node {node.os} cpus {cpuset.format_list(node.cpus)}" for node in topology.nodes]
    return "\n".join(lines)


def _cpuinfo(proc: Path) -> dict[str, list[str]]:
    """Return the distinct values of each key of /proc/cpuinfo in order of appearance."""
    try:
        with (proc / "cpuinfo").open("rb") as file:
            text = file.read(_CPUINFO_BYTES)
    except OSError:
        return {}
    lines = text.decode("utf-8", "replace").splitlines()
    if len(text) == _CPUINFO_BYTES:
        lines.pop()  # cut in the middle
    found: dict[str, list[str]] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        values = found.setdefault(key.strip(), [])
        if colon and value.strip() and value.strip() not in values:
            values.append(value.strip())
    return found


def _joined(cpuinfo: dict[str, list[str]], *keys: str) -> str | None:
    for key in keys:
        if cpuinfo.get(key):
            return " + ".join(cpuinfo[key])
    return None


def _arm_parts(cpuinfo: dict[str, list[str]]) -> str | None:
    """ARM has no model names, only numbers of implementer, part and variant."""
    parts = _joined(cpuinfo, "CPU part")
    if parts is None:
        return None
    return f"ARM part {parts} variant {_joined(cpuinfo, 'CPU variant') or '?'}"


def _meminfo(proc: Path) -> dict[str, int]:
    """Return the entries of /proc/meminfo that have a unit, in bytes."""
    found: dict[str, int] = {}
    for line in (_read(proc / "meminfo") or "").splitlines():
        key, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if unit == "kB" and number.isdecimal():
            found[key] = int(number) * 1024
    return found


def _machine_id(etc: Path) -> str | None:
    """machine-id(5) asks that the id itself be kept and a keyed hash be shown."""
    text = _read(etc / "machine-id")
    if not text or text == "uninitialized":
        return None
    return hmac.new(text.encode(), b"rater", hashlib.sha256).hexdigest()[:32]


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # another C library
        return None


def _selected(path: Path) -> str | None:
    text = _read(path)
    found = _SELECTED.search(text or "")
    return found[1] if found else text


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _listed(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))
