"""What is planned on 18 real and 12 made machines, in `golden_plans.json`: no change goes unseen.

After a change that is meant: `python -m tests.plan.placement.test_golden_plans` writes the file
anew; read the difference before it is committed.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rater.errors import InputError
from rater.plan.placement.layout import NAMED_ORDERS, CpuOrder, Layout, load_layout, override_layout
from rater.plan.placement.memory_policy import Memory, MemoryPolicy
from rater.plan.placement.place import Placement, PlacementPlan, plan_placements
from rater.plan.topology import Topology
from tests.support.machines import generated, real, real_machines
from tests.support.places import needs_machines

GOLDEN = Path(__file__).with_name("golden_plans.json")
FIRST = 12  # CPUs that are written out
MADE = 12  # machines that nobody built: any clone has them


def asked() -> dict[str, tuple[Layout, Memory]]:
    """Every layout that binds, two with options, and other memory than local."""
    local = Memory(MemoryPolicy.LOCAL)
    found = {
        order.value: load_layout(order) for order in NAMED_ORDERS if order is not CpuOrder.NONE
    }
    balanced = found["balanced"]
    found["balanced, bind core, smt 1"] = override_layout(balanced, bind="core", smt=1)
    found["fill, bind node, reserve 2"] = override_layout(found["fill"], bind="node", reserve=2)
    return {name: (layout, local) for name, layout in found.items()} | {
        "balanced, mem bind": (balanced, Memory(MemoryPolicy.BIND)),
        "balanced, mem interleave": (balanced, Memory(MemoryPolicy.INTERLEAVE)),
    }


def plans(topology: Topology) -> dict[str, str]:
    """By layout: the first CPUs of a third as many copies as PUs, digests of whole plans."""
    pus = len(topology.pus)
    told: dict[str, str] = {}
    for name, (layout, memory) in asked().items():
        try:
            by_copies = {
                copies: plan_placements(topology, layout, copies, memory)
                for copies in (-(-pus // 3), pus, pus + pus // 2)
            }
        except InputError as error:  # CPUs without memory that could be bound
            told[name] = str(error)
            continue
        first = next(iter(by_copies.values())).placements[:FIRST]
        digests = [f"{copies}:{digest(found)}" for copies, found in by_copies.items()]
        told[name] = " ".join([*map(_cpus, first), "|", *digests])
    return told


def _cpus(placement: Placement) -> str:
    """`0`, or `0..7(4)` for a mask of four CPUs."""
    cpus = placement.cpus or ()
    return str(cpus[0]) if len(cpus) == 1 else f"{cpus[0]}..{cpus[-1]}({len(cpus)})"


def digest(placed: PlacementPlan) -> str:
    """Of all that a plan says: places, memory, reserved CPUs, warnings."""
    return hashlib.sha256(json.dumps(asdict(placed)).encode()).hexdigest()[:12]


def all_plans() -> dict[str, dict[str, str]]:
    every = (*real_machines(), *generated()[:MADE])
    return {topology.source: plans(topology) for topology in every}


def golden() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(GOLDEN.read_text())
    return found


@needs_machines
@pytest.mark.parametrize("name", [it for it in sorted(golden()) if "machine " not in it])
def test_the_plans_for_a_real_machine_are_the_golden_ones(name: str) -> None:
    assert plans(real(name)) == golden()[name]


@pytest.mark.parametrize("seed", range(MADE))
def test_the_plans_for_a_made_machine_are_the_golden_ones(seed: int) -> None:
    assert plans(generated()[seed]) == golden()[f"machine {seed}"]


def test_there_are_golden_plans_for_all_machines_and_all_layouts() -> None:
    assert len(golden()) == 18 + MADE
    assert all(set(told) == set(asked()) for told in golden().values())


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(all_plans(), indent=1) + "\n")
