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
from collections.abc import Iterator, Mapping
from pathlib import Path

from rater.plan.topology.model import Topology
from rater.record.run import Host, storable
from rater.run.host.memory import memory_readings
from rater.run.host.sysfiles import listed, meminfo, read_text
from rater.text import cpuset

_PROC, _SYS, _ETC = Path("/proc"), Path("/sys"), Path("/etc")
_CPUINFO_BYTES = 1 << 16  # the first CPUs tell; all 384 of a large machine take milliseconds
_SELECTED = re.compile(r"\[([^\]]+)\]")
# What copies inherit and what may change their speed: loader and C library, allocators, numbers of
# threads, run-time systems and their collectors, locale (sorting, matching), defaults that programs
# read as if they were options, and which programs and compilers are found.
_INHERITED = re.compile(
    r"(LD|LC|MALLOC|MIMALLOC|TCMALLOC|HUGETLB|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|TBB)_\w+|PYTHON\w+|"
    r"(RAYON|NUMEXPR)_NUM_THREADS|TOKIO_WORKER_THREADS|UV_THREADPOOL_SIZE|GLIBC_TUNABLES|"
    r"GO(MAXPROCS|GC|MEMLIMIT|DEBUG)|(JAVA_TOOL|JDK_JAVA|NODE)_OPTIONS|PERL5OPT|RUBYOPT|"
    r"OPENSSL_(CONF|ia32cap|armcap)|XZ_(DEFAULTS|OPT)|GZIP|BZIP2|ZSTD_(CLEVEL|NBTHREADS)|"
    r"LANG|LANGUAGE|POSIXLY_CORRECT|PATH|CC|CXX|FC|(C|CXX|F|CPP|LD)FLAGS"
)


