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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rater.plan.topology.model import Topology
from rater.record.run import Host, storable
from rater.run.host.memory import memory_readings
from rater.run.host.state import state_facts
from rater.run.host.sysfiles import meminfo, read_text
from rater.settings.catalog import expand
from rater.settings.known import KNOWN, fill
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
    microcode = _microcode(cpu, sys)
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
        machine_id_hash=machine_id(etc),
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


def microcode_now(root: Path = Path("/")) -> str | None:
    """Return the revisions of the processors' microcode, ` + ` between those that differ."""
    return _microcode(_cpuinfo(root / "proc"), root / "sys")


def machine_id(etc: Path = _ETC) -> str | None:
    """Return what tells this machine from all others, None where nothing does.

    machine-id(5) asks that the id itself be kept and a keyed hash be shown.
    """
    text = read_text(etc / "machine-id")
    if not text or text == "uninitialized":
        return None
    return hmac.new(text.encode(), b"rater", hashlib.sha256).hexdigest()[:32]


def settings_snapshot(root: Path = Path("/")) -> tuple[tuple[str, str], ...]:
    """Return the settings that change results, as (name, value) pairs sorted by name.

    Values are the kernel's own words; of a choice such as `always [madvise] never`
    the chosen one. `memory.*` are bytes, `load.*` numbers of tasks, `hugepages.*`
    numbers of pages. Some are readings that no two runs share: `rater.settings.known.volatile`.
    """
    found = dict(_settings(root))
    # "(null)": a list of CPUs that the kernel does not have
    return tuple(
        sorted((name, value) for name, value in found.items() if value and value != "(null)")
    )


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


def _settings(root: Path) -> Iterator[tuple[str, str | None]]:
    for one in KNOWN:
        found = expand(root, one.files[0]) if one.also else []
        if any("policy" in parts for _, parts in found):
            yield one.also, _of_policies([root / file for file, _ in found])
            continue
        for file, parts in found:
            path = root / file
            yield fill(one.also, parts), _selected(path) if one.choices else read_text(path)
    load = (read_text(root / "proc/loadavg") or "").split()
    for name, text in zip(("1min", "5min", "15min"), load, strict=False):
        yield f"load.{name}", text
    yield from memory_readings(root / "proc", root / "sys")
    yield from state_facts(root)
    yield "libc", _libc()


def _of_policies(paths: Sequence[Path]) -> str | None:
    """Return a value of all CPUs, or `performance (CPUs 0-3), powersave (CPUs 4-7)`."""
    cpus: dict[str, set[int]] = {}
    for path in paths:
        value = read_text(path)
        if value:
            cpus.setdefault(value, set()).update(_policy_cpus(path.parent))
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


def _microcode(cpuinfo: dict[str, list[str]], sys: Path) -> str | None:
    of_first = sys / "devices/system/cpu/cpu0/microcode/version"
    return _joined(cpuinfo, "microcode") or read_text(of_first)


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


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):  # another C library
        return None


def _selected(path: Path) -> str | None:
    text = read_text(path)
    found = _SELECTED.search(text or "")
    return found[1] if found else text
