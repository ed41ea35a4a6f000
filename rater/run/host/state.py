"""How a machine is set up for measuring, beside its settings: facts by name, as text.

Names and values stand beside those of `rater.run.host.snapshot.settings_snapshot`; what the
kernel does not tell is left out, never guessed. `/proc` and `/sys` lie below `root`.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from rater.run.host.requirements import limiting_groups
from rater.run.host.sysfiles import listed, meminfo, read_number, read_text
from rater.text import cpuset

_CPUINFO_BYTES = 1 << 13  # the first CPU with all its flags
_COUNTING = 1 << 38 | 1 << 21  # CAP_PERFMON, CAP_SYS_ADMIN
_HOTTEST_MC = 127_000  # what an eight-bit sensor says when it has nothing to say
# Disks and network cards are hotter than any CPU, and slow no clock of one.
_CPU_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "soc_thermal", "scpi_sensors")
_CPU_ZONES = ("x86_pkg_temp", "cpu")
_HYPERVISORS = (
    *(("kvm", "KVM"), ("qemu", "QEMU"), ("amazon", "Amazon"), ("google", "Google")),
    *(("microsoft", "Hyper-V"), ("vmware", "VMware"), ("xen", "Xen"), ("virtualbox", "VirtualBox")),
)


def state_facts(root: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Yield what is kept with every run: a dozen small files, half a millisecond.

    `swap.total_bytes`; `virtualization` (none, or what the firmware calls the hypervisor);
    `virtualization.free_memory` (reported: it goes back to the host); `container`;
    `cgroup.cpu_quota` in CPUs and `cgroup.memory_limit_bytes`, the tightest of our groups.
    """
    swap = meminfo(root / "proc/meminfo").get("SwapTotal")
    if swap is not None:
        yield "swap.total_bytes", str(swap)
    virtual = _virtualization(root)
    if virtual is not None:
        yield "virtualization", virtual
    if _reports_free_memory(root):
        yield "virtualization.free_memory", "reported"
    if (root / "run/.containerenv").exists() or (root / ".dockerenv").exists():
        yield "container", "yes"
    quotas, limits = [], []
    for folder, is_v1, _ in limiting_groups(root, "cpu"):
        quota = _quota_v1(folder) if is_v1 else _quota_v2(folder)
        quotas += [] if quota is None else [quota]
    for folder, is_v1, _ in limiting_groups(root, "memory"):
        limit = read_number(folder / ("memory.limit_in_bytes" if is_v1 else "memory.max"))
        limits += [] if limit is None or limit >= 1 << 62 else [limit]  # v1: no limit is 2^63
    if quotas:
        yield "cgroup.cpu_quota", f"{min(quotas):g}"
    if limits:
        yield "cgroup.memory_limit_bytes", str(min(limits))


