from dataclasses import replace
from pathlib import Path

import pytest

from rater.run import facts, machine

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


TWO_NODES = machine.from_synthetic("nodes=2x4")


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
        other = machine.from_synthetic(text)
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


def test_settings_are_the_kernels_own_words(proc: Path, sys_: Path) -> None:
    snapshot = facts.settings_snapshot(proc, sys_)
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
    assert {name for name, _ in facts.settings_snapshot(nothing, nothing)} <= {"libc"}
    host = facts.host_facts(TWO_NODES, nothing, nothing, nothing)
    assert (host.vendor, host.cpu_model, host.microcode, host.memory_bytes) == (None,) * 4
    assert (host.machine_id_hash, host.product) == (None, None)


def test_this_host_can_be_told() -> None:
    host = facts.host_facts(machine.discover())
    assert host == facts.host_facts(machine.discover())
    assert host.memory_bytes is not None
    assert host.memory_bytes > 0
    assert dict(facts.settings_snapshot())["kernel.release"]
