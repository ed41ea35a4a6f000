"""How often copies are looked at while they run, and what their plan says of what is seen; pure.

`GateFacts` and `Sampled` (`rater.record`) are what `run/observe.py` reads, the database
holds and `analysis/proof.py` judges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rater.errors import InputError
from rater.plan.cpuset import format_list

if TYPE_CHECKING:  # `--proof` is checked by commands that need no records
    from rater.record import GateFacts, Sampled

LEAST_EVERY_S = 0.05
_SECONDS = re.compile(r"\d+(?:\.\d*)?|\.\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often to look at a copy."""

    once: bool = False
    every_s: float | None = None  # None: as often as costs little

    def __str__(self) -> str:
        """Return it as `--proof` takes it."""
        return "once" if self.once else "auto" if self.every_s is None else f"{self.every_s:g}"


def parse_cadence(text: str) -> Cadence | None:
    """Return what `--proof` asks for: `auto`, `once`, seconds, or `off` (None)."""
    if text in ("off", "auto", "once"):
        return None if text == "off" else Cadence(once=text == "once")
    every_s = float(text) if _SECONDS.fullmatch(text) else math.nan
    if not (LEAST_EVERY_S <= every_s < math.inf):
        raise InputError(
            f"--proof {text!r}: expected auto, once, off, or seconds between two looks at a copy "
            f"({LEAST_EVERY_S:g} or more)"
        )
    return Cadence(every_s=every_s)


def together(first: Sampled, then: Sampled, nodes: Sequence[int]) -> Sampled:
    """Return two samples of one copy as one: averages by the looks behind each, extremes kept.

    `nodes` are those that its memory is to come from: what lay elsewhere in one look
    must not vanish in an average.
    """
    weights = (first.looks, then.looks)
    highest = (first.peak_bytes, then.peak_bytes, first.rss_bytes, then.rss_bytes)
    return replace(
        then,
        processes=max(first.processes, then.processes),
        unread=max(first.unread, then.unread),
        cpus=tuple(sorted({*first.cpus, *then.cpus})),
        allowed=_united(first.allowed, then.allowed),
        migrations=_largest((first.migrations, then.migrations)),
        pages_migrated=_largest((first.pages_migrated, then.pages_migrated)),
        node_bytes=_mean_table(first.node_bytes, then.node_bytes, weights),
        astray_bytes=max(
            (first.astray_bytes or first.node_bytes, then.astray_bytes or then.node_bytes),
            key=lambda table: _astray(table, nodes),
        ),
        policy=then.policy or first.policy,
        page_bytes=_mean_table(first.page_bytes, then.page_bytes, weights),
        rss_bytes=_mean(first.rss_bytes, then.rss_bytes, weights),
        peak_bytes=_largest(highest),
        swap_bytes=_largest((first.swap_bytes, then.swap_bytes)),
        read_ns=max(first.read_ns, then.read_ns),
        looks=sum(weights),
    )


def _astray(node_bytes: tuple[tuple[int, int], ...] | None, nodes: Sequence[int]) -> float:
    """Rank a look by what lay on other nodes than these: much, and a large part of all."""
    total = sum(size for _, size in node_bytes or ())
    off = sum(size for node, size in node_bytes or () if node not in nodes)
    return off * off / total if total else 0.0


def gate_complaints(
    facts: GateFacts, cpus: Sequence[int] | None, memory_nodes: Sequence[int]
) -> tuple[str, ...]:
    """Say in words where the kernel's limits for a copy differ from its plan.

    `cpus` is the planned mask (None: not bound), `memory_nodes` the nodes its
    memory is to come from (empty: none in particular).
    """
    complaints = []
    if cpus is not None and facts.cpus is not None and set(cpus) != set(facts.cpus):
        planned, seen = format_list(cpus), format_list(facts.cpus) or "none"
        if set(facts.cpus) < set(cpus):
            complaints.append(
                f"may use CPUs {seen} only of the planned {planned}: a cpuset (container, batch "
                "system) or an offline CPU narrows them"
            )
        else:
            complaints.append(f"bound to CPUs {seen}, planned {planned}")
    if facts.mems is not None:
        missing = set(memory_nodes) - set(facts.mems)
        if missing:
            complaints.append(
                f"may not take memory of lgroup {format_list(missing)} as planned: its cpuset "
                f"allows {format_list(facts.mems) or 'none'}"
            )
    return tuple(complaints)


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _united(first: tuple[int, ...] | None, then: tuple[int, ...] | None) -> tuple[int, ...] | None:
    if first is None or then is None or first == then:
        return first if then is None else then
    return tuple(sorted({*first, *then}))


def _mean(first: int | None, then: int | None, weights: tuple[int, int]) -> int | None:
    if first is None or then is None:
        return first if then is None else then
    return round((first * weights[0] + then * weights[1]) / sum(weights))


def _mean_table(
    first: tuple[tuple[int, int], ...] | None,
    then: tuple[tuple[int, int], ...] | None,
    weights: tuple[int, int],
) -> tuple[tuple[int, int], ...] | None:
    if first is None or then is None:
        return first if then is None else then
    before, after = dict(first), dict(then)
    keys = sorted(before.keys() | after.keys())
    return tuple((key, _mean(before.get(key, 0), after.get(key, 0), weights) or 0) for key in keys)
