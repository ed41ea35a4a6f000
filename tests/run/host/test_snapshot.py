from dataclasses import replace
from mmap import PAGESIZE
from pathlib import Path

import pytest

from rater.run.host import discover as machine
from rater.run.host import facts
from rater.run.host.memory import read_node_memory
from rater.settings.known import is_volatile

XEON = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Gold 6132 CPU @ 2.60GHz
microcode\t: 0x2006e05
cpu MHz\t\t: {mhz}

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Intel(R) Xeon(R) Gold 6132 CPU @ 2.60GHz
microcode\t: 0x2006e05
cpu MHz\t\t: 1000.000
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return write(
        tmp_path / "proc",
        {
            "cpuinfo": XEON.format(mhz="2600.123"),
            "meminfo": "MemTotal:  32768 kB\nMemFree: 1024 kB\nMemAvailable: 2048 kB\n"
            "HugePages_Total:  7",
            "loadavg": "0.50 0.25 0.10 1/234 5678",
            "cmdline": "quiet isolcpus=3",
            "sys/kernel/hostname": "node17",
            "sys/kernel/osrelease": "6.1.0-25-amd64",
            "sys/kernel/version": "#1 SMP Debian",
            "sys/kernel/numa_balancing": "1",
            "sys/kernel/randomize_va_space": "2",
            "sys/vm/swappiness": "60",
            "sys/vm/zone_reclaim_mode": "0",
        },
    )


@pytest.fixture
def sys_(tmp_path: Path) -> Path:
    cpu = "devices/system/cpu"
    thp = "kernel/mm/transparent_hugepage"
    node = "devices/system/node"
    files = {
        f"{cpu}/smt/control": "on",
        f"{cpu}/smt/active": "1",
        f"{cpu}/intel_pstate/no_turbo": "0",
        f"{cpu}/vulnerabilities/meltdown": "Mitigation: PTI",
        f"{cpu}/vulnerabilities/mds": "Not affected",
        f"{thp}/enabled": "always [madvise] never",
        f"{thp}/defrag": "always defer defer+madvise [madvise] never",
        f"{thp}/hugepages-64kB/enabled": "always inherit madvise [never]",
        f"{node}/node0/hugepages/hugepages-2048kB/nr_hugepages": "512",
        f"{node}/node0/hugepages/hugepages-2048kB/free_hugepages": "12",
        f"{node}/node10/hugepages/hugepages-1048576kB/nr_hugepages": "1",
        "devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        "class/dmi/id/sys_vendor": "Lenovo",
        "class/dmi/id/product_name": "SD530",
    }
    for number, governor in enumerate(("performance", "performance", "powersave", "performance")):
        files[f"{cpu}/cpufreq/policy{number}/scaling_governor"] = governor
        files[f"{cpu}/cpufreq/policy{number}/scaling_driver"] = "intel_pstate"
        files[f"{cpu}/cpufreq/policy{number}/affected_cpus"] = f"{number}"
    return write(tmp_path / "sys", files)


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    return write(tmp_path / "etc", {"machine-id": "0123456789abcdef0123456789abcdef"})


TWO_NODES = machine.parse_synthetic("nodes=2x4")


def test_the_host_is_told_as_the_system_tells_it(proc: Path, sys_: Path, etc: Path) -> None:
    host = facts.host_facts(TWO_NODES, proc, sys_, etc)
    assert host.hostname == "node17"
    assert host.product == "Lenovo SD530"
    assert host.vendor == "GenuineIntel"
    assert host.cpu_model == "Intel(R) Xeon(R) Gold 6132 CPU @ 2.60GHz"
    assert host.microcode == "0x2006e05"
    assert host.memory_bytes == 32 << 20
    assert (host.pus, host.cores, host.nodes, host.packages) == (8, 8, 2, 0)
    assert len(host.fingerprint) == 64


def test_the_fingerprint_does_not_follow_what_changes_by_itself(
    proc: Path, sys_: Path, etc: Path
) -> None:
    before = facts.host_facts(TWO_NODES, proc, sys_, etc)
    write(
        proc,
        {
            "cpuinfo": XEON.format(mhz="999.9"),
            "meminfo": "MemTotal: 30000 kB",
            "sys/kernel/hostname": "renamed",
        },
    )
    part = replace(TWO_NODES, pus=TWO_NODES.pus[:3], whole=TWO_NODES.pus)
    after = facts.host_facts(part, proc, sys_, etc)
    assert after.fingerprint == before.fingerprint
    assert (after.pus, after.cores) == (8, 8)


