"""Machines as `numactl -H` and `lscpu` print them, in any language."""

from __future__ import annotations

import json

import pytest

from rater.plan.printed_machine import parse_printed

LSCPU_LIST = "# all\n# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n0,0,0,0,,0,0,0,0\n1,1,1,1,,1,1,1,1\n"
HYBRID = """\
CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE    MAXMHZ   MINMHZ
  0    0      0    0 0:0:0:0          yes 5200.0000 800.0000
  1    0      0    0 0:0:0:0          yes 5200.0000 800.0000
  2    0      0    1 4:4:1:0          yes 5000.0000 800.0000
  3    0      0    2 8:8:2:0          yes 3500.0000 800.0000
  4    -      -    - -                 no         -        -
"""
BIG_LITTLE = """\
CPU NODE MODELNAME         MAXMHZ
  0    0 Cortex-A55     1800.0000
  1    0 Cortex-A76 CPU 1900.0000
"""


@pytest.mark.parametrize(
    "text",
    [
        LSCPU_LIST,
        "CPU(s):              2\nNUMA node0 CPU(s):   0\nNUMA node1 CPU(s):   1\n",
        '{"lscpu": [{"field": "NUMA node0 CPU(s):", "data": "0"},\n'
        '  {"field": "NUMA node1 CPU(s):",\n   "data": "1"}]}',
    ],
    ids=["-p", "summary", "-J"],
)
def test_lists_of_lscpu_tell_nodes(text: str) -> None:
    topology = parse_printed(text, "lscpu")
    assert topology is not None
    assert [(node.os, node.cpus) for node in topology.nodes] == [(0, (0,)), (1, (1,))]


@pytest.mark.parametrize("text", ["", "hello", "CPU\n", "{}", '{"cpus": 3}', "[1]", "1,2\n3,4\n"])
def test_other_text_is_no_machine(text: str) -> None:
    assert parse_printed(text, "x") is None


def kinds_of(text: str) -> tuple[bool, list[tuple[int, int]]]:
    topology = parse_printed(text, "lscpu")
    assert topology is not None
    pus = sorted(topology.pus, key=lambda pu: pu.os)
    return topology.details.has_kinds, [(pu.os, pu.kind) for pu in pus]


def test_lscpu_tells_kinds_of_cpus_by_model_and_highest_clock() -> None:
    fast_and_slow = [(0, 1), (1, 1), (2, 1), (3, 0)]
    assert kinds_of(HYBRID) == (True, fast_and_slow)
    assert kinds_of(HYBRID.replace("5200.0000", "5200,0000")) == (True, fast_and_slow)
    assert kinds_of(HYBRID.replace("3500", "4900")) == (True, [(0, 0), (1, 0), (2, 0), (3, 0)])
    assert kinds_of(HYBRID.replace("MAXMHZ", "x")) == (False, [(0, 0), (1, 0), (2, 0), (3, 0)])
    assert kinds_of(BIG_LITTLE) == (True, [(0, 0), (1, 1)])
    listed = "# CPU,Node,MAXMHZ\n0,0,3500.0000\n1,0,4800.0000\n"
    assert kinds_of(listed) == (True, [(0, 0), (1, 1)])
    rows = [{"cpu": 0, "node": 0, "maxmhz": 3500.0}, {"cpu": 1, "node": 0, "maxmhz": 4800.0}]
    assert kinds_of(json.dumps({"cpus": rows})) == (True, [(0, 0), (1, 1)])


@pytest.mark.parametrize(
    "label",
    [
        "NUMA-Knoten{} CPU(s):",
        "  NUMA node{} CPU(s):",
        "Nœud NUMA {} de processeur(s) :",
        "CPU(s) del nodo NUMA {}:",
        "NUMA 节点{} CPU：",
        "CPU(s) de nó{} NUMA:",
    ],
)
def test_the_summary_of_lscpu_is_read_in_any_language(label: str) -> None:
    lines = ["NUMA:  2", f"{label.format(0)}  0,2", f"{label.format(1)}  1", label.format(2)]
    topology = parse_printed("\n".join(lines), "lscpu")
    assert topology is not None
    assert [(node.os, node.cpus) for node in topology.nodes] == [(0, (0, 2)), (1, (1,)), (2, ())]


@pytest.mark.parametrize("word", ["no", "nein", "нет"])
def test_an_offline_cpu_is_known_in_any_language(word: str) -> None:
    topology = parse_printed(HYBRID.replace(" no ", f" {word} "), "lscpu")
    assert topology is not None and topology.details.offline == (4,)
    unknown = parse_printed(HYBRID.replace(" no ", " xx "), "lscpu")
    assert unknown is not None and unknown.details.offline == (4,)  # it has no place
