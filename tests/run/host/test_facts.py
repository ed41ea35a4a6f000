"""Facts of the machine, and those that are stored with a run."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
from mmap import PAGESIZE
from pathlib import Path

import pytest
from msgspec.structs import replace

from rater.plan.hwloc_xml import parse_xml
from rater.run.host import discover as machine
from rater.run.host import facts
from rater.run.host.kept_xml import kept_xml
from rater.run.host.memory import read_node_memory
from rater.settings.known import is_volatile
from rater.system.errors import InputError

# One core of two threads, one of them not allowed.
XML = """<topology version="2.0">
  <object type="Machine" allowed_cpuset="0x1">
    <object type="NUMANode" os_index="3" cpuset="0x3"/>
    <object type="Core"><object type="PU" os_index="0"/><object type="PU" os_index="1"/></object>
  </object>
</topology>
"""


def test_this_machine_has_the_cpus_that_we_may_use() -> None:
    topology = machine.discover_topology()
    assert {pu.os for pu in topology.pus} == os.sched_getaffinity(0)
    assert topology.is_this_system
    assert topology.source == "this machine"
    assert sum(node.memory_bytes or 0 for node in topology.nodes) > 0


def test_cpus_taken_away_by_taskset_are_not_usable_but_known() -> None:
    code = (
        "import json, os; from rater.run.host import discover as machine; "
        "one = min(os.sched_getaffinity(0)); os.sched_setaffinity(0, {one}); "
        "t = machine.discover_topology(); "
        "print(json.dumps([[one], [p.os for p in t.pus], len(t.machine_pus)]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    one, usable, everything = json.loads(done.stdout)
    assert usable == one
    assert everything >= len(os.sched_getaffinity(0))


def test_another_machine_in_the_environment_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other.xml").write_text(XML)
    monkeypatch.setenv("HWLOC_XMLFILE", str(tmp_path / "other.xml"))
    monkeypatch.setenv("HWLOC_SYNTHETIC", "node:4 pu:2")
    monkeypatch.setenv("HWLOC_THISSYSTEM", "1")
    monkeypatch.setenv("HWLOC_PLUGINS_PATH", "/mine")
    topology = machine.discover_topology()
    assert {pu.os for pu in topology.pus} == os.sched_getaffinity(0)
    assert all(node.os != 3 for node in topology.nodes)
    left = {name: value for name, value in os.environ.items() if name.startswith("HWLOC_")}
    assert left == {
        "HWLOC_XMLFILE": str(tmp_path / "other.xml"),
        "HWLOC_SYNTHETIC": "node:4 pu:2",
        "HWLOC_THISSYSTEM": "1",
        "HWLOC_PLUGINS_PATH": "/mine",
    }


def test_hwloc_leaves_nothing_in_the_environment_and_is_loaded_only_when_needed() -> None:
    code = (
        "import os, sys; from pathlib import Path; from rater.run.host import discover as machine; "
        "before = dict(os.environ); machine.load_topology(sys.argv[1]); "
        "machine.load_topology('nodes=2x2'); "
        "assert 'pyhwloc' not in sys.modules; "
        "machine.discover_topology(); assert 'pyhwloc' in sys.modules; assert dict(os.environ) == "
        "before"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "/dev/stdin"],
        input=XML,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_machine_is_read_once_and_again_only_where_it_or_what_was_kept_changed(
    tmp_path: Path,
) -> None:
    online = tmp_path / "sys/devices/system/cpu/online"
    online.parent.mkdir(parents=True)
    online.write_text("0-3\n")
    cache, reads = tmp_path / "cache", iter(("first", "second", "third", "fourth", "fifth"))

    def kept() -> str:
        return kept_xml(cache, lambda: next(reads), root=tmp_path)

    assert [kept(), kept()] == ["first", "first"]
    online.write_text("0-2\n")
    assert [kept(), kept()] == ["second", "second"]
    whole = (cache / "machine.xml").read_text()
    (cache / "machine.xml").write_text(whole.replace("second", "forged"))
    assert [kept(), kept()] == ["third", "third"]
    cache = tmp_path / "sys/devices/system/cpu/online"  # no folder: nothing can be kept there
    assert [kept(), kept()] == ["fourth", "fifth"]


def test_a_kept_machine_is_the_one_that_hwloc_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine.discover_topology(tmp_path / "cache") == machine.discover_topology()
    monkeypatch.setattr(machine, "this_machine_xml", lambda: pytest.fail("it is read again"))
    assert machine.discover_topology(tmp_path / "cache").is_this_system


def test_without_pyhwloc_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyhwloc", None)
    with pytest.raises(InputError, match=r"hwloc cannot be loaded.*pip install 'pyhwloc>=3.0.1'"):
        machine.discover_topology()
    assert len(machine.load_topology("nodes=2x2").pus) == 4


def test_a_failing_hwloc_is_an_error_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyhwloc  # noqa: PLC0415 - only where it is broken on purpose

    def fail() -> None:
        raise RuntimeError("no such machine")

    monkeypatch.setattr(pyhwloc, "from_this_system", fail)
    with pytest.raises(InputError, match=r"hwloc cannot read this machine \(RuntimeError: no such"):
        machine.discover_topology()


def test_a_file_is_read_by_our_own_reader(tmp_path: Path) -> None:
    path = tmp_path / "two threads.xml"
    path.write_text(XML)
    topology = machine.load_topology(str(path))
    assert topology == parse_xml(XML, str(path))
    assert [(pu.os, pu.node) for pu in topology.pus] == [(0, 3)]
    assert not topology.is_this_system


def test_a_wrong_file_is_an_error_with_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.xml").write_text(XML.replace('os_index="1"', 'os_index="0"'))
    with pytest.raises(InputError, match=r"broken\.xml:4: object PU: os_index=0 is there twice"):
        machine.load_topology(str(tmp_path / "broken.xml"))
    with pytest.raises(InputError, match=r"is a folder.*HWLOC_FSROOT=.* lstopo machine\.xml"):
        machine.load_topology(str(tmp_path))
    with pytest.raises(InputError, match=r"there is no topology file .*none\.xml"):
        machine.load_topology(str(tmp_path / "none.xml"))
    monkeypatch.setattr(machine, "_LARGEST_FILE_BYTES", 1 << 20)
    with pytest.raises(InputError, match="/dev/zero is larger than 1 MiB"):
        machine.load_topology("/dev/zero")


NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 4 5
node 0 size: 8192 MB
node 1 cpus: 2 3
node 1 size: 4096 MB
node distances:
node   0   1
  0:  10  21
  1:  20  10
"""
LSCPU = """\
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ
  0    0      0    0 0:0:0:0          yes 3000.0000
  1    1      1    1 1:1:1:1          yes 3000.0000
  2    0      0    0 0:0:0:0          yes 3000.0000
  3    -      -    - -                 no         -
"""
LSCPU_JSON = json.dumps(
    {
        "cpus": [
            {
                "cpu": 0,
                "node": 0,
                "socket": 0,
                "core": 0,
                "l1d:l1i:l2:l3": "0:0:0:0",
                "online": True,
            },
            {
                "cpu": 1,
                "node": 1,
                "socket": 1,
                "core": 1,
                "l1d:l1i:l2:l3": "1:1:1:1",
                "online": True,
            },
            {
                "cpu": 2,
                "node": 0,
                "socket": 0,
                "core": 0,
                "l1d:l1i:l2:l3": "0:0:0:0",
                "online": True,
            },
            {"cpu": 3, "online": False},
        ]
    }
)