def test_the_fingerprint_follows_model_microcode_and_topology(
    proc: Path, sys_: Path, etc: Path
) -> None:
    prints = {facts.host_facts(TWO_NODES, proc, sys_, etc).fingerprint}
    for text in ("nodes=4x2", "nodes=2x5"):
        other = machine.parse_synthetic(text)
        prints.add(facts.host_facts(other, proc, sys_, etc).fingerprint)
    for old, new in (("0x2006e05", "0x2006e06"), ("6132", "6148")):
        write(proc, {"cpuinfo": XEON.replace(old, new)})
        prints.add(facts.host_facts(TWO_NODES, proc, sys_, etc).fingerprint)
    assert len(prints) == 5


def test_two_machines_of_one_type_differ_in_the_machine_id_only(
    proc: Path, sys_: Path, etc: Path
) -> None:
    one = facts.host_facts(TWO_NODES, proc, sys_, etc)
    write(etc, {"machine-id": "f" * 32})
    other = facts.host_facts(TWO_NODES, proc, sys_, etc)
    assert one.machine_id_hash != other.machine_id_hash
    assert replace(one, machine_id_hash=other.machine_id_hash) == other
    assert "0123456789abcdef" not in str(one)


def test_arm_cpus_are_told_by_their_part_numbers(proc: Path, sys_: Path, etc: Path) -> None:
    write(
        proc,
        {
            "cpuinfo": "processor: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\n"
            "CPU part\t: 0xd85\n\nprocessor: 1\nCPU implementer\t: 0x41\n"
            "CPU variant\t: 0x0\nCPU part\t: 0xd87\n"
        },
    )
    host = facts.host_facts(TWO_NODES, proc, sys_, etc)
    assert host.vendor == "0x41"
    assert host.cpu_model == "ARM part 0xd85 + 0xd87 variant 0x0"
    assert host.microcode is None


@pytest.mark.usefixtures("sys_")
def test_settings_are_the_kernels_own_words(proc: Path) -> None:
    snapshot = facts.settings_snapshot(proc.parent)
    assert list(snapshot) == sorted(snapshot)
    settings = dict(snapshot)
    assert settings.pop("libc").startswith(("glibc", "musl"))
    assert settings == {
        "clocksource": "tsc",
        "cpu.driver": "intel_pstate",
        "cpu.governor": "performance (CPUs 0-1,3), powersave (CPUs 2)",
        "cpu.no_turbo": "0",
        "cpu.smt.active": "1",
        "cpu.smt.control": "on",
        "hugepages.node0.2048kB.free": "12",
        "hugepages.node0.2048kB.total": "512",
        "hugepages.node10.1048576kB.total": "1",
        "hugepages.total": "7",
        "kernel.cmdline": "quiet isolcpus=3",
        "kernel.numa_balancing": "1",
        "kernel.randomize_va_space": "2",
        "kernel.release": "6.1.0-25-amd64",
        "kernel.version": "#1 SMP Debian",
        "load.15min": "0.10",
        "load.1min": "0.50",
        "load.5min": "0.25",
        "memory.available_bytes": str(2 << 20),
        "memory.free_bytes": str(1 << 20),
        "mitigation.mds": "Not affected",
        "mitigation.meltdown": "Mitigation: PTI",
        "thp.64kB.enabled": "never",
        "thp.defrag": "madvise",
        "thp.enabled": "madvise",
        "vm.swappiness": "60",
        "vm.zone_reclaim_mode": "0",
    }


