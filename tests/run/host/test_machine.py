import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.hwloc_xml import parse_xml
from rater.run.host import discover as machine

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
    assert sum(node.memory_bytes for node in topology.nodes) > 0


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
    with pytest.raises(InputError, match="Is a directory"):
        machine.load_topology(str(tmp_path))
    with pytest.raises(InputError, match=r"there is no topology file .*none\.xml"):
        machine.load_topology(str(tmp_path / "none.xml"))
    monkeypatch.setattr(machine, "_LARGEST_FILE_BYTES", 1 << 20)
    with pytest.raises(InputError, match="/dev/zero is larger than 1 MiB"):
        machine.load_topology("/dev/zero")


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
