"""What is planned on 18 real machines, kept in `golden_plans.json` so that no change goes unseen.

After a change that is meant: `python -m tests.test_golden_plans` writes the file
anew; read the difference before it is committed.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from rater.plan.layout import NAMED_ORDERS, Layout, Order, load_layout
from rater.plan.layout_options import override
from rater.plan.place import MemoryPolicy, Placement, place
from rater.plan.topology import Topology
from tests.machines import needs_machines, real, real_machines

GOLDEN = Path(__file__).with_name("golden_plans.json")
FIRST = 12  # CPUs that are written out


def layouts() -> dict[str, Layout]:
    """Every layout that binds, and two with options."""
    found = {order.value: load_layout(order) for order in NAMED_ORDERS if order is not Order.NONE}
    found["balanced, bind core, smt 1"] = override(found["balanced"], bind="core", smt=1)
    found["fill, bind node, reserve 2"] = override(found["fill"], bind="node", reserve=2)
    return found


def plans(topology: Topology) -> dict[str, str]:
    """By layout: the first CPUs of a third as many copies as PUs, digests of whole plans."""
    pus = len(topology.pus)
    told: dict[str, str] = {}
    for name, layout in layouts().items():
        by_copies = {
            copies: place(topology, layout, copies, MemoryPolicy.LOCAL).placements
            for copies in (-(-pus // 3), pus, pus + pus // 2)
        }
        first = next(iter(by_copies.values()))[:FIRST]
        digests = [f"{copies}:{digest(found)}" for copies, found in by_copies.items()]
        told[name] = " ".join([*map(_cpus, first), "|", *digests])
    return told


def _cpus(placement: Placement) -> str:
    """`0`, or `0..7(4)` for a mask of four CPUs."""
    cpus = placement.cpus or ()
    return str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}..{cpus[-1]}({len(cpus)})"


def digest(placements: Sequence[Placement]) -> str:
    rows = [[p.copy, p.cpus, p.cpu, p.core, p.llc, p.node, p.package] for p in placements]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:12]


def all_plans() -> dict[str, dict[str, str]]:
    return {topology.source: plans(topology) for topology in real_machines()}


def golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text())
    return found


@needs_machines
@pytest.mark.parametrize("name", sorted(golden()))
def test_the_plans_for_a_real_machine_are_the_golden_ones(name: str) -> None:
    assert plans(real(name)) == golden()[name]


def test_there_are_golden_plans_for_18_machines_and_all_layouts() -> None:
    assert len(golden()) == 18
    assert all(set(told) == set(layouts()) for told in golden().values())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(all_plans(), indent=1) + "\n")
