"""What a run should remember of its host: which machine, and how it is set."""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import resource
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rater.plan.topology import Topology
from rater.record.run import Host, escape_undecodable
from rater.run.host.admission import limiting_groups
from rater.run.host.memory import memory_readings
from rater.run.host.procfs import COUNTING, list_folder, meminfo, read_number, read_text
from rater.settings.known import KNOWN, expand_pattern
from rater.settings.tuner import expand_files
from rater.system.paths import exists
from rater.system.patterns import compile_later
from rater.text import cpuset

# -- What a run should remember of its host: which machine, and how it was set ---------------------
#
# Everything is read from /proc, /sys and /etc, whose places are parameters so that
# tests can show other machines. What does not exist is left out, never guessed.

# The first CPUs are enough; to read those of all 384 of a large machine takes milliseconds.
_SNAPSHOT_CPUINFO_BYTES = 1 << 16
_SELECTED = compile_later(r"\[([^\[\]]+)\]")
# What copies inherit and what may change their speed: loader and C library, allocators, numbers of
# threads, run-time systems and their collectors, locale (sorting, matching), defaults that programs
# read as if they were options, and which programs and compilers are found.
_INHERITED = compile_later(
    r"(LD|LC|MALLOC|MIMALLOC|TCMALLOC|HUGETLB|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|TBB)_\w+|PYTHON\w+|"
    r"(RAYON|NUMEXPR)_NUM_THREADS|TOKIO_WORKER_THREADS|UV_THREADPOOL_SIZE|GLIBC_TUNABLES|"
    r"GO(MAXPROCS|GC|MEMLIMIT|DEBUG)|(JAVA_TOOL|JDK_JAVA|NODE)_OPTIONS|PERL5OPT|RUBYOPT|"
    r"OPENSSL_(CONF|ia32cap|armcap)|XZ_(DEFAULTS|OPT)|GZIP|BZIP2|ZSTD_(CLEVEL|NBTHREADS)|"
    r"LANG|LANGUAGE|POSIXLY_CORRECT|PATH|CC|CXX|FC|(C|CXX|F|CPP|LD)FLAGS"
)


