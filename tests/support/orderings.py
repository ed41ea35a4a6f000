"""The orders of a machine's CPUs in a few words."""

from collections.abc import Sequence
from typing import Any

from rater.plan.placement.layout import BindLevel, CpuOrder, Layout
from rater.plan.placement.offer import offer_cpus
from rater.plan.placement.place import Assignment, assign
from rater.plan.placement.slots import PERMUTATIONS, singles
from rater.plan.topology import PU, Topology


def layout(order: CpuOrder, **more: Any) -> Layout:
    return Layout(name=order.value, description="", order=order, bind=BindLevel.PU, **more)


def assign_cpus(topology: Topology, layout: Layout, copies: int, threads: int = 1) -> Assignment:
    return assign(offer_cpus(topology, layout), copies, threads)


def sequence(topology: Topology, order: CpuOrder) -> list[PU]:
    return [slot[0] for slot in PERMUTATIONS[order](singles(topology))]


def scatter(topology: Topology) -> list[PU]:
    return sequence(topology, CpuOrder.SCATTER)


def numbers(pus: Sequence[PU]) -> list[int]:
    return [pu.os for pu in pus]