def present_readings(root: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Yield what only a look at this very moment tells; milliseconds, more with many CPUs.

    CPUs online and those we may use, isolated CPUs that interrupts may go to, the hottest sensor,
    how often CPUs were throttled since the boot, whether irqbalance runs, clocks that there are.
    """
    online = read_text(root / "sys/devices/system/cpu/online")
    if online is not None:
        yield "cpu.online", online
    nodes = listed(root / "sys/devices/system/node", "node[0-9]*")
    if nodes:
        yield "nodes", str(len(nodes))
    yield from _of_this_process(root)
    policies = listed(root / "sys/devices/system/cpu/cpufreq", "policy*/cpuinfo_max_freq")
    highest = {khz for khz in map(read_number, policies) if khz}
    if len(highest) == 1:  # CPUs of several kinds have several
        yield "cpu.hardware_max_khz", str(highest.pop())
    yield from _interrupts(root)
    yield from _heat(root)
    clocks = read_text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    if clocks is not None:
        yield "clocksource.available", clocks
    names = (read_text(path) for path in (root / "proc").glob("[0-9]*/comm"))
    yield "irqbalance", "running" if "irqbalance" in names else "not running"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY:
        yield "limit.open_files_hard", str(hard)
    yield from _blocks(root)


def _of_this_process(root: Path) -> Iterator[tuple[str, str]]:
    status = read_text(root / "proc/self/status") or ""
    found = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "Cpus_allowed_list" in found:
        yield "cpu.usable", found["Cpus_allowed_list"].strip()
    if "Uid" in found:
        yield "rater.root", "yes" if found["Uid"].split()[1:2] == ["0"] else "no"
    held = found.get("CapEff", "").strip()
    if held:
        yield "rater.may_count", "yes" if int(held, 16) & _COUNTING else "no"


def _reports_free_memory(root: Path) -> bool:
    """Tell whether a balloon device has agreed to it: VIRTIO_BALLOON_F_REPORTING, bit 5."""
    devices = listed(root / "sys/bus/virtio/drivers/virtio_balloon", "virtio*/features")
    return any((read_text(it) or "")[5:6] == "1" for it in devices)


def _virtualization(root: Path) -> str | None:
    try:
        with (root / "proc/cpuinfo").open("rb") as file:
            text = file.read(_CPUINFO_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    named = " ".join(
        read_text(root / place) or ""
        for place in (
            "sys/hypervisor/type",
            "sys/class/dmi/id/sys_vendor",
            "sys/class/dmi/id/product_name",
        )
    )
    known = next((name for word, name in _HYPERVISORS if word in named.lower()), None)
    if flags is None:  # not x86: only the firmware tells
        return known
    if "hypervisor" not in flags.split():
        return "none"
    return known or "a hypervisor"


def _quota_v2(folder: Path) -> float | None:
    words = (read_text(folder / "cpu.max") or "").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def _quota_v1(folder: Path) -> float | None:
    quota, period = (read_number(folder / f"cpu.cfs_{it}_us") for it in ("quota", "period"))
    return quota / period if quota and period and quota > 0 else None


def _interrupts(root: Path) -> Iterator[tuple[str, str]]:
    isolated = _cpus(read_text(root / "sys/devices/system/cpu/isolated"))
    if not isolated:
        return
    into = sorted(
        path.parent.name
        for path in (root / "proc/irq").glob("[0-9]*/effective_affinity_list")
        if isolated & _cpus(read_text(path))
    )
    yield "irq.on_isolated", str(len(into))


def _cpus(text: str | None) -> frozenset[int]:
    try:
        return frozenset(cpuset.parse_set(text or ""))
    except ValueError:
        return frozenset()


def _heat(root: Path) -> Iterator[tuple[str, str]]:
    chips = (it for it in listed(root / "sys/class/hwmon") if read_text(it / "name") in _CPU_CHIPS)
    zones = (
        it
        for it in listed(root / "sys/class/thermal", "thermal_zone*")
        if (read_text(it / "type") or "").lower().startswith(_CPU_ZONES)
    )
    sensors = (
        *(sensor for chip in chips for sensor in chip.glob("temp*_input")),
        *(zone / "temp" for zone in zones),
    )
    degrees = [it for it in map(read_number, sensors) if it is not None and 0 < it < _HOTTEST_MC]
    if degrees:
        yield "temperature.highest_c", f"{max(degrees) / 1000:g}"
    counts = listed(root / "sys/devices/system/cpu", "cpu[0-9]*/thermal_throttle/*_throttle_count")
    if counts:
        # Each CPU of a package tells the package's count: the highest stands for it.
        cores = sum(read_number(it) or 0 for it in counts if it.name.startswith("core"))
        package = [read_number(it) or 0 for it in counts if it.name.startswith("package")]
        yield "throttle.core_events", str(cores)
        yield "throttle.package_events", str(max(package, default=0))


def _blocks(root: Path) -> Iterator[tuple[str, str]]:
    """Yield by node how many blocks of memory hold what cannot be moved, of how many; for root."""
    found: dict[str, tuple[int, int]] = {}
    kinds: list[str] = []  # the columns of the lines below a heading; each node has one
    for line in (read_text(root / "proc/pagetypeinfo") or "").splitlines():
        if line.startswith("Number of blocks type"):
            kinds = line.split()[4:]
            continue
        words = line.replace(",", " ").split()
        counts = words[4:]
        if words[:1] != ["Node"] or len(counts) != len(kinds) or not "".join(counts).isdecimal():
            continue
        numbers = dict(zip(kinds, map(int, counts), strict=True))
        fixed, every = found.get(words[1], (0, 0))
        found[words[1]] = fixed + numbers.get("Unmovable", 0), every + sum(numbers.values())
    for node, (fixed, every) in found.items():
        if every:
            yield f"memory.node{node}.unmovable_share", f"{fixed / every:.4f}"