def test_what_numactl_prints_is_a_machine_of_nodes(tmp_path: Path) -> None:
    file = tmp_path / "numactl.txt.gz"
    half = len(NUMACTL) // 2  # two packed files, one behind the other, are one text
    file.write_bytes(
        b"".join(gzip.compress(part.encode()) for part in (NUMACTL[:half], NUMACTL[half:]))
    )
    topology = machine.load_topology(str(file))
    assert [(node.os, node.cpus) for node in topology.nodes] == [(0, (0, 1, 4, 5)), (1, (2, 3))]
    assert [(node.memory_bytes or 0) >> 30 for node in topology.nodes] == [8, 4]
    assert (topology.distance(0, 1), topology.distance(1, 0)) == (21.0, 20.0)
    assert not topology.details.has_cores


def test_a_packed_topology_that_takes_much_memory_to_unpack_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "machine.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 256 << 20}]
    file.write_bytes(lzma.compress(NUMACTL.encode(), filters=filters))
    with pytest.raises(InputError, match=r"cannot be unpacked .*[Mm]emory usage limit"):
        machine.load_topology(str(file))


@pytest.mark.parametrize("text", [LSCPU, LSCPU_JSON], ids=["-e", "-J -e"])
def test_what_lscpu_prints_is_a_machine_of_cores_and_caches(tmp_path: Path, text: str) -> None:
    (tmp_path / "lscpu").write_text(text)
    topology = machine.load_topology(str(tmp_path / "lscpu"))
    assert [(pu.os, pu.node, pu.package, pu.core, pu.llc, pu.rank) for pu in topology.pus] == [
        (0, 0, 0, 0, 0, 0),
        (2, 0, 0, 0, 0, 1),
        (1, 1, 1, 1, 1, 0),
    ]
    assert topology.details.offline == (3,) and topology.details.has_cores