def host_facts(topology: Topology, root: Path = Path("/")) -> Host:
    """Return what identifies this host; `topology` is that of
    `rater.run.host.discover.discover_topology`.

    The fingerprint is SHA-256 over CPU model, microcode and the structure of packages,
    nodes, caches, cores and threads: equal on machines that should perform alike, and
    after a reboot; another one after a microcode update, or when SMT is switched or a
    CPU goes offline. No measured frequency, no name, no memory size goes in. Two
    machines of one type differ in `machine_id_hash`, a keyed hash of /etc/machine-id.
    """
    cpu = _cpuinfo(root)
    vendor = _join_values(cpu, "vendor_id", "CPU implementer")
    model = _join_values(cpu, "model name", "cpu", "Processor") or _arm_parts(cpu)
    microcode = _microcode(cpu, root)
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
    memory = meminfo(root / "proc/meminfo").get("MemTotal")
    dmi = (read_text(root / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name"))
    return Host(
        fingerprint=hashlib.sha256("\n".join(identity).encode()).hexdigest(),
        hostname=read_text(root / "proc/sys/kernel/hostname") or platform.node(),
        machine_id_hash=machine_id(root),
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
    return _microcode(_cpuinfo(root), root)


def machine_id(root: Path = Path("/")) -> str | None:
    """Return an identity of this machine that no other has; None when it has no machine-id.

    machine-id(5) asks that the id itself be kept and a keyed hash be shown.
    """
    text = read_text(root / "etc/machine-id")
    if not text or text == "uninitialized":
        return None
    return hmac.new(text.encode(), b"rater", hashlib.sha256).hexdigest()[:32]


def settings_snapshot(root: Path = Path("/")) -> tuple[tuple[str, str], ...]:
    """Return the settings that change results, as (name, value) pairs sorted by name.

    Values are the kernel's own words; of a choice such as `always [madvise] never`
    the chosen one. `memory.*` are bytes, `load.*` numbers of tasks, `hugepages.*`
    numbers of pages. Some are readings that no two runs share: `rater.settings.known.is_volatile`.
    """
    settings = dict(_settings(root))
    # The kernel writes "(null)" for a list of CPUs that it does not have.
    return tuple(
        sorted((name, value) for name, value in settings.items() if value and value != "(null)")
    )


def environment_snapshot(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables copies inherit that may change their speed, as `env.NAME`, sorted.

    Empty ones are left out; values are Unicode that a database takes.
    """
    return tuple(
        sorted(
            (escape_undecodable(f"env.{name}"), escape_undecodable(value))
            for name, value in environ.items()
            if value and _INHERITED.fullmatch(name)
        )
    )


def _settings(root: Path) -> Iterator[tuple[str, str | None]]:
    begin = str(root).rstrip("/")
    for setting in KNOWN:
        matching_files = expand_files(root, setting.files[0]) if setting.also else []
        if any("policy" in parts for _, parts in matching_files):
            yield setting.also, _describe_policies([root / file for file, _ in matching_files])
            continue
        for file, parts in matching_files:
            path = f"{begin}/{file}"
            yield (
                expand_pattern(setting.also, parts),
                _chosen_value(path) if setting.choices else read_text(path),
            )
    load_averages = (read_text(root / "proc/loadavg") or "").split()
    for window, average in zip(("1min", "5min", "15min"), load_averages, strict=False):
        yield f"load.{window}", average
    yield from memory_readings(root)
    yield from state_facts(root)
    yield "kernel.page_bytes", str(resource.getpagesize())
    yield "libc", libc_version()


def _describe_policies(paths: Sequence[Path]) -> str | None:
    cpus_by_value: dict[str, set[int]] = {}
    for path in paths:
        value = read_text(path)
        if value:
            folder = path.parent
            cpus_text = read_text(folder / "affected_cpus") or folder.name.removeprefix("policy")
            policy_cpus = {int(word) for word in cpus_text.split() if word.isdecimal()}
            cpus_by_value.setdefault(value, set()).update(policy_cpus)
    if len(cpus_by_value) < 2:
        return next(iter(cpus_by_value), None)
    return ", ".join(
        f"{value} (CPUs {cpuset.format_list(cpus_by_value[value])})"
        for value in sorted(cpus_by_value)
    )


def _structure(topology: Topology) -> str:
    lines = [
        f"{pu.os} core {pu.core} package {pu.package} llc {pu.llc} kind {pu.kind}"
        for pu in topology.machine_pus
    ]
    lines += [f"node {node.os} cpus {cpuset.format_list(node.cpus)}" for node in topology.nodes]
    return "\n".join(lines)


def _cpuinfo(root: Path) -> dict[str, list[str]]:
    try:
        with (root / "proc/cpuinfo").open("rb") as file:
            content = file.read(_SNAPSHOT_CPUINFO_BYTES)
    except OSError:
        return {}
    lines = content.decode("utf-8", "replace").splitlines()
    if len(content) == _SNAPSHOT_CPUINFO_BYTES:
        lines.pop()  # cut in the middle
    values_by_key: dict[str, list[str]] = {}
    for line in lines:
        key, colon, value = line.partition(":")
        values = values_by_key.setdefault(key.strip(), [])
        if colon and value.strip() and value.strip() not in values:
            values.append(value.strip())
    return values_by_key


def _microcode(cpuinfo: dict[str, list[str]], root: Path) -> str | None:
    version_file = root / "sys/devices/system/cpu/cpu0/microcode/version"
    return _join_values(cpuinfo, "microcode") or read_text(version_file)


def _join_values(cpuinfo: dict[str, list[str]], *keys: str) -> str | None:
    for key in keys:
        if cpuinfo.get(key):
            return " + ".join(cpuinfo[key])
    return None


def _arm_parts(cpuinfo: dict[str, list[str]]) -> str | None:
    """ARM has no model names, only numbers of implementer, part and variant."""
    parts = _join_values(cpuinfo, "CPU part")
    if parts is None:
        return None
    return f"ARM part {parts} variant {_join_values(cpuinfo, 'CPU variant') or '?'}"


def libc_version() -> str | None:
    """Return name and version of glibc, None for another C library."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        return None


def thp_mode(root: Path = Path("/")) -> str | None:
    """Return the machine's mode of transparent huge pages, or None without any."""
    return _chosen_value(root / "sys/kernel/mm/transparent_hugepage/enabled")


def _chosen_value(path: str | Path) -> str | None:
    text = read_text(path)
    selected = _SELECTED.search(text or "")
    return selected[1] if selected else text


# -- How a machine is set up for measuring, beside its settings: facts by name, as text ------------
#
# Names and values stand beside those of `rater.run.host.facts.settings_snapshot`; what the
# kernel does not tell is left out, never guessed. `/proc` and `/sys` lie below `root`.

_STATE_CPUINFO_BYTES = 1 << 13  # the first CPU with all its flags
_HOTTEST_MC = 127_000  # millidegrees; an eight-bit sensor that is not connected reads so much
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
    `cgroup.cpu_quota` in CPUs and `cgroup.memory_limit_bytes`, the tightest of our groups;
    `cgroup.memory_oom_group` (yes: the kernel kills rater with a copy); `cgroup.isolated_cpus`, of
    isolated partitions; the
    deepest sleep of CPU 0 that is on, `cpu.idle_deepest`, with
    `cpu.idle_latency_us` to wake, and `cpu.latency_limit_us` that PM QoS asks for.
    """
    yield from _idle_states(root)
    swap_bytes = meminfo(root / "proc/meminfo").get("SwapTotal")
    if swap_bytes is not None:
        yield "swap.total_bytes", str(swap_bytes)
    virtualization = _virtualization(root)
    if virtualization is not None:
        yield "virtualization", virtualization
    balloons = list_folder(root / "sys/bus/virtio/drivers/virtio_balloon", "virtio*/features")
    if any(
        (read_text(balloon) or "")[5:6] == "1" for balloon in balloons
    ):  # VIRTIO_BALLOON_F_REPORTING
        yield "virtualization.free_memory", "reported"
    if (root / "run/.containerenv").exists() or (root / ".dockerenv").exists():
        yield "container", "yes"
    if quotas := cpu_quotas(root):
        yield "cgroup.cpu_quota", f"{min(quotas)[0]:g}"
    if in_partitions := _cpus_of_partitions(root):
        yield "cgroup.isolated_cpus", cpuset.format_list(in_partitions)
    memory_groups = [*limiting_groups(root, "memory")]
    if any(read_number(group.folder / "memory.oom.group") == 1 for group in memory_groups):
        yield "cgroup.memory_oom_group", "yes"
    limits = (group.limit("memory") for group in memory_groups)
    if least_limit_bytes := min(
        (limit_bytes for limit_bytes in limits if limit_bytes is not None), default=None
    ):
        yield "cgroup.memory_limit_bytes", str(least_limit_bytes)


_NO_LIMIT_US = 2_000_000_000  # PM_QOS_CPU_LATENCY_DEFAULT_VALUE, linux/pm_qos.h


def _idle_states(root: Path) -> Iterator[tuple[str, str]]:
    states = [
        (latency_us, read_text(state / "name") or state.name)
        for state in list_folder(root / "sys/devices/system/cpu/cpu0/cpuidle", "state*")
        if (latency_us := read_number(state / "latency")) is not None
        and not read_number(state / "disable")
    ]
    if states:
        latency_us, state_name = max(states)
        yield "cpu.idle_deepest", state_name
        yield "cpu.idle_latency_us", str(latency_us)
    with suppress(OSError, struct.error):  # 4 bytes, which are for root
        (limit_us,) = struct.unpack("=i", (root / "dev/cpu_dma_latency").read_bytes()[:4])
        if limit_us < _NO_LIMIT_US:
            yield "cpu.latency_limit_us", str(limit_us)


def present_readings(root: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Yield what only a look at this very moment tells; milliseconds, more with many CPUs.

    CPUs online and those we may use, isolated CPUs that interrupts may go to, the hottest sensor,
    how often CPUs were throttled since the boot, whether irqbalance runs, clocks that there are.
    """
    online = read_text(root / "sys/devices/system/cpu/online")
    if online is not None:
        yield "cpu.online", online
    nodes = list_folder(root / "sys/devices/system/node", "node[0-9]*")
    if nodes:
        yield "nodes", str(len(nodes))
    yield from _process_facts(root)
    policies = list_folder(root / "sys/devices/system/cpu/cpufreq", "policy*/cpuinfo_max_freq")
    highest_khz = {khz for khz in map(read_number, policies) if khz}
    if len(highest_khz) == 1:  # CPUs of several kinds have several
        yield "cpu.hardware_max_khz", str(highest_khz.pop())
    yield from _isolated_interrupts(root)
    yield from _heat_readings(root)
    clocks = read_text(root / "sys/devices/system/clocksource/clocksource0/available_clocksource")
    if clocks is not None:
        yield "clocksource.available", clocks
    process_names = (read_text(path) for path in (root / "proc").glob("[0-9]*/comm"))
    yield "irqbalance", "running" if "irqbalance" in process_names else "not running"
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard_limit != resource.RLIM_INFINITY:
        yield "limit.open_files_hard", str(hard_limit)
    yield from _unmovable_shares(root)


def _process_facts(root: Path) -> Iterator[tuple[str, str]]:
    status = read_text(root / "proc/self/status") or ""
    status_fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    if "Cpus_allowed_list" in status_fields:
        yield "cpu.usable", status_fields["Cpus_allowed_list"].strip()
    if "Uid" in status_fields:
        yield "rater.root", "yes" if status_fields["Uid"].split()[1:2] == ["0"] else "no"
    if "CapEff" in status_fields:
        yield "rater.may_count", "yes" if COUNTING & int(status_fields["CapEff"], 16) else "no"
    devices = list_folder(root / "sys/bus/event_source/devices")
    if devices:  # `cpu`; `cpu_core`, `cpum_cf`, `armv8_pmuv3_0`: without any there is no PMU
        has_counters = any(
            device.name.startswith(("cpu", "armv")) and exists(device / "type")
            for device in devices
        )
        yield "cpu.counters", "yes" if has_counters else "no"


def _virtualization(root: Path) -> str | None:
    try:
        with (root / "proc/cpuinfo").open("rb") as file:
            text = file.read(_STATE_CPUINFO_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith("flags")), None)
    firmware_names = " ".join(
        read_text(root / place) or ""
        for place in (
            "sys/hypervisor/type",
            "sys/class/dmi/id/sys_vendor",
            "sys/class/dmi/id/product_name",
        )
    )
    hypervisor = next((name for word, name in _HYPERVISORS if word in firmware_names.lower()), None)
    if flags is None:  # not x86: only the firmware tells
        return hypervisor
    if "hypervisor" not in flags.split():
        return "none"
    return hypervisor or "a hypervisor"


def cpu_quotas(root: Path = Path("/")) -> list[tuple[float, Path]]:
    """Return the CPU quotas of our cgroups, in CPUs, each with the folder of its cgroup."""
    quotas = []
    for folder, is_v1, _ in limiting_groups(root, "cpu"):
        if is_v1:
            words = [
                read_text(folder / f"cpu.cfs_{parameter}_us") or ""
                for parameter in ("quota", "period")
            ]
        else:
            words = (read_text(folder / "cpu.max") or "").split()
        if len(words) == 2 and all(map(str.isdecimal, words)) and int(words[0]) and int(words[1]):
            quotas.append((int(words[0]) / int(words[1]), folder))
    return quotas


def isolated_cpus(root: Path = Path("/")) -> frozenset[int]:
    """Return the CPUs where the scheduler balances no load: isolated at boot, or by cgroups."""
    return _cpus(read_text(root / "sys/devices/system/cpu/isolated")) | _cpus_of_partitions(root)


def _cpus_of_partitions(root: Path) -> frozenset[int]:
    """Return the CPUs of isolated partitions of cgroups (version 2).

    The topmost cgroup lists those of all partitions since Linux 6.7. Before, a partition lay below
    one partition after another. A container sees its own cgroups only.
    """
    groups = [group.folder for group in limiting_groups(root, "cpuset") if not group.is_v1]
    if not groups:
        return frozenset()
    listed = read_text(groups[-1] / "cpuset.cpus.isolated")
    if listed is not None:
        return _cpus(listed)
    own = (folder for folder in groups if _partition_state(folder) == "isolated")
    isolated = {*own, *_isolated_below(groups[-1])}
    return frozenset().union(
        *(_cpus(read_text(folder / "cpuset.cpus.effective")) for folder in isolated)
    )


def _isolated_below(folder: Path) -> Iterator[Path]:
    """Yield the cgroups of isolated partitions; between them and the top lie partitions alone."""
    for file in list_folder(folder, "*/cpuset.cpus.partition"):
        state = _partition_state(file.parent)
        if state == "isolated":
            yield file.parent
        elif state == "root":
            yield from _isolated_below(file.parent)


def _partition_state(folder: Path) -> str:
    """Return `member`, `root` or `isolated`, and nothing for a partition that is not valid."""
    words = (read_text(folder / "cpuset.cpus.partition") or "").split()
    return words[0] if len(words) == 1 else ""


def _isolated_interrupts(root: Path) -> Iterator[tuple[str, str]]:
    isolated = isolated_cpus(root)
    if not isolated:
        return
    interrupts = sorted(
        path.parent.name
        for path in (root / "proc/irq").glob("[0-9]*/effective_affinity_list")
        if isolated & _cpus(read_text(path))
    )
    yield "irq.on_isolated", str(len(interrupts))


def _cpus(text: str | None) -> frozenset[int]:
    try:
        return frozenset(cpuset.parse_set(text or ""))
    except ValueError:
        return frozenset()


def _heat_readings(root: Path) -> Iterator[tuple[str, str]]:
    chips = (
        chip
        for chip in list_folder(root / "sys/class/hwmon")
        if read_text(chip / "name") in _CPU_CHIPS
    )
    zones = (
        zone
        for zone in list_folder(root / "sys/class/thermal", "thermal_zone*")
        if (read_text(zone / "type") or "").lower().startswith(_CPU_ZONES)
    )
    sensors = (
        *(sensor for chip in chips for sensor in chip.glob("temp*_input")),
        *(zone / "temp" for zone in zones),
    )
    readings = (reading for reading in map(read_number, sensors) if reading is not None)
    millidegrees = [reading for reading in readings if 0 < reading < _HOTTEST_MC]
    if millidegrees:
        yield "temperature.highest_c", f"{max(millidegrees) / 1000:g}"
    yield from _throttle_events(root)


def _throttle_events(root: Path) -> Iterator[tuple[str, str]]:
    count_files = list_folder(
        root / "sys/devices/system/cpu", "cpu[0-9]*/thermal_throttle/*_throttle_count"
    )
    if not count_files:
        return
    core_events = 0
    # Each CPU of a package shows the count of the whole package: the highest one is taken.
    package_events: dict[int | None, int] = {}
    for file in count_files:
        events = read_number(file) or 0
        if file.name.startswith("core"):
            core_events += events
        else:
            package = read_number(file.parents[1] / "topology/physical_package_id")
            package_events[package] = max(package_events.get(package, 0), events)
    yield "throttle.core_events", str(core_events)
    yield "throttle.package_events", str(sum(package_events.values()))


def _unmovable_shares(root: Path) -> Iterator[tuple[str, str]]:
    """Yield by node how many blocks of memory hold what cannot be moved, of how many; for root."""
    blocks_by_node: dict[str, tuple[int, int]] = {}
    migrate_types: list[str] = []  # the columns of the lines below a heading; each node has one
    for line in (read_text(root / "proc/pagetypeinfo") or "").splitlines():
        if line.startswith("Number of blocks type"):
            migrate_types = line.split()[4:]
            continue
        words = line.replace(",", " ").split()
        counts = words[4:]
        if (
            words[:1] != ["Node"]
            or len(counts) != len(migrate_types)
            or not "".join(counts).isdecimal()
        ):
            continue
        count_by_type = dict(zip(migrate_types, map(int, counts), strict=True))
        unmovable, all_blocks = blocks_by_node.get(words[1], (0, 0))
        blocks_by_node[words[1]] = (
            unmovable + count_by_type.get("Unmovable", 0),
            all_blocks + sum(count_by_type.values()),
        )
    for node, (unmovable, all_blocks) in blocks_by_node.items():
        if all_blocks:
            yield f"memory.node{node}.unmovable_share", f"{unmovable / all_blocks:.4f}"
