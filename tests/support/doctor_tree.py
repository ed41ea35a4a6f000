"""A tree of plain files with a machine that is fit to be measured: two nodes, eight CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.settings_tree import CPUFREQ, CPUS, THP

NODES = "sys/devices/system/node"
CLOCKS = "sys/devices/system/clocksource/clocksource0"
CGROUP = "sys/fs/cgroup/job"
_CPU = "processor\t: {n}\nvendor_id\t: GenuineIntel\nmicrocode\t: 0x2b\nflags\t\t: fpu sse2 avx\n\n"
FIT = {
    "proc/cpuinfo": "".join(_CPU.format(n=number) for number in range(8)),
    "proc/meminfo": "MemTotal: 67108864 kB\nMemFree: 60000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    "Hugepagesize: 2048 kB",
    "proc/loadavg": "0.00 0.01 0.05 1/200 4000",
    "proc/cmdline": "quiet isolcpus=2-7 nohz_full=2-7",
    "proc/self/status": "Uid:\t1000\t1000\t1000\t1000\nCapEff:\t0000000000000000\n"
    "Cpus_allowed_list:\t0-7",
    "proc/self/cgroup": "0::/job",
    "proc/self/mountinfo": "30 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "proc/buddyinfo": "Node 0, zone   Normal      0      0      0      0      0      0      0"
    "      0      0      0   7000\n"
    "Node 1, zone   Normal      0      0      0      0      0      0      0      0      0      0"
    "   7000",
    "proc/pagetypeinfo": "".join(
        f"Free pages count per migrate type at order       0      1\n"
        f"Node    {number}, zone   Normal, type    Unmovable    100    200\n"
        f"Number of blocks type     Unmovable      Movable  Reclaimable\n"
        f"Node {number}, zone   Normal          100        15000          100\n\n"
        for number in (0, 1)
    ),
    "proc/sys/vm/swappiness": "60",
    "proc/sys/vm/zone_reclaim_mode": "0",
    "proc/sys/kernel/numa_balancing": "0",
    "proc/sys/kernel/randomize_va_space": "2",
    "proc/sys/kernel/nmi_watchdog": "0",
    "proc/sys/kernel/perf_event_paranoid": "0",
    "proc/irq/24/effective_affinity_list": "0-1",
    "proc/9/comm": "kthreadd",
    "sys/kernel/mm/ksm/run": "0",
    f"{THP}/enabled": "always [madvise] never",
    f"{THP}/defrag": "always defer defer+madvise [madvise] never",
    f"{THP}/hugepages-64kB/enabled": "always inherit madvise [never]",
    f"{THP}/hugepages-2048kB/enabled": "always [inherit] madvise never",
    f"{THP}/khugepaged/defrag": "0",
    f"{THP}/khugepaged/pages_to_scan": "4096",
    f"{THP}/khugepaged/scan_sleep_millisecs": "10000",
    "etc/tuned/active_profile": "throughput-performance",
    "sys/bus/event_source/devices/cpu/type": "4",
    **{
        f"{CPUS}/cpu0/cpuidle/state{number}/{file}": text
        for number, of_state in enumerate(
            [("POLL", "0", "0"), ("C1", "2", "0"), ("C6", "133", "1")]
        )
        for file, text in zip(("name", "latency", "disable"), of_state, strict=True)
    },
    f"{CPUS}/online": "0-7",
    f"{CPUS}/isolated": "2-7",
    f"{CPUS}/nohz_full": "2-7",
    f"{CPUS}/smt/control": "off",
    f"{CPUS}/smt/active": "0",
    f"{CPUS}/intel_pstate/no_turbo": "1",
    f"{CPUS}/cpu0/thermal_throttle/core_throttle_count": "0",
    f"{CPUS}/cpu0/thermal_throttle/package_throttle_count": "0",
    f"{CPUS}/vulnerabilities/meltdown": "Not affected",
    f"{CPUS}/vulnerabilities/spectre_v1": "Mitigation: usercopy/swapgs barriers",
    "sys/class/hwmon/hwmon0/name": "coretemp",
    "sys/class/hwmon/hwmon0/temp1_input": "41000",
    "sys/class/hwmon/hwmon1/name": "nvme",
    "sys/class/hwmon/hwmon1/temp1_input": "95000",
    "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
    "sys/class/thermal/thermal_zone0/temp": "42000",
    f"{CLOCKS}/current_clocksource": "tsc",
    f"{CLOCKS}/available_clocksource": "tsc hpet acpi_pm",
    f"{CGROUP}/cpu.max": "max 100000",
    f"{CGROUP}/memory.max": "max",
    **{
        f"{CPUFREQ}/policy{number}/{file}": text
        for number in range(4)
        for file, text in (
            ("scaling_governor", "performance"),
            ("scaling_available_governors", "performance powersave"),
            ("scaling_driver", "intel_pstate"),
            ("scaling_max_freq", "2600000"),
            ("scaling_min_freq", "800000"),
            ("cpuinfo_max_freq", "2600000"),
            ("energy_performance_preference", "performance"),
            ("energy_performance_available_preferences", "default performance power"),
        )
    },
    **{
        f"{NODES}/node{number}/{file}": text
        for number in (0, 1)
        for file, text in (
            (
                "meminfo",
                f"Node {number} MemTotal: 33554432 kB\nNode {number} MemFree: 30000000 kB\n"
                f"Node {number} FilePages: 1000000 kB\nNode {number} Shmem: 0 kB",
            ),
            ("hugepages/hugepages-2048kB/nr_hugepages", "0"),
            ("hugepages/hugepages-2048kB/free_hugepages", "0"),
            ("hugepages/hugepages-1048576kB/nr_hugepages", "0"),
            ("hugepages/hugepages-1048576kB/free_hugepages", "0"),
        )
    },
}


def make_doctor_tree(root: Path) -> Path:
    """Write it."""
    change(root, FIT)
    return root


def change(root: Path, files: Mapping[str, str | None]) -> None:
    """Write files into it; None: the file goes."""
    for name, text in files.items():
        path = root / name
        if text is None:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@contextmanager
def changed(root: Path, files: Mapping[str, str | None]) -> Iterator[Path]:
    """Have it otherwise for a while."""
    change(root, files)
    try:
        yield root
    finally:
        for name in files:
            if name in FIT:
                change(root, {name: FIT[name]})
            else:
                (root / name).unlink()