HYBRID = """\
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ
  0    0      0    0 0:0:0:0          yes 5200.0000 800.0000
  1    0      0    0 0:0:0:0          yes 5200.0000 800.0000
  2    0      0    1 4:4:1:0          yes 5000.0000 800.0000
  3    0      0    2 8:8:2:0          yes 3500.0000 800.0000
  4    -      -    - -                 no         -        -
"""


@pytest.mark.parametrize("end", ["\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", [NUMACTL, HYBRID, XML], ids=["numactl", "lscpu", "xml"])
def test_text_that_other_systems_saved_is_the_same_machine(
    tmp_path: Path, text: str, encoding: str, end: str
) -> None:
    plain, other = tmp_path / "plain", tmp_path / "other"
    plain.write_text(text)
    other.write_bytes(text.replace("\n", end).encode(encoding))
    read = [machine.load_topology(str(file)) for file in (plain, other)]
    assert read[0].pus == read[1].pus and read[0].nodes == read[1].nodes


def test_xml_behind_a_blank_line_keeps_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "copied.xml"
    file.write_text('\n<?xml version="1.0" encoding="UTF-8"?>\n<wrong/>\n')
    with pytest.raises(InputError, match=r"copied.xml:3: found <wrong>"):
        machine.load_topology(str(file))


def test_a_machine_may_come_by_standard_input() -> None:
    command = [sys.executable, "-m", "rater", "--json", "topo", "-"]
    done = subprocess.run(
        command, input=bz2.compress(XML.encode()), capture_output=True, check=True
    )
    assert json.loads(done.stdout)["source"] == "standard input"


def test_nodes_by_cpus_number_cpus_node_by_node() -> None:
    for text in ("nodes=4x24", "4x24", " nodes=4x24\n"):
        topology = machine.load_topology(text)
        assert [pu.os for pu in topology.pus] == list(range(96))
        assert [pu.core for pu in topology.pus] == list(range(96))
        assert [pu.node for pu in topology.pus] == [cpu // 24 for cpu in range(96)]
        assert {pu.package for pu in topology.pus} == {None}
        assert topology.nodes[3].cpus == tuple(range(72, 96))
        assert topology.source == "nodes=4x24" or text == "4x24"


def test_a_synthetic_description_is_read_by_hwloc() -> None:
    topology = machine.load_topology("pack:2 numa:2 l3:1 core:3 pu:2")
    assert (len(topology.pus), len(topology.cores), len(topology.domains)) == (24, 12, 4)
    assert {pu.package for pu in topology.pus} == {0, 1}
    assert {pu.llc for pu in topology.pus} == {0, 1, 2, 3}
    assert not topology.is_this_system
    assert topology.source == "pack:2 numa:2 l3:1 core:3 pu:2"


def test_a_description_may_be_of_cpus_without_cores() -> None:
    assert len(machine.load_topology("node:4 pu:2").cores) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty topology"),
        ("  ", "an empty topology"),
        ("balderdash", "neither a file nor a description of a machine (stuck at 'balderdash')"),
        ("pack:2 pu", "(stuck at 'pu')"),
        ("pack:-1", "(stuck at 'pack:-1')"),
        ("a\0b", "neither a file nor a description"),
        ("pu:0", "does not describe a machine of 1 to 16384 PUs"),
        ("pack:9 pu:999999999999", "does not describe a machine of 1 to 16384 PUs"),
        ("foo:2 pu:2", "hwloc makes no machine of the description 'foo:2 pu:2'"),
        ("pu:4 core:2", "hwloc makes no machine"),
        ("nodes=0x4", "nodes=0x4 is 0 CPUs, expected 1 to 16384"),
        ("nodes=999999x999999", "expected 1 to 16384"),
        ("nodes=4", "stuck at 'nodes=4'"),
        ("./4x4", "there is no topology file ./4x4"),
    ],
)
def test_a_wrong_description_is_an_error_with_an_example(
    text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as caught:
        machine.load_topology(text)
    assert message in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("perturb", ["255", "1"])  # new memory is full of 0, of 254
def test_an_order_of_cpus_by_types_is_never_overlooked(perturb: str) -> None:
    code = (
        "from rater.run.host.discover import parse_synthetic as f;"
        "print(*[pu.os for pu in f('pack:2 core:3 pu:2(indexes=core:pack:pu)').pus])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"MALLOC_PERTURB_": perturb},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "0 6 1 7 2 8 3 9 4 10 5 11\n"


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
    host = facts.host_facts(TWO_NODES, proc.parent)
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
    before = facts.host_facts(TWO_NODES, proc.parent)
    write(
        proc,
        {
            "cpuinfo": XEON.format(mhz="999.9"),
            "meminfo": "MemTotal: 30000 kB",
            "sys/kernel/hostname": "renamed",
        },
    )
    part = replace(TWO_NODES, pus=TWO_NODES.pus[:3], whole=TWO_NODES.pus)
    after = facts.host_facts(part, proc.parent)
    assert after.fingerprint == before.fingerprint
    assert (after.pus, after.cores) == (8, 8)


def test_the_fingerprint_follows_model_microcode_and_topology(
    proc: Path, sys_: Path, etc: Path
) -> None:
    prints = {facts.host_facts(TWO_NODES, proc.parent).fingerprint}
    for text in ("nodes=4x2", "nodes=2x5"):
        other = machine.parse_synthetic(text)
        prints.add(facts.host_facts(other, proc.parent).fingerprint)
    for old, new in (("0x2006e05", "0x2006e06"), ("6132", "6148")):
        write(proc, {"cpuinfo": XEON.replace(old, new)})
        prints.add(facts.host_facts(TWO_NODES, proc.parent).fingerprint)
    assert len(prints) == 5


def test_two_machines_of_one_type_differ_in_the_machine_id_only(
    proc: Path, sys_: Path, etc: Path
) -> None:
    one = facts.host_facts(TWO_NODES, proc.parent)
    write(etc, {"machine-id": "f" * 32})
    other = facts.host_facts(TWO_NODES, proc.parent)
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
    host = facts.host_facts(TWO_NODES, proc.parent)
    assert host.vendor == "0x41"
    assert host.cpu_model == "ARM part 0xd85 + 0xd87 variant 0x0"
    assert host.microcode is None


@pytest.mark.usefixtures("sys_")
def test_settings_are_the_kernels_own_words(proc: Path) -> None:
    snapshot = facts.settings_snapshot(proc.parent)
    assert list(snapshot) == sorted(snapshot)
    settings = dict(snapshot)
    assert settings.pop("libc").startswith(("glibc", "musl"))
    assert settings.pop("kernel.page_bytes") == str(PAGESIZE)
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
    assert {name for name, _ in facts.settings_snapshot(nothing)} <= {
        *("kernel.page_bytes", "libc")
    }
    host = facts.host_facts(TWO_NODES, nothing)
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


def test_page_cache_and_huge_blocks_are_told_by_lgroup(tmp_path: Path) -> None:
    write(
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
    write(
        tmp_path / "sys",
        {
            "kernel/mm/transparent_hugepage/hpage_pmd_size": f"{4 * PAGESIZE}",
            "devices/system/node/node0/meminfo": NODE.format(node=0, free=100, files=5000),
            "devices/system/node/node1/meminfo": NODE.format(node=1, free=7, files=1024),
        },
    )
    found = dict(facts.settings_snapshot(tmp_path))
    del found["libc"], found["kernel.page_bytes"]
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
    now = read_node_memory(tmp_path)
    assert {node: (it.free_bytes, it.page_cache_bytes) for node, it in now.items()} == {
        0: (100 << 10, (5000 - 1024) << 10),
        1: (7 << 10, 0),
    }


def test_a_single_lgroup_has_what_the_machine_has(tmp_path: Path) -> None:
    write(
        tmp_path / "proc",
        {"meminfo": "MemTotal: 99 kB\nMemFree: 90 kB\nBuffers: 1 kB\nCached: 9 kB"},
    )
    write(
        tmp_path / "sys",
        {"devices/system/node/node0/meminfo": NODE.format(node=0, free=5, files=5000)},
    )
    now = read_node_memory(tmp_path)[0]
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


def test_cpus_isolated_by_a_partition_of_cgroups_are_isolated(tmp_path: Path) -> None:
    top = "sys/fs/cgroup"
    files = {
        "proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw",
        "proc/self/cgroup": "0::/job",
        "sys/devices/system/cpu/isolated": "7",
        f"{top}/job/cpuset.cpus.partition": "isolated",
        f"{top}/job/cpuset.cpus.effective": "2-3",
        f"{top}/a/cpuset.cpus.partition": "root",
        f"{top}/a/b/cpuset.cpus.partition": "isolated",
        f"{top}/a/b/cpuset.cpus.effective": "5",
        f"{top}/c/cpuset.cpus.partition": "isolated invalid (Parent is not a partition root)",
        f"{top}/c/cpuset.cpus.effective": "0-1",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert facts.isolated_cpus(tmp_path) == {2, 3, 5, 7}
    (tmp_path / top / "cpuset.cpus.isolated").write_text("2-5\n")
    assert facts.isolated_cpus(tmp_path) == {2, 3, 4, 5, 7}
    assert ("cgroup.isolated_cpus", "2-5") in list(facts.state_facts(tmp_path))