def host_facts(topology: Topology, proc: Path = _PROC, sys: Path = _SYS, etc: Path = _ETC) -> Host:
    """Return what identifies this host; `topology` is that of `rater.run.host.discover.discover`.

    The fingerprint is SHA-256 over CPU model, microcode and the structure of packages,
    nodes, caches, cores and threads: equal on machines that should perform alike, and
    after a reboot; another one after a microcode update, or when SMT is switched or a
    CPU goes offline. No measured frequency, no name, no memory size goes in. Two
    machines of one type differ in `machine_id_hash`, a keyed hash of /etc/machine-id.
    """
    cpu = _cpuinfo(proc)
    vendor = _joined(cpu, "vendor_id", "CPU implementer")
    model = _joined(cpu, "model name", "cpu", "Processor") or _arm_parts(cpu)
    microcode = _joined(cpu, "microcode") or read_text(
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
    memory = meminfo(proc / "meminfo").get("MemTotal")
    dmi = (read_text(sys / "class/dmi/id" / name) for name in ("sys_vendor", "product_name"))
    return Host(
        fingerprint=hashlib.sha256("\n".join(identity).encode()).hexdigest(),
        hostname=read_text(proc / "sys/kernel/hostname") or platform.node(),
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
    numbers of pages. Some are readings that no two runs share: see `volatile`.
    """
    found = dict(_settings(proc, sys))
    return tuple(sorted((name, value) for name, value in found.items() if value))


def environment_snapshot(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables copies inherit that may change their speed, as `env.NAME`, sorted.

    Empty ones are left out; values are Unicode that a database takes.
    """
    return tuple(
        sorted(
            (storable(f"env.{name}"), storable(value))
            for name, value in environ.items()
            if value and _INHERITED.fullmatch(name)
        )
    )


def _settings(proc: Path, sys: Path) -> Iterator[tuple[str, str | None]]:
    kernel, vm, cpus = proc / "sys/kernel", proc / "sys/vm", sys / "devices/system/cpu"
    yield "kernel.release", read_text(kernel / "osrelease")
    yield "kernel.version", read_text(kernel / "version")
    yield "kernel.cmdline", read_text(proc / "cmdline")
    yield "kernel.numa_balancing", read_text(kernel / "numa_balancing")
    yield "kernel.randomize_va_space", read_text(kernel / "randomize_va_space")
    yield "kernel.nmi_watchdog", read_text(kernel / "nmi_watchdog")
    for name in (
        *("swappiness", "zone_reclaim_mode", "overcommit_memory", "compaction_proactiveness"),
        "min_free_kbytes",  # the kernel changes it when huge pages go on or off
    ):
        yield f"vm.{name}", read_text(vm / name)
    for name, file in (
        ("cpu.governor", "scaling_governor"),
        ("cpu.driver", "scaling_driver"),
        ("cpu.energy_preference", "energy_performance_preference"),
        ("cpu.max_khz", "scaling_max_freq"),
        ("cpu.min_khz", "scaling_min_freq"),
    ):
        yield name, _of_policies(cpus / "cpufreq", file)
    yield "cpu.boost", read_text(cpus / "cpufreq/boost")
    yield "cpu.no_turbo", read_text(cpus / "intel_pstate/no_turbo")
    yield "cpu.smt.control", read_text(cpus / "smt/control")
    yield "cpu.smt.active", read_text(cpus / "smt/active")
    yield "cpu.isolated", read_text(cpus / "isolated")
    yield "cpu.offline", read_text(cpus / "offline")
    for path in listed(cpus / "vulnerabilities"):
        yield f"mitigation.{path.name}", read_text(path)
    yield from _huge_pages(sys)
    clock = sys / "devices/system/clocksource/clocksource0/current_clocksource"
    yield "clocksource", read_text(clock)
    load = (read_text(proc / "loadavg") or "").split()
    for name, text in zip(("1min", "5min", "15min"), load, strict=False):
        yield f"load.{name}", text
    yield from memory_readings(proc, sys)
    yield "libc", _libc()


def _huge_pages(sys: Path) -> Iterator[tuple[str, str | None]]:
    transparent = sys / "kernel/mm/transparent_hugepage"
    for name in ("enabled", "defrag", "shmem_enabled"):
        yield f"thp.{name}", _selected(transparent / name)
    for name in (
        *("defrag", "pages_to_scan", "scan_sleep_millisecs", "alloc_sleep_millisecs"),
        "max_ptes_none",
    ):
        yield f"thp.khugepaged_{name}", read_text(transparent / "khugepaged" / name)
    for path in listed(transparent, "hugepages-*kB"):
        size = path.name.removeprefix("hugepages-")
        yield f"thp.{size}.enabled", _selected(path / "enabled")
        yield f"thp.{size}.shmem_enabled", _selected(path / "shmem_enabled")
    for path in listed(sys / "kernel/mm/hugepages", "hugepages-*kB"):
        size = path.name.removeprefix("hugepages-")
        yield f"hugepages.{size}.overcommit", read_text(path / "nr_overcommit_hugepages")
    for node in listed(sys / "devices/system/node", "node[0-9]*"):
        for path in listed(node / "hugepages", "hugepages-*kB"):
            size = path.name.removeprefix("hugepages-")
            for name, file in (("total", "nr_hugepages"), ("free", "free_hugepages")):
                yield f"hugepages.{node.name}.{size}.{name}", read_text(path / file)


def _of_policies(cpufreq: Path, file: str) -> str | None:
    """Return a value of all CPUs, or `performance (CPUs 0-3), powersave (CPUs 4-7)`."""
    cpus: dict[str, set[int]] = {}
    for policy in listed(cpufreq, "policy[0-9]*"):
        value = read_text(policy / file)
        if value:
            cpus.setdefault(value, set()).update(_policy_cpus(policy))
    if len(cpus) < 2:
        return next(iter(cpus), None)
    return ", ".join(f"{value} (CPUs {cpuset.format_list(cpus[value])})" for value in sorted(cpus))


def _policy_cpus(policy: Path) -> set[int]:
    text = read_text(policy / "affected_cpus") or policy.name.removeprefix("policy")
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


def _machine_id(etc: Path) -> str | None:
    """machine-id(5) asks that the id itself be kept and a keyed hash be shown."""
    text = read_text(etc / "machine-id")
    if not text or text == "uninitialized":
        return None
    return hmac.new(text.encode(), b"rater", hashlib.sha256).hexdigest()[:32]


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # another C library
        return None


def _selected(path: Path) -> str | None:
    text = read_text(path)
    found = _SELECTED.search(text or "")
    return found[1] if found else text
