"""The orders of a machine's CPUs in a few words."""

from collections.abc import Sequence
from typing import Any

from rater.plan.placement.layout import Bind, Layout, Order
from rater.plan.placement.orders import PERMUTATIONS, singles
from rater.plan.topology.model import PU, Topology


def layout(order: Order, **more: Any) -> Layout:
    return Layout(order.value, "", order, Bind.PU, **more)


def sequence(topology: Topology, order: Order) -> list[PU]:
    return [slot[0] for slot in PERMUTATIONS[order](singles(topology))]


def scatter(topology: Topology) -> list[PU]:
    return sequence(topology, Order.SCATTER)


def numbers(pus: Sequence[PU]) -> list[int]:
    return [pu.os for pu in pus]