def test_what_does_not_exist_is_left_out(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    assert {name for name, _ in facts.settings_snapshot(nothing)} <= {"libc"}
    host = facts.host_facts(TWO_NODES, nothing, nothing, nothing)
    assert (host.vendor, host.cpu_model, host.microcode, host.memory_bytes) == (None,) * 4
    assert (host.machine_id_hash, host.product) == (None, None)


def test_this_host_can_be_told() -> None:
    host = facts.host_facts(machine.discover_topology())
    assert host == facts.host_facts(machine.discover_topology())
    assert host.memory_bytes is not None
    assert host.memory_bytes > 0
    assert dict(facts.settings_snapshot())["kernel.release"]


# -- memory as a run finds it -------------------------------------------------------------------

NODE = """Node {node} MemTotal:       16777216 kB
Node {node} MemFree:        {free} kB
Node {node} Dirty:              12 kB
Node {node} Writeback:           0 kB
Node {node} FilePages:      {files} kB
Node {node} Shmem:            1024 kB
Node {node} AnonHugePages:    4096 kB
Node {node} HugePages_Total:     0
Node {node} ShmemPmdMapped:      0 kB"""
GB = 10**9


def test_page_cache_and_huge_blocks_are_told_by_lgroup(tmp_path: Path) -> None:
    proc = write(
        tmp_path / "proc",
        {
            "meminfo": "MemFree: 9 kB\nDirty: 3 kB\nWriteback: 1 kB\nAnonHugePages: 2048 kB\n"
            "HugePages_Total:     4\nHugePages_Free:      3\nHugePages_Rsvd:      2\n"
            "HugePages_Surp:      1\nHugepagesize:     2048 kB",
            "buddyinfo": "Node 0, zone      DMA      1      0      1\n"
            "Node 0, zone   Normal      9      9      9      5\n"
            "Node 1, zone  Movable    100    100",
        },
    )
    sys = write(
        tmp_path / "sys",
        {
            "kernel/mm/transparent_hugepage/hpage_pmd_size": f"{4 * PAGESIZE}",
            "devices/system/node/node0/meminfo": NODE.format(node=0, free=100, files=5000),
            "devices/system/node/node1/meminfo": NODE.format(node=1, free=7, files=1024),
        },
    )
    found = dict(facts.settings_snapshot(tmp_path))
    del found["libc"]
    assert found == {
        "hugepages.free": "3",
        "hugepages.reserved": "2",
        "hugepages.surplus": "1",
        "hugepages.total": "4",
        "memory.anon_huge_bytes": str(2 << 20),
        "memory.dirty_bytes": "3072",
        "memory.free_bytes": "9216",
        "memory.writeback_bytes": "1024",
        "memory.node0.anon_huge_bytes": str(4 << 20),
        "memory.node0.dirty_bytes": "12288",
        "memory.node0.free_bytes": "102400",
        "memory.node0.free_huge_order_bytes": str((1 + 9) * 4 * PAGESIZE + 5 * 8 * PAGESIZE),
        "memory.node0.page_cache_bytes": "5120000",
        "memory.node0.shmem_bytes": "1048576",
        "memory.node0.writeback_bytes": "0",
        "memory.node1.anon_huge_bytes": str(4 << 20),
        "memory.node1.dirty_bytes": "12288",
        "memory.node1.free_bytes": "7168",
        "memory.node1.free_huge_order_bytes": "0",
        "memory.node1.page_cache_bytes": "1048576",
        "memory.node1.shmem_bytes": "1048576",
        "memory.node1.writeback_bytes": "0",
    }
    now = read_node_memory(proc, sys)
    assert {node: (it.free_bytes, it.page_cache_bytes) for node, it in now.items()} == {
        0: (100 << 10, (5000 - 1024) << 10),
        1: (7 << 10, 0),
    }


def test_a_single_lgroup_has_what_the_machine_has(tmp_path: Path) -> None:
    proc = write(
        tmp_path / "proc",
        {"meminfo": "MemTotal: 99 kB\nMemFree: 90 kB\nBuffers: 1 kB\nCached: 9 kB"},
    )
    sys = write(
        tmp_path / "sys",
        {"devices/system/node/node0/meminfo": NODE.format(node=0, free=5, files=5000)},
    )
    now = read_node_memory(proc, sys)[0]
    assert (now.free_bytes, now.page_cache_bytes) == (90 << 10, 10 << 10)


# -- what copies inherit ------------------------------------------------------------------------


def test_variables_that_may_change_speed_are_told_and_no_others() -> None:
    environ = {
        "PATH": "/usr/bin",
        "LD_PRELOAD": "/lib/libjemalloc.so",
        "OMP_NUM_THREADS": "4",
        "MALLOC_ARENA_MAX": "1",
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "PYTHONHASHSEED": "0",
        "LC_ALL": "C",
        "LANG": "",
        "GOGC": "off",
        "CFLAGS": "-O3 \udcff",
        "HOME": "/root",
        "PATHS": "x",
        "API_TOKEN": "secret",
        "MY_OMP_THING": "x",
    }
    assert facts.environment_snapshot(environ) == (
        ("env.CFLAGS", "-O3 \\xff"),
        ("env.GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
        ("env.GOGC", "off"),
        ("env.LC_ALL", "C"),
        ("env.LD_PRELOAD", "/lib/libjemalloc.so"),
        ("env.MALLOC_ARENA_MAX", "1"),
        ("env.OMP_NUM_THREADS", "4"),
        ("env.PATH", "/usr/bin"),
        ("env.PYTHONHASHSEED", "0"),
    )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("load.1min", True),
        ("memory.free_bytes", True),
        ("memory.node0.page_cache_bytes", True),
        ("rater.supervisor_priority", True),
        ("hugepages.free", True),
        ("hugepages.surplus", True),
        ("hugepages.node0.2048kB.free", True),
        ("hugepages.node0.2048kB.total", False),
        ("hugepages.total", False),
        ("cpu.governor", False),
        ("env.PATH", False),
        ("kernel.release", False),
    ],
)
def test_readings_are_told_from_settings(name: str, answer: bool) -> None:
    assert is_volatile(name) is answer
